//! The conformance runner: YAML scenarios (`specs/scenarios/README.md`) against the real library, with real
//! workers and a real store; only the model is scripted.
//!
//! [`suite`] finds and reads the files, [`parse`] turns their YAML into typed [`scenario`]s with all
//! [`program`]s resolved, [`stage`] plays one scenario, [`check`] holds it to what it expects by the rules of
//! [`matcher`], [`report`] tells what came of it.

mod check;
mod fields;
mod journal;
mod literal;
mod matcher;
mod packages;
mod parse;
mod program;
mod report;
mod scenario;
mod stage;
mod suite;
mod witness;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use recurgent::Cancellation;
use recurgent::config::Config;

pub(crate) use report::{Report, ScenarioResult};
pub(crate) use suite::Suite;

use report::Ending;
use suite::Entry;

/// Plays every scenario of a suite, some at a time. `config` names the guest and the interpreters; `tell` is
/// told of each verdict as it falls. The report is in the order of the suite, whatever finished first; one
/// that was cancelled lacks what was not played.
pub(crate) fn conform(
    suite: &Suite,
    config: &Config,
    cancellation: &Cancellation,
    tell: &mut dyn FnMut(&ScenarioResult),
) -> Report {
    let entries = suite.entries();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(entries.len());
    let next = AtomicUsize::new(0);
    let (sender, verdicts) = mpsc::channel();
    let mut found: Vec<(usize, ScenarioResult)> = Vec::with_capacity(entries.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            let sender = sender.clone();
            let next = &next;
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::SeqCst);
                    let Some(entry) = entries.get(index) else { return };
                    let verdict = judge(entry, config, cancellation);
                    if cancellation.is_cancelled() || sender.send((index, verdict)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, verdict) in verdicts {
            tell(&verdict);
            found.push((index, verdict));
        }
    });
    found.sort_by_key(|(index, _)| *index);
    Report {
        guest: config.agent_options().language,
        verdicts: found.into_iter().map(|(_, verdict)| verdict).collect(),
    }
}

/// What came of one scenario; a fault of the library or the runner is no reason to lose the others.
fn judge(entry: &Entry, config: &Config, cancellation: &Cancellation) -> ScenarioResult {
    let started = Instant::now();
    let ending = match &entry.scenario {
        Err(problem) => Ending::Error { message: problem.clone() },
        Ok(scenario) => {
            catch_unwind(AssertUnwindSafe(|| stage::play(scenario, config, cancellation)))
                .unwrap_or_else(|_| Ending::Error {
                    message: "a bug ended this scenario; its trace is above".to_owned(),
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
