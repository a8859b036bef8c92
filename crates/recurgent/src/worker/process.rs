//! A worker's process, seen from the host, which is not its parent.

use std::fmt;
use std::io;
use std::time::Duration;

use lifecycle::outcome::Limit;
use rustix::process::{Pid, Signal};

use super::sandbox::Berth;

/// Longest a worker that closed its channel may take to end.
const LAST_BREATH: Duration = Duration::from_millis(500);
/// Longest the kernel is waited for to end a killed worker; a busy machine takes its time.
#[cfg(target_os = "linux")]
const KILL_GRACE: Duration = Duration::from_secs(5);

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
            _ if is(Signal::XFSZ) => Some(Limit::Scratch),
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
    _berth: Berth,
    #[cfg(target_os = "linux")]
    descriptor: std::os::fd::OwnedFd,
}

impl Process {
    /// Opens a process its zygote has just forked. The zygote waits for it only when told to, so the
    /// number cannot have passed to another.
    pub(super) fn open(
        id: WorkerId,
        pid: Pid,
        mut berth: Berth,
        cpu_seconds: u64,
    ) -> io::Result<Self> {
        if pid.is_init() {
            return Err(io::Error::other("no process number"));
        }
        berth.occupy(pid)?;
        Ok(Self {
            id,
            pid,
            cpu_limit: Duration::from_secs(cpu_seconds),
            _berth: berth,
            #[cfg(target_os = "linux")]
            descriptor: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?,
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

    /// What the kernel has counted, in ticks of a hundredth of a second.
    fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let mut times = fields.split_whitespace().skip(11);
        let mut next = || times.next()?.parse::<u64>().ok();
        Some(Duration::from_millis(10 * (next()? + next()?)))
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
    #[cfg(target_os = "linux")]
    fn is_ours(&self) -> bool {
        rustix::process::pidfd_send_signal(&self.descriptor, Signal::KILL).is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn is_ours(&self) -> bool {
        true
    }

    /// Waits until the kernel has ended it, once killed.
    #[cfg(target_os = "linux")]
    pub(super) fn await_end(&self) {
        use std::os::fd::AsFd;
        let _ = super::zygote::readable(self.descriptor.as_fd(), KILL_GRACE);
    }

    /// It cannot be watched.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn await_end(&self) {}

    /// Whether it ends by itself, now that its channel has closed.
    #[cfg(target_os = "linux")]
    pub(super) fn ends_by_itself(&self) -> bool {
        use std::os::fd::AsFd;
        super::zygote::readable(self.descriptor.as_fd(), LAST_BREATH)
    }

    /// Taken for granted where it cannot be watched.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn ends_by_itself(&self) -> bool {
        std::thread::sleep(LAST_BREATH);
        true
    }
}
