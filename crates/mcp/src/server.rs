//! One server as a tool: supervised, pinned, and restarted after a while when it fails.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use recurgent::config::{McpServerOptions, McpTransport};
use recurgent::json::{Map, Value};
use recurgent::toolbox::{
    OutsideMethod, OutsideOrigin, OutsideTool, ToolFault, ToolLimits, Toolbox, learned,
};
use recurgent::worker::outside_process::OutsideSandbox;

use crate::connection::Connection;
use crate::pin::Pin;
use crate::thread::IoThread;

/// How long a server that failed is left alone; doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest time.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Changes of definitions that a message names.
const MAX_NAMED_CHANGES: usize = 5;

/// An MCP server.
#[derive(Debug)]
pub struct McpServer {
    name: String,
    options: McpServerOptions,
    thread: Arc<IoThread>,
    sandbox: Arc<OutsideSandbox>,
    /// The folder of pins.
    pins: PathBuf,
    state: Mutex<ServerState>,
}

#[derive(Debug, Default)]
struct ServerState {
    connection: Option<Arc<Connection>>,
    pin: Option<Arc<Pin>>,
    /// What programs see, with what was learned.
    shown: Option<Arc<OutsideTool>>,
    /// Failures in a row, and until when the server is left alone.
    failures: u32,
    paused_until: Option<Instant>,
}

/// What a server says when it is asked, for people.
#[derive(Debug)]
pub struct ServerReport {
    /// What it says now.
    pub tool: OutsideTool,
    /// What was approved; `None`: nothing yet.
    pub approved: Option<OutsideTool>,
    /// The revision of the protocol that it speaks.
    pub revision: Option<String>,
    /// How long it took to start and to list its tools.
    pub took: Duration,
}

impl ServerReport {
    /// The changes of its definitions since it was approved.
    pub fn changes(&self) -> Vec<String> {
        self.approved.as_ref().map(|then| self.tool.changes_from(then)).unwrap_or_default()
    }
}

impl McpServer {
    pub(crate) fn new(
        name: String,
        options: McpServerOptions,
        thread: Arc<IoThread>,
        sandbox: Arc<OutsideSandbox>,
        pins: &Path,
    ) -> Self {
        let (pins, state) = (pins.to_owned(), Mutex::default());
        Self { name, options, thread, sandbox, pins, state }
    }

    /// How it is reached.
    pub fn options(&self) -> &McpServerOptions {
        &self.options
    }

    /// The program or the address, without arguments and secrets.
    pub fn place(&self) -> String {
        match &self.options.transport {
            McpTransport::Stdio { program, .. } => program.display().to_string(),
            McpTransport::Http { url, .. } => {
                url.split(['?', '#']).next().unwrap_or_default().to_owned()
            }
        }
    }

    /// The process of its connection, if it has one.
    pub fn pid(&self) -> Option<i32> {
        self.state().connection.as_ref()?.pid()
    }

    /// What was approved, if it was ever used.
    pub fn approved(&self) -> Result<Option<Arc<Pin>>, ToolFault> {
        self.pinned(&mut self.state())
    }

    /// Asks it what it offers now. Nothing is approved by that.
    pub fn report(&self, limits: &ToolLimits<'_>) -> Result<ServerReport, ToolFault> {
        let began = Instant::now();
        let mut state = self.state();
        // A damaged pin does not hide what the server says.
        let approved = self.pinned(&mut state).ok().flatten().map(|pin| pin.tool.clone());
        let (connection, tool) = self.open(None, limits)?;
        let revision = connection.revision.clone();
        Ok(ServerReport { tool, approved, revision, took: began.elapsed() })
    }

    /// Approves what it offers now.
    pub fn approve(&self, report: &ServerReport) -> Result<(), ToolFault> {
        let mut state = self.state();
        let before = self.pinned(&mut state).ok().flatten();
        let mut pin = Pin::new(report.tool.clone(), report.revision.clone());
        pin.learned = before.map(|pin| pin.learned.clone()).unwrap_or_default();
        self.keep(&mut state, pin)?;
        state.connection = None;
        Ok(())
    }

