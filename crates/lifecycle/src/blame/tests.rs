use serde_json::Value;

use super::*;
use crate::dialect::{Language, inspect};
use crate::provenance::ObservedSource;
use classes::GROUP;

const PYTHON_FETCHES: &str =
    "import urllib.request\ndef get(url):\n    return urllib.request.urlopen(url).read()";
const RUBY_FETCHES: &str = "require 'net/http'\ndef get(url)\n  Net::HTTP.get(URI(url))\nend";
const RUBY_READS: &str = "def get(path)\n  File.open(path) { |file| file.readline }\nend";

#[test]
fn a_host_is_that_of_a_url_or_stands_alone() {
    for (text, expected) in [
        ("http://shop.example/list?page=2", Some(("shop.example", Some(80)))),
        ("https://user:pass@shop.example:8443/", Some(("shop.example", Some(8443)))),
        ("ftp://10.0.0.7/x", Some(("10.0.0.7", None))),
        ("http://[::1]:80/", Some(("::1", Some(80)))),
        ("shop.example", Some(("shop.example", None))),
        ("shop.example:8080", Some(("shop.example", Some(8080)))),
        ("localhost", Some(("localhost", None))),
        ("sales.csv", None),
        ("see shop.example for more", None),
        ("hello", None),
        ("3.5 litres", None),
        ("3.5", None),
        ("10.0.0.7", Some(("10.0.0.7", None))),
        ("http://127.0.0.1:", Some(("127.0.0.1", None))),
        ("https://api.", None),
        ("", None),
    ] {
        let found = Endpoint::of(text);
        let found = found.as_ref().map(|it| (it.host.as_str(), it.port));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_place_that_was_contacted_has_a_port() {
    for (text, host, port) in [
        ("shop.example:443", "shop.example", Some(443)),
        ("::1:8080", "::1", Some(8080)),
        ("[::1]:8080", "::1", Some(8080)),
        ("2001:db8::1:443", "2001:db8::1", Some(443)),
        ("shop.example", "shop.example", None),
    ] {
        let found = Endpoint::contacted(text);
        assert_eq!((found.host.as_str(), found.port), (host, port), "{text}");
    }
    assert!(Endpoint::of("https://Shop.Example/").unwrap().is_of("shop.example"));
}

/// The rest of an address may be computed.
#[test]
fn a_text_of_a_program_names_a_host_if_it_is_whole() {
    for (text, expected) in [
        ("https://shop.example", Some("shop.example")),
        ("https://intranet/list", Some("intranet")),
        ("http://localhost", Some("localhost")),
        ("http://localhost:", Some("localhost")),
        ("https://db", None),
        ("https://api.", None),
        ("https://", None),
    ] {
        let found = Endpoint::of_program(text);
        assert_eq!(found.as_ref().map(|it| it.host.as_str()), expected, "{text}");
    }
}

#[test]
fn a_file_is_named_by_its_path_or_the_end_of_it() {
    for (text, path, expected) in [
        ("sales.csv", "/srv/sales.csv", true),
        ("./sales.csv", "sales.csv", true),
        ("/srv/sales.csv", "sales.csv", true),
        ("les.csv", "/srv/sales.csv", false),
        ("", "/srv/sales.csv", false),
    ] {
        assert_eq!(names_path(text, path), expected, "{text} {path}");
    }
}

#[test]
fn relative_paths_are_found_by_name_or_in_the_workspace() {
    let access = GrantedAccess {
        paths: vec!["/home/a/data".to_owned(), "/w".to_owned()],
        names: vec!["data".to_owned()],
        ..GrantedAccess::default()
    };
    let found = |path: &str| access.is_reachable(path);
    assert!(found("data/x.csv") && found("./data") && !found("database") && !found("x.csv"));
    assert!(access.workspace_of("x.csv").is_none());
    let workspace =
        Some(Workspace { path: "/w".to_owned(), writable: false, is_of_another_user: false });
    let access = GrantedAccess { workspace, ..access };
    assert!(access.is_reachable("x.csv"));
    assert!(access.workspace_of("x.csv").is_some() && access.workspace_of("/w/x.csv").is_some());
    assert!(access.workspace_of("/elsewhere/x.csv").is_none());
}

#[test]
fn granted_hosts_and_paths_are_recognised() {
    let access = GrantedAccess {
        hosts: Some(["api.example", "shop.example:443", "localhost"].map(str::to_owned).to_vec()),
        paths: vec!["/srv/data".to_owned(), "/home/a/sales.csv".to_owned()],
        ..GrantedAccess::default()
    };
    for (host, port, expected) in [
        (Some("api.example"), Some(9), true),
        (Some("shop.example"), None, true),
        (Some("shop.example"), Some(443), true),
        (Some("shop.example"), Some(80), false),
        (Some("127.0.0.1"), Some(80), true),
        (Some("x.example"), None, false),
        (None, None, true),
    ] {
        assert_eq!(access.may_connect(host, port), expected, "{host:?} {port:?}");
    }
    for (path, expected) in [
        ("/srv/data/x", true),
        ("/srv/data", true),
        ("/srv/database", false),
        ("sales.csv", true),
        ("./sales.csv", true),
        ("data/2024/x.csv", true),
        ("/elsewhere/sales.csv", false),
        ("other/x.csv", false),
    ] {
        assert_eq!(access.granted_path(path).is_some(), expected, "{path}");
    }
    assert!(!GrantedAccess::default().may_connect(None, None), "no network at all");
}

fn link(chain: &[&str]) -> ExceptionLink {
    let class_chain = chain.iter().map(|name| (*name).to_owned()).collect();
    ExceptionLink { class_chain, ..ExceptionLink::default() }
}

fn of(exception: ExceptionLink) -> ExceptionFacts {
    ExceptionFacts { exception, ..ExceptionFacts::default() }
}

/// What is known of the program that raised: its text, its arguments, and whether it is proven on their shape.
#[derive(Clone, Copy)]
struct Scene<'a> {
    language: Language,
    code: &'a str,
    args: &'a [&'a str],
    proven: Option<bool>,
    /// Where it raised.
    line: Option<u32>,
    /// The error type of its last call of another agent, if that failed.
    failed_call: Option<&'a str>,
    /// Whether another agent answered it.
    answered: bool,
}

