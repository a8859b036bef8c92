//! Successes that say little: shown to people and to the evaluator, never to the caller.
//!
//! A signal is an observation. It changes no outcome: a tool's success stays what the tool said it is.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::outcome::Outcome;

/// Fields of a result that are examined.
const MAX_FIELDS: usize = 64;
/// Signals kept of one result.
const MAX_SIGNALS: usize = 8;
/// Characters kept of a field's name or a status.
const MAX_TEXT_CHARS: usize = 64;
/// A text longer than this is content, whatever words are in it.
const MAX_PLACEHOLDER_BYTES: usize = 80;

/// Fields that are empty when all is well.
const WELL_WHEN_EMPTY: [&str; 14] = [
    "conflicts",
    "errors",
    "failures",
    "issues",
    "metadata",
    "missing",
    "next",
    "notes",
    "problems",
    "provenance",
    "removed",
    "skipped",
    "violations",
    "warnings",
];
/// Fields that say how it went.
const STATUS_FIELDS: [&str; 4] = ["state", "status", "result_status", "outcome"];
/// Fields that hold what was asked for as one text.
const BODY_FIELDS: [&str; 8] =
    ["answer", "body", "content", "html", "markdown", "message", "summary", "text"];
/// Words of a status that qualify a success.
const RESERVATIONS: [&str; 10] = [
    "degraded",
    "dummy",
    "empty",
    "fallback",
    "incomplete",
    "mock",
    "partial",
    "placeholder",
    "stub",
    "unparsed",
];
/// What may well be absent from a good result: `no_errors`, `no_changes`.
const FINE_WITHOUT: [&str; 8] =
    ["change", "changes", "conflicts", "errors", "error", "issues", "problems", "warnings"];
/// Texts that stand where a result should.
const PLACEHOLDERS: [&str; 10] = [
    "coming soon",
    "dummy data",
    "example text",
    "insert text here",
    "lorem ipsum",
    "not implemented",
    "placeholder",
    "sample data",
    "tbd",
    "todo",
];

/// What makes a success weak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weakness {
    /// A status with a reservation: `success_no_parse`.
    WeakStatus,
    /// A list without items.
    EmptyArray,
    /// A map without fields.
    EmptyObject,
    /// A text without characters.
    EmptyBody,
    /// A text that stands for one still to come.
    PlaceholderText,
    /// Null of a program that ended without a result.
    NoResult,
}

impl Weakness {
    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::WeakStatus => "weak_status",
            Self::EmptyArray => "empty_array",
            Self::EmptyObject => "empty_object",
            Self::EmptyBody => "empty_body",
            Self::PlaceholderText => "placeholder_text",
            Self::NoResult => "no_result",
        }
    }
}

/// One reason to call a success weak.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WeakSignal {
    /// What it is.
    pub signal: Weakness,
    /// The field, or nothing for the result itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The text that gave it away, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Why an ok outcome says little; empty for one that does not, and for every error.
pub fn signals(outcome: &Outcome) -> Vec<WeakSignal> {
    let Some(value) = outcome.value() else { return Vec::new() };
    let mut signals: Vec<WeakSignal> = of_value(value, None).into_iter().collect();
    if let Value::Object(fields) = value {
        let found =
            fields.iter().take(MAX_FIELDS).filter_map(|(name, value)| of_field(name, value));
        signals.extend(found.take(MAX_SIGNALS));
    }
    signals
}

/// The signal of an ok outcome whose program ended without a result.
pub fn no_result() -> WeakSignal {
    signal(Weakness::NoResult, None, None)
}

fn of_field(name: &str, value: &Value) -> Option<WeakSignal> {
    let plain = name.to_lowercase();
    if WELL_WHEN_EMPTY.contains(&plain.as_str()) {
        return None;
    }
    match value {
        Value::String(text) if STATUS_FIELDS.contains(&plain.as_str()) => {
            has_reservation(text).then(|| signal(Weakness::WeakStatus, Some(name), Some(text)))
        }
        // Many a text is optional; one that is the result is not.
        Value::String(text) if text.trim().is_empty() && !BODY_FIELDS.contains(&plain.as_str()) => {
            None
        }
        Value::String(_)
        | Value::Array(_)
        | Value::Object(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_) => of_value(value, Some(name)),
    }
}

