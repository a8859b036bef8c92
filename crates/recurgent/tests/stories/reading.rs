//! A story as it is written: fenced blocks, told apart by the word after the fence.

use lifecycle::draft::DraftFault;
use recurgent::{Arguments, Language};
use serde_json::{Map, Value, json};

/// One fenced block that means something.
pub(crate) struct Part {
    pub(crate) line: usize,
    pub(crate) says: Says,
}

pub(crate) enum Says {
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

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Payload(Value),
    Fault(DraftFault),
}

/// Every block of the document that means something; one that is unknown is an error.
pub(crate) fn read(story: &str) -> Result<Vec<Part>, String> {
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
