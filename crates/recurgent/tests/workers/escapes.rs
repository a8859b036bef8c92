//! Programs that try to leave their sandbox, to look around, or to use up a resource. The table in docs/security.md
//! says what each tier stops. Its rows that have attempts are checked here.

mod attempts;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use lifecycle::dialect::Language;
use lifecycle::execution::{ReportEnding, WorkerFault};
use lifecycle::outcome::{EndedBy, Limit};
use recurgent::guest::{Answer, Ask, Done, TurnEvent};
use recurgent::worker::Tier;
use serde_json::{Value, json};

use self::attempts::End::{Crash, Either, Escapes, Nothing, Timeout};
use self::attempts::{ATTEMPTS, End, EscapeAttempt, ROWS};
use crate::drive::{Driver, Program};
use crate::value;

/// The rows of the table of attempts in docs/security.md.
fn documented_rows() -> Vec<Vec<String>> {
    // Not read from its file: an ordinary user may not see it.
    let text = include_str!("../../../../docs/security.md");
    let (_, table) = text.split_once("| attempt | `sealed`").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|it| it.trim().to_owned()).collect();
    table.lines().skip(2).map(cells).collect()
}

/// Whether docs/security.md says that a tier stops the attempt of the row that starts with these words.
fn is_documented_as_stopped(start: &str, tier: Tier) -> bool {
    let rows = documented_rows();
    let row = rows.iter().find(|row| row[0].starts_with(start)).unwrap();
    let columns = [Tier::Sealed, Tier::Namespaces, Tier::Landlock, Tier::Process];
    row[1 + columns.iter().position(|it| *it == tier).unwrap()].starts_with('—')
}

#[test]
fn the_table_in_security_md_agrees_with_the_attempts() {
    let rows = documented_rows();
    assert_eq!(rows.len(), ROWS.len());
    for (row, (start, names)) in rows.iter().zip(ROWS) {
        assert!(row[0].starts_with(start), "{row:?} does not start with {start:?}");
        for (column, cell) in row[1..].iter().enumerate().filter(|_| !names.is_empty()) {
            let named = |name: &&str| ATTEMPTS.iter().find(|it| it.name == *name).unwrap();
            let succeeds = |name: &&str| matches!(named(name).ends[column], Escapes | Either);
            let stopped = !names.iter().any(succeeds);
            assert_eq!(cell.starts_with('—'), stopped, "{start}, column {column}: {cell}");
        }
    }
    for attempt in ATTEMPTS {
        let rows = ROWS.iter().filter(|(_, names)| names.contains(&attempt.name)).count();
        assert_eq!(rows, 1, "{} is in no row, or in several", attempt.name);
    }
}

/// The expected end of an attempt. Ruby retries a fork that meets the process limit until its time is up.
fn expected(attempt: &EscapeAttempt, language: Language, column: usize) -> End {
    match (attempt.ends[column], language) {
        (End::Limit(Limit::Processes), Language::Ruby) if attempt.ruby.contains("fork") => Timeout,
        (end, _) => end,
    }
}

/// How an attempt ended. A program that ran and ended otherwise than listed escaped.
fn actual_end(ended: &Result<Done, WorkerFault>) -> End {
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
        Err(WorkerFault::Crashed { by: EndedBy::Program, .. }) => Crash,
        Ok(_) => Escapes,
        Err(fault) => panic!("the program did not run, or the host ended it: {fault:?}"),
    }
}

/// Files, sockets and a server of the host, which programs must not reach.
struct HostResources {
    directory: tempfile::TempDir,
    _listeners: [UnixListener; 2],
    _receiver: UnixDatagram,
    /// Open in every process started from here, unless it is closed there.
    _inherited: std::fs::File,
    _server: std::net::TcpListener,
    port: u16,
}

