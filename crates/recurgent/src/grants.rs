//! What an agent's programs may reach besides their scratch space. The caller grants it, delegated agents inherit
//! it, and nothing changes it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use lifecycle::blame::GrantedAccess;
use serde_json::{Value, json};

/// The name of this machine's loopback interface.
pub(crate) const LOCALHOST: &str = "localhost";
/// Its name and addresses.
const LOOPBACK: [&str; 3] = [LOCALHOST, "127.0.0.1", "::1"];
/// Most hosts in a list.
const MAX_HOSTS: usize = 200;

/// What programs may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grants {
    /// Hosts they may connect to.
    pub network: Network,
    /// Files and directories they may read.
    pub read: Vec<PathBuf>,
    /// Files and directories they may write.
    pub write: Vec<PathBuf>,
}

impl Grants {
    /// The same access, in the form by which failures are attributed.
    pub(crate) fn access(&self) -> GrantedAccess {
        let hosts = match &self.network {
            Network::Off => Some(Vec::new()),
            Network::Loopback => Some(LOOPBACK.map(str::to_owned).to_vec()),
            Network::Hosts(hosts) => Some(hosts.clone()),
            Network::Open => None,
        };
        let paths = self.read.iter().chain(&self.write);
        let paths = paths.map(|path| path.to_string_lossy().into_owned()).collect();
        GrantedAccess { hosts, paths }
    }

    /// The form used in the log.
    pub fn to_json(&self) -> Value {
        json!({"network": self.network.to_string(), "read": self.read, "write": self.write})
    }
}

/// Hosts that programs may connect to.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Network {
    /// None.
    #[default]
    Off,
    /// Servers on this machine's loopback interface.
    Loopback,
    /// These hosts, by name or address; `host:port` grants one port.
    Hosts(Vec<String>),
    /// Every host.
    Open,
}

impl Network {
    /// Whether the host makes each connection on the program's behalf.
    pub(crate) fn is_mediated(&self) -> bool {
        match self {
            Self::Loopback | Self::Hosts(_) => true,
            Self::Off | Self::Open => false,
        }
    }
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "off" | "" => return Ok(Self::Off),
            "loopback" => return Ok(Self::Loopback),
            "open" => return Ok(Self::Open),
            _ => {}
        }
        let separator = |c: char| c == ',' || c.is_whitespace();
        let hosts: Vec<String> =
            text.split(separator).filter(|host| !host.is_empty()).map(str::to_owned).collect();
        let is_host = |host: &String| host_and_port(host).is_some();
        if hosts.is_empty() || hosts.len() > MAX_HOSTS || !hosts.iter().all(is_host) {
            return Err("off, loopback, open, or a list of hosts like api.example.org");
        }
        Ok(Self::Hosts(hosts))
    }
}

/// The name or address of a host of a list, without brackets, and its port if it has one. `None` for a text that could
/// never be connected to: it would grant nothing, without an error.
pub(crate) fn host_and_port(granted: &str) -> Option<(&str, Option<u16>)> {
    if granted.parse::<IpAddr>().is_ok() {
        return Some((granted, None));
    }
    let (host, port) = match granted.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit()); // not the sign that `parse` accepts
            (host, Some(port.parse().ok().filter(|port| digits && *port > 0)?))
        }
        Some(_) | None => (granted, None),
    };
    if let Some(bracketed) = host.strip_prefix('[') {
        let address = bracketed.strip_suffix(']')?;
        return address.parse::<Ipv6Addr>().is_ok().then_some((address, port));
    }
    is_name(host, port.is_some()).then_some((host, port))
}

/// Whether this is the name of a host. A single word is one only with a port, or if it names this machine: it is rather a
/// misspelt keyword.
fn is_name(host: &str, has_port: bool) -> bool {
    let label = |label: &str| {
        !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    let labels = host.strip_suffix('.').unwrap_or(host);
    labels.split('.').all(label) && (has_port || labels.contains('.') || labels == LOCALHOST)
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Loopback => f.write_str("loopback"),
            Self::Hosts(hosts) => f.write_str(&hosts.join(",")),
            Self::Open => f.write_str("open"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_a_keyword_or_a_list_of_hosts() {
        for (text, expected) in [
            ("off", Some(Network::Off)),
            ("loopback", Some(Network::Loopback)),
            ("open", Some(Network::Open)),
            (
                "a.example, b.example:443",
                Some(Network::Hosts(vec!["a.example".into(), "b.example:443".into()])),
            ),
            ("closed", None),
            (" , ", None),
            ("a.example/path", None),
            ("opne", None),
            ("::1", Some(Network::Hosts(vec!["::1".into()]))),
            ("[::1]:80", Some(Network::Hosts(vec!["[::1]:80".into()]))),
            ("[::1]", Some(Network::Hosts(vec!["[::1]".into()]))),
            ("a.example:99999", None),
            ("a.example:https", None),
            ("a.example:0", None),
            ("a.example:", None),
            ("[::1]:99999", None),
            ("[::1", None),
            ("[::1:80", None),
            ("::1]", None),
            ("[a.example]:80", None),
            ("...", None),
            (".", None),
            ("a..example", None),
            (":80", None),
            ("a.example:+80", None),
            ("a:b:c", None),
            ("a.example.", Some(Network::Hosts(vec!["a.example.".into()]))),
            ("localhost", Some(Network::Hosts(vec!["localhost".into()]))),
            ("localhost:80", Some(Network::Hosts(vec!["localhost:80".into()]))),
            ("nas:443", Some(Network::Hosts(vec!["nas:443".into()]))),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
            if let Some(network) = expected {
                assert_eq!(network.to_string().parse(), Ok(network));
            }
        }
    }

    #[test]
    fn a_host_is_read_without_its_brackets() {
        for (granted, expected) in [
            ("a.example", Some(("a.example", None))),
            ("a.example:443", Some(("a.example", Some(443)))),
            ("10.0.0.7:80", Some(("10.0.0.7", Some(80)))),
            ("::1", Some(("::1", None))),
            ("[::1]", Some(("::1", None))),
            ("[::1]:80", Some(("::1", Some(80)))),
        ] {
            assert_eq!(host_and_port(granted), expected, "{granted}");
        }
    }
}
