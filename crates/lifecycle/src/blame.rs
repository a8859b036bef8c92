//! Blame: what an exception is attributed to before it is counted or repaired. The world, the caller, or the program.
//!
//! Decided from what the guest reports of the exception (class names, error number, file), never from its message.
//! What a program catches and reports itself is not blamed: it is an answer.

use serde_json::Value;

use crate::dialect::Inspection;
use crate::dialect::library::NETWORK;
use crate::execution::ExceptionFacts;
use crate::request::{Arguments, CallRequest};

/// Texts among a call's arguments and memory that are searched for hosts and paths.
const MAX_TEXTS: usize = 256;

/// What a failure is attributed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Something outside: a service, a file, a missing grant, another agent. Never counted, never repaired by a model.
    World,
    /// The call: arguments of a shape the stored program was never accepted with. Not counted.
    Caller,
    /// The program. Counted, and repaired.
    Program,
}

impl Blame {
    /// The wire name (`blame`).
    pub fn name(self) -> &'static str {
        match self {
            Self::World => "world",
            Self::Caller => "caller",
            Self::Program => "program",
        }
    }
}

/// What an agent's programs may reach outside their sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedAccess {
    /// Hosts they may connect to; `None`: every host.
    pub hosts: Option<Vec<String>>,
    /// Files and directories they may read or write.
    pub paths: Vec<String>,
}

impl Default for GrantedAccess {
    /// No network and no files.
    fn default() -> Self {
        Self { hosts: Some(Vec::new()), paths: Vec::new() }
    }
}

impl GrantedAccess {
    /// Whether programs may connect to anything at all.
    pub fn has_network(&self) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| !hosts.is_empty())
    }

    fn may_connect(&self, host: Option<&str>) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let granted = |host: &str| {
            hosts.iter().any(|known| known == host || known.split(':').next() == Some(host))
        };
        // Without a name it cannot be said that a host is missing from a list that has some.
        host.map_or(!hosts.is_empty(), granted)
    }

    fn may_open(&self, path: &str) -> bool {
        let within = |granted: &String| {
            path.strip_prefix(granted.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.paths.iter().any(within)
    }
}

/// Something outside that a program could not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// A service: unreachable, or answering with an error.
    Service {
        /// Its host, if the call or the program names one.
        host: Option<String>,
    },
    /// A file: missing, or not readable.
    File {
        /// Its path, if the guest reports it.
        path: Option<String>,
    },
    /// Another agent's call failed.
    Agent,
}

/// What an exception is attributed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribution {
    /// The world.
    World {
        /// What could not be used.
        outside: Outside,
        /// Whether the agent may use it at all.
        granted: bool,
        /// Whether the program itself chose it: then another program may choose better.
        chosen: bool,
    },
    /// The caller.
    Caller,
    /// The program.
    Program,
}

/// What is known when a program raises an exception.
#[derive(Debug, Clone, Copy)]
pub struct Incident<'a> {
    /// The class of the exception.
    pub class: &'a str,
    /// What else the guest reports of it.
    pub facts: &'a ExceptionFacts,
    /// The call.
    pub request: &'a CallRequest,
    /// What the program's syntax tree says.
    pub inspection: &'a Inspection,
    /// What the program may reach.
    pub access: &'a GrantedAccess,
    /// The error type of the program's last call of another agent, if that call failed.
    pub failed_call: Option<&'a str>,
    /// Whether it was accepted with arguments of this shape before; `None`: it is new.
    pub proven: Option<bool>,
}

/// Failures of another agent's call that its caller caused.
const INVALID_CALLS: &[&str] = &["invalid_call", "unknown_tool", "tool_registry_violation"];

/// Exceptions of services that cannot be reached, or that answer with an error.
const SERVICE: &[&str] = &[
    // Python
    "ConnectionError",
    "socket.gaierror",
    "socket.herror",
    "socket.timeout",
    "ssl.SSLError",
    "urllib.error.URLError",
    "http.client.HTTPException",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.HTTPError",
    "requests.exceptions.Timeout",
    "urllib3.exceptions.HTTPError",
    "httpx.TransportError",
    "httpx.HTTPStatusError",
    "aiohttp.client_exceptions.ClientConnectionError",
    "aiohttp.client_exceptions.ClientResponseError",
    "ftplib.Error",
    "smtplib.SMTPException",
    // Ruby
    "SocketError",
    "OpenSSL::SSL::SSLError",
    "Net::OpenTimeout",
    "Net::ReadTimeout",
    "Net::WriteTimeout",
    "Net::ProtocolError",
    "Net::HTTPBadResponse",
    "OpenURI::HTTPError",
    "Faraday::ConnectionFailed",
    "Faraday::ServerError",
    "Faraday::TimeoutError",
    "HTTP::ConnectionError",
    "HTTP::TimeoutError",
];

