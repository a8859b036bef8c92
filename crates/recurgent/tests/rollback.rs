//! Does a rejected attempt leave nothing behind? Random programs that change all they can and then fail; and a large
//! memory beside writers in another thread and another process. Real workers, both guests.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use recurgent::config::Config;
use recurgent::provider::{Provider, Scripted};
use recurgent::{Agent, Language, Runtime};
use rusqlite::Connection;
use rusqlite::types::Value as Cell;
use serde_json::{Map, Value, json};

/// Programs per guest. Each costs about three calls.
const CASES: u64 = 60;

// ---- Random programs ----

/// **The property.** For any program that changes memory, registry, process and children and then fails, in any lane
/// and on any path (fresh, persisted, repaired): memory, registry, store and a new worker are as they were.
///
/// Only evidence may be added to the store, and only this: a history record and a pattern event per call (with its
/// owner's count and time), counts of failures and of spent lanes, and, for calls of children that succeeded inside the attempt, what
/// those calls are entitled to themselves: owner, history, program, and their counts in a tool that exists. Answers of a model to
/// questions of a rejected program are kept too: see `inference`.
#[test]
fn whatever_a_rejected_program_did_is_gone() {
    for language in Language::ALL {
        let mut endings = BTreeSet::new();
        let mut fixture = Fixture::new(language);
        for seed in 0..CASES {
            let mut random = Random::new(seed);
            let case = Case::random(&mut random, language);
            fixture.check(seed, &case);
            endings.insert(format!("{:?}", case.ending));
        }
        assert_eq!(endings.len(), ENDINGS.len(), "every way to fail is met: {endings:?}");
    }
}

/// A program that answers is not rejected, so what it left in its worker is not undone: it must not be left where the
/// agent's next program, which has proved itself and runs in the kept worker, would find it.
#[test]
fn what_an_accepted_program_changed_is_not_there_for_the_next() {
    const SPOIL: (&str, &str) = (
        "import json, os\njson.dumps = lambda *_: 'spoiled'\nos.environ['LEFT'] = 'x'\nresult = args[0]",
        "class String; def upcase = 'spoiled'; end\n$left = 'x'\nargs[0]",
    );
    const LOOK: (&str, &str) = (
        "import json, os\nresult = [json.dumps(args[0]), os.environ.get('LEFT')]",
        "[args[0].to_s.upcase, $left]",
    );
    for language in Language::ALL {
        let state = tempfile::tempdir().unwrap();
        let model = Arc::new(Scripted::new());
        let runtime = open(state.path(), Arc::clone(&model) as Arc<dyn Provider>, 0);
        let agent = runtime.agent("shop").guest(language).build().unwrap();
        model.add("shop.spoil", json!({"code": written(language, SPOIL.0, SPOIL.1)}));
        model.add("shop.look", json!({"code": written(language, LOOK.0, LOOK.1)}));
        for method in ["look", "look", "spoil", "look", "spoil", "spoil", "look", "look"] {
            let outcome = agent.call(method, (1,)).unwrap();
            let expected = if method == "look" { json!(["1", null]) } else { json!(1) };
            assert_eq!(outcome.value(), Some(&expected), "{language}: {method}: {outcome:?}");
        }
    }
}

/// What a program's children remember is kept by the host, which has no sandbox of its own.
#[test]
fn a_program_cannot_fill_the_host_through_its_children() {
    const FILL: (&str, &str) = (
        "child = delegate('notes', purpose='p')\nfor n in range(args[0]):\n    child.remember(**{f'k{n}': 'x' * (17 << 20)})\nresult = n",
        "child = delegate('notes', purpose: 'p')\nargs[0].times { |n| child.remember(\"k#{n}\": 'x' * (17 << 20)) }\n1",
    );
    for language in Language::ALL {
        let state = tempfile::tempdir().unwrap();
        let model = Arc::new(Scripted::new());
        model.add("shop.fill", json!({"code": written(language, FILL.0, FILL.1)}));
        let runtime = open(state.path(), model as Arc<dyn Provider>, 0);
        let agent = runtime.agent("shop").guest(language).build().unwrap();
        let outcome = agent.call("fill", (100,)).unwrap();
        let failure = outcome.failure().unwrap();
        assert_eq!(failure.kind.code(), "resource_limit", "{language}: {failure}");
        assert_eq!(failure.metadata["limit"], "memory", "{language}: {failure}");
    }
}

