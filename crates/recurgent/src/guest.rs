//! The guest seam: a language we run programs in.

mod harness;
pub mod interpreter;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lifecycle::context::ContextChanges;
use lifecycle::execution::{Environment, Order, Output, ReportEnding, WorkerFault, WorkerTrace};
use lifecycle::outcome::Outcome;
use serde_json::{Map, Value};

use crate::grants::Grants;

/// Runs programs of one language.
pub trait Guest: fmt::Debug + Send + Sync {
    /// Starts a program; it runs until its turn says something.
    fn start(
        &self,
        environment: &Environment,
        order: &Order<'_>,
        run_limits: &RunLimits<'_>,
    ) -> Result<Box<dyn Turn>, WorkerFault>;

    /// Drops the kept worker of an agent: its last attempt was rejected, or the agent is gone.
    fn discard(&self, agent: &str);
}

/// On whose behalf, and within what bounds, a program runs.
#[derive(Debug)]
pub struct RunLimits<'a> {
    /// The agent object; its kept worker serves nobody else.
    pub agent: &'a str,
    /// Time the program itself may take; the clock stops while the host answers.
    pub time_limit: Duration,
    /// Ends the turn early.
    pub cancellation: &'a Cancellation,
    /// What it may reach.
    pub grants: &'a Grants,
}

/// A program under way: it asks, is answered, and ends by being done. Dropping it ends its worker.
pub trait Turn: fmt::Debug {
    /// What it says next.
    fn listen(&mut self) -> Result<Said, WorkerFault>;

    /// Answers what it asked last.
    fn answer(&mut self, answer: Answer) -> Result<(), WorkerFault>;
}

/// What a running program says.
#[derive(Debug)]
pub enum Said {
    /// It wants something of the host.
    Ask(Ask),
    /// It is done.
    Done(Box<Done>),
}

/// What a program leaves when it is done.
#[derive(Debug)]
pub struct Done {
    /// How it ended.
    pub ending: ReportEnding,
    /// What it did to its copy of the memory.
    pub changes: ContextChanges,
    /// What it printed.
    pub output: Output,
    /// Who ran it.
    pub worker: WorkerTrace,
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
    /// Forge a tool, or (detached) make an agent that is not registered.
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
    /// The tool registry.
    Tools,
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

/// Tells a call, and everything under it, to stop. Cheap to clone and share.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Asks for the end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the end was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
