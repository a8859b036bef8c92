//! Tools, programs and patterns as a [`Bundle`], out of the file and into it.
//!
//! Columns that later schemas add travel as they are (`rest`), so that a store gives back what it was given.
//! Recorded calls and decisions stay: they are evidence about this store's own calls.

use lifecycle::contract::Contract;
use lifecycle::pattern::{MAX_EVENTS, PatternEvent};
use lifecycle::program::Checksum;
use lifecycle::request::Role;
use rusqlite::types::{Value as Cell, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Row, params};
use serde_json::{Map, Value, json};

use super::super::bundle::{ArtifactEntry, Bundle, Merged, ToolEntry, VersionEntry};
use super::column::{Json, Word};
use super::fault::Fault;
use super::pattern;
use super::read;

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

/// What a column holds for a program that comes from elsewhere and does not say.
const UNTOLD: [(&str, &str); 6] = [
    ("standing", "probation"),
    ("recent", ""),
    ("sessions", ""),
    ("trigger_reason", "fresh"),
    ("state_keys", r#"{"reads":[],"writes":[]}"#),
    ("pure", ""),
];

// ---- Out ----

/// All of the store, or what it knows of one role.
pub(super) fn bundle(connection: &Connection, role: Option<&Role>) -> Result<Bundle, Fault> {
    let snapshot = connection.unchecked_transaction()?;
    let only = role.map(Role::as_str);
    Ok(Bundle {
        tools: tools(&snapshot, only)?,
        artifacts: artifacts(&snapshot, only)?,
        patterns: patterns(&snapshot, role)?,
    })
}

const TOOLS: &str = "
    SELECT name, contract, usage_count, success_count, failure_count, created_at, last_used_at,
           (SELECT json_group_array(method) FROM
             (SELECT method FROM tool_methods WHERE tool = tools.name ORDER BY method))
    FROM tools WHERE ?1 IS NULL OR name = ?1 ORDER BY name";

fn tools(connection: &Connection, only: Option<&str>) -> Result<Vec<ToolEntry>, Fault> {
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
        })
    })
}

const ARTIFACTS: &str = "
    SELECT * FROM artifacts WHERE ?1 IS NULL OR role = ?1
    ORDER BY role, method, language, contract_fingerprint";
const VERSIONS: &str = "SELECT * FROM artifact_versions WHERE artifact_id = ?1 ORDER BY version";

fn artifacts(connection: &Connection, only: Option<&str>) -> Result<Vec<ArtifactEntry>, Fault> {
    let rows = read::rows(connection, ARTIFACTS, [only], |row| {
        let entry = ArtifactEntry {
            role: row.get::<_, Word<_>>("role")?.0,
            method: row.get::<_, Word<_>>("method")?.0,
            language: row.get::<_, Word<_>>("language")?.0,
            contract_fingerprint: row.get("contract_fingerprint")?,
            current: Checksum::stored(String::new()),
            versions: Vec::new(),
            rest: rest(row, &ARTIFACT_COLUMNS)?,
        };
        Ok((row.get::<_, i64>("id")?, row.get::<_, u64>("current")?, entry))
    })?;
    let mut entries = Vec::new();
    for (id, current, mut entry) in rows {
        entry.versions = read::rows(connection, VERSIONS, [id], version)?;
        // A pointer to nothing is no program.
        let Some(running) = entry.versions.iter().find(|v| v.number == current) else { continue };
        entry.current = running.checksum.clone();
        entries.push(entry);
    }
    Ok(entries)
}

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

/// The columns nobody named, by name; those that hold nothing are left out.
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

