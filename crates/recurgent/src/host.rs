//! What a running program may ask, and the answer: an ordinary call, a call of a tool from outside, a read, or a refusal.

mod outside;

use std::collections::BTreeMap;
use std::sync::Arc;

use lifecycle::contract;
use lifecycle::execution::{Environment, FailedRun, Order, Report, WorkerFault};
use lifecycle::guardrail::{Violation, attached, examine_request};
use lifecycle::inference::Question;
use lifecycle::look::Look;
use lifecycle::outcome::{Failure, FailureKind, Limit};
use lifecycle::provenance::{Observation, ObservedSource};
use lifecycle::request::{Arguments, Role, decoded_bytes};
use serde_json::{Map, Value};

use crate::agent::{Agent, AgentBuilder, AgentFault, known_names};
use crate::config::{AgentOverrides, agent_keys};
use crate::grants::Network;
use crate::guest::{Answer, Ask, Done, RunLimits, TurnEvent};
use crate::inference::Inferrer;
use crate::toolbox::Toolbox;
use crate::tree::{AttemptTools, MemoryCharge, Tree};
use crate::upkeep::time_before;
use crate::worker::WorkerTurn;
use crate::workspace::WorkspaceVersion;

/// Most history records one ask may read.
const MAX_HISTORY: usize = 1000;
/// Most tools the registry view shows.
const MAX_TOOLS: usize = 1000;
/// Most agents one program may hold.
const MAX_AGENTS: usize = 1000;
/// Most violations reported of one attempt.
const MAX_VIOLATIONS: usize = 16;

/// The host side of one attempt.
pub(crate) struct Host<'a> {
    agent: &'a Agent,
    order: Order<'a>,
    tree: &'a Tree,
    /// Agents and outside tools the program holds, by handle.
    held: BTreeMap<String, Held>,
    /// Memory that the arguments take, if a program passed them, and the contracts of those agents.
    received_bytes: usize,
    /// Why an agent could not remember what it was given.
    too_large: Option<String>,
    /// The host's memory for this attempt: no limit of a worker bounds it.
    memory: MemoryCharge,
    /// Tools it forged, and those that accepted calls under it forged.
    tools: Arc<AttemptTools>,
    violations: Vec<Violation>,
    /// What the program reached through the tools it called.
    reached_by_tools: Observation,
    /// How the last call failed, if it did.
    failed_call: Option<Failure>,
    /// The version of the workspace that the program may change.
    workspace_version: Option<Arc<WorkspaceVersion>>,
    /// What it asks a model.
    inferrer: Inferrer<'a>,
}

impl<'a> Host<'a> {
    pub(crate) fn new(
        agent: &'a Agent,
        order: Order<'a>,
        tree: &'a Tree,
        workspace_version: Option<Arc<WorkspaceVersion>>,
    ) -> Self {
        let is_nested = order.request.lineage.depth() > 0;
        // The memory of a called agent is counted by the program that holds the agent.
        let received_bytes = if is_nested {
            order.request.arguments.decoded_bytes()
        } else {
            order.request.context.decoded_bytes()
        };
        Self {
            agent,
            order,
            tree,
            held: BTreeMap::new(),
            received_bytes,
            too_large: None,
            memory: tree.charge(),
            tools: AttemptTools::new(tree),
            violations: Vec::new(),
            reached_by_tools: Observation::of_no_network(),
            failed_call: None,
            workspace_version,
            inferrer: Inferrer::new(agent, order.request, tree),
        }
    }

    /// Runs the ordered program to its end, or to the end of the tree's time.
    pub(crate) fn run(mut self, environment: &Environment) -> Result<Report, FailedRun> {
        let mut turn = self.start(environment).map_err(FailedRun::not_started)?;
        match self.converse(&mut turn) {
            Ok(done) => match self.finish_version(&mut turn) {
                Ok(()) => Ok(self.report(done)),
                Err(fault) => Err(self.failed(fault, done)),
            },
            Err(fault) => {
                // Its limit was cut to what was left of the tree's time.
                let is_late =
                    matches!(fault, WorkerFault::TimedOut(_) | WorkerFault::ServiceSilent { .. });
                let fault = self.tree.check_time().err().filter(|_| is_late).unwrap_or(fault);
                let (output, worker) = turn.evidence();
                let observed = self.observed(turn.reached());
                Err(FailedRun {
                    fault,
                    output: Box::new(output),
                    worker: Box::new(worker),
                    observed: Box::new(observed),
                    inferred: Box::new(self.inferrer.into_inferred()),
                })
            }
        }
    }

