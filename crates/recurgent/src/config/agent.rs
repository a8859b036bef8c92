//! What can be tuned per agent.

use std::time::Duration;

use lifecycle::attempt::Budgets;
use lifecycle::dialect::Language;
use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::request::Allowance;

use crate::grants::Grants;

use super::{Config, ConfigFault};

/// What one agent runs with. A delegated child inherits all of it and can only narrow its allowance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentOptions {
    /// Which model to ask.
    pub model: String,
    /// The language its programs are written in.
    pub language: Language,
    /// Retries per lane.
    pub budgets: Budgets,
    /// Which rules hold, and how hard. A child cannot change them.
    pub guardrails: GuardrailPolicy,
    /// Time a model may take.
    pub provider_timeout: Duration,
    /// Time a program may take.
    pub execution_timeout: Duration,
    /// What a call tree may use.
    pub allowance: Allowance,
    /// What its programs may reach. A child cannot change it.
    pub grants: Grants,
    /// Log prompts and memory too.
    pub debug: bool,
}

/// Keys that can also be set per agent, by `AgentBuilder::option` and by `delegate` in a program.
pub const AGENT_KEYS: &[&str] = &[
    "model",
    "guest",
    "max_generation_attempts",
    "guardrail_recovery_budget",
    "execution_repair_budget",
    "fresh_outcome_repair_budget",
    "provider_timeout_seconds",
    "execution_timeout_seconds",
    "max_delegation_depth",
    "max_model_calls",
    "asks_per_call",
    "max_tree_tokens",
    "max_tree_cost_usd",
    "max_tree_seconds",
    "debug",
];

impl AgentOptions {
    /// Sets one option by its key. An allowance can be narrowed, never widened.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigFault> {
        let mut config = Config::defaults();
        config.set(name, value)?;
        let given = config.agent_options();
        match name {
            "model" => self.model = given.model,
            "guest" => self.language = given.language,
            "max_generation_attempts" => self.budgets.generation = given.budgets.generation,
            "guardrail_recovery_budget" => self.budgets.guardrail = given.budgets.guardrail,
            "execution_repair_budget" => self.budgets.execution = given.budgets.execution,
            "fresh_outcome_repair_budget" => self.budgets.outcome = given.budgets.outcome,
            "provider_timeout_seconds" => self.provider_timeout = given.provider_timeout,
            "execution_timeout_seconds" => self.execution_timeout = given.execution_timeout,
            "max_delegation_depth" => {
                self.allowance.depth = self.allowance.depth.min(given.allowance.depth);
            }
            "max_model_calls" => {
                self.allowance.model_calls =
                    self.allowance.model_calls.min(given.allowance.model_calls);
            }
            "asks_per_call" => {
                self.allowance.asks_per_call =
                    self.allowance.asks_per_call.min(given.allowance.asks_per_call);
            }
            "max_tree_tokens" => {
                self.allowance.tokens = narrower(self.allowance.tokens, given.allowance.tokens);
            }
            "max_tree_cost_usd" => {
                self.allowance.cost = narrower(self.allowance.cost, given.allowance.cost);
            }
            "max_tree_seconds" => {
                self.allowance.wall_time =
                    narrower(self.allowance.wall_time, given.allowance.wall_time);
            }
            "debug" => self.debug = given.debug,
            _ => return Err(ConfigFault::NotOfAnAgent { key: name.to_owned() }),
        }
        Ok(())
    }
}

/// The lesser of two limits; none is the widest.
fn narrower<T: Ord>(ours: Option<T>, given: Option<T>) -> Option<T> {
    match (ours, given) {
        (Some(ours), Some(given)) => Some(ours.min(given)),
        (limit, None) | (None, limit) => limit,
    }
}
