//! A lock between processes: an exclusive lock on a file, which the kernel releases when its holder ends.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The path of a lock.
#[derive(Debug, Clone)]
pub(crate) struct LockFile(PathBuf);

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
    path: PathBuf,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing is not enough: a process between fork and exec has a copy of the file.
        let _ = self.file.unlock();
    }
}

impl FileLock {
    /// Removes the file and releases the lock. A process that waits for it finds the file gone and opens a new one.
    pub(crate) fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl LockFile {
    /// A lock in a folder, which is created with the first lock.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self(folder.join(name))
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_acquire(&self) -> io::Result<Option<FileLock>> {
        loop {
            let file = self.open()?;
            match file.try_lock() {
                Ok(()) if self.is_at(&file)? => return Ok(Some(self.held(file))),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Waits for the lock, however long that takes.
    pub(crate) fn acquire(&self) -> io::Result<FileLock> {
        loop {
            let file = self.open()?;
            file.lock()?;
            if self.is_at(&file)? {
                return Ok(self.held(file));
            }
        }
    }

    /// Removes the file if no process holds the lock.
    pub(crate) fn remove_if_free(&self) {
        if self.0.exists()
            && let Ok(Some(held)) = self.try_acquire()
        {
            held.remove();
        }
    }

    fn held(&self, file: File) -> FileLock {
        FileLock { file, path: self.0.clone() }
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        match (options.open(&self.0), self.0.parent()) {
            (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                options.open(&self.0)
            }
            (opened, _) => opened,
        }
    }

    /// Whether the path still names this file.
    fn is_at(&self, file: &File) -> io::Result<bool> {
        let held = file.metadata()?;
        match fs::metadata(&self.0) {
            Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_holder_though_its_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let lock = LockFile::new(&folder.path().join("locks"), "a");
        let held = lock.try_acquire().unwrap().unwrap();
        assert!(lock.try_acquire().unwrap().is_none());
        lock.remove_if_free();
        assert!(lock.0.exists(), "it is held");
        let waiting = std::thread::spawn({
            let lock = lock.clone();
            move || lock.acquire().unwrap()
        });
        drop(held);
        let held = waiting.join().unwrap();
        assert!(lock.try_acquire().unwrap().is_none());
        drop(held);
        lock.remove_if_free();
        assert!(!lock.0.exists());
        assert!(lock.try_acquire().unwrap().is_some());
    }
}
