//! The log line of one call: a pure projection of what happened, in the wire names of
//! `specs/log-entry.schema.json`. See `docs/observability.md` for what each field means.

mod fields;
mod inferences;
mod named;
mod programs;

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::admission::Admission;
use crate::artifact::{Cacheability, Trigger};
use crate::attempt::{Attempt, Origin, Reason, Rejection, RetryLane, Stage, spent};
use crate::call::Commit;
use crate::contract::ContractSource;
use crate::excerpt::shortened;
use crate::execution::{Environment, ResultFrom};
use crate::guardrail::{GuardrailPolicy, Violation};
use crate::history::{HISTORY_KEY, bounded, bounded_list, bounded_map};
use crate::outcome::{Failure, FailureKind};
use crate::outside_tool::OutsideCall;
use crate::program::{Checksum, type_name};
use crate::prompt::PROMPT_VERSION;
use crate::redact::NamedSecrets;
use crate::select::Miss;
use crate::settlement::{Timing, milliseconds};
use crate::standing::{POLICY_VERSION, StandingMode};

pub use fields::LogEntry;
pub use programs::{AlreadyLogged, digests, fill_programs, program_texts, restore_programs};

/// Characters of the outcome's own message.
const MAX_OUTCOME_MESSAGE_CHARS: usize = 4000;
/// Characters of a failure message kept per attempt.
const MAX_MESSAGE_CHARS: usize = 400;
/// Characters of captured output kept per stream.
const MAX_OUTPUT_CHARS: usize = 2000;

/// What the library knows beside the call's steps.
#[derive(Debug, Clone)]
pub struct EntryDetails {
    /// When it ended and how long it took.
    pub timing: Timing,
    /// The model that was, or would have been, asked.
    pub model: String,
    /// How the contract was given.
    pub contract_source: ContractSource,
    /// The agent object that was called.
    pub specialist_instance_id: String,
    /// The session, if any.
    pub session: Option<String>,
    /// What history keeps of the outcome.
    pub summary: Value,
    /// The containment programs ran under.
    pub sandbox_tier: String,
    /// What they might reach.
    pub grants: Value,
    /// The preparation the agent came from, if any.
    pub prep_ticket_id: Option<String>,
    /// Prompts and context, when asked for.
    pub debug: Option<Debug>,
    /// Values that the call tree named as secrets.
    pub secrets: NamedSecrets,
}

/// What `debug` adds.
#[derive(Debug, Clone, Default)]
pub struct Debug {
    /// The last system prompt.
    pub system_prompt: Option<String>,
    /// The last user prompt.
    pub user_prompt: Option<String>,
    /// The agent's memory after the call.
    pub context: Map<String, Value>,
}

/// Frames kept of a backtrace.
const MAX_FRAMES: usize = 10;

/// Fields no two runs of the same call share, in an entry and in its attempts: ids, times, processes.
pub const VOLATILE: [&str; 19] = [
    "timestamp",
    "duration_ms",
    "trace_id",
    "call_id",
    "parent_call_id",
    "specialist_instance_id",
    "prep_ticket_id",
    "worker_pid",
    "worker_warm",
    "worker_restart_count",
    "isolation_ms",
    "generation_ms",
    "env_prepare_ms",
    "env_resolve_ms",
    "env_install_ms",
    "environment_cache_hit",
    "conversation_history_size",
    "content_store_write_ref",
    "content_store_eviction_count",
];

/// An entry without its volatile fields: equal for two runs of the same call.
pub fn steady(mut entry: Value) -> Value {
    let mask = |fields: &mut Map<String, Value>| {
        fields.retain(|name, _| !VOLATILE.contains(&name.as_str()));
    };
    if let Value::Object(fields) = &mut entry {
        mask(fields);
        for list in ["attempts", "inferences"] {
            if let Some(Value::Array(items)) = fields.get_mut(list) {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(mask);
            }
        }
    }
    entry
}

/// Sets fields of an entry or of an attempt, in this order.
macro_rules! set {
    ($entry:ident, { $($name:literal: $value:expr),* $(,)? }) => {
        $($entry.insert($name.into(), json!($value));)*
    };
}

