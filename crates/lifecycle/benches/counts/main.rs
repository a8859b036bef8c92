//! Instructions the hot paths of this crate take: stable where time is not, so a rise is a change of ours.
//!
//! ```sh
//! cargo bench -p recurgent-lifecycle -p recurgent-fuzz --bench counts               # hold them to baseline.json
//! cargo bench -p recurgent-lifecycle -p recurgent-fuzz --bench counts -- --update   # write it
//! ```
//!
//! Each path runs in a process of its own under `valgrind --tool=callgrind`, which counts only while
//! [`counted`] runs. The first round is not counted: what is made once per process is not a cost of a call.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark runs valgrind"
)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its table")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

#[path = "../common/mod.rs"]
mod common;
mod gate;
mod paths;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use gate::Counts;
use paths::{HotPath, PATHS, Work};

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/counts/baseline.json");
const UPDATE: &str =
    "cargo bench -p recurgent-lifecycle -p recurgent-fuzz --bench counts -- --update";
/// Rounds a count is the mean of: an allocator tidies up now and then.
const ROUNDS: u64 = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] => check(),
        ["--update"] => update(),
        ["--path", path] => run(path),
        _ => Err(format!("unknown words {words:?}; the only one is --update")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<(), String> {
    let text = std::fs::read_to_string(BASELINE)
        .map_err(|fault| format!("{BASELINE} cannot be read ({fault}); write it: {UPDATE}"))?;
    let baseline: Counts = serde_json::from_str(&text).map_err(|fault| {
        format!("{BASELINE} cannot be understood ({fault}); write it: {UPDATE}")
    })?;
    let review = gate::review(&baseline, &measured()?);
    let text = review.text(UPDATE);
    if review.passes() {
        println!("{text}");
        return Ok(());
    }
    Err(text)
}

fn update() -> Result<(), String> {
    let counts = measured()?;
    let text = serde_json::to_string_pretty(&counts).unwrap() + "\n";
    std::fs::write(BASELINE, text).map_err(|fault| format!("{BASELINE}: {fault}"))?;
    println!("wrote {} counts to {BASELINE}", counts.instructions.len());
    Ok(())
}

fn measured() -> Result<Counts, String> {
    let count = |&(path, _): &HotPath| Ok((path.to_owned(), instructions(path)?));
    Ok(Counts {
        made_with: made_with(),
        instructions: PATHS.iter().map(count).collect::<Result<_, String>>()?,
    })
}

/// The first line of what each says of itself. C is compiled, too: the parser of Ruby.
fn made_with() -> BTreeMap<String, String> {
    let mut tools = BTreeMap::from([("processor".to_owned(), std::env::consts::ARCH.to_owned())]);
    for (tool, command, question) in [
        ("rustc", "rustc", "--version"),
        ("cc", "cc", "-dumpversion"),
        ("libc", "getconf", "GNU_LIBC_VERSION"),
        ("valgrind", "valgrind", "--version"),
    ] {
        let answer = output(Command::new(command).arg(question)).ok();
        let version = answer.as_ref().and_then(|(stdout, _)| stdout.lines().next());
        tools.extend(version.map(|version| (tool.to_owned(), version.to_owned())));
    }
    tools
}

/// Instructions of one round of a path.
fn instructions(path: &str) -> Result<u64, String> {
    let own = std::env::current_exe().map_err(|fault| fault.to_string())?;
    let (_, printed) = output(
        Command::new("valgrind")
            // The length of the environment moves the stack, and with it how texts are aligned.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg("--toggle-collect=counts::counted*")
            .arg(own)
            .args(["--path", path]),
    )?;
    let collected = printed.lines().find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse::<u64>().ok());
    count
        .filter(|count| *count > 0)
        .map(|count| count / ROUNDS)
        .ok_or_else(|| format!("valgrind counted nothing for {path:?}; it said:\n{printed}"))
}

/// What a command said on each stream, if it went well.
fn output(command: &mut Command) -> Result<(String, String), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|fault| {
        format!(
            "{name} cannot be run ({fault}); install it (Debian/Ubuntu: apt-get install {name})"
        )
    })?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    if output.status.success() {
        return Ok((stdout, stderr));
    }
    let mut message = format!("{name} failed ({})", output.status);
    let _ = write!(message, ":\n{stdout}{stderr}");
    Err(message)
}

/// What runs under valgrind.
fn run(path: &str) -> Result<(), String> {
    let Some((_, prepared)) = PATHS.iter().find(|(name, _)| *name == path) else {
        return Err(format!("no path is called {path:?}"));
    };
    drop(prepared()());
    let rounds: Vec<Work> = (0..ROUNDS).map(|_| prepared()).collect();
    for round in rounds {
        drop(counted(round));
    }
    Ok(())
}

/// By its name valgrind knows when to count.
#[inline(never)]
fn counted(work: Work) -> Box<dyn Any> {
    work()
}
