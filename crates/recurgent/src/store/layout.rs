//! A bundle as files: `registry.json`, `patterns.json`, `artifacts/<role>/<method>.json` and
//! `sessions/<session>/<role>.json`.
//!
//! The written files are canonical (sorted, indented, without times of the export), so that the same store gives the
//! same bytes. Files that are read may come from elsewhere: names inside the files count, paths do not, and a bad entry does
//! not refuse its neighbours. `reference` reads the older Ruby runtime's form of the same files.

mod reference;
mod session;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use lifecycle::program::hex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::bundle::{ArtifactEntry, Bundle, ImportNote};

/// The version of the files' form.
const SCHEMA_VERSION: u64 = 1;
/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Largest file of a session that is read: its memory, and up to the longest history.
const MAX_SESSION_BYTES: u64 = 512 * 1024 * 1024;
/// Most files that are read.
const MAX_FILES: usize = 100_000;
/// Characters of a name that are kept in a path.
const MAX_SLUG: usize = 48;
/// Digits of a digest that distinguish names with equal slugs.
const DIGEST_DIGITS: usize = 8;

/// Files of the reference runtime, an earlier runtime whose stores can be imported, that have no counterpart here.
const NOT_IMPORTED: [(&str, &str); 2] = [
    (
        "proposals.json",
        "proposals are not kept here; `recurgent tools recommend` makes its own from what was observed",
    ),
    (
        "role_profiles.json",
        "role profiles are not kept here; state a role's rules in the contracts of its tools",
    ),
];

/// Why nothing could be written or read at all.
#[derive(Debug, Error)]
pub enum LayoutFault {
    /// There is something there already.
    #[error("{} is not empty; name an empty or new directory", .0.display())]
    Occupied(PathBuf),
    /// There is no store's export there.
    #[error(
        "{} holds neither registry.json, patterns.json, artifacts/ nor sessions/; name the directory that an export made",
        .0.display()
    )]
    NothingThere(PathBuf),
    /// Too much of it.
    #[error("{} holds more than {MAX_FILES} files; import it in parts", .0.display())]
    TooMany(PathBuf),
    /// The file system refused.
    #[error("{}: {error}; check that the path exists and is yours", .path.display())]
    File {
        /// What it is about.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
}

/// What was read, and the files that could not be.
#[derive(Debug, Default)]
pub struct Read {
    /// What could be read.
    pub bundle: Bundle,
    /// Files and entries that were refused, by their path in the directory and their name.
    pub refused: Vec<ImportNote>,
}

/// Writes a bundle to a new or empty directory: all of it, or nothing.
pub fn write(bundle: &Bundle, directory: &Path) -> Result<usize, LayoutFault> {
    let is_free = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(about(directory)(error)),
    };
    if !is_free {
        return Err(LayoutFault::Occupied(directory.to_owned()));
    }
    let mut partial = directory.as_os_str().to_owned();
    partial.push(format!(".partial-{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let written = write_files(bundle, &partial).and_then(|count| {
        fs::rename(&partial, directory).map(|()| count).map_err(about(directory))
    });
    if written.is_err() {
        // An unfinished export is of no use. If it cannot be removed, the first fault is still the one to report.
        let _ = fs::remove_dir_all(&partial);
    }
    written
}

fn write_files(bundle: &Bundle, directory: &Path) -> Result<usize, LayoutFault> {
    let files = files(bundle);
    for (path, content) in &files {
        let path = directory.join(path);
        let folder = path.parent().unwrap_or(directory);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(about(folder))?;
        let text = format!("{:#}\n", sorted(content));
        fs::write(&path, text).map_err(about(&path))?;
    }
    Ok(files.len())
}

/// The files of a bundle, by their relative path.
fn files(bundle: &Bundle) -> BTreeMap<PathBuf, Value> {
    let mut files = BTreeMap::from([
        (PathBuf::from("registry.json"), wire::registry(&bundle.tools)),
        (PathBuf::from("patterns.json"), wire::patterns(&bundle.patterns)),
    ]);
    for artifact in &bundle.artifacts {
        let folder = Path::new("artifacts").join(segment(artifact.role.as_str()));
        let plain = folder.join(format!("{}.json", segment(artifact.method.as_str())));
        let path = if files.contains_key(&plain) { variant(&folder, artifact) } else { plain };
        files.insert(path, wire::artifact(artifact));
    }
    for session in &bundle.sessions {
        let folder = Path::new("sessions").join(segment(&session.name));
        let path = folder.join(format!("{}.json", segment(session.role.as_str())));
        files.insert(path, session::file(session));
    }
    files
}

/// A method with programs in several languages or under several contracts has a file for each.
fn variant(folder: &Path, artifact: &ArtifactEntry) -> PathBuf {
    let method = segment(artifact.method.as_str());
    let contract = digest(&artifact.contract_fingerprint);
    folder.join(format!("{method}~{}-{contract}.json", artifact.language))
}

/// A name as part of a path: itself if it is a plain word, else a slug and a digest. Neither can be `..`, hold a
/// separator, or be another name's: no plain word has a hyphen.
fn segment(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.is_empty() && name.len() <= MAX_SLUG && name.chars().all(is_word) {
        return name.to_owned();
    }
    let lower = name.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !(is_word(c) && c != '_')).filter(|word| !word.is_empty()).collect();
    let slug: String = words.join("_").chars().take(MAX_SLUG).collect();
    let slug = if slug.is_empty() { "item" } else { slug.trim_end_matches('_') };
    format!("{slug}-{}", digest(name))
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())).chars().take(DIGEST_DIGITS).collect()
}

