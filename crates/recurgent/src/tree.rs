//! What a whole call tree shares: one allowance, one way to stop.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lifecycle::draft::{DraftFault, Nanodollars, Overdraft, Usage};
use lifecycle::execution::WorkerFault;
use lifecycle::prompt::Prompt;
use lifecycle::request::Allowance;
use serde_json::{Value, json};

use crate::guest::Cancellation;
use crate::provider::{Price, Pricing};

/// How often a waiting call looks whether it was cancelled.
const GLANCE: Duration = Duration::from_millis(25);
/// Bytes of prompt that are taken for one token, when tokens are reserved before anyone counted them.
const BYTES_PER_TOKEN: usize = 3;
/// Fewer tokens than this hold no program: the allowance counts as spent.
const LEAST_OUTPUT_TOKENS: u64 = 256;

/// Shared by a root call and every call under it.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    allowance: Allowance,
    spent: Arc<Mutex<Spent>>,
    started: Instant,
    pub(crate) cancellation: Cancellation,
}

/// What the tree has used, and what model calls under way may still use.
#[derive(Debug, Default)]
struct Spent {
    model_calls: u32,
    usage: Usage,
    reserved_tokens: u64,
    reserved_cost: Nanodollars,
}

/// What one model call may use, taken from the allowance until it is known what it used.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// What counts when an answer does not tell what it used.
    guess: Usage,
    tokens: u64,
    cost: Nanodollars,
    /// Most tokens the answer may have; `None`: the provider's own limit.
    pub(crate) max_output_tokens: Option<u32>,
}

impl Tree {
    pub(crate) fn new(allowance: Allowance, cancellation: Cancellation) -> Self {
        Self { allowance, spent: Arc::default(), started: Instant::now(), cancellation }
    }

    /// The same tree, seen by a child whose own allowance may be narrower.
    pub(crate) fn narrowed(&self, allowance: Allowance) -> Self {
        Self { allowance, ..self.clone() }
    }

    /// Takes one model call from the allowance before anything is done for it.
    pub(crate) fn reserve_model_call(&self) -> Result<(), DraftFault> {
        self.time_left()?;
        let limit = self.allowance.model_calls;
        let mut spent = self.spent();
        if spent.model_calls >= limit {
            let made = spent.model_calls;
            return Err(overdraft(
                "model_calls",
                (json!(limit), json!(made)),
                &format!(
                    "made {made} model calls and its allowance is {limit}; raise max_model_calls"
                ),
            ));
        }
        spent.model_calls += 1;
        Ok(())
    }

    /// Takes what the prompt and the longest answer may use; a tight allowance shortens the answer.
    pub(crate) fn reserve(
        &self,
        prompt: &Prompt,
        longest: u32,
        pricing: Pricing,
    ) -> Result<Reservation, DraftFault> {
        let input = ((prompt.system.len() + prompt.user.len()) / BYTES_PER_TOKEN) as u64;
        let mut output = u64::from(longest);
        let least = output.min(LEAST_OUTPUT_TOKENS);
        let mut spent = self.spent();
        if let Some(limit) = self.allowance.tokens.filter(|_| longest > 0) {
            let used = spent.usage.tokens().saturating_add(spent.reserved_tokens);
            output = output.min(limit.saturating_sub(used).saturating_sub(input));
            if output < least {
                return Err(overdraft(
                    "tokens",
                    (json!(limit), json!(spent.usage.tokens())),
                    &format!(
                        "used {used} tokens, the next model call needs about {}, and its allowance is {limit}; raise max_tree_tokens",
                        input + least
                    ),
                ));
            }
        }
        let price = self.price(pricing)?;
        let cost_of = |output: u64| {
            let usage = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
            price.map_or(Nanodollars(0), |price| price.of(&usage))
        };
        if let Some(limit) = self.allowance.cost {
            let used = spent.usage.cost.unwrap_or_default().plus(spent.reserved_cost);
            let left = limit.0.saturating_sub(used.0);
            // Halved, not solved for: near enough, and true for any price.
            while output > least && cost_of(output).0 > left {
                output = (output / 2).max(least);
            }
            if cost_of(output).0 > left {
                return Err(overdraft(
                    "cost_usd",
                    (json!(limit.usd()), json!(spent.usage.cost.unwrap_or_default().usd())),
                    &format!(
                        "cost ${:.6}, the next model call up to ${:.6}, and its allowance is ${:.6}; raise max_tree_cost_usd",
                        used.usd(),
                        cost_of(output).usd(),
                        limit.usd()
                    ),
                ));
            }
        }
        let guess = Usage {
            input_tokens: input,
            output_tokens: LEAST_OUTPUT_TOKENS,
            cost: price.map(|_| cost_of(LEAST_OUTPUT_TOKENS)),
            ..Usage::default()
        };
        let tokens = input.saturating_add(output);
        let cost = cost_of(output);
        spent.reserved_tokens = spent.reserved_tokens.saturating_add(tokens);
        spent.reserved_cost = spent.reserved_cost.plus(cost);
        let max_output_tokens = u32::try_from(output).ok().filter(|_| longest > 0);
        Ok(Reservation { guess, tokens, cost, max_output_tokens })
    }

