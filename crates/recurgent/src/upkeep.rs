//! Maintenance of tools outside calls: how they are doing, which are unused, what should be done about them.
//! Nothing here changes what a call does.

use std::time::{Duration, SystemTime};

use lifecycle::call::StoreFault;
use lifecycle::correction::CorrectedAnswers;
use lifecycle::health::ToolCounts;
use lifecycle::recommendation::{self, Recommendation, ToolEvidence};
use lifecycle::request::Role;
use lifecycle::tool::unused_since;

use crate::store::Store;
use crate::store::bundle::{Bundle, ToolEntry};

pub use lifecycle::health::{Condition, Health};

/// Roles read at a time.
const PAGE: usize = 256;

/// What should be done about one role, or about every role that pattern memory knows; the strongest first.
pub fn recommend(
    store: &dyn Store,
    role: Option<&Role>,
) -> Result<Vec<Recommendation>, StoreFault> {
    let mut found = Vec::new();
    if let Some(role) = role {
        found.extend(recommend_for(store, role)?);
    } else {
        for_each_role(store, |role| {
            found.extend(recommend_for(store, role)?);
            Ok(())
        })?;
    }
    Ok(recommendation::strongest_first(found))
}

/// Visits the roles that have patterns, a page at a time.
fn for_each_role(
    store: &dyn Store,
    mut visit: impl FnMut(&Role) -> Result<(), StoreFault>,
) -> Result<(), StoreFault> {
    let mut after: Option<Role> = None;
    loop {
        let roles = store.pattern_roles(PAGE, after.as_ref())?;
        roles.iter().try_for_each(&mut visit)?;
        let Some(last) = roles.into_iter().next_back() else { return Ok(()) };
        after = Some(last);
    }
}

fn recommend_for(store: &dyn Store, role: &Role) -> Result<Vec<Recommendation>, StoreFault> {
    let events = store.patterns(role)?;
    let exhaustions = exhaustions(store, role)?;
    Ok(recommendation::recommend(&ToolEvidence {
        role: role.as_str(),
        events: &events,
        exhaustions,
    }))
}

fn exhaustions(store: &dyn Store, role: &Role) -> Result<u64, StoreFault> {
    let counted = store.exhaustions(role)?;
    Ok(counted.iter().map(|counted| counted.guardrail + counted.outcome).sum())
}

/// Answers that were corrected, with those of the nested calls that produced them: what every role's pattern memory
/// says together.
pub fn corrected_answers(store: &dyn Store) -> Result<CorrectedAnswers, StoreFault> {
    let mut events = Vec::new();
    for_each_role(store, |role| {
        events.extend(store.patterns(role)?);
        Ok(())
    })?;
    Ok(CorrectedAnswers::of(&events))
}

/// How a tool is doing.
pub fn health(
    store: &dyn Store,
    tool: &ToolEntry,
    corrected: &CorrectedAnswers,
) -> Result<Health, StoreFault> {
    let counts = ToolCounts {
        name: tool.name.as_str(),
        usage_count: tool.usage_count,
        success_count: tool.success_count,
        failure_count: tool.failure_count,
        exhaustion_count: exhaustions(store, &tool.name)?,
        last_used_at: &tool.last_used_at,
    };
    Ok(Health::of(&counts, &store.patterns(&tool.name)?, corrected))
}

/// The current time. A clock outside the years that can be written (−9999 to 9999) reads as the first or the last of them.
pub(crate) fn now() -> jiff::Timestamp {
    timestamp(SystemTime::now())
}

fn timestamp(time: SystemTime) -> jiff::Timestamp {
    let limit =
        if time < SystemTime::UNIX_EPOCH { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    jiff::Timestamp::try_from(time).unwrap_or(limit)
}

/// The time `age` ago, as the store writes times.
pub fn time_before(age: Duration) -> String {
    let now = now();
    let then = jiff::SignedDuration::try_from(age).ok().and_then(|age| now.checked_sub(age).ok());
    then.unwrap_or(jiff::Timestamp::MIN).strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Tools that were last used before that time, the longest unused first.
pub fn stale(bundle: Bundle, used_before: &str) -> Vec<ToolEntry> {
    unused_since(bundle.tools, used_before, |tool| (&tool.last_used_at, tool.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_past_the_year_9999_is_read_as_the_last_time_that_can_be_written() {
        let years = |count: u64| Duration::from_secs(count * 365 * 24 * 60 * 60);
        for (time, expected) in [
            (SystemTime::UNIX_EPOCH, jiff::Timestamp::UNIX_EPOCH),
            (SystemTime::UNIX_EPOCH + years(9000), jiff::Timestamp::MAX),
            (SystemTime::UNIX_EPOCH - years(20_000), jiff::Timestamp::MIN),
        ] {
            assert_eq!(timestamp(time), expected);
        }
    }
}
