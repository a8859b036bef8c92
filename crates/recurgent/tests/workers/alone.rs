//! The parts of each layer: what each refuses when no other layer is there, so that none can be lost unseen.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use libc::c_long;
use lifecycle::dialect::Language;
use recurgent::grants::{Grants, Network};
use recurgent::worker::{Layer, Layers, Tier};
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use crate::drive::{Driver, Program};
use crate::layers::passes_under;
use crate::value;

/// What a Python program gives under these layers alone.
fn found(layers: Layers, code: &str, args: Vec<Value>) -> Value {
    let driver = Driver::with(|options| options.layers = layers);
    let ended = driver.run(&Program { code, args, ..Program::default() });
    value(&ended).cloned().unwrap_or_else(|| panic!("{ended:?}"))
}

fn under(layer: Layer) -> Layers {
    Layers::NONE.with(layer)
}

/// Makes each system call of `args[0]`; gives how those ended that no filter refused.
const CALLS: &str = "
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
found = []
for call in args[0]:
    ctypes.set_errno(0)
    made = libc.syscall(*map(ctypes.c_long, call))
    if made != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        found.append([call, made, errno.errorcode.get(ctypes.get_errno())])
result = found";

const BAD: c_long = -1;
/// An address nothing is at.
const NOWHERE: c_long = 1;
const LENDS: c_long = 0o4755;
const LENDS_GROUP: c_long = 0o2755;
const UNIX: c_long = libc::AF_UNIX as c_long;
const HERE: c_long = libc::AT_FDCWD as c_long;
/// A thread without what threads need: no clone is made of it.
const THREAD: c_long = libc::CLONE_THREAD as c_long;
/// No process has this number.
const NOBODY: c_long = 0x7FFF_FFFF;

