//! Tools that no model wrote: functions of the embedding program, MCP servers and configured commands. Here are their
//! definitions, the names by which programs call them, the arguments they get, and what is kept of a call.
//!
//! What a server says of itself is data from outside: it is bounded and cleaned when a definition is made.

mod learned;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::contract::{canonical, schema_breach};
use crate::dialect::{self, Language};
use crate::excerpt::shortened;
use crate::program::Checksum;
use crate::redact::redacted_field;
use crate::request::{Arguments, encoded_bytes};
use crate::settlement::milliseconds;

pub use learned::learned;
use shown::ranked;
pub use shown::{FoundTools, MAX_SHOWN, for_prompt, found_json, search, signature};

/// Most methods of one tool.
pub const MAX_METHODS: usize = 1000;
/// Characters kept of a description.
const MAX_DESCRIPTION_CHARS: usize = 1000;
/// Characters of a name.
pub const MAX_NAME_CHARS: usize = 128;
/// Bytes of the schema of a method's arguments or result, as JSON.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// Largest result of a call, as JSON.
pub const MAX_RESULT_BYTES: usize = 4 << 20;
/// Calls kept of one attempt, for the log.
pub const MAX_KEPT_CALLS: usize = 64;
/// Characters of one argument, and of all arguments, that the log keeps.
const MAX_ARGUMENT_CHARS: usize = 200;
const MAX_ARGUMENTS_CHARS: usize = 600;
/// Names shown in a message.
const MAX_NAMED: usize = 12;

/// The error type of a call that an outside tool itself refused or could not serve.
pub const TOOL_ERROR: &str = "tool_error";

/// The method of a tool that has only one and names none.
pub const ONLY_METHOD: &str = "run";

/// Where an outside tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutsideOrigin {
    /// Functions of the embedding program.
    Function,
    /// A command of the configuration.
    Command,
    /// An MCP server.
    Mcp,
}

impl OutsideOrigin {
    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Command => "command",
            Self::Mcp => "mcp",
        }
    }
}

/// A tool that no model wrote, and its methods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutsideTool {
    /// Its name: `tool("orders")`.
    pub name: String,
    /// Where it comes from.
    pub origin: OutsideOrigin,
    /// Its methods, in the order given.
    pub methods: Vec<OutsideMethod>,
    /// What was left out, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A method of an outside tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutsideMethod {
    /// The name by which programs call it.
    pub name: String,
    /// The name that its server gave it.
    pub original: String,
    /// What it does, in its server's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub input: Value,
    /// JSON Schema of its result, if one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The shape of results that were seen, if no schema is given. It is shown, and not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Value>,
    /// Whether it only reads: then a program that called it may run again.
    #[serde(default)]
    pub reads_only: bool,
}

/// A definition as a server or the embedding program gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodDefinition {
    /// The name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input: Value,
    /// JSON Schema of the result.
    pub output: Option<Value>,
    /// Whether it only reads.
    pub reads_only: bool,
}

/// Why a program's arguments do not fit an outside tool, or no such method exists.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct MisfitArguments(pub String);

/// What is kept of one call, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideCall {
    /// `tool.method`.
    pub name: String,
    /// Where the tool comes from.
    pub origin: OutsideOrigin,
    /// Its arguments, as a short text without secrets.
    pub arguments: String,
    /// The size of its result as JSON, or the code of its failure.
    pub ended: Result<usize, String>,
    /// How long it took.
    pub took: Duration,
}

impl OutsideCall {
    /// As in the log.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "tool": self.name,
            "origin": self.origin.name(),
            "arguments": self.arguments,
            "status": if self.ended.is_ok() { "ok" } else { "error" },
            "result_bytes": self.ended.as_ref().ok(),
            "error_type": self.ended.as_ref().err(),
            "duration_ms": milliseconds(self.took),
        })
    }
}

