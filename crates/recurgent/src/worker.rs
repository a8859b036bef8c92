//! Worker processes: the host side of the worker protocol (specs/worker-protocol.md).
//!
//! ```text
//! Workers ── guest(language) ── start ──► WorkerTurn      one exchange: execute, asks, done
//!    │  Permits      how many run at once            │
//!    │  Pool         an agent's kept worker          ├─ Worker = Process (kill) + Link (frames)
//!    │  ZygotePool   zygote and spare, per key  ─────┘
//!    │     └─ Launcher ─ interpreter, Sandbox, Spawner thread
//!    └─ Reaper       the thread for background work
//! ```
//!
//! An unproven program runs in a worker of its own, which is killed when the program is done. A proven one runs in
//! its agent's kept worker, which is killed unless the program ends normally.

mod frame;
mod reaper;
mod launcher;
mod link;
mod losses;
pub mod outside_process;
mod zygote_pool;
mod permit;
mod pool;
mod process;
pub(crate) mod sandbox;
mod turn;
mod waiting;
mod zygote;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::dialect::Language;
use lifecycle::execution::{Environment, Order, WorkerFault, WorkerTrace};

use crate::grants::{Grants, Network};
use crate::guest::interpreter::InterpreterInfo;
use crate::guest::{Cancellation, RunLimits};

use launcher::Launcher;
use losses::Losses;
use permit::{Permit, Permits};
use pool::Pool;
use reaper::Reaper;
pub use sandbox::{InstallerLimits, Layer, Layers, Reached, Tier, WorkerLimits, close_on_exec};
pub use turn::WorkerTurn;
use turn::{AssignedWorker, StartFault, Worker};
pub(crate) use zygote::start as start_inside;
pub(crate) use zygote_pool::{Activation, BootFault};
use zygote_pool::{ZygoteKey, ZygotePool};

/// Interval at which a waiting thread checks for cancellation.
const CANCELLATION_PERIOD: Duration = Duration::from_millis(25);
/// Workers tried if they turn out to have ended before they were used.
const START_TRIES: usize = 3;
/// Zygotes kept without workers; the one unused longest is ended first.
const MAX_IDLE_ZYGOTES: usize = 8;
/// How long a zygote without workers is kept.
const ZYGOTE_IDLE_LIMIT: Duration = Duration::from_mins(30);
/// Longest interval between two checks for idle workers and for processes left by programs.
const MAX_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Shortest interval, so that a short idle limit does not cause a busy loop.
const MIN_CHECK_PERIOD: Duration = Duration::from_millis(10);

/// How workers are started and limited.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The Python to use instead of the first on `path`.
    pub python: Option<PathBuf>,
    /// The Ruby to use instead of the first on `path`.
    pub ruby: Option<PathBuf>,
    /// The search path of interpreters and programs.
    pub path: OsString,
    /// Parent of the workers' private directories.
    pub scratch: PathBuf,
    /// Programs that run at once.
    pub max_running: usize,
    /// Longest time a call waits to run.
    pub queue_limit: Duration,
    /// How long an agent's worker is kept without use.
    pub idle_limit: Duration,
    /// Workers that exist at once, idle ones included.
    pub max_live: usize,
    /// Workers an agent may lose in a row before it must wait.
    pub max_restarts: u32,
    /// Longest time the packages of an environment may take to load.
    pub activation_limit: Duration,
    /// Resource limits of one worker.
    pub limits: WorkerLimits,
    /// The weakest sandbox tier that is accepted.
    pub minimum_tier: Tier,
    /// Sandbox layers to use if they are available; all, except in tests of single layers.
    #[doc(hidden)]
    pub layers: Layers,
}

impl WorkerOptions {
    /// Default limits, with interpreters from `path` and private directories in `scratch`.
    pub fn new(path: impl Into<OsString>, scratch: impl Into<PathBuf>) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            python: None,
            ruby: None,
            path: path.into(),
            scratch: scratch.into(),
            max_running: (2 * cores).max(2),
            queue_limit: Duration::from_mins(1),
            idle_limit: Duration::from_mins(5),
            max_live: 256,
            max_restarts: 5,
            activation_limit: Duration::from_mins(1),
            limits: WorkerLimits::default(),
            minimum_tier: Tier::Process,
            layers: Layers::ALL,
        }
    }
}

/// Runs programs in worker processes. Dropping it ends them and waits for them.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
}

