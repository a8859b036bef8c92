//! **Acts.** The library that programs embed: agents on which any method can be called.
//!
//! [`Runtime`] is what a process shares, [`Agent`] a role with a memory. Every decision is made in the
//! `lifecycle` crate; `call.rs` performs one call from top to bottom.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("programs are contained by the Linux kernel, by rules for x86-64 alone");

pub mod config;
pub mod grants;
pub mod observe;
pub mod provider;
pub mod store;
pub mod toolbox;

// Not part of the interface: for the command line, the conformance runner and the tests of this repository.
#[doc(hidden)]
pub mod environment;
#[doc(hidden)]
pub mod guest;
#[doc(hidden)]
pub mod models;
#[doc(hidden)]
pub mod replay;
#[doc(hidden)]
pub mod upkeep;
#[doc(hidden)]
pub mod regular_file;
#[doc(hidden)]
pub mod worker;

mod agent;
mod arguments;
mod call;
mod host;
mod inference;
mod identity;
mod preparation;
mod runtime;
mod inspection_cache;
mod lock_file;
mod pinned_tools;
mod session_queue;
mod single_flight;
mod stored_programs;
mod tree;
mod trial;
mod workspace;

pub use agent::{Agent, AgentBuilder, AgentFault, CallFault};
pub use arguments::{ArgumentList, IntoArguments};
pub use guest::Cancellation;
pub use lifecycle::admission::{Admission, Inputs};
pub use lifecycle::artifact::{Artifact, ArtifactKey, TrackRecord};
pub use lifecycle::attempt::{Budgets, Origin};
pub use lifecycle::context::Context;
pub use lifecycle::contract::ContractFault;
pub use lifecycle::dependency::DependencyManifest;
pub use lifecycle::dialect::Language;
pub use lifecycle::draft::Nanodollars;
pub use lifecycle::example::{Example, ExampleFault, ExpectedResult};
pub use lifecycle::execution::Environment;
pub use lifecycle::guardrail::ViolationType;
pub use lifecycle::outcome::{
    CallDetails, Cause, EndedBy, Failure, FailureKind, Limit, Outcome, Reported, UnexpectedAnswer,
    Waited,
};
pub use lifecycle::program::Checksum;
pub use lifecycle::provenance::Observation;
pub use lifecycle::request::{
    Allowance, Arguments, CallId, MemoryKey, Method, NameFault, Role, Session, TraceId,
};
pub use lifecycle::standing::Standing;
pub use preparation::{Preparation, PreparationStatus, PreparationTicket};
pub use runtime::{Runtime, RuntimeBuilder, SetupFault};
pub use schemars;
pub use store::catalog::{KnownArtifact, TaughtMethod};
pub use stored_programs::{
    EditReport, ExpectedCall, Forgotten, ProgramFault, ProgramOrigin, ProgramSummary,
    RejectionReport, StoredPrograms, TestSource, TestedCall,
};

/// JSON as calls use it: strict, with integers of any size and objects in the order they were written. It is not the
/// embedding program's own `serde_json`, whose features it leaves alone.
pub mod json {
    pub use serde_json::{
        Error, Map, Number, Value, from_slice, from_str, from_value, json, to_string, to_value,
    };
}

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The program of the page about keeping programs compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/keeping.md")]
struct Keeping;
