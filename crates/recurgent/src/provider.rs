//! The provider seam: who writes programs.

mod recording;
mod scripted;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::draft::{Draft, DraftFault};
use lifecycle::prompt::Prompt;
use lifecycle::request::{Method, Role};
use thiserror::Error;

use crate::guest::Cancellation;

pub use recording::{Recorder, Replay};
pub use scripted::Scripted;

/// Writes programs.
pub trait Provider: fmt::Debug + Send + Sync {
    /// Asks for one program.
    fn draft(&self, prompt: &Prompt, limits: &DraftLimits<'_>) -> Result<Draft, DraftFault>;
}

/// For whom, and within what bounds, a program is written.
#[derive(Debug)]
pub struct DraftLimits<'a> {
    /// The agent that was called.
    pub role: &'a Role,
    /// The method that was called.
    pub method: &'a Method,
    /// Which model to ask.
    pub model: &'a str,
    /// Time the answer may take.
    pub timeout: Duration,
    /// Ends the wait early.
    pub cancellation: &'a Cancellation,
}

impl DraftLimits<'_> {
    /// `role.method`, the key of scripts and recordings.
    pub fn key(&self) -> String {
        format!("{}.{}", self.role, self.method)
    }
}

/// Why no provider could be made from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProviderFault {
    /// The text names none.
    #[error("unknown provider {0:?}; use auto, scripted:FILE or replay:FILE")]
    Unknown(String),
    /// Its file cannot be used.
    #[error("cannot use {path}: {problem}")]
    File {
        /// Which.
        path: String,
        /// Why, and what it must look like.
        problem: String,
    },
}

/// Makes the provider a configuration names.
pub fn named(name: &str) -> Result<Arc<dyn Provider>, ProviderFault> {
    match name.split_once(':') {
        Some(("scripted", file)) => Ok(Arc::new(Scripted::from_file(Path::new(file))?)),
        Some(("replay", file)) => Ok(Arc::new(Replay::from_file(Path::new(file))?)),
        None if name == "auto" => Ok(Arc::new(Unconfigured)),
        Some(_) | None => Err(ProviderFault::Unknown(name.to_owned())),
    }
}

/// Stands where no model is configured: stored programs run, everything else says what to do.
#[derive(Debug)]
struct Unconfigured;

impl Provider for Unconfigured {
    fn draft(&self, _prompt: &Prompt, limits: &DraftLimits<'_>) -> Result<Draft, DraftFault> {
        Err(DraftFault::Auth(format!(
            "{} needs a model and none is configured; run with --provider scripted:FILE or --provider replay:FILE",
            limits.key()
        )))
    }
}
