//! How the process ends: every exit code, and the faults that lead to one.

use std::fmt::Write as _;
use std::process::ExitCode;

use lifecycle::call::StoreFault;
use lifecycle::request::NameFault;
use recurgent::config::ConfigFault;
use recurgent::{AgentFault, Failure, FailureKind, Outcome, ProgramFault, SetupFault};
use serde_json::{Value, json};

/// How the process ends. The numbers are stable: scripts may rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It worked.
    Ok = 0,
    /// The call ended in an error outcome.
    Failed = 1,
    /// The command line is not valid.
    Usage = 2,
    /// Configuration, store or provider cannot be used.
    Setup = 3,
    /// No interpreter or no sandbox to run programs in.
    Unavailable = 4,
    /// The user asked to stop.
    Cancelled = 130,
}

/// Every exit code with its meaning, as `--help` prints them.
pub(crate) const EXIT_CODES: [(Exit, &str); 6] = [
    (Exit::Ok, "it worked"),
    (Exit::Failed, "the call ended in an error outcome, or what was named does not exist"),
    (Exit::Usage, "the command line is not valid"),
    (Exit::Setup, "configuration, store, provider or output cannot be used"),
    (Exit::Unavailable, "no interpreter or no sandbox to run programs in"),
    (Exit::Cancelled, "cancelled by Ctrl-C or SIGTERM"),
];

impl Exit {
    /// The exit status of the process.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// The exit code of a process that made one call.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        outcome.failure().map_or(Self::Ok, Self::of_failure)
    }

    /// The exit code of a process whose only call failed.
    pub(crate) fn of_failure(failure: &Failure) -> Self {
        match &failure.kind {
            FailureKind::Cancelled => Self::Cancelled,
            FailureKind::GuestUnavailable | FailureKind::SandboxUnavailable => Self::Unavailable,
            // Without a model, or with a key that is refused, no call that needs one can succeed.
            FailureKind::StoreUnavailable | FailureKind::ProviderAuth => Self::Setup,
            FailureKind::Provider
            | FailureKind::RateLimited
            | FailureKind::ProviderRefusal
            | FailureKind::Timeout(_)
            | FailureKind::ResourceLimit(_)
            | FailureKind::InvalidCall
            | FailureKind::ContextConflict
            | FailureKind::WorkspaceUnusable
            | FailureKind::ReplayDivergence
            | FailureKind::InvalidCode
            | FailureKind::InvalidDependencyManifest
            | FailureKind::DependencyManifestIncompatible
            | FailureKind::DependencyManifestChanged
            | FailureKind::DependencyPolicyViolation
            | FailureKind::DependencyResolutionFailed
            | FailureKind::DependencyInstallFailed
            | FailureKind::DependencyActivationFailed
            | FailureKind::EnvironmentPreparing
            | FailureKind::Guardrail(_)
            | FailureKind::MissingCredentials
            | FailureKind::ServiceUnavailable
            | FailureKind::UnsupportedCapability
            | FailureKind::ToolUnavailable
            | FailureKind::ApprovalRequired
            | FailureKind::GuardrailRetryExhausted
            | FailureKind::OutcomeRepairRetryExhausted
            | FailureKind::Execution
            | FailureKind::WorkerCrash(_)
            | FailureKind::NonSerializableResult
            | FailureKind::ContractViolation
            | FailureKind::BudgetExceeded
            | FailureKind::InferFailed
            | FailureKind::LookBudgetSpent
            | FailureKind::Reported(_) => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// [`EXIT_CODES`] for the end of a help text.
pub(crate) fn exit_code_help() -> String {
    EXIT_CODES.iter().fold("Exit codes:".to_owned(), |mut help, (exit, meaning)| {
        // Writing to a String cannot fail.
        let _ = write!(help, "\n  {:>3}  {meaning}", exit.code());
        help
    })
}

/// Why a command ended without the outcome of a call.
#[derive(Debug)]
pub(crate) struct CommandFault {
    /// How the process ends.
    pub(crate) exit: Exit,
    /// The stable code (`error_type`).
    pub(crate) error_type: &'static str,
    /// For people: what happened and what to do next.
    pub(crate) message: String,
    /// Whether standard output must be one JSON object.
    pub(crate) as_json: bool,
}

impl CommandFault {
    fn new(exit: Exit, error_type: &'static str, message: impl Into<String>) -> Self {
        Self { exit, error_type, message: message.into(), as_json: false }
    }

    /// The model that the command needs does not answer.
    pub(crate) fn no_model(failure: &Failure) -> Self {
        let provider = FailureKind::Provider.code();
        Self::new(Exit::of_failure(failure), provider, failure.message.clone())
    }

    /// The command line is not valid.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    /// Something a command needs cannot be used.
    pub(crate) fn setup(message: impl Into<String>) -> Self {
        Self::new(Exit::Setup, "setup", message)
    }

    /// Nothing to run programs with.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Exit::Unavailable, FailureKind::GuestUnavailable.code(), message)
    }

    /// The user asked to stop.
    pub(crate) fn cancelled(message: impl Into<String>) -> Self {
        Self::new(Exit::Cancelled, FailureKind::Cancelled.code(), message)
    }

    /// The command ran, and its result is not what was asked for.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, "failed", message)
    }

    /// The thing that was named does not exist.
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, "not_found", message)
    }

    /// A call that no agent accepts.
    pub(crate) fn invalid_call(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, FailureKind::InvalidCall.code(), message)
    }

    /// The same fields an outcome has, so that clients read one shape.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "status": "error",
            "value": null,
            "error_type": self.error_type,
            "error_message": self.message,
            "retriable": false,
            "tool_role": null,
            "method_name": null,
            "metadata": {},
        })
    }
}

