//! What a zygote, and so every worker forked from it, may see, touch and use up.
//!
//! ```text
//! Sandbox ── reached ──► Reached      the tier the probe found, and what every layer lacks
//!    └─ house(Seen) ──► House         one zygote's place: directory, user, skeleton of its root
//!          ├─ confine(Command)        how the zygote gets in (entry.rs, between fork and exec)
//!          ├─ seal                    what each forked worker does to itself (seal.rs)
//!          └─ berth ──► Berth         one worker's own scratch directory, Landlock ruleset, control groups
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

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::Pid;

use super::WorkerOptions;
use crate::grants::Network;
use crate::identity;
pub use installer_command::InstallerLimits;
pub(crate) use installer_command::{InstallPhase, InstallerCommand};
pub use limits::WorkerLimits;
pub use probe::Reached;
pub(crate) use spawn_handshake::SpawnHandshake;
pub(super) use sys::ProcessorClock;
pub(crate) use tally::Tally;
pub use tier::{Layer, Layers, Tier};
pub(crate) use zygote_sandbox::{WorkerResources, ZygoteSandbox};

/// How the name of a scratch directory begins; its host's pid follows.
const SCRATCH_PREFIX: &str = "recurgent-";

/// What a zygote and its workers may see and reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Beside the system's own directories.
    pub(crate) read: Vec<PathBuf>,
    /// Granted by the caller.
    pub(crate) write: Vec<PathBuf>,
    /// Who may be talked to.
    pub(crate) network: Network,
    /// Whether local sockets may be made: nothing seen can hold one that somebody else listens at.
    pub(crate) local_sockets: bool,
    pub(crate) starts: Starts,
}

/// Whose code a process inside runs first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Starts {
    /// Ours, until it has applied its seal.
    OwnCode,
    /// That of packages.
    #[default]
    Packages,
    /// What it writes itself, as builds do.
    WhatItWrites,
}

/// Confines zygotes before their interpreters start.
#[derive(Debug)]
pub(crate) struct Sandbox {
    path: OsString,
    scratch: PathBuf,
    limits: WorkerLimits,
    wanted: Layers,
    reached: OnceLock<Reached>,
}

impl Sandbox {
    pub(crate) fn new(options: &WorkerOptions) -> Self {
        let sandbox = Self {
            path: options.path.clone(),
            scratch: options.scratch.clone(),
            limits: options.limits.under_hosts(),
            wanted: options.layers,
            reached: OnceLock::new(),
        };
        sandbox.sweep();
        sandbox
    }

    /// The tier reached, found out when first asked for.
    pub(super) fn reached(&self) -> &Reached {
        self.reached.get_or_init(|| probe::climb(self))
    }

    /// A directory nobody else uses, for one zygote and its workers.
    fn directory(&self) -> io::Result<Scratch> {
        let name = format!("{SCRATCH_PREFIX}{}-{}", std::process::id(), identity::instance_id());
        let path = self.scratch.join(name);
        // Fails when the path exists, so nobody can lay out a directory or link for us to walk into.
        let made = std::fs::create_dir_all(&self.scratch)
            .and_then(|()| std::fs::DirBuilder::new().mode(0o700).create(&path))
            .and_then(|()| path.canonicalize());
        match made {
            Ok(path) => Ok(Scratch(path)),
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
        for entry in std::fs::read_dir(&self.scratch).into_iter().flatten().flatten() {
            if is_abandoned(&entry.file_name()) {
                groups::sweep(&entry.path());
                // Others' directories stay: they are not ours to remove.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        groups::sweep_beside(is_abandoned);
    }
}

/// Whether it is named after a host that is gone.
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
        // A leftover costs disk space only; there is nobody to tell.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
