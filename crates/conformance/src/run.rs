//! Runs one scenario on its own runtime.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::outcome::FailureKind;
use recurgent::config::{AgentOverrides, Config};
use recurgent::{
    Agent, AgentBuilder, AgentFault, Cancellation, Language, Outcome, PreparationTicket, Runtime,
};
use serde_json::{Map, Value, json};

use crate::assertion;
use crate::log::LogReader;
use crate::model::ScriptedModel;
use crate::program::{ProgramTable, ScriptedReply, fault_reply};
use crate::report::ScenarioEnding;
use crate::scenario::{
    AgentSpec, CallFilter, CallSpec, ExpectedOutcome, ExpectedRefusal, Operation, Scenario,
    ScenarioSettings, ScenarioStep, StepAction,
};
use crate::supplied;

/// Longest wait for a preparation.
const READY_TIMEOUT: Duration = Duration::from_mins(2);
/// The name of the log in the directory of a scenario.
const LOG_FILE: &str = "log.jsonl";
/// An agent's options can only lower `max_delegation_depth` and `max_model_calls`, so the runtime gets the highest values.
const UNBOUNDED: [(&str, &str); 2] =
    [("max_delegation_depth", "255"), ("max_model_calls", "4294967295")];
/// The options of an agent that a scenario does not set.
const DEFAULTS: [(&str, &str); 3] =
    [("max_delegation_depth", "8"), ("max_model_calls", "64"), ("model", "scripted")];

/// The options of an agent. A scenario that limits the attempts of a model limits the requests to a service that fails
/// to the same number, unless it says otherwise.
fn overrides(options: BTreeMap<&str, &str>) -> Result<AgentOverrides, AgentFault> {
    let attempts = options.get("max_generation_attempts").and_then(|text| text.parse::<u32>().ok());
    let retries = attempts.unwrap_or(DEFAULT_ATTEMPTS).saturating_sub(1).to_string();
    // A later value replaces an earlier one.
    let options = [("transport_retries", retries.as_str())].into_iter().chain(options);
    Ok(AgentOverrides::parse(options)?)
}

/// The default of `max_generation_attempts` in scenarios.
const DEFAULT_ATTEMPTS: u32 = 2;

/// Runs a scenario to its end or its first failing step.
pub(crate) fn run_scenario(
    scenario: &Scenario,
    config: &Config,
    cancellation: &Cancellation,
) -> ScenarioEnding {
    let guest = config.agent_options().language;
    if scenario.guests.as_ref().is_some_and(|guests| !guests.contains(&guest)) {
        return ScenarioEnding::Skip { message: format!("not for {guest}") };
    }
    let Some(model) = ScriptedModel::of(scenario, guest) else {
        return ScenarioEnding::Skip {
            message: format!("its plan has a program without a text in {guest}"),
        };
    };
    let directory = match tempfile::Builder::new().prefix("recurgent-conformance-").tempdir() {
        Ok(directory) => directory,
        Err(error) => {
            return ScenarioEnding::Error { message: format!("no directory for it: {error}") };
        }
    };
    let log = directory.path().join(LOG_FILE);
    let packages = scenario.packages.as_ref();
    let supply = packages.map(|packages| packages.supply(config, directory.path())).transpose();
    let configured = supply.and_then(|supply| {
        let settings = supply.as_ref().map(|supply| supply.settings.as_slice());
        let config = configured(config, scenario, directory.path(), settings.unwrap_or_default());
        config.map(|config| (config, supply))
    });
    let (config, _supply) = match configured {
        Ok(configured) => configured,
        Err(message) => return ScenarioEnding::Error { message },
    };
    let mut run = ScenarioRun {
        guest,
        cancellation,
        settings: &scenario.settings,
        runtime: None,
        config,
        model: Arc::new(model),
        log: LogReader::new(log),
        agents: BTreeMap::new(),
        tickets: BTreeMap::new(),
        last: None,
    };
    for (index, step) in scenario.steps.iter().enumerate() {
        if let Err(message) = run.perform(step) {
            return ScenarioEnding::Fail { step: index + 1, op: step.op.clone(), message };
        }
    }
    ScenarioEnding::Pass
}

