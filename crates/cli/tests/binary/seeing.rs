//! What people see: past calls, what they used, tables that fit, and output that cannot be written.

use std::fs::File;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::{CliFixture, CommandResult};
use crate::terminal::in_terminal;
use crate::tools::grown;

const SCRIPT: &str = r#"{
  "calculator.add": [{"code": "def add(a, b):\n    print('adding', a)\n    return a + b"}],
  "calculator.fail": [{"code": "result = 1 // 0"}],
  "ledger.book": [
    {"code": "result = args[0]['amount'] + 1"},
    {"code": "def book(amount):\n    return amount"}
  ],
  "parent.ask": [{"code": "result = delegate('child', purpose='help').answer(1).value"}],
  "child.answer": [{"code": "def answer(n):\n    return n * 10"}]
}"#;

fn cli() -> CliFixture {
    let cli = CliFixture::new(SCRIPT);
    for line in [
        &["call", "calculator", "add", "1", "2"][..],
        &["call", "calculator", "fail"],
        &["call", "ledger", "book", "40", "--session", "desk"],
        &["call", "parent", "ask"],
        &["call", "calculator", "add", "1", "3"],
    ] {
        cli.run(line);
    }
    cli
}

/// Columns that a line takes; no line of these tests has wide characters.
#[track_caller]
fn assert_fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= columns, "{} columns: {line:?}", line.chars().count());
    }
}

/// C8: past calls are listed, newest first, and chosen by filters.
#[test]
fn past_calls_are_listed_newest_first() {
    let cli = cli();
    let listed = cli.json(&["trace", "list"]);
    let calls = listed["calls"].as_array().unwrap();
    let names: Vec<String> = calls
        .iter()
        .map(|it| format!("{}.{}", it["role"], it["method"]).replace('"', ""))
        .collect();
    assert_eq!(
        names,
        [
            "calculator.add",
            "parent.ask",
            "child.answer",
            "ledger.book",
            "calculator.fail",
            "calculator.add"
        ]
    );
    let sources: Vec<&Value> = calls.iter().map(|call| &call["source"]).collect();
    assert_eq!((sources[0], sources[1]), (&json!("stored"), &json!("generated")));
    assert_eq!((&calls[3]["attempts"], &calls[3]["model_calls"]), (&json!(2), &json!(2)));
    assert_eq!(
        (&calls[4]["status"], &calls[4]["error_type"]),
        (&json!("error"), &json!("execution"))
    );
    for (filter, count) in [
        (&["--status", "error"][..], 1),
        (&["--role", "calculator"], 3),
        (&["--method", "answer"], 1),
        (&["--session", "desk"], 1),
        (&["--since", "2h"], 6),
        (&["--since", "0s"], 0),
        (&["--last", "2"], 2),
    ] {
        let listed = cli.json(&[&["trace", "list"], filter].concat());
        assert_eq!(listed["calls"].as_array().unwrap().len(), count, "{filter:?}");
    }
}

