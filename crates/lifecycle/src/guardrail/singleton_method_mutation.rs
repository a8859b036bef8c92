//! `singleton_method_mutation`: giving an agent methods, or changing `Agent`, `Outcome` or builtins.
//!
//! An agent answers any method by itself; a method attached to it would hide that and vanish with
//! the worker. Assigning plain data (`agent.memory = 5`) is a setter and passes, as do methods of
//! the program's own classes and objects. What is an agent is followed through names; one that goes
//! through a list or a function of the program is refused the method while it runs, by this same rule.
//!
//! ```python
//! t = tool("fetcher")
//! t.fetch = lambda url: "<html>"     # barred, as are setattr(t, …) and type(t).fetch = …
//! __builtins__["print"] = None       # barred, as is del Outcome.ok
//! t.memory = 5                       # passes
//! ```
//! ```ruby
//! t = tool("fetcher")
//! t.define_singleton_method :fetch do "<html>" end   # barred, as are def t.fetch, class << t
//! class Agent; end                                   # barred, as is Outcome.prepend(Loud)
//! class Cart; def self.empty = new; end              # passes
//! ```

use serde_json::Value;

use crate::dialect::{
    Assignment, Call, Definition, DefinitionKind, Language, Operand, Owner, Position, Target,
};

use super::{Finding, Rule, Subject, Violation};
use crate::excerpt::shortened;

const CORRECTION: &str = "Call the agent's dynamic methods directly (`tool(\"name\").any_method(...)`) \
     and define plain helper functions instead of attaching methods to objects.";

/// Characters of a method's name that are told.
const MAX_NAME_CHARS: usize = 80;

/// Ruby methods that change what they are called on, or what its objects answer.
const CHANGERS: &[&str] = &[
    "alias_method",
    "attr_accessor",
    "attr_reader",
    "attr_writer",
    "class_eval",
    "class_exec",
    "class_variable_set",
    "const_set",
    "define_method",
    "define_singleton_method",
    "extend",
    "include",
    "instance_eval",
    "instance_exec",
    "instance_variable_set",
    "module_eval",
    "module_exec",
    "prepend",
    "private_class_method",
    "private_constant",
    "public_class_method",
    "remove_const",
    "remove_method",
    "undef_method",
];

/// Methods of a Python map that change it.
const MAP_CHANGERS: &[&str] =
    &["__delitem__", "__setitem__", "clear", "pop", "popitem", "setdefault", "update"];

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    let found = match subject.language {
        Language::Python => python(subject),
        Language::Ruby => ruby(subject),
    };
    let (what, position) = found?;
    Some(Finding::at(position, format!("{what} changes an object of the runtime"), CORRECTION))
}

/// The same rule, for an agent only known as one while the program runs.
pub fn attached(name: &str) -> Violation {
    let name = shortened(name, MAX_NAME_CHARS);
    let finding = Finding {
        message: format!("attaching `{name}` to an agent changes an object of the runtime"),
        location: None,
        required_correction: CORRECTION.to_owned(),
    };
    finding.of(Rule::SingletonMethodMutation)
}

fn python(subject: &Subject<'_>) -> Option<(String, Position)> {
    let assignments = subject.inspection.assignments.iter().filter_map(attaches);
    let calls = subject.inspection.calls.iter().filter_map(changes_by_call);
    assignments.chain(calls).min_by_key(|(_, position)| *position)
}

/// `agent.name = function`, `builtins.name = …`, `__builtins__["name"] = …`, `del Outcome.name`
fn attaches(assignment: &Assignment) -> Option<(String, Position)> {
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

/// `setattr(agent, …)`: a literal is a setter by another name. `builtins.__dict__.update(…)`
fn changes_by_call(call: &Call) -> Option<(String, Position)> {
    let name = call.name.as_str();
    let in_map = MAP_CHANGERS.contains(&name) && call.receiver.as_ref().is_some_and(is_runtime);
    if in_map {
        return Some((format!("`{name}`"), call.position));
    }
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
    object.is_agent() || is_runtime(object) || matches!(object.held(), Operand::Context)
}

fn ruby(subject: &Subject<'_>) -> Option<(String, Position)> {
    let calls = subject.inspection.calls.iter().filter_map(defines_by_call);
    let definitions = subject.inspection.definitions.iter().filter_map(defines_on);
    let assignments = subject.inspection.assignments.iter().filter_map(replaces);
    calls.chain(definitions).chain(assignments).min_by_key(|(_, position)| *position)
}

fn defines_by_call(call: &Call) -> Option<(String, Position)> {
    let receiver = call.receiver.as_ref()?;
    let name = call.name.as_str();
    let changes = is_protected(receiver) && CHANGERS.contains(&name);
    let barred = changes || replaces_by_call(receiver, call);
    barred.then(|| (format!("`{name}`"), call.position))
}

/// `Object.const_set(:Outcome, …)`
fn replaces_by_call(receiver: &Operand, call: &Call) -> bool {
    matches!(receiver.path(), Some("Object" | "::Object"))
        && matches!(call.name.as_str(), "const_set" | "remove_const")
        && call.argument(0).and_then(Operand::text).is_some_and(is_runtime_name)
}

fn is_runtime_name(name: &str) -> bool {
    matches!(name, "Agent" | "Outcome")
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
            (is_protected(object), format!("`def object.{}`", definition.name))
        }
        (DefinitionKind::Singleton, Owner::Object(object)) => {
            (is_protected(object), "`class << object`".to_owned())
        }
        (DefinitionKind::Function | DefinitionKind::Singleton, _) => return None,
    };
    barred.then_some((what, definition.position))
}

/// `Outcome = …`, `Agent::Outcome = …`
fn replaces(assignment: &Assignment) -> Option<(String, Position)> {
    let (name, barred) = match &assignment.target {
        Target::Name(name) => (name, is_runtime_name(name)),
        Target::Attribute { object, name } => (name, is_runtime(object)),
        Target::Item { .. } => return None,
    };
    barred.then(|| (format!("replacing `{name}`"), assignment.position))
}
