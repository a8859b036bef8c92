//! Limits how many programs run, and how many workers exist, at the same time. Callers queue in order of arrival.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

use lifecycle::execution::WorkerFault;

use super::{CANCELLATION_PERIOD, after, locked};
use crate::guest::Cancellation;

/// Grants the right to run a program, or to have a worker.
#[derive(Debug)]
pub(super) struct Permits {
    total: usize,
    /// Completes the error message after "all N".
    advice: &'static str,
    /// Longest time a caller queues.
    queue_limit: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Non-zero only while the queue is empty.
    free: usize,
    queue: VecDeque<Arc<Waiter>>,
    /// For each permit holder that waits for an answer, the thread that gives it. Such a holder keeps its permit until
    /// it has the answer.
    answering: Vec<ThreadId>,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    granted: AtomicBool,
}

/// The right to run one program. Dropping it passes it to the longest waiting caller.
#[derive(Debug)]
pub(super) struct Permit(Arc<Permits>);

/// Until it is dropped, this thread counts as one that a permit holder waits for.
#[derive(Debug)]
pub(super) struct Answering {
    permits: Arc<Permits>,
    thread: ThreadId,
}

impl Permits {
    pub(super) fn new(total: usize, queue_limit: Duration, advice: &'static str) -> Self {
        let state = State { free: total, queue: VecDeque::new(), answering: Vec::new() };
        Self { total, advice, queue_limit, state: Mutex::new(state) }
    }

    /// A permit, if one is free.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let mut state = locked(&self.state);
        state.free = state.free.checked_sub(1)?;
        Some(Permit(Arc::clone(self)))
    }

    /// Waits for a permit.
    pub(super) fn acquire(
        self: &Arc<Self>,
        cancellation: &Cancellation,
    ) -> Result<Permit, WorkerFault> {
        self.acquire_while(cancellation, || {})
    }

    /// Notes that the holder of a permit waits for this thread.
    pub(super) fn answering(self: &Arc<Self>) -> Answering {
        let thread = thread::current().id();
        locked(&self.state).answering.push(thread);
        Answering { permits: Arc::clone(self), thread }
    }

    /// Waits for a permit and calls `reclaim` again and again meanwhile, which may release one. If every permit holder
    /// is queued here, one of them fails at once to break the deadlock.
    pub(super) fn acquire_while(
        self: &Arc<Self>,
        cancellation: &Cancellation,
        reclaim: impl Fn(),
    ) -> Result<Permit, WorkerFault> {
        let Some(waiter) = self.queue_up() else { return Ok(Permit(Arc::clone(self))) };
        let deadline = after(Instant::now(), self.queue_limit);
        loop {
            reclaim();
            if self.leave_if_deadlocked(&waiter) {
                return Err(self.deadlocked());
            }
            thread::park_timeout(CANCELLATION_PERIOD);
            let fault = if waiter.granted.load(Ordering::Acquire) {
                return Ok(Permit(Arc::clone(self)));
            } else if cancellation.is_cancelled() {
                WorkerFault::Cancelled
            } else if Instant::now() >= deadline {
                self.too_busy()
            } else {
                continue;
            };
            self.leave(&waiter);
            return Err(fault);
        }
    }

    /// Joins the queue. `None`: a permit was free, and the caller has it now.
    fn queue_up(&self) -> Option<Arc<Waiter>> {
        let mut state = locked(&self.state);
        if let Some(left) = state.free.checked_sub(1) {
            state.free = left;
            return None;
        }
        let waiter =
            Arc::new(Waiter { thread: thread::current(), granted: AtomicBool::new(false) });
        state.queue.push_back(Arc::clone(&waiter));
        Some(waiter)
    }

    /// Stops waiting; a permit granted meanwhile passes to the next caller.
    fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = locked(&self.state);
        state.queue.retain(|other| !Arc::ptr_eq(other, waiter));
        if waiter.granted.load(Ordering::Acquire) {
            state.release();
        }
    }

    /// Stops waiting if all holders wait. Under one lock, so that exactly one caller gives up.
    fn leave_if_deadlocked(&self, waiter: &Arc<Waiter>) -> bool {
        let mut state = locked(&self.state);
        let queues =
            |thread: &ThreadId| state.queue.iter().any(|waiter| waiter.thread.id() == *thread);
        let holders = state.answering.iter().filter(|thread| queues(thread)).count();
        let is_deadlocked = holders >= self.total && !waiter.granted.load(Ordering::Acquire);
        if is_deadlocked {
            state.queue.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        is_deadlocked
    }

    fn deadlocked(&self) -> WorkerFault {
        WorkerFault::Unavailable(format!(
            "all {} {}, and each of them waits for one more, so none can become free; raise it, or nest calls less deeply",
            self.total, self.advice,
        ))
    }

    fn too_busy(&self) -> WorkerFault {
        WorkerFault::Unavailable(format!(
            "all {} {} for {} s; make fewer calls at once, or raise it",
            self.total,
            self.advice,
            self.queue_limit.as_secs_f64()
        ))
    }
}

