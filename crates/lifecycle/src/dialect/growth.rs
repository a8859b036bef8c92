//! Judges a program while it is being written: whether lines so far can be the beginning of a valid one.

use ruby_prism as prism;
use ruff_python_ast::PythonVersion;
use ruff_python_parser::{Mode, ParseError, ParseErrorType, ParseOptions, parse_unchecked};

use super::{Language, MAX_SOURCE_BYTES, python, ruby, with_stack};

/// How the parser's message begins when a block has no line yet.
const NO_BLOCK: &str = "Expected an indented block";

/// What complete lines of a program are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramGrowth {
    /// A whole program. More may follow.
    Complete,
    /// The beginning of a program: a block, bracket or string is still open.
    Open,
    /// Nothing that follows can make it valid.
    Broken,
}

/// Judges lines of a program. The last line ends with a newline.
pub fn growth(language: Language, lines: &str) -> ProgramGrowth {
    if lines.len() > MAX_SOURCE_BYTES {
        return ProgramGrowth::Broken;
    }
    with_stack(lines, || match language {
        Language::Python => python_growth(lines),
        Language::Ruby => ruby_growth(lines),
    })
}

fn python_growth(lines: &str) -> ProgramGrowth {
    if python::too_deep(lines) {
        return ProgramGrowth::Broken;
    }
    let options = ParseOptions::from(Mode::Module).with_target_version(PythonVersion::latest());
    match parse_unchecked(lines, options).errors().first() {
        None => ProgramGrowth::Complete,
        Some(error) if is_at_end(error, lines) => ProgramGrowth::Open,
        Some(_) => ProgramGrowth::Broken,
    }
}

/// Whether more lines can remove an error: it is at the end, something that may have several lines is still open there,
/// or a block has no line yet.
fn is_at_end(error: &ParseError, lines: &str) -> bool {
    let (start, end) = (error.location.start().to_usize(), error.location.end().to_usize());
    let is_open = matches!(error.error, ParseErrorType::Lexical(_)) && end >= lines.len();
    let lacks_block =
        matches!(&error.error, ParseErrorType::OtherError(text) if text.starts_with(NO_BLOCK));
    let is_empty = |line: &str| matches!(line.trim_start().as_bytes().first(), None | Some(b'#'));
    let nothing_follows = lines.get(start..).is_none_or(|rest| rest.lines().all(is_empty));
    start >= lines.len() || is_open || (lacks_block && nothing_follows)
}

fn ruby_growth(lines: &str) -> ProgramGrowth {
    if ruby::long_run(lines).is_some() {
        return ProgramGrowth::Broken;
    }
    let parsed = prism::parse(lines.as_bytes());
    let last_line = lines.trim_end().lines().count();
    let mut growth = ProgramGrowth::Complete;
    for error in parsed.errors() {
        let message = String::from_utf8_lossy(error.message());
        let is_last = usize::try_from(error.location().end_line()).is_ok_and(|it| it >= last_line);
        if !asks_for_more(&message, is_last) {
            return ProgramGrowth::Broken;
        }
        growth = ProgramGrowth::Open;
    }
    growth
}

/// Whether prism complains only about what is missing at the end.
fn asks_for_more(message: &str, is_last: bool) -> bool {
    /// What prism says about something that is open.
    const OPEN: [&str; 8] = [
        "to close the",
        "to end with",
        "expected a matching",
        "expected a closing delimiter",
        "expected a `when` or `in` clause",
        "unterminated",
        "meets end of file",
        "expected the block parameters to end",
    ];
    if message.starts_with("unexpected") {
        return message.starts_with("unexpected end-of-input");
    }
    let is_open = OPEN.iter().any(|part| message.contains(part));
    is_open || (is_last && message.starts_with("expected "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProgramGrowth::{Broken, Complete, Open};

    #[track_caller]
    fn check(language: Language, lines: &str, expected: ProgramGrowth) {
        assert_eq!(growth(language, lines), expected, "{lines:?}");
    }

    #[test]
    fn python_lines() {
        let rows = [
            ("", Complete),
            ("import re\n", Complete),
            ("def f(x):\n", Open),
            ("def f(x):\n    return x\n", Complete),
            ("def f(x):\n    if x:\n", Open),
            ("def f(x):\n    # first\n", Open),
            ("def f(x):\n    y = [\n        1,\n", Open),
            ("def f(x):\n    \"\"\"Adds\n", Open),
            ("def f(x):\n    y = f'''{x}\n", Open),
            ("def f(x):\n    try:\n        y = 1\n", Open),
            ("def f(x):\n    y = 1 + \\\n", Open),
            ("@cache\n", Open),
            ("def f(x):\n    y = 'a\n", Broken),
            ("def f(x):\n    y = = 1\n", Broken),
            ("def f(x):\n    y = (1]\n", Broken),
            ("def f(x):\n    y =\n", Broken),
            ("def f(x):\n    y = 1\n  z = 2\n", Broken),
            ("def f(x):\n    y = 1\n        z = 2\n", Broken),
            ("def f(x):\n    y = g(\n\ndef g():\n", Broken),
            ("def f(x):\nreturn x\n", Broken),
            ("def f(x):\n    return x end\n", Broken),
        ];
        for (lines, expected) in rows {
            check(Language::Python, lines, expected);
        }
    }

    #[test]
    fn ruby_lines() {
        let rows = [
            ("", Complete),
            ("require 'json'\n", Complete),
            ("def f(x)\n", Open),
            ("def f(x)\n  x\nend\n", Complete),
            ("def f(x)\n  if x\n", Open),
            ("def f(x)\n  x.map do |y|\n", Open),
            ("def f(x)\n  x.map { |y|\n", Open),
            ("def f(x)\n  y = [\n    1,\n", Open),
            ("def f(x)\n  y = {\n    a: 1,\n", Open),
            ("def f(x)\n  g(\n    1,\n", Open),
            ("def f(x)\n  y = x +\n", Open),
            ("def f(x)\n  y =\n", Open),
            ("def f(x)\n  x.\n", Open),
            ("def f(x)\n  case x\n", Open),
            ("def f(x)\n  case x\n  when 1\n", Open),
            ("def f(x)\n  begin\n    1\n  rescue => e\n", Open),
            ("def f(x)\n  y = <<~TEXT\n    hello\n", Open),
            ("def f(x)\n  y = \"a\n", Open),
            ("def f(x)\n  y = %w[a\n", Open),
            ("def f(x)\n  x = (1]\n", Broken),
            ("def f(x)\n  x }\n", Broken),
            ("def f(x)\n  x = 1 2\n", Broken),
            ("def f(x)\n  x\nend\nend\n", Broken),
            ("def f(x):\n", Broken),
            ("def f(x)\n  for i in range(3):\n", Broken),
        ];
        for (lines, expected) in rows {
            check(Language::Ruby, lines, expected);
        }
    }
}
