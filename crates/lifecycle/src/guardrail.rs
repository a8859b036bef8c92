//! Which programs may run: one rule, one file, one line in `rules!`.
//!
//! A rule's file exports one constant, its [`Guardrail`], which says everything about the rule. The list of
//! rules, their names, the settings that mention them and `docs/guardrails.md` are derived from it. A rule reads
//! an [`Inspection`], a request or a value; text in strings and comments of a program never counts. Guardrails shape iteration; the sandbox is
//! the security boundary.

mod context_tools_shape_misuse;
mod executable_tool_metadata;
mod false_external_provenance;
mod hardcoded_external_fallback_success;
mod input_baked_code;
mod missing_credentials;
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

use crate::artifact::RunVerdict;
use crate::context::Context;
use crate::dialect::{Inspection, Language, Position};
use crate::execution::ResultFrom;
use crate::outcome::FailureKind;
use crate::provenance::Observation;
use crate::request::Arguments;

pub(crate) use network::fetches;
pub use singleton_method_mutation::attached;
pub use undeclared_dependency::check_provided;

/// Declares [`Rule`]: one line per rule, its file and its name, in the order violations are reported.
macro_rules! rules {
    ($($file:ident: $name:ident,)*) => {
        /// A rule; [`Rule::guardrail`] says everything about it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "each rule's constant is its documentation")]
        pub enum Rule {
            $($name,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What there is to say about it.
            pub fn guardrail(self) -> &'static Guardrail {
                match self {
                    $(Self::$name => &$file::GUARDRAIL,)*
                }
            }
        }
    };
}

rules! {
    process_escape: ProcessEscape,
    singleton_method_mutation: SingletonMethodMutation,
    context_tools_shape_misuse: ContextToolsShapeMisuse,
    executable_tool_metadata: ExecutableToolMetadata,
    self_materialization: SelfMaterialization,
    hardcoded_external_fallback_success: HardcodedExternalFallbackSuccess,
    false_external_provenance: FalseExternalProvenance,
    missing_credentials: MissingCredentials,
    unsupported_capability: UnsupportedCapability,
    undeclared_dependency: UndeclaredDependency,
    unused_dependency: UnusedDependency,
    input_baked_code: InputBakedCode,
    state_key_drift: StateKeyDrift,
}

/// Subtypes of earlier versions, in stored data and settings, and what they are called now.
const RENAMED: [(&str, &str); 1] = [("missing_external_provenance", "false_external_provenance")];

/// Everything about one rule.
#[derive(Debug)]
pub struct Guardrail {
    /// The `violation_subtype` on the wire.
    pub subtype: &'static str,
    /// Its family.
    pub violation_type: ViolationType,
    /// What a violation means, unless the policy says otherwise.
    pub severity: Severity,
    /// What a call that it ends fails with, where that is not the failure of its family.
    pub failure: Option<FailureKind>,
    /// How it is decided.
    pub check: RuleCheck,
    /// The permission that switches it off; `None`: it cannot be switched off.
    pub permitted_by: Option<fn(&GuardrailPolicy) -> bool>,
    /// Whether a program that keeps the violation after being advised is not kept for later calls.
    pub forbids_reuse: bool,
    /// How the run of a stored program that broke it is scored.
    pub verdict: RunVerdict,
    /// What it is about: the beginning of a sentence.
    pub summary: &'static str,
    /// Why it exists and what it leaves alone, in Markdown.
    pub details: &'static str,
    /// What to do instead, for the model, where the finding says nothing more exact.
    pub correction: &'static str,
    /// Programs that break it and programs that do not; the manual shows them and a test checks them.
    pub examples: &'static [RuleExample],
}

