//! One call as a state machine: each step owns the call, each answer consumes its step.
//!
//! `recurgent` performs what a step names and hands the answer back, until [`Commit`] gives the outcome.
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
//!
//! One answer compiles:
//!
//! ```
//! # use lifecycle::call::Recall;
//! # use lifecycle::call::Memory;
//! fn answer_once(recall: Recall, memory: Memory) {
//!     let first = recall.recalled(Ok(memory.clone()));
//! }
//! ```

mod agree;
mod commit;
mod generate;
mod prepare;
mod rehearse;
mod retry;
mod pending;

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use crate::artifact::Artifact;
use crate::attempt::{self, Attempt, Budgets, Origin, Rejection};
use crate::blame::GrantedAccess;
use crate::contract::{Contract, ContractOrigin};
use crate::dependency::{DependencyPolicy, ManifestMode};
use crate::draft::Usage;
use crate::example::{Example, PersonRejection};
use crate::guardrail::{GuardrailPolicy, SiblingState};
use crate::inference::KeptAnswer;
use crate::judgement::{
    guardrails_broken, invalid_payload, malformed, permitted_packages, unfit_arguments,
    unfit_signature,
};
use crate::outcome::{Failure, FailureKind, Outcome};
use crate::pattern::{self, PatternEvent};
use crate::program::{CachedInspection, GeneratedProgram, VetFault, VettedProgram, vet_known};
use crate::request::CallRequest;
use crate::select::{Miss, degraded, select};
use crate::settlement::{Accepted, Receipt};
use crate::standing::StandingMode;

pub use commit::{Commit, NotCopied, Settled};
pub use generate::Generate;
pub use prepare::{Execute, Prepare};
pub use rehearse::{RehearsalRun, Rehearse};

use pending::PendingAttempt;
use retry::AdvisedProgram;

/// The message of a top-level call whose guardrail retries are exhausted.
pub const BOUNDARY_MESSAGE: &str = "This request couldn't be completed after multiple attempts.";

/// What the embedding program may tune.
#[derive(Debug, Clone)]
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
    /// Whether a model may widen a stored program to arguments it was not written for.
    pub widen: bool,
    /// Whether a person asks for another program than the stored one.
    pub regenerate: bool,
    /// What the call takes its contract from.
    pub contract_origin: ContractOrigin,
    /// What programs may reach outside their sandbox.
    pub access: GrantedAccess,
    /// The longest wait before a model is asked again; a service that asks for a longer one is not asked.
    pub max_retry_delay: Duration,
    /// The value that the caller expects of this call: a program that gives another is rejected.
    pub expected: Option<Value>,
    /// Programs that a model is asked for at once, unless as many as its provider usually asks for; more than one are compared
    /// before an answer is accepted.
    pub candidates: Option<u32>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            budgets: Budgets::default(),
            guardrails: GuardrailPolicy::default(),
            dependencies: DependencyPolicy::default(),
            manifest_mode: ManifestMode::default(),
            standing_mode: StandingMode::default(),
            widen: true,
            regenerate: false,
            contract_origin: ContractOrigin::Caller,
            access: GrantedAccess::default(),
            max_retry_delay: Duration::from_secs(30),
            expected: None,
            candidates: None,
        }
    }
}

/// What the store knew before the call.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Programs stored for this role, method and language.
    pub artifacts: Vec<Artifact>,
    /// The last call of this role and method in the same session, or else on the same trace; for a call at the root.
    pub earlier: Option<PatternEvent>,
    /// What was read of these programs before.
    pub inspection_cache: Vec<CachedInspection>,
    /// What people taught about this role's method: right and wrong answers.
    pub examples: Vec<Example>,
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

