//! Tools from outside in the configuration: `[command.NAME]` and `[mcp.NAME]`, and the `mcpServers` JSON of other
//! programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Config, ConfigFault};
use crate::grants::{Grants, Network};
use crate::regular_file::read_regular;
use crate::toolbox::{CommandOptions, is_tool_name};
use crate::worker::outside_process::OutsideSandbox;

/// The tables of the file.
const COMMANDS: &str = "command";
const SERVERS: &str = "mcp";
/// Most servers and commands.
const MAX_TOOLS: usize = 200;
/// Names of the file of servers, beside the configuration file, in the form that other programs read.
const SERVERS_FILE: &str = "mcp.json";

/// An MCP server of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerOptions {
    /// How it is reached.
    pub transport: McpTransport,
    /// What its process may reach.
    pub grants: Grants,
    /// Whether its process runs outside the sandbox.
    pub uncontained: bool,
    /// Time it may take to start and to list its tools.
    pub start_timeout: Duration,
    /// Its methods that only read, whatever it says itself; `*`: all.
    pub reads_only: Vec<String>,
    /// The file that names it.
    pub file: PathBuf,
}

/// How an MCP server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// A process that is written to and read from.
    Stdio {
        /// A path, or a name on the search path.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
        /// Its environment variables; they may hold secrets.
        variables: Vec<(String, String)>,
    },
    /// A streamable HTTP endpoint.
    Http {
        /// Its address.
        url: String,
        /// Headers of every request; they may hold secrets.
        headers: Vec<(String, String)>,
    },
}

/// A server as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenServer {
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    #[serde(alias = "serverUrl", alias = "httpUrl")]
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// What other programs write; the transport follows from `command` or `url`.
    #[serde(rename = "type", alias = "transport")]
    kind: Option<String>,
    network: Option<String>,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    sandbox: Option<bool>,
    start_timeout_seconds: Option<f64>,
    #[serde(default)]
    reads_only: Vec<String>,
    #[serde(default, alias = "disabled")]
    off: bool,
    // Fields of other programs, without effect here.
    #[serde(rename = "autoApprove", alias = "alwaysAllow")]
    approved_elsewhere: Option<Value>,
    description: Option<Value>,
    timeout: Option<Value>,
    /// Fields that this program does not know.
    #[serde(skip)]
    unknown: Vec<String>,
}

/// The names of the fields above.
const FIELDS: [&str; 22] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
    "type",
    "transport",
    "network",
    "read",
    "write",
    "sandbox",
    "start_timeout_seconds",
    "reads_only",
    "off",
    "disabled",
    "autoApprove",
    "alwaysAllow",
    "description",
    "timeout",
];

/// Fields by which other programs withhold tools of a server. A server is left out rather than offered with all.
const WITHHOLDING: [&str; 6] =
    ["disabledTools", "enabledTools", "excludeTools", "includeTools", "allowedTools", "tools"];

impl WrittenServer {
    /// Reads an entry; fields that this program does not know are set aside.
    fn read(entry: Value) -> Result<Self, String> {
        let is_known = |field: &str| FIELDS.contains(&field);
        let mut known = entry;
        let mut unknown = Vec::new();
        if let Value::Object(fields) = &mut known {
            unknown.extend(fields.keys().filter(|field| !is_known(field)).cloned());
            fields.retain(|field, _| is_known(field));
        }
        let written: Self = serde_json::from_value(known).map_err(|error| error.to_string())?;
        Ok(Self { unknown, ..written })
    }

    /// Why the entry of another program cannot be used, because of a field that withholds tools.
    fn withholding(&self) -> Option<String> {
        let field = self.unknown.iter().find(|field| WITHHOLDING.contains(&field.as_str()))?;
        Some(format!(
            "`{field}` is not supported; leave it out and grant methods one by one, as in `tools = [\"server.method\"]`"
        ))
    }