const STORED: Scene<'_> = Scene {
    language: Language::Python,
    code: "result = args[0]",
    args: &[],
    proven: Some(true),
    line: None,
    failed_call: None,
    answered: false,
};

impl Scene<'_> {
    fn attribute(&self, facts: &ExceptionFacts) -> Attribution {
        let mut request = CallRequest::bare("c", "m");
        request.arguments.args = self.args.iter().map(|text| Value::from(*text)).collect();
        let reached = ObservedSource { uri: "x:80".into(), fetched_at: String::new(), tool: None };
        attribute(&Incident {
            facts,
            request: &request,
            inspection: &inspect(self.language, self.code).unwrap(),
            access: &GrantedAccess {
                hosts: Some(vec!["example.com:443".to_owned()]),
                paths: vec!["/srv".to_owned()],
                ..GrantedAccess::default()
            },
            observed: &Observation {
                agent_answered: self.answered,
                ..Observation::of_sources(
                    (self.code == PYTHON_FETCHES || self.code == RUBY_FETCHES).then_some(reached),
                )
            },
            failed_call: self.failed_call,
            proven: self.proven,
            location: self.line.map(|line| Position { line, column: 1 }),
        })
    }

    fn blame(&self, facts: &ExceptionFacts) -> Blame {
        match self.attribute(facts) {
            Attribution::World { .. } => Blame::World,
            Attribution::Caller => Blame::Caller,
            Attribution::Program => Blame::Program,
        }
    }
}

