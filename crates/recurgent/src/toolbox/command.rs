//! Commands of the configuration as tools: a program with arguments from a template. No shell reads them, and each run
//! has a sandbox of its own.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::outside_tool::{
    MAX_RESULT_BYTES, MethodDefinition, ONLY_METHOD, OutsideMethod, OutsideOrigin, OutsideTool,
};
use serde_json::{Map, Value, json};

use super::{ToolFault, ToolLimits, Toolbox};
use crate::grants::Grants;
use crate::worker::outside_process::{OutsideCommand, OutsideProcess, OutsideSandbox};

/// Bytes kept of the end of what a command reports of its failure; a failure shows few more.
const MAX_REPORT_BYTES: usize = 640;
/// How often a waiting call checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time for the last output of a command that has ended.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// What is sent to a command as one JSON object.
const ALL_AS_JSON: &str = "json";

/// A command of the configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandOptions {
    /// A path, or a name on the search path.
    pub program: PathBuf,
    /// The template of its arguments: `{name}` stands for the argument `name`.
    pub arguments: Vec<String>,
    /// The template of its standard input, or `json` for all arguments as one object.
    pub input: Option<String>,
    /// Whether its output is JSON; else it is a text.
    pub json_output: bool,
    /// What it does.
    pub description: String,
    /// The JSON Schema of each argument, or only its type.
    pub parameters: Map<String, Value>,
    /// Arguments that may be left out.
    pub optional: Vec<String>,
    /// Whether it changes nothing.
    pub reads_only: bool,
    /// What it may reach.
    pub grants: Grants,
    /// Its environment variables.
    pub variables: Vec<(String, String)>,
    /// Time it may take, if less than a tool may.
    pub timeout: Option<Duration>,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// The parts of a template; `{{` and `}}` are braces.
fn parts(template: &str) -> Result<Vec<Part<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        if !before.is_empty() {
            found.push(Part::Text(before));
        }
        if after.starts_with("{{") || after.starts_with("}}") {
            found.push(Part::Text(after.get(..1).unwrap_or_default()));
            rest = after.get(2..).unwrap_or_default();
            continue;
        }
        let name = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let Some((name, later)) = name.filter(|(name, _)| is_parameter(name)) else {
            return Err(format!("{template:?} has a brace alone; write it twice to mean itself"));
        };
        found.push(Part::Placeholder(name));
        rest = later;
    }
    if !rest.is_empty() {
        found.push(Part::Text(rest));
    }
    Ok(found)
}

/// Whether this can name an argument.
fn is_parameter(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

impl CommandOptions {
    /// The same, if its templates can be filled in.
    pub(crate) fn checked(mut self) -> Result<Self, String> {
        let input = self.input.as_deref().filter(|it| *it != ALL_AS_JSON);
        let mut used: Vec<String> = Vec::new();
        for template in self.arguments.iter().map(String::as_str).chain(input) {
            for part in parts(template)? {
                if let Part::Placeholder(name) = part {
                    used.push(name.to_owned());
                }
            }
        }
        // What a template uses without a type is a text.
        for name in used {
            self.parameters.entry(name).or_insert_with(|| json!("string"));
        }
        for (name, schema) in &mut self.parameters {
            match schema {
                Value::String(kind) => *schema = json!({ "type": kind }),
                Value::Object(_) => {}
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                    return Err(format!("the parameter {name} needs a type or a JSON Schema"));
                }
            }
        }
        if let Some(name) =
            self.optional.iter().find(|name| !self.parameters.contains_key(name.as_str()))
        {
            return Err(format!("`optional` names {name}, which is not a parameter"));
        }
        Ok(self)
    }

    /// Whether the values of an argument are listed by the person who wrote the entry.
    fn lists_values(&self, name: &str) -> bool {
        let schema = self.parameters.get(name);
        schema.is_some_and(|schema| ["enum", "const"].iter().any(|word| schema.get(word).is_some()))
    }

    /// The schema of all its arguments.
    fn input_schema(&self) -> Value {
        let names = self.parameters.keys().filter(|name| !self.optional.contains(name));
        let required: Vec<&String> = names.collect();
        json!({
            "type": "object", "properties": self.parameters, "required": required, "additionalProperties": false,
        })
    }
}

/// A command as a tool: `tool("NAME").run(…)`.
#[derive(Debug)]
pub struct CommandTool {
    options: CommandOptions,
    definitions: Arc<OutsideTool>,
    sandbox: Arc<OutsideSandbox>,
}

