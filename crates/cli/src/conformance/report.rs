//! What came of a run, for people and for programs.

use std::time::Duration;

use recurgent::Language;
use serde_json::{Map, Value, json};

/// The contract scenarios hold a runtime to.
const CONTRACT_VERSION: u32 = 1;

/// What came of every scenario, in the order of the suite.
#[derive(Debug)]
pub(crate) struct Report {
    pub(super) guest: Language,
    pub(super) verdicts: Vec<ScenarioResult>,
}

/// What came of one scenario.
#[derive(Debug)]
pub(crate) struct ScenarioResult {
    pub(super) id: String,
    pub(super) file: String,
    pub(super) ending: Ending,
    pub(super) duration: Duration,
}

/// How a scenario ended.
#[derive(Debug)]
pub(super) enum Ending {
    Pass,
    Fail { step: usize, op: String, message: String },
    Error { message: String },
    Skip { message: String },
}

impl Ending {
    fn status(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail { .. } => "fail",
            Self::Error { .. } => "error",
            Self::Skip { .. } => "skip",
        }
    }

    fn message(&self) -> Option<&str> {
        match self {
            Self::Pass => None,
            Self::Fail { message, .. } | Self::Error { message } | Self::Skip { message } => {
                Some(message)
            }
        }
    }

    fn step(&self) -> Option<(usize, &str)> {
        match self {
            Self::Fail { step, op, .. } => Some((*step, op)),
            Self::Pass | Self::Error { .. } | Self::Skip { .. } => None,
        }
    }
}

impl ScenarioResult {
    /// Its scenario.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the scenario was not passed.
    pub(crate) fn failed(&self) -> bool {
        matches!(self.ending, Ending::Fail { .. } | Ending::Error { .. })
    }

    fn to_json(&self) -> Value {
        let mut result = Map::from_iter([
            ("id".to_owned(), json!(self.id)),
            ("file".to_owned(), json!(self.file)),
            ("status".to_owned(), json!(self.ending.status())),
            ("duration_ms".to_owned(), json!(self.duration.as_millis())),
        ]);
        if let Some((step, op)) = self.ending.step() {
            result.insert("step".to_owned(), step.into());
            result.insert("op".to_owned(), op.into());
        }
        if let Some(message) = self.ending.message() {
            result.insert("message".to_owned(), message.into());
        }
        Value::Object(result)
    }

    /// On one line, unless there is nothing to say.
    fn line(&self) -> Option<String> {
        let message = self.ending.message()?.replace('\n', "\\n");
        let place = self.ending.step().map(|(step, op)| format!(" step {step} {op}"));
        let status = self.ending.status();
        Some(format!(
            "{status:5} {} ({}){}: {message}",
            self.id,
            self.file,
            place.unwrap_or_default()
        ))
    }
}

impl Report {
    /// Scenarios that hold.
    pub(crate) fn passed(&self) -> usize {
        self.verdicts.iter().filter(|verdict| matches!(verdict.ending, Ending::Pass)).count()
    }

    /// Scenarios that do not, or could not be played.
    pub(crate) fn failed(&self) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.failed()).count()
    }

    /// For programs.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "runtime": "recurgent",
            "contract_version": CONTRACT_VERSION,
            "guest": self.guest,
            "passed": self.passed(),
            "failed": self.failed(),
            "results": self.verdicts.iter().map(ScenarioResult::to_json).collect::<Vec<_>>(),
        })
    }

    /// For people: a line per scenario that did not pass, then the count alone on the last.
    pub(crate) fn lines(&self) -> Vec<String> {
        let count = format!("{} passed, {} failed", self.passed(), self.failed());
        self.verdicts.iter().filter_map(ScenarioResult::line).chain([count]).collect()
    }
}
