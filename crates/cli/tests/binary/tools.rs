//! `recurgent tools`: what agents forged, how it fares, and which of its programs runs.

use std::fs;

use lifecycle::program::Checksum;
use serde_json::{Value, json};

use crate::exchange::files;
use crate::fixture::CliFixture;

const SCRIPT: &str = r#"{
  "builder.build": [{"code": "result = delegate('greeter', purpose='greet people', deliverable={'type': 'string'}).greet(args[0])"}],
  "../../x.add": [{"code": "def add(a, b):\n    context['sum'] = a + b\n    return a + b"}],
  "greeter.greet": [{"code": "def greet(name):\n    return 'hello ' + name"}],
  "clerk.greet": [{"code": "def greet(name):\n    return 'dear ' + name"}],
  "guide.movies": [{"code": "def movies(where):\n    return {'movies': [m for m in [] if m == where]}"}]
}"#;

/// A machine with these programs.
pub(crate) fn cli() -> CliFixture {
    CliFixture::new(SCRIPT)
}

/// One whose store has a tool, an agent whose name is a path, and weak answers.
pub(crate) fn grown() -> CliFixture {
    let cli = cli();
    for line in [
        &["call", "builder", "build", "Ann"][..],
        &["call", "../../x", "add", "1", "2"],
        &["call", "guide", "movies", "Oslo"],
        &["call", "guide", "movies", "Oslo"],
        &["call", "guide", "movies", "Oslo"],
    ] {
        let ran = cli.run(line);
        assert_eq!(ran.exit, 0, "{line:?} {}", ran.stderr);
    }
    cli
}

#[test]
fn tools_are_listed_shown_and_judged() {
    let cli = grown();
    let listed = cli.json(&["tools", "list"]);
    assert_eq!(listed["tools"][0]["name"], "greeter");
    assert_eq!(listed["tools"][0]["purpose"], "greet people");
    assert!(cli.run(&["tools", "list"]).stdout.contains("greeter"));

    let shown = cli.json(&["tools", "show", "greeter"]);
    assert_eq!(shown["contract"]["deliverable"], json!({"type": "string"}));
    assert_eq!(shown["methods"][0]["signature"], "greet(name)");
    assert_eq!(shown["methods"][0]["versions"][0]["successes"], 1);
    assert_eq!(shown["health"]["condition"], "good");
    let agent = cli.json(&["tools", "show", "../../x"]);
    assert_eq!(
        (&agent["is_tool"], &agent["methods"][0]["writes"]),
        (&json!(false), &json!(["sum"]))
    );
    let shown = cli.run(&["tools", "show", "greeter"]).stdout;
    assert!(shown.contains("greet(name) (python"), "{shown}");
    assert!(shown.ends_with("\n    def greet(name):\n        return 'hello ' + name\n"), "{shown}");

    let health = cli.json(&["tools", "health"]);
    assert_eq!(health["tools"][0]["recent_calls"], 1);
    let advice = cli.json(&["tools", "recommend"]);
    let [one] = &advice["recommendations"].as_array().unwrap()[..] else { panic!("{advice}") };
    assert_eq!((&one["tool"], &one["action"]), (&json!("guide"), &json!("strengthen_contract")));
    assert_eq!(one["constraint"]["text"], "movies: min_items 1");
    assert_eq!(one["evidence_call_ids"].as_array().unwrap().len(), 3);
    assert!(cli.run(&["tools", "recommend", "guide"]).stdout.contains("movies: min_items 1"));
    assert_eq!(cli.json(&["tools", "recommend", "greeter"]), json!({"recommendations": []}));

    let unknown = cli.run(&["tools", "show", "nobody"]);
    assert_eq!(unknown.exit, 1);
    assert!(
        unknown.stderr.contains("nobody") && unknown.stderr.contains("greeter"),
        "{}",
        unknown.stderr
    );
}