impl CommandTool {
    /// A command by its name.
    pub fn new(
        name: &str,
        options: CommandOptions,
        sandbox: Arc<OutsideSandbox>,
    ) -> Result<Self, String> {
        let definition = MethodDefinition {
            name: ONLY_METHOD.to_owned(),
            description: options.description.clone(),
            input: options.input_schema(),
            output: (!options.json_output).then(|| json!({"type": "string"})),
            reads_only: options.reads_only,
        };
        let definitions = OutsideTool::new(name, OutsideOrigin::Command, vec![definition]);
        match definitions.notes.first() {
            Some(problem) => Err(problem.clone()),
            None => Ok(Self { options, definitions: Arc::new(definitions), sandbox }),
        }
    }

    /// The arguments of one run. A placeholder alone that is left out takes no place; a list takes one for each item.
    fn fill(&self, given: &Map<String, Value>) -> Result<Vec<OsString>, ToolFault> {
        let mut filled = Vec::new();
        let mut ends_options = false;
        for template in &self.options.arguments {
            ends_options |= template == "--";
            let parts = parts(template).map_err(ToolFault::InvalidArguments)?;
            let made = arguments_of(&parts, given);
            // A value must not be read as an option of the program.
            if let Some(Part::Placeholder(name)) = parts.first()
                && let Some(option) = made.iter().find(|it| it.starts_with('-'))
                && !ends_options
                && !self.options.lists_values(name)
            {
                return Err(ToolFault::InvalidArguments(format!(
                    "`{name}` may not begin with `-`, and {option:?} does"
                )));
            }
            filled.extend(made);
        }
        if filled.iter().any(|argument| argument.contains('\0')) {
            return Err(ToolFault::InvalidArguments("an argument holds a zero byte".to_owned()));
        }
        Ok(filled.into_iter().map(OsString::from).collect())
    }

    fn input(&self, given: &Map<String, Value>) -> Result<Vec<u8>, ToolFault> {
        let template = match self.options.input.as_deref() {
            None => return Ok(Vec::new()),
            Some(ALL_AS_JSON) => return Ok(Value::Object(given.clone()).to_string().into_bytes()),
            Some(template) => template,
        };
        let mut text = String::new();
        for part in parts(template).map_err(ToolFault::InvalidArguments)? {
            match part {
                Part::Text(fixed) => text.push_str(fixed),
                Part::Placeholder(name) => {
                    text.push_str(&given.get(name).map(text_of).unwrap_or_default());
                }
            }
        }
        Ok(text.into_bytes())
    }
}

/// The arguments that one template makes; none if a value that it needs is left out.
fn arguments_of(parts: &[Part<'_>], given: &Map<String, Value>) -> Vec<String> {
    if let [Part::Placeholder(name)] = parts {
        return match given.get(*name) {
            None => Vec::new(),
            Some(Value::Array(items)) => items.iter().map(text_of).collect(),
            Some(value) => vec![text_of(value)],
        };
    }
    let text_of_part = |part: &Part<'_>| match part {
        Part::Text(fixed) => Some((*fixed).to_owned()),
        Part::Placeholder(name) => given.get(*name).map(text_of),
    };
    parts.iter().map(text_of_part).collect::<Option<String>>().into_iter().collect()
}

/// A text as it is, anything else as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

impl Toolbox for CommandTool {
    fn name(&self) -> &str {
        &self.definitions.name
    }

    fn origin(&self) -> OutsideOrigin {
        OutsideOrigin::Command
    }

    fn definitions(&self, _limits: &ToolLimits<'_>) -> Result<Arc<OutsideTool>, ToolFault> {
        Ok(Arc::clone(&self.definitions))
    }

