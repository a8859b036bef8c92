//! The repl as a person uses it: words that leave, what the last call did, and editing on a terminal.

use crate::calls::cli;
use crate::fixture::CliFixture;
use crate::terminal::at_terminal;

#[test]
fn words_that_leave_or_help_are_not_sent_to_a_model() {
    let cli = cli();
    for word in ["exit", "quit", ".quit"] {
        cli.run_with_stdin(&["repl", "echo"], &format!("{word}\nnever 1\n")).exits(0).prints("");
    }
    let help = cli.run_with_stdin(&["repl", "echo"], "help\n");
    assert!(help.exits(0).stdout.contains(".why"), "{help:?}");
}

#[test]
fn named_arguments_are_kept_in_the_history() {
    let lines = ".history\nback 1 by=2 to=\"x y\"\n.history\n";
    let ran = cli().run_with_stdin(&["repl", "echo"], lines);
    assert!(ran.stdout.starts_with("no calls yet\n"), "{ran:?}");
    assert!(ran.exits(0).stdout.contains("back(1, by: 2, to: \"x y\")"), "{ran:?}");
}

#[test]
fn the_last_call_is_explained_taught_rejected_and_priced() {
    let script = r#"{"calculator.double": [
      {"code": "def double(x):\n    return x + 1"}, {"code": "def double(x):\n    return x * 2"}
    ], "calculator.triple": [
      {"code": "def triple(x):\n    return missing"}, {"code": "def triple(x):\n    return x * 3"}
    ]}"#;
    let cli = CliFixture::new(script);
    let lines = "double 4\n.why\n.teach 8\n.reject it adds one\ndouble 4\n.cost\n";
    let ran = cli.run_with_stdin(&["repl", "calculator"], lines);
    let shown = ran.exits(0).stdout.as_str();
    assert!(
        shown.starts_with("5\nthe model wrote the program that answered (1 model calls"),
        "{ran:?}"
    );
    assert!(shown.contains("  def double(x):\n      return x + 1\n"), "{ran:?}");
    assert!(shown.contains("\n8\n2 calls, 0 without a model\n2 model calls: "), "{ran:?}");
    ran.stderr_contains("double has 1 example(s)")
        .stderr_contains("the program of double is rejected");
    let again = cli.run_with_stdin(&["repl", "calculator"], "double 5\n.why\n.cost\nx = 1\n.why\n");
    let shown = again.exits(0).stdout.as_str();
    assert!(shown.starts_with("10\na stored program answered (0 model calls"), "{again:?}");
    assert!(shown.contains("1 calls, 1 without a model"), "{again:?}");
    assert!(shown.contains("memory answered"), "{again:?}");
    // A call that needs two model calls does not hide one that needs none.
    let repaired = cli.run_with_stdin(&["repl", "calculator"], "triple 2\ntriple 3\n.cost\n");
    let shown = repaired.exits(0).stdout.as_str();
    assert!(shown.contains("6\n9\n2 calls, 1 without a model\n2 model calls: "), "{repaired:?}");
    cli.run_with_stdin(&["repl", "calculator"], ".why\n")
        .exits(1)
        .stderr_contains("nothing was called yet");
}

/// Tab completes what was called, open brackets go on, Ctrl-R finds an earlier line. The person waits for the prompt: before it, the
/// terminal edits lines itself and takes Ctrl-R for its own.
#[test]
fn a_person_edits_lines() {
    let script = r#"
def answered(pattern):
    print(bool(re.search(pattern, wait('"kwargs"'))))
    wait('echo> ')
wait('echo> ')
type('back [1,\r2]\r')
answered(r'\[\s+1,\s+2\s+\]\s+\]')
type('ba\t 7\r')
answered(r'\[\s+7\s+\]')
type('\x12[1\r')
answered(r'\[\s+1,\s+2\s+\]\s+\]')
type('exit\r')
print(ended())
"#;
    let cli = cli();
    at_terminal(&cli.command(&["repl", "echo"]), script).exits(0).prints("True\nTrue\nTrue\n0\n");
}
