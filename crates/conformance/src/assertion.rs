//! Checks what a scenario asserts.

use serde_json::{Map, Value, json};

use crate::matcher::{Maps, Matcher, shown};
use crate::run::ScenarioRun;
use crate::scenario::{Assertion, CallFilter, ExpectedOutcome, LogEntryQuery, MemoryAssertion};

/// A limit above the number of tools and records of any scenario.
const PLENTY: usize = 10_000;

/// Checks one assertion.
pub(crate) fn check(run: &mut ScenarioRun<'_>, check: &Assertion) -> Result<(), String> {
    match check {
        Assertion::Agent { target } => run.agent_named(target.as_ref()).map(drop),
        Assertion::Role { target, equals } => {
            let role = run.agent_named(target.as_ref())?.agent.role();
            same("role", &json!(equals), &json!(role.as_str()))
        }
        Assertion::SameInstance { target } => {
            let remembered = run.agent_named(target.as_ref())?.remembered;
            same("given back by remember", &json!(true), &json!(remembered))
        }
        Assertion::RespondTo { target, method, equals } => {
            let responds = run.agent_named(target.as_ref())?.agent.responds_to(method);
            same(&format!("responds to {method:?}"), &json!(equals), &json!(responds))
        }
        Assertion::Memory { target, memory: expected } => {
            let memory = run.agent_named(target.as_ref())?.agent.runtime_context().to_object();
            self::memory(run, expected, &memory)
        }
        Assertion::ProviderCalls { of, equals } => {
            same(&format!("provider calls ({of})"), &json!(equals), &json!(run.model.calls(of)))
        }
        Assertion::Prompt { of, nth, includes, excludes } => {
            prompt(run, (of, *nth), includes, excludes)
        }
        Assertion::LogMatches { entry, fields } => {
            let found = run.log.selected(entry)?;
            fields.iter().try_for_each(|(name, expected)| {
                let place = format!("log field {name}");
                matcher(run).compare(&place, expected, found.get(name), Maps::Subset)
            })
        }
        Assertion::LogHolds { entry, fields } => {
            let found = run.log.selected(entry)?;
            match fields.iter().find(|name| found.get(name.as_str()).is_none()) {
                None => Ok(()),
                Some(name) => Err(format!("the log entry has no field {name:?}")),
            }
        }
        Assertion::LogCount { of, equals } => {
            same(&format!("log entries ({of})"), &json!(equals), &json!(run.log.count(of)))
        }
        Assertion::Attempts { entry, equals } => attempts(run, entry, equals),
        Assertion::Tools { include, exclude, metadata } => tools(run, (include, exclude), metadata),
        Assertion::History { target, records } => {
            let history = run.agent_named(target.as_ref())?.agent.history(PLENTY);
            let history = Value::Array(history.map_err(|fault| fault.to_string())?);
            let expected = Value::Array(records.clone());
            matcher(run).compare("history", &expected, Some(&history), Maps::Subset)
        }
    }
}

/// Compares an outcome with the expected one.
pub(crate) fn outcome(
    run: &ScenarioRun<'_>,
    expected: &ExpectedOutcome,
    outcome: &Value,
) -> Result<(), String> {
    let with_outcome = |problem| format!("{problem} (outcome: {})", shown(outcome));
    // A wrong error type explains more than a wrong status, so it is reported first.
    let first = ["error_type", "error_message", "status"];
    let rank = |name: &str| first.iter().position(|one| *one == name).unwrap_or(first.len());
    let mut fields: Vec<_> = expected.fields.iter().collect();
    fields.sort_by_key(|(name, _)| rank(name));
    for (name, expected) in fields {
        let maps = if *name == "metadata" { Maps::Subset } else { Maps::Equal };
        let actual = match outcome.get(name) {
            Some(Value::Null) if *name == "metadata" => Some(Value::Object(Map::new())),
            other => other.cloned(),
        };
        matcher(run).compare(name, expected, actual.as_ref(), maps).map_err(with_outcome)?;
    }
    let message = outcome.get("error_message").and_then(Value::as_str).unwrap_or_default();
    match expected.message_includes.iter().find(|words| !message.contains(words.as_str())) {
        None => Ok(()),
        Some(words) => {
            Err(with_outcome(format!("error_message: expected {words:?} in it, got {message:?}")))
        }
    }
}

fn matcher<'a>(run: &'a ScenarioRun<'_>) -> Matcher<'a> {
    Matcher { log: &run.log }
}

fn same(what: &str, expected: &Value, actual: &Value) -> Result<(), String> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("{what}: expected {expected}, got {actual}"))
}

