//! Environments that exist already.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lifecycle::dialect::Language;
use recurgent::Agent;
use serde_json::json;

use crate::drive::descendants;
use crate::fixture::{Fixture, MeasurementOptions, call, fail};
use crate::row::{Measurement, Unit};
use crate::timing::{float, median, timed};

const ROUNDS: usize = 300;
/// Longest time to find an existing environment.
const PATIENCE: Duration = Duration::from_secs(20);
/// Wait until earlier work has ended.
const SETTLED: Duration = Duration::from_millis(300);
/// The tests' package sources: each writes its files into a directory.
const WHEELS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/recurgent/tests/environments/wheels.py");
const GEMS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/recurgent/tests/environments/gems.rb");

/// The time from the request until the environment is found.
pub(super) fn hit(options: MeasurementOptions) -> Measurement {
    with_package(options, |fixture, _| {
        let once = || timed(&mut || found_again(fixture, options));
        let took = std::iter::repeat_with(once).take(options.rounds(ROUNDS)).collect();
        Measurement::without_floor(median(took), Unit::Seconds)
    })
}

fn found_again(fixture: &Fixture, options: MeasurementOptions) {
    let wanted = fixture.runtime.prepare("tester").dependency(package(options), "");
    let ticket = wanted.guest(options.language).start();
    ticket.await_ready(PATIENCE);
    let found = ticket.environment().unwrap_or_else(|| fail(&format!("{:?}", ticket.failure())));
    assert!(found.cache_hit, "it was made anew");
}

/// Processes that were started, as far as they can be observed: those that run, and the page faults of those that ended. The
/// child that a zygote forks for a program does not belong to its environment.
pub(super) fn processes(options: MeasurementOptions) -> Measurement {
    with_package(options, |fixture, agent| {
        let (before, ended) = (children(), faults_of_ended_children());
        for _ in 0..options.rounds(ROUNDS) {
            found_again(fixture, options);
            call(agent);
        }
        let has_ended = faults_of_ended_children() != ended;
        let started = children().difference(&before).count() + usize::from(has_ended);
        Measurement::without_floor(float(started), Unit::Processes)
    })
}

fn children() -> BTreeSet<u32> {
    let ours = |pid: &u32| parent(*pid) == Some(std::process::id());
    descendants().into_iter().filter(ours).collect()
}

/// Page faults of children that ended, which the kernel adds to their parent.
fn faults_of_ended_children() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(8).unwrap().parse().unwrap() // cminflt
}

/// The parent of a process, if the process still exists.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A warm agent whose program imports a package, by the real package manager from a source on loopback.
fn with_package(
    options: MeasurementOptions,
    measure: impl FnOnce(&Fixture, &mut Agent) -> Measurement,
) -> Measurement {
    let source = Source::open(options.language);
    let cache = tempfile::tempdir().unwrap();
    let settings = |config: &mut recurgent::config::Config| {
        config.set("source_mode", "internal_only").unwrap();
        config.set("cache_dir", cache.path().to_str().unwrap()).unwrap();
        config.set(options.pick("python_indexes", "gem_sources"), &source.url).unwrap();
    };
    let fixture = Fixture::with(options, settings, |builder| builder);
    let code = options
        .pick("import inner_part\nresult = inner_part.NAME", "require 'beta'\nBeta::VERSION");
    fixture.writes("tester.check", code, &json!([{"name": package(options)}]));
    let mut agent = fixture.warm_agent("tester");
    std::thread::sleep(SETTLED); // its spare is forked, its dead are buried
    measure(&fixture, &mut agent)
}

fn package(options: MeasurementOptions) -> &'static str {
    match options.language {
        Language::Python => "inner-part",
        Language::Ruby => "beta",
    }
}

/// The script that builds packages and the command that serves them.
pub(super) fn tools(language: Language) -> &'static [&'static str] {
    match language {
        Language::Python => &["python3", "uv"],
        Language::Ruby => &["ruby", "bundle", "python3"],
    }
}

/// A package server that ends when it is dropped.
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

/// Serves a directory and prints its port; ends when its standard input is closed.
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
