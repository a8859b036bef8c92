//! Workers kept for their agent's next call.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use lifecycle::context::{Context, ContextChanges};
use lifecycle::dialect::Language;
use recurgent::grants::Grants;
use recurgent::worker::Tier;
use serde_json::{Map, Value, json};

use crate::drive::{BOTH, Driver, Program};
use crate::{PID, await_exit, returned};

#[test]
fn a_proven_agent_keeps_its_worker_until_it_is_discarded() {
    for (language, code) in PID {
        let driver = Driver::new();
        let run = |agent: &'static str| {
            driver
                .run(&Program { language, code, agent, proven: true, ..Program::default() })
                .unwrap()
        };
        let first = run("a");
        let second = run("a");
        assert_eq!(first.worker.pid, second.worker.pid);
        assert_eq!((first.worker.warm, second.worker.warm), (false, true));
        assert_eq!((first.worker.restarts, second.worker.restarts), (0, 0));
        let other = run("b");
        assert_ne!(other.worker.pid, first.worker.pid, "agents share no worker");
        driver.guest(language).discard("a");
        await_exit(first.worker.pid.unwrap());
        let third = run("a");
        assert_ne!(third.worker.pid, first.worker.pid);
        assert_eq!((third.worker.warm, third.worker.restarts), (false, 1));
        assert_eq!(run("b").worker.pid, other.worker.pid, "others are left alone");
    }
}

#[test]
fn a_bad_end_costs_the_kept_worker() {
    let driver = Driver::new();
    for ((language, pid), bad) in PID.into_iter().zip(["raise ValueError('x')", "raise 'x'"]) {
        let run = |code| {
            driver.run(&Program { language, code, proven: true, ..Program::default() }).unwrap()
        };
        let first = run(pid).worker.pid;
        assert_eq!(run(bad).worker.pid, first);
        assert_ne!(run(pid).worker.pid, first);
    }
}

/// Files would stay in memory or on disk for as long as the worker, and the agent's next program would find them.
#[test]
fn a_worker_with_files_is_not_kept() {
    const TRIES: [(&str, &str, bool); 4] = [
        (
            "open('left', 'wb').write(b'x' * 5000)\nresult = 1",
            "File.write('left', 'x' * 5000)\n1",
            false,
        ),
        (
            "import os\nleft = os.open('left', os.O_WRONLY | os.O_CREAT)\nos.write(left, b'x' * 5000)\nos.remove('left')\nresult = 1",
            "left = IO.sysopen('left', 'w')\nIO.for_fd(left, 'w', autoclose: false).syswrite('x' * 5000)\nFile.delete('left')\n1",
            false,
        ),
        (
            "import os\nopen('left', 'wb').write(b'x' * 5000)\nos.remove('left')\nresult = 1",
            "File.write('left', 'x' * 5000)\nFile.delete('left')\n1",
            true,
        ),
        ("result = 1", "1", true),
    ];
    for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
        let driver = Driver::with(|options| options.layers = tier.layers());
        for (language, pid) in PID {
            for (python, ruby, is_kept) in TRIES {
                if tier == Tier::Landlock && python.contains("os.open") {
                    continue; // what is open and has no name is not seen without namespaces
                }
                let run = |code| {
                    let program = Program { language, code, proven: true, ..Program::default() };
                    driver.run(&program).unwrap()
                };
                let first = run(pid).worker.pid;
                run(if language == Language::Python { python } else { ruby });
                assert_eq!(
                    run(pid).worker.pid == first,
                    is_kept,
                    "{language:?} at {tier}: {python}"
                );
            }
        }
    }
}

