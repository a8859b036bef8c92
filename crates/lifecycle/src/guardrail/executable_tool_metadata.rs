//! The rule `executable_tool_metadata`, against functions, lambdas, procs or agents stored in the tool registry.

use Language::{Python, Ruby};

use crate::artifact::RunVerdict;
use crate::dialect::{AssignmentStatement, CallExpression, Language, Operand, Position, Target};

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "executable_tool_metadata",
    violation_type: ViolationType::ToolRegistry,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Program(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "functions, lambdas, procs or agents stored in the tool registry",
    details: "\
The registry holds data that outlives the worker; code in it cannot be stored, and would run without being
vetted. A tool is made by `delegate` and called by name.",
    correction: "Make a tool with `delegate(role, purpose: ..., deliverable: ...)` and call it through \
                 `tool(name)`; keep plain data in the context.",
    examples: &[
        violates(Python, "context[\"tools\"][\"double\"] = {\"run\": lambda x: x * 2}"),
        passes(Python, "context[\"handlers\"] = {\"double\": \"x * 2\"}"),
        violates(Ruby, "context[:tools][\"double\"] = ->(x) { x * 2 }"),
        violates(Ruby, "remember(tools: { double: method(:double) })"),
        passes(Ruby, "context[:factor] = 2"),
    ],
};

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    let assignments = input.inspection.assignments.iter().filter_map(stores);
    let calls = input.inspection.calls.iter().filter_map(merges);
    let position = assignments.chain(calls).min()?;
    Some(Finding::at(
        position,
        "the tool registry holds data only; a function, proc or agent is stored in it",
    ))
}

fn stores(assignment: &AssignmentStatement) -> Option<Position> {
    let in_registry = match &assignment.target {
        Target::Name(_) => false,
        Target::Attribute { object, name } => is_registry(object, Some(name)),
        Target::Item { object, key } => {
            is_registry(object, key.as_ref().and_then(|key| key.as_str()))
        }
    };
    (in_registry && assignment.value.is_executable()).then_some(assignment.position)
}

fn is_registry(object: &Operand, key: Option<&str>) -> bool {
    let inside = matches!(object.resolved(), Operand::Tools | Operand::ToolEntry);
    inside || (matches!(object.resolved(), Operand::Context) && key == Some("tools"))
}

/// `tools.store("x", f)`, `remember(tools: { x: f })`. A block is how an iterator works, not data.
fn merges(call: &CallExpression) -> Option<Position> {
    let receiver = call.receiver.as_ref().map(Operand::resolved);
    let stores =
        matches!(call.name.as_str(), "store" | "merge!" | "update" | "setdefault" | "__setitem__");
    let in_registry = stores && matches!(receiver, Some(Operand::Tools | Operand::ToolEntry));
    let in_context = matches!(receiver, None | Some(Operand::Context))
        && matches!(call.name.as_str(), "remember" | "update" | "merge!" | "store");
    let executable = call.arguments.iter().any(|argument| match argument.name.as_deref() {
        Some("&") => false,
        Some("tools") => (in_registry || in_context) && argument.value.is_executable(),
        Some(_) | None => in_registry && argument.value.is_executable(),
    });
    let keyed = in_context && call.argument(0).and_then(Operand::text) == Some("tools");
    let held = keyed && call.argument(1).is_some_and(Operand::is_executable);
    (executable || held).then_some(call.position)
}
