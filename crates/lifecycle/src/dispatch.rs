//! Surface: is a name on an agent a setter, a reader, a reserved word, or a call?

use serde_json::Value;

use crate::context::{Context, VIEWS};
use crate::request::Arguments;

/// Names that are part of the agent surface itself and are never generated.
pub const RESERVED: [&str; 7] = [
    "tool",
    "delegate",
    "remember",
    "runtime_context",
    "to_s",
    "inspect",
    "define_singleton_method",
];

/// The method of a question in plain words.
pub const ASK: &str = "ask";

/// What using a name means.
#[derive(Debug, Clone, PartialEq)]
pub enum Dispatch {
    /// `name=`: write a context key; no model, no log entry.
    Write {
        /// The key.
        key: String,
        /// Its new value: the first argument, or null.
        value: Value,
    },
    /// A context key named without arguments: read it; no model, no log entry.
    Read(Value),
    /// Naming it is `invalid_call`.
    Refused {
        /// What to do instead.
        reason: String,
    },
    /// Everything else.
    Call,
}

/// Decides what `name(arguments)` means for an agent that remembers `context`.
pub fn dispatch(name: &str, arguments: &Arguments, context: &Context) -> Dispatch {
    if RESERVED.contains(&name) {
        let reason = format!(
            "`{name}` is part of the agent surface and is never generated; use the function of that name, or call another method"
        );
        return Dispatch::Refused { reason };
    }
    if let Some(key) = setter_key(name) {
        return match refused_key(key) {
            Some(reason) => Dispatch::Refused { reason },
            None => Dispatch::Write {
                key: key.to_owned(),
                value: arguments.args.first().cloned().unwrap_or(Value::Null),
            },
        };
    }
    match context.get(name) {
        Some(value) if arguments.is_empty() => Dispatch::Read(value.clone()),
        Some(_) | None => Dispatch::Call,
    }
}

/// Whether a name is that of a setter.
pub fn is_setter(name: &str) -> bool {
    setter_key(name).is_some()
}

/// Whether an agent answers to `name` without asking a model.
pub fn responds_to(name: &str, context: &Context) -> bool {
    setter_key(name).is_some() || context.contains(name)
}

/// Why a key cannot be written by hand, if it cannot.
pub fn refused_key(key: &str) -> Option<String> {
    VIEWS.contains(&key).then(|| format!("`{key}` is a read-only view; choose another key"))
}

/// `memory=` names `memory`; operators such as `>=` and `==` are not setters.
fn setter_key(name: &str) -> Option<&str> {
    let key = name.strip_suffix('=')?.trim_end();
    key.ends_with(|c: char| c.is_alphanumeric() || c == '_').then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ContextChanges;
    use serde_json::{Map, json};

    fn remembering(key: &str, value: Value) -> Context {
        let mut context = Context::default();
        context.apply(ContextChanges {
            set: Map::from_iter([(key.to_owned(), value)]),
            unset: vec![],
        });
        context
    }

    #[test]
    fn names_mean_what_the_table_says() {
        let context = remembering("memory", json!(5));
        let none = Arguments::default();
        let three = Arguments { args: vec![json!(3)], ..Arguments::default() };
        let write = |value| Dispatch::Write { key: "memory".into(), value };
        for (name, arguments, expected) in [
            ("memory=", &three, write(json!(3))),
            ("memory=", &none, write(Value::Null)),
            ("memory", &none, Dispatch::Read(json!(5))),
            ("memory", &three, Dispatch::Call),
            ("add", &three, Dispatch::Call),
            (">=", &three, Dispatch::Call),
            ("==", &three, Dispatch::Call),
        ] {
            assert_eq!(dispatch(name, arguments, &context), expected, "{name}");
        }
        for name in RESERVED.into_iter().chain(["tools=", "conversation_history="]) {
            assert!(matches!(dispatch(name, &three, &context), Dispatch::Refused { .. }), "{name}");
        }
    }

    #[test]
    fn responds_to_setters_and_keys_only() {
        let context = remembering("value", json!(1));
        assert!(responds_to("anything=", &context));
        assert!(responds_to("value", &context));
        assert!(!responds_to("increment", &context));
        assert!(!responds_to(">=", &context));
    }
}
