//! `recurgent tools` and `recurgent store` as their users meet them, over real stores.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "test"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use recurgent::lifecycle::program::Checksum;
use serde_json::{Value, json};
use tempfile::TempDir;

const SCRIPT: &str = r#"{
  "builder.build": [{"code": "result = delegate('greeter', purpose='greet people', deliverable={'type': 'string'}).greet(args[0])"}],
  "../../x.add": [{"code": "def add(a, b):\n    context['sum'] = a + b\n    return a + b"}],
  "greeter.greet": [{"code": "def greet(name):\n    return 'hello ' + name"}],
  "clerk.greet": [{"code": "def greet(name):\n    return 'dear ' + name"}],
  "guide.movies": [{"code": "def movies(where):\n    return {'movies': [m for m in [] if m == where]}"}]
}"#;

struct Bench(TempDir);

struct Ran {
    exit: i32,
    stdout: String,
    stderr: String,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("script.json"), SCRIPT).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, line: &[&str]) -> Ran {
        self.run_in("state", line)
    }

    fn run_in(&self, state: &str, line: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_recurgent"))
            .args(line)
            .current_dir(self.0.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.0.path())
            .env("RECURGENT_STATE_DIR", self.path(state))
            .env("RECURGENT_PROVIDER", "scripted:script.json")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let ran = Ran {
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran
    }

    fn json(&self, line: &[&str]) -> Value {
        let ran = self.run(&[line, &["--json"]].concat());
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
    }

    /// A store with a tool, an agent whose name is a path, and weak answers.
    fn grown() -> Self {
        let bench = Self::new();
        for line in [
            &["call", "builder", "build", "Ann"][..],
            &["call", "../../x", "add", "1", "2"],
            &["call", "guide", "movies", "Oslo"],
            &["call", "guide", "movies", "Oslo"],
            &["call", "guide", "movies", "Oslo"],
        ] {
            let ran = bench.run(line);
            assert_eq!(ran.exit, 0, "{line:?} {}", ran.stderr);
        }
        bench
    }
}

/// Every file under a folder, by its path there.
fn files(folder: &Path) -> BTreeMap<String, String> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

