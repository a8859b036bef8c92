//! OpenAI Chat Completions, and every server that speaks it: Ollama, llama.cpp, vLLM and many services.
//!
//! Servers differ in how they can be asked for JSON. The strict schema is asked for first; a server that
//! does not know it is asked for a JSON object, then for plain text, from which the payload is salvaged.

use lifecycle::draft::{DraftFault, Usage};
use serde_json::{Value, json};

use super::{
    ModelRequest, PayloadKind, SERVICE_OUTPUT_TOKENS, Shape, Wire, bearer, count, misshapen,
    never_silently, salvaged, text,
};
use crate::provider::http::Post;
use crate::provider::stream::Streaming;

/// The ways to ask for JSON.
const SHAPES: &[Shape] = &[Shape::Schema, Shape::Object, Shape::Text];

/// OpenAI Chat Completions.
pub(super) const OPENAI_CHAT: Wire = Wire {
    name: "openai-chat",
    key_variable: Some("OPENAI_API_KEY"),
    base_url: "https://api.openai.com/v1",
    address_variable: Some(("OPENAI_BASE_URL", "")),
    elsewhere: None,
    lists_models: false,
    default_model: "gpt-6.1-terra",
    model_prefixes: &[],
    max_output_tokens: SERVICE_OUTPUT_TOKENS,
    temperatures: None,
    shapes: SHAPES,
    post: |request, shape| post(request, shape, false),
    refuses_shape: |status, said| refuses_shape(false, status, said),
    may_refuse_shape: never_silently,
    streaming: Some(STREAMING),
    payload,
    usage,
};

/// Not every server reports the tokens: then each piece counts as one.
const STREAMING: Streaming = Streaming {
    fields: || json!({"stream": true, "stream_options": {"include_usage": true}}),
    join,
};

/// Any server that speaks the same form. Its models have smaller windows and rarely repair a program but may write
/// another: the first attempt is steady, a retry is not.
pub(in crate::provider) const COMPATIBLE: Wire = Wire {
    name: "compatible",
    key_variable: None,
    base_url: "",
    default_model: "default",
    lists_models: true,
    max_output_tokens: 2048,
    temperatures: Some((0.0, 0.8)),
    post: |request, shape| post(request, shape, true),
    refuses_shape: |status, said| refuses_shape(true, status, said),
    may_refuse_shape: |status| may_refuse_shape(true, status),
    ..OPENAI_CHAT
};

/// Whether a reply names how JSON was asked for as what is wrong. `llama_cpp.server` refuses it with 500.
fn refuses_shape(compatible: bool, status: u16, said: &str) -> bool {
    let named = ["response_format", "json_schema", "json_object", "schema", "grammar"];
    let is_refusal = matches!(status, 400 | 404 | 422) || may_refuse_shape(compatible, status);
    is_refusal && named.iter().any(|word| said.contains(word))
}

/// Whether a reply may be about how JSON was asked for: servers of one's own fail in it without saying why.
fn may_refuse_shape(compatible: bool, status: u16) -> bool {
    compatible && matches!(status, 500 | 501)
}

fn response_format(kind: PayloadKind<'_>, shape: Shape, compatible: bool) -> Option<Value> {
    let (schema, strict) = kind.strict_schema();
    match shape {
        Shape::Schema => Some(json!({
            "type": "json_schema",
            "json_schema": {"name": kind.name(), "strict": strict, "schema": schema},
        })),
        // OpenAI refuses fields it does not know.
        Shape::Object if compatible => Some(json!({"type": "json_object", "schema": schema})),
        Shape::Object => Some(json!({"type": "json_object"})),
        Shape::Tool | Shape::Text => None,
    }
}

fn post(request: &ModelRequest<'_>, shape: Shape, compatible: bool) -> Post {
    let mut body = json!({
        "model": request.model,
        "messages": [
            {"role": "system", "content": request.system},
            {"role": "user", "content": request.user},
        ],
    });
    if let Some(fields) = body.as_object_mut() {
        // OpenAI's newer models refuse the old name; other servers know only that one.
        let limit = if compatible { "max_tokens" } else { "max_completion_tokens" };
        fields.insert(limit.to_owned(), json!(request.max_output_tokens));
        let format = response_format(request.kind, shape, compatible)
            .map(|format| ("response_format".to_owned(), format));
        fields.extend(format);
        let temperature = request.temperature.map(|t| ("temperature".to_owned(), json!(t)));
        fields.extend(temperature);
    }
    let url = format!("{}/chat/completions", request.base_url);
    Post { url, headers: bearer(request.key), body }
}

fn join(pieces: &[Value]) -> Option<Value> {
    let of =
        |pointer: &str| pieces.iter().filter_map(|piece| text(piece, pointer)).collect::<String>();
    let finish_reason =
        pieces.iter().rev().find_map(|piece| text(piece, "/choices/0/finish_reason"))?;
    let usage =
        pieces.iter().rev().find_map(|piece| piece.get("usage").filter(|it| it.is_object()));
    let counted = || json!({"completion_tokens": pieces.len()});
    Some(json!({
        "choices": [{
            "finish_reason": finish_reason,
            "message": {
                "content": of("/choices/0/delta/content"),
                "refusal": of("/choices/0/delta/refusal"),
            },
        }],
        "usage": usage.cloned().unwrap_or_else(counted),
    }))
}

fn payload(body: &Value, kind: PayloadKind<'_>) -> Result<Value, DraftFault> {
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
        Some(Value::String(words)) => salvaged(words, kind),
        Some(Value::Array(parts)) => {
            let words: String = parts.iter().filter_map(|part| text(part, "/text")).collect();
            salvaged(&words, kind)
        }
        Some(Value::Null) => salvaged("", kind),
        Some(_) | None => Err(misshapen("message.content")),
    }
}

fn usage(body: &Value) -> Usage {
    Usage {
        input_tokens: count(body, "/usage/prompt_tokens"),
        output_tokens: count(body, "/usage/completion_tokens"),
        cached_tokens: count(body, "/usage/prompt_tokens_details/cached_tokens"),
        ..Usage::default()
    }
}
