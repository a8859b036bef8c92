//! Filters of system calls.
//!
//! The filter of every sandboxed process refuses the calls that let a program leave its namespaces or read other
//! processes, allows those on a list ([`allowed`]), and answers `ENOSYS` to all others, known or not, as a kernel
//! without them does: libraries then fall back to older calls. The filters added to it refuse more.

mod allowed;

use std::io;

use libc::c_long;

use super::sys::Instruction;

/// The architecture that the call numbers belong to: x86-64. 32-bit calls have other numbers and end the process.
const MACHINE: u32 = 0xC000_003E;

/// Numbers from here on are the x32 calls of x86-64: the same calls under other numbers.
const FOREIGN_NUMBERS: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7FFF_0000;
const KILL: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000;
const NOTICE: u32 = 0x7FC0_0000;

const EPERM: u32 = libc::EPERM as u32;
const ENOSYS: u32 = libc::ENOSYS as u32;

/// Offsets in the record of the call that the kernel shows a filter (`struct seccomp_data`).
const NUMBER_AT: u32 = 0;
const MACHINE_AT: u32 = 4;
const FIRST_ARGUMENT_AT: u32 = 16;

/// Flags of clone and unshare that make namespaces.
const NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u32
    | 0x80;

/// The namespaces that a worker enters by itself before it is sealed.
pub(super) const WORKER_NAMESPACES: i32 = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;

/// When a call is refused.
#[derive(Debug, Clone, Copy)]
enum When<'a> {
    Always,
    /// An argument has any of these bits.
    Bits(u32, u32),
    /// An argument has none of these bits.
    Lacks(u32, u32),
    /// An argument is this.
    Is(u32, u32),
    /// An argument is none of these.
    IsNone(u32, &'a [u32]),
    /// The lower half of an argument's last byte is none of these.
    NoKind(u32, &'a [u32]),
    /// An argument, but for its last byte, is this.
    Begins(u32, u32),
}

/// Newer than the names known here.
const OPEN_TREE_ATTR: c_long = 467;
const FCHMODAT2: c_long = 452;

/// Refused to zygotes and workers.
const REFUSED_TO_ALL: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_mknodat,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_fanotify_init,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Memory that belongs to no process: it would outlive the program or escape its limit.
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_mknod,
    libc::SYS_uselib,
];

/// Refused to sealed workers. A process that cannot leave its process group ends with the worker.
const REFUSED_TO_WORKERS: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_unshare,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
];

/// Mode bits that give the rights of a file's owner or group to any process that executes it.
const SET_ID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;

/// Calls that set a file's mode, and the index of that argument.
const SETS_MODE: &[(c_long, u32)] = &[
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_creat, 1),
    (libc::SYS_open, 2),
    (libc::SYS_openat, 3),
];

/// Socket types that exchange data only with the peer they are connected to.
const CONNECTED: &[u32] = &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32];
/// Upper bytes of the ioctl requests about network interfaces, addresses and routes.
const SOCKET_IOCTLS: u32 = 0x8900;

/// Requests that make the kernel signal a process when a descriptor becomes ready.
const OWNER_BY_FCNTL: [u32; 2] = [libc::F_SETOWN as u32, 15];
/// Requests that report what other processes do to a directory or a file (`F_NOTIFY`, `F_SETLEASE`), or that take from a
/// quota which all processes of a user share (`F_SETPIPE_SZ`).
const SHARED_BY_FCNTL: [u32; 3] =
    [libc::F_NOTIFY as u32, libc::F_SETLEASE as u32, libc::F_SETPIPE_SZ as u32];
const OWNER_BY_IOCTL: [u32; 2] = [0x8901, 0x8902];

/// Ways to make a process beside `clone`.
const FORKS: &[c_long] = &[libc::SYS_fork, libc::SYS_vfork];

/// The zygote's process number in its own process namespace.
const INIT: u32 = 1;
const ALL_PROCESSES: u32 = u32::MAX;
/// What a priority is set for: one process or thread.
const PRIORITY_OF_PROCESS: u32 = 0;
const IO_PRIORITY_OF_PROCESS: u32 = 1;

/// Calls whose first argument is the process to signal.
const SIGNALS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// The sockets that may be created.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sockets {
    pub(super) families: &'static [u32],
    /// Whether the host makes connections on the program's behalf.
    pub(super) mediated: bool,
}

/// A filter, ready to be installed.
#[derive(Debug, Clone)]
pub(super) struct Filter(Vec<Instruction>);

