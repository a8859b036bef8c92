//! The scenario's log, read back and held to its schema.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::Value;

use super::scenario::{Choice, Naming};

const SCHEMA: &str = include_str!("../../../../specs/log-entry.schema.json");

static VALIDATOR: LazyLock<Result<jsonschema::Validator, String>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(SCHEMA).map_err(|error| error.to_string())?;
    jsonschema::validator_for(&serde_json::to_standard(&schema)).map_err(|error| error.to_string())
});

/// The log as far as it was read, and which calls of steps wrote what.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    read_to: u64,
    entries: Vec<Value>,
    /// Entries of the dynamic calls steps made, by the name of the agent.
    of_agents: BTreeMap<String, Vec<usize>>,
}

impl Journal {
    /// Of a log that may not be there yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, read_to: 0, entries: Vec::new(), of_agents: BTreeMap::new() }
    }

    /// Reads what was written since; every entry must be valid.
    pub(super) fn read_on(&mut self) -> Result<(), String> {
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

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many are of these names.
    pub(super) fn count(&self, of: &Naming) -> usize {
        self.entries.iter().filter(|entry| is_of(entry, of)).count()
    }

    /// The newest entry was written by a call a step made on this agent.
    pub(super) fn attribute_newest(&mut self, agent: &str) {
        if let Some(newest) = self.entries.len().checked_sub(1) {
            self.of_agents.entry(agent.to_owned()).or_default().push(newest);
        }
    }

    /// Another agent has this name now.
    pub(super) fn forget(&mut self, agent: &str) {
        self.of_agents.remove(agent);
    }

    /// The entry a choice means.
    pub(super) fn chosen(&self, choice: &Choice) -> Result<&Value, String> {
        let numbers: Vec<usize> = match &choice.target {
            None => (0..self.entries.len()).collect(),
            Some(agent) => self.of_agents.get(agent).cloned().unwrap_or_default(),
        };
        let fitting: Vec<&Value> = numbers
            .into_iter()
            .filter_map(|number| self.entries.get(number))
            .filter(|entry| is_of(entry, &choice.of))
            .collect();
        let entry = match choice.nth {
            None => fitting.last(),
            Some(nth) => nth.checked_sub(1).and_then(|index| fitting.get(index)),
        };
        entry.copied().ok_or_else(|| {
            format!(
                "no such log entry: {} of {} fit, of {}",
                fitting.len(),
                self.entries.len(),
                choice.of
            )
        })
    }
}

fn is_of(entry: &Value, of: &Naming) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    of.means(text("role"), text("method"))
}
