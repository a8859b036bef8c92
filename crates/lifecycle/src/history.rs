//! One record per call, compact enough to be kept and read back by programs.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::excerpt::shortened;
use crate::outcome::Outcome;
use crate::program::{Checksum, hex, type_name};
use crate::redact::redacted_field;
use crate::request::{CallRequest, encoded_bytes};
use crate::settlement::Timing;

/// What programs read records under: a view, not memory.
pub const HISTORY_KEY: &str = "conversation_history";
/// Records a program sees at once; it goes back from there page by page.
pub const HISTORY_PAGE: u64 = 100;
/// Largest argument a record holds whole; larger ones are cut to a preview.
pub const MAX_RECORDED_VALUE_BYTES: usize = 2048;
/// JSON text that a record or a log line holds of one list or map of values; the rest is summarised.
pub const MAX_RECORDED_BYTES: usize = 64 * 1024;
/// The same for the record of a call that a program made: programs can make many.
const MAX_NESTED_BYTES: usize = 4 * 1024;
/// The key of what stands for the rest of a map.
const REST: &str = "…";
/// Characters of a text kept in a preview.
const PREVIEW_CHARS: usize = 160;
/// Largest value of an earlier turn that a prompt holds whole.
const MAX_TURN_VALUE_BYTES: usize = 240;
/// Characters of a longer one that a prompt holds.
const TURN_PREVIEW_CHARS: usize = 120;
/// Largest value the content store takes.
pub const MAX_CONTENT_BYTES: usize = 512 * 1024;

/// Long arguments of one call that are kept.
const MAX_BODIES: usize = 4;
/// The place of a call's value; arguments stand under their number or name.
const VALUE: &str = "";

/// A value kept so that later calls can refer to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// `content:` and 24 hexadecimal digits.
    pub reference: String,
    /// Its JSON type.
    pub kind: &'static str,
    /// Its JSON text.
    pub payload: String,
    /// Of that text.
    pub digest: String,
}

impl Content {
    /// What a top-level call leaves to refer to, without its secrets: arguments too long for its record, and
    /// its value.
    pub fn of(request: &CallRequest, outcome: &Outcome) -> Vec<Self> {
        if request.lineage.depth() > 0 {
            return Vec::new();
        }
        let args = request.arguments.args.iter().enumerate();
        let args = args.map(|(index, value)| (index.to_string(), value));
        let kwargs = request.arguments.kwargs.iter().map(|(key, value)| (key.clone(), value));
        let is_long = |value: &Value| encoded_bytes(value) > MAX_RECORDED_VALUE_BYTES;
        let bodies = args
            .chain(kwargs)
            .filter(|(_, value)| is_long(value))
            .map(|(place, value)| (redacted_field(&place, value), place))
            .filter(|(value, _)| is_long(value))
            .take(MAX_BODIES);
        let mut contents: Vec<Self> =
            bodies.filter_map(|(value, place)| Self::new(request, &place, &value)).collect();
        let value = outcome.value().filter(|value| !value.is_null());
        contents.extend(
            value.and_then(|value| Self::new(request, VALUE, &redacted_field(VALUE, value))),
        );
        contents
    }

    /// What stands at a place of a call, if it is small enough.
    fn new(request: &CallRequest, place: &str, value: &Value) -> Option<Self> {
        let payload =
            serde_json::to_string(value).ok().filter(|text| text.len() <= MAX_CONTENT_BYTES)?;
        Some(Self {
            reference: reference(request, place),
            kind: type_name(value),
            digest: Checksum::of(&payload).to_string(),
            payload,
        })
    }
}

/// The same for the same place of the same call.
fn reference(request: &CallRequest, place: &str) -> String {
    let place = if place.is_empty() { String::new() } else { format!("\n{place}") };
    let identity = hex(&Sha256::digest(format!("{}{place}", request.id).as_bytes()));
    format!("content:{}", identity.get(..24).unwrap_or(&identity))
}

