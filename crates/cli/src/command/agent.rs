//! An agent from the command line: the options all calling commands share, and how they call.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use lifecycle::request::{Method, Role};
use recurgent::config::Config;
use recurgent::grants::ToolGrant;
use recurgent::store::Store;
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Agent, AgentFault, Arguments, ExpectedCall, Outcome, Runtime, RuntimeBuilder};
use serde_json::Value;

use super::input::{argument_text, without_mark};
use super::model::offering;
use super::settings::SettingFlags;
use crate::exit::CommandFault;
use crate::interrupt::Interrupt;
#[cfg(feature = "mcp")]
use crate::render::paint::clean;
use crate::render::trace::{Detail, LiveTrace};
use crate::render::{self, Stream};

/// Which agent, and how to watch it.
#[derive(Debug, Args)]
pub(crate) struct AgentFlags {
    /// Keep memory and history under this name, across processes
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    session: Option<String>,
    /// What the agent is for
    #[arg(long, value_name = "TEXT")]
    purpose: Option<String>,
    /// What answers must look like: `{"type": "array", "min_items": 1}`, a type, JSON Schema, or prose, which is only shown to the
    /// model; @FILE is a file with it
    #[arg(long, value_name = "JSON|TEXT|@FILE", value_parser = deliverable)]
    deliverable: Option<Value>,
    /// Write the model's answers to a new recording
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Show every call, program and attempt on standard error
    #[arg(long)]
    trace: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

impl AgentFlags {
    /// Whether memory and history are kept across processes.
    pub(crate) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Opens what an agent needs and makes it. No model is asked, no process started.
    /// With `regenerate`, calls do not use stored programs.
    pub(crate) fn open(&self, role: &Role, regenerate: bool) -> Result<Caller, CommandFault> {
        let interrupt = Interrupt::install()?;
        let config = self.settings.config()?;
        let store = SqliteStore::open(&config.store_path()?)?;
        let store = Notified { store: Arc::new(store), shown: 0 };
        let offering = offering(&config)?;
        let servers = servers(&config)?;
        let mut builder =
            Runtime::builder(config).store(Arc::clone(&store.store) as Arc<dyn Store>);
        builder = self.watched(builder);
        builder = with_servers(builder, servers.as_ref());
        if let Some(provider) = offering {
            builder = builder.provider(provider);
        }
        if let Some(path) = &self.record {
            builder = builder.record(path.clone());
        }
        let runtime = builder.build()?;
        let agent = self.agent(&runtime, role, regenerate)?;
        let mut caller = Caller { agent, runtime, interrupt, store, has_shown_model: false };
        caller.store.show_notices();
        Ok(caller)
    }

    fn watched(&self, builder: RuntimeBuilder) -> RuntimeBuilder {
        let detail = match self.trace {
            true => Detail::Full,
            false if render::is_terminal(Stream::Error) => Detail::Progress,
            false => return builder,
        };
        builder.observer(Box::new(LiveTrace::new(detail, render::coloured(Stream::Error))))
    }

