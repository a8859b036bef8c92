//! Compares counts with the committed baseline, within a tolerance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A count may rise by this much: the compiler inlines differently when neighbouring code changes.
pub(crate) const TOLERANCE_PERCENT: u64 = 5;
/// The same when compilers or libraries are not those the baseline was made with: two versions of rustc were
/// seen to differ by 8.
pub(crate) const OTHER_TOOLS_PERCENT: u64 = 15;
/// The tool whose change makes counts incomparable.
const PROCESSOR: &str = "processor";

/// Instructions per path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// What decides how many instructions the same source takes, with versions.
    pub(crate) made_with: BTreeMap<String, String>,
    /// By path.
    pub(crate) instructions: BTreeMap<String, u64>,
}

/// Counts compared with a baseline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Review {
    /// What was not made with the same: `rustc: 1.95.0, baseline 1.94.1`.
    differing: Vec<String>,
    /// `None`: the counts cannot be compared.
    tolerance_percent: Option<u64>,
    rows: Vec<Row>,
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    path: String,
    was: Option<u64>,
    is: Option<u64>,
    finding: Finding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Within,
    Fewer,
    More,
    /// Counted, and not in the baseline.
    New,
    /// In the baseline, and not counted.
    Gone,
    NotComparable,
}

/// Holds `measured` to `baseline`.
pub(crate) fn review(baseline: &Counts, measured: &Counts) -> Review {
    let with = |counts: &Counts, tool: &str| {
        counts.made_with.get(tool).cloned().unwrap_or_else(|| "unknown".to_owned())
    };
    let tools: BTreeSet<_> = baseline.made_with.keys().chain(measured.made_with.keys()).collect();
    let differing: Vec<_> =
        tools.into_iter().filter(|tool| with(baseline, tool) != with(measured, tool)).collect();
    let tolerance_percent = match differing.as_slice() {
        [] => Some(TOLERANCE_PERCENT),
        tools if tools.iter().any(|tool| *tool == PROCESSOR) => None,
        _ => Some(OTHER_TOOLS_PERCENT),
    };
    let paths: BTreeSet<_> =
        baseline.instructions.keys().chain(measured.instructions.keys()).collect();
    let rows = paths.into_iter().map(|path| {
        let was = baseline.instructions.get(path).copied();
        let is = measured.instructions.get(path).copied();
        Row { path: path.clone(), was, is, finding: finding(was, is, tolerance_percent) }
    });
    Review {
        rows: rows.collect(),
        tolerance_percent,
        differing: differing
            .into_iter()
            .map(|tool| {
                format!("{tool}: {}, baseline {}", with(measured, tool), with(baseline, tool))
            })
            .collect(),
    }
}

fn finding(was: Option<u64>, is: Option<u64>, tolerance_percent: Option<u64>) -> Finding {
    match (was, is, tolerance_percent) {
        (None, _, _) => Finding::New,
        (_, None, _) => Finding::Gone,
        (_, _, None) => Finding::NotComparable,
        (Some(was), Some(is), Some(percent)) => {
            if is * 100 > was * (100 + percent) {
                Finding::More
            } else if is * 100 < was * (100 - percent) {
                Finding::Fewer
            } else {
                Finding::Within
            }
        }
    }
}

impl Review {
    /// Whether no path got dearer, and the baseline names the paths there are.
    pub(crate) fn passes(&self) -> bool {
        !self.has(|finding| matches!(finding, Finding::More | Finding::New | Finding::Gone))
    }

    /// The table, what it means, and what to do about it.
    pub(crate) fn text(&self, update: &str) -> String {
        let mut text =
            format!("{:<26} {:>12} {:>12} {:>8}\n", "instructions", "now", "baseline", "change");
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{:<26} {:>12} {:>12} {:>8}  {}",
                row.path,
                number(row.is),
                number(row.was),
                row.change(),
                row.finding.name()
            );
        }
        for differing in &self.differing {
            let _ = writeln!(text, "other tools than the baseline's: {differing}");
        }
        let _ = match self.tolerance_percent {
            Some(percent) => writeln!(text, "tolerance: {percent} %"),
            None => writeln!(text, "not gated: another processor takes other instructions"),
        };
        if !self.passes() {
            let _ = writeln!(
                text,
                "FAIL: find what made it dearer (valgrind --tool=callgrind, callgrind_annotate); if the cost is \
                 meant, or a path is new or gone, commit what this writes:\n    {update}"
            );
        } else if self.has(|finding| finding == Finding::Fewer) {
            let _ = writeln!(
                text,
                "fewer than before: keep it so, commit what this writes:\n    {update}"
            );
        }
        text
    }

    fn has(&self, wanted: impl Fn(Finding) -> bool) -> bool {
        self.rows.iter().any(|row| wanted(row.finding))
    }
}

impl Row {
    fn change(&self) -> String {
        let (Some(was), Some(is)) = (self.was, self.is) else { return "-".to_owned() };
        // In tenths of a percent; a count of nothing cannot change by a share.
        let tenths = (i128::from(is) - i128::from(was)) * 1000 / i128::from(was.max(1));
        format!(
            "{}{}.{} %",
            if tenths < 0 { "-" } else { "+" },
            tenths.abs() / 10,
            tenths.abs() % 10
        )
    }
}

impl Finding {
    fn name(self) -> &'static str {
        match self {
            Self::Within => "pass",
            Self::Fewer => "pass, fewer",
            Self::More => "FAIL: more",
            Self::New => "FAIL: not in the baseline",
            Self::Gone => "FAIL: no longer counted",
            Self::NotComparable => "not gated",
        }
    }
}

fn number(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}
