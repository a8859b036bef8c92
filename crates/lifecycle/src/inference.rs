//! Language work: what a program asks a model about data (`infer` in guests).
//!
//! One question has one item of data or a list of items, which are asked about in batches. Decided here: the bounds of
//! a question, what is sent, what counts as an answer, what is asked again, and what is kept. `recurgent` performs what
//! an [`InferStep`] names, as it does for calls.

mod question;
mod reply;
mod sent;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::attempt::Reason;
use crate::draft::{Draft, DraftFault, Usage};
use crate::event::EventKind;
use crate::excerpt::shortened;
use crate::outcome::{Failure, FailureKind};
use crate::program::Checksum;
use crate::prompt::{Prompt, PromptForm};
use crate::redact::NamedSecrets;
use crate::spending::allowance_spent;

pub use question::{MAX_DATA_BYTES, MAX_INSTRUCTION_BYTES, MAX_ITEMS, Question, QuestionFault};
pub use reply::read_reply;

/// Items of one batch for a model that answers with JSON.
const BATCH_ITEMS: usize = 25;
/// Items of one batch for a small model, which loses count of several.
const SMALL_BATCH_ITEMS: usize = 1;
/// Bytes of the items of one batch; one item alone may have more.
const BATCH_BYTES: usize = 24 * 1024;
/// The first wait after a transport fault; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Characters of what was wrong with an answer, as a retry and a failure show it.
const MAX_PROBLEM_CHARS: usize = 400;
/// Bytes of an answer that is kept for later calls.
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// How a question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InferPolicy {
    /// How often items are asked about again after answers that cannot be used (`infer_retries`).
    pub retries: u32,
    /// How often the service is asked again after it failed (`transport_retries`).
    pub transport_retries: u32,
    /// The longest wait before that.
    pub max_retry_delay: Duration,
    /// What the model answers with.
    pub form: PromptForm,
}

/// What happens next to a question.
#[derive(Debug)]
pub enum InferStep {
    /// Ask the model.
    Ask(Box<InferAsk>),
    /// The question is answered, or cannot be.
    Ended(Box<EndedInference>),
}

/// A question whose answers are not complete.
#[derive(Debug)]
struct Inference {
    question: Question,
    policy: InferPolicy,
    secrets: NamedSecrets,
    keys: Vec<Checksum>,
    answers: BTreeMap<Checksum, Value>,
    /// Items that are asked about next, none twice.
    queue: VecDeque<usize>,
    /// Items whose answers could not be used.
    unfit: Vec<usize>,
    /// Why the last of those answers could not be used.
    problem: Option<Problem>,
    round: u32,
    batch_items: usize,
    transport_faults: u32,
    pause: Duration,
    new: Vec<Checksum>,
    record: InferenceRecord,
}

/// Why an answer cannot be used.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    message: String,
    metadata: Map<String, Value>,
}

/// Ask the model about one batch of items.
#[derive(Debug)]
pub struct InferAsk {
    inference: Inference,
    batch: Vec<usize>,
}

/// A question that has ended.
#[derive(Debug)]
pub struct EndedInference {
    /// The answer; a list of answers to a list of items.
    pub result: Result<Value, FailedInference>,
    /// For the log.
    pub record: InferenceRecord,
    /// Answers for the cache.
    pub kept: Vec<KeptAnswer>,
}

/// Why a question has no answer: the failure of the call, if the program does not handle it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedInference {
    /// Its row in the retry table.
    pub reason: Reason,
    /// What the program and the caller get.
    pub failure: Failure,
}

/// An answer that later calls may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// Digest of instruction, data, schema and model.
    pub key: Checksum,
    /// The answer.
    pub answer: Value,
}

