//! Reads a deliverable as it was written: shorthand is written out, and a whole JSON Schema is made of one that uses
//! words which only JSON Schema has.

use serde_json::{Map, Value, json};

use crate::excerpt::shortened;

use super::ContractFault;
use super::breach::MAX_NAME;
use super::clause::{Kind, count};
use super::word::{ContractWord, are_alike, misspelt, misspelt_type};

/// Words that hold one schema.
const HOLDS_ONE: [&str; 12] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Words that hold a list of schemas.
const HOLDS_LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Words that hold schemas by name.
const HOLDS_NAMED: [&str; 5] =
    ["properties", "$defs", "definitions", "dependentSchemas", "patternProperties"];

/// What a deliverable demands, written out in full; `None`: it is prose, or null.
pub(super) fn written_out(
    deliverable: &Value,
) -> Result<Option<Map<String, Value>>, ContractFault> {
    const AT: &str = "deliverable";
    Ok(match deliverable {
        Value::Null => None,
        Value::String(text) => kind_named(text, AT)?.map(of_kind),
        Value::Object(fields) => Some(schema_object(fields, AT)?),
        // A list of texts that name no types is prose.
        Value::Array(items) if items.len() != 1 && items.iter().all(is_prose) => None,
        Value::Array(items) if items.iter().all(is_prose) => {
            items.iter().try_for_each(|item| example(item, AT).map(drop))?;
            None
        }
        Value::Array(_) | Value::Number(_) | Value::Bool(_) => Some(example(deliverable, AT)?),
    })
}

/// The type that a text names. A single word that is almost the name of a type is a mistake, not prose.
fn kind_named(text: &str, at: &str) -> Result<Option<Kind>, ContractFault> {
    match Kind::named(text) {
        None if misspelt_type(text).is_some() => Err(ContractFault::UnknownType {
            path: at.to_owned(),
            found: shortened(text, MAX_NAME),
        }),
        kind => Ok(kind),
    }
}

fn is_prose(value: &Value) -> bool {
    value.as_str().is_some_and(|text| Kind::named(text).is_none())
}

/// Whether a deliverable that is written out uses words that only JSON Schema has.
pub(super) fn uses_schema_words(fields: &Map<String, Value>) -> bool {
    fields.iter().any(|(key, value)| match ContractWord::of(key) {
        ContractWord::Schema(_) => true,
        ContractWord::Constraint("schema") => false,
        ContractWord::Constraint("constraints") => value.as_object().is_some_and(uses_schema_words),
        ContractWord::Constraint(word) => {
            children(word, value).any(|child| child.as_object().is_some_and(uses_schema_words))
        }
        ContractWord::Description | ContractWord::Unknown => false,
    })
}

/// The JSON Schema of a deliverable that is written out.
pub(super) fn json_schema(fields: &Map<String, Value>) -> Value {
    let mut schema = Map::new();
    for (key, value) in fields {
        match ContractWord::of(key) {
            ContractWord::Constraint("schema")
            | ContractWord::Unknown
            | ContractWord::Description => {}
            ContractWord::Constraint("constraints") => {
                let nested = value.as_object().map(json_schema);
                let nested = nested.as_ref().and_then(Value::as_object).cloned();
                merge(&mut schema, nested.unwrap_or_default());
            }
            ContractWord::Constraint(word) => {
                let one = Map::from_iter([(camel(word), constrained(word, value))]);
                merge(&mut schema, one);
            }
            ContractWord::Schema(word) => {
                schema.insert(word.to_owned(), map_children(word, value, &|child| inner(child)));
            }
        }
    }
    Value::Object(schema)
}

fn inner(child: &Value) -> Value {
    child.as_object().map_or_else(|| child.clone(), json_schema)
}

/// Both `properties` and `constraints.properties` count.
fn merge(schema: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (schema.get_mut(&key), value) {
            (Some(Value::Object(own)), Value::Object(more)) => own.extend(more),
            (_, value) => {
                schema.insert(key, value);
            }
        }
    }
}

/// The value of one of our words as JSON Schema has it.
fn constrained(word: &str, value: &Value) -> Value {
    match word {
        "min_items" | "max_items" | "min_length" | "max_length" => {
            count(value).map_or_else(|| value.clone(), Value::from)
        }
        _ => map_children(word, value, &|child| inner(child)),
    }
}

/// `min_items` as `minItems`.
fn camel(word: &str) -> String {
    let mut parts = word.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| {
        let (head, tail) = part.split_at_checked(1).unwrap_or_default();
        name + &head.to_ascii_uppercase() + tail
    })
}

/// The schemas a word holds.
fn children<'a>(word: &str, value: &'a Value) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
    match value {
        Value::Object(named) if HOLDS_NAMED.contains(&word) => Box::new(named.values()),
        Value::Array(list) if HOLDS_LIST.contains(&word) || word == "items" => {
            Box::new(list.iter())
        }
        _ if HOLDS_ONE.contains(&word) => Box::new(std::iter::once(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Box::new(std::iter::empty())
        }
        Value::Array(_) | Value::Object(_) => Box::new(std::iter::empty()),
    }
}

