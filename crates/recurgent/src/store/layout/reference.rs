//! A method's file as the reference runtime wrote it: Ruby, counters for the whole method, a scorecard per version.

use std::collections::BTreeMap;

use lifecycle::artifact::{RUNTIME_VERSION, RunVerdict, Trigger};
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::dialect::Language;
use lifecycle::program::Checksum;
use lifecycle::redact::redacted_text;
use lifecycle::standing::{MAX_SESSIONS, Standing, Window};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::super::SESSION_MARK_CHARS;
use super::super::bundle::{ArtifactEntry, ToolEntry, VersionEntry};
use super::wire::JsonFields;

/// Characters kept of the failure a program was written for.
const MAX_FAILURE_CHARS: usize = 400;
/// Errors that were the world's fault, as that runtime classed them: a timeout too, which here counts against the program.
const EXTRINSIC: [&str; 10] = [
    "timeout",
    "provider",
    "network_error",
    "rate_limit",
    "rate_limited",
    "environment_preparing",
    "worker_crash",
    "dependency_resolution_failed",
    "dependency_install_failed",
    "dependency_activation_failed",
];
/// Errors that a program reports truthfully.
const TRUTHFUL: [&str; 7] = [
    "low_utility",
    "missing_input",
    "parse_failed",
    "parse_error",
    "invalid_format",
    "schema_mismatch",
    "not_found",
];

/// Reads one. Its programs are for the guest surface that runs here too, and are vetted again before each use. What cannot
/// be read of its past is left out, with a note.
pub(super) fn artifact(
    file: &JsonFields<'_>,
    tools: &[ToolEntry],
    notes: &mut Vec<String>,
) -> Result<ArtifactEntry, String> {
    let role = file.role()?;
    let newest = file.needed("code_checksum")?;
    let head = version(file, file, &newest, notes)?;
    let others: BTreeMap<String, Value> = file.typed("versions")?.unwrap_or_default();
    let mut versions = Vec::new();
    for (checksum, other) in others.iter().filter(|(checksum, _)| **checksum != newest) {
        let read = JsonFields::of(other).and_then(|other| version(file, &other, checksum, notes));
        match read {
            Ok(other) => versions.push(other),
            Err(why) => notes.push(format!("version {checksum} is left out: {why}")),
        }
    }
    versions.sort_by(|a, b| (&a.admitted_at, &a.checksum).cmp(&(&b.admitted_at, &b.checksum)));
    let current = running(&head, &versions, notes);
    versions.push(head);
    for (number, version) in (1..).zip(&mut versions) {
        version.number = number;
    }
    Ok(ArtifactEntry {
        contract_fingerprint: fingerprint(file, role.as_str(), tools, notes)?,
        role,
        method: file.method()?,
        language: Language::Ruby,
        current,
        versions,
        examples: Vec::new(),
        rest: Map::new(),
    })
}

/// The version that runs here. That runtime kept the program that it tried last at the head, also if it failed; then the
/// newest one that worked runs.
fn running(head: &VersionEntry, older: &[VersionEntry], notes: &mut Vec<String>) -> Checksum {
    let worked = older.iter().rev().find(|version| version.successes > 0);
    let Some(worked) = worked.filter(|_| head.successes == 0) else { return head.checksum.clone() };
    notes.push(format!(
        "its newest program never worked, so the newest that did runs: {}",
        worked.checksum
    ));
    worked.checksum.clone()
}

/// One version; what it does not say itself, the method's file says for it.
fn version(
    file: &JsonFields<'_>,
    own: &JsonFields<'_>,
    checksum: &str,
    notes: &mut Vec<String>,
) -> Result<VersionEntry, String> {
    let code = own.code(checksum)?;
    let is_head = file.text("code_checksum")?.as_deref() == Some(checksum);
    let counts = |card: Option<&JsonFields<'_>>| -> Result<(u64, u64), String> {
        let counted = |on_card: &str, on_file: &str| -> Result<u64, String> {
            let of_card = card.map(|card| card.number(on_card)).transpose()?.flatten();
            let of_file = if is_head { file.number(on_file)? } else { None };
            Ok(of_card.or(of_file).unwrap_or(0))
        };
        Ok((counted("successes", "success_count")?, counted("failures", "failure_count")?))
    };
    let cards: BTreeMap<String, Value> = file.typed("scorecards")?.unwrap_or_default();
    let card = cards.get(checksum).map(JsonFields::of).transpose();
    let read = card.and_then(|card| counts(card.as_ref()).map(|counts| (card, counts)));
    let (card, (successes, failures)) = match read {
        Ok(read) => read,
        Err(why) => {
            let counts = counts(None)?;
            notes.push(format!("the scorecard of version {checksum} is left out: {why}"));
            (None, counts)
        }
    };
    Ok(VersionEntry {
        number: 0,
        checksum: Checksum::of(&code),
        code,
        manifest: own.manifest(Language::Ruby)?,
        cacheability: file.cacheability()?,
        runtime_version: RUNTIME_VERSION.to_owned(),
        prompt_version: file.text("prompt_version")?.unwrap_or_default(),
        successes,
        failures,
        repairs: if is_head { file.number("repair_count_since_regen")?.unwrap_or(0) } else { 0 },
        admitted_at: own.time("created_at")?.unwrap_or_default(),
        rest: evidence(file, card.as_ref(), checksum),
    })
}

