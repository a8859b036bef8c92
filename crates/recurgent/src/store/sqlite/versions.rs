//! Stored programs: every version made under one key, which of them runs, and what they are held to.

use lifecycle::admission::{Admission, Case, Incumbent, MAX_CASES, admit};
use lifecycle::artifact::{Artifact, ArtifactChange, ArtifactKey, Generation, Repute, RunVerdict};
use lifecycle::program::Checksum;
use lifecycle::prompt::PROMPT_VERSION;
use lifecycle::request::{CallRequest, Role};
use lifecycle::select::unfit;
use lifecycle::settlement::{Changes, Receipt};
use lifecycle::standing::{
    Decision, Evidence, Standing, StandingMode, StateKeys, WINDOW, Window, decide,
    state_key_agreement,
};
use rusqlite::{Connection, Params, Row, params};

use super::super::catalog::MAX_DECISIONS;
use super::super::{MAX_RECALLED, MAX_SIBLINGS_KNOWN, MAX_VERSIONS, Owner, session_mark};
use super::column::{Json, Word};
use super::fault::Fault;
use super::read::{one, rows};
use super::write::run;

/// What an [`Artifact`] is read from, besides its key.
macro_rules! artifact_columns {
    ($rest:literal) => {
        concat!(
            "SELECT a.contract_fingerprint, v.runtime_version, v.code, v.checksum, v.manifest, v.cacheability,
                    v.successes, v.failures, v.repairs, v.standing, v.recent, a.cases, a.generations,
                    (SELECT c.checksum FROM artifact_versions c
                     WHERE c.artifact_id = a.id AND c.version = a.challenger)",
            $rest
        )
    };
}
macro_rules! artifact_id {
    () => {
        "(SELECT id FROM artifacts
          WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4)"
    };
}

pub(super) mod version_admin;

/// The first column after those of an artifact.
const REST: usize = 14;

/// The artifact for the call's contract, and a few of those for others, which tell why there is none.
const RECALL: &str = artifact_columns!(
    "
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.version = a.current
    WHERE a.id IN (
      SELECT id FROM artifacts
      WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4
      UNION ALL
      SELECT id FROM (SELECT id FROM artifacts WHERE role = ?1 AND method = ?2 AND language = ?3 LIMIT ?5))"
);

pub(super) fn recall(
    connection: &Connection,
    request: &CallRequest,
) -> Result<Vec<Artifact>, Fault> {
    let key = ArtifactKey::of(request);
    let mut statement = connection.prepare_cached(RECALL)?;
    let (role, method, language, contract) = columns(&key);
    let found = statement
        .query_map(params![role, method, language, contract, MAX_RECALLED - 1], |row| {
            Ok(artifact(row, &key).ok())
        })?;
    // A row this version cannot read is none it knows: its program is written again.
    Ok(found.filter_map(Result::transpose).collect::<Result<_, _>>()?)
}

/// The columns of a key.
pub(super) fn columns(key: &ArtifactKey) -> (&str, &str, &str, &str) {
    let ArtifactKey { role, method, language, contract_fingerprint } = key;
    (role.as_str(), method.as_str(), language.name(), contract_fingerprint.as_str())
}

fn artifact(row: &Row<'_>, key: &ArtifactKey) -> rusqlite::Result<Artifact> {
    let challenger: Option<String> = row.get(13)?;
    Ok(Artifact {
        role: key.role.clone(),
        method: key.method.clone(),
        language: key.language,
        contract_fingerprint: row.get::<_, Word<_>>(0)?.0,
        runtime_version: row.get(1)?,
        code: row.get(2)?,
        checksum: Checksum::stored(row.get(3)?),
        manifest: row.get::<_, Json<_>>(4)?.0,
        cacheability: row.get::<_, Word<_>>(5)?.0,
        successes: row.get(6)?,
        failures: row.get(7)?,
        repairs: row.get(8)?,
        repute: Repute {
            standing: row.get::<_, Word<_>>(9)?.0,
            recent: Window::stored(row.get(10)?),
            cases: row.get(11)?,
            generations: row.get(12)?,
            challenger: challenger.map(Checksum::stored),
        },
    })
}

