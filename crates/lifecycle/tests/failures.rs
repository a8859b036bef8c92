//! `docs/failures.md` and `specs/agent-contract.md` hold the table of failures as [`FailureKind::row`] declares it. A test
//! compares them (`UPDATE_DOCS=1` writes the tables).
#![expect(clippy::disallowed_methods, reason = "a test reads and writes the page")]
#![cfg(test)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use lifecycle::guardrail::ViolationType;
use lifecycle::outcome::{FailureKind, Limit};

const BEGIN: &str =
    "<!-- table: written by crates/lifecycle/tests/failures.rs with UPDATE_DOCS=1 -->\n";
const END: &str = "<!-- end of table -->";

#[test]
fn the_documents_hold_the_table() {
    for (page, table) in
        [("docs/failures.md", manual_table()), ("specs/agent-contract.md", contract_table())]
    {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once(BEGIN).unwrap();
        let (written, foot) = rest.split_once(END).unwrap();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, format!("{head}{BEGIN}{table}{END}{foot}")).unwrap();
        } else {
            assert_eq!(written, table, "{page} is stale; run this test with UPDATE_DOCS=1");
        }
    }
}

/// Every kind with a code of its own.
fn kinds() -> Vec<FailureKind> {
    let limit = [FailureKind::ResourceLimit(Limit::Memory)];
    let guardrails = [
        ViolationType::ToolRegistry,
        ViolationType::ExternalData,
        ViolationType::Dependency,
        ViolationType::Reuse,
        ViolationType::Process,
    ]
    .map(FailureKind::Guardrail);
    FailureKind::LISTED.iter().chain(&limit).chain(&guardrails).cloned().collect()
}

/// The types as a conforming runtime must give them.
fn contract_table() -> String {
    let mut table = "\n| `error_type` | retriable | when |\n|---|---|---|\n".to_owned();
    let kinds = kinds();
    let mut codes = BTreeSet::new();
    for row in kinds.iter().map(FailureKind::row).filter(|row| codes.insert(row.code)) {
        let same = kinds.iter().map(FailureKind::row).filter(|other| other.code == row.code);
        let meanings: Vec<&str> = same.map(|row| row.meaning).collect();
        let retriable = if row.retriable { "yes" } else { "no" };
        writeln!(table, "| `{}` | {retriable} | {} |", row.code, meanings.join("; or ")).unwrap();
    }
    table.push_str("| any other text | as authored | a program reported it (O4) |\n");
    table
}

fn manual_table() -> String {
    let mut table = "\n| error_type | retriable | cause | what happened | what to do next |\n|---|---|---|---|---|\n".to_owned();
    for kind in kinds() {
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
