//! Checks that what is known of a failed attempt reaches the log: its worker, its output, its code, its declaration and
//! its backtrace. Real workers, both guests.
#![cfg(test)]

use std::sync::Arc;

use lifecycle::log_entry::restore_programs;
use lifecycle::program::Checksum;
use recurgent::config::Config;
use recurgent::provider::{Provider, Scripted};
use recurgent::{Language, Runtime};
use serde_json::{Value, json};

/// Logs one call of `shop.work` whose model answers with these payloads in order.
struct Fixture {
    language: Language,
    payloads: Vec<Value>,
    settings: &'static [(&'static str, &'static str)],
    deliverable: Option<Value>,
    calls: usize,
}

impl Fixture {
    fn new(language: Language, payloads: impl IntoIterator<Item = Value>) -> Self {
        let payloads = payloads.into_iter().collect();
        Self { language, payloads, settings: &[], deliverable: None, calls: 1 }
    }

    /// The entry of the last call.
    fn logged(self) -> Value {
        let state = tempfile::tempdir().unwrap();
        let model = Arc::new(Scripted::new());
        for payload in self.payloads {
            model.add("shop.work", payload);
        }
        let mut config = Config::defaults();
        config.set("state_dir", &state.path().display().to_string()).unwrap();
        for (key, value) in self.settings {
            config.set(key, value).unwrap();
        }
        let runtime =
            Runtime::builder(config).provider(model as Arc<dyn Provider>).build().unwrap();
        let mut builder = runtime.agent("shop").guest(self.language);
        if let Some(deliverable) = self.deliverable {
            builder = builder.deliverable(deliverable);
        }
        let shop = builder.build().unwrap();
        for _ in 0..self.calls {
            let _ = shop.call("work", (7,)).unwrap();
        }
        let log = std::fs::read_to_string(state.path().join("recurgent.jsonl")).unwrap();
        let entries = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut entries: Vec<Value> = entries.collect();
        conforms(entries.last().unwrap());
        restore_programs(&mut entries);
        entries.pop().unwrap()
    }
}

fn conforms(entry: &Value) {
    let schema = include_str!("../../../specs/log-entry.schema.json");
    let schema =
        jsonschema::validator_for(&schema.parse::<serde_json::StandardValue>().unwrap()).unwrap();
    schema
        .validate(&serde_json::to_standard(entry))
        .unwrap_or_else(|fault| panic!("{fault} at {}", fault.instance_path()));
}

fn code(text: &str) -> Value {
    json!({"code": text})
}

/// The text for a language.
fn of<'a>(language: Language, python: &'a str, ruby: &'a str) -> &'a str {
    match language {
        Language::Python => python,
        Language::Ruby => ruby,
    }
}

/// Programs that end their worker, and how their attempt says so.
#[test]
fn the_log_has_the_process_output_and_end_of_a_lost_worker() {
    for language in Language::ALL {
        let signal = of(
            language,
            "print('so far', args[0])\ngetattr(__import__('o' + 's'), 'ab' + 'ort')()",
            "puts \"so far #{args[0]}\"\nProcess.public_send('ki' + 'll', 'ABRT', $$)\nsleep",
        );
        let status = of(
            language,
            "print('so far', args[0])\ngetattr(__import__('o' + 's'), '_ex' + 'it')(3)",
            "puts \"so far #{args[0]}\"\nProcess.public_send('ex' + 'it!', 3)",
        );
        let endless = of(
            language,
            "print('so far', args[0])\nwhile True: pass",
            "puts \"so far #{args[0]}\"\nloop { }",
        );
        for (program, kind, status, signal) in [
            (signal, "worker_crash", Value::Null, json!("SIGABRT")),
            (status, "worker_crash", json!(3), Value::Null),
            (endless, "timeout", Value::Null, Value::Null),
        ] {
            let settings = &[("execution_timeout_seconds", "6"), ("execution_repair_budget", "0")];
            let entry = Fixture { settings, ..Fixture::new(language, [code(program)]) }.logged();
            assert_eq!(entry["outcome_error_type"], kind, "{entry}");
            let attempt = &entry["attempts"][0];
            assert!(attempt["worker_pid"].as_u64().is_some(), "{attempt}");
            assert_eq!(attempt["worker_pid"], entry["worker_pid"]);
            assert_eq!(attempt["worker_restart_count"], 0);
            assert_eq!(attempt["stdout"], "so far 7\n", "{attempt}");
            assert_eq!(attempt["worker_exit_status"], status, "{attempt}");
            assert_eq!(attempt["worker_signal"], signal, "{attempt}");
        }
    }
}

#[test]
fn an_attempt_rejected_for_its_declaration_keeps_it_and_the_program() {
    for language in Language::ALL {
        let program = "result = args[0]";
        let payload = json!({"code": program, "dependencies": "slugify"});
        let another = code("result = [args[0]]"); // a text is logged once
        let attempt = &Fixture::new(language, [payload, another]).logged()["attempts"][0];
        assert_eq!(attempt["failure"]["error_type"], "invalid_dependency_manifest", "{attempt}");
        assert_eq!(attempt["program_dependencies"], "slugify");
        assert_eq!(attempt["code"], program);
        assert_eq!(attempt["code_digest"], Checksum::of(program).as_str());
        assert_eq!(attempt["stages"], json!(["generated", "rolled_back"]));
    }
}

