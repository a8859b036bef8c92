//! What exceptions of stored programs are attributed to, by class and by the chain of causes.

use recurgent::{Agent, Arguments, Outcome};
use serde_json::{Value, json};

use crate::{GuestFixture, check, closed_port, code, metadata};

/// A program that is accepted with some arguments and raises with others.
struct Raising<'a> {
    name: &'a str,
    /// In Python and Ruby; a program that only one of them can have is missing in the other.
    programs: [Option<&'a str>; 2],
    good: Value,
    bad: Value,
    /// The class that it raises, in Python and Ruby.
    class: [&'a str; 2],
    blame: &'a str,
    /// Failures counted against it.
    counted: u32,
}

fn call(agent: &Agent, args: &Value) -> Outcome {
    let args = args.as_array().unwrap().clone();
    agent.call("run", Arguments { args, ..Arguments::default() }).unwrap()
}

fn check_raising(fixture: &GuestFixture, case: &Raising<'_>) {
    let at = usize::from(fixture.language == recurgent::Language::Ruby);
    let Some(program) = case.programs[at] else { return };
    let Raising { name, good, bad, .. } = case;
    let role = name.replace(' ', "_");
    let key = format!("{role}.run");
    fixture.model.add(&key, json!({"code": program}));
    let agent = fixture.agent(&role, "loopback");
    let first = call(&agent, good);
    assert!(first.is_ok(), "{name}: {first:?}");
    fixture.refuse_model_key(&key);
    let outcome = call(&agent, bad);
    assert_eq!(metadata(&outcome, "error_class"), Some(case.class[at]), "{name}: {outcome:?}");
    assert_eq!(metadata(&outcome, "blame"), Some(case.blame), "{name}: {outcome:?}");
    assert_eq!(fixture.failures(&role, "run"), case.counted, "{name}");
}

fn both<'a>(python: &'a str, ruby: &'a str) -> [Option<&'a str>; 2] {
    [Some(python), Some(ruby)]
}

/// A case of which nothing is counted unless the program is to blame.
fn case<'a>(
    name: &'a str,
    programs: [Option<&'a str>; 2],
    [good, bad]: [Value; 2],
    class: [&'a str; 2],
    blame: &'a str,
) -> Raising<'a> {
    let counted = u32::from(blame == "program");
    Raising { name, programs, good, bad, class, blame, counted }
}

