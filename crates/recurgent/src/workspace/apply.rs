//! Replacing the files of a workspace by staged ones, so that all of it happens or nothing.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Access, AtFlags, FileType, Gid, Mode, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use super::changes::Change;
use super::folder::{Folder, kind};

/// The permissions of a new directory, before the umask.
const NEW_DIRECTORY: u32 = 0o777;
const PERMISSIONS: u32 = 0o7777;

/// Whether a change can be made, as far as that shows before: the directory that is to hold it can be changed, and
/// files can be renamed to it.
pub(super) fn check(change: &Change, workspace: &Folder) -> io::Result<()> {
    let parent = nearest(workspace, change.path())?;
    let needed = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(&parent, ".", needed, AtFlags::EACCESS).map_err(|error| {
        io::Error::new(
            io::Error::from(error).kind(),
            format!("the directory that holds it cannot be changed ({error})"),
        )
    })?;
    let device = |stat: Stat| stat.st_dev;
    let top = workspace.directory(Path::new(""))?;
    if device(rustix::fs::fstat(&parent)?) != device(rustix::fs::fstat(&top)?) {
        return Err(io::Error::other("it is on another file system than the workspace"));
    }
    Ok(())
}

/// The nearest directory above a path that exists. Those beneath it are made by earlier changes.
fn nearest(workspace: &Folder, path: &Path) -> io::Result<OwnedFd> {
    let is_made_before = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    };
    let above = path.ancestors().skip(1).map(|path| workspace.directory(path));
    let mut found = above.filter(|it| !it.as_ref().is_err_and(is_made_before));
    found.next().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
}

/// A change that was made, and what undoes it.
#[derive(Debug)]
enum Made {
    /// The file that was there is staged under this number.
    Replaced(usize),
    /// Nothing was there.
    Added,
    /// A directory was made.
    Directory,
    /// A directory was removed.
    NoDirectory(Stat),
    /// Something else had done it, or what was there could not be kept.
    Nothing,
}

/// Changes that could not be made.
#[derive(Debug, Default)]
pub(super) struct FailedChanges {
    /// The first one, and why.
    pub(super) problem: String,
    /// Those before it that could not be undone.
    pub(super) stay: Vec<String>,
    /// What those replaced, by the numbers under which it is staged.
    pub(super) replaced: Vec<usize>,
}

/// Makes changes and remembers how to undo them.
#[derive(Debug)]
pub(super) struct Applying<'a> {
    pub(super) workspace: &'a Folder,
    pub(super) changes: &'a [Change],
    /// Holds new files by their position in `changes`, and takes the old ones.
    pub(super) staging: &'a OwnedFd,
}