/// The arguments of a call as a short text without secrets.
pub fn arguments_text(arguments: &Map<String, Value>) -> String {
    let shown = arguments.iter().map(|(name, value)| {
        let value = redacted_field(name, value);
        format!("{name}: {}", shortened(&value.to_string(), MAX_ARGUMENT_CHARS))
    });
    plain(&shown.collect::<Vec<_>>().join(", "), MAX_ARGUMENTS_CHARS)
}

impl OutsideTool {
    /// The tool with these methods. Definitions that cannot be used are left out, and the notes say why: of two
    /// methods whose names programs could not tell apart, the later one.
    pub fn new(name: &str, origin: OutsideOrigin, definitions: Vec<MethodDefinition>) -> Self {
        let mut tool =
            Self { name: name.to_owned(), origin, methods: Vec::new(), notes: Vec::new() };
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        if definitions.len() > MAX_METHODS {
            let left_out = definitions.len() - MAX_METHODS;
            tool.notes
                .push(format!("{left_out} methods beyond the first {MAX_METHODS} are left out"));
        }
        for definition in definitions.into_iter().take(MAX_METHODS) {
            let original = definition.name.clone();
            let shown = plain(&original, MAX_NAMED * 4);
            let method = match OutsideMethod::new(definition) {
                Ok(method) => method,
                Err(problem) => {
                    tool.notes.push(format!("`{shown}` is left out: {problem}"));
                    continue;
                }
            };
            if let Some(earlier) = names.get(&method.name) {
                tool.notes.push(format!(
                    "`{shown}` is left out: programs would call it `{}` like `{}`",
                    method.name,
                    plain(earlier, MAX_NAMED * 4),
                ));
                continue;
            }
            names.insert(method.name.clone(), original);
            tool.methods.push(method);
        }
        tool
    }

    /// The digest of its definitions, without the shapes that were learned.
    pub fn digest(&self) -> Checksum {
        let promised = |method: &OutsideMethod| OutsideMethod { learned: None, ..method.clone() };
        let mut methods: Vec<OutsideMethod> = self.methods.iter().map(promised).collect();
        methods.sort_by(|a, b| a.original.cmp(&b.original));
        Checksum::of(&canonical(&json!({ "name": self.name, "methods": methods })))
    }

    /// The method that programs call by this name.
    pub fn method(&self, name: &str) -> Result<&OutsideMethod, MisfitArguments> {
        let found = self.methods.iter().find(|method| method.name == name);
        let found = found.or_else(|| self.methods.iter().find(|method| method.original == name));
        found.ok_or_else(|| {
            let known: Vec<&str> = ranked(self.with_methods().collect(), name, MAX_NAMED)
                .0
                .into_iter()
                .map(|(_, method)| method.name.as_str())
                .collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            MisfitArguments(format!(
                "the tool {} has no method `{}`; it has: {known}",
                self.name,
                shortened(name, MAX_NAME_CHARS)
            ))
        })
    }

    /// Its methods, each with the tool.
    fn with_methods(&self) -> impl Iterator<Item = (&Self, &OutsideMethod)> {
        self.methods.iter().map(move |method| (self, method))
    }

    /// What changed from an earlier definition, for people.
    pub fn changes_from(&self, earlier: &Self) -> Vec<String> {
        let by_name = |tool: &Self| -> BTreeMap<String, OutsideMethod> {
            tool.methods.iter().map(|it| (it.original.clone(), it.clone())).collect()
        };
        let (then, now) = (by_name(earlier), by_name(self));
        let names: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
        let change = |name: &String| match (then.get(name), now.get(name)) {
            (None, Some(_)) => Some(format!("+ {name}")),
            (Some(_), None) => Some(format!("- {name}")),
            (Some(then), Some(now)) if then != now => {
                let mut parts = Vec::new();
                for (part, differs) in [
                    ("description", then.description != now.description),
                    ("arguments", then.input != now.input),
                    ("result", then.output != now.output),
                    ("effects", then.reads_only != now.reads_only),
                ] {
                    parts.extend(differs.then_some(part));
                }
                Some(format!("~ {name}: {}", parts.join(", ")))
            }
            (Some(_), Some(_)) | (None, None) => None,
        };
        names.into_iter().filter_map(change).map(|line| plain(&line, MAX_NAME_CHARS * 2)).collect()
    }
}

