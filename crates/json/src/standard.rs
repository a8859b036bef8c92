//! The boundary to libraries that use the standard `serde_json`.

use serde_json_lenient::{Number, Value};

/// A value of the standard `serde_json`.
pub type StandardValue = standard_json::Value;

/// The value for a library that uses the standard `serde_json`. Numbers there have 64 bits: a larger integer
/// becomes the nearest float, and a number beyond the range of floats the largest float.
pub fn to_standard(value: &Value) -> StandardValue {
    match value {
        Value::Null => StandardValue::Null,
        Value::Bool(flag) => StandardValue::Bool(*flag),
        Value::Number(number) => StandardValue::Number(standard_number(number)),
        Value::String(text) => StandardValue::String(text.clone()),
        Value::Array(items) => items.iter().map(to_standard).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| (key.clone(), to_standard(field)));
            StandardValue::Object(fields.collect())
        }
    }
}

fn standard_number(number: &Number) -> standard_json::Number {
    if let Some(count) = number.as_u64() {
        return count.into();
    }
    if let Some(integer) = number.as_i64() {
        return integer.into();
    }
    let largest = if number.as_str().starts_with('-') { f64::MIN } else { f64::MAX };
    let float = number.as_f64().unwrap_or(largest);
    standard_json::Number::from_f64(float).unwrap_or_else(|| 0.into())
}
