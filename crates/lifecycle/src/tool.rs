//! Tools: agents that were forged by `delegate` and can be asked for again by name.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::attempt::Attempt;
use crate::blame::Blame;
use crate::contract::Contract;
use crate::outcome::{Cause, FailureKind, Outcome};
use crate::pattern::PatternEvent;
use crate::request::{CallRequest, Role};

/// A forged agent: its name and what it promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Its role, which is its name.
    pub name: Role,
    /// What its answers must look like.
    pub contract: Option<Contract>,
}

impl Tool {
    /// Size of its JSON text in bytes.
    pub fn encoded_bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |text| text.len())
    }
}

/// **The definition of a tool's counts.** Every call counts as used (`usage_count`). A call that gave a value counts
/// as a success (`success_count`), one that failed through the tool's own fault as a failure (`failure_count`). A
/// truthful error, a fault of the world, a call the tool could not take and a try to widen it count as neither, so successes and
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

/// Whether a call of a role that is not a tool is counted. A role that a program calls may become a tool with that program's
/// own commit; any other role does not.
pub fn counts_early_call(request: &CallRequest) -> bool {
    request.lineage.depth() > 0
}

impl ToolCount {
    /// What a finished call counts as.
    pub fn of(outcome: &Outcome, attempts: &[Attempt]) -> Self {
        let Some(failure) = outcome.failure() else { return Self::Success };
        // A model that could not be asked afterwards says nothing about the program that failed.
        let last_run = attempts.iter().rfind(|attempt| attempt.worker.is_some());
        let decisive = last_run.or(attempts.last());
        let was_accepted = decisive.is_some_and(|attempt| attempt.rejection.is_none());
        let is_own = match failure.kind.cause() {
            Cause::Extrinsic => false,
            Cause::Intrinsic | Cause::Adaptive => {
                !matches!(failure.kind, FailureKind::InvalidCall | FailureKind::BudgetExceeded)
            }
        };
        let rejection = decisive.and_then(|attempt| attempt.rejection.as_ref());
        // What was written for a caller's arguments, or for a service that may answer as before again, and failed, says
        // nothing against the stored program either.
        let is_beyond = attempts.iter().any(Attempt::asks_for_more);
        let is_excused =
            is_beyond || rejection.is_some_and(|rejection| rejection.blame() != Blame::Program);
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
            None if event.error_type.as_deref() == Some(FailureKind::ContractViolation.code()) => {
                Self::Failure
            }
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

/// A known tool that may be shown to a model.
#[derive(Debug)]
pub struct ToolCandidate {
    /// Its name.
    pub name: String,
    /// What it is for, if its contract says.
    pub purpose: Option<String>,
    /// How often it was asked for.
    pub usage_count: u64,
}

/// The names of the `limit` tools that are most useful to a call: those that share words with it, then the most used,
/// then the order given. The called role itself is not among them: it cannot delegate to itself.
pub fn most_relevant(
    mut candidates: Vec<ToolCandidate>,
    request: &CallRequest,
    limit: usize,
) -> Vec<String> {
    let mut wanted = words(request.role.as_str());
    wanted.extend(words(request.method.as_str()));
    candidates.retain(|candidate| candidate.name != request.role.as_str());
    candidates.sort_by_cached_key(|candidate| {
        let mut offered = words(&candidate.name);
        offered.extend(words(candidate.purpose.as_deref().unwrap_or_default()));
        Reverse((offered.intersection(&wanted).count(), candidate.usage_count))
    });
    candidates.truncate(limit);
    candidates.into_iter().map(|candidate| candidate.name).collect()
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Tools that were last used before a time, the longest unused first. `used` gives the time of a tool's last use, as
/// stores write times, and its name.
pub fn unused_since<T>(mut tools: Vec<T>, before: &str, used: fn(&T) -> (&str, &str)) -> Vec<T> {
    tools.retain(|tool| used(tool).0 < before);
    tools.sort_by(|a, b| used(a).cmp(&used(b)));
    tools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_unused_for_longest_come_first() {
        let tools = vec![("2026-03", "c"), ("2026-01", "b"), ("2026-01", "a"), ("2026-02", "d")];
        let unused = unused_since(tools, "2026-03", |&(at, name)| (at, name));
        assert_eq!(unused, [("2026-01", "a"), ("2026-01", "b"), ("2026-02", "d")]);
    }
}