#[test]
fn tools_are_listed_shown_and_judged() {
    let bench = Bench::grown();
    let listed = bench.json(&["tools", "list"]);
    assert_eq!(listed["tools"][0]["name"], "greeter");
    assert_eq!(listed["tools"][0]["purpose"], "greet people");
    assert!(bench.run(&["tools", "list"]).stdout.contains("greeter"));

    let shown = bench.json(&["tools", "show", "greeter"]);
    assert_eq!(shown["contract"]["deliverable"], json!({"type": "string"}));
    assert_eq!(shown["methods"][0]["signature"], "greet(name)");
    assert_eq!(shown["methods"][0]["versions"][0]["successes"], 1);
    assert_eq!(shown["health"]["condition"], "good");
    let agent = bench.json(&["tools", "show", "../../x"]);
    assert_eq!(
        (&agent["is_tool"], &agent["methods"][0]["writes"]),
        (&json!(false), &json!(["sum"]))
    );
    assert!(bench.run(&["tools", "show", "greeter"]).stdout.contains("greet(name)"));

    let health = bench.json(&["tools", "health"]);
    assert_eq!(health["tools"][0]["recent_calls"], 1);
    let advice = bench.json(&["tools", "recommend"]);
    let [one] = &advice["recommendations"].as_array().unwrap()[..] else { panic!("{advice}") };
    assert_eq!((&one["tool"], &one["action"]), (&json!("guide"), &json!("strengthen_contract")));
    assert_eq!(one["constraint"]["text"], "movies: min_items 1");
    assert_eq!(one["evidence_call_ids"].as_array().unwrap().len(), 3);
    assert!(bench.run(&["tools", "recommend", "guide"]).stdout.contains("movies: min_items 1"));
    assert_eq!(bench.json(&["tools", "recommend", "greeter"]), json!({"recommendations": []}));

    let unknown = bench.run(&["tools", "show", "nobody"]);
    assert_eq!(unknown.exit, 1);
    assert!(
        unknown.stderr.contains("nobody") && unknown.stderr.contains("greeter"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn forgotten_tools_go_when_asked_twice() {
    let bench = Bench::grown();
    assert_eq!(bench.json(&["tools", "stale"]), json!({"stale": []}));
    assert_eq!(
        bench.json(&["tools", "stale", "--older-than", "0s"])["stale"][0]["name"],
        "greeter"
    );
    let dry = bench.json(&["tools", "prune", "--older-than", "0s"]);
    assert_eq!((&dry["dry_run"], &dry["pruned"][0]["name"]), (&json!(true), &json!("greeter")));
    assert_eq!(bench.json(&["tools", "list"])["tools"].as_array().unwrap().len(), 1);
    let told = bench.run(&["tools", "prune", "--older-than", "0s", "--dry-run"]);
    assert!(told.stderr.contains("--yes"), "{}", told.stderr);
    let pruned = bench.json(&["tools", "prune", "--older-than", "0s", "--yes"]);
    assert_eq!(pruned["dry_run"], false);
    assert_eq!(bench.json(&["tools", "list"]), json!({"tools": []}));
    assert_eq!(bench.run(&["tools", "show", "greeter"]).exit, 1, "its programs are gone too");
    assert_eq!(bench.run(&["tools", "show", "../../x"]).exit, 0, "others stay");
    assert_eq!(bench.run(&["tools", "prune", "--older-than", "soon"]).exit, 2);
    assert_eq!(bench.run(&["tools", "prune", "--yes", "--dry-run"]).exit, 2);
}

#[test]
fn what_is_exported_and_imported_is_exported_the_same() {
    let bench = Bench::grown();
    let counts = bench.json(&["store", "export", "one"]);
    assert_eq!(
        (&counts["tools"], &counts["artifacts"], &counts["patterns"]),
        (&json!(1), &json!(4), &json!(6))
    );
    let one = files(&bench.path("one"));
    assert!(one.contains_key("artifacts/greeter/greet.json"), "{:?}", one.keys());
    assert!(one.keys().any(|path| path.starts_with("artifacts/x-") && path.ends_with("/add.json")));
    assert!(!bench.path("x").exists() && !bench.path("../x").exists());

    let taken = bench.run_in("second", &["store", "import", "one"]);
    assert_eq!(taken.exit, 0, "{}", taken.stderr);
    bench.run_in("second", &["store", "export", "two"]);
    assert_eq!(files(&bench.path("two")), one, "byte for byte");
    let again = bench.run_in("second", &["store", "import", "one", "--json"]);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["taken"], json!([]), "twice is once");
    bench.run_in("second", &["store", "export", "three"]);
    assert_eq!(files(&bench.path("three")), one);

    // What was imported runs without a model, after vetting.
    fs::write(bench.path("other.json"), r#"{"nobody.asked": [{"code": "result = 1"}]}"#).unwrap();
    let line = ["call", "../../x", "add", "20", "22", "--provider", "scripted:other.json"];
    let ran = bench.run_in("second", &line);
    assert_eq!((ran.exit, ran.stdout.as_str()), (0, "42\n"), "{}", ran.stderr);

    let occupied = bench.run(&["store", "export", "one"]);
    assert_eq!(occupied.exit, 2);
    assert!(occupied.stderr.contains("empty or new"), "{}", occupied.stderr);
    assert_eq!(bench.run(&["store", "import", "nowhere"]).exit, 1);
    let some = bench.json(&["tools", "export", "some", "greeter"]);
    assert_eq!((&some["tools"], &some["artifacts"]), (&json!(1), &json!(1)));
}

#[test]
fn a_newer_program_here_is_not_replaced_by_an_older_one() {
    let bench = Bench::grown();
    bench.run(&["store", "export", "old"]);
    let path = "artifacts/greeter/greet.json";
    let old: Value = serde_json::from_str(&files(&bench.path("old"))[path]).unwrap();
    let import = |folder: &str, file: &Value| -> Value {
        let place = bench.path(folder).join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, file.to_string()).unwrap();
        bench.json(&["store", "import", folder])
    };
    let grown = |base: &Value, number: u64, code: &str| {
        let mut file = base.clone();
        let head = file["code_checksum"].as_str().unwrap().to_owned();
        let mut version = file["versions"][&head].clone();
        version["version"] = json!(number);
        version["code"] = json!(code);
        let checksum = Checksum::of(code);
        file["versions"][checksum.as_str()] = version;
        file["code_checksum"] = json!(checksum);
        file
    };
    let newer = grown(&old, 2, "def greet(name):\n    return 'good day ' + name");
    assert!(import("newer", &newer)["taken"][0]["why"].as_str().unwrap().contains("follows on"));
    assert_eq!(bench.run(&["call", "builder", "build", "Bo"]).stdout, "good day Bo\n");
    assert!(
        import("older", &old)["skipped"][0]["why"]
            .as_str()
            .unwrap()
            .contains("newer program runs here")
    );
    let mut apart = grown(&old, 2, "def greet(name):\n    return 'hi ' + name");
    let first = old["code_checksum"].as_str().unwrap();
    apart["versions"].as_object_mut().unwrap().remove(first);
    let report = import("apart", &apart);
    assert!(
        report["conflicts"][0]["why"].as_str().unwrap().contains("neither follows"),
        "{report}"
    );
    assert_eq!(bench.run(&["store", "import", "apart"]).exit, 1, "somebody has to decide");
    assert_eq!(bench.run(&["call", "builder", "build", "Bo"]).stdout, "good day Bo\n");
}

#[test]
fn an_earlier_program_runs_again_when_told_to() {
    let bench = Bench::grown();
    let nothing = bench.run(&["tools", "rollback", "greeter", "greet"]);
    assert_eq!(nothing.exit, 1, "{}", nothing.stdout);
    assert!(nothing.stderr.contains("no earlier version"), "{}", nothing.stderr);

    // A second version, by way of an import.
    bench.run(&["store", "export", "old"]);
    let place = bench.path("old/artifacts/greeter/greet.json");
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&place).unwrap()).unwrap();
    let first = file["code_checksum"].as_str().unwrap().to_owned();
    let code = "def greet(name):\n    return 'good day ' + name";
    let mut second = file["versions"][&first].clone();
    second["version"] = json!(2);
    second["code"] = json!(code);
    file["versions"][Checksum::of(code).as_str()] = second;
    file["code_checksum"] = json!(Checksum::of(code));
    fs::write(&place, file.to_string()).unwrap();
    assert_eq!(bench.run(&["store", "import", "old"]).exit, 0);
    let greeting = || bench.run(&["call", "builder", "build", "Bo"]).stdout;
    assert_eq!(greeting(), "good day Bo\n");
    assert_eq!(bench.json(&["tools", "rollback", "greeter", "greet"])["current"], json!(first));
    assert_eq!(greeting(), "hello Bo\n");
    let start = &Checksum::of(code).to_string()[7..20];
    assert_eq!(bench.run(&["tools", "rollback", "greeter", "greet", "--to", start]).exit, 0);
    assert_eq!(greeting(), "good day Bo\n");
    assert_eq!(bench.json(&["tools", "pin", "greeter", "greet"])["pinned"], true);
    assert_eq!(bench.json(&["tools", "pin", "greeter", "greet", "--off"])["pinned"], false);
    for line in [["greeter", "fly"], ["nobody", "greet"]] {
        let missing = bench.run(&["tools", "pin", line[0], line[1]]);
        assert_eq!(missing.exit, 1);
        assert!(missing.stderr.contains("tools show"), "{}", missing.stderr);
    }
    assert_eq!(bench.run(&["tools", "rollback", "greeter", "greet", "--to", "ffff"]).exit, 1);
    assert_eq!(bench.run(&["tools", "rollback", "greeter", "greet", "--guest", "ruby"]).exit, 1);
}

