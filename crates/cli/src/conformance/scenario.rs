//! A scenario, once its YAML was understood: every program is resolved, every key known.

use std::collections::BTreeMap;

use recurgent::{Arguments, Language};
use serde_json::{Map, Value};

use super::packages::Packages;
use super::program::Program;

/// One scenario, ready to be played.
#[derive(Debug)]
pub(super) struct Scenario {
    /// The languages it is for; `None`: all.
    pub(super) guests: Option<Vec<Language>>,
    /// Of every agent it constructs.
    pub(super) settings: Settings,
    /// What its programs may install; `None`: nothing was said.
    pub(super) packages: Option<Packages>,
    /// What the model answers, per key.
    pub(super) plan: Vec<(String, Vec<Program>)>,
    /// What happens, in order.
    pub(super) steps: Vec<Step>,
}

/// What can be tuned, in the names of the library.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// Whether a log is written, if it was said.
    pub(super) logging: Option<bool>,
    /// Options of agents.
    pub(super) options: BTreeMap<&'static str, String>,
}

/// One step.
#[derive(Debug)]
pub(super) struct Step {
    /// The operation's name.
    pub(super) op: String,
    /// What it does or checks.
    pub(super) action: Action,
}

/// What a step is for.
#[derive(Debug)]
pub(super) enum Action {
    /// Something happens, or must be refused.
    Do(Box<Doing>, Option<Refusal>),
    /// Something must hold.
    Check(Check),
}

/// How an operation must be refused: with a message that contains this text.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) String);

/// What happens. A `target` left out is the agent constructed last.
#[derive(Debug)]
pub(super) enum Doing {
    Construct { making: Making, session: Option<String>, settings: Settings },
    Delegate { target: Option<String>, making: Making },
    Tool { target: Option<String>, name: String, named: String },
    Set { target: Option<String>, key: String, value: Value },
    Remember { target: Option<String>, entries: Map<String, Value> },
    Call { target: Option<String>, calling: Calling },
    TolerantDelegate { target: Option<String>, role: String, calling: Calling },
    Prepare { making: Making, dependencies: Vec<(String, String)> },
    Await { target: Option<String>, status: String },
    Restart,
}

/// An agent to be made.
#[derive(Debug)]
pub(super) struct Making {
    pub(super) role: String,
    /// The name steps know it by.
    pub(super) named: String,
    pub(super) contract: Option<Map<String, Value>>,
    pub(super) contract_fields: Map<String, Value>,
}

/// A name to be used, and what must come of it.
#[derive(Debug)]
pub(super) struct Calling {
    pub(super) method: String,
    pub(super) arguments: Arguments,
    pub(super) expected: Option<Expected>,
    pub(super) provider_calls: Option<usize>,
}

/// What an outcome must be; what is `None` or empty is not looked at.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Fields of the outcome by their wire names, each to be matched.
    pub(super) fields: BTreeMap<&'static str, Value>,
    /// Texts the message must contain.
    pub(super) message_includes: Vec<String>,
}

impl Expected {
    /// A field that must be exactly this text.
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }
}

/// What must hold.
#[derive(Debug)]
pub(super) enum Check {
    Agent { target: Option<String> },
    Role { target: Option<String>, equals: String },
    SameInstance { target: Option<String> },
    RespondTo { target: Option<String>, method: String, equals: bool },
    Memory { target: Option<String>, memory: MemoryCheck },
    ProviderCalls { of: Naming, equals: usize },
    Prompt { of: Naming, nth: Option<usize>, includes: Vec<String>, excludes: Vec<String> },
    LogMatches { entry: Choice, fields: Map<String, Value> },
    LogHolds { entry: Choice, fields: Vec<String> },
    LogCount { of: Naming, equals: usize },
    Attempts { entry: Choice, equals: Vec<Map<String, Value>> },
    Tools { include: Vec<String>, exclude: Vec<String>, metadata: Map<String, Value> },
    History { target: Option<String>, records: Vec<Value> },
}

/// What memory must be.
#[derive(Debug)]
pub(super) enum MemoryCheck {
    /// These entries, maybe more.
    Includes(Map<String, Value>),
    /// Exactly these entries.
    Is(Map<String, Value>),
    /// None of these keys.
    Excludes(Vec<String>),
}

/// A role and a method; what is `None` is any.
#[derive(Debug, Clone, Default)]
pub(super) struct Naming {
    pub(super) role: Option<String>,
    pub(super) method: Option<String>,
}

impl Naming {
    /// Whether these names are meant.
    pub(super) fn means(&self, role: &str, method: &str) -> bool {
        self.role.as_deref().is_none_or(|named| named == role)
            && self.method.as_deref().is_none_or(|named| named == method)
    }
}

impl std::fmt::Display for Naming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.role, &self.method) {
            (None, None) => f.write_str("any call"),
            (Some(role), None) => write!(f, "{role}"),
            (None, Some(method)) => write!(f, "{method}"),
            (Some(role), Some(method)) => write!(f, "{role}.{method}"),
        }
    }
}

/// Which log entry is meant: the last of those that fit, unless `nth` says otherwise.
#[derive(Debug, Clone, Default)]
pub(super) struct Choice {
    /// Of the dynamic calls steps made on this agent.
    pub(super) target: Option<String>,
    pub(super) of: Naming,
    /// Counts from 1.
    pub(super) nth: Option<usize>,
}
