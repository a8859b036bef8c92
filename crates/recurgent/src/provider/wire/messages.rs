//! Anthropic Messages: the answer's text must match a JSON schema. Models that know no such schema are given a
//! tool they must use, whose input is the program; models that always think refuse to be forced, so that is
//! what comes second. The system text, stable for a guest and depth, is marked for the service's prompt
//! cache.

use lifecycle::draft::{DraftFault, Usage};
use serde_json::{Value, json};

use super::{
    ModelRequest, PayloadKind, SERVICE_OUTPUT_TOKENS, Shape, Wire, count, misshapen,
    never_silently, salvaged, text,
};
use crate::provider::http::Post;
use crate::provider::secret::Secret;
use crate::provider::stream::Streaming;

/// Anthropic Messages.
pub(super) const ANTHROPIC: Wire = Wire {
    name: "anthropic",
    key_variable: Some("ANTHROPIC_API_KEY"),
    base_url: "https://api.anthropic.com/v1",
    address_variable: Some(("ANTHROPIC_BASE_URL", "/v1")),
    elsewhere: None,
    lists_models: false,
    default_model: "claude-sonnet-5-5",
    model_prefixes: &["claude"],
    max_output_tokens: SERVICE_OUTPUT_TOKENS,
    temperatures: None,
    shapes: &[Shape::Schema, Shape::Tool],
    post,
    refuses_shape,
    may_refuse_shape: never_silently,
    streaming: Some(Streaming { fields: || json!({"stream": true}), join }),
    payload,
    usage,
};

/// The version of the service's interface this is written for.
const VERSION: &str = "2023-06-01";

fn post(request: &ModelRequest<'_>, shape: Shape) -> Post {
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.max_output_tokens,
        // Tools come before the system text in the cached prefix: one mark covers both.
        "system": [{
            "type": "text",
            "text": request.system,
            "cache_control": {"type": "ephemeral"},
        }],
        "messages": [{"role": "user", "content": request.user}],
    });
    if let Some(fields) = body.as_object_mut() {
        fields.extend(json_fields(request.kind, shape));
    }
    if let (Some(fields), Some(temperature)) = (body.as_object_mut(), request.temperature) {
        fields.insert("temperature".to_owned(), json!(temperature));
    }
    let key = request.key.map(|key| ("x-api-key", key.clone()));
    let headers = [("anthropic-version", Secret::new(VERSION))].into_iter().chain(key).collect();
    Post { url: format!("{}/messages", request.base_url), headers, body }
}

fn json_fields(kind: PayloadKind<'_>, shape: Shape) -> Vec<(String, Value)> {
    let fields = match shape {
        Shape::Schema => {
            let format = json!({"type": "json_schema", "schema": kind.schema()});
            vec![("output_config", json!({"format": format}))]
        }
        Shape::Tool => {
            let (name, help, schema) = (kind.name(), kind.help(), kind.schema());
            let tool = json!({"name": name, "description": help, "input_schema": schema});
            let choice = json!({"type": "tool", "name": name});
            vec![("tools", json!([tool])), ("tool_choice", choice)]
        }
        Shape::Object | Shape::Text => Vec::new(),
    };
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Models before 4.5, and services that copy this one, do not know schemas of answers.
fn refuses_shape(status: u16, said: &str) -> bool {
    let named = ["output_config", "output_format", "output format", "structured output", "schema"];
    matches!(status, 400 | 422) && named.iter().any(|word| said.contains(word))
}

fn join(events: &[Value]) -> Option<Value> {
    let of =
        |kind: &'static str| events.iter().filter(move |event| text(event, "/type") == Some(kind));
    let mut message = of("message_start").next()?.get("message")?.as_object()?.clone();
    let content: Option<Vec<Value>> =
        of("content_block_start").map(|start| block(start, of("content_block_delta"))).collect();
    message.insert("content".to_owned(), Value::Array(content?));
    let mut usage = message.get("usage").and_then(Value::as_object).cloned().unwrap_or_default();
    for change in of("message_delta") {
        let stop_reason = change.pointer("/delta/stop_reason").cloned().unwrap_or_default();
        message.insert("stop_reason".to_owned(), stop_reason);
        usage.extend(change.get("usage").and_then(Value::as_object).cloned().unwrap_or_default());
    }
    message.insert("usage".to_owned(), Value::Object(usage));
    of("message_stop").next().map(|_| Value::Object(message))
}

/// One block of an answer, from how it starts and what is added to it.
fn block<'a>(start: &Value, deltas: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let mut block = start.get("content_block")?.as_object()?.clone();
    let deltas: Vec<&Value> =
        deltas.filter(|delta| delta.get("index") == start.get("index")).collect();
    let added = |pointer: &str| -> String {
        deltas.iter().filter_map(|delta| text(delta, pointer)).collect()
    };
    match block.get("type").and_then(Value::as_str) {
        Some("text") => block.insert("text".to_owned(), Value::String(added("/delta/text"))),
        Some("tool_use") => {
            let input = serde_json::from_str(&added("/delta/partial_json")).unwrap_or_default();
            block.insert("input".to_owned(), input)
        }
        Some(_) | None => None,
    };
    Some(Value::Object(block))
}

fn payload(body: &Value, kind: PayloadKind<'_>) -> Result<Value, DraftFault> {
    let content = body.get("content").and_then(Value::as_array);
    let content = content.ok_or_else(|| misshapen("content"))?;
    let words = || content.iter().filter_map(|block| text(block, "/text")).collect::<String>();
    match text(body, "/stop_reason") {
        Some("refusal") => return Err(DraftFault::Refused(said(&words()))),
        Some("max_tokens" | "model_context_window_exceeded") => return Err(DraftFault::Truncated),
        Some(_) | None => {}
    }
    let used = content.iter().find(|block| text(block, "/type") == Some("tool_use"));
    match used.and_then(|block| block.get("input")) {
        Some(input) => Ok(input.clone()),
        None => salvaged(&words(), kind),
    }
}

fn said(words: &str) -> String {
    match words.trim() {
        "" => "the model refused to write this program; ask for something else".to_owned(),
        words => format!("the model refused to write this program: {words}"),
    }
}

/// The service counts what it read from and wrote to its cache apart from the rest of the input.
fn usage(body: &Value) -> Usage {
    let cached = count(body, "/usage/cache_read_input_tokens");
    let written = count(body, "/usage/cache_creation_input_tokens");
    let fresh = count(body, "/usage/input_tokens");
    Usage {
        input_tokens: fresh.saturating_add(cached).saturating_add(written),
        output_tokens: count(body, "/usage/output_tokens"),
        cached_tokens: cached,
        cache_written_tokens: written,
        cost: None,
    }
}
