//! What a worker is ordered to run, what it reports, and how running can fail.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::attempt::Reason;
use crate::context::{Context, ContextChanges};
use crate::dependency::DependencyManifest;
use crate::dialect::{Position, SyntaxFault};
use crate::draft::SpentAllowance;
use crate::guardrail::Violation;
use crate::inference::Inferred;
use crate::look::Look;
use crate::outcome::{EndedBy, Failure, FailureKind, Limit, Reported, Waited};
use crate::program::VettedProgram;
use crate::provenance::Observation;
use crate::request::{Arguments, CallRequest};
use crate::tool::Tool;

/// Where a program finds its packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Identity of a prepared set of packages; `None`: the bare language.
    pub id: Option<String>,
    /// The packages it was asked to hold.
    pub manifest: DependencyManifest,
    /// Its directory.
    pub root: Option<String>,
    /// Whether it was there already.
    pub cache_hit: bool,
    /// Time spent in all.
    pub prepare_time: Duration,
    /// Of it, time spent choosing versions.
    pub resolve_time: Duration,
    /// Of it, time spent installing them.
    pub install_time: Duration,
    /// The top-level names that can be imported from it; `None`: not known.
    pub provides: Option<Vec<String>>,
}

impl Environment {
    /// The language with nothing added.
    pub fn bare() -> Self {
        Self {
            id: None,
            manifest: DependencyManifest::default(),
            root: None,
            cache_hit: false,
            prepare_time: Duration::ZERO,
            resolve_time: Duration::ZERO,
            install_time: Duration::ZERO,
            provides: None,
        }
    }
}

/// The packages of one attempt, from declaration to environment; what was not reached is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packages {
    /// As the payload declared them.
    pub declared: Option<Value>,
    /// What normalisation left out, and why.
    pub notes: Vec<String>,
    /// What the agent's environment must hold for this program.
    pub effective: Option<DependencyManifest>,
    /// What was prepared.
    pub environment: Option<Environment>,
}

/// A preparation that failed: why, and what is known of the environment that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedPreparation {
    /// Why there is no environment.
    pub fault: EnvironmentFault,
    /// The environment that was asked for, without a directory; `None`: its identity is not known.
    pub environment: Option<Box<Environment>>,
}

impl From<EnvironmentFault> for FailedPreparation {
    fn from(fault: EnvironmentFault) -> Self {
        Self { fault, environment: None }
    }
}

/// Why no environment could be given. Failures carry what is known of `env_id`, `dependency_name`,
/// `stage` and `source`; the agent and method are added here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentFault {
    /// A package of the lock is against the policy.
    Refused(Box<Failure>),
    /// No versions satisfy the manifest, or a package does not exist.
    Unresolvable(Box<Failure>),
    /// A package could not be fetched or built.
    InstallFailed(Box<Failure>),
    /// An installed package cannot be loaded.
    ActivationFailed(Box<Failure>),
    /// A source did not answer: no program is at fault.
    SourceUnreachable(Box<Failure>),
    /// It is still being prepared elsewhere.
    Preparing(Box<Failure>),
    /// The guest language or its packaging tool is missing.
    GuestMissing(String),
    /// The required sandbox tier could not be reached for packages.
    Uncontained(String),
    /// The caller cancelled.
    Cancelled,
}

impl EnvironmentFault {
    /// The failure, outside of a call.
    pub fn into_failure(self) -> Failure {
        self.judged().1
    }

