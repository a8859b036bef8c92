//! One scenario, played on a runtime of its own.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use recurgent::config::Config;
use recurgent::{
    Agent, AgentBuilder, AgentFault, Cancellation, Language, Outcome, PreparationTicket, Runtime,
};
use serde_json::{Map, Value, json};

use super::check;
use super::journal::Journal;
use super::literal;
use super::program::{Programs, Reply, fault_reply};
use super::report::Ending;
use super::scenario::{
    Action, Calling, Doing, Expected, Making, Naming, Refusal, Scenario, Settings, Step,
};
use super::witness::Witness;

/// Longest a preparation is waited for.
const PATIENCE: Duration = Duration::from_mins(2);
/// The log of a scenario, in its directory.
const LOG_FILE: &str = "log.jsonl";
/// An agent's options may only narrow these two, so the runtime is given more than anyone will ask for.
const UNBOUNDED: [(&str, &str); 2] =
    [("max_delegation_depth", "255"), ("max_model_calls", "4294967295")];
/// What agents get of them when nothing is said, and the name of the model.
const DEFAULTS: [(&str, &str); 3] =
    [("max_delegation_depth", "8"), ("max_model_calls", "64"), ("model", "scripted")];

/// Plays a scenario to its end or its first failing step.
pub(super) fn play(scenario: &Scenario, config: &Config, cancellation: &Cancellation) -> Ending {
    let guest = config.agent_options().language;
    if scenario.guests.as_ref().is_some_and(|guests| !guests.contains(&guest)) {
        return Ending::Skip { message: format!("not for {guest}") };
    }
    let Some(witness) = Witness::of(scenario, guest) else {
        return Ending::Skip {
            message: format!("its plan has a program without a text in {guest}"),
        };
    };
    let directory = match tempfile::Builder::new().prefix("recurgent-conformance-").tempdir() {
        Ok(directory) => directory,
        Err(error) => return Ending::Error { message: format!("no directory for it: {error}") },
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
        Err(message) => return Ending::Error { message },
    };
    let mut stage = Stage {
        guest,
        cancellation,
        settings: &scenario.settings,
        runtime: None,
        config,
        witness: Arc::new(witness),
        journal: Journal::new(log),
        agents: BTreeMap::new(),
        tickets: BTreeMap::new(),
        last: None,
    };
    for (index, step) in scenario.steps.iter().enumerate() {
        if let Err(message) = stage.perform(step) {
            return Ending::Fail { step: index + 1, op: step.op.clone(), message };
        }
    }
    Ending::Pass
}

/// The runtime's configuration: this machine's interpreters, the scenario's directory.
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
    // What a scenario's programs may not do is for this machine to say.
    let minimum = interpreters.minimum_tier.name();
    config.set("minimum_sandbox_tier", minimum).map_err(|fault| fault.to_string())?;
    Ok(config)
}

/// Everything a scenario has of its own.
pub(super) struct Stage<'a> {
    guest: Language,
    cancellation: &'a Cancellation,
    settings: &'a Settings,
    config: Config,
    pub(super) witness: Arc<Witness>,
    pub(super) journal: Journal,
    agents: BTreeMap<String, Actor>,
    /// What is being prepared, by the name of its agent.
    tickets: BTreeMap<String, PreparationTicket>,
    /// The agent made last.
    last: Option<String>,
    /// Dropped after the agents.
    runtime: Option<Runtime>,
}

/// An agent under the name steps know it by.
pub(super) struct Actor {
    pub(super) agent: Agent,
    /// Whether `remember` was used on this very object.
    pub(super) remembered: bool,
}

/// Why an operation did not happen.
enum Refused {
    /// The library said no.
    ByLibrary(AgentFault),
    /// What came of it is not what was expected.
    Unexpected(String),
}

impl From<AgentFault> for Refused {
    fn from(fault: AgentFault) -> Self {
        Self::ByLibrary(fault)
    }
}

impl From<String> for Refused {
    fn from(problem: String) -> Self {
        Self::Unexpected(problem)
    }
}

