//! What a call leaves behind, written in the one transaction it is given.

use lifecycle::attempt::RetryLane;
use lifecycle::call::StoreFault;
use lifecycle::context::ContextChanges;
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::history::Content;
use lifecycle::inference::KeptAnswer;
use lifecycle::request::CallRequest;
use lifecycle::retention::{
    ContentBounds, MAX_INSTANCES, excess_records, is_instance_batch, last_expired_record,
};
use lifecycle::session_policy::{self, PackageChange};
use lifecycle::settlement::{Changes, Kept, Receipt};
use lifecycle::tool::{Tool, ToolCount, counts_early_call};
use rusqlite::{Connection, Params, params};

use super::super::Owner;
use super::column::{Json, Word};
use super::fault::SqliteFault;
use super::owner_key;
use super::pattern;
use super::read::{one, rows};
use super::versions;

pub(super) fn commit(
    transaction: &Connection,
    owner: &Owner,
    request: &CallRequest,
    changes: &Changes,
) -> Result<Receipt, SqliteFault> {
    let owner_row = owner_row(transaction, owner, 1)?;
    if let Some(Kept { context, tools, manifest }) = &changes.kept {
        let packages = keep_manifest(transaction, owner, &owner_row, request.language, manifest)?;
        if packages == PackageChange::Changed || !context.is_empty() {
            set_context(transaction, owner, &owner_row, request.context.version(), context)?;
        }
        for tool in tools {
            keep_tool(transaction, tool)?;
        }
    }
    count_call(transaction, request, changes.counted)?;
    let mut receipt = versions::settle(transaction, owner, request, changes)?;
    if let Some(lane) = changes.exhausted {
        count_exhaustion(transaction, request, lane)?;
    }
    record(transaction, &owner_row, request, changes)?;
    pattern::observe(transaction, owner, request, &changes.event)?;
    for content in &changes.contents {
        receipt.contents_evicted += keep_content(transaction, &owner_row, content)?;
    }
    keep_answers(transaction, changes)?;
    if let Some(since) = &changes.contents_kept_since {
        receipt.contents_evicted += drop_contents(transaction, |oldest| oldest.kept_at < *since)?;
    }
    receipt.history_count = Some(trim(transaction, owner, &owner_row)?);
    Ok(receipt)
}

pub(super) fn remember(
    transaction: &Connection,
    owner: &Owner,
    base: u64,
    changes: &ContextChanges,
) -> Result<(), SqliteFault> {
    let owner_row = owner_row(transaction, owner, 0)?;
    set_context(transaction, owner, &owner_row, base, changes)
}

/// The row of an owner.
struct OwnerRow {
    id: i64,
    context_version: u64,
    history_count: u64,
}

