//! Turns YAML into typed scenarios. An error names the step.

use recurgent::config::Config;
use recurgent::{Arguments, Language};
use serde_json::{Map, Value};

use crate::fields::{MapReader, any, count, flag, list, map, ordinal, text, texts};
use crate::matcher;
use crate::packages::ScenarioPackages;
use crate::program::ProgramTable;
use crate::scenario::{
    AgentSpec, Assertion, CallFilter, CallSpec, ExpectedOutcome, ExpectedRefusal, LogEntryQuery,
    MemoryAssertion, Operation, Scenario, ScenarioSettings, ScenarioStep, StepAction,
};

/// Settings by each name they have in scenarios, and the library's name for each.
const SETTINGS: &[(&str, &str)] = &[
    ("max_generation_attempts", "max_generation_attempts"),
    ("transport_retries", "transport_retries"),
    ("guardrail_recovery_budget", "guardrail_recovery_budget"),
    ("execution_repair_budget", "execution_repair_budget"),
    ("fresh_outcome_repair_budget", "fresh_outcome_repair_budget"),
    ("provider_timeout_seconds", "provider_timeout_seconds"),
    ("execution_timeout_seconds", "execution_timeout_seconds"),
    ("max_delegation_depth", "max_delegation_depth"),
    ("delegation_budget", "max_delegation_depth"),
    ("depth", "max_delegation_depth"),
    ("max_model_calls", "max_model_calls"),
    ("model_calls", "max_model_calls"),
    ("model", "model"),
    ("debug", "debug"),
];
/// Contract fields that a step may have.
const CONTRACT_FIELDS: [&str; 5] =
    ["purpose", "deliverable", "acceptance", "failure_policy", "intent_signature"];
/// The keys of an expected attempt in `assert_attempts`.
const ATTEMPT_KEYS: [&str; 4] = ["code", "source", "stages", "repeated"];
/// Longest text that `$repeat` may make.
const MAX_REPEATED_BYTES: usize = 64 * 1024 * 1024;

/// Reads one scenario.
pub(crate) fn scenario(value: Value, programs: &ProgramTable) -> Result<Scenario, String> {
    let mut fields = MapReader::of(value)?;
    fields.one(&["id"], text)?;
    let programs = programs.with(&mut fields)?;
    let guests = fields.optional(&["guests"], texts)?;
    let plan = fields.take(&["provider_plan"])?.map(|plan| programs.plan(plan)).transpose()?;
    let settings = settings(fields.take(&["config"])?)?;
    let packages = fields.take(&["packages"])?.map(ScenarioPackages::read).transpose();
    let packages = packages.map_err(|problem| format!("`packages`: {problem}"))?;
    let steps = fields.one(&["steps"], list)?;
    fields.finish()?;
    let steps = steps
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            let op = value.get("op").and_then(Value::as_str).unwrap_or("without `op`").to_owned();
            step(value).map_err(|problem| format!("step {} {op}: {problem}", index + 1))
        })
        .collect::<Result<Vec<_>, _>>()?;
    if steps.is_empty() {
        return Err("has no steps".to_owned());
    }
    let guests = guests
        .map(|names| names.iter().map(|name| name.parse::<Language>()).collect())
        .transpose()
        .map_err(|unknown| format!("`guests`: {unknown}"))?;
    Ok(Scenario { guests, settings, packages, plan: plan.unwrap_or_default(), steps })
}

fn settings(value: Option<Value>) -> Result<ScenarioSettings, String> {
    let mut settings = ScenarioSettings::default();
    let Some(value) = value else { return Ok(settings) };
    let mut fields = MapReader::of(value)?;
    settings.logging = fields.optional(&["logging"], switch)?;
    for (name, option) in SETTINGS {
        let Some(value) = fields.take(&[name])? else { continue };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Config::defaults().set(option, &value).map_err(|fault| format!("`config`: {fault}"))?;
        if settings.options.insert(option, value).is_some() {
            return Err(format!("`config` says `{option}` twice"));
        }
    }
    fields.finish().map_err(|problem| format!("`config`: {problem}"))?;
    Ok(settings)
}

