//! Questions of running programs to a model (`infer`): performs what [`lifecycle::inference`] decides.

use std::collections::BTreeMap;
use std::time::Instant;

use lifecycle::draft::{Draft, DraftFault};
use lifecycle::event::EventKind;
use lifecycle::inference::{
    self, InferAsk, InferPolicy, InferStep, Inferred, Question, run_limit_reached, values_withheld,
};
use lifecycle::outcome::Failure;
use lifecycle::program::Checksum;
use lifecycle::request::CallRequest;
use serde_json::Value;

use crate::agent::Agent;
use crate::call::used;
use crate::provider::{DraftRequest, ProgressListener};
use crate::tree::Tree;

/// What one run of a program asks a model.
pub(crate) struct Inferrer<'a> {
    agent: &'a Agent,
    request: &'a CallRequest,
    tree: &'a Tree,
    /// Requests to the model in this run.
    calls: u32,
    inferred: Inferred,
}

impl<'a> Inferrer<'a> {
    pub(crate) fn new(agent: &'a Agent, request: &'a CallRequest, tree: &'a Tree) -> Self {
        Self { agent, request, tree, calls: 0, inferred: Inferred::default() }
    }

    /// The answer to a question, from what is kept or from the model.
    pub(crate) fn ask(&mut self, question: Question) -> Result<Value, Box<Failure>> {
        let (runtime, options) = (self.agent.runtime(), self.agent.options());
        let provider = runtime.provider();
        if !self.may_show_values() {
            return Err(Box::new(self.withhold()));
        }
        let policy = InferPolicy {
            retries: options.infer.retries,
            transport_retries: options.budgets.transport,
            max_retry_delay: runtime.config().settings().max_retry_delay_seconds,
            form: provider.form(),
        };
        let model = provider.model(self.model()).to_owned();
        let known = |keys: &[Checksum]| self.known(keys);
        let mut step = inference::begin(question, &model, policy, self.tree.secrets(), known);
        loop {
            step = match step {
                InferStep::Ask(ask) => {
                    let began = Instant::now();
                    let reply = self.reply(&ask);
                    ask.reply_received(reply, began.elapsed())
                }
                InferStep::Ended(ended) => {
                    if runtime.config().settings().infer_cache {
                        self.tree.keep_answers(&ended.kept);
                    }
                    return self.inferred.add(*ended);
                }
            }
        }
    }

    /// Whether the run may show whole values to a model.
    pub(crate) fn may_show_values(&self) -> bool {
        let is_local = self.agent.runtime().provider().is_local();
        self.agent.options().grants.model_sees.values(is_local)
    }

    /// The failure of a run that may not, and tries.
    pub(crate) fn withhold(&mut self) -> Failure {
        let withheld = values_withheld();
        let failure = withheld.failure.clone();
        self.inferred.failed = Some(withheld);
        failure
    }

    /// What was asked, for the report of the run.
    pub(crate) fn into_inferred(self) -> Inferred {
        self.inferred
    }

    fn model(&self) -> &str {
        let options = self.agent.options();
        options.infer.model.as_ref().unwrap_or(&options.model).as_str()
    }

    /// Answers that are kept: of this call tree, or of earlier ones. A cache that cannot be read is empty.
    fn known(&self, keys: &[Checksum]) -> BTreeMap<Checksum, Value> {
        let runtime = self.agent.runtime();
        if !runtime.config().settings().infer_cache {
            return BTreeMap::new();
        }
        let mut known = self.tree.answers(keys);
        let open: Vec<Checksum> =
            keys.iter().filter(|key| !known.contains_key(*key)).cloned().collect();
        if !open.is_empty() {
            known.extend(runtime.store().answers(&open).unwrap_or_default());
        }
        known
    }

    /// Asks the model, if the allowances of the run and of the call tree permit.
    fn reply(&mut self, ask: &InferAsk) -> Result<Draft, DraftFault> {
        let (runtime, options) = (self.agent.runtime(), self.agent.options());
        if !options.generate {
            return Err(DraftFault::GenerationOff);
        }
        if self.calls >= options.infer.max_calls {
            return Err(run_limit_reached(options.infer.max_calls));
        }
        self.tree.reserve_model_call()?;
        self.calls += 1;
        self.tree.pause(ask.pause())?;
        let request = self.request;
        runtime.observers().notify(request, || ask.event());
        let (provider, model, prompt) = (runtime.provider(), self.model(), ask.prompt());
        let longest = provider.max_output_tokens();
        let reserved = self.tree.reserve(&prompt, longest, provider.pricing(model))?;
        let progress = |progress| {
            runtime.observers().notify(request, || EventKind::ModelProgress { progress });
        };
        let listens = runtime.observers().are_any();
        let reply = provider.infer(
            &prompt,
            ask.schema().as_ref(),
            &DraftRequest {
                role: &request.role,
                method: &request.method,
                language: request.language,
                model,
                timeout: self.tree.within(options.provider_timeout),
                max_output_tokens: reserved.max_output_tokens,
                is_retry: ask.is_retry(),
                sample: 0,
                seed: ask.seed(),
                cancellation: &self.tree.cancellation,
                progress: if listens {
                    ProgressListener::new(&progress)
                } else {
                    ProgressListener::default()
                },
            },
        );
        self.tree.settle(&reserved, used(&reply));
        reply
    }
}
