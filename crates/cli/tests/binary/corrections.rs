//! What people say about stored programs: that one is wrong, what is right, and what should run instead.

use serde_json::{Value, json};

use crate::bench::Bench;

/// The first program is wrong, the second right.
const SCRIPT: &str = r#"{
  "calculator.double": [
    {"code": "def double(x):\n    return x + 1"},
    {"code": "def double(x):\n    return x * 2"}
  ],
  "calculator.area": [
    {"code": "def area(width, height):\n    return width * height"},
    {"code": "def area(width, height=None):\n    return width * (height or width)"}
  ],
  "builder.build": [{"code": "result = delegate('greeter', purpose='greet people', deliverable={'type': 'string'}).greet(args[0])"}],
  "greeter.greet": [{"code": "def greet(name):\n    return 'hello ' + name"}]
}"#;

/// The call whose answer is checked throughout.
const DOUBLE: [&str; 4] = ["call", "calculator", "double", "4"];

/// A machine on which the wrong program is stored.
fn wrong() -> Bench {
    let bench = Bench::new(SCRIPT);
    bench.run(&DOUBLE).exits(0).prints("5\n");
    bench
}

fn programs(bench: &Bench) -> Vec<Value> {
    bench.json(&["tools", "list"])["programs"].as_array().unwrap().clone()
}

#[test]
fn every_stored_program_is_listed() {
    let bench = Bench::new(SCRIPT);
    bench.run(&["tools", "list"]).exits(0).prints("").says("no programs yet");
    bench.run(&DOUBLE).exits(0);
    bench.run(&["call", "builder", "build", "Ann"]).exits(0);
    let listed = bench.run(&["tools", "list"]);
    for line in [
        "tools\n  greeter  ",
        "greet people\nprograms\n",
        "\n  calculator.double        python, version 1, ok 1, failed 0\n",
        "\n  greeter.greet            python, version 1, ok 1, failed 0\n",
    ] {
        assert!(listed.stdout.contains(line), "{line:?} is missing: {}", listed.stdout);
    }
    let program = &programs(&bench)[1];
    assert_eq!(
        (&program["role"], &program["method"], &program["author"], &program["examples"]),
        (&json!("calculator"), &json!("double"), &json!("model"), &json!(0))
    );
}

#[test]
fn a_rejected_program_does_not_run_again() {
    let bench = Bench::new(SCRIPT);
    let (answer, _) = bench.answer(&DOUBLE);
    let call = answer["call_id"].as_str().unwrap();
    let reject =
        ["tools", "reject", "calculator", "double", "--because", "it adds one", "--call", call];
    let report = bench.json(&reject);
    assert_eq!(report["running"], json!(null));
    assert_eq!(report["counter_example"], json!({"args": [4], "not_value": 5}));
    assert!(report["rejected"].as_str().unwrap().starts_with("sha256:"), "{report}");
    bench.run(&DOUBLE).exits(0).prints("8\n");
    bench.run(&["tools", "test", "calculator", "double"]).exits(0);

    bench.run(&["tools", "reject", "calculator", "halve"]).exits(1).says("no program is stored");
    bench
        .run(&["tools", "reject", "calculator", "double", "--call", "nonsense"])
        .exits(1)
        .says("call nonsense is not in the history");
}

#[test]
fn an_answer_that_is_not_as_expected_is_rejected_and_learned_from() {
    let bench = wrong();
    let expecting = [&DOUBLE[..], &["--expect", "8"]].concat();
    bench.run(&expecting).exits(1).prints("5\n").says("8 was expected; its program is rejected");
    let (answer, exit) = bench.answer(&expecting);
    assert_eq!((exit, &answer["value"]), (0, &json!(8)));
    assert_eq!(answer["expectation"]["met"], true);
    let (answer, exit) = bench.answer(&[&DOUBLE[..], &["--expect", "9"]].concat());
    assert_eq!((exit, &answer["expectation"]["met"]), (1, &json!(false)));
    assert!(answer["expectation"]["rejected"].is_string(), "{answer}");
}

