//! What a finished call writes: one set of changes, committed together or not at all.

use std::time::Duration;

use serde_json::{Value, json};

use crate::admission::{Admission, Case, is_sampled};
use crate::artifact::{
    Artifact, ArtifactChange, ArtifactKey, Author, Generation, RUNTIME_VERSION, RunVerdict,
    ShapeDigest, TrackRecord, Trigger, TriggerFailure,
};
use crate::attempt::{Attempt, Origin, Reason, Rejection, RetryLane, StoredNext};
use crate::blame::Blame;
use crate::context::ContextChanges;
use crate::contract::Fingerprint;
use crate::dependency::DependencyManifest;
use crate::execution::ResultFrom;
use crate::guardrail::Cacheability;
use crate::history::{self, Content};
use crate::inference::KeptAnswer;
use crate::outcome::Outcome;
use crate::pattern::PatternEvent;
use crate::program::{Checksum, VettedProgram};
use crate::purity::is_pure;
use crate::redact::{NamedSecrets, redacted_text};
use crate::request::CallRequest;
use crate::select::Miss;
use crate::standing::{Decision, Standing, Window};
use crate::tool::{Tool, ToolCount};

/// The error type by which a tool reports that it was asked for the work of another tool.
pub(crate) const WRONG_BOUNDARY: &str = "wrong_tool_boundary";
/// Characters kept of the failure a program was written for.
const MAX_FAILURE_CHARS: usize = 400;

/// When a call ended and how long it took, by the clock of `recurgent`.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// RFC 3339, UTC.
    pub timestamp: String,
    /// The same, in milliseconds since 1970.
    pub since_epoch_ms: u64,
    /// From request to settlement.
    pub duration: Duration,
}

impl Timing {
    /// In milliseconds, to a tenth.
    pub fn duration_ms(&self) -> f64 {
        milliseconds(self.duration)
    }

    /// When the call began, in milliseconds since 1970.
    pub fn began_ms(&self) -> u64 {
        let took = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        self.since_epoch_ms.saturating_sub(took)
    }
}

/// In milliseconds, to a tenth.
pub(crate) fn milliseconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 10_000.0).round() / 10.0
}

/// An attempt that was accepted, and what it leaves behind.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// Its program.
    pub program: VettedProgram,
    /// Where that came from.
    pub origin: Origin,
    /// What its agent's environment now holds.
    pub manifest: DependencyManifest,
    /// What it did to memory.
    pub changes: ContextChanges,
    /// Tools it forged.
    pub forged: Vec<Tool>,
    /// How its program gave the result.
    pub result_from: ResultFrom,
}

impl Accepted {
    /// Whether its program may serve other calls of its method, and why.
    pub fn cacheability(&self, request: &CallRequest) -> Cacheability {
        self.program.cacheability(request, self.result_from)
    }
}

/// What a successful call adds to memory, tools and packages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// Changes to the agent's memory.
    pub context: ContextChanges,
    /// Tools that become durable.
    pub tools: Vec<Tool>,
    /// What the agent's environment holds from now on.
    pub manifest: DependencyManifest,
}

impl From<Accepted> for Kept {
    fn from(accepted: Accepted) -> Self {
        Self { context: accepted.changes, tools: accepted.forged, manifest: accepted.manifest }
    }
}

/// Everything the store writes in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// Memory and tools; `None`: a failed call keeps nothing.
    pub kept: Option<Kept>,
    /// Evidence about stored programs.
    pub artifacts: Vec<ArtifactChange>,
    /// The accepted call, if later versions must reproduce it.
    pub case: Option<Case>,
    /// The shape of its arguments, if the call was accepted.
    pub shape: Option<ShapeDigest>,
    /// The history record.
    pub record: Value,
    /// Values to refer to later.
    pub contents: Vec<Content>,
    /// Values kept before this time (RFC 3339, UTC) are kept no longer; `recurgent` sets it by its clock and setting.
    pub contents_kept_since: Option<String>,
    /// The lane that was spent, if the call ended because of it: pressure on the program and its tool.
    pub exhausted: Option<RetryLane>,
    /// What pattern memory keeps of it.
    pub event: PatternEvent,
    /// What it counts as, if its role is a tool.
    pub counted: ToolCount,
    /// The contract that the stored program which ran was made under, if it is not the call's.
    pub stored_under: Option<Fingerprint>,
    /// Answers of a model to keep for later calls, whether the call was accepted or not: they are paid for.
    pub answers: Vec<KeptAnswer>,
    /// Bytes that all kept answers may take (`infer_cache_mb`); `recurgent` sets it.
    pub answers_bytes: u64,
}

