//! What is asked of stored programs between calls: to list them, to try a challenger, to pin one, to go back.

use lifecycle::admission::{Case, Inputs, Observed};
use lifecycle::artifact::{ArtifactKey, Trigger};
use lifecycle::program::Checksum;
use lifecycle::request::Role;
use lifecycle::standing::{Decision, Evidence, Standing, Window, decide};
use rusqlite::{Connection, Row, params};

use super::super::column::{Json, Word};
use super::super::fault::Fault;
use super::super::read::{bounded, one, rows};
use super::super::write::run;
use super::{COUNT_CASES, LET_RUN, REST, SET_STANDING, artifact, bound, columns, record_decision};
use crate::store::catalog::{Decided, KnownArtifact, Verdict, Version};

const FORGET_CASE: &str =
    concat!("DELETE FROM corpus WHERE inputs_digest = ?5 AND artifact_id = ", artifact_id!());

pub(in crate::store::sqlite) fn forget_case(
    transaction: &Connection,
    key: &ArtifactKey,
    case: &Case,
) -> Result<(), Fault> {
    let (role, method, language, contract) = columns(key);
    if run(transaction, FORGET_CASE, bound(key, [&case.inputs.digest()]))? > 0 {
        run(transaction, COUNT_CASES, params![role, method, language, contract, -1])?;
    }
    Ok(())
}

const CORPUS: &str = concat!(
    "SELECT inputs, observed FROM corpus WHERE artifact_id = ",
    artifact_id!(),
    " ORDER BY inputs_digest"
);

pub(in crate::store::sqlite) fn corpus(
    connection: &Connection,
    key: &ArtifactKey,
) -> Result<Vec<Case>, Fault> {
    rows(connection, CORPUS, bound(key, []), |row| {
        let (inputs, observed): (Json<Inputs>, Json<Observed>) = (row.get(0)?, row.get(1)?);
        Ok(Case { inputs: inputs.0, observed: observed.0 })
    })
}

const ARTIFACTS: &str = artifact_columns!(
    ", a.role, a.method, a.language, v.version, a.pinned
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.version = a.current
    ORDER BY a.role, a.method, a.language, a.contract_fingerprint LIMIT ?1"
);
const ROLE_ARTIFACTS: &str = artifact_columns!(
    ", a.role, a.method, a.language, v.version, a.pinned
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.version = a.current
    WHERE a.role = ?2 ORDER BY a.method, a.language, a.contract_fingerprint LIMIT ?1"
);

pub(in crate::store::sqlite) fn artifacts(
    connection: &Connection,
    role: Option<&Role>,
    limit: usize,
) -> Result<Vec<KnownArtifact>, Fault> {
    let known = |row: &Row<'_>| {
        let key = ArtifactKey {
            role: row.get::<_, Word<_>>(REST)?.0,
            method: row.get::<_, Word<_>>(REST + 1)?.0,
            language: row.get::<_, Word<_>>(REST + 2)?.0,
            contract_fingerprint: row.get::<_, Word<_>>(0)?.0,
        };
        Ok(KnownArtifact {
            current: artifact(row, &key)?,
            version: row.get(REST + 3)?,
            pinned: row.get(REST + 4)?,
        })
    };
    match role {
        Some(role) => {
            rows(connection, ROLE_ARTIFACTS, params![bounded(limit), role.as_str()], known)
        }
        None => rows(connection, ARTIFACTS, [bounded(limit)], known),
    }
}

const VERSIONS: &str = artifact_columns!(
    ", v.version, v.version = a.current, v.trigger_reason, v.parent, v.failure, v.pure, v.state_keys,
       v.admitted_at, v.failing_case
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id
    WHERE a.role = ?1 AND a.method = ?2 AND a.language = ?3 AND a.contract_fingerprint = ?4
    ORDER BY v.version DESC"
);

pub(in crate::store::sqlite) fn versions(
    connection: &Connection,
    key: &ArtifactKey,
) -> Result<Vec<Version>, Fault> {
    rows(connection, VERSIONS, bound(key, []), |row| {
        let parent: Option<String> = row.get(REST + 3)?;
        let failing: Option<Json<Case>> = row.get(REST + 8)?;
        Ok(Version {
            number: row.get(REST)?,
            artifact: artifact(row, key)?,
            is_current: row.get(REST + 1)?,
            trigger: row.get::<_, Word<Trigger>>(REST + 2)?.0,
            parent: parent.map(Checksum::stored),
            failure: row.get(REST + 4)?,
            pure: row.get(REST + 5)?,
            state_keys: row.get::<_, Json<_>>(REST + 6)?.0,
            admitted_at: row.get(REST + 7)?,
            failing_case: failing.map(|case| case.0),
        })
    })
}

const DECISIONS: &str = concat!(
    "SELECT checksum, decided_at, decision FROM decisions WHERE artifact_id = ",
    artifact_id!(),
    " ORDER BY id DESC"
);

pub(in crate::store::sqlite) fn decisions(
    connection: &Connection,
    key: &ArtifactKey,
) -> Result<Vec<Decided>, Fault> {
    rows(connection, DECISIONS, bound(key, []), |row| {
        Ok(Decided {
            checksum: Checksum::stored(row.get(0)?),
            decided_at: row.get(1)?,
            decision: row.get::<_, Json<_>>(2)?.0,
        })
    })
}

const PIN: &str = "
    UPDATE artifacts SET pinned = ?5
    WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4";

