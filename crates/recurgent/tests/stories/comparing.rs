//! What came of a call, held against what the story says of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use recurgent::Outcome;
use serde_json::{Map, Value, json};

/// What came of a call.
pub(crate) struct Seen {
    pub(crate) outcome: Outcome,
    pub(crate) facts: BTreeMap<&'static str, Value>,
}

impl Seen {
    /// A story must say how a call ended, by which attempts, and whom that took; the rest is up to it.
    pub(crate) fn compare(&self, expected: &Value) -> Result<(), String> {
        let expected = expected.as_object().ok_or("what comes of a call is a map")?;
        let ends = ["gives", "includes", "fails"].iter().filter(|key| expected.contains_key(**key));
        if ends.count() != 1 {
            return Err("say one of `gives`, `includes`, `fails`".to_owned());
        }
        for key in ["attempts", "asked"] {
            if !expected.contains_key(key) {
                return Err(format!("say `{key}`"));
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
        let told = |actual: Option<Value>, holds: fn(&Value, &Value) -> bool| {
            let holds = actual.as_ref().is_some_and(|actual| holds(actual, expected));
            Ok((actual.unwrap_or(Value::Null), holds))
        };
        match key {
            "gives" => told(self.outcome.value().cloned(), same),
            "includes" => told(self.outcome.value().cloned(), covers),
            "fails" => told(failure.map(|failure| json!(failure.kind.code())), same),
            "message" => told(failure.map(|failure| json!(failure.message)), |message, part| {
                message
                    .as_str()
                    .zip(part.as_str())
                    .is_some_and(|(whole, part)| whole.contains(part))
            }),
            "retriable" => told(failure.map(|failure| json!(failure.kind.retriable())), same),
            "metadata" => told(failure.map(|failure| json!(failure.metadata)), covers),
            "told" | "log" => told(self.facts.get(key).cloned(), covers),
            known if self.facts.contains_key(known) => told(self.facts.get(key).cloned(), same),
            unknown => Err(format!("nothing is known of {unknown:?}")),
        }
    }
}

/// Equal; numbers by what they are worth.
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

/// Every key that is named is there and covered; further keys do not matter.
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
