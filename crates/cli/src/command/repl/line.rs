//! What a line typed into the repl means.

use std::collections::VecDeque;

use lifecycle::dispatch::ASK;
use recurgent::Arguments;
use serde_json::{Map, Value};

use crate::command::agent::value;
use crate::command::input::argument_value;

/// What a line means.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReplLine {
    /// An empty line.
    Blank,
    /// Something asked of the repl itself.
    ReplCommand {
        /// What.
        command: ReplCommand,
        /// What follows its name.
        rest: String,
    },
    /// A call; `name=` writes memory.
    Call {
        /// The method.
        method: String,
        /// Its arguments.
        arguments: Arguments,
    },
}

/// Something asked of the repl itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplCommand {
    /// What can be typed.
    Help,
    /// What the agent remembers.
    Memory,
    /// The tools there are.
    Tools,
    /// The latest calls.
    History,
    /// What the last call did.
    Why,
    /// What the calls cost.
    Cost,
    /// The last program is wrong.
    Reject,
    /// The right value of the last call.
    Teach,
    /// Leave.
    Quit,
}

/// How a question begins that need not end in a question mark.
const ASK_PREFIX: &str = "ask ";
/// Words that leave or help without a dot, as in other shells.
const WORDS: [(&str, ReplCommand); 3] =
    [("exit", ReplCommand::Quit), ("quit", ReplCommand::Quit), ("help", ReplCommand::Help)];

/// Every dot command: what follows it, and what it is for.
pub(super) const DOT_COMMANDS: [(&str, ReplCommand, &str, &str); 9] = [
    (".help", ReplCommand::Help, "", "show this list"),
    (".memory", ReplCommand::Memory, "", "what the agent remembers"),
    (".tools", ReplCommand::Tools, "", "the tools there are"),
    (".history", ReplCommand::History, "", "the latest calls"),
    (".why", ReplCommand::Why, "", "what the last call did, and why"),
    (".cost", ReplCommand::Cost, "", "model calls, tokens and money of this conversation"),
    (".reject", ReplCommand::Reject, "[REASON]", "the program of the last call is wrong"),
    (".teach", ReplCommand::Teach, "VALUE", "the right answer to the last call"),
    (".quit", ReplCommand::Quit, "", "leave (quit, exit, Ctrl-D)"),
];

/// Reads a line, or says what is wrong with it.
pub(super) fn parse(line: &str) -> Result<ReplLine, String> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(ReplLine::Blank);
    }
    if line.starts_with('.') {
        return dot(line);
    }
    if let Some((_, command)) = WORDS.iter().find(|(word, _)| *word == line) {
        return Ok(ReplLine::ReplCommand { command: *command, rest: String::new() });
    }
    if let Some(question) = question(line) {
        return Ok(call(ASK, vec![question.into()], Map::new()));
    }
    let name_end = line.find(|c: char| !is_name(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    if name.is_empty() {
        return Err(format!(
            "{line:?} does not begin with a method name; .help shows what can be typed"
        ));
    }
    if let Some(assigned) = rest.trim_start().strip_prefix('=').filter(|v| !v.starts_with('=')) {
        return assignment(name, assigned.trim());
    }
    let inside = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let (pieces, marks): (_, &[char]) = match inside {
        Some(inside) => (split(inside, |c| c == ',')?, &['=', ':']),
        None if rest.is_empty() || rest.starts_with(char::is_whitespace) => {
            (split(rest, char::is_whitespace)?, &['='])
        }
        None => {
            return Err(format!("cannot read {rest:?} after {name}; write {name}(…) or {name} …"));
        }
    };
    let (mut args, mut kwargs) = (Vec::new(), Map::new());
    for piece in pieces {
        match named(piece, marks) {
            Some((name, text)) => {
                if kwargs.insert(name.to_owned(), literal(text)?).is_some() {
                    return Err(format!("{name} is given twice; remove one"));
                }
            }
            None => args.push(literal(piece)?),
        }
    }
    Ok(call(name, args, kwargs))
}

fn call(method: &str, args: Vec<Value>, kwargs: Map<String, Value>) -> ReplLine {
    ReplLine::Call { method: method.to_owned(), arguments: Arguments { args, kwargs } }
}

fn dot(line: &str) -> Result<ReplLine, String> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let known = DOT_COMMANDS.iter().find(|(known, ..)| *known == name).map(|(_, it, ..)| *it);
    let known = known.or_else(|| (name == ".exit").then_some(ReplCommand::Quit));
    let takes_text = matches!(known, Some(ReplCommand::Reject | ReplCommand::Teach));
    match known {
        Some(ReplCommand::Teach) if rest.is_empty() => {
            Err("teach what? Write .teach and the right value of the last call".to_owned())
        }
        Some(command) if takes_text || rest.is_empty() => {
            Ok(ReplLine::ReplCommand { command, rest: rest.to_owned() })
        }
        Some(_) => Err(format!("{name} takes nothing after it; remove {rest:?}")),
        None => {
            let names = DOT_COMMANDS.map(|(name, ..)| name).join(", ");
            Err(format!("{line:?} is not a command; try one of {names}"))
        }
    }
}

