//! What a running program asks of the host.

use serde_json::Value;

use crate::bare::Habit;
use crate::pace::{compare, float, on_one_core, timed};
use crate::row::Reading;
use crate::stage::{Stage, Trial, call, call_method};

const ROUNDS: usize = 60;
/// Asks of one call, so that the call around them can be subtracted.
const ASKS: usize = 200;

pub(super) fn runtime_context(trial: Trial) -> Reading {
    asks(
        trial,
        trial.pick(
            "held = delegate('helper', purpose='be held')\nfor _ in range(N): held.runtime_context()\nresult = args[0]",
            "held = delegate('helper', purpose: 'be held')\nN.times { held.runtime_context }\nargs[0]",
        ),
    )
}

pub(super) fn content(trial: Trial) -> Reading {
    asks(
        trial,
        trial.pick(
            "ref = context['conversation_history'][-1]['outcome_summary']['content_ref']\n\
             for _ in range(N): content(ref)\nresult = args[0]",
            "ref = context[:conversation_history][-1]['outcome_summary']['content_ref']\n\
             N.times { content(ref) }\nargs[0]",
        ),
    )
}

/// A stored call that asks against one that does not, per ask; and as many exchanges of the floor.
fn asks(trial: Trial, code: &str) -> Reading {
    on_one_core();
    let stage = Stage::new(trial);
    for (key, count) in [("asker.ask", ASKS), ("asker.idle", 0)] {
        let code = code.replace('N', &count.to_string());
        stage.writes(key, &code, &Value::Array(Vec::new()));
    }
    let mut agent = stage.agent("asker");
    call(&mut agent); // leaves a result to refer to
    let mut bare = stage.bare(Habit::Loop);
    let count = float(ASKS);
    let mut pairs = Vec::new();
    for _ in 0..=trial.rounds(ROUNDS) {
        let idle = timed(&mut || drop(call_method(&mut agent, "idle")));
        let asking = timed(&mut || drop(call_method(&mut agent, "ask")));
        let floor = timed(&mut || (0..ASKS).for_each(|_| bare.exchange()));
        pairs.push(((asking - idle) / count, floor / count));
    }
    pairs.remove(0); // stored the programs
    compare(&pairs)
}
