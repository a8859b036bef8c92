//! What an expression is, as far as a guardrail needs to know.

use std::sync::Arc;

use serde_json::{Map, Value};

/// An expression, summarised.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// The agent's memory: `context`, `memory`.
    Context,
    /// The tool registry: `context["tools"]`.
    Tools,
    /// Something inside a registry entry: `context["tools"]["fetcher"]`.
    ToolEntry,
    /// What iterating the registry itself yields: a name in Python, a pair in Ruby.
    ToolItem,
    /// A list of these: `list(context["tools"])`.
    ToolItems,
    /// An agent, the value of `tool(…)`, `delegate(…)`, `Agent.for(…)`: its role, when constant.
    Agent(Option<Arc<str>>),
    /// Something in memory: `context["rates"]`.
    Remembered,
    /// A module, class or imported function by its full name: `os.path`, `Net::HTTP`.
    Path(String),
    /// Code as a value: a function, lambda, proc or method object.
    Function,
    /// What a class or function returned, by the full name of that class or function when it is known.
    Instance(Option<Arc<str>>),
    /// A constant: a scalar, or a list or map of constants.
    Literal(Arc<Value>),
    /// A variable and what it was last given.
    Variable {
        /// Its name.
        name: String,
        /// What it was last given, never itself a variable or a group.
        holds: Arc<Self>,
    },
    /// Values any of which may be (in) the value: a list, a map, `a or b`, `a if c else b`.
    Group(Arc<[Self]>),
    /// A constant given in place of what was not there: the right side of `found or […]`.
    Fallback(Arc<Self>),
    /// Anything else.
    Unknown,
}

impl From<Value> for Operand {
    fn from(value: Value) -> Self {
        Self::Literal(Arc::new(value))
    }
}

impl Operand {
    /// The operand; for a variable, what it was last given.
    pub fn resolved(&self) -> &Self {
        if let Self::Variable { holds, .. } = self { holds } else { self }
    }

    /// Whether it is an agent.
    pub fn is_agent(&self) -> bool {
        matches!(self.resolved(), Self::Agent(_))
    }

    /// The role of the agent it is.
    pub fn role(&self) -> Option<&str> {
        if let Self::Agent(role) = self.resolved() { role.as_deref() } else { None }
    }

    /// Whether it is, or holds, something that can be called: a function or an agent.
    pub fn is_executable(&self) -> bool {
        if let Self::Group(members) = self.resolved() {
            return members.iter().any(Self::is_executable);
        }
        matches!(self.resolved(), Self::Function | Self::Agent(_))
    }

    /// The constant it is.
    pub fn literal(&self) -> Option<&Value> {
        if let Self::Literal(value) = self.resolved() { Some(value) } else { None }
    }

    /// The constant text it is.
    pub fn text(&self) -> Option<&str> {
        self.literal().and_then(Value::as_str)
    }

    /// The full name it is known by.
    pub fn path(&self) -> Option<&str> {
        if let Self::Path(path) = self.resolved() { Some(path) } else { None }
    }

    /// The variable it is.
    pub fn name(&self) -> Option<&str> {
        if let Self::Variable { name, .. } = self { Some(name) } else { None }
    }

    /// What it is, where it stands in for something else.
    pub fn stands_in(&self) -> Option<&Self> {
        if let Self::Fallback(instead) = self { Some(instead) } else { None }
    }

    /// The only one it can be, or itself.
    pub fn only(&self) -> &Self {
        let Self::Group(members) = self else { return self };
        if let [only] = &**members { only } else { self }
    }

    /// Every member, itself included, variables not seen through.
    pub fn members(&self) -> Vec<&Self> {
        let mut members = vec![self];
        let mut next = 0;
        while let Some(member) = members.get(next).copied() {
            if let Self::Group(inner) = member {
                members.extend(inner.iter());
            }
            next += 1;
        }
        members
    }

