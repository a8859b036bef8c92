//! A call request: the agent and method, the arguments, the caller, and the allowance.

use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU8;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use unicode_normalization::UnicodeNormalization;

use crate::context::Context;
use crate::contract::{Contract, Fingerprint};
use crate::dependency::DependencyManifest;
use crate::dialect::Language;
use crate::draft::Nanodollars;
use crate::excerpt::shortened;
use crate::program::hex;

/// Longest name or trace id, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Why a name or an id was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameFault {
    /// Nothing is left after trimming.
    #[error("a {kind} must not be empty; give it a word such as \"{example}\"")]
    Empty {
        /// What it names: `role name`, `trace id`.
        kind: &'static str,
        /// A name that would do.
        example: &'static str,
    },
    /// Longer than [`MAX_NAME_BYTES`].
    #[error("a {kind} may have at most {MAX_NAME_BYTES} bytes, this one has {bytes}; shorten it")]
    TooLong {
        /// What it names: `role name`, `trace id`.
        kind: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// Holds a control character, which would break logs and paths.
    #[error("a {kind} must not contain control characters; remove {found:?}")]
    Control {
        /// What it names: `role name`, `trace id`.
        kind: &'static str,
        /// The first one.
        found: char,
    },
}

impl From<Infallible> for NameFault {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $example:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(String);

        impl $type {
            /// Trims, normalises (NFC) and checks once; valid ever after.
            pub fn parse(text: &str) -> Result<Self, NameFault> {
                parse_name(text, $kind, $example).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $type {
            type Error = NameFault;

            fn try_from(text: &str) -> Result<Self, NameFault> {
                Self::parse(text)
            }
        }

        impl TryFrom<&String> for $type {
            type Error = NameFault;

            fn try_from(text: &String) -> Result<Self, NameFault> {
                Self::parse(text)
            }
        }

        impl From<&$type> for $type {
            fn from(name: &$type) -> Self {
                name.clone()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// What an agent is: `calculator`, `web_fetcher`.
    Role, "role name", "calculator"
);
name!(
    /// A method of an agent: `add`, `fetch_url`.
    Method, "method name", "add"
);
name!(
    /// The name memory and history are kept under: `desk`.
    Session, "session name", "desk"
);
name!(
    /// What a piece of memory is called: `balance`.
    MemoryKey, "memory key", "balance"
);

fn parse_name(text: &str, kind: &'static str, example: &'static str) -> Result<String, NameFault> {
    // Normalised first: it may take more bytes than it was given in.
    let name: String = text.trim().nfc().collect();
    if name.is_empty() {
        return Err(NameFault::Empty { kind, example });
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameFault::TooLong { kind, bytes: name.len() });
    }
    match name.chars().find(|c| c.is_control()) {
        Some(found) => Err(NameFault::Control { kind, found }),
        None => Ok(name),
    }
}

/// Identifies one call; unique across processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub String);

name!(
    /// Identifies the tree of calls that one top-level call makes.
    TraceId, "trace id", "4bf92f3577b34da6"
);

impl TraceId {
    /// An id of random bytes.
    pub fn of_random(bytes: &[u8]) -> Self {
        Self(hex(bytes))
    }

    /// The id of a tree that this call roots.
    pub fn of_root(call: &CallId) -> Self {
        Self(call.0.clone())
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a call stands in its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lineage {
    /// Asked by the embedding program or the command line.
    Root {
        /// The tree it starts or continues.
        trace: TraceId,
    },
    /// Asked by a running program.
    Child {
        /// The tree it belongs to.
        trace: TraceId,
        /// The call whose program asked.
        parent: CallId,
        /// Distance from the root.
        depth: NonZeroU8,
    },
}

impl Lineage {
    /// 0 for a root.
    pub fn depth(&self) -> u8 {
        match self {
            Self::Root { .. } => 0,
            Self::Child { depth, .. } => depth.get(),
        }
    }

    /// The tree this call belongs to.
    pub fn trace(&self) -> &TraceId {
        match self {
            Self::Root { trace } | Self::Child { trace, .. } => trace,
        }
    }

    /// The call whose program asked, if any.
    pub fn parent(&self) -> Option<&CallId> {
        match self {
            Self::Root { .. } => None,
            Self::Child { parent, .. } => Some(parent),
        }
    }

    /// The lineage of a call that the program of `caller` asks for.
    #[must_use]
    pub fn child_of(&self, caller: &CallId) -> Self {
        let depth = NonZeroU8::MIN.saturating_add(self.depth());
        Self::Child { trace: self.trace().clone(), parent: caller.clone(), depth }
    }
}

/// Positional and named arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments {
    /// By position.
    pub args: Vec<Value>,
    /// By name.
    pub kwargs: Map<String, Value>,
}

impl Arguments {
    /// No arguments at all.
    pub fn is_empty(&self) -> bool {
        self.args.is_empty() && self.kwargs.is_empty()
    }

    /// Size of their JSON text in bytes, to compare with a limit.
    pub fn encoded_bytes(&self) -> usize {
        let args: usize = self.args.iter().map(encoded_bytes).sum();
        let kwargs: usize =
            self.kwargs.iter().map(|(key, value)| key.len() + encoded_bytes(value)).sum();
        args + kwargs
    }

    /// Memory that they take, at least.
    pub fn decoded_bytes(&self) -> usize {
        let values = self.args.iter().chain(self.kwargs.values());
        values.map(decoded_bytes).sum()
    }
}

impl fmt::Display for Arguments {
    /// For people: short, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kwargs = self.kwargs.iter().map(|(key, value)| format!("{key}: {}", shown(value)));
        let parts: Vec<String> = self.args.iter().map(shown).chain(kwargs).collect();
        f.write_str(&parts.join(", "))
    }
}

/// A value on one line, cut when it is long.
fn shown(value: &Value) -> String {
    const SHOWN_CHARS: usize = 60;
    if encoded_bytes(value) > MAX_NAME_BYTES * 4 {
        return format!("<{} bytes>", encoded_bytes(value));
    }
    shortened(&value.to_string(), SHOWN_CHARS)
}

/// Size of a value's JSON text in bytes, counted without building it.
pub fn encoded_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}

/// Memory that a value takes when it is decoded, at least: far more than its JSON text where it holds many small values.
pub fn decoded_bytes(value: &Value) -> usize {
    /// One value, without what it points to.
    const SLOT: usize = size_of::<Value>();
    /// What an allocation takes beside its contents: the allocator's header, and the rest of its smallest unit.
    const ALLOCATION: usize = 24;
    /// An object that is not empty: its table, and room for this many entries.
    const TABLE: usize = 96;
    const ENTRIES: usize = 4;
    const ENTRY: usize = SLOT + size_of::<String>() + 2 * size_of::<usize>();
    match value {
        Value::Null | Value::Bool(_) => SLOT,
        Value::Number(number) => SLOT + ALLOCATION + number.as_str().len(),
        Value::String(text) => SLOT + ALLOCATION + text.len(),
        Value::Array(items) => {
            let unused = SLOT * (items.capacity() - items.len());
            SLOT + ALLOCATION + unused + items.iter().map(decoded_bytes).sum::<usize>()
        }
        Value::Object(fields) if fields.is_empty() => SLOT,
        Value::Object(fields) => {
            let entry = |(key, value): (&String, &Value)| {
                ALLOCATION + key.len() + decoded_bytes(value) - SLOT
            };
            let entries: usize = fields.iter().map(entry).sum();
            SLOT + TABLE + ENTRY * fields.len().max(ENTRIES) + entries
        }
    }
}

/// What a whole call tree may use. A child gets what is left of it and cannot enlarge it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Deepest level of delegation; a root is level 0.
    pub depth: u8,
    /// Model calls in the whole tree.
    pub model_calls: u32,
    /// Asks answered for one call (those served from storage cost no model call).
    pub asks_per_call: u32,
    /// Tokens sent and received in the whole tree; `None`: as many as it takes.
    pub tokens: Option<u64>,
    /// Money for the whole tree.
    pub cost: Option<Nanodollars>,
    /// Time for the whole tree, models and programs together.
    pub wall_time: Option<Duration>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            depth: 8,
            model_calls: 64,
            asks_per_call: 10_000,
            tokens: None,
            cost: None,
            wall_time: None,
        }
    }
}