/// What `recurgent` must do next.
#[derive(Debug)]
#[expect(missing_docs, reason = "each step documents itself")]
pub enum Step {
    Recall(Box<Recall>),
    Generate(Box<Generate>),
    Prepare(Box<Prepare>),
    Execute(Box<Execute>),
    Rehearse(Box<Rehearse>),
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
            Self::Rehearse(rehearse) => &rehearse.call,
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
    /// The state other methods keep, as the last prompt showed it.
    siblings: Vec<SiblingState>,
    /// A program with advisory violations: it runs if no better one can be obtained.
    advised: Option<Box<AdvisedProgram>>,
    /// A degraded program, proven on arguments of this shape: it runs if no better one can be obtained.
    fallback: Option<Box<Artifact>>,
    /// Calls whose right answers are known: a new pure program is run on them before its answer is accepted.
    examples: Vec<Example>,
    /// How many of them the last program was run on.
    examples_checked: usize,
    /// Payloads that came with the one being tried, not yet tried themselves.
    waiting: VecDeque<Value>,
    /// The call before it that this one may correct.
    earlier: Option<PatternEvent>,
    /// Programs of this method that people rejected, as the last prompt named them.
    rejected: Vec<PersonRejection>,
    usage: Usage,
    model_calls: u32,
    /// New answers of a model to questions of its programs.
    answers: Vec<KeptAnswer>,
    /// Values that its programs looked at, as the next prompts show them.
    looks: Vec<Value>,
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
        let contract = call.request.contract.as_ref();
        call.examples = contract.map(Contract::examples).unwrap_or_default();
        call.examples.extend(memory.examples);
        let (mode, origin) = (call.policy.standing_mode, call.policy.contract_origin);
        if call.policy.regenerate && !memory.artifacts.is_empty() {
            call.selected = Err(Miss::Requested);
        } else {
            call.fallback = degraded(&memory.artifacts, &call.request, mode, origin);
            call.selected = select(memory.artifacts, &call.request, mode, origin);
        }
        match call.selected.clone() {
            Ok(artifact) => call.run_stored(artifact, None, &memory.inspection_cache),
            Err(_) => call.generate(Origin::Fresh, None),
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
            fallback: None,
            examples: Vec::new(),
            examples_checked: 0,
            waiting: VecDeque::new(),
            earlier: None,
            rejected: Vec::new(),
            usage: Usage::default(),
            answers: Vec::new(),
            looks: Vec::new(),
            model_calls: 0,
        }
    }

    fn generate(self, origin: Origin, feedback: Option<Value>) -> Step {
        Step::Generate(Box::new(Generate { call: self, origin, feedback }))
    }

    fn run_stored(
        self,
        artifact: Artifact,
        last_resort: Option<Box<Failure>>,
        known: &[CachedInspection],
    ) -> Step {
        let origin = Origin::Artifact(artifact.checksum);
        let proven = Some(artifact.track_record.shapes.prove(&self.request));
        let answers_changed = artifact.track_record.recent.answers_changed();
        let mut pending = PendingAttempt {
            origin,
            proven,
            answers_changed,
            last_resort,
            ..PendingAttempt::default()
        };
        pending.packages.declared = Some(artifact.manifest.to_json());
        match artifact.manifest.readmitted(artifact.language) {
            Ok(manifest) => {
                let (language, source) = (artifact.language, artifact.code);
                self.vet(GeneratedProgram { language, source, manifest }, pending, known)
            }
            Err(fault) => self.reject(pending, &invalid_payload(&fault.into())),
        }
    }

    fn vet(
        mut self,
        program: GeneratedProgram,
        pending: PendingAttempt,
        known: &[CachedInspection],
    ) -> Step {
        if let Some(rejection) = self.repeats(&program) {
            return self.reject(pending, &rejection);
        }
        // A stored program was checked against its siblings when it was new.
        let siblings = match pending.origin {
            Origin::Artifact(_) => &[],
            Origin::Repair { .. } | Origin::Fresh => self.siblings.as_slice(),
        };
        match vet_known(program, &self.request, siblings, &self.policy.guardrails, known) {
            Ok(program) if self.sends_back(&program, &pending) => {
                let rejection = Rejection {
                    program: Some(program.program().clone()),
                    ..guardrails_broken(program.advice().to_vec(), &self.policy.guardrails)
                };
                let (origin, declared) =
                    (pending.origin.clone(), pending.packages.declared.clone());
                self.advised = Some(Box::new(AdvisedProgram { program, origin, declared }));
                self.reject(pending, &rejection)
            }
            Ok(program) => self.prepare_fitting(program, pending),
            Err((program, fault)) => {
                let rejection = match fault {
                    VetFault::Syntax(fault) => malformed(&fault),
                    VetFault::Violations(violations) => {
                        guardrails_broken(violations, &self.policy.guardrails)
                    }
                };
                self.reject(pending, &Rejection { program: Some(program), ..rejection })
            }
        }
    }

    /// A function that cannot be called with these arguments is not run.
    fn prepare_fitting(self, program: VettedProgram, pending: PendingAttempt) -> Step {
        let unfit = match pending.origin {
            Origin::Artifact(_) => unfit_arguments(&program, &self.request),
            Origin::Repair { .. } | Origin::Fresh => unfit_signature(&program, &self.request),
        };
        match unfit {
            None => self.prepare(program, pending),
            Some(rejection) => {
                let program = Some(program.program().clone());
                self.reject(pending, &Rejection { program, ..rejection })
            }
        }
    }

    /// Nothing is prepared for a program that does not fit its agent's environment or the policy.
    fn prepare(self, program: VettedProgram, mut pending: PendingAttempt) -> Step {
        let wanted = program.program();
        pending.packages.notes = wanted.manifest.notes().to_vec();
        let noted = self.policy.dependencies.notes(self.request.language, &wanted.manifest);
        pending.packages.notes.extend(noted);
        pending.capabilities = pattern::capabilities(program.inspection());
        match permitted_packages(
            wanted,
            &self.request,
            &self.policy,
            pending.packages.declared.as_ref(),
        ) {
            Ok(manifest) => {
                pending.packages.effective = Some(manifest.clone());
                Step::Prepare(Box::new(Prepare { call: self, pending, program, manifest }))
            }
            Err(rejection) => {
                let program = Some(wanted.clone());
                self.reject(pending, &Rejection { program, ..*rejection })
            }
        }
    }

    fn accept(
        mut self,
        mut pending: PendingAttempt,
        accepted: Accepted,
        result: Result<Value, Failure>,
    ) -> Step {
        let code = accepted.program.program().source.clone();
        let notes = pending.notes();
        self.attempts.push(pending.ended(None, Some(code)));
        self.end_noted(result, Some(accepted), notes)
    }

    fn end(self, result: Result<Value, Failure>, accepted: Option<Accepted>) -> Step {
        self.end_noted(result, accepted, Vec::new())
    }

    fn end_noted(
        self,
        result: Result<Value, Failure>,
        accepted: Option<Accepted>,
        notes: Vec<String>,
    ) -> Step {
        let result = result.map_err(|failure| at_boundary(failure, self.request.lineage.depth()));
        let (role, method) = (self.request.role.clone(), self.request.method.clone());
        let observed = attempt::observed(&self.attempts);
        let is_weak = result.is_ok() && accepted.is_none() && self.gave_no_result();
        let outcome = Outcome { notes, is_weak, observed, ..Outcome::new(role, method, result) };
        Step::Commit(Box::new(Commit {
            call: self,
            outcome,
            accepted,
            receipt: Receipt::default(),
            uncommitted: false,
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
