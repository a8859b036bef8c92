//! How a call ends: its changes committed together, its outcome given.

use std::time::Duration;

use crate::artifact::{Artifact, ArtifactKey, Trigger};
use crate::attempt::{Attempt, Budgets, Origin, Reason};
use crate::context::Context;
use crate::draft::Usage;
use crate::event::EventKind;
use crate::guardrail::GuardrailPolicy;
use crate::outcome::{Failure, FailureKind, Outcome, UnexpectedAnswer};
use crate::pattern::{self, PatternEvent};
use crate::program::Checksum;
use crate::request::CallRequest;
use crate::select::Miss;
use crate::settlement::{self, Accepted, Changes, FinishedCall, Kept, Receipt, Timing};
use crate::standing::StandingMode;

use super::{Call, StoreFault};

/// Write everything the call changes, in one transaction.
#[derive(Debug)]
pub struct Commit {
    pub(super) call: Call,
    pub(super) outcome: Outcome,
    pub(super) accepted: Option<Accepted>,
    pub(super) receipt: Receipt,
    /// The accepted attempt could not be committed.
    pub(super) uncommitted: bool,
}

impl Commit {
    /// The call that ends.
    pub fn request(&self) -> &CallRequest {
        &self.call.request
    }

    /// The outcome, should the commit succeed.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Every try, in order.
    pub fn attempts(&self) -> &[Attempt] {
        &self.call.attempts
    }

    /// Answers that were not the value that the caller expects.
    pub fn unexpected(&self) -> Vec<UnexpectedAnswer> {
        let answer = |attempt: &Attempt| {
            let rejection = attempt.rejection.as_ref()?;
            let program = rejection.program.as_ref()?;
            let is_stored = matches!(attempt.origin, Origin::Artifact(_));
            let observed = &attempt.observed;
            let is_own = !observed.agent_answered && (is_stored || observed.reached_nothing());
            let answer = UnexpectedAnswer { program: Checksum::of(&program.source), is_own };
            (rejection.reason == Reason::ExpectationMissed).then_some(answer)
        };
        self.call.attempts.iter().filter_map(answer).collect()
    }

    /// Whether the caller is given the answer of an attempt.
    pub fn is_accepted(&self) -> bool {
        self.accepted.is_some() && self.outcome.is_ok()
    }

    /// The attempt that was accepted.
    pub fn accepted(&self) -> Option<&Accepted> {
        self.accepted.as_ref()
    }

    /// The stored program that was tried, or why none was.
    pub fn selected(&self) -> Result<&Artifact, Miss> {
        self.call.selected.as_ref().map_err(|miss| *miss)
    }

    /// Why the last program was written; `None`: it came from storage, or there is none.
    pub fn trigger(&self) -> Option<Trigger> {
        let last = self.call.attempts.last()?;
        settlement::trigger(&last.origin, self.selected(), &self.call.attempts)
    }

    /// Examples of the call, and how many of them the last program was run on.
    pub fn examples(&self) -> (usize, usize) {
        (self.call.examples.len(), self.call.examples_checked)
    }

    /// Model calls this call made itself.
    pub fn model_calls(&self) -> u32 {
        self.call.model_calls
    }

    /// Model calls its programs made by asking about data.
    pub fn inference_calls(&self) -> u32 {
        let records = self.call.attempts.iter().flat_map(|attempt| &attempt.inferences);
        records.map(|record| record.model_calls).sum()
    }

    /// What all of them cost.
    pub fn usage(&self) -> Usage {
        self.call.usage
    }

    /// Whether a program that ran to its end had changed memory or forged tools, and the call keeps nothing of it.
    pub fn dropped_changes(&self) -> bool {
        let changed =
            |accepted: &Accepted| !accepted.changes.is_empty() || !accepted.forged.is_empty();
        !self.outcome.is_ok() && (self.uncommitted || self.accepted.as_ref().is_some_and(changed))
    }

    /// The retry budgets of this call.
    pub fn budgets(&self) -> &Budgets {
        &self.call.policy.budgets
    }

    /// The guardrail policy of this call.
    pub fn guardrails(&self) -> &GuardrailPolicy {
        &self.call.policy.guardrails
    }

