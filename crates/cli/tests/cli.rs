//! The `recurgent` binary as its users meet it: what they type, what is printed, how it exits.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Programs both guests are given by hand.
const PYTHON_SCRIPT: &str = r#"{
  "calculator.add": [{"code": "context['memory'] = context.get('memory', 0) + args[0]\nresult = context['memory']"}],
  "echo.back": [{"code": "result = {'args': args, 'kwargs': kwargs}"}],
  "echo.text": [{"code": "result = 'two\\nlines'"}],
  "echo.flood": [{"code": "result = 'x' * 3_000_000"}],
  "echo.ask": [{"code": "result = 'you asked: ' + args[0]"}],
  "sleeper.sleep": [{"code": "import time\ntime.sleep(25)\nresult = 1"}],
  "broken.fail": [{"code": "result = 1 // 0"}],
  "honest.fail": [{"code": "result = Outcome.error(error_type='not_there', error_message='no such thing', retriable=False)"}]
}"#;
const RUBY_SCRIPT: &str = "
calculator.add:
  - code: |
      context[:memory] = (context[:memory] || 0) + args[0]
      result = context[:memory]
echo.back:
  - code: 'result = {\"args\" => args, \"kwargs\" => kwargs}'
";

/// A machine of one's own: its state, its home and its scripts go with it.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("script.json"), PYTHON_SCRIPT).unwrap();
        std::fs::write(dir.path().join("script.yaml"), RUBY_SCRIPT).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recurgent"));
        command
            .args(line)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("RECURGENT_STATE_DIR", self.path("state"))
            .env("RECURGENT_PROVIDER", "scripted:script.json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &[&str]) -> Ran {
        Ran::of(line, &self.command(line).output().unwrap())
    }

    fn fed(&self, line: &[&str], input: &str) -> Ran {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ran::of(line, &child.wait_with_output().unwrap())
    }
}

/// What came of a command line.
#[derive(Debug)]
struct Ran {
    #[expect(dead_code, reason = "shown when a check fails")]
    line: String,
    exit: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(line: &[&str], output: &Output) -> Self {
        let mut line = line.join(" ");
        line.truncate(100);
        let ran = Self {
            line,
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        };
        for text in [&ran.stdout, &ran.stderr] {
            assert!(!text.contains('\u{1b}'), "colour without a terminal: {ran:?}");
            assert!(!text.contains("panicked"), "{ran:?}");
        }
        ran
    }

    #[track_caller]
    fn exits(&self, exit: i32) -> &Self {
        assert_eq!(self.exit, exit, "{self:?}");
        self
    }

    #[track_caller]
    fn prints(&self, stdout: &str) -> &Self {
        assert_eq!(self.stdout, stdout, "{self:?}");
        self
    }

    #[track_caller]
    fn says(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "{part:?} is not said: {self:?}");
        self
    }

    /// Standard output as the one JSON object it must be.
    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        let value: Value = serde_json::from_str(&self.stdout).expect(&self.stdout);
        assert!(value.is_object(), "{self:?}");
        value
    }
}

/// A command line that cannot be done: how it exits, its code, and what people are told.
struct Refusal<'a> {
    line: &'a [&'a str],
    env: &'a [(&'a str, &'a str)],
    exit: i32,
    error_type: &'a str,
    says: &'a str,
}

/// The refusal is the same for people and, with `--json`, for programs.
#[track_caller]
fn check(bench: &Bench, refusal: &Refusal<'_>) {
    let Refusal { line, env, exit, error_type, says } = refusal;
    let plain = bench.command(line).envs(env.iter().copied()).output().unwrap();
    let plain = Ran::of(line, &plain);
    plain.exits(*exit).says(says).prints("");

    // Before anything else, so that a -- does not hide it.
    let mut with_json = vec![line[0], "--json"];
    with_json.extend(&line[1..]);
    let told = bench.command(&with_json).envs(env.iter().copied()).output().unwrap();
    let told = Ran::of(&with_json, &told);
    let object = told.exits(*exit).json();
    assert_eq!(
        (&object["status"], &object["error_type"]),
        (&json!("error"), &json!(error_type)),
        "{told:?}"
    );
    assert!(object["error_message"].as_str().unwrap().contains(says), "{told:?}");
    for field in ["value", "retriable", "tool_role", "method_name", "metadata"] {
        assert!(object.get(field).is_some(), "no {field}: {told:?}");
    }
}

