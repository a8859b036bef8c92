//! `sessions/<session>/<role>.json`: the memory, history and packages of one agent of a session.

use lifecycle::context::MAX_CONTEXT_BYTES;
use lifecycle::request::encoded_bytes;
use lifecycle::retention::MAX_HISTORY;
use serde_json::{Map, Value, json};

use super::super::bundle::SessionEntry;
use super::SCHEMA_VERSION;
use super::wire::JsonFields;

/// Most records of a history that are read: a store keeps no more.
const MAX_RECORDS: u64 = 2 * MAX_HISTORY;

pub(super) fn file(entry: &SessionEntry) -> Value {
    let packages: Map<String, Value> = entry
        .packages
        .iter()
        .map(|(language, manifest)| (language.name().to_owned(), manifest.to_json()))
        .collect();
    json!({
        "schema_version": SCHEMA_VERSION,
        "session": entry.name,
        "role": entry.role,
        "context_version": entry.version,
        "updated_at": entry.updated_at,
        "memory": entry.memory,
        "packages": packages,
        "history": entry.history,
    })
}

pub(super) fn read(file: &Value) -> Result<SessionEntry, String> {
    let fields = JsonFields::of(file)?;
    let name = fields.needed("session")?;
    if name.trim().is_empty() || name.trim() != name {
        return Err(format!("`session` is {name:?}; a name without spaces around it is needed"));
    }
    let memory: Map<String, Value> = fields.typed("memory")?.unwrap_or_default();
    let bytes: usize = memory.values().map(encoded_bytes).sum();
    if bytes > MAX_CONTEXT_BYTES {
        return Err(format!("`memory` has {bytes} bytes, and {MAX_CONTEXT_BYTES} is the most"));
    }
    let history: Vec<Value> = fields.typed("history")?.unwrap_or_default();
    if history.len() as u64 > MAX_RECORDS {
        return Err(format!(
            "`history` has {} records, and {MAX_RECORDS} is the most",
            history.len()
        ));
    }
    let is_record = |record: &Value| record.get("call_id").is_some_and(Value::is_string);
    if let Some(index) = history.iter().position(|record| !is_record(record)) {
        return Err(format!("`history[{index}]` is not the record of a call: it has no `call_id`"));
    }
    Ok(SessionEntry {
        name,
        role: fields.role()?,
        version: fields.number("context_version")?.unwrap_or_default(),
        updated_at: fields.time("updated_at")?.ok_or("it has no `updated_at`")?,
        memory,
        history,
        packages: fields.typed("packages")?.unwrap_or_default(),
    })
}
