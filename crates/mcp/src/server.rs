//! One server as a tool: supervised, pinned, and restarted after a while when it fails.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use recurgent::config::{McpServerOptions, McpTransport};
use recurgent::json::{Map, Value};
use recurgent::toolbox::{
    OutsideMethod, OutsideOrigin, OutsideTool, ToolFault, ToolLimits, Toolbox, learned,
};
use recurgent::worker::outside_process::OutsideSandbox;

use crate::connection::{Connection, address_without_secrets};
use crate::pin::Pin;
use crate::thread::IoThread;

/// How long a server that failed is left alone; doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest time.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How often a call that waits for another one to start the server checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
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
            McpTransport::Http { url, .. } => address_without_secrets(url),
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

    /// The state, when no other call starts the server. A cancelled call does not wait for that.
    fn state_within(
        &self,
        limits: &ToolLimits<'_>,
    ) -> Result<MutexGuard<'_, ServerState>, ToolFault> {
        let deadline = Instant::now() + limits.timeout;
        loop {
            match self.state.try_lock() {
                Ok(state) => return Ok(state),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if limits.cancellation.is_cancelled() => {
                    return Err(ToolFault::Cancelled);
                }
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(ToolFault::TimedOut(limits.timeout));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(POLL_INTERVAL),
            }
        }
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
        // Taken out: a connection that fails any check below is never used again.
        if let Some(known) = state.connection.take().filter(|known| !known.is_closed()) {
            if known.has_changed() {
                let (listed, name) = (Arc::clone(&known), self.name.clone());
                let reads_only = self.options.reads_only.clone();
                let list = async move { listed.list(&name, &reads_only).await };
                let now = self.thread.run(list, limits).and_then(|listed| listed);
                let now = now.inspect_err(|fault| state.count(fault))?;
                self.check(state, &now, known.revision.clone())?;
            }
            state.connection = Some(Arc::clone(&known));
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
        let (connection, now) = opened.inspect_err(|fault| state.count(fault))?;
        self.check(state, &now, connection.revision.clone())?;
        state.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Refuses a server that says something else than what is pinned. The first time it is pinned.
    fn check(
        &self,
        state: &mut ServerState,
        now: &OutsideTool,
        revision: Option<String>,
    ) -> Result<(), ToolFault> {
        let digest = now.digest();
        let mut pin = self.pinned(state)?;
        if pin.as_ref().is_some_and(|pin| pin.digest != digest.as_str()) {
            // Another process may have approved it since this one read the pin.
            (state.pin, state.shown) = (None, None);
            pin = self.pinned(state)?;
        }
        if pin.is_none() {
            let first = Pin::new(now.clone(), revision);
            let kept = first.write_first(&self.pins, &self.name);
            kept.map_err(|error| unusable(&error))?;
            pin = self.pinned(state)?; // of two processes, the first
        }
        let Some(pin) = pin.filter(|pin| pin.digest != digest.as_str()) else {
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
        let shape = learned(pin.learned.get(&method.original), result);
        if pin.learned.get(&method.original) == Some(&shape) {
            return;
        }
        // Another process may have approved other definitions, forgotten them, or learned meanwhile.
        let kept = Pin::read(&self.pins, &self.name).ok().flatten();
        let Some(mut kept) = kept.filter(|kept| kept.digest == pin.digest) else {
            (state.pin, state.shown) = (None, None);
            return;
        };
        let shape = learned(kept.learned.get(&method.original), result);
        kept.learned.insert(method.original.clone(), shape);
        // A shape that cannot be written is learned again.
        let _ = self.keep(&mut state, kept);
    }
}

impl ServerState {
    /// Counts a failure of the server. A cancelled call is none.
    fn count(&mut self, fault: &ToolFault) {
        if !matches!(fault, ToolFault::Cancelled) {
            self.failed();
        }
    }

    /// Ends the connection. The next one waits, longer after each failure.
    fn failed(&mut self) {
        self.connection = None;
        self.paused_until = pause_after(self.failures).map(|pause| Instant::now() + pause);
        self.failures = self.failures.saturating_add(1);
    }
}

/// How long a server that fails is left alone, after so many failures before. The first failure costs no pause: a server
/// that was killed is started again at once.
fn pause_after(failures: u32) -> Option<Duration> {
    let doublings = failures.checked_sub(1)?;
    Some(FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE))
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
        let deadline = Instant::now() + limits.timeout;
        let mut state = self.state_within(limits)?;
        if self.pinned(&mut state)?.is_none() {
            let timeout = deadline.saturating_duration_since(Instant::now());
            self.connection(&mut state, &ToolLimits { timeout, ..*limits })?;
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
        let was_connected = self.state_within(limits)?.connection.is_some();
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
        let mut state = self.state_within(limits)?;
        let timeout = deadline.saturating_duration_since(Instant::now());
        let connection = self.connection(&mut state, &ToolLimits { timeout, ..*limits })?;
        drop(state);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_fails_is_left_alone_for_a_second_then_two_up_to_a_minute() {
        let pauses = [0, 1, 2, 3, 7, 40, u32::MAX].map(pause_after);
        let seconds = pauses.map(|pause| pause.map(|it| it.as_secs()));
        assert_eq!(seconds, [None, Some(1), Some(2), Some(4), Some(60), Some(60), Some(60)]);
    }
}