/// The classes of exceptions that guests report, and what they are attributed to on a shape that is not proven. On
/// a proven one, and of a new program, the program is to blame instead of the caller.
#[test]
fn exceptions_are_attributed_by_their_classes() {
    for (chain, unproven) in [
        (&["ConnectionRefusedError", "ConnectionError", "OSError"][..], Blame::World),
        (&["socket.gaierror", "OSError"], Blame::World),
        (&["ssl.SSLCertVerificationError", "ssl.SSLError", "OSError"], Blame::World),
        // The program has no network code: the wait is its own.
        (&["TimeoutError", "OSError"], Blame::Program),
        (&["FileNotFoundError", "OSError"], Blame::World),
        (&["IsADirectoryError", "OSError"], Blame::World),
        (&["NotADirectoryError", "OSError"], Blame::World),
        (&["Errno::EISDIR", "SystemCallError"], Blame::World),
        (&["Socket::ResolutionError", "SocketError"], Blame::World),
        (&["Net::OpenTimeout", "Timeout::Error"], Blame::World),
        (&["OpenSSL::SSL::SSLError"], Blame::World),
        (&["SQLite3::BusyException", "SQLite3::Exception"], Blame::World),
        (&["SQLite3::CantOpenException", "SQLite3::Exception"], Blame::World),
        (&["SQLite3::SQLException", "SQLite3::Exception"], Blame::Caller),
        (&["sqlite3.OperationalError", "sqlite3.DatabaseError"], Blame::Caller),
        (&["KeyError", "LookupError", "Exception"], Blame::Caller),
        (&["json.decoder.JSONDecodeError", "ValueError"], Blame::Caller),
        (&["xml.etree.ElementTree.ParseError", "SyntaxError"], Blame::Caller),
        (&["SyntaxError"], Blame::Caller),
        (&["re.error", "Exception"], Blame::Caller),
        (&["zoneinfo._common.ZoneInfoNotFoundError", "KeyError", "LookupError"], Blame::Caller),
        (&["RegexpError"], Blame::Caller),
        (&["URI::InvalidURIError", "URI::Error"], Blame::Caller),
        (&["ZeroDivisionError", "ArithmeticError"], Blame::Caller),
        (&["NoMethodError", "NameError", "StandardError"], Blame::Caller),
        (&["NoMatchingPatternKeyError", "NoMatchingPatternError"], Blame::Caller),
        (&["Date::Error", "ArgumentError"], Blame::Caller),
        (&["AssertionError", "Exception"], Blame::Caller),
        (&["StopIteration", "Exception"], Blame::Caller),
        (&["StopIteration", "IndexError", "StandardError"], Blame::Caller),
        (&["NameError", "StandardError"], Blame::Program),
        (&["RecursionError", "RuntimeError"], Blame::Program),
        (&["RuntimeError", "Exception"], Blame::Program),
    ] {
        let proven = if unproven == Blame::Caller { Blame::Program } else { unproven };
        for (of_shape, expected) in [(Some(false), unproven), (Some(true), proven), (None, proven)]
        {
            let scene = Scene { proven: of_shape, ..STORED };
            assert_eq!(scene.blame(&of(link(chain))), expected, "{chain:?}, proven {of_shape:?}");
        }
    }
}

/// A text that is not a date is the caller's, also if the program was accepted with other texts. A key or an index that
/// is not there is a case that the program forgot.
#[test]
fn a_value_that_a_program_rejects_is_the_callers() {
    let convert = "def m(x):\n    return int(x['n'])";
    let fetch = PYTHON_FETCHES;
    for (chain, code, args, answered, expected) in [
        (&["ValueError"][..], convert, &["2024-13-45"][..], false, Blame::Caller),
        (&["Date::Error", "ArgumentError"], convert, &["x"], false, Blame::Caller),
        (&["decimal.InvalidOperation", "ArithmeticError"], convert, &["x"], false, Blame::Caller),
        (&["ZeroDivisionError", "ArithmeticError"], convert, &["x"], false, Blame::Caller),
        (&["FloatDomainError", "RangeError"], convert, &["x"], false, Blame::Caller),
        (&["AssertionError"], convert, &["x"], false, Blame::Caller),
        (&["JSON::ParserError"], convert, &["{"], false, Blame::Caller),
        (&["TypeError"], convert, &["x"], false, Blame::Caller),
        (&["TypeError"], "def m(x):\n    return 1 + x", &["x"], false, Blame::Program),
        (&["IndexError", "LookupError"], convert, &["x"], false, Blame::Program),
        (&["KeyError", "LookupError"], convert, &["x"], false, Blame::Program),
        (&["AttributeError"], convert, &["x"], false, Blame::Program),
        (&["NoMethodError", "NameError"], convert, &["x"], false, Blame::Program),
        (&["RuntimeError"], convert, &["x"], false, Blame::Program),
        (&["ValueError"], convert, &[], false, Blame::Program),
        (&["ValueError"], convert, &["x"], true, Blame::Program),
        (&["ValueError"], fetch, &["x"], false, Blame::Program),
    ] {
        let scene = Scene { code, args, answered, line: Some(2), ..STORED };
        let facts = of(link(chain));
        assert_eq!(scene.blame(&facts), expected, "{chain:?} of {code:?} {args:?} {answered}");
    }
}

