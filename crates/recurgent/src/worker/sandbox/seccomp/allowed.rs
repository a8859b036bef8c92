//! The system calls that sandboxed processes may make.
//!
//! Made by tracing programs of both guests, uv and the build of a gem with a native extension, and adding the siblings
//! of what was seen (`pread64` where there was `preadv`). The test suites run under it, and so did the packages that
//! docs/security.md names. What makes namespaces, sockets or set-id files is checked by its arguments before.

use std::io;

use libc::c_long;

use super::{BAD_NUMBER, FCHMODAT2};

/// Files, directories, descriptors.
#[rustfmt::skip]
const FILES: &[c_long] = &[
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_openat, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_statfs,
    libc::SYS_fstatfs, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_getdents64, libc::SYS_getcwd,
    libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_symlinkat, libc::SYS_linkat,
    libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_readlinkat, libc::SYS_fchmod, libc::SYS_fchmodat,
    libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_truncate, libc::SYS_ftruncate, libc::SYS_fallocate,
    libc::SYS_fadvise64, libc::SYS_readahead, libc::SYS_sync, libc::SYS_syncfs, libc::SYS_fsync, libc::SYS_fdatasync,
    libc::SYS_sync_file_range, libc::SYS_utimensat, libc::SYS_umask, libc::SYS_flock, libc::SYS_fcntl,
    libc::SYS_ioctl, libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2, libc::SYS_splice, libc::SYS_tee,
    libc::SYS_vmsplice, libc::SYS_sendfile, libc::SYS_copy_file_range, libc::SYS_getxattr, libc::SYS_lgetxattr,
    libc::SYS_fgetxattr, libc::SYS_listxattr, libc::SYS_llistxattr, libc::SYS_flistxattr, libc::SYS_setxattr,
    libc::SYS_lsetxattr, libc::SYS_fsetxattr, libc::SYS_removexattr, libc::SYS_lremovexattr, libc::SYS_fremovexattr,
    libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_ppoll,
    libc::SYS_pselect6, libc::SYS_eventfd2, libc::SYS_signalfd4, libc::SYS_timerfd_create, libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    FCHMODAT2,
];

#[rustfmt::skip]
const MEMORY: &[c_long] = &[
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk,
    libc::SYS_msync, libc::SYS_mincore, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_mlockall,
    libc::SYS_munlockall, libc::SYS_membarrier, libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_pkey_mprotect,
];

/// Processes, threads, signals, identities, limits; and what a worker seals itself with.
#[rustfmt::skip]
const PROCESSES: &[c_long] = &[
    libc::SYS_clone, libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4,
    libc::SYS_waitid, libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigpending, libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo, libc::SYS_sigaltstack,
    libc::SYS_restart_syscall, libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal, libc::SYS_getpid, libc::SYS_getppid,
    libc::SYS_gettid, libc::SYS_getpgid, libc::SYS_setpgid, libc::SYS_getsid, libc::SYS_setsid,
    libc::SYS_set_tid_address, libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_futex,
    libc::SYS_futex_waitv, libc::SYS_rseq, libc::SYS_prctl, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid,
    libc::SYS_getegid, libc::SYS_getresuid, libc::SYS_getresgid, libc::SYS_getgroups, libc::SYS_setuid,
    libc::SYS_setgid, libc::SYS_setreuid, libc::SYS_setregid, libc::SYS_setresuid, libc::SYS_setresgid,
    libc::SYS_setgroups, libc::SYS_setfsuid, libc::SYS_setfsgid, libc::SYS_capget, libc::SYS_capset,
    libc::SYS_seccomp, libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self, libc::SYS_unshare, libc::SYS_mount, libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity, libc::SYS_sched_getparam, libc::SYS_sched_getscheduler,
    libc::SYS_sched_getattr, libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval, libc::SYS_getpriority, libc::SYS_setpriority, libc::SYS_ioprio_get,
    libc::SYS_ioprio_set, libc::SYS_getcpu, libc::SYS_getrlimit, libc::SYS_setrlimit, libc::SYS_prlimit64,
    libc::SYS_getrusage,
];

#[rustfmt::skip]
const TIME_AND_SYSTEM: &[c_long] = &[
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_times, libc::SYS_getitimer, libc::SYS_setitimer, libc::SYS_timer_create,
    libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun, libc::SYS_timer_delete,
    libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom,
];

#[rustfmt::skip]
const SOCKETS: &[c_long] = &[
    libc::SYS_socket, libc::SYS_socketpair, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4,
    libc::SYS_connect, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_sendto, libc::SYS_recvfrom,
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_recvmmsg, libc::SYS_shutdown,
    libc::SYS_setsockopt, libc::SYS_getsockopt,
];

/// Older calls that only x86-64 has.
#[rustfmt::skip]
const OLDER: &[c_long] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink,
    libc::SYS_getdents, libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_link, libc::SYS_unlink, libc::SYS_symlink,
    libc::SYS_rename, libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes,
    libc::SYS_futimesat, libc::SYS_pipe, libc::SYS_dup2, libc::SYS_select, libc::SYS_poll, libc::SYS_epoll_create,
    libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_signalfd, libc::SYS_alarm, libc::SYS_pause, libc::SYS_time,
    libc::SYS_fork, libc::SYS_vfork, libc::SYS_getpgrp, libc::SYS_arch_prctl,
];

/// The numbers of the allowed calls, sorted.
pub(super) fn numbers() -> io::Result<Vec<u32>> {
    let all = [FILES, MEMORY, PROCESSES, TIME_AND_SYSTEM, SOCKETS, OLDER].concat();
    let number = |call: c_long| u32::try_from(call).map_err(|_| io::Error::other(BAD_NUMBER));
    let mut numbers = all.into_iter().map(number).collect::<io::Result<Vec<u32>>>()?;
    numbers.sort_unstable();
    Ok(numbers)
}
