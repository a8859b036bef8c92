//! Trials: a new version shows, on recorded calls, that it may take over. After the reply, out of band.
//!
//! Each recorded call is run again in a worker of its own. What the challenger does not reproduce is run
//! with the incumbent too: a call its own program does not repeat proves nothing and is forgotten. What
//! could not be tried (no worker, no environment, the process ends) is tried at a later call, a few times.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lifecycle::admission::{Case, Observed};
use lifecycle::artifact::{Artifact, ArtifactKey};
use lifecycle::call::StoreFault;
use lifecycle::context::Context;
use lifecycle::execution::Order;
use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::program::{Checksum, GeneratedProgram, VettedProgram, vet};
use lifecycle::request::{Allowance, Arguments, CallId, CallRequest, Lineage, TraceId};

use crate::environment::{Aim, Environments};
use crate::grants::Grants;
use crate::guest::{Cancellation, RunLimits, Said};
use crate::store::Store;
use crate::store::catalog::{StoredVersion, Verdict};
use crate::worker::Workers;

/// Time one recorded call may take to run again.
const CASE_TIME: Duration = Duration::from_secs(5);
/// Time the end of a process waits for trials under way.
const GRACE: Duration = Duration::from_secs(2);
/// Trials that may wait; more are left for later calls.
const MAX_WAITING: usize = 64;
/// Times one process sets out to try a challenger that cannot be tried.
const MAX_TRIES: u32 = 3;
/// Challengers that could not be tried which are remembered.
const MAX_UNTRIED: usize = 1024;

/// What a trial is about: a challenger, by what it is stored under.
type Candidacy = (ArtifactKey, Checksum);

/// What trials need.
pub(crate) struct TrialRunner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) environments: Arc<Environments>,
}

/// The trials of one runtime: a queue and, from the first one on, a thread.
pub(crate) struct Trials {
    trial_runner: Arc<TrialRunner>,
    trial_queue: Arc<TrialQueue>,
    trial_thread: Mutex<Option<TrialThread>>,
}

struct TrialThread {
    sender: Sender<Candidacy>,
    thread: JoinHandle<()>,
}

/// What waits or is under way, and what could not be tried.
#[derive(Default)]
struct TrialQueue {
    state: Mutex<TrialQueueState>,
    changed: Condvar,
    cancellation: Cancellation,
}

#[derive(Default)]
struct TrialQueueState {
    open: BTreeSet<Candidacy>,
    /// With how often.
    untried: BTreeMap<Candidacy, u32>,
}

impl TrialQueueState {
    /// Enters a challenger, unless it already waits, could not be tried too often, or too many wait.
    fn enter(&mut self, candidacy: &Candidacy) -> bool {
        let tries = self.untried.get(candidacy).copied().unwrap_or(0);
        tries < MAX_TRIES && self.open.len() < MAX_WAITING && self.open.insert(candidacy.clone())
    }

    fn close(&mut self, candidacy: &Candidacy, tried: bool) {
        self.open.remove(candidacy);
        if tried {
            self.untried.remove(candidacy);
        } else if let Some(tries) = self.untried.get_mut(candidacy) {
            *tries += 1;
        } else if self.untried.len() < MAX_UNTRIED {
            self.untried.insert(candidacy.clone(), 1);
        }
    }
}

impl fmt::Debug for Trials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trials")
            .field("open", &self.trial_queue.state().open.len())
            .finish_non_exhaustive()
    }
}

impl Trials {
    pub(crate) fn new(trial_runner: TrialRunner) -> Self {
        Self {
            trial_runner: Arc::new(trial_runner),
            trial_queue: Arc::default(),
            trial_thread: Mutex::new(None),
        }
    }

