//! The background thread that forks spare workers, waits for killed ones, and ends workers and zygotes that were
//! idle for too long. Calls never wait for it.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::process::KilledWorker;
use super::zygote_pool::ZygotePool;
use super::{Shared, locked};

/// Interval at which killed workers are checked.
const KILLED_PERIOD: Duration = Duration::from_millis(1);
/// Time after a call at which its kept worker is checked; also the least time between two checks.
const CHECK_DELAY: Duration = Duration::from_millis(50);
/// Killed workers checked at a time; beyond that the oldest are waited for.
const MAX_KILLED: usize = 64;

/// A job for the thread.
#[derive(Debug)]
enum ReaperJob {
    /// Fork the next spare.
    Refill(Arc<ZygotePool>),
    /// Wait for a killed worker.
    Reap(Arc<ZygotePool>, KilledWorker),
    /// End what was idle for too long.
    EndIdle,
    /// After [`CHECK_DELAY`], end kept workers in which something still runs.
    CheckKept,
    /// End the thread.
    Stop,
}

/// Accepts jobs for the thread.
#[derive(Debug, Clone)]
pub(super) struct ReaperQueue(mpsc::Sender<ReaperJob>);

// A send fails only after the thread has stopped. By then every zygote is closed, so no job is left.
impl ReaperQueue {
    pub(super) fn refill(&self, zygote_pool: &Arc<ZygotePool>) {
        let _ = self.0.send(ReaperJob::Refill(Arc::clone(zygote_pool)));
    }

    /// Returns whether the thread still runs.
    pub(super) fn reap(&self, zygote_pool: &Arc<ZygotePool>, worker: KilledWorker) -> bool {
        self.0.send(ReaperJob::Reap(Arc::clone(zygote_pool), worker)).is_ok()
    }

    /// Requests one check; it covers every worker returned before it runs.
    pub(super) fn check_kept(&self) {
        let _ = self.0.send(ReaperJob::CheckKept);
    }

    pub(super) fn end_idle(&self) {
        let _ = self.0.send(ReaperJob::EndIdle);
    }
}

/// The thread, once started.
#[derive(Debug)]
pub(super) struct Reaper {
    queue: ReaperQueue,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Receives jobs.
#[derive(Debug)]
pub(super) struct ReaperInbox(mpsc::Receiver<ReaperJob>);

impl Reaper {
    /// Jobs can be queued at once; they run after `start`.
    pub(super) fn new() -> (Self, ReaperInbox) {
        let (sender, receiver) = mpsc::channel();
        (Self { queue: ReaperQueue(sender), thread: Mutex::default() }, ReaperInbox(receiver))
    }

    /// Starts the thread. Every `period` it ends idle workers of `shared`, which it does not keep alive.
    pub(super) fn start(
        &self,
        queue: ReaperInbox,
        shared: Weak<Shared>,
        period: Duration,
    ) -> io::Result<()> {
        let thread = thread::Builder::new()
            .name("recurgent-reaper".to_owned())
            .spawn(move || run_jobs(&queue.0, &shared, period))?;
        *locked(&self.thread) = Some(thread);
        Ok(())
    }

    pub(super) fn queue(&self) -> ReaperQueue {
        self.queue.clone()
    }

    /// Ends the thread after its queued jobs.
    pub(super) fn stop(&self) {
        let _ = self.queue.0.send(ReaperJob::Stop);
        if let Some(thread) = locked(&self.thread).take() {
            // It does not panic; if it did, there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

fn run_jobs(queue: &mpsc::Receiver<ReaperJob>, shared: &Weak<Shared>, period: Duration) {
    let (mut killed, mut checked) = (Killed::default(), Instant::now());
    let mut check_at: Option<Instant> = None;
    loop {
        let due = period.saturating_sub(checked.elapsed());
        let check_in =
            check_at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        let next = queue.recv_timeout(due.min(killed.period()).min(check_in));
        if check_at.is_some_and(|at| at <= Instant::now()) {
            check_at = None;
            if let Some(shared) = shared.upgrade() {
                shared.check_kept();
            }
        }
        match next {
            Ok(ReaperJob::CheckKept) => {
                check_at = check_at.or_else(|| Instant::now().checked_add(CHECK_DELAY));
            }
            Ok(ReaperJob::Refill(zygote_pool)) => zygote_pool.refill(),
            Ok(ReaperJob::Reap(zygote_pool, worker)) => killed.0.push((zygote_pool, worker)),
            Err(RecvTimeoutError::Timeout) if checked.elapsed() < period => {}
            Ok(ReaperJob::EndIdle) | Err(RecvTimeoutError::Timeout) => {
                checked = Instant::now();
                if let Some(shared) = shared.upgrade() {
                    shared.end_idle();
                }
            }
            Ok(ReaperJob::Stop) | Err(RecvTimeoutError::Disconnected) => return killed.reap(0),
        }
        killed.reap(MAX_KILLED);
    }
}

/// Killed workers that have not been waited for, oldest first. The kernel needs a while to end a worker's namespaces,
/// and a zygote that waits cannot fork: it is asked to wait only after the worker has ended.
#[derive(Default)]
struct Killed(Vec<(Arc<ZygotePool>, KilledWorker)>);

impl Killed {
    /// The time until the next check.
    fn period(&self) -> Duration {
        if self.0.is_empty() { Duration::MAX } else { KILLED_PERIOD }
    }

    /// Waits for those that have ended, and for the oldest beyond `most`.
    fn reap(&mut self, most: usize) {
        let mut excess = self.0.len().saturating_sub(most);
        self.0.retain(|(zygote_pool, worker)| {
            let due = excess > 0 || worker.has_ended();
            excess = excess.saturating_sub(1);
            if due {
                zygote_pool.reap_killed(worker.id);
            }
            !due
        });
    }
}
