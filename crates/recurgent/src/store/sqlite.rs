//! The store in one SQLite file: safe for many threads and processes, one short transaction per call.
//!
//! [`file`] opens, migrates and, if need be, quarantines it; [`read`] and [`write`] hold the statements,
//! [`lines`] those about stored programs;
//! [`fault`] says in words what went wrong; [`column`] is how our types look in a column.

mod column;
mod fault;
mod file;
mod versions;
mod pattern;
mod read;
mod transfer;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lifecycle::admission::Case;
use lifecycle::artifact::ArtifactKey;
use lifecycle::call::{Memory, StoreFault};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::pattern::PatternEvent;
use lifecycle::program::Checksum;
use lifecycle::prompt::PromptContext;
use lifecycle::request::{CallRequest, Role};
use lifecycle::settlement::{Changes, Receipt};
use lifecycle::tool::{KnownTool, Tool};
use rusqlite::Connection;
use serde_json::Value;

use self::versions::version_admin;
use super::bundle::{Bundle, Merged};
use super::catalog::{Catalog, Decided, KnownArtifact, Verdict, Version};
use super::{Exhaustions, Owner, Store};
use fault::Fault;
use file::{Check, Opened};

/// The store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    connections: RwLock<Arc<Connections>>,
    notices: Mutex<Vec<String>>,
}

/// What is known of one agent's part in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// The session.
    pub name: String,
    /// The agent.
    pub role: String,
    /// Keys in its memory.
    pub keys: u64,
    /// The version of its memory.
    pub version: u64,
    /// When it was last written to; RFC 3339, UTC.
    pub updated_at: String,
    /// Records of its calls.
    pub history_count: u64,
}

/// One connection that writes and one that reads: a wait for another process's write delays no recall.
#[derive(Debug)]
struct Connections {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    identity: file::Identity,
}

impl Connections {
    /// Reads by the writer if it is idle: its page cache is warm, while each write empties the reader's.
    fn read<T>(&self, query: impl Fn(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        match self.writer.try_lock() {
            Ok(writer) => query(&writer),
            Err(_) => query(&locked(&self.reader)),
        }
    }
}

/// A transaction that is rolled back unless it is committed. As rusqlite's own, but its statements are compiled once.
struct Writing<'a>(&'a Connection);

impl<'a> Writing<'a> {
    fn begin(connection: &'a Connection) -> Result<Self, Fault> {
        write::run(connection, "BEGIN IMMEDIATE", [])?;
        Ok(Self(connection))
    }

    fn commit(self) -> Result<(), Fault> {
        write::run(self.0, "COMMIT", []).map(drop)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // It fails only where SQLite has rolled back itself.
            let _ = write::run(self.0, "ROLLBACK", []);
        }
    }
}

impl SqliteStore {
    /// Opens the store at `path`, made if there is none. A damaged one is moved aside; see [`Self::notices`].
    pub fn open(path: &Path) -> Result<Self, StoreFault> {
        let Opened { connections, notices } =
            file::open(path, Check::Cheap).map_err(|fault| fault.told(path))?;
        Ok(Self {
            path: path.to_owned(),
            connections: RwLock::new(Arc::new(connections)),
            notices: Mutex::new(notices),
        })
    }

    /// What people should be told about this store, such as where a damaged file was moved.
    pub fn notices(&self) -> Vec<String> {
        locked(&self.notices).clone()
    }

    /// Every session's agents, by name.
    pub fn sessions(&self) -> Result<Vec<SessionSummary>, StoreFault> {
        self.read(read::sessions)
    }

    /// The memories of a session's agents.
    pub fn session_context(&self, name: &str) -> Result<Vec<(String, Context)>, StoreFault> {
        self.read(|connection| read::session_context(connection, name))
    }

    /// Forgets a session with its memories, history and kept values; false if there was none.
    pub fn remove_session(&self, name: &str) -> Result<bool, StoreFault> {
        self.write(|transaction| write::remove_session(transaction, name))
    }

    /// Forgets a session's history and kept values, not its memory; how many records, or `None` if there is none.
    pub fn purge_session(&self, name: &str) -> Result<Option<usize>, StoreFault> {
        self.write(|transaction| write::purge_session(transaction, name))
    }

    /// Everything about tools, programs and patterns, or what is known of one role.
    pub fn bundle(&self, role: Option<&Role>) -> Result<Bundle, StoreFault> {
        self.read(|connection| transfer::bundle(connection, role))
    }

    /// Takes in what is new in a bundle: all of that, or nothing.
    pub fn merge(&self, bundle: &Bundle) -> Result<Merged, StoreFault> {
        self.write(|transaction| transfer::merge(transaction, bundle))
    }

