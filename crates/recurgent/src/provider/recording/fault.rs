//! The fault of a model call, as a recording keeps it.

use std::time::Duration;

use lifecycle::draft::{DraftFault, Usage};
use lifecycle::redact::redacted_text;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RecordedFault {
    Unavailable { message: String },
    Overloaded { message: String, retry_after: Option<Duration> },
    RateLimited { message: String, retry_after: Option<Duration> },
    Rejected { message: String },
    Auth { message: String },
    Refused { message: String },
    TimedOut { limit: Duration },
    Truncated,
    Malformed { message: String },
}

impl RecordedFault {
    /// `None`: the fault does not come from a model or a service.
    pub(super) fn of(fault: &DraftFault) -> Option<(Self, Usage)> {
        let kept = match fault {
            DraftFault::Charged(fault, usage) => {
                return Self::of(fault).map(|(kept, _)| (kept, *usage));
            }
            DraftFault::Unavailable(words) => Self::Unavailable { message: clean(words) },
            DraftFault::Overloaded { message, retry_after } => {
                Self::Overloaded { message: clean(message), retry_after: *retry_after }
            }
            DraftFault::RateLimited { message, retry_after } => {
                Self::RateLimited { message: clean(message), retry_after: *retry_after }
            }
            DraftFault::Rejected(words) => Self::Rejected { message: clean(words) },
            DraftFault::Auth(words) => Self::Auth { message: clean(words) },
            DraftFault::Refused(words) => Self::Refused { message: clean(words) },
            DraftFault::TimedOut(limit) => Self::TimedOut { limit: *limit },
            DraftFault::Truncated => Self::Truncated,
            DraftFault::Malformed(words) => Self::Malformed { message: clean(words) },
            DraftFault::Diverged(_)
            | DraftFault::Store(_)
            | DraftFault::AllowanceSpent(_)
            | DraftFault::GenerationOff
            | DraftFault::Cancelled => return None,
        };
        Some((kept, Usage::default()))
    }

    pub(super) fn into_fault(self, usage: Usage) -> DraftFault {
        let fault = match self {
            Self::Unavailable { message } => DraftFault::Unavailable(message),
            Self::Overloaded { message, retry_after } => {
                DraftFault::Overloaded { message, retry_after }
            }
            Self::RateLimited { message, retry_after } => {
                DraftFault::RateLimited { message, retry_after }
            }
            Self::Rejected { message } => DraftFault::Rejected(message),
            Self::Auth { message } => DraftFault::Auth(message),
            Self::Refused { message } => DraftFault::Refused(message),
            Self::TimedOut { limit } => DraftFault::TimedOut(limit),
            Self::Truncated => DraftFault::Truncated,
            Self::Malformed { message } => DraftFault::Malformed(message),
        };
        if usage == Usage::default() { fault } else { DraftFault::Charged(Box::new(fault), usage) }
    }
}

fn clean(words: &str) -> String {
    redacted_text(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_comes_back_as_it_was() {
        let usage = Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() };
        let words = || "down".to_owned();
        let wait = Some(Duration::from_millis(1500));
        for fault in [
            DraftFault::Unavailable(words()),
            DraftFault::Overloaded { message: words(), retry_after: None },
            DraftFault::RateLimited { message: words(), retry_after: wait },
            DraftFault::Rejected(words()),
            DraftFault::Auth(words()),
            DraftFault::Refused(words()),
            DraftFault::TimedOut(Duration::from_secs(9)),
            DraftFault::Truncated,
            DraftFault::Malformed(words()),
            DraftFault::Charged(Box::new(DraftFault::Truncated), usage),
        ] {
            let (kept, usage) = RecordedFault::of(&fault).unwrap();
            let text = serde_json::to_string(&kept).unwrap();
            let back: RecordedFault = serde_json::from_str(&text).unwrap();
            assert_eq!(back.into_fault(usage), fault, "{text}");
        }
        assert_eq!(RecordedFault::of(&DraftFault::Cancelled), None);
    }
}
