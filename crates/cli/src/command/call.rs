//! `recurgent call`: one call, one answer.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use recurgent::Arguments;
use recurgent::lifecycle::request::{Method, Role};
use serde_json::{Map, Value};

use super::agent::{AgentFlags, value};
use super::settings::pair;
use crate::exit::{CommandFault, Exit};
use crate::render;

/// Longest `--args-file` that is read. What a call takes is bounded by `max_argument_bytes`.
const MAX_ARGS_FILE_BYTES: u64 = 256 * 1024 * 1024;

const EXAMPLES: &str = "\
Examples:
  recurgent call calculator add 3 -4
  recurgent call converter convert 100 --kw from=celsius --kw to=fahrenheit
  recurgent call calculator memory= 5 --session desk      write memory, no model
  recurgent call calculator memory --session desk         read it back
  recurgent call editor summarise --args-file report.json --json
  recurgent call calculator add 3 --provider scripted:programs.yaml --guest ruby

Each ARG is JSON if it parses as JSON, otherwise text: 3 is a number, '\"3\"' and three are text.
An ARG that begins with a dash and is no number follows a --.";

/// Call any method on any role and print the answer
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CallOptions {
    /// Whom to call, such as calculator
    role: String,
    /// What to call, such as add; NAME= writes memory, and a memory key alone reads it
    method: String,
    /// Arguments by position
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    /// An argument by name; may be repeated
    #[arg(long = "kw", value_name = "NAME=VALUE", value_parser = pair)]
    kwargs: Vec<(String, String)>,
    /// Read the arguments by position from a file that holds a JSON array; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "args")]
    args_file: Option<PathBuf>,
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
            None => self.args.iter().map(|arg| value(arg)).collect(),
        };
        let mut kwargs = Map::new();
        for (name, text) in &self.kwargs {
            if kwargs.insert(name.clone(), value(text)).is_some() {
                return Err(CommandFault::usage(format!("--kw gives {name} twice; say it once")));
            }
        }
        call_once(&self.agent, &role, &method, Arguments { args, kwargs }, self.json)
    }
}

/// Makes one call and shows what came of it.
pub(super) fn call_once(
    options: &AgentFlags,
    role: &Role,
    method: &Method,
    arguments: Arguments,
    as_json: bool,
) -> Result<Exit, CommandFault> {
    // Shown before the workers are told to end: nobody waits for that.
    let mut caller = options.open(role)?;
    let answer = caller.call(method, arguments)?;
    if as_json {
        render::json(&answer.to_json())?;
    } else {
        render::answer(&answer)?;
    }
    Ok(Exit::of(&answer.outcome))
}

fn read_args(path: &Path) -> Result<Vec<Value>, CommandFault> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let unread = |error: io::Error| CommandFault::usage(format!("cannot read {name}: {error}"));
    let source: Box<dyn Read> =
        if is_stdin { Box::new(io::stdin()) } else { Box::new(File::open(path).map_err(unread)?) };
    let mut text = Vec::new();
    source.take(MAX_ARGS_FILE_BYTES + 1).read_to_end(&mut text).map_err(unread)?;
    if text.len() as u64 > MAX_ARGS_FILE_BYTES {
        return Err(CommandFault::invalid_call(format!(
            "{name} has more than {MAX_ARGS_FILE_BYTES} bytes; pass less (a path, an id)"
        )));
    }
    serde_json::from_slice(&text).map_err(|error| {
        CommandFault::usage(format!("{name} must hold one JSON array of arguments: {error}"))
    })
}
