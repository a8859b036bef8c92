//! `context_tools_shape_misuse`: treating `context["tools"]` as a list of named records.
//!
//! The registry maps names to metadata. Iterating over it gives names (Python) or pairs (Ruby), which
//! have no `name`; it has no positions, nothing can be appended to it, and no list can replace it.
//!
//! ```python
//! [t["name"] for t in context["tools"]]      # barred
//! list(context["tools"])                     # passes: the names
//! [i["name"] for i in items]                 # passes, whatever else mentions the registry
//! ```
//! ```ruby
//! context[:tools].map { |t| t[:name] }       # barred
//! context[:tools].map { |name, info| name }  # passes
//! items.map { |i| i[:name] }                 # passes, whatever else mentions the registry
//! ```

use serde_json::Value;

use crate::dialect::{Assignment, Call, Lookup, Operand, Position, Target};

use super::{Finding, Subject};

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    let lookups = subject.inspection.lookups.iter().filter_map(misread);
    let calls = subject.inspection.calls.iter().filter_map(misused);
    let assignments = subject.inspection.assignments.iter().filter_map(relisted);
    let position = lookups.chain(calls).chain(assignments).min()?;
    Some(Finding::at(
        position,
        "`context.tools` maps tool names to metadata; it is not a list of records with a `name`",
        "Test membership by name (`\"x\" in context[\"tools\"]`, `context[:tools].key?(\"x\")`) or \
         iterate over name and metadata pairs.",
    ))
}

/// `item["name"]`, `tools[0]`
fn misread(lookup: &Lookup) -> Option<Position> {
    let object = lookup.object.held();
    let misread = (matches!(object, Operand::ToolItem) && lookup.key == "name")
        || (matches!(object, Operand::Tools) && lookup.key.is_number());
    misread.then_some(lookup.position)
}

/// `tools.append(…)`, `tools << …`, `item.get("name")`
fn misused(call: &Call) -> Option<Position> {
    let receiver = call.receiver.as_ref().map(Operand::held);
    let name = call.name.as_str();
    let appends =
        matches!(name, "append" | "extend" | "insert" | "push" | "<<" | "unshift" | "concat");
    let reads_name = name == "get" && call.argument(0).and_then(Operand::text) == Some("name");
    let misused = (receiver == Some(&Operand::Tools) && appends)
        || (receiver == Some(&Operand::ToolItem) && reads_name);
    misused.then_some(call.position)
}

/// `context["tools"] = [...]`, `context["tools"] += [...]`
fn relisted(assignment: &Assignment) -> Option<Position> {
    let (object, key) = match &assignment.target {
        Target::Name(_) => return None,
        Target::Attribute { object, name } => (object, name.as_str()),
        Target::Item { object, key } => (object, key.as_ref()?.as_str()?),
    };
    let registry = matches!(object.held(), Operand::Context) && key == "tools";
    let list = assignment.value.literal().is_some_and(Value::is_array);
    (registry && list).then_some(assignment.position)
}
