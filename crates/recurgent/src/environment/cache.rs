//! Environments on disk: listing them, and removing unused ones.

use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;

use super::ready::{self, READY, Ready};
use super::{generation, inspection};
use crate::lock_file::{LockFile, LockGuard};

/// The directory of environments.
#[derive(Debug, Clone)]
pub struct EnvironmentCache {
    cache: PathBuf,
}

/// The state of an environment on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// Programs run in it.
    Ready,
    /// A process is building it.
    Building,
    /// A killed build left it incomplete.
    Unfinished,
    /// It was refreshed; programs that were running in it still do.
    Superseded,
}

impl CacheState {
    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Building => "building",
            Self::Unfinished => "unfinished",
            Self::Superseded => "superseded",
        }
    }
}

/// An environment on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// `env_id`.
    pub id: String,
    /// The language of its packages.
    pub language: Language,
    /// Its directory.
    pub root: PathBuf,
    /// Its state.
    pub standing: CacheState,
    /// What was declared.
    pub manifest: DependencyManifest,
    /// Every package, as `name version`.
    pub packages: Vec<String>,
    /// The source policy it was built under.
    pub source_mode: String,
    /// Its package sources.
    pub sources: Vec<String>,
    /// When it was finished.
    pub prepared_at: Option<String>,
    /// When a process last used it or, where the file system does not record that, when it was built.
    pub used_at: Option<SystemTime>,
    /// Disk use, including files shared with the download cache.
    pub bytes: u64,
}

/// The result of removing an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// It was removed.
    Removed,
    /// Programs run in it; nothing was removed.
    InUse,
    /// A process is building it.
    BeingBuilt,
    /// It cannot be removed.
    Failed(String),
}

impl EnvironmentCache {
    /// The cache in a directory, which need not exist.
    pub fn new(cache: PathBuf) -> Self {
        Self { cache }
    }

    /// The cache directory.
    pub fn directory(&self) -> &Path {
        &self.cache
    }

    /// The directory of one guest's environments.
    pub(super) fn place(cache: &Path, language: Language) -> PathBuf {
        cache.join(format!("{}-envs", language.name()))
    }

    /// Every environment, by guest, id and age. Listing writes nothing and does not count as use.
    pub fn list(&self) -> Vec<Stored> {
        Language::ALL.into_iter().flat_map(|language| self.builds(language)).collect()
    }

    /// Those whose id begins with `prefix`.
    pub fn find(&self, prefix: &str) -> Vec<Stored> {
        self.list().into_iter().filter(|stored| stored.id.starts_with(prefix)).collect()
    }

    /// Environments that can be removed: incomplete, superseded, or unused for `age`.
    pub fn unneeded(&self, age: Duration) -> Vec<Stored> {
        let now = SystemTime::now();
        let aged = |stored: &Stored| {
            let unused = stored.used_at.map(|at| now.duration_since(at).unwrap_or_default());
            unused.is_none_or(|unused| unused >= age)
        };
        self.list()
            .into_iter()
            .filter(|stored| match stored.standing {
                CacheState::Unfinished | CacheState::Superseded => true,
                CacheState::Ready => aged(stored),
                CacheState::Building => false,
            })
            .collect()
    }

    /// Removes environments until the rest takes at most `bytes`: incomplete and superseded ones first, then those unused
    /// longest. Those in use and the one with this id stay. Returns how many were removed.
    pub(super) fn shrink_to(&self, bytes: u64, except: &str) -> usize {
        let mut candidates = self.list();
        let mut total: u64 = candidates.iter().map(|stored| stored.bytes).sum();
        candidates.retain(|stored| stored.id != except && stored.standing != CacheState::Building);
        candidates.sort_by_key(|stored| (stored.standing == CacheState::Ready, stored.used_at));
        let mut removed = 0;
        for stored in candidates {
            if total <= bytes {
                break;
            }
            if self.remove(&stored) == Removal::Removed {
                total = total.saturating_sub(stored.bytes);
                removed += 1;
            }
        }
        removed
    }

