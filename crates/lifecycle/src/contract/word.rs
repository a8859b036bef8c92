//! The words of a deliverable: constraints of our own, JSON Schema, descriptions; and what a misspelt one was to be.

use serde_json::{Map, Value};

/// Words of a deliverable in our own spelling.
pub(super) const CONSTRAINTS: [&str; 13] = [
    "type",
    "required",
    "properties",
    "items",
    "min_items",
    "max_items",
    "min_length",
    "max_length",
    "minimum",
    "maximum",
    "enum",
    "constraints",
    "schema",
];

/// Words that only JSON Schema has.
const SCHEMA: [&str; 36] = [
    "$anchor",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "definitions",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "if",
    "maxContains",
    "maxProperties",
    "minContains",
    "minProperties",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "then",
];

/// JSON Schema words whose spelling collides with nothing but that are rarely first in a list.
const MORE_SCHEMA: [&str; 3] = ["unevaluatedItems", "unevaluatedProperties", "uniqueItems"];

/// Words that describe and constrain nothing.
const DESCRIPTIONS: [&str; 14] = [
    "$comment",
    "$id",
    "$schema",
    "comment",
    "default",
    "deprecated",
    "description",
    "example",
    "examples",
    "note",
    "notes",
    "readOnly",
    "title",
    "writeOnly",
];

/// What a key of a deliverable is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContractWord {
    /// A constraint, in our spelling.
    Constraint(&'static str),
    /// A word of JSON Schema, in its spelling.
    Schema(&'static str),
    /// A description.
    Description,
    /// None of them.
    Unknown,
}

impl ContractWord {
    /// `min_items`, `:min_items` and `minItems` are alike.
    pub(super) fn of(key: &str) -> Self {
        let is = |word: &&'static str| are_alike(word, key);
        if let Some(word) = CONSTRAINTS.into_iter().find(|word| is(word)) {
            return Self::Constraint(word);
        }
        if let Some(word) = SCHEMA.into_iter().chain(MORE_SCHEMA).find(|word| is(word)) {
            return Self::Schema(word);
        }
        let is_description = DESCRIPTIONS.into_iter().any(|word| is(&word));
        if is_description { Self::Description } else { Self::Unknown }
    }
}

/// A key without its colon, underscores and capitals.
pub(super) fn plain(key: &str) -> String {
    key.replace([':', '_'], "").to_ascii_lowercase()
}

/// Whether two keys differ only in colons, underscores and capitals. Every call with a contract compares many.
pub(super) fn are_alike(one: &str, other: &str) -> bool {
    fn plain(key: &str) -> impl Iterator<Item = u8> {
        key.bytes().filter(|byte| !b":_".contains(byte)).map(|byte| byte.to_ascii_lowercase())
    }
    plain(one).eq(plain(other))
}

/// Two spellings of one constraint, such as `min_items` and `minItems`: the one that allows more, then the other.
pub(super) fn twice_written(fields: &Map<String, Value>) -> Option<(&str, &str)> {
    let given: Vec<(&String, &Value)> =
        fields.iter().filter(|(_, value)| !value.is_null()).collect();
    given.iter().enumerate().find_map(|(index, (first, one))| {
        let is_constraint = matches!(ContractWord::of(first), ContractWord::Constraint(_));
        let mut later = given.iter().skip(index + 1).filter(|_| is_constraint);
        let (second, other) = later.find(|(second, _)| are_alike(first, second))?;
        let (first, second) = (first.as_str(), second.as_str());
        Some(if is_looser(first, one, other) { (first, second) } else { (second, first) })
    })
}

/// Whether a bound allows more than another of the same word.
fn is_looser(word: &str, one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_f64(), other.as_f64()) else { return false };
    if plain(word).starts_with("max") { one > other } else { one < other }
}

/// The word that `key` was probably meant to be.
pub(super) fn suggestion<'a>(
    key: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = plain(key);
    let near = |word: &str| {
        let word = plain(word);
        let allowed = if word.len() >= 8 { 2 } else { 1 };
        (word.len() >= 4 && distance(&written, &word) <= allowed).then(|| distance(&written, &word))
    };
    let found = words.into_iter().filter_map(|word| Some((near(word)?, word)));
    found.min_by_key(|(distance, _)| *distance).map(|(_, word)| word)
}