/// Calls the filter refuses, with arguments that do no harm where it is not there, and that the kernel itself
/// refuses for another reason than the user that makes them, if at all.
#[rustfmt::skip]
const REFUSED: &[&[c_long]] = &[
    &[libc::SYS_ptrace, 9999, NOBODY, 0, 0], &[libc::SYS_process_vm_readv, NOBODY, 0, 0, 0, 0, 0],
    &[libc::SYS_process_vm_writev, NOBODY, 0, 0, 0, 0, 0], &[libc::SYS_process_madvise, BAD, 0, 0, 0, 0],
    &[libc::SYS_pidfd_getfd, BAD, 0, 0], &[libc::SYS_kcmp, NOBODY, NOBODY, 0, 0, 0],
    &[libc::SYS_perf_event_open, NOWHERE, 0, BAD, BAD, 0], &[libc::SYS_bpf, 9999, NOWHERE, 0],
    &[libc::SYS_io_uring_setup, 0, NOWHERE], &[libc::SYS_io_uring_enter, BAD, 0, 0, 0, 0, 0],
    &[libc::SYS_io_uring_register, BAD, 0, 0, 0], &[libc::SYS_userfaultfd, 0xFF_FFFF],
    &[libc::SYS_keyctl, 9999, 0, 0], &[libc::SYS_add_key, NOWHERE, NOWHERE, 0, 0, 0], &[libc::SYS_request_key, NOWHERE, NOWHERE, 0, 0],
    &[libc::SYS_kexec_load, 0, 99, NOWHERE, 99], &[libc::SYS_kexec_file_load, BAD, BAD, 0, 0, 99],
    &[libc::SYS_init_module, NOWHERE, 0, 0], &[libc::SYS_finit_module, BAD, 0, 99], &[libc::SYS_delete_module, NOWHERE, 0],
    &[libc::SYS_open_by_handle_at, BAD, NOWHERE, 0], &[libc::SYS_name_to_handle_at, BAD, NOWHERE, NOWHERE, NOWHERE, 0],
    &[libc::SYS_mknodat, HERE, NOWHERE, 0o10600, 0], &[libc::SYS_move_mount, BAD, NOWHERE, BAD, NOWHERE, 0],
    &[libc::SYS_open_tree, HERE, NOWHERE, 0], &[467, HERE, NOWHERE, 0, 0, 0], &[libc::SYS_fsopen, NOWHERE, 0],
    &[libc::SYS_fsconfig, BAD, 0, 0, 0, 0], &[libc::SYS_fsmount, BAD, 0, 0], &[libc::SYS_fspick, HERE, NOWHERE, 0],
    &[libc::SYS_mount_setattr, HERE, NOWHERE, 0, NOWHERE, 32], &[libc::SYS_umount2, NOWHERE, 0],
    &[libc::SYS_pivot_root, NOWHERE, NOWHERE], &[libc::SYS_chroot, NOWHERE], &[libc::SYS_setns, BAD, 0],
    &[libc::SYS_swapon, NOWHERE, 0], &[libc::SYS_swapoff, NOWHERE], &[libc::SYS_reboot, 0, 0, 0, 0],
    &[libc::SYS_settimeofday, NOWHERE, 0], &[libc::SYS_clock_settime, 999, NOWHERE], &[libc::SYS_clock_adjtime, 999, NOWHERE],
    &[libc::SYS_adjtimex, NOWHERE], &[libc::SYS_acct, NOWHERE], &[libc::SYS_quotactl, BAD, 0, 0, 0],
    &[libc::SYS_quotactl_fd, BAD, 0, 0, 0], &[libc::SYS_sethostname, NOWHERE, BAD], &[libc::SYS_setdomainname, NOWHERE, BAD],
    &[libc::SYS_syslog, 99, 0, 0], &[libc::SYS_vhangup], &[libc::SYS_personality, 0xFFFF_FFFF],
    &[libc::SYS_sched_setscheduler, 0, 99, NOWHERE], &[libc::SYS_sched_setattr, 0, NOWHERE, 0], &[libc::SYS_sched_setparam, 0, NOWHERE],
    &[libc::SYS_fanotify_init, BAD, 0], &[libc::SYS_mbind, 0, 0, 99, 0, 0, 0], &[libc::SYS_migrate_pages, NOBODY, 0, 0, 0],
    &[libc::SYS_move_pages, NOBODY, 0, 0, 0, 0, 0], &[libc::SYS_shmget, 0, 0, 0], &[libc::SYS_msgget, 0x7EC0, 0],
    &[libc::SYS_semget, 0, 0, 0], &[libc::SYS_mq_open, NOWHERE, 0, 0, 0], &[libc::SYS_memfd_create, NOWHERE, 0],
    &[libc::SYS_memfd_secret, 99],
    // New namespaces, by either call.
    &[libc::SYS_clone3, NOWHERE, 0], &[libc::SYS_unshare, 0x400],
    &[libc::SYS_clone, libc::CLONE_NEWUSER as c_long | THREAD, 0, 0, 0, 0], &[libc::SYS_clone, libc::CLONE_NEWNS as c_long | THREAD, 0, 0, 0, 0],
    &[libc::SYS_clone, libc::CLONE_NEWPID as c_long | THREAD, 0, 0, 0, 0], &[libc::SYS_clone, libc::CLONE_NEWNET as c_long | THREAD, 0, 0, 0, 0],
    &[libc::SYS_clone, libc::CLONE_NEWIPC as c_long | THREAD, 0, 0, 0, 0], &[libc::SYS_clone, libc::CLONE_NEWUTS as c_long | THREAD, 0, 0, 0, 0],
    &[libc::SYS_clone, libc::CLONE_NEWCGROUP as c_long | THREAD, 0, 0, 0, 0],
    // Sockets.
    &[libc::SYS_socket, libc::AF_INET as c_long, 2, 0], &[libc::SYS_socket, libc::AF_NETLINK as c_long, 3, 0], &[libc::SYS_socket, UNIX, 1, 0],
    &[libc::SYS_socketpair, UNIX, libc::SOCK_DGRAM as c_long, 0, NOWHERE], &[libc::SYS_socketpair, UNIX, libc::SOCK_RAW as c_long, 0, NOWHERE],
    &[libc::SYS_socketpair, 30, 5, 0, NOWHERE],
    // Files that lend their owner's rights.
    &[libc::SYS_fchmod, BAD, LENDS], &[libc::SYS_fchmodat, HERE, NOWHERE, LENDS_GROUP], &[452, HERE, NOWHERE, LENDS, 0],
    &[libc::SYS_openat, HERE, NOWHERE, 0, LENDS], &[libc::SYS_openat2, HERE, NOWHERE, NOWHERE, 0],
    // Terminals.
    &[libc::SYS_ioctl, BAD, 0x5412, 0], &[libc::SYS_ioctl, BAD, 0x541C, 0],
    // What a worker may do to others.
    &[libc::SYS_mount, 0, NOWHERE, 0, 0, 0], &[libc::SYS_pidfd_open, NOBODY, 0], &[libc::SYS_pidfd_send_signal, BAD, 0, 0, 0],
    &[libc::SYS_prlimit64, NOBODY, 0, 0, 0], &[libc::SYS_sched_setaffinity, NOBODY, 0, 0],
    &[libc::SYS_setpriority, 99, 0, 0], &[libc::SYS_setpriority, 0, NOBODY, 0],
    &[libc::SYS_ioprio_set, 99, 0, 0], &[libc::SYS_ioprio_set, 1, NOBODY, 0], &[libc::SYS_kill, -1, 0],
    &[libc::SYS_fcntl, BAD, libc::F_SETOWN as c_long, 0], &[libc::SYS_fcntl, BAD, 15, 0],
    &[libc::SYS_ioctl, BAD, 0x8901, 0], &[libc::SYS_ioctl, BAD, 0x8902, 0],
    &[libc::SYS_iopl, 9], &[libc::SYS_ioperm, BAD, 9, 0], &[libc::SYS_modify_ldt, 0, 0, 0], &[libc::SYS_mknod, NOWHERE, 0o10600, 0],
    &[libc::SYS_chmod, NOWHERE, LENDS], &[libc::SYS_creat, NOWHERE, LENDS], &[libc::SYS_open, NOWHERE, 0, LENDS],
    &[FOREIGN],
];

