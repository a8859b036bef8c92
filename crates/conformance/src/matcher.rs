//! Compares values: equality, subsets and operators.

use serde_json::{Number, Value};

use crate::fields::{MapReader, text};
use crate::log::LogReader;
use crate::parse::log_entry_query;

/// Longest value shown in a message, in characters.
const SHOWN_CHARS: usize = 240;

/// How two maps are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maps {
    /// Both have the same keys.
    Equal,
    /// The actual map has the expected keys, and possibly more.
    Subset,
}

/// Compares values with expected values.
pub(crate) struct Matcher<'a> {
    /// The log that `$same_as` refers to.
    pub(crate) log: &'a LogReader,
}

impl Matcher<'_> {
    /// Compares `actual` with `expected`. `None` means that the key is missing. The error says what differs and where.
    pub(crate) fn compare(
        &self,
        place: &str,
        expected: &Value,
        actual: Option<&Value>,
        maps: Maps,
    ) -> Result<(), String> {
        if let Some((operator, operand)) = operator(expected) {
            return self.operate(place, (operator, operand), actual, maps);
        }
        let differs = || Err(differs(place, &shown(expected), actual));
        let Some(found) = actual else { return differs() };
        match (expected, found) {
            (Value::Object(wanted), Value::Object(found)) => {
                for (key, value) in wanted {
                    self.compare(&format!("{place}.{key}"), value, found.get(key), maps)?;
                }
                let extra = found.keys().find(|key| !wanted.contains_key(*key));
                match extra.filter(|_| maps == Maps::Equal) {
                    None => Ok(()),
                    Some(key) => {
                        Err(format!("{place} has the key {key:?}, which was not expected"))
                    }
                }
            }
            (Value::Array(wanted), Value::Array(items)) => {
                if wanted.len() != items.len() {
                    return differs();
                }
                wanted.iter().zip(items).enumerate().try_for_each(|(index, (value, item))| {
                    self.compare(&format!("{place}[{index}]"), value, Some(item), maps)
                })
            }
            (Value::Number(wanted), Value::Number(found)) if same_number(wanted, found) => Ok(()),
            (wanted, found) if wanted == found => Ok(()),
            _ => differs(),
        }
    }

    fn matches(&self, expected: &Value, actual: Option<&Value>, maps: Maps) -> bool {
        self.compare("", expected, actual, maps).is_ok()
    }

    fn operate(
        &self,
        place: &str,
        (operator, operand): (&str, &Value),
        actual: Option<&Value>,
        maps: Maps,
    ) -> Result<(), String> {
        let number = |value: Option<&Value>| value.and_then(Value::as_f64);
        let holds = match operator {
            "$present" => actual.is_some_and(|value| !value.is_null()),
            "$absent" => actual.is_none(),
            "$not" => actual.is_some() && !self.matches(operand, actual, maps),
            "$includes" => actual.is_some_and(|value| self.includes(value, operand, maps)),
            "$one_of" => operand
                .as_array()
                .is_some_and(|any| any.iter().any(|one| self.matches(one, actual, maps))),
            "$at_least" => {
                number(actual).zip(operand.as_f64()).is_some_and(|(n, least)| n >= least)
            }
            "$at_most" => number(actual).zip(operand.as_f64()).is_some_and(|(n, most)| n <= most),
            "$subset" => return self.compare(place, operand, actual, Maps::Subset),
            "$same_as" => {
                let same = self.referred(operand)?;
                return self.compare(place, &same, actual, Maps::Equal);
            }
            _ => return Err(format!("unknown operator `{operator}`")),
        };
        if holds {
            return Ok(());
        }
        Err(differs(place, &format!("{operator} {}", shown(operand)), actual))
    }

    fn includes(&self, value: &Value, operand: &Value, maps: Maps) -> bool {
        match (value, operand) {
            (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
            (Value::Array(items), _) => {
                items.iter().any(|item| self.matches(operand, Some(item), maps))
            }
            (Value::Object(map), Value::String(key)) => map.contains_key(key),
            _ => false,
        }
    }

    fn referred(&self, operand: &Value) -> Result<Value, String> {
        let mut fields = MapReader::of(operand.clone())?;
        let field = fields.one(&["field"], text)?;
        let entry = self.log.selected(&log_entry_query(&mut fields)?)?;
        let value = entry.get(&field).cloned();
        value.ok_or_else(|| format!("`$same_as`: that entry has no field {field:?}"))
    }
}

