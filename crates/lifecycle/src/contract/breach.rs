//! How a result failed its contract: described by shapes and counts. Text of the result is never quoted; numbers, booleans
//! and names of keys are.

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::excerpt::{counted, shortened};
use crate::program::type_name;

/// How many keys of an object a breach lists.
pub(super) const MAX_KEYS: usize = 32;
/// How many characters of one key, type name or number a breach or a fault shows.
pub(super) const MAX_NAME: usize = 64;
/// How many characters an `expected` summary may have.
pub(super) const MAX_SUMMARY: usize = 240;

/// How a value differs from its contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// The whole value is of another type.
    TypeMismatch,
    /// A required key is absent.
    MissingRequiredKey,
    /// Too few items.
    MinItemsViolation,
    /// Too many items.
    MaxItemsViolation,
    /// Too few characters.
    MinLengthViolation,
    /// Too many characters.
    MaxLengthViolation,
    /// A number too small.
    MinimumViolation,
    /// A number too large.
    MaximumViolation,
    /// A value that is not listed.
    EnumViolation,
    /// A value inside the result is of another type.
    PropertyTypeMismatch,
    /// Nothing was given and nothing came back, reported as a success.
    NilRequiredInput,
    /// The schema of the deliverable does not hold.
    SchemaViolation,
}

impl Mismatch {
    /// The name in logs and metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TypeMismatch => "type_mismatch",
            Self::MissingRequiredKey => "missing_required_key",
            Self::MinItemsViolation => "min_items_violation",
            Self::MaxItemsViolation => "max_items_violation",
            Self::MinLengthViolation => "min_length_violation",
            Self::MaxLengthViolation => "max_length_violation",
            Self::MinimumViolation => "minimum_violation",
            Self::MaximumViolation => "maximum_violation",
            Self::EnumViolation => "enum_violation",
            Self::PropertyTypeMismatch => "property_type_mismatch",
            Self::NilRequiredInput => "nil_required_input",
            Self::SchemaViolation => "schema_violation",
        }
    }
}

/// The first place where a value does not keep to its contract.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{}", self.message())]
pub struct Breach {
    /// How the value differs.
    pub mismatch: Mismatch,
    /// Where in the value, e.g. `$.movies[0].title`.
    pub path: String,
    /// What the contract asks for there.
    pub expected: String,
    /// What is there, summarised.
    pub actual: String,
    /// The type asked for there.
    pub expected_shape: String,
    /// The type found there.
    pub actual_shape: String,
    /// The keys the contract requires.
    pub expected_keys: Vec<String>,
    /// The first keys found.
    pub actual_keys: Vec<String>,
    /// What applies to this mismatch alone: `constraint_path`, `expected_min_items` and the like.
    pub details: Map<String, Value>,
}

impl Breach {
    /// One sentence saying what to change.
    pub fn message(&self) -> String {
        let Self { path, expected, actual, .. } = self;
        match self.mismatch {
            Mismatch::NilRequiredInput => {
                "The first argument is null and the result is empty: report a \
                 `missing_input` failure instead of a success, or pass a value."
                    .to_owned()
            }
            Mismatch::SchemaViolation => format!(
                "Change the value at `{path}`, which is {actual}, to keep to the contract's schema: {expected}."
            ),
            Mismatch::MissingRequiredKey => {
                format!("Add {expected} to the result: `{path}` is missing from {actual}.")
            }
            Mismatch::TypeMismatch
            | Mismatch::MinItemsViolation
            | Mismatch::MaxItemsViolation
            | Mismatch::MinLengthViolation
            | Mismatch::MaxLengthViolation
            | Mismatch::MinimumViolation
            | Mismatch::MaximumViolation
            | Mismatch::EnumViolation
            | Mismatch::PropertyTypeMismatch => format!(
                "Return {expected} at `{path}`, where the result has {actual}; if the task cannot give that, \
                 report a failure instead."
            ),
        }
    }

    /// The metadata of a `contract_violation`.
    pub fn metadata(&self) -> Map<String, Value> {
        let mut metadata = Map::new();
        let texts = [
            ("mismatch", self.mismatch.name()),
            ("path", &self.path),
            ("expected", &self.expected),
            ("actual", &self.actual),
            ("expected_shape", &self.expected_shape),
            ("actual_shape", &self.actual_shape),
        ];
        metadata.extend(texts.map(|(key, text)| (key.to_owned(), Value::from(text))));
        metadata.insert("expected_keys".to_owned(), self.expected_keys.clone().into());
        metadata.insert("actual_keys".to_owned(), self.actual_keys.clone().into());
        metadata.extend(self.details.clone());
        metadata
    }

    pub(super) fn new(mismatch: Mismatch, path: String, actual: &Value) -> Self {
        Self {
            mismatch,
            path,
            expected: String::new(),
            actual: described(actual),
            expected_shape: "any".to_owned(),
            actual_shape: type_name(actual).to_owned(),
            expected_keys: Vec::new(),
            actual_keys: Vec::new(),
            details: Map::new(),
        }
    }

    pub(super) fn nil_input(value: &Value) -> Self {
        let mut breach = Self::new(Mismatch::NilRequiredInput, Path::Root.to_string(), value)
            .expecting("a first argument that is not null")
            .shaped("non_nil_input");
        "nil".clone_into(&mut breach.actual_shape); // the shape of the input: `nil` is the word for null in logs
        breach
    }

    pub(super) fn expecting(mut self, expected: &str) -> Self {
        self.expected = shortened(expected, MAX_SUMMARY);
        self
    }

    pub(super) fn shaped(mut self, shape: impl Into<String>) -> Self {
        self.expected_shape = shape.into();
        self
    }

    pub(super) fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// Names the keys asked for and found, unless a check nearer to the fault already did.
    pub(super) fn among_keys(mut self, required: &[String], found: &Value) -> Self {
        if self.expected_keys.is_empty() && self.actual_keys.is_empty() {
            let keys = found.as_object().into_iter().flat_map(Map::keys);
            self.expected_keys =
                required.iter().take(MAX_KEYS).map(|k| shortened(k, MAX_NAME)).collect();
            self.actual_keys = keys.take(MAX_KEYS).map(|key| shortened(key, MAX_NAME)).collect();
        }
        self
    }
}

/// A place in a value. Its text is made only when it is shown.
pub(super) enum Path<'a> {
    Root,
    Key(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("$"),
            Self::Key(parent, key) => write!(f, "{parent}{}", key_step(key)),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// `.title`, or `["odd key"]` where a dot would mislead.
pub(super) fn key_step(key: &str) -> String {
    let plain = key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') && !key.is_empty();
    let key = shortened(key, MAX_NAME);
    if plain { format!(".{key}") } else { format!("[{}]", Value::from(key)) }
}

/// A value in a few words: sizes and numbers, no text of its own.
pub(super) fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => format!("the boolean {flag}"),
        Value::Number(number) => format!("the number {}", shortened(&number.to_string(), MAX_NAME)),
        Value::String(text) => {
            format!("a string of {}", counted(whole(text.chars().count()), "character"))
        }
        Value::Array(items) => format!("an array of {}", counted(whole(items.len()), "item")),
        Value::Object(object) => format!("an object of {}", counted(whole(object.len()), "key")),
    }
}

pub(super) fn whole(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
