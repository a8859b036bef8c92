//! Sessions used by many at once: calls run one after the other, in every process; and calls without a model.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use lifecycle::event::{Event, EventKind};
use recurgent::config::Config;
use recurgent::observe::Observer;
use recurgent::provider::Scripted;
use recurgent::{Agent, FailureKind, Runtime};
use serde_json::json;

use crate::fixture::{check, open};

const PROCESSES: usize = 8;
const CALLS: usize = 200;

/// Adds 1 to the memory of its session.
const COUNT: &str = "context.total = context.get('total', 0) + 1\nresult = context.total";

fn child(job: &str, state: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sessions::child_process", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{job}\n{}", state.display()).unwrap();
    child
}

#[test]
fn eight_processes_call_one_session_and_no_call_is_lost_or_refused() {
    let state = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..PROCESSES).map(|_| child("count", state.path())).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let runtime = open(state.path(), Arc::new(Scripted::new()), "shadow");
    let counter = runtime.agent("counter").session("desk").build().unwrap();
    assert_eq!(counter.get("total"), Some(json!(PROCESSES * CALLS)));
    drop((counter, runtime));
    let locks = std::fs::read_dir(state.path().join("locks")).unwrap().count();
    assert_eq!(locks, 0, "nothing is left beside the store");
}

/// The kernel releases the locks of a process that is killed during a call.
#[test]
fn a_killed_process_does_not_keep_its_session() {
    let state = tempfile::tempdir().unwrap();
    let mut held = child("hold", state.path());
    let mut lines = BufReader::new(held.stderr.take().unwrap()).lines();
    let is_running = |line: &str| line.contains("running");
    assert!(lines.by_ref().map_while(Result::ok).any(|line| is_running(&line)));
    held.kill().unwrap();
    held.wait().unwrap();
    let model = Scripted::new().with("counter.count", COUNT);
    let runtime = open(state.path(), Arc::new(model), "shadow");
    let counter = runtime.agent("counter").session("desk").build().unwrap();
    assert_eq!(counter.call("count", ()).unwrap().value(), Some(&json!(1)));
}

#[test]
fn threads_of_one_process_share_a_session() {
    check(|fixture| {
        fixture.writes(
            "counter.count",
            COUNT,
            "context[:total] = (context[:total] || 0) + 1\ncontext[:total]",
        );
        let (language, runtime) = (fixture.language, fixture.runtime().clone());
        thread::scope(|scope| {
            for _ in 0..4 {
                let runtime = &runtime;
                scope.spawn(move || {
                    let counter =
                        runtime.agent("counter").guest(language).session("desk").build().unwrap();
                    for _ in 0..10 {
                        let outcome = counter.call("count", ()).unwrap();
                        assert!(outcome.is_ok(), "{outcome:?}");
                    }
                });
            }
        });
        let counter = runtime.agent("counter").session("desk").build().unwrap();
        assert_eq!(counter.get("total"), Some(json!(40)));
    });
}

/// An observer that calls the session it watches.
#[derive(Debug, Default, Clone)]
struct Meddler(Arc<Mutex<(Option<Agent>, Vec<FailureKind>)>>);

impl Observer for Meddler {
    fn event(&self, event: &Event) {
        let EventKind::Started { .. } = event.kind else { return };
        let agent = self.0.lock().unwrap().0.take();
        if let Some(agent) = agent {
            let outcome = agent.call("count", ()).unwrap();
            self.0.lock().unwrap().1.extend(outcome.failure().map(|failure| failure.kind.clone()));
        }
    }
}

#[test]
fn a_call_that_calls_its_own_session_is_refused_and_does_not_hang() {
    let state = tempfile::tempdir().unwrap();
    let meddler = Meddler::default();
    let mut config = Config::defaults();
    config.set("state_dir", &state.path().display().to_string()).unwrap();
    let runtime = Runtime::builder(config)
        .provider(Arc::new(Scripted::new().with("counter.count", COUNT)))
        .observer(Box::new(meddler.clone()))
        .build()
        .unwrap();
    let counter = runtime.agent("counter").session("desk").build().unwrap();
    let inner = runtime.agent("counter").session("desk").build().unwrap();
    meddler.0.lock().unwrap().0 = Some(inner);
    assert_eq!(counter.call("count", ()).unwrap().value(), Some(&json!(1)));
    assert_eq!(meddler.0.lock().unwrap().1, [FailureKind::InvalidCall]);
}

/// A runtime on the same state that asks no model.
fn frozen(state: &Path, settings: &[(&str, &str)]) -> Runtime {
    let mut config = Config::defaults();
    config.set("state_dir", &state.display().to_string()).unwrap();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    Runtime::builder(config).provider(Arc::new(Scripted::new())).build().unwrap()
}

