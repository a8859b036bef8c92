//! What happens to stored programs between calls: listing, trials, pinning, rolling back.

use lifecycle::admission::{Case, Inputs, Observed};
use lifecycle::agreement::Agreement;
use lifecycle::artifact::{ArtifactKey, Trigger};
use lifecycle::program::Checksum;
use lifecycle::request::Role;
use lifecycle::version_policy::{self, Verdict};
use rusqlite::{Connection, Row, params};

use super::super::column::{Json, Word};
use super::super::fault::SqliteFault;
use super::super::read::{bounded, rows};
use super::super::write::run;
use super::{COUNT_CASES, REST, apply, artifact, bound, columns, load, recorded_cases};
use crate::store::catalog::{KnownArtifact, StandingChange, StoredVersion};

const FORGET_CASE: &str = "DELETE FROM corpus WHERE artifact_id = ?1 AND inputs_digest = ?2";

pub(in crate::store::sqlite) fn forget_case(
    transaction: &Connection,
    key: &ArtifactKey,
    case: &Case,
) -> Result<(), SqliteFault> {
    let inputs_digest = case.inputs.digest();
    let Some((id, recorded)) = recorded_cases(transaction, key, &inputs_digest)? else {
        return Ok(());
    };
    if recorded.has_inputs {
        run(transaction, FORGET_CASE, params![id, inputs_digest])?;
        run(transaction, COUNT_CASES, params![id, -1])?;
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
) -> Result<Vec<Case>, SqliteFault> {
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
) -> Result<Vec<KnownArtifact>, SqliteFault> {
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
       v.admitted_at, v.failing_case, v.author, v.trigger_stage, v.trigger_error_class, v.trigger_attempt_id,
       v.agreement
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id
    WHERE a.role = ?1 AND a.method = ?2 AND a.language = ?3 AND a.contract_fingerprint = ?4
    ORDER BY v.version DESC"
);

pub(in crate::store::sqlite) fn versions(
    connection: &Connection,
    key: &ArtifactKey,
) -> Result<Vec<StoredVersion>, SqliteFault> {
    rows(connection, VERSIONS, bound(key, []), |row| {
        let parent: Option<String> = row.get(REST + 3)?;
        let failing: Option<Json<Case>> = row.get(REST + 8)?;
        let agreement: Option<Json<Agreement>> = row.get(REST + 13)?;
        Ok(StoredVersion {
            number: row.get(REST)?,
            artifact: artifact(row, key)?,
            is_current: row.get(REST + 1)?,
            trigger: row.get::<_, Word<Trigger>>(REST + 2)?.0,
            parent: parent.map(Checksum::stored),
            failure: row.get(REST + 4)?,
            trigger_stage: row.get(REST + 10)?,
            trigger_error_class: row.get(REST + 11)?,
            trigger_attempt_id: row.get(REST + 12)?,
            pure: row.get(REST + 5)?,
            agreement: agreement.map(|agreement| agreement.0),
            state_keys: row.get::<_, Json<_>>(REST + 6)?.0,
            admitted_at: row.get(REST + 7)?,
            failing_case: failing.map(|case| case.0),
            author: row.get::<_, Word<_>>(REST + 9)?.0,
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
) -> Result<Vec<StandingChange>, SqliteFault> {
    rows(connection, DECISIONS, bound(key, []), |row| {
        Ok(StandingChange {
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
) -> Result<bool, SqliteFault> {
    let (role, method, language, contract) = columns(key);
    Ok(run(transaction, PIN, params![role, method, language, contract, pinned])? > 0)
}

/// Goes back to an earlier version; gives the one that runs from now on.
pub(in crate::store::sqlite) fn rollback(
    transaction: &Connection,
    key: &ArtifactKey,
    to: Option<&Checksum>,
) -> Result<Option<Checksum>, SqliteFault> {
    let Some(loaded) = load(transaction, key)? else { return Ok(None) };
    let decided = version_policy::rolled_back(&loaded.artifact, &loaded.versions, to);
    let Some((target, changes)) = decided else { return Ok(None) };
    apply(transaction, loaded.id, &changes)?;
    Ok(Some(target))
}

/// Ends the trial of a challenger; says whether it takes over.
pub(in crate::store::sqlite) fn conclude(
    transaction: &Connection,
    key: &ArtifactKey,
    rivals: (&Checksum, &Checksum),
    verdict: &Verdict,
) -> Result<bool, SqliteFault> {
    let Some(loaded) = load(transaction, key)? else { return Ok(false) };
    let (takes_over, changes) =
        version_policy::concluded(&loaded.artifact, &loaded.versions, rivals, verdict);
    apply(transaction, loaded.id, &changes)?;
    Ok(takes_over)
}

#[cfg(test)]
pub(in crate::store::sqlite) const SEEKS: [&str; 6] =
    [FORGET_CASE, CORPUS, ROLE_ARTIFACTS, VERSIONS, DECISIONS, PIN];
/// Scans that stop at their limit.
#[cfg(test)]
pub(in crate::store::sqlite) const BOUNDED_SCANS: [&str; 1] = [ARTIFACTS];
