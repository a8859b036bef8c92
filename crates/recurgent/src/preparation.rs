//! Preparing an environment ahead of need: a ticket that reports its progress, and agents that wait for it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::execution::Environment;
use lifecycle::outcome::{Failure, FailureKind};
use lifecycle::request::{NameFault, Role};
use serde_json::{Value, json};

use crate::agent::{Agent, AgentBuilder, AgentFault};
use crate::environment::{BuildChoice, EnvironmentRequest, Progress, Stored};
use crate::guest::Cancellation;
use crate::identity;
use crate::runtime::Runtime;

/// The progress of a preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreparationStatus {
    /// Not finished.
    Pending,
    /// The environment exists.
    Ready,
    /// The environment could not be made.
    Error,
}

impl PreparationStatus {
    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for PreparationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Builds a preparation: of an agent, and of the packages it will need.
#[must_use]
pub struct Preparation {
    runtime: Runtime,
    builder: AgentBuilder,
    dependencies: Vec<Value>,
    /// The environment to rebuild; `None`: an existing one is used.
    replaces: Option<String>,
    on_progress: OnProgress,
}

impl fmt::Debug for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preparation")
            .field("dependencies", &self.dependencies)
            .field("replaces", &self.replaces)
            .finish_non_exhaustive()
    }
}

impl Preparation {
    pub(crate) fn new(runtime: &Runtime, role: impl TryInto<Role, Error: Into<NameFault>>) -> Self {
        Self {
            runtime: runtime.clone(),
            builder: runtime.agent(role),
            dependencies: Vec::new(),
            replaces: None,
            on_progress: Box::new(|_| {}),
        }
    }

    pub(crate) fn anew(runtime: &Runtime, stored: &Stored) -> Self {
        let declared = stored.manifest.dependencies();
        let dependencies = declared.iter().map(|dependency| json!(dependency)).collect();
        Self { dependencies, replaces: Some(stored.id.clone()), ..Self::new(runtime, "refresh") }
            .guest(stored.language)
    }

    /// A package, and its accepted versions; an empty text accepts any.
    pub fn dependency(mut self, name: &str, version: &str) -> Self {
        let version = Some(version.trim()).filter(|version| !version.is_empty());
        self.dependencies.push(json!({"name": name, "version": version}));
        self
    }

    /// The language its programs are written in.
    pub fn guest(self, language: Language) -> Self {
        self.agent(|builder| builder.guest(language))
    }

    /// Anything else about the agent: its contract, options, session.
    pub fn agent(mut self, with: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Self {
        self.builder = with(self.builder);
        self
    }

    /// Is called, on the preparing thread, with each step that takes long: fetching a tool, waiting for another process,
    /// resolving, installing, loading.
    pub fn on_progress(mut self, report: impl Fn(&str) + Send + 'static) -> Self {
        self.on_progress = Box::new(report);
        self
    }

    /// Starts preparing, in the background.
    pub fn start(self) -> PreparationTicket {
        let Self { runtime, builder, dependencies, replaces, on_progress } = self;
        let ticket = PreparationTicket(Arc::new(Shared {
            id: identity::ticket_id(),
            builder,
            dependencies,
            replaces,
            on_progress: Mutex::new(on_progress),
            cancellation: Cancellation::default(),
            state: Mutex::default(),
            settled: Condvar::new(),
        }));
        ticket.start(runtime);
        ticket
    }
}

/// A preparation, running or finished. Cheap to clone.
#[derive(Clone)]
pub struct PreparationTicket(Arc<Shared>);

struct Shared {
    id: String,
    builder: AgentBuilder,
    dependencies: Vec<Value>,
    replaces: Option<String>,
    on_progress: Mutex<OnProgress>,
    cancellation: Cancellation,
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Default)]
struct State {
    result: Option<Result<Environment, Box<Failure>>>,
    on_ready: Vec<OnReady>,
    on_error: Vec<OnError>,
}

type OnProgress = Box<dyn Fn(&str) + Send>;
type OnReady = Box<dyn FnOnce(Agent) + Send>;
type OnError = Box<dyn FnOnce(&Failure) + Send>;

