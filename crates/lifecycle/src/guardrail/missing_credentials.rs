//! The rule `missing_credentials`, against a program that cannot run without a key from its environment.

use Language::{Python, Ruby};

use crate::artifact::RunVerdict;
use crate::dialect::{CallExpression, Inspection, Language, Lookup, Position};
use crate::outcome::FailureKind;

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "missing_credentials",
    violation_type: ViolationType::ExternalData,
    severity: Severity::Terminal,
    failure: Some(FailureKind::MissingCredentials),
    check: RuleCheck::Program(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "a program that cannot run without a key from its environment",
    details: "\
Keys never reach a worker, so reading one there can only fail, and another program would fail too: this rule
ends the call, unless `guardrail_terminal` says otherwise. A key that may be absent passes: one with a default,
one whose absence is handled, one whose presence is tested, one that the program sets itself. So do programs
that report `missing_credentials`, and everything read from the arguments.",
    correction: "Take the credential as an argument of the call, use a source that needs none, or return \
                 an error outcome `missing_credentials` that says which one is needed.",
    examples: &[
        violates(Python, "import os\nresult = os.environ[\"WEATHER_API_KEY\"]"),
        passes(Python, "import os\nresult = os.environ.get(\"WEATHER_API_KEY\")"),
        passes(Python, "result = kwargs[\"api_key\"]"),
        violates(Ruby, "ENV.fetch(\"WEATHER_API_KEY\")"),
        passes(Ruby, "ENV[\"WEATHER_API_KEY\"]"),
        passes(Ruby, "kwargs.fetch(:api_key)"),
    ],
};

/// Words in a variable's name that say it holds a credential.
const CREDENTIAL_WORDS: &[&str] =
    &["APIKEY", "CREDENTIAL", "CREDENTIALS", "KEY", "PASSWD", "PASSWORD", "SECRET", "TOKEN"];

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    if input.inspection.says("missing_credentials") {
        return None;
    }
    let lookups = input.inspection.lookups.iter().filter_map(looked_up);
    let calls = input.inspection.calls.iter().filter_map(fetched);
    let needed: Vec<_> = lookups.chain(calls).filter(|(name, _)| says_credential(name)).collect();
    let expects = |name: &str| mentions(input.inspection, name) <= times(&needed, name);
    let &(name, position) = needed.iter().find(|(name, _)| expects(name))?;
    Some(Finding::at(
        position,
        format!("the program needs the credential `{name}`, and a worker's environment holds none"),
    ))
}

/// `os.environ["NAME"]`
fn looked_up(lookup: &Lookup) -> Option<(&str, Position)> {
    let environment = lookup.object.path() == Some("os.environ") && !lookup.guarded;
    Some((lookup.key.as_str().filter(|_| environment)?, lookup.position))
}

/// `ENV.fetch("NAME")`, with nothing to fall back on.
fn fetched(call: &CallExpression) -> Option<(&str, Position)> {
    let alone = call.arguments.len() == 1 && !call.guarded;
    let needs = alone && call.path().as_deref() == Some("ENV.fetch");
    Some((call.argument(0).filter(|_| needs)?.text()?, call.position))
}

/// How often the program says the name: more than it needs it when it asks first whether it is there
/// (`"NAME" in os.environ`, `ENV.key?("NAME")`), or sets it.
fn mentions(inspection: &Inspection, name: &str) -> usize {
    let literals = inspection.literals.iter().filter(|literal| literal.value == name);
    literals.count()
}

fn times(needed: &[(&str, Position)], name: &str) -> usize {
    needed.iter().filter(|(needed, _)| *needed == name).count()
}

fn says_credential(name: &str) -> bool {
    name.split('_').any(|word| CREDENTIAL_WORDS.contains(&word.to_ascii_uppercase().as_str()))
}