impl HostResources {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("secret"), "a key").unwrap();
        let receiver = UnixDatagram::bind(directory.path().join("datagrams")).unwrap();
        let abstract_address =
            SocketAddr::from_abstract_name(abstract_name(directory.path())).unwrap();
        let listeners = [
            UnixListener::bind(directory.path().join("socket")).unwrap(),
            UnixListener::bind_addr(&abstract_address).unwrap(),
        ];
        let server = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let inherited = std::fs::File::open(directory.path().join("secret")).unwrap();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        // Every user may open these, so that it is not file modes that stop a program.
        for name in ["", "secret", "socket", "datagrams"] {
            let permissions = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(directory.path().join(name), permissions).unwrap();
        }
        Self {
            directory,
            _listeners: listeners,
            _receiver: receiver,
            _inherited: inherited,
            _server: server,
            port,
        }
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
            json!(abstract_name(self.directory.path())),
            json!(self.path("datagrams")),
        ]
    }
}

fn abstract_name(directory: &Path) -> String {
    format!("recurgent{}", directory.display())
}

fn attempt_all(tier: Tier, column: usize) {
    let host = HostResources::new();
    for language in [Language::Python, Language::Ruby] {
        let driver = Driver::with(|options| {
            options.layers = tier.layers();
            options.limits.output_bytes = 16 << 20;
            options.limits.memory_bytes = 512 << 20;
            options.limits.file_bytes = 48 << 20;
        });
        assert_eq!(driver.containment().tier, tier, "{:?}", driver.containment().missing);
        let write_private_file = match language {
            Language::Python => {
                "import os\nopen('mine', 'w').write('private')\nresult = content(os.path.abspath('mine'))"
            }
            Language::Ruby => "File.write('mine', 'private')\ncontent(File.expand_path('mine'))",
        };
        let other = Program {
            language,
            code: write_private_file,
            agent: "other",
            proven: true,
            ..Program::default()
        };
        // It waits for an answer while others try to read its file.
        let mut waiting = driver.start(&other);
        let asked = waiting.listen();
        let Ok(TurnEvent::Ask(Ask::Content { reference })) = &asked else { panic!("{asked:?}") };
        let others_file = json!(reference);
        let mut wrong = Vec::new();
        for attempt in ATTEMPTS {
            let code = if language == Language::Python { attempt.python } else { attempt.ruby };
            let expected = expected(attempt, language, column);
            // Long enough for programs that end by themselves, even on a loaded machine; short for those that only the
            // timeout ends.
            let limit = match expected {
                Timeout => Duration::from_secs(1),
                Nothing | Escapes | End::Limit(_) | Crash | Either => Duration::from_mins(1),
            };
            let args = host.args(&others_file);
            let ended = driver.run(&Program { language, code, args, limit, ..Program::default() });
            let actual = match (actual_end(&ended), expected) {
                (Timeout, Escapes) => Escapes, // only the timeout stopped it, on a slow machine
                (actual, _) => actual,
            };
            if expected != Either && actual != expected {
                let name = attempt.name;
                wrong.push(format!("{name}: {actual:?} instead of {expected:?}: {ended:?}"));
            }
        }
        assert!(wrong.is_empty(), "in {language:?} at {tier}: {wrong:#?}");
        if tier > Tier::Process {
            assert!(!Path::new(&host.path("planted")).exists());
        }
        let answer = Answer::Value(json!("still here"));
        let ended = waiting.answer(&answer).and_then(|()| waiting.listen());
        let goes_on = matches!(ended, Ok(TurnEvent::Done(_)));
        // A process alone can end its zygote, and so the workers of others.
        assert!(goes_on || tier == Tier::Process, "the program of another agent: {ended:?}");
    }
}

#[test]
fn nothing_escapes_from_sealed() {
    attempt_all(Tier::Sealed, 0);
}

#[test]
fn nothing_escapes_from_namespaces() {
    attempt_all(Tier::Namespaces, 1);
}

#[test]
fn landlock_alone_stops_what_the_documents_say() {
    attempt_all(Tier::Landlock, 2);
}

#[test]
fn a_process_alone_stops_what_the_documents_say() {
    attempt_all(Tier::Process, 3);
}

/// A user without an account, a home or rights.
const ORDINARY_USER: u32 = 61_184;

