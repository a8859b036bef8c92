//! `recurgent repl`: a conversation with one agent.

mod conversation;
mod input;
mod line;

use clap::Args;
use lifecycle::request::{Method, Role};
use recurgent::{Arguments, FailureKind};
use serde_json::Value;

use super::agent::{AgentFlags, Caller};
use crate::exit::{CommandFault, Exit};
use crate::render::entry::{LISTED_TIME, time};
use crate::render::paint::{Style, clean};
use crate::render::{self, Stream};
use conversation::Conversation;
use input::{Input, ReadLine};
use line::{DOT_COMMANDS, ReplCommand, ReplLine};

/// Calls and tools that are listed.
const LISTED: usize = 20;

/// What a line may be, and what it means.
const FORMS: [(&str, &str); 6] = [
    ("add 3", "call a method"),
    ("add(3, 4)", "the same, as in a program"),
    ("convert 100 from=celsius to=fahrenheit", "named arguments"),
    ("total @sales.csv", "the content of a file; @@x is the text @x"),
    ("memory = 5", "write memory; memory alone reads it"),
    ("what is the time?", "a sentence, or ask …: ask"),
];
/// Columns of what may be typed, in the help.
const FORM_COLUMNS: usize = 42;
/// The fewest columns beside it; with less, the meaning is on a line of its own.
const MIN_MEANING_COLUMNS: usize = 24;

const EXAMPLES: &str = "\
Examples:
  recurgent repl calculator
  recurgent repl calculator --session desk --guest ruby
  printf 'memory = 5\\nadd 3\\n' | recurgent repl calculator

Without a terminal it reads lines, prompts for nothing, and exits with 1 if any call failed.
On a terminal Tab completes known methods, memory keys and commands, Ctrl-R searches earlier lines, and a line \
with an open bracket or quote goes on. Lines that are pasted run one after the other. Ctrl-C stops the running call, \
Ctrl-D leaves.";

/// Talk to an agent, line by line
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplOptions {
    /// The role to talk to
    role: String,
    #[command(flatten)]
    agent: AgentFlags,
}

/// What a line came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Done,
    Failed,
    Cancelled,
    Quit,
}

impl ReplOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let role = Role::parse(&self.role)?;
        let caller = self.agent.open(&role, false)?;
        let mut input = Input::open(&caller)?;
        let mut conversation = Conversation::new(caller);
        if input.is_terminal() {
            render::note(&format!(
                "talking to {}; help shows what can be typed",
                clean(role.as_str())
            ));
        }
        let mut exit = Exit::Ok;
        loop {
            let turn = match input.next(|| conversation.names())? {
                ReadLine::Line(text) => take(&mut conversation, &text)?,
                ReadLine::Dropped => Turn::Done,
                ReadLine::End => Turn::Quit,
            };
            match turn {
                Turn::Done => {}
                Turn::Quit => return Ok(exit),
                Turn::Failed if input.is_terminal() => {}
                Turn::Cancelled if input.is_terminal() => input.drop_pasted(),
                Turn::Failed => exit = Exit::Failed,
                Turn::Cancelled => return Ok(Exit::Cancelled),
            }
        }
    }
}

fn take(conversation: &mut Conversation, text: &str) -> Result<Turn, CommandFault> {
    match line::parse(text) {
        Ok(ReplLine::Blank) => Ok(Turn::Done),
        Ok(ReplLine::ReplCommand { command: ReplCommand::Quit, .. }) => Ok(Turn::Quit),
        Ok(ReplLine::ReplCommand { command, rest }) => {
            Ok(match show(conversation, command, &rest) {
                Ok(()) => Turn::Done,
                Err(fault) => failed(&fault),
            })
        }
        Ok(ReplLine::Call { method, arguments }) => call(conversation, &method, arguments),
        Err(problem) => Ok(failed(&CommandFault::usage(problem))),
    }
}

/// A call that cannot be made ends the line, not the conversation.
fn call(
    conversation: &mut Conversation,
    method: &str,
    arguments: Arguments,
) -> Result<Turn, CommandFault> {
    let method = match Method::parse(method) {
        Ok(method) => method,
        Err(fault) => return Ok(failed(&fault.into())),
    };
    let outcome = match conversation.call(method, arguments) {
        Ok(outcome) => outcome,
        Err(fault) => return Ok(failed(&fault)),
    };
    render::outcome(&outcome)?;
    Ok(match outcome.failure() {
        None => Turn::Done,
        Some(failure) if failure.kind == FailureKind::Cancelled => Turn::Cancelled,
        Some(_) => Turn::Failed,
    })
}

