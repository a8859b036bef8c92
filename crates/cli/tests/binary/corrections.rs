//! What people say about stored programs: that one is wrong, what is right, and what should run instead.

use serde_json::{Value, json};

use crate::fixture::CliFixture;

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
fn wrong() -> CliFixture {
    let cli = CliFixture::new(SCRIPT);
    cli.run(&DOUBLE).exits(0).prints("5\n");
    cli
}

fn programs(cli: &CliFixture) -> Vec<Value> {
    cli.json(&["tools", "list"])["programs"].as_array().unwrap().clone()
}

/// The lines of a table without their alignment.
fn unaligned(table: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    table.lines().map(|line| words(line) + "\n").collect()
}

#[test]
fn every_stored_program_is_listed() {
    let cli = CliFixture::new(SCRIPT);
    cli.run(&["tools", "list"]).exits(0).prints("").stderr_contains("no programs yet");
    cli.run(&DOUBLE).exits(0);
    cli.run(&["call", "builder", "build", "Ann"]).exits(0);
    let listed = cli.run(&["tools", "list"]);
    for line in [
        "tools\nname used ok failed purpose\ngreeter 1 1 0 greet people\n",
        "programs\nprogram guest version ok failed examples notes\n",
        "\ncalculator.double python 1 1 0 0\n",
        "\ngreeter.greet python 1 1 0 0\n",
    ] {
        assert!(unaligned(&listed.stdout).contains(line), "{line:?} is missing: {}", listed.stdout);
    }
    let program = &programs(&cli)[1];
    assert_eq!(
        (&program["role"], &program["method"], &program["author"], &program["examples"]),
        (&json!("calculator"), &json!("double"), &json!("model"), &json!(0))
    );
}

#[test]
fn a_rejected_program_does_not_run_again() {
    let cli = CliFixture::new(SCRIPT);
    let (answer, _) = cli.answer(&DOUBLE);
    let call = answer["call_id"].as_str().unwrap();
    let reject =
        ["tools", "reject", "calculator", "double", "--because", "it adds one", "--call", call];
    let report = cli.json(&reject);
    assert_eq!(report["running"], json!(null));
    assert_eq!(report["counter_example"], json!({"args": [4], "not_value": 5}));
    assert!(report["rejected"].as_str().unwrap().starts_with("sha256:"), "{report}");
    cli.run(&DOUBLE).exits(0).prints("8\n");
    cli.run(&["tools", "test", "calculator", "double"]).exits(0);

    cli.run(&["tools", "reject", "calculator", "halve"])
        .exits(1)
        .stderr_contains("no program is stored");
    cli.run(&["tools", "reject", "calculator", "double", "--call", "nonsense"])
        .exits(1)
        .stderr_contains("call nonsense is not in the history");
}

#[test]
fn a_rejection_is_taken_back_by_saving_the_same_text() {
    let cli = CliFixture::new(SCRIPT);
    cli.run(&DOUBLE).exits(0).prints("5\n");
    cli.write("same.py", "def double(x):\n    return x + 1");
    let edit = ["tools", "edit", "calculator", "double", "--file", "same.py"];
    cli.run(&edit).exits(2).stderr_contains("unchanged");
    cli.run(&["tools", "reject", "calculator", "double"]).exits(0);
    cli.run(&edit).exits(0);
    cli.run(&[DOUBLE.as_slice(), &["--frozen"]].concat()).exits(0).prints("5\n");
}

#[test]
fn an_answer_of_an_earlier_version_rejects_that_version() {
    let cli = CliFixture::new(SCRIPT);
    let (answer, _) = cli.answer(&DOUBLE);
    let call = answer["call_id"].as_str().unwrap();
    cli.write("new.py", "def double(x):\n    return x * 2\n");
    let edit = ["tools", "edit", "calculator", "double", "--file", "new.py", "--force"];
    cli.run(&edit).exits(0);
    let reject = |method: &str| cli.run(&["tools", "reject", "calculator", method, "--call", call]);
    reject("double").exits(0).stderr_contains("did not give that answer and stays in service");
    cli.run(&[&DOUBLE[..], &["--frozen"]].concat()).exits(0).prints("8\n");
    reject("double").exits(1).stderr_contains("rejected already");
    cli.run(&["call", "calculator", "area", "3", "4"]).exits(0);
    reject("area").exits(1).stderr_contains("is a call of calculator.double, not of");
    cli.run(&["tools", "reject", "calculator", "double"])
        .exits(0)
        .stderr_contains("the next call asks the model for another program");
}

