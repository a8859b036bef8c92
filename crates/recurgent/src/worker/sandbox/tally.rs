//! What the kernel counts of a worker's whole tree of processes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use lifecycle::outcome::Limit;

/// A file of lines `name number`.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) file: File,
    pub(super) name: &'static str,
}

/// How often a worker's processes together met a limit. Empty where that is not counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(super) memory: Option<Counter>,
    /// Where it is counted; looked at once at most, so not kept open.
    pub(super) processes: Option<PathBuf>,
}

impl Tally {
    /// Whether one of them was ended because they had used up their memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(Counter::has_counted)
    }

    /// The limit that explains why they did not come to an end.
    pub(crate) fn met(&self) -> Option<Limit> {
        let short_of_processes = || {
            let file = File::open(self.processes.as_ref()?).ok()?;
            Some(Counter { file, name: "max" }.has_counted())
        };
        if self.is_out_of_memory() {
            return Some(Limit::Memory);
        }
        short_of_processes().unwrap_or(false).then_some(Limit::Processes)
    }
}

impl Counter {
    fn has_counted(&self) -> bool {
        let mut text = [0; 512];
        let read = self.file.read_at(&mut text, 0).unwrap_or(0); // a group that is gone counts nothing
        let text = std::str::from_utf8(text.get(..read).unwrap_or_default()).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.any(|(name, number)| name == self.name && number.trim() != "0")
    }
}
