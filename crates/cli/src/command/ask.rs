//! `recurgent ask`: a question in plain words.

use clap::Args;
use lifecycle::dispatch::ASK;
use lifecycle::request::{Method, Role};
use recurgent::Arguments;
use serde_json::{Map, Value};

use super::agent::AgentFlags;
use super::call::call_once;
use super::input::{INPUT_HELP, argument_text, argument_value, is_content};
use crate::exit::{CommandFault, Exit};

const EXAMPLES: &str = "\
Examples:
  recurgent ask calculator \"what is 15% of 240?\"
  recurgent ask calculator and of 90? --session desk       the last turns of the session are in view
  recurgent ask analyst \"which month sold most?\" @sales.csv
  git log | recurgent ask historian \"who committed most?\" -

A program answers, with what is in its arguments and memory. The model that writes it sees the beginning of each \
argument, not all of it. With --network or --read the program can look things up.";

fn after_help() -> String {
    format!(
        "{EXAMPLES}\n\n{INPUT_HELP}\nBeside words they are further arguments; alone they are the question."
    )
}

/// Ask a role a question; short for `recurgent call ROLE ask QUESTION`
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct AskOptions {
    /// The role to ask
    role: String,
    /// What to ask: several words are one question; @FILE and - are what it is about
    #[arg(required = true, allow_negative_numbers = true)]
    question: Vec<String>,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentFlags,
}

impl AskOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let role = Role::parse(&self.role)?;
        let arguments = Arguments { args: arguments(&self.question)?, kwargs: Map::new() };
        call_once(&self.agent, &role, &Method::parse(ASK)?, arguments, self.json)
    }
}

/// The question, then the contents it is about. Without words, the first content is the question.
fn arguments(words: &[String]) -> Result<Vec<Value>, CommandFault> {
    let (contents, words): (Vec<&String>, Vec<&String>) =
        words.iter().partition(|word| is_content(word));
    let words = words.into_iter().map(|word| argument_text(word)).collect::<Result<Vec<_>, _>>()?;
    let mut contents = contents.into_iter();
    let question = if words.is_empty() {
        contents.next().map(|content| argument_text(content)).transpose()?.unwrap_or_default()
    } else {
        words.join(" ")
    };
    if question.trim().is_empty() {
        return Err(CommandFault::usage("the question must not be empty; ask in a sentence"));
    }
    let about = contents.map(|content| argument_value(content)).collect::<Result<Vec<_>, _>>()?;
    Ok([vec![Value::String(question)], about].concat())
}
