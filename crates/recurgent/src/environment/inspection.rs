//! Reads and removes files that build scripts left. Names, depth, links and permissions are untrusted.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead as _, Read as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lifecycle::program::hex;
use sha2::{Digest, Sha256};

/// The largest file that is read; locks and records of huge environments are a hundred times smaller.
const READ_BYTES: u64 = 64 << 20;
/// What a file counts at least: an empty one needs space for its entry.
const ENTRY_BYTES: u64 = 1024;
/// Bytes that are hashed at a time.
const HASHED_BYTES: usize = 64 << 10;
/// System directories that links may point to.
const SYSTEM: &[&str] = &["/usr", "/lib", "/lib64", "/bin"];

/// Reads a file that packages or their builds wrote, unless it is far too large.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(READ_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > READ_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is far too large"));
    }
    Ok(bytes)
}

/// The same, as text.
pub(super) fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The disk use of a tree. `u64::MAX` if part of it cannot be read, because its size cannot be known.
pub(super) fn disk_use(directory: &Path) -> u64 {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return 0, // gone meanwhile
        Err(_) => return u64::MAX,
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) => {
            let own = (meta.blocks() * 512).max(ENTRY_BYTES);
            let inside = if meta.is_dir() { disk_use(&entry.path()) } else { 0 };
            own.saturating_add(inside)
        }
        Err(_) => 0, // gone meanwhile
    });
    sizes.fold(0, u64::saturating_add)
}

/// The files of a tree, as they were when they were listed.
#[derive(Debug)]
pub(super) struct FileList {
    directory: PathBuf,
    files: Vec<ListedFile>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListedFile {
    path: PathBuf,
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: i64,
}

impl FileList {
    /// Lists all files of a tree.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        list_files(directory, &mut files)?;
        files.sort_unstable();
        Ok(Self { directory: directory.to_owned(), files })
    }

    /// A checksum of their names and sizes, apart from the modules that Python compiled.
    pub(super) fn names_checksum(&self) -> String {
        let is_compiled =
            |file: &&ListedFile| file.path.components().any(|it| it.as_os_str() == "__pycache__");
        let mut hash = Sha256::new();
        for file in self.files.iter().filter(|file| !is_compiled(file)) {
            self.hash_name(file, &mut hash);
            hash.update(file.bytes.to_le_bytes());
        }
        hex(&hash.finalize())
    }

    /// When the last of them was modified, in nanoseconds since 1970.
    pub(super) fn last_modified(&self) -> i64 {
        self.files.iter().map(|file| file.modified).max().unwrap_or_default()
    }

    /// A checksum of what they contain. Reads all of them.
    pub(super) fn contents_checksum(&self) -> io::Result<String> {
        let mut hash = Sha256::new();
        for file in &self.files {
            self.hash_name(file, &mut hash);
            let kind = file.path.symlink_metadata()?.file_type();
            if kind.is_symlink() {
                hash.update(fs::read_link(&file.path)?.as_os_str().as_encoded_bytes());
            } else if kind.is_file() {
                hash_file(&file.path, &mut hash)?;
            }
        }
        Ok(hex(&hash.finalize()))
    }

    fn hash_name(&self, file: &ListedFile, hash: &mut Sha256) {
        let relative = file.path.strip_prefix(&self.directory).unwrap_or(&file.path);
        hash.update(relative.as_os_str().as_encoded_bytes());
        hash.update(b"\0");
    }
}

fn hash_file(path: &Path, hash: &mut Sha256) -> io::Result<()> {
    let mut file = io::BufReader::with_capacity(HASHED_BYTES, File::open(path)?);
    loop {
        let read = file.fill_buf()?;
        if read.is_empty() {
            return Ok(());
        }
        hash.update(read);
        let count = read.len();
        file.consume(count);
    }
}

fn list_files(directory: &Path, files: &mut Vec<ListedFile>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            list_files(&entry.path(), files)?;
        } else {
            let modified = meta.mtime().saturating_mul(1_000_000_000) + meta.mtime_nsec();
            files.push(ListedFile { path: entry.path(), bytes: meta.len(), modified });
        }
    }
    Ok(())
}

/// Finds a path that the host must not read or write: a link that points outside `top`, where the host can read more than
/// the builder could, or something that is not a file.
pub(super) fn find_hostile_path(directory: &Path, top: &Path, seen: &[PathBuf]) -> Option<PathBuf> {
    let unreadable = || Some(directory.to_owned());
    let Ok(entries) = fs::read_dir(directory) else { return unreadable() };
    for entry in entries {
        let Ok(entry) = entry else { return unreadable() };
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { return unreadable() };
        let is_fine = if kind.is_dir() {
            if let Some(hostile) = find_hostile_path(&path, top, seen) {
                return Some(hostile);
            }
            true
        } else if kind.is_symlink() {
            // A dangling link cannot be read, but writing through it would create its target.
            let real = path.canonicalize();
            let mut open = SYSTEM.iter().map(Path::new).chain(seen.iter().map(AsRef::as_ref));
            real.is_ok_and(|real| real.starts_with(top) || open.any(|it| real.starts_with(it)))
        } else {
            kind.is_file()
        };
        if !is_fine {
            return Some(path);
        }
    }
    None
}

