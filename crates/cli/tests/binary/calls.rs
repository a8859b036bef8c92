//! What is typed, what is printed, and how it exits.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fixture::{CliFixture, CommandResult};

/// Programs both guests are given by hand.
const PYTHON_SCRIPT: &str = r#"{
  "calculator.add": [{"code": "context['memory'] = context.get('memory', 0) + args[0]\nresult = context['memory']"}],
  "echo.back": [{"code": "result = {'args': args, 'kwargs': kwargs}"}],
  "echo.text": [{"code": "result = 'two\\nlines'"}],
  "echo.flood": [{"code": "result = 'x' * 3_000_000"}],
  "echo.ask": [{"code": "result = 'you asked: ' + args[0]"}],
  "sleeper.sleep": [{"code": "import time\ntime.sleep(25)\nresult = 1"}],
  "teller.say": [{"code": "def say(x):\n    print(x + 1)"}, {"code": "def say(x):\n    print(x + 2)"}],
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

/// A machine with these programs.
pub(crate) fn cli() -> CliFixture {
    let cli = CliFixture::new(PYTHON_SCRIPT);
    cli.write("script.yaml", RUBY_SCRIPT);
    cli
}

/// A command line that cannot be done: how it exits, its code, and its message.
struct Refusal<'a> {
    line: &'a [&'a str],
    env: &'a [(&'a str, &'a str)],
    exit: i32,
    error_type: &'a str,
    says: &'a str,
}

/// The refusal is the same for people and, with `--json`, for programs.
#[track_caller]
fn check(cli: &CliFixture, refusal: &Refusal<'_>) {
    let Refusal { line, env, exit, error_type, says } = refusal;
    let plain = cli.command(line).envs(env.iter().copied()).output().unwrap();
    let plain = CommandResult::of(line, &plain);
    plain.exits(*exit).stderr_contains(says).prints("");

    // Before anything else, so that a -- does not hide it.
    let mut with_json = vec![line[0], "--json"];
    with_json.extend(&line[1..]);
    let ran = cli.command(&with_json).envs(env.iter().copied()).output().unwrap();
    let ran = CommandResult::of(&with_json, &ran);
    let object = ran.exits(*exit).json();
    assert_eq!(
        (&object["status"], &object["error_type"]),
        (&json!("error"), &json!(error_type)),
        "{ran:?}"
    );
    assert!(object["error_message"].as_str().unwrap().contains(says), "{ran:?}");
    for field in ["value", "retriable", "tool_role", "method_name", "metadata"] {
        assert!(object.get(field).is_some(), "no {field}: {ran:?}");
    }
}

