//! The outcome of a call, and the closed set of ways it can fail.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::admission::Admission;
use crate::attempt::Origin;
use crate::draft::Usage;
use crate::excerpt::shortened;
use crate::guardrail::ViolationType;
use crate::program::Checksum;
use crate::provenance::Observation;
use crate::request::{CallId, Method, Role, TraceId};

/// Characters kept of an error type a program authored, and of the class of what it raised.
pub(crate) const MAX_CODE_CHARS: usize = 120;

/// The outcome of a call. Role and method are always the call's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The agent's role.
    pub role: Role,
    /// The method called.
    pub method: Method,
    /// The value, or why there is none.
    pub result: Result<Value, Failure>,
    /// What the caller should know beside the result.
    pub notes: Vec<String>,
    /// Whether it is null because no program gave a result.
    pub is_weak: bool,
    /// What the call reached, as far as the runtime saw it.
    pub observed: Observation,
    /// Facts about the call. `None`: memory was read or written, or the call was refused before it began.
    pub details: Option<Box<CallDetails>>,
}

/// Facts about a call. Usage and cost are those of the call itself; nested calls have their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDetails {
    /// Its identifier, as in the log.
    pub call: CallId,
    /// The identifier of its call tree, as in the log.
    pub trace: TraceId,
    /// Requests it made to a model.
    pub model_calls: u32,
    /// Requests that its programs made to a model, by asking about data.
    pub inference_calls: u32,
    /// Tokens of all these requests, and their cost where prices are configured.
    pub usage: Usage,
    /// Time from the call to its answer.
    pub duration: Duration,
    /// Where the program that answered came from; `None`: no program was accepted.
    pub origin: Option<Origin>,
    /// Whether a new program is kept to run from now on; `None`: there was none.
    pub admission: Option<Admission>,
    /// Answers of programs that were not the value that the caller expects.
    pub unexpected: Vec<UnexpectedAnswer>,
}

/// A program's answer that was not the value that the caller expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnexpectedAnswer {
    /// The program.
    pub program: Checksum,
    /// Whether the program is to blame, not another agent or, for a new program, something else outside that answered it.
    pub is_own: bool,
}

impl Outcome {
    /// An outcome without facts about its call.
    pub fn new(role: Role, method: Method, result: Result<Value, Failure>) -> Self {
        let observed = Observation::of_no_network();
        Self { role, method, result, notes: Vec::new(), is_weak: false, observed, details: None }
    }

    /// Whether the call gave a value.
    pub fn is_ok(&self) -> bool {
        self.result.is_ok()
    }

    /// The value, when ok.
    pub fn value(&self) -> Option<&Value> {
        self.result.as_ref().ok()
    }

    /// The failure, when not.
    pub fn failure(&self) -> Option<&Failure> {
        self.result.as_ref().err()
    }

    /// `ok` or `error`.
    pub fn status(&self) -> &'static str {
        if self.is_ok() { "ok" } else { "error" }
    }

    /// The wire form: the eight fields every client sees.
    pub fn to_json(&self) -> Value {
        let failure = self.failure();
        json!({
            "status": self.status(),
            "value": self.value(),
            "error_type": failure.map(|f| f.kind.code()),
            "error_message": failure.map(|f| &f.message),
            "retriable": failure.is_some_and(|f| f.kind.retriable()),
            "tool_role": self.role,
            "method_name": self.method,
            "metadata": self.metadata(),
        })
    }

    /// The failure's metadata or the value's observed sources, and the notes; nothing when there are none.
    fn metadata(&self) -> Option<Map<String, Value>> {
        let mut metadata = self.failure().map(|failure| failure.metadata.clone());
        if self.is_ok() && !self.observed.sources.is_empty() {
            let sources = json!(self.observed.to_json());
            metadata.get_or_insert_default().insert("sources".to_owned(), sources);
        }
        if !self.notes.is_empty() {
            metadata.get_or_insert_default().insert("notes".to_owned(), json!(self.notes));
        }
        if self.is_weak {
            metadata.get_or_insert_default().insert("weak_success".to_owned(), json!(true));
        }
        metadata
    }
}

/// Why a call gave no value, as its caller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which of the closed set.
    pub kind: FailureKind,
    /// For people: what happened and what to do next.
    pub message: String,
    /// For programs.
    pub metadata: Map<String, Value>,
}