/// How a program ends after its effects: its last lines, and the failure of a call without retries.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ending {
    python: &'static str,
    ruby: &'static str,
    fails: &'static str,
    /// Whether every call of such a program ends so; then it is never stored.
    only_new: bool,
}

const fn ending(python: &'static str, ruby: &'static str, fails: &'static str) -> Ending {
    Ending { python, ruby, fails, only_new: false }
}

const fn always(python: &'static str, ruby: &'static str, fails: &'static str) -> Ending {
    Ending { python, ruby, fails, only_new: true }
}

#[rustfmt::skip]
const ENDINGS: &[Ending] = &[
    // generation
    always("def (", "def (", "invalid_code"),
    // guardrail, before it runs and while it runs
    always("import os\nos.system('true')", "system('true')", "guardrail_retry_exhausted"),
    always("tool('steady').tick = lambda: 1", "def (tool('steady')).tick = 1", "guardrail_retry_exhausted"),
    ending("tool(''.join(['sub', 'ject'])).act()", "tool(['sub', 'ject'].join).act", "guardrail_retry_exhausted"),
    // execution
    ending("raise RuntimeError('boom')", "raise 'boom'", "execution"),
    ending("raise SystemExit(3)", "exit(3)", "worker_crash"),
    ending("result = {'rows': object()}", "result = { rows: Object.new }", "non_serializable_result"),
    ending("context['odd'] = object()\nresult = {}", "context['odd'] = Object.new\nresult = {}", "non_serializable_result"),
    // outcome
    ending("result = Outcome.error('parse_failed', 'no', True)", "result = Outcome.error('parse_failed', 'no', true)", "parse_failed"),
    ending("result = 5", "result = 5", "contract_violation"),
    // accepted, and yet no success
    ending("result = Outcome.error('shop_closed', 'no', False)", "result = Outcome.error('shop_closed', 'no', false)", "shop_closed"),
];

/// (NN is a number.) What a program may do before: to memory, to what looks like history, to the registry, to its process.
#[rustfmt::skip]
const DEEDS: &[(&str, &str)] = &[
    ("context['n'] = NN", "context['n'] = NN"),
    ("context['new_NN'] = {'a': [NN, {'b': None}]}", "context['new_NN'] = { a: [NN, { b: nil }] }"),
    ("context['nest']['deep']['list'].append(NN)", "context['nest']['deep']['list'] << NN"),
    ("context['nest']['deep']['list'][0] = NN", "context['nest']['deep']['list'][0] = NN"),
    ("context['nest']['deep'] = NN", "context['nest']['deep'] = NN"),
    ("del context['nest']['deep']", "context['nest'].delete('deep')"),
    ("context['nest'] = None", "context['nest'] = nil"),
    ("context['text'] += ' and more'", "context['text'] << ' and more'"),
    ("context.pop('text', None)", "context.delete('text')"),
    ("context.clear()", "context.clear"),
    ("remember(remembered=NN)", "remember(remembered: NN)"),
    ("context['history'] = ['NN']", "context['history'] = ['NN']"),
    ("context['conversation_history'] = []", "context['conversation_history'] = []"),
    ("context['conversation_history'].clear()", "context['conversation_history'].clear"),
    ("context['tools']['fake_NN'] = {'purpose': 'none'}", "context['tools']['fake_NN'] = { purpose: 'none' }"),
    ("delegate('forged_NN', purpose='p')", "delegate('forged_NN', purpose: 'p')"),
    ("delegate('forged_NN', purpose='p').work(NN)", "delegate('forged_NN', purpose: 'p').work(NN)"),
    ("delegate('steady', purpose='something else', deliverable={'type': 'array'})", "delegate('steady', purpose: 'something else', deliverable: { type: 'array' })"),
    ("tool('steady').work(NN)", "tool('steady').work(NN)"),
    ("tool('steady').memory = NN", "tool('steady').memory = NN"),
    ("import math\nmath.pi = NN", "Math.define_singleton_method(:sqrt) { |_| NN } if false\n$left_NN = NN"),
    ("import json\njson.dumps = None", "class Integer; def succ = 0; end"),
    ("import os\nos.environ['LEFT'] = 'NN'", "ENV['LEFT'] = 'NN'"),
    ("import sys\nsys.path.append('/left_NN')", "$LOAD_PATH << '/left_NN'"),
    ("globals()['LEFT_NN'] = NN", "Object.const_set(:LEFT_NN, NN)"),
    ("import random\nrandom.seed(NN)", "srand(NN)"),
];