impl Changes {
    /// Removes values that were named as secrets from what is kept to be read: the record, the contents, the words
    /// of the arguments, the failure a new version was written for, and a recorded call that holds one. The agent's
    /// memory is not redacted.
    pub fn remove_secrets(&mut self, secrets: &NamedSecrets) {
        if secrets.is_empty() {
            return;
        }
        for field in ["args", "kwargs", "outcome_summary"] {
            if let Some(value) = self.record.get_mut(field) {
                *value = secrets.out_of(value.take());
            }
        }
        self.case = self.case.take().filter(|case| !secrets.are_in(&json!(case.inputs)));
        self.event.argument_words.retain(|word| !secrets.contain(word));
        for value in self.event.argument_values.values_mut().filter(|value| secrets.are_in(value)) {
            *value = Value::Null;
        }
        for change in &mut self.artifacts {
            if let ArtifactChange::Admit(generation) = change
                && let Some(failure) = &mut generation.failure
            {
                failure.message = secrets.out_of_text(std::mem::take(&mut failure.message));
            }
        }
        self.answers.retain(|kept| !secrets.are_in(&kept.answer));
        for content in &mut self.contents {
            content.payload = secrets.out_of_text(std::mem::take(&mut content.payload));
        }
    }
}

/// The result of committing [`Changes`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Receipt {
    /// What became of a new program.
    pub admission: Option<Admission>,
    /// What the record of the stored program that ran now makes of it.
    pub decision: Option<Decision>,
    /// The version that waits for its trial, if there is one.
    pub challenger: Option<Checksum>,
    /// Programs ever made under the call's key, when one was added.
    pub generations: Option<u32>,
    /// Records of the owner's history, the call's own included.
    pub history_count: Option<u64>,
    /// Stored values that were evicted.
    pub contents_evicted: u64,
}

/// What happened in a call that is about to be settled.
#[derive(Debug, Clone, Copy)]
pub struct FinishedCall<'a> {
    /// The call.
    pub request: &'a CallRequest,
    /// The stored program that was tried, or why none was.
    pub selected: Result<&'a Artifact, Miss>,
    /// Every try, in order.
    pub attempts: &'a [Attempt],
    /// The one that was accepted.
    pub accepted: Option<&'a Accepted>,
    /// What the caller gets.
    pub outcome: &'a Outcome,
    /// New answers of a model to questions of its programs.
    pub answers: &'a [KeptAnswer],
}

/// Derives the changes from what happened.
pub fn changes(call: &FinishedCall<'_>, event: PatternEvent, timing: &Timing) -> Changes {
    let FinishedCall { request, attempts, outcome, .. } = *call;
    let accepted = call.accepted.filter(|_| outcome.is_ok());
    let program = accepted.map(|accepted| accepted.program.checksum());
    let contents = Content::of(request, outcome);
    let exhausted = exhausted(attempts);
    let mut artifacts = scores(call, exhausted);
    let blames = |change: &ArtifactChange| matches!(change, ArtifactChange::Score { verdict, .. } if verdict.counts_against());
    if artifacts.iter().any(blames) {
        artifacts.extend(repair_written(attempts));
    }
    // Before the new program is admitted: what a wrong program answered does not bind its successor.
    artifacts.extend(misses_example(attempts).then_some(ArtifactChange::VoidCases));
    artifacts.extend(accepted.and_then(|accepted| admit(call, accepted)));
    let mut kept = accepted.cloned().map(Kept::from);
    if let (1.., Some(kept)) = (request.lineage.depth(), &mut kept) {
        // What a nested call forged becomes durable with the call at the root, if every attempt between is accepted.
        kept.tools.clear();
    }
    Changes {
        kept,
        artifacts,
        case: case(call),
        shape: call.accepted.map(|_| ShapeDigest::of_call(request)),
        record: history::record(request, outcome, &contents, timing, program),
        contents,
        contents_kept_since: None,
        exhausted,
        event,
        counted: ToolCount::of(outcome, attempts),
        stored_under: stored_under(call),
        answers: call.answers.to_vec(),
        answers_bytes: 0,
    }
}

