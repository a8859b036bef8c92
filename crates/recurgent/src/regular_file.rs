//! Files that people name: a pipe or a device in place of one must not block or flood the runtime.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Longest file that is read at once.
const MAX_BYTES: u64 = 256 << 20;

/// The text of a regular file. A pipe, a device or a directory is refused without waiting for it.
pub(crate) fn read_regular(path: &Path) -> io::Result<String> {
    limited(open_regular(path)?)
}

fn limited(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(io::Error::other(format!("it is longer than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// Opens a file that a command line names. A pipe is read if it has a writer, as that of `<(…)` in a shell; one without a
/// writer is empty, and is not waited for.
pub fn open_named(path: &Path) -> io::Result<File> {
    let file = open_without_waiting(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

/// The text of such a file.
pub fn read_named(path: &Path) -> io::Result<String> {
    limited(open_named(path)?)
}

/// Opens a file without waiting for the writer of a pipe.
pub(crate) fn open_without_waiting(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Opens a regular file. A pipe, a device or a directory is refused without waiting for it.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_without_waiting(path)?;
    let metadata = file.metadata()?;
    // `/dev/null` stands for an empty file.
    if !metadata.is_file() && metadata.rdev() != rustix::fs::makedev(1, 3) {
        return Err(io::Error::other(
            "it is not a regular file; name a file, not a pipe or a device",
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for odd in [pipe.as_path(), place.path(), Path::new("/dev/zero")] {
            let fault = read_regular(odd).unwrap_err().to_string();
            assert!(fault.contains("not a regular file"), "{odd:?}: {fault}");
        }
        let file = place.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_regular(&file).unwrap(), "text");
        assert_eq!(read_regular(Path::new("/dev/null")).unwrap(), "");
        assert_eq!(read_named(&file).unwrap(), "text");
        assert_eq!(read_named(&pipe).unwrap(), "", "without a writer it is empty");
    }
}
