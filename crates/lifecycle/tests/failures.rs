//! `docs/failures.md` holds the table of failures as [`FailureKind::row`] declares it. A test compares them
//! (`UPDATE_DOCS=1` writes the table).
#![expect(clippy::disallowed_methods, reason = "a test reads and writes the page")]
#![cfg(test)]

use std::fmt::Write as _;
use std::path::Path;

use lifecycle::guardrail::ViolationType;
use lifecycle::outcome::{FailureKind, Limit};

const BEGIN: &str =
    "<!-- table: written by crates/lifecycle/tests/failures.rs with UPDATE_DOCS=1 -->\n";
const END: &str = "<!-- end of table -->";

#[test]
fn the_document_holds_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/failures.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (written, foot) = rest.split_once(END).unwrap();
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{BEGIN}{table}{END}{foot}")).unwrap();
    } else {
        assert_eq!(written, table, "docs/failures.md is stale; run this test with UPDATE_DOCS=1");
    }
}

fn table() -> String {
    let limit = [FailureKind::ResourceLimit(Limit::Memory)];
    let guardrails = [
        ViolationType::ToolRegistry,
        ViolationType::ExternalData,
        ViolationType::Dependency,
        ViolationType::Reuse,
        ViolationType::Process,
    ]
    .map(FailureKind::Guardrail);
    let mut table = "\n| error_type | retriable | cause | what happened | what to do next |\n|---|---|---|---|---|\n".to_owned();
    for kind in FailureKind::LISTED.iter().chain(&limit).chain(&guardrails) {
        let row = kind.row();
        let retriable = if row.retriable { "yes" } else { "no" };
        writeln!(
            table,
            "| `{}` | {retriable} | {} | {} | {} |",
            row.code,
            row.cause.name(),
            row.meaning,
            row.next_step
        )
        .unwrap();
    }
    table.push('\n');
    table
}

/// Programs and log readers know a failure by its code: one code never means two things.
#[test]
fn a_code_has_one_meaning_for_retries() {
    for kind in FailureKind::LISTED {
        for other in FailureKind::LISTED.iter().filter(|other| other.code() == kind.code()) {
            assert_eq!(kind.retriable(), other.retriable(), "{}", kind.code());
        }
    }
}
