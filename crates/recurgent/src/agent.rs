//! Agents: a role with a memory, on which any method can be called.

use std::fmt;
use std::sync::PoisonError;

use lifecycle::call::StoreFault;
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::{Contract, ContractFault, ContractSource};
use lifecycle::dialect::Language;
use lifecycle::dispatch::{Dispatch, dispatch, refused_key, responds_to};
use lifecycle::outcome::{Failure, FailureKind, Outcome};
use lifecycle::request::{Arguments, CallRequest, Lineage, Method, NameFault, Role, TraceId};
use lifecycle::tool::Tool;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::arguments::{IntoArguments, IntoValue};
use crate::config::{AgentOptions, ConfigFault};
use crate::guest::Cancellation;
use crate::identity;
use crate::runtime::Runtime;
use crate::store::Owner;
use crate::tree::Tree;

/// Why an agent could not be made or changed. What comes of a call is an [`Outcome`] instead.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AgentFault {
    /// A bad role, method or session name.
    #[error(transparent)]
    Name(#[from] NameFault),
    /// A bad option.
    #[error(transparent)]
    Option(#[from] ConfigFault),
    /// A contract that cannot be enforced.
    #[error(transparent)]
    Contract(#[from] ContractFault),
    /// A value or key that memory cannot hold.
    #[error("{0}")]
    Value(String),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// No tool of that name.
    #[error("no tool is named {name:?}; known tools: {known}. Forge it with delegate")]
    UnknownTool {
        /// As asked.
        name: String,
        /// What there is.
        known: String,
    },
}

/// A role with a memory. Calling any method on it works.
pub struct Agent {
    runtime: Runtime,
    owner: Owner,
    options: AgentOptions,
    contract: Option<Contract>,
    contract_source: ContractSource,
    context: Context,
    lineage: Lineage,
    /// `None` for an agent of the embedding program: each of its calls roots a new tree.
    tree: Option<Tree>,
    cancellation: Cancellation,
}

impl fmt::Debug for Agent {
    /// Never asks a model.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.context.iter().map(|(key, _)| key).collect();
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
        &mut self,
        method: &str,
        arguments: impl IntoArguments,
    ) -> Result<Outcome, AgentFault> {
        let method = Method::parse(method)?;
        let arguments = match self.admit(arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return Ok(self.refused(method, problem)),
        };
        self.call_method(method, arguments)
    }

    fn call_method(&mut self, method: Method, arguments: Arguments) -> Result<Outcome, AgentFault> {
        let turn = self.owner.session.as_deref().map(|session| self.runtime.session_turn(session));
        let _turn = turn.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.refresh()?;
        let ok = |value| {
            Ok(Outcome { role: self.owner.role.clone(), method: method.clone(), result: Ok(value) })
        };
        match dispatch(method.as_str(), &arguments, &self.context) {
            Dispatch::Read(value) => ok(value),
            Dispatch::Write { key, value } => {
                let answer = ok(value.clone());
                self.write(Map::from_iter([(key, value)]))?;
                answer
            }
            Dispatch::Refused { reason } => Ok(self.refused(method, reason)),
            Dispatch::Call => Ok(self.dynamic_call(method, arguments)),
        }
    }

    fn dynamic_call(&mut self, method: Method, arguments: Arguments) -> Outcome {
        let tree = self
            .tree
            .clone()
            .unwrap_or_else(|| Tree::new(self.options.allowance, self.cancellation.clone()));
        let request = CallRequest {
            id: identity::call_id(),
            lineage: self.lineage.clone(),
            role: self.owner.role.clone(),
            method,
            arguments,
            contract: self.contract.clone(),
            language: self.options.language,
            context: self.context.clone(),
            allowance: self.options.allowance,
        };
        let (outcome, kept) = crate::call::perform(self, request, &tree);
        self.context.apply(kept.unwrap_or_default());
        outcome
    }

    /// Another process may have moved this session's memory on.
    fn refresh(&mut self) -> Result<(), StoreFault> {
        if self.owner.session.is_none() {
            return Ok(());
        }
        if let Some(newer) =
            self.runtime.store().context(&self.owner, Some(self.context.version()))?
        {
            self.runtime.guest(self.options.language).discard(&self.owner.instance);
            self.context = newer;
        }
        Ok(())
    }

    fn admit(&self, arguments: impl IntoArguments) -> Result<Arguments, String> {
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
        Outcome { role: self.owner.role.clone(), method, result: Err(failure) }
    }

    /// Writes a memory key: no model, no log entry.
    pub fn set(&mut self, key: &str, value: impl IntoValue) -> Result<(), AgentFault> {
        let key = Method::parse(key)?;
        let value = value.into_value().map_err(AgentFault::Value)?;
        self.remember(Map::from_iter([(key.as_str().to_owned(), value)]))
    }

    /// Writes several memory keys at once.
    pub fn remember(&mut self, entries: Map<String, Value>) -> Result<(), AgentFault> {
        if let Some(problem) = entries.keys().find_map(|key| refused_key(key)) {
            return Err(AgentFault::Value(problem));
        }
        let turn = self.owner.session.as_deref().map(|session| self.runtime.session_turn(session));
        let _turn = turn.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.refresh()?;
        self.write(entries)
    }

    fn write(&mut self, entries: Map<String, Value>) -> Result<(), AgentFault> {
        let changes = ContextChanges { set: entries, unset: Vec::new() };
        if self.owner.session.is_some() {
            self.runtime.store().remember(&self.owner, self.context.version(), &changes)?;
        }
        self.context.apply(changes);
        Ok(())
    }

    /// Reads a memory key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.context.get(key)
    }

    /// The whole memory.
    pub fn runtime_context(&self) -> &Context {
        &self.context
    }

    /// Whether a name is answered without a model: setters and memory keys.
    pub fn responds_to(&self, name: &str) -> bool {
        responds_to(name, &self.context)
    }

    /// Its role.
    pub fn role(&self) -> &Role {
        &self.owner.role
    }

    /// The session its memory is kept under, if any.
    pub fn session(&self) -> Option<&str> {
        self.owner.session.as_deref()
    }

    /// Lets someone else stop its next calls, whatever became of the token it had before.
    pub fn set_cancellation(&mut self, cancellation: Cancellation) {
        self.cancellation = cancellation;
    }

    /// Its latest history records, oldest first.
    pub fn history(&self, limit: usize) -> Result<Vec<Value>, AgentFault> {
        Ok(self.runtime.store().history(&self.owner, limit, None)?)
    }

    /// A known tool by name, with its contract.
    pub fn tool(&self, name: &str) -> Result<Self, AgentFault> {
        let role = Role::parse(name)?;
        let found = self.runtime.store().tools(Some(&role), 1)?;
        match found.into_iter().next() {
            Some(known) => self.delegate(name).contract_of(known.tool).build(),
            None => Err(AgentFault::UnknownTool {
                name: name.to_owned(),
                known: known_names(&self.runtime)?,
            }),
        }
    }

    /// A child agent that inherits everything but memory; to be given a contract and built, which makes
    /// it a known tool.
    pub fn delegate(&self, role: &str) -> AgentBuilder {
        let mut builder = AgentBuilder::new(self.runtime.clone(), role);
        builder.options = self.options.clone();
        builder.lineage = Some(self.lineage.clone());
        builder.tree.clone_from(&self.tree);
        builder.cancellation = self.cancellation.clone();
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

    pub(crate) fn contract_source(&self) -> ContractSource {
        self.contract_source
    }

    /// The agent as a tool that can be kept.
    pub(crate) fn as_tool(&self) -> Tool {
        Tool { name: self.owner.role.clone(), contract: self.contract.clone() }
    }
}

/// Names of known tools, for messages.
pub(crate) fn known_names(runtime: &Runtime) -> Result<String, StoreFault> {
    const SHOWN: usize = 12;
    let tools = runtime.store().tools(None, SHOWN)?;
    let names: Vec<&str> = tools.iter().map(|known| known.tool.name.as_str()).collect();
    Ok(if names.is_empty() { "none yet".to_owned() } else { names.join(", ") })
}

/// Puts an agent together.
#[derive(Debug)]
pub struct AgentBuilder {
    runtime: Runtime,
    role: String,
    options: AgentOptions,
    problem: Option<ConfigFault>,
    whole_contract: Option<Map<String, Value>>,
    contract_fields: Map<String, Value>,
    session: Option<String>,
    trace: Option<String>,
    lineage: Option<Lineage>,
    tree: Option<Tree>,
    cancellation: Cancellation,
    /// Made known as a tool when it is built.
    is_tool: bool,
}

impl AgentBuilder {
    pub(crate) fn new(runtime: Runtime, role: &str) -> Self {
        Self {
            options: runtime.config().agent_options(),
            runtime,
            role: role.to_owned(),
            problem: None,
            whole_contract: None,
            contract_fields: Map::new(),
            session: None,
            trace: None,
            lineage: None,
            tree: None,
            cancellation: Cancellation::default(),
            is_tool: false,
        }
    }

    /// What the agent is for.
    #[must_use]
    pub fn purpose(self, purpose: &str) -> Self {
        self.contract_field("purpose", purpose.into())
    }

    /// The shape its answers must have; enforced.
    #[must_use]
    pub fn deliverable(self, deliverable: Value) -> Self {
        self.contract_field("deliverable", deliverable)
    }

    /// When an answer is good; shown to the model, not enforced.
    #[must_use]
    pub fn acceptance(self, acceptance: Value) -> Self {
        self.contract_field("acceptance", acceptance)
    }

    /// What to do when it cannot deliver; shown to the model.
    #[must_use]
    pub fn failure_policy(self, policy: Value) -> Self {
        self.contract_field("failure_policy", policy)
    }

    /// One contract field by its name; wins over the whole contract.
    #[must_use]
    pub fn contract_field(mut self, name: &str, value: Value) -> Self {
        self.contract_fields.insert(name.to_owned(), value);
        self
    }

    /// The contract as one object.
    #[must_use]
    pub fn contract(mut self, contract: Map<String, Value>) -> Self {
        self.whole_contract = Some(contract);
        self
    }

    pub(crate) fn contract_of(self, tool: Tool) -> Self {
        match tool.contract.map(serde_json::to_value) {
            Some(Ok(Value::Object(contract))) => self.contract(contract),
            _ => self,
        }
    }

    /// The language its programs are written in.
    #[must_use]
    pub fn guest(mut self, language: Language) -> Self {
        self.options.language = language;
        self
    }

    /// One option by its key (see [`crate::config::AGENT_KEYS`]); unknown ones fail the build.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        if let Err(fault) = self.options.set(name, value) {
            self.problem = Some(fault);
        }
        self
    }

    /// Keeps memory and history under this name, across processes.
    #[must_use]
    pub fn session(mut self, name: &str) -> Self {
        self.session = Some(name.to_owned());
        self
    }

    /// Puts its calls on a given trace.
    #[must_use]
    pub fn trace_id(mut self, trace: &str) -> Self {
        self.trace = Some(trace.to_owned());
        self
    }

    /// Lets someone else stop its calls.
    #[must_use]
    pub fn cancellation(mut self, cancellation: Cancellation) -> Self {
        self.cancellation = cancellation;
        self
    }

    pub(crate) fn under(mut self, lineage: Lineage, tree: Tree) -> Self {
        self.lineage = Some(lineage);
        self.cancellation = tree.cancellation.clone();
        self.tree = Some(tree);
        // What a running program forges becomes known when its attempt is accepted, not before.
        self.is_tool = false;
        self
    }

    /// Checks everything once and makes the agent. No model is asked, no process started.
    pub fn build(self) -> Result<Agent, AgentFault> {
        if let Some(fault) = self.problem {
            return Err(fault.into());
        }
        let role = Role::parse(&self.role)?;
        let session = self.session.map(|name| Method::parse(&name)).transpose()?;
        let (contract, contract_source) =
            Contract::compose(self.whole_contract.as_ref(), &self.contract_fields)?;
        let owner = Owner {
            instance: identity::instance_id(),
            session: session.map(|name| name.as_str().to_owned()),
            role,
        };
        let context = match &owner.session {
            Some(_) => self.runtime.store().context(&owner, None)?.unwrap_or_default(),
            None => Context::default(),
        };
        let trace = self.trace.map_or_else(identity::trace_id, TraceId);
        let allowance = self.options.allowance;
        let agent = Agent {
            owner,
            options: self.options,
            contract,
            contract_source,
            context,
            lineage: self.lineage.unwrap_or(Lineage::Root { trace }),
            tree: self.tree.map(|tree| tree.narrowed(allowance)),
            cancellation: self.cancellation,
            runtime: self.runtime,
        };
        if self.is_tool {
            agent.runtime.store().keep_tool(&agent.as_tool())?;
        }
        Ok(agent)
    }
}
