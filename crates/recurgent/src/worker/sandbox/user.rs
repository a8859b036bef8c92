//! The user that contained processes run as.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::CapabilitySet;

use super::Seen;

/// First of the unused user numbers that zygotes run as.
const FIRST_USER: u32 = 0x7000_0000;
/// The user `nobody`, where unused numbers are not mapped.
const NOBODY: u32 = 65534;

impl Seen {
    /// Whether a user that owns nothing can read it.
    pub(super) fn is_open_to_all(&self) -> bool {
        let open = |path: &Path| {
            path.metadata().is_ok_and(|meta| {
                meta.mode() & 0o001 != 0 || (!meta.is_dir() && meta.mode() & 0o004 != 0)
            })
        };
        let reachable =
            |path: &PathBuf| path.canonicalize().is_ok_and(|path| path.ancestors().all(open));
        self.read.iter().all(reachable)
    }
}

/// Whether this process can mount without a user namespace.
pub(super) fn may_mount() -> bool {
    has_capability(CapabilitySet::SYS_ADMIN)
}

pub(super) fn has_capability(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// An unused user number, where this process may change its user.
pub(super) fn unused_user() -> Option<u32> {
    static USED: AtomicU32 = AtomicU32::new(0);
    let both = CapabilitySet::SETUID | CapabilitySet::SETGID;
    if !has_capability(both) {
        return None;
    }
    let of_host = std::process::id() & 0x003F_FFFF;
    let wanted = FIRST_USER + (of_host << 8) + (USED.fetch_add(1, Ordering::Relaxed) & 0xFF);
    let exists = |user: u32| {
        ["/proc/self/uid_map", "/proc/self/gid_map"].iter().all(|map| {
            std::fs::read_to_string(map).is_ok_and(|map| map.lines().any(|line| maps(line, user)))
        })
    };
    [wanted, NOBODY].into_iter().find(|user| exists(*user))
}

/// Whether a line of a user map (`inside outside count`) contains this user.
fn maps(line: &str, user: u32) -> bool {
    let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
    let (Some(first), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next())
    else {
        return false;
    };
    (first..first + count).contains(&u64::from(user))
}

/// Processes and threads a user has now: the per-user limit counts them too.
pub(super) fn tasks_of_user(user: u32) -> u64 {
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let tasks = entries.flatten().filter_map(|entry| {
        let is_users = entry.metadata().is_ok_and(|meta| meta.uid() == user);
        let name = entry.file_name();
        name.to_str()?.parse::<u32>().ok().filter(|_| is_users)?;
        Some(std::fs::read_dir(entry.path().join("task")).map_or(1, Iterator::count))
    });
    tasks.map(|count| count as u64).sum()
}
