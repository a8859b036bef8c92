//! The store seam: what outlives a call. One read before it, one write after it.
//!
//! [`sqlite::SqliteStore`] keeps it in a file; [`memory::MemoryStore`] forgets it with the process.
//! One suite of tests (`tests/store/`) holds both to the same behaviour and to the limits below.

pub mod catalog;
pub mod sqlite;
pub mod memory;
pub mod bundle;
pub mod layout;
mod ranking;

use std::fmt;

use lifecycle::call::{Memory, StoreFault};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::Fingerprint;
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::guardrail::SiblingState;
use lifecycle::pattern::PatternEvent;
use lifecycle::program::Checksum;
use lifecycle::prompt::PromptContext;
use lifecycle::request::{CallRequest, Method, Role};
use lifecycle::settlement::{Changes, Receipt};
use lifecycle::tool::{KnownTool, Tool};
use serde_json::Value;

pub use catalog::Catalog;

/// Versions kept of one artifact; older ones go when a new one is admitted.
pub const MAX_VERSIONS: usize = 10;
/// Artifacts recalled for one role, method and language; the one for the call's contract is among them.
pub const MAX_RECALLED: usize = 16;
/// Places told of where one role's second chances ran out.
const MAX_EXHAUSTIONS: usize = 1_000;
/// Other methods of a role whose state a new program is held to.
const MAX_SIBLINGS_KNOWN: usize = 64;
/// Methods told of one tool.
pub const MAX_TOOL_METHODS: usize = 64;
/// Records kept for one owner. They are trimmed [`HISTORY_BATCH`] at a time, so there may be that many more.
pub const MAX_HISTORY: u64 = 10_000;
/// Records trimmed at once.
pub const HISTORY_BATCH: u64 = 500;
/// Values kept for later reference; the oldest go first.
pub const MAX_CONTENTS: u64 = 128;
/// Bytes of JSON text those values may have together.
pub const MAX_CONTENTS_BYTES: u64 = 2 * 1024 * 1024;
/// Characters of a digest that stand for a session.
const SESSION_MARK_CHARS: usize = 16;
/// Most recently used tools among which those worth showing are picked.
const MAX_CANDIDATES: usize = 512;

/// Latest calls of a role among which one is looked for that a new call may correct.
const MAX_REASK_DISTANCE: usize = 16;

/// Whose memory and history: an agent object, or a session that outlives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The agent object.
    pub instance: String,
    /// The session its memory is kept under, if any.
    pub session: Option<String>,
    /// Its role: one session may hold several agents.
    pub role: Role,
}

/// How often second chances ran out for one method, in one language, under one contract: adaptive pressure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhaustions {
    /// The method.
    pub method: Method,
    /// The language.
    pub language: Language,
    /// The contract.
    pub contract_fingerprint: Fingerprint,
    /// Calls that ended with guardrail retries spent.
    pub guardrail: u64,
    /// Calls that ended with outcome repairs spent, broken contracts included.
    pub outcome: u64,
}

/// What outlives a call. Safe for many threads and processes.
pub trait Store: Catalog + fmt::Debug + Send + Sync {
    /// What is known that may answer this call without a model, and the call it may correct: the last one in the
    /// owner's session, or else on the same trace.
    fn recall(&self, owner: &Owner, request: &CallRequest) -> Result<Memory, StoreFault>;

    /// What a model should know when this call needs one.
    fn prompt_context(
        &self,
        owner: &Owner,
        request: &CallRequest,
    ) -> Result<PromptContext, StoreFault>;

    /// Makes everything in `changes` true, or nothing. Who changes a session's memory must hold its latest version.
    fn commit(
        &self,
        owner: &Owner,
        request: &CallRequest,
        changes: &Changes,
    ) -> Result<Receipt, StoreFault>;

    /// The memory kept under the owner's session; `None` when it is still at version `held`.
    fn context(&self, owner: &Owner, held: Option<u64>) -> Result<Option<Context>, StoreFault>;

    /// The packages kept under the owner's session since its last success in this language. What one process
    /// adds is a new version of the session, as a change of its memory is.
    fn manifest(
        &self,
        owner: &Owner,
        language: Language,
    ) -> Result<Option<DependencyManifest>, StoreFault>;

    /// Writes into a session's memory outside a call; `base` is the version the writer holds.
    fn remember(
        &self,
        owner: &Owner,
        base: u64,
        changes: &ContextChanges,
    ) -> Result<(), StoreFault>;

    /// Makes a tool known that was forged outside a call.
    fn keep_tool(&self, tool: &Tool) -> Result<(), StoreFault>;

    /// Tools by name; all of them when `name` is `None`, most used first, at most `limit`.
    fn tools(&self, name: Option<&Role>, limit: usize) -> Result<Vec<KnownTool>, StoreFault>;

    /// How often calls of a role ended because their second chances ran out, per stored program's place.
    fn exhaustions(&self, role: &Role) -> Result<Vec<Exhaustions>, StoreFault>;

    /// What pattern memory keeps of a role, oldest first.
    fn patterns(&self, role: &Role) -> Result<Vec<PatternEvent>, StoreFault>;

    /// Roles pattern memory knows, by name, at most `limit`, after `after` if given.
    fn pattern_roles(&self, limit: usize, after: Option<&Role>) -> Result<Vec<Role>, StoreFault>;

    /// The owner's latest history records, oldest first, at most `limit`, before call `before` if given.
    fn history(
        &self,
        owner: &Owner,
        limit: usize,
        before: Option<&str>,
    ) -> Result<Vec<Value>, StoreFault>;

    /// A kept value by its reference; none that was kept before `kept_since` (RFC 3339, UTC) if that is given.
    fn content(
        &self,
        reference: &str,
        kept_since: Option<&str>,
    ) -> Result<Option<Value>, StoreFault>;
}

/// Stands for the session a call belongs to: the owner's, or else its trace. Always as long.
fn session_mark(owner: &Owner, request: &CallRequest) -> String {
    let session = owner.session.as_deref().unwrap_or(&request.lineage.trace().0);
    let digest = Checksum::of(session);
    digest.as_str().chars().rev().take(SESSION_MARK_CHARS).collect()
}

/// Methods that are stored in several languages or under several contracts are one sibling each.
fn merged(states: Vec<SiblingState>) -> Vec<SiblingState> {
    let mut siblings: Vec<SiblingState> = Vec::new();
    for state in states {
        match siblings.iter_mut().find(|sibling| sibling.method == state.method) {
            Some(sibling) => {
                sibling.reads.extend(state.reads);
                sibling.writes.extend(state.writes);
            }
            None => siblings.push(state),
        }
    }
    for sibling in &mut siblings {
        for keys in [&mut sibling.reads, &mut sibling.writes] {
            keys.sort_unstable();
            keys.dedup();
        }
    }
    siblings
}
