//! What came of a call, and the closed set of ways it can fail.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::excerpt::shortened;
use crate::guardrail::ViolationType;
use crate::request::{Method, Role};

/// Characters kept of an error type a program authored, and of the class of what it raised.
pub(crate) const MAX_CODE_CHARS: usize = 120;

/// What came of a call. Role and method are always the call's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Who was asked.
    pub role: Role,
    /// What was asked.
    pub method: Method,
    /// The value, or why there is none.
    pub result: Result<Value, Failure>,
}

impl Outcome {
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
            "metadata": failure.map(|f| &f.metadata),
        })
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
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code(), self.message)
    }
}

/// What a failure says about where to look: the world, the task, or the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The world: another try later may do; the program is not to blame.
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

/// Who ran out of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The model's service.
    Provider,
    /// The program.
    Execution,
}

/// Who ended a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// We did, or the machine around us.
    Host,
    /// The program did: it exited, or crashed its interpreter.
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

/// The limit a program ran into.
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

/// An error type a program authored: data, kept as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// As authored.
    pub code: String,
    /// As authored.
    pub retriable: bool,
}

/// Every way a call can fail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is explained by its row in docs/failures.md")]
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
    GuardrailRetryExhausted,
    OutcomeRepairRetryExhausted,
    Execution,
    WorkerCrash(EndedBy),
    NonSerializableResult,
    ContractViolation,
    BudgetExceeded,
    /// Authored by a program.
    Reported(Reported),
}

impl FailureKind {
    /// The stable code (`error_type`).
    pub fn code(&self) -> &str {
        match self {
            Self::Provider => "provider",
            Self::RateLimited => "rate_limited",
            Self::ProviderAuth => "provider_auth",
            Self::ProviderRefusal => "provider_refusal",
            Self::Timeout(_) => "timeout",
            Self::ResourceLimit(_) => "resource_limit",
            Self::InvalidCall => "invalid_call",
            Self::Cancelled => "cancelled",
            Self::ContextConflict => "context_conflict",
            Self::StoreUnavailable => "store_unavailable",
            Self::GuestUnavailable => "guest_unavailable",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::ReplayDivergence => "replay_divergence",
            Self::InvalidCode => "invalid_code",
            Self::InvalidDependencyManifest => "invalid_dependency_manifest",
            Self::DependencyManifestIncompatible => "dependency_manifest_incompatible",
            Self::DependencyManifestChanged => "dependency_manifest_changed",
            Self::DependencyPolicyViolation => "dependency_policy_violation",
            Self::DependencyResolutionFailed => "dependency_resolution_failed",
            Self::DependencyInstallFailed => "dependency_install_failed",
            Self::DependencyActivationFailed => "dependency_activation_failed",
            Self::EnvironmentPreparing => "environment_preparing",
            Self::Guardrail(violation) => violation.name(),
            Self::MissingCredentials => "missing_credentials",
            Self::ServiceUnavailable => "service_unavailable",
            Self::UnsupportedCapability => "unsupported_capability",
            Self::GuardrailRetryExhausted => "guardrail_retry_exhausted",
            Self::OutcomeRepairRetryExhausted => "outcome_repair_retry_exhausted",
            Self::Execution => "execution",
            Self::WorkerCrash(_) => "worker_crash",
            Self::NonSerializableResult => "non_serializable_result",
            Self::ContractViolation => "contract_violation",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Reported(reported) => &reported.code,
        }
    }

    /// Whether it is about packages: then it names whose call it was, and what is known of the package.
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

    /// Whether the same call may do better later.
    pub fn retriable(&self) -> bool {
        match self {
            Self::Provider
            | Self::RateLimited
            | Self::Timeout(_)
            | Self::Cancelled
            | Self::ContextConflict
            | Self::InvalidCode
            | Self::DependencyInstallFailed
            | Self::DependencyActivationFailed
            | Self::EnvironmentPreparing
            | Self::WorkerCrash(_) => true,
            Self::ProviderAuth
            | Self::ProviderRefusal
            | Self::ResourceLimit(_)
            | Self::InvalidCall
            | Self::StoreUnavailable
            | Self::GuestUnavailable
            | Self::SandboxUnavailable
            | Self::ReplayDivergence
            | Self::InvalidDependencyManifest
            | Self::DependencyManifestIncompatible
            | Self::DependencyManifestChanged
            | Self::DependencyPolicyViolation
            | Self::DependencyResolutionFailed
            | Self::Guardrail(_)
            | Self::MissingCredentials
            | Self::ServiceUnavailable
            | Self::UnsupportedCapability
            | Self::GuardrailRetryExhausted
            | Self::OutcomeRepairRetryExhausted
            | Self::Execution
            | Self::NonSerializableResult
            | Self::ContractViolation
            | Self::BudgetExceeded => false,
            Self::Reported(reported) => reported.retriable,
        }
    }