    fn agent(
        &self,
        runtime: &Runtime,
        role: &Role,
        regenerate: bool,
    ) -> Result<Agent, CommandFault> {
        let mut builder = runtime.agent(role).regenerate(regenerate);
        if let Some(session) = &self.session {
            builder = builder.session(session);
        }
        if let Some(purpose) = &self.purpose {
            builder = builder.purpose(purpose);
        }
        if let Some(deliverable) = &self.deliverable {
            builder = builder.deliverable(deliverable.clone());
        }
        Ok(builder.build()?)
    }
}

/// The MCP servers of the configuration, if programs may call any.
#[cfg(feature = "mcp")]
fn servers(config: &Config) -> Result<Option<mcp::Servers>, CommandFault> {
    let may_call = matches!(config.settings().tools, ToolGrant::Named(_) | ToolGrant::All);
    let servers = may_call.then(|| mcp::Servers::of(config)).transpose()?;
    for note in servers.iter().flat_map(|servers| &servers.notes) {
        render::notice(&clean(note));
    }
    Ok(servers)
}

#[cfg(feature = "mcp")]
fn with_servers(builder: RuntimeBuilder, servers: Option<&mcp::Servers>) -> RuntimeBuilder {
    let toolboxes = servers.into_iter().flat_map(mcp::Servers::toolboxes);
    toolboxes.fold(builder, RuntimeBuilder::toolbox)
}

/// A build without MCP says so if programs should call a server.
#[cfg(not(feature = "mcp"))]
fn servers(config: &Config) -> Result<Option<()>, CommandFault> {
    let (servers, _) = config.mcp_servers()?;
    let is_wanted = |name: &String| match &config.settings().tools {
        ToolGrant::All => true,
        ToolGrant::Named(names) => names.iter().any(|it| it.split('.').next() == Some(name)),
        ToolGrant::Functions | ToolGrant::NamedFunctions(_) | ToolGrant::Nothing => false,
    };
    if let Some(name) = servers.keys().find(|name| is_wanted(name)) {
        render::notice(&format!(
            "the server {name} is left out: this recurgent was built without MCP (`--features mcp`)"
        ));
    }
    Ok(None)
}

#[cfg(not(feature = "mcp"))]
fn with_servers(builder: RuntimeBuilder, _servers: Option<&()>) -> RuntimeBuilder {
    builder
}

/// An agent, with what is needed to call it and to interrupt a call.
pub(crate) struct Caller {
    /// The agent.
    pub(crate) agent: Agent,
    /// The runtime of the agent.
    pub(crate) runtime: Runtime,
    interrupt: Interrupt,
    store: Notified,
    has_shown_model: bool,
}

/// The store, and how many of its notices were shown: damage may be found at any time.
struct Notified {
    store: Arc<SqliteStore>,
    shown: usize,
}

impl Notified {
    /// Shows what is new since the last time.
    fn show_notices(&mut self) {
        let notices = self.store.notices();
        notices.iter().skip(self.shown).for_each(|notice| render::notice(notice));
        self.shown = notices.len();
    }
}

impl Caller {
    /// Calls a method; Ctrl-C stops the call.
    pub(crate) fn call(
        &mut self,
        method: &Method,
        arguments: Arguments,
    ) -> Result<Outcome, CommandFault> {
        self.during_call(|agent| agent.call(method.as_str(), arguments))
    }

    /// Calls a method whose right value is known; Ctrl-C stops the call.
    pub(crate) fn call_expecting(
        &mut self,
        method: &Method,
        arguments: Arguments,
        expected: &Value,
    ) -> Result<ExpectedCall, CommandFault> {
        self.during_call(|agent| agent.call_expecting(method.as_str(), arguments, expected))
    }

    fn during_call<T>(
        &mut self,
        call: impl FnOnce(&Agent) -> Result<T, AgentFault>,
    ) -> Result<T, CommandFault> {
        let agent = &self.agent;
        let outcome = self.interrupt.during(|cancellation| {
            agent.set_cancellation(cancellation);
            call(agent)
        });
        self.store.show_notices();
        self.show_model();
        Ok(outcome?)
    }

    /// Says once which of a server's models is asked.
    fn show_model(&mut self) {
        if let Some(notice) = self.runtime.provider().notice().filter(|_| !self.has_shown_model) {
            render::notice(&notice);
            self.has_shown_model = true;
        }
    }
}

impl Drop for Caller {
    /// A replay that needs fewer answers than were recorded takes another path.
    fn drop(&mut self) {
        let unused = self.runtime.provider().unused();
        if !unused.is_empty() {
            let unused: Vec<String> =
                unused.iter().map(|(key, count)| format!("{key} ×{count}")).collect();
            render::notice(&format!(
                "the recording holds answers that were not needed: {}; stored programs run without a model, so replay what was recorded in a state_dir of its own",
                unused.join(", ")
            ));
        }
    }
}

/// The outcome's wire form, with the identity of the call if there was one.
pub(crate) fn outcome_json(outcome: &Outcome) -> Value {
    let mut fields = outcome.to_json();
    if let (Value::Object(fields), Some(details)) = (&mut fields, &outcome.details) {
        fields.insert("trace_id".to_owned(), details.trace.as_str().into());
        fields.insert("call_id".to_owned(), details.call.0.clone().into());
    }
    fields
}

/// JSON if it is JSON, text if not.
pub(crate) fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// A deliverable as JSON or prose, typed or in a file; a text that begins like JSON must be JSON.
fn deliverable(typed: &str) -> Result<Value, String> {
    let text = argument_text(typed).map_err(|fault| fault.message)?;
    if text.trim().is_empty() {
        return Err("it is empty; say what the answer is, or leave the flag out".to_owned());
    }
    match serde_json::from_str(without_mark(&text)) {
        Ok(value) => Ok(value),
        Err(error) if text.trim_start().starts_with(['{', '[', '"']) => {
            Err(format!("it begins like JSON and is not: {error}; correct it, or write prose"))
        }
        Err(_) => Ok(Value::String(text)),
    }
}
