//! Tools, programs, patterns and sessions as a [`Bundle`]; [`merge`] takes one in.
//!
//! Columns without a field are copied unchanged (`rest`), so that a store gives back what it was given. Recorded calls
//! and decisions are not exported: they are evidence about this store's own calls.

mod merge;
mod session;

use lifecycle::artifact::ArtifactKey;
use lifecycle::contract::Contract;
use lifecycle::pattern::PatternEvent;
use lifecycle::program::Checksum;
use lifecycle::request::Role;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, Row};
use serde_json::{Map, Value, json};

use super::super::bundle::{ArtifactEntry, Bundle, ToolEntry, VersionEntry};
use super::column::{Json, Word};
use super::fault::SqliteFault;
use super::pattern;
use super::read;
use super::versions::{self, people};
use super::write::run;

pub(super) use merge::merge;

/// Columns of `artifact_versions` that a version has a field for.
const VERSION_COLUMNS: [&str; 12] = [
    "artifact_id",
    "version",
    "checksum",
    "successes",
    "failures",
    "repairs",
    "cacheability",
    "runtime_version",
    "prompt_version",
    "admitted_at",
    "manifest",
    "code",
];
/// Columns of `artifacts` that are its name, its pointer, or counts of what stays.
const ARTIFACT_COLUMNS: [&str; 7] =
    ["id", "role", "method", "language", "contract_fingerprint", "current", "cases"];

/// All of the store, or what it knows of one role.
pub(super) fn bundle(connection: &Connection, role: Option<&Role>) -> Result<Bundle, SqliteFault> {
    let snapshot = connection.unchecked_transaction()?;
    of_snapshot(&snapshot, role)
}

/// All of the store, with its sessions, as of one moment.
pub(super) fn bundle_with_sessions(connection: &Connection) -> Result<Bundle, SqliteFault> {
    let snapshot = connection.unchecked_transaction()?;
    let mut bundle = of_snapshot(&snapshot, None)?;
    session::read(&snapshot, &mut bundle)?;
    Ok(bundle)
}

fn of_snapshot(snapshot: &Connection, role: Option<&Role>) -> Result<Bundle, SqliteFault> {
    let only = role.map(Role::as_str);
    Ok(Bundle {
        tools: tools(snapshot, only)?,
        artifacts: artifacts(snapshot, only)?,
        patterns: patterns(snapshot, role)?,
        ..Bundle::default()
    })
}

const TOOLS: &str = "
    SELECT name, contract, usage_count, success_count, failure_count, created_at, last_used_at,
           (SELECT json_group_array(method) FROM
             (SELECT method FROM tool_methods WHERE tool = tools.name ORDER BY method)),
           (SELECT json_group_object(method, signature) FROM tool_methods
            WHERE tool = tools.name AND signature IS NOT NULL)
    FROM tools WHERE ?1 IS NULL OR name = ?1 ORDER BY name";

fn tools(connection: &Connection, only: Option<&str>) -> Result<Vec<ToolEntry>, SqliteFault> {
    read::rows(connection, TOOLS, [only], |row| {
        Ok(ToolEntry {
            name: row.get::<_, Word<_>>(0)?.0,
            contract: row.get::<_, Option<Json<Contract>>>(1)?.map(|contract| contract.0),
            usage_count: row.get(2)?,
            success_count: row.get(3)?,
            failure_count: row.get(4)?,
            created_at: row.get(5)?,
            last_used_at: row.get(6)?,
            methods: row.get::<_, Json<_>>(7)?.0,
            signatures: row.get::<_, Json<_>>(8)?.0,
        })
    })
}

const ARTIFACTS: &str = "
    SELECT * FROM artifacts WHERE ?1 IS NULL OR role = ?1
    ORDER BY role, method, language, contract_fingerprint";
const ARTIFACT: &str = "
    SELECT * FROM artifacts WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4";
const VERSIONS: &str = "SELECT * FROM artifact_versions WHERE artifact_id = ?1 ORDER BY version";

fn artifacts(
    connection: &Connection,
    only: Option<&str>,
) -> Result<Vec<ArtifactEntry>, SqliteFault> {
    entries(connection, ARTIFACTS, [only])
}

