//! `recurgent watch` and `recurgent trace show`: calls of other processes, as they happen and after.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::fixture::{CliFixture, CommandResult};

const SCRIPT: &str = r#"{
  "calculator.add": [{"code": "result = args[0] + 1"}],
  "calculator.fail": [{"code": "result = 1 // 0"}],
  "parent.ask": [{"code": "result = [delegate('child', purpose='help').answer(1).value, delegate('child', purpose='help').answer(2).value]"}],
  "child.answer": [{"code": "result = args[0] * 10"}],
  "packer.pack": [{"code": "import sound\nresult = sound.VERSION", "dependencies": [{"name": "sound"}]}]
}"#;

fn cli() -> CliFixture {
    CliFixture::new(SCRIPT)
}

/// A watcher at work, and what it prints.
struct Watch {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Watch {
    fn start(cli: &CliFixture, more: &[&str]) -> Self {
        let mut child = cli.command(&[&["watch"], more].concat()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn entry(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    fn interrupt(self) -> CommandResult {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
        let Self { child, lines } = self;
        let ended = child.wait_with_output().unwrap();
        drop(lines); // a reader that leaves would end it too
        CommandResult::of(&["watch"], &ended)
    }
}

fn names(entries: &[Value]) -> Vec<String> {
    let name = |entry: &Value| format!("{}.{}", entry["role"], entry["method"]).replace('"', "");
    entries.iter().map(name).collect()
}

#[test]
fn calls_are_seen_as_they_happen_through_rotation_and_foreign_lines() {
    let cli = cli();
    let log = cli.path("state/recurgent.jsonl");
    cli.run(&["call", "calculator", "add", "1"]);
    let mut watch = Watch::start(&cli, &["--json"]);
    assert_eq!(watch.entry()["args"], json!([1]), "what was there already comes first");
    cli.run(&["call", "parent", "ask"]);
    let seen: Vec<Value> = (0..3).map(|_| watch.entry()).collect();
    assert_eq!(names(&seen), ["child.answer", "child.answer", "parent.ask"]);
    let depths: Vec<&Value> = seen.iter().map(|entry| &entry["depth"]).collect();
    assert_eq!(depths, [1, 1, 0]);

    let mut file = fs::File::options().append(true).open(&log).unwrap();
    file.write_all(b"not ours\n{\"torn\": ").unwrap();
    drop(file);
    fs::rename(&log, cli.path("state/recurgent.jsonl.1700000000000")).unwrap();
    cli.run(&["call", "calculator", "add", "7"]);
    assert_eq!(watch.entry()["args"], json!([7]));
    let ran = watch.interrupt();
    assert_eq!(ran.exit, 0, "{ran:?}");
    assert!(ran.stderr.contains("2 lines of the log are not entries"), "{ran:?}");
}

#[test]
fn filters_choose_and_a_reader_that_leaves_ends_it() {
    let cli = cli();
    cli.run(&["call", "calculator", "add", "1"]);
    cli.run(&["call", "calculator", "fail"]);
    cli.run(&["call", "parent", "ask"]);
    for (filter, expected) in [
        (&["--status", "error"] as &[&str], &["calculator.fail"] as &[&str]),
        (&["--role", "child"], &["child.answer", "child.answer"]),
        (&["--method", "add"], &["calculator.add"]),
        (&["--last", "2"], &["child.answer", "parent.ask"]),
        (&["--status", "ok", "--role", "calculator"], &["calculator.add"]),
    ] {
        let mut watch = Watch::start(&cli, &[filter, &["--json"]].concat());
        let seen: Vec<Value> = expected.iter().map(|_| watch.entry()).collect();
        assert_eq!(names(&seen), expected);
        // The reader is gone and nothing is written; the command still ends.
        drop(watch.lines);
        let ran = CommandResult::of(&["watch"], &watch.child.wait_with_output().unwrap());
        assert_eq!((ran.exit, ran.stderr.as_str()), (0, ""), "{filter:?}");
    }
}

#[test]
fn a_trace_is_shown_as_a_tree_by_trace_or_call() {
    let cli = cli();
    cli.build_source();
    cli.run(&["call", "calculator", "fail"]);
    let (outcome, _) = cli.answer(&["call", "parent", "ask"]);
    assert_eq!(outcome["value"], json!([10, 20]), "{outcome:#}");
    let (trace, call) = (outcome["trace_id"].as_str().unwrap(), &outcome["call_id"]);
    let (tree, exit) = cli.answer(&["trace", "show", trace]);
    assert_eq!(exit, 0);
    let calls = tree["calls"].as_array().unwrap();
    assert_eq!(names(calls), ["parent.ask", "child.answer", "child.answer"]);
    assert_eq!((&calls[0]["call_id"], &calls[1]["parent_call_id"]), (call, call));
    assert_eq!([&calls[1]["args"], &calls[2]["args"]], [&json!([1]), &json!([2])]);

    let child = calls[2]["call_id"].as_str().unwrap();
    let (tree, _) = cli.answer(&["trace", "show", child]);
    assert_eq!(names(tree["calls"].as_array().unwrap()), ["child.answer"]);
    let shown = cli.run(&["trace", "show", trace]).stdout;
    assert!(shown.starts_with(&format!("trace {trace}\n✓ parent.ask() [10,20]")), "{shown}");
    assert!(shown.contains("\n  ✓ child.answer(1) 10\n"), "{shown}");
    assert!(shown.contains("attempt 1 generated") && shown.contains("worker "), "{shown}");

    let (packed, _) = cli.answer(&["call", "packer", "pack"]);
    assert_eq!(packed["value"], "2.0.0", "{packed:#}");
    let shown = cli.run(&["trace", "show", packed["call_id"].as_str().unwrap()]).stdout;
    for part in ["env ", "made in ", "resolve ", "install ", "restarts 0"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for (id, says) in [("zzzz", "no call and no trace"), ("", "say more of it")] {
        let (answer, exit) = cli.answer(&["trace", "show", id]);
        assert_eq!((exit, &answer["error_type"]), (1, &json!("not_found")));
        assert!(answer["error_message"].as_str().unwrap().contains(says), "{answer:#}");
    }
    let (answer, exit) = cli.answer(&["trace", "show", "x", "--set", "log=off"]);
    assert_eq!((exit, &answer["error_type"]), (3, &json!("setup")));
}
