//! Stories: `docs/stories/*.md`, read and executed on every guest with real workers. A story that says something
//! untrue fails. The format is described in `docs/stories/README.md`.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lifecycle::draft::{Draft, DraftFault, Usage};
use lifecycle::prompt::Prompt;
use recurgent::config::Config;
use recurgent::provider::{DraftLimits, Provider};
use recurgent::{Agent, Arguments, Language, Outcome, Runtime};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Where a story says its pages are; replaced by where they really are.
const PAGES_AT: &str = "http://localhost/";

/// Reads a story and lives through it in one language. The first untrue word is the error.
fn check(story: &str, language: Language) -> Result<(), String> {
    let parts = read(story)?;
    let mut world = World::new(&parts, language)?;
    for part in &parts {
        world.live(part).map_err(|problem| format!("line {}: {problem}", part.line))?;
    }
    world.end()
}

/// Executes one story of the folder on both guests.
fn tell(name: &str) {
    let story = std::fs::read_to_string(folder().join(name)).unwrap();
    for language in Language::ALL {
        if let Err(problem) = check(&story, language) {
            panic!("docs/stories/{name}, in {language}: {problem}");
        }
    }
}

macro_rules! stories {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(#[test] fn $name() { tell($file); })*
        const TOLD: &[&str] = &[$($file),*];
    };
}

stories! {
    a_method_on_an_agent = "01-a-method-on-an-agent.md",
    an_answer_that_asks_for_another_try = "02-an-answer-that-asks-for-another-try.md",
    an_honest_no = "03-an-honest-no.md",
    four_mishaps_in_one_call = "04-four-mishaps-in-one-call.md",
    movie_night = "05-movie-night.md",
    three_feeds = "06-three-feeds.md",
    the_tool_that_never_was = "07-the-tool-that-never-was.md",
    a_clean_desk = "08-a-clean-desk.md",
    no_second_chance = "09-no-second-chance.md",
    out_of_second_chances = "10-out-of-second-chances.md",
    asked_twice = "11-asked-twice.md",
}

#[test]
fn every_story_is_told() {
    let written: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    let told: BTreeSet<String> = TOLD.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(written, told);
}

/// A true story, and every way to make it untrue.
#[test]
fn a_story_that_says_something_untrue_fails() {
    let story = std::fs::read_to_string(folder().join("01-a-method-on-an-agent.md")).unwrap();
    check(&story, Language::Python).unwrap();
    for (truth, lie) in [
        ("gives: Dune is on shelf 4", "gives: Dune is on shelf 5"),
        ("attempts: [singleton_method_mutation, accepted]", "attempts: [accepted]"),
        ("lanes: {guardrail: 1}", "lanes: {}"),
        ("asked: {library.shelve: 2}", "asked: {library.shelve: 1}"),
        ("memory: {Dune: 4}\n", "memory: {}\n"),
        ("tools: []", "tools: [catalogue]"),
        ("remaining_guardrail_budget: 0", "remaining_guardrail_budget: 1"),
        ("rollback_applied: true", "rollback_applied: false"),
        ("attempts: [singleton_method_mutation, accepted]\n", ""),
        ("memory: {Dune: 4}\n", "remembers: {Dune: 4}\n"),
        ("```python library.shelve", "```python library.store"),
        ("```call", "```cal"),
    ] {
        assert!(story.contains(truth), "{truth:?} is not in the story");
        let untrue = story.replacen(truth, lie, 1);
        assert!(check(&untrue, Language::Python).is_err(), "{lie:?} was believed");
    }
    let unheard = format!(
        "{story}\n```python library.shelve\nresult = 1\n```\n```ruby library.shelve\n1\n```\n"
    );
    let problem = check(&unheard, Language::Python).unwrap_err();
    assert!(problem.contains("never asked"), "{problem}");
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stories")
}

// ---- Reading ----

/// One fenced block that means something.
struct Part {
    line: usize,
    says: Says,
}

enum Says {
    /// How things are before anything is called.
    Given(Map<String, Value>),
    /// What is at an address.
    Page { path: String, body: String },
    /// What the model answers, in one language or as it fails.
    Answer { key: String, language: Option<Language>, answer: Answer },
    /// Somebody calls an agent, and this comes of it.
    Call { role: String, method: String, arguments: Arguments, expected: Map<String, Value> },
    /// The process ends and another begins.
    Restart,
}

#[derive(Clone)]
enum Answer {
    Payload(Value),
    Fault(DraftFault),
}

