//! One call as a state machine: each step owns the call, each answer consumes its step.
//!
//! The shell performs what a step names and hands the answer back, until [`Commit`] gives the outcome.
//! Nothing here performs anything, and every sequence of answers ends.
//!
//! ```compile_fail
//! # use lifecycle::call::Recall;
//! # use lifecycle::call::Memory;
//! fn answer_twice(recall: Recall, memory: Memory) {
//!     let first = recall.recalled(Ok(memory.clone()));
//!     let second = recall.recalled(Ok(memory)); // `recall` was consumed
//! }
//! ```

mod commit;
mod prepare;

use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;

use crate::artifact::Artifact;
use crate::attempt::{self, Attempt, Budgets, Next, Origin, Reason, Rejection, RetryLane, spent};
use crate::dependency::{DependencyPolicy, ManifestMode};
use crate::draft::{Draft, DraftFault, Usage};
use crate::event::EventKind;
use crate::execution::{Output, Packages, WorkerTrace};
use crate::guardrail::{GuardrailPolicy, SiblingState};
use crate::judgement::{barred, fit, malformed, undrafted};
use crate::outcome::{Cause, Failure, FailureKind, Outcome};
use crate::pattern::{self, Capabilities, PatternEvent};
use crate::program::{Checksum, GeneratedProgram, VetFault, VettedProgram, vet};
use crate::prompt::{Prompt, Surroundings};
use crate::request::CallRequest;
use crate::select::{Miss, select};
use crate::settlement::{Accepted, Receipt};
use crate::standing::StandingMode;

pub use commit::{Commit, Settled};
pub use prepare::{Execute, Prepare};

/// Repairs of one stored program before it is written from nothing again.
const REPAIRS_PER_LINEAGE: u32 = 3;
/// The first wait after a transport fault; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest wait between two model calls.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Metadata of a failure: milliseconds the service asked us to wait.
const RETRY_AFTER: &str = "retry_after_ms";
/// The longest such wait that is told.
const MILLIS: u128 = 24 * 60 * 60 * 1000;
/// What a top-level caller is told when guardrails could not be satisfied.
pub const BOUNDARY_MESSAGE: &str = "This request couldn't be completed after multiple attempts.";

/// What the embedding program may tune.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Retries per lane.
    pub budgets: Budgets,
    /// Which rules hold, and how hard.
    pub guardrails: GuardrailPolicy,
    /// Which packages this call's guest may have, and from where.
    pub dependencies: DependencyPolicy,
    /// Whether an agent's packages may change after its first success.
    pub manifest_mode: ManifestMode,
    /// Whether standings decide what runs.
    pub standing_mode: StandingMode,
}

/// What the store knew before the call.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Programs stored for this role, method and language.
    pub artifacts: Vec<Artifact>,
    /// The last call of this role and method on the same trace, for a call at the root.
    pub earlier: Option<PatternEvent>,
}

/// Why the store could not answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreFault {
    /// It cannot be read or written.
    #[error("{0}")]
    Unavailable(String),
    /// Another process changed this session's memory meanwhile.
    #[error("session {session:?} was changed by another process during this call; run it again")]
    Conflict {
        /// The session.
        session: String,
    },
}

impl StoreFault {
    pub(crate) fn into_failure(self) -> Failure {
        let kind = match &self {
            Self::Unavailable(_) => FailureKind::StoreUnavailable,
            Self::Conflict { .. } => FailureKind::ContextConflict,
        };
        Failure::new(kind, self.to_string())
    }
}

/// What the shell must do next.
#[derive(Debug)]
#[expect(missing_docs, reason = "each step documents itself")]
pub enum Step {
    Recall(Box<Recall>),
    Generate(Box<Generate>),
    Prepare(Box<Prepare>),
    Execute(Box<Execute>),
    Commit(Box<Commit>),
}

impl Step {
    /// The call this step belongs to.
    pub fn request(&self) -> &CallRequest {
        &self.call().request
    }

    /// Every try so far, in order.
    pub fn attempts(&self) -> &[Attempt] {
        &self.call().attempts
    }

