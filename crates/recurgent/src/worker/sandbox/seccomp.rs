//! Filters of system calls: all are allowed but those listed here.
//!
//! A deny-list, because guests load packages nobody has seen. What is refused lets a program leave its
//! walls, look into other processes, or reach rarely used corners of the kernel.

use std::io;

use libc::c_long;

use super::sys::Instruction;

/// The machine the numbers below are of; 32-bit calls have other numbers and are not let through.
#[cfg(target_arch = "x86_64")]
const MACHINE: Option<u32> = Some(0xC000_003E);
#[cfg(target_arch = "aarch64")]
const MACHINE: Option<u32> = Some(0xC000_00B7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: Option<u32> = None;

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

/// Where the kernel shows a filter the call.
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

/// The namespaces a worker of a zygote enters on its own before it is sealed.
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

/// For zygote and workers alike.
const NOBODY: &[c_long] = &[
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
    // Memory that belongs to no process: it would outlive the program, or escape its limit.
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
];

#[cfg(target_arch = "x86_64")]
const NOBODY_HERE: &[c_long] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_mknod, libc::SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const NOBODY_HERE: &[c_long] = &[];

/// For workers, once they are what they are to be. One that cannot leave its process group ends with it.
const NO_WORKER: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_unshare,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
];

/// Bits of a file's mode that lend its owner's rights to whoever executes it.
const LENDS_RIGHTS: u32 = libc::S_ISUID | libc::S_ISGID;

/// Calls that set a file's mode, and the argument it is in.
const SETS_MODE: &[(c_long, u32)] =
    &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_openat, 3)];
#[cfg(target_arch = "x86_64")]
const SETS_MODE_HERE: &[(c_long, u32)] =
    &[(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_open, 2)];
#[cfg(not(target_arch = "x86_64"))]
const SETS_MODE_HERE: &[(c_long, u32)] = &[];

/// Kinds of sockets that talk to the one they are connected to and nobody else.
const CONNECTED: &[u32] = &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32];
/// How requests about a socket's network begin: interfaces, addresses, routes.
const OF_SOCKETS: u32 = 0x8900;

/// Requests that have the kernel signal a process when something happens to a descriptor.
const OWNER_BY_FCNTL: [u32; 2] = [libc::F_SETOWN as u32, 15];
const OWNER_BY_IOCTL: [u32; 2] = [0x8901, 0x8902];

/// Ways to make a process beside `clone`.
#[cfg(target_arch = "x86_64")]
const FORKS: &[c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const FORKS: &[c_long] = &[];

/// The zygote, as its workers in an own process namespace see it.
const INIT: u32 = 1;
const EVERYBODY: u32 = u32::MAX;
/// Whom a priority is set for: one process, or thread.
const PRIORITY_OF_PROCESS: u32 = 0;
const IO_PRIORITY_OF_PROCESS: u32 = 1;

/// Calls whose first argument is the process to be signalled.
const SIGNALS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// The sockets that may be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sockets {
    pub(super) families: &'static [u32],
    /// Whether the host makes the connections.
    pub(super) mediated: bool,
}

/// A filter, ready to be installed.
#[derive(Debug, Clone)]
pub(super) struct Filter(Vec<Instruction>);

impl Filter {
    /// What everything in a sandbox is under.
    pub(super) fn zygote(sockets: Sockets) -> io::Result<Self> {
        let mut filter = Self::begin()?;
        for number in NOBODY.iter().chain(NOBODY_HERE) {
            filter.refuse(*number, When::Always, EPERM);
        }
        // The one way to make threads and processes whose flags a filter can see is the old one.
        filter.refuse(libc::SYS_clone3, When::Always, ENOSYS);
        filter.refuse(libc::SYS_clone, When::Bits(0, NAMESPACES), EPERM);
        filter.refuse(libc::SYS_unshare, When::IsNone(0, &[WORKER_NAMESPACES as u32]), EPERM);
        filter.refuse(libc::SYS_socket, When::IsNone(0, sockets.families), EPERM);
        // One of a pair that takes datagrams (raw ones do) sends them to any address.
        filter.refuse(libc::SYS_socketpair, When::IsNone(0, &[libc::AF_UNIX as u32]), EPERM);
        filter.refuse(libc::SYS_socketpair, When::NoKind(1, CONNECTED), EPERM);
        if sockets.mediated {
            // Streams only, and connected by nothing but connect.
            const FAST_OPEN: u32 = 0x2000_0000;
            const TCP: &[u32] = &[0, libc::IPPROTO_TCP as u32];
            filter.refuse(libc::SYS_socket, When::NoKind(1, &[libc::SOCK_STREAM as u32]), EPERM);
            filter.refuse(libc::SYS_socket, When::IsNone(2, TCP), EPERM);
            filter.refuse(libc::SYS_sendto, When::Bits(3, FAST_OPEN), EPERM);
            filter.refuse(libc::SYS_sendmsg, When::Bits(2, FAST_OPEN), EPERM);
            filter.refuse(libc::SYS_sendmmsg, When::Bits(3, FAST_OPEN), EPERM);
            // Nor is anybody let in, where the network is the host's; and a socket that was handed over
            // says nothing of it.
            filter.refuse(libc::SYS_listen, When::Always, EPERM);
            filter.refuse(libc::SYS_ioctl, When::Begins(1, OF_SOCKETS), EPERM);
        }
        for (number, mode_at) in SETS_MODE.iter().chain(SETS_MODE_HERE) {
            filter.refuse(*number, When::Bits(*mode_at, LENDS_RIGHTS), EPERM);
        }
        // The same as openat, with a mode no filter can see.
        filter.refuse(libc::SYS_openat2, When::Always, ENOSYS);
        filter.refuse(libc::SYS_ioctl, When::Is(1, 0x5412), EPERM); // TIOCSTI types into a terminal
        filter.refuse(libc::SYS_ioctl, When::Is(1, 0x541C), EPERM); // TIOCLINUX
        Ok(filter.end())
    }

