//! Tests of the conformance runner: our scenarios pass on both guests, broken ones fail with the reason, and a suite in
//! the format of other runtimes runs unchanged.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Fewer scenarios than this, and some were lost.
const LEAST_SCENARIOS: u64 = 170;

fn conformance(directory: &Path, guest: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_recurgent"))
        .args(["conformance", "--guest", guest, "--dir"])
        .arg(directory)
        .args(more)
        .output()
        .unwrap()
}

fn report(directory: &Path, guest: &str) -> (Value, Option<i32>) {
    let output = conformance(directory, guest, &["--json"]);
    let report = serde_json::from_slice(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (report.unwrap_or_else(|error| panic!("{error}: {errors}")), output.status.code())
}

fn suite(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn our_scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/scenarios")
}

#[track_caller]
fn check_all_pass(directory: &Path, guest: &str, at_least: u64) {
    let (report, code) = report(directory, guest);
    let results = report["results"].as_array().unwrap();
    let bad: Vec<_> = results.iter().filter(|result| result["status"] != "pass").collect();
    assert!(bad.is_empty(), "{guest}: {bad:#?}");
    assert_eq!((report["failed"].as_u64(), code), (Some(0), Some(0)));
    assert!(report["passed"].as_u64().unwrap() >= at_least, "{}", report["passed"]);
    assert_eq!(report["contract_version"], 1);
    assert_eq!(report["guest"], guest);
}

#[test]
fn our_scenarios_hold_on_python() {
    check_all_pass(&our_scenarios(), "python", LEAST_SCENARIOS);
}

#[test]
fn our_scenarios_hold_on_ruby() {
    check_all_pass(&our_scenarios(), "ruby", LEAST_SCENARIOS);
}

/// Each is wrong in one way; beside it, the step that must fail and what must be said.
const BROKEN: &[(&str, u64, &str, &str)] = &[
    (
        "value",
        2,
        "value: expected 43, got 42",
        "
      - {op: call, method: answer, expect_outcome: {status: ok, value: 43}}",
    ),
    (
        "value_in_depth",
        2,
        "value.movies[0]: expected \"Aliens\", got \"Alien\"",
        "
      - {op: call, method: list, expect_outcome: {value: {movies: [Aliens]}}}",
    ),
    (
        "extra_key",
        2,
        "has the key \"movies\", which was not expected",
        "
      - {op: call, method: list, expect_outcome: {value: {}}}",
    ),
    (
        "status",
        2,
        "status: expected \"error\", got \"ok\"",
        "
      - {op: call, method: answer, expect_outcome: {status: error}}",
    ),
    (
        "error_type",
        2,
        "error_type: expected \"timeout\", got \"execution\"",
        "
      - {op: call, method: explode, expect_outcome: {status: error, error_type: timeout}}",
    ),
    (
        "message",
        2,
        "error_message: expected \"bang\" in it",
        "
      - {op: call, method: explode, expect_outcome: {error_message_includes: bang}}",
    ),
    (
        "metadata",
        2,
        "metadata.cache: expected 3, but it is missing",
        "
      - {op: call, method: explode, expect_outcome: {metadata: {cache: 3}}}",
    ),
    (
        "provider_calls",
        3,
        "expected 1 provider calls, got 0",
        "
      - {op: call, method: answer}
      - {op: call, method: answer, expect_provider_calls: 1}",
    ),
    (
        "provider_calls_in_all",
        3,
        "provider calls (any call): expected 2, got 1",
        "
      - {op: call, method: answer}
      - {op: assert_provider_calls, equals: 2}",
    ),
    (
        "log_field",
        3,
        "log field program_source: expected \"persisted\", got \"generated\"",
        "
      - {op: call, method: answer}
      - {op: assert_log, fields: {program_source: persisted}}",
    ),
    (
        "log_field_missing",
        3,
        "no field \"system_prompt\"",
        "
      - {op: call, method: answer}
      - {op: assert_log_fields_include, fields: [role, system_prompt]}",
    ),
    (
        "log_count",
        3,
        "log entries (any call): expected 0, got 1",
        "
      - {op: call, method: answer}
      - {op: assert_log_count, equals: 0}",
    ),
    (
        "no_log_entry",
        2,
        "no such log entry",
        "
      - {op: assert_log, fields: {role: broken}}",
    ),
    (
        "attempts",
        3,
        "attempts[0].code: expected \"timeout\", got \"execution\"",
        "
      - {op: call, method: explode}
      - {op: assert_attempts, equals: [timeout, execution]}",
    ),
    (
        "memory",
        3,
        "memory.value: expected 3, got 2",
        "
      - {op: call, method: increment, args: [2]}
      - {op: assert_memory_equals, key: value, value: 3}",
    ),
    (
        "memory_missing",
        2,
        "memory.value: expected 3, but it is missing",
        "
      - {op: assert_memory_includes, entries: {value: 3}}",
    ),
    (
        "memory_extra",
        3,
        "memory has the key \"value\", which was not expected",
        "
      - {op: set, key: value, value: 1}
      - {op: assert_memory_equals, entries: {}}",
    ),
    (
        "prompt",
        3,
        "the prompt does not say \"abracadabra\"",
        "
      - {op: call, method: answer}
      - {op: assert_prompt, includes: [abracadabra]}",
    ),
    (
        "tools",
        2,
        "no tool is named \"hammer\"",
        "
      - {op: assert_tools, include: [hammer]}",
    ),
    (
        "history",
        3,
        "history",
        "
      - {op: call, method: answer}
      - {op: assert_history, records: []}",
    ),
    (
        "respond_to",
        2,
        "responds to \"value\": expected true, got false",
        "
      - {op: assert_respond_to, method: value, equals: true}",
    ),
    (
        "not_refused",
        2,
        "expected a refusal, but the operation succeeded",
        "
      - {op: set, key: value, value: 1, expect_error: true}",
    ),
    (
        "refused",
        2,
        "refused: no tool is named",
        "
      - {op: tool, name: hammer}",
    ),
    (
        "unplanned",
        2,
        "asked for broken.sing, which the plan does not cover",
        "
      - {op: call, method: sing, expect_outcome: {status: error}}",
    ),
    (
        "unknown_agent",
        2,
        "no agent is named \"stranger\"",
        "
      - {op: call, target: stranger, method: answer}",
    ),
];

#[test]
fn a_broken_scenario_fails_and_says_what_was_wrong() {
    let mut text = "scenarios:\n".to_owned();
    for (id, _, _, steps) in BROKEN {
        let _ = write!(
            text,
            "  - id: broken.{id}
    provider_plan:
      answer: return_42
      explode: raise_boom
      increment: increment_value_by_arg0
      list: {{python: 'result = {{\"movies\": [\"Alien\"]}}', ruby: 'result = {{ movies: [\"Alien\"] }}'}}
    steps:
      - {{op: construct, role: broken}}{steps}\n"
        );
    }
    let directory = suite(&[("broken.yaml", &text)]);
    let (report, code) = report(directory.path(), "python");
    assert_eq!((report["passed"].as_u64(), code), (Some(0), Some(1)), "{report:#}");
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), BROKEN.len());
    for ((id, step, words, _), result) in BROKEN.iter().zip(results) {
        assert_eq!(result["id"], format!("broken.{id}"));
        assert_eq!(
            (&result["status"], result["step"].as_u64()),
            (&"fail".into(), Some(*step)),
            "{result}"
        );
        assert!(result["message"].as_str().unwrap().contains(words), "{result}");
    }
}

