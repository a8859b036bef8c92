//! Running a new program on its examples before its answer is accepted.

use serde_json::{Value, json};

use crate::attempt::{Reason, Rejection};
use crate::blame::Blame;
use crate::example::{Example, ExpectedResult};
use crate::excerpt::shortened;
use crate::execution::{Environment, Order, Report, ReportEnding, WorkerFault};
use crate::outcome::{Failure, FailureKind};
use crate::request::CallRequest;
use crate::settlement::Accepted;

use super::{Call, PendingAttempt, Step};

/// Examples a new program is run on.
const MAX_REHEARSED: usize = 16;
/// Characters of a value that a missed example shows.
const MAX_SHOWN_CHARS: usize = 300;

/// Run the program on its examples, each in a worker of its own and without any grant.
#[derive(Debug)]
pub struct Rehearse {
    pub(super) call: Call,
    pub(super) pending: PendingAttempt,
    pub(super) accepted: Accepted,
    pub(super) result: Result<Value, Failure>,
    pub(super) environment: Environment,
}

impl Rehearse {
    /// The calls of the examples.
    pub fn requests(&self) -> Vec<CallRequest> {
        let examples = self.call.examples.iter().take(MAX_REHEARSED);
        examples.map(|example| example.inputs.again(&self.call.request)).collect()
    }

    /// What to run for one of them.
    pub fn order<'a>(&'a self, request: &'a CallRequest) -> Order<'a> {
        Order { request, program: &self.accepted.program, proven: false }
    }

    /// Where to run it.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// What each call gave, in order: the answer is accepted, or the first example that is missed rejects it.
    pub fn rehearsed(self, runs: &[Result<Report, WorkerFault>]) -> Step {
        let Self { mut call, pending, accepted, result, environment: _ } = self;
        let missed = call.examples.iter().zip(runs).find_map(|(example, run)| miss(example, run));
        call.examples_checked = runs.len();
        match missed {
            None => call.accept(pending, accepted, result),
            Some(rejection) => {
                let program = Some(accepted.program.program().clone());
                call.reject(pending, &Rejection { program, ..rejection })
            }
        }
    }
}

/// Why an answer does not meet the example that its call is; `None`: it does, or the call is not one.
pub(super) fn missed_answer(
    examples: &[Example],
    request: &CallRequest,
    result: &Result<Value, Failure>,
) -> Option<Rejection> {
    let example = examples.iter().find(|example| example.inputs.are_of(request))?;
    let given = result.as_ref().map_err(|failure| failure.kind.code());
    let actual = match result {
        Ok(value) => value.to_string(),
        Err(failure) => failure.to_string(),
    };
    (!example.is_met(given)).then(|| example_missed(example, &actual))
}

/// Why a run does not meet its example; `None`: it does, or nothing can be said because the host could not run it.
fn miss(example: &Example, run: &Result<Report, WorkerFault>) -> Option<Rejection> {
    let (met, actual) = match run {
        Ok(report) => observed(example, &report.ending),
        Err(fault) => {
            let (reason, failure) = fault.clone().judged();
            (reason.row().blame != Blame::Program, failure.to_string())
        }
    };
    (!met).then(|| example_missed(example, &actual))
}

fn example_missed(example: &Example, actual: &str) -> Rejection {
    let expected = match &example.expected {
        ExpectedResult::Value(value) => value.to_string(),
        ExpectedResult::Error(code) => format!("an error of type {code}"),
        ExpectedResult::NotValue(value) => format!("anything but {value}"),
    };
    let inputs = shortened(&json!(example.inputs).to_string(), MAX_SHOWN_CHARS);
    let (expected, actual) =
        (shortened(&expected, MAX_SHOWN_CHARS), shortened(actual, MAX_SHOWN_CHARS));
    let message = format!(
        "an example is not met: for {inputs} the program must give {expected} and gave {actual}"
    );
    let failure = Failure::new(FailureKind::ContractViolation, message)
        .with("mismatch", "example_missed")
        .with("arguments", inputs)
        .with("expected", expected)
        .with("actual", actual);
    Rejection::new(Reason::ExampleMissed, failure)
}

/// Whether a program's end meets an example, and what it gave.
fn observed(example: &Example, ending: &ReportEnding) -> (bool, String) {
    match ending {
        ReportEnding::Value(value) => (example.is_met(Ok(value)), value.to_string()),
        ReportEnding::Reported { reported, message, .. } => {
            (example.is_met(Err(&reported.code)), format!("{}: {message}", reported.code))
        }
        ReportEnding::Raised { class, message, .. } => {
            (example.is_met(Err(FailureKind::Execution.code())), format!("{class}: {message}"))
        }
        ReportEnding::Malformed(_)
        | ReportEnding::Unserializable { .. }
        | ReportEnding::Exited { .. }
        | ReportEnding::Limited(..) => (false, "no answer".to_owned()),
    }
}
