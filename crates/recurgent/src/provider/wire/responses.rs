//! OpenAI Responses: the answer's text must match a strict schema. Nothing is stored at the service.

use lifecycle::draft::{DraftFault, Usage};
use serde_json::{Value, json};

use super::{
    ModelRequest, PayloadKind, SERVICE_OUTPUT_TOKENS, Shape, Wire, bearer, count, misshapen,
    never_refuses, never_silently, salvaged, text,
};
use crate::provider::http::Post;
use crate::provider::stream::Streaming;

/// OpenAI Responses.
pub(super) const OPENAI: Wire = Wire {
    name: "openai",
    key_variable: Some("OPENAI_API_KEY"),
    base_url: "https://api.openai.com/v1",
    address_variable: Some(("OPENAI_BASE_URL", "")),
    elsewhere: Some(&super::COMPATIBLE),
    lists_models: false,
    default_model: "gpt-6.1-terra",
    model_prefixes: &["gpt-", "chatgpt-", "ft:gpt-", "o1", "o3", "o4"],
    max_output_tokens: SERVICE_OUTPUT_TOKENS,
    temperatures: None,
    shapes: &[Shape::Schema],
    post,
    refuses_shape: never_refuses,
    may_refuse_shape: never_silently,
    streaming: Some(Streaming { fields: || json!({"stream": true}), join }),
    payload,
    usage,
};

fn post(request: &ModelRequest<'_>, _shape: Shape) -> Post {
    let (schema, strict) = request.kind.strict_schema();
    let mut body = json!({
        "model": request.model,
        "instructions": request.system,
        "input": request.user,
        "text": {"format": {
            "type": "json_schema",
            "name": request.kind.name(),
            "strict": strict,
            "schema": schema,
        }},
        "max_output_tokens": request.max_output_tokens,
        "store": false,
    });
    if let (Some(fields), Some(temperature)) = (body.as_object_mut(), request.temperature) {
        fields.insert("temperature".to_owned(), json!(temperature));
    }
    let url = format!("{}/responses", request.base_url);
    Post { url, headers: bearer(request.key), body }
}

/// The last event has the whole answer.
fn join(events: &[Value]) -> Option<Value> {
    let ends = ["response.completed", "response.incomplete", "response.failed"];
    let last = events
        .iter()
        .rev()
        .find(|event| text(event, "/type").is_some_and(|kind| ends.contains(&kind)));
    last?.get("response").cloned()
}

fn payload(body: &Value, kind: PayloadKind<'_>) -> Result<Value, DraftFault> {
    match (text(body, "/status"), text(body, "/incomplete_details/reason")) {
        (Some("incomplete"), Some("content_filter")) => {
            return Err(DraftFault::Refused("the service's content filter stopped it".to_owned()));
        }
        (Some("incomplete"), _) => return Err(DraftFault::Truncated),
        (Some("failed" | "cancelled"), _) => return Err(failed(body)),
        (Some(_) | None, _) => {}
    }
    let output = body.get("output").and_then(Value::as_array).ok_or_else(|| misshapen("output"))?;
    let contents = output.iter().filter(|item| text(item, "/type") == Some("message"));
    let parts: Vec<&Value> =
        contents.filter_map(|item| item.get("content")?.as_array()).flatten().collect();
    if let Some(refusal) = parts.iter().find_map(|part| text(part, "/refusal")) {
        return Err(DraftFault::Refused(format!("the model refused: {refusal}")));
    }
    let words: String = parts.iter().filter_map(|part| text(part, "/text")).collect();
    salvaged(&words, kind)
}

fn failed(body: &Value) -> DraftFault {
    let words = text(body, "/error/message").unwrap_or("no reason given");
    let message = format!("the model service failed: {words}");
    match text(body, "/error/code") {
        Some("rate_limit_exceeded") => DraftFault::RateLimited { message, retry_after: None },
        Some(_) | None => DraftFault::Unavailable(message),
    }
}

fn usage(body: &Value) -> Usage {
    Usage {
        input_tokens: count(body, "/usage/input_tokens"),
        output_tokens: count(body, "/usage/output_tokens"),
        cached_tokens: count(body, "/usage/input_tokens_details/cached_tokens"),
        ..Usage::default()
    }
}
