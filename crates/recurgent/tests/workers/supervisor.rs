//! Permits, zygotes, interpreters, and shutdown.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use lifecycle::dialect::Language;
use lifecycle::execution::WorkerFault;
use lifecycle::outcome::EndedBy;
use recurgent::guest::{Answer, TurnEvent};
use recurgent::worker::{WorkerOptions, Workers};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::drive::{BOTH, Driver, Program, descendants, is_alive};
use crate::groups::{groups_named, zygote_directories};
use crate::{PID, await_exit, value};

/// Programs that run for some milliseconds and return a number and, in microseconds, when they began and ended.
const TIMED: [(Language, &str); 2] = [
    (
        Language::Python,
        "import time\nbegan = time.monotonic_ns() // 1000\ntime.sleep(0.005)\n\
         result = [args[0] * 100 + args[1], began, time.monotonic_ns() // 1000]",
    ),
    (
        Language::Ruby,
        "now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) }\nbegan = now.call\nsleep 0.005\n\
         [args[0] * 100 + args[1], began, now.call]",
    ),
];

/// The most of these spans of time that contain one moment.
fn most_at_once(spans: &[(i64, i64)]) -> usize {
    let at = |moment: i64| {
        spans.iter().filter(|(began, ended)| (*began..*ended).contains(&moment)).count()
    };
    spans.iter().map(|(began, _)| at(*began)).max().unwrap_or_default()
}

#[test]
fn many_callers_share_few_permits() {
    let driver = Driver::with(|options| options.max_running = 4);
    let (failures, spans) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for caller in 0..16 {
            let (driver, failures, spans) = (&driver, &failures, &spans);
            scope.spawn(move || {
                let agent = format!("agent-{caller}");
                for attempt in 0..20 {
                    let (language, code) = TIMED[attempt % 2];
                    let args = vec![json!(caller), json!(attempt)];
                    let proven = attempt % 4 >= 2;
                    let agent = &agent;
                    let ended = driver.run(&Program {
                        language,
                        code,
                        agent,
                        proven,
                        args,
                        ..Program::default()
                    });
                    let returned = value(&ended).and_then(Value::as_array).map(Vec::as_slice);
                    match returned {
                        Some([number, began, end]) if *number == json!(caller * 100 + attempt) => {
                            let span = (began.as_i64().unwrap(), end.as_i64().unwrap());
                            spans.lock().unwrap().push(span);
                        }
                        _ => failures.lock().unwrap().push(ended),
                    }
                }
            });
        }
    });
    assert!(failures.lock().unwrap().is_empty(), "{failures:?}");
    let at_once = most_at_once(&spans.lock().unwrap());
    assert!((2..=4).contains(&at_once), "{at_once} programs ran at the same time");
}

