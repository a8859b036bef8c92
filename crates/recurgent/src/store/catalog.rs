//! What a store lists: programs, their versions, changes of standing, sessions.

use lifecycle::admission::{Applicant, Case};
use lifecycle::agreement::Agreement;
use lifecycle::artifact::{Artifact, Author, Trigger};
use lifecycle::program::Checksum;
use lifecycle::request::{Method, Role};
use lifecycle::standing::{Decision, StateKeys};

pub use lifecycle::retention::MAX_DECISIONS;
pub use lifecycle::version_policy::Verdict;

/// What is stored under one key, in brief.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownArtifact {
    /// The version that runs, with its counters.
    pub current: Artifact,
    /// Its number.
    pub version: u32,
    /// Whether it is never replaced.
    pub pinned: bool,
}

/// A method that people taught examples of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaughtMethod {
    /// Whose method it is.
    pub role: Role,
    /// The method.
    pub method: Method,
    /// How many examples it has.
    pub examples: usize,
}

/// One program that is, was, or may become the one that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredVersion {
    /// Its number: higher is newer.
    pub number: u32,
    /// The program, with its counters and standing.
    pub artifact: Artifact,
    /// Whether it is the one that runs.
    pub is_current: bool,
    /// Its author: a model or a person.
    pub author: Author,
    /// Why it was written.
    pub trigger: Trigger,
    /// The version that it was written to replace.
    pub parent: Option<Checksum>,
    /// The failure that led to this version: of the version it replaces or, if nothing was stored, of the attempt before.
    pub failure: Option<String>,
    /// The stage at which that failure was found, if known.
    pub trigger_stage: Option<String>,
    /// The class of that failure, if known.
    pub trigger_error_class: Option<String>,
    /// The number of that attempt in its call, if known.
    pub trigger_attempt_id: Option<u32>,
    /// Whether its answers depend on arguments and memory alone.
    pub pure: bool,
    /// How many programs agreed with it, if several were written for its first call.
    pub agreement: Option<Agreement>,
    /// The memory keys it uses.
    pub state_keys: StateKeys,
    /// When it was kept; RFC 3339, UTC.
    pub admitted_at: String,
    /// The recorded call it did not reproduce: why it is still a candidate.
    pub failing_case: Option<Case>,
}

impl StoredVersion {
    /// What its admission and its trial depend on.
    pub(crate) fn as_applicant(&self) -> Applicant {
        let reusable = self.artifact.cacheability.cacheable();
        Applicant { reusable, pure: self.pure, trigger: self.trigger }
    }
}

/// A change of standing.
#[derive(Debug, Clone, PartialEq)]
pub struct StandingChange {
    /// The version concerned.
    pub checksum: Checksum,
    /// When it was decided; RFC 3339, UTC.
    pub decided_at: String,
    /// The decision and its reason.
    pub decision: Decision,
}

/// What is known of one agent's part in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// The session.
    pub name: String,
    /// The agent.
    pub role: String,
    /// Keys in its memory.
    pub keys: u64,
    /// The version of its memory.
    pub version: u64,
    /// When it was last written to; RFC 3339, UTC.
    pub updated_at: String,
    /// Records of its calls.
    pub history_count: u64,
}
