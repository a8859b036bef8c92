//! Keys and addresses with credentials: passed on, never shown.

use std::fmt;

/// What stands where a secret would be shown.
const HIDDEN: &str = "[secret]";

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

    /// `text` without this secret: services repeat keys in their errors.
    pub(crate) fn out_of(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, HIDDEN) }
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
        assert_eq!(secret.out_of("wrong key sk-canary."), "wrong key [secret].");
        assert_eq!(Secret::new("").out_of("as it was"), "as it was");
    }
}
