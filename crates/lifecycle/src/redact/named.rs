//! Values that were named as secrets, so that they can be removed wherever else they appear.

use std::collections::BTreeSet;

use serde_json::Value;

use super::assignment::TextKind;
use super::{REDACTED, is_secret, names_a_secret, next_secret};
use crate::request::CallRequest;

/// A shorter value is a word of many texts.
const MIN_BYTES: usize = 6;
/// A longer value is not searched for.
const MAX_BYTES: usize = 4096;
/// Most values that are remembered, in either of the two forms that each may have.
const MAX_VALUES: usize = 1024;

/// Most keys of a memory that is looked through at each call.
const MAX_KEYS: usize = 256;

/// Values that stood under a secret's name in a call tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedSecrets {
    values: BTreeSet<String>,
    /// Whether there were more than are remembered.
    is_full: bool,
}

impl NamedSecrets {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// What people should know if there were more values than are remembered.
    pub fn note_of_omission(&self) -> Option<String> {
        self.is_full.then(|| {
            format!(
                "this call was given more than {} secrets; the others are removed from the log and the store \
                 only where they stand under a secret's name; pass fewer at a time",
                MAX_VALUES / 2
            )
        })
    }

    /// Adds a value and the values in it that their names mark as secrets.
    pub fn note(&mut self, name: &str, value: &Value) {
        match value {
            Value::String(text) if is_secret(name, value) => self.add(text),
            Value::Number(number) if is_secret(name, value) => self.add(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.note(name, item)),
            Value::Object(fields) => {
                let is_secret = names_a_secret(name);
                for (inner, value) in fields {
                    self.note(if is_secret { name } else { inner }, value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Adds the arguments of a call, what its agent remembers under a secret's name, and nothing of large memories.
    pub fn note_request(&mut self, request: &CallRequest) {
        let args = request.arguments.args.iter().map(|value| ("", value));
        let kwargs = request.arguments.kwargs.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in args.chain(kwargs) {
            self.note(name, value);
            if let Value::String(text) = value {
                self.note_text(text.get(..MAX_BYTES).unwrap_or(text));
            }
        }
        if request.context.len() <= MAX_KEYS {
            for (name, value) in
                request.context.iter().filter(|(name, value)| is_secret(name, value))
            {
                self.note(name, value);
            }
        }
    }

    /// The values that a text names as secrets.
    pub fn in_text(text: &str) -> Self {
        let mut named = Self::default();
        named.note_text(text);
        named
    }

    fn note_text(&mut self, text: &str) {
        let mut from = 0;
        while let Some(secret) = next_secret(text.as_bytes(), from, TextKind::Prose) {
            self.add(text.get(secret.clone()).unwrap_or_default());
            from = secret.end;
        }
    }

    fn add(&mut self, text: &str) {
        if !(MIN_BYTES..=MAX_BYTES).contains(&text.len()) || text == REDACTED {
            return;
        }
        if self.values.len() >= MAX_VALUES {
            self.is_full |= !self.values.contains(text);
        } else {
            self.values.insert(text.to_owned());
            // As it stands in the JSON text of a prompt.
            let encoded = Value::String(text.to_owned()).to_string();
            self.values.insert(encoded.trim_matches('"').to_owned());
        }
    }

    /// Whether a value holds one of these values.
    pub(crate) fn are_in(&self, value: &Value) -> bool {
        let text = value.to_string();
        self.values.iter().any(|secret| text.contains(secret.as_str()))
    }

    /// Whether a word, in lower case, is a part of one of these values.
    pub(crate) fn contain(&self, word: &str) -> bool {
        self.values.iter().any(|secret| secret.to_lowercase().contains(word))
    }

    /// The text without these values.
    pub fn out_of_text(&self, mut text: String) -> String {
        for secret in &self.values {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), REDACTED);
            }
        }
        text
    }

    /// The value without these values, in keys and in texts.
    pub fn out_of(&self, value: Value) -> Value {
        if self.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.out_of_text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.out_of(item)).collect(),
            Value::Object(fields) => {
                let clean = |(name, value)| (self.out_of_text(name), self.out_of(value));
                Value::Object(fields.into_iter().map(clean).collect())
            }
            Value::Number(number) if self.values.contains(&number.to_string()) => {
                Value::String(REDACTED.to_owned())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_beyond_the_limit_are_reported() {
        let mut named = NamedSecrets::default();
        for at in 0..MAX_VALUES {
            named.note("password", &json!(format!("hunter-{at}")));
            named.note("password", &json!("hunter-0"));
        }
        assert_eq!(named.note_of_omission(), None);
        named.note("password", &json!("one more"));
        assert!(named.note_of_omission().unwrap().contains("pass fewer"));
    }

    #[test]
    fn a_value_that_was_named_goes_everywhere() {
        let mut named = NamedSecrets::default();
        named.note("", &json!({"login": {"password": "hunter2", "user": "somebody"}}));
        named.note("pin_token", &json!(123_456));
        named.note("token", &json!("abc"));
        let value = json!({"hunter2": ["it is hunter2!", 123_456, "abc", "somebody"]});
        let clean = json!({"[redacted]": ["it is [redacted]!", "[redacted]", "abc", "somebody"]});
        assert_eq!(named.out_of(value), clean);
    }
}
