//! Ruby: `RubyGems` names, which keep their case; `RubyGems` requirements, read as `Gem::Requirement`
//! and `Gem::Version` read them but for white space: a requirement stands on one line.

use std::cmp::Ordering;
use std::fmt;

/// Any version.
pub(super) const ANY_VERSION: &str = ">= 0";

/// The name unchanged; `None` if it is not the name of a gem. The rules are those of the public index.
pub(super) fn parse_name(text: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let valid = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.contains(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(allowed);
    valid.then(|| text.to_owned())
}

/// A requirement in canonical text. The error is the part that is not a requirement. A lone `2.5` means `= 2.5`.
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

/// A requirement in canonical text, if some version satisfies all of it.
///
/// If there is such a version, one of these is: zero, a version that the requirement names, one right above its release,
/// or one right above its prerelease.
pub(super) fn satisfiable(text: &str) -> Option<String> {
    let terms: Vec<Term> =
        text.split(',').map(|part| Term::parse(part.trim_matches(' '))).collect::<Option<_>>()?;
    let above = |version: &[Segment]| [version, &[0, 0, 1].map(Segment::Number)].concat();
    let candidates = terms.iter().flat_map(|Term { version, .. }| {
        [version.clone(), above(release(version)), above(version)]
    });
    let mut candidates = candidates.chain([vec![Segment::Number(0)]]);
    let found = candidates.any(|version| terms.iter().all(|term| term.is_satisfied_by(&version)));
    found.then(|| parse_constraint(text).ok())?
}

/// The part of a version before its prerelease.
fn release(version: &[Segment]) -> &[Segment] {
    let is_text = |segment: &Segment| matches!(segment, Segment::Text(_));
    let end = version.iter().position(is_text).unwrap_or(version.len());
    version.get(..end).unwrap_or(version)
}

/// Compares as `Gem::Version` does: a missing part is 0, and letters come before numbers.
fn compare(one: &[Segment], other: &[Segment]) -> Ordering {
    let zero = Segment::Number(0);
    let parts = (0..one.len().max(other.len()))
        .map(|at| one.get(at).unwrap_or(&zero).cmp(other.get(at).unwrap_or(&zero)));
    parts.into_iter().find(|part| part.is_ne()).unwrap_or(Ordering::Equal)
}

/// The first release that `~>` excludes: `~> 2.5.1` ends before 2.6.
fn bumped(version: &[Segment]) -> Vec<Segment> {
    let mut release = release(version).to_vec();
    if release.len() > 1 {
        release.pop();
    }
    if let Some(Segment::Number(last)) = release.last_mut() {
        *last = last.saturating_add(1);
    }
    release
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

    fn is_satisfied_by(&self, version: &[Segment]) -> bool {
        let order = compare(version, &self.version);
        match self.operator {
            "~>" => order.is_ge() && compare(release(version), &bumped(&self.version)).is_lt(),
            ">=" => order.is_ge(),
            "<=" => order.is_le(),
            "!=" => order.is_ne(),
            ">" => order.is_gt(),
            "<" => order.is_lt(),
            _ => order.is_eq(),
        }
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

/// `rc12` is `rc` and `12`; `None` if a number is too large.
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
