//! Calls of one session run one after the other, in the order they came: a queue in the process, and two locks
//! between processes.
//!
//! A process locks the gate, then the turn, and unlocks the gate once it has the turn. The process that waits for the turn
//! holds the gate. So a process that gives up the turn and wants it again waits at the gate, behind the processes that
//! wait there, and overtakes none of them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use lifecycle::outcome::{Failure, FailureKind};
use lifecycle::program::Checksum;
use thiserror::Error;

use crate::guest::Cancellation;
use crate::lock_file::{LockFile, LockGuard};
use crate::toolbox::is_called_by;

/// Time an observer of a call may take before other calls of the same session are refused: an observer that itself waits
/// for such a call would never return.
const OBSERVER_LIMIT: Duration = Duration::from_secs(5);
/// How often a waiting call checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Characters of a digest that name a session's locks.
const NAME_CHARS: usize = 32;

/// Why a call did not get its turn.
#[derive(Debug, Error)]
pub(crate) enum TurnFault {
    /// A call of this thread has the turn.
    #[error(
        "{0} is already in a call of this thread, which would wait for itself; \
         use another session, or call it after that call has ended"
    )]
    Reentered(String),
    /// The call that has the turn waits for an observer.
    #[error(
        "{0} is in a call whose observer has not returned; an observer must not wait for a call of the same \
         session: use another session, or call it after that call has ended"
    )]
    HeldByObserver(String),
    /// Too many calls came before it, or one took too long.
    #[error(
        "{name} was in use for {} s; call again, or raise session_wait_seconds", .waited.as_secs()
    )]
    TimedOut {
        /// The session.
        name: String,
        /// The limit.
        waited: Duration,
    },
    /// The caller gave up.
    #[error("the call was cancelled while it waited for {0}")]
    Cancelled(String),
    /// The locks cannot be used.
    #[error("the locks of {0} cannot be used: {1}; make the state directory writable")]
    Unusable(String, io::Error),
}

impl TurnFault {
    /// As the failure of a call.
    pub(crate) fn failure(&self) -> Failure {
        let kind = match self {
            Self::Reentered(_) | Self::HeldByObserver(_) => FailureKind::InvalidCall,
            Self::TimedOut { .. } => FailureKind::ContextConflict,
            Self::Cancelled(_) => FailureKind::Cancelled,
            Self::Unusable(..) => FailureKind::StoreUnavailable,
        };
        Failure::new(kind, self.to_string())
    }
}

/// How long a call waits for its turn.
pub(crate) struct TurnLimits<'a> {
    /// Longest wait for the calls of its session that came before it.
    pub(crate) wait: Duration,
    /// Ends the wait early.
    pub(crate) cancellation: &'a Cancellation,
    /// How long a thread has been running an observer; `None`: it is not running one.
    pub(crate) observer_time: &'a dyn Fn(ThreadId) -> Option<Duration>,
}

/// The queues of a runtime's sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionQueues {
    queues: Mutex<BTreeMap<String, Arc<SessionQueue>>>,
    /// Where locks between processes are kept; `None`: the store is this process's own.
    folder: Option<PathBuf>,
}

impl SessionQueues {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { queues: Mutex::default(), folder }
    }

    /// The queue of a session. Queues that are not in use are dropped when a new one is made: a server may see any
    /// number of sessions.
    pub(crate) fn of(&self, session: &str) -> Arc<SessionQueue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(session) {
            return Arc::clone(queue);
        }
        queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        let queue = SessionQueue {
            name: format!("session {session:?}"),
            locks: self.folder.as_deref().map(|folder| SessionLocks::new(folder, session)),
            waiting: Mutex::default(),
            changed: Condvar::new(),
        };
        Arc::clone(queues.entry(session.to_owned()).or_insert_with(|| Arc::new(queue)))
    }
}

/// The two locks of a session.
#[derive(Debug, Clone)]
struct SessionLocks {
    gate: LockFile,
    turn: LockFile,
}

impl SessionLocks {
    fn new(folder: &Path, session: &str) -> Self {
        let name = Checksum::short_of(session, NAME_CHARS);
        Self {
            gate: LockFile::new(folder.join(format!("{name}.gate"))),
            turn: LockFile::new(folder.join(format!("{name}.turn"))),
        }
    }
}