/// What a new worker looks like from inside.
const PROBE: (&str, &str) = (
    "import json, math, os, sys\nresult = {\n    'context': {key: context[key] for key in context},\n    'tools': sorted(context['tools']),\n    \
     'process': [math.pi, json.dumps([1]), os.environ.get('LEFT'), sys.path, sorted(globals())],\n}",
    "{ context: context.keys.to_h { |key| [key, context[key]] }, tools: context['tools'].keys.sort,\n  \
     process: [1.succ, ENV['LEFT'], $LOAD_PATH, global_variables.map(&:to_s).sort, Object.constants.map(&:to_s).sort] }",
);

/// The same from inside the agent's kept worker, which may have loaded more by now, and must still be unspoilt.
const LOOK: (&str, &str) = (
    "import json, math, os\nresult = {\n    'context': {key: context[key] for key in context},\n    'tools': sorted(context['tools']),\n    \
     'process': [math.pi, json.dumps([1]), os.environ.get('LEFT')],\n}",
    "{ context: context.keys.to_h { |key| [key, context[key]] }, tools: context['tools'].keys.sort, process: [1.succ, ENV['LEFT']] }",
);

#[derive(Debug)]
struct Case {
    deeds: Vec<String>,
    ending: Ending,
    /// Fails first as a stored program, then as its repair; else as a new program.
    stored: bool,
    calls_steady: bool,
}

impl Case {
    fn random(random: &mut Random, language: Language) -> Self {
        let ending = *random.pick(ENDINGS);
        let chosen: Vec<_> = (0..=random.below(6)).map(|_| *random.pick(DEEDS)).collect();
        let calls_steady = chosen.iter().any(|(python, _)| python.contains("tool('steady').work"));
        let deeds = chosen
            .into_iter()
            .map(|(python, ruby)| {
                written(language, python, ruby).replace("NN", &random.below(100).to_string())
            })
            .collect();
        Self { deeds, ending, stored: !ending.only_new && random.below(2) == 0, calls_steady }
    }

    /// The program: each deed may fail by itself, the ending may not. `variant` makes two of them differ.
    fn program(&self, language: Language, variant: u32) -> String {
        let guarded = |deed: &String| match language {
            Language::Python => format!("try:\n{}\nexcept Exception:\n    pass", indented(deed)),
            // A class cannot be reopened in a block, and needs no guard.
            Language::Ruby => {
                format!("begin\n{}\nrescue StandardError, NotImplementedError\nend", indented(deed))
            }
        };
        let deeds: Vec<String> = self.deeds.iter().map(guarded).collect();
        let all = format!(
            "{}\n{}",
            deeds.join("\n"),
            written(language, self.ending.python, self.ending.ruby)
        );
        if self.ending.only_new {
            return format!("# {variant}\n{all}");
        }
        // A stored program that is given `false` does nothing and succeeds.
        match language {
            Language::Python => {
                format!("# {variant}\nresult = {{}}\nif args[0]:\n{}", indented(&all))
            }
            Language::Ruby => {
                format!("# {variant}\nresult = {{}}\nif args[0]\n{}\nend", indented(&all))
            }
        }
    }
}

