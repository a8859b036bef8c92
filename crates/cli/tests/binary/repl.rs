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
        shown.starts_with("5\nthe model wrote the program that answered (1 model call,"),
        "{ran:?}"
    );
    assert!(shown.contains("  def double(x):\n      return x + 1\n"), "{ran:?}");
    assert!(shown.contains("\n8\n2 calls, 0 without a model\n2 model calls: "), "{ran:?}");
    ran.stderr_contains("double has 1 example")
        .stderr_contains("the program of double is rejected");
    let again = cli.run_with_stdin(&["repl", "calculator"], "double 5\n.why\n.cost\nx = 1\n.why\n");
    let shown = again.exits(0).stdout.as_str();
    assert!(shown.starts_with("10\na stored program answered (0 model calls"), "{again:?}");
    assert!(shown.contains("1 call, 1 without a model"), "{again:?}");
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

/// A pasted text is several lines, whether the terminal marks it as pasted or types fast.
#[test]
fn pasted_lines_run_one_after_the_other() {
    let script = r#"
wait('echo> ')
type(PASTE)
print(bool(re.search(r'\[\s+1,\s+2\s+\]', wait('"kwargs"'))))
wait('"kwargs"')
wait('echo> ')
type('.memory\r')
print(bool(re.search(r'"a": 1,\s+"b": 2', wait('}'))))
wait('echo> ')
type('exit\r')
print(ended())
"#;
    for paste in [
        r"'\x1b[200~a = 1\nback [1,\n2]\nb = 2\nback 3\x1b[201~\r'",
        r"'a = 1\rback [1,\r2]\rb = 2\rback 3\r'",
    ] {
        let cli = cli();
        let script = script.replace("PASTE", paste);
        let ran = at_terminal(&cli.command(&["repl", "echo"]), &script);
        ran.exits(0).prints("True\nTrue\n0\n");
    }
}

/// Writing memory calls no program: `.teach` and `.reject` have nothing to speak of.
#[test]
fn what_memory_answers_is_neither_taught_nor_rejected() {
    let cli = cli();
    for line in [".teach 8", ".reject"] {
        let ran = cli.run_with_stdin(&["repl", "echo"], &format!("back 1\nx = 7\n{line}\n"));
        ran.exits(1).stderr_contains("the last line wrote or read memory");
    }
    let taught = cli.run(&["tools", "list", "--json"]).exits(0).stdout.clone();
    assert!(!taught.contains("x="), "{taught}");
}

#[test]
fn a_line_may_name_a_file() {
    let cli = cli();
    cli.write("rows.json", "[1, 2]");
    let lines = "back(@rows.json, \"@rows.json\")\nback @@ada by=@rows.json\nback @none\n";
    let ran = cli.run_with_stdin(&["repl", "echo"], lines);
    ran.exits(1).stderr_contains("check the path, or write @@none for the text @none");
    let shown: String = ran.stdout.split_whitespace().collect();
    let expected =
        r#"{"args":[[1,2],"@rows.json"],"kwargs":{}}{"args":["@ada"],"kwargs":{"by":[1,2]}}"#;
    assert_eq!(shown, expected, "{ran:?}");
}

/// The help is read where the repl is: on a terminal, of any width.
#[test]
fn help_fits_the_terminal() {
    for columns in [40, 60, 80, 200] {
        let script = format!(
            r"
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 24, {columns}, 0, 0))
wait('echo> ')
type('help\r')
wait('\n')
shown = wait('Ctrl-D)').replace('\r', '').split('\n')
print([line for line in shown if len(line) > {columns} or not line.startswith('  ')])
type('exit\r')
print(ended())
"
        );
        let ran = at_terminal(&cli().command(&["repl", "echo"]), &script);
        ran.exits(0).prints("[]\n0\n");
    }
}
