//! Which programs may run: one rule, one file, one row of [`RULES`].
//!
//! A rule reads an [`Inspection`] and nothing else of the program, so what stands in strings and
//! comments never counts. Guardrails shape iteration; the sandbox is the security boundary.

mod context_tools_shape_misuse;
mod executable_tool_metadata;
mod hardcoded_external_fallback_success;
mod input_baked_code;
mod missing_credentials;
mod missing_external_provenance;
mod network;
mod process_escape;
mod self_materialization;
mod singleton_method_mutation;
mod state_key_drift;
mod undeclared_dependency;
mod unsupported_capability;
mod unused_dependency;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::dialect::{Inspection, Language, Position};
use crate::outcome::FailureKind;

pub use missing_external_provenance::check_provenance;
pub(crate) use network::fetches;
pub use self_materialization::check_role;
pub use singleton_method_mutation::attached;
pub use undeclared_dependency::check_provided;

/// The rules that decide before execution, in the order their violations are told.
const RULES: &[Row] = &[
    Row { rule: Rule::ProcessEscape, find: process_escape::find },
    Row { rule: Rule::SingletonMethodMutation, find: singleton_method_mutation::find },
    Row { rule: Rule::ContextToolsShapeMisuse, find: context_tools_shape_misuse::find },
    Row { rule: Rule::ExecutableToolMetadata, find: executable_tool_metadata::find },
    Row { rule: Rule::SelfMaterialization, find: self_materialization::find },
    Row {
        rule: Rule::HardcodedExternalFallbackSuccess,
        find: hardcoded_external_fallback_success::find,
    },
    Row { rule: Rule::MissingCredentials, find: missing_credentials::find },
    Row { rule: Rule::UnsupportedCapability, find: unsupported_capability::find },
    Row { rule: Rule::UndeclaredDependency, find: undeclared_dependency::find },
    Row { rule: Rule::UnusedDependency, find: unused_dependency::find },
    Row { rule: Rule::InputBakedCode, find: input_baked_code::find },
    Row { rule: Rule::StateKeyDrift, find: state_key_drift::find },
];

/// Every violation of a program before it runs; at most one per rule.
pub fn examine(subject: &Subject<'_>, policy: &GuardrailPolicy) -> Vec<Violation> {
    RULES
        .iter()
        .filter(|row| policy.enforces(row.rule))
        .filter_map(|row| Some((row.rule, (row.find)(subject)?)))
        .map(|(rule, finding)| finding.of(rule))
        .collect()
}

struct Row {
    rule: Rule,
    find: fn(&Subject<'_>) -> Option<Finding>,
}

/// What a rule found; the row knows which rule it was.
struct Finding {
    message: String,
    location: Option<Position>,
    required_correction: String,
}

impl Finding {
    fn at(location: Position, message: impl Into<String>, correction: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            location: Some(location),
            required_correction: correction.into(),
        }
    }

    fn of(self, rule: Rule) -> Violation {
        let Self { message, location, required_correction } = self;
        Violation { rule, message, location, required_correction }
    }
}

/// A program and the call it is written for.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The guest language.
    pub language: Language,
    /// The role of the agent.
    pub role: &'a str,
    /// The method called.
    pub method: &'a str,
    /// The positional arguments of the call.
    pub args: &'a [Value],
    /// The keyword arguments of the call.
    pub kwargs: &'a Map<String, Value>,
    /// The names of the declared packages.
    pub declared: &'a [String],
    /// Whether the agent's environment already holds packages.
    pub holds_packages: bool,
    /// The state the agent's other methods and setters keep; may be empty.
    pub sibling_state: &'a [SiblingState],
    /// What the program says.
    pub inspection: &'a Inspection,
}

impl Subject<'_> {
    /// Whether the call gives the program anything to read.
    fn has_inputs(&self) -> bool {
        !self.args.is_empty() || !self.kwargs.is_empty()
    }
}

/// The context keys one sibling uses. A setter `name=` is a sibling that writes `name`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiblingState {
    /// The method, or the setter with its `=`.
    pub method: String,
    /// Keys it reads.
    pub reads: Vec<String>,
    /// Keys it writes.
    pub writes: Vec<String>,
}

/// What a deployment permits, and what it does not retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardrailPolicy {
    /// Rules whose violations end the call at once.
    pub terminal: Vec<Rule>,
    /// Whether programs may start and signal processes.
    pub allow_processes: bool,
}

