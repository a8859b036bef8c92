//! What is wrong with a store. Everything that a call, a session or an export would read is read.

use lifecycle::dependency::DependencyManifest;
use lifecycle::program::Checksum;
use lifecycle::request::{Method, Role};
use rusqlite::{Connection, Row};
use serde_json::Value;

use super::column::{Json, Word};
use super::fault::SqliteFault;
use super::read::{self, rows};
use super::versions::{people, version_admin};
use super::{file, transfer};

/// Problems of one kind that are listed.
const MAX_LISTED: usize = 100;

const INTEGRITY: &str = "PRAGMA integrity_check(100)";
const DANGLING: &str = "PRAGMA foreign_key_check";
const OBJECTS: &str = "
    SELECT type || ' ' || name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1";
const COLUMNS: &str = "
    SELECT 'column ' || t.name || '.' || c.name || ' ' || c.type
    FROM sqlite_schema t JOIN pragma_table_info(t.name) c
    WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY 1";
const NUMBERS: &str = "
    SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
    WHERE t.type = 'table' AND c.type = 'INTEGER' ORDER BY 1, 2";
const POINTERS: &str = "
    SELECT role, method, 'current' FROM artifacts a WHERE NOT EXISTS (
      SELECT 1 FROM artifact_versions WHERE artifact_id = a.id AND version = a.current)
    UNION ALL
    SELECT role, method, 'waiting' FROM artifacts a WHERE challenger IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM artifact_versions WHERE artifact_id = a.id AND version = a.challenger)
    LIMIT 100";
const PROGRAMS: &str = "
    SELECT a.role, a.method, v.checksum, v.code
    FROM artifact_versions v JOIN artifacts a ON a.id = v.artifact_id";
const MEMORY: &str = "
    SELECT o.name, o.role, e.key, e.value FROM context_entries e JOIN owners o ON o.id = e.owner_id";
const MANIFESTS: &str = "
    SELECT o.name, o.role, m.language, m.manifest FROM manifests m JOIN owners o ON o.id = m.owner_id";
/// What a row is called, and its JSON.
const TEXTS: [(&str, &str); 7] = [
    ("the history record", "SELECT call_id, record FROM history"),
    ("the kept value", "SELECT reference, payload FROM contents"),
    ("the pattern event of", "SELECT role || '.' || method, event FROM patterns"),
    ("the decision", "SELECT id || '', decision FROM decisions"),
    ("the example of", "SELECT role || '.' || method, example FROM examples"),
    (
        "the state keys of",
        "SELECT a.role || '.' || a.method, v.state_keys FROM artifact_versions v JOIN artifacts a ON a.id = v.artifact_id",
    ),
    (
        "the packages of",
        "SELECT a.role || '.' || a.method, v.manifest FROM artifact_versions v JOIN artifacts a ON a.id = v.artifact_id",
    ),
];
const METHODS: &str = "SELECT DISTINCT role, method FROM examples";

/// What is wrong with the store: its pages and indexes, its tables, references to nothing, and every row that cannot be
/// read as calls, sessions and exports read it.
pub(super) fn problems(connection: &Connection) -> Result<Vec<String>, SqliteFault> {
    let mut problems = rows(connection, INTEGRITY, [], text)?;
    problems.retain(|problem| problem != "ok");
    let schema = schema_problems(connection)?;
    if !schema.is_empty() {
        // Rows of tables that are missing or different cannot be read.
        problems.extend(schema);
        return Ok(problems);
    }
    problems.extend(rows(connection, DANGLING, [], |row| {
        let (table, id, parent) =
            (row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, String>(2)?);
        Ok(format!("row {} of {table} refers to no row of {parent}", id.unwrap_or_default()))
    })?);
    problems.extend(rows(connection, POINTERS, [], |row| {
        let (role, method, which) =
            (row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?);
        Ok(format!("{role}.{method} has no {which} program"))
    })?);
    problems.extend(negative_numbers(connection)?);
    problems.extend(wrong_programs(connection)?);
    problems.extend(unreadable_rows(connection)?);
    problems.extend(failing_reads(connection));
    Ok(problems)
}

fn text(row: &Row<'_>) -> rusqlite::Result<String> {
    row.get(0)
}

