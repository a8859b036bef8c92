//! The rule `singleton_method_mutation`, against giving an agent methods, or changing `Agent`, `Outcome` or builtins.

use Language::{Python, Ruby};
use serde_json::Value;

use crate::artifact::RunVerdict;
use crate::dialect::library::{MUTATES, REDEFINES};
use crate::dialect::{
    AssignmentStatement, CallExpression, Definition, DefinitionKind, DefinitionOwner, Language,
    Operand, Position, Target,
};
use crate::excerpt::shortened;

use super::{
    Finding, Guardrail, GuardrailInput, Rule, RuleCheck, Severity, Violation, ViolationType,
    passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "singleton_method_mutation",
    violation_type: ViolationType::ToolRegistry,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Program(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "giving an agent methods, or changing `Agent`, `Outcome` or builtins",
    details: "\
An agent answers any method by itself; a method attached to it would hide that and vanish with the worker.
Assigning plain data (`agent.memory = 5`) is a setter and passes, as do methods of the program's own classes
and objects. A class of the program may be named `Agent` or `Outcome`: it takes the place of the runtime's for this
program, unless the program also uses the runtime's (`Outcome.error`). Agents are followed through variables; an agent that goes through a list or a function of the
program is refused the method when it is attached, by the same rule.",
    correction: "Call the agent's dynamic methods directly (`tool(\"name\").any_method(...)`) and define \
                 plain helper functions instead of attaching methods to objects. Rename a class of \
                 your own that is named `Agent` or `Outcome`.",
    examples: &[
        violates(Python, "t = tool(\"fetcher\")\nt.fetch = lambda url: \"<html>\""),
        violates(Python, "del Outcome.ok"),
        violates(Python, "__builtins__[\"print\"] = None"),
        passes(Python, "t = tool(\"fetcher\")\nt.memory = 5"),
        violates(Ruby, "t = tool(\"fetcher\")\nt.define_singleton_method(:fetch) { \"<html>\" }"),
        violates(Ruby, "class Outcome\n  def note = 1\nend\nOutcome.error(\"no\")"),
        passes(Ruby, "Agent = Struct.new(:name)\nAgent.new(\"Ann\").name"),
        passes(Ruby, "class Cart\n  def self.empty = new\nend\nCart.empty"),
    ],
};

/// Characters of a method's name that a message shows.
const MAX_NAME_CHARS: usize = 80;

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    let found = match input.language {
        Language::Python => python(input),
        Language::Ruby => ruby(input),
    };
    let (what, position) = found?;
    Some(Finding::at(position, format!("{what} changes an object of the runtime")))
}

/// The violation of a running program that attaches `name` to an agent.
pub fn attached(name: &str) -> Violation {
    let name = shortened(name, MAX_NAME_CHARS);
    let finding = Finding {
        message: format!("attaching `{name}` to an agent changes an object of the runtime"),
        location: None,
        correction: None,
    };
    finding.of(Rule::SingletonMethodMutation)
}

fn python(input: &GuardrailInput<'_>) -> Option<(String, Position)> {
    let assignments = input.inspection.assignments.iter().filter_map(attaches);
    let calls = input.inspection.calls.iter().filter_map(sets_attribute);
    let maps = input.inspection.calls_with(MUTATES).filter_map(|(call, _)| changes_map(call));
    assignments.chain(calls).chain(maps).min_by_key(|(_, position)| *position)
}

/// `agent.name = function`, `builtins.name = …`, `__builtins__["name"] = …`, `del Outcome.name`
fn attaches(assignment: &AssignmentStatement) -> Option<(String, Position)> {
    let (object, name, on_agent) = match &assignment.target {
        Target::Name(_) => return None,
        Target::Attribute { object, name } => {
            (object, name.as_str(), object.is_agent() && assignment.value.is_executable())
        }
        Target::Item { object, key } => {
            (object, key.as_ref().and_then(Value::as_str).unwrap_or("an item"), false)
        }
    };
    let changed = on_agent || is_runtime(object);
    changed.then(|| (format!("changing `{name}`"), assignment.position))
}

/// `builtins.__dict__.update(…)`
fn changes_map(call: &CallExpression) -> Option<(String, Position)> {
    let changed = call.receiver.as_ref().is_some_and(is_runtime);
    changed.then(|| (format!("`{}`", call.name), call.position))
}

/// `setattr(agent, …)`: a literal is a setter by another name.
fn sets_attribute(call: &CallExpression) -> Option<(String, Position)> {
    let name = call.name.as_str();
    let by_function = matches!(call.path().as_deref(), Some("setattr" | "delattr"));
    if !by_function && !matches!(name, "__setattr__" | "__delattr__") {
        return None;
    }
    let object = call.argument(0)?;
    let is_data = call.argument(2).is_some_and(|value| value.literal().is_some());
    let on_agent = object.is_agent() && !is_data;
    (on_agent || is_runtime(object)).then(|| (format!("`{name}`"), call.position))
}