/// A service that is down is to blame also behind an error that the program raises because of it. An error that the
/// handler itself makes is the program's.
#[test]
fn an_error_that_is_raised_on_purpose_passes_on_what_it_was_raised_for() {
    let python = "import urllib.request\ndef get(u):\n    try:\n        return urllib.request.urlopen(u)\n    \
                  except Exception as e:\n        raise ValueError(f'could not fetch {e.url}')";
    let ruby = "require 'net/http'\ndef get(u)\n  Net::HTTP.get(URI(u))\nrescue => e\n  \
                raise ArgumentError, \"could not fetch #{e.url}\"\nend";
    let refused = &["ConnectionRefusedError", "ConnectionError", "OSError"][..];
    for (language, code, line, class, cause, expected) in [
        (Language::Python, python, 6, "ValueError", refused, Blame::World),
        (Language::Python, python, 6, "AttributeError", refused, Blame::Program),
        (Language::Python, python, 4, "ValueError", refused, Blame::Caller),
        (Language::Python, python, 6, "ValueError", &["KeyError", "LookupError"], Blame::Caller),
        (Language::Ruby, ruby, 5, "ArgumentError", &["SocketError"], Blame::World),
        (Language::Ruby, ruby, 5, "NoMethodError", &["SocketError"], Blame::Program),
    ] {
        let causes = vec![link(cause)];
        let facts = ExceptionFacts { causes, ..of(link(&[class])) };
        let scene = Scene { language, code, args: &["x"], line: Some(line), ..STORED };
        assert_eq!(scene.blame(&facts), expected, "{class} in line {line}, {cause:?}");
    }
}

/// A program that raises by a statement of its own gives up on what it was given, of whatever class the exception is.
#[test]
fn a_program_that_gives_up_on_its_arguments_is_not_at_fault() {
    let code =
        "def m(x):\n    if x != 'a':\n        raise RuntimeError('no ' + x)\n    return x + 1";
    for (line, args, answered, proven, expected) in [
        (3, &["x"][..], false, Some(true), Blame::Caller),
        (3, &["x"], false, Some(false), Blame::Caller),
        (3, &["x"], false, None, Blame::Program),
        (3, &["x"], true, Some(true), Blame::Program),
        (3, &[], false, Some(true), Blame::Program),
        (4, &["x"], false, Some(true), Blame::Program),
    ] {
        let scene = Scene { code, args, answered, proven, line: Some(line), ..STORED };
        let blame = scene.blame(&of(link(&["RuntimeError", "Exception"])));
        assert_eq!(blame, expected, "line {line}, {args:?} {answered} {proven:?}");
    }
}

/// A file that nothing grants does not exist to a program: one that asks for it and raises is not at fault.
#[test]
fn a_file_that_is_not_granted_is_not_there() {
    let asking = "import os\ndef m(p):\n    if not os.path.exists(p):\n        raise RuntimeError(p)\n    return open(p).read()";
    let opening = "def m(p):\n    return open(p).read()";
    let other = "def m(p):\n    return p.upper()";
    let found = |code: &str, path: &str| {
        let mut request = CallRequest::bare("c", "m");
        request.arguments.args = vec![Value::from(path)];
        let access = GrantedAccess { paths: vec!["/srv".to_owned()], ..GrantedAccess::default() };
        unseen_file(&request, &inspect(Language::Python, code).unwrap(), &access)
    };
    for (code, path, expected) in [
        (asking, "/data/a.csv", true),
        (opening, "/data/a.csv", true),
        (asking, "/srv/a.csv", false),
        (asking, "/usr/share/a.csv", false),
        (asking, "a.csv", true),
        (opening, "a.csv", false),
        (asking, "hello", false),
        (other, "/data/a.csv", false),
    ] {
        assert_eq!(found(code, path).is_some(), expected, "{path} in {code}");
    }
    let scene = Scene { code: asking, args: &["/data/a.csv"], line: Some(4), ..STORED };
    for proven in [None, Some(true), Some(false)] {
        let scene = Scene { proven, ..scene };
        assert_eq!(scene.blame(&of(link(&["RuntimeError"]))), Blame::World, "{proven:?}");
    }
}

/// A program that handled a failed call and then makes a mistake is to blame; one that gives up because of it is not.
#[test]
fn a_failed_call_that_was_handled_excuses_nothing() {
    let code = "def m(x):\n    r = tool('t').get(x)\n    if r.error:\n        notes[3]\n    raise ValueError('no rate')";
    for (class, line, expected) in
        [("IndexError", 4, Blame::Program), ("ValueError", 5, Blame::World)]
    {
        let failed_call = Some("not_found");
        let scene = Scene { code, args: &["x"], line: Some(line), failed_call, ..STORED };
        assert_eq!(scene.blame(&of(link(&[class]))), expected, "{class}");
    }
}