fn memory(
    run: &ScenarioRun<'_>,
    expected: &MemoryAssertion,
    memory: &Map<String, Value>,
) -> Result<(), String> {
    let compared = |entries: &Map<String, Value>| {
        entries.iter().try_for_each(|(key, value)| {
            let place = format!("memory.{key}");
            matcher(run).compare(&place, value, memory.get(key), Maps::Equal)
        })
    };
    match expected {
        MemoryAssertion::Includes(entries) => compared(entries),
        MemoryAssertion::Is(entries) => {
            compared(entries)?;
            match memory.keys().find(|key| !entries.contains_key(*key)) {
                None => Ok(()),
                Some(key) => Err(format!("memory has the key {key:?}, which was not expected")),
            }
        }
        MemoryAssertion::Excludes(keys) => {
            match keys.iter().find(|key| memory.contains_key(*key)) {
                None => Ok(()),
                Some(key) => Err(format!("memory has the key {key:?}, which it must not have")),
            }
        }
    }
}

fn prompt(
    run: &ScenarioRun<'_>,
    (of, nth): (&CallFilter, Option<usize>),
    includes: &[String],
    excludes: &[String],
) -> Result<(), String> {
    let prompt = run.model.prompt(of, nth);
    let prompt = prompt.ok_or_else(|| {
        format!("no such prompt: the model was asked {} times for {of}", run.model.calls(of))
    })?;
    if let Some(missing) = includes.iter().find(|words| !prompt.contains(words.as_str())) {
        return Err(format!("the prompt does not say {}", shown(&json!(missing))));
    }
    match excludes.iter().find(|words| prompt.contains(words.as_str())) {
        None => Ok(()),
        Some(found) => Err(format!("the prompt says {}, which it must not", shown(&json!(found)))),
    }
}

fn attempts(
    run: &ScenarioRun<'_>,
    entry: &LogEntryQuery,
    expected: &[Map<String, Value>],
) -> Result<(), String> {
    let entry = run.log.selected(entry)?;
    let attempts: Vec<Value> = entry
        .get("attempts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(attempt)
        .collect();
    let codes: Vec<_> = attempts.iter().filter_map(|attempt| attempt.get("code")).collect();
    let with_attempts = |problem: String| format!("{problem} (attempts: {})", json!(codes));
    if attempts.len() != expected.len() {
        let problem = format!("attempts: expected {}, got {}", expected.len(), attempts.len());
        return Err(with_attempts(problem));
    }
    for (index, (expected, attempt)) in expected.iter().zip(&attempts).enumerate() {
        let expected = Value::Object(expected.clone());
        let place = format!("attempts[{index}]");
        matcher(run)
            .compare(&place, &expected, Some(attempt), Maps::Subset)
            .map_err(with_attempts)?;
    }
    Ok(())
}

/// An attempt of a log entry, with the keys of `assert_attempts`.
fn attempt(logged: &Value) -> Value {
    let failure = logged.get("failure").filter(|failure| !failure.is_null());
    let violation = failure.and_then(|failure| failure.pointer("/violation/violation_subtype"));
    let code = match (failure, violation.filter(|violation| !violation.is_null())) {
        (None, _) => json!("accepted"),
        (Some(_), Some(subtype)) => subtype.clone(),
        (Some(failure), None) => failure.get("error_type").cloned().unwrap_or_default(),
    };
    json!({
        "code": code,
        "source": logged.get("program_source"),
        "stages": logged.get("stages"),
        "repeated": failure.and_then(|failure| failure.get("repeated")).unwrap_or(&json!(false)),
    })
}

fn tools(
    run: &mut ScenarioRun<'_>,
    (include, exclude): (&[String], &[String]),
    metadata: &Map<String, Value>,
) -> Result<(), String> {
    let known = run.runtime()?.store().tools(None, PLENTY).map_err(|fault| fault.to_string())?;
    let known: Map<String, Value> =
        known.iter().map(|known| (known.tool.name.as_str().to_owned(), known.to_json())).collect();
    let names = || shown(&json!(known.keys().collect::<Vec<_>>()));
    if let Some(missing) = include.iter().find(|name| !known.contains_key(*name)) {
        return Err(format!("no tool is named {missing:?}; known: {}", names()));
    }
    if let Some(found) = exclude.iter().find(|name| known.contains_key(*name)) {
        return Err(format!("there is a tool {found:?}, which must not be; known: {}", names()));
    }
    metadata.iter().try_for_each(|(name, expected)| {
        matcher(run).compare(&format!("tool {name}"), expected, known.get(name), Maps::Subset)
    })
}
