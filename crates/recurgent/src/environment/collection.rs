//! Background work that no call waits for: removing what is beyond the limits of disk space.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that collect. Dropping this waits for them.
#[derive(Debug, Default)]
pub(super) struct Collections(Mutex<Vec<JoinHandle<()>>>);

impl Collections {
    /// Starts one.
    pub(super) fn start(&self, collect: impl FnOnce() + Send + 'static) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|thread| !thread.is_finished());
        let started = thread::Builder::new().name("recurgent-collect".to_owned()).spawn(collect);
        // Without a thread, it is done after the next build.
        running.extend(started);
    }
}

impl Drop for Collections {
    fn drop(&mut self) {
        let running = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        for thread in running {
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
    }
}
