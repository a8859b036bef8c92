//! `recurgent complete`: completions of the last word of a command line. The scripts of shells ask for them.

use std::collections::BTreeSet;

use clap::{Arg, Args, Command, CommandFactory};
use clap_complete::Shell;
use lifecycle::request::Role;
use recurgent::config::{Config, KEYS};
use recurgent::provider::service_names;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;

use crate::exit::{CommandFault, Exit};
use crate::render;

/// Most names of one kind.
const MAX_NAMES: usize = 500;

const BASH: &str = r#"_recurgent() {
    local found word
    mapfile -t found < <(recurgent complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=()
    for word in "${found[@]}"; do COMPREPLY+=("$(printf '%q' "$word")"); done
}
complete -o default -F _recurgent recurgent
"#;
const ZSH: &str = r#"#compdef recurgent
_recurgent() {
    local -a found
    found=("${(@f)$(recurgent complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _recurgent recurgent
"#;
const FISH: &str = "\
complete -c recurgent -a '(recurgent complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
";

/// Print completions of the last word of a command line, one to a line
#[derive(Debug, Args)]
pub(crate) struct CompleteOptions {
    /// The words after `recurgent`, the one to complete last
    #[arg(last = true)]
    words: Vec<String>,
}

impl CompleteOptions {
    /// Prints the candidates of a command.
    pub(crate) fn run<C: CommandFactory>(self) -> Result<Exit, CommandFault> {
        let mut command = C::command();
        command.build();
        let (typed, before) = match self.words.split_last() {
            Some((typed, before)) => (typed.as_str(), before),
            None => ("", &[][..]),
        };
        let names = candidates(&Position::of(&command, before), typed);
        render::lines(
            &names.into_iter().filter(|name| name.starts_with(typed)).collect::<Vec<_>>(),
        )?;
        Ok(Exit::Ok)
    }
}

/// The script that makes a shell ask for completions.
pub(super) fn script<C: CommandFactory>(shell: Shell) -> Vec<u8> {
    match shell {
        Shell::Bash => BASH.into(),
        Shell::Zsh => ZSH.into(),
        Shell::Fish => FISH.into(),
        // Commands and flags only.
        other @ (Shell::Elvish | Shell::PowerShell | _) => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut C::command(), "recurgent", &mut script);
            script
        }
    }
}

/// Where in a command line the word to complete is.
struct Position<'a> {
    command: &'a Command,
    /// The name of the first command, of which `command` may be a verb.
    group: &'a str,
    /// The flag whose value it is.
    flag: Option<&'a Arg>,
    /// The words by position before it.
    given: Vec<&'a str>,
}

impl<'a> Position<'a> {
    /// Follows the words before it through the tree of commands.
    fn of(root: &'a Command, before: &'a [String]) -> Self {
        let mut position = Self { command: root, group: "", flag: None, given: Vec::new() };
        for word in before {
            if position.flag.take().is_some() {
                continue;
            }
            let subcommand = position.command.find_subcommand(word);
            if let Some(name) = word.strip_prefix("--") {
                let known = position.command.get_arguments().find(|it| it.get_long() == Some(name));
                position.flag = known.filter(|arg| arg.get_action().takes_values());
            } else if let Some(subcommand) = subcommand.filter(|_| position.given.is_empty()) {
                if position.group.is_empty() {
                    position.group = subcommand.get_name();
                }
                position.command = subcommand;
            } else {
                position.given.push(word);
            }
        }
        position
    }

    /// The argument that the word is a value of.
    fn argument(&self) -> Option<&'a Arg> {
        let by_position = || {
            let mut positionals = self.command.get_positionals();
            positionals.nth(self.given.len()).or_else(|| self.command.get_positionals().last())
        };
        self.flag.or_else(by_position)
    }
}

fn candidates(position: &Position<'_>, typed: &str) -> BTreeSet<String> {
    let Position { command, group, flag, given } = position;
    if typed.starts_with('-') && flag.is_none() {
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        return shown.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
    }
    let mut names = BTreeSet::new();
    if given.is_empty() && flag.is_none() {
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        names.extend(shown.map(|it| it.get_name().to_owned()));
    }
    if let Some(argument) = position.argument() {
        let values = argument.get_possible_values();
        names.extend(values.iter().map(|value| value.get_name().to_owned()));
        let name = argument.get_id().as_str();
        names.extend(match (*group, name) {
            (_, "set") => KEYS.iter().map(|key| format!("{}=", key.name)).collect(),
            (_, "provider") => providers(),
            ("trace", "id") => BTreeSet::from(["last".to_owned()]),
            ("model", "name") => models(),
            _ => stored(group, name, flag.is_some(), given),
        });
    }
    names
}

/// Providers that need no file.
fn providers() -> BTreeSet<String> {
    let services = service_names();
    services.split(", ").chain(["auto", "embedded"]).map(str::to_owned).collect()
}

/// The models that are installed.
fn models() -> BTreeSet<String> {
    let options = Config::load().ok().and_then(|config| config.model_options().ok());
    let folder = options.and_then(|options| options.folder());
    let installed = folder.map(|folder| folder.installed()).unwrap_or_default();
    installed.into_iter().map(|model| model.name).collect()
}

/// What the store knows for an argument of a command of a group. Without a store that is nothing: completion makes no files.
fn stored(group: &str, argument: &str, is_flag: bool, given: &[&str]) -> BTreeSet<String> {
    let path = Config::load().ok().and_then(|config| config.store_path().ok());
    let store = path.filter(|path| path.exists()).and_then(|path| SqliteStore::open(&path).ok());
    let Some(store) = store else { return BTreeSet::new() };
    match (group, argument) {
        // The flag --tools names servers.
        (_, "tools") if is_flag => BTreeSet::new(),
        (_, "role" | "tool" | "tools") | ("tools", "name") => roles(&store),
        (_, "method") => {
            methods(&store, given.first().and_then(|role| Role::parse(role).ok()).as_ref())
        }
        (_, "session") | ("sessions", "name") => sessions(&store),
        _ => BTreeSet::new(),
    }
}

fn roles(store: &SqliteStore) -> BTreeSet<String> {
    let stored = store.artifacts(None, MAX_NAMES).unwrap_or_default();
    let stored = stored.into_iter().map(|it| it.current.role.to_string());
    let tools = store.tools(None, MAX_NAMES).unwrap_or_default();
    let tools = tools.into_iter().map(|known| known.tool.name.to_string());
    stored.chain(tools).collect()
}

fn methods(store: &SqliteStore, role: Option<&Role>) -> BTreeSet<String> {
    let known = store.artifacts(role, MAX_NAMES).unwrap_or_default();
    known.into_iter().map(|it| it.current.method.to_string()).collect()
}

fn sessions(store: &SqliteStore) -> BTreeSet<String> {
    let known = store.sessions().unwrap_or_default();
    known.into_iter().map(|session| session.name).collect()
}