/// A word's value with every schema in it changed.
fn map_children(word: &str, value: &Value, change: &dyn Fn(&Value) -> Value) -> Value {
    match value {
        Value::Object(named) if HOLDS_NAMED.contains(&word) => {
            named.iter().map(|(name, child)| (name.clone(), change(child))).collect()
        }
        Value::Array(list) if HOLDS_LIST.contains(&word) || word == "items" => {
            list.iter().map(change).collect()
        }
        _ if HOLDS_ONE.contains(&word) => change(value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        Value::Array(_) | Value::Object(_) => value.clone(),
    }
}

/// One schema: an object of words, or shorthand.
fn schema_object(
    fields: &Map<String, Value>,
    at: &str,
) -> Result<Map<String, Value>, ContractFault> {
    let unknown = |key: &&String| ContractWord::of(key) == ContractWord::Unknown;
    if let Some(key) = fields.keys().find(|key| unknown(key) && misspelt(key).is_some()) {
        return Err(not_understood(key, at));
    }
    let is_word = |key: &String| {
        matches!(ContractWord::of(key), ContractWord::Constraint(_) | ContractWord::Schema(_))
    };
    if fields.keys().any(|key| unknown(&key)) && !fields.keys().any(is_word) {
        let keys = fields.iter().filter(|(key, _)| !are_alike(key, "description"));
        let keys = keys.map(|(key, value)| (key.clone(), value.clone())).collect();
        return example(&Value::Object(keys), at);
    }
    let mut written = Map::new();
    for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let at = format!("{at}.{}", shortened(key, MAX_NAME));
        match ContractWord::of(key) {
            ContractWord::Unknown => {
                return Err(not_understood(key, at.rsplit_once('.').map_or("", |p| p.0)));
            }
            ContractWord::Description => {}
            ContractWord::Constraint("constraints") if value.is_object() => {
                let nested = value.as_object().map(|nested| words_of(nested, &at)).transpose()?;
                written.insert("constraints".to_owned(), json!(nested));
            }
            ContractWord::Constraint(word) => {
                written.insert(word.to_owned(), word_value(word, value, &at)?);
            }
            ContractWord::Schema(word) => {
                written.insert(word.to_owned(), word_value(word, value, &at)?);
            }
        }
    }
    Ok(written)
}

/// The words under `constraints`: never shorthand.
fn words_of(nested: &Map<String, Value>, at: &str) -> Result<Map<String, Value>, ContractFault> {
    match nested.keys().find(|key| ContractWord::of(key) == ContractWord::Unknown) {
        Some(key) => Err(not_understood(key, at)),
        None => schema_object(nested, at),
    }
}

/// A word's value with every schema in it written out.
fn word_value(word: &str, value: &Value, at: &str) -> Result<Value, ContractFault> {
    match value {
        Value::Object(named) if HOLDS_NAMED.contains(&word) => named
            .iter()
            .map(|(name, child)| {
                let at = format!("{at}.{}", shortened(name, MAX_NAME));
                Ok((name.clone(), child_schema(child, &at)?))
            })
            .collect::<Result<Map<_, _>, _>>()
            .map(Value::Object),
        Value::Array(list) if HOLDS_LIST.contains(&word) => {
            let child = |(index, child)| child_schema(child, &format!("{at}.{index}"));
            list.iter().enumerate().map(child).collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        _ if HOLDS_ONE.contains(&word) => child_schema(value, at),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(value.clone()),
        Value::Array(_) | Value::Object(_) => Ok(value.clone()),
    }
}

/// A schema inside another; the name of a type stands for it, other values are left to the parser of their word.
fn child_schema(child: &Value, at: &str) -> Result<Value, ContractFault> {
    match child {
        Value::Object(fields) => schema_object(fields, at).map(Value::Object),
        Value::String(text) => {
            let kind = kind_named(text, at)?;
            Ok(kind.map_or_else(|| child.clone(), |kind| Value::Object(of_kind(kind))))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Ok(child.clone()),
    }
}

fn not_understood(key: &str, at: &str) -> ContractFault {
    ContractFault::UnknownWord {
        path: format!("{at}.{}", shortened(key, MAX_NAME)),
        suggestion: misspelt(key).map(str::to_owned),
    }
}

fn of_kind(kind: Kind) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!(kind.name()))])
}

/// Shorthand: names of types, and values that stand for their type. Every key is required.
fn example(value: &Value, at: &str) -> Result<Map<String, Value>, ContractFault> {
    let named = |kind: &str| Map::from_iter([("type".to_owned(), json!(kind))]);
    Ok(match value {
        Value::Null => Map::new(),
        Value::Bool(_) => named("boolean"),
        Value::Number(_) => named("number"),
        Value::String(text) => kind_named(text, at)?.map_or_else(|| named("string"), of_kind),
        Value::Array(items) => {
            let mut written = named("array");
            let item = items.first().map(|item| example(item, &format!("{at}.0"))).transpose()?;
            written.extend(item.map(|item| ("items".to_owned(), Value::Object(item))));
            written
        }
        Value::Object(fields) if fields.is_empty() => named("object"),
        Value::Object(fields) => {
            let bare = |key: &str| key.strip_prefix(':').unwrap_or(key).to_owned();
            let property = |(key, value): (&String, &Value)| {
                let at = format!("{at}.{}", shortened(key, MAX_NAME));
                Ok((bare(key), Value::Object(example(value, &at)?)))
            };
            let properties: Map<String, Value> =
                fields.iter().map(property).collect::<Result<_, _>>()?;
            let mut written = named("object");
            let required: Vec<&String> = properties.keys().collect();
            written.insert("required".to_owned(), json!(required));
            written.insert("properties".to_owned(), Value::Object(properties));
            written
        }
    })
}
