//! The rule `self_materialization`, against an agent that asks for a tool of its own role.

use Language::{Python, Ruby};
use unicode_normalization::UnicodeNormalization;

use crate::artifact::RunVerdict;
use crate::dialect::Language;

use super::{Finding, Guardrail, RuleCheck, Severity, ViolationType, passes, violates};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "self_materialization",
    violation_type: ViolationType::ToolRegistry,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Request(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "an agent that asks for a tool of its own role",
    details: "\
It would call itself to do the work it was called for, until the allowance is spent. Decided when the program
asks for the tool, so a branch that is not taken does not count. Roles are compared trimmed, normalised and without
regard to case.",
    correction: "Do the work of this method here; use `tool` or `delegate` only for another role.",
    examples: &[
        violates(Python, "tool(\"calculator\").add(1, 2)"),
        passes(Python, "tool(\"converter\").to_float(\"1\")"),
        violates(Ruby, "delegate(\"Calculator\").add(1, 2)"),
        passes(Ruby, "delegate(\"converter\").to_f(\"1\")"),
    ],
};

/// The violation of a running program of the role `own` that asks for the role `asked`, if both are one role.
fn find(own: &str, asked: &str) -> Option<Finding> {
    let finding = Finding {
        message: format!("the agent asks for a tool of its own role `{}`", asked.trim()),
        location: None,
        correction: None,
    };
    (folded(own) == folded(asked)).then_some(finding)
}

fn folded(role: &str) -> String {
    role.trim().nfc().collect::<String>().to_lowercase()
}
