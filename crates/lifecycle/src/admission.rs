//! How a new program replaces the one that runs: only by proving itself.
//!
//! The accepted calls that are kept of an artifact are its *corpus*: what a pure program was called with, what it
//! read, and a digest of its result. A later version must reproduce them, after the reply, before it takes over. Until
//! then, and if it fails, it stays a candidate beside the incumbent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::artifact::{Artifact, RunVerdict, Trigger};
use crate::context::{Context, ContextChanges};
use crate::contract::canonical;
use crate::execution::ReportEnding;
use crate::outcome::Failure;
use crate::program::{VettedProgram, hex};
use crate::purity::is_pure;
use crate::redact::redacted;
use crate::request::{Arguments, CallRequest};
use crate::select::Miss;

/// Calls kept of one artifact, each with other inputs.
pub const MAX_CASES: u32 = 16;
/// Successes after which no more calls are sampled: a stored call then costs nothing for it.
const SAMPLED_SUCCESSES: u32 = 256;
/// JSON text of the inputs of one kept call.
const MAX_INPUT_BYTES: usize = 4 * 1024;
/// JSON text of an outcome worth digesting.
const MAX_OUTCOME_BYTES: usize = 64 * 1024;

/// The version that runs when a new program is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incumbent {
    /// Why it could not be selected; `None`: it could.
    pub miss: Option<Miss>,
    /// Whether it was pinned.
    pub pinned: bool,
    /// Recorded calls that its successors must reproduce.
    pub cases: u32,
    /// Whether a newer version that did not take over gave a value.
    pub has_answered_trial: bool,
}

impl Incumbent {
    /// The same, with no recorded calls that bind its successors.
    pub(crate) fn unrecorded(self) -> Self {
        Self { cases: 0, ..self }
    }
}

/// What becomes of a new program that just worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// It runs from now on.
    TakesOver,
    /// It takes over once it has reproduced the recorded calls.
    AwaitsTrial,
    /// It is kept, and does not take over: the incumbent is pinned.
    KeptForPinned,
    /// It is kept, and does not take over: it could not be reused, the incumbent can.
    KeptForReusable,
    /// It is kept, and does not take over: nothing shows that it keeps the incumbent's answers. It has side effects, so
    /// recorded calls cannot be tried on it; or it was written for a caller's arguments, and no calls are recorded.
    KeptUntried,
    /// It is kept, and does not take over yet: a service may answer as the incumbent expects again.
    KeptOnTrial,
    /// It is kept, and does not take over: a person rejected the same text before.
    KeptRejected,
}

impl Admission {
    /// The wire name (`artifact_admission`).
    pub fn name(self) -> &'static str {
        match self {
            Self::TakesOver => "takes_over",
            Self::AwaitsTrial => "awaits_trial",
            Self::KeptForPinned => "kept_for_pinned",
            Self::KeptForReusable => "kept_for_reusable",
            Self::KeptUntried => "kept_untried",
            Self::KeptOnTrial => "kept_on_trial",
            Self::KeptRejected => "kept_rejected",
        }
    }
}

/// A new program, as far as its admission depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applicant {
    /// Whether it may serve other calls.
    pub reusable: bool,
    /// Whether its answers depend on arguments and memory alone.
    pub pure: bool,
    /// Why it was written.
    pub trigger: Trigger,
}

impl Applicant {
    /// Whether it was written because of the caller's arguments, not because the incumbent was wrong.
    fn widens(self) -> bool {
        self.trigger == Trigger::Widening
    }

    /// Whether this many recorded calls are enough to show that it keeps the incumbent's answers. A caller's mistake says
    /// nothing against the incumbent, so a program written because of one must reproduce a call.
    pub(crate) fn is_shown_by(self, cases: u32) -> bool {
        !self.widens() || cases > 0
    }
}

/// **The admission table.** What becomes of a new program that worked in its own call.
pub fn admit(new: Applicant, incumbent: Option<Incumbent>) -> Admission {
    match incumbent {
        None => Admission::TakesOver,
        Some(incumbent) if incumbent.pinned => Admission::KeptForPinned,
        Some(incumbent)
            if !new.reusable && matches!(incumbent.miss, None | Some(Miss::Degraded)) =>
        {
            Admission::KeptForReusable
        }
        Some(incumbent)
            if new.trigger == Trigger::AnswerChanged && !incumbent.has_answered_trial =>
        {
            Admission::KeptOnTrial
        }
        Some(incumbent) if !new.is_shown_by(incumbent.cases) => Admission::KeptUntried,
        Some(incumbent) if !new.widens() && (incumbent.miss.is_some() || incumbent.cases == 0) => {
            Admission::TakesOver
        }
        Some(_) if new.pure => Admission::AwaitsTrial,
        Some(_) => Admission::KeptUntried,
    }
}

/// What one accepted call was given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// By position.
    pub args: Vec<Value>,
    /// By name.
    pub kwargs: Map<String, Value>,
    /// The memory its program used.
    pub context: Map<String, Value>,
}

impl Inputs {
    /// The same inputs have the same digest, whatever the order of their keys.
    pub fn digest(&self) -> String {
        digest(&json!(self))
    }

