//! Reads constraints as a model wrote them: unknown keys pass, known ones must make sense.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Number, Value};

use crate::excerpt::shortened;

use super::breach::{MAX_NAME, described};
use super::constraint::Constraint;
use super::decimal::{Decimal, compare};
use super::{ContractFault, given};

/// One object of constraints as written: its keys, and those under its `constraints`.
pub(super) struct Clause<'a> {
    at: &'a str,
    own: &'a Map<String, Value>,
    nested: Option<&'a Map<String, Value>>,
}

impl<'a> Clause<'a> {
    pub(super) fn open(own: &'a Map<String, Value>, at: &'a str) -> Result<Self, ContractFault> {
        let nested = given(own, "constraints");
        let clause = Self { at, own, nested: nested.and_then(Value::as_object) };
        match nested {
            Some(other) if clause.nested.is_none() => {
                Err(clause.unusable("constraints", other, "an object such as {\"min_items\": 1}"))
            }
            Some(_) | None => Ok(clause),
        }
    }

    fn find(&self, key: &str) -> Option<&'a Value> {
        given(self.own, key).or_else(|| given(self.nested?, key))
    }

    fn unusable(&self, key: &str, found: &Value, instead: &'static str) -> ContractFault {
        let path = format!("{}.{key}", self.at);
        ContractFault::Unusable { path, found: described(found), instead }
    }

    pub(super) fn kinds(&self) -> Result<Vec<Kind>, ContractFault> {
        const INSTEAD: &str = "a type name such as \"array\"";
        let Some(found) = self.find("type") else { return Ok(Vec::new()) };
        let several = found.as_array().filter(|names| !names.is_empty());
        let names = several.map_or(std::slice::from_ref(found), Vec::as_slice);
        let kind = |name: &Value| {
            let text = name.as_str().ok_or_else(|| self.unusable("type", found, INSTEAD))?;
            Kind::named(text).ok_or_else(|| ContractFault::UnknownType {
                path: format!("{}.type", self.at),
                found: shortened(text, MAX_NAME),
            })
        };
        names.iter().map(kind).collect()
    }

    pub(super) fn names(&self, key: &str) -> Result<Vec<String>, ContractFault> {
        let Some(found) = self.find(key) else { return Ok(Vec::new()) };
        let name = |name: &Value| name.as_str().map(|name| bare(name).to_owned());
        let names = found.as_array().and_then(|names| names.iter().map(name).collect());
        names.ok_or_else(|| self.unusable(key, found, "a list of key names such as [\"movies\"]"))
    }

    pub(super) fn range<T: Bound>(
        &self,
        min: &str,
        max: &str,
        read: fn(&Value) -> Option<T>,
    ) -> Result<Range<T>, ContractFault> {
        let bound = |key: &str| {
            let found = self.find(key);
            found.map(|v| read(v).ok_or_else(|| self.unusable(key, v, T::INSTEAD))).transpose()
        };
        let range = Range { min: bound(min)?, max: bound(max)? };
        match (&range.min, &range.max) {
            (Some(low), Some(high)) if low.above(high) => Err(ContractFault::Contradiction {
                path: format!("{}.{min}", self.at),
                low: shortened(&low.to_string(), MAX_NAME),
                high: shortened(&high.to_string(), MAX_NAME),
            }),
            (None | Some(_), None | Some(_)) => Ok(range),
        }
    }

    pub(super) fn listed(&self) -> Result<Vec<Value>, ContractFault> {
        let Some(found) = self.find("enum") else { return Ok(Vec::new()) };
        let values = found.as_array().filter(|values| !values.is_empty()).cloned();
        values.ok_or_else(|| self.unusable("enum", found, "a list of the allowed values"))
    }

    /// Both places count: `properties` and `constraints.properties`.
    pub(super) fn properties(&self) -> Result<Vec<(String, Constraint)>, ContractFault> {
        let mut properties = Vec::new();
        let places = [(Some(self.own), "properties"), (self.nested, "constraints.properties")];
        for (place, key) in places {
            let Some(found) = place.and_then(|object| given(object, "properties")) else {
                continue;
            };
            let by_name = found.as_object().ok_or_else(|| {
                self.unusable(key, found, "an object from key names to constraints")
            })?;
            for (name, written) in by_name.iter().filter(|(_, written)| !written.is_null()) {
                let name = bare(name);
                let key = format!("{key}.{}", shortened(name, MAX_NAME));
                properties.push((name.to_owned(), self.inner(&key, written)?));
            }
        }
        Ok(properties)
    }

    pub(super) fn items(&self) -> Result<Option<Box<Constraint>>, ContractFault> {
        self.find("items").map(|written| self.inner("items", written).map(Box::new)).transpose()
    }

    /// Constraints written out, or just the name of a type.
    fn inner(&self, key: &str, written: &Value) -> Result<Constraint, ContractFault> {
        let at = format!("{}.{key}", self.at);
        if let Some(object) = written.as_object() {
            return Constraint::parse(object, &at);
        }
        if written.is_boolean() {
            return Ok(Constraint::of_any(at)); // a schema that allows all or nothing: the schema library checks it
        }
        match written.as_str().and_then(Kind::named) {
            Some(kind) => Ok(Constraint::of_kind(kind, at)),
            None => Err(self.unusable(key, written, "an object such as {\"type\": \"string\"}")),
        }
    }
}

/// What can bound a range.
pub(super) trait Bound: fmt::Display {
    const INSTEAD: &'static str;
    fn above(&self, other: &Self) -> bool;
}

impl Bound for u64 {
    const INSTEAD: &'static str = "a whole number of 0 or more";
    fn above(&self, other: &Self) -> bool {
        self > other
    }
}

impl Bound for Number {
    const INSTEAD: &'static str = "a number";
    fn above(&self, other: &Self) -> bool {
        compare(self, other) == Ordering::Greater
    }
}

/// `1`, `1.0` and `"1"` alike.
pub(super) fn count(value: &Value) -> Option<u64> {
    let text = value.as_number().map(Number::to_string);
    let text = text.as_deref().or_else(|| value.as_str())?.trim();
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

pub(super) fn number(value: &Value) -> Option<Number> {
    value.as_number().cloned()
}

/// Bounds, either of which may be open.
pub(super) struct Range<T> {
    pub(super) min: Option<T>,
    pub(super) max: Option<T>,
}

impl<T> Default for Range<T> {
    fn default() -> Self {
        Self { min: None, max: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
    Null,
}

impl Kind {
    pub(super) fn named(text: &str) -> Option<Self> {
        Some(match text.trim().trim_start_matches(':').to_ascii_lowercase().as_str() {
            "object" | "hash" | "dict" | "map" | "dictionary" => Self::Object,
            "array" | "list" => Self::Array,
            "string" | "text" | "str" => Self::String,
            "number" | "float" | "double" | "decimal" | "numeric" => Self::Number,
            "integer" | "int" => Self::Integer,
            "boolean" | "bool" => Self::Boolean,
            "null" | "nil" | "none" => Self::Null,
            _ => return None,
        })
    }

    pub(super) fn holds(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.as_number().is_some_and(|n| Decimal::of(n).is_integer()),
            Self::Boolean => value.is_boolean(),
            Self::Null => value.is_null(),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Null => "null",
        }
    }

    pub(super) const fn phrase(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Integer => "an integer",
            Self::Boolean => "a boolean",
            Self::Null => "null",
        }
    }
}

pub(super) fn kind_names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.phrase()).collect::<Vec<_>>().join(" or ")
}

fn bare(name: &str) -> &str {
    name.strip_prefix(':').unwrap_or(name)
}
