//! The guest seam: what a worker is told to run, what it reports, and how running can go wrong.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::attempt::Reason;
use crate::context::{Context, ContextChanges};
use crate::dialect::{Position, SyntaxFault};
use crate::guardrail::Violation;
use crate::outcome::{EndedBy, Failure, FailureKind, Limit, Reported, Waited};
use crate::program::{DependencyManifest, VettedProgram};
use crate::request::{Arguments, CallRequest};
use crate::tool::Tool;

/// Where a program finds its packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Identity of a prepared set of packages; `None`: the bare language.
    pub id: Option<String>,
    /// Its packages.
    pub manifest: DependencyManifest,
}

/// Why no environment could be given.
#[derive(Debug, Clone, PartialEq)]
pub enum EnvironmentFault {
    /// Its packages cannot be had.
    Unresolvable(Box<Failure>),
    /// The guest language itself is missing.
    GuestMissing(String),
    /// The caller gave up.
    Cancelled,
}

impl EnvironmentFault {
    pub(crate) fn judged(self) -> (Reason, Failure) {
        match self {
            Self::Unresolvable(failure) => (Reason::Unresolvable, *failure),
            Self::GuestMissing(message) => {
                (Reason::GuestMissing, Failure::new(FailureKind::GuestUnavailable, message))
            }
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
    /// What it did to its copy of the memory.
    pub changes: ContextChanges,
    /// Tools it forged by `delegate`; durable only if the attempt is accepted.
    pub forged: Vec<Tool>,
    /// Guardrails it ran into while asking the host.
    pub violations: Vec<Violation>,
    /// What it printed.
    pub output: Output,
    /// Who ran it.
    pub worker: WorkerTrace,
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
        /// Its words.
        message: String,
        /// Its data.
        metadata: Map<String, Value>,
    },
    /// It raised.
    Raised {
        /// The guest's exception class.
        class: String,
        /// Its words.
        message: String,
        /// Where in the program.
        location: Option<Position>,
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
    /// It called exit.
    Exited {
        /// With this status.
        status: i64,
    },
    /// It ran into a limit.
    Limited(Limit, String),
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

/// Which worker ran an attempt, for the log.
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
}

/// Why a worker reported nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerFault {
    /// The program ran past its deadline.
    TimedOut(Duration),
    /// The worker ended.
    Crashed {
        /// Who ended it.
        by: EndedBy,
        /// How.
        detail: String,
    },
    /// It ran into a limit the host keeps.
    Limited(Limit, String),
    /// No worker could be had.
    Unavailable(String),
    /// The caller gave up.
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
            Self::Unavailable(message) => {
                (Reason::GuestMissing, Failure::new(FailureKind::GuestUnavailable, message))
            }
            Self::Cancelled => {
                (Reason::Cancelled, Failure::new(FailureKind::Cancelled, "the call was cancelled"))
            }
        }
    }
}

/// The failure for a limit a program ran into.
pub(crate) fn limited(limit: Limit, detail: String) -> Failure {
    Failure::new(FailureKind::ResourceLimit(limit), detail).with("limit", limit.name())
}
