//! What calls are given beside words: files, standard input, and files that programs open themselves.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::calls::cli;
use crate::fixture::CliFixture;

/// Programs that open files by the name they are given.
const READERS: &str = r#"{
  "ledger.read": [{"code": "def read(path):\n    with open(path) as file:\n        return file.read()"}],
  "ledger.here": [{"code": "import os\ndef here():\n    return sorted(os.listdir('.'))"}],
  "ledger.note": [{"code": "def note(path):\n    with open(path, 'w') as file:\n        file.write('noted')\n    with open(path) as file:\n        return file.read()"}]
}"#;

/// Programs of root run as a user that owns nothing.
fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn an_argument_may_be_a_file_or_standard_input() {
    let cli = cli();
    cli.write("rows.json", "[1, 2]\n");
    cli.write("words.txt", "a,b\n1,2\n");
    for (line, input, args, kwargs) in [
        (&["@rows.json", "@words.txt"][..], "", json!([[1, 2], "a,b\n1,2\n"]), json!({})),
        (&["-", "3"], "{\"a\": 1}", json!([{"a": 1}, 3]), json!({})),
        (&["-"], "two\nlines\n", json!(["two\nlines\n"]), json!({})),
        (&["--kw", "rows=@rows.json"], "", json!([]), json!({"rows": [1, 2]})),
        (&["--kw", "text=-"], "hello", json!([]), json!({"text": "hello"})),
        (&["@@ada", "\"-\"", "@"], "", json!(["@ada", "-", "@"]), json!({})),
    ] {
        let line = [&["call", "echo", "back", "--json"], line].concat();
        let ran = cli.run_with_stdin(&line, input);
        let value = ran.exits(0).json()["value"].clone();
        assert_eq!(value, json!({"args": args, "kwargs": kwargs}), "{ran:?}");
    }
}

/// Standard input is read for one argument; a second one is refused instead of being empty.
#[test]
fn standard_input_is_read_once() {
    let cli = cli();
    for words in [
        &["-", "--deliverable", "-"][..],
        &["-", "--kw", "rows=-"],
        &["-", "--example", "-"],
        &["--args-file", "-", "--kw", "rows=-"],
        &["--args-file", "-", "--expect", "-"],
        &["--args-file", "-", "--deliverable", "-"],
    ] {
        let ran = cli.run_with_stdin(&[&["call", "echo", "back"], words].concat(), "[1]");
        ran.exits(2).stderr_contains("standard input can be one argument only");
    }
    let taught = ["call", "echo", "back", "1", "--example", "-"];
    let example = r#"{"args": [2], "value": {"args": [2], "kwargs": {}}}"#;
    cli.run_with_stdin(&taught, example).exits(0);
}

