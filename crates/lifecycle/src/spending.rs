//! What a call tree may spend on model calls: what one is allowed, what it reserves, what it used.
//!
//! Model calls run at the same time, so each takes the most it may use from the allowance before it starts and gives
//! back the rest when it ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::draft::{DraftFault, Nanodollars, SpentAllowance, Usage};
use crate::prompt::Prompt;
use crate::request::Allowance;

/// Bytes of prompt that are counted as one token, before the provider has counted them.
const BYTES_PER_TOKEN: usize = 3;
/// Fewer tokens than this hold no program: the allowance counts as spent.
const LEAST_OUTPUT_TOKENS: u64 = 256;

/// What a token costs that a service writes to its cache, by the price of one sent. Only Anthropic counts them; it
/// charges this much for a cache of five minutes, which is the one that is requested.
const CACHE_WRITE_RATE: f64 = 1.25;

/// Dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Sent.
    pub input: f64,
    /// Received.
    pub output: f64,
    /// Sent and served from the service's cache; as `input` unless it is set.
    pub cached: Option<f64>,
}

impl Price {
    /// What the tokens of some model calls cost.
    #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
    pub fn of(&self, usage: &Usage) -> Nanodollars {
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let written = usage.cache_written_tokens.min(usage.input_tokens - cached);
        let plain = usage.input_tokens - cached - written;
        let dollars = plain as f64 * self.input
            + written as f64 * self.input * CACHE_WRITE_RATE
            + cached as f64 * self.cached.unwrap_or(self.input)
            + usage.output_tokens as f64 * self.output;
        Nanodollars::from_usd(dollars / 1e6)
    }
}

/// What a provider's tokens cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pricing {
    /// Nothing: no service is asked.
    #[default]
    Free,
    /// So much.
    Known(Price),
    /// No price is configured for this model.
    Unknown,
}

impl Pricing {
    /// What the tokens of some model calls cost; `None`: nothing, or no price is configured.
    fn of(self, usage: &Usage) -> Option<Nanodollars> {
        match self {
            Self::Known(price) => Some(price.of(usage)),
            Self::Free | Self::Unknown => None,
        }
    }
}

/// What a tree has used, and what running model calls may still use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spent {
    model_calls: u32,
    usage: Usage,
    reserved_tokens: u64,
    reserved_cost: Nanodollars,
}

/// What one model call may use, taken from the allowance until it is known what it used.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// What is counted if the answer does not say what it used.
    guess: Usage,
    tokens: u64,
    cost: Nanodollars,
    /// Most tokens the answer may have; `None`: the provider's own limit.
    pub max_output_tokens: Option<u32>,
}

/// What the next model call would be.
#[derive(Debug, Clone, Copy)]
pub struct ModelCall<'a> {
    /// What is sent.
    pub prompt: &'a Prompt,
    /// Most tokens the provider answers with; 0: it does not count tokens.
    pub max_output_tokens: u32,
    /// What its tokens cost.
    pub pricing: Pricing,
}

impl Spent {
    /// Takes one model call from the allowance before anything is done for it.
    pub fn take_model_call(&mut self, allowance: &Allowance) -> Result<(), DraftFault> {
        let (made, limit) = (self.model_calls, allowance.model_calls);
        if made >= limit {
            let what = format!(
                "made {made} model calls and its allowance is {limit}; raise max_model_calls"
            );
            return Err(allowance_spent("model_calls", (json!(limit), json!(made)), &what));
        }
        self.model_calls += 1;
        Ok(())
    }

    /// Takes what the prompt and the longest answer may use; a tight allowance shortens the answer. A limit on the cost
    /// cannot be kept without a price.
    pub fn reserve(
        &mut self,
        allowance: &Allowance,
        call: &ModelCall<'_>,
    ) -> Result<Reservation, DraftFault> {
        if allowance.cost.is_some() && call.pricing == Pricing::Unknown {
            return Err(DraftFault::Rejected(
                "max_tree_cost_usd is set and no price is configured for this model; \
                 set price_input_per_mtok and price_output_per_mtok, or prices_file"
                    .to_owned(),
            ));
        }
        let input = ((call.prompt.system.len() + call.prompt.user.len()) / BYTES_PER_TOKEN) as u64;
        let output = self.affordable_tokens(allowance, call, input)?;
        let output = self.affordable_cost(allowance, call, input, output)?;
        let guess = Usage {
            input_tokens: input,
            output_tokens: LEAST_OUTPUT_TOKENS,
            cost: priced(call, input, LEAST_OUTPUT_TOKENS),
            ..Usage::default()
        };
        let (tokens, cost) = (input.saturating_add(output), cost(call, input, output));
        self.reserved_tokens = self.reserved_tokens.saturating_add(tokens);
        self.reserved_cost = self.reserved_cost.plus(cost);
        let max_output_tokens = u32::try_from(output).ok().filter(|_| call.max_output_tokens > 0);
        Ok(Reservation { guess, tokens, cost, max_output_tokens })
    }