/// Exceptions of waits that took too long: of a service only in network code, else of the program's own limit.
const TIMEOUT: &[&str] = &["TimeoutError", "asyncio.exceptions.TimeoutError", "Timeout::Error"];

/// Exceptions that only a mistake in the program causes, whatever was called before.
const MISTAKE: &[&str] =
    &["NameError", "ImportError", "SyntaxError", "LoadError", "NotImplementedError"];

/// Error numbers of connections.
const SERVICE_ERRNO: &[&str] = &[
    "ECONNABORTED",
    "ECONNREFUSED",
    "ECONNRESET",
    "EADDRNOTAVAIL",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "ENETDOWN",
    "ENETRESET",
    "ENETUNREACH",
    "ENOTCONN",
    "ETIMEDOUT",
];

/// Exceptions of files that are missing or may not be used.
const FILE: &[&str] =
    &["FileNotFoundError", "PermissionError", "Errno::ENOENT", "Errno::EACCES", "Errno::EROFS"];

/// Error numbers of files.
const FILE_ERRNO: &[&str] = &["ENOENT", "EACCES", "EPERM", "EROFS"];

/// Error numbers of what the sandbox denies.
const DENIED_ERRNO: &[&str] = &["EACCES", "EPERM"];

/// Exceptions that arguments of an unexpected type, value or number cause.
const ARGUMENT: &[&str] = &[
    // Python
    "TypeError",
    "ValueError",
    "LookupError",
    "AttributeError",
    "ArithmeticError",
    // Ruby
    "ArgumentError",
    "NoMethodError",
    "IndexError",
    "RangeError",
    "ZeroDivisionError",
    "EncodingError",
    "JSON::ParserError",
];

/// **The blame table.** What an exception is attributed to.
pub fn attribute(incident: &Incident<'_>) -> Attribution {
    let Incident { facts, .. } = incident;
    let errno = |known: &[&str]| facts.errno.as_deref().is_some_and(|it| known.contains(&it));
    // A program that goes on with the value of a failed call mostly meets an error of its type, or raises one itself.
    let follows = incident.is_a(ARGUMENT) || !incident.is_a(MISTAKE);
    let suspected = incident.failed_call.filter(|_| follows);
    if let Some(code) = facts.failed_call.as_deref().or(suspected) {
        // Counted once, at the agent that failed; here only if the call itself was wrong.
        let is_own = INVALID_CALLS.contains(&code);
        let agent = Attribution::World { outside: Outside::Agent, granted: true, chosen: true };
        return if is_own { Attribution::Program } else { agent };
    }
    let uses_network = incident.inspection.calls_any(NETWORK);
    // A server that closes a connection early; a program without network code read a file or its input to the end.
    let is_cut_off = uses_network && facts.path.is_none() && incident.is_a(&["EOFError"]);
    let is_late = uses_network && incident.is_a(TIMEOUT);
    if incident.is_a(SERVICE) || errno(SERVICE_ERRNO) || is_cut_off || is_late {
        return incident.service();
    }
    if facts.path.is_some() && (incident.is_a(FILE) || errno(FILE_ERRNO)) {
        return incident.file();
    }
    if errno(DENIED_ERRNO) && (uses_network || !incident.access.has_network()) {
        return incident.service();
    }
    if incident.is_a(FILE) {
        return incident.file();
    }
    if incident.proven == Some(false) && incident.is_a(ARGUMENT) {
        return Attribution::Caller;
    }
    Attribution::Program
}

impl Incident<'_> {
    /// Whether the exception, or the one it was raised because of, is of one of these classes.
    fn is_a(&self, known: &[&str]) -> bool {
        let Self { class, facts, .. } = self;
        let chains = facts.class_chain.iter().chain(&facts.cause_chain).map(String::as_str);
        let plain = |name: &str| name.strip_prefix("builtins.").unwrap_or(name).to_owned();
        std::iter::once(*class).chain(chains).any(|name| known.contains(&plain(name).as_str()))
    }

    fn service(&self) -> Attribution {
        let given = texts(self.request).find_map(host_of);
        let written = || literals(self.inspection).find_map(host_of);
        let chosen = given.is_none() && written().is_some();
        let host = given.or_else(written);
        let granted = self.access.may_connect(host.as_deref());
        Attribution::World { outside: Outside::Service { host }, granted, chosen }
    }

    fn file(&self) -> Attribution {
        let path = self.facts.path.clone();
        let named = |text: &str| path.as_deref().is_some_and(|path| names_path(text, path));
        let given = texts(self.request).any(named);
        let chosen = !given && literals(self.inspection).any(named);
        let granted = path.as_deref().is_some_and(|path| self.access.may_open(path));
        Attribution::World { outside: Outside::File { path }, granted, chosen }
    }
}

