use serde_json::json;

use super::*;
use crate::weak_success::{WeakSignal, Weakness};

fn event(call: &str, question: &Value) -> PatternEvent {
    let arguments = Arguments { args: vec![question.clone()], ..Arguments::default() };
    PatternEvent {
        role: "guide".into(),
        method_name: "ask".into(),
        trace_id: "t".into(),
        call_id: call.into(),
        recorded_at_ms: 1_000_000,
        capability_patterns: vec!["http_fetch".into()],
        outcome_status: "ok".into(),
        argument_words: words(&arguments),
        argument_values: values(&arguments),
        ..PatternEvent::default()
    }
}

fn weak(mut event: PatternEvent) -> PatternEvent {
    event.weak_success_signals =
        vec![WeakSignal { signal: Weakness::EmptyArray, path: None, text: None }];
    event
}

/// What asking `second` after `first` is taken for; the first answer was a weak one.
fn check(first: &Value, second: &Value) -> Option<String> {
    let (first, second) = (weak(event("c1", first)), event("c2", second));
    detect(&first, &second, 1_010_000).map(|correction| correction.evidence)
}

#[test]
fn the_same_question_put_more_exactly_is_a_correction() {
    for (first, second, signal) in [
        ("movies in Oslo", "movies in Oslo tonight", "refined_question"),
        ("which movies are in Oslo?", "list movies in Oslo today please", "refined_question"),
        ("2025-13-02", "2025-02-13", "changed_value"),
        ("Sao Tomé Lisbao", "Rua de São Tomé, Lisboa", "rephrased_question"),
    ] {
        assert_eq!(check(&json!(first), &json!(second)).as_deref(), Some(signal), "{second}");
    }
}

#[test]
fn a_different_question_is_not() {
    for (first, second) in [
        (json!("Google"), json!("Yahoo")),
        (json!("movies in Oslo"), json!("movies in Bergen")),
        (json!("movies in Oslo"), json!("movies in Oslo")),
        (json!("movies in Oslo"), json!("and movies in Oslo next week?")),
        (json!("movies in Oslo"), json!("movies in Oslo page 2")),
        (json!("movies in Oslo"), json!("movies in Oslo 2")),
        (json!("movies in Oslo"), json!("no, tell me a joke")),
        (json!("oil change"), json!("not wrong, still empty, try again")),
        (json!(144), json!(32)),
        (json!(["a", 1]), json!({"b": 2})),
    ] {
        assert_eq!(check(&first, &second), None, "{first} {second}");
    }
}

#[test]
fn the_evidence_is_named() {
    let first = weak(event("c1", &json!("capital of Georgia")));
    let again = event("c2", &json!("capital of Georgia in the Caucasus"));
    let found = detect(&first, &again, 1_012_000).unwrap();
    assert_eq!((found.of_weak_success, found.seconds), (true, 12));
    assert_eq!(found.shared_words, ["capital", "georgia"]);
    assert_eq!(found.changed_words, ["caucasu"]);
}

#[test]
fn after_a_good_answer_a_correction_objects_or_repeats_the_call() {
    for (first, second, expected) in [
        ("capital of Norway", "population of the capital of Norway", None),
        ("movies in Oslo", "movies in Oslo tonight", None),
        ("movies in Oslo", "no, and not in Bergen either", None),
        ("movies in Oslo", "I meant movies in Oslo, Minnesota", Some("stated")),
        ("spend in Q1", "That\u{2019}s wrong: spend in Q1", Some("stated")),
        ("ten calm songs", "ten please, that's three", Some("stated")),
        ("calm songs", "that's great, calm songs for work", None),
        ("population of Paris", "population of Paris, France", Some("refined_question")),
        ("population of Paris", "population of Paris, and of London", None),
        ("population of Paris", "no, Paris in Texas", Some("stated")),
        ("flats in Almada", "no elevator in the flats in Almada?", None),
        ("tempo em Faro", "quis dizer o tempo em Faro no Algarve", Some("stated")),
        ("points per question", "what about wrong answers in the quiz", None),
        ("the longest sentence", "find the sentence that is wrong", None),
        ("points per question", "is incorrect spelling penalised", None),
        ("letters to the bank", "what to do if you forgot the code", None),
        ("next train", "this is incorrect: next train to Porto", Some("stated")),
        ("calm songs", "wrong answer, calm songs", Some("stated")),
        ("calm songs", "but I asked for calm songs", Some("stated")),
        ("what is wrong with 'I said'?", "what is wrong with 'I said so'?", None),
    ] {
        let (first, again) = (event("c1", &json!(first)), event("c2", &json!(second)));
        let found = detect(&first, &again, 1_010_000).map(|correction| correction.evidence);
        assert_eq!(found.as_deref(), expected, "{second}");
    }
}

