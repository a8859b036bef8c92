//! Limits on running workers hold under load, and programs with packages can ask the host.

use std::thread;
use std::time::{Duration, Instant};

use recurgent::{Language, Runtime};
use serde_json::json;

use crate::fixture::{EnvironmentFixture, call, failure, failure_facts, value};
use crate::sources::PackageServer;

/// Gives the times at which it began and ended, on the clock that all processes share.
const INTERVAL: &str = "import time, outer_part\nbegun = time.monotonic_ns()\ntime.sleep(0.02)\nresult = [begun, time.monotonic_ns()]";

/// How many intervals overlap at most.
fn most_at_once(intervals: &[(u64, u64)]) -> usize {
    // Ends come before beginnings at the same moment.
    let begun = intervals.iter().map(|(begun, _)| (*begun, true));
    let mut moments: Vec<(u64, bool)> =
        begun.chain(intervals.iter().map(|(_, ended)| (*ended, false))).collect();
    moments.sort_unstable();
    let (mut running, mut most) = (0_usize, 0);
    for (_, begins) in moments {
        running = if begins { running + 1 } else { running - 1 };
        most = most.max(running);
    }
    most
}

/// Runs calls of many agents at once; gives when each program ran.
fn intervals(runtime: &Runtime, agents: usize, calls: usize) -> Vec<(u64, u64)> {
    let caller = || {
        let agent = runtime.agent("tester").build().unwrap();
        let ran = |_| {
            let outcome = agent.call("check", ()).unwrap();
            serde_json::from_value::<(u64, u64)>(value(&outcome).clone()).unwrap()
        };
        (0..calls).map(ran).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let callers: Vec<_> = (0..agents).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    })
}

#[test]
fn two_hundred_calls_of_fifty_agents_run_four_at_a_time() {
    let mut fixture = PackageServer::wheels().fixture();
    fixture.set("max_running_workers", "4");
    fixture.set("queue_timeout_seconds", "300");
    fixture.model_writes("check", INTERVAL, &json!([{"name": "outer-part"}]));
    let runtime = fixture.runtime();
    let ran = intervals(&runtime, 50, 4);
    assert_eq!(ran.len(), 200);
    let most = most_at_once(&ran);
    assert!((2..=4).contains(&most), "{most} ran at once");
    assert!(workers_in(&fixture.cache()) > 0, "they are found while they exist");
    drop(runtime);
    assert_eq!(workers_in(&fixture.cache()), 0, "none outlives its runtime");
}

#[test]
fn callers_wait_for_a_worker_while_all_are_busy() {
    let mut fixture = PackageServer::wheels().fixture();
    fixture.set("max_running_workers", "8");
    fixture.set("max_live_workers", "2");
    fixture.set("queue_timeout_seconds", "300");
    fixture.model_writes("check", INTERVAL, &json!([{"name": "outer-part"}]));
    let ran = intervals(&fixture.runtime(), 10, 4);
    assert_eq!(ran.len(), 40, "no call is refused");
    assert!(most_at_once(&ran) <= 2);
}

/// Processes of this test whose command line names its environments.
fn workers_in(cache: &std::path::Path) -> usize {
    let cache = cache.to_str().unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| line.contains(cache))
        .count()
}

#[test]
fn delegation_four_deep_with_two_running_workers_ends() {
    for language in [Language::Python, Language::Ruby] {
        let source = match language {
            Language::Python => PackageServer::wheels(),
            Language::Ruby => PackageServer::gems(),
        };
        let mut fixture = source.fixture();
        fixture.set("max_running_workers", "2");
        let (import, package) = match language {
            Language::Python => ("import inner_part", "inner-part"),
            Language::Ruby => ("require 'beta'", "beta"),
        };
        for depth in 0..4 {
            let down = match language {
                Language::Python => format!(
                    "{import}\nresult = 1 + delegate('d{}', purpose='go down').check().value",
                    depth + 1
                ),
                Language::Ruby => format!(
                    "{import}\n1 + delegate('d{}', purpose: 'go down').check.value",
                    depth + 1
                ),
            };
            let payload = json!({"code": down, "dependencies": [{"name": package}]});
            fixture.model.add(&format!("d{depth}.check"), payload);
        }
        fixture.model.add("d4.check", json!({"code": "result = 1"}));
        let runtime = fixture.runtime();
        thread::scope(|scope| {
            for _ in 0..3 {
                let runtime = runtime.clone();
                scope.spawn(move || {
                    let agent = runtime.agent("d0").build().unwrap();
                    assert_eq!(value(&agent.call("check", ()).unwrap()), &json!(5));
                });
            }
        });
    }
}