/// Tests run as root in containers: there, all tests of this file run a second time without root's rights, at every tier.
#[test]
fn as_an_ordinary_user_nothing_escapes_either() {
    if !rustix::process::geteuid().is_root() {
        return; // the other tests show it
    }
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("workers");
    // Not by this process: what it forks meanwhile would have the copy open for writing, and it could not be executed.
    let this = std::env::current_exe().unwrap();
    let copied = std::process::Command::new("cp").arg(this).arg(&program).status().unwrap();
    assert!(copied.success());
    for path in [place.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Supplementary groups are dropped as well.
    let ended = std::process::Command::new(&program)
        .arg("escapes::")
        .uid(ORDINARY_USER)
        .gid(ORDINARY_USER)
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let tests = ["sealed", "namespaces", "landlock", "process"]
        .map(|tier| said.lines().any(|line| line.contains(tier) && line.ends_with("... ok")));
    assert!(ended.status.success() && tests == [true; 4], "{said}{ended:?}");
}

#[test]
fn a_worker_signals_another_of_its_own_agent_only_where_the_documents_say() {
    let waiting = [
        (Language::Python, "import os\nresult = content(str(os.getpid()))"),
        (Language::Ruby, "content(Process.pid.to_s)"),
    ];
    let python = "import os\ntry:\n    os.kill(args[0], 0)\n    result = args[0] != os.getpid()\n\
                  except OSError:\n    result = False";
    let ruby = "begin\n  Process.kill(0, args[0])\n  args[0] != Process.pid\nrescue SystemCallError\n  false\nend";
    for tier in Tier::ALL {
        let driver = Driver::with(|options| options.layers = tier.layers());
        for ((language, code), signal) in waiting.into_iter().zip([python, ruby]) {
            let mut turn = driver.start(&Program { language, code, ..Program::default() });
            let asked = turn.listen();
            let Ok(TurnEvent::Ask(Ask::Content { reference })) = &asked else {
                panic!("{asked:?}")
            };
            let args = vec![json!(reference.parse::<u32>().unwrap())];
            let ended = driver.run(&Program { language, code: signal, args, ..Program::default() });
            let stopped = is_documented_as_stopped("signal another worker of its own agent", tier);
            assert_eq!(value(&ended), Some(&json!(!stopped)), "{language:?} at {tier}: {ended:?}");
            let ended = turn.answer(&Answer::Value(Value::Null)).and_then(|()| turn.listen());
            assert!(ended.is_ok(), "{ended:?}");
        }
    }
}

#[test]
fn a_daemon_does_not_outlive_its_call() {
    for tier in Tier::ALL {
        if !is_documented_as_stopped("leave a daemon behind", tier) {
            assert_eq!(tier, Tier::Process);
            continue;
        }
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
            for proven in [false, true] {
                let ended = driver.run(&Program { language, code, proven, ..Program::default() });
                let daemon = value(&ended).and_then(Value::as_u64);
                driver.await_end(daemon.unwrap_or_else(|| panic!("{ended:?}")));
            }
        }
    }
}

