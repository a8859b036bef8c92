//! What an agent's programs may reach besides their scratch space. The caller grants it, delegated agents inherit
//! it, and nothing changes it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use lifecycle::blame::GrantedAccess;
use serde_json::{Value, json};

/// Names of this machine's loopback interface.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
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
        let is_host = |host: &String| {
            host.contains(['.', ':'])
                && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:[]".contains(c))
                && port_is_valid(host)
        };
        if hosts.is_empty() || hosts.len() > MAX_HOSTS || !hosts.iter().all(is_host) {
            return Err("off, loopback, open, or a list of hosts like api.example.org");
        }
        Ok(Self::Hosts(hosts))
    }
}

/// Whether the port of a host, if it has one, is valid. It follows the colon of a name or the brackets of an address.
/// An invalid port would grant nothing, without an error.
fn port_is_valid(host: &str) -> bool {
    match host.rsplit_once(':') {
        Some((name, port)) if name.ends_with(']') || !name.contains(':') => {
            port.parse::<u16>().is_ok_and(|port| port > 0)
        }
        Some(_) | None => true,
    }
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
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
            if let Some(network) = expected {
                assert_eq!(network.to_string().parse(), Ok(network));
            }
        }
    }
}
