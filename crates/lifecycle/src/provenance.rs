//! Where external data came from: observed by the runtime, not demanded of programs.
//!
//! The runtime sees which hosts a run reached, itself or through the tools it called. It attaches them to the
//! outcome. A uri that the program claims is kept if its host was reached. Under an open network nothing is seen,
//! so nothing is attached and nothing is judged.

use serde_json::{Map, Value, json};

use crate::dialect::Inspection;
use crate::execution::ExceptionLink;
use crate::outside_tool::{MAX_KEPT_CALLS, OutsideCall};
use crate::redact::redacted_field;

/// Sources kept of one run.
pub const MAX_SOURCES: usize = 32;
/// Calls that sent something, kept of one run.
const MAX_SENT: usize = 8;
/// The tool of a source that the program fetched itself.
const OWN_TOOL: &str = "network";
/// The mode of a source that was reached during the run.
const LIVE: &str = "live";

/// What a run reached, as far as the runtime saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// Whether every connection was seen: without a network there are none, an open one is not watched.
    pub complete: bool,
    /// The hosts it reached, each once, in order.
    pub sources: Vec<ObservedSource>,
    /// The calls by which something may have been sent that changes the outside; of a run, by the tools that it
    /// called. `None`: nothing was sent.
    pub sent: Option<Vec<String>>,
    /// Whether another agent answered a call of the program with a value.
    pub agent_answered: bool,
    /// The program's own contacts with services that failed, and did not succeed later at the same place. It may have
    /// handled the failure.
    pub failed_contacts: Vec<FailedContact>,
    /// The first calls of outside tools that the program made itself.
    pub outside_calls: Vec<OutsideCall>,
    /// How many calls of outside tools it made.
    pub outside_count: u64,
}

/// A contact with a service that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedContact {
    /// `host:port`, or a host whose name did not resolve.
    pub place: String,
    /// What was raised; empty if the service answered with an error status.
    pub exception: ExceptionLink,
    /// The status of its answer, if it is an error.
    pub http_status: Option<u16>,
}

/// A host that a run reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedSource {
    /// The uri, if one is known; else `host:port`.
    pub uri: String,
    /// When it was first reached; RFC 3339, UTC.
    pub fetched_at: String,
    /// The tool that fetched it; `None`: the program itself.
    pub tool: Option<String>,
}

impl Observation {
    /// A run that could reach nothing.
    pub fn of_no_network() -> Self {
        Self { complete: true, ..Self::default() }
    }

    /// A run whose connections were all seen.
    pub fn of_sources(sources: impl IntoIterator<Item = ObservedSource>) -> Self {
        let mut observation = Self::of_no_network();
        sources.into_iter().for_each(|source| observation.add(source));
        observation
    }

    /// Adds a source, once, while there is room.
    pub fn add(&mut self, source: ObservedSource) {
        let known = self.sources.iter().any(|known| known.uri == source.uri);
        if !known && self.sources.len() < MAX_SOURCES {
            self.sources.push(source);
        }
    }

    /// Adds what a call of the tool `name` reached.
    pub fn add_call(&mut self, name: &str, call: &Self) {
        self.complete &= call.complete;
        if let Some(calls) = &call.sent {
            let sent = self.sent.get_or_insert_default();
            let named = calls.iter().map(|call| format!("{name}: {call}"));
            let named = named.chain(calls.is_empty().then(|| name.to_owned()));
            sent.extend(named.take(MAX_SENT.saturating_sub(sent.len())));
        }
        for source in &call.sources {
            let tool = source.tool.clone().or_else(|| Some(name.to_owned()));
            self.add(ObservedSource { tool, ..source.clone() });
        }
    }

    /// Adds a call of an outside tool. One that does more than read may have changed something outside.
    pub fn add_outside_call(&mut self, call: OutsideCall, reads_only: bool) {
        let is_ok = call.ended.is_ok();
        if !reads_only {
            let sent = self.sent.get_or_insert_default();
            if sent.len() < MAX_SENT && !sent.contains(&call.name) {
                sent.push(call.name.clone());
            }
        }
        self.agent_answered |= is_ok;
        self.outside_count += 1;
        if self.outside_calls.len() < MAX_KEPT_CALLS {
            self.outside_calls.push(call);
        }
    }

    /// Whether nothing was reached, for certain.
    pub fn reached_nothing(&self) -> bool {
        let changed_nothing = self.sent.is_none() && self.outside_count == 0;
        self.complete && self.sources.is_empty() && changed_nothing
    }

    /// Whether the program itself may have sent something that changes the outside. A program that was seen to reach a
    /// host must be known to only read; where nothing is seen, its text decides.
    pub(crate) fn may_have_sent(&self, inspection: &Inspection) -> bool {
        if !self.complete {
            return inspection.may_send_unobserved();
        }
        let is_own = |source: &ObservedSource| source.tool.is_none();
        self.sources.iter().any(is_own) && !inspection.only_reads()
    }

