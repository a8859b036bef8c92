//! **One call, top to bottom.** The loop performs what each step names and hands the answer back;
//! every decision is made in `lifecycle`. A program that asks for a tool while it runs is answered by an
//! ordinary recursive call (see [`crate::host`]).

use std::sync::Arc;
use std::time::Instant;

use lifecycle::artifact::{Artifact, ArtifactKey};
use lifecycle::call::{
    self, Commit, Execute, Generate, Memory, NotCopied, Policy, Prepare, RehearsalRun, Rehearse,
    Settled, Step, StoreFault,
};
use lifecycle::dispatch::ASK;
use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::environment_damage::DamageCheck;
use lifecycle::event::EventKind;
use lifecycle::execution::{Environment, FailedPreparation, FailedRun, Report, WorkerFault};
use lifecycle::history;
use lifecycle::inference::Inferred;
use lifecycle::log_entry::{self, Debug, EntryDetails};
use lifecycle::outcome::{CallDetails, Outcome};
use lifecycle::outside_tool;
use lifecycle::prompt::{Prompt, PromptContext};
use lifecycle::provenance::Observation;
use lifecycle::redact::NamedSecrets;
use lifecycle::request::CallRequest;
use lifecycle::select::is_first_call;
use lifecycle::settlement::{Kept, Timing};
use serde_json::{Map, Value};

use crate::agent::Agent;
use crate::environment::{BuildChoice, EnvironmentRequest, Progress, has_damaged_files};
use crate::grants::Grants;
use crate::guest::{RunLimits, TurnEvent};
use crate::host::Host;
use crate::observe::LogRequest;
use crate::provider::{DraftRequest, ProgressListener};
use crate::single_flight::FirstCallLock;
use crate::toolbox::ToolLimits;
use crate::tree::Tree;
use crate::upkeep::{now, time_before};
use crate::workspace::{Staged, WorkspaceVersion};

/// Earlier turns of a conversation that a model is shown.
const MAX_TURNS: usize = 4;

/// The outcome of a call, and what it did to the agent's memory.
pub(crate) type CallEnd = (Outcome, Option<Kept>);

/// Performs one dynamic call.
pub(crate) fn perform(agent: &Agent, request: CallRequest, policy: Policy, tree: &Tree) -> CallEnd {
    let runtime = agent.runtime();
    let mut call = CallInProgress::begin(agent, tree);
    tree.note_request(&request);
    runtime
        .observers()
        .notify(&request, || EventKind::Started { arguments: request.arguments.to_string() });
    let mut step = match agent.readiness() {
        Ok(()) => call::begin(request, policy),
        Err(failure) => call::refused(request, policy, *failure),
    };
    loop {
        step = match step {
            Step::Recall(recall) => {
                let memory = call.recall(recall.request());
                recall.recalled(memory)
            }
            Step::Generate(mut generate) => {
                let began = Instant::now();
                let replies = call.generate(&mut generate).unwrap_or_else(|fault| vec![Err(fault)]);
                generate.generated_all(replies, began.elapsed())
            }
            Step::Prepare(prepare) => {
                let environment = call.prepare(&prepare);
                prepare.prepared(environment)
            }
            Step::Execute(mut execute) => {
                let began = Instant::now();
                runtime.inspection_cache().keep(execute.order().program);
                runtime.observers().notify(execute.order().request, || execute.event());
                let report = call.execute(&mut execute);
                execute.executed(report, began.elapsed())
            }
            Step::Rehearse(rehearse) => {
                let runs = call.rehearse(&rehearse);
                rehearse.rehearsed(runs)
            }
            Step::Commit(commit) => return call.settle(*commit),
        };
        call.note_rejections(&step);
    }
}

/// What the model's answer cost, usable or not.
pub(crate) fn used(reply: &Result<Draft, DraftFault>) -> Option<Usage> {
    match reply {
        Ok(draft) => Some(draft.usage),
        Err(DraftFault::Charged(_, usage)) => Some(*usage),
        Err(_) => None,
    }
}

