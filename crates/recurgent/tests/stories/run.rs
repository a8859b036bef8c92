//! Executes the blocks of a story on a runtime and observes the results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lifecycle::artifact::ArtifactKey;
use lifecycle::example::Example;
use lifecycle::prompt::Prompt;
use lifecycle::request::{Method, Role};
use recurgent::config::Config;
use recurgent::provider::Provider;
use recurgent::store::layout;
use recurgent::{Agent, Arguments, Language, Outcome, Runtime};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::model::StoryModel;
use crate::observed::ObservedCall;
use crate::pages::Pages;
use crate::parse::{Block, StoryAnswer, StoryContent};

/// The address of pages in a story; it is replaced by the address of the server.
const PAGES_AT: &str = "http://localhost/";

/// A story while it is executed: a runtime with its own state, the model of the story, a web server.
pub(crate) struct StoryRun {
    language: Language,
    model: Arc<StoryModel>,
    pages: Option<Pages>,
    given: Map<String, Value>,
    agents: BTreeMap<String, Agent>,
    runtime: Option<Runtime>,
    state: TempDir,
}

impl StoryRun {
    pub(crate) fn new(blocks: &[Block], language: Language) -> Result<Self, String> {
        let mut pages = BTreeMap::new();
        let mut given = Map::new();
        for block in blocks {
            match &block.content {
                StoryContent::Page { path, body } => {
                    pages.insert(path.clone(), body.clone());
                }
                StoryContent::Given(more) => given.extend(more.clone()),
                StoryContent::Answer { .. }
                | StoryContent::Call { .. }
                | StoryContent::Restart
                | StoryContent::Service(_)
                | StoryContent::Reject { .. }
                | StoryContent::Teach { .. }
                | StoryContent::Import(_) => {}
            }
        }
        let pages = (!pages.is_empty()).then(|| Pages::serve(pages));
        let mut run = Self {
            language,
            model: Arc::default(),
            pages,
            given,
            agents: BTreeMap::new(),
            runtime: None,
            state: tempfile::tempdir().map_err(|error| error.to_string())?,
        };
        for block in blocks {
            let StoryContent::Answer { key, language, answer } = &block.content else { continue };
            if language.is_none_or(|language| language == run.language) {
                let answer = run.place(answer);
                run.model.add(key, answer);
            }
        }
        run.start()?;
        Ok(run)
    }

