//! One worker's three descriptors: the channel, and the program's output streams.
//!
//! While it waits, the host reads the program's output, so that a program never blocks on a full pipe, and checks
//! the deadline and cancellation.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use lifecycle::execution::Output;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::CANCELLATION_PERIOD;
use super::frame::{self, FRAME_BYTES};
use super::sandbox::Tally;
use crate::guest::Cancellation;

/// Output kept of each stream per attempt.
const OUTPUT_BYTES: usize = 64 * 1024;
/// Bytes read from a stream at a time.
const OUTPUT_CHUNK: usize = 16 * 1024;
/// Reads from one stream before the others are read; enough to empty a pipe.
const READS_IN_A_ROW: usize = 8;
/// Buffer space reserved before each read of the channel.
const FRAME_CHUNK: usize = 8 * 1024;
/// How long a read waits for the channel alone. Most frames arrive sooner, so they cost one system call.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(4);
/// Size to which the buffer of an idle worker is shrunk.
const IDLE_BUFFER_BYTES: usize = 64 * 1024;

/// The host's ends of a worker's descriptors.
#[derive(Debug)]
pub(super) struct Link {
    channel: OwnedFd,
    stdout: Stream,
    stderr: Stream,
    inbox: Vec<u8>,
    output_limit: u64,
    tally: Tally,
}

/// When to stop waiting.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    /// The end of the program's time.
    pub(super) deadline: Instant,
    /// Ends the wait early.
    pub(super) cancellation: &'a Cancellation,
}

impl Watch<'_> {
    /// Whether a wait of this length needs no check in between.
    fn allows(&self, wait: Duration) -> bool {
        !self.cancellation.is_cancelled()
            && self.deadline.saturating_duration_since(Instant::now()) > wait
    }
}

/// Why a frame was not sent or received.
#[derive(Debug)]
pub(super) enum LinkFault {
    /// The worker closed its end.
    Closed,
    /// A frame over [`FRAME_BYTES`], or [`frame::FRAME_VALUES`].
    Oversized,
    /// The deadline passed.
    TimedOut,
    /// The caller cancelled.
    Cancelled,
    /// The program printed more than its limit.
    Flooded,
    /// The kernel killed one of the worker's processes because together they had used up their memory.
    OutOfMemory,
    /// An operation on the host's end failed.
    Failed(io::Error),
}

impl Link {
    /// Takes the host's ends. The streams must be non-blocking; reads of the channel may block for a [`POLL_INTERVAL`].
    pub(super) fn new(
        channel: OwnedFd,
        [stdout, stderr]: [OwnedFd; 2],
        output_limit: u64,
        tally: Tally,
    ) -> Self {
        Self {
            channel,
            stdout: Stream::new(stdout),
            stderr: Stream::new(stderr),
            inbox: Vec::new(),
            output_limit,
            tally,
        }
    }

