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

/// A value that an argument of any text takes.
const WORD: &str = "word";

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
    /// As it is typed.
    fn shown(&self) -> String {
        let shown = |word: &String| if word.is_empty() { "''".to_owned() } else { word.clone() };
        self.words.iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    fn printed(&self) -> String {
        let line = std::iter::once("recurgent").chain(self.words.iter().map(String::as_str));
        match whole_command().try_get_matches_from(line) {
            Err(error) => error.render().to_string().trim_end().to_owned(),
            Ok(_) => panic!("{:?} is accepted", self.words),
        }
    }
}

/// Whether the words after a path of commands are refused.
fn is_refused(path: &[String], words: &[&str]) -> bool {
    let line = std::iter::once("recurgent").chain(path.iter().map(String::as_str));
    whole_command().try_get_matches_from(line.chain(words.iter().copied())).is_err()
}

/// The wrong uses of a command and of those below it: unknown flags, missing and superfluous arguments, values that an
/// argument does not take, flags that exclude each other.
fn wrong_uses(command: &Command, path: &[String]) -> Vec<WrongUse> {
    let with = |words: &[&str]| WrongUse {
        words: path.iter().cloned().chain(words.iter().map(|word| (*word).to_owned())).collect(),
    };
    let mut found = vec![with(&["--no-such-flag"])];
    if command.get_subcommands().next().is_some() {
        found.extend([with(&[]), with(&[NONSENSE])]);
    }
    let positionals = wrong_positionals(command, path);
    found.extend(
        positionals.iter().map(|words| with(&words.iter().map(String::as_str).collect::<Vec<_>>())),
    );
    let given = given_positionals(command);
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    for argument in flags(command) {
        for words in wrong_values(command, argument) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let line = [&given[..], &words].concat();
            if is_refused(path, &line) {
                found.push(with(&line));
            }
        }
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        let path: Vec<String> = path.iter().cloned().chain([below.get_name().to_owned()]).collect();
        found.extend(wrong_uses(below, &path));
    }
    found
}

/// The flags of a command, without those that clap adds.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_own = |it: &&Arg| it.get_id() != "help" && it.get_id() != "version";
    command.get_arguments().filter(is_own).filter(|it| it.get_long().is_some())
}

/// A flag with a value.
fn flag_words(argument: &Arg, value: Option<&str>) -> Vec<String> {
    let flag = argument.get_long().map(|name| format!("--{name}"));
    flag.into_iter().chain(value.map(str::to_owned)).collect()
}

/// A flag as it may be given.
fn right_words(argument: &Arg) -> Vec<String> {
    let value = takes_value(argument).then(|| right_value(argument));
    flag_words(argument, value.as_deref())
}

/// Uses of one flag that may be wrong.
fn wrong_values(command: &Command, argument: &Arg) -> Vec<Vec<String>> {
    let mut found = if takes_value(argument) {
        [None, Some(NONSENSE), Some("")].map(|value| flag_words(argument, value)).to_vec()
    } else {
        let flag = flag_words(argument, None).concat();
        vec![vec![format!("{flag}=yes")]]
    };
    let excluded = command.get_arg_conflicts_with(argument);
    for other in excluded.into_iter().filter(|other| other.get_long().is_some()) {
        found.push([right_words(argument), right_words(other)].concat());
    }
    found
}

/// Too few, too many, and values that a positional argument does not take.
fn wrong_positionals(command: &Command, path: &[String]) -> Vec<Vec<String>> {
    if command.get_subcommands().next().is_some() {
        return Vec::new();
    }
    let words: Vec<String> = command.get_positionals().map(right_value).collect();
    let required = given_positionals(command).len();
    let few = (0..required).map(|count| words.iter().take(count).cloned().collect());
    let many = std::iter::once([&words[..], &[NONSENSE.to_owned()]].concat());
    let other = (0..words.len()).map(|at| {
        let mut words = words.clone();
        words.truncate(required.max(at + 1));
        words.splice(at..=at, [NONSENSE.to_owned()]);
        words
    });
    let is_wrong = |words: &Vec<String>| {
        is_refused(path, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    few.chain(many).chain(other).filter(is_wrong).collect()
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

/// A value that an argument takes.
fn right_value(argument: &Arg) -> String {
    let possible = argument.get_possible_values();
    possible.first().map_or_else(|| WORD.to_owned(), |value| value.get_name().to_owned())
}

/// A word for every positional argument that must be there.
fn given_positionals(command: &Command) -> Vec<String> {
    command.get_positionals().filter(|it| it.is_required_set()).map(right_value).collect()
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
        let _ = write!(printed, "$ recurgent {}\n{}\n\n", wrong.shown(), wrong.printed());
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

/// A flag that is given twice is refused or counts once more; it is never ignored.
#[test]
fn a_flag_that_is_given_twice_is_refused() {
    fn check(command: &Command, path: &[String]) {
        for argument in flags(command).filter(|it| takes_one(it)) {
            let words = [given_positionals(command), right_words(argument), right_words(argument)];
            let wrong = WrongUse { words: [path, &words.concat()].concat() };
            if !argument.get_possible_values().is_empty() || !takes_value(argument) {
                let printed = wrong.printed();
                assert!(
                    printed.contains("cannot be used multiple times"),
                    "{:?}: {printed}",
                    wrong.words
                );
            }
        }
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            check(below, &[path, &[below.get_name().to_owned()]].concat());
        }
    }
    let mut command = whole_command();
    command.build();
    check(&command, &[]);
}

/// Whether a flag is meant to be given once.
fn takes_one(argument: &Arg) -> bool {
    // A pair of flags of which the last counts.
    let is_pair = matches!(argument.get_long(), Some("widen" | "no-widen"));
    matches!(argument.get_action(), ArgAction::Set | ArgAction::SetTrue) && !is_pair
}

/// The words of the first command of a shell line, or of the last one of a pipe. An explanation after two blanks is left
/// out.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(mark), _) if c == mark => quote = None,
            (Some(_), _) => word.push(c),
            (None, '"' | '\'') => (quote, is_word) = (Some(c), true),
            // Another command, or a file that is written.
            (None, '&' | ';' | '>') => break,
            (None, ' ') if chars.peek() == Some(&' ') => break,
            (None, ' ') if is_word => {
                words.push(std::mem::take(&mut word));
                is_word = false;
            }
            (None, ' ') => {}
            (None, '|') => words.clear(),
            (None, _) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    words.extend(is_word.then_some(word));
    words
}

/// Every example of the help is a command line that is accepted, and promises no answer that a program alone cannot
/// give, such as a summary.
#[test]
fn examples_of_the_help_are_accepted() {
    fn check(command: &Command) -> usize {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for promise in ["summar", "what's the source"] {
            assert!(!help.to_lowercase().contains(promise), "{promise:?} in {help}");
        }
        let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
        let examples = lines
            .map(shell_words)
            .filter(|words| words.first().is_some_and(|it| it == "recurgent"));
        let mut count = 0;
        for words in examples {
            count += 1;
            if let Err(error) = whole_command().try_get_matches_from(&words) {
                assert!(!error.use_stderr(), "{words:?}: {error}");
            }
        }
        count + command.get_subcommands().map(check).sum::<usize>()
    }
    let mut command = whole_command();
    command.build();
    assert!(check(&command) > 60, "the help has examples");
}
