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

/// The exponential function, accurate to about seven digits, as arithmetic that can be vectorised.
#[inline(always)]
fn exp(number: f32) -> f32 {
    /// The logarithm of 2 in two parts: the first has few digits, so that its multiples are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    /// Beyond these the result is not a normal number.
    const RANGE: (f32, f32) = (-87.0, 88.0);
    /// Bits of the fraction of a number, and what its exponent is stored with.
    const FRACTION_BITS: u32 = 23;
    const BIAS: i32 = 127;
    let number = number.clamp(RANGE.0, RANGE.1);
    let power = (number * std::f32::consts::LOG2_E + 0.5).floor();
    let rest = number - power * LN_2[0] - power * LN_2[1];
    let series = 1.0 / 120.0 + rest * (1.0 / 720.0 + rest / 5040.0);
    let series = 0.5 + rest * (1.0 / 6.0 + rest * (1.0 / 24.0 + rest * series));
    let series = 1.0 + rest * (1.0 + rest * series);
    series * f32::from_bits(((power as i32 + BIAS) << FRACTION_BITS).cast_unsigned())
}

/// Turns each number `x` of `gate` into `x * sigmoid(x) * y`, with `y` from `up`.
pub(crate) fn gate(gate: &mut [f32], up: &[f32]) {
    vectorised(|| {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = *gate / (1.0 + exp(-*gate)) * up;
        }
    });
}

/// Turns scores into probabilities. Only fast inside [`vectorised`].
#[expect(clippy::inline_always, reason = "vector instructions are chosen by the caller")]
#[inline(always)]
pub(crate) fn softmax(scores: &mut [f32]) {
    let most = most(scores);
    for score in scores.iter_mut() {
        *score = exp(*score - most);
    }
    let share = sum(scores, |score| score).recip();
    for score in scores.iter_mut() {
        *score *= share;
    }
}

/// The logarithm of the sum of exponentials: what is subtracted from a score to get a log-probability.
pub(crate) fn log_sum_exp(scores: &[f32]) -> f32 {
    vectorised(|| {
        let most = most(scores);
        most + sum(scores, |score| exp(score - most)).ln()
    })
}

/// The greatest number. Only fast inside [`vectorised`].
#[expect(clippy::inline_always, reason = "vector instructions are chosen by the caller")]
#[inline(always)]
pub(crate) fn most(numbers: &[f32]) -> f32 {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut greatest = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (greatest, number) in greatest.iter_mut().zip(chunk) {
            *greatest = if *number > *greatest { *number } else { *greatest };
        }
    }
    greatest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// The sum of a function of numbers. Only fast inside [`vectorised`].
#[expect(clippy::inline_always, reason = "vector instructions are chosen by the caller")]
#[inline(always)]
fn sum(numbers: &[f32], value: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in chunks {
        for (sum, number) in sums.iter_mut().zip(chunk) {
            *sum += value(*number);
        }
    }
    sums.iter().sum::<f32>() + rest.iter().map(|number| value(*number)).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_accurate() {
        for step in -8000..8000 {
            let number = step as f32 / 100.0;
            let (ours, exact) = (exp(number), f64::from(number).exp());
            let error = (f64::from(ours) - exact).abs() / exact;
            assert!(error < 3e-7, "exp({number}) is {ours}, not {exact}");
        }
        assert!(exp(f32::NEG_INFINITY) < 1e-37);
    }

    #[test]
    fn probabilities_have_the_sum_one() {
        let scores: Vec<f32> = (0..77).map(|it| it as f32 / 7.0).collect();
        let mut shares = scores.clone();
        softmax(&mut shares);
        assert!((shares.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        let last = scores[76] - log_sum_exp(&scores);
        assert!((shares[76].ln() - last).abs() < 1e-5);
        assert!(
            (dot(&scores, &scores) - scores.iter().map(|it| it * it).sum::<f32>()).abs() < 0.01
        );
    }
}
