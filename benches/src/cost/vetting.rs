//! Parsing a program and checking every guardrail.

use std::hint::black_box;

use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::program::vet;

use crate::fixture::Trial;
use crate::pace::{median, timed};
use crate::program::{inputs, parsed, request, typical};
use crate::row::{Reading, Unit};

const ROUNDS: usize = 400;

pub(super) fn five_kilobytes(trial: Trial) -> Reading {
    let request = request(trial.language, inputs());
    let source = typical(trial.language);
    assert!((5_000..5_200).contains(&source.len()), "the program has {} bytes", source.len());
    let once = || {
        let mut program = Some(parsed(trial.language, source));
        let mut vetted = None;
        let took = timed(&mut || {
            let program = program.take();
            vetted = black_box(program.map(|p| vet(p, &request, &[], &GuardrailPolicy::default())));
        });
        // Vetting a program that is rejected takes less time.
        assert!(vetted.is_some_and(|vetted| vetted.is_ok()), "the program was rejected");
        took
    };
    let took = std::iter::repeat_with(once).take(trial.rounds(ROUNDS)).collect();
    Reading::alone(median(took), Unit::Seconds)
}