    /// Opens a runtime on the state of the story, as a new process does.
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
            return Err(format!("unknown key {unknown:?} in `given`"));
        }
        let provider = Arc::clone(&self.model) as Arc<dyn Provider>;
        let runtime = Runtime::builder(config).provider(provider).build();
        self.runtime = Some(runtime.map_err(|fault| fault.to_string())?);
        Ok(())
    }

    pub(crate) fn execute(&mut self, block: &Block) -> Result<(), String> {
        match &block.content {
            StoryContent::Given(_) | StoryContent::Page { .. } | StoryContent::Answer { .. } => {
                Ok(())
            }
            StoryContent::Restart => self.start(),
            StoryContent::Service(up) => {
                let pages = self.pages.as_mut().ok_or("the story has no pages")?;
                if *up {
                    pages.start();
                } else {
                    pages.stop();
                }
                Ok(())
            }
            StoryContent::Reject { role, method, because } => self.reject(role, method, because),
            StoryContent::Teach { role, method, example } => self.teach(role, method, example),
            StoryContent::Import(files) => self.import(files),
            StoryContent::Call { role, method, arguments, expected } => {
                let arguments = Arguments {
                    args: arguments.args.iter().map(|value| self.placed(value)).collect(),
                    kwargs: arguments.kwargs.clone(),
                };
                let before = (self.log()?.len(), self.model.asked().len());
                let called = self.agent(role)?.call(method, arguments);
                let outcome = called.map_err(|fault| fault.to_string())?;
                self.runtime()?.wait_for_trials();
                let observed = self.observe(role, method, &outcome, before)?;
                let expected = self.placed(&Value::Object(expected.clone()));
                observed.compare(&expected)
            }
        }
    }

    fn reject(&self, role: &str, method: &str, because: &str) -> Result<(), String> {
        let store = self.runtime()?.store();
        let role = Role::parse(role).map_err(|fault| fault.to_string())?;
        let stored = store.artifacts(Some(&role), 1000).map_err(|fault| fault.to_string())?;
        let found = stored.into_iter().map(|known| known.current).find(|artifact| {
            artifact.method.as_str() == method && artifact.language == self.language
        });
        let artifact = found.ok_or_else(|| format!("{role}.{method} has no program"))?;
        let key = ArtifactKey {
            role,
            method: artifact.method,
            language: artifact.language,
            contract_fingerprint: artifact.contract_fingerprint,
        };
        let rejected = store.reject(&key, None, because).map_err(|fault| fault.to_string())?;
        rejected.map(drop).ok_or_else(|| "nothing was rejected".to_owned())
    }

    fn teach(&self, role: &str, method: &str, example: &Value) -> Result<(), String> {
        let role = Role::parse(role).map_err(|fault| fault.to_string())?;
        let method = Method::parse(method).map_err(|fault| fault.to_string())?;
        let example = Example::parse(example).map_err(|fault| fault.to_string())?;
        let kept = self.runtime()?.store().teach(&role, &method, &example);
        if kept.map_err(|fault| fault.to_string())? { Ok(()) } else { Err("not kept".to_owned()) }
    }

    /// Writes the files to a folder and imports it. A file that is refused fails the story.
    fn import(&self, files: &Map<String, Value>) -> Result<(), String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        for (path, content) in files {
            let path = folder.path().join(path);
            let parent = path.parent().ok_or("a file needs a name")?;
            std::fs::create_dir_all(parent).map_err(|error| error.to_string())?;
            std::fs::write(path, content.to_string()).map_err(|error| error.to_string())?;
        }
        let read = layout::read(folder.path()).map_err(|fault| fault.to_string())?;
        if !read.refused.is_empty() {
            return Err(format!("refused: {:?}", read.refused));
        }
        let merged = self.runtime()?.store().merge(&read.bundle);
        merged.map(drop).map_err(|fault| fault.to_string())
    }

    fn runtime(&self) -> Result<&Runtime, String> {
        self.runtime.as_ref().ok_or_else(|| "the runtime is gone".to_owned())
    }

    /// Fails if the model has answers that were not used.
    pub(crate) fn finish(&self) -> Result<(), String> {
        match self.model.unused() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("the model was never asked for {}", left.join(", "))),
        }
    }

    /// The agent of a role, made on its first call.
    fn agent(&mut self, role: &str) -> Result<&mut Agent, String> {
        if !self.agents.contains_key(role) {
            let runtime = self.runtime()?;
            let mut builder = runtime.agent(role).guest(self.language);
            if let Some(Value::Object(contract)) = section(&self.given, "contracts")?.remove(role) {
                builder = builder.contract(contract);
            }
            if let Some(Value::String(session)) = section(&self.given, "sessions")?.remove(role) {
                builder = builder.session(&session);
            }
            let agent = builder.build().map_err(|fault| fault.to_string())?;
            if let Some(Value::Object(memory)) = section(&self.given, "memory")?.remove(role) {
                agent.remember(memory).map_err(|fault| fault.to_string())?;
            }
            self.agents.insert(role.to_owned(), agent);
        }
        self.agents.get_mut(role).ok_or_else(|| "no such agent".to_owned())
    }

    /// The log entries written so far.
    fn log(&self) -> Result<Vec<Value>, String> {
        let path = self.state.path().join("recurgent.jsonl");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).map_err(|e| e.to_string())).collect()
    }

    fn observe(
        &self,
        role: &str,
        method: &str,
        outcome: &Outcome,
        (logged, asked): (usize, usize),
    ) -> Result<ObservedCall, String> {
        let mut lines = self.log()?.split_off(logged);
        let line = lines.pop().unwrap_or_default();
        let mut inside: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for child in &lines {
            let name = format!("{}.{}", text(child, "role"), text(child, "method"));
            inside.entry(name).or_default().extend(attempt_codes(child));
        }
        let asked = self.model.asked().split_off(asked);
        let key = format!("{role}.{method}");
        let last = asked.iter().rev().find(|(asked, _)| *asked == key);
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (key, _) in &asked {
            *counts.entry(key).or_default() += 1;
        }
        let runtime = self.runtime()?;
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
        Ok(ObservedCall {
            outcome: outcome.clone(),
            facts: BTreeMap::from([
                ("attempts", json!(attempt_codes(&line))),
                ("lanes", lanes(&line)),
                ("asked", json!(counts)),
                ("inside", json!(inside)),
                ("memory", json!(memory)),
                ("tools", json!(tools)),
                ("pressure", json!(pressure)),
                ("feedback", last.map_or(Value::Null, |(_, prompt)| feedback(prompt))),
                ("log", line),
            ]),
        })
    }

    /// Replaces the address of pages by the address of the server.
    fn placed(&self, value: &Value) -> Value {
        let Some(pages) = &self.pages else { return value.clone() };
        let text = value.to_string().replace(PAGES_AT, &pages.url());
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    fn place(&self, answer: &StoryAnswer) -> StoryAnswer {
        match answer {
            StoryAnswer::Payload(payload) => StoryAnswer::Payload(self.placed(payload)),
            StoryAnswer::Fault(fault) => StoryAnswer::Fault(fault.clone()),
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

/// The end of each attempt: `accepted`, the guardrail it broke, or the type of its failure.
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

/// The number of rejections by lane.
fn lanes(line: &Value) -> Value {
    let mut lanes: BTreeMap<&str, u64> = BTreeMap::new();
    for attempt in line.get("attempts").and_then(Value::as_array).into_iter().flatten() {
        if let Some(lane) = attempt.get("lane").and_then(Value::as_str) {
            *lanes.entry(lane).or_default() += 1;
        }
    }
    json!(lanes)
}

/// The feedback of a prompt on the attempt before it.
fn feedback(prompt: &Prompt) -> Value {
    let line = prompt.user.lines().find_map(|line| line.strip_prefix("feedback: "));
    line.and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null)
}
