//! Programs that end without a result and without any effect. Their value is null that they neither assigned nor
//! returned, or they only print a value.
//!
//! Such a program is rejected, and the feedback says what it did instead. When the retries are used up the caller gets
//! null, marked as weak, and no program is kept.

use serde_json::Value;

use crate::attempt::{Reason, Rejection};
use crate::dialect::library::{FILES, Facts, NETWORK, PROCESS, SEND};
use crate::dialect::{CallExpression, Inspection};
use crate::excerpt::shortened;
use crate::execution::{Report, ReportEnding, ResultFrom};
use crate::outcome::{Failure, FailureKind, Reported};
use crate::program::VettedProgram;
use crate::request::CallRequest;

/// Characters of a program's output that feedback repeats.
const MAX_PRINTED_CHARS: usize = 200;
/// Uses of a library that reach the outside.
const OUTSIDE: Facts = NETWORK.union(SEND).union(FILES).union(PROCESS);

/// The rejection of a program that ended without a result; `None`: it gave one, or needs none.
pub(crate) fn rejection(
    request: &CallRequest,
    program: &VettedProgram,
    report: &Report,
) -> Option<Box<Rejection>> {
    let ReportEnding::Value(value) = &report.ending else { return None };
    if !is_missing(value, report.result_from, program.inspection(), request)
        || has_effect(program, report)
    {
        return None;
    }
    let message =
        format!("the program gave no result: {}; return the value instead", what_it_did(report));
    let (reason, failure) = if let Some(breach) = null_breach(request) {
        // The contract does not allow null, so the caller cannot get it when the retries are used up.
        let message = format!("{}; {message}", breach.message);
        (Reason::ContractBroken, Failure { message, ..breach })
    } else {
        let reported = Reported { code: "no_result".to_owned(), retriable: true };
        (Reason::NoResult, Failure::new(FailureKind::Reported(reported), message))
    };
    let method = &request.method;
    let correction = format!(
        "define a function named `{method}` that returns the value, or assign it to `result`"
    );
    Some(Box::new(Rejection::new(reason, failure.with("required_correction", correction))))
}

/// Whether the value is not a result. Null that a program assigns or returns is a result; a value that it only prints is
/// not.
fn is_missing(
    value: &Value,
    result_from: ResultFrom,
    inspection: &Inspection,
    request: &CallRequest,
) -> bool {
    match result_from {
        ResultFrom::Assigned | ResultFrom::Returned => false,
        ResultFrom::Function => {
            inspection.function_gives_none(request.language, request.method.as_str())
        }
        ResultFrom::Expression => value.is_null() || inspection.ends_in_output,
        ResultFrom::Nothing => value.is_null(),
    }
}

/// What the program did instead of giving a result, for its feedback.
fn what_it_did(report: &Report) -> String {
    match (report.output.stdout.trim(), report.result_from) {
        ("", ResultFrom::Function) => "its function ended without `return`".to_owned(),
        ("", ResultFrom::Expression) => "its last expression gave null".to_owned(),
        ("", _) => "it ended without a value".to_owned(),
        (printed, _) => format!("it printed `{}`", shortened(printed, MAX_PRINTED_CHARS)),
    }
}

/// Whether a program had an effect, such as a change of memory or a request to a service: then it needs no result. Effects
/// that the runtime does not observe are read from the program's text.
fn has_effect(program: &VettedProgram, report: &Report) -> bool {
    let inspection = program.inspection();
    !report.changes.set.is_empty()
        || !report.changes.unset.is_empty()
        || !report.observed.sources.is_empty()
        || report.observed.sent.is_some()
        || !report.forged.is_empty()
        || !report.violations.is_empty()
        || inspection.calls.iter().any(CallExpression::makes_agent)
        || inspection.uses_any(OUTSIDE)
}

/// How null breaks the contract of the call; `None`: there is no contract, or it allows null.
fn null_breach(request: &CallRequest) -> Option<Failure> {
    let contract = request.contract.as_ref()?;
    let judged = contract.judge(&request.arguments.args, &request.arguments.kwargs, &Value::Null);
    judged.err().map(|breach| Failure {
        metadata: breach.metadata(),
        ..Failure::new(FailureKind::ContractViolation, breach.message())
    })
}
