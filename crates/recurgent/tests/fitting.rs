//! How a call's arguments reach the function that a model writes: names that are not identifiers, reserved words, `self`,
//! functions that cannot take them, and several programs that are compared. Real workers, both guests.
#![cfg(test)]

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Agent, ArgumentList, Language, Outcome, Runtime};
use serde_json::{Value, json};

/// A runtime with a scripted model and a log.
struct Fixture {
    language: Language,
    model: Arc<Scripted>,
    runtime: Runtime,
    state: tempfile::TempDir,
}

fn check(behaviour: impl Fn(&Fixture)) {
    check_with(&[], behaviour);
}

fn check_with(settings: &[(&str, &str)], behaviour: impl Fn(&Fixture)) {
    for language in Language::ALL {
        let state = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        config.set("state_dir", &state.path().display().to_string()).unwrap();
        for (name, value) in settings {
            config.set(name, value).unwrap();
        }
        let model = Arc::new(Scripted::new());
        let provider = Arc::<Scripted>::clone(&model);
        let runtime = Runtime::builder(config).provider(provider).build().unwrap();
        behaviour(&Fixture { language, model, runtime, state });
    }
}

impl Fixture {
    fn writes(&self, key: &str, python: &str, ruby: &str) {
        let code = match self.language {
            Language::Python => python,
            Language::Ruby => ruby,
        };
        self.model.add(key, json!({"code": code}));
    }

    fn agent(&self, role: &str) -> Agent {
        self.runtime.agent(role).guest(self.language).build().unwrap()
    }

    fn last_entry(&self) -> Value {
        let text = std::fs::read_to_string(self.state.path().join("recurgent.jsonl")).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }
}

fn value(outcome: &Outcome) -> &Value {
    outcome.value().unwrap_or_else(|| panic!("{outcome:?}"))
}

fn units() -> ArgumentList {
    ArgumentList::new().arg(100).kwarg("from", "celsius").kwarg("to", "fahrenheit")
}

#[test]
fn reserved_words_and_longer_names_take_their_arguments() {
    for (python, ruby) in [
        (
            "def convert(value, from_, to):\n    return [value, from_, to]",
            "def convert(value, from:, to:)\n  [value, from, to]\nend",
        ),
        (
            "def convert(value, from_unit, to_unit):\n    return [value, from_unit, to_unit]",
            "def convert(value, from_unit:, to_unit:)\n  [value, from_unit, to_unit]\nend",
        ),
        (
            "def convert(value, **units):\n    return [value, units['from'], units['to']]",
            "def convert(value, **units)\n  [value, units[:from], units[:to]]\nend",
        ),
    ] {
        check(|fixture| {
            fixture.writes("c.convert", python, ruby);
            let outcome = fixture.agent("c").call("convert", units()).unwrap();
            assert_eq!(value(&outcome), &json!([100, "celsius", "fahrenheit"]));
            assert_eq!(fixture.model.asked().len(), 1, "{python}");
        });
    }
}

#[test]
fn an_argument_named_like_a_reserved_word_of_ruby_arrives() {
    check(|fixture| {
        fixture.writes(
            "c.cut",
            "def cut(text, end):\n    return text[:end]",
            "def cut(text, end_:)\n  text[0, end_]\nend",
        );
        let arguments = ArgumentList::new().arg("hello").kwarg("end", 2);
        assert_eq!(value(&fixture.agent("c").call("cut", arguments).unwrap()), "he");
    });
}

/// A keyword that may mean two parameters is not bound, and the feedback names the head.
#[test]
fn an_ambiguous_keyword_is_not_guessed() {
    check(|fixture| {
        fixture.writes(
            "c.convert",
            "def convert(value, from_a, from_b):\n    return 1",
            "def convert(value, from_a:, from_b:) = 1",
        );
        fixture.writes(
            "c.convert",
            "def convert(number, from_, to):\n    return 2",
            "def convert(number, from:, to:) = 2",
        );
        assert_eq!(value(&fixture.agent("c").call("convert", units()).unwrap()), &json!(2));
    });
}

#[test]
fn a_method_whose_name_is_not_an_identifier_has_a_function() {
    for (method, python, ruby) in [
        ("save!", "save", "save!"),
        ("2fa", "_2fa", "_2fa"),
        ("class", "class_", "class_"),
        ("a-b", "a_b", "a_b"),
        ("result", "result_", "result_"),
        ("größe", "größe", "größe"),
    ] {
        check(|fixture| {
            fixture.writes(
                &format!("c.{method}"),
                &format!(
                    "def twice(x):\n    return x * 2\n\ndef {python}(x):\n    return twice(x)"
                ),
                &format!("def twice(x) = x * 2\n\ndef {ruby}(x)\n  twice(x)\nend"),
            );
            let agent = fixture.agent("c");
            assert_eq!(value(&agent.call(method, (4,)).unwrap()), &json!(8), "{method}");
            assert_eq!(value(&agent.call(method, (5,)).unwrap()), &json!(10), "{method}");
            assert_eq!(fixture.model.asked().len(), 1, "{method}: the program is kept");
        });
    }
}

#[test]
fn a_leading_self_is_the_memory() {
    check(|fixture| {
        fixture.writes(
            "diary.log",
            "def log(self, value):\n    if not hasattr(self, 'values'):\n        self.values = []\n    \
             self.values.append(value)\n    return self.values",
            "def log(value)\n  context[:values] ||= []\n  context[:values] << value\nend",
        );
        let agent = fixture.agent("diary");
        assert_eq!(value(&agent.call("log", (1,)).unwrap()), &json!([1]));
        assert_eq!(value(&agent.call("log", (2,)).unwrap()), &json!([1, 2]));
        assert_eq!(fixture.model.asked().len(), 1);
    });
}

