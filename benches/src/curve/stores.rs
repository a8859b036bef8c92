//! Curves over the contents of the store and the log while a stored program answers.

use std::fs::OpenOptions;
use std::io::Write as _;

use super::Point;
use crate::cost::BLOCK;
use crate::fill;
use crate::fixture::{Fixture, MeasurementOptions, call};
use crate::timing::{Effort, by_turns, float};

const ROUNDS: usize = 400;

pub(super) fn tools(options: MeasurementOptions) -> Vec<Point> {
    growing(options, &[1, 10, 100, 500, 1000], |fixture, have, want| {
        for tool in have..want {
            let tool = fixture.agent("tester").delegate(&format!("tool {tool}"));
            tool.purpose("fill the store").build().unwrap();
        }
    })
}

pub(super) fn artifacts(options: MeasurementOptions) -> Vec<Point> {
    let by_tools = growing(options, &[1, 10, 100, 500], |fixture, have, want| {
        fill::add_tools(fixture, have..want);
    });
    by_tools.into_iter().map(|point| Point { x: point.x * float(fill::METHODS), ..point }).collect()
}

pub(super) fn log(options: MeasurementOptions) -> Vec<Point> {
    growing(options, &[100_000, 1_000_000, 10_000_000, 50_000_000], |fixture, have, want| {
        let line = format!("{{\"filler\":\"{}\"}}\n", "x".repeat(987));
        let mut log = OpenOptions::new().append(true).open(fixture.log()).unwrap();
        log.write_all(line.repeat((want - have) / line.len()).as_bytes()).unwrap();
    })
}

/// Each agent has a history of its own, so calls of this one make it grow.
pub(super) fn history(options: MeasurementOptions) -> Vec<Point> {
    let fixture = Fixture::new(options);
    let mut ours = fixture.warm_agent("tester");
    let mut have = 0;
    let point = |records: &usize| {
        (have..*records).for_each(|_| call(&mut ours));
        have = *records;
        // A new agent each time, since measuring adds to its history.
        let mut floor = fixture.warm_agent("tester");
        let [long, short] = [&ours, &floor].map(|agent| agent.history(usize::MAX).unwrap().len());
        assert!(long >= *records && short < 10, "histories of {long} and {short} records");
        let (ours, floor) = (|| call(&mut ours), || call(&mut floor));
        let measurement = fixture.stored(|| by_turns(options.rounds(ROUNDS), BLOCK, ours, floor));
        Point::at(*records, measurement)
    };
    steps(options, &[10, 100, 1000, 10_000]).iter().map(point).collect()
}

/// A stored call compared with one of a runtime where nothing grows. `grow` gets the present and the wanted amount.
fn growing(
    options: MeasurementOptions,
    sizes: &[usize],
    grow: impl Fn(&Fixture, usize, usize),
) -> Vec<Point> {
    let (full, empty) = (Fixture::new(options), Fixture::new(options));
    let (mut ours, mut floor) = (full.warm_agent("tester"), empty.warm_agent("tester"));
    let mut have = 0;
    let point = |size: &usize| {
        grow(&full, have, *size);
        have = *size;
        let (ours, floor) = (|| call(&mut ours), || call(&mut floor));
        let measured = || by_turns(options.rounds(ROUNDS), BLOCK, ours, floor);
        let measurement = full.stored(|| empty.stored(measured));
        Point::at(*size, measurement)
    };
    steps(options, sizes).iter().map(point).collect()
}

/// All points, or the first few of a quick run.
pub(super) fn steps(options: MeasurementOptions, sizes: &[usize]) -> &[usize] {
    match options.effort {
        Effort::Full => sizes,
        Effort::Quick => sizes.get(..3).unwrap_or(sizes),
    }
}
