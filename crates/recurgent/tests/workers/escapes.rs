//! Programs that try to get out, to look around, or to use everything up. None may, at the two
//! strongest tiers; docs/security.md says what the weakest does not stop, and it is held to that here.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use lifecycle::dialect::Language;
use lifecycle::execution::{ReportEnding, WorkerFault};
use lifecycle::outcome::Limit;
use recurgent::guest::Done;
use recurgent::worker::Tier;
use serde_json::{Value, json};

use crate::drive::{Driver, Program};
use crate::value;

/// What a program meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It finds nothing: a null, an empty list, or an exception of its own.
    Nothing,
    /// It finds something: this tier does not stop it.
    Escapes,
    /// A limit by name.
    Limit(Limit),
    /// Its time is up.
    Timeout,
    /// Depends on who runs this, so nothing is promised.
    Either,
}
use End::{Either, Escapes, Nothing, Timeout};

/// One attempt, in both guests. `args` are: a secret file, a directory of the host's, the host's process
/// number, a port the host listens on, the path of a socket the host listens on, another agent's file.
struct Attempt {
    name: &'static str,
    python: &'static str,
    ruby: &'static str,
    /// At `namespaces`, `landlock`, `process`.
    ends: [End; 3],
}

const fn limit(limit: Limit) -> End {
    End::Limit(limit)
}

