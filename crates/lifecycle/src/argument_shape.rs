//! The shape of a call's arguments: how many, by which names, of which JSON types, and whether they are empty.
//!
//! A stored program is proven on the shapes it was accepted with. A type error on another shape is not its fault.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde_json::{Map, Number, Value};

use crate::admission::{Case, Inputs};
use crate::artifact::{ProvenShapes, ShapeDigest};
use crate::request::{Arguments, CallRequest};

/// Values of one place that are looked at: the items of a list, or one field of its records.
const MAX_ITEMS: usize = 64;
/// Levels of objects whose keys are part of the shape.
const MAX_RECORD_LEVELS: usize = 2;
/// Levels of lists and objects together that are looked into.
const MAX_LEVELS: usize = 4;
/// Keys of an object that are part of its shape; one with more is a map, known by the types of its values.
const MAX_KEYS: usize = 16;

/// The shape of a call's arguments, as text: equal shapes have equal texts, in every version.
///
/// Positional arguments come first, then `name:` and the shape of each keyword argument, sorted by name. A shape is
/// `z` (null), `b` (boolean), `i` (integer), `n` (number), `s` (string), `[…]` with the shape of the items, or `{…}` with keys and
/// their shapes; `s0`, `[]` and `{}` are empty. Where several values are at one place, their shapes are joined by
/// `|`, and a key that some records lack has a `?`. The keys of the first two levels of objects are part of a shape;
/// below them, `a` and `o` stand for lists and objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentShape(String);

impl ArgumentShape {
    /// Of a call's arguments.
    pub fn of(arguments: &Arguments) -> Self {
        Self::with(arguments, Integers::Apart)
    }

    /// With integers as numbers: as older versions wrote it, and what a program that was accepted with other numbers
    /// was accepted with.
    fn of_numbers(arguments: &Arguments) -> Self {
        Self::with(arguments, Integers::AsNumbers)
    }

    fn with(arguments: &Arguments, integers: Integers) -> Self {
        Self(joined(arguments, |value| {
            let mut text = String::new();
            write_shape(&mut text, &[value], Place { level: 0, records: 0, integers });
            text
        }))
    }

    /// As still older versions wrote it: without the keys of records in lists and of nested objects. Their stores keep
    /// the digests of these texts.
    fn without_nested_keys(arguments: &Arguments) -> Self {
        Self(joined(arguments, shape_without_nested_keys))
    }
}

fn joined(arguments: &Arguments, shape: impl Fn(&Value) -> String) -> String {
    let mut named: Vec<_> = arguments.kwargs.iter().collect();
    named.sort_unstable_by_key(|(name, _)| *name);
    let positional = arguments.args.iter().map(&shape);
    let keywords = named.into_iter().map(|(name, value)| format!("{name}:{}", shape(value)));
    positional.chain(keywords).collect::<Vec<_>>().join(",")
}

impl fmt::Display for ArgumentShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ShapeDigest {
    /// The digest of the shape of a call's arguments.
    pub fn of_call(request: &CallRequest) -> Self {
        Self::of(&ArgumentShape::of(&request.arguments).to_string())
    }
}

impl ProvenShapes {
    /// Whether the version was accepted with arguments of the shape of this call's.
    pub fn prove(&self, request: &CallRequest) -> bool {
        let has = |shape: ArgumentShape| self.contains(&ShapeDigest::of(&shape.to_string()));
        let arguments = &request.arguments;
        has(ArgumentShape::of(arguments))
            || has(ArgumentShape::of_numbers(arguments))
            || has(ArgumentShape::without_nested_keys(arguments))
    }

    /// The shapes of recorded calls: those an artifact was accepted with that was stored before shapes were kept.
    pub fn of_corpus(cases: &[Case]) -> Self {
        let shape = |case: &Case| {
            let Inputs { args, kwargs, .. } = case.inputs.clone();
            ShapeDigest::of(&ArgumentShape::of(&Arguments { args, kwargs }).to_string())
        };
        let mut shapes = Self::default();
        for case in cases {
            shapes.add(&shape(case));
        }
        shapes
    }
}

/// How integers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Integers {
    Apart,
    AsNumbers,
}

/// A place in a value.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Lists and objects around it.
    level: usize,
    /// Objects around it.
    records: usize,
    integers: Integers,
}