    pub(crate) fn judged(self) -> (Reason, Failure) {
        let of_kind = |kind, failure: Box<Failure>| Failure { kind, ..*failure };
        match self {
            Self::Refused(failure) => {
                (Reason::PolicyViolated, of_kind(FailureKind::DependencyPolicyViolation, failure))
            }
            Self::Unresolvable(failure) => {
                (Reason::Unresolvable, of_kind(FailureKind::DependencyResolutionFailed, failure))
            }
            Self::InstallFailed(failure) => {
                (Reason::InstallFailed, of_kind(FailureKind::DependencyInstallFailed, failure))
            }
            Self::ActivationFailed(failure) => (
                Reason::ActivationFailed,
                of_kind(FailureKind::DependencyActivationFailed, failure),
            ),
            Self::SourceUnreachable(failure) => {
                (Reason::SourceUnreachable, of_kind(FailureKind::DependencyInstallFailed, failure))
            }
            Self::Preparing(failure) => {
                (Reason::StillPreparing, of_kind(FailureKind::EnvironmentPreparing, failure))
            }
            Self::GuestMissing(message) => {
                (Reason::GuestMissing, Failure::new(FailureKind::GuestUnavailable, message))
            }
            Self::Uncontained(message) => WorkerFault::Uncontained(message).judged(),
            Self::Cancelled => {
                (Reason::Cancelled, Failure::new(FailureKind::Cancelled, "the call was cancelled"))
            }
        }
    }
}

/// What a worker is to run.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// The call it serves.
    pub request: &'a CallRequest,
    /// What to run: only vetted programs can be ordered.
    pub program: &'a VettedProgram,
    /// Whether the program has proved itself and may use its agent's kept worker.
    pub proven: bool,
}

impl<'a> Order<'a> {
    /// The arguments to run it with.
    pub fn arguments(&self) -> &'a Arguments {
        &self.request.arguments
    }

    /// The memory it starts from.
    pub fn context(&self) -> &'a Context {
        &self.request.context
    }
}

/// What a worker reported when it was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// How the program ended.
    pub ending: ReportEnding,
    /// Its changes to memory.
    pub changes: ContextChanges,
    /// Tools it forged by `delegate`; durable only if the attempt is accepted.
    pub forged: Vec<Tool>,
    /// Guardrails it broke while asking the host.
    pub violations: Vec<Violation>,
    /// How its last call of another agent failed, if it did.
    pub failed_call: Option<Failure>,
    /// What it asked a model.
    pub inferred: Inferred,
    /// What it printed.
    pub output: Output,
    /// What it reached.
    pub observed: Observation,
    /// The worker that ran it.
    pub worker: WorkerTrace,
    /// How it gave its result.
    pub result_from: ResultFrom,
}

/// How a program gave its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResultFrom {
    /// It assigned `result`.
    #[default]
    Assigned,
    /// It returned at top level.
    Returned,
    /// It defined the method's function, and the function gave it.
    Function,
    /// Its last expression gave it.
    Expression,
    /// It gave none.
    Nothing,
}

impl ResultFrom {
    /// Every way.
    pub const ALL: [Self; 5] =
        [Self::Assigned, Self::Returned, Self::Function, Self::Expression, Self::Nothing];

    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Returned => "returned",
            Self::Function => "function",
            Self::Expression => "expression",
            Self::Nothing => "none",
        }
    }

    /// The way of this wire name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportEnding {
    /// It gave a value.
    Value(Value),
    /// It gave an error outcome of its own making.
    Reported {
        /// Its type.
        reported: Reported,
        /// Its message.
        message: String,
        /// Its data.
        metadata: Map<String, Value>,
    },
    /// It raised.
    Raised {
        /// The guest's exception class.
        class: String,
        /// Its message.
        message: String,
        /// Where in the program.
        location: Option<Position>,
        /// What else the guest knows of it.
        facts: Box<ExceptionFacts>,
    },
    /// The interpreter's own compiler refused it.
    Malformed(SyntaxFault),
    /// Its result or memory cannot cross the boundary.
    Unserializable {
        /// Where, as `$.movies[0].seen`.
        path: String,
        /// What was found there.
        message: String,
    },
    /// It looked at a value: the model is shown it and writes the next program.
    Looked(Box<Look>),
    /// It called exit.
    Exited {
        /// With this status.
        status: i64,
        /// What it said, if anything.
        message: String,
        /// Where in the program.
        location: Option<Position>,
        /// What else the guest knows of it.
        facts: Box<ExceptionFacts>,
    },
    /// It reached a limit.
    Limited(Limit, String),
}

