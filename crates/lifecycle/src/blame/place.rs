//! The hosts and files that texts name.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::dialect::Inspection;
use crate::request::{Arguments, CallRequest};

/// Texts and numbers among a call's arguments and memory that are searched for hosts and paths.
const MAX_TEXTS: usize = 256;
/// Values among them that are looked at in all.
const MAX_VALUES: usize = 4096;
/// Endings of file names.
const FILE_ENDINGS: &[&str] = &[
    "csv", "db", "gz", "html", "jpg", "json", "log", "md", "pdf", "png", "py", "rb", "sqlite",
    "sqlite3", "toml", "tsv", "txt", "xlsx", "xml", "yaml", "yml", "zip",
];

/// The texts of a call's arguments and memory.
pub(super) fn texts(request: &CallRequest) -> impl Iterator<Item = &str> {
    scalars(request).filter_map(Value::as_str).take(MAX_TEXTS)
}

/// The texts of a call's arguments, and of the memory that the program uses.
pub(super) fn used_texts<'a>(
    request: &'a CallRequest,
    inspection: &'a Inspection,
) -> impl Iterator<Item = &'a str> {
    let is_used = |key: &str| inspection.context.iter().any(|used| used.key == key);
    scalars_of(request, is_used).filter_map(Value::as_str).take(MAX_TEXTS)
}

/// The whole numbers of a call's arguments and memory.
pub(super) fn numbers(request: &CallRequest) -> impl Iterator<Item = u64> {
    scalars(request).filter_map(Value::as_u64).take(MAX_TEXTS)
}

fn scalars(request: &CallRequest) -> impl Iterator<Item = &Value> {
    scalars_of(request, |_| true)
}

/// The scalars of a call's arguments, and of these keys of memory.
fn scalars_of(
    request: &CallRequest,
    is_used: impl Fn(&str) -> bool,
) -> impl Iterator<Item = &Value> {
    let Arguments { args, kwargs } = &request.arguments;
    let memory = request.context.iter().filter(|(key, _)| is_used(key)).map(|(_, value)| value);
    let mut pending: Vec<&Value> = memory.chain(kwargs.values()).chain(args).collect();
    std::iter::from_fn(move || {
        loop {
            match pending.pop()? {
                Value::Array(items) => pending.extend(items.iter().take(MAX_TEXTS)),
                Value::Object(fields) => pending.extend(fields.values().take(MAX_TEXTS)),
                scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                    return Some(scalar);
                }
            }
        }
    })
    .take(MAX_VALUES)
}

/// The texts that are written in a program.
pub(super) fn literals(inspection: &Inspection) -> impl Iterator<Item = &str> {
    inspection.literals.iter().filter_map(|literal| literal.value.as_str())
}

/// A host, and its port if it is named with one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

impl Endpoint {
    /// The host a text names: that of a URL, or a text that is a host name or an address and nothing else.
    pub(super) fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        let (rest, scheme) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.chars().all(char::is_alphanumeric) => {
                (rest, Some(scheme))
            }
            Some(_) => return None,
            None => (text, None),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // `http://127.0.0.1:` is followed by a port that is computed.
        let (place, has_open_port) = match authority.strip_suffix(':') {
            Some(place) => (place, true),
            None => (authority, false),
        };
        let named = Self::granted(place.rsplit('@').next().unwrap_or_default());
        let host = named.host.as_str();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-.[]:_".contains(c);
        let is_host = !host.is_empty()
            && host.chars().all(is_name)
            && !host.starts_with(['.', '-'])
            && !host.ends_with(['.', '-']);
        let is_dotted = host == "localhost"
            || (host.contains('.')
                && !host.ends_with('.')
                && (host.parse::<Ipv4Addr>().is_ok()
                    || host.rsplit('.').next().is_some_and(is_top_level)));
        let stands_alone = authority.len() == rest.len() && is_dotted;
        let default_port = match scheme {
            Some("http") if !has_open_port => Some(80),
            Some("https") if !has_open_port => Some(443),
            Some(_) | None => None,
        };
        let port = named.port.or(default_port);
        (is_host && (scheme.is_some() || stands_alone)).then(|| Self { port, ..named.clone() })
    }

    /// The host that a text of a program names. The rest of a name may be computed (`https://db` and a number): without a
    /// path, a query or a port behind it, only a name with a dot counts.
    pub(super) fn of_program(text: &str) -> Option<Self> {
        let found = Self::of(text)?;
        let rest = text.trim().split_once("://").map_or(text, |(_, rest)| rest);
        let is_whole = rest.contains(['/', '?', '#', ':', '.']) || rest == "localhost";
        is_whole.then_some(found)
    }

    /// A text that is known to be a host, and its port after a colon.
    pub(super) fn granted(text: &str) -> Self {
        let with_port = text.rsplit_once(':').filter(|(host, port)| {
            let is_number = !port.is_empty() && port.chars().all(|c| c.is_ascii_digit());
            is_number && (!host.contains(':') || host.ends_with(']'))
        });
        let (host, port) = match with_port {
            Some((host, port)) => (host, port.parse().ok()),
            None => (text, None),
        };
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        Self { host: host.to_owned(), port }
    }

    /// A place that was contacted: a host and its port, also if the host is an IPv6 address without brackets.
    pub(super) fn contacted(text: &str) -> Self {
        let parts = text.rsplit_once(':').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok());
        match parts.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
            Some((host, port)) => Self { host: host.to_owned(), port: Some(port) },
            None => Self::granted(text),
        }
    }

    /// Whether it is this host. `localhost` is also known by its addresses.
    pub(super) fn is_of(&self, host: &str) -> bool {
        self.host.eq_ignore_ascii_case(host)
            || (self.host == "localhost" && ["127.0.0.1", "::1"].contains(&host))
    }
}

/// Whether this can be the last label of a host name. A name that ends like a file counts only in a URL.
fn is_top_level(label: &str) -> bool {
    let is_number = label.chars().all(|c| c.is_ascii_digit());
    !is_number && label.len() >= 2 && !FILE_ENDINGS.contains(&label)
}

/// Whether a text names this file: the same path, or a relative one of it.
pub(super) fn names_path(text: &str, path: &str) -> bool {
    let text = text.trim().trim_start_matches("./");
    !text.is_empty()
        && (text == path || path.trim_start_matches("./") == text || {
            path.strip_suffix(text).is_some_and(|head| head.ends_with('/'))
                || text.strip_suffix(path).is_some_and(|head| head.ends_with('/'))
        })
}

/// The path that a text is: one with a directory, or with an ending as files have.
pub(super) fn path_of(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix("file:").map_or(text, |uri| uri.split('?').next().unwrap_or(uri));
    let name = text.rsplit('/').next().unwrap_or(text);
    let has_ending = name
        .rsplit_once('.')
        .is_some_and(|(stem, ending)| !stem.is_empty() && FILE_ENDINGS.contains(&ending));
    let is_path = text.starts_with('/') || text.starts_with("./") || has_ending;
    (is_path && !text.contains("://") && !text.contains('\n')).then(|| text.to_owned())
}

/// Whether a path is a granted one, or below it. One that is relative is recognised by the end of the granted one.
pub(super) fn is_granted(path: &str, granted: &str) -> bool {
    let granted = granted.trim_end_matches('/');
    if path.starts_with('/') {
        let rest = path.strip_prefix(granted);
        return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    }
    let path = path.trim_start_matches("./");
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| path.get(..end)).any(|head| names_path(head, granted))
}
