//! Examples: calls whose right answer a person gave, or whose answer a person called wrong.
//!
//! They are kept with a role's method, whatever its contract and language, and are not part of a contract's
//! fingerprint. They outrank everything that was recorded of calls.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::admission::{Case, Inputs, Observed};
use crate::context::ContextChanges;
use crate::dialect::{Language, is_same_program};
use crate::program::{Checksum, type_name};
use crate::request::encoded_bytes;

/// Examples kept of one method; teaching more needs forgetting some first.
pub const MAX_EXAMPLES: usize = 64;
/// JSON text of one example.
pub const MAX_EXAMPLE_BYTES: usize = 64 * 1024;
/// Relative difference within which two floating-point numbers are the same.
const TOLERANCE: f64 = 1e-9;
/// The fields of an example, as JSON.
const FIELDS: [&str; 6] = ["args", "kwargs", "context", "value", "error_type", "not_value"];

/// Whether a method that has examples of `others` other calls may get one more.
pub fn has_room(others: usize) -> bool {
    others < MAX_EXAMPLES
}

/// One call, and what must, or must not, come of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// What the call is given.
    pub inputs: Inputs,
    /// What must come of it.
    pub expected: ExpectedResult,
}

/// What must come of an example's call.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpectedResult {
    /// This value.
    Value(Value),
    /// An error of this type.
    Error(String),
    /// Anything but this value: it was rejected by a person.
    NotValue(Value),
}

/// A program that a person rejected, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonRejection {
    /// The language of its text.
    pub language: Language,
    /// Of its text.
    pub checksum: Checksum,
    /// Its text, if a version with it is still kept.
    pub code: Option<String>,
    /// The person's reason; empty if none was given.
    pub because: String,
    /// RFC 3339, UTC.
    pub rejected_at: String,
}

impl PersonRejection {
    /// Whether this is the rejected program, apart from comments and layout.
    pub fn is_of(&self, language: Language, source: &str) -> bool {
        let is_same = |code: &String| is_same_program(language, code, source);
        self.language == language
            && (self.checksum == Checksum::of(source) || self.code.as_ref().is_some_and(is_same))
    }
}

/// Why something is not an example.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the example cannot be used: {0}")]
pub struct ExampleFault(String);

impl Example {
    /// Reads `{args, kwargs?, context?, value | error_type | not_value}`.
    pub fn parse(example: &Value) -> Result<Self, ExampleFault> {
        let fault = |why: String| Err(ExampleFault(why));
        let Value::Object(fields) = example else {
            return fault(format!("it must be an object, not {}", type_name(example)));
        };
        if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            return fault(format!("it has no field {unknown:?}; it takes {}", FIELDS.join(", ")));
        }
        if encoded_bytes(example) > MAX_EXAMPLE_BYTES {
            return fault(format!(
                "it is larger than {MAX_EXAMPLE_BYTES} bytes; use a smaller one"
            ));
        }
        let args = match fields.get("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(args)) => args.clone(),
            Some(other) => {
                return fault(format!("`args` must be a list, not {}", type_name(other)));
            }
        };
        let inputs =
            Inputs { args, kwargs: object(fields, "kwargs")?, context: object(fields, "context")? };
        let expected =
            match (fields.get("value"), fields.get("error_type"), fields.get("not_value")) {
                (Some(value), None, None) => ExpectedResult::Value(value.clone()),
                (None, Some(Value::String(code)), None) => ExpectedResult::Error(code.clone()),
                (None, Some(other), None) => {
                    return fault(format!("`error_type` must be a text, not {}", type_name(other)));
                }
                (None, None, Some(value)) => ExpectedResult::NotValue(value.clone()),
                (..) => {
                    return fault(
                        "give exactly one of `value`, `error_type` and `not_value`".to_owned(),
                    );
                }
            };
        Ok(Self { inputs, expected })
    }

    /// As [`Example::parse`] reads it.
    pub fn to_json(&self) -> Value {
        let Inputs { args, kwargs, context } = &self.inputs;
        let mut fields = Map::new();
        fields.insert("args".to_owned(), Value::Array(args.clone()));
        for (name, values) in [("kwargs", kwargs), ("context", context)] {
            if !values.is_empty() {
                fields.insert(name.to_owned(), Value::Object(values.clone()));
            }
        }
        let (name, value) = match &self.expected {
            ExpectedResult::Value(value) => ("value", value.clone()),
            ExpectedResult::Error(code) => ("error_type", Value::String(code.clone())),
            ExpectedResult::NotValue(value) => ("not_value", value.clone()),
        };
        fields.insert(name.to_owned(), value);
        Value::Object(fields)
    }

    /// The example as a recorded call, to name it beside those.
    pub fn as_case(&self) -> Case {
        let none = ContextChanges::default();
        let observed = match &self.expected {
            ExpectedResult::Value(value) | ExpectedResult::NotValue(value) => {
                Observed::of_value(value, &none)
            }
            ExpectedResult::Error(code) => Observed::of_error(code),
        };
        Case { inputs: self.inputs.clone(), observed }
    }

    /// Whether this is what must come of the call: a value, or the type of an error.
    pub fn is_met(&self, actual: Result<&Value, &str>) -> bool {
        match (&self.expected, actual) {
            (ExpectedResult::Value(expected), Ok(actual)) => same_value(expected, actual),
            (ExpectedResult::Error(expected), Err(actual)) => expected == actual,
            (ExpectedResult::NotValue(wrong), Ok(actual)) => !same_value(wrong, actual),
            (ExpectedResult::NotValue(_), Err(_)) => true,
            (ExpectedResult::Value(_), Err(_)) | (ExpectedResult::Error(_), Ok(_)) => false,
        }
    }
}