impl ReportEnding {
    /// An exit of which only the status is known.
    pub fn exited(status: i64) -> Self {
        Self::Exited { status, message: String::new(), location: None, facts: Box::default() }
    }
}

/// What a guest reports of an exception beside class, message and location. Blame is decided from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExceptionFacts {
    /// The exception itself.
    pub exception: ExceptionLink,
    /// The exceptions behind it, nearest first; the members, if it is a group.
    pub causes: Vec<ExceptionLink>,
    /// The status of an HTTP response that the program held when it failed.
    pub http_status: Option<u16>,
    /// Whether the frame that raised it, or that called into a library, belongs to the program.
    pub raised_in_program: bool,
    /// Where it passed, innermost frame first, as the guest writes frames. For the debug log.
    pub backtrace: Vec<String>,
}

/// What a guest reports of one exception of a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExceptionLink {
    /// Qualified class names, from the class of the exception up to the root of the hierarchy.
    pub class_chain: Vec<String>,
    /// The symbolic number of an operating system error, e.g. `ECONNREFUSED`, or of an error of `SQLite`.
    pub errno: Option<String>,
    /// The file of an operating system error.
    pub path: Option<String>,
    /// The error type of a failed call of another agent whose value the program used.
    pub failed_call: Option<String>,
    /// How it is linked to the exception before it.
    pub kind: LinkKind,
}

/// How an exception is linked to the one that was raised because of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// The other was raised while this one was handled.
    #[default]
    Handled,
    /// The other names this one as its cause: `raise … from …`.
    Named,
    /// The other is a group that contains this one.
    Member,
}

impl LinkKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Handled, Self::Named, Self::Member];

    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Handled => "while",
            Self::Named => "from",
            Self::Member => "member",
        }
    }

    /// The kind of this wire name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What a program printed, each stream cut at a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Bytes it wrote beyond what is kept here.
    pub dropped_bytes: u64,
}

/// The worker that ran an attempt, for the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerTrace {
    /// Its process.
    pub pid: Option<u32>,
    /// Whether it was its agent's kept worker.
    pub warm: bool,
    /// Workers this agent lost before.
    pub restarts: u32,
    /// The strongest containment it ran under.
    pub sandbox_tier: String,
    /// Time spent obtaining it.
    pub isolation: Duration,
    /// The status its process exited with, if it exited before it reported.
    pub exit_status: Option<i32>,
    /// The signal that ended its process before it reported, e.g. `SIGSEGV`.
    pub signal: Option<String>,
}

/// A run that ended without a report: why, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRun {
    /// Why there is no report.
    pub fault: WorkerFault,
    /// What the program printed before.
    pub output: Box<Output>,
    /// The worker that ran it.
    pub worker: Box<WorkerTrace>,
    /// What it reached.
    pub observed: Box<Observation>,
    /// What it asked a model.
    pub inferred: Box<Inferred>,
}

impl FailedRun {
    /// A run that did not start, so that it reached nothing.
    pub fn not_started(fault: WorkerFault) -> Self {
        Self { observed: Box::new(Observation::of_no_network()), ..fault.into() }
    }
}

impl From<WorkerFault> for FailedRun {
    /// A run of which nothing is known, not even what it reached.
    fn from(fault: WorkerFault) -> Self {
        Self {
            fault,
            output: Box::default(),
            worker: Box::default(),
            observed: Box::default(),
            inferred: Box::default(),
        }
    }
}

/// How long an agent at its limit of crashes waits for its next worker; doubles with each further crash.
const FIRST_RESTART_DELAY: Duration = Duration::from_secs(1);
/// The longest time it waits.
const LONGEST_RESTART_DELAY: Duration = Duration::from_mins(1);

/// How long an agent waits for its next worker, after `crashes` in a row of which `limit` cost no time.
pub fn restart_delay(crashes: u32, limit: u32) -> Option<Duration> {
    let beyond = crashes.checked_sub(limit)?;
    Some(FIRST_RESTART_DELAY.saturating_mul(1 << beyond.min(16)).min(LONGEST_RESTART_DELAY))
}

