//! `singleton_method_mutation`: giving an agent methods, or changing `Agent`, `Outcome` or builtins.
//!
//! An agent answers any method by itself; a method attached to it would hide that and vanish with
//! the worker. Assigning plain data (`agent.memory = 5`) is a setter and passes, as do methods of
//! the program's own classes and objects.
//!
//! ```python
//! t = tool("fetcher")
//! t.fetch = lambda url: "<html>"     # barred, as are setattr(t, …) and builtins.print = …
//! t.memory = 5                       # passes
//! ```
//! ```ruby
//! t = tool("fetcher")
//! t.define_singleton_method :fetch do "<html>" end   # barred, as are def t.fetch, class << t
//! class Agent; end                                   # barred
//! class Cart; def self.empty = new; end              # passes
//! ```

use crate::dialect::{
    Assignment, Call, Definition, DefinitionKind, Language, Operand, Owner, Position, Target,
};

use super::{Finding, Subject};

const CORRECTION: &str = "Call the agent's dynamic methods directly (`tool(\"name\").any_method(...)`) \
     and define plain helper functions instead of attaching methods to objects.";

/// Ruby methods that define methods on whatever they are called on.
const DEFINERS: &[&str] = &[
    "class_eval",
    "class_exec",
    "define_method",
    "extend",
    "instance_eval",
    "instance_exec",
    "module_eval",
    "module_exec",
];

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    let found = match subject.language {
        Language::Python => python(subject),
        Language::Ruby => ruby(subject),
    };
    let (what, position) = found?;
    Some(Finding::at(position, format!("{what} changes an object of the runtime"), CORRECTION))
}

fn python(subject: &Subject<'_>) -> Option<(String, Position)> {
    let assignments = subject.inspection.assignments.iter().filter_map(attaches);
    let calls = subject.inspection.calls.iter().filter_map(sets_attribute);
    assignments.chain(calls).min_by_key(|(_, position)| *position)
}

/// `agent.name = function`, `builtins.name = …`, `Outcome.name = …`
fn attaches(assignment: &Assignment) -> Option<(String, Position)> {
    let Target::Attribute { object, name } = &assignment.target else { return None };
    let on_agent = object.is_agent() && assignment.value.is_executable();
    (on_agent || is_runtime(object)).then(|| (format!("assigning `{name}`"), assignment.position))
}

/// `setattr(agent, …)`: a literal is a setter by another name.
fn sets_attribute(call: &Call) -> Option<(String, Position)> {
    let by_method = matches!(call.name.as_str(), "__setattr__");
    if call.path().as_deref() != Some("setattr") && !by_method {
        return None;
    }
    let object = call.argument(0)?;
    let is_data = call.argument(2).is_some_and(|value| value.literal().is_some());
    let on_agent = object.is_agent() && !is_data;
    (on_agent || is_runtime(object)).then(|| (format!("`{}`", call.name), call.position))
}

/// Whether this is `Agent`, `Outcome` or the module of builtins.
fn is_runtime(object: &Operand) -> bool {
    object.path().is_some_and(|path| {
        let path = path.trim_start_matches("::");
        matches!(path, "Agent" | "Outcome" | "Agent::Outcome" | "Agent.Outcome" | "builtins")
    }) || matches!(object, Operand::Variable { name, .. } if name == "__builtins__")
}

fn ruby(subject: &Subject<'_>) -> Option<(String, Position)> {
    let calls = subject.inspection.calls.iter().filter_map(defines_by_call);
    let definitions = subject.inspection.definitions.iter().filter_map(defines_on);
    let assignments = subject.inspection.assignments.iter().filter_map(replaces);
    calls.chain(definitions).chain(assignments).min_by_key(|(_, position)| *position)
}

fn defines_by_call(call: &Call) -> Option<(String, Position)> {
    let receiver = call.receiver.as_ref();
    let barred = if call.name == "define_singleton_method" {
        receiver.is_none_or(|receiver| !is_own(receiver))
    } else {
        let on = receiver.is_some_and(|receiver| receiver.is_agent() || is_runtime(receiver));
        on && DEFINERS.contains(&call.name.as_str())
    };
    barred.then(|| (format!("`{}`", call.name), call.position))
}

/// `def object.name`, `class << object`, `class Agent`
fn defines_on(definition: &Definition) -> Option<(String, Position)> {
    let (barred, what) = match (&definition.kind, &definition.owner) {
        (DefinitionKind::Class, _) => {
            let name = definition.name.as_str();
            let reopened = matches!(name, "Agent" | "Outcome" | "Agent::Outcome");
            (reopened, format!("reopening `{name}`"))
        }
        (DefinitionKind::Function, Owner::Object(object)) => {
            (!is_own(object), format!("`def object.{}`", definition.name))
        }
        (DefinitionKind::Singleton, Owner::Object(object)) => {
            (!is_own(object), "`class << object`".to_owned())
        }
        (DefinitionKind::Function | DefinitionKind::Singleton, _) => return None,
    };
    barred.then_some((what, definition.position))
}

/// `Outcome = …`
fn replaces(assignment: &Assignment) -> Option<(String, Position)> {
    let Target::Name(name) = &assignment.target else { return None };
    matches!(name.as_str(), "Agent" | "Outcome")
        .then(|| (format!("replacing `{name}`"), assignment.position))
}

/// Whether the object is surely the program's own: built, written or defined by it.
fn is_own(object: &Operand) -> bool {
    let named = object.path().is_some() && !is_runtime(object);
    named || matches!(object.held(), Operand::Instance | Operand::Literal(_))
}
