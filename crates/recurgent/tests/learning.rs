//! What calls teach: weak successes are noted and change nothing, corrections are distinguished from other questions, and
//! the evaluator says what to do. Real workers, both guests, both stores.
#![cfg(test)]

use std::path::Path;
use std::sync::Arc;

use lifecycle::pattern::PatternEvent;
use lifecycle::recommendation::{Recommendation, RecommendedAction};
use lifecycle::request::Role;
use recurgent::config::Config;
use recurgent::provider::{Provider, Scripted};
use recurgent::store::Store;
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Agent, Language, Runtime, upkeep};
use serde_json::{Map, Value, json};

/// A cinema that shows nothing.
const EMPTY: [&str; 2] = [
    "def movies(where, **more):\n    return {'status': 'success_no_parse', 'movies': [m for m in [] if m == where]}",
    "def movies(where, **more)\n  { 'status' => 'success_no_parse', 'movies' => [].select { |m| m == where } }\nend",
];
/// One that does.
const FULL: [&str; 2] = [
    "def movies(where, **more):\n    return {'status': 'ok', 'movies': [where]}",
    "def movies(where, **more)\n  { 'status' => 'ok', 'movies' => [where] }\nend",
];

/// A runtime with one store and a model that answers `guide.movies` with these programs.
struct Fixture {
    runtime: Runtime,
    model: Arc<Scripted>,
    language: Language,
    folder: tempfile::TempDir,
}

fn check(behaviour: impl Fn(Fixture)) {
    for language in Language::ALL {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = SqliteStore::open(&folder.path().join("store.db")).unwrap();
        behaviour(Fixture::new(language, folder, Arc::new(sqlite)));
        let folder = tempfile::tempdir().unwrap();
        behaviour(Fixture::new(language, folder, Arc::new(SqliteStore::in_memory().unwrap())));
    }
}

impl Fixture {
    fn new(language: Language, folder: tempfile::TempDir, store: Arc<dyn Store>) -> Self {
        let mut config = Config::defaults();
        let log = folder.path().join("log.jsonl");
        config.set("state_dir", &folder.path().display().to_string()).unwrap();
        config.set("log", &log.display().to_string()).unwrap();
        let model = Arc::new(Scripted::new());
        for program in [EMPTY, FULL] {
            let index = Language::ALL.iter().position(|known| *known == language).unwrap();
            model.add("guide.movies", json!({"code": program[index]}));
        }
        let provider = Arc::<Scripted>::clone(&model) as Arc<dyn Provider>;
        let runtime = Runtime::builder(config).provider(provider).store(store).build().unwrap();
        Self { runtime, model, language, folder }
    }

    fn agent(&self, deliverable: Option<Value>) -> Agent {
        let agent = self.runtime.agent("guide").guest(self.language);
        match deliverable {
            Some(deliverable) => agent.deliverable(deliverable).build().unwrap(),
            None => agent.build().unwrap(),
        }
    }

    fn patterns(&self) -> Vec<PatternEvent> {
        self.runtime.store().patterns(&Role::parse("guide").unwrap()).unwrap()
    }

    fn recommended(&self) -> Vec<Recommendation> {
        upkeep::recommend(self.runtime.store(), None).unwrap()
    }

    fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("log.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn weak() -> Value {
    json!({"status": "success_no_parse", "movies": []})
}

#[test]
fn with_the_constraint_an_empty_list_is_repaired_in_the_same_call() {
    check(|fixture| {
        let deliverable = json!({
            "type": "object",
            "required": ["movies"],
            "constraints": {"properties": {"movies": {"type": "array", "min_items": 1}}},
        });
        let guide = fixture.agent(Some(deliverable));
        let outcome = guide.call("movies", ("Oslo",)).unwrap();
        assert_eq!(outcome.value(), Some(&json!({"status": "ok", "movies": ["Oslo"]})));
        let [entry] = &fixture.log()[..] else { panic!() };
        assert_eq!(entry["attempt_failures"][0]["error_type"], "contract_violation");
        assert_eq!(entry["outcome_repair_attempts"], 1);
        assert_eq!(
            (&entry["weak_success"], &entry["weak_success_signals"]),
            (&json!(false), &json!([]))
        );
        assert_eq!(fixture.recommended(), []);
    });
}

#[test]
fn without_it_a_weak_success_is_noted_and_stays_a_success() {
    check(|fixture| {
        let outcome = fixture.agent(None).call("movies", ("Oslo",)).unwrap();
        assert_eq!(outcome.value(), Some(&weak()));
        let [entry] = &fixture.log()[..] else { panic!() };
        assert_eq!(entry["outcome_status"], "ok");
        assert_eq!(entry["weak_success"], true);
        assert_eq!(
            entry["weak_success_signals"],
            json!([
                {"signal": "weak_status", "path": "status", "text": "success_no_parse"},
                {"signal": "empty_array", "path": "movies"},
            ])
        );
        let [event] = &fixture.patterns()[..] else { panic!() };
        assert!(event.is_weak());
        assert_eq!(event.program_source.as_deref(), Some("generated"));
        assert_eq!(fixture.recommended(), [], "once is not a pattern");
    });
}

#[test]
fn asked_again_it_asks_for_the_constraint() {
    check(|fixture| {
        let guide = fixture.agent(None);
        assert_eq!(guide.call("movies", ("Oslo",)).unwrap().value(), Some(&weak()));
        let again = kwargs("Oslo", "day", "tonight");
        assert_eq!(guide.call("movies", again).unwrap().value(), Some(&weak()), "from storage");

        let [first, second] = &fixture.patterns()[..] else { panic!() };
        assert_eq!(second.program_source.as_deref(), Some("persisted"));
        let correction = second.user_correction.as_ref().unwrap();
        assert_eq!(correction.correction_of_call_id, first.call_id);
        assert_eq!(
            (correction.signal.as_str(), correction.of_weak_success),
            ("temporal_reask", true)
        );
        assert_eq!(correction.shared_words, ["oslo"]);
        let entry = &fixture.log()[1];
        assert_eq!(entry["user_correction_detected"], true);
        assert_eq!(entry["user_correction_reference_call_id"], json!(first.call_id));

        let found = fixture.recommended();
        let by_text = |text: &str| {
            found.iter().find(|r| r.constraint.as_ref().is_some_and(|c| c.text == text)).unwrap()
        };
        let strengthen = by_text("movies: min_items 1");
        assert_eq!(strengthen.action, RecommendedAction::StrengthenContract);
        assert_eq!(
            (strengthen.tool.as_str(), strengthen.method.as_deref()),
            ("guide", Some("movies"))
        );
        assert_eq!(strengthen.evidence_call_ids, [first.call_id.clone(), second.call_id.clone()]);
        by_text("status: not \"success_no_parse\"");

        // Taken at its word, the contract refuses what was of no use, and the call repairs it.
        let deliverable = strengthen.constraint.clone().unwrap().deliverable;
        let strict = fixture.agent(Some(deliverable));
        assert_eq!(
            strict.call("movies", ("Oslo",)).unwrap().value().unwrap()["movies"],
            json!(["Oslo"])
        );
    });
}

#[test]
fn a_different_question_is_not_a_correction() {
    check(|fixture| {
        let guide = fixture.agent(None);
        for place in ["Oslo", "Bergen"] {
            assert_eq!(guide.call("movies", (place,)).unwrap().value(), Some(&weak()));
        }
        assert!(fixture.patterns().iter().all(|event| event.user_correction.is_none()));
        assert!(fixture.log().iter().all(|entry| entry["user_correction_detected"] == false));
        // The same words in another session.
        let other = fixture.agent(None);
        assert_eq!(
            other.call("movies", kwargs("Bergen", "day", "tonight")).unwrap().value(),
            Some(&weak())
        );
        assert!(fixture.patterns().iter().all(|event| event.user_correction.is_none()));
        let linked = |r: &Recommendation| r.reason.contains("asked again after 0");
        assert!(fixture.recommended().iter().all(linked), "three in a row speak for themselves");
    });
}

/// The tool that produced an answer learns that it was corrected, however deep in the call tree it was called.
#[test]
fn a_correction_reaches_the_delegated_tool() {
    const GUIDE: [&str; 2] = [
        "def ask(where, **more):\n    return delegate('movie finder', purpose='find movies').find(where).value",
        "def ask(where, **more) = delegate('movie finder', purpose: 'find movies').find(where).value",
    ];
    const FINDER: [&str; 2] = [
        "def find(where):\n    return [m for m in [] if m == where]",
        "def find(where) = [].select { |m| m == where }",
    ];
    check(|fixture| {
        let index = Language::ALL.iter().position(|known| *known == fixture.language).unwrap();
        fixture.model.add("guide.ask", json!({"code": GUIDE[index]}));
        fixture.model.add("movie finder.find", json!({"code": FINDER[index]}));
        let guide = fixture.agent(None);
        assert!(guide.call("ask", ("Oslo",)).unwrap().is_ok());
        assert!(guide.call("ask", kwargs("Oslo", "day", "tonight")).unwrap().is_ok());
        let store = fixture.runtime.store();
        let corrected = upkeep::corrected_answers(store).unwrap();
        let finder = store.patterns(&Role::parse("movie finder").unwrap()).unwrap();
        let found: Vec<bool> = finder.iter().map(|it| corrected.contains(&it.call_id)).collect();
        assert_eq!(found, [true, false], "the first answer was corrected");
    });
}

/// Every line of the log is as the schema says, whatever was observed.
#[test]
fn what_is_observed_is_logged_as_documented() {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/log-entry.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(specs).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&serde_json::to_standard(&schema)).unwrap();
    check(|fixture| {
        let guide = fixture.agent(None);
        guide.call("movies", ("Oslo",)).unwrap();
        guide.call("movies", ("Oslo, try again",)).unwrap();
        let log = fixture.log();
        assert_eq!(log[1]["user_correction_signal"], "temporal_reask");
        assert_eq!(log[1]["user_correction_evidence"]["evidence"], "refined_question");
        for entry in log {
            validator
                .validate(&serde_json::to_standard(&entry))
                .unwrap_or_else(|error| panic!("{error}"));
        }
    });
}

fn kwargs(place: &str, name: &str, value: &str) -> recurgent::Arguments {
    recurgent::Arguments {
        args: vec![json!(place)],
        kwargs: Map::from_iter([(name.to_owned(), json!(value))]),
    }
}
