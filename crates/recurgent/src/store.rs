//! The store seam: what outlives a call. A call reads at its start, and again if a model is needed; it writes once, at
//! its end.
//!
//! [`Store`] is the sum of four small traits, one for each user: `CallStore` for calls, `SessionStore` for sessions,
//! `ToolStore` for stored programs and tools, `AdminStore` for administration. They are hidden: their types are those
//! of the decisions in `lifecycle`, and only crates of this repository implement or call them.
//! [`sqlite::SqliteStore`] keeps everything in a file, or in memory. One suite of tests (`tests/store/`) checks both.

#[doc(hidden)]
pub mod catalog;
pub mod sqlite;
#[doc(hidden)]
pub mod bundle;
#[doc(hidden)]
pub mod layout;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use lifecycle::admission::Case;
use lifecycle::artifact::{ArtifactKey, Generation};
use lifecycle::call::Memory;
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::Fingerprint;
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::example::{Example, PersonRejection};
use lifecycle::guardrail::SiblingState;
use lifecycle::pattern::PatternEvent;
use lifecycle::program::Checksum;
use lifecycle::prompt::PromptContext;
use lifecycle::request::{CallRequest, Method, Role};
use lifecycle::settlement::{Changes, Receipt};
use lifecycle::tool::{KnownTool, Tool};
use lifecycle::version_policy::{Rejected, Verdict};
use serde_json::Value;

use bundle::{Bundle, Merged};
use catalog::{KnownArtifact, SessionSummary, StandingChange, StoredVersion, TaughtMethod};

pub use lifecycle::call::StoreFault;
#[doc(hidden)]
pub use lifecycle::version_policy::MAX_VERSIONS;

/// Artifacts recalled for one role, method and language; the one for the call's contract is among them.
#[doc(hidden)]
pub const MAX_RECALLED: usize = 16;
/// Most [`Exhaustions`] returned for one role.
const MAX_EXHAUSTIONS: usize = 1_000;
/// Other methods of a role whose state keys a new program must agree with.
const MAX_SIBLINGS_KNOWN: usize = 64;
/// Most methods returned for one tool.
pub(crate) const MAX_TOOL_METHODS: usize = 64;
#[doc(hidden)]
pub use lifecycle::retention::{HISTORY_BATCH, MAX_CONTENTS, MAX_CONTENTS_BYTES, MAX_HISTORY};
/// Characters of a digest that identify a session.
const SESSION_MARK_CHARS: usize = 16;
/// Bytes of contracts in one list of tools.
const MAX_TOOLS_BYTES: usize = 16 * 1024 * 1024;
/// How many of the most recently used tools are ranked for a prompt.
const MAX_RANKED_TOOLS: usize = 512;

/// Whose memory and history: an agent object, or a session that outlives it.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The agent object.
    pub instance: String,
    /// The session its memory is kept under, if any.
    pub session: Option<String>,
    /// Its role: one session may hold several agents.
    pub role: Role,
}

/// How often retries were spent for one method, in one language, under one contract.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhaustions {
    /// The method.
    pub method: Method,
    /// The language.
    pub language: Language,
    /// The contract.
    pub contract_fingerprint: Fingerprint,
    /// Calls that ended because guardrail retries were spent.
    pub guardrail: u64,
    /// Calls that ended because outcome repairs were spent, broken contracts included.
    pub outcome: u64,
}

/// A history record, and the role whose agent it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedRecord {
    /// The role.
    pub role: String,
    /// The record.
    pub record: Value,
}

/// What outlives a call. Safe for many threads and processes.
pub trait Store: CallStore + SessionStore + ToolStore + AdminStore {}

impl<T: CallStore + SessionStore + ToolStore + AdminStore> Store for T {}

/// The traits of a store, for calling their methods.
#[doc(hidden)]
pub mod prelude {
    pub use super::{AdminStore, CallStore, SessionStore, ToolStore};
}

/// What a call reads and writes.
#[doc(hidden)]
pub trait CallStore: fmt::Debug + Send + Sync {
    /// The programs that may answer this call without a model, and the earlier call that it may correct: the last one of
    /// the owner's session, else of the same trace.
    fn recall(&self, owner: &Owner, request: &CallRequest) -> Result<Memory, StoreFault>;

