//! Runs a package manager: confined, in a constructed environment, within a time and a share of the disk,
//! its output capped, and never longer than whoever waits for it wants.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};

use super::inspection::{disk_use, find_trap};
use crate::guest::Cancellation;
use crate::worker::sandbox::{Birth, Errand, House, Sandbox, Trade};
use crate::worker::{self, InstallerLimits};

/// Output kept of one command: the last of it, where tools say what went wrong.
const OUTPUT_BYTES: usize = 64 * 1024;
/// Read at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// Reads before the clock is looked at again; enough to empty a pipe.
const READS_IN_A_ROW: usize = 8;
/// How often whoever waits looks whether the command ended or the caller gave up.
const GLANCE: Duration = Duration::from_millis(20);

/// How often it is looked how much of the disk it took.
const MEASURE: Duration = Duration::from_millis(250);

/// What every command of one build shares.
#[derive(Debug, Clone)]
pub(super) struct Workshop<'a> {
    /// Where commands run.
    pub(super) directory: &'a Path,
    /// All they see of the environment: nothing of the host's is inherited.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Held by every command that could outlive a killed host, as its standard input: it so keeps others
    /// out of the directory it still writes to.
    pub(super) lock: &'a File,
    /// Ends a command early.
    pub(super) cancellation: &'a Cancellation,
    /// What confines them.
    pub(super) sandbox: &'a Sandbox,
    /// What they see beside the system.
    pub(super) read: Vec<PathBuf>,
    /// Where they may write beside `home`.
    pub(super) write: Vec<PathBuf>,
    /// A private directory for whatever else they write.
    pub(super) home: &'a Path,
    pub(super) limits: InstallerLimits,
    /// What a command reads from its standard input, once: what it starts finds nothing there.
    pub(super) input: Option<Vec<u8>>,
}

/// How a command ended by itself.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its exit status; `None`: a signal ended it.
    pub(super) status: Option<i32>,
    /// The last of what it printed.
    pub(super) output: String,
}

/// Why a command did not end by itself.
#[derive(Debug)]
pub(super) enum CommandFault {
    /// It cannot be run.
    Unusable(io::Error),
    /// It was still running when its time was up.
    TimedOut {
        /// The time it had.
        limit: Duration,
        /// The last of what it printed.
        output: String,
    },
    /// It took more of the disk than it may.
    Oversized {
        /// What it may take.
        limit: u64,
    },
    /// It left something behind that must not be touched.
    Trap(PathBuf),
    /// The caller gave up.
    Cancelled,
}

impl Workshop<'_> {
    /// Runs a command to its end.
    pub(super) fn run<A: AsRef<OsStr>>(
        &self,
        trade: &Trade,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        limit: Duration,
    ) -> Result<Ended, CommandFault> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut read = self.read.clone();
        read.push(program.to_owned());
        let errand = Errand {
            trade,
            read: &read,
            write: &self.write,
            home: self.home,
            directory: self.directory,
            limits: self.limits,
        };
        let (house, birth) =
            self.sandbox.send(&mut command, &errand).map_err(CommandFault::Unusable)?;
        let input = self.input(&house).map_err(CommandFault::Unusable)?;
        let mut job = Job::start(command, birth, input).map_err(CommandFault::Unusable)?;
        let ended = job.finish(Instant::now() + limit, limit, self);
        drop(job); // nothing it started runs any more
        if !trade.is_hostile() {
            return ended;
        }
        let handed = || self.write.iter().map(AsRef::as_ref).chain([self.home]);
        house.take_back(handed()).map_err(CommandFault::Unusable)?;
        match self.write.iter().find_map(|top| find_trap(top, top, &self.read)) {
            Some(trap) => Err(CommandFault::Trap(trap)),
            None => ended,
        }
    }

    /// The same commands with more to see.
    pub(super) fn with(&self, more: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut changed = self.clone();
        changed.variables.extend(more);
        changed
    }

    fn input(&self, house: &House) -> io::Result<Stdio> {
        let Some(text) = &self.input else {
            let held = (!house.is_walled()).then(|| self.lock.try_clone()).transpose()?;
            return Ok(held.map_or_else(Stdio::null, Stdio::from));
        };
        // Fits into the pipe, so nobody waits for anybody.
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        File::from(write).write_all(text)?;
        rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::empty())?;
        house.hand_over(&read)?;
        Ok(read.into())
    }

    fn is_oversized(&self) -> bool {
        let taken = [self.directory, self.home].map(disk_use);
        taken.into_iter().fold(0, u64::saturating_add) > self.limits.disk_bytes
    }
}

