//! What is read from the store. Every statement seeks; none looks at more rows than it gives.

use std::collections::BTreeMap;

use lifecycle::artifact::ProvenShapes;
use lifecycle::call::Memory;
use lifecycle::context::Context;
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::guardrail::SiblingState;
use lifecycle::pattern::repeated;
use lifecycle::program::Checksum;
use lifecycle::prompt::{MAX_TOOLS, PromptContext};
use lifecycle::request::{CallRequest, Role};
use lifecycle::retention::is_readable_content;
use lifecycle::session_policy;
use lifecycle::standing::StateKeys;
use lifecycle::tool::{KnownTool, Tool, ToolCandidate, most_relevant};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use serde_json::Value;

use super::super::catalog::SessionSummary;
use super::super::{
    Exhaustions, MAX_EXHAUSTIONS, MAX_HISTORY, MAX_RANKED_TOOLS, MAX_SIBLINGS_KNOWN,
    MAX_TOOL_METHODS, MAX_TOOLS_BYTES, OwnedRecord, Owner, merged,
};
use super::column::{Json, Word};
use super::fault::SqliteFault;
use super::owner_key;
use super::pattern;
use super::versions::{self, people};

pub(super) fn recall(
    connection: &Connection,
    owner: &Owner,
    request: &CallRequest,
) -> Result<Memory, SqliteFault> {
    let earlier = pattern::earlier(connection, owner, request)?;
    let (mut artifacts, has_examples) = versions::recall(connection, request)?;
    for artifact in &mut artifacts {
        // Stored before shapes were kept: its recorded calls say what it was accepted with.
        if artifact.track_record.shapes.is_empty() && artifact.track_record.cases > 0 {
            let cases = versions::version_admin::corpus(connection, &artifact.key())?;
            artifact.track_record.shapes = ProvenShapes::of_corpus(&cases);
        }
    }
    let examples = if has_examples {
        people::examples(connection, &request.role, &request.method)?
    } else {
        Vec::new()
    };
    Ok(Memory { artifacts, earlier, examples, ..Memory::default() })
}

const CANDIDATES: &str = "
    SELECT name, substr(contract ->> '$.purpose', 1, 4096), usage_count FROM tools ORDER BY last_used_at DESC LIMIT ?1";
const SIBLINGS: &str = "
    SELECT a.method, v.state_keys
    FROM artifacts a JOIN artifact_versions v ON v.artifact_id = a.id AND v.version = a.current
    WHERE a.role = ?1 AND a.method <> ?2 ORDER BY a.method LIMIT ?3";
const HISTORY_COUNT: &str =
    "SELECT history_count FROM owners WHERE kind = ?1 AND name = ?2 AND role = ?3";

pub(super) fn prompt_context(
    connection: &Connection,
    owner: &Owner,
    request: &CallRequest,
) -> Result<PromptContext, SqliteFault> {
    let candidates = rows(connection, CANDIDATES, [MAX_RANKED_TOOLS], |row| {
        Ok(ToolCandidate { name: row.get(0)?, purpose: row.get(1)?, usage_count: row.get(2)? })
    })?;
    let known = candidates.iter().map(|c| (c.name.as_str(), c.purpose.as_deref()));
    let patterns = match request.lineage.depth() {
        0 => repeated(&pattern::events(connection, &request.role)?, request, &known),
        _ => Vec::new(),
    };
    let mut tools = Vec::new();
    for name in most_relevant(candidates, request, MAX_TOOLS) {
        tools.extend(rows(connection, TOOL, params![MAX_TOOL_METHODS, name], known_tool)?);
    }
    let (role, method) = (request.role.as_str(), request.method.as_str());
    let siblings = rows(connection, SIBLINGS, params![role, method, MAX_SIBLINGS_KNOWN], |row| {
        let Json(StateKeys { reads, writes }) = row.get(1)?;
        Ok(SiblingState { method: row.get(0)?, reads, writes })
    })?;
    let count = one(connection, HISTORY_COUNT, owner_key(owner), |row| row.get(0))?;
    Ok(PromptContext {
        tools,
        siblings: merged(siblings),
        history_count: count.unwrap_or(0),
        patterns,
        rejections: people::rejections(connection, &request.role, &request.method)?,
        ..PromptContext::default()
    })
}

macro_rules! tool_columns {
    ($rest:literal) => {
        concat!(
            "SELECT name, contract, usage_count, success_count, failure_count,
                    (SELECT json_group_array(method) FROM
                      (SELECT method FROM tool_methods WHERE tool = tools.name ORDER BY method LIMIT ?1)),
                    (SELECT coalesce(sum(guardrail + outcome), 0) FROM exhaustions WHERE role = tools.name)
             FROM tools ",
            $rest
        )
    };
}
const TOOL: &str = tool_columns!("WHERE name = ?2");
const TOOLS: &str = tool_columns!("ORDER BY usage_count DESC, name LIMIT ?2");

