//! Watching calls: live events for observers, one log line per call. Neither can change or break a call.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use lifecycle::request::CallRequest;
use serde_json::Value;

pub use lifecycle::event::{Event, EventKind, Subject};

/// A log file larger than this is set aside before the next line.
const MAX_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// Room made for a line.
const LINE_BYTES: usize = 8 * 1024;

/// Receives the events of calls under way.
pub trait Observer: Send + Sync {
    /// Something happened. Must return soon; may not fail.
    fn event(&self, event: &Event);
}

/// Every observer.
#[derive(Default)]
pub(crate) struct Observers {
    observers: Vec<Box<dyn Observer>>,
    /// The threads that run observers, and since when.
    notifying: Mutex<Vec<(ThreadId, Instant)>>,
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.observers.len())
    }
}

impl Observers {
    pub(crate) fn add(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    /// How long this thread has been running an observer; `None`: it runs none.
    pub(crate) fn notifying_for(&self, thread: ThreadId) -> Option<Duration> {
        let notifying = self.notifying();
        notifying.iter().find(|(known, _)| *known == thread).map(|(_, since)| since.elapsed())
    }

    fn notifying(&self) -> MutexGuard<'_, Vec<(ThreadId, Instant)>> {
        self.notifying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies every observer; one that panics is ignored. `kind` is made only if there is an observer.
    pub(crate) fn notify(&self, request: &CallRequest, kind: impl FnOnce() -> EventKind) {
        if self.observers.is_empty() {
            return;
        }
        let event = Event { subject: Subject::of(request), kind: kind() };
        let own = thread::current().id();
        self.notifying().push((own, Instant::now()));
        for observer in &self.observers {
            let _ = catch_unwind(AssertUnwindSafe(|| observer.event(&event)));
        }
        let mut notifying = self.notifying();
        if let Some(last) = notifying.iter().rposition(|(thread, _)| *thread == own) {
            notifying.swap_remove(last);
        }
    }
}

/// The JSONL log: one line per dynamic call.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    max_bytes: u64,
    open: Mutex<Option<Open>>,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, max_bytes: MAX_LOG_BYTES, open: Mutex::default() }
    }

    /// Appends one entry. A log that cannot be written never fails a call.
    pub(crate) fn append(&self, entry: &Value) {
        let mut line = Vec::with_capacity(LINE_BYTES);
        // What has only text for keys can be written to memory.
        let _ = serde_json::to_writer(&mut line, entry);
        line.push(b'\n');
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = open.as_ref().and_then(|open| open.bytes_under(&self.path));
        if bytes.is_none() {
            // The first line, or another process has set the file aside.
            *open = Open::at(&self.path).ok();
            bytes = open.as_ref().and_then(|open| open.bytes_under(&self.path));
        }
        if let Some(full) = open.as_ref().filter(|_| bytes > Some(self.max_bytes)) {
            self.set_aside(full);
            *open = Open::at(&self.path).ok();
        }
        if let Some(Open { file, .. }) = open.as_mut()
            && file.write_all(&line).is_err()
        {
            *open = None;
        }
    }

    /// Renames a full file after the current time, so that nothing is overwritten. Of several
    /// processes that find it full one does it.
    fn set_aside(&self, full: &Open) {
        if full.file.lock().is_ok() && full.bytes_under(&self.path).is_some() {
            let now = jiff::Timestamp::now().as_millisecond();
            let _ = std::fs::rename(&self.path, format!("{}.{now}", self.path.display()));
        }
    }
}

/// The file written to.
#[derive(Debug)]
struct Open {
    file: File,
    device: u64,
    inode: u64,
}

impl Open {
    fn at(path: &Path) -> std::io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // It holds what callers pass: for its owner only.
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let metadata = file.metadata()?;
        Ok(Self { file, device: metadata.dev(), inode: metadata.ino() })
    }

    /// Its length, if the log's name still leads to it; one `stat`.
    fn bytes_under(&self, path: &Path) -> Option<u64> {
        let named = std::fs::metadata(path).ok()?;
        let is_this = (named.dev(), named.ino()) == (self.device, self.inode);
        is_this.then_some(named.len())
    }
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

    #[test]
    fn a_process_that_writes_one_line_sets_a_full_log_aside_too() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log.jsonl");
        std::fs::write(&path, "x".repeat(200)).unwrap();
        Log { max_bytes: 100, ..Log::new(path.clone()) }.append(&json!(1));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
    }
}
