//! Sessions, and the repl.

use std::fs;

use serde_json::{Value, json};

use crate::calls::cli;
use crate::fixture::CliFixture;
use crate::tools;

#[test]
fn a_session_outlives_its_process() {
    let cli = cli();
    let session: &[&str] = &["--session", "desk"];
    let call = |line: &[&str]| cli.run(&[&["call", "calculator"], line, session].concat());
    call(&["memory=", "5"]).exits(0).prints("5\n");
    call(&["add", "3"]).exits(0).prints("8\n");
    call(&["memory"]).exits(0).prints("8\n");
    // Outside the session there is no memory, and no model is configured that could write a program.
    cli.run(&["call", "calculator", "memory", "--provider", "auto"]).exits(3);

    let listed = cli.run(&["sessions", "list", "--json"]).exits(0).json();
    let row = &listed["sessions"][0];
    assert_eq!(
        (&row["name"], &row["role"], &row["keys"]),
        (&json!("desk"), &json!("calculator"), &json!(1))
    );
    let shown = cli.run(&["sessions", "show", "desk", "--json"]).exits(0).json();
    assert_eq!(shown, json!({"name": "desk", "agents": {"calculator": {"memory": 8}}}));
    cli.run(&["sessions", "rm", "desk"]).exits(0).stderr_contains("removed session desk");
    let listed = cli.run(&["sessions", "list", "--json"]).exits(0).json();
    assert_eq!(listed, json!({"sessions": []}));
    cli.run(&["sessions", "list", "--state-dir", "other"])
        .exits(0)
        .prints("")
        .stderr_contains("no sessions");
}

#[test]
fn processes_take_turns_in_a_session() {
    const PROCESSES: usize = 8;
    const CALLS: usize = 25;
    let cli = CliFixture::new(
        r#"{"counter.bump": [{"code": "context['n'] = context.get('n', 0) + 1\nresult = context['n']"}]}"#,
    );
    let bump = ["call", "counter", "bump", "--session", "desk"];
    cli.run(&bump).exits(0).prints("1\n");
    let answers: Vec<String> = std::thread::scope(|scope| {
        let repl = || {
            let lines = "bump\n".repeat(CALLS);
            let ran = cli.run_with_stdin(&["repl", "counter", "--session", "desk"], &lines);
            ran.exits(0).stdout.clone()
        };
        let started: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(repl)).collect();
        started.into_iter().map(|process| process.join().unwrap()).collect()
    });
    let mut counts: Vec<usize> =
        answers.iter().flat_map(|text| text.lines()).map(|line| line.parse().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, (2..=PROCESSES * CALLS + 1).collect::<Vec<_>>());
}

#[test]
fn the_repl_reads_lines_without_a_terminal() {
    let cli = cli();
    let repl: &[&str] = &["repl", "calculator"];
    cli.run_with_stdin(repl, "memory = 5\nadd 3\nadd(2)\nmemory\n\n")
        .exits(0)
        .prints("5\n8\n10\n10\n");
    cli.run_with_stdin(repl, "memory = 5\n.memory\n.quit\nadd 1")
        .exits(0)
        .prints("5\n{\n  \"memory\": 5\n}\n");
    cli.run_with_stdin(repl, "fail 1\nadd 3\n")
        .exits(1)
        .prints("3\n")
        .stderr_contains("add that key");
    cli.run_with_stdin(repl, "add [1\nadd 3\n")
        .exits(1)
        .prints("3\n")
        .stderr_contains("is not closed");
    cli.run_with_stdin(&["repl", "echo"], "what now?\n").exits(0).prints("you asked: what now?\n");
    cli.run_with_stdin(repl, ".tools\n")
        .exits(0)
        .prints("no tools yet; agents forge them with delegate\n");
    let help = cli.run_with_stdin(repl, ".help\n");
    let shown = help.exits(0).stdout.as_str();
    assert!(shown.contains(".history") && shown.contains("add(3, 4)"), "{shown}");
    let history = cli.run_with_stdin(repl, "add 3\n.history\n");
    let shown = history.exits(0).stdout.as_str();
    assert!(shown.starts_with("3\n") && shown.contains("ok    add(3)"), "{shown}");
}

/// Each process has its own trace, but the calls of a session belong to one conversation.
#[test]
fn a_session_is_one_conversation_across_processes() {
    for (session, corrects) in [(&["--session", "desk"][..], true), (&[], false)] {
        let cli = tools::cli();
        let code =
            "def movies(where, day=None):\n    return {'movies': [m for m in [] if m == where]}";
        fs::write(cli.path("script.json"), json!({"guide.movies": [{"code": code}]}).to_string())
            .unwrap();
        for more in [&[][..], &["--kw", "day=tonight"]] {
            let ran = cli.run(&[&["call", "guide", "movies", "Oslo"], more, session].concat());
            assert_eq!(ran.exit, 0, "{}", ran.stderr);
        }
        let log = fs::read_to_string(cli.path("state/recurgent.jsonl")).unwrap();
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(last["user_correction_detected"], json!(corrects));
        let found = cli.json(&["tools", "recommend"]);
        assert_eq!(found.to_string().contains("strengthen_contract"), corrects, "{found}");
    }
}

