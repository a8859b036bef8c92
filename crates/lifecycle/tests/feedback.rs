//! The feedback of a retry: exactly what was wrong, once, and never less because a service failed meanwhile.
#![expect(clippy::panic, clippy::unwrap_used, clippy::unnecessary_wraps, reason = "test")]

use std::time::Duration;

use lifecycle::call::{Execute, Generate, Memory, Policy, Step, begin};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::dialect::Language;
use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::execution::{Environment, Output, Report, ReportEnding, ResultFrom, WorkerTrace};
use lifecycle::inference::Inferred;
use lifecycle::prompt::{PromptContext, PromptForm};
use lifecycle::provenance::Observation;
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use lifecycle::settlement::Timing;
use serde_json::{Map, Value, json};

fn first_generate() -> Box<Generate> {
    first_generate_of(Policy::default())
}

fn first_generate_of(policy: Policy) -> Box<Generate> {
    let request = CallRequest {
        id: CallId("c".into()),
        lineage: Lineage::Root { trace: TraceId::parse("t").unwrap() },
        role: Role::parse("calculator").unwrap(),
        method: Method::parse("add").unwrap(),
        arguments: Arguments { args: vec![json!(37)], kwargs: Map::new() },
        contract: None,
        language: Language::Python,
        context: Context::default(),
        manifest: None,
        allowance: Allowance::default(),
    };
    let Step::Recall(recall) = begin(request, policy) else { panic!("recall comes first") };
    generate(recall.recalled(Ok(Memory::default())))
}

fn generate(step: Step) -> Box<Generate> {
    match step {
        Step::Generate(generate) => generate,
        other @ (Step::Recall(_)
        | Step::Prepare(_)
        | Step::Execute(_)
        | Step::Rehearse(_)
        | Step::Commit(_)) => {
            panic!("expected a retry, got {other:?}")
        }
    }
}

fn drafted(code: &str) -> Result<Draft, DraftFault> {
    Ok(Draft { payload: json!({"code": code}), usage: Usage::default() })
}

fn feedback(generate: &mut Generate) -> Option<Value> {
    let user = generate.prompt(&PromptContext::default(), PromptForm::Payload).user;
    let line = user.lines().find_map(|line| line.strip_prefix("feedback: "))?;
    Some(serde_json::from_str(line).unwrap())
}

#[test]
fn a_first_prompt_has_no_feedback() {
    assert_eq!(feedback(&mut first_generate()), None);
}

#[test]
fn a_violation_is_reported_with_its_place_and_correction() {
    let code = "import os\nos.fork()\nresult = args[0]";
    let given =
        feedback(&mut generate(first_generate().generated(drafted(code), Duration::ZERO))).unwrap();
    assert_eq!(given["violation_subtype"], "process_escape");
    assert_eq!(given["violation_location"]["line"], 2);
    assert_eq!(given["code"], code);
    assert_eq!(given["remaining_guardrail_budget"], 0);
    assert!(given["required_correction"].as_str().is_some_and(|text| !text.is_empty()));
}

#[test]
fn every_violation_is_reported_at_once() {
    let code = "import os, requests\nos.fork()\nresult = requests.get(args[0])";
    let given =
        feedback(&mut generate(first_generate().generated(drafted(code), Duration::ZERO))).unwrap();
    assert_eq!(given["violation_subtype"], "process_escape");
    assert_eq!(given["further_violations"][0]["violation_subtype"], "undeclared_dependency");
}

#[test]
fn a_program_rejected_before_is_not_run_again() {
    let program = "import os\nos.fork()\nresult = args[0]";
    let barred = generate(first_generate().generated(drafted(program), Duration::ZERO));
    let malformed = generate(barred.generated(drafted("result = ("), Duration::ZERO));
    let step = malformed.generated(drafted(program), Duration::ZERO);
    let last = step.attempts().last().unwrap().rejection.as_ref().unwrap();
    assert!(last.repeated, "{last:?}");
    assert!(last.failure.message.ends_with("was not run again"), "{}", last.failure.message);
}

#[test]
fn a_transport_fault_does_not_make_a_retry_forget() {
    let mut barred = generate(
        first_generate()
            .generated(drafted("import os\nos.fork()\nresult = args[0]"), Duration::ZERO),
    );
    let before = feedback(&mut barred);
    let down = barred.generated(Err(DraftFault::Unavailable("down".into())), Duration::ZERO);
    let mut again = generate(down);
    assert_eq!(feedback(&mut again), before);
    assert!(again.pause() > Duration::ZERO);
}

