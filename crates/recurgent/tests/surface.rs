//! What an embedding program sees of agents: shared between threads, typed arguments and values, facts about calls.
#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use lifecycle::attempt::Origin;
use recurgent::config::{AgentOverrides, Config, LogTarget, SettingsLayer};
use recurgent::provider::Scripted;
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Agent, Budgets, CallFault, Outcome, Runtime, call};
use serde::{Deserialize, Serialize};
use serde_json::json;

const PROGRAMS: &[(&str, &str)] = &[
    ("desk.bump", "context['count'] = context.get('count', 0) + 1\nresult = context['count']"),
    (
        "desk.scaled",
        "def scaled(point, by):\n    return {'x': point['x'] * by, 'y': point['y'] * by}",
    ),
    ("desk.broken", "raise ValueError('no such day')"),
    ("desk.word", "result = 'seven'"),
];

fn runtime() -> Runtime {
    let script = Scripted::new();
    let script = PROGRAMS.iter().fold(script, |script, (key, code)| script.with(key, code));
    let layer = SettingsLayer {
        log: Some(LogTarget::Off),
        execution_repair_budget: Some(0),
        ..SettingsLayer::default()
    };
    Runtime::builder(Config::defaults().with(&layer).unwrap())
        .provider(Arc::new(script))
        .store(Arc::new(SqliteStore::in_memory().unwrap()))
        .build()
        .unwrap()
}

/// A program that fails is repaired as often as the budget says.
#[test]
fn an_agent_has_budgets_of_its_own() {
    for (retries, expected) in [(0, 1), (2, 3)] {
        let script = (0..4).fold(Scripted::new(), |script, day| {
            script.with("desk.broken", &format!("raise ValueError('no such day: {day}')"))
        });
        let layer = SettingsLayer { log: Some(LogTarget::Off), ..SettingsLayer::default() };
        let runtime = Runtime::builder(Config::defaults().with(&layer).unwrap())
            .provider(Arc::new(script))
            .store(Arc::new(SqliteStore::in_memory().unwrap()))
            .build()
            .unwrap();
        let budgets = Budgets { execution: retries, ..Budgets::default() };
        let desk = runtime.agent("desk").budgets(budgets).build().unwrap();
        let outcome = desk.call("broken", ()).unwrap();
        assert_eq!(outcome.details.unwrap().model_calls, expected, "{retries} retries");
    }
}

fn desk() -> Agent {
    runtime().agent("desk").build().unwrap()
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: f64,
    y: f64,
}

#[test]
fn one_agent_is_called_by_many_threads() {
    let desk = desk();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..3 {
                    assert!(call!(desk.bump()).unwrap().is_ok());
                }
            });
        }
    });
    assert_eq!(desk.get("count"), Some(json!(12)));
    desk.set("count", 40).unwrap();
    assert_eq!(desk.call_as::<u8>("bump", ()).unwrap(), 41);
}

#[test]
fn arguments_and_values_are_types_of_the_program() {
    let scaled: Point = desk().call_as("scaled", (Point { x: 1.5, y: 1e-7 }, 2)).unwrap();
    assert_eq!(scaled, Point { x: 3.0, y: 2e-7 });
}

#[test]
fn a_call_that_gives_no_value_of_the_type_says_why() {
    let desk = desk();
    for (method, expected) in [
        ("word", "the value of the call is not a u8: invalid type: string \"seven\""),
        ("broken", "no such day"),
        ("", "a method name must not be empty"),
    ] {
        let fault = desk.call_as::<u8>(method, ()).unwrap_err();
        assert!(fault.to_string().contains(expected), "{fault}");
    }
    let fault = desk.call_as::<u8>("word", (f64::NAN,)).unwrap_err();
    assert!(
        matches!(&fault, CallFault::Failed(failure) if failure.message.contains("NaN")),
        "{fault}"
    );
}

#[test]
fn an_outcome_says_which_call_it_was_and_where_its_program_came_from() {
    let desk = desk();
    let facts = |outcome: &Outcome| {
        let details = outcome.details.clone().unwrap();
        assert!(details.duration > Duration::ZERO && !details.call.0.is_empty());
        let origin = details.origin.as_ref().map(Origin::program_source);
        (details.call.0, details.trace, details.model_calls, origin)
    };
    let (first, second) = (call!(desk.word()).unwrap(), call!(desk.word()).unwrap());
    let ((one, trace, asked, origin), (other, same, _, stored)) = (facts(&first), facts(&second));
    assert_eq!((asked, origin, stored), (1, Some("generated"), Some("persisted")));
    assert_ne!(one, other);
    assert_eq!(trace, same);
    let (.., none) = facts(&call!(desk.broken()).unwrap());
    assert_eq!(none, None);
    desk.set("memory", 5).unwrap();
    assert_eq!(call!(desk.memory()).unwrap().details, None, "reading memory is not a call");
}

#[test]
fn options_of_an_agent_are_typed() {
    let runtime = runtime();
    let overrides = AgentOverrides::parse([("max_model_calls", "0")]).unwrap();
    let outcomes = [
        runtime.agent("desk").overrides(&overrides).build().unwrap().call("word", ()).unwrap(),
        runtime
            .agent("desk")
            .allowance(lifecycle::request::Allowance { model_calls: 0, ..Default::default() })
            .build()
            .unwrap()
            .call("word", ())
            .unwrap(),
    ];
    for outcome in outcomes {
        assert_eq!(outcome.failure().unwrap().kind.code(), "budget_exceeded", "{outcome:?}");
    }
    let role = lifecycle::request::Role::parse("desk").unwrap();
    assert_eq!(runtime.agent(&role).build().unwrap().role(), &role);
    // Typed options have the bounds of their texts, and the first wrong one is reported.
    let agent = || runtime.agent("desk");
    for (builder, says) in [
        (agent().execution_timeout(Duration::ZERO), "`execution_timeout_seconds` (code) must be"),
        (agent().provider_timeout(Duration::MAX), "`provider_timeout_seconds` (code) must be"),
        (agent().trace_id(""), "a trace id must not be empty"),
        (agent().trace_id("a\nb"), "a trace id must not contain control characters"),
        (agent().trace_id("").execution_timeout(Duration::ZERO), "a trace id must not be empty"),
        (agent().model("no model"), "no model"),
    ] {
        let fault = builder.build().unwrap_err().to_string();
        assert!(fault.contains(says), "{fault}");
    }
    let traced = agent().trace_id("my-trace").build().unwrap().call("word", ()).unwrap();
    assert_eq!(traced.details.unwrap().trace.as_str(), "my-trace");
    let fault = runtime.agent("desk").session("\u{7}").build().unwrap_err().to_string();
    assert!(fault.contains("control characters"), "{fault}");
}