    fn call(&self) -> &Call {
        match self {
            Self::Recall(recall) => &recall.0,
            Self::Generate(generate) => &generate.call,
            Self::Prepare(prepare) => &prepare.call,
            Self::Execute(execute) => &execute.call,
            Self::Commit(commit) => &commit.call,
        }
    }
}

/// Everything known of a call so far.
#[derive(Debug)]
struct Call {
    request: CallRequest,
    policy: Policy,
    attempts: Vec<Attempt>,
    selected: Result<Artifact, Miss>,
    /// The state other methods keep, as the last prompt told it.
    siblings: Vec<SiblingState>,
    /// A program sent back for its style: it runs after all when nothing better comes.
    advised: Option<Box<Advised>>,
    /// What was asked before it, if this may correct it.
    earlier: Option<PatternEvent>,
    usage: Usage,
    model_calls: u32,
}

/// A program that may run as it is, and would rather be better.
#[derive(Debug)]
struct Advised {
    program: VettedProgram,
    origin: Origin,
    declared: Option<Value>,
}

/// Ends a call before it begins: its agent is not ready.
pub fn refused(request: CallRequest, policy: Policy, failure: Failure) -> Step {
    let failure = failure
        .with("specialist_role", request.role.as_str())
        .with("method_name", request.method.as_str());
    Call::new(request, policy).end(Err(failure), None)
}

/// Begins a call.
pub fn begin(request: CallRequest, policy: Policy) -> Step {
    let depth = request.lineage.depth();
    let limit = request.allowance.depth;
    let call = Call::new(request, policy);
    if depth > limit {
        let message = format!(
            "delegation is {depth} levels deep and the allowance is {limit}; answer here instead of delegating further, or raise the depth"
        );
        let failure = Failure::new(FailureKind::BudgetExceeded, message)
            .with("budget", "depth")
            .with("limit", limit)
            .with("spent", depth);
        return call.end(Err(failure), None);
    }
    Step::Recall(Box::new(Recall(call)))
}

/// Ask the store what it knows.
#[derive(Debug)]
pub struct Recall(Call);

impl Recall {
    /// The call to recall for.
    pub fn request(&self) -> &CallRequest {
        &self.0.request
    }

    /// The store's answer: a stored program runs, or a model is asked.
    pub fn recalled(self, memory: Result<Memory, StoreFault>) -> Step {
        let Self(mut call) = self;
        let memory = match memory {
            Ok(memory) => memory,
            Err(fault) => return call.end(Err(fault.into_failure()), None),
        };
        call.earlier = memory.earlier;
        call.selected = select(memory.artifacts, &call.request, call.policy.standing_mode);
        match call.selected.clone() {
            Ok(artifact) => call.run_stored(artifact),
            Err(_) => call.generate(Origin::Fresh, None),
        }
    }
}

/// Ask a model for a program.
#[derive(Debug)]
pub struct Generate {
    call: Call,
    origin: Origin,
    feedback: Option<Value>,
}

impl Generate {
    /// The call to generate for.
    pub fn request(&self) -> &CallRequest {
        &self.call.request
    }

    /// What to send, built only now that a model will read it. What it says of state that other methods and
    /// setters keep, the answer is held to.
    pub fn prompt(&mut self, surroundings: &Surroundings) -> Prompt {
        let request = &self.call.request;
        self.call.siblings = [surroundings.siblings.clone(), setters(request)].concat();
        crate::prompt::build(request, surroundings, self.feedback.as_ref())
    }

