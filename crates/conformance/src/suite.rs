//! Reads the scenarios of a directory of YAML files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Number, Value};

use crate::fields::{MapReader, list};
use crate::parse;
use crate::program::ProgramTable;
use crate::scenario::Scenario;

/// The version of the format that this runner reads.
const FORMAT_VERSION: u64 = 1;
/// Read before the other files, which may all use its programs.
const SHARED_FILE: &str = "programs.yaml";

/// The scenarios of a directory, ordered by file name and position.
#[derive(Debug)]
pub struct Suite(Vec<SuiteEntry>);

/// One scenario, or why it cannot run.
#[derive(Debug)]
pub(crate) struct SuiteEntry {
    pub(crate) id: String,
    pub(crate) file: String,
    pub(crate) scenario: Result<Scenario, String>,
}

impl Suite {
    /// Reads a directory. The error names the file that cannot be used.
    pub fn read(directory: &Path) -> Result<Self, String> {
        let mut shared = ProgramTable::built_in()?;
        let mut entries = Vec::new();
        for path in files(directory)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let fault = |problem: String| format!("{}: {problem}", path.display());
            let text = fs::read_to_string(&path).map_err(|error| fault(error.to_string()))?;
            let mut fields = MapReader::of(yaml(&text).map_err(fault)?).map_err(fault)?;
            let programs = header(&mut fields, &shared).map_err(fault)?;
            let scenarios = fields.optional(&["scenarios"], list).map_err(fault)?;
            fields.finish().map_err(fault)?;
            if name == SHARED_FILE {
                shared = programs.clone();
            }
            for (index, value) in scenarios.unwrap_or_default().into_iter().enumerate() {
                entries.push(entry(value, &name, index + 1, &programs));
            }
        }
        check_unique_ids(&entries)?;
        if entries.is_empty() {
            return Err(format!("no scenarios in {}", directory.display()));
        }
        Ok(Self(entries))
    }

    /// Keeps the scenarios whose id contains `pattern`, or matches all of it if it has a `*`.
    pub fn only(mut self, pattern: &str) -> Result<Self, String> {
        self.0.retain(|entry| matches_pattern(pattern, &entry.id));
        if self.0.is_empty() {
            return Err(format!("no scenario id matches {pattern:?}"));
        }
        Ok(self)
    }

    /// The scenarios.
    pub(crate) fn entries(&self) -> &[SuiteEntry] {
        &self.0
    }

    /// The number of scenarios.
    pub fn scenario_count(&self) -> usize {
        self.0.len()
    }
}

/// The YAML files of a directory by name, with the shared file first.
fn files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let fault = |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            paths.push(path);
        }
    }
    let shared = |path: &PathBuf| path.file_name().is_some_and(|name| name == SHARED_FILE);
    paths.sort_by_key(|path| (!shared(path), path.clone()));
    Ok(paths)
}

/// Reads version, profile and programs of a file.
fn header(fields: &mut MapReader, shared: &ProgramTable) -> Result<ProgramTable, String> {
    let version = fields.take(&["version"])?.unwrap_or_else(|| FORMAT_VERSION.into());
    if version.as_u64() != Some(FORMAT_VERSION) {
        return Err(format!("format version {version} is not supported; use {FORMAT_VERSION}"));
    }
    fields.take(&["profile"])?;
    shared.with(fields)
}

fn entry(value: Value, file: &str, number: usize, programs: &ProgramTable) -> SuiteEntry {
    let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
    SuiteEntry {
        id: id.unwrap_or_else(|| format!("{file}#{number}")),
        file: file.to_owned(),
        scenario: parse::scenario(value, programs),
    }
}

fn check_unique_ids(entries: &[SuiteEntry]) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for entry in entries {
        if let Some(other) = seen.insert(&entry.id, &entry.file) {
            return Err(format!("scenario {} is in {other} and again in {}", entry.id, entry.file));
        }
    }
    Ok(())
}

/// Whether a name matches a pattern. `*` stands for any text; a pattern without `*` may be anywhere in the name.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return name.contains(pattern) };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(tail)
}

/// YAML as JSON. Duplicate keys, tags and numbers that JSON does not have are errors.
pub(crate) fn yaml(text: &str) -> Result<Value, String> {
    let mut value: serde_norway::Value =
        serde_norway::from_str(text).map_err(|error| error.to_string())?;
    value.apply_merge().map_err(|error| error.to_string())?;
    json(value)
}

fn json(value: serde_norway::Value) -> Result<Value, String> {
    use serde_norway::Value as Yaml;
    match value {
        Yaml::Null => Ok(Value::Null),
        Yaml::Bool(flag) => Ok(Value::Bool(flag)),
        Yaml::Number(number) => json_number(&number),
        Yaml::String(text) => Ok(Value::String(text)),
        Yaml::Sequence(items) => items.into_iter().map(json).collect(),
        Yaml::Mapping(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                map.insert(json_key(key)?, json(value)?);
            }
            Ok(Value::Object(map))
        }
        Yaml::Tagged(tagged) => Err(format!("the tag {} is not used in this format", tagged.tag)),
    }
}

fn json_number(number: &serde_norway::Number) -> Result<Value, String> {
    let whole = number.as_i64().map(Number::from).or_else(|| number.as_u64().map(Number::from));
    whole
        .or_else(|| number.as_f64().and_then(Number::from_f64))
        .map(Value::Number)
        .ok_or_else(|| format!("{number} is not a JSON number"))
}

fn json_key(key: serde_norway::Value) -> Result<String, String> {
    let key = json(key)?;
    let text = key.as_str().map(str::to_owned);
    text.ok_or_else(|| format!("the key {key} is not a text; put it in quotes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_a_part_of_an_id_or_all_of_it_with_a_star() {
        for (pattern, name, expected) in [
            ("reuse", "reuse.a", true),
            (".a", "reuse.a", true),
            ("reuse.*", "reuse.a", true),
            ("*.a", "reuse.a", true),
            ("r*e.*", "reuse.a", true),
            ("*b*", "reuse.a", false),
            ("use.*", "reuse.a", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern}");
        }
    }

    #[test]
    fn yaml_is_read_strictly() {
        assert_eq!(
            yaml("{a: [1, 2.5, yes, null]}").unwrap(),
            serde_json::json!({"a": [1, 2.5, "yes", null]})
        );
        for text in ["{a: 1, a: 2}", "{a: .nan}", "{a: !tag 1}", "{1: a}", "a: [1"] {
            assert!(yaml(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_scenario_of_this_repository_can_be_read() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/scenarios");
        for entry in Suite::read(&directory).unwrap().entries() {
            assert!(entry.scenario.is_ok(), "{}: {:?}", entry.id, entry.scenario);
        }
    }
}
