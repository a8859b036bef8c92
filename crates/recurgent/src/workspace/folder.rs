//! A directory that is only used from its descriptor downwards: no link in it leads anywhere else, even if a program
//! changes it meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// Links are not followed, and nothing outside is reached.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// The directory. Every path is relative to it; the empty path is the directory itself.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// A directory that the caller names; links on the way are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    pub(super) fn of(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// A directory in it.
    pub(super) fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open_inside(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// A regular file in it, for reading.
    pub(super) fn file(&self, path: &Path) -> io::Result<File> {
        // A pipe would block.
        let file = File::from(self.open_inside(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// What a path names; a link is not followed.
    pub(super) fn stat(&self, path: &Path) -> io::Result<Stat> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The names in a directory, and what they name.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, Stat)>> {
        let directory = self.directory(path)?;
        let mut found = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => found.push((path.join(name), stat)),
                Err(Errno::NOENT) => {} // it was removed meanwhile
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Where a link leads, as it is written.
    pub(super) fn link(&self, path: &Path) -> io::Result<Vec<u8>> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::readlinkat(&parent, name, Vec::new())?.into_bytes())
    }

    /// The directory that holds a path, and the path's name in it.
    pub(super) fn parent<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.directory(path.parent().unwrap_or(Path::new("")))?, name))
    }

    fn open_inside(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat2(&self.0, path, flags, Mode::empty(), INSIDE)?)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What kind of file it is.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("inside");
        std::fs::create_dir_all(inside.join("a")).unwrap();
        std::fs::write(place.path().join("outside.txt"), "secret").unwrap();
        std::fs::write(inside.join("a/kept.txt"), "kept").unwrap();
        std::os::unix::fs::symlink(place.path(), inside.join("up")).unwrap();
        std::os::unix::fs::symlink("a/kept.txt", inside.join("here")).unwrap();
        let folder = Folder::open(&inside).unwrap();
        assert!(folder.file(Path::new("a/kept.txt")).is_ok());
        for path in ["up/outside.txt", "../outside.txt", "/etc/passwd", "here", "up", "a"] {
            assert!(folder.file(Path::new(path)).is_err(), "{path}");
        }
        assert!(folder.directory(Path::new("up")).is_err());
        assert_eq!(folder.link(Path::new("here")).unwrap(), b"a/kept.txt");
        let names: Vec<PathBuf> =
            folder.list(Path::new("a")).unwrap().into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, [Path::new("a/kept.txt")]);
    }
}
