//! The command line of the benchmark.

use lifecycle::dialect::Language;

use crate::fixture::MeasurementOptions;
use crate::job::BenchJob;
use crate::timing::Effort;

pub(crate) const HELP: &str = "\
What calls cost: one table, every row with its floor, its bound and a verdict; and how cost grows.

  scripts/bench                    everything; fails when a bound is missed
  scripts/bench --rows             the table only
  scripts/bench --curves           the growth curves only
  scripts/bench --row stored-call  one row, or one curve; may be repeated
  scripts/bench --guest ruby       one guest only
  scripts/bench --quick            few rounds: shows that everything works, not what it costs
  scripts/bench --json             one JSON object on stdout; progress is on stderr in any case
  scripts/bench --write            also writes docs/benchmarks.md and the plots; measures everything
  scripts/bench --list             all names

Run it on a quiet machine. It exits with 0 if every bound holds (with --quick: if everything works), with 1 if not, and
with 2 if an option or a name is unknown. Rows that need a tool that is not installed are skipped with a note.";

/// What to do.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Options),
    /// One measurement, in this process.
    Measure {
        job: BenchJob,
        job_options: MeasurementOptions,
    },
    List,
    Help,
}

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputForm {
    Table,
    Json,
}

/// What to measure and where to write it.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) jobs: Vec<BenchJob>,
    pub(crate) guests: Vec<Language>,
    pub(crate) effort: Effort,
    pub(crate) form: OutputForm,
    pub(crate) write: bool,
}

pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut options = Options {
        jobs: Vec::new(),
        guests: Language::ALL.to_vec(),
        effort: Effort::Full,
        form: OutputForm::Table,
        write: false,
    };
    let mut measure = None;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--list" => return Ok(Command::List),
            "--json" => options.form = OutputForm::Json,
            "--quick" => options.effort = Effort::Quick,
            "--write" => options.write = true,
            "--rows" => options.jobs.extend(BenchJob::all().filter(BenchJob::is_row)),
            "--curves" => options.jobs.extend(BenchJob::all().filter(|job| !job.is_row())),
            "--row" | "--curve" => options.jobs.push(BenchJob::named(&value()?)?),
            "--measure" => measure = Some(BenchJob::named(&value()?)?),
            "--guest" => {
                let guest = value()?.parse::<Language>().map_err(|fault| fault.to_string())?;
                options.guests = vec![guest];
            }
            unknown => return Err(format!("there is no option {unknown}")),
        }
    }
    if let (Some(job), [language, ..]) = (measure, options.guests.as_slice()) {
        let job_options = MeasurementOptions { language: *language, effort: options.effort };
        return Ok(Command::Measure { job, job_options });
    }
    if options.write && !(options.jobs.is_empty() && options.guests == Language::ALL) {
        return Err(
            "--write measures everything; leave out --row, --rows, --curves and --guest".to_owned()
        );
    }
    if options.jobs.is_empty() {
        options.jobs = BenchJob::all().collect();
    }
    Ok(Command::Run(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn words_select_what_is_measured() {
        let all = BenchJob::all().count();
        let rows = BenchJob::all().filter(BenchJob::is_row).count();
        for (line, count) in [
            ("", all),
            ("--json --quick", all),
            ("--rows", rows),
            ("--curves", all - rows),
            ("--row stored-call --row tools", 2),
            ("--write", all),
        ] {
            let Ok(Command::Run(options)) = parsed(line) else { panic!("{line}") };
            assert_eq!(options.jobs.len(), count, "{line}");
        }
        for line in ["--row", "--row nonsense", "--guest perl", "--speed", "--write --rows"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
