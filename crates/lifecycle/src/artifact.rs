//! Programs that worked, kept so that next time no model is needed.

use serde::{Deserialize, Serialize};

use crate::agreement::Agreement;
use crate::contract::Fingerprint;
use crate::dependency::DependencyManifest;
use crate::dialect::Language;
use crate::program::{Checksum, VettedProgram};
use crate::purity::is_pure;
use crate::request::{CallRequest, Method, Role};
use crate::select::Miss;
use crate::standing::{Standing, StateKeys, Window};

pub use crate::guardrail::Cacheability;

/// What stored programs must have been made for. Raised when the guest surface changes incompatibly.
pub const RUNTIME_VERSION: &str = "1";

/// What programs are stored under: one runs, others wait or are history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArtifactKey {
    /// Whose method it is.
    pub role: Role,
    /// The method.
    pub method: Method,
    /// The language programs are written in.
    pub language: Language,
    /// The contract they are made under.
    pub contract_fingerprint: Fingerprint,
}

impl ArtifactKey {
    /// Under which a call's programs are stored.
    pub fn of(request: &CallRequest) -> Self {
        Self {
            role: request.role.clone(),
            method: request.method.clone(),
            language: request.language,
            contract_fingerprint: request.contract_fingerprint(),
        }
    }
}

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
    /// Repairs since it was last written from nothing, those that did not take over included.
    pub repairs: u32,
    /// What later calls made of it.
    #[serde(rename = "repute")]
    pub track_record: TrackRecord,
}

/// What later calls made of a stored program and its artifact.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackRecord {
    /// How far it has proved itself.
    pub standing: Standing,
    /// The results of its last calls.
    pub recent: Window,
    /// Recorded calls its successors must reproduce.
    pub cases: u32,
    /// A newer version that waits for its trial.
    pub challenger: Option<Checksum>,
    /// Programs ever made under its key.
    pub generations: u32,
    /// Its author: a person's program may run before it has succeeded.
    #[serde(default)]
    pub author: Author,
    /// Whether a person took it out of service.
    #[serde(default)]
    pub rejected: bool,
    /// Argument shapes it was accepted with.
    #[serde(default)]
    pub shapes: ProvenShapes,
}

/// Digits of a digest that stand for a shape.
const SHAPE_DIGITS: usize = 16;

/// Stands for the shape of a call's arguments: a short digest, always as long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeDigest(String);

impl ShapeDigest {
    /// The digest of a shape, given as text.
    pub fn of(shape: &str) -> Self {
        Self(Checksum::short_of(shape, SHAPE_DIGITS))
    }

    /// As kept in storage.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The argument shapes a version was accepted with, the digests end to end; a store keeps at most [`Self::MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProvenShapes(String);

impl ProvenShapes {
    /// Shapes kept of one version.
    pub const MAX: usize = 32;
    /// Characters of all of them.
    pub const MAX_CHARS: usize = Self::MAX * SHAPE_DIGITS;

    /// As read back from storage.
    pub fn stored(digests: String) -> Self {
        Self(digests)
    }

    /// Whether nothing is known: it was stored before shapes were kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a shape that the version was accepted with, unless it is there or [`Self::MAX`] others are.
    pub fn add(&mut self, shape: &ShapeDigest) {
        if !self.contains(shape) && self.0.len() < Self::MAX_CHARS {
            self.0.push_str(shape.as_str());
        }
    }

    /// Whether the version was accepted with this shape.
    pub fn contains(&self, shape: &ShapeDigest) -> bool {
        self.0.as_bytes().chunks(SHAPE_DIGITS).any(|kept| kept == shape.0.as_bytes())
    }
}

impl Artifact {
    /// What it is stored under.
    pub fn key(&self) -> ArtifactKey {
        ArtifactKey {
            role: self.role.clone(),
            method: self.method.clone(),
            language: self.language,
            contract_fingerprint: self.contract_fingerprint.clone(),
        }
    }
}

/// What a call says about the stored program it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVerdict {
    /// It gave a value.
    Succeeded,
    /// It gave a truthful error: a result, not a defect.
    Answered,
    /// It said, truthfully, that it is the wrong tool.
    Referred,
    /// It failed through its own or the task's fault.
    Failed,
    /// Its value was not what its contract promises.
    ContractBroken,
    /// It gave external data without saying where it came from.
    Unsourced,
    /// It failed, and its repairs used up the retries of the call.
    Exhausted,
    /// It could not use what a service answered: a fault of the world that passes, or a change that it must follow.
    Unread,
    /// It failed through a fault of the world.
    Excused,
}

impl RunVerdict {
    const MARKED: [Self; 8] = [
        Self::Succeeded,
        Self::Answered,
        Self::Referred,
        Self::Failed,
        Self::ContractBroken,
        Self::Unsourced,
        Self::Exhausted,
        Self::Unread,
    ];

    /// Its letter in a [`Window`]; a fault of the world has none.
    pub fn mark(self) -> Option<char> {
        match self {
            Self::Succeeded => Some('s'),
            Self::Answered => Some('a'),
            Self::Referred => Some('b'),
            Self::Failed => Some('f'),
            Self::ContractBroken => Some('v'),
            Self::Unsourced => Some('p'),
            Self::Exhausted => Some('x'),
            Self::Unread => Some('u'),
            Self::Excused => None,
        }
    }

    /// The verdict of a letter.
    pub(crate) fn of_mark(mark: char) -> Option<Self> {
        Self::MARKED.into_iter().find(|verdict| verdict.mark() == Some(mark))
    }