    /// How long to wait first: the service asked for it, or the last tries failed in transport.
    pub fn pause(&self) -> Duration {
        let last = self.call.attempts.last().and_then(|attempt| attempt.rejection.as_ref());
        let Some(rejection) = last.filter(|rejection| rejection.reason.is_transport()) else {
            return Duration::ZERO;
        };
        let tries = spent(&self.call.attempts, RetryLane::Generation);
        let doubled = FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(16));
        asked_wait(rejection).unwrap_or(doubled.min(LONGEST_PAUSE))
    }

    /// Whether the model is told what was wrong with an earlier program.
    pub fn is_told(&self) -> bool {
        self.feedback.is_some()
    }

    /// What to tell observers.
    pub fn event(&self) -> EventKind {
        EventKind::Generating {
            attempt: self.call.attempts.len() + 1,
            with_feedback: self.feedback.is_some(),
        }
    }

    /// The model's answer: parsed, vetted, and prepared for, or rejected.
    pub fn generated(self, reply: Result<Draft, DraftFault>, took: Duration) -> Step {
        let Self { mut call, origin, feedback } = self;
        call.model_calls += u32::from(reply.as_ref().err().is_none_or(DraftFault::was_asked));
        let mut trial = Trial { origin, told: feedback, took, ..Trial::default() };
        let draft = match reply {
            Ok(draft) => draft,
            Err(fault) => {
                let retry_after = fault.retry_after().map(|wait| wait.as_millis().min(MILLIS));
                let (fault, usage) = fault.apart();
                call.usage += usage;
                let (reason, mut failure) = fault.judged();
                failure.metadata.extend(retry_after.map(|ms| (RETRY_AFTER.to_owned(), json!(ms))));
                return call.reject(trial, &Rejection::new(reason, failure));
            }
        };
        call.usage += draft.usage;
        trial.packages.declared = declared(&draft.payload);
        match GeneratedProgram::parse(call.request.language, &draft.payload) {
            Ok(program) => call.vet(program, trial),
            Err(fault) => {
                let rejection = undrafted(&fault);
                call.reject(trial, &rejection)
            }
        }
    }
}

/// What is in memory was put there: by a method, or by a setter, which is all that is known of it here.
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

/// How long the service asked us to wait before trying again.
fn asked_wait(rejection: &Rejection) -> Option<Duration> {
    let asked = rejection.failure.metadata.get(RETRY_AFTER).and_then(Value::as_u64);
    asked.map(Duration::from_millis)
}

/// An attempt under way.
#[derive(Debug)]
struct Trial {
    origin: Origin,
    /// What the model was told went wrong before.
    told: Option<Value>,
    took: Duration,
    packages: Packages,
    capabilities: Capabilities,
    output: Output,
    worker: Option<WorkerTrace>,
    /// What the call ends as should this fail, too: it runs only because nothing better came.
    last_resort: Option<Box<Failure>>,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            origin: Origin::Fresh,
            told: None,
            took: Duration::ZERO,
            packages: Packages::default(),
            capabilities: Capabilities::default(),
            output: Output::default(),
            worker: None,
            last_resort: None,
        }
    }
}

impl Trial {
    fn ended(self, rejection: Option<Rejection>, code: Option<String>) -> Attempt {
        let Self { origin, told: _, took, packages, capabilities, output, worker, last_resort } =
            self;
        let last_resort = last_resort.is_some();
        Attempt {
            origin,
            rejection,
            code,
            packages,
            capabilities,
            output,
            worker,
            took,
            last_resort,
        }
    }
}

impl Call {
    fn new(request: CallRequest, policy: Policy) -> Self {
        Self {
            request,
            policy,
            attempts: Vec::new(),
            selected: Err(Miss::NoArtifact),
            siblings: Vec::new(),
            advised: None,
            earlier: None,
            usage: Usage::default(),
            model_calls: 0,
        }
    }

    fn generate(self, origin: Origin, feedback: Option<Value>) -> Step {
        Step::Generate(Box::new(Generate { call: self, origin, feedback }))
    }

    fn run_stored(self, artifact: Artifact) -> Step {
        let mut trial = Trial { origin: Origin::Artifact(artifact.checksum), ..Trial::default() };
        trial.packages.declared = Some(artifact.manifest.to_json());
        match artifact.manifest.readmitted(artifact.language) {
            Ok(manifest) => {
                let (language, source) = (artifact.language, artifact.code);
                self.vet(GeneratedProgram { language, source, manifest }, trial)
            }
            Err(fault) => self.reject(trial, &undrafted(&fault.into())),
        }
    }

