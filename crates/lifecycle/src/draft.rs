//! The provider seam: what a model answers, and how asking it can go wrong.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::attempt::Reason;
use crate::outcome::{Failure, FailureKind, Waited};

/// What a model answered: a payload not yet believed.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// As it came; [`crate::program::GeneratedProgram::parse`] judges it.
    pub payload: Value,
    /// What it cost.
    pub usage: Usage,
}

/// Tokens of one or more model calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Sent.
    pub input_tokens: u64,
    /// Received.
    pub output_tokens: u64,
    /// Of those sent, served from the provider's cache.
    pub cached_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cached_tokens += other.cached_tokens;
    }
}

/// Why a model gave no payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftFault {
    /// The service failed or could not be reached.
    Unavailable(String),
    /// The service asks us to slow down.
    RateLimited {
        /// Its words.
        message: String,
        /// How long it asked us to wait.
        retry_after: Option<Duration>,
    },
    /// No key, or a refused one.
    Auth(String),
    /// The model would not write this program.
    Refused(String),
    /// No answer in time.
    TimedOut(Duration),
    /// The answer was cut at the output limit: never executed.
    Truncated,
    /// The answer could not be read as a payload.
    Malformed(String),
    /// A replay met a request its recording does not hold.
    Diverged(String),
    /// The tree's allowance is spent.
    AllowanceSpent(String),
    /// The caller gave up.
    Cancelled,
}

impl DraftFault {
    /// Its row in the retry table, and the failure it ends as.
    pub(crate) fn judged(self) -> (Reason, Failure) {
        let (reason, kind, message) = match self {
            Self::Unavailable(message) => (Reason::ProviderDown, FailureKind::Provider, message),
            Self::RateLimited { message, .. } => (Reason::RateLimited, FailureKind::RateLimited, message),
            Self::Auth(message) => (Reason::ProviderAuth, FailureKind::ProviderAuth, message),
            Self::Refused(message) => (Reason::ProviderRefusal, FailureKind::ProviderRefusal, message),
            Self::TimedOut(limit) => (
                Reason::ProviderTimeout,
                FailureKind::Timeout(Waited::Provider),
                format!(
                    "the model did not answer within {} s; raise provider_timeout_seconds or try again",
                    limit.as_secs_f64()
                ),
            ),
            Self::Truncated => (
                Reason::Truncated,
                FailureKind::InvalidCode,
                "the answer was cut off at the output limit; write a shorter program, or raise the output limit".to_owned(),
            ),
            Self::Malformed(message) => (Reason::PayloadInvalid, FailureKind::InvalidCode, message),
            Self::Diverged(message) => (Reason::ReplayDiverged, FailureKind::ReplayDivergence, message),
            Self::AllowanceSpent(message) => (Reason::AllowanceSpent, FailureKind::BudgetExceeded, message),
            Self::Cancelled => (Reason::Cancelled, FailureKind::Cancelled, "the call was cancelled".to_owned()),
        };
        (reason, Failure::new(kind, message))
    }
}