// ---- The reference runtime's files ----

/// As it wrote them: Ruby, one file per method, counters for the method and a card per version.
fn reference_store(folder: &Path) -> String {
    let code = "amount = args[0]\nresult = amount * 2";
    let older = "result = args[0] + args[0]";
    let (head, first) = (Checksum::of(code), Checksum::of(older));
    let registry = json!({"schema_version": 1, "archived_tools": {}, "tools": {
        "unit_converter": {"purpose": "convert quantities between units", "methods": ["convert"], "aliases": [],
            "deliverable": {"type": "number"}, "acceptance": [{"assert": "amount is numeric"}],
            "failure_policy": {"on_error": "return_error"}, "intent_signature": "plan: args=boil water",
            "intent_signatures": ["plan: args=boil water"], "created_at": "2026-03-01T10:00:00.000Z",
            "last_used_at": "2026-03-01T10:05:00.120Z", "usage_count": 4, "success_count": 2, "failure_count": 0,
            "method_state_keys": {"convert": ["value"]}, "version_scorecards": {}, "lifecycle_state": "probation"},
        ":note_taker": {":purpose": "take notes", ":methods": ["note"], "usage_count": 1, "purpose_note": null}}});
    let artifact = json!({"schema_version": 1, "role": "unit_converter", "method_name": "convert",
        "contract_fingerprint": "sha256:0123", "prompt_version": "2026-02-15.depth-aware.v3", "runtime_version": "0.1.0",
        "model": "m", "cacheable": true, "cacheability_reason": "stable_method_default", "input_sensitive": false,
        "code_checksum": head, "code": code,
        "versions": {
            head.as_str(): {"code": code, "dependencies": [], "created_at": "2026-03-01T10:02:00.000Z", "last_used_at": "2026-03-01T10:05:00.000Z"},
            first.as_str(): {"code": older, "dependencies": [], "created_at": "2026-03-01T10:00:00.000Z", "last_used_at": "2026-03-01T10:01:00.000Z"}},
        "dependencies": [], "success_count": 3, "failure_count": 1, "intrinsic_failure_count": 1,
        "scorecards": {first.as_str(): {"calls": 2, "successes": 1, "failures": 1}},
        "repair_count_since_regen": 0, "created_at": "2026-03-01T10:00:00.000Z", "last_used_at": "2026-03-01T10:05:00.000Z",
        "history": [{"id": "gen-0a1b2c3d4e5f", "trigger": "initial_forge"}], "lifecycle": {"versions": {}}});
    let patterns = json!({"schema_version": 1, "roles": {"assistant": {"events": [
        {"timestamp": "2026-03-01T10:00:00.000Z", "recorded_at_ms": 1_772_359_200_000_u64, "role": "assistant",
         "method_name": "ask", "trace_id": "0a0b", "call_id": "c0ffee", "parent_call_id": null, "depth": 0,
         "had_delegated_calls": false, "capability_patterns": ["http_fetch"], "outcome_status": "ok", "error_type": null,
         "user_correction": {"detected": true, "signal": "temporal_reask", "correction_of_call_id": "bead",
                             "matched_capability_patterns": ["http_fetch"]}}]}}});
    let place = folder.join("artifacts/unit_converter-b1ab5a0e");
    fs::create_dir_all(&place).unwrap();
    fs::write(folder.join("registry.json"), registry.to_string()).unwrap();
    fs::write(folder.join("patterns.json"), patterns.to_string()).unwrap();
    fs::write(place.join("convert-0f0f0f0f.json"), artifact.to_string()).unwrap();
    head.to_string()
}