#[rustfmt::skip]
const ATTEMPTS: &[Attempt] = &[
    // --- looking around
    Attempt { name: "keys in the environment", ends: [Nothing; 3],
        python: "import os\nresult = [k for k in os.environ if k not in ('PATH', 'LANG', 'HOME', 'TMPDIR', 'LC_CTYPE')]",
        ruby: "ENV.keys - %w[PATH LANG HOME TMPDIR LC_CTYPE]" },
    Attempt { name: "the host's environment", ends: [Nothing, Nothing, Escapes],
        python: "result = open(f'/proc/{args[2]}/environ').read()",
        ruby: "File.read(\"/proc/#{args[2]}/environ\")" },
    Attempt { name: "a secret file", ends: [Nothing, Nothing, Escapes],
        python: "result = open(args[0]).read()",
        ruby: "File.read(args[0])" },
    Attempt { name: "a secret file, through /proc", ends: [Nothing, Nothing, Escapes],
        python: "result = open('/proc/self/root' + args[0]).read()",
        ruby: "File.read('/proc/self/root' + args[0])" },
    Attempt { name: "a secret file, through a link", ends: [Nothing, Nothing, Escapes],
        python: "import os\nos.symlink(args[0], 'link')\nresult = open('link').read()",
        ruby: "File.symlink(args[0], 'link')\nFile.read('link')" },
    Attempt { name: "a secret file, through the directories above", ends: [Nothing, Nothing, Escapes],
        python: "result = open('../' * 30 + args[0]).read()",
        ruby: "File.read('../' * 30 + args[0])" },
    Attempt { name: "a secret file, through a hard link", ends: [Nothing, Nothing, Either],
        python: "import os\nos.link(args[0], 'link')\nresult = open('link').read()",
        ruby: "File.link(args[0], 'link')\nFile.read('link')" },
    Attempt { name: "password hashes", ends: [Nothing, Nothing, Either],
        python: "result = open('/etc/shadow').read()",
        ruby: "File.read('/etc/shadow')" },
    Attempt { name: "other processes", ends: [Nothing, Nothing, Escapes],
        python: "import os\nresult = [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]",
        ruby: "Dir.children('/proc').grep(/\\A\\d+\\z/).map(&:to_i) - [Process.pid]" },
    Attempt { name: "the zygote's memory", ends: [Nothing, Nothing, Escapes],
        python: "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')\nresult = True",
        ruby: "File.open(\"/proc/#{Process.ppid}/mem\")\ntrue" },
    Attempt { name: "another agent's file", ends: [Nothing, Nothing, Escapes],
        python: "result = open(args[5]).read()",
        ruby: "File.read(args[5])" },
    Attempt { name: "descriptors of files", ends: [Nothing; 3],
        python: "import os, stat\nfound = []\nfor fd in range(256):\n    try: mode = os.fstat(fd).st_mode\n    except OSError: continue\n    if stat.S_ISREG(mode) or stat.S_ISDIR(mode): found.append(fd)\nresult = found",
        ruby: "(0..255).select { |fd| s = IO.for_fd(fd, autoclose: false).stat rescue next\n s.file? || s.directory? }" },
    // --- writing elsewhere
    Attempt { name: "a file outside", ends: [Nothing, Nothing, Escapes],
        python: "open(args[1] + '/planted', 'w').write('x')\nresult = True",
        ruby: "File.write(args[1] + '/planted', 'x')\ntrue" },
    Attempt { name: "a file outside, through a link", ends: [Nothing, Nothing, Escapes],
        python: "import os\nos.symlink(args[1], 'out')\nopen('out/planted', 'w').write('x')\nresult = True",
        ruby: "File.symlink(args[1], 'out')\nFile.write('out/planted', 'x')\ntrue" },
    Attempt { name: "the interpreter's own library", ends: [Nothing, Nothing, Either],
        python: "import os\nopen(os.path.join(os.path.dirname(os.__file__), 'recurgent_planted'), 'w').write('x')\nos.remove(os.path.join(os.path.dirname(os.__file__), 'recurgent_planted'))\nresult = True",
        ruby: "file = File.join(RbConfig::CONFIG['rubylibdir'], 'recurgent_planted')\nFile.write(file, 'x')\nFile.delete(file)\ntrue" },
    Attempt { name: "a program of its own making, executed", ends: [Nothing, Nothing, Either],
        python: "import os, subprocess\nopen('p', 'w').write('#!/bin/sh\\necho out\\n')\nos.chmod('p', 0o755)\nresult = subprocess.run(['./p'], capture_output=True).stdout.decode()",
        ruby: "File.write('p', \"#!/bin/sh\\necho out\\n\")\nFile.chmod(0o755, 'p')\n`./p`" },
    // --- talking
    Attempt { name: "a server on loopback", ends: [Nothing, Nothing, Escapes],
        python: "import socket\nsocket.create_connection(('127.0.0.1', args[3]), 2)\nresult = True",
        ruby: "require 'socket'\nTCPSocket.new('127.0.0.1', args[3])\ntrue" },
    Attempt { name: "a datagram to loopback", ends: [Nothing, Nothing, Escapes],
        python: "import socket\nresult = socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', args[3]))",
        ruby: "require 'socket'\nUDPSocket.new.send('x', 0, '127.0.0.1', args[3])" },
    Attempt { name: "a public address", ends: [Nothing, Nothing, Either],
        python: "import errno, socket\ns = socket.socket()\ns.setblocking(False)\nresult = s.connect_ex(('192.0.2.1', 80)) == errno.EINPROGRESS",
        ruby: "require 'socket'\nbegin\n  Socket.new(:INET, :STREAM).connect_nonblock(Socket.sockaddr_in(80, '192.0.2.1'))\nrescue IO::WaitWritable\n  true\nend" },
    Attempt { name: "a socket of the host's", ends: [Nothing, Nothing, Escapes],
        python: "import socket\nsocket.socket(socket.AF_UNIX).connect(args[4])\nresult = True",
        ruby: "require 'socket'\nUNIXSocket.new(args[4])\ntrue" },
    Attempt { name: "the hypervisor", ends: [Nothing, Nothing, Either],
        python: "import socket\nsocket.socket(40, socket.SOCK_STREAM)\nresult = True",
        ruby: "require 'socket'\nSocket.new(40, :STREAM, 0)\ntrue" },
    // --- other processes
    Attempt { name: "a signal to the host", ends: [Nothing, Nothing, Escapes],
        python: "import os\nos.kill(args[2], 0)\nresult = True",
        ruby: "Process.kill(0, args[2])\ntrue" },
    Attempt { name: "a signal to the zygote", ends: [Nothing, Nothing, Escapes],
        python: "import os\nos.kill(os.getppid(), 0)\nresult = True",
        ruby: "Process.kill(0, Process.ppid)\ntrue" },
    Attempt { name: "a signal to anybody", ends: [Nothing, Nothing, Either],
        python: "import os\ndef hit(pid):\n    try: os.kill(pid, 0); return True\n    except OSError: return False\nresult = [pid for pid in range(1, 400) if pid != os.getpid() and hit(pid)]",
        ruby: "(1..400).select { |pid| pid != Process.pid && (Process.kill(0, pid) rescue nil) }" },
    Attempt { name: "tracing the zygote", ends: [Nothing, Nothing, Either],
        python: "import ctypes, os\nresult = ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0",
        ruby: "syscall(101, 16, Process.ppid, 0, 0) == 0" },
    // --- the kernel
    Attempt { name: "becoming root", ends: [Nothing, Either, Either],
        python: "import os\nos.setuid(0)\nresult = os.getuid() == 0",
        ruby: "Process::Sys.setuid(0)\nProcess.uid.zero?" },
    Attempt { name: "capabilities", ends: [Nothing, Nothing, Either],
        python: "import ctypes\nhead = (ctypes.c_uint32 * 2)(0x20080522, 0)\ndata = (ctypes.c_uint32 * 6)()\nctypes.CDLL(None).capget(head, data)\nresult = [n for n in data if n]",
        ruby: "data = \"\\0\" * 24\nhead = [0x20080522, 0].pack('LL')\nsyscall(125, [head].pack('P').unpack1('J'), [data].pack('P').unpack1('J'))\ndata.unpack('L6') - [0]" },
    Attempt { name: "namespaces of its own", ends: [Nothing, Nothing, Either],
        python: "import ctypes\nresult = ctypes.CDLL(None).unshare(0x10000000) == 0",
        ruby: "syscall(272, 0x10000000) == 0" },
    Attempt { name: "a mount", ends: [Nothing, Nothing, Nothing],
        python: "import ctypes\nctypes.CDLL(None).unshare(0x10020000)\nresult = ctypes.CDLL(None).mount(b'none', b'/recurgent-none', b'tmpfs', 0, None) == 0",
        ruby: "syscall(165, 0, 0, 0, 0, 0) == 0" },
    Attempt { name: "rare system calls", ends: [Nothing, Nothing, Either],
        python: "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\nfound = []\nfor number in (101, 250, 298, 310, 321, 323, 425, 434 + 4, 161, 155, 308):\n    ctypes.set_errno(0)\n    if libc.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS): found.append(number)\nresult = found",
        ruby: "[101, 250, 298, 310, 321, 323, 425, 438, 161, 155, 308].reject do |number|\n  syscall(number, 0, 0, 0, 0, 0)\n  false\nrescue Errno::EPERM, Errno::ENOSYS\n  true\nrescue SystemCallError\n  false\nend" },
    Attempt { name: "system calls under other numbers", ends: [Nothing, Nothing, Either],
        python: "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\nresult = libc.syscall(0x40000000 + 101, 16, 1, 0, 0) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS)",
        ruby: "begin\n  syscall(0x40000000 + 101, 16, 1, 0, 0)\n  true\nrescue Errno::EPERM, Errno::ENOSYS\n  nil\nend" },
    // --- using everything up
    Attempt { name: "processes without end", ends: [limit(Limit::Processes), Either, Either],
        python: "import os, time\nfor _ in range(200):\n    if os.fork() == 0:\n        time.sleep(30)\n        os._exit(0)\nresult = True",
        ruby: "200.times { fork { sleep 30 } }\ntrue" },
    Attempt { name: "threads without end", ends: [limit(Limit::Processes), Either, Either],
        python: "import threading, time\nfor _ in range(200): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\nresult = True",
        ruby: "200.times { Thread.new { sleep 30 } }\ntrue" },
    Attempt { name: "memory without end", ends: [limit(Limit::Memory); 3],
        python: "kept = []\nwhile True: kept.append(bytearray(256 << 20))",
        ruby: "kept = []\nloop { kept << 'x' * (256 << 20) }" },
    Attempt { name: "the disk", ends: [limit(Limit::Scratch), Escapes, Escapes],
        python: "for n in range(20):\n    with open(f'f{n}', 'wb') as file: file.write(b'x' * (4 << 20))\nresult = True",
        ruby: "20.times { |n| File.binwrite(\"f#{n}\", 'x' * (4 << 20)) }\ntrue" },
    Attempt { name: "one huge file", ends: [limit(Limit::Scratch); 3],
        python: "with open('f', 'wb') as file:\n    while True: file.write(b'x' * (4 << 20)); file.flush()",
        ruby: "File.open('f', 'wb') { |file| loop { file.write('x' * (4 << 20)); file.flush } }" },
    Attempt { name: "files without end", ends: [limit(Limit::Scratch), Escapes, Escapes],
        python: "for n in range(5000): open(f'f{n}', 'w').close()\nresult = True",
        ruby: "5000.times { |n| File.write(\"f#{n}\", '') }\ntrue" },
    Attempt { name: "descriptors without end", ends: [limit(Limit::Files); 3],
        python: "kept = []\nwhile True: kept.append(open('/dev/null'))",
        ruby: "kept = []\nloop { kept << File.open('/dev/null') }" },
    Attempt { name: "a processor", ends: [Timeout; 3],
        python: "while True: pass",
        ruby: "loop {}" },
    Attempt { name: "output without end", ends: [limit(Limit::Output); 3],
        python: "import os\nwhile True: os.write(1, b'x' * (1 << 16))",
        ruby: "loop { $stdout.syswrite('x' * (1 << 16)) }" },
];

