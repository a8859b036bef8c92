//! A file that is being fetched: it only grows, survives a kill, and becomes the model by a rename.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::install::{InstallFault, InstallProgress, InstallRequest};

/// Why a source did not deliver.
#[derive(Debug)]
pub(super) enum SourceFault {
    /// The caller gave up.
    Cancelled,
    /// The bytes cannot be written.
    Disk(io::Error),
    /// The source failed; the next one may do better.
    Source(String),
}

/// The bytes of a model that are on disk so far.
pub(super) struct PartialFile<'a> {
    file: File,
    path: PathBuf,
    done: u64,
    request: &'a InstallRequest<'a>,
}

impl<'a> PartialFile<'a> {
    /// Continues the file, if there is one.
    pub(super) fn open(path: &Path, request: &'a InstallRequest<'a>) -> Result<Self, InstallFault> {
        let unusable = |error: io::Error| InstallFault::file(path, &error);
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path).map_err(unusable)?;
        let done = file.metadata().map_err(unusable)?.len();
        let mut partial = Self { file, path: path.to_owned(), done, request };
        if done > request.model.bytes {
            partial.truncate(0).map_err(unusable)?;
        }
        Ok(partial)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of bytes so far.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// The number of bytes that are missing.
    pub(super) fn missing(&self) -> u64 {
        self.request.model.bytes.saturating_sub(self.done)
    }

    /// Adds bytes of a source.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), SourceFault> {
        if self.request.cancellation.is_cancelled() {
            return Err(SourceFault::Cancelled);
        }
        if bytes.len() as u64 > self.missing() {
            let total = self.request.model.bytes;
            return Err(SourceFault::Source(format!("it has more than {total} bytes")));
        }
        self.file.write_all(bytes).map_err(SourceFault::Disk)?;
        self.done += bytes.len() as u64;
        let total = self.request.model.bytes;
        (self.request.report)(InstallProgress::Fetched { done: self.done, total });
        Ok(())
    }

    /// Drops all bytes.
    pub(super) fn restart(&mut self) -> Result<(), SourceFault> {
        self.truncate(0).map_err(SourceFault::Disk)
    }

    /// Drops the bytes after the last multiple of `size`, for sources that deliver whole parts.
    pub(super) fn truncate_to_multiple_of(&mut self, size: u64) -> Result<(), SourceFault> {
        let whole = self.done - self.done.checked_rem(size).unwrap_or_default();
        self.truncate(whole).map_err(SourceFault::Disk)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.done = length;
        Ok(())
    }

    /// Makes the file the model.
    pub(super) fn finish(self, path: &Path) -> Result<(), InstallFault> {
        let unusable = |error: io::Error| InstallFault::file(path, &error);
        self.file.sync_all().map_err(unusable)?;
        fs::rename(&self.path, path).map_err(unusable)?;
        match path.parent() {
            Some(folder) => File::open(folder).and_then(|it| it.sync_all()).map_err(unusable),
            None => Ok(()),
        }
    }

    pub(super) fn remove_if_empty(self) {
        if self.done == 0 {
            let _ = fs::remove_file(&self.path); // an empty file is harmless
        }
    }
}