#[test]
fn a_frozen_runtime_runs_what_is_stored_and_asks_no_model() {
    let state = tempfile::tempdir().unwrap();
    let model = Scripted::new().with("c.double", "result = args[0] * 2");
    let runtime = open(state.path(), Arc::new(model), "shadow");
    runtime.agent("c").build().unwrap().call("double", (2,)).unwrap();
    drop(runtime);
    let runtime = frozen(state.path(), &[("generate", "false")]);
    let c = runtime.agent("c").build().unwrap();
    assert_eq!(c.call("double", (4,)).unwrap().value(), Some(&json!(8)));
    let outcome = c.call("half", (4,)).unwrap();
    let failure = outcome.failure().unwrap();
    assert_eq!(failure.kind, FailureKind::UnsupportedCapability, "{failure:?}");
    assert!(failure.message.contains("generate"), "{}", failure.message);
}

#[test]
fn tools_of_a_directory_are_candidates_after_those_of_the_store() {
    let (state, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = Scripted::new()
        .with("c.run", "result = delegate('doubler', purpose='double').double(args[0]).value")
        .with("doubler.double", "result = args[0] * 2");
    let runtime = open(state.path(), Arc::new(model), "shadow");
    runtime.agent("c").build().unwrap().call("run", (2,)).unwrap();
    let exported = folder.path().join("tools");
    let bundle = runtime.store().bundle(None).unwrap();
    recurgent::store::layout::write(&bundle, &exported).unwrap();
    let fresh = tempfile::tempdir().unwrap();
    let settings = [("generate", "false"), ("tools_dir", exported.to_str().unwrap())];
    let runtime = frozen(fresh.path(), &settings);
    let doubler = runtime.agent("doubler").build().unwrap();
    let outcome = doubler.call("double", (5,)).unwrap();
    assert_eq!(outcome.value(), Some(&json!(10)), "its contract comes with it: {outcome:?}");
    assert_eq!(runtime.store().artifacts(None, 9).unwrap(), [], "nothing is copied");
    let edited = "result = args[0] * 20";
    let own = open(fresh.path(), Arc::new(Scripted::new().with("c.run", edited)), "shadow");
    own.agent("c").build().unwrap().call("run", (1,)).unwrap();
    drop(own);
    let c = runtime.agent("c").build().unwrap();
    assert_eq!(c.call("run", (2,)).unwrap().value(), Some(&json!(40)), "the store comes first");
}

/// A forged tool is called by its name, with the contract it was forged with.
#[test]
fn a_forged_tool_is_called_by_name_with_its_contract() {
    check(|fixture| {
        fixture.writes(
            "c.run",
            "result = delegate('adder', purpose='add', deliverable={'type': 'number'}).add(args[0]).value",
            "delegate('adder', purpose: 'add', deliverable: {type: 'number'}).add(args[0]).value",
        );
        fixture.writes("adder.add", "result = args[0] + 1", "args[0] + 1");
        let c = fixture.agent("c");
        fixture.call(&c, "run", &[json!(1)], 2);
        let adder = fixture.agent("adder");
        assert_eq!(fixture.call(&adder, "add", &[json!(4)], 0), json!(5));
        let known = |fixture: &mut crate::fixture::KeepingFixture| {
            let known = fixture.runtime().store().tools(None, 1).unwrap().remove(0);
            (known.usage_count, known.success_count, known.failure_count)
        };
        assert_eq!(known(fixture), (2, 2, 0));
        // A method it does not have, and no model that writes it: the tool is not to blame.
        fixture.try_call(&adder, "subtract", &[json!(4)], 1);
        let (used, ok, failed) = known(fixture);
        assert!(used == 3 && ok == 2 && failed == 0, "{used} {ok} {failed}");
    });
}

/// The other side: this test binary again, run by the exact name.
#[test]
fn child_process() {
    if !std::env::args().any(|argument| argument == "--exact") {
        return;
    }
    let mut lines = std::io::stdin().lock().lines().map(Result::unwrap);
    let (job, state) = (lines.next().unwrap(), lines.next().unwrap());
    let program = match job.as_str() {
        "hold" => "import sys, time\nprint('running', file=sys.stderr)\ntime.sleep(600)",
        _ => COUNT,
    };
    let model = Scripted::new().with("counter.count", program);
    if job == "hold" {
        let mut config = Config::defaults();
        config.set("state_dir", &state).unwrap();
        let runtime = Runtime::builder(config)
            .provider(Arc::new(model))
            .observer(Box::new(Announcer))
            .build()
            .unwrap();
        let _ = runtime.agent("counter").session("desk").build().unwrap().call("count", ());
        return;
    }
    let runtime = open(Path::new(&state), Arc::new(model), "shadow");
    let counter = runtime.agent("counter").session("desk").build().unwrap();
    for _ in 0..CALLS {
        let outcome = counter.call("count", ()).unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

/// Says on standard error that a program runs.
#[derive(Debug)]
struct Announcer;

impl Observer for Announcer {
    fn event(&self, event: &Event) {
        if let EventKind::Executing { .. } = event.kind {
            eprintln!("running");
        }
    }
}
