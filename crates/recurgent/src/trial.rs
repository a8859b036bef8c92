//! Trials: a new version shows, on recorded calls, that it may take over. They run after the reply, on one thread.
//!
//! Each recorded call is run again in a worker of its own. A call that the challenger does not reproduce is run with
//! the incumbent too: if the incumbent does not repeat it either, the call proves nothing and is forgotten. A trial
//! that could not be run (no worker, no environment, the process ends) is run at a later call, a few times.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lifecycle::admission::{Case, Inputs, Observed};
use lifecycle::artifact::{Artifact, ArtifactKey};
use lifecycle::call::StoreFault;
use lifecycle::context::{Context, ContextChanges};
use lifecycle::example::Example;
use lifecycle::execution::{Order, ReportEnding};
use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::outcome::FailureKind;
use lifecycle::program::{Checksum, GeneratedProgram, VettedProgram, vet};
use lifecycle::request::{Allowance, Arguments, CallId, CallRequest, Lineage, TraceId};
use lifecycle::version_policy::{Trial, TrialStep};

use crate::environment::{BuildChoice, EnvironmentRequest, Environments};
use crate::grants::Grants;
use crate::guest::{Cancellation, RunLimits, TurnEvent};
use crate::store::Store;
use crate::store::catalog::{StoredVersion, Verdict};
use crate::worker::Workers;

/// Time one recorded call may take to run again.
const CASE_TIME: Duration = Duration::from_secs(5);
/// Time that the end of a process waits for running trials.
const GRACE: Duration = Duration::from_secs(2);
/// Trials that may wait; more are left for later calls.
const MAX_WAITING: usize = 64;
/// Times one process starts a trial that cannot be run.
const MAX_TRIES: u32 = 3;
/// Challengers remembered whose trial could not be run.
const MAX_UNTRIED: usize = 1024;

/// What a trial is about: a challenger, by what it is stored under.
type TrialSubject = (ArtifactKey, Checksum);

/// What trials need.
pub(crate) struct TrialRunner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) environments: Arc<Environments>,
}

/// The trials of one runtime: a queue, and a thread that starts with the first trial.
pub(crate) struct Trials {
    runner: Arc<TrialRunner>,
    queue: Arc<TrialQueue>,
    thread: Mutex<Option<TrialThread>>,
}

struct TrialThread {
    sender: Sender<TrialSubject>,
    thread: JoinHandle<()>,
}

/// Trials that wait or run, and those that could not be run.
#[derive(Default)]
struct TrialQueue {
    state: Mutex<TrialQueueState>,
    changed: Condvar,
    cancellation: Cancellation,
}

#[derive(Default)]
struct TrialQueueState {
    open: BTreeSet<TrialSubject>,
    /// With how often.
    untried: BTreeMap<TrialSubject, u32>,
}

impl TrialQueueState {
    /// Enters a challenger, unless it already waits, its trial could not be run too often, or too many wait.
    fn enter(&mut self, subject: &TrialSubject) -> bool {
        let tries = self.untried.get(subject).copied().unwrap_or(0);
        tries < MAX_TRIES && self.open.len() < MAX_WAITING && self.open.insert(subject.clone())
    }

    fn close(&mut self, subject: &TrialSubject, tried: bool) {
        self.open.remove(subject);
        if tried {
            self.untried.remove(subject);
        } else if let Some(tries) = self.untried.get_mut(subject) {
            *tries += 1;
        } else if self.untried.len() < MAX_UNTRIED {
            self.untried.insert(subject.clone(), 1);
        }
    }
}

impl fmt::Debug for Trials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trials")
            .field("open", &self.queue.state().open.len())
            .finish_non_exhaustive()
    }
}

impl Trials {
    pub(crate) fn new(runner: TrialRunner) -> Self {
        Self { runner: Arc::new(runner), queue: Arc::default(), thread: Mutex::new(None) }
    }

    pub(crate) fn runner(&self) -> &TrialRunner {
        &self.runner
    }

    /// Queues the trial of a challenger, unless it is queued already or could not be run too often.
    pub(crate) fn enqueue(&self, key: ArtifactKey, challenger: Checksum) {
        let subject = (key, challenger);
        if !self.queue.state().enter(&subject) {
            return;
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            *thread = self.start();
        }
        let taken =
            thread.as_ref().is_some_and(|thread| thread.sender.send(subject.clone()).is_ok());
        if !taken {
            self.queue.close(&subject, false);
        }
    }

