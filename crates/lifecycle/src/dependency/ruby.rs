//! Ruby: `RubyGems` names, which keep their case; `RubyGems` requirements, read as `Gem::Requirement`
//! and `Gem::Version` read them but for white space: a requirement stands on one line.

use std::fmt;

/// Any version.
pub(super) const ANY_VERSION: &str = ">= 0";

/// The name as it is; `None` when it is none. The rules are those of the public index.
pub(super) fn parse_name(text: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let valid = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.contains(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(allowed);
    valid.then(|| text.to_owned())
}

/// A requirement in canonical text; the part that is none otherwise. A lone `2.5` means `= 2.5`.
pub(super) fn parse_constraint(text: &str) -> Result<String, &str> {
    let mut terms = text
        .split(',')
        .map(|part| part.trim_matches(' '))
        .map(|part| Term::parse(part).ok_or(part))
        .collect::<Result<Vec<_>, _>>()?;
    terms.sort();
    terms.dedup();
    let texts: Vec<String> = terms.iter().map(Term::to_string).collect();
    Ok(texts.join(", "))
}

/// Longer operators first, so that `>=` is not read as `>`.
const OPERATORS: [&str; 7] = ["~>", ">=", "<=", "!=", "=", ">", "<"];

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    version: Vec<Segment>,
    operator: &'static str,
}

impl Term {
    fn parse(part: &str) -> Option<Self> {
        let operator = OPERATORS.into_iter().find(|operator| part.starts_with(operator));
        let rest = part.strip_prefix(operator.unwrap_or_default())?;
        let operator = operator.unwrap_or("=");
        let segments = parse_version(rest.trim_start_matches(' '))?;
        Some(Self { version: canonical(segments, operator == "~>"), operator })
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version: Vec<String> = self.version.iter().map(Segment::to_string).collect();
        write!(f, "{} {}", self.operator, version.join("."))
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Text(String),
    Number(u64),
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// `1.2.rc1` and `1.2-beta` alike: digits first, parts of letters and digits, `-` for `.pre.`.
fn parse_version(text: &str) -> Option<Vec<Segment>> {
    let (release, pre) = match text.split_once('-') {
        Some((release, pre)) => (release, Some(pre)),
        None => (text, None),
    };
    let alphanumeric =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric());
    let dashed = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let first = release.split('.').next()?;
    let valid = !first.is_empty()
        && first.chars().all(|c| c.is_ascii_digit())
        && release.split('.').all(alphanumeric)
        && pre.is_none_or(|pre| pre.split('.').all(dashed));
    if !valid {
        return None;
    }
    let text = text.replace('-', ".pre.");
    text.split('.')
        .filter(|part| !part.is_empty())
        .map(segments)
        .collect::<Option<Vec<_>>>()
        .map(|parts| parts.into_iter().flatten().collect())
}

/// `rc12` is `rc` and `12`; `None` when a number is beyond any version.
fn segments(part: &str) -> Option<Vec<Segment>> {
    let mut found = Vec::new();
    let mut rest = part;
    while let Some(first) = rest.chars().next() {
        let digits = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (segment, tail) = rest.split_at(end);
        found.push(if digits {
            Segment::Number(segment.parse().ok()?)
        } else {
            Segment::Text(segment.to_owned())
        });
        rest = tail;
    }
    Some(found)
}

/// Zeros at the end of the release and of the prerelease mean nothing; `~>` counts those of the release.
fn canonical(mut segments: Vec<Segment>, counts_parts: bool) -> Vec<Segment> {
    let is_text = |segment: &Segment| matches!(segment, Segment::Text(_));
    let start = segments.iter().position(is_text).unwrap_or(segments.len());
    let mut pre = segments.split_off(start);
    if !counts_parts {
        drop_trailing_zeros(&mut segments);
    }
    drop_trailing_zeros(&mut pre);
    if segments.is_empty() {
        segments.push(Segment::Number(0));
    }
    segments.append(&mut pre);
    segments
}

fn drop_trailing_zeros(segments: &mut Vec<Segment>) {
    while segments.last() == Some(&Segment::Number(0)) {
        segments.pop();
    }
}
