//! Loops over rows of numbers, compiled for the vector instructions of the processor that runs them.

use pulp::Arch;

/// Numbers that one step of a loop handles; the compiler turns an array of this size into vector registers.
const LANES: usize = 16;

/// Runs a loop with the widest vector instructions of this processor.
#[inline]
pub(crate) fn vectorised<T>(work: impl FnOnce() -> T) -> T {
    Arch::new().dispatch(work)
}

/// The sum of products. Only fast inside [`vectorised`].
#[expect(clippy::inline_always, reason = "vector instructions are chosen by the caller")]
#[inline(always)]
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let (left, left_rest) = left.as_chunks::<LANES>();
    let (right, right_rest) = right.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (left, right) in left.iter().zip(right) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    sums.iter().sum::<f32>() + rest
}

/// Adds `factor * row` to `sum`. Only fast inside [`vectorised`].
#[expect(clippy::inline_always, reason = "vector instructions are chosen by the caller")]
#[inline(always)]
pub(crate) fn add_scaled(sum: &mut [f32], factor: f32, row: &[f32]) {
    for (sum, number) in sum.iter_mut().zip(row) {
        *sum += factor * number;
    }
}

/// Adds `row` to `sum`.
pub(crate) fn add(sum: &mut [f32], row: &[f32]) {
    vectorised(|| add_scaled(sum, 1.0, row));
}

/// Scales each row of `weights.len()` numbers to a mean square of one, then by the weights.
pub(crate) fn rms_norm(rows: &[f32], weights: &[f32], epsilon: f32) -> Vec<f32> {
    let mut output = rows.to_vec();
    for row in output.chunks_exact_mut(weights.len().max(1)) {
        vectorised(|| {
            let mean_square = dot(row, row) / weights.len() as f32;
            let scale = (mean_square + epsilon).sqrt().recip();
            for (number, weight) in row.iter_mut().zip(weights) {
                *number *= scale * weight;
            }
        });
    }
    output
}

/// Turns each number `x` of `gate` into `x * sigmoid(x) * y`, with `y` from `up`.
pub(crate) fn gate(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = *gate / (1.0 + (-*gate).exp()) * up;
    }
}

/// Turns scores into probabilities. Scores must not be empty.
pub(crate) fn softmax(scores: &mut [f32]) {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - most).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// The logarithm of the sum of exponentials: what is subtracted from a score to get a log-probability.
pub(crate) fn log_sum_exp(scores: &[f32]) -> f32 {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = scores.iter().map(|score| (score - most).exp()).sum();
    most + sum.ln()
}
