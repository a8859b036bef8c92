//! Does *every possible* sequence of answers end, within budget, keeping the invariants?
//!
//! All of them are enumerated, depth first, by replaying from the start. The golden line counts how all
//! calls end: invariants alone let most changes of policy live, the histogram does not.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use lifecycle::artifact::Artifact;
use lifecycle::attempt::{Attempt, Budgets, Origin, Reason, RetryLane, spent};
use lifecycle::call::{Commit, Memory, Policy, Step, StoreFault, begin};
use lifecycle::contract::Fingerprint;
use lifecycle::dependency::{DependencyPolicy, PackageName};
use lifecycle::dialect::Language;
use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::execution::{
    Environment, EnvironmentFault, ExceptionFacts, ExceptionLink, Report, ReportEnding, ResultFrom,
    WorkerFault,
};
use lifecycle::inference::{FailedInference, Inferred};
use lifecycle::look::Look;
use lifecycle::outcome::{EndedBy, Failure, FailureKind, Reported};
use lifecycle::settlement::Timing;
use serde_json::{Map, Value, json};

use common::{artifact, report, request};

const STORED: &str = "result = [args[0]]";

fn policy(transport: u32) -> Policy {
    let dependencies = DependencyPolicy {
        blocked: PackageName::parse(Language::Python, "evil").into_iter().collect(),
        ..DependencyPolicy::default()
    };
    let budgets = Budgets { transport, ..Budgets::default() };
    Policy { dependencies, budgets, ..Policy::default() }
}

fn recalls() -> Vec<Result<Memory, StoreFault>> {
    let other = Artifact { contract_fingerprint: Fingerprint::none(), ..artifact(STORED, 0) };
    let stored = |artifact| Ok(Memory { artifacts: vec![artifact], ..Memory::default() });
    vec![
        Ok(Memory::default()),
        stored(artifact(STORED, 0)),
        stored(artifact(STORED, 3)),
        stored(other),
        Err(StoreFault::Unavailable("gone".into())),
    ]
}

/// `n` makes each program different, so that none is taken for a repetition.
fn drafts(n: usize) -> Vec<Result<Draft, DraftFault>> {
    let payload = |payload: Value| Ok(Draft { payload, usage: Usage::default() });
    vec![
        payload(json!({"code": format!("result = [args[0], {n}]")})),
        payload(json!({"code": "result = ("})),
        payload(json!(null)),
        payload(json!({"code": format!("import os\nos.fork()\nresult = {n}")})),
        payload(json!({
            "code": format!("import evil\nresult = [args[0], {n}]"),
            "dependencies": [{"name": "evil"}],
        })),
        Err(DraftFault::Unavailable("down".into())),
        Err(DraftFault::Auth("no key".into())),
        payload(json!({"code": format!("result = [77, {n}]")})),
    ]
}

/// The variant of an environment's fault decides what kind it is.
fn fault(message: &str) -> Failure {
    Failure::new(FailureKind::Execution, message)
}

fn preparations() -> Vec<Result<Environment, EnvironmentFault>> {
    vec![
        Ok(Environment::bare()),
        Err(EnvironmentFault::Unresolvable(Box::new(fault("no such package")))),
        Err(EnvironmentFault::SourceUnreachable(Box::new(fault("no answer")))),
        Err(EnvironmentFault::GuestMissing("install it".into())),
    ]
}

fn reports() -> Vec<Result<Report, WorkerFault>> {
    let report = |ending| Ok(report(ending));
    let reported = |code: &str, retriable| {
        report(ReportEnding::Reported {
            reported: Reported { code: code.into(), retriable },
            message: "m".into(),
            metadata: Map::new(),
        })
    };
    vec![
        report(ReportEnding::Value(json!([1]))),
        report(ReportEnding::Value(json!([]))),
        reported("not_found", false),
        reported("flaky", true),
        report(ReportEnding::Raised {
            class: "E".into(),
            message: "m".into(),
            location: None,
            facts: Box::default(),
        }),
        Err(WorkerFault::Crashed { by: EndedBy::Host, detail: "shutdown".into() }),
        Ok(Report {
            result_from: ResultFrom::Nothing,
            ..common::report(ReportEnding::Value(Value::Null))
        }),
        report(ReportEnding::Looked(Box::new(Look { value: json!([1]), why: "what".into() }))),
        report(ReportEnding::Raised {
            class: "AskError".into(),
            message: "m".into(),
            location: None,
            facts: Box::new(asked_in_vain()),
        })
        .map(|report| Report { inferred: unanswered(Reason::InferFailed), ..report }),
        report(ReportEnding::Raised {
            class: "AskError".into(),
            message: "m".into(),
            location: None,
            facts: Box::new(asked_in_vain()),
        })
        .map(|report| Report { inferred: unanswered(Reason::AnswerUnfit), ..report }),
    ]
}