impl Applying<'_> {
    /// Makes every change. If one cannot be made, those before it are undone.
    pub(super) fn run(&self) -> Result<(), FailedChanges> {
        let mut made = Vec::with_capacity(self.changes.len());
        for (index, change) in self.changes.iter().enumerate() {
            match self.make(index, change) {
                Ok(done) => made.push(done),
                Err(error) => {
                    let problem = format!("{} cannot be changed: {error}", change.path().display());
                    return Err(FailedChanges { problem, ..self.undo(&made) });
                }
            }
        }
        Ok(())
    }

    fn make(&self, index: usize, change: &Change) -> io::Result<Made> {
        let (parent, name) = self.workspace.parent(change.path())?;
        match change {
            Change::Remove { is_directory: true, .. } => {
                let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
                match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
                    // Something else put a file into a directory that the program removed: both stay.
                    Err(Errno::NOTEMPTY | Errno::NOENT) => Ok(Made::Nothing),
                    removed => {
                        removed?;
                        Ok(stat.map_or(Made::Nothing, Made::NoDirectory))
                    }
                }
            }
            Change::Remove { .. } => {
                match rustix::fs::renameat(&parent, name, self.staging, index.to_string()) {
                    Err(Errno::NOENT) => Ok(Made::Nothing),
                    removed => Ok(removed.map(|()| Made::Replaced(index))?),
                }
            }
            Change::Make(_) => {
                match rustix::fs::mkdirat(&parent, name, Mode::from(NEW_DIRECTORY)) {
                    Err(Errno::EXIST) => Ok(Made::Nothing),
                    made => {
                        made?;
                        give_to_owner(&parent, name)?;
                        Ok(Made::Directory)
                    }
                }
            }
            Change::Write { .. } => self.replace(index, &parent, name),
        }
    }

    /// Puts a staged file in the place of another, which is staged instead.
    fn replace(&self, index: usize, parent: &OwnedFd, name: &OsStr) -> io::Result<Made> {
        let new = index.to_string();
        let exchange = RenameFlags::EXCHANGE;
        match rustix::fs::renameat_with(self.staging, &new, parent, name, exchange) {
            Ok(()) => return self.unless_directory(index, parent, name),
            Err(Errno::NOENT) => {
                rustix::fs::renameat(self.staging, &new, parent, name)?;
                return Ok(Made::Added);
            }
            // Not every file system can exchange two files.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let old = index.saturating_add(self.changes.len());
        let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_new = matches!(found, Err(Errno::NOENT));
        let kept =
            rustix::fs::linkat(parent, name, self.staging, old.to_string(), AtFlags::empty());
        rustix::fs::renameat(self.staging, &new, parent, name)?;
        Ok(match kept {
            _ if is_new => Made::Added,
            Ok(()) => Made::Replaced(old),
            Err(_) => Made::Nothing,
        })
    }

    /// A directory that something else has just put there goes back.
    fn unless_directory(&self, index: usize, parent: &OwnedFd, name: &OsStr) -> io::Result<Made> {
        let old = index.to_string();
        let stat = rustix::fs::statat(self.staging, &old, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind(&stat) == FileType::Directory {
            rustix::fs::renameat_with(self.staging, &old, parent, name, RenameFlags::EXCHANGE)?;
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Made::Replaced(index))
    }

    /// Undoes what was made, the last first; gives what could not be undone.
    fn undo(&self, made: &[Made]) -> FailedChanges {
        let mut failed = FailedChanges::default();
        let done: Vec<(&Change, &Made)> = self.changes.iter().zip(made).collect();
        for (change, made) in done.into_iter().rev() {
            if self.undo_one(change, made).is_ok() {
                continue;
            }
            failed.stay.push(change.path().display().to_string());
            if let Made::Replaced(old) = made {
                failed.replaced.push(*old);
            }
        }
        failed
    }

    fn undo_one(&self, change: &Change, made: &Made) -> io::Result<()> {
        let (parent, name) = self.workspace.parent(change.path())?;
        match made {
            Made::Replaced(old) => {
                Ok(rustix::fs::renameat(self.staging, old.to_string(), &parent, name)?)
            }
            Made::Added => Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?),
            Made::Directory => Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?),
            Made::NoDirectory(stat) => {
                rustix::fs::mkdirat(&parent, name, Mode::from(stat.st_mode & PERMISSIONS))?;
                if rustix::process::geteuid().is_root() {
                    own(&parent, name, stat)?;
                }
                let made = self.workspace.directory(change.path())?;
                Ok(rustix::fs::fchmod(&made, Mode::from(stat.st_mode & PERMISSIONS))?)
            }
            Made::Nothing if matches!(change, Change::Write { .. }) => {
                Err(io::ErrorKind::NotFound.into())
            }
            Made::Nothing => Ok(()),
        }
    }
}

/// Removes what is staged, except these numbers.
pub(super) fn clear(staging: &OwnedFd, changes: usize, kept: &[usize]) {
    for number in (0..changes.saturating_mul(2)).filter(|number| !kept.contains(number)) {
        // Most have been moved away.
        let _ = rustix::fs::unlinkat(staging, number.to_string(), AtFlags::empty());
    }
}

/// A directory that root made belongs to the owner of the directory above.
fn give_to_owner(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    own(parent, name, &rustix::fs::fstat(parent)?)
}

fn own(parent: &OwnedFd, name: &OsStr, owner: &Stat) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::chownat(parent, name, Some(user), Some(group), flags)?)
}

/// Whether a path is a number, as the names of staged files are, and no directory.
pub(super) fn is_staged(path: &Path, stat: &Stat) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    kind(stat) != FileType::Directory && name.is_some_and(|name| name.parse::<usize>().is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Something else took the place of a replaced file before the change could be undone.
    #[test]
    fn what_cannot_be_put_back_is_named_and_kept() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for folder in ["workspace/a.txt/other", "staging"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (file, text) in [("staging/0", "old a"), ("staging/1", "old b")] {
            fs::write(at(file), text).unwrap();
        }
        let workspace = Folder::open(&at("workspace")).unwrap();
        let staging = Folder::open(&at("staging")).unwrap().directory(Path::new("")).unwrap();
        let changes = ["a.txt", "b.txt"]
            .map(|path| Change::Write { path: path.into(), is_executable: false });
        let applying = Applying { workspace: &workspace, changes: &changes, staging: &staging };
        let failed = applying.undo(&[Made::Replaced(0), Made::Replaced(1)]);
        assert_eq!((&*failed.stay, &*failed.replaced), (&["a.txt".to_owned()][..], &[0][..]));
        clear(&staging, changes.len(), &failed.replaced);
        assert_eq!(fs::read_to_string(at("staging/0")).unwrap(), "old a");
        assert_eq!(fs::read_to_string(at("workspace/b.txt")).unwrap(), "old b");
    }

    #[test]
    fn a_file_on_another_file_system_is_refused_before_anything_changes() {
        let root = Folder::open(Path::new("/")).unwrap();
        let write = |path: &str| Change::Write { path: path.into(), is_executable: false };
        let refused = check(&write("proc/made.txt"), &root).unwrap_err().to_string();
        assert!(refused.contains("another file system"), "{refused}");
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        for path in ["made.txt", "new/deep/made.txt"] {
            check(&write(path), &folder).unwrap();
        }
    }
}