fn of_value(value: &Value, path: Option<&str>) -> Option<WeakSignal> {
    let (weakness, text) = match value {
        Value::Array(items) if items.is_empty() => (Weakness::EmptyArray, None),
        Value::Object(fields) if fields.is_empty() => (Weakness::EmptyObject, None),
        Value::String(text) if text.trim().is_empty() => (Weakness::EmptyBody, None),
        Value::String(text) if is_placeholder(text) => {
            (Weakness::PlaceholderText, Some(text.as_str()))
        }
        Value::String(_)
        | Value::Array(_)
        | Value::Object(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_) => return None,
    };
    Some(signal(weakness, path, text))
}

fn signal(weakness: Weakness, path: Option<&str>, text: Option<&str>) -> WeakSignal {
    let short = |text: &str| text.chars().take(MAX_TEXT_CHARS).collect();
    WeakSignal { signal: weakness, path: path.map(short), text: text.map(short) }
}

/// `success_no_parse` and `partial` have one; `ok`, `no_errors` and `failed` have none.
fn has_reservation(status: &str) -> bool {
    if status.len() > MAX_PLACEHOLDER_BYTES {
        return false;
    }
    let lower = status.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    let denied = |pair: &[&str]| matches!(pair, ["no" | "not" | "without", what] if !FINE_WITHOUT.contains(what));
    words.iter().any(|word| RESERVATIONS.contains(word)) || words.windows(2).any(denied)
}

fn is_placeholder(text: &str) -> bool {
    if text.len() > MAX_PLACEHOLDER_BYTES {
        return text.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("lorem ipsum"));
    }
    let lower = text.trim().to_lowercase();
    let plain = lower.trim_matches(|c: char| !c.is_alphanumeric());
    PLACEHOLDERS.contains(&plain)
        || ["lorem ipsum", "todo:", "placeholder "].iter().any(|start| lower.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Failure, FailureKind};
    use crate::request::{Method, Role};
    use serde_json::json;

    fn check(value: Value) -> Vec<String> {
        let outcome = outcome(Ok(value));
        signals(&outcome)
            .iter()
            .map(|s| format!("{}@{}", s.signal.name(), s.path.as_deref().unwrap_or("")))
            .collect()
    }

    fn outcome(result: Result<Value, Failure>) -> Outcome {
        let (role, method) = (Role::parse("r").unwrap(), Method::parse("m").unwrap());
        Outcome::new(role, method, result)
    }

    #[test]
    fn a_success_that_says_little_is_flagged() {
        for (value, expected) in [
            (json!([]), "empty_array@"),
            (json!({}), "empty_object@"),
            (json!("  "), "empty_body@"),
            (json!("TODO"), "placeholder_text@"),
            (json!("Lorem ipsum dolor sit amet"), "placeholder_text@"),
            (json!({"movies": []}), "empty_array@movies"),
            (json!({"details": {}}), "empty_object@details"),
            (json!({"body": "", "code": 200}), "empty_body@body"),
            (json!({"title": "Placeholder"}), "placeholder_text@title"),
            (json!({"status": "success_no_parse"}), "weak_status@status"),
            (json!({"status": "Partial"}), "weak_status@status"),
            (json!({"status": "ok, not parsed"}), "weak_status@status"),
        ] {
            assert_eq!(check(value.clone()), [expected], "{value}");
        }
        let both = check(json!({"status": "success_no_parse", "movies": []}));
        assert_eq!(both, ["weak_status@status", "empty_array@movies"]);
    }

    #[test]
    fn a_plain_success_is_not() {
        for value in [
            json!(null),
            json!(0),
            json!(false),
            json!([0]),
            json!("todo list of Ann"),
            json!({"status": "ok", "errors": [], "warnings": []}),
            json!({"status": "no_errors"}),
            json!({"status": "failed", "job": 3}),
            json!({"nickname": ""}),
            json!({"notebook": "notable"}),
        ] {
            assert_eq!(check(value.clone()), Vec::<String>::new(), "{value}");
        }
    }

    #[test]
    fn an_error_is_never_weak_and_a_flood_is_cut() {
        let failure = Failure::new(FailureKind::Execution, "x");
        assert!(signals(&outcome(Err(failure))).is_empty());
        let many: serde_json::Map<_, _> = (0..500).map(|n| (format!("k{n}"), json!([]))).collect();
        assert_eq!(check(Value::Object(many)).len(), MAX_SIGNALS);
        let long = signals(&outcome(Ok(json!({"x".repeat(999): []}))));
        assert_eq!(long[0].path.as_ref().unwrap().len(), MAX_TEXT_CHARS);
    }
}