/// What the log says of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferenceRecord {
    /// Digest of instruction, data, schema and model.
    pub digest: Checksum,
    /// The beginning of the instruction.
    pub instruction: String,
    /// The model.
    pub model: String,
    /// Items asked about.
    pub items: usize,
    /// Items whose answers were kept from earlier.
    pub cached: usize,
    /// Requests to the model.
    pub model_calls: u32,
    /// What they cost.
    pub usage: Usage,
    /// Time in all.
    pub duration: Duration,
    /// The code of its failure.
    pub failure: Option<String>,
}

/// The questions that one run asked a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inferred {
    /// Every question, in order.
    pub records: Vec<InferenceRecord>,
    /// The last question, if it failed.
    pub failed: Option<FailedInference>,
    /// Answers for the cache.
    pub kept: Vec<KeptAnswer>,
}

impl Inferred {
    /// Adds a question that has ended.
    pub fn add(&mut self, ended: EndedInference) -> Result<Value, Box<Failure>> {
        self.records.push(ended.record);
        self.kept.extend(ended.kept);
        self.failed = ended.result.as_ref().err().cloned();
        ended.result.map_err(|failed| Box::new(failed.failure))
    }

    /// Requests to the model.
    pub fn model_calls(&self) -> u32 {
        self.records.iter().map(|record| record.model_calls).sum()
    }

    /// What they cost.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        self.records.iter().for_each(|record| sum += record.usage);
        sum
    }
}

/// Begins with a question for `model`. `secrets` are removed from what is sent.
pub fn begin(
    question: Question,
    model: &str,
    policy: InferPolicy,
    secrets: NamedSecrets,
    known: impl FnOnce(&[Checksum]) -> BTreeMap<Checksum, Value>,
) -> InferStep {
    let keys = question.keys(model);
    let answers = known(&keys);
    let mut seen = std::collections::BTreeSet::new();
    let is_open = |key: &Checksum| !answers.contains_key(key) && seen.insert(key.clone());
    let open: Vec<bool> = keys.iter().map(is_open).collect();
    let queue = open.iter().enumerate().filter_map(|(at, open)| open.then_some(at)).collect();
    let record = InferenceRecord {
        digest: question.digest(model),
        instruction: question.shown_instruction(&secrets),
        model: model.to_owned(),
        items: keys.len(),
        cached: keys.iter().filter(|key| answers.contains_key(key)).count(),
        model_calls: 0,
        usage: Usage::default(),
        duration: Duration::ZERO,
        failure: None,
    };
    let batch_items = match policy.form {
        PromptForm::Payload => BATCH_ITEMS,
        PromptForm::Program => SMALL_BATCH_ITEMS,
    };
    Inference {
        question,
        policy,
        secrets,
        keys,
        answers,
        queue,
        unfit: Vec::new(),
        problem: None,
        round: 0,
        batch_items,
        transport_faults: 0,
        pause: Duration::ZERO,
        new: Vec::new(),
        record,
    }
    .next()
}

impl Inference {
    fn next(mut self) -> InferStep {
        if self.queue.is_empty() {
            if self.unfit.is_empty() {
                return self.finish_with_answers();
            }
            if self.round >= self.policy.retries {
                return self.give_up();
            }
            self.round += 1;
            self.queue = std::mem::take(&mut self.unfit).into();
        }
        let batch = self.take_batch();
        InferStep::Ask(Box::new(InferAsk { inference: self, batch }))
    }

