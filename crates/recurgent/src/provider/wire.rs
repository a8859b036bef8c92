//! The model services: one request (system, user, one schema) in the form each service takes.

mod chat;
mod gemini;
mod messages;
mod responses;

use std::collections::BTreeSet;

use lifecycle::draft::{DraftFault, Usage, salvage};
use lifecycle::inference::read_reply;
use lifecycle::prompt::{payload_schema, strict_payload_schema};
use serde_json::Value;

pub(super) use chat::COMPATIBLE;

use super::embedded;
use super::http::Post;
use super::secret::Secret;
use super::setting::EMBEDDED;
use super::stream::Streaming;

/// The name of the schema or tool by which a service returns a program.
const PROGRAM: &str = "write_program";
/// Its description.
const PROGRAM_HELP: &str = "Return the program that answers the call, and the packages it needs.";
/// The name of the schema or tool by which a service returns the answer to a question about data.
const ANSWER: &str = "answer_question";
/// Its description.
const ANSWER_HELP: &str = "Return the answer to the question about the data.";
/// Characters of an unreadable answer that are shown.
const SHOWN_CHARS: usize = 160;

/// The model services, in the order of help texts. Where a key alone chooses the service, the first that uses the key
/// is chosen.
pub(super) static WIRES: &[&Wire] = &[
    &messages::ANTHROPIC,
    &responses::OPENAI,
    &chat::OPENAI_CHAT,
    &gemini::GEMINI,
    &chat::COMPATIBLE,
];

/// All about one model service: what it is called and how it is asked. A service is added by a file with a constant
/// of this type and a line in `WIRES`.
#[derive(Debug)]
pub struct Wire {
    /// The name it is configured by.
    pub name: &'static str,
    /// The environment variable that holds its key; `None`: no key from the environment is sent.
    pub key_variable: Option<&'static str>,
    /// Where it is, unless configured otherwise; empty: it must be configured.
    pub base_url: &'static str,
    /// The environment variable by which other tools name its address, and the path they add to it.
    pub(super) address_variable: Option<(&'static str, &'static str)>,
    /// The wire of a server at another address that this variable names; `None`: this one.
    pub(super) elsewhere: Option<&'static Self>,
    /// The model that is asked when none is named.
    pub default_model: &'static str,
    /// Whether the server is asked for the model when none is named.
    pub(super) lists_models: bool,
    /// How the names of its models begin.
    pub(super) model_prefixes: &'static [&'static str],
    /// The default of `max_output_tokens`.
    pub(super) max_output_tokens: u32,
    /// The defaults of `temperature` and `retry_temperature`; `None`: the service's own.
    pub(super) temperatures: Option<(f64, f64)>,
    /// The ways to ask for JSON, in the order they are tried.
    pub(super) shapes: &'static [Shape],
    /// The request.
    pub(super) post: fn(&ModelRequest<'_>, Shape) -> Post,
    /// Whether a reply (its status and text) refuses the way JSON was asked for.
    pub(super) refuses_shape: fn(u16, &str) -> bool,
    /// Whether a reply with this status may do so without saying it: worth asking in another way once, and no proof.
    pub(super) may_refuse_shape: fn(u16) -> bool,
    /// How an answer is asked for in pieces; `None`: it comes in one.
    pub(super) streaming: Option<Streaming>,
    /// The payload in a successful reply.
    pub(super) payload: fn(&Value, PayloadKind<'_>) -> Result<Value, DraftFault>,
    /// The tokens a reply reports.
    pub(super) usage: fn(&Value) -> Usage,
}

/// Most tokens of one answer of a hosted service, unless configured.
const SERVICE_OUTPUT_TOKENS: u32 = 16_384;

/// For a service that takes every way to ask for JSON.
fn never_refuses(_status: u16, _said: &str) -> bool {
    false
}

/// For a service that always says why it refuses.
fn never_silently(_status: u16) -> bool {
    false
}

/// The names of the model services.
pub fn service_names() -> String {
    WIRES.iter().map(|wire| wire.name).collect::<Vec<_>>().join(", ")
}

/// The names `provider` may have.
pub(crate) fn names_help() -> String {
    format!("auto, {}, embedded, scripted:FILE or replay:FILE", service_names())
}

/// The defaults of `max_output_tokens`.
pub(crate) fn output_tokens_help() -> String {
    let services = WIRES.iter().map(|wire| (wire.name, wire.max_output_tokens.to_string()));
    by_provider(services.chain([(EMBEDDED, embedded::OUTPUT_TOKENS.to_string())]))
}

/// The defaults of `temperature`.
pub(crate) fn temperature_help() -> String {
    temperatures_help(|(first, _)| first, "the default of the service")
}

/// The defaults of `retry_temperature`.
pub(crate) fn retry_temperature_help() -> String {
    temperatures_help(|(_, retry)| retry, "the same as the first attempt")
}

fn temperatures_help(of: fn((f64, f64)) -> f64, without: &str) -> String {
    let services = WIRES.iter().map(|wire| (wire.name, wire.temperatures));
    let all = services.chain([(EMBEDDED, Some(embedded::TEMPERATURES))]);
    by_provider(all.map(|(name, default)| {
        (name, default.map_or_else(|| without.to_owned(), |default| of(default).to_string()))
    }))
}

/// Each default with the providers that have it.
fn by_provider(defaults: impl Iterator<Item = (&'static str, String)>) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, default) in defaults {
        match groups.iter_mut().find(|(known, _)| *known == default) {
            Some((_, names)) => names.push(name),
            None => groups.push((default, vec![name])),
        }
    }
    let said = groups.iter().map(|(default, names)| format!("{default} ({})", names.join(", ")));
    said.collect::<Vec<_>>().join(", ")
}

/// The environment variables that hold keys of model services. They are not settings: nothing shows them.
pub(crate) fn key_variables() -> impl Iterator<Item = &'static str> {
    WIRES.iter().enumerate().filter_map(|(at, wire)| {
        let is_first = !WIRES.iter().take(at).any(|other| other.key_variable == wire.key_variable);
        wire.key_variable.filter(|_| is_first)
    })
}

