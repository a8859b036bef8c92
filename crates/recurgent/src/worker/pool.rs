//! Kept workers: each serves the calls of one agent, with one environment and one set of grants.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use lifecycle::dialect::Language;

use super::locked;
use super::process;
use super::turn::Worker;
use super::zygote_pool::ZygoteKey;

/// Idle workers kept; the one that was idle longest is ended first.
const MAX_KEPT: usize = 128;

/// CPU time an idle worker may use. One that uses more still runs something its program left.
const IDLE_CPU: Duration = Duration::from_millis(5);

/// How long Ruby keeps a thread that has ended for a new one: three seconds.
const THREAD_CACHE: Duration = Duration::from_secs(4);

/// The kept workers of all agents.
#[derive(Debug)]
pub(super) struct Pool {
    idle_limit: Duration,
    /// Whether a check is queued that also covers workers returned from now on.
    check_queued: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Searched linearly: comparing a hundred names costs less than building a key.
    kept: Vec<Kept>,
    /// Every live lease, of idle and running workers, so that a discard finds running ones.
    leases: Vec<Weak<Lease>>,
    closed: bool,
}

#[derive(Debug)]
struct Kept {
    lease: Arc<Lease>,
    worker: Worker,
    since: Instant,
    /// Processor time it had used by then.
    cpu_time: Option<Duration>,
}

impl Kept {
    /// Whether something runs in it, or it has ended.
    fn is_unfit(&mut self) -> bool {
        let used = self.cpu_time.zip(self.worker.cpu_time());
        used.is_some_and(|(before, now)| now.saturating_sub(before) > IDLE_CPU)
            || (self.since.elapsed() > THREAD_CACHE && self.worker.counts_more_threads())
            || !self.worker.is_fit()
    }
}

/// Ties a worker to the agent it serves.
#[derive(Debug)]
pub(super) struct Lease {
    agent: String,
    key: ZygoteKey,
    discarded: AtomicBool,
}

impl Pool {
    pub(super) fn new(idle_limit: Duration) -> Self {
        Self { idle_limit, check_queued: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Takes the agent's idle worker out of the pool.
    pub(super) fn lend(&self, agent: &str, key: &ZygoteKey) -> Option<(Arc<Lease>, Worker)> {
        let mut state = locked(&self.state);
        let at = state.kept.iter().position(|kept| kept.lease.is_for(agent, key))?;
        let kept = state.kept.swap_remove(at);
        Some((kept.lease, kept.worker))
    }

    /// A lease for a worker that will become the agent's.
    pub(super) fn lease(&self, agent: &str, key: &ZygoteKey) -> Arc<Lease> {
        let lease =
            Lease { agent: agent.to_owned(), key: key.clone(), discarded: AtomicBool::new(false) };
        let lease = Arc::new(lease);
        let mut state = locked(&self.state);
        state.leases.retain(|known| known.strong_count() > 0);
        state.leases.push(Arc::downgrade(&lease));
        lease
    }

    /// Keeps a worker for its agent's next call.
    pub(super) fn give_back(&self, lease: Arc<Lease>, worker: Worker) {
        let mut state = locked(&self.state);
        // Two calls of one agent may run at once; only one worker is kept.
        let taken = state.kept.iter().any(|kept| kept.lease.is_for(&lease.agent, &lease.key));
        if taken || state.closed || lease.discarded.load(Ordering::Acquire) {
            drop(state); // a worker is ended outside the lock
            return drop(worker);
        }
        if !self.check_queued.swap(true, Ordering::AcqRel) {
            worker.request_check();
        }
        let cpu_time = worker.cpu_time();
        state.kept.push(Kept { lease, worker, since: Instant::now(), cpu_time });
        let excess = (state.kept.len() > MAX_KEPT).then(|| state.longest_idle()).flatten();
        drop(state);
        end(excess);
    }

    /// Ends the agent's workers in this language: idle ones now, others when their turn ends. Gives how
    /// many were idle.
    pub(super) fn discard(&self, agent: &str, language: Language) -> usize {
        let mut state = locked(&self.state);
        for lease in state.leases.iter().filter_map(Weak::upgrade) {
            if lease.agent == agent && lease.key.language == language {
                lease.discarded.store(true, Ordering::Release);
            }
        }
        let discarded: Vec<Kept> = state
            .kept
            .extract_if(.., |kept| kept.lease.discarded.load(Ordering::Acquire))
            .collect();
        drop(state);
        let count = discarded.len();
        end(discarded);
        count
    }

    /// Ends the worker that was idle for longest; says whether there was one.
    pub(super) fn end_one(&self) -> bool {
        let idle = locked(&self.state).longest_idle();
        let is_some = idle.is_some();
        end(idle);
        is_some
    }

    /// Ends workers that were idle for too long, and those whose program left something running: another process, or a
    /// thread.
    pub(super) fn expire(&self) {
        self.check_queued.store(false, Ordering::Release);
        if locked(&self.state).kept.is_empty() {
            return;
        }
        let leaders_with_members = process::leaders_with_members(); // slow, so done outside the lock
        let is_expired = |kept: &mut Kept| {
            kept.since.elapsed() >= self.idle_limit
                || leaders_with_members.contains(&kept.worker.pid())
                || kept.is_unfit()
        };
        let mut state = locked(&self.state);
        let expired: Vec<Kept> = state.kept.extract_if(.., |kept| is_expired(kept)).collect();
        drop(state);
        end(expired);
    }

    /// Ends all idle workers and keeps none from now on.
    pub(super) fn close(&self) {
        let mut state = locked(&self.state);
        state.closed = true;
        let kept = std::mem::take(&mut state.kept);
        drop(state);
        end(kept);
    }
}

/// Ends idle workers, outside the lock: all are asked first, then those that are left are killed.
fn end(idle: impl IntoIterator<Item = Kept>) {
    let idle: Vec<Kept> = idle.into_iter().collect();
    for kept in &idle {
        kept.worker.ask_to_end();
    }
    for kept in idle {
        kept.worker.terminate();
        drop(kept);
    }
}

impl State {
    fn longest_idle(&mut self) -> Option<Kept> {
        let at =
            self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.since).map(|(at, _)| at)?;
        Some(self.kept.swap_remove(at))
    }
}

impl Lease {
    /// The language of the worker.
    pub(super) fn language(&self) -> Language {
        self.key.language
    }

    fn is_for(&self, agent: &str, key: &ZygoteKey) -> bool {
        self.agent == agent && self.key == *key
    }
}
