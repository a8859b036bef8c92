//! The typed form of a scenario: every program is resolved and every key is known.

use std::collections::BTreeMap;

use recurgent::{Arguments, Language};
use serde_json::{Map, Value};

use crate::packages::ScenarioPackages;
use crate::program::ScriptedProgram;

/// One scenario, ready to run.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// The guest languages it applies to; `None` means all.
    pub(crate) guests: Option<Vec<Language>>,
    /// Settings of all its agents.
    pub(crate) settings: ScenarioSettings,
    /// The packages its programs may install.
    pub(crate) packages: Option<ScenarioPackages>,
    /// The answers of the model by key.
    pub(crate) plan: Vec<(String, Vec<ScriptedProgram>)>,
    /// The steps in order.
    pub(crate) steps: Vec<ScenarioStep>,
}

/// Settings with the library's names.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScenarioSettings {
    /// Whether a log is written, if the scenario sets it.
    pub(crate) logging: Option<bool>,
    /// Options of agents.
    pub(crate) options: BTreeMap<&'static str, String>,
}

/// One step.
#[derive(Debug)]
pub(crate) struct ScenarioStep {
    /// The operation's name.
    pub(crate) op: String,
    /// The operation or the assertion.
    pub(crate) action: StepAction,
}

/// The content of a step.
#[derive(Debug)]
pub(crate) enum StepAction {
    /// An operation that must succeed, or must be refused.
    Do(Box<Operation>, Option<ExpectedRefusal>),
    /// An assertion that must hold.
    Assertion(Assertion),
}

/// A text that the message of a refusal must contain.
#[derive(Debug)]
pub(crate) struct ExpectedRefusal(pub(crate) String);

/// An operation. Without a `target` it uses the agent constructed last.
#[derive(Debug)]
pub(crate) enum Operation {
    Construct { spec: AgentSpec, session: Option<String>, settings: ScenarioSettings },
    Delegate { target: Option<String>, spec: AgentSpec },
    Tool { target: Option<String>, name: String, named: String },
    Set { target: Option<String>, key: String, value: Value },
    Remember { target: Option<String>, entries: Map<String, Value> },
    Call { target: Option<String>, call: CallSpec },
    TolerantDelegate { target: Option<String>, role: String, call: CallSpec },
    Prepare { spec: AgentSpec, dependencies: Vec<(String, String)> },
    Await { target: Option<String>, status: String },
    Restart,
}

/// How to make an agent.
#[derive(Debug)]
pub(crate) struct AgentSpec {
    pub(crate) role: String,
    /// The name that steps use for it.
    pub(crate) named: String,
    pub(crate) contract: Option<Map<String, Value>>,
    pub(crate) contract_fields: Map<String, Value>,
}

/// A call and what it must return.
#[derive(Debug)]
pub(crate) struct CallSpec {
    pub(crate) method: String,
    pub(crate) arguments: Arguments,
    pub(crate) expected: Option<ExpectedOutcome>,
    pub(crate) provider_calls: Option<usize>,
}

/// The expected outcome. Fields that are not listed are not checked.
#[derive(Debug, Default)]
pub(crate) struct ExpectedOutcome {
    /// Expected fields of the outcome by their wire names.
    pub(crate) fields: BTreeMap<&'static str, Value>,
    /// Texts that the message must contain.
    pub(crate) message_includes: Vec<String>,
}

impl ExpectedOutcome {
    /// The expected text of a field.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }
}

/// A condition that a step checks.
#[derive(Debug)]
pub(crate) enum Assertion {
    Agent { target: Option<String> },
    Role { target: Option<String>, equals: String },
    SameInstance { target: Option<String> },
    RespondTo { target: Option<String>, method: String, equals: bool },
    Memory { target: Option<String>, memory: MemoryAssertion },
    ProviderCalls { of: CallFilter, equals: usize },
    Prompt { of: CallFilter, nth: Option<usize>, includes: Vec<String>, excludes: Vec<String> },
    LogMatches { entry: LogEntryQuery, fields: Map<String, Value> },
    LogHolds { entry: LogEntryQuery, fields: Vec<String> },
    LogCount { of: CallFilter, equals: usize },
    Attempts { entry: LogEntryQuery, equals: Vec<Map<String, Value>> },
    Tools { include: Vec<String>, exclude: Vec<String>, metadata: Map<String, Value> },
    History { target: Option<String>, records: Vec<Value> },
}

/// The expected memory of an agent.
#[derive(Debug)]
pub(crate) enum MemoryAssertion {
    /// At least these entries.
    Includes(Map<String, Value>),
    /// Exactly these entries.
    Is(Map<String, Value>),
    /// None of these keys.
    Excludes(Vec<String>),
}

/// Selects calls by role and method; `None` selects all.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallFilter {
    pub(crate) role: Option<String>,
    pub(crate) method: Option<String>,
}

impl CallFilter {
    /// Whether the filter matches a role and a method.
    pub(crate) fn means(&self, role: &str, method: &str) -> bool {
        self.role.as_deref().is_none_or(|named| named == role)
            && self.method.as_deref().is_none_or(|named| named == method)
    }
}

impl std::fmt::Display for CallFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.role, &self.method) {
            (None, None) => f.write_str("any call"),
            (Some(role), None) => write!(f, "{role}"),
            (None, Some(method)) => write!(f, "{method}"),
            (Some(role), Some(method)) => write!(f, "{role}.{method}"),
        }
    }
}

/// Selects a log entry: the last that matches, or the `nth`.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogEntryQuery {
    /// Only entries of calls that steps made on this agent.
    pub(crate) target: Option<String>,
    pub(crate) of: CallFilter,
    /// Counts from 1.
    pub(crate) nth: Option<usize>,
}
