//! One call cannot make the host exceed its bounds of memory and disk, whatever its programs do. Real workers.
#![cfg(test)]

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Language, Runtime};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

fn runtime(model: Scripted, settings: &[(&str, &str)]) -> (TempDir, Runtime) {
    let state = tempfile::tempdir().unwrap();
    let mut config = Config::defaults();
    config.set("state_dir", &state.path().display().to_string()).unwrap();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    let runtime = Runtime::builder(config).provider(Arc::new(model)).build().unwrap();
    (state, runtime)
}

/// Programs that make the host keep values: memories of many agents, arguments passed down.
#[rustfmt::skip]
const HOARDERS: &[(&str, &str)] = &[
    ("for i in range(40):\n    delegate(f'helper {i}', purpose='x').remember(many=[{'a': i}] * 100_000)\nresult = args[0]",
     "40.times { |i| delegate(\"helper #{i}\", purpose: 'x').remember(many: [{ a: i }] * 100_000) }\nargs[0]"),
    ("result = delegate('helper', purpose='x').work([{'a': args[0]}] * 60_000)",
     "delegate('helper', purpose: 'x').work([{ a: args[0] }] * 60_000)"),
];

#[test]
fn the_memory_of_a_call_tree_is_bounded_as_decoded() {
    for language in Language::ALL {
        for (python, ruby) in HOARDERS {
            let code = if language == Language::Python { python } else { ruby };
            let deeper = if language == Language::Python {
                "result = delegate(f'lower {len(args)}', purpose='x').work(*args, args[0])"
            } else {
                "delegate(\"lower #{args.size}\", purpose: 'x').work(*args, args[0])"
            };
            let mut model = Scripted::new()
                .with("boss.run", code)
                .with("boss.run", code)
                .with("helper.work", deeper);
            for depth in 0..8 {
                model = model.with(&format!("lower {depth}.work"), deeper);
            }
            let (_state, runtime) = runtime(model, &[("max_tree_memory_mb", "80")]);
            let agent = runtime.agent("boss").guest(language).build().unwrap();
            let outcome = agent.call("run", (1,)).unwrap();
            let failure = outcome.failure().unwrap();
            let said = format!("{failure:?}");
            assert!(said.contains("max_tree_memory_mb"), "{language:?}: {said}");
            // The same agent goes on.
            agent.set("total", 1).unwrap();
        }
    }
}

#[test]
fn a_memory_too_large_for_a_worker_is_refused_when_it_is_written() {
    let grows = "context[args[0]] = 'x' * 10_000_000\nresult = len(context)";
    let model =
        Scripted::new().with("keeper.grow", grows).with("keeper.count", "result = sorted(context)");
    let (_state, runtime) = runtime(model, &[]);
    let agent = runtime.agent("keeper").session("desk").build().unwrap();
    for key in ["a", "b"] {
        assert!(agent.call("grow", (key,)).unwrap().is_ok());
    }
    let refused = agent.call("grow", ("c",)).unwrap();
    let failure = refused.failure().unwrap();
    assert_eq!(failure.kind.code(), "resource_limit");
    assert_eq!(failure.metadata["limit"], "memory");
    let text = "x".repeat(10_000_000);
    let written = agent.remember(Map::from_iter([("d".to_owned(), json!(text))]));
    assert!(written.unwrap_err().to_string().contains("remember less"));
    // The session still works, and can be made smaller.
    assert_eq!(*agent.call("count", ()).unwrap().value().unwrap(), json!(["a", "b"]));
    agent.set("a", 1).unwrap();
    assert!(agent.call("grow", ("e",)).unwrap().is_ok());
}

/// A stored tool with a long text, called many times by one program.
#[test]
fn one_call_cannot_flood_the_log() {
    let padding = "\u{1}".repeat(100_000);
    let model = Scripted::new()
        .with("boss.run", "t = delegate('worker', purpose='work')\nresult = sum(t.work(n).value for n in range(args[0]))")
        .with("worker.work", &format!("padding = '''{padding}'''\nresult = args[0]"));
    let (state, runtime) = runtime(model, &[("log_tree_mb", "1")]);
    let outcome = runtime.agent("boss").build().unwrap().call("run", (400,)).unwrap();
    assert!(outcome.is_ok(), "{outcome:?}");
    let log = std::fs::read_to_string(state.path().join("recurgent.jsonl")).unwrap();
    assert!(log.len() < (1 << 20) + 100_000, "{} bytes", log.len());
    let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let root = entries.last().unwrap();
    assert_eq!(root["role"], "boss");
    let dropped = root["log_entries_dropped"].as_u64().unwrap();
    assert_eq!(u64::try_from(entries.len()).unwrap() + dropped, 401);
    let texts = entries.iter().filter(|entry| entry["code"].is_string()).count();
    assert_eq!(texts, 2, "each program once");
    assert!(entries.iter().all(|entry| entry["code_digest"].is_string()));
}
