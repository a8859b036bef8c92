//! Looking after tools, out of band: how they fare, which are forgotten, what should be done about them.
//! Nothing here changes what a call does.

use std::time::Duration;

use lifecycle::call::StoreFault;
use lifecycle::pattern::PatternEvent;
use lifecycle::recommendation::{self, Evidence, Recommendation};
use lifecycle::request::Role;
use serde::Serialize;

use crate::store::Store;
use crate::store::bundle::{Bundle, ToolEntry};

/// Roles that are looked at together.
const PAGE: usize = 256;

/// What should be done about one role, or about every role anything is known of; the strongest first.
pub fn recommend(
    store: &dyn Store,
    role: Option<&Role>,
) -> Result<Vec<Recommendation>, StoreFault> {
    let mut found = Vec::new();
    if let Some(role) = role {
        found.extend(recommend_for(store, role)?);
    } else {
        let mut after: Option<Role> = None;
        loop {
            let roles = store.pattern_roles(PAGE, after.as_ref())?;
            for role in &roles {
                found.extend(recommend_for(store, role)?);
            }
            let Some(last) = roles.into_iter().next_back() else { break };
            after = Some(last);
        }
    }
    // Stable: among equals, roles stay in the order of their names.
    found.sort_by_key(|recommendation| std::cmp::Reverse(recommendation.score));
    Ok(found)
}

fn recommend_for(store: &dyn Store, role: &Role) -> Result<Vec<Recommendation>, StoreFault> {
    let events = store.patterns(role)?;
    let exhaustions = exhaustions(store, role)?;
    Ok(recommendation::recommend(&Evidence { role: role.as_str(), events: &events, exhaustions }))
}

fn exhaustions(store: &dyn Store, role: &Role) -> Result<u64, StoreFault> {
    let counted = store.exhaustions(role)?;
    Ok(counted.iter().map(|counted| counted.guardrail + counted.outcome).sum())
}

/// How a tool fares, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Nobody called it.
    Unused,
    /// It answers.
    Good,
    /// Half of what it says is of little use, or callers ask again.
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

/// How a tool fares.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Health {
    /// The tool.
    pub name: String,
    /// In a word.
    pub condition: Condition,
    /// How often it was asked for.
    pub usage_count: u64,
    /// Calls that gave a value, ever.
    pub success_count: u64,
    /// Calls that did not, ever.
    pub failure_count: u64,
    /// Calls that ended for want of second chances, ever.
    pub exhaustion_count: u64,
    /// Calls pattern memory still knows.
    pub recent_calls: usize,
    /// Of those: errors that were not the world's fault.
    pub recent_failures: usize,
    /// Of those: successes that say little.
    pub recent_weak_successes: usize,
    /// Of those: calls that corrected an earlier answer.
    pub recent_corrections: usize,
    /// RFC 3339, UTC.
    pub last_used_at: String,
}

/// How a tool fares.
pub fn health(store: &dyn Store, tool: &ToolEntry) -> Result<Health, StoreFault> {
    let events = store.patterns(&tool.name)?;
    let count = |counts: fn(&PatternEvent) -> bool| events.iter().filter(|e| counts(e)).count();
    let failures = count(|event| {
        event.outcome_status != "ok" && event.failure_class.as_deref() != Some("extrinsic")
    });
    let weak = count(PatternEvent::is_weak);
    let corrections = count(|event| event.user_correction.is_some());
    let calls = tool.success_count + tool.failure_count;
    let condition = if calls == 0 && events.is_empty() {
        Condition::Unused
    } else if failures * 2 > events.len() || tool.failure_count > tool.success_count {
        Condition::Failing
    } else if weak * 2 >= events.len().max(1) || corrections > 1 {
        Condition::Weak
    } else {
        Condition::Good
    };
    Ok(Health {
        name: tool.name.to_string(),
        condition,
        usage_count: tool.usage_count,
        success_count: tool.success_count,
        failure_count: tool.failure_count,
        exhaustion_count: exhaustions(store, &tool.name)?,
        recent_calls: events.len(),
        recent_failures: failures,
        recent_weak_successes: weak,
        recent_corrections: corrections,
        last_used_at: tool.last_used_at.clone(),
    })
}

/// The time that lies so far back, as the store writes times.
pub fn time_before(age: Duration) -> String {
    let now = jiff::Timestamp::now();
    let then = jiff::SignedDuration::try_from(age).ok().and_then(|age| now.checked_sub(age).ok());
    then.unwrap_or(jiff::Timestamp::MIN).strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Tools that were last used before that time, the longest unused first.
pub fn stale(bundle: &Bundle, used_before: &str) -> Vec<ToolEntry> {
    let unused = |tool: &&ToolEntry| tool.last_used_at.as_str() < used_before;
    let mut stale: Vec<ToolEntry> = bundle.tools.iter().filter(unused).cloned().collect();
    stale.sort_by(|a, b| (&a.last_used_at, &a.name).cmp(&(&b.last_used_at, &b.name)));
    stale
}