impl Default for GuardrailPolicy {
    /// What no rewriting remedies is not retried.
    fn default() -> Self {
        Self {
            terminal: vec![Rule::MissingCredentials, Rule::UnsupportedCapability],
            allow_processes: false,
        }
    }
}

impl GuardrailPolicy {
    fn enforces(&self, rule: Rule) -> bool {
        !(rule == Rule::ProcessEscape && self.allow_processes)
    }
}

/// One thing a program may not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule it breaks.
    pub rule: Rule,
    /// What is wrong, for the model.
    pub message: String,
    /// Where, in the program's own text.
    pub location: Option<Position>,
    /// What to do instead, for the model.
    pub required_correction: String,
}

impl Violation {
    /// The family of the rule.
    pub fn violation_type(&self) -> ViolationType {
        self.rule.violation_type()
    }

    /// The `violation_subtype` on the wire.
    pub fn subtype(&self) -> &'static str {
        self.rule.subtype()
    }

    /// The wire form, as a retry is told it.
    pub fn to_json(&self, policy: &GuardrailPolicy) -> Map<String, Value> {
        let fields = [
            ("validation_result", json!("failed")),
            ("guardrail_class", json!(self.severity(policy).guardrail_class())),
            ("violation_type", json!(self.violation_type().name())),
            ("violation_subtype", json!(self.subtype())),
            ("violation_message", json!(self.message)),
            ("violation_location", json!(self.location)),
            ("required_correction", json!(self.required_correction)),
        ];
        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// What it means for the attempt.
    pub fn severity(&self, policy: &GuardrailPolicy) -> Severity {
        if policy.terminal.contains(&self.rule) {
            Severity::Terminal
        } else if self.rule.is_advisory() {
            Severity::Advisory
        } else {
            Severity::Recoverable
        }
    }
}

/// What a violation means for the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The program is written again, told what was wrong.
    Recoverable,
    /// The call ends.
    Terminal,
    /// The program is written again once; if it stays, it may run but is not kept.
    Advisory,
}

impl Severity {
    /// The class on the wire.
    pub fn guardrail_class(self) -> &'static str {
        match self {
            Self::Recoverable | Self::Advisory => "recoverable_guardrail",
            Self::Terminal => "terminal_guardrail",
        }
    }
}

/// A family of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ViolationType {
    /// Agents and the registry are used as they are not meant to be.
    #[serde(rename = "tool_registry_violation")]
    ToolRegistry,
    /// External data is made up or its source is not told.
    #[serde(rename = "external_data_violation")]
    ExternalData,
    /// Imports and declarations disagree.
    #[serde(rename = "dependency_violation")]
    Dependency,
    /// The program could not serve another call.
    #[serde(rename = "reuse_violation")]
    Reuse,
    /// The program reaches out of its worker.
    #[serde(rename = "process_violation")]
    Process,
}

impl ViolationType {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToolRegistry => "tool_registry_violation",
            Self::ExternalData => "external_data_violation",
            Self::Dependency => "dependency_violation",
            Self::Reuse => "reuse_violation",
            Self::Process => "process_violation",
        }
    }
}