/// C7, C8: the id of a list is enough to show a call with its programs, prints and times.
#[test]
fn a_call_is_shown_by_the_id_of_the_list() {
    let cli = cli();
    let shown = cli.run(&["trace", "list"]).exits(0).stdout.clone();
    let heading = shown.lines().next().unwrap();
    for title in [
        "time (UTC)",
        "id",
        "call",
        "status",
        "took",
        "source",
        "models",
        "tokens",
        "cost",
        "attempts",
    ] {
        assert!(heading.contains(title), "{heading}");
    }
    // The id of the list is enough to show the call.
    let row = shown.lines().find(|row| row.contains("ledger.book(40)")).unwrap();
    let id = row.split_whitespace().nth(2).unwrap();
    assert_eq!(id.len(), 8, "{row}");
    let shown = cli.run(&["trace", "show", id]).exits(0).stdout.clone();
    for part in [
        "✓ ledger.book(40) 40",
        "1  result = args[0]['amount'] + 1",
        "feedback to the next attempt: TypeError",
        "2      return amount",
        "execute 1",
        "█",
        "most of it: ",
        "1 call, 2 model calls",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let last = cli.run(&["trace", "show", "last"]).exits(0).stdout.clone();
    assert!(
        last.contains("✓ calculator.add(1, 3) 4") && last.contains("printed: adding 1"),
        "{last}"
    );
    assert_eq!(cli.json(&["trace", "show", "last"])["calls"].as_array().unwrap().len(), 1);
    // The log says how much of an attempt's time the model took; a stored program needed none.
    let attempt = |id: &str| cli.json(&["trace", "show", id])["calls"][0]["attempts"][0].clone();
    assert_eq!(attempt("last")["generation_ms"], json!(0.0));
    let (asked, whole) = (&attempt(id)["generation_ms"], &attempt(id)["duration_ms"]);
    assert!(asked.as_f64().unwrap() <= whole.as_f64().unwrap(), "{asked} of {whole}");
    let none = cli.run_in("other", &["trace", "show", "last"]);
    none.exits(1).stderr_contains("no call is logged yet");
    cli.run_in("other", &["trace", "list"])
        .exits(0)
        .prints("")
        .stderr_contains("no call is logged in");
    cli.run_in("other", &["trace", "list", "--role", "x"])
        .stderr_contains("no such call is logged");
    cli.run_in("other", &["usage"]).exits(0).stderr_contains("no call is logged in");
    // A short id names the call elsewhere too.
    let call = cli.json(&["trace", "list", "--role", "ledger"])["calls"][0]["call_id"].clone();
    let short = &call.as_str().unwrap()[..8];
    let before = cli.json(&["sessions", "history", "desk", "--before", short]);
    assert_eq!(before["agents"]["ledger"], json!([]), "the call is known, and none came before it");
    let ran =
        cli.run(&["tools", "reject", "ledger", "book", "--because", "wrong", "--call", short]);
    ran.exits(0);
}

/// C8, E17: `watch` shows the time, the id and the duration, and Ctrl-C speaks of watching.
#[test]
fn watching_shows_time_id_and_duration_and_ends_as_such() {
    let cli = cli();
    let (seen, exit) = in_terminal(&cli, 100, &["watch", "--session", "desk"], "ledger.book");
    assert_eq!(exit, 0, "{seen}");
    let line = seen.lines().find(|line| line.contains("ledger.book(40) 40")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words[0].len() == 8 && words[0].matches(':').count() == 2, "{line}");
    assert!(words[1].len() == 8 && words[1].chars().all(|c| c.is_ascii_hexdigit()), "{line}");
    assert!(line.contains("generated") && line.ends_with('s'), "{line}");
    assert!(seen.contains("stopped watching") && !seen.contains("the call;"), "{seen}");
    assert!(!seen.contains("calculator"), "it was filtered: {seen}");
}

/// E14, and every list: nothing is wider than the terminal, at 40 columns and at 200.
#[test]
fn everything_fits_the_terminal() {
    let cli = cli();
    cli.run(&["tools", "teach", "calculator", "double", "2", "--gives", "4"]).exits(0);
    for line in [
        &["trace", "list"][..],
        &["trace", "show", "last"],
        &["tools", "list"],
        &["tools", "show", "calculator"],
        &["tools", "health"],
        &["sessions", "list"],
        &["usage", "--by", "tool"],
        &["doctor"],
    ] {
        for columns in [40, 72, 200] {
            let (seen, exit) = in_terminal(&cli, columns, line, "");
            assert_eq!(exit, 0, "{line:?}: {seen}");
            assert!(!seen.is_empty(), "{line:?}");
            assert_fits(&seen, usize::from(columns));
        }
    }
    let (narrow, _) = in_terminal(&cli, 40, &["trace", "list"], "");
    assert!(narrow.lines().any(|line| line.contains("ledger.book(40)")), "{narrow}");
    let ran = cli.command(&["trace", "list"]).env("COLUMNS", "40").output().unwrap();
    assert_fits(&CommandResult::of(&["trace", "list"], &ran).exits(0).stdout, 40);
}

#[test]
fn the_demo_fits_forty_columns_and_says_where_to_look() {
    let cli = cli();
    let (seen, exit) = in_terminal(&cli, 40, &["demo", "--guest", "python"], "");
    assert_eq!(exit, 0, "{seen}");
    // The status line is erased before the next line is written.
    let seen: Vec<&str> =
        seen.lines().map(|line| line.rsplit("\u{1b}[2K").next().unwrap()).collect();
    let (commands, story): (Vec<&str>, Vec<&str>) =
        seen.into_iter().partition(|line| line.starts_with("  recurgent "));
    assert_fits(&story.join("\n"), 40);
    assert!(story.contains(&"  calculator.add(3)") && story.contains(&"  └ 8"), "{story:#?}");
    // E7: what it says shows what it kept.
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let ran = cli.run(&words);
        assert!(ran.exit == 0 && !ran.stdout.is_empty(), "{command}: {ran:?}");
        let is_list = words.starts_with(&["tools", "list"]);
        assert!(!is_list || ran.stdout.contains("calculator.add"), "{command}: {ran:?}");
    }
}

