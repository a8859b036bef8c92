//! Secrets in texts that are named there: `password=…`, `"token": "…"`, `Authorization: Bearer …`, and the password of
//! an address.

use std::ops::Range;

use super::names_a_secret;

/// Longest name that is looked at.
const MAX_NAME: usize = 64;
/// Spaces between a name and its value.
const MAX_SPACES: usize = 4;
/// Shortest value without quotation marks.
const MIN_BARE_CHARS: usize = 3;
/// Shortest literal of a program that is a secret.
const MIN_LITERAL_CHARS: usize = 7;
/// What stands before the secret in a value.
const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "digest"];
/// Values that are not secrets.
const PLAIN: [&str; 6] = ["null", "none", "nil", "true", "false", "undefined"];

/// What kind of text is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    /// Anything.
    Prose,
    /// A program: names are assigned expressions too, and only a literal that looks like a secret is one.
    Program,
}

/// The secret that the `:` or `=` at a place assigns a name to, or that stands in the address it is part of.
pub(super) fn at_sign(text: &[u8], at: usize, kind: TextKind) -> Option<Range<usize>> {
    if text.get(at..at + 3) == Some(b"://") {
        return password_of_address(text, at + 3);
    }
    let name = name_before(text, at)?;
    if !names_a_secret(name) {
        return None;
    }
    value_after(text, at, kind)
}

/// `user:password@host`: the password.
fn password_of_address(text: &[u8], from: usize) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"/?#\"'<>\\`".contains(byte);
    let authority = rest.get(..rest.iter().position(is_end).unwrap_or(rest.len()))?;
    let user = authority.get(..authority.iter().rposition(|byte| *byte == b'@')?)?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    let password = from + colon + 1..from + user.len();
    let is_clear = text.get(password.clone())? != super::REDACTED.as_bytes();
    (!password.is_empty() && is_clear).then_some(password)
}

/// The name that ends before a place, quoted or not.
fn name_before(text: &[u8], at: usize) -> Option<&str> {
    let before = text.get(..at)?;
    let spaces = before.iter().rev().take(MAX_SPACES).take_while(|byte| **byte == b' ').count();
    let before = before.get(..before.len() - spaces)?;
    let before = before.strip_suffix(b"\"").or_else(|| before.strip_suffix(b"'")).unwrap_or(before);
    let before = before.strip_suffix(b"\\").unwrap_or(before);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let length = before.iter().rev().take(MAX_NAME).take_while(|byte| is_name(byte)).count();
    std::str::from_utf8(before.get(before.len() - length..)?).ok().filter(|name| !name.is_empty())
}

fn value_after(text: &[u8], at: usize, kind: TextKind) -> Option<Range<usize>> {
    let sign = *text.get(at)?;
    let mut from = at + 1;
    match (sign, text.get(from)) {
        // A comparison; a path of names; `:=`, which comes again at its second sign.
        (b'=', Some(b'=')) | (b':', Some(b':' | b'=')) => return None,
        (b'=', Some(b'>')) => from += 1,
        (_, _) => {}
    }
    let follows = text.get(from..)?;
    let spaces = follows.iter().take(MAX_SPACES).take_while(|byte| **byte == b' ').count();
    let opening = follows.get(spaces..)?;
    let escapes = opening.iter().take_while(|byte| **byte == b'\\').count();
    let value = match opening.get(escapes) {
        Some(quote @ (b'"' | b'\'')) => quoted(text, from + spaces + escapes + 1, *quote)?,
        Some(_) | None if kind == TextKind::Program => return None,
        Some(_) | None => bare(text, at, from + spaces)?,
    };
    let value = without_scheme(text, value)?;
    let found = std::str::from_utf8(text.get(value.clone())?).ok()?;
    let is_plain = found.starts_with(super::REDACTED)
        || PLAIN.iter().any(|plain| found.eq_ignore_ascii_case(plain));
    (!is_plain && !found.is_empty() && (kind == TextKind::Prose || is_literal_secret(found)))
        .then_some(value)
}

/// To the quotation mark that ends it, on the same line.
fn quoted(text: &[u8], from: usize, quote: u8) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    let end = rest.iter().position(|byte| *byte == quote || *byte == b'\n')?;
    let escapes = rest.get(..end)?.iter().rev().take_while(|byte| **byte == b'\\').count();
    Some(from..from + end - escapes)
}

/// A value without quotation marks: right after `=`, or after `: `.
fn bare(text: &[u8], at: usize, from: usize) -> Option<Range<usize>> {
    let is_adjacent = from == at + 1;
    let is_ini = text.get(at) == Some(&b'=')
        && is_adjacent
        && at.checked_sub(1).and_then(|i| text.get(i)) != Some(&b' ');
    let is_header = text.get(at) == Some(&b':') && from == at + 2;
    let rest = text.get(from..)?;
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`&,;<>(){}[]\\|".contains(byte);
    let mut length = rest.iter().position(is_end).unwrap_or(rest.len());
    let is_scheme =
        |word: &[u8]| SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme.as_bytes()));
    if rest.get(..length).is_some_and(is_scheme) && rest.get(length) == Some(&b' ') {
        let after = rest.get(length + 1..)?;
        length += 1 + after.iter().position(is_end).unwrap_or(after.len());
    }
    ((is_ini || is_header) && length >= MIN_BARE_CHARS).then(|| from..from + length)
}

fn without_scheme(text: &[u8], value: Range<usize>) -> Option<Range<usize>> {
    let bytes = text.get(value.clone())?;
    let scheme = SCHEMES.iter().find(|scheme| {
        let begin = bytes.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme.as_bytes()))
            && bytes.get(scheme.len()) == Some(&b' ')
    });
    Some(value.start + scheme.map_or(0, |scheme| scheme.len() + 1)..value.end)
}

/// A literal of a program that is a secret, not a name or a format.
fn is_literal_secret(text: &str) -> bool {
    text.len() >= MIN_LITERAL_CHARS
        && text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !text.contains(|c: char| c.is_whitespace() || "{}%<>#$".contains(c))
}
