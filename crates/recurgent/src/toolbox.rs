//! The seam behind which tools are that no model wrote: functions of the embedding program, configured commands, and
//! MCP servers (in a crate of their own).
//!
//! Programs call them like any other tool: `tool("orders").search(query: "…")`.

pub(crate) mod command;
mod function;
mod recorded;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use lifecycle::outcome::{Failure, FailureKind, Reported};
use lifecycle::outside_tool::TOOL_ERROR;
use lifecycle::program::Checksum;
use lifecycle::redact::NamedSecrets;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::config::Config;
use crate::grants::ToolGrant;
use crate::guest::Cancellation;

pub use command::{CommandOptions, CommandTool};
pub(crate) use function::is_called_by;
pub use function::{Functions, HostFunction};
pub use lifecycle::outside_tool::{
    MAX_METHODS, MethodDefinition, OutsideMethod, OutsideOrigin, OutsideTool, learned, plain,
    signature,
};
#[doc(hidden)]
pub use recorded::RecordedTools;
use recorded::clean_arguments;
pub(crate) use recorded::{RecordedToolLine, ToolRecorder};

/// Characters kept of what a tool says of its failure.
const MAX_MESSAGE_CHARS: usize = 800;

/// A tool from outside with its methods.
pub trait Toolbox: fmt::Debug + Send + Sync {
    /// The name by which programs get it.
    fn name(&self) -> &str;

    /// Where it comes from.
    fn origin(&self) -> OutsideOrigin;

    /// Its methods. It may have to ask a server.
    fn definitions(&self, limits: &ToolLimits<'_>) -> Result<Arc<OutsideTool>, ToolFault>;

    /// Calls a method with arguments that fit its schema.
    fn call(
        &self,
        method: &OutsideMethod,
        arguments: Map<String, Value>,
        limits: &ToolLimits<'_>,
    ) -> Result<Value, ToolFault>;

    /// The digest of its definitions.
    fn digest(&self, limits: &ToolLimits<'_>) -> Result<Checksum, ToolFault> {
        Ok(self.definitions(limits)?.digest())
    }
}

/// How long an outside tool may take.
#[derive(Debug, Clone, Copy)]
pub struct ToolLimits<'a> {
    /// From now on.
    pub timeout: Duration,
    /// Ends it early.
    pub cancellation: &'a Cancellation,
}

/// Why an outside tool gave no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ToolFault {
    /// The tool itself says that it failed.
    #[error("{0}")]
    Failed(String),
    /// The arguments do not fit.
    #[error("{0}")]
    InvalidArguments(String),
    /// It, or its server, ended or cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// It did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// A function of the embedding program panicked.
    #[error("it panicked: {0}")]
    Panicked(String),
    /// Its result is too large, or is not what it promises.
    #[error("{0}")]
    InvalidResult(String),
    /// What it says of itself has changed, or was never approved.
    #[error("{0}")]
    ApprovalRequired(String),
    /// A recording holds no such call.
    #[error("{0}")]
    Diverged(String),
    /// The call was cancelled.
    #[error("the call was cancelled")]
    Cancelled,
}

impl ToolFault {
    /// Why it cannot be used, in a word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Failed(_) => "failed",
            Self::InvalidArguments(_) => "invalid_arguments",
            Self::Unreachable(_) => "unreachable",
            Self::TimedOut(_) => "timed_out",
            Self::Panicked(_) => "panicked",
            Self::InvalidResult(_) => "invalid_result",
            Self::ApprovalRequired(_) => "approval_required",
            Self::Diverged(_) => "diverged",
            Self::Cancelled => "cancelled",
        }
    }

    /// The failure of a call of the tool, as a program sees it.
    pub(crate) fn failure(&self, tool: &str) -> Failure {
        let said = plain(&self.to_string(), MAX_MESSAGE_CHARS);
        let (kind, message) = match self {
            Self::Failed(_) => {
                let code = TOOL_ERROR.to_owned();
                (FailureKind::Reported(Reported { code, retriable: false }), said)
            }
            Self::InvalidArguments(_) => (FailureKind::InvalidCall, said),
            Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::Panicked(_)
            | Self::InvalidResult(_) => {
                (FailureKind::ToolUnavailable, format!("the tool {tool} cannot be used: {said}"))
            }
            Self::ApprovalRequired(_) => (FailureKind::ApprovalRequired, said),
            Self::Diverged(_) => (FailureKind::ReplayDivergence, said),
            Self::Cancelled => (FailureKind::Cancelled, said),
        };
        let failure = Failure::new(kind, message).with("tool", tool).with("reason", self.reason());
        let needs_approval = matches!(self, Self::ApprovalRequired(_));
        if needs_approval { failure.with("needs", tool) } else { failure }
    }
}

/// Why a tool cannot be added to a runtime.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ToolboxFault {
    /// The name cannot be used.
    #[error(
        "{name:?} cannot name a tool: use small letters, digits and `_`, as in `orders` or `orders.search`"
    )]
    Name {
        /// As given.
        name: String,
    },
    /// Two tools have one name.
    #[error("two tools are named {name:?}: {first} and {second}; rename one")]
    Taken {
        /// The name.
        name: String,
        /// The origin of the first.
        first: &'static str,
        /// The origin of the second.
        second: &'static str,
    },
    /// A definition cannot be used.
    #[error("{name}: {problem}")]
    Definition {
        /// The tool or method.
        name: String,
        /// Why.
        problem: String,
    },
}