    /// The fields that have no effect: each with what to do instead.
    fn without_effect(&self) -> Vec<String> {
        let fits = match self.kind.as_deref() {
            None => true,
            Some("stdio") => self.command.is_some(),
            // `sse` is refused with a reason of its own.
            Some("http" | "streamable-http" | "streamableHttp" | "sse") => self.url.is_some(),
            Some(_) => false,
        };
        let known = [
            (!fits, "`type` has no effect; the transport follows from `command` or `url`"),
            (
                self.approved_elsewhere.is_some(),
                "`autoApprove` has no effect; `tools` grants tools, and `reads_only` names those that only read",
            ),
            (
                self.timeout.is_some(),
                "`timeout` has no effect; use tool_timeout_seconds or `start_timeout_seconds`",
            ),
        ];
        let known = known.iter().filter(|(is_given, _)| *is_given);
        let unknown = self.unknown.iter().map(|field| format!("`{field}` has no effect"));
        known.map(|(_, text)| (*text).to_owned()).chain(unknown).collect()
    }
}

/// A command as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCommand {
    program: String,
    #[serde(default)]
    arguments: Vec<String>,
    input: Option<String>,
    output: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: serde_json::Map<String, Value>,
    #[serde(default)]
    optional: Vec<String>,
    #[serde(default)]
    reads_only: bool,
    network: Option<String>,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    directory: Option<String>,
    #[serde(default)]
    directory_write: bool,
    #[serde(default)]
    env: BTreeMap<String, String>,
    timeout_seconds: Option<f64>,
}

impl Config {
    /// Reads one table of the file, if it holds tools from outside.
    pub(super) fn read_outside_tools(
        &mut self,
        name: &str,
        value: &toml::Value,
        fault: &dyn Fn(String) -> ConfigFault,
    ) -> Result<bool, ConfigFault> {
        if ![COMMANDS, SERVERS].contains(&name) {
            return Ok(false);
        }
        let toml::Value::Table(entries) = value else {
            return Err(fault(format!("`{name}` must be tables: [{name}.NAME]")));
        };
        if entries.len() > MAX_TOOLS {
            return Err(fault(format!("[{name}] holds more than {MAX_TOOLS} tools")));
        }
        for (tool, entry) in entries {
            let at = format!("[{name}.{tool}]");
            let entry =
                serde_json::to_value(entry).map_err(|error| fault(format!("{at}: {error}")))?;
            if !is_tool_name(tool) {
                return Err(fault(format!(
                    "{at}: a tool is named with small letters, digits, `-` and `_`"
                )));
            }
            let taken = self.commands.contains_key(tool) || self.servers.contains_key(tool);
            if taken {
                return Err(fault(format!("{at}: another tool is named {tool}; rename one")));
            }
            let of_entry = |problem: String| fault(format!("{at}: {problem}"));
            if name == COMMANDS {
                let command = Self::command(entry).map_err(of_entry)?;
                self.commands.insert(tool.clone(), command);
            } else if let Some(server) = Self::own_server(entry).map_err(of_entry)? {
                self.servers.insert(tool.clone(), server);
            }
        }
        Ok(true)
    }

    fn command(entry: Value) -> Result<CommandOptions, String> {
        let written: WrittenCommand =
            serde_json::from_value(entry).map_err(|error| error.to_string())?;
        let mut grants = grants(written.network.as_deref(), &written.read, &written.write)?;
        grants.workspace = written.directory.as_deref().map(full_path).transpose()?;
        grants.workspace_write = written.directory_write;
        CommandOptions {
            program: program(&written.program),
            arguments: written.arguments,
            input: written.input,
            json_output: match written.output.as_deref() {
                None | Some("text") => false,
                Some("json") => true,
                Some(other) => return Err(format!("`output` is text or json, not {other:?}")),
            },
            description: written.description,
            parameters: written.parameters,
            optional: written.optional,
            reads_only: written.reads_only,
            grants,
            variables: Self::expanded_pairs(written.env)?,
            timeout: written.timeout_seconds.map(seconds).transpose()?,
        }
        .checked()
    }

    /// A server of the configuration file, which has no fields of other programs.
    fn own_server(entry: Value) -> Result<Option<McpServerOptions>, String> {
        let written = WrittenServer::read(entry)?;
        if let Some(field) = written.unknown.first() {
            return Err(format!("unknown field `{field}`"));
        }
        if let Some(problem) = written.without_effect().first() {
            return Err(problem.clone());
        }
        if written.description.is_some() {
            return Err(
                "`description` has no effect; a server describes its tools itself".to_owned()
            );
        }
        Self::server(written, Path::new(""))
    }

