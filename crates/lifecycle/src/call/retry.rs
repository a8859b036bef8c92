//! What follows a rejection: another try, a repair, a last resort, or the end.

use serde_json::{Value, json};

use crate::attempt::{
    self, Attempt, Next, Origin, Reason, Rejection, RetryLane, StoredNext, spent,
};
use crate::dialect::is_same_program;
use crate::example::PersonRejection;
use crate::execution::Packages;
use crate::outcome::{Failure, FailureKind};
use crate::program::{Checksum, GeneratedProgram, VettedProgram};
use crate::provenance::Observation;

use super::generate::asked_wait;
use super::{Call, PendingAttempt, Step};

/// Repairs of one stored program before it is written from nothing again.
const REPAIRS_PER_LINEAGE: u32 = 3;

/// What a model must know to widen a stored program.
const WIDEN: &str = "this program works for its earlier calls and must give the same answers for them; write one that \
                     also takes these arguments, or that reports an error for them";

/// What an outcome says if a repair on trial gave it.
const ON_TRIAL: &str = "the stored program could not use what arrived from outside, in several calls in a row; this answer \
                        is that of a repair on trial";

/// A failure whose program could not be repaired: its own error first.
fn unrepaired(failure: Failure, repair: &Failure) -> Failure {
    let message = format!("{}; it could not be repaired ({repair})", failure.message);
    Failure { message, ..failure }
        .with("repair_error_type", repair.kind.code())
        .with("repair_error_message", repair.message.clone())
}

/// The failure of a program that may have sent something: running it again could send it twice.
fn not_run_again(rejection: &Rejection, sent: &[String]) -> Failure {
    let failure = rejection.failure.clone();
    let calls = if sent.is_empty() { "a request".to_owned() } else { sent.join(", ") };
    let message = format!(
        "{}; the program may have sent something ({calls}), so nothing was run again: check before calling again",
        failure.message
    );
    Failure { message, ..failure }.with("sent", json!(sent))
}

/// A program that may run, with advisory violations.
#[derive(Debug)]
pub(super) struct AdvisedProgram {
    pub(super) program: VettedProgram,
    pub(super) origin: Origin,
    pub(super) declared: Option<Value>,
}

impl Call {
    pub(super) fn reject(mut self, mut pending: PendingAttempt, rejection: &Rejection) -> Step {
        let rejection = &self.attributed(rejection);
        let code = rejection.program.as_ref().map(|program| program.source.clone());
        let (origin, feedback) = (pending.origin.clone(), pending.feedback.take());
        let (withheld, sent) = (pending.last_resort.clone(), pending.sent.clone());
        let is_written = !matches!(origin, Origin::Artifact(_));
        let goes_on =
            is_written && sent.is_none() && withheld.is_none() && rejection.reason.lane().is_some();
        if rejection.reason == Reason::Looked {
            self.waiting.clear(); // the programs that came with it have not seen the value either
        }
        let next = self.waiting.pop_front().filter(|_| goes_on);
        let attempt = pending.ended(Some(rejection.clone()), code);
        self.attempts.push(Attempt { superseded: next.is_some(), ..attempt });
        if let Some(payload) = next {
            let pending = PendingAttempt { origin, feedback, ..PendingAttempt::default() };
            return self.try_payload(payload, pending);
        }
        if let Some(sent) = sent {
            return self.end(Err(not_run_again(rejection, &sent)), None);
        }
        if let Some(withheld) = withheld {
            let own = || rejection.failure.clone();
            let failure = match origin {
                _ if rejection.reason.is_final() => own(),
                Origin::Artifact(_) => unrepaired(own(), &withheld),
                Origin::Repair { .. } | Origin::Fresh => *withheld,
            };
            return self.end(Err(failure), None);
        }
        if let Origin::Artifact(checksum) = origin {
            return self.replace_stored(checksum, rejection);
        }
        self.retry_or_end(rejection, origin, feedback)
    }

