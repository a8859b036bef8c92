//! Programs that use the outcomes of other agents' calls.

use serde_json::{Value, json};

use crate::{GuestFixture, check, code, metadata};

/// A program of `boss.read` that uses the outcome of `reader.get`, which fails for everything but "a".
fn write_boss(fixture: &GuestFixture, python: &str, ruby: &str) {
    fixture.writes(
        "boss.read",
        &format!("def read(x):\n    reader = delegate('reader', purpose='read')\n    {python}"),
        &format!("def read(x)\n  reader = delegate('reader', purpose: 'read')\n  {ruby}\nend"),
    );
    fixture.writes(
        "reader.get",
        "def get(x):\n    return 'A' if x == 'a' else open(x).read()",
        "def get(x) = x == 'a' ? 'A' : File.read(x)",
    );
}

/// Reading the value of a failed call raises its failure, in new and in stored programs.
#[test]
fn the_value_of_a_failed_call_is_its_failure() {
    for (python, ruby) in [
        ("return reader.get(x).value", "reader.get(x).value"),
        ("return {'text': reader.get(x).value}", "{ text: reader.get(x).value }"),
        (
            "answer = reader.get(x)\n    return [answer.value, 1]",
            "answer = reader.get(x)\n  [answer.value, 1]",
        ),
    ] {
        check(|fixture| {
            write_boss(fixture, python, ruby);
            let agent = fixture.agent("boss", "off");
            assert!(agent.call("read", ("a",)).unwrap().is_ok());
            for _ in 0..4 {
                let outcome = agent.call("read", ("/srv/nothing",)).unwrap();
                // The fault is the world's, and stays what it is.
                assert_eq!(code(&outcome), "unsupported_capability", "{python}: {outcome:?}");
                assert_eq!(metadata(&outcome, "grant"), Some("--read /srv/nothing"));
                assert_eq!(metadata(&outcome, "error_class"), Some("CallFailed"), "{outcome:?}");
                assert_eq!(metadata(&outcome, "failed_call"), Some("unsupported_capability"));
                assert_eq!(metadata(&outcome, "blame"), Some("world"));
                let message = &outcome.failure().unwrap().message;
                assert!(message.contains("reader.get failed"), "{message}");
            }
            assert_eq!(fixture.failures("boss", "read"), 0);
            assert!(agent.call("read", ("a",)).unwrap().is_ok(), "{python}");
        });
    }
    check(|fixture| {
        write_boss(fixture, "return reader.get(x).value", "reader.get(x).value");
        fixture.writes("boss.read", "def read(x):\n    return x", "def read(x) = x");
        let outcome = fixture.agent("boss", "off").call("read", ("/srv/nothing",)).unwrap();
        assert_eq!(outcome.value(), Some(&json!("/srv/nothing")), "a new program has its retry");
    });
}

/// A program that checks the outcome first goes on as it likes.
#[test]
fn a_program_that_checks_the_outcome_goes_on() {
    let failed = "unsupported_capability";
    for (python, ruby, expected) in [
        (
            "answer = reader.get(x)\n    return {'ok': bool(answer.ok), 'value': answer.value}",
            "answer = reader.get(x)\n  { ok: answer.ok?, value: answer.value }",
            json!({"ok": false, "value": null}),
        ),
        (
            "answer = reader.get(x)\n    return {'error': answer.error_type, 'value': answer.value}",
            "answer = reader.get(x)\n  { error: answer.error_type, value: answer.value }",
            json!({"error": failed, "value": null}),
        ),
        (
            "answer = reader.get(x)\n    if not answer:\n        return 'none'\n    return answer.value",
            "answer = reader.get(x)\n  answer.error? ? 'none' : answer.value",
            json!("none"),
        ),
        ("return reader.get(x).value_or('none')", "reader.get(x).value_or('none')", json!("none")),
        (
            "try:\n        return reader.get(x).value\n    except CallFailed as problem:\n        return problem.error_type",
            "reader.get(x).value\nrescue CallFailed => problem\n  problem.error_type",
            json!(failed),
        ),
    ] {
        check(|fixture| {
            write_boss(fixture, python, ruby);
            let outcome = fixture.agent("boss", "off").call("read", ("/srv/nothing",)).unwrap();
            assert_eq!(outcome.value(), Some(&expected), "{python}: {outcome:?}");
        });
    }
}

/// An outcome that a program passes on stays the outcome it is.
#[test]
fn an_outcome_that_is_passed_on_keeps_its_error() {
    check(|fixture| {
        write_boss(fixture, "return reader.get(x)", "reader.get(x)");
        let outcome = fixture.agent("boss", "off").call("read", ("/srv/nothing",)).unwrap();
        assert_eq!(code(&outcome), "unsupported_capability", "{outcome:?}");
    });
}

/// A mistake in the handler of a failed call is the program's own.
#[test]
fn a_mistake_in_the_handler_of_a_failed_call_counts() {
    check(|fixture| {
        write_boss(
            fixture,
            "try:\n        return reader.get(x).value\n    except CallFailed:\n        return defualt",
            "reader.get(x).value\nrescue CallFailed\n  defualt",
        );
        let agent = fixture.agent("boss", "off");
        assert!(agent.call("read", ("a",)).unwrap().is_ok());
        fixture.refuse_model_key("boss.read");
        let outcome = agent.call("read", ("/srv/nothing",)).unwrap();
        assert_eq!(metadata(&outcome, "error_class"), Some("NameError"), "{outcome:?}");
        assert_eq!(metadata(&outcome, "blame"), Some("program"), "{outcome:?}");
    });
}

/// Advice that cannot pay off is not given: a program of `ask` is never run again, so the input may be written in it.
#[test]
fn a_program_that_is_never_reused_is_not_sent_back() {
    let question = "How many days are in 2024?";
    let python = |method: &str| {
        format!("def {method}(*given):\n    return {{'question': '{question}', 'answer': 366}}")
    };
    let ruby =
        |method: &str| format!("def {method}(*given) = {{ question: '{question}', answer: 366 }}");
    for (method, asked) in [("ask", 1), ("count", 2)] {
        check(|fixture| {
            let key = format!("helper.{method}");
            fixture.writes(&key, &python(method), &ruby(method));
            fixture.writes(&key, "def other(x):\n    return x", "def other(x) = x");
            let outcome = fixture.agent("helper", "off").call(method, (question,)).unwrap();
            assert_eq!(fixture.asked(), asked, "{method}: {outcome:?}");
            let answer: Option<&Value> = outcome.value().map(|value| &value["answer"]);
            assert_eq!(answer == Some(&json!(366)), asked == 1, "{outcome:?}");
        });
    }
}
