//! Honest programs on real workers: how often a guardrail objects to one.
//!
//! The programs are data (`python/*.yaml`, `ruby/*.yaml`): some written without reading the rules, `recorded.yaml`
//! by a model. Each is vetted and executed as the only program its model writes. A rule that objects to one has a
//! false positive: fix the rule, not the program. The table is part of `docs/guardrails.md`; `UPDATE_DOCS=1`
//! writes it.
#![expect(clippy::disallowed_methods, reason = "a test reads programs and writes the page")]
#![cfg(test)]

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lifecycle::contract::Contract;
use lifecycle::event::{Event, EventKind};
use lifecycle::guardrail::{Rule, Severity};
use lifecycle::outcome::Failure;
use recurgent::config::Config;
use recurgent::observe::Observer;
use recurgent::provider::Scripted;
use recurgent::{Arguments, Language, Outcome, Runtime};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use server::PageServer;

/// Programs of each guest that there must be.
const LEAST_PROGRAMS: usize = 200;
/// Programs of each guest that may be labelled as violating a rule.
const MOST_VIOLATING: usize = 6;
/// Where the table stands in the page.
const MARKS: [&str; 2] = ["<!-- honest programs -->\n", "<!-- /honest programs -->\n"];

/// One program and its call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    name: String,
    role: String,
    method: String,
    #[serde(default)]
    args: Vec<Value>,
    #[serde(default)]
    kwargs: Map<String, Value>,
    #[serde(default)]
    context: Map<String, Value>,
    #[serde(default, rename = "network")]
    _network: bool,
    code: String,
    /// The value, which may be null.
    #[serde(default, deserialize_with = "given")]
    gives: Option<Value>,
    /// Where the value differs from run to run, what a contract demands of it.
    gives_like: Option<Value>,
    /// The type of the error it returns.
    gives_error: Option<String>,
    /// The class it raises: a model's program may be wrong and still honest.
    raises: Option<String>,
    /// The rule that rightly objects: the program is not honest after all, and is not counted.
    violates: Option<String>,
}

/// A value that is there, null included.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// What guardrails objected to, by the call's name.
#[derive(Default)]
struct Objections(Mutex<BTreeMap<String, Vec<(Rule, String)>>>);

struct Witness(Arc<Objections>);

impl Observer for Witness {
    fn event(&self, event: &Event) {
        let EventKind::RolledBack { code, message, .. } = &event.kind else { return };
        if let Some(rule) = Rule::from_subtype(code) {
            let mut found = self.0.0.lock().unwrap();
            found.entry(event.subject.name.clone()).or_default().push((rule, message.clone()));
        }
    }
}

/// What came of the programs of one guest.
#[derive(Default)]
struct Measured {
    programs: usize,
    /// Programs that are labelled as violating a rule: not honest, and not counted above.
    violating: usize,
    /// The rules that objected, each with the program and its message.
    objections: Vec<(Rule, String)>,
    /// Programs that did not end as they must.
    wrong: Vec<String>,
    /// Programs that made requests which only read.
    readers: usize,
    /// Those of them that count as senders: they are not run again after a failure.
    taken_for_senders: Vec<String>,
    /// Programs that made other requests.
    senders: usize,
    /// Those of them that count as readers: a retry may send twice.
    taken_for_readers: Vec<String>,
}

impl Measured {
    /// Notes a program that made requests, and whether the runtime takes it for what it is.
    fn count_requests(
        &mut self,
        before: [usize; 2],
        after: [usize; 2],
        program: &Program,
        outcome: &Outcome,
    ) {
        let [read, sent] = [after[0] > before[0], after[1] > before[1]];
        let counts_as_sender = outcome.observed.sent.is_some();
        let name = || program.name.clone();
        self.readers += usize::from(read && !sent);
        self.senders += usize::from(sent);
        self.taken_for_senders.extend((read && !sent && counts_as_sender).then(name));
        self.taken_for_readers.extend((sent && !counts_as_sender).then(name));
    }

    fn of_rule(&self, rule: Rule) -> usize {
        self.objections.iter().filter(|(objected, _)| *objected == rule).count()
    }
}