/// The queue of one session, or of one agent without a session.
#[derive(Debug)]
pub(crate) struct SessionQueue {
    /// For messages.
    name: String,
    /// Its locks between processes.
    locks: Option<SessionLocks>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The waiting threads in order, and the thread that has the turn.
#[derive(Debug, Default)]
struct Waiting {
    next_ticket: u64,
    tickets: VecDeque<u64>,
    holder: Option<ThreadId>,
}

/// The turn of a call; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SessionTurn<'a> {
    queue: &'a SessionQueue,
    lock: Option<LockGuard>,
}

impl Drop for SessionTurn<'_> {
    fn drop(&mut self) {
        self.lock = None;
        self.queue.waiting().holder = None;
        self.queue.changed.notify_all();
    }
}

impl Drop for SessionQueue {
    fn drop(&mut self) {
        if let Some(SessionLocks { gate, turn }) = &self.locks {
            turn.remove_if_free();
            gate.remove_if_free();
        }
    }
}

impl SessionQueue {
    /// The queue of an agent without a session.
    pub(crate) fn of_agent(role: &str) -> Self {
        Self {
            name: format!("agent {role:?}"),
            locks: None,
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Waits for the turn of a call.
    pub(crate) fn turn(&self, limits: &TurnLimits<'_>) -> Result<SessionTurn<'_>, TurnFault> {
        let began = Instant::now();
        self.wait_in_process(began, limits)?;
        let mut turn = SessionTurn { queue: self, lock: None };
        turn.lock = self.lock_between_processes(began, limits)?;
        Ok(turn)
    }

    fn wait_in_process(&self, began: Instant, limits: &TurnLimits<'_>) -> Result<(), TurnFault> {
        let own = thread::current().id();
        let mut waiting = self.waiting();
        let would_wait_for_itself = |holder: &ThreadId| *holder == own || is_called_by(*holder);
        if waiting.holder.as_ref().is_some_and(would_wait_for_itself) {
            return Err(TurnFault::Reentered(self.name.clone()));
        }
        let ticket = waiting.next_ticket;
        waiting.next_ticket += 1;
        waiting.tickets.push_back(ticket);
        loop {
            if waiting.holder.is_none() && waiting.tickets.front() == Some(&ticket) {
                waiting.tickets.pop_front();
                waiting.holder = Some(own);
                return Ok(());
            }
            let is_held = waiting.holder.and_then(limits.observer_time) > Some(OBSERVER_LIMIT);
            let held = is_held.then(|| TurnFault::HeldByObserver(self.name.clone()));
            if let Err(fault) = held.map_or_else(|| self.check_wait(began, limits), Err) {
                waiting.tickets.retain(|it| *it != ticket);
                self.changed.notify_all();
                return Err(fault);
            }
            let waited = self.changed.wait_timeout(waiting, POLL_INTERVAL);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock_between_processes(
        &self,
        began: Instant,
        limits: &TurnLimits<'_>,
    ) -> Result<Option<LockGuard>, TurnFault> {
        let unusable = |error| TurnFault::Unusable(self.name.clone(), error);
        let Some(SessionLocks { gate, turn }) = self.locks.clone() else { return Ok(None) };
        let at_gate = gate.try_acquire().map_err(unusable)?;
        if at_gate.is_some()
            && let Some(lock) = turn.try_acquire().map_err(unusable)?
        {
            return Ok(Some(lock));
        }
        // The kernel queues the threads that wait for a lock, but a wait cannot be ended early. So another thread waits, and this
        // one checks the time. If this one has given up, the lock finds no receiver and is released at once.
        let (sender, receiver) = mpsc::sync_channel(0);
        let wait = move || {
            let _at_gate = match at_gate {
                Some(held) => held,
                None => gate.acquire()?,
            };
            turn.acquire()
        };
        let waiter = move || {
            let _ = sender.send(wait());
        };
        let spawned = thread::Builder::new().name("session-lock".to_owned()).spawn(waiter);
        spawned.map_err(unusable)?;
        loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(lock) => return lock.map(Some).map_err(unusable),
                Err(RecvTimeoutError::Timeout) => self.check_wait(began, limits)?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(unusable(io::Error::other("the waiting thread ended")));
                }
            }
        }
    }

    /// Fails if the call was cancelled, or has waited for too long.
    fn check_wait(&self, began: Instant, limits: &TurnLimits<'_>) -> Result<(), TurnFault> {
        if limits.cancellation.is_cancelled() {
            return Err(TurnFault::Cancelled(self.name.clone()));
        }
        if began.elapsed() >= limits.wait {
            return Err(TurnFault::TimedOut { name: self.name.clone(), waited: limits.wait });
        }
        Ok(())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn limits(cancellation: &Cancellation) -> TurnLimits<'_> {
        TurnLimits { wait: Duration::from_mins(5), cancellation, observer_time: &|_| None }
    }

    /// A call that waits for the holder of the turn, which waits for an observer, is refused long before its time.
    #[test]
    fn a_call_that_an_observer_may_wait_for_is_refused() {
        let queues = SessionQueues::default();
        let (queue, cancellation) = (queues.of("desk"), Cancellation::default());
        let turn = queue.turn(&limits(&cancellation)).unwrap();
        thread::scope(|scope| {
            let refused = scope.spawn(|| {
                let observer_time = |_| Some(OBSERVER_LIMIT * 2);
                let limits = TurnLimits { observer_time: &observer_time, ..limits(&cancellation) };
                queue.turn(&limits).map(drop).unwrap_err()
            });
            let refused = refused.join().unwrap();
            assert_eq!(refused.failure().kind, FailureKind::InvalidCall, "{refused}");
        });
        drop(turn);
        assert!(queue.turn(&limits(&cancellation)).is_ok(), "its place in the queue is free");
    }

    #[test]
    fn a_wait_has_its_limit() {
        let queues = SessionQueues::default();
        let (queue, cancellation) = (queues.of("desk"), Cancellation::default());
        let _turn = queue.turn(&limits(&cancellation)).unwrap();
        thread::scope(|scope| {
            let refused = scope.spawn(|| {
                let limits = TurnLimits { wait: Duration::ZERO, ..limits(&cancellation) };
                queue.turn(&limits).map(drop).unwrap_err()
            });
            let refused = refused.join().unwrap();
            assert_eq!(refused.failure().kind, FailureKind::ContextConflict);
            assert!(refused.to_string().contains("session_wait_seconds"), "{refused}");
        });
    }

    #[test]
    fn a_session_has_one_queue_while_anything_uses_it() {
        let queues = SessionQueues::default();
        let held = queues.of("desk");
        for other in 0..100 {
            drop(queues.of(&format!("s{other}")));
        }
        assert!(Arc::ptr_eq(&held, &queues.of("desk")));
        assert!(queues.queues.lock().unwrap().len() <= 2, "unused queues are dropped");
    }

    #[test]
    fn a_thread_that_has_the_turn_is_refused_another() {
        let queues = SessionQueues::default();
        let (queue, cancellation) = (queues.of("desk"), Cancellation::default());
        let turn = queue.turn(&limits(&cancellation)).unwrap();
        let refused = queue.turn(&limits(&cancellation)).unwrap_err();
        assert_eq!(refused.failure().kind, FailureKind::InvalidCall, "{refused}");
        drop(turn);
        assert!(queue.turn(&limits(&cancellation)).is_ok());
    }

    #[test]
    fn a_cancelled_call_stops_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let other = SessionQueues::new(Some(folder.path().to_owned()));
        let queues = SessionQueues::new(Some(folder.path().to_owned()));
        let (other, queue) = (other.of("desk"), queues.of("desk"));
        let held = other.turn(&limits(&Cancellation::default())).unwrap();
        let cancelled = Cancellation::default();
        cancelled.cancel();
        let refused = queue.turn(&limits(&cancelled)).unwrap_err();
        assert_eq!(refused.failure().kind, FailureKind::Cancelled);
        drop(held);
        assert!(queue.turn(&limits(&Cancellation::default())).is_ok());
    }

    /// Two sets of queues on one folder stand for two processes: the kernel distinguishes their files.
    #[test]
    fn turns_are_exclusive_between_threads_and_processes() {
        let folder = tempfile::tempdir().unwrap();
        let inside = AtomicUsize::new(0);
        let turns = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                let (inside, turns) = (&inside, &turns);
                let queues = Arc::new(SessionQueues::new(Some(folder.path().to_owned())));
                for _ in 0..3 {
                    let queues = Arc::clone(&queues);
                    scope.spawn(move || {
                        let queue = queues.of("desk");
                        for _ in 0..20 {
                            let _turn = queue.turn(&limits(&Cancellation::default())).unwrap();
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            turns.fetch_add(1, Ordering::SeqCst);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                    });
                }
            }
        });
        assert_eq!(turns.into_inner(), 3 * 3 * 20);
    }
}
