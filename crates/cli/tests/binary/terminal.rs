//! A real terminal for a command: a pseudo-terminal that Python opens, and what a person sees and types there.

use std::process::Command;

use crate::fixture::{CliFixture, Ran};

/// Starts the command and offers `wait` (until it shows a text, which is returned with all before it), `type` and
/// `ended` (its exit code). There is no time limit: a test that waits for ever is a failure of the suite.
const AT_A_TERMINAL: &str = r"
import fcntl, os, pty, re, select, signal, sys, termios
ours, theirs = pty.openpty()
before = termios.tcgetattr(theirs)
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(theirs, fd)
    os.execvp(sys.argv[1], sys.argv[1:])
seen = b''
def wait(text):
    global seen
    while text.encode() not in seen:
        seen += os.read(ours, 4096)
    shown, seen = seen.split(text.encode(), 1)
    return re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', shown.decode(errors='replace')) + text
def type(text):
    os.write(ours, text.encode())
def ended():
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if select.select([ours], [], [], 0.05)[0]:
            os.read(ours, 4096)
";

/// What a Python script that uses the terminal prints.
pub(crate) fn at_terminal(command: &Command, script: &str) -> Ran {
    let mut python = Command::new("python3");
    python.args(["-c", &format!("{AT_A_TERMINAL}{script}")]);
    python.arg(command.get_program()).args(command.get_args()).env_clear().env("TERM", "xterm");
    python.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = command.get_current_dir() {
        python.current_dir(directory);
    }
    Ran::of(&["terminal"], &python.output().unwrap())
}

/// Runs a command in a terminal of so many columns, and gives what it printed there and its exit code. Ctrl-C is typed once
/// the output contains `interrupt_when`.
pub(crate) fn in_terminal(
    cli: &CliFixture,
    columns: u16,
    line: &[&str],
    interrupt_when: &str,
) -> (String, i32) {
    const TERMINAL: &str = r"
import fcntl, os, pty, signal, struct, sys, termios
columns, when = int(sys.argv[1]), sys.argv[2].encode()
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(theirs, fd)
    os.execvp(sys.argv[3], sys.argv[3:])
os.close(theirs)
seen = b''
while True:
    try:
        more = os.read(ours, 65536)
    except OSError:
        break
    if not more:
        break
    seen += more
    if when and when in seen:
        os.kill(child, signal.SIGINT)
        when = b''
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.stdout.buffer.write(seen)
sys.stdout.flush()
sys.exit(status)
";
    let command = cli.command(line);
    let mut python = Command::new("python3");
    python.args(["-c", TERMINAL, &columns.to_string(), interrupt_when]);
    python.arg(command.get_program()).args(command.get_args());
    python.env_clear().env("TERM", "xterm").env("NO_COLOR", "1").current_dir(cli.path("."));
    python.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = python.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (text.replace('\r', ""), output.status.code().unwrap())
}
