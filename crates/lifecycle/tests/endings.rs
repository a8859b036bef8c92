//! How a call ends, rule by rule: each row of the table is one sequence of answers and all that came of it.
//!
//! Under its rule a row has, first, the scene: retries of each lane in [`RetryLane::ALL`]'s order, those of the last
//! one after `transport`; `stored`,
//! a program, and how often it was repaired; and what the world answers, in the words of [`answer`]. Then
//! one line per try: where its program came from, what was waited for, the feedback the model got (and how many
//! retries are left), and the lane that rejected it. Last, the ending: its message
//! and metadata, how often a model was asked, and what the store gets.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test")]

mod common;

use std::fmt::Write as _;
use std::time::Duration;

use lifecycle::artifact::{ArtifactChange, ProvenShapes, ShapeDigest};
use lifecycle::attempt::{Attempt, Budgets, RetryLane};
use lifecycle::call::{Commit, Generate, Memory, Policy, Step, StoreFault, begin};
use lifecycle::draft::{Draft, DraftFault, SpentAllowance, Usage};
use lifecycle::execution::{
    Environment, EnvironmentFault, ExceptionFacts, ExceptionLink, Report, ReportEnding, WorkerFault,
};
use lifecycle::guardrail::{Rule, examine_request};
use lifecycle::outcome::{EndedBy, Failure, FailureKind, Reported};
use lifecycle::prompt::{PromptContext, PromptForm};
use lifecycle::request::CallId;
use lifecycle::settlement::Timing;
use lifecycle::standing::Window;
use serde_json::{Map, Value, json};

use common::{artifact, report, request};

const TABLE: &str = include_str!("endings/table.txt");

#[test]
fn every_row_ends_as_written() {
    let mut otherwise = String::new();
    for row in TABLE.trim_start_matches("# ").split("\n# ") {
        let lines: Vec<_> = row.trim().lines().map(str::trim).collect();
        let [rule, script, expected @ ..] = lines.as_slice() else { panic!("{row}") };
        let ended = run(script);
        if ended != expected {
            write!(otherwise, "# {rule}\n{script}\n    {}\n", ended.join("\n    ")).unwrap();
        }
    }
    assert!(otherwise.is_empty(), "these end otherwise; if that was meant, write:\n{otherwise}");
}

/// What the world answers when it is asked.
enum Answer {
    Drafts(Result<Draft, DraftFault>),
    Prepares(EnvironmentFault),
    Runs(Result<Box<Report>, WorkerFault>),
}

fn answer(word: &str) -> Answer {
    let draft = |payload| Answer::Drafts(Ok(Draft { payload, usage: Usage::default() }));
    let fault = |fault| Answer::Drafts(Err(fault));
    let slower = |wait: Option<u64>| {
        let retry_after = wait.map(Duration::from_millis);
        fault(DraftFault::RateLimited { message: "slower".into(), retry_after })
    };
    let unfit = || Box::new(Failure::new(FailureKind::Execution, "no such package"));
    match word {
        "no object" => draft(json!(null)),
        "unparsable" => draft(json!({"code": "result = ("})),
        "truncated" => fault(DraftFault::Truncated),
        "down" => fault(DraftFault::Unavailable("down".into())),
        "late" => fault(DraftFault::TimedOut(Duration::from_secs(9))),
        "slower" => slower(None),
        "slower by 7" => slower(Some(7)),
        "slower by a minute" => slower(Some(60_000)),
        "no key" => fault(DraftFault::Auth("no key".into())),
        "no store" => fault(DraftFault::Store(StoreFault::Unavailable("gone".into()))),
        "spent" => fault(DraftFault::AllowanceSpent(Box::new(SpentAllowance {
            budget: "model_calls",
            limit: json!(64),
            spent: json!(64),
            message: "64 spent".into(),
        }))),
        "unresolvable" => Answer::Prepares(EnvironmentFault::Unresolvable(unfit())),
        "refused" => Answer::Prepares(EnvironmentFault::Refused(unfit())),
        "value" => ran(ReportEnding::Value(json!([1]))),
        "contract broken" => ran(ReportEnding::Value(json!([]))),
        "raises" => ran(ReportEnding::Raised {
            class: "E".into(),
            message: "boom".into(),
            location: None,
            facts: Box::default(),
        }),
        "type error" => raises("TypeError", &["TypeError", "Exception"], |_| {}),
        "refused connection" => raises(
            "ConnectionRefusedError",
            &["ConnectionRefusedError", "ConnectionError", "OSError"],
            |facts| facts.exception.errno = Some("ECONNREFUSED".into()),
        ),
        "wrapped refusal" => {
            raises("requests.exceptions.RequestException", &["OSError"], |facts| {
                let class_chain = ["ConnectionRefusedError", "ConnectionError"].map(str::to_owned);
                facts.causes =
                    vec![ExceptionLink { class_chain: class_chain.to_vec(), ..Default::default() }];
            })
        }
        "no file" => raises("FileNotFoundError", &["FileNotFoundError", "OSError"], |facts| {
            let ExceptionLink { errno, path, .. } = &mut facts.exception;
            (*errno, *path) = (Some("ENOENT".into()), Some("sales.csv".into()));
        }),
        "nested failure" => raises("TypeError", &["TypeError"], |facts| {
            facts.exception.failed_call = Some("execution".into());
        }),
        "nested misuse" => raises("TypeError", &["TypeError"], |facts| {
            facts.exception.failed_call = Some("invalid_call".into());
        }),
        "not_found" => says(word, false),
        "flaky" | "network_error" => says(word, true),
        "silent service" => silent(Some(Duration::from_secs(20))),
        "no connection" => silent(None),
        "shutdown" => {
            Answer::Runs(Err(WorkerFault::Crashed { by: EndedBy::Host, detail: "x".into() }))
        }
        _ => match word.strip_prefix("violation and ") {
            Some(rest) => violating(answer(rest)),
            None => draft(json!({"code": program(word)})),
        },
    }
}