fn written(language: Language, python: &'static str, ruby: &'static str) -> &'static str {
    match language {
        Language::Python => python,
        Language::Ruby => ruby,
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

/// One agent with a session, a tool that is there to stay, and the store under it.
struct Fixture {
    language: Language,
    model: Arc<Scripted>,
    subject: Agent,
    runtime: Runtime,
    state: tempfile::TempDir,
}

impl Fixture {
    fn new(language: Language) -> Self {
        let state = tempfile::tempdir().unwrap();
        let model = Arc::new(Scripted::new());
        let runtime = open(state.path(), Arc::clone(&model) as Arc<dyn Provider>, 0);
        let deliverable = json!({"type": "object"});
        let subject = runtime
            .agent("subject")
            .guest(language)
            .session("property")
            .deliverable(deliverable)
            .build()
            .unwrap();
        let steady =
            subject.delegate("steady").purpose("stay as it is").guest(language).build().unwrap();
        model.add("subject.look", json!({"code": written(language, LOOK.0, LOOK.1)}));
        model.add("subject.ask", json!({"code": written(language, PROBE.0, PROBE.1)}));
        model
            .add("work", json!({"code": written(language, "result = args[0] + 1", "args[0] + 1")}));
        assert_eq!(steady.call("work", (1,)).unwrap().value(), Some(&json!(2)));
        subject
            .remember(object(json!({
                "n": 1, "text": "before", "nest": {"deep": {"list": [1, 2, {"x": null}]}, "flat": true}
            })))
            .unwrap();
        Self { language, model, subject, runtime, state }
    }

    fn check(&mut self, seed: u64, case: &Case) {
        let method = format!("act_{seed}");
        for variant in 0..3 {
            let code = case.program(self.language, variant);
            self.model.add(&format!("subject.{method}"), json!({"code": code}));
        }
        let language = self.language;
        let shown = || format!("seed {seed} in {language}:\n{}", case.program(language, 0));
        if case.stored {
            let fine = self.subject.call(&method, (false,)).unwrap();
            assert!(fine.is_ok(), "{fine:?}\n{}", shown());
        }
        let (asked, looked) = (self.probe("ask"), self.probe("look"));
        let before = (self.snapshot(), asked, looked);
        let outcome = self.subject.call(&method, (true,)).unwrap();
        let fails = outcome.failure().map(|failure| failure.kind.code().to_owned());
        // A stored program that exits may do so because of its arguments: then it is judged as one that raises.
        let is_excused = case.stored && case.ending.fails == "worker_crash";
        let is_expected = fails.as_deref() == Some(case.ending.fails)
            || (is_excused && fails.as_deref() == Some("execution"));
        assert!(is_expected, "{outcome:?}\n{}", shown());
        // The probe first: it leaves evidence of its own, but none that is compared.
        let mut after = (self.snapshot(), self.probe("ask"), self.probe("look"));
        if case.calls_steady {
            // Its call succeeded, and counts.
            after.0.registry.clone_from(&before.0.registry);
            after.0.store.insert("tools".to_owned(), before.0.store["tools"].clone());
        }
        assert_eq!(after.1, before.1, "a new worker, {}", shown());
        assert_eq!(after.2, before.2, "the kept worker, {}", shown());
        assert_eq!(after.0.memory, before.0.memory, "memory, {}", shown());
        assert_eq!(after.0.registry, before.0.registry, "registry, {}", shown());
        for (table, rows) in &before.0.store {
            let left = &after.0.store[table];
            // Old values make room for those of children.
            let is_same = if table == "contents" {
                left.iter().all(|row| rows.contains(row))
            } else {
                left == rows
            };
            assert!(is_same, "table {table}: {left:?}, not {rows:?}, {}", shown());
        }
    }

    /// What a program sees: `ask` is never stored, so it is in a new process; `look` is, and in the kept one.
    fn probe(&mut self, method: &str) -> Value {
        let outcome = self.subject.call(method, ()).unwrap();
        outcome.value().unwrap_or_else(|| panic!("{outcome:?}")).clone()
    }

    fn snapshot(&self) -> Snapshot {
        let registry = self.runtime.store().tools(None, 1000).unwrap();
        Snapshot {
            memory: json!(self.subject.runtime_context().to_object()),
            registry: registry.iter().map(|tool| format!("{tool:?}")).collect(),
            store: tables(&self.state.path().join("recurgent.sqlite")),
        }
    }
}

#[derive(Debug, Clone)]
struct Snapshot {
    memory: Value,
    registry: Vec<String>,
    /// Rows by table, without what evidence may change.
    store: BTreeMap<String, Vec<String>>,
}

/// Every table as text, less the evidence a rejected attempt may leave. An unknown table is compared whole.
fn tables(path: &Path) -> BTreeMap<String, Vec<String>> {
    let connection = Connection::open(path).unwrap();
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let names: Vec<String> = connection
        .prepare(names)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let evidence = |name: &str| {
        match name {
        // A record and an event per call, how often lanes were spent, decisions, recorded calls.
        "history" | "patterns" | "exhaustions" | "decisions" | "corpus" => "SELECT 0 WHERE 0",
        // Calls of roles that are not tools.
        "early_calls" => "SELECT 0 WHERE 0",
        // Children that succeeded keep their programs; the probes and failures of stored programs are counted.
        "artifacts" => "SELECT id, role, method, language, contract_fingerprint, current, generations, challenger, pinned FROM artifacts WHERE role NOT LIKE 'forged_%' AND method NOT IN ('ask', 'look') ORDER BY id",
        "artifact_versions" => {
            "SELECT artifact_id, version, checksum, successes, cacheability, runtime_version, prompt_version, \
                    admitted_at, manifest, code
             FROM artifact_versions v JOIN artifacts a ON a.id = v.artifact_id
             WHERE a.role = 'subject' AND a.method NOT IN ('ask', 'look') ORDER BY artifact_id, version"
        }
        // When, and how many records.
        "owners" => "SELECT id, kind, name, role, context_version FROM owners WHERE kind = 'session' ORDER BY id",
        // Values of children, and of the probe.
        "contents" => {
            "SELECT c.reference FROM contents c JOIN owners o ON o.id = c.owner_id
             WHERE o.kind = 'session' AND c.payload NOT LIKE '%\"process\"%' ORDER BY c.id"
        }
        _ => "",
    }
    };
    names
        .into_iter()
        .map(|name| {
            let sql = match evidence(&name) {
                "" => format!("SELECT * FROM {name} ORDER BY 1, 2"),
                sql => sql.to_owned(),
            };
            let mut statement = connection.prepare(&sql).unwrap();
            let width = statement.column_count();
            let row = |row: &rusqlite::Row<'_>| {
                let cells: Result<Vec<Cell>, _> =
                    (0..width).map(|column| row.get(column)).collect();
                cells.map(|cells| format!("{cells:?}"))
            };
            let rows = statement.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap();
            (name, rows)
        })
        .collect()
}