/// Whether this can name a tool.
pub fn is_tool_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(is_part)
}

/// The commands of the configuration.
pub(crate) fn command_tools(config: &Config) -> Result<Vec<Arc<dyn Toolbox>>, ToolboxFault> {
    if config.commands().is_empty() {
        return Ok(Vec::new());
    }
    let sandbox = Arc::new(config.outside_sandbox());
    let tool = |(name, options): (&String, &CommandOptions)| match CommandTool::new(
        name,
        options.clone(),
        Arc::clone(&sandbox),
    ) {
        Ok(tool) => Ok(Arc::new(tool) as Arc<dyn Toolbox>),
        Err(problem) => Err(ToolboxFault::Definition { name: name.clone(), problem }),
    };
    config.commands().iter().map(tool).collect()
}

/// The outside tools of a runtime, by name.
#[derive(Debug, Default)]
pub(crate) struct Toolboxes {
    by_name: RwLock<BTreeMap<String, Arc<dyn Toolbox>>>,
    functions: Functions,
    /// Answers instead of the tools themselves.
    replayed: Option<Arc<RecordedTools>>,
    recorder: Option<ToolRecorder>,
}

impl Toolboxes {
    pub(crate) fn new(
        toolboxes: Vec<Arc<dyn Toolbox>>,
        recorder: Option<ToolRecorder>,
        replayed: Option<Arc<RecordedTools>>,
    ) -> Result<Self, ToolboxFault> {
        let all = Self { replayed, recorder, ..Self::default() };
        for toolbox in toolboxes {
            all.add(toolbox)?;
        }
        Ok(all)
    }

    fn add(&self, toolbox: Arc<dyn Toolbox>) -> Result<(), ToolboxFault> {
        let name = toolbox.name().to_owned();
        if !is_tool_name(&name) {
            return Err(ToolboxFault::Name { name });
        }
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = by_name.get(&name) {
            let (first, second) = (first.origin().name(), toolbox.origin().name());
            return Err(ToolboxFault::Taken { name, first, second });
        }
        self.functions.reserve(&name, toolbox.origin());
        by_name.insert(name, toolbox);
        Ok(())
    }

    /// The functions of the embedding program.
    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// A tool by name, if it is granted.
    pub(crate) fn find(&self, name: &str, grant: &ToolGrant) -> Option<Arc<dyn Toolbox>> {
        let found = self.named(name)?;
        grant.covers(name, found.origin()).then_some(found)
    }

    fn named(&self, name: &str) -> Option<Arc<dyn Toolbox>> {
        if let Some(replayed) = &self.replayed {
            return replayed.toolbox(name);
        }
        if let Some(functions) = self.functions.toolbox(name) {
            return Some(functions);
        }
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Every tool.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Toolbox>> {
        let mut all = match &self.replayed {
            Some(replayed) => replayed.toolboxes(),
            None => self.functions.toolboxes(),
        };
        if self.replayed.is_none() {
            let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
            all.extend(by_name.values().cloned());
        }
        all
    }

    /// The definitions of the granted tools, and which of them cannot be used and why. All together have the time of one.
    pub(crate) fn granted(
        &self,
        grant: &ToolGrant,
        limits: &ToolLimits<'_>,
    ) -> (Vec<Arc<OutsideTool>>, Vec<(String, ToolFault)>) {
        let (mut usable, mut unusable) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + limits.timeout;
        for toolbox in self.all() {
            if !grant.covers(toolbox.name(), toolbox.origin()) {
                continue;
            }
            let timeout = deadline.saturating_duration_since(Instant::now());
            match self.definitions(toolbox.as_ref(), &ToolLimits { timeout, ..*limits }) {
                Ok(tool) => usable.push(grant.narrow(tool)),
                Err(fault) => unusable.push((toolbox.name().to_owned(), fault)),
            }
        }
        (usable, unusable)
    }

    /// What a tool says of itself, recorded.
    pub(crate) fn definitions(
        &self,
        toolbox: &dyn Toolbox,
        limits: &ToolLimits<'_>,
    ) -> Result<Arc<OutsideTool>, ToolFault> {
        let tool = toolbox.definitions(limits)?;
        if let Some(recorder) = &self.recorder {
            recorder.record_definitions(&tool)?;
        }
        Ok(tool)
    }

    /// Calls a method; the result is bounded and checked, and recorded without secrets, those of the call tree among
    /// them. A recording is asked as it was written: without them too.
    pub(crate) fn call(
        &self,
        (toolbox, method): (&dyn Toolbox, &OutsideMethod),
        arguments: Map<String, Value>,
        limits: &ToolLimits<'_>,
        secrets: &NamedSecrets,
    ) -> Result<Value, ToolFault> {
        if limits.cancellation.is_cancelled() {
            return Err(ToolFault::Cancelled);
        }
        let is_clean = self.replayed.is_some();
        let recorded = (is_clean || self.recorder.is_some())
            .then(|| clean_arguments(arguments.clone(), secrets));
        let arguments = recorded.clone().filter(|_| is_clean).unwrap_or(arguments);
        let result = toolbox.call(method, arguments, limits).and_then(|result| {
            match method.misfit_result(&result) {
                None => Ok(result),
                Some(problem) => Err(ToolFault::InvalidResult(problem)),
            }
        });
        if let (Some(recorder), Some(arguments)) = (&self.recorder, recorded) {
            recorder.record_call((toolbox.name(), &method.name), arguments, &result, secrets)?;
        }
        result
    }
}
