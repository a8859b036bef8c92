//! What one worker is given.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use lifecycle::provenance::ObservedSource;
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use super::super::Scratch;
use super::super::groups::Branch;
use super::super::mediator::ConnectionLog;
use super::super::tally::Tally;
use super::super::view::SCRATCH;

/// Most files, links and directories in the scratch space of a worker that is kept for its agent's next call. They hold
/// nothing: links to granted files are among them.
const MAX_IDLE_FILES: u64 = 256;

/// What one worker is given; removed when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct WorkerResources {
    pub(super) group: Option<Branch>,
    /// Its scratch directory, where its seal does not mount one.
    pub(super) own: Option<Scratch>,
    /// Descriptors to join its control groups.
    pub(super) cgroup_fds: Vec<OwnedFd>,
    pub(super) ruleset: Option<OwnedFd>,
    pub(super) connections: Arc<ConnectionLog>,
    /// Its scratch space, opened when it is first looked at.
    pub(super) scratch: OnceLock<Option<OwnedFd>>,
}

/// The scratch space that a worker has mounted. Nothing in it can be a mount of the worker's own making.
fn open_scratch(worker: Pid) -> io::Result<OwnedFd> {
    let path = format!("/proc/{}/root{SCRATCH}", worker.as_raw_nonzero());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Whether a directory holds anything but links and directories of links.
fn holds_files(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return true };
    entries.flatten().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => holds_files(&entry.path()),
        Ok(kind) => !kind.is_symlink(),
        Err(_) => true,
    })
}

impl WorkerResources {
    /// The worker's directory, where its seal does not mount one.
    pub(crate) fn scratch(&self) -> Option<&Path> {
        self.own.as_ref().map(AsRef::as_ref)
    }

    /// Descriptors with which the worker joins its control groups.
    pub(crate) fn cgroup_fds(&self) -> &[OwnedFd] {
        &self.cgroup_fds
    }

    pub(crate) fn ruleset(&self) -> Option<&OwnedFd> {
        self.ruleset.as_ref()
    }

    /// Whether its worker's scratch space holds more than the links to granted files. Unknown counts as yes.
    pub(crate) fn has_files(&self, worker: Pid) -> bool {
        if let Some(own) = &self.own {
            return holds_files(own.as_ref());
        }
        let opened = self.scratch.get_or_init(|| open_scratch(worker).ok());
        let Some(scratch) = opened else { return true };
        rustix::fs::fstatvfs(scratch).map_or(true, |space| {
            let files = space.f_files.saturating_sub(space.f_ffree);
            space.f_bfree < space.f_blocks || files > MAX_IDLE_FILES
        })
    }

    /// The connections made for its worker since this was last called.
    pub(crate) fn take_connections(&self, worker: Pid) -> Vec<ObservedSource> {
        self.connections.take(worker)
    }

    /// The kernel's counters of the worker and all processes it starts.
    pub(crate) fn tally(&self) -> io::Result<Tally> {
        self.group.as_ref().map_or_else(|| Ok(Tally::default()), Branch::tally)
    }

    /// Adds its worker to the control groups and closes the descriptors, which the worker has by now.
    pub(crate) fn assign(&mut self, worker: Pid) -> io::Result<()> {
        (self.cgroup_fds, self.ruleset) = (Vec::new(), None);
        self.group.as_ref().map_or(Ok(()), |group| group.add(worker))
    }
}