/// `SplitMix64`: the same programs in every run.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

// ---- Beside other writers ----

/// Rejected attempts, each of them open for longer than others need to write.
const REJECTED: usize = 6;
/// Tools another process makes, by accepted calls and by itself.
const THEIRS: usize = 12;

#[test]
fn a_rejected_attempt_undoes_only_its_own_changes() {
    for language in Language::ALL {
        beside_others(language);
    }
}

fn beside_others(language: Language) {
    let state = tempfile::tempdir().unwrap();
    let model = Arc::new(Scripted::new());
    let runtime = open(state.path(), Arc::clone(&model) as Arc<dyn Provider>, 0);
    let mine = runtime.agent("mine").guest(language).session("mine").build().unwrap();
    let rows: Vec<Value> = (0..2_000).map(|n| json!({"row": n, "text": "x".repeat(80)})).collect();
    mine.remember(object(json!({"rows": rows, "kept": "as it is"}))).unwrap();
    assert!(mine.runtime_context().to_object()["rows"].to_string().len() > 200_000);
    model.add("mine.spoil", json!({"code": written(language,
        "import time\ndelegate(f'spoilt_{args[0]}', purpose='never be')\ncontext['rows'].clear()\ncontext['rows'].append(args[0])\n\
         context['kept'] = None\ntime.sleep(0.3)\nraise RuntimeError('boom')",
        "delegate(\"spoilt_#{args[0]}\", purpose: 'never be')\ncontext['rows'].clear\ncontext['rows'] << args[0]\n\
         context['kept'] = nil\nsleep 0.3\nraise 'boom'")}));
    let before = mine.runtime_context().to_object();

    let mut process = child(&format!("{}\n{}", state.path().display(), language.name()));
    let done = Arc::new(AtomicBool::new(false));
    let neighbour = neighbour(&runtime, language, Arc::clone(&done));
    let mut written_meanwhile = 0;
    for n in 0..REJECTED {
        let tools = runtime.store().tools(None, 1000).unwrap().len();
        let outcome = mine.call("spoil", (n,)).unwrap();
        assert_eq!(outcome.failure().unwrap().kind.code(), "execution", "{outcome:?}");
        written_meanwhile += runtime.store().tools(None, 1000).unwrap().len() - tools;
        assert_eq!(mine.get("rows").as_ref(), before.get("rows"));
    }
    done.store(true, Ordering::SeqCst);
    let by_neighbour = neighbour.join().unwrap();
    process.stdin.take();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // Mine: nothing but what the other process wrote to this session while an attempt was open.
    assert!(written_meanwhile > 0, "others wrote while an attempt was open");
    let _ = mine.call("kept", ()).unwrap();
    let mut after = mine.runtime_context().to_object();
    assert_eq!(after.shift_remove("noted"), Some(json!(THEIRS - 1)));
    assert_eq!(after, before);
    // Theirs: everything.
    let tools: BTreeSet<String> = runtime
        .store()
        .tools(None, 1000)
        .unwrap()
        .iter()
        .map(|known| known.tool.name.as_str().to_owned())
        .collect();
    let theirs = (0..THEIRS).flat_map(|n| [format!("called_{n}"), format!("made_{n}")]);
    let expected: BTreeSet<String> =
        theirs.chain((0..by_neighbour).map(|n| format!("neighbour_{n}"))).collect();
    assert_eq!(tools, expected);
    let other = runtime.agent("other").guest(language).session("theirs").build().unwrap();
    assert_eq!(other.call("last", ()).unwrap().value(), Some(&json!(THEIRS - 1)));
}