    /// Forgets a tool that was not used since `used_before` (RFC 3339, UTC), with its programs and patterns; false
    /// if there is none.
    pub fn forget_tool(&self, role: &Role, used_before: &str) -> Result<bool, StoreFault> {
        self.write(|transaction| transfer::forget(transaction, role, used_before))
    }

    /// Looks at the whole file; what is wrong with it, if anything.
    pub fn check(&self) -> Result<Vec<String>, StoreFault> {
        self.read(read::problems)
    }

    fn read<T>(&self, query: impl Fn(&Connection) -> Result<T, Fault>) -> Result<T, StoreFault> {
        self.mending(|connections| connections.read(&query))
    }

    fn write<T>(&self, change: impl Fn(&Connection) -> Result<T, Fault>) -> Result<T, StoreFault> {
        self.mending(|connections| {
            let writer = locked(&connections.writer);
            let transaction = Writing::begin(&writer)?;
            file::check_version(&writer)?;
            let value = change(&writer)?;
            transaction.commit()?;
            Ok(value)
        })
    }

    /// Performs an operation; once more on a reopened store, if the file was moved away or found damaged.
    fn mending<T>(
        &self,
        operation: impl Fn(&Connections) -> Result<T, Fault>,
    ) -> Result<T, StoreFault> {
        let attempt = || {
            let mut connections = self.connections();
            if !connections.identity.is_at(&self.path) {
                connections = self.reopen(&connections, Check::Cheap)?;
            }
            match operation(&connections) {
                Err(fault) if fault.is_damage() => {
                    operation(&*self.reopen(&connections, Check::Thorough)?)
                }
                answer => answer,
            }
        };
        attempt().map_err(|fault| fault.told(&self.path))
    }

    fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.connections.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the connections in `stale`, unless another thread already did.
    fn reopen(&self, stale: &Arc<Connections>, check: Check) -> Result<Arc<Connections>, Fault> {
        let mut current = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&current, stale) {
            let Opened { connections, notices } = file::open(&self.path, check)?;
            locked(&self.notices).extend(notices);
            *current = Arc::new(connections);
        }
        Ok(Arc::clone(&current))
    }
}

impl Store for SqliteStore {
    fn recall(&self, owner: &Owner, request: &CallRequest) -> Result<Memory, StoreFault> {
        self.read(|connection| read::recall(connection, owner, request))
    }

    fn prompt_context(
        &self,
        owner: &Owner,
        request: &CallRequest,
    ) -> Result<PromptContext, StoreFault> {
        self.read(|connection| read::prompt_context(connection, owner, request))
    }

    fn commit(
        &self,
        owner: &Owner,
        request: &CallRequest,
        changes: &Changes,
    ) -> Result<Receipt, StoreFault> {
        self.write(|transaction| write::commit(transaction, owner, request, changes))
    }

    fn context(&self, owner: &Owner, held: Option<u64>) -> Result<Option<Context>, StoreFault> {
        self.read(|connection| read::context(connection, owner, held))
    }

    fn manifest(
        &self,
        owner: &Owner,
        language: Language,
    ) -> Result<Option<DependencyManifest>, StoreFault> {
        self.read(|connection| read::manifest(connection, owner, language))
    }

    fn remember(
        &self,
        owner: &Owner,
        base: u64,
        changes: &ContextChanges,
    ) -> Result<(), StoreFault> {
        if owner.session.is_none() || changes.is_empty() {
            return Ok(());
        }
        self.write(|transaction| write::remember(transaction, owner, base, changes))
    }

    fn keep_tool(&self, tool: &Tool) -> Result<(), StoreFault> {
        self.write(|transaction| write::keep_tool(transaction, tool))
    }

    fn tools(&self, name: Option<&Role>, limit: usize) -> Result<Vec<KnownTool>, StoreFault> {
        self.read(|connection| read::tools(connection, name, limit))
    }

    fn exhaustions(&self, role: &Role) -> Result<Vec<Exhaustions>, StoreFault> {
        self.read(|connection| read::exhaustions(connection, role))
    }

    fn patterns(&self, role: &Role) -> Result<Vec<PatternEvent>, StoreFault> {
        self.read(|connection| pattern::events(connection, role))
    }

    fn pattern_roles(&self, limit: usize, after: Option<&Role>) -> Result<Vec<Role>, StoreFault> {
        self.read(|connection| pattern::roles(connection, limit, after))
    }

    fn history(
        &self,
        owner: &Owner,
        limit: usize,
        before: Option<&str>,
    ) -> Result<Vec<Value>, StoreFault> {
        self.read(|connection| read::history(connection, owner, limit, before))
    }

    fn content(
        &self,
        reference: &str,
        kept_since: Option<&str>,
    ) -> Result<Option<Value>, StoreFault> {
        // Asked for by a program under way, often many times: its call has looked where the file is.
        let connections = self.connections();
        let query = |connection: &Connection| read::content(connection, reference, kept_since);
        connections.read(query).or_else(|_| self.read(query))
    }
}

