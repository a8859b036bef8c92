//! `unsupported_capability`: a program that draws on a screen.
//!
//! A worker has no screen and no window system, and writing the program again does not bring one: this
//! rule ends the call, unless `guardrail_terminal` says otherwise. A program that survives their absence,
//! or reports `unsupported_capability` itself, passes. Waiting for a person's input is not among it: it
//! fails when it is tried, and the program is written again.
//!
//! ```python
//! import tkinter; tkinter.Tk()       # barred, as are turtle, curses and webbrowser.open
//! print("a table, in text")          # passes
//! ```
//! ```ruby
//! require "curses"; Curses.getch     # barred, as are tk, gtk3, gtk4 and gosu
//! puts "a table, in text"            # passes
//! ```

use crate::dialect::{Import, Language};

use super::{Finding, Subject};

/// Python modules that need a screen.
const PYTHON: &[&str] = &["curses", "idlelib", "tkinter", "turtle", "turtledemo", "webbrowser"];

/// The module among them that only knows characters.
const SCREENLESS: &str = "curses.ascii";

/// Ruby libraries that need a screen.
const RUBY: &[&str] = &["curses", "gosu", "gtk3", "gtk4", "tk"];

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    if subject.inspection.says("unsupported_capability") {
        return None;
    }
    let modules = match subject.language {
        Language::Python => PYTHON,
        Language::Ruby => RUBY,
    };
    let needs = |import: &&Import| {
        let shown = modules.contains(&import.top_level()) && import.module != SCREENLESS;
        shown && !import.optional
    };
    let import = subject.inspection.imports.iter().find(needs)?;
    Some(Finding::at(
        import.position,
        format!("`{}` needs a screen, and a worker has none", import.module),
        "Give the result as data or text, or return an error outcome `unsupported_capability` that \
         says what cannot be done here.",
    ))
}
