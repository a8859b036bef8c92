//! The rule `unsupported_capability`, against a program that draws on a screen.

use Language::{Python, Ruby};

use crate::artifact::RunVerdict;
use crate::dialect::library::SCREEN;
use crate::dialect::{Language, LibraryUse, UseKind};
use crate::outcome::FailureKind;

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "unsupported_capability",
    violation_type: ViolationType::Process,
    severity: Severity::Terminal,
    failure: Some(FailureKind::UnsupportedCapability),
    check: RuleCheck::Program(find),
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "a program that draws on a screen",
    details: "\
A worker has no screen and no window system, and another program would not bring one: this rule ends the call,
unless `guardrail_terminal` says otherwise. A program that handles their absence, reports
`unsupported_capability` itself, or only imports such a library, passes. Waiting for a person's input is not part of it: that fails when it is
tried, and the program is written again.",
    correction: "Give the result as data or text, or return an error outcome `unsupported_capability` that \
                 says what cannot be done here.",
    examples: &[
        violates(Python, "import tkinter\ntkinter.Tk()"),
        passes(Python, "import webbrowser\nresult = args[0]"),
        passes(Python, "print(\"a table, in text\")"),
        violates(Ruby, "require \"curses\"\nCurses.getch"),
        passes(Ruby, "puts \"a table, in text\""),
    ],
};

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    if input.inspection.says("unsupported_capability") {
        return None;
    }
    let uses: Vec<&LibraryUse> =
        input.inspection.library.iter().filter(|it| it.facts.any(SCREEN)).collect();
    let imports = || uses.iter().filter(|it| it.kind == UseKind::Imported);
    let is_optional =
        |at| input.inspection.imports.iter().any(|it| it.position == at && it.optional);
    if imports().any(|it| is_optional(it.position)) {
        return None;
    }
    // What is only imported draws nothing.
    let used = uses.iter().find(|it| it.kind != UseKind::Imported)?;
    let message = format!("`{}` needs a screen, and a worker has none", used.name);
    Some(Finding::at(used.position, message))
}
