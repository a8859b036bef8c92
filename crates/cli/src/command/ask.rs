//! `recurgent ask`: a question in plain words.

use clap::Args;
use lifecycle::request::{Method, Role};
use recurgent::Arguments;
use serde_json::Map;

use super::agent::AgentFlags;
use super::call::call_once;
use crate::exit::{CommandFault, Exit};

const EXAMPLES: &str = "\
Examples:
  recurgent ask \"travel planner\" \"what should I pack for Oslo in March?\"
  recurgent ask assistant what is the source? --session desk";

/// The method a question is a call of.
pub(super) const ASK: &str = "ask";

/// Ask a role a question; short for `recurgent call ROLE ask QUESTION`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AskOptions {
    /// The role to ask
    role: String,
    /// What to ask; always text, several words are one question
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
        let question = self.question.join(" ");
        if question.trim().is_empty() {
            return Err(CommandFault::usage("the question must not be empty; ask in a sentence"));
        }
        let arguments = Arguments { args: vec![question.into()], kwargs: Map::new() };
        call_once(&self.agent, &role, &Method::parse(ASK)?, arguments, self.json)
    }
}
