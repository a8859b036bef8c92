//! The shape of results, learned from those that were seen: shown to a model where a tool promises none, never enforced.

use serde_json::{Map, Value, json};

/// Levels of a result that are learned.
const MAX_DEPTH: usize = 4;
/// Fields of an object that are learned.
const MAX_FIELDS: usize = 24;
/// Items of a list that are looked at.
const MAX_ITEMS: usize = 16;

/// The schema of a result, together with what was learned before.
pub fn learned(before: Option<&Value>, result: &Value) -> Value {
    let now = shape(result, MAX_DEPTH);
    before.map_or(now.clone(), |before| merged(before, &now))
}

fn shape(value: &Value, depth: usize) -> Value {
    let Some(below) = depth.checked_sub(1) else { return json!({}) };
    match value {
        Value::Null => json!({"type": "null"}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "number"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::String(_) => json!({"type": "string"}),
        Value::Array(items) => {
            let shapes = items.iter().take(MAX_ITEMS).map(|item| shape(item, below));
            match shapes.reduce(|a, b| merged(&a, &b)) {
                Some(items) => json!({"type": "array", "items": items}),
                None => json!({"type": "array"}),
            }
        }
        Value::Object(fields) => {
            let shown = fields.iter().take(MAX_FIELDS);
            let properties: Map<String, Value> =
                shown.map(|(name, value)| (name.clone(), shape(value, below))).collect();
            json!({"type": "object", "properties": properties})
        }
    }
}

/// What both schemas allow.
fn merged(a: &Value, b: &Value) -> Value {
    if a == b {
        return a.clone();
    }
    let kind = |schema: &Value| schema.get("type").and_then(Value::as_str).map(str::to_owned);
    match (kind(a).as_deref(), kind(b).as_deref()) {
        (Some("array"), Some("array")) => match (a.get("items"), b.get("items")) {
            (Some(a), Some(b)) => json!({"type": "array", "items": merged(a, b)}),
            (Some(items), None) | (None, Some(items)) => json!({"type": "array", "items": items}),
            (None, None) => json!({"type": "array"}),
        },
        (Some("object"), Some("object")) => {
            let fields = |schema: &Value| {
                schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
            };
            let mut all = fields(a);
            for (name, schema) in fields(b) {
                let known = all.get(&name).map(|known| merged(known, &schema));
                if known.is_some() || all.len() < MAX_FIELDS {
                    all.insert(name, known.unwrap_or(schema));
                }
            }
            json!({"type": "object", "properties": all})
        }
        (Some("integer"), Some("number")) | (Some("number"), Some("integer")) => {
            json!({"type": "number"})
        }
        (Some("null"), Some(_)) => json!({"anyOf": [b, a]}),
        (Some(_), Some("null")) => json!({"anyOf": [a, b]}),
        _ => json!({}),
    }
}
