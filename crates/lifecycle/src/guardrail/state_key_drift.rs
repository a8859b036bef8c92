//! The rule `state_key_drift`, against a context key that nothing writes, or a second name for a key that is kept
//! already.

use std::collections::BTreeSet;

use Language::{Python, Ruby};
use serde_json::Value;

use crate::artifact::RunVerdict;
use crate::context::VIEWS;
use crate::dialect::{ContextAccess, ContextUse, Inspection, Language, Operand, Target};
use crate::program::type_name;

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "state_key_drift",
    violation_type: ViolationType::Reuse,
    severity: Severity::Advisory,
    failure: None,
    check: RuleCheck::Program(find),
    permitted_by: None,
    // A context key that a model insists on is taken to be meant.
    forbids_reuse: false,
    verdict: RunVerdict::Failed,
    summary: "a context key that nothing writes, or a second name for a key that is kept already",
    details: "\
Methods of one agent share its context. Two kinds of evidence count: the program reads a key that nothing writes,
and uses no key that is written; or it uses a new key whose name differs from a kept one by at most two letters
(`task`, `tasks`), and keeps a value of the same JSON type under it. A key that the method is named after
(`tasks` in `list_tasks`) passes, as does one that is read with a default. That other methods keep other keys is not evidence. Silent when nothing is known of
other methods, and for keys of the runtime. A program that keeps its key after this advice is kept all the same.",
    correction: "Use the context key that holds this state, or give a default for a key that may be absent.",
    examples: &[
        violates(Python, "result = len(context[\"totals\"])").beside(&["total"]),
        violates(Python, "context[\"value_\"] = context.get(\"value_\", 0) + 1").beside(&["value"]),
        passes(Python, "context[\"value\"] = context.get(\"value\", 0) + 1").beside(&["value"]),
        passes(Python, "context.setdefault(\"tasks\", []).append(args[0])").beside(&["notes"]),
        passes(Python, "result = context.get(\"tasks\", [])").beside(&["notes"]),
        violates(Ruby, "context[:sum].abs").beside(&["value"]),
        passes(Ruby, "context[:value] = context.fetch(:value, 0) + 1").beside(&["value"]),
        passes(Ruby, "context[:tasks] = (context[:tasks] || []) + [args[0]]").beside(&["notes"]),
    ],
};

/// Names that differ by more letters are different names.
const MAX_DISTANCE: usize = 2;
/// Shorter names differ by at most one letter.
const LONG_NAME: usize = 6;
/// Names shorter than this are not compared.
const SHORTEST_NAME: usize = 4;

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    let written: BTreeSet<&str> = input
        .sibling_state
        .iter()
        .flat_map(|state| state.writes.iter().map(String::as_str))
        .filter(|key| !VIEWS.contains(key))
        .collect();
    if written.is_empty() {
        return None;
    }
    let known: BTreeSet<&str> = input
        .sibling_state
        .iter()
        .flat_map(|state| state.reads.iter().map(String::as_str))
        .chain(written.iter().copied())
        .collect();
    let keys = KeyComparison { input, written, program: Keys::of(input.inspection) };
    input.inspection.context.iter().find_map(|used| {
        if known.contains(used.key.as_str()) || VIEWS.contains(&used.key.as_str()) {
            return None;
        }
        keys.second_name(used).or_else(|| keys.unwritten(used))
    })
}

/// The keys of a program beside those that the agent's other methods write.
struct KeyComparison<'a> {
    input: &'a GuardrailInput<'a>,
    written: BTreeSet<&'a str>,
    program: Keys<'a>,
}