    /// Where to look.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Provider
            | Self::RateLimited
            | Self::ProviderAuth
            | Self::ProviderRefusal
            | Self::Timeout(Waited::Provider)
            | Self::Cancelled
            | Self::ContextConflict
            | Self::StoreUnavailable
            | Self::GuestUnavailable
            | Self::SandboxUnavailable
            | Self::ReplayDivergence
            | Self::DependencyResolutionFailed
            | Self::DependencyInstallFailed
            | Self::DependencyActivationFailed
            | Self::EnvironmentPreparing
            | Self::MissingCredentials
            | Self::ServiceUnavailable
            | Self::UnsupportedCapability
            | Self::WorkerCrash(EndedBy::Host) => Cause::Extrinsic,
            Self::InvalidCall
            | Self::GuardrailRetryExhausted
            | Self::OutcomeRepairRetryExhausted
            | Self::ContractViolation
            | Self::BudgetExceeded => Cause::Adaptive,
            Self::Timeout(Waited::Execution)
            | Self::ResourceLimit(_)
            | Self::InvalidCode
            | Self::InvalidDependencyManifest
            | Self::DependencyManifestIncompatible
            | Self::DependencyManifestChanged
            | Self::DependencyPolicyViolation
            | Self::Guardrail(_)
            | Self::Execution
            | Self::WorkerCrash(EndedBy::Program)
            | Self::NonSerializableResult => Cause::Intrinsic,
            Self::Reported(reported) => reported.cause(),
        }
    }
}

impl Reported {
    /// As it is kept, in the store and in every log line: a type is a word or two, not a text.
    #[must_use]
    pub(crate) fn bounded(self) -> Self {
        Self { code: shortened(&self.code, MAX_CODE_CHARS), ..self }
    }

    /// Known vocabulary first; then a truthful, final answer is the task's, anything else the program's.
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
            | "unsupported_capability"
            | "missing_capability"
            | "content_ref_not_found" => Cause::Extrinsic,
            // A nested call's failure, passed on as it came.
            "provider"
            | "rate_limited"
            | "provider_auth"
            | "provider_refusal"
            | "timeout"
            | "cancelled"
            | "context_conflict"
            | "store_unavailable"
            | "guest_unavailable"
            | "sandbox_unavailable"
            | "replay_divergence"
            | "dependency_resolution_failed"
            | "dependency_install_failed"
            | "dependency_activation_failed"
            | "environment_preparing"
            | "missing_credentials"
            | "service_unavailable" => Cause::Extrinsic,
            _ if self.retriable => Cause::Intrinsic,
            _ => Cause::Adaptive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program passes on of a call it made says the same of where to look.
    #[test]
    fn the_worlds_fault_stays_the_worlds_when_it_is_passed_on() {
        for kind in [
            FailureKind::Provider,
            FailureKind::RateLimited,
            FailureKind::ProviderAuth,
            FailureKind::ProviderRefusal,
            FailureKind::Timeout(Waited::Provider),
            FailureKind::Cancelled,
            FailureKind::ContextConflict,
            FailureKind::StoreUnavailable,
            FailureKind::GuestUnavailable,
            FailureKind::SandboxUnavailable,
            FailureKind::ReplayDivergence,
            FailureKind::DependencyResolutionFailed,
            FailureKind::DependencyInstallFailed,
            FailureKind::DependencyActivationFailed,
            FailureKind::EnvironmentPreparing,
            FailureKind::MissingCredentials,
            FailureKind::ServiceUnavailable,
            FailureKind::UnsupportedCapability,
        ] {
            let (code, retriable) = (kind.code().to_owned(), kind.retriable());
            let passed_on = FailureKind::Reported(Reported { code, retriable });
            assert_eq!((kind.cause(), passed_on.cause()), (Cause::Extrinsic, Cause::Extrinsic));
        }
    }
}