/// Every block of the document that means something; one that is unknown is an error.
fn read(story: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut lines = story.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let says = understand(info.trim(), &body.join("\n"))
            .map_err(|problem| format!("line {}: {problem}", number + 1))?;
        parts.extend(says.map(|says| Part { line: number + 1, says }));
    }
    Ok(parts)
}

fn understand(info: &str, body: &str) -> Result<Option<Says>, String> {
    let (kind, name) = info.split_once(' ').unwrap_or((info, ""));
    let answer = |language: Option<Language>, answer| {
        Ok(Some(Says::Answer { key: name.to_owned(), language, answer }))
    };
    match kind {
        "text" => Ok(None),
        "given" => Ok(Some(Says::Given(yaml(body)?))),
        "restart" => Ok(Some(Says::Restart)),
        "page" => Ok(Some(Says::Page { path: name.to_owned(), body: body.to_owned() })),
        "python" | "ruby" => {
            answer(kind.parse().ok(), Answer::Payload(json!({"code": format!("{body}\n")})))
        }
        "payload" => answer(None, Answer::Payload(yaml(body)?)),
        "fault" => answer(None, Answer::Fault(fault(body.trim())?)),
        "call" => understand_call(body).map(Some),
        other => Err(format!("no block is called {other:?}")),
    }
}

fn fault(name: &str) -> Result<DraftFault, String> {
    Ok(match name {
        "provider" => DraftFault::Unavailable("the service answered 500".to_owned()),
        "rate_limited" => {
            DraftFault::RateLimited { message: "slow down".to_owned(), retry_after: None }
        }
        "provider_auth" => DraftFault::Auth("the key was refused".to_owned()),
        "provider_refusal" => DraftFault::Refused("the model declined".to_owned()),
        "truncated" => DraftFault::Truncated,
        other => return Err(format!("no fault is called {other:?}")),
    })
}

/// `role.method(arguments)`, and below it what comes of it.
fn understand_call(body: &str) -> Result<Says, String> {
    let (call, expected) = body.split_once('\n').ok_or("say what comes of the call")?;
    let (name, arguments) = call
        .strip_suffix(')')
        .and_then(|call| call.split_once('('))
        .ok_or_else(|| format!("{call:?} is not role.method(arguments)"))?;
    let (role, method) =
        name.rsplit_once('.').ok_or_else(|| format!("{name:?} names no method"))?;
    // YAML reads `["Dune", shelf: 3]` as a text and a map of one pair.
    let listed: Vec<Value> = yaml(&format!("[{arguments}]"))?;
    let (mut args, mut kwargs) = (Vec::new(), Map::new());
    for argument in listed {
        if let Value::Object(named) = argument {
            kwargs.extend(named);
        } else {
            args.push(argument);
        }
    }
    Ok(Says::Call {
        role: role.to_owned(),
        method: method.to_owned(),
        arguments: Arguments { args, kwargs },
        expected: yaml(expected)?,
    })
}

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_norway::from_str(text).map_err(|error| format!("{error} in\n{text}"))
}

// ---- Living through it ----

/// Everything a story happens in: a runtime with its own state, a model that says what is written, pages.
struct World {
    language: Language,
    model: Arc<Model>,
    pages: Option<Pages>,
    given: Map<String, Value>,
    agents: BTreeMap<String, Agent>,
    runtime: Option<Runtime>,
    state: TempDir,
}