/// One dynamic call, ready to be decided about.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// This call.
    pub id: CallId,
    /// Its place in the tree.
    pub lineage: Lineage,
    /// The agent's role.
    pub role: Role,
    /// The method called.
    pub method: Method,
    /// Its arguments.
    pub arguments: Arguments,
    /// What the answer must look like, if given.
    pub contract: Option<Contract>,
    /// The language programs are written in.
    pub language: Language,
    /// The agent's memory as it is before the call.
    pub context: Context,
    /// The packages the agent's environment holds since its last success; `None`: there was none.
    pub manifest: Option<DependencyManifest>,
    /// What the tree may use.
    pub allowance: Allowance,
}

impl CallRequest {
    /// The fingerprint of its contract, part of the key of stored programs.
    pub fn contract_fingerprint(&self) -> Fingerprint {
        self.contract.as_ref().map_or_else(Fingerprint::none, Contract::fingerprint)
    }
}

#[cfg(test)]
impl CallRequest {
    /// `role.method()`, asked by no program.
    pub(crate) fn bare(role: &str, method: &str) -> Self {
        Self {
            id: CallId("c".into()),
            lineage: Lineage::Root { trace: TraceId::parse("t").unwrap() },
            role: Role::parse(role).unwrap(),
            method: Method::parse(method).unwrap(),
            arguments: Arguments::default(),
            contract: None,
            language: Language::Python,
            context: Context::default(),
            manifest: None,
            allowance: Allowance::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_trimmed_normalised_and_checked() {
        assert_eq!(Role::parse("  calculator ").unwrap().as_str(), "calculator");
        assert_eq!(Role::parse("cafe\u{301}").unwrap(), Role::parse("caf\u{e9}").unwrap());
        assert!(matches!(Method::parse(" \t"), Err(NameFault::Empty { kind: "method name", .. })));
        assert!(matches!(
            Role::parse(&"x".repeat(10_000)),
            Err(NameFault::TooLong { bytes: 10_000, .. })
        ));
        assert!(matches!(Role::parse("a\u{0}b"), Err(NameFault::Control { .. })));
        for (trace, says) in [
            ("", "a trace id must not be empty"),
            ("a\nb", "a trace id must not contain control characters"),
            (&*"x".repeat(300), "a trace id may have at most 256 bytes, this one has 300"),
        ] {
            let fault = TraceId::parse(trace).unwrap_err().to_string();
            assert!(fault.starts_with(says), "{fault}");
        }
        // Two bytes that become four.
        assert!(matches!(
            Role::parse(&"\u{344}".repeat(100)),
            Err(NameFault::TooLong { bytes: 400, .. })
        ));
    }

    #[test]
    fn a_child_is_one_level_deeper_on_the_same_trace() {
        let root = Lineage::Root { trace: TraceId::parse("t").unwrap() };
        let child = root.child_of(&CallId("a".into()));
        let leaf = child.child_of(&CallId("b".into()));
        assert_eq!((root.depth(), child.depth(), leaf.depth()), (0, 1, 2));
        assert_eq!(leaf.trace(), root.trace());
        assert_eq!(leaf.parent(), Some(&CallId("b".into())));
    }
}
