//! New programs, each in its own sandboxed child.

use std::sync::{Arc, Mutex, PoisonError};

use lifecycle::event::{Event, EventKind};
use recurgent::observe::Observer;
use serde_json::Value;

use crate::bare::BareMode;
use crate::fixture::{Fixture, MeasurementOptions, call, call_method, fail};
use crate::row::Measurement;
use crate::timing::{compare, pause, timed};

const ROUNDS: usize = 300;

/// Measures the first call of a method, whose program is new.
pub(super) fn program(options: MeasurementOptions) -> Measurement {
    let fixture = Fixture::new(options);
    let mut bare = fixture.bare(BareMode::Fork);
    let mut pairs = Vec::new();
    for round in 0..=options.rounds(ROUNDS) {
        let role = format!("tester {round}");
        let code = format!("{} + {round}", options.one_line());
        fixture.writes(&format!("{role}.check"), &code, &Value::Array(Vec::new()));
        let mut agent = fixture.agent(&role);
        pause();
        let ours = timed(&mut || call(&mut agent));
        pause();
        pairs.push((ours, timed(&mut || bare.exchange())));
    }
    assert_eq!(fixture.model.asked().len(), pairs.len(), "every program is new");
    pairs.remove(0); // booted the interpreter
    compare(&pairs)
}

/// Measures the time from the end of a rejected program to the start of the next one. Both programs read the same clock.
pub(super) fn next_attempt(options: MeasurementOptions) -> Measurement {
    let last_message = Arc::<Mutex<String>>::default();
    let observer = RejectionObserver(Arc::clone(&last_message));
    let fixture = Fixture::with(options, |_| {}, |builder| builder.observer(Box::new(observer)));
    let mut bare = fixture.bare(BareMode::Fork);
    let mut pairs = Vec::new();
    for round in 0..=options.rounds(ROUNDS) {
        let role = format!("tester {round}");
        let rejected = options.pick(
            "import time\nraise ValueError(str(time.monotonic_ns()))",
            "raise Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond).to_s",
        );
        let next = options.pick(
            "import time\nresult = time.monotonic_ns()",
            "Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)",
        );
        for code in [rejected, next] {
            fixture.writes(&format!("{role}.check"), code, &Value::Array(Vec::new()));
        }
        let mut agent = fixture.agent(&role);
        pause();
        let began = call_method(&mut agent, "check").as_f64().unwrap_or(f64::NAN);
        let ended = nanoseconds(&last_message.lock().unwrap_or_else(PoisonError::into_inner));
        pause();
        pairs.push(((began - ended) / 1e9, timed(&mut || bare.exchange())));
    }
    assert_eq!(fixture.model.asked().len(), 2 * pairs.len(), "every call has two attempts");
    pairs.remove(0); // booted the interpreter
    compare(&pairs)
}

/// An observer that keeps the last message of a rejected program.
struct RejectionObserver(Arc<Mutex<String>>);

impl Observer for RejectionObserver {
    fn event(&self, event: &Event) {
        if let EventKind::RolledBack { message, .. } = &event.kind {
            message.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// The time in a message: its longest number.
fn nanoseconds(message: &str) -> f64 {
    let numbers = message.split(|c: char| !c.is_ascii_digit());
    let longest = numbers.max_by_key(|digits| digits.len()).unwrap_or_default();
    longest.parse().unwrap_or_else(|_| fail(&format!("no time in {message:?}")))
}