#[test]
fn the_calls_of_a_session_are_paged_and_purged() {
    let cli = tools::cli();
    for name in ["Ann", "Bo", "Cy"] {
        assert_eq!(cli.run(&["call", "greeter", "greet", name, "--session", "desk"]).exit, 0);
    }
    let page = |line: &[&str]| -> Vec<Value> {
        let page = cli.json(&[&["sessions", "history", "desk"], line].concat());
        page["agents"]["greeter"].as_array().unwrap().clone()
    };
    let latest = page(&["--limit", "2"]);
    assert_eq!((&latest[0]["args"], &latest[1]["args"]), (&json!(["Bo"]), &json!(["Cy"])));
    let before = page(&["--limit", "2", "--before", latest[0]["call_id"].as_str().unwrap()]);
    assert_eq!(before.len(), 1);
    assert_eq!(before[0]["args"], json!(["Ann"]));
    let history = |line: &[&str]| cli.run(&[&["sessions", "history", "desk"], line].concat());
    let shown = history(&[]).stdout;
    assert!(
        shown.starts_with("time (UTC)      id                call           status"),
        "{shown}"
    );
    assert!(shown.contains("greeter.greet  ok"), "{shown}");
    assert!(history(&["--before", "nonesuch"]).stderr.contains("came before \"nonesuch\""));

    assert_eq!(cli.json(&["sessions", "purge", "desk"]), json!({"purged": "desk", "records": 3}));
    assert_eq!(page(&[]), Vec::<Value>::new());
    assert!(history(&[]).stderr.contains("has no calls"));
    assert_eq!(cli.run(&["sessions", "show", "desk"]).exit, 0, "its memory stays");
    for verb in ["history", "purge"] {
        let missing = cli.run(&["sessions", verb, "nowhere"]);
        assert_eq!(missing.exit, 1);
        assert!(missing.stderr.contains("desk"), "{}", missing.stderr);
    }
}

/// A session keeps the packages of its agents across processes.
#[test]
fn a_session_keeps_its_packages_in_the_next_process() {
    let script = r#"{
      "packer.pack": [{"code": "import sound\nresult = sound.VERSION", "dependencies": [{"name": "sound", "version": "<2"}]}],
      "packer.look": [{"code": "import sound\nresult = sound.VERSION"}],
      "packer.swap": [{"code": "result = 1", "dependencies": [{"name": "sound", "version": ">=2"}]}]
    }"#;
    let cli = CliFixture::new(script);
    cli.build_source();
    let ask = |method: &str, session: &str| {
        cli.answer(&["call", "packer", method, "--session", session, "--set", "log=log.jsonl"]).0
    };
    assert_eq!(ask("pack", "s")["value"], "1.0.0");
    let again = ask("look", "s");
    assert_eq!(again["value"], "1.0.0", "the session keeps its packages: {again:#}");
    let log = fs::read_to_string(cli.path("log.jsonl")).unwrap();
    let entry: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(entry["normalized_dependencies"], json!([{"name": "sound", "version": "<2"}]));
    assert_eq!(entry["environment_cache_hit"], json!(true));
    let swapped = ask("swap", "s");
    assert_eq!(swapped["error_type"], "dependency_manifest_incompatible", "{swapped:#}");
    assert_eq!(ask("swap", "other")["value"], json!(1), "another session may use other packages");
    assert_eq!(cli.run(&["sessions", "rm", "s"]).exit, 0);
    assert_eq!(ask("swap", "s")["value"], json!(1), "the packages are forgotten with the session");
}

/// Memory that this version does not write: not JSON, too large for a worker, a version below zero.
#[test]
fn a_damaged_session_can_always_be_repaired() {
    let cli = cli();
    let add = || cli.run(&["call", "calculator", "add", "1", "--session", "desk"]);
    add().exits(0);
    let change = |sql: &str| {
        let store = rusqlite::Connection::open(cli.path("state/recurgent.sqlite")).unwrap();
        store.execute_batch(sql).unwrap();
    };
    change("INSERT INTO context_entries SELECT id, 'bad', '{no json' FROM owners");
    cli.run(&["sessions", "show", "desk"]).stderr_contains("sessions forget desk KEY");
    cli.run(&["sessions", "forget", "desk", "none"]).stderr_contains("has no memory key");
    cli.run(&["sessions", "forget", "desk", "bad"]).exits(0);
    add().exits(0);
    change(
        "INSERT INTO context_entries SELECT id, 'large', '\"' || hex(zeroblob(20000000)) || '\"' FROM owners",
    );
    add().exits(1);
    cli.run(&["sessions", "forget", "desk", "large"]).exits(0);
    add().exits(0);
    change("UPDATE owners SET context_version = -5, history_count = -1");
    let listed = cli.run(&["sessions", "list", "--json"]).exits(0).json();
    assert_eq!(listed["sessions"][0]["name"], "desk");
    cli.run(&["sessions", "rm", "desk"]).exits(0);
    add().exits(0);
}

/// A follow-up question means little without what came before it.
#[test]
fn a_follow_up_is_written_with_the_last_turns_in_view() {
    let code = "def ask(question):\n    return 'about ' + question";
    let cli = CliFixture::new(&json!({"guide.ask": [{"code": code}]}).to_string());
    let ask = |question: &str| {
        let line = ["ask", "guide", question, "--session", "desk", "--set", "debug=true"];
        cli.run(&line).exits(0);
        let log = fs::read_to_string(cli.path("state/recurgent.jsonl")).unwrap();
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        last["user_prompt"].as_str().unwrap().to_owned()
    };
    let first = ask("what is the capital of Norway?");
    assert!(!first.contains("latest_turns"), "{first}");
    let second = ask("and of Sweden?");
    let turns = second.lines().find_map(|line| line.strip_prefix("latest_turns: ")).unwrap();
    let turns: Value = serde_json::from_str(turns).unwrap();
    let question = "what is the capital of Norway?";
    let expected =
        json!([{"method": "ask", "args": [question], "value": format!("about {question}")}]);
    assert_eq!(turns, expected);
}