#[test]
fn a_store_of_the_reference_runtime_is_taken_in() {
    let bench = Bench::new();
    let head = reference_store(&bench.path("old"));
    let report = bench.json(&["store", "import", "old"]);
    assert_eq!(report["refused"], json!([]), "{report}");
    assert_eq!(report["taken"].as_array().unwrap().len(), 4, "{report}");
    let shown = bench.json(&["tools", "show", "unit_converter"]);
    assert_eq!(shown["health"]["usage_count"], 4);
    let method = &shown["methods"][0];
    assert_eq!((&method["language"], &method["current"]), (&json!("ruby"), &json!(head)));
    assert_eq!(
        (&method["versions"][0]["successes"], &method["versions"][1]["successes"]),
        (&json!(3), &json!(1))
    );
    let listed = bench.json(&["tools", "list"]);
    assert!(
        listed["tools"].as_array().unwrap().iter().any(|tool| tool["purpose"] == "take notes"),
        "{listed}"
    );
    bench.run(&["store", "export", "new"]);
    let new = files(&bench.path("new"));
    assert!(new.contains_key("artifacts/unit_converter/convert.json"));
    let imported = bench.run_in("third", &["store", "import", "new"]);
    assert_eq!(imported.exit, 0, "{}", imported.stderr);
    bench.run_in("third", &["store", "export", "newer"]);
    assert_eq!(files(&bench.path("newer")), new);
}

/// Without a contract it needs no translation, and runs as it is.
#[test]
fn a_program_of_the_reference_runtime_runs_without_a_model() {
    let bench = Bench::new();
    reference_store(&bench.path("old"));
    let place = bench.path("old/artifacts/unit_converter-b1ab5a0e/convert-0f0f0f0f.json");
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&place).unwrap()).unwrap();
    file["contract_fingerprint"] = json!("none");
    fs::write(&place, file.to_string()).unwrap();
    assert_eq!(bench.run(&["store", "import", "old"]).exit, 0);
    let ran = bench.run(&["call", "unit_converter", "convert", "21", "--guest", "ruby"]);
    assert_eq!((ran.exit, ran.stdout.as_str()), (0, "42\n"), "{}", ran.stderr);
}