/// E7: a store without forged tools lists its programs.
#[test]
fn stored_programs_are_listed_under_headings() {
    let cli = CliFixture::new(SCRIPT);
    cli.run(&["call", "calculator", "add", "1", "2"]).exits(0);
    let listed = cli.run(&["tools", "list"]);
    listed.exits(0).prints(
        "programs\n\
         program         guest   version  ok  failed  examples  notes\n\
         calculator.add  python  1         1       0         0\n",
    );
    assert_eq!(listed.stderr, "");
    cli.run(&["call", "calculator", "memory=", "5", "--session", "desk"]).exits(0);
    let sessions = cli.run(&["sessions", "list"]).exits(0).stdout.clone();
    assert!(
        sessions.starts_with("session  role        keys  calls  last written (UTC)\n"),
        "{sessions}"
    );
}

/// E10: a message of several lines is shown as lines.
#[test]
fn messages_of_several_lines_stay_lines() {
    let cli = grown();
    let store = rusqlite::Connection::open(cli.path("state/recurgent.sqlite")).unwrap();
    store
        .execute_batch("UPDATE artifacts SET role = 'gui' || char(10) || 'de' WHERE role = 'guide'")
        .unwrap();
    drop(store);
    let checked = cli.run(&["store", "check"]);
    assert!(!checked.stdout.contains('\u{fffd}'), "{checked:?}");
    cli.write("bad.toml", "guest = \"python\"\nlog = [");
    let doctor =
        cli.command(&["doctor"]).env("RECURGENT_CONFIG", cli.path("bad.toml")).output().unwrap();
    let doctor = CommandResult::of(&["doctor"], &doctor);
    doctor.exits(3);
    assert!(!doctor.stdout.contains('\u{fffd}') && doctor.stdout.lines().count() > 1, "{doctor:?}");
}

