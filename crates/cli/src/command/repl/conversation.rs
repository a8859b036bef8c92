//! The state of a conversation: its last call, what that did and cost, and what people say about it.

use std::collections::BTreeSet;

use lifecycle::admission::Inputs;
use lifecycle::attempt::Origin;
use lifecycle::draft::Usage;
use lifecycle::example::{Example, ExpectedResult};
use lifecycle::excerpt::counted;
use lifecycle::outcome::CallDetails;
use lifecycle::request::Method;
use recurgent::{Arguments, Outcome};
use serde_json::Value;

use crate::command::agent::Caller;
use crate::exit::CommandFault;
use crate::logbook;
use crate::render::entry::{attempt_lines, call_line, execution_line, text};
use crate::render::paint::{Style, clean, clip};
use crate::render::{self, Stream};

/// Lines of a program that are shown.
const MAX_CODE_LINES: usize = 40;
/// Stored methods that are known for completion.
const MAX_METHODS: usize = 200;
/// Columns of a value that are shown.
const VALUE_COLUMNS: usize = 200;

/// An agent, and the calls that were made on it.
pub(super) struct Conversation {
    pub(super) caller: Caller,
    last: Option<LastCall>,
    calls: u64,
    /// Calls that were answered without a model.
    without_model: u64,
    model_calls: u64,
    usage: Usage,
    /// Methods that were called.
    methods: BTreeSet<String>,
}

/// A call, with what an example of it needs.
struct LastCall {
    method: Method,
    inputs: Inputs,
    outcome: Outcome,
}

impl LastCall {
    fn details(&self) -> Option<&CallDetails> {
        self.outcome.details.as_deref()
    }
}

impl Conversation {
    pub(super) fn new(caller: Caller) -> Self {
        Self {
            caller,
            last: None,
            calls: 0,
            without_model: 0,
            model_calls: 0,
            usage: Usage::default(),
            methods: BTreeSet::new(),
        }
    }

    /// Makes a call and remembers it.
    pub(super) fn call(
        &mut self,
        method: Method,
        arguments: Arguments,
    ) -> Result<Outcome, CommandFault> {
        let context = self.caller.agent.runtime_context().to_object();
        let Arguments { args, kwargs } = arguments.clone();
        let outcome = self.caller.call(&method, arguments)?;
        if let Some(details) = &outcome.details {
            self.calls += 1;
            self.without_model += u64::from(details.model_calls == 0);
            self.model_calls += u64::from(details.model_calls);
            self.usage += details.usage;
            self.methods.insert(method.as_str().to_owned());
        }
        let inputs = Inputs { args, kwargs, context };
        self.last = Some(LastCall { method, inputs, outcome: outcome.clone() });
        Ok(outcome)
    }

    /// The names that a line may begin with: methods that were called or are stored, and memory keys.
    pub(super) fn names(&self) -> Vec<String> {
        let agent = &self.caller.agent;
        // Completion works without the store, with fewer names.
        let stored = self.caller.runtime.store().artifacts(Some(agent.role()), MAX_METHODS);
        let stored = stored.unwrap_or_default().into_iter().map(|it| it.current.method.to_string());
        let memory = agent.runtime_context().to_object().into_iter().map(|(key, _)| key);
        let names: BTreeSet<String> =
            stored.chain(memory).chain(self.methods.iter().cloned()).collect();
        names.into_iter().collect()
    }

    fn last(&self) -> Result<&LastCall, CommandFault> {
        self.last.as_ref().ok_or_else(|| CommandFault::usage("nothing was called yet; call first"))
    }

    /// The last call, if a program should have answered it.
    fn last_of_program(&self) -> Result<&LastCall, CommandFault> {
        let last = self.last()?;
        if last.details().is_none() {
            let what = "the last line wrote or read memory, and no program answered; call the method again first";
            return Err(CommandFault::usage(what));
        }
        Ok(last)
    }

    /// What the last call did, and why.
    pub(super) fn why(&self) -> Result<Vec<String>, CommandFault> {
        let last = self.last()?;
        let Some(details) = last.details() else {
            let what = "memory answered: no program ran and no model was asked";
            return Ok(vec![what.to_owned()]);
        };
        let mut lines = vec![reason(details, &last.outcome)];
        lines.extend(last.outcome.notes.iter().map(|note| clean(note)));
        lines.extend(self.logged(details));
        lines.extend(self.program(last, details)?);
        Ok(lines)
    }