#[test]
fn damaged_files_are_refused_one_by_one() {
    let bench = Bench::new();
    reference_store(&bench.path("old"));
    let artifacts = bench.path("old/artifacts/zoo");
    fs::create_dir_all(&artifacts).unwrap();
    let good = fs::read_to_string(
        bench.path("old/artifacts/unit_converter-b1ab5a0e/convert-0f0f0f0f.json"),
    )
    .unwrap();
    let good: Value = serde_json::from_str(&good).unwrap();
    let changed = |key: &str, value: Value| {
        let mut file = good.clone();
        file["method_name"] = json!("other");
        file[key] = value;
        file.to_string()
    };
    for (name, text, why) in [
        ("torn", "{\"schema_version\": 1, \"ro".to_owned(), "not JSON"),
        ("list", "[]".to_owned(), "an object is needed"),
        ("newer", changed("schema_version", json!(7)), "schema version 7"),
        ("tampered", changed("code", json!("result = 1")), "not the one"),
        ("nameless", changed("role", json!("  ")), "role name must not be empty"),
        ("gems", changed("dependencies", json!([{"name": "a; rm -rf"}])), "dependencies[0]"),
        ("counts", changed("success_count", json!(-3)), "whole number"),
        ("time", changed("created_at", json!("yesterday")), "no time"),
    ] {
        fs::write(artifacts.join(format!("{name}.json")), text).unwrap();
        let report = bench.json(&["store", "import", "old"]);
        let refused = report["refused"].as_array().unwrap();
        let found = refused
            .iter()
            .find(|r| r["what"].as_str().unwrap().contains(name))
            .unwrap_or_else(|| panic!("{name}: {report}"));
        assert!(found["why"].as_str().unwrap().contains(why), "{found}");
    }
    std::os::unix::fs::symlink("/etc/hostname", artifacts.join("link.json")).unwrap();
    let ran = bench.run(&["store", "import", "old"]);
    assert_eq!(ran.exit, 1);
    assert!(ran.stdout.contains("artifacts/zoo/link.json: it is no plain file"), "{}", ran.stdout);
    assert_eq!(bench.run(&["tools", "show", "unit_converter"]).exit, 0, "the others were taken");
    assert_eq!(bench.json(&["store", "check"])["ok"], true);
}

/// What only the store can judge is refused there, and takes nothing else with it.
#[test]
fn a_file_the_store_does_not_take_is_told_and_the_others_are_taken() {
    let bench = Bench::grown();
    bench.run(&["store", "export", "out"]);
    let place = bench.path("out/artifacts/greeter/greet.json");
    let whole = fs::read_to_string(&place).unwrap();
    let import = |file: &Value, state: &str| -> Value {
        fs::write(&place, file.to_string()).unwrap();
        let ran = bench.run_in(state, &["store", "import", "out", "--json"]);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
    };
    let mut odd: Value = serde_json::from_str(&whole).unwrap();
    odd["state"]["pinned"] = json!("surely");
    let report = import(&odd, "odd");
    assert_eq!(report["conflicts"].as_array().unwrap().len(), 1, "{report}");
    assert!(
        report["conflicts"][0]["why"].as_str().unwrap().contains("does not take it"),
        "{report}"
    );
    assert!(report["taken"].to_string().contains("guide.movies"), "{report}");
    assert!(!report["taken"].to_string().contains("greeter.greet"), "{report}");

    // Every field of the file in turn is something else: read or refused, never worse.
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let checksum = whole["code_checksum"].as_str().unwrap();
    let top = whole.as_object().unwrap().keys().map(|key| format!("/{key}"));
    let version = whole["versions"][checksum].as_object().unwrap();
    let inner = version.keys().map(|key| format!("/versions/{checksum}/{key}"));
    for (n, path) in top.chain(inner).enumerate() {
        for (m, nonsense) in [json!(-1), json!([[]]), json!({"": null})].into_iter().enumerate() {
            let mut odd = whole.clone();
            *odd.pointer_mut(&path).unwrap() = nonsense;
            let report = import(&odd, &format!("odd-{n}-{m}"));
            assert!(report["taken"].to_string().contains("guide.movies"), "{path}: {report}");
        }
    }
}