#[test]
fn the_report_for_people_ends_with_the_count() {
    let directory = suite(&[(
        "a.yaml",
        "
scenarios:
  - {id: a.good, steps: [{op: construct, role: a}]}
  - {id: a.bad, steps: [{op: construct, role: a}, {op: assert_role, equals: b}]}
  - {id: a.unknown, steps: [{op: construct, role: a}, {op: dance}]}
  - {id: a.elsewhere, guests: [ruby], steps: [{op: construct, role: a}]}
",
    )]);
    let output = conformance(directory.path(), "python", &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        lines,
        [
            "fail  a.bad (a.yaml) step 2 assert_role: role: expected \"b\", got \"a\"",
            "error a.unknown (a.yaml): step 2 dance: unknown operation `dance`",
            "skip  a.elsewhere (a.yaml): not for python",
            "1 passed, 2 failed, 1 skipped",
        ]
    );
    let output = conformance(directory.path(), "python", &["--only", "*.good"]);
    assert_eq!((&*output.stdout, output.status.code()), (&b"1 passed, 0 failed\n"[..], Some(0)));
}

#[test]
fn what_cannot_be_used_is_refused_with_its_own_code() {
    let scenario = "scenarios: [{id: a, steps: [{op: construct, role: a}]}]";
    for (files, words) in [
        (&[] as &[(&str, &str)], "no scenarios in"),
        (&[("a.yaml", "scenarios: [")], "a.yaml"),
        (&[("a.yaml", "{version: 2, scenarios: []}")], "version 2"),
        (&[("a.yaml", "{scenario: []}")], "unknown key `scenario`"),
        (&[("a.yaml", scenario), ("b.yaml", scenario)], "is in a.yaml and again in b.yaml"),
    ] {
        let output = conformance(suite(files).path(), "python", &[]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{files:?}: {errors}");
        assert!(errors.contains(words), "{errors}");
    }
    let directory = suite(&[("a.yaml", scenario)]);
    assert_eq!(conformance(directory.path(), "python", &["--only", "b"]).status.code(), Some(2));
    assert_eq!(conformance(directory.path(), "lua", &[]).status.code(), Some(2));
    assert_eq!(conformance(Path::new("/nowhere"), "python", &[]).status.code(), Some(2));
    let output = Command::new(env!("CARGO_BIN_EXE_recurgent"))
        .args(["conformance", "--guest", "ruby", "--dir"])
        .arg(directory.path())
        .env("RECURGENT_RUBY", "/nowhere/ruby")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}

/// As other runtimes of the contract write theirs: programs by what they mean, plans by method, `verifies`
/// in prose, and no plan where a delegate may fail.
const FOREIGN: &[(&str, &str)] = &[
    (
        "programs.yaml",
        "
version: 1
programs:
  - id: return_42
    semantics: Gives forty-two.
  - id: increment_value_by_arg0
    semantics: Adds its first argument to the remembered `value`.
  - id: set_value_from_amount_kwarg
    semantics: Remembers the named argument `amount` as `value`, and gives it.
  - id: raise_boom
    semantics: Raises something that says boom.
  - id: delegate_compute_add_2_3
    semantics: Has a calculator of its own add 2 and 3.
  - id: add_args_0_1
    semantics: Adds its two arguments.
provider_payloads:
  - id: invalid_nil
    semantics: No program at all.
  - id: invalid_blank
    semantics: A program of blanks.
",
    ),
    (
        "core-scenarios.yaml",
        "
version: 1
scenarios:
  - id: memory.kept_and_shown
    verifies:
      - an agent remembers its entries
      - and it is still the same agent
    steps:
      - op: construct
        as: clerk
        role: clerk
      - op: assert_agent
        target: clerk
      - op: assert_role
        target: clerk
        equals: clerk
      - op: remember
        target: clerk
        entries:
          floor: 3
          desk: window
      - op: assert_memory_includes
        target: clerk
        entries:
          desk: window
      - op: assert_same_instance_returned
        target: clerk
        from_op: remember

  - id: calls.positional_and_named
    provider_plan:
      raise_by: increment_value_by_arg0
      start: set_value_from_amount_kwarg
    steps:
      - op: construct
        as: clerk
        role: clerk
      - op: set
        target: clerk
        key: value
        value: 1
      - op: assert_provider_calls
        equals: 0
      - op: call
        target: clerk
        method: start
        kwargs:
          amount: 20
        expect_outcome:
          status: ok
          value: 20
      - op: call
        target: clerk
        method: raise_by
        args: [4]
        expect_outcome:
          status: ok
          value: 24
      - op: assert_memory_equals
        target: clerk
        key: value
        value: 24
      - op: assert_respond_to
        target: clerk
        method: value
        equals: true

  - id: provider.second_answer_counts
    config:
      max_generation_attempts: 2
      logging: enabled
    provider_plan:
      guess:
        sequence: [invalid_blank, return_42]
      mumble:
        sequence: [invalid_blank, invalid_nil]
    steps:
      - op: construct
        as: clerk
        role: clerk
      - op: call
        target: clerk
        method: guess
        expect_outcome:
          status: ok
          value: 42
      - op: assert_provider_calls_for_method
        method: guess
        equals: 2
      - op: assert_log_field_equals
        field: generation_attempt
        equals: 2
      - op: call
        target: clerk
        method: mumble
        expect_outcome:
          status: error
          error_type: invalid_code

  - id: execution.and_delegation
    provider_plan:
      explode: raise_boom
      sum_up: delegate_compute_add_2_3
      add: add_args_0_1
    steps:
      - op: construct
        as: clerk
        role: clerk
      - op: call
        target: clerk
        method: explode
        expect_outcome:
          status: error
          error_type: execution
      - op: call
        target: clerk
        method: sum_up
        expect_outcome:
          status: ok
          value: 5

  - id: logging.plain_and_debug
    provider_plan:
      raise_by: increment_value_by_arg0
    steps:
      - op: construct
        as: plain
        role: clerk
        config:
          logging: enabled
      - op: call
        target: plain
        method: raise_by
        args: [1]
      - op: assert_log_fields_include
        target: plain
        fields: [timestamp, role, model, method, args, kwargs, code, duration_ms]
      - op: construct
        as: debug
        role: clerk
        config:
          logging: enabled
          debug: true
      - op: call
        target: debug
        method: raise_by
        args: [1]
      - op: assert_log_fields_include
        target: debug
        fields: [system_prompt, user_prompt, context]
",
    ),
    (
        "tolerant-scenarios.yaml",
        "
version: 1
profile: tolerant_delegation
scenarios:
  - id: tolerant.failures_are_outcomes
    verifies:
      - every failure of a delegate is an outcome
    steps:
      - op: construct
        as: boss
        role: boss
        config:
          provider_timeout_seconds: 1
          max_delegation_depth: 1
      - op: tolerant_delegate
        target: boss
        tool_role: adder
        method: add
        args: [20, 22]
        expect_outcome:
          status: ok
          value: 42
      - op: tolerant_delegate
        target: boss
        tool_role: absent
        method: report
        expect_outcome:
          status: error
          error_type: provider
      - op: tolerant_delegate
        target: boss
        tool_role: sleeper
        method: report
        expect_outcome:
          status: error
          error_type: timeout
      - op: tolerant_delegate
        target: boss
        tool_role: mumbler
        method: report
        expect_outcome:
          status: error
          error_type: invalid_code
      - op: tolerant_delegate
        target: boss
        tool_role: bungler
        method: report
        expect_outcome:
          status: error
          error_type: execution
      - op: tolerant_delegate
        target: boss
        tool_role: passer_on
        method: report
        expect_outcome:
          status: error
          error_type: budget_exceeded
      - op: tolerant_delegate
        target: boss
        tool_role: worker
        method: report
        expect_outcome:
          status: ok
",
    ),
];

#[test]
fn a_foreign_suite_runs_as_it_is() {
    let directory = suite(FOREIGN);
    check_all_pass(directory.path(), "python", 6);
    check_all_pass(directory.path(), "ruby", 6);
}