/// Writes the shape of the values at one place.
fn write_shape(text: &mut String, values: &[&Value], place: Place) {
    let Place { level, records, integers } = place;
    let looks_into = |value: &Value| match value {
        Value::Array(items) => !items.is_empty() && level < MAX_LEVELS,
        Value::Object(fields) => {
            !fields.is_empty() && level < MAX_LEVELS && records < MAX_RECORD_LEVELS
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    let mut letters: BTreeSet<&str> = BTreeSet::new();
    let mut items: Vec<&Value> = Vec::new();
    let mut objects: Vec<&Map<String, Value>> = Vec::new();
    for value in values {
        match value {
            Value::Array(inner) if looks_into(value) => {
                let room = MAX_ITEMS.saturating_sub(items.len());
                items.extend(inner.iter().take(room));
            }
            Value::Object(fields) if looks_into(value) => objects.push(fields),
            Value::Array(inner) if inner.is_empty() && level == 0 => text.push_str("[]"),
            Value::Object(fields) if fields.is_empty() && level == 0 => text.push_str("{}"),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {
                letters.insert(letter_at(value, integers));
            }
        }
    }
    if letters.contains("n") {
        letters.remove("i"); // a place with both takes numbers
    }
    let begin = text.len();
    let separate = |text: &mut String| {
        if text.len() > begin {
            text.push('|');
        }
    };
    for letter in letters {
        separate(text);
        text.push_str(letter);
    }
    if !items.is_empty() {
        separate(text);
        text.push('[');
        write_shape(text, &items, Place { level: level + 1, ..place });
        text.push(']');
    }
    if !objects.is_empty() {
        separate(text);
        write_records(text, &objects, place);
    }
}

/// Writes the common shape of objects at one place.
fn write_records(text: &mut String, objects: &[&Map<String, Value>], place: Place) {
    let is_map = objects.iter().any(|fields| fields.len() > MAX_KEYS);
    let mut keys: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for (key, value) in objects.iter().flat_map(|fields| fields.iter().take(MAX_ITEMS)) {
        keys.entry(if is_map { "*" } else { key }).or_default().push(value);
    }
    text.push('{');
    for (index, (key, mut values)) in keys.into_iter().enumerate() {
        let is_optional = !is_map && values.len() < objects.len();
        let mark = if is_optional { "?" } else { "" };
        let _ = write!(text, "{}{key}{mark}:", if index > 0 { "," } else { "" });
        values.truncate(MAX_ITEMS);
        let (level, records) = (place.level + 1, place.records + 1);
        write_shape(text, &values, Place { level, records, ..place });
    }
    text.push('}');
}

fn shape_without_nested_keys(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let types: BTreeSet<&str> = items.iter().take(MAX_ITEMS).map(letter).collect();
            format!("[{}]", types.into_iter().collect::<Vec<_>>().join("|"))
        }
        Value::Object(fields) if fields.len() > MAX_KEYS => {
            let types: BTreeSet<&str> = fields.values().take(MAX_ITEMS).map(letter).collect();
            format!("{{*:{}}}", types.into_iter().collect::<Vec<_>>().join("|"))
        }
        Value::Object(fields) => {
            let mut keys: Vec<_> = fields.iter().collect();
            keys.sort_unstable_by_key(|(key, _)| *key);
            let shown = keys.into_iter().map(|(key, value)| format!("{key}:{}", letter(value)));
            format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            letter(value).to_owned()
        }
    }
}

fn letter_at(value: &Value, integers: Integers) -> &'static str {
    match value {
        Value::Number(number) if integers == Integers::Apart && is_integer(number) => "i",
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => letter(value),
    }
}

fn is_integer(number: &Number) -> bool {
    !number.as_str().contains(['.', 'e', 'E'])
}