impl OutsideMethod {
    fn new(definition: MethodDefinition) -> Result<Self, String> {
        let MethodDefinition { name: original, description, input, output, reads_only } =
            definition;
        if original.trim().is_empty() || original.chars().count() > MAX_NAME_CHARS {
            return Err(format!("a name has 1 to {MAX_NAME_CHARS} characters"));
        }
        let input = if input.is_null() { json!({"type": "object"}) } else { input };
        for (schema, of) in [(Some(&input), "arguments"), (output.as_ref(), "result")] {
            let Some(schema) = schema else { continue };
            if !schema.is_object() {
                return Err(format!("the schema of its {of} is not an object"));
            }
            if encoded_bytes(schema) > MAX_SCHEMA_BYTES {
                return Err(format!("the schema of its {of} has over {MAX_SCHEMA_BYTES} bytes"));
            }
            if let Err(fault) = schema_breach(schema, &json!({})) {
                return Err(format!("the schema of its {of} cannot be used: {fault}"));
            }
        }
        Ok(Self {
            name: guest_name(&original),
            original,
            description: plain(&description, MAX_DESCRIPTION_CHARS),
            input,
            output,
            learned: None,
            reads_only,
        })
    }

    /// The names of its arguments: those that must be given first, in the order in which the schema requires them. The
    /// order of other properties is not kept by every JSON library.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Value)> {
        let properties = self.input.get("properties").and_then(Value::as_object);
        let required = self.input.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let first = required.filter_map(move |name| properties?.get_key_value(name));
        let others = properties.into_iter().flatten().filter(|(name, _)| !self.requires(name));
        first.chain(others).map(|(name, schema)| (name.as_str(), schema))
    }

    /// Whether an argument must be given.
    pub fn requires(&self, name: &str) -> bool {
        let required = self.input.get("required").and_then(Value::as_array);
        required.into_iter().flatten().any(|it| it.as_str() == Some(name))
    }

    /// The arguments of a program's call as the schema names them. Arguments by position follow the order of
    /// [`Self::parameters`].
    pub fn arguments(&self, given: Arguments) -> Result<Map<String, Value>, MisfitArguments> {
        let names: Vec<&str> = self.parameters().map(|(name, _)| name).collect();
        let misfit = |problem: String| {
            MisfitArguments(format!("{problem}; it is called as {}", signature(self)))
        };
        let Arguments { args, kwargs } = given;
        // One object by position is all arguments, unless the first parameter takes an object.
        let takes_object = || {
            let first = self.parameters().next().and_then(|(_, schema)| schema.get("type"));
            first.is_none_or(|it| it.as_str() == Some("object"))
        };
        let (args, kwargs) = match <[Value; 1]>::try_from(args) {
            Ok([Value::Object(fields)]) if kwargs.is_empty() && !takes_object() => {
                (Vec::new(), fields)
            }
            Ok([only]) => (vec![only], kwargs),
            Err(args) => (args, kwargs),
        };
        if args.len() > names.len() {
            return Err(misfit(format!(
                "`{}` takes {} arguments and was given {}",
                self.name,
                names.len(),
                args.len()
            )));
        }
        let positional =
            args.into_iter().zip(&names).map(|(value, name)| ((*name).to_owned(), value));
        let mut all: Map<String, Value> = positional.collect();
        for (name, value) in kwargs {
            let original = names.iter().find(|it| **it == name);
            let original = original.or_else(|| names.iter().find(|it| guest_name(it) == name));
            let name = match original {
                Some(original) => (*original).to_owned(),
                None if self.takes_others() => name,
                None => return Err(misfit(format!("`{}` takes no `{name}`", self.name))),
            };
            if all.contains_key(&name) {
                return Err(misfit(format!("`{name}` is given twice")));
            }
            all.insert(name, value);
        }
        // An argument that may be left out and is null is left out: programs pass defaults of their own.
        all.retain(|name, value| {
            !value.is_null() || self.requires(name) || !self.refuses_null(name)
        });
        let breach = schema_breach(&self.input, &Value::Object(all.clone()));
        match breach.map_err(|fault| MisfitArguments(fault.to_string()))? {
            None => Ok(all),
            Some(breach) => Err(misfit(format!(
                "`{}` cannot take these arguments: at `{}` is {}, expected: {}",
                self.name, breach.path, breach.actual, breach.expected
            ))),
        }
    }

    /// Whether it takes arguments that its schema does not name.
    fn takes_others(&self) -> bool {
        match self.input.get("additionalProperties") {
            Some(Value::Bool(allowed)) => *allowed,
            Some(Value::Null) | None => self.parameters().next().is_none(),
            Some(_) => true,
        }
    }

    fn refuses_null(&self, name: &str) -> bool {
        let schema = self.parameters().find(|(it, _)| *it == name).map(|(_, schema)| schema);
        schema.is_some_and(|schema| !matches!(schema_breach(schema, &Value::Null), Ok(None)))
    }

    /// Why a result cannot be used; `None`: it can.
    pub fn misfit_result(&self, result: &Value) -> Option<String> {
        let bytes = encoded_bytes(result);
        if bytes > MAX_RESULT_BYTES {
            return Some(format!(
                "its result has {bytes} bytes and the limit is {MAX_RESULT_BYTES}; ask for less at a time"
            ));
        }
        let schema = self.output.as_ref()?;
        match schema_breach(schema, result) {
            Ok(None) => None,
            Ok(Some(breach)) => Some(format!(
                "its result breaks the schema it promises: at `{}` is {}, expected: {}",
                breach.path, breach.actual, breach.expected
            )),
            Err(fault) => Some(format!("its result cannot be checked: {fault}")),
        }
    }
}

