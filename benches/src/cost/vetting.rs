//! Reading a program and holding it to every rule.

use std::hint::black_box;

use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::program::vet;

use crate::pace::{median, timed};
use crate::program::{inputs, parsed, request, typical};
use crate::row::{Reading, Unit};
use crate::stage::Trial;

const ROUNDS: usize = 400;

pub(super) fn five_kilobytes(trial: Trial) -> Reading {
    let request = request(trial.language, inputs());
    let once = || {
        let mut program = Some(parsed(trial.language, typical(trial.language)));
        timed(&mut || {
            let program =
                program.take().map(|p| vet(p, &request, &[], &GuardrailPolicy::default()));
            let _ = black_box(program);
        })
    };
    let took = std::iter::repeat_with(once).take(trial.rounds(ROUNDS)).collect();
    Reading::alone(median(took), Unit::Seconds)
}
