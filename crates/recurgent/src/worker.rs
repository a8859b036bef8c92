//! Worker processes: the host side of the worker protocol (specs/worker-protocol.md).
//!
//! ```text
//! Workers ── guest(language) ── start ──► WorkerTurn      one exchange: execute, asks, done
//!    │  Permits   who may run now                │
//!    │  Pool      an agent's kept worker         ├─ Worker = Process (kill) + Link (talk)
//!    │  Nursery   zygote and spare, per place ───┘
//!    │     └─ Launcher ─ interpreter, Sandbox, Spawner thread
//!    └─ Keeper    the thread for what nobody should wait for
//! ```
//!
//! A program that has not proved itself runs in a worker of its own, killed the moment it is done. A
//! proven one runs in its agent's kept worker, which is killed by anything but a good end.

mod frame;
mod reaper;
mod launcher;
mod link;
mod losses;
mod zygote_pool;
mod permit;
mod pool;
mod process;
pub(crate) mod sandbox;
mod turn;
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
use crate::guest::{Cancellation, Guest, RunLimits, Turn};

use launcher::Launcher;
use losses::Losses;
use permit::{Permit, Permits};
use pool::Pool;
use reaper::Reaper;
pub use sandbox::{InstallerLimits, Layer, Layers, Reached, Tier, WorkerLimits};
use turn::{Assignment, StartFault, Worker, WorkerTurn};
pub(crate) use zygote::start as start_inside;
pub(crate) use zygote_pool::{Activation, BootFault};
use zygote_pool::{Place, ZygotePool};

/// How often whoever waits looks whether the caller gave up.
const CANCELLATION_PERIOD: Duration = Duration::from_millis(25);
/// Workers tried when they turn out to be dead before they were sent anything.
const START_TRIES: usize = 3;
/// Zygotes kept that no worker belongs to; the one unused for longest goes first.
const MAX_IDLE_ZYGOTES: usize = 8;
/// How long such a zygote is kept.
const ZYGOTE_IDLE_LIMIT: Duration = Duration::from_mins(30);
/// Longest between two looks for what is idle, or was left behind by a program.
const MAX_TIDY_PERIOD: Duration = Duration::from_secs(1);
/// Shortest, so that a short idle limit does not become a busy loop.
const MIN_TIDY_PERIOD: Duration = Duration::from_millis(10);

/// How workers are made and bounded.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The Python to use, whatever `path` says.
    pub python: Option<PathBuf>,
    /// The Ruby to use, whatever `path` says.
    pub ruby: Option<PathBuf>,
    /// Where interpreters, and programs, look for commands.
    pub path: OsString,
    /// Where workers' private directories are made.
    pub scratch: PathBuf,
    /// Programs running at once.
    pub max_running: usize,
    /// Longest a call queues for its turn to run.
    pub queue_limit: Duration,
    /// How long an agent's worker is kept without being used.
    pub idle_limit: Duration,
    /// Workers alive at once, idle ones included.
    pub max_live: usize,
    /// Workers an agent may lose in a row before it must wait.
    pub max_restarts: u32,
    /// What one worker may use up.
    pub limits: WorkerLimits,
    /// Containment weaker than this is refused.
    pub minimum_tier: Tier,
    /// Layers of containment to be used if they can be; all, except in tests of each.
    #[doc(hidden)]
    pub layers: Layers,
}

impl WorkerOptions {
    /// Sensible bounds; interpreters found on `path`, private directories made in `scratch`.
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
            limits: WorkerLimits::default(),
            minimum_tier: Tier::Process,
            layers: Layers::ALL,
        }
    }
}

/// Runs programs in worker processes. Dropping it ends them all and waits for them.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
}

impl Workers {
    /// Starts the threads that look after workers; no interpreter is booted before it is needed.
    pub fn start(options: &WorkerOptions) -> io::Result<Self> {
        Ok(Self { shared: Shared::start(options)? })
    }

    /// Runs programs of one language. Once these workers are dropped it starts no more.
    pub fn guest(&self, language: Language) -> Arc<dyn Guest> {
        Arc::new(WorkerGuest { shared: Arc::clone(&self.shared), language })
    }

    /// The interpreter that would run programs of this language, or what to install.
    pub fn probe(&self, language: Language) -> Result<InterpreterInfo, String> {
        self.shared.launcher.interpreter(language)
    }