#[test]
fn an_answer_that_is_not_as_expected_is_rejected_and_learned_from() {
    let cli = wrong();
    let expecting = [&DOUBLE[..], &["--expect", "8"]].concat();
    cli.run(&expecting).exits(0).prints("8\n").stderr_contains(
        "8 was expected; another program gave something else first and is rejected; the call is kept as an example",
    );
    let (answer, exit) = cli.answer(&expecting);
    assert_eq!((exit, &answer["value"]), (0, &json!(8)));
    let expectation = json!({"met": true, "expected": 8, "rejected": [], "example_kept": false});
    assert_eq!(answer["expectation"], expectation);
    let (answer, exit) = cli.answer(&[&DOUBLE[..], &["--expect", "9"]].concat());
    assert_eq!((exit, &answer["error_type"]), (1, &json!("contract_violation")));
    assert_eq!(answer["metadata"]["actual"], "8", "{answer}");
    assert_eq!(answer["expectation"]["rejected"].as_array().map(Vec::len), Some(1), "{answer}");
}

#[test]
fn what_was_taught_is_tested() {
    let cli = wrong();
    let double = ["tools", "test", "calculator", "double"];
    cli.run(&["tools", "teach", "calculator", "double", "4", "--gives", "8"]).exits(0);
    let taught =
        cli.json(&["tools", "teach", "calculator", "double", "--kw", "x=3", "--never", "4"]);
    assert_eq!(
        (&taught["examples"], &taught["example"]),
        (&json!(2), &json!({"args": [], "kwargs": {"x": 3}, "not_value": 4}))
    );
    let failed = cli.run(&double);
    failed.exits(1);
    assert!(
        failed.stdout.contains("✗ example  (4)  expected {\"value\":8}, got {\"value\":5}\n"),
        "{}",
        failed.stdout
    );
    let (tested, exit) = cli.answer(&double);
    assert_eq!((exit, &tested["passed"]), (1, &json!(false)));
    cli.run(&["tools", "teach", "calculator", "double", "4"]).exits(2);

    cli.write("example.json", r#"[{"args": [5], "value": 10}]"#);
    cli.run(&[&DOUBLE[..], &["--example", "example.json", "--frozen"]].concat());
    assert_eq!(programs(&cli)[0]["examples"], 3);
    cli.write("example.json", r#"{"args": 5}"#);
    cli.run(&[&DOUBLE[..], &["--example", "example.json"]].concat())
        .exits(2)
        .stderr_contains("`args` must be a list");
}

#[test]
fn a_person_edits_a_program() {
    let cli = wrong();
    let edit = ["tools", "edit", "calculator", "double"];
    let edited = |editor: &str, line: &[&str]| {
        let output = cli.command(line).env("EDITOR", editor).output().unwrap();
        crate::fixture::CommandResult::of(line, &output)
    };
    edited("true", &edit).exits(2).stderr_contains("is unchanged");
    edited("false", &edit).exits(1).stderr_contains("nothing was stored");
    cli.run(&edit).exits(2).stderr_contains("set EDITOR");
    // The recorded call gave 5: another answer to it needs a word of the person.
    edited("sed -i 's/+ 1/* 2/'", &edit).exits(1).stderr_contains("--force");
    cli.run(&DOUBLE).prints("5\n");
    cli.run(&["tools", "teach", "calculator", "double", "4", "--gives", "8"]).exits(0);
    edited("sed -i 's/+ 1/* 2/'", &edit)
        .exits(0)
        .stderr_contains("now runs version 2, by a person");
    cli.run(&[&DOUBLE[..], &["--frozen"]].concat()).exits(0).prints("8\n");
    assert_eq!(programs(&cli)[0]["author"], "person");

    cli.write("new.py", "def double(x):\n    return x * 3\n");
    let from_file = [&edit[..], &["--file", "new.py"]].concat();
    cli.run(&from_file).exits(1).stderr_contains("fails a test");
    let (report, exit) = cli.answer(&[&from_file[..], &["--force"]].concat());
    assert_eq!((exit, &report["version"]), (0, &json!(3)));
    assert_eq!(report["withdrawn"], json!([{"args": [4], "value": 8}]));
    cli.run(&DOUBLE).prints("12\n");
    cli.write("new.py", "def double(x:\n");
    cli.run(&from_file).exits(1).stderr_contains("the program was not accepted");
}

#[test]
fn what_is_removed_is_gone() {
    let cli = wrong();
    cli.run(&["tools", "rm", "calculator", "double"]).exits(0);
    assert_eq!(programs(&cli), [json!(null); 0]);
    cli.run(&["tools", "rm", "nobody"]).exits(1).stderr_contains("nothing is stored for nobody");
    cli.run(&[&DOUBLE[..], &["--frozen"]].concat())
        .exits(1)
        .stderr_contains("run it once without --frozen");
    cli.run(&DOUBLE).exits(0);
    assert_eq!(cli.json(&["tools", "rm", "calculator"])["removed"], true);
}

#[test]
fn a_program_is_written_again_when_that_is_asked_for() {
    let cli = wrong();
    cli.run(&[&DOUBLE[..], &["--frozen"]].concat()).exits(0).prints("5\n");
    // A new process reads the script from its beginning; the second answer is another program.
    cli.write(
        "script.json",
        r#"{"calculator.double": [{"code": "def double(x):\n    return x * 2"}]}"#,
    );
    cli.run(&DOUBLE).exits(0).prints("5\n");
    cli.run(&[&DOUBLE[..], &["--regenerate"]].concat()).exits(0).prints("8\n");
    // It runs from now on, although the wrong answer had been recorded.
    cli.run(&[&DOUBLE[..], &["--frozen"]].concat()).exits(0).prints("8\n");
    cli.run(&["tools", "pin", "calculator", "double"]).exits(0);
    cli.write(
        "script.json",
        r#"{"calculator.double": [{"code": "def double(x):\n    return x + x"}]}"#,
    );
    cli.run(&[&DOUBLE[..], &["--regenerate"]].concat()).exits(0).stderr_contains("is pinned");
}

#[test]
fn an_expectation_keeps_the_memory_of_its_call_and_nothing_if_no_program_answered() {
    let script = |code: &str| json!({"tally.add": [{ "code": code }]}).to_string();
    let wrong = "def add(x):\n    return context['n'] + x + 1";
    let cli = CliFixture::new(&script(wrong));
    let in_session =
        |line: &[&str]| cli.run(&[&["call", "tally"], line, &["--session", "desk"]].concat());
    in_session(&["n=", "5"]).exits(0);
    in_session(&["add", "3", "--expect", "8"]).exits(1).stderr_contains("is kept as an example");
    cli.write("script.json", &script("def add(x):\n    return context['n'] + x"));
    in_session(&["add", "3"]).exits(0).prints("8\n");
    in_session(&["add", "--expect", "8"]).exits(1).stderr_contains("no example is kept");
    in_session(&["add", "4"]).exits(0).prints("9\n");
}

#[test]
fn what_people_said_is_shown() {
    let cli = wrong();
    cli.run(&["tools", "teach", "calculator", "double", "4", "--gives", "8"])
        .exits(0)
        .stderr_contains("the python program that runs gives {\"value\":5} for it");
    cli.run(&["tools", "reject", "calculator", "double"]).exits(0);
    cli.run(&["tools", "reject", "calculator", "double"])
        .exits(1)
        .stderr_contains("rejected already");
    let listed = cli.run(&["tools", "list"]);
    let line = "calculator.double python 1 1 0 1 does not run: rejected\n";
    assert!(unaligned(&listed.stdout).contains(line), "{}", listed.stdout);
    let shown = cli.run(&["tools", "show", "calculator"]);
    for line in ["rejected by a person", "example: {\"args\":[4]"] {
        assert!(shown.stdout.contains(line), "{line:?} is missing: {}", shown.stdout);
    }
    cli.run(&["tools", "rm", "calculator", "double"]).exits(0).stderr_contains("with 1 example");
}

#[test]
fn examples_without_a_program_are_listed_and_removed() {
    let cli = CliFixture::new(SCRIPT);
    for (number, right) in [("4", "8"), ("5", "10")] {
        cli.run(&["tools", "teach", "calculator", "double", number, "--gives", right]).exits(0);
    }
    let listed = cli.run(&["tools", "list"]);
    assert_eq!(
        listed.stdout,
        "examples without a program\nmethod             examples\ncalculator.double         2\n"
    );
    let shown = cli.run(&["tools", "show", "calculator"]);
    for line in ["double (no program yet)", "example: {\"args\":[4],\"value\":8}"] {
        assert!(shown.stdout.contains(line), "{line:?} is missing: {}", shown.stdout);
    }
    let rm = ["tools", "rm", "calculator", "double"];
    cli.run(&rm)
        .exits(0)
        .stderr_contains("2 examples of calculator.double removed; it had no programs");
    cli.run(&rm).exits(1).stderr_contains("nothing is stored for calculator.double");
    cli.run(&["tools", "teach", "calculator", "double", "4", "--gives", "8"]).exits(0);
    let removed = cli.json(&["tools", "rm", "calculator"]);
    assert_eq!((&removed["programs"], &removed["examples"]), (&json!(0), &json!(1)));
}

#[test]
fn one_example_is_withdrawn() {
    let cli = wrong();
    let teach = ["tools", "teach", "calculator", "double"];
    cli.run(&[&teach[..], &["4", "--gives", "9"]].concat()).exits(0);
    cli.run(&[&teach[..], &["4", "--context", "{\"n\": 2}", "--gives", "8"]].concat()).exits(0);
    cli.run(&[&teach[..], &["4", "--context", "2", "--gives", "8"]].concat())
        .exits(2)
        .stderr_contains("--context must be a JSON object");
    let withdraw = ["tools", "withdraw", "calculator", "double", "4"];
    let withdrawn = cli.json(&withdraw);
    assert_eq!(withdrawn["withdrawn"], json!({"args": [4], "value": 9}));
    assert_eq!(withdrawn["examples"], 1);
    cli.run(&withdraw).exits(1).stderr_contains("calculator.double has no example of this call");
    cli.run(&[&withdraw[..], &["--context", "{\"n\": 2}"]].concat())
        .exits(0)
        .stderr_contains("calculator.double has 0 examples");
}

/// What a repository pins is listed with the rest; a person's word against it is kept in the store.
#[test]
fn a_program_of_a_tools_directory_is_listed_and_rejected() {
    let cli = wrong();
    cli.run(&["store", "export", "pinned"]).exits(0);
    cli.run(&["tools", "rm", "calculator"]).exits(0);
    let run = |line: &[&str]| {
        let directory = cli.path("pinned");
        let output = cli.command(line).env("RECURGENT_TOOLS_DIR", directory).output().unwrap();
        crate::fixture::CommandResult::of(line, &output)
    };
    let listed = run(&["tools", "list"]);
    let line = "calculator.double python tools_dir 1 0 0 pinned\n";
    assert!(unaligned(&listed.stdout).contains(line), "{}", listed.stdout);
    let frozen = [&DOUBLE[..], &["--frozen"]].concat();
    run(&frozen).exits(0).prints("5\n");
    run(&["tools", "test", "calculator", "double"]).exits(0);
    let reject = ["tools", "reject", "calculator", "double", "--because", "it adds one"];
    run(&reject).exits(0).stderr_contains("its file is unchanged");
    run(&reject).exits(1).stderr_contains("rejected already");
    let listed = run(&["tools", "list"]);
    assert!(listed.stdout.contains("pinned, does not run: rejected"), "{}", listed.stdout);
    run(&frozen).exits(1);
    cli.write(
        "script.json",
        r#"{"calculator.double": [{"code": "def double(x):\n    return x * 2"}]}"#,
    );
    run(&DOUBLE).exits(0).prints("8\n");
    run(&frozen).exits(0).prints("8\n");
    run(&["tools", "rm", "calculator", "double"]).exits(0).stderr_contains("in tools_dir stays");
}

#[test]
fn a_degraded_program_is_listed_as_such() {
    let cli = CliFixture::new(r#"{"c.half": [{"code": "def half(x):\n    return {5: 2}[x]"}]}"#);
    let half = |number: &str| cli.run(&["call", "c", "half", number, "--frozen"]);
    cli.run(&["call", "c", "half", "5"]).exits(0).prints("2\n");
    for _ in 0..3 {
        half("0").exits(1);
    }
    let listed = cli.run(&["tools", "list"]);
    let line = "c.half python 1 1 3 0 degraded: runs only";
    assert!(unaligned(&listed.stdout).contains(line), "{}", listed.stdout);
    assert_eq!(programs(&cli)[0]["not_run_because"], "degraded");
    half("5").exits(0).prints("2\n").stderr_contains("degraded");
}

#[test]
fn arguments_a_program_was_not_written_for_are_refused_when_that_is_asked_for() {
    let cli = CliFixture::new(SCRIPT);
    cli.run(&["call", "calculator", "area", "3", "4"]).exits(0).prints("12\n");
    let (refused, exit) = cli.answer(&["call", "calculator", "area", "3", "--no-widen"]);
    assert_eq!((exit, &refused["error_type"]), (1, &json!("invalid_call")));
}

#[test]
fn a_forged_tool_is_called_by_its_name() {
    let cli = CliFixture::new(SCRIPT);
    cli.run(&["call", "builder", "build", "Ann"]).exits(0).prints("hello Ann\n");
    cli.run(&["call", "greeter", "greet", "Bob", "--frozen"]).exits(0).prints("hello Bob\n");
    let health = cli.json(&["tools", "health"]);
    assert_eq!(health["tools"][0]["recent_failures"], 0, "{health}");
}

#[test]
fn a_configuration_file_that_is_named_must_exist() {
    let cli = CliFixture::new(SCRIPT);
    let mut command = cli.command(&["config"]);
    let output = command.env("RECURGENT_CONFIG", cli.path("none.toml")).output().unwrap();
    crate::fixture::CommandResult::of(&["config"], &output)
        .exits(3)
        .stderr_contains("cannot read")
        .stderr_contains("none.toml")
        .stderr_contains("RECURGENT_CONFIG names it");
}
