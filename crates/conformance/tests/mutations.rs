//! Each scenario of the suite fails if one of its expectations is wrong.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue panics"
)]

use std::fs;
use std::path::{Path, PathBuf};

use conformance::{Suite, conform};
use recurgent::Cancellation;
use recurgent::config::Config;
use serde_json::{Value, json};

/// A value that no scenario expects.
const WRONG: &str = "not what any scenario expects";

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/scenarios")
}

/// Makes one expectation of a step wrong. Returns whether the step has one.
fn mutate(step: &mut Value) -> bool {
    let op = step["op"].as_str().unwrap().to_owned();
    let step = step.as_object_mut().unwrap();
    let changed = match op.as_str() {
        "assert_agent" => ("target", json!(WRONG)),
        "assert_same_instance_returned" => ("target", json!(WRONG)),
        "assert_role" | "assert_log_field_equals" => ("equals", json!(WRONG)),
        "assert_respond_to" => ("equals", json!(!step["equals"].as_bool().unwrap())),
        "assert_provider_calls" | "assert_provider_calls_for_method" | "assert_log_count" => {
            ("equals", json!(step["equals"].as_u64().unwrap() + 1))
        }
        "assert_attempts" => ("equals", json!([WRONG])),
        "assert_memory_includes" | "assert_memory_equals" if step.contains_key("entries") => {
            ("entries", json!({WRONG: true}))
        }
        "assert_memory_equals" => ("key", json!(WRONG)),
        // `mutants_of` puts this key into memory.
        "assert_memory_excludes" => ("keys", json!([WRONG])),
        "assert_prompt" => ("includes", json!([WRONG])),
        "assert_log" => ("fields", json!({"role": WRONG})),
        "assert_log_fields_include" => ("fields", json!([WRONG])),
        "assert_tools" => ("include", json!([WRONG])),
        "assert_history" => {
            let more = step["records"].as_array().unwrap().len() + 1;
            ("records", Value::Array(vec![json!({}); more]))
        }
        "await" => {
            let ready = step["expect_status"] == "ready";
            ("expect_status", json!(if ready { "error" } else { "ready" }))
        }
        _ if step.contains_key("expect_outcome") => {
            ("expect_outcome", mutated_outcome(&step["expect_outcome"]))
        }
        _ if step.contains_key("expect_provider_calls") => {
            ("expect_provider_calls", json!(step["expect_provider_calls"].as_u64().unwrap() + 1))
        }
        _ if step.contains_key("expect_error") => ("expect_error", json!(WRONG)),
        _ => return false,
    };
    step.insert(changed.0.to_owned(), changed.1);
    true
}

/// The expected outcome with one field changed.
fn mutated_outcome(expected: &Value) -> Value {
    let mut expected = expected.clone();
    let names = expected.as_object().unwrap();
    let name = ["error_type", "type", "value", "value_json", "error_message", "message"];
    match name.into_iter().find(|name| names.contains_key(*name)) {
        Some("value_json") => expected["value_json"] = json!(json!(WRONG).to_string()),
        Some(name) => expected[name] = json!(WRONG),
        None => expected["error_message"] = json!(WRONG),
    }
    expected
}

/// The mutants of a scenario: one with its last expectation wrong, and one per `tolerant_delegate` step.
fn mutants_of(scenario: &Value) -> Vec<Value> {
    let steps = scenario["steps"].as_array().unwrap();
    let mutate_step = |index: usize| {
        let mut mutant = scenario.clone();
        if !mutate(&mut mutant["steps"][index]) {
            return None;
        }
        let mut number = index + 1;
        if steps[index]["op"] == "assert_memory_excludes" {
            let set =
                json!({"op": "set", "target": steps[index]["target"], "key": WRONG, "value": 1});
            mutant["steps"].as_array_mut().unwrap().insert(index, set);
            number += 1;
        }
        mutant["id"] = json!(format!("{} step {number}", scenario["id"].as_str().unwrap()));
        Some(mutant)
    };
    let last = (0..steps.len()).rev().find_map(mutate_step);
    let last = last.unwrap_or_else(|| panic!("{} expects nothing", scenario["id"]));
    let tolerant = (0..steps.len()).filter(|index| steps[*index]["op"] == "tolerant_delegate");
    let mut mutants: Vec<Value> = tolerant.filter_map(mutate_step).collect();
    if !mutants.contains(&last) {
        mutants.push(last);
    }
    mutants
}

/// Writes the suite with every scenario replaced by its mutants. Returns the number of mutants.
fn write_mutants(directory: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(scenarios()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let mut file: Value = serde_norway::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        if let Some(scenarios) = file.get("scenarios").and_then(Value::as_array).cloned() {
            let mutants: Vec<Value> = scenarios.iter().flat_map(mutants_of).collect();
            count += mutants.len();
            file["scenarios"] = Value::Array(mutants);
        }
        fs::write(directory.join(path.file_name().unwrap()), file.to_string()).unwrap();
    }
    count
}

#[test]
fn a_scenario_with_a_wrong_expectation_fails_at_that_step() {
    let directory = tempfile::tempdir().unwrap();
    let count = write_mutants(directory.path());
    assert!(count >= 180, "only {count} mutants; at least 180 are expected");
    let suite = Suite::read(directory.path()).unwrap();
    let mut config = Config::load().unwrap();
    config.set("guest", "python").unwrap();
    let report = conform(&suite, &config, &Cancellation::default(), &mut |_| ()).to_json();
    let results = report["results"].as_array().unwrap();
    let wrong: Vec<&Value> = results
        .iter()
        .filter(|result| {
            let id = result["id"].as_str().unwrap();
            let step: u64 = id.rsplit(' ').next().unwrap().parse().unwrap();
            result["status"] != "fail" || result["step"] != step
        })
        .collect();
    assert_eq!(results.len(), count);
    assert!(wrong.is_empty(), "these mutants do not fail at their wrong step: {wrong:#?}");
}
