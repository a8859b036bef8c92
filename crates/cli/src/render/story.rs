//! Standard output of a command that shows its progress.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use recurgent::Cancellation;

use super::check_output;
use crate::exit::CommandFault;

/// Standard output, line by line. The first line that cannot be written stops the work, because the rest would be lost.
#[derive(Debug, Clone)]
pub(crate) struct StoryOutput {
    failed: Arc<OnceLock<io::Error>>,
    work: Cancellation,
}

impl StoryOutput {
    /// An output that cancels `work` when a line cannot be written.
    pub(crate) fn new(work: Cancellation) -> Self {
        Self { failed: Arc::default(), work }
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: &str) {
        // A failure is kept.
        let _ = self.write_all(format!("{text}\n").as_bytes());
    }

    /// True if the reader took everything; false if it closed the pipe; a full disk is an error.
    pub(crate) fn ended(mut self) -> Result<bool, CommandFault> {
        let _ = self.flush();
        let failed = self.failed.get();
        check_output(
            failed.map_or(Ok(()), |error| Err(io::Error::new(error.kind(), error.to_string()))),
        )
    }

    fn kept<T>(&self, written: io::Result<T>) -> io::Result<T> {
        written.inspect_err(|error| {
            let _ = self.failed.set(io::Error::new(error.kind(), error.to_string()));
            self.work.cancel();
        })
    }
}

impl Write for StoryOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.kept(io::stdout().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.kept(io::stdout().lock().flush())
    }
}