fn failed(fault: &CommandFault) -> Turn {
    render::fault(fault);
    Turn::Failed
}

fn show(conversation: &Conversation, command: ReplCommand, rest: &str) -> Result<(), CommandFault> {
    let caller = &conversation.caller;
    match command {
        ReplCommand::Help => render::lines(&help()),
        ReplCommand::Memory => {
            let memory = Value::Object(caller.agent.runtime_context().to_object());
            render::text(&format!("{memory:#}"))
        }
        ReplCommand::Tools => render::lines(&tools(caller)?),
        ReplCommand::History => render::lines(&history(caller)?),
        ReplCommand::Why => render::lines(&conversation.why()?),
        ReplCommand::Cost => render::lines(&conversation.cost()),
        ReplCommand::Reject => {
            render::note(&conversation.reject(rest)?);
            Ok(())
        }
        ReplCommand::Teach => {
            render::note(&conversation.teach(line::content(rest).map_err(CommandFault::usage)?)?);
            Ok(())
        }
        ReplCommand::Quit => Ok(()),
    }
}

/// What can be typed, in the columns there are.
fn help() -> Vec<String> {
    let room = render::room(Stream::Output);
    let dots = DOT_COMMANDS.map(|(name, _, operand, help)| (format!("{name} {operand}"), help));
    let forms = FORMS.map(|(form, help)| (form.to_owned(), help));
    let line = |(form, help): (String, &str)| {
        if room.is_limited && room.columns < FORM_COLUMNS + MIN_MEANING_COLUMNS {
            return [vec![format!("  {form}")], render::beside("      ", 6, help, room)].concat();
        }
        render::beside(&format!("  {form:<40}"), FORM_COLUMNS, help, room)
    };
    forms.into_iter().chain(dots).flat_map(line).collect()
}

fn tools(caller: &Caller) -> Result<Vec<String>, CommandFault> {
    let paint = render::paint(Stream::Output);
    let known = caller.runtime.store().tools(None, LISTED)?;
    let line = |name: &str, purpose: &str, methods: &[String]| {
        let name = paint.in_style(Style::Name, &format!("{:<24}", clean(name)));
        let methods = paint.in_style(Style::Faint, &clean(&methods.join(", ")));
        format!("{name} {} {methods}", clean(purpose))
    };
    if known.is_empty() {
        return Ok(vec!["no tools yet; agents forge them with delegate".to_owned()]);
    }
    Ok(known
        .iter()
        .map(|known| {
            let contract = known.tool.contract.as_ref();
            let purpose = contract.and_then(|contract| contract.purpose.as_deref());
            line(known.tool.name.as_str(), purpose.unwrap_or_default(), &known.methods)
        })
        .collect())
}

fn history(caller: &Caller) -> Result<Vec<String>, CommandFault> {
    let paint = render::paint(Stream::Output);
    let text = |record: &Value, path: &str| match record.pointer(path) {
        Some(Value::String(text)) => clean(text),
        Some(value) => clean(&value.to_string()),
        None => String::new(),
    };
    let records = caller.agent.history(LISTED)?;
    if records.is_empty() {
        return Ok(vec!["no calls yet".to_owned()]);
    }
    Ok(records
        .iter()
        .map(|record| {
            let (when, status) =
                (time(record, LISTED_TIME), text(record, "/outcome_summary/status"));
            let style = if status == "ok" { Style::Good } else { Style::Bad };
            format!(
                "{} {} {}({})",
                paint.in_style(Style::Faint, &when),
                paint.in_style(style, &format!("{status:<5}")),
                text(record, "/method_name"),
                clean(&arguments(record)),
            )
        })
        .collect())
}

/// The arguments of a history record, as in a program.
fn arguments(record: &Value) -> String {
    let args = record.get("args").and_then(Value::as_array).into_iter().flatten();
    let kwargs = record.get("kwargs").and_then(Value::as_object).into_iter().flatten();
    let named = kwargs.map(|(name, value)| format!("{name}: {value}"));
    args.map(Value::to_string).chain(named).collect::<Vec<_>>().join(", ")
}