#[test]
fn a_line_that_makes_no_sense_exits_with_2() {
    let bench = Bench::new();
    bench.write("object.json", "{}");
    let long = "x".repeat(10_000);
    let rows: &[(&[&str], &str, &str)] = &[
        (&["call", "echo", "back", "--nope"], "usage", "--nope"),
        (&["call", "echo"], "usage", "<METHOD>"),
        (&["call", "echo", "back", "--kw", "novalue"], "usage", "NAME=VALUE"),
        (&["call", "echo", "back", "--guest", "lua"], "usage", "python, ruby"),
        (&["call", "echo", "back", "--set", "gest=ruby"], "usage", "did you mean `guest`?"),
        (
            &["call", "echo", "back", "--set", "execution_timeout_seconds=NaN"],
            "usage",
            "a number of seconds",
        ),
        (&["call", "echo", "back", "--deliverable", "[1]"], "usage", "a JSON object"),
        (&["call", "echo", "back", "--session", ""], "usage", "--session"),
        (
            &["call", "echo", "back", "--replay", "a", "--provider", "auto"],
            "usage",
            "cannot be used with",
        ),
        (&["call", "echo", "back", "--args-file", "object.json"], "usage", "one JSON array"),
        (&["call", "echo", "back", "--args-file", "absent.json"], "usage", "absent.json"),
        (&["call", "", "back"], "invalid_call", "must not be empty"),
        (&["call", "echo", " "], "invalid_call", "must not be empty"),
        (&["call", &long, "back"], "invalid_call", "this one has 10000; shorten it"),
        (&["call", "echo", &long], "invalid_call", "this one has 10000; shorten it"),
        (&["call", "echo", "a\u{7}b"], "invalid_call", "control characters"),
        (&["ask", "echo", " "], "usage", "must not be empty"),
        (&["doctor", "--set", "gest=ruby"], "usage", "did you mean `guest`?"),
    ];
    for (line, error_type, says) in rows {
        check(&bench, &Refusal { line, env: &[], exit: 2, error_type, says });
    }
}

#[test]
fn a_call_that_fails_exits_with_1() {
    let bench = Bench::new();
    bench.write("empty.jsonl", "{\"recording\":1}\n");
    let mut big = "[\"".to_owned();
    big.push_str(&"x".repeat(50 * 1024 * 1024));
    big.push_str("\"]");
    bench.write("big.json", &big);
    let rows: &[(&[&str], &str, &str)] = &[
        (&["call", "broken", "fail"], "execution", "zero"),
        (&["call", "honest", "fail"], "not_there", "no such thing"),
        (&["call", "echo", "tool"], "invalid_call", "part of the agent surface"),
        (
            &["call", "echo", "back", "--args-file", "big.json"],
            "invalid_call",
            "max_argument_bytes",
        ),
        (
            &["call", "echo", "back", "--replay", "empty.jsonl"],
            "replay_divergence",
            "Record this run again",
        ),
        (
            &["call", "echo", "back", "--provider", "auto"],
            "provider_auth",
            "--provider scripted:FILE",
        ),
        (&["call", "echo", "unscripted"], "provider", "add that key"),
        (&["sessions", "show", "nobody"], "not_found", "no session is named \"nobody\""),
        (&["sessions", "rm", "nobody"], "not_found", "no session is named \"nobody\""),
    ];
    for (line, error_type, says) in rows {
        check(&bench, &Refusal { line, env: &[], exit: 1, error_type, says });
    }
}