    fn server(written: WrittenServer, file: &Path) -> Result<Option<McpServerOptions>, String> {
        if written.off {
            return Ok(None);
        }
        let mut grants = grants(written.network.as_deref(), &written.read, &written.write)?;
        grants.workspace = written.cwd.as_deref().map(full_path).transpose()?;
        let is_sse = written.kind.as_deref() == Some("sse");
        let transport = match (written.command, written.url) {
            (Some(command), None) => McpTransport::Stdio {
                program: program(&command),
                arguments: written
                    .args
                    .iter()
                    .map(|it| Self::expanded(it))
                    .collect::<Result<_, _>>()?,
                variables: Self::expanded_pairs(written.env)?,
            },
            (None, Some(_)) if is_sse => {
                return Err(
                    "the transport `sse` is obsolete; use the server's streamable HTTP address"
                        .to_owned(),
                );
            }
            (None, Some(url)) => {
                let url = Self::expanded(&url)?;
                if !url.starts_with("http://") && !url.starts_with("https://") {
                    return Err(format!("`url` begins with http:// or https://, not {url:?}"));
                }
                McpTransport::Http { url, headers: Self::expanded_pairs(written.headers)? }
            }
            (Some(_), Some(_)) => return Err("it has a `command` and a `url`; keep one".to_owned()),
            (None, None) => return Err("it needs a `command` or a `url`".to_owned()),
        };
        Ok(Some(McpServerOptions {
            transport,
            grants,
            uncontained: written.sandbox == Some(false),
            start_timeout: written.start_timeout_seconds.map_or(Ok(START_TIMEOUT), seconds)?,
            reads_only: written.reads_only,
            file: file.to_owned(),
        }))
    }

    /// Replaces `${NAME}` by the environment variable of this name, so that secrets need not be in files. If it is not set,
    /// `${NAME:-text}` is the text.
    #[expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]
    fn expanded(text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, later)) = after.split_once('}') else {
                return Err(format!("{text:?} has `${{` without `}}`"));
            };
            let name = name.strip_prefix("env:").unwrap_or(name);
            let (name, otherwise) = match name.split_once(":-") {
                Some((name, otherwise)) => (name, Some(otherwise.to_owned())),
                None => (name, None),
            };
            let value = std::env::var(name).ok().or(otherwise);
            let value =
                value.ok_or_else(|| format!("the environment variable {name} is not set"))?;
            out.push_str(before);
            out.push_str(&value);
            rest = later;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn expanded_pairs(pairs: BTreeMap<String, String>) -> Result<Vec<(String, String)>, String> {
        pairs.into_iter().map(|(name, text)| Ok((name, Self::expanded(&text)?))).collect()
    }

    /// The file of servers in the form of other programs, which `recurgent mcp add` writes.
    #[doc(hidden)]
    pub fn servers_file(&self) -> Option<PathBuf> {
        Some(self.file.as_ref()?.with_file_name(SERVERS_FILE))
    }

    /// The MCP servers of the configuration file, of `mcp.json` beside it, and of `mcp_files`. An entry that cannot be
    /// used is left out, with the reason.
    #[doc(hidden)]
    pub fn mcp_servers(
        &self,
    ) -> Result<(BTreeMap<String, McpServerOptions>, Vec<String>), ConfigFault> {
        let mut servers = self.servers.clone();
        let mut notes = Vec::new();
        let own = self.servers_file().filter(|file| file.exists());
        for file in own.iter().chain(&self.settings.mcp_files) {
            let fault = |problem: String| ConfigFault::File { path: file.clone(), problem };
            let text = read_regular(file).map_err(|error| fault(error.to_string()))?;
            for (name, entry) in server_entries(&text).map_err(fault)? {
                let tool = tool_name(&name);
                let known = servers.get(&tool).map(|known| known.file.clone());
                if let Some(first) = known {
                    let first = if first.as_os_str().is_empty() {
                        "the configuration file".to_owned()
                    } else {
                        first.display().to_string()
                    };
                    notes.push(format!(
                        "{name} of {} is left out: {first} has a server named {tool}",
                        file.display()
                    ));
                    continue;
                }
                if self.commands.contains_key(&tool) {
                    notes.push(format!("{name} is left out: a command is named {tool}"));
                    continue;
                }
                let written = WrittenServer::read(entry);
                let without_effect =
                    written.as_ref().map(WrittenServer::without_effect).unwrap_or_default();
                let usable = written.and_then(|written| match written.withholding() {
                    Some(problem) => Err(problem),
                    None => Self::server(written, file),
                });
                match usable {
                    Ok(Some(server)) if is_tool_name(&tool) => {
                        servers.insert(tool, server);
                        let of_file =
                            |text: String| format!("{name} of {}: {text}", file.display());
                        notes.extend(without_effect.into_iter().map(of_file));
                    }
                    Ok(Some(_)) => {
                        notes.push(format!("{name:?} is left out: it cannot name a tool"));
                    }
                    Ok(None) => {}
                    Err(problem) => {
                        notes.push(format!("{name} of {} is left out: {problem}", file.display()));
                    }
                }
            }
        }
        Ok((servers, notes))
    }

    /// The commands that programs may call as tools.
    #[doc(hidden)]
    pub fn commands(&self) -> &BTreeMap<String, CommandOptions> {
        &self.commands
    }

    /// What contains the processes of tools from outside.
    #[doc(hidden)]
    pub fn outside_sandbox(&self) -> OutsideSandbox {
        OutsideSandbox::new(&self.worker_options(), self.home.clone())
    }
}