/// The number of a call of other programs than this machine's own.
const FOREIGN: c_long = 0x4000_0000 + libc::SYS_getpid;
/// Calls kernels are often built without.
#[rustfmt::skip]
const MAY_LACK: &[c_long] = &[
    libc::SYS_kexec_load, libc::SYS_kexec_file_load, libc::SYS_memfd_secret, libc::SYS_init_module, libc::SYS_finit_module,
    libc::SYS_delete_module, FOREIGN,
    libc::SYS_iopl, libc::SYS_ioperm,
];

#[test]
fn the_filter_refuses_each_call_by_itself() {
    let calls: Vec<&[c_long]> = REFUSED.to_vec();
    let args = || vec![json!(calls)];
    assert_eq!(found(under(Layer::Seccomp), CALLS, args()), json!([]));
    if rustix::process::geteuid().is_root() {
        // Those this kernel does not have are not there to be refused.
        let reached = found(Layers::NONE, CALLS, args()).as_array().unwrap().clone();
        let is_reached = |call: &&[c_long]| reached.iter().any(|it| it[0] == json!(call));
        let missed: Vec<_> = calls.iter().filter(|it| !is_reached(it)).collect();
        let wrong: Vec<_> = missed.iter().filter(|it| !MAY_LACK.contains(&it[0])).collect();
        assert!(wrong.is_empty(), "not the filter is what refuses {wrong:?}");
    }
}