#[test]
fn a_kept_worker_killed_while_idle_is_replaced_unnoticed() {
    let driver = Driver::new();
    for (language, code) in PID {
        let program = Program { language, code, proven: true, ..Program::default() };
        let first = driver.run(&program).unwrap().worker.pid.unwrap();
        let pid = rustix::process::Pid::from_raw(first.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        await_exit(first);
        let second = driver.run(&program).unwrap().worker;
        assert_ne!(second.pid, Some(first));
        assert!(!second.warm);
    }
}

#[test]
fn idle_workers_are_ended_in_time() {
    let driver = Driver::with(|options| options.idle_limit = Duration::from_millis(50));
    for (language, code) in PID {
        let program = Program { language, code, proven: true, ..Program::default() };
        await_exit(driver.run(&program).unwrap().worker.pid.unwrap());
    }
}

/// Whatever a worker does when it is asked to end, it does before it is killed. On a busy machine it may be killed before
/// it ran again: it is tried again.
#[test]
fn idle_workers_are_asked_to_end_first() {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let grants = Grants { write: vec![place.path().to_owned()], ..Grants::default() };
    let driver = Driver::with(|options| options.idle_limit = Duration::from_millis(50));
    for (language, code) in [
        (
            Language::Python,
            "import signal\nsignal.signal(signal.SIGTERM, lambda *_: open(args[0], 'w').close())\nresult = 1",
        ),
        (Language::Ruby, "trap('TERM') { File.write(args[0], '') }\n1"),
    ] {
        let was_asked = |round: usize| {
            let note = place.path().join(format!("{language} {round}"));
            let grants = grants.clone();
            let args = vec![json!(note)];
            let program =
                Program { language, code, args, grants, proven: true, ..Program::default() };
            await_exit(driver.run(&program).unwrap().worker.pid.unwrap());
            note.exists()
        };
        assert!((0..20).any(was_asked), "{language:?} was killed at once 20 times");
    }
}

/// Threads that a program joins do not cost its agent the worker.
#[test]
fn a_program_that_joins_its_threads_keeps_its_worker() {
    let driver = Driver::new();
    for (language, code) in [
        (
            Language::Python,
            "import os, threading\nthreads = [threading.Thread(target=print) for _ in range(8)]\nfor thread in threads: thread.start()\nfor thread in threads: thread.join()\nresult = os.getpid()",
        ),
        (Language::Ruby, "8.times.map { Thread.new { 1 } }.each(&:join)\nProcess.pid"),
    ] {
        let program = Program { language, code, proven: true, ..Program::default() };
        let pids: Vec<Option<u32>> =
            (0..10).map(|_| driver.run(&program).unwrap().worker.pid).collect();
        let changes = pids.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes < 5, "{language:?}: {pids:?}");
    }
}

fn set(key: &str, value: Value) -> ContextChanges {
    ContextChanges { set: Map::from_iter([(key.to_owned(), value)]), unset: Vec::new() }
}

#[test]
fn a_kept_worker_sees_each_change_of_the_memory_once() {
    let driver = Driver::new();
    let python = "context['n'] = context.get('n', 0) + 1\nresult = [sorted(context), context['n']]";
    let ruby = "context['n'] = (context['n'] || 0) + 1\n[context.keys.sort, context['n']]";
    for (language, code) in [(Language::Python, python), (Language::Ruby, ruby)] {
        let mut context = Context::default();
        let run = |context: &Context| {
            driver.run(&Program {
                language,
                code,
                proven: true,
                context: context.clone(),
                ..Program::default()
            })
        };
        let first = run(&context).unwrap();
        assert_eq!(first.changes, set("n", json!(1)));
        context.apply(first.changes);
        context.apply(set("other", json!("x")));
        let second = run(&context).unwrap();
        assert_eq!(second.changes, set("n", json!(2)));
        assert_eq!(second.worker.pid, first.worker.pid);
        // Rejected: its changes are not applied, and the worker must not remember them either.
        let third = run(&context).unwrap();
        assert_eq!(third.changes, set("n", json!(2)));
        assert_eq!(third.worker.pid, first.worker.pid);
        context.apply(third.changes);
        context.apply(ContextChanges { set: Map::new(), unset: vec!["other".into()] });
        let fourth = run(&context);
        assert!(returned(&fourth, &json!([["n"], 3])), "{fourth:?}");
    }
}

