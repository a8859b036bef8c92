//! Living through a story: what is given, who is called, what is seen afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lifecycle::prompt::Prompt;
use recurgent::config::Config;
use recurgent::provider::Provider;
use recurgent::{Agent, Arguments, Language, Outcome, Runtime};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::comparing::Seen;
use crate::model::Model;
use crate::pages::Pages;
use crate::reading::{Answer, Part, Says};

/// Where a story says its pages are; replaced by where they really are.
const PAGES_AT: &str = "http://localhost/";

/// Everything a story happens in: a runtime with its own state, a model that says what is written, pages.
pub(crate) struct World {
    language: Language,
    model: Arc<Model>,
    pages: Option<Pages>,
    given: Map<String, Value>,
    agents: BTreeMap<String, Agent>,
    runtime: Option<Runtime>,
    state: TempDir,
}

impl World {
    pub(crate) fn new(parts: &[Part], language: Language) -> Result<Self, String> {
        let mut pages = BTreeMap::new();
        let mut given = Map::new();
        for part in parts {
            match &part.says {
                Says::Page { path, body } => {
                    pages.insert(path.clone(), body.clone());
                }
                Says::Given(more) => given.extend(more.clone()),
                Says::Answer { .. } | Says::Call { .. } | Says::Restart => {}
            }
        }
        let pages = (!pages.is_empty()).then(|| Pages::serve(pages));
        let mut world = Self {
            language,
            model: Arc::default(),
            pages,
            given,
            agents: BTreeMap::new(),
            runtime: None,
            state: tempfile::tempdir().map_err(|error| error.to_string())?,
        };
        for part in parts {
            let Says::Answer { key, language, answer } = &part.says else { continue };
            if language.is_none_or(|language| language == world.language) {
                let answer = world.place(answer);
                world.model.will(key, answer);
            }
        }
        world.start()?;
        Ok(world)
    }

    /// A runtime on the story's state, as a new process would make one.
    fn start(&mut self) -> Result<(), String> {
        self.agents.clear();
        self.runtime = None;
        let mut config = Config::defaults();
        let state = self.state.path().display().to_string();
        config.set("state_dir", &state).map_err(|fault| fault.to_string())?;
        config.set("network", "loopback").map_err(|fault| fault.to_string())?; // the pages are there
        for (key, value) in section(&self.given, "settings")? {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            config.set(&key, &text).map_err(|fault| fault.to_string())?;
        }
        if let Some(unknown) = self
            .given
            .keys()
            .find(|key| !matches!(key.as_str(), "settings" | "memory" | "contracts" | "sessions"))
        {
            return Err(format!("nothing can be given as {unknown:?}"));
        }
        let provider = Arc::clone(&self.model) as Arc<dyn Provider>;
        let runtime = Runtime::builder(config).provider(provider).build();
        self.runtime = Some(runtime.map_err(|fault| fault.to_string())?);
        Ok(())
    }

    pub(crate) fn live(&mut self, part: &Part) -> Result<(), String> {
        match &part.says {
            Says::Given(_) | Says::Page { .. } | Says::Answer { .. } => Ok(()),
            Says::Restart => self.start(),
            Says::Call { role, method, arguments, expected } => {
                let arguments = Arguments {
                    args: arguments.args.iter().map(|value| self.placed(value)).collect(),
                    kwargs: arguments.kwargs.clone(),
                };
                let before = (self.log()?.len(), self.model.asked().len());
                let called = self.agent(role)?.call(method, arguments);
                let outcome = called.map_err(|fault| fault.to_string())?;
                self.runtime.as_ref().ok_or("the runtime is gone")?.wait_for_trials();
                let seen = self.seen(role, method, &outcome, before)?;
                let expected = self.placed(&Value::Object(expected.clone()));
                seen.compare(&expected)
            }
        }
    }