/// The contract that the selected program was made under, if it is not the call's: then it was made without one.
fn stored_under(call: &FinishedCall<'_>) -> Option<Fingerprint> {
    let made_under = &call.selected.ok()?.contract_fingerprint;
    let is_other = call.request.contract.is_some() && *made_under == Fingerprint::none();
    is_other.then(|| made_under.clone())
}

/// What an accepted call adds to the corpus of its artifact.
fn case(call: &FinishedCall<'_>) -> Option<Case> {
    let accepted = call.accepted?;
    let is_recorded = match (&accepted.origin, call.selected) {
        (Origin::Artifact(_), Ok(artifact)) => is_sampled(artifact),
        (Origin::Artifact(_), Err(_)) => false,
        (Origin::Fresh | Origin::Repair { .. }, _) => call.outcome.is_ok(),
    };
    if !is_recorded {
        return None;
    }
    Case::of(call.request, &accepted.program, &call.outcome.result, &accepted.changes)
}

/// A call that ends with a rejected attempt of a lane has spent that lane: otherwise there would be another attempt.
/// A last resort comes after that, and if it is accepted nothing was exhausted. A try to make a good program do more puts
/// no pressure on it.
pub(crate) fn exhausted(attempts: &[Attempt]) -> Option<RetryLane> {
    if attempts.iter().any(Attempt::asks_for_more) {
        return None;
    }
    attempts.last().filter(|last| last.rejection.is_some())?;
    attempts.iter().rfind(|attempt| !attempt.last_resort).and_then(Attempt::lane)
}

/// A stored program that ran is scored by the result of its own attempt.
fn scores(call: &FinishedCall<'_>, exhausted: Option<RetryLane>) -> Vec<ArtifactChange> {
    let is_made_for_another = stored_under(call).is_some();
    let score = |attempt: &Attempt| {
        let Origin::Artifact(checksum) = &attempt.origin else { return None };
        let verdict = match &attempt.rejection {
            // The program was written without this contract.
            Some(rejection)
                if is_made_for_another && rejection.reason == Reason::ContractBroken =>
            {
                RunVerdict::Excused
            }
            Some(rejection) => verdict_of_rejection(rejection, exhausted),
            None => attempt.excused.unwrap_or_else(|| verdict_of_outcome(call.outcome)),
        };
        Some(ArtifactChange::Score { checksum: checksum.clone(), verdict })
    };
    call.attempts.iter().filter_map(score).collect()
}

fn verdict_of_rejection(rejection: &Rejection, exhausted: Option<RetryLane>) -> RunVerdict {
    if matches!(rejection.reason, Reason::AnswerUnread | Reason::AnswerChanged) {
        RunVerdict::Unread
    } else if rejection.blame() != Blame::Program {
        RunVerdict::Excused
    } else if matches!(exhausted, Some(RetryLane::Guardrail | RetryLane::Outcome)) {
        RunVerdict::Exhausted
    } else if rejection.reason == Reason::ContractBroken {
        RunVerdict::ContractBroken
    } else {
        let of_violation = rejection.violations.first().map(|it| it.rule.guardrail().verdict);
        of_violation.unwrap_or(RunVerdict::Failed)
    }
}

fn verdict_of_outcome(outcome: &Outcome) -> RunVerdict {
    match outcome.failure() {
        None => RunVerdict::Succeeded,
        Some(failure) if failure.kind.code() == WRONG_BOUNDARY => RunVerdict::Referred,
        Some(_) => RunVerdict::Answered,
    }
}

/// Whether the stored program gave another answer than a person taught or expects.
fn misses_example(attempts: &[Attempt]) -> bool {
    attempts.iter().any(|attempt| {
        let is_stored = matches!(attempt.origin, Origin::Artifact(_));
        let reason = attempt.rejection.as_ref().map(|rejection| rejection.reason);
        is_stored && matches!(reason, Some(Reason::ExampleMissed | Reason::ExpectationMissed))
    })
}

/// A repair counts if a model wrote one; a service that was down wrote none.
fn repair_written(attempts: &[Attempt]) -> Option<ArtifactChange> {
    attempts.iter().find_map(|attempt| match &attempt.origin {
        Origin::Repair { of, .. } if attempt.code.is_some() => {
            Some(ArtifactChange::RepairWritten { checksum: of.clone() })
        }
        Origin::Repair { .. } | Origin::Artifact(_) | Origin::Fresh => None,
    })
}

