//! Calls of outside tools in a recording: written beside the answers of the model, and answered from it offline.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lifecycle::outside_tool::{OutsideMethod, OutsideOrigin, OutsideTool};
use lifecycle::redact::{NamedSecrets, redacted, redacted_text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ToolFault, ToolLimits, Toolbox};

/// A line of a recording about an outside tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub(crate) enum RecordedToolLine {
    /// What a tool says of itself, before its first use.
    Definitions {
        /// The tool.
        outside_tool: OutsideTool,
    },
    /// A call and its answer.
    Call {
        /// `tool.method`.
        outside_call: String,
        /// Without secrets.
        arguments: Value,
        /// Without secrets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// Why there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<RecordedToolFault>,
    },
}

/// A fault as it is recorded: its reason and its message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedToolFault {
    reason: String,
    message: String,
}

impl RecordedToolFault {
    fn of(fault: &ToolFault, secrets: &NamedSecrets) -> Self {
        let message = secrets.out_of_text(redacted_text(fault.to_string()));
        Self { reason: fault.reason().to_owned(), message }
    }

    fn into_fault(self) -> ToolFault {
        let Self { reason, message } = self;
        match reason.as_str() {
            "failed" => ToolFault::Failed(message),
            "invalid_arguments" => ToolFault::InvalidArguments(message),
            "timed_out" => ToolFault::TimedOut(Duration::ZERO),
            "panicked" => ToolFault::Panicked(message),
            "invalid_result" => ToolFault::InvalidResult(message),
            "approval_required" => ToolFault::ApprovalRequired(message),
            _ => ToolFault::Unreachable(message),
        }
    }
}

/// A value as a recording has it: without secrets, also where they stand without their names.
fn clean(value: Value, secrets: &NamedSecrets) -> Value {
    secrets.out_of(redacted(value))
}

/// The arguments of a call as a recording has them.
pub(super) fn clean_arguments(
    arguments: Map<String, Value>,
    secrets: &NamedSecrets,
) -> Map<String, Value> {
    match clean(Value::Object(arguments), secrets) {
        Value::Object(clean) => clean,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// Writes the calls of outside tools into a recording.
#[derive(Debug)]
pub(crate) struct ToolRecorder {
    file: Arc<Mutex<File>>,
    /// Tools whose definitions are written.
    defined: Mutex<BTreeSet<String>>,
}

impl ToolRecorder {
    pub(crate) fn new(file: Arc<Mutex<File>>) -> Self {
        Self { file, defined: Mutex::default() }
    }

    pub(super) fn record_definitions(&self, tool: &OutsideTool) -> Result<(), ToolFault> {
        let mut defined = self.defined.lock().unwrap_or_else(PoisonError::into_inner);
        if !defined.insert(tool.name.clone()) {
            return Ok(());
        }
        self.write(&RecordedToolLine::Definitions { outside_tool: tool.clone() })
    }

    /// Records a call with arguments that are clean; see [`clean_arguments`].
    pub(super) fn record_call(
        &self,
        (tool, method): (&str, &str),
        arguments: Map<String, Value>,
        result: &Result<Value, ToolFault>,
        secrets: &NamedSecrets,
    ) -> Result<(), ToolFault> {
        self.write(&RecordedToolLine::Call {
            outside_call: format!("{tool}.{method}"),
            arguments: Value::Object(arguments),
            result: result.as_ref().ok().map(|value| clean(value.clone(), secrets)),
            fault: result.as_ref().err().map(|fault| RecordedToolFault::of(fault, secrets)),
        })
    }

    fn write(&self, line: &RecordedToolLine) -> Result<(), ToolFault> {
        let fault = |error: String| {
            ToolFault::Unreachable(format!("the recording cannot be written: {error}"))
        };
        let line = serde_json::to_string(line).map_err(|error| fault(error.to_string()))?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{line}").map_err(|error| fault(error.to_string()))
    }
}

/// A recorded answer and the arguments it belongs to.
#[derive(Debug)]
struct RecordedAnswer {
    arguments: Value,
    result: Result<Value, RecordedToolFault>,
}

/// The outside tools of a recording. No other tool is reached while it is replayed.
#[derive(Debug, Default)]
pub struct RecordedTools {
    tools: BTreeMap<String, Arc<OutsideTool>>,
    answers: Mutex<BTreeMap<String, VecDeque<RecordedAnswer>>>,
}

impl RecordedTools {
    pub(crate) fn add(&mut self, line: RecordedToolLine) {
        match line {
            RecordedToolLine::Definitions { outside_tool } => {
                self.tools.insert(outside_tool.name.clone(), Arc::new(outside_tool));
            }
            RecordedToolLine::Call { outside_call, arguments, result, fault } => {
                let result = match fault {
                    Some(fault) => Err(fault),
                    None => Ok(result.unwrap_or_default()),
                };
                let answers = self.answers.get_mut().unwrap_or_else(PoisonError::into_inner);
                answers
                    .entry(outside_call)
                    .or_default()
                    .push_back(RecordedAnswer { arguments, result });
            }
        }
    }

    /// Answers that were not asked for.
    pub(crate) fn unused(&self) -> Vec<(String, usize)> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let left = answers.iter().filter(|(_, answers)| !answers.is_empty());
        left.map(|(name, answers)| (name.clone(), answers.len())).collect()
    }

    pub(super) fn toolbox(self: &Arc<Self>, name: &str) -> Option<Arc<dyn Toolbox>> {
        let tool = Arc::clone(self.tools.get(name)?);
        Some(Arc::new(ReplayedTool { tool, recorded: Arc::clone(self) }))
    }

    pub(super) fn toolboxes(self: &Arc<Self>) -> Vec<Arc<dyn Toolbox>> {
        self.tools.keys().filter_map(|name| self.toolbox(name)).collect()
    }
}

/// One tool of a recording.
#[derive(Debug)]
struct ReplayedTool {
    tool: Arc<OutsideTool>,
    recorded: Arc<RecordedTools>,
}

impl Toolbox for ReplayedTool {
    fn name(&self) -> &str {
        &self.tool.name
    }

    fn origin(&self) -> OutsideOrigin {
        self.tool.origin
    }

    fn definitions(&self, _limits: &ToolLimits<'_>) -> Result<Arc<OutsideTool>, ToolFault> {
        Ok(Arc::clone(&self.tool))
    }

    fn call(
        &self,
        method: &OutsideMethod,
        arguments: Map<String, Value>,
        _limits: &ToolLimits<'_>,
    ) -> Result<Value, ToolFault> {
        let name = format!("{}.{}", self.tool.name, method.name);
        let mut answers = self.recorded.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = answers.get_mut(&name).filter(|queue| !queue.is_empty()) else {
            return Err(ToolFault::Diverged(format!(
                "the recording holds no further call of {name}; record this run again"
            )));
        };
        // Calls of several threads may come in another order.
        let asked = Value::Object(arguments);
        let found = queue.iter().position(|answer| answer.arguments == asked);
        let Some(answer) = found.and_then(|index| queue.remove(index)) else {
            return Err(ToolFault::Diverged(format!(
                "the recording holds no call of {name} with these arguments; record this run again"
            )));
        };
        answer.result.map_err(RecordedToolFault::into_fault)
    }
}