impl Workers {
    /// Starts the background threads. No interpreter is booted before it is needed.
    pub fn start(options: &WorkerOptions) -> io::Result<Self> {
        Ok(Self { shared: Shared::start(options)? })
    }

    /// Runs programs of one language, until these workers are dropped.
    pub fn guest(&self, language: Language) -> WorkerGuest {
        WorkerGuest { shared: Arc::clone(&self.shared), language }
    }

    /// The interpreter that would run programs of this language; the error says what to install.
    pub fn probe(&self, language: Language) -> Result<InterpreterInfo, String> {
        self.shared.launcher.interpreter(language)
    }

    /// Boots a zygote in an environment, which proves that its packages load. The zygote is kept for later programs.
    pub(crate) fn activate(
        &self,
        language: Language,
        environment: &Activation,
    ) -> Result<(), BootFault> {
        let place = ZygoteKey {
            language,
            environment: Some(environment.clone()),
            grants: Grants::default(),
            workspace_version: None,
            agent: None,
        };
        let stale = locked(&self.shared.zygote_pools).remove(&place);
        drop(stale); // it may belong to an earlier environment of the same name
        let booted = self.shared.zygote_pool(&place).ensure_booted(&self.shared.launcher);
        if booted.is_err() {
            locked(&self.shared.zygote_pools).remove(&place);
        }
        booted
    }

    /// The sandbox, which confines package managers too. An error if it is weaker than the minimum tier.
    pub(crate) fn sandbox(&self) -> Result<&sandbox::Sandbox, String> {
        self.shared.check_minimum_tier()?;
        Ok(self.shared.launcher.sandbox())
    }

