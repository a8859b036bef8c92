//! Holding a scenario to what it expects.

use serde_json::{Map, Value, json};

use super::matcher::{Maps, Matcher, shown};
use super::scenario::{Check, Choice, Expected, MemoryCheck, Naming};
use super::stage::Stage;

/// More tools and records than any scenario makes.
const PLENTY: usize = 10_000;

/// Whether what a step asserts is so.
pub(super) fn check(stage: &mut Stage<'_>, check: &Check) -> Result<(), String> {
    match check {
        Check::Agent { target } => stage.actor(target.as_ref()).map(drop),
        Check::Role { target, equals } => {
            let role = stage.actor(target.as_ref())?.agent.role();
            same("role", &json!(equals), &json!(role.as_str()))
        }
        Check::SameInstance { target } => {
            let remembered = stage.actor(target.as_ref())?.remembered;
            same("given back by remember", &json!(true), &json!(remembered))
        }
        Check::RespondTo { target, method, equals } => {
            let responds = stage.actor(target.as_ref())?.agent.responds_to(method);
            same(&format!("responds to {method:?}"), &json!(equals), &json!(responds))
        }
        Check::Memory { target, memory: expected } => {
            let memory = stage.actor(target.as_ref())?.agent.runtime_context().to_object();
            self::memory(stage, expected, &memory)
        }
        Check::ProviderCalls { of, equals } => {
            same(&format!("provider calls ({of})"), &json!(equals), &json!(stage.witness.calls(of)))
        }
        Check::Prompt { of, nth, includes, excludes } => {
            prompt(stage, (of, *nth), includes, excludes)
        }
        Check::LogMatches { entry, fields } => {
            let found = stage.journal.chosen(entry)?;
            fields.iter().try_for_each(|(name, expected)| {
                let place = format!("log field {name}");
                matcher(stage).hold(&place, expected, found.get(name), Maps::Subset)
            })
        }
        Check::LogHolds { entry, fields } => {
            let found = stage.journal.chosen(entry)?;
            match fields.iter().find(|name| found.get(name.as_str()).is_none()) {
                None => Ok(()),
                Some(name) => Err(format!("the log entry has no field {name:?}")),
            }
        }
        Check::LogCount { of, equals } => {
            same(&format!("log entries ({of})"), &json!(equals), &json!(stage.journal.count(of)))
        }
        Check::Attempts { entry, equals } => attempts(stage, entry, equals),
        Check::Tools { include, exclude, metadata } => tools(stage, (include, exclude), metadata),
        Check::History { target, records } => {
            let history = stage.actor(target.as_ref())?.agent.history(PLENTY);
            let history = Value::Array(history.map_err(|fault| fault.to_string())?);
            let expected = Value::Array(records.clone());
            matcher(stage).hold("history", &expected, Some(&history), Maps::Subset)
        }
    }
}

/// Whether an outcome is as expected.
pub(super) fn outcome(
    stage: &Stage<'_>,
    expected: &Expected,
    outcome: &Value,
) -> Result<(), String> {
    let told = |problem| format!("{problem} (outcome: {})", shown(outcome));
    // The kind of a failure says more than that there was one.
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
        matcher(stage).hold(name, expected, actual.as_ref(), maps).map_err(told)?;
    }
    let message = outcome.get("error_message").and_then(Value::as_str).unwrap_or_default();
    match expected.message_includes.iter().find(|words| !message.contains(words.as_str())) {
        None => Ok(()),
        Some(words) => {
            Err(told(format!("error_message: expected {words:?} in it, got {message:?}")))
        }
    }
}

fn matcher<'a>(stage: &'a Stage<'_>) -> Matcher<'a> {
    Matcher { journal: &stage.journal }
}

fn same(what: &str, expected: &Value, actual: &Value) -> Result<(), String> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("{what}: expected {expected}, got {actual}"))
}

fn memory(
    stage: &Stage<'_>,
    expected: &MemoryCheck,
    memory: &Map<String, Value>,
) -> Result<(), String> {
    let held = |entries: &Map<String, Value>| {
        entries.iter().try_for_each(|(key, value)| {
            let place = format!("memory.{key}");
            matcher(stage).hold(&place, value, memory.get(key), Maps::Equal)
        })
    };
    match expected {
        MemoryCheck::Includes(entries) => held(entries),
        MemoryCheck::Is(entries) => {
            held(entries)?;
            match memory.keys().find(|key| !entries.contains_key(*key)) {
                None => Ok(()),
                Some(key) => Err(format!("memory has the key {key:?}, which was not expected")),
            }
        }
        MemoryCheck::Excludes(keys) => match keys.iter().find(|key| memory.contains_key(*key)) {
            None => Ok(()),
            Some(key) => Err(format!("memory has the key {key:?}, which it must not have")),
        },
    }
}

fn prompt(
    stage: &Stage<'_>,
    (of, nth): (&Naming, Option<usize>),
    includes: &[String],
    excludes: &[String],
) -> Result<(), String> {
    let prompt = stage.witness.prompt(of, nth);
    let prompt = prompt.ok_or_else(|| {
        format!("no such prompt: the model was asked {} times for {of}", stage.witness.calls(of))
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
    stage: &Stage<'_>,
    entry: &Choice,
    expected: &[Map<String, Value>],
) -> Result<(), String> {
    let entry = stage.journal.chosen(entry)?;
    let attempts: Vec<Value> = entry
        .get("attempts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(attempt)
        .collect();
    let codes: Vec<_> = attempts.iter().filter_map(|attempt| attempt.get("code")).collect();
    let told = |problem: String| format!("{problem} (attempts: {})", json!(codes));
    if attempts.len() != expected.len() {
        let problem = format!("attempts: expected {}, got {}", expected.len(), attempts.len());
        return Err(told(problem));
    }
    for (index, (expected, attempt)) in expected.iter().zip(&attempts).enumerate() {
        let expected = Value::Object(expected.clone());
        let place = format!("attempts[{index}]");
        matcher(stage).hold(&place, &expected, Some(attempt), Maps::Subset).map_err(told)?;
    }
    Ok(())
}

/// An attempt of a log entry in the words of `assert_attempts`.
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
    stage: &mut Stage<'_>,
    (include, exclude): (&[String], &[String]),
    metadata: &Map<String, Value>,
) -> Result<(), String> {
    let known = stage.runtime()?.store().tools(None, PLENTY).map_err(|fault| fault.to_string())?;
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
        matcher(stage).hold(&format!("tool {name}"), expected, known.get(name), Maps::Subset)
    })
}
