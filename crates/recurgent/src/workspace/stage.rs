//! Copying what an accepted answer changed to the workspace: first all that can fail is checked and written beside it, then
//! files are renamed, and if one cannot be, the others are put back.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::apply::{self, Applying, FailedChanges};
use super::changes::Change;
use super::folder::{Folder, kind};
use super::snapshot::{Snapshot, Stamp, is_staging, kept_name, staging_name};
use crate::identity;

/// The permissions of a new file, before the umask.
const NEW_FILE: u32 = 0o666;
const EXECUTABLE: u32 = 0o111;
const PERMISSIONS: u32 = 0o7777;
/// Longest time that a call waits for another one that copies.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Changes that are ready to be made. Dropping it leaves the workspace as it is.
#[derive(Debug)]
pub(crate) struct Staged<'a> {
    workspace: &'a Folder,
    changes: &'a [Change],
    /// The directory in the workspace that holds the new files, by their position in `changes`, and later the old ones.
    staging: (OsString, OwnedFd),
    /// The numbers under which files are staged that could not be put back.
    kept: Vec<usize>,
    /// Held so that two calls do not copy at once.
    _lock: OwnedFd,
}

impl<'a> Staged<'a> {
    /// Writes the new files beside the workspace's, unless a file that is to be changed is not as it was `before`.
    pub(super) fn new(
        changes: &'a [Change],
        before: &Snapshot,
        version: &Folder,
        workspace: &'a Folder,
    ) -> Result<Self, String> {
        let lock =
            lock(workspace, LOCK_WAIT).map_err(|error| format!("it cannot be locked: {error}"))?;
        let conflict = changes.iter().find(|change| is_conflict(change, before, workspace));
        if let Some(conflict) = conflict {
            return Err(format!(
                "{} was changed during the call by something else",
                conflict.path().display()
            ));
        }
        for change in changes {
            apply::check(change, workspace).map_err(|error| {
                format!("{} cannot be changed: {error}", change.path().display())
            })?;
        }
        let staging = make_staging(workspace).map_err(|error| {
            format!("a directory for the new files cannot be made in it: {error}")
        })?;
        let staged = Self { workspace, changes, staging, kept: Vec::new(), _lock: lock };
        for (index, change) in changes.iter().enumerate() {
            let Change::Write { path, is_executable } = change else { continue };
            staged
                .stage(index, path, *is_executable, version)
                .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        }
        Ok(staged)
    }

    fn stage(
        &self,
        index: usize,
        path: &Path,
        is_executable: bool,
        version: &Folder,
    ) -> io::Result<()> {
        let (_, staging) = &self.staging;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let created = rustix::fs::openat(staging, index.to_string(), flags, Mode::from(NEW_FILE))?;
        let mut created = File::from(created);
        io::copy(&mut version.file(path)?, &mut created)?;
        let current = self.workspace.stat(path).ok().filter(|it| kind(it) == FileType::RegularFile);
        let owner = current.or_else(|| self.containing(path));
        if let Some(owner) = owner.filter(|_| rustix::process::geteuid().is_root()) {
            let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
            rustix::fs::fchown(&created, Some(user), Some(group))?;
        }
        let mode = match current {
            Some(current) => current.st_mode & PERMISSIONS,
            None => rustix::fs::fstat(&created)?.st_mode & PERMISSIONS,
        };
        let readers = (mode & 0o444) >> 2; // who may read it may execute it
        let mode = if is_executable { mode | readers } else { mode & !EXECUTABLE };
        Ok(rustix::fs::fchmod(&created, Mode::from(mode))?)
    }

    /// The nearest directory of a path that exists.
    fn containing(&self, path: &Path) -> Option<Stat> {
        let above = path.ancestors().skip(1);
        let mut found =
            above.filter_map(|it| rustix::fs::fstat(self.workspace.directory(it).ok()?).ok());
        found.next()
    }

    /// Makes the changes; each file is replaced at once. If one cannot be made, the others are undone, and the error says
    /// so. Files that cannot be put back stay in a directory that the error names.
    pub(crate) fn apply(mut self) -> Result<(), String> {
        let Self { workspace, changes, staging: (_, staging), .. } = &self;
        let Err(failed) = (Applying { workspace, changes, staging }).run() else { return Ok(()) };
        let FailedChanges { problem, stay, replaced } = failed;
        if stay.is_empty() {
            return Err(format!("{problem}; the workspace is as it was"));
        }
        let stay = format!("{problem}; {} could not be changed back", stay.join(", "));
        if replaced.is_empty() {
            return Err(stay);
        }
        self.kept = replaced;
        let name = self.rename_to_keep();
        Err(format!("{stay}, what was there is in {}", name.to_string_lossy()))
    }

