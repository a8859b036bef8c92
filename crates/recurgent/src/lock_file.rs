//! A lock between processes: an exclusive lock on a file, which the kernel releases when its holder ends.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How often a thread tries again if its wait has a limit or can be cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The path of a lock: [`LockFile::acquire`] locks the file there.
#[derive(Debug, Clone)]
pub(crate) struct LockFile(PathBuf);

/// A locked file. Dropping it releases the lock. If this process is killed, the lock is released when every child
/// process that inherited the file has ended.
#[derive(Debug)]
pub(crate) struct LockGuard(File);

/// Why a lock was not acquired.
#[derive(Debug)]
pub(crate) enum LockFault {
    /// Another process or thread held it for this long.
    Busy(Duration),
    /// The caller cancelled.
    Cancelled,
    /// The file cannot be opened or locked.
    Unusable(io::Error),
}

impl From<io::Error> for LockFault {
    fn from(error: io::Error) -> Self {
        Self::Unusable(error)
    }
}

impl LockGuard {
    /// Wraps a file that is locked already.
    pub(crate) fn from_locked(locked: File) -> Self {
        Self(locked)
    }
}

impl Deref for LockGuard {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // Closing is not enough: a process between fork and exec has a copy of the file.
        let _ = self.0.unlock();
    }
}

impl LockFile {
    /// A lock at a path. Its folder is created with the first lock.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Acquires the lock if it is free.
    pub(crate) fn try_acquire(&self) -> io::Result<Option<LockGuard>> {
        loop {
            let file = self.open()?;
            match file.try_lock() {
                Ok(()) if self.is_at(&file)? => return Ok(Some(LockGuard(file))),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Waits for the lock, however long that takes.
    pub(crate) fn acquire(&self) -> io::Result<LockGuard> {
        loop {
            let file = self.open()?;
            file.lock()?;
            if self.is_at(&file)? {
                return Ok(LockGuard(file));
            }
        }
    }

    /// Waits for the lock until the limit, or until the caller cancels.
    pub(crate) fn acquire_within(
        &self,
        limit: Duration,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<LockGuard, LockFault> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(lock) = self.try_acquire()? {
                return Ok(lock);
            }
            if is_cancelled() {
                return Err(LockFault::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(LockFault::Busy(limit));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether a process holds the lock. Creates no file.
    pub(crate) fn is_held(&self) -> bool {
        let Ok(file) = File::open(&self.0) else { return false };
        let tried = file.try_lock_shared().map(|()| LockGuard(file));
        matches!(tried, Err(TryLockError::WouldBlock))
    }

    /// Removes the file and releases the lock. A process that waits for it finds the file gone and opens a new one.
    pub(crate) fn remove(&self, held: LockGuard) {
        let _ = fs::remove_file(&self.0); // if it stays, it is used again
        drop(held);
    }

    /// Removes the file if no process holds the lock. Returns whether it did.
    pub(crate) fn remove_if_free(&self) -> bool {
        match self.0.exists().then(|| self.try_acquire()) {
            Some(Ok(Some(held))) => {
                self.remove(held);
                true
            }
            Some(Ok(None) | Err(_)) | None => false,
        }
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        match (options.open(&self.0), self.0.parent()) {
            (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                options.open(&self.0)
            }
            (opened, _) => opened,
        }
    }

    /// Whether this file is still the one at the path. A lock on a removed file excludes no process.
    pub(crate) fn is_at(&self, file: &File) -> io::Result<bool> {
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
    fn a_lock_has_one_holder_although_its_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let lock = LockFile::new(folder.path().join("locks/a"));
        let held = lock.try_acquire().unwrap().unwrap();
        assert!(lock.try_acquire().unwrap().is_none());
        assert!(!lock.remove_if_free() && lock.0.exists(), "it is held");
        let waiting = std::thread::spawn({
            let lock = lock.clone();
            move || lock.acquire().unwrap()
        });
        drop(held);
        let held = waiting.join().unwrap();
        assert!(lock.try_acquire().unwrap().is_none());
        drop(held);
        assert!(lock.remove_if_free() && !lock.0.exists());
        assert!(lock.try_acquire().unwrap().is_some());
    }

    #[test]
    fn a_held_lock_is_waited_for_but_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let lock = LockFile::new(folder.path().join("x.lock"));
        let _held = lock.acquire_within(Duration::ZERO, || false).unwrap();
        let late = lock.acquire_within(Duration::from_millis(50), || false);
        assert!(matches!(late, Err(LockFault::Busy(_))), "{late:?}");
        let cancelled = lock.acquire_within(Duration::from_mins(1), || true);
        assert!(matches!(cancelled, Err(LockFault::Cancelled)), "{cancelled:?}");
        assert!(lock.is_held() && !LockFile::new(folder.path().join("y.lock")).is_held());
    }

    #[test]
    fn a_lock_on_a_removed_file_does_not_exclude_others() {
        let folder = tempfile::tempdir().unwrap();
        let lock = LockFile::new(folder.path().join("lock"));
        let waiting = lock.open().unwrap();
        lock.remove(lock.try_acquire().unwrap().unwrap());
        assert!(!lock.0.exists() && waiting.try_lock().is_ok());
        let _held = lock.try_acquire().unwrap().unwrap();
        assert!(lock.0.exists() && lock.try_acquire().unwrap().is_none(), "the new file is locked");
    }

    #[test]
    fn dropping_it_releases_it_although_a_copy_of_the_descriptor_exists() {
        let folder = tempfile::tempdir().unwrap();
        let lock = LockFile::new(folder.path().join("lock"));
        let held = lock.try_acquire().unwrap().unwrap();
        let copy = held.try_clone().unwrap();
        assert!(lock.is_held());
        drop(held);
        assert!(!lock.is_held() && lock.try_acquire().unwrap().is_some());
        drop(copy);
    }
}
