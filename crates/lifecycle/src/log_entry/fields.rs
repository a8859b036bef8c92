//! An entry as a list of named fields. Every call makes one of about a hundred fields, so names are neither copied nor
//! hashed.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::redact::redact_field;

/// Room made for an entry's fields.
const FIELDS: usize = 128;

/// One log entry. Its names are fixed, and each is set once.
#[derive(Debug, Clone)]
pub struct LogEntry(Vec<(&'static str, Value)>);

impl Default for LogEntry {
    fn default() -> Self {
        Self(Vec::with_capacity(FIELDS))
    }
}

impl LogEntry {
    pub(super) fn insert(&mut self, name: &'static str, value: Value) {
        self.0.push((name, value));
    }

    pub(super) fn fields_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Value)> {
        self.0.iter_mut().map(|(name, value)| (*name, value))
    }

    /// Removes the secrets of every value. Field names are fixed and never contain secrets.
    pub(super) fn redact(&mut self) {
        self.fields_mut().for_each(|(name, value)| redact_field(name, value));
    }
}

impl Serialize for LogEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl From<LogEntry> for Value {
    fn from(entry: LogEntry) -> Self {
        entry.0.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