fn program(name: &str) -> &'static str {
    match name {
        "fine" => "result = [args[0]]",
        "fine2" => "result = [args[0], 2]",
        "fine3" => "result = [args[0], 3]",
        "baked" => "result = [77]",
        "baked2" => "result = [77, 2]",
        "forks" => "import os\nos.fork()\nresult = [args[0]]",
        "pair" => "def list(w, h): return [w, h]",
        "fetches" => "import urllib.request\nresult = [urllib.request.urlopen(args[0]).read()]",
        "chooses" => {
            "import urllib.request\nurl = 'http://prices.example/list'\nresult = [urllib.request.urlopen(url).read(), args[0]]"
        }
        "reads" => "result = open(args[0]).readlines()",
        "posts" => {
            "import urllib.request\nurllib.request.urlopen('http://hook.example', data=b'x')\nresult = [args[0]]"
        }
        "forks2" => "import os\nos.fork()\nresult = [args[0], 2]",
        _ => panic!("no answer is called {name:?}"),
    }
}

/// The program's time was up while it waited for a service.
fn silent(silent: Option<Duration>) -> Answer {
    Answer::Runs(Err(WorkerFault::ServiceSilent { limit: Duration::from_secs(30), silent }))
}

fn ran(ending: ReportEnding) -> Answer {
    Answer::Runs(Ok(Box::new(report(ending))))
}

/// The program raised; `known` adds to what the guest reports of it.
fn raises(class: &str, chain: &[&str], known: impl Fn(&mut ExceptionFacts)) -> Answer {
    let class_chain = chain.iter().map(|name| (*name).to_owned()).collect();
    let exception = ExceptionLink { class_chain, ..ExceptionLink::default() };
    let mut facts = ExceptionFacts { exception, ..ExceptionFacts::default() };
    known(&mut facts);
    let (class, message) = (class.to_owned(), "boom".to_owned());
    ran(ReportEnding::Raised { class, message, location: None, facts: Box::new(facts) })
}

fn says(code: &str, retriable: bool) -> Answer {
    let reported = Reported { code: code.into(), retriable };
    ran(ReportEnding::Reported { reported, message: "sorry".into(), metadata: Map::new() })
}

/// The program asked for a tool of its own role before.
fn violating(answer: Answer) -> Answer {
    let Answer::Runs(Ok(report)) = answer else { panic!("only what runs can ask") };
    let violations = examine_request("lister", "lister").into_iter().collect();
    Answer::Runs(Ok(Box::new(Report { violations, ..*report })))
}