/// Compares tables, indexes and columns with those of a new store.
fn schema_problems(connection: &Connection) -> Result<Vec<String>, SqliteFault> {
    let fresh = Connection::open_in_memory()?;
    file::migrate(&fresh)?;
    let mut problems = Vec::new();
    for sql in [OBJECTS, COLUMNS] {
        let found = rows(connection, sql, [], text)?;
        let expected = rows(&fresh, sql, [], text)?;
        let missing = expected.iter().filter(|wanted| !found.contains(wanted));
        problems.extend(missing.map(|wanted| format!("the {wanted} is missing")));
    }
    Ok(problems)
}

/// No number of a store is negative.
fn negative_numbers(connection: &Connection) -> Result<Vec<String>, SqliteFault> {
    let columns = rows(connection, NUMBERS, [], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    })?;
    let mut problems = Vec::new();
    for (table, column) in columns {
        // The names are those of this program's schema.
        let sql = format!("SELECT count(*) FROM \"{table}\" WHERE \"{column}\" < 0");
        let count: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
        if count > 0 {
            problems.push(format!("{count} row(s) of {table} have a negative {column}"));
        }
    }
    Ok(problems)
}

fn wrong_programs(connection: &Connection) -> Result<Vec<String>, SqliteFault> {
    let found = rows(connection, PROGRAMS, [], |row| {
        let (role, method): (String, String) = (row.get(0)?, row.get(1)?);
        let (checksum, code): (String, String) = (row.get(2)?, row.get(3)?);
        let is_right = Checksum::of(&code).as_str() == checksum;
        Ok((!is_right).then(|| format!("a program of {role}.{method} does not match its checksum")))
    })?;
    Ok(found.into_iter().flatten().take(MAX_LISTED).collect())
}

/// Rows whose text is not what a reader expects, each by the name a person knows it by.
fn unreadable_rows(connection: &Connection) -> Result<Vec<String>, SqliteFault> {
    let memory = rows(connection, MEMORY, [], |row| {
        let why = row.get::<_, Json<Value>>(3).err();
        let (session, role, key): (String, String, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(why.map(|why| {
            format!(
                "the memory of {role} in session {session:?} cannot be read at {key:?} ({why}); \
                 `recurgent sessions rm` removes it"
            )
        }))
    })?;
    let manifests = rows(connection, MANIFESTS, [], |row| {
        let why = row.get::<_, Json<DependencyManifest>>(3).err();
        let (session, role, language): (String, String, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(why.map(|why| {
            format!(
                "the {language} packages of {role} in session {session:?} cannot be read ({why})"
            )
        }))
    })?;
    let mut problems: Vec<String> =
        memory.into_iter().chain(manifests).flatten().take(MAX_LISTED).collect();
    for (what, sql) in TEXTS {
        let found = rows(connection, sql, [], |row| {
            let why = row.get::<_, Json<Value>>(1).err();
            let name: String = row.get(0)?;
            Ok(why.map(|why| format!("{what} {name} cannot be read ({why})")))
        })?;
        problems.extend(found.into_iter().flatten().take(MAX_LISTED));
    }
    Ok(problems)
}

/// Runs the reads of calls, sessions and exports over all there is.
fn failing_reads(connection: &Connection) -> Vec<String> {
    let mut problems = Vec::new();
    let mut tried = |what: &str, result: Result<(), SqliteFault>| {
        if let Err(fault) = result {
            problems.push(format!("{what} cannot be read: {}", fault.explained(None)));
        }
    };
    tried("the tools", read::tools(connection, None, usize::MAX).map(drop));
    tried("the sessions", read::sessions(connection).map(drop));
    tried("an export", transfer::bundle(connection, None).map(drop));
    let artifacts = version_admin::artifacts(connection, None, usize::MAX);
    let corpora = artifacts.and_then(|artifacts| {
        artifacts
            .iter()
            .try_for_each(|known| version_admin::corpus(connection, &known.current.key()).map(drop))
    });
    tried("the stored programs", corpora);
    let methods = rows(connection, METHODS, [], |row| {
        Ok((row.get::<_, Word<Role>>(0)?.0, row.get::<_, Word<Method>>(1)?.0))
    });
    let examples = methods.and_then(|methods| {
        methods
            .iter()
            .try_for_each(|(role, method)| people::examples(connection, role, method).map(drop))
    });
    tried("the examples", examples);
    problems
}
