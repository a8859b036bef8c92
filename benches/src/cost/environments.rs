//! Packages that are there already.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lifecycle::dialect::Language;
use recurgent::Agent;
use serde_json::json;

use crate::drive::descendants;
use crate::pace::{float, median, timed};
use crate::row::{Reading, Unit};
use crate::stage::{Stage, Trial, call, fail};

const ROUNDS: usize = 300;
/// Longest an environment that is there may take to be found.
const PATIENCE: Duration = Duration::from_secs(20);
/// After this nothing goes on that began before.
const SETTLED: Duration = Duration::from_millis(300);
/// The tests' package sources: each writes its files into a directory.
const WHEELS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/recurgent/tests/environments/wheels.py");
const GEMS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/recurgent/tests/environments/gems.rb");

/// From asking for it until it is there.
pub(super) fn hit(trial: Trial) -> Reading {
    with_package(trial, |stage, _| {
        let once = || timed(&mut || found_again(stage, trial));
        let took = std::iter::repeat_with(once).take(trial.rounds(ROUNDS)).collect();
        Reading::alone(median(took), Unit::Seconds)
    })
}

fn found_again(stage: &Stage, trial: Trial) {
    let wanted = stage.runtime.prepare("tester").dependency(package(trial), "");
    let ticket = wanted.guest(trial.language).start();
    ticket.await_ready(PATIENCE);
    let found = ticket.environment().unwrap_or_else(|| fail(&format!("{:?}", ticket.failure())));
    assert!(found.cache_hit, "it was made anew");
}

/// As far as processes leave traces: those there are now, and what those that ended did. The child that a
/// zygote forks for a program is no part of its environment.
pub(super) fn processes(trial: Trial) -> Reading {
    with_package(trial, |stage, agent| {
        let (before, ended) = (children(), faults_of_ended_children());
        for _ in 0..trial.rounds(ROUNDS) {
            found_again(stage, trial);
            call(agent);
        }
        let has_ended = faults_of_ended_children() != ended;
        let started = children().difference(&before).count() + usize::from(has_ended);
        Reading::alone(float(started), Unit::Processes)
    })
}

fn children() -> BTreeSet<u32> {
    let ours = |pid: &u32| parent(*pid) == Some(std::process::id());
    descendants().into_iter().filter(ours).collect()
}

/// Every process has some page faults, and leaves them to the one that waits for it.
fn faults_of_ended_children() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(8).unwrap().parse().unwrap() // cminflt
}

/// Who started a process, if it is still there.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A warm agent whose program imports a package, by the real package manager from a source on loopback.
fn with_package(trial: Trial, measure: impl FnOnce(&Stage, &mut Agent) -> Reading) -> Reading {
    let source = Source::open(trial.language);
    let cache = tempfile::tempdir().unwrap();
    let settings = |config: &mut recurgent::config::Config| {
        config.set("source_mode", "internal_only").unwrap();
        config.set("cache_dir", cache.path().to_str().unwrap()).unwrap();
        config.set(trial.pick("python_indexes", "gem_sources"), &source.url).unwrap();
    };
    let stage = Stage::with(trial, settings, |builder| builder);
    let code =
        trial.pick("import inner_part\nresult = inner_part.NAME", "require 'beta'\nBeta::VERSION");
    stage.writes("tester.check", code, &json!([{"name": package(trial)}]));
    let mut agent = stage.warm_agent("tester");
    std::thread::sleep(SETTLED); // its spare is forked, its dead are buried
    measure(&stage, &mut agent)
}

fn package(trial: Trial) -> &'static str {
    match trial.language {
        Language::Python => "inner-part",
        Language::Ruby => "beta",
    }
}

/// What makes packages, installs and serves them.
pub(super) fn tools(language: Language) -> &'static [&'static str] {
    match language {
        Language::Python => &["python3", "uv"],
        Language::Ruby => &["ruby", "bundle", "python3"],
    }
}

/// Serves packages as long as it lives.
struct Source {
    server: Child,
    url: String,
    _files: tempfile::TempDir,
}

impl Source {
    fn open(language: Language) -> Self {
        let files = tempfile::tempdir().unwrap();
        let (tool, script, path) = match language {
            Language::Python => ("python3", WHEELS, "simple/"),
            Language::Ruby => ("ruby", GEMS, ""),
        };
        let made = Command::new(tool).arg(script).arg(files.path()).status().unwrap();
        assert!(made.success(), "no packages could be made");
        let (server, port) = serve(files.path());
        Self { server, url: format!("http://127.0.0.1:{port}/{path}"), _files: files }
    }
}

/// Serves a directory and tells its port; ends with whoever holds its input.
const SERVER: &str = "\
import functools, http.server, sys, threading
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
";

/// A server of a directory, and its port.
fn serve(files: &Path) -> (Child, String) {
    let mut server = Command::new("python3")
        .args(["-c", SERVER])
        .arg(files)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    (server, port.trim().to_owned())
}

impl Drop for Source {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}
