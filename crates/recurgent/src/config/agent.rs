//! The settings that can differ from agent to agent.

use std::time::Duration;

use lifecycle::attempt::Budgets;
use lifecycle::dialect::Language;
use lifecycle::draft::Nanodollars;
use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::request::Allowance;
use serde_json::Value;

use super::table::SettingsLayer;
use super::value::Written;
use super::{ConfigFault, SettingOrigin, checked, parse_into};
use crate::grants::{Grants, ToolGrant};
use crate::provider::ModelName;

/// What one agent runs with. A delegated child inherits all of it; a program can only narrow limits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct AgentOptions {
    /// Which model to ask.
    pub model: ModelName,
    /// The language its programs are written in.
    pub language: Language,
    /// Retries by kind of failure.
    pub budgets: Budgets,
    /// Which guardrails end a call. A child cannot change them.
    pub guardrails: GuardrailPolicy,
    /// Time a model may take.
    pub provider_timeout: Duration,
    /// Time a program may take.
    pub execution_timeout: Duration,
    /// What a call tree may use.
    pub allowance: Allowance,
    /// What its programs may reach. A child cannot change it.
    pub grants: Grants,
    /// Tools from outside that its programs may call. A child can only have fewer.
    pub tools: ToolGrant,
    /// Time one call of such a tool may take.
    pub tool_timeout: Duration,
    /// How its programs may ask a model about data.
    pub infer: InferOptions,
    /// Whether a model may be asked. A child cannot change it.
    pub generate: bool,
    /// Whether a model may widen a stored program to arguments it was not written for.
    pub widen: bool,
    /// Log prompts and memory too.
    pub debug: bool,
}

/// How programs may ask a model about data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferOptions {
    /// Which model; `None`: the agent's.
    pub model: Option<ModelName>,
    /// Retries after an answer that cannot be used.
    pub retries: u32,
    /// Model calls of one run. A child can only lower it.
    pub max_calls: u32,
}

/// One setting that an agent may have of its own: its name, and how a value of it changes the options. A part of the
/// allowance can be narrowed, never widened.
type AgentSetting = (&'static str, fn(&mut AgentOptions, &SettingsLayer));

#[rustfmt::skip]
const AGENT_SETTINGS: &[AgentSetting] = &[
    ("model",                       |agent, given| replace(&mut agent.model, given.model.clone())),
    ("guest",                       |agent, given| replace(&mut agent.language, given.guest)),
    ("max_generation_attempts",     |agent, given| replace(&mut agent.budgets.generation, given.max_generation_attempts.map(retries))),
    ("guardrail_recovery_budget",   |agent, given| replace(&mut agent.budgets.guardrail, given.guardrail_recovery_budget)),
    ("execution_repair_budget",     |agent, given| replace(&mut agent.budgets.execution, given.execution_repair_budget)),
    ("fresh_outcome_repair_budget", |agent, given| replace(&mut agent.budgets.outcome, given.fresh_outcome_repair_budget)),
    ("look_budget",                 |agent, given| replace(&mut agent.budgets.look, given.look_budget)),
    ("transport_retries",           |agent, given| replace(&mut agent.budgets.transport, given.transport_retries)),
    ("provider_timeout_seconds",    |agent, given| replace(&mut agent.provider_timeout, given.provider_timeout_seconds)),
    ("execution_timeout_seconds",   |agent, given| replace(&mut agent.execution_timeout, given.execution_timeout_seconds)),
    ("tool_timeout_seconds",        |agent, given| replace(&mut agent.tool_timeout, given.tool_timeout_seconds)),
    ("max_delegation_depth",        |agent, given| narrow(&mut agent.allowance.depth, given.max_delegation_depth)),
    ("max_model_calls",             |agent, given| narrow(&mut agent.allowance.model_calls, given.max_model_calls)),
    ("infer_model",                 |agent, given| replace(&mut agent.infer.model, given.infer_model.clone())),
    ("infer_retries",               |agent, given| replace(&mut agent.infer.retries, given.infer_retries)),
    ("max_infer_calls",             |agent, given| narrow(&mut agent.infer.max_calls, given.max_infer_calls)),
    ("asks_per_call",               |agent, given| narrow(&mut agent.allowance.asks_per_call, given.asks_per_call)),
    ("max_tree_tokens",             |agent, given| limit(&mut agent.allowance.tokens, given.max_tree_tokens.flatten())),
    ("max_tree_cost_usd",           |agent, given| limit(&mut agent.allowance.cost, given.max_tree_cost_usd.flatten().map(Nanodollars::from_usd))),
    ("max_tree_seconds",            |agent, given| limit(&mut agent.allowance.wall_time, given.max_tree_seconds.flatten())),
    ("widen",                       |agent, given| replace(&mut agent.widen, given.widen)),
    ("debug",                       |agent, given| replace(&mut agent.debug, given.debug)),
];

/// The names of the settings that an agent may have of its own, in a program the options of `delegate`.
pub(crate) fn agent_keys() -> impl Iterator<Item = &'static str> {
    AGENT_SETTINGS.iter().map(|(name, _)| *name)
}

/// Attempts as retries after the first.
pub(super) fn retries(attempts: u32) -> u32 {
    attempts.saturating_sub(1)
}

fn replace<T>(current: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *current = given;
    }
}