    /// Waits until no trial waits or runs.
    pub(crate) fn wait(&self) {
        let mut state = self.queue.state();
        while !state.open.is_empty() {
            state = self.queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn start(&self) -> Option<TrialThread> {
        let (sender, receiver) = mpsc::channel();
        let (runner, queue) = (Arc::clone(&self.runner), Arc::clone(&self.queue));
        let thread = thread::Builder::new()
            .name("trials".to_owned())
            .spawn(move || {
                let run = |(key, challenger): &TrialSubject| {
                    runner.try_challenger(key, challenger, &queue.cancellation).is_ok()
                };
                run_trials(&queue, &receiver, run);
            })
            .ok()?;
        Some(TrialThread { sender, thread })
    }
}

impl Drop for Trials {
    /// A trial that does not end in time is run at a later call.
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(TrialThread { sender, thread }) = thread else { return };
        drop(sender);
        let busy = |state: &mut TrialQueueState| !state.open.is_empty();
        let waited = self.queue.changed.wait_timeout_while(self.queue.state(), GRACE, busy);
        drop(waited);
        self.queue.cancellation.cancel();
        // Joining cannot fail: the thread catches the panics of its trials.
        let _ = thread.join();
    }
}

impl TrialQueue {
    fn state(&self) -> MutexGuard<'_, TrialQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, subject: &TrialSubject, tried: bool) {
        self.state().close(subject, tried);
        self.changed.notify_all();
    }
}

/// Runs one trial after the other. One that panics counts as not run, so that nothing waits for it for ever.
fn run_trials(
    queue: &TrialQueue,
    receiver: &Receiver<TrialSubject>,
    run: impl Fn(&TrialSubject) -> bool,
) {
    while let Ok(subject) = receiver.recv() {
        let attempt = || !queue.cancellation.is_cancelled() && run(&subject);
        let tried = catch_unwind(AssertUnwindSafe(attempt)).unwrap_or(false);
        queue.close(&subject, tried);
    }
}

/// Why a program could not be run: the store, an environment or a worker is missing, or the process ends.
#[derive(Debug)]
pub(crate) struct TrialNotRun(String);

impl TrialNotRun {
    fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

impl fmt::Display for TrialNotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StoreFault> for TrialNotRun {
    fn from(fault: StoreFault) -> Self {
        Self::new(fault)
    }
}

impl TrialRunner {
    /// Runs the trial of a challenger and ends it.
    fn try_challenger(
        &self,
        key: &ArtifactKey,
        challenger: &Checksum,
        cancellation: &Cancellation,
    ) -> Result<(), TrialNotRun> {
        let versions = self.store.versions(key)?;
        let incumbent = versions.iter().find(|version| version.is_current);
        let incumbent = incumbent.ok_or_else(|| TrialNotRun::new("no version runs"))?;
        let named = |version: &&StoredVersion| version.artifact.checksum == *challenger;
        let rival = versions.iter().find(named);
        let rival = rival.ok_or_else(|| TrialNotRun::new("the challenger is gone"))?;
        let verdict = self.verdict(key, incumbent, rival, cancellation)?;
        self.store.conclude(key, &incumbent.artifact.checksum, challenger, &verdict)?;
        Ok(())
    }

    /// Runs what [`Trial`] asks for.
    fn verdict(
        &self,
        key: &ArtifactKey,
        incumbent: &StoredVersion,
        challenger: &StoredVersion,
        cancellation: &Cancellation,
    ) -> Result<Verdict, TrialNotRun> {
        let mut trial = Trial::new(challenger.as_applicant(), incumbent.pure);
        let examples = if trial.runs_examples() {
            self.store.examples(&key.role, &key.method)?
        } else {
            Vec::new()
        };
        for example in examples {
            let artifact = &challenger.artifact;
            let (ending, _) = self.run(key, artifact, &example.inputs, cancellation)?;
            if let TrialStep::End(verdict) = trial.example(&example, is_met(&example, &ending)) {
                return Ok(verdict);
            }
        }
        for case in self.store.corpus(key)? {
            let repeats = |version: &StoredVersion| {
                self.observe(key, &version.artifact, &case, cancellation)
                    .map(|observed| observed.as_ref() == Some(&case.observed))
            };
            match trial.case(&case, repeats(challenger)?, || repeats(incumbent))? {
                TrialStep::Continue => {}
                TrialStep::ForgetCase => self.store.forget_case(key, &case)?,
                TrialStep::End(verdict) => return Ok(verdict),
            }
        }
        Ok(trial.verdict())
    }

    /// What comes of a recorded call with this program; `None`: nothing that could be accepted.
    fn observe(
        &self,
        key: &ArtifactKey,
        artifact: &Artifact,
        case: &Case,
        cancellation: &Cancellation,
    ) -> Result<Option<Observed>, TrialNotRun> {
        let (ending, changes) = self.run(key, artifact, &case.inputs, cancellation)?;
        Ok(Observed::of_report(&ending, &changes))
    }

