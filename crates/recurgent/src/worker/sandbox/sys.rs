//! System calls nobody wraps safely. All are bare: no allocation, no lock, fit for a forked child.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long, c_uint};

/// `mount_setattr` flags.
pub(super) const MOUNT_READ_ONLY: u64 = 1;
pub(super) const MOUNT_NO_SUID: u64 = 2;
pub(super) const MOUNT_NO_DEVICES: u64 = 4;

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

#[repr(C, packed)]
struct PathBeneath {
    access: u64,
    parent: RawFd,
}

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

/// Makes a system call of plain numbers and strings.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn call(number: c_long, arguments: [c_long; 5]) -> io::Result<c_long> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the callers, all in this folder, pass numbers, or addresses of memory that outlives the
    // call and is as large as the kernel takes it to be.
    checked(unsafe { libc::syscall(number, a, b, c, d, e) })
}

/// Forks a sibling: its parent is the caller's. `None` in the child.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn fork_sibling() -> io::Result<Option<i32>> {
    let flags = c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: like fork, with memory copied and no stack given. The child of a threaded process goes on
    // with bare system calls until it executes another program, as the caller does already.
    let pid = checked(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok(i32::try_from(pid).ok().filter(|pid| *pid != 0))
}

/// Ends the calling process without running anything of its parent's.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn exit(status: c_int) -> ! {
    // SAFETY: runs no handler and frees nothing.
    unsafe { libc::_exit(status) }
}

/// Leaves namespaces for new ones.
pub(super) fn unshare(flags: c_int) -> io::Result<()> {
    call(libc::SYS_unshare, [flags.into(), 0, 0, 0, 0]).map(drop)
}

/// Has every descriptor but the first three close when another program is executed.
pub(super) fn close_on_exec() -> io::Result<()> {
    const CLOEXEC: c_long = 4;
    call(libc::SYS_close_range, [3, c_uint::MAX.into(), CLOEXEC, 0, 0]).map(drop)
}

/// Adds attributes to a mount, and to those below it.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn restrict_mount(path: &CStr, set: u64, recursive: bool) -> io::Result<()> {
    const RECURSIVE: c_int = 0x8000;
    let attributes = MountAttributes { set, clear: 0, propagation: 0, user_namespace: 0 };
    let flags = if recursive { RECURSIVE } else { 0 };
    // SAFETY: a string ended by nul and a struct of the size given, both alive during the call.
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
    let version = call(libc::SYS_landlock_create_ruleset, [0, 0, VERSION, 0, 0])?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// A new Landlock ruleset; `size` bytes of the attributes are known to the kernel.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn landlock_ruleset(
    attributes: &RulesetAttributes,
    size: usize,
) -> io::Result<OwnedFd> {
    let size = size.min(size_of::<RulesetAttributes>());
    // SAFETY: the struct is alive during the call and at least `size` long.
    let descriptor = checked(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const *attributes, size, 0)
    })?;
    let descriptor = RawFd::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it, for nobody else.
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
    // SAFETY: the struct is alive during the call and laid out as the kernel has it.
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

/// Puts the calling thread under a ruleset, for good.
pub(super) fn landlock_enter(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    call(libc::SYS_landlock_restrict_self, [ruleset.as_raw_fd().into(), 0, 0, 0, 0]).map(drop)
}

/// Puts the calling thread under a filter, for good.
#[expect(unsafe_code, reason = "a bare system call")]
pub(super) fn filter_system_calls(filter: &[Instruction]) -> io::Result<()> {
    const SET_MODE_FILTER: c_int = 1;
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies `len` instructions, which is how many there are, and writes none.
    checked(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) })
        .map(drop)
}