#[test]
fn a_program_with_packages_asks_like_any_other() {
    let fixture = PackageServer::gems().fixture();
    fixture.model_writes("check", "require 'beta'\nhelper = delegate('helper', purpose: 'help')\n[tool('helper').add(2).value, content('none'), runtime_context.keys.size, helper.add(3).value]", &json!([{"name": "beta"}]));
    fixture.model.add("helper.add", json!({"code": "args[0] + 1"}));
    let runtime = fixture.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    assert_eq!(value(&call(&mut agent, "check")), &json!([3, null, 0, 4]));
}

#[test]
fn after_five_crashes_in_a_row_an_agents_calls_are_refused() {
    for (language, crash, fine) in [
        (Language::Python, "import faulthandler\nfaulthandler._sigsegv()", "result = 1"),
        (Language::Ruby, "exit!(3)", "1"),
    ] {
        let fixture = EnvironmentFixture::new(language);
        fixture.model_writes("crash", crash, &json!([]));
        fixture.model_writes("fine", fine, &json!([]));
        let runtime = fixture.runtime();
        let mut agent = runtime.agent("tester").build().unwrap();
        for _ in 0..5 {
            let outcome = call(&mut agent, "crash");
            assert_eq!(
                failure_facts(&outcome, "ended_by"),
                ("worker_crash", true, Some("program"))
            );
        }
        let refused = call(&mut agent, "crash");
        assert_eq!(failure_facts(&refused, "ended_by"), ("worker_crash", true, Some("host")));
        let message = &failure(&refused).message;
        assert!(message.contains("5 workers of this agent crashed in a row"), "{message}");
        let mut other = runtime.agent("tester").build().unwrap();
        assert_eq!(value(&call(&mut other, "fine")), &json!(1), "other agents are not refused");
        let begun = Instant::now();
        while call(&mut agent, "fine").failure().is_some() {
            assert!(
                begun.elapsed() < Duration::from_mins(3),
                "the agent is still refused after its wait"
            );
            thread::sleep(Duration::from_millis(50));
        }
        let outcome = call(&mut agent, "crash");
        assert_eq!(
            failure_facts(&outcome, "ended_by").2,
            Some("program"),
            "a success resets the count"
        );
    }
}

#[test]
fn idle_workers_make_room_and_calls_nested_too_deep_are_refused_at_once() {
    let mut fixture = EnvironmentFixture::new(Language::Python);
    fixture.set("max_live_workers", "2");
    fixture.set("queue_timeout_seconds", "3600");
    for depth in 0..3 {
        let code =
            format!("result = 1 + delegate('d{}', purpose='go down').check().value", depth + 1);
        fixture.model.add(&format!("d{depth}.check"), json!({"code": code}));
    }
    fixture.model.add("d3.check", json!({"code": "result = 1"}));
    let runtime = fixture.runtime();
    let agent = runtime.agent("d2").build().unwrap();
    assert_eq!(value(&agent.call("check", ()).unwrap()), &json!(2), "two are enough for this");
    let agent = runtime.agent("d0").build().unwrap();
    let refused = agent.call("check", ()).unwrap();
    assert!(refused.failure().is_some());
    let log = std::fs::read_to_string(fixture.path("log.jsonl")).unwrap();
    assert!(log.contains("(max_live_workers) were running"), "{log}");
    assert!(log.contains("raise it, or nest calls less deep"), "{log}");
    let mut agents = Vec::new(); // so that their kept workers stay, idle
    for _ in 0..4 {
        let agent = runtime.agent("d3").build().unwrap();
        for _ in 0..3 {
            assert_eq!(value(&agent.call("check", ()).unwrap()), &json!(1));
        }
        agents.push(agent);
    }
}
