//! The rule `unused_dependency`, against a declared package that the program never uses.

use std::collections::BTreeSet;

use Language::{Python, Ruby};

use crate::artifact::RunVerdict;
use crate::dependency::module_of_package;
use crate::dialect::{Inspection, Language, Position, stdlib};

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "unused_dependency",
    violation_type: ViolationType::Dependency,
    severity: Severity::Advisory,
    failure: None,
    check: RuleCheck::Program(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "a declared package that the program never uses",
    details: "\
It would be resolved and installed for nothing. Packages and modules differ in name, so a package counts as
unused only when every import is explained by another one: an import of an unknown name may belong to it.",
    correction: "Remove the package from `dependencies`, or import it where it is needed.",
    examples: &[
        violates(Python, "import json").declaring(&["requests"]),
        passes(Python, "import bs4").declaring(&["beautifulsoup4"]),
        violates(Ruby, "require \"json\"").declaring(&["nokogiri"]),
        passes(Ruby, "require \"active_support/all\"").declaring(&["activesupport"]),
    ],
};

/// Packages that work through another one and are seldom imported themselves.
const COMPANIONS: &[&str] = &[
    "bcrypt",
    "brotli",
    "certifi",
    "fastparquet",
    "html5lib",
    "lxml",
    "openpyxl",
    "psycopg2binary",
    "pyarrow",
    "pymysql",
    "sqlite3",
    "tabulate",
    "tzdata",
    "xlrd",
    "xlsxwriter",
];

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    let used = used_names(input);
    let modules: BTreeSet<String> = input.declared.iter().map(|it| module_of(it)).collect();
    if !used.is_subset(&modules) {
        return None;
    }
    let is_unused = |package: &&String| is_unused(package, &used, input.inspection);
    let package = input.declared.iter().find(is_unused)?;
    let finding =
        Finding::at(Position::START, format!("`{package}` is declared but never imported"));
    Some(finding.correct_by(format!(
        "Remove `{package}` from `dependencies`, or import it where it is needed."
    )))
}

fn is_unused(package: &str, used: &BTreeSet<String>, inspection: &Inspection) -> bool {
    let module = module_of(package);
    !COMPANIONS.contains(&folded(package).as_str())
        && !used.iter().any(|name| are_related(name, &module))
        && !is_mentioned(package, inspection)
}

/// `active_support/all` belongs to `activesupport`, `aws-sdk-s3` to `aws-sdk`.
fn are_related(name: &str, module: &str) -> bool {
    name.starts_with(module) || module.starts_with(name)
}

/// A package chosen by its name in a string (`features="lxml"`) or, in Ruby, used by its constant.
fn is_mentioned(package: &str, inspection: &Inspection) -> bool {
    let module = module_of(package);
    inspection.literals.iter().any(|literal| literal.value.as_str() == Some(package))
        || inspection.paths.iter().any(|used| folded(top(&used.path)) == module)
}

/// The imported names that do not come with the interpreter, folded.
fn used_names(input: &GuardrailInput<'_>) -> BTreeSet<String> {
    let imports = input.inspection.imports.iter();
    let foreign = imports.filter(|import| !stdlib::provides(input.language, &import.module));
    foreign.map(|import| folded(import.top_level())).collect()
}

fn module_of(package: &str) -> String {
    let name = folded(package.split('[').next().unwrap_or(package));
    module_of_package(|package| folded(package) == name).map_or(name, folded)
}

fn top(path: &str) -> &str {
    path.split(['.', ':']).find(|part| !part.is_empty()).unwrap_or(path)
}

/// Lower case without separators, so that spellings of one name are equal.
fn folded(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}