/// What is stored under one key.
fn artifact(
    connection: &Connection,
    key: &ArtifactKey,
) -> Result<Option<ArtifactEntry>, SqliteFault> {
    Ok(entries(connection, ARTIFACT, versions::columns(key))?.pop())
}

fn entries(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Vec<ArtifactEntry>, SqliteFault> {
    let rows = read::rows(connection, sql, params, |row| {
        let entry = ArtifactEntry {
            role: row.get::<_, Word<_>>("role")?.0,
            method: row.get::<_, Word<_>>("method")?.0,
            language: row.get::<_, Word<_>>("language")?.0,
            contract_fingerprint: row.get("contract_fingerprint")?,
            current: Checksum::stored(String::new()),
            versions: Vec::new(),
            examples: Vec::new(),
            rest: rest(row, &ARTIFACT_COLUMNS)?,
        };
        Ok((row.get::<_, i64>("id")?, row.get::<_, u64>("current")?, entry))
    })?;
    let mut entries = Vec::new();
    for (id, current, mut entry) in rows {
        entry.versions = read::rows(connection, VERSIONS, [id], version)?;
        // Skip an artifact whose running version is missing.
        let Some(running) = entry.versions.iter().find(|v| v.number == current) else { continue };
        entry.current = running.checksum.clone();
        entry.examples = people::examples(connection, &entry.role, &entry.method)?;
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
pub(super) const SEEKS: [&str; 2] = [ARTIFACT, VERSIONS];

fn version(row: &Row<'_>) -> rusqlite::Result<VersionEntry> {
    Ok(VersionEntry {
        number: row.get("version")?,
        checksum: Checksum::stored(row.get("checksum")?),
        code: row.get("code")?,
        manifest: row.get::<_, Json<_>>("manifest")?.0,
        cacheability: row.get::<_, Word<_>>("cacheability")?.0,
        runtime_version: row.get("runtime_version")?,
        prompt_version: row.get("prompt_version")?,
        successes: row.get("successes")?,
        failures: row.get("failures")?,
        repairs: row.get("repairs")?,
        admitted_at: row.get("admitted_at")?,
        rest: rest(row, &VERSION_COLUMNS)?,
    })
}

/// The columns that are not in `named`, by name; empty ones are left out.
fn rest(row: &Row<'_>, named: &[&str]) -> rusqlite::Result<Map<String, Value>> {
    let mut rest = Map::new();
    for (index, column) in row.as_ref().column_names().enumerate() {
        let value = match row.get_ref(index)? {
            _ if named.contains(&column) => continue,
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => continue,
            ValueRef::Integer(number) => json!(number),
            ValueRef::Text(_) => json!(row.get::<_, String>(index)?),
        };
        rest.insert(column.to_owned(), value);
    }
    Ok(rest)
}

fn patterns(
    connection: &Connection,
    role: Option<&Role>,
) -> Result<Vec<PatternEvent>, SqliteFault> {
    let roles = match role {
        Some(role) => vec![role.clone()],
        None => pattern::roles(connection, usize::MAX, None)?,
    };
    let mut events = Vec::new();
    for role in roles {
        events.extend(pattern::events(connection, &role)?);
    }
    Ok(events)
}

const FORGET: [&str; 7] = [
    "DELETE FROM artifacts WHERE role = ?1",
    "DELETE FROM patterns WHERE role = ?1",
    "DELETE FROM exhaustions WHERE role = ?1",
    "DELETE FROM examples WHERE role = ?1",
    "DELETE FROM rejections WHERE role = ?1",
    "DELETE FROM early_calls WHERE role = ?1",
    "DELETE FROM tools WHERE name = ?1",
];

/// Forgets a role with its programs and what was observed of it, unless it is a tool that was used after
/// `used_before`. Says whether there was anything.
pub(super) fn forget(
    transaction: &Connection,
    role: &Role,
    used_before: Option<&str>,
) -> Result<bool, SqliteFault> {
    if let Some(used_before) = used_before {
        let known = tools(transaction, Some(role.as_str()))?.pop();
        if known.is_none_or(|known| known.last_used_at.as_str() >= used_before) {
            return Ok(false);
        }
    }
    let mut forgotten = 0;
    for sql in FORGET {
        forgotten += run(transaction, sql, [role.as_str()])?;
    }
    Ok(forgotten > 0)
}