/// Whether a line goes on, because a bracket or a quote in it is open.
pub(super) fn is_open(line: &str) -> bool {
    let line = line.trim();
    let is_text = line.starts_with('.') || question(line).is_some();
    !is_text && matches!(pieces(line, char::is_whitespace), Ok((_, Some(_))))
}

/// `ask …`, or a sentence: several words that end in a question mark.
fn question(line: &str) -> Option<&str> {
    let asked = line.strip_prefix(ASK_PREFIX).map(str::trim);
    asked.or_else(|| (line.ends_with('?') && line.contains(char::is_whitespace)).then_some(line))
}

fn assignment(name: &str, text: &str) -> Result<ReplLine, String> {
    if text.is_empty() {
        return Err(format!("{name} = what? Write null to clear it"));
    }
    Ok(call(&format!("{name}="), vec![literal(text)?], Map::new()))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '?' | '!')
}

/// `name=value`, or with `:` where that is a mark too.
fn named<'a>(piece: &'a str, marks: &[char]) -> Option<(&'a str, &'a str)> {
    let (name, text) = piece.split_once(|c| marks.contains(&c))?;
    let name = name.trim_end();
    let is_named = !name.is_empty()
        && name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(is_name)
        && !text.starts_with('=');
    is_named.then_some((name, text.trim_start()))
}

/// What single quotes hold, or else the content of a text.
fn literal(text: &str) -> Result<Value, String> {
    let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    match quoted {
        Some(text) => Ok(Value::String(text.replace("\\'", "'"))),
        None => content(text),
    }
}

/// The content of a file (`@FILE`), JSON if it is JSON, or the text itself. Standard input is where the lines come from.
pub(super) fn content(text: &str) -> Result<Value, String> {
    if text.starts_with('@') && text != "@-" {
        return argument_value(text).map_err(|fault| fault.message);
    }
    Ok(value(text))
}

/// The lines of a text that was pasted. A line with an open bracket or quote goes on, and a question with all that follows.
pub(super) fn whole_lines(text: &str) -> VecDeque<String> {
    if text.trim_start().starts_with(ASK_PREFIX) {
        return VecDeque::from([text.to_owned()]);
    }
    let mut lines = VecDeque::new();
    let mut begun = String::new();
    for line in text.lines() {
        begun.push_str(line);
        if is_open(&begun) {
            begun.push('\n');
        } else {
            lines.push_back(std::mem::take(&mut begun));
        }
    }
    if !begun.is_empty() {
        lines.push_back(begun);
    }
    lines
}

/// Pieces between separators; quotes and brackets keep theirs together.
fn split(text: &str, separates: impl Fn(char) -> bool) -> Result<Vec<&str>, String> {
    match pieces(text, separates)? {
        (_, Some(mark)) => Err(format!("{mark:?} is not closed")),
        (pieces, None) => {
            Ok(pieces.into_iter().map(str::trim).filter(|piece| !piece.is_empty()).collect())
        }
    }
}