    /// Boots a zygote in an environment, which proves that its packages load. The zygote stays, for the
    /// programs to come.
    pub(crate) fn activate(
        &self,
        language: Language,
        environment: &Activation,
    ) -> Result<(), BootFault> {
        let place = Place {
            language,
            environment: Some(environment.clone()),
            grants: Grants::default(),
            agent: None,
        };
        let stale = locked(&self.shared.zygote_pools).remove(&place);
        drop(stale); // of an environment of the same name that was there before
        let booted = self.shared.zygote_pool(&place).ensure_booted(&self.shared.launcher);
        if booted.is_err() {
            locked(&self.shared.zygote_pools).remove(&place);
        }
        booted
    }

    /// What confines package managers too; refused where it is weaker than programs may be run under.
    pub(crate) fn sandbox(&self) -> Result<&sandbox::Sandbox, String> {
        self.shared.check_minimum_tier()?;
        Ok(self.shared.launcher.sandbox())
    }

    /// The containment workers run under.
    pub fn tier(&self) -> &'static str {
        self.shared.launcher.reached().tier.name()
    }

    /// What the sandbox is made of, and what it lacks.
    pub fn containment(&self) -> &Reached {
        self.shared.launcher.reached()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// One guest language, run in worker processes.
#[derive(Debug)]
struct WorkerGuest {
    shared: Arc<Shared>,
    language: Language,
}

impl Guest for WorkerGuest {
    fn start(
        &self,
        environment: &Environment,
        order: &Order<'_>,
        run_limits: &RunLimits<'_>,
    ) -> Result<Box<dyn Turn>, WorkerFault> {
        let reached = self.shared.launcher.reached();
        self.shared.check_tier(run_limits.grants)?;
        if run_limits.cancellation.is_cancelled() {
            return Err(WorkerFault::Cancelled);
        }
        let place = Place {
            language: self.language,
            environment: Activation::of(environment),
            grants: run_limits.grants.clone(),
            agent: (!reached.shares_zygotes).then(|| run_limits.agent.to_owned()),
        };
        let permit = self.shared.permits.acquire(run_limits.cancellation)?;
        self.shared
            .start_turn(&place, permit, order, run_limits)
            .map(|turn| Box::new(turn) as Box<dyn Turn>)
    }

    fn discard(&self, agent: &str) {
        for _ in 0..self.shared.pool.discard(agent, self.language) {
            self.shared.losses.note_loss(agent);
        }
    }
}

/// What turns, guests and the keeper share.
#[derive(Debug)]
struct Shared {
    permits: Arc<Permits>,
    pool: Pool,
    losses: Losses,
    /// Who may live: every worker holds one.
    live: Arc<Permits>,
    minimum_tier: Tier,
    zygote_pools: Mutex<BTreeMap<Place, Known>>,
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
        let (reaper, errands) = Reaper::new();
        let shared = Arc::new(Self {
            permits: Arc::new(Permits::new(
                options.max_running.max(1),
                options.queue_limit,
                "places for running programs (max_running_workers) were taken",
            )),
            pool: Pool::new(options.idle_limit),
            losses: Losses::new(options.max_restarts),
            live: Arc::new(Permits::new(
                options.max_live.max(1),
                options.queue_limit,
                "workers there may be (max_live_workers) were at work or waiting for those they called",
            )),
            minimum_tier: options.minimum_tier,
            zygote_pools: Mutex::default(),
            launcher: Launcher::new(options)?,
            reaper,
            closing: AtomicBool::new(false),
        });
        let period = (options.idle_limit / 2).clamp(MIN_TIDY_PERIOD, MAX_TIDY_PERIOD);
        shared.reaper.start(errands, Arc::downgrade(&shared), period)?;
        Ok(shared)
    }

    /// Refuses to run programs under weaker containment than asked for.
    fn check_tier(&self, grants: &Grants) -> Result<(), WorkerFault> {
        self.check_minimum_tier().map_err(WorkerFault::Uncontained)?;
        match grants.network {
            Network::Hosts(_) if !self.launcher.reached().layers.has(Layer::Namespaces) => {
                Err(WorkerFault::Uncontained(self.lacking(Tier::Namespaces, "a list of hosts")))
            }
            Network::Off | Network::Loopback | Network::Hosts(_) | Network::Open => Ok(()),
        }
    }

    fn check_minimum_tier(&self) -> Result<(), String> {
        if !self.launcher.reached().reaches(self.minimum_tier) {
            return Err(self.lacking(self.minimum_tier, "minimum_sandbox_tier"));
        }
        Ok(())
    }

    fn lacking(&self, wanted: Tier, why: &str) -> String {
        let reached = self.launcher.reached();
        let reasons: Vec<String> = reached
            .missing
            .iter()
            .filter(|(layer, _)| wanted.layers().has(*layer))
            .map(|(layer, why)| format!("{}: {why}", layer.name()))
            .collect();
        format!(
            "{why} needs the sandbox tier {wanted}, and this machine reaches {} ({}); \
             `recurgent doctor` says what would raise it",
            reached.name(),
            reasons.join("; ")
        )
    }

    fn start_turn(
        self: &Arc<Self>,
        place: &Place,
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

    /// Finds somebody to do it.
    fn assign(
        &self,
        place: &Place,
        permit: Permit,
        proven: bool,
        run_limits: &RunLimits<'_>,
    ) -> Result<(Assignment, Permit), WorkerFault> {
        let agent = run_limits.agent;
        self.losses.admit(agent)?;
        let kept = if proven { self.kept(place, agent) } else { None };
        let warm = kept.is_some();
        let mut begun = Instant::now();
        let (lease, worker, permit) = if let Some((lease, worker)) = kept {
            (Some(lease), worker, permit)
        } else {
            let (alive, permit) = self.room_for_one_more(permit, run_limits.cancellation)?;
            begun = Instant::now(); // queueing is no part of what isolation costs
            let lease = proven.then(|| self.pool.lease(agent, place));
            (lease, self.unused(place, alive)?, permit)
        };
        let trace = WorkerTrace {
            pid: Some(worker.pid()),
            warm,
            restarts: self.losses.total(agent),
            sandbox_tier: self.launcher.reached().tier.name().to_owned(),
            isolation: begun.elapsed(),
        };
        Ok((Assignment { worker, lease, trace }, permit))
    }

    /// The agent's own worker, if it has one that is still fit.
    fn kept(&self, place: &Place, agent: &str) -> Option<(Arc<pool::Lease>, Worker)> {
        let (lease, mut worker) = self.pool.lend(agent, place)?;
        if worker.is_fit() {
            return Some((lease, worker));
        }
        self.losses.note_loss(agent);
        None
    }

    fn unused(&self, place: &Place, alive: Permit) -> Result<Worker, WorkerFault> {
        let zygote_pool = self.zygote_pool(place);
        let (process, link) = zygote_pool.take(&self.launcher)?;
        Ok(Worker::new(process, link, zygote_pool, self.reaper.errands(), alive))
    }

    /// The right to have one more worker. Idle ones make room, the one idle for longest first; where none
    /// is idle the caller queues, and meanwhile gives back its turn to run: those at work may need it to
    /// come to an end.
    fn room_for_one_more(
        &self,
        permit: Permit,
        cancellation: &Cancellation,
    ) -> Result<(Permit, Permit), WorkerFault> {
        if let Some(alive) = self.live.try_acquire() {
            return Ok((alive, permit));
        }
        drop(permit);
        let alive = self.live.acquire_while(cancellation, || {
            self.pool.end_one();
        })?;
        Ok((alive, self.permits.acquire(cancellation)?))
    }

    fn zygote_pool(&self, place: &Place) -> Arc<ZygotePool> {
        let mut zygote_pools = locked(&self.zygote_pools);
        if let Some(known) = zygote_pools.get_mut(place) {
            known.used = Instant::now();
            return Arc::clone(&known.zygote_pool);
        }
        let zygote_pool = Arc::new(ZygotePool::new(place.clone()));
        if self.is_closing() {
            zygote_pool.close(); // nobody would close it later
            return zygote_pool;
        }
        let known = Known { zygote_pool: Arc::clone(&zygote_pool), used: Instant::now() };
        zygote_pools.insert(place.clone(), known);
        if zygote_pools.len() > MAX_IDLE_ZYGOTES {
            self.reaper.errands().tidy();
        }
        zygote_pool
    }

    /// Ends what was idle for too long.
    fn tidy(&self) {
        self.pool.expire();
        let retired = retire(&mut locked(&self.zygote_pools));
        drop(retired); // ends them, which takes a moment, outside the lock
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

/// Takes out the nurseries nobody uses: those past their time, and the oldest of too many.
fn retire(zygote_pools: &mut BTreeMap<Place, Known>) -> Vec<Known> {
    // A worker holds on to its nursery, so one nobody else holds has no worker but its spare.
    let mut idle: Vec<(Instant, Place)> = zygote_pools
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

/// A time to come; some far day when that is beyond the clock.
fn after(start: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_hours(24 * 365);
    start.checked_add(wait).unwrap_or_else(|| start + FAR)
}

/// A lock whose holder panicked is still good: every critical section here leaves its state whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a frame reads, in a few words; for `fuzz/`.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn read_frame(line: &[u8]) -> String {
    match frame::decode(line) {
        Ok(frame) => format!("{frame:?}").chars().take_while(|c| c.is_alphabetic()).collect(),
        Err(fault) => fault.to_string().split(['`', '"', '(']).take(2).collect(),
    }
}
