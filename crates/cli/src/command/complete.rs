//! Completion in shells, with what the store knows: roles, methods, sessions and tools.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use clap::CommandFactory;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use lifecycle::request::Role;
use recurgent::config::Config;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;

use crate::exit::CommandFault;
use crate::render;

/// Set by the script of a shell. It does not begin as the variables of settings do.
const VARIABLE: &str = "_RECURGENT_COMPLETE";
/// The command that scripts complete and run.
const NAME: &str = "recurgent";
/// Most names of one kind.
const MAX_NAMES: usize = 500;
/// Commands after which a role is named.
const ROLE_VERBS: [&str; 4] = ["call", "ask", "repl", "prepare"];

/// Answers a shell that asks for completions; false: it is an ordinary command line.
pub(super) fn answer<C: CommandFactory>(line: &[OsString]) -> Result<bool, CommandFault> {
    CompleteEnv::with_factory(C::command)
        .var(VARIABLE)
        .bin(NAME)
        .try_complete(line, None)
        .map_err(|error| CommandFault::usage(error.to_string()))
}

/// Prints the script that makes a shell ask for completions.
pub(super) fn print_script(shell: &str) -> Result<(), CommandFault> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(shell) else {
        return Err(CommandFault::usage(format!("{shell} is not a shell that can be completed")));
    };
    shell
        .write_registration(VARIABLE, NAME, NAME, NAME, &mut script)
        .map_err(|error| CommandFault::failed(format!("the script cannot be written: {error}")))?;
    render::bytes(&script)
}

/// Completes the name of a role that has stored programs or is a tool.
pub(super) fn role() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| candidates(typed, |store| roles(store)))
}

/// Completes a method of the role that the line names, or of any.
pub(super) fn method() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let role = named_role(&std::env::args_os().collect::<Vec<_>>());
        candidates(typed, |store| {
            let known = store.artifacts(role.as_ref(), MAX_NAMES).unwrap_or_default();
            known.into_iter().map(|it| it.current.method.to_string()).collect()
        })
    })
}

/// Completes the name of a session.
pub(super) fn session() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        candidates(typed, |store| {
            let sessions = store.sessions().unwrap_or_default();
            sessions.into_iter().map(|session| session.name).collect()
        })
    })
}

fn roles(store: &SqliteStore) -> BTreeSet<String> {
    let stored = store.artifacts(None, MAX_NAMES).unwrap_or_default();
    let stored = stored.into_iter().map(|it| it.current.role.to_string());
    let tools = store.tools(None, MAX_NAMES).unwrap_or_default();
    let tools = tools.into_iter().map(|known| known.tool.name.to_string());
    stored.chain(tools).collect()
}

/// The names that begin as typed. Without a store there are none: completion makes no files.
fn candidates(
    typed: &OsStr,
    names: impl FnOnce(&SqliteStore) -> BTreeSet<String>,
) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let path = Config::load().ok().and_then(|config| config.store_path().ok());
    let store = path.filter(|path| path.exists()).and_then(|path| SqliteStore::open(&path).ok());
    let names = store.map(|store| names(&store)).unwrap_or_default();
    let matching = names.into_iter().filter(|name| name.starts_with(typed.as_ref()));
    matching.map(CompletionCandidate::new).collect()
}

/// The role that a line of words names: the first word after a command that takes one, flags aside.
fn named_role(line: &[OsString]) -> Option<Role> {
    let words = line.iter().map(|word| word.to_string_lossy());
    let mut words = words.skip_while(|word| !ROLE_VERBS.contains(&word.as_ref())).skip(1);
    words.find(|word| !word.starts_with('-')).and_then(|word| Role::parse(&word).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_is_the_word_after_the_command() {
        for (line, role) in [
            ("recurgent -- recurgent call calculator ad", Some("calculator")),
            ("recurgent -- recurgent call --frozen calculator ad", Some("calculator")),
            ("recurgent -- recurgent tools show x", None),
        ] {
            let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(named_role(&line).as_ref().map(Role::as_str), role, "{line:?}");
        }
    }
}
