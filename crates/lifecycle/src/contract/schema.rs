//! A deliverable that is a JSON Schema, checked by a library: offline, no backtracking.

use std::fmt::Write as _;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Value, to_standard};

use crate::excerpt::shortened;

use super::breach::{Breach, MAX_SUMMARY, Mismatch, key_step};
use super::{ContractFault, deeper_than};

/// How many references a schema may hold: chained, they multiply the work of one check.
const MAX_REFERENCES: usize = 24;
/// How deep a value may be nested to be checked by a (possibly recursive) schema.
const MAX_VALUE_DEPTH: usize = 256;
/// How many bytes a compiled pattern may take.
const MAX_PATTERN_BYTES: usize = 1 << 20;

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
pub(super) struct Schema {
    validator: Validator,
    /// Where the contract holds it.
    at: &'static str,
}

impl Schema {
    pub(super) fn parse(schema: &Value, at: &'static str) -> Result<Self, ContractFault> {
        let fault = |reason| ContractFault::UnusableSchema { path: at.to_owned(), reason };
        if references(schema) > MAX_REFERENCES {
            return Err(fault(format!("it holds more than {MAX_REFERENCES} references")));
        }
        jsonschema::options()
            .offline()
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
            .build(&to_standard(schema))
            .map(|validator| Self { validator, at })
            .map_err(|error| {
                let place = error.instance_path().as_str();
                fault(shortened(&format!("{place} {error}"), MAX_SUMMARY).trim_start().to_owned())
            })
    }

    pub(super) fn check(&self, value: &Value) -> Result<(), Breach> {
        if deeper_than(value, MAX_VALUE_DEPTH) {
            let limit = format!("a value of at most {MAX_VALUE_DEPTH} levels is expected");
            let breach = Breach::new(Mismatch::SchemaViolation, "$".to_owned(), value);
            return Err(breach.expecting(&limit).detail("constraint_path", self.at));
        }
        self.validator.validate(&to_standard(value)).map_err(|error| {
            let pointer = error.instance_path().as_str();
            let found = value.pointer(pointer).unwrap_or(value);
            Breach::new(Mismatch::SchemaViolation, dollar_path(pointer, value), found)
                .expecting(&error.masked_with("it").to_string())
                .shaped("schema")
                .detail("constraint_path", format!("{}{}", self.at, error.schema_path()))
        })
    }
}

/// `/movies/0/title` in the notation of a breach; the value shows whether a step is an index or a key.
fn dollar_path(pointer: &str, value: &Value) -> String {
    let mut path = "$".to_owned();
    let mut here = Some(value);
    for step in pointer.split('/').skip(1) {
        let key = step.replace("~1", "/").replace("~0", "~");
        if let Some(items) = here.and_then(Value::as_array) {
            let _ = write!(path, "[{key}]"); // writing to a String cannot fail
            here = key.parse::<usize>().ok().and_then(|index| items.get(index));
        } else {
            path.push_str(&key_step(&key));
            here = here.and_then(|object| object.get(&key));
        }
    }
    path
}

/// Recursion is bounded: the deliverable's depth was.
fn references(schema: &Value) -> usize {
    if let Some(object) = schema.as_object() {
        let own = object.keys().filter(|key| REFERENCES.contains(&key.as_str())).count();
        own + object.values().map(references).sum::<usize>()
    } else {
        schema.as_array().map_or(0, |items| items.iter().map(references).sum())
    }
}