/// The record of one call, as programs read it from `context.conversation_history`. It is kept: it holds no secrets.
/// `program` is the one that gave the answer.
pub fn record(
    request: &CallRequest,
    outcome: &Outcome,
    contents: &[Content],
    timing: &Timing,
    program: Option<&Checksum>,
) -> Value {
    let at = |place: &str| {
        let wanted = reference(request, place);
        contents.iter().find(|content| content.reference == wanted)
    };
    let body = |place: &str, value: &Value| {
        let value = redacted_field(place, value);
        let mut shown = bounded(&value);
        let is_preview = shown != *value;
        if let (true, Value::Object(shown)) = (is_preview, &mut shown)
            && let Some(content) = at(place)
        {
            shown.insert("content_ref".to_owned(), json!(content.reference));
        }
        shown
    };
    let args = request.arguments.args.iter().enumerate();
    let kwargs = request.arguments.kwargs.iter();
    let room = if request.lineage.depth() == 0 { MAX_RECORDED_BYTES } else { MAX_NESTED_BYTES };
    json!({
        "call_id": request.id,
        "timestamp": timing.timestamp,
        "speaker": if request.lineage.depth() == 0 { "user" } else { "tool" },
        "method_name": request.method,
        "args": list(args.map(|(index, value)| body(&index.to_string(), value)), room),
        "kwargs": map(kwargs.map(|(key, value)| (key.clone(), body(key, value))), room),
        "outcome_summary": summary(outcome, at(VALUE)),
        "program_checksum": program,
        "trace_id": request.lineage.trace(),
        "parent_call_id": request.lineage.parent(),
        "depth": request.lineage.depth(),
        "duration_ms": timing.duration_ms(),
    })
}

fn summary(outcome: &Outcome, content: Option<&Content>) -> Value {
    let mut summary = Map::new();
    summary.insert("status".into(), json!(outcome.status()));
    summary.insert("ok".into(), json!(outcome.is_ok()));
    match &outcome.result {
        Ok(value) => {
            summary.insert("value_class".into(), json!(type_name(value)));
            summary.extend(outcome.observed.summary(value));
        }
        Err(failure) => {
            summary.insert("error_type".into(), json!(failure.kind.code()));
            summary.insert("retriable".into(), json!(failure.kind.retriable()));
        }
    }
    if let Some(content) = content {
        summary.insert("content_ref".into(), json!(content.reference));
        summary.insert("content_kind".into(), json!(content.kind));
        summary.insert("content_bytes".into(), json!(content.payload.len()));
        summary.insert("content_digest".into(), json!(content.digest));
    }
    Value::Object(summary)
}

/// The place of an earlier call's value among the stored contents, by its record.
pub fn content_of(record: &Value) -> Option<&str> {
    record.pointer("/outcome_summary/content_ref")?.as_str()
}

