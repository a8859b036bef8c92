//! `self_materialization`: an agent that asks for a tool of its own role.
//!
//! It would call itself to do the work it was called for, until the allowance is spent. Roles are
//! compared trimmed, normalised and without regard to case.
//!
//! ```python
//! tool("calculator").add(1, 2)       # barred in the agent `calculator`
//! tool("converter").to_float("1")    # passes
//! ```
//! ```ruby
//! delegate("Calculator").add(1, 2)   # barred in the agent `calculator`
//! delegate("converter").to_f("1")    # passes
//! ```

use unicode_normalization::UnicodeNormalization;

use super::{Finding, Rule, Subject, Violation};

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    subject.inspection.agents().find_map(|(name, position)| {
        let finding = found(subject.role, name)?;
        Some(Finding { location: Some(position), ..finding })
    })
}

/// The same rule, for a name only known while the program runs.
pub fn check_role(own: &str, asked: &str) -> Option<Violation> {
    found(own, asked).map(|finding| finding.of(Rule::SelfMaterialization))
}

fn found(own: &str, asked: &str) -> Option<Finding> {
    (folded(own) == folded(asked)).then(|| Finding {
        message: format!("the agent asks for a tool of its own role `{}`", asked.trim()),
        location: None,
        required_correction:
            "Do the work of this method here; use `tool` or `delegate` only for another role."
                .to_owned(),
    })
}

fn folded(role: &str) -> String {
    role.trim().nfc().collect::<String>().to_lowercase()
}
