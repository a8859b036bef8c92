//! One tool, in full.

use lifecycle::admission::{Case, Inputs};
use lifecycle::dialect::{ContextAccess, DefinitionOwner, Inspection, inspect};
use lifecycle::example::Example;
use lifecycle::pattern::PatternEvent;
use lifecycle::request::{Method, Role};
use lifecycle::tool::ToolCount;
use recurgent::store::bundle::{ArtifactEntry, Bundle, VersionEntry};
use recurgent::store::catalog::TaughtMethod;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use recurgent::upkeep;
use serde_json::{Map, Value, json};

use super::diff;
use crate::exit::CommandFault;
use crate::render::paint::{Paint, Style, clean, clip};
use crate::render::{self, Room, Stream};

/// Characters of a checksum that distinguish versions.
const CHECKSUM_CHARS: usize = 19;
/// Maximum number of methods listed for their examples.
const MAX_METHODS: usize = 1_000;
/// Recorded calls that are shown.
const MAX_CASES: usize = 5;
/// Before a chart on a line of its own.
const CHART_INDENT: &str = "    ";
/// Columns of one line of a contract.
const LINE_COLUMNS: usize = 160;

pub(super) fn show(store: &SqliteStore, role: &Role, as_json: bool) -> Result<(), CommandFault> {
    let known = store.bundle(Some(role))?;
    let facts = facts(store, role, &known)?;
    if as_json {
        render::json(&facts)
    } else {
        render::lines(&lines(&facts, render::room(Stream::Output)))
    }
}

fn facts(store: &SqliteStore, role: &Role, known: &Bundle) -> Result<Value, CommandFault> {
    let tool = known.tools.first();
    let corrected = upkeep::corrected_answers(store)?;
    let health = tool.map(|tool| upkeep::health(store, tool, &corrected)).transpose()?;
    let methods: Vec<Value> = known
        .artifacts
        .iter()
        .map(|artifact| {
            let examples = store.examples(role, &artifact.method)?;
            Ok(method(artifact, &examples, &store.corpus(&artifact.key())?))
        })
        .collect::<Result<_, CommandFault>>()?;
    let has_program = |method: &Method| known.artifacts.iter().any(|it| it.method == *method);
    let taught = store.taught(Some(role), MAX_METHODS)?.into_iter();
    let taught: Vec<Value> = taught
        .filter(|taught| !has_program(&taught.method))
        .map(|TaughtMethod { method, .. }| {
            let examples = store.examples(role, &method)?;
            let examples: Vec<Value> = examples.iter().map(Example::to_json).collect();
            Ok(json!({"method": method, "examples": examples}))
        })
        .collect::<Result<_, CommandFault>>()?;
    Ok(json!({
        "name": role,
        "is_tool": tool.is_some(),
        "contract": tool.and_then(|tool| tool.contract.as_ref()),
        "created_at": tool.map(|tool| &tool.created_at),
        "health": health,
        "recent_calls": recent(store, role)?,
        "methods": methods,
        "taught_without_program": taught,
        "recommendations": upkeep::recommend(store, Some(role))?,
    }))
}

fn method(artifact: &ArtifactEntry, examples: &[Example], corpus: &[Case]) -> Value {
    let current = artifact.versions.iter().find(|v| v.checksum == artifact.current);
    let inspection = current.and_then(|version| inspect(artifact.language, &version.code).ok());
    let keys_used =
        |access| inspection.as_ref().map(|found| keys(found, access)).unwrap_or_default();
    json!({
        "method": artifact.method,
        "language": artifact.language,
        "contract_fingerprint": artifact.contract_fingerprint,
        "signature": inspection.as_ref().map(|found| signature(found, artifact.method.as_str())),
        "reads": keys_used(ContextAccess::Read),
        "writes": keys_used(ContextAccess::Write),
        "current": artifact.current,
        "pinned": is_set(&artifact.rest, "pinned"),
        "generations": artifact.rest.get("generations"),
        "versions": artifact.versions.iter().rev().map(version).collect::<Vec<_>>(),
        "code": current.map(|version| &version.code),
        "examples": examples.iter().map(Example::to_json).collect::<Vec<_>>(),
        "corpus": corpus.iter().map(|case| inputs(&case.inputs)).collect::<Vec<_>>(),
    })
}

/// The inputs of a recorded call, as examples have them.
fn inputs(inputs: &Inputs) -> Value {
    let mut fields = Map::new();
    fields.insert("args".to_owned(), json!(inputs.args));
    for (name, values) in [("kwargs", &inputs.kwargs), ("context", &inputs.context)] {
        if !values.is_empty() {
            fields.insert(name.to_owned(), json!(values));
        }
    }
    Value::Object(fields)
}

