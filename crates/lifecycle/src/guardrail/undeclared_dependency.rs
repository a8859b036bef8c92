//! The rule `undeclared_dependency`, against an import that is neither standard library nor declared.

use std::collections::BTreeSet;

use Language::{Python, Ruby};

use crate::artifact::RunVerdict;
use crate::dialect::{Import, Inspection, Language, Position, stdlib};

use super::{
    Finding, Guardrail, GuardrailInput, Rule, RuleCheck, Severity, Violation, ViolationType,
    passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "undeclared_dependency",
    violation_type: ViolationType::Dependency,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Program(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "an import that is neither standard library nor declared",
    details: "\
Decided before preparation only when nothing is declared and the agent's environment holds nothing. Otherwise
the installed packages decide, because packages and modules differ in name (`pillow` provides `PIL`). An import
whose failure is handled on the spot passes, as do relative ones.",
    correction: "Declare the package in `dependencies`, or use the standard library.",
    examples: &[
        violates(Python, "import requests"),
        passes(Python, "import json, os.path"),
        violates(Ruby, "require \"nokogiri\""),
        passes(Ruby, "require \"net/http\""),
    ],
};

/// The most modules a message names.
const MAX_NAMES: usize = 8;

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    if !input.declared.is_empty() || input.holds_packages {
        return None;
    }
    let (first, names) = foreign(input.language, input.inspection, |_| false)?;
    Some(
        Finding::at(first, format!("{names}: imported, neither standard library nor declared"))
            .correct_by(format!(
                "Declare the package of {names} in `dependencies`, or use the standard library."
            )),
    )
}

/// Checks a program against the top-level names that its prepared environment `provides`.
pub fn check_provided(
    language: Language,
    inspection: &Inspection,
    provides: &[String],
) -> Option<Violation> {
    let is_there = |import: &Import| provides.iter().any(|name| name == import.top_level());
    let (first, names) = foreign(language, inspection, is_there)?;
    let finding = Finding::at(
        first,
        format!(
            "{names}: imported, neither standard library nor provided by the packages declared"
        ),
    )
    .correct_by(format!(
        "Add the package that provides {names} to `dependencies` (package and module names may differ), or do without."
    ));
    Some(finding.of(Rule::UndeclaredDependency))
}

/// The imports nothing accounts for: where the first stands, and their names.
fn foreign(
    language: Language,
    inspection: &Inspection,
    accounted: impl Fn(&Import) -> bool,
) -> Option<(Position, String)> {
    let undeclared = |import: &&Import| {
        !import.optional && !stdlib::provides(language, &import.module) && !accounted(import)
    };
    let mut imports = inspection.imports.iter().filter(undeclared).peekable();
    let first = imports.peek()?.position;
    let names: BTreeSet<String> =
        imports.map(|import| format!("`{}`", import.top_level())).collect();
    Some((first, names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ")))
}