/// A command under way. Dropping it ends it and everything it started.
struct Job {
    pid: Pid,
    /// How it ended, once it was waited for: its number may be another's from then on.
    status: Option<WaitStatus>,
    output: OwnedFd,
    kept: Vec<u8>,
}

impl Job {
    fn start(mut command: Command, birth: Birth, input: Stdio) -> io::Result<Self> {
        let (output, printed) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK)?;
        command.stdin(input).stdout(printed.try_clone()?).stderr(printed);
        let pid = worker::start_inside(command, birth)?;
        Ok(Self { pid, status: None, output, kept: Vec::new() })
    }

    fn finish(
        &mut self,
        deadline: Instant,
        limit: Duration,
        workshop: &Workshop<'_>,
    ) -> Result<Ended, CommandFault> {
        let mut measured = Instant::now();
        loop {
            if self.has_ended() {
                self.drain();
                self.end(); // what it started must not go on writing
                let status = self.status.and_then(WaitStatus::exit_status);
                return Ok(Ended { status, output: self.said() });
            }
            if workshop.cancellation.is_cancelled() {
                return Err(CommandFault::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(CommandFault::TimedOut { limit, output: self.said() });
            }
            if measured.elapsed() >= MEASURE {
                if workshop.is_oversized() {
                    return Err(CommandFault::Oversized { limit: workshop.limits.disk_bytes });
                }
                measured = Instant::now();
            }
            if readable(self.output.as_fd()) {
                self.drain();
            }
        }
    }

    /// Looks without waiting for it, so that its number, which names its group, stays its own.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let looked = rustix::process::waitid(WaitId::Pid(self.pid), options);
        !matches!(looked, Ok(None) | Err(rustix::io::Errno::INTR))
    }

    fn drain(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); CHUNK_BYTES];
        for _ in 0..READS_IN_A_ROW {
            let Ok((bytes, _)) = rustix::io::read(&self.output, &mut buffer) else { return };
            if bytes.is_empty() {
                return;
            }
            self.kept.extend_from_slice(bytes);
            let excess = self.kept.len().saturating_sub(OUTPUT_BYTES);
            self.kept.drain(..excess);
        }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.kept).trim().to_owned()
    }

    /// Ends it, its process group and, where it has one, its process namespace.
    fn end(&mut self) {
        if self.status.is_some() {
            return;
        }
        // ESRCH: nobody is left.
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        let waited = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
        self.status = waited.ok().flatten().map(|(_, status)| status);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
    }
}

fn readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let ready = poll(&mut polled, Timespec::try_from(GLANCE).ok().as_ref());
    let [polled] = polled;
    if polled.revents().contains(PollFlags::HUP) && !polled.revents().contains(PollFlags::IN) {
        std::thread::sleep(GLANCE); // it closed its output and lives on
    }
    matches!(ready, Ok(1..))
}

/// Where a program lies on a search path.
pub(super) fn on_path(path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| is_executable(file))
}

