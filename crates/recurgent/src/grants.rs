//! What an agent's programs may reach besides their scratch space. The caller grants it, delegated agents inherit
//! it, and nothing changes it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use lifecycle::blame::{GrantedAccess, Workspace};
use lifecycle::outside_tool::{OutsideOrigin, OutsideTool};
use serde_json::{Map, Value, json};

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
    /// The directory they run in, instead of scratch space of their own. They may read it.
    pub workspace: Option<PathBuf>,
    /// Whether they may change the workspace.
    pub workspace_write: bool,
    /// What they may show a model of the values they work with.
    pub model_sees: ModelSees,
    /// The caller's working directory: granted paths beneath it are also found by their names in it, where programs
    /// have no workspace.
    pub names_from: Option<PathBuf>,
}

/// A relative name by which programs find a granted path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GrantedName {
    /// The name, relative to where programs run.
    pub(crate) name: PathBuf,
    /// The path.
    pub(crate) path: PathBuf,
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
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let paths = self.read.iter().chain(&self.write).chain(&self.workspace);
        GrantedAccess {
            hosts,
            paths: paths.map(|path| text(path)).collect(),
            writable: self.write.iter().map(|path| text(path)).collect(),
            names: self.names().iter().map(|granted| text(&granted.name)).collect(),
            workspace: self.workspace.as_deref().map(|path| Workspace {
                path: text(path),
                writable: self.workspace_write,
                is_of_another_user: rustix::process::geteuid().is_root(),
            }),
        }
    }

    /// The form used in the log.
    pub fn to_json(&self) -> Value {
        let mut shown = self.paths_and_network();
        if let Some(workspace) = &self.workspace {
            shown.insert("workspace".to_owned(), json!(workspace));
            shown.insert("workspace_write".to_owned(), json!(self.workspace_write));
        }
        if self.model_sees != ModelSees::Auto {
            shown.insert("model_sees".to_owned(), json!(self.model_sees.name()));
        }
        Value::Object(shown)
    }

    fn paths_and_network(&self) -> Map<String, Value> {
        Map::from_iter([
            ("network".to_owned(), json!(self.network.to_string())),
            ("read".to_owned(), json!(self.read)),
            ("write".to_owned(), json!(self.write)),
        ])
    }

    /// What a model is shown; null if nothing is granted.
    pub(crate) fn for_prompt(&self) -> Value {
        let has_paths = !self.read.is_empty() || !self.write.is_empty();
        if self.network == Network::Off && !has_paths && self.workspace.is_none() {
            return Value::Null;
        }
        let mut shown = self.paths_and_network();
        let is_used = |value: &Value| value.as_array().is_none_or(|paths| !paths.is_empty());
        shown.retain(|_, value| is_used(value));
        if let Some(workspace) = &self.workspace {
            let access = if self.workspace_write { "read and change" } else { "read" };
            let working_directory = json!({"path": workspace, "files": access});
            shown.insert("working_directory".to_owned(), working_directory);
        }
        Value::Object(shown)
    }

    /// The granted paths that programs also find by relative names, none beneath another.
    pub(crate) fn names(&self) -> Vec<GrantedName> {
        let Some(from) = self.names_from.as_deref().filter(|_| self.workspace.is_none()) else {
            return Vec::new();
        };
        let is_plain = |name: &Path| {
            let mut parts = name.components();
            name != Path::new("") && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        let named = |path: &PathBuf| {
            let name = path.strip_prefix(from).ok().filter(|name| is_plain(name))?;
            Some(GrantedName { name: name.components().collect(), path: path.clone() })
        };
        let mut names: Vec<GrantedName> =
            self.read.iter().chain(&self.write).filter_map(named).collect();
        names.sort();
        // A name beneath another one comes after it.
        names.dedup_by(|next, before| next.name.starts_with(&before.name));
        names
    }
}

/// What programs may show a model of the values they work with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelSees {
    /// Values, if the model is on this machine; else previews.
    #[default]
    Auto,
    /// Names, types, sizes and beginnings of values, as in every prompt.
    Previews,
    /// Whole values.
    Values,
}

