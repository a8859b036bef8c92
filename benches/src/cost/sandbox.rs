//! What containment costs: the strongest sandbox beside the weakest.

use recurgent::worker::{Tier, WorkerOptions};
use serde_json::json;

use super::stored::BLOCK;
use crate::drive::{Driver, Prepared, Program};
use crate::pace::{by_turns, compare, on_one_core, timed};
use crate::row::Reading;
use crate::stage::Trial;

const WARM_ROUNDS: usize = 2000;
const FORK_ROUNDS: usize = 300;
const COLD_ROUNDS: usize = 21;

pub(super) fn warm(trial: Trial) -> Reading {
    on_one_core();
    let program = Program { proven: true, ..one_line(trial) };
    both(trial.rounds(WARM_ROUNDS), BLOCK, &program)
}

/// Back to back, so that every child is forked while it is waited for.
pub(super) fn fork(trial: Trial) -> Reading {
    both(trial.rounds(FORK_ROUNDS), 1, &one_line(trial))
}

pub(super) fn cold(trial: Trial) -> Reading {
    let program = one_line(trial);
    let prepared = Prepared::new(&program);
    let start = |driver: Driver| {
        let _ = (driver.interpreter(trial.language), driver.containment()); // found once per host
        timed(&mut || drop(driver.exchange(&prepared).unwrap()))
    };
    let pairs: Vec<(f64, f64)> = (0..trial.rounds(COLD_ROUNDS))
        .map(|_| (start(Driver::new()), start(Driver::with(unsandboxed))))
        .collect();
    compare(&pairs)
}

fn both(rounds: usize, each: usize, program: &Program<'_>) -> Reading {
    let (ours, floor) = (Driver::new(), Driver::with(unsandboxed));
    let prepared = Prepared::new(program);
    let exchange = |driver: &Driver| drop(driver.exchange(&prepared).unwrap());
    by_turns(rounds, each, || exchange(&ours), || exchange(&floor))
}

fn unsandboxed(options: &mut WorkerOptions) {
    options.layers = Tier::Process.layers();
}

fn one_line(trial: Trial) -> Program<'static> {
    Program {
        language: trial.language,
        code: trial.one_line(),
        args: vec![json!(1)],
        ..Program::default()
    }
}