#[test]
fn guardrails_leave_honest_programs_alone() {
    let [python, ruby] = std::thread::scope(|scope| {
        let run = |language| scope.spawn(move || measure(language, &PageServer::start()));
        [run(Language::Python), run(Language::Ruby)].map(|guest| guest.join().unwrap())
    });
    let table = table(&python, &ruby);
    println!("{table}");
    let shown = shown_table(&table);
    for guest in [&python, &ruby] {
        println!("{:#?}\n{:#?}", guest.objections, guest.wrong);
        println!(
            "readers {}, of which taken for senders: {:#?}\nsenders {}, of which taken for readers: {:#?}",
            guest.readers, guest.taken_for_senders, guest.senders, guest.taken_for_readers
        );
    }
    for guest in [&python, &ruby] {
        assert!(guest.programs >= LEAST_PROGRAMS, "only {} programs", guest.programs);
        assert!(guest.violating <= MOST_VIOLATING, "{} labelled as violating", guest.violating);
        assert_eq!(guest.wrong, [""; 0], "programs that ended otherwise than they must");
        let ends_call =
            |(rule, _): &&(Rule, String)| rule.guardrail().severity == Severity::Terminal;
        assert_eq!(guest.objections.iter().find(ends_call), None, "it would end the call");
        let rate = guest.objections.len() * 100;
        assert!(rate < guest.programs, "1 % or more: {:#?}", guest.objections);
        assert!(guest.senders > 0, "no webhook was sent");
        assert_eq!(guest.taken_for_readers, [""; 0], "a retry may send twice");
        let lost = guest.taken_for_senders.len() * 10;
        assert!(lost <= guest.readers, "more than 10 %: {:#?}", guest.taken_for_senders);
    }
    assert!(shown == table, "docs/guardrails.md is stale; run this test with UPDATE_DOCS=1");
}

/// Runs every program of a guest, one after another.
fn measure(language: Language, server: &PageServer) -> Measured {
    let programs = programs(language);
    let state = tempfile::tempdir().unwrap();
    let mut config = Config::defaults();
    config.set("state_dir", &state.path().display().to_string()).unwrap();
    config.set("network", &server.network()).unwrap();
    let script = Arc::new(Scripted::new());
    let objections = Arc::new(Objections::default());
    let runtime = Runtime::builder(config)
        .provider(Arc::<Scripted>::clone(&script))
        .observer(Box::new(Witness(Arc::clone(&objections))))
        .build()
        .unwrap();
    let mut measured = Measured { programs: programs.len(), ..Measured::default() };
    let mut methods = BTreeSet::new();
    for (index, program) in programs.iter().enumerate() {
        // Programs of one role are siblings, whose state keys a rule compares. A method that comes again has its own
        // agent, because its program would be reused.
        let is_first = methods.insert((&program.role, &program.method));
        let role =
            if is_first { program.role.clone() } else { format!("{} {index}", program.role) };
        let key = format!("{role}.{}", program.method);
        script.add(&key, json!({"code": program.code}));
        let [read, sent] = server.requests();
        let outcome = call(&runtime, language, &role, program, server);
        measured.count_requests([read, sent], server.requests(), program, &outcome);
        let found = objections.0.lock().unwrap().remove(&key).unwrap_or_default();
        let named = |(rule, message)| (rule, format!("{}: {message}", program.name));
        if let Some(expected) = &program.violates {
            measured.programs -= 1;
            measured.violating += 1;
            let objects = found.iter().any(|(rule, _)| rule.subtype() == expected);
            assert!(objects, "{expected} must object to {}", program.name);
            continue;
        }
        measured.objections.extend(found.into_iter().map(named).take(1));
        if let Some(problem) = problem(program, &outcome) {
            measured.wrong.push(format!("{language} {}: {problem}", program.name));
        }
    }
    measured
}

fn call(
    runtime: &Runtime,
    language: Language,
    role: &str,
    program: &Program,
    server: &PageServer,
) -> Outcome {
    let agent = runtime.agent(role).guest(language).build().unwrap();
    for (key, value) in &program.context {
        agent.set(key, value.clone()).unwrap();
    }
    let args = program.args.iter().map(|value| placed(value, server)).collect();
    let kwargs = program.kwargs.iter().map(|(key, value)| (key.clone(), placed(value, server)));
    agent.call(&program.method, Arguments { args, kwargs: kwargs.collect() }).unwrap()
}

