//! Floors: the cost of the same work without Recurgent.
//!
//! The bare loop runs in the guest language behind a socket: framed JSON, cached code. The bare fork is a warm interpreter
//! of that language that forks a child, runs the code in it and reaps it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};

use lifecycle::dialect::Language;

const FRAME: &str = concat!(
    r#"{"op":"execute","ipc_version":1,"call_id":"call-1","role":"tester","method_name":"check","#,
    r#""code_digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","args":[1],"#,
    r#""kwargs":{"n":1},"context":{"version":0,"base":0,"set":{},"unset":[]},"limits":{"frame_bytes":33554432}}"#,
    "\n"
);

/// What a bare interpreter does with each frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BareMode {
    /// Runs cached code and answers.
    Loop,
    /// Forks a child that compiles, runs and answers, and reaps it.
    Fork,
    /// Forks a child that runs, answers with its process id, and waits.
    Hold,
}

impl BareMode {
    /// The number of lines in an answer.
    fn lines(self) -> usize {
        match self {
            Self::Loop | Self::Hold => 1,
            Self::Fork => 2,
        }
    }

    fn script(self, language: Language) -> String {
        let (open, body) = match language {
            Language::Python => (
                "import gc, json, os, socket\nf = socket.socket(fileno=0).makefile('rwb')\n\
                 def say(value): f.write(json.dumps({'op': 'done', 'status': 'ok', 'value': value}).encode() + b'\\n'); f.flush()\n\
                 def run(line, code): g = {'args': json.loads(line)['args']}; exec(code, g); return g['result']\n\
                 text = 'result = args[0] + 1'\n",
                match self {
                    Self::Loop => {
                        "code = compile(text, 'p', 'exec')\nfor line in f: say(run(line, code))"
                    }
                    Self::Fork => {
                        "gc.freeze()\nfor line in f:\n    pid = os.fork()\n    if pid == 0:\n        \
                         say(run(line, compile(text, 'p', 'exec'))); os._exit(0)\n    \
                         os.waitpid(pid, 0); f.write(b'reaped\\n'); f.flush()"
                    }
                    Self::Hold => {
                        "gc.freeze()\nwait, hold = os.pipe()\nfor line in f:\n    pid = os.fork()\n    if pid == 0:\n        \
                         os.close(hold); run(line, compile(text, 'p', 'exec')); say(os.getpid()); os.read(wait, 1); os._exit(0)"
                    }
                },
            ),
            Language::Ruby => (
                "require 'json'\nr = IO.for_fd(0, 'rb'); w = IO.for_fd(0, 'wb'); w.sync = true\n\
                 say = ->(value) { w.write(JSON.generate({op: 'done', status: 'ok', value: value}), \"\\n\") }\n\
                 body = ->(args) { args[0] + 1 }\n",
                match self {
                    Self::Loop => "while (l = r.gets); say.(body.(JSON.parse(l)['args'])); end",
                    Self::Fork => {
                        "while (l = r.gets)\n pid = fork { args = JSON.parse(l)['args']; say.(eval('args[0] + 1')); exit!(0) }\n \
                         Process.wait(pid); w.write(\"reaped\\n\"); end"
                    }
                    Self::Hold => {
                        "wait, hold = IO.pipe\nwhile (l = r.gets)\n fork { hold.close; args = JSON.parse(l)['args']; eval('args[0] + 1')\n \
                         say.(Process.pid); wait.read; exit!(0) }\nend"
                    }
                },
            ),
        };
        format!("{open}{body}")
    }
}

/// A bare interpreter behind a socket.
pub(crate) struct BareInterpreter {
    mode: BareMode,
    child: Child,
    stream: BufReader<UnixStream>,
    line: String,
}

impl BareInterpreter {
    pub(crate) fn start(interpreter: &Path, language: Language, mode: BareMode) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // Started with the options of workers, so that forks copy the same loaded modules.
        let options: &[&str] = match language {
            Language::Python => &["-I", "-S", "-B", "-X", "utf8", "-c"],
            Language::Ruby => &["--disable=did_you_mean,error_highlight", "-e"],
        };
        let child = Command::new(interpreter)
            .args(options)
            .arg(mode.script(language))
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        let mut bare = Self { mode, child, stream: BufReader::new(ours), line: String::new() };
        bare.exchange(); // returns when the interpreter has started
        bare
    }

    /// Sends one frame and reads the whole answer.
    pub(crate) fn exchange(&mut self) {
        self.stream.get_mut().write_all(FRAME.as_bytes()).unwrap();
        for _ in 0..self.mode.lines() {
            self.line.clear();
            let read = self.stream.read_line(&mut self.line).unwrap();
            assert!(read > 0, "the bare interpreter ended");
        }
    }

    /// The last line it answered.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }
}

impl Drop for BareInterpreter {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