impl Failure {
    /// A failure without metadata.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), metadata: Map::new() }
    }

    /// Adds one metadata field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(key.to_owned(), value.into());
        self
    }

    /// Where to look for its cause. An exception may be the caller's fault or the world's, as its metadata says.
    pub fn cause(&self) -> Cause {
        let blamed = self.metadata.get("blame").and_then(Value::as_str);
        match (&self.kind, blamed) {
            (FailureKind::Execution, Some("caller")) => Cause::Adaptive,
            (FailureKind::Execution, Some("world")) => Cause::Extrinsic,
            (kind, _) => kind.cause(),
        }
    }

    /// The same with a fact, unless it has one of this name already.
    #[must_use]
    pub(crate) fn with_default(mut self, key: &str, value: Option<String>) -> Self {
        if let Some(value) = value {
            self.metadata.entry(key).or_insert_with(|| value.into());
        }
        self
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code(), self.message)
    }
}

/// Where to look for the cause of a failure: outside, the task, or the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Outside the program: a later try may succeed, and the program is not at fault.
    Extrinsic,
    /// The task: the program and the request do not fit each other.
    Adaptive,
    /// The program.
    Intrinsic,
}

impl Cause {
    /// The wire name (`failure_class`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Extrinsic => "extrinsic",
            Self::Adaptive => "adaptive",
            Self::Intrinsic => "intrinsic",
        }
    }
}

/// What ran out of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The model's service.
    Provider,
    /// The program.
    Execution,
}

/// What ended a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// The host, or the machine it runs on.
    Host,
    /// The program: it exited, or crashed its interpreter.
    Program,
}

impl EndedBy {
    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Program => "program",
        }
    }
}

/// The limit a program reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named by its word")]
pub enum Limit {
    Memory,
    Cpu,
    Processes,
    Files,
    FileSize,
    Scratch,
    Output,
    Frame,
    Asks,
}

impl Limit {
    /// The wire name (metadata `limit`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Processes => "processes",
            Self::Files => "files",
            Self::FileSize => "file_size",
            Self::Scratch => "scratch",
            Self::Output => "output",
            Self::Frame => "frame",
            Self::Asks => "asks",
        }
    }
}

/// An error type a program authored: data, kept unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// As authored.
    pub code: String,
    /// As authored.
    pub retriable: bool,
}

/// Every way a call can fail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is explained by its row in the table below")]
pub enum FailureKind {
    Provider,
    RateLimited,
    ProviderAuth,
    ProviderRefusal,
    Timeout(Waited),
    ResourceLimit(Limit),
    InvalidCall,
    Cancelled,
    ContextConflict,
    WorkspaceUnusable,
    StoreUnavailable,
    GuestUnavailable,
    SandboxUnavailable,
    ReplayDivergence,
    InvalidCode,
    InvalidDependencyManifest,
    DependencyManifestIncompatible,
    DependencyManifestChanged,
    DependencyPolicyViolation,
    DependencyResolutionFailed,
    DependencyInstallFailed,
    DependencyActivationFailed,
    EnvironmentPreparing,
    /// A guardrail that ended the call.
    Guardrail(ViolationType),
    MissingCredentials,
    ServiceUnavailable,
    UnsupportedCapability,
    ToolUnavailable,
    ApprovalRequired,
    GuardrailRetryExhausted,
    OutcomeRepairRetryExhausted,
    Execution,
    WorkerCrash(EndedBy),
    NonSerializableResult,
    ContractViolation,
    BudgetExceeded,
    InferFailed,
    LookBudgetSpent,
    /// Authored by a program.
    Reported(Reported),
}

/// What is fixed about one kind of failure: its row in `docs/failures.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureRow<'a> {
    /// The stable code (`error_type`).
    pub code: &'a str,
    /// Whether the same call may succeed later.
    pub retriable: bool,
    /// Where to look.
    pub cause: Cause,
    /// What happened, for people.
    pub meaning: &'static str,
    /// What to do next, for people.
    pub next_step: &'static str,
}

/// **The table of failures.** One row per kind: code, retriable, cause, meaning, next step.
macro_rules! failure_table {
    ($($kind:ident $(($of:path))? = $code:literal $retriable:literal $cause:ident: $meaning:literal, $next:literal;)*) => {
        impl FailureKind {
            /// Every kind with a code of its own, in the order of the table. The codes of guardrails and limits are
            /// listed by [`ViolationType`] and [`Limit`].
            pub const LISTED: &'static [Self] = &[$(Self::$kind $(($of))?),*];

            /// Its row in the table of failures.
            pub fn row(&self) -> FailureRow<'_> {
                match self {
                    $(Self::$kind $(($of))? => FailureRow {
                        code: $code,
                        retriable: $retriable,
                        cause: Cause::$cause,
                        meaning: $meaning,
                        next_step: $next,
                    },)*
                    Self::ResourceLimit(_) => FailureRow {
                        code: "resource_limit",
                        retriable: false,
                        cause: Cause::Intrinsic,
                        meaning: "the program reached a limit; metadata `limit` names it",
                        next_step: "give it less to do in one call, or raise the limit",
                    },
                    Self::Guardrail(violation) => FailureRow {
                        code: violation.name(),
                        retriable: false,
                        cause: Cause::Intrinsic,
                        meaning: "the program broke a guardrail that is configured to end calls",
                        next_step: "see the rule in docs/guardrails.md, or take it off the terminal list",
                    },
                    Self::Reported(reported) => FailureRow {
                        code: &reported.code,
                        retriable: reported.retriable,
                        cause: reported.cause(),
                        meaning: "the program itself reported this error",
                        next_step: "read its message",
                    },
                }
            }
        }
    };
}

