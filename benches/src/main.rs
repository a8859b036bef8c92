//! What calls cost: one table, every row with its floor, its bound and a verdict; and how cost grows.
//!
//! `scripts/bench` builds and runs this. Every measurement has a process of its own (`job.rs`), which is this
//! program again with `--measure`, so that none inherits the threads, workers or memory of another.
#![expect(clippy::print_stderr, reason = "a benchmark reports its progress")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

mod bare;
mod cost;
mod curve;
#[path = "../../crates/recurgent/tests/workers/drive.rs"]
#[expect(dead_code, clippy::panic, clippy::indexing_slicing, reason = "shared with the tests")]
mod drive;
mod fill;
mod job;
mod markdown;
mod options;
#[path = "../../crates/lifecycle/benches/common/mod.rs"]
mod program;
mod report;
mod row;
mod timing;
mod fixture;
mod svg;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use job::BenchJob;
use options::{Command, Options, OutputForm};
use report::CostReport;
use rustix::process::Signal;

fn main() -> ExitCode {
    match options::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            say(options::HELP);
            ExitCode::SUCCESS
        }
        Ok(Command::List) => {
            let line = |job: BenchJob| format!("{:<24} {}", job.name(), job.what());
            say(BenchJob::all().map(line).collect::<Vec<_>>().join("\n"));
            ExitCode::SUCCESS
        }
        Ok(Command::Measure { job, job_options }) => {
            // The parent was interrupted, so the result is not needed.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
            say(job.measure(job_options));
            ExitCode::SUCCESS
        }
        Ok(Command::Run(options)) => run(&options),
        Err(problem) => {
            eprintln!("bench: {problem}\n\n{}", options::HELP);
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> ExitCode {
    let report = CostReport::make(options);
    match options.form {
        OutputForm::Table => say(report.table()),
        OutputForm::Json => say(serde_json::to_string_pretty(&report).unwrap()),
    }
    if options.write {
        if let Err(problem) = markdown::write(&report) {
            eprintln!("bench: cannot write docs/benchmarks.md: {problem}");
            return ExitCode::FAILURE;
        }
        eprintln!("bench: wrote docs/benchmarks.md and docs/benchmarks/");
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints to stdout; a closed stdout is ignored.
#[expect(clippy::disallowed_methods, reason = "a program that prints what it measured")]
fn say(text: impl Display) {
    match writeln!(io::stdout(), "{text}") {
        Err(problem) if problem.kind() != ErrorKind::BrokenPipe => {
            eprintln!("bench: cannot write: {problem}");
        }
        Ok(()) | Err(_) => {}
    }
}
