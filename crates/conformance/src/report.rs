//! The results of a run, as text and as JSON.

use std::time::Duration;

use recurgent::Language;
use serde_json::{Map, Value, json};

/// The version of the agent contract that scenarios check.
const CONTRACT_VERSION: u32 = 1;

/// The results of all scenarios, in the order of the suite.
#[derive(Debug)]
pub struct ConformanceReport {
    pub(crate) guest: Language,
    pub(crate) results: Vec<ScenarioResult>,
}

/// The result of one scenario.
#[derive(Debug)]
pub struct ScenarioResult {
    pub(crate) id: String,
    pub(crate) file: String,
    pub(crate) ending: ScenarioEnding,
    pub(crate) duration: Duration,
}

/// How a scenario ended.
#[derive(Debug)]
pub(crate) enum ScenarioEnding {
    Pass,
    Fail { step: usize, op: String, message: String },
    Error { message: String },
    Skip { message: String },
}

impl ScenarioEnding {
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
    /// The id of the scenario.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the scenario failed or could not run.
    pub fn failed(&self) -> bool {
        matches!(self.ending, ScenarioEnding::Fail { .. } | ScenarioEnding::Error { .. })
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

    /// The result on one line; `None` if the scenario passed.
    fn line(&self) -> Option<String> {
        let message = self.ending.message()?.replace('\n', "\\n");
        let step = self.ending.step().map(|(step, op)| format!(" step {step} {op}"));
        let status = self.ending.status();
        Some(format!(
            "{status:5} {} ({}){}: {message}",
            self.id,
            self.file,
            step.unwrap_or_default()
        ))
    }
}

impl ConformanceReport {
    /// The number of scenarios that passed.
    pub fn passed(&self) -> usize {
        self.results.iter().filter(|result| matches!(result.ending, ScenarioEnding::Pass)).count()
    }

    /// The number of scenarios that failed or could not run.
    pub fn failed(&self) -> usize {
        self.results.iter().filter(|result| result.failed()).count()
    }

    /// The number of scenarios that do not apply to the guest.
    fn skipped(&self) -> usize {
        let skipped = |it: &&ScenarioResult| matches!(it.ending, ScenarioEnding::Skip { .. });
        self.results.iter().filter(skipped).count()
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "runtime": "recurgent",
            "contract_version": CONTRACT_VERSION,
            "guest": self.guest,
            "passed": self.passed(),
            "failed": self.failed(),
            "skipped": self.skipped(),
            "results": self.results.iter().map(ScenarioResult::to_json).collect::<Vec<_>>(),
        })
    }

    /// The report as text: a line per scenario that did not pass, then the numbers of passed, failed and, if there
    /// are any, skipped scenarios.
    pub fn lines(&self) -> Vec<String> {
        let (passed, failed) = (self.passed(), self.failed());
        let count = match self.skipped() {
            0 => format!("{passed} passed, {failed} failed"),
            skipped => format!("{passed} passed, {failed} failed, {skipped} skipped"),
        };
        self.results.iter().filter_map(ScenarioResult::line).chain([count]).collect()
    }
}