fn patterns(connection: &Connection, role: Option<&Role>) -> Result<Vec<PatternEvent>, Fault> {
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

// ---- In ----

/// Takes in what is new; what the store has newer stays, and what contradicts it is told.
pub(super) fn merge(transaction: &Connection, bundle: &Bundle) -> Result<Merged, Fault> {
    let mut merged = Merged::default();
    for tool in &bundle.tools {
        merge_tool(transaction, tool, &mut merged)?;
    }
    for artifact in &bundle.artifacts {
        let before = merged.clone();
        transaction.execute_batch("SAVEPOINT artifact")?;
        match merge_artifact(transaction, artifact, &mut merged) {
            Ok(()) => {}
            // What travelled along is somebody else's word; one file's nonsense is no other's fault.
            Err(Fault::Engine(error)) if is_refusal(&error) => {
                transaction.execute_batch("ROLLBACK TO artifact")?;
                merged = before;
                merged.conflict(&artifact.title(), &format!("the store does not take it: {error}"));
            }
            Err(fault) => return Err(fault),
        }
        transaction.execute_batch("RELEASE artifact")?;
    }
    let mut by_role: Vec<(&str, Vec<&PatternEvent>)> = Vec::new();
    for event in &bundle.patterns {
        match by_role.iter_mut().find(|(role, _)| *role == event.role) {
            Some((_, events)) => events.push(event),
            None => by_role.push((&event.role, vec![event])),
        }
    }
    for (role, events) in by_role {
        merge_patterns(transaction, role, &events, &mut merged)?;
    }
    Ok(merged)
}

/// A value that does not fit its column.
fn is_refusal(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

const PUT_TOOL: &str = "
    INSERT INTO tools (name, contract, usage_count, success_count, failure_count, created_at, last_used_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (name) DO UPDATE SET contract = excluded.contract, usage_count = excluded.usage_count,
      success_count = excluded.success_count, failure_count = excluded.failure_count,
      created_at = excluded.created_at, last_used_at = excluded.last_used_at";
const PUT_METHOD: &str = "INSERT OR IGNORE INTO tool_methods (tool, method) VALUES (?1, ?2)";

/// Of two, the one used last is the newer one.
fn merge_tool(
    transaction: &Connection,
    tool: &ToolEntry,
    merged: &mut Merged,
) -> Result<(), Fault> {
    let what = format!("tool {}", tool.name);
    let known = tools(transaction, Some(tool.name.as_str()))?.pop();
    match known {
        Some(known) if known == *tool => {
            merged.skip(&what, "it is here already");
            return Ok(());
        }
        Some(known) if known.last_used_at >= tool.last_used_at => {
            merged.skip(&what, &format!("the one here was used later, at {}", known.last_used_at));
            return Ok(());
        }
        Some(_) => merged.take(&what, "it was used later than the one here"),
        None => merged.take(&what, "new"),
    }
    let row = params![
        tool.name.as_str(),
        tool.contract.as_ref().map(Json),
        tool.usage_count,
        tool.success_count,
        tool.failure_count,
        tool.created_at,
        tool.last_used_at,
    ];
    transaction.prepare_cached(PUT_TOOL)?.execute(row)?;
    for method in &tool.methods {
        transaction.prepare_cached(PUT_METHOD)?.execute(params![tool.name.as_str(), method])?;
    }
    Ok(())
}

const ARTIFACT_ID: &str = "
    SELECT id FROM artifacts WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4";

/// Of two, the one whose history holds the other's program is the newer one.
fn merge_artifact(
    transaction: &Connection,
    artifact: &ArtifactEntry,
    merged: &mut Merged,
) -> Result<(), Fault> {
    let what = artifact.title();
    let here = artifacts(transaction, Some(artifact.role.as_str()))?.into_iter().find(|known| {
        known.method == artifact.method
            && known.language == artifact.language
            && known.contract_fingerprint == artifact.contract_fingerprint
    });
    let holds = |entry: &ArtifactEntry, checksum: &Checksum| {
        entry.versions.iter().any(|version| version.checksum == *checksum)
    };
    match &here {
        None => merged.take(&what, &format!("{} version(s)", artifact.versions.len())),
        Some(here) if here.current == artifact.current => {
            merged.skip(&what, "the same program runs here");
            return Ok(());
        }
        Some(here) if holds(here, &artifact.current) => {
            merged.skip(&what, "a newer program runs here");
            return Ok(());
        }
        Some(here) if holds(artifact, &here.current) => {
            merged.take(&what, "it follows on the program that ran here");
        }
        Some(_) => {
            merged.conflict(
                &what,
                "other programs run here and there, and neither follows on the other; \
                 the one here stays (remove it with `recurgent tools prune` to take the other)",
            );
            return Ok(());
        }
    }
    put_artifact(transaction, artifact)
}

const DROP_ARTIFACT: &str = "
    DELETE FROM artifacts WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4";

fn put_artifact(transaction: &Connection, artifact: &ArtifactEntry) -> Result<(), Fault> {
    let key = params![
        artifact.role.as_str(),
        artifact.method.as_str(),
        artifact.language.name(),
        artifact.contract_fingerprint,
    ];
    transaction.prepare_cached(DROP_ARTIFACT)?.execute(key)?;
    let current = artifact.versions.iter().find(|version| version.checksum == artifact.current);
    let newest = artifact.versions.iter().map(|version| version.number).max();
    let row = Cells::default()
        .text("role", artifact.role.as_str())
        .text("method", artifact.method.as_str())
        .text("language", artifact.language.name())
        .text("contract_fingerprint", &artifact.contract_fingerprint)
        .number("current", current.map_or(0, |version| version.number))
        .rest(&artifact.rest, &[("generations", Cell::Integer(signed(newest.unwrap_or(0))))]);
    row.insert(transaction, "artifacts")?;
    let id: Option<i64> =
        transaction.prepare_cached(ARTIFACT_ID)?.query_row(key, |row| row.get(0)).optional()?;
    for version in &artifact.versions {
        put_version(transaction, id.unwrap_or_default(), version)?;
    }
    Ok(())
}

fn put_version(transaction: &Connection, id: i64, version: &VersionEntry) -> Result<(), Fault> {
    let cacheability = version.cacheability.reason();
    let untold: Vec<(&str, Cell)> = UNTOLD
        .iter()
        .map(|(column, text)| match *column {
            "pure" => (*column, Cell::Integer(0)),
            _ => (*column, Cell::Text((*text).to_owned())),
        })
        .collect();
    Cells::default()
        .number("artifact_id", u64::try_from(id).unwrap_or_default())
        .number("version", version.number)
        .text("checksum", version.checksum.as_str())
        .number("successes", version.successes)
        .number("failures", version.failures)
        .number("repairs", version.repairs)
        .text("cacheability", cacheability)
        .text("runtime_version", &version.runtime_version)
        .text("prompt_version", &version.prompt_version)
        .text("admitted_at", &version.admitted_at)
        .text("manifest", &version.manifest.to_json().to_string())
        .text("code", &version.code)
        .rest(&version.rest, &untold)
        .insert(transaction, "artifact_versions")
}

/// A row whose columns are known only when it is written.
#[derive(Default)]
struct Cells(Vec<(String, Cell)>);

impl Cells {
    fn text(mut self, column: &str, text: &str) -> Self {
        self.0.push((column.to_owned(), Cell::Text(text.to_owned())));
        self
    }

    fn number(mut self, column: &str, number: u64) -> Self {
        self.0.push((column.to_owned(), Cell::Integer(signed(number))));
        self
    }

    /// What travelled along, and what stands for it where it did not.
    fn rest(mut self, rest: &Map<String, Value>, untold: &[(&str, Cell)]) -> Self {
        for (column, value) in rest {
            let cell = match value {
                Value::String(text) => Cell::Text(text.clone()),
                Value::Number(number) => Cell::Integer(number.as_i64().unwrap_or_default()),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => continue,
            };
            if self.0.iter().all(|(known, _)| known != column) {
                self.0.push((column.clone(), cell));
            }
        }
        for (column, cell) in untold {
            if self.0.iter().all(|(known, _)| known != column) {
                self.0.push(((*column).to_owned(), cell.clone()));
            }
        }
        self
    }

    /// Inserts what the table has columns for: a name that came from a file is only ever compared.
    fn insert(self, transaction: &Connection, table: &str) -> Result<(), Fault> {
        let columns =
            read::rows(transaction, "SELECT name FROM pragma_table_info(?1)", [table], |r| {
                r.get::<_, String>(0)
            })?;
        let cells: Vec<_> = self.0.into_iter().filter(|(name, _)| columns.contains(name)).collect();
        let names: Vec<&str> = cells.iter().map(|(name, _)| name.as_str()).collect();
        let places = vec!["?"; names.len()].join(", ");
        let sql = format!("INSERT INTO {table} ({}) VALUES ({places})", names.join(", "));
        let values = cells.iter().map(|(_, cell)| cell);
        transaction.prepare(&sql)?.execute(rusqlite::params_from_iter(values))?;
        Ok(())
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

const DROP_PATTERNS: &str = "DELETE FROM patterns WHERE role = ?1";
const PUT_PATTERN: &str = "
    INSERT INTO patterns (role, sequence, method, trace_id, event) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Both, in the order of their times, each call once, the latest of them.
fn merge_patterns(
    transaction: &Connection,
    role: &str,
    offered: &[&PatternEvent],
    merged: &mut Merged,
) -> Result<(), Fault> {
    let what = format!("patterns of {role}");
    let Ok(parsed) = Role::parse(role) else { return Ok(()) };
    let mut events = pattern::events(transaction, &parsed)?;
    let before = events.clone();
    for event in offered {
        if events.iter().all(|known| known.call_id != event.call_id) {
            events.push((*event).clone());
        }
    }
    events.sort_by_key(|event| event.recorded_at_ms);
    events.drain(..events.len().saturating_sub(MAX_EVENTS));
    if events == before {
        merged.skip(&what, "they are here already, or older than what is kept");
        return Ok(());
    }
    transaction.prepare_cached(DROP_PATTERNS)?.execute([role])?;
    for (sequence, event) in (1_u64..).zip(&events) {
        let row = params![role, sequence, event.method_name, event.trace_id, Json(event)];
        transaction.prepare_cached(PUT_PATTERN)?.execute(row)?;
    }
    merged.take(&what, &format!("{} event(s)", events.len()));
    Ok(())
}

const FORGET: [&str; 4] = [
    "DELETE FROM artifacts WHERE role = ?1",
    "DELETE FROM patterns WHERE role = ?1",
    "DELETE FROM exhaustions WHERE role = ?1",
    "DELETE FROM tools WHERE name = ?1",
];

/// Forgets a tool, its programs and what was observed of it, unless it was used after `used_before`.
pub(super) fn forget(
    transaction: &Connection,
    role: &Role,
    used_before: &str,
) -> Result<bool, Fault> {
    let known = tools(transaction, Some(role.as_str()))?.pop();
    if known.is_none_or(|known| known.last_used_at.as_str() >= used_before) {
        return Ok(false);
    }
    for sql in FORGET {
        transaction.prepare_cached(sql)?.execute([role.as_str()])?;
    }
    Ok(true)
}
