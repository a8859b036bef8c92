//! The record of a finished environment: written last, read on every use.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::program::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::inspection::{self, FileList};
use crate::lock_file::LockGuard;

/// The file that marks an environment as ready.
pub(super) const READY: &str = ".ready";
/// The same file before its packages were proved to load.
const BUILT: &str = ".built";

/// The record of a finished environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// `python` or `ruby`.
    pub(crate) guest: String,
    /// What it was built for.
    pub(crate) manifest: DependencyManifest,
    /// SHA-256 of the lock file it was built from.
    pub(crate) lock_checksum: String,
    /// The source policy it was built under.
    pub(crate) source_mode: String,
    /// Addresses of its sources, without credentials.
    pub(crate) sources: Vec<String>,
    /// When it was finished.
    pub(crate) prepared_at: String,
    /// Every package of the lock.
    pub(crate) packages: Vec<Package>,
    /// Top-level modules (Python) or features (Ruby) its packages bring.
    pub(crate) provides: Vec<String>,
    /// Their directory, relative to the environment.
    pub(crate) library: PathBuf,
    /// The modules that must load, for each declared package.
    #[serde(rename = "proofs")]
    pub(crate) load_checks: Vec<LoadCheck>,
    /// A checksum of the names and sizes of its files; empty in records of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) files_checksum: String,
    /// When the last of its files was modified, in nanoseconds since 1970; unknown in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_modified: Option<i64>,
    /// A checksum of what its files contain; empty in records of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) contents_checksum: String,
}

/// One package of a lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Package {
    /// Its name in the lock.
    pub(crate) name: String,
    /// Its exact version.
    pub(crate) version: String,
    /// The packages it needs, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) needs: Vec<String>,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// A declared package, and the modules of which one must load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoadCheck {
    /// Its declared name.
    pub(crate) package: String,
    /// Best first; empty if the guest finds them itself, or there is nothing to load.
    pub(crate) modules: Vec<String>,
}

impl Ready {
    /// Reads the record of an environment that is ready or about to be. The returned lock is shared and keeps the
    /// environment from being removed.
    pub(crate) fn open(root: &Path) -> io::Result<(Self, LockGuard)> {
        let file = File::open(root.join(READY)).or_else(|_| File::open(root.join(BUILT)))?;
        file.lock_shared()?;
        let file = LockGuard::from_locked(file);
        if file.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::NotFound.into()); // removed while this waited for the lock
        }
        Ok((serde_json::from_reader(io::BufReader::new(&*file))?, file))
    }

    /// Reads the record of a ready environment; `None`: it is not ready, or was changed.
    pub(super) fn read(language: Language, root: &Path) -> Option<Self> {
        Self::intact(language, root, &fs::read(root.join(READY)).ok()?)
    }

    /// The same without changing the access time: listing or showing an environment does not count as use.
    pub(super) fn peek(language: Language, root: &Path) -> Option<Self> {
        let path = root.join(READY);
        let flags = rustix::fs::OFlags::NOATIME.bits().cast_signed();
        // Only the owner of the file may open it so.
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let text = io::read_to_string(file.or_else(|_| File::open(&path)).ok()?).ok()?;
        Self::intact(language, root, text.as_bytes())
    }

    fn intact(language: Language, root: &Path, text: &[u8]) -> Option<Self> {
        let ready: Self = serde_json::from_slice(text).ok()?;
        let intact = lock_checksum(language, root).ok()? == ready.lock_checksum;
        (intact && root.join(&ready.library).is_dir()).then_some(ready)
    }

    /// Whether files of its packages were lost, cut or written since it was built, as far as its record shows. With
    /// `read_all`, also whether any contains something else.
    pub(super) fn has_damaged_files(&self, root: &Path, read_all: bool) -> bool {
        let Ok(files) = FileList::of(&root.join(&self.library)) else { return true };
        let differs = |recorded: &str, found: Option<String>| {
            !recorded.is_empty() && found.as_deref() != Some(recorded)
        };
        differs(&self.files_checksum, Some(files.names_checksum()))
            || self.last_modified.is_some_and(|at| at != files.last_modified())
            || (read_all && differs(&self.contents_checksum, files.contents_checksum().ok()))
    }

    /// Writes the record, not yet as ready. A file or link of this name that a build script left is removed first.
    pub(super) fn note_built(&self, root: &Path) -> io::Result<()> {
        for planted in [READY, BUILT].map(|name| root.join(name)) {
            match fs::remove_file(planted) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut file = File::create_new(root.join(BUILT))?;
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()
    }

    /// Marks the environment as ready, atomically.
    pub(super) fn announce(root: &Path) -> io::Result<()> {
        fs::rename(root.join(BUILT), root.join(READY))?;
        File::open(root)?.sync_all()
    }

    /// The arguments with which a zygote activates this environment and checks that its packages load.
    pub(crate) fn boot_arguments(&self, root: &Path) -> Vec<std::ffi::OsString> {
        let mut arguments = vec![root.join(&self.library).into_os_string()];
        if self.guest == Language::Ruby.name() {
            let locked = self.packages.iter().map(|gem| format!("{}={}", gem.name, gem.version));
            arguments.extend(locked.map(Into::into));
            arguments.push("--".into());
        }
        for LoadCheck { package, modules } in &self.load_checks {
            arguments.push(format!("{package}={}", modules.join(",")).into());
        }
        arguments
    }
}

/// The lock file of an environment.
pub(super) fn lock_file(language: Language) -> &'static str {
    match language {
        Language::Python => "uv.lock",
        Language::Ruby => "Gemfile.lock",
    }
}

/// SHA-256 of the lock file.
pub(super) fn lock_checksum(language: Language, root: &Path) -> io::Result<String> {
    Ok(hex(&Sha256::digest(inspection::read(&root.join(lock_file(language)))?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_left_by_a_build_script_are_neither_written_through_nor_read() {
        let (root, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let kept = kept.path().join("kept");
        fs::write(&kept, "kept").unwrap();
        std::os::unix::fs::symlink(&kept, root.path().join(BUILT)).unwrap();
        fs::write(root.path().join(READY), "{}").unwrap();
        let ready = Ready {
            guest: "python".to_owned(),
            manifest: DependencyManifest::default(),
            lock_checksum: String::new(),
            source_mode: String::new(),
            sources: Vec::new(),
            prepared_at: String::new(),
            packages: Vec::new(),
            provides: Vec::new(),
            library: PathBuf::new(),
            load_checks: Vec::new(),
            files_checksum: String::new(),
            last_modified: None,
            contents_checksum: String::new(),
        };
        ready.note_built(root.path()).unwrap();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        assert_eq!(Ready::open(root.path()).unwrap().0, ready);
    }
}
