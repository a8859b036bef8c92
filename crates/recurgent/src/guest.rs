//! What a program and the host say to each other while it runs, in whatever language it is written.

mod harness;
pub mod interpreter;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lifecycle::context::ContextChanges;
use lifecycle::execution::{Output, ReportEnding, ResultFrom, WorkerTrace};
use lifecycle::outcome::Outcome;
use lifecycle::provenance::{FailedContact, ObservedSource};
use serde_json::{Map, Value};

use crate::grants::Grants;

/// The agent a program runs for, and its limits.
#[derive(Debug)]
pub struct RunLimits<'a> {
    /// The agent object; its kept worker serves no other.
    pub agent: &'a str,
    /// Time the program itself may take. The clock stops while the host answers.
    pub time_limit: Duration,
    /// Ends the turn early.
    pub cancellation: &'a Cancellation,
    /// What the program may reach.
    pub grants: &'a Grants,
}

/// What a running program sends.
#[derive(Debug)]
pub enum TurnEvent {
    /// It asks the host for something.
    Ask(Ask),
    /// It ended.
    Done(Box<Done>),
}

/// What a program reports when it ends.
#[derive(Debug)]
pub struct Done {
    /// How it ended.
    pub ending: ReportEnding,
    /// Its changes to memory.
    pub changes: ContextChanges,
    /// What it printed.
    pub output: Output,
    /// The worker that ran it.
    pub worker: WorkerTrace,
    /// How it gave its result.
    pub result_from: ResultFrom,
    /// The hosts it connected to, where the host makes its connections.
    pub reached: Vec<ObservedSource>,
    /// Its contacts with services that failed, as it says.
    pub failed_contacts: Vec<FailedContact>,
}

/// What a program may ask of the host while it runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Call a method on an agent it holds.
    Call {
        /// The agent's handle.
        agent: String,
        /// The method, or `name=`.
        method: String,
        /// By position.
        args: Vec<Value>,
        /// By name.
        kwargs: Map<String, Value>,
    },
    /// Get a known tool.
    Tool {
        /// Its name.
        name: String,
    },
    /// Forge a tool or, if detached, make an agent that is not registered.
    Delegate {
        /// Its role.
        role: String,
        /// Contract fields and options.
        options: Map<String, Value>,
        /// `Agent.for`: not registered as a tool.
        detached: bool,
    },
    /// Write into the memory of an agent it holds.
    Remember {
        /// The agent's handle.
        agent: String,
        /// What to write.
        entries: Map<String, Value>,
    },
    /// Read the memory of an agent it holds.
    RuntimeContext {
        /// The agent's handle.
        agent: String,
    },
    /// Give an agent it holds a method of its own; always refused.
    Attach {
        /// The method's name.
        name: String,
    },
    /// Read a kept value.
    Content {
        /// `content:…`.
        reference: String,
    },
    /// Ask a model about data.
    Infer {
        /// What is asked.
        instruction: String,
        /// What it is about; null: nothing.
        data: Value,
        /// Items that are asked about one by one.
        each: Option<Vec<Value>>,
        /// What an answer must be; null: a text.
        schema: Value,
    },
    /// Look at a value, and be written anew.
    Look {
        /// The value.
        value: Value,
        /// What the program wants to know.
        why: String,
    },
    /// The tool registry.
    Tools,
    /// Tools from outside that match.
    SearchTools {
        /// What is looked for.
        words: String,
    },
    /// Earlier calls of the running program's agent.
    History {
        /// At most this many, the newest.
        limit: u32,
        /// Only those before this call id.
        before: Option<String>,
    },
}

/// What the host answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// To [`Ask::Call`].
    Outcome(Box<Outcome>),
    /// To [`Ask::Tool`] and [`Ask::Delegate`]: a handle.
    Agent {
        /// The handle.
        handle: String,
        /// The agent's role.
        role: String,
    },
    /// To everything else.
    Value(Value),
    /// Refused; raises in the program.
    Refused {
        /// Its code.
        error_type: String,
        /// What to do instead.
        message: String,
    },
}

/// Cancels a call and everything under it. Cheap to clone and share.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Requests cancellation.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
