//! Workers that lie, flood, hang, or leave something behind.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::dialect::Language;
use lifecycle::execution::{ReportEnding, WorkerFault};
use lifecycle::outcome::Limit;
use recurgent::guest::{Answer, Ask, Cancellation, Done, TurnEvent};
use serde_json::{Value, json};

use crate::drive::{BOTH, Driver, Program, descendants};
use crate::{HANG_TIMEOUT, await_exit, crashed_with_message, returned, value};

/// Finds the channel (the only socket) and writes `said` to it.
fn liar(language: Language, said: &str) -> String {
    match language {
        Language::Python => format!(
            "import os, stat, time\nfor fd in range(3, 64):\n    try:\n        \
             if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, {said})\n    except OSError: pass\ntime.sleep(60)"
        ),
        Language::Ruby => format!(
            "(3..64).each {{ |fd| io = IO.for_fd(fd, autoclose: false) rescue next\n\
             (io.syswrite({said}) if io.stat.socket?) rescue nil }}\nsleep 60"
        ),
    }
}

#[test]
fn lies_end_the_attempt_and_nothing_else() {
    let driver = Driver::new();
    let done = r#"{\"op\":\"done\",\"status\":\"ok\",\"value\":1,\"context\":{\"set\":{},\"unset\":[]}}\n"#;
    let refusal = r#"{\"op\":\"done\",\"status\":\"error\",\"error_type\":\"protocol\",\"error_class\":\"UnknownDigest\",\"error_message\":\"forged\"}\n"#;
    let reserved = done.replace(r#"\"set\":{}"#, r#"\"set\":{\"tools\":{}}"#);
    let unset = done.replace(r#"\"unset\":[]"#, r#"\"unset\":[\"conversation_history\"]"#);
    let ask = r#"{\"op\":\"ask\",\"ask_id\":1,\"kind\":\"tools\"}\n"#;
    let cases = [
        (r#"b"garbage\n""#, r#""garbage\n""#, "malformed frame"),
        (r#"b"\xff\x00\n""#, r#""\xff\x00\n""#, "malformed frame"),
        (r#"b"{}\n""#, r#""{}\n""#, "malformed frame"),
        (r#"b"[" * 100000 + b"\n""#, r#""[" * 100000 + "\n""#, "malformed frame"),
        (&format!("b\"{done}{done}\""), &format!("\"{done}{done}\""), "sent a frame after `done`"),
        (&format!("b\"{ask}{ask}\""), &format!("\"{ask}{ask}\""), "a number used before"),
        (&format!("b\"{reserved}\""), &format!("\"{reserved}\""), "read-only memory key `tools`"),
        (&format!("b\"{unset}\""), &format!("\"{unset}\""), "key `conversation_history`"),
        (r#"b"{\"op\":\"fork\"}\n""#, r#""{\"op\":\"fork\"}\n""#, "unknown `op`"),
        (&format!("b\"{refusal}\""), &format!("\"{refusal}\""), "it refused its order: forged"),
    ];
    for (python, ruby, expected) in cases {
        for (language, said) in [(Language::Python, python), (Language::Ruby, ruby)] {
            let code = liar(language, said);
            let program = Program { language, code: &code, ..Program::default() };
            let ended = driver.ask(&program, |_| Answer::Value(Value::Null));
            assert!(crashed_with_message(&ended, expected), "{language:?} said {said}: {ended:?}");
        }
    }
    for language in BOTH {
        assert!(returned(
            &driver.run(&Program { language, code: "1 + 1", ..Program::default() }),
            &json!(2)
        ));
    }
}

#[test]
fn frames_are_bounded_both_ways() {
    let driver = Driver::new();
    for (language, said) in
        [(Language::Python, "b'x' * (40 << 20)"), (Language::Ruby, "'x' * (40 << 20)")]
    {
        let code = liar(language, said)
            .replace("os.write(fd", "__import__('socket').socket(fileno=fd).sendall(");
        let code = code.replace("sendall(,", "sendall(").replace("io.syswrite", "io.write");
        let ended = driver.run(&Program { language, code: &code, ..Program::default() });
        assert!(
            matches!(ended, Err(WorkerFault::Limited(Limit::Frame, _))),
            "{language:?}: {ended:?}"
        );

        let code = "'x' * (40 << 20)";
        let ended = driver.run(&Program { language, code, ..Program::default() });
        let limited =
            matches!(ended, Ok(Done { ending: ReportEnding::Limited(Limit::Frame, _), .. }));
        assert!(limited, "{language:?}: {ended:?}");

        let args = vec![json!("x".repeat(40 << 20))];
        let ended = driver.run(&Program { language, code: "1", args, ..Program::default() });
        assert!(
            matches!(ended, Err(WorkerFault::Limited(Limit::Frame, _))),
            "{language:?}: {ended:?}"
        );
    }
}

#[test]
fn hangs_end_when_their_time_is_up() {
    let limit = Duration::from_millis(300);
    let driver = Driver::new();
    let trapped = "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\n\
                   while True:\n    try:\n        while True: pass\n    except BaseException: pass";
    for (language, code) in [
        (Language::Python, "while True: pass"),
        (Language::Python, "import time\ntime.sleep(600)"),
        (Language::Python, trapped),
        (Language::Python, "while True: print('x')"),
        (Language::Ruby, "loop {}"),
        (Language::Ruby, "sleep"),
        (
            Language::Ruby,
            "%w[TERM INT HUP].each { |s| trap(s) {} }\nbegin; loop {}; ensure; loop {}; end",
        ),
        (Language::Ruby, "loop { puts 'x' }"),
    ] {
        driver.boot(language);
        let begun = Instant::now();
        let ended = driver.run(&Program { language, code, limit, ..Program::default() });
        assert_eq!(ended.unwrap_err(), WorkerFault::TimedOut(limit), "{code}");
        // The benchmark checks that it ends within 25 ms of its limit.
        assert!(begun.elapsed() < limit + HANG_TIMEOUT / 2, "{code}: {:?}", begun.elapsed());
    }
}

#[test]
fn the_clock_stops_while_the_host_answers() {
    let driver = Driver::new();
    let limit = Duration::from_secs(9);
    for language in BOTH {
        let code = "[content('a'), content('b')]";
        let begun = Instant::now();
        let ended = driver.ask(&Program { language, code, limit, ..Program::default() }, |_| {
            thread::sleep(Duration::from_secs(5)); // a slow answer
            Answer::Value(json!(1))
        });
        assert!(returned(&ended, &json!([1, 1])), "{ended:?}");
        assert!(begun.elapsed() > limit);
    }
}

#[test]
fn cancellation_ends_a_turn_wherever_it_is() {
    let driver = Driver::new();
    for language in BOTH {
        driver.boot(language);
        let cancellation = Cancellation::default();
        let code = if language == Language::Python { "while True: pass" } else { "loop {}" };
        let program =
            Program { language, code, cancellation: cancellation.clone(), ..Program::default() };
        let ended = thread::scope(|scope| {
            let run = scope.spawn(|| driver.run(&program));
            let begun = Instant::now();
            while descendants().iter().filter(|pid| driver.owns(**pid)).count() == 0
                && begun.elapsed() < HANG_TIMEOUT
            {
                thread::yield_now();
            }
            cancellation.cancel();
            run.join().unwrap()
        });
        assert_eq!(ended.unwrap_err(), WorkerFault::Cancelled);
        // Cancelled before it starts.
        assert_eq!(driver.run(&program).unwrap_err(), WorkerFault::Cancelled);
    }
}

#[test]
fn fresh_attempts_share_nothing() {
    let driver = Driver::new();
    for (language, code) in [
        (
            Language::Python,
            "import math, os\nseen = hasattr(math, 'leak')\nmath.leak = 1\nresult = [seen, os.getpid()]",
        ),
        (Language::Ruby, "seen = defined?($leak) ? true : false\n$leak = 1\n[seen, Process.pid]"),
    ] {
        let mut pids = BTreeSet::new();
        for _ in 0..4 {
            let ended = driver.run(&Program { language, code, ..Program::default() });
            let given = value(&ended).cloned().unwrap();
            assert_eq!(given[0], json!(false));
            assert!(pids.insert(given[1].as_u64().unwrap()));
            let traced = ended.unwrap().worker;
            assert!(!traced.warm);
            assert_eq!(traced.sandbox_tier, driver.containment().tier.name());
            await_exit(traced.pid.unwrap());
        }
    }
}

#[test]
fn nothing_of_the_hosts_environment_is_inherited() {
    let driver = Driver::new();
    for (language, code) in [
        (
            Language::Python,
            "import os\nresult = [sorted(os.environ), os.getcwd() == os.environ['HOME']]",
        ),
        (Language::Ruby, "[ENV.keys.sort, Dir.pwd == ENV['HOME']]"),
    ] {
        let ended = driver.run(&Program { language, code, ..Program::default() });
        let given = value(&ended).unwrap();
        let mut names: Vec<&str> =
            given[0].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        names.retain(|name| *name != "LC_CTYPE"); // Python sets it for itself
        assert_eq!(names, ["HOME", "LANG", "PATH", "TMPDIR"]);
        assert_eq!(given[1], json!(true));
    }
}

#[test]
fn what_a_program_forks_dies_with_it() {
    for (language, code) in [
        (
            Language::Python,
            "import os, time\npid = os.fork()\nif pid == 0:\n    time.sleep(600)\n    os._exit(0)\nresult = pid",
        ),
        (Language::Ruby, "fork { sleep 600 }"),
    ] {
        let driver = Driver::new();
        let ended = driver.run(&Program { language, code, ..Program::default() });
        driver.await_end(value(&ended).unwrap().as_u64().unwrap());
    }
}

#[test]
fn a_turn_dropped_halfway_ends_its_worker() {
    for language in BOTH {
        let driver = Driver::new();
        let code = match language {
            Language::Python => "import os\ncontent(str(os.getpid()))",
            Language::Ruby => "content(Process.pid.to_s)",
        };
        let mut turn =
            driver.start(&Program { language, code, proven: true, ..Program::default() });
        let Ok(TurnEvent::Ask(Ask::Content { reference })) = turn.listen() else {
            panic!("it asks")
        };
        drop(turn);
        driver.await_end(reference.parse().unwrap());
    }
}