/// Projects a finished call to its log entry.
pub fn project(commit: &Commit, details: &EntryDetails, before: &AlreadyLogged) -> LogEntry {
    let mut entry = LogEntry::default();
    identity(&mut entry, commit, details);
    let digests = digests(commit);
    program(&mut entry, commit, &digests, before);
    attempts(&mut entry, commit, &digests, before);
    contract(&mut entry, commit);
    artifact(&mut entry, commit);
    promotion(&mut entry, commit);
    environment(&mut entry, commit, details);
    outcome(&mut entry, commit);
    trace(&mut entry, commit, details);
    patterns(&mut entry, commit, details);
    memory(&mut entry, commit, details);
    if let Some(debug) = &details.debug {
        set!(entry, {
            "system_prompt": debug.system_prompt,
            "user_prompt": debug.user_prompt,
            "context": bounded_map(&debug.context),
            "error_backtrace": backtrace(commit),
        });
    }
    if before.dropped_entries > 0 {
        set!(entry, {"log_entries_dropped": before.dropped_entries});
    }
    named::remove_named(&mut entry, &details.secrets);
    entry.redact();
    entry
}

/// Where the last exception of the call passed, innermost frame first.
fn backtrace(commit: &Commit) -> Option<Vec<String>> {
    let rejections = commit.attempts().iter().filter_map(|attempt| attempt.rejection.as_ref());
    let frames = rejections.map(|rejection| &rejection.backtrace).rfind(|it| !it.is_empty())?;
    Some(frames.iter().take(MAX_FRAMES).map(|frame| short(frame)).collect())
}

fn identity(entry: &mut LogEntry, commit: &Commit, details: &EntryDetails) {
    let request = commit.request();
    let usage = commit.usage();
    set!(entry, {
        "timestamp": details.timing.timestamp,
        "runtime": "recurgent",
        "guest": request.language,
        "role": request.role,
        "model": details.model,
        "method": request.method,
        "args": bounded_list(&request.arguments.args),
        "kwargs": bounded_map(&request.arguments.kwargs),
        "duration_ms": details.timing.duration_ms(),
        "generation_attempt": commit.model_calls(),
        "usage": json!({
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
        }),
        "cost": usage.cost.map(|cost| json!({"usd": cost.usd()})),
        "inference_calls": commit.inference_calls(),
        "inferences": inferences::logged(commit.attempts()),
    });
}

/// The text of the last attempt's program is here, not at the attempt, unless the file already has it.
fn program(
    entry: &mut LogEntry,
    commit: &Commit,
    digests: &[Option<Checksum>],
    before: &AlreadyLogged,
) {
    let last = commit.attempts().last();
    let digest = digests.last().and_then(Option::as_ref);
    let is_new = digest.is_some_and(|digest| !before.programs.contains(digest));
    let packages = last.map(|attempt| &attempt.packages);
    let repaired = |attempt: &&Attempt| attempt.origin.program_source() == "repaired";
    set!(entry, {
        "code_digest": digest,
        "code": last.filter(|_| is_new).and_then(|attempt| attempt.code.as_deref()),
        "program_source": last.map(|attempt| attempt.origin.program_source()),
        "program_dependencies": packages.and_then(|p| p.declared.as_ref()).map(bounded),
        "normalized_dependencies": last_prepared(commit).and_then(|it| it.packages.effective.as_ref()),
        "dependency_notes": packages.map(|p| p.notes.as_slice()).unwrap_or_default(),
        "repair_attempted": commit.attempts().iter().any(|attempt| repaired(&attempt)),
        "repair_succeeded": last.filter(repaired).is_some_and(|attempt| attempt.rejection.is_none()),
        "blame": blame(commit),
        "failure_class": commit.outcome().failure().map(|failure| failure.cause().name()),
    });
}

/// The last attempt whose environment was asked for. A later one may have been rejected before that.
fn last_prepared(commit: &Commit) -> Option<&Attempt> {
    commit.attempts().iter().rfind(|attempt| attempt.packages.effective.is_some())
}

/// What the failure of the call is attributed to. It may be that of an earlier attempt than the last: a stored
/// program's error comes before that of its repair.
fn blame(commit: &Commit) -> Option<Value> {
    let failure = commit.outcome().failure()?;
    let rejections = commit.attempts().iter().filter_map(|attempt| attempt.rejection.as_ref());
    let mut latest = rejections.rev();
    let own = latest.clone().find(|it| it.failure.kind == failure.kind);
    let rejection = own.or_else(|| latest.next());
    let named = || rejection.map(|rejection| rejection.blame().name().into());
    failure.metadata.get("blame").cloned().or_else(named)
}

