//! The log, read back: what is in it, and what comes to it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use recurgent::config::Config;
use serde_json::Value;

use crate::exit::Fault;

/// Longest line that is read; one that is longer is no entry of ours.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;
/// Read at once while following.
const CHUNK_BYTES: usize = 64 * 1024;

/// Where the log is, or why there is none.
pub(crate) fn path(config: &Config) -> Result<PathBuf, Fault> {
    config.log_path()?.ok_or_else(|| {
        Fault::setup("the log is off, so there is nothing to show; `--set log=FILE` names one")
    })
}

/// The entry a line holds; `None`: it is torn, or somebody else's.
pub(crate) fn entry(line: &[u8]) -> Option<Value> {
    let entry: Value = serde_json::from_slice(line).ok()?;
    let is_ours = ["call_id", "trace_id", "role", "method", "outcome_status"]
        .iter()
        .all(|field| entry.get(field).is_some_and(Value::is_string));
    is_ours.then_some(entry)
}

/// The files of a log, oldest first: those set aside when they were full, and the one in use.
pub(crate) fn files(log: &Path) -> Vec<PathBuf> {
    let name = log.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let parent = log.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = std::fs::read_dir(parent.unwrap_or(Path::new("."))).into_iter().flatten();
    let aside = |path: PathBuf| {
        let since = path.file_name()?.to_str()?.strip_prefix(name)?.strip_prefix('.')?;
        Some((since.parse::<u64>().ok()?, path))
    };
    let mut files: Vec<(u64, PathBuf)> =
        entries.filter_map(Result::ok).filter_map(|entry| aside(entry.path())).collect();
    files.sort();
    files.into_iter().map(|(_, path)| path).chain([log.to_owned()]).collect()
}

/// Gives every entry of a file to `take`; how many lines were none.
pub(crate) fn read(file: &Path, mut take: impl FnMut(Value)) -> io::Result<usize> {
    let mut reader = BufReader::new(File::open(file)?);
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

/// The last entries that are wanted, oldest first.
pub(crate) fn last(log: &Path, most: usize, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut found: VecDeque<Value> = VecDeque::new();
    for file in files(log).iter().rev() {
        let mut latest: VecDeque<Value> = VecDeque::new();
        // A file that cannot be read has nothing to show.
        let _ = read(file, |entry| {
            if wanted(&entry) {
                latest.push_back(entry);
                if latest.len() > most - found.len().min(most) {
                    latest.pop_front();
                }
            }
        });
        latest.extend(found);
        found = latest;
        if found.len() >= most {
            break;
        }
    }
    found.into()
}

/// Follows a log as it grows, is set aside, or is cut short.
#[derive(Debug)]
pub(crate) struct Follower {
    log: PathBuf,
    open: Option<Opened>,
    /// A line whose end has not been written yet.
    begun: Vec<u8>,
    /// Lines so far that were no entries.
    pub(crate) skipped: usize,
}

#[derive(Debug)]
struct Opened {
    file: File,
    /// Which file it is, whatever its name.
    id: (u64, u64),
    at: u64,
}

impl Follower {
    /// From its end.
    pub(crate) fn at_end(log: &Path) -> Self {
        let mut follower = Self { log: log.to_owned(), open: None, begun: Vec::new(), skipped: 0 };
        follower.open = follower.reopened().and_then(|mut opened| {
            opened.at = opened.file.seek(SeekFrom::End(0)).ok()?;
            Some(opened)
        });
        follower
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
            self.open = self.reopened();
            self.read_on(&mut entries);
        }
        entries
    }

    fn reopened(&self) -> Option<Opened> {
        let file = File::open(&self.log).ok()?;
        let meta = file.metadata().ok()?;
        Some(Opened { file, id: (meta.dev(), meta.ino()), at: 0 })
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
        let mut follower = Follower::at_end(&log);
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
        assert_eq!(calls(&Follower::at_end(&log).news()), [""; 0], "it begins at the end");
        assert_eq!(calls(&last(&log, 4, |_| true)), ["b", "c", "e", "f"]);
        assert_eq!(calls(&last(&log, 2, |_| true)), ["e", "f"]);
        assert_eq!(
            calls(&last(&log, 2, |entry| entry["call_id"].as_str() < Some("d"))),
            ["b", "c"]
        );
        assert_eq!(calls(&last(&log, 0, |_| true)), [""; 0]);
    }
}