fn letter(value: &Value) -> &'static str {
    match value {
        Value::Null => "z",
        Value::Bool(_) => "b",
        Value::Number(_) => "n",
        Value::String(text) if text.is_empty() => "s0",
        Value::String(_) => "s",
        Value::Array(items) if items.is_empty() => "a0",
        Value::Array(_) => "a",
        Value::Object(fields) if fields.is_empty() => "o0",
        Value::Object(_) => "o",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::Observed;
    use crate::artifact::RunVerdict;

    #[test]
    fn a_program_is_proven_on_the_shapes_of_its_corpus() {
        let case = |args: &[Value]| Case {
            inputs: Inputs { args: args.to_vec(), kwargs: Map::new(), context: Map::new() },
            observed: Observed { verdict: RunVerdict::Succeeded, digest: String::new() },
        };
        let shapes =
            ProvenShapes::of_corpus(&[case(&[json!(1)]), case(&[json!(2)]), case(&[json!("x")])]);
        let is_proven = |args: Value| {
            let Value::Array(args) = args else { panic!("{args}") };
            let arguments = Arguments { args, ..Arguments::default() };
            let request = CallRequest { arguments, ..CallRequest::bare("c", "add") };
            shapes.prove(&request)
        };
        assert!(is_proven(json!([7])) && is_proven(json!(["y"])));
        assert!(!is_proven(json!([2.5])), "only integers were accepted");
        assert!(!is_proven(json!([])) && !is_proven(json!([""])) && !is_proven(json!([1, 2])));
    }

    fn arguments(args: Value, kwargs: Value) -> Arguments {
        let (Value::Array(args), Value::Object(kwargs)) = (args, kwargs) else { panic!() };
        Arguments { args, kwargs }
    }

    /// Shapes are kept in stores: their text may not change.
    #[test]
    fn the_text_of_a_shape_is_fixed() {
        for (args, kwargs, expected) in [
            (json!([]), json!({}), ""),
            (json!([1, "x", null, true]), json!({}), "i,s,z,b"),
            (json!([2.5, 1.0, 1e3]), json!({}), "n,n,n"),
            (json!([""]), json!({"limit": 3, "by": "name"}), "s0,by:s,limit:i"),
            (json!([[1, 2.5, "x"], []]), json!({}), "[n|s],[]"),
            (json!([{"b": 1, "a": [1]}, {}]), json!({}), "{a:[i],b:i},{}"),
            (json!([[[1], []], [{"a": 1}, {}]]), json!({}), "[a0|[i]],[o0|{a:i}]"),
            (json!([[{"v": 1}, {"v": "x"}]]), json!({}), "[{v:i|s}]"),
            (json!([[{"v": 1}, {"v": 1, "w": 2}]]), json!({}), "[{v:i,w?:i}]"),
            (json!([{"user": {"name": "x", "tags": []}}]), json!({}), "{user:{name:s,tags:a0}}"),
            (json!([{"rows": [{"qty": 1}]}]), json!({}), "{rows:[{qty:i}]}"),
            (json!([{"a": {"b": {"c": 1}}}]), json!({}), "{a:{b:o}}"),
            (json!([[[[[[1]]]]]]), json!({}), "[[[[a]]]]"),
        ] {
            assert_eq!(ArgumentShape::of(&arguments(args, kwargs)).to_string(), expected);
        }
        let map = |keys: std::ops::Range<u32>| {
            let fields = keys.map(|key| (format!("k{key}"), json!(1))).collect();
            ArgumentShape::of(&Arguments {
                args: vec![Value::Object(fields)],
                ..Arguments::default()
            })
        };
        assert_eq!(map(0..20), map(100..140), "a map is known by the types of its values");
        assert_ne!(map(0..3), map(1..4), "a record is known by its keys");
    }

    /// A long list of large records costs no more than a bounded look at it.
    #[test]
    fn a_shape_is_bounded() {
        let record = |n: usize| {
            let inner: Map<String, Value> =
                (0..16).map(|k| (format!("i{n}_{k}"), json!(k))).collect();
            Value::Object((0..16).map(|k| (format!("k{n}_{k}"), json!(inner))).collect())
        };
        let records = Value::Array((0..2000).map(record).collect());
        let shape = ArgumentShape::of(&Arguments { args: vec![records], ..Arguments::default() });
        assert!(shape.to_string().len() < 1 << 20, "{}", shape.to_string().len());
    }

    /// The digests of stores of older versions still prove what they proved.
    #[test]
    fn shapes_of_older_stores_are_known() {
        for (args, stored) in [
            (json!([[{"v": 1}]]), "[o]"),
            (json!([{"user": {"name": "x"}}]), "{user:o}"),
            (json!([[[1], []]]), "[a|a0]"),
            (json!([1, {"a": [2]}]), "n,{a:[n]}"),
        ] {
            let shapes = ProvenShapes::stored(ShapeDigest::of(stored).as_str().to_owned());
            let arguments = arguments(args, json!({}));
            assert!(shapes.prove(&CallRequest { arguments, ..CallRequest::bare("c", "m") }));
        }
    }
}
