//! One try, why it was rejected, and what happens next.

mod reason;
mod feedback;

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::agreement::Agreement;
use crate::artifact::RunVerdict;
use crate::blame::Blame;
use crate::dialect::Position;
use crate::event::EventKind;
use crate::execution::{Output, Packages, ResultFrom, WorkerTrace};
use crate::guardrail::{GuardrailPolicy, Severity, Violation};
use crate::inference::InferenceRecord;
use crate::outcome::{Failure, FailureKind};
use crate::pattern::Capabilities;
use crate::program::{Checksum, GeneratedProgram};
use crate::provenance::Observation;
use crate::redact::{redacted_field, redacted_text};
use feedback::{excerpt, message};

pub use reason::{Budgets, Reason, ReasonClass, RetryLane, RetryRow, Stage, StoredNext};

/// Where an attempt's program came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Origin {
    /// Storage.
    Artifact(Checksum),
    /// A model, shown a stored program that failed.
    Repair {
        /// The program it repairs.
        of: Checksum,
        /// Repairs since the method was last written from nothing, this one included.
        number: u32,
    },
    /// A model.
    #[default]
    Fresh,
}

impl Origin {
    /// The wire name (`program_source`).
    pub fn program_source(&self) -> &'static str {
        match self {
            Self::Artifact(_) => "persisted",
            Self::Repair { .. } => "repaired",
            Self::Fresh => "generated",
        }
    }
}

/// Metadata of a failure that goes into the feedback of its retry.
const FEEDBACK_METADATA: [&str; 14] = [
    "arguments",
    "mismatch",
    "path",
    "expected",
    "actual",
    "field",
    "dependency_name",
    "declared",
    "held",
    "policy",
    "allowed",
    "stage",
    "source",
    "required_correction",
];

/// Violations in a feedback block beside the first.
const MAX_FURTHER: usize = 2;

/// Why an attempt was rejected.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// Its row in the retry table.
    pub reason: Reason,
    /// The failure of the call, if it ends here.
    pub failure: Failure,
    /// The program, if there was one.
    pub program: Option<GeneratedProgram>,
    /// Where in the program.
    pub location: Option<Position>,
    /// The guardrails it broke.
    pub violations: Vec<Violation>,
    /// The model returned the rejected program unchanged: it was not run again.
    pub repeated: bool,
    /// Where its exception passed, innermost frame first.
    pub backtrace: Vec<String>,
}

impl Rejection {
    /// A rejection that concerns no program.
    pub fn new(reason: Reason, failure: Failure) -> Self {
        Self {
            reason,
            failure,
            program: None,
            location: None,
            violations: Vec::new(),
            repeated: false,
            backtrace: Vec::new(),
        }
    }

    /// What it is attributed to.
    pub fn blame(&self) -> Blame {
        self.reason.row().blame
    }

    /// The guest's exception class, or the failure's code.
    pub fn class(&self) -> &str {
        match self.failure.metadata.get("error_class") {
            Some(Value::String(class)) => class,
            _ => self.failure.kind.code(),
        }
    }

    /// The same program came back: rejected as before, without being run.
    #[must_use]
    pub fn again(mut self) -> Self {
        if !self.repeated {
            let said = self.failure.message.trim_end_matches('.');
            self.failure.message =
                format!("{said}; the same program came back unchanged and was not run again");
        }
        self.repeated = true;
        self
    }

    /// Whether every violation is advisory: then the program may still run.
    pub fn is_advice(&self, policy: &GuardrailPolicy) -> bool {
        let advisory = |violation: &Violation| violation.severity(policy) == Severity::Advisory;
        !self.violations.is_empty() && self.violations.iter().all(advisory)
    }

    /// The one structured feedback block of a retry: what was wrong, where, and the budget left. What a program or a
    /// service said is shown without secrets.
    pub fn feedback(&self, remaining: u32, policy: &GuardrailPolicy) -> Value {
        let mut block = match self.violations.first() {
            Some(violation) => violation.to_json(policy),
            None => Map::from_iter([
                ("error_type".to_owned(), json!(self.failure.kind.code())),
                ("error_class".to_owned(), json!(self.class())),
                ("error_message".to_owned(), json!(redacted_text(message(&self.failure.message)))),
                ("location".to_owned(), json!(self.location)),
            ]),
        };
        if self.violations.len() > 1 {
            let further = self.violations.iter().skip(1).take(MAX_FURTHER);
            let further = further.map(|violation| Value::Object(violation.to_json(policy)));
            block.insert("further_violations".to_owned(), further.collect());
        }
        for key in FEEDBACK_METADATA {
            if let Some(value) = self.failure.metadata.get(key) {
                block.insert(key.to_owned(), redacted_field(key, value).into_owned());
            }
        }
        if self.repeated {
            let note = "this is the rejected program again, unchanged; it was not run: write a different one";
            block.insert("repeated".to_owned(), json!(note));
        }
        if let Some(lane) = self.reason.lane() {
            block.insert(format!("remaining_{}_budget", lane.name()), json!(remaining));
        }
        if let Some(program) = &self.program {
            let place = self.violations.first().map_or(self.location, |first| first.location);
            let (first_line, code) = excerpt(&program.source, place.map(|at| at.line));
            block.insert("code".to_owned(), json!(code));
            if let Some(line) = first_line {
                block.insert("code_begins_at_line".to_owned(), json!(line));
            }
        }
        Value::Object(block)
    }
}