/// Whether this is `Agent`, `Outcome` or the module of builtins.
fn is_runtime(object: &Operand) -> bool {
    object.path().is_some_and(|path| {
        let path = path.trim_start_matches("::").trim_end_matches(".__dict__");
        matches!(path, "Agent" | "Outcome" | "Agent::Outcome" | "Agent.Outcome" | "builtins")
    })
}

/// Whether this is one of the runtime's own objects: then only the runtime defines what it does.
fn is_protected(object: &Operand) -> bool {
    object.is_agent() || is_runtime(object) || matches!(object.resolved(), Operand::Context)
}

fn ruby(input: &GuardrailInput<'_>) -> Option<(String, Position)> {
    let redefining = input.inspection.calls_with(REDEFINES);
    let calls = redefining.filter_map(|(call, _)| defines_by_call(call));
    let definitions = input.inspection.definitions.iter().filter_map(|it| defines_on(it, input));
    let assignments = input.inspection.assignments.iter().filter_map(|it| replaces(it, input));
    calls.chain(definitions).chain(assignments).min_by_key(|(_, position)| *position)
}

fn defines_by_call(call: &CallExpression) -> Option<(String, Position)> {
    let receiver = call.receiver.as_ref()?;
    let name = call.name.as_str();
    let changes = is_protected(receiver) || replaces_by_call(receiver, call);
    changes.then(|| (format!("`{name}`"), call.position))
}

/// `Object.const_set(:Outcome, …)`
fn replaces_by_call(receiver: &Operand, call: &CallExpression) -> bool {
    matches!(receiver.path(), Some("Object" | "::Object"))
        && matches!(call.name.as_str(), "const_set" | "remove_const")
        && call.argument(0).and_then(Operand::text).is_some_and(is_runtime_name)
}

fn is_runtime_name(name: &str) -> bool {
    matches!(name, "Agent" | "Outcome")
}

/// Whether a program that has a class of this name uses the runtime's: `Agent.for`, `Outcome.error`.
fn uses_runtime(input: &GuardrailInput<'_>, name: &str) -> bool {
    let members: &[&str] = match name {
        "Agent" => &["for"],
        _ => &["call", "error", "failure", "ok", "success"],
    };
    let is_own = |member: &str| input.inspection.definitions.iter().any(|it| it.name == member);
    let is_use = |call: &CallExpression| {
        let Some(receiver) = &call.receiver else { return false };
        let path = receiver.path().or(receiver.name()).unwrap_or_default();
        let path = path.trim_start_matches("::");
        let member = call.name.as_str();
        path == "Agent::Outcome" || (path == name && members.contains(&member) && !is_own(member))
    };
    input.inspection.calls.iter().any(is_use)
}

/// `def object.name`, `class << object`, `class Agent::Outcome`
fn defines_on(definition: &Definition, input: &GuardrailInput<'_>) -> Option<(String, Position)> {
    let (barred, what) = match (&definition.kind, &definition.owner) {
        (DefinitionKind::Class, _) => {
            let name = definition.name.as_str();
            let reopened = name == "Agent::Outcome" || hides(name, input);
            (reopened, format!("reopening `{name}`"))
        }
        (DefinitionKind::Function, DefinitionOwner::Object(object)) => {
            (is_protected(object), format!("`def object.{}`", definition.name))
        }
        (DefinitionKind::Singleton, DefinitionOwner::Object(object)) => {
            (is_protected(object), "`class << object`".to_owned())
        }
        (DefinitionKind::Function | DefinitionKind::Singleton | DefinitionKind::Lambda, _) => {
            return None;
        }
    };
    barred.then_some((what, definition.position))
}

/// Whether the program's own class of this name hides one of the runtime's that it uses.
fn hides(name: &str, input: &GuardrailInput<'_>) -> bool {
    is_runtime_name(name) && uses_runtime(input, name)
}

/// `Outcome = …`, `Agent::Outcome = …`
fn replaces(
    assignment: &AssignmentStatement,
    input: &GuardrailInput<'_>,
) -> Option<(String, Position)> {
    let (name, barred) = match &assignment.target {
        Target::Name(name) => (name, hides(name, input)),
        Target::Attribute { object, name } => (name, is_runtime(object)),
        Target::Item { .. } => return None,
    };
    barred.then(|| (format!("replacing `{name}`"), assignment.position))
}