#[test]
fn what_cannot_be_set_up_exits_with_3_or_4() {
    type Row<'a> = (&'a [(&'a str, &'a str)], i32, &'a str, &'a str);

    let bench = Bench::new();
    bench.write("file", "not a folder");
    bench.write("broken.toml", "guest = [");
    bench.write("odd.json", "[1, 2]");
    let call: &[&str] = &["call", "echo", "back"];
    let rows: &[Row<'_>] = &[
        (&[("RECURGENT_GUESTS", "ruby")], 3, "setup", "did you mean `guest`?"),
        (&[("RECURGENT_CONFIG", "broken.toml")], 3, "setup", "broken.toml"),
        (&[("RECURGENT_PROVIDER", "scripted:absent.json")], 3, "setup", "absent.json"),
        (&[("RECURGENT_PROVIDER", "scripted:odd.json")], 3, "setup", "role.method"),
        (&[("RECURGENT_PROVIDER", "replay:odd.json")], 3, "setup", "not a recording"),
        (&[("RECURGENT_PROVIDER", "oracle")], 3, "setup", "unknown provider"),
        (&[("RECURGENT_STATE_DIR", "file/state")], 3, "store_unavailable", "RECURGENT_STATE_DIR"),
        (
            &[("RECURGENT_STATE_DIR", "/proc/recurgent")],
            3,
            "store_unavailable",
            "RECURGENT_STATE_DIR",
        ),
        (&[("RECURGENT_PYTHON", "/nowhere/python3")], 4, "guest_unavailable", "/nowhere/python3"),
        (&[("PATH", "/nowhere")], 4, "guest_unavailable", "python3"),
        (&[("PATH", "/nowhere"), ("RECURGENT_GUEST", "ruby")], 4, "guest_unavailable", "ruby"),
    ];
    for (env, exit, error_type, says) in rows {
        check(&bench, &Refusal { line: call, env, exit: *exit, error_type, says });
    }
}

#[test]
fn arguments_are_json_if_they_parse_and_text_if_not() {
    let bench = Bench::new();
    let cases: &[(&[&str], Value)] = &[
        (&["3", "-4", "-0.5"], json!({"args": [3, -4, -0.5], "kwargs": {}})),
        (&["NaN", "three", "\"3\""], json!({"args": ["NaN", "three", "3"], "kwargs": {}})),
        (
            &["[1, {\"a\": null}]", "@file"],
            json!({"args": [[1, {"a": null}], "@file"], "kwargs": {}}),
        ),
        (
            &["--kw", "from=-3", "--kw", "to=a=b"],
            json!({"args": [], "kwargs": {"from": -3, "to": "a=b"}}),
        ),
        (&["--", "--dashed", "-x"], json!({"args": ["--dashed", "-x"], "kwargs": {}})),
    ];
    for (arguments, expected) in cases {
        let line = [&["call", "echo", "back"], *arguments].concat();
        let ran = bench.run(&line);
        let printed: Value = serde_json::from_str(&ran.exits(0).stdout).unwrap();
        assert_eq!(&printed, expected, "{ran:?}");
    }
    // Integers of any size survive.
    let ran = bench.fed(
        &["call", "echo", "back", "--args-file", "-", "--json"],
        "[1, 123456789012345678901234567890]",
    );
    assert!(ran.exits(0).stdout.contains("123456789012345678901234567890"), "{ran:?}");
}

#[test]
fn values_are_for_people_and_outcomes_for_programs() {
    let bench = Bench::new();
    bench.run(&["call", "echo", "text"]).exits(0).prints("two\nlines\n");
    bench.run(&["ask", "echo", "why", "so?"]).exits(0).prints("you asked: why so?\n");
    bench.run(&["ask", "echo", "is", "-3", "less?"]).exits(0).prints("you asked: is -3 less?\n");
    let outcome = bench.run(&["call", "calculator", "add", "3", "--json"]).exits(0).json();
    assert_eq!((&outcome["status"], &outcome["value"]), (&json!("ok"), &json!(3)));
    assert_eq!(
        (&outcome["tool_role"], &outcome["method_name"]),
        (&json!("calculator"), &json!("add"))
    );
    assert!(outcome["trace_id"].is_string() && outcome["call_id"].is_string(), "{outcome}");
    let traced = bench.run(&["call", "calculator", "add", "3", "--trace"]);
    traced.exits(0).prints("3\n").says("calculator.add");
}