#[test]
fn errors_of_a_database_are_attributed_by_their_number() {
    for (errno, expected) in [
        ("SQLITE_CANTOPEN", Blame::World),
        ("SQLITE_BUSY", Blame::World),
        ("SQLITE_LOCKED", Blame::World),
        ("SQLITE_NOTADB", Blame::World),
        ("SQLITE_ERROR", Blame::Program),
    ] {
        let chain = ["sqlite3.OperationalError", "sqlite3.DatabaseError", "sqlite3.Error"];
        let facts = of(ExceptionLink { errno: Some(errno.to_owned()), ..link(&chain) });
        assert_eq!(STORED.blame(&facts), expected, "{errno}");
    }
    let facts = of(ExceptionLink {
        errno: Some("SQLITE_CANTOPEN".into()),
        ..link(&["sqlite3.OperationalError"])
    });
    let scene = Scene { args: &["/data/a.db"], ..STORED };
    let outside = Outside::File {
        path: Some("/data/a.db".to_owned()),
        granted_as: None,
        in_workspace: false,
        is_change: false,
        shut_out_of: None,
    };
    let expected = Attribution::World { outside, granted: false, chosen: false };
    assert_eq!(scene.attribute(&facts), expected);
}

/// The exceptions of a chain, the outermost first, and how each after it is linked.
#[test]
fn the_exception_that_decides_is_found_in_the_chain() {
    use LinkKind::{Handled, Named};
    let refused = ["ConnectionRefusedError", "ConnectionError", "OSError"];
    let missing = ["FileNotFoundError", "OSError"];
    let http = ["urllib.error.HTTPError", "urllib.error.URLError", "OSError"];
    for (name, outer, causes, expected) in [
        (
            "a wrapper that names its cause",
            &["RuntimeError"][..],
            &[(Named, &refused[..])][..],
            Blame::World,
        ),
        ("a wrapper in a handler", &["Exception"], &[(Handled, &refused)], Blame::World),
        (
            "a class of the program",
            &["__main__.NoPage", "Exception"],
            &[(Handled, &refused)],
            Blame::World,
        ),
        ("a value error that names its cause", &["ValueError"], &[(Named, &missing)], Blame::World),
        ("a name error in a handler", &["NameError"], &[(Handled, &missing)], Blame::Program),
        ("a type error in a handler", &["TypeError"], &[(Handled, &missing)], Blame::Program),
        (
            "a key error in a handler",
            &["KeyError", "LookupError"],
            &[(Handled, &refused)],
            Blame::Program,
        ),
        ("a name error that names its cause", &["NameError"], &[(Named, &missing)], Blame::Program),
        (
            "within a handler of another",
            &["RuntimeError"],
            &[(Named, &http), (Handled, &["KeyError", "LookupError"])],
            Blame::World,
        ),
        (
            "behind two wrappers",
            &["RuntimeError"],
            &[(Handled, &["Exception"]), (Handled, &missing)],
            Blame::World,
        ),
        (
            "a key error behind a wrapper",
            &["RuntimeError"],
            &[(Named, &["KeyError", "LookupError"]), (Handled, &missing)],
            Blame::Program,
        ),
    ] {
        let causes =
            causes.iter().map(|(kind, chain)| ExceptionLink { kind: *kind, ..link(chain) });
        let facts = ExceptionFacts { causes: causes.collect(), ..of(link(outer)) };
        assert_eq!(STORED.blame(&facts), expected, "{name}");
    }
}

#[test]
fn a_group_is_the_programs_fault_if_one_of_its_members_is() {
    let refused = &["ConnectionRefusedError", "ConnectionError", "OSError"][..];
    for (members, unproven) in [
        (&[refused, refused][..], Blame::World),
        (&[refused, &["KeyError", "LookupError"]], Blame::Caller),
        (&[&["KeyError", "LookupError"], &["NameError"], refused], Blame::Program),
        (&[], Blame::Program),
    ] {
        let member = |chain: &&[&str]| ExceptionLink { kind: LinkKind::Member, ..link(chain) };
        let facts = ExceptionFacts {
            causes: members.iter().map(member).collect(),
            ..of(link(&["ExceptionGroup", GROUP, "Exception"]))
        };
        let scene = Scene { proven: Some(false), ..STORED };
        assert_eq!(scene.blame(&facts), unproven, "{members:?}");
    }
}

