//! The user that contained processes run as.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::CapabilitySet;

use super::SandboxAccess;

/// First of the user ids without an account that zygotes run as.
const FIRST_USER: u32 = 0x7000_0000;
/// The user `nobody`, used if the user namespace does not map those ids.
const NOBODY: u32 = 65534;

impl SandboxAccess {
    /// Whether a user that owns nothing can reach every readable path: search its directories, and read or execute
    /// its files.
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

/// A user id without an account; `None` if this process may not change its user. The ids of one host repeat after
/// 256 calls.
pub(super) fn unused_user() -> Option<u32> {
    static USED: AtomicU32 = AtomicU32::new(0);
    let change_user = CapabilitySet::SETUID | CapabilitySet::SETGID;
    if !has_capability(change_user) {
        return None;
    }
    let host_bits = std::process::id() & 0x003F_FFFF;
    let wanted = FIRST_USER + (host_bits << 8) + (USED.fetch_add(1, Ordering::Relaxed) & 0xFF);
    let is_mapped = |user: u32| {
        ["/proc/self/uid_map", "/proc/self/gid_map"].iter().all(|map| {
            std::fs::read_to_string(map)
                .is_ok_and(|map| map.lines().any(|line| is_user_in(line, user)))
        })
    };
    [wanted, NOBODY].into_iter().find(|user| is_mapped(*user))
}

/// Whether a line of a user map (`inside outside count`) contains this user.
fn is_user_in(line: &str, user: u32) -> bool {
    let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
    let (Some(first), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next())
    else {
        return false;
    };
    (first..first + count).contains(&u64::from(user))
}

/// The number of processes and threads that a user has now: `RLIMIT_NPROC` counts them too.
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