/// A new program that worked is kept; see [`crate::admission`] for whether it takes over.
fn admit(call: &FinishedCall<'_>, accepted: &Accepted) -> Option<ArtifactChange> {
    let trigger = trigger(&accepted.origin, call.selected, call.attempts)?;
    let repairs = match accepted.origin {
        Origin::Repair { number, .. } => number,
        Origin::Fresh | Origin::Artifact(_) => 0,
    };
    let program = accepted.program.program();
    let ArtifactKey { role, method, language: _, contract_fingerprint } =
        ArtifactKey::of(call.request);
    let mut recent = Window::default();
    recent.push(RunVerdict::Succeeded);
    let artifact = Artifact {
        role,
        method,
        language: program.language,
        contract_fingerprint,
        runtime_version: RUNTIME_VERSION.to_owned(),
        code: program.source.clone(),
        checksum: accepted.program.checksum().clone(),
        manifest: needed(accepted).clone(),
        cacheability: accepted.cacheability(call.request),
        successes: 1,
        failures: 0,
        repairs,
        track_record: TrackRecord {
            standing: Standing::Candidate,
            recent,
            ..TrackRecord::default()
        },
    };
    Some(ArtifactChange::Admit(Box::new(Generation {
        artifact,
        author: Author::Model,
        trigger,
        parent: call.selected.ok().map(|artifact| artifact.checksum.clone()),
        failure: trigger_failure(call.attempts),
        state_keys: accepted.program.state_keys(),
        pure: is_pure(&accepted.program),
        agreement: call.attempts.last().and_then(|attempt| attempt.agreement),
        outranks_recorded: trigger == Trigger::Requested,
    })))
}

/// Why a program was written; `None`: it came from storage.
pub(crate) fn trigger(
    origin: &Origin,
    selected: Result<&Artifact, Miss>,
    attempts: &[Attempt],
) -> Option<Trigger> {
    match (origin, selected) {
        (Origin::Artifact(_), _) => None,
        (Origin::Repair { .. }, _) if is_widening(attempts) => Some(Trigger::Widening),
        (Origin::Repair { .. } | Origin::Fresh, Ok(_)) if follows_change(attempts) => {
            Some(Trigger::AnswerChanged)
        }
        (Origin::Repair { .. }, _) => Some(Trigger::Repair),
        (Origin::Fresh, Ok(_)) => Some(Trigger::Regeneration),
        (Origin::Fresh, Err(miss)) => Some(Trigger::of_miss(miss)),
    }
}

/// Whether the stored program was rejected because of the caller's arguments.
fn is_widening(attempts: &[Attempt]) -> bool {
    let reason = rejected_stored(attempts).map(|rejection| rejection.reason);
    reason.is_some_and(|reason| reason.row().stored == StoredNext::Widen)
}

/// Whether the stored program was rejected because a service changed what it answers.
fn follows_change(attempts: &[Attempt]) -> bool {
    rejected_stored(attempts).is_some_and(|rejection| rejection.reason == Reason::AnswerChanged)
}

/// Why the stored program was rejected.
fn rejected_stored(attempts: &[Attempt]) -> Option<&Rejection> {
    let mut stored =
        attempts.iter().filter(|attempt| matches!(attempt.origin, Origin::Artifact(_)));
    stored.next()?.rejection.as_ref()
}

/// The failure of the stored program or, if none ran, of the last attempt that was rejected.
fn trigger_failure(attempts: &[Attempt]) -> Option<TriggerFailure> {
    let is_stored = |attempt: &Attempt| matches!(attempt.origin, Origin::Artifact(_));
    let failed = |attempt: &Attempt| attempt.rejection.is_some();
    let at = attempts.iter().position(is_stored).or_else(|| attempts.iter().rposition(failed))?;
    let attempt = attempts.get(at)?;
    let rejection = attempt.rejection.as_ref()?;
    let bounded = |text: String| redacted_text(text).chars().take(MAX_FAILURE_CHARS).collect();
    let failure = &rejection.failure;
    Some(TriggerFailure {
        stage: attempt.failed_at()?.name().to_owned(),
        class: bounded(rejection.class().to_owned()),
        message: bounded(format!("{}: {}", failure.kind.code(), failure.message)),
        attempt_id: u32::try_from(at + 1).unwrap_or(u32::MAX),
    })
}

/// What a stored program needs wherever it runs: what it declares, or, when it declared nothing and
/// imports what its agent happened to hold, all of that.
fn needed(accepted: &Accepted) -> &DependencyManifest {
    let own = &accepted.program.program().manifest;
    if own.is_empty() && accepted.program.imports_packages() { &accepted.manifest } else { own }
}
