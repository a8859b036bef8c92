//! Stored programs: every version made under one key, which of them runs, and the calls they must reproduce.
//!
//! Rows are loaded and written here; [`lifecycle::version_policy`] decides what is written.

use lifecycle::admission::Case;
use lifecycle::artifact::{
    Artifact, ArtifactChange, ArtifactKey, Generation, ProvenShapes, RunVerdict, ShapeDigest,
    TrackRecord,
};
use lifecycle::program::Checksum;
use lifecycle::prompt::PROMPT_VERSION;
use lifecycle::request::{CallRequest, Role};
use lifecycle::retention::MAX_DECISIONS;
use lifecycle::settlement::{Changes, Receipt};
use lifecycle::standing::{
    Decision, Evidence, MAX_SESSIONS, Standing, StateKeys, WINDOW, Window, state_key_agreement,
};
use lifecycle::version_policy::{
    self, ArtifactRow, FirstCounts, RecordedCases, RowChange, VersionRow, VersionTally,
};
use rusqlite::{Connection, Params, Row, params};

use super::super::{MAX_RECALLED, MAX_SIBLINGS_KNOWN, Owner, session_mark};
use super::column::{Json, Word};
use super::fault::SqliteFault;
use super::read::{one, rows};
use super::write::run;

/// What an [`Artifact`] is read from, besides its key.
macro_rules! artifact_columns {
    ($rest:literal) => {
        concat!(
            "SELECT a.contract_fingerprint, v.runtime_version, v.code, v.checksum, v.manifest, v.cacheability,
                    v.successes, v.failures, v.repairs, v.standing, v.recent, a.cases, a.generations,
                    v.rejected, v.shapes, v.author,
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

pub(super) mod people;
pub(super) mod version_admin;

/// The first column after those of an artifact.
const REST: usize = 17;

/// The artifact for the call's contract, and a few of those for others, which say why there is none. The last column
/// says whether the method has examples.
const RECALL: &str = artifact_columns!(
    ", EXISTS (SELECT 1 FROM examples WHERE role = ?1 AND method = ?2)
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.version = a.current
    WHERE a.id IN (
      SELECT id FROM artifacts
      WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4
      UNION ALL
      SELECT id FROM (SELECT id FROM artifacts WHERE role = ?1 AND method = ?2 AND language = ?3 LIMIT ?5))"
);

/// The artifacts for a call, and whether its method may have examples.
pub(super) fn recall(
    connection: &Connection,
    request: &CallRequest,
) -> Result<(Vec<Artifact>, bool), SqliteFault> {
    let key = ArtifactKey::of(request);
    let mut statement = connection.prepare_cached(RECALL)?;
    let (role, method, language, contract) = columns(&key);
    let params = params![role, method, language, contract, MAX_RECALLED - 1];
    let mut found = statement.query(params)?;
    // Without an artifact a model will be asked, and a look at the examples costs little beside that.
    let (mut artifacts, mut has_examples) = (Vec::new(), None);
    while let Some(row) = found.next()? {
        has_examples = Some(row.get(REST)?);
        // A row that this version of the program cannot read is skipped: its program is written again.
        artifacts.extend(artifact(row, &key).ok());
    }
    Ok((artifacts, has_examples.unwrap_or(true)))
}

/// The columns of a key.
pub(super) fn columns(key: &ArtifactKey) -> (&str, &str, &str, &str) {
    let ArtifactKey { role, method, language, contract_fingerprint } = key;
    (role.as_str(), method.as_str(), language.name(), contract_fingerprint.as_str())
}

fn artifact(row: &Row<'_>, key: &ArtifactKey) -> rusqlite::Result<Artifact> {
    let challenger: Option<String> = row.get(16)?;
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
        track_record: TrackRecord {
            standing: row.get::<_, Word<_>>(9)?.0,
            recent: Window::stored(row.get(10)?),
            cases: row.get(11)?,
            generations: row.get(12)?,
            rejected: row.get(13)?,
            shapes: ProvenShapes::stored(row.get(14)?),
            author: row.get::<_, Word<_>>(15)?.0,
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
) -> Result<Receipt, SqliteFault> {
    let own_key = ArtifactKey::of(request);
    let other_key = changes
        .stored_under
        .as_ref()
        .map(|contract| ArtifactKey { contract_fingerprint: contract.clone(), ..own_key.clone() });
    let key = other_key.as_ref().unwrap_or(&own_key);
    let call = Called { session: session_mark(owner, request), shape: changes.shape.as_ref() };
    let mut receipt = Receipt::default();
    let mut version = None;
    for change in &changes.artifacts {
        match change {
            ArtifactChange::Admit(generation) => {
                let made = admit(transaction, generation, &call)?;
                receipt = Receipt { decision: receipt.decision.or(made.decision), ..made };
                version = Some(&generation.artifact.checksum);
            }
            ArtifactChange::Score { checksum, verdict } => {
                receipt.decision = score(transaction, key, checksum, *verdict, &call)?;
                version = Some(checksum);
            }
            ArtifactChange::VoidCases => {
                if let Some(loaded) = load(transaction, key)? {
                    apply(transaction, loaded.id, &version_policy::voided(&loaded.versions))?;
                }
            }
            ArtifactChange::RepairWritten { checksum } => {
                run(transaction, COUNT_REPAIR, bound(key, [checksum.as_str()]))?;
            }
        }
    }
    let may_record = version_policy::may_record(receipt.admission);
    if let Some(case) = changes.case.as_ref().filter(|_| may_record) {
        let key = if receipt.admission.is_some() { &own_key } else { key };
        record_case(transaction, key, case, version)?;
    }
    Ok(receipt)
}

/// What a version remembers of the call it ran in.
struct Called<'a> {
    /// Stands for the session.
    session: String,
    /// The shape of the arguments, if the call was accepted.
    shape: Option<&'a ShapeDigest>,
}

/// The columns of a key, and what follows them.
fn bound<'a, const N: usize>(key: &'a ArtifactKey, rest: [&'a str; N]) -> impl Params + 'a {
    let (role, method, language, contract) = columns(key);
    rusqlite::params_from_iter([role, method, language, contract].into_iter().chain(rest))
}

const INCUMBENT: &str = artifact_columns!(
    "
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.version = a.current
    WHERE a.role = ?1 AND a.method = ?2 AND a.language = ?3 AND a.contract_fingerprint = ?4"
);
const NEXT_VERSION: &str = "
    INSERT INTO artifacts (role, method, language, contract_fingerprint, current, generations)
    VALUES (?1, ?2, ?3, ?4, 1, 1)
    ON CONFLICT (role, method, language, contract_fingerprint) DO UPDATE SET generations = generations + 1
    RETURNING id, generations";
const RUN: &str = "UPDATE artifacts SET current = ?2, challenger = NULL WHERE id = ?1";
const UNPIN: &str = "UPDATE artifacts SET pinned = 0 WHERE id = ?1";
const CHALLENGE: &str = "UPDATE artifacts SET challenger = ?2 WHERE id = ?1";
/// Writes the whole row, also over that of an earlier version with the same text.
const KEEP_VERSION: &str = "
    INSERT INTO artifact_versions (
      artifact_id, version, checksum, standing, recent, sessions, shapes, successes, failures, repairs, cacheability,
      runtime_version, prompt_version, admitted_at, author, trigger_reason, parent, failure, pure, state_keys,
      manifest, code, trigger_stage, trigger_error_class, trigger_attempt_id, agreement, rejected)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?14,
            ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)
    ON CONFLICT (artifact_id, checksum) DO UPDATE
    SET version = excluded.version, standing = excluded.standing, recent = excluded.recent,
        sessions = excluded.sessions, shapes = excluded.shapes, successes = excluded.successes,
        failures = excluded.failures, repairs = excluded.repairs, cacheability = excluded.cacheability,
        runtime_version = excluded.runtime_version, prompt_version = excluded.prompt_version,
        admitted_at = excluded.admitted_at, author = excluded.author,
        rejected = excluded.rejected, trigger_reason = excluded.trigger_reason,
        parent = excluded.parent, failure = excluded.failure, pure = excluded.pure,
        state_keys = excluded.state_keys, failing_case = NULL, manifest = excluded.manifest,
        code = excluded.code, trigger_stage = excluded.trigger_stage,
        trigger_error_class = excluded.trigger_error_class, trigger_attempt_id = excluded.trigger_attempt_id,
        agreement = excluded.agreement";

/// Keeps a new program, and lets it run if the policy says so.
fn admit(
    transaction: &Connection,
    generation: &Generation,
    call: &Called<'_>,
) -> Result<Receipt, SqliteFault> {
    let new = &generation.artifact;
    let key = new.key();
    let before = load(transaction, &key)?;
    let incumbent = match &before {
        Some(_) => {
            one(transaction, INCUMBENT, bound(&key, []), |row| Ok(artifact(row, &key).ok()))?
                .flatten()
        }
        None => None,
    };
    let (id, number): (i64, u32) = transaction
        .prepare_cached(NEXT_VERSION)?
        .query_row(bound(&key, []), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (artifact, versions) = before
        .as_ref()
        .map_or((None, &[][..]), |loaded| (Some(&loaded.artifact), loaded.versions.as_slice()));
    let admitted =
        version_policy::admitted(generation, number, artifact, incumbent.as_ref(), versions);
    keep_version(transaction, (id, number), generation, admitted.counts, call)?;
    apply(transaction, id, &admitted.changes)?;
    let awaits_trial = admitted.changes.contains(&RowChange::Challenge(Some(number)));
    Ok(Receipt {
        admission: Some(admitted.admission),
        decision: admitted.decision,
        challenger: awaits_trial.then(|| new.checksum.clone()),
        generations: Some(number),
        ..Receipt::default()
    })
}

fn keep_version(
    transaction: &Connection,
    (id, number): (i64, u32),
    generation: &Generation,
    counts: FirstCounts,
    call: &Called<'_>,
) -> Result<(), SqliteFault> {
    let Generation {
        artifact: new,
        author,
        trigger,
        parent,
        failure,
        state_keys,
        pure,
        agreement,
        ..
    } = generation;
    let row = params![
        id,
        number,
        new.checksum.as_str(),
        Word(new.track_record.standing),
        new.track_record.recent.as_str(),
        call.session,
        call.shape.map_or("", ShapeDigest::as_str),
        counts.successes,
        counts.failures,
        new.repairs,
        Word(new.cacheability),
        new.runtime_version,
        PROMPT_VERSION,
        Word(author),
        Word(trigger),
        parent.as_ref().map(Checksum::as_str),
        failure.as_ref().map(|failure| &failure.message),
        pure,
        Json(state_keys),
        Json(&new.manifest),
        new.code,
        failure.as_ref().map(|failure| &failure.stage),
        failure.as_ref().map(|failure| &failure.class),
        failure.as_ref().map(|failure| failure.attempt_id),
        agreement.as_ref().map(Json),
        counts.rejected,
    ];
    run(transaction, KEEP_VERSION, row)?;
    Ok(())
}

/// The rows of one artifact.
pub(super) struct Loaded {
    id: i64,
    pub(super) artifact: ArtifactRow,
    versions: Vec<VersionRow>,
}

const ROWS: &str = "
    SELECT a.id, a.current, a.challenger, a.pinned, v.version, v.checksum, v.standing, v.recent, v.successes,
           v.rejected, v.author
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id
    WHERE a.role = ?1 AND a.method = ?2 AND a.language = ?3 AND a.contract_fingerprint = ?4";

/// The rows of one artifact; `None`: there is none.
pub(super) fn load(
    connection: &Connection,
    key: &ArtifactKey,
) -> Result<Option<Loaded>, SqliteFault> {
    let mut loaded: Option<Loaded> = None;
    rows(connection, ROWS, bound(key, []), |row| {
        let version = VersionRow {
            number: row.get(4)?,
            checksum: Checksum::stored(row.get(5)?),
            // An unknown standing, written by a newer program, counts as degraded.
            standing: row.get::<_, Word<_>>(6).map_or(Standing::Degraded, |standing| standing.0),
            recent: Window::stored(row.get(7)?),
            successes: row.get(8)?,
            rejected: row.get(9)?,
            author: row.get::<_, Word<_>>(10)?.0,
        };
        let of_artifact = match loaded.take() {
            Some(loaded) => loaded,
            None => Loaded {
                id: row.get(0)?,
                artifact: ArtifactRow {
                    current: row.get(1)?,
                    challenger: row.get(2)?,
                    pinned: row.get(3)?,
                },
                versions: Vec::new(),
            },
        };
        loaded.insert(of_artifact).versions.push(version);
        Ok(())
    })?;
    Ok(loaded)
}

const SET_STANDING: &str =
    "UPDATE artifact_versions SET standing = ?3 WHERE artifact_id = ?1 AND checksum = ?2";
const FORGET_CALLS: &str =
    "UPDATE artifact_versions SET recent = '' WHERE artifact_id = ?1 AND checksum = ?2";
const SET_FAILING: &str =
    "UPDATE artifact_versions SET failing_case = ?3 WHERE artifact_id = ?1 AND version = ?2";
const REJECT: &str =
    "UPDATE artifact_versions SET rejected = 1 WHERE artifact_id = ?1 AND checksum = ?2";
const DROP_VERSION: &str = "DELETE FROM artifact_versions WHERE artifact_id = ?1 AND version = ?2";
const DROP_CASES: &str = "DELETE FROM corpus WHERE artifact_id = ?1 AND checksum IS ?2";
const RECOUNT_CASES: &str = "
    UPDATE artifacts SET cases = (SELECT count(*) FROM corpus WHERE artifact_id = ?1) WHERE id = ?1";

/// Writes what the policy decided.
fn apply(transaction: &Connection, id: i64, changes: &[RowChange]) -> Result<(), SqliteFault> {
    for change in changes {
        match change {
            RowChange::Run(number) => run(transaction, RUN, params![id, number])?,
            RowChange::Challenge(number) => run(transaction, CHALLENGE, params![id, number])?,
            RowChange::Stand(checksum, decision) => {
                let row = params![id, checksum.as_str(), Word(decision.to)];
                run(transaction, SET_STANDING, row)?;
                record_decision(transaction, id, checksum, decision)?
            }
            RowChange::ForgetCalls(checksum) => {
                run(transaction, FORGET_CALLS, params![id, checksum.as_str()])?
            }
            RowChange::Fail(number, case) => {
                run(transaction, SET_FAILING, params![id, number, Json(case)])?
            }
            RowChange::Reject(checksum, _) => {
                run(transaction, REJECT, params![id, checksum.as_str()])?
            }
            RowChange::DropCases(checksum) => {
                let checksum = checksum.as_ref().map(Checksum::as_str);
                run(transaction, DROP_CASES, params![id, checksum])?;
                run(transaction, RECOUNT_CASES, [id])?
            }
            RowChange::Drop(number) => run(transaction, DROP_VERSION, params![id, number])?,
            RowChange::Unpin => run(transaction, UNPIN, [id])?,
        };
    }
    Ok(())
}

/// Counted here, in one statement, so that no process overwrites what another counted.
const SCORE: &str = concat!(
    "UPDATE artifact_versions
     SET successes = successes + ?6, failures = failures + ?7, recent = substr(recent || ?8, -?9),
         sessions = CASE WHEN instr(sessions, ?10) > 0 OR length(sessions) >= ?11 THEN sessions
                         ELSE sessions || ?10 END,
         shapes = CASE WHEN instr(shapes, ?12) > 0 OR length(shapes) >= ?13 THEN shapes ELSE shapes || ?12 END
     WHERE checksum = ?5 AND artifact_id = ",
    artifact_id!(),
    " RETURNING artifact_id, standing, recent, length(sessions)"
);
const COUNT_REPAIR: &str = concat!(
    "UPDATE artifact_versions SET repairs = repairs + 1 WHERE checksum = ?5 AND artifact_id = ",
    artifact_id!()
);

/// Counts a call of a stored program; gives what its record now makes of it.
fn score(
    transaction: &Connection,
    key: &ArtifactKey,
    checksum: &Checksum,
    verdict: RunVerdict,
    call: &Called<'_>,
) -> Result<Option<Decision>, SqliteFault> {
    let Some(VersionTally { succeeded, failed, mark }) = VersionTally::of(verdict) else {
        return Ok(None);
    };
    let (role, method, language, contract) = columns(key);
    let session_chars = call.session.len();
    let row = params![
        role,
        method,
        language,
        contract,
        checksum.as_str(),
        succeeded,
        failed,
        mark.to_string(),
        WINDOW,
        call.session,
        MAX_SESSIONS * session_chars,
        call.shape.map_or("", ShapeDigest::as_str),
        ProvenShapes::MAX_CHARS,
    ];
    let counted = one(transaction, SCORE, row, |row| {
        let standing: Word<Standing> = row.get(1)?;
        let evidence = Evidence {
            recent: Window::stored(row.get(2)?),
            sessions: row.get::<_, usize>(3)? / session_chars.max(1),
            state_key_agreement: None,
        };
        Ok((row.get::<_, i64>(0)?, standing.0, evidence))
    })?;
    let Some((id, standing, mut evidence)) = counted else { return Ok(None) };
    if version_policy::needs_agreement(standing, &evidence) {
        evidence.state_key_agreement = Some(agreement(transaction, &key.role)?);
    }
    let (decision, changes) = version_policy::scored(checksum, standing, &evidence);
    apply(transaction, id, &changes)?;
    Ok(Some(decision))
}

const STATE_KEYS: &str = "
    SELECT v.state_keys FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.version = a.current
    WHERE a.role = ?1 LIMIT ?2";

fn agreement(transaction: &Connection, role: &Role) -> Result<f64, SqliteFault> {
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
) -> Result<usize, SqliteFault> {
    run(transaction, RECORD_DECISION, params![id, checksum.as_str(), Json(decision)])?;
    run(transaction, TRIM_DECISIONS, params![id, MAX_DECISIONS])
}

const RECORDED_CASES: &str = "
    SELECT id, cases, EXISTS (SELECT 1 FROM corpus WHERE artifact_id = artifacts.id AND inputs_digest = ?5)
    FROM artifacts WHERE role = ?1 AND method = ?2 AND language = ?3 AND contract_fingerprint = ?4";
const RECORD_CASE: &str = "
    INSERT INTO corpus (artifact_id, inputs_digest, recorded_at, observed, inputs, checksum)
    VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?3, ?4, ?5)";
const COUNT_CASES: &str = "UPDATE artifacts SET cases = cases + ?2 WHERE id = ?1";

/// The calls recorded of an artifact, and its id; `None`: there is no artifact.
fn recorded_cases(
    transaction: &Connection,
    key: &ArtifactKey,
    inputs_digest: &str,
) -> Result<Option<(i64, RecordedCases)>, SqliteFault> {
    one(transaction, RECORDED_CASES, bound(key, [inputs_digest]), |row| {
        Ok((row.get(0)?, RecordedCases { count: row.get(1)?, has_inputs: row.get(2)? }))
    })
}

fn record_case(
    transaction: &Connection,
    key: &ArtifactKey,
    case: &Case,
    version: Option<&Checksum>,
) -> Result<(), SqliteFault> {
    let inputs_digest = case.inputs.digest();
    let recorded = recorded_cases(transaction, key, &inputs_digest)?;
    let recorded = recorded.filter(|(_, recorded)| version_policy::records_case(*recorded));
    let Some((id, _)) = recorded else { return Ok(()) };
    let version = version.map(Checksum::as_str);
    let row = params![id, inputs_digest, Json(&case.observed), Json(&case.inputs), version];
    run(transaction, RECORD_CASE, row)?;
    run(transaction, COUNT_CASES, params![id, 1])?;
    Ok(())
}

#[cfg(test)]
pub(super) const SEEKS: [&str; 23] = [
    UNPIN,
    RECALL,
    INCUMBENT,
    NEXT_VERSION,
    RUN,
    CHALLENGE,
    KEEP_VERSION,
    ROWS,
    SET_STANDING,
    FORGET_CALLS,
    SET_FAILING,
    REJECT,
    DROP_VERSION,
    DROP_CASES,
    RECOUNT_CASES,
    SCORE,
    COUNT_REPAIR,
    STATE_KEYS,
    RECORD_DECISION,
    TRIM_DECISIONS,
    RECORDED_CASES,
    RECORD_CASE,
    COUNT_CASES,
];
