//! Which programs fetch external data: by their own network use, or through a tool that does.

use crate::dialect::{Call, Inspection, Operand};

/// Words in the name of a tool that say it fetches.
const FETCHING_WORDS: &[&str] = &["fetch", "scrape", "crawl", "download"];

/// Python functions and classes that reach the network, by full name; one that ends in `.` stands for
/// all that start with it.
const PYTHON: &[&str] = &[
    "aiohttp.ClientSession",
    "aiohttp.request",
    "ftplib.",
    "http.client.HTTPConnection",
    "http.client.HTTPSConnection",
    "httpx.AsyncClient",
    "httpx.Client",
    "httpx.delete",
    "httpx.get",
    "httpx.head",
    "httpx.options",
    "httpx.patch",
    "httpx.post",
    "httpx.put",
    "httpx.request",
    "httpx.stream",
    "imaplib.",
    "nntplib.",
    "poplib.",
    "pycurl.Curl",
    "requests.Session",
    "requests.api.",
    "requests.delete",
    "requests.get",
    "requests.head",
    "requests.options",
    "requests.patch",
    "requests.post",
    "requests.put",
    "requests.request",
    "requests.session",
    "requests.sessions.Session",
    "smtplib.",
    "socket.create_connection",
    "socket.socket",
    "telnetlib.",
    "urllib.request.FancyURLopener",
    "urllib.request.URLopener",
    "urllib.request.build_opener",
    "urllib.request.urlopen",
    "urllib.request.urlretrieve",
    "urllib3.HTTPConnectionPool",
    "urllib3.HTTPSConnectionPool",
    "urllib3.PoolManager",
    "urllib3.ProxyManager",
    "urllib3.request",
    "websockets.",
    "xmlrpc.client.ServerProxy",
];

/// Ruby classes that reach the network, with those inside them.
const RUBY: &[&str] = &[
    "Curl",
    "Down",
    "Excon",
    "Faraday",
    "HTTP",
    "HTTPClient",
    "HTTPX",
    "HTTParty",
    "Mechanize",
    "Net::FTP",
    "Net::HTTP",
    "Net::IMAP",
    "Net::POP3",
    "Net::SMTP",
    "Patron",
    "RestClient",
    "TCPSocket",
    "Typhoeus",
    "UDPSocket",
];

/// Requests that are built, not sent.
const RUBY_REQUESTS: &[&str] =
    &["Delete", "Get", "Head", "Options", "Patch", "Post", "Put", "Trace"];

/// Whether the program fetches.
pub(crate) fn fetches(inspection: &Inspection) -> bool {
    inspection.calls.iter().any(|call| is_fetch(call) || hands_on(call))
        || inspection.answers.iter().any(|answer| names_fetcher(&answer.value))
}

/// Whether a call reaches the network, or has a tool do it.
pub(super) fn is_fetch(call: &Call) -> bool {
    let Some(receiver) = &call.receiver else { return is_python_client(&call.name) };
    receiver.role().is_some_and(says_fetch)
        || receiver.path().is_some_and(|class| is_ruby_client(class, &call.name))
        || call.path().is_some_and(|function| is_python_client(&function))
}

/// Whether a fetching tool goes where it can no longer be followed; it will be called there.
fn hands_on(call: &Call) -> bool {
    call.arguments.iter().any(|argument| names_fetcher(&argument.value))
}

fn names_fetcher(value: &Operand) -> bool {
    value.members().iter().any(|member| member.role().is_some_and(says_fetch))
}

fn says_fetch(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    FETCHING_WORDS.iter().any(|word| name.contains(word))
}

fn is_python_client(function: &str) -> bool {
    PYTHON.iter().any(|client| match client.strip_suffix('.') {
        Some(_) => function.starts_with(client),
        None => function == *client,
    })
}

fn is_ruby_client(class: &str, method: &str) -> bool {
    match class.trim_start_matches("::") {
        // With open-uri, an address opens itself.
        "URI" => matches!(method, "open" | "read"),
        "Socket" => matches!(method, "new" | "open" | "tcp" | "udp_server_sockets"),
        class => {
            let request = class.strip_prefix("Net::HTTP::");
            let sent = !request.is_some_and(|request| RUBY_REQUESTS.contains(&request));
            sent && RUBY.iter().any(|client| is_within(class, client))
        }
    }
}

fn is_within(class: &str, client: &str) -> bool {
    class.strip_prefix(client).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}
