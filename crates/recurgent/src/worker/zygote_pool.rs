//! The workers of one zygote key: a zygote, booted when first needed and again after it ended, and one spare worker
//! that is forked ahead of need.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lifecycle::dialect::Language;
use lifecycle::execution::{Environment, WorkerFault};
use lifecycle::outcome::{Failure, FailureKind};

use super::launcher::Launcher;
use super::link::Link;
use super::locked;
use super::process::{Process, WorkerExit, WorkerId};
use super::sandbox::VersionMount;
use super::zygote::{Zygote, ZygoteFault};
use crate::grants::Grants;

/// Time to wait after a failed boot; doubles with each further failure.
const FIRST_BACK_OFF: Duration = Duration::from_millis(100);
/// Failed boots in a row after which the zygote is given up for [`GIVEN_UP_FOR`].
const MAX_FAILED_BOOTS: u32 = 5;
/// How long no boot is tried then.
const GIVEN_UP_FOR: Duration = Duration::from_mins(1);

/// What workers of one zygote have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ZygoteKey {
    /// The guest.
    pub(super) language: Language,
    /// The prepared set of packages; `None`: the bare language.
    pub(super) environment: Option<Activation>,
    /// What their programs may reach.
    pub(super) grants: Grants,
    /// The version of a workspace that the one worker of the zygote may change.
    pub(super) workspace_version: Option<VersionMount>,
    /// The only agent they serve, where workers of one zygote can signal each other.
    pub(super) agent: Option<String>,
}

/// An environment to be activated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Activation {
    /// `env_id`.
    pub(crate) id: String,
    /// Its directory.
    pub(crate) root: PathBuf,
}

impl Activation {
    pub(super) fn of(environment: &Environment) -> Option<Self> {
        let (id, root) = (environment.id.clone()?, environment.root.as_ref()?);
        Some(Self { id, root: PathBuf::from(root) })
    }
}

/// Why no zygote booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BootFault {
    /// The interpreter itself is missing or broken.
    Unavailable(String),
    /// Its environment cannot be activated.
    ActivationFailed {
        /// The package that does not load, if it is one.
        package: Option<String>,
        /// Why.
        problem: String,
    },
}

impl BootFault {
    /// The fault of the attempt that needed a worker.
    fn into_worker_fault(self, key: &ZygoteKey) -> WorkerFault {
        let (package, problem) = match self {
            Self::Unavailable(problem) => return WorkerFault::Unavailable(problem),
            Self::ActivationFailed { package, problem } => (package, problem),
        };
        let message = format!("the environment cannot be activated: {problem}");
        let mut failure = Failure::new(FailureKind::DependencyActivationFailed, message)
            .with("stage", "activate");
        if let Some(environment) = &key.environment {
            failure = failure.with("env_id", environment.id.as_str());
        }
        if let Some(package) = package {
            failure = failure.with("dependency_name", package);
        }
        WorkerFault::ActivationFailed(Box::new(failure))
    }
}

/// Makes the workers of one key.
#[derive(Debug)]
pub(super) struct ZygotePool {
    key: ZygoteKey,
    /// Held during an exchange with the zygote, which serves one request at a time anyway. A caller that needs a
    /// worker while the spare is being forked waits for that spare.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    zygote: Option<Zygote>,
    spare: Option<(Process, Link)>,
    failed: Option<FailedBoots>,
    closed: bool,
}

#[derive(Debug)]
struct FailedBoots {
    in_a_row: u32,
    retry_at: Instant,
    fault: BootFault,
}

impl ZygotePool {
    pub(super) fn new(key: ZygoteKey) -> Self {
        Self { key, state: Mutex::default() }
    }

    /// An unused worker: the spare, or one forked now.
    pub(super) fn take(&self, launcher: &Launcher) -> Result<(Process, Link), WorkerFault> {
        let mut state = locked(&self.state);
        if let Some(spare) = state.spare.take() {
            return Ok(spare);
        }
        match self.fork(&mut state, launcher)? {
            Ok(worker) => Ok(worker),
            // The zygote ended since it was last used: try once more with a new one.
            Err(ZygoteFault::Lost(_)) => self.fork(&mut state, launcher)?.map_err(unavailable),
            Err(fault @ ZygoteFault::Refused(_)) => Err(unavailable(fault)),
        }
    }

    /// Boots the zygote if there is none.
    pub(super) fn ensure_booted(&self, launcher: &Launcher) -> Result<(), BootFault> {
        let mut state = locked(&self.state);
        if state.zygote.is_none() {
            state.zygote = Some(self.boot(&mut state, launcher)?);
        }
        Ok(())
    }

    /// Forks a spare if there is none. A failure is reported by the next caller that needs a worker.
    pub(super) fn refill(&self) {
        let mut state = locked(&self.state);
        if state.spare.is_none() && self.keeps_workers_apart() && !self.serves_one_turn() {
            state.spare = state.exchange(Zygote::fork).and_then(Result::ok);
        }
    }

