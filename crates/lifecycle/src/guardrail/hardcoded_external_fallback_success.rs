//! The rule `hardcoded_external_fallback_success`: [`GUARDRAIL`] says what it is about.

use std::collections::BTreeSet;

use Language::{Python, Ruby};
use serde_json::Value;

use crate::dialect::{
    AssignmentStatement, Inspection, Language, Operand, Position, Rescued, ReturnedValue, Target,
};

use super::network::{fetches, fetching_calls};
use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "hardcoded_external_fallback_success",
    violation_type: ViolationType::ExternalData,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Program(find),
    summary: "made-up records given as success in a flow that fetches",
    details: "\
When the fetch fails, a literal list in its place looks like an answer and is not one. Barred are records given in
an error handler, given in place of what was not found (`found or [...]`), or held by a name that says what they
are (`fallback_...`, `sample_...`), where they reach a success; and a text that is the whole answer when a fetch
raised. Empty values, maps without a list, and defaults for the call's own inputs pass.",
    correction: "Do not return hardcoded data when fetching fails: return an error outcome such as \
                 `low_utility` or `unsupported_capability` that says what failed.",
    examples: &[
        violates(
            Python,
            "import urllib.request\ntry:\n    result = urllib.request.urlopen(args[0]).read()\n\
             except OSError:\n    result = [{\"title\": \"Heat\"}]",
        ),
        passes(
            Python,
            "import urllib.request\ntry:\n    result = urllib.request.urlopen(args[0]).read()\n\
             except OSError as problem:\n    result = Outcome.error(\"fetch_failed\", str(problem))",
        ),
        passes(
            Python,
            "import urllib.request\nfields = kwargs.get(\"fields\") or [\"title\"]\n\
             result = [urllib.request.urlopen(args[0]).read(), fields]",
        ),
        violates(Ruby, "tool(\"web_fetcher\").fetch(args[0]).value || [{ title: \"Heat\" }]"),
        passes(
            Ruby,
            "page = tool(\"web_fetcher\").fetch(args[0])\n\
             page.ok? ? page.value : Outcome.error(error_type: \"low_utility\")",
        ),
    ],
};

/// Words in a variable's name that say its content is made up.
const MADE_UP_WORDS: &[&str] = &["fallback", "sample", "mock", "dummy", "placeholder", "fake"];

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    if !fetches(input.inspection) {
        return None;
    }
    let position = made_up_answer(input.inspection)?;
    Some(Finding::at(
        position,
        "records written into the program are given as success in place of fetched data",
    ))
}

fn made_up_answer(inspection: &Inspection) -> Option<Position> {
    let names = made_up_names(&inspection.assignments);
    let fetches = Fetches::of(inspection);
    let told = told_names(inspection, &fetches);
    let made_up = |answer: &&ReturnedValue| {
        is_made_up(&answer.value, answer.recovering.is_some(), &names)
            || is_told(answer, &fetches, &told)
    };
    inspection.returned.iter().find(made_up).map(|answer| answer.position)
}

/// Whether a text written into the program is the whole answer where a fetch raised.
fn is_told(answer: &ReturnedValue, fetches: &Fetches, told: &BTreeSet<&str>) -> bool {
    let whole = answer.value.only();
    let named = whole.name().is_some_and(|name| told.contains(name));
    named || (is_text(whole) && fetches.are_handled(answer.recovering.as_ref()))
}

/// The names given a text where a fetch raised.
fn told_names<'a>(inspection: &'a Inspection, fetches: &Fetches) -> BTreeSet<&'a str> {
    let told = inspection.assignments.iter().filter(|assignment| {
        is_text(&assignment.value) && fetches.are_handled(assignment.recovering.as_ref())
    });
    told.filter_map(|assignment| match &assignment.target {
        Target::Name(name) => Some(name.as_str()),
        Target::Attribute { .. } | Target::Item { .. } => None,
    })
    .collect()
}

fn is_text(value: &Operand) -> bool {
    value.text().is_some_and(|text| !text.trim().is_empty())
}

/// Where among the calls those are that fetch, in order: a handler may stand for thousands of calls, and so may the
/// next.
struct Fetches(Vec<usize>);

impl Fetches {
    fn of(inspection: &Inspection) -> Self {
        Self(fetching_calls(inspection))
    }

    /// Whether an error handler stands for one of them.
    fn are_handled(&self, rescued: Option<&Rescued>) -> bool {
        rescued.is_some_and(|rescued| {
            let first = self.0.partition_point(|call| *call < rescued.start);
            self.0.get(first).is_some_and(|call| *call < rescued.end)
        })
    }
}

/// The names that hold made-up records, also through other names.
fn made_up_names(assignments: &[AssignmentStatement]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for assignment in assignments {
        let Target::Name(name) = &assignment.target else { continue };
        let suspect = assignment.recovering.is_some() || says_made_up(name);
        if is_made_up(&assignment.value, suspect, &names) {
            names.insert(name.as_str());
        }
    }
    names
}

/// Whether a value holds records that are made up: by name, or written in a suspect place.
fn is_made_up(value: &Operand, suspect: bool, names: &BTreeSet<&str>) -> bool {
    let named = |member: &Operand| member.name().is_some_and(|name| names.contains(name));
    let records = |member: &Operand| member.literal().is_some_and(has_records);
    value.members().into_iter().any(|member| {
        let (member, suspect) = match member.stands_in() {
            Some(instead) => (instead, true),
            None => (member, suspect),
        };
        named(member) || (suspect && records(member))
    })
}

fn says_made_up(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    MADE_UP_WORDS.iter().any(|word| name.contains(word))
}

/// Whether there is a list with something in it.
fn has_records(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(has_records),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
