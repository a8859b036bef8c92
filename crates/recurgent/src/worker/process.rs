//! A worker's process, as the host sees it. The host is not its parent.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use lifecycle::outcome::Limit;
use lifecycle::provenance::ObservedSource;
use rustix::process::{Pid, Signal};

use super::sandbox::WorkerResources;
use super::sandbox::{ProcessorClock, group_leader};
use super::waiting::{ServiceWait, service_wait};

/// Longest time the kernel may take to end a worker that is exiting, on a busy machine.
const EXIT_GRACE: Duration = Duration::from_secs(10);
/// How long a worker whose state cannot be read may take to end after it closed its channel.
const UNKNOWN_EXIT_GRACE: Duration = Duration::from_millis(500);
/// Longest time a thread that was joined may take to disappear: it reports its end before the kernel removes it.
const THREAD_GRACE: Duration = Duration::from_millis(10);
/// Interval at which threads are counted meanwhile.
const THREAD_PERIOD: Duration = Duration::from_micros(200);
/// Set in the flags of a process that is exiting (`PF_EXITING`; field 9 of `/proc/PID/stat`).
const EXITING: u64 = 0x4;
/// Time between `SIGTERM` and `SIGKILL`: what a program does then comes on top of its time limit.
const TERM_GRACE: Duration = Duration::from_millis(10);
/// Longest time the kernel may take to end a killed worker on a busy machine.
const KILL_GRACE: Duration = Duration::from_secs(30);

/// The exit status of a worker that has too little memory left to report so.
const OUT_OF_MEMORY: i32 = 112;

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerExit {
    /// Killed by a signal.
    Signal(i32),
    /// Exited with a status.
    Exit(i32),
    /// Not known.
    Unknown,
}

impl WorkerExit {
    /// The limit it reached, if the kernel ended it for that. `cpu_time_used_up`: it had used all its
    /// processor time.
    pub(super) fn limit(self, cpu_time_used_up: bool) -> Option<Limit> {
        let is = |signal: Signal| self == Self::Signal(signal.as_raw());
        match self {
            _ if is(Signal::XCPU) || (is(Signal::KILL) && cpu_time_used_up) => Some(Limit::Cpu),
            _ if is(Signal::XFSZ) => Some(Limit::FileSize),
            // Scratch space had no room for a page of a mapped file.
            _ if is(Signal::BUS) => Some(Limit::Scratch),
            Self::Exit(OUT_OF_MEMORY) => Some(Limit::Memory),
            Self::Signal(_) | Self::Exit(_) | Self::Unknown => None,
        }
    }

    /// The form a zygote reports.
    pub(super) fn reported(signal: Option<i32>, status: Option<i32>) -> Self {
        match (signal, status) {
            (Some(signal), _) => Self::Signal(signal),
            (None, Some(status)) => Self::Exit(status),
            (None, None) => Self::Unknown,
        }
    }
}

impl fmt::Display for WorkerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "it was killed by {}", signal_label(*signal)),
            Self::Exit(status) => write!(f, "it exited with status {status}"),
            Self::Unknown => f.write_str("it ended"),
        }
    }
}

/// The name of a signal, or its number.
pub(super) fn signal_label(signal: i32) -> String {
    signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

fn signal_name(signal: i32) -> Option<&'static str> {
    [
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::ILL, "SIGILL"),
        (Signal::FPE, "SIGFPE"),
        (Signal::TRAP, "SIGTRAP"),
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

/// Identifies a worker: its process number alone may be used again under a later zygote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerId {
    /// Which zygote forked it.
    pub(super) zygote: u64,
    /// Its process number in its zygote's namespace.
    pub(super) pid: u32,
}

/// A worker's process and process group.
#[derive(Debug)]
pub(super) struct Process {
    id: WorkerId,
    /// Its process number in the host's namespace.
    pid: Pid,
    /// Processor time it may use in all.
    cpu_limit: Duration,
    /// Its files and control groups.
    worker_resources: WorkerResources,
    descriptor: OwnedFd,
    clock: Option<ProcessorClock>,
    /// Its threads before its first program.
    first_threads: Option<u64>,
}

/// A process that was killed and has not been waited for yet.
#[derive(Debug)]
pub(super) struct KilledWorker {
    /// Its identity.
    pub(super) id: WorkerId,
    /// Removed after it has ended.
    _resources: WorkerResources,
    descriptor: Option<OwnedFd>,
}

impl KilledWorker {
    /// Whether waiting for it will not block. Also true of a process that cannot be watched.
    pub(super) fn has_ended(&self) -> bool {
        let ended = |it: &OwnedFd| super::zygote::readable(it.as_fd(), Duration::ZERO);
        self.descriptor.as_ref().is_none_or(ended)
    }
}

impl Process {
    /// Opens a process that its zygote has just forked. The zygote waits for it only on request, so its
    /// number cannot belong to another process.
    pub(super) fn open(
        id: WorkerId,
        pid: Pid,
        mut worker_resources: WorkerResources,
        cpu_seconds: u64,
    ) -> io::Result<Self> {
        if pid.is_init() {
            return Err(io::Error::other("the zygote sent no process number"));
        }
        worker_resources.assign(pid)?;
        Ok(Self {
            id,
            pid,
            cpu_limit: Duration::from_secs(cpu_seconds),
            worker_resources,
            descriptor: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?,
            clock: ProcessorClock::of(pid),
            first_threads: thread_count(pid),
        })
    }

    /// Its process number in the host's namespace.
    pub(super) fn pid(&self) -> u32 {
        u32::try_from(self.pid.as_raw_nonzero().get()).unwrap_or_default()
    }