/// One try, as it is logged.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Where its program came from.
    pub origin: Origin,
    /// How it ended; `None`: accepted.
    pub rejection: Option<Rejection>,
    /// The program's text, if there was one.
    pub code: Option<String>,
    /// The packages it asked for and got.
    pub packages: Packages,
    /// What it does, if it could be read and was allowed.
    pub capabilities: Capabilities,
    /// What it printed.
    pub output: Output,
    /// The worker that ran it.
    pub worker: Option<WorkerTrace>,
    /// How it gave its result, if it ran to its end.
    pub result_from: Option<ResultFrom>,
    /// What it reached, as far as the runtime saw it.
    pub observed: Observation,
    /// What its program asked a model.
    pub inferences: Vec<InferenceRecord>,
    /// What it says of a stored program whose accepted error is the world's fault; `None`: what its end says.
    pub excused: Option<RunVerdict>,
    /// The calls by which it may have sent something that changes the outside; `None`: it sent nothing. Otherwise no
    /// attempt follows it.
    pub sent: Option<Vec<String>>,
    /// How long it took, model included.
    pub took: Duration,
    /// How much of that the model took, with the pause before it; zero for a stored program.
    pub generation: Duration,
    /// Its program was advised against or degraded, and ran because no better one could be obtained.
    pub last_resort: bool,
    /// How many programs agreed with its program, if several were written for the call.
    pub agreement: Option<Agreement>,
    /// It was rejected, and another program that was written with it was tried next: it uses no retry.
    pub superseded: bool,
}

impl Attempt {
    /// The lane whose budget this attempt used. A stored program's failure uses none, nor does that of a last
    /// resort, because no retry follows it, nor one that another program of the same answer follows.
    pub fn lane(&self) -> Option<RetryLane> {
        match self.origin {
            _ if self.last_resort || self.superseded => None,
            Origin::Artifact(_) => None,
            Origin::Repair { .. } | Origin::Fresh => {
                self.rejection.as_ref().and_then(|r| r.reason.lane())
            }
        }
    }

    /// Whether its stored program was rejected for something else than a fault of its own: arguments that it was not
    /// written for, or a service that may have changed what it answers.
    pub(crate) fn asks_for_more(&self) -> bool {
        let reason = self.rejection.as_ref().map(|rejection| rejection.reason);
        matches!(self.origin, Origin::Artifact(_))
            && reason.is_some_and(|reason| {
                reason.row().stored == StoredNext::Widen || reason == Reason::AnswerChanged
            })
    }

    /// When it was rejected. Cancellation and a spent allowance can end an attempt at any stage: the stage is how far
    /// the attempt came. A guardrail can reject a program before it runs, while it runs, or for its answer.
    pub fn failed_at(&self) -> Option<Stage> {
        let rejection = self.rejection.as_ref()?;
        let reason = rejection.reason;
        if matches!(reason, Reason::GuardrailBroken | Reason::TerminalGuardrail)
            && self.worker.is_some()
        {
            let is_of_answer = rejection.violations.first().is_some_and(Violation::is_of_answer);
            return Some(if is_of_answer { Stage::Judgement } else { Stage::Execution });
        }
        let is_anywhere = matches!(reason, Reason::Cancelled | Reason::AllowanceSpent);
        // A program that asks a model can fail as asking for a program can.
        let is_of_question = reason.stage() == Stage::Generation && self.worker.is_some();
        if !is_anywhere && !is_of_question {
            return Some(reason.stage());
        }
        Some(match (&self.code, &self.worker) {
            (_, Some(_)) => Stage::Execution,
            (Some(_), None) => Stage::Preparation,
            (None, None) => Stage::Generation,
        })
    }

    /// The event of what it printed, if it did; `id` counts from 1.
    pub fn printed(&self, id: usize) -> Option<EventKind> {
        let Output { stdout, stderr, .. } = &self.output;
        (!stdout.is_empty() || !stderr.is_empty()).then(|| EventKind::Printed {
            attempt: id,
            stdout: stdout.clone(),
            stderr: stderr.clone(),
        })
    }