/// What programs of other people read from `tools show --json`; names may be added, none may go.
#[test]
fn a_tool_is_shown_by_the_same_names() {
    let cli = grown();
    let shown = cli.json(&["tools", "show", "greeter"]);
    let names =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let expect = |value: &Value, expected: &str| {
        let mut names = names(value);
        names.sort();
        assert_eq!(names.join(" "), expected);
    };
    expect(
        &shown,
        "contract created_at health is_tool methods name recent_calls recommendations taught_without_program",
    );
    let method = &shown["methods"][0];
    expect(
        method,
        "code contract_fingerprint corpus current examples generations language method pinned reads signature versions writes",
    );
    expect(
        &method["versions"][0],
        "admitted_at agreement author cacheability_reason cacheable checksum code dependencies failing_case failure failures parent pure \
         rejected repairs standing successes trigger trigger_attempt_id trigger_error_class trigger_stage version",
    );
    assert_eq!((&method["pinned"], &method["generations"]), (&json!(false), &json!(1)));
    assert_eq!(method["versions"][0]["pure"], true);
    cli.run(&["tools", "pin", "greeter", "greet"]);
    assert!(cli.run(&["tools", "show", "greeter"]).stdout.contains("pinned"));
    assert!(!cli.run(&["tools", "show", "guide"]).stdout.contains("health"), "it is not a tool");
}

#[test]
fn forgotten_tools_go_when_asked_twice() {
    let cli = grown();
    assert_eq!(cli.json(&["tools", "stale"]), json!({"stale": []}));
    assert_eq!(cli.json(&["tools", "stale", "--older-than", "0s"])["stale"][0]["name"], "greeter");
    let dry = cli.json(&["tools", "prune", "--older-than", "0s"]);
    assert_eq!((&dry["dry_run"], &dry["pruned"][0]["name"]), (&json!(true), &json!("greeter")));
    assert_eq!(cli.json(&["tools", "list"])["tools"].as_array().unwrap().len(), 1);
    let shown = cli.run(&["tools", "prune", "--older-than", "0s", "--dry-run"]);
    assert!(shown.stderr.contains("--yes"), "{}", shown.stderr);
    let pruned = cli.json(&["tools", "prune", "--older-than", "0s", "--yes"]);
    assert_eq!(pruned["dry_run"], false);
    assert_eq!(cli.json(&["tools", "list"])["tools"], json!([]));
    assert_eq!(cli.run(&["tools", "show", "greeter"]).exit, 1, "its programs are gone too");
    assert_eq!(cli.run(&["tools", "show", "../../x"]).exit, 0, "others stay");
    assert_eq!(cli.run(&["tools", "prune", "--older-than", "soon"]).exit, 2);
    assert_eq!(cli.run(&["tools", "prune", "--yes", "--dry-run"]).exit, 2);
}

#[test]
fn an_earlier_program_runs_again_on_request() {
    let cli = grown();
    let nothing = cli.run(&["tools", "rollback", "greeter", "greet"]);
    assert_eq!(nothing.exit, 1, "{}", nothing.stdout);
    assert!(nothing.stderr.contains("no earlier version"), "{}", nothing.stderr);

    // A second version, by way of an import.
    cli.run(&["store", "export", "old"]);
    let place = cli.path("old/artifacts/greeter/greet.json");
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&place).unwrap()).unwrap();
    let first = file["code_checksum"].as_str().unwrap().to_owned();
    let code = "def greet(name):\n    return 'good day ' + name";
    let mut second = file["versions"][&first].clone();
    second["version"] = json!(2);
    second["code"] = json!(code);
    file["versions"][Checksum::of(code).as_str()] = second;
    file["code_checksum"] = json!(Checksum::of(code));
    fs::write(&place, file.to_string()).unwrap();
    assert_eq!(cli.run(&["store", "import", "old"]).exit, 0);
    let greeting = || cli.run(&["call", "builder", "build", "Bo"]).stdout;
    assert_eq!(greeting(), "good day Bo\n");
    assert_eq!(cli.json(&["tools", "rollback", "greeter", "greet"])["current"], json!(first));
    assert_eq!(greeting(), "hello Bo\n");
    let start = &Checksum::of(code).to_string()[7..20];
    assert_eq!(cli.run(&["tools", "rollback", "greeter", "greet", "--to", start]).exit, 0);
    assert_eq!(greeting(), "good day Bo\n");
    assert_eq!(cli.json(&["tools", "pin", "greeter", "greet"])["pinned"], true);
    assert_eq!(cli.json(&["tools", "pin", "greeter", "greet", "--off"])["pinned"], false);
    for line in [["greeter", "fly"], ["nobody", "greet"]] {
        let missing = cli.run(&["tools", "pin", line[0], line[1]]);
        assert_eq!(missing.exit, 1);
        assert!(missing.stderr.contains("tools show"), "{}", missing.stderr);
    }
    assert_eq!(cli.run(&["tools", "rollback", "greeter", "greet", "--to", "ffff"]).exit, 1);
    assert_eq!(cli.run(&["tools", "rollback", "greeter", "greet", "--guest", "ruby"]).exit, 1);
}

