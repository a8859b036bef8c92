//! Chooses the next token from scores.

use crate::numeric;

/// Tokens beyond the most probable ones are never sampled: their share is noise, and sorting fewer is fast.
const MAX_CANDIDATES: usize = 256;

/// A score that is this much below the greatest, in units of the temperature, has a probability of less than 1e-6.
const NEGLIGIBLE: f32 = 14.0;

/// How tokens are chosen. A temperature of zero takes the most probable one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SamplingRule {
    pub(crate) temperature: f32,
    pub(crate) top_p: f32,
}

/// A token that was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ChosenToken {
    pub(crate) token: u32,
    /// The logarithm of its probability under the model, before temperature.
    pub(crate) log_probability: f32,
}

/// A stream of random numbers that a seed determines (`SplitMix64`).
#[derive(Debug, Clone)]
pub(crate) struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// The `index`-th stream of a seed.
    pub(crate) fn new(seed: u64, index: usize) -> Self {
        let mut random = Self { state: seed };
        let start = random.next();
        Self { state: start ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from zero to one.
    fn fraction(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }
}

/// Chooses a token. Those that `is_allowed` refuses are never chosen; if it refuses all, none is.
pub(crate) fn choose(
    scores: &[f32],
    rule: SamplingRule,
    random: &mut SeededRandom,
    is_allowed: impl Fn(u32) -> bool,
) -> Option<ChosenToken> {
    let floor = numeric::vectorised(|| numeric::most(scores)) - rule.temperature * NEGLIGIBLE;
    let above = |floor: f32| -> Vec<(u32, f32)> {
        let all = (0..).zip(scores.iter().copied());
        all.filter(|(token, score)| *score >= floor && is_allowed(*token)).collect()
    };
    let mut candidates = above(floor);
    if candidates.is_empty() {
        candidates = above(f32::NEG_INFINITY);
    }
    candidates.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    candidates.truncate(MAX_CANDIDATES);
    let chosen = if rule.temperature > 0.0 {
        sample(&candidates, rule, random.fraction())
    } else {
        candidates.first()
    };
    let total = numeric::log_sum_exp(scores);
    chosen.map(|(token, score)| ChosenToken { token: *token, log_probability: score - total })
}

/// The candidate at this fraction of the probability that temperature and top-p leave.
fn sample(candidates: &[(u32, f32)], rule: SamplingRule, fraction: f32) -> Option<&(u32, f32)> {
    let mut shares: Vec<f32> = candidates.iter().map(|it| it.1 / rule.temperature).collect();
    numeric::softmax(&mut shares);
    let mut sum = 0.0;
    let kept = 1 + shares
        .iter()
        .take_while(|share| {
            sum += **share;
            sum < rule.top_p
        })
        .count();
    let kept = kept.min(shares.len());
    let total: f32 = shares.iter().take(kept).sum();
    let mut left = fraction * total;
    let index = shares.iter().take(kept).position(|share| {
        left -= share;
        left < 0.0
    });
    candidates.get(index.unwrap_or(kept.checked_sub(1)?))
}
