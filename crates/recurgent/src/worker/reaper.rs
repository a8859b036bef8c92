//! The thread that does what nobody should wait for: forking the next spare, having killed workers
//! waited for, ending what was idle too long.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::process::Passing;
use super::zygote_pool::ZygotePool;
use super::{Shared, locked};

/// Between two looks whether killed workers have ended.
const PASSING_PERIOD: Duration = Duration::from_millis(1);
/// Killed workers that may take their time at once.
const MAX_PASSING: usize = 64;

/// Something to do soon.
#[derive(Debug)]
enum ReaperJob {
    /// Fork the next spare.
    Refill(Arc<ZygotePool>),
    /// Have a killed worker waited for.
    Bury(Arc<ZygotePool>, Passing),
    /// Look for what is idle.
    Tidy,
    /// End the thread.
    Stop,
}

/// Where errands are left.
#[derive(Debug, Clone)]
pub(super) struct ReaperQueue(mpsc::Sender<ReaperJob>);

// Once the keeper has stopped, zygotes are closed, which does all of these at once: that nobody hears
// an errand then is right.
impl ReaperQueue {
    pub(super) fn refill(&self, zygote_pool: &Arc<ZygotePool>) {
        let _ = self.0.send(ReaperJob::Refill(Arc::clone(zygote_pool)));
    }

    /// Says whether anybody hears it.
    pub(super) fn bury(&self, zygote_pool: &Arc<ZygotePool>, worker: Passing) -> bool {
        self.0.send(ReaperJob::Bury(Arc::clone(zygote_pool), worker)).is_ok()
    }

    pub(super) fn tidy(&self) {
        let _ = self.0.send(ReaperJob::Tidy);
    }
}

/// The thread, once started.
#[derive(Debug)]
pub(super) struct Reaper {
    errands: ReaperQueue,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Errands left for a keeper.
#[derive(Debug)]
pub(super) struct Waiting(mpsc::Receiver<ReaperJob>);

impl Reaper {
    /// Errands can be left at once; they are run when the thread is started.
    pub(super) fn new() -> (Self, Waiting) {
        let (sender, receiver) = mpsc::channel();
        (Self { errands: ReaperQueue(sender), thread: Mutex::default() }, Waiting(receiver))
    }

    /// Starts the thread; it tidies `shared` every `period`, without keeping it alive.
    pub(super) fn start(
        &self,
        errands: Waiting,
        shared: Weak<Shared>,
        period: Duration,
    ) -> io::Result<()> {
        let thread = thread::Builder::new()
            .name("recurgent-keeper".to_owned())
            .spawn(move || run_errands(&errands.0, &shared, period))?;
        *locked(&self.thread) = Some(thread);
        Ok(())
    }

    pub(super) fn errands(&self) -> ReaperQueue {
        self.errands.clone()
    }

    /// Ends the thread when its errands are done.
    pub(super) fn stop(&self) {
        let _ = self.errands.0.send(ReaperJob::Stop);
        if let Some(thread) = locked(&self.thread).take() {
            // It cannot have panicked; if it has, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

fn run_errands(errands: &mpsc::Receiver<ReaperJob>, shared: &Weak<Shared>, period: Duration) {
    let (mut killed, mut tidied) = (Killed::default(), Instant::now());
    loop {
        let due = period.saturating_sub(tidied.elapsed());
        let next = errands.recv_timeout(due.min(killed.period()));
        match next {
            Ok(ReaperJob::Refill(zygote_pool)) => zygote_pool.refill(),
            Ok(ReaperJob::Bury(zygote_pool, worker)) => killed.0.push((zygote_pool, worker)),
            Err(RecvTimeoutError::Timeout) if tidied.elapsed() < period => {}
            Ok(ReaperJob::Tidy) | Err(RecvTimeoutError::Timeout) => {
                tidied = Instant::now();
                if let Some(shared) = shared.upgrade() {
                    shared.tidy();
                }
            }
            Ok(ReaperJob::Stop) | Err(RecvTimeoutError::Disconnected) => return killed.bury(0),
        }
        killed.bury(MAX_PASSING);
    }
}

/// Killed workers on their way out, oldest first. The kernel takes its time to take their walls down, and a zygote
/// that waits for that forks none meanwhile: it is told when there is nothing left to wait for.
#[derive(Default)]
struct Killed(Vec<(Arc<ZygotePool>, Passing)>);

impl Killed {
    /// How long nobody need look after them.
    fn period(&self) -> Duration {
        if self.0.is_empty() { Duration::MAX } else { PASSING_PERIOD }
    }

    /// Has those waited for that have ended, and the oldest beyond `most`.
    fn bury(&mut self, most: usize) {
        let mut excess = self.0.len().saturating_sub(most);
        self.0.retain(|(zygote_pool, worker)| {
            let due = excess > 0 || worker.is_over();
            excess = excess.saturating_sub(1);
            if due {
                zygote_pool.bury(worker.id);
            }
            !due
        });
    }
}