pub(super) fn tools(
    connection: &Connection,
    name: Option<&Role>,
    limit: usize,
) -> Result<Vec<KnownTool>, SqliteFault> {
    match name {
        Some(name) if limit > 0 => {
            rows(connection, TOOL, params![MAX_TOOL_METHODS, name.as_str()], known_tool)
        }
        Some(_) => Ok(Vec::new()),
        None => most_used_tools(connection, limit),
    }
}

/// The tools that were used most, until their contracts reach [`MAX_TOOLS_BYTES`].
fn most_used_tools(connection: &Connection, limit: usize) -> Result<Vec<KnownTool>, SqliteFault> {
    let mut statement = connection.prepare_cached(TOOLS)?;
    let mut found = statement.query(params![MAX_TOOL_METHODS, bounded(limit)])?;
    let (mut tools, mut bytes) = (Vec::new(), 0);
    while let Some(row) = found.next()? {
        bytes += row.get_ref(1)?.as_bytes_or_null().ok().flatten().map_or(0, <[u8]>::len);
        if bytes > MAX_TOOLS_BYTES {
            break;
        }
        tools.push(known_tool(row)?);
    }
    Ok(tools)
}

const EXHAUSTIONS: &str = "
    SELECT method, language, contract_fingerprint, guardrail, outcome FROM exhaustions
    WHERE role = ?1 ORDER BY method, language, contract_fingerprint LIMIT ?2";

pub(super) fn exhaustions(
    connection: &Connection,
    role: &Role,
) -> Result<Vec<Exhaustions>, SqliteFault> {
    rows(connection, EXHAUSTIONS, params![role.as_str(), MAX_EXHAUSTIONS], |row| {
        Ok(Exhaustions {
            method: row.get::<_, Word<_>>(0)?.0,
            language: row.get::<_, Word<_>>(1)?.0,
            contract_fingerprint: row.get::<_, Word<_>>(2)?.0,
            guardrail: row.get(3)?,
            outcome: row.get(4)?,
        })
    })
}

fn known_tool(row: &Row<'_>) -> rusqlite::Result<KnownTool> {
    Ok(KnownTool {
        tool: Tool {
            name: row.get::<_, Word<_>>(0)?.0,
            contract: row.get::<_, Option<Json<_>>>(1)?.map(|contract| contract.0),
        },
        usage_count: row.get(2)?,
        success_count: row.get(3)?,
        failure_count: row.get(4)?,
        methods: row.get::<_, Json<_>>(5)?.0,
        exhaustion_count: row.get(6)?,
    })
}

const CONTEXT_VERSION: &str = "
    SELECT id, context_version FROM owners WHERE kind = ?1 AND name = ?2 AND role = ?3";
const CONTEXT_FLOOR: &str = "SELECT value FROM meta WHERE key = 'context_floor'";
const CONTEXT_ENTRIES: &str = "SELECT key, value FROM context_entries WHERE owner_id = ?1";

pub(super) fn context(
    connection: &Connection,
    owner: &Owner,
    held: Option<u64>,
) -> Result<Option<Context>, SqliteFault> {
    if owner.session.is_none() {
        return Ok((held != Some(0)).then(Context::default));
    }
    let snapshot = connection.unchecked_transaction()?;
    let found =
        one(&snapshot, CONTEXT_VERSION, owner_key(owner), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let Some((id, version)) = found {
        return if held == Some(version) {
            Ok(None)
        } else {
            restored(&snapshot, id, version).map(Some)
        };
    }
    let floor = one(&snapshot, CONTEXT_FLOOR, [], |row| row.get(0))?.unwrap_or(0);
    let version = session_policy::first_version(floor);
    Ok((held != Some(version)).then(|| Context::restored(version, [])))
}

fn restored(snapshot: &Connection, owner: i64, version: u64) -> Result<Context, SqliteFault> {
    let entries = rows(snapshot, CONTEXT_ENTRIES, [owner], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Json<Value>>(1)?.0))
    })?;
    Ok(Context::restored(version, entries))
}

const MANIFEST: &str = "
    SELECT manifest FROM manifests
    WHERE owner_id = (SELECT id FROM owners WHERE kind = ?1 AND name = ?2 AND role = ?3) AND language = ?4";

pub(super) fn manifest(
    connection: &Connection,
    owner: &Owner,
    language: Language,
) -> Result<Option<DependencyManifest>, SqliteFault> {
    let (kind, name, role) = owner_key(owner);
    let found = one(connection, MANIFEST, (kind, name, role, language.name()), |row| {
        row.get::<_, Json<DependencyManifest>>(0)
    })?;
    Ok(found.map(|manifest| manifest.0))
}

const CALL_POSITION: &str = "
    SELECT h.id FROM history h JOIN owners o ON o.id = h.owner_id
    WHERE h.call_id = ?4 AND o.kind = ?1 AND o.name = ?2 AND o.role = ?3";
const HISTORY: &str = "
    SELECT record FROM history
    WHERE owner_id = (SELECT id FROM owners WHERE kind = ?1 AND name = ?2 AND role = ?3) AND id < ?4
    ORDER BY id DESC LIMIT ?5";

