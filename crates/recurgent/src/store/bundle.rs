//! What one store can give to another: tools, their programs, what was observed of them, and sessions.
//!
//! [`super::layout`] writes a bundle as files and reads it back; [`super::AdminStore`] gives one and takes one in.

use std::collections::BTreeMap;

use lifecycle::artifact::{Artifact, ArtifactKey, Cacheability, TrackRecord};
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::example::Example;
use lifecycle::pattern::PatternEvent;
use lifecycle::program::Checksum;
use lifecycle::request::{Method, Role};
use serde_json::{Map, Value};

/// Everything about some or all roles.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bundle {
    /// By name.
    pub tools: Vec<ToolEntry>,
    /// By role, method, language and contract.
    pub artifacts: Vec<ArtifactEntry>,
    /// By role, each role's oldest first.
    pub patterns: Vec<PatternEvent>,
    /// By session and role; a bundle of some roles has none.
    pub sessions: Vec<SessionEntry>,
    /// What was left out when the bundle was read, and why; a merge reports it as skipped.
    pub notes: Vec<ImportNote>,
    /// What was read with tolerance, and how; a merge takes it all the same.
    pub tolerated: Vec<ImportNote>,
}

/// A tool of the registry.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolEntry {
    /// Its role.
    pub name: Role,
    /// What it promised.
    pub contract: Option<Contract>,
    /// Methods that were called on it.
    pub methods: Vec<String>,
    /// How its methods were called, by method, where another runtime described it.
    pub signatures: BTreeMap<String, String>,
    /// Its calls.
    pub usage_count: u64,
    /// Calls that gave a value.
    pub success_count: u64,
    /// Calls that failed through its own fault.
    pub failure_count: u64,
    /// RFC 3339, UTC.
    pub created_at: String,
    /// RFC 3339, UTC; what decides between two stores.
    pub last_used_at: String,
}

/// The programs of one method, in one language, under one contract.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactEntry {
    /// Whose method.
    pub role: Role,
    /// The method.
    pub method: Method,
    /// The language of its programs.
    pub language: Language,
    /// The contract they were made under.
    pub contract_fingerprint: String,
    /// The one that runs.
    pub current: Checksum,
    /// All that are kept, oldest first.
    pub versions: Vec<VersionEntry>,
    /// What people taught about the method.
    pub examples: Vec<Example>,
    /// Other columns of its row, unchanged.
    pub rest: Map<String, Value>,
}

impl ArtifactEntry {
    /// What it is stored under.
    pub fn key(&self) -> ArtifactKey {
        ArtifactKey {
            role: self.role.clone(),
            method: self.method.clone(),
            language: self.language,
            contract_fingerprint: Fingerprint::stored(self.contract_fingerprint.clone()),
        }
    }

    /// The program that runs, with what is known of it.
    pub fn running(&self) -> Option<Artifact> {
        let version = self.versions.iter().find(|version| version.checksum == self.current)?;
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let standing = version.rest.get("standing").cloned();
        let standing = standing.and_then(|standing| serde_json::from_value(standing).ok());
        Some(Artifact {
            role: self.role.clone(),
            method: self.method.clone(),
            language: self.language,
            contract_fingerprint: Fingerprint::stored(self.contract_fingerprint.clone()),
            runtime_version: version.runtime_version.clone(),
            code: version.code.clone(),
            checksum: version.checksum.clone(),
            manifest: version.manifest.clone(),
            cacheability: version.cacheability,
            successes: count(version.successes),
            failures: count(version.failures),
            repairs: count(version.repairs),
            track_record: TrackRecord {
                standing: standing.unwrap_or_default(),
                ..TrackRecord::default()
            },
        })
    }

    /// Its name for people.
    pub fn title(&self) -> String {
        let contract = if self.contract_fingerprint == "none" { "" } else { ", under a contract" };
        format!("{}.{} ({}{contract})", self.role, self.method, self.language)
    }
}

/// One program.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionEntry {
    /// Higher is newer.
    pub number: u64,
    /// Of its text.
    pub checksum: Checksum,
    /// Its text.
    pub code: String,
    /// The packages it declares.
    pub manifest: DependencyManifest,
    /// Why it may, or may not, be reused.
    pub cacheability: Cacheability,
    /// The guest surface it was made for.
    pub runtime_version: String,
    /// The prompt it was made by.
    pub prompt_version: String,
    /// Calls that gave a value.
    pub successes: u64,
    /// Calls that failed through its own or the task's fault.
    pub failures: u64,
    /// Repairs since it was last written from nothing.
    pub repairs: u64,
    /// RFC 3339, UTC.
    pub admitted_at: String,
    /// Other columns of its row, unchanged.
    pub rest: Map<String, Value>,
}

/// One agent's part in a session: its memory and its history.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionEntry {
    /// The session.
    pub name: String,
    /// The agent.
    pub role: Role,
    /// The version of its memory.
    pub version: u64,
    /// When it was last written to; RFC 3339, UTC; what decides between two stores.
    pub updated_at: String,
    /// Its memory.
    pub memory: Map<String, Value>,
    /// Records of its calls, oldest first.
    pub history: Vec<Value>,
    /// The packages it uses, by language.
    pub packages: BTreeMap<Language, DependencyManifest>,
}

impl SessionEntry {
    /// Its name for people.
    pub fn title(&self) -> String {
        format!("session {} of {}", self.name, self.role)
    }

    /// The ids of the calls in its history, in order.
    pub(super) fn calls(&self) -> impl Iterator<Item = &str> {
        self.history.iter().filter_map(|record| record.get("call_id")?.as_str())
    }
}

/// What was done with one entry of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportNote {
    /// What it is: a tool, a method's programs, a role's patterns.
    pub what: String,
    /// What was done, or why nothing was.
    pub why: String,
}

/// What was done with a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merged {
    /// What the store now has.
    pub taken: Vec<ImportNote>,
    /// What was read with tolerance, and how.
    pub noted: Vec<ImportNote>,
    /// What it had already, or has newer.
    pub skipped: Vec<ImportNote>,
    /// What contradicts it: neither side is the newer one.
    pub conflicts: Vec<ImportNote>,
}

impl Merged {
    pub(super) fn take(&mut self, what: &str, why: &str) {
        self.taken.push(ImportNote { what: what.to_owned(), why: why.to_owned() });
    }

    pub(super) fn skip(&mut self, what: &str, why: &str) {
        self.skipped.push(ImportNote { what: what.to_owned(), why: why.to_owned() });
    }

    pub(super) fn conflict(&mut self, what: &str, why: &str) {
        self.conflicts.push(ImportNote { what: what.to_owned(), why: why.to_owned() });
    }
}
