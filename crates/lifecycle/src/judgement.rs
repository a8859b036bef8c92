//! Judgement: accepts what a program reported, or names the reason for which it is rejected.

mod outside;

use outside::{outside_failure, read_grant, rename_advice};
use serde_json::{Value, json};

use crate::artifact::RunVerdict;
use crate::attempt::{Reason, Rejection};
use crate::blame::{
    Attribution, Blame, GrantedAccess, Incident, Outside, attribute, awaited_host, failed_contact,
};
use crate::call::Policy;
use crate::dependency::{self, DependencyManifest, GrowthFault};
use crate::dialect::{
    self, ArgumentMatch, AssignmentStatement, CallExpression, Definition, Position, Signature,
    SyntaxFault, Target,
};
use crate::excerpt::shortened;
use crate::execution::{ExceptionFacts, ReportEnding, WorkerFault, limited, silent_service};
use crate::guardrail::{GuardrailPolicy, Severity, ValueInput, Violation, examine_value};
use crate::inference::FailedInference;
use crate::outcome::{Cause, EndedBy, Failure, FailureKind, MAX_CODE_CHARS};
use crate::program::{GeneratedProgram, PayloadFault, VettedProgram};
use crate::provenance::Observation;
use crate::request::CallRequest;

/// The exception that a guest raises in a program when a guardrail refuses one of its asks.
const REFUSAL_CLASS: &str = "ToolRegistryViolation";

/// What an answer is judged by.
pub(crate) struct JudgementInputs<'a> {
    pub(crate) request: &'a CallRequest,
    pub(crate) guardrails: &'a GuardrailPolicy,
    pub(crate) program: &'a VettedProgram,
    pub(crate) access: &'a GrantedAccess,
    /// How the program's last call of another agent failed, if it did.
    pub(crate) failed_call: Option<&'a Failure>,
    /// Its last question to a model, if it was not answered.
    pub(crate) failed_inference: Option<&'a FailedInference>,
    /// Whether the program was accepted with arguments of this shape before; `None`: it is new.
    pub(crate) proven: Option<bool>,
    /// Whether the stored program could not use what arrived from outside in its last calls either.
    pub(crate) answers_changed: bool,
    pub(crate) observed: &'a Observation,
    /// A file that the call names and that the program cannot see.
    pub(crate) unseen_file: Option<&'a str>,
}

/// Accepts a program's answer, or says why not. `Ok(Err(…))` is an error that the program reported and that is accepted
/// as the result of the call.
pub(crate) fn judge(
    inputs: &JudgementInputs<'_>,
    ending: ReportEnding,
    violations: Vec<Violation>,
) -> Result<Result<Value, Failure>, Box<Rejection>> {
    let reject = |reason, failure| Err(Box::new(Rejection::new(reason, failure)));
    match ending {
        ReportEnding::Value(value) => judge_value(inputs, value).map(Ok),
        ending if !violations.is_empty() => {
            let at = refused_at(&ending);
            let with_location = |violation: Violation| Violation {
                location: violation.location.or(at),
                ..violation
            };
            let violations = violations.into_iter().map(with_location).collect();
            Err(Box::new(guardrails_broken(violations, inputs.guardrails)))
        }
        ReportEnding::Reported { reported, message, metadata } => {
            let kind = FailureKind::Reported(reported.bounded());
            judge_reported(inputs, Failure { kind, message, metadata })
        }
        ReportEnding::Raised { class, message, location, facts } => {
            Err(Box::new(raised(inputs, &class, &message, location, &facts)))
        }
        ReportEnding::Looked(look) => Err(Box::new(look.rejection())),
        ReportEnding::Malformed(fault) => Err(Box::new(malformed(&fault))),
        ReportEnding::Unserializable { path, message } => reject(
            Reason::Unserializable,
            Failure::new(FailureKind::NonSerializableResult, format!("{path}: {message}"))
                .with("path", path),
        ),
        ReportEnding::Exited { status, message, location, facts } => {
            Err(Box::new(exited(inputs, status, &message, location, &facts)))
        }
        ReportEnding::Limited(limit, detail) => {
            reject(Reason::LimitReached, limited(limit, detail))
        }
    }
}