    /// The next items, within the bounds of a batch.
    fn take_batch(&mut self) -> Vec<usize> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(item) = self.queue.front().copied() {
            bytes += self.question.item_bytes(item);
            if !batch.is_empty() && (bytes > BATCH_BYTES || batch.len() >= self.batch_items) {
                break;
            }
            batch.push(item);
            self.queue.pop_front();
        }
        batch
    }

    fn finish_with_answers(self) -> InferStep {
        let answer = |key: &Checksum| self.answers.get(key).cloned().unwrap_or_default();
        let mut answers: Vec<Value> = self.keys.iter().map(answer).collect();
        let value = if self.question.is_many() {
            Value::Array(answers)
        } else {
            answers.pop().unwrap_or_default()
        };
        self.ended(Ok(value))
    }

    /// Some answers could not be used, however often the model was asked.
    fn give_up(self) -> InferStep {
        let problem = self.problem.clone().unwrap_or_else(|| Problem::new("there was no answer"));
        let (unfit, items) = (self.unfit.len(), self.keys.len());
        let which = match (unfit, items) {
            (_, 1) => "the model's answer cannot be used".to_owned(),
            (unfit, items) => {
                format!("the model's answers to {unfit} of {items} items cannot be used")
            }
        };
        let message = format!(
            "{which}: {} Ask about less data at a time, or for something simpler",
            problem.message
        );
        let failure = Failure::new(FailureKind::InferFailed, message)
            .with("unfit_items", unfit)
            .with("infer_attempts", self.round + 1);
        let metadata = problem.metadata.into_iter().chain(failure.metadata).collect();
        let failure = Failure { metadata, ..failure };
        self.ended(Err(FailedInference { reason: Reason::AnswerUnfit, failure }))
    }

    fn ended(mut self, result: Result<Value, FailedInference>) -> InferStep {
        let kept = |key: Checksum| {
            let answer = self.answers.get(&key)?.clone();
            let is_small = crate::request::encoded_bytes(&answer) <= MAX_KEPT_BYTES;
            is_small.then_some(KeptAnswer { key, answer })
        };
        let kept = std::mem::take(&mut self.new).into_iter().filter_map(kept).collect();
        let failed = result.as_ref().err();
        self.record.failure = failed.map(|failed| failed.failure.kind.code().to_owned());
        InferStep::Ended(Box::new(EndedInference { result, record: self.record, kept }))
    }

    /// Keeps each usable answer of a reply; the other items wait for the next round.
    fn take_reply(mut self, batch: &[usize], payload: &Value) -> InferStep {
        let answers = reply::answers(&self.question, payload, batch.len());
        for (item, answer) in batch.iter().zip(answers) {
            match (answer, self.keys.get(*item)) {
                (Ok(answer), Some(key)) => {
                    self.answers.insert(key.clone(), answer);
                    self.new.push(key.clone());
                }
                (Err(problem), _) => {
                    self.unfit.push(*item);
                    self.problem = Some(problem);
                }
                (Ok(_), None) => {}
            }
        }
        self.next()
    }

    /// A model that failed: it is asked again after a wait, or in smaller batches, or the question ends.
    fn take_fault(mut self, batch: Vec<usize>, fault: DraftFault) -> InferStep {
        let retry_after = fault.retry_after();
        let (fault, _) = fault.into_parts();
        let is_truncated = fault == DraftFault::Truncated;
        if is_truncated && batch.len() > 1 {
            self.batch_items = batch.len() / 2;
            self.requeue(batch);
            return self.next();
        }
        let (reason, failure) = fault.judged();
        if is_truncated || reason == Reason::PayloadInvalid {
            let problem = if is_truncated {
                "it was cut off at the output limit."
            } else {
                failure.message.as_str()
            };
            self.unfit.extend(batch);
            self.problem = Some(Problem::new(problem));
            return self.next();
        }
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.transport_faults.min(16));
        let pause = retry_after.unwrap_or(doubled.min(self.policy.max_retry_delay));
        let may_retry = reason.is_transport()
            && self.transport_faults < self.policy.transport_retries
            && pause <= self.policy.max_retry_delay;
        if may_retry {
            self.transport_faults += 1;
            self.pause = pause;
            self.requeue(batch);
            return self.next();
        }
        self.ended(Err(unanswered(reason, failure)))
    }

    fn requeue(&mut self, batch: Vec<usize>) {
        for item in batch.into_iter().rev() {
            self.queue.push_front(item);
        }
    }
}