pub(super) fn history(
    connection: &Connection,
    owner: &Owner,
    limit: usize,
    before: Option<&str>,
) -> Result<Vec<Value>, SqliteFault> {
    let (kind, name, role) = owner_key(owner);
    let end = match before {
        None => Some(i64::MAX),
        Some(call) => one(connection, CALL_POSITION, (kind, name, role, call), |row| row.get(0))?,
    };
    // A call that is no longer kept was older than all that are.
    let Some(end) = end else { return Ok(Vec::new()) };
    let newest_first = rows(connection, HISTORY, (kind, name, role, end, bounded(limit)), |row| {
        row.get::<_, Json<_>>(0)
    })?;
    Ok(newest_first.into_iter().rev().map(|record| record.0).collect())
}

/// Reads every record until the call is found: only people ask for one.
const CALL_RECORD: &str = "
    SELECT o.role, h.record FROM history h JOIN owners o ON o.id = h.owner_id
    WHERE h.call_id = ?1 ORDER BY h.id DESC LIMIT 1";

pub(super) fn call_record(
    connection: &Connection,
    call_id: &str,
) -> Result<Option<OwnedRecord>, SqliteFault> {
    one(connection, CALL_RECORD, [call_id], |row| {
        Ok(OwnedRecord { role: row.get(0)?, record: row.get::<_, Json<_>>(1)?.0 })
    })
}

const CONTENT: &str = "
    SELECT payload, id, (SELECT max(id) FROM contents) FROM contents
    WHERE reference = ?1 AND (?2 IS NULL OR created_at >= ?2) ORDER BY id DESC LIMIT 1";

pub(super) fn content(
    connection: &Connection,
    reference: &str,
    kept_since: Option<&str>,
) -> Result<Option<Value>, SqliteFault> {
    let found = one(connection, CONTENT, params![reference, kept_since], |row| {
        Ok((row.get::<_, Json<_>>(0)?.0, row.get(1)?, row.get(2)?))
    })?;
    Ok(found.and_then(|(payload, id, newest)| is_readable_content(id, newest).then_some(payload)))
}

const ANSWER: &str = "SELECT answer FROM answers WHERE digest = ?1";

pub(super) fn answers(
    connection: &Connection,
    keys: &[Checksum],
) -> Result<BTreeMap<Checksum, Value>, SqliteFault> {
    let mut found = BTreeMap::new();
    for key in keys {
        let answer = one(connection, ANSWER, [key.as_str()], |row| row.get::<_, Json<Value>>(0))?;
        found.extend(answer.map(|answer| (key.clone(), answer.0)));
    }
    Ok(found)
}

const SESSIONS: &str = "
    SELECT name, role, (SELECT count(*) FROM context_entries WHERE owner_id = owners.id),
           max(context_version, 0), updated_at, max(history_count, 0)
    FROM owners WHERE kind = 'session' ORDER BY name, role";

pub(super) fn sessions(connection: &Connection) -> Result<Vec<SessionSummary>, SqliteFault> {
    rows(connection, SESSIONS, [], |row| {
        Ok(SessionSummary {
            name: row.get(0)?,
            role: row.get(1)?,
            keys: row.get(2)?,
            version: row.get(3)?,
            updated_at: row.get(4)?,
            history_count: row.get(5)?,
        })
    })
}

const SESSION: &str = "
    SELECT role, id, context_version FROM owners WHERE kind = 'session' AND name = ?1 ORDER BY role";

pub(super) fn session_context(
    connection: &Connection,
    name: &str,
) -> Result<Vec<(String, Context)>, SqliteFault> {
    let snapshot = connection.unchecked_transaction()?;
    let agents =
        rows(&snapshot, SESSION, [name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    agents
        .into_iter()
        .map(|(role, id, version)| Ok((role, restored(&snapshot, id, version)?)))
        .collect()
}

pub(super) fn rows<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, SqliteFault> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params, map)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn one<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, SqliteFault> {
    Ok(connection.prepare_cached(sql)?.query_row(params, map).optional()?)
}

/// No list is longer than the longest history.
pub(super) fn bounded(limit: usize) -> u64 {
    u64::try_from(limit).unwrap_or(u64::MAX).min(2 * MAX_HISTORY)
}

#[cfg(test)]
pub(super) const SEEKS: [&str; 13] = [
    ANSWER,
    MANIFEST,
    SIBLINGS,
    HISTORY_COUNT,
    TOOL,
    EXHAUSTIONS,
    CONTEXT_VERSION,
    CONTEXT_FLOOR,
    CONTEXT_ENTRIES,
    CALL_POSITION,
    HISTORY,
    CONTENT,
    SESSION,
];
#[cfg(test)]
pub(super) const BOUNDED_SCANS: [&str; 3] = [CANDIDATES, TOOLS, CALL_RECORD];
/// What people ask for, and what runs once for many calls: the cost may depend on how much is stored.
#[cfg(test)]
pub(super) const MAINTENANCE: [&str; 1] = [SESSIONS];
