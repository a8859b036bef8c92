//! The folder of installed models.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::KnownModel;
use super::known::is_plain;
use super::mirror::EXTENSION;

/// Most files of the folder that are looked at.
const MAX_FILES: usize = 4096;

/// The folder that installed models are in.
#[derive(Debug, Clone)]
pub struct ModelFolder {
    path: PathBuf,
    known: Vec<KnownModel>,
}

/// A model that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledModel {
    /// The name of a known model; of any other its file without `.gguf`.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// The size of the file.
    pub bytes: u64,
}

/// Why a model was not removed.
#[derive(Debug, Error)]
pub enum RemovalFault {
    /// No installed model has the name.
    #[error("no installed model is called {0:?}; `recurgent model list` shows those there are")]
    Unknown(String),
    /// Its file cannot be removed.
    #[error("cannot remove {}: {error}; check the permissions of its directory", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl ModelFolder {
    pub(super) fn new(path: PathBuf, known: Vec<KnownModel>) -> Self {
        Self { path, known }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The models in it, known ones first, then by name.
    pub fn installed(&self) -> Vec<InstalledModel> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let mut models: Vec<InstalledModel> =
            entries.flatten().take(MAX_FILES).filter_map(|entry| self.model(&entry)).collect();
        let rank = |model: &InstalledModel| {
            self.known.iter().position(|known| known.name == model.name).unwrap_or(usize::MAX)
        };
        models.sort_by(|a, b| (rank(a), &a.name).cmp(&(rank(b), &b.name)));
        models
    }

    fn model(&self, entry: &fs::DirEntry) -> Option<InstalledModel> {
        let file = entry.file_name().into_string().ok().filter(|file| is_plain(file))?;
        let stem = file.strip_suffix(&format!(".{EXTENSION}"))?;
        let metadata = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_file)?;
        let known = self.known.iter().find(|known| known.file == file);
        // A file of another size is not the known model, though it has its name.
        let name = match known {
            Some(known) if known.bytes == metadata.len() => known.name.clone(),
            Some(_) | None => stem.to_owned(),
        };
        Some(InstalledModel { name, path: entry.path(), bytes: metadata.len() })
    }

    /// The installed model of this name, or the first of all.
    pub fn find(&self, name: Option<&str>) -> Option<InstalledModel> {
        let mut installed = self.installed().into_iter();
        match name {
            None => installed.next(),
            Some(name) => installed.find(|model| {
                model.name == name || model.path.file_name().is_some_and(|file| file == name)
            }),
        }
    }

    /// Removes an installed model.
    pub fn remove(&self, name: &str) -> Result<InstalledModel, RemovalFault> {
        let model = self.find(Some(name)).ok_or_else(|| RemovalFault::Unknown(name.to_owned()))?;
        fs::remove_file(&model.path)
            .map_err(|error| RemovalFault::File { path: model.path.clone(), error })?;
        Ok(model)
    }

    /// What all of them take on disk.
    pub fn total_bytes(&self) -> u64 {
        self.installed().iter().map(|model| model.bytes).sum()
    }
}