/// Makes a tree readable for every user, whatever the builder or the packages set.
pub(super) fn open_to_read(path: &Path) -> io::Result<()> {
    let meta = path.symlink_metadata()?;
    let mode = meta.permissions().mode();
    let for_all = if meta.is_dir() || mode & 0o100 != 0 { 0o555 } else { 0o444 };
    if !meta.is_symlink() && mode & for_all != for_all {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 | for_all))?;
    }
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            open_to_read(&entry?.path())?;
        }
    }
    Ok(())
}

/// Removes a directory if it exists, however deep it is and whatever its permissions are.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            flatten(directory)?;
            fs::remove_dir(directory)
        }
    }
}

/// Removes the content of a directory. Deeper directories are moved up first, so that no limit of path length, stack or
/// open directories is reached.
fn flatten(top: &Path) -> io::Result<()> {
    let mut moved = 0_u64;
    loop {
        fs::set_permissions(top, Permissions::from_mode(0o700))?;
        let mut was_empty = true;
        for entry in fs::read_dir(top)? {
            let entry = entry?;
            was_empty = false;
            if !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
                continue;
            }
            fs::set_permissions(entry.path(), Permissions::from_mode(0o700))?;
            for inner in fs::read_dir(entry.path())? {
                let inner = inner?.path();
                if inner.symlink_metadata()?.is_dir() {
                    // Moving a directory changes its `..` entry, which needs write permission.
                    fs::set_permissions(&inner, Permissions::from_mode(0o700))?;
                }
                fs::rename(inner, free(top, &mut moved))?;
            }
            fs::remove_dir(entry.path())?;
        }
        if was_empty {
            return Ok(());
        }
    }
}

/// An unused name in a directory.
fn free(top: &Path, moved: &mut u64) -> PathBuf {
    loop {
        *moved += 1;
        let name = top.join(format!(".moved-{moved}"));
        if name.symlink_metadata().is_err() {
            return name;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_and_deep_trees_are_counted_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let script = r#"
            import os
            os.mkdir("closed"); open("closed/f", "w").close(); os.mkdir("closed/in", 0)
            os.chmod("closed", 0)
            os.mkdir("deep"); os.chdir("deep")
            for _ in range(3000):
                os.mkdir("down"); os.chdir("down")
            open("f", "w").close()
        "#;
        let script = script.replace("\n            ", "\n");
        let made = |name: &str| {
            let top = place.path().join(name);
            fs::create_dir(&top).unwrap();
            let python = std::process::Command::new("python3")
                .args(["-c", &script])
                .current_dir(&top)
                .status();
            assert!(python.unwrap().success());
            top
        };
        let top = made("top");
        assert_eq!(disk_use(&top), u64::MAX);
        clear(&top).unwrap();
        assert!(!top.exists());
        clear(&top).unwrap();
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (kept, top) = (place.path().join("kept"), place.path().join("top"));
        fs::create_dir_all(top.join("closed")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(&kept, top.join("closed/link")).unwrap();
        std::os::unix::fs::symlink(&kept, top.join("link")).unwrap();
        fs::set_permissions(top.join("closed"), Permissions::from_mode(0o000)).unwrap();
        flatten(&top).unwrap();
        assert_eq!(fs::read_dir(&top).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "x");
    }

    #[test]
    fn lost_modified_and_altered_files_are_found() {
        let place = tempfile::tempdir().unwrap();
        let (module, compiled) = (place.path().join("a.py"), place.path().join("__pycache__"));
        fs::write(&module, "one").unwrap();
        fs::create_dir(&compiled).unwrap();
        std::os::unix::fs::symlink("a.py", place.path().join("link")).unwrap();
        let seen = || {
            let files = FileList::of(place.path()).unwrap();
            (files.names_checksum(), files.last_modified(), files.contents_checksum().unwrap())
        };
        let first = seen();
        assert_eq!(seen(), first);
        let modified = module.metadata().unwrap().modified().unwrap();
        fs::write(&module, "two").unwrap();
        File::options().write(true).open(&module).unwrap().set_modified(modified).unwrap();
        let altered = seen();
        assert_eq!((&altered.0, altered.1), (&first.0, first.1));
        assert_ne!(altered.2, first.2);
        let later = modified + std::time::Duration::from_secs(1);
        File::options().write(true).open(&module).unwrap().set_modified(later).unwrap();
        assert!(seen().1 > first.1);
        fs::write(compiled.join("a.pyc"), "").unwrap();
        assert_eq!(seen().0, first.0);
        fs::remove_file(&module).unwrap();
        assert_ne!(seen().0, first.0);
    }

    #[test]
    fn a_huge_file_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("uv.lock");
        let file = File::create(&path).unwrap();
        file.set_len(16 << 30).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        file.set_len(4).unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "\0\0\0\0");
    }

    #[test]
    fn empty_files_take_something_too() {
        let place = tempfile::tempdir().unwrap();
        for at in 0..100 {
            File::create(place.path().join(at.to_string())).unwrap();
        }
        assert!(disk_use(place.path()) >= 100 * ENTRY_BYTES);
    }
}