    /// Runs a program on the inputs of one call: in a worker of its own, without grants, for a short time.
    pub(crate) fn run(
        &self,
        key: &ArtifactKey,
        artifact: &Artifact,
        inputs: &Inputs,
        cancellation: &Cancellation,
    ) -> Result<(ReportEnding, ContextChanges), TrialNotRun> {
        let request = inputs.again(&trial_request(key));
        let program = vetted(artifact, &request)
            .ok_or_else(|| TrialNotRun::new("the guardrails of this version bar the program"))?;
        let build = BuildChoice::Present;
        let environment_request = EnvironmentRequest { cancellation, progress: &|_| {}, build };
        let manifest = &program.program().manifest;
        let environment = self
            .environments
            .prepare(key.language, manifest, &self.workers, &environment_request)
            .map_err(|failed| TrialNotRun::new(failed.fault.into_failure().message))?;
        let order = Order { request: &request, program: &program, proven: false };
        let run_limits = RunLimits {
            agent: &request.id.0,
            time_limit: CASE_TIME,
            cancellation,
            grants: &Grants::default(),
        };
        let guest = self.workers.guest(key.language);
        let started = guest.start(&environment, &order, &run_limits);
        let mut turn = started.map_err(|_| TrialNotRun::new("no worker could be started"))?;
        let unaccepted = || ReportEnding::exited(1);
        match turn.listen() {
            Ok(TurnEvent::Done(done)) => Ok((done.ending, done.changes)),
            // A program that asks the host does not answer from its inputs alone.
            Ok(TurnEvent::Ask(_)) => Ok((unaccepted(), ContextChanges::default())),
            Err(_) if cancellation.is_cancelled() => Err(TrialNotRun::new("the process ends")),
            Err(_) => Ok((unaccepted(), ContextChanges::default())),
        }
    }
}

/// Whether a program's ending is what an example expects.
pub(crate) fn is_met(example: &Example, ending: &ReportEnding) -> bool {
    match ending {
        ReportEnding::Value(value) => example.is_met(Ok(value)),
        ReportEnding::Reported { reported, .. } => example.is_met(Err(&reported.code)),
        ReportEnding::Raised { .. }
        | ReportEnding::Looked(_)
        | ReportEnding::Malformed(_)
        | ReportEnding::Unserializable { .. }
        | ReportEnding::Exited { .. }
        | ReportEnding::Limited(..) => example.is_met(Err(FailureKind::Execution.code())),
    }
}

/// A program that passed once passes again, unless the rules have changed since.
fn vetted(artifact: &Artifact, request: &CallRequest) -> Option<VettedProgram> {
    let manifest = artifact.manifest.readmitted(artifact.language).ok()?;
    let program =
        GeneratedProgram { language: artifact.language, source: artifact.code.clone(), manifest };
    vet(program, request, &[], &GuardrailPolicy::default()).ok()
}

/// A call outside every session: it has no memory and no tools.
pub(crate) fn trial_request(key: &ArtifactKey) -> CallRequest {
    let id = crate::identity::call_id();
    CallRequest {
        lineage: Lineage::Root { trace: TraceId::of_root(&id) },
        id: CallId(format!("trial-{}", id.0)),
        role: key.role.clone(),
        method: key.method.clone(),
        arguments: Arguments::default(),
        contract: None,
        language: key.language,
        context: Context::default(),
        manifest: None,
        allowance: Allowance::default(),
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::contract::Fingerprint;
    use lifecycle::dialect::Language;
    use lifecycle::request::{Method, Role};

    use super::*;

    fn subject(code: &str) -> TrialSubject {
        let key = ArtifactKey {
            role: Role::parse("shop").unwrap(),
            method: Method::parse("price").unwrap(),
            language: Language::Python,
            contract_fingerprint: Fingerprint::none(),
        };
        (key, Checksum::of(code))
    }

    #[test]
    fn a_trial_that_panics_blocks_nothing() {
        let (queue, (sender, receiver)) = (TrialQueue::default(), mpsc::channel());
        let both = [subject("panics"), subject("fine")];
        for one in &both {
            assert!(queue.state().enter(one));
            sender.send(one.clone()).unwrap();
        }
        drop(sender);
        run_trials(&queue, &receiver, |tried| {
            assert_ne!(*tried, both[0], "a panic on purpose");
            true
        });
        assert!(queue.state().open.is_empty(), "nothing waits any more");
        assert_eq!(queue.state().untried.keys().collect::<Vec<_>>(), [&both[0]]);
    }

    #[test]
    fn what_could_not_be_tried_is_tried_again_but_not_for_ever() {
        let (one, other) = (subject("1"), subject("2"));
        let mut queue = TrialQueueState::default();
        assert!(queue.enter(&one));
        assert!(!queue.enter(&one), "it waits already");
        for _ in 1..MAX_TRIES {
            queue.close(&one, false);
            assert!(queue.enter(&one));
        }
        queue.close(&one, false);
        assert!(!queue.enter(&one), "no worker could be started three times");
        assert!(queue.enter(&other), "other challengers are not affected");
        queue.close(&other, true);
        assert!(queue.enter(&other));
    }
}
