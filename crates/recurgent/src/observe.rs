//! Watching calls: live events for observers, one log line per call. Neither can change or break a call.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lifecycle::event::{Event, EventKind, Subject};
use lifecycle::request::CallRequest;
use serde_json::Value;

/// A log file larger than this is set aside before the next line.
const MAX_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// Is told what happens while calls are under way.
pub trait Observer: Send + Sync {
    /// Something happened. Must return soon; may not fail.
    fn event(&self, event: &Event);
}

/// Everyone who watches.
#[derive(Default)]
pub(crate) struct Observers(pub(crate) Vec<Box<dyn Observer>>);

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}

impl Observers {
    /// Tells everyone; an observer that panics is ignored. `kind` is made only when someone watches.
    pub(crate) fn tell(&self, request: &CallRequest, kind: impl FnOnce() -> EventKind) {
        if self.0.is_empty() {
            return;
        }
        let event = Event { subject: Subject::of(request), kind: kind() };
        for observer in &self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| observer.event(&event)));
        }
    }
}

/// The JSONL log: one line per dynamic call.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    max_bytes: u64,
    file: Mutex<Option<File>>,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, max_bytes: MAX_LOG_BYTES, file: Mutex::new(None) }
    }

    /// Appends one entry. A log that cannot be written never fails a call.
    pub(crate) fn append(&self, entry: &Value) {
        let mut line = entry.to_string();
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Another process may have set the file aside.
        if !file.as_ref().is_some_and(|file| self.is_current(file)) {
            *file = open(&self.path).ok();
        }
        if let Some(full) = file.as_ref().filter(|file| self.is_full(file)) {
            self.set_aside(full);
            *file = open(&self.path).ok();
        }
        if let Some(open) = file.as_mut()
            && open.write_all(line.as_bytes()).is_err()
        {
            *file = None;
        }
    }

    /// Whether the log's name still leads to this file.
    fn is_current(&self, file: &File) -> bool {
        let named = std::fs::metadata(&self.path);
        let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        named.is_ok_and(|named| file.metadata().is_ok_and(|open| same(&named, &open)))
    }

    fn is_full(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|meta| meta.len() > self.max_bytes)
    }

    /// Gives a full file another name, which tells when, so that nothing is overwritten. Of several
    /// processes that find it full one does it.
    fn set_aside(&self, file: &File) {
        if file.lock().is_ok() && self.is_current(file) {
            let now = jiff::Timestamp::now().as_millisecond();
            let _ = std::fs::rename(&self.path, format!("{}.{now}", self.path.display()));
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    // It holds what callers pass: for its owner only.
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_full_log_is_set_aside_once_and_every_process_writes_to_the_new_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log.jsonl");
        let log = || Log { max_bytes: 100, ..Log::new(path.clone()) };
        let (ours, theirs) = (log(), log()); // as two processes have them
        theirs.append(&json!(0));
        ours.append(&json!("x".repeat(200)));
        ours.append(&json!(1));
        for number in 2..=4 {
            theirs.append(&json!(number));
            ours.append(&json!(number * 10));
        }
        let current = std::fs::read_to_string(&path).unwrap();
        assert_eq!(current, "1\n2\n20\n3\n30\n4\n40\n");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
    }
}
