//! Contracts end to end: what programs write is tolerated with a note, new programs must meet examples, and a tool is
//! called under the contract it was made with. Real workers, both guests.
#![cfg(test)]

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Language, Runtime};
use serde_json::{Value, json};

/// A runtime with a scripted model and a log.
struct Fixture {
    language: Language,
    model: Arc<Scripted>,
    runtime: Runtime,
    state: tempfile::TempDir,
}

fn check(behaviour: impl Fn(&Fixture)) {
    for language in Language::ALL {
        let state = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        config.set("state_dir", &state.path().display().to_string()).unwrap();
        let model = Arc::new(Scripted::new());
        let provider = Arc::<Scripted>::clone(&model);
        let runtime = Runtime::builder(config).provider(provider).build().unwrap();
        behaviour(&Fixture { language, model, runtime, state });
    }
}

impl Fixture {
    fn writes(&self, key: &str, python: &str, ruby: &str) {
        let code = match self.language {
            Language::Python => python,
            Language::Ruby => ruby,
        };
        self.model.add(key, json!({"code": code}));
    }

    /// The log entries of one role.
    fn entries(&self, role: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.state.path().join("recurgent.jsonl")).unwrap();
        let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.filter(|entry| entry["role"] == role).collect()
    }
}

/// What recorded programs of another runtime write: unknown options and odd constraints.
#[test]
fn an_odd_contract_of_a_program_is_noted_and_the_rest_is_enforced() {
    check(|fixture| {
        fixture.writes(
            "boss.total",
            "def total(x):\n    adder = delegate('adder', purpose='add', capabilities=['math'], constraints=['be exact'], \
             deliverable={'type': 'numeric', 'min_items': 1})\n    return adder.add(x).value",
            "def total(x)\n  adder = delegate('adder', purpose: 'add', capabilities: ['math'], constraints: ['be exact'], \
             deliverable: { type: 'numeric', min_items: 1 })\n  adder.add(x).value\nend",
        );
        fixture.writes("adder.add", "def add(x):\n    return str(x)", "def add(x) = x.to_s");
        fixture.writes("adder.add", "def add(x):\n    return x + 5", "def add(x) = x + 5");
        let agent = fixture.runtime.agent("boss").guest(fixture.language).build().unwrap();
        let outcome = agent.call("total", (3,)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(8)), "{outcome:?}");
        let entries = fixture.entries("adder");
        let notes = entries[0]["contract_notes"].to_string();
        for expected in ["capabilities", "constraints", "min_items"] {
            assert!(notes.contains(expected), "{notes}");
        }
        let first = &entries[0]["attempts"][0]["failure"];
        assert_eq!(first["error_type"], "contract_violation", "a text is not a number: {first}");
    });
}

/// The contract of a tool is kept as it was made, also one that a person could not have written: what of it is
/// understood holds for every later call of the tool.
#[test]
fn an_odd_contract_holds_when_its_tool_is_called_again() {
    check(|fixture| {
        fixture.writes(
            "boss.total",
            "def total(x):\n    adder = delegate('adder', purpose='add', deliverable={'type': 'numeric', 'min_items': 1})\n    \
             return adder.add(x).value",
            "def total(x)\n  adder = delegate('adder', purpose: 'add', deliverable: { type: 'numeric', min_items: 1 })\n  \
             adder.add(x).value\nend",
        );
        fixture.writes("adder.add", "def add(x):\n    return x + 5", "def add(x) = x + 5");
        let boss = fixture.runtime.agent("boss").guest(fixture.language).build().unwrap();
        assert_eq!(boss.call("total", (3,)).unwrap().value(), Some(&json!(8)));
        for text in ["one", "two"] {
            let code = format!("def spell(x):\n    return '{text}' + str(x)");
            let ruby = format!("def spell(x) = '{text}' + x.to_s");
            fixture.writes("adder.spell", &code, &ruby);
        }
        let adder = boss.tool("adder").unwrap();
        let outcome = adder.call("spell", (3,)).unwrap();
        let code = outcome.failure().map(|failure| failure.kind.code());
        assert_eq!(code, Some("contract_violation"), "{outcome:?}");
    });
}

