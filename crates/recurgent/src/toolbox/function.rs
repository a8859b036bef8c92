//! Functions of the embedding program as tools: their schemas come from their types.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use lifecycle::outside_tool::{
    MethodDefinition, ONLY_METHOD, OutsideMethod, OutsideOrigin, OutsideTool,
};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, to_finite_value};

use super::{ToolFault, ToolLimits, Toolbox, ToolboxFault, is_tool_name};

/// Functions that run at once in a process, with those that were given up on: those cannot be ended.
const MAX_RUNNING: usize = 64;
/// How often a waiting call checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

thread_local! {
    /// The threads that wait for the function which this thread runs: its caller's, and what that one runs for.
    static CALLERS: RefCell<Vec<ThreadId>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread runs a function for a thread that waits for it.
pub(crate) fn is_called_by(thread: ThreadId) -> bool {
    CALLERS.with_borrow(|callers| callers.contains(&thread))
}

static RUNNING: AtomicUsize = AtomicUsize::new(0);

type Body = dyn Fn(Value) -> Result<Value, ToolFault> + Send + Sync;

/// A function of the embedding program that programs may call.
#[derive(Clone)]
pub struct HostFunction {
    /// `tool.method`, or a name alone.
    name: String,
    definition: MethodDefinition,
    body: Arc<Body>,
}

impl fmt::Debug for HostFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFunction").field("name", &self.name).finish_non_exhaustive()
    }
}

impl HostFunction {
    /// A function by its name, such as `orders.search`. The schema of its arguments and of its result come from its
    /// types, and its description from the documentation of the type of its arguments.
    pub fn new<A, R, E>(name: &str, run: impl Fn(A) -> Result<R, E> + Send + Sync + 'static) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        R: Serialize + JsonSchema,
        E: Display,
    {
        let body = move |arguments: Value| {
            let arguments = serde_json::from_value(arguments)
                .map_err(|error| ToolFault::InvalidArguments(error.to_string()))?;
            let result = run(arguments).map_err(|error| ToolFault::Failed(error.to_string()))?;
            to_finite_value(&result).map_err(|error| ToolFault::InvalidResult(error.to_string()))
        };
        let input = schema_of::<A>(SchemaSettings::draft2020_12());
        let output = schema_of::<R>(SchemaSettings::draft2020_12().for_serialize());
        let described = input.get("description").and_then(Value::as_str).unwrap_or_default();
        let description = described.to_owned();
        Self::with_schemas(name, input, Some(output), body).description(&description)
    }

    /// A function whose schemas are given. Its argument is one object.
    pub fn untyped(
        name: &str,
        input: Value,
        output: Option<Value>,
        run: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        let body = move |arguments| run(arguments).map_err(ToolFault::Failed);
        Self::with_schemas(name, input, output, body)
    }

    fn with_schemas(
        name: &str,
        input: Value,
        output: Option<Value>,
        body: impl Fn(Value) -> Result<Value, ToolFault> + Send + Sync + 'static,
    ) -> Self {
        let method = name.split_once('.').map_or(ONLY_METHOD, |(_, method)| method);
        let definition = MethodDefinition {
            name: method.to_owned(),
            description: String::new(),
            input,
            output,
            reads_only: false,
        };
        Self { name: name.to_owned(), definition, body: Arc::new(body) }
    }

    /// What it does, for the model.
    #[must_use]
    pub fn description(mut self, text: &str) -> Self {
        text.clone_into(&mut self.definition.description);
        self
    }

    /// It changes nothing: a program that called it may be run again by a retry.
    #[must_use]
    pub fn reads_only(mut self) -> Self {
        self.definition.reads_only = true;
        self
    }

    fn tool_name(&self) -> &str {
        self.name.split_once('.').map_or(self.name.as_str(), |(tool, _)| tool)
    }
}

/// The schema of a type without what says nothing to a model.
fn schema_of<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = serde_json::to_value(&schema).unwrap_or_default();
    if let Value::Object(fields) = &mut schema {
        fields.remove("$schema");
        fields.remove("title");
    }
    schema
}

/// The functions of the embedding program, grouped by the tool that their names begin with.
#[derive(Debug, Default)]
pub struct Functions {
    tools: RwLock<BTreeMap<String, Arc<FunctionTool>>>,
    /// Names of commands and servers.
    taken: RwLock<BTreeMap<String, OutsideOrigin>>,
}

