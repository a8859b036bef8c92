//! An attempt while it is made: what is known of it before it is accepted or rejected.

use std::time::Duration;

use serde_json::Value;

use crate::agreement::Agreement;
use crate::artifact::RunVerdict;
use crate::attempt::{Attempt, Origin, Rejection};
use crate::execution::{Output, Packages, ResultFrom, WorkerTrace};
use crate::inference::InferenceRecord;
use crate::outcome::Failure;
use crate::pattern::Capabilities;
use crate::provenance::Observation;

/// An attempt under way.
#[derive(Debug, Default)]
pub(super) struct PendingAttempt {
    pub(super) origin: Origin,
    /// Whether its stored program was accepted with arguments of this shape; `None`: the program is new.
    pub(super) proven: Option<bool>,
    /// Whether its stored program may have to follow a change of what a service answers.
    pub(super) answers_changed: bool,
    /// What its accepted error says of a stored program, if that is the world's fault.
    pub(super) excused: Option<RunVerdict>,
    /// What the program may have sent, once it ran: then no program runs again in this call.
    pub(super) sent: Option<Vec<String>>,
    /// The feedback in the prompt.
    pub(super) feedback: Option<Value>,
    pub(super) took: Duration,
    /// The model's part of it.
    pub(super) generation: Duration,
    /// The program's text, if it never became a program because of another part of its payload.
    pub(super) code: Option<String>,
    pub(super) packages: Packages,
    pub(super) capabilities: Capabilities,
    pub(super) output: Output,
    pub(super) worker: Option<WorkerTrace>,
    pub(super) result_from: Option<ResultFrom>,
    pub(super) observed: Observation,
    /// What its program asked a model.
    pub(super) inferences: Vec<InferenceRecord>,
    /// What the outcome must say of its run, if it is accepted.
    pub(super) notes: Vec<String>,
    /// How many programs agreed with it, if several were written.
    pub(super) agreement: Option<Agreement>,
    /// The failure of the call if this attempt fails too: it runs only because no better program could be obtained.
    pub(super) last_resort: Option<Box<Failure>>,
}

impl PendingAttempt {
    /// What the outcome must say of the program, if it is accepted.
    pub(super) fn notes(&mut self) -> Vec<String> {
        let is_stored = matches!(self.origin, Origin::Artifact(_));
        let degraded = self.last_resort.as_ref().filter(|_| is_stored).map(|withheld| {
            format!(
                "the stored program is degraded; it ran because no better one could be obtained ({withheld})"
            )
        });
        degraded.into_iter().chain(std::mem::take(&mut self.notes)).collect()
    }

    pub(super) fn ended(self, rejection: Option<Rejection>, code: Option<String>) -> Attempt {
        Attempt {
            origin: self.origin,
            rejection,
            code: code.or(self.code),
            packages: self.packages,
            capabilities: self.capabilities,
            output: self.output,
            worker: self.worker,
            result_from: self.result_from,
            observed: self.observed,
            inferences: self.inferences,
            sent: self.sent,
            excused: self.excused,
            took: self.took,
            agreement: self.agreement,
            generation: self.generation,
            last_resort: self.last_resort.is_some(),
            superseded: false,
        }
    }
}
