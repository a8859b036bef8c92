//! Removes values that were named as secrets from every field of an entry that holds foreign text.

use serde_json::{Map, Value};

use super::LogEntry;
use crate::redact::NamedSecrets;

/// Fields whose values come from callers, programs, models and services.
const FOREIGN: [&str; 24] = [
    "args",
    "kwargs",
    "code",
    "program_dependencies",
    "dependency_notes",
    "latest_failure_message",
    "contract_purpose",
    "contract_deliverable",
    "contract_acceptance",
    "contract_failure_policy",
    "contract_intent_signature",
    "contract_examples",
    "contract_notes",
    "contract_validation_mismatch",
    "outcome_value",
    "outcome_error_message",
    "outcome_error_metadata",
    "outcome_notes",
    "user_correction_evidence",
    "weak_success_signals",
    "system_prompt",
    "user_prompt",
    "context",
    "error_backtrace",
];

/// Fields of an attempt.
const FOREIGN_IN_ATTEMPT: [&str; 5] =
    ["code", "failure", "stdout", "stderr", "program_dependencies"];

/// Fields of a failure whose values are fixed words.
const WORDS_OF_FAILURE: [&str; 5] = ["attempt_id", "stage", "error_type", "blame", "repeated"];

pub(super) fn remove_named(entry: &mut LogEntry, secrets: &NamedSecrets) {
    if secrets.is_empty() {
        return;
    }
    for (name, value) in entry.fields_mut() {
        match name {
            "attempt_failures" => each(value, |failure| clean_failure(failure, secrets)),
            "attempts" => each(value, |attempt| clean_attempt(attempt, secrets)),
            name if FOREIGN.contains(&name) => *value = secrets.out_of(value.take()),
            _ => {}
        }
    }
}

fn clean_attempt(attempt: &mut Map<String, Value>, secrets: &NamedSecrets) {
    for (name, value) in attempt.iter_mut() {
        match (name.as_str(), &mut *value) {
            ("failure", Value::Object(failure)) => clean_failure(failure, secrets),
            ("outside_calls", calls) => each(calls, |call| clean_call(call, secrets)),
            (name, value) if FOREIGN_IN_ATTEMPT.contains(&name) => {
                *value = secrets.out_of(value.take());
            }
            (_, _) => {}
        }
    }
}

fn each(list: &mut Value, clean: impl Fn(&mut Map<String, Value>)) {
    let items = list.as_array_mut().into_iter().flatten();
    items.filter_map(Value::as_object_mut).for_each(clean);
}

fn clean_call(call: &mut Map<String, Value>, secrets: &NamedSecrets) {
    if let Some(arguments) = call.get_mut("arguments") {
        *arguments = secrets.out_of(arguments.take());
    }
}

fn clean_failure(failure: &mut Map<String, Value>, secrets: &NamedSecrets) {
    for (name, value) in failure.iter_mut() {
        if !WORDS_OF_FAILURE.contains(&name.as_str()) {
            *value = secrets.out_of(value.take());
        }
    }
}