/// The texts of a call's arguments and memory.
fn texts(request: &CallRequest) -> impl Iterator<Item = &str> {
    let Arguments { args, kwargs } = &request.arguments;
    let memory = request.context.iter().map(|(_, value)| value);
    let mut pending: Vec<&Value> = memory.chain(kwargs.values()).chain(args).collect();
    std::iter::from_fn(move || {
        loop {
            match pending.pop()? {
                Value::String(text) => return Some(text.as_str()),
                Value::Array(items) => pending.extend(items.iter().take(MAX_TEXTS)),
                Value::Object(fields) => pending.extend(fields.values().take(MAX_TEXTS)),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
    })
    .take(MAX_TEXTS)
}

fn literals(inspection: &Inspection) -> impl Iterator<Item = &str> {
    inspection.literals.iter().filter_map(|literal| literal.value.as_str())
}

/// The host a text names: that of a URL, or a text that is a host name or an address and nothing else.
fn host_of(text: &str) -> Option<String> {
    let text = text.trim();
    let (rest, is_url) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(char::is_alphanumeric) => (rest, true),
        Some(_) => return None,
        None => (text, false),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.chars().all(|c| c.is_ascii_digit()) { name } else { host }
    });
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-.[]:_".contains(c);
    let is_host = !host.is_empty() && host.chars().all(is_name);
    let is_dotted = host == "localhost"
        || (host.contains('.')
            && !host.ends_with('.')
            && host.rsplit('.').next().is_some_and(is_top_level));
    (is_host && (is_url || (authority.len() == rest.len() && is_dotted))).then(|| host.to_owned())
}

/// Whether this can be the last label of a host name or address. A name that ends like a file counts only in a URL.
fn is_top_level(label: &str) -> bool {
    const FILES: &[&str] = &[
        "csv", "gz", "html", "jpg", "json", "log", "md", "pdf", "png", "py", "rb", "sqlite",
        "toml", "tsv", "txt", "xlsx", "xml", "yaml", "yml", "zip", "db",
    ];
    let is_number = label.chars().all(|c| c.is_ascii_digit());
    is_number || (label.len() >= 2 && !FILES.contains(&label))
}