    fn start(&mut self, environment: &Environment) -> Result<WorkerTurn, WorkerFault> {
        self.tree.check_time()?;
        self.has_room(0)?;
        let run_limits = RunLimits {
            agent: &self.agent.owner().instance,
            time_limit: self.tree.within(self.agent.options().execution_timeout),
            cancellation: &self.tree.cancellation,
            grants: &self.agent.options().grants,
        };
        let guest = self.agent.runtime().guest(self.order.request.language);
        let workspace_version = self.workspace_version.as_deref().map(WorkspaceVersion::mount);
        let turn = guest.start_on(workspace_version, environment, &self.order, &run_limits)?;
        if let Some((workspace_version, layer)) =
            self.workspace_version.as_ref().zip(turn.workspace_layer())
        {
            workspace_version.mounted(layer);
        }
        Ok(turn)
    }

    /// Finds out what the program changed in its workspace, when nothing of it runs any more.
    fn finish_version(&self, turn: &mut WorkerTurn) -> Result<(), WorkerFault> {
        let Some(workspace_version) = &self.workspace_version else { return Ok(()) };
        turn.end_own_zygote();
        workspace_version.finish().map_err(|problem| WorkerFault::Limited(Limit::Files, problem))
    }

    /// A run that ended, and whose changes cannot be kept.
    fn failed(self, fault: WorkerFault, done: Done) -> FailedRun {
        let observed = self.observed(done.reached);
        FailedRun {
            fault,
            output: Box::new(done.output),
            worker: Box::new(done.worker),
            observed: Box::new(observed),
            inferred: Box::new(self.inferrer.into_inferred()),
        }
    }

    /// Answers what the program asks until it is done.
    fn converse(&mut self, turn: &mut WorkerTurn) -> Result<Done, WorkerFault> {
        let limit = self.order.request.allowance.asks_per_call;
        for _ in 0..=limit {
            match turn.listen()? {
                TurnEvent::Ask(Ask::Look { value, why }) if self.inferrer.may_show_values() => {
                    return Ok(turn.end_looked(Look { value, why }));
                }
                TurnEvent::Ask(ask) => {
                    let answer = self.answer(ask);
                    self.tree.check_time()?;
                    self.has_room(0)?;
                    turn.answer(&answer)?;
                }
                TurnEvent::Done(done) => {
                    if let Some(problem) = self.over_limit(&done) {
                        return Err(WorkerFault::Limited(Limit::Memory, problem));
                    }
                    self.has_room(done.changes.set.values().map(decoded_bytes).sum())?;
                    return Ok(*done);
                }
            }
        }
        Err(WorkerFault::Limited(
            Limit::Asks,
            format!("the program asked the host more than {limit} times"),
        ))
    }

    fn report(self, done: Done) -> Report {
        Report {
            ending: done.ending,
            changes: done.changes,
            forged: self.tools.to_vec(),
            observed: Observation {
                failed_contacts: done.failed_contacts,
                ..self.observed(done.reached)
            },
            violations: self.violations,
            failed_call: self.failed_call,
            inferred: self.inferrer.into_inferred(),
            output: done.output,
            worker: done.worker,
            result_from: done.result_from,
        }
    }

    /// What the program reached, itself and through tools. Its own connections are not seen under an open network.
    fn observed(&self, own: Vec<ObservedSource>) -> Observation {
        let by_tools = &self.reached_by_tools;
        let complete = by_tools.complete && self.agent.options().grants.network != Network::Open;
        let mut observation = Observation::of_sources(own);
        for source in &by_tools.sources {
            observation.add(source.clone());
        }
        let sent = by_tools.sent.clone();
        let (outside_calls, outside_count) =
            (by_tools.outside_calls.clone(), by_tools.outside_count);
        let agent_answered = by_tools.agent_answered;
        Observation { complete, sent, agent_answered, outside_calls, outside_count, ..observation }
    }

    /// Why the agent cannot remember what the program leaves.
    fn over_limit(&self, done: &Done) -> Option<String> {
        self.order.context().over_limit(&done.changes.set, &done.changes.unset)
    }

    /// Whether the host may keep what the call tree makes it keep: arguments, and the contracts and memories of the
    /// agents that programs hold.
    fn has_room(&mut self, more: usize) -> Result<(), WorkerFault> {
        if let Some(problem) = self.too_large.take().or_else(|| self.tools.over_limit()) {
            return Err(WorkerFault::Limited(Limit::Memory, problem));
        }
        let memories: usize = self.held.values().map(Held::memory_bytes).sum();
        let total = self.memory.set(memories + self.received_bytes + more);
        let limit = self.agent.runtime().config().max_tree_memory_bytes();
        if total <= limit {
            return Ok(());
        }
        let message = format!(
            "the host would keep {} MB for this call and all it calls, and the limit is {} MB; pass and remember less \
             at a time, or raise max_tree_memory_mb",
            total >> 20,
            limit >> 20
        );
        Err(WorkerFault::Limited(Limit::Memory, message))
    }