    /// The counters of the worker's processes.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Sends one frame.
    pub(super) fn send(&mut self, frame: &[u8], watch: &Watch<'_>) -> Result<(), LinkFault> {
        let mut rest = frame;
        while !rest.is_empty() {
            match rustix::net::send(&self.channel, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, watch)?,
                Err(errno) => check_errno(errno)?,
            }
        }
        Ok(())
    }

    /// Receives one frame and gives it to `decode`.
    ///
    /// More frames may have arrived with it: a program that gave up on an ask by its own timeout may have sent the
    /// next one. They are kept; the turn checks whether they are in order.
    pub(super) fn receive<T>(
        &mut self,
        watch: &Watch<'_>,
        decode: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, LinkFault> {
        let end = self.fill(watch)?;
        if frame::has_too_many_values(self.inbox.get(..end).unwrap_or_default()) {
            return Err(LinkFault::Oversized);
        }
        let decoded = decode(self.inbox.get(..end).unwrap_or_default());
        self.inbox.drain(..=end);
        self.inbox.shrink_to(IDLE_BUFFER_BYTES);
        Ok(decoded)
    }

    /// Whether received bytes are left that were not decoded yet.
    pub(super) fn has_more(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Reads until a line is complete; returns the index of its end.
    fn fill(&mut self, watch: &Watch<'_>) -> Result<usize, LinkFault> {
        let mut searched = 0;
        loop {
            let unsearched = self.inbox.get(searched..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', unsearched) {
                return Ok(searched + end);
            }
            searched = self.inbox.len();
            if searched > FRAME_BYTES {
                return Err(LinkFault::Oversized);
            }
            if !(watch.allows(2 * POLL_INTERVAL) && self.read(RecvFlags::empty())?) {
                self.wait(PollFlags::IN, watch)?;
                self.read(RecvFlags::DONTWAIT)?;
            }
        }
    }

    /// Reads once. Returns whether there was something, at once or (without `DONTWAIT`) within a [`POLL_INTERVAL`].
    fn read(&mut self, flags: RecvFlags) -> Result<bool, LinkFault> {
        self.inbox.reserve(FRAME_CHUNK);
        let room = rustix::buffer::spare_capacity(&mut self.inbox);
        match rustix::net::recv(&self.channel, room, flags) {
            Ok((_, 0)) => Err(LinkFault::Closed),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => check_errno(errno).map(|()| false),
        }
    }

    /// Whether an idle worker has sent nothing. Output it printed meanwhile is dropped.
    pub(super) fn is_quiet(&mut self) -> bool {
        let quiet = matches!(self.poll(PollFlags::IN, Duration::ZERO), Ok(false));
        self.collect_output();
        quiet && !self.has_more()
    }

    /// The output up to `done`: the worker flushes before it, so the output is complete.
    pub(super) fn take_output(&mut self) -> Output {
        let _ = self.poll(PollFlags::empty(), Duration::ZERO); // the output limit does not matter any more
        self.collect_output()
    }

    fn collect_output(&mut self) -> Output {
        let (stdout, dropped_of_stdout) = self.stdout.take();
        let (stderr, dropped_of_stderr) = self.stderr.take();
        Output { stdout, stderr, dropped_bytes: dropped_of_stdout + dropped_of_stderr }
    }

    /// Whether its error stream ends with this text.
    pub(super) fn stderr_ends_with(&mut self, text: &str) -> bool {
        self.stderr.drain();
        self.stderr.kept.ends_with(text.as_bytes())
    }

    /// Waits until the channel is ready and reads the streams meanwhile.
    fn wait(&mut self, interest: PollFlags, watch: &Watch<'_>) -> Result<(), LinkFault> {
        loop {
            if watch.cancellation.is_cancelled() {
                return Err(LinkFault::Cancelled);
            }
            let left = watch.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LinkFault::TimedOut);
            }
            if self.poll(interest, left.min(CANCELLATION_PERIOD))? {
                return Ok(());
            }
            if self.tally.is_out_of_memory() {
                return Err(LinkFault::OutOfMemory);
            }
        }
    }

    /// Polls once; returns whether the channel is ready.
    fn poll(&mut self, interest: PollFlags, at_most: Duration) -> Result<bool, LinkFault> {
        let Self { channel, stdout, stderr, output_limit, .. } = self;
        let mut polled =
            [PollFd::new(channel, interest), stdout.watched(channel), stderr.watched(channel)];
        match poll(&mut polled, Timespec::try_from(at_most).ok().as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(LinkFault::Failed(errno.into())),
        }
        let [channel_ready, stdout_ready, stderr_ready] = polled.map(|fd| !fd.revents().is_empty());
        if stdout_ready {
            stdout.drain();
        }
        if stderr_ready {
            stderr.drain();
        }
        if stdout.dropped + stderr.dropped > *output_limit {
            return Err(LinkFault::Flooded);
        }
        Ok(channel_ready)
    }
}

/// Maps an error number; an interruption is not a fault.
fn check_errno(errno: Errno) -> Result<(), LinkFault> {
    match errno {
        Errno::INTR => Ok(()),
        Errno::PIPE | Errno::CONNRESET => Err(LinkFault::Closed),
        other => Err(LinkFault::Failed(other.into())),
    }
}

/// One output stream of a worker.
#[derive(Debug)]
struct Stream {
    /// `None` after every writer has closed it; polling it would return at once forever.
    source: Option<OwnedFd>,
    kept: Vec<u8>,
    dropped: u64,
}

impl Stream {
    fn new(source: OwnedFd) -> Self {
        Self { source: Some(source), kept: Vec::new(), dropped: 0 }
    }

    /// Its entry in a poll. A closed stream has an entry of `other` that waits for no event.
    fn watched<'a>(&'a self, other: &'a OwnedFd) -> PollFd<'a> {
        match &self.source {
            Some(source) => PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
            None => PollFd::from_borrowed_fd(other.as_fd(), PollFlags::empty()),
        }
    }

    fn drain(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); OUTPUT_CHUNK];
        for _ in 0..READS_IN_A_ROW {
            let Some(source) = &self.source else { return };
            let (bytes, _) = match rustix::io::read(source, &mut buffer) {
                Ok(read) => read,
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => (&mut [][..], &mut [][..]),
            };
            let room = OUTPUT_BYTES.saturating_sub(self.kept.len()).min(bytes.len());
            let (kept, beyond) = bytes.split_at(room);
            self.kept.extend_from_slice(kept);
            self.dropped += beyond.len() as u64;
            if bytes.is_empty() {
                self.source = None;
            } else if bytes.len() < OUTPUT_CHUNK {
                return;
            }
        }
    }

    fn take(&mut self) -> (String, u64) {
        let dropped = std::mem::take(&mut self.dropped);
        if self.kept.is_empty() {
            return (String::new(), dropped);
        }
        let kept = std::mem::take(&mut self.kept);
        // Bytes that are not UTF-8, or were cut at the limit, become replacement characters.
        (
            String::from_utf8(kept)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
            dropped,
        )
    }
}
