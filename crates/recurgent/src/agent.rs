//! Agents: a role with a memory, on which any method can be called.

mod builder;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lifecycle::call::{Policy, StoreFault};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::{Contract, ContractFault, ContractOrigin, ContractSource};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::dispatch::{Dispatch, dispatch, refused_key, responds_to};
use lifecycle::outcome::{Failure, FailureKind, Outcome};
use lifecycle::request::{Arguments, CallRequest, Lineage, MemoryKey, Method, NameFault, Role};
use lifecycle::tool::Tool;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, to_finite_value};
use thiserror::Error;

use crate::arguments::IntoArguments;
use crate::config::{AgentOptions, ConfigFault};
use crate::guest::Cancellation;
use crate::identity;
use crate::preparation::PreparationTicket;
use crate::provider::ProviderFault;
use crate::runtime::Runtime;
use crate::session_queue::{SessionQueue, SessionTurn, TurnFault, TurnLimits};
use crate::store::Owner;
use crate::stored_programs::ProgramFault;
use crate::tree::Tree;

pub use builder::AgentBuilder;

/// Why an agent could not be built or changed. The result of a call is an [`Outcome`] instead.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AgentFault {
    /// A bad role, method or session name.
    #[error(transparent)]
    Name(#[from] NameFault),
    /// A bad option.
    #[error(transparent)]
    Option(#[from] ConfigFault),
    /// The model that was asked for cannot be used.
    #[error(transparent)]
    Model(#[from] ProviderFault),
    /// A contract that cannot be enforced.
    #[error(transparent)]
    Contract(#[from] ContractFault),
    /// A value or key that memory cannot hold.
    #[error("{0}")]
    Value(String),
    /// The store failed, or another process changed the session meanwhile.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The agent's other calls did not end in time, or the wait for them was not possible or was cancelled.
    #[error("{}", .0.message)]
    Turn(Box<Failure>),
    /// A stored program could not be corrected.
    #[error(transparent)]
    Program(#[from] ProgramFault),
    /// No tool of that name.
    #[error("no tool is named {name:?}; known tools: {known}. Forge it with delegate")]
    UnknownTool {
        /// The name asked for.
        name: String,
        /// The names of known tools.
        known: String,
    },
}

/// Why [`Agent::call_as`] gave no value.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CallFault {
    /// The call could not be made.
    #[error(transparent)]
    Agent(#[from] AgentFault),
    /// The call ended in a failure.
    #[error(transparent)]
    Failed(Box<Failure>),
    /// The call gave a value of another type.
    #[error(
        "the value of the call is not a {wanted}: {problem}; change the type, or state the shape in a deliverable"
    )]
    Type {
        /// The Rust type.
        wanted: &'static str,
        /// Why the value does not fit.
        problem: String,
        /// The value of the call.
        value: Value,
    },
}

/// A role with a memory. Calling any method on it works.
///
/// An agent can be shared between threads. Its calls follow each other: a second call waits until the first has ended.
/// During a call, reads see the memory as it was before the call. An observer must not call the
/// agent whose event it is given.
pub struct Agent {
    runtime: Runtime,
    owner: Owner,
    options: AgentOptions,
    contract: Option<Contract>,
    contract_source: ContractSource,
    contract_origin: ContractOrigin,
    /// What its first call waits for.
    preparation: Option<PreparationTicket>,
    /// Whether its calls do not use stored programs.
    regenerate: bool,
    lineage: Lineage,
    /// `None` for an agent of the embedding program: each of its calls roots a new tree.
    tree: Option<Tree>,
    /// Calls and writes of memory wait here for their turn. Agents of one session share it.
    queue: Arc<SessionQueue>,
    /// Lock order: first the turn, then this. Held briefly, never while a program runs.
    state: Mutex<AgentState>,
}

/// What changes from call to call.
struct AgentState {
    context: Context,
    /// The packages its environment holds since its last success.
    manifest: Option<DependencyManifest>,
    cancellation: Cancellation,
}

impl fmt::Debug for Agent {
    /// Prints the role and the keys of the memory, not its values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let keys: Vec<&str> = state.context.iter().map(|(key, _)| key).collect();
        f.debug_struct("Agent")
            .field("role", &self.owner.role)
            .field("context", &keys)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<agent {}>", self.owner.role)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.runtime.guest(self.options.language).discard(&self.owner.instance);
    }
}

impl Agent {
    /// Calls any method. Setters and readers answer from memory; everything else is a dynamic call.
    pub fn call(
        &self,
        method: impl TryInto<Method, Error: Into<NameFault>>,
        arguments: impl IntoArguments,
    ) -> Result<Outcome, AgentFault> {
        let method = method.try_into().map_err(Into::into)?;
        let arguments = match self.check_arguments(arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return Ok(self.refused(method, problem)),
        };
        self.call_method(method, arguments, None)
    }

    /// Calls a method of which a value is expected: a program that gives another is rejected.
    pub(crate) fn call_with_expectation(
        &self,
        method: Method,
        arguments: impl IntoArguments,
        expected: Value,
    ) -> Result<Outcome, AgentFault> {
        match self.check_arguments(arguments) {
            Ok(arguments) => self.call_method(method, arguments, Some(expected)),
            Err(problem) => Ok(self.refused(method, problem)),
        }
    }

    /// Calls any method and reads its value as a type.
    pub fn call_as<T: DeserializeOwned>(
        &self,
        method: impl TryInto<Method, Error: Into<NameFault>>,
        arguments: impl IntoArguments,
    ) -> Result<T, CallFault> {
        let outcome = self.call(method, arguments)?;
        let value = outcome.result.map_err(|failure| CallFault::Failed(Box::new(failure)))?;
        serde_json::from_value(value.clone()).map_err(|error| CallFault::Type {
            wanted: std::any::type_name::<T>(),
            problem: error.to_string(),
            value,
        })
    }

    fn state(&self) -> MutexGuard<'_, AgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> Result<SessionTurn<'_>, TurnFault> {
        let cancellation = self.state().cancellation.clone();
        self.queue.turn(&TurnLimits {
            wait: self.runtime().config().settings().session_wait_seconds,
            cancellation: &cancellation,
            observer_time: &|thread| self.runtime().observers().observer_time(thread),
        })
    }

    fn call_method(
        &self,
        method: Method,
        arguments: Arguments,
        expected: Option<Value>,
    ) -> Result<Outcome, AgentFault> {
        let _turn = match self.turn() {
            Ok(turn) => turn,
            Err(fault) => {
                return Ok(Outcome::new(self.owner.role.clone(), method, Err(fault.failure())));
            }
        };
        self.refresh()?;
        let ok = |value| Ok(Outcome::new(self.owner.role.clone(), method.clone(), Ok(value)));
        let dispatched = dispatch(method.as_str(), &arguments, &self.state().context);
        match dispatched {
            Dispatch::Read(value) => ok(value),
            Dispatch::Write { key, value } => {
                let answer = ok(value.clone());
                self.write(Map::from_iter([(key, value)]))?;
                answer
            }
            Dispatch::Refused { reason } => Ok(self.refused(method, reason)),
            Dispatch::Call => Ok(self.dynamic_call(method, arguments, expected)),
        }
    }

    fn dynamic_call(
        &self,
        method: Method,
        arguments: Arguments,
        expected: Option<Value>,
    ) -> Outcome {
        let tree = self.tree.clone().unwrap_or_else(|| {
            Tree::new(self.options.allowance, self.state().cancellation.clone())
        });
        let request = CallRequest {
            id: identity::call_id(),
            lineage: self.lineage.clone(),
            role: self.owner.role.clone(),
            method,
            arguments,
            contract: self.contract.clone(),
            language: self.options.language,
            context: self.runtime_context(),
            manifest: self.packages(),
            allowance: self.options.allowance,
        };
        let policy = Policy { expected, ..self.policy(request.language) };
        let (outcome, kept) = crate::call::perform(self, request, policy, &tree);
        if let Some(kept) = kept {
            let mut state = self.state();
            state.context.apply(kept.context);
            state.manifest = Some(kept.manifest);
        }
        outcome
    }

    /// The packages its environment holds: since its last success, or since it was prepared.
    fn packages(&self) -> Option<DependencyManifest> {
        let prepared = || Some(self.preparation.as_ref()?.environment()?.manifest);
        self.state().manifest.clone().or_else(prepared)
    }

    /// Whether its environment, if it has one prepared, is there.
    pub(crate) fn readiness(&self) -> Result<(), Box<Failure>> {
        self.preparation.as_ref().map_or(Ok(()), |ticket| ticket.readiness(self.runtime()))
    }

    pub(crate) fn prep_ticket_id(&self) -> Option<String> {
        self.preparation.as_ref().map(|ticket| ticket.id().to_owned())
    }

    /// Takes over what another process, or another agent, has written to this session's memory.
    fn refresh(&self) -> Result<(), StoreFault> {
        if self.owner.session.is_none() {
            return Ok(());
        }
        let version = self.state().context.version();
        if let Some(newer) = self.runtime.store().context(&self.owner, Some(version))? {
            self.runtime.guest(self.options.language).discard(&self.owner.instance);
            let manifest = kept_manifest(&self.runtime, &self.owner, self.options.language)?;
            let mut state = self.state();
            state.manifest = manifest;
            state.context = newer;
        }
        Ok(())
    }

    fn check_arguments(&self, arguments: impl IntoArguments) -> Result<Arguments, String> {
        let arguments = arguments.into_arguments()?;
        let (bytes, limit) =
            (arguments.encoded_bytes(), self.runtime.config().max_argument_bytes());
        if bytes > limit {
            return Err(format!(
                "the arguments have {bytes} bytes and the limit is {limit}; pass less (a path, an id) or raise max_argument_bytes"
            ));
        }
        Ok(arguments)
    }

    fn refused(&self, method: Method, problem: String) -> Outcome {
        let failure = Failure::new(FailureKind::InvalidCall, problem);
        Outcome::new(self.owner.role.clone(), method, Err(failure))
    }

    /// Writes a memory key: no model, no log entry.
    pub fn set(
        &self,
        key: impl TryInto<MemoryKey, Error: Into<NameFault>>,
        value: impl Serialize,
    ) -> Result<(), AgentFault> {
        let key = key.try_into().map_err(Into::into)?;
        let value =
            to_finite_value(&value).map_err(|error| AgentFault::Value(error.to_string()))?;
        self.remember(Map::from_iter([(key.as_str().to_owned(), value)]))
    }

    /// Writes several memory keys at once.
    pub fn remember(&self, entries: Map<String, Value>) -> Result<(), AgentFault> {
        if let Some(problem) = entries.keys().find_map(|key| refused_key(key)) {
            return Err(AgentFault::Value(problem));
        }
        let _turn = self.turn().map_err(|fault| AgentFault::Turn(Box::new(fault.failure())))?;
        self.refresh()?;
        self.write(entries)
    }

    fn write(&self, entries: Map<String, Value>) -> Result<(), AgentFault> {
        let changes = ContextChanges { set: entries, unset: Vec::new() };
        if let Some(problem) = self.state().context.over_limit(&changes.set, &changes.unset) {
            return Err(AgentFault::Value(problem));
        }
        if self.owner.session.is_some() {
            let version = self.state().context.version();
            self.runtime.store().remember(&self.owner, version, &changes)?;
        }
        self.state().context.apply(changes);
        Ok(())
    }

    /// Reads a memory key, as of this agent's last call or write; it does not look into the store.
    pub fn get(&self, key: &str) -> Option<Value> {
        self.state().context.get(key).cloned()
    }

    /// The whole memory, as of this agent's last call or write.
    pub fn runtime_context(&self) -> Context {
        self.state().context.clone()
    }

    /// The reason why these values exceed the limit of the memory, if they do.
    pub(crate) fn over_limit(&self, entries: &Map<String, Value>) -> Option<String> {
        self.state().context.over_limit(entries, &[])
    }

    /// Bytes that the memory takes in this process.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.state().context.decoded_bytes()
    }

    /// Whether a name is answered without a model: setters and memory keys.
    pub fn responds_to(&self, name: &str) -> bool {
        responds_to(name, &self.state().context)
    }

    /// Its role.
    pub fn role(&self) -> &Role {
        &self.owner.role
    }

    /// The session its memory is kept under, if any.
    pub fn session(&self) -> Option<&str> {
        self.owner.session.as_deref()
    }

    /// Replaces the token that cancels its next calls.
    pub fn set_cancellation(&self, cancellation: Cancellation) {
        self.state().cancellation = cancellation;
    }

    /// Its latest history records, oldest first.
    pub fn history(&self, limit: usize) -> Result<Vec<Value>, AgentFault> {
        Ok(self.runtime.store().history(&self.owner, limit, None)?)
    }

    /// A known tool by name, with its contract.
    pub fn tool(
        &self,
        name: impl TryInto<Role, Error: Into<NameFault>>,
    ) -> Result<Self, AgentFault> {
        let role = name.try_into().map_err(Into::into)?;
        let found = self.runtime.store().tools(Some(&role), 1)?;
        match found.into_iter().next() {
            Some(known) => self.delegate(role).contract_of(known.tool).build(),
            None => Err(AgentFault::UnknownTool {
                name: role.to_string(),
                known: known_names(&self.runtime)?,
            }),
        }
    }

    /// The builder of a child agent that inherits everything but memory. Building it makes it a known tool.
    pub fn delegate(&self, role: impl TryInto<Role, Error: Into<NameFault>>) -> AgentBuilder {
        let mut builder = AgentBuilder::new(self.runtime.clone(), role);
        builder.options = self.options.clone();
        builder.lineage = Some(self.lineage.clone());
        builder.tree.clone_from(&self.tree);
        builder.cancellation = self.state().cancellation.clone();
        builder.is_tool = true;
        builder
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn options(&self) -> &AgentOptions {
        &self.options
    }

    /// What its calls must satisfy.
    pub(crate) fn policy(&self, language: Language) -> Policy {
        let config = self.runtime.config();
        Policy {
            budgets: self.options.budgets,
            guardrails: self.options.guardrails.clone(),
            dependencies: config.dependency_policy(language),
            manifest_mode: config.manifest_mode(),
            standing_mode: config.standing_mode(),
            widen: self.options.widen,
            regenerate: self.regenerate,
            contract_origin: self.contract_origin,
            access: self.options.grants.access(),
            max_retry_delay: config.settings().max_retry_delay_seconds,
            expected: None,
            candidates: config.settings().candidates,
        }
    }

    pub(crate) fn contract_source(&self) -> ContractSource {
        self.contract_source
    }

    /// The agent as a tool that can be kept.
    pub(crate) fn as_tool(&self) -> Tool {
        Tool { name: self.owner.role.clone(), contract: self.contract.clone() }
    }
}

/// The packages of a session's agent since its last success. They are parsed again, because files are not trusted. A
/// manifest that this version cannot read is dropped: the next program declares its own.
fn kept_manifest(
    runtime: &Runtime,
    owner: &Owner,
    language: Language,
) -> Result<Option<DependencyManifest>, StoreFault> {
    let kept = runtime.store().manifest(owner, language)?;
    Ok(kept.and_then(|kept| kept.readmitted(language).ok()))
}

/// Names of known tools, for messages.
pub(crate) fn known_names(runtime: &Runtime) -> Result<String, StoreFault> {
    const SHOWN: usize = 12;
    let tools = runtime.store().tools(None, SHOWN)?;
    let names: Vec<&str> = tools.iter().map(|known| known.tool.name.as_str()).collect();
    Ok(if names.is_empty() { "none yet".to_owned() } else { names.join(", ") })
}