/// Answers until the call ends; environments are there unless an answer says otherwise.
fn run(script: &str) -> Vec<String> {
    let (scene, answers) = script.split_once(':').unwrap();
    let answers: Vec<&str> = answers.trim().split(", ").filter(|word| !word.is_empty()).collect();
    let mut answers = answers.into_iter().map(answer).peekable();
    let mut asked = Vec::new();
    let mut step = recalled(scene);
    loop {
        let prepared = matches!(step, Step::Prepare(_))
            && !matches!(answers.peek(), Some(Answer::Prepares(_)));
        step = match (step, if prepared { None } else { answers.next() }) {
            (Step::Generate(mut generate), Some(Answer::Drafts(reply))) => {
                asked.push(feedback(&mut generate));
                generate.generated(reply, Duration::ZERO)
            }
            (Step::Prepare(prepare), None) => prepare.prepared(Ok(Environment::bare())),
            (Step::Prepare(prepare), Some(Answer::Prepares(fault))) => {
                prepare.prepared(Err(fault.into()))
            }
            (Step::Execute(execute), Some(Answer::Runs(report))) => {
                execute.executed(report.map(|report| *report).map_err(Into::into), Duration::ZERO)
            }
            (Step::Commit(commit), None) => return summary(&commit, asked),
            (step, _) => panic!("{script}: no answer, or not one to {step:?}"),
        };
    }
}

fn recalled(scene: &str) -> Step {
    let mut request = request();
    let (mut policy, mut memory) = (Policy::default(), Memory::default());
    let mut words = scene.split(' ');
    let number = |text: Option<&str>| text.unwrap().parse::<u32>().unwrap();
    while let Some(word) = words.next() {
        match word {
            "child" => request.lineage = request.lineage.child_of(&CallId("parent".into())),
            "terminal" => {
                policy.guardrails.terminal = vec![Rule::ProcessEscape, Rule::SelfMaterialization];
            }
            "stored" => {
                let code = program(words.next().unwrap());
                memory.artifacts.push(artifact(code, number(words.next())));
            }
            // Accepted before with a number.
            "proven" => {
                for artifact in &mut memory.artifacts {
                    let shape = ShapeDigest::of_call(&common::request());
                    artifact.track_record.shapes = ProvenShapes::stored(shape.as_str().to_owned());
                }
            }
            "degraded" => {
                for artifact in &mut memory.artifacts {
                    artifact.track_record.recent = Window::stored("fff".to_owned());
                }
            }
            "narrow" => policy.widen = false,
            "text" => request.arguments.args = vec![json!("foo")],
            "url" => request.arguments.args = vec![json!("http://shop.example/list")],
            "path" => request.arguments.args = vec![json!("sales.csv")],
            "network" => policy.access.hosts = None,
            "transport" => policy.budgets.transport = number(words.next()),
            generation => {
                policy.budgets = Budgets {
                    generation: number(Some(generation)),
                    guardrail: number(words.next()),
                    execution: number(words.next()),
                    outcome: number(words.next()),
                    ..Budgets::default()
                };
            }
        }
    }
    let Step::Recall(recall) = begin(request, policy) else { panic!("recall comes first") };
    recall.recalled(Ok(memory))
}

fn feedback(generate: &mut Generate) -> String {
    let mut feedback = String::new();
    if generate.pause() > Duration::ZERO {
        write!(feedback, " after {:?}", generate.pause()).unwrap();
    }
    let user = generate.prompt(&PromptContext::default(), PromptForm::Payload).user;
    if let Some(line) = user.lines().find_map(|line| line.strip_prefix("feedback: ")) {
        let block: Value = serde_json::from_str(line).unwrap();
        let what = block.get("violation_subtype").or(block.get("error_type")).unwrap();
        write!(feedback, " feedback {}", what.as_str().unwrap()).unwrap();
        for lane in RetryLane::ALL.map(RetryLane::name) {
            if let Some(left) = block.get(format!("remaining_{lane}_budget")) {
                write!(feedback, " ({lane} {left})").unwrap();
            }
        }
    }
    feedback
}