/// The exception of a program whose question was not answered.
fn asked_in_vain() -> ExceptionFacts {
    let exception =
        ExceptionLink { failed_call: Some("infer_failed".into()), ..ExceptionLink::default() };
    ExceptionFacts { exception, ..ExceptionFacts::default() }
}

fn unanswered(reason: Reason) -> Inferred {
    let failure = Failure::new(FailureKind::InferFailed, "no answer");
    Inferred { failed: Some(FailedInference { reason, failure }), ..Inferred::default() }
}

/// Makes the number of a second draft out of that of a first: both come at once.
const SECOND: usize = 10;

/// Answers `step` with its `choice`-th possible answer; `Err` with how many there are at a commit.
fn answer(step: Step, choice: usize, n: usize) -> Result<Step, Box<Commit>> {
    let took = Duration::ZERO;
    Ok(match step {
        Step::Recall(recall) => recall.recalled(recalls().swap_remove(choice)),
        Step::Generate(generate) if choice >= SECOND => {
            assert_eq!(generate.candidates(1), 2);
            let first = drafts(n).swap_remove(choice % SECOND);
            let second = drafts(n + 100).swap_remove(choice / SECOND - 1);
            generate.generated_all(vec![first, second], took)
        }
        Step::Generate(generate) => generate.generated(drafts(n).swap_remove(choice), took),
        Step::Prepare(prepare) => {
            prepare.prepared(preparations().swap_remove(choice).map_err(Into::into))
        }
        Step::Execute(execute) => {
            execute.executed(reports().swap_remove(choice).map_err(Into::into), took)
        }
        Step::Rehearse(rehearse) => {
            let runs = rehearse.runs().into_iter().take(choice * 100);
            rehearse.rehearsed(runs.map(|_| Ok(report(ReportEnding::Value(json!([2]))))).collect())
        }
        Step::Commit(commit) => return Err(commit),
    })
}

/// Which of the answers above are given: what can happen is counted world by world, as all of it at once is
/// too much.
struct World {
    recalls: &'static [usize],
    drafts: &'static [usize],
    preparations: &'static [usize],
    reports: &'static [usize],
    /// Retries after faults of the model's service.
    transport: u32,
    /// Whether the call has a contract, which null breaks.
    contract: bool,
    /// What rehearsals give: nothing, or a value for every run.
    rehearsals: &'static [usize],
}

/// Everything but advice, and retries after faults of the service.
const UNADVISED: World = World {
    recalls: &[0, 1, 2, 3, 4],
    drafts: &[0, 1, 2, 3, 4, 5, 6],
    preparations: &[0, 1, 2, 3],
    reports: &[0, 1, 2, 3, 4, 5],
    contract: true,
    transport: 0,
    rehearsals: &[0],
};

/// Services that fail, for a while or for good.
const OUTAGES: World = World {
    recalls: &[0, 1],
    drafts: &[0, 2, 3, 5],
    preparations: &[0],
    reports: &[0, 4],
    transport: 2,
    contract: true,
    rehearsals: &[0],
};

/// Programs that are advised, and what else can come of them and of their retries.
const ADVISED: World = World {
    recalls: &[0, 1],
    drafts: &[0, 3, 6, 7],
    preparations: &[0, 2],
    reports: &[0, 2, 4, 5],
    transport: 0,
    contract: true,
    rehearsals: &[0],
};

