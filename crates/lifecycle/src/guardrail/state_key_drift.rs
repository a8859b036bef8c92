//! The rule `state_key_drift`: [`GUARDRAIL`] says what it is about.

use std::collections::BTreeSet;

use Language::{Python, Ruby};

use crate::context::VIEWS;
use crate::dialect::{ContextAccess, ContextUse, Language};

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, SiblingState, ViolationType, passes,
    violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "state_key_drift",
    violation_type: ViolationType::Reuse,
    severity: Severity::Advisory,
    failure: None,
    check: RuleCheck::Program(find),
    summary: "another context key for state that siblings already keep",
    details: "\
Methods of one agent share its context. A key that nothing writes reads as nothing, and a second key for the
same state splits it. A program that uses what its siblings keep may have keys of its own beside it. Silent when
nothing is known of siblings, and for keys of the runtime.",
    correction: "Use the context key that the agent's other methods use for this state.",
    examples: &[
        violates(Python, "context[\"total\"] += args[0]").beside(&["value"]),
        passes(Python, "context[\"value\"] += args[0]").beside(&["value"]),
        passes(Python, "result = context[\"value\"] * context.get(\"rate\", 1)").beside(&["value"]),
        violates(Ruby, "context[:sum]").beside(&["value"]),
        passes(Ruby, "context[:value] = context.fetch(:value, 0) + 1").beside(&["value"]),
    ],
};

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    let siblings = Siblings::of(input.sibling_state);
    let program = Program::of(&input.inspection.context);
    let drifted = program.uses.iter().find(|used| siblings.is_drift(used, &program))?;
    let right = siblings.right_key(&drifted.key)?;
    let (key, verb) = match drifted.access {
        ContextAccess::Read => (&drifted.key, "reads"),
        ContextAccess::Write => (&drifted.key, "writes"),
    };
    Some(
        Finding::at(
            drifted.position,
            format!(
                "the program {verb} context key `{key}`; the agent's other methods keep `{right}`"
            ),
        )
        .correct_by(format!("Use context key `{right}` for this state instead of `{key}`.")),
    )
}

/// What the siblings read and write, together.
struct Siblings<'a> {
    writes: BTreeSet<&'a str>,
    known: BTreeSet<&'a str>,
    /// The one key that every method which writes at all writes.
    shared: Option<&'a str>,
}

impl<'a> Siblings<'a> {
    fn of(states: &'a [SiblingState]) -> Self {
        let keys = |list: &'a [String]| list.iter().map(String::as_str);
        let writes: BTreeSet<_> = states.iter().flat_map(|state| keys(&state.writes)).collect();
        let reads = states.iter().flat_map(|state| keys(&state.reads));
        let known = reads.chain(writes.iter().copied()).collect();
        // What a setter wrote is there to be read; whether it is the state of the methods nobody knows.
        let keeping: Vec<_> =
            states.iter().filter(|state| !state.writes.is_empty() && !is_setter(state)).collect();
        let is_shared = |key: &&str| {
            let writes = |state: &&SiblingState| state.writes.iter().any(|written| written == key);
            !keeping.is_empty() && keeping.iter().all(writes)
        };
        let mut shared = writes.iter().copied().filter(is_shared);
        let shared = shared.next().filter(|_| shared.next().is_none());
        Self { writes, known, shared }
    }

    fn is_drift(&self, used: &ContextUse, program: &Program<'_>) -> bool {
        let key = used.key.as_str();
        if self.writes.is_empty() || VIEWS.contains(&key) {
            return false;
        }
        if program.writes.contains(key) {
            return self.is_second_key(key, program);
        }
        !self.writes.contains(key) && self.writes.is_disjoint(&program.keys)
    }

    /// Whether `key` is new, while the program leaves the shared key alone.
    fn is_second_key(&self, key: &str, program: &Program<'_>) -> bool {
        let Some(shared) = self.shared else { return false };
        !self.known.contains(key) && !program.keys.contains(shared)
    }

    /// The key to use: the shared one, else the one spelled most alike.
    fn right_key(&self, key: &str) -> Option<&'a str> {
        let alike = |known: &&&str| common_prefix(known, key);
        self.shared.or_else(|| self.writes.iter().max_by_key(alike).copied())
    }
}

/// What the program reads and writes.
struct Program<'a> {
    uses: &'a [ContextUse],
    keys: BTreeSet<&'a str>,
    writes: BTreeSet<&'a str>,
}

impl<'a> Program<'a> {
    fn of(uses: &'a [ContextUse]) -> Self {
        let writes = uses.iter().filter(|used| used.access == ContextAccess::Write);
        Self {
            uses,
            keys: uses.iter().map(|used| used.key.as_str()).collect(),
            writes: writes.map(|used| used.key.as_str()).collect(),
        }
    }
}

fn is_setter(state: &SiblingState) -> bool {
    state.method.ends_with('=')
}

fn common_prefix(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
}
