//! Every scenario can fail: with one expectation made wrong, each of ours does.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
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
fn spoil(step: &mut Value) -> bool {
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
        // A key that is certainly in memory is not known here, so the assertion is turned round.
        "assert_memory_excludes" => {
            let keys = step.shift_remove("keys").unwrap();
            step["op"] = json!("assert_memory_includes");
            ("entries", json!({keys[0].as_str().unwrap(): WRONG}))
        }
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
            ("expect_outcome", spoiled_outcome(&step["expect_outcome"]))
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

/// Another error type, or another status.
fn spoiled_outcome(expected: &Value) -> Value {
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

/// The variants of a scenario: one with its last expectation wrong, and one per tolerant delegation.
fn variants(scenario: &Value) -> Vec<Value> {
    let steps = scenario["steps"].as_array().unwrap();
    let spoilt = |index: usize| {
        let mut variant = scenario.clone();
        variant["id"] = json!(format!("{} step {}", scenario["id"].as_str().unwrap(), index + 1));
        spoil(&mut variant["steps"][index]).then_some(variant)
    };
    let last = (0..steps.len()).rev().find_map(spoilt);
    let last = last.unwrap_or_else(|| panic!("{} expects nothing", scenario["id"]));
    let tolerant = (0..steps.len()).filter(|index| steps[*index]["op"] == "tolerant_delegate");
    let mut variants: Vec<Value> = tolerant.filter_map(spoilt).collect();
    if !variants.contains(&last) {
        variants.push(last);
    }
    variants
}

/// Our suite with every scenario replaced by its variants, and their number.
fn spoilt_suite(directory: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(scenarios()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let mut file: Value = serde_norway::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        if let Some(scenarios) = file.get("scenarios").and_then(Value::as_array).cloned() {
            let spoilt: Vec<Value> = scenarios.iter().flat_map(variants).collect();
            count += spoilt.len();
            file["scenarios"] = Value::Array(spoilt);
        }
        fs::write(directory.join(path.file_name().unwrap()), file.to_string()).unwrap();
    }
    count
}

#[test]
fn a_scenario_with_a_wrong_expectation_fails_at_that_step() {
    let directory = tempfile::tempdir().unwrap();
    let count = spoilt_suite(directory.path());
    assert!(count >= 180, "{count} scenarios; some were lost");
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
    assert!(wrong.is_empty(), "these do not fail where they are wrong: {wrong:#?}");
}