#[test]
fn a_killed_zygote_is_booted_again_and_no_program_is_blamed() {
    let driver = Driver::new();
    for language in BOTH {
        let mut turn =
            driver.start(&Program { language, code: "content('x')", ..Program::default() });
        assert!(matches!(turn.listen(), Ok(TurnEvent::Ask(_))));
        let zygote = driver.zygote(language, None);
        let pid = Pid::from_raw(zygote.cast_signed()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        await_exit(zygote);
        driver.boot(language); // a new zygote, which did not fork the worker of this turn
        let ended = turn.answer(&Answer::Value(Value::Null)).and_then(|()| turn.listen());
        assert!(matches!(ended, Err(WorkerFault::Crashed { by: EndedBy::Host, .. })), "{ended:?}");
        assert_ne!(driver.zygote(language, None), zygote);
    }
}

#[test]
fn each_environment_has_its_own_zygote() {
    let driver = Driver::new();
    let cache = tempfile::tempdir().unwrap();
    for (name, guest) in [("x", "python"), ("y", "python"), ("x", "ruby"), ("y", "ruby")] {
        let root = cache.path().join(guest).join(name);
        std::fs::create_dir_all(&root).unwrap();
        let ready = json!({"guest": guest, "manifest": [], "lock_checksum": "", "source_mode": "",
            "sources": [], "prepared_at": "", "packages": [], "provides": [], "library": "", "proofs": []});
        std::fs::write(root.join(".ready"), ready.to_string()).unwrap();
    }
    for language in BOTH {
        let roots = cache.path().join(language.name());
        let (x, y) = (roots.join("x"), roots.join("y"));
        let zygotes = [None, x.to_str(), y.to_str(), None]
            .map(|environment| driver.zygote(language, environment));
        assert_eq!(zygotes[0], zygotes[3]);
        assert_eq!(BTreeSet::from(zygotes).len(), 3);
    }
}

#[test]
fn a_missing_or_broken_interpreter_is_explained() {
    let explained = |adjust: fn(&mut WorkerOptions)| {
        let driver = Driver::with(adjust);
        match driver.run(&Program { code: "1", ..Program::default() }) {
            Err(WorkerFault::Unavailable(message)) => message,
            other => panic!("{other:?}"),
        }
    };
    let missing = explained(|options| options.path = "/nonexistent".into());
    assert!(
        missing.contains("apt-get install python3") && missing.contains("RECURGENT_PYTHON"),
        "{missing}"
    );
    let broken = explained(|options| options.python = Some("/bin/true".into()));
    assert!(broken.contains("/bin/true"), "{broken}");
}

#[test]
fn dropping_the_workers_leaves_no_process_and_ends_running_turns() {
    let mut driver = Driver::new();
    for (language, code) in PID {
        for proven in [false, true] {
            driver.run(&Program { language, code, proven, ..Program::default() }).unwrap();
        }
    }
    let mut turn = driver.start(&Program { code: "while True: pass", ..Program::default() });
    let own_processes: Vec<u32> =
        descendants().into_iter().filter(|pid| driver.owns(*pid)).collect();
    assert!(
        own_processes.len() >= 5,
        "two zygotes, two kept, one running, and spares: {own_processes:?}"
    );
    driver.close();
    for pid in own_processes {
        assert!(!is_alive(pid), "process {pid} outlived its supervisor");
    }
    let ended = turn.listen().unwrap_err();
    assert!(matches!(ended, WorkerFault::Crashed { by: EndedBy::Host, .. }), "{ended:?}");
    let ended = driver.run(&Program { code: "1", ..Program::default() });
    assert!(matches!(ended, Err(WorkerFault::Unavailable(_))), "{ended:?}");
}

#[test]
fn workers_die_with_their_host() {
    // Also while they are stopped, when they cannot notice that the host has ended.
    for stopped in [false, true] {
        die_with_their_host(stopped);
    }
}

fn die_with_their_host(stopped: bool) {
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "supervisor::a_host_to_be_killed", AS_HOST, "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut printed =
        |what| lines.find_map(|line| line.split_once(what).map(|(_, rest)| rest.to_owned()));
    let (workers, scratch) = (printed("workers: ").unwrap(), printed("scratch: ").unwrap());
    let pids: Vec<u32> = workers.split(' ').map(|pid| pid.parse().unwrap()).collect();
    for pid in pids.iter().filter(|_| stopped) {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
    }
    host.kill().unwrap();
    host.wait().unwrap();
    assert!(pids.len() >= 5, "two zygotes, two kept, one running: {pids:?}");
    pids.into_iter().for_each(await_exit);
    // The next host removes the directories and control groups that the killed one left.
    let left = zygote_directories(Path::new(&scratch));
    assert!(left.len() >= 2, "{left:?}");
    drop(Workers::start(&WorkerOptions::new("", &scratch)).unwrap());
    assert_eq!(groups_named(&left), Vec::<PathBuf>::new());
    std::fs::remove_dir(scratch).unwrap();
}

/// A second filter of tests, which matches none, marks the process that is to be killed.
const AS_HOST: &str = "run_as_the_host_to_be_killed";

/// The host process of `workers_die_with_their_host`, which starts this test with [`AS_HOST`] and kills it. Does nothing
/// in an ordinary run.
#[test]
fn a_host_to_be_killed() {
    if !std::env::args().any(|argument| argument == AS_HOST) {
        return;
    }
    let driver = Driver::new();
    driver.run(&Program { code: "1", proven: true, ..Program::default() }).unwrap();
    driver
        .run(&Program { language: Language::Ruby, code: "1", proven: true, ..Program::default() })
        .unwrap();
    let mut turn = driver.start(&Program { code: "while True: pass", ..Program::default() });
    let pids: Vec<String> = descendants().iter().map(ToString::to_string).collect();
    println!("workers: {}\nscratch: {}", pids.join(" "), driver.scratch().display());
    turn.listen().unwrap_err();
}