/// An error of the program's own is its answer, unless it says that another try may help and nothing outside is known
/// to be the reason.
fn judge_reported(
    inputs: &JudgementInputs<'_>,
    failure: Failure,
) -> Result<Result<Value, Failure>, Box<Rejection>> {
    let may_be_repaired = failure.kind.retriable() && failure.kind.cause() != Cause::Extrinsic;
    if let Some(path) = inputs.unseen_file {
        // No other program could see the file either.
        return Ok(Err(failure.with_default("grant", Some(read_grant(path)))));
    }
    match failed_service(inputs) {
        Some((FailedService::Excuses | FailedService::InDoubt, grant))
            if may_be_repaired || grant.is_some() =>
        {
            Ok(Err(failure.with("blame", Blame::World.name()).with_default("grant", grant)))
        }
        Some((FailedService::Changed, _)) if may_be_repaired => {
            Err(Box::new(Rejection::new(Reason::AnswerChanged, failure)))
        }
        Some(_) | None if may_be_repaired => {
            Err(Box::new(Rejection::new(Reason::ReportedRetriable, failure)))
        }
        Some(_) | None => Ok(Err(failure)),
    }
}

/// How a failed service bears on an error that the program itself reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailedService {
    /// It excuses the program.
    Excuses,
    /// The same for now: something else arrived from outside.
    InDoubt,
    /// The same happened so often that the program must follow a change.
    Changed,
    /// Another new program may choose better.
    IsChosen,
}

/// The service that a program could not use, and the missing grant.
fn failed_service(inputs: &JudgementInputs<'_>) -> Option<(FailedService, Option<String>)> {
    let JudgementInputs { request, program, access, observed, .. } = inputs;
    let is_new = inputs.proven.is_none();
    let found = failed_contact(request, program.inspection(), access, observed, is_new)?;
    let Attribution::World { outside, granted, chosen } = found else { return None };
    let in_doubt = matches!(outside, Outside::Answer { .. });
    let means = match (in_doubt, is_new && chosen) {
        (true, _) if inputs.answers_changed => FailedService::Changed,
        (_, true) => FailedService::IsChosen,
        (true, false) => FailedService::InDoubt,
        (false, false) => FailedService::Excuses,
    };
    let grant = outside_failure(&outside, granted, "").metadata.remove("grant");
    Some((means, grant.and_then(|grant| grant.as_str().map(str::to_owned))))
}

/// What an accepted error says of a stored program, if a failed service is the reason; `None`: it is an answer.
pub(crate) fn excused(inputs: &JudgementInputs<'_>, failure: &Failure) -> Option<RunVerdict> {
    let is_repairable = failure.kind.retriable() && failure.kind.cause() != Cause::Extrinsic;
    match failed_service(inputs).filter(|_| is_repairable)? {
        (FailedService::Excuses, _) => Some(RunVerdict::Excused),
        (FailedService::InDoubt, _) => Some(RunVerdict::Unread),
        (FailedService::Changed | FailedService::IsChosen, _) => None,
    }
}

/// A program that raised: the rejection depends on whose error it was.
fn raised(
    inputs: &JudgementInputs<'_>,
    class: &str,
    message: &str,
    location: Option<Position>,
    facts: &ExceptionFacts,
) -> Rejection {
    let class = shortened(class, MAX_CODE_CHARS);
    let text = format!("{class}: {message}");
    let advice = rename_advice(inputs.request.language, facts).unwrap_or_default();
    let own = (Reason::Raised, Failure::new(FailureKind::Execution, format!("{text}{advice}")));
    let rejection = attributed(inputs, location, facts, text, own);
    let blame = rejection.blame().name();
    let failure = rejection.failure.with("error_class", class).with("location", json!(location));
    Rejection { failure: failure.with("blame", blame), ..rejection }
}