impl From<NameFault> for CommandFault {
    fn from(fault: NameFault) -> Self {
        Self::new(Exit::Usage, FailureKind::InvalidCall.code(), fault.to_string())
    }
}

impl From<ConfigFault> for CommandFault {
    fn from(fault: ConfigFault) -> Self {
        Self::setup(fault.to_string())
    }
}

impl From<StoreFault> for CommandFault {
    fn from(fault: StoreFault) -> Self {
        match &fault {
            StoreFault::Unavailable(_) => {
                Self::new(Exit::Setup, FailureKind::StoreUnavailable.code(), fault.to_string())
            }
            StoreFault::Conflict { .. } => {
                Self::new(Exit::Failed, FailureKind::ContextConflict.code(), fault.to_string())
            }
        }
    }
}

impl From<SetupFault> for CommandFault {
    fn from(fault: SetupFault) -> Self {
        match fault {
            SetupFault::Config(fault) => fault.into(),
            SetupFault::Store(fault) => fault.into(),
            SetupFault::Provider(fault) => Self::setup(fault.to_string()),
            SetupFault::Tools(_) | SetupFault::Toolbox(_) => Self::setup(fault.to_string()),
            SetupFault::Workers(_) => Self::unavailable(fault.to_string()),
        }
    }
}

impl From<AgentFault> for CommandFault {
    fn from(fault: AgentFault) -> Self {
        match fault {
            AgentFault::Name(fault) => fault.into(),
            AgentFault::Program(fault) => fault.into(),
            AgentFault::Store(fault) => fault.into(),
            AgentFault::Option(fault) => Self::usage(fault.to_string()),
            AgentFault::Model(fault) => Self::usage(fault.to_string()),
            AgentFault::Contract(fault) => Self::usage(fault.to_string()),
            AgentFault::Value(problem) => Self::invalid_call(problem),
            AgentFault::UnknownTool { .. } => Self::missing(fault.to_string()),
            AgentFault::Turn(_) => Self::failed(fault.to_string()),
        }
    }
}

impl From<ProgramFault> for CommandFault {
    fn from(fault: ProgramFault) -> Self {
        match fault {
            ProgramFault::Name(fault) => fault.into(),
            ProgramFault::Store(fault) => fault.into(),
            ProgramFault::NotStored(_)
            | ProgramFault::UnknownCall(_)
            | ProgramFault::UnknownExample(_) => Self::missing(fault.to_string()),
            ProgramFault::Invalid(_)
            | ProgramFault::Example(_)
            | ProgramFault::TooManyExamples(_)
            | ProgramFault::AlreadyRejected(_)
            | ProgramFault::OtherCall { .. }
            | ProgramFault::Untested(_) => Self::failed(fault.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_in_the_help_once() {
        let codes: Vec<u8> = EXIT_CODES.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 130]);
        assert!(exit_code_help().contains("\n  130  cancelled"));
    }
}