/// The configuration of the runtime: interpreters of this machine, directories of the scenario.
fn configured(
    machine: &Config,
    scenario: &Scenario,
    directory: &std::path::Path,
    settings: &[(&str, String)],
) -> Result<Config, String> {
    let mut config = Config::defaults();
    let interpreters = machine.worker_options();
    let text = |path: Option<std::path::PathBuf>| {
        path.map_or_else(String::new, |path| path.to_string_lossy().into_owned())
    };
    let log = match scenario.settings.logging {
        Some(false) => "off".to_owned(),
        Some(true) | None => text(Some(directory.join(LOG_FILE))),
    };
    let guest = machine.agent_options().language.to_string();
    for (name, value) in UNBOUNDED.into_iter().chain([
        ("guest", guest.as_str()),
        ("state_dir", &text(Some(directory.join("state")))),
        ("log", &log),
        ("python", &text(interpreters.python)),
        ("ruby", &text(interpreters.ruby)),
        ("cache_dir", &text(Some(directory.join("cache")))),
    ]) {
        config.set(name, value).map_err(|fault| fault.to_string())?;
    }
    for (name, value) in settings {
        config.set(name, value).map_err(|fault| fault.to_string())?;
    }
    // A scenario cannot lower the sandbox tier that this machine requires.
    let minimum = interpreters.minimum_tier.name();
    config.set("minimum_sandbox_tier", minimum).map_err(|fault| fault.to_string())?;
    Ok(config)
}

/// A scenario while it runs.
pub(crate) struct ScenarioRun<'a> {
    guest: Language,
    cancellation: &'a Cancellation,
    settings: &'a ScenarioSettings,
    config: Config,
    pub(crate) model: Arc<ScriptedModel>,
    pub(crate) log: LogReader,
    agents: BTreeMap<String, NamedAgent>,
    /// Preparations by the name of their agent.
    tickets: BTreeMap<String, PreparationTicket>,
    /// The name of the agent made last.
    last: Option<String>,
    /// Dropped after the agents, since fields drop in order.
    runtime: Option<Runtime>,
}

/// An agent that steps refer to by name.
pub(crate) struct NamedAgent {
    pub(crate) agent: Agent,
    /// Whether `remember` was called on this object.
    pub(crate) remembered: bool,
}

/// Why a step failed.
enum StepFault {
    /// The library refused the operation.
    ByLibrary(AgentFault),
    /// The result is not the expected one.
    Unexpected(String),
}

impl From<AgentFault> for StepFault {
    fn from(fault: AgentFault) -> Self {
        Self::ByLibrary(fault)
    }
}

impl From<String> for StepFault {
    fn from(problem: String) -> Self {
        Self::Unexpected(problem)
    }
}

