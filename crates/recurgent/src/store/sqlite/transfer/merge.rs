//! Imports a bundle: adds what is new, and reports what contradicts the store. [`lifecycle::import_policy`] decides;
//! here rows are loaded and written, and reported in words.

use std::collections::BTreeMap;

use lifecycle::excerpt::counted;
use lifecycle::import_policy::{
    self, ImportSide, ImportedVersions, ProgramImport, ToolImport, UnstatedVersion,
};
use lifecycle::pattern::PatternEvent;
use lifecycle::program::Checksum;
use lifecycle::request::Role;
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
    let UnstatedVersion { standing, trigger, pure } = import_policy::UNSTATED;
    let text = |text: &str| Cell::Text(text.to_owned());
    [
        ("standing", text(standing.name())),
        ("recent", text("")),
        ("sessions", text("")),
        ("trigger_reason", text(trigger.name())),
        ("state_keys", text(r#"{"reads":[],"writes":[]}"#)),
        ("pure", Cell::Integer(i64::from(pure))),
    ]
}

/// Adds what is new. Entries that are newer in the store stay, and contradictions are reported.
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

/// Adds a tool as [`import_policy::tool`] decides.
fn merge_tool(
    transaction: &Connection,
    tool: &ToolEntry,
    merged: &mut Merged,
) -> Result<(), SqliteFault> {
    let what = format!("tool {}", tool.name);
    let known = tools(transaction, Some(tool.name.as_str()))?.pop();
    let here = known.as_ref().map(|known| (known.last_used_at.as_str(), known == tool));
    match import_policy::tool(&tool.last_used_at, here) {
        ToolImport::Added => merged.take(&what, "new"),
        ToolImport::Later => merged.take(&what, "it was used later than the one here"),
        ToolImport::Same => {
            merged.skip(&what, "it is here already");
            return Ok(());
        }
        ToolImport::Older => {
            let used = here.map_or("", |(last_used_at, _)| last_used_at);
            merged.skip(&what, &format!("the one here was used later, at {used}"));
            return Ok(());
        }
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

/// Adds the programs of a method as [`import_policy::programs`] decides.
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
    let rows = rows_of(artifact, &rejected);
    match decide(transaction, artifact, &rejected)? {
        ProgramImport::Added => {
            merged.take(&what, &counted(rows.kept.len(), "version"));
        }
        ProgramImport::Follows => merged.take(&what, "it follows on the program that ran here"),
        ProgramImport::Same => {
            merged.skip(&what, "the same program runs here");
            return Ok(());
        }
        ProgramImport::Older => {
            merged.skip(&what, "a newer program runs here");
            return Ok(());
        }
        ProgramImport::KeptForPinned => {
            merged.skip(
                &what,
                "the program here is pinned; `recurgent tools pin --off` allows others",
            );
            return Ok(());
        }
        ProgramImport::KeptRejected => {
            merged.skip(&what, "the program was rejected here by a person");
            return Ok(());
        }
        ProgramImport::Unrelated => {
            merged.conflict(
                &what,
                "the store and the import run different programs, and neither is a later version of the other; \
                 the one of the store stays (remove it with `recurgent tools prune` to take the other)",
            );
            return Ok(());
        }
    }
    put_artifact(transaction, artifact, &rows)
}

/// Compares an imported artifact with the stored one.
fn decide(
    transaction: &Connection,
    artifact: &ArtifactEntry,
    rejected: &[Checksum],
) -> Result<ProgramImport, SqliteFault> {
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
    Ok(import_policy::programs(offered, here, rejected))
}

/// The rows that an imported artifact becomes.
fn rows_of(artifact: &ArtifactEntry, rejected: &[Checksum]) -> ImportedVersions {
    let offered: Vec<(u64, &Checksum)> =
        artifact.versions.iter().map(|version| (version.number, &version.checksum)).collect();
    let generations = artifact.rest.get("generations").and_then(Value::as_u64).unwrap_or(0);
    import_policy::imported_versions(&offered, &artifact.current, generations, rejected)
}

/// Adds examples as [`import_policy::examples`] decides.
fn merge_examples(transaction: &Connection, artifact: &ArtifactEntry) -> Result<(), SqliteFault> {
    let ArtifactEntry { role, method, examples, .. } = artifact;
    if examples.is_empty() {
        return Ok(());
    }
    let known = versions::people::examples(transaction, role, method)?;
    for example in import_policy::examples(examples, &known) {
        versions::people::teach(transaction, role, method, example)?;
    }
    Ok(())
}

const DROP_ARTIFACT: &str = "
    DELETE FROM artifacts WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4";

fn put_artifact(
    transaction: &Connection,
    artifact: &ArtifactEntry,
    rows: &ImportedVersions,
) -> Result<(), SqliteFault> {
    run(transaction, DROP_ARTIFACT, versions::columns(&artifact.key()))?;
    let row = Cells::default()
        .text("role", artifact.role.as_str())
        .text("method", artifact.method.as_str())
        .text("language", artifact.language.name())
        .text("contract_fingerprint", &artifact.contract_fingerprint)
        .number("current", rows.current)
        .number("generations", rows.generations)
        .rest(&artifact.rest, &[]);
    row.insert(transaction, "artifacts")?;
    let id = transaction.last_insert_rowid();
    for (index, rejected) in &rows.kept {
        let Some(version) = artifact.versions.get(*index) else { continue };
        put_version(transaction, id, version, *rejected)?;
    }
    Ok(())
}

fn put_version(
    transaction: &Connection,
    id: i64,
    version: &VersionEntry,
    rejected: bool,
) -> Result<(), SqliteFault> {
    let cacheability = version.cacheability.reason();
    let decided = if rejected { Cells::default().number("rejected", 1) } else { Cells::default() };
    decided
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

/// Merges the events of a role as [`import_policy::events`] decides.
fn merge_patterns(
    transaction: &Connection,
    role: &str,
    offered: &[&PatternEvent],
    merged: &mut Merged,
) -> Result<(), SqliteFault> {
    let what = format!("patterns of {role}");
    let Ok(parsed) = Role::parse(role) else { return Ok(()) };
    let here = pattern::marked_events(transaction, &parsed)?;
    let Some(events) = import_policy::events(offered, &here) else {
        merged.skip(&what, "they are here already, or older than what is kept");
        return Ok(());
    };
    run(transaction, DROP_PATTERNS, [role])?;
    for (sequence, (mark, event)) in (1_u64..).zip(&events) {
        let row = params![role, sequence, event.method_name, mark, Json(event)];
        run(transaction, PUT_PATTERN, row)?;
    }
    merged.take(&what, &counted(events.len(), "event"));
    Ok(())
}
