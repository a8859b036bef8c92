//! What a zygote, and so every worker forked from it, may see, change and use up.
//!
//! ```text
//! Sandbox ── reached ──► Reached                          the tier the probe found, and why layers are missing
//!    └─ zygote_sandbox(SandboxAccess) ──► ZygoteSandbox   one zygote's directory, user, root and control groups
//!          ├─ confine(Command)                            how the zygote enters (entry.rs, between fork and exec)
//!          ├─ seal                                        how each forked worker confines itself (seal.rs)
//!          └─ worker_resources ──► WorkerResources        one worker's scratch directory, ruleset, control groups
//! ```

mod spawn_handshake;
mod entry;
mod installer_command;
mod groups;
mod zygote_sandbox;
mod landlock;
mod limits;
mod mediator;
mod probe;
mod seal;
mod seccomp;
mod sys;
mod tally;
mod tier;
mod user;
mod view;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::Pid;

use super::WorkerOptions;
use crate::grants::{GrantedName, Network};
use crate::identity;
pub use installer_command::InstallerLimits;
pub(crate) use installer_command::{InstallPhase, InstallerCommand};
pub use limits::WorkerLimits;
pub use probe::Reached;
pub(crate) use spawn_handshake::SpawnHandshake;
pub use sys::close_on_exec;
pub(super) use sys::{ProcessorClock, connection_silence, group_leader};
pub(crate) use tally::Tally;
pub use tier::{Layer, Layers, Tier};
pub(crate) use zygote_sandbox::{WorkerResources, ZygoteSandbox};

/// Prefix of the name of a scratch directory; its host's process number follows.
const SCRATCH_PREFIX: &str = "recurgent-";
/// Directories for which the answer of [`Sandbox::layers_over`] is kept.
const MAX_LAYERED: usize = 64;

/// What a zygote and its workers may read, write, connect to and start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SandboxAccess {
    /// Readable in addition to the system's directories.
    pub(crate) read: Vec<PathBuf>,
    /// Writable, granted by the caller.
    pub(crate) write: Vec<PathBuf>,
    /// Of these paths, those that the caller granted: what only a supplementary group may read in them is hidden.
    pub(crate) granted: Vec<PathBuf>,
    /// Which hosts may be connected to.
    pub(crate) network: Network,
    /// Whether Unix sockets may be created. Workers may only if nothing is granted: a granted directory may hold the socket
    /// of another process.
    pub(crate) local_sockets: bool,
    /// The directory workers run in, instead of their scratch directory.
    pub(crate) workspace: Option<PathBuf>,
    /// The version of the workspace that they may change.
    pub(crate) workspace_version: Option<VersionMount>,
    /// Links in the scratch directory.
    pub(crate) names: Vec<GrantedName>,
    /// Which code the first process runs.
    pub(crate) starts: Starts,
}

impl SandboxAccess {
    /// What is said of an interpreter that does not start. A granted directory around it may be why.
    pub(super) fn explain_no_start(
        &self,
        path: &Path,
    ) -> impl FnOnce(&io::Error) -> String + use<> {
        let mut granted = self.granted.iter().chain(&self.workspace);
        let around = granted.find(|granted| path.starts_with(granted)).cloned();
        let path = path.display().to_string();
        move |error| match around {
            Some(around) if error.kind() == io::ErrorKind::PermissionDenied => format!(
                "{path} does not start: {error}; it is in {}, which is granted, and the permissions there shut out the \
                 user that programs run as: grant a directory that does not hold the interpreter",
                around.display()
            ),
            Some(_) | None => format!("{path} does not start: {error}"),
        }
    }
}

/// What programs see in place of a workspace, and may change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VersionMount {
    /// The workspace, or a copy of it.
    pub(crate) source: PathBuf,
    /// Whether what they write goes to a layer above, in memory. Otherwise it goes to the source.
    pub(crate) is_layer: bool,
}

/// The code that the first process inside a sandbox runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Starts {
    /// The harness, until it has applied its seal.
    Harness,
    /// Code of packages.
    #[default]
    Packages,
    /// A program that was configured; it is the first process.
    Program,
    /// Files that processes inside have written, as builds do.
    WrittenFiles,
}

