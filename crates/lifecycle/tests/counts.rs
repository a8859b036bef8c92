//! The gate on instruction counts (`benches/counts`): it can fail, it says what to do, and it knows what it
//! cannot judge.
#![expect(clippy::unwrap_used, reason = "test")]

#[path = "../benches/counts/gate.rs"]
mod gate;

use gate::{Counts, OTHER_TOOLS_PERCENT, TOLERANCE_PERCENT, review};

/// `made with: path count, path count`.
fn counts(text: &str) -> Counts {
    let (tools, paths) = text.split_once(": ").unwrap();
    let pairs = |text: &str| -> Vec<(String, String)> {
        let words = text.split(", ").map(|pair| pair.split_once(' ').unwrap());
        words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    Counts {
        made_with: pairs(tools).into_iter().collect(),
        instructions: pairs(paths)
            .into_iter()
            .map(|(path, n)| (path, n.parse().unwrap()))
            .collect(),
    }
}

const BASELINE: &str = "processor x86_64, rustc 1.95: vet 1000, prompt 2000";

/// What was counted, whether it passes, and what is said of it.
const TABLE: &[(&str, bool, &[&str])] = &[
    ("processor x86_64, rustc 1.95: vet 1000, prompt 2000", true, &["+0.0 %", "tolerance: 5 %"]),
    ("processor x86_64, rustc 1.95: vet 1050, prompt 2000", true, &["+5.0 %"]),
    (
        "processor x86_64, rustc 1.95: vet 1051, prompt 2000",
        false,
        &["+5.1 %  FAIL: more", "the update command", "callgrind_annotate"],
    ),
    // One that got cheaper makes up for nothing.
    ("processor x86_64, rustc 1.95: vet 1051, prompt 1000", false, &["-50.0 %  pass, fewer"]),
    (
        "processor x86_64, rustc 1.95: vet 949, prompt 2000",
        true,
        &["-5.1 %  pass, fewer", "fewer than before", "the update command"],
    ),
    (
        "processor x86_64, rustc 1.95: vet 1000, prompt 2000, new 1",
        false,
        &["FAIL: not in the baseline", "the update command"],
    ),
    ("processor x86_64, rustc 1.95: vet 1000", false, &["FAIL: no longer counted"]),
    // Another compiler: what it does differently is not ours, a leap is.
    (
        "processor x86_64, rustc 1.96: vet 1150, prompt 2000",
        true,
        &["rustc: 1.96, baseline 1.95", "tolerance: 15 %"],
    ),
    ("processor x86_64, rustc 1.96: vet 1151, prompt 2000", false, &["FAIL: more"]),
    ("processor x86_64: vet 1100, prompt 2000", true, &["rustc: unknown, baseline 1.95"]),
    (
        "processor aarch64, rustc 1.95: vet 9000, prompt 2000",
        true,
        &["processor: aarch64, baseline x86_64", "not gated"],
    ),
];

#[test]
fn a_count_may_rise_by_the_tolerance_and_no_more() {
    assert_eq!((TOLERANCE_PERCENT, OTHER_TOOLS_PERCENT), (5, 15), "the table is made for these");
    for (measured, passes, said) in TABLE {
        let review = review(&counts(BASELINE), &counts(measured));
        let text = review.text("the update command");
        assert_eq!(review.passes(), *passes, "{measured}\n{text}");
        for said in *said {
            assert!(text.contains(said), "{measured}: {said:?} is missing from\n{text}");
        }
    }
}

/// The committed file is one the gate can read, and judges every path it names.
#[test]
fn the_baseline_holds_against_itself_and_not_against_a_dearer_path() {
    let baseline: Counts =
        serde_json::from_str(include_str!("../benches/counts/baseline.json")).unwrap();
    assert!(review(&baseline, &baseline).passes());
    for path in baseline.instructions.keys() {
        let mut dearer = baseline.clone();
        *dearer.instructions.get_mut(path).unwrap() *= 2;
        assert!(!review(&baseline, &dearer).passes(), "{path} may cost twice as much");
    }
}
