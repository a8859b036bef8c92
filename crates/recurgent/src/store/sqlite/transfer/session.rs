//! Sessions of a bundle: memory, history and packages of each agent. Stored contents are not exported.

use std::collections::BTreeMap;

use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::excerpt::counted;
use lifecycle::import_policy::{self, SessionImport, SessionSide};
use lifecycle::request::Role;
use rusqlite::{Connection, params};
use serde_json::{Map, Value};

use super::super::super::bundle::{Bundle, ImportNote, Merged, SessionEntry};
use super::super::fault::SqliteFault;
use super::super::read::{one, rows};
use super::super::write::run;

const OWNERS: &str = "
    SELECT id, name, role, max(context_version, 0), updated_at FROM owners
    WHERE kind = 'session' ORDER BY name, role";
const OWNER: &str = "
    SELECT id, name, role, max(context_version, 0), updated_at FROM owners
    WHERE kind = 'session' AND name = ?1 AND role = ?2";
const MEMORY: &str = "SELECT key, value FROM context_entries WHERE owner_id = ?1 ORDER BY key";
const HISTORY: &str = "SELECT call_id, record FROM history WHERE owner_id = ?1 ORDER BY id";
const PACKAGES: &str =
    "SELECT language, manifest FROM manifests WHERE owner_id = ?1 ORDER BY language";

/// The row of a session's agent.
struct SessionRow {
    id: i64,
    name: String,
    role: String,
    version: u64,
    updated_at: String,
}

impl SessionRow {
    fn of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            name: row.get(1)?,
            role: row.get(2)?,
            version: row.get(3)?,
            updated_at: row.get(4)?,
        })
    }
}

/// Adds every session to a bundle. A key, record or list of packages that cannot be read is left out and noted: an export
/// also saves what is left of a damaged store.
pub(super) fn read(snapshot: &Connection, bundle: &mut Bundle) -> Result<(), SqliteFault> {
    for row in rows(snapshot, OWNERS, [], SessionRow::of)? {
        let what = format!("session {} of {}", row.name, row.role);
        let mut note = |why: String| bundle.notes.push(ImportNote { what: what.clone(), why });
        match entry(snapshot, row, &mut note)? {
            Some(entry) => bundle.sessions.push(entry),
            None => note("its role has no valid name".to_owned()),
        }
    }
    Ok(())
}

fn entry(
    snapshot: &Connection,
    row: SessionRow,
    note: &mut dyn FnMut(String),
) -> Result<Option<SessionEntry>, SqliteFault> {
    let Ok(role) = Role::parse(&row.role) else { return Ok(None) };
    let mut memory = Map::new();
    for (key, text) in pairs(snapshot, MEMORY, row.id)? {
        match serde_json::from_str(&text) {
            Ok(value) => drop(memory.insert(key, value)),
            Err(_) => note(format!("its memory cannot be read at {key:?}")),
        }
    }
    let mut history: Vec<Value> = Vec::new();
    for (call, text) in pairs(snapshot, HISTORY, row.id)? {
        match serde_json::from_str::<Value>(&text) {
            Ok(record) if record.get("call_id").is_some_and(|id| *id == *call) => {
                history.push(record);
            }
            Ok(_) | Err(_) => note(format!("the history record of call {call:?} cannot be read")),
        }
    }
    let mut packages = BTreeMap::new();
    for (language, text) in pairs(snapshot, PACKAGES, row.id)? {
        let manifest = serde_json::from_str::<DependencyManifest>(&text);
        match (language.parse::<Language>(), manifest) {
            (Ok(language), Ok(manifest)) => drop(packages.insert(language, manifest)),
            (Ok(_) | Err(_), _) => note(format!("its {language:?} packages cannot be read")),
        }
    }
    let SessionRow { name, version, updated_at, .. } = row;
    Ok(Some(SessionEntry { name, role, version, updated_at, memory, history, packages }))
}

fn pairs(
    connection: &Connection,
    sql: &str,
    owner: i64,
) -> Result<Vec<(String, String)>, SqliteFault> {
    rows(connection, sql, [owner], |row| Ok((row.get(0)?, row.get(1)?)))
}

const FLOOR: &str = "SELECT value FROM meta WHERE key = 'context_floor'";

