//! Which programs fetch external data: by their own network use, or through a tool that does.

use crate::dialect::Inspection;

/// Words in the name of a tool that say it fetches.
const FETCHING_WORDS: &[&str] = &["fetch", "scrape", "crawl", "download"];

/// Python functions and classes that reach the network, by the start of their full name.
const PYTHON: &[&str] = &[
    "aiohttp.",
    "ftplib.",
    "http.client.HTTP",
    "httpx.",
    "imaplib.",
    "nntplib.",
    "poplib.",
    "pycurl.",
    "requests.",
    "smtplib.",
    "socket.create_connection",
    "socket.socket",
    "telnetlib.",
    "urllib.request.",
    "urllib3.",
    "websockets.",
    "xmlrpc.client.",
];

/// Python names under the above that stay local.
const PYTHON_LOCAL: &[&str] = &[
    "httpx.URL",
    "requests.exceptions.",
    "requests.utils.",
    "urllib.request.Request",
    "urllib.request.pathname2url",
    "urllib.request.url2pathname",
];

/// Ruby classes that reach the network.
const RUBY: &[&str] = &[
    "Down",
    "Excon",
    "Faraday",
    "HTTP",
    "HTTParty",
    "HTTPClient",
    "HTTPX",
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
    "Curl",
    "Socket",
];

/// Whether the program fetches.
pub(crate) fn fetches(inspection: &Inspection) -> bool {
    uses_network(inspection) || inspection.agents().any(|(name, _)| says_fetch(name))
}

fn says_fetch(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    FETCHING_WORDS.iter().any(|word| name.contains(word))
}

fn uses_network(inspection: &Inspection) -> bool {
    inspection.calls.iter().any(|call| {
        let class = call.receiver.as_ref().and_then(|receiver| receiver.path());
        let function = || call.path().unwrap_or_default();
        class.is_some_and(is_ruby_client)
            || matches!((class, call.name.as_str()), (Some("URI" | "::URI"), "open"))
            || is_python_client(&function())
    })
}

fn is_python_client(function: &str) -> bool {
    let starts = |prefix: &&str| function.starts_with(*prefix);
    PYTHON.iter().any(starts) && !PYTHON_LOCAL.iter().any(starts)
}

fn is_ruby_client(class: &str) -> bool {
    let class = class.trim_start_matches("::");
    RUBY.iter().any(|client| {
        class.strip_prefix(client).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}