#[test]
fn cpu_time_is_limited() {
    let endless = [(Language::Python, "while True: pass"), (Language::Ruby, "loop {}")];
    let ignoring_sigxcpu = [
        (
            Language::Python,
            "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        ),
        (Language::Ruby, "trap('XCPU') {}\nloop {}"),
    ];
    let sealed = endless.map(|program| (Tier::Sealed, program));
    let at_every_tier =
        Tier::ALL.into_iter().flat_map(|tier| ignoring_sigxcpu.map(|program| (tier, program)));
    for (tier, (language, code)) in sealed.into_iter().chain(at_every_tier) {
        let driver = Driver::with(|options| {
            options.layers = tier.layers();
            options.limits.cpu_seconds = 1;
        });
        let limit = Duration::from_mins(1);
        let ended = driver.run(&Program { language, code, limit, ..Program::default() });
        assert_eq!(actual_end(&ended), End::Limit(Limit::Cpu), "{code} at {tier}: {ended:?}");
    }
}

/// A program that uses up memory gradually has none left to raise or report an error. Ruby is not tested: how it fails
/// depends on where it happens, and garbage collection may take all its time.
#[test]
fn memory_that_is_used_up_gradually_is_reported_as_a_limit() {
    let driver = Driver::with(|options| {
        options.layers = Tier::Sealed.layers();
        options.limits.memory_bytes = 160 << 20;
    });
    for (language, code) in [
        (Language::Python, "kept = {}\nwhile True: kept[len(kept)] = {len(kept): str(len(kept))}"),
        (Language::Python, "kept = []\nwhile True: kept = [kept]"),
        // CPython itself reads through a null pointer now and then when an allocation failed.
        (Language::Python, "import ctypes\nkept = b'x' * (120 << 20)\nctypes.string_at(8)"),
    ] {
        let limit = Duration::from_mins(2);
        let ended = driver.run(&Program { language, code, limit, ..Program::default() });
        assert_eq!(actual_end(&ended), End::Limit(Limit::Memory), "{code}: {ended:?}");
    }
}

/// The kernel reports a mapped page that has no space only by a signal, which Ruby would turn into an abort.
#[test]
fn a_mapped_file_is_limited_by_scratch_space() {
    let python = "import mmap\nfile = open('f', 'wb+')\nfile.truncate(16 << 20)\nheld = mmap.mmap(file.fileno(), 16 << 20)\n\
                for at in range(0, 16 << 20, 4096): held[at] = 1\nresult = True";
    let ruby = "require 'fiddle'\nfile = File.open('f', 'wb+')\nfile.truncate(16 << 20)\nint = Fiddle::TYPE_INT\n\
                map = Fiddle::Function.new(Fiddle.dlopen(nil)['mmap'], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T, int, int, int, Fiddle::TYPE_LONG], Fiddle::TYPE_VOIDP)\n\
                held = map.call(nil, 16 << 20, 3, 1, file.fileno, 0)\n(0...(16 << 20)).step(4096) { |at| held[at, 1] = 'x' }\ntrue";
    for tier in [Tier::Sealed, Tier::Namespaces] {
        let driver = Driver::with(|options| {
            options.layers = tier.layers();
            options.limits.scratch_bytes = 8 << 20;
        });
        for (language, code) in [(Language::Python, python), (Language::Ruby, ruby)] {
            let ended = driver.run(&Program { language, code, ..Program::default() });
            assert_eq!(
                actual_end(&ended),
                End::Limit(Limit::Scratch),
                "{language:?} at {tier}: {ended:?}"
            );
        }
    }
}

#[test]
fn a_kept_worker_is_replaced_before_its_processor_time_is_used_up() {
    let driver = Driver::with(|options| options.limits.cpu_seconds = 2);
    for (language, code) in [
        (
            Language::Python,
            "import os, time\nwhile time.process_time() < args[0]: pass\nresult = os.getpid()",
        ),
        (
            Language::Ruby,
            "nil while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < args[0]\nProcess.pid",
        ),
    ] {
        let run = |seconds: f64| {
            let args = vec![json!(seconds)];
            let kept = Program { language, code, args, proven: true, ..Program::default() };
            value(&driver.run(&kept)).cloned().unwrap()
        };
        let first = run(0.0);
        assert_eq!(run(1.2), first, "{language:?}");
        assert_ne!(run(0.0), first, "{language:?}");
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
fn others_are_served_while_programs_use_up_resources() {
    for tier in Tier::ALL {
        check_others_are_served(tier);
    }
}

fn check_others_are_served(tier: Tier) {
    let driver = Driver::with(|options| options.layers = tier.layers());
    let greedy = ["processes without end", "threads without end", "the disk", "a processor"];
    std::thread::scope(|scope| {
        for name in greedy {
            let attempt = ATTEMPTS.iter().find(|attempt| attempt.name == name).unwrap();
            let driver = &driver;
            scope.spawn(move || {
                let limit = Duration::from_secs(5);
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
            assert_eq!(value(&ended), Some(&json!([1])), "{tier}, {n}: {ended:?}");
        }
    });
}
