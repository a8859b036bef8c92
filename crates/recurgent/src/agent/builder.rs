//! The builder of agents: everything is checked once, when the agent is built.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lifecycle::attempt::Budgets;
use lifecycle::context::Context;
use lifecycle::contract::{Contract, ContractFault, ContractOrigin, ContractSource};
use lifecycle::dialect::Language;
use lifecycle::request::{Allowance, Lineage, NameFault, Role, Session, TraceId};
use lifecycle::tool::Tool;
use serde_json::{Map, Value};

use super::{Agent, AgentFault, AgentState, kept_manifest};
use crate::config::{AgentOptions, AgentOverrides, SettingsLayer};
use crate::grants::ToolGrant;
use crate::guest::Cancellation;
use crate::identity;
use crate::preparation::PreparationTicket;
use crate::runtime::Runtime;
use crate::session_queue::SessionQueue;
use crate::store::Owner;
use crate::tree::Tree;

/// The builder of an agent.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent choices")]
pub struct AgentBuilder {
    pub(super) runtime: Runtime,
    pub(super) role: Result<Role, NameFault>,
    pub(super) options: AgentOptions,
    pub(super) whole_contract: Option<Map<String, Value>>,
    pub(super) contract_fields: Map<String, Value>,
    /// A contract that was checked when it was made.
    pub(super) kept_contract: Option<Contract>,
    /// Whether a program wrote the contract: then what is not understood is noted, not refused.
    pub(super) is_tolerant: bool,
    pub(super) session: Option<Result<Session, NameFault>>,
    pub(super) trace: Option<TraceId>,
    pub(super) lineage: Option<Lineage>,
    pub(super) tree: Option<Tree>,
    pub(super) cancellation: Cancellation,
    /// Building it makes it a known tool.
    pub(super) is_tool: bool,
    pub(super) preparation: Option<PreparationTicket>,
    pub(super) regenerate: bool,
    /// The first option that cannot be used.
    pub(super) fault: Option<AgentFault>,
}

impl AgentBuilder {
    pub(crate) fn new(runtime: Runtime, role: impl TryInto<Role, Error: Into<NameFault>>) -> Self {
        Self {
            options: runtime.config().agent_options(),
            runtime,
            role: role.try_into().map_err(Into::into),
            whole_contract: None,
            contract_fields: Map::new(),
            kept_contract: None,
            is_tolerant: false,
            session: None,
            trace: None,
            lineage: None,
            tree: None,
            cancellation: Cancellation::default(),
            is_tool: false,
            preparation: None,
            regenerate: false,
            fault: None,
        }
    }

    pub(crate) fn language(&self) -> Language {
        self.options.language
    }

    pub(crate) fn prepared_by(mut self, ticket: PreparationTicket) -> Self {
        self.preparation = Some(ticket);
        self
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

    /// The contract of a known tool.
    pub(crate) fn contract_of(mut self, tool: Tool) -> Self {
        self.kept_contract = tool.contract;
        self
    }

    /// The contract, checked, and how it was given.
    fn composed(
        &mut self,
    ) -> Result<(Option<Contract>, ContractSource, ContractOrigin), ContractFault> {
        let (whole, fields) = (self.whole_contract.as_ref(), &self.contract_fields);
        let (contract, source) = match self.kept_contract.take() {
            Some(kept) if whole.is_none() && fields.is_empty() => {
                return Ok((Some(kept), ContractSource::Hash, ContractOrigin::Registry));
            }
            _ if self.is_tolerant => Contract::compose_tolerant(whole, fields)?,
            _ => Contract::compose(whole, fields)?,
        };
        Ok((contract, source, ContractOrigin::Caller))
    }

    /// The language its programs are written in.
    #[must_use]
    pub fn guest(mut self, language: Language) -> Self {
        self.options.language = language;
        self
    }

    /// Values that replace the configured ones. [`AgentOverrides::new`] takes them typed.
    #[must_use]
    pub fn overrides(mut self, overrides: &AgentOverrides) -> Self {
        self.options.apply(overrides);
        self
    }

    /// Tools from outside that its programs may call; see [`ToolGrant`]. A child can only have fewer than its parent.
    #[must_use]
    pub fn tools(mut self, grant: ToolGrant) -> Self {
        let is_child = self.lineage.is_some();
        self.options.tools = if is_child { grant.within(&self.options.tools) } else { grant };
        self
    }

    /// The model to ask.
    #[must_use]
    pub fn model(mut self, name: &str) -> Self {
        match name.parse() {
            Ok(name) => self.options.model = name,
            Err(fault) => self.refuse(fault),
        }
        self
    }

    /// Remembers why it cannot be built; the first reason counts.
    fn refuse(&mut self, fault: impl Into<AgentFault>) {
        self.fault.get_or_insert_with(|| fault.into());
    }

    /// Replaces settings by typed values, which are checked as their texts would be.
    fn with_settings(mut self, layer: &SettingsLayer) -> Self {
        match AgentOverrides::new(layer) {
            Ok(overrides) => self.options.apply(&overrides),
            Err(fault) => self.refuse(fault),
        }
        self
    }

    /// Time a program may take, nested calls aside.
    #[must_use]
    pub fn execution_timeout(self, limit: Duration) -> Self {
        self.with_settings(&SettingsLayer {
            execution_timeout_seconds: Some(limit),
            ..SettingsLayer::default()
        })
    }

    /// Time a model may take to answer.
    #[must_use]
    pub fn provider_timeout(self, limit: Duration) -> Self {
        self.with_settings(&SettingsLayer {
            provider_timeout_seconds: Some(limit),
            ..SettingsLayer::default()
        })
    }

    /// How often an attempt of each kind is retried.
    #[must_use]
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.options.budgets = budgets;
        self
    }