    /// Whether it has used up its processor time. Works for an ended process until it is waited for.
    pub(super) fn has_used_up_cpu(&self) -> bool {
        self.cpu_time().is_some_and(|used| used >= self.cpu_limit)
    }

    /// Whether at least half of its processor time is left: the calls of a kept worker share it.
    pub(super) fn has_cpu_left(&self) -> bool {
        self.cpu_time().is_none_or(|used| used < self.cpu_limit / 2)
    }

    /// Processor time it has used.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        self.clock.as_ref()?.read()
    }

    /// Whether it has more threads than before its first program. Threads that are just ending are waited for.
    pub(super) fn has_more_threads(&self) -> bool {
        let deadline = Instant::now() + THREAD_GRACE;
        while self.counts_more_threads() {
            if Instant::now() >= deadline {
                return true;
            }
            std::thread::sleep(THREAD_PERIOD);
        }
        false
    }

    /// The same, without waiting.
    pub(super) fn counts_more_threads(&self) -> bool {
        self.first_threads.zip(thread_count(self.pid)).is_some_and(|(first, now)| now > first)
    }

    /// Its threads; `None`: it ended, or the kernel does not say.
    pub(super) fn threads(&self) -> Option<u64> {
        thread_count(self.pid)
    }

    /// Turns it into a handle that the reaper watches.
    pub(super) fn take_killed(&mut self) -> KilledWorker {
        KilledWorker {
            id: self.id,
            _resources: std::mem::take(&mut self.worker_resources),
            descriptor: self.descriptor.try_clone().ok(),
        }
    }

    /// How it waits for a service that has sent nothing for `patience`, if it does.
    pub(super) fn service_wait(&self, patience: Duration) -> Option<ServiceWait> {
        service_wait(&self.descriptor, self.pid, patience)
    }

    /// The connections made for it since this was last called.
    pub(super) fn take_connections(&self) -> Vec<ObservedSource> {
        self.worker_resources.take_connections(self.pid)
    }

    /// Its identity.
    pub(super) fn id(&self) -> WorkerId {
        self.id
    }

    /// Asks it and everything in its process group to end, and gives them a moment for it.
    pub(super) fn terminate(&self) {
        if self.ask_to_end() {
            let _ = self.ends_within(TERM_GRACE);
        }
    }

    /// Asks it and everything in its process group to end; returns whether its number still belongs to it.
    pub(super) fn ask_to_end(&self) -> bool {
        let is_there = rustix::process::pidfd_send_signal(&self.descriptor, Signal::TERM).is_ok();
        if is_there {
            let _ = rustix::process::kill_process_group(self.pid, Signal::TERM);
        }
        is_there
    }

    /// Ends it and everything in its process group, at once.
    pub(super) fn kill(&self) {
        if self.kill_leader() {
            // The worker leads a session, so it cannot have left its group. ESRCH: no process is left.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Whether its program left files in its scratch space, which an idle worker would keep.
    pub(super) fn has_files(&self) -> bool {
        self.worker_resources.has_files(self.pid)
    }

    /// Kills the process and returns whether its number still belongs to it. After its zygote died, another
    /// process waited for it, and its number and process group may have been reused.
    fn kill_leader(&self) -> bool {
        rustix::process::pidfd_send_signal(&self.descriptor, Signal::KILL).is_ok()
    }

    /// Waits until the kernel has ended it, after it was killed.
    pub(super) fn await_end(&self) {
        let _ = self.ends_within(KILL_GRACE);
    }

    /// Whether it ends within this time.
    pub(super) fn ends_within(&self, grace: Duration) -> bool {
        super::zygote::readable(self.descriptor.as_fd(), grace)
    }

    /// Whether it ends by itself, now that its channel is closed. One that is not exiting closed the channel itself.
    pub(super) fn ends_by_itself(&self) -> bool {
        let grace = match is_exiting(self.pid) {
            Some(true) => EXIT_GRACE,
            Some(false) => Duration::ZERO,
            None => UNKNOWN_EXIT_GRACE,
        };
        self.ends_within(grace)
    }
}

/// The number of threads of a process: the kernel counts a link of the directory for each, beside its own two.
fn thread_count(pid: Pid) -> Option<u64> {
    let tasks = std::fs::metadata(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    tasks.nlink().checked_sub(2)
}

/// Whether the kernel is ending a process; `None`: its state cannot be read.
fn is_exiting(pid: Pid) -> Option<bool> {
    Some(stat_field(pid, 9)?.parse::<u64>().ok()? & EXITING != 0)
}

/// Whether a process was stopped by a signal or a tracer.
pub(super) fn is_stopped(pid: Pid) -> bool {
    stat_field(pid, 3).is_some_and(|state| state == "T" || state == "t")
}

/// A field of `/proc/PID/stat` after the name, by its number in the manual.
fn stat_field(pid: Pid, number: usize) -> Option<String> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name may contain anything; the fields follow its last bracket.
    let fields = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 1..)?;
    let mut fields = std::str::from_utf8(fields).ok()?.split_whitespace();
    fields.nth(number.checked_sub(3)?).map(str::to_owned)
}

/// Leaders of process groups that contain at least one other process.
pub(super) fn leaders_with_members() -> BTreeSet<u32> {
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    // The kernel is asked for each number: a process chooses its own name, and so the text of its files.
    let led_by = |pid: u32| {
        let leader = u32::try_from(group_leader(pid).ok()?).ok()?;
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
        assert!(process.has_used_up_cpu());
        let take_killed = process.take_killed();
        assert!(!take_killed.has_ended());
        process.kill();
        process.await_end();
        assert!(take_killed.has_ended() && process.has_used_up_cpu());
        child.wait().unwrap();
        assert!(!process.has_used_up_cpu());
    }
}
