//! Watching calls: live events for observers, one log line per call. Neither can change or break a call.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
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
    file: Mutex<Option<File>>,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: Mutex::new(None) }
    }

    /// Appends one entry. A log that cannot be written never fails a call.
    pub(crate) fn append(&self, entry: &Value) {
        let mut line = entry.to_string();
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            *file = open(&self.path).ok();
        }
        let is_full = |file: &File| file.metadata().is_ok_and(|meta| meta.len() > MAX_LOG_BYTES);
        if file.as_ref().is_some_and(is_full) {
            // Set aside; the name tells when, so nothing is overwritten.
            let aside =
                format!("{}.{}", self.path.display(), jiff::Timestamp::now().as_millisecond());
            let _ = std::fs::rename(&self.path, aside);
            *file = open(&self.path).ok();
        }
        if let Some(open) = file.as_mut()
            && open.write_all(line.as_bytes()).is_err()
        {
            *file = None;
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