fn narrow<T: Ord + Copy>(current: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *current = given.min(*current);
    }
}

/// Narrows a limit; none is the widest.
fn limit<T: Ord + Copy>(current: &mut Option<T>, given: Option<T>) {
    *current = match (*current, given) {
        (Some(ours), Some(given)) => Some(ours.min(given)),
        (limit, None) | (None, limit) => limit,
    };
}

/// Values that one agent has instead of the configured ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentOverrides(pub(crate) SettingsLayer);

impl AgentOverrides {
    /// Reads settings by their names (see `agent_keys`) from text.
    pub fn parse<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ConfigFault> {
        let mut layer = SettingsLayer::default();
        for (name, text) in settings {
            parse_into(&mut layer, name, &Written::Text(text.to_owned()), &SettingOrigin::Code)?;
        }
        Self::of_agent(layer)
    }

    /// Reads one setting that a program gives.
    pub(crate) fn of_json(name: &str, value: &Value) -> Result<Self, ConfigFault> {
        let mut layer = SettingsLayer::default();
        parse_into(&mut layer, name, &Written::of_json(value), &SettingOrigin::Code)?;
        Self::of_agent(layer)
    }

    /// Takes typed values. They must be within the bounds that apply to texts.
    pub fn new(layer: &SettingsLayer) -> Result<Self, ConfigFault> {
        Self::of_agent(checked(layer)?)
    }

    /// Refuses settings that all agents share.
    fn of_agent(layer: SettingsLayer) -> Result<Self, ConfigFault> {
        let shared = layer.texts().into_iter().map(|(name, _)| name);
        match shared.into_iter().find(|name| !agent_keys().any(|known| known == *name)) {
            Some(name) => Err(ConfigFault::NotOfAnAgent { key: name.to_owned() }),
            None => Ok(Self(layer)),
        }
    }
}

impl AgentOptions {
    /// What its programs may reach, as in the log.
    pub(crate) fn grants_json(&self) -> Value {
        let mut shown = self.grants.to_json();
        let tools = self.tools.to_json();
        if let (Value::Object(fields), false) = (&mut shown, tools.is_null()) {
            fields.insert("tools".to_owned(), tools);
        }
        shown
    }

    /// Takes over values of one agent's own.
    pub(crate) fn apply(&mut self, overrides: &AgentOverrides) {
        for (_, change) in AGENT_SETTINGS {
            change(self, &overrides.0);
        }
    }

    /// Narrows what a call tree may use.
    pub(crate) fn narrow(&mut self, given: Allowance) {
        let ours = &mut self.allowance;
        narrow(&mut ours.depth, Some(given.depth));
        narrow(&mut ours.model_calls, Some(given.model_calls));
        narrow(&mut ours.asks_per_call, Some(given.asks_per_call));
        limit(&mut ours.tokens, given.tokens);
        limit(&mut ours.cost, given.cost);
        limit(&mut ours.wall_time, given.wall_time);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, KEYS};
    use super::*;

    /// A text other than the default that narrows every limit.
    fn other(name: &str) -> &'static str {
        match name {
            "guest" => "ruby",
            "debug" => "true",
            "widen" => "false",
            "model" => "other",
            "look_budget" => "1",
            _ => "3",
        }
    }

    #[test]
    fn every_setting_of_an_agent_changes_its_options_and_no_other_setting_is_one() {
        for key in KEYS {
            let before = Config::defaults().agent_options();
            let text = if agent_keys().any(|name| name == key.name) {
                other(key.name).to_owned()
            } else {
                key.default()
            };
            match AgentOverrides::parse([(key.name, text.as_str())]) {
                Ok(overrides) => {
                    let mut after = before.clone();
                    after.apply(&overrides);
                    assert_ne!(after, before, "{}", key.name);
                }
                Err(fault) => {
                    assert!(matches!(fault, ConfigFault::NotOfAnAgent { .. }), "{fault}");
                }
            }
        }
        let fault = AgentOverrides::parse([("mode", "x")]).unwrap_err();
        assert!(fault.to_string().contains("did you mean `model`?"), "{fault}");
    }

    #[test]
    fn typed_values_of_an_agent_are_checked() {
        let layer = |seconds| SettingsLayer {
            execution_timeout_seconds: Some(Duration::from_secs(seconds)),
            ..SettingsLayer::default()
        };
        let mut options = Config::defaults().agent_options();
        options.apply(&AgentOverrides::new(&layer(7)).unwrap());
        assert_eq!(options.execution_timeout, Duration::from_secs(7));
        let fault = AgentOverrides::new(&layer(0)).unwrap_err();
        assert!(matches!(fault, ConfigFault::Invalid { .. }), "{fault}");
        let shared = SettingsLayer { worker_processes: Some(3), ..SettingsLayer::default() };
        let fault = AgentOverrides::new(&shared).unwrap_err();
        assert!(matches!(fault, ConfigFault::NotOfAnAgent { .. }), "{fault}");
    }

    #[test]
    fn an_allowance_is_only_narrowed() {
        let mut options = Config::defaults().agent_options();
        for calls in ["5", "50"] {
            options.apply(&AgentOverrides::parse([("max_model_calls", calls)]).unwrap());
        }
        assert_eq!(options.allowance.model_calls, 5);
    }
}
