//! Times two operations in turns.
//!
//! Small round trips are bimodal: a wake-up on the same core takes a few microseconds, on another one some
//! tens. So ours and its floor take turns, a block of each, and only what ran side by side is compared.

use std::time::{Duration, Instant};

use crate::row::{Measurement, Quantity, Unit};

/// The share of rounds that are discarded at the start.
const WARM_UP: usize = 10;

/// The number of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Enough rounds for meaningful numbers.
    Full,
    /// A few rounds, to check that everything works.
    Quick,
}

impl Effort {
    /// The given number of rounds, or a few.
    pub(crate) fn rounds(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => (full / 20).clamp(2, 20),
        }
    }
}

/// Restricts this process and its children to one core. Otherwise a round trip of some tens of microseconds depends on
/// the cores that the scheduler chooses.
pub(crate) fn on_one_core() {
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).unwrap();
}

/// Restricts this process and its children to this number of cores, since a promise for two cores is measured on two.
pub(crate) fn on_cores(most: usize) {
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let mut some = rustix::thread::CpuSet::new();
    let may = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
    may.take(most).for_each(|core| some.set(core));
    rustix::thread::sched_setaffinity(None, &some).unwrap();
}

/// Runs both in turns, `each` times in a row: the medians, and the median ratio of a block to the block next to it.
pub(crate) fn by_turns(
    rounds: usize,
    each: usize,
    mut ours: impl FnMut(),
    mut floor: impl FnMut(),
) -> Measurement {
    let block = |action: &mut dyn FnMut()| median((0..each).map(|_| timed(action)).collect());
    let pairs: Vec<(f64, f64)> =
        (0..rounds.div_ceil(each)).map(|_| (block(&mut ours), block(&mut floor))).collect();
    compare(pairs.get(pairs.len() / WARM_UP..).unwrap_or_default())
}

/// The result of a paired measurement.
pub(crate) fn compare(pairs: &[(f64, f64)]) -> Measurement {
    let seconds = |values: Vec<f64>| Quantity::new(median(values), Unit::Seconds);
    Measurement {
        ours: seconds(pairs.iter().map(|(ours, _)| *ours).collect()),
        floor: Some(seconds(pairs.iter().map(|(_, floor)| *floor).collect())),
        ratio: Some(median(pairs.iter().map(|(ours, floor)| ours / floor).collect())),
    }
}

/// The seconds that an operation takes.
pub(crate) fn timed(action: &mut dyn FnMut()) -> f64 {
    let begun = Instant::now();
    action();
    begun.elapsed().as_secs_f64()
}

pub(crate) fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// A quantile; NaN if there are no values.
pub(crate) fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get(nearest(share * float(last))).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
fn nearest(place: f64) -> usize {
    place.round() as usize
}

/// Waits as long as spare workers need to start; a real model takes longer.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(4));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_compared_side_by_side() {
        // The machine is half as fast half of the time; the ratio must not change.
        let measurement = compare(&[(4.0, 2.0), (8.0, 4.0), (4.0, 2.0), (8.0, 4.0), (9.0, 2.0)]);
        assert_eq!(measurement.ratio, Some(2.0));
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!((quantile(hundred, 0.99) - 99.0).abs() < 0.1);
        assert!(median(Vec::new()).is_nan());
    }
}
