//! `hardcoded_external_fallback_success`: made-up records given as success in a flow that fetches.
//!
//! When the fetch fails, a literal list in its place looks like an answer and is not one. Barred are
//! records written in an error handler, or held by a name that says what they are (`fallback_…`,
//! `sample_…`), where they reach a success. Empty values, and maps without a list, pass.
//!
//! ```python
//! import requests
//! try:
//!     movies = requests.get(url).json()
//! except Exception as problem:
//!     movies = [{"title": "Heat"}]                           # barred: it reaches a success
//!     movies = Outcome.error("fetch_failed", str(problem))   # passes
//! result = movies
//! ```
//! ```ruby
//! page = tool("web_fetcher").fetch(url)
//! fallback_movies = [{ title: "Heat" }]
//! page.ok? ? page.value : Outcome.ok(fallback_movies)            # barred
//! page.ok? ? page.value : Outcome.error(error_type: "low_utility")   # passes
//! ```

use std::collections::BTreeSet;

use serde_json::Value;

use crate::dialect::{Answer, Assignment, Inspection, Operand, Position, Target};

use super::network::fetches;
use super::{Finding, Subject};

/// Words in a variable's name that say its content is made up.
const MADE_UP_WORDS: &[&str] = &["fallback", "sample", "mock", "dummy", "placeholder", "fake"];

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    if !fetches(subject.inspection) {
        return None;
    }
    let position = made_up_answer(subject.inspection)?;
    Some(Finding::at(
        position,
        "records written into the program are given as success in place of fetched data",
        "Do not return hardcoded data when fetching fails: return an error outcome such as \
         `low_utility` or `unsupported_capability` that says what failed.",
    ))
}

fn made_up_answer(inspection: &Inspection) -> Option<Position> {
    let names = made_up_names(&inspection.assignments);
    let answer = |answer: &&Answer| is_made_up(&answer.value, answer.recovering, &names);
    inspection.answers.iter().find(answer).map(|answer| answer.position)
}

/// The names that hold made-up records, also through other names.
fn made_up_names(assignments: &[Assignment]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for assignment in assignments {
        let Target::Name(name) = &assignment.target else { continue };
        let suspect = assignment.recovering || says_made_up(name);
        if is_made_up(&assignment.value, suspect, &names) {
            names.insert(name.as_str());
        }
    }
    names
}

/// Whether a value holds records that are made up: by name, or written in a suspect place.
fn is_made_up(value: &Operand, suspect: bool, names: &BTreeSet<&str>) -> bool {
    value.members().into_iter().any(|member| {
        if let Operand::Variable { name, .. } = member {
            names.contains(name.as_str())
        } else {
            suspect && member.literal().is_some_and(has_records)
        }
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