/// Checks every operator before a scenario runs: it must be known and have valid operands.
pub(crate) fn admit(expected: &Value) -> Result<(), String> {
    if let Some((operator, operand)) = operator(expected) {
        let wrong = |what: &str| Err(format!("`{operator}` takes {what}"));
        match operator {
            "$present" | "$absent" if operand != &Value::Bool(true) => return wrong("true"),
            "$one_of" if !operand.is_array() => return wrong("a list"),
            "$subset" if !operand.is_object() => return wrong("a map"),
            "$at_least" | "$at_most" if !operand.is_number() => return wrong("a number"),
            "$same_as" => {
                let mut fields = MapReader::of(operand.clone())?;
                fields.one(&["field"], text)?;
                log_entry_query(&mut fields)?;
                return fields.finish().map_err(|problem| format!("`$same_as`: {problem}"));
            }
            "$present" | "$absent" | "$not" | "$includes" | "$one_of" | "$subset" | "$at_least"
            | "$at_most" => {}
            _ => return Err(format!("unknown operator `{operator}`")),
        }
        return admit(operand);
    }
    match expected {
        Value::Array(items) => items.iter().try_for_each(admit),
        Value::Object(entries) => entries.values().try_for_each(admit),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// The operator of a map whose only key begins with `$`.
fn operator(value: &Value) -> Option<(&str, &Value)> {
    let map = value.as_object().filter(|map| map.len() == 1)?;
    let (key, operand) = map.iter().next()?;
    key.starts_with('$').then_some((key.as_str(), operand))
}

/// Compares integers digit by digit and other numbers by value.
fn same_number(one: &Number, other: &Number) -> bool {
    let (a, b) = (one.to_string(), other.to_string());
    let whole = |text: &str| !text.contains(['.', 'e', 'E']);
    if whole(&a) && whole(&b) {
        return a == b;
    }
    one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| one.total_cmp(&other).is_eq())
}

fn differs(place: &str, expected: &str, actual: Option<&Value>) -> String {
    match actual {
        Some(actual) => format!("{place}: expected {expected}, got {}", shown(actual)),
        None => format!("{place}: expected {expected}, but it is missing"),
    }
}

/// A value on one line, shortened if it is long.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text,
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compare(expected: &Value, actual: Option<&Value>, maps: Maps) -> Result<(), String> {
        let log = LogReader::new(std::path::PathBuf::new());
        Matcher { log: &log }.compare("it", expected, actual, maps)
    }

    #[test]
    fn the_table_of_the_readme_holds() {
        let big: Value = serde_json::from_str("265252859812191058636308480000000").unwrap();
        let bigger: Value = serde_json::from_str("265252859812191058636308480000001").unwrap();
        for (expected, actual, maps, holds) in [
            (json!(5), Some(json!(5.0)), Maps::Equal, true),
            (big.clone(), Some(big.clone()), Maps::Equal, true),
            (big, Some(bigger), Maps::Equal, false),
            (json!({"a": 1}), Some(json!({"a": 1, "b": 2})), Maps::Equal, false),
            (json!({"a": 1}), Some(json!({"a": 1, "b": 2})), Maps::Subset, true),
            (json!({"$subset": {"a": 1}}), Some(json!({"a": 1, "b": 2})), Maps::Equal, true),
            (json!([1]), Some(json!([1, 2])), Maps::Subset, false),
            (json!(null), None, Maps::Subset, false),
            (json!(null), Some(json!(null)), Maps::Subset, true),
            (json!({"$present": true}), Some(json!(null)), Maps::Equal, false),
            (json!({"$absent": true}), Some(json!(null)), Maps::Equal, false),
            (json!({"$absent": true}), None, Maps::Equal, true),
            (json!({"$not": ""}), None, Maps::Equal, false),
            (json!({"$not": ""}), Some(json!("x")), Maps::Equal, true),
            (json!({"$includes": "oo"}), Some(json!("boom")), Maps::Equal, true),
            (json!({"$includes": 2}), Some(json!([1, 2])), Maps::Equal, true),
            (json!({"$includes": "a"}), Some(json!({"a": null})), Maps::Equal, true),
            (json!({"$one_of": [1, 2]}), Some(json!(3)), Maps::Equal, false),
            (json!({"$at_least": 2}), Some(json!(2)), Maps::Equal, true),
            (json!({"$at_most": 2}), Some(json!("2")), Maps::Equal, false),
        ] {
            let compared = compare(&expected, actual.as_ref(), maps);
            assert_eq!(compared.is_ok(), holds, "{expected} {actual:?} {compared:?}");
        }
    }

    #[test]
    fn a_difference_says_where() {
        let difference =
            compare(&json!({"a": [1, {"b": 2}]}), Some(&json!({"a": [1, {"b": 3}]})), Maps::Equal);
        assert_eq!(difference.unwrap_err(), "it.a[1].b: expected 2, got 3");
    }

    #[test]
    fn operators_are_checked_before_anything_runs() {
        for wrong in [json!({"$like": 1}), json!([{"$at_least": "1"}]), json!({"$same_as": {}})] {
            assert!(admit(&wrong).is_err(), "{wrong}");
        }
    }
}
