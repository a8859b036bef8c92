//! What a call tree may spend on model calls: what one is allowed, what it reserves, what it used.
//!
//! Model calls run at the same time, so each takes the most it may use from the allowance before it starts and gives
//! back the rest when it ends.

use serde_json::{Value, json};

use crate::draft::{DraftFault, Nanodollars, SpentAllowance, Usage};
use crate::prompt::Prompt;
use crate::request::Allowance;

/// Bytes of prompt that are counted as one token, before the provider has counted them.
const BYTES_PER_TOKEN: usize = 3;
/// Fewer tokens than this hold no program: the allowance counts as spent.
const LEAST_OUTPUT_TOKENS: u64 = 256;

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
#[derive(Clone, Copy)]
pub struct ModelCall<'a> {
    /// What is sent.
    pub prompt: &'a Prompt,
    /// Most tokens the provider answers with; 0: it does not count tokens.
    pub max_output_tokens: u32,
    /// What a usage costs; `None`: nothing, or no price is needed.
    pub cost_of: Option<&'a dyn Fn(&Usage) -> Nanodollars>,
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

    /// Takes what the prompt and the longest answer may use; a tight allowance shortens the answer.
    pub fn reserve(
        &mut self,
        allowance: &Allowance,
        call: &ModelCall<'_>,
    ) -> Result<Reservation, DraftFault> {
        let input = ((call.prompt.system.len() + call.prompt.user.len()) / BYTES_PER_TOKEN) as u64;
        let output = self.affordable_tokens(allowance, call, input)?;
        let output = self.affordable_cost(allowance, call, input, output)?;
        let cost_of = |output: u64| cost(call, input, output);
        let guess = Usage {
            input_tokens: input,
            output_tokens: LEAST_OUTPUT_TOKENS,
            cost: call.cost_of.map(|_| cost_of(LEAST_OUTPUT_TOKENS)),
            ..Usage::default()
        };
        let (tokens, cost) = (input.saturating_add(output), cost_of(output));
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

impl std::fmt::Debug for ModelCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelCall")
            .field("prompt", &self.prompt)
            .field("max_output_tokens", &self.max_output_tokens)
            .field("has_price", &self.cost_of.is_some())
            .finish()
    }
}

fn cost(call: &ModelCall<'_>, input: u64, output: u64) -> Nanodollars {
    let usage = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
    call.cost_of.map_or(Nanodollars(0), |cost_of| cost_of(&usage))
}

/// The failure of a call tree that has spent an allowance.
pub fn allowance_spent(
    budget: &'static str,
    (limit, spent): (Value, Value),
    what: &str,
) -> DraftFault {
    let message = format!("this call tree has {what}");
    DraftFault::AllowanceSpent(Box::new(SpentAllowance { budget, limit, spent, message }))
}
