//! `undeclared_dependency`: an import that is neither standard library nor declared.
//!
//! Decided before preparation only when nothing is declared and nothing is held. Otherwise the installed
//! lock decides ([`check_provided`]), because packages and modules differ in name (`pillow` provides
//! `PIL`). An import whose failure is rescued on the
//! spot passes, as do relative ones.
//!
//! ```python
//! import requests                                   # barred when nothing is declared
//! import json, os.path                              # passes
//! ```
//! ```ruby
//! require "nokogiri"                                # barred when nothing is declared
//! require "net/http"                                # passes
//! ```

use std::collections::BTreeSet;

use crate::dialect::{Import, Inspection, Language, Position, stdlib};

use super::{Finding, Rule, Subject, Violation};

/// The most modules a message names.
const MAX_NAMES: usize = 8;

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    if !subject.declared.is_empty() || subject.holds_packages {
        return None;
    }
    let (first, names) = foreign(subject.language, subject.inspection, |_| false)?;
    Some(Finding::at(
        first,
        format!("{names}: imported, neither standard library nor declared"),
        format!("Declare the package of {names} in `dependencies`, or use the standard library."),
    ))
}

/// Holds a program against the top-level names its prepared environment `provides`.
pub fn check_provided(
    language: Language,
    inspection: &Inspection,
    provides: &[String],
) -> Option<Violation> {
    let is_there = |import: &Import| provides.iter().any(|name| name == import.top_level());
    let (first, names) = foreign(language, inspection, is_there)?;
    let finding = Finding::at(
        first,
        format!(
            "{names}: imported, neither standard library nor provided by the packages declared"
        ),
        format!(
            "Add the package that provides {names} to `dependencies` (package and module names may differ), or do without."
        ),
    );
    Some(finding.of(Rule::UndeclaredDependency))
}

/// The imports nothing accounts for: where the first stands, and their names.
fn foreign(
    language: Language,
    inspection: &Inspection,
    accounted: impl Fn(&Import) -> bool,
) -> Option<(Position, String)> {
    let undeclared = |import: &&Import| {
        !import.optional && !stdlib::provides(language, &import.module) && !accounted(import)
    };
    let mut imports = inspection.imports.iter().filter(undeclared).peekable();
    let first = imports.peek()?.position;
    let names: BTreeSet<String> =
        imports.map(|import| format!("`{}`", import.top_level())).collect();
    Some((first, names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ")))
}