#[test]
fn advice_is_given_once_and_does_not_cost_the_answer() {
    let baked = "result = 37 + 1";
    let mut advised = generate(first_generate().generated(drafted(baked), Duration::ZERO));
    assert_eq!(feedback(&mut advised).unwrap()["violation_subtype"], "input_baked_code");
    let step = advised.generated(drafted(baked), Duration::ZERO);
    assert!(matches!(step, Step::Prepare(_)), "the same program again may run: {step:?}");
}

/// A new program that runs next.
fn executed(generate: Box<Generate>, code: &str) -> Box<Execute> {
    let Step::Prepare(prepare) = generate.generated(drafted(code), Duration::ZERO) else {
        panic!("it may run")
    };
    match prepare.prepared(Ok(Environment::bare())) {
        Step::Execute(execute) => execute,
        other @ (Step::Recall(_)
        | Step::Generate(_)
        | Step::Prepare(_)
        | Step::Rehearse(_)
        | Step::Commit(_)) => {
            panic!("expected a run, got {other:?}")
        }
    }
}

/// The report of a program that gave null, how it gave it, and what it printed.
fn null(result_from: ResultFrom, stdout: &str) -> Report {
    Report {
        ending: ReportEnding::Value(Value::Null),
        changes: ContextChanges::default(),
        forged: Vec::new(),
        violations: Vec::new(),
        failed_call: None,
        inferred: Inferred::default(),
        output: Output { stdout: stdout.to_owned(), ..Output::default() },
        observed: Observation::of_no_network(),
        worker: WorkerTrace::default(),
        result_from,
    }
}

#[test]
fn feedback_on_a_program_without_a_result_says_what_was_seen() {
    let code = "x = args[0]";
    for (result_from, stdout, expected) in [
        (ResultFrom::Nothing, "42\n", "it printed `42`"),
        (ResultFrom::Nothing, "", "it ended without a value"),
        (ResultFrom::Expression, "", "its last expression gave null"),
        (ResultFrom::Expression, "a\nb", "it printed `a\nb`"),
    ] {
        let run = executed(first_generate(), code);
        let step = run.executed(Ok(null(result_from, stdout)), Duration::ZERO);
        let given = feedback(&mut generate(step)).unwrap();
        assert_eq!(given["error_type"], "no_result");
        let message = given["error_message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
        assert!(given["required_correction"].as_str().unwrap().contains("function named `add`"));
        assert_eq!(given["remaining_outcome_budget"], 0);
    }
}

#[test]
fn feedback_on_a_value_that_is_not_expected_shows_both() {
    let policy = Policy { expected: Some(json!(42)), ..Policy::default() };
    let run = executed(first_generate_of(policy), "result = args[0] + 1");
    let report = |value: Value| {
        let ending = ReportEnding::Value(value);
        Ok(Report { ending, ..null(ResultFrom::Assigned, "") })
    };
    let mut again = generate(run.executed(report(json!(38)), Duration::ZERO));
    let given = feedback(&mut again).unwrap();
    assert_eq!((&given["expected"], &given["actual"]), (&json!("42"), &json!("38")), "{given}");
    assert_eq!(given["mismatch"], "unexpected_value");
    assert_eq!(given["remaining_outcome_budget"], 0);
    let right =
        executed(again, "result = args[0] + 5").executed(report(json!(42.0)), Duration::ZERO);
    let Step::Commit(commit) = right else { panic!("it is accepted: {right:?}") };
    assert_eq!(commit.unexpected().len(), 1);
}

#[test]
fn null_is_accepted_if_it_was_meant_or_something_was_done() {
    for (code, report) in [
        ("x = args[0]", null(ResultFrom::Assigned, "")),
        ("x = args[0]", null(ResultFrom::Returned, "")),
        ("x = args[0]", null(ResultFrom::Function, "42")),
        ("import os\nos.remove(args[0])", null(ResultFrom::Nothing, "")),
    ] {
        let step = executed(first_generate(), code).executed(Ok(report), Duration::ZERO);
        let Step::Commit(commit) = step else { panic!("{code} is accepted: {step:?}") };
        assert!(commit.outcome().is_ok() && commit.accepted().is_some(), "{code}");
    }
}

#[test]
fn without_retries_the_caller_gets_null_and_nothing_is_kept() {
    let again = executed(first_generate(), "x = args[0]")
        .executed(Ok(null(ResultFrom::Nothing, "1")), Duration::ZERO);
    let step = executed(generate(again), "y = args[0]")
        .executed(Ok(null(ResultFrom::Nothing, "1")), Duration::ZERO);
    let Step::Commit(commit) = step else { panic!("it ends: {step:?}") };
    assert_eq!(commit.outcome().value(), Some(&Value::Null));
    assert!(commit.accepted().is_none());
    let timing = Timing { timestamp: "now".into(), since_epoch_ms: 0, duration: Duration::ZERO };
    let event = commit.observed(&timing);
    assert!(event.is_weak(), "{event:?}");
}
