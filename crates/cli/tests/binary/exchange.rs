//! `recurgent store export` and `import`: what one store hands to another, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lifecycle::program::Checksum;
use serde_json::{Value, json};

use crate::tools::{cli, grown};

/// Every file under a folder, by its path there.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, String> {
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
fn what_is_exported_and_imported_is_exported_the_same() {
    let cli = grown();
    let counts = cli.json(&["store", "export", "one"]);
    assert_eq!(
        (&counts["tools"], &counts["artifacts"], &counts["patterns"]),
        (&json!(1), &json!(4), &json!(6))
    );
    let one = files(&cli.path("one"));
    assert!(one.contains_key("artifacts/greeter/greet.json"), "{:?}", one.keys());
    assert!(one.keys().any(|path| path.starts_with("artifacts/x-") && path.ends_with("/add.json")));
    assert!(!cli.path("one/x").exists() && !cli.path("x").exists(), "a role's name is not a path");

    let taken = cli.run_in("second", &["store", "import", "one"]);
    assert_eq!(taken.exit, 0, "{}", taken.stderr);
    cli.run_in("second", &["store", "export", "two"]);
    assert_eq!(files(&cli.path("two")), one, "byte for byte");
    let again = cli.run_in("second", &["store", "import", "one", "--json"]);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["taken"], json!([]), "twice is once");
    cli.run_in("second", &["store", "export", "three"]);
    assert_eq!(files(&cli.path("three")), one);

    // An imported program runs without a model, after vetting.
    fs::write(cli.path("other.json"), r#"{"unused.method": [{"code": "result = 1"}]}"#).unwrap();
    let line = ["call", "../../x", "add", "20", "22", "--provider", "scripted:other.json"];
    let ran = cli.run_in("second", &line);
    assert_eq!((ran.exit, ran.stdout.as_str()), (0, "42\n"), "{}", ran.stderr);

    let occupied = cli.run(&["store", "export", "one"]);
    assert_eq!(occupied.exit, 2);
    assert!(occupied.stderr.contains("empty or new"), "{}", occupied.stderr);
    assert_eq!(cli.run(&["store", "import", "nowhere"]).exit, 1);
    let some = cli.json(&["tools", "export", "some", "greeter"]);
    assert_eq!((&some["tools"], &some["artifacts"]), (&json!(1), &json!(1)));
}

#[test]
fn a_newer_program_here_is_not_replaced_by_an_older_one() {
    let cli = grown();
    cli.run(&["store", "export", "old"]);
    let path = "artifacts/greeter/greet.json";
    let old: Value = serde_json::from_str(&files(&cli.path("old"))[path]).unwrap();
    let import = |folder: &str, file: &Value| -> Value {
        let place = cli.path(folder).join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, file.to_string()).unwrap();
        cli.json(&["store", "import", folder])
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
    assert_eq!(cli.run(&["call", "builder", "build", "Bo"]).stdout, "good day Bo\n");
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
        report["conflicts"][0]["why"].as_str().unwrap().contains("neither is a later version"),
        "{report}"
    );
    assert_eq!(cli.run(&["store", "import", "apart"]).exit, 1, "a person has to decide");
    assert_eq!(cli.run(&["call", "builder", "build", "Bo"]).stdout, "good day Bo\n");
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
    let cli = cli();
    let head = reference_store(&cli.path("old"));
    let report = cli.json(&["store", "import", "old"]);
    assert_eq!(report["refused"], json!([]), "{report}");
    assert_eq!(report["taken"].as_array().unwrap().len(), 4, "{report}");
    let shown = cli.json(&["tools", "show", "unit_converter"]);
    assert_eq!(shown["health"]["usage_count"], 4);
    let method = &shown["methods"][0];
    assert_eq!((&method["language"], &method["current"]), (&json!("ruby"), &json!(head)));
    assert_eq!(
        (&method["versions"][0]["successes"], &method["versions"][1]["successes"]),
        (&json!(3), &json!(1))
    );
    let listed = cli.json(&["tools", "list"]);
    assert!(
        listed["tools"].as_array().unwrap().iter().any(|tool| tool["purpose"] == "take notes"),
        "{listed}"
    );
    cli.run(&["store", "export", "new"]);
    let new = files(&cli.path("new"));
    assert!(new.contains_key("artifacts/unit_converter/convert.json"));
    let imported = cli.run_in("third", &["store", "import", "new"]);
    assert_eq!(imported.exit, 0, "{}", imported.stderr);
    cli.run_in("third", &["store", "export", "newer"]);
    assert_eq!(files(&cli.path("newer")), new);
}

/// Without a contract it needs no translation, and runs as it is.
#[test]
fn a_program_of_the_reference_runtime_runs_without_a_model() {
    let cli = cli();
    reference_store(&cli.path("old"));
    let place = cli.path("old/artifacts/unit_converter-b1ab5a0e/convert-0f0f0f0f.json");
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&place).unwrap()).unwrap();
    file["contract_fingerprint"] = json!("none");
    fs::write(&place, file.to_string()).unwrap();
    assert_eq!(cli.run(&["store", "import", "old"]).exit, 0);
    // The registered tool has a contract, and its program was made without one.
    let ran = cli.run(&["call", "unit_converter", "convert", "21", "--guest", "ruby"]);
    assert_eq!((ran.exit, ran.stdout.as_str()), (0, "42\n"), "{}", ran.stderr);
}