    /// The name of the sandbox tier workers run under.
    pub fn tier(&self) -> &'static str {
        self.shared.launcher.reached().tier.name()
    }

    /// The layers of the sandbox, and why others are missing.
    pub fn containment(&self) -> &Reached {
        self.shared.launcher.reached()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Runs programs of one language in worker processes.
#[derive(Debug, Clone)]
pub struct WorkerGuest {
    shared: Arc<Shared>,
    language: Language,
}

impl WorkerGuest {
    /// Starts a program; it runs until its turn returns something.
    pub fn start(
        &self,
        environment: &Environment,
        order: &Order<'_>,
        run_limits: &RunLimits<'_>,
    ) -> Result<WorkerTurn, WorkerFault> {
        self.start_on(None, environment, order, run_limits)
    }

    /// The same, on a version of the workspace that the program may change. Without one, the workspace is only read.
    pub(crate) fn start_on(
        &self,
        workspace_version: Option<&sandbox::VersionMount>,
        environment: &Environment,
        order: &Order<'_>,
        run_limits: &RunLimits<'_>,
    ) -> Result<WorkerTurn, WorkerFault> {
        let reached = self.shared.launcher.reached();
        self.shared.check_tier(run_limits.grants)?;
        if run_limits.cancellation.is_cancelled() {
            return Err(WorkerFault::Cancelled);
        }
        let place = ZygoteKey {
            language: self.language,
            environment: Activation::of(environment),
            grants: run_limits.grants.clone(),
            workspace_version: workspace_version.cloned(),
            agent: (!reached.shares_zygotes).then(|| run_limits.agent.to_owned()),
        };
        let permit = self.shared.permits.acquire(run_limits.cancellation)?;
        self.shared.start_turn(&place, permit, order, run_limits)
    }

    /// Ends the kept worker of an agent: its last attempt was rejected, or the agent was dropped.
    pub fn discard(&self, agent: &str) {
        for _ in 0..self.shared.pool.discard(agent, self.language) {
            self.shared.losses.note_loss(agent);
        }
    }
}

/// What turns, guests and the reaper share.
#[derive(Debug)]
struct Shared {
    permits: Arc<Permits>,
    pool: Pool,
    losses: Losses,
    /// Every worker holds one of these permits.
    live: Arc<Permits>,
    minimum_tier: Tier,
    zygote_pools: Mutex<BTreeMap<ZygoteKey, Known>>,
    launcher: Launcher,
    reaper: Reaper,
    closing: AtomicBool,
}

#[derive(Debug)]
struct Known {
    zygote_pool: Arc<ZygotePool>,
    used: Instant,
}

impl Shared {
    fn start(options: &WorkerOptions) -> io::Result<Arc<Self>> {
        let (reaper, queue) = Reaper::new();
        let shared = Arc::new(Self {
            permits: Arc::new(Permits::new(
                options.max_running.max(1),
                options.queue_limit,
                "permits to run a program (max_running_workers) were in use",
            )),
            pool: Pool::new(options.idle_limit),
            losses: Losses::new(options.max_restarts),
            live: Arc::new(Permits::new(
                options.max_live.max(1),
                options.queue_limit,
                "permitted workers (max_live_workers) were running or waiting for calls they had made",
            )),
            minimum_tier: options.minimum_tier,
            zygote_pools: Mutex::default(),
            launcher: Launcher::new(options)?,
            reaper,
            closing: AtomicBool::new(false),
        });
        let period = (options.idle_limit / 2).clamp(MIN_CHECK_PERIOD, MAX_CHECK_PERIOD);
        shared.reaper.start(queue, Arc::downgrade(&shared), period)?;
        Ok(shared)
    }

    /// Refuses to run programs in a weaker sandbox than the minimum tier, or than the grants need.
    fn check_tier(&self, grants: &Grants) -> Result<(), WorkerFault> {
        self.check_minimum_tier().map_err(WorkerFault::Uncontained)?;
        match grants.network {
            Network::Hosts(_) if !self.launcher.reached().layers.has(Layer::Namespaces) => Err(
                WorkerFault::Uncontained(self.missing_tier(Tier::Namespaces, "a list of hosts")),
            ),
            Network::Off | Network::Loopback | Network::Hosts(_) | Network::Open => Ok(()),
        }
    }

    fn check_minimum_tier(&self) -> Result<(), String> {
        if !self.launcher.reached().reaches(self.minimum_tier) {
            return Err(self.missing_tier(self.minimum_tier, "minimum_sandbox_tier"));
        }
        Ok(())
    }

    fn missing_tier(&self, wanted: Tier, why: &str) -> String {
        let reached = self.launcher.reached();
        let reasons: Vec<String> = reached
            .missing
            .iter()
            .filter(|(layer, _)| wanted.layers().has(*layer))
            .map(|(layer, why)| format!("{}: {why}", layer.name()))
            .collect();
        format!(
            "{why} needs the sandbox tier {wanted}, and this machine reaches {} ({}); \
             `recurgent doctor` explains how to raise it",
            reached.name(),
            reasons.join("; ")
        )
    }

    fn start_turn(
        self: &Arc<Self>,
        place: &ZygoteKey,
        permit: Permit,
        order: &Order<'_>,
        run_limits: &RunLimits<'_>,
    ) -> Result<WorkerTurn, WorkerFault> {
        let mut permit = permit;
        for _ in 0..START_TRIES {
            let (assignment, permitted) = self.assign(place, permit, order.proven, run_limits)?;
            permit = permitted;
            match WorkerTurn::start(self, assignment, permit, order, run_limits) {
                Ok(turn) => return Ok(turn),
                Err(StartFault::WorkerGone(unused)) => permit = unused,
                Err(StartFault::Fault(fault)) => return Err(fault),
            }
        }
        Err(WorkerFault::Unavailable(format!(
            "{START_TRIES} workers in a row died before they were used"
        )))
    }

    /// Finds a worker: the agent's kept one, or an unused one.
    fn assign(
        &self,
        place: &ZygoteKey,
        permit: Permit,
        proven: bool,
        run_limits: &RunLimits<'_>,
    ) -> Result<(AssignedWorker, Permit), WorkerFault> {
        let agent = run_limits.agent;
        self.losses.admit(agent)?;
        // A version of a workspace is one attempt's: no worker that sees it is kept.
        let proven = proven && place.workspace_version.is_none();
        let kept = if proven { self.kept(place, agent) } else { None };
        let warm = kept.is_some();
        let mut begun = Instant::now();
        let (lease, worker, permit) = if let Some((lease, worker)) = kept {
            (Some(lease), worker, permit)
        } else {
            let (live_permit, permit) =
                self.acquire_worker_permit(permit, run_limits.cancellation)?;
            begun = Instant::now(); // waiting in the queue is not a cost of isolation
            let lease = proven.then(|| self.pool.lease(agent, place));
            (lease, self.unused(place, live_permit)?, permit)
        };
        let trace = WorkerTrace {
            pid: Some(worker.pid()),
            warm,
            restarts: self.losses.total(agent),
            sandbox_tier: self.launcher.reached().tier.name().to_owned(),
            isolation: begun.elapsed(),
            exit_status: None,
            signal: None,
        };
        Ok((AssignedWorker { worker, lease, trace }, permit))
    }

    /// The agent's kept worker, if it has a usable one.
    fn kept(&self, place: &ZygoteKey, agent: &str) -> Option<(Arc<pool::Lease>, Worker)> {
        let (lease, mut worker) = self.pool.lend(agent, place)?;
        if worker.is_fit() {
            return Some((lease, worker));
        }
        self.losses.note_loss(agent);
        None
    }

    fn unused(&self, place: &ZygoteKey, live_permit: Permit) -> Result<Worker, WorkerFault> {
        let zygote_pool = self.zygote_pool(place);
        let (process, link) = zygote_pool.take(&self.launcher)?;
        Ok(Worker::new(process, link, zygote_pool, self.reaper.queue(), live_permit))
    }

    /// Acquires a permit for one more worker. If none is free, idle workers are ended, the longest idle first. If none
    /// is idle, the caller queues and meanwhile releases its permit to run, which running programs may need to
    /// finish.
    fn acquire_worker_permit(
        &self,
        permit: Permit,
        cancellation: &Cancellation,
    ) -> Result<(Permit, Permit), WorkerFault> {
        if let Some(live_permit) = self.live.try_acquire() {
            return Ok((live_permit, permit));
        }
        drop(permit);
        let live_permit = self.live.acquire_while(cancellation, || {
            self.pool.end_one();
        })?;
        Ok((live_permit, self.permits.acquire(cancellation)?))
    }

    fn zygote_pool(&self, place: &ZygoteKey) -> Arc<ZygotePool> {
        if place.workspace_version.is_some() {
            return Arc::new(ZygotePool::new(place.clone())); // its turn ends it
        }
        let mut zygote_pools = locked(&self.zygote_pools);
        if let Some(known) = zygote_pools.get_mut(place) {
            known.used = Instant::now();
            return Arc::clone(&known.zygote_pool);
        }
        let zygote_pool = Arc::new(ZygotePool::new(place.clone()));
        if self.is_closing() {
            zygote_pool.close(); // nothing else would close it
            return zygote_pool;
        }
        let known = Known { zygote_pool: Arc::clone(&zygote_pool), used: Instant::now() };
        zygote_pools.insert(place.clone(), known);
        if zygote_pools.len() > MAX_IDLE_ZYGOTES {
            self.reaper.queue().end_idle();
        }
        zygote_pool
    }

    /// Ends kept workers in which something runs.
    fn check_kept(&self) {
        self.pool.expire();
    }

    /// Ends workers and zygotes that were idle for too long.
    fn end_idle(&self) {
        self.pool.expire();
        let retired = retire(&mut locked(&self.zygote_pools));
        drop(retired); // ends them outside the lock, because it takes a moment
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.reaper.stop();
        self.pool.close();
        let zygote_pools = std::mem::take(&mut *locked(&self.zygote_pools));
        for known in zygote_pools.into_values() {
            known.zygote_pool.close();
        }
    }
}

/// Removes unused zygote pools: those idle for too long, and the oldest beyond the maximum.
fn retire(zygote_pools: &mut BTreeMap<ZygoteKey, Known>) -> Vec<Known> {
    // A worker holds its zygote pool, so a pool that only this map holds has no worker but its spare.
    let mut idle: Vec<(Instant, ZygoteKey)> = zygote_pools
        .iter()
        .filter(|(_, known)| Arc::strong_count(&known.zygote_pool) == 1)
        .map(|(place, known)| (known.used, place.clone()))
        .collect();
    idle.sort();
    let excess = idle.len().saturating_sub(MAX_IDLE_ZYGOTES);
    idle.into_iter()
        .enumerate()
        .filter(|(at, (used, _))| *at < excess || used.elapsed() >= ZYGOTE_IDLE_LIMIT)
        .filter_map(|(_, (_, place))| zygote_pools.remove(&place))
        .collect()
}

/// `start + wait`, or a time far in the future if that overflows.
fn after(start: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_hours(24 * 365);
    start.checked_add(wait).unwrap_or_else(|| start + FAR)
}

/// Locks a mutex. A poisoned one is usable: every critical section here leaves its state consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A short description of a decoded frame, for `fuzz/`.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn read_frame(line: &[u8]) -> String {
    match frame::decode(line) {
        Ok(frame) => format!("{frame:?}").chars().take_while(|c| c.is_alphabetic()).collect(),
        Err(fault) => fault.to_string().split(['`', '"', '(']).take(2).collect(),
    }
}