    /// Money is counted only where prices are known.
    fn price(&self, pricing: Pricing) -> Result<Option<Price>, DraftFault> {
        match pricing {
            Pricing::Known(price) => Ok(Some(price)),
            Pricing::Unknown if self.allowance.cost.is_some() => Err(DraftFault::Rejected(
                "max_tree_cost_usd is set and nobody told what this model costs; \
                 set price_input_per_mtok and price_output_per_mtok, or prices_file"
                    .to_owned(),
            )),
            Pricing::Unknown | Pricing::Free => Ok(None),
        }
    }

    /// What a model call really used, in place of what was reserved for it. `None`: nobody answered. An
    /// answer that does not tell is counted by its prompt: silence does not widen an allowance.
    pub(crate) fn settle(&self, reservation: &Reservation, usage: Option<Usage>) {
        let is_told = usage.is_none_or(|usage| usage.tokens() > 0);
        let is_guessed = reservation.max_output_tokens.is_some() && !is_told;
        let usage = if is_guessed { reservation.guess } else { usage.unwrap_or_default() };
        let mut spent = self.spent();
        spent.reserved_tokens = spent.reserved_tokens.saturating_sub(reservation.tokens);
        spent.reserved_cost = Nanodollars(spent.reserved_cost.0.saturating_sub(reservation.cost.0));
        spent.usage += usage;
    }

    /// Time the tree still has; `None`: as long as it takes.
    pub(crate) fn time_left(&self) -> Result<Option<Duration>, DraftFault> {
        let Some(limit) = self.allowance.wall_time else { return Ok(None) };
        let used = self.started.elapsed();
        match limit.checked_sub(used).filter(|left| !left.is_zero()) {
            Some(left) => Ok(Some(left)),
            None => Err(overdraft(
                "seconds",
                (json!(limit.as_secs_f64()), json!(used.as_secs_f64())),
                &format!(
                    "taken {:.1} s and its allowance is {:.1} s; raise max_tree_seconds",
                    used.as_secs_f64(),
                    limit.as_secs_f64()
                ),
            )),
        }
    }

    /// Whether a program may run on.
    pub(crate) fn has_time(&self) -> Result<(), WorkerFault> {
        match self.time_left() {
            Err(DraftFault::AllowanceSpent(overdraft)) => {
                Err(WorkerFault::AllowanceSpent(overdraft))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// `limit`, or the tree's time if less is left; a moment when none is.
    pub(crate) fn within(&self, limit: Duration) -> Duration {
        match self.time_left() {
            Ok(left) => left.map_or(limit, |left| left.min(limit)),
            Err(_) => limit.min(GLANCE),
        }
    }

    /// Waits, with a little jitter so that many callers do not return at once.
    pub(crate) fn pause(&self, wait: Duration) -> Result<(), DraftFault> {
        let end =
            Instant::now() + wait.mul_f64(1.0 + f64::from(crate::identity::random_byte()) / 1024.0);
        loop {
            if self.cancellation.is_cancelled() {
                return Err(DraftFault::Cancelled);
            }
            let tree_left = self.time_left()?.unwrap_or(GLANCE);
            match end.checked_duration_since(Instant::now()) {
                None => return Ok(()),
                Some(left) => std::thread::sleep(left.min(GLANCE).min(tree_left)),
            }
        }
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overdraft(budget: &'static str, (limit, spent): (Value, Value), what: &str) -> DraftFault {
    let message = format!("this call tree has {what}");
    DraftFault::AllowanceSpent(Box::new(Overdraft { budget, limit, spent, message }))
}
