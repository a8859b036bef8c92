//! What an exchange with a worker costs, against the least it could cost in the same language.
//!
//! *F*: a bare loop (framed JSON, cached code) behind a socket. *K*: a bare fork, run and reap from a warm
//! interpreter. Ours and the floor take turns within one run, since small round trips are bimodal.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

#[path = "../tests/workers/drive.rs"]
#[expect(dead_code, clippy::panic, clippy::indexing_slicing, reason = "shared with the tests")]
mod drive;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use drive::{BOTH, Driver, Prepared, Program};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::dialect::Language;
use recurgent::config::Config;
use recurgent::guest::Answer;
use recurgent::provider::Scripted;
use recurgent::worker::{Tier, WorkerOptions};
use recurgent::{Agent, Runtime};
use serde_json::{Map, json};

const ROUNDS: usize = 2000;
const FORKS: usize = 300;
const COLD: usize = 15;
/// What a full store holds.
const TOOLS: usize = 500;
const ARTIFACTS: usize = 5_000;
const RECORDS: usize = 10_000;
/// Lets the next spare be forked, as the time a model takes would.
const BETWEEN_FORKS: Duration = Duration::from_millis(4);

const FRAME: &str = concat!(
    r#"{"op":"execute","ipc_version":1,"call_id":"call-1","role":"tester","method_name":"check","#,
    r#""code_digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","args":[1],"#,
    r#""kwargs":{"n":1},"context":{"version":0,"base":0,"set":{},"unset":[]},"limits":{"frame_bytes":33554432}}"#,
    "\n"
);

fn loop_script(language: Language) -> &'static str {
    match language {
        Language::Python => {
            "import json, socket\nf = socket.socket(fileno=0).makefile('rwb')\ncode = compile('result = args[0] + 1', 'p', 'exec')\n\
             for line in f:\n    m = json.loads(line); g = {'args': m['args']}; exec(code, g)\n    \
             f.write(json.dumps({'op': 'done', 'status': 'ok', 'value': g['result']}).encode() + b'\\n'); f.flush()"
        }
        Language::Ruby => {
            "require 'json'\nr = IO.for_fd(0, 'rb'); w = IO.for_fd(0, 'wb'); w.sync = true\nbody = ->(args) { args[0] + 1 }\n\
             while (l = r.gets); m = JSON.parse(l); w.write(JSON.generate({op: 'done', status: 'ok', value: body.(m['args'])}), \"\\n\"); end"
        }
    }
}

fn fork_script(language: Language) -> &'static str {
    match language {
        Language::Python => {
            "import json, os, socket, gc\nf = socket.socket(fileno=0).makefile('rwb')\ngc.freeze()\n\
             for line in f:\n    pid = os.fork()\n    if pid == 0:\n        \
             m = json.loads(line); g = {'args': m['args']}; exec(compile('result = args[0] + 1', 'p', 'exec'), g)\n        \
             f.write(json.dumps({'op': 'done', 'status': 'ok', 'value': g['result']}).encode() + b'\\n'); f.flush(); os._exit(0)\n    \
             os.waitpid(pid, 0); f.write(b'reaped\\n'); f.flush()"
        }
        Language::Ruby => {
            "require 'json'\nr = IO.for_fd(0, 'rb'); w = IO.for_fd(0, 'wb'); w.sync = true\n\
             while (l = r.gets)\n pid = fork { m = JSON.parse(l); args = m['args']; v = eval('args[0] + 1')\n\
             w.write(JSON.generate({op: 'done', status: 'ok', value: v}), \"\\n\"); exit!(0) }\n\
             Process.wait(pid); w.write(\"reaped\\n\"); end"
        }
    }
}

/// A bare interpreter behind a socket.
struct Bare {
    child: Child,
    stream: BufReader<UnixStream>,
}

impl Bare {
    fn start(driver: &Driver, language: Language, script: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let flag = if language == Language::Python { "-c" } else { "-e" };
        let child = Command::new(driver.interpreter(language))
            .args([flag, script])
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        Self { child, stream: BufReader::new(ours) }
    }