/// A program that ended itself with a status of failure: it gives up, as one that raises on purpose does.
fn exited(
    inputs: &JudgementInputs<'_>,
    status: i64,
    message: &str,
    location: Option<Position>,
    facts: &ExceptionFacts,
) -> Rejection {
    let says_nothing = message.is_empty() || message == "exit" || message == status.to_string();
    let said = if says_nothing { String::new() } else { format!(": {message}") };
    let text = format!("the program called exit({status}){said}");
    let own = Failure::new(
        FailureKind::WorkerCrash(EndedBy::Program),
        format!("{text}; give a result instead of exiting"),
    );
    let own = own.with("ended_by", EndedBy::Program.name());
    let rejection = attributed(inputs, location, facts, text, (Reason::CrashedByProgram, own));
    let blame = rejection.blame().name();
    let failure = rejection.failure.with("exit", status).with("blame", blame);
    Rejection { failure, ..rejection }
}

/// The rejection of a program that ended in an exception. `own`: if it is the program's fault.
fn attributed(
    inputs: &JudgementInputs<'_>,
    location: Option<Position>,
    facts: &ExceptionFacts,
    text: String,
    own: (Reason, Failure),
) -> Rejection {
    let attribution = attribute(&Incident {
        facts,
        location,
        request: inputs.request,
        inspection: inputs.program.inspection(),
        access: inputs.access,
        observed: inputs.observed,
        failed_call: inputs.failed_call.map(|failure| failure.kind.code()),
        proven: inputs.proven,
    });
    let (reason, failure) = match attribution {
        Attribution::Program => own,
        Attribution::Caller => (Reason::CallerRaised, rejected_arguments(inputs, &text)),
        Attribution::World { outside: Outside::Agent, .. } => raised_by_call(inputs, facts, &text),
        Attribution::World { outside, granted, chosen } => {
            raised_by_outside(inputs, &outside, (granted, chosen), text)
        }
    };
    let backtrace = facts.backtrace.clone();
    Rejection { location, backtrace, ..Rejection::new(reason, failure) }
}

/// A program that did not handle the failure of another agent's call, or of a question to a model.
fn raised_by_call(
    inputs: &JudgementInputs<'_>,
    facts: &ExceptionFacts,
    text: &str,
) -> (Reason, Failure) {
    let code = failed_call(inputs, facts);
    let is_unanswered = |it: &&FailedInference| code == Some(it.failure.kind.code());
    if let Some(failed) = inputs.failed_inference.filter(is_unanswered) {
        return (failed.reason, failed.failure.clone());
    }
    let failure = agent_failure(inputs, facts, text);
    match code.and_then(unusable_tool) {
        // No other program could use the tool either.
        Some(kind) => (Reason::OutsideFailed, Failure { kind, ..failure }),
        None => (Reason::CallFailed, failure),
    }
}

/// A program that did not handle the failure of a service or a file. `granted`: its access is; `chosen`: the program chose
/// it, and another one may choose better.
fn raised_by_outside(
    inputs: &JudgementInputs<'_>,
    outside: &Outside,
    (granted, chosen): (bool, bool),
    text: String,
) -> (Reason, Failure) {
    let reason = match outside {
        Outside::Agent => Reason::CallFailed,
        Outside::Answer { .. } if inputs.answers_changed => {
            return (Reason::AnswerChanged, Failure::new(FailureKind::Execution, text));
        }
        Outside::Answer { .. } => Reason::AnswerUnread,
        // No other program may change the workspace either.
        Outside::File { in_workspace: true, .. } if !granted => Reason::OutsideFailed,
        Outside::File { shut_out_of: Some(_), .. } => Reason::OutsideFailed,
        Outside::Service { .. } | Outside::File { .. } if chosen => Reason::OutsideChosen,
        Outside::Service { .. } | Outside::File { .. } => Reason::OutsideFailed,
    };
    (reason, outside_failure(outside, granted, &text))
}