#[test]
fn what_was_taught_is_tested() {
    let bench = wrong();
    let double = ["tools", "test", "calculator", "double"];
    bench.run(&["tools", "teach", "calculator", "double", "4", "--gives", "8"]).exits(0);
    let taught =
        bench.json(&["tools", "teach", "calculator", "double", "--kw", "x=3", "--never", "4"]);
    assert_eq!(
        (&taught["examples"], &taught["example"]),
        (&json!(2), &json!({"args": [], "kwargs": {"x": 3}, "not_value": 4}))
    );
    let failed = bench.run(&double);
    failed.exits(1);
    assert!(
        failed.stdout.contains("✗ example  (4)  expected {\"value\":8}, got {\"value\":5}\n"),
        "{}",
        failed.stdout
    );
    let (tested, exit) = bench.answer(&double);
    assert_eq!((exit, &tested["passed"]), (1, &json!(false)));
    bench.run(&["tools", "teach", "calculator", "double", "4"]).exits(2);

    bench.write("example.json", r#"[{"args": [5], "value": 10}]"#);
    bench.run(&[&DOUBLE[..], &["--example", "example.json", "--frozen"]].concat());
    assert_eq!(programs(&bench)[0]["examples"], 3);
    bench.write("example.json", r#"{"args": 5}"#);
    bench
        .run(&[&DOUBLE[..], &["--example", "example.json"]].concat())
        .exits(2)
        .says("`args` must be a list");
}

#[test]
fn a_person_edits_a_program() {
    let bench = wrong();
    let edit = ["tools", "edit", "calculator", "double"];
    let edited = |editor: &str, line: &[&str]| {
        let output = bench.command(line).env("EDITOR", editor).output().unwrap();
        crate::bench::Ran::of(line, &output)
    };
    edited("true", &edit).exits(2).says("is unchanged");
    edited("false", &edit).exits(1).says("nothing was stored");
    bench.run(&edit).exits(2).says("set EDITOR");
    // The recorded call gave 5: another answer to it needs a word of the person.
    edited("sed -i 's/+ 1/* 2/'", &edit).exits(1).says("--force");
    bench.run(&DOUBLE).prints("5\n");
    bench.run(&["tools", "teach", "calculator", "double", "4", "--gives", "8"]).exits(0);
    edited("sed -i 's/+ 1/* 2/'", &edit).exits(0).says("now runs version 2, by a person");
    bench.run(&[&DOUBLE[..], &["--frozen"]].concat()).exits(0).prints("8\n");
    assert_eq!(programs(&bench)[0]["author"], "person");

    bench.write("new.py", "def double(x):\n    return x * 3\n");
    let from_file = [&edit[..], &["--file", "new.py"]].concat();
    bench.run(&from_file).exits(1).says("fails a test");
    let (report, exit) = bench.answer(&[&from_file[..], &["--force"]].concat());
    assert_eq!((exit, &report["version"]), (0, &json!(3)));
    bench.run(&DOUBLE).prints("12\n");
    bench.write("new.py", "def double(x:\n");
    bench.run(&from_file).exits(1).says("the program was not accepted");
}

#[test]
fn what_is_removed_is_gone() {
    let bench = wrong();
    bench.run(&["tools", "rm", "calculator", "double"]).exits(0);
    assert_eq!(programs(&bench), [json!(null); 0]);
    bench.run(&["tools", "rm", "nobody"]).exits(1).says("nothing is stored for nobody");
    bench.run(&[&DOUBLE[..], &["--frozen"]].concat()).exits(1).says("run it once without --frozen");
    bench.run(&DOUBLE).exits(0);
    assert_eq!(bench.json(&["tools", "rm", "calculator"])["removed"], true);
}

#[test]
fn a_program_is_written_again_when_that_is_asked_for() {
    let bench = wrong();
    bench.run(&[&DOUBLE[..], &["--frozen"]].concat()).exits(0).prints("5\n");
    // A new process reads the script from its beginning; the second answer is another program.
    bench.write(
        "script.json",
        r#"{"calculator.double": [{"code": "def double(x):\n    return x * 2"}]}"#,
    );
    bench.run(&DOUBLE).exits(0).prints("5\n");
    bench.run(&[&DOUBLE[..], &["--regenerate"]].concat()).exits(0).prints("8\n");
}

#[test]
fn arguments_a_program_was_not_written_for_are_refused_when_that_is_asked_for() {
    let bench = Bench::new(SCRIPT);
    bench.run(&["call", "calculator", "area", "3", "4"]).exits(0).prints("12\n");
    let (refused, exit) = bench.answer(&["call", "calculator", "area", "3", "--no-widen"]);
    assert_eq!((exit, &refused["error_type"]), (1, &json!("invalid_call")));
}

#[test]
fn a_forged_tool_is_called_by_its_name() {
    let bench = Bench::new(SCRIPT);
    bench.run(&["call", "builder", "build", "Ann"]).exits(0).prints("hello Ann\n");
    bench.run(&["call", "greeter", "greet", "Bob", "--frozen"]).exits(0).prints("hello Bob\n");
    let health = bench.json(&["tools", "health"]);
    assert_eq!(health["tools"][0]["recent_failures"], 0, "{health}");
}

#[test]
fn a_configuration_file_that_is_named_must_exist() {
    let bench = Bench::new(SCRIPT);
    let mut command = bench.command(&["config"]);
    let output = command.env("RECURGENT_CONFIG", bench.path("none.toml")).output().unwrap();
    crate::bench::Ran::of(&["config"], &output).exits(3).says("cannot read").says("none.toml");
}