    /// Removes one environment, unless it is in use or being built.
    pub fn remove(&self, stored: &Stored) -> Removal {
        let place = Self::place(&self.cache, stored.language);
        let lock_file = LockFile::new(place.join(format!("{}.lock", stored.id)));
        let Ok(Some(lock)) = lock_file.try_acquire() else { return Removal::BeingBuilt };
        let ready = stored.root.join(READY);
        let failed = |error: std::io::Error| {
            Removal::Failed(format!("cannot remove {}: {error}", stored.root.display()))
        };
        if let Ok(file) = File::open(&ready) {
            let Ok(_unused) = file.try_lock().map(|()| LockGuard::from_locked(file)) else {
                return Removal::InUse; // a zygote of some process runs in it
            };
            // It stops being ready first.
            if let Err(error) = fs::remove_file(&ready) {
                return failed(error);
            }
        }
        generation::retract(&stored.root);
        let cleared = inspection::clear(&stored.root.with_extension("build"))
            .and_then(|()| inspection::clear(&stored.root));
        if cleared.is_ok() && !generation::has_builds(&place, &stored.id) {
            lock_file.remove(lock);
        }
        cleared.map_or_else(failed, |()| Removal::Removed)
    }

    /// Removes the lock files of environments that no longer exist; returns how many there were.
    pub fn remove_unused_locks(&self) -> usize {
        let places = Language::ALL.map(|it| Self::place(&self.cache, it));
        let entries = places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten();
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        let unused = paths.filter(|path| {
            let id = path.file_stem().and_then(|stem| stem.to_str());
            let place = path.parent().unwrap_or(Path::new(""));
            path.extension().is_some_and(|extension| extension == "lock")
                && id.is_some_and(|id| !generation::has_builds(place, id))
        });
        unused.filter(|path| LockFile::new(path.clone()).remove_if_free()).count()
    }

    fn builds(&self, language: Language) -> Vec<Stored> {
        let place = Self::place(&self.cache, language);
        let entries = fs::read_dir(&place).into_iter().flatten().filter_map(Result::ok);
        let mut names: Vec<String> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        let age =
            |name: &str| (generation::owner(name).map(str::to_owned), generation::number(name));
        names.sort_by_key(|name| age(name));
        names
            .iter()
            .filter_map(|name| Stored::read(&place, language, generation::owner(name)?, name))
            .collect()
    }
}

impl Stored {
    /// `None`: it was removed meanwhile.
    fn read(place: &Path, language: Language, id: &str, name: &str) -> Option<Self> {
        let root = place.join(name);
        fs::metadata(&root).ok()?;
        let used_at = fs::metadata(root.join(READY)).ok().as_ref().and_then(last_used);
        let ready = Ready::peek(language, &root);
        let standing = match &ready {
            Some(_) if generation::current(place, id) == root => CacheState::Ready,
            None if LockFile::new(root.with_extension("lock")).is_held() => CacheState::Building,
            Some(_) => CacheState::Superseded,
            None => CacheState::Unfinished,
        };
        let bytes = size(&root);
        let stored = Self {
            id: id.to_owned(),
            language,
            root,
            standing,
            manifest: DependencyManifest::default(),
            packages: Vec::new(),
            source_mode: String::new(),
            sources: Vec::new(),
            prepared_at: None,
            used_at,
            bytes,
        };
        Some(match ready {
            Some(ready) => Self {
                packages: ready.packages.iter().map(ToString::to_string).collect(),
                manifest: ready.manifest,
                source_mode: ready.source_mode,
                sources: ready.sources,
                prepared_at: Some(ready.prepared_at),
                ..stored
            },
            None => stored,
        })
    }

    /// [`Self::used_at`] as text.
    pub fn last_used(&self) -> Option<String> {
        let at = jiff::Timestamp::try_from(self.used_at?).ok()?;
        Some(at.to_string())
    }

    /// Its lock file: which versions were chosen, and from where.
    pub fn lock_file(&self) -> PathBuf {
        self.root.join(ready::lock_file(self.language))
    }

    /// Whether programs run in it right now, in any process.
    pub fn is_in_use(&self) -> bool {
        File::open(self.root.join(READY))
            .is_ok_and(|file| file.try_lock().map(|()| LockGuard::from_locked(file)).is_err())
    }
}

/// Reading `.ready` is how a process begins to use an environment.
fn last_used(meta: &Metadata) -> Option<SystemTime> {
    meta.accessed().ok().max(meta.modified().ok())
}

/// The size of a directory; what cannot be read counts as nothing.
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
