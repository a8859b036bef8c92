//! One call cannot make the host exceed its bounds of memory and disk, whatever its programs do. Real workers.
#![cfg(test)]

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Language, Runtime};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

fn runtime(model: impl Into<Arc<Scripted>>, settings: &[(&str, &str)]) -> (TempDir, Runtime) {
    let state = tempfile::tempdir().unwrap();
    let mut config = Config::defaults();
    config.set("state_dir", &state.path().display().to_string()).unwrap();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    let runtime = Runtime::builder(config).provider(model.into()).build().unwrap();
    (state, runtime)
}

/// Programs that make the host keep values: memories of many agents, arguments passed down.
#[rustfmt::skip]
const HOARDERS: &[(&str, &str)] = &[
    ("for i in range(40):\n    delegate(f'helper {i}', purpose='x').remember(many=[{'a': i}] * 60_000)\nresult = args[0]",
     "40.times { |i| delegate(\"helper #{i}\", purpose: 'x').remember(many: [{ a: i }] * 60_000) }\nargs[0]"),
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

/// Options by which a program could ask for more model calls than its own call has.
const MORE: &str = "'max_generation_attempts': '60', 'execution_repair_budget': 60, 'fresh_outcome_repair_budget': 60, \
                    'guardrail_recovery_budget': 60, 'max_model_calls': 1000";

/// A program that calls a tool once for each number below its argument.
fn calls_helpers(language: Language, options: &str) -> String {
    match language {
        Language::Python => format!(
            "result = [delegate(f'helper {{n}}', purpose='x', **{{{options}}}).work(n).error_type for n in range(args[0])]"
        ),
        Language::Ruby => format!(
            "args[0].times.map {{ |n| delegate(\"helper #{{n}}\", purpose: 'x', **{{{options}}}).work(n).error_type }}"
        ),
    }
}

#[test]
fn a_program_cannot_widen_the_budgets_of_what_it_calls() {
    for language in Language::ALL {
        let fails =
            if language == Language::Python { "raise ValueError(args)" } else { "raise args.to_s" };
        let asked = |options: &str| {
            let model = Scripted::new().with("boss.run", &calls_helpers(language, options));
            let model = Arc::new(model.with("work", fails));
            let (_state, runtime) = runtime(Arc::clone(&model), &[]);
            let agent = runtime.agent("boss").guest(language).build().unwrap();
            let outcome = agent.call("run", (2,)).unwrap();
            assert_eq!(*outcome.value().unwrap(), json!(["execution", "execution"]), "{options}");
            model.asked().len()
        };
        let plain = asked("");
        assert_eq!(plain, 5, "one program, and two of each of two helpers");
        assert_eq!(asked(MORE), plain, "{language:?}");
    }
}

/// However deep or wide the calls are, and whatever options their programs choose.
#[test]
fn model_calls_are_limited_over_the_whole_tree() {
    for language in Language::ALL {
        for deep in [false, true] {
            let wide = calls_helpers(language, MORE);
            let down = match language {
                Language::Python => format!(
                    "result = delegate(f'helper {{args[0]}}', purpose='x', **{{{MORE}}}).work(args[0] + 1).value"
                ),
                Language::Ruby => format!(
                    "delegate(\"helper #{{args[0]}}\", purpose: 'x', **{{{MORE}}}).work(args[0] + 1).value"
                ),
            };
            let (first, rest) = if deep { (&down, down.as_str()) } else { (&wide, "args[0]") };
            let model = Arc::new(Scripted::new().with("boss.run", first).with("work", rest));
            let settings = &[("max_model_calls", "4"), ("max_delegation_depth", "16")];
            let (state, runtime) = runtime(Arc::clone(&model), settings);
            let agent = runtime.agent("boss").guest(language).build().unwrap();
            agent.call("run", (8,)).unwrap();
            assert_eq!(model.asked().len(), 4, "{language:?}, deep {deep}: {:?}", model.asked());
            let log = std::fs::read_to_string(state.path().join("recurgent.jsonl")).unwrap();
            assert!(log.contains("\"budget_exceeded\""), "{language:?}, deep {deep}: {log}");
        }
    }
}

/// Tools forged by accepted calls are kept until the call at the root ends.
#[test]
fn tools_that_called_agents_forge_are_limited_together() {
    for (language, boss, forges) in [
        (
            Language::Python,
            "t = delegate('smith', purpose='x')\nresult = [t.work(n).ok for n in range(args[0])]",
            "for n in range(40): delegate(f'tool {args[0]} {n}', purpose='x' * 200_000)\nresult = args[0]",
        ),
        (
            Language::Ruby,
            "t = delegate('smith', purpose: 'x')\nargs[0].times.map { |n| t.work(n).ok? }",
            "40.times { |n| delegate(\"tool #{args[0]} #{n}\", purpose: 'x' * 200_000) }\nargs[0]",
        ),
    ] {
        let model = Scripted::new().with("boss.run", boss).with("smith.work", forges);
        let (_state, runtime) = runtime(model, &[]);
        let agent = runtime.agent("boss").guest(language).build().unwrap();
        assert_eq!(*agent.call("run", (2,)).unwrap().value().unwrap(), json!([true, true]));
        let refused = agent.call("run", (3,)).unwrap();
        let failure = refused.failure().unwrap();
        assert_eq!(failure.kind.code(), "resource_limit", "{failure:?}");
        assert!(failure.message.contains("forged tools"), "{failure:?}");
    }
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

/// `worker_scratch_mb` of these calls.
const SCRATCH_MB: u64 = 4;
/// `max_delegation_depth` of these calls.
const DEPTH: u64 = 4;

/// Fills the scratch space and makes one more call on each level; or fills that of many agents, one after another. Programs of the second
/// and later agents of a role are stored ones, whose workers may be kept.
#[rustfmt::skip]
const FILLERS: (&str, &str) = (
    "def fill():\n    try:\n        with open('fill', 'wb', buffering=0) as file:\n            while True:\n                file.write(b'x' * 65536)\n    except OSError:\n        pass\n",
    "def fill\n  File.open('fill', 'wb') { |file| loop { file.syswrite('x' * 65536) } }\nrescue SystemCallError\nend\n",
);

/// The most scratch space that workers of this process had in use at once.
#[derive(Clone, Default)]
struct Sampler(Arc<std::sync::Mutex<u64>>);

impl recurgent::observe::Observer for Sampler {
    fn event(&self, event: &recurgent::observe::Event) {
        if matches!(event.kind, recurgent::observe::EventKind::Ended { .. }) {
            let mut most = self.0.lock().unwrap();
            *most = (*most).max(scratch_in_use());
        }
    }
}

/// Of the processes under this one, each of which has a scratch space of its own.
fn scratch_in_use() -> u64 {
    let used = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent: u32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let parents_parent = std::fs::read_to_string(format!("/proc/{parent}/stat")).ok()?;
        let host: u32 = parents_parent.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let space = rustix::fs::statvfs(format!("/proc/{pid}/root/home/worker")).ok()?;
        let is_scratch = space.f_blocks * space.f_frsize == SCRATCH_MB << 20;
        (host == std::process::id() && is_scratch)
            .then(|| (space.f_blocks - space.f_bfree) * space.f_frsize)
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| used(entry.file_name().to_str()?.parse().ok()?)).sum()
}

#[test]
fn the_scratch_space_of_a_call_tree_is_bounded() {
    for language in Language::ALL {
        let (python, ruby) = FILLERS;
        let of = |python_end: &str, ruby_end: &str| match language {
            Language::Python => format!("{python}{python_end}"),
            Language::Ruby => format!("{ruby}{ruby_end}"),
        };
        let wide = of(
            "fill()\nresult = [delegate('filler', purpose='x').work(n).ok for n in range(40)]",
            "fill\n40.times.map { |n| delegate('filler', purpose: 'x').work(n).ok? }",
        );
        let deep = of(
            "fill()\nresult = delegate(f'level {len(args)}', purpose='x').work(*args, 1).ok",
            "fill\ndelegate(\"level #{args.size}\", purpose: 'x').work(*args, 1).ok?",
        );
        let mut model = Scripted::new()
            .with("wide.run", &wide)
            .with("filler.work", &of("fill()\nresult = args[0]", "fill\nargs[0]"))
            .with("deep.run", &deep);
        for level in 1..=DEPTH + 1 {
            model = model.with(&format!("level {level}.work"), &deep);
        }
        let sampler = Sampler::default();
        let state = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        for (key, value) in [
            ("state_dir", state.path().display().to_string()),
            ("worker_scratch_mb", SCRATCH_MB.to_string()),
            ("max_delegation_depth", DEPTH.to_string()),
        ] {
            config.set(key, &value).unwrap();
        }
        let builder = Runtime::builder(config).provider(Arc::new(model));
        let runtime = builder.observer(Box::new(sampler.clone())).build().unwrap();
        if runtime.workers().containment().tier < recurgent::worker::Tier::Namespaces {
            return; // scratch space is not private
        }
        for (role, args) in [("wide", 0), ("deep", 1)] {
            let outcome =
                runtime.agent(role).guest(language).build().unwrap().call("run", (args,)).unwrap();
            assert!(outcome.is_ok(), "{language:?}: {outcome:?}");
            let most = *sampler.0.lock().unwrap();
            assert!(most >= SCRATCH_MB << 20, "{language:?}: it was measured: {most}");
            let bound = ((DEPTH + 1) * SCRATCH_MB) << 20;
            assert!(most <= bound, "{language:?}: {role}: {} MB in use", most >> 20);
        }
    }
}