    /// What is written and was never asked for did not happen.
    pub(crate) fn end(&self) -> Result<(), String> {
        match self.model.left() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("the model was never asked for {}", left.join(", "))),
        }
    }

    /// The agent of a role, made when it is first named.
    fn agent(&mut self, role: &str) -> Result<&mut Agent, String> {
        if !self.agents.contains_key(role) {
            let runtime = self.runtime.as_ref().ok_or("the runtime is gone")?;
            let mut builder = runtime.agent(role).guest(self.language);
            if let Some(Value::Object(contract)) = section(&self.given, "contracts")?.remove(role) {
                builder = builder.contract(contract);
            }
            if let Some(Value::String(session)) = section(&self.given, "sessions")?.remove(role) {
                builder = builder.session(&session);
            }
            let mut agent = builder.build().map_err(|fault| fault.to_string())?;
            if let Some(Value::Object(memory)) = section(&self.given, "memory")?.remove(role) {
                agent.remember(memory).map_err(|fault| fault.to_string())?;
            }
            self.agents.insert(role.to_owned(), agent);
        }
        self.agents.get_mut(role).ok_or_else(|| "no such agent".to_owned())
    }

    /// The log so far.
    fn log(&self) -> Result<Vec<Value>, String> {
        let path = self.state.path().join("recurgent.jsonl");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).map_err(|e| e.to_string())).collect()
    }

    fn seen(
        &self,
        role: &str,
        method: &str,
        outcome: &Outcome,
        (logged, asked): (usize, usize),
    ) -> Result<Seen, String> {
        let mut lines = self.log()?.split_off(logged);
        let line = lines.pop().unwrap_or_default();
        let mut inside: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for child in &lines {
            let name = format!("{}.{}", text(child, "role"), text(child, "method"));
            inside.entry(name).or_default().extend(attempt_codes(child));
        }
        let asked = self.model.asked().split_off(asked);
        let key = format!("{role}.{method}");
        let told = asked.iter().rev().find(|(asked, _)| *asked == key);
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (key, _) in &asked {
            *counts.entry(key).or_default() += 1;
        }
        let runtime = self.runtime.as_ref().ok_or("the runtime is gone")?;
        let tools = runtime.store().tools(None, 1000).map_err(|fault| fault.to_string())?;
        let tools: BTreeSet<&str> = tools.iter().map(|known| known.tool.name.as_str()).collect();
        let agent = self.agents.get(role).ok_or("no such agent")?;
        let pressure = runtime.store().exhaustions(agent.role()).map_err(|f| f.to_string())?;
        let pressure: BTreeMap<String, Value> = pressure
            .iter()
            .map(|of| {
                (of.method.to_string(), json!({"guardrail": of.guardrail, "outcome": of.outcome}))
            })
            .collect();
        let memory = agent.runtime_context().to_object();
        Ok(Seen {
            outcome: outcome.clone(),
            facts: BTreeMap::from([
                ("attempts", json!(attempt_codes(&line))),
                ("lanes", lanes(&line)),
                ("asked", json!(counts)),
                ("inside", json!(inside)),
                ("memory", json!(memory)),
                ("tools", json!(tools)),
                ("pressure", json!(pressure)),
                ("told", told.map_or(Value::Null, |(_, prompt)| feedback(prompt))),
                ("log", line),
            ]),
        })
    }

    /// With the addresses of pages as they really are.
    fn placed(&self, value: &Value) -> Value {
        let Some(pages) = &self.pages else { return value.clone() };
        let text = value.to_string().replace(PAGES_AT, &pages.url());
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    fn place(&self, answer: &Answer) -> Answer {
        match answer {
            Answer::Payload(payload) => Answer::Payload(self.placed(payload)),
            Answer::Fault(fault) => Answer::Fault(fault.clone()),
        }
    }
}

fn section(given: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, String> {
    match given.get(name) {
        None => Ok(Map::new()),
        Some(Value::Object(section)) => Ok(section.clone()),
        Some(other) => Err(format!("`{name}` must be a map, not {other}")),
    }
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// How each attempt ended: `accepted`, the guardrail it broke, or the type of its failure.
fn attempt_codes(line: &Value) -> Vec<Value> {
    let attempts = line.get("attempts").and_then(Value::as_array).into_iter().flatten();
    attempts
        .map(|attempt| match attempt.get("failure").filter(|failure| !failure.is_null()) {
            None => json!("accepted"),
            Some(failure) => failure
                .pointer("/violation/violation_subtype")
                .or(failure.get("error_type"))
                .cloned()
                .unwrap_or_default(),
        })
        .collect()
}

/// Rejections per lane.
fn lanes(line: &Value) -> Value {
    let mut lanes: BTreeMap<&str, u64> = BTreeMap::new();
    for attempt in line.get("attempts").and_then(Value::as_array).into_iter().flatten() {
        if let Some(lane) = attempt.get("lane").and_then(Value::as_str) {
            *lanes.entry(lane).or_default() += 1;
        }
    }
    json!(lanes)
}

/// The block a prompt tells of the attempt before it.
fn feedback(prompt: &Prompt) -> Value {
    let told = prompt.user.lines().find_map(|line| line.strip_prefix("feedback: "));
    told.and_then(|told| serde_json::from_str(told).ok()).unwrap_or(Value::Null)
}
