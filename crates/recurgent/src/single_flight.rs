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

use crate::lock_file::{FileLock, LockFile};
use crate::tree::{Tree, TreeLead};

/// Longest wait for another call's program; then a call goes on by itself.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// How often a waiting call checks whether it may still wait.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Characters of a digest that name a lock.
const NAME_CHARS: usize = 32;

/// The methods of a runtime for which a program is being written for the first time.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight {
    leading: Mutex<BTreeSet<ArtifactKey>>,
    changed: Condvar,
    /// Where locks between processes are kept; `None`: the store is this process's own.
    folder: Option<PathBuf>,
}

/// The call that asks the model; the others go on when this is dropped.
#[derive(Debug)]
pub(crate) struct FlightLead<'a> {
    flight: &'a SingleFlight,
    key: ArtifactKey,
    lock: Option<FileLock>,
    _tree: TreeLead,
    /// Whether another call led before: its program may be stored by now.
    pub(crate) waited: bool,
}

impl Drop for FlightLead<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            lock.remove();
        }
        self.flight.leading().remove(&self.key);
        self.flight.changed.notify_all();
    }
}

impl SingleFlight {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, ..Self::default() }
    }

    /// Waits while another call writes the first program of this method, then leads. `None`: the call goes on without
    /// the lead, because it was cancelled, it waited too long, or its tree leads elsewhere and must not wait.
    pub(crate) fn lead(&self, key: &ArtifactKey, tree: &Tree) -> Option<FlightLead<'_>> {
        let deadline = Instant::now() + LONGEST_WAIT;
        let may_wait = || {
            // Two trees that lead and wait for each other would never end.
            !tree.leads()
                && !tree.cancellation.is_cancelled()
                && tree.time_left().is_ok()
                && Instant::now() < deadline
        };
        let mut waited = false;
        let mut leading = self.leading();
        while !leading.insert(key.clone()) {
            if !may_wait() {
                return None;
            }
            waited = true;
            let woken = self.changed.wait_timeout(leading, POLL_INTERVAL);
            leading = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(leading);
        let mut lead =
            FlightLead { flight: self, key: key.clone(), lock: None, _tree: tree.lead(), waited };
        // Without a lock between processes, the model may be asked twice: no reason to fail.
        if let Ok(Some((lock, waited))) = self.lock(key, &|| may_wait_alone(tree, deadline)) {
            lead.lock = Some(lock);
            lead.waited |= waited;
        }
        Some(lead)
    }

    /// The lock of a method between processes, and whether another process had it before.
    fn lock(
        &self,
        key: &ArtifactKey,
        may_wait: &dyn Fn() -> bool,
    ) -> io::Result<Option<(FileLock, bool)>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let ArtifactKey { role, method, language, contract_fingerprint } = key;
        let identity = format!("{role}\n{method}\n{language}\n{contract_fingerprint}");
        let name: String =
            Checksum::of(&identity).as_str().chars().rev().take(NAME_CHARS).collect();
        let file = LockFile::new(folder, &format!("{name}.first"));
        if let Some(lock) = file.try_acquire()? {
            return Ok(Some((lock, false)));
        }
        let (sender, receiver) = mpsc::sync_channel(0);
        let waiter = move || {
            let _ = sender.send(file.acquire());
        };
        thread::Builder::new().name("single-flight".to_owned()).spawn(waiter)?;
        loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(lock) => return lock.map(|lock| Some((lock, true))),
                Err(RecvTimeoutError::Timeout) if may_wait() => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    fn leading(&self) -> MutexGuard<'_, BTreeSet<ArtifactKey>> {
        self.leading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As long as the tree leads this flight only.
fn may_wait_alone(tree: &Tree, deadline: Instant) -> bool {
    !tree.leads_others()
        && !tree.cancellation.is_cancelled()
        && tree.time_left().is_ok()
        && Instant::now() < deadline
}
