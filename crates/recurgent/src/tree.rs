//! What a whole call tree shares: one allowance, one clock, one cancellation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lifecycle::draft::{DraftFault, Usage};
use lifecycle::execution::WorkerFault;
use lifecycle::inference::KeptAnswer;
use lifecycle::outcome::Outcome;
use lifecycle::program::Checksum;
use lifecycle::prompt::Prompt;
use lifecycle::redact::NamedSecrets;
use lifecycle::request::{Allowance, CallRequest, Role, encoded_bytes};
use lifecycle::spending::{ModelCall, Pricing, Reservation, Spent};
use lifecycle::tool::Tool;
use serde_json::Value;

use crate::guest::Cancellation;
use crate::observe::TreeShare;
use crate::workspace::WorkspaceVersion;

/// How often a waiting call checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Largest contracts, as JSON and all together, of the tools that one call and all it calls may forge.
const MAX_FORGED_BYTES: usize = 16 << 20;
/// Largest answers of a model, as JSON and all together, that one call tree keeps.
const MAX_ANSWERS_BYTES: usize = 16 << 20;

/// The part of a tree that one call sees. Clones share what is spent, the clock and the cancellation.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    allowance: Allowance,
    spent: Arc<Mutex<Spent>>,
    started: Instant,
    /// The number of first calls for which this tree is asking the model; see [`crate::single_flight`].
    first_calls: Arc<AtomicUsize>,
    /// Tools forged by the attempt that made this call; `None` at the root.
    attempt: Option<Arc<AttemptTools>>,
    /// What the program that made this call sees of its workspace; `None` at the root, or if it may not change one.
    workspace_version: Option<Arc<WorkspaceVersion>>,
    /// Memory that the host keeps for the tree.
    memory: Arc<AtomicUsize>,
    /// Values that calls of the tree named as secrets.
    secrets: Arc<Mutex<NamedSecrets>>,
    /// Answers of a model that calls of the tree were given.
    answers: Arc<Mutex<TreeAnswers>>,
    /// What the tree has written to the log.
    pub(crate) log_share: Arc<TreeShare>,
    pub(crate) cancellation: Cancellation,
}

/// Tools forged by one attempt and by the accepted calls under it. Only calls of that attempt can use them until the
/// call at the root is accepted.
#[derive(Debug, Default)]
pub(crate) struct AttemptTools {
    own: Mutex<Vec<Tool>>,
    /// The JSON text of the own tools.
    bytes: AtomicUsize,
    /// The tools of the attempt one level up: its program made this call.
    parent: Option<Arc<Self>>,
}

impl AttemptTools {
    /// An empty list for an attempt of a call in this tree.
    pub(crate) fn new(tree: &Tree) -> Arc<Self> {
        Arc::new(Self { parent: tree.attempt.clone(), ..Self::default() })
    }

    /// Adds a tool.
    pub(crate) fn add(&self, tool: Tool) {
        self.bytes.fetch_add(tool.encoded_bytes(), Ordering::SeqCst);
        self.own().push(tool);
    }

    /// Why these are more tools than one call may forge.
    pub(crate) fn over_limit(&self) -> Option<String> {
        let bytes = self.bytes.load(Ordering::SeqCst);
        (bytes > MAX_FORGED_BYTES).then(|| {
            format!(
                "this call and all it calls forged tools with {} MB of contracts, and the limit is {} MB; forge fewer \
                 tools, or describe them in fewer words",
                bytes >> 20,
                MAX_FORGED_BYTES >> 20
            )
        })
    }

    /// A tool by name: the attempt's own, or one of the attempts above.
    pub(crate) fn find(&self, name: &Role) -> Option<Tool> {
        let own = self.own().iter().find(|tool| tool.name == *name).cloned();
        own.or_else(|| self.parent.as_ref()?.find(name))
    }

    /// Its own tools, in the order they were forged.
    pub(crate) fn to_vec(&self) -> Vec<Tool> {
        self.own().clone()
    }

    fn own(&self) -> MutexGuard<'_, Vec<Tool>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers of a model, by what was asked.
#[derive(Debug, Default)]
struct TreeAnswers {
    by_key: BTreeMap<Checksum, Value>,
    bytes: usize,
}

/// Counts one first call for which a tree asks the model, until dropped.
#[derive(Debug)]
pub(crate) struct FirstCallCount(Arc<AtomicUsize>);

impl Drop for FirstCallCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The memory that the host keeps for one attempt, counted for its tree until dropped.
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    account: Arc<AtomicUsize>,
    bytes: usize,
}

