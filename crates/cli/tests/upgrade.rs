//! Files that an older version wrote still open, run without a model and replay with the same results.
//!
//! `tests/upgrade/README.md` describes the files.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot continue panics"
)]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use recurgent::Language;
use recurgent::config::{
    Config, ManifestMode, PackageIndex, PackageName, Rule, Settings, SourceMode, StandingMode, Tier,
};
use recurgent::grants::Network;
use serde_json::{Value, json};
use tempfile::TempDir;

use common::recurgent;

/// A copy of one version's files, and the new binary to use on them. No model is configured.
struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap() };
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade/0.1"), fixture.dir.path());
        fixture
    }

    /// The store and the log of the older version, where the new one looks for them.
    fn with_state() -> Self {
        let fixture = Self::new();
        std::fs::create_dir(fixture.path("state")).unwrap();
        for (from, to) in [("store.sqlite", "recurgent.sqlite"), ("log.jsonl", "recurgent.jsonl")] {
            std::fs::copy(fixture.path(from), fixture.path("state").join(to)).unwrap();
        }
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command line with `--json` and returns what it prints. Only calls may report an error.
    fn json(&self, line: &[&str]) -> Value {
        let output = recurgent(self.dir.path(), line).arg("--json").output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(line[0] == "call" || output.status.success(), "{line:?}: {out}{err}");
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{line:?} printed {out}{err}"))
    }

    /// Checks that every stored program gives the expected value. Calls of one session depend on those before them, so the
    /// order counts.
    #[track_caller]
    fn check_calls(&self, calls: &[StoredCall]) {
        for (guest, line, expected) in calls {
            let words: Vec<&str> = line.split(' ').collect();
            let outcome = self.json(&[&["call", "--guest", guest], words.as_slice()].concat());
            let seen =
                if outcome["status"] == "ok" { &outcome["value"] } else { &outcome["error_type"] };
            assert_eq!(seen, &expected.parse::<Value>().unwrap(), "{guest}: {line}: {outcome}");
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Language, arguments of `recurgent call`, and the value or error type it must give, as JSON.
type StoredCall = (&'static str, &'static str, &'static str);

/// What the programs of the store and of the export do.
const STORED: &[StoredCall] = &[
    ("python", "statistics mean [2,4]", "3.0"),
    ("ruby", "statistics mean [2,4]", "3"),
    // The version before this one raised here.
    ("python", "statistics mean []", "0"),
    ("ruby", "statistics mean []", "0"),
    // A repair that failed its trial returns the number of numbers.
    ("python", "statistics spread [5,9,7]", "4"),
    ("ruby", "statistics spread [5,9,7]", "4"),
    ("python", "directory lookup bo", "\"200\""),
    ("ruby", "directory lookup bo", "\"200\""),
    ("python", "directory lookup dee", "\"not_found\""),
    ("ruby", "directory lookup dee", "\"not_found\""),
    (
        "python",
        "big square 10000000000000000000001",
        "100000000000000000000020000000000000000000001",
    ),
    ("ruby", "big square 10000000000000000000001", "100000000000000000000020000000000000000000001"),
    // Calls a forged tool with a contract.
    ("python", "assistant plan 7 1", r#"{"metres": 7000, "days": 1}"#),
    ("ruby", "assistant plan 7 1", r#"{"metres": 7000, "days": 1}"#),
    ("python", "greeter greet Cy", "\"Hello, Cy!\""),
    ("python", "dice roll 0", "true"),
];

/// What the sessions of the store remember.
const REMEMBERED: &[StoredCall] = &[
    ("python", "calculator memory --session desk", "12"),
    ("ruby", "calculator memory --session counter", "12"),
    ("python", "calculator add 1 --session desk", "13"),
    ("ruby", "calculator add 2 --session counter", "14"),
    ("ruby", "calculator memory --session desk", "13"),
];

#[test]
fn a_stores_programs_and_sessions_are_used_without_a_model() {
    let fixture = Fixture::with_state();
    fixture.check_calls(STORED);
    fixture.check_calls(REMEMBERED);
    assert_eq!(fixture.json(&["store", "check"])["ok"], json!(true));
}

#[test]
fn a_stores_versions_tools_and_history_are_listed() {
    let fixture = Fixture::with_state();
    let history = fixture.json(&["sessions", "history", "desk"]);
    assert_eq!(history["agents"]["calculator"][1]["args"], json!([4]), "{history}");

    let tools = fixture.json(&["tools", "list"]);
    let tools = tools["tools"].as_array().unwrap();
    let converter = tools.iter().find(|tool| tool["name"] == "unit_converter").unwrap();
    assert_eq!(
        (&converter["usage_count"], &converter["deliverable"]),
        (&json!(4), &json!({"type": "number"}))
    );

    // Role, method, whether it is pinned, and standing and trigger of each version, newest first.
    let versions = [
        ("statistics", "mean", true, [["probation", "repair"], ["probation", "fresh"]]),
        ("statistics", "spread", false, [["candidate", "repair"], ["probation", "fresh"]]),
        ("greeter", "greet", false, [["degraded", "repair"], ["probation", "fresh"]]),
    ];
    for (role, method, pinned, expected) in versions {
        let shown = fixture.json(&["tools", "show", role]);
        let methods = shown["methods"].as_array().unwrap();
        let found =
            methods.iter().find(|one| one["method"] == method && one["language"] == "python");
        let found = found.unwrap_or_else(|| panic!("{role}.{method}: {shown}"));
        let versions: Vec<Value> = found["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| json!([one["standing"], one["trigger"]]))
            .collect();
        assert_eq!(
            (&found["pinned"], json!(versions)),
            (&json!(pinned), json!(expected)),
            "{role}.{method}"
        );
    }
}

#[test]
fn an_export_is_imported_and_its_programs_run_without_a_model() {
    let fixture = Fixture::new();
    let report = fixture.json(&["store", "import", "export"]);
    assert_eq!((&report["skipped"], &report["conflicts"]), (&json!([]), &json!([])), "{report}");
    fixture.check_calls(STORED);
    let shown = fixture.json(&["tools", "show", "unit_converter"]);
    assert_eq!(shown["contract"]["deliverable"], json!({"type": "number"}), "{shown}");
}

#[test]
fn recordings_replay_with_the_same_outcome() {
    for guest in ["python", "ruby"] {
        let fixture = Fixture::new();
        let recording = format!("recording-{guest}.jsonl");
        let outcome = fixture
            .json(&["call", "planner", "plan", "4", "--guest", guest, "--replay", &recording]);
        assert_eq!(outcome["value"], json!({"metres": 4000}), "{guest}: {outcome}");
    }
}

#[test]
fn logged_calls_are_shown_and_replay_the_same() {
    let fixture = Fixture::with_state();
    let log = std::fs::read_to_string(fixture.path("log.jsonl")).unwrap();
    let calls: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(calls.len(), 8);
    for call in calls {
        let id = call["call_id"].as_str().unwrap();
        let replayed = fixture.json(&["trace", "replay", id]);
        assert_eq!(
            replayed["same"],
            json!(true),
            "{}.{}: {replayed}",
            call["role"],
            call["method"]
        );
        fixture.json(&["trace", "show", id]);
    }
}

#[test]
fn every_key_of_a_configuration_file_has_the_same_value() {
    let fixture = Fixture::new();
    let folder = fixture.path(".config/recurgent");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(fixture.path("config.toml"), folder.join("config.toml")).unwrap();
    let settings = fixture.json(&["config"]);
    let settings = settings["settings"].as_array().unwrap();

    let file = std::fs::read_to_string(fixture.path("config.toml")).unwrap();
    let lines: Vec<(&str, &str)> = file.lines().filter_map(|line| line.split_once(" = ")).collect();
    assert_eq!(lines.len(), 59);
    for (key, text) in lines {
        let found = settings.iter().find(|setting| setting["key"] == key);
        let found = found.unwrap_or_else(|| panic!("{key} is not a setting any more"));
        // A list of the file is printed as texts separated by commas.
        let text = text.trim_matches(['[', ']']).replace('"', "");
        assert_eq!(found["value"].as_str().unwrap_or_default(), text, "{key}: {found}");
        assert!(found["source"].as_str().unwrap().ends_with("config.toml"), "{found}");
    }
}

/// The values that the parts of the runtime get, not only their texts.
#[test]
fn a_configuration_file_has_the_same_effect() {
    let fixture = Fixture::new();
    let text = std::fs::read_to_string(fixture.path("config.toml")).unwrap();
    let config = Config::from_file(&fixture.path("config.toml")).unwrap();
    assert_eq!(config.settings(), &settings_of_0_1(), "{text}");
}

/// What the file meant to the version that wrote it.
fn settings_of_0_1() -> Settings {
    let seconds = Duration::from_secs;
    let index = |address: &str| vec![PackageIndex::parse(address).unwrap()];
    let packages = |language, names: &[&str]| {
        names.iter().map(|name| PackageName::parse(language, name).unwrap()).collect()
    };
    Settings {
        provider: "compatible".parse().unwrap(),
        model: "qwen2.5-coder".parse().unwrap(),
        base_url: Some("http://127.0.0.1:9/v1".parse().unwrap()),
        temperature: Some(0.2),
        retry_temperature: Some(0.9),
        max_output_tokens: Some(1024),
        price_input_per_mtok: Some(0.5),
        price_output_per_mtok: Some(1.5),
        guest: Language::Ruby,
        max_generation_attempts: 3,
        guardrail_recovery_budget: 2,
        execution_repair_budget: 2,
        fresh_outcome_repair_budget: 2,
        guardrail_terminal: vec![Rule::MissingCredentials],
        provider_timeout_seconds: seconds(20),
        execution_timeout_seconds: seconds(15),
        max_delegation_depth: 4,
        max_model_calls: 16,
        max_tree_tokens: Some(100_000),
        max_tree_cost_usd: Some(2.5),
        max_tree_seconds: Some(seconds(120)),
        asks_per_call: 500,
        max_argument_bytes: 1_048_576,
        content_ttl_seconds: 3600,
        max_running_workers: 2,
        max_live_workers: 64,
        queue_timeout_seconds: seconds(30),
        max_worker_restarts: 3,
        network: Network::Hosts(vec!["api.example.com".into(), "files.example.com".into()]),
        read_paths: vec!["/usr/share/zoneinfo".into(), "/etc/hostname".into()],
        write_paths: Vec::new(),
        minimum_sandbox_tier: Tier::Process,
        worker_memory_mb: 2048,
        worker_cpu_seconds: 20,
        worker_processes: 32,
        worker_open_files: 128,
        worker_file_mb: 16,
        worker_scratch_mb: 16,
        worker_scratch_files: 512,
        worker_output_mb: 8,
        manifest_mode: ManifestMode::Strict,
        standing_mode: StandingMode::Enforced,
        source_mode: SourceMode::InternalThenPublic,
        python_indexes: index("https://packages.example.com/simple/"),
        gem_sources: index("https://gems.example.com/"),
        allowed_packages: packages(Language::Python, &["numpy", "pandas"]),
        blocked_packages: packages(Language::Python, &["evil"]),
        allowed_gems: packages(Language::Ruby, &["nokogiri"]),
        blocked_gems: packages(Language::Ruby, &["evil"]),
        wheels_only: true,
        resolve_timeout_seconds: seconds(60),
        install_timeout_seconds: seconds(300),
        installer_proxy: Some("http://proxy.example.com:3128".parse().unwrap()),
        installer_hosts: vec!["files.example.com".parse().unwrap()],
        installer_memory_mb: 4096,
        installer_processes: 128,
        installer_disk_mb: 2048,
        installer_env: vec!["CC".parse().unwrap()],
        debug: true,
        ..Settings::default()
    }
}
