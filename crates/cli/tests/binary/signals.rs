//! A command that is interrupted or killed ends soon and leaves nothing behind.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::calls::cli;
use crate::fixture::CommandResult;
use crate::processes::{ProcessEntry, assert_gone, descendants};
use crate::terminal::at_terminal;

#[test]
fn ctrl_c_stops_the_call_and_leaves_no_process() {
    let call = ["call", "sleeper", "sleep", "--json", "--trace", "--session", "night"];
    let repl = ["repl", "sleeper", "--trace", "--session", "night"];
    for (signal, line, input) in [
        ("INT", &call[..], ""),
        ("TERM", &call, ""),
        ("HUP", &call, ""),
        ("INT", &repl, "sleep\nsleep\n"),
    ] {
        let cli = cli();
        let mut child = cli.command(line).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let ran = interrupted(child, signal, line);
        if line == call {
            assert_eq!(ran.exits(130).json()["error_type"], "cancelled");
        } else {
            ran.exits(130).prints("");
        }
        // Nothing of the cancelled call is kept, and the session still works.
        cli.run(&["call", "calculator", "add", "3", "--session", "night"]).prints("3\n");
    }
}

#[test]
fn what_a_killed_host_left_behind_is_removed_and_blocks_no_process() {
    let cli = cli();
    let scratch = cli.path("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let line = ["call", "sleeper", "sleep", "--trace"];
    let mut killed = cli.command(&line).env("TMPDIR", &scratch).spawn().unwrap();
    wait_until_running(&mut killed);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(
        std::fs::read_dir(&scratch).unwrap().count(),
        1,
        "the kill came too early or too late"
    );
    let line = ["call", "calculator", "add", "1"];
    let next = cli.command(&line).env("TMPDIR", &scratch).output().unwrap();
    CommandResult::of(&line, &next).exits(0).prints("1\n");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}

/// A repl puts its terminal into a mode that a shell cannot use.
#[test]
fn a_terminal_is_as_it_was_when_a_repl_is_ended_at_its_prompt() {
    let script = "
wait('calculator> ')
assert termios.tcgetattr(theirs) != before, 'it edits lines'
os.kill(child, signal.SIGTERM)
print(ended(), termios.tcgetattr(theirs) == before)
";
    at_terminal(&cli().command(&["repl", "calculator"]), script).exits(0).prints("130 True\n");
}

/// Signals a process whose program sleeps, and sees it and everything under it end soon.
fn interrupted(mut child: Child, signal: &str, line: &[&str]) -> CommandResult {
    wait_until_running(&mut child);
    let family: BTreeSet<ProcessEntry> = descendants(child.id()).into_iter().collect();
    let sent = Instant::now();
    let killed = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let ran = CommandResult::of(line, &child.wait_with_output().unwrap());
    assert!(sent.elapsed() < Duration::from_mins(1), "{signal} took {:?}", sent.elapsed());
    assert_gone(&family);
    ran
}

/// Waits until the trace shows the program that sleeps, then for a worker to be there.
fn wait_until_running(child: &mut Child) {
    let mut trace = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("time.sleep") {
        line.clear();
        assert_ne!(trace.read_line(&mut line).unwrap(), 0, "the program never ran");
    }
    std::thread::spawn(move || std::io::copy(&mut trace, &mut std::io::sink()));
    // A zygote and the worker it forked.
    let patience = Instant::now() + Duration::from_mins(2);
    while descendants(child.id()).iter().filter(|process| is_guest(process)).count() < 2 {
        assert!(Instant::now() < patience, "no worker came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is an interpreter that holds our side of the protocol.
fn is_guest(process: &ProcessEntry) -> bool {
    let line = std::fs::read(format!("/proc/{}/cmdline", process.pid));
    let mark = b"Guest side of the worker protocol";
    line.is_ok_and(|line| line.windows(mark.len()).any(|part| part == mark))
}
