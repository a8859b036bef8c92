//! The forms in which services are asked: one request shape (system, user, one schema) over four wires.

mod chat;
mod gemini;
mod messages;
mod responses;

use lifecycle::draft::{DraftFault, Usage, salvage};
use serde_json::Value;

use super::http::Post;
use super::secret::Secret;

/// What the program is called where a service wants a name for it.
const PROGRAM: &str = "write_program";
/// What that is, in words.
const PROGRAM_HELP: &str = "Return the program that answers the call, and the packages it needs.";
/// Characters of an unreadable answer that are shown.
const SHOWN_CHARS: usize = 160;

/// How a service is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions; with `compatible`, as every such server takes it.
    Chat {
        /// Not OpenAI's own service.
        compatible: bool,
    },
    /// Gemini `generateContent`.
    Gemini,
}

/// How a service is held to JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Shape {
    /// By a strict schema of the answer.
    #[default]
    Schema,
    /// By a tool the model must use, whose input is the answer.
    Tool,
    /// To any JSON object; some servers take a schema beside it.
    Object,
    /// In words only.
    Text,
}

/// One request, whatever its wire.
#[derive(Debug)]
pub(super) struct Inquiry<'a> {
    pub(super) base_url: &'a str,
    pub(super) key: Option<&'a Secret>,
    pub(super) model: &'a str,
    pub(super) system: &'a str,
    pub(super) user: &'a str,
    pub(super) max_output_tokens: u32,
    pub(super) temperature: Option<f64>,
}

impl Wire {
    /// The request, in this wire's form; `shape` is one this wire has.
    pub(super) fn post(self, inquiry: &Inquiry<'_>, shape: Shape) -> Post {
        match self {
            Self::Messages => messages::post(inquiry, shape),
            Self::Responses => responses::post(inquiry),
            Self::Chat { compatible } => chat::post(inquiry, shape, compatible),
            Self::Gemini => gemini::post(inquiry),
        }
    }

    /// How to ask a service that refused `shape`: services and their models differ in what they take.
    pub(super) fn other_shape(self, shape: Shape) -> Option<Shape> {
        match (self, shape) {
            (Self::Messages, Shape::Schema) => Some(Shape::Tool),
            (Self::Chat { .. }, Shape::Schema) => Some(Shape::Object),
            (Self::Chat { .. }, Shape::Object) => Some(Shape::Text),
            (Self::Messages | Self::Responses | Self::Chat { .. } | Self::Gemini, _) => None,
        }
    }

    /// Whether a reply refuses how JSON was asked for.
    pub(super) fn refuses_shape(self, status: u16, said: &str) -> bool {
        match self {
            Self::Messages => messages::refuses_shape(status, said),
            Self::Chat { compatible } => chat::refuses_shape(compatible, status, said),
            Self::Responses | Self::Gemini => false,
        }
    }

    /// Whether a reply may do so without saying it: worth asking otherwise once, and proof of nothing.
    pub(super) fn may_refuse_shape(self, status: u16) -> bool {
        match self {
            Self::Chat { compatible } => chat::may_refuse_shape(compatible, status),
            Self::Messages | Self::Responses | Self::Gemini => false,
        }
    }

    /// The payload in a successful reply.
    pub(super) fn payload(self, body: &Value) -> Result<Value, DraftFault> {
        match self {
            Self::Messages => messages::payload(body),
            Self::Responses => responses::payload(body),
            Self::Chat { .. } => chat::payload(body),
            Self::Gemini => gemini::payload(body),
        }
    }

    /// What the reply says it cost.
    pub(super) fn usage(self, body: &Value) -> Usage {
        match self {
            Self::Messages => messages::usage(body),
            Self::Responses => responses::usage(body),
            Self::Chat { .. } => chat::usage(body),
            Self::Gemini => gemini::usage(body),
        }
    }

    /// The name it is configured by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "anthropic",
            Self::Responses => "openai",
            Self::Chat { compatible: false } => "openai-chat",
            Self::Chat { compatible: true } => "compatible",
            Self::Gemini => "gemini",
        }
    }

    /// Where its service is, when nobody says otherwise.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::Messages => "https://api.anthropic.com/v1",
            Self::Responses | Self::Chat { compatible: false } => "https://api.openai.com/v1",
            Self::Chat { compatible: true } => "",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta",
        }
    }

    /// The environment variable its key is in; a compatible server gets none of them.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Messages => Some("ANTHROPIC_API_KEY"),
            Self::Responses | Self::Chat { compatible: false } => Some("OPENAI_API_KEY"),
            Self::Chat { compatible: true } => None,
            Self::Gemini => Some("GEMINI_API_KEY"),
        }
    }

    /// The model that is asked when nobody names one.
    pub fn model(self) -> &'static str {
        match self {
            Self::Messages => "claude-sonnet-5-5",
            Self::Responses | Self::Chat { compatible: false } => "gpt-6.1-terra",
            Self::Chat { compatible: true } => "default",
            Self::Gemini => "gemini-3.8-flash",
        }
    }
}

/// The payload in a text a model wrote.
fn salvaged(text: &str) -> Result<Value, DraftFault> {
    salvage(text).ok_or_else(|| {
        let start: String = text.trim().chars().take(SHOWN_CHARS).collect();
        DraftFault::Malformed(format!(
            "the answer is not one JSON object with a `code` text; it begins: {start:?}"
        ))
    })
}

/// A reply of another shape than its service documents.
fn misshapen(missing: &str) -> DraftFault {
    DraftFault::Unavailable(format!("the service's reply has no {missing}; is base_url right?"))
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

fn count(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

fn bearer(key: Option<&Secret>) -> Vec<(&'static str, Secret)> {
    key.map(|key| ("authorization", Secret::new(format!("Bearer {}", key.reveal()))))
        .into_iter()
        .collect()
}