/// A new session starts at [`session_policy::first_version`].
const OWNER_ROW: &str = "
    INSERT INTO owners (kind, name, role, context_version, history_count, updated_at)
    VALUES (?1, ?2, ?3, (SELECT value FROM meta WHERE key = 'context_floor'), ?4,
            strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
    ON CONFLICT (kind, name, role) DO UPDATE
    SET history_count = history_count + ?4, updated_at = excluded.updated_at
    RETURNING id, context_version, history_count";

/// Finds or makes the owner's row and counts the records about to be added to it.
fn owner_row(
    transaction: &Connection,
    owner: &Owner,
    records: u64,
) -> Result<OwnerRow, SqliteFault> {
    let (kind, name, role) = owner_key(owner);
    let owner_row = transaction.prepare_cached(OWNER_ROW)?.query_row(
        params![kind, name, role, records],
        |row| {
            Ok(OwnerRow {
                id: row.get(0)?,
                context_version: row.get(1)?,
                history_count: row.get(2)?,
            })
        },
    )?;
    Ok(owner_row)
}

const NEXT_CONTEXT: &str = "UPDATE owners SET context_version = ?2 WHERE id = ?1";
const UNSET: &str = "DELETE FROM context_entries WHERE owner_id = ?1 AND key = ?2";
const SET: &str = "
    INSERT INTO context_entries (owner_id, key, value) VALUES (?1, ?2, ?3)
    ON CONFLICT (owner_id, key) DO UPDATE SET value = excluded.value";

/// Sets if [`session_policy::next_version`] allows it; as `Context::apply`, removals first. Memory without a session is
/// not stored.
fn set_context(
    transaction: &Connection,
    owner: &Owner,
    owner_row: &OwnerRow,
    base: u64,
    changes: &ContextChanges,
) -> Result<(), SqliteFault> {
    let Some(session) = &owner.session else { return Ok(()) };
    let Some(next) = session_policy::next_version(owner_row.context_version, base) else {
        return Err(StoreFault::Conflict { session: session.clone() }.into());
    };
    run(transaction, NEXT_CONTEXT, params![owner_row.id, next])?;
    for key in &changes.unset {
        run(transaction, UNSET, params![owner_row.id, key])?;
    }
    for (key, value) in &changes.set {
        run(transaction, SET, params![owner_row.id, key, Json(value)])?;
    }
    Ok(())
}

const HELD_MANIFEST: &str = "SELECT manifest FROM manifests WHERE owner_id = ?1 AND language = ?2";
const KEEP_MANIFEST: &str = "
    INSERT INTO manifests (owner_id, language, manifest) VALUES (?1, ?2, ?3)
    ON CONFLICT (owner_id, language) DO UPDATE SET manifest = excluded.manifest";

/// Keeps the packages a session's agent holds; gives how they differ from what was kept.
fn keep_manifest(
    transaction: &Connection,
    owner: &Owner,
    owner_row: &OwnerRow,
    language: Language,
    manifest: &DependencyManifest,
) -> Result<PackageChange, SqliteFault> {
    if owner.session.is_none() {
        return Ok(PackageChange::None);
    }
    let stored = one(transaction, HELD_MANIFEST, params![owner_row.id, language.name()], |row| {
        row.get::<_, Json<DependencyManifest>>(0)
    })?;
    let change = session_policy::packages(stored.as_ref().map(|stored| &stored.0), manifest);
    if change != PackageChange::None {
        run(transaction, KEEP_MANIFEST, params![owner_row.id, language.name(), Json(manifest)])?;
    }
    Ok(change)
}

/// A tool asked for again without a contract keeps the one it has.
const RENEW_TOOL: &str = "
    UPDATE tools SET contract = coalesce(?2, contract), last_used_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE name = ?1";
/// Counts calls made before the tool was registered.
const ADD_TOOL: &str = "
    INSERT INTO tools (name, contract, usage_count, success_count, failure_count, created_at, last_used_at)
    SELECT ?1, ?2, coalesce(sum(calls), 0), coalesce(sum(successes), 0), coalesce(sum(failures), 0),
           strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    FROM early_calls WHERE role = ?1";
const ADOPT_METHODS: &str = "
    INSERT INTO tool_methods (tool, method) SELECT DISTINCT role, method FROM artifacts WHERE role = ?1";
const FORGET_EARLY_CALLS: &str = "DELETE FROM early_calls WHERE role = ?1";

pub(super) fn keep_tool(transaction: &Connection, tool: &Tool) -> Result<(), SqliteFault> {
    let name = tool.name.as_str();
    let row = params![name, tool.contract.as_ref().map(Json)];
    if run(transaction, RENEW_TOOL, row)? == 0 {
        run(transaction, ADD_TOOL, row)?;
        run(transaction, ADOPT_METHODS, [name])?;
        run(transaction, FORGET_EARLY_CALLS, [name])?;
    }
    Ok(())
}

const COUNT_CALL: &str = "
    UPDATE tools SET usage_count = usage_count + 1, success_count = success_count + ?2,
                     failure_count = failure_count + ?3, last_used_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE name = ?1";
const COUNT_EARLY_CALL: &str = "
    INSERT INTO early_calls (role, calls, successes, failures) VALUES (?1, 1, ?2, ?3)
    ON CONFLICT (role) DO UPDATE
    SET calls = calls + 1, successes = successes + excluded.successes, failures = failures + excluded.failures";
const ADD_METHOD: &str = "INSERT OR IGNORE INTO tool_methods (tool, method) VALUES (?1, ?2)";

/// Counts a call in the registry entry of its role, if that is a tool, else where [`counts_early_call`] says so.
fn count_call(
    transaction: &Connection,
    request: &CallRequest,
    counted: ToolCount,
) -> Result<(), SqliteFault> {
    let role = request.role.as_str();
    let row = params![role, counted == ToolCount::Success, counted == ToolCount::Failure];
    if run(transaction, COUNT_CALL, row)? > 0 {
        run(transaction, ADD_METHOD, params![role, request.method.as_str()])?;
    } else if counts_early_call(request) {
        run(transaction, COUNT_EARLY_CALL, row)?;
    }
    Ok(())
}

const COUNT_EXHAUSTION: &str = "
    INSERT INTO exhaustions (role, method, language, contract_fingerprint, guardrail, outcome)
    VALUES (?1, ?2, ?3, ?4, ?5, NOT ?5)
    ON CONFLICT (role, method, language, contract_fingerprint) DO UPDATE
    SET guardrail = guardrail + excluded.guardrail, outcome = outcome + excluded.outcome";

fn count_exhaustion(
    transaction: &Connection,
    request: &CallRequest,
    lane: RetryLane,
) -> Result<(), SqliteFault> {
    if !lane.counts_against_program() {
        return Ok(());
    }
    let row = params![
        request.role.as_str(),
        request.method.as_str(),
        request.language.name(),
        Word(request.contract_fingerprint()),
        lane == RetryLane::Guardrail,
    ];
    run(transaction, COUNT_EXHAUSTION, row)?;
    Ok(())
}

const KEEP_CONTENT: &str = "
    INSERT INTO contents (owner_id, reference, start, bytes, created_at, payload)
    VALUES (?1, ?2, coalesce((SELECT start + bytes FROM contents ORDER BY id DESC LIMIT 1), 0), ?3,
            strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?4)
    RETURNING id, start + bytes";
const OLDEST_CONTENT: &str = "SELECT id, start, created_at FROM contents ORDER BY id LIMIT 1";
const DROP_CONTENT: &str = "DELETE FROM contents WHERE id = ?1";

/// The value kept longest.
struct OldestContent {
    id: u64,
    start: u64,
    kept_at: String,
}

/// Ids and the bytes before a value only grow, so the values to drop are the first ones. Gives how many were dropped.
fn keep_content(
    transaction: &Connection,
    owner_row: &OwnerRow,
    content: &Content,
) -> Result<u64, SqliteFault> {
    let row = params![owner_row.id, content.reference, content.payload.len(), content.payload];
    let (newest, end): (u64, u64) = transaction
        .prepare_cached(KEEP_CONTENT)?
        .query_row(row, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let bounds = ContentBounds::after(newest, end);
    drop_contents(transaction, |oldest| bounds.excludes(oldest.id, oldest.start))
}

const KEEP_ANSWER: &str = "
    INSERT OR IGNORE INTO answers (digest, start, bytes, answer)
    VALUES (?1, coalesce((SELECT start + bytes FROM answers WHERE id = (SELECT max(id) FROM answers)), 0), ?2, ?3)";
/// The newest is always kept, so that the sum of bytes goes on.
const DROP_ANSWERS: &str = "
    DELETE FROM answers
    WHERE start < (SELECT start + bytes FROM answers WHERE id = (SELECT max(id) FROM answers)) - ?1
    AND +id < (SELECT max(id) FROM answers)";

/// Adds answers and drops the oldest beyond the space they may take.
fn keep_answers(transaction: &Connection, changes: &Changes) -> Result<(), SqliteFault> {
    if changes.answers.is_empty() {
        return Ok(());
    }
    for KeptAnswer { key, answer } in &changes.answers {
        let text = answer.to_string();
        // A row has its key and numbers beside the answer.
        let bytes = text.len() + key.as_str().len();
        run(transaction, KEEP_ANSWER, params![key.as_str(), bytes, text])?;
    }
    run(transaction, DROP_ANSWERS, [changes.answers_bytes])?;
    Ok(())
}

/// Drops the first of the kept values while they are too old.
fn drop_contents(
    transaction: &Connection,
    too_old: impl Fn(&OldestContent) -> bool,
) -> Result<u64, SqliteFault> {
    let mut dropped = 0;
    loop {
        let oldest = one(transaction, OLDEST_CONTENT, [], |row| {
            Ok(OldestContent { id: row.get(0)?, start: row.get(1)?, kept_at: row.get(2)? })
        })?;
        let Some(oldest) = oldest.filter(&too_old) else { return Ok(dropped) };
        run(transaction, DROP_CONTENT, [oldest.id])?;
        dropped += 1;
    }
}

const RECORD: &str = "INSERT INTO history (owner_id, call_id, record) VALUES (?1, ?2, ?3)";
/// Corrects owners' counts. Runs before `DROP_EXPIRED`.
const UNCOUNT_EXPIRED: &str = "
    UPDATE owners SET history_count = max(0, history_count - (
      SELECT count(*) FROM history WHERE owner_id = owners.id AND id <= ?1))
    WHERE id IN (SELECT owner_id FROM history WHERE id <= ?1)";
const DROP_EXPIRED: &str = "DELETE FROM history WHERE id <= ?1";

/// Adds the record of a call. Once in a while the oldest records of the store are dropped.
fn record(
    transaction: &Connection,
    owner_row: &OwnerRow,
    request: &CallRequest,
    changes: &Changes,
) -> Result<(), SqliteFault> {
    run(transaction, RECORD, params![owner_row.id, request.id.0, Json(&changes.record)])?;
    let newest = u64::try_from(transaction.last_insert_rowid()).unwrap_or_default();
    if let Some(last) = last_expired_record(newest) {
        run(transaction, UNCOUNT_EXPIRED, [last])?;
        run(transaction, DROP_EXPIRED, [last])?;
    }
    Ok(())
}

const TRIM_HISTORY: &str = "
    DELETE FROM history WHERE owner_id = ?1 AND id <= (
      SELECT id FROM history WHERE owner_id = ?1 ORDER BY id LIMIT 1 OFFSET ?2 - 1)";
const UNCOUNT: &str = "UPDATE owners SET history_count = history_count - ?2 WHERE id = ?1";
/// Sorts the instances there are: a thousand or so, once per batch of new ones.
const TRIM_INSTANCES: &str = "
    DELETE FROM owners WHERE kind = 'instance' AND updated_at < (
      SELECT updated_at FROM owners WHERE kind = 'instance' ORDER BY updated_at DESC LIMIT 1 OFFSET ?1)";

/// Once in a while, in batches: the oldest records of this owner, and the owners longest unused. Gives how many
/// records the owner is left with.
fn trim(transaction: &Connection, owner: &Owner, owner_row: &OwnerRow) -> Result<u64, SqliteFault> {
    let mut left = owner_row.history_count;
    if let Some(excess) = excess_records(owner_row.history_count) {
        let trimmed = run(transaction, TRIM_HISTORY, params![owner_row.id, excess])?;
        run(transaction, UNCOUNT, params![owner_row.id, trimmed])?;
        left = left.saturating_sub(trimmed as u64);
    }
    if owner.session.is_none() && is_instance_batch(owner_row.id, owner_row.history_count) {
        run(transaction, TRIM_INSTANCES, [MAX_INSTANCES])?;
    }
    Ok(left)
}

/// The second column is null if there is no such session.
const HIGHEST_VERSION: &str = "
    SELECT coalesce((SELECT value FROM meta WHERE key = 'context_floor'), 0), max(max(context_version), 0)
    FROM owners WHERE kind = 'session' AND name = ?1";
const RAISE_FLOOR: &str = "UPDATE meta SET value = ?1 WHERE key = 'context_floor'";
const REMOVE_SESSION: &str = "DELETE FROM owners WHERE kind = 'session' AND name = ?1";
const SESSION_EXISTS: &str = "SELECT 1 FROM owners WHERE kind = 'session' AND name = ?1 LIMIT 1";

pub(super) fn remove_session(transaction: &Connection, name: &str) -> Result<bool, SqliteFault> {
    let known = one(transaction, HIGHEST_VERSION, [name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let Some((floor, Some(highest))) = known else { return Ok(false) };
    run(transaction, RAISE_FLOOR, [session_policy::floor_after_removal(floor, highest)])?;
    run(transaction, REMOVE_SESSION, [name])?;
    Ok(true)
}

const FORGET_MEMORY: &str = "
    DELETE FROM context_entries WHERE key = ?2
      AND owner_id IN (SELECT id FROM owners WHERE kind = 'session' AND name = ?1)";
const VERSIONS: &str =
    "SELECT id, max(context_version, 0) FROM owners WHERE kind = 'session' AND name = ?1";

/// Does not read the value: it may be the one that cannot be read.
pub(super) fn forget_memory(
    transaction: &Connection,
    name: &str,
    key: &str,
) -> Result<Option<usize>, SqliteFault> {
    let owners: Vec<(i64, u64)> =
        rows(transaction, VERSIONS, [name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if owners.is_empty() {
        return Ok(None);
    }
    let forgotten = run(transaction, FORGET_MEMORY, [name, key])?;
    for (id, version) in owners {
        run(transaction, NEXT_CONTEXT, params![id, session_policy::after_forgetting(version)])?;
    }
    Ok(Some(forgotten))
}

const PURGE_HISTORY: &str = "
    DELETE FROM history WHERE owner_id IN (SELECT id FROM owners WHERE kind = 'session' AND name = ?1)";
const PURGE_CONTENTS: &str = "
    DELETE FROM contents WHERE owner_id IN (SELECT id FROM owners WHERE kind = 'session' AND name = ?1)";
const UNCOUNT_ALL: &str =
    "UPDATE owners SET history_count = 0 WHERE kind = 'session' AND name = ?1";

pub(super) fn purge_session(
    transaction: &Connection,
    name: &str,
) -> Result<Option<usize>, SqliteFault> {
    if one(transaction, SESSION_EXISTS, [name], |_| Ok(()))?.is_none() {
        return Ok(None);
    }
    let records = run(transaction, PURGE_HISTORY, [name])?;
    run(transaction, PURGE_CONTENTS, [name])?;
    run(transaction, UNCOUNT_ALL, [name])?;
    Ok(Some(records))
}

/// Runs a statement; gives the number of rows it changed.
pub(super) fn run(
    transaction: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<usize, SqliteFault> {
    Ok(transaction.prepare_cached(sql)?.execute(params)?)
}

#[cfg(test)]
pub(super) const SEEKS: [&str; 25] = [
    KEEP_ANSWER,
    DROP_ANSWERS,
    OWNER_ROW,
    HELD_MANIFEST,
    KEEP_MANIFEST,
    NEXT_CONTEXT,
    UNSET,
    SET,
    RENEW_TOOL,
    ADD_TOOL,
    ADOPT_METHODS,
    FORGET_EARLY_CALLS,
    COUNT_CALL,
    COUNT_EARLY_CALL,
    ADD_METHOD,
    COUNT_EXHAUSTION,
    DROP_CONTENT,
    RECORD,
    UNCOUNT_EXPIRED,
    DROP_EXPIRED,
    TRIM_HISTORY,
    UNCOUNT,
    HIGHEST_VERSION,
    RAISE_FLOOR,
    REMOVE_SESSION,
];
/// Scans that stop at their limit.
#[cfg(test)]
pub(super) const BOUNDED_SCANS: [&str; 2] = [KEEP_CONTENT, OLDEST_CONTENT];
/// What people ask for, and what runs once for many calls: the cost may depend on how much is stored.
#[cfg(test)]
pub(super) const MAINTENANCE: [&str; 7] = [
    TRIM_INSTANCES,
    SESSION_EXISTS,
    FORGET_MEMORY,
    VERSIONS,
    PURGE_HISTORY,
    PURGE_CONTENTS,
    UNCOUNT_ALL,
];