/// How the last calls of a role ended, oldest first.
fn recent(store: &SqliteStore, role: &Role) -> Result<Vec<Value>, CommandFault> {
    let ended = |event: &PatternEvent| json!({"timestamp": event.timestamp, "method": event.method_name, "state": state_of(event)});
    Ok(store.patterns(role)?.iter().map(ended).collect())
}

/// How a call ended, in a word. An error that the tool did not cause is `other`.
fn state_of(event: &PatternEvent) -> &'static str {
    match (ToolCount::of_event(event), event.weak_success_signals.is_empty()) {
        (ToolCount::Success, true) => "ok",
        (ToolCount::Success, false) => "weak",
        (ToolCount::Failure, _) => "failed",
        (ToolCount::Neither, _) => "other",
    }
}

fn version(version: &VersionEntry) -> Value {
    json!({
        "version": version.number,
        "code": version.code,
        "checksum": version.checksum,
        "successes": version.successes,
        "failures": version.failures,
        "repairs": version.repairs,
        "cacheable": version.cacheability.cacheable(),
        "cacheability_reason": version.cacheability.reason(),
        "dependencies": version.manifest.to_json(),
        "admitted_at": version.admitted_at,
        "standing": version.rest.get("standing"),
        "trigger": version.rest.get("trigger_reason"),
        "parent": version.rest.get("parent"),
        "failure": version.rest.get("failure"),
        "trigger_stage": version.rest.get("trigger_stage"),
        "trigger_error_class": version.rest.get("trigger_error_class"),
        "trigger_attempt_id": version.rest.get("trigger_attempt_id"),
        "failing_case": version.rest.get("failing_case").map(parsed),
        "pure": is_set(&version.rest, "pure"),
        "rejected": is_set(&version.rest, "rejected"),
        "author": version.rest.get("author"),
        "agreement": version.rest.get("agreement").map(parsed),
    })
}

/// Whether a column that the store keeps as 0 or 1 is set.
fn is_set(rest: &Map<String, Value>, column: &str) -> bool {
    rest.get(column).and_then(Value::as_i64).is_some_and(|value| value != 0)
}

/// The value of a column that the store keeps as JSON text.
fn parsed(text: &Value) -> Value {
    let parsed = text.as_str().and_then(|text| serde_json::from_str(text).ok());
    parsed.unwrap_or_else(|| text.clone())
}

/// The signature of a method: the parameters of the function of its name, or what its program reads if it defines no
/// such function.
fn signature(inspection: &Inspection, method: &str) -> String {
    let own = inspection
        .definitions
        .iter()
        .find(|d| d.owner == DefinitionOwner::Program && d.name == method);
    match own {
        Some(definition) => format!("{method}({})", definition.parameters.join(", ")),
        None if inspection.reads_arguments => format!("{method}(*args, **kwargs)"),
        None => format!("{method}()"),
    }
}