/// Whether it is a file that may be run.
pub(super) fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        script: &str,
        limit: Duration,
        cancellation: &Cancellation,
    ) -> Result<Ended, CommandFault> {
        run_as(&Trade::Build(Vec::new()), script, limit, cancellation)
    }

    fn run_as(
        trade: &Trade,
        script: &str,
        limit: Duration,
        cancellation: &Cancellation,
    ) -> Result<Ended, CommandFault> {
        let directory = tempfile::tempdir().unwrap();
        let lock = tempfile::tempfile().unwrap();
        let variables = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let home = tempfile::tempdir().unwrap();
        let options = crate::worker::WorkerOptions::new("/usr/bin:/bin", std::env::temp_dir());
        let workshop = Workshop {
            directory: directory.path(),
            variables,
            lock: &lock,
            cancellation,
            sandbox: &Sandbox::new(&options),
            read: Vec::new(),
            write: vec![directory.path().to_owned()],
            home: home.path(),
            limits: InstallerLimits { memory_bytes: 1 << 30, processes: 64, disk_bytes: 8 << 20 },
            input: None,
        };
        workshop.run(trade, Path::new("/bin/sh"), ["-c", script], limit)
    }

    const AMPLE: Duration = Duration::from_secs(20);

    #[test]
    fn a_command_sees_only_what_it_is_given_and_its_end_is_told() {
        let ended = run("env; echo err >&2; exit 7", AMPLE, &Cancellation::default()).unwrap();
        assert_eq!(ended.status, Some(7));
        let lines: Vec<&str> =
            ended.output.lines().filter(|line| !line.starts_with("_=")).collect();
        assert!(lines.contains(&"PATH=/usr/bin:/bin") && lines.contains(&"err"), "{lines:?}");
        assert!(!ended.output.contains("HOME="), "{lines:?}");
    }

    #[test]
    fn a_flood_is_cut_and_its_end_kept() {
        let ended =
            run("yes | head -c 1000000; echo last", AMPLE, &Cancellation::default()).unwrap();
        assert!(ended.output.len() <= OUTPUT_BYTES && ended.output.ends_with("last"));
    }

    #[test]
    fn a_flood_without_end_is_ended_in_time() {
        let limit = Duration::from_millis(500);
        let begun = Instant::now();
        let ended = run("yes & yes & yes", limit, &Cancellation::default());
        assert!(matches!(ended, Err(CommandFault::TimedOut { .. })), "{ended:?}");
        assert!(begun.elapsed() < AMPLE);
    }

    #[test]
    fn a_hang_is_ended_with_everything_it_started() {
        let begun = Instant::now();
        let sleep = format!("300.{}", std::process::id());
        let script = format!(
            "sleep {sleep} & (sleep {sleep} &); echo on; exec >/dev/null 2>&1; sleep {sleep}"
        );
        let ended = run(&script, Duration::from_millis(500), &Cancellation::default());
        let Err(CommandFault::TimedOut { output, .. }) = ended else { panic!("{ended:?}") };
        assert_eq!(output, "on");
        assert!(begun.elapsed() < AMPLE);
        assert_eq!(sleepers(&sleep), 0, "all are gone when their end is told");
    }

    #[test]
    fn a_daemon_does_not_outlive_its_command() {
        let sleep = format!("301.{}", std::process::id());
        let script = format!("(setsid sleep {sleep} & sleep {sleep} &) >/dev/null 2>&1; exit 0");
        assert_eq!(run(&script, AMPLE, &Cancellation::default()).unwrap().status, Some(0));
        assert_eq!(sleepers(&sleep), 0);
    }

    /// Living processes with this argument.
    fn sleepers(argument: &str) -> usize {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
        let wanted = [b"sleep\0", argument.as_bytes()].concat();
        lines.filter(|line| line.starts_with(&wanted)).count()
    }

    /// Where there are control groups: elsewhere each has its memory alone.
    #[test]
    fn memory_is_limited_for_all_it_starts() {
        let hold =
            "x = b'x' * (200 << 20); open('held', 'a').write('.'); __import__('time').sleep(600)";
        let script = format!(
            "for at in 1 2 3 4 5 6; do python3 -I -S -c \"{hold}\" & done; \
             while [ $(cat held 2>/dev/null | wc -c) -lt 6 ]; do \
             [ $(jobs -r | wc -l) -lt 6 ] && exit 3; sleep 0.05; done"
        );
        let options = crate::worker::WorkerOptions::new("/usr/bin:/bin", std::env::temp_dir());
        let workers = crate::worker::Workers::start(&options).unwrap();
        let are_there = workers.containment().layers.has(crate::worker::Layer::Cgroups);
        let ended = run(&script, AMPLE, &Cancellation::default()).unwrap();
        assert_eq!(ended.status, Some(if are_there { 3 } else { 0 }), "{}", ended.output);
    }

    #[test]
    fn what_fetches_can_start_nothing() {
        let cancellation = Cancellation::default();
        let ended = run_as(&Trade::Fetch, "/bin/true; echo on", AMPLE, &cancellation).unwrap();
        assert_ne!(ended.status, Some(0), "{}", ended.output);
        assert!(!ended.output.contains("on"), "{}", ended.output);
    }

    #[test]
    fn a_disk_is_not_filled() {
        for script in [
            "dd if=/dev/zero of=one bs=1M count=64",
            "for at in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=$at bs=1M count=4; done; sleep 300",
        ] {
            let ended = run(script, AMPLE, &Cancellation::default());
            match ended {
                Err(CommandFault::Oversized { limit }) => assert_eq!(limit, 8 << 20),
                Ok(ended) => assert_ne!(ended.status, Some(0), "{}", ended.output),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_would_mislead_the_host_is_found() {
        for script in [
            "ln -s /etc/shadow uv.lock",
            "mkdir a; ln -s ../../../../root a/b",
            "ln -s nowhere .built",
        ] {
            let ended = run(script, AMPLE, &Cancellation::default());
            assert!(matches!(ended, Err(CommandFault::Trap(_))), "{script}: {ended:?}");
        }
        let harmless = "mkdir a; ln -s a b; ln -s /usr/bin/env c; touch d; ln d e";
        assert_eq!(run(harmless, AMPLE, &Cancellation::default()).unwrap().status, Some(0));
    }

    #[test]
    fn a_caller_who_gives_up_is_not_kept_waiting() {
        let cancellation = Cancellation::default();
        cancellation.cancel();
        assert!(matches!(run("sleep 300", AMPLE, &cancellation), Err(CommandFault::Cancelled)));
    }
}
