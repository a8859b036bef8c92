//! The log, read back: what is in it, and what comes to it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use recurgent::config::Config;
use recurgent::observe::set_aside_files;
use serde_json::Value;

use crate::exit::CommandFault;

/// Longest line that is read; a longer one is not an entry.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;
/// Read at once while following.
const CHUNK_BYTES: usize = 64 * 1024;

/// Where the log is, or why there is none.
pub(crate) fn path(config: &Config) -> Result<PathBuf, CommandFault> {
    config.log_path()?.ok_or_else(|| {
        CommandFault::setup(
            "the log is off, so there is nothing to show; `--set log=FILE` names one",
        )
    })
}

/// The entry a line holds; `None` if it is incomplete or not an entry.
pub(crate) fn entry(line: &[u8]) -> Option<Value> {
    let entry: Value = serde_json::from_slice(line).ok()?;
    let is_ours = ["call_id", "trace_id", "role", "method", "outcome_status"]
        .iter()
        .all(|field| entry.get(field).is_some_and(Value::is_string));
    is_ours.then_some(entry)
}

/// The files of a log, oldest first: those set aside when they were full, and the one in use.
pub(crate) fn files(log: &Path) -> Vec<PathBuf> {
    set_aside_files(log).into_iter().map(|(_, path)| path).chain([log.to_owned()]).collect()
}

/// Gives every entry of a file to `take`; how many lines were none.
pub(crate) fn read(file: &Path, take: impl FnMut(Value)) -> Result<usize, CommandFault> {
    open(file).and_then(|log| entries(log, take)).map_err(|error| unreadable(file, &error))
}

fn entries(log: impl Read, mut take: impl FnMut(Value)) -> io::Result<usize> {
    let mut reader = BufReader::new(log);
    let (mut line, mut skipped) = (Vec::new(), 0);
    loop {
        line.clear();
        let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
        if reader.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(skipped);
        }
        match entry(&line) {
            Some(entry) => take(entry),
            None => skipped += 1,
        }
    }
}

/// Opens a file of a log. A pipe in its place would block.
fn open(file: &Path) -> io::Result<File> {
    if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(file)
}

fn unreadable(file: &Path, error: &io::Error) -> CommandFault {
    CommandFault::setup(format!(
        "cannot read {}: {error}; make it readable, or name the log with `--set log=FILE`",
        file.display()
    ))
}

/// Follows a log as it grows, is set aside, or is cut short.
#[derive(Debug)]
pub(crate) struct Follower {
    log: PathBuf,
    open: Option<Opened>,
    /// A line whose end has not been written yet.
    begun: Vec<u8>,
    /// Lines so far that are not entries.
    pub(crate) skipped: usize,
}

#[derive(Debug)]
struct Opened {
    file: File,
    /// Which file it is, whatever its name.
    id: (u64, u64),
    at: u64,
}

impl Opened {
    fn at_start(log: &Path) -> io::Result<Self> {
        let file = open(log)?;
        let meta = file.metadata()?;
        Ok(Self { file, id: (meta.dev(), meta.ino()), at: 0 })
    }

    fn at_end(log: &Path) -> io::Result<Self> {
        let mut opened = Self::at_start(log)?;
        opened.at = opened.file.seek(SeekFrom::End(0))?;
        Ok(opened)
    }
}

impl Follower {
    /// From its end; there need not be a log yet.
    pub(crate) fn at_end(log: &Path) -> Result<Self, CommandFault> {
        let open = match Opened::at_end(log) {
            Ok(opened) => Some(opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(log, &error)),
        };
        Ok(Self { log: log.to_owned(), open, begun: Vec::new(), skipped: 0 })
    }

    /// The last wanted entries among those written before it began to follow the log, oldest first.
    pub(crate) fn before(
        &self,
        most: usize,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>, CommandFault> {
        let mut found: VecDeque<Value> = VecDeque::new();
        for (file, bytes) in self.past() {
            let mut latest: VecDeque<Value> = VecDeque::new();
            let keep = |entry| {
                if wanted(&entry) {
                    latest.push_back(entry);
                    if latest.len() > most - found.len().min(most) {
                        latest.pop_front();
                    }
                }
            };
            match open(&file).and_then(|log| entries(log.take(bytes), keep)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(unreadable(&file, &error));
                }
                Ok(_) | Err(_) => {} // or removed, for its age
            }
            latest.extend(found);
            found = latest;
            if found.len() >= most {
                break;
            }
        }
        Ok(found.into())
    }

    /// Files that were written before it began, newest first, and how much of each.
    fn past(&self) -> impl Iterator<Item = (PathBuf, u64)> {
        let begun = self.open.as_ref().map(|opened| (opened.id, opened.at));
        let is_news = move |file: &PathBuf| match begun {
            Some((id, _)) => identity(file) != Some(id),
            None => file == &self.log,
        };
        let bytes = begun.map(|(_, at)| at).into_iter().chain(std::iter::repeat(u64::MAX));
        files(&self.log).into_iter().rev().skip_while(is_news).zip(bytes)
    }

