//! Processes under another, from `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time a process may outlive the one it was started for, on a busy machine.
const GRACE: Duration = Duration::from_mins(1);

/// A process, identified by its id and start time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessEntry {
    pub(crate) pid: u32,
    parent: u32,
    started: u64,
}

fn processes() -> Vec<ProcessEntry> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(read).collect()
}

fn read(pid: u32) -> Option<ProcessEntry> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything; the fields follow its closing bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(ProcessEntry {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// Every process under `root`.
pub(crate) fn descendants(root: u32) -> Vec<ProcessEntry> {
    let all = processes();
    let mut found: Vec<ProcessEntry> = Vec::new();
    let mut parents = BTreeSet::from([root]);
    loop {
        let next: Vec<ProcessEntry> = all
            .iter()
            .filter(|process| parents.contains(&process.parent) && !parents.contains(&process.pid))
            .cloned()
            .collect();
        if next.is_empty() {
            return found;
        }
        parents.extend(next.iter().map(|process| process.pid));
        found.extend(next);
    }
}

/// None of these is left, not even as a zombie.
pub(crate) fn assert_gone(children: &BTreeSet<ProcessEntry>) {
    let left = || -> Vec<&ProcessEntry> {
        let is_left = |child: &&ProcessEntry| {
            read(child.pid).is_some_and(|process| process.started == child.started)
        };
        children.iter().filter(is_left).collect()
    };
    let deadline = Instant::now() + GRACE;
    while !left().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(), Vec::<&ProcessEntry>::new());
}