    /// Whether these are the arguments of a call, and the memory it starts from where some is given.
    pub fn are_of(&self, request: &CallRequest) -> bool {
        let arguments = &request.arguments;
        let remembers = |(key, value): (&String, &Value)| request.context.get(key) == Some(value);
        self.args == arguments.args
            && self.kwargs == arguments.kwargs
            && self.context.iter().all(remembers)
    }

    /// The call again, in place of `request`'s own inputs.
    pub fn again(&self, request: &CallRequest) -> CallRequest {
        CallRequest {
            arguments: Arguments { args: self.args.clone(), kwargs: self.kwargs.clone() },
            context: Context::restored(1, self.context.clone()),
            ..request.clone()
        }
    }
}

/// The result of a call, in a form that can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// A value, or a truthful error.
    pub verdict: RunVerdict,
    /// Of the value and what was written to memory; of the error's type.
    pub digest: String,
}

impl Observed {
    /// The result of running a program; `None`: nothing that could be accepted.
    pub fn of_report(ending: &ReportEnding, changes: &ContextChanges) -> Option<Self> {
        match ending {
            ReportEnding::Value(value) => Some(Self::of_value(value, changes)),
            ReportEnding::Reported { reported, .. } => {
                Some(Self::of_error(&reported.clone().bounded().code))
            }
            ReportEnding::Raised { .. }
            | ReportEnding::Looked(_)
            | ReportEnding::Malformed(_)
            | ReportEnding::Unserializable { .. }
            | ReportEnding::Exited { .. }
            | ReportEnding::Limited(..) => None,
        }
    }

    pub(crate) fn of_value(value: &Value, changes: &ContextChanges) -> Self {
        let mut unset = changes.unset.clone();
        unset.sort_unstable();
        let seen = json!({"value": value, "set": changes.set, "unset": unset});
        Self { verdict: RunVerdict::Succeeded, digest: digest(&seen) }
    }

    pub(crate) fn of_error(code: &str) -> Self {
        Self { verdict: RunVerdict::Answered, digest: digest(&json!({"error": code})) }
    }
}

/// An accepted call that later versions must reproduce.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// What it was given.
    pub inputs: Inputs,
    /// Its result.
    pub observed: Observed,
}

impl Case {
    /// The accepted call as a case, unless it cannot be run again alone, is too large, or holds a secret.
    pub(crate) fn of(
        request: &CallRequest,
        program: &VettedProgram,
        result: &Result<Value, Failure>,
        changes: &ContextChanges,
    ) -> Option<Self> {
        if !is_pure(program) {
            return None;
        }
        let used = program.inspection().context.iter();
        let read: Vec<(&str, &Value)> = used
            .filter_map(|used| Some((used.key.as_str(), request.context.get(&used.key)?)))
            .collect();
        let Arguments { args, kwargs } = &request.arguments;
        let mut room = MAX_INPUT_BYTES;
        let given = args.iter().chain(kwargs.values()).chain(read.iter().map(|(_, value)| *value));
        let fit =
            given.into_iter().all(|value| fits(value, &mut room)) && outcome_fits(result, changes);
        if !fit {
            return None;
        }
        let context =
            read.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let inputs = Inputs { args: args.clone(), kwargs: kwargs.clone(), context };
        let plain = json!(inputs);
        let observed = match result {
            Ok(value) => Observed::of_value(value, changes),
            Err(failure) => Observed::of_error(failure.kind.code()),
        };
        (redacted(plain.clone()) == plain).then_some(Self { inputs, observed })
    }
}

/// Whether one more call of a stored program is sampled.
pub(crate) fn is_sampled(artifact: &Artifact) -> bool {
    artifact.track_record.cases < MAX_CASES && artifact.successes < SAMPLED_SUCCESSES
}

fn outcome_fits(result: &Result<Value, Failure>, changes: &ContextChanges) -> bool {
    let mut room = MAX_OUTCOME_BYTES;
    result.iter().chain(changes.set.values()).all(|value| fits(value, &mut room))
}

/// Whether a value's text is about as small as it must be, without walking more of it than that.
fn fits(value: &Value, room: &mut usize) -> bool {
    let own = match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(number) => number.as_str().len(),
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.len() + 2,
        Value::Object(fields) => {
            fields.keys().take(*room).map(|key| key.len() + 4).sum::<usize>() + 2
        }
    };
    let Some(left) = room.checked_sub(own) else { return false };
    *room = left;
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, room)),
        Value::Object(fields) => fields.values().all(|item| fits(item, room)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn digest(value: &Value) -> String {
    hex(&Sha256::digest(canonical(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_call_is_small_whatever_it_is_made_of() {
        let digits = |count: usize| serde_json::from_str::<Value>(&"9".repeat(count)).unwrap();
        for (value, expected) in [
            (digits(100), true),
            (digits(MAX_INPUT_BYTES + 1), false),
            (json!("x".repeat(MAX_INPUT_BYTES)), false),
            (json!(vec![1; MAX_INPUT_BYTES]), false),
            (json!({"x".repeat(MAX_INPUT_BYTES): 1}), false),
            (json!({"a": [1, "two", null, {"b": true}]}), true),
        ] {
            let mut room = MAX_INPUT_BYTES;
            assert_eq!(fits(&value, &mut room), expected, "{} bytes", value.to_string().len());
        }
    }
}