/// The one place that knows origins: by their wire names. Only a model's programs were asked for.
fn tried(attempt: &Attempt, asked: &mut impl Iterator<Item = String>) -> String {
    let source = attempt.origin.program_source();
    let feedback = match source {
        _ if attempt.last_resort => " as a last resort".to_owned(),
        "persisted" => String::new(),
        _ => asked.next().unwrap(),
    };
    let end = match &attempt.rejection {
        None => "accepted".to_owned(),
        Some(rejection) => {
            let lane = attempt.lane().map_or("rejected", RetryLane::name);
            format!("{lane}{}", if rejection.repeated { ", repeated" } else { "" })
        }
    };
    format!("{source}{feedback}: {end}")
}

/// Parts of the metadata keys that the retry policy writes.
const OF_THE_POLICY: [&str; 9] = [
    "_attempts",
    "normaliz",
    "raw_",
    "violation_sub",
    "last_error",
    "blame",
    "repair_error_type",
    "grant",
    "sent",
];

fn summary(commit: &Commit, asked: Vec<String>) -> Vec<String> {
    let mut asked = asked.into_iter();
    let mut lines: Vec<_> = commit.attempts().iter().map(|a| tried(a, &mut asked)).collect();
    lines.push(commit.outcome().failure().map_or("ok".to_owned(), Failure::to_string));
    for (key, value) in commit.outcome().failure().iter().flat_map(|failure| &failure.metadata) {
        if OF_THE_POLICY.iter().any(|part| key.contains(part)) {
            lines.push(format!("{key} {value}"));
        }
    }
    lines.extend(commit.outcome().notes.iter().map(|note| format!("note: {note}")));
    let timing = Timing { timestamp: "now".into(), since_epoch_ms: 0, duration: Duration::ZERO };
    let changes = commit.changes(&timing);
    let mut effects = vec![format!("{} asked", commit.model_calls())];
    effects.extend(changes.exhausted.map(|lane| format!("{} exhausted", lane.name())));
    effects.extend(changes.kept.map(|_| "kept".to_owned()));
    effects.extend(changes.artifacts.iter().map(|change| match change {
        ArtifactChange::Admit(new) => {
            let program = &new.artifact;
            format!(
                "admitted as {} after {} repairs",
                program.cacheability.reason(),
                program.repairs
            )
        }
        ArtifactChange::VoidCases => "recorded calls void".to_owned(),
        ArtifactChange::RepairWritten { checksum } => {
            assert_eq!(*checksum, commit.selected().unwrap().checksum);
            "repair written".to_owned()
        }
        ArtifactChange::Score { checksum, verdict } => {
            let selected = commit.selected().map_or(checksum, |artifact| &artifact.checksum);
            assert_eq!(checksum, selected);
            format!("{verdict:?}")
        }
    }));
    let ending = lines.split_off(commit.attempts().len());
    lines.push(format!("{}; {}", ending.join("; "), effects.join(", ")));
    lines
}

/// What a program calls its error is kept in the store and in every log line: it is cut like everything else.
#[test]
fn an_authored_error_type_of_any_length_is_kept_short() {
    let endless = "x".repeat(1 << 20);
    for ending in [
        says(&endless, false),
        ran(ReportEnding::Raised {
            class: endless,
            message: "boom".into(),
            location: None,
            facts: Box::default(),
        }),
    ] {
        let Answer::Runs(Ok(report)) = ending else { panic!("it runs") };
        let Step::Recall(recall) = begin(request(), Policy::default()) else { panic!("recall") };
        let stored = Memory { artifacts: vec![artifact(program("fine"), 0)], ..Memory::default() };
        let Step::Prepare(prepare) = recall.recalled(Ok(stored)) else { panic!("it is stored") };
        let Step::Execute(execute) = prepare.prepared(Ok(Environment::bare())) else {
            panic!("it runs")
        };
        let step = execute.executed(Ok(*report), Duration::ZERO);
        let shown = format!("{:?}", step.attempts());
        let shown = match &step {
            Step::Commit(commit) => {
                let timing =
                    Timing { timestamp: "now".into(), since_epoch_ms: 0, duration: Duration::ZERO };
                let changes = commit.changes(&timing);
                format!("{shown} {} {:?}", changes.record, changes.event)
            }
            Step::Generate(_) => shown,
            Step::Recall(_) | Step::Prepare(_) | Step::Execute(_) | Step::Rehearse(_) => {
                panic!("{step:?}")
            }
        };
        assert!(shown.len() < 10_000, "{} bytes", shown.len());
    }
}
