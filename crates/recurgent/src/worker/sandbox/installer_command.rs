//! What a package manager may read, write and use up. Fetched packages are treated as hostile, since nothing vets their
//! build scripts.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit};

use super::groups::CgroupLimits;
use super::limits::hard_limit;
use crate::grants::Network;

/// One command of a package manager.
#[derive(Debug)]
pub(crate) struct InstallerCommand<'a> {
    pub(crate) install_phase: &'a InstallPhase,
    /// Readable in addition to the system's directories.
    pub(crate) read: &'a [PathBuf],
    /// Where it may write, and execute what it wrote.
    pub(crate) write: &'a [PathBuf],
    /// Its home directory and directory of temporary files. It may write and execute here too.
    pub(crate) home: &'a Path,
    /// Its working directory.
    pub(crate) directory: &'a Path,
    pub(crate) limits: InstallerLimits,
}

/// What a command is for. It decides which hosts it may connect to and what it may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InstallPhase {
    /// Queries the tool or fetches it. No package is involved.
    Tool,
    /// Resolves, downloads and unpacks packages. It may connect to any host, because sources refer to others,
    /// and may start no process: what it fetched cannot run.
    Fetch,
    /// Processes installed files with the interpreter alone: no network, no processes.
    Compile,
    /// Runs what was fetched, as a user of its own. There is no network, except that the package manager itself
    /// may connect to these hosts.
    Build(Vec<String>),
}

impl InstallPhase {
    /// Whether it may start processes.
    pub(super) fn starts_processes(&self) -> bool {
        match self {
            Self::Tool | Self::Build(_) => true,
            Self::Fetch | Self::Compile => false,
        }
    }

    /// Whether fetched code may run.
    pub(crate) fn runs_fetched_code(&self) -> bool {
        match self {
            Self::Build(_) => true,
            Self::Tool | Self::Fetch | Self::Compile => false,
        }
    }

    /// Its network grant. A list of hosts can be enforced only if `enforces_lists`; otherwise all hosts are open.
    pub(super) fn network(&self, enforces_lists: bool) -> Network {
        match self {
            Self::Tool | Self::Fetch => Network::Open,
            Self::Compile => Network::Off,
            Self::Build(hosts) if hosts.is_empty() => Network::Off,
            Self::Build(hosts) if enforces_lists => Network::Hosts(hosts.clone()),
            Self::Build(_) => Network::Open,
        }
    }
}

/// Resource limits of installing one environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstallerLimits {
    /// Address space of one process.
    pub memory_bytes: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// Disk space of the environment and the files made while building it.
    pub disk_bytes: u64,
}

/// Descriptors one process may hold: package managers open many connections.
const OPEN_FILES: u64 = 4096;

impl InstallerLimits {
    /// The limits of a package manager and all processes it starts, together.
    pub(super) fn cgroup_limits(&self) -> CgroupLimits {
        CgroupLimits { memory_bytes: self.memory_bytes, processes: self.processes }
    }

    /// Hard limits, set before the command starts; they cannot be raised again.
    pub(super) fn hard_limits(&self) -> Vec<(Resource, Rlimit)> {
        [
            (Resource::Core, 0),
            (Resource::Memlock, 0),
            (Resource::Nofile, OPEN_FILES),
            (Resource::Fsize, self.disk_bytes),
            (Resource::As, self.memory_bytes),
        ]
        .into_iter()
        .map(|(resource, wanted)| (resource, hard_limit(resource, wanted)))
        .collect()
    }
}