/// Ruby waits for room to fork, and tries again, for as long as it is let.
fn expected(attempt: &Attempt, language: Language, column: usize) -> End {
    match (attempt.ends[column], language) {
        (End::Limit(Limit::Processes), Language::Ruby) if attempt.ruby.contains("fork") => Timeout,
        (end, _) => end,
    }
}

fn judged(ended: &Result<Done, WorkerFault>) -> End {
    let empty = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false))
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_str().is_some_and(str::is_empty)
    };
    match ended {
        Ok(Done { ending: ReportEnding::Value(found), .. }) if empty(found) => Nothing,
        Ok(Done { ending: ReportEnding::Raised { .. }, .. }) => Nothing,
        Ok(Done { ending: ReportEnding::Limited(limit, _), .. })
        | Err(WorkerFault::Limited(limit, _)) => End::Limit(*limit),
        Err(WorkerFault::TimedOut(_)) => Timeout,
        _ => Escapes,
    }
}

/// What the host has that is no program's business.
struct Bait {
    directory: tempfile::TempDir,
    _listener: UnixListener,
    _server: std::net::TcpListener,
    port: u16,
}

impl Bait {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("secret"), "a key").unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let server = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        Self { directory, _listener: listener, _server: server, port }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_string_lossy().into_owned()
    }

    fn args(&self, others_file: &Value) -> Vec<Value> {
        vec![
            json!(self.path("secret")),
            json!(self.directory.path()),
            json!(std::process::id()),
            json!(self.port),
            json!(self.path("socket")),
            others_file.clone(),
        ]
    }
}