/// A right answer is given like an argument.
#[test]
fn what_is_taught_may_be_in_a_file() {
    let cli = cli();
    cli.write("right.json", "[1, 2]");
    cli.write("memory.json", r#"{"total": 3}"#);
    let teach = ["tools", "teach", "echo", "back", "1", "--json", "--context", "@memory.json"];
    let ran = cli.run(&[&teach[..], &["--gives", "@right.json"]].concat());
    let example = ran.exits(0).json()["example"].clone();
    assert_eq!(example["value"], json!([1, 2]), "{ran:?}");
    assert_eq!(example["context"], json!({"total": 3}), "{ran:?}");
}

/// Nothing that looks like JSON becomes a text without a word, and every refusal says what comes next.
#[test]
fn what_cannot_be_an_argument_says_what_to_do() {
    let cli = cli();
    cli.write("deep.json", &format!("{}{}", "[".repeat(200), "]".repeat(200)));
    cli.write("marked.json", "\u{feff}[1, 2]");
    cli.write("a.json", "[1]");
    let call = ["call", "echo", "back"];
    let ran = cli.run(&[&call[..], &["@marked.json", "--json"]].concat());
    assert_eq!(ran.exits(0).json()["value"]["args"], json!([[1, 2]]), "{ran:?}");
    let ran = cli.run(&[&call[..], &["--args-file", "marked.json", "--json"]].concat());
    assert_eq!(ran.exits(0).json()["value"]["args"], json!([1, 2]), "{ran:?}");
    for (words, code, said) in [
        (&["@deep.json"][..], 1, "deep.json is nested deeper than 127 levels"),
        (&["--deliverable", ""], 2, "it is empty; say what the answer is"),
        (&["--workspace", ""], 2, "--workspace is empty; name a directory"),
        (&["--workspace", "", "--workspace-write"], 2, "--workspace is empty; name a directory"),
        (&["@."], 2, "it is a directory; name a file in it"),
        (&["--deliverable", "@."], 2, "it is a directory; name a file in it"),
        (&["--args-file", "@a.json"], 2, "this flag takes the name without @: a.json"),
    ] {
        cli.run(&[&call[..], words].concat()).exits(code).stderr_contains(said);
    }
}

/// The question is words; what it is about comes after it. Without words, the content is the question.
#[test]
fn a_question_may_be_about_a_file() {
    let script =
        r#"{"echo.ask": [{"code": "def ask(question, *about):\n    return [question, *about]"}]}"#;
    for (words, input, expected) in [
        (&["which", "is", "larger?", "@rows.json"][..], "", json!(["which is larger?", [1, 2]])),
        (&["who?", "-"], "log\n", json!(["who?", "log\n"])),
        (&["-"], "what is it?", json!(["what is it?"])),
        (&["@@ada", "writes"], "", json!(["@ada writes"])),
    ] {
        let cli = CliFixture::new(script);
        cli.write("rows.json", "[1, 2]");
        let ran = cli.run_with_stdin(&[&["ask", "echo", "--json"], words].concat(), input);
        assert_eq!(ran.exits(0).json()["value"], expected, "{ran:?}");
    }
}

#[test]
fn a_deliverable_may_be_a_file() {
    let cli = cli();
    cli.write("shape.json", r#"{"type": "object", "required": ["total"]}"#);
    cli.write("prose.txt", "whatever was given");
    let ran = cli.run(&["call", "echo", "back", "--json", "--deliverable", "@shape.json"]);
    assert_eq!(ran.exits(1).json()["error_type"], "contract_violation", "{ran:?}");
    cli.run(&["call", "echo", "back", "--deliverable", "@prose.txt"]).exits(0);
}

/// A granted file is found under the name that the caller used, wherever programs run.
#[test]
fn a_granted_file_is_found_by_its_relative_name() {
    let cli = CliFixture::new(READERS);
    std::fs::create_dir_all(cli.path("data/2024")).unwrap();
    cli.write("sales.csv", "a,1\n");
    cli.write("data/2024/may.csv", "b,2\n");
    for (name, grant, expected) in [
        ("sales.csv", "sales.csv", "a,1\n\n"),
        ("./sales.csv", "sales.csv", "a,1\n\n"),
        ("data/2024/may.csv", "data", "b,2\n\n"),
        ("data/2024/may.csv", "data/2024/may.csv", "b,2\n\n"),
    ] {
        cli.run(&["call", "ledger", "read", name, "--read", grant]).exits(0).prints(expected);
    }
    let written = cli.path("notes.txt");
    std::fs::write(&written, "").unwrap();
    open_to_all(&written, 0o666);
    cli.run(&["call", "ledger", "note", "notes.txt", "--write", "notes.txt"]).prints("noted\n");
    assert_eq!(std::fs::read_to_string(&written).unwrap(), "noted");
}

/// Relative names are those of the workspace, which is only read.
#[test]
fn programs_run_in_the_workspace() {
    let cli = CliFixture::new(READERS);
    std::fs::create_dir(cli.path("project")).unwrap();
    cli.write("project/readme.txt", "hello");
    let here = cli.json(&["call", "ledger", "here", "--workspace", "project"]);
    assert_eq!(here["value"], json!(["readme.txt"]));
    cli.run(&["call", "ledger", "read", "readme.txt", "--workspace", "project"]).prints("hello\n");
    open_to_all(&cli.path("project"), 0o777);
    let refused = cli.run(&["call", "ledger", "note", "new.txt", "--workspace", "project"]);
    refused.exits(1).stderr_contains("--workspace-write");
    assert!(!cli.path("project/new.txt").exists());
    let line = ["call", "ledger", "note", "new.txt", "--workspace", "project", "--workspace-write"];
    cli.run(&line).exits(0).prints("noted\n");
    assert_eq!(std::fs::read_to_string(cli.path("project/new.txt")).unwrap(), "noted");
}

/// Each attempt starts from the same files, and only what the accepted one wrote is kept.
#[test]
fn an_attempt_that_fails_does_not_change_the_workspace() {
    let script = r#"{"ledger.log": [
      {"code": "def log(text):\n    with open('log.txt', 'a') as file:\n        file.write(text)\n    raise ValueError('no')"},
      {"code": "def log(text):\n    with open('log.txt', 'a') as file:\n        file.write(text)\n    return 'again'"}
    ]}"#;
    let cli = CliFixture::new(script);
    std::fs::create_dir(cli.path("project")).unwrap();
    open_to_all(&cli.path("project"), 0o777);
    let line = ["call", "ledger", "log", "x", "--workspace", "project", "--workspace-write"];
    let (outcome, exit) = cli.answer(&line);
    assert_eq!((exit, &outcome["value"]), (0, &json!("again")), "{outcome}");
    assert_eq!(outcome["metadata"]["notes"], json!(["workspace: wrote log.txt"]), "{outcome}");
    assert_eq!(std::fs::read_to_string(cli.path("project/log.txt")).unwrap(), "x");
    assert_eq!(outcome["metadata"]["sent"], Value::Null, "{outcome}");
}