/// When and how a rule is decided.
#[derive(Debug, Clone, Copy)]
pub enum RuleCheck {
    /// Before the program runs, from its syntax tree.
    Program(fn(&GuardrailInput<'_>) -> Option<Finding>),
    /// While the program runs, when it asks for another agent: from its own role and that one's.
    Request(fn(own: &str, asked: &str) -> Option<Finding>),
    /// After the program ran, from its value and what it did.
    Value(fn(&ValueInput<'_>) -> Option<Finding>),
}

/// A program that shows what a rule is about, and the call it is written for.
#[derive(Debug, Clone, Copy)]
pub struct RuleExample {
    /// The guest language.
    pub language: Language,
    /// The program.
    pub code: &'static str,
    /// Whether the rule accepts it.
    pub passes: bool,
    /// The positional arguments of the call, as JSON.
    pub args: &'static str,
    /// The declared packages.
    pub declared: &'static [&'static str],
    /// The context keys that other methods of the agent write.
    pub sibling_writes: &'static [&'static str],
    /// The value of a run that reaches nothing, as JSON; read by the rules about values.
    pub returns: &'static str,
}

/// A program that breaks the rule.
const fn violates(language: Language, code: &'static str) -> RuleExample {
    let (args, declared, sibling_writes): (_, &[&str], &[&str]) = ("[]", &[], &[]);
    RuleExample { language, code, passes: false, args, declared, sibling_writes, returns: "null" }
}

/// A program that the rule accepts.
const fn passes(language: Language, code: &'static str) -> RuleExample {
    RuleExample { passes: true, ..violates(language, code) }
}

impl RuleExample {
    const fn called_with(self, args: &'static str) -> Self {
        Self { args, ..self }
    }

    const fn declaring(self, declared: &'static [&'static str]) -> Self {
        Self { declared, ..self }
    }

    const fn beside(self, sibling_writes: &'static [&'static str]) -> Self {
        Self { sibling_writes, ..self }
    }

    const fn returning(self, returns: &'static str) -> Self {
        Self { returns, ..self }
    }
}

/// Every violation of a program before it runs; at most one per rule.
pub fn examine(input: &GuardrailInput<'_>, policy: &GuardrailPolicy) -> Vec<Violation> {
    let enforced = Rule::ALL.iter().filter(|rule| policy.enforces(**rule));
    enforced
        .filter_map(|rule| match rule.guardrail().check {
            RuleCheck::Program(find) => find(input).map(|finding| finding.of(*rule)),
            RuleCheck::Request(_) | RuleCheck::Value(_) => None,
        })
        .collect()
}

/// The violation of a running program of the role `own` that asks for the role `asked`.
pub fn examine_request(own: &str, asked: &str) -> Option<Violation> {
    Rule::ALL.iter().find_map(|rule| match rule.guardrail().check {
        RuleCheck::Request(find) => find(own, asked).map(|finding| finding.of(*rule)),
        RuleCheck::Program(_) | RuleCheck::Value(_) => None,
    })
}

/// A value, and the run that it came from.
#[derive(Debug, Clone, Copy)]
pub struct ValueInput<'a> {
    /// The program.
    pub inspection: &'a Inspection,
    /// What it was called with.
    pub arguments: &'a Arguments,
    /// What the run reached.
    pub observed: &'a Observation,
    /// The value.
    pub value: &'a Value,
}

/// The violation of a program that has run, by its value.
pub fn examine_value(input: &ValueInput<'_>) -> Option<Violation> {
    Rule::ALL.iter().find_map(|rule| match rule.guardrail().check {
        RuleCheck::Value(find) => find(input).map(|finding| finding.of(*rule)),
        RuleCheck::Program(_) | RuleCheck::Request(_) => None,
    })
}

/// What a rule found.
#[derive(Debug)]
pub struct Finding {
    message: String,
    location: Option<Position>,
    /// What to do instead, when it is more exact than [`Guardrail::correction`].
    correction: Option<String>,
}

impl Finding {
    fn at(location: Position, message: impl Into<String>) -> Self {
        Self { message: message.into(), location: Some(location), correction: None }
    }

    fn correct_by(self, correction: impl Into<String>) -> Self {
        Self { correction: Some(correction.into()), ..self }
    }

    fn of(self, rule: Rule) -> Violation {
        let Self { message, location, correction } = self;
        let required_correction =
            correction.unwrap_or_else(|| rule.guardrail().correction.to_owned());
        Violation { rule, message, location, required_correction }
    }
}

/// A program and the call it is written for.
#[derive(Debug, Clone, Copy)]
pub struct GuardrailInput<'a> {
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
    /// The state that the agent's other methods and setters keep; may be empty.
    pub sibling_state: &'a [SiblingState],
    /// The agent's memory when the call was made.
    pub context: &'a Context,
    /// What was read of the program.
    pub inspection: &'a Inspection,
}

impl GuardrailInput<'_> {
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

/// What a deployment permits, and which violations it does not retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardrailPolicy {
    /// Rules whose violations end the call at once.
    pub terminal: Vec<Rule>,
    /// Whether programs may start and signal processes. No setting allows it: tests of workers do, which must survive such
    /// programs.
    pub allow_processes: bool,
}