fn switch(value: Value) -> Result<bool, String> {
    match value.as_str() {
        Some("enabled") => Ok(true),
        Some("disabled") => Ok(false),
        Some(_) | None => {
            flag(value).map_err(|_| "must be enabled, disabled, true or false".into())
        }
    }
}

fn step(value: Value) -> Result<ScenarioStep, String> {
    let mut fields = MapReader::of(value)?;
    let op = fields.one(&["op"], text)?;
    let action = match operation(&op, &mut fields)? {
        Some(operation) => StepAction::Do(Box::new(operation), refusal(&op, &mut fields)?),
        None => match check(&op, &mut fields)? {
            Some(check) => StepAction::Assertion(check),
            None => return Err(format!("unknown operation `{op}`")),
        },
    };
    fields.finish()?;
    Ok(ScenarioStep { op, action })
}

/// Reads an operation that does something.
fn operation(op: &str, fields: &mut MapReader) -> Result<Option<Operation>, String> {
    Ok(Some(match op {
        "construct" => Operation::Construct {
            spec: agent_spec(fields, &["role"])?,
            session: fields.optional(&["session"], text)?,
            settings: settings(fields.take(&["config"])?)?,
        },
        "delegate" => Operation::Delegate {
            target: target(fields)?,
            spec: agent_spec(fields, &["role", "tool_role"])?,
        },
        "tool" => {
            let name = fields.one(&["name", "role"], text)?;
            let named = fields.optional(&["as"], text)?.unwrap_or_else(|| name.clone());
            Operation::Tool { target: target(fields)?, name, named }
        }
        "set" => Operation::Set {
            target: target(fields)?,
            key: fields.one(&["key", "name"], text)?,
            value: expanded(fields.required(&["value"])?)?,
        },
        "remember" => Operation::Remember {
            target: target(fields)?,
            entries: expanded_map(fields, "entries")?,
        },
        "call" => Operation::Call { target: target(fields)?, call: call_spec(fields)? },
        "tolerant_delegate" => Operation::TolerantDelegate {
            target: target(fields)?,
            role: fields.one(&["tool_role", "role"], text)?,
            call: call_spec(fields)?,
        },
        "prepare" => Operation::Prepare {
            spec: agent_spec(fields, &["role"])?,
            dependencies: fields
                .one(&["dependencies"], list)?
                .into_iter()
                .map(dependency)
                .collect::<Result<_, _>>()?,
        },
        "await" => Operation::Await {
            target: target(fields)?,
            status: fields.one(&["expect_status"], text)?,
        },
        "restart" => Operation::Restart,
        _ => return Ok(None),
    }))
}

fn dependency(value: Value) -> Result<(String, String), String> {
    let mut fields = MapReader::of(value)?;
    let dependency =
        (fields.one(&["name"], text)?, fields.optional(&["version"], text)?.unwrap_or_default());
    fields.finish()?;
    Ok(dependency)
}

fn refusal(op: &str, fields: &mut MapReader) -> Result<Option<ExpectedRefusal>, String> {
    if matches!(op, "restart" | "tolerant_delegate" | "await") {
        return Ok(None);
    }
    match fields.take(&["expect_error"])? {
        None | Some(Value::Bool(false)) => Ok(None),
        Some(Value::Bool(true)) => Ok(Some(ExpectedRefusal(String::new()))),
        Some(Value::String(words)) => Ok(Some(ExpectedRefusal(words))),
        Some(_) => Err("`expect_error` must be true, false or a text".to_owned()),
    }
}

fn target(fields: &mut MapReader) -> Result<Option<String>, String> {
    fields.optional(&["target"], text)
}

fn agent_spec(fields: &mut MapReader, role: &[&str]) -> Result<AgentSpec, String> {
    let role = fields.one(role, text)?;
    let named = fields.optional(&["as"], text)?.unwrap_or_else(|| role.clone());
    let contract = fields.optional(&["contract"], map)?;
    let mut contract_fields = Map::new();
    for name in CONTRACT_FIELDS {
        if let Some(value) = fields.take(&[name])? {
            contract_fields.insert(name.to_owned(), value);
        }
    }
    Ok(AgentSpec { role, named, contract, contract_fields })
}

