//! Answers that are given, stored programs that ask again, and answers that are kept.

use serde_json::{Value, json};

use crate::fixture::{check, check_with};

#[test]
fn a_stored_program_asks_the_model_about_other_data() {
    check(|fixture| {
        fixture.writes_summary();
        fixture.queue_answer(json!({"answer": "It rained."}));
        assert_eq!(fixture.value("editor", "summarise", &[json!("Rain, rain.")]), "It rained.");
        let entry = fixture.last_entry();
        assert_eq!(entry["inference_calls"], 1);
        assert_eq!(entry["usage"]["input_tokens"], 100, "{}", entry["usage"]);
        let asked = &entry["inferences"][0];
        assert_eq!(asked["instruction"], "Sum up in one sentence");
        assert_eq!(asked["items"], 1);
        assert_eq!(
            (asked["input_tokens"].as_u64(), asked["attempt_id"].as_u64()),
            (Some(100), Some(1))
        );
        assert_eq!(asked["error_type"], Value::Null);
        fixture.queue_answer(json!({"answer": "It snowed."}));
        let outcome = fixture.call("editor", "summarise", &[json!("Snow, snow.")]);
        assert_eq!(outcome.value(), Some(&json!("It snowed.")));
        let details = outcome.details.as_ref().unwrap();
        assert_eq!((details.model_calls, details.inference_calls), (0, 1));
        assert_eq!(fixture.written(), 1, "the second text needs no generation");
    });
}

#[test]
fn the_same_question_about_the_same_data_is_asked_once_across_processes() {
    check(|fixture| {
        fixture.writes_topic();
        fixture.queue_answer(json!({"answer": "bug"}));
        assert_eq!(fixture.value("triage", "topic", &[json!("It crashed")]), "bug");
        fixture.restart();
        assert_eq!(fixture.value("triage", "topic", &[json!("It crashed")]), "bug");
        assert_eq!(fixture.questions().len(), 1);
        let entry = fixture.last_entry();
        assert_eq!(
            (&entry["inferences"][0]["cached_items"], &entry["inference_calls"]),
            (&json!(1), &json!(0))
        );
    });
    check_with(&[("infer_cache", "false")], false, |fixture| {
        fixture.writes_topic();
        fixture.answers_by(|_| json!({"answer": "bug"}));
        for _ in 0..2 {
            fixture.value("triage", "topic", &[json!("It crashed")]);
        }
        assert_eq!(fixture.questions().len(), 2);
    });
}

/// Each answer has more than the cache may hold of a few.
#[test]
fn the_cache_drops_the_oldest_answers() {
    check_with(&[("infer_cache_mb", "0")], false, |fixture| {
        fixture.writes_summary();
        fixture.answers_by(|_| json!({"answer": "short"}));
        for text in ["a", "b", "a", "a"] {
            fixture.value("editor", "summarise", &[json!(text)]);
        }
        assert_eq!(fixture.questions().len(), 3, "only the newest answer is kept");
    });
}

#[test]
fn an_attempt_that_fails_after_a_question_does_not_ask_it_again() {
    check(|fixture| {
        fixture.queue_program(
            "editor.head",
            "def head(text):\n    return infer('Write a headline', text).no_such_method()",
            "def head(text)\n  infer('Write a headline', text).no_such_method\nend",
        );
        fixture.queue_program(
            "editor.head",
            "def head(text):\n    return infer('Write a headline', text).upper()",
            "def head(text)\n  infer('Write a headline', text).upcase\nend",
        );
        fixture.queue_answer(json!({"answer": "Rain"}));
        assert_eq!(fixture.value("editor", "head", &[json!("Rain, rain.")]), "RAIN");
        assert_eq!((fixture.questions().len(), fixture.written()), (1, 2));
        let entry = fixture.last_entry();
        let attempts: Vec<&Value> =
            entry["inferences"].as_array().unwrap().iter().map(|it| &it["attempt_id"]).collect();
        assert_eq!(attempts, [&json!(1), &json!(2)]);
        assert_eq!(entry["usage"]["input_tokens"], 100);
    });
}

/// The answer is paid for: the next call uses it, and sees nothing else of the program that asked.
#[test]
fn answers_to_a_rejected_attempt_are_kept_and_nothing_else() {
    check_with(&[("execution_repair_budget", "0")], false, |fixture| {
        fixture.queue_program(
            "editor.head",
            "def head(text):\n    context['seen'] = text\n    return infer('Write a headline', text).no_such_method()",
            "def head(text)\n  context[:seen] = text\n  infer('Write a headline', text).no_such_method\nend",
        );
        fixture.queue_answer(json!({"answer": "Rain"}));
        fixture.failure("editor", "head", &[json!("Rain, rain.")]);
        fixture.restart();
        fixture.queue_program(
            "editor.head",
            "def head(text):\n    return [infer('Write a headline', text), context.get('seen')]",
            "def head(text)\n  [infer('Write a headline', text), context[:seen]]\nend",
        );
        let value = fixture.value("editor", "head", &[json!("Rain, rain.")]);
        assert_eq!(value, json!(["Rain", null]), "{}", fixture.language);
        assert_eq!((fixture.questions().len(), fixture.written()), (1, 2));
    });
}

#[test]
fn schemas_shorthand_and_keywords_are_understood() {
    check(|fixture| {
        fixture.queue_program(
            "desk.read",
            "def read(mail):\n    return infer('Read the order', data=mail, schema={'type': 'object', 'properties': {'count': {'type': 'integer', 'minimum': 1}}, 'required': ['count']})",
            "def read(mail)\n  infer('Read the order', data: mail, schema: { type: 'object', properties: { count: { type: 'integer', minimum: 1 } }, required: ['count'] })\nend",
        );
        fixture.queue_answer(json!({"answer": {"count": 3}}));
        assert_eq!(fixture.value("desk", "read", &[json!("three, please")]), json!({"count": 3}));
        let schema = fixture.questions()[0].1.clone().unwrap();
        assert_eq!(schema["required"], json!(["answer"]));
        assert_eq!(
            schema["properties"]["answer"]["properties"]["count"],
            json!({"type": "integer"})
        );
        fixture.queue_program(
            "desk.count",
            "def count(mail):\n    return infer('How many?', mail, 'integer') + 1",
            "def count(mail)\n  infer('How many?', mail, 'integer') + 1\nend",
        );
        fixture.queue_answer(json!({"answer": 3}));
        assert_eq!(fixture.value("desk", "count", &[json!("three, please")]), 4);
    });
}

/// Its value is not reproduced: the model may answer otherwise.
#[test]
fn a_program_that_asks_is_not_pure() {
    check(|fixture| {
        fixture.writes_summary();
        fixture.queue_answer(json!({"answer": "It rained."}));
        fixture.value("editor", "summarise", &[json!("Rain.")]);
        let entry = fixture.last_entry();
        assert_eq!(entry["artifact_admission"], "takes_over", "{entry}");
        fixture.runtime.wait_for_trials();
        assert_eq!(fixture.questions().len(), 1, "no trial asks a model");
    });
}