/// The reference runtime kept the program that it tried last at the head, also if it failed. What is odd in a method's past
/// does not cost its program.
#[test]
fn the_program_that_worked_is_taken_in_whatever_is_odd_beside_it() {
    let cli = cli();
    reference_store(&cli.path("old"));
    let place = cli.path("old/artifacts/unit_converter-b1ab5a0e");
    let text = fs::read_to_string(place.join("convert-0f0f0f0f.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let head = file["code_checksum"].as_str().unwrap().to_owned();
    let broken = "result = args[0].undefined";
    let failed = Checksum::of(broken);
    let card = |successes: Value| json!({"calls": 3, "successes": successes, "failures": 1});
    let worked = |method: &str| {
        let mut file = file.clone();
        file["role"] = json!("scale");
        file["method_name"] = json!(method);
        file["contract_fingerprint"] = json!("none");
        file
    };
    let mut last_failed = worked("last_failed");
    last_failed["versions"][failed.as_str()] = json!({"code": broken, "dependencies": []});
    last_failed["code"] = json!(broken);
    last_failed["code_checksum"] = json!(failed);
    last_failed["scorecards"] =
        json!({head.as_str(): card(json!(3)), failed.as_str(): card(json!(0))});
    let mut odd_card = worked("odd_card");
    odd_card["scorecards"] = json!({head.as_str(): card(json!("three"))});
    let mut odd_version = worked("odd_version");
    odd_version["versions"][failed.as_str()] = json!({"code": "another text"});
    let mut unknown_contract = worked("unknown_contract");
    unknown_contract["contract_fingerprint"] = json!("sha256:0123");
    for file in [last_failed, odd_card, odd_version, unknown_contract] {
        let name = file["method_name"].as_str().unwrap();
        fs::write(place.join(format!("{name}.json")), file.to_string()).unwrap();
    }
    let report = cli.json(&["store", "import", "old"]);
    assert_eq!(report["refused"], json!([]), "{report}");
    for (method, why) in [
        ("last_failed", "its newest program never worked"),
        ("odd_card", "the scorecard of version"),
        ("odd_version", "is left out: `code` does not match"),
        ("unknown_contract", "does not hold its contract"),
    ] {
        let noted = report["noted"].as_array().unwrap().iter();
        let is_it = |note: &Value| note["what"].as_str().unwrap().contains(method);
        let noted: Vec<&Value> = noted.filter(|note| is_it(note)).collect();
        assert!(noted.len() == 1 && noted[0]["why"].as_str().unwrap().contains(why), "{noted:?}");
        let ran = cli.run(&["call", "scale", method, "21", "--guest", "ruby", "--frozen"]);
        assert_eq!((ran.exit, ran.stdout.as_str()), (0, "42\n"), "{method}: {}", ran.stderr);
    }
    assert_eq!(cli.run(&["store", "export", "new"]).exit, 0);
    let place = cli.path("new/artifacts/scale/odd_card.json");
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&place).unwrap()).unwrap();
    let versions = file["versions"].as_object_mut().unwrap();
    let older = versions.iter_mut().find(|(checksum, _)| **checksum != head).unwrap();
    older.1["code"] = json!("another text");
    fs::write(&place, file.to_string()).unwrap();
    let ran = cli.run_in("third", &["store", "import", "new", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["refused"], json!([]), "{report}");
    assert!(report["noted"].to_string().contains("is left out: `code` does not match"), "{report}");
}

#[test]
fn damaged_files_are_refused_one_by_one() {
    let cli = cli();
    reference_store(&cli.path("old"));
    let artifacts = cli.path("old/artifacts/zoo");
    fs::create_dir_all(&artifacts).unwrap();
    let good =
        fs::read_to_string(cli.path("old/artifacts/unit_converter-b1ab5a0e/convert-0f0f0f0f.json"))
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
        ("tampered", changed("code", json!("result = 1")), "does not match its checksum"),
        ("nameless", changed("role", json!("  ")), "role name must not be empty"),
        ("gems", changed("dependencies", json!([{"name": "a; rm -rf"}])), "dependencies[0]"),
        ("counts", changed("success_count", json!(-3)), "whole number"),
        ("time", changed("created_at", json!("yesterday")), "not a time"),
    ] {
        fs::write(artifacts.join(format!("{name}.json")), text).unwrap();
        let report = cli.json(&["store", "import", "old"]);
        let refused = report["refused"].as_array().unwrap();
        let found = refused
            .iter()
            .find(|r| r["what"].as_str().unwrap().contains(name))
            .unwrap_or_else(|| panic!("{name}: {report}"));
        assert!(found["why"].as_str().unwrap().contains(why), "{found}");
    }
    std::os::unix::fs::symlink("/etc/hostname", artifacts.join("link.json")).unwrap();
    let ran = cli.run(&["store", "import", "old"]);
    assert_eq!(ran.exit, 1);
    assert!(
        ran.stdout.contains("artifacts/zoo/link.json: it is not a plain file"),
        "{}",
        ran.stdout
    );
    assert_eq!(cli.run(&["tools", "show", "unit_converter"]).exit, 0, "the others were taken");
    assert_eq!(cli.json(&["store", "check"])["ok"], true);
}

/// A contradiction that only the store can see is refused there; the other files are imported.
#[test]
fn a_file_that_cannot_be_imported_is_reported_and_the_others_are_imported() {
    let cli = grown();
    cli.run(&["store", "export", "out"]);
    let place = cli.path("out/artifacts/greeter/greet.json");
    let whole = fs::read_to_string(&place).unwrap();
    let import = |file: &Value, state: &str| -> Value {
        fs::write(&place, file.to_string()).unwrap();
        let ran = cli.run_in(state, &["store", "import", "out", "--json"]);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
    };
    let mut odd: Value = serde_json::from_str(&whole).unwrap();
    odd["state"]["pinned"] = json!("surely");
    let report = import(&odd, "odd");
    assert_eq!(report["conflicts"].as_array().unwrap().len(), 1, "{report}");
    assert!(report["conflicts"][0]["why"].as_str().unwrap().contains("rejects it"), "{report}");
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