    /// Whether its worker has a version of a workspace that is one attempt's.
    pub(super) fn serves_one_turn(&self) -> bool {
        self.key.workspace_version.is_some()
    }

    /// What its programs see in place of their workspace, where that is a layer.
    pub(super) fn layer(&self) -> Option<OwnedFd> {
        locked(&self.state).zygote.as_ref().and_then(Zygote::layer)
    }

    /// Whether its workers cannot signal each other. A zygote that serves one agent only is used where they can.
    pub(super) fn keeps_workers_apart(&self) -> bool {
        self.key.agent.is_none()
    }

    /// Asks the zygote to wait for a killed worker. If its zygote has ended, the worker has ended too.
    pub(super) fn reap_killed(&self, worker: WorkerId) {
        locked(&self.state).exchange_about(worker, |zygote| {
            zygote.settle()?;
            zygote.reap_killed(worker.pid)
        });
    }

    /// How a worker ended; `None`: its zygote has ended as well.
    pub(super) fn reap(&self, worker: WorkerId) -> Option<WorkerExit> {
        locked(&self.state)
            .exchange_about(worker, |zygote| zygote.reap(worker.pid))
            .and_then(Result::ok)
    }

    /// Ends the zygote and all its workers; no other is booted.
    pub(super) fn close(&self) {
        let mut state = locked(&self.state);
        let spare = state.spare.take();
        *state = State { closed: true, ..State::default() };
        if let Some((spare, _)) = spare {
            spare.kill();
            spare.await_end();
        }
    }

    fn fork(
        &self,
        state: &mut State,
        launcher: &Launcher,
    ) -> Result<Result<(Process, Link), ZygoteFault>, WorkerFault> {
        if state.zygote.is_none() {
            let booted = self.boot(state, launcher);
            state.zygote = Some(booted.map_err(|fault| fault.into_worker_fault(&self.key))?);
        }
        Ok(state
            .exchange(Zygote::fork)
            .unwrap_or_else(|| Err(ZygoteFault::Lost("there is no zygote".to_owned()))))
    }

    fn boot(&self, state: &mut State, launcher: &Launcher) -> Result<Zygote, BootFault> {
        if state.closed {
            return Err(BootFault::Unavailable("the runtime is shutting down".to_owned()));
        }
        if let Some(failed) =
            state.failed.as_ref().filter(|failed| Instant::now() < failed.retry_at)
        {
            return Err(failed.fault.clone());
        }
        let booted = launcher.boot(&self.key);
        state.failed =
            booted.as_ref().err().map(|fault| FailedBoots::after(state.failed.as_ref(), fault));
        booted
    }
}

impl State {
    /// Makes a request of the zygote, if there is one, and drops the zygote if it is lost.
    fn exchange<T>(
        &mut self,
        request: impl FnOnce(&mut Zygote) -> Result<T, ZygoteFault>,
    ) -> Option<Result<T, ZygoteFault>> {
        let result = request(self.zygote.as_mut()?);
        if let Err(ZygoteFault::Lost(_)) = result {
            // The spare is its child and ends with it.
            (self.zygote, self.spare) = (None, None);
        }
        Some(result)
    }

    /// The same, if this zygote forked the worker.
    fn exchange_about<T>(
        &mut self,
        worker: WorkerId,
        request: impl FnOnce(&mut Zygote) -> Result<T, ZygoteFault>,
    ) -> Option<Result<T, ZygoteFault>> {
        self.zygote.as_ref().filter(|zygote| zygote.forked(worker))?;
        self.exchange(request)
    }
}

impl FailedBoots {
    fn after(earlier: Option<&Self>, fault: &BootFault) -> Self {
        let in_a_row = earlier.map_or(1, |earlier| earlier.in_a_row.saturating_add(1));
        let back_off = if in_a_row < MAX_FAILED_BOOTS {
            FIRST_BACK_OFF * 2_u32.pow(in_a_row - 1)
        } else {
            GIVEN_UP_FOR
        };
        Self { in_a_row, retry_at: Instant::now() + back_off, fault: fault.clone() }
    }
}

fn unavailable(fault: ZygoteFault) -> WorkerFault {
    match fault {
        ZygoteFault::Refused(problem) | ZygoteFault::Lost(problem) => {
            WorkerFault::Unavailable(format!("no worker could be forked: {problem}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_boots_back_off_and_are_given_up_for_a_while() {
        let broken = BootFault::Unavailable("broken".to_owned());
        let mut failed = FailedBoots::after(None, &broken);
        for in_a_row in 2..=8 {
            let before = failed.retry_at;
            failed = FailedBoots::after(Some(&failed), &broken);
            assert_eq!(failed.in_a_row, in_a_row);
            assert!(failed.retry_at > before);
        }
        assert!(failed.retry_at.duration_since(Instant::now()) > GIVEN_UP_FOR / 2);
    }
}
