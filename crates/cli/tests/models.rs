//! Real models from the command line: a server on loopback, which service the doctor says would be asked, and
//! the live suite on itself.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test"
)]

mod common;
#[path = "../../recurgent/tests/providers/server.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::recurgent;
use serde_json::{Value, json};
use server::{CannedReply, ProviderServer};

const CANARY: &str = "sk-canary-0123456789abcdef";

fn writes(code: &str) -> CannedReply {
    server::writes(code, (700, 40))
}

/// Runs `recurgent` in a home of its own; nothing it prints or keeps may hold the key it was given.
fn run(home: &Path, line: &[&str], variables: &[(&str, &str)]) -> Output {
    let output = recurgent(home, line).envs(variables.iter().copied()).output().unwrap();
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!printed.contains("canary"), "{line:?} shows the key: {printed}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_server_of_ones_own_needs_only_its_address_and_a_model() {
    let home = tempfile::tempdir().unwrap();
    let program = "def add(x):\n    context['memory'] = context.get('memory', 0) + x\n    return context['memory']";
    let server = ProviderServer::new(vec![writes(program)]);
    let url = server.url("/v1");
    let line = ["call", "calculator", "add", "3", "--base-url", &url, "--model", "qwen"];
    let first = run(home.path(), &line, &[("OPENAI_API_KEY", CANARY)]);
    assert_eq!(
        (text(&first.stdout).as_str(), first.status.code()),
        ("3\n", Some(0)),
        "{}",
        text(&first.stderr)
    );
    let request = server.request();
    assert_eq!(request.body["model"], "qwen");
    assert_eq!(request.header("authorization"), None, "a key for someone else");
    // Stored now: the second process asks no model.
    let again = run(home.path(), &line, &[]);
    assert_eq!(text(&again.stdout), "3\n");
    assert!(server.requests().is_empty());
    let log = std::fs::read_to_string(home.path().join("state/recurgent.jsonl")).unwrap();
    let entry: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(entry["model"], "qwen");
    assert_eq!(entry["usage"]["input_tokens"], 700);
    assert_eq!(entry["cost"], Value::Null);
}

#[test]
fn what_a_service_answers_is_shown_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let refused = format!("{{\"error\": {{\"message\": \"bad key {CANARY}\"}}}}");
    let server = ProviderServer::new(vec![CannedReply::Says(401, vec![], refused)]);
    let url = server.url("/v1");
    let line =
        ["call", "calculator", "add", "3", "--provider", "anthropic", "--base-url", &url, "--json"];
    let output = run(home.path(), &line, &[("ANTHROPIC_API_KEY", CANARY)]);
    assert_eq!(output.status.code(), Some(3));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["error_type"], "provider_auth");
    assert!(outcome["error_message"].as_str().unwrap().contains("check the key"), "{outcome}");
    let unknown =
        ProviderServer::new(vec![CannedReply::Says(404, vec![], "no such model".to_owned())]);
    let line_to = ["call", "calculator", "add", "3", "--base-url", &unknown.url("/v1")];
    let shown = text(&run(home.path(), &line_to, &[]).stderr);
    assert!(
        shown.contains("check model and base_url") && !shown.contains("run it again"),
        "{shown}"
    );
    let missing = run(home.path(), &line, &[]);
    assert!(text(&missing.stdout).contains("set ANTHROPIC_API_KEY"), "{}", text(&missing.stdout));
}

fn doctor(home: &Path, more: &[&str], variables: &[(&str, &str)], name: &str) -> (String, String) {
    let line: Vec<&str> = ["doctor", "--json"].iter().chain(more).copied().collect();
    let output = run(home, &line, variables);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).expect("the check");
    (check["state"].as_str().unwrap().to_owned(), check["found"].as_str().unwrap().to_owned())
}