fn attempts(
    entry: &mut LogEntry,
    commit: &Commit,
    digests: &[Option<Checksum>],
    before: &AlreadyLogged,
) {
    let (attempts, policy) = (commit.attempts(), commit.guardrails());
    let last = attempts.last();
    let rejected = attempts.iter().rfind(|attempt| attempt.rejection.is_some());
    let failed_at = rejected.and_then(Attempt::failed_at).map(Stage::name);
    let rejected = rejected.and_then(|attempt| attempt.rejection.as_ref());
    let failures: Vec<_> = attempts
        .iter()
        .enumerate()
        .filter_map(|(index, attempt)| failure(index + 1, attempt, policy))
        .collect();
    let kind = commit.outcome().failure().map(|failure| &failure.kind);
    let outcome_repairs = retries(commit, RetryLane::Outcome);
    set!(entry, {
        "attempt_id": attempts.len(),
        "attempt_stage": last.and_then(|attempt| attempt.stages().last().copied()),
        "attempts": each(attempts, digests, policy, before),
        "validation_failure_type": rejected.map(|rejection| rejection.failure.kind.code()),
        "guardrail_violation_subtype":
            rejected.and_then(|rejection| rejection.violations.first()).map(Violation::subtype),
        "rollback_applied": !failures.is_empty() || commit.dropped_changes(),
        "retry_feedback_injected": had_feedback(attempts),
        "latest_failure_stage": failed_at,
        "latest_failure_class": rejected.map(|rejection| rejection.class().to_owned()),
        "latest_failure_message": rejected.map(|rejection| short(&rejection.failure.message)),
        "attempt_failures": failures,
        "execution_receiver": last.and_then(|attempt| attempt.worker.as_ref()).map(|_| "worker"),
        "guardrail_recovery_attempts": retries(commit, RetryLane::Guardrail),
        "execution_repair_attempts": retries(commit, RetryLane::Execution),
        "outcome_repair_attempts": outcome_repairs,
        "outcome_repair_triggered": outcome_repairs > 0,
        "guardrail_retry_exhausted": kind == Some(&FailureKind::GuardrailRetryExhausted),
        "outcome_repair_retry_exhausted": kind == Some(&FailureKind::OutcomeRepairRetryExhausted),
    });
}

/// Whether the last attempt's prompt had feedback on an earlier one. A transport fault gives no feedback.
fn had_feedback(attempts: &[Attempt]) -> bool {
    let earlier = attempts.split_last().map_or(&[][..], |(_, earlier)| earlier);
    earlier
        .iter()
        .filter_map(|attempt| attempt.rejection.as_ref())
        .any(|r| !r.reason.is_transport())
}

/// Retries made in a lane: its rejections, up to its budget.
fn retries(commit: &Commit, lane: RetryLane) -> u32 {
    spent(commit.attempts(), lane).min(commit.budgets().of(lane))
}

fn each(
    attempts: &[Attempt],
    digests: &[Option<Checksum>],
    policy: &GuardrailPolicy,
    before: &AlreadyLogged,
) -> Vec<Value> {
    let one = |(index, attempt): (usize, &Attempt)| {
        let (earlier, later) = digests.split_at_checked(index).unwrap_or_default();
        let own = later.first().and_then(Option::as_ref);
        let is_new = own.is_some_and(|own| {
            let is_own = |other: &Option<Checksum>| other.as_ref() == Some(own);
            !before.programs.contains(own)
                && !earlier.iter().any(is_own)
                && !digests.last().is_some_and(is_own)
        });
        one(index + 1, attempt, (own, is_new), policy)
    };
    attempts.iter().enumerate().map(one).collect()
}