impl Filter {
    /// The filter of every process in a sandbox.
    pub(super) fn zygote(sockets: Sockets) -> io::Result<Self> {
        let mut filter = Self::begin();
        for number in REFUSED_TO_ALL {
            filter.refuse(*number, When::Always, EPERM)?;
        }
        // A filter cannot see the flags of clone3. Libraries fall back to clone when it is missing.
        filter.refuse(libc::SYS_clone3, When::Always, ENOSYS)?;
        filter.refuse(libc::SYS_clone, When::Bits(0, NAMESPACES), EPERM)?;
        filter.refuse(libc::SYS_unshare, When::IsNone(0, &[WORKER_NAMESPACES as u32]), EPERM)?;
        filter.refuse(libc::SYS_socket, When::IsNone(0, sockets.families), EPERM)?;
        // A datagram socket of a pair can send to any address, and raw sockets of a pair are datagram sockets.
        filter.refuse(libc::SYS_socketpair, When::IsNone(0, &[libc::AF_UNIX as u32]), EPERM)?;
        filter.refuse(libc::SYS_socketpair, When::NoKind(1, CONNECTED), EPERM)?;
        if sockets.mediated {
            // Only streams, and only `connect` may connect them.
            const FAST_OPEN: u32 = 0x2000_0000;
            const TCP: &[u32] = &[0, libc::IPPROTO_TCP as u32];
            filter.refuse(libc::SYS_socket, When::NoKind(1, &[libc::SOCK_STREAM as u32]), EPERM)?;
            filter.refuse(libc::SYS_socket, When::IsNone(2, TCP), EPERM)?;
            filter.refuse(libc::SYS_sendto, When::Bits(3, FAST_OPEN), EPERM)?;
            filter.refuse(libc::SYS_sendmsg, When::Bits(2, FAST_OPEN), EPERM)?;
            filter.refuse(libc::SYS_sendmmsg, When::Bits(3, FAST_OPEN), EPERM)?;
            // A socket that the host connected is in the host's network: it must not listen there, nor
            // list the host's interfaces.
            filter.refuse(libc::SYS_listen, When::Always, EPERM)?;
            filter.refuse(libc::SYS_ioctl, When::Begins(1, SOCKET_IOCTLS), EPERM)?;
        }
        for (number, mode_at) in SETS_MODE {
            filter.refuse(*number, When::Bits(*mode_at, SET_ID_BITS), EPERM)?;
        }
        // The same as openat, but a filter cannot see its mode.
        filter.refuse(libc::SYS_openat2, When::Always, ENOSYS)?;
        filter.refuse(libc::SYS_ioctl, When::Is(1, 0x5412), EPERM)?; // TIOCSTI types into a terminal
        filter.refuse(libc::SYS_ioctl, When::Is(1, 0x541C), EPERM)?; // TIOCLINUX
        filter.end_with_list(&allowed::numbers()?)
    }

    /// The additional filter of a sealed worker. `isolated`: it has its own process namespace, in which
    /// process 1 is its zygote.
    pub(super) fn worker(isolated: bool) -> io::Result<Self> {
        let mut filter = Self::begin();
        for number in REFUSED_TO_WORKERS {
            filter.refuse(*number, When::Always, EPERM)?;
        }
        // A worker may set only its own limits, processors and priorities. Workers of other agents have the
        // same user, which is all that the kernel checks.
        filter.refuse(libc::SYS_prlimit64, When::IsNone(0, &[0]), EPERM)?;
        filter.refuse(libc::SYS_sched_setaffinity, When::IsNone(0, &[0]), EPERM)?;
        for (number, of_process) in [
            (libc::SYS_setpriority, PRIORITY_OF_PROCESS),
            (libc::SYS_ioprio_set, IO_PRIORITY_OF_PROCESS),
        ] {
            filter.refuse(number, When::IsNone(0, &[of_process]), EPERM)?;
            filter.refuse(number, When::IsNone(1, &[0]), EPERM)?;
        }
        filter.refuse(libc::SYS_kill, When::Is(0, ALL_PROCESSES), EPERM)?;
        for request in OWNER_BY_FCNTL.into_iter().chain(SHARED_BY_FCNTL) {
            filter.refuse(libc::SYS_fcntl, When::Is(1, request), EPERM)?;
        }
        for request in OWNER_BY_IOCTL {
            filter.refuse(libc::SYS_ioctl, When::Is(1, request), EPERM)?;
        }
        if isolated {
            for number in SIGNALS {
                filter.refuse(*number, When::Is(0, INIT), EPERM)?;
            }
        } else {
            // Landlock does not restrict it: it reports the names of files that come and go.
            filter.refuse(libc::SYS_inotify_add_watch, When::Always, EPERM)?;
        }
        Ok(filter.end())
    }