    /// Output tokens that the allowance of tokens leaves.
    fn affordable_tokens(
        &self,
        allowance: &Allowance,
        call: &ModelCall<'_>,
        input: u64,
    ) -> Result<u64, DraftFault> {
        let longest = u64::from(call.max_output_tokens);
        let Some(limit) = allowance.tokens.filter(|_| longest > 0) else { return Ok(longest) };
        let used = self.usage.tokens().saturating_add(self.reserved_tokens);
        let left = limit.saturating_sub(used).saturating_sub(input);
        let least = longest.min(LEAST_OUTPUT_TOKENS);
        if left < least {
            let what = format!(
                "used {used} tokens, the next model call needs about {}, and its allowance is {limit}; raise max_tree_tokens",
                input + least
            );
            return Err(allowance_spent(
                "tokens",
                (json!(limit), json!(self.usage.tokens())),
                &what,
            ));
        }
        Ok(longest.min(left))
    }

    /// Output tokens that the allowance of money leaves, of at most `output`.
    fn affordable_cost(
        &self,
        allowance: &Allowance,
        call: &ModelCall<'_>,
        input: u64,
        mut output: u64,
    ) -> Result<u64, DraftFault> {
        let Some(limit) = allowance.cost else { return Ok(output) };
        let least = u64::from(call.max_output_tokens).min(LEAST_OUTPUT_TOKENS);
        let spent = self.usage.cost.unwrap_or_default();
        let used = spent.plus(self.reserved_cost);
        let left = limit.0.saturating_sub(used.0);
        // Halved until it fits: close enough, and right for any price.
        while output > least && cost(call, input, output).0 > left {
            output = (output / 2).max(least);
        }
        let next = cost(call, input, output);
        if next.0 > left {
            let what = format!(
                "cost ${:.6}, the next model call up to ${:.6}, and its allowance is ${:.6}; raise max_tree_cost_usd",
                used.usd(),
                next.usd(),
                limit.usd()
            );
            return Err(allowance_spent(
                "cost_usd",
                (json!(limit.usd()), json!(spent.usd())),
                &what,
            ));
        }
        Ok(output)
    }

    /// Counts what a model call used in place of what was reserved for it. `None`: it was not answered. An answer
    /// that does not say what it used is counted by its prompt, so that silence does not widen an allowance.
    pub fn settle(&mut self, reservation: &Reservation, usage: Option<Usage>) {
        let is_known = usage.is_none_or(|usage| usage.tokens() > 0);
        let is_guessed = reservation.max_output_tokens.is_some() && !is_known;
        let usage = if is_guessed { reservation.guess } else { usage.unwrap_or_default() };
        self.reserved_tokens = self.reserved_tokens.saturating_sub(reservation.tokens);
        self.reserved_cost = Nanodollars(self.reserved_cost.0.saturating_sub(reservation.cost.0));
        self.usage += usage;
    }
}

impl Allowance {
    /// The time a tree has left that has used this much; `None`: its time is not limited.
    pub fn time_left(&self, used: Duration) -> Result<Option<Duration>, DraftFault> {
        let Some(limit) = self.wall_time else { return Ok(None) };
        if let Some(left) = limit.checked_sub(used).filter(|left| !left.is_zero()) {
            return Ok(Some(left));
        }
        let (used, limit) = (used.as_secs_f64(), limit.as_secs_f64());
        let what =
            format!("taken {used:.1} s and its allowance is {limit:.1} s; raise max_tree_seconds");
        Err(allowance_spent("seconds", (json!(limit), json!(used)), &what))
    }
}

/// What the tokens of a model call cost, if they have a price.
fn priced(call: &ModelCall<'_>, input: u64, output: u64) -> Option<Nanodollars> {
    call.pricing.of(&Usage { input_tokens: input, output_tokens: output, ..Usage::default() })
}

fn cost(call: &ModelCall<'_>, input: u64, output: u64) -> Nanodollars {
    priced(call, input, output).unwrap_or_default()
}

/// The failure of a call tree that has spent an allowance.
pub(crate) fn allowance_spent(
    budget: &'static str,
    (limit, spent): (Value, Value),
    what: &str,
) -> DraftFault {
    let message = format!("this call tree has {what}");
    DraftFault::AllowanceSpent(Box::new(SpentAllowance { budget, limit, spent, message }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_on_the_cost_needs_a_price() {
        let prompt = Prompt { system: String::new(), user: String::new(), head: None };
        let limited = Allowance { cost: Some(Nanodollars(1)), ..Allowance::default() };
        let free = Price { input: 0.0, output: 0.0, cached: None };
        for (allowance, pricing, is_rejected) in [
            (&limited, Pricing::Unknown, true),
            (&limited, Pricing::Free, false),
            (&limited, Pricing::Known(free), false),
            (&Allowance::default(), Pricing::Unknown, false),
        ] {
            let call = ModelCall { prompt: &prompt, max_output_tokens: 9, pricing };
            let reserved = Spent::default().reserve(allowance, &call);
            let is_expected = matches!(reserved, Err(DraftFault::Rejected(_))) == is_rejected;
            assert!(is_expected, "{pricing:?}: {reserved:?}");
        }
    }

    #[test]
    fn a_tree_has_the_time_that_its_allowance_leaves() {
        let seconds = Duration::from_secs;
        let limited = Allowance { wall_time: Some(seconds(9)), ..Allowance::default() };
        assert_eq!(Allowance::default().time_left(seconds(99)), Ok(None));
        assert_eq!(limited.time_left(seconds(7)), Ok(Some(seconds(2))));
        for used in [9, 10] {
            let spent = limited.time_left(seconds(used));
            assert!(matches!(spent, Err(DraftFault::AllowanceSpent(_))), "{spent:?}");
        }
    }
}
