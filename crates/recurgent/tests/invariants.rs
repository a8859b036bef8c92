//! Invariants of ARCHITECTURE.md that no other suite checks.
#![cfg(test)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lifecycle::event::Event;
use recurgent::config::Config;
use recurgent::observe::Observer;
use recurgent::provider::Scripted;
use recurgent::{Outcome, Runtime};
use serde_json::json;

/// An observer that fails at every event.
struct Panicking(Arc<AtomicUsize>);

impl Observer for Panicking {
    fn event(&self, _: &Event) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("this observer fails at every event");
    }
}

/// Two calls of one method, by a new and by a stored program, with this log.
fn two_calls(state: &Path, log: &str, observer: Option<Panicking>) -> [Outcome; 2] {
    let mut config = Config::defaults();
    config.set("state_dir", &state.display().to_string()).unwrap();
    config.set("log", log).unwrap();
    let script = Scripted::new();
    script.add("doubler.double", json!({"code": "def double(x):\n    return 2 * x\n"}));
    let mut builder = Runtime::builder(config).provider(Arc::new(script));
    if let Some(observer) = observer {
        builder = builder.observer(Box::new(observer));
    }
    let runtime = builder.build().unwrap();
    let doubler = runtime.agent("doubler").build().unwrap();
    [2, 3].map(|x| doubler.call("double", (x,)).unwrap())
}

#[test]
fn an_observer_that_panics_changes_no_call() {
    let state = tempfile::tempdir().unwrap();
    let events = Arc::new(AtomicUsize::new(0));
    let outcomes = two_calls(state.path(), "off", Some(Panicking(Arc::clone(&events))));
    assert_eq!(outcomes.map(|outcome| outcome.value().cloned()), [Some(json!(4)), Some(json!(6))]);
    assert!(events.load(Ordering::SeqCst) >= 4, "both calls start and end");
}

#[test]
fn a_log_that_cannot_be_written_changes_no_call() {
    let state = tempfile::tempdir().unwrap();
    let folder = state.path().display().to_string();
    // A full device, a folder, and a file in a folder that does not exist.
    for log in ["/dev/full".to_owned(), folder.clone(), format!("{folder}/missing/log.jsonl")] {
        let outcomes = two_calls(state.path(), &log, None);
        assert_eq!(outcomes[1].value(), Some(&json!(6)), "{log}: {:?}", outcomes[1]);
    }
}

/// The write transactions in the log of a SQLite database: frames with a size in their header end one.
fn transactions(state: &Path) -> usize {
    let wal = std::fs::read(state.join("recurgent.sqlite-wal")).unwrap();
    let word = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
    let frame_bytes = 24 + usize::try_from(word(8)).unwrap();
    (32..wal.len())
        .step_by(frame_bytes)
        .filter(|&frame| frame + frame_bytes <= wal.len())
        // Frames of an earlier use of the file have another salt.
        .filter(|&frame| word(frame + 8) == word(16) && word(frame + 12) == word(20))
        .filter(|&frame| word(frame + 4) != 0)
        .count()
}

#[test]
fn a_call_writes_the_store_once_and_a_rejected_attempt_never() {
    let state = tempfile::tempdir().unwrap();
    let mut config = Config::defaults();
    config.set("state_dir", &state.path().display().to_string()).unwrap();
    let script = Scripted::new();
    script.add("doubler.triple", json!({"code": "def triple(x):\n    return 3 * x\n"}));
    script.add("doubler.double", json!({"code": "context['dirty'] = 1\nraise ValueError('no')\n"}));
    script.add("doubler.double", json!({"code": "def double(x):\n    return 2 * x\n"}));
    let runtime = Runtime::builder(config).provider(Arc::new(script)).build().unwrap();
    let doubler = runtime.agent("doubler").session("desk").build().unwrap();
    // The first call of the store also writes its files.
    assert_eq!(doubler.call("triple", (1,)).unwrap().value(), Some(&json!(3)));
    for call in 0..5 {
        runtime.wait_for_trials();
        let before = transactions(state.path());
        let outcome = doubler.call("double", (call,)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(2 * call)));
        runtime.wait_for_trials();
        assert_eq!(
            transactions(state.path()) - before,
            1,
            "call {call}; the first has a rejected attempt"
        );
    }
}
