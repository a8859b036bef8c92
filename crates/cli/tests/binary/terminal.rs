//! A real terminal for a command: a pseudo-terminal that Python opens, and what a person sees and types there.

use std::process::Command;

use crate::fixture::{CliFixture, CommandResult};

/// Opens a terminal; `start` starts a command that has it as its own.
const OPEN: &str = r"
import fcntl, os, pty, re, select, signal, struct, sys, termios
ours, theirs = pty.openpty()
def start(command):
    child = os.fork()
    if child == 0:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(theirs, fd)
        os.execvp(command[0], command)
    return child
";

/// Starts the command and offers `wait` (until it shows a text, which is returned with all before it), `type` and
/// `ended` (its exit code). After ten minutes it gives up and says what it has seen.
const AT_A_TERMINAL: &str = r"
before = termios.tcgetattr(theirs)
child = start(sys.argv[1:])
seen = b''
def give_up(*_):
    os.kill(child, signal.SIGKILL)
    sys.exit('waited ten minutes; seen since the last text: ' + repr(seen))
signal.signal(signal.SIGALRM, give_up)
signal.alarm(600)
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

/// Runs the command in so many columns, types Ctrl-C once a text is shown, and copies what it printed.
const IN_COLUMNS: &str = r"
columns, when = int(sys.argv[1]), sys.argv[2].encode()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
child = start(sys.argv[3:])
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

/// Python with a terminal and this script, given `arguments` and the command.
fn python(script: &str, arguments: &[&str], command: &Command) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", &format!("{OPEN}{script}")]).args(arguments);
    python.arg(command.get_program()).args(command.get_args()).env_clear().env("TERM", "xterm");
    python.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = command.get_current_dir() {
        python.current_dir(directory);
    }
    python
}

/// What a Python script that uses the terminal prints.
pub(crate) fn at_terminal(command: &Command, script: &str) -> CommandResult {
    let mut python = python(&format!("{AT_A_TERMINAL}{script}"), &[], command);
    CommandResult::of(&["terminal"], &python.output().unwrap())
}

/// Runs a command in a terminal of so many columns, and gives what it printed there and its exit code. Ctrl-C is typed once
/// the output contains `interrupt_when`.
pub(crate) fn in_terminal(
    cli: &CliFixture,
    columns: u16,
    line: &[&str],
    interrupt_when: &str,
) -> (String, i32) {
    let mut command = cli.command(line);
    command.env("NO_COLOR", "1").current_dir(cli.path("."));
    let mut python = python(IN_COLUMNS, &[&columns.to_string(), interrupt_when], &command);
    let output = python.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (text.replace('\r', ""), output.status.code().unwrap())
}
