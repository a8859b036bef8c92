//! The JSONL log: one line per dynamic call. Its size is bounded per call tree and over all of its files.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lifecycle::log_entry::{AlreadyLogged, program_texts};
use lifecycle::program::Checksum;
use memchr::memmem;
use rustix::fs::OFlags;
use serde_json::Value;

use crate::upkeep::now;

/// A log file larger than this is set aside before the next line.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// One file is at most the log's total divided by this.
const FILES: u64 = 4;
/// Room made for a line.
const LINE_BYTES: usize = 8 * 1024;
/// How an entry that has a program's text begins to name it.
const DIGEST_KEY: &[u8] = b"\"code_digest\":\"";
/// What follows the digest if the text is there.
const CODE_KEY: &[u8] = b"\",\"code\":\"";
/// Times that an entry is made again because another process wrote to the log meanwhile.
const MAX_ROUNDS: usize = 4;

/// How large the log may become.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogLimits {
    /// All files of the log together.
    pub(crate) total_bytes: u64,
    /// Entries of one call tree.
    pub(crate) tree_bytes: u64,
    /// How long a file that was set aside is kept; `None`: until the total is reached.
    pub(crate) keep: Option<Duration>,
}

impl LogLimits {
    fn file_bytes(&self) -> u64 {
        MAX_FILE_BYTES.min(self.total_bytes / FILES)
    }
}

/// What one call tree has written.
#[derive(Debug, Default)]
pub(crate) struct TreeShare {
    bytes: AtomicU64,
    dropped: AtomicU64,
}

impl TreeShare {
    /// Counts a line; whether it is within the limit. A line that is not is counted as dropped.
    fn take(&self, bytes: u64, limit: u64) -> bool {
        let taken = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = taken.saturating_add(bytes) <= limit;
        if !fits {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }
}

/// One entry to be written.
pub(crate) struct LogRequest<'a> {
    /// What its call tree has written.
    pub(crate) share: &'a TreeShare,
    /// The call at the root of a tree is always logged.
    pub(crate) is_root: bool,
    /// The programs that the call ran.
    pub(crate) programs: BTreeSet<Checksum>,
    /// Encodes the entry as one line of JSON, without the texts of the programs that the log holds.
    pub(crate) encode: &'a dyn Fn(&AlreadyLogged, &mut Vec<u8>),
}

/// The log.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    limits: LogLimits,
    open: Mutex<Option<Open>>,
}

/// The log's file changed: the entry must be made for these programs.
struct Stale(BTreeSet<Checksum>);

impl Log {
    pub(crate) fn new(path: PathBuf, limits: LogLimits) -> Self {
        Self { path, limits, open: Mutex::default() }
    }

    /// Appends one entry. A log that cannot be written never fails a call.
    pub(crate) fn append(&self, request: &LogRequest<'_>) {
        let mut known = self.known(&request.programs);
        for _ in 0..MAX_ROUNDS {
            let Some(line) = self.line(request, &known) else { return };
            match self.write(&line, &request.programs, &known) {
                Ok(()) => return,
                Err(Stale(now)) => known = now,
            }
        }
    }

    /// The entry as a line; `None` if the tree's share of the log is used up.
    fn line(&self, request: &LogRequest<'_>, known: &BTreeSet<Checksum>) -> Option<Vec<u8>> {
        let dropped_entries =
            if request.is_root { request.share.dropped.load(Ordering::Relaxed) } else { 0 };
        let encoded = |programs: &BTreeSet<Checksum>| {
            let before = AlreadyLogged { programs: programs.clone(), dropped_entries };
            let mut line = Vec::with_capacity(LINE_BYTES);
            (request.encode)(&before, &mut line);
            line.push(b'\n');
            line
        };
        let line = encoded(known);
        let bytes = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if request.is_root {
            // It says how many were dropped. One that is too large itself goes without texts.
            let fits = bytes <= self.limits.tree_bytes;
            return Some(if fits { line } else { encoded(&request.programs) });
        }
        request.share.take(bytes, self.limits.tree_bytes).then_some(line)
    }

