//! Values written into prompts: one line of JSON that nothing in the value can leave, within a budget.

use serde_json::{Value, json};

use crate::excerpt::shortened;

/// How far strings and lists are cut, in turn, until a value fits its budget.
const CUTS: [(usize, usize); 6] = [(600, 48), (300, 24), (120, 12), (60, 8), (30, 4), (10, 2)];

/// The value as JSON of at most `budget` bytes; what does not fit is cut inside its strings and lists.
pub(super) fn encoded(value: &Value, budget: usize) -> String {
    let whole = escaped(&value.to_string());
    if whole.len() <= budget {
        return whole;
    }
    let mut cuts =
        CUTS.iter().map(|(chars, items)| escaped(&cut(value, *chars, *items).to_string()));
    let fitting = cuts.find(|text| text.len() <= budget);
    fitting.unwrap_or_else(|| json!({"omitted_bytes": whole.len()}).to_string())
}

/// The value with long strings, lists and objects cut.
fn cut(value: &Value, chars: usize, items: usize) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => Value::String(shortened(text, chars)),
        Value::Array(list) => list.iter().take(items).map(|item| cut(item, chars, items)).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .take(items)
                .map(|(name, value)| (shortened(name, chars), cut(value, chars, items)))
                .collect(),
        ),
    }
}

/// JSON without what a reader of the prompt may take for more than text: line ends JSON allows, and the
/// beginnings of tags and of chat templates' marks (`<|im_end|>`, `</s>`).
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json.chars().peekable();
    while let Some(c) = rest.next() {
        let opens = |next: &char| {
            matches!(next, '|' | '/' | '!' | '_' | '\u{ff5c}') || next.is_alphabetic()
        };
        match c {
            '<' if rest.peek().is_some_and(opens) => out.push_str("\\u003c"),
            '\u{85}' => out.push_str("\\u0085"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            '\u{7f}' => out.push_str("\\u007f"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_too_large_is_cut_and_stays_json() {
        let value = json!({"a": "x".repeat(5000), "b": vec!["y".repeat(50); 500], "c": {"d": 1}});
        for budget in [20_000, 6000, 4096, 1024, 300, 100, 30] {
            let text = encoded(&value, budget);
            assert!(text.len() <= budget, "{budget}: {}", text.len());
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        }
        assert_eq!(encoded(&json!("a < b <|x|> </s>"), 99), "\"a < b \\u003c|x|> \\u003c/s>\"");
    }
}
