//! Programs that worked, kept so that next time no model is needed.

use serde::{Deserialize, Serialize};

use crate::contract::Fingerprint;
use crate::dependency::DependencyManifest;
use crate::dialect::Language;
use crate::program::Checksum;
use crate::request::{Method, Role};

/// What stored programs must have been made for. Raised when the guest surface changes incompatibly.
pub const RUNTIME_VERSION: &str = "1";

/// Failures before a stored program is no longer trusted.
const DEGRADED_FAILURES: u32 = 3;

/// A stored program and what is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Whose method it is.
    pub role: Role,
    /// The method.
    pub method: Method,
    /// The language of its text.
    pub language: Language,
    /// The contract it was made under.
    pub contract_fingerprint: Fingerprint,
    /// The guest surface it was made for.
    pub runtime_version: String,
    /// Its text.
    pub code: String,
    /// Of its text, when it was stored.
    pub checksum: Checksum,
    /// The packages it declares.
    pub manifest: DependencyManifest,
    /// Why it may, or may not, be reused.
    pub cacheability: Cacheability,
    /// Calls that gave a value.
    pub successes: u32,
    /// Calls that failed through its own or the task's fault.
    pub failures: u32,
    /// Repairs since it was last written from nothing.
    pub repairs: u32,
}

impl Artifact {
    /// Fails more than it works.
    pub fn degraded(&self) -> bool {
        self.failures >= DEGRADED_FAILURES && self.failures > self.successes.saturating_mul(2)
    }
}

pub use crate::guardrail::Cacheability;

/// What a call says about the stored program it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It gave a value.
    Succeeded,
    /// It gave a truthful error: a result, not a defect.
    Answered,
    /// It failed through its own or the task's fault.
    Failed,
    /// The world failed it.
    Excused,
}

/// What a call does to storage.
#[derive(Debug, Clone, PartialEq)]
pub enum ArtifactChange {
    /// A new program proved itself and takes over.
    Admit(Box<Artifact>),
    /// A stored program ran.
    Score {
        /// Which.
        checksum: Checksum,
        /// How it did.
        verdict: Verdict,
    },
}
