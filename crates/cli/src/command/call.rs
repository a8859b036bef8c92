//! `recurgent call`: one call, one answer.

use std::path::{Path, PathBuf};

use clap::Args;
use lifecycle::admission::Admission;
use lifecycle::dispatch::is_setter;
use lifecycle::example::Example;
use lifecycle::request::{Method, Role};
use recurgent::{Arguments, ExpectedCall, Outcome};
use serde_json::{Map, Value, json};

use super::agent::{AgentFlags, outcome_json};
use super::input::{INPUT_HELP, argument_value, named_text, without_mark};
use super::settings::pair;
use crate::exit::{CommandFault, Exit};
use crate::render;

const EXAMPLES: &str = "\
Examples:
  recurgent call calculator add 3 -4
  recurgent call converter convert 100 --kw from=celsius --kw to=fahrenheit
  recurgent call calculator memory= 5 --session desk      write memory, no model
  recurgent call calculator memory --session desk         read it back
  recurgent call editor word_count @report.txt            the content of a file
  git log | recurgent call editor count_commits -         standard input
  recurgent call ledger total sales.csv --read sales.csv  a file that programs may read
  recurgent call calculator add 3 --provider scripted:programs.yaml --guest ruby
  recurgent call calculator double 4 --expect 8           a program with another answer is rejected
  recurgent call calculator double 4 --frozen             stored programs only, never a model

Each ARG is JSON if it parses as JSON, otherwise text: 3 is a number, '\"3\"' and three are text.
An ARG that begins with a dash and is not a number must come after --.";

fn after_help() -> String {
    format!("{EXAMPLES}\n{INPUT_HELP}")
}

/// Call any method on any role and print the answer
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct CallOptions {
    /// The role to call, such as calculator
    role: String,
    /// The method, such as add; NAME= writes memory, and a memory key alone reads it
    method: String,
    /// Arguments by position; @FILE is a file's content, - standard input
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    /// An argument by name; may be repeated
    #[arg(long = "kw", value_name = "NAME=VALUE", value_parser = pair)]
    kwargs: Vec<(String, String)>,
    /// Read the arguments by position from a file that holds a JSON array; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "args")]
    args_file: Option<PathBuf>,
    /// The right value: a program that gives another is rejected, and the call is kept as an example
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    expect: Option<String>,
    /// Teach the method an example, or a list of them, from a JSON file first: `{"args": [4], "value": 8}`; - is standard input
    #[arg(long, value_name = "FILE")]
    example: Option<PathBuf>,
    /// Ask the model for a program even if one is stored
    #[arg(long, conflicts_with = "frozen")]
    regenerate: bool,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentFlags,
}

impl CallOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let role = Role::parse(&self.role)?;
        let method = Method::parse(&self.method)?;
        let args = match &self.args_file {
            Some(path) => read_args(path)?,
            None => self.args.iter().map(|arg| argument_value(arg)).collect::<Result<_, _>>()?,
        };
        let kwargs = named_values(&self.kwargs)?;
        let expected = self.expect.as_deref().map(argument_value).transpose()?;
        let arguments = Arguments { args, kwargs };
        check_setter(&method, &arguments)?;
        let examples = self.example.as_deref().map(read_examples).transpose()?.unwrap_or_default();
        let mut caller = self.agent.open(&role, self.regenerate)?;
        for example in &examples {
            caller.runtime.programs().teach(&role, &method, example)?;
        }
        let (outcome, called) = match &expected {
            Some(expected) => {
                let called = caller.call_expecting(&method, arguments, expected)?;
                (called.outcome.clone(), Some((called, expected)))
            }
            None => (caller.call(&method, arguments)?, None),
        };
        if self.regenerate {
            note_admission(&outcome);
        }
        if is_setter(method.as_str()) && outcome.is_ok() && !self.agent.has_session() {
            render::notice(
                "nothing was kept: memory lasts as long as its process; add --session NAME to keep it",
            );
        }
        match called {
            Some((called, expected)) => shown_with_expectation(&called, expected, self.json),
            None => shown(&outcome, self.json),
        }
    }
}

/// Refuses a setter without a value, or with several. Agents are tolerant: they take the first value, or null.
fn check_setter(method: &Method, arguments: &Arguments) -> Result<(), CommandFault> {
    let given = arguments.args.len();
    if is_setter(method.as_str()) && (given != 1 || !arguments.kwargs.is_empty()) {
        return Err(CommandFault::usage(format!(
            "{method} takes one value and was given {}; give one (null clears it, '[1, 2]' keeps several)",
            given + arguments.kwargs.len()
        )));
    }
    Ok(())
}