    /// Gives the directory of staged files a name under which no later call removes it.
    fn rename_to_keep(&mut self) -> OsString {
        let (name, _) = &mut self.staging;
        let kept = OsString::from(kept_name(&identity::instance_id()));
        if rustix::fs::renameat(self.workspace, &*name, self.workspace, &kept).is_ok() {
            *name = kept;
        }
        name.clone()
    }
}

impl Drop for Staged<'_> {
    /// Removes what was staged and not used, and what was replaced, except what could not be put back.
    fn drop(&mut self) {
        let (name, staging) = &self.staging;
        apply::clear(staging, self.changes.len(), &self.kept);
        // Fails if files are kept. Other leftovers are removed by a later call.
        let _ = rustix::fs::unlinkat(self.workspace, name, AtFlags::REMOVEDIR);
    }
}

/// Whether something else changed what is to be changed.
fn is_conflict(change: &Change, before: &Snapshot, workspace: &Folder) -> bool {
    let current = workspace.stat(change.path()).ok().map(|stat| Stamp::of(&stat));
    let earlier = before.get(change.path());
    match change {
        Change::Make(_) => {
            let is_other = |it: Stamp| it.kind != FileType::Directory && earlier.is_none();
            current.is_some_and(is_other)
        }
        Change::Remove { .. } | Change::Write { .. } => current != earlier,
    }
}

/// Waits a while, because a program that keeps its version locked must not stop its host.
fn lock(workspace: &Folder, wait: Duration) -> io::Result<OwnedFd> {
    let directory = workspace.directory(Path::new(""))?;
    let deadline = Instant::now() + wait;
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process holds its lock"));
            }
            locked => return Ok(locked.map(|()| directory)?),
        }
    }
}

/// A directory for the new files, in the workspace, so that they are only renamed later. What a killed call left is
/// removed: the lock is held, so no other call uses it.
fn make_staging(workspace: &Folder) -> io::Result<(OsString, OwnedFd)> {
    for (left, stat) in workspace.list(Path::new(""))? {
        if is_staging(&left) && kind(&stat) == FileType::Directory {
            remove_left(workspace, &left);
        }
    }
    let name = staging_name(&identity::instance_id());
    rustix::fs::mkdirat(workspace, &name, Mode::RWXU)?;
    let staging = workspace.directory(Path::new(&name))?;
    Ok((name.into(), staging))
}