#[test]
fn a_store_can_be_checked() {
    let bench = Bench::grown();
    let ran = bench.run(&["store", "check"]);
    assert_eq!(ran.exit, 0);
    assert!(ran.stdout.contains("is whole"), "{}", ran.stdout);

    // An artifact whose program went missing, and a torn page.
    let file = bench.path("state/recurgent.sqlite");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.execute("UPDATE artifacts SET current = 99 WHERE role = 'guide'", []).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(connection);
    let checked = bench.json(&["store", "check"]);
    assert_eq!(checked["problems"], json!(["guide.movies has no current program"]));
    assert_eq!(bench.run(&["store", "check"]).exit, 1);
    let mut bytes = fs::read(&file).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0x5a);
    fs::write(&file, bytes).unwrap();
    let checked = bench.json(&["store", "check"]);
    assert_eq!(checked["ok"], false, "{checked}");

    // One that cannot even be opened is moved aside, and is not to be moved or exported any more.
    fs::write(&file, "no database ".repeat(500)).unwrap();
    let ran = bench.run(&["store", "check"]);
    assert_eq!(ran.exit, 1, "{}", ran.stderr);
    assert!(ran.stdout.contains("has been moved to"), "{}", ran.stdout);
    assert!(!ran.stderr.contains("has been moved to"), "told once: {}", ran.stderr);
    assert!(ran.stderr.contains(".recover") && !ran.stderr.contains("export"), "{}", ran.stderr);
}

/// A program that fails is repaired in that call; the repair has taken over when the next process asks.
#[test]
fn a_repair_made_in_one_process_runs_in_the_next() {
    let bench = Bench::new();
    let codes =
        ["def share(n):\n    return 8 // n", "def share(n):\n    return 8 // n if n else 0"];
    for code in codes {
        fs::write(bench.path("script.json"), json!({"c.share": [{"code": code}]}).to_string())
            .unwrap();
        let n = if code == codes[0] { "2" } else { "0" };
        assert_eq!(bench.run(&["call", "c", "share", n]).exit, 0);
    }
    // Nobody is left who could write a program. A busy machine may need more than the time a process gives a trial
    // when it ends; then a later call has it tried again.
    fs::write(bench.path("script.json"), "{}").unwrap();
    let runs = || bench.json(&["tools", "show", "c"])["methods"][0]["current"].clone();
    for _ in 0..20 {
        if runs() == json!(Checksum::of(codes[1])) {
            break;
        }
        assert_eq!(bench.run(&["call", "c", "share", "2"]).exit, 0);
    }
    for (n, answer) in [("0", "0\n"), ("4", "2\n")] {
        let ran = bench.run(&["call", "c", "share", n]);
        assert_eq!(ran.stdout, answer, "{}", ran.stderr);
    }
    let shown = bench.json(&["tools", "show", "c"]);
    let method = &shown["methods"][0];
    assert_eq!(method["current"], json!(Checksum::of(codes[1])));
    assert_eq!(method["versions"][0]["trigger"], "repair");
}

/// Each process has a trace of its own; a session is one talk all the same.
#[test]
fn a_session_is_one_talk_across_processes() {
    for (session, corrects) in [(&["--session", "desk"][..], true), (&[], false)] {
        let bench = Bench::new();
        let code =
            "def movies(where, day=None):\n    return {'movies': [m for m in [] if m == where]}";
        fs::write(bench.path("script.json"), json!({"guide.movies": [{"code": code}]}).to_string())
            .unwrap();
        for more in [&[][..], &["--kw", "day=tonight"]] {
            let ran = bench.run(&[&["call", "guide", "movies", "Oslo"], more, session].concat());
            assert_eq!(ran.exit, 0, "{}", ran.stderr);
        }
        let log = fs::read_to_string(bench.path("state/recurgent.jsonl")).unwrap();
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(last["user_correction_detected"], json!(corrects));
        let found = bench.json(&["tools", "recommend"]);
        assert_eq!(found.to_string().contains("strengthen_contract"), corrects, "{found}");
    }
}

