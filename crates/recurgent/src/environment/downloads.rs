//! The download caches of package managers: how large they are, and emptying them.
//!
//! Builds share a lock on them. They are emptied as a whole, and only while no build has the lock: package managers do not
//! expect files of their caches to disappear while they run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::cache::EnvironmentCache;
use super::inspection;
use crate::lock_file::{LockFile, LockGuard};

/// The directories of the caches.
pub(super) const UV: &str = "uv";
pub(super) const BUNDLER: &str = "bundler";
/// The lock that builds share.
const LOCK: &str = "downloads.lock";

/// The result of emptying download caches that are too large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadRemoval {
    /// They are within their limit.
    Within,
    /// They were emptied, which freed so many bytes.
    Emptied(u64),
    /// Some process builds an environment with them; nothing was removed.
    InUse,
    /// They cannot be emptied.
    Failed(String),
}

/// Locks the caches for one build, so that they are not emptied meanwhile.
pub(super) fn lock_for_build(cache: &Path) -> io::Result<LockGuard> {
    loop {
        let path = cache.join(LOCK);
        let file =
            File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
        file.lock_shared()?;
        if LockFile::new(path).is_at(&file)? {
            return Ok(LockGuard::from_locked(file));
        }
    }
}

impl EnvironmentCache {
    /// Disk space of the download caches, without files that are hard-linked into an environment.
    pub fn download_bytes(&self) -> u64 {
        self.downloads().iter().map(|directory| unshared_size(directory)).sum()
    }

    /// Empties the download caches if they take more than this.
    pub fn shrink_downloads(&self, bytes: u64) -> DownloadRemoval {
        let taken = self.download_bytes();
        if taken <= bytes {
            return DownloadRemoval::Within;
        }
        let failed = |error: io::Error| {
            let directory = self.directory().display();
            DownloadRemoval::Failed(format!("cannot empty the downloads in {directory}: {error}"))
        };
        match LockFile::new(self.directory().join(LOCK)).try_acquire() {
            Ok(Some(_lock)) => {
                let emptied = self.downloads().iter().try_for_each(|it| empty(it));
                emptied.map_or_else(failed, |()| DownloadRemoval::Emptied(taken))
            }
            Ok(None) => DownloadRemoval::InUse,
            Err(error) => failed(error),
        }
    }

    fn downloads(&self) -> [PathBuf; 2] {
        [UV, BUNDLER].map(|name| self.directory().join(name))
    }
}

/// The size of the files of a directory that have no other name; what cannot be read counts as nothing.
fn unshared_size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => unshared_size(&entry.path()),
        Ok(meta) if meta.is_file() && meta.nlink() == 1 => meta.len(),
        Ok(_) | Err(_) => 0,
    });
    sizes.sum()
}

/// Removes what a directory contains. The directory stays: it may be a link to another disk.
fn empty(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            inspection::clear(&entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_are_emptied_beyond_their_limit_and_not_during_a_build() {
        let place = tempfile::tempdir().unwrap();
        let cache = EnvironmentCache::new(place.path().to_owned());
        assert_eq!(cache.shrink_downloads(0), DownloadRemoval::Within, "there are none");
        let unpacked = place.path().join(UV).join("archive/one");
        fs::create_dir_all(&unpacked).unwrap();
        fs::create_dir(place.path().join(BUNDLER)).unwrap();
        fs::write(unpacked.join("part.py"), [0; 1000]).unwrap();
        fs::write(place.path().join(BUNDLER).join("index"), [0; 500]).unwrap();
        fs::write(unpacked.join("shared.py"), [0; 9000]).unwrap();
        fs::hard_link(unpacked.join("shared.py"), place.path().join("of an environment")).unwrap();
        assert_eq!(cache.download_bytes(), 1500);

        assert_eq!(cache.shrink_downloads(1500), DownloadRemoval::Within);
        let build = lock_for_build(place.path()).unwrap();
        let another = lock_for_build(place.path()).unwrap();
        assert_eq!(cache.shrink_downloads(1499), DownloadRemoval::InUse);
        drop((build, another));
        assert!(unpacked.exists());
        assert_eq!(cache.shrink_downloads(1499), DownloadRemoval::Emptied(1500));
        assert!(!unpacked.exists() && place.path().join(UV).is_dir());
        assert_eq!(fs::read(place.path().join("of an environment")).unwrap().len(), 9000);
        drop(lock_for_build(place.path()).unwrap());
    }
}
