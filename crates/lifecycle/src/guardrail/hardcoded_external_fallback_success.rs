//! The rule `hardcoded_external_fallback_success`, against records written into the program given as success in place
//! of fetched data.

use std::collections::BTreeSet;

use Language::{Python, Ruby};
use serde_json::{Map, Value};

use crate::dialect::{
    AssignmentStatement, Inspection, Language, Operand, Position, Rescued, ReturnedValue, Target,
};

use super::network::{fetches, fetching_calls};
use crate::artifact::RunVerdict;

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "hardcoded_external_fallback_success",
    violation_type: ViolationType::ExternalData,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Program(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "records written into the program given as success in place of fetched data",
    details: "\
When a fetch fails, a literal list in its place looks like fetched data and is not. Records count when they reach a
success from the error handler of a fetch, or in place of what was not found (`found or [...]`). Empty values, lists
of addresses (mirrors), texts, maps that say what failed (`warnings`, `error`, `\"ok\": false`, `\"state\": \"DOWN\"`) or
what they are (`source`, `\"cached\": true`, a text such as `built-in defaults`), and defaults for the call's own inputs and for memory pass; so do names:
`fallback_urls` is a list of addresses.",
    correction: "Do not return hardcoded data when fetching fails: return an error outcome such as \
                 `low_utility` or `unsupported_capability` that says what failed.",
    examples: &[
        violates(
            Python,
            "import urllib.request\ntry:\n    result = urllib.request.urlopen(args[0]).read()\n\
             except OSError:\n    result = [{\"title\": \"Heat\"}]",
        ),
        passes(
            Python,
            "import urllib.request\ntry:\n    result = urllib.request.urlopen(args[0]).read()\n\
             except OSError as problem:\n    result = Outcome.error(\"fetch_failed\", str(problem))",
        ),
        passes(
            Python,
            "import urllib.request\nfields = kwargs.get(\"fields\") or [\"title\"]\n\
             result = [urllib.request.urlopen(args[0]).read(), fields]",
        ),
        passes(
            Python,
            "import urllib.request\ntry:\n    result = urllib.request.urlopen(args[0]).read()\n\
             except OSError:\n    result = {\"items\": [], \"warnings\": [\"source unreachable\"]}",
        ),
        passes(
            Python,
            "import urllib.request\ntry:\n    urllib.request.urlopen(args[0]).read()\n    result = {\"state\": \"UP\"}\n\
             except OSError:\n    result = {\"url\": args[0], \"state\": \"DOWN\", \"checks\": [{\"name\": \"http\"}]}",
        ),
        passes(
            Python,
            "import urllib.request\nRATES = [{\"EUR\": 1}]\ntry:\n    result = urllib.request.urlopen(args[0]).read()\n\
             except OSError:\n    result = {\"rates\": RATES, \"info\": \"service unreachable; built-in defaults\"}",
        ),
        violates(Ruby, "tool(\"web_fetcher\").fetch(args[0]).value || [{ title: \"Heat\" }]"),
        passes(
            Ruby,
            "page = tool(\"web_fetcher\").fetch(args[0])\n\
             page.ok? ? page.value : Outcome.error(error_type: \"low_utility\")",
        ),
    ],
};

/// Parts of a key under which a value admits that data is missing, or says what it is.
const ADMITTING_KEYS: &[&str] = &[
    "error",
    "fail",
    "message",
    "missing",
    "note",
    "problem",
    "provenance",
    "reason",
    "skipped",
    "source",
    "stale",
    "tried",
    "unavailable",
    "unreachable",
    "warning",
];
/// Keys whose `false` admits it.
const STATUS_KEYS: &[&str] = &[
    "alive",
    "available",
    "connected",
    "found",
    "healthy",
    "live",
    "ok",
    "online",
    "passed",
    "reachable",
    "responding",
    "success",
    "up",
];
/// Parts of a key whose `true` admits it.
const FLAGS: &[&str] =
    &["cached", "default", "degraded", "estimate", "fallback", "offline", "partial", "sample"];