#[test]
fn a_megabyte_of_memory_crosses_once() {
    let driver = Driver::new();
    for (language, code) in [
        (Language::Python, "result = len(context['big'])"),
        (Language::Ruby, "context['big'].size"),
    ] {
        let mut context = Context::default();
        context.apply(set("big", json!(vec!["0123456789abcdef"; 60_000])));
        for proven in [false, true, true] {
            let context = context.clone();
            let ended =
                driver.run(&Program { language, code, proven, context, ..Program::default() });
            assert!(returned(&ended, &json!(60_000)), "{ended:?}");
            assert!(ended.unwrap().changes.is_empty());
        }
    }
}

#[test]
fn a_worker_is_never_asked_for_a_program_it_has_forgotten() {
    let driver = Driver::new();
    for language in BOTH {
        let programs: Vec<String> = (0..300).map(|n| format!("{n} + 0")).collect();
        let run = |n: usize| {
            let code = &programs[n];
            let ended = driver.run(&Program { language, code, proven: true, ..Program::default() });
            assert!(returned(&ended, &json!(n)), "{ended:?}");
        };
        (0..300).for_each(run);
        (0..300).rev().for_each(run);
    }
}

/// Programs that leave something running when they return: a process that hides its name, a thread, a thread that the
/// interpreter does not know of.
#[rustfmt::skip]
const LEAVES_RUNNING: &[(Language, &str)] = &[
    (Language::Python, "import os, time\nif os.fork() == 0:\n    open('/proc/self/comm', 'wb').write(b'\\xff)\\xfe 1')\n    time.sleep(600)\nresult = 1"),
    (Language::Ruby, "fork { File.binwrite('/proc/self/comm', \"\\xff)\\xfe 1\".b)\nsleep 600 }\nresult = 1"),
    (Language::Python, "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()\nresult = 1"),
    (Language::Ruby, "Thread.new { loop {} }\nThread.new { sleep 600 }\nresult = 1"),
    (Language::Python, "import threading\nthreading.Timer(600, print).start()\nresult = 1"),
    (Language::Python, "import ctypes\ndef spin(_):\n    while True: pass\nspin = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(spin)\nctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, spin, None)\nresult = 1"),
    (Language::Python, "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.sleep, ctypes.c_void_p(600))\nresult = 1"),
    (Language::Ruby, "require 'fiddle'\nlibc = Fiddle.dlopen(nil)\nFiddle::Function.new(libc['pthread_create'], [Fiddle::TYPE_VOIDP] * 4, Fiddle::TYPE_INT).call(Fiddle.malloc(8), nil, libc['sleep'], 600)\nresult = 1"),
];

#[test]
fn nothing_runs_after_a_call() {
    let driver = Driver::new();
    for (language, code) in LEAVES_RUNNING {
        let program = Program { language: *language, code, proven: true, ..Program::default() };
        let ended = driver.run(&program);
        assert!(returned(&ended, &json!(1)), "{code}: {ended:?}");
        let worker = ended.unwrap().worker.pid.unwrap();
        // Ruby's threads end with the program; everything else ends with its worker.
        if *language == Language::Python || code.contains("fork") || code.contains("pthread") {
            await_exit(worker);
            let group = rustix::process::Pid::from_raw(worker.cast_signed()).unwrap();
            while rustix::process::test_kill_process_group(group).is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        } else {
            assert!(!is_busy(worker), "{code}");
        }
    }
}

/// Whether a process uses processor time while it is watched.
fn is_busy(pid: u32) -> bool {
    let used = || {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        let ticks =
            fields.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap_or(0));
        ticks.sum::<u64>()
    };
    let before = used();
    std::thread::sleep(Duration::from_millis(400));
    used().saturating_sub(before) > 20
}