/// Says why a program that was asked for is not kept to run from now on.
fn note_admission(outcome: &Outcome) {
    let made = outcome.details.as_ref().and_then(|details| details.admission);
    let why = match made {
        None | Some(Admission::TakesOver) => return,
        Some(Admission::AwaitsTrial | Admission::KeptUntried) => {
            "it must first reproduce the recorded calls of the stored one"
        }
        Some(Admission::KeptOnTrial) => {
            "it takes over if the stored one cannot use what arrives from outside in the next call either"
        }
        Some(Admission::KeptForPinned) => {
            "the stored one is pinned; `recurgent tools pin --off` changes that"
        }
        Some(Admission::KeptForReusable) => "it cannot be reused, and the stored one can",
        Some(Admission::KeptRejected) => "a person rejected the same text before",
    };
    render::notice(&format!("the new program answered this call and is not kept to run: {why}"));
}

/// Shows the answer, and what the person's expectation did.
fn shown_with_expectation(
    called: &ExpectedCall,
    expected: &Value,
    as_json: bool,
) -> Result<Exit, CommandFault> {
    let ExpectedCall { outcome, is_met, rejected, is_example } = called;
    if as_json {
        let mut fields = outcome_json(outcome);
        if let Value::Object(fields) = &mut fields {
            let report = json!({
                "met": is_met,
                "expected": expected,
                "rejected": rejected,
                "example_kept": is_example,
            });
            fields.insert("expectation".to_owned(), report);
        }
        render::json(&fields)?;
    } else {
        render::outcome(outcome)?;
    }
    let is_fulfilled = *is_met && rejected.is_empty();
    if !as_json && !is_fulfilled {
        let was = match (is_met, rejected.len()) {
            (_, 0) => String::new(),
            (true, 1) => "another program gave something else first and is rejected; ".to_owned(),
            (false, 1) => "its program is rejected; ".to_owned(),
            (_, count) => format!("{count} programs gave something else and are rejected; "),
        };
        let kept =
            if *is_example { "the call is kept as an example" } else { "no example is kept" };
        render::notice(&format!("{expected} was expected; {was}{kept}"));
    }
    Ok(if *is_met { Exit::Ok } else { Exit::Failed })
}

/// Arguments by name.
pub(super) fn named_values(pairs: &[(String, String)]) -> Result<Map<String, Value>, CommandFault> {
    let mut kwargs = Map::new();
    for (name, text) in pairs {
        if kwargs.insert(name.clone(), argument_value(text)?).is_some() {
            return Err(CommandFault::usage(format!("--kw gives {name} twice; say it once")));
        }
    }
    Ok(kwargs)
}

/// The example, or the examples, in a file.
fn read_examples(path: &Path) -> Result<Vec<Example>, CommandFault> {
    let unreadable =
        |problem: String| CommandFault::usage(format!("cannot use {}: {problem}", path.display()));
    let text = named_text(path)?;
    let read: Value =
        serde_json::from_str(without_mark(&text)).map_err(|error| unreadable(error.to_string()))?;
    let examples = match read {
        Value::Array(examples) => examples,
        one @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Object(_)) => {
            vec![one]
        }
    };
    let parsed = examples.iter().map(Example::parse).collect::<Result<_, _>>();
    parsed.map_err(|fault| unreadable(fault.to_string()))
}

/// Makes one call and shows its outcome.
pub(super) fn call_once(
    options: &AgentFlags,
    role: &Role,
    method: &Method,
    arguments: Arguments,
    as_json: bool,
) -> Result<Exit, CommandFault> {
    // Dropping the caller ends its workers, which takes time: the answer is shown first.
    let mut caller = options.open(role, false)?;
    let outcome = caller.call(method, arguments)?;
    shown(&outcome, as_json)
}

fn shown(outcome: &Outcome, as_json: bool) -> Result<Exit, CommandFault> {
    if as_json {
        render::json(&outcome_json(outcome))?;
    } else {
        render::outcome(outcome)?;
    }
    Ok(Exit::of(outcome))
}

fn read_args(path: &Path) -> Result<Vec<Value>, CommandFault> {
    serde_json::from_str(without_mark(&named_text(path)?)).map_err(|error| {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "standard input".into() } else { path.display().to_string() };
        CommandFault::usage(format!("{name} must hold one JSON array of arguments: {error}"))
    })
}