impl ModelSees {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Previews, Self::Values];

    /// As it is configured.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Previews => "previews",
            Self::Values => "values",
        }
    }

    /// Whether whole values may be shown to a model that is on this machine, or is not.
    pub(crate) fn values(self, is_local: bool) -> bool {
        match self {
            Self::Auto => is_local,
            Self::Previews => false,
            Self::Values => true,
        }
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

    /// The same, if every host of it can be connected to.
    pub(crate) fn checked(self) -> Result<Self, &'static str> {
        let is_host = |host: &String| host_and_port(host).is_some();
        match &self {
            Self::Hosts(hosts)
                if hosts.is_empty() || hosts.len() > MAX_HOSTS || !hosts.iter().all(is_host) =>
            {
                Err("off, loopback, open, or a list of hosts like api.example.org")
            }
            Self::Off | Self::Loopback | Self::Hosts(_) | Self::Open => Ok(self),
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
        let hosts = text.split(separator).filter(|host| !host.is_empty());
        Self::Hosts(hosts.map(str::to_owned).collect()).checked()
    }
}

/// Tools from outside that programs may call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolGrant {
    /// The functions that the embedding program adds, no command and no server.
    #[default]
    Functions,
    /// None.
    Nothing,
    /// These: `orders` with all its methods, or `orders.search` alone.
    Named(Vec<String>),
    /// These, as far as they are functions of the embedding program: what a child has whose parent has all functions.
    NamedFunctions(Vec<String>),
    /// Every one.
    All,
}

/// Most names in a grant of tools.
const MAX_TOOL_NAMES: usize = 200;

impl ToolGrant {
    /// Whether some method of a tool is granted.
    pub(crate) fn covers(&self, tool: &str, origin: OutsideOrigin) -> bool {
        let is_of = |name: &String| name.split('.').next() == Some(tool);
        match self {
            Self::Functions => origin == OutsideOrigin::Function,
            Self::Nothing => false,
            Self::Named(names) => names.iter().any(is_of),
            Self::NamedFunctions(names) => {
                origin == OutsideOrigin::Function && names.iter().any(is_of)
            }
            Self::All => true,
        }
    }

    /// The tool with the methods that are granted.
    pub(crate) fn narrow(&self, tool: Arc<OutsideTool>) -> Arc<OutsideTool> {
        let (Self::Named(names) | Self::NamedFunctions(names)) = self else { return tool };
        if names.contains(&tool.name) {
            return tool;
        }
        let is_granted = |method: &str| names.contains(&format!("{}.{method}", tool.name));
        let mut narrowed = OutsideTool::clone(&tool);
        narrowed.methods.retain(|it| is_granted(&it.name) || is_granted(&it.original));
        Arc::new(narrowed)
    }

    /// What both allow: a grant is only narrowed.
    #[must_use]
    pub(crate) fn within(&self, wider: &Self) -> Self {
        match (self, wider) {
            (narrow, Self::All) => narrow.clone(),
            (Self::All, wider) => wider.clone(),
            (Self::Nothing, _) | (_, Self::Nothing) => Self::Nothing,
            (Self::Functions, Self::Functions) => Self::Functions,
            // Which names are functions is known only when a program asks.
            (Self::Named(names) | Self::NamedFunctions(names), Self::Functions)
            | (Self::Functions, Self::Named(names) | Self::NamedFunctions(names)) => {
                Self::NamedFunctions(names.clone())
            }
            (Self::Named(names), Self::Named(allowed)) => {
                names_in_both(names, allowed).map_or(Self::Nothing, Self::Named)
            }
            (
                Self::Named(names) | Self::NamedFunctions(names),
                Self::Named(allowed) | Self::NamedFunctions(allowed),
            ) => names_in_both(names, allowed).map_or(Self::Nothing, Self::NamedFunctions),
        }
    }

    /// As in the log; null if it is the default.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Functions => Value::Null,
            Self::Nothing => json!([]),
            Self::Named(names) | Self::NamedFunctions(names) => json!(names),
            Self::All => json!(["*"]),
        }
    }
}

/// The names that two grants of tools have in common: of a tool and one of its methods, the method. `None`: there is none.
fn names_in_both(names: &[String], allowed: &[String]) -> Option<Vec<String>> {
    let is_within = |name: &&String, wider: &[String]| {
        let tool = name.split('.').next().unwrap_or_default();
        wider.contains(name) || wider.iter().any(|it| it == tool)
    };
    let mut both: Vec<String> =
        names.iter().filter(|name| is_within(name, allowed)).cloned().collect();
    let narrower = allowed.iter().filter(|name| !names.contains(name) && is_within(name, names));
    both.extend(narrower.cloned());
    (!both.is_empty()).then_some(both)
}

