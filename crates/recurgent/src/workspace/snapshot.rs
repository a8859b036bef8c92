//! The files of a directory at one time.

use std::collections::BTreeMap;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::{Path, PathBuf};

use lifecycle::program::Checksum;
use rustix::fs::{FileType, Stat};

use super::folder::{Folder, kind};

/// Prefix of the name of a directory in the workspace that holds files while an answer is copied.
const STAGING_PREFIX: &str = ".recurgent-";
/// Digits of the end of that name, which is the checksum of what is before it.
const STAGING_PROOF: usize = 8;
/// Most files and directories of a workspace that programs may change.
pub(super) const MAX_ENTRIES: usize = 100_000;

/// What changes when a file does: what it is, its size, and the time of its last change, which no program can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) kind: FileType,
    pub(super) bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(stat: &Stat) -> Self {
        let kind = kind(stat);
        if kind == FileType::Directory {
            return Self { kind, bytes: 0, changed: (0, 0) }; // what is in it says more
        }
        let changed = (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or_default());
        Self { kind, bytes: u64::try_from(stat.st_size).unwrap_or_default(), changed }
    }
}

/// The files of a directory at one time, by their relative paths.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    files: BTreeMap<PathBuf, Stamp>,
    /// Directories that could not be listed, and why: what is in them is not known.
    unlisted: BTreeMap<PathBuf, String>,
    /// Whether some belong to another user or group.
    pub(super) has_foreign: bool,
}

impl Snapshot {
    /// Everything beneath a directory, links not followed, except what is in directories that cannot be listed.
    pub(super) fn of(folder: &Folder) -> Result<Self, String> {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut found = Self::default();
        let mut pending = vec![PathBuf::new()];
        while let Some(directory) = pending.pop() {
            let entries = match folder.list(&directory) {
                Ok(entries) => entries,
                // It was removed meanwhile.
                Err(error) if matches!(error.kind(), NotFound | NotADirectory) => continue,
                Err(error) => {
                    found.unlisted.insert(directory, error.to_string());
                    continue;
                }
            };
            for (path, stat) in entries {
                if is_staging(&path) {
                    continue;
                }
                if found.files.len() >= MAX_ENTRIES {
                    return Err(format!(
                        "a workspace that programs may change has at most {MAX_ENTRIES} files; grant a smaller directory"
                    ));
                }
                let stamp = Stamp::of(&stat);
                if stamp.kind == FileType::Directory {
                    pending.push(path.clone());
                }
                found.has_foreign |= (stat.st_uid, stat.st_gid) != own;
                found.files.insert(path, stamp);
            }
        }
        Ok(found)
    }

    pub(super) fn get(&self, path: &Path) -> Option<Stamp> {
        self.files.get(path).copied()
    }

    /// A directory that could not be listed, and could be `before`: whether its files are still there is not known.
    pub(super) fn newly_unlisted(&self, before: &Self) -> Option<(&Path, &str)> {
        let mut new = self.unlisted.iter().filter(|(path, _)| !before.unlisted.contains_key(*path));
        new.next().map(|(path, problem)| (path.as_path(), problem.as_str()))
    }

    /// Paths and stamps; a directory comes before what is in it.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Path, Stamp)> {
        self.files.iter().map(|(path, stamp)| (path.as_path(), *stamp))
    }
}

/// The name of a directory that holds files while an answer is copied. It ends with its own checksum, so no directory has
/// such a name by accident.
pub(super) fn staging_name(id: &str) -> String {
    let proof = Checksum::short_of(&format!("{STAGING_PREFIX}{id}"), STAGING_PROOF);
    format!("{STAGING_PREFIX}{id}-{proof}")
}

/// The name of a directory with files that could not be put back. It is one of the user's from then on.
pub(super) fn kept_name(id: &str) -> String {
    format!("{STAGING_PREFIX}kept-{id}")
}

/// Whether a path is where a call stages what it copies.
pub(super) fn is_staging(path: &Path) -> bool {
    let name = path.to_str().unwrap_or_default();
    let id = name.strip_prefix(STAGING_PREFIX).and_then(|rest| rest.rsplit_once('-'));
    id.is_some_and(|(id, _)| staging_name(id) == name)
}