impl MemoryCharge {
    /// Replaces what is counted; gives what the whole tree takes.
    pub(crate) fn set(&mut self, bytes: usize) -> usize {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let total = self.account.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
        self.account.fetch_sub(before, Ordering::SeqCst);
        total.saturating_sub(before)
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.account.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Tree {
    /// Counts the memory that the host keeps for an attempt.
    pub(crate) fn charge(&self) -> MemoryCharge {
        MemoryCharge { account: Arc::clone(&self.memory), bytes: 0 }
    }

    pub(crate) fn new(allowance: Allowance, cancellation: Cancellation) -> Self {
        Self {
            allowance,
            spent: Arc::default(),
            started: Instant::now(),
            first_calls: Arc::default(),
            attempt: None,
            workspace_version: None,
            memory: Arc::default(),
            secrets: Arc::default(),
            answers: Arc::default(),
            log_share: Arc::default(),
            cancellation,
        }
    }

    /// The same tree, seen by a child whose own allowance may be narrower.
    pub(crate) fn narrowed(&self, allowance: Allowance) -> Self {
        Self { allowance, ..self.clone() }
    }

    /// The same tree, seen by a call that an attempt makes.
    pub(crate) fn for_attempt(
        &self,
        attempt: &Arc<AttemptTools>,
        workspace_version: Option<&Arc<WorkspaceVersion>>,
    ) -> Self {
        let workspace_version = workspace_version.or(self.workspace_version.as_ref()).cloned();
        Self { attempt: Some(Arc::clone(attempt)), workspace_version, ..self.clone() }
    }

    /// What the program that made this call sees of its workspace.
    pub(crate) fn workspace_version(&self) -> Option<&WorkspaceVersion> {
        self.workspace_version.as_deref()
    }

    /// Hands tools that an accepted call forged to the attempt that made the call.
    pub(crate) fn add_forged_tools(&self, tools: &[Tool]) {
        if let Some(attempt) = &self.attempt {
            for tool in tools {
                attempt.add(tool.clone());
            }
        }
    }

    /// Counts a first call for which this tree asks the model.
    pub(crate) fn count_first_call(&self) -> FirstCallCount {
        self.first_calls.fetch_add(1, Ordering::SeqCst);
        FirstCallCount(Arc::clone(&self.first_calls))
    }

    /// Whether this tree is asking the model for a first call.
    pub(crate) fn is_in_first_call(&self) -> bool {
        self.first_calls.load(Ordering::SeqCst) > 0
    }

    /// Whether this tree is asking the model for more than one first call.
    pub(crate) fn has_several_first_calls(&self) -> bool {
        self.first_calls.load(Ordering::SeqCst) > 1
    }

    /// Takes one model call from the allowance, before any work for it.
    pub(crate) fn reserve_model_call(&self) -> Result<(), DraftFault> {
        self.time_left()?;
        self.spent().take_model_call(&self.allowance)
    }

    /// Reserves the tokens and the cost of the prompt and the longest answer. If less is left, the answer must be
    /// shorter.
    pub(crate) fn reserve(
        &self,
        prompt: &Prompt,
        max_output_tokens: u32,
        pricing: Pricing,
    ) -> Result<Reservation, DraftFault> {
        self.spent().reserve(&self.allowance, &ModelCall { prompt, max_output_tokens, pricing })
    }

    /// Replaces a reservation by what the model call used; `None` if the model did not answer.
    pub(crate) fn settle(&self, reservation: &Reservation, usage: Option<Usage>) {
        self.spent().settle(reservation, usage);
    }

    /// The time the tree has left; `None` if its time is not limited.
    pub(crate) fn time_left(&self) -> Result<Option<Duration>, DraftFault> {
        self.allowance.time_left(self.started.elapsed())
    }

    /// Fails if the tree's time is used up.
    pub(crate) fn check_time(&self) -> Result<(), WorkerFault> {
        match self.time_left() {
            Err(DraftFault::AllowanceSpent(spent)) => Err(WorkerFault::AllowanceSpent(spent)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The shorter of `limit` and the time the tree has left; at most one poll interval if none is left.
    pub(crate) fn within(&self, limit: Duration) -> Duration {
        match self.time_left() {
            Ok(left) => left.map_or(limit, |left| left.min(limit)),
            Err(_) => limit.min(POLL_INTERVAL),
        }
    }

    /// Waits, with a little jitter so that many callers do not return at once.
    pub(crate) fn pause(&self, wait: Duration) -> Result<(), DraftFault> {
        let end =
            Instant::now() + wait.mul_f64(1.0 + f64::from(crate::identity::random_byte()) / 1024.0);
        loop {
            if self.cancellation.is_cancelled() {
                return Err(DraftFault::Cancelled);
            }
            let tree_left = self.time_left()?.unwrap_or(POLL_INTERVAL);
            match end.checked_duration_since(Instant::now()) {
                None => return Ok(()),
                Some(left) => std::thread::sleep(left.min(POLL_INTERVAL).min(tree_left)),
            }
        }
    }

    /// Keeps answers of a model until the calls of the tree are committed, while there is room.
    pub(crate) fn keep_answers(&self, kept: &[KeptAnswer]) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        for KeptAnswer { key, answer } in kept {
            let bytes = encoded_bytes(answer);
            if answers.bytes + bytes <= MAX_ANSWERS_BYTES {
                answers.bytes += bytes;
                answers.by_key.insert(key.clone(), answer.clone());
            }
        }
    }

    /// Those of these answers that were kept.
    pub(crate) fn answers(&self, keys: &[Checksum]) -> BTreeMap<Checksum, Value> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = |key: &Checksum| Some((key.clone(), answers.by_key.get(key)?.clone()));
        keys.iter().filter_map(kept).collect()
    }

    /// Notes what a call is given under the names of secrets. This happens before the call starts, so that the calls it
    /// makes do not write them either.
    pub(crate) fn note_request(&self, request: &CallRequest) {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).note_request(request);
    }

    /// Notes what a call gives under the names of secrets.
    pub(crate) fn note_outcome(&self, outcome: &Outcome) {
        if let Some(value) = outcome.value() {
            self.secrets.lock().unwrap_or_else(PoisonError::into_inner).note("", value);
        }
    }

    /// What calls of the tree named as secrets.
    pub(crate) fn secrets(&self) -> NamedSecrets {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