#[test]
fn scripts_are_json_or_yaml_and_programs_python_or_ruby() {
    let bench = Bench::new();
    let ruby: &[&str] = &["--guest", "ruby", "--provider", "scripted:script.yaml"];
    bench.run(&["call", "calculator", "add", "3"]).exits(0).prints("3\n");
    bench.run(&[&["call", "calculator", "add", "4"], ruby].concat()).exits(0).prints("4\n");
}

#[test]
fn a_session_outlives_its_process() {
    let bench = Bench::new();
    let session: &[&str] = &["--session", "desk"];
    let call = |line: &[&str]| bench.run(&[&["call", "calculator"], line, session].concat());
    call(&["memory=", "5"]).exits(0).prints("5\n");
    call(&["add", "3"]).exits(0).prints("8\n");
    call(&["memory"]).exits(0).prints("8\n");
    bench.run(&["call", "calculator", "memory", "--provider", "auto"]).exits(1);

    let listed = bench.run(&["sessions", "list", "--json"]).exits(0).json();
    let row = &listed["sessions"][0];
    assert_eq!(
        (&row["name"], &row["role"], &row["keys"]),
        (&json!("desk"), &json!("calculator"), &json!(1))
    );
    let shown = bench.run(&["sessions", "show", "desk", "--json"]).exits(0).json();
    assert_eq!(shown, json!({"name": "desk", "agents": {"calculator": {"memory": 8}}}));
    bench.run(&["sessions", "rm", "desk"]).exits(0).says("removed session desk");
    let listed = bench.run(&["sessions", "list", "--json"]).exits(0).json();
    assert_eq!(listed, json!({"sessions": []}));
    bench
        .run(&["sessions", "list", "--state-dir", "other"])
        .exits(0)
        .prints("")
        .says("no sessions");
}

#[test]
fn a_recording_gives_the_same_answers_again() {
    let bench = Bench::new();
    bench.run(&["call", "echo", "text", "--record", "r.jsonl"]).exits(0);
    bench.run(&["call", "echo", "text", "--record", "r.jsonl"]).exits(3).says("new file");
    let fresh: &[&str] = &["--state-dir", "elsewhere", "--replay", "r.jsonl"];
    bench.run(&[&["call", "echo", "text"], fresh].concat()).exits(0).prints("two\nlines\n");
}

#[test]
fn a_damaged_store_is_set_aside_and_said() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("state")).unwrap();
    bench.write("state/recurgent.sqlite", &"this is no database ".repeat(500));
    let ran = bench.run(&["call", "calculator", "add", "3"]);
    ran.exits(0).prints("3\n").says("note:");
    let kept = std::fs::read_dir(bench.path("state")).unwrap().any(|entry| {
        std::fs::read(entry.unwrap().path()).is_ok_and(|bytes| bytes.starts_with(b"this is no"))
    });
    assert!(kept, "the damaged file is kept: {ran:?}");
}

#[test]
fn damage_found_in_mid_call_is_said_too() {
    let bench = Bench::new();
    let call = ["call", "calculator", "add", "1", "--session", "s"];
    bench.run(&call).exits(0).prints("1\n");
    let store = bench.path("state/recurgent.sqlite");
    let mut bytes = std::fs::read(&store).unwrap();
    // Past the header and the schema: opening finds nothing wrong.
    bytes[3 * 4096..].fill(0xa5);
    std::fs::write(&store, bytes).unwrap();
    bench.run(&call).says("was damaged and has been moved to");
}

