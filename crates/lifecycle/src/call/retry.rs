//! What follows a rejection: another try, a repair, a last resort, or the end.

use serde_json::Value;

use crate::attempt::{self, Attempt, Next, Origin, Reason, Rejection, RetryLane, spent};
use crate::execution::Packages;
use crate::outcome::{Cause, Failure};
use crate::program::{Checksum, GeneratedProgram, VettedProgram};

use super::generate::{LONGEST_PAUSE, asked_wait};
use super::{Call, Step, Underway};

/// Repairs of one stored program before it is written from nothing again.
const REPAIRS_PER_LINEAGE: u32 = 3;

/// A program that may run as it is, and would rather be better.
#[derive(Debug)]
pub(super) struct Advised {
    pub(super) program: VettedProgram,
    pub(super) origin: Origin,
    pub(super) declared: Option<Value>,
}

impl Call {
    pub(super) fn reject(mut self, mut underway: Underway, rejection: &Rejection) -> Step {
        let rejection = &self.attributed(rejection);
        let code = rejection.program.as_ref().map(|program| program.source.clone());
        let (origin, told) = (underway.origin.clone(), underway.told.take());
        let withheld = underway.last_resort.clone();
        self.attempts.push(underway.ended(Some(rejection.clone()), code));
        if let Origin::Artifact(checksum) = origin {
            return self.replace_stored(checksum, rejection);
        }
        if let Some(withheld) = withheld {
            let own = rejection.reason.is_final().then(|| rejection.failure.clone());
            return self.end(Err(own.unwrap_or(*withheld)), None);
        }
        // To come back sooner than asked would be refused again; who called may wait that long.
        let too_long = asked_wait(rejection).is_some_and(|wait| wait > LONGEST_PAUSE);
        let next = match attempt::next(&self.attempts, rejection, &self.policy.budgets) {
            Next::Again { .. } if too_long => Next::End(Box::new(rejection.failure.clone())),
            next @ (Next::Again { .. } | Next::End(_)) => next,
        };
        match next {
            // The service failed: the next try is told what this one was.
            Next::Again { .. } if rejection.reason.is_transport() => self.generate(origin, told),
            Next::Again { remaining } => {
                let feedback = rejection.feedback(remaining, &self.policy.guardrails);
                self.generate(origin, Some(feedback))
            }
            Next::End(failure) => match self.advised.take() {
                Some(advised) if !rejection.reason.is_final() => self.settle_for(*advised, failure),
                _ => self.end(Err(*failure), None),
            },
        }
    }

    /// A right answer is never lost to style: what was sent back for it runs before the call fails.
    fn settle_for(self, advised: Advised, withheld: Box<Failure>) -> Step {
        let Advised { program, origin, declared } = advised;
        let packages = Packages { declared, ..Packages::default() };
        let underway =
            Underway { origin, packages, last_resort: Some(withheld), ..Underway::default() };
        self.prepare(program, underway)
    }

    /// A failure about packages says whose call it was.
    fn attributed(&self, rejection: &Rejection) -> Rejection {
        let mut rejection = rejection.clone();
        if rejection.failure.kind.concerns_packages() {
            let metadata = &mut rejection.failure.metadata;
            metadata.insert("specialist_role".to_owned(), self.request.role.as_str().into());
            metadata.insert("method_name".to_owned(), self.request.method.as_str().into());
        }
        rejection
    }

    /// A stored program failed. The world's fault and a terminal rule end the call; its own is mended, a few
    /// times, then rewritten.
    fn replace_stored(self, checksum: Checksum, rejection: &Rejection) -> Step {
        let ends =
            rejection.reason.lane().is_none() || rejection.failure.kind.cause() == Cause::Extrinsic;
        // Stored before the rule was terminal, or was there at all. It did not run, so this call did nothing
        // wrong yet; ending it would end every call of the method from now on.
        let ran = self.attempts.last().is_some_and(|attempt| attempt.worker.is_some());
        let outdated = rejection.reason == Reason::BarredForGood && !ran;
        if ends && !outdated {
            return self.end(Err(rejection.failure.clone()), None);
        }
        let repairs = self.selected.as_ref().map_or(0, |artifact| artifact.repairs);
        let origin = if repairs < REPAIRS_PER_LINEAGE {
            Origin::Repair { of: checksum, number: repairs + 1 }
        } else {
            Origin::Fresh
        };
        let lane = rejection.reason.lane().unwrap_or(RetryLane::Guardrail);
        let feedback = rejection.feedback(self.policy.budgets.of(lane), &self.policy.guardrails);
        self.generate(origin, Some(feedback))
    }

    /// A rejected program again, unchanged, is not run again: it costs a try and says so.
    pub(super) fn repeats(&self, program: &GeneratedProgram) -> Option<Rejection> {
        // A stored program may have failed by what its kept worker had become: it is run once more, alone.
        let written = |attempt: &&Attempt| !matches!(attempt.origin, Origin::Artifact(_));
        let is_same = |rejection: &&Rejection| {
            rejection.program.as_ref() == Some(program)
                && !rejection.is_advice(&self.policy.guardrails)
        };
        let rejected = self.attempts.iter().filter(written).filter_map(|a| a.rejection.as_ref());
        rejected.rev().find(is_same).map(|rejection| rejection.clone().again())
    }

    /// Advice is given once, while a guardrail retry is left; then the program may run as it is.
    pub(super) fn sends_back(&self, program: &VettedProgram, underway: &Underway) -> bool {
        let stored = matches!(underway.origin, Origin::Artifact(_));
        let advised = self.attempts.iter().filter_map(|attempt| attempt.rejection.as_ref());
        let left = spent(&self.attempts, RetryLane::Guardrail) < self.policy.budgets.guardrail;
        !stored
            && left
            && !program.advice().is_empty()
            && !advised.into_iter().any(|r| r.is_advice(&self.policy.guardrails))
    }
}