/// Programs that end without a result, and what else can come of them and of their retries.
const WITHOUT_RESULT: World = World {
    recalls: &[0, 3],
    drafts: &[0, 3, 5, 6],
    preparations: &[0, 2],
    reports: &[0, 4, 5, 6],
    transport: 0,
    contract: false,
    rehearsals: &[0],
};

/// Programs that look at data, or ask a model about it in vain, and what else can come of them and of their retries.
const ASKING: World = World {
    recalls: &[0, 1],
    drafts: &[0, 3],
    preparations: &[0],
    reports: &[0, 4, 7, 8, 9],
    transport: 0,
    contract: true,
    rehearsals: &[0],
};

/// Two programs at once: both usable, or one, or none of them.
const CANDIDATES: World = World {
    recalls: &[0, 2],
    drafts: &[10, 11, 13, 20, 40, 66],
    preparations: &[0],
    reports: &[0, 2, 4],
    transport: 0,
    contract: true,
    rehearsals: &[0, 1],
};

impl World {
    fn choices(&self, step: &Step) -> &[usize] {
        match step {
            Step::Recall(_) => self.recalls,
            Step::Generate(_) => self.drafts,
            Step::Prepare(_) => self.preparations,
            Step::Execute(_) => self.reports,
            Step::Rehearse(_) => self.rehearsals,
            Step::Commit(_) => &[],
        }
    }
}

/// Replays `path` from the start.
fn replay(path: &[usize], world: &World) -> Step {
    let mut request = request();
    request.contract = request.contract.filter(|_| world.contract);
    let candidates = if world.rehearsals.len() > 1 { 2 } else { 1 };
    let mut step =
        begin(request, Policy { candidates: Some(candidates), ..policy(world.transport) });
    for (n, choice) in path.iter().enumerate() {
        step =
            answer(step, *choice, n).unwrap_or_else(|_| panic!("{path:?} goes on after its end"));
    }
    step
}

fn check_invariants(commit: &Commit, path: &[usize]) {
    let attempts = commit.attempts();
    for lane in RetryLane::ALL {
        assert!(
            spent(attempts, lane) <= commit.budgets().of(lane) + 1,
            "{path:?}: {lane:?} overspent"
        );
    }
    let accepted = attempts.iter().filter(|attempt| attempt.rejection.is_none()).count();
    assert!(
        accepted <= 1 && attempts.iter().rev().skip(1).all(|a| a.rejection.is_some()),
        "{path:?}"
    );
    assert_eq!(commit.outcome().role, commit.request().role);
    let gave_none = |attempt: &Attempt| {
        attempt.rejection.as_ref().is_some_and(|it| it.reason == Reason::NoResult)
    };
    if commit.outcome().is_ok() && attempts.last().is_some_and(|it| it.rejection.is_some()) {
        assert!(attempts.iter().any(gave_none), "{path:?}: a rejected program is not ok");
        assert_eq!(commit.outcome().value(), Some(&Value::Null), "{path:?}");
        assert!(commit.accepted().is_none(), "{path:?}: a program without a result is kept");
        return;
    }
    let timing = Timing { timestamp: "now".into(), since_epoch_ms: 0, duration: Duration::ZERO };
    let changes = commit.changes(&timing);
    assert_eq!(
        changes.kept.is_some(),
        commit.outcome().is_ok(),
        "{path:?}: only an ok call keeps anything"
    );
    let admitted = changes
        .artifacts
        .iter()
        .any(|c| matches!(c, lifecycle::artifact::ArtifactChange::Admit(_)));
    let from_model = attempts.last().is_some_and(|a| !matches!(a.origin, Origin::Artifact(_)));
    assert_eq!(
        admitted,
        commit.outcome().is_ok() && from_model,
        "{path:?}: only what worked is stored"
    );
}

/// Parsers want 64 MiB of stack; on a thread that has it, none is mapped for each program read.
const STACK_BYTES: usize = 128 * 1024 * 1024;

#[test]
fn every_call_ends_and_ends_as_counted() {
    check(UNADVISED, GOLDEN);
}

#[test]
fn every_call_that_is_advised_ends_and_ends_as_counted() {
    check(ADVISED, GOLDEN_ADVISED);
}