    /// What a sealed worker is under besides; `walled`: the first process it sees is its zygote.
    pub(super) fn worker(walled: bool) -> io::Result<Self> {
        let mut filter = Self::begin()?;
        for number in NO_WORKER {
            filter.refuse(*number, When::Always, EPERM);
        }
        // Nobody's limits, processors and priorities but one's own: workers of other agents have the same
        // user, which is all the kernel asks for.
        filter.refuse(libc::SYS_prlimit64, When::IsNone(0, &[0]), EPERM);
        filter.refuse(libc::SYS_sched_setaffinity, When::IsNone(0, &[0]), EPERM);
        for (number, of_process) in [
            (libc::SYS_setpriority, PRIORITY_OF_PROCESS),
            (libc::SYS_ioprio_set, IO_PRIORITY_OF_PROCESS),
        ] {
            filter.refuse(number, When::IsNone(0, &[of_process]), EPERM);
            filter.refuse(number, When::IsNone(1, &[0]), EPERM);
        }
        filter.refuse(libc::SYS_kill, When::Is(0, EVERYBODY), EPERM);
        for request in OWNER_BY_FCNTL {
            filter.refuse(libc::SYS_fcntl, When::Is(1, request), EPERM);
        }
        for request in OWNER_BY_IOCTL {
            filter.refuse(libc::SYS_ioctl, When::Is(1, request), EPERM);
        }
        if walled {
            for number in SIGNALS {
                filter.refuse(*number, When::Is(0, INIT), EPERM);
            }
        } else {
            // Landlock does not know of it; names of files that come and go would be told.
            filter.refuse(libc::SYS_inotify_add_watch, When::Always, EPERM);
        }
        Ok(filter.end())
    }

    /// What a process is under that may have threads and no children.
    pub(super) fn alone() -> io::Result<Self> {
        let mut filter = Self::begin()?;
        for number in FORKS {
            filter.refuse(*number, When::Always, EPERM);
        }
        filter.refuse(libc::SYS_clone, When::Lacks(0, libc::CLONE_THREAD as u32), EPERM);
        Ok(filter.end())
    }

    /// Puts every connection to the host.
    pub(super) fn connections() -> io::Result<Self> {
        let mut filter = Self::begin()?;
        filter.act(libc::SYS_connect, When::Always, NOTICE);
        Ok(filter.end())
    }

    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// As the kernel reads them.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let bytes = |it: &Instruction| {
            let [code, _] = [it.code, 0].map(u16::to_ne_bytes);
            [&code[..], &[it.jt, it.jf], &it.k.to_ne_bytes()].concat()
        };
        self.0.iter().flat_map(bytes).collect()
    }

    fn begin() -> io::Result<Self> {
        let machine = MACHINE.ok_or(io::ErrorKind::Unsupported)?;
        let mut filter = Self(Vec::new());
        filter.push(LOAD, MACHINE_AT, 0, 0);
        filter.push(JUMP_EQUAL, machine, 1, 0);
        filter.push(RETURN, KILL, 0, 0);
        filter.push(LOAD, NUMBER_AT, 0, 0);
        filter.push(JUMP_AT_LEAST, FOREIGN_NUMBERS, 0, 1);
        filter.push(RETURN, REFUSE | EPERM, 0, 0);
        Ok(filter)
    }

    fn refuse(&mut self, number: c_long, when: When<'_>, errno: u32) {
        self.act(number, when, REFUSE | errno);
    }

    /// Every check starts and ends with the call's number loaded.
    fn act(&mut self, number: c_long, when: When<'_>, action: u32) {
        let Ok(number) = u32::try_from(number) else { return };
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
                check.skip_if_any(kinds);
            }
            When::IsNone(at, values) => {
                check.push(LOAD, argument(at), 0, 0);
                check.skip_if_any(values);
            }
        }
        check.push(RETURN, action, 0, 0);
        if !matches!(when, When::Always) {
            check.push(LOAD, NUMBER_AT, 0, 0);
        }
        let past = u8::try_from(check.0.len()).unwrap_or(u8::MAX);
        self.push(JUMP_EQUAL, number, 0, past);
        self.0.append(&mut check.0);
    }

    /// Past the instruction that follows, if what is loaded is one of these.
    fn skip_if_any(&mut self, values: &[u32]) {
        for (value, left) in values.iter().zip((1..=values.len()).rev()) {
            self.push(JUMP_EQUAL, *value, u8::try_from(left).unwrap_or(u8::MAX), 0);
        }
    }

    fn end(mut self) -> Self {
        self.push(RETURN, ALLOW, 0, 0);
        self
    }

    fn push(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.0.push(Instruction { code, jt, jf, k });
    }
}
