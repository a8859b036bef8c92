//! The store in one SQLite database: safe for many threads and processes, one short transaction per call.
//!
//! `file` opens, migrates and, if need be, quarantines it; `read` and `write` hold the statements,
//! `versions` those about stored programs;
//! `fault` explains what went wrong; `column` is how our types look in a column.

mod check;
mod column;
mod fault;
mod file;
mod versions;
mod pattern;
mod read;
mod transfer;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lifecycle::admission::Case;
use lifecycle::artifact::{ArtifactKey, Generation};
use lifecycle::call::{Memory, StoreFault};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::example::{Example, PersonRejection};
use lifecycle::pattern::PatternEvent;
use lifecycle::program::Checksum;
use lifecycle::prompt::PromptContext;
use lifecycle::request::{CallRequest, Method, Role};
use lifecycle::settlement::{Changes, Receipt};
use lifecycle::tool::{KnownTool, Tool};
use lifecycle::version_policy::{Rejected, Verdict};
use rusqlite::Connection;
use serde_json::Value;

use self::versions::{people, version_admin};
use super::bundle::{Bundle, Merged};
use super::catalog::{KnownArtifact, SessionSummary, StandingChange, StoredVersion, TaughtMethod};
use super::{AdminStore, CallStore, Exhaustions, OwnedRecord, Owner, SessionStore, ToolStore};
use fault::SqliteFault;
use file::{FileCheck, Opened};

/// The store in one SQLite database: a file, or memory.
#[derive(Debug)]
pub struct SqliteStore {
    /// `None`: it is in memory.
    path: Option<PathBuf>,
    connections: RwLock<Arc<Connections>>,
    notices: Mutex<Vec<String>>,
}

/// One connection that writes and one that reads: a wait for another process's write delays no recall. A database
/// in memory has one connection for both.
#[derive(Debug)]
struct Connections {
    writer: Mutex<Connection>,
    reader: Option<Mutex<Connection>>,
    /// `None`: it is in memory.
    identity: Option<file::FileIdentity>,
}

impl Connections {
    /// Reads through the writer if it is idle: its page cache is warm, while each write empties the reader's.
    fn read<T>(
        &self,
        query: impl Fn(&Connection) -> Result<T, SqliteFault>,
    ) -> Result<T, SqliteFault> {
        let Some(reader) = &self.reader else { return query(&locked(&self.writer)) };
        match self.writer.try_lock() {
            Ok(writer) => query(&writer),
            Err(_) => query(&locked(reader)),
        }
    }
}

/// A transaction that is rolled back unless it is committed. As rusqlite's own, but its statements are compiled once.
struct WriteTransaction<'a>(&'a Connection);

impl<'a> WriteTransaction<'a> {
    fn begin(connection: &'a Connection) -> Result<Self, SqliteFault> {
        write::run(connection, "BEGIN IMMEDIATE", [])?;
        Ok(Self(connection))
    }

    fn commit(self) -> Result<(), SqliteFault> {
        write::run(self.0, "COMMIT", []).map(drop)
    }
}

impl Drop for WriteTransaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // It fails only where SQLite has rolled back itself.
            let _ = write::run(self.0, "ROLLBACK", []);
        }
    }
}

impl SqliteStore {
    /// Opens the store at `path`, and creates it if there is none. A damaged one is moved aside; see
    /// [`Self::notices`].
    pub fn open(path: &Path) -> Result<Self, StoreFault> {
        let Opened { connections, notices } =
            file::open(path, FileCheck::Cheap).map_err(|fault| fault.explained(Some(path)))?;
        Ok(Self {
            path: Some(path.to_owned()),
            connections: RwLock::new(Arc::new(connections)),
            notices: Mutex::new(notices),
        })
    }

    /// A store that ends with the process.
    pub fn in_memory() -> Result<Self, StoreFault> {
        let connections = file::in_memory().map_err(|fault| fault.explained(None))?;
        Ok(Self {
            path: None,
            connections: RwLock::new(Arc::new(connections)),
            notices: Mutex::default(),
        })
    }

    /// What people should know about this store, such as where a damaged file was moved.
    pub fn notices(&self) -> Vec<String> {
        locked(&self.notices).clone()
    }

    fn read<T>(
        &self,
        query: impl Fn(&Connection) -> Result<T, SqliteFault>,
    ) -> Result<T, StoreFault> {
        self.with_recovery(|connections| connections.read(&query))
    }

    fn write<T>(
        &self,
        change: impl Fn(&Connection) -> Result<T, SqliteFault>,
    ) -> Result<T, StoreFault> {
        self.with_recovery(|connections| {
            let writer = locked(&connections.writer);
            let transaction = WriteTransaction::begin(&writer)?;
            file::check_version(&writer)?;
            let value = change(&writer)?;
            transaction.commit()?;
            Ok(value)
        })
    }

