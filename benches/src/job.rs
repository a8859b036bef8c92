//! Runs one measurement in its own process.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lifecycle::dialect::Language;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::cost::{COSTS, Cost, Guests};
use crate::curve::{CURVES, Curve};
use crate::fixture::{self, MeasurementOptions};
use crate::row::Missing;
use crate::timing::Effort;

/// Longest one measurement may take.
const MAX_JOB: Duration = Duration::from_mins(5);
/// How often the parent checks whether it has ended.
const PERIOD: Duration = Duration::from_millis(20);

/// Something that can be measured.
#[derive(Clone, Copy)]
pub(crate) enum BenchJob {
    Row(&'static Cost),
    Curve(&'static Curve),
}

impl std::fmt::Debug for BenchJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The result of a measurement, printed as one line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MeasurementResult<T> {
    Measured(T),
    Skipped(String),
}

impl BenchJob {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        COSTS.iter().map(Self::Row).chain(CURVES.iter().map(Self::Curve))
    }

    pub(crate) fn named(name: &str) -> Result<Self, String> {
        Self::all()
            .find(|job| job.name() == name)
            .ok_or_else(|| format!("nothing is named {name:?}; --list shows the names"))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Row(cost) => cost.name,
            Self::Curve(curve) => curve.name,
        }
    }

    pub(crate) fn what(&self) -> String {
        match self {
            Self::Row(cost) => format!("{} ({})", cost.what, cost.bound),
            Self::Curve(curve) => format!("curve: {}, by {}", curve.what, curve.axis),
        }
    }

    pub(crate) fn is_row(&self) -> bool {
        matches!(self, Self::Row(_))
    }

    /// The guests it is measured for. A row without a guest is measured once.
    pub(crate) fn languages(&self, wanted: &[Language]) -> Vec<Language> {
        let most = if self.has_guests() { wanted.len() } else { 1 };
        wanted.iter().copied().take(most).collect()
    }

    fn has_guests(&self) -> bool {
        match self {
            Self::Row(cost) => cost.guests == Guests::Each,
            Self::Curve(_) => true,
        }
    }

    /// Measures in this process and returns the result as one line.
    pub(crate) fn measure(&self, options: MeasurementOptions) -> String {
        if let Err(missing) = self.probe(options.language) {
            return said(&MeasurementResult::<()>::Skipped(missing));
        }
        match self {
            Self::Row(cost) => said(&MeasurementResult::Measured((cost.measure)(options))),
            Self::Curve(curve) => said(&MeasurementResult::Measured((curve.measure)(options))),
        }
    }

    /// Checks for the commands it needs; the error says what to install.
    fn probe(&self, language: Language) -> Result<(), String> {
        if self.has_guests() {
            fixture::probe(language)?;
        }
        let needed = match self {
            Self::Row(cost) => (cost.needs)(language),
            Self::Curve(_) => &[],
        };
        let is_missing = |tool: &&&str| Command::new(tool).arg("--version").output().is_err();
        match needed.iter().find(is_missing) {
            Some(missing) => Err(format!("{missing} was not found; install it")),
            None => Ok(()),
        }
    }

    /// Measures in another process and waits for it.
    pub(crate) fn found<T: DeserializeOwned>(
        &self,
        options: MeasurementOptions,
    ) -> Result<T, Missing> {
        let line = self.run(options).map_err(Missing::Broken)?;
        match serde_json::from_str(&line) {
            Ok(MeasurementResult::Measured(found)) => Ok(found),
            Ok(MeasurementResult::Skipped(why)) => Err(Missing::Skipped(why)),
            Err(problem) => Err(Missing::Broken(format!("it said {line:?}: {problem}"))),
        }
    }

    fn run(&self, options: MeasurementOptions) -> Result<String, String> {
        let text = |error: std::io::Error| error.to_string();
        let mut command = Command::new(std::env::current_exe().map_err(text)?);
        command.args(["--measure", self.name(), "--guest", options.language.name()]);
        if options.effort == Effort::Quick {
            command.arg("--quick");
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(text)?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(text)? {
                break status;
            }
            if begun.elapsed() > MAX_JOB {
                child.kill().map_err(text)?; // its workers die with it
                child.wait().map_err(text)?;
                return Err(format!("it took longer than {} s", MAX_JOB.as_secs()));
            }
            std::thread::sleep(PERIOD);
        };
        let mut line = String::new();
        if let Some(mut output) = child.stdout.take() {
            output.read_to_string(&mut line).map_err(text)?;
        }
        if status.success() { Ok(line) } else { Err(format!("it ended with {status}")) }
    }
}

fn said<T: Serialize>(said: &MeasurementResult<T>) -> String {
    serde_json::to_string(said).unwrap()
}