    /// Which of these programs the file has the text of, as far as is known.
    fn known(&self, programs: &BTreeSet<Checksum>) -> BTreeSet<Checksum> {
        let open = self.open();
        open.as_ref().map(|open| open.among(programs)).unwrap_or_default()
    }

    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line that was made for a file with the texts of the `known` programs.
    fn write(
        &self,
        line: &[u8],
        programs: &BTreeSet<Checksum>,
        known: &BTreeSet<Checksum>,
    ) -> Result<(), Stale> {
        let mut open = self.open();
        let mut length = open.as_ref().and_then(|open| open.bytes_under(&self.path));
        if length.is_none() {
            // The first line, or another process has set the file aside.
            length = self.reopen(&mut open);
        }
        if let Some(full) = open.as_ref().filter(|_| length > Some(self.limits.file_bytes())) {
            self.set_aside(full);
            length = self.reopen(&mut open);
        }
        let Some(file) = open.as_mut() else { return Ok(()) };
        file.append(line, length.unwrap_or(0), programs, known).unwrap_or_else(|_| {
            *open = None;
            Ok(())
        })
    }

    /// Opens the file that the log's name leads to; its length.
    fn reopen(&self, open: &mut Option<Open>) -> Option<u64> {
        *open = Open::at(&self.path).ok();
        self.remove_old();
        open.as_ref()?.bytes_under(&self.path)
    }

    /// Renames a full file after the current time, so that nothing is overwritten. Of several
    /// processes that find it full one does it.
    fn set_aside(&self, full: &Open) {
        if full.file.lock().is_ok() && full.bytes_under(&self.path).is_some() {
            let now = now().as_millisecond();
            let _ = std::fs::rename(&self.path, format!("{}.{now}", self.path.display()));
        }
    }

