//! What is wrong with a store. Everything that a call, a session or an export would read is read.

use lifecycle::admission::{Case, Inputs, Observed};
use lifecycle::artifact::{ArtifactKey, Author, Trigger};
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::example::Example;
use lifecycle::excerpt::counted;
use lifecycle::guardrail::Cacheability;
use lifecycle::pattern::PatternEvent;
use lifecycle::program::Checksum;
use lifecycle::request::{Method, Role};
use lifecycle::standing::{Decision, Standing, StateKeys};
use rusqlite::{Connection, Row};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::column::{Json, Word};
use super::fault::SqliteFault;
use super::read::{self, one, rows};
use super::versions::{people, version_admin};
use super::{file, pattern, transfer};

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
const COUNTS: &str = "
    SELECT role, method FROM artifacts a WHERE generations < (
      SELECT max(version) FROM artifact_versions WHERE artifact_id = a.id)
    LIMIT 100";
const FLOOR: &str = "SELECT count(*) FROM meta WHERE key = 'context_floor'";
const MEMORY: &str = "
    SELECT o.name, o.role, e.key, e.value FROM context_entries e JOIN owners o ON o.id = e.owner_id";
const MANIFESTS: &str = "
    SELECT o.name, o.role, m.language, m.manifest FROM manifests m JOIN owners o ON o.id = m.owner_id";
const KEYS: &str = "SELECT role, method, language, contract_fingerprint FROM artifacts";
const METHODS: &str = "
    SELECT role, method FROM examples UNION SELECT role, method FROM rejections
    UNION SELECT role, method FROM artifacts";
const ROLES: &str = "
    SELECT role FROM patterns UNION SELECT role FROM exhaustions UNION SELECT role FROM early_calls";

/// Why the second column of a row cannot be read; `None`: it can.
type Problem = fn(&Row<'_>) -> Option<String>;

/// Texts of a form: what the row is called, a statement that gives its name and the text, and what is wrong with it.
const TEXTS: [(&str, &str, Problem); 11] = [
    ("the history record", "SELECT call_id, record FROM history", of_history),
    ("the kept value", "SELECT reference, payload FROM contents", json::<Value>),
    (
        "the pattern event of",
        "SELECT role || '.' || method, event FROM patterns",
        json::<PatternEvent>,
    ),
    ("the decision", "SELECT id || '', decision FROM decisions", json::<Decision>),
    ("the example of", "SELECT role || '.' || method, example FROM examples", of_example),
    (
        "the state keys of",
        "SELECT a.role || '.' || a.method, v.state_keys FROM artifact_versions v JOIN artifacts a ON a.id = v.artifact_id",
        json::<StateKeys>,
    ),
    (
        "the packages of",
        "SELECT a.role || '.' || a.method, v.manifest FROM artifact_versions v JOIN artifacts a ON a.id = v.artifact_id",
        json::<DependencyManifest>,
    ),
    (
        "the failed call of",
        "SELECT a.role || '.' || a.method, v.failing_case FROM artifact_versions v JOIN artifacts a ON a.id = v.artifact_id
         WHERE v.failing_case IS NOT NULL",
        json::<Case>,
    ),
    (
        "the arguments of a recorded call of",
        "SELECT a.role || '.' || a.method, c.inputs FROM corpus c JOIN artifacts a ON a.id = c.artifact_id",
        json::<Inputs>,
    ),
    (
        "the result of a recorded call of",
        "SELECT a.role || '.' || a.method, c.observed FROM corpus c JOIN artifacts a ON a.id = c.artifact_id",
        json::<Observed>,
    ),
    (
        "the contract of",
        "SELECT name, contract FROM tools WHERE contract IS NOT NULL",
        json::<Contract>,
    ),
];

/// Columns that hold names or words of a closed set.
const WORDS: [(&str, &str, Problem); 23] = [
    ("artifacts", "role", role),
    ("artifacts", "method", method),
    ("artifacts", "language", word::<Language>),
    ("artifacts", "contract_fingerprint", word::<Fingerprint>),
    ("artifact_versions", "standing", word::<Standing>),
    ("artifact_versions", "cacheability", word::<Cacheability>),
    ("artifact_versions", "author", word::<Author>),
    ("artifact_versions", "trigger_reason", word::<Trigger>),
    ("tools", "name", role),
    ("owners", "role", role),
    ("patterns", "role", role),
    ("patterns", "method", method),
    ("exhaustions", "role", role),
    ("exhaustions", "method", method),
    ("exhaustions", "language", word::<Language>),
    ("exhaustions", "contract_fingerprint", word::<Fingerprint>),
    ("examples", "role", role),
    ("examples", "method", method),
    ("rejections", "role", role),
    ("rejections", "method", method),
    ("rejections", "language", word::<Language>),
    ("early_calls", "role", role),
    ("manifests", "language", word::<Language>),
];

fn json<T: DeserializeOwned>(row: &Row<'_>) -> Option<String> {
    row.get::<_, Json<T>>(1).err().map(|why| why.to_string())
}

fn word<T: DeserializeOwned>(row: &Row<'_>) -> Option<String> {
    row.get::<_, Word<T>>(1).err().map(|why| why.to_string())
}

fn role(row: &Row<'_>) -> Option<String> {
    row.get::<_, String>(1).map_or_else(
        |why| Some(why.to_string()),
        |name| Role::parse(&name).err().map(|fault| fault.to_string()),
    )
}

fn method(row: &Row<'_>) -> Option<String> {
    row.get::<_, String>(1).map_or_else(
        |why| Some(why.to_string()),
        |name| Method::parse(&name).err().map(|fault| fault.to_string()),
    )
}

/// A record names the call that it is about.
fn of_history(row: &Row<'_>) -> Option<String> {
    let read = || Ok((row.get::<_, String>(0)?, row.get::<_, Json<Value>>(1)?.0));
    let (call, record): (String, Value) = match read() {
        Ok(read) => read,
        Err(why) => return Some(rusqlite::Error::to_string(&why)),
    };
    let is_right = record.get("call_id").is_some_and(|id| *id == *call);
    (!is_right).then(|| "it is not the record of this call".to_owned())
}

fn of_example(row: &Row<'_>) -> Option<String> {
    match row.get::<_, Json<Value>>(1) {
        Ok(example) => Example::parse(&example.0).err().map(|fault| fault.to_string()),
        Err(why) => Some(why.to_string()),
    }
}

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
    problems.extend(rows(connection, COUNTS, [], |row| {
        let (role, method) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
        Ok(format!(
            "{role}.{method} has newer programs than it counts: the next one cannot be kept"
        ))
    })?);
    if one(connection, FLOOR, [], |row| row.get::<_, i64>(0))? != Some(1) {
        problems.push("the version that new sessions begin with is missing".to_owned());
    }
    problems.extend(negative_numbers(connection)?);
    problems.extend(wrong_programs(connection)?);
    problems.extend(unreadable_rows(connection)?);
    problems.extend(failing_reads(connection)?);
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
            problems.push(format!("negative {column} in {} of {table}", counted(count, "row")));
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
    for (what, sql, problem) in TEXTS {
        let found = rows(connection, sql, [], |row| {
            let name: String = row.get(0)?;
            Ok(problem(row).map(|why| format!("{what} {name} cannot be read ({why})")))
        })?;
        problems.extend(found.into_iter().flatten().take(MAX_LISTED));
    }
    for (table, column, problem) in WORDS {
        // The names are those of this program's schema.
        let sql = format!("SELECT DISTINCT \"{column}\", \"{column}\" FROM \"{table}\"");
        let found = rows(connection, &sql, [], |row| {
            let text: String = row.get(0)?;
            let is = |why| format!("the {column} {text:?} in {table} cannot be read ({why})");
            Ok(problem(row).map(is))
        })?;
        problems.extend(found.into_iter().flatten().take(MAX_LISTED));
    }
    Ok(problems)
}