/// The word of a deliverable that `key` was probably meant to be.
pub(super) fn misspelt(key: &str) -> Option<&'static str> {
    suggestion(key, CONSTRAINTS.into_iter().chain(SCHEMA).chain(MORE_SCHEMA))
}

/// The words of JSON Schema for constraints that we spell otherwise, or as it does.
const SCHEMA_CONSTRAINTS: [&str; 11] = [
    "type",
    "required",
    "properties",
    "items",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "enum",
];

/// The word of JSON Schema that `key` was probably meant to be. There every letter counts, so `min_items` is a mistake.
pub(super) fn misspelt_schema_word(key: &str) -> Option<&'static str> {
    let words = || SCHEMA_CONSTRAINTS.into_iter().chain(SCHEMA).chain(MORE_SCHEMA);
    if DESCRIPTIONS.contains(&key) || words().any(|word| word == key) {
        return None;
    }
    suggestion(key, words())
}

/// Names of types that a deliverable may have.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Words of English that are almost names of types.
const NOT_TYPES: [&str; 8] =
    ["sling", "spring", "stirring", "strong", "strung", "stung", "sting", "swing"];

/// The type that one word was probably meant to name; `None`: it names none, or is something else.
///
/// A mistake in the first letter is rarer than another word that differs in it (`member`, `subject`).
pub(super) fn misspelt_type(text: &str) -> Option<&'static str> {
    let written = plain(text.trim());
    let is_word = !written.is_empty() && written.chars().all(|c| c.is_ascii_alphabetic());
    if !is_word || NOT_TYPES.contains(&written.as_str()) {
        return None;
    }
    let near = |name: &&'static str| {
        let allowed = if name.len() > 5 { 2 } else { 1 };
        let begins_alike = name.as_bytes().first() == written.as_bytes().first();
        begins_alike && distance(&written, name) <= allowed
    };
    TYPES.into_iter().filter(near).min_by_key(|name| distance(&written, name))
}

/// Letters to insert, remove, replace or swap with a neighbour to get from one word to the other.
fn distance(one: &str, other: &str) -> usize {
    strsim::osa_distance(one, other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_type_is_found_and_another_word_is_not() {
        for (word, expected) in [
            ("arry", Some("array")),
            ("arrays", Some("array")),
            ("integr", Some("integer")),
            ("Strng", Some("string")),
            ("nubmer", Some("number")),
            ("bolean", Some("boolean")),
            ("obejct", Some("object")),
            ("nul", Some("null")),
            ("movies", None),
            ("member", None),
            ("subject", None),
            ("spring", None),
            ("gray", None),
            ("a string of beads", None),
            ("string!", None),
            ("", None),
        ] {
            assert_eq!(misspelt_type(word), expected, "{word}");
        }
    }

    #[test]
    fn a_misspelt_word_is_found_and_a_word_of_its_own_is_not() {
        for (key, expected) in [
            ("min_itmes", Some("min_items")),
            ("minItem", Some("min_items")),
            ("requried", Some("required")),
            ("additonalProperties", Some("additionalProperties")),
            ("typo", Some("type")),
            ("movies", None),
            ("count", None),
            ("terms", None),
            ("min_price", None),
        ] {
            assert_eq!(misspelt(key), expected, "{key}");
        }
    }

    #[test]
    fn a_misspelt_word_of_json_schema_is_found_and_a_remark_is_not() {
        for (key, expected) in [
            ("requird", Some("required")),
            ("min_items", Some("minItems")),
            ("additionalproperties", Some("additionalProperties")),
            ("propertys", Some("properties")),
            ("required", None),
            ("unevaluatedItems", None),
            ("title", None),
            ("nullable", None),
            ("x-order", None),
            ("units", None),
        ] {
            assert_eq!(misspelt_schema_word(key), expected, "{key}");
        }
    }
}