#[test]
fn what_a_killed_host_left_behind_is_swept_and_stops_nobody() {
    let bench = Bench::new();
    let scratch = bench.path("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let line = ["call", "sleeper", "sleep", "--trace"];
    let mut killed = bench.command(&line).env("TMPDIR", &scratch).spawn().unwrap();
    wait_until_running(&mut killed);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(
        std::fs::read_dir(&scratch).unwrap().count(),
        1,
        "the kill came too early or too late"
    );
    let line = ["call", "calculator", "add", "1"];
    let next = bench.command(&line).env("TMPDIR", &scratch).output().unwrap();
    Ran::of(&line, &next).exits(0).prints("1\n");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let bench = Bench::new();
    for line in [&["call", "echo", "flood"][..], &["--help"], &["config"]] {
        let mut child = bench.command(line).spawn().unwrap();
        drop(child.stdout.take());
        let ran = Ran::of(line, &child.wait_with_output().unwrap());
        ran.exits(0).says("");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_said() {
    let bench = Bench::new();
    for line in [&["call", "echo", "text"][..], &["config", "--json"], &["--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = bench.command(line).stdout(full).output().unwrap();
        Ran::of(line, &output).exits(3).says("cannot write to standard output");
    }
}

#[test]
fn the_repl_reads_lines_without_a_terminal() {
    let bench = Bench::new();
    let repl: &[&str] = &["repl", "calculator"];
    bench.fed(repl, "memory = 5\nadd 3\nadd(2)\nmemory\n\n").exits(0).prints("5\n8\n10\n10\n");
    bench
        .fed(repl, "memory = 5\n.memory\n.quit\nadd 1")
        .exits(0)
        .prints("5\n{\n  \"memory\": 5\n}\n");
    bench.fed(repl, "fail 1\nadd 3\n").exits(1).prints("3\n").says("add that key");
    bench.fed(repl, "add [1\nadd 3\n").exits(1).prints("3\n").says("is not closed");
    bench.fed(&["repl", "echo"], "what now?\n").exits(0).prints("you asked: what now?\n");
    bench.fed(repl, ".help\n.tools\n.history\n").exits(0);
}

#[test]
fn doctor_and_config_say_how_things_are() {
    let bench = Bench::new();
    let report = bench.run(&["doctor", "--json"]).exits(0).json();
    let states: BTreeMap<&str, &str> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["name"].as_str().unwrap(), check["state"].as_str().unwrap()))
        .collect();
    for name in ["config", "store", "log", "provider", "python", "ruby", "sandbox", "cgroups"] {
        assert!(states.contains_key(name), "{states:?}");
    }
    assert_eq!((states["store"], states["python"]), ("ok", "ok"));
    let sick = bench.command(&["doctor"]).env("PATH", "/nowhere").output().unwrap();
    let sick = Ran::of(&["doctor"], &sick);
    assert!(sick.exits(4).stdout.contains("fail  python"), "{sick:?}");
    let lost = bench.command(&["doctor"]).env("RECURGENT_STATE_DIR", "/proc/x").output().unwrap();
    Ran::of(&["doctor"], &lost).exits(3);

    bench.write("my.toml", "guest = \"ruby\"\ndebug = true\n");
    let settings = bench
        .command(&["config", "--json", "--set", "debug=false"])
        .env("RECURGENT_CONFIG", "my.toml")
        .output()
        .unwrap();
    let settings = Ran::of(&["config"], &settings).exits(0).json();
    let setting = |key: &str| {
        let all = settings["settings"].as_array().unwrap();
        let found = all.iter().find(|setting| setting["key"] == key).unwrap();
        (found["value"].clone(), found["source"].clone())
    };
    assert_eq!(setting("guest"), (json!("ruby"), json!("my.toml")));
    assert_eq!(setting("debug"), (json!("false"), json!("flag")));
    assert_eq!(setting("provider").1, json!("RECURGENT_PROVIDER"));
    assert_eq!(setting("model").1, json!("default"));
}

#[test]
fn help_has_examples_and_exit_codes() {
    let bench = Bench::new();
    let help = bench.run(&["--help"]);
    assert!(help.exits(0).stdout.contains("130  cancelled"), "{help:?}");
    let verbs: Vec<&str> = help
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .filter(|verb| !["help", "completions"].contains(verb))
        .collect();
    assert!(verbs.len() > 10, "{verbs:?}");
    for verb in verbs {
        let help = bench.run(&[verb, "--help"]);
        assert!(help.exits(0).stdout.contains("\nExamples:\n"), "{help:?}");
    }
    for line in [["tools", "pin", "--help"], ["env", "gc", "--help"]] {
        let help = bench.run(&line);
        assert!(!help.exits(0).stdout.contains('\\'), "{help:?}");
    }
    assert!(bench.run(&["--version"]).exits(0).stdout.starts_with("recurgent "));
    for shell in ["bash", "zsh", "fish"] {
        let script = bench.run(&["completions", shell]);
        assert!(script.exits(0).stdout.contains("sessions"), "{shell}");
    }
    bench.run(&[]).exits(2).says("Usage:");
}

#[test]
fn ctrl_c_stops_the_call_and_leaves_no_process() {
    let call = ["call", "sleeper", "sleep", "--json", "--trace", "--session", "night"];
    let repl = ["repl", "sleeper", "--trace", "--session", "night"];
    for (signal, line, input) in [
        ("INT", &call[..], ""),
        ("TERM", &call, ""),
        ("HUP", &call, ""),
        ("INT", &repl, "sleep\nsleep\n"),
    ] {
        let bench = Bench::new();
        let mut child = bench.command(line).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let ran = interrupted(child, signal, line);
        if line == call {
            assert_eq!(ran.exits(130).json()["error_type"], "cancelled");
        } else {
            ran.exits(130).prints("");
        }
        // Nothing of the cancelled call is kept, and the session still works.
        bench.run(&["call", "calculator", "add", "3", "--session", "night"]).prints("3\n");
    }
}

/// Signals a process whose program sleeps, and sees it and everything under it end soon.
fn interrupted(mut child: Child, signal: &str, line: &[&str]) -> Ran {
    wait_until_running(&mut child);
    let patience = Instant::now() + Duration::from_secs(20);
    let mut family = descendants(child.id());
    while family.is_empty() {
        assert!(Instant::now() < patience, "a worker is running");
        std::thread::sleep(Duration::from_millis(5));
        family = descendants(child.id());
    }
    let sent = Instant::now();
    let killed = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let ran = Ran::of(line, &child.wait_with_output().unwrap());
    assert!(sent.elapsed() < Duration::from_secs(8), "{signal} took {:?}", sent.elapsed());
    let patience = Instant::now() + Duration::from_secs(3);
    while family.iter().any(|pid| is_alive(*pid)) {
        assert!(Instant::now() < patience, "{signal} left a process of {family:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    ran
}

/// Waits until the trace shows the program that sleeps, then for a worker to be there.
fn wait_until_running(child: &mut Child) {
    let mut trace = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("time.sleep") {
        line.clear();
        assert_ne!(trace.read_line(&mut line).unwrap(), 0, "the program never ran");
    }
    std::thread::spawn(move || std::io::copy(&mut trace, &mut std::io::sink()));
    // A zygote and the worker it forked.
    let patience = Instant::now() + Duration::from_secs(20);
    while descendants(child.id()).into_iter().filter(|pid| is_guest(*pid)).count() < 2 {
        assert!(Instant::now() < patience, "no worker came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is an interpreter that holds our side of the protocol.
fn is_guest(pid: u32) -> bool {
    let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"));
    let mark = b"Guest side of the worker protocol";
    line.is_ok_and(|line| line.windows(mark.len()).any(|part| part == mark))
}

/// Every process under `root`, from /proc.
fn descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = stat_field(pid, 1).and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(&below);
        open.extend(below);
    }
    found
}

/// A field of /proc/PID/stat, counted from the state, which follows the name in parentheses.
fn stat_field(pid: u32, index: usize) -> Option<String> {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(index).map(str::to_owned)
}

fn is_alive(pid: u32) -> bool {
    stat_field(pid, 0).is_some_and(|state| state != "Z")
}