fn check_all(cases: &[Raising<'_>]) {
    check(|fixture| cases.iter().for_each(|case| check_raising(fixture, case)));
}

#[test]
fn errors_of_arguments_are_the_callers() {
    check_all(&[
        case(
            "an end of items",
            both("def run(xs):\n    return next(x for x in xs if x)", "def run(xs) = xs.each.next"),
            [json!([[1, 2]]), json!([[]])],
            ["StopIteration"; 2],
            "caller",
        ),
        case(
            "an assertion",
            both(
                "def run(x):\n    assert isinstance(x, (int, float)), 'a number'\n    return x * x",
                "def run(x)\n  raise TypeError, 'a number' unless x.is_a?(Numeric)\n  x * x\nend",
            ),
            [json!([2]), json!(["foo"])],
            ["AssertionError", "TypeError"],
            "caller",
        ),
        case(
            "a case that does not match",
            both(
                "def run(x):\n    match x:\n        case int():\n            return x\n    raise ValueError('not a number')",
                "def run(x)\n  case x\n  in Integer then x\n  end\nend",
            ),
            [json!([1]), json!(["foo"])],
            ["ValueError", "NoMatchingPatternError"],
            "caller",
        ),
        case(
            "a key that a pattern misses",
            both(
                "def run(x):\n    return x['a']",
                "def run(x)\n  x => {a: Integer => a}\n  a\nend",
            ),
            [json!([{"a": 1}]), json!([{"b": 1}])],
            ["KeyError", "NoMatchingPatternKeyError"],
            "caller",
        ),
    ]);
}

#[test]
fn errors_of_files_are_the_worlds_and_mistakes_in_their_handlers_the_programs() {
    check_all(&[
        case(
            "a directory instead of a file",
            both(
                "def run(path):\n    return 1 if path == 'no' else len(open(path).read())",
                "def run(path) = path == 'no' ? 1 : File.read(path).size",
            ),
            [json!(["no"]), json!(["/tmp"])],
            ["IsADirectoryError", "Errno::EISDIR"],
            "world",
        ),
        case(
            "a mistake in the handler of a missing file",
            both(
                "def run(path, default):\n    try:\n        return open(path).read()\n    except FileNotFoundError:\n        \
                 return default if default != 'x' else defualt",
                "def run(path, default)\n  File.read(path)\nrescue Errno::ENOENT\n  default != 'x' ? default : defualt\nend",
            ),
            [json!(["nothing.txt", "q"]), json!(["nothing.txt", "x"])],
            ["NameError", "NameError"],
            "program",
        ),
        case(
            "a wrong type in the handler of a missing file",
            both(
                "def run(path, more):\n    try:\n        return open(path).read()\n    except FileNotFoundError:\n        \
                 return 1 + (None if more > 1 else more)",
                "def run(path, more)\n  File.read(path)\nrescue Errno::ENOENT\n  1 + (more > 1 ? nil : more)\nend",
            ),
            [json!(["nothing.txt", 1]), json!(["nothing.txt", 2])],
            ["TypeError", "TypeError"],
            "program",
        ),
    ]);
}

#[test]
fn errors_of_services_are_found_behind_others() {
    let down = json!(closed_port());
    check_all(&[
        case(
            "a wrapped failure of a service within a handler",
            both(
                "import urllib.request\nCACHE = {'a': 1}\ndef run(key, port):\n    try:\n        return CACHE[key]\n    except KeyError:\n        \
                 try:\n            return urllib.request.urlopen(f'http://127.0.0.1:{port}/').read().decode()\n        \
                 except OSError as problem:\n            raise RuntimeError('not fetched') from problem",
                "require 'net/http'\nCACHE = {'a' => 1}\ndef run(key, port)\n  CACHE.fetch(key)\nrescue KeyError\n  begin\n    \
                 Net::HTTP.get(URI(\"http://127.0.0.1:#{port}/\"))\n  rescue SystemCallError\n    raise 'not fetched'\n  end\nend",
            ),
            [json!(["a", down]), json!(["b", down])],
            ["RuntimeError", "RuntimeError"],
            "world",
        ),
        case(
            "a group of exceptions",
            [
                Some(
                    "import asyncio\nasync def one(port):\n    if port:\n        await asyncio.open_connection('127.0.0.1', port)\n    \
                     return 1\nasync def both(port):\n    async with asyncio.TaskGroup() as tasks:\n        \
                     task = tasks.create_task(one(port))\n    return task.result()\ndef run(port):\n    return asyncio.run(both(port))",
                ),
                None,
            ],
            [json!([0]), json!([down])],
            ["ExceptionGroup", ""],
            "world",
        ),
    ]);
}

#[test]
fn errors_of_databases_are_distinguished() {
    check_all(&[
        case(
            "a database that cannot be opened",
            [
                Some(
                    "import sqlite3\ndef run(path):\n    if path == 'no':\n        return 0\n    \
                     return sqlite3.connect(f'file:{path}?mode=ro', uri=True).execute('select 1').fetchone()[0]",
                ),
                None,
            ],
            [json!(["no"]), json!(["/srv/data.db"])],
            ["sqlite3.OperationalError", ""],
            "world",
        ),
        case(
            "a table that does not exist",
            [
                Some(
                    "import sqlite3\ndef run(name):\n    base = sqlite3.connect(':memory:')\n    base.execute('create table a (x)')\n    \
                     return base.execute(f'select count(*) from {name}').fetchone()[0]",
                ),
                None,
            ],
            [json!(["a"]), json!(["b"])],
            ["sqlite3.OperationalError", ""],
            "program",
        ),
    ]);
}

/// A new program that computed the file or the host itself gets its retry; one that was given it does not.
#[test]
fn what_a_new_program_chose_itself_is_tried_again() {
    let down = closed_port();
    let given = json!(format!("http://127.0.0.1:{down}/"));
    for (python, ruby, args, asked) in [
        (
            "def run(x):\n    return open('/tmp/' + 'cache').read()",
            "def run(x) = File.read('/tmp/' + 'cache')",
            json!([1]),
            2,
        ),
        (
            "import urllib.request\ndef run(port):\n    return urllib.request.urlopen('http' + f'://127.0.0.1:{port}/').read()",
            "require 'net/http'\ndef run(port) = Net::HTTP.get(URI('http' + \"://127.0.0.1:#{port}/\"))",
            json!([down]),
            2,
        ),
        (
            "import urllib.request\ndef run(url):\n    return urllib.request.urlopen(url).read()",
            "require 'net/http'\ndef run(url) = Net::HTTP.get(URI(url))",
            json!([given]),
            1,
        ),
    ] {
        check(|fixture| {
            fixture.writes("c.run", python, ruby);
            fixture.writes("c.run", "def run(x):\n    return x", "def run(x) = x");
            let outcome = call(&fixture.agent("c", "loopback"), &args);
            assert_eq!(outcome.is_ok(), asked == 2, "{outcome:?}");
            assert_eq!(fixture.asked(), asked, "{python}: {outcome:?}");
        });
    }
}

/// The missing grant is named, also if another port of the host is granted.
#[test]
fn a_port_that_is_not_granted_is_a_missing_grant() {
    check(|fixture| {
        fixture.writes(
            "c.run",
            "import socket\ndef run(host, port):\n    socket.create_connection((host, port)).close()\n    return 1",
            "require 'socket'\ndef run(host, port)\n  TCPSocket.new(host, port).close\n  1\nend",
        );
        let outcome = call(&fixture.agent("c", "127.0.0.1:8"), &json!(["127.0.0.1", 9]));
        assert_eq!(code(&outcome), "unsupported_capability", "{outcome:?}");
        assert_eq!(metadata(&outcome, "grant"), Some("--network 127.0.0.1:9"), "{outcome:?}");
    });
}

/// Programs run in a directory of their own: a relative path of a granted file is not found there.
#[test]
fn a_relative_path_of_a_granted_file_is_recognised() {
    check(|fixture| {
        fixture.writes(
            "c.run",
            "def run(path):\n    return open(path).read()",
            "def run(path) = File.read(path)",
        );
        let file = fixture.state.path().join("sales.csv");
        std::fs::write(&file, "1").unwrap();
        let whole = file.display().to_string();
        let runtime = fixture.runtime(&[("read_paths", &whole)]);
        let agent = runtime.agent("c").guest(fixture.language).build().unwrap();
        let outcome = call(&agent, &json!(["sales.csv"]));
        assert_eq!(code(&outcome), "execution", "{outcome:?}");
        let message = &outcome.failure().unwrap().message;
        assert!(message.contains(&format!("granted is `{whole}`")), "{message}");
        assert!(call(&agent, &json!([whole])).is_ok());
    });
}