    /// What looking up `key` in it gives.
    pub(super) fn item(&self, key: Option<&Value>) -> Self {
        let name = key.and_then(Value::as_str);
        match (self.resolved(), name) {
            (Self::Context, Some("tools")) => Self::Tools,
            (Self::Context | Self::Remembered, _) => Self::Remembered,
            (Self::Tools | Self::ToolEntry, _) => Self::ToolEntry,
            (Self::ToolItems, _) if key.is_some_and(Value::is_number) => Self::ToolItem,
            (Self::Agent(_), Some("__class__")) => Self::Path("Agent".to_owned()),
            // A member of an agent is a way to call it.
            (Self::Agent(role), Some(_)) => Self::Agent(role.clone()),
            (Self::Path(path), Some(name)) => match path.strip_suffix(".__dict__") {
                Some(module) => Self::Path(format!("{module}.{name}")),
                None if path == "sys.modules" => Self::Path(name.to_owned()),
                None => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    /// What iterating over it yields.
    pub(super) fn element(&self) -> Self {
        let of_registry = matches!(self.resolved(), Self::Tools | Self::ToolItems);
        if of_registry { Self::ToolItem } else { Self::Unknown }
    }

    /// The operand as a fallback, given in place of something that was not there.
    pub(super) fn into_fallback(self) -> Self {
        if self.literal().is_some() { Self::Fallback(Arc::new(self)) } else { self }
    }

    /// One of several: the one that matters to a guardrail if there is one, else all.
    pub(super) fn one_of(choices: Vec<Self>) -> Self {
        let informative = |choice: &&Self| {
            matches!(
                choice.resolved(),
                Self::Context | Self::Tools | Self::ToolEntry | Self::ToolItems | Self::Agent(_)
            )
        };
        if let Some(choice) = choices.iter().find(informative) {
            return choice.clone();
        }
        Self::Group(choices.into())
    }

    /// A list of these: a constant when all of them are.
    pub(super) fn list(members: Vec<Self>) -> Self {
        match constants(members) {
            Ok(values) => Self::from(Value::Array(values)),
            Err(members) => Self::Group(members.into()),
        }
    }

    /// A map of these: a constant when all keys and values are. Else one of the constant values by their keys, with
    /// `true` for a value that is computed, and the computed values.
    pub(super) fn map(keys: Vec<Option<Value>>, members: Vec<Self>) -> Self {
        let keys: Option<Vec<Value>> = keys.into_iter().collect();
        let Some(keys) = keys else { return Self::Group(members.into()) };
        let text = |key: &Value| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        let (mut constants, mut others) = (Map::new(), Vec::new());
        for (key, member) in keys.iter().zip(members) {
            if let Self::Literal(value) = member {
                constants.insert(text(key), Arc::unwrap_or_clone(value));
            } else {
                constants.insert(text(key), Value::Bool(true));
                others.push(member);
            }
        }
        let constants = Self::from(Value::Object(constants));
        if others.is_empty() {
            return constants;
        }
        others.push(constants);
        Self::Group(others.into())
    }

    /// What a variable given this holds: bounded, so that long chains of names stay flat.
    pub(super) fn kept(&self) -> Self {
        let held = self.resolved();
        match held {
            Self::Group(_) if held.is_executable() => Self::Function,
            Self::Group(_) | Self::Fallback(_) => Self::Unknown,
            Self::Context
            | Self::Tools
            | Self::ToolEntry
            | Self::ToolItem
            | Self::ToolItems
            | Self::Agent(_)
            | Self::Remembered
            | Self::Path(_)
            | Self::Function
            | Self::Instance(_)
            | Self::Literal(_)
            | Self::Variable { .. }
            | Self::Unknown => held.clone(),
        }
    }
}

/// The values of constants, or the members back when one is not.
fn constants(members: Vec<Operand>) -> Result<Vec<Value>, Vec<Operand>> {
    if !members.iter().all(|member| matches!(member, Operand::Literal(_))) {
        return Err(members);
    }
    let value = |member: Operand| {
        let Operand::Literal(value) = member else { return Value::Null };
        Arc::unwrap_or_clone(value)
    };
    Ok(members.into_iter().map(value).collect())
}

/// Whether a call gives an agent. `Agent.for` and its like do; `Agent::Outcome.ok` does not.
pub(super) fn makes_agent(receiver: Option<&Operand>, name: &str) -> bool {
    match receiver.map(Operand::resolved) {
        None => matches!(name, "tool" | "delegate" | "Agent"),
        Some(Operand::Agent(_)) => matches!(name, "tool" | "delegate"),
        Some(Operand::Path(path)) => matches!(path.as_str(), "Agent" | "::Agent"),
        Some(_) => false,
    }
}

/// The agent such a call gives; `asked` is its first argument.
pub(super) fn agent(asked: Option<&Operand>) -> Operand {
    Operand::Agent(asked.and_then(Operand::text).map(Arc::from))
}

/// Whether a call gives its first argument as the program's success.
pub(super) fn gives_success(receiver: Option<&Operand>, name: &str) -> bool {
    let path = receiver.and_then(Operand::path);
    name == "ok" && path.is_some_and(|path| path.ends_with("Outcome"))
}
