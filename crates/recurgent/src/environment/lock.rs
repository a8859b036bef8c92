//! One builder per environment, across threads and processes: the holder of a file lock builds.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::guest::Cancellation;

/// Interval at which a waiting thread tries again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why the lock was not acquired.
#[derive(Debug)]
pub(super) enum LockFault {
    /// Another process or thread still builds.
    Busy(Duration),
    /// The caller cancelled.
    Cancelled,
    /// It cannot be opened or locked.
    Unusable(io::Error),
}

/// A held lock. Dropping it releases it, even if another process has a copy of the descriptor, as a forked child has
/// before it executes its program. If the process is killed, the lock stays held while a command still has the file.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Deref for Lock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock(); // closing the file releases it as well
    }
}

impl Lock {
    /// Wraps a file that is locked already.
    pub(super) fn from_locked(locked: File) -> Self {
        Self(locked)
    }
}

/// Waits for the lock.
pub(super) fn acquire(
    path: &Path,
    limit: Duration,
    cancellation: &Cancellation,
) -> Result<Lock, LockFault> {
    let mut file = open(path).map_err(LockFault::Unusable)?;
    let deadline = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) if is_removed(&file) => file = open(path).map_err(LockFault::Unusable)?,
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::Error(error)) => return Err(LockFault::Unusable(error)),
            Err(TryLockError::WouldBlock) if cancellation.is_cancelled() => {
                return Err(LockFault::Cancelled);
            }
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(LockFault::Busy(limit));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Acquires the lock if it is free.
pub(super) fn try_acquire(path: &Path) -> Option<Lock> {
    loop {
        let file = open(path).ok()?;
        match file.try_lock() {
            Ok(()) if is_removed(&file) => {}
            Ok(()) => return Some(Lock(file)),
            Err(_) => return None,
        }
    }
}

/// Removes the file of a held lock, when nothing is left that it protects.
pub(super) fn remove(lock: Lock, path: &Path) {
    let _ = std::fs::remove_file(path); // if it stays, it is used again
    drop(lock);
}

/// Whether the file was removed after it was opened: then a lock on it protects nothing.
fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.nlink() == 0)
}

/// Whether the lock is held. Creates no file.
pub(super) fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let tried = file.try_lock_shared().map(|()| Lock(file));
    matches!(tried, Err(TryLockError::WouldBlock))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_waited_for_but_not_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.lock");
        let none = Cancellation::default();
        let _held = acquire(&path, Duration::ZERO, &none).unwrap();
        assert!(matches!(
            acquire(&path, Duration::from_millis(50), &none),
            Err(LockFault::Busy(_))
        ));
        let cancelled = Cancellation::default();
        cancelled.cancel();
        let refused = acquire(&path, Duration::from_mins(1), &cancelled);
        assert!(matches!(refused, Err(LockFault::Cancelled)));
        assert!(is_held(&path) && !is_held(&directory.path().join("y.lock")));
    }

    #[test]
    fn a_lock_on_a_removed_file_is_not_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let waiting = open(&path).unwrap();
        remove(try_acquire(&path).unwrap(), &path);
        assert!(!path.exists() && waiting.try_lock().is_ok());
        let held = try_acquire(&path).unwrap();
        assert!(path.exists() && try_acquire(&path).is_none(), "the new file is locked");
        drop(held);
        let none = Cancellation::default();
        assert!(acquire(&path, Duration::ZERO, &none).is_ok());
    }

    #[test]
    fn dropping_it_releases_it_although_a_copy_of_the_descriptor_exists() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = try_acquire(&path).unwrap();
        let copy = lock.try_clone().unwrap();
        assert!(is_held(&path));
        drop(lock);
        assert!(!is_held(&path) && try_acquire(&path).is_some());
        drop(copy);
    }
}