    /// Performs an operation; once more on a reopened store, if the file was moved away or found damaged.
    fn with_recovery<T>(
        &self,
        operation: impl Fn(&Connections) -> Result<T, SqliteFault>,
    ) -> Result<T, StoreFault> {
        let attempt = || {
            let mut connections = self.connections();
            let Some(path) = &self.path else { return operation(&connections) };
            if !connections.identity.as_ref().is_some_and(|identity| identity.is_at(path)) {
                connections = self.reopen(path, &connections, FileCheck::Cheap)?;
            }
            match operation(&connections) {
                Err(fault) if fault.is_damage() => {
                    operation(&*self.reopen(path, &connections, FileCheck::Thorough)?)
                }
                answer => answer,
            }
        };
        attempt().map_err(|fault| fault.explained(self.path.as_deref()))
    }

    fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.connections.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the connections in `stale`, unless another thread already did.
    fn reopen(
        &self,
        path: &Path,
        stale: &Arc<Connections>,
        check: FileCheck,
    ) -> Result<Arc<Connections>, SqliteFault> {
        let mut current = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&current, stale) {
            let Opened { connections, notices } = file::open(path, check)?;
            locked(&self.notices).extend(notices);
            *current = Arc::new(connections);
        }
        Ok(Arc::clone(&current))
    }
}

impl CallStore for SqliteStore {
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

    fn history(
        &self,
        owner: &Owner,
        limit: usize,
        before: Option<&str>,
    ) -> Result<Vec<Value>, StoreFault> {
        self.read(|connection| read::history(connection, owner, limit, before))
    }

    fn call_record(&self, call_id: &str) -> Result<Option<OwnedRecord>, StoreFault> {
        self.read(|connection| read::call_record(connection, call_id))
    }

    fn content(
        &self,
        reference: &str,
        kept_since: Option<&str>,
    ) -> Result<Option<Value>, StoreFault> {
        // Asked for by a running program, often many times: its call has already checked that the file is in place.
        let connections = self.connections();
        let query = |connection: &Connection| read::content(connection, reference, kept_since);
        connections.read(query).or_else(|_| self.read(query))
    }

    fn answers(&self, keys: &[Checksum]) -> Result<BTreeMap<Checksum, Value>, StoreFault> {
        let connections = self.connections();
        let query = |connection: &Connection| read::answers(connection, keys);
        connections.read(query).or_else(|_| self.read(query))
    }
}

impl SessionStore for SqliteStore {
    fn locks(&self) -> Option<PathBuf> {
        self.path.as_deref()?.parent().map(|folder| folder.join("locks"))
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

    fn sessions(&self) -> Result<Vec<SessionSummary>, StoreFault> {
        self.read(read::sessions)
    }

    fn session_context(&self, name: &str) -> Result<Vec<(String, Context)>, StoreFault> {
        self.read(|connection| read::session_context(connection, name))
    }

    fn remove_session(&self, name: &str) -> Result<bool, StoreFault> {
        self.write(|transaction| write::remove_session(transaction, name))
    }

    fn forget_memory(&self, name: &str, key: &str) -> Result<Option<usize>, StoreFault> {
        self.write(|transaction| write::forget_memory(transaction, name, key))
    }

    fn purge_session(&self, name: &str) -> Result<Option<usize>, StoreFault> {
        self.write(|transaction| write::purge_session(transaction, name))
    }
}

impl ToolStore for SqliteStore {
    fn keep_tool(&self, tool: &Tool) -> Result<(), StoreFault> {
        self.write(|transaction| write::keep_tool(transaction, tool))
    }

    fn tools(&self, name: Option<&Role>, limit: usize) -> Result<Vec<KnownTool>, StoreFault> {
        self.read(|connection| read::tools(connection, name, limit))
    }

    fn artifacts(
        &self,
        role: Option<&Role>,
        limit: usize,
    ) -> Result<Vec<KnownArtifact>, StoreFault> {
        self.read(|connection| version_admin::artifacts(connection, role, limit))
    }

    fn versions(&self, key: &ArtifactKey) -> Result<Vec<StoredVersion>, StoreFault> {
        self.read(|connection| version_admin::versions(connection, key))
    }

