//! Reading a map strictly: every key is taken by name, and what is left over is unknown.

use recurgent::lifecycle::program::type_name;
use serde_json::{Map, Value};

/// Keys for people, allowed in every map of the format and ignored.
const INFORMATIONAL: [&str; 6] = ["title", "description", "verifies", "notes", "comment", "tags"];

/// The keys of one map that were not taken yet.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Of a value that must be a map.
    pub(super) fn of(value: Value) -> Result<Self, String> {
        map(value).map(Self)
    }

    /// The value under the first of these synonyms that is there. Two at once contradict each other.
    pub(super) fn take(&mut self, names: &[&str]) -> Result<Option<Value>, String> {
        let mut given = names.iter().filter_map(|name| Some((name, self.0.shift_remove(*name)?)));
        let Some((first, value)) = given.next() else { return Ok(None) };
        match given.next() {
            None => Ok(Some(value)),
            Some((second, _)) => Err(format!("`{first}` and `{second}` mean the same; keep one")),
        }
    }

    /// The same, when it must be there.
    pub(super) fn required(&mut self, names: &[&str]) -> Result<Value, String> {
        self.take(names)?.ok_or_else(|| format!("`{}` is missing", names.join("` or `")))
    }

    /// Takes a value and reads it.
    pub(super) fn optional<T>(
        &mut self,
        names: &[&str],
        read: fn(Value) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let told = |problem| format!("`{}` {problem}", names.join("` or `"));
        self.take(names)?.map(|value| read(value).map_err(told)).transpose()
    }

    /// The same, when it must be there.
    pub(super) fn one<T>(
        &mut self,
        names: &[&str],
        read: fn(Value) -> Result<T, String>,
    ) -> Result<T, String> {
        let missing = || format!("`{}` is missing", names.join("` or `"));
        self.optional(names, read)?.ok_or_else(missing)
    }

    /// Nothing may be left.
    pub(super) fn finish(self) -> Result<(), String> {
        match self.0.keys().find(|key| !INFORMATIONAL.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(format!("unknown key `{key}`")),
        }
    }
}

/// A map.
pub(super) fn map(value: Value) -> Result<Map<String, Value>, String> {
    if let Value::Object(map) = value { Ok(map) } else { Err(unlike("a map", &value)) }
}

/// A list.
pub(super) fn list(value: Value) -> Result<Vec<Value>, String> {
    if let Value::Array(items) = value { Ok(items) } else { Err(unlike("a list", &value)) }
}

/// A text.
pub(super) fn text(value: Value) -> Result<String, String> {
    if let Value::String(text) = value { Ok(text) } else { Err(unlike("a text", &value)) }
}

/// A list of texts.
pub(super) fn texts(value: Value) -> Result<Vec<String>, String> {
    list(value)?.into_iter().map(text).collect()
}

/// True or false.
#[expect(clippy::needless_pass_by_value, reason = "one of the readers")]
pub(super) fn flag(value: Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| unlike("true or false", &value))
}

/// A whole number, 0 or more.
#[expect(clippy::needless_pass_by_value, reason = "one of the readers")]
pub(super) fn count(value: Value) -> Result<usize, String> {
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| unlike("a whole number of at least 0", &value))
}

/// A whole number, 1 or more.
pub(super) fn ordinal(value: Value) -> Result<usize, String> {
    count(value)?.checked_sub(1).map(|index| index + 1).ok_or_else(|| "counts from 1".to_owned())
}

/// Anything.
#[expect(clippy::unnecessary_wraps, reason = "one of the readers")]
pub(super) fn any(value: Value) -> Result<Value, String> {
    Ok(value)
}

fn unlike(expected: &str, found: &Value) -> String {
    format!("must be {expected}, not {}", type_name(found))
}
