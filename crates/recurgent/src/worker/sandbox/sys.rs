//! System calls that no crate wraps safely. They allocate nothing and take no lock, so a forked child of a
//! threaded process may make them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_int, c_long, c_uint};
use rustix::process::Pid;

/// `mount_setattr` flags.
pub(super) const MOUNT_RDONLY: u64 = 1;
pub(super) const MOUNT_NOSUID: u64 = 2;
pub(super) const MOUNT_NODEV: u64 = 4;
pub(super) const MOUNT_NOEXEC: u64 = 8;

/// The state of a TCP connection that both sides may use.
const TCP_ESTABLISHED: u8 = 1;

/// One instruction of a seccomp filter.
pub(super) type Instruction = libc::sock_filter;

/// `struct landlock_ruleset_attr`; older kernels take a prefix of it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RulesetAttributes {
    pub(super) files: u64,
    pub(super) network: u64,
    pub(super) scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    access: u64,
    parent: RawFd,
}

/// `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn checked(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes any system call.
///
/// # Safety
///
/// Every argument must be what the kernel expects of this call. An address must point to memory that stays
/// alive during the call and is as large as the kernel takes it to be.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) unsafe fn call(number: c_long, arguments: [c_long; 5]) -> io::Result<c_long> {
    let [first, second, third, fourth, fifth] = arguments;
    // SAFETY: the caller guarantees what the kernel expects.
    checked(unsafe { libc::syscall(number, first, second, third, fourth, fifth) })
}

/// Makes a system call whose arguments are numbers only.
macro_rules! call_with_numbers {
    ($number:expr, $arguments:expr) => {{
        #[expect(unsafe_code, reason = "a bare system call")]
        // SAFETY: this call takes no address, or takes 0 for one that may be absent.
        unsafe {
            call($number, $arguments)
        }
    }};
}

/// Forks a sibling: its parent is the caller's parent. `None` in the child.
pub(super) fn fork_sibling() -> io::Result<Option<i32>> {
    fork_with(libc::CLONE_PARENT)
}

/// Forks. `None` in the child.
pub(super) fn fork() -> io::Result<Option<i32>> {
    fork_with(0)
}

#[expect(unsafe_code, reason = "a bare system call")]
fn fork_with(flags: c_int) -> io::Result<Option<i32>> {
    let flags = c_long::from(flags | libc::SIGCHLD);
    // SAFETY: like fork: memory is copied and no stack is given. The child of a threaded process makes only
    // bare system calls until it ends or executes another program.
    let pid = checked(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((pid != 0).then_some(pid))
}

/// Ends the calling process without running the exit handlers it inherited.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn exit(status: c_int) -> ! {
    // SAFETY: runs no handler and frees nothing.
    unsafe { libc::_exit(status) }
}

/// The clock that counts the processor time of one process and its threads.
#[derive(Debug)]
pub(in crate::worker) struct ProcessorClock(libc::clockid_t);

impl ProcessorClock {
    #[expect(unsafe_code, reason = "a bare library call")]
    pub(in crate::worker) fn of(process: Pid) -> Option<Self> {
        let mut clock = 0;
        let pid = process.as_raw_nonzero().get();
        // SAFETY: writes one number to a variable that is alive during the call.
        let found = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
        (found == 0).then_some(Self(clock))
    }

    /// The time used. The clock of an ended process can be read until the process is reaped.
    #[expect(unsafe_code, reason = "a bare system call")]
    pub(in crate::worker) fn read(&self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one struct to a variable that is alive during the call.
        checked(unsafe { libc::clock_gettime(self.0, &raw mut time) }.into()).ok()?;
        Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
    }
}

/// The leader of a process's group; 0 for a thread of the kernel.
pub(in crate::worker) fn group_leader(process: u32) -> io::Result<c_long> {
    call_with_numbers!(libc::SYS_getpgid, [process.into(), 0, 0, 0, 0])
}

/// Moves the calling process into new namespaces.
pub(super) fn unshare(flags: c_int) -> io::Result<()> {
    call_with_numbers!(libc::SYS_unshare, [flags.into(), 0, 0, 0, 0]).map(drop)
}

