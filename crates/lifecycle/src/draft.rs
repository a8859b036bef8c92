//! The provider seam: what a model answers, and how asking it can go wrong.

mod salvage;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::attempt::Reason;
use crate::call::StoreFault;
use crate::dependency::imported_packages;
use crate::dialect::{self, Language};
use crate::outcome::{Failure, FailureKind, Waited};

pub(crate) use salvage::object_in as salvage_object;
pub use salvage::salvage;

/// What a model answered: a payload not yet believed.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// As it came; [`crate::program::GeneratedProgram::parse`] judges it.
    pub payload: Value,
    /// What it cost.
    pub usage: Usage,
}

impl Draft {
    /// The draft of a model that answered with a program instead of a payload, alone or in a fenced block: its packages
    /// are those that its imports name.
    ///
    /// ```
    /// # use lifecycle::dialect::Language;
    /// # use lifecycle::draft::{Draft, Usage};
    /// let answer = "```python\nimport yaml\n\ndef read(text):\n    return yaml.safe_load(text)\n```";
    /// let draft = Draft::of_program(Language::Python, answer, Usage::default());
    /// assert_eq!(draft.payload["dependencies"], serde_json::json!([{"name": "PyYAML"}]));
    /// assert!(draft.payload["code"].as_str().unwrap().starts_with("import yaml\n"));
    /// ```
    pub fn of_program(language: Language, answer: &str, usage: Usage) -> Self {
        let code = salvage::program(answer);
        let packages = match dialect::inspect(language, code) {
            Ok(found) => imported_packages(language, &found),
            Err(_) => Vec::new(), // it is rejected for its syntax
        };
        let dependencies: Vec<Value> =
            packages.into_iter().map(|name| json!({ "name": name })).collect();
        Self { payload: json!({"code": code, "dependencies": dependencies}), usage }
    }
}

/// Money, in thousand-millionths of a dollar: prices per token are whole numbers of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanodollars(pub u64);

impl Nanodollars {
    /// From dollars; what is below nothing is nothing.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates, and it is not negative"
    )]
    pub fn from_usd(usd: f64) -> Self {
        Self((usd.max(0.0) * 1e9).round() as u64)
    }

    /// As dollars, for people.
    #[expect(clippy::cast_precision_loss, reason = "millions of dollars keep their cents")]
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum, as far as it is known.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Tokens of one or more model calls, and what they cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Sent.
    pub input_tokens: u64,
    /// Received.
    pub output_tokens: u64,
    /// Of those sent, served from the provider's cache.
    pub cached_tokens: u64,
    /// Of those sent, written to the provider's cache, where it counts them apart.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written_tokens: u64,
    /// What they cost; `None`: no price is configured for this model.
    #[serde(default, rename = "cost_nanodollars", skip_serializing_if = "Option::is_none")]
    pub cost: Option<Nanodollars>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// Sent and received.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_written_tokens =
            self.cache_written_tokens.saturating_add(other.cache_written_tokens);
        self.cost = match (self.cost, other.cost) {
            (Some(ours), Some(theirs)) => Some(ours.plus(theirs)),
            (known, None) | (None, known) => known,
        };
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
    /// The service has too much to do.
    Overloaded {
        /// Its words.
        message: String,
        /// How long it asked us to wait.
        retry_after: Option<Duration>,
    },
    /// The service will not take this request, now or later: an unknown model, a wrong address.
    Rejected(String),
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
    /// What the model should know could not be looked up; it was not asked.
    Store(StoreFault),
    /// The tree's allowance is spent.
    AllowanceSpent(Box<SpentAllowance>),
    /// No model may be asked (`generate = false`).
    GenerationOff,
    /// The caller gave up.
    Cancelled,
    /// Any of these, from a model that answered and is paid for it.
    Charged(Box<Self>, Usage),
}

/// A limit of a call tree that the next model call would break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpentAllowance {
    /// Which: `model_calls`, `tokens`, `cost_usd`, `seconds`.
    pub budget: &'static str,
    /// What the tree may use.
    pub limit: Value,
    /// What it has used.
    pub spent: Value,
    /// The same for people, and what to do.
    pub message: String,
}

