//! What people say about stored programs: rejections, examples, edits, forgetting.

use lifecycle::artifact::{ArtifactKey, Generation};
use lifecycle::example::{Example, PersonRejection, has_room};
use lifecycle::program::Checksum;
use lifecycle::request::{Method, Role};
use lifecycle::retention::MAX_REJECTIONS;
use lifecycle::settlement::Receipt;
use lifecycle::version_policy::{self, Rejected};
use rusqlite::{Connection, Row, params};
use serde_json::Value;

use super::super::column::{Json, Word};
use super::super::fault::SqliteFault;
use super::super::read::{bounded, one, rows};
use super::super::write::run;
use super::{Called, admit, apply, columns, load};
use crate::store::catalog::TaughtMethod;

const RECORD_REJECTION: &str = "
    INSERT INTO rejections (role, method, language, checksum, because, rejected_at)
    VALUES (?1, ?2, ?3, ?4, ?5, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))";
const TRIM_REJECTIONS: &str = "
    DELETE FROM rejections WHERE role = ?1 AND method = ?2 AND id <= (
      SELECT id FROM rejections WHERE role = ?1 AND method = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)";

/// Takes a version out of service, the running one if none is named; `None`: there is none.
pub(in crate::store::sqlite) fn reject(
    transaction: &Connection,
    key: &ArtifactKey,
    version: Option<&Checksum>,
    because: &str,
) -> Result<Option<Rejected>, SqliteFault> {
    let Some(loaded) = load(transaction, key)? else { return Ok(None) };
    let decided = version_policy::rejected(&loaded.artifact, &loaded.versions, version, because);
    let Some(decided) = decided else { return Ok(None) };
    apply(transaction, loaded.id, &decided.changes)?;
    reject_text(transaction, key, &decided.rejected, because)?;
    Ok(Some(decided))
}

/// Records that a person rejected a text.
pub(in crate::store::sqlite) fn reject_text(
    transaction: &Connection,
    key: &ArtifactKey,
    checksum: &Checksum,
    because: &str,
) -> Result<(), SqliteFault> {
    let (role, method, language, _) = columns(key);
    let row = params![role, method, language, checksum.as_str(), because];
    run(transaction, RECORD_REJECTION, row)?;
    run(transaction, TRIM_REJECTIONS, params![role, method, MAX_REJECTIONS])?;
    Ok(())
}

const REJECTIONS: &str = "
    SELECT language, checksum, because, rejected_at,
           (SELECT v.code FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id
            WHERE a.role = ?1 AND a.method = ?2 AND a.language = r.language AND v.checksum = r.checksum LIMIT 1)
    FROM rejections r WHERE role = ?1 AND method = ?2 ORDER BY id DESC LIMIT ?3";

/// What people said against programs of a method, newest first.
pub(in crate::store::sqlite) fn rejections(
    connection: &Connection,
    role: &Role,
    method: &Method,
) -> Result<Vec<PersonRejection>, SqliteFault> {
    let params = params![role.as_str(), method.as_str(), MAX_REJECTIONS];
    rows(connection, REJECTIONS, params, |row| {
        Ok(PersonRejection {
            language: row.get::<_, Word<_>>(0)?.0,
            checksum: Checksum::stored(row.get(1)?),
            because: row.get(2)?,
            rejected_at: row.get(3)?,
            code: row.get(4)?,
        })
    })
}

const TEACH: &str = "
    INSERT INTO examples (role, method, inputs_digest, taught_at, example)
    VALUES (?1, ?2, ?3, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?4)
    ON CONFLICT (role, method, inputs_digest) DO UPDATE
    SET taught_at = excluded.taught_at, example = excluded.example";
const COUNT_OTHER_EXAMPLES: &str =
    "SELECT count(*) FROM examples WHERE role = ?1 AND method = ?2 AND inputs_digest <> ?3";
/// A recorded call that a person answers otherwise binds nothing any more.
const FORGET_ANSWERED: &str = "
    DELETE FROM corpus WHERE inputs_digest = ?3 AND artifact_id IN (
      SELECT id FROM artifacts WHERE role = ?1 AND method = ?2)";
const RECOUNT_METHOD: &str = "
    UPDATE artifacts SET cases = (SELECT count(*) FROM corpus WHERE artifact_id = artifacts.id)
    WHERE role = ?1 AND method = ?2";