/// What a call does to stored programs.
pub(super) fn settle(
    transaction: &Connection,
    owner: &Owner,
    request: &CallRequest,
    changes: &Changes,
) -> Result<Receipt, Fault> {
    let key = ArtifactKey::of(request);
    let session = session_mark(owner, request);
    let mut receipt = Receipt::default();
    for change in &changes.artifacts {
        match change {
            ArtifactChange::Admit(generation) => {
                let made = admit_generation(transaction, generation, &session)?;
                receipt = Receipt { decision: receipt.decision.or(made.decision), ..made };
            }
            ArtifactChange::Score { checksum, verdict } => {
                receipt.decision = score(transaction, &key, checksum, *verdict, &session)?;
            }
            ArtifactChange::Mended { checksum } => {
                run(transaction, COUNT_REPAIR, bound(&key, [checksum.as_str()]))?;
            }
        }
    }
    let is_current = receipt.admission.is_none_or(|made| made == Admission::TakesOver);
    if let Some(case) = changes.case.as_ref().filter(|_| is_current) {
        record_case(transaction, &key, case)?;
    }
    Ok(receipt)
}

/// The columns of a key, and what follows them.
fn bound<'a, const N: usize>(key: &'a ArtifactKey, rest: [&'a str; N]) -> impl Params + 'a {
    let (role, method, language, contract) = columns(key);
    rusqlite::params_from_iter([role, method, language, contract].into_iter().chain(rest))
}

const INCUMBENT: &str = artifact_columns!(
    ", a.id, a.pinned
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.version = a.current
    WHERE a.role = ?1 AND a.method = ?2 AND a.language = ?3 AND a.contract_fingerprint = ?4"
);
const NEXT_VERSION: &str = "
    INSERT INTO artifacts (role, method, language, contract_fingerprint, current, generations)
    VALUES (?1, ?2, ?3, ?4, 1, 1)
    ON CONFLICT (role, method, language, contract_fingerprint) DO UPDATE SET generations = generations + 1
    RETURNING id, generations";
const LET_RUN: &str = "UPDATE artifacts SET current = ?2, challenger = NULL WHERE id = ?1";
const CHALLENGE: &str = "UPDATE artifacts SET challenger = ?2 WHERE id = ?1";
/// A text that was here before becomes the newest version again. Its successes stay counted, so that two
/// processes which admit the same program at once lose none; its failures are forgiven, since it just worked.
const KEEP_VERSION: &str = "
    INSERT INTO artifact_versions (
      artifact_id, version, checksum, standing, recent, sessions, successes, failures, repairs, cacheability,
      runtime_version, prompt_version, admitted_at, trigger_reason, parent, failure, pure, state_keys,
      manifest, code)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?13,
            ?14, ?15, ?16, ?17, ?18, ?19)
    ON CONFLICT (artifact_id, checksum) DO UPDATE
    SET version = excluded.version, standing = excluded.standing, recent = excluded.recent,
        sessions = excluded.sessions, successes = successes + excluded.successes, failures = excluded.failures,
        repairs = excluded.repairs, cacheability = excluded.cacheability,
        runtime_version = excluded.runtime_version, prompt_version = excluded.prompt_version,
        admitted_at = excluded.admitted_at, trigger_reason = excluded.trigger_reason,
        parent = excluded.parent, failure = excluded.failure, pure = excluded.pure,
        state_keys = excluded.state_keys, failing_case = NULL, manifest = excluded.manifest,
        code = excluded.code";
/// The oldest go, except the one that runs and the last that ran before it.
const DROP_VERSIONS: &str = "
    DELETE FROM artifact_versions
    WHERE artifact_id = ?1
      AND version <= (
        SELECT version FROM artifact_versions WHERE artifact_id = ?1 ORDER BY version DESC LIMIT 1 OFFSET ?2)
      AND version <> (SELECT current FROM artifacts WHERE id = ?1)
      AND version <> coalesce((
        SELECT version FROM artifact_versions
        WHERE artifact_id = ?1 AND standing IN ('probation', 'durable')
          AND version < (SELECT current FROM artifacts WHERE id = ?1)
        ORDER BY version DESC LIMIT 1), 0)";

