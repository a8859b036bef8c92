//! Reads a deliverable as it was written: shorthand is written out, and a whole JSON Schema is made of one that uses
//! words which only JSON Schema has.

use serde_json::{Map, Value, json};

use crate::excerpt::shortened;

use super::ContractFault;
use super::breach::MAX_NAME;
use super::clause::{Kind, count};
use super::type_expression;
use super::word::{
    ContractWord, are_alike, misspelt, misspelt_schema_word, misspelt_type, plain, suggestion,
    twice_written,
};

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

/// Formats that the schema library checks.
const FORMATS: [&str; 19] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "idn-email",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];
/// Remarks whose text describes the whole.
const PROSE: [&str; 5] = ["$comment", "comment", "description", "note", "notes"];

/// What a deliverable demands, written out in full; `None`: it is prose, or null.
pub(super) fn written_out(
    deliverable: &Value,
) -> Result<Option<Map<String, Value>>, ContractFault> {
    const AT: &str = "deliverable";
    Ok(match deliverable {
        Value::Null => None,
        Value::String(text) => types_named(text, AT)?,
        Value::Object(fields) if is_remarks(fields) => remarks(fields, AT)?,
        Value::Object(fields) if has_text_words_as_keys(fields) => Some(example(deliverable, AT)?),
        Value::Object(fields) => Some(schema_object(fields, AT)?),
        // A list of texts that name no types is prose.
        Value::Array(items) if items.len() > 1 && items.iter().all(is_prose) => None,
        Value::Array(items) if items.len() == 1 && items.iter().all(is_prose) => {
            items.iter().try_for_each(|item| example(item, AT).map(drop))?;
            None
        }
        Value::Array(_) | Value::Number(_) | Value::Bool(_) => Some(example(deliverable, AT)?),
    })
}

/// A constraint that is written twice is not understood; without the second spelling the stricter one holds.
fn refuse_second_spelling(fields: &Map<String, Value>, at: &str) -> Result<(), ContractFault> {
    let Some((looser, stricter)) = twice_written(fields) else { return Ok(()) };
    Err(ContractFault::Unusable {
        path: format!("{at}.{}", shortened(looser, MAX_NAME)),
        found: format!("a second spelling of `{}`", shortened(stricter, MAX_NAME)),
        instead: "one of them",
    })
}

/// Whether every key is a word for remarks, such as `title` and `default`.
fn is_remarks(fields: &Map<String, Value>) -> bool {
    let is_remark = |key: &String| ContractWord::of(key) == ContractWord::Description;
    !fields.is_empty() && fields.keys().all(is_remark)
}

/// Whether `format` and `pattern`, whose values are texts, are keys of the value: they are given types, and nothing else
/// is there.
fn has_text_words_as_keys(fields: &Map<String, Value>) -> bool {
    let is_text_word =
        |key: &String| matches!(ContractWord::of(key), ContractWord::Schema("format" | "pattern"));
    fields.keys().any(is_text_word)
        && fields.iter().all(|(key, value)| {
            let may_be_key = is_text_word(key)
                || matches!(
                    ContractWord::of(key),
                    ContractWord::Unknown | ContractWord::Description
                );
            may_be_key && names_types(value)
        })
}

/// What a deliverable of remarks alone demands. Names of types make it shorthand: `{"title": "string"}` has a title. A
/// description is prose, and anything else constrains nothing, so a person meant something else.
fn remarks(
    fields: &Map<String, Value>,
    at: &str,
) -> Result<Option<Map<String, Value>>, ContractFault> {
    if fields.values().all(names_types) {
        return example(&Value::Object(fields.clone()), at).map(Some);
    }
    let is_prose =
        |(key, value): (&String, &Value)| PROSE.contains(&plain(key).as_str()) && is_prose(value);
    if fields.iter().any(is_prose) {
        return Ok(None);
    }
    Err(ContractFault::Unusable {
        path: at.to_owned(),
        found: "made of remarks that demand nothing".to_owned(),
        instead: "a type for every key, such as {\"title\": \"string\"}, or {\"type\": \"object\"} beside the remarks",
    })
}

