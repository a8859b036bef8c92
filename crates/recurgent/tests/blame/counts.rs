//! What calls count as: for stored programs, for tools and their health.

use lifecycle::request::Role;
use lifecycle::tool::KnownTool;
use recurgent::Agent;
use serde_json::{Value, json};

use crate::{GuestFixture, check, closed_port};

/// Uses, values, failures and exhaustions of the tool `t`, and its failures that pattern memory knows.
fn counts(fixture: &GuestFixture) -> (u64, u64, u64, u64, usize) {
    let runtime = fixture.runtime(&[]);
    let tool = Role::parse("t").unwrap();
    let known = runtime.store().tools(Some(&tool), 1).unwrap().remove(0);
    let bundle = runtime.store().bundle(Some(&tool)).unwrap();
    let corrected = recurgent::upkeep::corrected_answers(runtime.store()).unwrap();
    let health = recurgent::upkeep::health(runtime.store(), &bundle.tools[0], &corrected).unwrap();
    let KnownTool { usage_count, success_count, failure_count, exhaustion_count, .. } = known;
    (usage_count, success_count, failure_count, exhaustion_count, health.recent_failures)
}

/// A boss that calls `t.f` with its argument, and gives null for an error.
fn boss(fixture: &GuestFixture) -> Agent {
    fixture.writes(
        "boss.run",
        "def run(x):\n    return delegate('t', purpose='work').f(x).value_or(None)",
        "def run(x) = delegate('t', purpose: 'work').f(x).value_or(nil)",
    );
    fixture.agent("boss", "loopback")
}

fn run(agent: &Agent, argument: Value) -> Value {
    agent.call("run", (argument,)).unwrap().value().cloned().unwrap()
}

/// A model that cannot widen a good program leaves it as good as it was.
#[test]
fn a_widening_that_fails_does_not_count_against_the_tool() {
    check(|fixture| {
        fixture.writes("t.f", "def f(x):\n    return x + 1", "def f(x) = x + 1");
        let agent = boss(fixture);
        assert_eq!(run(&agent, json!(1)), json!(2));
        for wrong in ["nothing", "undefined", "missing"] {
            // The program of the repair fails, as does that of its retry.
            let python = format!("def f(x):\n    return {wrong}");
            let ruby = format!("def f(x) = {wrong}");
            fixture.writes("t.f", &python, &ruby);
            fixture.writes("t.f", &format!("{python} + 1"), &format!("{ruby} + 1"));
            assert_eq!(run(&agent, json!("foo")), Value::Null);
        }
        for code in ["first", "second", "third"] {
            // So does one that asks for another try.
            let python = format!(
                "def f(x):\n    return Outcome.error(error_type='{code}', error_message='no', retriable=True)"
            );
            let ruby = format!(
                "def f(x) = Outcome.error(error_type: '{code}', error_message: 'no', retriable: true)"
            );
            fixture.writes("t.f", &python, &ruby);
            fixture.writes("t.f", &format!("{python}\nx = 1"), &format!("{ruby}\nX = 1"));
            assert_eq!(run(&agent, json!("foo")), Value::Null);
        }
        assert_eq!(counts(fixture), (7, 1, 0, 0, 0));
        assert_eq!(run(&agent, json!(4)), json!(5), "it still serves");
    });
}

/// Neither do a world that is down and an input that is rightly refused.
#[test]
fn truthful_errors_do_not_count_against_the_tool() {
    check(|fixture| {
        fixture.writes(
            "t.f",
            "import urllib.request\ndef f(x):\n    if x == 'a':\n        return 1\n    if x == '':\n        \
             return Outcome.error(error_type='empty_input', error_message='nothing to do')\n    try:\n        \
             return urllib.request.urlopen(x, timeout=5).read().decode()\n    except OSError:\n        \
             return Outcome.error(error_type='shop_down', error_message='no answer', retriable=True)",
            "require 'net/http'\ndef f(x)\n  return 1 if x == 'a'\n  \
             return Outcome.error(error_type: 'empty_input', error_message: 'nothing to do') if x.empty?\n  \
             Net::HTTP.get(URI(x))\nrescue SystemCallError\n  \
             Outcome.error(error_type: 'shop_down', error_message: 'no answer', retriable: true)\nend",
        );
        let agent = boss(fixture);
        assert_eq!(run(&agent, json!("a")), json!(1));
        let down = format!("http://127.0.0.1:{}/", closed_port());
        for argument in ["", &down, "", &down, &down] {
            assert_eq!(run(&agent, json!(argument)), Value::Null);
        }
        assert_eq!(counts(fixture), (6, 1, 0, 0, 0));
    });
}