#[test]
fn the_doctor_says_which_service_would_be_asked_and_why() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("key");
    std::fs::write(&key, CANARY).unwrap();
    let mode =
        |mode| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    let check = |more: &[&str], variables: &[(&str, &str)], state: &str, words: &[&str]| {
        let (found_state, found) = doctor(home.path(), more, variables, "provider");
        assert_eq!(found_state, state, "{found}");
        for word in words {
            assert!(found.contains(word), "{word:?} not in {found:?}");
        }
    };
    check(&[], &[], "warn", &["no model is configured", "--base-url"]);
    check(
        &[],
        &[("OPENAI_API_KEY", CANARY)],
        "ok",
        &["openai: gpt-6.1-terra", "key: OPENAI_API_KEY", "(OPENAI_API_KEY is set)"],
    );
    check(
        &["--model", "claude-x"],
        &[],
        "warn",
        &["anthropic: claude-x", "begins with claude", "set ANTHROPIC_API_KEY"],
    );
    check(
        &["--base-url", "http://127.0.0.1:1/v1", "--model", "m"],
        &[],
        "warn",
        &["compatible: m at http://127.0.0.1:1/v1, key: none", "nothing answers there"],
    );
    let unknown = run(home.path(), &["doctor", "--provider", "opnai"], &[]);
    assert_eq!(unknown.status.code(), Some(2));
    let said = text(&unknown.stderr);
    assert!(said.contains("`provider` (flag) must be auto, anthropic"), "{said}");
    let file = format!("api_key_file={}", key.display());
    mode(0o644);
    check(
        &["--provider", "gemini", "--set", &file],
        &[],
        "fail",
        &["other users may read this key", "chmod 600"],
    );
    mode(0o600);
    check(&["--provider", "gemini", "--set", &file], &[], "ok", &["gemini: ", "key"]);
}

/// A file in the place of an interpreter is run once to identify it; it gets no keys.
#[test]
fn an_interpreter_is_given_no_keys() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir().unwrap();
    let shim = home.path().join("python3");
    std::fs::write(
        &shim,
        "#!/bin/sh\nenv >> \"$HOME/seen\"\nPATH=${PATH#*:} exec python3 \"$@\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&shim, std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!("{}:{}", home.path().display(), std::env::var("PATH").unwrap());
    let (state, found) =
        doctor(home.path(), &[], &[("OPENAI_API_KEY", CANARY), ("PATH", &path)], "python");
    assert_eq!(state, "ok", "{found}");
    let seen = std::fs::read_to_string(home.path().join("seen")).unwrap();
    assert!(seen.contains("HOME=") && !seen.contains("canary"), "{seen}");
}

#[test]
fn the_doctor_asks_on_request() {
    let home = tempfile::tempdir().unwrap();
    let server = ProviderServer::new(vec![writes("result = 1")]);
    let url = server.url("/v1");
    let line = ["--live", "--base-url", &url, "--model", "qwen"];
    let (state, found) = doctor(home.path(), &line, &[], "live");
    assert_eq!(state, "ok", "{found}");
    assert!(found.contains("qwen answered in") && found.contains("700 tokens sent"), "{found}");
    let down = ProviderServer::new(vec![CannedReply::Says(503, vec![], "busy".to_owned())]);
    let url = down.url("/v1");
    let (state, found) = doctor(home.path(), &["--live", "--base-url", &url], &[], "live");
    assert_eq!(state, "fail");
    assert!(found.contains("503"), "{found}");
    let seen = run(home.path(), &["doctor", "--live", "--base-url", &url], &[]);
    assert_eq!(seen.status.code(), Some(3), "the provider cannot be used");
}

/// The suite itself works: its script, its tasks, and what it counts.
#[test]
fn the_live_suite_solves_itself() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = tempfile::tempdir().unwrap();
    let tasks = ["add", "counter", "delegate", "contract_object"];
    let output = Command::new("python3")
        .arg(root.join("scripts/live"))
        .args(["--self-test", "--json", "--recurgent", env!("CARGO_BIN_EXE_recurgent")])
        .args(tasks.iter().flat_map(|task| ["--only", task]))
        .env("HOME", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic_with(&text(&output.stderr)));
    let all = &report["guests"]["python"]["all"];
    for (name, count) in [
        ("solved", 4),
        ("stored", 4),
        ("model_calls", 5),
        ("repeated_without_model", 2),
        ("bare_right", 3),
        ("untyped", 0),
    ] {
        assert_eq!(all[name], count, "{name} of {report:#}");
    }
    assert_eq!(all["failures"], json!({}));
}