/// What cannot be read of an answer, by the status that the program held.
#[test]
fn an_answer_that_cannot_be_read_is_the_services_fault_if_it_is_an_error_or_could_be_read_before() {
    let json = &["json.decoder.JSONDecodeError", "ValueError"][..];
    for (class, status, proven, expected) in [
        (json, Some(503), Some(true), Blame::World),
        (json, Some(503), None, Blame::World),
        (json, Some(200), Some(true), Blame::World),
        (json, Some(200), None, Blame::Program),
        (json, None, Some(true), Blame::World),
        (json, None, None, Blame::Program),
        (&["RuntimeError"], Some(503), None, Blame::World),
        (&["RuntimeError"], Some(200), Some(true), Blame::Program),
        (&["KeyError", "LookupError"], Some(503), Some(true), Blame::World),
        (&["KeyError", "LookupError"], Some(503), None, Blame::Program),
        (&["NameError"], Some(503), Some(true), Blame::Program),
        (&["KeyError", "LookupError"], None, Some(true), Blame::Program),
    ] {
        let facts = ExceptionFacts { http_status: status, ..of(link(class)) };
        let scene = Scene { code: PYTHON_FETCHES, proven, ..STORED };
        assert_eq!(scene.blame(&facts), expected, "{class:?} {status:?} {proven:?}");
    }
    let facts = of(link(json));
    assert_eq!(STORED.blame(&facts), Blame::Program, "a program that fetched nothing");
}

#[test]
fn a_connection_that_ends_early_or_is_denied_is_a_service_only_in_network_code() {
    for (code, class, errno, is_service) in [
        (RUBY_FETCHES, "EOFError", None, true),
        (RUBY_READS, "EOFError", None, false),
        (RUBY_FETCHES, "Timeout::Error", None, true),
        (RUBY_READS, "Timeout::Error", None, false),
        (RUBY_FETCHES, "Errno::EACCES", Some("EACCES"), true),
        (RUBY_READS, "Errno::EACCES", Some("EACCES"), false),
    ] {
        let facts = of(ExceptionLink { errno: errno.map(str::to_owned), ..link(&[class]) });
        let args = &["http://127.0.0.1:8080/a"][..];
        let scene = Scene { language: Language::Ruby, code, args, ..STORED };
        let found = scene.attribute(&facts);
        let outside = Outside::Service { host: Some("127.0.0.1".to_owned()), port: None };
        let service = Attribution::World { outside, granted: false, chosen: false };
        assert_eq!(found == service, is_service, "{class} of {code}: {found:?}");
    }
}

/// A refused connection is a missing grant, even if another port of the host is granted.
#[test]
fn a_port_that_is_not_granted_is_named() {
    let denied = of(ExceptionLink {
        errno: Some("EACCES".to_owned()),
        ..link(&["PermissionError", "OSError"])
    });
    for (url, port) in
        [("https://example.com:8443/", 8443), ("http://example.com/", 80), ("example.com:9", 9)]
    {
        let scene = Scene { code: PYTHON_FETCHES, args: &[url], ..STORED };
        let outside = Outside::Service { host: Some("example.com".to_owned()), port: Some(port) };
        let expected = Attribution::World { outside, granted: false, chosen: false };
        assert_eq!(scene.attribute(&denied), expected, "{url}");
    }
}

/// What the call does not name, the program chose, whether it wrote it down or computed it.
#[test]
fn what_the_call_does_not_name_was_chosen_by_the_program() {
    let refused = of(link(&["ConnectionRefusedError", "ConnectionError", "OSError"]));
    let missing = |path: &str| {
        of(ExceptionLink { path: Some(path.to_owned()), ..link(&["FileNotFoundError"]) })
    };
    let computed = "import urllib.request\nh = 'shop' + '.example'\nurllib.request.urlopen('http:' + '//' + h)";
    for (code, args, facts, expected) in [
        (PYTHON_FETCHES, &["http://a.example/"][..], &refused, false),
        (PYTHON_FETCHES, &["oslo"], &refused, true),
        (computed, &["oslo"], &refused, true),
        ("result = open(args[0])", &["sales.csv"], &missing("/srv/sales.csv"), false),
        ("result = open('/tmp/' + 'cache')", &["oslo"], &missing("/tmp/cache"), true),
    ] {
        let found = Scene { code, args, proven: None, ..STORED }.attribute(facts);
        let chosen = matches!(found, Attribution::World { chosen: true, .. });
        assert_eq!(chosen, expected, "{code} {found:?}");
    }
}