/// Marks every descriptor but the first three to close when another program is executed.
pub fn close_on_exec() -> io::Result<()> {
    const CLOEXEC: c_long = 4;
    call_with_numbers!(libc::SYS_close_range, [3, c_uint::MAX.into(), CLOEXEC, 0, 0]).map(drop)
}

/// Closes every descriptor of the calling process.
///
/// # Safety
///
/// Nothing in the process may use a descriptor afterwards: an `OwnedFd` would refer to a closed one, or to
/// another file opened later under its number. A forked child that only makes system calls and exits may.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) unsafe fn close_all() -> io::Result<()> {
    call_with_numbers!(libc::SYS_close_range, [0, c_uint::MAX.into(), 0, 0, 0]).map(drop)
}

/// Blocks until a signal ends the process.
pub(super) fn block_forever() -> ! {
    loop {
        // Returns only after a signal that does not end the process.
        let _ = call_with_numbers!(libc::SYS_ppoll, [0; 5]);
    }
}

/// Adds attributes to a mount and, if `recursive`, to the mounts below it.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn restrict_mount(path: &CStr, set: u64, recursive: bool) -> io::Result<()> {
    const RECURSIVE: c_int = 0x8000;
    let attributes = MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 };
    let flags = if recursive { RECURSIVE } else { 0 };
    // SAFETY: a nul-terminated string and a struct of the size given, both alive during the call.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    })
    .map(drop)
}

/// The Landlock version of this kernel.
pub(super) fn landlock_version() -> io::Result<u32> {
    const VERSION: c_long = 1;
    let version = call_with_numbers!(libc::SYS_landlock_create_ruleset, [0, 0, VERSION, 0, 0])?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// A new Landlock ruleset; the kernel knows the first `size` bytes of the attributes.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn landlock_ruleset(attributes: &RulesetAttributes, size: usize) -> io::Result<OwnedFd> {
    let size = size.min(size_of::<RulesetAttributes>());
    // SAFETY: the struct is alive during the call and at least `size` long.
    let descriptor = checked(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const *attributes, size, 0)
    })?;
    let descriptor = RawFd::try_from(descriptor).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Grants access beneath a directory, or to a file.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn landlock_allow(
    ruleset: BorrowedFd<'_>,
    beneath: BorrowedFd<'_>,
    access: u64,
) -> io::Result<()> {
    const PATH_BENEATH: c_int = 1;
    let rule = PathBeneath { access, parent: beneath.as_raw_fd() };
    // SAFETY: the struct is alive during the call and has the kernel's layout.
    checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            PATH_BENEATH,
            &raw const rule,
            0,
        )
    })
    .map(drop)
}

/// Restricts the calling thread by a ruleset. It cannot be undone.
pub(super) fn landlock_enter(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    let arguments = [ruleset.as_raw_fd().into(), 0, 0, 0, 0];
    call_with_numbers!(libc::SYS_landlock_restrict_self, arguments).map(drop)
}

/// Restricts the calling thread by a filter. It cannot be undone.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn filter_system_calls(filter: &[Instruction]) -> io::Result<()> {
    const SET_MODE_FILTER: c_int = 1;
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies `len` instructions, which is how many the slice has, and writes none.
    checked(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) })
        .map(drop)
}

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawNotification {
    id: u64,
    process: u32,
    flags: u32,
    system_call: c_int,
    arch: u32,
    instruction_pointer: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct NotificationResponse {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `struct seccomp_notif_addfd`.
#[repr(C)]
struct AddedDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

/// `SECCOMP_IOCTL_…` request numbers.
const NOTIF_RECV: u64 = 0xC050_2100;
const NOTIF_SEND: u64 = 0xC018_2101;
const NOTIF_ID_VALID: u64 = 0x4008_2102;
const NOTIF_ADDFD: u64 = 0x4018_2103;

/// A system call that the kernel passes to the host instead of performing it: a seccomp user notification.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notification {
    id: u64,
    /// The waiting thread, by its number in the host's process namespace.
    pub(super) process: u32,
    pub(super) arguments: [u64; 6],
}

/// Restricts the calling thread by a filter whose notifications arrive at the returned descriptor.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn filter_with_notifications(filter: &[Instruction]) -> io::Result<OwnedFd> {
    const SET_MODE_FILTER: c_int = 1;
    const NEW_LISTENER: c_int = 8;
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies `len` instructions, which is how many the slice has, and writes none.
    let listener = checked(unsafe {
        libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER, &raw const program)
    })?;
    let listener = RawFd::try_from(listener).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

