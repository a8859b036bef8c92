//! How programs end: each way to end is reported as a type of its own.

use lifecycle::execution::ReportEnding;
use lifecycle::outcome::{Limit, Reported};
use recurgent::guest::Done;
use serde_json::{Value, json};

use crate::{Case, check, crashed_with_message, number, returned};

#[test]
fn programs_end_with_a_value_or_an_error_of_their_own() {
    check(&[
        Case {
            name: "value",
            python: "result = 1 + 1",
            ruby: "1 + 1",
            expect: |e| returned(e, &json!(2)),
        },
        Case {
            name: "nil",
            python: "result = None",
            ruby: "nil",
            expect: |e| returned(e, &Value::Null),
        },
        Case {
            name: "a function, whatever it is made with",
            python: "check = lambda *_, **__: 7",
            ruby: "def check(*, **) = 7",
            expect: |e| returned(e, &json!(7)),
        },
        Case {
            name: "outcome ok",
            python: "result = Outcome.ok({'a': 1})",
            ruby: "Outcome.ok({a: 1})",
            expect: |e| returned(e, &json!({"a": 1})),
        },
        Case {
            name: "outcome error",
            python: "result = Outcome.error(error_type='low_utility', error_message='no', retriable=True, n=2**70)",
            ruby: "Outcome.error(error_type: 'low_utility', error_message: 'no', retriable: true, n: 2**70)",
            expect: |e| {
                let Ok(Done {
                    ending: ReportEnding::Reported { reported, message, metadata }, ..
                }) = e
                else {
                    return false;
                };
                *reported == Reported { code: "low_utility".into(), retriable: true }
                    && message == "no"
                    && metadata["n"] == number("1180591620717411303424")
            },
        },
    ]);
}

#[test]
fn programs_that_fail_say_why() {
    check(&[
        Case {
            name: "raise",
            python: "x = 1\n\nraise ValueError('bad')",
            ruby: "x = 1\n\nraise ArgumentError, 'bad'",
            expect: |e| {
                let Ok(Done {
                    ending: ReportEnding::Raised { class, message, location, .. }, ..
                }) = e
                else {
                    return false;
                };
                ["ValueError", "ArgumentError"].contains(&class.as_str())
                    && message == "bad"
                    && location.is_some_and(|at| at.line == 3)
            },
        },
        Case {
            name: "early return",
            python: "if True:\n    return 7\nresult = 8",
            ruby: "return 7 if true\n8",
            expect: |e| returned(e, &json!(7)),
        },
        Case {
            name: "invalid code",
            python: "x = 1\nnonlocal x",
            ruby: "x = 1\n/[/",
            expect: |e| matches!(e, Ok(Done { ending: ReportEnding::Malformed(fault), .. }) if fault.position.line == 2),
        },
        Case {
            name: "missing library",
            python: "import importlib; importlib.import_module('no_such_' + 'library')",
            ruby: "require 'no_such_' + 'library'",
            expect: |e| {
                let Ok(Done { ending: ReportEnding::Raised { class, .. }, .. }) = e else {
                    return false;
                };
                ["ModuleNotFoundError", "LoadError"].contains(&class.as_str())
            },
        },
        Case {
            name: "not serializable",
            python: "result = {'a': [1, object()]}",
            ruby: "{a: [1, Object.new]}",
            expect: |e| matches!(e, Ok(Done { ending: ReportEnding::Unserializable { path, .. }, .. }) if path == "$.a[1]"),
        },
        Case {
            name: "big integers",
            python: "result = [2**100, -2**100, kwargs['n'] + 1]",
            ruby: "[2**100, -2**100, kwargs[:n] + 1]",
            expect: |e| {
                let two_to_100 = "1267650600228229401496703205376";
                let expected =
                    [two_to_100, &format!("-{two_to_100}"), "100000000000000000000"].map(number);
                returned(e, &json!(expected))
            },
        },
    ]);
}

#[test]
fn what_is_printed_is_kept_up_to_a_limit() {
    check(&[
        Case {
            name: "print",
            python: "import sys\nprint('hello'); print('caf\\u00e9', file=sys.stderr); result = 1",
            ruby: "puts 'hello'; warn \"caf\\u00e9\"; 1",
            expect: |e| {
                let Ok(done) = e else { return false };
                done.output.stdout == "hello\n"
                    && done.output.stderr == "caf\u{e9}\n"
                    && done.output.dropped_bytes == 0
            },
        },
        Case {
            name: "10 MB flood",
            python: "import sys\nfor _ in range(160): sys.stderr.write('x' * 65536)\nprint('end'); result = 1",
            ruby: "160.times { $stderr.write('x' * 65536) }\nputs 'end'; 1",
            expect: |e| {
                let Ok(done) = e else { return false };
                done.output.stderr.len() == 65536
                    && done.output.dropped_bytes == 159 * 65536
                    && done.output.stdout == "end\n"
            },
        },
        Case {
            name: "not text",
            python: "import os\nos.write(1, b'a\\xffb'); result = 1",
            ruby: "$stdout.write(\"a\\xFFb\".b); 1",
            expect: |e| e.as_ref().is_ok_and(|done| done.output.stdout == "a\u{fffd}b"),
        },
    ]);
}

#[test]
fn the_ways_a_worker_ends_are_distinguished() {
    check(&[
        Case {
            name: "exit",
            python: "import sys\nsys.exit(3)",
            ruby: "exit 3",
            expect: |e| {
                matches!(e, Ok(Done { ending: ReportEnding::Exited { status: 3, .. }, .. }))
            },
        },
        Case {
            name: "exit at once",
            python: "import os\nos._exit(3)",
            ruby: "exit! 3",
            expect: |e| crashed_with_message(e, "it exited with status 3"),
        },
        Case {
            name: "kill itself",
            python: "import os\nos.kill(os.getpid(), 9)",
            ruby: "Process.kill(9, Process.pid)",
            expect: |e| crashed_with_message(e, "it was killed by SIGKILL"),
        },
        Case {
            name: "abort",
            python: "import os\nos.abort()",
            ruby: "Process.kill(:ABRT, Process.pid); sleep",
            expect: |e| crashed_with_message(e, "it was killed by SIGABRT"),
        },
        Case {
            name: "close every descriptor and linger",
            python: "import os, time\nos.closerange(3, 64)\ntime.sleep(60)",
            ruby: "(3..64).each { |fd| IO.for_fd(fd).close rescue nil }\nsleep 60",
            expect: |e| crashed_with_message(e, "it closed its channel"),
        },
        Case {
            name: "memory",
            python: "x = 'x' * (8 << 30)",
            ruby: "'x' * (8 << 30)",
            expect: |e| {
                matches!(e, Ok(Done { ending: ReportEnding::Limited(Limit::Memory, _), .. }))
            },
        },
    ]);
}