#[test]
fn every_call_during_an_outage_ends_and_ends_as_counted() {
    check(OUTAGES, GOLDEN_OUTAGES);
}

#[test]
fn every_call_with_two_programs_ends_and_ends_as_counted() {
    check(CANDIDATES, GOLDEN_CANDIDATES);
}

#[test]
fn every_call_without_a_result_ends_and_ends_as_counted() {
    check(WITHOUT_RESULT, GOLDEN_WITHOUT_RESULT);
}

#[test]
fn every_call_that_looks_or_asks_ends_and_ends_as_counted() {
    check(ASKING, GOLDEN_ASKING);
}

fn check(world: World, golden: &str) {
    let count = move || count_all(&world);
    #[expect(clippy::disallowed_types, reason = "the count recurses deeply")]
    let census = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(count).unwrap();
    assert_eq!(
        census.join().unwrap(),
        golden,
        "the policy changed; if that was meant, write the new line"
    );
}

/// Enumerates every call, checks it, and counts how they end.
fn count_all(world: &World) -> String {
    let mut endings: BTreeMap<String, usize> = BTreeMap::new();
    let mut pending = vec![Vec::new()];
    let mut longest = 0;
    while let Some(path) = pending.pop() {
        match replay(&path, world) {
            Step::Commit(commit) => {
                check_invariants(&commit, &path);
                let ending = commit.outcome().failure().map_or("ok", |failure| failure.kind.code());
                *endings.entry(ending.to_owned()).or_default() += 1;
                longest = longest.max(path.len());
            }
            step @ (Step::Recall(_)
            | Step::Generate(_)
            | Step::Prepare(_)
            | Step::Execute(_)
            | Step::Rehearse(_)) => {
                for choice in world.choices(&step) {
                    let mut next = path.clone();
                    next.push(*choice);
                    pending.push(next);
                }
            }
        }
    }
    let mut line = format!("{} calls, longest {longest}:", endings.values().sum::<usize>());
    for (ending, count) in &endings {
        write!(line, " {ending} {count}").unwrap();
    }
    line
}

const GOLDEN: &str = "70917 calls, longest 14: contract_violation 5078 dependency_install_failed 4790 \
    dependency_policy_violation 4204 dependency_resolution_failed 4236 execution 5078 flaky 646 \
    guardrail_retry_exhausted 4204 guest_unavailable 5066 invalid_code 8408 not_found 5066 ok 5066 \
    outcome_repair_retry_exhausted 4432 provider 4788 provider_auth 4788 store_unavailable 1 \
    worker_crash 5066";

#[test]
fn what_cannot_be_committed_did_not_happen() {
    let step = replay(&[0, 0, 0, 0], &UNADVISED);
    let Step::Commit(commit) = step else { panic!("accepted at once") };
    assert!(commit.outcome().is_ok());
    let settled = commit.committed(Err(StoreFault::Conflict { session: "s".into() }));
    let (outcome, kept) = settled.into_parts();
    assert_eq!(outcome.failure().map(|f: &Failure| &f.kind), Some(&FailureKind::ContextConflict));
    assert!(kept.is_none());
}

const GOLDEN_WITHOUT_RESULT: &str = "76 calls, longest 10: dependency_install_failed 9 execution 13 \
    guardrail_retry_exhausted 5 ok 22 provider 8 provider_auth 8 worker_crash 11";

const GOLDEN_CANDIDATES: &str = "1448 calls, longest 19: execution 199 guardrail_retry_exhausted 54 invalid_code 54 \
    not_found 457 ok 609 provider_auth 75";

const GOLDEN_ASKING: &str = "1716 calls, longest 19: execution 301 guardrail_retry_exhausted 268 infer_failed 644 \
    look_budget_spent 160 ok 343";

const GOLDEN_ADVISED: &str = "386 calls, longest 12: dependency_install_failed 50 execution 44 \
    guardrail_retry_exhausted 23 not_found 81 ok 81 provider_auth 26 worker_crash 81";

const GOLDEN_OUTAGES: &str = "1371 calls, longest 13: execution 343 guardrail_retry_exhausted 246 invalid_code 246 ok 343 \
    provider 193";
