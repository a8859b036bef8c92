//! How a tool is doing, from its counts and its latest calls.

use serde::Serialize;

use crate::correction::CorrectedAnswers;
use crate::pattern::PatternEvent;
use crate::tool::ToolCount;

/// How a tool is doing, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// It was never called.
    Unused,
    /// It answers.
    Good,
    /// Half of its answers are of little use, or callers ask again.
    Weak,
    /// It fails as often as not.
    Failing,
}

impl Condition {
    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unused => "unused",
            Self::Good => "good",
            Self::Weak => "weak",
            Self::Failing => "failing",
        }
    }
}

/// How a tool is doing. What each call counts as is defined by [`ToolCount`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Health {
    /// The tool.
    pub name: String,
    /// In a word.
    pub condition: Condition,
    /// Its calls, ever.
    pub usage_count: u64,
    /// Calls that gave a value, ever.
    pub success_count: u64,
    /// Calls that failed through the tool's own fault, ever.
    pub failure_count: u64,
    /// Calls that ended because retries were spent, ever.
    pub exhaustion_count: u64,
    /// Calls that pattern memory still knows.
    pub recent_calls: usize,
    /// Of those: failures.
    pub recent_failures: usize,
    /// Of those: successes that say little.
    pub recent_weak_successes: usize,
    /// Of those: calls whose answer was corrected, or produced one that was.
    pub recent_corrections: usize,
    /// RFC 3339, UTC.
    pub last_used_at: String,
}

/// What is counted of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolCounts<'a> {
    /// The tool.
    pub name: &'a str,
    /// Its calls.
    pub usage_count: u64,
    /// Calls that gave a value.
    pub success_count: u64,
    /// Calls that failed through the tool's own fault.
    pub failure_count: u64,
    /// Calls that ended because retries were spent.
    pub exhaustion_count: u64,
    /// RFC 3339, UTC.
    pub last_used_at: &'a str,
}

impl Health {
    /// How a tool is doing; `events` are its calls that pattern memory knows.
    pub fn of(
        tool: &ToolCounts<'_>,
        events: &[PatternEvent],
        corrected: &CorrectedAnswers,
    ) -> Self {
        let count = |counts: fn(&PatternEvent) -> bool| events.iter().filter(|e| counts(e)).count();
        let failures = count(|event| ToolCount::of_event(event) == ToolCount::Failure);
        let weak = count(PatternEvent::is_weak);
        let corrections = events.iter().filter(|event| corrected.contains(&event.call_id)).count();
        let condition = if tool.usage_count == 0 && events.is_empty() {
            Condition::Unused
        } else if failures * 2 > events.len() || tool.failure_count > tool.success_count {
            Condition::Failing
        } else if weak * 2 >= events.len().max(1) || corrections > 1 {
            Condition::Weak
        } else {
            Condition::Good
        };
        Self {
            name: tool.name.to_owned(),
            condition,
            usage_count: tool.usage_count,
            success_count: tool.success_count,
            failure_count: tool.failure_count,
            exhaustion_count: tool.exhaustion_count,
            recent_calls: events.len(),
            recent_failures: failures,
            recent_weak_successes: weak,
            recent_corrections: corrections,
            last_used_at: tool.last_used_at.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_judged_by_its_own_failures_only() {
        let event = |status: &str, counted| PatternEvent {
            outcome_status: status.to_owned(),
            counted: Some(counted),
            ..PatternEvent::default()
        };
        let (ok, truthful, failed) = (
            || event("ok", ToolCount::Success),
            || event("error", ToolCount::Neither),
            || event("error", ToolCount::Failure),
        );
        let old = |class: &str, code: &str| PatternEvent {
            outcome_status: "error".to_owned(),
            failure_class: Some(class.to_owned()),
            error_type: Some(code.to_owned()),
            ..PatternEvent::default()
        };
        for (events, (used, succeeded, failures), condition) in [
            (vec![], (0, 0, 0), Condition::Unused),
            (vec![ok()], (1, 1, 0), Condition::Good),
            (vec![truthful(), truthful(), truthful()], (3, 0, 0), Condition::Good),
            (vec![failed(), failed(), ok()], (3, 1, 2), Condition::Failing),
            (
                vec![old("adaptive", "not_found"), old("adaptive", "wrong_tool_boundary")],
                (2, 0, 0),
                Condition::Good,
            ),
            (vec![old("intrinsic", "execution")], (1, 0, 1), Condition::Failing),
            (vec![old("adaptive", "contract_violation")], (1, 0, 1), Condition::Failing),
        ] {
            let tool = ToolCounts {
                name: "poet",
                usage_count: used,
                success_count: succeeded,
                failure_count: failures,
                exhaustion_count: 0,
                last_used_at: "",
            };
            let health = Health::of(&tool, &events, &CorrectedAnswers::default());
            assert_eq!(health.condition, condition, "{health:?}");
        }
    }
}
