//! Which logged calls are shown.

use std::time::{Duration, SystemTime};

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::age::age;
use crate::render::entry::{ended_at, text};

/// Which logged calls.
#[derive(Debug, Args)]
pub(super) struct LogFilter {
    /// Only calls that ended with this status
    #[arg(long, value_parser = ["ok", "error"])]
    status: Option<String>,
    /// Only calls of this role
    #[arg(long)]
    role: Option<String>,
    /// Only calls of this method
    #[arg(long)]
    method: Option<String>,
    /// Only calls of this session
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only calls of this trace; the beginning of its id works
    #[arg(long, value_name = "ID")]
    trace: Option<String>,
    /// Only calls that ended within this time, such as 90s, 2h or 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    since: Option<Duration>,
}

impl LogFilter {
    /// What is missing where none is found: a call, or one that fits.
    pub(super) fn none_found(&self) -> &'static str {
        let Self { status, role, method, session, trace, since } = self;
        let fits = [status, role, method, session, trace].iter().any(|it| it.is_some());
        if fits || since.is_some() { "no such call" } else { "no call" }
    }

    /// The filter as a question about entries, from now on.
    pub(super) fn wanted(&self) -> impl Fn(&Value) -> bool {
        let begin = self.since.map(began);
        move |entry| {
            let is = |wanted: &Option<String>, field: &str| {
                wanted.as_deref().is_none_or(|wanted| text(entry, field) == wanted)
            };
            is(&self.status, "outcome_status")
                && is(&self.role, "role")
                && is(&self.method, "method")
                && is(&self.session, "session")
                && self.trace.as_deref().is_none_or(|id| text(entry, "trace_id").starts_with(id))
                && begin.is_none_or(|begin| ended_at(entry).is_some_and(|ended| ended >= begin))
        }
    }
}

/// The moment that was this long ago.
pub(super) fn began(age: Duration) -> Timestamp {
    let moment = SystemTime::now().checked_sub(age);
    moment.and_then(|moment| Timestamp::try_from(moment).ok()).unwrap_or(Timestamp::MIN)
}