fn admit_generation(
    transaction: &Connection,
    generation: &Generation,
    session: &str,
) -> Result<Receipt, Fault> {
    let Generation { artifact: new, trigger, parent, failure, state_keys, pure } = generation;
    let key = new.key();
    let incumbent = one(transaction, INCUMBENT, bound(&key, []), |row| {
        Ok((artifact(row, &key).ok(), row.get::<_, bool>(REST + 1)?))
    })?;
    let is_same = |(found, _): &(Option<Artifact>, bool)| {
        found.as_ref().is_some_and(|found| found.checksum == new.checksum)
    };
    let rival = incumbent.filter(|found| !is_same(found)).map(|(found, pinned)| Incumbent {
        // A standing of degraded counts here in either mode: something that works may replace it.
        fit: found.as_ref().is_some_and(|found| unfit(found, StandingMode::Enforced).is_none()),
        pinned,
        cases: found.map_or(0, |found| found.repute.cases),
    });
    let admission = admit(new, *pure, rival);
    let (id, version): (i64, u32) = transaction
        .prepare_cached(NEXT_VERSION)?
        .query_row(bound(&key, []), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let recent = &new.repute.recent;
    let evidence = Evidence { recent: recent.clone(), sessions: 1, state_key_agreement: None };
    let decision = (admission == Admission::TakesOver)
        .then(|| decide(new.repute.standing, &evidence))
        .filter(Decision::is_change);
    let standing = decision.as_ref().map_or(new.repute.standing, |decision| decision.to);
    let row = params![
        id,
        version,
        new.checksum.as_str(),
        Word(standing),
        recent.as_str(),
        session,
        new.successes,
        new.failures,
        new.repairs,
        Word(new.cacheability),
        new.runtime_version,
        PROMPT_VERSION,
        Word(trigger),
        parent.as_ref().map(Checksum::as_str),
        failure,
        pure,
        Json(state_keys),
        Json(&new.manifest),
        new.code,
    ];
    run(transaction, KEEP_VERSION, row)?;
    match admission {
        Admission::TakesOver => run(transaction, LET_RUN, params![id, version])?,
        Admission::AwaitsTrial => run(transaction, CHALLENGE, params![id, version])?,
        Admission::KeptForPinned | Admission::KeptForReusable | Admission::KeptUntried => 0,
    };
    if let Some(decision) = &decision {
        record_decision(transaction, id, &new.checksum, decision)?;
    }
    run(transaction, DROP_VERSIONS, params![id, MAX_VERSIONS])?;
    Ok(Receipt {
        admission: Some(admission),
        decision,
        challenger: (admission == Admission::AwaitsTrial).then(|| new.checksum.clone()),
        generations: Some(version),
        ..Receipt::default()
    })
}

/// Counted here, in one statement, so that no process overwrites what another counted.
const SCORE: &str = concat!(
    "UPDATE artifact_versions
     SET successes = successes + ?6, failures = failures + ?7, recent = substr(recent || ?8, -?9),
         sessions = CASE WHEN instr(sessions, ?10) > 0 OR length(sessions) >= ?11 THEN sessions
                         ELSE sessions || ?10 END
     WHERE checksum = ?5 AND artifact_id = ",
    artifact_id!(),
    " RETURNING artifact_id, standing, recent, length(sessions)"
);
const SET_STANDING: &str =
    "UPDATE artifact_versions SET standing = ?3 WHERE artifact_id = ?1 AND checksum = ?2";
const COUNT_REPAIR: &str = concat!(
    "UPDATE artifact_versions SET repairs = repairs + 1 WHERE checksum = ?5 AND artifact_id = ",
    artifact_id!()
);
/// Different sessions remembered of one version; the policy asks for two.
const MAX_SESSIONS: usize = 8;

fn score(
    transaction: &Connection,
    key: &ArtifactKey,
    checksum: &Checksum,
    verdict: RunVerdict,
    session: &str,
) -> Result<Option<Decision>, Fault> {
    let Some(mark) = verdict.mark() else { return Ok(None) };
    let (role, method, language, contract) = columns(key);
    let row = params![
        role,
        method,
        language,
        contract,
        checksum.as_str(),
        verdict == RunVerdict::Succeeded,
        verdict.speaks_against(),
        mark.to_string(),
        WINDOW,
        session,
        MAX_SESSIONS * session.len(),
    ];
    let counted = one(transaction, SCORE, row, |row| {
        let standing: Word<Standing> = row.get(1)?;
        let evidence = Evidence {
            recent: Window::stored(row.get(2)?),
            sessions: row.get::<_, usize>(3)? / session.len().max(1),
            state_key_agreement: None,
        };
        Ok((row.get::<_, i64>(0)?, standing.0, evidence))
    })?;
    let Some((id, standing, mut evidence)) = counted else { return Ok(None) };
    if standing != Standing::Durable && evidence.is_clean() {
        evidence.state_key_agreement = Some(agreement(transaction, &key.role)?);
    }
    let decision = decide(standing, &evidence);
    if decision.is_change() {
        run(transaction, SET_STANDING, params![id, checksum.as_str(), Word(decision.to)])?;
        record_decision(transaction, id, checksum, &decision)?;
    }
    Ok(Some(decision))
}

const STATE_KEYS: &str = "
    SELECT v.state_keys FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.version = a.current
    WHERE a.role = ?1 LIMIT ?2";

fn agreement(transaction: &Connection, role: &Role) -> Result<f64, Fault> {
    let keys = rows(transaction, STATE_KEYS, params![role.as_str(), MAX_SIBLINGS_KNOWN], |row| {
        Ok(row.get::<_, Json<StateKeys>>(0)?.0)
    })?;
    Ok(state_key_agreement(&keys))
}

const RECORD_DECISION: &str = "
    INSERT INTO decisions (artifact_id, checksum, decided_at, decision)
    VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?3)";