/// Names that an agent object answers itself in one of the guests.
const TAKEN_NAMES: &[&str] = &[
    // The surface of an agent.
    "tool",
    "delegate",
    "remember",
    "runtime_context",
    "for_",
    // What Ruby answers for any object.
    "clone",
    "define_singleton_method",
    "dup",
    "freeze",
    "hash",
    "inspect",
    "instance_eval",
    "instance_exec",
    "itself",
    "kind_of",
    "method",
    "method_missing",
    "object_id",
    "public_send",
    "send",
    "singleton_methods",
    "to_s",
    "instance_variables",
    "initialize",
    "equal",
];

/// Whether a guest uses this word itself, so that it cannot name a method.
fn is_reserved(name: &str) -> bool {
    Language::ALL.into_iter().any(|language| dialect::is_reserved(language, name))
}

/// The name by which programs call what a server names so: letters, digits and `_`. Different names may become the same
/// one; [`OutsideTool::new`] leaves the later out, so that every name leads back to exactly one.
pub fn guest_name(original: &str) -> String {
    let part = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = original.chars().map(part).collect();
    let name = name.trim_end_matches('_');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic());
    match name {
        name if !starts_well => format!("m_{}", name.trim_start_matches('_')),
        name if TAKEN_NAMES.contains(&name) || is_reserved(name) => format!("{name}_"),
        name => name.to_owned(),
    }
}

/// A text from outside for one line: without control characters and marks that reorder or hide text, at most so long.
pub fn plain(text: &str, chars: usize) -> String {
    let is_hidden = |c: char| {
        matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
    };
    let bounded: String = text.chars().take(chars.saturating_mul(4)).collect();
    let shown: String = bounded
        .chars()
        .filter(|c| !is_hidden(*c))
        .map(|c| if c.is_control() || c.is_whitespace() { ' ' } else { c })
        .collect();
    let words: Vec<&str> = shown.split(' ').filter(|word| !word.is_empty()).collect();
    shortened(&words.join(" "), chars)
}

#[cfg(test)]
mod tests;