pub(in crate::store::sqlite) fn pin(
    transaction: &Connection,
    key: &ArtifactKey,
    pinned: bool,
) -> Result<bool, Fault> {
    let (role, method, language, contract) = columns(key);
    Ok(run(transaction, PIN, params![role, method, language, contract, pinned])? > 0)
}

/// Something that never ran, or was taken back, is not gone back to unless it is named.
const ROLLBACK_TARGET: &str = "
    SELECT a.id, v.version, v.checksum, v.standing, c.checksum, c.standing
    FROM artifacts a
    JOIN artifact_versions c ON c.artifact_id = a.id AND c.version = a.current
    JOIN artifact_versions v ON v.artifact_id = a.id AND v.version <> a.current
    WHERE a.role = ?1 AND a.method = ?2 AND a.language = ?3 AND a.contract_fingerprint = ?4
      AND v.successes > 0
      AND CASE WHEN ?5 IS NULL THEN v.version < a.current AND v.standing IN ('probation', 'durable')
               ELSE v.checksum = ?5 END
    ORDER BY v.version DESC LIMIT 1";
/// What went wrong before it was gone back to is forgiven.
const FORGIVE: &str = "
    UPDATE artifact_versions SET standing = 'probation', recent = ''
    WHERE artifact_id = ?1 AND checksum = ?2";

pub(in crate::store::sqlite) fn rollback(
    transaction: &Connection,
    key: &ArtifactKey,
    to: Option<&Checksum>,
) -> Result<Option<Checksum>, Fault> {
    let (role, method, language, contract) = columns(key);
    let wanted = to.map(Checksum::as_str);
    let found = one(
        transaction,
        ROLLBACK_TARGET,
        params![role, method, language, contract, wanted],
        |row| {
            let target: (i64, u32, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let standings = (row.get::<_, Word<_>>(3)?.0, row.get::<_, Word<_>>(5)?.0);
            Ok((target, row.get::<_, String>(4)?, standings))
        },
    )?;
    let Some(((id, version, target), left, (before, left_standing))) = found else {
        return Ok(None);
    };
    let (target, left) = (Checksum::stored(target), Checksum::stored(left));
    run(transaction, LET_RUN, params![id, version])?;
    run(transaction, FORGIVE, params![id, target.as_str()])?;
    run(transaction, SET_STANDING, params![id, left.as_str(), Word(Standing::Degraded)])?;
    let taken_back = Decision::by_hand(left_standing, Standing::Degraded, "rolled back");
    record_decision(transaction, id, &left, &taken_back)?;
    let restored = Decision::by_hand(before, Standing::Probation, "rolled back to");
    record_decision(transaction, id, &target, &restored)?;
    Ok(Some(target))
}

const RIVALS: &str = "
    SELECT a.id, v.version, v.recent, v.standing,
           NOT a.pinned AND a.current IS (
             SELECT version FROM artifact_versions WHERE artifact_id = a.id AND checksum = ?6)
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.checksum = ?5
    WHERE a.role = ?1 AND a.method = ?2 AND a.language = ?3 AND a.contract_fingerprint = ?4";
const WITHDRAW: &str = "UPDATE artifacts SET challenger = NULL WHERE id = ?1 AND challenger = ?2";
const SET_FAILING: &str =
    "UPDATE artifact_versions SET failing_case = ?3 WHERE artifact_id = ?1 AND version = ?2";

pub(in crate::store::sqlite) fn conclude(
    transaction: &Connection,
    key: &ArtifactKey,
    incumbent: &Checksum,
    challenger: &Checksum,
    verdict: &Verdict,
) -> Result<bool, Fault> {
    let rivals = bound(key, [challenger.as_str(), incumbent.as_str()]);
    let found = one(transaction, RIVALS, rivals, |row| {
        let standing: Word<Standing> = row.get(3)?;
        Ok((row.get(0)?, row.get(1)?, Window::stored(row.get(2)?), standing.0, row.get(4)?))
    })?;
    let Some((id, version, recent, standing, may_replace)) = found else { return Ok(false) };
    let (id, version): (i64, u32) = (id, version);
    match verdict {
        Verdict::Passed if may_replace => {
            run(transaction, LET_RUN, params![id, version])?;
            let evidence = Evidence { recent, sessions: 1, state_key_agreement: None };
            let decision = decide(standing, &evidence);
            run(transaction, SET_STANDING, params![id, challenger.as_str(), Word(decision.to)])?;
            record_decision(transaction, id, challenger, &decision)?;
            Ok(true)
        }
        Verdict::Passed => run(transaction, WITHDRAW, params![id, version]).map(|_| false),
        Verdict::Failed(case) => {
            run(transaction, WITHDRAW, params![id, version])?;
            run(transaction, SET_FAILING, params![id, version, Json(case)])?;
            Ok(false)
        }
    }
}

#[cfg(test)]
pub(in crate::store::sqlite) const SEEKS: [&str; 10] = [
    FORGET_CASE,
    CORPUS,
    ROLE_ARTIFACTS,
    VERSIONS,
    DECISIONS,
    PIN,
    ROLLBACK_TARGET,
    FORGIVE,
    RIVALS,
    WITHDRAW,
];
/// Scans that stop at their limit.
#[cfg(test)]
pub(in crate::store::sqlite) const BOUNDED_SCANS: [&str; 1] = [ARTIFACTS];
