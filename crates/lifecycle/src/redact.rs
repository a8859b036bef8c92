//! Secrets do not reach the log or the store: values under names such as `password`, and texts that look like keys.

use std::borrow::Cow;

use serde_json::Value;

/// What stands where a secret stood.
pub const REDACTED: &str = "[redacted]";
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
/// The letters of which every such name has all of one of these: most names are ruled out quickly.
const SECRET_LETTERS: [u32; 6] = [
    letters("pas"),
    letters("secret"),
    letters("key"),
    letters("token"),
    letters("authorization"),
    letters("credential"),
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
        Value::String(text) => holds_key(text),
        Value::Array(items) => items.iter().any(holds_secrets),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| is_secret(name, value) || holds_secrets(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The value without its secrets.
pub fn redacted(mut value: Value) -> Value {
    redact(&mut value);
    value
}

fn redact(value: &mut Value) {
    match value {
        Value::String(text) => *text = redacted_text(std::mem::take(text)),
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(fields) => {
            for (name, value) in fields {
                if is_secret(name, value) {
                    *value = Value::String(REDACTED.to_owned());
                } else {
                    redact(value);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_secret(name: &str, value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_)) && names_a_secret(name)
}

/// `api_key`, `dbPassword`, `auth-token`, `password2`; but not `input_tokens`.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let has = letters(name);
    if name.is_ascii() && SECRET_LETTERS.iter().all(|needed| has & needed != *needed) {
        return false;
    }
    let spaced = spaced(name);
    let words = || spaced.split(' ');
    words().any(|word| SECRET_WORDS.contains(&word))
        || words()
            .zip(words().skip(1))
            .any(|pair| matches!(pair, ("api" | "private" | "access" | "secret", "key")))
        || words().flat_map(str::chars).eq("apikey".chars())
}

/// The letters of a text, one bit each, whatever their case.
const fn letters(text: &str) -> u32 {
    let mut rest = text.as_bytes();
    let mut found = 0;
    while let [byte, after @ ..] = rest {
        if byte.is_ascii_alphabetic() {
            found |= 1 << (byte.to_ascii_lowercase() - b'a');
        }
        rest = after;
    }
    found
}

/// The words of a name, in lower case, a space between two.
fn spaced(name: &str) -> String {
    let mut words = String::with_capacity(2 * name.len());
    let mut after_lower = false;
    for c in name.chars() {
        let starts = c.is_uppercase() && after_lower;
        if !c.is_alphabetic() || starts {
            words.push(' ');
        }
        if c.is_alphabetic() {
            words.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase();
    }
    words
}

/// A text without what looks like a key.
pub fn redacted_text(text: String) -> String {
    if !holds_key(&text) {
        return text;
    }
    let mut clean = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c: char| !is_key_char(c)) {
        let word = piece.trim_end_matches(|c: char| !is_key_char(c));
        if looks_like_a_key(word.as_bytes()) {
            clean.push_str(REDACTED);
            clean.push_str(piece.get(word.len()..).unwrap_or_default());
        } else {
            clean.push_str(piece);
        }
    }
    clean
}

/// Whether a text holds what looks like a key: one look at each of its bytes, since most texts hold none.
fn holds_key(text: &str) -> bool {
    let words = text.as_bytes().split(|byte| !is_key_char(char::from(*byte)));
    words.filter(|word| word.len() > KEY_CHARS).any(looks_like_a_key)
}

fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn looks_like_a_key(word: &[u8]) -> bool {
    let rest = |prefix: &&str| word.strip_prefix(prefix.as_bytes());
    KEY_PREFIXES.iter().filter_map(rest).any(|rest| rest.len() >= KEY_CHARS)
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
                json!({"password1": "x", "oauth2token": "x", "api_key_2": "x", "k1": "x"}),
                json!({"password1": "[redacted]", "oauth2token": "[redacted]", "api_key_2": "[redacted]", "k1": "x"}),
            ),
            (
                json!({"PRIVATE_KEY": "x", "ApiKey": "x", "a.p.i.k.e.y": "x", "API \u{212a}ey": "x", "monkey": "x", "key": "x"}),
                json!({"PRIVATE_KEY": "[redacted]", "ApiKey": "[redacted]", "a.p.i.k.e.y": "[redacted]", "API \u{212a}ey": "[redacted]", "monkey": "x", "key": "x"}),
            ),
            (
                json!({"input_tokens": 7, "tokens": ["a"]}),
                json!({"input_tokens": 7, "tokens": ["a"]}),
            ),
            (json!({"secret": {"nested": "kept"}}), json!({"secret": {"nested": "kept"}})),
            (json!(["see sk-ant-api03-abcdefgh1234, ok?"]), json!(["see [redacted], ok?"])),
            (json!("a risk-free task"), json!("a risk-free task")),
            (json!("sk-abcdefghijk üsk-abcdefghijkl"), json!("sk-abcdefghijk ü[redacted]")),
            (json!("Bearer ghp_abcdefghijklmnop"), json!("Bearer [redacted]")),
        ] {
            assert_eq!(redacted(value), expected);
        }
    }
}
