//! Models on disk: which are known, which are installed, and how one gets there.

mod download;
mod folder;
mod install;
mod known;
mod mirror;
mod partial;
mod wheels;

use std::ffi::OsString;
use std::path::PathBuf;

pub use folder::{InstalledModel, ModelFolder, RemovalFault};
pub use install::{InstallFault, InstallProgress, InstallRequest, ModelSource, install};
pub use known::{DEFAULT_MODEL, KnownModel, WheelSet, known_models};
pub use mirror::ModelMirror;

use crate::provider::{ProxyAddress, ServiceAddress};

/// The hub that models are fetched from, unless configured.
pub const DEFAULT_HUB: &str = "https://huggingface.co";

/// Where models are and where they come from.
#[derive(Debug, Clone)]
pub struct ModelOptions {
    /// Where they are kept; `None`: no home directory was found.
    pub folder: Option<PathBuf>,
    /// The models that can be installed by name.
    pub known: Vec<KnownModel>,
    /// Most bytes of all installed models.
    pub total_bytes: u64,
    /// Bytes of disk space that an installation leaves free.
    pub reserve_bytes: u64,
    /// The source that is asked first.
    pub mirror: Option<ModelMirror>,
    /// The publisher's hub.
    pub hub: Option<ServiceAddress>,
    /// The proxy that hub and mirror are reached through.
    pub proxy: Option<ProxyAddress>,
    /// Certificates of the authorities to trust for hub and mirror, instead of the public ones.
    pub ca_file: Option<PathBuf>,
    /// The Python whose pip reaches the package index; `None`: found on the search path.
    pub python: Option<PathBuf>,
    /// The uv that reaches it where there is no pip; `None`: found on the search path.
    pub uv: Option<PathBuf>,
    /// Where programs are looked for.
    pub search_path: OsString,
}

impl ModelOptions {
    /// The folder of models.
    pub fn folder(&self) -> Option<ModelFolder> {
        self.folder.clone().map(|path| ModelFolder::new(path, self.known.clone()))
    }

    /// The model that is meant by a name, or by no name.
    pub fn known_model(&self, name: Option<&str>) -> Option<&KnownModel> {
        let name = name.unwrap_or(DEFAULT_MODEL);
        self.known.iter().find(|model| model.name == name)
    }
}
