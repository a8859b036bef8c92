//! How precise the detection of corrections is, on labelled pairs of calls: `pairs.json` was used to develop it,
//! `pairs_blind.json` and `pairs_second_blind.json` were written without reading the code and only scored.
//! `docs/corrections.md` holds the result (`UPDATE_DOCS=1` writes it).
#![expect(clippy::disallowed_methods, reason = "a test reads the pairs and writes the page")]
#![cfg(test)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use lifecycle::correction::{detect, values, words};
use lifecycle::pattern::PatternEvent;
use lifecycle::request::Arguments;
use lifecycle::weak_success::{WeakSignal, Weakness};
use serde_json::Value;

const PAGE: &str = "docs/corrections.md";
const BEGIN: &str =
    "<!-- table: written by crates/lifecycle/tests/corrections with UPDATE_DOCS=1 -->\n";
const END: &str = "<!-- end of table -->";

/// How a set of pairs was judged.
#[derive(Default)]
struct Score {
    found: usize,
    missed: usize,
    wrong: usize,
    right: usize,
    signals: BTreeMap<String, usize>,
}

impl Score {
    fn add(&mut self, pair: &Value) {
        let is_correction = pair["label"] == "correction";
        match (detected(pair), is_correction) {
            (Some(signal), true) => {
                self.found += 1;
                *self.signals.entry(signal).or_default() += 1;
            }
            (Some(_), false) => self.wrong += 1,
            (None, true) => self.missed += 1,
            (None, false) => self.right += 1,
        }
    }

    fn precision(&self) -> f64 {
        ratio(self.found, self.found + self.wrong)
    }

    fn recall(&self) -> f64 {
        ratio(self.found, self.found + self.missed)
    }

    fn row(&self, name: &str) -> String {
        let Self { found, missed, wrong, right, .. } = self;
        format!(
            "| {name} | {} | {found} | {missed} | {wrong} | {:.2} | {:.2} |\n",
            found + missed + wrong + right,
            self.precision(),
            self.recall()
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few pairs")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// The call as pattern memory keeps it.
fn event(call: &Value, id: &str) -> PatternEvent {
    let arguments = Arguments {
        args: call["args"].as_array().cloned().unwrap_or_default(),
        kwargs: call["kwargs"].as_object().cloned().unwrap_or_default(),
    };
    PatternEvent {
        role: call["role"].as_str().unwrap_or_default().to_owned(),
        method_name: call["method"].as_str().unwrap_or_default().to_owned(),
        call_id: id.to_owned(),
        recorded_at_ms: 1_000_000,
        outcome_status: "ok".to_owned(),
        argument_words: words(&arguments),
        argument_values: values(&arguments),
        ..PatternEvent::default()
    }
}

fn detected(pair: &Value) -> Option<String> {
    let mut first = event(&pair["first"], "c1");
    first.outcome_status = pair["first_outcome"]["status"].as_str().unwrap_or("ok").to_owned();
    if pair["first_outcome"]["weak"] == true {
        let signal = WeakSignal { signal: Weakness::EmptyBody, path: None, text: None };
        first.weak_success_signals = vec![signal];
    }
    let waited = pair["seconds_between"].as_u64().unwrap_or(0) * 1000;
    detect(&first, &event(&pair["second"], "c2"), 1_000_000 + waited).map(|found| found.evidence)
}

fn scored(text: &str) -> Score {
    let pairs: Vec<Value> = serde_json::from_str(text).unwrap();
    let mut score = Score::default();
    for pair in &pairs {
        score.add(pair);
    }
    score
}

#[test]
fn corrections_are_detected_precisely() {
    let known = scored(include_str!("pairs.json"));
    let blind = scored(include_str!("pairs_blind.json"));
    let second = scored(include_str!("pairs_second_blind.json"));
    let mut all = scored(include_str!("pairs.json"));
    for text in [include_str!("pairs_blind.json"), include_str!("pairs_second_blind.json")] {
        let pairs: Vec<Value> = serde_json::from_str(text).unwrap();
        for pair in &pairs {
            all.add(pair);
        }
    }
    let mut table = "\n| pairs | number | found | missed | wrongly taken | precision | recall |\n|---|---|---|---|---|---|---|\n".to_owned();
    let rows = [
        ("used for development", &known),
        ("blind", &blind),
        ("second blind", &second),
        ("all", &all),
    ];
    for (name, score) in rows {
        table.push_str(&score.row(name));
    }
    table.push_str("\n| evidence | corrections found by it |\n|---|---|\n");
    for (signal, count) in &all.signals {
        writeln!(table, "| `{signal}` | {count} |").unwrap();
    }
    table.push('\n');
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (written, foot) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{BEGIN}{table}{END}{foot}")).unwrap();
    } else {
        assert_eq!(written, table, "{PAGE} is stale; run this test with UPDATE_DOCS=1");
    }
    assert!(known.precision() >= 0.95 && known.recall() >= 0.5, "{table}");
    assert!(all.precision() >= 0.95 && all.recall() >= 0.5, "{table}");
}
