//! Which files of a workspace a program changed, as seen from outside: a program that changed some is not run again.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::grants::Grants;

/// Most files and directories that are compared; a larger workspace counts as changed.
const MAX_ENTRIES: usize = 20_000;
/// Changed files that are named.
const MAX_NAMES: usize = 8;

/// What changes when a file does: its inode, its size, and the time of its last change, which no program can set.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        let changed = (meta.ctime(), meta.ctime_nsec());
        Self { inode: meta.ino(), bytes: meta.size(), changed }
    }
}

/// The files of a workspace at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    root: PathBuf,
    /// `None`: there are more than are compared.
    files: Option<BTreeMap<PathBuf, Stamp>>,
}

impl Snapshot {
    /// Of the workspace that programs may change; `None` if they have none.
    pub(crate) fn of_writable(grants: &Grants) -> Option<Self> {
        let root = grants.workspace.as_ref().filter(|_| grants.workspace_write)?;
        Some(Self::of(root))
    }

    fn of(root: &Path) -> Self {
        Self { root: root.to_owned(), files: files(root) }
    }

    /// What differs now, in words; empty if nothing does.
    pub(crate) fn changes(&self) -> Vec<String> {
        let (Some(before), Some(after)) = (&self.files, files(&self.root)) else {
            return vec![format!("changes of files in {}", self.root.display())];
        };
        let is_changed = |path: &&PathBuf| before.get(*path) != after.get(*path);
        let kept_or_new = after.keys().filter(is_changed);
        let removed = before.keys().filter(|path| !after.contains_key(*path));
        // A directory changes with every file that is made in it: the file says more.
        let mut changed: Vec<&PathBuf> = kept_or_new.chain(removed).collect();
        changed.sort();
        let says_less =
            |path: &PathBuf| changed.iter().any(|other| *other != path && other.starts_with(path));
        let named = changed.iter().filter(|path| !says_less(path)).take(MAX_NAMES);
        let shown = |path: &&PathBuf| {
            let name = path.strip_prefix(&self.root).unwrap_or(path);
            format!("change of {}", name.display())
        };
        named.map(shown).collect()
    }
}

/// Everything beneath a directory, links not followed. What cannot be read is left out.
fn files(root: &Path) -> Option<BTreeMap<PathBuf, Stamp>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if found.len() >= MAX_ENTRIES {
                return None;
            }
            if meta.is_dir() {
                pending.push(entry.path());
            }
            found.insert(entry.path(), Stamp::of(&meta));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_new_and_removed_files_are_named() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("a")).unwrap();
        for name in ["kept", "a/changed", "a/removed"] {
            fs::write(path(name), "1").unwrap();
        }
        let before = Snapshot::of(place.path());
        assert_eq!(before.changes(), Vec::<String>::new());
        fs::write(path("a/changed"), "22").unwrap();
        fs::remove_file(path("a/removed")).unwrap();
        fs::write(path("new"), "").unwrap();
        assert_eq!(
            before.changes(),
            ["change of a/changed", "change of a/removed", "change of new"]
        );
    }

    #[test]
    fn only_a_workspace_that_may_be_changed_is_watched() {
        let place = tempfile::tempdir().unwrap();
        let workspace = Some(place.path().to_owned());
        let read = Grants { workspace, ..Grants::default() };
        assert!(Snapshot::of_writable(&read).is_none());
        assert!(Snapshot::of_writable(&Grants { workspace_write: true, ..read }).is_some());
    }
}
