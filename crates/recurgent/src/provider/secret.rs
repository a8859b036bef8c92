//! Keys and addresses with credentials: passed on, never shown.

use std::fmt;

/// What stands where a secret would be shown.
const HIDDEN: &str = "[secret]";
/// Shorter texts (`none`, `ollama`) are placeholders where a service needs no key, and words of many texts.
const MIN_SECRET_BYTES: usize = 8;

/// A text that no message, log or debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` from being shown.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` without this secret: services repeat keys in their messages.
    pub(crate) fn out_of(&self, text: String) -> String {
        let is_secret = self.0.len() >= MIN_SECRET_BYTES && text.contains(&self.0);
        if is_secret { text.replace(&self.0, HIDDEN) } else { text }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("sk-canary");
        assert_eq!(
            format!("{secret} {secret:?} {:?}", vec![&secret]),
            "[secret] [secret] [[secret]]"
        );
        for (secret, text, clean) in [
            ("sk-canary", "wrong key sk-canary.", "wrong key [secret]."),
            ("", "as it was", "as it was"),
            ("none", "none of these", "none of these"),
        ] {
            assert_eq!(Secret::new(secret).out_of(text.to_owned()), clean);
        }
    }
}