/// A writer in another thread, on the same runtime; gives how many tools it made.
fn neighbour(
    runtime: &Runtime,
    language: Language,
    done: Arc<AtomicBool>,
) -> thread::JoinHandle<usize> {
    let runtime = runtime.clone();
    thread::spawn(move || {
        let agent = runtime.agent("neighbour").guest(language).build().unwrap();
        let mut made = 0;
        while !done.load(Ordering::SeqCst) {
            agent.delegate(&format!("neighbour_{made}")).purpose("stay").build().unwrap();
            made += 1;
            thread::sleep(std::time::Duration::from_millis(20));
        }
        made
    })
}

fn child(job: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{job}").unwrap();
    child
}

/// The other process: this test binary again, run by the exact name.
#[test]
fn child_process() {
    if !std::env::args().any(|argument| argument == "--exact") {
        return;
    }
    let mut lines = std::io::stdin().lock().lines().map(Result::unwrap);
    let (state, language) = (lines.next().unwrap(), lines.next().unwrap().parse().unwrap());
    let forge = written(
        language,
        "delegate(f'called_{args[0]}', purpose='stay')\ncontext['last'] = args[0]\nresult = args[0]",
        "delegate(\"called_#{args[0]}\", purpose: 'stay')\ncontext['last'] = args[0]\nargs[0]",
    );
    let model = Scripted::new().with("other.forge", forge);
    let runtime = open(Path::new(&state), Arc::new(model), 1);
    let other = runtime.agent("other").guest(language).session("theirs").build().unwrap();
    let mine = runtime.agent("mine").guest(language).session("mine").build().unwrap();
    for n in 0..THEIRS {
        let outcome = other.call("forge", (n,)).unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
        other.delegate(&format!("made_{n}")).purpose("stay").build().unwrap();
        mine.set("noted", n).unwrap();
        thread::sleep(std::time::Duration::from_millis(60));
    }
}

// ---- What they are given ----

/// A runtime on this state; every lane has `chances` retries.
fn open(state: &Path, provider: Arc<dyn Provider>, chances: u32) -> Runtime {
    let mut config = Config::defaults();
    config.set("state_dir", &state.display().to_string()).unwrap();
    config.set("log", "off").unwrap();
    config.set("max_generation_attempts", &(chances + 1).to_string()).unwrap();
    for lane in ["guardrail_recovery", "execution_repair", "fresh_outcome_repair"] {
        config.set(&format!("{lane}_budget"), &chances.to_string()).unwrap();
    }
    Runtime::builder(config).provider(provider).build().unwrap()
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("{value} is not an object") };
    object
}