#[test]
fn a_line_that_makes_no_sense_exits_with_2() {
    let cli = cli();
    cli.write("object.json", "{}");
    let long = "x".repeat(10_000);
    let rows: &[(&[&str], &str, &str)] = &[
        (&["call", "echo", "back", "--nope"], "usage", "--nope"),
        (&["call", "echo"], "usage", "<METHOD>"),
        (&["call", "echo", "back", "--kw", "novalue"], "usage", "NAME=VALUE"),
        (&["call", "echo", "back", "--kw", "a=1", "--kw", "a=2"], "usage", "gives a twice"),
        (&["call", "echo", "back", "--guest", "lua"], "usage", "python, ruby"),
        (&["call", "echo", "back", "--set", "gest=ruby"], "usage", "did you mean `guest`?"),
        (
            &["call", "echo", "back", "--set", "execution_timeout_seconds=NaN"],
            "usage",
            "a number of seconds",
        ),
        (
            &["call", "echo", "back", "--deliverable", r#"{"type": "array", "min_itmes": 1}"#],
            "usage",
            "did you mean `min_items`?",
        ),
        (
            &["call", "echo", "back", "--deliverable", r#"{"movies": "arry"}"#],
            "usage",
            "did you mean `array`?",
        ),
        (&["call", "echo", "back", "--deliverable", "integr"], "usage", "did you mean `integer`?"),
        (&["call", "echo", "back", "--regenerate", "--frozen"], "usage", "--frozen"),
        (&["call", "echo", "back", "--session", ""], "usage", "--session"),
        (
            &["call", "echo", "back", "--replay", "a", "--provider", "auto"],
            "usage",
            "cannot be used with",
        ),
        (&["call", "echo", "back", "--args-file", "object.json"], "usage", "one JSON array"),
        (&["call", "echo", "back", "--args-file", "absent.json"], "usage", "absent.json"),
        (&["call", "echo", "back", "@absent.txt"], "usage", "write @@absent.txt for the text"),
        (&["call", "echo", "back", "-", "-"], "usage", "standard input can be one argument only"),
        (&["call", "echo", "back", "--deliverable", "@absent"], "usage", "cannot read absent"),
        (&["call", "echo", "back", "--workspace-write"], "usage", "add --workspace DIR"),
        (&["call", "echo", "back", "--workspace", "absent"], "usage", "a directory that exists"),
        (&["call", "echo", "memory="], "usage", "takes one value and was given 0"),
        (&["call", "echo", "memory=", "1", "2"], "usage", "takes one value and was given 2"),
        (&["call", "", "back"], "invalid_call", "must not be empty"),
        (&["call", "echo", " "], "invalid_call", "must not be empty"),
        (&["call", &long, "back"], "invalid_call", "this one has 10000; shorten it"),
        (&["call", "echo", &long], "invalid_call", "this one has 10000; shorten it"),
        (&["call", "echo", "a\u{7}b"], "invalid_call", "control characters"),
        (&["ask", "echo", " "], "usage", "must not be empty"),
        (&["doctor", "--set", "gest=ruby"], "usage", "did you mean `guest`?"),
    ];
    for (line, error_type, says) in rows {
        check(&cli, &Refusal { line, env: &[], exit: 2, error_type, says });
    }
}

/// Prose says what is wanted, and nothing in it is enforced.
#[test]
fn a_deliverable_may_be_prose() {
    let cli = cli();
    for prose in ["a list of movies", "movies", "whatever was given, as an object"] {
        let ran = cli.run(&["call", "echo", "back", "1", "--json", "--deliverable", prose]);
        assert_eq!(ran.exits(0).json()["value"]["args"], json!([1]), "{ran:?}");
    }
}

/// A null that no program meant is marked, for people and for programs.
#[test]
fn a_null_without_a_result_is_marked() {
    let cli = cli();
    let plain = cli.run(&["call", "teller", "say", "3"]);
    plain
        .exits(0)
        .prints("null\n")
        .stderr_contains("no program gave a result")
        .stderr_contains("it printed `");
    let json = cli.run(&["call", "teller", "say", "3", "--json"]);
    let metadata = &json.exits(0).json()["metadata"];
    assert_eq!(metadata["weak_success"], true, "{json:?}");
    assert!(metadata["notes"].to_string().contains("no program gave a result"), "{json:?}");
}

#[test]
fn a_call_that_fails_exits_with_1() {
    let cli = cli();
    cli.write("empty.jsonl", "{\"recording\":1}\n");
    let mut big = "[\"".to_owned();
    big.push_str(&"x".repeat(50 * 1024 * 1024));
    big.push_str("\"]");
    cli.write("big.json", &big);
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
        (&["call", "echo", "unscripted"], "provider", "add that key"),
        (&["sessions", "show", "nobody"], "not_found", "no session is named \"nobody\""),
        (&["sessions", "rm", "nobody"], "not_found", "no session is named \"nobody\""),
    ];
    for (line, error_type, says) in rows {
        check(&cli, &Refusal { line, env: &[], exit: 1, error_type, says });
    }
}

#[test]
fn what_cannot_be_set_up_exits_with_3_or_4() {
    type Row<'a> = (&'a [(&'a str, &'a str)], i32, &'a str, &'a str);

    let cli = cli();
    cli.write("file", "not a folder");
    cli.write("broken.toml", "guest = [");
    cli.write("odd.json", "[1, 2]");
    let call: &[&str] = &["call", "echo", "back"];
    let rows: &[Row<'_>] = &[
        (&[("RECURGENT_GUESTS", "ruby")], 3, "setup", "did you mean `guest`?"),
        (&[("RECURGENT_PROVIDER", "auto")], 3, "provider_auth", "--provider scripted:FILE"),
        (&[("RECURGENT_CONFIG", "absent.toml")], 3, "setup", "absent.toml"),
        (&[("RECURGENT_CONFIG", "broken.toml")], 3, "setup", "broken.toml"),
        (&[("RECURGENT_PROVIDER", "scripted:absent.json")], 3, "setup", "absent.json"),
        (&[("RECURGENT_PROVIDER", "scripted:odd.json")], 3, "setup", "role.method"),
        (&[("RECURGENT_PROVIDER", "replay:odd.json")], 3, "setup", "not a recording"),
        (&[("RECURGENT_PROVIDER", "oracle")], 3, "setup", "must be auto, anthropic"),
        (&[("RECURGENT_PRICE_INPUT_PER_MTOK", "1")], 3, "setup", "price_output_per_mtok is not"),
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
        check(&cli, &Refusal { line: call, env, exit: *exit, error_type, says });
    }
}

