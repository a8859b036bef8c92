//! Judgement: accepts what a program reported, or names the reason for which it is rejected.

use serde_json::{Value, json};

use crate::attempt::{Reason, Rejection};
use crate::blame::{Attribution, Blame, GrantedAccess, Incident, Outside, attribute, awaited_host};
use crate::call::Policy;
use crate::dependency::{self, DependencyManifest, GrowthFault};
use crate::dialect::{
    self, ArgumentMatch, AssignmentStatement, Call, Definition, Position, Signature, SyntaxFault,
    Target,
};
use crate::excerpt::shortened;
use crate::execution::{ExceptionFacts, ReportEnding, WorkerFault, limited, silent_service};
use crate::guardrail::{GuardrailPolicy, Severity, ValueInput, Violation, examine_value};
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
    /// The error type of the program's last call of another agent, if that call failed.
    pub(crate) failed_call: Option<&'a str>,
    /// Whether the program was accepted with arguments of this shape before; `None`: it is new.
    pub(crate) proven: Option<bool>,
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
            let unseen = inputs.unseen_file;
            // No other program could see the file either.
            let again = kind.retriable() && kind.cause() != Cause::Extrinsic && unseen.is_none();
            let failure = Failure { kind, message, metadata };
            let failure = match unseen {
                Some(path) if !failure.metadata.contains_key("grant") => {
                    failure.with("grant", read_grant(path))
                }
                Some(_) | None => failure,
            };
            if again { reject(Reason::ReportedRetriable, failure) } else { Ok(Err(failure)) }
        }
        ReportEnding::Raised { class, message, location, facts } => {
            Err(Box::new(raised(inputs, &class, &message, location, &facts)))
        }
        ReportEnding::Malformed(fault) => Err(Box::new(malformed(&fault))),
        ReportEnding::Unserializable { path, message } => reject(
            Reason::Unserializable,
            Failure::new(FailureKind::NonSerializableResult, format!("{path}: {message}"))
                .with("path", path),
        ),
        ReportEnding::Exited { status } => reject(
            Reason::CrashedByProgram,
            Failure::new(
                FailureKind::WorkerCrash(EndedBy::Program),
                format!("the program called exit({status}); give a result instead of exiting"),
            )
            .with("ended_by", EndedBy::Program.name())
            .with("exit", status),
        ),
        ReportEnding::Limited(limit, detail) => {
            reject(Reason::LimitReached, limited(limit, detail))
        }
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
    let attribution = attribute(&Incident {
        facts,
        location,
        request: inputs.request,
        inspection: inputs.program.inspection(),
        access: inputs.access,
        observed: inputs.observed,
        failed_call: inputs.failed_call,
        proven: inputs.proven,
    });
    let (reason, failure) = match attribution {
        Attribution::Program => (Reason::Raised, Failure::new(FailureKind::Execution, text)),
        Attribution::Caller => (Reason::CallerRaised, rejected_arguments(inputs, &text)),
        Attribution::World { outside, granted, chosen } => {
            let reason = match outside {
                Outside::Agent => Reason::CallFailed,
                Outside::Service { .. } | Outside::File { .. } if chosen => Reason::OutsideChosen,
                Outside::Service { .. } | Outside::File { .. } => Reason::OutsideFailed,
            };
            let mut links = std::iter::once(&facts.exception).chain(&facts.causes);
            let reported = links.find_map(|link| link.failed_call.as_deref());
            let failed_call = reported.or(inputs.failed_call);
            let failure = outside_failure(&outside, granted, &text);
            let is_agent = outside == Outside::Agent;
            (reason, if is_agent { failure.with("failed_call", failed_call) } else { failure })
        }
    };
    let failure = failure.with("error_class", class).with("location", json!(location));
    let backtrace = facts.backtrace.clone();
    let rejection = Rejection { location, backtrace, ..Rejection::new(reason, failure) };
    let blame = rejection.blame().name();
    Rejection { failure: rejection.failure.with("blame", blame), ..rejection }
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

/// The failure of a program that could not use a service, a file or another agent: what, why, and the missing grant.
fn outside_failure(outside: &Outside, granted: bool, text: &str) -> Failure {
    match outside {
        Outside::Agent => Failure::new(FailureKind::Execution, text),
        Outside::Service { host, .. } if granted => {
            let what = host.as_deref().unwrap_or("a service the program needs");
            let message = format!("{what} cannot be used ({text}); run it again when it answers");
            Failure::new(FailureKind::ServiceUnavailable, message).with("host", host.as_deref())
        }
        Outside::Service { host, port } => {
            let host_name = host.as_deref().unwrap_or("HOST");
            let grant = match port {
                Some(port) if host_name.contains(':') => format!("--network [{host_name}]:{port}"),
                Some(port) => format!("--network {host_name}:{port}"),
                None => format!("--network {host_name}"),
            };
            let message = format!(
                "the program may not use the network for this ({text}); grant it with `{grant}`"
            );
            Failure::new(FailureKind::UnsupportedCapability, message)
                .with("host", host.as_deref())
                .with("grant", grant)
        }
        Outside::File { path, granted_as, .. } if granted => {
            let advice = match granted_as {
                Some(granted) => format!(
                    "relative paths begin where programs run, so give the whole path; granted is `{granted}`"
                ),
                None => "check that the file exists and that its permissions allow this".to_owned(),
            };
            let message = format!("{text}; {advice}");
            Failure::new(FailureKind::Execution, message).with("path", path.as_deref())
        }
        Outside::File { path, in_workspace: true, .. } => {
            let grant = "--workspace-write";
            let message =
                format!("the program may not change the workspace ({text}); let it with `{grant}`");
            Failure::new(FailureKind::UnsupportedCapability, message)
                .with("path", path.as_deref())
                .with("grant", grant)
        }
        Outside::File { path, in_workspace: false, .. } => {
            let grant = read_grant(path.as_deref().unwrap_or("PATH"));
            let message = format!(
                "the program cannot open a file ({text}); check that it exists, and grant it with `{grant}`, or \
                 `--write` to change it"
            );
            Failure::new(FailureKind::UnsupportedCapability, message)
                .with("path", path.as_deref())
                .with("grant", grant)
        }
    }
}

fn read_grant(path: &str) -> String {
    format!("--read {path}")
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
    let is_called = |call: &Call| call.receiver.is_none() && call.name == function.name;
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