/// Time a server may take to start, unless its entry says otherwise.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The servers of a file in the form of other programs: `{"mcpServers": {…}}`, or `servers`.
#[doc(hidden)]
pub fn server_entries(text: &str) -> Result<Vec<(String, Value)>, String> {
    let whole: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let found = whole.get("mcpServers").or_else(|| whole.get("servers"));
    let Some(Value::Object(entries)) = found else {
        return Err("it has no object `mcpServers`".to_owned());
    };
    if entries.len() > MAX_TOOLS {
        return Err(format!("it holds more than {MAX_TOOLS} servers"));
    }
    Ok(entries.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect())
}

/// The name by which programs get a server: `My Server` is `my_server`.
#[doc(hidden)]
pub fn tool_name(name: &str) -> String {
    let part =
        |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
    name.trim().chars().map(part).collect()
}

fn grants(network: Option<&str>, read: &[String], write: &[String]) -> Result<Grants, String> {
    let paths = |paths: &[String]| paths.iter().map(|it| full_path(it)).collect::<Result<_, _>>();
    let network = match network {
        None => Network::Off,
        Some(text) => text.parse().map_err(|expected| format!("`network` must be {expected}"))?,
    };
    Ok(Grants { network, read: paths(read)?, write: paths(write)?, ..Grants::default() })
}

/// A path from the root; `~` is the home directory.
fn full_path(text: &str) -> Result<PathBuf, String> {
    let path = program(text);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!("the path {text:?} must begin with / or ~"))
    }
}

/// A path, or a name on the search path; `~` is the home directory.
fn program(text: &str) -> PathBuf {
    match text.strip_prefix("~/").zip(Config::home_dir()) {
        Some((rest, home)) => home.join(rest),
        None => PathBuf::from(text),
    }
}

fn seconds(number: f64) -> Result<Duration, String> {
    let duration = Duration::try_from_secs_f64(number).ok().filter(|it| !it.is_zero());
    duration.ok_or_else(|| format!("a time is a number of seconds above 0, not {number}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_listed_fields_are_those_of_an_entry() {
        for field in FIELDS {
            if let Err(problem) = WrittenServer::read(json!({field: null})) {
                assert!(!problem.contains("unknown field"), "{problem}");
            }
        }
        let written =
            WrittenServer::read(json!({"command": "x", "start_timeout_seconds": 2.5, "speed": 1}));
        let written = written.unwrap();
        assert_eq!(
            (written.start_timeout_seconds, written.unknown),
            (Some(2.5), vec!["speed".to_owned()])
        );
    }
}