/// Names are whatever a model says: they are shown harmlessly, found again, and empty stores are no trouble.
#[test]
fn odd_names_and_empty_stores_are_no_trouble() {
    let bench = Bench::new();
    for (line, shape) in [
        (&["list"][..], json!({"tools": []})),
        (&["health"], json!({"tools": []})),
        (&["recommend"], json!({"recommendations": []})),
        (&["stale"], json!({"stale": []})),
        (&["prune"], json!({"dry_run": true, "pruned": []})),
        (&["prune", "--yes"], json!({"dry_run": false, "pruned": []})),
    ] {
        assert_eq!(bench.json(&[&["tools"], line].concat()), shape, "{line:?}");
        let ran = bench.run(&[&["tools"], line].concat());
        assert_eq!((ran.exit, ran.stdout.as_str()), (0, ""), "{line:?}");
    }
    let odd = ["-rf", "a b", "é\u{301}", "x'; DROP TABLE tools; --", "%_", "{}", "a/b"];
    let script: serde_json::Map<String, Value> = odd
        .iter()
        .map(|name| (format!("{name}.twice"), json!([{"code": "def twice(n):\n    return n * 2"}])))
        .collect();
    fs::write(bench.path("script.json"), Value::Object(script).to_string()).unwrap();
    for (number, name) in odd.into_iter().enumerate() {
        assert_eq!(bench.run(&["call", "--", name, "twice", "4"]).stdout, "8\n", "{name}");
        for line in [
            &["tools", "show", "--", name][..],
            &["tools", "recommend", "--", name],
            &["tools", "pin", "--", name, "twice"],
            &["tools", "pin", "--off", "--", name, "twice"],
            &["tools", "export", &format!("out-{number}"), "--", name],
        ] {
            let ran = bench.run(line);
            assert_eq!(ran.exit, 0, "{line:?} {}", ran.stderr);
        }
        let missing = bench.run(&["tools", "rollback", "--", name, "twice"]);
        assert_eq!(missing.exit, 1, "{}", missing.stdout);
        let is_plain = name == "a/b";
        assert_eq!(missing.stderr.contains("tools show -- '"), !is_plain, "{}", missing.stderr);
    }
    for verb in ["show", "recommend"] {
        let refused = bench.run(&["tools", verb, "\u{1b}[31mred"]);
        assert_eq!(refused.exit, 2, "{}", refused.stdout);
        assert!(!refused.stderr.contains('\u{1b}'), "{}", refused.stderr);
    }
    assert_eq!(bench.run(&["store", "export", "all"]).exit, 0);
    assert_eq!(bench.run_in("second", &["store", "import", "all"]).exit, 0);
    assert_eq!(bench.run_in("second", &["store", "export", "again"]).exit, 0);
    assert_eq!(files(&bench.path("all")), files(&bench.path("again")));
}

/// What programs of other people read from `tools show --json`; names may be added, none may go.
#[test]
fn a_tool_is_shown_by_the_same_names() {
    let bench = Bench::grown();
    let shown = bench.json(&["tools", "show", "greeter"]);
    let names =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let expect = |value: &Value, expected: &str| {
        let mut names = names(value);
        names.sort();
        assert_eq!(names.join(" "), expected);
    };
    expect(&shown, "contract created_at health is_tool methods name recommendations");
    let method = &shown["methods"][0];
    expect(
        method,
        "code contract_fingerprint current generations language method pinned reads signature versions writes",
    );
    expect(
        &method["versions"][0],
        "admitted_at cacheability_reason cacheable checksum dependencies failing_case failure failures parent pure \
         repairs standing successes trigger version",
    );
    assert_eq!((&method["pinned"], &method["generations"]), (&json!(false), &json!(1)));
    assert_eq!(method["versions"][0]["pure"], true);
    bench.run(&["tools", "pin", "greeter", "greet"]);
    assert!(bench.run(&["tools", "show", "greeter"]).stdout.contains("pinned"));
    assert!(!bench.run(&["tools", "show", "guide"]).stdout.contains("health"), "it is no tool");
}

/// A store to import that takes many pages to write.
fn large_export(bench: &Bench) -> PathBuf {
    bench.run(&["store", "export", "large"]);
    let place = bench.path("large/artifacts/greeter/greet.json");
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&place).unwrap()).unwrap();
    let first = file["code_checksum"].as_str().unwrap().to_owned();
    for number in 2..=9 {
        let code = format!(
            "def greet(name):\n    return 'hello ' + name\n# {}",
            "x".repeat(9000 + number)
        );
        let mut version = file["versions"][&first].clone();
        version["version"] = json!(number);
        version["code"] = json!(code);
        file["versions"][Checksum::of(&code).as_str()] = version;
        file["code_checksum"] = json!(Checksum::of(&code));
    }
    fs::write(&place, file.to_string()).unwrap();
    bench.path("large")
}

