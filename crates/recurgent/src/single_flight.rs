//! Concurrent first calls of one method ask the model once: the others wait for its program.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::artifact::ArtifactKey;
use lifecycle::program::Checksum;

use crate::lock_file::{LockFile, LockGuard};
use crate::tree::{FirstCallCount, Tree};

/// Longest wait for another call's program; then a call goes on by itself.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// How often a waiting call checks whether it may still wait.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Characters of a digest that name a lock.
const NAME_CHARS: usize = 32;

/// The methods of a runtime for which a program is being written for the first time.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight {
    in_progress: Mutex<BTreeSet<ArtifactKey>>,
    changed: Condvar,
    /// Where locks between processes are kept; `None`: the store is this process's own.
    folder: Option<PathBuf>,
}

/// The right to ask the model for the first program of a method. Other calls wait until it is dropped.
#[derive(Debug)]
pub(crate) struct FirstCallLock<'a> {
    flight: &'a SingleFlight,
    key: ArtifactKey,
    lock: Option<(LockFile, LockGuard)>,
    _tree: FirstCallCount,
    /// Whether another call had the lock before: its program may be stored by now.
    pub(crate) waited: bool,
}

impl Drop for FirstCallLock<'_> {
    fn drop(&mut self) {
        if let Some((file, lock)) = self.lock.take() {
            file.remove(lock);
        }
        self.flight.in_progress().remove(&self.key);
        self.flight.changed.notify_all();
    }
}

impl SingleFlight {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, ..Self::default() }
    }

    /// Waits while another call writes the first program of this method, then takes its place. `None`: the call goes
    /// on without the lock, because it was cancelled, it waited too long, or its tree holds such a lock already and
    /// must not wait.
    pub(crate) fn lock_first_call(
        &self,
        key: &ArtifactKey,
        tree: &Tree,
    ) -> Option<FirstCallLock<'_>> {
        let deadline = Instant::now() + LONGEST_WAIT;
        let may_wait = || {
            // Two trees that hold a lock each and wait for the other's would never end.
            !tree.is_in_first_call()
                && !tree.cancellation.is_cancelled()
                && tree.time_left().is_ok()
                && Instant::now() < deadline
        };
        let mut waited = false;
        let mut in_progress = self.in_progress();
        while !in_progress.insert(key.clone()) {
            if !may_wait() {
                return None;
            }
            waited = true;
            let woken = self.changed.wait_timeout(in_progress, POLL_INTERVAL);
            in_progress = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(in_progress);
        let mut first_call = FirstCallLock {
            flight: self,
            key: key.clone(),
            lock: None,
            _tree: tree.count_first_call(),
            waited,
        };
        // Without a lock between processes, the model may be asked twice: no reason to fail.
        if let Ok(Some((lock, waited))) =
            self.lock_between_processes(key, &|| may_wait_alone(tree, deadline))
        {
            first_call.lock = Some(lock);
            first_call.waited |= waited;
        }
        Some(first_call)
    }

    /// The lock of a method between processes, and whether another process had it before.
    fn lock_between_processes(
        &self,
        key: &ArtifactKey,
        may_wait: &dyn Fn() -> bool,
    ) -> io::Result<Option<((LockFile, LockGuard), bool)>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let ArtifactKey { role, method, language, contract_fingerprint } = key;
        let identity = format!("{role}\n{method}\n{language}\n{contract_fingerprint}");
        let name = Checksum::short_of(&identity, NAME_CHARS);
        let file = LockFile::new(folder.join(format!("{name}.first")));
        if let Some(lock) = file.try_acquire()? {
            return Ok(Some(((file, lock), false)));
        }
        let (sender, receiver) = mpsc::sync_channel(0);
        let waiting = file.clone();
        let waiter = move || {
            let _ = sender.send(waiting.acquire());
        };
        thread::Builder::new().name("single-flight".to_owned()).spawn(waiter)?;
        loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(lock) => return lock.map(|lock| Some(((file, lock), true))),
                Err(RecvTimeoutError::Timeout) if may_wait() => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    fn in_progress(&self) -> MutexGuard<'_, BTreeSet<ArtifactKey>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a call that holds the lock of this process may wait for the lock between processes: its tree holds no
/// other.
fn may_wait_alone(tree: &Tree, deadline: Instant) -> bool {
    !tree.has_several_first_calls()
        && !tree.cancellation.is_cancelled()
        && tree.time_left().is_ok()
        && Instant::now() < deadline
}