fn call_spec(fields: &mut MapReader) -> Result<CallSpec, String> {
    let args = fields.optional(&["args"], list)?.unwrap_or_default();
    Ok(CallSpec {
        method: fields.one(&["method"], text)?,
        arguments: Arguments {
            args: args.into_iter().map(expanded).collect::<Result<_, _>>()?,
            kwargs: expanded_map(fields, "kwargs")?,
        },
        expected: fields
            .take(&["expect_outcome"])?
            .map(expected)
            .transpose()
            .map_err(|problem| format!("`expect_outcome`: {problem}"))?,
        provider_calls: fields.optional(&["expect_provider_calls"], count)?,
    })
}

fn expected(value: Value) -> Result<ExpectedOutcome, String> {
    let mut fields = MapReader::of(value)?;
    let mut expected = ExpectedOutcome::default();
    for (field, names) in [
        ("status", &["status"] as &[&str]),
        ("value", &["value"]),
        ("error_type", &["error_type", "type"]),
        ("error_message", &["error_message", "message"]),
        ("retriable", &["retriable"]),
        ("tool_role", &["tool_role", "role"]),
        ("method_name", &["method_name", "method"]),
        ("metadata", &["metadata"]),
    ] {
        if let Some(value) = fields.take(names)? {
            expected.fields.insert(field, pattern(value)?);
        }
    }
    for (name, yes, no) in [("ok", "ok", "error"), ("error", "error", "ok")] {
        if let Some(flag) = fields.optional(&[name], flag)? {
            let status = if flag { yes } else { no };
            expected.fields.insert("status", status.into());
        }
    }
    if let Some(json) = fields.optional(&["value_json"], text)? {
        let value =
            serde_json::from_str(&json).map_err(|error| format!("`value_json`: {error}"))?;
        expected.fields.insert("value", value);
    }
    expected.message_includes = match fields.take(&["error_message_includes"])? {
        None => Vec::new(),
        Some(Value::String(words)) => vec![words],
        Some(other) => {
            texts(other).map_err(|problem| format!("`error_message_includes` {problem}"))?
        }
    };
    fields.finish()?;
    Ok(expected)
}

/// Reads an operation that checks something.
fn check(op: &str, fields: &mut MapReader) -> Result<Option<Assertion>, String> {
    Ok(Some(match op {
        "assert_agent" => Assertion::Agent { target: target(fields)? },
        "assert_role" => {
            Assertion::Role { target: target(fields)?, equals: fields.one(&["equals"], text)? }
        }
        "assert_same_instance_returned" => match fields.optional(&["from_op"], text)?.as_deref() {
            None | Some("remember") => Assertion::SameInstance { target: target(fields)? },
            Some(other) => return Err(format!("`from_op` must be remember, not {other:?}")),
        },
        "assert_respond_to" => Assertion::RespondTo {
            target: target(fields)?,
            method: fields.one(&["method"], text)?,
            equals: fields.one(&["equals"], flag)?,
        },
        "assert_memory_includes" | "assert_memory_equals" | "assert_memory_excludes" => {
            Assertion::Memory { target: target(fields)?, memory: memory(op, fields)? }
        }
        "assert_provider_calls" => Assertion::ProviderCalls {
            of: CallFilter::default(),
            equals: fields.one(&["equals"], count)?,
        },
        "assert_provider_calls_for_method" => {
            let method = Some(fields.one(&["method"], text)?);
            let of = CallFilter { role: fields.optional(&["role"], text)?, method };
            Assertion::ProviderCalls { of, equals: fields.one(&["equals"], count)? }
        }
        "assert_prompt" => Assertion::Prompt {
            of: call_filter(fields)?,
            nth: fields.optional(&["nth"], ordinal)?,
            includes: expanded_texts(fields, "includes")?,
            excludes: expanded_texts(fields, "excludes")?,
        },
        "assert_tools" => Assertion::Tools {
            include: fields.optional(&["include"], texts)?.unwrap_or_default(),
            exclude: fields.optional(&["exclude"], texts)?.unwrap_or_default(),
            metadata: patterns(fields.optional(&["metadata"], map)?.unwrap_or_default())?,
        },
        "assert_history" => {
            let records = fields.one(&["records"], list)?;
            let records = records.into_iter().map(pattern).collect::<Result<_, _>>()?;
            Assertion::History { target: target(fields)?, records }
        }
        _ => return log_check(op, fields),
    }))
}