fn object(fields: &Map<String, Value>, key: &str) -> Result<Map<String, Value>, ExampleFault> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(values)) => Ok(values.clone()),
        Some(other) => {
            Err(ExampleFault(format!("`{key}` must be an object, not {}", type_name(other))))
        }
    }
}

/// Whether two values are the same to a person: the order of keys does not count, 1 is 1.0, and floating-point
/// numbers may differ in their last digits.
pub fn same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => same_number(one, other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| same_value(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, one)| other.get(key).is_some_and(|other| same_value(one, other)))
        }
        (one, other) => one == other,
    }
}

fn same_number(one: &serde_json::Number, other: &serde_json::Number) -> bool {
    let (left, right) = (one.to_string(), other.to_string());
    let is_whole = |text: &str| !text.contains(['.', 'e', 'E']);
    if left == right {
        return true;
    }
    // Whole numbers of any size are compared digit by digit.
    if is_whole(&left) && is_whole(&right) {
        return false;
    }
    let (Some(left), Some(right)) = (one.as_f64(), other.as_f64()) else { return false };
    (left - right).abs() <= TOLERANCE * left.abs().max(right.abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_example_is_read_and_written() {
        for (example, expected) in [
            (json!({"args": [2], "value": 4}), Ok(())),
            (json!({"args": [2], "kwargs": {"by": 2}, "error_type": "not_found"}), Ok(())),
            (json!({"args": [], "context": {"total": 1}, "not_value": null}), Ok(())),
            (json!({"args": [], "value": null}), Ok(())),
            (json!({"args": [2]}), Err("exactly one")),
            (json!({"args": [2], "value": 1, "error_type": "x"}), Err("exactly one")),
            (json!({"args": 2, "value": 1}), Err("`args` must be a list")),
            (json!({"argz": [2], "value": 1}), Err("no field \"argz\"")),
            (json!([2]), Err("must be an object")),
        ] {
            match (Example::parse(&example), expected) {
                (Ok(read), Ok(())) => assert_eq!(read.to_json(), example),
                (Err(fault), Err(why)) => assert!(fault.to_string().contains(why), "{fault}"),
                (read, _) => panic!("{example}: {read:?}"),
            }
        }
    }

    #[test]
    fn values_are_the_same_as_people_see_them() {
        let huge = |digits: &str| serde_json::from_str::<Value>(digits).unwrap();
        for (one, other, expected) in [
            (json!(1), json!(1.0), true),
            (json!(0.1 + 0.2), json!(0.3), true),
            (json!(0.3), json!(0.31), false),
            (json!({"a": 1, "b": [2]}), json!({"b": [2.0], "a": 1}), true),
            (json!({"a": 1}), json!({"a": 1, "b": null}), false),
            (json!([1, 2]), json!([2, 1]), false),
            (json!("1"), json!(1), false),
            (huge("123456789012345678901234567890"), huge("123456789012345678901234567891"), false),
        ] {
            assert_eq!(same_value(&one, &other), expected, "{one} and {other}");
        }
    }

    #[test]
    fn an_example_is_met_by_what_it_expects() {
        let example = |fields: Value| Example::parse(&fields).unwrap();
        let (four, five) = (json!(4), json!(5));
        let value = example(json!({"value": 4}));
        let error = example(json!({"error_type": "not_found"}));
        let wrong = example(json!({"not_value": 5}));
        for (example, actual, expected) in [
            (&value, Ok(&four), true),
            (&value, Ok(&five), false),
            (&value, Err("not_found"), false),
            (&error, Err("not_found"), true),
            (&error, Err("execution"), false),
            (&error, Ok(&four), false),
            (&wrong, Ok(&four), true),
            (&wrong, Ok(&five), false),
            (&wrong, Err("not_found"), true),
        ] {
            assert_eq!(example.is_met(actual), expected, "{example:?} {actual:?}");
        }
    }
}
