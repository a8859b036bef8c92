//! Resource limits of workers. Every limit has a name and a default.

use rustix::process::{Resource, Rlimit};

use super::groups::CgroupLimits;

/// Workers of one zygote that may use all their processes at once before the others' limit is affected.
const WORKERS: u64 = 8;
/// Timers and queued signals of one process. The kernel counts them for all processes of a user.
const SIGNALS: u64 = 256;
/// Processes of a zygote beside those that its packages start: its own, and workers that have not left its control group.
const OWN_PROCESSES: u64 = 16;

/// Resource limits of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Memory of one worker, and address space of one process: exceeding that raises a memory error in the program.
    pub memory_bytes: u64,
    /// Address space of one process, where it may be more: some interpreters reserve far more than they use.
    pub address_space_bytes: Option<u64>,
    /// Processor time of one process.
    pub cpu_seconds: u64,
    /// Processes and threads of one worker, itself included.
    pub processes: u64,
    /// Descriptors one process may hold.
    pub open_files: u64,
    /// Largest file it may write.
    pub file_bytes: u64,
    /// Size of its scratch space, where that is private.
    pub scratch_bytes: u64,
    /// Files and directories in it.
    pub scratch_files: u64,
    /// Output in one attempt after which the program is ended.
    pub output_bytes: u64,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 4 << 30,
            address_space_bytes: None,
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
    /// What one worker's processes may use together.
    pub(super) fn cgroup_limits(&self) -> CgroupLimits {
        CgroupLimits { memory_bytes: self.memory_bytes, processes: self.processes }
    }

    /// What a zygote and the processes its packages start may use together.
    pub(super) fn zygote_cgroup_limits(&self) -> CgroupLimits {
        CgroupLimits {
            processes: self.processes.saturating_add(OWN_PROCESSES),
            ..self.cgroup_limits()
        }
    }
}

impl WorkerLimits {
    /// The same, lowered to the host's own limits: a process cannot be given more, and a worker that cannot be
    /// limited is not contained.
    pub(super) fn capped_by_host(self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.min(ceiling(Resource::As)),
            // One second is reserved to kill a program that ignores SIGXCPU.
            cpu_seconds: self.cpu_seconds.min(ceiling(Resource::Cpu).saturating_sub(1)),
            processes: self.processes.min(ceiling(Resource::Nproc)),
            open_files: self.open_files.min(ceiling(Resource::Nofile)),
            file_bytes: self.file_bytes.min(ceiling(Resource::Fsize)),
            ..self
        }
    }

    /// Hard limits, set before the interpreter starts; they cannot be raised again. In its own namespaces
    /// processes are counted separately, so a package that starts processes without end, before any worker is
    /// sealed, reaches a limit too.
    pub(super) fn hard_limits(&self, isolated: bool) -> Vec<(Resource, Rlimit)> {
        let of_zygote = isolated.then(|| (Resource::Nproc, self.processes.saturating_mul(WORKERS)));
        [
            (Resource::Core, 0),
            (Resource::Memlock, 0),
            (Resource::Sigpending, SIGNALS),
            (Resource::Nofile, self.open_files),
            (Resource::Fsize, self.file_bytes),
            (Resource::As, self.address_space_bytes.unwrap_or(self.memory_bytes)),
        ]
        .into_iter()
        .chain(of_zygote)
        .map(|(resource, wanted)| (resource, hard_limit(resource, wanted)))
        .collect()
    }
}

/// The limit to set: at most the host's own, which cannot be raised.
pub(super) fn hard_limit(resource: Resource, wanted: u64) -> Rlimit {
    let limit = Some(wanted.min(ceiling(resource)));
    Rlimit { current: limit, maximum: limit }
}

/// The highest value that can be set.
pub(super) fn ceiling(resource: Resource) -> u64 {
    rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_address_space_leaves_the_limit_of_memory() {
        let host = ceiling(Resource::As);
        for (address_space_bytes, expected) in [(None, 1 << 20), (Some(1 << 40), 1 << 40)] {
            let limits = WorkerLimits {
                memory_bytes: 1 << 20,
                address_space_bytes,
                ..WorkerLimits::default()
            };
            assert_eq!(limits.cgroup_limits().memory_bytes, 1 << 20);
            let mut limited = limits.hard_limits(false).into_iter();
            let (_, limit) = limited.find(|(resource, _)| *resource == Resource::As).unwrap();
            assert_eq!(limit.maximum, Some(host.min(expected)), "{address_space_bytes:?}");
        }
    }
}
