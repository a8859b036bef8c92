//! A command under way: watched until it ends, and ended with everything it started.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};

use super::{CommandEnv, Ended, InstallerFault};
use crate::worker;
use crate::worker::sandbox::SpawnHandshake;

/// Output kept of one command: the last of it, where tools say what went wrong.
pub(super) const OUTPUT_BYTES: usize = 64 * 1024;
/// Read at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// Reads before the clock is looked at again; enough to empty a pipe.
const READS_IN_A_ROW: usize = 8;
/// How often a wait checks whether the command ended or the caller gave up.
const GLANCE: Duration = Duration::from_millis(20);
/// How often it is looked how much of the disk it took.
const MEASURE: Duration = Duration::from_millis(250);

/// A command under way. Dropping it ends it and everything it started.
pub(super) struct Job {
    pid: Pid,
    /// How it ended, once it was waited for: its number may be another's from then on.
    status: Option<WaitStatus>,
    output: OwnedFd,
    kept: Vec<u8>,
}

impl Job {
    pub(super) fn start(
        mut command: Command,
        spawn_handshake: SpawnHandshake,
        input: Stdio,
    ) -> io::Result<Self> {
        let (output, printed) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK)?;
        command.stdin(input).stdout(printed.try_clone()?).stderr(printed);
        let pid = worker::start_inside(command, spawn_handshake)?;
        Ok(Self { pid, status: None, output, kept: Vec::new() })
    }

    /// Waits for its end, or ends it.
    pub(super) fn finish(
        &mut self,
        deadline: Instant,
        limit: Duration,
        command_env: &CommandEnv<'_>,
    ) -> Result<Ended, InstallerFault> {
        let mut measured = Instant::now();
        loop {
            if self.has_ended() {
                self.drain();
                self.end(); // what it started must not go on writing
                let status = self.status.and_then(WaitStatus::exit_status);
                return Ok(Ended { status, output: self.said() });
            }
            if command_env.cancellation.is_cancelled() {
                return Err(InstallerFault::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(InstallerFault::TimedOut { limit, output: self.said() });
            }
            if measured.elapsed() >= MEASURE {
                if command_env.is_oversized() {
                    return Err(InstallerFault::Oversized { limit: command_env.limits.disk_bytes });
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
        // ESRCH: no process is left.
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