    fn vet(mut self, program: GeneratedProgram, trial: Trial) -> Step {
        if let Some(rejection) = self.repeats(&program) {
            return self.reject(trial, &rejection);
        }
        // A stored program was held to its siblings when it was new.
        let siblings = match trial.origin {
            Origin::Artifact(_) => &[],
            Origin::Repair { .. } | Origin::Fresh => self.siblings.as_slice(),
        };
        match vet(program, &self.request, siblings, &self.policy.guardrails) {
            Ok(program) if self.sends_back(&program, &trial) => {
                let rejection = Rejection {
                    program: Some(program.program().clone()),
                    ..barred(program.advice().to_vec(), &self.policy.guardrails)
                };
                let (origin, declared) = (trial.origin.clone(), trial.packages.declared.clone());
                self.advised = Some(Box::new(Advised { program, origin, declared }));
                self.reject(trial, &rejection)
            }
            Ok(program) => self.prepare(program, trial),
            Err((program, fault)) => {
                let rejection = match fault {
                    VetFault::Syntax(fault) => malformed(&fault),
                    VetFault::Barred(violations) => barred(violations, &self.policy.guardrails),
                };
                self.reject(trial, &Rejection { program: Some(program), ..rejection })
            }
        }
    }

    /// Nothing is prepared for a program that does not fit its agent's environment or the policy.
    fn prepare(self, program: VettedProgram, mut trial: Trial) -> Step {
        let wanted = program.program();
        trial.packages.notes = wanted.manifest.notes().to_vec();
        trial.capabilities = pattern::capabilities(program.inspection());
        match fit(wanted, &self.request, &self.policy, trial.packages.declared.as_ref()) {
            Ok(manifest) => {
                trial.packages.effective = Some(manifest.clone());
                Step::Prepare(Box::new(Prepare { call: self, trial, program, manifest }))
            }
            Err(rejection) => {
                let program = Some(wanted.clone());
                self.reject(trial, &Rejection { program, ..*rejection })
            }
        }
    }

    /// A rejected program again, unchanged, is not run again: it costs a try and says so.
    fn repeats(&self, program: &GeneratedProgram) -> Option<Rejection> {
        // A stored program may have failed by what its kept worker had become: it is run once more, alone.
        let written = |attempt: &&Attempt| !matches!(attempt.origin, Origin::Artifact(_));
        let is_same = |rejection: &&Rejection| {
            rejection.program.as_ref() == Some(program)
                && !rejection.is_advice(&self.policy.guardrails)
        };
        let rejected = self.attempts.iter().filter(written).filter_map(|a| a.rejection.as_ref());
        rejected.rev().find(is_same).map(|rejection| rejection.clone().again())
    }

    /// Advice is given once, while a guardrail retry is left; then the program may run as it is.
    fn sends_back(&self, program: &VettedProgram, trial: &Trial) -> bool {
        let stored = matches!(trial.origin, Origin::Artifact(_));
        let advised = self.attempts.iter().filter_map(|attempt| attempt.rejection.as_ref());
        let left = spent(&self.attempts, RetryLane::Guardrail) < self.policy.budgets.guardrail;
        !stored
            && left
            && !program.advice().is_empty()
            && !advised.into_iter().any(|r| r.is_advice(&self.policy.guardrails))
    }

    fn accept(mut self, trial: Trial, accepted: Accepted, result: Result<Value, Failure>) -> Step {
        let code = accepted.program.program().source.clone();
        self.attempts.push(trial.ended(None, Some(code)));
        self.end(result, Some(accepted))
    }

