//! Workers that hang, die, flood the host or send wrong frames, with real interpreters and processes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue panics"
)]

mod alone;
mod asks;
mod blame;
#[expect(dead_code, reason = "the benchmark uses the rest")]
mod drive;
mod endings;
mod escapes;
mod groups;
mod hostile;
mod kept;
mod layers;
mod network;
mod packages;
mod results;
mod supervisor;

use std::thread;
use std::time::{Duration, Instant};

use drive::{Driver, Program, is_alive};
use lifecycle::dialect::Language;
use lifecycle::execution::{ReportEnding, WorkerFault};
use lifecycle::outcome::EndedBy;
use recurgent::guest::Done;
use serde_json::Value;

/// Far more than any program here needs, even on a busy machine, so that only a hang exceeds it.
const HANG_TIMEOUT: Duration = Duration::from_mins(2);

/// Programs that return their process id.
const PID: [(Language, &str); 2] =
    [(Language::Python, "import os\nresult = os.getpid()"), (Language::Ruby, "Process.pid")];

/// A program in both languages, and how it must end.
struct Case {
    name: &'static str,
    python: &'static str,
    ruby: &'static str,
    expect: fn(&Result<Done, WorkerFault>) -> bool,
}

fn check(cases: &[Case]) {
    let driver = Driver::new();
    for case in cases {
        for (language, code) in [(Language::Python, case.python), (Language::Ruby, case.ruby)] {
            for proven in [false, true] {
                let ended = driver.run(&Program { language, code, proven, ..Program::default() });
                assert!(
                    (case.expect)(&ended),
                    "{} in {language:?}, proven {proven}: {ended:#?}",
                    case.name
                );
            }
        }
    }
}

fn value(ended: &Result<Done, WorkerFault>) -> Option<&Value> {
    match ended {
        Ok(Done { ending: ReportEnding::Value(value), .. }) => Some(value),
        _ => None,
    }
}

fn number(digits: &str) -> Value {
    serde_json::from_str(digits).unwrap()
}

fn returned(ended: &Result<Done, WorkerFault>, expected: &Value) -> bool {
    value(ended) == Some(expected)
}

fn crashed_with_message(ended: &Result<Done, WorkerFault>, words: &str) -> bool {
    matches!(ended, Err(WorkerFault::Crashed { by: EndedBy::Program, detail }) if detail.contains(words))
}

/// Waits for a process to end; asserts that it does.
fn await_exit(pid: u32) {
    let start = Instant::now();
    while is_alive(pid) {
        assert!(start.elapsed() < HANG_TIMEOUT, "process {pid} is still alive");
        thread::sleep(Duration::from_millis(1));
    }
}
