//! Checks that no bytes make a parser or a decoder panic or hang.
//!
//! A mutation runner: it takes what is in the corpus (every program of `docs/stories`, and the seeds below), changes it
//! at random, and gives it to each target for a while. It sees no coverage, so it is weaker than libFuzzer; it keeps inputs
//! that made a target answer in a new way, which is a small part of what coverage would show. It runs on stable Rust,
//! and the same seed gives the same inputs.
//!
//! ```text
//! cargo run --release -p recurgent-fuzz -- [--seconds N] [--seed S] [FILE]
//! ```
//!
//! With a FILE, that one input is given to every target. The input being tried is always in
//! `recurgent-fuzz-<pid>-input` in the temporary directory: if the process dies, that input is the cause.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints what it found"
)]

mod mutate;
mod target;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mutate::Mutator;
use target::TARGETS;

/// Longest input; programs may have up to 128 KiB.
const MAX_INPUT: usize = 160 * 1024;
/// Inputs kept for their new answers, per target.
const MAX_KEPT: usize = 2_000;
/// No input of this size may take longer: several hundred times what the slowest known one does.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let mut options = Options { seconds: 60.0, seed: 1, file: None };
    if let Err(problem) = options.read(std::env::args().skip(1)) {
        eprintln!("{problem}; usage: recurgent-fuzz [--seconds N] [--seed S] [FILE]");
        return ExitCode::from(2);
    }
    // A panic is caught and reported with its input, so the usual trace is not needed.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let found = match &options.file {
        Some(file) => one(file),
        None => all(&options),
    };
    match found {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    seconds: f64,
    seed: u64,
    file: Option<PathBuf>,
}

impl Options {
    fn read(&mut self, mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
        while let Some(argument) = arguments.next() {
            let mut number = |name: &str| {
                let text = arguments.next().unwrap_or_default();
                text.parse::<f64>().map_err(|_| format!("{name} takes a number, not {text:?}"))
            };
            match argument.as_str() {
                "--seconds" => self.seconds = number("--seconds")?,
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a seed is any number"
                )]
                "--seed" => self.seed = number("--seed")? as u64,
                flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}")),
                file => self.file = Some(PathBuf::from(file)),
            }
        }
        Ok(())
    }
}

fn one(file: &Path) -> Result<(), String> {
    let input = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    for target in TARGETS {
        let answer =
            attempt(target.run, &input).map_err(|problem| format!("{}: {problem}", target.name))?;
        println!("{}: {answer}", target.name);
    }
    Ok(())
}

/// Each target gets an equal share of the time.
fn all(options: &Options) -> Result<(), String> {
    let corpus = corpus()?;
    let share = Duration::from_secs_f64(
        options.seconds / f64::from(u32::try_from(TARGETS.len()).unwrap_or(1)),
    );
    let place = kept_in("input");
    // The file must be new, so that no other user can prepare a file or a link here.
    let mut current = File::create_new(&place)
        .map_err(|error| format!("{} cannot be made: {error}", place.display()))?;
    for target in TARGETS {
        let seeds =
            corpus.iter().filter(|(kind, _)| target.reads(kind)).map(|(_, seed)| seed.clone());
        let mut mutator = Mutator::new(options.seed, seeds.collect());
        let (begun, mut tried, mut slowest) = (Instant::now(), 0_u64, (Duration::ZERO, 0));
        let mut answers = BTreeSet::new();
        while begun.elapsed() < share {
            let input = mutator.next(MAX_INPUT);
            remember(&mut current, &input).map_err(|error| error.to_string())?;
            let started = Instant::now();
            let answer = attempt(target.run, &input)
                .map_err(|problem| found(target.name, &problem, &input))?;
            let took = started.elapsed();
            if took > PATIENCE {
                return Err(found(target.name, &format!("took {took:?}"), &input));
            }
            slowest = slowest.max((took, input.len()));
            tried += 1;
            if answers.len() < MAX_KEPT && answers.insert(answer) {
                mutator.keep(input);
            }
        }
        println!(
            "{:<8} {tried:>8} inputs, {:>5} kinds of answer, slowest {:.1} ms ({} bytes)",
            target.name,
            answers.len(),
            slowest.0.as_secs_f64() * 1000.0,
            slowest.1
        );
    }
    let _ = std::fs::remove_file(place);
    Ok(())
}

/// Overwrites what is being tried. The file stays open: closing one that was cut makes some file systems wait for the disk.
fn remember(file: &mut File, input: &[u8]) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(input)?;
    file.set_len(input.len() as u64)
}

/// Runs a target on one input; a panic is a finding.
fn attempt(run: fn(&[u8]) -> String, input: &[u8]) -> Result<String, String> {
    catch_unwind(AssertUnwindSafe(|| run(input))).map_err(|_| "panicked".to_owned())
}

/// A file of this run's own in the temporary directory.
#[expect(clippy::disallowed_methods, reason = "this program has no configuration")]
fn kept_in(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("recurgent-fuzz-{}-{name}", std::process::id()))
}

/// Saves the input and prints its path.
fn found(target: &str, problem: &str, input: &[u8]) -> String {
    let path = kept_in(target);
    match std::fs::write(&path, input) {
        Ok(()) => {
            format!("{target} {problem} on {} bytes, kept in {}", input.len(), path.display())
        }
        Err(error) => {
            format!("{target} {problem} on {} bytes, which cannot be kept: {error}", input.len())
        }
    }
}

/// Seeds by kind: the programs of the stories and inputs known to be difficult.
fn corpus() -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut corpus = target::seeds();
    let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/stories");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&stories)
        .map_err(|error| format!("{}: {error}", stories.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        for block in text.split("\n```").skip(1).step_by(2) {
            let (info, body) = block.split_once('\n').unwrap_or((block, ""));
            let kind = info.split(' ').next().unwrap_or_default();
            if matches!(kind, "python" | "ruby") {
                corpus.push((kind.to_owned(), body.as_bytes().to_vec()));
            }
        }
    }
    Ok(corpus)
}
