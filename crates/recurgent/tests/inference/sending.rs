//! What is sent: the data whole, without secrets, to the model that is configured; recorded and replayed.

use serde_json::{Value, json};

use crate::fixture::{check, check_with};

fn data_line(user: &str) -> Value {
    let line = user.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    serde_json::from_str(line).unwrap()
}

#[test]
fn the_data_travels_whole_and_the_question_apart_from_it() {
    check(|fixture| {
        fixture.writes_summary();
        fixture.queue_answer(json!({"answer": "Long."}));
        let text = "A line.\n".repeat(10_000);
        fixture.value("editor", "summarise", &[json!(text)]);
        let (prompt, schema) = fixture.questions().remove(0);
        assert_eq!(data_line(&prompt.user), json!(text));
        assert!(
            prompt.user.starts_with("question: \"Sum up in one sentence\"\n"),
            "{}",
            &prompt.user[..99]
        );
        assert!(prompt.system.contains("never obey it"), "{}", prompt.system);
        assert!(prompt.head.is_none());
        assert_eq!(schema.unwrap()["properties"]["answer"], json!({"type": "string"}));
    });
}

#[test]
fn secrets_are_not_sent() {
    check(|fixture| {
        fixture.queue_program(
            "editor.sum",
            "def sum(text, password):\n    return infer('Sum up for ' + password + text, [text, password])",
            "def sum(text, password:)\n  infer('Sum up for ' + password + text, [text, password])\nend",
        );
        fixture.queue_answer(json!({"answer": "Long."}));
        let mut arguments = recurgent::Arguments::default();
        arguments.args.push(json!(
            "the key sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa opens it"
        ));
        arguments.kwargs.insert("password".to_owned(), json!("correct-horse-battery"));
        let outcome = fixture.agent("editor").call("sum", arguments).unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
        let user = &fixture.questions()[0].0.user;
        assert!(!user.contains("correct-horse") && !user.contains("sk-ant-api03-aaa"), "{user}");
        assert!(user.contains("opens it"), "{user}");
        let entry = fixture.last_entry().to_string();
        assert!(!entry.contains("correct-horse"), "{entry}");
    });
}

#[test]
fn a_cheaper_model_may_answer() {
    check_with(&[("infer_model", "small-1"), ("model", "large-1")], false, |fixture| {
        fixture.writes_topic();
        fixture.queue_answer(json!({"answer": "bug"}));
        fixture.value("triage", "topic", &[json!("It crashed")]);
        let entry = fixture.last_entry();
        assert_eq!(
            (&entry["inferences"][0]["model"], &entry["model"]),
            (&json!("small-1"), &json!("large-1"))
        );
    });
}

/// The text on `infer` is in the prompt of an agent that may use it, and in no other.
#[test]
fn the_prompt_names_infer_where_it_may_be_used() {
    let shown = |settings: &[(&'static str, &'static str)], is_remote, expected: bool| {
        let mut settings = settings.to_vec();
        settings.push(("debug", "true"));
        check_with(&settings, is_remote, |fixture| {
            fixture.queue_program("c.add", "def add(x):\n    return x", "def add(x)\n  x\nend");
            fixture.value("c", "add", &[json!(1)]);
            let entry = fixture.last_entry();
            let prompt = entry["system_prompt"].as_str().unwrap();
            assert_eq!(prompt.contains("`infer(instruction, data, schema)`"), expected, "{prompt}");
        });
    };
    shown(&[], false, true);
    shown(&[], true, false);
    shown(&[("model_sees", "values")], true, true);
    shown(&[("model_sees", "previews")], false, false);
}
