//! What a package manager may see, touch and use up. What it fetches is hostile: a build script is a
//! program nobody has vetted.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit};

use super::groups::Share;
use super::limits::lowered;
use crate::grants::Network;

/// One command of a package manager.
#[derive(Debug)]
pub(crate) struct InstallerCommand<'a> {
    pub(crate) install_phase: &'a InstallPhase,
    /// Seen beside the system's own directories.
    pub(crate) read: &'a [PathBuf],
    /// Where it may write, and run what it wrote.
    pub(crate) write: &'a [PathBuf],
    /// The same, and where temporary files go.
    pub(crate) home: &'a Path,
    /// Where it runs.
    pub(crate) directory: &'a Path,
    pub(crate) limits: InstallerLimits,
}

/// What a command is for, which decides whom it may talk to and what it may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InstallPhase {
    /// Asks the tool itself, or fetches it. No package is involved.
    Tool,
    /// Chooses, downloads and unpacks packages. Talks to whoever its sources refer to, and can start no
    /// process: what it fetched cannot run.
    Fetch,
    /// Works on installed files with the interpreter alone: no network, no process.
    Polish,
    /// Runs what was fetched, as a user of its own. Nobody may be talked to, except these hosts by the
    /// package manager itself.
    Build(Vec<String>),
}

impl InstallPhase {
    /// Whether it may start processes.
    pub(super) fn employs(&self) -> bool {
        match self {
            Self::Tool | Self::Build(_) => true,
            Self::Fetch | Self::Polish => false,
        }
    }

    /// Whether what was fetched may run.
    pub(crate) fn is_hostile(&self) -> bool {
        match self {
            Self::Build(_) => true,
            Self::Tool | Self::Fetch | Self::Polish => false,
        }
    }

    /// Whom it may talk to. Lists of hosts are held only where `listed`; where not, all are open.
    pub(super) fn network(&self, listed: bool) -> Network {
        match self {
            Self::Tool | Self::Fetch => Network::Open,
            Self::Polish => Network::Off,
            Self::Build(hosts) if hosts.is_empty() => Network::Off,
            Self::Build(hosts) if listed => Network::Hosts(hosts.clone()),
            Self::Build(_) => Network::Open,
        }
    }
}

/// What installing one environment may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstallerLimits {
    /// Address space of one process.
    pub memory_bytes: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// What the environment and the files made on the way to it may take on disk.
    pub disk_bytes: u64,
}

/// Descriptors one process may hold: package managers fetch much at once.
const OPEN_FILES: u64 = 4096;

impl InstallerLimits {
    /// What a package manager and all it starts may use up together.
    pub(super) fn share(&self) -> Share {
        Share { memory_bytes: self.memory_bytes, processes: self.processes }
    }
}

impl InstallerLimits {
    /// Hard limits, lowered before the command starts and never raised again.
    pub(super) fn lowered(&self) -> Vec<(Resource, Rlimit)> {
        [
            (Resource::Core, 0),
            (Resource::Memlock, 0),
            (Resource::Nofile, OPEN_FILES),
            (Resource::Fsize, self.disk_bytes),
            (Resource::As, self.memory_bytes),
        ]
        .into_iter()
        .map(|(resource, wanted)| (resource, lowered(resource, wanted)))
        .collect()
    }
}
