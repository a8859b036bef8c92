//! The cost of the sandbox: the strongest tier compared with the weakest.

use std::collections::BTreeSet;

use recurgent::guest::TurnEvent;
use recurgent::worker::WorkerTurn;
use recurgent::worker::{Tier, WorkerOptions};
use serde_json::json;

use super::stored::BLOCK;
use crate::drive::{Driver, Prepared, Program};
use crate::fixture::{MeasurementOptions, fail};
use crate::row::Measurement;
use crate::timing::{by_turns, compare, on_one_core, timed};

const WARM_ROUNDS: usize = 2000;
const FORK_ROUNDS: usize = 300;
const COLD_ROUNDS: usize = 21;

pub(super) fn warm(options: MeasurementOptions) -> Measurement {
    let (measurement, workers) =
        both(options.rounds(WARM_ROUNDS), &Program { proven: true, ..one_line(options) });
    assert_eq!(workers, [1, 1], "each side has one warm worker");
    measurement
}

/// Back to back on one core, so that the time of every child is included: sandboxed children are forked
/// ahead of need and reaped later, others are not.
pub(super) fn fork(options: MeasurementOptions) -> Measurement {
    let rounds = options.rounds(FORK_ROUNDS);
    let (measurement, workers) = both(rounds, &one_line(options));
    assert!(workers.iter().all(|count| *count >= rounds), "every program has a child of its own");
    measurement
}

/// What exchanges cost on one core, and how many workers each side had.
fn both(rounds: usize, program: &Program<'_>) -> (Measurement, [usize; 2]) {
    on_one_core();
    let prepared = Prepared::new(program);
    let (ours, floor) = (sandboxed(), unsandboxed());
    let (mut our_workers, mut floor_workers) = (BTreeSet::new(), BTreeSet::new());
    let exchange = |driver: &Driver, workers: &mut BTreeSet<_>| {
        workers.insert(driver.exchange(&prepared).unwrap().worker.pid);
    };
    let measurement = by_turns(
        rounds,
        BLOCK,
        || exchange(&ours, &mut our_workers),
        || exchange(&floor, &mut floor_workers),
    );
    (measurement, [our_workers.len(), floor_workers.len()])
}

pub(super) fn cold(options: MeasurementOptions) -> Measurement {
    let program = one_line(options);
    let start = |driver: Driver| {
        let _ = (driver.interpreter(options.language), driver.containment()); // found once per host
        let mut turn = None;
        let took = timed(&mut || turn = Some(answered(&driver, &program)));
        drop(turn);
        took
    };
    let round = |_| (start(sandboxed()), start(unsandboxed()));
    compare(&(0..options.rounds(COLD_ROUNDS)).map(round).collect::<Vec<_>>())
}

/// A program that has answered. Work after the answer is not included.
fn answered(driver: &Driver, program: &Program<'_>) -> WorkerTurn {
    let mut turn = driver.start(program);
    match turn.listen() {
        Ok(TurnEvent::Done(_)) => turn,
        other => fail(&format!("it did not answer: {other:?}")),
    }
}

fn sandboxed() -> Driver {
    let driver = Driver::new();
    let reached = driver.containment();
    assert!(reached.reaches(Tier::Landlock), "this host contains nothing: {:?}", reached.missing);
    driver
}

fn unsandboxed() -> Driver {
    let driver =
        Driver::with(|options: &mut WorkerOptions| options.layers = Tier::Process.layers());
    assert_eq!(driver.containment().tier, Tier::Process, "the floor is sandboxed");
    driver
}

fn one_line(options: MeasurementOptions) -> Program<'static> {
    Program {
        language: options.language,
        code: options.one_line(),
        args: vec![json!(1)],
        ..Program::default()
    }
}