impl Stage<'_> {
    fn perform(&mut self, step: &Step) -> Result<(), String> {
        match &step.action {
            Action::Do(doing, refusal) => {
                let done = self.act(doing);
                self.journal.read_on()?;
                if let Some(key) = self.witness.uncovered() {
                    return Err(format!(
                        "the model was asked for {key}, which the plan does not cover"
                    ));
                }
                settled(done, refusal.as_ref())
            }
            Action::Check(check) => check::check(self, check),
        }
    }

    fn act(&mut self, doing: &Doing) -> Result<(), Refused> {
        match doing {
            Doing::Construct { making, session, settings } => {
                self.construct(making, session.as_deref(), settings)
            }
            Doing::Delegate { target, making } => {
                let child = self.actor(target.as_ref())?.agent.delegate(&making.role);
                let child = contracted(child, making).build()?;
                self.admit(&making.named, child);
                Ok(())
            }
            Doing::Tool { target, name, named } => {
                let tool = self.actor(target.as_ref())?.agent.tool(name)?;
                self.admit(named, tool);
                Ok(())
            }
            Doing::Set { target, key, value } => {
                Ok(self.actor_mut(target.as_ref())?.1.agent.set(key, value.clone())?)
            }
            Doing::Remember { target, entries } => {
                let (_, actor) = self.actor_mut(target.as_ref())?;
                actor.agent.remember(entries.clone())?;
                actor.remembered = true;
                Ok(())
            }
            Doing::Call { target, calling } => self.call(target.as_ref(), calling),
            Doing::TolerantDelegate { target, role, calling } => {
                self.tolerant_delegate(target.as_ref(), role, calling)
            }
            Doing::Prepare { making, dependencies } => self.prepare(making, dependencies),
            Doing::Await { target, status } => Ok(self.await_ready(target.as_ref(), status)?),
            Doing::Restart => {
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
        making: &Making,
        session: Option<&str>,
        settings: &Settings,
    ) -> Result<(), Refused> {
        if settings.logging.is_some_and(|logging| logging != self.settings.logging.unwrap_or(true))
        {
            let problem = "`logging` is the scenario's and cannot differ for one agent";
            return Err(Refused::Unexpected(problem.to_owned()));
        }
        let mut options: BTreeMap<&str, &str> = BTreeMap::from(DEFAULTS);
        let given = self.settings.options.iter().chain(&settings.options);
        options.extend(given.map(|(name, value)| (*name, value.as_str())));
        let mut builder =
            self.runtime()?.agent(&making.role).cancellation(self.cancellation.clone());
        for (name, value) in options {
            builder = builder.option(name, value);
        }
        if let Some(session) = session {
            builder = builder.session(session);
        }
        let agent = contracted(builder, making).build()?;
        self.admit(&making.named, agent);
        Ok(())
    }

    fn prepare(
        &mut self,
        making: &Making,
        dependencies: &[(String, String)],
    ) -> Result<(), Refused> {
        let mut preparation = self.runtime()?.prepare(&making.role);
        for (name, version) in dependencies {
            preparation = preparation.dependency(name, version);
        }
        let (options, cancellation) = (&self.settings.options, self.cancellation);
        let ticket = preparation
            .agent(|mut builder| {
                for (name, value) in options {
                    builder = builder.option(name, value);
                }
                contracted(builder.cancellation(cancellation.clone()), making)
            })
            .start();
        let agent = ticket.agent()?;
        self.tickets.insert(making.named.clone(), ticket);
        self.admit(&making.named, agent);
        Ok(())
    }

    fn await_ready(&self, target: Option<&String>, expected: &str) -> Result<(), String> {
        let name = self.name(target)?;
        let ticket =
            self.tickets.get(name).ok_or_else(|| format!("nothing was prepared for {name:?}"))?;
        let status = ticket.await_ready(PATIENCE);
        if status.name() == expected {
            return Ok(());
        }
        let why = ticket.failure().map_or_else(String::new, |failure| format!(": {failure}"));
        Err(format!("expected the preparation to be {expected}, it is {status}{why}"))
    }

    fn call(&mut self, target: Option<&String>, calling: &Calling) -> Result<(), Refused> {
        let (logged, asked) = (self.journal.len(), self.witness.calls(&Naming::default()));
        let (name, actor) = self.actor_mut(target)?;
        let called = actor.agent.call(&calling.method, calling.arguments.clone());
        // What is decided after the reply is decided before the next step.
        self.runtime()?.wait_for_trials();
        self.journal.read_on()?;
        if self.journal.len() > logged {
            self.journal.attribute_newest(&name);
        }
        let outcome = match (called, &calling.expected) {
            (Ok(outcome), _) => outcome.to_json(),
            (Err(fault), Some(expected)) if expected.text("error_type") == Some("invalid_call") => {
                refused_as_outcome(&fault)
            }
            (Err(fault), _) => return Err(fault.into()),
        };
        self.expect(calling, &outcome, asked)
    }

    fn tolerant_delegate(
        &mut self,
        target: Option<&String>,
        role: &str,
        calling: &Calling,
    ) -> Result<(), Refused> {
        if !self.witness.covers(role, &calling.method) {
            self.supply(role, calling)?;
        }
        let asked = self.witness.calls(&Naming::default());
        let mut child = self.actor(target)?.agent.delegate(role).build()?;
        let outcome: Outcome = child.call(&calling.method, calling.arguments.clone())?;
        self.journal.read_on()?;
        self.expect(calling, &outcome.to_json(), asked)
    }

    /// Adds the programs that make a call end as it is expected to.
    fn supply(&self, role: &str, calling: &Calling) -> Result<(), String> {
        let guest = self.guest;
        let method = calling.method.as_str();
        let nothing = Expected::default();
        let expected = calling.expected.as_ref().unwrap_or(&nothing);
        let built_in = |id: &str| {
            let program = Programs::built_in()?.named(id)?;
            program.reply(guest).ok_or_else(|| format!("{id} has no text in {guest}"))
        };
        let error = expected.text("error_type");
        let reply = match (error, expected.text("status"), expected.fields.get("value")) {
            (Some("invalid_code"), ..) => built_in("invalid_nil")?,
            (Some("execution"), ..) | (None, Some("error"), _) => built_in("raise_boom")?,
            (Some("budget_exceeded"), ..) => {
                let next = format!("{role}_next");
                let back = Reply::code(&literal::asking(guest, role, method));
                self.witness.add(&format!("{next}.{method}"), back);
                Reply::code(&literal::asking(guest, &next, method))
            }
            (Some(error), ..) => {
                fault_reply(error).unwrap_or_else(|| Reply::code(&literal::failing(guest, error)))
            }
            (None, _, _) if method == "add" => built_in("add_args_0_1")?,
            (None, _, Some(value)) => Reply::code(&literal::giving(guest, value)),
            (None, _, None) => built_in("return_42")?,
        };
        self.witness.add(&format!("{role}.{method}"), reply);
        Ok(())
    }

    fn expect(&self, calling: &Calling, outcome: &Value, asked: usize) -> Result<(), Refused> {
        if let Some(expected) = &calling.expected {
            check::outcome(self, expected, outcome)?;
        }
        let made = self.witness.calls(&Naming::default()) - asked;
        match calling.provider_calls {
            Some(expected) if expected != made => {
                Err(format!("expected {expected} provider calls, got {made}").into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The runtime, opened when it is needed.
    pub(super) fn runtime(&mut self) -> Result<Runtime, String> {
        if let Some(runtime) = &self.runtime {
            return Ok(runtime.clone());
        }
        let builder = Runtime::builder(self.config.clone());
        let runtime = builder.provider(Arc::<Witness>::clone(&self.witness)).build();
        let runtime = runtime.map_err(|fault| format!("no runtime: {fault}"))?;
        Ok(self.runtime.insert(runtime).clone())
    }

    fn admit(&mut self, name: &str, agent: Agent) {
        self.journal.forget(name);
        self.agents.insert(name.to_owned(), Actor { agent, remembered: false });
        self.last = Some(name.to_owned());
    }

    /// The agent a step means.
    pub(super) fn actor(&self, target: Option<&String>) -> Result<&Actor, String> {
        let name = self.name(target)?;
        self.agents.get(name).ok_or_else(|| format!("no agent is named {name:?}"))
    }

    fn actor_mut(&mut self, target: Option<&String>) -> Result<(String, &mut Actor), String> {
        let name = self.name(target)?.clone();
        match self.agents.get_mut(&name) {
            Some(actor) => Ok((name, actor)),
            None => Err(format!("no agent is named {name:?}")),
        }
    }

    fn name<'a>(&'a self, target: Option<&'a String>) -> Result<&'a String, String> {
        target.or(self.last.as_ref()).ok_or_else(|| "no agent was constructed yet".to_owned())
    }
}

impl Stage<'_> {
    /// What still waits for a source that never answers is not waited for.
    fn stop_preparing(&mut self) {
        for (_, ticket) in std::mem::take(&mut self.tickets) {
            ticket.cancel();
            ticket.await_ready(PATIENCE);
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.stop_preparing();
    }
}

fn contracted(mut builder: AgentBuilder, making: &Making) -> AgentBuilder {
    if let Some(contract) = &making.contract {
        builder = builder.contract(contract.clone());
    }
    for (name, value) in &making.contract_fields {
        builder = builder.contract_field(name, value.clone());
    }
    builder
}

/// A refusal, as the outcome other runtimes give for it.
fn refused_as_outcome(fault: &dyn Display) -> Value {
    json!({
        "status": "error",
        "value": null,
        "error_type": "invalid_call",
        "error_message": fault.to_string(),
        "retriable": false,
        "metadata": Map::new(),
    })
}

/// Whether an operation went as its step says: done, or refused in the right words.
fn settled(done: Result<(), Refused>, refusal: Option<&Refusal>) -> Result<(), String> {
    match (done, refusal) {
        (Ok(()), None) => Ok(()),
        (Ok(()), Some(_)) => Err("expected a refusal, but it was done".to_owned()),
        (Err(Refused::Unexpected(problem)), _) => Err(problem),
        (Err(Refused::ByLibrary(fault)), None) => Err(format!("refused: {fault}")),
        (Err(Refused::ByLibrary(fault)), Some(Refusal(words))) => {
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
    use crate::conformance::parse;
    use crate::conformance::program::Programs;
    use crate::conformance::suite::yaml;

    #[test]
    fn a_scenario_runs_under_no_less_than_this_machine_asks_for() {
        let mut machine = Config::defaults();
        machine.set("minimum_sandbox_tier", "sealed").unwrap();
        let value = yaml("{id: a, steps: [{op: restart}]}").unwrap();
        let scenario = parse::scenario(value, &Programs::built_in().unwrap()).unwrap();
        let lower = [("minimum_sandbox_tier", "process".to_owned())];
        let config = configured(&machine, &scenario, std::path::Path::new("/tmp"), &lower).unwrap();
        assert_eq!(config.worker_options().minimum_tier, Tier::Sealed);
    }
}
