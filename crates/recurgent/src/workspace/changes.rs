//! What a program changed in its version of a workspace.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::folder::Folder;
use super::snapshot::{Snapshot, Stamp};

/// Most files and directories that one answer changes.
const MAX_CHANGES: usize = 10_000;
/// Bytes of the changed files of one answer, together.
const MAX_CHANGED_BYTES: u64 = 256 << 20;
/// The permission of the owner to execute.
const EXECUTABLE: u32 = 0o100;
/// Bytes compared at a time.
const CHUNK: usize = 64 * 1024;

/// One file or directory that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A file or link, or a directory that is empty by then, is removed.
    Remove { path: PathBuf, is_directory: bool },
    /// A directory is made.
    Make(PathBuf),
    /// A file is written whole.
    Write { path: PathBuf, is_executable: bool },
}

impl Change {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Remove { path, .. } | Self::Make(path) | Self::Write { path, .. } => path,
        }
    }
}

/// What differs between a program's version, which was `before` when it began, and the workspace. The error says what
/// cannot be copied.
pub(super) fn changes(
    before: &Snapshot,
    version: &Folder,
    workspace: &Folder,
) -> Result<Vec<Change>, String> {
    let after = Snapshot::of(version)?;
    // Otherwise everything in it would count as removed.
    if let Some((path, problem)) = after.newly_unlisted(before) {
        return Err(format!(
            "the program left the directory `{}` of the workspace so that it cannot be listed: {problem}",
            path.display()
        ));
    }
    let mut found = Vec::new();
    for (path, stamp) in before.iter().rev() {
        let is_same_kind = after.get(path).is_some_and(|after| after.kind == stamp.kind);
        if !is_same_kind && workspace.stat(path).is_ok() {
            let is_directory = stamp.kind == FileType::Directory;
            found.push(Change::Remove { path: path.to_owned(), is_directory });
        }
    }
    let mut bytes = 0_u64;
    for (path, stamp) in after.iter() {
        let earlier = before.get(path);
        if earlier == Some(stamp) && stamp.kind != FileType::Directory {
            continue;
        }
        match stamp.kind {
            FileType::Directory if earlier.is_some_and(|it| it.kind == FileType::Directory) => {}
            FileType::Directory => found.push(Change::Make(path.to_owned())),
            FileType::RegularFile => {
                let Some(change) = written(path, stamp, version, workspace)? else { continue };
                bytes = bytes.saturating_add(stamp.bytes);
                found.push(change);
            }
            _ if is_kept(path, earlier, stamp, version, workspace) => {}
            FileType::Symlink => return Err(refused(path, "a symbolic link")),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Err(refused(path, "a special file")),
        }
    }
    if found.len() > MAX_CHANGES || bytes > MAX_CHANGED_BYTES {
        return Err(format!(
            "the program changed {} files of the workspace with {} MB; at most {MAX_CHANGES} files with {} MB can be \
             changed by one call",
            found.len(),
            bytes >> 20,
            MAX_CHANGED_BYTES >> 20
        ));
    }
    Ok(found)
}

/// A file that was opened for writing may have the content it had.
fn written(
    path: &Path,
    stamp: Stamp,
    version: &Folder,
    workspace: &Folder,
) -> Result<Option<Change>, String> {
    let unreadable = |error: io::Error| {
        format!("the program left {} so that it cannot be read: {error}", path.display())
    };
    let file = version.file(path).map_err(unreadable)?;
    let mode = version.stat(path).map_err(unreadable)?.st_mode;
    let is_executable = mode & EXECUTABLE != 0;
    let is_same = workspace.stat(path).is_ok_and(|current| {
        Stamp::of(&current).bytes == stamp.bytes
            && (current.st_mode & EXECUTABLE != 0) == is_executable
            && workspace.file(path).is_ok_and(|current| have_same_content(file, current))
    });
    Ok((!is_same).then(|| Change::Write { path: path.to_owned(), is_executable }))
}

fn have_same_content(one: impl Read, other: impl Read) -> bool {
    let (mut one, mut other) =
        (io::BufReader::with_capacity(CHUNK, one), io::BufReader::with_capacity(CHUNK, other));
    loop {
        use std::io::BufRead;
        let (Ok(here), Ok(there)) = (one.fill_buf(), other.fill_buf()) else { return false };
        let length = here.len().min(there.len());
        if length == 0 {
            return here.is_empty() && there.is_empty();
        }
        if here.get(..length) != there.get(..length) {
            return false;
        }
        one.consume(length);
        other.consume(length);
    }
}

/// Whether a link or special file is the one that the workspace has.
fn is_kept(
    path: &Path,
    earlier: Option<Stamp>,
    stamp: Stamp,
    version: &Folder,
    workspace: &Folder,
) -> bool {
    earlier.is_some_and(|earlier| earlier.kind == stamp.kind)
        && (stamp.kind != FileType::Symlink
            || version.link(path).ok().zip(workspace.link(path).ok()).is_some_and(|(a, b)| a == b))
}

fn refused(path: &Path, what: &str) -> String {
    format!(
        "the program made {what} in the workspace ({}); only files and directories are kept there",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::thread;

    use rustix::process::{Uid, geteuid};

    use super::*;

    /// An ordinary user.
    const NOBODY: u32 = 65534;

    /// A program may take a permission, and a host may have no descriptor left. The files may still be there.
    #[test]
    fn files_in_a_directory_that_cannot_be_listed_are_not_removed() {
        let place = tempfile::tempdir().unwrap();
        let [workspace, version] = ["workspace", "version"].map(|name| {
            let path = place.path().join(name);
            fs::create_dir_all(path.join("kept")).unwrap();
            fs::write(path.join("kept/a.txt"), "a").unwrap();
            Folder::open(&path).unwrap()
        });
        let begun = Snapshot::of(&version).unwrap();
        assert_eq!(changes(&begun, &version, &workspace), Ok(Vec::new()));
        let kept = place.path().join("version/kept");
        if geteuid().is_root() {
            chown(&kept, Some(NOBODY), None).unwrap();
        }
        for (mode, says) in [(0o000, "`kept`"), (0o400, "`kept`"), (0o500, "")] {
            fs::set_permissions(&kept, Permissions::from_mode(mode)).unwrap();
            let found = thread::scope(|scope| {
                let find = || {
                    if geteuid().is_root() {
                        let user = Uid::from_raw(NOBODY);
                        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                    }
                    changes(&begun, &version, &workspace)
                };
                scope.spawn(find).join().unwrap()
            });
            fs::set_permissions(&kept, Permissions::from_mode(0o700)).unwrap();
            let said = found.as_ref().err().map_or("", String::as_str);
            assert!(
                said.contains(says) && said.is_empty() == says.is_empty(),
                "{mode:o}: {found:?}"
            );
        }
    }
}