/// Why a worker reported nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerFault {
    /// The program ran past its deadline.
    TimedOut(Duration),
    /// The same, while it waited for a service that sent nothing.
    ServiceSilent {
        /// Its limit.
        limit: Duration,
        /// How long the service had sent nothing; `None`: it did not accept the connection.
        silent: Option<Duration>,
    },
    /// The worker ended.
    Crashed {
        /// What ended it.
        by: EndedBy,
        /// How.
        detail: String,
    },
    /// It reached a limit the host enforces.
    Limited(Limit, String),
    /// The environment could not be activated in it.
    ActivationFailed(Box<Failure>),
    /// No worker could be started.
    Unavailable(String),
    /// The call tree's time was spent before or while it ran.
    AllowanceSpent(Box<SpentAllowance>),
    /// The required sandbox tier could not be reached.
    Uncontained(String),
    /// The workspace that it may change could not be used.
    NoWorkspace(String),
    /// The caller cancelled.
    Cancelled,
}

impl WorkerFault {
    pub(crate) fn judged(self) -> (Reason, Failure) {
        match self {
            Self::TimedOut(limit) => (
                Reason::TimedOut,
                Failure::new(
                    FailureKind::Timeout(Waited::Execution),
                    format!(
                        "the program ran past its limit of {} s; make it faster, or raise execution_timeout_seconds",
                        limit.as_secs_f64()
                    ),
                ),
            ),
            Self::ServiceSilent { limit, silent } => {
                (Reason::OutsideFailed, silent_service(None, limit, silent))
            }
            Self::Crashed { by, detail } => {
                let reason = match by {
                    EndedBy::Host => Reason::CrashedByHost,
                    EndedBy::Program => Reason::CrashedByProgram,
                };
                let failure =
                    Failure::new(FailureKind::WorkerCrash(by), detail).with("ended_by", by.name());
                (reason, failure)
            }
            Self::Limited(limit, detail) => (Reason::LimitReached, limited(limit, detail)),
            Self::ActivationFailed(failure) => EnvironmentFault::ActivationFailed(failure).judged(),
            Self::Unavailable(message) => {
                (Reason::GuestMissing, Failure::new(FailureKind::GuestUnavailable, message))
            }
            Self::AllowanceSpent(spent) => (Reason::AllowanceSpent, spent.failure()),
            Self::Uncontained(message) => {
                (Reason::GuestMissing, Failure::new(FailureKind::SandboxUnavailable, message))
            }
            Self::NoWorkspace(message) => {
                (Reason::GuestMissing, Failure::new(FailureKind::WorkspaceUnusable, message))
            }
            Self::Cancelled => {
                (Reason::Cancelled, Failure::new(FailureKind::Cancelled, "the call was cancelled"))
            }
        }
    }
}

/// The failure of a program whose time was up while it waited for a service.
pub(crate) fn silent_service(
    host: Option<&str>,
    limit: Duration,
    silent: Option<Duration>,
) -> Failure {
    let what = host.unwrap_or("a service the program needs");
    let did = match silent {
        Some(silent) => format!("has sent nothing for {} s", silent.as_secs()),
        None => "does not accept a connection".to_owned(),
    };
    let message = format!(
        "{what} {did}, and the program's limit of {} s is reached; run it again when it answers, or raise \
         execution_timeout_seconds",
        limit.as_secs_f64()
    );
    Failure::new(FailureKind::ServiceUnavailable, message).with("host", host)
}

/// The failure for a limit a program reached.
pub(crate) fn limited(limit: Limit, detail: String) -> Failure {
    Failure::new(FailureKind::ResourceLimit(limit), detail).with("limit", limit.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_delays_double_up_to_a_limit() {
        for (crashes, delay) in [
            (2, None),
            (3, Some(FIRST_RESTART_DELAY)),
            (4, Some(FIRST_RESTART_DELAY * 2)),
            (43, Some(LONGEST_RESTART_DELAY)),
        ] {
            assert_eq!(restart_delay(crashes, 3), delay, "{crashes}");
        }
    }
}
