//! Imports a bundle: adds what is new, and reports what contradicts the store.

use std::collections::BTreeMap;

use lifecycle::pattern::{MAX_EVENTS, PatternEvent};
use lifecycle::program::Checksum;
use lifecycle::request::Role;
use lifecycle::version_policy::{self, ImportDecision, ImportSide};
use rusqlite::types::Value as Cell;
use rusqlite::{Connection, ErrorCode, params};
use serde_json::{Map, Value};

use super::super::super::bundle::{ArtifactEntry, Bundle, Merged, ToolEntry, VersionEntry};
use super::super::column::Json;
use super::super::fault::SqliteFault;
use super::super::write::run;
use super::super::{pattern, read, versions};
use super::{session, tools};

/// The values of columns that an imported program does not have.
fn defaults() -> [(&'static str, Cell); 6] {
    let text = |text: &str| Cell::Text(text.to_owned());
    [
        ("standing", text("probation")),
        ("recent", text("")),
        ("sessions", text("")),
        ("trigger_reason", text("fresh")),
        ("state_keys", text(r#"{"reads":[],"writes":[]}"#)),
        ("pure", Cell::Integer(0)),
    ]
}

/// Adds what is new. What is newer in the store stays, and contradictions are reported.
pub(in crate::store::sqlite) fn merge(
    transaction: &Connection,
    bundle: &Bundle,
) -> Result<Merged, SqliteFault> {
    let mut merged = Merged {
        skipped: bundle.notes.clone(),
        noted: bundle.tolerated.clone(),
        ..Merged::default()
    };
    for tool in &bundle.tools {
        merge_tool(transaction, tool, &mut merged)?;
    }
    for artifact in &bundle.artifacts {
        let before = merged.clone();
        transaction.execute_batch("SAVEPOINT artifact")?;
        match merge_artifact(transaction, artifact, &mut merged) {
            Ok(()) => {}
            // Imported columns are not trusted; one bad file does not affect the others.
            Err(SqliteFault::Engine(error)) if is_refusal(&error) => {
                transaction.execute_batch("ROLLBACK TO artifact")?;
                merged = before;
                merged.conflict(&artifact.title(), &format!("the store rejects it: {error}"));
            }
            Err(fault) => return Err(fault),
        }
        transaction.execute_batch("RELEASE artifact")?;
    }
    let mut by_role: BTreeMap<&str, Vec<&PatternEvent>> = BTreeMap::new();
    for event in &bundle.patterns {
        by_role.entry(&event.role).or_default().push(event);
    }
    for (role, events) in by_role {
        merge_patterns(transaction, role, &events, &mut merged)?;
    }
    for entry in &bundle.sessions {
        session::merge(transaction, entry, &mut merged)?;
    }
    Ok(merged)
}

/// Whether a value does not fit its column.
fn is_refusal(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

const PUT_TOOL: &str = "
    INSERT INTO tools (name, contract, usage_count, success_count, failure_count, created_at, last_used_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (name) DO UPDATE SET contract = excluded.contract, usage_count = excluded.usage_count,
      success_count = excluded.success_count, failure_count = excluded.failure_count,
      created_at = excluded.created_at, last_used_at = excluded.last_used_at";
const PUT_METHOD: &str = "
    INSERT INTO tool_methods (tool, method, signature) VALUES (?1, ?2, ?3)
    ON CONFLICT (tool, method) DO UPDATE SET signature = coalesce(excluded.signature, signature)";

/// Adds a tool. If the store has it already, the one that was used later is kept.
fn merge_tool(
    transaction: &Connection,
    tool: &ToolEntry,
    merged: &mut Merged,
) -> Result<(), SqliteFault> {
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
    run(transaction, PUT_TOOL, row)?;
    for method in &tool.methods {
        let signature = tool.signatures.get(method);
        run(transaction, PUT_METHOD, params![tool.name.as_str(), method, signature])?;
    }
    Ok(())
}

/// Adds the programs of a method as [`version_policy::imported`] decides.
fn merge_artifact(
    transaction: &Connection,
    artifact: &ArtifactEntry,
    merged: &mut Merged,
) -> Result<(), SqliteFault> {
    let what = artifact.title();
    merge_examples(transaction, artifact)?;
    let rejected: Vec<Checksum> =
        versions::people::rejections(transaction, &artifact.role, &artifact.method)?
            .into_iter()
            .filter(|rejection| rejection.language == artifact.language)
            .map(|rejection| rejection.checksum)
            .collect();
    match decide(transaction, artifact, &rejected)? {
        ImportDecision::Added => {
            merged.take(&what, &format!("{} version(s)", kept_versions(artifact).count()));
        }
        ImportDecision::Follows => merged.take(&what, "it follows on the program that ran here"),
        ImportDecision::Same => {
            merged.skip(&what, "the same program runs here");
            return Ok(());
        }
        ImportDecision::Older => {
            merged.skip(&what, "a newer program runs here");
            return Ok(());
        }
        ImportDecision::KeptForPinned => {
            merged.skip(
                &what,
                "the program here is pinned; `recurgent tools pin --off` allows others",
            );
            return Ok(());
        }
        ImportDecision::KeptRejected => {
            merged.skip(&what, "the program was rejected here by a person");
            return Ok(());
        }
        ImportDecision::Unrelated => {
            merged.conflict(
                &what,
                "the store and the import run different programs, and neither is a later version of the other; \
                 the one of the store stays (remove it with `recurgent tools prune` to take the other)",
            );
            return Ok(());
        }
    }
    put_artifact(transaction, artifact, &rejected)
}

/// Compares an imported artifact with the stored one.
fn decide(
    transaction: &Connection,
    artifact: &ArtifactEntry,
    rejected: &[Checksum],
) -> Result<ImportDecision, SqliteFault> {
    let checksums = |entry: &ArtifactEntry| -> Vec<Checksum> {
        entry.versions.iter().map(|version| version.checksum.clone()).collect()
    };
    let here = super::artifact(transaction, &artifact.key())?;
    let loaded = versions::load(transaction, &artifact.key())?;
    let (offered, known) = (checksums(artifact), here.as_ref().map(checksums).unwrap_or_default());
    let here = here.as_ref().zip(loaded.as_ref()).map(|(here, loaded)| {
        (&loaded.artifact, ImportSide { current: &here.current, versions: &known })
    });
    let offered = ImportSide { current: &artifact.current, versions: &offered };
    Ok(version_policy::imported(offered, here, rejected))
}

/// The versions of an import that are kept.
fn kept_versions(artifact: &ArtifactEntry) -> impl Iterator<Item = &VersionEntry> {
    let others = |version: &VersionEntry| {
        let newer = |other: &&VersionEntry| {
            other.number > version.number && other.checksum != artifact.current
        };
        artifact.versions.iter().filter(newer).count()
    };
    artifact.versions.iter().filter(move |version| {
        version_policy::keeps_imported(version.checksum == artifact.current, others(version))
    })
}

/// Adds examples of calls that have none in the store. Examples that are stored stay.
fn merge_examples(transaction: &Connection, artifact: &ArtifactEntry) -> Result<(), SqliteFault> {
    let ArtifactEntry { role, method, examples, .. } = artifact;
    if examples.is_empty() {
        return Ok(());
    }
    let known = versions::people::examples(transaction, role, method)?;
    for example in examples {
        if known.iter().all(|known| known.inputs != example.inputs) {
            versions::people::teach(transaction, role, method, example)?;
        }
    }
    Ok(())
}

const DROP_ARTIFACT: &str = "
    DELETE FROM artifacts WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4";

/// What a person rejected here stays rejected.
const KEEP_REJECTED: &str =
    "UPDATE artifact_versions SET rejected = 1 WHERE artifact_id = ?1 AND checksum = ?2";

fn put_artifact(
    transaction: &Connection,
    artifact: &ArtifactEntry,
    rejected: &[Checksum],
) -> Result<(), SqliteFault> {
    run(transaction, DROP_ARTIFACT, versions::columns(&artifact.key()))?;
    let current = artifact.versions.iter().find(|version| version.checksum == artifact.current);
    let newest = artifact.versions.iter().map(|version| version.number).max().unwrap_or(0);
    // The next program is numbered after this: it must not meet the number of one that is kept.
    let counted = artifact.rest.get("generations").and_then(Value::as_u64).unwrap_or(0);
    let row = Cells::default()
        .text("role", artifact.role.as_str())
        .text("method", artifact.method.as_str())
        .text("language", artifact.language.name())
        .text("contract_fingerprint", &artifact.contract_fingerprint)
        .number("current", current.map_or(0, |version| version.number))
        .number("generations", newest.max(counted))
        .rest(&artifact.rest, &[]);
    row.insert(transaction, "artifacts")?;
    let id = transaction.last_insert_rowid();
    for version in kept_versions(artifact) {
        put_version(transaction, id, version)?;
        if rejected.contains(&version.checksum) {
            run(transaction, KEEP_REJECTED, params![id, version.checksum.as_str()])?;
        }
    }
    Ok(())
}

fn put_version(
    transaction: &Connection,
    id: i64,
    version: &VersionEntry,
) -> Result<(), SqliteFault> {
    let cacheability = version.cacheability.reason();
    Cells::default()
        .cell("artifact_id", Cell::Integer(id))
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
        .rest(&version.rest, &defaults())
        .insert(transaction, "artifact_versions")
}

/// A row whose columns are known only when it is written.
#[derive(Default)]
struct Cells(Vec<(String, Cell)>);

impl Cells {
    fn cell(mut self, column: &str, cell: Cell) -> Self {
        self.0.push((column.to_owned(), cell));
        self
    }

    fn text(self, column: &str, text: &str) -> Self {
        self.cell(column, Cell::Text(text.to_owned()))
    }

    fn number(self, column: &str, number: u64) -> Self {
        self.cell(column, Cell::Integer(signed(number)))
    }

    /// Adds imported columns, and defaults for those that are missing.
    fn rest(mut self, rest: &Map<String, Value>, defaults: &[(&str, Cell)]) -> Self {
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
        for (column, cell) in defaults {
            if self.0.iter().all(|(known, _)| known != column) {
                self.0.push(((*column).to_owned(), cell.clone()));
            }
        }
        self
    }

    /// Inserts the cells that the table has columns for: names from a file are only compared, never used as SQL.
    fn insert(self, transaction: &Connection, table: &str) -> Result<(), SqliteFault> {
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

/// Merges the events of both stores by time, one for each call, and keeps the latest ones.
fn merge_patterns(
    transaction: &Connection,
    role: &str,
    offered: &[&PatternEvent],
    merged: &mut Merged,
) -> Result<(), SqliteFault> {
    let what = format!("patterns of {role}");
    let Ok(parsed) = Role::parse(role) else { return Ok(()) };
    let mut events = pattern::marked_events(transaction, &parsed)?;
    let before = events.clone();
    for event in offered {
        if events.iter().all(|(_, known)| known.call_id != event.call_id) {
            // It belongs to no session of this store, so nothing here corrects it.
            events.push((event.trace_id.clone(), (*event).clone()));
        }
    }
    events.sort_by_key(|(_, event)| event.recorded_at_ms);
    events.drain(..events.len().saturating_sub(MAX_EVENTS));
    if events == before {
        merged.skip(&what, "they are here already, or older than what is kept");
        return Ok(());
    }
    run(transaction, DROP_PATTERNS, [role])?;
    for (sequence, (mark, event)) in (1_u64..).zip(&events) {
        let row = params![role, sequence, event.method_name, mark, Json(event)];
        run(transaction, PUT_PATTERN, row)?;
    }
    merged.take(&what, &format!("{} event(s)", events.len()));
    Ok(())
}