/// Reads an operation that checks the log.
fn log_check(op: &str, fields: &mut MapReader) -> Result<Option<Assertion>, String> {
    Ok(Some(match op {
        "assert_log_field_equals" => {
            let field = fields.one(&["field"], text)?;
            let equals = pattern(fields.required(&["equals"])?)?;
            let fields_expected = Map::from_iter([(field, equals)]);
            Assertion::LogMatches { entry: log_entry_query(fields)?, fields: fields_expected }
        }
        "assert_log" => {
            let expected = patterns(fields.one(&["fields"], map)?)?;
            Assertion::LogMatches { entry: log_entry_query(fields)?, fields: expected }
        }
        "assert_log_fields_include" => {
            let expected = fields.one(&["fields"], texts)?;
            Assertion::LogHolds { entry: log_entry_query(fields)?, fields: expected }
        }
        "assert_log_count" => Assertion::LogCount {
            equals: fields.one(&["equals"], count)?,
            of: call_filter(fields)?,
        },
        "assert_attempts" => {
            let equals = fields.one(&["equals"], list)?;
            let equals = equals.into_iter().map(attempt).collect::<Result<_, _>>()?;
            Assertion::Attempts { entry: log_entry_query(fields)?, equals }
        }
        _ => return Ok(None),
    }))
}

fn memory(op: &str, fields: &mut MapReader) -> Result<MemoryAssertion, String> {
    if op == "assert_memory_excludes" {
        return Ok(MemoryAssertion::Excludes(fields.one(&["keys"], texts)?));
    }
    let Some(key) = fields.optional(&["key"], text)? else {
        let entries = patterns(fields.one(&["entries"], map)?)?;
        return Ok(match op {
            "assert_memory_equals" => MemoryAssertion::Is(entries),
            _ => MemoryAssertion::Includes(entries),
        });
    };
    let value = pattern(fields.required(&["value", "equals"])?)?;
    Ok(MemoryAssertion::Includes(Map::from_iter([(key, value)])))
}

fn call_filter(fields: &mut MapReader) -> Result<CallFilter, String> {
    Ok(CallFilter {
        role: fields.optional(&["role"], text)?,
        method: fields.optional(&["method"], text)?,
    })
}

/// Reads which log entry a step or `$same_as` selects.
pub(crate) fn log_entry_query(fields: &mut MapReader) -> Result<LogEntryQuery, String> {
    Ok(LogEntryQuery {
        target: target(fields)?,
        of: call_filter(fields)?,
        nth: fields.optional(&["nth"], ordinal)?,
    })
}

fn attempt(value: Value) -> Result<Map<String, Value>, String> {
    let expected = if value.is_string() {
        Map::from_iter([("code".to_owned(), value)])
    } else {
        patterns(map(value)?)?
    };
    match expected.keys().find(|key| !ATTEMPT_KEYS.contains(&key.as_str())) {
        None => Ok(expected),
        Some(key) => Err(format!("an attempt has no {key:?}, only {}", ATTEMPT_KEYS.join(", "))),
    }
}

/// Reads an expected value: checks its operators and expands `$repeat`.
fn pattern(value: Value) -> Result<Value, String> {
    let value = expanded(value)?;
    matcher::admit(&value)?;
    Ok(value)
}

fn patterns(entries: Map<String, Value>) -> Result<Map<String, Value>, String> {
    entries.into_iter().map(|(key, value)| Ok((key, pattern(value)?))).collect()
}

fn expanded_map(fields: &mut MapReader, name: &str) -> Result<Map<String, Value>, String> {
    let entries = fields.optional(&[name], map)?;
    match entries {
        None if name == "entries" => Err(format!("`{name}` is missing")),
        None => Ok(Map::new()),
        Some(entries) => {
            entries.into_iter().map(|(key, value)| Ok((key, expanded(value)?))).collect()
        }
    }
}