/// The value with the server's addresses in place of their names.
fn placed(value: &Value, server: &PageServer) -> Value {
    let PageServer { port, dead_port, .. } = server;
    match value {
        Value::String(text) if text == "$PORT" => json!(port),
        Value::String(text) => json!(
            text.replace("$SERVER", &format!("http://127.0.0.1:{port}"))
                .replace("$DEAD", &format!("http://127.0.0.1:{dead_port}"))
                .replace("$HOST", "127.0.0.1")
                .replace("$PORT", &port.to_string())
        ),
        Value::Array(items) => items.iter().map(|item| placed(item, server)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| (key.clone(), placed(field, server)));
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// How the outcome differs from what the program must give.
fn problem(program: &Program, outcome: &Outcome) -> Option<String> {
    let Program { gives, gives_like, gives_error, raises, .. } = program;
    let text = |failure: &Failure, key: &str| {
        failure.metadata.get(key).and_then(Value::as_str).map(str::to_owned)
    };
    let right = match (gives, gives_like, gives_error, raises, &outcome.result) {
        (Some(expected), None, None, None, Ok(value)) => is_equal(expected, value),
        (None, Some(demands), None, None, Ok(value)) => is_like(demands, value),
        // A retriable error is repaired first; the same program comes back, so it ends as exhausted.
        (None, None, Some(expected), None, Err(failure)) => {
            let last = text(failure, "last_error_type");
            last.as_deref().unwrap_or(failure.kind.code()) == expected
        }
        (None, None, None, Some(class), Err(failure)) => {
            text(failure, "error_class").as_ref() == Some(class)
        }
        _ => false,
    };
    (!right).then(|| format!("{:?}", outcome.result))
}

/// Whether a value is what a deliverable demands.
fn is_like(deliverable: &Value, value: &Value) -> bool {
    let whole = Map::from_iter([("deliverable".to_owned(), deliverable.clone())]);
    let (contract, _) = Contract::compose(Some(&whole), &Map::new()).unwrap();
    contract.unwrap().judge(&[], &Map::new(), value).is_ok()
}

/// JSON equality in which 1 is 1.0 and floats may differ in their last digits.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let (Some(one), Some(other)) = (one.as_f64(), other.as_f64()) else {
                return one == other;
            };
            (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|other| is_equal(value, other))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        (one, other) => one == other,
    }
}

fn programs(language: Language) -> Vec<Program> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/honest").join(language.name());
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: &PathBuf| -> Vec<Program> {
        let text = std::fs::read_to_string(file).unwrap();
        serde_norway::from_str(&text).unwrap_or_else(|fault| panic!("{}: {fault}", file.display()))
    };
    files.iter().flat_map(read).collect()
}

fn table(python: &Measured, ruby: &Measured) -> String {
    let mut table = String::from("| rule | Python | Ruby |\n|---|---|---|\n");
    for &rule in Rule::ALL {
        if rule == Rule::UnusedDependency {
            let _ = writeln!(table, "| `{}` | not measured | not measured |", rule.subtype());
            continue;
        }
        let _ = writeln!(
            table,
            "| `{}` | {} | {} |",
            rule.subtype(),
            python.of_rule(rule),
            ruby.of_rule(rule)
        );
    }
    let total = |guest: &Measured| {
        let count = guest.objections.len();
        let tenths = count * 1000 / guest.programs.max(1);
        format!("{count} of {} ({}.{} %)", guest.programs, tenths / 10, tenths % 10)
    };
    let _ =
        writeln!(table, "| programs with a false positive | {} | {} |", total(python), total(ruby));
    let _ = writeln!(
        table,
        "| programs beside these that are labelled as violating a rule | {} | {} |",
        python.violating, ruby.violating
    );
    table
}

/// The table of the page; with `UPDATE_DOCS`, this one is written there.
fn shown_table(table: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guardrails.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let [begin, end] = MARKS;
    let (head, rest) = page.split_once(begin).expect("the page has a place for the table");
    let (shown, tail) = rest.split_once(end).expect("the place for the table ends");
    if std::env::var_os("UPDATE_DOCS").is_none() {
        return shown.to_owned();
    }
    std::fs::write(&path, format!("{head}{begin}{table}{end}{tail}")).unwrap();
    table.to_owned()
}