fn keys(inspection: &Inspection, access: ContextAccess) -> Vec<String> {
    let mut keys: Vec<String> = inspection
        .context
        .iter()
        .filter(|used| used.access == access)
        .map(|used| used.key.clone())
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

fn lines(facts: &Value, room: Room) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    let title = |text: &str| paint.in_style(Style::Title, text);
    let mut lines = vec![paint.in_style(Style::Name, &text(facts, "name"))];
    if facts.get("is_tool") != Some(&Value::Bool(true)) {
        lines.push("an agent that was called directly, not a forged tool".to_owned());
    }
    let empty = Map::new();
    let object = |key: &str| facts.get(key).and_then(Value::as_object).unwrap_or(&empty);
    lines.extend(object("contract").iter().map(|(key, value)| field(key, value)));
    let health = object("health");
    if !health.is_empty() {
        lines.push(title("health"));
    }
    lines.extend(health.iter().filter(|(key, _)| *key != "name").map(|(k, v)| field(k, v)));
    lines.extend(chart(&list(facts, "recent_calls"), room, paint));
    for method in list(facts, "methods") {
        lines.extend(method_lines(&method, room));
    }
    for method in list(facts, "taught_without_program") {
        lines.push(format!("{} (no program yet)", title(&text(&method, "method"))));
        lines.extend(list(&method, "examples").iter().map(|example| field("example", example)));
    }
    for recommended in list(facts, "recommendations") {
        let constraint = recommended.pointer("/constraint/text").and_then(Value::as_str);
        lines.push(format!(
            "{} {} {}",
            paint.in_style(Style::Warning, &text(&recommended, "action")),
            clean(constraint.unwrap_or_default()),
            text(&recommended, "reason")
        ));
    }
    lines
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The last calls, one block each: tall if it worked, half if its success says little, low if it failed, a dot if it ended
/// in an error that the tool did not cause. The counts are of all of them; where they leave no room, the blocks have a
/// line of their own, which says how many it shows.
fn chart(recent: &[Value], room: Room, paint: Paint) -> Vec<String> {
    const LABEL: &str = "  last calls: ";
    if recent.is_empty() {
        return Vec::new();
    }
    let blocks = |calls: &[Value]| -> String {
        calls.iter().map(|call| block(&text(call, "state"), paint)).collect()
    };
    let count = |state: &str| recent.iter().filter(|call| text(call, "state") == state).count();
    let note = format!("ok {}, weak {}, failed {}", count("ok"), count("weak"), count("failed"));
    let note = match count("other") {
        0 => note,
        others => format!("{note}, other errors {others}"),
    };
    let beside = LABEL.len() + recent.len() + 2 + note.len();
    if beside <= room.columns {
        let note = paint.in_style(Style::Faint, &note);
        return vec![format!("{LABEL}{}  {note}", blocks(recent))];
    }
    let cut = |shown: usize| format!("  (last {shown} of {})", recent.len());
    let most = match room.columns.saturating_sub(CHART_INDENT.len()) {
        whole if recent.len() <= whole => recent.len(),
        columns => columns.saturating_sub(cut(recent.len()).len()).max(1),
    };
    let shown = recent.get(recent.len().saturating_sub(most)..).unwrap_or_default();
    let cut = if shown.len() < recent.len() { cut(shown.len()) } else { String::new() };
    let mut lines = render::beside(LABEL, LABEL.len(), &note, room);
    lines.push(format!("{CHART_INDENT}{}{cut}", blocks(shown)));
    lines
}

fn block(state: &str, paint: Paint) -> String {
    match state {
        "ok" => paint.in_style(Style::Good, "█"),
        "weak" => paint.in_style(Style::Warning, "▄"),
        "other" => paint.in_style(Style::Faint, "·"),
        _ => paint.in_style(Style::Bad, "▁"),
    }
}

fn method_lines(method: &Value, room: Room) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    // A program that is missing or does not parse has no signature.
    let signature = match text(method, "signature") {
        unknown if unknown.is_empty() => text(method, "method"),
        known => known,
    };
    let contract = match text(method, "contract_fingerprint").as_str() {
        "none" => String::new(),
        fingerprint => format!(", contract {}", clip(fingerprint, 8)),
    };
    let mut lines = vec![format!(
        "{} ({}{contract})",
        paint.in_style(Style::Title, &signature),
        text(method, "language")
    )];
    for key in ["reads", "writes"] {
        let keys = list(method, key);
        if !keys.is_empty() {
            lines.push(field(key, &Value::Array(keys)));
        }
    }
    if method.get("pinned") == Some(&Value::Bool(true)) {
        lines.push("  pinned: nothing replaces the version that runs".to_owned());
    }
    let current = text(method, "current");
    let versions = list(method, "versions");
    for (index, version) in versions.iter().enumerate() {
        lines.push(version_line(version, &current));
        lines.extend(written_because(version).map(|why| field("  written because of", &why)));
        if let Some(case) = version.get("failing_case").filter(|case| !case.is_null()) {
            lines.push(field("  did not reproduce", case));
        }
        if let Some(before) = versions.get(index + 1) {
            lines.extend(comparison(before, version, room));
        }
    }
    lines.extend(list(method, "examples").iter().map(|example| field("example", example)));
    let corpus = list(method, "corpus");
    lines.extend(corpus.iter().take(MAX_CASES).map(|case| field("recorded call", case)));
    if let Some(more) = corpus.len().checked_sub(MAX_CASES).filter(|more| *more > 0) {
        lines.push(format!("  … {more} more recorded calls"));
    }
    let code = method.get("code").and_then(Value::as_str).unwrap_or_default();
    lines.extend(code.lines().map(|line| format!("    {}", clean(line))));
    lines
}