    /// Removes files that were set aside: the oldest while all together are too large, and those past their time.
    fn remove_old(&self) {
        let aside = set_aside_files(&self.path);
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let mut total: u64 = aside.iter().map(|(_, path)| size(path)).sum();
        let room = self.limits.total_bytes.saturating_sub(self.limits.file_bytes());
        let keep = self.limits.keep.and_then(|keep| i64::try_from(keep.as_millis()).ok());
        let oldest = keep.map(|keep| now().as_millisecond().saturating_sub(keep));
        for (since, path) in aside {
            if total <= room && oldest.is_none_or(|oldest| since >= oldest) {
                break;
            }
            total = total.saturating_sub(size(&path));
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The files of a log that were set aside, with the time in milliseconds, oldest first.
pub fn set_aside_files(log: &Path) -> Vec<(i64, PathBuf)> {
    let name = log.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let parent = log.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = std::fs::read_dir(parent.unwrap_or(Path::new("."))).into_iter().flatten();
    let aside = |path: PathBuf| {
        let since = path.file_name()?.to_str()?.strip_prefix(name)?.strip_prefix('.')?;
        let since = since.bytes().all(|byte| byte.is_ascii_digit()).then_some(since)?;
        Some((since.parse().ok()?, path))
    };
    let mut files: Vec<(i64, PathBuf)> =
        entries.filter_map(Result::ok).filter_map(|entry| aside(entry.path())).collect();
    files.sort();
    files
}

/// The file written to.
#[derive(Debug)]
struct Open {
    file: File,
    device: u64,
    inode: u64,
    /// Programs whose text it holds, as far as it was read or written here.
    programs: BTreeSet<Checksum>,
    /// Up to where `programs` is complete.
    read_to: u64,
    /// Where the last line that was written here ends.
    end: u64,
}

impl Open {
    fn at(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // It holds what callers pass: for its owner only. A pipe without a reader must not block a call.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600).custom_flags(flags);
        let file = options.clone().read(true).open(path).or_else(|_| options.open(path))?;
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_char_device() {
            return Err(io::Error::other("a log is a regular file"));
        }
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(Self { file, device, inode, programs: BTreeSet::new(), read_to: 0, end: 0 })
    }

    /// Its length, if the log's name still leads to it; one `stat`.
    fn bytes_under(&self, path: &Path) -> Option<u64> {
        let named = std::fs::metadata(path).ok()?;
        let is_this = (named.dev(), named.ino()) == (self.device, self.inode);
        is_this.then_some(named.len())
    }

    fn among(&self, programs: &BTreeSet<Checksum>) -> BTreeSet<Checksum> {
        programs.intersection(&self.programs).cloned().collect()
    }

    /// Appends a line, if it has the texts that the file lacks and no other.
    fn append(
        &mut self,
        line: &[u8],
        mut length: u64,
        programs: &BTreeSet<Checksum>,
        known: &BTreeSet<Checksum>,
    ) -> io::Result<Result<(), Stale>> {
        if length < self.read_to.max(self.end) {
            // Cut short: what was written is gone.
            self.programs.clear();
            (self.read_to, self.end) = (0, 0);
        }
        let brings_texts = known.len() < programs.len();
        // Two processes do not write the same text. One that is stopped must not stop others.
        let is_locked = brings_texts && self.file.try_lock().is_ok();
        if brings_texts {
            length = self.file.metadata()?.len();
            self.read_programs(length);
        }
        let present = self.among(programs);
        let result = if present == *known {
            self.write_line(line, length).map(|()| {
                self.programs.extend(programs.iter().cloned());
                Ok(())
            })
        } else {
            Ok(Err(Stale(present)))
        };
        if is_locked {
            self.file.unlock()?;
        }
        result
    }

    /// Writes a line after a whole line: what another process left unfinished is ended first.
    fn write_line(&mut self, line: &[u8], length: u64) -> io::Result<()> {
        let mut last = [b'\n'];
        if length != self.end && length > 0 {
            let _ = self.file.read_at(&mut last, length - 1);
        }
        if last != [b'\n'] {
            self.file.write_all(b"\n")?;
        }
        self.file.write_all(line)?;
        self.end = length + u64::from(last != [b'\n']) + u64::try_from(line.len()).unwrap_or(0);
        Ok(())
    }

    /// Notes the programs whose text others wrote since this was called last.
    fn read_programs(&mut self, length: u64) {
        let unread = length.saturating_sub(self.read_to).min(2 * MAX_FILE_BYTES);
        let mut bytes = vec![0; usize::try_from(unread).unwrap_or(0)];
        if self.file.read_exact_at(&mut bytes, self.read_to).is_err() {
            return; // It can be written, not read.
        }
        let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
        self.note_programs(bytes.get(..whole).unwrap_or_default());
        self.read_to += u64::try_from(whole).unwrap_or(0);
    }

    /// Only lines that seem to hold the text of an unknown program are parsed.
    fn note_programs(&mut self, bytes: &[u8]) {
        let finder = memmem::Finder::new(DIGEST_KEY);
        let mut parsed_to = 0;
        for at in finder.find_iter(bytes) {
            let rest = bytes.get(at + DIGEST_KEY.len()..).unwrap_or_default();
            let digest = memchr::memchr(b'"', rest).and_then(|end| rest.split_at_checked(end));
            let Some((digest, _)) = digest.filter(|(_, after)| after.starts_with(CODE_KEY)) else {
                continue;
            };
            let digest = Checksum::stored(String::from_utf8_lossy(digest).into_owned());
            if at < parsed_to || self.programs.contains(&digest) {
                continue;
            }
            let begin = memchr::memrchr(b'\n', bytes.get(..at).unwrap_or_default());
            let begin = begin.map_or(0, |end| end + 1);
            let end =
                memchr::memchr(b'\n', rest).map_or(bytes.len(), |end| at + DIGEST_KEY.len() + end);
            let line = bytes.get(begin..end).unwrap_or_default();
            if let Ok(entry) = serde_json::from_slice::<Value>(line) {
                let texts = program_texts(&entry);
                self.programs.extend(texts.map(|(digest, _)| Checksum::stored(digest.to_owned())));
            }
            parsed_to = end;
        }
    }
}

#[cfg(test)]
mod tests;
