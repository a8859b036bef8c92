//! The command line: one variant of [`Verb`] for each command.

mod age;
mod agent;
mod ask;
mod call;
mod complete;
mod config;
mod conformance;
mod demo;
mod doctor;
mod env;
mod filter;
mod init;
mod input;
mod man;
mod mcp;
mod model;
mod repl;
mod sessions;
mod settings;
mod store;
mod tools;
mod trace;
mod usage;
mod watch;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::exit::{CommandFault, Exit, exit_code_help};
use crate::render;

const EXAMPLES: &str = "\
Examples:
  recurgent demo                                        see it work, without a model or network
  recurgent call calculator add 3 4                     call any method on any role
  recurgent call calculator memory= 5 --session desk    memory that outlives the process
  recurgent ask calculator \"what is 15% of 240?\"        ask in plain words
  recurgent call editor word_count @report.txt          a file as an argument
  recurgent repl calculator                             talk to an agent
  recurgent watch                                       every call, as it happens
  recurgent model install                               a model on this machine: no key, no network
  recurgent mcp add time -- uvx mcp-server-time         tools of a server for your programs
  recurgent trace list                                  the last calls, newest first
  recurgent trace show last                             what the last call did, and why
  recurgent usage --by day                              model calls made and avoided, tokens, money
  recurgent tools list                                  what is stored
  recurgent env list                                    packages installed for programs
  recurgent tools recommend                             what should be done about your tools
  recurgent init                                        write a configuration file
  recurgent doctor                                      what is missing on this machine";

/// An agent runtime that grows software through use
///
/// Call any method on an agent: a model writes a program for it, the runtime vets it, runs it in a
/// worker process, checks the outcome, and keeps what works.
#[derive(Debug, Parser)]
#[command(
    name = "recurgent",
    version,
    after_help = format!("{EXAMPLES}\n\n{}", exit_code_help()),
    max_term_width = 100
)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Call(call::CallOptions),
    Ask(ask::AskOptions),
    Repl(repl::ReplOptions),
    Demo(demo::DemoOptions),
    Init(init::InitOptions),
    Doctor(doctor::DoctorOptions),
    Config(config::ConfigOptions),
    Tools(tools::ToolsOptions),
    Store(store::StoreOptions),
    Sessions(sessions::SessionsOptions),
    Env(env::EnvOptions),
    Model(model::ModelCommand),
    Mcp(mcp::McpOptions),
    Watch(watch::WatchOptions),
    Trace(trace::TraceOptions),
    Usage(usage::UsageOptions),
    Conformance(conformance::ConformanceOptions),
    /// Print a completion script for a shell; it knows your roles, methods and sessions too
    ///
    /// For bash, in ~/.bashrc: source <(recurgent completions bash)
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    #[command(hide = true)]
    Complete(complete::CompleteOptions),
    Man(man::ManOptions),
}

/// Runs the command of a command line.
pub(crate) fn run(line: Vec<OsString>) -> Result<Exit, CommandFault> {
    let as_json = wants_json(&line);
    let answer = match CommandLine::try_parse_from(line) {
        Ok(line) => perform(line.verb),
        Err(error) => parse_error(&error, as_json),
    };
    answer.map_err(|fault| CommandFault { as_json, ..fault })
}

fn perform(verb: Verb) -> Result<Exit, CommandFault> {
    match verb {
        Verb::Call(options) => options.run(),
        Verb::Ask(options) => options.run(),
        Verb::Repl(options) => options.run(),
        Verb::Demo(options) => options.run(),
        Verb::Init(options) => options.run(),
        Verb::Doctor(options) => options.run(),
        Verb::Config(options) => options.run(),
        Verb::Tools(options) => options.run(),
        Verb::Store(options) => options.run(),
        Verb::Sessions(options) => options.run(),
        Verb::Env(options) => options.run(),
        Verb::Model(options) => options.run(),
        Verb::Mcp(options) => options.run(),
        Verb::Watch(options) => options.run(),
        Verb::Trace(options) => options.run(),
        Verb::Usage(options) => options.run(),
        Verb::Conformance(options) => options.run(),
        Verb::Completions { shell } => {
            render::bytes(&complete::script::<CommandLine>(shell))?;
            Ok(Exit::Ok)
        }
        Verb::Complete(options) => options.run::<CommandLine>(),
        Verb::Man(options) => options.run::<CommandLine>(),
    }
}

/// Whether the line asks for JSON. Also works for a line that cannot be parsed.
fn wants_json(line: &[OsString]) -> bool {
    line.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// Prints help and version; everything else is a usage error, as JSON if the line asks for it.
fn parse_error(error: &clap::Error, as_json: bool) -> Result<Exit, CommandFault> {
    let is_answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if as_json && !is_answer {
        let text = error.render().to_string();
        let text = text.trim().strip_prefix("error: ").unwrap_or(text.trim());
        return Err(CommandFault::usage(text));
    }
    let printed = error.print();
    if is_answer {
        render::check_output(printed)?;
        return Ok(Exit::Ok);
    }
    Ok(Exit::Usage)
}

#[cfg(test)]
mod wrong_uses;

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }
}
