//! What works is kept, what fails is repaired, nothing good is lost: whole calls with real workers, on both
//! guests, some of them in a second process.
#![cfg(test)]

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use lifecycle::admission::Admission;
use lifecycle::artifact::{ArtifactKey, Trigger};
use lifecycle::contract::Fingerprint;
use lifecycle::pattern::PatternEvent;
use lifecycle::request::{Method, Role};
use lifecycle::standing::Standing;
use recurgent::config::Config;
use recurgent::provider::{Provider, Scripted};
use recurgent::{Agent, Arguments, Language, Outcome, Runtime};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Holds both guests to one story.
fn check(story: impl Fn(&mut World)) {
    for language in Language::ALL {
        story(&mut World::new(language));
    }
}

/// A model, and a state that outlives runtimes.
struct World {
    language: Language,
    model: Arc<Scripted>,
    state: TempDir,
    runtime: Option<Runtime>,
    mode: &'static str,
}

impl World {
    fn new(language: Language) -> Self {
        let state = tempfile::tempdir().unwrap();
        Self { language, model: Arc::new(Scripted::new()), state, runtime: None, mode: "shadow" }
    }

    fn runtime(&mut self) -> &Runtime {
        let (state, model, mode) = (self.state.path(), &self.model, self.mode);
        self.runtime.get_or_insert_with(|| open(state, Arc::<Scripted>::clone(model), mode))
    }

    /// The next process, as far as the state can tell.
    fn restart(&mut self) {
        self.runtime = None;
    }

    /// What the model writes next, in the language at hand.
    fn writes(&self, key: &str, python: &str, ruby: &str) {
        let code = match self.language {
            Language::Python => python,
            Language::Ruby => ruby,
        };
        self.model.add(key, json!({"code": code}));
    }

    fn agent(&mut self, role: &str) -> Agent {
        let language = self.language;
        self.runtime().agent(role).guest(language).build().unwrap()
    }

    fn asked(&self) -> usize {
        self.model.asked().len()
    }

    /// A call that ends well, the model having been asked so often, and everything tried that is to be.
    fn call(&mut self, agent: &mut Agent, method: &str, args: &[Value], asked: usize) -> Value {
        let outcome = self.try_call(agent, method, args, asked);
        outcome.value().unwrap_or_else(|| panic!("{outcome:?}")).clone()
    }

    fn try_call(
        &mut self,
        agent: &mut Agent,
        method: &str,
        args: &[Value],
        asked: usize,
    ) -> Outcome {
        let before = self.asked();
        let outcome = agent
            .call(method, Arguments { args: args.to_vec(), kwargs: serde_json::Map::new() })
            .unwrap();
        assert_eq!(self.asked() - before, asked, "{method}{args:?} in {}", self.language);
        self.runtime().wait_for_trials();
        outcome
    }

    fn key(&self, role: &str, method: &str) -> ArtifactKey {
        ArtifactKey {
            role: Role::parse(role).unwrap(),
            method: Method::parse(method).unwrap(),
            language: self.language,
            contract_fingerprint: Fingerprint::none(),
        }
    }

    /// Versions, newest first: why they were written, how they stand, whether they run.
    fn line(&mut self, role: &str, method: &str) -> Vec<(Trigger, Standing, bool)> {
        let key = self.key(role, method);
        let versions = self.runtime().store().versions(&key).unwrap();
        let told = |v: &recurgent::store::catalog::Version| {
            (v.trigger, v.artifact.repute.standing, v.is_current)
        };
        versions.iter().map(told).collect()
    }
}

fn open(state: &Path, provider: Arc<dyn Provider>, standing_mode: &str) -> Runtime {
    let mut config = Config::defaults();
    config.set("state_dir", &state.display().to_string()).unwrap();
    config.set("standing_mode", standing_mode).unwrap();
    Runtime::builder(config).provider(provider).build().unwrap()
}

