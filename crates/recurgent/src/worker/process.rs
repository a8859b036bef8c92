//! A worker's process, seen from the host, which is not its parent.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use lifecycle::outcome::Limit;
use rustix::process::{Pid, Signal};

use super::sandbox::ProcessorClock;
use super::sandbox::WorkerResources;

/// Longest a worker that closed its channel may take to end.
const LAST_BREATH: Duration = Duration::from_millis(500);
/// Longest the kernel is waited for to end a killed worker; a busy machine takes its time.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// The status a worker exits with that has no memory left to say so.
const OUT_OF_MEMORY: i32 = 112;

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Killed by a signal.
    Signal(i32),
    /// Exited with a status.
    Exit(i32),
    /// It was not told.
    Unknown,
}

impl Ending {
    /// The limit it ran into, if the kernel ended it for that; `overspent`: it had used all its time.
    pub(super) fn limit(self, overspent: bool) -> Option<Limit> {
        let is = |signal: Signal| self == Self::Signal(signal.as_raw());
        match self {
            _ if is(Signal::XCPU) || (is(Signal::KILL) && overspent) => Some(Limit::Cpu),
            _ if is(Signal::XFSZ) => Some(Limit::FileSize),
            // There was no room for a page of a file it had mapped.
            _ if is(Signal::BUS) => Some(Limit::Scratch),
            Self::Exit(OUT_OF_MEMORY) => Some(Limit::Memory),
            Self::Signal(_) | Self::Exit(_) | Self::Unknown => None,
        }
    }

    /// As a zygote tells it.
    pub(super) fn reported(signal: Option<i32>, status: Option<i32>) -> Self {
        match (signal, status) {
            (Some(signal), _) => Self::Signal(signal),
            (None, Some(status)) => Self::Exit(status),
            (None, None) => Self::Unknown,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "it was killed by {name}"),
                None => write!(f, "it was killed by signal {signal}"),
            },
            Self::Exit(status) => write!(f, "it exited with status {status}"),
            Self::Unknown => f.write_str("it ended"),
        }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    [
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::ILL, "SIGILL"),
        (Signal::FPE, "SIGFPE"),
        (Signal::TERM, "SIGTERM"),
        (Signal::INT, "SIGINT"),
        (Signal::HUP, "SIGHUP"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
    ]
    .into_iter()
    .find_map(|(known, name)| (known.as_raw() == signal).then_some(name))
}

/// Which worker: a process number alone may be used again under a zygote booted later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerId {
    /// Which zygote forked it.
    pub(super) zygote: u64,
    /// Its process number, as its zygote has it.
    pub(super) pid: u32,
}

/// A worker's process and process group.
#[derive(Debug)]
pub(super) struct Process {
    id: WorkerId,
    /// Its number, as the host has it.
    pid: Pid,
    /// Processor time it may use.
    cpu_limit: Duration,
    /// Its files and groups, where nothing else removes them.
    worker_resources: WorkerResources,
    descriptor: OwnedFd,
    clock: Option<ProcessorClock>,
}

/// A process that was killed and is on its way out.
#[derive(Debug)]
pub(super) struct Passing {
    /// Which it is.
    pub(super) id: WorkerId,
    /// Given up once it has ended, when there is nothing left in it to end.
    _berth: WorkerResources,
    descriptor: Option<OwnedFd>,
}

impl Passing {
    /// Whether whoever waits for it need not wait long. So it is said of one that cannot be watched.
    pub(super) fn is_over(&self) -> bool {
        let ended = |it: &OwnedFd| super::zygote::readable(it.as_fd(), Duration::ZERO);
        self.descriptor.as_ref().is_none_or(ended)
    }
}

impl Process {
    /// Opens a process its zygote has just forked. The zygote waits for it only when told to, so the
    /// number cannot have passed to another.
    pub(super) fn open(
        id: WorkerId,
        pid: Pid,
        mut worker_resources: WorkerResources,
        cpu_seconds: u64,
    ) -> io::Result<Self> {
        if pid.is_init() {
            return Err(io::Error::other("no process number"));
        }
        worker_resources.occupy(pid)?;
        Ok(Self {
            id,
            pid,
            cpu_limit: Duration::from_secs(cpu_seconds),
            worker_resources,
            descriptor: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?,
            clock: ProcessorClock::of(pid),
        })
    }

    /// Its number, as the host has it.
    pub(super) fn pid(&self) -> u32 {
        u32::try_from(self.pid.as_raw_nonzero().get()).unwrap_or_default()
    }

    /// Whether it has used up its processor time; one that has ended may be asked until it is waited for.
    pub(super) fn is_overspent(&self) -> bool {
        self.cpu_time().is_some_and(|used| used >= self.cpu_limit)
    }

    /// Whether it has the better part of its processor time left: a kept worker's calls share it.
    pub(super) fn is_thrifty(&self) -> bool {
        self.cpu_time().is_none_or(|used| used < self.cpu_limit / 2)
    }

    fn cpu_time(&self) -> Option<Duration> {
        self.clock.as_ref()?.read()
    }

    /// To be watched by whoever has it waited for.
    pub(super) fn passing(&mut self) -> Passing {
        Passing {
            id: self.id,
            _berth: std::mem::take(&mut self.worker_resources),
            descriptor: self.descriptor.try_clone().ok(),
        }
    }

    /// Which it is.
    pub(super) fn id(&self) -> WorkerId {
        self.id
    }

    /// Ends it and everything in its process group, at once.
    pub(super) fn kill(&self) {
        if self.is_ours() {
            // The worker leads a session, so it cannot have left its group. ESRCH: none is left.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Whether the number is still this process's. Not so when its zygote died and someone else waited
    /// for it; then the number, and a process group of that number, may be a stranger's.
    fn is_ours(&self) -> bool {
        rustix::process::pidfd_send_signal(&self.descriptor, Signal::KILL).is_ok()
    }

    /// Waits until the kernel has ended it, once killed.
    pub(super) fn await_end(&self) {
        let _ = super::zygote::readable(self.descriptor.as_fd(), KILL_GRACE);
    }

    /// Whether it ends by itself, now that its channel has closed.
    pub(super) fn ends_by_itself(&self) -> bool {
        super::zygote::readable(self.descriptor.as_fd(), LAST_BREATH)
    }
}

/// Workers, and others that lead a process group, in whose group somebody else is too.
pub(super) fn accompanied() -> BTreeSet<u32> {
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let led_by = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?; // state, parent, group
        let leader: u32 = fields.split_whitespace().nth(2)?.parse().ok()?;
        (leader != pid).then_some(leader)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(number).filter_map(led_by).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_killed_process_is_watched_to_its_end_and_its_time_counted_until_it_is_waited_for() {
        let mut spinning = Command::new("sh");
        spinning.args(["-c", "while :; do :; done"]).process_group(0);
        let mut child = spinning.spawn().unwrap();
        let id = WorkerId { zygote: 0, pid: child.id() };
        let mut process =
            Process::open(id, Pid::from_child(&child), WorkerResources::default(), 0).unwrap();
        while process.cpu_time() < Some(Duration::from_millis(1)) {
            std::thread::yield_now();
        }
        assert!(process.is_overspent());
        let passing = process.passing();
        assert!(!passing.is_over());
        process.kill();
        process.await_end();
        assert!(passing.is_over() && process.is_overspent());
        child.wait().unwrap();
        assert!(!process.is_overspent());
    }
}
