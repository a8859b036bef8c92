//! Arguments as they are typed: JSON, text, the content of a file (`@FILE`), or standard input (`-`).

use std::io::{self, Read};
use std::path::Path;

use recurgent::regular_file::open_named;
use serde_json::Value;

use super::agent::value;
use crate::exit::CommandFault;

/// Longest file or standard input that is read. The arguments of a call are bounded by `max_argument_bytes`.
const MAX_INPUT_BYTES: u64 = 256 * 1024 * 1024;

/// How files and standard input are written as arguments, for the help of commands that take them.
pub(crate) const INPUT_HELP: &str = "\
@FILE is the content of a file and - is standard input: JSON if it parses as JSON, otherwise text.
@@x is the text @x, and '\"-\"' is the text -.";

/// What a typed argument stands for.
#[derive(Debug, PartialEq, Eq)]
enum Typed<'a> {
    Stdin,
    File(&'a str),
    /// The argument itself, without the first of two `@`.
    Plain(&'a str),
}

impl<'a> Typed<'a> {
    fn of(text: &'a str) -> Self {
        match text.strip_prefix('@') {
            None if text == "-" => Self::Stdin,
            Some("-") => Self::Stdin,
            // A lone @ names no file.
            None | Some("") => Self::Plain(text),
            Some(literal) if literal.starts_with('@') => Self::Plain(literal),
            Some(path) => Self::File(path),
        }
    }
}

/// Reads the arguments of one command line. Standard input can be read once.
#[derive(Debug, Default)]
pub(crate) struct ArgumentReader {
    has_read_stdin: bool,
}

impl ArgumentReader {
    /// The value of an argument.
    pub(crate) fn value(&mut self, argument: &str) -> Result<Value, CommandFault> {
        match Typed::of(argument) {
            Typed::Plain(text) => Ok(value(text)),
            Typed::Stdin | Typed::File(_) => self.text(argument).map(content),
        }
    }

    /// The text of an argument: what is typed, or the content it stands for.
    pub(crate) fn text(&mut self, argument: &str) -> Result<String, CommandFault> {
        match Typed::of(argument) {
            Typed::Plain(text) => Ok(text.to_owned()),
            Typed::File(path) => read_file(path),
            Typed::Stdin if self.has_read_stdin => Err(CommandFault::usage(
                "standard input can be one argument only; give the other one as @FILE",
            )),
            Typed::Stdin => {
                self.has_read_stdin = true;
                limited_text("standard input", io::stdin().lock())
            }
        }
    }
}

/// Whether an argument stands for the content of a file or of standard input.
pub(crate) fn is_content(argument: &str) -> bool {
    match Typed::of(argument) {
        Typed::Stdin | Typed::File(_) => true,
        Typed::Plain(_) => false,
    }
}

/// The content of a file that an argument names, which is not `-`.
fn read_file(path: &str) -> Result<String, CommandFault> {
    let file = open_named(Path::new(path)).map_err(|error| {
        CommandFault::usage(format!(
            "cannot read {path}: {error}; check the path, or write @@{path} for the text @{path}"
        ))
    })?;
    limited_text(path, file)
}

/// The content of a file or of standard input, which messages call `name`.
pub(crate) fn limited_bytes(name: &str, source: impl Read) -> Result<Vec<u8>, CommandFault> {
    bytes_up_to(MAX_INPUT_BYTES, name, source)
}

fn bytes_up_to(limit: u64, name: &str, source: impl Read) -> Result<Vec<u8>, CommandFault> {
    let mut bytes = Vec::new();
    source
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| CommandFault::usage(format!("cannot read {name}: {error}")))?;
    if bytes.len() as u64 > limit {
        return Err(CommandFault::invalid_call(format!(
            "{name} has more than {limit} bytes; grant the file with --read and pass its path"
        )));
    }
    Ok(bytes)
}

fn limited_text(name: &str, source: impl Read) -> Result<String, CommandFault> {
    String::from_utf8(limited_bytes(name, source)?).map_err(|_| {
        CommandFault::usage(format!(
            "{name} is not UTF-8 text; grant the file with --read and pass its path"
        ))
    })
}

/// JSON if the whole content is JSON, text as it is if not.
fn content(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_argument_is_a_file_standard_input_or_itself() {
        for (text, expected) in [
            ("-", Typed::Stdin),
            ("@-", Typed::Stdin),
            ("@a.csv", Typed::File("a.csv")),
            ("@@ada", Typed::Plain("@ada")),
            ("@@@ada", Typed::Plain("@@ada")),
            ("@", Typed::Plain("@")),
            ("a@b.example", Typed::Plain("a@b.example")),
            ("-3", Typed::Plain("-3")),
            ("\"-\"", Typed::Plain("\"-\"")),
        ] {
            assert_eq!(Typed::of(text), expected, "{text}");
        }
    }

    #[test]
    fn content_is_json_or_text() {
        for (text, expected) in [
            ("[1, 2]\n", json!([1, 2])),
            ("3", json!(3)),
            ("a,b\n1,2\n", json!("a,b\n1,2\n")),
            ("", json!("")),
            ("{\"a\": ", json!("{\"a\": ")),
        ] {
            assert_eq!(content(text.to_owned()), expected, "{text}");
        }
    }

    #[test]
    fn content_over_the_limit_or_not_text_is_refused() {
        assert_eq!(bytes_up_to(4, "small", &b"four"[..]).unwrap(), b"four");
        let fault = bytes_up_to(4, "big", io::repeat(b'a')).unwrap_err().message;
        assert!(fault.contains("big has more than 4 bytes"), "{fault}");
        let fault = limited_text("odd", &b"\xff"[..]).unwrap_err().message;
        assert!(fault.contains("odd is not UTF-8 text"), "{fault}");
    }
}
