//! An agent from the command line: the options all calling commands share, and how they call.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use recurgent::lifecycle::event::{Event, Subject};
use recurgent::lifecycle::request::{Method, Role};
use recurgent::observe::Observer;
use recurgent::store::Store;
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Agent, Arguments, Outcome, Runtime, RuntimeBuilder};
use serde_json::Value;

use super::settings::SettingFlags;
use crate::exit::CommandFault;
use crate::interrupt::Interrupt;
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
    /// What answers must look like: `{"type": "array", "min_items": 1}`, a type, JSON Schema, or prose, which is only shown to the model
    #[arg(long, value_name = "JSON|TEXT", value_parser = deliverable)]
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
    /// Opens what an agent needs and makes it. No model is asked, no process started.
    /// With `regenerate`, calls do not use stored programs.
    pub(crate) fn open(&self, role: &Role, regenerate: bool) -> Result<Caller, CommandFault> {
        let interrupt = Interrupt::install()?;
        let config = self.settings.config()?;
        let store = SqliteStore::open(&config.store_path()?)?;
        let store = Notified { store: Arc::new(store), told: 0 };
        let latest = Latest::default();
        let mut builder = Runtime::builder(config)
            .store(Arc::clone(&store.store) as Arc<dyn Store>)
            .observer(Box::new(latest.clone()));
        builder = self.watched(builder);
        if let Some(path) = &self.record {
            builder = builder.record(path.clone());
        }
        let runtime = builder.build()?;
        let agent = self.agent(&runtime, role, regenerate)?;
        let mut caller = Caller { agent, runtime, interrupt, latest, store };
        caller.store.tell();
        Ok(caller)
    }

    fn watched(&self, builder: RuntimeBuilder) -> RuntimeBuilder {
        let detail = match self.trace {
            true => Detail::Full,
            false if std::io::stderr().is_terminal() => Detail::Progress,
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

/// An agent at work, with what is needed to call it and to be interrupted.
pub(crate) struct Caller {
    /// The agent.
    pub(crate) agent: Agent,
    /// What it runs on.
    pub(crate) runtime: Runtime,
    interrupt: Interrupt,
    latest: Latest,
    store: Notified,
}

/// The store, and how many of its notices were shown: damage may be found at any time.
struct Notified {
    store: Arc<SqliteStore>,
    told: usize,
}

impl Notified {
    fn tell(&mut self) {
        let notices = self.store.notices();
        notices.iter().skip(self.told).for_each(|notice| render::notice(notice));
        self.told = notices.len();
    }
}

/// What came of a call, and which call it was.
pub(crate) struct CallAnswer {
    /// What came of it.
    pub(crate) outcome: Outcome,
    /// Which call; reading and writing memory is none.
    pub(crate) subject: Option<Subject>,
}

impl Caller {
    /// Calls a method; Ctrl-C stops the call.
    pub(crate) fn call(
        &mut self,
        method: &Method,
        arguments: Arguments,
    ) -> Result<CallAnswer, CommandFault> {
        self.latest.take();
        let agent = &mut self.agent;
        let outcome = self.interrupt.during(|cancellation| {
            agent.set_cancellation(cancellation);
            agent.call(method.as_str(), arguments)
        });
        self.store.tell();
        let outcome = outcome?;
        Ok(CallAnswer { outcome, subject: self.latest.take() })
    }
}

impl Drop for Caller {
    /// A replay that needed less than was recorded went another way.
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

impl CallAnswer {
    /// The outcome's wire form, with the call's identity when it has one.
    pub(crate) fn to_json(&self) -> Value {
        let mut fields = self.outcome.to_json();
        if let (Value::Object(fields), Some(subject)) = (&mut fields, &self.subject) {
            fields.insert("trace_id".to_owned(), subject.trace.0.clone().into());
            fields.insert("call_id".to_owned(), subject.call.0.clone().into());
        }
        fields
    }
}

/// Remembers which top-level call was last under way.
#[derive(Debug, Clone, Default)]
struct Latest(Arc<Mutex<Option<Subject>>>);

impl Latest {
    fn take(&self) -> Option<Subject> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Observer for Latest {
    fn event(&self, event: &Event) {
        if event.subject.depth == 0 {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(event.subject.clone());
        }
    }
}

/// JSON if it is JSON, text if not.
pub(crate) fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// A deliverable as JSON or prose; a text that begins like JSON must be JSON.
fn deliverable(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) if text.trim_start().starts_with(['{', '[', '"']) => {
            Err(format!("it begins like JSON and is not: {error}; correct it, or write prose"))
        }
        Err(_) => Ok(Value::String(text.to_owned())),
    }
}