/// Keeps an example, in place of one with the same inputs; false: there is no room for more.
pub(in crate::store::sqlite) fn teach(
    transaction: &Connection,
    role: &Role,
    method: &Method,
    example: &Example,
) -> Result<bool, SqliteFault> {
    let (role, method) = (role.as_str(), method.as_str());
    let digest = example.inputs.digest();
    let others = [role, method, &digest];
    let others = one(transaction, COUNT_OTHER_EXAMPLES, others, |row| row.get(0))?;
    if !has_room(others.unwrap_or(0)) {
        return Ok(false);
    }
    run(transaction, TEACH, params![role, method, digest, Json(example.to_json())])?;
    if run(transaction, FORGET_ANSWERED, params![role, method, digest])? > 0 {
        run(transaction, RECOUNT_METHOD, [role, method])?;
    }
    Ok(true)
}

const EXAMPLES: &str =
    "SELECT example FROM examples WHERE role = ?1 AND method = ?2 ORDER BY inputs_digest";

/// What people taught about a method. An example that this version of the program cannot read is skipped.
pub(in crate::store::sqlite) fn examples(
    connection: &Connection,
    role: &Role,
    method: &Method,
) -> Result<Vec<Example>, SqliteFault> {
    let found = rows(connection, EXAMPLES, [role.as_str(), method.as_str()], |row| {
        row.get::<_, Json<Value>>(0)
    })?;
    Ok(found.iter().filter_map(|example| Example::parse(&example.0).ok()).collect())
}

const TAUGHT: &str = "
    SELECT role, method, count(*) FROM examples GROUP BY role, method ORDER BY role, method LIMIT ?1";
const ROLE_TAUGHT: &str = "
    SELECT role, method, count(*) FROM examples WHERE role = ?2 GROUP BY method ORDER BY method LIMIT ?1";

/// The methods that have examples.
pub(in crate::store::sqlite) fn taught(
    connection: &Connection,
    role: Option<&Role>,
    limit: usize,
) -> Result<Vec<TaughtMethod>, SqliteFault> {
    let method = |row: &Row<'_>| {
        Ok(TaughtMethod {
            role: row.get::<_, Word<_>>(0)?.0,
            method: row.get::<_, Word<_>>(1)?.0,
            examples: row.get(2)?,
        })
    };
    match role {
        Some(role) => rows(connection, ROLE_TAUGHT, params![bounded(limit), role.as_str()], method),
        None => rows(connection, TAUGHT, [bounded(limit)], method),
    }
}

const FORGET_EXAMPLE: &str =
    "DELETE FROM examples WHERE role = ?1 AND method = ?2 AND inputs_digest = ?3";

/// Forgets an example; false: it is not there.
pub(in crate::store::sqlite) fn forget_example(
    transaction: &Connection,
    role: &Role,
    method: &Method,
    example: &Example,
) -> Result<bool, SqliteFault> {
    let row = params![role.as_str(), method.as_str(), example.inputs.digest()];
    Ok(run(transaction, FORGET_EXAMPLE, row)? > 0)
}

/// What is forgotten with a method's programs.
const FORGET_METHOD: [&str; 5] = [
    "DELETE FROM artifacts WHERE role = ?1 AND method = ?2",
    "DELETE FROM examples WHERE role = ?1 AND method = ?2",
    "DELETE FROM rejections WHERE role = ?1 AND method = ?2",
    "DELETE FROM exhaustions WHERE role = ?1 AND method = ?2",
    "DELETE FROM tool_methods WHERE tool = ?1 AND method = ?2",
];

/// Forgets every program of a method and what people said about it; gives how many artifacts went.
pub(in crate::store::sqlite) fn forget_method(
    transaction: &Connection,
    role: &Role,
    method: &Method,
) -> Result<usize, SqliteFault> {
    let mut forgotten = None;
    for sql in FORGET_METHOD {
        let count = run(transaction, sql, [role.as_str(), method.as_str()])?;
        forgotten.get_or_insert(count);
    }
    Ok(forgotten.unwrap_or(0))
}

/// Keeps a program that a person wrote, as the version that runs.
pub(in crate::store::sqlite) fn replace(
    transaction: &Connection,
    generation: &Generation,
) -> Result<Receipt, SqliteFault> {
    admit(transaction, generation, &Called { session: String::new(), shape: None })
}

#[cfg(test)]
pub(in crate::store::sqlite) const SEEKS: [&str; 10] = [
    RECORD_REJECTION,
    TRIM_REJECTIONS,
    REJECTIONS,
    TEACH,
    COUNT_OTHER_EXAMPLES,
    FORGET_ANSWERED,
    RECOUNT_METHOD,
    EXAMPLES,
    FORGET_EXAMPLE,
    ROLE_TAUGHT,
];
/// Scans that stop at their limit.
#[cfg(test)]
pub(in crate::store::sqlite) const BOUNDED_SCANS: [&str; 1] = [TAUGHT];