impl fmt::Debug for PreparationTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparationTicket")
            .field("id", &self.0.id)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl PreparationTicket {
    /// Its name, also in the log lines of its agents (`prep_ticket_id`).
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Its progress.
    pub fn status(&self) -> PreparationStatus {
        match self.state().result {
            None => PreparationStatus::Pending,
            Some(Ok(_)) => PreparationStatus::Ready,
            Some(Err(_)) => PreparationStatus::Error,
        }
    }

    /// Why the environment could not be made, once that is known.
    pub fn failure(&self) -> Option<Failure> {
        self.state().result.as_ref()?.as_ref().err().map(|failure| Failure::clone(failure))
    }

    /// The environment, once it exists.
    pub fn environment(&self) -> Option<Environment> {
        self.state().result.as_ref()?.as_ref().ok().cloned()
    }

    /// Waits until it is no longer pending, at most this long; gives its status.
    pub fn await_ready(&self, timeout: Duration) -> PreparationStatus {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.state();
        while state.result.is_none() {
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            let waited = self.0.settled.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        self.status()
    }

    /// An agent for the prepared environment. It can be built at once; until the environment is ready
    /// its calls answer `environment_preparing`.
    pub fn agent(&self) -> Result<Agent, AgentFault> {
        self.0.builder.clone().prepared_by(self.clone()).build()
    }

    /// Gives an agent to `then` when the environment is ready: now, on this thread, if it is already;
    /// else later, on the preparing one.
    pub fn on_ready(&self, then: impl FnOnce(Agent) + Send + 'static) -> &Self {
        let mut state = self.state();
        match state.result {
            None => state.on_ready.push(Box::new(then)),
            Some(Ok(_)) => {
                drop(state);
                self.notify_ready(Box::new(then));
            }
            Some(Err(_)) => {}
        }
        self
    }

    /// Gives `then` the reason why there will be no environment, in the same way.
    pub fn on_error(&self, then: impl FnOnce(&Failure) + Send + 'static) -> &Self {
        let mut state = self.state();
        match &state.result {
            None => state.on_error.push(Box::new(then)),
            Some(Err(failure)) => {
                let failure = failure.clone();
                drop(state);
                notify_error(Box::new(then), &failure);
            }
            Some(Ok(_)) => {}
        }
        self
    }

    /// Stops preparing; the ticket ends in error.
    pub fn cancel(&self) {
        self.0.cancellation.cancel();
    }

    /// Prepares in the background.
    fn start(&self, runtime: Runtime) {
        let worker = self.clone();
        let started =
            thread::Builder::new().name("recurgent-prepare".to_owned()).spawn(move || {
                let made = worker.manifest().and_then(|manifest| worker.make(&runtime, &manifest));
                worker.settle(made);
            });
        if let Err(error) = started {
            let message = format!("no thread to prepare in: {error}; free some threads");
            let failure = Failure::new(FailureKind::DependencyInstallFailed, message);
            self.settle(Err(Box::new(failure)));
        }
    }

    /// The failure of a call before the environment exists, or if it never will. A preparation that failed and may succeed
    /// another time is started again: the caller is asked to call again.
    pub(crate) fn readiness(&self, runtime: &Runtime) -> Result<(), Box<Failure>> {
        let preparing = |message: String| {
            Failure::new(FailureKind::EnvironmentPreparing, message)
                .with("prep_ticket_id", self.id())
        };
        let mut state = self.state();
        match &state.result {
            Some(Ok(_)) => Ok(()),
            None => {
                let message = "the environment is still being prepared; call again soon";
                Err(Box::new(preparing(message.to_owned())))
            }
            Some(Err(cause)) if cause.kind.retriable() && !self.0.cancellation.is_cancelled() => {
                let message = format!(
                    "the environment could not be prepared and is prepared again; call again soon: {}",
                    cause.message
                );
                let cause = json!({"error_type": cause.kind.code(), "error_message": cause.message, "metadata": cause.metadata});
                state.result = None;
                drop(state);
                self.start(runtime.clone());
                Err(Box::new(preparing(message).with("cause", cause)))
            }
            // It never will be: reported as what it is.
            Some(Err(cause)) => {
                let cause = Failure::clone(cause);
                Err(Box::new(cause.with("prep_ticket_id", self.id())))
            }
        }
    }

    /// The packages to prepare; checks now that an agent can be built.
    fn manifest(&self) -> Result<DependencyManifest, Box<Failure>> {
        let declared = Value::Array(self.0.dependencies.clone());
        let manifest = DependencyManifest::parse(self.0.builder.language(), Some(&declared))
            .map_err(|fault| Box::new(fault.failure()))?;
        let refused = |fault: AgentFault| Failure::new(FailureKind::InvalidCall, fault.to_string());
        self.0.builder.clone().build().map_err(|fault| Box::new(refused(fault)))?;
        Ok(manifest)
    }

    fn make(
        &self,
        runtime: &Runtime,
        manifest: &DependencyManifest,
    ) -> Result<Environment, Box<Failure>> {
        let build = self.0.replaces.as_deref().map_or(BuildChoice::Present, BuildChoice::Refreshed);
        let progress = |progress: Progress<'_>| {
            let report = self.0.on_progress.lock().unwrap_or_else(PoisonError::into_inner);
            // A callback can neither stop nor break the preparation.
            let _ = catch_unwind(AssertUnwindSafe(|| report(&progress.to_string())));
        };
        let request =
            EnvironmentRequest { cancellation: &self.0.cancellation, progress: &progress, build };
        runtime
            .environments()
            .prepare(self.0.builder.language(), manifest, runtime.workers(), &request)
            .map_err(|failed| Box::new(failed.fault.into_failure()))
    }

    fn settle(&self, result: Result<Environment, Box<Failure>>) {
        let mut state = self.state();
        let (on_ready, on_error) =
            (std::mem::take(&mut state.on_ready), std::mem::take(&mut state.on_error));
        state.result = Some(result.clone());
        drop(state);
        self.0.settled.notify_all();
        match result {
            Ok(_) => on_ready.into_iter().for_each(|then| self.notify_ready(then)),
            Err(failure) => on_error.into_iter().for_each(|then| notify_error(then, &failure)),
        }
    }

    fn notify_ready(&self, then: OnReady) {
        // The agent was built once before, so it can be built again; a panic of the callback stays here.
        let _ = catch_unwind(AssertUnwindSafe(|| self.agent().map(then)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn notify_error(then: OnError, failure: &Failure) {
    let _ = catch_unwind(AssertUnwindSafe(|| then(failure)));
}