impl World {
    fn new(parts: &[Part], language: Language) -> Result<Self, String> {
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

    fn live(&mut self, part: &Part) -> Result<(), String> {
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
    fn end(&self) -> Result<(), String> {
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

// ---- Comparing ----

/// What came of a call.
struct Seen {
    outcome: Outcome,
    facts: BTreeMap<&'static str, Value>,
}

impl Seen {
    /// A story must say how a call ended, by which attempts, and whom that took; the rest is up to it.
    fn compare(&self, expected: &Value) -> Result<(), String> {
        let expected = expected.as_object().ok_or("what comes of a call is a map")?;
        let ends = ["gives", "includes", "fails"].iter().filter(|key| expected.contains_key(**key));
        if ends.count() != 1 {
            return Err("say one of `gives`, `includes`, `fails`".to_owned());
        }
        for key in ["attempts", "asked"] {
            if !expected.contains_key(key) {
                return Err(format!("say `{key}`"));
            }
        }
        for (key, expected) in expected {
            let (actual, holds) = self.holds(key, expected)?;
            if !holds {
                let mut problem = format!("{key} is {actual}, not {expected}");
                if let Some(failure) = self.outcome.failure() {
                    let _ = write!(problem, "; the outcome is {failure}");
                }
                return Err(problem);
            }
        }
        Ok(())
    }

    fn holds(&self, key: &str, expected: &Value) -> Result<(Value, bool), String> {
        let failure = self.outcome.failure();
        let told = |actual: Option<Value>, holds: fn(&Value, &Value) -> bool| {
            let holds = actual.as_ref().is_some_and(|actual| holds(actual, expected));
            Ok((actual.unwrap_or(Value::Null), holds))
        };
        match key {
            "gives" => told(self.outcome.value().cloned(), same),
            "includes" => told(self.outcome.value().cloned(), covers),
            "fails" => told(failure.map(|failure| json!(failure.kind.code())), same),
            "message" => told(failure.map(|failure| json!(failure.message)), |message, part| {
                message
                    .as_str()
                    .zip(part.as_str())
                    .is_some_and(|(whole, part)| whole.contains(part))
            }),
            "retriable" => told(failure.map(|failure| json!(failure.kind.retriable())), same),
            "metadata" => told(failure.map(|failure| json!(failure.metadata)), covers),
            "told" | "log" => told(self.facts.get(key).cloned(), covers),
            known if self.facts.contains_key(known) => told(self.facts.get(key).cloned(), same),
            unknown => Err(format!("nothing is known of {unknown:?}")),
        }
    }
}

/// Equal; numbers by what they are worth.
fn same(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Number(actual), Value::Number(expected)) => actual.as_f64() == expected.as_f64(),
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, e)| same(a, e))
        }
        (Value::Object(actual), Value::Object(expected)) => {
            actual.len() == expected.len() && covers_map(actual, expected, same)
        }
        (actual, expected) => actual == expected,
    }
}

/// Every key that is named is there and covered; further keys do not matter.
fn covers(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => covers_map(actual, expected, covers),
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, e)| covers(a, e))
        }
        (actual, expected) => same(actual, expected),
    }
}

fn covers_map(
    actual: &Map<String, Value>,
    expected: &Map<String, Value>,
    holds: fn(&Value, &Value) -> bool,
) -> bool {
    expected.iter().all(|(key, expected)| actual.get(key).is_some_and(|a| holds(a, expected)))
}

// ---- The model ----

/// Says what is written, once, in the order it is written.
#[derive(Debug, Default)]
struct Model {
    answers: Mutex<BTreeMap<String, VecDeque<Answer>>>,
    asked: Mutex<Vec<(String, Prompt)>>,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answer")
    }
}

impl Model {
    fn will(&self, key: &str, answer: Answer) {
        self.answers.lock().unwrap().entry(key.to_owned()).or_default().push_back(answer);
    }

    fn asked(&self) -> Vec<(String, Prompt)> {
        self.asked.lock().unwrap().clone()
    }

    fn left(&self) -> Vec<String> {
        let answers = self.answers.lock().unwrap();
        answers.iter().filter(|(_, left)| !left.is_empty()).map(|(key, _)| key.clone()).collect()
    }
}

impl Provider for Model {
    fn draft(&self, prompt: &Prompt, limits: &DraftLimits<'_>) -> Result<Draft, DraftFault> {
        let key = limits.key();
        self.asked.lock().unwrap().push((key.clone(), prompt.clone()));
        match self.answers.lock().unwrap().get_mut(&key).and_then(VecDeque::pop_front) {
            Some(Answer::Payload(payload)) => Ok(Draft { payload, usage: Usage::default() }),
            Some(Answer::Fault(fault)) => Err(fault),
            None => {
                Err(DraftFault::Refused(format!("the story has no (further) answer for {key}")))
            }
        }
    }
}

// ---- The pages ----

/// A small web server on loopback; it ends with the test's process.
struct Pages {
    address: SocketAddr,
}

impl Pages {
    fn serve(pages: BTreeMap<String, String>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &pages);
            }
        });
        Self { address }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn answer(mut stream: TcpStream, pages: &BTreeMap<String, String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 8192 && stream.read(&mut byte)? == 1 {
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let page = head.split_whitespace().nth(1).and_then(|path| pages.get(path));
    let (status, body) = page.map_or(("404 Not Found", ""), |body| ("200 OK", body));
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/xml; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