    /// The sources of a value: uris that it claims where their host was reached, else the hosts that were.
    #[must_use]
    pub fn named_by(&self, value: &Value) -> Self {
        let claims: Vec<&str> = claimed(value).filter_map(|it| it.get("uri")?.as_str()).collect();
        let mut named = Self { sources: Vec::new(), ..self.clone() };
        for source in &self.sources {
            let own = host_of(&source.uri);
            let mut matching = claims.iter().filter(|uri| host_of(uri) == own).peekable();
            if matching.peek().is_none() {
                named.add(source.clone());
            }
            for uri in matching {
                named.add(ObservedSource { uri: (*uri).to_owned(), ..source.clone() });
            }
        }
        named
    }

    /// As in the metadata of an outcome and in history.
    pub fn to_json(&self) -> Vec<Value> {
        self.sources.iter().map(ObservedSource::to_json).collect()
    }

    /// What history keeps of them.
    pub(crate) fn summary(&self, value: &Value) -> Map<String, Value> {
        let claims: Vec<Value> = claimed(value).cloned().map(Value::Object).collect();
        let sources = if self.sources.is_empty() { claims } else { self.to_json() };
        let Some(first) = sources.first() else { return Map::new() };
        let field = |key: &str| {
            let found = first.get(key);
            found.map_or(Value::Null, |found| redacted_field(key, found).into_owned())
        };
        Map::from_iter([
            ("source_count".to_owned(), json!(sources.len())),
            ("primary_uri".to_owned(), field("uri")),
            ("retrieval_mode".to_owned(), field("retrieval_mode")),
        ])
    }
}

impl ObservedSource {
    fn to_json(&self) -> Value {
        json!({
            "uri": self.uri,
            "fetched_at": self.fetched_at,
            "retrieval_tool": self.tool.as_deref().unwrap_or(OWN_TOOL),
            "retrieval_mode": LIVE,
        })
    }
}

/// The sources that a value claims.
fn claimed(value: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    let sources = value.pointer("/provenance/sources").and_then(Value::as_array);
    sources.into_iter().flatten().filter_map(Value::as_object)
}

/// The uris that a value says were fetched live.
pub(crate) fn live_claims(value: &Value) -> impl Iterator<Item = &str> {
    let is_live = |source: &&Map<String, Value>| {
        let mode = source.get("retrieval_mode").and_then(Value::as_str).unwrap_or_default();
        mode.trim().eq_ignore_ascii_case(LIVE)
    };
    claimed(value).filter(is_live).filter_map(|source| source.get("uri")?.as_str())
}

/// `https://user@Example.org:443/x` and `example.org:443` are of the host `example.org`.
fn host_of(uri: &str) -> String {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    let host = match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => address,
    };
    host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(uri: &str) -> ObservedSource {
        let fetched_at = "2026-01-01T00:00:00Z".to_owned();
        ObservedSource { uri: uri.to_owned(), fetched_at, tool: None }
    }

    #[test]
    fn a_claimed_uri_is_kept_if_its_host_was_reached() {
        let value = json!({"provenance": {"sources": [
            {"uri": "https://a.example/x", "retrieval_mode": "live"},
            {"uri": "https://A.example/y", "retrieval_mode": "live"},
            {"uri": "https://never.example/z", "retrieval_mode": "live"}]}});
        let seen = Observation::of_sources([reached("a.example:443"), reached("b.example:80")]);
        let uris: Vec<String> = seen.named_by(&value).sources.into_iter().map(|s| s.uri).collect();
        assert_eq!(uris, ["https://a.example/x", "https://A.example/y", "b.example:80"]);
        assert_eq!(seen.named_by(&json!([1])), seen);
    }

    #[test]
    fn hosts_are_compared_without_scheme_user_port_and_case() {
        for (uri, host) in [
            ("https://user@Example.org:443/x?y#z", "example.org"),
            ("example.org:80", "example.org"),
            ("http://[::1]:8080/", "::1"),
            ("http://127.0.0.1/", "127.0.0.1"),
        ] {
            assert_eq!(host_of(uri), host, "{uri}");
        }
    }

    #[test]
    fn what_a_tool_reached_its_caller_reached_through_it() {
        let mut seen = Observation::of_no_network();
        seen.add_call("fetcher", &Observation::of_sources([reached("a.example:443")]));
        assert_eq!(seen.sources[0].tool.as_deref(), Some("fetcher"));
        assert!(seen.complete && seen.sent.is_none() && !seen.reached_nothing());
        let sent = |calls: &[&str]| Some(calls.iter().map(|&call| call.to_owned()).collect());
        let posted = sent(&["requests.post"]);
        seen.add_call("poster", &Observation { sent: posted, ..Observation::default() });
        seen.add_call("mailer", &Observation { sent: sent(&[]), ..Observation::default() });
        assert!(!seen.complete);
        assert_eq!(seen.sent, sent(&["poster: requests.post", "mailer"]));
    }
}
