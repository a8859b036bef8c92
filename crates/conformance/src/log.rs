//! Reads the log of a scenario and checks each entry against the log schema.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::Value;

use crate::scenario::{CallFilter, LogEntryQuery};

const SCHEMA: &str = include_str!("../../../specs/log-entry.schema.json");

static VALIDATOR: LazyLock<Result<jsonschema::Validator, String>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(SCHEMA).map_err(|error| error.to_string())?;
    jsonschema::validator_for(&serde_json::to_standard(&schema)).map_err(|error| error.to_string())
});

/// The entries read so far, and the agent whose call wrote each.
#[derive(Debug)]
pub(crate) struct LogReader {
    path: PathBuf,
    read_to: u64,
    entries: Vec<Value>,
    /// Indices of the entries that calls of steps wrote, by the name of the agent.
    of_agents: BTreeMap<String, Vec<usize>>,
}

impl LogReader {
    /// A reader of a log that may not exist yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read_to: 0, entries: Vec::new(), of_agents: BTreeMap::new() }
    }

    /// Reads the new entries. Each must be valid.
    pub(crate) fn read_on(&mut self) -> Result<(), String> {
        let text = self.unread().map_err(|error| format!("the log cannot be read: {error}"))?;
        for line in text.lines() {
            let number = self.entries.len() + 1;
            let entry: Value = serde_json::from_str(line)
                .map_err(|error| format!("log entry {number} is not JSON: {error}"))?;
            let validator =
                VALIDATOR.as_ref().map_err(|problem| format!("the log schema: {problem}"))?;
            if let Some(error) = validator.iter_errors(&serde_json::to_standard(&entry)).next() {
                let place = error.instance_path().to_string();
                return Err(format!("log entry {number} breaks its schema at {place:?}: {error}"));
            }
            self.entries.push(entry);
        }
        Ok(())
    }

    fn unread(&mut self) -> std::io::Result<String> {
        let mut text = String::new();
        match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(text),
            Err(error) => return Err(error),
            Ok(mut file) => {
                file.seek(SeekFrom::Start(self.read_to))?;
                self.read_to += u64::try_from(file.read_to_string(&mut text)?).unwrap_or(u64::MAX);
            }
        }
        Ok(text)
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of entries that a filter matches.
    pub(crate) fn count(&self, of: &CallFilter) -> usize {
        self.entries.iter().filter(|entry| is_of(entry, of)).count()
    }

    /// Records that a step's call on this agent wrote the newest entry.
    pub(crate) fn attribute_newest(&mut self, agent: &str) {
        if let Some(newest) = self.entries.len().checked_sub(1) {
            self.of_agents.entry(agent.to_owned()).or_default().push(newest);
        }
    }

    /// Drops the entries of an agent whose name is used for another agent.
    pub(crate) fn forget(&mut self, agent: &str) {
        self.of_agents.remove(agent);
    }

    /// The entry that a query selects.
    pub(crate) fn selected(&self, query: &LogEntryQuery) -> Result<&Value, String> {
        let numbers: Vec<usize> = match &query.target {
            None => (0..self.entries.len()).collect(),
            Some(agent) => self.of_agents.get(agent).cloned().unwrap_or_default(),
        };
        let fitting: Vec<&Value> = numbers
            .into_iter()
            .filter_map(|number| self.entries.get(number))
            .filter(|entry| is_of(entry, &query.of))
            .collect();
        let entry = match query.nth {
            None => fitting.last(),
            Some(nth) => nth.checked_sub(1).and_then(|index| fitting.get(index)),
        };
        entry.copied().ok_or_else(|| {
            format!(
                "no such log entry: {} of {} fit, of {}",
                fitting.len(),
                self.entries.len(),
                query.of
            )
        })
    }
}

fn is_of(entry: &Value, of: &CallFilter) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    of.means(text("role"), text("method"))
}
