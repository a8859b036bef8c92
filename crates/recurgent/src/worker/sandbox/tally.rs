//! The kernel's counters of a worker and all processes it started.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use lifecycle::outcome::Limit;

/// A file of lines `name number`.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) file: File,
    pub(super) name: &'static str,
}

/// How often a worker's processes together reached a limit. Empty where the kernel does not count it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(super) memory: Option<Counter>,
    /// The counter's file; read once at most, so not kept open.
    pub(super) processes: Option<PathBuf>,
    /// The number of tasks; read after every program of a kept worker.
    pub(super) tasks: OnceLock<Option<File>>,
}

impl Tally {
    /// Whether the kernel killed one of them because they had used up their memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(Counter::has_counted)
    }

    /// The processes and threads of the worker and of all it started; `None`: the kernel does not count them.
    pub(crate) fn tasks(&self) -> Option<u64> {
        let open = || File::open(self.processes.as_ref()?.with_file_name("pids.current")).ok();
        let file = self.tasks.get_or_init(open).as_ref()?;
        let mut text = [0; 32];
        let read = file.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(text.get(..read)?).ok()?.trim().parse().ok()
    }

    /// The limit that explains why the program did not end in time.
    pub(crate) fn limit_reached(&self) -> Option<Limit> {
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
        let read = self.file.read_at(&mut text, 0).unwrap_or(0); // a removed group counts nothing
        let text = std::str::from_utf8(text.get(..read).unwrap_or_default()).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.any(|(name, number)| name == self.name && number.trim() != "0")
    }
}