/// State of the loop beside the step.
struct CallInProgress<'a> {
    agent: &'a Agent,
    tree: &'a Tree,
    started: Instant,
    /// Rejected attempts observers were notified of.
    rolled_back: usize,
    /// The last prompt, for the debug log.
    prompt: Option<Prompt>,
    /// Held while this call asks the model for a method's first program.
    first_call: Option<FirstCallLock<'a>>,
    /// The version of the workspace that the last program could change.
    workspace_version: Option<Arc<WorkspaceVersion>>,
}

impl<'a> CallInProgress<'a> {
    fn begin(agent: &'a Agent, tree: &'a Tree) -> Self {
        let started = Instant::now();
        Self {
            agent,
            tree,
            started,
            rolled_back: 0,
            prompt: None,
            first_call: None,
            workspace_version: None,
        }
    }
}

impl CallInProgress<'_> {
    /// Reads the store, and adds cached inspections of the programs found. The first call of a method waits while
    /// another one asks the model for its program.
    fn recall(&mut self, request: &CallRequest) -> Result<Memory, StoreFault> {
        let runtime = self.agent.runtime();
        let read = || {
            let mut memory = runtime.store().recall(self.agent.owner(), request)?;
            let pinned = runtime.pinned_tools().programs(request, runtime.store())?;
            memory.artifacts.extend(pinned);
            if !runtime.pinned_tools().examples(&request.role, &request.method).is_empty() {
                memory.examples = runtime.taught_examples(&request.role, &request.method)?;
            }
            Ok::<_, StoreFault>(memory)
        };
        let mut memory = read()?;
        let asks = self.agent.options().generate;
        if asks && is_first_call(&memory.artifacts, request) {
            self.first_call =
                runtime.single_flight().lock_first_call(&ArtifactKey::of(request), self.tree);
            if self.first_call.as_ref().is_some_and(|lock| lock.waited) {
                memory = read()?;
                self.first_call =
                    self.first_call.take().filter(|_| is_first_call(&memory.artifacts, request));
            }
        }
        let read = |it: &Artifact| runtime.inspection_cache().find(it.language, &it.code);
        memory.inspection_cache = memory.artifacts.iter().filter_map(read).collect();
        Ok(memory)
    }

    /// Asks the model, if the call tree's allowance permits.
    fn generate(
        &mut self,
        generate: &mut Generate,
    ) -> Result<Vec<Result<Draft, DraftFault>>, DraftFault> {
        let (runtime, options) = (self.agent.runtime(), self.agent.options());
        if !options.generate {
            return Err(DraftFault::GenerationOff);
        }
        self.tree.reserve_model_call()?;
        if !generate.pause().is_zero() {
            runtime.observers().notify(generate.request(), || generate.waiting());
        }
        self.tree.pause(generate.pause())?;
        runtime.observers().notify(generate.request(), || generate.event());
        let prompt_context = self.prompt_context(generate).map_err(DraftFault::Store)?;
        let (provider, model) = (runtime.provider(), options.model.as_str());
        let prompt = self.prompt.insert(generate.prompt(&prompt_context, provider.form()));
        let request = generate.request();
        let reserve =
            || self.tree.reserve(prompt, provider.max_output_tokens(), provider.pricing(model));
        let mut reserved = vec![reserve()?];
        // Of several programs, as many are asked for as the allowance permits.
        let wanted = generate.candidates(provider.candidates());
        while reserved.len() < wanted && self.tree.reserve_model_call().is_ok() {
            let Ok(another) = reserve() else { break };
            reserved.push(another);
        }
        let progress = |progress| {
            runtime.observers().notify(request, || EventKind::ModelProgress { progress });
        };
        let listener = ProgressListener::new(&progress);
        let replies = provider.drafts(
            prompt,
            &DraftRequest {
                role: &request.role,
                method: &request.method,
                language: request.language,
                model,
                timeout: self.tree.within(options.provider_timeout),
                max_output_tokens: reserved.iter().filter_map(|it| it.max_output_tokens).min(),
                is_retry: generate.has_feedback(),
                sample: 0,
                seed: generate.seed(),
                cancellation: &self.tree.cancellation,
                progress: if runtime.observers().are_any() {
                    listener
                } else {
                    ProgressListener::default()
                },
            },
            reserved.len(),
        );
        for (index, reserved) in reserved.iter().enumerate() {
            self.tree.settle(reserved, replies.get(index).and_then(used));
        }
        Ok(replies)
    }

    /// What the model sees of the outside tools that the agent may call.
    fn outside_tools(&self, request: &CallRequest) -> Map<String, Value> {
        let options = self.agent.options();
        let limits = ToolLimits {
            timeout: self.tree.within(options.tool_timeout),
            cancellation: &self.tree.cancellation,
        };
        let toolboxes = self.agent.runtime().toolboxes();
        let (usable, unusable) = toolboxes.granted(&options.tools, &limits);
        let mut shown = outside_tool::for_prompt(&usable, request);
        for (name, fault) in unusable.into_iter().take(outside_tool::MAX_SHOWN) {
            shown.insert(name, format!("cannot be used now: {}", fault.reason()).into());
        }
        shown
    }

    /// What the model is shown beside the call.
    fn prompt_context(&self, generate: &Generate) -> Result<PromptContext, StoreFault> {
        let (store, request) = (self.agent.runtime().store(), generate.request());
        let grants = &self.agent.options().grants;
        Ok(PromptContext {
            outside_tools: self.outside_tools(request),
            secrets: self.tree.secrets(),
            grants: grants.for_prompt(),
            may_infer: grants.model_sees.values(self.agent.runtime().provider().is_local()),
            turns: self.latest_turns(request)?,
            signature: generate.earlier_signature(),
            ..store.prompt_context(self.agent.owner(), request)?
        })
    }

    /// The latest turns of the conversation that a call belongs to: of its session, or of the agent if it is a question.
    fn latest_turns(&self, request: &CallRequest) -> Result<Vec<Value>, StoreFault> {
        let owner = self.agent.owner();
        let is_follow_up = owner.session.is_some() || request.method.as_str() == ASK;
        if request.lineage.depth() > 0 || !is_follow_up {
            return Ok(Vec::new());
        }
        let (runtime, store) = (self.agent.runtime(), self.agent.runtime().store());
        let kept_since = runtime.config().content_ttl().map(time_before);
        let shown = |record: &Value| {
            let content = history::content_of(record);
            let value = content.map(|it| store.content(it, kept_since.as_deref())).transpose()?;
            Ok(history::turn(record, value.flatten().as_ref()))
        };
        store.history(owner, MAX_TURNS, None)?.iter().map(shown).collect()
    }

    /// Installs the packages the program declares; observers are notified of what takes long.
    fn prepare(&self, prepare: &Prepare) -> Result<Environment, FailedPreparation> {
        let (runtime, request) = (self.agent.runtime(), prepare.request());
        let progress = self.notify_preparing(request);
        let wanted = self.environment_request(&progress);
        let environments = runtime.environments();
        environments.prepare(request.language, prepare.manifest(), runtime.workers(), &wanted)
    }

    /// Runs the program. A damaged environment is built again, and the program runs in the new build.
    fn execute(&mut self, execute: &mut Execute) -> Result<Report, FailedRun> {
        let language = execute.order().request.language;
        let report = self.run(execute);
        let environment = execute.environment();
        let is_damaged = match DamageCheck::after(&report, environment) {
            DamageCheck::Unneeded => false,
            DamageCheck::Certain => true,
            DamageCheck::ListFiles => has_damaged_files(language, environment, false),
            DamageCheck::ReadFiles => has_damaged_files(language, environment, true),
        };
        if !is_damaged {
            return report;
        }
        let (runtime, request) = (self.agent.runtime(), execute.order().request.clone());
        let rebuilt = {
            let progress = self.notify_preparing(&request);
            let wanted = self.environment_request(&progress);
            let (environments, workers) = (runtime.environments(), runtime.workers());
            let damaged = execute.environment();
            environments.replace_damaged(request.language, damaged, workers, &wanted)
        };
        match rebuilt {
            Ok(rebuilt) => {
                execute.replace_environment(rebuilt);
                self.run(execute)
            }
            Err(unbuilt) => Err(FailedRun::with_failed_rebuild(report, unbuilt)),
        }
    }

    /// Runs the program on a version of the workspace of its own, if it may change one.
    fn run(&mut self, execute: &Execute) -> Result<Report, FailedRun> {
        let begun = self.begin_version(execute).map_err(WorkerFault::NoWorkspace);
        self.workspace_version = begun.map_err(FailedRun::not_started)?;
        Host::new(self.agent, execute.order(), self.tree, self.workspace_version.clone())
            .run(execute.environment())
    }

    fn begin_version(&self, execute: &Execute) -> Result<Option<Arc<WorkspaceVersion>>, String> {
        let grants = &self.agent.options().grants;
        // A called program that touches nothing outside needs no version of its caller's files.
        let is_called = execute.order().request.lineage.depth() > 0;
        if !grants.workspace_write || (is_called && execute.touches_nothing_outside()) {
            return Ok(None);
        }
        let sandbox = self.agent.runtime().workers().sandbox()?;
        let callers = self.tree.workspace_version();
        Ok(WorkspaceVersion::begin(grants, callers, sandbox)?.map(Arc::new))
    }

    /// Notifies observers of the steps of a preparation.
    fn notify_preparing<'r>(&'r self, request: &'r CallRequest) -> impl Fn(Progress<'_>) + 'r {
        move |progress| {
            let what = || EventKind::Preparing { what: progress.to_string() };
            self.agent.runtime().observers().notify(request, what);
        }
    }

    fn environment_request<'r>(
        &'r self,
        progress: &'r dyn Fn(Progress<'_>),
    ) -> EnvironmentRequest<'r> {
        let cancellation = &self.tree.cancellation;
        EnvironmentRequest { cancellation, progress, build: BuildChoice::Present }
    }

    /// Runs programs on examples, or beside each other, without any grant and without answering what they ask.
    fn rehearse(&self, rehearse: &Rehearse) -> Vec<Result<Report, WorkerFault>> {
        let limits = RunLimits {
            agent: &self.agent.owner().instance,
            time_limit: self.tree.within(self.agent.options().execution_timeout),
            cancellation: &self.tree.cancellation,
            grants: &Grants::default(),
        };
        let run = |run: &RehearsalRun| {
            let guest = self.agent.runtime().guest(run.request.language);
            let order = rehearse.order(run);
            match guest.start(rehearse.environment(), &order, &limits)?.listen()? {
                TurnEvent::Done(done) => Ok(Report {
                    ending: done.ending,
                    changes: done.changes,
                    forged: Vec::new(),
                    violations: Vec::new(),
                    failed_call: None,
                    inferred: Inferred::default(),
                    output: done.output,
                    observed: Observation::of_no_network(),
                    worker: done.worker,
                    result_from: done.result_from,
                }),
                TurnEvent::Ask(_) => {
                    Err(WorkerFault::Unavailable("a rehearsal may not ask".into()))
                }
            }
        };
        let mut failed = None; // a program that does not end is not run again
        let run_unless_failed = |it: &RehearsalRun| {
            if failed == Some(it.program) {
                return Err(WorkerFault::Unavailable("an earlier run failed".into()));
            }
            let report = run(it);
            failed = report.is_err().then_some(it.program).or(failed);
            report
        };
        rehearse.runs().iter().map(run_unless_failed).collect()
    }

    /// A rejected attempt leaves nothing behind: its kept worker is discarded. Observers are notified once per
    /// attempt, also of what its program printed.
    fn note_rejections(&mut self, step: &Step) {
        let attempts = step.attempts();
        for (index, attempt) in attempts.iter().enumerate().skip(self.rolled_back) {
            if let Some(kind) = attempt.printed(index + 1) {
                self.agent.runtime().observers().notify(step.request(), || kind);
            }
            let Some(kind) = attempt.rolled_back(index + 1) else { continue };
            self.agent
                .runtime()
                .guest(step.request().language)
                .discard(&self.agent.owner().instance);
            self.agent.runtime().observers().notify(step.request(), || kind);
        }
        self.rolled_back = attempts.len();
    }

    /// Commits, then writes the log line from what was committed.
    fn settle(&self, commit: Commit) -> (Outcome, Option<Kept>) {
        let runtime = self.agent.runtime();
        let version = self.workspace_version.as_deref().filter(|_| commit.is_accepted());
        let (staged, commit) = match version.map(WorkspaceVersion::stage).transpose() {
            Ok(staged) => (staged.flatten(), commit),
            Err(problem) => (None, commit.not_copied(self.not_copied(problem))),
        };
        let now = now();
        let timing = Timing {
            timestamp: now.to_string(),
            since_epoch_ms: u64::try_from(now.as_millisecond()).unwrap_or_default(),
            duration: self.started.elapsed(),
        };
        self.tree.note_outcome(commit.outcome());
        let secrets = self.tree.secrets();
        let mut changes = commit.changes(&timing);
        changes.remove_secrets(&secrets);
        changes.answers_bytes = runtime.config().settings().infer_cache_mb << 20;
        changes.contents_kept_since = runtime.config().content_ttl().map(time_before);
        let answer = runtime.store().commit(self.agent.owner(), commit.request(), &changes);
        let settled = commit.committed(answer);
        let changed = version.filter(|_| staged.is_some()).and_then(WorkspaceVersion::summary);
        let settled = match staged.filter(|_| settled.commit().is_accepted()).map(Staged::apply) {
            Some(Err(problem)) => settled.not_copied(self.not_copied(problem)),
            Some(Ok(())) | None => settled,
        };
        let summary = changes.record.get_mut("outcome_summary").map(Value::take);
        let omission = secrets.note_of_omission();
        self.log(&settled, timing, summary.unwrap_or_default(), secrets);
        if let Some((key, challenger)) = settled.challenger() {
            runtime.trials().enqueue(key, challenger.clone());
        }
        runtime
            .observers()
            .notify(settled.commit().request(), || settled.commit().event(self.started.elapsed()));
        let details = Box::new(self.details(settled.commit()));
        let is_nested = settled.commit().request().lineage.depth() > 0;
        let (mut outcome, kept) = settled.into_parts();
        outcome.notes.extend(omission);
        outcome.notes.extend(changed.filter(|_| outcome.is_ok()));
        if let (true, Some(kept)) = (is_nested, &kept) {
            self.tree.add_forged_tools(&kept.tools);
        }
        (Outcome { details: Some(details), ..outcome }, kept)
    }

    fn not_copied(&self, problem: String) -> NotCopied {
        let workspace = self.agent.options().grants.workspace.as_ref();
        let workspace = workspace.map(|path| path.display().to_string()).unwrap_or_default();
        NotCopied { workspace, problem }
    }

    fn details(&self, commit: &Commit) -> CallDetails {
        let request = commit.request();
        let accepted = commit.accepted().and_then(|_| commit.attempts().last());
        CallDetails {
            call: request.id.clone(),
            trace: request.lineage.trace().clone(),
            model_calls: commit.model_calls(),
            inference_calls: commit.inference_calls(),
            usage: commit.usage(),
            duration: self.started.elapsed(),
            origin: accepted.map(|attempt| attempt.origin.clone()),
            admission: commit.receipt().admission,
            unexpected: commit.unexpected(),
        }
    }

    fn log(&self, settled: &Settled, timing: Timing, summary: Value, secrets: NamedSecrets) {
        let Some(log) = self.agent.runtime().log() else { return };
        let options = self.agent.options();
        let commit = settled.commit();
        let details = EntryDetails {
            timing,
            model: self.agent.runtime().provider().model(options.model.as_str()).to_owned(),
            contract_source: self.agent.contract_source(),
            specialist_instance_id: self.agent.owner().instance.clone(),
            session: self.agent.owner().session.clone(),
            summary,
            sandbox_tier: self.agent.runtime().workers().tier().to_owned(),
            grants: options.grants_json(),
            prep_ticket_id: self.agent.prep_ticket_id(),
            debug: options.debug.then(|| Debug {
                system_prompt: self.prompt.as_ref().map(|prompt| prompt.system.clone()),
                user_prompt: self.prompt.as_ref().map(|prompt| prompt.user.clone()),
                context: settled.context_after().to_object(),
            }),
            secrets,
        };
        log.append(&LogRequest {
            share: &self.tree.log_share,
            is_root: commit.request().lineage.depth() == 0,
            programs: log_entry::digests(commit).into_iter().flatten().collect(),
            encode: &|before, line| {
                let entry = log_entry::project(commit, &details, before);
                // Writing to memory fails only for keys that are not text, and there are none.
                let _ = serde_json::to_writer(line, &entry);
            },
        });
    }
}
