//! Running a new program before its answer is accepted: on its examples, and beside others that were written with it.

use serde_json::{Value, json};

use crate::attempt::{Reason, Rejection};
use crate::blame::Blame;
use crate::example::{Example, ExpectedResult, same_value};
use crate::excerpt::shortened;
use crate::execution::{Environment, Order, Report, ReportEnding, WorkerFault};
use crate::outcome::{Failure, FailureKind};
use crate::request::CallRequest;
use crate::settlement::Accepted;

use super::agree::Comparison;
use super::{Call, PendingAttempt, Step};

/// Examples a new program is run on.
pub(super) const MAX_REHEARSED: usize = 16;
/// Characters of a value that a missed example shows.
const MAX_SHOWN_CHARS: usize = 300;

/// One run of a rehearsal.
#[derive(Debug)]
pub struct RehearsalRun {
    /// Which program: 0 is the one whose answer may be accepted.
    pub program: usize,
    /// What it is given.
    pub request: CallRequest,
}

/// What a rehearsal is for.
#[derive(Debug)]
pub(super) enum Rehearsal {
    /// The program must meet the examples.
    Examples,
    /// The program must agree with most others that were written with it.
    Agreement(Comparison),
}

/// Run programs, each run in a worker of its own and without any grant.
#[derive(Debug)]
pub struct Rehearse {
    pub(super) call: Call,
    pub(super) pending: PendingAttempt,
    pub(super) accepted: Accepted,
    pub(super) result: Result<Value, Failure>,
    pub(super) environment: Environment,
    pub(super) rehearsal: Rehearsal,
}

impl Rehearse {
    /// The runs, in order.
    pub fn runs(&self) -> Vec<RehearsalRun> {
        let call = &self.call.request;
        match &self.rehearsal {
            Rehearsal::Examples => {
                let examples = self.call.examples.iter().take(MAX_REHEARSED);
                let run = |example: &Example| RehearsalRun {
                    program: 0,
                    request: example.inputs.again(call),
                };
                examples.map(run).collect()
            }
            Rehearsal::Agreement(comparison) => comparison.runs(call),
        }
    }

    /// What to run for one of them.
    pub fn order<'a>(&'a self, run: &'a RehearsalRun) -> Order<'a> {
        let others = match &self.rehearsal {
            Rehearsal::Examples => &[],
            Rehearsal::Agreement(comparison) => comparison.others.as_slice(),
        };
        let other = run.program.checked_sub(1).and_then(|index| others.get(index));
        let program = other.unwrap_or(&self.accepted.program);
        Order { request: &run.request, program, proven: false }
    }

    /// Where to run it.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// What each run gave, in order: the answer is accepted, or the first example that is missed rejects it. Of
    /// several programs the one that most agree with goes on to the examples.
    pub fn rehearsed(self, runs: Vec<Result<Report, WorkerFault>>) -> Step {
        let Self { mut call, mut pending, accepted, result, environment: _, rehearsal } = self;
        if let Rehearsal::Agreement(comparison) = rehearsal {
            let answer = (accepted, result);
            let (accepted, result) = call.agree(comparison, runs, &mut pending, answer);
            return call.meet_examples(pending, accepted, result);
        }
        let missed = call.examples.iter().zip(&runs).find_map(|(example, run)| miss(example, run));
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
    (!example.is_met(given)).then(|| example_missed(example, &shown(result)))
}

/// Why an answer is not the value that the caller expects; `None`: it is, or none is expected.
pub(super) fn unexpected_answer(
    expected: Option<&Value>,
    request: &CallRequest,
    result: &Result<Value, Failure>,
) -> Option<Rejection> {
    let expected = expected?;
    if result.as_ref().is_ok_and(|value| same_value(expected, value)) {
        return None;
    }
    let expected = shortened(&expected.to_string(), MAX_SHOWN_CHARS);
    let actual = shortened(&shown(result), MAX_SHOWN_CHARS);
    let message = format!(
        "the value is not what a person expects: for ({}) the program must give {expected} and gave {actual}",
        request.arguments
    );
    let failure = Failure::new(FailureKind::ContractViolation, message)
        .with("mismatch", "unexpected_value")
        .with("expected", expected)
        .with("actual", actual);
    Some(Rejection::new(Reason::ExpectationMissed, failure))
}

/// A result, for people and models.
fn shown(result: &Result<Value, Failure>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(failure) => failure.to_string(),
    }
}

/// Why a run does not meet its example; `None`: it does, or nothing can be said because the host could not run it.
pub(super) fn miss(example: &Example, run: &Result<Report, WorkerFault>) -> Option<Rejection> {
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
        ReportEnding::Looked(_)
        | ReportEnding::Malformed(_)
        | ReportEnding::Unserializable { .. }
        | ReportEnding::Exited { .. }
        | ReportEnding::Limited(..) => (false, "no answer".to_owned()),
    }
}
