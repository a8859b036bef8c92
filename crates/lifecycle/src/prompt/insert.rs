//! Values written into prompts: one line of JSON that nothing in the value can leave, within a budget.

use serde_json::{Value, json};

use crate::excerpt::shortened;
use crate::request::encoded_bytes;

/// Longest name of a chat template's mark.
const MAX_MARK_BYTES: usize = 40;

/// How far strings and lists are cut, in turn, until a value fits its budget.
const CUTS: [(usize, usize); 6] = [(600, 48), (300, 24), (120, 12), (60, 8), (30, 4), (10, 2)];

/// The same for the first values of an argument: few of them, since they show its shape.
const FIRST_VALUES: [(usize, usize); 4] = [(60, 8), (40, 4), (30, 3), (20, 2)];

/// The same for values that programs look at.
const LOOKED_AT: [(usize, usize); 8] =
    [(2800, 100), (2000, 60), (1200, 40), (600, 24), (300, 16), (120, 12), (60, 8), (30, 4)];

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

/// A list or an object whose JSON has at most `budget` bytes, cut in its strings and lists where it is longer; `None` if
/// even the shortest cut is too long.
pub(super) fn first_values(value: &Value, budget: usize) -> Option<Value> {
    let fits = |shown: &Value| encoded_bytes(shown) <= budget;
    if fits(value) {
        return Some(value.clone());
    }
    let mut cuts = FIRST_VALUES.iter().map(|(chars, items)| cut(value, *chars, *items));
    cuts.find(fits)
}

/// The same of a value that a program looked at: texts are shown at length, because their layout matters.
pub(super) fn looked_at(value: &Value, budget: usize) -> Option<Value> {
    let fits = |shown: &Value| escaped(&shown.to_string()).len() <= budget;
    if fits(value) {
        return Some(value.clone());
    }
    let mut cuts = LOOKED_AT.iter().map(|(chars, items)| cut(value, *chars, *items));
    cuts.find(fits)
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
/// beginnings of tags and of chat templates' marks (`<|im_end|>`, `</s>`, `[INST]`).
pub(crate) fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json.chars();
    let mut in_text = false;
    while let Some(c) = rest.next() {
        let opens =
            |next: char| matches!(next, '|' | '/' | '!' | '_' | '\u{ff5c}') || next.is_alphabetic();
        match c {
            '"' => {
                in_text = !in_text;
                out.push(c);
            }
            '\\' => {
                out.push(c);
                out.extend(rest.next());
            }
            '<' if rest.clone().next().is_some_and(opens) => out.push_str("\\u003c"),
            '[' if in_text && begins_mark(rest.as_str()) => out.push_str("\\u005b"),
            '\u{85}' => out.push_str("\\u0085"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            '\u{7f}' => out.push_str("\\u007f"),
            c => out.push(c),
        }
    }
    out
}

/// Whether `[` before this text begins a mark of a chat template: a name in capitals (`INST]`, `/INST]`, `gMASK]`,
/// `TOOL_CALLS]`) or `|`. An index such as `row[key]` does not.
fn begins_mark(rest: &str) -> bool {
    let name = rest.strip_prefix('/').unwrap_or(rest);
    if name.starts_with('|') {
        return true;
    }
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let length = name.bytes().take(MAX_MARK_BYTES).take_while(is_part).count();
    let (name, after) = name.split_at_checked(length).unwrap_or_default();
    let capitals = |pair: &[u8]| pair.iter().all(u8::is_ascii_uppercase);
    after.starts_with(']') && name.as_bytes().windows(2).any(capitals)
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

    #[test]
    fn no_mark_of_a_chat_template_passes() {
        for mark in [
            "[INST]",
            "[/INST]",
            "[SYSTEM_PROMPT]",
            "[/SYSTEM_PROMPT]",
            "[TOOL_CALLS]",
            "[AVAILABLE_TOOLS]",
            "[gMASK]",
            "[|system|]",
            "<<SYS>>",
            "<|im_start|>",
            "<s>",
            "</s>",
            "<start_of_turn>",
            "<\u{ff5c}User\u{ff5c}>",
        ] {
            for value in [json!(mark), json!([{mark: format!("x \\ \" {mark}")}])] {
                let text = encoded(&value, 999);
                assert!(!text.contains(mark), "{text}");
                assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            }
        }
        for plain in
            [json!("row[key] x[N] ENV['A'] [1, 2] [see] [A]"), json!([true, [null], ["IN"]])]
        {
            assert_eq!(encoded(&plain, 999), plain.to_string());
        }
    }
}