/// Adds a session as [`import_policy::session`] decides.
pub(super) fn merge(
    transaction: &Connection,
    offered: &SessionEntry,
    merged: &mut Merged,
) -> Result<(), SqliteFault> {
    let what = offered.title();
    let row = one(transaction, OWNER, [&offered.name, offered.role.as_str()], SessionRow::of)?;
    let here = match row {
        Some(row) => entry(transaction, row, &mut |_| {})?,
        None => None,
    };
    let floor: u64 = one(transaction, FLOOR, [], |row| row.get(0))?.unwrap_or(0);
    let (offered_calls, known_calls): (Vec<&str>, Vec<&str>) =
        (offered.calls().collect(), here.iter().flat_map(SessionEntry::calls).collect());
    let known = here.as_ref().map(|here| (side(here, &known_calls), here == offered));
    match import_policy::session(side(offered, &offered_calls), known, floor) {
        SessionImport::Added(version) => {
            let (keys, calls) = (offered.memory.len(), offered.history.len());
            merged.take(&what, &format!("{}, {}", counted(keys, "memory key"), counted(calls, "call")));
            return put(transaction, offered, version);
        }
        SessionImport::Follows(version) => {
            merged.take(&what, "it was written to later than the one here, and has all of its calls");
            return put(transaction, offered, version);
        }
        SessionImport::Same => merged.skip(&what, "it is here already"),
        SessionImport::Older => {
            let written = here.as_ref().map_or("", |here| here.updated_at.as_str());
            merged.skip(&what, &format!("the one here was written to later, at {written}"));
        }
        SessionImport::Unrelated => merged.conflict(
            &what,
            "the store and the import have calls that the other does not; the one of the store stays \
             (remove it with `recurgent sessions rm` to take the other)",
        ),
    }
    Ok(())
}

fn side<'a>(entry: &'a SessionEntry, calls: &'a [&'a str]) -> SessionSide<'a> {
    SessionSide { version: entry.version, updated_at: &entry.updated_at, calls }
}

/// A session that is there keeps its row, to which its stored contents belong.
const PUT_OWNER: &str = "
    INSERT INTO owners (kind, name, role, context_version, history_count, updated_at)
    VALUES ('session', ?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (kind, name, role) DO UPDATE
    SET context_version = excluded.context_version, history_count = excluded.history_count,
        updated_at = excluded.updated_at
    RETURNING id";
const DROP_MEMORY: &str = "DELETE FROM context_entries WHERE owner_id = ?1";
const DROP_HISTORY: &str = "DELETE FROM history WHERE owner_id = ?1";
const DROP_PACKAGES: &str = "DELETE FROM manifests WHERE owner_id = ?1";
const PUT_MEMORY: &str = "INSERT INTO context_entries (owner_id, key, value) VALUES (?1, ?2, ?3)";
const PUT_RECORD: &str = "INSERT INTO history (owner_id, call_id, record) VALUES (?1, ?2, ?3)";
const PUT_PACKAGES: &str =
    "INSERT INTO manifests (owner_id, language, manifest) VALUES (?1, ?2, ?3)";

/// Writes a session in place of what is stored of it.
fn put(transaction: &Connection, entry: &SessionEntry, version: u64) -> Result<(), SqliteFault> {
    let (name, role) = (&entry.name, entry.role.as_str());
    let count = i64::try_from(entry.history.len()).unwrap_or(i64::MAX);
    let row = params![name, role, version, count, entry.updated_at];
    let id: i64 = transaction.prepare_cached(PUT_OWNER)?.query_row(row, |row| row.get(0))?;
    for sql in [DROP_MEMORY, DROP_HISTORY, DROP_PACKAGES] {
        run(transaction, sql, [id])?;
    }
    for (key, value) in &entry.memory {
        run(transaction, PUT_MEMORY, params![id, key, value.to_string()])?;
    }
    for (call, record) in entry.calls().zip(&entry.history) {
        run(transaction, PUT_RECORD, params![id, call, record.to_string()])?;
    }
    for (language, manifest) in &entry.packages {
        run(
            transaction,
            PUT_PACKAGES,
            params![id, language.name(), manifest.to_json().to_string()],
        )?;
    }
    Ok(())
}
