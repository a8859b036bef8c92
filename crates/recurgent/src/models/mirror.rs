//! The mirror of models: a file, a directory, or an address of either.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::KnownModel;
use super::install::ModelSource;
use crate::provider::{ProviderFault, ServiceAddress};

/// How names of model files end.
pub(super) const EXTENSION: &str = "gguf";

/// Where models are fetched from first (`model_mirror`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelMirror {
    /// A file, or a directory of files.
    Path(PathBuf),
    /// The address of a file, or of a directory of files.
    Address(ServiceAddress),
}

impl ModelMirror {
    /// Where a model is there.
    pub(super) fn source(&self, model: &KnownModel) -> ModelSource {
        match self {
            Self::Path(path) if path.is_dir() => ModelSource::File(path.join(&model.file)),
            Self::Path(path) => ModelSource::File(path.clone()),
            Self::Address(address) => {
                let address = address.as_str();
                let is_file = address.ends_with(&format!(".{EXTENSION}"));
                let tail = if is_file { String::new() } else { format!("/{}", model.file) };
                ModelSource::Address(format!("{address}{tail}"))
            }
        }
    }
}

impl FromStr for ModelMirror {
    type Err = ProviderFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("http://") || text.starts_with("https://") {
            return text.parse().map(Self::Address);
        }
        Ok(Self::Path(PathBuf::from(text.strip_prefix("file://").unwrap_or(text))))
    }
}

impl fmt::Display for ModelMirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Address(address) => address.fmt(f),
        }
    }
}