    /// Tries again, if the retry policy allows it; otherwise the call ends.
    fn retry_or_end(self, rejection: &Rejection, origin: Origin, feedback: Option<Value>) -> Step {
        // An earlier retry would be refused again; the caller may wait that long.
        let too_long = asked_wait(rejection).is_some_and(|wait| wait > self.policy.max_retry_delay);
        let next = match attempt::next(&self.attempts, rejection, &self.policy.budgets) {
            Next::Again { .. } if too_long => Next::End(Box::new(rejection.failure.clone())),
            next @ (Next::Again { .. } | Next::End(_)) => next,
        };
        match next {
            // The service failed: the next try gets the same feedback as this one.
            Next::Again { .. } if rejection.reason.is_transport() => {
                self.generate(origin, feedback)
            }
            // Nothing was wrong: the next prompt shows the value.
            Next::Again { .. } if rejection.reason == Reason::Looked => self.generate(origin, None),
            Next::Again { remaining } => {
                let feedback = rejection.feedback(remaining, &self.policy.guardrails);
                self.generate(origin, Some(feedback))
            }
            Next::End(failure) if rejection.reason.is_final() => self.end(Err(*failure), None),
            // A program that gave no result did not fail either: the caller gets its null, and nothing is kept.
            Next::End(_) if self.gave_no_result() => {
                let note = format!(
                    "the value is null because no program gave a result, and none was kept ({})",
                    rejection.failure.message
                );
                self.end_noted(Ok(Value::Null), None, vec![note])
            }
            Next::End(failure) => self.settle(failure),
        }
    }

    /// What the outcome must say if the stored program may have to follow a change; `None`: nothing.
    pub(super) fn trial_note(&self) -> Option<String> {
        let is_it = |rejection: &Rejection| rejection.reason == Reason::AnswerChanged;
        let mut rejections = self.attempts.iter().filter_map(|attempt| attempt.rejection.as_ref());
        rejections.any(is_it).then(|| ON_TRIAL.to_owned())
    }

    /// Whether a program of this call ended without a result.
    pub(super) fn gave_no_result(&self) -> bool {
        let mut rejections = self.attempts.iter().filter_map(|attempt| attempt.rejection.as_ref());
        rejections.any(|rejection| rejection.reason == Reason::NoResult)
    }

    /// No better program comes: one that was advised against or is degraded runs, or the call fails.
    fn settle(mut self, failure: Box<Failure>) -> Step {
        if let Some(advised) = self.advised.take() {
            return self.settle_for(*advised, failure);
        }
        if let Some(artifact) = self.fallback.take() {
            return self.run_stored(*artifact, Some(failure), &[]);
        }
        let failure = self.first_failure(*failure);
        self.end(Err(failure), None)
    }

    /// The failure of the stored program, if none that replaces it could be obtained: the real error comes first.
    fn first_failure(&self, last: Failure) -> Failure {
        let Some((first, later)) = self.attempts.split_first() else { return last };
        let stored = matches!(first.origin, Origin::Artifact(_));
        let Some(rejection) = first.rejection.as_ref().filter(|_| stored) else { return last };
        let widened = rejection.reason.row().stored == StoredNext::Widen;
        let none_ran = later.iter().all(|attempt| attempt.worker.is_none());
        if widened || none_ran { unrepaired(rejection.failure.clone(), &last) } else { last }
    }

    /// What a program that just ran may have sent; `None`: nothing.
    pub(super) fn sent(
        &self,
        program: &VettedProgram,
        observed: &Observation,
    ) -> Option<Vec<String>> {
        let has_network = self.policy.access.has_network();
        let inspection = program.inspection();
        let own =
            (has_network && observed.may_have_sent(inspection)).then(|| inspection.sending_calls());
        match (own, &observed.sent) {
            (Some(own), by_tools) => {
                Some(own.into_iter().chain(by_tools.iter().flatten().cloned()).collect())
            }
            (None, by_tools) => by_tools.clone(),
        }
    }

    /// A right answer is never lost to advice: the advised program runs before the call fails.
    fn settle_for(self, advised: AdvisedProgram, withheld: Box<Failure>) -> Step {
        let AdvisedProgram { program, origin, declared } = advised;
        let packages = Packages { declared, ..Packages::default() };
        let pending = PendingAttempt {
            origin,
            packages,
            last_resort: Some(withheld),
            ..PendingAttempt::default()
        };
        self.prepare(program, pending)
    }