/// Confines zygotes before their interpreters start.
#[derive(Debug)]
pub(crate) struct Sandbox {
    path: OsString,
    scratch: PathBuf,
    limits: WorkerLimits,
    wanted: Layers,
    reached: OnceLock<Reached>,
    /// Whether the kernel mounts a layer over these directories.
    layered: Mutex<BTreeMap<PathBuf, bool>>,
}

impl Sandbox {
    pub(crate) fn new(options: &WorkerOptions) -> Self {
        let sandbox = Self {
            path: options.path.clone(),
            scratch: options.scratch.clone(),
            limits: options.limits.capped_by_host(),
            wanted: options.layers,
            reached: OnceLock::new(),
            layered: Mutex::default(),
        };
        sandbox.sweep();
        sandbox
    }

    /// The tier this machine reaches, probed when first needed.
    pub(super) fn reached(&self) -> &Reached {
        self.reached.get_or_init(|| probe::strongest(self))
    }

    /// Whether the kernel mounts a layer over a directory; tried when first needed.
    pub(crate) fn layers_over(&self, directory: &Path) -> bool {
        let mut layered = self.layered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = layered.get(directory) {
            return *known;
        }
        if layered.len() >= MAX_LAYERED {
            layered.clear();
        }
        let works = probe::mounts_layer(self, directory);
        layered.insert(directory.to_owned(), works);
        works
    }

    /// Whether the user namespace of programs has one user only, that of the host. A layer then cannot take over files of other
    /// users.
    pub(crate) fn maps_one_user() -> bool {
        !user::may_mount()
    }

    /// Whether a file is hidden from programs, because this process may read it only by a supplementary group.
    pub(crate) fn hidden_files() -> impl Fn(&Metadata) -> bool {
        let groups = user::kept_groups();
        move |meta| groups.are_needed(meta)
    }

    /// Creates a private directory for one zygote and its workers.
    pub(crate) fn directory(&self) -> io::Result<Scratch> {
        let name = format!("{SCRATCH_PREFIX}{}-{}", std::process::id(), identity::instance_id());
        let path = self.scratch.join(name);
        // Fails if the path exists, so no other user can prepare a directory or link there.
        let made = std::fs::create_dir_all(&self.scratch)
            .and_then(|()| std::fs::DirBuilder::new().mode(0o700).create(&path))
            .and_then(|()| path.canonicalize());
        match made {
            Ok(path) => Ok(Scratch(path)),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!(
                    "cannot create a scratch directory in {}: {error}; set TMPDIR to a directory you can write to",
                    self.scratch.display()
                ),
            )),
        }
    }

    /// Removes what killed hosts left behind.
    fn sweep(&self) {
        for entry in std::fs::read_dir(&self.scratch).into_iter().flatten().flatten() {
            if is_abandoned(&entry.file_name()) {
                groups::sweep(&entry.path());
                // Directories of other users stay: removing them fails.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        groups::sweep_beside(is_abandoned);
    }
}

/// Whether a scratch directory's name holds the process number of a host that has ended.
fn is_abandoned(name: &OsStr) -> bool {
    let owner = name.to_str().and_then(|name| name.strip_prefix(SCRATCH_PREFIX));
    let pid = owner.and_then(|rest| rest.split('-').next()?.parse().ok()).and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// A private directory, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover costs disk space only and is removed by a later host.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_around_an_interpreter_that_may_not_start_is_named() {
        let path = Path::new("/home/ada/.pyenv/bin/python3");
        let granting = |granted: &str| SandboxAccess {
            granted: vec![granted.into()],
            ..SandboxAccess::default()
        };
        for (granted, kind, names_grant) in [
            ("/", io::ErrorKind::PermissionDenied, true),
            ("/home/ada", io::ErrorKind::PermissionDenied, true),
            ("/home/ad", io::ErrorKind::PermissionDenied, false),
            ("/", io::ErrorKind::NotFound, false),
        ] {
            let said = granting(granted).explain_no_start(path)(&kind.into());
            assert!(said.starts_with("/home/ada/.pyenv/bin/python3 does not start: "), "{said}");
            assert_eq!(said.contains(&format!("it is in {granted},")), names_grant, "{said}");
        }
    }
}