/// What a version changed of the one before it.
fn comparison(before: &Value, version: &Value, room: Room) -> Vec<String> {
    let code = |version: &Value| {
        version.get("code").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (older, newer) = (code(before), code(version));
    if older.is_empty() || newer.is_empty() {
        return Vec::new();
    }
    let paint = render::paint(Stream::Output);
    let name = |version: &Value| format!("version {}", text(version, "version"));
    let width = room.columns.saturating_sub(4);
    let title = format!("    {}", diff::heading(&name(before), &name(version), width));
    let compared = diff::lines(&older, &newer, width, paint);
    let compared = compared.into_iter().map(|line| format!("    {line}"));
    std::iter::once(paint.in_style(Style::Faint, &title)).chain(compared).collect()
}

/// The failure that a version was written because of, and the attempt it occurred in.
fn written_because(version: &Value) -> Option<Value> {
    let failure = version.get("failure").and_then(Value::as_str)?;
    let stage = version.get("trigger_stage").and_then(Value::as_str);
    let attempt = version.get("trigger_attempt_id").and_then(Value::as_u64);
    Some(match (stage, attempt) {
        (Some(stage), Some(attempt)) => json!(format!("{failure} ({stage}, attempt {attempt})")),
        _ => json!(failure),
    })
}

/// One version of a method; `current` is the checksum of the one that runs.
fn version_line(version: &Value, current: &str) -> String {
    let checksum = text(version, "checksum");
    let is_rejected = version.get("rejected") == Some(&Value::Bool(true));
    let state = match (is_rejected, checksum == current) {
        (true, _) => "  rejected by a person",
        (false, true) => "  runs",
        (false, false) => "",
    };
    let standing = match text(version, "standing") {
        unknown if unknown.is_empty() => unknown,
        known => format!(" {known}"),
    };
    let agreement = match version.get("agreement").and_then(Value::as_object) {
        Some(found) => {
            let count = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or(0);
            format!(", {} of {} programs agreed", count("agreeing"), count("candidates"))
        }
        None => String::new(),
    };
    format!(
        "  version {} {} ok {}, failed {}, {}{agreement}{standing}{state}",
        text(version, "version"),
        checksum.chars().take(CHECKSUM_CHARS).collect::<String>(),
        text(version, "successes"),
        text(version, "failures"),
        text(version, "cacheability_reason"),
    )
}

/// A field without control characters, and strings without their quotes; empty if there is none.
fn text(value: &Value, key: &str) -> String {
    match value.get(key) {
        Some(Value::String(text)) => clean(text),
        None | Some(Value::Null) => String::new(),
        Some(other) => clean(&other.to_string()),
    }
}

fn field(key: &str, value: &Value) -> String {
    let shown = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    format!("  {key}: {}", clip(&clean(&shown), LINE_COLUMNS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_are_no_fault_of_the_tool_are_not_shown_as_failed() {
        let event = |status: &str, counted| PatternEvent {
            outcome_status: status.to_owned(),
            counted: Some(counted),
            ..PatternEvent::default()
        };
        let calls = [
            event("ok", ToolCount::Success),
            event("error", ToolCount::Neither),
            event("error", ToolCount::Failure),
        ];
        let states = calls.each_ref().map(state_of);
        assert_eq!(states, ["ok", "other", "failed"]);
        let recent: Vec<Value> = states.iter().map(|state| json!({ "state": state })).collect();
        let room = Room { columns: 100, is_limited: true };
        assert_eq!(
            chart(&recent, room, Paint { colour: false }),
            ["  last calls: █·▁  ok 1, weak 0, failed 1, other errors 1"]
        );
    }

    #[test]
    fn the_counts_are_of_all_calls_at_every_width() {
        let calls = |count: usize| -> Vec<Value> {
            (0..count).map(|_| json!({"state": "ok"})).chain([json!({"state": "other"})]).collect()
        };
        for (count, columns, expected) in [
            (5, 70, &["  last calls: █████·  ok 5, weak 0, failed 0, other errors 1"][..]),
            (5, 60, &["  last calls: █████·  ok 5, weak 0, failed 0, other errors 1"]),
            (
                5,
                40,
                &[
                    "  last calls: ok 5, weak 0, failed 0,",
                    "              other errors 1",
                    "    █████·",
                ],
            ),
            (
                59,
                40,
                &[
                    "  last calls: ok 59, weak 0, failed 0,",
                    "              other errors 1",
                    "    ██████████████████·  (last 19 of 60)",
                ],
            ),
        ] {
            let room = Room { columns, is_limited: true };
            let shown = chart(&calls(count), room, Paint { colour: false });
            assert_eq!(shown, expected, "{count} at {columns}");
        }
    }

    #[test]
    fn unknown_fields_are_not_shown_as_null() {
        let version = json!({"version": 1, "checksum": "sha256:0", "successes": 2, "failures": 0,
            "cacheability_reason": "pure", "standing": null, "failing_case": null});
        let method = json!({"method": "greet", "signature": null, "language": "python",
            "contract_fingerprint": "none", "current": "sha256:1", "code": null,
            "versions": [version]});
        let room = Room { columns: 100, is_limited: true };
        let shown = lines(&json!({"name": "greeter", "is_tool": true, "methods": [method]}), room);
        assert_eq!(
            shown,
            ["greeter", "greet (python)", "  version 1 sha256:0 ok 2, failed 0, pure"]
        );
    }
}
