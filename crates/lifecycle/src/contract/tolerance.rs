//! Tolerance towards contracts that no person wrote: what is not understood is kept as intent, with a note.

use serde_json::{Map, Value};

use crate::example::Example;
use crate::excerpt::shortened;

use super::breach::MAX_SUMMARY;
use super::word::{ContractWord, are_alike};
use super::{
    Contract, ContractFault, ContractSource, FIELDS, Terms, given, is_field, source, text,
};

/// Parts of one deliverable that are set aside at most. If it has more that are not understood, all of it is set aside.
const MAX_SET_ASIDE: usize = 32;
/// Notes kept of one contract.
const MAX_NOTES: usize = 16;

impl Contract {
    /// Makes one contract like [`Contract::compose`], from a program, an imported registry or a recording. Parts that are
    /// not understood are kept as intent and noted; only a contract beyond the size limits is refused.
    pub fn compose_tolerant(
        whole: Option<&Map<String, Value>>,
        fields: &Map<String, Value>,
    ) -> Result<(Option<Self>, ContractSource), ContractFault> {
        let mut notes = Vec::new();
        let field = |key| given(fields, key).or_else(|| whole.and_then(|w| given(w, key)));
        let mut texts = |key| {
            text(key, field(key)).unwrap_or_else(|fault| {
                notes.push(noted(&fault));
                None
            })
        };
        let (purpose, intent_signature) = (texts("purpose"), texts("intent_signature"));
        let deliverable = field("deliverable").cloned();
        notes.extend(deliverable.iter().flat_map(|deliverable| Terms::tolerant(deliverable).1));
        let mut contract = Self {
            purpose,
            deliverable,
            acceptance: field("acceptance").cloned(),
            failure_policy: field("failure_policy").cloned(),
            intent_signature,
            examples: usable(field("examples"), &mut notes),
            notes: Vec::new(),
        };
        let options = whole.into_iter().chain([fields]).flatten();
        let options = options.filter(|(key, value)| !is_field(key) && !value.is_null());
        notes.extend(options.map(|(key, value)| note_of_option(key, value)));
        if contract == Self::EMPTY && notes.is_empty() {
            return Ok((None, ContractSource::None));
        }
        contract.vet_size()?;
        notes.truncate(MAX_NOTES);
        contract.notes = notes;
        Ok((Some(contract), source(whole, fields)))
    }
}

/// The note on an option that a contract does not have.
pub(super) fn note_of_option(key: &str, value: &Value) -> String {
    let text = shortened(&value.to_string(), MAX_SUMMARY);
    format!(
        "`{}` is not a field of a contract ({}); it is kept as intent: {text}",
        shortened(key, 64),
        FIELDS.join(", ")
    )
}

fn noted(fault: &ContractFault) -> String {
    format!("kept as intent, not enforced: {fault}")
}

/// The examples that can be used.
fn usable(given: Option<&Value>, notes: &mut Vec<String>) -> Vec<Value> {
    let examples = given.and_then(Value::as_array).cloned().unwrap_or_default();
    let mut keep = |example: &Value| match Example::parse(example) {
        Ok(_) => true,
        Err(fault) => {
            notes.push(format!("an example is not used: {fault}"));
            false
        }
    };
    examples.into_iter().filter(|example| keep(example)).collect()
}

impl Terms {
    /// The terms of a deliverable that are understood, and a note on each part that is not.
    pub(super) fn tolerant(deliverable: &Value) -> (Option<Self>, Vec<String>) {
        if let Ok(terms) = Self::parse(deliverable) {
            return (terms, Vec::new());
        }
        let mut rest = deliverable.clone();
        let mut notes = Vec::new();
        for _ in 0..MAX_SET_ASIDE {
            match Self::parse(&rest) {
                Ok(terms) => return (terms, notes),
                Err(fault) => {
                    notes.push(noted(&fault));
                    let path = path_of(&fault).unwrap_or_default();
                    let inner = path.strip_prefix("deliverable.");
                    let fields = rest.as_object_mut();
                    let removed =
                        fields.zip(inner).is_some_and(|(fields, path)| remove(fields, path));
                    if !removed {
                        break;
                    }
                }
            }
        }
        (None, notes)
    }
}

fn path_of(fault: &ContractFault) -> Option<&str> {
    match fault {
        ContractFault::UnknownType { path, .. }
        | ContractFault::UnknownWord { path, .. }
        | ContractFault::Unusable { path, .. }
        | ContractFault::Contradiction { path, .. }
        | ContractFault::Inapplicable { path, .. }
        | ContractFault::TooDeep { path }
        | ContractFault::UnusableSchema { path, .. } => Some(path),
        ContractFault::NotText { .. }
        | ContractFault::Blank { .. }
        | ContractFault::TooLong { .. }
        | ContractFault::UnusableExample { .. } => None,
    }
}

/// Removes the entry at `path`, whose steps are separated by dots; the step `constraints` may be missing from it.
fn remove(fields: &mut Map<String, Value>, path: &str) -> bool {
    // If a word is there in two spellings, remove the one that the path names.
    if fields.shift_remove(path).is_some() {
        return true;
    }
    let at = |key: &str| {
        let canonical = match ContractWord::of(key) {
            ContractWord::Constraint(word) | ContractWord::Schema(word) => word,
            ContractWord::Description | ContractWord::Unknown => key,
        };
        let bare = key.strip_prefix(':').unwrap_or(key);
        [key, bare, canonical]
            .into_iter()
            .find_map(|name| path.strip_prefix(name))
            .map(str::to_owned)
    };
    let found: Vec<(String, String)> =
        fields.keys().filter_map(|key| Some((key.clone(), at(key)?))).collect();
    for (key, rest) in found {
        if rest.is_empty() {
            return fields.shift_remove(&key).is_some();
        }
        let found = fields.get_mut(&key).zip(rest.strip_prefix('.'));
        let removed = found.is_some_and(|(inner, rest)| match inner {
            Value::Object(inner) => remove(inner, rest),
            Value::Array(list) => rest.split_once('.').is_some_and(|(index, rest)| {
                let item = index.parse().ok().and_then(|index: usize| list.get_mut(index));
                item.and_then(Value::as_object_mut).is_some_and(|item| remove(item, rest))
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        });
        if removed {
            return true;
        }
    }
    let nested = fields.iter_mut().find(|(key, _)| are_alike(key, "constraints"));
    nested.and_then(|(_, nested)| nested.as_object_mut()).is_some_and(|nested| remove(nested, path))
}
