//! Parses a story into fenced blocks; the word after the fence gives the kind of a block.

use lifecycle::draft::DraftFault;
use recurgent::{Arguments, Language};
use serde_json::{Map, Value, json};

/// A fenced block that the test executes.
pub(crate) struct Block {
    pub(crate) line: usize,
    pub(crate) content: StoryContent,
}

/// The content of a block.
pub(crate) enum StoryContent {
    /// The state before the first call.
    Given(Map<String, Value>),
    /// A page of the web server.
    Page { path: String, body: String },
    /// An answer of the model, in one language or in all.
    Answer { key: String, language: Option<Language>, answer: StoryAnswer },
    /// A call and its expected result.
    Call { role: String, method: String, arguments: Arguments, expected: Map<String, Value> },
    /// A new process on the same store.
    Restart,
    /// The web server stops (`false`) or starts.
    Service(bool),
    /// A person rejects the program of a method.
    Reject { role: String, method: String, because: String },
    /// A person gives an example of a method.
    Teach { role: String, method: String, example: Value },
    /// Files of another store are imported: texts by path.
    Import(Map<String, Value>),
}

#[derive(Debug, Clone)]
pub(crate) enum StoryAnswer {
    Payload(Value),
    Fault(DraftFault),
}

/// Parses all blocks of a story. A block of an unknown kind is an error.
pub(crate) fn parse(story: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut lines = story.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let content = parse_block(info.trim(), &body.join("\n"))
            .map_err(|problem| format!("line {}: {problem}", number + 1))?;
        blocks.extend(content.map(|content| Block { line: number + 1, content }));
    }
    Ok(blocks)
}

fn parse_block(info: &str, body: &str) -> Result<Option<StoryContent>, String> {
    let (kind, name) = info.split_once(' ').unwrap_or((info, ""));
    let answer = |language: Option<Language>, answer| {
        Ok(Some(StoryContent::Answer { key: name.to_owned(), language, answer }))
    };
    match kind {
        "text" => Ok(None),
        "given" => Ok(Some(StoryContent::Given(yaml(body)?))),
        "restart" => Ok(Some(StoryContent::Restart)),
        "service" => match name {
            "down" => Ok(Some(StoryContent::Service(false))),
            "up" => Ok(Some(StoryContent::Service(true))),
            other => Err(format!("a service is `down` or `up`, not {other:?}")),
        },
        "reject" => {
            let (role, method) = parse_name(name)?;
            Ok(Some(StoryContent::Reject { role, method, because: body.to_owned() }))
        }
        "teach" => parse_example(name, body).map(Some),
        "import" => Ok(Some(StoryContent::Import(yaml(body)?))),
        "page" => Ok(Some(StoryContent::Page { path: name.to_owned(), body: body.to_owned() })),
        "python" | "ruby" => {
            answer(kind.parse().ok(), StoryAnswer::Payload(json!({"code": format!("{body}\n")})))
        }
        "payload" => answer(None, StoryAnswer::Payload(yaml(body)?)),
        "fault" => answer(None, StoryAnswer::Fault(fault(body.trim())?)),
        "call" => parse_call(body).map(Some),
        other => Err(format!("unknown kind of block {other:?}")),
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
        other => return Err(format!("unknown fault {other:?}")),
    })
}

/// Parses `role.method(arguments)` and the expected result below it.
fn parse_call(body: &str) -> Result<StoryContent, String> {
    let (call, expected) =
        body.split_once('\n').ok_or("the expected result of the call is missing")?;
    let (role, method, arguments) = parse_signature(call)?;
    Ok(StoryContent::Call { role, method, arguments, expected: yaml(expected)? })
}

/// Parses `role.method(arguments)` and below it `gives` or `fails`.
fn parse_example(call: &str, body: &str) -> Result<StoryContent, String> {
    let (role, method, Arguments { args, kwargs }) = parse_signature(call)?;
    let mut result: Map<String, Value> = yaml(body)?;
    let mut example = json!({"args": args, "kwargs": kwargs});
    match (result.remove("gives"), result.remove("fails")) {
        (Some(value), None) => example["value"] = value,
        (None, Some(code)) => example["error_type"] = code,
        (..) => return Err("an example has `gives` or `fails`".to_owned()),
    }
    Ok(StoryContent::Teach { role, method, example })
}

fn parse_signature(call: &str) -> Result<(String, String, Arguments), String> {
    let (name, arguments) = call
        .strip_suffix(')')
        .and_then(|call| call.split_once('('))
        .ok_or_else(|| format!("{call:?} is not role.method(arguments)"))?;
    let (role, method) = parse_name(name)?;
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
    Ok((role, method, Arguments { args, kwargs }))
}

fn parse_name(name: &str) -> Result<(String, String), String> {
    let (role, method) = name.rsplit_once('.').ok_or_else(|| format!("{name:?} has no method"))?;
    Ok((role.to_owned(), method.to_owned()))
}

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_norway::from_str(text).map_err(|error| format!("{error} in\n{text}"))
}