/// E15: what cannot be written is an error; a reader that has seen enough is not.
#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
    let cli = CliFixture::new(SCRIPT);
    for line in [&["demo"][..], &["doctor"], &["config"], &["tools", "--help"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = cli.command(line);
        let output = command.stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{line:?}: {said}");
        assert!(said.contains("cannot write to standard output"), "{line:?}: {said}");
    }
    let mut demo = cli.command(&["demo"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(demo.stdout.take());
    let output = demo.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn usage_counts_model_calls_made_and_avoided() {
    let cli = cli();
    let usage = cli.json(&["usage", "--by", "tool"]);
    let total = &usage["total"];
    assert_eq!(
        [&total["calls"], &total["ok"], &total["failed"], &total["model_calls_avoided"]],
        [&json!(6), &json!(5), &json!(1), &json!(1)]
    );
    let groups = usage["groups"].as_array().unwrap();
    let add = groups.iter().find(|group| group["name"] == "calculator.add").unwrap();
    assert_eq!(
        [
            &add["calls"],
            &add["model_calls"],
            &add["model_calls_avoided"],
            &add["avoided_without_estimate"]
        ],
        [&json!(2), &json!(1), &json!(1), &json!(0)]
    );
    // The log that was set aside counts too.
    let log = cli.path("state/recurgent.jsonl");
    std::fs::rename(&log, cli.path("state/recurgent.jsonl.1700000000000")).unwrap();
    cli.run(&["call", "calculator", "add", "1", "4"]);
    assert_eq!(cli.json(&["usage"])["total"]["calls"], 7);
    assert_eq!(cli.json(&["usage", "--since", "0s"])["total"]["calls"], 0);
    let shown = cli.run(&["usage", "--by", "role"]).exits(0).stdout.clone();
    assert!(shown.starts_with("role "), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("calculator")), "{shown}");
    let days = cli.json(&["usage", "--by", "day"])["groups"].as_array().unwrap().len();
    assert!((1..=2).contains(&days), "midnight may have passed");
}

/// Versions side by side, recorded calls, examples, and how the last calls went.
#[test]
fn a_tool_is_shown_with_its_versions_cases_and_recent_calls() {
    let cli = CliFixture::new(
        r#"{"c.share": [{"code": "def share(n):\n    return 8 // n"}, {"code": "def share(n):\n    if n == 0:\n        return 0\n    return 8 // n"}]}"#,
    );
    cli.run(&["call", "c", "share", "2"]).exits(0);
    cli.run(&["call", "c", "share", "0"]);
    cli.run(&["tools", "teach", "c", "share", "4", "--gives", "2"]).exits(0);
    let wide = cli.run(&["tools", "show", "c"]).exits(0).stdout.clone();
    for part in
        ["    version 1  ", "  >         return 0", "example: ", "recorded call: ", "last calls: █"]
    {
        assert!(wide.contains(part), "{part}: {wide}");
    }
    let column = |text: &str| wide.lines().find_map(|line| line.find(text));
    let newer = column(">         return 0").map(|mark| mark + 2);
    let named = column("   version 2").map(|margin| margin + 3);
    assert_eq!(named, newer, "each version is named over its column: {wide}");
    let (narrow, _) = in_terminal(&cli, 60, &["tools", "show", "c"], "");
    assert!(narrow.contains("    +     if n == 0:"), "{narrow}");
    assert!(narrow.contains("    version 1 | version 2"), "{narrow}");
}

/// E16: memory and history of sessions are in an export, and come back.
#[test]
fn sessions_are_exported_and_imported() {
    let cli = CliFixture::new(
        r#"{"calculator.add": [{"code": "context['memory'] = context.get('memory', 0) + args[0]\nresult = context['memory']"}]}"#,
    );
    let add = |state: &str, number: &str| {
        cli.run_in(state, &["call", "calculator", "add", number, "--session", "../desk"])
            .stdout
            .clone()
    };
    assert_eq!((add("state", "3"), add("state", "4")), ("3\n".to_owned(), "7\n".to_owned()));
    let counts = cli.json(&["store", "export", "one"]);
    assert_eq!((&counts["sessions"], &counts["left_out"]), (&json!(1), &json!([])));
    let import = |folder: &str| -> Value {
        let ran = cli.run_in("second", &["store", "import", folder, "--json"]);
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let taken = import("one")["taken"].to_string();
    assert!(taken.contains("session ../desk of calculator"), "{taken}");
    let history = cli.run_in("second", &["sessions", "history", "../desk", "--json"]).json();
    assert_eq!(history["agents"]["calculator"].as_array().unwrap().len(), 2);
    cli.run_in("second", &["store", "export", "two"]).exits(0);
    let files = crate::exchange::files;
    assert_eq!(files(&cli.path("two")), files(&cli.path("one")), "byte for byte");
    assert!(files(&cli.path("one")).keys().any(|path| path.starts_with("sessions/desk-")));
    assert_eq!(add("second", "1"), "8\n", "memory goes on");

    // A session that is later here stays, a later one is taken, and two that went apart are a conflict.
    let skipped = import("one")["skipped"].to_string();
    assert!(skipped.contains("the one here was written to later"), "{skipped}");
    cli.run_in("second", &["store", "export", "later"]).exits(0);
    let ran = cli.run(&["store", "import", "later"]);
    assert!(ran.exits(0).stdout.contains("has all of its calls"), "{ran:?}");
    assert_eq!(add("state", "1"), "9\n");
    assert_eq!(add("second", "100"), "108\n");
    cli.run_in("second", &["store", "export", "apart"]).exits(0);
    let ran = cli.run(&["store", "import", "apart"]);
    assert!(ran.exits(1).stdout.contains("calls that the other does not"), "{ran:?}");
    assert_eq!(add("state", "1"), "10\n", "the one here stays");

    // A file that is damaged is refused by name; a key that cannot be read is left out by name.
    let name =
        files(&cli.path("one")).into_keys().find(|path| path.starts_with("sessions/")).unwrap();
    let whole = std::fs::read_to_string(cli.path("one").join(&name)).unwrap();
    for (from, to, why) in [
        ("\"session\": \"../desk\"", "\"session\": \" \"", "without spaces"),
        ("\"call_id\"", "\"other_id\"", "not the record of a call"),
        ("\"role\": \"calculator\"", "\"role\": 7", "a text"),
    ] {
        assert!(whole.contains(from), "{whole}");
        std::fs::write(cli.path("one").join(&name), whole.replace(from, to)).unwrap();
        let ran = cli.run_in("third", &["store", "import", "one"]);
        assert!(ran.exits(1).stdout.contains(why), "{why}: {ran:?}");
    }
    let store = rusqlite::Connection::open(cli.path("state/recurgent.sqlite")).unwrap();
    store
        .execute_batch("INSERT INTO context_entries SELECT id, 'k', '{no json' FROM owners")
        .unwrap();
    drop(store);
    cli.run(&["store", "export", "rest"])
        .exits(0)
        .stderr_contains("its memory cannot be read at \"k\"");
}
