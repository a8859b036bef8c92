//! The engine's log: lines with a time, in a file of bounded size.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Size at which the log is renamed and begun anew. One older file is kept.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Longest line.
const MAX_LINE_BYTES: usize = 2048;

/// The log. It contains no prompts and no answers.
#[derive(Debug)]
pub(super) struct EngineLog {
    path: Mutex<PathBuf>,
}

impl EngineLog {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path: Mutex::new(path) }
    }

    /// Adds a line. A log that cannot be written is not worth ending for.
    pub(super) fn line(&self, text: &str) {
        let path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = fs::metadata(&*path).is_ok_and(|found| found.len() > MAX_LOG_BYTES);
        if is_full {
            let _ = fs::rename(&*path, path.with_extension("log.1"));
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since.map(|since| since.as_secs()).unwrap_or_default();
        let text: String = text.chars().filter(|c| !c.is_control()).take(MAX_LINE_BYTES).collect();
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&*path);
        let _ = file.and_then(|mut file| file.write_all(format!("{seconds} {text}\n").as_bytes()));
    }
}