    fn decisions(&self, key: &ArtifactKey) -> Result<Vec<StandingChange>, StoreFault> {
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
        let rivals = (incumbent, challenger);
        self.write(|transaction| version_admin::conclude(transaction, key, rivals, verdict))
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

    fn reject(
        &self,
        key: &ArtifactKey,
        version: Option<&Checksum>,
        because: &str,
    ) -> Result<Option<Rejected>, StoreFault> {
        self.write(|transaction| people::reject(transaction, key, version, because))
    }

    fn reject_text(
        &self,
        key: &ArtifactKey,
        checksum: &Checksum,
        because: &str,
    ) -> Result<(), StoreFault> {
        self.write(|transaction| people::reject_text(transaction, key, checksum, because))
    }

    fn rejections(&self, role: &Role, method: &Method) -> Result<Vec<PersonRejection>, StoreFault> {
        self.read(|connection| people::rejections(connection, role, method))
    }

    fn teach(&self, role: &Role, method: &Method, example: &Example) -> Result<bool, StoreFault> {
        self.write(|transaction| people::teach(transaction, role, method, example))
    }

    fn examples(&self, role: &Role, method: &Method) -> Result<Vec<Example>, StoreFault> {
        self.read(|connection| people::examples(connection, role, method))
    }

    fn taught(&self, role: Option<&Role>, limit: usize) -> Result<Vec<TaughtMethod>, StoreFault> {
        self.read(|connection| people::taught(connection, role, limit))
    }

    fn forget_example(
        &self,
        role: &Role,
        method: &Method,
        example: &Example,
    ) -> Result<bool, StoreFault> {
        self.write(|transaction| people::forget_example(transaction, role, method, example))
    }

    fn forget_method(&self, role: &Role, method: &Method) -> Result<usize, StoreFault> {
        self.write(|transaction| people::forget_method(transaction, role, method))
    }

    fn replace(&self, generation: &Generation) -> Result<Receipt, StoreFault> {
        self.write(|transaction| people::replace(transaction, generation))
    }
}

impl AdminStore for SqliteStore {
    fn check(&self) -> Result<Vec<String>, StoreFault> {
        self.read(check::problems)
    }

    fn bundle(&self, role: Option<&Role>) -> Result<Bundle, StoreFault> {
        self.read(|connection| transfer::bundle(connection, role))
    }

    fn bundle_with_sessions(&self) -> Result<Bundle, StoreFault> {
        self.read(transfer::bundle_with_sessions)
    }

    fn merge(&self, bundle: &Bundle) -> Result<Merged, StoreFault> {
        self.write(|transaction| transfer::merge(transaction, bundle))
    }

    fn forget_tool(&self, role: &Role, used_before: Option<&str>) -> Result<bool, StoreFault> {
        self.write(|transaction| transfer::forget(transaction, role, used_before))
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
}

/// The key of an owner in the table `owners`: its session if it has one, its instance otherwise.
fn owner_key(owner: &Owner) -> (&'static str, &str, &str) {
    match &owner.session {
        Some(session) => ("session", session, owner.role.as_str()),
        None => ("instance", &owner.instance, owner.role.as_str()),
    }
}

/// A poisoned lock is safe to use: a panic rolls back the open transaction as it unwinds.
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
            &people::SEEKS[..],
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
        let scans = [
            &read::BOUNDED_SCANS[..],
            &write::BOUNDED_SCANS[..],
            &version_admin::BOUNDED_SCANS[..],
            &people::BOUNDED_SCANS[..],
        ];
        for sql in scans.concat() {
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

    /// A statement of a call that is in no list would not be looked at.
    #[test]
    fn every_statement_of_a_call_is_in_one_list() {
        let read = [read::SEEKS.len(), read::BOUNDED_SCANS.len(), read::MAINTENANCE.len()];
        let write = [write::SEEKS.len(), write::BOUNDED_SCANS.len(), write::MAINTENANCE.len()];
        let admin = [version_admin::SEEKS.len(), version_admin::BOUNDED_SCANS.len()];
        for (file, source, listed) in [
            ("read.rs", include_str!("sqlite/read.rs"), read.iter().sum()),
            ("write.rs", include_str!("sqlite/write.rs"), write.iter().sum()),
            ("versions.rs", include_str!("sqlite/versions.rs"), versions::SEEKS.len()),
            (
                "version_admin.rs",
                include_str!("sqlite/versions/version_admin.rs"),
                admin.iter().sum(),
            ),
            (
                "people.rs",
                include_str!("sqlite/versions/people.rs"),
                people::SEEKS.len() + people::BOUNDED_SCANS.len(),
            ),
            ("pattern.rs", include_str!("sqlite/pattern.rs"), pattern::SEEKS.len()),
        ] {
            let declared = source
                .lines()
                .filter(|line| line.starts_with("const ") && line.contains(": &str ="));
            assert_eq!(declared.count(), listed, "sqlite/{file}: statements and listed statements");
        }
    }

    /// Compiling a statement costs ten times what running it does.
    #[test]
    fn a_statement_is_compiled_once_whatever_is_bound_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("store.db")).unwrap();
        let connections = store.connections();
        let connection = locked(connections.reader.as_ref().unwrap());
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