impl Catalog for SqliteStore {
    fn artifacts(
        &self,
        role: Option<&Role>,
        limit: usize,
    ) -> Result<Vec<KnownArtifact>, StoreFault> {
        self.read(|connection| version_admin::artifacts(connection, role, limit))
    }

    fn versions(&self, key: &ArtifactKey) -> Result<Vec<Version>, StoreFault> {
        self.read(|connection| version_admin::versions(connection, key))
    }

    fn decisions(&self, key: &ArtifactKey) -> Result<Vec<Decided>, StoreFault> {
        self.read(|connection| version_admin::decisions(connection, key))
    }

    fn corpus(&self, key: &ArtifactKey) -> Result<Vec<Case>, StoreFault> {
        self.read(|connection| version_admin::corpus(connection, key))
    }

    fn forget_case(&self, key: &ArtifactKey, case: &Case) -> Result<(), StoreFault> {
        self.write(|transaction| version_admin::forget_case(transaction, key, case))
    }

    fn conclude(
        &self,
        key: &ArtifactKey,
        incumbent: &Checksum,
        challenger: &Checksum,
        verdict: &Verdict,
    ) -> Result<bool, StoreFault> {
        self.write(|transaction| {
            version_admin::conclude(transaction, key, incumbent, challenger, verdict)
        })
    }

    fn rollback(
        &self,
        key: &ArtifactKey,
        to: Option<&Checksum>,
    ) -> Result<Option<Checksum>, StoreFault> {
        self.write(|transaction| version_admin::rollback(transaction, key, to))
    }

    fn pin(&self, key: &ArtifactKey, pinned: bool) -> Result<bool, StoreFault> {
        self.write(|transaction| version_admin::pin(transaction, key, pinned))
    }
}

/// How the table `owners` names an owner: by session if it has one, by itself if not.
fn owner_key(owner: &Owner) -> (&'static str, &str, &str) {
    match &owner.session {
        Some(session) => ("session", session, owner.role.as_str()),
        None => ("instance", &owner.instance, owner.role.as_str()),
    }
}

/// A panic elsewhere leaves nothing half done here: an open transaction is rolled back as it unwinds.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    /// The plan of a statement, one step per line.
    fn plan(connection: &Connection, sql: &str) -> String {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![0; statement.parameter_count()];
        let steps =
            statement.query_map(rusqlite::params_from_iter(parameters), |row| row.get("detail"));
        steps.unwrap().collect::<Result<Vec<String>, _>>().unwrap().join("\n")
    }

    /// What a statement costs may depend on what it finds, never on how much is stored.
    #[test]
    fn no_statement_of_a_call_scans_or_sorts_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("store.db")).unwrap();
        let connections = store.connections();
        let connection = locked(&connections.writer);
        let seeks = [
            &read::SEEKS[..],
            &write::SEEKS[..],
            &versions::SEEKS[..],
            &version_admin::SEEKS[..],
            &pattern::SEEKS[..],
            &transfer::SEEKS[..],
        ];
        for sql in seeks.concat() {
            let plan = plan(&connection, sql);
            let scans =
                plan.lines().filter(|step| step.starts_with("SCAN") && !is_of_few(step)).count();
            assert_eq!(scans, 0, "{sql}\n{plan}");
            assert!(!plan.contains("TEMP B-TREE FOR ORDER BY"), "{sql}\n{plan}");
        }
        for sql in
            [&read::BOUNDED_SCANS[..], &write::BOUNDED_SCANS[..], &version_admin::BOUNDED_SCANS[..]]
                .concat()
        {
            let plan = plan(&connection, sql);
            assert!(
                sql.contains("LIMIT") && !plan.contains("TEMP B-TREE FOR ORDER BY"),
                "{sql}\n{plan}"
            );
        }
    }

    /// A subquery that was itself limited, or a table that never holds more than `MAX_CONTENTS`.
    fn is_of_few(step: &str) -> bool {
        step.starts_with("SCAN (subquery") || ["SCAN CONSTANT ROW", "SCAN contents"].contains(&step)
    }

    /// Compiling a statement costs ten times what running it does.
    #[test]
    fn a_statement_is_compiled_once_whatever_is_bound_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("store.db")).unwrap();
        let connections = store.connections();
        let connection = locked(&connections.reader);
        for sql in [&read::SEEKS[..], &read::BOUNDED_SCANS[..]].concat() {
            let mut statement = connection.prepare(sql).unwrap();
            for value in [1, 2, 3] {
                let bound = vec![value; statement.parameter_count()];
                let _ = statement.query(rusqlite::params_from_iter(bound)).unwrap().next().unwrap();
            }
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{sql}");
        }
    }
}