fn one(
    id: usize,
    attempt: &Attempt,
    (digest, is_new): (Option<&Checksum>, bool),
    policy: &GuardrailPolicy,
) -> Value {
    let worker = attempt.worker.as_ref();
    let mut tried = json!({
        "attempt_id": id,
        "program_source": attempt.origin.program_source(),
        "stages": attempt.stages(),
        "code_digest": digest,
        "code": attempt.code.as_deref().filter(|_| is_new),
        "lane": attempt.lane().map(RetryLane::name),
        "failure": failure(id, attempt, policy),
        "result_from": attempt.result_from.map(ResultFrom::name),
        "stdout": short_output(&attempt.output.stdout),
        "stderr": short_output(&attempt.output.stderr),
        "output_dropped_bytes": attempt.output.dropped_bytes,
        "worker_pid": worker.and_then(|worker| worker.pid),
        "worker_warm": worker.map(|worker| worker.warm),
        "isolation_ms": worker.map(|worker| milliseconds(worker.isolation)),
        "generation_ms": milliseconds(attempt.generation),
        "duration_ms": milliseconds(attempt.took),
    });
    if let (Some(agreement), Value::Object(tried)) = (attempt.agreement, &mut tried) {
        set!(tried, { "agreement": agreement });
    }
    if let (1.., Value::Object(tried)) = (attempt.observed.outside_count, &mut tried) {
        let calls = attempt.observed.outside_calls.iter().map(OutsideCall::to_json);
        set!(tried, {
            "outside_calls": calls.collect::<Vec<_>>(),
            "outside_call_count": attempt.observed.outside_count,
        });
    }
    if let (Some(_), Value::Object(tried)) = (&attempt.rejection, &mut tried) {
        evidence(tried, attempt);
    }
    tried
}

/// What else is known of a rejected attempt: an accepted one is the last, and the entry itself says this of it.
fn evidence(tried: &mut Map<String, Value>, attempt: &Attempt) {
    let worker = attempt.worker.as_ref();
    let packages = &attempt.packages;
    let environment = packages.environment.as_ref().filter(|it| it.id.is_some());
    let time = |of: fn(&Environment) -> Duration| environment.map(|it| milliseconds(of(it)));
    set!(tried, {
        "worker_restart_count": worker.map(|worker| worker.restarts),
        "worker_exit_status": worker.and_then(|worker| worker.exit_status),
        "worker_signal": worker.and_then(|worker| worker.signal.as_deref()),
        "program_dependencies": packages.declared.as_ref().map(bounded),
        "normalized_dependencies": packages.effective.as_ref(),
        "env_id": environment.and_then(|it| it.id.as_deref()),
        "environment_cache_hit": environment.map(|it| it.cache_hit),
        "env_prepare_ms": time(|it| it.prepare_time),
        "env_resolve_ms": time(|it| it.resolve_time),
        "env_install_ms": time(|it| it.install_time),
    });
}

/// A stored program's digest is known: selection verified it.
fn digest(attempt: &Attempt) -> Option<Checksum> {
    let code = attempt.code.as_deref()?;
    match &attempt.origin {
        Origin::Artifact(checksum) => Some(checksum.clone()),
        Origin::Repair { .. } | Origin::Fresh => Some(Checksum::of(code)),
    }
}

fn failure(id: usize, attempt: &Attempt, policy: &GuardrailPolicy) -> Option<Value> {
    let rejection = attempt.rejection.as_ref()?;
    let is_look = rejection.reason == Reason::Looked;
    Some(json!({
        "attempt_id": id,
        "stage": attempt.failed_at().map(Stage::name),
        "error_type": if is_look { "looked" } else { rejection.failure.kind.code() },
        "error_class": if is_look { "looked" } else { rejection.class() },
        "error_message": short(&rejection.failure.message),
        "location": rejection.location,
        "blame": rejection.blame().name(),
        "metadata": metadata(rejection),
        "violation": rejection.violations.first().map(|violation| violation.to_json(policy)),
        "repeated": rejection.repeated,
    }))
}

/// The failure's own metadata; that of a violation is logged as such.
fn metadata(rejection: &Rejection) -> Option<Map<String, Value>> {
    let metadata = &rejection.failure.metadata;
    (rejection.violations.is_empty() && !metadata.is_empty()).then(|| bounded_map(metadata))
}

