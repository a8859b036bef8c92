//! The settings of the model service, parsed: its name, model, address and proxy.

use std::fmt;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::ProviderFault;
use super::secret::Secret;
use super::wire::{WIRES, Wire};

/// Longest model name.
const MAX_MODEL_BYTES: usize = 256;
/// Characters of a refused model name that are shown.
const SHOWN_MODEL_CHARS: usize = 40;
/// The ports of addresses without one.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// Longest wait for a server of this machine to take a connection.
const LOCAL_CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// The text that leaves a choice to the runtime.
const AUTO: &str = "auto";
/// The name of the embedded model as a provider.
pub(super) const EMBEDDED: &str = "embedded";

/// Which provider writes programs (`provider`).
#[derive(Debug, Clone, Default)]
pub enum ProviderSetting {
    /// Chosen by address, model and key.
    #[default]
    Auto,
    /// A model service.
    Service(&'static Wire),
    /// A file of scripted answers.
    Scripted(PathBuf),
    /// A recording.
    Replay(PathBuf),
    /// The embedded model.
    Embedded,
}

impl FromStr for ProviderSetting {
    type Err = ProviderFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || ProviderFault::Unknown { name: text.to_owned() };
        match text.split_once(':') {
            Some(("scripted", file)) => Ok(Self::Scripted(PathBuf::from(file))),
            Some(("replay", file)) => Ok(Self::Replay(PathBuf::from(file))),
            Some(_) => Err(unknown()),
            None if text == AUTO => Ok(Self::Auto),
            None if text == EMBEDDED => Ok(Self::Embedded),
            None => {
                let wire = WIRES.iter().copied().find(|wire| wire.name == text);
                wire.map(Self::Service).ok_or_else(unknown)
            }
        }
    }
}

impl fmt::Display for ProviderSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str(AUTO),
            Self::Embedded => f.write_str(EMBEDDED),
            Self::Service(wire) => f.write_str(wire.name),
            Self::Scripted(file) => write!(f, "scripted:{}", file.display()),
            Self::Replay(file) => write!(f, "replay:{}", file.display()),
        }
    }
}

impl PartialEq for ProviderSetting {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Auto, Self::Auto) | (Self::Embedded, Self::Embedded) => true,
            (Self::Service(ours), Self::Service(theirs)) => ours.name == theirs.name,
            (Self::Scripted(ours), Self::Scripted(theirs))
            | (Self::Replay(ours), Self::Replay(theirs)) => ours == theirs,
            (
                Self::Auto
                | Self::Embedded
                | Self::Service(_)
                | Self::Scripted(_)
                | Self::Replay(_),
                _,
            ) => false,
        }
    }
}

/// The name of a model, or `auto`: the usual model of the service. It becomes part of addresses and log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName(String);

impl ModelName {
    /// The name as text; `auto` if the service chooses.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, unless the service chooses.
    pub(super) fn named(&self) -> Option<&str> {
        Some(self.as_str()).filter(|name| *name != AUTO)
    }
}

/// Whether the text leaves the choice of the model to the service.
pub(super) fn is_auto(model: &str) -> bool {
    model == AUTO
}

impl Default for ModelName {
    fn default() -> Self {
        Self(AUTO.to_owned())
    }
}

impl FromStr for ModelName {
    type Err = ProviderFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
        let fits = !text.is_empty()
            && text.len() <= MAX_MODEL_BYTES
            && text.chars().all(is_plain)
            && !text.contains("..");
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(ProviderFault::Model(text.chars().take(SHOWN_MODEL_CHARS).collect()))
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The address of a model service (`base_url`), without a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAddress(String);

impl ServiceAddress {
    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the service is on this machine. A key travels encrypted, or stays on this machine.
    pub(crate) fn is_this_machine(&self) -> bool {
        let (host, _) = self.host_and_port();
        host == "localhost"
            || host == "[::1]"
            || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
    }

    /// Whether it is on this machine and nothing listens there. No address elsewhere is tried.
    pub fn is_silent(&self) -> bool {
        if !self.is_this_machine() {
            return false;
        }
        let (host, port) = self.host_and_port();
        let usual = if self.is_encrypted() { HTTPS_PORT } else { HTTP_PORT };
        let place = (host.trim_matches(['[', ']']), port.unwrap_or(usual));
        let answers = |address| TcpStream::connect_timeout(&address, LOCAL_CONNECT_LIMIT).is_ok();
        !place.to_socket_addrs().is_ok_and(|mut addresses| addresses.any(answers))
    }

    fn host_and_port(&self) -> (&str, Option<u16>) {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or_default();
        match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                (host, port.parse().ok())
            }
            Some(_) | None => (authority, None),
        }
    }

    /// Whether what is sent to it is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl FromStr for ServiceAddress {
    type Err = ProviderFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = text.trim_end_matches('/');
        let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
        let is_plain = |rest: &&str| {
            !rest.is_empty()
                && !rest.contains(|c: char| c.is_whitespace() || matches!(c, '@' | '?' | '#'))
        };
        match rest.filter(is_plain) {
            Some(_) => Ok(Self(address.to_owned())),
            None => Err(ProviderFault::Address),
        }
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The address of a proxy, which may contain credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyAddress(Secret);

impl ProxyAddress {
    /// Reads the address of a proxy of any kind: package managers take more kinds than model services do.
    pub(crate) fn parse(text: &str) -> Result<Self, ProviderFault> {
        match ureq::Proxy::new(text) {
            Ok(_) => Ok(Self(Secret::new(text))),
            Err(_) => Err(ProviderFault::Proxy),
        }
    }

    /// The address, with its credentials.
    pub(crate) fn reveal(&self) -> &str {
        self.0.reveal()
    }

    /// The proxy, if model services can be reached through it. ureq ignores other kinds without an error.
    pub(crate) fn for_services(&self) -> Option<ureq::Proxy> {
        let proxy = ureq::Proxy::new(self.reveal()).ok()?;
        let is_known =
            matches!(proxy.protocol(), ureq::ProxyProtocol::Http | ureq::ProxyProtocol::Https);
        is_known.then_some(proxy)
    }
}

impl FromStr for ProxyAddress {
    type Err = ProviderFault;

    /// Reads the address of a proxy that model services can be reached through.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let proxy = Self::parse(text)?;
        proxy.for_services().map(|_| proxy).ok_or(ProviderFault::Proxy)
    }
}
