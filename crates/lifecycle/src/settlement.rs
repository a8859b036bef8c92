//! What a finished call makes true: one set of changes, committed together or not at all.

use std::time::Duration;

use serde_json::Value;

use crate::artifact::{Artifact, ArtifactChange, RUNTIME_VERSION, Verdict};
use crate::attempt::{Attempt, Origin, RetryLane};
use crate::context::ContextChanges;
use crate::contract::{Contract, Fingerprint};
use crate::dependency::DependencyManifest;
use crate::history::{self, Content};
use crate::outcome::{Cause, Outcome};
use crate::program::VettedProgram;
use crate::request::CallRequest;
use crate::tool::Tool;

/// When a call ended and how long it took: the shell's clock, handed in.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// RFC 3339, UTC.
    pub timestamp: String,
    /// From request to settlement.
    pub duration: Duration,
}

impl Moment {
    /// In milliseconds, to a tenth.
    pub fn duration_ms(&self) -> f64 {
        (self.duration.as_secs_f64() * 10_000.0).round() / 10.0
    }
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
}

/// What an ok call keeps.
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

/// Everything the store must make true, at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// Memory and tools; `None`: a failed call keeps nothing.
    pub kept: Option<Kept>,
    /// Evidence about stored programs.
    pub artifacts: Vec<ArtifactChange>,
    /// The history record.
    pub record: Value,
    /// A value to refer to later.
    pub content: Option<Content>,
    /// The lane that was spent, when the call ended for want of it: pressure on the program and its tool.
    pub exhausted: Option<RetryLane>,
}

/// Derives the changes from what happened.
pub fn changes(
    request: &CallRequest,
    outcome: &Outcome,
    accepted: Option<&Accepted>,
    attempts: &[Attempt],
    moment: &Moment,
) -> Changes {
    let accepted = accepted.filter(|_| outcome.is_ok());
    let content = Content::of(request, outcome);
    let mut artifacts = scores(attempts, outcome);
    artifacts.extend(accepted.and_then(|accepted| admit(request, accepted)));
    Changes {
        kept: accepted.cloned().map(Kept::from),
        artifacts,
        record: history::record(request, outcome, content.as_ref(), moment),
        content,
        exhausted: exhausted(attempts),
    }
}

/// A call that ends with a rejected attempt of a lane has spent that lane: else there would be another attempt.
fn exhausted(attempts: &[Attempt]) -> Option<RetryLane> {
    attempts.last().and_then(Attempt::lane)
}

/// A stored program that ran is scored by what came of its own attempt.
fn scores(attempts: &[Attempt], outcome: &Outcome) -> Vec<ArtifactChange> {
    let score = |attempt: &Attempt| {
        let Origin::Artifact(checksum) = &attempt.origin else { return None };
        let verdict = match &attempt.rejection {
            Some(rejection) if rejection.failure.kind.cause() == Cause::Extrinsic => {
                Verdict::Excused
            }
            Some(rejection) if rejection.reason.is_misfit() => Verdict::Excused,
            Some(_) => Verdict::Failed,
            None if outcome.is_ok() => Verdict::Succeeded,
            None => Verdict::Answered,
        };
        Some(ArtifactChange::Score { checksum: checksum.clone(), verdict })
    };
    attempts.iter().filter_map(score).collect()
}

/// A new program that worked becomes the stored one.
fn admit(request: &CallRequest, accepted: &Accepted) -> Option<ArtifactChange> {
    let repairs = match &accepted.origin {
        Origin::Artifact(_) => return None,
        Origin::Fresh => 0,
        Origin::Repair { number, .. } => *number,
    };
    let program = accepted.program.program();
    Some(ArtifactChange::Admit(Box::new(Artifact {
        role: request.role.clone(),
        method: request.method.clone(),
        language: program.language,
        contract_fingerprint: request
            .contract
            .as_ref()
            .map_or_else(Fingerprint::none, Contract::fingerprint),
        runtime_version: RUNTIME_VERSION.to_owned(),
        code: program.source.clone(),
        checksum: accepted.program.checksum().clone(),
        manifest: needed(accepted).clone(),
        cacheability: accepted.program.cacheability(request),
        successes: 1,
        failures: 0,
        repairs,
    })))
}

/// What a stored program needs wherever it runs: what it declares, or, when it declared nothing and
/// imports what its agent happened to hold, all of that.
fn needed(accepted: &Accepted) -> &DependencyManifest {
    let own = &accepted.program.program().manifest;
    if own.is_empty() && accepted.program.imports_packages() { &accepted.manifest } else { own }
}
