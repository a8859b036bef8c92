//! Arguments as they are typed: JSON, text, the content of a file (`@FILE`), or standard input (`-`).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use recurgent::regular_file::open_named;
use serde_json::Value;

use crate::exit::CommandFault;

/// Longest file or standard input that is read. The arguments of a call are bounded by `max_argument_bytes`.
const MAX_INPUT_BYTES: u64 = 256 * 1024 * 1024;
/// Levels of lists and objects in JSON that is read.
const MAX_DEPTH: usize = 127;
/// How some editors begin a text file.
const BYTE_ORDER_MARK: char = '\u{feff}';

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

/// Whether standard input was read: the process has one, and what was read is gone.
static IS_STDIN_READ: AtomicBool = AtomicBool::new(false);

/// The value of an argument.
pub(crate) fn argument_value(argument: &str) -> Result<Value, CommandFault> {
    match Typed::of(argument) {
        Typed::Plain(text) => value("the argument", text.to_owned()),
        Typed::Stdin => value("standard input", stdin_text()?),
        Typed::File(path) => value(path, read_file(path)?),
    }
}

/// The text of an argument: what is typed, or the content it stands for.
pub(crate) fn argument_text(argument: &str) -> Result<String, CommandFault> {
    match Typed::of(argument) {
        Typed::Plain(text) => Ok(text.to_owned()),
        Typed::Stdin => stdin_text(),
        Typed::File(path) => read_file(path),
    }
}

/// All of standard input, for one argument or flag.
pub(crate) fn stdin_text() -> Result<String, CommandFault> {
    if IS_STDIN_READ.swap(true, Ordering::Relaxed) {
        return Err(CommandFault::usage(
            "standard input can be one argument only; give the other one as a file",
        ));
    }
    limited_text("standard input", io::stdin().lock())
}

/// The content of a file that a flag names, or of standard input if it names `-`.
pub(crate) fn named_text(path: &Path) -> Result<String, CommandFault> {
    if path == Path::new("-") {
        return stdin_text();
    }
    let name = path.display().to_string();
    let file = open_input(path).map_err(|problem| {
        let literal = name.strip_prefix('@');
        let next = literal.map_or_else(
            || "check the path".to_owned(),
            |name| format!("this flag takes the name without @: {name}"),
        );
        CommandFault::usage(format!("cannot read {name}: {problem}; {next}"))
    })?;
    limited_text(&name, file)
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
    let file = open_input(Path::new(path)).map_err(|problem| {
        let home = if path.starts_with('~') { "; a shell replaces ~ only at the beginning of a word, write @$HOME/…" } else { "" };
        CommandFault::usage(format!(
            "cannot read {path}: {problem}{home}; check the path, or write @@{path} for the text @{path}"
        ))
    })?;
    limited_text(path, file)
}

/// Opens a file that a command line names. One that is too long is not read first.
pub(crate) fn open_input(path: &Path) -> Result<File, String> {
    let file = open_named(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Err(format!(
            "it is a directory; name a file in it, or grant it with --read {} and pass its path",
            path.display()
        ));
    }
    if metadata.is_file() && metadata.len() > MAX_INPUT_BYTES {
        return Err(format!(
            "it has {} MB, and arguments have at most 16 MB unless max_argument_bytes says otherwise; grant it with \
             --read {} and pass its path",
            metadata.len() >> 20,
            path.display()
        ));
    }
    Ok(file)
}

/// The content of a file or of standard input, which messages call `name`.
fn limited_bytes(name: &str, source: impl Read) -> Result<Vec<u8>, CommandFault> {
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

pub(crate) fn limited_text(name: &str, source: impl Read) -> Result<String, CommandFault> {
    String::from_utf8(limited_bytes(name, source)?).map_err(|_| {
        CommandFault::usage(format!(
            "{name} is not UTF-8 text; grant the file with --read and pass its path"
        ))
    })
}

/// JSON if the whole content is JSON, text as it is if not. Messages call it `name`.
pub(crate) fn value(name: &str, text: String) -> Result<Value, CommandFault> {
    match serde_json::from_str(without_mark(&text)) {
        Ok(value) => Ok(value),
        Err(error) if is_too_deep(&error) => Err(CommandFault::invalid_call(format!(
            "{name} is nested deeper than {MAX_DEPTH} levels and cannot be an argument; flatten it, or grant its file with \
             --read and pass its path"
        ))),
        Err(_) => Ok(Value::String(text)),
    }
}

/// A text without the mark that says only how it is encoded.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Whether text is refused as JSON only because of its depth.
fn is_too_deep(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("recursion limit exceeded")
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
            ("\u{feff}[1, 2]", json!([1, 2])),
            ("\u{feff}a,b", json!("\u{feff}a,b")),
        ] {
            assert_eq!(value("it", text.to_owned()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn json_is_read_to_a_depth_that_the_message_names() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(value("it", nested(MAX_DEPTH)).unwrap().is_array());
        for depth in [MAX_DEPTH + 1, 200] {
            let fault = value("it", nested(depth)).unwrap_err().message;
            assert!(fault.contains("it is nested deeper than 127 levels"), "{depth}: {fault}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_an_argument_says_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        let long = place.path().join("long");
        File::create(&long).unwrap().set_len(MAX_INPUT_BYTES + 1).unwrap();
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        for (path, said) in [
            (path(place.path()), "it is a directory; name a file in it, or grant it with --read"),
            (path(&long), "it has 256 MB, and arguments have at most 16 MB"),
            ("~/a.json".to_owned(), "write @$HOME/"),
            (path(&place.path().join("none")), "check the path, or write @@"),
        ] {
            let fault = read_file(&path).unwrap_err().message;
            assert!(fault.contains(said), "{path}: {fault}");
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
