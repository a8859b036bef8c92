//! The user that contained processes run as.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::thread::CapabilitySet;

use super::SandboxAccess;

/// The first user id that zygotes run as. These ids have no account.
const FIRST_USER: u32 = 0x7000_0000;
/// The number of ids that one process of the runtime gives to its sandboxes.
const USERS_PER_PROCESS: u32 = 256;
/// The user `nobody`, used if the user namespace does not map those ids.
const NOBODY: u32 = 65534;

/// Most files of a granted directory whose groups are checked.
const MAX_CHECKED: usize = 100_000;

/// The ids that sandboxes of this process run as now.
static USERS: Mutex<UserPool> = Mutex::new(UserPool { given: 0, in_use: BTreeSet::new() });

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

/// The groups that sandboxed processes keep beside their primary one: an unprivileged user namespace cannot drop them.
#[derive(Debug, Default)]
pub(super) struct KeptGroups {
    user: u32,
    group: u32,
    supplementary: Vec<u32>,
}

/// The supplementary groups of this process that its sandboxed processes keep; none where they can be dropped.
pub(super) fn kept_groups() -> KeptGroups {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut supplementary = Vec::new();
    if !has_capability(CapabilitySet::SETGID) {
        let groups = rustix::process::getgroups().unwrap_or_default();
        supplementary.extend(groups.iter().map(|it| it.as_raw()).filter(|it| *it != group));
    }
    KeptGroups { user, group, supplementary }
}

impl KeptGroups {
    /// Whether a path can be reached only by a member of one of these groups. Such a path is not shown to programs.
    pub(super) fn are_needed_for(&self, path: &Path) -> bool {
        if self.supplementary.is_empty() {
            return false;
        }
        let needs = |at: &Path| at.metadata().is_ok_and(|meta| self.are_needed(&meta));
        path.canonicalize().is_ok_and(|real| real.ancestors().any(needs))
    }

    /// Whether only a member of one of these groups may read a file, or use what is in a directory.
    pub(super) fn are_needed(&self, meta: &Metadata) -> bool {
        const READ: u32 = 4;
        const SEARCH: u32 = 1;
        let wanted = if meta.is_dir() { SEARCH } else { READ };
        meta.uid() != self.user
            && meta.gid() != self.group
            && meta.mode() & wanted == 0
            && self.supplementary.contains(&meta.gid())
    }

    /// The paths in a granted directory that only a member of one of these groups can reach, and whether each is a
    /// directory. The rest of a very large directory is not checked.
    pub(super) fn paths_that_need_them(&self, directory: &Path) -> Vec<(PathBuf, bool)> {
        let (mut found, mut pending) = (Vec::new(), vec![directory.to_owned()]);
        let mut checked = 0;
        while let Some(directory) = pending.pop().filter(|_| !self.supplementary.is_empty()) {
            for entry in entries(&directory) {
                checked += 1;
                let Ok(meta) = entry.symlink_metadata() else { continue };
                if checked > MAX_CHECKED {
                    return found;
                }
                if meta.is_symlink() {
                    continue; // a target in the directory is checked by its own path
                }
                if self.are_needed(&meta) {
                    found.push((entry, meta.is_dir()));
                } else if meta.is_dir() {
                    pending.push(entry);
                }
            }
        }
        found
    }
}

impl KeptGroups {
    /// The paths that together are everything in a directory that can be reached without these groups: the directory
    /// itself, or those of its entries that do not need them.
    pub(super) fn reachable_without(&self, path: &Path) -> Vec<PathBuf> {
        if self.supplementary.is_empty() {
            return vec![path.to_owned()];
        }
        if self.are_needed_for(path) {
            return Vec::new();
        }
        let entries = entries(path);
        let reachable: Vec<Vec<PathBuf>> =
            entries.iter().map(|entry| self.reachable_without(entry)).collect();
        let is_whole = entries
            .iter()
            .zip(&reachable)
            .all(|(entry, found)| found.as_slice() == [entry.clone()]);
        if is_whole { vec![path.to_owned()] } else { reachable.concat() }
    }
}