    /// What a model should know when this call needs one.
    fn prompt_context(
        &self,
        owner: &Owner,
        request: &CallRequest,
    ) -> Result<PromptContext, StoreFault>;

    /// Writes all of `changes`, or nothing. A change of a session's memory must be based on its latest
    /// version.
    fn commit(
        &self,
        owner: &Owner,
        request: &CallRequest,
        changes: &Changes,
    ) -> Result<Receipt, StoreFault>;

    /// The owner's latest history records, oldest first, at most `limit`, before call `before` if given.
    fn history(
        &self,
        owner: &Owner,
        limit: usize,
        before: Option<&str>,
    ) -> Result<Vec<Value>, StoreFault>;

    /// The history record of a call, by its id.
    fn call_record(&self, call_id: &str) -> Result<Option<OwnedRecord>, StoreFault>;

    /// Kept answers of a model to questions of programs, by what was asked; those that are not kept are left out.
    fn answers(&self, keys: &[Checksum]) -> Result<BTreeMap<Checksum, Value>, StoreFault>;

    /// A kept value by its reference; none that was kept before `kept_since` (RFC 3339, UTC) if that is given.
    fn content(
        &self,
        reference: &str,
        kept_since: Option<&str>,
    ) -> Result<Option<Value>, StoreFault>;
}

/// What sessions keep between calls.
#[doc(hidden)]
pub trait SessionStore {
    /// Where processes that share this store keep their locks; `None`: the store is this process's own.
    fn locks(&self) -> Option<PathBuf> {
        None
    }

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

    /// Every session's agents, by name.
    fn sessions(&self) -> Result<Vec<SessionSummary>, StoreFault>;

    /// The memories of a session's agents.
    fn session_context(&self, name: &str) -> Result<Vec<(String, Context)>, StoreFault>;

    /// Forgets a session with its memories, history and stored contents; false if there was none.
    fn remove_session(&self, name: &str) -> Result<bool, StoreFault>;

    /// Forgets one key of the memories of a session's agents, whatever it holds; gives how many had it, or `None` if
    /// there is no such session.
    fn forget_memory(&self, name: &str, key: &str) -> Result<Option<usize>, StoreFault>;

    /// Forgets a session's history and stored contents, not its memory; gives how many records, or `None` if there is
    /// no such session.
    fn purge_session(&self, name: &str) -> Result<Option<usize>, StoreFault>;
}

/// Tools, stored programs, and what people and trials do with them.
#[doc(hidden)]
pub trait ToolStore {
    /// Registers a tool that was forged outside a call.
    fn keep_tool(&self, tool: &Tool) -> Result<(), StoreFault>;

    /// Tools by name; all of them when `name` is `None`, most used first, at most `limit`.
    fn tools(&self, name: Option<&Role>, limit: usize) -> Result<Vec<KnownTool>, StoreFault>;

    /// The programs that run, by role and method; of one role if given; at most `limit`.
    fn artifacts(
        &self,
        role: Option<&Role>,
        limit: usize,
    ) -> Result<Vec<KnownArtifact>, StoreFault>;

    /// Every kept version, newest first.
    fn versions(&self, key: &ArtifactKey) -> Result<Vec<StoredVersion>, StoreFault>;

    /// Changes of standing, newest first.
    fn decisions(&self, key: &ArtifactKey) -> Result<Vec<StandingChange>, StoreFault>;

    /// The recorded calls that later versions must reproduce.
    fn corpus(&self, key: &ArtifactKey) -> Result<Vec<Case>, StoreFault>;

    /// Forgets a recorded call that its own program does not repeat.
    fn forget_case(&self, key: &ArtifactKey, case: &Case) -> Result<(), StoreFault>;

    /// Ends the trial of a challenger of the version `incumbent`. False: something else took over meanwhile,
    /// or the incumbent was pinned, and the challenger stays a candidate.
    fn conclude(
        &self,
        key: &ArtifactKey,
        incumbent: &Checksum,
        challenger: &Checksum,
        verdict: &Verdict,
    ) -> Result<bool, StoreFault>;

