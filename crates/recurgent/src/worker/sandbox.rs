//! What a zygote, and so every worker forked from it, may touch and use up.
//!
//! This is the tier that needs no privilege: a session of its own, death with the host, no new
//! privileges, resource limits, and an environment built from nothing. The kernel sandbox (namespaces,
//! Landlock, seccomp, cgroups) takes its place here; whatever is reached is named in every trace.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit};

use crate::identity;

/// Address space of one worker: what a runaway allocation meets as a memory error.
const ADDRESS_SPACE_BYTES: u64 = 4 << 30;
/// Largest file a worker may write.
const FILE_BYTES: u64 = 64 << 20;
/// Descriptors a worker may hold.
const OPEN_FILES: u64 = 256;

/// Hard limits, lowered once before the interpreter starts and never raised again.
const LIMITS: [(Resource, u64); 5] = [
    (Resource::Core, 0),
    (Resource::Memlock, 0),
    (Resource::Nofile, OPEN_FILES),
    (Resource::Fsize, FILE_BYTES),
    (Resource::As, ADDRESS_SPACE_BYTES),
];

/// How the name of a scratch directory begins; its host's pid follows.
const SCRATCH_PREFIX: &str = "recurgent-";

/// Confines a zygote before its interpreter starts.
#[derive(Debug)]
pub(super) struct Sandbox {
    path: OsString,
    scratch: PathBuf,
}

impl Sandbox {
    /// Workers find programs on `path` and keep files under `scratch`.
    pub(super) fn new(path: OsString, scratch: PathBuf) -> Self {
        let sandbox = Self { path, scratch };
        sandbox.sweep();
        sandbox
    }

    /// The tier reached.
    #[expect(clippy::unused_self, reason = "the kernel sandbox finds its tier by probing")]
    pub(super) fn tier(&self) -> &'static str {
        "process"
    }

    /// A directory nobody else uses, for one zygote and its workers.
    pub(super) fn scratch(&self) -> io::Result<Scratch> {
        let name = format!("{SCRATCH_PREFIX}{}-{}", std::process::id(), identity::instance_id());
        let path = self.scratch.join(name);
        // Fails when the path exists, so nobody can lay out a directory or link for us to walk into.
        let made = std::fs::create_dir_all(&self.scratch)
            .and_then(|()| std::fs::DirBuilder::new().mode(0o700).create(&path));
        match made {
            Ok(()) => Ok(Scratch(path)),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!(
                    "no scratch directory can be made in {}: {error}; set TMPDIR to one you can write to",
                    self.scratch.display()
                ),
            )),
        }
    }

    /// Removes what hosts that were killed left behind.
    fn sweep(&self) {
        let Ok(entries) = std::fs::read_dir(&self.scratch) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(SCRATCH_PREFIX));
            let pid =
                owner.and_then(|rest| rest.split('-').next()?.parse().ok()).and_then(Pid::from_raw);
            let is_dead =
                |pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
            if pid.is_some_and(is_dead) {
                // Others' directories stay: they are not ours to remove.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Makes `command` start inside the sandbox.
    pub(super) fn confine(&self, command: &mut Command, scratch: &Scratch) {
        command.env_clear().envs(self.environment(scratch)).current_dir(&scratch.0);
        let host = rustix::process::getpid();
        let limits = LIMITS.map(|(resource, wanted)| (resource, lowered(resource, wanted)));
        #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
        // SAFETY: `enter` runs in the forked child of a threaded process, so it may only make
        // async-signal-safe calls. It makes bare system calls on values copied in beforehand: it
        // allocates nothing, takes no lock, and touches no memory the parent's threads may hold.
        unsafe {
            command.pre_exec(move || enter(host, &limits));
        }
    }

    /// All a worker sees of the environment: nothing of the host's is inherited.
    fn environment<'a>(&'a self, scratch: &'a Scratch) -> [(&'static str, &'a OsStr); 4] {
        let scratch = scratch.0.as_os_str();
        [
            ("PATH", &self.path),
            ("LANG", OsStr::new("C.UTF-8")),
            ("HOME", scratch),
            ("TMPDIR", scratch),
        ]
    }
}

/// Makes a command that is not confined, an installer, end when the thread that starts it ends. That
/// thread must wait for it.
pub(crate) fn die_with_host(command: &mut Command) {
    let host = rustix::process::getpid();
    #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
    // SAFETY: as in `Sandbox::confine`: bare system calls on a value copied in beforehand.
    unsafe {
        command.pre_exec(move || die_with(host));
    }
}

/// A private directory, removed with its zygote.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover costs disk space only; there is nobody to tell.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The limit to set: never above the one the host itself is under, which cannot be raised.
fn lowered(resource: Resource, wanted: u64) -> Rlimit {
    let ceiling = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Some(wanted.min(ceiling));
    Rlimit { current: limit, maximum: limit }
}

/// In the child, between fork and exec.
fn enter(host: Pid, limits: &[(Resource, Rlimit)]) -> io::Result<()> {
    rustix::process::setsid()?;
    die_with(host)?;
    for (resource, limit) in limits {
        rustix::process::setrlimit(*resource, *limit)?;
    }
    Ok(())
}

/// Ends this process when the thread that spawned it ends.
#[cfg(target_os = "linux")]
fn die_with(host: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if rustix::process::getppid() != Some(host) {
        // It died before the signal was armed.
        return Err(rustix::io::Errno::SRCH.into());
    }
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Elsewhere the zygote ends when its control channel closes.
#[cfg(not(target_os = "linux"))]
fn die_with(_host: Pid) -> io::Result<()> {
    Ok(())
}