failure_table! {
    Provider = "provider" true Extrinsic:
        "the model's service failed or rejected the request", "run it again later; check the model's name and the service's address";
    RateLimited = "rate_limited" true Extrinsic:
        "the model's service asked us to slow down; metadata `retry_after_ms`", "wait as long as the service asks, then run it again";
    ProviderAuth = "provider_auth" false Extrinsic:
        "no key is configured, or the service refused it", "set the provider's key, or name another provider";
    ProviderRefusal = "provider_refusal" false Extrinsic:
        "the model refused to write this program", "rephrase the request";
    Timeout(Waited::Provider) = "timeout" true Extrinsic:
        "the model's service did not answer in time", "run it again, or raise provider_timeout_seconds";
    Timeout(Waited::Execution) = "timeout" true Intrinsic:
        "the program ran past its time limit", "give it less to do, or raise execution_timeout_seconds";
    InvalidCall = "invalid_call" false Adaptive:
        "the call itself cannot be made: a reserved name, NaN, arguments over the limit or that do not fit the stored function", "correct the call as the message says";
    Cancelled = "cancelled" true Extrinsic:
        "the caller stopped the call", "run it again";
    ContextConflict = "context_conflict" true Extrinsic:
        "the session was changed during the call", "run it again";
    WorkspaceUnusable = "workspace_unusable" true Extrinsic:
        "the workspace cannot be used, or what the program changed could not be copied to it", "see what the message names, then run it again";
    StoreUnavailable = "store_unavailable" false Extrinsic:
        "the store cannot be read or written", "free or repair what the message names";
    GuestUnavailable = "guest_unavailable" false Extrinsic:
        "the guest language or its packaging tool is missing", "install what the message names";
    SandboxUnavailable = "sandbox_unavailable" false Extrinsic:
        "the required sandbox tier cannot be reached", "run `recurgent doctor`, or lower minimum_sandbox_tier";
    ReplayDivergence = "replay_divergence" false Extrinsic:
        "a recording lacks the reply that was needed", "record the run again";
    InvalidCode = "invalid_code" true Intrinsic:
        "the model gave no usable program, or it does not parse", "run it again, or use another model";
    InvalidDependencyManifest = "invalid_dependency_manifest" false Intrinsic:
        "a dependency declaration cannot be read; metadata `field` says where", "run it again; the model must declare name and version";
    DependencyManifestIncompatible = "dependency_manifest_incompatible" false Intrinsic:
        "a declared version does not fit what the agent's environment holds; metadata `held`, `declared`", "use another agent for the other version";
    DependencyManifestChanged = "dependency_manifest_changed" false Intrinsic:
        "packages changed after the first success under manifest_mode = strict; metadata `held`, `declared`", "use another agent, or manifest_mode = additive";
    DependencyPolicyViolation = "dependency_policy_violation" false Intrinsic:
        "configuration forbids a package or source; metadata `policy` names the rule", "allow the package, or ask for a program without it";
    DependencyResolutionFailed = "dependency_resolution_failed" false Extrinsic:
        "no versions satisfy the manifest, or a package does not exist", "check the package's name and version";
    DependencyInstallFailed = "dependency_install_failed" true Extrinsic:
        "a package could not be fetched or built; metadata `stage`, `source`", "check the package source, then run it again";
    DependencyActivationFailed = "dependency_activation_failed" true Extrinsic:
        "an installed package cannot be loaded; metadata `stage`, `source`", "install the system library it needs, then run it again";
    EnvironmentPreparing = "environment_preparing" true Extrinsic:
        "packages are still being installed", "wait for the preparation ticket";
    MissingCredentials = "missing_credentials" false Extrinsic:
        "the program needs a key that is not there", "give the agent the key as an argument";
    ServiceUnavailable = "service_unavailable" false Extrinsic:
        "a service the program needs is unreachable or failing; metadata `host` if known", "run it again when the service answers";
    UnsupportedCapability = "unsupported_capability" false Extrinsic:
        "the program needs something this agent may not reach; metadata `grant` names it", "grant it (`--network HOST`, `--read PATH`) and run it again";
    ToolUnavailable = "tool_unavailable" true Extrinsic:
        "a tool from outside, or its server, cannot be used; metadata `tool`, `reason`", "check it (`recurgent mcp test NAME`), then run it again";
    ApprovalRequired = "approval_required" false Adaptive:
        "something needs the agreement of a person first; metadata `needs` names it", "look at it and approve it (`recurgent mcp approve NAME`)";
    GuardrailRetryExhausted = "guardrail_retry_exhausted" false Adaptive:
        "every guardrail retry was used; metadata names the last violation", "rephrase the request, or raise guardrail_recovery_budget";
    OutcomeRepairRetryExhausted = "outcome_repair_retry_exhausted" false Adaptive:
        "every outcome retry was used; metadata names the last error", "rephrase the request, or raise fresh_outcome_repair_budget";
    Execution = "execution" false Intrinsic:
        "the program raised an exception; metadata holds class, location and `blame`", "read the exception; check the arguments";
    WorkerCrash(EndedBy::Program) = "worker_crash" true Intrinsic:
        "the program ended its worker without an answer", "run it again; the program must return a result";
    WorkerCrash(EndedBy::Host) = "worker_crash" true Extrinsic:
        "the host ended the worker", "run it again";
    NonSerializableResult = "non_serializable_result" false Intrinsic:
        "the result cannot be written as JSON; metadata `path` says where", "ask for plain data";
    ContractViolation = "contract_violation" false Adaptive:
        "the answer breaks the deliverable or an example; metadata says how", "correct the contract, or run it again";
    BudgetExceeded = "budget_exceeded" false Adaptive:
        "the allowance of the call tree is spent; metadata `budget` names which", "raise the allowance, or ask for less";
    InferFailed = "infer_failed" true Extrinsic:
        "a model gave no usable answer to a question of the program; metadata says why", "run it again; ask about less data at a time, or name another infer_model";
    LookBudgetSpent = "look_budget_spent" false Adaptive:
        "every program looked at data instead of answering; metadata `looks`", "describe the data in the purpose, or raise look_budget";
}