/// In its own process namespace, a worker sees its zygote as the first process.
#[test]
fn the_filter_refuses_every_way_to_signal_the_zygote() {
    let calls: [&[c_long]; 5] = [
        &[libc::SYS_kill, 1, 0],
        &[libc::SYS_tkill, 1, 0],
        &[libc::SYS_tgkill, 1, 1, 0],
        &[libc::SYS_rt_sigqueueinfo, 1, 0, NOWHERE],
        &[libc::SYS_rt_tgsigqueueinfo, 1, 1, 0, NOWHERE],
    ];
    let namespaces = under(Layer::Namespaces);
    let reached = found(namespaces, CALLS, vec![json!(calls)]);
    assert_eq!(reached.as_array().map(Vec::len), Some(calls.len()), "{reached}");
    assert_eq!(found(namespaces.with(Layer::Seccomp), CALLS, vec![json!(calls)]), json!([]));
}

/// Where the host makes the connections there is no other way to make one.
#[test]
fn the_filter_refuses_every_way_around_connect() {
    const SEND_FIRST: c_long = libc::MSG_FASTOPEN as c_long;
    const STREAM: c_long = libc::SOCK_STREAM as c_long;
    const DATAGRAM: c_long = libc::SOCK_DGRAM as c_long;
    const INET6: c_long = libc::AF_INET6 as c_long;
    const MANY_PATHS: c_long = libc::IPPROTO_MPTCP as c_long;
    const STREAMS: c_long = libc::IPPROTO_SCTP as c_long;
    const INET: c_long = libc::AF_INET as c_long;
    let calls: [&[c_long]; 8] = [
        &[libc::SYS_sendto, BAD, NOWHERE, 0, SEND_FIRST, 0, 0],
        &[libc::SYS_sendmsg, BAD, NOWHERE, SEND_FIRST],
        &[libc::SYS_sendmmsg, BAD, NOWHERE, 0, SEND_FIRST],
        &[libc::SYS_socket, INET, DATAGRAM, 0],
        &[libc::SYS_socket, INET, STREAM, MANY_PATHS],
        &[libc::SYS_socket, INET6, STREAM, STREAMS],
        &[libc::SYS_listen, BAD, 0],
        &[libc::SYS_ioctl, BAD, 0x8912, 0],
    ];
    let reached = |network: Network| {
        let driver = Driver::with(|options| options.layers = under(Layer::Seccomp));
        let grants = Grants { network, ..Grants::default() };
        let ended = driver.run(&Program {
            code: CALLS,
            args: vec![json!(calls)],
            grants,
            ..Program::default()
        });
        value(&ended).cloned().unwrap_or_else(|| panic!("{ended:?}"))
    };
    assert_eq!(reached(Network::Open).as_array().map(Vec::len), Some(calls.len()));
    assert_eq!(reached(Network::Loopback), json!([]));
}

/// The host's network is not all there is: this kernel may have others, to other machines.
#[test]
fn the_filter_refuses_families_that_are_not_granted() {
    const FAMILIES: [&[c_long]; 4] = [
        &[libc::SYS_socket, UNIX, 1, 0],
        &[libc::SYS_socket, libc::AF_NETLINK as c_long, 3, 0],
        &[libc::SYS_socket, libc::AF_PACKET as c_long, 1, 0],
        &[libc::SYS_socket, libc::AF_VSOCK as c_long, 1, 0],
    ];
    for (network, layers, allowed) in [
        (Network::Off, under(Layer::Seccomp), 0),
        (Network::Off, under(Layer::Seccomp).with(Layer::Namespaces), 1),
        (Network::Loopback, under(Layer::Seccomp), 0),
        (Network::Open, under(Layer::Seccomp), 1),
        (Network::Open, under(Layer::Seccomp).with(Layer::Namespaces).with(Layer::Landlock), 2),
    ] {
        let driver = Driver::with(|options| options.layers = layers);
        let grants = Grants { network, ..Grants::default() };
        let program =
            Program { code: CALLS, args: vec![json!(FAMILIES)], grants, ..Program::default() };
        let ended = driver.run(&program);
        let reached = value(&ended).and_then(Value::as_array).map(Vec::len);
        assert_eq!(reached, Some(allowed), "{:?}: {ended:?}", program.grants);
    }
}