fn attempt_all(tier: Tier, column: usize) {
    let bait = Bait::new();
    for language in [Language::Python, Language::Ruby] {
        let driver = Driver::with(|options| {
            options.layers = tier.layers();
            options.limits.output_bytes = 16 << 20;
            options.limits.memory_bytes = 1 << 30;
            options.limits.file_bytes = 48 << 20;
        });
        assert_eq!(driver.containment().tier, tier, "{:?}", driver.containment().missing);
        let secretive = match language {
            Language::Python => {
                "import os\nopen('mine', 'w').write('private')\nresult = os.path.abspath('mine')"
            }
            Language::Ruby => "File.write('mine', 'private')\nFile.expand_path('mine')",
        };
        let other = Program {
            language,
            code: secretive,
            agent: "other",
            proven: true,
            ..Program::default()
        };
        let others_file = value(&driver.run(&other)).cloned().unwrap();
        for attempt in ATTEMPTS {
            let code = if language == Language::Python { attempt.python } else { attempt.ruby };
            // In time for what ends by itself, on a loaded machine; not to be waited for otherwise.
            let expected = expected(attempt, language, column);
            let limit = match expected {
                Timeout => Duration::from_secs(1),
                Nothing | Escapes | End::Limit(_) | Either => Duration::from_secs(20),
            };
            let args = bait.args(&others_file);
            let ended = driver.run(&Program { language, code, args, limit, ..Program::default() });
            let met = judged(&ended);
            assert!(
                expected == Either || met == expected,
                "{} in {language:?} at {tier}: {met:?} instead of {expected:?}: {ended:?}",
                attempt.name,
            );
        }
        if tier > Tier::Process {
            assert!(!Path::new(&bait.path("planted")).exists());
        }
        assert!(value(&driver.run(&other)).is_some(), "others go on");
    }
}

