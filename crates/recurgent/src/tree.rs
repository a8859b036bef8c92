//! What a whole call tree shares: one allowance, one way to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lifecycle::draft::DraftFault;
use lifecycle::request::Allowance;

use crate::guest::Cancellation;

/// How often a waiting call looks whether it was cancelled.
const GLANCE: Duration = Duration::from_millis(25);

/// Shared by a root call and every call under it.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    allowance: Allowance,
    model_calls: Arc<AtomicU32>,
    pub(crate) cancellation: Cancellation,
}

impl Tree {
    pub(crate) fn new(allowance: Allowance, cancellation: Cancellation) -> Self {
        Self { allowance, model_calls: Arc::default(), cancellation }
    }

    /// The same tree, seen by a child whose own allowance may be narrower.
    pub(crate) fn narrowed(&self, allowance: Allowance) -> Self {
        Self { allowance, ..self.clone() }
    }

    /// Takes one model call from the allowance before it is made.
    pub(crate) fn reserve_model_call(&self) -> Result<(), DraftFault> {
        let limit = self.allowance.model_calls;
        let taken = self.model_calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |spent| {
            (spent < limit).then_some(spent + 1)
        });
        taken.map(drop).map_err(|spent| {
            DraftFault::AllowanceSpent(format!(
                "this call tree has made {spent} model calls and its allowance is {limit}; raise max_model_calls"
            ))
        })
    }

    /// Waits, with a little jitter so that many callers do not return at once.
    pub(crate) fn pause(&self, wait: Duration) -> Result<(), DraftFault> {
        let end =
            Instant::now() + wait.mul_f64(1.0 + f64::from(crate::identity::random_byte()) / 1024.0);
        loop {
            if self.cancellation.is_cancelled() {
                return Err(DraftFault::Cancelled);
            }
            match end.checked_duration_since(Instant::now()) {
                None => return Ok(()),
                Some(left) => std::thread::sleep(left.min(GLANCE)),
            }
        }
    }
}