    fn answer(&mut self, ask: Ask) -> Answer {
        match self.try_answer(ask) {
            Ok(answer) => answer,
            Err(refusal) => refusal.into(),
        }
    }

    fn try_answer(&mut self, ask: Ask) -> Result<Answer, Refusal> {
        let store = self.agent.runtime().store();
        match ask {
            Ask::Call { agent, method, args, kwargs } => {
                let arguments = Arguments { args, kwargs };
                if let Some(Held::Outside(toolbox)) = self.held.get(&agent) {
                    let toolbox = Arc::clone(toolbox);
                    return self.call_outside(toolbox.as_ref(), &method, arguments);
                }
                let outcome = self.held(&agent)?.call(&method, arguments)?;
                self.reached_by_tools.add_call(outcome.role.as_str(), &outcome.observed);
                self.reached_by_tools.agent_answered |= outcome.is_ok();
                self.failed_call = outcome.failure().cloned();
                Ok(Answer::Outcome(Box::new(outcome)))
            }
            Ask::Tool { name } => self.tool(&name),
            Ask::Delegate { role, options, detached } => self.delegate(&role, options, detached),
            Ask::Remember { agent, entries } => {
                self.too_large = self.held(&agent)?.over_limit(&entries);
                if self.too_large.is_none() {
                    self.held(&agent)?.remember(entries)?;
                }
                Ok(Answer::Value(Value::Null))
            }
            Ask::RuntimeContext { agent } => {
                Ok(Answer::Value(Value::Object(self.held(&agent)?.runtime_context().to_object())))
            }
            Ask::Attach { name } => Err(self.violated(attached(&name))),
            Ask::Content { reference } => {
                let ttl = self.agent.runtime().config().content_ttl();
                let kept_since = ttl.map(time_before);
                let value =
                    store.content(&reference, kept_since.as_deref()).map_err(AgentFault::from)?;
                Ok(Answer::Value(value.unwrap_or(Value::Null)))
            }
            Ask::Infer { instruction, data, each, schema } => {
                self.infer(instruction, data, each, &schema)
            }
            // One that is permitted ends the run.
            Ask::Look { .. } => {
                let withheld = self.inferrer.withhold();
                self.failed_call = Some(withheld.clone());
                Err(withheld.into())
            }
            Ask::Tools => {
                let tools = store.tools(None, MAX_TOOLS).map_err(AgentFault::from)?;
                let view = tools
                    .iter()
                    .map(|known| (known.tool.name.as_str().to_owned(), known.to_json()));
                Ok(Answer::Value(Value::Object(view.collect())))
            }
            Ask::SearchTools { words } => Ok(self.search_outside(&words)),
            Ask::History { limit, before } => {
                let limit = usize::try_from(limit).unwrap_or(MAX_HISTORY).min(MAX_HISTORY);
                let records = store
                    .history(self.agent.owner(), limit, before.as_deref())
                    .map_err(AgentFault::from)?;
                Ok(Answer::Value(Value::Array(records)))
            }
        }
    }

    /// Asks the agent's model about data.
    fn infer(
        &mut self,
        instruction: String,
        data: Value,
        each: Option<Vec<Value>>,
        schema: &Value,
    ) -> Result<Answer, Refusal> {
        let asked = match Question::parse(instruction, data, each, schema) {
            Ok(question) => self.inferrer.ask(question),
            Err(fault) => Err(Box::new(Failure::new(FailureKind::InvalidCall, fault.to_string()))),
        };
        self.failed_call = asked.as_ref().err().map(|failure| (**failure).clone());
        self.reached_by_tools.agent_answered |= asked.is_ok();
        asked.map(Answer::Value).map_err(|failure| Refusal::from(*failure))
    }

    fn held(&self, handle: &str) -> Result<&Agent, Refusal> {
        match self.held.get(handle) {
            Some(Held::Agent(agent)) => Ok(agent),
            Some(Held::Outside(toolbox)) => Err(Refusal::invalid(format!(
                "the tool {} comes from outside and has no memory; call its methods",
                toolbox.name()
            ))),
            None => Err(Refusal::invalid(format!(
                "no agent has the handle {handle:?}; get one with tool or delegate"
            ))),
        }
    }

    /// A tool forged in this attempt, or a known one.
    fn tool(&mut self, name: &str) -> Result<Answer, Refusal> {
        if let Some(toolbox) = self.outside_tool(name) {
            let role = toolbox.name().to_owned();
            return self.hold_as(Held::Outside(toolbox), role);
        }
        let role = self.other_role(name)?;
        let forged = self.tools.find(&role);
        let known = if forged.is_some() {
            forged
        } else {
            let found =
                self.agent.runtime().store().tools(Some(&role), 1).map_err(AgentFault::from)?;
            found.into_iter().next().map(|known| known.tool)
        };
        let Some(tool) = known else {
            let known = known_names(self.agent.runtime()).map_err(AgentFault::from)?;
            let known = self.with_outside_names(known);
            return Err(AgentFault::UnknownTool { name: name.to_owned(), known }.into());
        };
        self.hold(self.child(name).contract_of(tool))
    }

