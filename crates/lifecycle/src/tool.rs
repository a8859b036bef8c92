//! Tools: agents that were forged by `delegate` and can be asked for again by name.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::attempt::Attempt;
use crate::blame::Blame;
use crate::contract::Contract;
use crate::outcome::{Cause, FailureKind, Outcome};
use crate::pattern::PatternEvent;
use crate::request::Role;

/// A forged agent: its name and what it promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Its role, which is its name.
    pub name: Role,
    /// What its answers must look like.
    pub contract: Option<Contract>,
}

/// **The definition of a tool's counts.** Every call counts as used (`usage_count`). A call that gave a value counts
/// as a success (`success_count`), one that failed through the tool's own fault as a failure (`failure_count`). A
/// truthful error, a fault of the world and a call the tool could not take count as neither, so successes and
/// failures never exceed uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCount {
    /// It gave a value.
    Success,
    /// It failed through its own fault.
    Failure,
    /// It was used, and that is all.
    Neither,
}

impl ToolCount {
    /// What a finished call counts as.
    pub fn of(outcome: &Outcome, attempts: &[Attempt]) -> Self {
        let Some(failure) = outcome.failure() else { return Self::Success };
        let was_accepted = attempts.last().is_some_and(|attempt| attempt.rejection.is_none());
        let is_own = match failure.kind.cause() {
            Cause::Extrinsic => false,
            Cause::Intrinsic | Cause::Adaptive => {
                !matches!(failure.kind, FailureKind::InvalidCall | FailureKind::BudgetExceeded)
            }
        };
        let rejection = attempts.last().and_then(|attempt| attempt.rejection.as_ref());
        let is_excused = rejection.is_some_and(|rejection| rejection.blame() != Blame::Program);
        if was_accepted || is_excused || !is_own { Self::Neither } else { Self::Failure }
    }

    /// What a call that pattern memory knows counts as. Events of older stores do not say; of those, errors that the
    /// world caused, and errors that a program reported truthfully, are not failures.
    pub fn of_event(event: &PatternEvent) -> Self {
        let class = event.failure_class.as_deref();
        match event.counted {
            Some(counted) => counted,
            None if event.outcome_status == "ok" => Self::Success,
            None if class == Some("intrinsic") || event.exhausted.is_some() => Self::Failure,
            None if event.error_type.as_deref() == Some("contract_violation") => Self::Failure,
            None if class.is_none() => Self::Failure,
            None => Self::Neither,
        }
    }
}

/// A tool as the registry knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownTool {
    /// The tool.
    pub tool: Tool,
    /// Methods that were called on it.
    pub methods: Vec<String>,
    /// Its calls; see [`ToolCount`].
    pub usage_count: u64,
    /// Calls that gave a value.
    pub success_count: u64,
    /// Calls that failed through the tool's own fault.
    pub failure_count: u64,
    /// Calls that ended because guardrail or outcome retries ran out.
    pub exhaustion_count: u64,
}

impl KnownTool {
    /// As programs and prompts see it.
    pub fn to_json(&self) -> Value {
        let contract = self.tool.contract.as_ref();
        let mut known = json!({
            "purpose": contract.and_then(|c| c.purpose.as_ref()),
            "deliverable": contract.and_then(|c| c.deliverable.as_ref()),
            "acceptance": contract.and_then(|c| c.acceptance.as_ref()),
            "failure_policy": contract.and_then(|c| c.failure_policy.as_ref()),
            "methods": self.methods,
            "usage_count": self.usage_count,
            "success_count": self.success_count,
            "failure_count": self.failure_count,
        });
        // Present only if it is not zero, since every prompt carries it.
        if let (Value::Object(known), 1..) = (&mut known, self.exhaustion_count) {
            known.insert("exhaustion_count".to_owned(), json!(self.exhaustion_count));
        }
        known
    }
}
