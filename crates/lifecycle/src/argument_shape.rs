//! The shape of a call's arguments: how many, by which names, of which JSON types, and whether they are empty.
//!
//! A stored program is proven on the shapes it was accepted with. A type error on another shape is not its fault.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::admission::{Case, Inputs};
use crate::artifact::{ProvenShapes, ShapeDigest};
use crate::request::{Arguments, CallRequest};

/// Items of a list that are looked at.
const MAX_ITEMS: usize = 64;
/// Keys of an object that are part of its shape; one with more is a map, known by the types of its values.
const MAX_KEYS: usize = 16;

/// The shape of a call's arguments, as text: equal shapes have equal texts, in every version.
///
/// Positional arguments come first, then `name:` and the shape of each keyword argument, sorted by name. A shape is
/// `z` (null), `b` (boolean), `n` (number), `s` (string), `[…]` with the types of the items, or `{…}` with keys and
/// their types; `s0`, `[]` and `{}` are empty. Below the second level, `a` and `o` stand for lists and objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentShape(String);

impl ArgumentShape {
    /// Of a call's arguments.
    pub fn of(arguments: &Arguments) -> Self {
        let mut named: Vec<_> = arguments.kwargs.iter().collect();
        named.sort_unstable_by_key(|(name, _)| *name);
        let positional = arguments.args.iter().map(shape);
        let keywords = named.into_iter().map(|(name, value)| format!("{name}:{}", shape(value)));
        Self(positional.chain(keywords).collect::<Vec<_>>().join(","))
    }
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
    /// The shapes of recorded calls: those an artifact was accepted with that was stored before shapes were kept.
    pub fn of_corpus(cases: &[Case]) -> Self {
        let shape = |case: &Case| {
            let Inputs { args, kwargs, .. } = case.inputs.clone();
            ShapeDigest::of(&ArgumentShape::of(&Arguments { args, kwargs }).to_string())
        };
        let shapes: BTreeSet<String> =
            cases.iter().map(|case| shape(case).as_str().to_owned()).collect();
        Self::stored(shapes.into_iter().take(Self::MAX).collect())
    }
}

fn shape(value: &Value) -> String {
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
    use serde_json::{Map, json};

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
            shapes.contains(&ShapeDigest::of_call(&request))
        };
        assert!(is_proven(json!([7])) && is_proven(json!(["y"])));
        assert!(!is_proven(json!([])) && !is_proven(json!([""])) && !is_proven(json!([1, 2])));
    }

    /// Shapes are kept in stores: their text may not change.
    #[test]
    fn the_text_of_a_shape_is_fixed() {
        for (args, kwargs, expected) in [
            (json!([]), json!({}), ""),
            (json!([1, "x", null, true]), json!({}), "n,s,z,b"),
            (json!([""]), json!({"limit": 3, "by": "name"}), "s0,by:s,limit:n"),
            (json!([[1, 2.5, "x"], []]), json!({}), "[n|s],[]"),
            (json!([{"b": 1, "a": [1]}, {}]), json!({}), "{a:a,b:n},{}"),
            (json!([[[1], []], [{"a": 1}, {}]]), json!({}), "[a|a0],[o|o0]"),
        ] {
            let (Value::Array(args), Value::Object(kwargs)) = (args, kwargs) else { panic!() };
            let shape = ArgumentShape::of(&Arguments { args, kwargs });
            assert_eq!(shape.to_string(), expected);
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
}
