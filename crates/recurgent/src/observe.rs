//! Watching calls: live events for observers, one log line per call. Neither can change or break a call.

mod log;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use lifecycle::request::CallRequest;

pub use lifecycle::event::{Event, EventKind, Subject};
pub use log::set_aside_files;
pub(crate) use log::{Log, LogLimits, LogRequest, TreeShare};

/// Receives the events of calls under way.
pub trait Observer: Send + Sync {
    /// Something happened. Must return soon; may not fail.
    fn event(&self, event: &Event);
}

/// Every observer.
#[derive(Default)]
pub(crate) struct Observers {
    observers: Vec<Box<dyn Observer>>,
    /// The threads that run observers, and since when.
    notifying: Mutex<Vec<(ThreadId, Instant)>>,
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.observers.len())
    }
}

impl Observers {
    pub(crate) fn add(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    pub(crate) fn are_any(&self) -> bool {
        !self.observers.is_empty()
    }

    /// How long this thread has been running an observer; `None`: it runs none.
    pub(crate) fn observer_time(&self, thread: ThreadId) -> Option<Duration> {
        let notifying = self.notifying();
        notifying.iter().find(|(known, _)| *known == thread).map(|(_, since)| since.elapsed())
    }

    fn notifying(&self) -> MutexGuard<'_, Vec<(ThreadId, Instant)>> {
        self.notifying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies every observer; one that panics is ignored. `kind` is made only if there is an observer.
    pub(crate) fn notify(&self, request: &CallRequest, kind: impl FnOnce() -> EventKind) {
        if self.observers.is_empty() {
            return;
        }
        let event = Event { subject: Subject::of(request), kind: kind() };
        let own = thread::current().id();
        self.notifying().push((own, Instant::now()));
        for observer in &self.observers {
            let _ = catch_unwind(AssertUnwindSafe(|| observer.event(&event)));
        }
        let mut notifying = self.notifying();
        if let Some(last) = notifying.iter().rposition(|(thread, _)| *thread == own) {
            notifying.swap_remove(last);
        }
    }
}
