//! Asking a model for a program, and reading what it answers.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::agreement::MAX_CANDIDATES;
use crate::attempt::{Origin, Rejection};
use crate::dialect::{self, Signature};
use crate::draft::{Draft, DraftFault};
use crate::event::EventKind;
use crate::guardrail::SiblingState;
use crate::judgement::invalid_payload;
use crate::program::{GeneratedProgram, PayloadFault};
use crate::prompt::{self, Prompt, PromptContext, PromptForm};
use crate::request::CallRequest;

use super::{Call, PendingAttempt, Step};

/// The first wait after a transport fault; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Metadata of a failure: milliseconds the service asked us to wait.
const RETRY_AFTER: &str = "retry_after_ms";
/// The longest such wait that is reported, in milliseconds.
const LONGEST_ASKED: u128 = 24 * 60 * 60 * 1000;

/// Ask a model for a program.
#[derive(Debug)]
pub struct Generate {
    pub(super) call: Call,
    pub(super) origin: Origin,
    pub(super) feedback: Option<Value>,
}

impl Generate {
    /// The call to generate for.
    pub fn request(&self) -> &CallRequest {
        &self.call.request
    }

    /// The prompt, built only now that a model will read it. The answer is checked against the state of other methods
    /// and setters that the prompt shows.
    pub fn prompt(&mut self, prompt_context: &PromptContext, form: PromptForm) -> Prompt {
        let request = &self.call.request;
        self.call.siblings = [prompt_context.siblings.clone(), setters(request)].concat();
        self.call.rejected.clone_from(&prompt_context.rejections);
        let looked = (!self.call.looks.is_empty())
            .then(|| PromptContext { looks: self.call.looks.clone(), ..prompt_context.clone() });
        let prompt_context = looked.as_ref().unwrap_or(prompt_context);
        prompt::build(request, prompt_context, self.feedback.as_ref(), form)
    }

    /// What the stored program that is replaced takes: its parameter names are kept.
    pub fn earlier_signature(&self) -> Option<Signature> {
        let artifact = self.call.selected.as_ref().ok()?;
        let found = dialect::inspect(artifact.language, &artifact.code).ok()?;
        found.function(artifact.language, self.call.request.method.as_str())?.signature.clone()
    }

    /// How long to wait first: the service asked for it, or the last tries failed in transport.
    pub fn pause(&self) -> Duration {
        let last = self.call.attempts.last().and_then(|attempt| attempt.rejection.as_ref());
        let Some(rejection) = last.filter(|rejection| rejection.reason.is_transport()) else {
            return Duration::ZERO;
        };
        let transport = self.call.attempts.iter().filter_map(|attempt| attempt.rejection.as_ref());
        let faults = transport.filter(|rejection| rejection.reason.is_transport()).count();
        let doubled = FIRST_PAUSE.saturating_mul(1 << faults.saturating_sub(1).min(16));
        asked_wait(rejection).unwrap_or(doubled.min(self.call.policy.max_retry_delay))
    }

    /// The event of a wait before the model is asked again.
    pub fn waiting(&self) -> EventKind {
        let last = self.call.attempts.last().and_then(|attempt| attempt.rejection.as_ref());
        EventKind::Waiting {
            wait: self.pause(),
            why: last.map(|rejection| rejection.failure.message.clone()).unwrap_or_default(),
        }
    }

    /// Whether the prompt has feedback on an earlier program.
    pub fn has_feedback(&self) -> bool {
        self.feedback.is_some()
    }

    /// How many programs to ask for: several only where none is stored. `usual` is what the provider asks for.
    pub fn candidates(&self, usual: u32) -> usize {
        let wanted = match self.origin {
            Origin::Fresh => self.call.policy.candidates.unwrap_or(usual).clamp(1, MAX_CANDIDATES),
            Origin::Repair { .. } | Origin::Artifact(_) => 1,
        };
        usize::try_from(wanted).unwrap_or(1)
    }