impl KeyComparison<'_> {
    /// A new key whose name and type are those of a key that is kept already.
    fn second_name(&self, used: &ContextUse) -> Option<Finding> {
        let key = used.key.as_str();
        let alike = |kept: &&&str| is_alike(key, kept) && !self.program.all.contains(**kept);
        let right = self.written.iter().find(alike)?;
        // A key that is only read must have its value from elsewhere, and nothing else writes it; unless it has a default.
        let is_kept_here = self.program.written.contains(key);
        let is_provided_for = !is_kept_here && used.guarded;
        if is_provided_for || (is_kept_here && !same_type(self.input, key, right)) {
            return None;
        }
        let message = format!(
            "the program uses context key `{key}`; the agent's other methods keep `{right}`"
        );
        let correction = format!("Use context key `{right}` for this state instead of `{key}`.");
        Some(Finding::at(used.position, message).correct_by(correction))
    }

    /// A key that is read without a default, and that nothing writes.
    fn unwritten(&self, used: &ContextUse) -> Option<Finding> {
        let key = used.key.as_str();
        let inspection = self.input.inspection;
        let provides = |other: &ContextUse| other.key == key && other.guarded;
        let uses = inspection.context.iter().filter(|other| other.key == key).count();
        let mentions = inspection.literals.iter().filter(|it| it.value == key).count();
        if used.access == ContextAccess::Write
            || self.program.written.contains(key)
            || inspection.context.iter().any(provides)
            || is_named_after(self.input.method, key)
            || mentions > uses
            || !self.written.is_disjoint(&self.program.all)
        {
            return None;
        }
        let kept: Vec<String> = self.written.iter().take(5).map(|key| format!("`{key}`")).collect();
        let kept = kept.join(", ");
        let message = format!(
            "the program reads context key `{key}`, which nothing writes; written are {kept}"
        );
        Some(Finding::at(used.position, message).correct_by(format!(
            "Read the key that holds this state ({kept}), or give a default for `{key}`."
        )))
    }
}

/// `tasks` in `list_tasks`, `score` in `total_scores`
fn is_named_after(method: &str, key: &str) -> bool {
    let stem = key.to_lowercase();
    let stem = stem.strip_suffix('s').unwrap_or(&stem);
    method.to_lowercase().contains(stem)
}

/// The keys a program uses.
struct Keys<'a> {
    all: BTreeSet<&'a str>,
    written: BTreeSet<&'a str>,
}

impl<'a> Keys<'a> {
    fn of(inspection: &'a Inspection) -> Self {
        let uses = &inspection.context;
        let writes = uses.iter().filter(|used| used.access == ContextAccess::Write);
        Self {
            all: uses.iter().map(|used| used.key.as_str()).collect(),
            written: writes.map(|used| used.key.as_str()).collect(),
        }
    }
}

/// Whether the program gives `key` a value of the JSON type that `right` holds now. Unknown types are not evidence.
fn same_type(input: &GuardrailInput<'_>, key: &str, right: &str) -> bool {
    let Some(kept) = input.context.get(right).map(type_name) else { return false };
    let given = literals_of(input.inspection, key);
    !given.is_empty() && given.iter().all(|value| type_name(value) == kept)
}

/// The constants that the program gives a key: assigned, or as the default of a lookup.
fn literals_of<'a>(inspection: &'a Inspection, key: &str) -> Vec<&'a Value> {
    let assigned = inspection.assignments.iter().filter_map(|assignment| {
        let Target::Item { object, key: Some(written) } = &assignment.target else { return None };
        let is_key = matches!(object.resolved(), Operand::Context) && written == key;
        assignment.value.literal().filter(|_| is_key)
    });
    let uses = inspection.context.iter().filter(|used| used.key == key);
    let defaults = uses.filter_map(|used| used.default.as_ref());
    assigned.chain(defaults).collect()
}

/// Whether one name looks like a misspelling or another number of the other.
fn is_alike(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let shorter = one.len().min(other.len());
    let most = if shorter < LONG_NAME { 1 } else { MAX_DISTANCE };
    let digits = |name: &str| -> String { name.chars().filter(char::is_ascii_digit).collect() };
    shorter >= SHORTEST_NAME
        && one.chars().next() == other.chars().next()
        && digits(&one) == digits(&other)
        && strsim::levenshtein(&one, &other) <= most
}