    /// Forgets what was approved.
    pub fn forget(&self) -> Result<bool, ToolFault> {
        let mut state = self.state();
        *state = ServerState::default();
        Pin::remove(&self.pins, &self.name).map_err(|error| unusable(&error))
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pinned(&self, state: &mut ServerState) -> Result<Option<Arc<Pin>>, ToolFault> {
        if state.pin.is_none() {
            let read = Pin::read(&self.pins, &self.name);
            let read = read.map_err(|error| ToolFault::ApprovalRequired(error.to_string()))?;
            state.pin = read.map(Arc::new);
        }
        Ok(state.pin.clone())
    }

    fn keep(&self, state: &mut ServerState, pin: Pin) -> Result<(), ToolFault> {
        pin.write(&self.pins, &self.name).map_err(|error| unusable(&error))?;
        state.pin = Some(Arc::new(pin));
        state.shown = None;
        Ok(())
    }

    /// A new connection and what the server says of its tools.
    fn open(
        &self,
        revision: Option<String>,
        limits: &ToolLimits<'_>,
    ) -> Result<(Arc<Connection>, OutsideTool), ToolFault> {
        let (options, sandbox) = (self.options.clone(), Arc::clone(&self.sandbox));
        let (name, reads_only) = (self.name.clone(), options.reads_only.clone());
        let timeout = self.options.start_timeout.min(limits.timeout);
        let open = async move {
            let connection = Connection::open(options, sandbox, revision).await?;
            let tool = connection.list(&name, &reads_only).await?;
            Ok((Arc::new(connection), tool))
        };
        self.thread.run(open, &ToolLimits { timeout, ..*limits })?
    }

    /// The present connection, or a new one. What the server says must be what is pinned; the first time it is pinned.
    fn connection(
        &self,
        state: &mut ServerState,
        limits: &ToolLimits<'_>,
    ) -> Result<Arc<Connection>, ToolFault> {
        let pin = self.pinned(state)?;
        state.connection = state.connection.take().filter(|known| !known.is_closed());
        if let Some(known) = state.connection.clone() {
            if known.has_changed() {
                let (listed, name) = (Arc::clone(&known), self.name.clone());
                let reads_only = self.options.reads_only.clone();
                let list = async move { listed.list(&name, &reads_only).await };
                let now = self.thread.run(list, limits)??;
                self.check(pin.as_deref(), &now)?;
            }
            return Ok(known);
        }
        if let Some(until) = state.paused_until.filter(|until| *until > Instant::now()) {
            let left = until.saturating_duration_since(Instant::now());
            return Err(ToolFault::Unreachable(format!(
                "it failed {} times in a row and is started again in {:.0} s",
                state.failures,
                left.as_secs_f64().ceil()
            )));
        }
        let revision = pin.as_ref().and_then(|pin| pin.revision.clone());
        let opened = self.open(revision, limits);
        let (connection, now) = match opened {
            Ok(opened) => opened,
            Err(fault) => {
                state.failed();
                return Err(fault);
            }
        };
        match pin {
            Some(pin) => self.check(Some(&pin), &now)?,
            None => self.keep(state, Pin::new(now, connection.revision.clone()))?,
        }
        state.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// A server that says something else than what is pinned is refused.
    fn check(&self, pin: Option<&Pin>, now: &OutsideTool) -> Result<(), ToolFault> {
        let Some(pin) = pin.filter(|pin| pin.digest != now.digest().as_str()) else {
            return Ok(());
        };
        let changes = now.changes_from(&pin.tool);
        let shown: Vec<&str> = changes.iter().take(MAX_NAMED_CHANGES).map(String::as_str).collect();
        Err(ToolFault::ApprovalRequired(format!(
            "the server {} describes its tools otherwise than when it was approved ({}); look at it with `recurgent mcp test {}` and \
             approve it with `recurgent mcp approve {}`",
            self.name,
            shown.join("; "),
            self.name,
            self.name
        )))
    }

    /// Adds the shape of a result where the server promises none.
    fn learn(&self, method: &OutsideMethod, result: &Value) {
        if method.output.is_some() {
            return;
        }
        let mut state = self.state();
        let Ok(Some(pin)) = self.pinned(&mut state) else { return };
        let known = pin.learned.get(&method.original);
        let shape = learned(known, result);
        if known == Some(&shape) {
            return;
        }
        let mut changed = Pin::clone(&pin);
        changed.learned.insert(method.original.clone(), shape);
        // A shape that cannot be written is learned again.
        let _ = self.keep(&mut state, changed);
    }
}

impl ServerState {
    /// Ends the connection. The next one waits, longer after each failure.
    fn failed(&mut self) {
        self.connection = None;
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        // The first failure costs no pause: a server that was killed is started again at once.
        let pause = (self.failures > 1).then(|| doubled.min(LONGEST_PAUSE));
        self.paused_until = pause.map(|pause| Instant::now() + pause);
    }
}

fn unusable(error: &std::io::Error) -> ToolFault {
    ToolFault::Unreachable(format!("what was approved cannot be kept: {error}"))
}

impl Toolbox for McpServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn origin(&self) -> OutsideOrigin {
        OutsideOrigin::Mcp
    }

    /// What is pinned; a server that was never used is asked.
    fn definitions(&self, limits: &ToolLimits<'_>) -> Result<Arc<OutsideTool>, ToolFault> {
        let mut state = self.state();
        if self.pinned(&mut state)?.is_none() {
            self.connection(&mut state, limits)?;
        }
        if let Some(shown) = &state.shown {
            return Ok(Arc::clone(shown));
        }
        let Some(pin) = self.pinned(&mut state)? else {
            return Err(ToolFault::Unreachable("it says nothing of its tools".to_owned()));
        };
        let mut tool = pin.tool.clone();
        for method in &mut tool.methods {
            method.learned = pin.learned.get(&method.original).cloned();
        }
        let shown = Arc::new(tool);
        state.shown = Some(Arc::clone(&shown));
        Ok(shown)
    }

    fn call(
        &self,
        method: &OutsideMethod,
        arguments: Map<String, Value>,
        limits: &ToolLimits<'_>,
    ) -> Result<Value, ToolFault> {
        let deadline = Instant::now() + limits.timeout;
        let was_connected = self.state().connection.is_some();
        let result = self.try_call(method, arguments.clone(), limits);
        // The server may have ended since it was last used. What only reads is asked once more, of a new one.
        let again = was_connected && method.reads_only;
        match result {
            Err(ToolFault::Unreachable(_)) if again => {
                let timeout = deadline.saturating_duration_since(Instant::now());
                self.try_call(method, arguments, &ToolLimits { timeout, ..*limits })
            }
            result => result,
        }
    }
}

impl McpServer {
    fn try_call(
        &self,
        method: &OutsideMethod,
        arguments: Map<String, Value>,
        limits: &ToolLimits<'_>,
    ) -> Result<Value, ToolFault> {
        let deadline = Instant::now() + limits.timeout;
        let connection = self.connection(&mut self.state(), limits)?;
        let tool = method.original.clone();
        let called = Arc::clone(&connection);
        let call = async move { called.call(tool, arguments).await };
        let timeout = deadline.saturating_duration_since(Instant::now());
        let result = self.thread.run(call, &ToolLimits { timeout, ..*limits });
        let result = result.and_then(|answer| answer);
        let mut state = self.state();
        match &result {
            Ok(_) | Err(ToolFault::Failed(_)) => {
                (state.failures, state.paused_until) = (0, None);
            }
            // A server that hangs, or whose connection ended, is started anew. Another call may have done so already.
            Err(ToolFault::TimedOut(_) | ToolFault::Unreachable(_)) => {
                let is_same =
                    state.connection.as_ref().is_none_or(|now| Arc::ptr_eq(now, &connection));
                if is_same {
                    state.failed();
                }
            }
            Err(_) => {}
        }
        drop(state);
        if let Ok(value) = &result {
            self.learn(method, value);
        }
        result
    }
}