fn contract(entry: &mut LogEntry, commit: &Commit) {
    let contract = commit.request().contract.as_ref();
    let is_breach = |failure: &&Failure| failure.kind == FailureKind::ContractViolation;
    let violated = commit.outcome().failure().filter(is_breach);
    // A breach that was repaired is evidence too.
    let rejections = commit.attempts().iter().filter_map(|attempt| attempt.rejection.as_ref());
    let breach = violated.or_else(|| rejections.map(|it| &it.failure).rfind(is_breach));
    let applied = contract.is_some_and(|contract| contract.deliverable.is_some())
        && (commit.outcome().is_ok() || violated.is_some());
    let detail = |key: &str| breach.and_then(|failure| failure.metadata.get(key)).cloned();
    set!(entry, {
        "contract_purpose": contract.and_then(|c| c.purpose.as_ref()),
        "contract_deliverable": contract.and_then(|c| c.deliverable.as_ref()),
        "contract_acceptance": contract.and_then(|c| c.acceptance.as_ref()),
        "contract_failure_policy": contract.and_then(|c| c.failure_policy.as_ref()),
        "contract_intent_signature": contract.and_then(|c| c.intent_signature.as_ref()),
        "contract_examples": contract.map(|c| bounded_list(&c.examples)).unwrap_or_default(),
        "contract_notes": contract.map(|c| c.notes.as_slice()).unwrap_or_default(),
        "examples_given": commit.examples().0,
        "examples_checked": commit.examples().1,
        "contract_validation_applied": applied,
        "contract_validation_passed": applied.then_some(violated.is_none()),
        "contract_validation_mismatch": detail("mismatch"),
        "contract_validation_path": detail("path"),
        "contract_validation_expected_keys": detail("expected_keys"),
        "contract_validation_actual_keys": detail("actual_keys"),
    });
}

fn artifact(entry: &mut LogEntry, commit: &Commit) {
    let request = commit.request();
    let selected = commit.selected();
    let receipt = commit.receipt();
    let cacheability = commit.accepted().map(|accepted| accepted.cacheability(request));
    set!(entry, {
        "artifact_hit": selected.is_ok(),
        "selection_miss_reason": selected.err().map(Miss::name),
        "artifact_selected_checksum": selected.ok().map(|artifact| &artifact.checksum),
        "artifact_selected_lifecycle_state": selected.ok().map(|artifact| artifact.track_record.standing.name()),
        "artifact_success_count": selected.ok().map(|artifact| artifact.successes),
        "artifact_failure_count": selected.ok().map(|artifact| artifact.failures),
        "artifact_generation_count":
            receipt.generations.or(selected.ok().map(|artifact| artifact.track_record.generations)),
        "artifact_generation_trigger": commit.trigger().map(Trigger::name),
        "artifact_admission": receipt.admission.map(Admission::name),
        "artifact_contract_fingerprint": request.contract_fingerprint(),
        "artifact_prompt_version": PROMPT_VERSION,
        "cacheable": cacheability.is_some_and(Cacheability::cacheable),
        "cacheability_reason": cacheability.map(Cacheability::reason),
    });
}

/// The decision about the stored program's standing.
fn promotion(entry: &mut LogEntry, commit: &Commit) {
    let decision = commit.receipt().decision.as_ref();
    let enforced = commit.standing_mode() == StandingMode::Enforced;
    set!(entry, {
        "promotion_policy_version": POLICY_VERSION,
        "promotion_shadow_mode": !enforced,
        "promotion_enforced": enforced,
        "lifecycle_state": decision.map(|decision| decision.to.name()),
        "lifecycle_decision": decision.map(|decision| decision.kind.name()),
        "promotion_decision_rationale": decision.map(|decision| &decision.rationale),
    });
}

fn environment(entry: &mut LogEntry, commit: &Commit, details: &EntryDetails) {
    let worker = commit.attempts().iter().rev().find_map(|attempt| attempt.worker.as_ref());
    let prepared = last_prepared(commit).and_then(|it| it.packages.environment.as_ref());
    let prepared = prepared.filter(|environment| environment.id.is_some());
    // An environment that could not be given is named by the failure.
    let failure = commit.outcome().failure();
    let blamed = failure.and_then(|f| f.metadata.get("env_id")).and_then(Value::as_str);
    set!(entry, {
        "env_id": prepared.and_then(|environment| environment.id.as_deref()).or(blamed),
        "environment_cache_hit": prepared.map(|environment| environment.cache_hit),
        "env_prepare_ms": prepared.map(|environment| milliseconds(environment.prepare_time)),
        "env_resolve_ms": prepared.map(|environment| milliseconds(environment.resolve_time)),
        "env_install_ms": prepared.map(|environment| milliseconds(environment.install_time)),
        "prep_ticket_id": details.prep_ticket_id,
        "worker_pid": worker.and_then(|worker| worker.pid),
        "worker_restart_count": worker.map_or(0, |worker| worker.restarts),
        "sandbox_tier": details.sandbox_tier,
        "grants": details.grants,
    });
}