impl FromStr for ToolGrant {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let separator = |c: char| c == ',' || c.is_whitespace();
        let names: Vec<&str> = text.split(separator).filter(|name| !name.is_empty()).collect();
        match names.as_slice() {
            [] => Ok(Self::Functions),
            ["none"] => Ok(Self::Nothing),
            ["*"] => Ok(Self::All),
            names if names.len() <= MAX_TOOL_NAMES && names.iter().all(|it| is_grantable(it)) => {
                Ok(Self::Named(names.iter().map(|&name| name.to_owned()).collect()))
            }
            _ => Err("names of tools such as orders or orders.search, * for all, or none"),
        }
    }
}

/// Whether this can be the name of a tool, or of one of its methods.
fn is_grantable(name: &str) -> bool {
    let (tool, method) = name.split_once('.').unwrap_or((name, "any"));
    crate::toolbox::is_tool_name(tool) && !method.is_empty()
}

impl fmt::Display for ToolGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Functions => Ok(()),
            Self::Nothing => f.write_str("none"),
            Self::Named(names) | Self::NamedFunctions(names) => f.write_str(&names.join(",")),
            Self::All => f.write_str("*"),
        }
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

/// Whether this is the name of a host. A single word needs a port unless it is localhost; otherwise it is probably a misspelt
/// keyword.
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
    fn a_grant_of_tools_covers_names_and_is_only_narrowed() {
        let grant = |text: &str| text.parse::<ToolGrant>().unwrap();
        for (text, function, orders, time) in [
            ("", true, false, false),
            ("none", false, false, false),
            ("*", true, true, true),
            ("orders", false, true, false),
            ("orders.search, time", false, true, true),
        ] {
            let grant = grant(text);
            let covers = |tool: &str, origin| grant.covers(tool, origin);
            assert_eq!(covers("mail", OutsideOrigin::Function), function, "{text}");
            assert_eq!(covers("orders", OutsideOrigin::Mcp), orders, "{text}");
            assert_eq!(covers("time", OutsideOrigin::Command), time, "{text}");
            assert_eq!(grant.to_string().parse::<ToolGrant>().unwrap(), grant);
        }
        for (narrow, wide, both) in [
            ("a,b", "b,c", "b"),
            ("a.x,b", "a,b.y", "a.x,b.y"),
            ("a", "none", "none"),
            ("*", "a", "a"),
            ("a", "*", "a"),
            ("a", "b", "none"),
        ] {
            assert_eq!(grant(narrow).within(&grant(wide)), grant(both), "{narrow} in {wide}");
        }
        let functions =
            |names: &str| ToolGrant::NamedFunctions(names.split(',').map(str::to_owned).collect());
        for (narrow, wide, both) in [
            (grant("a"), grant(""), functions("a")),
            (grant(""), grant("a"), functions("a")),
            (functions("a,b.x"), grant("b"), functions("b.x")),
            (grant("a"), functions("a,b"), functions("a")),
            (grant("*"), functions("a"), functions("a")),
            (functions("a"), grant("b"), grant("none")),
        ] {
            assert_eq!(narrow.within(&wide), both, "{narrow:?} in {wide:?}");
        }
        assert!(functions("a").covers("a", OutsideOrigin::Function));
        assert!(!functions("a").covers("a", OutsideOrigin::Command), "a command is not a function");
        for refused in ["Orders", "a b*", "*,a", ".x", "a."] {
            assert!(refused.parse::<ToolGrant>().is_err(), "{refused}");
        }
    }

    #[test]
    fn granted_paths_are_found_by_their_names_in_the_working_directory() {
        let grants = Grants {
            read: ["/w/a/b.csv", "/w/a", "/w/../x", "/v/c", "/w", "/w/d.csv"]
                .map(PathBuf::from)
                .into(),
            write: vec!["/w/e/f".into()],
            names_from: Some("/w".into()),
            ..Grants::default()
        };
        let names = |grants: &Grants| -> Vec<String> {
            grants.names().iter().map(|it| it.name.display().to_string()).collect()
        };
        assert_eq!(names(&grants), ["a", "d.csv", "e/f"]);
        let in_workspace = Grants { workspace: Some("/w".into()), ..grants };
        assert!(names(&in_workspace).is_empty());
    }

    #[test]
    fn a_model_is_shown_what_is_granted_and_nothing_otherwise() {
        assert_eq!(Grants::default().for_prompt(), Value::Null);
        let grants = Grants {
            network: Network::Hosts(vec!["a.example".into()]),
            read: vec!["/data".into()],
            workspace: Some("/w".into()),
            ..Grants::default()
        };
        let working_directory = json!({"path": "/w", "files": "read"});
        assert_eq!(
            grants.for_prompt(),
            json!({"network": "a.example", "read": ["/data"], "working_directory": working_directory})
        );
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