    /// The lines of the log about the call and its attempts; none if the log is off.
    fn logged(&self, details: &CallDetails) -> Vec<String> {
        let paint = render::paint(Stream::Output);
        let width = render::room(Stream::Output).columns;
        let mut lines = Vec::new();
        let show = |entry: Value| {
            if text(&entry, "trace_id") == details.trace.as_str() {
                lines.push(call_line(&entry, paint, width));
                lines.extend(execution_line(&entry, paint, width));
                lines.extend(attempt_lines(&entry, paint, width));
            }
        };
        let log = logbook::path(self.caller.runtime.config());
        let _ = log.and_then(|log| logbook::read(&log, show));
        lines
    }

    /// The text of the program that answered, if it is stored.
    fn program(&self, last: &LastCall, details: &CallDetails) -> Result<Vec<String>, CommandFault> {
        let (runtime, role) = (&self.caller.runtime, self.caller.agent.role());
        let record = runtime.store().call_record(&details.call.0)?;
        let answered = record.and_then(|it| it.record.get("program_checksum").cloned());
        let Some(Value::String(checksum)) = answered else { return Ok(Vec::new()) };
        for key in runtime.programs().keys(role, &last.method)? {
            let versions = runtime.store().versions(&key)?;
            let found = versions.iter().find(|it| it.artifact.checksum.as_str() == checksum);
            if let Some(version) = found {
                return Ok(program_lines(version.number, &version.artifact.code));
            }
        }
        Ok(Vec::new())
    }

    /// Takes the program of the last call out of service.
    pub(super) fn reject(&self, because: &str) -> Result<String, CommandFault> {
        let last = self.last_of_program()?;
        let because = if because.is_empty() {
            let value = last.outcome.value().unwrap_or(&Value::Null);
            format!("a person rejected its answer {}", clip(&value.to_string(), VALUE_COLUMNS))
        } else {
            because.to_owned()
        };
        let report = self.caller.agent.reject(last.method.as_str(), &because)?;
        let next = match report.running {
            Some(_) => "an earlier version runs again",
            None => "the next call asks the model for another one",
        };
        Ok(format!("the program of {} is rejected; {next}", clean(last.method.as_str())))
    }

    /// Teaches the right value of the last call.
    pub(super) fn teach(&self, expected: Value) -> Result<String, CommandFault> {
        let last = self.last_of_program()?;
        let example =
            Example { inputs: last.inputs.clone(), expected: ExpectedResult::Value(expected) };
        // Parsed like any other example, so that its size is checked.
        let example = Example::parse(&example.to_json())
            .map_err(|fault| CommandFault::usage(fault.to_string()))?;
        let (runtime, role) = (&self.caller.runtime, self.caller.agent.role());
        runtime.programs().teach(role, &last.method, &example)?;
        let count = runtime.store().examples(role, &last.method)?.len();
        Ok(format!(
            "{} has {}; new programs must meet them, .reject takes a wrong one out of service",
            clean(last.method.as_str()),
            counted(count, "example")
        ))
    }

    /// What the calls of this conversation cost.
    pub(super) fn cost(&self) -> Vec<String> {
        let usage = &self.usage;
        let money = match (self.model_calls, usage.cost) {
            (0, _) => "$0".to_owned(),
            (_, Some(cost)) => format!("${:.6}", cost.usd()),
            (_, None) => "cost unknown (no price is configured for this model)".to_owned(),
        };
        vec![
            format!("{}, {} without a model", counted(self.calls, "call"), self.without_model),
            format!(
                "{}: {} tokens sent ({} cached), {} received, {money}",
                counted(self.model_calls, "model call"),
                usage.input_tokens,
                usage.cached_tokens,
                usage.output_tokens
            ),
        ]
    }
}

/// The origin of an answer, in a sentence.
fn reason(details: &CallDetails, outcome: &Outcome) -> String {
    let calls = counted(details.model_calls, "model call");
    let origin = match &details.origin {
        Some(Origin::Artifact(_)) => "a stored program answered".to_owned(),
        Some(Origin::Fresh) => "the model wrote the program that answered".to_owned(),
        Some(Origin::Repair { .. }) => "the model repaired the stored program".to_owned(),
        None => match outcome.failure() {
            Some(failure) => format!("no program was accepted: {}", clean(&failure.message)),
            None => "no program was accepted".to_owned(),
        },
    };
    let admission = details.admission.map(|it| format!("; {}", it.name().replace('_', " ")));
    let took = render::trace::duration(details.duration);
    format!("{origin} ({calls}, {took}){}", admission.unwrap_or_default())
}

fn program_lines(version: u32, code: &str) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    let mut lines = vec![paint.in_style(Style::Faint, &format!("version {version}:"))];
    lines.extend(code.lines().take(MAX_CODE_LINES).map(|line| format!("  {}", clean(line))));
    let more = code.lines().count().saturating_sub(MAX_CODE_LINES);
    lines.extend((more > 0).then(|| format!("  … {more} more lines")));
    lines
}