impl Default for GuardrailPolicy {
    /// What rewriting cannot fix is not retried.
    fn default() -> Self {
        let ends_call = |rule: &Rule| rule.guardrail().severity == Severity::Terminal;
        Self {
            terminal: Rule::ALL.iter().copied().filter(ends_call).collect(),
            allow_processes: false,
        }
    }
}

impl GuardrailPolicy {
    fn enforces(&self, rule: Rule) -> bool {
        rule.guardrail().permitted_by.is_none_or(|is_permitted| !is_permitted(self))
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

    /// The wire form, as shown to the next attempt.
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

    /// Whether a program that keeps it after being advised is not kept for later calls.
    pub fn forbids_reuse(&self) -> bool {
        self.rule.guardrail().forbids_reuse
    }

    /// Whether it is about the value of a program that has run.
    pub fn is_of_answer(&self) -> bool {
        matches!(self.rule.guardrail().check, RuleCheck::Value(_))
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
    /// The program is written again, with the violation as feedback.
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
    /// Agents or the tool registry are misused.
    #[serde(rename = "tool_registry_violation")]
    ToolRegistry,
    /// External data is made up, or its source is.
    #[serde(rename = "external_data_violation")]
    ExternalData,
    /// Imports and declarations disagree.
    #[serde(rename = "dependency_violation")]
    Dependency,
    /// The program could not serve another call.
    #[serde(rename = "reuse_violation")]
    Reuse,
    /// The program needs something outside its worker.
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

impl Rule {
    /// The `violation_subtype` on the wire.
    pub fn subtype(self) -> &'static str {
        self.guardrail().subtype
    }

    /// The rule of this subtype, also by its name in an earlier version.
    pub fn from_subtype(subtype: &str) -> Option<Self> {
        let renamed = RENAMED.iter().find(|(earlier, _)| *earlier == subtype);
        let subtype = renamed.map_or(subtype, |(_, now)| now);
        Self::ALL.iter().copied().find(|rule| rule.subtype() == subtype)
    }

    /// Its family.
    pub fn violation_type(self) -> ViolationType {
        self.guardrail().violation_type
    }

    /// What a call that it ends fails with.
    pub fn failure_kind(self) -> FailureKind {
        let own = self.guardrail().failure.clone();
        own.unwrap_or_else(|| FailureKind::Guardrail(self.violation_type()))
    }

    /// Whether it only advises: a right answer is never lost to style.
    pub fn is_advisory(self) -> bool {
        self.guardrail().severity == Severity::Advisory
    }
}

/// Why a program may, or may not, be kept for later calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cacheability {
    /// `ask`, `chat`, `discuss`, `host`: every call is a new question.
    DynamicDispatchMethod,
    /// The inputs of this call are written into it.
    InputBakedCode,
    /// It does not read its arguments.
    ArgIgnoredCode,
    /// It serves a contract.
    DelegatedContractTool,
    /// None of the other reasons applies.
    StableMethodDefault,
    /// It was advised to change and did not.
    AdviceIgnored,
    /// It looks at its data before it answers.
    Looks,
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
            Self::Looks => "looks",
        }
    }
}

/// Whether a method stands for whatever is asked of it: its programs are never reused.
pub fn is_dynamic(method: &str) -> bool {
    let names = ["ask", "chat", "discuss", "host"];
    names.iter().any(|name| method.eq_ignore_ascii_case(name))
}

/// Whether a program may be kept for later calls, and why; `result_from` is what gave its result in this call.
pub fn cacheability(
    input: &GuardrailInput<'_>,
    has_contract: bool,
    result_from: ResultFrom,
) -> Cacheability {
    let reads_inputs = match result_from {
        ResultFrom::Function => input.inspection.reads_inputs(input.language, input.method),
        // The harness did not call the program's function, so its parameters are not this call's arguments.
        ResultFrom::Assigned
        | ResultFrom::Returned
        | ResultFrom::Expression
        | ResultFrom::Nothing => input.inspection.reads_arguments,
    };
    let ignores_inputs = input.has_inputs() && !reads_inputs;
    if is_dynamic(input.method) {
        Cacheability::DynamicDispatchMethod
    } else if input.inspection.looks() {
        Cacheability::Looks
    } else if input_baked_code::baked_literal(input).is_some() {
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