/// A rule; its manual page is the head of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each rule's file is its documentation")]
pub enum Rule {
    SingletonMethodMutation,
    ContextToolsShapeMisuse,
    ExecutableToolMetadata,
    SelfMaterialization,
    HardcodedExternalFallbackSuccess,
    MissingExternalProvenance,
    UndeclaredDependency,
    UnusedDependency,
    InputBakedCode,
    StateKeyDrift,
    ProcessEscape,
    MissingCredentials,
    UnsupportedCapability,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 13] = [
        Self::SingletonMethodMutation,
        Self::ContextToolsShapeMisuse,
        Self::ExecutableToolMetadata,
        Self::SelfMaterialization,
        Self::HardcodedExternalFallbackSuccess,
        Self::MissingExternalProvenance,
        Self::UndeclaredDependency,
        Self::UnusedDependency,
        Self::InputBakedCode,
        Self::StateKeyDrift,
        Self::ProcessEscape,
        Self::MissingCredentials,
        Self::UnsupportedCapability,
    ];

    /// The `violation_subtype` on the wire.
    pub fn subtype(self) -> &'static str {
        match self {
            Self::SingletonMethodMutation => "singleton_method_mutation",
            Self::ContextToolsShapeMisuse => "context_tools_shape_misuse",
            Self::ExecutableToolMetadata => "executable_tool_metadata",
            Self::SelfMaterialization => "self_materialization",
            Self::HardcodedExternalFallbackSuccess => "hardcoded_external_fallback_success",
            Self::MissingExternalProvenance => "missing_external_provenance",
            Self::UndeclaredDependency => "undeclared_dependency",
            Self::UnusedDependency => "unused_dependency",
            Self::InputBakedCode => "input_baked_code",
            Self::StateKeyDrift => "state_key_drift",
            Self::ProcessEscape => "process_escape",
            Self::MissingCredentials => "missing_credentials",
            Self::UnsupportedCapability => "unsupported_capability",
        }
    }

    /// The rule of this subtype.
    pub fn from_subtype(subtype: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.subtype() == subtype)
    }

    /// Its family.
    pub fn violation_type(self) -> ViolationType {
        match self {
            Self::SingletonMethodMutation
            | Self::ContextToolsShapeMisuse
            | Self::ExecutableToolMetadata
            | Self::SelfMaterialization => ViolationType::ToolRegistry,
            Self::HardcodedExternalFallbackSuccess
            | Self::MissingExternalProvenance
            | Self::MissingCredentials => ViolationType::ExternalData,
            Self::UndeclaredDependency | Self::UnusedDependency => ViolationType::Dependency,
            Self::InputBakedCode | Self::StateKeyDrift => ViolationType::Reuse,
            Self::ProcessEscape | Self::UnsupportedCapability => ViolationType::Process,
        }
    }

    /// What a call that it ends fails with: what is missing, where it is the world that lacks it.
    pub fn failure_kind(self) -> FailureKind {
        match self {
            Self::MissingCredentials => FailureKind::MissingCredentials,
            Self::UnsupportedCapability => FailureKind::UnsupportedCapability,
            Self::SingletonMethodMutation
            | Self::ContextToolsShapeMisuse
            | Self::ExecutableToolMetadata
            | Self::SelfMaterialization
            | Self::HardcodedExternalFallbackSuccess
            | Self::MissingExternalProvenance
            | Self::UndeclaredDependency
            | Self::UnusedDependency
            | Self::InputBakedCode
            | Self::StateKeyDrift
            | Self::ProcessEscape => FailureKind::Guardrail(self.violation_type()),
        }
    }

    /// Whether it only advises: a right answer is never lost to style.
    pub fn is_advisory(self) -> bool {
        matches!(self, Self::UnusedDependency | Self::InputBakedCode | Self::StateKeyDrift)
    }
}

/// Why a program may, or may not, be kept for later calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cacheability {
    /// `ask`, `chat`, `discuss`, `host`: every call is its own.
    DynamicDispatchMethod,
    /// The inputs of this call are written into it.
    InputBakedCode,
    /// It does the same whatever it is called with.
    ArgIgnoredCode,
    /// It serves a contract.
    DelegatedContractTool,
    /// Nothing speaks against it.
    StableMethodDefault,
    /// It was advised to change and did not.
    AdviceIgnored,
}

impl Cacheability {
    /// Whether the program may be kept.
    pub fn cacheable(self) -> bool {
        matches!(self, Self::DelegatedContractTool | Self::StableMethodDefault)
    }

    /// The reason on the wire.
    pub fn reason(self) -> &'static str {
        match self {
            Self::DynamicDispatchMethod => "dynamic_dispatch_method",
            Self::InputBakedCode => "input_baked_code",
            Self::ArgIgnoredCode => "arg_ignored_code",
            Self::DelegatedContractTool => "delegated_contract_tool",
            Self::StableMethodDefault => "stable_method_default",
            Self::AdviceIgnored => "advice_ignored",
        }
    }
}

/// Whether a program may be kept for later calls, and why.
pub fn cacheability(subject: &Subject<'_>, has_contract: bool) -> Cacheability {
    let method = subject.method.to_ascii_lowercase();
    let ignores_inputs = subject.has_inputs() && !subject.inspection.reads_inputs(subject.method);
    if matches!(method.as_str(), "ask" | "chat" | "discuss" | "host") {
        Cacheability::DynamicDispatchMethod
    } else if input_baked_code::baked_literal(subject).is_some() {
        Cacheability::InputBakedCode
    } else if ignores_inputs {
        Cacheability::ArgIgnoredCode
    } else if has_contract {
        Cacheability::DelegatedContractTool
    } else {
        Cacheability::StableMethodDefault
    }
}

#[cfg(test)]
mod tests;