    fn delegate(
        &mut self,
        role: &str,
        options: Map<String, Value>,
        detached: bool,
    ) -> Result<Answer, Refusal> {
        self.other_role(role)?;
        let mut child = self.child(role);
        self.received_bytes += options.values().map(decoded_bytes).sum::<usize>();
        for (name, value) in options {
            child = match (name.as_str(), value) {
                (_, Value::Null) => child,
                ("contract" | "delegation_contract", Value::Object(contract)) => {
                    child.contract(contract)
                }
                (field, value) if contract::FIELDS.contains(&field) => {
                    child.contract_field(field, value)
                }
                (option, value) if agent_keys().any(|known| known == option) => {
                    let given = AgentOverrides::of_json(option, &value);
                    child.overrides(&given.map_err(AgentFault::from)?)
                }
                // Not understood: the contract notes it and keeps it as intent.
                (unknown, value) => child.contract_field(unknown, value),
            };
        }
        let answer = self.hold(child.within(self.agent.options()))?;
        if let (false, Answer::Agent { handle, .. }) = (detached, &answer) {
            let tool = self.held(handle)?.as_tool();
            self.tools.add(tool);
        }
        Ok(answer)
    }

    /// An agent may not be its own tool: that is a loop, not a delegation.
    fn other_role(&mut self, name: &str) -> Result<Role, Refusal> {
        let role = Role::parse(name).map_err(AgentFault::from)?;
        let own = self.order.request.role.as_str();
        let Some(violation) = examine_request(own, role.as_str()) else {
            return Ok(role);
        };
        Err(self.violated(violation))
    }

    /// An ask that breaks a rule is refused, and reported when the program ends.
    fn violated(&mut self, violation: Violation) -> Refusal {
        let refusal = Refusal {
            error_type: violation.violation_type().name().to_owned(),
            message: violation.message.clone(),
        };
        // Only the first violations are kept: a retry corrects no more than those.
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(violation);
        }
        refusal
    }

    fn child(&self, role: &str) -> AgentBuilder {
        let request = self.order.request;
        self.agent.delegate(role).under(
            request.lineage.child_of(&request.id),
            self.tree.for_attempt(&self.tools, self.workspace_version.as_ref()),
        )
    }

    fn hold(&mut self, child: AgentBuilder) -> Result<Answer, Refusal> {
        let agent = child.build()?;
        let role = agent.role().as_str().to_owned();
        self.hold_as(Held::Agent(Box::new(agent)), role)
    }

    fn hold_as(&mut self, held: Held, role: String) -> Result<Answer, Refusal> {
        if self.held.len() >= MAX_AGENTS {
            return Err(Refusal::invalid(format!(
                "a program may hold at most {MAX_AGENTS} agents; reuse the ones it has"
            )));
        }
        let handle = format!("a{}", self.held.len() + 1);
        self.held.insert(handle.clone(), held);
        Ok(Answer::Agent { handle, role })
    }
}

/// What a program holds by a handle.
enum Held {
    Agent(Box<Agent>),
    Outside(Arc<dyn Toolbox>),
}

impl Held {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Agent(agent) => agent.memory_bytes(),
            Self::Outside(_) => 0,
        }
    }
}

/// Why an ask was not answered; raises in the program.
struct Refusal {
    error_type: String,
    message: String,
}

impl Refusal {
    fn invalid(message: String) -> Self {
        Self { error_type: FailureKind::InvalidCall.code().to_owned(), message }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { error_type: failure.kind.code().to_owned(), message: failure.message }
    }
}

impl From<AgentFault> for Refusal {
    fn from(fault: AgentFault) -> Self {
        let error_type = match &fault {
            AgentFault::Store(_) => FailureKind::StoreUnavailable.code(),
            AgentFault::Turn(failure) => failure.kind.code(),
            AgentFault::UnknownTool { .. } => "unknown_tool",
            AgentFault::Name(_)
            | AgentFault::Option(_)
            | AgentFault::Model(_)
            | AgentFault::Contract(_)
            | AgentFault::Value(_)
            | AgentFault::Program(_) => FailureKind::InvalidCall.code(),
        };
        Self { error_type: error_type.to_owned(), message: fault.to_string() }
    }
}

impl From<Refusal> for Answer {
    fn from(Refusal { error_type, message }: Refusal) -> Self {
        Self::Refused { error_type, message }
    }
}