#[test]
fn debug_adds_the_backtrace_of_the_last_exception() {
    for language in Language::ALL {
        let program = of(
            language,
            "def work(x):\n    return deeper(x)\ndef deeper(x):\n    return x['none']",
            "def work(x) = deeper(x)\ndef deeper(x)\n  x.fetch(:none)\nend",
        );
        let settings: &[_] = &[("execution_repair_budget", "0"), ("debug", "true")];
        let entry = Fixture { settings, ..Fixture::new(language, [code(program)]) }.logged();
        let frames: Vec<&str> =
            entry["error_backtrace"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let (inner, outer) = of(language, "program.py:4 program.py:2", "program.rb:3 program.rb:1")
            .split_once(' ')
            .unwrap();
        let at = |place: &str| frames.iter().position(|frame| frame.starts_with(place));
        assert!(at(inner).unwrap() < at(outer).unwrap(), "{frames:?}");
        let quiet = Fixture {
            settings: &[("execution_repair_budget", "0")],
            ..Fixture::new(language, [code(program)])
        };
        assert_eq!(quiet.logged().get("error_backtrace"), None);
    }
}

#[test]
fn a_repaired_breach_of_a_contract_is_logged() {
    for language in Language::ALL {
        let payloads = [code("result = {'movies': 1}"), code("result = {'movies': [args[0]]}")];
        let payloads = match language {
            Language::Python => payloads,
            Language::Ruby => [code("{ movies: 1 }"), code("{ movies: [args[0]] }")],
        };
        let deliverable = json!({
            "type": "object",
            "constraints": {"properties": {"movies": {"type": "array"}}},
        });
        let fixture =
            Fixture { deliverable: Some(deliverable), ..Fixture::new(language, payloads) };
        let entry = fixture.logged();
        assert_eq!(entry["outcome_status"], "ok", "{entry}");
        assert_eq!(entry["contract_validation_passed"], true);
        assert_eq!(entry["contract_validation_mismatch"], "property_type_mismatch", "{entry}");
        assert!(entry["contract_validation_path"].as_str().unwrap().contains("movies"), "{entry}");
        let failure = &entry["attempts"][0]["failure"];
        assert_eq!(failure["metadata"]["mismatch"], "property_type_mismatch", "{failure}");
        assert_eq!(failure["stage"], "outcome_policy");
    }
}

#[test]
fn an_error_that_drops_changes_to_memory_is_logged_as_rolled_back() {
    for language in Language::ALL {
        let changing = of(
            language,
            "context['seen'] = args[0]\nresult = Outcome.error('not_found', 'no', False)",
            "context[:seen] = args[0]\nOutcome.error('not_found', 'no', false)",
        );
        let pure = of(
            language,
            "result = Outcome.error('not_found', f'no {args[0]}', False)",
            "Outcome.error('not_found', \"no #{args[0]}\", false)",
        );
        for (program, dropped) in [(changing, true), (pure, false)] {
            let entry = Fixture::new(language, [code(program)]).logged();
            assert_eq!(entry["outcome_error_type"], "not_found", "{entry}");
            assert_eq!(entry["rollback_applied"], dropped, "{entry}");
        }
    }
}

#[test]
fn a_stored_program_is_not_logged_as_generated() {
    for language in Language::ALL {
        let program = of(language, "result = args[0] + 1", "args[0] + 1");
        let entry = Fixture { calls: 2, ..Fixture::new(language, [code(program)]) }.logged();
        assert_eq!(entry["program_source"], "persisted", "{entry}");
        assert_eq!(entry["attempts"][0]["stages"], json!(["validated", "executed"]));
    }
}

#[test]
fn a_violation_is_logged_with_the_stage_it_was_found_in() {
    let claims = of(
        Language::Python,
        "result = {'n': args[0], 'provenance': {'sources': [{'uri': 'http://news.example', 'retrieval_mode': 'live'}]}}",
        "",
    );
    let itself = "result = tool(''.join(['sh', 'op'])).plain(args[0])";
    let barred = "import os\nos.system('ls')\nresult = args[0]";
    for (program, stage) in
        [(claims, "outcome_policy"), (itself, "execution"), (barred, "validation")]
    {
        let payloads = [code(program), code("result = args[0]")];
        let entry = Fixture::new(Language::Python, payloads).logged();
        assert_eq!(entry["attempts"][0]["failure"]["stage"], stage, "{entry}");
        assert_eq!(entry["latest_failure_stage"], stage);
    }
}

/// A program that runs past its limit is asked to end before it is killed. The time it has for that is short, so on a
/// busy machine it may be killed before it got to run: it is tried again.
#[test]
fn a_program_past_its_limit_is_asked_to_end_first() {
    for language in Language::ALL {
        let program = of(
            language,
            "handle = getattr(__import__('sig' + 'nal'), 'sig' + 'nal')\nhandle(15, lambda *_: print('cleaned up'))\nwhile args[0]: pass",
            "Signal.public_send('tr' + 'ap', 'TERM') { puts 'cleaned up' }\nloop { args[0] }",
        );
        let cleaned = || {
            let settings = &[("execution_timeout_seconds", "2"), ("execution_repair_budget", "0")];
            let entry = Fixture { settings, ..Fixture::new(language, [code(program)]) }.logged();
            assert_eq!(entry["outcome_error_type"], "timeout", "{entry}");
            entry["attempts"][0]["stdout"] == "cleaned up\n"
        };
        assert!((0..20).any(|_| cleaned()), "{language} was killed at once 20 times");
    }
}
