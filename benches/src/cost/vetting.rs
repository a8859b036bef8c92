//! Parsing a program and checking every guardrail.

use std::hint::black_box;

use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::program::vet;

use crate::fixture::MeasurementOptions;
use crate::program::{generated, inputs, request, typical};
use crate::row::{Measurement, Unit};
use crate::timing::{median, timed};

const ROUNDS: usize = 400;

pub(super) fn five_kilobytes(options: MeasurementOptions) -> Measurement {
    let request = request(options.language, inputs());
    let source = typical(options.language);
    assert!((5_000..5_200).contains(&source.len()), "the program has {} bytes", source.len());
    let once = || {
        let mut program = Some(generated(options.language, source));
        let mut vetted = None;
        let took = timed(&mut || {
            let program = program.take();
            vetted = black_box(program.map(|p| vet(p, &request, &[], &GuardrailPolicy::default())));
        });
        // Vetting a program that is rejected takes less time.
        assert!(vetted.is_some_and(|vetted| vetted.is_ok()), "the program was rejected");
        took
    };
    let took = std::iter::repeat_with(once).take(options.rounds(ROUNDS)).collect();
    Measurement::without_floor(median(took), Unit::Seconds)
}
