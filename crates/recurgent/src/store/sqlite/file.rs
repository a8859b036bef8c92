//! The database file: created, locked, checked, migrated, and moved aside when it is damaged.
//!
//! Only opening takes the lock beside the file (`<file>.lock`). It makes the steps that SQLite does not
//! serialise itself, switching to WAL and renaming a damaged file, happen in one process at a time.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::Connections;
use super::fault::SqliteFault;
use crate::lock_file::{LockFault, LockFile, LockGuard};

/// Embedded, applied in order. The schema version is how many of them a file has seen.
const MIGRATIONS: [&str; 11] = [
    include_str!("../schema/0001.sql"),
    include_str!("../schema/0002.sql"),
    include_str!("../schema/0003.sql"),
    include_str!("../schema/0004.sql"),
    include_str!("../schema/0005.sql"),
    include_str!("../schema/0006.sql"),
    include_str!("../schema/0007.sql"),
    include_str!("../schema/0008.sql"),
    include_str!("../schema/0009.sql"),
    include_str!("../schema/0010.sql"),
    include_str!("../schema/0011.sql"),
];
/// Marks files of this program (`RCRG`).
const APPLICATION_ID: i64 = 0x5243_5247;
/// Longest wait for another process, whether it opens or writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Statements kept prepared; more than there are.
const STATEMENTS: usize = 128;

/// `trusted_schema` and `cell_size_check` are SQLite's own advice for files others may have written to. A checkpoint
/// waits for the disk; at 16 MiB of log it does so every few hundred calls. Statement journals stay in memory and grow
/// in small steps: otherwise SQLite allocates and frees 64 KiB per statement.
const SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA foreign_keys = ON;
    PRAGMA trusted_schema = OFF;
    PRAGMA cell_size_check = ON;
    PRAGMA temp_store = MEMORY;
    PRAGMA wal_autocheckpoint = 4000;
    PRAGMA journal_size_limit = 16777216;
";

/// How thoroughly a file is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileCheck {
    /// Its header and schema.
    Cheap,
    /// All of it: something was found wrong.
    Thorough,
}

/// An open store, and what people should know about it.
pub(super) struct Opened {
    pub(super) connections: Connections,
    pub(super) notices: Vec<String>,
}

/// Which file this is, whatever its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Whether this file is still the one under that name; one `stat`.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        Self::of(path).is_ok_and(|identity| identity == *self)
    }
}

/// Opens the store, and creates it if there is none; a damaged one is moved aside and replaced.
pub(super) fn open(path: &Path, check: FileCheck) -> Result<Opened, SqliteFault> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(about(folder))?;
    // Before the lock, which would stay beside it.
    if path.is_dir() {
        return Err(about(path)(io::ErrorKind::IsADirectory.into()));
    }
    let _lock = lock(path)?;
    let mut notices = Vec::new();
    let connections = match connect(path, check) {
        Err(damage) if damage.is_damage() => {
            let moved_to = quarantine(path).map_err(about(path))?;
            notices.push(format!(
                "the store {} was damaged and has been moved to {}; a new one was made",
                path.display(),
                moved_to.display()
            ));
            connect(path, FileCheck::Cheap)?
        }
        answer => answer?,
    };
    Ok(Opened { connections, notices })
}

/// Rejects a file whose schema a newer version of this program has changed.
pub(super) fn check_version(connection: &Connection) -> Result<(), SqliteFault> {
    let found = user_version(connection)?;
    let known = MIGRATIONS.len();
    if found <= known { Ok(()) } else { Err(SqliteFault::Newer { found, known }) }
}

fn connect(path: &Path, check: FileCheck) -> Result<Connections, SqliteFault> {
    create(path).map_err(about(path))?;
    let writer = connection(path)?;
    check_origin(&writer)?;
    check_version(&writer)?;
    if check == FileCheck::Thorough {
        check_integrity(&writer)?;
    }
    writer.execute_batch(SETTINGS)?;
    migrate(&writer)?;
    let reader = connection(path)?;
    reader.execute_batch(SETTINGS)?;
    reader.execute_batch("PRAGMA query_only = ON")?;
    let identity = FileIdentity::of(path).map_err(about(path))?;
    let reader = Some(Mutex::new(reader));
    Ok(Connections { writer: Mutex::new(writer), reader, identity: Some(identity) })
}

/// A new database in memory, on one connection.
pub(super) fn in_memory() -> Result<Connections, SqliteFault> {
    let writer = configured(Connection::open_in_memory()?)?;
    writer.execute_batch(SETTINGS)?;
    migrate(&writer)?;
    Ok(Connections { writer: Mutex::new(writer), reader: None, identity: None })
}

/// Creates an empty file that only its owner can read. A file that exists is never opened here: closing it again
/// would drop the locks SQLite holds on it in this process.
fn create(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        answer => answer.map(drop),
    }
}

fn connection(path: &Path) -> Result<Connection, SqliteFault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    configured(Connection::open_with_flags(path, flags)?)
}

fn configured(connection: Connection) -> Result<Connection, SqliteFault> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // One plan per statement, whatever is bound: otherwise binding a LIMIT compiles the statement anew.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Rejects a file that holds tables but not the application id of this program.
fn check_origin(connection: &Connection) -> Result<(), SqliteFault> {
    let tables: u64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let mark: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if mark == APPLICATION_ID || (mark == 0 && tables == 0) {
        Ok(())
    } else {
        Err(SqliteFault::Foreign)
    }
}

fn check_integrity(connection: &Connection) -> Result<(), SqliteFault> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(SqliteFault::Damage(found)) }
}

/// Applies the migrations that the file has not seen yet: all of them or none, in one process at a time.
pub(super) fn migrate(connection: &Connection) -> Result<(), SqliteFault> {
    if user_version(connection)? == MIGRATIONS.len() {
        return Ok(());
    }
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    check_version(&transaction)?;
    for migration in MIGRATIONS.iter().skip(user_version(&transaction)?) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", MIGRATIONS.len())?;
    Ok(transaction.commit()?)
}

fn user_version(connection: &Connection) -> Result<usize, SqliteFault> {
    Ok(connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?)
}

/// Acquires the lock beside the file.
fn lock(path: &Path) -> Result<LockGuard, SqliteFault> {
    let file = LockFile::new(with_suffix(path, ".lock"));
    file.acquire_within(BUSY_TIMEOUT, || false).map_err(|fault| match fault {
        LockFault::Unusable(error) => about(file.path())(error),
        LockFault::Busy(_) | LockFault::Cancelled => {
            about(file.path())(io::ErrorKind::WouldBlock.into())
        }
    })
}

/// Moves the file and what SQLite keeps beside it to a name that is free; the lock is held.
fn quarantine(path: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    let free = loop {
        let candidate = with_suffix(path, &format!(".damaged-{number}"));
        if !candidate.try_exists()? {
            break candidate;
        }
        number += 1;
    };
    fs::rename(path, &free)?;
    for suffix in ["-wal", "-shm"] {
        match fs::rename(with_suffix(path, suffix), with_suffix(&free, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(free)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn about(path: &Path) -> impl Fn(io::Error) -> SqliteFault {
    move |error| SqliteFault::File(path.to_owned(), error)
}