/// The kernel ends the import at the very write that takes a file past its limit, ever later.
#[test]
fn an_import_that_dies_at_any_write_can_be_made_again() {
    let bench = Bench::grown();
    large_export(&bench);
    assert_eq!(bench.run_in("whole", &["store", "import", "large"]).exit, 0);
    bench.run_in("whole", &["store", "export", "expected"]);
    let expected = files(&bench.path("expected"));
    let (mut died, mut ended) = (0, 0);
    for round in 0..16 {
        let state = format!("state-{round}");
        let line =
            format!("ulimit -c 0; ulimit -f {}; exec \"$0\" store import large", 8 + 56 * round);
        let ran = Command::new("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_recurgent")])
            .current_dir(bench.0.path())
            .env_clear()
            .env("HOME", bench.0.path())
            .env("RECURGENT_STATE_DIR", bench.path(&state))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        match ran.status.code() {
            Some(0) => ended += 1,
            Some(_) | None => died += 1,
        }
        let checked = bench.run_in(&state, &["store", "check"]);
        assert_eq!(checked.exit, 0, "{round}: {}{}", checked.stdout, checked.stderr);
        let tools = bench.run_in(&state, &["store", "import", "large"]);
        assert_eq!(tools.exit, 0, "{round}: {}{}", tools.stdout, tools.stderr);
        let out = format!("out-{round}");
        bench.run_in(&state, &["store", "export", &out]);
        assert!(files(&bench.path(&out)) == expected, "{round}: not the same");
    }
    assert!(died > 2 && ended > 0, "{died} died, {ended} ended");
}

/// Several at once, into a store that is not there yet, while others call and look at the whole file.
#[test]
fn imports_calls_and_checks_at_once_disturb_nobody() {
    let bench = Bench::grown();
    large_export(&bench);
    let run = |line: &[&str]| {
        let ran = bench.run_in("shared", line);
        assert_eq!(ran.exit, 0, "{line:?} {}{}", ran.stdout, ran.stderr);
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| run(&["store", "import", "large"]));
        }
        for name in ["Ann", "Bo"] {
            scope.spawn(move || run(&["call", "clerk", "greet", name]));
        }
        scope.spawn(|| (0..4).for_each(|_| run(&["store", "check"])));
    });
    run(&["store", "check"]);
    let shown = bench.run_in("shared", &["tools", "show", "greeter", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["methods"][0]["versions"].as_array().unwrap().len(), 9);
}

#[test]
fn a_sessions_calls_are_paged_and_forgotten() {
    let bench = Bench::new();
    for name in ["Ann", "Bo", "Cy"] {
        assert_eq!(bench.run(&["call", "greeter", "greet", name, "--session", "desk"]).exit, 0);
    }
    let page = |line: &[&str]| -> Vec<Value> {
        let page = bench.json(&[&["sessions", "history", "desk"], line].concat());
        page["agents"]["greeter"].as_array().unwrap().clone()
    };
    let latest = page(&["--limit", "2"]);
    assert_eq!((&latest[0]["args"], &latest[1]["args"]), (&json!(["Bo"]), &json!(["Cy"])));
    let before = page(&["--limit", "2", "--before", latest[0]["call_id"].as_str().unwrap()]);
    assert_eq!(before.len(), 1);
    assert_eq!(before[0]["args"], json!(["Ann"]));
    let told = |line: &[&str]| bench.run(&[&["sessions", "history", "desk"], line].concat());
    assert!(told(&[]).stdout.contains("greeter.greet ok"));
    assert!(told(&["--before", "nonesuch"]).stderr.contains("came before \"nonesuch\""));

    assert_eq!(bench.json(&["sessions", "purge", "desk"]), json!({"purged": "desk", "records": 3}));
    assert_eq!(page(&[]), Vec::<Value>::new());
    assert!(told(&[]).stderr.contains("has no calls"));
    assert_eq!(bench.run(&["sessions", "show", "desk"]).exit, 0, "its memory stays");
    for verb in ["history", "purge"] {
        let missing = bench.run(&["sessions", verb, "nowhere"]);
        assert_eq!(missing.exit, 1);
        assert!(missing.stderr.contains("desk"), "{}", missing.stderr);
    }
}