/// Tries everything that can be done to files below `args[0]`, of which `args[1]` are there.
const FILES: &str = "
import os, socket
place = args[0]
def write(flags): os.write(os.open(f'{place}/file', flags), b'x')
def own():
    open('own-program', 'w').write('#!/bin/sh' + chr(10) + 'exit 7')
    os.chmod('own-program', 0o755)
def execute(program):
    if os.spawnv(os.P_WAIT, program, ['program']) != 7: raise OSError('refused')
attempts = {
    'read': lambda: open(f'{place}/file').read(), 'list': lambda: os.listdir(place),
    'write': lambda: write(os.O_WRONLY), 'truncate': lambda: os.truncate(f'{place}/file', 0),
    'make': lambda: os.mknod(f'{place}/made', 0o100666),
    'directory': lambda: os.mkdir(f'{place}/directory'), 'link': lambda: os.symlink('x', f'{place}/link'),
    'fifo': lambda: os.mkfifo(f'{place}/fifo'), 'device': lambda: os.mknod(f'{place}/device', 0o20666, 0x103),
    'block': lambda: os.mknod(f'{place}/block', 0o60666, 0x103),
    'socket': lambda: socket.socket(socket.AF_UNIX).bind(f'{place}/socket'),
    'remove': lambda: os.remove(f'{place}/doomed'), 'remove directory': lambda: os.rmdir(f'{place}/empty'),
    'move here': lambda: (open('own', 'w').close(), os.rename('own', f'{place}/moved')),
    'move away': lambda: os.rename(f'{place}/lost', 'found'), 'hard link': lambda: os.link(f'{place}/file', 'hard'),
    'execute': lambda: execute(f'{place}/program'), 'execute its own': lambda: (own(), execute('./own-program')),
}
found = []
for name, attempt in attempts.items():
    try: attempt(); found.append(name)
    except OSError: pass
result = found";

fn files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let everybody = || std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), everybody()).unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    for name in ["file", "doomed", "lost", "program"] {
        std::fs::write(dir.path().join(name), "#!/bin/sh\nexit 7\n").unwrap();
    }
    for name in ["empty", "file", "doomed", "lost", "program"] {
        std::fs::set_permissions(dir.path().join(name), everybody()).unwrap();
    }
    dir
}

/// All a program can do to files outside: with no layer, and nothing of it with one that keeps files.
#[test]
fn landlock_and_own_walls_each_keep_all_of_a_file_to_themselves() {
    let root_only = ["device", "block"];
    let dir = files();
    let done = found(Layers::NONE, FILES, vec![json!(dir.path())]);
    let all = FILES.matches("': lambda").count();
    let elsewhere = ["move here", "move away", "hard link"]; // not across file systems
    let possible = done.as_array().unwrap().len();
    let is_root = rustix::process::geteuid().is_root();
    let expected = all - if is_root { 0 } else { root_only.len() };
    assert!(possible + elsewhere.len() >= expected && possible <= all, "{done}");
    for layer in [Layer::Landlock, Layer::Namespaces] {
        let dir = files();
        let done = found(under(layer), FILES, vec![json!(dir.path())]);
        assert_eq!(done, json!([]), "{layer:?}");
    }
}

/// Under root: its own root and all in it can be read only, though the files are root's.
#[test]
fn own_walls_are_read_only() {
    let code = "
import os, sys
found = []
library = os.path.dirname(os.__file__)
for place in ('/', '/etc', '/dev', '/home', '/usr', '/usr/lib', '/etc/ssl', library):
    # What succeeds is undone.
    for attempt in (lambda: (open(f'{place}/recurgent-planted', 'x').close(), os.remove(f'{place}/recurgent-planted')),
                    lambda: (os.mkdir(f'{place}/recurgent-directory'), os.rmdir(f'{place}/recurgent-directory')),
                    lambda: os.utime(place), lambda: os.chmod(place, 0o755)):
        try: attempt(); found.append(place)
        except OSError: pass
for file in ('/etc/passwd', '/etc/hosts', sys.executable):
    try: open(file, 'r+'); found.append(file)
    except OSError: pass
for device in (0x103, 0x105):
    try: os.mknod('device', 0o20666, device); found.append('a device')
    except OSError: pass
result = found";
    assert_eq!(found(under(Layer::Namespaces), code, vec![]), json!([]));
}