/// Keys in order, at every level.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, &Value> = fields.iter().collect();
            Value::Object(
                fields.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Reads a directory that [`write`] or the reference runtime made. A file that cannot be read is refused, and
/// the others are read all the same.
pub fn read(directory: &Path) -> Result<Read, LayoutFault> {
    let mut read = Read::default();
    let (registry, patterns) = (Path::new("registry.json"), Path::new("patterns.json"));
    let artifacts = json_files(directory, "artifacts")?;
    let sessions = json_files(directory, "sessions")?;
    let is_there = |path: &Path| directory.join(path).symlink_metadata().is_ok();
    if !is_there(registry) && !is_there(patterns) && artifacts.is_empty() && sessions.is_empty() {
        return Err(LayoutFault::NothingThere(directory.to_owned()));
    }
    for (name, why) in NOT_IMPORTED {
        if is_there(Path::new(name)) {
            read.bundle.notes.push(ImportNote { what: name.to_owned(), why: why.to_owned() });
        }
    }
    if is_there(registry) {
        let mut refused = Vec::new();
        read.file(directory, registry, |value, bundle| {
            bundle.tools = wire::read_registry(value, &mut refused, &mut bundle.tolerated)?;
            Ok(())
        });
        read.refused.extend(refused);
    }
    if is_there(patterns) {
        let mut refused = Vec::new();
        read.file(directory, patterns, |value, bundle| {
            bundle.patterns = wire::read_patterns(value, &mut refused)?;
            Ok(())
        });
        read.refused.extend(refused);
    }
    let mut known = BTreeSet::new();
    for path in artifacts {
        read.file(directory, &path, |value, bundle| {
            let mut notes = Vec::new();
            let artifact = wire::read_artifact(value, &bundle.tools, &mut notes)?;
            let noted = |why| ImportNote { what: path.display().to_string(), why };
            bundle.tolerated.extend(notes.into_iter().map(noted));
            if !known.insert(artifact.key()) {
                return Err(format!("{} is in an earlier file already", artifact.title()));
            }
            bundle.artifacts.push(artifact);
            Ok(())
        });
    }
    let mut known = BTreeSet::new();
    for path in sessions {
        read.bounded_file(directory, &path, MAX_SESSION_BYTES, |value, bundle| {
            let session = session::read(value)?;
            if !known.insert((session.name.clone(), session.role.clone())) {
                return Err(format!("{} is in an earlier file already", session.title()));
            }
            bundle.sessions.push(session);
            Ok(())
        });
    }
    Ok(read)
}

impl Read {
    fn file(
        &mut self,
        directory: &Path,
        path: &Path,
        parse: impl FnOnce(&Value, &mut Bundle) -> Result<(), String>,
    ) {
        self.bounded_file(directory, path, MAX_FILE_BYTES, parse);
    }

    fn bounded_file(
        &mut self,
        directory: &Path,
        path: &Path,
        most_bytes: u64,
        parse: impl FnOnce(&Value, &mut Bundle) -> Result<(), String>,
    ) {
        let parsed = content(&directory.join(path), most_bytes)
            .and_then(|value| wire::check_version(&value).map(|()| value))
            .and_then(|value| parse(&value, &mut self.bundle));
        if let Err(why) = parsed {
            self.refused.push(ImportNote { what: path.display().to_string(), why });
        }
    }
}

/// A file's JSON. Links are not followed: what they point to was not exported.
fn content(path: &Path, most_bytes: u64) -> Result<Value, String> {
    let metadata = path.symlink_metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a plain file".to_owned());
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(most_bytes + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("it cannot be read: {error}"))?;
    if text.len() as u64 > most_bytes {
        return Err(format!("it is larger than {most_bytes} bytes"));
    }
    serde_json::from_str(&text).map_err(|error| format!("it is not JSON: {error}"))
}

/// `KIND/*/*.json`, in order.
fn json_files(directory: &Path, kind: &str) -> Result<Vec<PathBuf>, LayoutFault> {
    let mut files = Vec::new();
    for folder in entries(&directory.join(kind))? {
        if !folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        let found = entries(&folder)?.into_iter();
        files.extend(found.filter(|file| file.extension().is_some_and(|ending| ending == "json")));
        if files.len() > MAX_FILES {
            return Err(LayoutFault::TooMany(directory.to_owned()));
        }
    }
    let relative = |file: PathBuf| file.strip_prefix(directory).map(Path::to_owned).unwrap_or(file);
    let mut files: Vec<PathBuf> = files.into_iter().map(relative).collect();
    files.sort();
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, LayoutFault> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(about(folder)(error)),
    };
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(about(folder))).collect()
}

fn about(path: &Path) -> impl Fn(io::Error) -> LayoutFault {
    move |error| LayoutFault::File { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_harmless_part_of_a_path() {
        assert_eq!(segment("web_fetcher"), "web_fetcher");
        for name in ["../../x", "..", "/etc/passwd", "Ünïcode", "a b", "CON", "x-y", "", "😀"] {
            let segment = segment(name);
            let part = Path::new(&segment);
            assert_eq!(part.components().count(), 1, "{segment}");
            assert!(segment.contains('-') && !segment.starts_with('.'), "{segment}");
            assert!(segment.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)));
        }
        assert_ne!(segment("a b"), segment("a  b"));
        assert!(segment(&"long ".repeat(50)).len() <= MAX_SLUG + 1 + DIGEST_DIGITS);
    }
}