/// Parts of a text that says that the source could not be used, or what the data is.
const ADMITTING_TEXTS: &[&str] = &[
    "built-in",
    "cached",
    "could not",
    "default",
    "fallback",
    "no answer",
    "not reach",
    "offline",
    "stale",
    "unavailable",
    "unreachable",
];
/// Parts of a key whose value is a state.
const STATES: &[&str] = &["condition", "health", "state", "status"];
/// Parts of a state that says that something failed.
const FAILED_STATES: &[&str] = &[
    "closed",
    "critical",
    "dead",
    "degraded",
    "disconnected",
    "down",
    "error",
    "fail",
    "offline",
    "refused",
    "stale",
    "timed",
    "timeout",
    "unavailable",
    "unhealthy",
    "unknown",
    "unreach",
];

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    if !fetches(input.inspection) {
        return None;
    }
    let position = made_up_value(input.inspection)?;
    Some(Finding::at(
        position,
        "records written into the program are given as success in place of fetched data",
    ))
}

fn made_up_value(inspection: &Inspection) -> Option<Position> {
    let fetches = Fetches::of(inspection);
    let names = made_up_names(&inspection.assignments, &fetches);
    let made_up = |returned: &&ReturnedValue| {
        let recovers = fetches.are_handled(returned.recovering.as_ref());
        is_made_up(&returned.value, recovers, &names)
    };
    inspection.returned.iter().find(made_up).map(|returned| returned.position)
}

/// Where the fetching calls are among the calls, in order: a handler may stand for thousands of calls.
struct Fetches(Vec<usize>);

impl Fetches {
    fn of(inspection: &Inspection) -> Self {
        Self(fetching_calls(inspection))
    }

    /// Whether an error handler stands for one of them.
    fn are_handled(&self, rescued: Option<&Rescued>) -> bool {
        rescued.is_some_and(|rescued| {
            let first = self.0.partition_point(|call| *call < rescued.start);
            self.0.get(first).is_some_and(|call| *call < rescued.end)
        })
    }
}

/// The names that hold made-up records, also through other names.
fn made_up_names<'a>(
    assignments: &'a [AssignmentStatement],
    fetches: &Fetches,
) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for assignment in assignments {
        let Target::Name(name) = &assignment.target else { continue };
        let recovers = fetches.are_handled(assignment.recovering.as_ref());
        if is_made_up(&assignment.value, recovers, &names) {
            names.insert(name.as_str());
        }
    }
    names
}

/// Whether a value holds records that are made up: by name, or written where a fetch failed or found nothing.
fn is_made_up(value: &Operand, recovers: bool, names: &BTreeSet<&str>) -> bool {
    let named = |member: &Operand| member.name().is_some_and(|name| names.contains(name));
    let records = |member: &Operand| member.literal().is_some_and(has_records);
    let says_so = |member: &&Operand| {
        let constants = member.literal().and_then(Value::as_object);
        member.text().is_some_and(is_admitting_text) || constants.is_some_and(is_admitting)
    };
    if value.members().iter().any(says_so) {
        return false;
    }
    value.members().into_iter().any(|member| {
        let (member, stands_in) = match member.stands_in() {
            Some(instead) => (instead, true),
            None => (member, recovers),
        };
        named(member) || (stands_in && records(member))
    })
}

/// Whether there is a list of data in it: not of addresses, and not in a map that admits what is missing.
fn has_records(value: &Value) -> bool {
    match value {
        Value::Array(items) => {
            let admitted = |item: &Value| item.as_object().is_some_and(is_admitting);
            !items.is_empty() && !items.iter().all(is_address) && !items.iter().all(admitted)
        }
        Value::Object(fields) => !is_admitting(fields) && fields.values().any(has_records),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_admitting(fields: &Map<String, Value>) -> bool {
    fields.iter().any(|(key, value)| admits(key, value))
}

fn is_address(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("://") || text.starts_with('/'))
}

/// `service unreachable; built-in defaults`
fn is_admitting_text(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ADMITTING_TEXTS.iter().any(|words| text.contains(words))
}

/// `"warnings": ["source unreachable"]`, `"ok": false`, `"source": "sample"`, `"state": "DOWN"`
fn admits(key: &str, value: &Value) -> bool {
    let key = key.to_ascii_lowercase();
    let says = match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => true,
    };
    let has = |words: &[&str]| words.iter().any(|word| key.contains(word));
    let is_failed_state = || {
        let state = value.as_str().map(str::to_ascii_lowercase);
        state.is_some_and(|state| FAILED_STATES.iter().any(|word| state.contains(word)))
    };
    let is_admitted = || value.as_str().is_some_and(is_admitting_text);
    (says && has(ADMITTING_KEYS))
        || is_admitted()
        || (*value == Value::Bool(false) && STATUS_KEYS.contains(&key.as_str()))
        || (*value == Value::Bool(true) && has(FLAGS))
        || (has(STATES) && is_failed_state())
}