    /// Whether the program is to blame.
    pub fn counts_against(self) -> bool {
        match self {
            Self::Failed | Self::ContractBroken | Self::Unsourced | Self::Exhausted => true,
            Self::Succeeded | Self::Answered | Self::Referred | Self::Unread | Self::Excused => {
                false
            }
        }
    }
}

/// Why a program was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Nothing was stored.
    Fresh,
    /// The stored one failed and was repaired.
    Repair,
    /// The stored one could not use what arrived from outside, several times in a row.
    AnswerChanged,
    /// The stored one rejected arguments, and was written again so that it takes them.
    Widening,
    /// The stored one failed after its repairs were spent.
    Regeneration,
    /// The stored program was made under another contract.
    ContractChanged,
    /// The stored program was made for another guest surface.
    RuntimeChanged,
    /// The stored program may not be reused.
    NotCacheable,
    /// The stored program's text had changed.
    ChecksumMismatch,
    /// The stored program never worked.
    NeverSucceeded,
    /// The stored program fails more than it works.
    Degraded,
    /// The stored program was rejected by a person.
    Rejected,
    /// A person asked for another program than the stored one.
    Requested,
    /// A person wrote it.
    Edited,
}

impl Trigger {
    /// Why a program was written when no stored one could run.
    pub fn of_miss(miss: Miss) -> Self {
        match miss {
            Miss::NoArtifact => Self::Fresh,
            Miss::ContractChanged => Self::ContractChanged,
            Miss::RuntimeChanged => Self::RuntimeChanged,
            Miss::NotCacheable => Self::NotCacheable,
            Miss::ChecksumMismatch => Self::ChecksumMismatch,
            Miss::NeverSucceeded => Self::NeverSucceeded,
            Miss::Degraded => Self::Degraded,
            Miss::Rejected => Self::Rejected,
            Miss::Requested => Self::Requested,
        }
    }

    /// The wire name (`artifact_generation_trigger`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Repair => "repair",
            Self::AnswerChanged => "answer_changed",
            Self::Widening => "widening",
            Self::Regeneration => "regeneration",
            Self::ContractChanged => "contract_changed",
            Self::RuntimeChanged => "runtime_changed",
            Self::NotCacheable => "not_cacheable",
            Self::ChecksumMismatch => "checksum_mismatch",
            Self::NeverSucceeded => "never_succeeded",
            Self::Degraded => "degraded",
            Self::Rejected => "rejected",
            Self::Requested => "requested",
            Self::Edited => "edited",
        }
    }
}

/// The author of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Author {
    /// A model.
    #[default]
    Model,
    /// A person.
    Person,
}

impl Author {
    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Person => "person",
        }
    }
}

/// The rejected attempt that a program was written because of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerFailure {
    /// When in the attempt it was found (`latest_failure_stage`).
    pub stage: String,
    /// The guest's exception class, or the failure's code.
    pub class: String,
    /// The failure's code and message, bounded.
    pub message: String,
    /// The number of the attempt in its call, from 1.
    pub attempt_id: u32,
}

/// A new program that worked, and how it came to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The program.
    pub artifact: Artifact,
    /// Its author.
    pub author: Author,
    /// Why it was written.
    pub trigger: Trigger,
    /// What it replaces, should it take over.
    pub parent: Option<Checksum>,
    /// What went wrong with that or, if nothing was stored, with the attempt before.
    pub failure: Option<TriggerFailure>,
    /// The memory keys it uses.
    pub state_keys: StateKeys,
    /// Whether its answers depend on arguments and memory alone.
    pub pure: bool,
    /// How many programs agreed with it, if several were written.
    pub agreement: Option<Agreement>,
    /// Whether a person wants it although it may answer recorded calls differently: those no longer bind.
    pub outranks_recorded: bool,
}

impl Generation {
    /// A program that a person wrote for a method; `parent` is the version it replaces.
    pub fn by_person(key: &ArtifactKey, program: &VettedProgram, parent: Option<Checksum>) -> Self {
        let ArtifactKey { role, method, language, contract_fingerprint } = key.clone();
        let text = program.program();
        let artifact = Artifact {
            role,
            method,
            language,
            contract_fingerprint,
            runtime_version: RUNTIME_VERSION.to_owned(),
            code: text.source.clone(),
            checksum: program.checksum().clone(),
            manifest: text.manifest.clone(),
            cacheability: Cacheability::StableMethodDefault,
            successes: 0,
            failures: 0,
            repairs: 0,
            track_record: TrackRecord {
                standing: Standing::Candidate,
                author: Author::Person,
                ..TrackRecord::default()
            },
        };
        Self {
            artifact,
            author: Author::Person,
            trigger: Trigger::Edited,
            parent,
            failure: None,
            state_keys: program.state_keys(),
            pure: is_pure(program),
            agreement: None,
            outranks_recorded: false,
        }
    }
}

/// What a call does to storage.
#[derive(Debug, Clone, PartialEq)]
pub enum ArtifactChange {
    /// A new program worked; [`crate::version_policy::admitted`] decides whether it takes over.
    Admit(Box<Generation>),
    /// A stored program ran.
    Score {
        /// Which.
        checksum: Checksum,
        /// How it did.
        verdict: RunVerdict,
    },
    /// A stored program missed an example: the calls recorded of its artifact no longer bind.
    VoidCases,
    /// A repair of a stored program was written, whether it worked or not.
    RepairWritten {
        /// Which was to be repaired.
        checksum: Checksum,
    },
}