fn outcome(entry: &mut LogEntry, commit: &Commit) {
    let outcome = commit.outcome();
    let failure = outcome.failure();
    set!(entry, {
        "outcome_status": outcome.status(),
        "outcome_retriable": failure.is_some_and(|failure| failure.kind.retriable()),
        "outcome_tool_role": outcome.role,
        "outcome_method_name": outcome.method,
        "outcome_value_class": outcome.value().filter(|value| !value.is_null()).map(type_name),
        "outcome_error_type": failure.map(|failure| failure.kind.code()),
        "outcome_error_message": failure.map(|failure| logged_message(&failure.message)),
        "outcome_error_metadata": failure.filter(|f| !f.metadata.is_empty()).map(|f| bounded_map(&f.metadata)),
        "outcome_value": outcome.value().map(bounded),
        "outcome_notes": outcome.notes,
    });
}

fn trace(entry: &mut LogEntry, commit: &Commit, details: &EntryDetails) {
    let request = commit.request();
    set!(entry, {
        "trace_id": request.lineage.trace(),
        "call_id": request.id,
        "parent_call_id": request.lineage.parent(),
        "depth": request.lineage.depth(),
        "contract_source": details.contract_source.name(),
        "specialist_instance_id": details.specialist_instance_id,
        "session": details.session,
    });
}

fn patterns(entry: &mut LogEntry, commit: &Commit, details: &EntryDetails) {
    let event = commit.observed(&details.timing);
    let correction = event.user_correction.as_ref();
    set!(entry, {
        "capability_patterns": event.capability_patterns,
        "user_correction_detected": correction.is_some(),
        "user_correction_signal": correction.map(|correction| &correction.signal),
        "user_correction_reference_call_id":
            correction.map(|correction| &correction.correction_of_call_id),
        "user_correction_evidence": correction,
        "weak_success": event.is_weak(),
        "weak_success_signals": event.weak_success_signals,
    });
}

/// What the call added to history and to the content store.
fn memory(entry: &mut LogEntry, commit: &Commit, details: &EntryDetails) {
    let size = commit.receipt().history_count;
    let kept = |key: &str| details.summary.get(key).filter(|_| size.is_some());
    let is_kept = kept("content_ref").is_some();
    let read = commit.accepted().map(|accepted| {
        accepted.program.inspection().context.iter().any(|used| used.key == HISTORY_KEY)
    });
    set!(entry, {
        "history_record_appended": size.is_some(),
        "conversation_history_size": size,
        "history_access_detected": read.unwrap_or(false),
        "content_store_write_applied": is_kept,
        "content_store_write_ref": kept("content_ref"),
        "content_store_write_kind": kept("content_kind"),
        "content_store_write_bytes": kept("content_bytes"),
        "content_store_write_digest": kept("content_digest"),
        "content_store_write_skipped_reason": (!is_kept).then(|| why_not_kept(commit)),
        "content_store_eviction_count": commit.receipt().contents_evicted,
    });
}

/// Why a call's value cannot be referred to later.
fn why_not_kept(commit: &Commit) -> &'static str {
    if commit.receipt().history_count.is_none() {
        "not_committed"
    } else if commit.request().lineage.depth() > 0 {
        "nested_call"
    } else {
        match commit.outcome().value() {
            None => "error_outcome",
            Some(Value::Null) => "no_value",
            Some(_) => "too_large",
        }
    }
}

/// The message of a call's failure, as its entry holds it.
pub fn logged_message(message: &str) -> String {
    shortened(message, MAX_OUTCOME_MESSAGE_CHARS)
}

fn short(text: &str) -> String {
    text.chars().take(MAX_MESSAGE_CHARS).collect()
}

fn short_output(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.chars().take(MAX_OUTPUT_CHARS).collect())
}
