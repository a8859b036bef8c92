//! Caps that hold under load, and asks from programs with packages.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use recurgent::Language;
use serde_json::json;

use crate::sources::PackageSource;
use crate::stage::{Stage, call, failure, told, value};

/// Says in a directory that it runs, sleeps a little, and says that it ran.
fn marking(stage: &Stage) -> String {
    let marks = stage.path("marks");
    std::fs::create_dir(&marks).unwrap();
    format!(
        "import os, time, outer_part\nmark = os.path.join({:?}, str(os.getpid()))\nopen(mark, 'w').close()\ntime.sleep(0.02)\nos.remove(mark)\nresult = outer_part.NAME",
        marks.to_str().unwrap()
    )
}

#[test]
fn two_hundred_calls_of_fifty_agents_run_four_at_a_time() {
    let mut stage = PackageSource::wheels().stage();
    stage.set("max_running_workers", "4");
    stage.writes("check", &marking(&stage), &json!([{"name": "outer-part"}]));
    let runtime = stage.runtime();
    let (over, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    let marks = stage.path("marks");
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let running = std::fs::read_dir(&marks).map_or(0, Iterator::count);
                most.fetch_max(running, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let callers: Vec<_> = (0..50)
            .map(|_| {
                let runtime = runtime.clone();
                scope.spawn(move || {
                    let mut agent = runtime.agent("tester").build().unwrap();
                    for _ in 0..4 {
                        let outcome = agent.call("check", ()).unwrap();
                        assert_eq!(value(&outcome), "outer of inner");
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        over.store(true, Ordering::SeqCst);
    });
    let most = most.load(Ordering::SeqCst);
    assert!((1..=4).contains(&most), "{most} ran at once");
    drop(runtime);
    assert_eq!(workers_in(&stage.shelf()), Vec::<String>::new());
}

/// Processes of this test whose command line names its environments.
fn workers_in(shelf: &std::path::Path) -> Vec<String> {
    let shelf = shelf.to_str().unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| line.contains(shelf))
        .collect()
}

#[test]
fn delegation_four_deep_under_a_cap_of_two_comes_to_an_end() {
    for language in [Language::Python, Language::Ruby] {
        let source = match language {
            Language::Python => PackageSource::wheels(),
            Language::Ruby => PackageSource::gems(),
        };
        let mut stage = source.stage();
        stage.set("max_running_workers", "2");
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
            stage.model.add(&format!("d{depth}.check"), payload);
        }
        stage.model.add("d4.check", json!({"code": "result = 1"}));
        let runtime = stage.runtime();
        thread::scope(|scope| {
            for _ in 0..3 {
                let runtime = runtime.clone();
                scope.spawn(move || {
                    let mut agent = runtime.agent("d0").build().unwrap();
                    assert_eq!(value(&agent.call("check", ()).unwrap()), &json!(5));
                });
            }
        });
    }
}

#[test]
fn a_program_with_packages_asks_like_any_other() {
    let stage = PackageSource::gems().stage();
    stage.writes("check", "require 'beta'\nhelper = delegate('helper', purpose: 'help')\n[tool('helper').add(2).value, content('none'), runtime_context.keys.size, helper.add(3).value]", &json!([{"name": "beta"}]));
    stage.model.add("helper.add", json!({"code": "args[0] + 1"}));
    let runtime = stage.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    assert_eq!(value(&call(&mut agent, "check")), &json!([3, null, 0, 4]));
}

#[test]
fn five_crashes_in_a_row_stop_at_the_cap() {
    let stage = Stage::new(Language::Python);
    stage.writes("crash", "import faulthandler\nfaulthandler._sigsegv()", &json!([]));
    stage.writes("fine", "result = 1", &json!([]));
    let runtime = stage.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    for _ in 0..5 {
        let outcome = call(&mut agent, "crash");
        assert_eq!(told(&outcome, "ended_by"), ("worker_crash", true, Some("program")));
    }
    let refused = call(&mut agent, "crash");
    assert_eq!(told(&refused, "ended_by"), ("worker_crash", true, Some("host")));
    assert!(failure(&refused).message.contains("5 workers of this agent crashed in a row"));
    let mut other = runtime.agent("tester").build().unwrap();
    assert_eq!(value(&call(&mut other, "fine")), &json!(1), "other agents are not held to it");
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(value(&call(&mut agent, "fine")), &json!(1), "after its wait it may try again");
    let outcome = call(&mut agent, "crash");
    assert_eq!(told(&outcome, "ended_by").2, Some("program"), "a good end forgives");
}

#[test]
fn idle_workers_make_room_and_a_full_house_refuses() {
    let mut stage = Stage::new(Language::Python);
    stage.set("max_live_workers", "2");
    for depth in 0..3 {
        let code =
            format!("result = 1 + delegate('d{}', purpose='go down').check().value", depth + 1);
        stage.model.add(&format!("d{depth}.check"), json!({"code": code}));
    }
    stage.model.add("d3.check", json!({"code": "result = 1"}));
    let runtime = stage.runtime();
    let mut agent = runtime.agent("d2").build().unwrap();
    assert_eq!(value(&agent.call("check", ()).unwrap()), &json!(2), "two are enough for this");
    let mut agent = runtime.agent("d0").build().unwrap();
    let refused = agent.call("check", ()).unwrap();
    assert!(refused.failure().is_some(), "four at once are too many");
    let mut agents = Vec::new(); // so that their kept workers stay, idle
    for _ in 0..4 {
        let mut agent = runtime.agent("d3").build().unwrap();
        for _ in 0..3 {
            assert_eq!(value(&agent.call("check", ()).unwrap()), &json!(1));
        }
        agents.push(agent);
    }
}