    /// A number for a model that samples: another one for each attempt, the same whenever the call is replayed.
    pub fn seed(&self) -> u64 {
        let text = format!("{} {}", self.call.request.id, self.call.attempts.len());
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().take(8).fold(0, |seed, byte| (seed << 8) | u64::from(*byte))
    }

    /// The event of asking the model.
    pub fn event(&self) -> EventKind {
        EventKind::Generating {
            attempt: self.call.attempts.len() + 1,
            with_feedback: self.feedback.is_some(),
        }
    }

    /// The model's answer: parsed, vetted, and prepared for, or rejected.
    pub fn generated(self, reply: Result<Draft, DraftFault>, took: Duration) -> Step {
        self.generated_all(vec![reply], took)
    }

    /// The model's answers, sampled independently: the first is tried, and the others are compared with it, or tried in
    /// its place if it is rejected. The call has a fault only if every answer has one.
    pub fn generated_all(self, replies: Vec<Result<Draft, DraftFault>>, took: Duration) -> Step {
        let Self { mut call, origin, feedback } = self;
        let mut first_fault = None;
        call.waiting.clear();
        for reply in replies {
            call.model_calls += u32::from(reply.as_ref().err().is_none_or(DraftFault::was_asked));
            match reply {
                Ok(draft) => {
                    call.usage += draft.usage;
                    call.waiting.push_back(draft.payload);
                }
                Err(fault) => {
                    let retry_after =
                        fault.retry_after().map(|wait| wait.as_millis().min(LONGEST_ASKED));
                    let (fault, usage) = fault.into_parts();
                    call.usage += usage;
                    first_fault.get_or_insert((fault, retry_after));
                }
            }
        }
        let pending = PendingAttempt {
            origin,
            feedback,
            took,
            generation: took,
            ..PendingAttempt::default()
        };
        if let Some(payload) = call.waiting.pop_front() {
            return call.try_payload(payload, pending);
        }
        let no_reply = || (DraftFault::Malformed("the model gave no answer".to_owned()), None);
        let (fault, retry_after) = first_fault.unwrap_or_else(no_reply);
        let (reason, mut failure) = fault.judged();
        failure.metadata.extend(retry_after.map(|ms| (RETRY_AFTER.to_owned(), json!(ms))));
        call.reject(pending, &Rejection::new(reason, failure))
    }
}

impl Call {
    /// Reads a payload and vets its program.
    pub(super) fn try_payload(self, payload: Value, mut pending: PendingAttempt) -> Step {
        pending.packages.declared = declared(&payload);
        match GeneratedProgram::parse(self.request.language, &payload) {
            Ok(program) => self.vet(program, pending, &[]),
            Err(fault) => {
                pending.code = code_of(&fault, payload);
                let rejection = invalid_payload(&fault);
                self.reject(pending, &rejection)
            }
        }
    }
}

/// Every memory key counts as written by a setter: its writer is not known here.
fn setters(request: &CallRequest) -> Vec<SiblingState> {
    let setter = |(key, _): (&str, &Value)| SiblingState {
        method: format!("{key}="),
        reads: Vec::new(),
        writes: vec![key.to_owned()],
    };
    request.context.iter().map(setter).collect()
}

/// A payload's own list of packages, as it came; a program without one declares none.
fn declared(payload: &Value) -> Option<Value> {
    let fields = payload.as_object()?;
    Some(fields.get("dependencies").cloned().unwrap_or_else(|| Value::Array(Vec::new())))
}

/// The text of a payload that was rejected for its dependencies: it is evidence.
fn code_of(fault: &PayloadFault, mut payload: Value) -> Option<String> {
    match (fault, payload.get_mut("code").map(Value::take)) {
        (PayloadFault::Manifest(_), Some(Value::String(code))) => Some(code),
        _ => None,
    }
}

/// How long the service asked us to wait before trying again.
pub(super) fn asked_wait(rejection: &Rejection) -> Option<Duration> {
    let asked = rejection.failure.metadata.get(RETRY_AFTER).and_then(Value::as_u64);
    asked.map(Duration::from_millis)
}