impl State {
    /// Passes a permit to the first caller in the queue, so that a new caller cannot overtake it.
    fn release(&mut self) {
        match self.queue.pop_front() {
            Some(waiter) => {
                waiter.granted.store(true, Ordering::Release);
                waiter.thread.unpark();
            }
            None => self.free += 1,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        locked(&self.0.state).release();
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = locked(&self.permits.state);
        if let Some(at) = state.answering.iter().rposition(|thread| *thread == self.thread) {
            state.answering.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(total: usize, queue_limit: Duration) -> Arc<Permits> {
        Arc::new(Permits::new(total, queue_limit, "places were taken (max_running_workers)"))
    }

    #[test]
    fn callers_are_served_in_the_order_they_came() {
        let permits = permits(1, Duration::from_mins(2));
        let none = Cancellation::default();
        let held = permits.acquire(&none).unwrap();
        let served = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (shared, order) = (Arc::clone(&permits), Arc::clone(&served));
                let thread = thread::spawn(move || {
                    let _permit = shared.acquire(&Cancellation::default()).unwrap();
                    order.lock().unwrap().push(n);
                });
                while locked(&permits.state).queue.len() <= n {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        drop(held);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*served.lock().unwrap(), (0..8).collect::<Vec<_>>());
        assert_eq!(locked(&permits.state).free, 1);
    }

    #[test]
    fn a_deadlock_fails_one_caller_at_once_and_the_others_continue() {
        let permits = permits(2, Duration::from_mins(10));
        let results = Mutex::new(Vec::new());
        let barrier = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let none = Cancellation::default();
                    let held = permits.acquire(&none).unwrap();
                    let answering = permits.answering();
                    barrier.wait(); // both hold one and want one more
                    let more = permits.acquire(&none);
                    results.lock().unwrap().push(more.as_ref().err().cloned());
                    drop((more, answering, held));
                });
            }
        });
        let mut results = results.into_inner().unwrap();
        results.sort_by_key(Option::is_none);
        let [Some(WorkerFault::Unavailable(message)), None] = &results[..] else {
            panic!("{results:?}")
        };
        assert!(message.contains("raise it, or nest calls less deeply"), "{message}");
        let state = locked(&permits.state);
        assert_eq!((state.free, state.queue.len(), state.answering.len()), (2, 0, 0));
    }

    #[test]
    fn waiting_ends_by_deadline_or_cancellation_and_loses_no_permit() {
        let permits = permits(1, Duration::from_millis(40));
        let cancellation = Cancellation::default();
        let held = permits.acquire(&cancellation).unwrap();
        assert!(matches!(permits.acquire(&cancellation), Err(WorkerFault::Unavailable(_))));
        cancellation.cancel();
        assert_eq!(permits.acquire(&cancellation).unwrap_err(), WorkerFault::Cancelled);
        drop(held);
        let state = locked(&permits.state);
        assert_eq!((state.free, state.queue.len()), (1, 0));
    }
}
