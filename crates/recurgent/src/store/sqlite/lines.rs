//! Stored programs: every version made under one key, which of them runs, and what they are held to.

use lifecycle::admission::{Admission, Case, Incumbent, Inputs, MAX_CASES, Observed, admit};
use lifecycle::artifact::{
    Artifact, ArtifactChange, ArtifactKey, Generation, Repute, Trigger, Verdict,
};
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

use super::super::catalog::{Decided, KnownArtifact, MAX_DECISIONS, Ruling, Version};
use super::super::{MAX_RECALLED, MAX_SIBLINGS_KNOWN, MAX_VERSIONS, Owner, session_mark};
use super::column::{Json, Word};
use super::fault::Fault;
use super::read::{bounded, one, rows};
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
/// The first column after those.
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
fn columns(key: &ArtifactKey) -> (&str, &str, &str, &str) {
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

macro_rules! artifact_id {
    () => {
        "(SELECT id FROM artifacts
          WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4)"
    };
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
        successes = successes + excluded.successes, failures = excluded.failures,
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
    verdict: Verdict,
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
        verdict == Verdict::Succeeded,
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

const FORGET_CASE: &str =
    concat!("DELETE FROM corpus WHERE inputs_digest = ?5 AND artifact_id = ", artifact_id!());

pub(super) fn forget_case(
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

pub(super) fn corpus(connection: &Connection, key: &ArtifactKey) -> Result<Vec<Case>, Fault> {
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

pub(super) fn artifacts(
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

pub(super) fn versions(connection: &Connection, key: &ArtifactKey) -> Result<Vec<Version>, Fault> {
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

pub(super) fn decisions(connection: &Connection, key: &ArtifactKey) -> Result<Vec<Decided>, Fault> {
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

pub(super) fn pin(
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

pub(super) fn rollback(
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

pub(super) fn conclude(
    transaction: &Connection,
    key: &ArtifactKey,
    incumbent: &Checksum,
    challenger: &Checksum,
    ruling: &Ruling,
) -> Result<bool, Fault> {
    let rivals = bound(key, [challenger.as_str(), incumbent.as_str()]);
    let found = one(transaction, RIVALS, rivals, |row| {
        let standing: Word<Standing> = row.get(3)?;
        Ok((row.get(0)?, row.get(1)?, Window::stored(row.get(2)?), standing.0, row.get(4)?))
    })?;
    let Some((id, version, recent, standing, may_replace)) = found else { return Ok(false) };
    let (id, version): (i64, u32) = (id, version);
    match ruling {
        Ruling::Passed if may_replace => {
            run(transaction, LET_RUN, params![id, version])?;
            let evidence = Evidence { recent, sessions: 1, state_key_agreement: None };
            let decision = decide(standing, &evidence);
            run(transaction, SET_STANDING, params![id, challenger.as_str(), Word(decision.to)])?;
            record_decision(transaction, id, challenger, &decision)?;
            Ok(true)
        }
        Ruling::Passed => run(transaction, WITHDRAW, params![id, version]).map(|_| false),
        Ruling::Failed(case) => {
            run(transaction, WITHDRAW, params![id, version])?;
            run(transaction, SET_FAILING, params![id, version, Json(case)])?;
            Ok(false)
        }
    }
}

#[cfg(test)]
pub(super) const SEEKS: [&str; 25] = [
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
pub(super) const BOUNDED_SCANS: [&str; 1] = [ARTIFACTS];