/// Runs the reads of calls, sessions and exports over all there is.
fn failing_reads(connection: &Connection) -> Result<Vec<String>, SqliteFault> {
    let mut problems = Vec::new();
    let mut tried = |what: &str, result: Result<(), SqliteFault>| {
        if let Err(fault) = result {
            problems.push(format!("{what} cannot be read: {}", fault.explained(None)));
        }
    };
    tried("the tools", read::tools(connection, None, usize::MAX).map(drop));
    tried("the sessions", read::sessions(connection).map(drop));
    tried("an export", transfer::bundle_with_sessions(connection).map(drop));
    tried("the stored programs", version_admin::artifacts(connection, None, usize::MAX).map(drop));
    // A key with a name that cannot be read was listed above.
    let keys = rows(connection, KEYS, [], |row| {
        let read = || {
            Ok::<_, rusqlite::Error>(ArtifactKey {
                role: row.get::<_, Word<_>>(0)?.0,
                method: row.get::<_, Word<_>>(1)?.0,
                language: row.get::<_, Word<_>>(2)?.0,
                contract_fingerprint: row.get::<_, Word<_>>(3)?.0,
            })
        };
        Ok(read().ok())
    })?;
    for key in keys.into_iter().flatten() {
        let name = format!("{}.{}", key.role, key.method);
        let said = |what: &str| format!("the {what} of {name}");
        tried(&said("versions"), version_admin::versions(connection, &key).map(drop));
        tried(&said("recorded calls"), version_admin::corpus(connection, &key).map(drop));
        tried(&said("decisions"), version_admin::decisions(connection, &key).map(drop));
    }
    let methods = rows(connection, METHODS, [], |row| {
        let read = || Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?));
        Ok(read().ok())
    })?;
    for (Word(role), Word(method)) in methods.into_iter().flatten() {
        let name = format!("{role}.{method}");
        let examples = people::examples(connection, &role, &method).map(drop);
        tried(&format!("the examples of {name}"), examples);
        let rejections = people::rejections(connection, &role, &method).map(drop);
        tried(&format!("what people said against {name}"), rejections);
    }
    let roles = rows(connection, ROLES, [], |row| Ok(row.get::<_, Word<Role>>(0).ok()))?;
    for Word(role) in roles.into_iter().flatten() {
        tried(&format!("the patterns of {role}"), pattern::events(connection, &role).map(drop));
        let exhaustions = read::exhaustions(connection, &role).map(drop);
        tried(&format!("the spent retries of {role}"), exhaustions);
    }
    Ok(problems)
}
