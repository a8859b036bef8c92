//! **Decides.** One call of an agent as a pure state machine; every policy a function or a table.
//!
//! Nothing here performs anything: no files, no clock, no randomness, no locks, no environment. [`call`] is the
//! state machine of a call, which ties the other modules together.
#![forbid(unsafe_code)]

pub mod request;
pub mod retention;
pub mod argument_shape;
pub mod context;
pub mod dispatch;
pub mod call;
pub mod select;
pub mod prompt;
pub mod spending;
pub mod draft;
pub mod program;
pub mod dependency;
pub mod dialect;
pub mod guardrail;
pub mod execution;
pub mod environment_damage;
pub mod inference;
pub mod look;
pub mod blame;
mod judgement;
mod no_result;
pub mod outcome;
pub mod contract;
pub mod attempt;
pub mod settlement;
pub mod artifact;
pub mod admission;
pub mod agreement;
pub mod example;
mod purity;
mod worker_pollution;
pub mod standing;
pub mod version_policy;
pub mod import_policy;
pub mod person_policy;
pub mod session_policy;
pub mod tool;
pub mod outside_tool;
pub mod health;
pub mod provenance;
pub mod history;
pub mod weak_success;
pub mod correction;
pub mod pattern;
pub mod recommendation;
pub mod event;
pub mod log_entry;
pub mod redact;
pub mod excerpt;
