//! One record per call, compact enough to be kept and read back by programs.

use serde_json::{Map, Value, json};

use crate::outcome::Outcome;
use crate::program::{hex, type_name};
use crate::request::{CallRequest, encoded_bytes};
use crate::settlement::Moment;
use sha2::{Digest, Sha256};

/// Largest argument a record holds whole; larger ones are cut to a preview.
pub const MAX_RECORDED_VALUE_BYTES: usize = 2048;
/// Characters of a text kept in a preview.
const PREVIEW_CHARS: usize = 160;
/// Largest value the content store takes.
pub const MAX_CONTENT_BYTES: usize = 512 * 1024;

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
    /// The value of an ok top-level outcome, if it is worth keeping and small enough.
    pub fn of(request: &CallRequest, outcome: &Outcome) -> Option<Self> {
        let value =
            outcome.value().filter(|value| !value.is_null() && request.lineage.depth() == 0)?;
        let payload =
            serde_json::to_string(value).ok().filter(|text| text.len() <= MAX_CONTENT_BYTES)?;
        let identity = hex(&Sha256::digest(request.id.0.as_bytes()));
        Some(Self {
            reference: format!("content:{}", identity.get(..24).unwrap_or(&identity)),
            kind: type_name(value),
            digest: format!("sha256:{}", hex(&Sha256::digest(payload.as_bytes()))),
            payload,
        })
    }
}

/// The record of one call, as programs read it from `context.conversation_history`.
pub fn record(
    request: &CallRequest,
    outcome: &Outcome,
    content: Option<&Content>,
    moment: &Moment,
) -> Value {
    json!({
        "call_id": request.id,
        "timestamp": moment.timestamp,
        "speaker": if request.lineage.depth() == 0 { "user" } else { "tool" },
        "method_name": request.method,
        "args": request.arguments.args.iter().map(bounded).collect::<Vec<_>>(),
        "kwargs": bounded_map(&request.arguments.kwargs),
        "outcome_summary": summary(outcome, content),
        "trace_id": request.lineage.trace(),
        "parent_call_id": request.lineage.parent(),
        "depth": request.lineage.depth(),
        "duration_ms": moment.duration_ms(),
    })
}

fn summary(outcome: &Outcome, content: Option<&Content>) -> Value {
    let mut summary = Map::new();
    summary.insert("status".into(), json!(outcome.status()));
    summary.insert("ok".into(), json!(outcome.is_ok()));
    match &outcome.result {
        Ok(value) => {
            summary.insert("value_class".into(), json!(type_name(value)));
            summary.extend(provenance(value));
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

/// Where external data came from, when the value says so.
fn provenance(value: &Value) -> Map<String, Value> {
    let Some(sources) = value.pointer("/provenance/sources").and_then(Value::as_array) else {
        return Map::new();
    };
    let first = |key: &str| {
        sources.first().and_then(|source| source.get(key)).cloned().unwrap_or(Value::Null)
    };
    Map::from_iter([
        ("source_count".to_owned(), json!(sources.len())),
        ("primary_uri".to_owned(), first("uri")),
        ("retrieval_mode".to_owned(), first("retrieval_mode")),
    ])
}

/// A value, or a short description of one that is too large to keep here.
pub fn bounded(value: &Value) -> Value {
    let bytes = encoded_bytes(value);
    if bytes <= MAX_RECORDED_VALUE_BYTES {
        return value.clone();
    }
    let preview = match value {
        Value::String(text) => text.chars().take(PREVIEW_CHARS).collect::<String>(),
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

/// [`bounded`], for named values.
pub fn bounded_map(values: &Map<String, Value>) -> Map<String, Value> {
    values.iter().map(|(key, value)| (key.clone(), bounded(value))).collect()
}
