//! The facts of an exception from which blame is decided: the same in both guests.

use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use lifecycle::dialect::Language;
use lifecycle::execution::{ExceptionFacts, ExceptionLink, ReportEnding};
use recurgent::grants::{Grants, Network};
use recurgent::guest::Done;
use serde_json::{Value, json};

use crate::drive::{Driver, Program};

/// A program that raises, and what must be reported.
#[derive(Default)]
struct Raises<'a> {
    name: &'a str,
    python: &'a str,
    ruby: &'a str,
    args: Vec<Value>,
    network: Network,
    /// The class of the exception, in Python and Ruby.
    class: [&'a str; 2],
    /// A class that the chain must contain; the class itself if there is none.
    superclass: Option<[&'a str; 2]>,
    /// A class that the chain of one of its causes must contain.
    cause: Option<[&'a str; 2]>,
    errno: Option<[&'a str; 2]>,
    path: Option<&'a str>,
    outside_program: bool,
}

fn raised(driver: &Driver, language: Language, case: &Raises<'_>) -> (String, ExceptionFacts) {
    let code = if language == Language::Python { case.python } else { case.ruby };
    let grants = Grants { network: case.network.clone(), ..Grants::default() };
    let program = Program { language, code, args: case.args.clone(), grants, ..Program::default() };
    match driver.run(&program) {
        Ok(Done { ending: ReportEnding::Raised { class, facts, .. }, .. }) => (class, *facts),
        other => panic!("{} in {language:?}: {other:#?}", case.name),
    }
}

fn check(cases: &[Raises<'_>]) {
    let driver = Driver::new();
    for case in cases {
        for (at, language) in [Language::Python, Language::Ruby].into_iter().enumerate() {
            let (class, facts) = raised(&driver, language, case);
            let name = format!("{} in {language:?}: {class} {facts:#?}", case.name);
            let chain = &facts.exception.class_chain;
            let has =
                |link: &ExceptionLink, class: &str| link.class_chain.iter().any(|it| it == class);
            assert_eq!(class, case.class[at], "{name}");
            assert!(chain.first().is_some_and(|it| it.ends_with(&class)), "{name}");
            assert!(
                has(&facts.exception, case.superclass.unwrap_or([chain[0].as_str(); 2])[at]),
                "{name}"
            );
            assert!(chain.last().is_some_and(|it| it.ends_with("Exception")), "{name}");
            let links = || std::iter::once(&facts.exception).chain(&facts.causes);
            let errno = links().find_map(|link| link.errno.as_deref());
            assert_eq!(errno, case.errno.map(|it| it[at]), "{name}");
            assert_eq!(links().find_map(|link| link.path.as_deref()), case.path, "{name}");
            assert_eq!(facts.raised_in_program, !case.outside_program, "{name}");
            if let Some(cause) = case.cause {
                assert!(facts.causes.iter().any(|link| has(link, cause[at])), "{name}");
            } else {
                assert!(facts.causes.is_empty() || language == Language::Python, "{name}");
            }
        }
    }
}

/// A port on loopback at which nothing listens.
fn closed_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A server on loopback that accepts and never answers, or answers something that is not TLS.
fn server(answer: Option<&'static [u8]>) -> u16 {
    use std::io::Write;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            if let Some(answer) = answer {
                let _ = stream.write_all(answer);
            }
            held.push(stream);
        }
    });
    port
}

#[test]
fn network_errors_are_distinguished_from_program_errors() {
    let refused = json!(closed_port());
    let loopback = || Network::Loopback;
    check(&[
        Raises {
            name: "connection refused",
            python: "import socket\nsocket.create_connection(('127.0.0.1', args[0]), 5)",
            ruby: "require 'socket'\nTCPSocket.new('127.0.0.1', args[0])",
            args: vec![refused.clone()],
            network: loopback(),
            class: ["ConnectionRefusedError", "Errno::ECONNREFUSED"],
            superclass: Some(["ConnectionError", "SystemCallError"]),
            errno: Some(["ECONNREFUSED"; 2]),
            ..Raises::default()
        },
        Raises {
            name: "connection refused, wrapped by a library and by the program",
            python: "import urllib.request\ntry: urllib.request.urlopen(f'http://127.0.0.1:{args[0]}/')\nexcept Exception as e: raise RuntimeError('no page') from e",
            ruby: "require 'net/http'\nbegin\n  Net::HTTP.get(URI(\"http://127.0.0.1:#{args[0]}/\"))\nrescue StandardError\n  raise 'no page'\nend",
            args: vec![refused],
            network: loopback(),
            class: ["RuntimeError", "RuntimeError"],
            cause: Some(["ConnectionRefusedError", "Errno::ECONNREFUSED"]),
            errno: Some(["ECONNREFUSED"; 2]),
            ..Raises::default()
        },
        Raises {
            name: "name resolution",
            python: "import socket\nsocket.getaddrinfo('nowhere.invalid', 80)",
            ruby: "require 'socket'\nAddrinfo.getaddrinfo('nowhere.invalid', 80)",
            network: loopback(),
            class: ["socket.gaierror", "SocketError"],
            errno: None,
            ..Raises::default()
        },
        Raises {
            name: "TLS",
            python: "import ssl, socket\nssl.create_default_context().wrap_socket(socket.create_connection(('127.0.0.1', args[0]), 5), server_hostname='localhost')",
            ruby: "require 'openssl'\nrequire 'socket'\nOpenSSL::SSL::SSLSocket.new(TCPSocket.new('127.0.0.1', args[0])).connect",
            args: vec![json!(server(Some(b"this is not TLS at all\n")))],
            network: loopback(),
            class: ["ssl.SSLError", "OpenSSL::SSL::SSLError"],
            ..Raises::default()
        },
        Raises {
            name: "socket timeout",
            python: "import urllib.request\nurllib.request.urlopen(f'http://127.0.0.1:{args[0]}/', timeout=0.2)",
            ruby: "require 'net/http'\nhttp = Net::HTTP.new('127.0.0.1', args[0])\nhttp.read_timeout = 0.2\nhttp.max_retries = 0\nhttp.get('/')",
            args: vec![json!(server(None))],
            network: loopback(),
            class: ["TimeoutError", "Net::ReadTimeout"],
            superclass: Some(["OSError", "Timeout::Error"]),
            ..Raises::default()
        },
    ]);
}

#[test]
fn connections_that_are_not_granted_are_denied() {
    check(&[
        Raises {
            name: "no network granted",
            python: "import socket\nsocket.create_connection(('127.0.0.1', 80), 5)",
            ruby: "require 'socket'\nTCPSocket.new('127.0.0.1', 80)",
            class: ["PermissionError", "Errno::EPERM"],
            superclass: Some(["OSError", "SystemCallError"]),
            errno: Some(["EPERM"; 2]),
            ..Raises::default()
        },
        Raises {
            name: "a host that is not granted",
            python: "import socket\nsocket.create_connection(('192.0.2.1', 80), 5)",
            ruby: "require 'socket'\nTCPSocket.new('192.0.2.1', 80)",
            network: Network::Loopback,
            class: ["PermissionError", "Errno::EACCES"],
            superclass: Some(["OSError", "SystemCallError"]),
            errno: Some(["EACCES"; 2]),
            ..Raises::default()
        },
    ]);
}

#[test]
fn file_errors_are_distinguished_from_program_errors() {
    check(&[
        Raises {
            name: "missing file",
            python: "open('/no/such file.csv')",
            ruby: "File.read('/no/such file.csv')",
            class: ["FileNotFoundError", "Errno::ENOENT"],
            superclass: Some(["OSError", "SystemCallError"]),
            errno: Some(["ENOENT"; 2]),
            path: Some("/no/such file.csv"),
            ..Raises::default()
        },
        Raises {
            name: "a file that may not be written",
            python: "open('/usr/bin/env', 'a')",
            ruby: "File.open('/usr/bin/env', 'a')",
            class: ["PermissionError", "Errno::EACCES"],
            superclass: Some(["OSError", "SystemCallError"]),
            errno: Some(["EACCES"; 2]),
            path: Some("/usr/bin/env"),
            ..Raises::default()
        },
    ]);
}

#[test]
fn faults_of_caller_and_program_are_reported_alike() {
    let raises =
        |name, python, ruby, class| Raises { name, python, ruby, class, ..Raises::default() };
    check(&[
        raises("type", "'a' + 1", "'a' + 1", ["TypeError"; 2]),
        raises("value", "int('x')", "Integer('x')", ["ValueError", "ArgumentError"]),
        raises("key", "{}['x']", "{}.fetch('x')", ["KeyError"; 2]),
        raises("index", "[][1]", "[].fetch(1)", ["IndexError"; 2]),
        raises("missing method", "(1).nothing()", "1.nothing", ["AttributeError", "NoMethodError"]),
        raises(
            "a class of the program",
            "class Odd(ValueError): pass\nraise Odd('x')",
            "class Odd < ArgumentError; end\nraise Odd, 'x'",
            ["Odd", "Odd"],
        ),
        Raises {
            outside_program: true,
            ..raises(
                "too few arguments to the method's function",
                "def check(a, b, n): return a",
                "def check(a, b, n:) = a",
                ["TypeError", "ArgumentError"],
            )
        },
        Raises {
            outside_program: true,
            ..raises(
                "an unknown keyword to the method's function",
                "def check(*, m=1): return m",
                "def check(m: 1) = m",
                ["TypeError", "ArgumentError"],
            )
        },
        raises(
            "the same error inside the function",
            "def check(n):\n    return len()",
            "def check(n:)\n  [].first(1, 2)\nend",
            ["TypeError", "ArgumentError"],
        ),
        raises(
            "raised with the same class in the function's own line",
            "def check(n): raise TypeError('no')",
            "def check(n:) = raise(ArgumentError, 'no')",
            ["TypeError", "ArgumentError"],
        ),
    ]);
}

/// A keyword that no parameter takes never becomes another argument.
#[test]
fn unknown_keywords_are_reported_alike() {
    let raises = |name, python, ruby| Raises {
        outside_program: true,
        name,
        python,
        ruby,
        class: ["TypeError", "ArgumentError"],
        ..Raises::default()
    };
    check(&[
        raises("no keywords", "def check(m=1): return m", "def check(m = 1) = m"),
        raises("any arguments", "def check(*all): return len(all)", "def check(*all) = all.size"),
        raises(
            "another parameter is free before the options",
            "def check(m=1, options=2): return m",
            "def check(m = 1, options = {}) = m",
        ),
    ]);
}