/// A program that fails is repaired in that call; the repair has taken over when the next process asks.
#[test]
fn a_repair_made_in_one_process_runs_in_the_next() {
    let cli = cli();
    let codes = [
        "def share(n):\n    return {2: 4, 4: 2}[n]",
        "def share(n):\n    return {2: 4, 4: 2}.get(n, 0)",
    ];
    for code in codes {
        fs::write(cli.path("script.json"), json!({"c.share": [{"code": code}]}).to_string())
            .unwrap();
        let n = if code == codes[0] { "2" } else { "0" };
        assert_eq!(cli.run(&["call", "c", "share", n]).exit, 0);
    }
    // No model is configured. A busy machine may need more than the time a process gives a trial
    // when it ends; then a later call has it tried again.
    fs::write(cli.path("script.json"), "{}").unwrap();
    let runs = || cli.json(&["tools", "show", "c"])["methods"][0]["current"].clone();
    for _ in 0..20 {
        if runs() == json!(Checksum::of(codes[1])) {
            break;
        }
        assert_eq!(cli.run(&["call", "c", "share", "2"]).exit, 0);
    }
    for (n, answer) in [("0", "0\n"), ("4", "2\n")] {
        let ran = cli.run(&["call", "c", "share", n]);
        assert_eq!(ran.stdout, answer, "{}", ran.stderr);
    }
    let shown = cli.json(&["tools", "show", "c"]);
    let method = &shown["methods"][0];
    assert_eq!(method["current"], json!(Checksum::of(codes[1])));
    assert_eq!(method["versions"][0]["trigger"], "repair");
}

/// Names are whatever a model says: they are shown harmlessly, found again, and empty stores work.
#[test]
fn odd_names_and_empty_stores_are_no_trouble() {
    let cli = cli();
    for (line, shape) in [
        (&["list"][..], json!({"tools": [], "programs": [], "taught_without_program": []})),
        (&["health"], json!({"tools": []})),
        (&["recommend"], json!({"recommendations": []})),
        (&["stale"], json!({"stale": []})),
        (&["prune"], json!({"dry_run": true, "pruned": []})),
        (&["prune", "--yes"], json!({"dry_run": false, "pruned": []})),
    ] {
        assert_eq!(cli.json(&[&["tools"], line].concat()), shape, "{line:?}");
        let ran = cli.run(&[&["tools"], line].concat());
        assert_eq!((ran.exit, ran.stdout.as_str()), (0, ""), "{line:?}");
    }
    let odd = ["-rf", "a b", "é\u{301}", "x'; DROP TABLE tools; --", "%_", "{}", "a/b"];
    let script: serde_json::Map<String, Value> = odd
        .iter()
        .map(|name| (format!("{name}.twice"), json!([{"code": "def twice(n):\n    return n * 2"}])))
        .collect();
    fs::write(cli.path("script.json"), Value::Object(script).to_string()).unwrap();
    for (number, name) in odd.into_iter().enumerate() {
        assert_eq!(cli.run(&["call", "--", name, "twice", "4"]).stdout, "8\n", "{name}");
        for line in [
            &["tools", "show", "--", name][..],
            &["tools", "recommend", "--", name],
            &["tools", "pin", "--", name, "twice"],
            &["tools", "pin", "--off", "--", name, "twice"],
            &["tools", "export", &format!("out-{number}"), "--", name],
        ] {
            let ran = cli.run(line);
            assert_eq!(ran.exit, 0, "{line:?} {}", ran.stderr);
        }
        let missing = cli.run(&["tools", "rollback", "--", name, "twice"]);
        assert_eq!(missing.exit, 1, "{}", missing.stdout);
        let is_plain = name == "a/b";
        assert_eq!(missing.stderr.contains("tools show -- '"), !is_plain, "{}", missing.stderr);
    }
    for verb in ["show", "recommend"] {
        let refused = cli.run(&["tools", verb, "\u{1b}[31mred"]);
        assert_eq!(refused.exit, 2, "{}", refused.stdout);
        assert!(!refused.stderr.contains('\u{1b}'), "{}", refused.stderr);
    }
    assert_eq!(cli.run(&["store", "export", "all"]).exit, 0);
    assert_eq!(cli.run_in("second", &["store", "import", "all"]).exit, 0);
    assert_eq!(cli.run_in("second", &["store", "export", "again"]).exit, 0);
    assert_eq!(files(&cli.path("all")), files(&cli.path("again")));
}
