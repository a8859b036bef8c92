//! `undeclared_dependency`: an import that is neither standard library nor declared.
//!
//! Decided here only when nothing is declared. Otherwise the installed lock decides, because packages
//! and modules differ in name (`pillow` provides `PIL`). An import whose failure is rescued on the
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

use crate::dialect::{Import, stdlib};

use super::{Finding, Subject};

/// The most modules a message names.
const MAX_NAMES: usize = 8;

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    if !subject.declared.is_empty() {
        return None;
    }
    let undeclared =
        |import: &&Import| !import.optional && !stdlib::provides(subject.language, &import.module);
    let mut imports = subject.inspection.imports.iter().filter(undeclared).peekable();
    let first = imports.peek()?.position;
    let names: BTreeSet<String> =
        imports.map(|import| format!("`{}`", import.top_level())).collect();
    let names = names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ");
    Some(Finding::at(
        first,
        format!("{names}: imported, neither standard library nor declared"),
        format!("Declare the package of {names} in `dependencies`, or use the standard library."),
    ))
}