const TRIM_DECISIONS: &str = "
    DELETE FROM decisions WHERE artifact_id = ?1 AND id <= (
      SELECT id FROM decisions WHERE artifact_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)";

fn record_decision(
    transaction: &Connection,
    id: i64,
    checksum: &Checksum,
    decision: &Decision,
) -> Result<(), Fault> {
    run(transaction, RECORD_DECISION, params![id, checksum.as_str(), Json(decision)])?;
    run(transaction, TRIM_DECISIONS, params![id, MAX_DECISIONS])?;
    Ok(())
}

const RECORD_CASE: &str = "
    INSERT OR IGNORE INTO corpus (artifact_id, inputs_digest, recorded_at, observed, inputs)
    SELECT id, ?5, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?6, ?7 FROM artifacts
    WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4 AND cases < ?8";
const COUNT_CASES: &str =
    concat!("UPDATE artifacts SET cases = cases + ?5 WHERE id = ", artifact_id!());

/// The first call with given inputs is kept, while there is room.
fn record_case(transaction: &Connection, key: &ArtifactKey, case: &Case) -> Result<(), Fault> {
    let (role, method, language, contract) = columns(key);
    let row = params![
        role,
        method,
        language,
        contract,
        case.inputs.digest(),
        Json(&case.observed),
        Json(&case.inputs),
        MAX_CASES,
    ];
    if run(transaction, RECORD_CASE, row)? > 0 {
        run(transaction, COUNT_CASES, params![role, method, language, contract, 1])?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) const SEEKS: [&str; 15] = [
    RECALL,
    INCUMBENT,
    NEXT_VERSION,
    LET_RUN,
    CHALLENGE,
    KEEP_VERSION,
    DROP_VERSIONS,
    SCORE,
    SET_STANDING,
    COUNT_REPAIR,
    STATE_KEYS,
    RECORD_DECISION,
    TRIM_DECISIONS,
    RECORD_CASE,
    COUNT_CASES,
];