/// The same, untrimmed, and the bracket or quote that is not closed.
fn pieces(
    text: &str,
    separates: impl Fn(char) -> bool,
) -> Result<(Vec<&str>, Option<char>), String> {
    let mut pieces = Vec::new();
    let (mut start, mut open, mut quote, mut previous) = (0, Vec::new(), None, ' ');
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(_), _) if previous == '\\' => {
                previous = ' ';
                continue;
            }
            (Some(mark), _) if c == mark => quote = None,
            (Some(_), _) => {}
            // An apostrophe inside a word (it's) opens nothing.
            (None, '"' | '\'') if !previous.is_alphanumeric() => quote = Some(c),
            (None, '(' | '[' | '{') => open.push(c),
            (None, ')' | ']' | '}') => {
                open.pop().ok_or_else(|| format!("{c:?} closes nothing"))?;
            }
            (None, _) if open.is_empty() && separates(c) => {
                pieces.push(text.get(start..at).unwrap_or_default());
                start = at + c.len_utf8();
            }
            (None, _) => {}
        }
        previous = c;
    }
    pieces.push(text.get(start..).unwrap_or_default());
    Ok((pieces, quote.or(open.pop())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(line: &str, method: &str, args: Value, kwargs: Value) {
        let Ok(ReplLine::Call { method: found, arguments }) = parse(line) else {
            panic!("{line}: {:?}", parse(line));
        };
        let found = (found.as_str(), json!(arguments.args), Value::Object(arguments.kwargs));
        assert_eq!(found, (method, args, kwargs), "{line}");
    }

    #[test]
    fn lines_mean_what_they_look_like() {
        let none = || json!({});
        check("add 3", "add", json!([3]), none());
        check("add(3, 4)", "add", json!([3, 4]), none());
        check("add(3, -4.5)", "add", json!([3, -4.5]), none());
        check("reset()", "reset", json!([]), none());
        check("reset", "reset", json!([]), none());
        check(
            "convert 100 from=celsius to=fahrenheit",
            "convert",
            json!([100]),
            json!({"from": "celsius", "to": "fahrenheit"}),
        );
        check(
            "convert(100, from: 'celsius', to=\"fahrenheit\")",
            "convert",
            json!([100]),
            json!({"from": "celsius", "to": "fahrenheit"}),
        );
        check("memory = 5", "memory=", json!([5]), none());
        check("memory=[1, 2]", "memory=", json!([[1, 2]]), none());
        check("name = Ada Lovelace", "name=", json!(["Ada Lovelace"]), none());
        check("sum [1, 2] opts={\"a\": 1}", "sum", json!([[1, 2]]), json!({"opts": {"a": 1}}));
        check("say \"two words\" 'and more'", "say", json!(["two words", "and more"]), none());
        check("say it's fine", "say", json!(["it's", "fine"]), none());
        check("say \"a \\\" b\"", "say", json!(["a \" b"]), none());
        check("fetch https://a.b/c?d=e", "fetch", json!(["https://a.b/c?d=e"]), none());
        check("ready?", "ready?", json!([]), none());
        check("what is the time?", "ask", json!(["what is the time?"]), none());
        check("ask for help", "ask", json!(["for help"]), none());
        check("zähle 3", "zähle", json!([3]), none());
        check("echo NaN", "echo", json!(["NaN"]), none());
    }

    #[test]
    fn a_dot_begins_a_command_of_the_repl() {
        assert_eq!(parse("  "), Ok(ReplLine::Blank));
        let command =
            |command, rest: &str| ReplLine::ReplCommand { command, rest: rest.to_owned() };
        for (line, expected) in [
            (".quit", command(ReplCommand::Quit, "")),
            (".exit", command(ReplCommand::Quit, "")),
            ("exit", command(ReplCommand::Quit, "")),
            (" quit ", command(ReplCommand::Quit, "")),
            ("help", command(ReplCommand::Help, "")),
            (".why", command(ReplCommand::Why, "")),
            (".reject it adds one", command(ReplCommand::Reject, "it adds one")),
            (".reject", command(ReplCommand::Reject, "")),
            (".teach [1, 2]", command(ReplCommand::Teach, "[1, 2]")),
        ] {
            assert_eq!(parse(line), Ok(expected), "{line}");
        }
        assert!(parse(".nope").unwrap_err().contains(".memory"));
        assert!(parse(".teach").unwrap_err().contains("teach what?"));
        assert!(parse(".cost now").unwrap_err().contains("takes nothing after it"));
        check("help()", "help", json!([]), json!({}));
        check("quit 3", "quit", json!([3]), json!({}));
    }

    #[test]
    fn a_line_with_an_open_bracket_or_quote_goes_on() {
        for (line, open) in [
            ("add [1,", true),
            ("add(1,", true),
            ("say \"two", true),
            ("x = {\"a\": [1", true),
            ("add [1,\n2]", false),
            ("say it's fine", false),
            ("what is (this?", false),
            ("ask what's [up", false),
            (".reject it's (wrong", false),
            ("add 1)", false),
            ("", false),
        ] {
            assert_eq!(is_open(line), open, "{line}");
        }
    }

    #[test]
    fn a_pasted_text_is_its_lines() {
        for (text, expected) in [
            ("", &[][..]),
            ("add 1", &["add 1"]),
            ("add 1\nadd 2\n", &["add 1", "add 2"]),
            ("add [1,\n2]\nx = 3", &["add [1,\n2]", "x = 3"]),
            ("add 1\n\nadd [2,", &["add 1", "", "add [2,\n"]),
            (
                "ask who wrote this?\nDear Ada,\nyours, Bob",
                &["ask who wrote this?\nDear Ada,\nyours, Bob"],
            ),
        ] {
            assert_eq!(whole_lines(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_is_explained() {
        for (line, problem) in [
            ("add(3", "write add(…)"),
            ("add [1, 2", "is not closed"),
            ("add 1)", "closes nothing"),
            ("say \"open", "is not closed"),
            ("memory =", "memory = what?"),
            ("= 5", "does not begin with a method name"),
            ("add==3", "cannot read"),
            ("add by=1 by=2", "by is given twice"),
        ] {
            let said = parse(line).unwrap_err();
            assert!(said.contains(problem), "{line}: {said}");
        }
    }
}
