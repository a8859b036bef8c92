//! What a running program asks of the host.

use serde_json::Value;

use crate::bare::BareMode;
use crate::fixture::{Fixture, MeasurementOptions, call, call_method};
use crate::row::Measurement;
use crate::timing::{compare, float, on_one_core, timed};

const ROUNDS: usize = 60;
/// Asks of one call, so that the call around them can be subtracted.
const ASKS: usize = 200;

pub(super) fn runtime_context(options: MeasurementOptions) -> Measurement {
    asks(
        options,
        options.pick(
            "held = delegate('helper', purpose='be held')\nfor _ in range(COUNT): held.runtime_context()\nresult = args[0]",
            "held = delegate('helper', purpose: 'be held')\nCOUNT.times { held.runtime_context }\nargs[0]",
        ),
    )
}

pub(super) fn content(options: MeasurementOptions) -> Measurement {
    asks(
        options,
        options.pick(
            "for _ in range(COUNT): content('REFERENCE')\nresult = args[0]",
            "COUNT.times { content('REFERENCE') }\nargs[0]",
        ),
    )
}

/// A stored call that asks against one that does not, per ask; and as many exchanges of the floor.
fn asks(options: MeasurementOptions, code: &str) -> Measurement {
    on_one_core();
    let fixture = Fixture::new(options);
    let mut agent = fixture.agent("asker");
    call(&mut agent);
    let history = agent.history(1).unwrap();
    let record = history.first().unwrap();
    let reference = record.pointer("/outcome_summary/content_ref").and_then(Value::as_str).unwrap();
    for (key, count) in [("asker.gather", ASKS), ("asker.idle", 0)] {
        let code = code.replace("COUNT", &count.to_string()).replace("REFERENCE", reference);
        fixture.writes(key, &code, &Value::Array(Vec::new()));
    }
    let mut bare = fixture.bare(BareMode::Loop);
    let count = float(ASKS);
    let mut pairs = Vec::new();
    for _ in 0..=options.rounds(ROUNDS) {
        let idle = timed(&mut || drop(call_method(&mut agent, "idle")));
        let asking = timed(&mut || drop(call_method(&mut agent, "gather")));
        let floor = timed(&mut || (0..ASKS).for_each(|_| bare.exchange()));
        pairs.push(((asking - idle) / count, floor / count));
    }
    assert_eq!(fixture.model.asked().len(), 3, "stored calls ask no model");
    pairs.remove(0); // stored the programs
    compare(&pairs)
}