    /// The event of its rejection; `id` counts from 1.
    pub fn rolled_back(&self, id: usize) -> Option<EventKind> {
        let rejection = self.rejection.as_ref()?;
        let violation = rejection.violations.first();
        if rejection.reason == Reason::Looked {
            return Some(EventKind::Looked { attempt: id, why: rejection.failure.message.clone() });
        }
        Some(EventKind::RolledBack {
            attempt: id,
            stage: self.failed_at()?.name(),
            code: violation
                .map_or(rejection.failure.kind.code(), |violation| violation.subtype())
                .to_owned(),
            message: rejection.failure.message.clone(),
            program: self.code.clone(),
        })
    }

    /// The stages it went through, in order (wire names).
    pub fn stages(&self) -> Vec<&'static str> {
        let mut stages = Vec::new();
        let is_stored = matches!(self.origin, Origin::Artifact(_));
        if self.code.is_some() && !is_stored {
            stages.push("generated");
        }
        // A repeated program is not validated again.
        let is_repeated = self.rejection.as_ref().is_some_and(|rejection| rejection.repeated);
        let is_barred =
            matches!(self.failed_at(), Some(Stage::Generation | Stage::Validation)) || is_repeated;
        // A guardrail may also reject a program while it runs or after: then it was validated before.
        if self.worker.is_some() || !is_barred {
            stages.push("validated");
        }
        if self.worker.is_some() {
            stages.push("executed");
        }
        if self.rejection.is_some() {
            stages.push("rolled_back");
        }
        stages
    }
}

/// What a call reached: the sources of its last attempt, and whether any attempt sent something.
pub(crate) fn observed(attempts: &[Attempt]) -> Observation {
    let last = attempts.last().map(|attempt| attempt.observed.clone()).unwrap_or_default();
    let sent = attempts.iter().find_map(|attempt| attempt.sent.clone());
    Observation { sent, ..last }
}

/// Rejections so far in one lane.
pub fn spent(attempts: &[Attempt], lane: RetryLane) -> u32 {
    let count = attempts.iter().filter(|attempt| attempt.lane() == Some(lane)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// What happens after a rejection.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Ask for another program.
    Again {
        /// Retries left in that lane after this one.
        remaining: u32,
    },
    /// The call ends with this failure.
    End(Box<Failure>),
}

/// **The retry policy.** `attempts` includes the rejected one, last.
pub fn next(attempts: &[Attempt], rejection: &Rejection, budgets: &Budgets) -> Next {
    let Some(lane) = rejection.reason.lane() else {
        return Next::End(Box::new(rejection.failure.clone()));
    };
    let rejected = spent(attempts, lane);
    match budgets.of(lane).checked_sub(rejected) {
        Some(remaining) => Next::Again { remaining },
        None => Next::End(Box::new(exhausted(rejection, lane, budgets.of(lane)))),
    }
}

/// The failure a call ends with when a lane is spent; `retries` is how many were made in it.
fn exhausted(rejection: &Rejection, lane: RetryLane, retries: u32) -> Failure {
    let last = rejection.failure.clone();
    match (lane, rejection.reason, rejection.violations.first()) {
        (RetryLane::Guardrail, Reason::GuardrailBroken, Some(violation)) => Failure::new(
            FailureKind::GuardrailRetryExhausted,
            format!("guardrail retries exhausted; last: {}", violation.message),
        )
        .with("guardrail_recovery_attempts", retries)
        .with("guardrail_class", "recoverable_guardrail")
        .with("guardrail_subtype", violation.subtype())
        .with("last_violation_type", violation.violation_type().name())
        .with("last_violation_subtype", violation.subtype())
        .with("last_violation_message", violation.message.clone()),
        (RetryLane::Guardrail, _, _) => last.with("guardrail_recovery_attempts", retries),
        // Without a retry nothing was exhausted: the program's own error is the answer.
        (RetryLane::Outcome, Reason::ReportedRetriable, _) if retries == 0 => last,
        (RetryLane::Outcome, Reason::ReportedRetriable, _) => Failure {
            metadata: last.metadata,
            ..Failure::new(
                FailureKind::OutcomeRepairRetryExhausted,
                format!("outcome repairs exhausted; last: {}: {}", last.kind.code(), last.message),
            )
        }
        .with("outcome_repair_attempts", retries)
        .with("last_error_type", last.kind.code())
        .with("last_error_message", last.message.clone()),
        (RetryLane::Outcome, _, _) => last.with("outcome_repair_attempts", retries),
        (RetryLane::Execution, _, _) => last.with("execution_repair_attempts", retries),
        (RetryLane::Generation, _, _) => last.with("generation_attempts", retries + 1),
        (RetryLane::Look, _, _) => {
            let message = format!(
                "{} programs looked at data and none answered; describe the data in the purpose, or raise look_budget; \
                 last: {}",
                retries + 1,
                last.message
            );
            Failure { message, ..last }.with("looks", retries + 1)
        }
        (RetryLane::Transport, _, _) => last.with("transport_attempts", retries + 1),
    }
}
