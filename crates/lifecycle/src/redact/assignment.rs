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
/// Shortest value that a sentence names as a secret.
const MIN_PASSWORD_CHARS: usize = 5;
/// Bytes before a password in which its command is looked for.
const MAX_COMMAND: usize = 256;
/// The command whose `-u` takes a password.
const CURL: &[u8] = b"curl";
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
    match name_before(text, at) {
        Some(name) if names_a_secret(name) => value_after(text, at, kind),
        Some(_) | None => password_of_curl(text, at, kind),
    }
}

/// The secret after a word and a space: `--password hunter2`, `the password is hunter2`, `login ada password hunter2`.
pub(super) fn after_word(text: &[u8], word: Range<usize>, kind: TextKind) -> Option<Range<usize>> {
    let found = text.get(word.clone())?;
    let is_secret: fn(&[u8]) -> bool = if found.starts_with(b"--") {
        let name = std::str::from_utf8(found).ok().filter(|name| names_a_secret(name))?;
        let last = name.rsplit(['-', '_']).next()?;
        if last != "key" && !names_a_secret(last) {
            return None; // `--password-file`
        }
        |value| !is_word(value)
    } else if found == b"password"
        || found == b"is" && names_a_secret(name_before(text, word.start)?)
    {
        is_password
    } else {
        return None;
    };
    let value = argument(text, word.end + 1)?;
    of_kind(text, value.clone(), kind).filter(|_| text.get(value).is_some_and(is_secret))
}

/// `curl -u user:password`: the password after the `:` at a place. Other commands take a group there.
fn password_of_curl(text: &[u8], at: usize, kind: TextKind) -> Option<Range<usize>> {
    if text.get(at) != Some(&b':') {
        return None;
    }
    let begin = text.get(at.saturating_sub(MAX_COMMAND)..at)?;
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'\\".contains(byte);
    let before = begin.get(..=begin.iter().rposition(is_end)?)?;
    let is_filler = |byte: &u8| *byte == b' ' || b"\"'\\=".contains(byte);
    let option = before.get(..=before.iter().rposition(|byte| !is_filler(byte))?)?;
    let command = option.strip_suffix(b" -u").or_else(|| option.strip_suffix(b" --user"))?;
    let line = command.rsplit(|byte| *byte == b'\n').next()?;
    if !line.windows(CURL.len()).any(|window| window == CURL) {
        return None;
    }
    of_kind(text, argument(text, at + 1)?, kind)
}

/// A value of a command line, in quotation marks or up to a space; not an option and not a variable.
fn argument(text: &[u8], from: usize) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    if let Some(quote @ (b'"' | b'\'')) = rest.first() {
        return quoted(text, from + 1, *quote);
    }
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`,;|\\()".contains(byte);
    let length = rest.iter().position(is_end).unwrap_or(rest.len());
    let value = rest.get(..length)?;
    let value = value.strip_suffix(b".").unwrap_or(value);
    let is_value = !matches!(value.first(), None | Some(b'-' | b'$' | b'<' | b'{' | b'['));
    (is_value && value.len() >= MIN_BARE_CHARS).then(|| from..from + value.len())
}

/// Whether a value is a word of a sentence, as in `--token option`.
fn is_word(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_lowercase)
}

/// Whether a value in a sentence looks like a password: letters with digits, or capitals after small letters.
fn is_password(value: &[u8]) -> bool {
    let has = |is: fn(&u8) -> bool| value.iter().any(is);
    let pairs = value.iter().zip(value.iter().skip(1));
    let mut capitals = pairs.filter(|(a, b)| a.is_ascii_lowercase() && b.is_ascii_uppercase());
    value.len() >= MIN_PASSWORD_CHARS
        && has(u8::is_ascii_alphabetic)
        && (has(u8::is_ascii_digit) || capitals.next().is_some())
}

/// A value found in a text, unless it is not a secret in a text of this kind.
fn of_kind(text: &[u8], value: Range<usize>, kind: TextKind) -> Option<Range<usize>> {
    let found = std::str::from_utf8(text.get(value.clone())?).ok()?;
    let is_plain = found.starts_with(super::REDACTED)
        || PLAIN.iter().any(|plain| found.eq_ignore_ascii_case(plain));
    (!is_plain && !found.is_empty() && (kind == TextKind::Prose || is_literal_secret(found)))
        .then_some(value)
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
    of_kind(text, without_scheme(text, value)?, kind)
}

/// To the quotation mark that ends it, on the same line.
fn quoted(text: &[u8], from: usize, quote: u8) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    let end = rest.iter().position(|byte| *byte == quote || *byte == b'\n')?;
    let escapes = rest.get(..end)?.iter().rev().take_while(|byte| **byte == b'\\').count();
    Some(from..from + end - escapes)
}

/// A value without quotation marks: right after `=`, or after `: `. With spaces around the `=` it must look like a
/// password, since an expression may stand there too.
fn bare(text: &[u8], at: usize, from: usize) -> Option<Range<usize>> {
    let is_adjacent = from == at + 1;
    let is_ini = text.get(at) == Some(&b'=')
        && is_adjacent
        && at.checked_sub(1).and_then(|i| text.get(i)) != Some(&b' ');
    let is_header = text.get(at) == Some(&b':') && from == at + 2;
    let is_spaced = text.get(at) == Some(&b'=') && !is_ini;
    let rest = text.get(from..)?;
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`&,;<>(){}[]\\|".contains(byte);
    let mut length = rest.iter().position(is_end).unwrap_or(rest.len());
    let is_scheme =
        |word: &[u8]| SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme.as_bytes()));
    if rest.get(..length).is_some_and(is_scheme) && rest.get(length) == Some(&b' ') {
        let after = rest.get(length + 1..)?;
        length += 1 + after.iter().position(is_end).unwrap_or(after.len());
    }
    let is_value = is_ini || is_header || is_spaced && rest.get(..length).is_some_and(is_password);
    (is_value && length >= MIN_BARE_CHARS).then(|| from..from + length)
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