/// The entries of a directory; none of a link or of a path that is not a directory.
fn entries(path: &Path) -> Vec<PathBuf> {
    let is_directory = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let found = std::fs::read_dir(path).ok().filter(|_| is_directory);
    found.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Whether this process can mount without a user namespace.
pub(super) fn may_mount() -> bool {
    has_capability(CapabilitySet::SYS_ADMIN)
}

pub(super) fn has_capability(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// The user that the processes of one sandbox run as. No other sandbox of this process gets the same id until this is
/// dropped; if the ids are not mapped, all sandboxes share the user `nobody`.
#[derive(Debug)]
pub(super) struct SandboxUser {
    id: u32,
    /// Its place in [`USERS`]; `None` for the user `nobody`.
    number: Option<u32>,
}

impl SandboxUser {
    /// A user that owns nothing; `None` if this process may not change its user.
    pub(super) fn reserve() -> io::Result<Option<Self>> {
        if !has_capability(CapabilitySet::SETUID | CapabilitySet::SETGID) {
            return Ok(None);
        }
        let first = FIRST_USER + ((std::process::id() & 0x003F_FFFF) << 8);
        if !(is_mapped(first) && is_mapped(first + USERS_PER_PROCESS - 1)) {
            return Ok(is_mapped(NOBODY).then_some(Self { id: NOBODY, number: None }));
        }
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = users.reserve(|number| tasks_of_user(first + number) > 0);
        let number = number.ok_or_else(|| {
            io::Error::other(format!(
                "all {USERS_PER_PROCESS} user ids of this process are in use; close runtimes that are not needed"
            ))
        })?;
        Ok(Some(Self { id: first + number, number: Some(number) }))
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for SandboxUser {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            USERS.lock().unwrap_or_else(PoisonError::into_inner).in_use.remove(&number);
        }
    }
}

/// Numbers below [`USERS_PER_PROCESS`], each in use at most once.
#[derive(Debug)]
struct UserPool {
    /// How many numbers were given or skipped so far.
    given: u32,
    in_use: BTreeSet<u32>,
}

impl UserPool {
    /// The number that was free for the longest time; `None` if all are in use. A number that was given before is
    /// skipped while processes of its last user are left.
    fn reserve(&mut self, has_processes: impl Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..USERS_PER_PROCESS {
            let (round, number) = (self.given / USERS_PER_PROCESS, self.given % USERS_PER_PROCESS);
            self.given = self.given.checked_add(1).unwrap_or(USERS_PER_PROCESS);
            if self.in_use.contains(&number) || (round > 0 && has_processes(number)) {
                continue;
            }
            self.in_use.insert(number);
            return Some(number);
        }
        None
    }
}

/// Whether the user namespace of this process has this user and group id.
fn is_mapped(user: u32) -> bool {
    ["/proc/self/uid_map", "/proc/self/gid_map"].iter().all(|map| {
        std::fs::read_to_string(map).is_ok_and(|map| map.lines().any(|line| is_user_in(line, user)))
    })
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_user_id_in_use_is_not_given_again() {
        let mut pool = UserPool { given: 0, in_use: BTreeSet::new() };
        let nothing_left = |_: u32| false;
        let all: BTreeSet<u32> =
            std::iter::from_fn(|| pool.reserve(nothing_left)).take(1000).collect();
        assert_eq!(all, (0..USERS_PER_PROCESS).collect());
        assert_eq!(pool.reserve(nothing_left), None);
        for number in [7, 3] {
            pool.in_use.remove(&number);
        }
        assert_eq!(pool.reserve(|number| number == 3), Some(7), "a process of user 3 is left");
        assert_eq!(pool.reserve(nothing_left), Some(3));
        assert_eq!(pool.reserve(nothing_left), None);
    }

    #[test]
    fn sandboxes_have_different_users() {
        let users: Vec<SandboxUser> =
            (0..8).filter_map(|_| SandboxUser::reserve().unwrap()).collect();
        let ids: BTreeSet<u32> = users.iter().map(SandboxUser::id).collect();
        let is_shared = users.iter().any(|user| user.id == NOBODY);
        assert!(is_shared || ids.len() == users.len(), "{users:?}");
        let numbers: Vec<Option<u32>> = users.iter().map(|user| user.number).collect();
        drop(users);
        let in_use = USERS.lock().unwrap_or_else(PoisonError::into_inner).in_use.clone();
        let left = numbers.iter().flatten().filter(|number| in_use.contains(number)).count();
        assert_eq!(left, 0, "{numbers:?} of {in_use:?}");
    }

    #[test]
    fn what_only_a_supplementary_group_reaches_is_not_shown() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let folder = place.path().join("private");
        let key = folder.join("server.key");
        fs::create_dir(&folder).unwrap();
        fs::write(&key, "secret").unwrap();
        let (public, inside) = (place.path().join("public.pem"), folder.join("public.pem"));
        for file in [&public, &inside] {
            fs::write(file, "public").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }
        let meta = key.metadata().unwrap();
        // As another user who is in the files' group.
        let groups = |user: u32, group: u32, supplementary: Vec<u32>| KeptGroups {
            user: meta.uid().wrapping_add(user),
            group: meta.gid().wrapping_add(group),
            supplementary,
        };
        for (folder_mode, key_mode, groups, is_needed) in [
            (0o755, 0o644, groups(1, 1, vec![meta.gid()]), false),
            (0o755, 0o640, groups(1, 1, vec![meta.gid()]), true),
            (0o710, 0o644, groups(1, 1, vec![meta.gid()]), true),
            (0o710, 0o640, groups(0, 1, vec![meta.gid()]), false),
            (0o710, 0o640, groups(1, 0, vec![meta.gid()]), false),
            (0o710, 0o640, groups(1, 1, Vec::new()), false),
        ] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(folder_mode)).unwrap();
            fs::set_permissions(&key, fs::Permissions::from_mode(key_mode)).unwrap();
            let case = format!("{folder_mode:o} {key_mode:o} {groups:?}");
            assert_eq!(groups.are_needed_for(&key), is_needed, "{case}");
            // Beside it is something that everybody may read.
            let rest = groups.reachable_without(place.path());
            let expected = match (is_needed, folder_mode) {
                (false, _) => vec![place.path().to_owned()],
                (true, 0o755) => vec![public.clone(), inside.clone()],
                (true, _) => vec![public.clone()],
            };
            assert_eq!(BTreeSet::from_iter(rest), BTreeSet::from_iter(expected), "{case}");
            let hidden = match (is_needed, folder_mode) {
                (false, _) => Vec::new(),
                (true, 0o755) => vec![(key.clone(), false)],
                (true, _) => vec![(folder.clone(), true)],
            };
            assert_eq!(groups.paths_that_need_them(place.path()), hidden, "{case}");
        }
    }
}
