//! Curves over the parts of a call.

use serde_json::json;

use super::Point;
use super::stores::steps;
use crate::cost::{BLOCK, agents, call_after_change, rate, sized};
use crate::fixture::{Fixture, MeasurementOptions, call};
use crate::timing::{by_turns, compare};

const ROUNDS: usize = 400;
const DELEGATIONS: usize = 40;
const TURNS: usize = 3;

pub(super) fn context(options: MeasurementOptions) -> Vec<Point> {
    let fixture = Fixture::new(options);
    let mut floor = fixture.warm_agent("tester");
    floor.remember(sized(SMALL)).unwrap();
    let point = |bytes: &usize| {
        let mut ours = fixture.warm_agent("tester");
        ours.remember(sized(*bytes)).unwrap();
        let (ours, floor) = (|| call_after_change(&mut ours), || call_after_change(&mut floor));
        Point::at(*bytes, fixture.stored(|| by_turns(options.rounds(ROUNDS), BLOCK, ours, floor)))
    };
    steps(options, &[SMALL, 10_000, 100_000, 1_000_000]).iter().map(point).collect()
}

const SMALL: usize = 1_000;

pub(super) fn code(options: MeasurementOptions) -> Vec<Point> {
    let fixture = Fixture::new(options);
    let sizes = steps(options, &[100, 1_000, 10_000, 100_000]);
    for bytes in sizes {
        fixture.writes(
            &format!("program {bytes}.check"),
            &long_program(options, *bytes),
            &json!([]),
        );
    }
    let mut floor = fixture.warm_agent("program 100");
    let point = |bytes: &usize| {
        let mut ours = fixture.warm_agent(&format!("program {bytes}"));
        let (ours, floor) = (|| call(&mut ours), || call(&mut floor));
        Point::at(*bytes, fixture.stored(|| by_turns(options.rounds(ROUNDS), BLOCK, ours, floor)))
    };
    sizes.iter().map(point).collect()
}

/// Functions without callers, followed by the one line.
fn long_program(options: MeasurementOptions, bytes: usize) -> String {
    let function = |n: usize| {
        let text = options.pick("def step_N(x):\n    return x * N\n", "def step_N(x) = x * N\n");
        text.replace('N', &n.to_string())
    };
    let mut text = String::new();
    for n in 1.. {
        let next = function(n);
        if text.len() + next.len() + options.one_line().len() > bytes {
            break;
        }
        text.push_str(&next);
    }
    text + options.one_line()
}

pub(super) fn concurrency(options: MeasurementOptions) -> Vec<Point> {
    let fixture = Fixture::new(options);
    let mut alone = agents(&fixture, 1);
    let point = |count: &usize| {
        let mut crowd = agents(&fixture, *count);
        let mut turn = || (1.0 / rate(options, &mut crowd), 1.0 / rate(options, &mut alone));
        let pairs: Vec<(f64, f64)> = fixture.stored(|| (0..TURNS).map(|_| turn()).collect());
        Point::at(*count, compare(&pairs))
    };
    steps(options, &[1, 2, 4, 8, 16, 32, 64]).iter().map(point).collect()
}

pub(super) fn depth(options: MeasurementOptions) -> Vec<Point> {
    let fixture = Fixture::new(options);
    let deepest = usize::from(fixture.runtime.config().agent_options().allowance.depth);
    for level in 0..deepest {
        let below = level + 1;
        let code = options
            .pick(
                "result = delegate('level N', purpose='pass it on').check(args[0]).value",
                "delegate('level N', purpose: 'pass it on').check(args[0]).value",
            )
            .replace('N', &below.to_string());
        // The last level is for the model's usual answer, which delegates nothing.
        fixture.writes(&format!("level {level}.check"), &code, &json!([]));
    }
    let levels: Vec<usize> = (0..=deepest).collect();
    let mut floor = fixture.warm_agent(&format!("level {deepest}"));
    let point = |levels: &usize| {
        let mut ours = fixture.warm_agent(&format!("level {}", deepest - levels));
        let (ours, floor) = (|| call(&mut ours), || call(&mut floor));
        Point::at(*levels, fixture.stored(|| by_turns(options.rounds(DELEGATIONS), 5, ours, floor)))
    };
    steps(options, &levels).iter().map(point).collect()
}