/// Hostile pages are counted: here a server obeys all of them, and one run is granted more than it should be.
#[test]
fn the_suite_of_hostile_pages_counts_what_they_do() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = tempfile::tempdir().unwrap();
    for (pages, more, widened, exit) in
        [("2", &[][..], 0, 0), ("1", &["--", "--network", "loopback"][..], 1, 1)]
    {
        let output = Command::new("python3")
            .arg(root.join("scripts/injection"))
            .args(["--self-test", "--json", "--pages", pages])
            .args(["--recurgent", env!("CARGO_BIN_EXE_recurgent")])
            .args(more)
            .env("HOME", home.path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic_with(&text(&output.stderr)));
        let calls: u64 = pages.parse().unwrap();
        for (guest, place) in ["python", "ruby"]
            .iter()
            .flat_map(|guest| ["page", "result", "description"].map(|place| (guest, place)))
        {
            let expected = json!({"calls": calls, "obeyed": calls, "failed": 0, "widened": widened, "untyped": 0});
            assert_eq!(report["guests"][guest][place], expected, "{guest} {place}: {report:#}");
        }
        assert_eq!(output.status.code(), Some(exit));
    }
}

#[expect(clippy::panic, reason = "test")]
fn panic_with(words: &str) -> ! {
    panic!("{words}")
}

/// A recording replays elsewhere; a run that goes another way, or needs less, says so.
#[test]
fn a_recorded_call_replays_from_the_command_line() {
    let home = tempfile::tempdir().unwrap();
    let server = ProviderServer::new(vec![writes("result = args[0] * 2")]);
    let url = server.url("/v1");
    let double = |argument: &str, more: &[&str]| {
        let line = [&["call", "doubler", "double", argument], more].concat();
        let output = run(home.path(), &line, &[]);
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let record = ["--base-url", &url, "--model", "qwen", "--record", "r.jsonl"];
    assert_eq!(double("21", &record).0, "42\n");
    drop(server);
    let mode = std::fs::metadata(home.path().join("r.jsonl")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    let elsewhere = ["--replay", "r.jsonl", "--set", "state_dir=elsewhere"];
    assert_eq!(double("21", &elsewhere), ("42\n".to_owned(), String::new(), Some(0)));
    let (out, note, _) = double("21", &["--replay", "r.jsonl"]);
    assert_eq!(out, "42\n");
    assert!(note.contains("not needed: doubler.double ×1"), "{note}");
    let third = ["--replay", "r.jsonl", "--set", "state_dir=third"];
    let (_, shown, code) = double("22", &third);
    assert!(shown.contains("+ invocation: ") && shown.contains("\"preview\":\"22\""), "{shown}");
    assert_eq!(code, Some(1), "{shown}");
}

#[test]
fn a_logged_call_runs_again_without_a_model() {
    let home = tempfile::tempdir().unwrap();
    let program = "import random\nresult = [args[0] * 2, random.random() if args[0] < 0 else 0]";
    let server = ProviderServer::new(vec![writes("import os\nos.fork()"), writes(program)]);
    let url = server.url("/v1");
    let call = |argument: &str| -> String {
        let server = ["--base-url", &url, "--model", "m"];
        let line =
            [&["call", "doubler", "double"][..], &server, &["--json", "--", argument]].concat();
        let output = run(home.path(), &line, &[]);
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        outcome["trace_id"].as_str().unwrap().to_owned()
    };
    let (steady, random) = (call("21"), call("-1"));
    let asked = server.requests().len();
    let again = run(home.path(), &["trace", "replay", &steady], &[]);
    assert_eq!(
        (text(&again.stdout).as_str(), again.status.code()),
        ("same  doubler.double\n", Some(0)),
        "{}",
        text(&again.stderr)
    );
    let again = run(home.path(), &["trace", "replay", &random, "--json"], &[]);
    assert_eq!(again.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(report["calls"][0]["differences"][0]["field"], "outcome_value", "{report:#}");
    assert_eq!(server.requests().len(), 0, "{asked} were asked before, none now");
    let missing = run(home.path(), &["trace", "replay", "nope"], &[]);
    assert_eq!(missing.status.code(), Some(1));
}