/// The environment variables that hold addresses of model services.
pub(crate) fn address_variables() -> impl Iterator<Item = &'static str> {
    let names: BTreeSet<&str> =
        WIRES.iter().filter_map(|wire| Some(wire.address_variable?.0)).collect();
    names.into_iter()
}

/// The key that belongs to an address of the environment: that of the first service that uses both.
pub(super) fn key_beside(address_variable: &str) -> Option<&'static str> {
    let names =
        |wire: &&&Wire| wire.address_variable.is_some_and(|(name, _)| name == address_variable);
    WIRES.iter().find(names)?.key_variable
}

/// The variables of keys, for messages.
pub(crate) fn key_variables_help() -> String {
    let mut names: Vec<&str> = key_variables().collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

/// How a service is asked for JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Shape {
    /// With a strict schema of the answer.
    #[default]
    Schema,
    /// With a tool the model must use, whose input is the answer.
    Tool,
    /// As any JSON object; some servers take a schema beside it.
    Object,
    /// In words only.
    Text,
}

/// One request, whatever its wire.
#[derive(Debug)]
pub(super) struct ModelRequest<'a> {
    pub(super) base_url: &'a str,
    pub(super) key: Option<&'a Secret>,
    pub(super) model: &'a str,
    pub(super) system: &'a str,
    pub(super) user: &'a str,
    pub(super) max_output_tokens: u32,
    pub(super) temperature: Option<f64>,
    pub(super) kind: PayloadKind<'a>,
}

/// What the payload of an answer is.
#[derive(Debug, Clone, Copy)]
pub(super) enum PayloadKind<'a> {
    /// A program.
    Program,
    /// The answer to a question about data, with its schema.
    Answer(&'a Value),
}

impl PayloadKind<'_> {
    /// What it is called where a service wants a name for it.
    fn name(self) -> &'static str {
        match self {
            Self::Program => PROGRAM,
            Self::Answer(_) => ANSWER,
        }
    }

    /// What that is, in words.
    fn help(self) -> &'static str {
        match self {
            Self::Program => PROGRAM_HELP,
            Self::Answer(_) => ANSWER_HELP,
        }
    }

    /// Its schema.
    fn schema(self) -> Value {
        match self {
            Self::Program => payload_schema(),
            Self::Answer(schema) => schema.clone(),
        }
    }

    /// Its schema where every field must be required, and whether it is one: a program may ask for any answer.
    fn strict_schema(self) -> (Value, bool) {
        match self {
            Self::Program => (strict_payload_schema(), true),
            Self::Answer(schema) => (schema.clone(), false),
        }
    }
}

impl Wire {
    /// The way to ask for JSON after `shape` was refused.
    pub(super) fn next_shape(&self, shape: Shape) -> Option<Shape> {
        let mut rest = self.shapes.iter().skip_while(|known| **known != shape);
        rest.nth(1).copied()
    }
}

/// The payload in a text a model wrote.
fn salvaged(text: &str, kind: PayloadKind<'_>) -> Result<Value, DraftFault> {
    if matches!(kind, PayloadKind::Answer(_)) {
        return read_reply(text, true);
    }
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

pub(super) fn bearer(key: Option<&Secret>) -> Vec<(&'static str, Secret)> {
    key.map(|key| ("authorization", Secret::new(format!("Bearer {}", key.reveal()))))
        .into_iter()
        .collect()
}