    fn reject(mut self, mut trial: Trial, rejection: &Rejection) -> Step {
        let rejection = &self.attributed(rejection);
        let code = rejection.program.as_ref().map(|program| program.source.clone());
        let (origin, told) = (trial.origin.clone(), trial.told.take());
        let withheld = trial.last_resort.clone();
        self.attempts.push(trial.ended(Some(rejection.clone()), code));
        if let Origin::Artifact(checksum) = origin {
            return self.replace_stored(checksum, rejection);
        }
        if let Some(withheld) = withheld {
            let own = rejection.reason.is_final().then(|| rejection.failure.clone());
            return self.end(Err(own.unwrap_or(*withheld)), None);
        }
        match attempt::next(&self.attempts, rejection, &self.policy.budgets) {
            // The service failed: the next try is told what this one was.
            Next::Again { .. } if rejection.reason.is_transport() => {
                // To come back sooner than asked would be refused again; who called may wait that long.
                if asked_wait(rejection).is_some_and(|wait| wait > LONGEST_PAUSE) {
                    return self.end(Err(rejection.failure.clone()), None);
                }
                self.generate(origin, told)
            }
            Next::Again { remaining } => {
                let feedback = rejection.feedback(remaining, &self.policy.guardrails);
                self.generate(origin, Some(feedback))
            }
            Next::End(failure) => match self.advised.take() {
                Some(advised) if !rejection.reason.is_final() => self.settle_for(*advised, failure),
                _ => self.end(Err(*failure), None),
            },
        }
    }

    /// A right answer is never lost to style: what was sent back for it runs before the call fails.
    fn settle_for(self, advised: Advised, withheld: Box<Failure>) -> Step {
        let Advised { program, origin, declared } = advised;
        let packages = Packages { declared, ..Packages::default() };
        let trial = Trial { origin, packages, last_resort: Some(withheld), ..Trial::default() };
        self.prepare(program, trial)
    }

    /// A failure about packages says whose call it was.
    fn attributed(&self, rejection: &Rejection) -> Rejection {
        let mut rejection = rejection.clone();
        if rejection.failure.kind.concerns_packages() {
            let metadata = &mut rejection.failure.metadata;
            metadata.insert("specialist_role".to_owned(), self.request.role.as_str().into());
            metadata.insert("method_name".to_owned(), self.request.method.as_str().into());
        }
        rejection
    }

    /// A stored program failed. The world's fault and a terminal rule end the call; its own is mended, a few
    /// times, then rewritten.
    fn replace_stored(self, checksum: Checksum, rejection: &Rejection) -> Step {
        let ends =
            rejection.reason.lane().is_none() || rejection.failure.kind.cause() == Cause::Extrinsic;
        // Stored before the rule was terminal, or was there at all. It did not run, so this call did nothing
        // wrong yet; ending it would end every call of the method from now on.
        let ran = self.attempts.last().is_some_and(|attempt| attempt.worker.is_some());
        let outdated = rejection.reason == Reason::BarredForGood && !ran;
        if ends && !outdated {
            return self.end(Err(rejection.failure.clone()), None);
        }
        let repairs = self.selected.as_ref().map_or(0, |artifact| artifact.repairs);
        let origin = if repairs < REPAIRS_PER_LINEAGE {
            Origin::Repair { of: checksum, number: repairs + 1 }
        } else {
            Origin::Fresh
        };
        let lane = rejection.reason.lane().unwrap_or(RetryLane::Guardrail);
        let feedback = rejection.feedback(self.policy.budgets.of(lane), &self.policy.guardrails);
        self.generate(origin, Some(feedback))
    }

    fn end(self, result: Result<Value, Failure>, accepted: Option<Accepted>) -> Step {
        let result = result.map_err(|failure| at_boundary(failure, self.request.lineage.depth()));
        let outcome = Outcome {
            role: self.request.role.clone(),
            method: self.request.method.clone(),
            result,
        };
        Step::Commit(Box::new(Commit {
            call: self,
            outcome,
            accepted,
            receipt: Receipt::default(),
        }))
    }
}

/// A top-level caller gets one stable message for exhausted guardrails; the details stay in the metadata.
fn at_boundary(failure: Failure, depth: u8) -> Failure {
    if depth > 0 || failure.kind != FailureKind::GuardrailRetryExhausted {
        return failure;
    }
    let raw = failure.message.clone();
    Failure { message: BOUNDARY_MESSAGE.to_owned(), ..failure }
        .with("normalized", true)
        .with("normalization_policy", "guardrail_exhaustion_boundary_v1")
        .with("raw_error_message", raw)
}
