//! What a worker may use up. Every limit has a name and a default.

use rustix::process::{Resource, Rlimit};

use super::groups::Share;

/// Workers of one zygote that may use up all their processes at once before others go without.
const WORKERS: u64 = 64;

/// What one worker may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Address space of one process: what a runaway allocation meets as a memory error.
    pub memory_bytes: u64,
    /// Processor time of one process.
    pub cpu_seconds: u64,
    /// Processes and threads of one worker, itself included.
    pub processes: u64,
    /// Descriptors one process may hold.
    pub open_files: u64,
    /// Largest file it may write.
    pub file_bytes: u64,
    /// Its scratch space, where that is its own.
    pub scratch_bytes: u64,
    /// Files and directories in it.
    pub scratch_files: u64,
    /// What it may print in one attempt before that is an attack.
    pub output_bytes: u64,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 4 << 30,
            cpu_seconds: 60,
            processes: 64,
            open_files: 256,
            file_bytes: 64 << 20,
            scratch_bytes: 64 << 20,
            scratch_files: 4096,
            output_bytes: 256 << 20,
        }
    }
}

impl WorkerLimits {
    /// What one worker's processes may use up together.
    pub(super) fn share(&self) -> Share {
        Share { memory_bytes: self.memory_bytes, processes: self.processes }
    }

    /// What a zygote may, and what its packages start before any worker is there.
    pub(super) fn everybody(&self) -> Share {
        Share { processes: self.processes.saturating_mul(WORKERS), ..self.share() }
    }
}

impl WorkerLimits {
    /// Nothing above what the host itself is under: no process could be given it, and a worker that cannot
    /// be limited is not contained.
    pub(super) fn under_hosts(self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.min(ceiling(Resource::As)),
            // One second is kept to end a program in that does not listen.
            cpu_seconds: self.cpu_seconds.min(ceiling(Resource::Cpu).saturating_sub(1)),
            processes: self.processes.min(ceiling(Resource::Nproc)),
            open_files: self.open_files.min(ceiling(Resource::Nofile)),
            file_bytes: self.file_bytes.min(ceiling(Resource::Fsize)),
            ..self
        }
    }

    /// Hard limits, lowered once before the interpreter starts and never raised again. Inside own walls
    /// processes are counted by themselves, so a package that makes them without end, before any worker is
    /// sealed, meets a limit too.
    pub(super) fn lowered(&self, walled: bool) -> Vec<(Resource, Rlimit)> {
        let everybody = walled.then(|| (Resource::Nproc, self.processes.saturating_mul(WORKERS)));
        [
            (Resource::Core, 0),
            (Resource::Memlock, 0),
            (Resource::Nofile, self.open_files),
            (Resource::Fsize, self.file_bytes),
            (Resource::As, self.memory_bytes),
        ]
        .into_iter()
        .chain(everybody)
        .map(|(resource, wanted)| (resource, lowered(resource, wanted)))
        .collect()
    }
}

/// The limit to set: never above the one the host itself is under, which cannot be raised.
pub(super) fn lowered(resource: Resource, wanted: u64) -> Rlimit {
    let limit = Some(wanted.min(ceiling(resource)));
    Rlimit { current: limit, maximum: limit }
}

/// The most that can be set.
pub(super) fn ceiling(resource: Resource) -> u64 {
    rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX)
}
