//! A running command: watched until it ends, and ended with everything it started.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};

use super::{CommandEnv, FinishedCommand, InstallerFault};
use crate::worker;
use crate::worker::sandbox::SpawnHandshake;

/// Output kept of one command: half of it from the beginning, half from the end. Either may state what failed.
pub(super) const OUTPUT_BYTES: usize = 64 * 1024;
/// Time between `SIGTERM` and `SIGKILL`, in which a package manager may clean up.
const TERM_GRACE: Duration = Duration::from_millis(500);
/// Bytes read at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// Reads between two checks of the deadline; enough to empty a pipe.
const READS_IN_A_ROW: usize = 8;
/// Interval at which the command's end and cancellation are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which its disk use is measured.
const MEASURE: Duration = Duration::from_millis(250);

/// A running command. Dropping it ends it and everything it started.
pub(super) struct Job {
    pid: Pid,
    /// How it ended, after it was waited for; its process number may be reused from then on.
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

    /// Waits for its end; returns early on cancellation or a limit.
    pub(super) fn finish(
        &mut self,
        deadline: Instant,
        limit: Duration,
        command_env: &CommandEnv<'_>,
    ) -> Result<FinishedCommand, InstallerFault> {
        let mut measured = Instant::now();
        loop {
            if self.has_ended() {
                self.drain();
                self.end(); // what it started must not write any more
                let status = self.status.and_then(WaitStatus::exit_status);
                return Ok(FinishedCommand { status, output: self.output_text() });
            }
            if command_env.cancellation.is_cancelled() {
                self.terminate();
                return Err(InstallerFault::Cancelled);
            }
            if Instant::now() >= deadline {
                self.terminate();
                return Err(InstallerFault::TimedOut { limit, output: self.output_text() });
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

    /// Checks without reaping it, so that its process number, which names its group, is not reused.
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
            if excess > 0 {
                self.kept.drain(OUTPUT_BYTES / 2..OUTPUT_BYTES / 2 + excess);
            }
        }
    }

    fn output_text(&self) -> String {
        String::from_utf8_lossy(&self.kept).trim().to_owned()
    }

    /// Asks it to end, and waits a moment.
    fn terminate(&mut self) {
        let _ = rustix::process::kill_process_group(self.pid, Signal::TERM); // ESRCH: no process is left
        let deadline = Instant::now() + TERM_GRACE;
        while Instant::now() < deadline && !self.has_ended() {
            std::thread::sleep(POLL_INTERVAL);
        }
        self.drain();
    }

    /// Ends it, its process group and, if it has one, its process namespace.
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
    let ready = poll(&mut polled, Timespec::try_from(POLL_INTERVAL).ok().as_ref());
    let [polled] = polled;
    if polled.revents().contains(PollFlags::HUP) && !polled.revents().contains(PollFlags::IN) {
        std::thread::sleep(POLL_INTERVAL); // it closed its output but still runs
    }
    matches!(ready, Ok(1..))
}