/// The failure of a program that did not handle that of another agent's call. If the call met a fault of the world, it is
/// the same fault.
fn agent_failure(inputs: &JudgementInputs<'_>, facts: &ExceptionFacts, text: &str) -> Failure {
    let last = inputs.failed_call;
    let failed_call = failed_call(inputs, facts);
    let of_world = last.filter(|last| {
        last.kind.cause() == Cause::Extrinsic && failed_call == Some(last.kind.code())
    });
    let failure = match of_world {
        Some(failure) => passed_on(failure, text),
        None => Failure::new(FailureKind::Execution, text),
    };
    failure.with("failed_call", failed_call)
}

/// The same fault of the world, with what is known of it.
fn passed_on(failure: &Failure, text: &str) -> Failure {
    let facts = ["host", "grant", "path"].into_iter();
    let known = facts.filter_map(|fact| Some((fact, failure.metadata.get(fact)?.clone())));
    let passed = Failure::new(failure.kind.clone(), text);
    known.fold(passed, |passed, (fact, value)| passed.with(fact, value))
}

/// The error type of the call that a program did not handle the failure of.
fn failed_call<'a>(inputs: &JudgementInputs<'a>, facts: &'a ExceptionFacts) -> Option<&'a str> {
    let mut links = std::iter::once(&facts.exception).chain(&facts.causes);
    let reported = links.find_map(|link| link.failed_call.as_deref());
    reported.or(inputs.failed_call.map(|failure| failure.kind.code()))
}

/// The failure of a program that could not use an outside tool, if its call failed with this code.
fn unusable_tool(code: &str) -> Option<FailureKind> {
    let kinds = [
        FailureKind::ToolUnavailable,
        FailureKind::ApprovalRequired,
        FailureKind::ReplayDivergence,
    ];
    kinds.into_iter().find(|kind| kind.code() == code)
}

/// A run that ended without a report. A service that sent nothing until the time was up is the world's fault.
pub(crate) fn unreported(
    fault: WorkerFault,
    request: &CallRequest,
    program: &VettedProgram,
) -> Rejection {
    let WorkerFault::ServiceSilent { limit, silent } = fault else {
        let (reason, failure) = fault.judged();
        return Rejection::new(reason, failure);
    };
    let (host, chosen) = awaited_host(request, program.inspection());
    let reason = if chosen { Reason::OutsideChosen } else { Reason::OutsideFailed };
    let failure = silent_service(host.as_deref(), limit, silent);
    Rejection::new(reason, failure.with("blame", Blame::World.name()))
}

/// The failure of a stored program on arguments that it does not accept: its own error, what it takes, and what to do.
fn rejected_arguments(inputs: &JudgementInputs<'_>, text: &str) -> Failure {
    let CallRequest { role, method, .. } = inputs.request;
    let function = inputs.program.inspection().function(inputs.request.language, method.as_str());
    let signature = function.and_then(|it| it.signature.as_ref());
    let takes = signature.map(|it| format!("takes ({it}) and ")).unwrap_or_default();
    let advice = if inputs.proven == Some(true) {
        format!(
            "rejected these arguments: check them; if they are right, the program is wrong: `tools reject {role} \
             {method}`, or call with `--regenerate`"
        )
    } else {
        "was never accepted with such arguments, check them".to_owned()
    };
    let failure =
        Failure::new(FailureKind::Execution, format!("{text}; the stored program {takes}{advice}"));
    match signature {
        Some(signature) => failure.with("parameters", signature.to_string()),
        None => failure,
    }
}

/// What an outcome says of a file that its program could not see.
pub(crate) fn unseen_note(path: &str) -> String {
    format!(
        "`{path}` is not granted, so the program cannot see it; if the answer depends on it, grant it with `{}`",
        read_grant(path)
    )
}