impl FailureKind {
    /// The stable code (`error_type`).
    pub fn code(&self) -> &str {
        self.row().code
    }

    /// The first kind of the table that has this code.
    pub fn of_code(code: &str) -> Option<&'static Self> {
        Self::LISTED.iter().find(|kind| kind.code() == code)
    }

    /// Whether the same call may succeed later.
    pub fn retriable(&self) -> bool {
        self.row().retriable
    }

    /// Where to look.
    pub fn cause(&self) -> Cause {
        self.row().cause
    }

    /// Whether it is about packages: then its metadata names the agent and what is known of the package.
    pub fn concerns_packages(&self) -> bool {
        matches!(
            self,
            Self::InvalidDependencyManifest
                | Self::DependencyManifestIncompatible
                | Self::DependencyManifestChanged
                | Self::DependencyPolicyViolation
                | Self::DependencyResolutionFailed
                | Self::DependencyInstallFailed
                | Self::DependencyActivationFailed
                | Self::EnvironmentPreparing
        )
    }
}

impl Reported {
    /// Bounded for the store and the log: an error type is a word or two, not a text.
    #[must_use]
    pub(crate) fn bounded(self) -> Self {
        Self { code: shortened(&self.code, MAX_CODE_CHARS), ..self }
    }

    /// Known error types first; then a final answer is attributed to the task, anything else to the program.
    fn cause(&self) -> Cause {
        match self.code.as_str() {
            "low_utility"
            | "wrong_tool_boundary"
            | "missing_input"
            | "parse_failed"
            | "invalid_format" => Cause::Adaptive,
            "network_error"
            | "http_error"
            | "rate_limit"
            | "capability_unavailable"
            | "missing_capability"
            | "content_ref_not_found" => Cause::Extrinsic,
            code if is_extrinsic(code) => Cause::Extrinsic,
            _ if self.retriable => Cause::Intrinsic,
            _ => Cause::Adaptive,
        }
    }
}

/// Whether a code of the table can stand for an extrinsic failure: a program that passes on the failure of a call it
/// made is not at fault.
fn is_extrinsic(code: &str) -> bool {
    let row = |kind: &FailureKind| kind.code() == code && kind.cause() == Cause::Extrinsic;
    FailureKind::LISTED.iter().any(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program passes on of a call it made has the same cause.
    #[test]
    fn an_extrinsic_failure_stays_extrinsic_when_it_is_passed_on() {
        let extrinsic = |kind: &&FailureKind| kind.cause() == Cause::Extrinsic;
        for kind in FailureKind::LISTED.iter().filter(extrinsic) {
            let (code, retriable) = (kind.code().to_owned(), kind.retriable());
            let passed_on = FailureKind::Reported(Reported { code, retriable });
            assert_eq!(passed_on.cause(), Cause::Extrinsic, "{kind:?}");
        }
    }
}
