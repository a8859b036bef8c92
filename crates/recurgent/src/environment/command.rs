//! Runs a package manager: in a constructed environment, in its own process group, within a time, its
//! output capped, and never longer than whoever waits for it wants.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::guest::Cancellation;
use crate::worker::sandbox;

/// Output kept of one command: the last of it, where tools say what went wrong.
const OUTPUT_BYTES: usize = 64 * 1024;
/// Read at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// How often whoever waits looks whether the command ended or the caller gave up.
const GLANCE: Duration = Duration::from_millis(20);

/// What every command of one build shares.
#[derive(Debug)]
pub(super) struct Workshop<'a> {
    /// Where commands run.
    pub(super) directory: &'a Path,
    /// All they see of the environment: nothing of the host's is inherited.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// Held by every command as its standard input. An installer that outlives a killed host so keeps
    /// others out of the directory it still writes to.
    pub(super) lock: &'a File,
    /// Ends a command early.
    pub(super) cancellation: &'a Cancellation,
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
    /// The caller gave up.
    Cancelled,
}

impl Workshop<'_> {
    /// Runs a command to its end.
    pub(super) fn run<A: AsRef<OsStr>>(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        limit: Duration,
    ) -> Result<Ended, CommandFault> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.directory)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .process_group(0);
        sandbox::die_with_host(&mut command);
        let mut job = Job::start(command, self.lock).map_err(CommandFault::Unusable)?;
        job.finish(Instant::now() + limit, limit, self.cancellation)
    }

    /// The same commands with more to see.
    pub(super) fn with(&self, more: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut variables = self.variables.clone();
        variables.extend(more);
        Self { variables, ..*self }
    }
}

/// A command under way. Dropping it ends its whole process group.
struct Job {
    child: Child,
    output: OwnedFd,
    kept: Vec<u8>,
}

impl Job {
    fn start(mut command: Command, lock: &File) -> io::Result<Self> {
        let (output, printed) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK)?;
        let child = command
            .stdin(Stdio::from(lock.try_clone()?))
            .stdout(printed.try_clone()?)
            .stderr(printed)
            .spawn()?;
        Ok(Self { child, output, kept: Vec::new() })
    }

    fn finish(
        &mut self,
        deadline: Instant,
        limit: Duration,
        cancellation: &Cancellation,
    ) -> Result<Ended, CommandFault> {
        loop {
            if self.has_ended() {
                self.drain();
                self.end_group(); // what it started must not go on writing
                let status = self.child.wait().map_err(CommandFault::Unusable)?;
                return Ok(Ended { status: status.code(), output: self.said() });
            }
            if cancellation.is_cancelled() {
                return Err(CommandFault::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(CommandFault::TimedOut { limit, output: self.said() });
            }
            if readable(self.output.as_fd()) {
                self.drain();
            }
        }
    }

    /// Looks without waiting for it, so that its number, which names its group, stays its own.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let looked = self.pid().map(|pid| rustix::process::waitid(WaitId::Pid(pid), options));
        !matches!(looked, Some(Ok(None) | Err(rustix::io::Errno::INTR)))
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn drain(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); CHUNK_BYTES];
        while let Ok((bytes, _)) = rustix::io::read(&self.output, &mut buffer) {
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

    fn end_group(&self) {
        if let Some(pid) = self.pid() {
            // ESRCH: nobody is left.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return; // its number may be another's by now
        }
        self.end_group();
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        let directory = tempfile::tempdir().unwrap();
        let lock = tempfile::tempfile().unwrap();
        let variables = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let workshop =
            Workshop { directory: directory.path(), variables, lock: &lock, cancellation };
        workshop.run(Path::new("/bin/sh"), ["-c", script], limit)
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
    fn a_hang_is_ended_with_everything_it_started() {
        let begun = Instant::now();
        let script = "sleep 300 & echo $!; exec >/dev/null 2>&1; sleep 300";
        let ended = run(script, Duration::from_millis(300), &Cancellation::default());
        let Err(CommandFault::TimedOut { output, .. }) = ended else { panic!("{ended:?}") };
        assert!(begun.elapsed() < AMPLE);
        let grandchild = output.trim();
        let gone = || {
            std::fs::read_to_string(format!("/proc/{grandchild}/stat"))
                .map_or(true, |stat| stat.contains(") Z "))
        };
        while !gone() {
            assert!(begun.elapsed() < AMPLE, "{grandchild} lives on");
            std::thread::sleep(GLANCE);
        }
    }

    #[test]
    fn a_caller_who_gives_up_is_not_kept_waiting() {
        let cancellation = Cancellation::default();
        cancellation.cancel();
        assert!(matches!(run("sleep 300", AMPLE, &cancellation), Err(CommandFault::Cancelled)));
    }
}