    /// Entries that have come since this was asked last.
    pub(crate) fn news(&mut self) -> Vec<Value> {
        let mut entries = Vec::new();
        self.read_on(&mut entries);
        let replaced = identity(&self.log)
            .is_some_and(|id| self.open.as_ref().is_none_or(|opened| opened.id != id));
        if replaced {
            self.read_on(&mut entries); // what was written before it was set aside
            self.give_up_line();
            self.open = Opened::at_start(&self.log).ok();
            self.read_on(&mut entries);
        }
        entries
    }

    fn read_on(&mut self, entries: &mut Vec<Value>) {
        let Some(opened) = &mut self.open else { return };
        if opened.file.metadata().is_ok_and(|meta| meta.len() < opened.at) {
            opened.at = 0;
            if opened.file.rewind().is_err() {
                return;
            }
            self.skipped += usize::from(!self.begun.is_empty());
            self.begun.clear();
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = opened.file.read(&mut chunk) {
            opened.at += u64::try_from(length).unwrap_or(0);
            for piece in chunk.get(..length).unwrap_or_default().split_inclusive(|b| *b == b'\n') {
                self.begun.extend_from_slice(piece);
                if piece.ends_with(b"\n") || self.begun.len() > MAX_LINE_BYTES {
                    match entry(&self.begun) {
                        Some(entry) => entries.push(entry),
                        None => self.skipped += 1,
                    }
                    self.begun.clear();
                }
            }
        }
    }

    fn give_up_line(&mut self) {
        self.skipped += usize::from(!self.begun.is_empty());
        self.begun.clear();
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn line(call: &str) -> String {
        let entry = json!({"call_id": call, "trace_id": "t", "role": "r", "method": "m", "outcome_status": "ok"});
        format!("{entry}\n")
    }

    fn append(path: &Path, text: &str) {
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn calls(entries: &[Value]) -> Vec<&str> {
        entries.iter().filter_map(|entry| entry["call_id"].as_str()).collect()
    }

    #[test]
    fn a_log_is_followed_through_torn_lines_rotation_and_truncation() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log.jsonl");
        let mut follower = Follower::at_end(&log).unwrap();
        assert_eq!(calls(&follower.news()), [""; 0], "there is no log yet");
        append(&log, &line("a"));
        assert_eq!(calls(&follower.news()), ["a"]);
        let second = line("b");
        let (begun, rest) = second.split_at(20);
        append(&log, begun);
        assert_eq!(calls(&follower.news()), [""; 0], "its end is not written yet");
        append(&log, rest);
        append(&log, "{\"foreign\": 1}\nno json\n");
        assert_eq!(calls(&follower.news()), ["b"]);
        assert_eq!(follower.skipped, 2);
        append(&log, &line("c"));
        std::fs::rename(&log, place.path().join("log.jsonl.1700000000000")).unwrap();
        append(&log, &line("d"));
        assert_eq!(calls(&follower.news()), ["c", "d"]);
        std::fs::write(&log, "").unwrap();
        assert_eq!(calls(&follower.news()), [""; 0]);
        append(&log, &line("e"));
        assert_eq!(calls(&follower.news()), ["e"]);
        append(&log, &line("f"));
        let mut late = Follower::at_end(&log).unwrap();
        assert_eq!(calls(&late.news()), [""; 0], "it begins at the end");
        let before = |most, wanted: fn(&Value) -> bool| late.before(most, wanted).unwrap();
        assert_eq!(calls(&before(4, |_| true)), ["b", "c", "e", "f"]);
        assert_eq!(calls(&before(2, |_| true)), ["e", "f"]);
        assert_eq!(calls(&before(2, |entry| entry["call_id"].as_str() < Some("d"))), ["b", "c"]);
        assert_eq!(calls(&before(0, |_| true)), [""; 0]);
    }

    #[test]
    fn new_entries_are_reported_once_and_unreadable_lines_are_counted() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log.jsonl");
        let none_yet = Follower::at_end(&log).unwrap();
        append(&log, &line("a"));
        assert_eq!(calls(&none_yet.before(9, |_| true).unwrap()), [""; 0], "it is news");
        let mut follower = Follower::at_end(&log).unwrap();
        append(&log, &line("b"));
        assert_eq!(calls(&follower.before(9, |_| true).unwrap()), ["a"]);
        std::fs::rename(&log, place.path().join("log.jsonl.1700000000000")).unwrap();
        append(&log, &line("c"));
        assert_eq!(calls(&follower.before(9, |_| true).unwrap()), ["a"]);
        assert_eq!(calls(&follower.news()), ["b", "c"]);
        let said = Follower::at_end(place.path()).unwrap_err().message;
        assert!(said.contains("cannot read") && said.contains("--set log="), "{said}");
    }
}
