//! Calls that a stored program answers.

use recurgent::Agent;
use serde_json::{Map, Value, json};

use crate::bare::BareMode;
use crate::fill;
use crate::fixture::{Fixture, MeasurementOptions, call};
use crate::row::Measurement;
use crate::timing::{by_turns, on_one_core};

const ROUNDS: usize = 2000;
/// Calls in a row per turn, where both take about the same time.
pub(crate) const BLOCK: usize = 20;

/// The contents of a full store; each tool has ten programs.
const TOOLS: usize = 500;
const RECORDS: usize = 10_000;

/// Call by call: the floor finds caches and cores as a call leaves them.
pub(super) fn end_to_end(options: MeasurementOptions) -> Measurement {
    against_loop(options, 1)
}

/// Many in a row, so that the floor has its caches to itself.
pub(super) fn hot(options: MeasurementOptions) -> Measurement {
    against_loop(options, BLOCK)
}

fn against_loop(options: MeasurementOptions, each: usize) -> Measurement {
    on_one_core();
    let fixture = Fixture::new(options);
    let mut agent = fixture.warm_agent("tester");
    let mut bare = fixture.bare(BareMode::Loop);
    fixture
        .stored(|| by_turns(options.rounds(ROUNDS), each, || call(&mut agent), || bare.exchange()))
}

pub(super) fn full_store(options: MeasurementOptions) -> Measurement {
    let (full, empty) = (Fixture::new(options), Fixture::new(options));
    let (mut ours, mut floor) = (full.warm_agent("tester"), empty.warm_agent("tester"));
    fill::add_tools(&full, 0..options.rounds(TOOLS));
    (0..options.rounds(RECORDS)).for_each(|_| call(&mut ours));
    let records = ours.history(usize::MAX).unwrap().len();
    assert!(records >= options.rounds(RECORDS), "the history holds {records} records");
    let measured =
        || by_turns(options.rounds(ROUNDS), BLOCK, || call(&mut ours), || call(&mut floor));
    full.stored(|| empty.stored(measured))
}

pub(super) fn big_context(options: MeasurementOptions) -> Measurement {
    let fixture = Fixture::new(options);
    let (mut big, mut small) = (fixture.warm_agent("big"), fixture.warm_agent("small"));
    big.remember(sized(1_000_000)).unwrap();
    let (big, small) = (|| call_after_change(&mut big), || call_after_change(&mut small));
    fixture.stored(|| by_turns(options.rounds(ROUNDS), BLOCK, big, small))
}

/// A call of an agent in whose memory one small key has changed.
pub(crate) fn call_after_change(agent: &mut Agent) {
    let was = agent.get("small").and_then(|value| value.as_u64()).unwrap_or_default();
    agent.set("small", was + 1).unwrap();
    call(agent);
}

/// A memory of about this number of bytes.
pub(crate) fn sized(bytes: usize) -> Map<String, Value> {
    const ITEM: &str = "0123456789abc"; // 16 bytes with quotes and comma
    Map::from_iter([("big".to_owned(), json!(vec![ITEM; bytes / 16]))])
}