/// Why a stored function cannot be called with the call's arguments; `None`: it can, or it is not known.
pub(crate) fn unfit_arguments(program: &VettedProgram, request: &CallRequest) -> Option<Rejection> {
    let function = program.inspection().function(request.language, request.method.as_str())?;
    let ArgumentMismatch { signature, missing, what } =
        argument_mismatch(program, function, request)?;
    let reason = if missing { Reason::ArgumentsMissing } else { Reason::ArgumentsExtra };
    let message = format!(
        "`{}` takes ({signature}) and was called with ({}): {what}; correct the call",
        function.name, request.arguments
    );
    let failure = Failure::new(FailureKind::InvalidCall, message)
        .with("parameters", signature.to_string())
        .with("blame", Blame::Caller.name());
    Some(Rejection::new(reason, failure))
}

/// Why the function of a new program cannot take the call's arguments: it need not be run to know that. `None`: it
/// can, or the program may call it itself.
pub(crate) fn unfit_signature(program: &VettedProgram, request: &CallRequest) -> Option<Rejection> {
    let found = program.inspection();
    let function = found.called_function(request.language, request.method.as_str())?;
    let is_called = |call: &CallExpression| call.receiver.is_none() && call.name == function.name;
    let is_other = found.function(request.language, request.method.as_str()).is_none();
    if found.reads_arguments || (is_other && found.calls.iter().any(is_called)) {
        return None;
    }
    let ArgumentMismatch { signature, what, .. } = argument_mismatch(program, function, request)?;
    let arguments = &request.arguments;
    let head = dialect::head(request.language, request.method.as_str(), arguments, None);
    let correction = match head {
        Some(head) => format!("Write exactly this function: `{head}`"),
        None => "Take the inputs from `args` and `kwargs`.".to_owned(),
    };
    let message = format!(
        "`{}` takes ({signature}) and is called with ({arguments}): {what}; a function must take the arguments of its call",
        function.name
    );
    let failure = Failure::new(FailureKind::InvalidCode, message)
        .with("parameters", signature.to_string())
        .with("required_correction", correction);
    let location = Some(function.position);
    Some(Rejection { location, ..Rejection::new(Reason::SignatureUnfit, failure) })
}

/// Why the arguments of a call do not match the parameters of a function.
struct ArgumentMismatch<'a> {
    signature: &'a Signature,
    /// Whether a required parameter has no argument; if not, some argument has no parameter.
    missing: bool,
    what: String,
}

fn argument_mismatch<'a>(
    program: &'a VettedProgram,
    function: &'a Definition,
    request: &CallRequest,
) -> Option<ArgumentMismatch<'a>> {
    // A result assigned at top level is the answer, and the function may never be called.
    let assigns = |it: &AssignmentStatement| {
        it.target == Target::Name("result".to_owned()) && it.position.column == 1
    };
    let is_assigned = program.inspection().assignments.iter().any(assigns);
    let signature = function.signature.as_ref().filter(|_| !is_assigned)?;
    match signature.match_arguments(request.language, &request.arguments) {
        ArgumentMatch::Matches => None,
        ArgumentMatch::Missing(names) => {
            let what = format!("{} missing", named(&names));
            Some(ArgumentMismatch { signature, missing: true, what })
        }
        ArgumentMatch::Extra => {
            let what = "it does not take all of these arguments".to_owned();
            Some(ArgumentMismatch { signature, missing: false, what })
        }
    }
}

/// `h is`, or `w and h are`.
fn named(names: &[String]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(" and "))
}

/// The position of the ask that was refused, if the refusal ended the program.
fn refused_at(ending: &ReportEnding) -> Option<Position> {
    match ending {
        ReportEnding::Raised { class, location, .. } if class == REFUSAL_CLASS => *location,
        ReportEnding::Raised { .. }
        | ReportEnding::Value(_)
        | ReportEnding::Reported { .. }
        | ReportEnding::Looked(_)
        | ReportEnding::Malformed(_)
        | ReportEnding::Unserializable { .. }
        | ReportEnding::Exited { .. }
        | ReportEnding::Limited(..) => None,
    }
}