    fn call(
        &self,
        _method: &OutsideMethod,
        arguments: Map<String, Value>,
        limits: &ToolLimits<'_>,
    ) -> Result<Value, ToolFault> {
        let variables = self.options.variables.iter();
        let command = OutsideCommand {
            program: self.options.program.clone(),
            arguments: self.fill(&arguments)?,
            variables: variables.map(|(name, value)| (name.into(), value.into())).collect(),
            grants: self.options.grants.clone(),
            uncontained: false,
        };
        let input = self.input(&arguments)?;
        let unusable = |error: std::io::Error| ToolFault::Unreachable(error.to_string());
        let process = self.sandbox.start_command(&command).map_err(unusable)?;
        let timeout = self.options.timeout.map_or(limits.timeout, |own| own.min(limits.timeout));
        let (status, output, report) = finish(process, input, timeout, limits)?;
        let program = command.program.display();
        if status != Some(0) {
            let how = match status {
                Some(status) => format!("ended with status {status}"),
                None => "was ended by a signal".to_owned(),
            };
            return Err(ToolFault::Failed(format!("{program} {how}: {report}")));
        }
        let text = String::from_utf8(output).map_err(|_| {
            ToolFault::InvalidResult(format!("the output of {program} is not UTF-8"))
        })?;
        if !self.options.json_output {
            return Ok(Value::String(text));
        }
        serde_json::from_str(&text).map_err(|error| {
            ToolFault::InvalidResult(format!("the output of {program} is not JSON: {error}"))
        })
    }
}

/// Runs a process to its end: its status, its output, and the end of what it reported.
fn finish(
    mut process: OutsideProcess,
    input: Vec<u8>,
    timeout: Duration,
    limits: &ToolLimits<'_>,
) -> Result<(Option<i32>, Vec<u8>, String), ToolFault> {
    let deadline = Instant::now() + timeout;
    if let Some(stdin) = process.stdin.take() {
        // A command that does not read its input is not at fault.
        let write = move || drop(File::from(stdin).write_all(&input));
        spawn(write)?;
    }
    let output = read_all(process.stdout.take(), |out| {
        let mut bytes = Vec::new();
        let most = u64::try_from(MAX_RESULT_BYTES).unwrap_or(u64::MAX).saturating_add(1);
        // Bytes read before an error count.
        let _ = out.take(most).read_to_end(&mut bytes);
        bytes
    })?;
    let report = read_all(process.stderr.take(), last_bytes)?;
    let mut written = None;
    while !process.has_ended() {
        if limits.cancellation.is_cancelled() {
            return Err(ToolFault::Cancelled);
        }
        if Instant::now() >= deadline {
            return Err(ToolFault::TimedOut(timeout));
        }
        match output.recv_timeout(POLL_INTERVAL) {
            Ok(bytes) => written = Some(bounded(bytes)?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL_INTERVAL),
        }
    }
    let status = process.end();
    let written = if let Some(written) = written {
        written
    } else {
        let late = |_| ToolFault::InvalidResult("its output did not end with it".to_owned());
        bounded(output.recv_timeout(DRAIN_LIMIT).map_err(late)?)?
    };
    let report = report.recv_timeout(DRAIN_LIMIT).unwrap_or_default();
    Ok((status, written, String::from_utf8_lossy(&report).trim().to_owned()))
}

/// The output of a command, if a result may be as long.
fn bounded(output: Vec<u8>) -> Result<Vec<u8>, ToolFault> {
    if output.len() <= MAX_RESULT_BYTES {
        return Ok(output);
    }
    let message = format!("it wrote more than {MAX_RESULT_BYTES} bytes; ask for less");
    Err(ToolFault::InvalidResult(message))
}

/// Reads a descriptor on a thread of its own: what `keep` reads is kept, the rest is dropped.
fn read_all(
    from: Option<OwnedFd>,
    keep: impl FnOnce(&mut File) -> Vec<u8> + Send + 'static,
) -> Result<Receiver<Vec<u8>>, ToolFault> {
    let (sender, receiver) = channel();
    let Some(from) = from else { return Ok(receiver) };
    let read = move || {
        let mut file = File::from(from);
        // The call may have ended. The command must be able to write on.
        let _ = sender.send(keep(&mut file));
        let _ = std::io::copy(&mut file, &mut std::io::sink());
    };
    spawn(read)?;
    Ok(receiver)
}

/// The last of what can be read: the reason of a failure usually comes last.
fn last_bytes(from: &mut File) -> Vec<u8> {
    let (mut last, mut chunk) = (Vec::new(), [0; MAX_REPORT_BYTES]);
    loop {
        match from.read(&mut chunk) {
            Ok(size @ 1..) => last.extend_from_slice(chunk.get(..size).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return last, // bytes read before an error count
        }
        last.drain(..last.len().saturating_sub(MAX_REPORT_BYTES));
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), ToolFault> {
    let spawned = thread::Builder::new().name("tool output".to_owned()).spawn(work);
    spawned.map(drop).map_err(|error| ToolFault::Unreachable(format!("no thread for it: {error}")))
}
