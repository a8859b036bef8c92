//! OpenAI Chat Completions, and every server that speaks it: Ollama, llama.cpp, vLLM and many services.
//!
//! Servers differ in how they can be held to JSON. The strict schema is asked for first; a server that
//! does not know it is asked for a JSON object, then for plain text, from which the payload is salvaged.

use lifecycle::draft::{DraftFault, Usage};
use lifecycle::prompt::strict_payload_schema;
use serde_json::{Value, json};

use super::{Inquiry, PROGRAM, Wire, bearer, count, misshapen, salvaged, text};
use crate::provider::http::Post;

/// How a server is asked for JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::provider) enum Shape {
    /// A strict schema.
    #[default]
    Schema,
    /// Any JSON object; some servers take a schema beside it.
    Object,
    /// In words only.
    Text,
}

impl Shape {
    /// What a server that refused this one may take.
    pub(in crate::provider) fn simpler(self) -> Option<Self> {
        match self {
            Self::Schema => Some(Self::Object),
            Self::Object => Some(Self::Text),
            Self::Text => None,
        }
    }

    /// Whether a refusal is about how JSON was asked for. Servers of one's own fail in this without naming
    /// it, too: `llama_cpp.server` answers 500.
    pub(in crate::provider) fn is_refused(wire: Wire, status: u16, said: &str) -> bool {
        let named = ["response_format", "json_schema", "json_object", "schema", "grammar"];
        match (wire, status) {
            (Wire::Chat { .. }, 400 | 404 | 422) => named.iter().any(|word| said.contains(word)),
            (Wire::Chat { compatible: true }, 500 | 501) => true,
            _ => false,
        }
    }

    fn response_format(self) -> Option<Value> {
        let schema = strict_payload_schema();
        match self {
            Self::Schema => Some(json!({
                "type": "json_schema",
                "json_schema": {"name": PROGRAM, "strict": true, "schema": schema},
            })),
            Self::Object => Some(json!({"type": "json_object", "schema": schema})),
            Self::Text => None,
        }
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
        let format = shape.response_format().map(|format| ("response_format".to_owned(), format));
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
        Some(Value::Null) => salvaged(""),
        Some(_) | None => Err(misshapen("message.content")),
    }
}

pub(super) fn usage(body: &Value) -> Usage {
    Usage {
        input_tokens: count(body, "/usage/prompt_tokens"),
        output_tokens: count(body, "/usage/completion_tokens"),
        cached_tokens: count(body, "/usage/prompt_tokens_details/cached_tokens"),
        cost: None,
    }
}
