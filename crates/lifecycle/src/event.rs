//! Events of a call under way. Observers receive them and cannot change the call.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::outside_tool::OutsideCall;
use crate::request::{CallId, CallRequest, TraceId};

/// The call an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The tree.
    pub trace: TraceId,
    /// The call.
    pub call: CallId,
    /// The call that asked for it.
    pub parent: Option<CallId>,
    /// Its depth in the tree.
    pub depth: u8,
    /// `role.method`.
    pub name: String,
}

impl Subject {
    /// The subject of every event about this call.
    pub fn of(request: &CallRequest) -> Self {
        Self {
            trace: request.lineage.trace().clone(),
            call: request.id.clone(),
            parent: request.lineage.parent().cloned(),
            depth: request.lineage.depth(),
            name: format!("{}.{}", request.role, request.method),
        }
    }
}

/// Something that happened in a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The call.
    pub subject: Subject,
    /// What happened.
    pub kind: EventKind,
}

/// How far a model is with an answer. The engine of the embedded model also writes it, as `specs/engine-protocol.md` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelProgress {
    /// It answers this many earlier requests first.
    Queued(usize),
    /// It is loaded.
    Loading,
    /// The prompt is read.
    Reading {
        /// Tokens so far.
        done: u64,
        /// Tokens in all.
        total: u64,
    },
    /// The answer is written.
    Writing {
        /// Tokens so far, in each answer.
        tokens: u64,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// The call began.
    Started {
        /// Its arguments, as a short text.
        arguments: String,
    },
    /// A model is being asked.
    Generating {
        /// Which attempt this is for, from 1.
        attempt: usize,
        /// Whether its prompt has feedback on an earlier program.
        with_feedback: bool,
    },
    /// The model is at work on what it was asked.
    ModelProgress {
        /// How far it is.
        progress: ModelProgress,
    },
    /// The packages a program declares are being installed.
    Preparing {
        /// What takes a while, for people.
        what: String,
    },
    /// The model's service failed; it is asked again after a wait.
    Waiting {
        /// How long, more or less.
        wait: Duration,
        /// What failed.
        why: String,
    },
    /// A program is about to run.
    Executing {
        /// Which attempt this is, from 1.
        attempt: usize,
        /// `persisted`, `generated` or `repaired`.
        source: &'static str,
        /// Its text.
        code: String,
    },
    /// The program calls a tool from outside.
    CallingOutside {
        /// `tool.method`.
        name: String,
        /// Its arguments, as a short text.
        arguments: String,
    },
    /// A call of a tool from outside ended.
    CalledOutside {
        /// Which, and how.
        call: OutsideCall,
    },
    /// A program asks a model about data.
    Inferring {
        /// The beginning of what it asks.
        instruction: String,
        /// Items asked about in this request.
        items: usize,
    },
    /// What the program of an attempt printed, once it ended.
    Printed {
        /// Which attempt, from 1.
        attempt: usize,
        /// Its standard output.
        stdout: String,
        /// Its standard error.
        stderr: String,
    },
    /// A program looked at a value: its attempt left nothing behind, and the next program is written with the value in
    /// sight.
    Looked {
        /// Which attempt, from 1.
        attempt: usize,
        /// What it wants to know.
        why: String,
    },
    /// An attempt was rejected and left nothing behind.
    RolledBack {
        /// Which attempt, from 1.
        attempt: usize,
        /// When in the attempt (`latest_failure_stage`).
        stage: &'static str,
        /// The failure's code, or the guardrail's subtype.
        code: String,
        /// What was wrong.
        message: String,
        /// The text of its program, when there was one.
        program: Option<String>,
    },
    /// The call ended.
    Ended {
        /// How.
        outcome: Box<Outcome>,
        /// Whether a stored program answered.
        from_storage: bool,
        /// Model calls this call made itself.
        model_calls: u32,
        /// From request to settlement.
        took: Duration,
    },
}