/// Whether a text names this file: the same path, or a relative one of it.
fn names_path(text: &str, path: &str) -> bool {
    let text = text.trim().trim_start_matches("./");
    !text.is_empty()
        && (text == path || path.trim_start_matches("./") == text || {
            path.strip_suffix(text).is_some_and(|head| head.ends_with('/'))
                || text.strip_suffix(path).is_some_and(|head| head.ends_with('/'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Language, inspect};

    #[test]
    fn a_host_is_that_of_a_url_or_stands_alone() {
        for (text, expected) in [
            ("http://shop.example/list?page=2", Some("shop.example")),
            ("https://user:pass@shop.example:8443/", Some("shop.example")),
            ("ftp://10.0.0.7/x", Some("10.0.0.7")),
            ("shop.example", Some("shop.example")),
            ("shop.example:8080", Some("shop.example")),
            ("localhost", Some("localhost")),
            ("sales.csv", None),
            ("see shop.example for more", None),
            ("hello", None),
            ("3.5 litres", None),
            ("", None),
        ] {
            assert_eq!(host_of(text).as_deref(), expected, "{text}");
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

    /// The classes of exceptions that guests report, and what they are attributed to on a proven and on a new shape.
    #[test]
    fn exceptions_are_attributed_by_their_classes() {
        let request = CallRequest::bare("c", "m");
        let inspection = inspect(Language::Python, "result = args[0]").unwrap();
        let access = GrantedAccess { hosts: None, paths: vec!["/srv".to_owned()] };
        let attributed = |chain: &[&str], proven| {
            let class_chain = chain.iter().map(|name| (*name).to_owned()).collect();
            let facts = ExceptionFacts { class_chain, ..ExceptionFacts::default() };
            let (request, inspection, access) = (&request, &inspection, &access);
            let class = chain.first().copied().unwrap_or_default();
            let failed_call = None;
            let incident =
                Incident { class, facts: &facts, request, inspection, access, failed_call, proven };
            match attribute(&incident) {
                Attribution::World { .. } => Blame::World,
                Attribution::Caller => Blame::Caller,
                Attribution::Program => Blame::Program,
            }
        };
        for (chain, unproven) in [
            (&["ConnectionRefusedError", "ConnectionError", "OSError"][..], Blame::World),
            (&["socket.gaierror", "OSError"], Blame::World),
            (&["ssl.SSLCertVerificationError", "ssl.SSLError", "OSError"], Blame::World),
            // The program has no network code: the wait is its own.
            (&["TimeoutError", "OSError"], Blame::Program),
            (&["FileNotFoundError", "OSError"], Blame::World),
            (&["Socket::ResolutionError", "SocketError"], Blame::World),
            (&["Net::OpenTimeout", "Timeout::Error"], Blame::World),
            (&["OpenSSL::SSL::SSLError"], Blame::World),
            (&["KeyError", "LookupError", "Exception"], Blame::Caller),
            (&["json.decoder.JSONDecodeError", "ValueError"], Blame::Caller),
            (&["ZeroDivisionError", "ArithmeticError"], Blame::Caller),
            (&["NoMethodError", "NameError", "StandardError"], Blame::Caller),
            (&["Date::Error", "ArgumentError"], Blame::Caller),
            (&["AssertionError", "Exception"], Blame::Program),
            (&["NameError", "StandardError"], Blame::Program),
            (&["RuntimeError", "Exception"], Blame::Program),
        ] {
            let proven = if unproven == Blame::Caller { Blame::Program } else { unproven };
            assert_eq!(attributed(chain, Some(false)), unproven, "{chain:?}");
            assert_eq!(attributed(chain, Some(true)), proven, "{chain:?}");
            assert_eq!(attributed(chain, None), proven, "{chain:?} of a new program");
        }
    }

    #[test]
    fn a_connection_that_ends_early_or_is_denied_is_a_service_only_in_network_code() {
        const FETCHES: &str = "require 'net/http'\ndef get(url)\n  Net::HTTP.get(URI(url))\nend";
        const READS: &str = "def get(path)\n  File.open(path) { |file| file.readline }\nend";
        let mut request = CallRequest::bare("web", "get");
        request.arguments.args = vec![Value::from("http://127.0.0.1:8080/a")];
        let access =
            GrantedAccess { hosts: Some(vec!["example.com".to_owned()]), paths: Vec::new() };
        for (code, class, errno, is_service) in [
            (FETCHES, "EOFError", None, true),
            (READS, "EOFError", None, false),
            (FETCHES, "Timeout::Error", None, true),
            (READS, "Timeout::Error", None, false),
            (FETCHES, "Errno::EACCES", Some("EACCES"), true),
            (READS, "Errno::EACCES", Some("EACCES"), false),
        ] {
            let errno = errno.map(str::to_owned);
            let facts = ExceptionFacts { errno, ..ExceptionFacts::default() };
            let inspection = inspect(Language::Ruby, code).unwrap();
            let found = attribute(&Incident {
                class,
                facts: &facts,
                request: &request,
                inspection: &inspection,
                access: &access,
                failed_call: None,
                proven: Some(true),
            });
            let host = Some("127.0.0.1".to_owned());
            let service = Attribution::World {
                outside: Outside::Service { host },
                granted: false,
                chosen: false,
            };
            assert_eq!(found == service, is_service, "{class} of {code}: {found:?}");
        }
    }

    #[test]
    fn granted_hosts_and_paths_are_recognised() {
        let access = GrantedAccess {
            hosts: Some(vec!["api.example".to_owned(), "shop.example:443".to_owned()]),
            paths: vec!["/srv/data".to_owned()],
        };
        for (host, expected) in [
            (Some("api.example"), true),
            (Some("shop.example"), true),
            (Some("x.example"), false),
            (None, true),
        ] {
            assert_eq!(access.may_connect(host), expected, "{host:?}");
        }
        for (path, expected) in
            [("/srv/data/x", true), ("/srv/data", true), ("/srv/database", false)]
        {
            assert_eq!(access.may_open(path), expected, "{path}");
        }
        assert!(!GrantedAccess::default().may_connect(None), "no network at all");
    }
}
