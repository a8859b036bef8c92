//! Which stored program may run, or why none.

use crate::artifact::{Artifact, ArtifactKey, RUNTIME_VERSION};
use crate::program::Checksum;
use crate::request::CallRequest;
use crate::standing::{Standing, StandingMode};

/// Why no stored program was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// Nothing is stored for this role, method and language.
    NoArtifact,
    /// Only programs made under another contract.
    ContractChanged,
    /// Made for another guest surface.
    RuntimeChanged,
    /// Its reason forbids reuse.
    NotCacheable,
    /// Its text is not what was stored.
    ChecksumMismatch,
    /// It never worked.
    NeverSucceeded,
    /// It fails more than it works.
    Degraded,
}

impl Miss {
    /// The wire name (`selection_miss_reason`).
    pub fn name(self) -> &'static str {
        match self {
            Self::NoArtifact => "no_artifact",
            Self::ContractChanged => "contract_changed",
            Self::RuntimeChanged => "runtime_changed",
            Self::NotCacheable => "not_cacheable",
            Self::ChecksumMismatch => "checksum_mismatch",
            Self::NeverSucceeded => "never_succeeded",
            Self::Degraded => "degraded",
        }
    }
}

/// Picks the stored program for this call from those kept for its role, method and language.
pub fn select(
    stored: Vec<Artifact>,
    request: &CallRequest,
    mode: StandingMode,
) -> Result<Artifact, Miss> {
    if stored.is_empty() {
        return Err(Miss::NoArtifact);
    }
    let wanted = ArtifactKey::of(request).contract_fingerprint;
    let artifact = stored
        .into_iter()
        .find(|artifact| artifact.contract_fingerprint == wanted)
        .ok_or(Miss::ContractChanged)?;
    match unfit(&artifact, mode) {
        Some(miss) => Err(miss),
        None => Ok(artifact),
    }
}

/// Why a stored program may not run. One that fails again and again does not, in either mode: its next call
/// would only fail and be mended. A *standing* of degraded, which outlives the bad calls, counts when enforced.
pub fn unfit(artifact: &Artifact, mode: StandingMode) -> Option<Miss> {
    let repute = &artifact.repute;
    if artifact.runtime_version != RUNTIME_VERSION {
        Some(Miss::RuntimeChanged)
    } else if !artifact.cacheability.cacheable() {
        Some(Miss::NotCacheable)
    } else if Checksum::of(&artifact.code) != artifact.checksum {
        Some(Miss::ChecksumMismatch)
    } else if artifact.successes == 0 {
        Some(Miss::NeverSucceeded)
    } else if repute.recent.regressed()
        || (mode == StandingMode::Enforced && repute.standing == Standing::Degraded)
    {
        Some(Miss::Degraded)
    } else {
        None
    }
}