#[test]
fn own_walls_are_of_every_kind() {
    const KINDS: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
    let code = "
import os
rights = [line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapPrm'))]
result = [[os.readlink(f'/proc/self/ns/{kind}') for kind in args[0]], rights, os.uname().nodename, os.getppid(),
          sorted(name for name in os.listdir('/proc') if name not in ('self', 'thread-self', str(os.getpid()))),
          os.path.exists('/proc/sys'), open('/proc/self/cgroup').read().split(':')[2].split('\\n')[0]]";
    let seen = found(under(Layer::Namespaces), code, vec![json!(KINDS)]);
    for (kind, inside) in KINDS.iter().zip(seen[0].as_array().unwrap()) {
        let outside = std::fs::read_link(Path::new("/proc/self/ns").join(kind)).unwrap();
        assert_ne!(inside, &json!(outside), "{kind}");
    }
    assert_eq!(
        seen.as_array().unwrap()[1..],
        [
            json!(["0000000000000000", "0000000000000000"]),
            json!("worker"),
            json!(1),
            json!([]),
            json!(false),
            json!("/")
        ]
    );
}

/// Ports and names that were not granted, with the host's network all around.
#[test]
fn landlock_keeps_ports_names_and_signals_in() {
    let server = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let name = format!("alone{}", dir.path().display());
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(
            &name,
        )
        .unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let code = "
import os, socket
attempts = {'connects': lambda: socket.create_connection(('127.0.0.1', args[0]), 5), 'binds': lambda: socket.socket().bind(('127.0.0.1', 0)),
            'names': lambda: socket.socket(socket.AF_UNIX).connect('\\0' + args[1]), 'signals': lambda: os.kill(args[2], 0),
            'its zygote': lambda: os.kill(os.getppid(), 0)}
found = []
for name, attempt in attempts.items():
    try: attempt(); found.append(name)
    except OSError: pass
result = found";
    let args =
        || vec![json!(server.local_addr().unwrap().port()), json!(name), json!(std::process::id())];
    let all = json!(["connects", "binds", "names", "signals", "its zygote"]);
    assert_eq!(found(Layers::NONE, code, args()), all);
    assert_eq!(found(under(Layer::Landlock), code, args()), json!([]));
}

#[test]
fn the_user_of_a_program_owns_and_gains_nothing() {
    let code = "
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
result = {name: status[name].split() for name in ('Uid', 'Gid', 'Groups', 'NoNewPrivs', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')}";
    assert_eq!(found(Layers::NONE, code, vec![])["NoNewPrivs"], json!(["1"]));
    let seen = found(under(Layer::Identity), code, vec![]);
    for held in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(seen[held], json!(["0000000000000000"]), "{held}");
    }
    if rustix::process::geteuid().is_root() {
        assert_eq!(seen["CapBnd"], json!(["0000000000000000"]));
        assert_eq!(seen["Groups"], json!([]));
        // Where its interpreter, or what was granted, is root's alone, it stays root, without root's rights.
        let private = tempfile::tempdir().unwrap();
        let owner_only = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(private.path(), owner_only).unwrap();
        let grants = Grants { read: vec![private.path().to_owned()], ..Grants::default() };
        let driver = Driver::with(|options| options.layers = under(Layer::Identity));
        let ended = driver.run(&Program { code, grants, ..Program::default() });
        let seen_by_root = value(&ended).unwrap();
        assert_eq!(seen_by_root["Uid"][0], json!("0"));
        assert_eq!(seen_by_root["CapEff"], json!(["0000000000000000"]));
        // In its own mount namespace every user can read the interpreter, so it need not run as root.
        let seen = found(under(Layer::Identity).with(Layer::Namespaces), code, vec![]);
        for id in ["Uid", "Gid"] {
            let ids = seen[id].as_array().unwrap();
            assert!(ids.iter().all(|it| *it == ids[0] && *it != json!("0")), "{seen}");
        }
    }
}

#[test]
fn no_supplementary_group_of_the_host_is_kept() {
    if rustix::process::geteuid().is_root() {
        let python = Driver::new().interpreter(Language::Python);
        let joins = "import os, sys\nos.setgroups([4, 24])\nos.execv(sys.argv[1], sys.argv[1:])";
        let itself = "alone::the_user_of_a_program_owns_and_gains_nothing";
        passes_under(&[python.to_str().unwrap(), "-c", joins], itself);
    }
}

/// Beside a copy of this program: a directory with files that only a group may read. The copy runs as a member of that group.
const GROUP_DIRECTORY: &str = "data";

/// An ordinary user cannot drop supplementary groups, so what only they may read is hidden, in granted directories too.
#[test]
fn what_only_a_group_may_read_is_hidden_in_granted_directories() {
    let data = std::env::current_exe().unwrap().with_file_name(GROUP_DIRECTORY);
    if data.exists() {
        check_hidden_files(&data);
    } else if rustix::process::geteuid().is_root() {
        run_as_member_of_group(); // only root can make such files
    }
}

/// Makes a directory with files of a group, and runs the test once more as an ordinary user who is in it.
fn run_as_member_of_group() {
    const GROUP: u32 = 24;
    const USER: u32 = 61_185;
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let program = path("workers");
    let this = std::env::current_exe().unwrap();
    // Not by this process: what it forks meanwhile would have the copy open for writing.
    let copied = std::process::Command::new("cp").arg(this).arg(&program).status().unwrap();
    assert!(copied.success());
    std::fs::create_dir_all(path("data/inner")).unwrap();
    for (name, mode) in [
        ("", 0o755),
        ("workers", 0o755),
        ("data", 0o777),
        ("data/open.txt", 0o644),
        ("data/key.txt", 0o640),
        ("data/inner/key.txt", 0o644),
        ("data/inner", 0o750),
    ] {
        if name.ends_with("txt") {
            std::fs::write(path(name), name).unwrap();
        }
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    for name in ["data/key.txt", "data/inner"] {
        std::os::unix::fs::chown(path(name), Some(0), Some(GROUP)).unwrap();
    }
    let joins = format!(
        "import os, sys\nos.setgroups([{GROUP}])\nos.setgid({USER})\nos.setuid({USER})\nos.chdir('/')\nos.execv(sys.argv[1], sys.argv[1:])"
    );
    let python = Driver::new().interpreter(Language::Python);
    let ended = std::process::Command::new(python)
        .args(["-c", &joins])
        .arg(&program)
        .args(["--exact", "alone::what_only_a_group_may_read_is_hidden_in_granted_directories"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("1 passed"), "{said}{ended:?}");
}

fn check_hidden_files(directory: &Path) {
    assert!(std::fs::read(directory.join("key.txt")).is_ok(), "the host itself may read it");
    let python = "import os\nfound = []\nfor name in ('open.txt', 'key.txt', 'inner/key.txt'):\n    path = args[0] + '/' + name\n    \
                  try:\n        open(path).read()\n        found.append(name)\n    \
                  except OSError: pass\nresult = found";
    let ruby = "%w[open.txt key.txt inner/key.txt].select do |name|\n  path = \"#{args[0]}/#{name}\"\n  \
                File.read(path)\n  true\nrescue SystemCallError\n  false\nend";
    for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
        let driver = Driver::with(|options| options.layers = tier.layers());
        let granted = vec![directory.to_owned()];
        for grants in [
            Grants { read: granted.clone(), ..Grants::default() },
            Grants { write: granted.clone(), ..Grants::default() },
            Grants { workspace: Some(directory.to_owned()), ..Grants::default() },
        ] {
            for (language, code) in [(Language::Python, python), (Language::Ruby, ruby)] {
                let args = vec![json!(directory)];
                let program =
                    Program { language, code, args, grants: grants.clone(), ..Program::default() };
                let ended = driver.run(&program);
                assert_eq!(
                    value(&ended),
                    Some(&json!(["open.txt"])),
                    "{language:?} at {tier}, {grants:?}: {ended:?}"
                );
            }
        }
    }
}

/// Files in its own root neither lend rights nor are devices, and files that a program writes cannot run.
#[test]
fn own_walls_are_mounted_with_care() {
    let code =
        "result = [line.split(' - ') for line in open('/proc/self/mountinfo').read().splitlines()]";
    let driver = Driver::with(|options| {
        options.layers = under(Layer::Namespaces);
        options.limits.scratch_bytes = 5 << 20;
        options.limits.scratch_files = 77;
    });
    let granted = tempfile::tempdir().unwrap();
    let grants = Grants { write: vec![granted.path().to_owned()], ..Grants::default() };
    let ended = driver.run(&Program { code, grants, ..Program::default() });
    let mounts: Vec<[String; 2]> = serde_json::from_value(value(&ended).unwrap().clone()).unwrap();
    let granted = granted.path().to_str().unwrap();
    let mut seen = Vec::new();
    for [mount, system] in &mounts {
        let fields: Vec<&str> = mount.split(' ').collect();
        let (place, flags) = (fields[4], fields[5].split(',').collect::<Vec<_>>());
        let wanted: &[&str] = match place {
            _ if place.starts_with("/dev/") => &["nosuid"],
            "/home/worker" | "/proc" => &["rw", "nosuid", "nodev", "noexec"],
            _ if place == granted => &["rw", "nosuid", "nodev", "noexec"],
            _ => &["ro", "nosuid", "nodev"],
        };
        assert!(wanted.iter().all(|flag| flags.contains(flag)), "{mount}");
        let options: &[&str] = match place {
            "/home/worker" => &["size=5120k", "nr_inodes=77", "mode=700"],
            "/proc" => &["hidepid=ptraceable", "subset=pid"],
            _ => &[],
        };
        assert!(options.iter().all(|it| system.contains(it)), "{mount}: {system}");
        seen.push(place);
    }
    for place in ["/", "/proc", "/home/worker", "/usr", "/dev/null", granted] {
        assert!(seen.contains(&place), "{place} in {seen:?}");
    }
}

#[test]
fn every_limit_is_set() {
    let code = "
import resource
result = {name: resource.getrlimit(getattr(resource, 'RLIMIT_' + name)) for name in ('CORE', 'MEMLOCK', 'NOFILE', 'FSIZE', 'AS', 'CPU', 'NPROC')}";
    let driver = Driver::with(|options| {
        options.layers = under(Layer::Limits).with(Layer::Namespaces);
        options.limits.memory_bytes = 3 << 30;
        options.limits.open_files = 101;
        options.limits.file_bytes = 102 << 20;
        options.limits.cpu_seconds = 13;
        options.limits.processes = 14;
    });
    let ended = driver.run(&Program { code, ..Program::default() });
    let expected = json!({"CORE": [0, 0], "MEMLOCK": [0, 0], "NOFILE": [101, 101], "FSIZE": [102 << 20, 102 << 20],
                          "AS": [3_u64 << 30, 3_u64 << 30], "CPU": [13, 14], "NPROC": [14, 14]});
    assert!(getrlimit(Resource::Cpu).maximum.is_none_or(|it| it > 14), "the host's own is lower");
    assert_eq!(value(&ended), Some(&expected), "{ended:?}");
    // Threads that packages start while they are loaded are counted for all possible workers.
    let zygote = driver.zygote(Language::Python, None);
    let of_zygote = std::fs::read_to_string(format!("/proc/{zygote}/limits")).unwrap();
    let processes = of_zygote.lines().find(|line| line.starts_with("Max processes")).unwrap();
    assert_eq!(processes.split_whitespace().nth(2), Some("112"), "8 workers of 14");
}