/// A program that was kept before its tool was registered runs for calls by the tool's name; the registered contract holds
/// for it, and what breaks the contract is repaired.
#[test]
fn a_registered_contract_holds_for_programs_made_before_it() {
    check(|fixture| {
        fixture.writes("adder.add", "def add(x):\n    return x + 5", "def add(x) = x + 5");
        fixture.writes("adder.spell", "def spell(x):\n    return str(x)", "def spell(x) = x.to_s");
        let plain = fixture.runtime.agent("adder").guest(fixture.language).build().unwrap();
        assert_eq!(plain.call("add", (3,)).unwrap().value(), Some(&json!(8)));
        assert_eq!(plain.call("spell", (3,)).unwrap().value(), Some(&json!("3")));
        let boss = fixture.runtime.agent("boss").guest(fixture.language).build().unwrap();
        boss.delegate("adder")
            .purpose("add")
            .deliverable(json!({"type": "number"}))
            .build()
            .unwrap();
        let tool = fixture.runtime.agent("adder").guest(fixture.language).build().unwrap();
        assert_eq!(tool.call("add", (4,)).unwrap().value(), Some(&json!(9)));
        assert_eq!(fixture.model.asked().len(), 2, "the stored program meets the contract");
        fixture.writes("adder.spell", "def spell(x):\n    return x", "def spell(x) = x");
        assert_eq!(tool.call("spell", (4,)).unwrap().value(), Some(&json!(4)));
        assert_eq!(tool.call("spell", (5,)).unwrap().value(), Some(&json!(5)));
        assert_eq!(fixture.model.asked().len(), 3, "one repair, which is kept");
        let entries = fixture.entries("adder");
        let sources: Vec<&Value> = entries.iter().map(|entry| &entry["contract_source"]).collect();
        assert_eq!(sources, ["none", "none", "hash", "hash", "hash"]);
        let programs = fixture.runtime.programs().list(None).unwrap();
        let counts: Vec<_> = programs
            .iter()
            .map(|it| {
                let program = &it.program.current;
                (program.method.as_str(), program.successes, program.failures)
            })
            .collect();
        assert!(counts.contains(&("add", 2, 0)) && counts.contains(&("spell", 1, 0)), "{counts:?}");
    });
}

/// The registry is a view: plain data in it holds for the call.
#[test]
fn plain_data_written_to_the_registry_is_tolerated_with_a_note() {
    check(|fixture| {
        fixture.writes(
            "boss.list",
            "def list(x):\n    context['tools']['finder'] = {'purpose': 'find', 'n': x}\n    return context['tools']['finder']['n']",
            "def list(x)\n  context[:tools]['finder'] = { purpose: 'find', n: x }\n  context[:tools]['finder'][:n]\nend",
        );
        let agent = fixture.runtime.agent("boss").guest(fixture.language).build().unwrap();
        let outcome = agent.call("list", (3,)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(3)), "{outcome:?}");
        let noted = &fixture.entries("boss")[0]["attempts"][0]["stderr"];
        assert!(noted.to_string().contains("this call only"), "{noted}");
    });
}

/// A program that gives the right answer to the call and a wrong one to an example is not accepted.
#[test]
fn a_new_program_must_meet_the_examples() {
    check(|fixture| {
        fixture.writes("c.double", "def double(x):\n    return x + 1", "def double(x) = x + 1");
        fixture.writes("c.double", "def double(x):\n    return x * 2", "def double(x) = x * 2");
        let examples = json!([{"args": [4], "value": 8.0}, {"args": [0], "value": 0}]);
        let builder = fixture.runtime.agent("c").guest(fixture.language);
        let agent = builder.contract_field("examples", examples).build().unwrap();
        let outcome = agent.call("double", (1,)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(2)), "{outcome:?}");
        assert_eq!(fixture.model.asked().len(), 2);
        let entry = &fixture.entries("c")[0];
        let failure = &entry["attempts"][0]["failure"];
        assert_eq!(failure["metadata"]["mismatch"], "example_missed", "{failure}");
        assert_eq!(failure["metadata"]["expected"], "8.0", "{failure}");
        assert_eq!(failure["metadata"]["actual"], "5", "{failure}");
        assert_eq!((&entry["examples_given"], &entry["examples_checked"]), (&json!(2), &json!(2)));
        assert_eq!(agent.call("double", (21,)).unwrap().value(), Some(&json!(42)));
        assert_eq!(fixture.model.asked().len(), 2, "the program is stored");
    });
}

/// Only programs that answer from their arguments and memory alone can be run on examples.
#[test]
fn examples_of_an_impure_program_are_marked_unchecked() {
    check(|fixture| {
        fixture.writes(
            "c.stamp",
            "import time\ndef stamp(x):\n    return [x, time.time() > 0]",
            "def stamp(x) = [x, Time.now.to_i > 0]",
        );
        let examples = json!([{"args": [4], "value": "never"}]);
        let builder = fixture.runtime.agent("c").guest(fixture.language);
        let agent = builder.contract_field("examples", examples).build().unwrap();
        let outcome = agent.call("stamp", (1,)).unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
        let entry = &fixture.entries("c")[0];
        assert_eq!((&entry["examples_given"], &entry["examples_checked"]), (&json!(1), &json!(0)));
    });
}

/// An error for a person suggests what was probably meant.
#[test]
fn a_typo_in_a_persons_contract_is_refused() {
    check(|fixture| {
        let builder =
            fixture.runtime.agent("c").deliverable(json!({"type": "array", "min_itmes": 1}));
        let fault = builder.build().unwrap_err().to_string();
        assert!(fault.contains("did you mean `min_items`?"), "{fault}");
    });
}
