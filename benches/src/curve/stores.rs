//! What lies in the store and the log while a stored program answers.

use std::fs::OpenOptions;
use std::io::Write as _;

use super::Point;
use crate::cost::BLOCK;
use crate::fill;
use crate::pace::{Effort, by_turns, float};
use crate::stage::{Stage, Trial, call};

const ROUNDS: usize = 400;

pub(super) fn tools(trial: Trial) -> Vec<Point> {
    growing(trial, &[1, 10, 100, 500, 1000], |stage, have, want| {
        for tool in have..want {
            let tool = stage.agent("tester").delegate(&format!("tool {tool}"));
            tool.purpose("stand here").build().unwrap();
        }
    })
}

pub(super) fn artifacts(trial: Trial) -> Vec<Point> {
    let by_tools = growing(trial, &[1, 10, 100, 500], |stage, have, want| {
        fill::add_tools(stage, have..want);
    });
    by_tools.into_iter().map(|point| Point { x: point.x * float(fill::METHODS), ..point }).collect()
}

pub(super) fn log(trial: Trial) -> Vec<Point> {
    growing(trial, &[100_000, 1_000_000, 10_000_000, 50_000_000], |stage, have, want| {
        let line = format!("{{\"filler\":\"{}\"}}\n", "x".repeat(987));
        let mut log = OpenOptions::new().append(true).open(stage.log()).unwrap();
        log.write_all(line.repeat((want - have) / line.len()).as_bytes()).unwrap();
    })
}

/// The history is the agent's own, so it grows by its calls.
pub(super) fn history(trial: Trial) -> Vec<Point> {
    let stage = Stage::new(trial);
    let mut ours = stage.warm_agent("tester");
    let mut have = 0;
    let point = |records: &usize| {
        (have..*records).for_each(|_| call(&mut ours));
        have = *records;
        // A new one each time: its history grows as well while it is measured.
        let mut floor = stage.warm_agent("tester");
        let [long, short] = [&ours, &floor].map(|agent| agent.history(usize::MAX).unwrap().len());
        assert!(long >= *records && short < 10, "histories of {long} and {short} records");
        let (ours, floor) = (|| call(&mut ours), || call(&mut floor));
        let reading = stage.stored(|| by_turns(trial.rounds(ROUNDS), BLOCK, ours, floor));
        Point::at(*records, reading)
    };
    steps(trial, &[10, 100, 1000, 10_000]).iter().map(point).collect()
}

/// A stored call beside one of a runtime where nothing grows. `grow` is told how much there is and how much
/// there is to be.
fn growing(trial: Trial, sizes: &[usize], grow: impl Fn(&Stage, usize, usize)) -> Vec<Point> {
    let (full, empty) = (Stage::new(trial), Stage::new(trial));
    let (mut ours, mut floor) = (full.warm_agent("tester"), empty.warm_agent("tester"));
    let mut have = 0;
    let point = |size: &usize| {
        grow(&full, have, *size);
        have = *size;
        let (ours, floor) = (|| call(&mut ours), || call(&mut floor));
        let measured = || by_turns(trial.rounds(ROUNDS), BLOCK, ours, floor);
        let reading = full.stored(|| empty.stored(measured));
        Point::at(*size, reading)
    };
    steps(trial, sizes).iter().map(point).collect()
}

/// All of them, or the first few.
pub(super) fn steps(trial: Trial, sizes: &[usize]) -> &[usize] {
    match trial.effort {
        Effort::Full => sizes,
        Effort::Quick => sizes.get(..3).unwrap_or(sizes),
    }
}