    /// Has a challenger tried soon, unless it already waits or cannot be tried.
    pub(crate) fn hold(&self, key: ArtifactKey, challenger: Checksum) {
        let candidacy = (key, challenger);
        if !self.trial_queue.state().enter(&candidacy) {
            return;
        }
        let mut trial_thread = self.trial_thread.lock().unwrap_or_else(PoisonError::into_inner);
        if trial_thread.is_none() {
            *trial_thread = self.start();
        }
        let taken = trial_thread
            .as_ref()
            .is_some_and(|trial_thread| trial_thread.sender.send(candidacy.clone()).is_ok());
        if !taken {
            self.trial_queue.close(&candidacy, false);
        }
    }

    /// Waits until no trial waits or is under way.
    pub(crate) fn wait(&self) {
        let mut state = self.trial_queue.state();
        while !state.open.is_empty() {
            state = self.trial_queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn start(&self) -> Option<TrialThread> {
        let (sender, receiver) = mpsc::channel();
        let (trial_runner, trial_queue) =
            (Arc::clone(&self.trial_runner), Arc::clone(&self.trial_queue));
        let thread = thread::Builder::new()
            .name("trials".to_owned())
            .spawn(move || {
                let hear = |(key, challenger): &Candidacy| {
                    trial_runner.hear(key, challenger, &trial_queue.cancellation).is_ok()
                };
                sit(&trial_queue, &receiver, hear);
            })
            .ok()?;
        Some(TrialThread { sender, thread })
    }
}

impl Drop for Trials {
    /// What is not done in time stays a challenger, and is tried at a later call.
    fn drop(&mut self) {
        let trial_thread =
            self.trial_thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(TrialThread { sender, thread }) = trial_thread else { return };
        drop(sender);
        let busy = |state: &mut TrialQueueState| !state.open.is_empty();
        let waited =
            self.trial_queue.changed.wait_timeout_while(self.trial_queue.state(), GRACE, busy);
        drop(waited);
        self.trial_queue.cancellation.cancel();
        // The thread survives whatever its trials do.
        let _ = thread.join();
    }
}

impl TrialQueue {
    fn state(&self) -> MutexGuard<'_, TrialQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, candidacy: &Candidacy, tried: bool) {
        self.state().close(candidacy, tried);
        self.changed.notify_all();
    }
}

/// Holds one trial after the other. One that panics was not held: who waits for it must not wait for ever.
fn sit(
    trial_queue: &TrialQueue,
    receiver: &Receiver<Candidacy>,
    hear: impl Fn(&Candidacy) -> bool,
) {
    while let Ok(candidacy) = receiver.recv() {
        let held = || !trial_queue.cancellation.is_cancelled() && hear(&candidacy);
        let tried = catch_unwind(AssertUnwindSafe(held)).unwrap_or(false);
        trial_queue.close(&candidacy, tried);
    }
}

/// Why nothing was settled: the store, an environment or a worker was not to be had, or the process ends.
struct Untried;

impl From<StoreFault> for Untried {
    fn from(_: StoreFault) -> Self {
        Self
    }
}

impl TrialRunner {
    /// Tries a challenger and settles it.
    fn hear(
        &self,
        key: &ArtifactKey,
        challenger: &Checksum,
        cancellation: &Cancellation,
    ) -> Result<(), Untried> {
        let versions = self.store.versions(key)?;
        let incumbent = versions.iter().find(|version| version.is_current).ok_or(Untried)?;
        let named = |version: &&StoredVersion| version.artifact.checksum == *challenger;
        let rival = versions.iter().find(named).ok_or(Untried)?;
        let verdict = self.rule(key, incumbent, rival, cancellation)?;
        self.store.conclude(key, &incumbent.artifact.checksum, challenger, &verdict)?;
        Ok(())
    }

    fn rule(
        &self,
        key: &ArtifactKey,
        incumbent: &StoredVersion,
        challenger: &StoredVersion,
        cancellation: &Cancellation,
    ) -> Result<Verdict, Untried> {
        for case in self.store.corpus(key)? {
            let repeats = |version: &StoredVersion| {
                self.run_again(key, &version.artifact, &case, cancellation)
                    .map(|observed| observed.as_ref() == Some(&case.observed))
            };
            if repeats(challenger)? {
                continue;
            }
            if !incumbent.pure || repeats(incumbent)? {
                return Ok(Verdict::Failed(Box::new(case)));
            }
            self.store.forget_case(key, &case)?;
        }
        Ok(Verdict::Passed)
    }