    /// The additional filter of a process that may start threads but no processes.
    pub(super) fn no_children() -> io::Result<Self> {
        let mut filter = Self::begin();
        for number in FORKS {
            filter.refuse(*number, When::Always, EPERM)?;
        }
        filter.refuse(libc::SYS_clone, When::Lacks(0, libc::CLONE_THREAD as u32), EPERM)?;
        Ok(filter.end())
    }

    /// Passes every `connect` to the host.
    pub(super) fn connections() -> io::Result<Self> {
        let mut filter = Self::begin();
        filter.act(libc::SYS_connect, When::Always, NOTICE)?;
        Ok(filter.end())
    }

    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// The instructions as the kernel reads them.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let bytes = |it: &Instruction| {
            let [code, _] = [it.code, 0].map(u16::to_ne_bytes);
            [&code[..], &[it.jt, it.jf], &it.k.to_ne_bytes()].concat()
        };
        self.0.iter().flat_map(bytes).collect()
    }

    fn begin() -> Self {
        let mut filter = Self(Vec::new());
        filter.push(LOAD, MACHINE_AT, 0, 0);
        filter.push(JUMP_EQUAL, MACHINE, 1, 0);
        filter.push(RETURN, KILL, 0, 0);
        filter.push(LOAD, NUMBER_AT, 0, 0);
        filter.push(JUMP_AT_LEAST, FOREIGN_NUMBERS, 0, 1);
        filter.push(RETURN, REFUSE | EPERM, 0, 0);
        filter
    }

    fn refuse(&mut self, number: c_long, when: When<'_>, errno: u32) -> io::Result<()> {
        self.act(number, when, REFUSE | errno)
    }

    /// Adds a check. Every check starts and ends with the call's number loaded. Fails if the check is too long
    /// to be jumped over: a shorter jump would change what the filter refuses.
    fn act(&mut self, number: c_long, when: When<'_>, action: u32) -> io::Result<()> {
        let number = u32::try_from(number).map_err(|_| io::Error::other(BAD_NUMBER))?;
        let argument = |at: u32| FIRST_ARGUMENT_AT + 8 * at;
        let mut check = Self(Vec::new());
        match when {
            When::Always => {}
            When::Bits(at, bits) => {
                check.push(LOAD, argument(at), 0, 0);
                check.push(AND, bits, 0, 0);
                check.push(JUMP_EQUAL, 0, 1, 0);
            }
            When::Lacks(at, bits) => {
                check.push(LOAD, argument(at), 0, 0);
                check.push(AND, bits, 0, 0);
                check.push(JUMP_EQUAL, 0, 0, 1);
            }
            When::Is(at, value) => {
                check.push(LOAD, argument(at), 0, 0);
                check.push(JUMP_EQUAL, value, 0, 1);
            }
            When::Begins(at, value) => {
                check.push(LOAD, argument(at), 0, 0);
                check.push(AND, !0xFF, 0, 0);
                check.push(JUMP_EQUAL, value, 0, 1);
            }
            When::NoKind(at, kinds) => {
                check.push(LOAD, argument(at), 0, 0);
                check.push(AND, 0xF, 0, 0);
                check.skip_if_any(kinds)?;
            }
            When::IsNone(at, values) => {
                check.push(LOAD, argument(at), 0, 0);
                check.skip_if_any(values)?;
            }
        }
        check.push(RETURN, action, 0, 0);
        if !matches!(when, When::Always) {
            check.push(LOAD, NUMBER_AT, 0, 0);
        }
        let past = jump(check.0.len())?;
        self.push(JUMP_EQUAL, number, 0, past);
        self.0.append(&mut check.0);
        Ok(())
    }

    /// Skips the instruction after these if the loaded value is one of `values`.
    fn skip_if_any(&mut self, values: &[u32]) -> io::Result<()> {
        for (value, left) in values.iter().zip((1..=values.len()).rev()) {
            self.push(JUMP_EQUAL, *value, jump(left)?, 0);
        }
        Ok(())
    }

    fn end(mut self) -> Self {
        self.push(RETURN, ALLOW, 0, 0);
        self
    }

    /// Allows the calls of a sorted list; the kernel appears to have no others.
    fn end_with_list(mut self, numbers: &[u32]) -> io::Result<Self> {
        for (first, last) in ranges(numbers) {
            let after = last.checked_add(1).ok_or_else(|| io::Error::other(BAD_NUMBER))?;
            self.push(JUMP_AT_LEAST, first, 0, 2);
            self.push(JUMP_AT_LEAST, after, 1, 0);
            self.push(RETURN, ALLOW, 0, 0);
        }
        self.push(RETURN, REFUSE | ENOSYS, 0, 0);
        Ok(self)
    }

    fn push(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.0.push(Instruction { code, jt, jf, k });
    }
}