impl ScenarioRun<'_> {
    fn perform(&mut self, step: &ScenarioStep) -> Result<(), String> {
        match &step.action {
            StepAction::Do(operation, refusal) => {
                let result = self.act(operation);
                self.log.read_on()?;
                if let Some(key) = self.model.uncovered() {
                    return Err(format!(
                        "the model was asked for {key}, which the plan does not cover"
                    ));
                }
                check_refusal(result, refusal.as_ref())
            }
            StepAction::Assertion(check) => assertion::check(self, check),
        }
    }

    fn act(&mut self, operation: &Operation) -> Result<(), StepFault> {
        match operation {
            Operation::Construct { spec, session, settings } => {
                self.construct(spec, session.as_deref(), settings)
            }
            Operation::Delegate { target, spec } => {
                let child = self.agent_named(target.as_ref())?.agent.delegate(&spec.role);
                let child = contracted(child, spec).build()?;
                self.add_agent(&spec.named, child);
                Ok(())
            }
            Operation::Tool { target, name, named } => {
                let tool = self.agent_named(target.as_ref())?.agent.tool(name)?;
                self.add_agent(named, tool);
                Ok(())
            }
            Operation::Set { target, key, value } => {
                Ok(self.agent_named_mut(target.as_ref())?.1.agent.set(key, value.clone())?)
            }
            Operation::Remember { target, entries } => {
                let (_, named) = self.agent_named_mut(target.as_ref())?;
                named.agent.remember(entries.clone())?;
                named.remembered = true;
                Ok(())
            }
            Operation::Call { target, call } => self.call(target.as_ref(), call),
            Operation::TolerantDelegate { target, role, call } => {
                self.tolerant_delegate(target.as_ref(), role, call)
            }
            Operation::Prepare { spec, dependencies } => self.prepare(spec, dependencies),
            Operation::Await { target, status } => Ok(self.await_ready(target.as_ref(), status)?),
            Operation::Restart => {
                self.agents.clear();
                self.stop_preparing();
                self.last = None;
                self.runtime = None;
                Ok(())
            }
        }
    }

    fn construct(
        &mut self,
        spec: &AgentSpec,
        session: Option<&str>,
        settings: &ScenarioSettings,
    ) -> Result<(), StepFault> {
        if settings.logging.is_some_and(|logging| logging != self.settings.logging.unwrap_or(true))
        {
            let problem = "`logging` is the scenario's and cannot differ for one agent";
            return Err(StepFault::Unexpected(problem.to_owned()));
        }
        let mut options: BTreeMap<&str, &str> = BTreeMap::from(DEFAULTS);
        let given = self.settings.options.iter().chain(&settings.options);
        options.extend(given.map(|(name, value)| (*name, value.as_str())));
        let mut builder = self.runtime()?.agent(&spec.role).cancellation(self.cancellation.clone());
        builder = builder.overrides(&overrides(options)?);
        if let Some(session) = session {
            builder = builder.session(session);
        }
        let agent = contracted(builder, spec).build()?;
        self.add_agent(&spec.named, agent);
        Ok(())
    }

    fn prepare(
        &mut self,
        spec: &AgentSpec,
        dependencies: &[(String, String)],
    ) -> Result<(), StepFault> {
        let mut preparation = self.runtime()?.prepare(&spec.role);
        for (name, version) in dependencies {
            preparation = preparation.dependency(name, version);
        }
        let options = self.settings.options.iter().map(|(name, value)| (*name, value.as_str()));
        let overrides = overrides(options.collect())?;
        let cancellation = self.cancellation;
        let ticket = preparation
            .agent(|builder| {
                let builder = builder.overrides(&overrides);
                contracted(builder.cancellation(cancellation.clone()), spec)
            })
            .start();
        let agent = ticket.agent()?;
        self.tickets.insert(spec.named.clone(), ticket);
        self.add_agent(&spec.named, agent);
        Ok(())
    }

    fn await_ready(&self, target: Option<&String>, expected: &str) -> Result<(), String> {
        let name = self.name(target)?;
        let ticket =
            self.tickets.get(name).ok_or_else(|| format!("nothing was prepared for {name:?}"))?;
        let status = ticket.await_ready(READY_TIMEOUT);
        if status.name() == expected {
            return Ok(());
        }
        let why = ticket.failure().map_or_else(String::new, |failure| format!(": {failure}"));
        Err(format!("expected the preparation to be {expected}, it is {status}{why}"))
    }

    fn call(&mut self, target: Option<&String>, call: &CallSpec) -> Result<(), StepFault> {
        let (logged, asked) = (self.log.len(), self.model.calls(&CallFilter::default()));
        let (name, named) = self.agent_named_mut(target)?;
        let called = named.agent.call(&call.method, call.arguments.clone());
        // Trials run after the reply; the next step must find them decided.
        self.runtime()?.wait_for_trials();
        self.log.read_on()?;
        if self.log.len() > logged {
            self.log.attribute_newest(&name);
        }
        let outcome = match (called, &call.expected) {
            (Ok(outcome), _) => outcome.to_json(),
            (Err(fault), Some(expected))
                if expected.text("error_type") == Some(FailureKind::InvalidCall.code()) =>
            {
                refused_as_outcome(&fault)
            }
            (Err(fault), _) => return Err(fault.into()),
        };
        self.expect(call, &outcome, asked)
    }

    fn tolerant_delegate(
        &mut self,
        target: Option<&String>,
        role: &str,
        call: &CallSpec,
    ) -> Result<(), StepFault> {
        if !self.model.covers(role, &call.method) {
            self.supply(role, call)?;
        }
        let asked = self.model.calls(&CallFilter::default());
        let child = self.agent_named(target)?.agent.delegate(role).build()?;
        let outcome: Outcome = child.call(&call.method, call.arguments.clone())?;
        self.log.read_on()?;
        self.expect(call, &outcome.to_json(), asked)
    }

    /// Adds the programs that make a call end as expected, for suites of other runtimes that have no plan.
    fn supply(&self, role: &str, call: &CallSpec) -> Result<(), String> {
        let guest = self.guest;
        let method = call.method.as_str();
        let nothing = ExpectedOutcome::default();
        let expected = call.expected.as_ref().unwrap_or(&nothing);
        let built_in = |id: &str| {
            let program = ProgramTable::built_in()?.named(id)?;
            program.reply(guest).ok_or_else(|| format!("{id} has no text in {guest}"))
        };
        let error = expected.text("error_type");
        let kind = error.and_then(FailureKind::of_code);
        let reply = match (error, expected.text("status"), expected.fields.get("value")) {
            _ if kind == Some(&FailureKind::InvalidCode) => built_in("invalid_nil")?,
            _ if kind == Some(&FailureKind::Execution) => built_in("raise_boom")?,
            (None, Some("error"), _) => built_in("raise_boom")?,
            _ if kind == Some(&FailureKind::BudgetExceeded) => {
                let next = format!("{role}_next");
                let back = ScriptedReply::code(&supplied::asking(guest, role, method));
                self.model.add(&format!("{next}.{method}"), back);
                ScriptedReply::code(&supplied::asking(guest, &next, method))
            }
            (Some(error), ..) => fault_reply(error).ok_or_else(|| {
                format!(
                    "no plan covers {role}.{method} and the runner has no program that ends as \
                     {error:?}; add a `provider_plan`"
                )
            })?,
            (None, _, _) if method == "add" => built_in("add_args_0_1")?,
            (None, _, Some(value)) => ScriptedReply::code(&supplied::giving(guest, value)),
            (None, _, None) => built_in("return_42")?,
        };
        self.model.add(&format!("{role}.{method}"), reply);
        Ok(())
    }

    fn expect(&self, call: &CallSpec, outcome: &Value, asked: usize) -> Result<(), StepFault> {
        if let Some(expected) = &call.expected {
            assertion::outcome(self, expected, outcome)?;
        }
        let made = self.model.calls(&CallFilter::default()) - asked;
        match call.provider_calls {
            Some(expected) if expected != made => {
                Err(format!("expected {expected} provider calls, got {made}").into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The runtime, opened on first use.
    pub(crate) fn runtime(&mut self) -> Result<Runtime, String> {
        if let Some(runtime) = &self.runtime {
            return Ok(runtime.clone());
        }
        let builder = Runtime::builder(self.config.clone());
        let runtime = builder.provider(Arc::<ScriptedModel>::clone(&self.model)).build();
        let runtime = runtime.map_err(|fault| format!("no runtime: {fault}"))?;
        Ok(self.runtime.insert(runtime).clone())
    }

    fn add_agent(&mut self, name: &str, agent: Agent) {
        self.log.forget(name);
        self.agents.insert(name.to_owned(), NamedAgent { agent, remembered: false });
        self.last = Some(name.to_owned());
    }

    /// The agent that a step refers to.
    pub(crate) fn agent_named(&self, target: Option<&String>) -> Result<&NamedAgent, String> {
        let name = self.name(target)?;
        self.agents.get(name).ok_or_else(|| format!("no agent is named {name:?}"))
    }

    fn agent_named_mut(
        &mut self,
        target: Option<&String>,
    ) -> Result<(String, &mut NamedAgent), String> {
        let name = self.name(target)?.clone();
        match self.agents.get_mut(&name) {
            Some(named) => Ok((name, named)),
            None => Err(format!("no agent is named {name:?}")),
        }
    }

    fn name<'a>(&'a self, target: Option<&'a String>) -> Result<&'a String, String> {
        target.or(self.last.as_ref()).ok_or_else(|| "no agent was constructed yet".to_owned())
    }
}

impl ScenarioRun<'_> {
    /// Cancels preparations, which may wait for a source that never answers.
    fn stop_preparing(&mut self) {
        for (_, ticket) in std::mem::take(&mut self.tickets) {
            ticket.cancel();
            ticket.await_ready(READY_TIMEOUT);
        }
    }
}

impl Drop for ScenarioRun<'_> {
    fn drop(&mut self) {
        self.stop_preparing();
    }
}

fn contracted(mut builder: AgentBuilder, spec: &AgentSpec) -> AgentBuilder {
    if let Some(contract) = &spec.contract {
        builder = builder.contract(contract.clone());
    }
    for (name, value) in &spec.contract_fields {
        builder = builder.contract_field(name, value.clone());
    }
    builder
}

/// A refusal as the outcome that other runtimes return for it.
fn refused_as_outcome(fault: &dyn Display) -> Value {
    json!({
        "status": "error",
        "value": null,
        "error_type": FailureKind::InvalidCall.code(),
        "error_message": fault.to_string(),
        "retriable": false,
        "metadata": Map::new(),
    })
}

/// Checks that an operation succeeded, or was refused with the expected text.
fn check_refusal(
    result: Result<(), StepFault>,
    refusal: Option<&ExpectedRefusal>,
) -> Result<(), String> {
    match (result, refusal) {
        (Ok(()), None) => Ok(()),
        (Ok(()), Some(_)) => Err("expected a refusal, but the operation succeeded".to_owned()),
        (Err(StepFault::Unexpected(problem)), _) => Err(problem),
        (Err(StepFault::ByLibrary(fault)), None) => Err(format!("refused: {fault}")),
        (Err(StepFault::ByLibrary(fault)), Some(ExpectedRefusal(words))) => {
            let message = fault.to_string();
            if message.contains(words.as_str()) {
                return Ok(());
            }
            Err(format!("expected a refusal with {words:?}, got {message:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use recurgent::worker::Tier;

    use super::*;
    use crate::parse;
    use crate::program::ProgramTable;
    use crate::suite::yaml;

    #[test]
    fn a_scenario_runs_under_no_less_than_this_machine_asks_for() {
        let mut machine = Config::defaults();
        machine.set("minimum_sandbox_tier", "sealed").unwrap();
        let value = yaml("{id: a, steps: [{op: restart}]}").unwrap();
        let scenario = parse::scenario(value, &ProgramTable::built_in().unwrap()).unwrap();
        let lower = [("minimum_sandbox_tier", "process".to_owned())];
        let config = configured(&machine, &scenario, std::path::Path::new("/tmp"), &lower).unwrap();
        assert_eq!(config.worker_options().minimum_tier, Tier::Sealed);
    }
}