impl fmt::Display for DraftFault {
    /// As the failure it ends as says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.clone().judged().1.message)
    }
}

impl SpentAllowance {
    pub(crate) fn failure(self) -> Failure {
        Failure::new(FailureKind::BudgetExceeded, self.message)
            .with("budget", self.budget)
            .with("limit", self.limit)
            .with("spent", self.spent)
    }
}

impl DraftFault {
    /// The fault itself, and what the model is paid for it.
    pub(crate) fn into_parts(self) -> (Self, Usage) {
        if let Self::Charged(fault, usage) = self {
            return (*fault, usage);
        }
        (self, Usage::default())
    }

    /// How long the service asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. } | Self::Overloaded { retry_after, .. } => {
                *retry_after
            }
            Self::Charged(fault, _) => fault.retry_after(),
            Self::Unavailable(_)
            | Self::Rejected(_)
            | Self::Auth(_)
            | Self::Refused(_)
            | Self::TimedOut(_)
            | Self::Truncated
            | Self::Malformed(_)
            | Self::Diverged(_)
            | Self::Store(_)
            | Self::AllowanceSpent(_)
            | Self::GenerationOff
            | Self::Cancelled => None,
        }
    }

    /// Whether a model was asked at all.
    pub(crate) fn was_asked(&self) -> bool {
        match self {
            Self::Store(_) | Self::AllowanceSpent(_) | Self::GenerationOff | Self::Cancelled => {
                false
            }
            Self::Unavailable(_)
            | Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Rejected(_)
            | Self::Auth(_)
            | Self::Refused(_)
            | Self::TimedOut(_)
            | Self::Truncated
            | Self::Malformed(_)
            | Self::Diverged(_)
            | Self::Charged(..) => true,
        }
    }

    /// Its row in the retry table, and the failure it ends as.
    pub(crate) fn judged(self) -> (Reason, Failure) {
        let (reason, kind, message) = match self {
            Self::Unavailable(message) => (Reason::ProviderDown, FailureKind::Provider, message),
            Self::Overloaded { message, .. } => (Reason::ProviderDown, FailureKind::Provider, message),
            Self::Rejected(message) => (Reason::ProviderRejected, FailureKind::Provider, message),
            Self::RateLimited { message, .. } => (Reason::RateLimited, FailureKind::RateLimited, message),
            Self::Auth(message) => (Reason::ProviderAuth, FailureKind::ProviderAuth, message),
            Self::Refused(message) => (Reason::ProviderRefusal, FailureKind::ProviderRefusal, message),
            Self::TimedOut(limit) => return (Reason::ProviderTimeout, timed_out(limit)),
            Self::Truncated => (
                Reason::Truncated,
                FailureKind::InvalidCode,
                "the answer was cut off at the output limit; write a shorter program, or raise max_output_tokens".to_owned(),
            ),
            Self::Malformed(message) => (Reason::PayloadInvalid, FailureKind::InvalidCode, message),
            Self::Diverged(message) => (Reason::ReplayDiverged, FailureKind::ReplayDivergence, message),
            Self::Store(fault) => return (Reason::StoreDown, fault.into_failure()),
            Self::AllowanceSpent(spent) => return (Reason::AllowanceSpent, spent.failure()),
            Self::GenerationOff => (
                Reason::GenerationOff,
                FailureKind::UnsupportedCapability,
                "no stored program can answer this call, and generate = false forbids asking a model; \
                 run it once without --frozen, or import a program for it"
                    .to_owned(),
            ),
            Self::Cancelled => (Reason::Cancelled, FailureKind::Cancelled, "the call was cancelled".to_owned()),
            Self::Charged(fault, _) => return fault.judged(),
        };
        (reason, Failure::new(kind, message))
    }
}

/// The failure of a service that did not answer within `limit`.
fn timed_out(limit: Duration) -> Failure {
    let message = format!(
        "the model did not answer within {} s; raise provider_timeout_seconds or try again",
        limit.as_secs_f64()
    );
    Failure::new(FailureKind::Timeout(Waited::Provider), message)
        .with("waited_seconds", limit.as_secs_f64())
}