    fn exchange(&mut self, lines: usize) {
        self.stream.get_mut().write_all(FRAME.as_bytes()).unwrap();
        let mut line = String::new();
        for _ in 0..lines {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Medians of two things done in turn.
fn interleaved(
    rounds: usize,
    mut ours: impl FnMut(),
    mut floor: impl FnMut(),
) -> (Duration, Duration) {
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        times.0.push(timed(&mut ours));
        times.1.push(timed(&mut floor));
    }
    let warm_up = rounds / 10;
    (median(times.0.split_off(warm_up)), median(times.1.split_off(warm_up)))
}

fn timed(action: &mut impl FnMut()) -> Duration {
    let begun = Instant::now();
    action();
    begun.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn report(what: &str, language: Language, (ours, floor): (Duration, Duration)) {
    let ratio = ours.as_secs_f64() / floor.as_secs_f64();
    let (ours, floor) = (ours.as_secs_f64() * 1e6, floor.as_secs_f64() * 1e6);
    println!(
        "{what:<28} {:<7} {ours:>9.1} µs   floor {floor:>9.1} µs   × {ratio:.2}",
        language.name()
    );
}

fn code(language: Language) -> &'static str {
    match language {
        Language::Python => "result = args[0] + 1",
        Language::Ruby => "args[0] + 1",
    }
}

fn megabyte() -> Context {
    let mut context = Context::default();
    let set = Map::from_iter([("big".to_owned(), json!(vec!["0123456789abcdef"; 60_000]))]);
    context.apply(ContextChanges { set, unset: Vec::new() });
    context
}

fn warm(driver: &Driver, language: Language) {
    let mut bare = Bare::start(driver, language, loop_script(language));
    let program = |context| Program {
        language,
        code: code(language),
        proven: true,
        args: vec![json!(1)],
        context,
        ..Program::default()
    };
    for (what, context) in
        [("warm call", Context::default()), ("warm call, 1 MB context", megabyte())]
    {
        let program = program(context);
        let prepared = Prepared::new(&program);
        let medians =
            interleaved(ROUNDS, || drop(driver.exchange(&prepared).unwrap()), || bare.exchange(1));
        report(what, language, medians);
    }
}

fn asks(driver: &Driver, language: Language) {
    let mut bare = Bare::start(driver, language, loop_script(language));
    let code = match language {
        Language::Python => "for _ in range(100): content('x')",
        Language::Ruby => "100.times { content('x') }",
    };
    let program = Program { language, code, proven: true, ..Program::default() };
    let (ours, floor) = interleaved(
        ROUNDS / 50,
        || drop(driver.ask(&program, |_| Answer::Value(json!(1))).unwrap()),
        || (0..100).for_each(|_| bare.exchange(1)),
    );
    report("ask (one of 100)", language, (ours / 100, floor / 100));
}

fn fresh(driver: &Driver, language: Language) {
    let mut bare = Bare::start(driver, language, fork_script(language));
    let program =
        Program { language, code: code(language), args: vec![json!(1)], ..Program::default() };
    let prepared = Prepared::new(&program);
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..FORKS {
        times.0.push(timed(&mut || drop(driver.exchange(&prepared).unwrap())));
        thread::sleep(BETWEEN_FORKS);
        times.1.push(timed(&mut || bare.exchange(2)));
        thread::sleep(BETWEEN_FORKS);
    }
    report("fresh attempt, spare ready", language, (median(times.0), median(times.1)));
    let medians =
        interleaved(FORKS, || drop(driver.exchange(&prepared).unwrap()), || bare.exchange(2));
    report("fresh attempts, back to back", language, medians);
}

/// A runtime with a store of its own, whose model answers everything with one program.
fn runtime(dir: &Path, language: Language) -> Runtime {
    let mut config = Config::load().unwrap();
    config.set("state_dir", dir.to_str().unwrap()).unwrap();
    config.set("guest", language.name()).unwrap();
    let script = Scripted::new().with("*", code(language));
    Runtime::builder(config).provider(Arc::new(script)).build().unwrap()
}

/// A stored call over a full store against one over an empty store (held to 1.2).
fn full_store(language: Language) {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut full, mut empty] = dirs.each_ref().map(|dir| {
        let mut agent = runtime(dir.path(), language).agent("tester").build().unwrap();
        assert!(agent.call("check", (1,)).unwrap().is_ok());
        agent
    });
    for tool in 0..TOOLS {
        let name = format!("tool {tool}");
        let mut agent = full.delegate(&name).purpose("stand here").build().unwrap();
        for method in 0..ARTIFACTS / TOOLS {
            assert!(agent.call(&format!("check_{method}"), (1,)).unwrap().is_ok());
        }
    }
    let call = |agent: &mut Agent| assert!(agent.call("check", (1,)).unwrap().is_ok());
    (0..RECORDS).for_each(|_| call(&mut full));
    let medians = interleaved(ROUNDS, || call(&mut full), || call(&mut empty));
    report("stored call, full store", language, medians);
}

/// A stored program's call from the agent's surface: select, execute, judge, commit, log.
fn whole_call(driver: &Driver, language: Language) {
    let mut bare = Bare::start(driver, language, loop_script(language));
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime(dir.path(), language);
    for (what, context) in
        [("stored call, end to end", Context::default()), ("same, 1 MB context", megabyte())]
    {
        let mut agent = runtime.agent("tester").build().unwrap();
        agent.remember(context.to_object()).unwrap();
        let mut call = || {
            agent.set("small", 1).unwrap();
            assert!(agent.call("check", (1,)).unwrap().is_ok());
        };
        call();
        report(what, language, interleaved(ROUNDS, call, || bare.exchange(1)));
    }
}

/// The strongest sandbox against the weakest, in turn: what containment costs (held to 1.2, 1.5, 1.4).
fn sandboxed(language: Language) {
    let contained = Driver::new();
    let process = |options: &mut WorkerOptions| options.layers = Tier::Process.layers();
    let bare = Driver::with(process);
    for (what, proven) in [("sandboxed: warm call", true), ("sandboxed: fork", false)] {
        let args = vec![json!(1)];
        let program =
            Program { language, code: code(language), proven, args, ..Program::default() };
        let prepared = Prepared::new(&program);
        let rounds = if proven { ROUNDS } else { FORKS };
        let medians = interleaved(
            rounds,
            || drop(contained.exchange(&prepared).unwrap()),
            || drop(bare.exchange(&prepared).unwrap()),
        );
        report(what, language, medians);
    }
    let cold = |driver: Driver| {
        drop(driver.interpreter(language)); // found once per host
        let _ = driver.containment();
        driver
    };
    let mut contained: Vec<Driver> = (0..COLD).map(|_| cold(Driver::new())).collect();
    let mut bare: Vec<Driver> = (0..COLD).map(|_| cold(Driver::with(process))).collect();
    let program =
        Program { language, code: code(language), args: vec![json!(1)], ..Program::default() };
    let prepared = Prepared::new(&program);
    let start = |drivers: &mut Vec<Driver>| {
        let driver = drivers.pop().unwrap();
        let took = timed(&mut || drop(driver.exchange(&prepared).unwrap()));
        drop(driver);
        took
    };
    let times: Vec<(Duration, Duration)> =
        (0..COLD).map(|_| (start(&mut contained), start(&mut bare))).collect();
    let (ours, floor) = times.into_iter().unzip();
    report("sandboxed: cold start", language, (median(ours), median(floor)));
}

fn main() {
    let driver = Driver::new();
    for language in BOTH {
        whole_call(&driver, language);
        full_store(language);
        warm(&driver, language);
        asks(&driver, language);
        fresh(&driver, language);
        sandboxed(language);
    }
}
