//! What people do with stored programs: look at them, take one back, hold on to one; and how a new version
//! is tried before it takes over.

use lifecycle::admission::Case;
use lifecycle::artifact::{Artifact, ArtifactKey, Trigger};
use lifecycle::call::StoreFault;
use lifecycle::program::Checksum;
use lifecycle::request::Role;
use lifecycle::standing::{Decision, StateKeys};

/// Decisions kept of one artifact; the oldest go first.
pub const MAX_DECISIONS: usize = 50;

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

/// One program that is, was, or may become the one that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// Its number: higher is newer.
    pub number: u32,
    /// The program, with its counters and standing.
    pub artifact: Artifact,
    /// Whether it is the one that runs.
    pub is_current: bool,
    /// Why it was written.
    pub trigger: Trigger,
    /// What it was to replace.
    pub parent: Option<Checksum>,
    /// What went wrong with that.
    pub failure: Option<String>,
    /// Whether its answers depend on arguments and memory alone.
    pub pure: bool,
    /// The memory keys it uses.
    pub state_keys: StateKeys,
    /// When it was kept; RFC 3339, UTC.
    pub admitted_at: String,
    /// The recorded call it did not reproduce: why it is still a candidate.
    pub failing_case: Option<Case>,
}

/// A change of standing.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// Of which version.
    pub checksum: Checksum,
    /// When; RFC 3339, UTC.
    pub decided_at: String,
    /// What, and why.
    pub decision: Decision,
}

/// How the trial of a challenger ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It reproduced every recorded call that its incumbent reproduces.
    Passed,
    /// It did not reproduce this one, which its incumbent does.
    Failed(Box<Case>),
}

/// What people do with stored programs.
pub trait Catalog {
    /// The programs that run, by role and method; of one role if given; at most `limit`.
    fn artifacts(
        &self,
        role: Option<&Role>,
        limit: usize,
    ) -> Result<Vec<KnownArtifact>, StoreFault>;

    /// Every kept version, newest first.
    fn versions(&self, key: &ArtifactKey) -> Result<Vec<Version>, StoreFault>;

    /// Changes of standing, newest first.
    fn decisions(&self, key: &ArtifactKey) -> Result<Vec<Decided>, StoreFault>;

    /// The calls later versions are held to.
    fn corpus(&self, key: &ArtifactKey) -> Result<Vec<Case>, StoreFault>;

    /// Forgets a recorded call that its own program does not repeat.
    fn forget_case(&self, key: &ArtifactKey, case: &Case) -> Result<(), StoreFault>;

    /// Settles the trial of a challenger of the version `incumbent`. False: something else took over meanwhile,
    /// or the incumbent was pinned, and the challenger stays a candidate.
    fn conclude(
        &self,
        key: &ArtifactKey,
        incumbent: &Checksum,
        challenger: &Checksum,
        verdict: &Verdict,
    ) -> Result<bool, StoreFault>;

    /// Lets an earlier version run again: the last one that ran before the current one, or the one named, if it
    /// ever worked. Gives its checksum; `None`: there is no such version.
    fn rollback(
        &self,
        key: &ArtifactKey,
        to: Option<&Checksum>,
    ) -> Result<Option<Checksum>, StoreFault>;

    /// Holds on to the current version, or lets it go again. False: nothing is stored under that key.
    fn pin(&self, key: &ArtifactKey, pinned: bool) -> Result<bool, StoreFault>;
}
