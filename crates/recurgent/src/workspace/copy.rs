//! A copy of a workspace, within bounds.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};

use super::folder::Folder;
use super::snapshot::Snapshot;

/// Largest workspace that is copied.
const MAX_COPY_BYTES: u64 = 256 << 20;
const PERMISSIONS: u32 = 0o7777;

/// Copies what a snapshot of a directory has to an empty one: files, directories and links, with their owners where
/// that is permitted. What cannot be read, or is hidden from programs, is left out.
pub(super) fn copy(
    from: &Folder,
    files: &Snapshot,
    to: &Folder,
    is_hidden: impl Fn(&Metadata) -> bool,
) -> Result<(), String> {
    // Files with holes may have any size.
    let bytes = files.iter().fold(0_u64, |sum, (_, stamp)| sum.saturating_add(stamp.bytes));
    if bytes > MAX_COPY_BYTES {
        return Err(format!(
            "the program needs a copy of the workspace, which has {} MB, and at most {} MB are copied; grant a smaller \
             directory",
            bytes >> 20,
            MAX_COPY_BYTES >> 20
        ));
    }
    for (path, stamp) in files.iter() {
        let copied = match stamp.kind {
            FileType::Directory => make_directory(path, from, to, &is_hidden),
            FileType::RegularFile => copy_file(path, stamp.bytes, from, to, &is_hidden),
            FileType::Symlink => copy_link(path, from, to),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(()),
        };
        match copied {
            Err(error) if is_left_out(&error) => {}
            copied => copied.map_err(|error| {
                format!("{} of the workspace cannot be copied: {error}", path.display())
            })?,
        }
    }
    // Directories last, from the bottom: one may not be writable.
    for (path, stamp) in files.iter().rev() {
        if stamp.kind == FileType::Directory {
            adopt_directory(path, from, to);
        }
    }
    adopt_directory(Path::new(""), from, to);
    Ok(())
}

/// It was removed meanwhile, is not readable, or is beneath such a directory.
fn is_left_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

type IsHidden<'a> = &'a dyn Fn(&Metadata) -> bool;

fn make_directory(
    path: &Path,
    from: &Folder,
    to: &Folder,
    is_hidden: IsHidden<'_>,
) -> io::Result<()> {
    if is_hidden(&File::from(from.directory(path)?).metadata()?) {
        return Ok(()); // and so is what is in it
    }
    let (parent, name) = to.parent(path)?;
    Ok(rustix::fs::mkdirat(&parent, name, Mode::RWXU)?)
}

fn copy_file(
    path: &Path,
    bytes: u64,
    from: &Folder,
    to: &Folder,
    is_hidden: IsHidden<'_>,
) -> io::Result<()> {
    let source = from.file(path)?;
    if is_hidden(&source.metadata()?) {
        return Ok(());
    }
    let (parent, name) = to.parent(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let copied = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)?;
    let mut copied = File::from(copied);
    let stat = rustix::fs::fstat(&source)?;
    io::copy(&mut source.take(bytes), &mut copied)?; // it may grow meanwhile
    let (user, group) = owner(&stat);
    let _ = rustix::fs::fchown(&copied, Some(user), Some(group)); // only root may
    Ok(rustix::fs::fchmod(&copied, Mode::from(stat.st_mode & PERMISSIONS))?)
}

fn copy_link(path: &Path, from: &Folder, to: &Folder) -> io::Result<()> {
    let (parent, name) = to.parent(path)?;
    rustix::fs::symlinkat(from.link(path)?, &parent, name)?;
    let (user, group) = owner(&from.stat(path)?);
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let _ = rustix::fs::chownat(&parent, name, Some(user), Some(group), flags); // only root may
    Ok(())
}

/// Gives a copied directory the owner and the permissions of its original, as far as that is permitted.
fn adopt_directory(path: &Path, from: &Folder, to: &Folder) {
    let (Ok(source), Ok(copied)) = (from.directory(path), to.directory(path)) else { return };
    let Ok(stat) = rustix::fs::fstat(&source) else { return };
    let (user, group) = owner(&stat);
    let _ = rustix::fs::fchown(&copied, Some(user), Some(group)); // only root may
    // Its owner must be able to remove it.
    let _ = rustix::fs::fchmod(&copied, Mode::from(stat.st_mode & PERMISSIONS) | Mode::RWXU);
}

fn owner(stat: &Stat) -> (Uid, Gid) {
    (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid))
}