fn log(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(world.state.path().join("recurgent.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A repair that keeps what worked takes over, once it has shown that it does.
#[test]
fn a_repair_that_reproduces_recorded_calls_takes_over() {
    check(|world| {
        world.writes("c.half", "result = args[0] // args[1]", "args[0] / args[1]");
        world.writes(
            "c.half",
            "result = None if args[1] == 0 else args[0] // args[1]",
            "args[1] == 0 ? nil : args[0] / args[1]",
        );
        let mut c = world.agent("c");
        assert_eq!(world.call(&mut c, "half", &[json!(8), json!(2)], 1), json!(4));
        assert_eq!(world.call(&mut c, "half", &[json!(9), json!(3)], 0), json!(3));
        assert_eq!(world.call(&mut c, "half", &[json!(1), json!(0)], 1), json!(null));
        let entry = log(world).pop().unwrap();
        assert_eq!(entry["artifact_admission"], json!(Admission::AwaitsTrial.name()));
        assert_eq!(entry["artifact_generation_trigger"], json!("repair"));
        assert_eq!(entry["artifact_generation_count"], json!(2));
        assert_eq!(
            world.line("c", "half"),
            [
                (Trigger::Repair, Standing::Probation, true),
                (Trigger::Fresh, Standing::Probation, false)
            ]
        );
        assert_eq!(world.call(&mut c, "half", &[json!(1), json!(0)], 0), json!(null));
    });
}

#[test]
fn a_repair_that_breaks_a_recorded_call_does_not_take_over() {
    check(|world| {
        world.writes("c.half", "result = args[0] // args[1]", "args[0] / args[1]");
        // Fixes one case and breaks the others.
        world.writes(
            "c.half",
            "result = None if args[1] == 0 else args[0] + args[1]",
            "args[1] == 0 ? nil : args[0] + args[1]",
        );
        let mut c = world.agent("c");
        assert_eq!(world.call(&mut c, "half", &[json!(8), json!(2)], 1), json!(4));
        assert_eq!(world.call(&mut c, "half", &[json!(1), json!(0)], 1), json!(null));
        assert_eq!(
            world.line("c", "half"),
            [
                (Trigger::Repair, Standing::Candidate, false),
                (Trigger::Fresh, Standing::Probation, true)
            ]
        );
        let key = world.key("c", "half");
        let versions = world.runtime().store().versions(&key).unwrap();
        let failing = versions[0].failing_case.as_ref().unwrap();
        assert_eq!(failing.inputs.args, [json!(8), json!(2)], "kept with what it breaks");
        assert!(versions[0].failure.as_ref().unwrap().contains("ZeroDivisionError"));
        assert_eq!(world.call(&mut c, "half", &[json!(8), json!(2)], 0), json!(4));
    });
}

/// A call that its own program does not repeat proves nothing.
#[test]
fn a_recorded_call_that_does_not_repeat_is_forgotten() {
    check(|world| {
        // The clock is hidden well enough to pass for a pure program.
        world.writes(
            "c.stamp",
            "import logging\nnow = logging.LogRecord('n', 1, 'p', 1, 'm', None, None).created\n\
             result = [now * 1e6 // args[0], 1 // args[0]]",
            "[Object.const_get('Ti' + 'me').now.nsec / args[0], 1 / args[0]]",
        );
        world.writes("c.stamp", "result = [0, args[0]]", "[0, args[0]]");
        let mut c = world.agent("c");
        world.call(&mut c, "stamp", &[json!(1)], 1);
        let key = world.key("c", "stamp");
        assert_eq!(world.runtime().store().corpus(&key).unwrap().len(), 1);
        world.call(&mut c, "stamp", &[json!(0)], 1);
        assert!(world.runtime().store().corpus(&key).unwrap().is_empty());
        assert!(world.line("c", "stamp")[0].2, "nothing that repeats speaks against it");
    });
}

/// What was not tried in one process is tried at a call in the next.
#[test]
fn a_challenger_left_behind_is_tried_later() {
    check(|world| {
        world.writes("c.half", "result = args[0] // args[1]", "args[0] / args[1]");
        let mut c = world.agent("c");
        world.call(&mut c, "half", &[json!(8), json!(2)], 1);
        let key = world.key("c", "half");
        // As a process leaves it that ends between its commit and the trial.
        let store = world.runtime().store();
        let mut left = store.versions(&key).unwrap().remove(0).artifact;
        left.code = left.code.replace("result = ", "result = 0 + ");
        left.code = left.code.replace("args[0] /", "0 + args[0] /");
        left.checksum = lifecycle::program::Checksum::of(&left.code);
        leave(world, left);
        assert!(!world.line("c", "half")[0].2);
        drop(c);
        world.restart();
        let mut c = world.agent("c");
        world.call(&mut c, "half", &[json!(8), json!(2)], 0);
        assert!(world.line("c", "half")[0].2, "it had its trial");
    });
}

/// Commits a version without trying it.
fn leave(world: &mut World, artifact: lifecycle::artifact::Artifact) {
    use lifecycle::artifact::{ArtifactChange, Generation};
    use lifecycle::context::Context;
    use lifecycle::request::{Allowance, Arguments, CallId, CallRequest, Lineage, TraceId};
    use lifecycle::settlement::{Changes, Kept};
    use lifecycle::standing::StateKeys;
    use recurgent::store::Owner;
    let request = CallRequest {
        id: CallId("left".into()),
        lineage: Lineage::Root { trace: TraceId("t".into()) },
        role: artifact.role.clone(),
        method: artifact.method.clone(),
        arguments: Arguments::default(),
        contract: None,
        language: artifact.language,
        context: Context::default(),
        manifest: None,
        allowance: Allowance::default(),
    };
    let owner = Owner { instance: "i".into(), session: None, role: artifact.role.clone() };
    let generation = Generation {
        artifact,
        trigger: Trigger::Repair,
        parent: None,
        failure: None,
        state_keys: StateKeys::default(),
        pure: true,
    };
    let changes = Changes {
        kept: Some(Kept::default()),
        artifacts: vec![ArtifactChange::Admit(Box::new(generation))],
        case: None,
        record: json!({}),
        contents: Vec::new(),
        contents_kept_since: None,
        exhausted: None,
        event: PatternEvent::default(),
    };
    let receipt = world.runtime().store().commit(&owner, &request, &changes).unwrap();
    assert_eq!(receipt.admission, Some(Admission::AwaitsTrial));
}

/// Three repairs of one line, whether they worked or not; then it is written from nothing.
#[test]
fn repairs_are_counted_by_line_and_then_it_is_written_anew() {
    check(|world| {
        world.writes("c.half", "result = args[0] // args[1]", "args[0] / args[1]");
        for n in 0..3 {
            let failing = ("raise ValueError(args[0] - NN)", "raise (args[0] - NN).to_s");
            let number = n.to_string();
            let [python, ruby] = [failing.0, failing.1].map(|text| text.replace("NN", &number));
            world.writes("c.half", &python, &ruby);
            world.writes("c.half", &format!("{python} # again"), &format!("{ruby} # again"));
        }
        world.writes("c.half", "result = [args[0], args[1]]", "[args[0], args[1]]");
        let mut c = world.agent("c");
        for n in 0..4 {
            // Something works in between: what it is asked for is not all it fails at.
            world.call(&mut c, "half", &[json!(8 + n), json!(2)], usize::from(n == 0));
        }
        let mut told = Vec::new();
        for n in 0..4 {
            let asked = if n < 3 { 2 } else { 1 };
            let outcome = world.try_call(&mut c, "half", &[json!(1), json!(0)], asked);
            told.push(outcome.is_ok());
        }
        assert_eq!(told, [false, false, false, true]);
        let entry = log(world).pop().unwrap();
        assert_eq!(entry["artifact_generation_trigger"], json!("regeneration"));
        assert_eq!(entry["program_source"], json!("generated"));
        let line = world.line("c", "half");
        assert_eq!(
            line[0],
            (Trigger::Regeneration, Standing::Candidate, false),
            "it breaks the others"
        );
        assert!(line[1].2, "and the incumbent is still there");
    });
}

#[test]
fn a_pinned_version_is_not_replaced_and_a_rollback_brings_the_last_one_back() {
    check(|world| {
        world.writes("c.half", "result = args[0] // args[1]", "args[0] / args[1]");
        world.writes(
            "c.half",
            "result = None if args[1] == 0 else args[0] // args[1]",
            "args[1] == 0 ? nil : args[0] / args[1]",
        );
        let mut c = world.agent("c");
        world.call(&mut c, "half", &[json!(8), json!(2)], 1);
        let key = world.key("c", "half");
        assert!(world.runtime().store().pin(&key, true).unwrap());
        assert_eq!(world.call(&mut c, "half", &[json!(1), json!(0)], 1), json!(null));
        assert!(world.line("c", "half")[1].2, "pinned");
        assert!(world.runtime().store().pin(&key, false).unwrap());
        assert_eq!(world.call(&mut c, "half", &[json!(1), json!(0)], 1), json!(null));
        assert!(world.line("c", "half")[0].2);
        world.runtime().store().rollback(&key, None).unwrap().unwrap();
        assert_eq!(
            world.line("c", "half"),
            [
                (Trigger::Repair, Standing::Degraded, false),
                (Trigger::Fresh, Standing::Probation, true)
            ]
        );
        assert_eq!(world.call(&mut c, "half", &[json!(8), json!(4)], 0), json!(2));
    });
}

/// A program with effects cannot be tried on recorded calls: it takes over when none are held against it.
#[test]
fn an_impure_repair_takes_over_when_nothing_is_recorded() {
    check(|world| {
        world.writes(
            "c.stamp",
            "import time\nresult = 1 // args[0] + 0 * time.time_ns()",
            "1 / args[0] + 0 * Time.now.to_i",
        );
        world.writes(
            "c.stamp",
            "import time\nresult = None if args[0] == 0 else 1 // args[0] + 0 * time.time_ns()",
            "args[0] == 0 ? nil : 1 / args[0] + 0 * Time.now.to_i",
        );
        let mut c = world.agent("c");
        world.call(&mut c, "stamp", &[json!(1)], 1);
        let key = world.key("c", "stamp");
        assert!(world.runtime().store().corpus(&key).unwrap().is_empty());
        world.call(&mut c, "stamp", &[json!(0)], 1);
        assert_eq!(log(world).pop().unwrap()["artifact_admission"], json!("takes_over"));
        world.call(&mut c, "stamp", &[json!(0)], 0);
    });
}

#[test]
fn secrets_and_large_values_are_not_recorded() {
    check(|world| {
        world.writes(
            "c.echo",
            "result = [args[0], len(str(kwargs))]",
            "[args[0], kwargs.to_s.size]",
        );
        let mut c = world.agent("c");
        world.call(&mut c, "echo", &[json!("sk-abcdefghijklmnopqrstuvwxyz0123")], 1);
        world.call(&mut c, "echo", &[json!({"password": "hunter2"})], 0);
        world.call(&mut c, "echo", &[json!("x".repeat(5000))], 0);
        let key = world.key("c", "echo");
        assert!(world.runtime().store().corpus(&key).unwrap().is_empty());
        world.call(&mut c, "echo", &[json!("plain")], 0);
        world.call(&mut c, "echo", &[json!("plain")], 0);
        assert_eq!(world.runtime().store().corpus(&key).unwrap().len(), 1);
    });
}

/// A value can be referred to for as long as `content_ttl_seconds` says, and then it is gone from the file.
#[test]
fn a_kept_value_goes_when_its_time_is_over() {
    check(|world| {
        let mut config = Config::defaults();
        config.set("state_dir", &world.state.path().display().to_string()).unwrap();
        config.set("content_ttl_seconds", "3600").unwrap();
        let provider = Arc::<Scripted>::clone(&world.model);
        world.runtime = Some(Runtime::builder(config).provider(provider).build().unwrap());
        world.writes("c.make", "result = ['made', args[0]]", "['made', args[0]]");
        world.writes(
            "c.last",
            "made = [r for r in context.conversation_history if r['method_name'] == 'make']\nresult = content(made[-1 - args[0]]['outcome_summary']['content_ref'])",
            "made = context.conversation_history.select { |r| r['method_name'] == 'make' }\ncontent(made[-1 - args[0]]['outcome_summary']['content_ref'])",
        );
        let mut c = world.agent("c");
        world.call(&mut c, "make", &[json!(1)], 1);
        assert_eq!(world.call(&mut c, "last", &[json!(0)], 1), json!(["made", 1]));
        let file = world.state.path().join("recurgent.sqlite");
        let ages = rusqlite::Connection::open(file).unwrap();
        ages.execute("UPDATE contents SET created_at = '2026-01-01T00:00:00.000Z'", []).unwrap();
        assert_eq!(world.call(&mut c, "last", &[json!(0)], 0), json!(null));
        let left =
            || ages.query_row("SELECT count(*) FROM contents", [], |row| row.get::<_, i64>(0));
        assert_eq!(left().unwrap(), 0, "a null is not kept");
        world.call(&mut c, "make", &[json!(2)], 0);
        assert_eq!(world.call(&mut c, "last", &[json!(0)], 0), json!(["made", 2]));
        assert_eq!(log(world)[2]["content_store_eviction_count"], 2);
        assert_eq!(log(world)[2]["content_store_write_skipped_reason"], "no_value");
    });
}

/// A program sees the latest records and can go back page by page to the first.
#[test]
fn a_program_can_read_its_whole_history_page_by_page() {
    check(|world| {
        world.writes("c.note", "result = args[0]", "args[0]");
        world.writes(
            "c.notes",
            "page, pages = context.conversation_history, []\nwhile page:\n    pages.append([page[0]['args'], len(page)])\n    page = page.before()\nlatest = context.conversation_history\nresult = [pages, len(latest.before(latest[3])), len(latest.before(latest[3]['call_id'])), args[0]]",
            "page, pages = context.conversation_history, []\nuntil page.empty?\n  pages << [page[0]['args'], page.size]\n  page = page.before\nend\nlatest = context.conversation_history\n[pages, latest.before(latest[3]).size, latest.before(latest[3]['call_id']).size, args[0]]",
        );
        let mut c = world.agent("c");
        for number in 0..203 {
            world.call(&mut c, "note", &[json!(number)], usize::from(number == 0));
        }
        assert_eq!(
            world.call(&mut c, "notes", &[json!("x")], 1),
            json!([[[[103], 100], [[3], 100], [[0], 3]], 100, 100, "x"])
        );
        let last = log(world).pop().unwrap();
        assert_eq!(last["history_access_detected"], true);
        assert_eq!(last["conversation_history_size"], 204);
        assert_eq!(last["history_record_appended"], true);
    });
}

/// Wherever a call's arguments go, and what comes of them: no table and no log line keeps what looks like a secret.
#[test]
fn no_file_keeps_a_secret() {
    const KEY: &str = "sk-canary1canary2canary3canary4";
    const PHRASE: &str = "canary5 canary6";
    check(|world| {
        world.writes(
            "c.echo",
            "def echo(value, **named):\n    if value == 'fail':\n        raise ValueError(str(named))\n    return value",
            "def echo(value, **named)\n  raise ArgumentError, named.to_s if value == 'fail'\n  value\nend",
        );
        let mut c = world.agent("c");
        let long = format!("{} {KEY}", "x".repeat(3000));
        for value in [json!(KEY), json!([{"url": KEY}]), json!({"password": PHRASE}), json!(long)] {
            c.call("echo", (value,)).unwrap();
        }
        let named = |name: &str, value: Value| Arguments {
            args: vec![json!("plain")],
            kwargs: [(name.to_owned(), value)].into_iter().collect(),
        };
        c.call("echo", named("api_key", json!(PHRASE))).unwrap();
        c.call("echo", named("private_key", json!(PHRASE.repeat(300)))).unwrap();
        c.call("echo", named("note", json!(long))).unwrap();
        // The stored program fails on one: what it says is kept with the program that repairs it.
        world.writes("c.echo", "result = args[0]", "args[0]");
        let failing = Arguments { args: vec![json!("fail")], ..named("to", json!(KEY)) };
        c.call("echo", failing).unwrap();
        assert_eq!(world.asked(), 2);
        world.restart();
        for entry in std::fs::read_dir(world.state.path()).unwrap() {
            let path = entry.unwrap().path();
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            for secret in ["canary1", "canary3", "canary5", "canary6"] {
                let found = text
                    .find(secret)
                    .map(|at| text.get(at.saturating_sub(200)..at + 40).unwrap_or("?").to_owned());
                assert_eq!(found, None, "{secret} in {}", path.display());
            }
        }
    });
}

/// `memory` is what one method writes; another that reads `value` is told before it runs.
#[test]
fn state_key_drift_is_caught_from_a_new_process() {
    check(|world| {
        world.writes(
            "c.store",
            "context['memory'] = args[0]\nresult = args[0]",
            "context[:memory] = args[0]\nargs[0]",
        );
        world.writes("c.recall", "result = context.get('value')", "context[:value]");
        world.writes("c.recall", "result = context.get('memory')", "context[:memory]");
        let language = world.language;
        let session = |world: &mut World| {
            world.runtime().agent("c").guest(language).session("s").build().unwrap()
        };
        let mut c = session(world);
        world.call(&mut c, "store", &[json!(5)], 1);
        drop(c);
        world.restart();
        // Nothing in the memory of this one says what the key is called.
        let mut empty = world.agent("c");
        assert_eq!(world.call(&mut empty, "recall", &[], 2), json!(null));
        let entry = log(world).pop().unwrap();
        assert_eq!(entry["guardrail_violation_subtype"], json!("state_key_drift"));
        assert_eq!(
            entry["attempts"][0]["stages"],
            json!(["generated", "rolled_back"]),
            "before it ran"
        );
        let mut c = session(world);
        assert_eq!(world.call(&mut c, "recall", &[], 0), json!(5));
    });
}

#[test]
fn state_key_drift_is_caught_against_a_setter() {
    check(|world| {
        world.writes(
            "c.add",
            "result = context.get('value', 0) + args[0]",
            "context.fetch(:value, 0) + args[0]",
        );
        world.writes(
            "c.add",
            "result = context.get('memory', 0) + args[0]",
            "context.fetch(:memory, 0) + args[0]",
        );
        let mut c = world.agent("c");
        c.set("memory", 5).unwrap();
        assert_eq!(world.call(&mut c, "add", &[json!(3)], 2), json!(8));
        assert_eq!(world.call(&mut c, "add", &[json!(4)], 0), json!(9));
    });
}

/// A literal of this call is sent back once; what comes then serves every call, in every process.
#[test]
fn a_baked_literal_is_sent_back_and_then_admitted_parametric() {
    check(|world| {
        world.writes(
            "c.add",
            "result = context.get('memory', 0) + 37",
            "context.fetch(:memory, 0) + 37",
        );
        world.writes(
            "c.add",
            "result = context.get('memory', 0) + args[0]",
            "context.fetch(:memory, 0) + args[0]",
        );
        let mut c = world.agent("c");
        c.set("memory", 5).unwrap();
        assert_eq!(world.call(&mut c, "add", &[json!(37)], 2), json!(42));
        drop(c);
        world.restart();
        let mut c = world.agent("c");
        c.set("memory", 5).unwrap();
        assert_eq!(world.call(&mut c, "add", &[json!(5)], 0), json!(10));
    });
}

#[test]
fn questions_are_written_anew_and_stable_methods_are_reused() {
    check(|world| {
        world.writes("c.ask", "result = 'about ' + args[0]", "'about ' + args[0]");
        world.writes("c.fetch_url", "result = 'page of ' + args[0]", "'page of ' + args[0]");
        let mut c = world.agent("c");
        world.call(&mut c, "ask", &[json!("Google")], 1);
        world.call(&mut c, "ask", &[json!("Yahoo")], 1);
        world.call(&mut c, "fetch_url", &[json!("Google")], 1);
        world.call(&mut c, "fetch_url", &[json!("Yahoo")], 0);
    });
}

/// A truthful 404 is a result: it is not repaired, and costs the program nothing.
#[test]
fn a_truthful_error_leaves_the_incumbent_untouched() {
    check(|world| {
        world.writes(
            "c.fetch",
            "result = 'page' if args[0] == '/' else Outcome.error(error_type='http_error', error_message='404', retriable=False)",
            "args[0] == '/' ? 'page' : Outcome.error(error_type: 'http_error', error_message: '404', retriable: false)",
        );
        let mut c = world.agent("c");
        world.call(&mut c, "fetch", &[json!("/")], 1);
        let key = world.key("c", "fetch");
        let before = world.runtime().store().versions(&key).unwrap();
        for _ in 0..5 {
            let outcome = world.try_call(&mut c, "fetch", &[json!("/gone")], 0);
            assert_eq!(outcome.failure().unwrap().kind.code(), "http_error");
        }
        let after = world.runtime().store().versions(&key).unwrap();
        assert_eq!(after.len(), 1);
        assert_eq!(after[0].artifact.code, before[0].artifact.code);
        assert_eq!((after[0].artifact.successes, after[0].artifact.failures), (1, 0));
        assert_eq!(world.call(&mut c, "fetch", &[json!("/")], 0), json!("page"));
    });
}

/// A broken contract is repaired in the same call; the repair takes over after it passed.
#[test]
fn a_stored_program_that_breaks_its_contract_is_repaired_in_that_call() {
    check(|world| {
        world.writes("m.list", "result = ['x'] * args[0]", "['x'] * args[0]");
        world.writes("m.list", "result = ['x'] * max(args[0], 1)", "['x'] * [args[0], 1].max");
        let language = world.language;
        let deliverable = json!({"type": "array", "min_items": 1});
        let mut m =
            world.runtime().agent("m").guest(language).deliverable(deliverable).build().unwrap();
        assert_eq!(world.call(&mut m, "list", &[json!(2)], 1), json!(["x", "x"]));
        assert_eq!(world.call(&mut m, "list", &[json!(0)], 1), json!(["x"]));
        let entry = log(world).pop().unwrap();
        assert_eq!(entry["repair_succeeded"], json!(true));
        assert_eq!(entry["attempts"][0]["failure"]["error_type"], json!("contract_violation"));
        assert_eq!(world.call(&mut m, "list", &[json!(0)], 0), json!(["x"]), "it took over");
    });
}

/// Shadow: told, not enforced. Enforced: what is degraded does not run.
#[test]
fn standings_are_told_in_shadow_mode_and_decide_when_enforced() {
    let mut world = World::new(Language::Python);
    world.writes("c.half", "result = args[0] // args[1]", "");
    world.writes("c.half", "result = args[0] // args[1] + 0", "");
    let mut c = world.agent("c");
    world.call(&mut c, "half", &[json!(8), json!(2)], 1);
    world.call(&mut c, "half", &[json!(8), json!(2)], 0);
    let entry = log(&world).pop().unwrap();
    assert_eq!(entry["promotion_policy_version"], json!("solver_promotion_v1"));
    assert_eq!(entry["promotion_shadow_mode"], json!(true));
    assert_eq!(entry["lifecycle_state"], json!("probation"));
    assert_eq!(entry["lifecycle_decision"], json!("continue_probation"));
    assert_eq!(entry["promotion_decision_rationale"]["calls"], json!(2));
    drop(c);
    // Degraded by hand: a rollback takes the current version back.
    let key = world.key("c", "half");
    let store = world.state.path().join("recurgent.sqlite");
    world.restart();
    let connection = rusqlite::Connection::open(&store).unwrap();
    connection.execute("UPDATE artifact_versions SET standing = 'degraded'", []).unwrap();
    drop(connection);
    let mut c = world.agent("c");
    world.call(&mut c, "half", &[json!(9), json!(3)], 0);
    drop(c);
    world.restart();
    world.mode = "enforced";
    let mut c = world.agent("c");
    world.call(&mut c, "half", &[json!(9), json!(3)], 1);
    let entry = log(&world).pop().unwrap();
    assert_eq!(entry["selection_miss_reason"], json!("degraded"));
    assert_eq!(entry["promotion_enforced"], json!(true));
    assert_eq!(world.runtime().store().versions(&key).unwrap().len(), 2);
}

/// A tool's very first call is made before the call that forges it is committed.
#[test]
fn a_tools_first_call_is_counted() {
    check(|world| {
        world.writes(
            "c.run",
            "result = delegate('adder', purpose='add').add(args[0]).value",
            "delegate('adder', purpose: 'add').add(args[0]).value",
        );
        world.writes("adder.add", "result = args[0] + 1", "args[0] + 1");
        let mut c = world.agent("c");
        assert_eq!(world.call(&mut c, "run", &[json!(1)], 2), json!(2));
        assert_eq!(world.call(&mut c, "run", &[json!(2)], 0), json!(3));
        let adder = Role::parse("adder").unwrap();
        let [known] = &world.runtime().store().tools(Some(&adder), 1).unwrap()[..] else {
            panic!()
        };
        assert_eq!((known.usage_count, known.success_count, known.failure_count), (2, 2, 0));
    });
}

// ---- Many processes ----

const PROCESSES: usize = 8;
const DELEGATIONS: usize = 20;
const CALLS: u64 = 25;

/// The reference runtime kept 30 of these 160 tools and counted 72 of these 200 calls.
#[test]
fn eight_processes_keep_every_tool_and_count_every_call() {
    let state = tempfile::tempdir().unwrap();
    let runtime = open(state.path(), Arc::new(Scripted::new()), "shadow");
    runtime.agent("c").build().unwrap().delegate("steady").purpose("stay").build().unwrap();
    let children: Vec<_> = (0..PROCESSES)
        .map(|n| {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child_process", "--nocapture"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let job = format!("{n}\n{}\n", state.path().display());
            child.stdin.as_mut().unwrap().write_all(job.as_bytes()).unwrap();
            child
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let tools = runtime.store().tools(None, 1000).unwrap();
    let steady = Role::parse("steady").unwrap();
    let (shared, own): (Vec<_>, Vec<_>) = tools.iter().partition(|tool| tool.tool.name == steady);
    assert_eq!(own.len(), PROCESSES * DELEGATIONS);
    for tool in own {
        assert_eq!(
            (tool.usage_count, tool.success_count, tool.failure_count),
            (1, 1, 0),
            "{tool:?}"
        );
    }
    assert_eq!(shared[0].success_count, PROCESSES as u64 * CALLS);
    let key = ArtifactKey {
        role: steady,
        method: Method::parse("work").unwrap(),
        language: Language::Python,
        contract_fingerprint: shared[0].tool.contract.as_ref().unwrap().fingerprint(),
    };
    let versions = runtime.store().versions(&key).unwrap();
    assert_eq!(versions.len(), 1);
    assert_eq!(u64::from(versions[0].artifact.successes), PROCESSES as u64 * CALLS);
    assert_eq!(versions[0].artifact.repute.standing, Standing::Durable, "ten calls, two sessions");
}

/// The other side: this test binary again, run by the exact name.
#[test]
fn child_process() {
    if !std::env::args().any(|argument| argument == "--exact") {
        return;
    }
    let mut lines = std::io::stdin().lock().lines().map(Result::unwrap);
    let (number, state) = (lines.next().unwrap(), lines.next().unwrap());
    let model = Scripted::new()
        .with("c.run", "result = delegate(args[0], purpose='add').work(1).value")
        .with("work", "result = args[0] + 1");
    let runtime = open(Path::new(&state), Arc::new(model), "shadow");
    let mut c = runtime.agent("c").build().unwrap();
    for n in 0..DELEGATIONS {
        let outcome = c.call("run", (format!("tool_{number}_{n}"),)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(2)), "{outcome:?}");
    }
    let mut steady = c.tool("steady").unwrap();
    for n in 0..CALLS {
        let outcome = steady.call("work", (n,)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(n + 1)), "{outcome:?}");
    }
}