#[test]
fn nothing_escapes_from_namespaces() {
    attempt_all(Tier::Namespaces, 0);
}

#[test]
fn nothing_escapes_from_landlock() {
    attempt_all(Tier::Landlock, 1);
}

#[test]
fn a_process_alone_stops_what_the_documents_say() {
    attempt_all(Tier::Process, 2);
}

#[test]
fn a_daemon_does_not_outlive_its_call() {
    for tier in [Tier::Namespaces, Tier::Landlock] {
        for (language, code) in [
            (
                Language::Python,
                "import os, time\nr, w = os.pipe()\nif os.fork() == 0:\n    for leave in (os.setsid, os.setpgrp):\n        try: leave()\n        except OSError: pass\n    pid = os.fork()\n    if pid == 0: time.sleep(600)\n    os.write(w, str(pid).encode())\n    os._exit(0)\nresult = int(os.read(r, 20))",
            ),
            (
                Language::Ruby,
                "r, w = IO.pipe\nfork do\n  (Process.setsid rescue nil)\n  (Process.setpgrp rescue nil)\n  w.syswrite(fork { sleep 600 }.to_s)\n  exit!\nend\nr.readpartial(20).to_i",
            ),
        ] {
            let driver = Driver::with(|options| options.layers = tier.layers());
            let ended = driver.run(&Program { language, code, ..Program::default() });
            let daemon = value(&ended).and_then(Value::as_u64);
            driver.await_end(daemon.unwrap_or_else(|| panic!("{ended:?}")));
        }
    }
}

#[test]
fn an_attempt_leaves_no_file_behind() {
    for tier in Tier::ALL {
        let driver = Driver::with(|options| options.layers = tier.layers());
        for (language, code) in [
            (
                Language::Python,
                "import os\nseen = os.listdir('.')\nopen('left', 'w').close()\nresult = seen",
            ),
            (Language::Ruby, "seen = Dir.children('.')\nFile.write('left', '')\nseen"),
        ] {
            for _ in 0..3 {
                let ended = driver.run(&Program { language, code, ..Program::default() });
                assert_eq!(value(&ended), Some(&json!([])), "{tier}: {ended:?}");
            }
        }
    }
}

#[test]
fn others_are_served_while_one_uses_everything_up() {
    let driver = Driver::new();
    let greedy = ["processes without end", "threads without end", "the disk", "a processor"];
    std::thread::scope(|scope| {
        for name in greedy {
            let attempt = ATTEMPTS.iter().find(|attempt| attempt.name == name).unwrap();
            let driver = &driver;
            scope.spawn(move || {
                let limit = Duration::from_secs(2);
                driver.run(&Program {
                    code: attempt.python,
                    agent: name,
                    limit,
                    ..Program::default()
                })
            });
        }
        for n in 0..20 {
            let code = "import threading\nseen = []\nt = threading.Thread(target=seen.append, args=(1,))\nt.start()\nt.join()\nopen('f', 'w').write('x')\nresult = seen";
            let ended = driver.run(&Program { code, agent: "modest", ..Program::default() });
            assert_eq!(value(&ended), Some(&json!([1])), "{n}: {ended:?}");
        }
    });
}
