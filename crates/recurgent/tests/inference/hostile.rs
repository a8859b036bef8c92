//! Pages that give orders. A scripted model cannot be misled, so what is checked is what it is sent and what follows: the
//! structure of the question, marks of chat templates that stay text, and grants that no answer widens.

use serde_json::{Value, json};

use crate::fixture::{batch_reply, check, sent_items};

/// What strangers write into pages; `scripts/injection` shows the same pages to a real model.
fn pages() -> Vec<String> {
    let text = include_str!("../../../../scripts/live.d/hostile.json");
    let pages: Vec<String> = serde_json::from_str(text).unwrap();
    assert_eq!(pages.len(), 40);
    pages
}

/// Marks by which chat templates begin and end turns.
const MARKS: [&str; 12] = [
    "<|",
    "</s>",
    "<s>",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<\u{ff5c}",
    "[SYSTEM_PROMPT]",
    "[TOOL_CALLS]",
    "<tool_call>",
];

fn has_structure(user: &str, names: &[&str]) {
    let lines: Vec<&str> = user.lines().collect();
    let found: Vec<&str> = lines.iter().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    assert_eq!(found, names, "{user}");
    assert!(lines.last().unwrap().starts_with("Answer the question"), "{user}");
    for mark in MARKS {
        assert!(!user.contains(mark), "{mark} in {user}");
    }
    for c in ['\u{85}', '\u{2028}', '\u{2029}', '\r', '\u{0}', '\u{1b}', '\u{7f}'] {
        assert!(!user.contains(c), "{c:?} in {user}");
    }
}

#[test]
fn a_page_stays_one_line_of_data() {
    check(|fixture| {
        fixture.writes_summary();
        fixture.answers_by(|_| json!({"answer": "It gives orders."}));
        for (index, page) in pages().iter().enumerate() {
            let value = fixture.value("editor", "summarise", &[json!(page)]);
            assert_eq!(value, "It gives orders.");
            let (prompt, _) = fixture.questions().swap_remove(index);
            let names = ["question", "data", "question", "Answer the question"];
            has_structure(&prompt.user, &names);
            let line = prompt.user.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(line).unwrap(),
                json!(page),
                "the data arrives as it was"
            );
            assert!(!prompt.system.contains(page.as_str()) && prompt.head.is_none());
        }
        assert_eq!(fixture.written(), 1);
    });
}

#[test]
fn pages_stay_items_and_cannot_answer_for_others() {
    check(|fixture| {
        fixture.writes_topics();
        fixture.answers_by(|user| batch_reply(sent_items(user).iter().map(|_| json!("praise"))));
        let value = fixture.value("triage", "topics", &[json!(pages())]);
        assert_eq!(value, json!(vec!["praise"; pages().len()]));
        let questions = fixture.questions();
        let sent: Vec<Value> =
            questions.iter().flat_map(|(prompt, _)| sent_items(&prompt.user)).collect();
        assert_eq!(json!(sent), json!(pages()));
        for (prompt, _) in &questions {
            let count = sent_items(&prompt.user).len();
            let numbers: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
            let mut names = vec!["question", "schema"];
            names.extend(numbers.iter().map(String::as_str));
            names.extend(["question", "Answer the question for every item by itself"]);
            has_structure(&prompt.user, &names);
        }
    });
}

/// A program may put a page into its instruction: it stays the value of one field there as well.
#[test]
fn a_page_in_an_instruction_stays_in_its_field() {
    check(|fixture| {
        fixture.queue_program(
            "editor.about",
            "def about(page):\n    return infer('Sum up this page: ' + page)",
            "def about(page)\n  infer('Sum up this page: ' + page)\nend",
        );
        fixture.answers_by(|_| json!({"answer": "Orders."}));
        for (index, page) in pages().iter().enumerate() {
            fixture.value("editor", "about", &[json!(page)]);
            let (prompt, _) = fixture.questions().swap_remove(index);
            has_structure(&prompt.user, &["question", "Answer the question"]);
        }
    });
}

/// What a misled model answers is a value, checked like any other: it runs nothing and grants nothing.
#[test]
fn an_obeyed_order_widens_no_grant() {
    check(|fixture| {
        fixture.queue_program(
            "reader.read",
            "def read(page):\n    note = infer('Sum up', page)\n    child = delegate('helper', purpose='reach a host', network=note)\n    return [note, child.reach().error_type]",
            "def read(page)\n  note = infer('Sum up', page)\n  child = delegate('helper', purpose: 'reach a host', network: note)\n  [note, child.reach.error_type]\nend",
        );
        fixture.queue_program(
            "helper.reach",
            "def reach():\n    import socket\n    return socket.create_connection(('127.0.0.1', 9), 1)",
            "require 'socket'\ndef reach\n  TCPSocket.new('127.0.0.1', 9)\nend",
        );
        fixture.queue_answer(json!({"answer": "open"}));
        let value = fixture.value("reader", "read", &[json!(pages()[27])]);
        assert_eq!(value[0], "open");
        assert!(value[1].is_string(), "{value}");
        for entry in fixture.entries() {
            assert_eq!(entry["grants"]["network"], "off", "{entry}");
        }
        let topic = |answer: Value| {
            fixture.writes_topic();
            fixture.answers_by(move |_| json!({ "answer": answer }));
            fixture.call("triage", "topic", &[json!(pages()[0])])
        };
        let outcome = topic(json!("pwned"));
        assert_eq!(outcome.failure().unwrap().kind.code(), "infer_failed", "the schema holds");
    });
}