impl Functions {
    /// Adds a function; see [`HostFunction::new`].
    pub fn function<A, R, E>(
        &self,
        name: &str,
        run: impl Fn(A) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<&Self, ToolboxFault>
    where
        A: DeserializeOwned + JsonSchema,
        R: Serialize + JsonSchema,
        E: Display,
    {
        self.add(HostFunction::new(name, run))
    }

    /// Adds a function. One that has the name of an earlier one, of a command or of a server is refused.
    pub fn add(&self, function: HostFunction) -> Result<&Self, ToolboxFault> {
        let tool = function.tool_name().to_owned();
        if !is_tool_name(&tool) || function.definition.name.is_empty() {
            return Err(ToolboxFault::Name { name: function.name });
        }
        let taken = self.taken.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = taken.get(&tool) {
            let (first, second) = (first.name(), OutsideOrigin::Function.name());
            return Err(ToolboxFault::Taken { name: tool, first, second });
        }
        drop(taken);
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        let mut functions =
            tools.get(&tool).map(|known| known.functions.clone()).unwrap_or_default();
        let name = function.name.clone();
        functions.push(function);
        let made = FunctionTool::new(&tool, functions);
        if let Some(problem) = made.definitions.notes.first() {
            return Err(ToolboxFault::Definition { name, problem: problem.clone() });
        }
        tools.insert(tool, Arc::new(made));
        drop(tools);
        Ok(self)
    }

    /// Keeps a name for a command or a server.
    pub(super) fn reserve(&self, name: &str, origin: OutsideOrigin) {
        let mut taken = self.taken.write().unwrap_or_else(PoisonError::into_inner);
        taken.insert(name.to_owned(), origin);
    }

    pub(super) fn toolbox(&self, name: &str) -> Option<Arc<dyn Toolbox>> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools.get(name).map(|tool| Arc::clone(tool) as Arc<dyn Toolbox>)
    }

    pub(super) fn toolboxes(&self) -> Vec<Arc<dyn Toolbox>> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools.values().map(|tool| Arc::clone(tool) as Arc<dyn Toolbox>).collect()
    }
}

/// Functions of one tool.
#[derive(Debug)]
struct FunctionTool {
    functions: Vec<HostFunction>,
    definitions: Arc<OutsideTool>,
}

impl FunctionTool {
    fn new(name: &str, functions: Vec<HostFunction>) -> Self {
        let definitions = functions.iter().map(|function| function.definition.clone()).collect();
        let definitions = OutsideTool::new(name, OutsideOrigin::Function, definitions);
        Self { functions, definitions: Arc::new(definitions) }
    }
}

impl Toolbox for FunctionTool {
    fn name(&self) -> &str {
        &self.definitions.name
    }

    fn origin(&self) -> OutsideOrigin {
        OutsideOrigin::Function
    }

    fn definitions(&self, _limits: &ToolLimits<'_>) -> Result<Arc<OutsideTool>, ToolFault> {
        Ok(Arc::clone(&self.definitions))
    }

    /// Runs the function on a thread of its own: a slow one is given up on, and a panic ends only that thread.
    fn call(
        &self,
        method: &OutsideMethod,
        arguments: Map<String, Value>,
        limits: &ToolLimits<'_>,
    ) -> Result<Value, ToolFault> {
        let named = |function: &&HostFunction| function.definition.name == method.original;
        let Some(function) = self.functions.iter().find(named) else {
            return Err(ToolFault::InvalidArguments(format!("no function {}", method.original)));
        };
        let slot = Slot::take()?;
        let body = Arc::clone(&function.body);
        let (sender, receiver) = channel();
        let mut callers = CALLERS.with_borrow(Clone::clone);
        callers.push(thread::current().id());
        let run = move || {
            CALLERS.set(callers);
            let result = catch_unwind(AssertUnwindSafe(|| body(Value::Object(arguments))));
            drop(slot);
            // The call may have given up on it.
            let _ = sender.send(result);
        };
        thread::Builder::new()
            .name(format!("tool {}", function.name))
            .spawn(run)
            .map_err(|error| ToolFault::Unreachable(format!("no thread for it: {error}")))?;
        let deadline = Instant::now() + limits.timeout;
        loop {
            if limits.cancellation.is_cancelled() {
                return Err(ToolFault::Cancelled);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left.min(POLL_INTERVAL)) {
                Ok(Ok(result)) => return result,
                Ok(Err(panic)) => return Err(ToolFault::Panicked(panic_text(panic.as_ref()))),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(ToolFault::TimedOut(limits.timeout));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ToolFault::Panicked("its thread ended".to_owned()));
                }
            }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".to_owned())
}

/// One of the functions that may run at once.
struct Slot;

impl Slot {
    fn take() -> Result<Self, ToolFault> {
        let taken = RUNNING.fetch_add(1, Ordering::SeqCst);
        let slot = Self;
        if taken < MAX_RUNNING {
            return Ok(slot);
        }
        drop(slot);
        Err(ToolFault::Unreachable(format!(
            "{MAX_RUNNING} functions of this process are running already, slow ones among them"
        )))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}