/// The failure of a question that a model did not answer. Failures of the call tree and of the runtime stay what they
/// are.
fn unanswered(reason: Reason, failure: Failure) -> FailedInference {
    if reason == Reason::GenerationOff {
        let message = "the program asks a model about data, and generate = false forbids asking a model; run it \
                       once without --frozen: its answers are kept";
        return FailedInference {
            reason,
            failure: Failure { message: message.to_owned(), ..failure },
        };
    }
    let is_unchanged = matches!(
        reason,
        Reason::AllowanceSpent
            | Reason::Cancelled
            | Reason::ReplayDiverged
            | Reason::StoreDown
            | Reason::ProviderAuth
    );
    if is_unchanged {
        return FailedInference { reason, failure };
    }
    let message =
        format!("the model did not answer a question of the program: {}", failure.message);
    let code = failure.kind.code().to_owned();
    let failure = Failure { kind: FailureKind::InferFailed, message, ..failure };
    FailedInference {
        reason: Reason::InferFailed,
        failure: failure.with("provider_error_type", code),
    }
}

impl InferAsk {
    /// What is sent.
    pub fn prompt(&self) -> Prompt {
        let Inference { question, problem, policy, secrets, round, .. } = &self.inference;
        let problem = problem.as_ref().filter(|_| *round > 0).map(|it| it.message.as_str());
        sent::prompt(question, &self.batch, problem, policy.form, secrets)
    }

    /// The JSON Schema of the answer, in words that every service knows; `None`: any text is an answer.
    pub fn schema(&self) -> Option<Value> {
        sent::schema(&self.inference.question, self.inference.policy.form)
    }

    /// The event of asking.
    pub fn event(&self) -> EventKind {
        let instruction = self.inference.record.instruction.clone();
        EventKind::Inferring { instruction, items: self.batch.len() }
    }

    /// How long to wait first.
    pub fn pause(&self) -> Duration {
        self.inference.pause
    }

    /// Whether an earlier answer could not be used.
    pub fn is_retry(&self) -> bool {
        self.inference.round > 0
    }

    /// The sampling seed; it differs in each round.
    pub fn seed(&self) -> u64 {
        u64::from(self.inference.round)
    }

    /// The model's reply, and how long it took with the wait before it.
    pub fn reply_received(self, reply: Result<Draft, DraftFault>, took: Duration) -> InferStep {
        let Self { mut inference, batch } = self;
        inference.pause = Duration::ZERO;
        let record = &mut inference.record;
        record.duration += took;
        record.model_calls += u32::from(reply.as_ref().err().is_none_or(DraftFault::was_asked));
        match reply {
            Ok(draft) => {
                record.usage += draft.usage;
                inference.transport_faults = 0;
                inference.take_reply(&batch, &draft.payload)
            }
            Err(fault) => {
                if let DraftFault::Charged(_, usage) = &fault {
                    record.usage += *usage;
                }
                inference.take_fault(batch, fault)
            }
        }
    }
}

impl Problem {
    fn new(message: &str) -> Self {
        Self { message: shortened(message, MAX_PROBLEM_CHARS), metadata: Map::new() }
    }
}

/// The fault of a program that has used up the model calls that one run may make by `infer`.
pub fn run_limit_reached(limit: u32) -> DraftFault {
    let what = format!(
        "made {limit} model calls by `infer` in one run of a program, and its allowance is {limit}; ask about fewer \
         items in one call, or raise max_infer_calls"
    );
    allowance_spent("infer_calls", (json!(limit), json!(limit)), &what)
}

/// The refusal of a question whose agent may not show values to a model.
pub fn values_withheld() -> FailedInference {
    let grant = "--model-sees values";
    let message = format!(
        "the program asks a model about data, and this agent's values may not be sent to its model; allow it with \
         `{grant}`"
    );
    let failure = Failure::new(FailureKind::UnsupportedCapability, message).with("grant", grant);
    FailedInference { reason: Reason::OutsideChosen, failure }
}

#[cfg(test)]
mod tests;