#[test]
fn what_self_does_not_hold_is_explained() {
    check(|fixture| {
        fixture.writes(
            "diary.log",
            "def log(self, value):\n    self.values.append(value)\n    return value",
            "def log(value)\n  self.values << value\nend",
        );
        fixture.writes(
            "diary.log",
            "def log(value):\n    return 'right'",
            "def log(value) = 'right'",
        );
        assert_eq!(value(&fixture.agent("diary").call("log", (1,)).unwrap()), "right");
        let failure = fixture.last_entry()["attempts"][0]["failure"]["error_message"].to_string();
        let hint = match fixture.language {
            Language::Python => "context.setdefault('values', …)",
            Language::Ruby => "context[:values] ||= …",
        };
        assert!(failure.contains(hint), "{failure}");
    });
}

/// No worker is started for a function that cannot be called.
#[test]
fn a_function_that_cannot_take_the_arguments_is_not_run() {
    check(|fixture| {
        fixture.writes("c.add", "def add(x):\n    return x", "def add(x) = x");
        fixture.writes("c.add", "def add(a, b):\n    return a + b", "def add(a, b) = a + b");
        assert_eq!(value(&fixture.agent("c").call("add", (3, 4)).unwrap()), &json!(7));
        let first = &fixture.last_entry()["attempts"][0];
        assert_eq!(first["worker_pid"], Value::Null, "{first}");
        let failure = &first["failure"];
        assert_eq!(failure["error_type"], "invalid_code", "{failure}");
        let correction = failure["metadata"]["required_correction"].as_str().unwrap();
        assert!(
            correction.starts_with("Write exactly this function: `def add(a, b)"),
            "{correction}"
        );
    });
}

#[test]
fn the_largest_agreeing_group_answers() {
    check_with(&[("candidates", "3")], |fixture| {
        fixture.writes("c.double", "def double(x):\n    return x + 2", "def double(x) = x + 2");
        fixture.writes("c.double", "def double(x):\n    return x * 2", "def double(x) = x * 2");
        fixture.writes("c.double", "def double(x):\n    return x + x", "def double(x) = x + x");
        let agent = fixture.agent("c");
        // All three give 4: only other values tell them apart.
        assert_eq!(value(&agent.call("double", (2,)).unwrap()), &json!(4));
        assert_eq!(fixture.model.asked().len(), 3);
        let attempt = fixture.last_entry()["attempts"][0].clone();
        assert_eq!(attempt["agreement"], json!({"candidates": 3, "agreeing": 2}), "{attempt}");
        assert_eq!(value(&agent.call("double", (5,)).unwrap()), &json!(10), "the winner is kept");
        assert_eq!(fixture.model.asked().len(), 3);
    });
}

/// Two programs agree and are wrong: what is known of the method decides, and no model is asked again.
#[test]
fn a_program_that_meets_what_is_known_goes_before_a_larger_group() {
    let write = |fixture: &Fixture| {
        fixture.writes("c.double", "def double(x):\n    return x + 2", "def double(x) = x + 2");
        fixture.writes("c.double", "def double(x):\n    return 2 + x", "def double(x) = 2 + x");
        fixture.writes("c.double", "def double(x):\n    return x * 2", "def double(x) = x * 2");
    };
    check_with(&[("candidates", "3")], |fixture| {
        write(fixture);
        let agent = fixture.agent("c");
        let expected = agent.call_expecting("double", (5,), 10).unwrap();
        assert_eq!(value(&expected.outcome), &json!(10));
        assert_eq!(fixture.model.asked().len(), 3);
        let attempt = fixture.last_entry()["attempts"][0].clone();
        assert_eq!(attempt["agreement"], json!({"candidates": 3, "agreeing": 1}), "{attempt}");
    });
    check_with(&[("candidates", "3")], |fixture| {
        write(fixture);
        let agent = fixture.agent("c");
        agent.teach("double", (7,), 14).unwrap();
        assert_eq!(value(&agent.call("double", (5,)).unwrap()), &json!(10));
        assert_eq!(fixture.model.asked().len(), 3);
    });
}

#[test]
fn programs_that_fail_leave_the_answer_to_the_others() {
    check_with(&[("candidates", "3")], |fixture| {
        fixture.writes("c.half", "def half(", "def half(");
        fixture.writes("c.half", "def half(x):\n    return x / 0", "def half(x) = x / 0");
        fixture.writes("c.half", "def half(x):\n    return x // 2", "def half(x) = x / 2");
        assert_eq!(value(&fixture.agent("c").call("half", (8,)).unwrap()), &json!(4));
        let entry = fixture.last_entry();
        let attempts = entry["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 3, "{entry}");
        assert_eq!(fixture.model.asked().len(), 3, "nothing was asked again");
        assert!(attempts.iter().all(|it| it["lane"].is_null()), "no retry was spent: {entry}");
    });
}

/// A program that differs from a rejected one in its layout only is not run.
#[test]
fn the_same_program_again_is_not_run() {
    check(|fixture| {
        fixture.writes("c.half", "def half(x):\n    return x / 0", "def half(x)\n  x / 0\nend");
        fixture.writes(
            "c.half",
            "# halves\ndef half(x):\n\n    return x/0",
            "# halves\ndef half(x)\n  x/0\nend",
        );
        let outcome = fixture.agent("c").call("half", (8,)).unwrap();
        assert!(!outcome.is_ok());
        let entry = fixture.last_entry();
        assert_eq!(entry["attempts"][1]["failure"]["repeated"], json!(true), "{entry}");
        assert_eq!(entry["attempts"][1]["worker_pid"], Value::Null);
    });
}
