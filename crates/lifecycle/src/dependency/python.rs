//! Python: PEP 508 names with extras, normalised as PEP 503 says; PEP 440 version specifiers.

use std::str::FromStr as _;

use pep440_rs::{Operator, Version, VersionSpecifier};

/// Any version.
pub(super) const ANY_VERSION: &str = ">=0";

/// `Foo.Bar [Socks, a]` becomes `foo-bar[a,socks]`; `None` if it is not such a name.
pub(super) fn parse_name(text: &str) -> Option<String> {
    let Some((name, extras)) = text.split_once('[') else { return identifier(text) };
    let name = identifier(name.trim_end())?;
    let extras = extras.strip_suffix(']')?;
    let mut extras: Vec<String> =
        extras.split(',').map(|extra| identifier(extra.trim())).collect::<Option<_>>()?;
    extras.sort();
    extras.dedup();
    Some(format!("{name}[{}]", extras.join(",")))
}

/// A PEP 508 identifier, normalised: letters, digits and inner `.`, `_`, `-`.
fn identifier(text: &str) -> Option<String> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let valid =
        outer(text.chars().next()) && outer(text.chars().next_back()) && text.chars().all(inner);
    valid.then(|| normalise(text))
}

/// PEP 503: lower case, each run of separators one `-`.
pub(super) fn normalise(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '.' | '_' | '-' if normal.ends_with('-') => {}
            '.' | '_' | '-' => normal.push('-'),
            other => normal.push(other.to_ascii_lowercase()),
        }
    }
    normal
}

/// A specifier set in canonical text; the part that is none otherwise. A lone `2.5` means `==2.5`.
pub(super) fn parse_constraint(text: &str) -> Result<String, &str> {
    let parts: Vec<&str> = text.split(',').map(|part| part.trim_matches(' ')).collect();
    let alone = parts.len() == 1;
    let mut specifiers = parts
        .into_iter()
        .map(|part| parse_specifier(part, alone).map(canonical).ok_or(part))
        .collect::<Result<Vec<_>, _>>()?;
    specifiers.sort();
    specifiers.dedup();
    let texts: Vec<String> = specifiers.into_iter().map(|(_, text)| text).collect();
    Ok(texts.join(","))
}

/// A constraint in canonical text, if some version satisfies all of it.
///
/// Where any version does, one of these does: zero, a version that the constraint names, or one right above it.
pub(super) fn satisfiable(text: &str) -> Option<String> {
    let specifiers: Vec<VersionSpecifier> =
        text.split(',').map(|part| parse_specifier(part.trim(), false)).collect::<Option<_>>()?;
    let above = |version: &Version| {
        let release = version.release().iter().copied().chain([0, 0, 1]);
        Version::new(release)
    };
    let named = specifiers.iter().map(VersionSpecifier::version);
    let mut candidates = named.flat_map(|version| [version.clone(), above(version)]);
    let fits = |version: &Version| specifiers.iter().all(|it| it.contains(version));
    let found = fits(&Version::new([0])) || candidates.any(|version| fits(&version));
    found.then(|| parse_constraint(text).ok())?
}

fn parse_specifier(part: &str, may_be_bare: bool) -> Option<VersionSpecifier> {
    // The parser skips white space of every kind; a constraint stands on one line of plain characters.
    if !part.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        return None;
    }
    let bare = part.starts_with(|c: char| c.is_ascii_alphanumeric());
    if bare && may_be_bare {
        return VersionSpecifier::from_str(&format!("=={part}")).ok();
    }
    VersionSpecifier::from_str(part).ok()
}

/// Zeros at the end of a release mean nothing, except where the number of parts does.
fn canonical(specifier: VersionSpecifier) -> (Version, String) {
    let (operator, version) = specifier.into_parts();
    let version = match operator {
        Operator::Equal
        | Operator::NotEqual
        | Operator::LessThan
        | Operator::LessThanEqual
        | Operator::GreaterThan
        | Operator::GreaterThanEqual => without_trailing_zeros(version),
        Operator::EqualStar
        | Operator::NotEqualStar
        | Operator::ExactEqual
        | Operator::TildeEqual => version,
    };
    let star = if operator.is_star() { ".*" } else { "" };
    let text = format!("{operator}{version}{star}");
    (version, text)
}

fn without_trailing_zeros(version: Version) -> Version {
    let release = version.release();
    let zeros = release.iter().rev().take_while(|number| **number == 0).count();
    let kept = release.len().saturating_sub(zeros).max(1);
    let release: Vec<u64> = release.iter().copied().take(kept).collect();
    version.with_release(release)
}
