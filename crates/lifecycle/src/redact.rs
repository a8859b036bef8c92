//! Secrets do not reach the log or the store: values under telling names, and texts that look like keys.

use std::borrow::Cow;

use serde_json::Value;

/// What stands where a secret stood.
pub(crate) const REDACTED: &str = "[redacted]";
/// Names whose value is a secret, as whole words of a key.
const SECRET_WORDS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "token",
    "authorization",
    "credential",
    "credentials",
];
/// How well-known keys begin.
const KEY_PREFIXES: [&str; 10] = [
    "sk-",
    "sk_live_",
    "pk_live_",
    "ghp_",
    "gho_",
    "github_pat_",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
];
/// Characters after such a beginning that make it a key.
const KEY_CHARS: usize = 12;

/// A named value without its secrets, as [`redacted`] gives it; copied only if it holds any.
pub(crate) fn redacted_field<'a>(name: &str, value: &'a Value) -> Cow<'a, Value> {
    if is_secret(name, value) {
        return Cow::Owned(Value::String(REDACTED.to_owned()));
    }
    if holds_secrets(value) { Cow::Owned(redacted(value.clone())) } else { Cow::Borrowed(value) }
}

fn holds_secrets(value: &Value) -> bool {
    match value {
        Value::String(text) => keys_in(text).next().is_some(),
        Value::Array(items) => items.iter().any(holds_secrets),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| is_secret(name, value) || holds_secrets(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The value without its secrets.
pub fn redacted(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(redacted_text(text)),
        Value::Array(items) => Value::Array(items.into_iter().map(redacted).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| {
                    let value = field(&name, value);
                    (name, value)
                })
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

fn field(name: &str, value: Value) -> Value {
    if is_secret(name, &value) { Value::String(REDACTED.to_owned()) } else { redacted(value) }
}

fn is_secret(name: &str, value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_)) && names_a_secret(name)
}

/// `api_key`, `dbPassword`, `auth-token`; but not `input_tokens`.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let mut words = words(name);
    words.iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
        || words.iter().zip(words.iter().skip(1)).any(|(first, second)| {
            matches!(
                (first.as_str(), second.as_str()),
                ("api" | "private" | "access" | "secret", "key")
            )
        })
        || words.drain(..).collect::<String>() == "apikey"
}

fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars() {
        let starts = c.is_uppercase() && after_lower;
        if !c.is_alphanumeric() || starts {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase();
    }
    words
}

/// A text without what looks like a key.
pub fn redacted_text(text: String) -> String {
    if keys_in(&text).next().is_none() {
        return text;
    }
    let mut clean = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c: char| !is_key_char(c)) {
        let word = piece.trim_end_matches(|c: char| !is_key_char(c));
        if looks_like_a_key(word) {
            clean.push_str(REDACTED);
            clean.push_str(piece.get(word.len()..).unwrap_or_default());
        } else {
            clean.push_str(piece);
        }
    }
    clean
}

/// The words of a text that look like keys; a text without any is only searched, not taken apart.
fn keys_in(text: &str) -> impl Iterator<Item = &str> {
    let may_hold_one = KEY_PREFIXES.iter().any(|prefix| text.contains(prefix));
    let searched = if may_hold_one { text } else { "" };
    searched.split(|c: char| !is_key_char(c)).filter(|word| looks_like_a_key(word))
}

fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn looks_like_a_key(word: &str) -> bool {
    KEY_PREFIXES
        .iter()
        .any(|prefix| word.strip_prefix(prefix).is_some_and(|rest| rest.len() >= KEY_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        for (value, expected) in [
            (json!({"api_key": "hunter2"}), json!({"api_key": "[redacted]"})),
            (
                json!({"dbPassword": "x", "user": "ada"}),
                json!({"dbPassword": "[redacted]", "user": "ada"}),
            ),
            (json!({"auth-token": 7}), json!({"auth-token": "[redacted]"})),
            (
                json!({"input_tokens": 7, "tokens": ["a"]}),
                json!({"input_tokens": 7, "tokens": ["a"]}),
            ),
            (json!({"secret": {"nested": "kept"}}), json!({"secret": {"nested": "kept"}})),
            (json!(["see sk-ant-api03-abcdefgh1234, ok?"]), json!(["see [redacted], ok?"])),
            (json!("a risk-free task"), json!("a risk-free task")),
            (json!("Bearer ghp_abcdefghijklmnop"), json!("Bearer [redacted]")),
        ] {
            assert_eq!(redacted(value), expected);
        }
    }
}