/// A relative path cannot be granted from a directory that was removed.
#[test]
fn a_granted_path_that_cannot_be_made_absolute_is_an_error() {
    let cli = cli();
    std::fs::create_dir(cli.path("gone")).unwrap();
    let mut line = std::process::Command::new("sh");
    line.arg("-c").arg("cd gone && rmdir ../gone && exec \"$0\" config");
    line.arg(env!("CARGO_BIN_EXE_recurgent")).env("RECURGENT_READ_PATHS", "data");
    line.env("RECURGENT_STATE_DIR", cli.path("state")).current_dir(cli.path(""));
    let ran = CommandResult::of(&["config"], &line.output().unwrap());
    ran.exits(3).stderr_contains("`read_paths` (RECURGENT_READ_PATHS) must be absolute paths");
}

#[test]
fn arguments_are_json_if_they_parse_and_text_if_not() {
    let cli = cli();
    let cases: &[(&[&str], Value)] = &[
        (&["3", "-4", "-0.5"], json!({"args": [3, -4, -0.5], "kwargs": {}})),
        (&["NaN", "three", "\"3\""], json!({"args": ["NaN", "three", "3"], "kwargs": {}})),
        (
            &["[1, {\"a\": null}]", "@@file"],
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
        let ran = cli.run(&line);
        let printed: Value = serde_json::from_str(&ran.exits(0).stdout).unwrap();
        assert_eq!(&printed, expected, "{ran:?}");
    }
    // Integers of any size survive.
    let ran = cli.run_with_stdin(
        &["call", "echo", "back", "--args-file", "-", "--json"],
        "[1, 123456789012345678901234567890]",
    );
    assert!(ran.exits(0).stdout.contains("123456789012345678901234567890"), "{ran:?}");
}

#[test]
fn values_are_for_people_and_outcomes_for_programs() {
    let cli = cli();
    cli.run(&["call", "echo", "text"]).exits(0).prints("two\nlines\n");
    cli.run(&["ask", "echo", "why", "so?"]).exits(0).prints("you asked: why so?\n");
    cli.run(&["ask", "echo", "is", "-3", "less?"]).exits(0).prints("you asked: is -3 less?\n");
    let outcome = cli.run(&["call", "calculator", "add", "3", "--json"]).exits(0).json();
    assert_eq!((&outcome["status"], &outcome["value"]), (&json!("ok"), &json!(3)));
    assert_eq!(
        (&outcome["tool_role"], &outcome["method_name"]),
        (&json!("calculator"), &json!("add"))
    );
    assert!(outcome["trace_id"].is_string() && outcome["call_id"].is_string(), "{outcome}");
    let traced = cli.run(&["call", "calculator", "add", "3", "--trace"]);
    traced.exits(0).prints("3\n").stderr_contains("calculator.add");
}

#[test]
fn scripts_are_json_or_yaml_and_programs_python_or_ruby() {
    let cli = cli();
    let ruby: &[&str] = &["--guest", "ruby", "--provider", "scripted:script.yaml"];
    cli.run(&["call", "calculator", "add", "3"]).exits(0).prints("3\n");
    cli.run(&[&["call", "calculator", "add", "4"], ruby].concat()).exits(0).prints("4\n");
}

#[test]
fn a_recording_gives_the_same_answers_again() {
    let cli = cli();
    cli.run(&["call", "echo", "text", "--record", "r.jsonl"]).exits(0);
    cli.run(&["call", "echo", "text", "--record", "r.jsonl"]).exits(3).stderr_contains("new file");
    let fresh: &[&str] = &["--state-dir", "elsewhere", "--replay", "r.jsonl"];
    cli.run(&[&["call", "echo", "text"], fresh].concat()).exits(0).prints("two\nlines\n");
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let cli = cli();
    for line in [&["call", "echo", "flood"][..], &["--help"], &["config"]] {
        let mut child = cli.command(line).spawn().unwrap();
        drop(child.stdout.take());
        let ran = CommandResult::of(line, &child.wait_with_output().unwrap());
        ran.exits(0).stderr_contains("");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_said() {
    let cli = cli();
    for line in [&["call", "echo", "text"][..], &["config", "--json"], &["--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = cli.command(line).stdout(full).output().unwrap();
        CommandResult::of(line, &output)
            .exits(3)
            .stderr_contains("cannot write to standard output");
    }
}

#[test]
fn doctor_and_config_say_how_things_are() {
    let cli = cli();
    let report = cli.run(&["doctor", "--json"]).exits(0).json();
    let states: BTreeMap<&str, &str> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["name"].as_str().unwrap(), check["state"].as_str().unwrap()))
        .collect();
    for name in [
        "config", "store", "log", "provider", "python", "ruby", "sandbox", "cgroups", "uv",
        "bundler",
    ] {
        assert!(states.contains_key(name), "{states:?}");
    }
    assert_eq!((states["store"], states["python"]), ("ok", "ok"));
    let sourced = [
        ("http://127.0.0.1:9/", "internal_only", "sources     http://127.0.0.1:9/: cannot connect"),
        (
            "file:///nowhere/",
            "internal_only",
            "sources     file:///nowhere/: there is no such directory",
        ),
        ("http://127.0.0.1:9/", "public_only", "sources     `gem_sources` is set and not used"),
    ];
    for (source, mode, found) in sourced {
        let (source, mode) = (format!("gem_sources={source}"), format!("source_mode={mode}"));
        let ran = cli.run(&["doctor", "--set", &source, "--set", &mode]);
        assert!(ran.exits(0).stdout.contains(found), "{ran:?}");
    }
    let sick = cli.command(&["doctor"]).env("PATH", "/nowhere").output().unwrap();
    let sick = CommandResult::of(&["doctor"], &sick);
    assert!(sick.exits(4).stdout.contains("fail  python"), "{sick:?}");
    let lost = cli.command(&["doctor"]).env("RECURGENT_STATE_DIR", "/proc/x").output().unwrap();
    CommandResult::of(&["doctor"], &lost).exits(3);

    cli.write("my.toml", "guest = \"ruby\"\ndebug = true\n");
    let settings = cli
        .command(&["config", "--json", "--set", "debug=false"])
        .env("RECURGENT_CONFIG", "my.toml")
        .output()
        .unwrap();
    let settings = CommandResult::of(&["config"], &settings).exits(0).json();
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
    let cli = cli();
    let help = cli.run(&["--help"]);
    assert!(help.exits(0).stdout.contains("130  cancelled"), "{help:?}");
    let verbs: Vec<&str> = help
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   ")) // a description that goes on
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| !["help", "completions"].contains(verb))
        .collect();
    assert!(verbs.len() > 10, "{verbs:?}");
    for verb in verbs {
        let help = cli.run(&[verb, "--help"]);
        assert!(help.exits(0).stdout.contains("\nExamples:\n"), "{help:?}");
    }
    for line in [["tools", "pin", "--help"], ["env", "gc", "--help"]] {
        let help = cli.run(&line);
        assert!(!help.exits(0).stdout.contains('\\'), "{help:?}");
    }
    assert!(cli.run(&["--version"]).exits(0).stdout.starts_with("recurgent "));
    for shell in ["bash", "zsh", "fish"] {
        let script = cli.run(&["completions", shell]);
        assert!(script.exits(0).stdout.contains("recurgent complete --"), "{shell}");
    }
    cli.run(&[]).exits(2).stderr_contains("Usage:");
}

/// A pipe in place of a file: no command waits for its writer.
#[test]
fn a_pipe_in_place_of_a_file_is_not_waited_for() {
    let cli = cli();
    let pipe = cli.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    cli.run(&["call", "calculator", "add", "1"]).exits(0);
    for (line, exit) in [
        (&["call", "echo", "back", "--args-file", "pipe"][..], 2),
        (&["call", "echo", "back", "--example", "pipe"], 2),
        (&["call", "echo", "back", "--record", "pipe"], 3),
        (&["call", "echo", "back", "--replay", "pipe"], 3),
        (&["call", "echo", "back", "--provider", "scripted:pipe"], 3),
        (&["call", "echo", "back", "--provider", "openai", "--set", "api_key_file=pipe"], 3),
        (&["call", "echo", "back", "--provider", "openai", "--set", "provider_ca_file=pipe"], 3),
        (&["call", "echo", "back", "--set", "prices_file=pipe"], 3),
        (&["call", "echo", "back", "--state-dir", "pipe"], 3),
        (&["call", "echo", "back", "--set", "log=pipe"], 0),
        (&["tools", "edit", "calculator", "add", "--file", "pipe"], 1),
        (&["store", "import", "pipe"], 3),
        (&["trace", "show", "last", "--set", "log=pipe"], 3),
    ] {
        // Without a limit of time: a command that waited would make the whole run hang, which is noticed too.
        let ran = cli.run(line);
        assert_eq!(ran.exit, exit, "{ran:?}");
    }
    // That of a shell's `<(…)` has a writer and is read.
    let given = "exec \"$0\" call echo back --args-file <(sleep 0.2; echo '[1, 2]')";
    let echo = cli.command(&[]);
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", given]).arg(echo.get_program()).current_dir(cli.path(".")).env_clear();
    shell.envs(echo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    CommandResult::of(&["call", "echo"], &shell.output().unwrap()).exits(0);
}