    /// A failure about packages names the agent and the method.
    fn attributed(&self, rejection: &Rejection) -> Rejection {
        let mut rejection = rejection.clone();
        if rejection.failure.kind.concerns_packages() {
            let metadata = &mut rejection.failure.metadata;
            metadata.insert("specialist_role".to_owned(), self.request.role.as_str().into());
            metadata.insert("method_name".to_owned(), self.request.method.as_str().into());
        }
        rejection
    }

    /// A stored program failed. An extrinsic failure or a terminal rule ends the call; otherwise the program is repaired,
    /// a few times, then rewritten.
    fn replace_stored(self, checksum: Checksum, rejection: &Rejection) -> Step {
        let ran = self.attempts.last().is_some_and(|attempt| attempt.worker.is_some());
        let ends = match rejection.reason.row().stored {
            StoredNext::Ends => true,
            StoredNext::Repair => false,
            // A program stored before the rule was terminal did nothing wrong in this call if it did not run; ending the
            // call would end every call of the method from now on.
            StoredNext::RepairUnlessRan => ran,
            StoredNext::Widen => !self.policy.widen,
        };
        if ends {
            return self.end(Err(rejection.failure.clone()), None);
        }
        let widens = rejection.reason.row().stored == StoredNext::Widen;
        let repairs = self.selected.as_ref().map_or(0, |artifact| artifact.repairs);
        let origin = if widens {
            Origin::Repair { of: checksum, number: repairs }
        } else if repairs < REPAIRS_PER_LINEAGE {
            Origin::Repair { of: checksum, number: repairs + 1 }
        } else {
            Origin::Fresh
        };
        if rejection.reason == Reason::Looked {
            return self.generate(origin, None);
        }
        let lane = rejection.reason.lane().unwrap_or(RetryLane::Guardrail);
        let mut feedback =
            rejection.feedback(self.policy.budgets.of(lane), &self.policy.guardrails);
        if let (true, Value::Object(block)) = (widens, &mut feedback) {
            block.insert("widen".to_owned(), WIDEN.into());
        }
        self.generate(origin, Some(feedback))
    }

    /// A program equal to a rejected one, apart from comments and layout, is not run again: it costs a try, and the failure says so.
    pub(super) fn repeats(&self, program: &GeneratedProgram) -> Option<Rejection> {
        if let Some(rejection) = self.rejected_before(program) {
            return Some(rejection);
        }
        // A stored program may have failed because of its kept worker's state: it may run once more in a new one.
        let written = |attempt: &&Attempt| !matches!(attempt.origin, Origin::Artifact(_));
        let is_same = |rejection: &&Rejection| {
            let rejected = rejection.program.as_ref();
            let is_same = |rejected: &GeneratedProgram| {
                rejected.manifest == program.manifest
                    && is_same_program(program.language, &rejected.source, &program.source)
            };
            rejected.is_some_and(is_same) && !rejection.is_advice(&self.policy.guardrails)
        };
        let rejected = self.attempts.iter().filter(written).filter_map(|a| a.rejection.as_ref());
        rejected.rev().find(is_same).map(|rejection| rejection.clone().again())
    }

    /// A text that a person rejected is not run again.
    fn rejected_before(&self, program: &GeneratedProgram) -> Option<Rejection> {
        let is_it = |rejected: &&PersonRejection| rejected.is_of(program.language, &program.source);
        let found = self.rejected.iter().find(is_it)?;
        let because = match found.because.as_str() {
            "" => String::new(),
            because => format!(" ({because})"),
        };
        let message = format!(
            "a person rejected this program{because}; write a different one, not only its comments or layout"
        );
        let failure = Failure::new(FailureKind::InvalidCode, message);
        Some(Rejection {
            program: Some(program.clone()),
            ..Rejection::new(Reason::PayloadInvalid, failure)
        })
    }

    /// Advice is given once, while a guardrail retry is left; then the program may run as it is.
    pub(super) fn sends_back(&self, program: &VettedProgram, pending: &PendingAttempt) -> bool {
        let stored = matches!(pending.origin, Origin::Artifact(_));
        let advised = self.attempts.iter().filter_map(|attempt| attempt.rejection.as_ref());
        let left = spent(&self.attempts, RetryLane::Guardrail) < self.policy.budgets.guardrail;
        !stored
            && left
            && !program.advice().is_empty()
            && !advised.into_iter().any(|r| r.is_advice(&self.policy.guardrails))
    }
}