/// Runs of consecutive numbers, as first and last.
fn ranges(sorted: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            Some(_) | None => ranges.push((*number, *number)),
        }
    }
    ranges
}

const BAD_NUMBER: &str = "a system call has a number that no filter can hold";

/// The offset of a jump over `count` instructions.
fn jump(count: usize) -> io::Result<u8> {
    u8::try_from(count).map_err(|_| {
        io::Error::other(format!("a seccomp check has {count} instructions; a jump passes 255"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a filter answers to a call, as the kernel would run it.
    fn answer(filter: &Filter, number: u32, arguments: [u32; 6]) -> u32 {
        let (mut at, mut loaded) = (0_usize, 0);
        loop {
            let Instruction { code, jt, jf, k } = filter.0[at];
            let mut jump = |is_true: bool| at += usize::from(if is_true { jt } else { jf });
            match code {
                LOAD if k == NUMBER_AT => loaded = number,
                LOAD if k == MACHINE_AT => loaded = MACHINE,
                LOAD => loaded = arguments[((k - FIRST_ARGUMENT_AT) / 8) as usize],
                AND => loaded &= k,
                JUMP_EQUAL => jump(loaded == k),
                JUMP_AT_LEAST => jump(loaded >= k),
                RETURN => return k,
                _ => panic!("{code}"),
            }
            at += 1;
        }
    }

    #[test]
    fn a_call_that_is_not_on_the_list_is_answered_as_if_the_kernel_lacked_it() {
        let filter = Filter::zygote(Sockets { families: &[], mediated: false }).unwrap();
        let allowed = allowed::numbers().unwrap();
        assert!(allowed.is_sorted());
        for number in (0..2000).filter(|number| !allowed.contains(number)) {
            let answer = answer(&filter, number, [0; 6]);
            assert!([REFUSE | ENOSYS, REFUSE | EPERM].contains(&answer), "{number}: {answer:#x}");
        }
        let unlisted = [
            libc::SYS_io_setup,
            libc::SYS_io_submit,
            libc::SYS_inotify_init1,
            libc::SYS_inotify_add_watch,
            libc::SYS_clone3,
            libc::SYS_shmat,
            451, // cachestat
            457, // statmount
            1999,
        ];
        for number in unlisted.map(|number| u32::try_from(number).unwrap()) {
            assert_eq!(answer(&filter, number, [0; 6]), REFUSE | ENOSYS, "{number}");
        }
        for (number, argument, expected) in [
            (libc::SYS_read, 0, ALLOW),
            (libc::SYS_futex, 0, ALLOW),
            (libc::SYS_clone, 0, ALLOW),
            (libc::SYS_clone, libc::CLONE_NEWUSER as u32, REFUSE | EPERM),
            (libc::SYS_socket, libc::AF_INET as u32, REFUSE | EPERM),
            (libc::SYS_ptrace, 0, REFUSE | EPERM),
            (libc::SYS_bpf, 0, REFUSE | EPERM),
        ] {
            let number = u32::try_from(number).unwrap();
            assert_eq!(answer(&filter, number, [argument; 6]), expected, "{number}");
        }
    }

    #[test]
    fn a_check_too_long_to_be_jumped_over_is_an_error() {
        let allowed: Vec<u32> = (0..300).collect();
        let mut filter = Filter::begin();
        for (values, fits) in [(1, true), (200, true), (252, true), (253, false), (300, false)] {
            let when = When::IsNone(0, &allowed[..values]);
            assert_eq!(filter.refuse(libc::SYS_socket, when, EPERM).is_ok(), fits, "{values}");
        }
        assert!(filter.refuse(-1, When::Always, EPERM).is_err());
    }
}
