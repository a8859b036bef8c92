//! The conformance runner: runs YAML scenarios (`specs/scenarios/README.md`) against the real library, with
//! real workers and a real store. Only the model is scripted.
//!
//! `suite` reads the files, `parse` turns their YAML into typed `scenario`s with all `program`s
//! resolved, `run` runs one scenario, `assertion` checks what it asserts with `matcher`, and `report`
//! holds the results.

mod assertion;
mod fields;
mod log;
mod supplied;
mod matcher;
mod packages;
mod parse;
mod program;
mod report;
mod scenario;
mod run;
mod suite;
mod model;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use recurgent::Cancellation;
use recurgent::config::Config;

pub use report::{ConformanceReport, ScenarioResult};
pub use suite::Suite;

use report::ScenarioEnding;
use suite::SuiteEntry;

/// Runs every scenario of a suite, as many at once as there are cores.
///
/// `config` names the guest language and the interpreters. `notify` is called with each result as soon as it is
/// known. The report keeps the order of the suite; the report of a cancelled run lacks the scenarios that did
/// not run.
pub fn conform(
    suite: &Suite,
    config: &Config,
    cancellation: &Cancellation,
    notify: &mut dyn FnMut(&ScenarioResult),
) -> ConformanceReport {
    let entries = suite.entries();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(entries.len());
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let mut found: Vec<(usize, ScenarioResult)> = Vec::with_capacity(entries.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            let sender = sender.clone();
            let next = &next;
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::SeqCst);
                    let Some(entry) = entries.get(index) else { return };
                    let result = run_entry(entry, config, cancellation);
                    if cancellation.is_cancelled() || sender.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in results {
            notify(&result);
            found.push((index, result));
        }
    });
    found.sort_by_key(|(index, _)| *index);
    ConformanceReport {
        guest: config.agent_options().language,
        results: found.into_iter().map(|(_, result)| result).collect(),
    }
}

/// Runs one scenario. A panic ends only this scenario.
fn run_entry(entry: &SuiteEntry, config: &Config, cancellation: &Cancellation) -> ScenarioResult {
    let started = Instant::now();
    let ending = match &entry.scenario {
        Err(problem) => ScenarioEnding::Error { message: problem.clone() },
        Ok(scenario) => {
            catch_unwind(AssertUnwindSafe(|| run::run_scenario(scenario, config, cancellation)))
                .unwrap_or_else(|panic| {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                    let message =
                        format!("a bug ended this scenario: {}", text.unwrap_or("a panic"));
                    ScenarioEnding::Error { message }
                })
        }
    };
    ScenarioResult {
        id: entry.id.clone(),
        file: entry.file.clone(),
        ending,
        duration: started.elapsed(),
    }
}