/// Whether a value is the name of a type, or a list or map of such names.
fn names_types(value: &Value) -> bool {
    match value {
        Value::String(text) => type_expression::parse(text).is_some(),
        Value::Array(items) => !items.is_empty() && items.iter().all(names_types),
        Value::Object(fields) => !fields.is_empty() && fields.values().all(names_types),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The schema of the types that a text names. A single word that is almost the name of a type is a mistake, not prose.
fn types_named(text: &str, at: &str) -> Result<Option<Map<String, Value>>, ContractFault> {
    match type_expression::parse(text) {
        None if misspelt_type(text).is_some() => Err(ContractFault::UnknownType {
            path: at.to_owned(),
            found: shortened(text, MAX_NAME),
        }),
        schema => Ok(schema),
    }
}

fn is_prose(value: &Value) -> bool {
    value.as_str().is_some_and(|text| type_expression::parse(text).is_none())
}

/// Whether an object in shorthand is a schema by itself: it has nothing but words, and its `type` is one.
fn is_schema(fields: &Map<String, Value>) -> bool {
    let is_word = |key: &String| ContractWord::of(key) != ContractWord::Unknown;
    let has_type = |(key, value): (&String, &Value)| {
        let listed = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let is_kind = |it: &Value| it.as_str().is_some_and(|text| Kind::named(text).is_some());
        are_alike(key, "type") && !listed.is_empty() && listed.iter().all(is_kind)
    };
    fields.keys().all(is_word) && fields.iter().any(has_type)
}

/// Whether a deliverable that is written out uses words that only JSON Schema has.
pub(super) fn uses_schema_words(fields: &Map<String, Value>) -> bool {
    fields.iter().any(|(key, value)| match ContractWord::of(key) {
        ContractWord::Schema(_) => true,
        ContractWord::Constraint("schema") => false,
        ContractWord::Constraint("constraints") => value.as_object().is_some_and(uses_schema_words),
        ContractWord::Constraint(word) => children(word, value)
            .any(|child| child.is_boolean() || child.as_object().is_some_and(uses_schema_words)),
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

/// Refuses a word that is almost one of JSON Schema, which would demand nothing. Other unknown words are remarks.
/// Recursion is bounded: the deliverable's depth was.
pub(super) fn refuse_misspelt_words(schema: &Value, at: &str) -> Result<(), ContractFault> {
    let Value::Object(fields) = schema else { return Ok(()) };
    for (key, value) in fields {
        let at = format!("{at}.{}", shortened(key, MAX_NAME));
        if let Some(meant) = misspelt_schema_word(key) {
            return Err(ContractFault::UnknownWord {
                path: at,
                suggestion: Some(meant.to_owned()),
            });
        }
        match value {
            Value::Object(named) if HOLDS_NAMED.contains(&key.as_str()) => {
                for (name, child) in named {
                    let at = format!("{at}.{}", shortened(name, MAX_NAME));
                    refuse_misspelt_words(child, &at)?;
                }
            }
            Value::Array(list) if HOLDS_LIST.contains(&key.as_str()) || key == "items" => {
                for (index, child) in list.iter().enumerate() {
                    refuse_misspelt_words(child, &format!("{at}.{index}"))?;
                }
            }
            Value::Object(_) if HOLDS_ONE.contains(&key.as_str()) => {
                refuse_misspelt_words(value, &at)?;
            }
            Value::Object(_)
            | Value::Array(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => {}
        }
    }
    Ok(())
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
        let keys = fields
            .iter()
            .filter(|(key, value)| !are_alike(key, "description") || names_types(value));
        let keys = keys.map(|(key, value)| (key.clone(), value.clone())).collect();
        return example(&Value::Object(keys), at);
    }
    refuse_second_spelling(fields, at)?;
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
                if let ("format", Value::String(format)) = (word, value) {
                    check_format(format, &at)?;
                }
                written.insert(word.to_owned(), word_value(word, value, &at)?);
            }
        }
    }
    Ok(written)
}

/// A format that the library does not know is a remark, such as `html`; one that is almost a known one is a mistake.
fn check_format(format: &str, at: &str) -> Result<(), ContractFault> {
    match suggestion(format, FORMATS).filter(|known| *known != format) {
        Some(meant) if !FORMATS.contains(&format) => Err(ContractFault::UnknownWord {
            path: at.to_owned(),
            suggestion: Some(meant.to_owned()),
        }),
        _ => Ok(()),
    }
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
            let types = types_named(text, at)?;
            Ok(types.map_or_else(|| child.clone(), Value::Object))
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

/// Shorthand: names of types, and values that stand for their type. Every key is required.
fn example(value: &Value, at: &str) -> Result<Map<String, Value>, ContractFault> {
    let named = |kind: &str| Map::from_iter([("type".to_owned(), json!(kind))]);
    Ok(match value {
        Value::Null => Map::new(),
        Value::Bool(_) => named("boolean"),
        Value::Number(_) => named("number"),
        Value::String(text) => types_named(text, at)?.unwrap_or_else(|| named("string")),
        Value::Array(items) => {
            let mut written = named("array");
            let item = items.first().map(|item| example(item, &format!("{at}.0"))).transpose()?;
            written.extend(item.map(|item| ("items".to_owned(), Value::Object(item))));
            written
        }
        Value::Object(fields) if fields.is_empty() => named("object"),
        Value::Object(fields) if is_schema(fields) => schema_object(fields, at)?,
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

#[cfg(test)]
mod tests {
    use super::super::Terms;
    use super::*;

    /// Keys that JSON Schema uses for remarks are keys of the value where they are given types.
    #[test]
    fn keys_that_look_like_remarks_are_shorthand_prose_or_refused() {
        let written = |deliverable: Value| {
            let written = written_out(&deliverable);
            written.map(|demands| demands.map(Value::Object)).map_err(|fault| fault.to_string())
        };
        let with = |fields: Value| {
            let required: Vec<&String> = fields.as_object().unwrap().keys().collect();
            json!({"type": "object", "required": required, "properties": fields})
        };
        for (deliverable, expected) in [
            (json!({"title": "number"}), Some(with(json!({"title": {"type": "number"}})))),
            (
                json!({"title": "string", "description": "string"}),
                Some(with(json!({"title": {"type": "string"}, "description": {"type": "string"}}))),
            ),
            (
                json!({"name": "string", "description": "string"}),
                Some(with(json!({"name": {"type": "string"}, "description": {"type": "string"}}))),
            ),
            (
                json!({"name": "string", "description": "who it is"}),
                Some(with(json!({"name": {"type": "string"}}))),
            ),
            (json!([]), Some(json!({"type": "array"}))),
            (
                json!({"movies": {"type": "array", "min_items": 1}}),
                Some(with(json!({"movies": {"type": "array", "min_items": 1}}))),
            ),
            (
                json!({"movie": {"type": "string", "year": 1999}}),
                Some(with(
                    json!({"movie": with(json!({"type": {"type": "string"}, "year": {"type": "number"}}))}),
                )),
            ),
            (
                json!({"tags": "string[]", "note": "string|null"}),
                Some(with(json!({
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "note": {"type": ["string", "null"]},
                }))),
            ),
            (json!({"pattern": "string"}), Some(with(json!({"pattern": {"type": "string"}})))),
            (json!("list of numbers"), Some(json!({"type": "array", "items": {"type": "number"}}))),
            (json!({"description": "a list of films"}), None),
            (json!({"title": "Films", "description": "a list of films"}), None),
            (json!(["first", "second"]), None),
        ] {
            assert_eq!(written(deliverable.clone()), Ok(expected), "{deliverable}");
        }
        let refused = written(json!({"type": "string", "format": "emial"})).unwrap_err();
        assert!(refused.contains("did you mean `email`"), "{refused}");
        // A program's contract is enforced without it.
        let (terms, notes) = Terms::tolerant(&json!({"type": "string", "format": "emial"}));
        assert!(terms.is_some() && notes.len() == 1, "{notes:?}");
        for deliverable in
            [json!({"default": 5}), json!({"title": "Films"}), json!({"readOnly": true})]
        {
            let refused = written(deliverable.clone()).unwrap_err();
            assert!(refused.contains("write a type for every key"), "{deliverable}: {refused}");
        }
    }
}
