//! Checks that the log alone describes each call. The attempts of every call are rebuilt from the JSONL file and
//! compared with what observers saw while it happened. Real workers, both guests.
#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use lifecycle::draft::DraftFault;
use lifecycle::event::{Event, EventKind};
use lifecycle::log_entry::restore_programs;
use lifecycle::program::Checksum;
use recurgent::config::Config;
use recurgent::observe::Observer;
use recurgent::provider::{Provider, Scripted};
use recurgent::{Language, Runtime};
use serde_json::{Value, json};

/// A call as the log or the observers recorded it.
#[derive(Debug, Clone, PartialEq)]
struct RecordedCall {
    name: String,
    parent: Option<String>,
    depth: u64,
    attempts: Vec<Try>,
    /// `ok` or the type of the failure.
    outcome: String,
    model_calls: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Try {
    source: Option<String>,
    stages: Vec<String>,
    digest: Option<String>,
    /// Stage, code and message.
    failure: Option<(String, String, String)>,
}

// ---- From the log ----

fn rebuilt(log: &str) -> Vec<(String, RecordedCall)> {
    let entries = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut entries: Vec<Value> = entries.collect();
    restore_programs(&mut entries);
    entries.iter().map(rebuilt_call).collect()
}

fn rebuilt_call(entry: &Value) -> (String, RecordedCall) {
    let text = |field: &str| entry[field].as_str().map(str::to_owned);
    let call = RecordedCall {
        name: format!("{}.{}", text("role").unwrap(), text("method").unwrap()),
        parent: text("parent_call_id"),
        depth: entry["depth"].as_u64().unwrap(),
        attempts: entry["attempts"].as_array().unwrap().iter().map(rebuilt_try).collect(),
        outcome: text("outcome_error_type").unwrap_or_else(|| "ok".to_owned()),
        model_calls: entry["generation_attempt"].as_u64().unwrap(),
    };
    (text("call_id").unwrap(), call)
}

fn rebuilt_try(attempt: &Value) -> Try {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let failure = &attempt["failure"];
    let code = failure.pointer("/violation/violation_subtype").unwrap_or(&failure["error_type"]);
    // The digest is that of the text that is logged beside it.
    let digest = text(&attempt["code_digest"]);
    assert_eq!(digest, attempt["code"].as_str().map(|code| Checksum::of(code).to_string()));
    Try {
        source: text(&attempt["program_source"]),
        stages: attempt["stages"].as_array().unwrap().iter().filter_map(text).collect(),
        digest,
        failure: (!failure.is_null()).then(|| {
            let message = text(&failure["error_message"]).unwrap();
            (text(&failure["stage"]).unwrap(), text(code).unwrap(), message)
        }),
    }
}

// ---- From what was seen ----

#[derive(Default, Clone)]
struct Witness(Arc<Mutex<Vec<Event>>>);

impl Observer for Witness {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Witness {
    /// Calls in the order they ended, as the log has them.
    fn calls(&self) -> Vec<(String, RecordedCall)> {
        let mut open: BTreeMap<String, Vec<Try>> = BTreeMap::new();
        let mut ended = Vec::new();
        for Event { subject, kind } in self.0.lock().unwrap().iter() {
            let tries = open.entry(subject.call.0.clone()).or_default();
            match kind {
                EventKind::Started { .. } | EventKind::Preparing { .. } => {}
                // Reserved for the model: the first try of a call that has no stored program.
                EventKind::Generating { attempt, .. } => at(tries, *attempt).source = None,
                EventKind::Executing { attempt, source, code } => {
                    let one = at(tries, *attempt);
                    one.source = Some((*source).to_owned());
                    let stages = ["generated", "validated", "executed"].map(str::to_owned);
                    let skipped = usize::from(*source == "persisted");
                    one.stages = stages.into_iter().skip(skipped).collect();
                    one.digest = Some(Checksum::of(code).to_string());
                }
                EventKind::RolledBack { attempt, stage, code, message, program } => {
                    let one = at(tries, *attempt);
                    if let (Some(program), true) = (program, one.stages.is_empty()) {
                        one.digest = Some(Checksum::of(program).to_string());
                        one.stages.push("generated".to_owned());
                    }
                    one.stages.push("rolled_back".to_owned());
                    let message: String = message.chars().take(400).collect();
                    one.failure = Some(((*stage).to_owned(), code.clone(), message));
                }
                EventKind::Ended { outcome, model_calls, .. } => {
                    let kind = outcome.failure().map(|failure| failure.kind.code().to_owned());
                    let call = RecordedCall {
                        name: subject.name.clone(),
                        parent: subject.parent.as_ref().map(|parent| parent.0.clone()),
                        depth: u64::from(subject.depth),
                        attempts: tries.clone(),
                        outcome: kind.unwrap_or_else(|| "ok".to_owned()),
                        model_calls: u64::from(*model_calls),
                    };
                    ended.push((subject.call.0.clone(), call));
                }
                // Waits are progress; the attempts say why.
                EventKind::Waiting { .. } | _ => {}
            }
        }
        ended
    }
}

/// The attempt of that number, from 1.
fn at(tries: &mut Vec<Try>, attempt: usize) -> &mut Try {
    if tries.len() < attempt {
        tries.resize_with(attempt, Try::default);
    }
    &mut tries[attempt - 1]
}

// ---- Both ----

/// What happens: the key, and what the model answers to it, in both languages.
#[rustfmt::skip]
const SCRIPT: &[(&str, &str, &str)] = &[
    ("shop.plain", "result = args[0] + 1", "args[0] + 1"),
    ("shop.barred", "import os\nos.system('ls')\nresult = 1", "system('ls')"),
    ("shop.barred", "result = 1", "1"),
    ("shop.raises", "print('so far')\nresult = args[0]['none']", "puts 'so far'\nresult = args[0].fetch(:none)"),
    ("shop.raises", "result = 2", "2"),
    ("shop.regrets", "result = Outcome.error('parse_failed', 'no', True)", "Outcome.error('parse_failed', 'no', true)"),
    ("shop.regrets", "result = 3", "3"),
    ("shop.spent", "result = context['tools'][0]", "context[:tools][0]"),
    ("shop.spent", "result = [t['name'] for t in context['tools']]", "context[:tools].map { |t| t[:name] }"),
    ("shop.garbled", "def (", "def ("),
    ("shop.garbled", "result = 4", "4"),
    ("shop.stubborn", "raise RuntimeError('no')", "raise 'no'"),
    ("shop.stubborn", "raise RuntimeError('no')", "raise 'no'"),
    ("shop.nested", "h = delegate('helper', purpose='help')\nh.work(1)\nraise RuntimeError('later')",
                    "h = delegate('helper', purpose: 'help')\nh.work(1)\nraise 'later'"),
    ("shop.nested", "result = delegate('helper', purpose='help').work(2).value", "result = delegate('helper', purpose: 'help').work(2).value"),
    ("helper.work", "result = args[0] * 0 + undefined", "result = args[0] * 0 + undefined"),
    ("helper.work", "result = args[0] * 10", "args[0] * 10"),
    ("shop.claims", "result = {'provenance': {'sources': [{'uri': 'http://news.example', 'retrieval_mode': 'live'}]}}",
                    "{ provenance: { sources: [{ uri: 'http://news.example', retrieval_mode: 'live' }] } }"),
    ("shop.claims", "result = 5", "5"),
    ("shop.itself", "result = tool(''.join(['sh', 'op'])).plain(1)", "tool(%w[sh op].join).plain(1)"),
    ("shop.itself", "result = 6", "6"),
    ("shop.attaches", "for h in [delegate('helper', purpose='help')]:\n    h.work = lambda n: n\nresult = 1",
                      "[delegate('helper', purpose: 'help')].each { |h| h.define_singleton_method(:work) { 1 } }"),
    ("shop.attaches", "result = 7", "7"),
    ("shop.baked", "result = 'sugar' * 2", "'sugar' * 2"),
    ("shop.baked", "import os\nos.system('ls')\nresult = args[0]", "system('ls', args[0])"),
    ("shop.repaired", "result = 10 // args[0]", "10 / args[0]"),
    ("shop.repaired", "result = 10 // args[0] if args[0] else 0", "args[0].zero? ? 0 : 10 / args[0]"),
];

#[test]
fn the_log_alone_rebuilds_what_observers_saw() {
    for language in Language::ALL {
        let state = tempfile::tempdir().unwrap();
        let model = Arc::new(Scripted::new());
        model.add_fault("shop.plain", DraftFault::Unavailable("down".to_owned()));
        model.add("shop.regrets", json!({"code": " "}));
        for (key, python, ruby) in SCRIPT {
            let code = if language == Language::Python { python } else { ruby };
            model.add(key, json!({"code": code}));
        }
        model.add_fault("shop.refused", DraftFault::Refused("no".to_owned()));
        let witness = Witness::default();
        let mut config = Config::defaults();
        config.set("state_dir", &state.path().display().to_string()).unwrap();
        let runtime = Runtime::builder(config)
            .provider(model as Arc<dyn Provider>)
            .observer(Box::new(witness.clone()))
            .build()
            .unwrap();
        let shop = runtime.agent("shop").guest(language).build().unwrap();
        for method in [
            "plain", "barred", "raises", "regrets", "spent", "garbled", "stubborn", "nested",
            "claims", "itself", "attaches", "refused",
        ] {
            let _ = shop.call(method, (7,)).unwrap();
        }
        let _ = shop.call("baked", ("sugar",)).unwrap();
        for argument in [5, 0] {
            let _ = shop.call("repaired", (argument,)).unwrap();
        }
        let log = std::fs::read_to_string(state.path().join("recurgent.jsonl")).unwrap();
        compare(&rebuilt(&log), &witness.calls());
        lanes_are_logged(&log);
        violations_are_logged(&log);
        feedback_is_logged(&log);
    }
}

fn compare(rebuilt: &[(String, RecordedCall)], seen: &[(String, RecordedCall)]) {
    assert_eq!(rebuilt.len(), seen.len());
    for ((call, rebuilt), (seen_call, seen)) in rebuilt.iter().zip(seen) {
        assert_eq!(call, seen_call, "children before parents, in the order they ended");
        let mut seen = seen.clone();
        for (seen, rebuilt) in seen.attempts.iter_mut().zip(&rebuilt.attempts) {
            // Only a program that runs is announced with its origin.
            if seen.source.is_none() {
                seen.source.clone_from(&rebuilt.source);
            }
        }
        assert_eq!(*rebuilt, seen, "{call}");
    }
}

/// Which lane each attempt used up, per call; `-` for none.
fn lanes_are_logged(log: &str) {
    let mut lanes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let name =
            format!("{}.{}", entry["role"].as_str().unwrap(), entry["method"].as_str().unwrap());
        let lanes_of_call = entry["attempts"].as_array().unwrap().iter();
        let lanes_of_call: Vec<&str> =
            lanes_of_call.map(|attempt| attempt["lane"].as_str().unwrap_or("-")).collect();
        lanes.entry(name).or_default().push(lanes_of_call.join(" "));
    }
    let expected = json!({
        "helper.work": ["execution -", "-"],
        "shop.plain": ["transport -"],
        "shop.barred": ["guardrail -"],
        "shop.raises": ["execution -"],
        "shop.regrets": ["generation outcome -"],
        "shop.spent": ["guardrail guardrail"],
        "shop.garbled": ["generation -"],
        "shop.stubborn": ["execution execution"],
        "shop.nested": ["execution -"],
        "shop.claims": ["guardrail -"],
        "shop.itself": ["guardrail -"],
        "shop.attaches": ["guardrail -"],
        "shop.baked": ["guardrail guardrail -"],
        "shop.refused": ["-"],
        "shop.repaired": ["-", "- -"],
    });
    assert_eq!(json!(lanes), expected);
}

/// What only showed when the program ran is typed and placed like what the parser sees.
fn violations_are_logged(log: &str) {
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let tried: BTreeMap<String, Value> = entries
        .map(|entry| (entry["method"].as_str().unwrap().to_owned(), entry["attempts"][0].clone()))
        .collect();
    for (method, kind, subtype, placed) in [
        ("claims", "external_data_violation", "false_external_provenance", false),
        ("itself", "tool_registry_violation", "self_materialization", true),
        ("attaches", "tool_registry_violation", "singleton_method_mutation", true),
    ] {
        let attempt = &tried[method];
        let violation = &attempt["failure"]["violation"];
        assert_eq!(violation["violation_type"], kind, "{attempt}");
        assert_eq!(violation["violation_subtype"], subtype, "{attempt}");
        assert_eq!(violation["violation_location"].is_object(), placed, "{attempt}");
        assert!(attempt["stages"].as_array().unwrap().contains(&json!("executed")), "{attempt}");
    }
}

/// Every field seed 003 asks for, in every line.
#[rustfmt::skip]
const FIELDS: [&str; 10] = [
    "attempt_id", "attempt_stage", "validation_failure_type", "rollback_applied", "retry_feedback_injected",
    "guardrail_recovery_attempts", "guardrail_retry_exhausted", "outcome_repair_attempts", "outcome_repair_triggered",
    "outcome_repair_retry_exhausted",
];

/// A retry after the service failed has nothing to be expected; every other one has.
fn feedback_is_logged(log: &str) {
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        assert!(FIELDS.iter().all(|field| entry.get(field).is_some()), "{entry}");
        let tries = entry["attempts"].as_array().unwrap();
        let expected = tries.len() > 1 && tries[0]["failure"]["error_type"] != "provider";
        assert_eq!(entry["retry_feedback_injected"], expected, "{}", entry["method"]);
    }
}
