//! Lists of items: batches, items that are asked about again, and allowances.

use recurgent::provider::DraftFault;
use serde_json::{Value, json};

use crate::fixture::{batch_reply, check, check_with, sent_items};

fn topic(mail: &Value) -> Value {
    json!(if mail.as_str().unwrap().contains("crash") { "bug" } else { "praise" })
}

fn mails(count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| json!(format!("{} {n}", if n % 3 == 0 { "crash" } else { "thanks" })))
        .collect()
}

#[test]
fn a_thousand_items_are_asked_about_in_batches_within_the_allowance() {
    check_with(&[("max_model_calls", "41")], false, |fixture| {
        fixture.writes_topics();
        fixture.answers_by(|user| batch_reply(sent_items(user).iter().map(topic)));
        let mails = mails(1000);
        let expected: Vec<Value> = mails.iter().map(topic).collect();
        assert_eq!(fixture.value("triage", "topics", &[json!(mails)]), json!(expected));
        assert_eq!(fixture.questions().len(), 40);
        let entry = fixture.last_entry();
        assert_eq!(entry["inferences"][0]["items"], 1000);
        assert_eq!(entry["inferences"][0]["model_calls"], 40);
        assert_eq!(entry["usage"]["input_tokens"], 4000);
    });
}

#[test]
fn an_allowance_that_is_too_small_ends_the_call_with_its_name() {
    let check = |setting: &'static str, budget: &str| {
        check_with(&[(setting, "3")], false, |fixture| {
            fixture.writes_topics();
            fixture.answers_by(|user| batch_reply(sent_items(user).iter().map(topic)));
            let outcome = fixture.call("triage", "topics", &[json!(mails(200))]);
            let failure = outcome.failure().unwrap();
            assert_eq!(failure.kind.code(), "budget_exceeded", "{failure}");
            assert_eq!(failure.metadata["budget"], budget);
            assert_eq!(fixture.written(), 1, "another program would not help");
            let asked = fixture.questions().len();
            assert!(asked <= 3, "{asked}");
        });
    };
    check("max_infer_calls", "infer_calls");
    check("max_model_calls", "model_calls");
}

#[test]
fn only_items_without_a_usable_answer_are_asked_about_again() {
    check(|fixture| {
        fixture.writes_topics();
        fixture.queue_answer(json!({"answers": [
            {"item": 1, "answer": "bug"}, {"item": 3, "answer": "rant"}]}));
        fixture.queue_answer(batch_reply([json!("praise"), json!("bug")]));
        let mails = ["a", "b", "c", "a"].map(|it| json!(it)).to_vec();
        let value = fixture.value("triage", "topics", &[json!(mails)]);
        assert_eq!(value, json!(["bug", "praise", "bug", "bug"]));
        let sent: Vec<Vec<Value>> =
            fixture.questions().iter().map(|(prompt, _)| sent_items(&prompt.user)).collect();
        assert_eq!(sent, [vec![json!("a"), json!("b"), json!("c")], vec![json!("b"), json!("c")]]);
        let retry = &fixture.questions()[1].0.user;
        assert!(retry.contains("your_last_answer: \"cannot be used"), "{retry}");
    });
}

#[test]
fn a_reply_that_is_cut_off_is_asked_for_in_smaller_batches() {
    check(|fixture| {
        fixture.writes_topics();
        fixture.queue_fault(DraftFault::Truncated);
        fixture.answers_by(|user| batch_reply(sent_items(user).iter().map(topic)));
        let value = fixture.value("triage", "topics", &[json!(mails(20))]);
        assert_eq!(value.as_array().unwrap().len(), 20);
        let sizes: Vec<usize> =
            fixture.questions().iter().map(|(prompt, _)| sent_items(&prompt.user).len()).collect();
        assert_eq!(sizes, [20, 10, 10]);
    });
}

#[test]
fn a_list_without_items_asks_nothing() {
    check(|fixture| {
        fixture.writes_topics();
        assert_eq!(fixture.value("triage", "topics", &[json!([])]), json!([]));
        assert_eq!(fixture.questions().len(), 0);
    });
}

#[test]
fn large_items_go_into_batches_of_their_own() {
    check(|fixture| {
        fixture.writes_topics();
        fixture.answers_by(|user| batch_reply(sent_items(user).iter().map(topic)));
        let mails: Vec<Value> =
            (0..5).map(|n| json!(format!("{n}{}", "crash ".repeat(2000)))).collect();
        fixture.value("triage", "topics", &[json!(mails)]);
        let sizes: Vec<usize> =
            fixture.questions().iter().map(|(prompt, _)| sent_items(&prompt.user).len()).collect();
        assert_eq!(sizes, [2, 2, 1]);
    });
}
