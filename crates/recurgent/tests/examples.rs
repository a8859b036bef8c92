//! The examples that need more than a calculator work, and what they run a second time needs no program of a model.
#![cfg(test)]

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Outcome, Runtime};
use serde_json::{Value, json};

#[expect(dead_code, reason = "its main is for people")]
#[path = "../../../examples/07_page.rs"]
mod page;
#[expect(dead_code, reason = "its main is for people")]
#[path = "../../../examples/05_triage.rs"]
mod triage;

/// A runtime with a store that goes with the folder.
fn runtime(folder: &tempfile::TempDir, script: &Arc<Scripted>) -> Runtime {
    let mut config = Config::defaults();
    config.set("state_dir", &folder.path().display().to_string()).unwrap();
    config.set("network", "loopback").unwrap();
    Runtime::builder(config).provider(Arc::<Scripted>::clone(script)).build().unwrap()
}

fn values(outcomes: &[Outcome]) -> Vec<&Value> {
    outcomes
        .iter()
        .map(|outcome| outcome.value().unwrap_or_else(|| panic!("{outcome:?}")))
        .collect()
}

#[test]
fn tickets_are_judged_and_filed() {
    let folder = tempfile::tempdir().unwrap();
    let script = Arc::new(triage::script());
    let (outcomes, queues) = triage::sort(&runtime(&folder, &script)).unwrap();
    assert_eq!(values(&outcomes), [&json!(["bug", "billing", "praise"]), &json!(["bug"])]);
    let queues = queues.lock().unwrap();
    assert_eq!(queues["bug"], ["It crashes when I save.", "The export hangs."]);
    assert_eq!((queues["billing"].len(), queues["praise"].len()), (1, 1));
    assert_eq!(script.asked(), ["triage.sort", "infer:triage.sort", "infer:triage.sort"]);
}

#[test]
fn pages_are_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let script = Arc::new(page::script());
    let address = page::serve().unwrap();
    let outcomes = page::summarise(&runtime(&folder, &script), &address).unwrap();
    let (bees, ants) =
        ("Bees dance to show the way to flowers.", "Ants follow the scent of others.");
    assert_eq!(values(&outcomes), [&json!(bees), &json!(ants)]);
    let asked = ["reader.summarise", "infer:reader.summarise", "infer:reader.summarise"];
    assert_eq!(script.asked(), asked);
    // Another process asks for nothing: the program and the answers are kept.
    let script = Arc::new(page::script());
    let again = page::summarise(&runtime(&folder, &script), &address).unwrap();
    assert_eq!(values(&again), values(&outcomes));
    assert_eq!(script.asked(), [""; 0]);
}
