//! Reads a map strictly: each key is taken by name, and a key that remains is an error.

use lifecycle::program::type_name;
use serde_json::{Map, Value};

/// Keys for people. Every map of the format may have them; they are ignored.
const INFORMATIONAL: [&str; 6] = ["title", "description", "verifies", "notes", "comment", "tags"];

/// The keys of a map that were not taken yet.
pub(crate) struct MapReader(Map<String, Value>);

impl MapReader {
    /// Reads a value that must be a map.
    pub(crate) fn of(value: Value) -> Result<Self, String> {
        map(value).map(Self)
    }

    /// Takes the value under one of these synonyms. Two of them at once are an error.
    pub(crate) fn take(&mut self, names: &[&str]) -> Result<Option<Value>, String> {
        let mut given = names.iter().filter_map(|name| Some((name, self.0.shift_remove(*name)?)));
        let Some((first, value)) = given.next() else { return Ok(None) };
        match given.next() {
            None => Ok(Some(value)),
            Some((second, _)) => Err(format!("`{first}` and `{second}` mean the same; keep one")),
        }
    }

    /// Takes a value that must be present.
    pub(crate) fn required(&mut self, names: &[&str]) -> Result<Value, String> {
        self.take(names)?.ok_or_else(|| format!("`{}` is missing", names.join("` or `")))
    }

    /// Takes and reads a value.
    pub(crate) fn optional<T>(
        &mut self,
        names: &[&str],
        read: fn(Value) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let explained = |problem| format!("`{}` {problem}", names.join("` or `"));
        self.take(names)?.map(|value| read(value).map_err(explained)).transpose()
    }

    /// Takes and reads a value that must be present.
    pub(crate) fn one<T>(
        &mut self,
        names: &[&str],
        read: fn(Value) -> Result<T, String>,
    ) -> Result<T, String> {
        let missing = || format!("`{}` is missing", names.join("` or `"));
        self.optional(names, read)?.ok_or_else(missing)
    }

    /// Fails if a key remains.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.0.keys().find(|key| !INFORMATIONAL.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(format!("unknown key `{key}`")),
        }
    }
}

/// Reads a map.
pub(crate) fn map(value: Value) -> Result<Map<String, Value>, String> {
    if let Value::Object(map) = value { Ok(map) } else { Err(unlike("a map", &value)) }
}

/// Reads a list.
pub(crate) fn list(value: Value) -> Result<Vec<Value>, String> {
    if let Value::Array(items) = value { Ok(items) } else { Err(unlike("a list", &value)) }
}

/// Reads a text.
pub(crate) fn text(value: Value) -> Result<String, String> {
    if let Value::String(text) = value { Ok(text) } else { Err(unlike("a text", &value)) }
}

/// Reads a list of texts.
pub(crate) fn texts(value: Value) -> Result<Vec<String>, String> {
    list(value)?.into_iter().map(text).collect()
}

/// Reads true or false.
#[expect(clippy::needless_pass_by_value, reason = "one of the readers")]
pub(crate) fn flag(value: Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| unlike("true or false", &value))
}

/// Reads a whole number of at least 0.
#[expect(clippy::needless_pass_by_value, reason = "one of the readers")]
pub(crate) fn count(value: Value) -> Result<usize, String> {
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| unlike("a whole number of at least 0", &value))
}

/// Reads a whole number of at least 1.
pub(crate) fn ordinal(value: Value) -> Result<usize, String> {
    count(value)?.checked_sub(1).map(|index| index + 1).ok_or_else(|| "counts from 1".to_owned())
}

/// Accepts any value.
#[expect(clippy::unnecessary_wraps, reason = "one of the readers")]
pub(crate) fn any(value: Value) -> Result<Value, String> {
    Ok(value)
}

fn unlike(expected: &str, found: &Value) -> String {
    format!("must be {expected}, not {}", type_name(found))
}