    /// Whether standings decide what runs.
    pub fn standing_mode(&self) -> StandingMode {
        self.call.policy.standing_mode
    }

    /// What the store made of it; empty until then.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The event of its end.
    pub fn event(&self, took: Duration) -> EventKind {
        EventKind::Ended {
            outcome: Box::new(self.outcome.clone()),
            from_storage: self.call.model_calls == 0 && self.call.selected.is_ok(),
            model_calls: self.call.model_calls,
            took,
        }
    }

    /// What the store must make true.
    pub fn changes(&self, timing: &Timing) -> Changes {
        let call = FinishedCall {
            request: &self.call.request,
            selected: self.selected(),
            attempts: &self.call.attempts,
            accepted: self.accepted.as_ref(),
            outcome: &self.outcome,
            answers: &self.call.answers,
        };
        settlement::changes(&call, self.observed(timing), timing)
    }

    /// What pattern memory keeps of the call.
    pub fn observed(&self, timing: &Timing) -> PatternEvent {
        let earlier = self.call.earlier.as_ref();
        pattern::event(&self.call.request, &self.outcome, &self.call.attempts, earlier, timing)
    }

    /// What the program changed could not be copied to the workspace: its answer is not given, and nothing of it is kept.
    #[must_use]
    pub fn not_copied(mut self, problem: NotCopied) -> Self {
        self.outcome.result = Err(problem.into_failure());
        self.uncommitted = self.accepted.take().is_some();
        self
    }

    /// The store's answer. A call that could not be committed did not happen.
    #[must_use]
    pub fn committed(mut self, answer: Result<Receipt, StoreFault>) -> Settled {
        match answer {
            Ok(receipt) => self.receipt = receipt,
            Err(fault) if self.outcome.is_ok() => {
                self.outcome.result = Err(fault.into_failure());
                self.uncommitted = self.accepted.take().is_some();
            }
            Err(_) => {}
        }
        Settled(self)
    }
}

/// A call that is over.
#[derive(Debug)]
pub struct Settled(Commit);

/// Why what an accepted program changed was not copied to its workspace.
#[derive(Debug)]
pub struct NotCopied {
    /// The workspace.
    pub workspace: String,
    /// What stood in the way.
    pub problem: String,
}

impl NotCopied {
    fn into_failure(self) -> Failure {
        let Self { workspace, problem } = self;
        let message =
            format!("the answer's changes of {workspace} could not be copied to it: {problem}");
        Failure::new(FailureKind::WorkspaceUnusable, message).with("workspace", workspace)
    }
}

impl Settled {
    /// What the program changed could not be copied to the workspace, so there is no answer.
    #[must_use]
    pub fn not_copied(self, problem: NotCopied) -> Self {
        Self(self.0.not_copied(problem))
    }

    /// Everything known of it.
    pub fn commit(&self) -> &Commit {
        &self.0
    }

    /// A version that waits for its trial, and what it is stored under.
    pub fn challenger(&self) -> Option<(ArtifactKey, &Checksum)> {
        let made = &self.0.receipt;
        // A new program that took over, or waits itself, leaves no older one waiting.
        if made.admission.is_some() {
            let challenger = made.challenger.as_ref()?;
            return Some((ArtifactKey::of(&self.0.call.request), challenger));
        }
        let artifact = self.0.call.selected.as_ref().ok()?;
        let challenger = artifact.track_record.challenger.as_ref()?;
        Some((artifact.key(), challenger))
    }

    /// The agent's memory as the call leaves it.
    pub fn context_after(&self) -> Context {
        let mut context = self.0.call.request.context.clone();
        let kept = self.0.accepted.as_ref().filter(|_| self.0.outcome.is_ok());
        context.apply(kept.map(|accepted| accepted.changes.clone()).unwrap_or_default());
        context
    }

    /// Its outcome, and what its agent keeps: memory, tools, and the packages its environment now holds.
    pub fn into_parts(self) -> (Outcome, Option<Kept>) {
        let Commit { outcome, accepted, .. } = self.0;
        let kept = accepted.filter(|_| outcome.is_ok()).map(Kept::from);
        (outcome, kept)
    }
}