    /// What comes of a recorded call with this program; `None`: nothing that could be accepted.
    fn run_again(
        &self,
        key: &ArtifactKey,
        artifact: &Artifact,
        case: &Case,
        cancellation: &Cancellation,
    ) -> Result<Option<Observed>, Untried> {
        let request = case.inputs.again(&request(key));
        let program = vetted(artifact, &request).ok_or(Untried)?;
        let aim = Aim { cancellation, progress: &|_| {}, replaces: None };
        let manifest = &program.program().manifest;
        let environment = self
            .environments
            .prepare(key.language, manifest, &self.workers, &aim)
            .map_err(|_| Untried)?;
        let order = Order { request: &request, program: &program, proven: false };
        let run_limits = RunLimits {
            agent: &request.id.0,
            time_limit: CASE_TIME,
            cancellation,
            grants: &Grants::default(),
        };
        let guest = self.workers.guest(key.language);
        let mut turn = guest.start(&environment, &order, &run_limits).map_err(|_| Untried)?;
        match turn.listen() {
            Ok(Said::Done(done)) => Ok(Observed::of_report(&done.ending, &done.changes)),
            // A program that asks the host is not what it seemed: its answer is not its own.
            Ok(Said::Ask(_)) => Ok(None),
            Err(_) if cancellation.is_cancelled() => Err(Untried),
            Err(_) => Ok(None),
        }
    }
}

/// A program that passed once passes again, unless the rules have changed since.
fn vetted(artifact: &Artifact, request: &CallRequest) -> Option<VettedProgram> {
    let manifest = artifact.manifest.readmitted(artifact.language).ok()?;
    let program =
        GeneratedProgram { language: artifact.language, source: artifact.code.clone(), manifest };
    vet(program, request, &[], &GuardrailPolicy::default()).ok()
}

/// Nobody's call: it has no memory, no tools, and nobody waits for it.
fn request(key: &ArtifactKey) -> CallRequest {
    let id = crate::identity::call_id();
    CallRequest {
        lineage: Lineage::Root { trace: TraceId(id.0.clone()) },
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

    fn candidacy(code: &str) -> Candidacy {
        let key = ArtifactKey {
            role: Role::parse("shop").unwrap(),
            method: Method::parse("price").unwrap(),
            language: Language::Python,
            contract_fingerprint: Fingerprint::none(),
        };
        (key, Checksum::of(code))
    }

    #[test]
    fn a_trial_that_panics_holds_up_nobody() {
        let (trial_queue, (sender, receiver)) = (TrialQueue::default(), mpsc::channel());
        let both = [candidacy("panics"), candidacy("fine")];
        for one in &both {
            assert!(trial_queue.state().enter(one));
            sender.send(one.clone()).unwrap();
        }
        drop(sender);
        sit(&trial_queue, &receiver, |heard| {
            assert_ne!(*heard, both[0], "a panic on purpose");
            true
        });
        assert!(trial_queue.state().open.is_empty(), "nobody waits any more");
        assert_eq!(trial_queue.state().untried.keys().collect::<Vec<_>>(), [&both[0]]);
    }

    #[test]
    fn what_could_not_be_tried_is_tried_again_but_not_for_ever() {
        let (one, other) = (candidacy("1"), candidacy("2"));
        let mut trial_queue = TrialQueueState::default();
        assert!(trial_queue.enter(&one));
        assert!(!trial_queue.enter(&one), "it waits already");
        for _ in 1..MAX_TRIES {
            trial_queue.close(&one, false);
            assert!(trial_queue.enter(&one));
        }
        trial_queue.close(&one, false);
        assert!(!trial_queue.enter(&one), "a worker was not to be had three times");
        assert!(trial_queue.enter(&other), "which is no other's fault");
        trial_queue.close(&other, true);
        assert!(trial_queue.enter(&other));
    }
}
