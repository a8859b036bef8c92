//! What happens when a question has no answer: typed failures, and whose fault it is.

use std::time::Duration;

use recurgent::provider::DraftFault;
use serde_json::json;

use crate::fixture::{check, check_with};

#[test]
fn a_model_that_fails_is_asked_again_and_then_the_world_is_to_blame() {
    check(|fixture| {
        fixture.writes_topic();
        fixture.queue_answer(json!({"answer": "bug"}));
        fixture.value("triage", "topic", &[json!("It crashed")]);
        for _ in 0..2 {
            fixture.queue_fault(DraftFault::Unavailable("the service is down".to_owned()));
        }
        fixture.queue_answer(json!({"answer": "praise"}));
        assert_eq!(fixture.value("triage", "topic", &[json!("Thanks")]), "praise");
        for _ in 0..5 {
            fixture.queue_fault(DraftFault::Unavailable("the service is down".to_owned()));
        }
        let outcome = fixture.call("triage", "topic", &[json!("Hello")]);
        let failure = outcome.failure().unwrap();
        assert_eq!(failure.kind.code(), "infer_failed");
        assert!(
            failure.kind.retriable() && failure.message.contains("the service is down"),
            "{failure}"
        );
        assert_eq!(failure.metadata["blame"], "world");
        let entry = fixture.last_entry();
        assert_eq!(
            (&entry["blame"], &entry["failure_class"]),
            (&json!("world"), &json!("extrinsic"))
        );
        assert_eq!(entry["inferences"][0]["error_type"], "infer_failed");
        assert_eq!(entry["latest_failure_stage"], "execution");
        assert_eq!(fixture.written(), 1, "the stored program is not repaired");
    });
}

#[test]
fn answers_that_never_fit_are_the_models_failure() {
    check(|fixture| {
        fixture.writes_topic();
        fixture.answers_by(|_| json!({"answer": "rant"}));
        let outcome = fixture.call("triage", "topic", &[json!("Argh")]);
        let failure = outcome.failure().unwrap();
        assert_eq!(failure.kind.code(), "infer_failed", "{failure}");
        assert_eq!(failure.metadata["mismatch"], "enum_violation", "{:?}", failure.metadata);
        assert_eq!(failure.metadata["blame"], "world");
        // A new program may ask better: the first one, and one in its place, ask twice each.
        assert_eq!(
            (fixture.written(), fixture.questions().len()),
            (2, 2),
            "an equal program is not run again"
        );
    });
}

#[test]
fn a_question_that_cannot_be_asked_is_the_programs_fault() {
    let cases = [
        (
            "infer('Which topic?', args[0], {'type': 'txt'})",
            "infer('Which topic?', args[0], { type: 'txt' })",
            "txt",
        ),
        ("infer('', args[0])", "infer('', args[0])", "infer needs an instruction"),
        (
            "infer(args[0], 'Sum up')",
            "infer(args[0], 'Sum up')",
            "pass the data as the second argument",
        ),
        ("infer('Sum up', args[0] * 20)", "infer('Sum up', args[0] * 20)", "split it"),
        ("infer('Sum up', args[0], each=[1])", "infer('Sum up', args[0], each: [1])", "not both"),
        (
            "infer('Sum up', args[0], 'some words about it')",
            "infer('Sum up', args[0], 'some words about it')",
            "prose",
        ),
        ("infer(7)", "infer(7)", "infer needs a text"),
    ];
    check(|fixture| {
        for (index, (python, ruby, says)) in cases.into_iter().enumerate() {
            let method = format!("ask{index}");
            let key = format!("c.{method}");
            fixture.queue_program(&key, &format!("result = {python}"), ruby);
            fixture.queue_program(&key, "result = len(args[0])", "args[0].size");
            let text = json!("x".repeat(10_000));
            assert_eq!(fixture.value("c", &method, &[text]), 10_000, "{python}");
            let entry = fixture.last_entry();
            let failure = &entry["attempts"][0]["failure"];
            assert_eq!(
                (&failure["error_type"], &failure["blame"]),
                (&json!("execution"), &json!("program")),
                "{entry}"
            );
            assert!(failure["error_message"].as_str().unwrap().contains(says), "{failure}");
            assert_eq!(fixture.questions().len(), 0);
        }
    });
}

#[test]
fn a_program_may_handle_the_failure() {
    check(|fixture| {
        fixture.queue_program(
            "editor.summarise",
            "def summarise(text):\n    try:\n        return infer('Sum up', text)\n    except AskError as problem:\n        return [problem.error_type, text[:4]]",
            "def summarise(text)\n  infer('Sum up', text)\nrescue AskError => problem\n  [problem.error_type, text[0, 4]]\nend",
        );
        fixture.queue_fault(DraftFault::Refused("no".to_owned()));
        let value = fixture.value("editor", "summarise", &[json!("Rain, rain.")]);
        assert_eq!(value, json!(["infer_failed", "Rain"]));
        assert_eq!(fixture.last_entry()["inferences"][0]["error_type"], "infer_failed");
    });
}

#[test]
fn failures_that_are_not_the_models_keep_their_names() {
    check(|fixture| {
        for (index, (fault, code)) in [
            (DraftFault::Auth("no key".to_owned()), "provider_auth"),
            (DraftFault::Diverged("not recorded".to_owned()), "replay_divergence"),
            (DraftFault::TimedOut(Duration::from_secs(1)), "infer_failed"),
            (DraftFault::Rejected("no such model".to_owned()), "infer_failed"),
        ]
        .into_iter()
        .enumerate()
        {
            let method = format!("sum{index}");
            fixture.queue_program(
                &format!("c.{method}"),
                "result = infer('Sum up', args[0])",
                "infer('Sum up', args[0])",
            );
            for _ in 0..5 {
                fixture.queue_fault(fault.clone());
            }
            let (found, message) = fixture.failure("c", &method, &[json!("text")]);
            assert_eq!(found, code, "{message}");
            fixture.drop_queued_answers();
        }
    });
}

#[test]
fn a_frozen_agent_asks_nothing_and_uses_what_is_kept() {
    check(|fixture| {
        fixture.writes_topic();
        fixture.queue_answer(json!({"answer": "bug"}));
        fixture.value("triage", "topic", &[json!("It crashed")]);
        fixture.reopen(&[("generate", "false")]);
        assert_eq!(fixture.value("triage", "topic", &[json!("It crashed")]), "bug");
        let (code, message) = fixture.failure("triage", "topic", &[json!("Thanks")]);
        assert_eq!(code, "unsupported_capability");
        assert!(message.contains("--frozen"), "{message}");
        assert_eq!(fixture.questions().len(), 1);
    });
}

#[test]
fn values_are_not_sent_without_consent() {
    let refused = |settings: &[(&'static str, &'static str)], is_remote| {
        check_with(settings, is_remote, |fixture| {
            fixture.writes_topic();
            let outcome = fixture.call("triage", "topic", &[json!("It crashed")]);
            let failure = outcome.failure().unwrap();
            assert_eq!(failure.kind.code(), "unsupported_capability");
            assert_eq!(failure.metadata["grant"], "--model-sees values");
            assert_eq!(fixture.questions().len(), 0);
        });
    };
    refused(&[], true);
    refused(&[("model_sees", "previews")], false);
    check_with(&[("model_sees", "values")], true, |fixture| {
        fixture.writes_topic();
        fixture.queue_answer(json!({"answer": "bug"}));
        assert_eq!(fixture.value("triage", "topic", &[json!("It crashed")]), "bug");
        assert_eq!(fixture.last_entry()["grants"]["model_sees"], "values");
    });
}