#[test]
fn another_place_time_or_program_is_not() {
    let first = weak(event("c1", &json!("movies in Oslo")));
    let again = event("c2", &json!("movies in Oslo tonight"));
    let found = detect(&first, &again, 1_180_000).unwrap();
    assert!(found.of_weak_success);
    assert_eq!(found.matched_capability_patterns, ["http_fetch"]);
    assert_eq!(detect(&first, &again, 1_181_000), None, "too late");
    for other in [
        PatternEvent { method_name: "chat".into(), ..again.clone() },
        PatternEvent { role: "poet".into(), ..again.clone() },
        PatternEvent { depth: 1, ..again.clone() },
        PatternEvent { call_id: "c1".into(), ..again.clone() },
        PatternEvent { capability_patterns: vec!["json".into()], ..again.clone() },
    ] {
        assert_eq!(detect(&first, &other, 1_010_000), None, "{other:?}");
    }
}

#[test]
fn a_correction_reaches_the_call_that_produced_the_answer() {
    let nested = |call: &str, parent: &str| PatternEvent {
        parent_call_id: Some(parent.into()),
        depth: 1,
        ..event(call, &json!("Oslo"))
    };
    let root = weak(event("c1", &json!("movies in Oslo")));
    let mut again = event("c2", &json!("movies in Oslo tonight"));
    again.user_correction = detect(&root, &again, 1_010_000);
    let early = PatternEvent { recorded_at_ms: 900_000, ..nested("n1", "c1") };
    let failed = PatternEvent { outcome_status: "error".into(), ..nested("n3", "c1") };
    let events =
        [early, nested("n2", "c1"), failed, nested("n4", "n2"), nested("n5", "c2"), root, again];
    let corrected = CorrectedAnswers::of(&events);
    let found: Vec<&str> =
        events.iter().map(|it| it.call_id.as_str()).filter(|id| corrected.contains(id)).collect();
    assert_eq!(found, ["n2", "n4", "c1"]);
}

#[test]
fn what_is_kept_is_bounded_and_holds_no_secrets() {
    // The second is of pieces as short as words.
    let secrets = "sk-abcdefghijklmnopqrstuvwxyz0123456789 sk-ant-api03-abcdefgh1234";
    let arguments = Arguments {
        args: vec![json!({"api_key": "hush", "q": [format!("Oslo {secrets}")]})],
        kwargs: [("token".to_owned(), json!("hush"))].into_iter().collect(),
    };
    assert_eq!(words(&arguments), ["oslo"]);
    assert_eq!(values(&arguments), BTreeMap::from([("0".to_owned(), Value::Null)]));
    let long: Vec<String> = (0..10_000).map(|n| format!("w{n}")).collect();
    let arguments =
        Arguments { args: vec![json!(long.join(" ")), json!(long)], ..Arguments::default() };
    assert_eq!(words(&arguments).len(), MAX_WORDS);
    assert!(values(&arguments).values().all(Value::is_null));
    let deep = (0..50).fold(json!("deep"), |inner, _| json!([inner]));
    assert!(words(&Arguments { args: vec![deep], ..Arguments::default() }).is_empty());
}
