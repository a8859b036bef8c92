//! The rule `context_tools_shape_misuse`, against treating `context["tools"]` as a list of named records.

use Language::{Python, Ruby};
use serde_json::Value;

use crate::artifact::RunVerdict;
use crate::dialect::{
    AssignmentStatement, CallExpression, Language, Lookup, Operand, Position, Target,
};

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "context_tools_shape_misuse",
    violation_type: ViolationType::ToolRegistry,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Program(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "treating `context[\"tools\"]` as a list of named records",
    details: "\
The registry maps names to metadata. Iterating over it yields names (Python) or pairs (Ruby), which have no
`name`; it has no positions, nothing can be appended to it, and a list cannot replace it. Other lists of
records with a `name` pass, whatever else the program does with the registry.",
    correction: "Test membership by name (`\"x\" in context[\"tools\"]`, `context[:tools].key?(\"x\")`) or \
                 iterate over name and metadata pairs.",
    examples: &[
        violates(Python, "result = [t[\"name\"] for t in context[\"tools\"]]"),
        passes(Python, "result = list(context[\"tools\"])"),
        passes(Python, "result = [i[\"name\"] for i in args[0]]"),
        violates(Ruby, "context[:tools].map { |t| t[:name] }"),
        passes(Ruby, "context[:tools].map { |name, info| name }"),
        passes(Ruby, "args[0].map { |i| i[:name] }"),
    ],
};

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    let lookups = input.inspection.lookups.iter().filter_map(misread);
    let calls = input.inspection.calls.iter().filter_map(misused);
    let assignments = input.inspection.assignments.iter().filter_map(relisted);
    let position = lookups.chain(calls).chain(assignments).min()?;
    Some(Finding::at(
        position,
        "`context.tools` maps tool names to metadata; it is not a list of records with a `name`",
    ))
}

/// `item["name"]`, `tools[0]`
fn misread(lookup: &Lookup) -> Option<Position> {
    let object = lookup.object.resolved();
    let misread = (matches!(object, Operand::ToolItem) && lookup.key == "name")
        || (matches!(object, Operand::Tools) && lookup.key.is_number());
    misread.then_some(lookup.position)
}

/// `tools.append(…)`, `tools << …`, `item.get("name")`
fn misused(call: &CallExpression) -> Option<Position> {
    let receiver = call.receiver.as_ref().map(Operand::resolved);
    let name = call.name.as_str();
    let appends =
        matches!(name, "append" | "extend" | "insert" | "push" | "<<" | "unshift" | "concat");
    let reads_name = name == "get" && call.argument(0).and_then(Operand::text) == Some("name");
    let misused = (receiver == Some(&Operand::Tools) && appends)
        || (receiver == Some(&Operand::ToolItem) && reads_name);
    misused.then_some(call.position)
}

/// `context["tools"] = [...]`, `context["tools"] += [...]`
fn relisted(assignment: &AssignmentStatement) -> Option<Position> {
    let (object, key) = match &assignment.target {
        Target::Name(_) => return None,
        Target::Attribute { object, name } => (object, name.as_str()),
        Target::Item { object, key } => (object, key.as_ref()?.as_str()?),
    };
    let registry = matches!(object.resolved(), Operand::Context) && key == "tools";
    let list = assignment.value.literal().is_some_and(Value::is_array);
    (registry && list).then_some(assignment.position)
}
