//! Replays of logged calls: they match the log, or the differences are listed.
#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use lifecycle::draft::DraftFault;
use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::replay::{ReplayFault, replay};
use recurgent::{Arguments, Runtime};
use serde_json::{Map, Value, json};

/// Calls made once, and the log they left.
struct LoggedCalls {
    home: tempfile::TempDir,
    config: Config,
}

impl LoggedCalls {
    fn make(model: Scripted, session: Option<&str>, calls: &[(&str, Value)]) -> Self {
        Self::make_with_limit("64", model, session, calls)
    }

    fn make_with_limit(
        max_model_calls: &str,
        model: Scripted,
        session: Option<&str>,
        calls: &[(&str, Value)],
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        config.set("state_dir", &home.path().to_string_lossy()).unwrap();
        config.set("max_model_calls", max_model_calls).unwrap();
        let runtime = Runtime::builder(config.clone()).provider(Arc::new(model)).build().unwrap();
        for (method, argument) in calls {
            let mut builder = runtime.agent("desk").deliverable(json!({"type": "array"}));
            builder = session.map_or(builder.clone(), |session| builder.session(session));
            let arguments = Arguments { args: vec![argument.clone()], kwargs: Map::new() };
            builder.build().unwrap().call(*method, arguments).unwrap();
        }
        Self { home, config }
    }

    fn entries(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.home.path().join("recurgent.jsonl")).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn a_replay_repeats_the_attempts_and_the_outcome() {
    let model = Scripted::new();
    model.add_fault(
        "desk.list",
        DraftFault::Overloaded { message: "busy".into(), retry_after: None },
    );
    for code in [
        "import os\nos.fork()\nresult = [args[0]]",
        "tool = delegate('helper', purpose='helps')\nresult = [tool.help(n).value for n in range(args[0])]",
    ] {
        model.add("desk.list", json!({"code": code}));
    }
    let model = model
        .with("helper.help", "result = args[0] * 10")
        .with("desk.fail", "result = 'no array'")
        .with("desk.raise", "raise KeyError(args[0])");
    let calls = [("list", json!(3)), ("list", json!(2)), ("fail", json!(1)), ("raise", json!("k"))];
    let logged = LoggedCalls::make(model, None, &calls);
    let entries = logged.entries();
    let mut again = 0;
    for entry in &entries {
        let replayed =
            replay(&logged.config, &entries, entry["call_id"].as_str().unwrap()).unwrap();
        assert!(replayed.differences.is_empty(), "{entry:#}\n{:#}", replayed.to_json());
        again += usize::from(entry["depth"] == 0);
    }
    assert_eq!(again, calls.len());
    assert_eq!(logged.entries(), entries, "a replay logs nothing");
}

#[test]
fn a_replay_repeats_the_faults_of_services() {
    let busy = || DraftFault::Overloaded { message: "busy".into(), retry_after: None };
    for faults in [
        vec![DraftFault::Rejected("no such model".into())],
        vec![DraftFault::Auth("no key".into())],
        vec![DraftFault::Refused("no".into())],
        vec![DraftFault::Truncated, DraftFault::Malformed("nothing".into())],
        vec![busy(), DraftFault::Rejected("no such model".into())],
        vec![busy(), DraftFault::TimedOut(Duration::from_millis(1500))],
    ] {
        let model = Scripted::new();
        for fault in &faults {
            model.add_fault("desk.list", fault.clone());
        }
        let logged = LoggedCalls::make(model, None, &[("list", json!(3))]);
        let entries = logged.entries();
        let id = entries[0]["call_id"].as_str().unwrap();
        let replayed = replay(&logged.config, &entries, id).unwrap();
        assert!(replayed.differences.is_empty(), "{faults:?}\n{:#}", replayed.to_json());
    }
}

#[test]
fn a_call_that_its_allowance_ended_is_not_replayed() {
    let model = Scripted::new().with("desk.list", "result = []");
    let logged = LoggedCalls::make_with_limit("0", model, None, &[("list", json!(3))]);
    let entries = logged.entries();
    let fault =
        replay(&logged.config, &entries, entries[0]["call_id"].as_str().unwrap()).unwrap_err();
    assert!(fault.to_string().contains("budget_exceeded"), "{fault}");
}

/// The files of a workspace are not logged, and a program that changed them would find what it left.
#[test]
fn a_call_with_a_workspace_is_not_replayed() {
    let model = Scripted::new().with("desk.list", "result = [args[0]]");
    let logged = LoggedCalls::make(model, None, &[("list", json!(3))]);
    let mut entries = logged.entries();
    let id = entries[0]["call_id"].as_str().unwrap().to_owned();
    entries[0]["grants"]["workspace"] = json!("/srv/project");
    let fault = replay(&logged.config, &entries, &id).unwrap_err().to_string();
    assert!(fault.contains("workspace /srv/project, whose files at that time"), "{fault}");
}

#[test]
fn differences_are_listed() {
    let logged = LoggedCalls::make(
        Scripted::new().with("desk.list", "result = [args[0]]"),
        None,
        &[("list", json!(3))],
    );
    let mut entries = logged.entries();
    let id = entries[0]["call_id"].as_str().unwrap().to_owned();
    entries[0]["outcome_value"] = json!([4]);
    let replayed = replay(&logged.config, &entries, &id).unwrap();
    let fields: Vec<_> =
        replayed.differences.iter().map(|d| (d.field, &d.logged, &d.now)).collect();
    assert_eq!(fields, [("outcome_value", &json!([4]), &json!([3]))]);
}

#[test]
fn an_incomplete_log_is_an_error_that_names_what_is_missing() {
    let check = |session: Option<&str>, argument: Value, words: &str| {
        let logged = LoggedCalls::make(
            Scripted::new().with("desk.list", "result = [len(str(args[0]))]"),
            session,
            &[("list", argument)],
        );
        let entries = logged.entries();
        let fault =
            replay(&logged.config, &entries, entries[0]["call_id"].as_str().unwrap()).unwrap_err();
        assert!(matches!(fault, ReplayFault::Incomplete { .. }), "{fault:?}");
        assert!(fault.to_string().contains(words), "{fault}");
    };
    check(Some("s"), json!(1), "session \"s\"");
    check(None, json!("x".repeat(5000)), "by a preview only");
    check(None, json!("sk-canary-0123456789"), "a secret");
    let logged = LoggedCalls::make(
        Scripted::new().with("desk.list", "result = []"),
        None,
        &[("list", json!(1))],
    );
    assert!(matches!(
        replay(&logged.config, &logged.entries(), "nope"),
        Err(ReplayFault::Unknown(_))
    ));
}