/// Removes a directory of a killed call. One that holds anything else than staged files stays as it is, and one that
/// cannot be removed does not stop this call.
fn remove_left(workspace: &Folder, left: &Path) {
    let (Ok(files), Ok(directory)) = (workspace.list(left), workspace.directory(left)) else {
        return;
    };
    let is_own = |(file, stat): &(PathBuf, Stat)| apply::is_staged(file, stat);
    if !files.iter().all(is_own) {
        return;
    }
    for name in files.iter().filter_map(|(file, _)| file.file_name()) {
        let _ = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
    }
    let _ = rustix::fs::unlinkat(workspace, left, AtFlags::REMOVEDIR);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::changes::changes;
    use super::*;

    /// A workspace and a changed version of it.
    fn fixture() -> (tempfile::TempDir, [Folder; 2], Snapshot) {
        let place = tempfile::tempdir().unwrap();
        let folders = ["workspace", "version"].map(|name| {
            let path = place.path().join(name);
            fs::create_dir_all(&path).unwrap();
            Folder::open(&path).unwrap()
        });
        fs::write(place.path().join("workspace/kept.txt"), "kept").unwrap();
        fs::write(place.path().join("version/made.txt"), "made").unwrap();
        let before = Snapshot::of(&folders[0]).unwrap();
        (place, folders, before)
    }

    fn names(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place.join("workspace")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_staged_and_not_applied_is_gone() {
        let (place, [workspace, version], before) = fixture();
        let begun = Snapshot::default();
        let found = changes(&begun, &version, &workspace).unwrap();
        let staged = Staged::new(&found, &before, &version, &workspace).unwrap();
        assert_eq!(names(place.path()).len(), 2, "the new file waits beside the others");
        drop(staged);
        assert_eq!(names(place.path()), ["kept.txt"]);
        Staged::new(&found, &before, &version, &workspace).unwrap().apply().unwrap();
        assert_eq!(names(place.path()), ["kept.txt", "made.txt"]);
    }

    #[test]
    fn what_a_killed_call_staged_is_removed_and_no_change() {
        let (place, [workspace, version], before) = fixture();
        let left = place.path().join("workspace").join(staging_name("killed"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("0"), "left").unwrap();
        assert!(Snapshot::of(&workspace).unwrap().iter().eq(before.iter()));
        let found = changes(&Snapshot::default(), &version, &workspace).unwrap();
        Staged::new(&found, &before, &version, &workspace).unwrap().apply().unwrap();
        assert_eq!(names(place.path()), ["kept.txt", "made.txt"]);
    }

    /// Names that look like ours, and one of ours with a file of the user in it.
    #[test]
    fn what_this_software_did_not_make_stays() {
        let own = format!("{}/mine.txt", staging_name("killed"));
        for file in [
            ".recurgent-backup/important.txt",
            ".recurgent-backup/0",
            ".recurgent-0123456789abcdef/0",
            ".recurgent-0123456789abcdef-01234567/0",
            ".recurgent-backup/sub/0",
            own.as_str(),
        ] {
            let (place, [workspace, version], _) = fixture();
            let file = place.path().join("workspace").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "precious").unwrap();
            let before = Snapshot::of(&workspace).unwrap();
            let found = changes(&Snapshot::default(), &version, &workspace).unwrap();
            Staged::new(&found, &before, &version, &workspace).unwrap().apply().unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "precious", "{file:?}");
            assert!(names(place.path()).contains(&"made.txt".to_owned()), "{file:?}");
        }
    }

    /// Replaces `a.txt`, removes `b.txt` and `d/`, adds `new/n.txt`, and last changes `z.txt`.
    fn several() -> (tempfile::TempDir, [Folder; 2], Snapshot, Vec<Change>) {
        let (place, [workspace, version], _) = fixture();
        let root = place.path().join("workspace");
        for name in ["a.txt", "b.txt", "z.txt"] {
            fs::write(root.join(name), "old").unwrap();
        }
        fs::create_dir(root.join("d")).unwrap();
        let before = Snapshot::of(&workspace).unwrap();
        let made = place.path().join("version");
        fs::create_dir(made.join("new")).unwrap();
        for name in ["a.txt", "new/n.txt", "z.txt"] {
            fs::write(made.join(name), "new").unwrap();
        }
        let write = |path: &str| Change::Write { path: path.into(), is_executable: false };
        let remove = |path: &str, is_directory| Change::Remove { path: path.into(), is_directory };
        let found = vec![
            write("a.txt"),
            remove("b.txt", false),
            remove("d", true),
            Change::Make("new".into()),
            write("new/n.txt"),
            write("z.txt"),
        ];
        (place, [workspace, version], before, found)
    }

    #[test]
    fn if_a_change_fails_those_before_it_are_undone() {
        let (place, [workspace, version], before, found) = several();
        let staged = Staged::new(&found, &before, &version, &workspace).unwrap();
        // Something else takes the place of the last file after everything was checked.
        let last = place.path().join("workspace/z.txt");
        fs::remove_file(&last).unwrap();
        fs::create_dir_all(last.join("full")).unwrap();
        let failed = staged.apply().unwrap_err();
        assert!(failed.contains("z.txt cannot be changed"), "{failed}");
        assert!(failed.contains("the workspace is as it was"), "{failed}");
        assert_eq!(names(place.path()), ["a.txt", "b.txt", "d", "kept.txt", "z.txt"]);
        for name in ["a.txt", "b.txt"] {
            let path = place.path().join("workspace").join(name);
            assert_eq!(fs::read_to_string(path).unwrap(), "old", "{name}");
        }
        let (place, [workspace, version], before, found) = several();
        Staged::new(&found, &before, &version, &workspace).unwrap().apply().unwrap();
        assert_eq!(names(place.path()), ["a.txt", "kept.txt", "new", "z.txt"]);
    }

    #[test]
    fn a_program_that_locks_its_version_does_not_stop_its_host() {
        let (_place, [workspace, _], _) = fixture();
        let held = lock(&workspace, Duration::ZERO).unwrap();
        let refused = lock(&workspace, Duration::from_millis(20)).unwrap_err();
        assert!(refused.to_string().contains("another process holds its lock"), "{refused}");
        drop(held);
        lock(&workspace, Duration::ZERO).unwrap();
    }
}
