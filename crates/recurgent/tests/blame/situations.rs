//! Many situations, honest and hostile, each on both guests: `situations.json` has the programs, the calls, and what is to
//! blame for how each ends.

use std::collections::BTreeMap;
use std::path::Path;

use recurgent::{Agent, Arguments, Language, Outcome};
use serde_json::{Map, Value};

use crate::services::{BUSY, GOOD, MAINTENANCE, OTHER, REFUSAL, TestService};
use crate::{GuestFixture, check, closed_port, code, metadata};

const MOVED: &str =
    "HTTP/1.1 404 Gone\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{\"error\":\"404\"}";
const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// What a service answers, by a word.
fn served(word: &str) -> &'static str {
    match word {
        "good" => GOOD,
        "busy page" => BUSY,
        "busy json" => REFUSAL,
        "moved" => MOVED,
        "maintenance" => MAINTENANCE,
        "other json" => OTHER,
        "empty" => EMPTY,
        "cut off" => "",
        _ => panic!("no answer is called {word:?}"),
    }
}

/// What a placeholder of an argument stands for.
struct Places {
    service: TestService,
    down: String,
    port: u16,
    down_port: u16,
    file: String,
    missing: String,
}

impl Places {
    fn of(fixture: &GuestFixture) -> Self {
        let file = fixture.state.path().join("data.txt");
        std::fs::write(&file, "12\n").unwrap();
        let missing = fixture.state.path().join("missing.txt");
        let (service, down_port) = (TestService::start(), closed_port());
        let port = service.url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
        Self {
            service,
            down: format!("http://127.0.0.1:{down_port}/"),
            port,
            down_port,
            file: file.display().to_string(),
            missing: missing.display().to_string(),
        }
    }

    fn argument(&self, value: &Value) -> Value {
        match value.as_str() {
            Some("$URL") => self.service.url.as_str().into(),
            Some("$DOWN") => self.down.as_str().into(),
            Some("$PORT") => self.port.into(),
            Some("$DOWN_PORT") => self.down_port.into(),
            Some("$FILE") => self.file.as_str().into(),
            Some("$MISSING") => self.missing.as_str().into(),
            _ => value.clone(),
        }
    }
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_default()
}

fn written(program: &Value, language: Language) -> &str {
    match language {
        Language::Python => text(program, "python"),
        Language::Ruby => text(program, "ruby"),
    }
}

/// What differs from what a step expects.
fn differs(step: &Value, outcome: &Outcome) -> Option<String> {
    let is_value = step.get("value").is_none_or(|value| outcome.value() == Some(value));
    let blame = metadata(outcome, "blame").unwrap_or_default();
    let grant = metadata(outcome, "grant").unwrap_or_default();
    let is_right = code(outcome) == text(step, "code")
        && is_value
        && (step.get("blame").is_none() || blame == text(step, "blame"))
        && (step.get("grant").is_none() || grant.starts_with(text(step, "grant")));
    let found = format!("{} {blame} {grant} {:?}", code(outcome), outcome.result);
    (!is_right).then(|| format!("{step}\n    ended as {found}"))
}

/// Runs a situation; gives what went otherwise than it should.
fn wrong(situation: &Value, fixture: &GuestFixture) -> Vec<String> {
    let places = Places::of(fixture);
    let mut wrong = Vec::new();
    for program in situation["programs"].as_array().unwrap() {
        let code = written(program, fixture.language);
        fixture.writes(text(program, "of"), code, code);
    }
    let key = text(situation, "call");
    let (role, method) = key.split_once('.').unwrap();
    let mut agents: BTreeMap<&str, Agent> = BTreeMap::new();
    for step in situation["steps"].as_array().unwrap() {
        if let Some(word) = step["serve"].as_str() {
            places.service.answers(Some(served(word)));
        }
        if let Some(repair) = step.get("repair") {
            let code = written(repair, fixture.language);
            fixture.writes(step["repair"]["of"].as_str().unwrap_or(key), code, code);
        }
        let network = step["network"].as_str().unwrap_or("loopback");
        let agent = agents.entry(network).or_insert_with(|| {
            let runtime = fixture.runtime(&[("network", network), ("read_paths", &places.file)]);
            runtime.agent(role).guest(fixture.language).build().unwrap()
        });
        let args = step["args"].as_array().unwrap().iter().map(|it| places.argument(it)).collect();
        let outcome = agent.call(method, Arguments { args, kwargs: Map::new() }).unwrap();
        wrong.extend(differs(step, &outcome));
    }
    let asked = fixture.asked() as u64;
    if situation["asked"].as_u64().is_some_and(|expected| expected != asked) {
        wrong.push(format!("asked {asked} times"));
    }
    // A method that was never accepted has no versions.
    if let Some(expected) = situation["failures"].as_u64() {
        let failures = u64::from(fixture.failures(role, method));
        if failures != expected {
            wrong.push(format!("{failures} failures counted"));
        }
    }
    wrong
}

#[test]
fn every_situation_is_judged_as_it_should_be() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blame/situations.json");
    let situations: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let found = std::sync::Mutex::new(String::new());
    check(|fixture| {
        for situation in &situations {
            let fixture = &GuestFixture::new(fixture.language);
            for line in wrong(situation, fixture) {
                let name = text(situation, "name");
                let line = format!("{} {name}:\n  {line}\n", fixture.language);
                found.lock().unwrap().push_str(&line);
            }
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{found}");
}