/// The next notification.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    let mut raw = RawNotification {
        id: 0,
        process: 0,
        flags: 0,
        system_call: 0,
        arch: 0,
        instruction_pointer: 0,
        arguments: [0; 6],
    };
    // SAFETY: the struct is zeroed, as the kernel requires, and as large as the request number says.
    let received = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV, &raw mut raw) };
    checked(received.into())?;
    Ok(Notification { id: raw.id, process: raw.process, arguments: raw.arguments })
}

/// Whether the thread of a notification still waits for its answer.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn is_pending(listener: BorrowedFd<'_>, notification: &Notification) -> bool {
    // SAFETY: the number is alive during the call and as large as the request number says.
    let asked =
        unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ID_VALID, &raw const notification.id) };
    asked == 0
}

/// Makes the waiting call return 0, or fail with `errno` if that is not 0.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn respond(
    listener: BorrowedFd<'_>,
    notification: &Notification,
    errno: i32,
) -> io::Result<()> {
    let mut answer =
        NotificationResponse { id: notification.id, value: 0, error: -errno, flags: 0 };
    // SAFETY: the struct is alive during the call and as large as the request number says.
    let sent = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND, &raw mut answer) };
    checked(sent.into()).map(drop)
}

/// Replaces the descriptor that is the first argument of the waiting call by a duplicate of `ours`.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn add_descriptor(
    listener: BorrowedFd<'_>,
    notification: &Notification,
    ours: BorrowedFd<'_>,
) -> io::Result<()> {
    const ADDFD_FLAG_SETFD: u32 = 1;
    let [target, ..] = notification.arguments;
    let mut given = AddedDescriptor {
        id: notification.id,
        flags: ADDFD_FLAG_SETFD,
        source: ours.as_raw_fd().cast_unsigned(),
        target: u32::try_from(target).map_err(|_| io::ErrorKind::InvalidInput)?,
        target_flags: libc::O_CLOEXEC.cast_unsigned(),
    };
    // SAFETY: the struct is alive during the call and as large as the request number says.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ADDFD, &raw mut given) };
    checked(done.into()).map(drop)
}

/// Reads another process's memory and returns how many bytes were read.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn read_memory(process: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0)),
        iov_len: into.len(),
    };
    // SAFETY: the kernel writes at most `into.len()` bytes into `into` and only reads the other process.
    let read = unsafe {
        libc::process_vm_readv(process.cast_signed(), &raw const local, 1, &raw const remote, 1, 0)
    };
    let read = checked(read as c_long)?;
    Ok(usize::try_from(read).unwrap_or(0))
}

/// How long the other side of a TCP connection has sent nothing; at first, how long the connection exists. `None`: the
/// socket is not a TCP socket, or not connected.
#[expect(unsafe_code, reason = "a bare library call")]
pub(in crate::worker) fn connection_silence(socket: BorrowedFd<'_>) -> Option<Duration> {
    // The beginning of `struct tcp_info`: eight bytes, of which the first is the state, then numbers.
    const LAST_DATA_RECEIVED: usize = 13;
    let mut info = [0_u32; LAST_DATA_RECEIVED + 1];
    let mut length = libc::socklen_t::try_from(size_of_val(&info)).ok()?;
    let into = (&raw mut info).cast();
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: writes at most `length` bytes to a variable that is alive during the call.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, into, &raw mut length) };
    checked(result.into()).ok()?;
    let [state, ..] = info.first()?.to_ne_bytes();
    let milliseconds = info.last().filter(|_| state == TCP_ESTABLISHED)?;
    Some(Duration::from_millis(u64::from(*milliseconds)))
}
