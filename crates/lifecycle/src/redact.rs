//! Secrets do not reach the log: values under telling names, and texts that look like keys.

use serde_json::Value;

/// What stands where a secret stood.
const REDACTED: &str = "[redacted]";
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
    let is_scalar = matches!(value, Value::String(_) | Value::Number(_));
    if is_scalar && names_a_secret(name) {
        Value::String(REDACTED.to_owned())
    } else {
        redacted(value)
    }
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
    if !KEY_PREFIXES.iter().any(|prefix| text.contains(prefix)) {
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
