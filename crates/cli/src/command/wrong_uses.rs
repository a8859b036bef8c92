//! Derives wrong command lines from clap's description of the commands, and compares what each prints with a file.
//!
//! `UPDATE_DOCS=1 cargo test wrong_uses` writes the file.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::CommandLine;

/// The file with the expected output.
const GOLDEN: &str = "tests/wrong-uses.txt";
/// A value that no typed argument takes, and that no argument starts with.
const NONSENSE: &str = "?nonsense?";

/// The width of the output, so that it does not depend on the terminal.
const COLUMNS: usize = 100;

fn whole_command() -> Command {
    CommandLine::command().term_width(COLUMNS)
}

/// One wrong command line.
struct WrongUse {
    words: Vec<String>,
}

impl WrongUse {
    fn printed(&self) -> String {
        let line = std::iter::once("recurgent").chain(self.words.iter().map(String::as_str));
        match whole_command().try_get_matches_from(line) {
            Err(error) => error.render().to_string().trim_end().to_owned(),
            Ok(_) => panic!("{:?} is accepted", self.words),
        }
    }
}

/// The wrong uses of a command and of those below it.
fn wrong_uses(command: &Command, path: &[String]) -> Vec<WrongUse> {
    let with = |words: &[&str]| WrongUse {
        words: path.iter().cloned().chain(words.iter().map(|word| (*word).to_owned())).collect(),
    };
    let mut found = vec![with(&["--no-such-flag"])];
    if command.get_subcommands().next().is_some() {
        found.extend([with(&[]), with(&[NONSENSE])]);
    } else if command.get_positionals().any(Arg::is_required_set) {
        found.push(with(&[]));
    } else if command.get_positionals().next().is_none() {
        found.push(with(&[NONSENSE]));
    }
    let given = given_positionals(command);
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    for argument in
        command.get_arguments().filter(|it| it.get_id() != "help" && it.get_id() != "version")
    {
        let Some(flag) = argument.get_long().map(|name| format!("--{name}")) else { continue };
        if !takes_value(argument) {
            found.push(with(&[&given[..], &[&format!("{flag}=yes")]].concat()));
            continue;
        }
        found.push(with(&[&given[..], &[&flag]].concat()));
        let nonsense = [&given[..], &[&flag, NONSENSE]].concat();
        let line = std::iter::once("recurgent")
            .chain(path.iter().map(String::as_str))
            .chain(nonsense.iter().copied());
        if whole_command().try_get_matches_from(line).is_err() {
            found.push(with(&nonsense));
        }
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        let path: Vec<String> = path.iter().cloned().chain([below.get_name().to_owned()]).collect();
        found.extend(wrong_uses(below, &path));
    }
    found
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

/// A word for every positional argument that must be there.
fn given_positionals(command: &Command) -> Vec<String> {
    let value = |argument: &Arg| {
        let possible = argument.get_possible_values();
        possible.first().map_or_else(|| "word".to_owned(), |value| value.get_name().to_owned())
    };
    command.get_positionals().filter(|it| it.is_required_set()).map(value).collect()
}

#[test]
fn wrong_uses_print_what_the_file_says() {
    let mut command = whole_command();
    command.build();
    let uses = wrong_uses(&command, &[]);
    assert!(uses.len() > 100, "the tree has more than {} wrong uses", uses.len());
    let mut printed = String::new();
    for wrong in &uses {
        // Writing to a String cannot fail.
        let _ = write!(printed, "$ recurgent {}\n{}\n\n", wrong.words.join(" "), wrong.printed());
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if updates_golden() {
        std::fs::write(&golden, &printed).unwrap();
    }
    let recorded = std::fs::read_to_string(&golden).unwrap_or_default();
    let differs = printed.split("\n\n").zip(recorded.split("\n\n")).find(|(now, then)| now != then);
    assert!(
        printed == recorded,
        "{GOLDEN} is not what is printed; UPDATE_DOCS=1 writes it. First difference: {differs:#?}"
    );
}

#[expect(clippy::disallowed_methods, reason = "a test asks whether it may write its golden file")]
fn updates_golden() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

/// Every message says what is wrong and how to learn more.
#[test]
fn wrong_uses_say_what_is_wrong() {
    let mut command = whole_command();
    command.build();
    for wrong in wrong_uses(&command, &[]) {
        let printed = wrong.printed();
        let says = ["error: ", "Usage: "].iter().any(|part| printed.contains(part));
        assert!(says && printed.contains("--help"), "{:?}: {printed}", wrong.words);
    }
}
