//! Tools and calls are counted, in every process.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use lifecycle::artifact::ArtifactKey;
use lifecycle::request::{Method, Role};
use lifecycle::standing::Standing;
use recurgent::Language;
use recurgent::provider::Scripted;
use serde_json::json;

use crate::fixture::{check, open};

const PROCESSES: usize = 8;
const DELEGATIONS: usize = 20;
const CALLS: u64 = 25;

/// A tool's very first call is made before the call that forges it is committed.
#[test]
fn a_tools_first_call_is_counted() {
    check(|fixture| {
        fixture.writes(
            "c.run",
            "result = delegate('adder', purpose='add').add(args[0]).value",
            "delegate('adder', purpose: 'add').add(args[0]).value",
        );
        fixture.writes("adder.add", "result = args[0] + 1", "args[0] + 1");
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "run", &[json!(1)], 2), json!(2));
        assert_eq!(fixture.call(&c, "run", &[json!(2)], 0), json!(3));
        let adder = Role::parse("adder").unwrap();
        let [known] = &fixture.runtime().store().tools(Some(&adder), 1).unwrap()[..] else {
            panic!()
        };
        assert_eq!((known.usage_count, known.success_count, known.failure_count), (2, 2, 0));
    });
}

/// The reference runtime kept 30 of these 160 tools and counted 72 of these 200 calls.
#[test]
fn eight_processes_keep_every_tool_and_count_every_call() {
    let state = tempfile::tempdir().unwrap();
    let runtime = open(state.path(), Arc::new(Scripted::new()), "shadow");
    runtime.agent("c").build().unwrap().delegate("steady").purpose("stay").build().unwrap();
    let children: Vec<_> = (0..PROCESSES)
        .map(|n| {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "processes::child_process", "--nocapture"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let job = format!("{n}\n{}\n", state.path().display());
            child.stdin.as_mut().unwrap().write_all(job.as_bytes()).unwrap();
            child
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let tools = runtime.store().tools(None, 1000).unwrap();
    let steady = Role::parse("steady").unwrap();
    let (shared, own): (Vec<_>, Vec<_>) = tools.iter().partition(|tool| tool.tool.name == steady);
    assert_eq!(own.len(), PROCESSES * DELEGATIONS);
    for tool in own {
        assert_eq!(
            (tool.usage_count, tool.success_count, tool.failure_count),
            (1, 1, 0),
            "{tool:?}"
        );
    }
    assert_eq!(shared[0].success_count, PROCESSES as u64 * CALLS);
    let key = ArtifactKey {
        role: steady,
        method: Method::parse("work").unwrap(),
        language: Language::Python,
        contract_fingerprint: shared[0].tool.contract.as_ref().unwrap().fingerprint(),
    };
    let versions = runtime.store().versions(&key).unwrap();
    assert_eq!(versions.len(), 1);
    assert_eq!(u64::from(versions[0].artifact.successes), PROCESSES as u64 * CALLS);
    assert_eq!(
        versions[0].artifact.track_record.standing,
        Standing::Durable,
        "ten calls, two sessions"
    );
}

/// The other side: this test binary again, run by the exact name.
#[test]
fn child_process() {
    if !std::env::args().any(|argument| argument == "--exact") {
        return;
    }
    let mut lines = std::io::stdin().lock().lines().map(Result::unwrap);
    let (number, state) = (lines.next().unwrap(), lines.next().unwrap());
    let model = Scripted::new()
        .with("c.run", "result = delegate(args[0], purpose='add').work(1).value")
        .with("work", "result = args[0] + 1");
    let runtime = open(Path::new(&state), Arc::new(model), "shadow");
    let c = runtime.agent("c").build().unwrap();
    for n in 0..DELEGATIONS {
        let outcome = c.call("run", (format!("tool_{number}_{n}"),)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(2)), "{outcome:?}");
    }
    let steady = c.tool("steady").unwrap();
    for n in 0..CALLS {
        let outcome = steady.call("work", (n,)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(n + 1)), "{outcome:?}");
    }
}
