//! Pattern memory: the last calls of each role.

use lifecycle::correction::{MAX_REASK_DISTANCE, may_correct};
use lifecycle::pattern::{MAX_EVENTS, PatternEvent};
use lifecycle::request::{CallRequest, Role};
use lifecycle::retention::last_expired_event;
use rusqlite::{Connection, params};

use super::super::{Owner, session_mark};
use super::column::{Json, Word};
use super::fault::SqliteFault;
use super::read::{one, rows};
use super::write::run;

const EARLIER: &str = "
    SELECT event FROM (
      SELECT method, trace_id, event FROM patterns WHERE role = ?1 ORDER BY sequence DESC LIMIT ?4)
    WHERE method = ?2 AND trace_id = ?3 LIMIT 1";

/// The earlier call that a call may correct. An event this version cannot read is ignored.
pub(super) fn earlier(
    connection: &Connection,
    owner: &Owner,
    request: &CallRequest,
) -> Result<Option<PatternEvent>, SqliteFault> {
    if !may_correct(request) {
        return Ok(None);
    }
    let (role, method) = (request.role.as_str(), request.method.as_str());
    let key = params![role, method, session_mark(owner, request), MAX_REASK_DISTANCE];
    let found = one(connection, EARLIER, key, |row| row.get::<_, String>(0))?;
    Ok(found.and_then(|event| serde_json::from_str(&event).ok()))
}

const EVENTS: &str =
    "SELECT trace_id, event FROM patterns WHERE role = ?1 ORDER BY sequence DESC LIMIT ?2";

pub(super) fn events(
    connection: &Connection,
    role: &Role,
) -> Result<Vec<PatternEvent>, SqliteFault> {
    Ok(marked_events(connection, role)?.into_iter().map(|(_, event)| event).collect())
}

/// Each with the mark of the session it belongs to.
pub(super) fn marked_events(
    connection: &Connection,
    role: &Role,
) -> Result<Vec<(String, PatternEvent)>, SqliteFault> {
    let newest_first = params![role.as_str(), MAX_EVENTS];
    let events = rows(connection, EVENTS, newest_first, |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    })?;
    let parsed = |(mark, event): (String, String)| Some((mark, serde_json::from_str(&event).ok()?));
    Ok(events.into_iter().rev().filter_map(parsed).collect())
}

const NEXT_ROLE: &str = "SELECT role FROM patterns WHERE role > ?1 ORDER BY role LIMIT 1";

/// Lists roles by one index seek each, because each has many events.
pub(super) fn roles(
    connection: &Connection,
    limit: usize,
    after: Option<&Role>,
) -> Result<Vec<Role>, SqliteFault> {
    let mut roles: Vec<Role> = Vec::new();
    let mut last = after.map_or("", Role::as_str).to_owned();
    while roles.len() < limit {
        let Some(Word(role)) = one(connection, NEXT_ROLE, [&last], |row| row.get(0))? else {
            break;
        };
        let role: Role = role;
        role.as_str().clone_into(&mut last);
        roles.push(role);
    }
    Ok(roles)
}

const OBSERVE: &str = "
    INSERT INTO patterns (role, sequence, method, trace_id, event)
    VALUES (?1, 1 + coalesce((SELECT max(sequence) FROM patterns WHERE role = ?1), 0), ?2, ?3, ?4)
    RETURNING sequence";
const DROP_EVENTS: &str = "DELETE FROM patterns WHERE role = ?1 AND sequence <= ?2";

/// Adds to pattern memory; its numbers only grow, so what is too old is found without counting, and dropped once in
/// a while. The call that a later one may correct is found by the mark of its session, which stands in the column of the
/// trace.
pub(super) fn observe(
    transaction: &Connection,
    owner: &Owner,
    request: &CallRequest,
    event: &PatternEvent,
) -> Result<(), SqliteFault> {
    let role = request.role.as_str();
    let mark = session_mark(owner, request);
    let row = params![role, request.method.as_str(), mark, Json(event)];
    let newest: usize = transaction.prepare_cached(OBSERVE)?.query_row(row, |row| row.get(0))?;
    if let Some(last) = last_expired_event(newest) {
        run(transaction, DROP_EVENTS, params![role, last])?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) const SEEKS: [&str; 5] = [EARLIER, EVENTS, NEXT_ROLE, OBSERVE, DROP_EVENTS];