    /// Limits what one call tree may use. An allowance can be narrowed, never widened.
    #[must_use]
    pub fn allowance(mut self, allowance: Allowance) -> Self {
        self.options.narrow(allowance);
        self
    }

    /// Whether calls ask a model even if a program is stored. The new program replaces the stored one, unless that is
    /// pinned or the new one cannot be reused.
    #[must_use]
    pub fn regenerate(mut self, is_wanted: bool) -> Self {
        self.regenerate = is_wanted;
        self
    }

    /// Whether a model may extend a stored program to arguments it was not written for.
    #[must_use]
    pub fn widen(mut self, is_allowed: bool) -> Self {
        self.options.widen = is_allowed;
        self
    }

    /// Logs prompts and memory too.
    #[must_use]
    pub fn debug(mut self, is_debugged: bool) -> Self {
        self.options.debug = is_debugged;
        self
    }

    /// Limits its time to that of its parent, and its debug log to that of its parent: programs choose options for
    /// their children and may only choose less.
    #[must_use]
    pub(crate) fn within(mut self, parent: &AgentOptions) -> Self {
        let options = &mut self.options;
        options.execution_timeout = options.execution_timeout.min(parent.execution_timeout);
        options.provider_timeout = options.provider_timeout.min(parent.provider_timeout);
        options.tool_timeout = options.tool_timeout.min(parent.tool_timeout);
        options.debug &= parent.debug;
        options.widen &= parent.widen;
        options.budgets = options.budgets.within(&parent.budgets);
        options.infer.retries = options.infer.retries.min(parent.infer.retries);
        self
    }

    /// Keeps memory and history under this name, across processes.
    #[must_use]
    pub fn session(mut self, name: impl TryInto<Session, Error: Into<NameFault>>) -> Self {
        self.session = Some(name.try_into().map_err(Into::into));
        self
    }

    /// Puts its calls on a given trace.
    #[must_use]
    pub fn trace_id(mut self, trace: impl TryInto<TraceId, Error: Into<NameFault>>) -> Self {
        match trace.try_into() {
            Ok(trace) => self.trace = Some(trace),
            Err(fault) => self.refuse(fault.into()),
        }
        self
    }

    /// Sets the token that cancels its calls.
    #[must_use]
    pub fn cancellation(mut self, cancellation: Cancellation) -> Self {
        self.cancellation = cancellation;
        self
    }

    pub(crate) fn under(mut self, lineage: Lineage, tree: Tree) -> Self {
        self.lineage = Some(lineage);
        self.cancellation = tree.cancellation.clone();
        self.tree = Some(tree);
        self.is_tolerant = true;
        // What a running program forges becomes known when its attempt is accepted, not before.
        self.is_tool = false;
        self
    }

    /// An agent of the embedding program that is named like a registered tool has the tool's contract, unless it is
    /// given one.
    fn with_registered_contract(self, role: &Role) -> Result<Self, AgentFault> {
        let is_given = self.whole_contract.is_some() || !self.contract_fields.is_empty();
        if is_given || self.lineage.is_some() {
            return Ok(self);
        }
        Ok(match self.runtime.registered_tool(role)? {
            Some(tool) => self.contract_of(tool),
            None => self,
        })
    }

    /// Checks everything once and makes the agent. No model is asked, no process started.
    pub fn build(mut self) -> Result<Agent, AgentFault> {
        let role = self.role.clone()?;
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        self = self.with_registered_contract(&role)?;
        let (contract, contract_source, contract_origin) = self.composed()?;
        let session = self.session.transpose()?;
        let owner = Owner {
            instance: identity::instance_id(),
            session: session.map(|name| name.as_str().to_owned()),
            role,
        };
        let queue = match &owner.session {
            Some(session) => self.runtime.session_queue(session),
            None => Arc::new(SessionQueue::of_agent(owner.role.as_str())),
        };
        let (context, manifest) = match &owner.session {
            Some(_) => (
                self.runtime.store().context(&owner, None)?.unwrap_or_default(),
                kept_manifest(&self.runtime, &owner, self.options.language)?,
            ),
            None => (Context::default(), None),
        };
        let trace = self.trace.unwrap_or_else(identity::trace_id);
        let allowance = self.options.allowance;
        let agent = Agent {
            owner,
            options: self.options,
            contract,
            contract_source,
            contract_origin,
            preparation: self.preparation,
            regenerate: self.regenerate,
            lineage: self.lineage.unwrap_or(Lineage::Root { trace }),
            tree: self.tree.map(|tree| tree.narrowed(allowance)),
            queue,
            state: Mutex::new(AgentState { context, manifest, cancellation: self.cancellation }),
            runtime: self.runtime,
        };
        if self.is_tool {
            agent.runtime.store().keep_tool(&agent.as_tool())?;
        }
        Ok(agent)
    }
}
