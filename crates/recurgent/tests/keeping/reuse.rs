//! Which programs serve later calls, and what they must not hold for that.

use serde_json::json;

use crate::fixture::{KeepingFixture, check, log};

#[test]
fn questions_are_written_anew_and_stable_methods_are_reused() {
    check(|fixture| {
        fixture.writes("c.ask", "result = 'about ' + args[0]", "'about ' + args[0]");
        fixture.writes("c.fetch_url", "result = 'page of ' + args[0]", "'page of ' + args[0]");
        let c = fixture.agent("c");
        fixture.call(&c, "ask", &[json!("Google")], 1);
        fixture.call(&c, "ask", &[json!("Yahoo")], 1);
        fixture.call(&c, "fetch_url", &[json!("Google")], 1);
        fixture.call(&c, "fetch_url", &[json!("Yahoo")], 0);
    });
}

/// A literal of this call is sent back once; what comes then serves every call, in every process.
#[test]
fn a_baked_literal_is_sent_back_and_then_admitted_parametric() {
    check(|fixture| {
        fixture.writes(
            "c.add",
            "result = context.get('memory', 0) + 37",
            "context.fetch(:memory, 0) + 37",
        );
        writes_add(fixture);
        let c = fixture.agent("c");
        c.set("memory", 5).unwrap();
        assert_eq!(fixture.call(&c, "add", &[json!(37)], 2), json!(42));
        drop(c);
        fixture.restart();
        let c = fixture.agent("c");
        c.set("memory", 5).unwrap();
        assert_eq!(fixture.call(&c, "add", &[json!(5)], 0), json!(10));
    });
}

/// `memory` is what one method writes; another that reads `value` is shown before it runs.
#[test]
fn state_key_drift_is_caught_from_a_new_process() {
    check(|fixture| {
        fixture.writes(
            "c.store",
            "context['memory'] = args[0]\nresult = args[0]",
            "context[:memory] = args[0]\nargs[0]",
        );
        fixture.writes("c.recall", "result = context.get('value')", "context[:value]");
        fixture.writes("c.recall", "result = context.get('memory')", "context[:memory]");
        let language = fixture.language;
        let session = |fixture: &mut KeepingFixture| {
            fixture.runtime().agent("c").guest(language).session("s").build().unwrap()
        };
        let c = session(fixture);
        fixture.call(&c, "store", &[json!(5)], 1);
        drop(c);
        fixture.restart();
        // Nothing in the memory of this one says what the key is called.
        let empty = fixture.agent("c");
        assert_eq!(fixture.call(&empty, "recall", &[], 2), json!(null));
        let entry = log(fixture).pop().unwrap();
        assert_eq!(entry["guardrail_violation_subtype"], json!("state_key_drift"));
        assert_eq!(
            entry["attempts"][0]["stages"],
            json!(["generated", "rolled_back"]),
            "before it ran"
        );
        let c = session(fixture);
        assert_eq!(fixture.call(&c, "recall", &[], 0), json!(5));
    });
}

#[test]
fn state_key_drift_is_caught_against_a_setter() {
    check(|fixture| {
        fixture.writes("c.add", "result = context['value'] + args[0]", "context[:value] + args[0]");
        writes_add(fixture);
        let c = fixture.agent("c");
        c.set("memory", 5).unwrap();
        assert_eq!(fixture.call(&c, "add", &[json!(3)], 2), json!(8));
        assert_eq!(fixture.call(&c, "add", &[json!(4)], 0), json!(9));
    });
}

/// What every call of the method can use.
fn writes_add(fixture: &KeepingFixture) {
    fixture.writes(
        "c.add",
        "result = context.get('memory', 0) + args[0]",
        "context.fetch(:memory, 0) + args[0]",
    );
}

/// A line that shows how the function is called is not the answer to every call.
#[test]
fn an_example_line_after_the_function_does_not_answer_later_calls() {
    check(|fixture| {
        for (method, python_end, ruby_end) in [
            ("add", "result = add(1, 2)", "result = add(1, 2)"),
            ("sum", "return sum(1, 2)", "return sum(1, 2)"),
        ] {
            fixture.writes(
                &format!("c.{method}"),
                &format!("def {method}(a, b):\n    return a + b\n{python_end}"),
                &format!("def {method}(a, b) = a + b\n{ruby_end}"),
            );
            let c = fixture.agent("c");
            assert_eq!(fixture.call(&c, method, &[json!(20), json!(30)], 1), json!(50));
            assert_eq!(fixture.call(&c, method, &[json!(5), json!(6)], 0), json!(11));
        }
    });
}

/// A result that the program computes from values of its own answers one call; without arguments it answers all.
#[test]
fn a_result_without_the_arguments_is_kept_only_for_a_method_without_arguments() {
    check(|fixture| {
        let (python, ruby) = (
            "def add(a, b):\n    return a + b\nx = 1\nresult = add(x, 2)",
            "def add(a, b) = a + b\nx = 1\nresult = add(x, 2)",
        );
        fixture.writes("c.add", python, ruby);
        fixture.writes("c.add", "result = sum(args)", "args.sum");
        fixture.writes(
            "c.answer",
            "def answer(n):\n    return n * 2\nresult = answer(21)",
            "def answer(n) = n * 2\nresult = answer(21)",
        );
        let c = fixture.agent("c");
        fixture.call(&c, "add", &[json!(20), json!(30)], 1);
        assert_eq!(fixture.call(&c, "add", &[json!(5), json!(6)], 1), json!(11));
        assert_eq!(fixture.call(&c, "answer", &[], 1), json!(42));
        assert_eq!(fixture.call(&c, "answer", &[], 0), json!(42));
    });
}

/// A program's own classes may be named as the runtime's are: it has them to itself, also in a worker that is kept.
#[test]
fn a_class_named_like_one_of_the_runtime_is_the_programs_own() {
    check(|fixture| {
        fixture.writes(
            "c.team",
            "class Agent:\n    def __init__(self, name):\n        self.name = name\nclass Outcome(Agent):\n    pass\ndef team(names):\n    \
             return [Outcome(Agent(name).name).name for name in names]",
            "Agent = Struct.new(:name)\nclass Outcome < Agent; end\ndef team(names) = names.map { |name| Outcome.new(Agent.new(name).name).name }",
        );
        fixture.writes(
            "c.relay",
            "def relay(x):\n    answer = delegate('t', purpose='echo').echo(x)\n    return Outcome.ok(answer.value) if answer.ok else answer",
            "def relay(x)\n  answer = delegate('t', purpose: 'echo').echo(x)\n  answer.ok? ? Outcome.ok(answer.value) : answer\nend",
        );
        fixture.writes("t.echo", "def echo(x):\n    return x", "def echo(x) = x");
        let c = fixture.agent("c");
        for asked in [1, 0, 0] {
            let team = fixture.call(&c, "team", &[json!(["Ann", "Bo"])], asked);
            assert_eq!(team, json!(["Ann", "Bo"]));
            assert_eq!(fixture.call(&c, "relay", &[json!(7)], asked * 2), json!(7));
        }
    });
}