    /// Lets an earlier version run again: the last one that ran before the current one, or the one named, if it
    /// ever worked. Gives its checksum; `None`: there is no such version.
    fn rollback(
        &self,
        key: &ArtifactKey,
        to: Option<&Checksum>,
    ) -> Result<Option<Checksum>, StoreFault>;

    /// Keeps the current version from being replaced, or allows it again. False: nothing is stored under that key.
    fn pin(&self, key: &ArtifactKey, pinned: bool) -> Result<bool, StoreFault>;

    /// Takes a version out of service, the running one if none is named, with the calls recorded of it. If it runs, the
    /// last good version before it runs again. `None`: there is no such version that was not rejected before.
    fn reject(
        &self,
        key: &ArtifactKey,
        version: Option<&Checksum>,
        because: &str,
    ) -> Result<Option<Rejected>, StoreFault>;

    /// Records that a person rejected a text that the store does not hold, such as a program of `tools_dir`.
    fn reject_text(
        &self,
        key: &ArtifactKey,
        checksum: &Checksum,
        because: &str,
    ) -> Result<(), StoreFault>;

    /// What people said against programs of a method, newest first.
    fn rejections(&self, role: &Role, method: &Method) -> Result<Vec<PersonRejection>, StoreFault>;

    /// Keeps an example of a method, in place of one with the same inputs; false: there are too many.
    fn teach(&self, role: &Role, method: &Method, example: &Example) -> Result<bool, StoreFault>;

    /// The examples kept of a method.
    fn examples(&self, role: &Role, method: &Method) -> Result<Vec<Example>, StoreFault>;

    /// The methods that have examples, by role and method; of one role if given; at most `limit`.
    fn taught(&self, role: Option<&Role>, limit: usize) -> Result<Vec<TaughtMethod>, StoreFault>;

    /// Forgets an example; false: it is not there.
    fn forget_example(
        &self,
        role: &Role,
        method: &Method,
        example: &Example,
    ) -> Result<bool, StoreFault>;

    /// Forgets the programs of a method, in every language and under every contract, and what people said about
    /// them. Gives how many artifacts went.
    fn forget_method(&self, role: &Role, method: &Method) -> Result<usize, StoreFault>;

    /// Keeps a program that a person wrote, as the version that runs.
    fn replace(&self, generation: &Generation) -> Result<Receipt, StoreFault>;
}

/// What is asked of the store as a whole.
#[doc(hidden)]
pub trait AdminStore {
    /// What is wrong with the store, if anything; everything is looked at.
    fn check(&self) -> Result<Vec<String>, StoreFault>;

    /// Everything about tools, programs and patterns, or what is known of one role.
    fn bundle(&self, role: Option<&Role>) -> Result<Bundle, StoreFault>;

    /// Everything about tools, programs, patterns and sessions. Unreadable entries are left out and named in its notes.
    fn bundle_with_sessions(&self) -> Result<Bundle, StoreFault>;

    /// Takes in what is new in a bundle: all of that, or nothing.
    fn merge(&self, bundle: &Bundle) -> Result<Merged, StoreFault>;

    /// Forgets a role: its tool entry, programs, examples and patterns. If `used_before` (RFC 3339, UTC) is given, only a
    /// role that was last used before it. False if nothing was forgotten.
    fn forget_tool(&self, role: &Role, used_before: Option<&str>) -> Result<bool, StoreFault>;

    /// How often calls of a role ended because their retries were spent, per method, language and contract.
    fn exhaustions(&self, role: &Role) -> Result<Vec<Exhaustions>, StoreFault>;

    /// What pattern memory keeps of a role, oldest first.
    fn patterns(&self, role: &Role) -> Result<Vec<PatternEvent>, StoreFault>;

    /// Roles pattern memory knows, by name, at most `limit`, after `after` if given.
    fn pattern_roles(&self, limit: usize, after: Option<&Role>) -> Result<Vec<Role>, StoreFault>;
}

/// Identifies the session a call belongs to: the owner's, else its trace. Always 16 characters.
fn session_mark(owner: &Owner, request: &CallRequest) -> String {
    let session = owner.session.as_deref().unwrap_or(request.lineage.trace().as_str());
    Checksum::short_of(session, SESSION_MARK_CHARS)
}

/// Merges the entries of a method that is stored in several languages or under several contracts.
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
