//! Gemini `generateContent`: the answer's text must match a JSON schema.

use lifecycle::draft::{DraftFault, Usage};
use serde_json::{Value, json};

use super::{
    ModelRequest, PayloadKind, SERVICE_OUTPUT_TOKENS, Shape, Wire, count, misshapen, never_refuses,
    never_silently, salvaged, text,
};
use crate::provider::http::Post;

/// Gemini `generateContent`.
pub(super) const GEMINI: Wire = Wire {
    name: "gemini",
    key_variable: Some("GEMINI_API_KEY"),
    base_url: "https://generativelanguage.googleapis.com/v1beta",
    address_variable: Some(("GOOGLE_GEMINI_BASE_URL", "/v1beta")),
    elsewhere: None,
    lists_models: false,
    default_model: "gemini-3.8-flash",
    model_prefixes: &["gemini"],
    max_output_tokens: SERVICE_OUTPUT_TOKENS,
    temperatures: None,
    shapes: &[Shape::Schema],
    post,
    refuses_shape: never_refuses,
    may_refuse_shape: never_silently,
    streaming: None,
    payload,
    usage,
};

fn post(request: &ModelRequest<'_>, _shape: Shape) -> Post {
    let mut generation = json!({
        "responseMimeType": "application/json",
        "responseJsonSchema": request.kind.schema(),
        "maxOutputTokens": request.max_output_tokens,
    });
    if let (Some(fields), Some(temperature)) = (generation.as_object_mut(), request.temperature) {
        fields.insert("temperature".to_owned(), json!(temperature));
    }
    let body = json!({
        "systemInstruction": {"parts": [{"text": request.system}]},
        "contents": [{"role": "user", "parts": [{"text": request.user}]}],
        "generationConfig": generation,
    });
    let model = request.model.strip_prefix("models/").unwrap_or(request.model);
    let url = format!("{}/models/{model}:generateContent", request.base_url);
    let headers = request.key.map(|key| ("x-goog-api-key", key.clone())).into_iter().collect();
    Post { url, headers, body }
}

fn payload(body: &Value, kind: PayloadKind<'_>) -> Result<Value, DraftFault> {
    if let Some(reason) = text(body, "/promptFeedback/blockReason") {
        return Err(DraftFault::Refused(format!("the service blocked the prompt: {reason}")));
    }
    let candidate = body.pointer("/candidates/0").ok_or_else(|| misshapen("candidates"))?;
    match text(candidate, "/finishReason") {
        Some("MAX_TOKENS") => return Err(DraftFault::Truncated),
        Some(
            reason @ ("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
            | "LANGUAGE"),
        ) => return Err(DraftFault::Refused(format!("the service stopped the answer: {reason}"))),
        Some(_) | None => {}
    }
    let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
    let parts = parts.ok_or_else(|| misshapen("content.parts"))?;
    let is_thought = |part: &&Value| part.get("thought") == Some(&Value::Bool(true));
    let words: String = parts
        .iter()
        .filter(|part| !is_thought(part))
        .filter_map(|part| text(part, "/text"))
        .collect();
    salvaged(&words, kind)
}

fn usage(body: &Value) -> Usage {
    let thoughts = count(body, "/usageMetadata/thoughtsTokenCount");
    Usage {
        input_tokens: count(body, "/usageMetadata/promptTokenCount"),
        output_tokens: count(body, "/usageMetadata/candidatesTokenCount").saturating_add(thoughts),
        cached_tokens: count(body, "/usageMetadata/cachedContentTokenCount"),
        ..Usage::default()
    }
}