/// What was observed of a version and how it came to be, as columns of its row. Unreadable values are left out.
fn evidence(
    file: &JsonFields<'_>,
    card: Option<&JsonFields<'_>>,
    checksum: &str,
) -> Map<String, Value> {
    let mut rest = Map::new();
    let state = standing(file, card, checksum);
    rest.extend(state.map(|state| ("standing".to_owned(), json!(state.name()))));
    if let Some(card) = card {
        rest.insert("recent".to_owned(), json!(recent(card).as_str()));
        rest.insert("sessions".to_owned(), json!(sessions(card)));
    }
    rest.extend(generation(file, checksum));
    rest
}

/// The state of a version in the file's lifecycle, or on its card.
fn standing(
    file: &JsonFields<'_>,
    card: Option<&JsonFields<'_>>,
    checksum: &str,
) -> Option<Standing> {
    let in_lifecycle =
        || file.get("lifecycle")?.get("versions")?.get(checksum)?.get("lifecycle_state");
    let on_card = || card?.get("lifecycle_state");
    let state = in_lifecycle().or_else(on_card)?;
    match Standing::deserialize(state.clone()).ok()? {
        // It ran, so it is past its first call.
        Standing::Candidate => Some(Standing::Probation),
        known @ (Standing::Probation | Standing::Durable | Standing::Degraded) => Some(known),
    }
}

/// The last calls on a card, a letter each; faults of the world are not counted.
fn recent(card: &JsonFields<'_>) -> Window {
    let mut window = Window::default();
    let calls = card.get("short_window").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        let text = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default();
        window.push(match (text("status"), text("error_type")) {
            ("ok", _) => RunVerdict::Succeeded,
            (_, "wrong_tool_boundary") => RunVerdict::Referred,
            (_, "contract_violation") => RunVerdict::ContractBroken,
            (_, "guardrail_retry_exhausted" | "outcome_repair_retry_exhausted") => {
                RunVerdict::Exhausted
            }
            (_, code) if EXTRINSIC.contains(&code) => RunVerdict::Excused,
            (_, code) if TRUTHFUL.contains(&code) => RunVerdict::Answered,
            (_, _) => RunVerdict::Failed,
        });
    }
    window
}

/// Digests of the sessions on a card, as a row keeps them.
fn sessions(card: &JsonFields<'_>) -> String {
    let traces = card.get("sessions").and_then(Value::as_array);
    let digest = |trace: &Value| -> String {
        Checksum::short_of(trace.as_str().unwrap_or_default(), SESSION_MARK_CHARS)
    };
    traces.into_iter().flatten().take(MAX_SESSIONS).map(digest).collect()
}

/// Why a version was written, from the file's history.
fn generation(file: &JsonFields<'_>, checksum: &str) -> Map<String, Value> {
    let history = file.get("history").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let is_own = |entry: &&Value| text(entry, "code_checksum").as_deref() == Some(checksum);
    let Some(own) = history.iter().find(is_own) else { return Map::new() };
    let mut rest = Map::new();
    let trigger = match text(own, "trigger").unwrap_or_default() {
        repair if repair.contains("repair") => Trigger::Repair,
        again if again.starts_with("regenerate") => Trigger::Regeneration,
        _ => Trigger::Fresh,
    };
    rest.insert("trigger_reason".to_owned(), json!(trigger.name()));
    let parent = text(own, "parent_id").and_then(|id| {
        let parent = history.iter().find(|entry| text(entry, "id").as_ref() == Some(&id))?;
        text(parent, "code_checksum")
    });
    rest.extend(parent.map(|parent| ("parent".to_owned(), json!(parent))));
    let (class, message) = (text(own, "trigger_error_class"), text(own, "trigger_error_message"));
    let failure = [class, message].into_iter().flatten().collect::<Vec<_>>().join(": ");
    if !failure.is_empty() {
        let failure: String = redacted_text(failure).chars().take(MAX_FAILURE_CHARS).collect();
        rest.insert("failure".to_owned(), json!(failure));
    }
    for key in ["trigger_stage", "trigger_error_class"] {
        let bounded = |it: String| redacted_text(it).chars().take(MAX_FAILURE_CHARS).collect();
        let text: Option<String> = text(own, key).map(bounded);
        rest.extend(text.map(|text| (key.to_owned(), json!(text))));
    }
    let attempt = own.get("trigger_attempt_id").and_then(Value::as_u64);
    let attempt = attempt.and_then(|number| u32::try_from(number).ok());
    rest.extend(attempt.map(|number| ("trigger_attempt_id".to_owned(), json!(number))));
    rest
}

/// Its fingerprints were made otherwise, of the intent too: what counts here is the contract the registry knows.
fn fingerprint(
    file: &JsonFields<'_>,
    role: &str,
    tools: &[ToolEntry],
    notes: &mut Vec<String>,
) -> Result<String, String> {
    let given = file.text("contract_fingerprint")?.filter(|given| given != "none");
    if given.is_none() {
        return Ok(Fingerprint::none().to_string());
    }
    let tool = tools.iter().find(|tool| tool.name.as_str() == role);
    if let Some(contract) = tool.and_then(|tool| tool.contract.as_ref()) {
        return Ok(Contract::fingerprint(contract).to_string());
    }
    let note = "registry.json does not hold its contract, so it is kept without one";
    notes.push(note.to_owned());
    Ok(Fingerprint::none().to_string())
}