fn expanded_texts(fields: &mut MapReader, name: &str) -> Result<Vec<String>, String> {
    let words = match fields.optional(&[name], any)? {
        None => return Ok(Vec::new()),
        Some(word @ Value::String(_)) => vec![word],
        Some(words) => list(words).map_err(|problem| format!("`{name}` {problem}"))?,
    };
    words.into_iter().map(|word| text(expanded(word)?)).collect()
}

/// Expands every `{$repeat: [text, n]}`.
fn expanded(value: Value) -> Result<Value, String> {
    match value {
        Value::Array(items) => items.into_iter().map(expanded).collect(),
        Value::Object(mut entries) if entries.len() == 1 && entries.contains_key("$repeat") => {
            let operands = list(entries.shift_remove("$repeat").unwrap_or_default());
            let [word, times]: [Value; 2] = operands
                .ok()
                .and_then(|operands| operands.try_into().ok())
                .ok_or("`$repeat` takes a text and a number")?;
            let (word, times) = (text(word)?, count(times)?);
            match word.len().checked_mul(times) {
                Some(bytes) if bytes <= MAX_REPEATED_BYTES => Ok(word.repeat(times).into()),
                Some(_) | None => {
                    Err(format!("`$repeat` makes at most {MAX_REPEATED_BYTES} bytes"))
                }
            }
        }
        Value::Object(entries) => entries
            .into_iter()
            .map(|(key, value)| Ok((key, expanded(value)?)))
            .collect::<Result<_, String>>()
            .map(Value::Object),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => Ok(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::yaml;

    fn problem(text: &str) -> String {
        scenario(yaml(text).unwrap(), &ProgramTable::built_in().unwrap()).unwrap_err()
    }

    #[test]
    fn what_is_unknown_is_named() {
        for (text, words) in [
            (
                "{id: a, steps: [{op: construct, role: x}, {op: dance}]}",
                "step 2 dance: unknown operation",
            ),
            (
                "{id: a, steps: [{op: construct, role: x, colour: red}]}",
                "step 1 construct: unknown key `colour`",
            ),
            ("{id: a, steps: [{op: construct}]}", "`role` is missing"),
            ("{id: a, stepz: [], steps: []}", "unknown key `stepz`"),
            ("{id: a, steps: []}", "no steps"),
            ("{id: a, config: {patience: 1}, steps: [{op: restart}]}", "unknown key `patience`"),
            ("{id: a, config: {max_generation_attempts: 0}, steps: [{op: restart}]}", "from 1 to"),
            (
                "{id: a, provider_plan: {x: nothing}, steps: [{op: restart}]}",
                "unknown program \"nothing\"",
            ),
            ("{id: a, provider_plan: {x: {fault: fire}}, steps: [{op: restart}]}", "unknown fault"),
            (
                "{id: a, steps: [{op: call, method: x, expect_outcome: {valeu: 1}}]}",
                "unknown key `valeu`",
            ),
            (
                "{id: a, steps: [{op: call, method: x, expect_outcome: {value: {$like: 1}}}]}",
                "unknown operator `$like`",
            ),
            ("{id: a, steps: [{op: assert_attempts, equals: [{colour: red}]}]}", "no \"colour\""),
            ("{id: a, steps: [{op: assert_prompt, nth: 0}]}", "counts from 1"),
            (
                "{id: a, guests: [lua], steps: [{op: restart}]}",
                "`guests`: unknown language \"lua\"",
            ),
            ("{steps: [{op: restart}]}", "`id` is missing"),
        ] {
            let problem = problem(text);
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }

    #[test]
    fn repeated_text_is_spelt_out() {
        let value = expanded(serde_json::json!([{"$repeat": ["ab", 3]}])).unwrap();
        assert_eq!(value, serde_json::json!(["ababab"]));
        assert!(expanded(serde_json::json!({"$repeat": ["ab"]})).is_err());
    }
}
