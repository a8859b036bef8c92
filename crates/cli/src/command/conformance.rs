//! `recurgent conformance`: runs scenarios against this runtime.

use std::path::PathBuf;

use clap::Args;
use recurgent::Language;
use recurgent::config::Config;
use recurgent::worker::Workers;

use super::settings::language_parser;
use crate::exit::{CommandFault, Exit};
use crate::interrupt::Interrupt;
use crate::render::{self, Stream};
use conformance::{ScenarioResult, Suite, conform};

const EXAMPLES: &str = "\
Examples:
  recurgent conformance --dir specs/scenarios --guest python
  recurgent conformance --dir specs/scenarios --guest ruby --only 'rollback.*' --json

It exits with 1 if any scenario fails.";

/// Check that scenarios give the same result on a guest language
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConformanceOptions {
    /// Where the scenarios are: a directory of YAML files
    #[arg(long)]
    dir: PathBuf,
    /// The language programs are written in
    #[arg(long, value_name = "LANGUAGE", value_parser = language_parser())]
    guest: Language,
    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,
    /// Only scenarios whose id contains this, or fits it when it has a `*`
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
}

impl ConformanceOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let suite = self.suite().map_err(CommandFault::usage)?;
        let mut config = Config::load()?;
        config.set("guest", self.guest.name())?;
        check_interpreter(&config)?;
        let mut progress = Progress::of(&suite);
        let (report, cancelled) = Interrupt::install()?.during(|cancellation| {
            let report =
                conform(&suite, &config, &cancellation, &mut |verdict| progress.report(verdict));
            (report, cancellation.is_cancelled())
        });
        progress.clear();
        if cancelled {
            return Err(CommandFault::cancelled("the run was cancelled; there is no report"));
        }
        if self.json {
            render::json(&report.to_json())?;
        } else {
            render::lines(&report.lines())?;
        }
        Ok(if report.failed() == 0 { Exit::Ok } else { Exit::Failed })
    }

    fn suite(&self) -> Result<Suite, String> {
        let suite = Suite::read(&self.dir)?;
        match &self.only {
            Some(pattern) => suite.only(pattern),
            None => Ok(suite),
        }
    }
}

/// Fails if there is no interpreter of the guest. Otherwise every scenario would fail for this reason.
fn check_interpreter(config: &Config) -> Result<(), CommandFault> {
    let workers = Workers::start(&config.worker_options())
        .map_err(|error| CommandFault::unavailable(error.to_string()))?;
    workers.probe(config.agent_options().language).map(drop).map_err(CommandFault::unavailable)
}

/// One line on the terminal, written over and over.
struct Progress {
    done: usize,
    failed: usize,
    of: usize,
    shown: bool,
}

impl Progress {
    fn of(suite: &Suite) -> Self {
        Self {
            done: 0,
            failed: 0,
            of: suite.scenario_count(),
            shown: render::is_terminal(Stream::Error),
        }
    }

    fn report(&mut self, verdict: &ScenarioResult) {
        self.done += 1;
        self.failed += usize::from(verdict.failed());
        if self.shown {
            let Self { done, failed, of, .. } = self;
            render::replace_line(&format!("{done}/{of}, {failed} failed  {}", verdict.id()));
        }
    }

    fn clear(&self) {
        if self.shown {
            render::replace_line("");
        }
    }
}
