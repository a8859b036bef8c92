//! Environments on disk: listing them, and removing those nobody uses.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lifecycle::dialect::Language;

use super::ready::{READY, Ready};
use super::{lock, tool};

/// Where environments are kept.
#[derive(Debug, Clone)]
pub struct Shelf {
    cache: PathBuf,
}

/// An environment on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// `env_id`.
    pub id: String,
    /// Whose packages it holds.
    pub language: Language,
    /// Where it is.
    pub root: PathBuf,
    /// Whether it can be used; otherwise a build left it half done, or is under way.
    pub is_ready: bool,
    /// What was declared, as `name constraint`.
    pub declared: Vec<String>,
    /// Every package, as `name version`.
    pub packages: Vec<String>,
    /// Under which policy it was made.
    pub source_mode: String,
    /// From where.
    pub sources: Vec<String>,
    /// When it was finished.
    pub prepared_at: Option<String>,
    /// Disk use; files shared with the download cache are counted here too.
    pub bytes: u64,
}

impl Shelf {
    pub(super) fn new(cache: PathBuf) -> Self {
        Self { cache }
    }

    /// The directory of one guest's environments.
    pub(super) fn place(cache: &Path, language: Language) -> PathBuf {
        cache.join(format!("{}-envs", language.name()))
    }

    /// Every environment, by guest and id.
    pub fn list(&self) -> Vec<Stored> {
        [Language::Python, Language::Ruby]
            .into_iter()
            .flat_map(|language| {
                let mut found: Vec<Stored> = self
                    .roots(language)
                    .into_iter()
                    .map(|(id, root)| Stored::read(id, language, root))
                    .collect();
                found.sort_by(|a, b| a.id.cmp(&b.id));
                found
            })
            .collect()
    }

    /// The environment whose id begins with `prefix`, if there is just one.
    pub fn find(&self, prefix: &str) -> Option<Stored> {
        let mut found = self.list().into_iter().filter(|stored| stored.id.starts_with(prefix));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// Removes what is half built, and what was finished longer than `age` ago and is not in use.
    /// Gives what was removed.
    pub fn collect(&self, age: Duration) -> Vec<Stored> {
        self.list()
            .into_iter()
            .filter(|stored| stored.is_older_than(age) && self.remove(stored))
            .collect()
    }

    /// Removes one environment unless it is in use or being built; says whether it did.
    pub fn remove(&self, stored: &Stored) -> bool {
        let lock = Self::place(&self.cache, stored.language).join(format!("{}.lock", stored.id));
        let Some(_lock) = lock::try_acquire(&lock) else { return false };
        let ready = stored.root.join(READY);
        if let Ok(file) = File::open(&ready) {
            if file.try_lock().is_err() {
                return false; // a zygote in some process runs in it
            }
            // First of all it stops being ready.
            if fs::remove_file(&ready).is_err() {
                return false;
            }
        }
        tool::clear(&stored.root.with_extension("build")).is_ok()
            && tool::clear(&stored.root).is_ok()
    }

    fn roots(&self, language: Language) -> Vec<(String, PathBuf)> {
        let Ok(entries) = fs::read_dir(Self::place(&self.cache, language)) else {
            return Vec::new();
        };
        entries
            .filter_map(Result::ok)
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
            .filter(|(name, _)| !name.contains('.')) // a builder's desk
            .collect()
    }
}

impl Stored {
    fn read(id: String, language: Language, root: PathBuf) -> Self {
        let ready = Ready::read(language, &root);
        let bytes = size(&root);
        let is_ready = ready.is_some();
        let (declared, packages, source_mode, sources, prepared_at) = match ready {
            Some(ready) => (
                ready.manifest.dependencies().iter().map(ToString::to_string).collect(),
                ready.packages.iter().map(|p| format!("{} {}", p.name, p.version)).collect(),
                ready.source_mode,
                ready.sources,
                Some(ready.prepared_at),
            ),
            None => Default::default(),
        };
        Self {
            id,
            language,
            root,
            is_ready,
            declared,
            packages,
            source_mode,
            sources,
            prepared_at,
            bytes,
        }
    }

    fn is_older_than(&self, age: Duration) -> bool {
        let finished = fs::metadata(self.root.join(READY)).and_then(|meta| meta.modified());
        !self.is_ready
            || finished.is_ok_and(|at| {
                SystemTime::now().duration_since(at).is_ok_and(|since| since >= age)
            })
    }
}

/// What lies in a directory; what cannot be read counts nothing.
fn size(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => size(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |meta| meta.len()),
            _ => 0,
        })
        .sum()
}
