//! Why the engine could not answer.

use std::path::{Path, PathBuf};

/// An error of the engine. The message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum EngineFault {
    /// The file of weights could not be opened or mapped.
    #[error("cannot open the model {}: {reason}. Check the path, or install a model with `recurgent model install`", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is not a complete GGUF file.
    #[error("the model {} is damaged: {reason}. Install it again with `recurgent model install`", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is a GGUF file that this engine cannot run.
    #[error("the model {} cannot be run: {reason}. This engine runs GGUF files of the architecture qwen2", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// What is not supported.
        reason: String,
    },
    /// The request does not fit or makes no sense.
    #[error("the request cannot be run: {0}")]
    Request(String),
    /// A computation failed.
    #[error("the model failed while it was running: {0}. Report this with the name of the model")]
    Internal(String),
}

impl EngineFault {
    pub(crate) fn damaged(file: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), reason: reason.into() }
    }

    pub(crate) fn unsupported(file: &Path, reason: impl Into<String>) -> Self {
        Self::Unsupported { file: file.to_owned(), reason: reason.into() }
    }
}