/// What a model is shown of an earlier call of its conversation: what was asked and what came of it.
/// `value` is the stored value of the call, if it is still kept.
pub fn turn(record: &Value, value: Option<&Value>) -> Value {
    let field = |name: &str| match record.get(name) {
        Some(Value::Array(args)) => args.iter().map(brief).collect(),
        Some(Value::Object(kwargs)) => {
            kwargs.iter().map(|(key, value)| (key.clone(), brief(value))).collect()
        }
        Some(other) => other.clone(),
        None => Value::Null,
    };
    let is_given = |(_, value): &(&str, Value)| match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let error = record.pointer("/outcome_summary/error_type").cloned().unwrap_or_default();
    let shown = [
        ("method", field("method_name")),
        ("args", field("args")),
        ("kwargs", field("kwargs")),
        ("error_type", error),
        ("value", value.map(brief).unwrap_or_default()),
    ];
    let shown = shown.into_iter().filter(is_given);
    Value::Object(shown.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A value, or the beginning of one that is too long for a prompt.
fn brief(value: &Value) -> Value {
    let bytes = encoded_bytes(value);
    if bytes <= MAX_TURN_VALUE_BYTES {
        return value.clone();
    }
    let whole = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let preview = shortened(&whole, TURN_PREVIEW_CHARS);
    json!({"type": type_name(value), "bytes": bytes, "preview": preview})
}

/// A value, or a short description of one that is too large to keep here.
pub fn bounded(value: &Value) -> Value {
    let bytes = encoded_bytes(value);
    if bytes <= MAX_RECORDED_VALUE_BYTES {
        return value.clone();
    }
    let preview = match value {
        Value::String(text) => text.chars().take(PREVIEW_CHARS).collect(),
        Value::Array(items) => format!("{} items", items.len()),
        Value::Object(fields) => {
            let keys: Vec<_> = fields.keys().take(8).map(String::as_str).collect();
            format!("{} keys: {}", fields.len(), keys.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    };
    let preview: String = preview.chars().take(PREVIEW_CHARS).collect();
    json!({"type": type_name(value), "bytes": bytes, "preview": preview})
}

/// [`bounded`], for a list of values.
pub fn bounded_list(values: &[Value]) -> Vec<Value> {
    list(values.iter().map(bounded), MAX_RECORDED_BYTES)
}

/// [`bounded`], for named values: a value that its name marks as a secret is not described either.
pub fn bounded_map(values: &Map<String, Value>) -> Map<String, Value> {
    let shown =
        |(key, value): (&String, &Value)| (key.clone(), bounded(&redacted_field(key, value)));
    map(values.iter().map(shown), MAX_RECORDED_BYTES)
}

fn list(shown: impl ExactSizeIterator<Item = Value>, room: usize) -> Vec<Value> {
    let (mut kept, rest) = fitting(shown, room, encoded_bytes);
    kept.extend(rest);
    kept
}

fn map(shown: impl ExactSizeIterator<Item = (String, Value)>, room: usize) -> Map<String, Value> {
    let (kept, rest) = fitting(shown, room, |(key, value)| key.len() + encoded_bytes(value));
    kept.into_iter().chain(rest.map(|rest| (REST.to_owned(), rest))).collect()
}

/// As many as there is room for, and what stands for the others.
fn fitting<T>(
    shown: impl ExactSizeIterator<Item = T>,
    room: usize,
    bytes: impl Fn(&T) -> usize,
) -> (Vec<T>, Option<Value>) {
    let (count, mut left) = (shown.len(), Some(room));
    let fits = |item: &T| {
        left = left.and_then(|left| left.checked_sub(bytes(item)));
        left.is_some()
    };
    let kept: Vec<T> = shown.take_while(fits).collect();
    let preview = format!("{} more", count - kept.len());
    let rest = || json!({"type": "array", "bytes": room, "preview": preview});
    let is_cut = kept.len() < count;
    (kept, is_cut.then(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_what_was_asked_and_what_came_of_it() {
        let record = json!({
            "call_id": "c1", "method_name": "ask", "args": ["how many?"], "kwargs": {},
            "outcome_summary": {"status": "ok", "content_ref": "content:1"},
        });
        assert_eq!(content_of(&record), Some("content:1"));
        let shown = turn(&record, Some(&json!(3)));
        assert_eq!(shown, json!({"method": "ask", "args": ["how many?"], "value": 3}));
        let long = turn(&record, Some(&json!("x".repeat(1 << 20))));
        assert_eq!(long["value"]["preview"], format!("{}…", "x".repeat(TURN_PREVIEW_CHARS)));
        let failed = json!({
            "method_name": "add", "args": [], "kwargs": {"by": 1},
            "outcome_summary": {"error_type": "timeout"},
        });
        assert_eq!(content_of(&failed), None);
        let shown = turn(&failed, None);
        assert_eq!(shown, json!({"method": "add", "kwargs": {"by": 1}, "error_type": "timeout"}));
    }

    #[test]
    fn what_is_kept_of_many_values_is_bounded_too() {
        let few: Vec<Value> = (0..100).map(|n| json!(n)).collect();
        assert_eq!(bounded_list(&few), few);
        let many = bounded_list(&vec![json!("word"); 1_000_000]);
        assert!(encoded_bytes(&json!(many)) < 2 * MAX_RECORDED_BYTES);
        let left = 1_000_000 - (many.len() - 1);
        assert_eq!(many.last().unwrap()["preview"], format!("{left} more"));
        let names: Map<String, Value> = (0..100_000).map(|n| (format!("k{n}"), json!(n))).collect();
        let kept = bounded_map(&names);
        assert!(encoded_bytes(&json!(kept)) < 2 * MAX_RECORDED_BYTES);
        assert_eq!(kept[REST]["preview"], format!("{} more", 100_000 - (kept.len() - 1)));
        let long = Map::from_iter([("k".repeat(MAX_RECORDED_BYTES), json!(1))]);
        assert_eq!(bounded_map(&long).keys().collect::<Vec<_>>(), [REST]);
    }
}
