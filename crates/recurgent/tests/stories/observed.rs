//! Compares the observed result of a call with the one that the story states.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use recurgent::Outcome;
use serde_json::{Map, Value, json};

/// The observed result of a call.
pub(crate) struct ObservedCall {
    pub(crate) outcome: Outcome,
    pub(crate) facts: BTreeMap<&'static str, Value>,
}

impl ObservedCall {
    /// Compares with the statements of a story, which must give the result, the attempts and the model calls.
    pub(crate) fn compare(&self, expected: &Value) -> Result<(), String> {
        let expected = expected.as_object().ok_or("the statements about a call must be a map")?;
        let ends = ["gives", "includes", "fails"].iter().filter(|key| expected.contains_key(**key));
        if ends.count() != 1 {
            return Err("one of `gives`, `includes`, `fails` is required".to_owned());
        }
        for key in ["attempts", "asked"] {
            if !expected.contains_key(key) {
                return Err(format!("`{key}` is required"));
            }
        }
        for (key, expected) in expected {
            let (actual, holds) = self.holds(key, expected)?;
            if !holds {
                let mut problem = format!("{key} is {actual}, not {expected}");
                if let Some(failure) = self.outcome.failure() {
                    let _ = write!(problem, "; the outcome is {failure}");
                }
                return Err(problem);
            }
        }
        Ok(())
    }

    fn holds(&self, key: &str, expected: &Value) -> Result<(Value, bool), String> {
        let failure = self.outcome.failure();
        let compared = |actual: Option<Value>, holds: fn(&Value, &Value) -> bool| {
            let holds = actual.as_ref().is_some_and(|actual| holds(actual, expected));
            Ok((actual.unwrap_or(Value::Null), holds))
        };
        match key {
            "gives" => compared(self.outcome.value().cloned(), same),
            "includes" => compared(self.outcome.value().cloned(), covers),
            "fails" => compared(failure.map(|failure| json!(failure.kind.code())), same),
            "message" => {
                compared(failure.map(|failure| json!(failure.message)), |message, part| {
                    message
                        .as_str()
                        .zip(part.as_str())
                        .is_some_and(|(whole, part)| whole.contains(part))
                })
            }
            "retriable" => compared(failure.map(|failure| json!(failure.kind.retriable())), same),
            "metadata" => compared(failure.map(|failure| json!(failure.metadata)), covers),
            "feedback" | "log" => {
                compared(self.facts.get(key).map(|fact| restricted(fact, expected)), covers)
            }
            known if self.facts.contains_key(known) => compared(self.facts.get(key).cloned(), same),
            unknown => Err(format!("unknown key {unknown:?}")),
        }
    }
}

/// Only the fields that are expected, so that a message stays short.
fn restricted(fact: &Value, expected: &Value) -> Value {
    let (Value::Object(fact), Value::Object(expected)) = (fact, expected) else {
        return fact.clone();
    };
    let field = |key: &String| Some((key.clone(), fact.get(key)?.clone()));
    Value::Object(expected.keys().filter_map(field).collect())
}

/// Whether two values are equal; numbers are compared by value.
fn same(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Number(actual), Value::Number(expected)) => actual.as_f64() == expected.as_f64(),
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, e)| same(a, e))
        }
        (Value::Object(actual), Value::Object(expected)) => {
            actual.len() == expected.len() && covers_map(actual, expected, same)
        }
        (actual, expected) => actual == expected,
    }
}

/// Whether every expected key is present and covered. Further keys are allowed.
fn covers(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => covers_map(actual, expected, covers),
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, e)| covers(a, e))
        }
        (actual, expected) => same(actual, expected),
    }
}

fn covers_map(
    actual: &Map<String, Value>,
    expected: &Map<String, Value>,
    holds: fn(&Value, &Value) -> bool,
) -> bool {
    expected.iter().all(|(key, expected)| actual.get(key).is_some_and(|a| holds(a, expected)))
}