/// Accepts a value if the source that it claims is true and it has the shape that the contract promises.
fn judge_value(inputs: &JudgementInputs<'_>, value: Value) -> Result<Value, Box<Rejection>> {
    let JudgementInputs { request, guardrails, program, observed, .. } = inputs;
    let (inspection, arguments) = (program.inspection(), &request.arguments);
    let found = ValueInput { inspection, arguments, observed, value: &value };
    if let Some(violation) = examine_value(&found) {
        return Err(Box::new(guardrails_broken(vec![violation], guardrails)));
    }
    let Some(contract) = &request.contract else { return Ok(value) };
    match contract.judge(&request.arguments.args, &request.arguments.kwargs, &value) {
        Ok(()) => Ok(value),
        Err(breach) => {
            let failure = Failure {
                metadata: breach.metadata(),
                ..Failure::new(FailureKind::ContractViolation, breach.message())
            };
            Err(Box::new(Rejection::new(Reason::ContractBroken, failure)))
        }
    }
}

/// A program that does not parse.
pub(crate) fn malformed(fault: &SyntaxFault) -> Rejection {
    let message = format!("line {}: {}", fault.position.line, fault.message);
    let failure =
        Failure::new(FailureKind::InvalidCode, message).with("error_class", "SyntaxError");
    Rejection { location: Some(fault.position), ..Rejection::new(Reason::SyntaxInvalid, failure) }
}

/// A program that broke guardrails.
pub(crate) fn guardrails_broken(violations: Vec<Violation>, policy: &GuardrailPolicy) -> Rejection {
    let terminal =
        violations.iter().find(|violation| violation.severity(policy) == Severity::Terminal);
    let reason =
        if terminal.is_some() { Reason::TerminalGuardrail } else { Reason::GuardrailBroken };
    let failure = match terminal.or(violations.first()) {
        Some(violation) => {
            let kind = match terminal {
                Some(_) => violation.rule.failure_kind(),
                None => FailureKind::Guardrail(violation.violation_type()),
            };
            Failure {
                metadata: violation.to_json(policy),
                ..Failure::new(kind, violation.message.clone())
            }
        }
        None => Failure::new(FailureKind::Execution, "a guardrail was broken"),
    };
    let location = violations.first().and_then(|violation| violation.location);
    Rejection { location, violations, ..Rejection::new(reason, failure) }
}

/// A payload that is not a program.
pub(crate) fn invalid_payload(fault: &PayloadFault) -> Rejection {
    match fault {
        PayloadFault::Manifest(fault) => Rejection::new(Reason::ManifestInvalid, fault.failure()),
        PayloadFault::NotAnObject { .. }
        | PayloadFault::UnknownField(_)
        | PayloadFault::CodeNotText { .. }
        | PayloadFault::CodeBlank
        | PayloadFault::CodeTooLong(_) => Rejection::new(
            Reason::PayloadInvalid,
            Failure::new(FailureKind::InvalidCode, fault.to_string()),
        ),
    }
}

/// The packages that the agent's environment must have for this program, or why they are not permitted. `declared` is
/// the list in the payload: a rejection names the field.
pub(crate) fn permitted_packages(
    program: &GeneratedProgram,
    request: &CallRequest,
    policy: &Policy,
    declared: Option<&Value>,
) -> Result<DependencyManifest, Box<Rejection>> {
    let language = request.language;
    let reject = |reason, failure: Failure, key| {
        let package = failure.metadata.get("dependency_name").and_then(Value::as_str);
        let field = dependency::field(language, declared, package.unwrap_or_default(), key);
        Box::new(Rejection::new(reason, failure.with("field", field)))
    };
    let effective = dependency::effective(
        language,
        request.manifest.as_ref(),
        &program.manifest,
        policy.manifest_mode,
    )
    .map_err(|fault| {
        let reason = match fault {
            GrowthFault::Incompatible { .. } | GrowthFault::TooMany(_) => {
                Reason::ManifestIncompatible
            }
            GrowthFault::Changed { .. } => Reason::ManifestChanged,
        };
        reject(reason, fault.failure(), fault.key())
    })?;
    policy
        .dependencies
        .check(language, &effective)
        .map_err(|fault| reject(Reason::PolicyViolated, fault.failure(), "name"))?;
    Ok(effective)
}
