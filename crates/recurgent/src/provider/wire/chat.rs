//! OpenAI Chat Completions, and every server that speaks it: Ollama, llama.cpp, vLLM and many services.
//!
//! Servers differ in how they can be held to JSON. The strict schema is asked for first; a server that
//! does not know it is asked for a JSON object, then for plain text, from which the payload is salvaged.

use lifecycle::draft::{DraftFault, Usage};
use lifecycle::prompt::strict_payload_schema;
use serde_json::{Value, json};

use super::{Inquiry, PROGRAM, Shape, bearer, count, misshapen, salvaged, text};
use crate::provider::http::Post;

/// Whether a reply names how JSON was asked for as what is wrong. `llama_cpp.server` refuses it with 500.
pub(super) fn refuses_shape(compatible: bool, status: u16, said: &str) -> bool {
    let named = ["response_format", "json_schema", "json_object", "schema", "grammar"];
    let is_refusal = matches!(status, 400 | 404 | 422) || may_refuse_shape(compatible, status);
    is_refusal && named.iter().any(|word| said.contains(word))
}

/// Whether a reply may be about how JSON was asked for: servers of one's own fail in it without saying why.
pub(super) fn may_refuse_shape(compatible: bool, status: u16) -> bool {
    compatible && matches!(status, 500 | 501)
}

fn response_format(shape: Shape, compatible: bool) -> Option<Value> {
    let schema = strict_payload_schema();
    match shape {
        Shape::Schema => Some(json!({
            "type": "json_schema",
            "json_schema": {"name": PROGRAM, "strict": true, "schema": schema},
        })),
        // OpenAI refuses fields it does not know.
        Shape::Object if compatible => Some(json!({"type": "json_object", "schema": schema})),
        Shape::Object => Some(json!({"type": "json_object"})),
        Shape::Tool | Shape::Text => None,
    }
}

pub(super) fn post(inquiry: &Inquiry<'_>, shape: Shape, compatible: bool) -> Post {
    let mut body = json!({
        "model": inquiry.model,
        "messages": [
            {"role": "system", "content": inquiry.system},
            {"role": "user", "content": inquiry.user},
        ],
    });
    if let Some(fields) = body.as_object_mut() {
        // OpenAI's newer models refuse the old name; other servers know only that one.
        let limit = if compatible { "max_tokens" } else { "max_completion_tokens" };
        fields.insert(limit.to_owned(), json!(inquiry.max_output_tokens));
        let format =
            response_format(shape, compatible).map(|format| ("response_format".to_owned(), format));
        fields.extend(format);
        let temperature = inquiry.temperature.map(|t| ("temperature".to_owned(), json!(t)));
        fields.extend(temperature);
    }
    let url = format!("{}/chat/completions", inquiry.base_url);
    Post { url, headers: bearer(inquiry.key), body }
}

pub(super) fn payload(body: &Value) -> Result<Value, DraftFault> {
    let choice = body.pointer("/choices/0").ok_or_else(|| misshapen("choices"))?;
    match text(choice, "/finish_reason") {
        Some("length") => return Err(DraftFault::Truncated),
        Some("content_filter") => {
            return Err(DraftFault::Refused("the service's content filter stopped it".to_owned()));
        }
        Some(_) | None => {}
    }
    if let Some(refusal) = text(choice, "/message/refusal").filter(|words| !words.is_empty()) {
        return Err(DraftFault::Refused(format!("the model refused: {refusal}")));
    }
    match choice.pointer("/message/content") {
        Some(Value::String(words)) => salvaged(words),
        Some(Value::Array(parts)) => {
            salvaged(&parts.iter().filter_map(|part| text(part, "/text")).collect::<String>())
        }
        Some(Value::Null) => salvaged(""),
        Some(_) | None => Err(misshapen("message.content")),
    }
}

pub(super) fn usage(body: &Value) -> Usage {
    Usage {
        input_tokens: count(body, "/usage/prompt_tokens"),
        output_tokens: count(body, "/usage/completion_tokens"),
        cached_tokens: count(body, "/usage/prompt_tokens_details/cached_tokens"),
        ..Usage::default()
    }
}
