//! `recurgent mcp`: servers whose tools programs may call.

#[cfg(feature = "mcp")]
mod servers;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use recurgent::config::{Config, server_entries, tool_name};
use recurgent::toolbox::is_tool_name;
use serde_json::{Map, Value, json};

use super::settings::StateFlags;
use crate::exit::{CommandFault, Exit};
use crate::render;
use crate::render::paint::clean;

const EXAMPLES: &str = "\
Examples:
  recurgent mcp add time -- uvx mcp-server-time --local-timezone UTC
  recurgent mcp add docs --url https://docs.example.org/mcp
  recurgent mcp add --from ~/.config/other/mcp.json     servers of another program
  recurgent mcp list
  recurgent mcp test time                               start it and show its tools
  recurgent mcp test time --call get_current_time --args '{\"timezone\": \"UTC\"}'
  recurgent mcp approve time                            accept what it says of its tools now
  recurgent mcp rm time

Programs may call a server that is granted: `tools = [\"time\"]` in the configuration file, or --tools time.";

/// Entries of a file of servers.
const SERVERS: &str = "mcpServers";
/// The same in files of some editors.
const SERVERS_OF_EDITORS: &str = "servers";

/// Servers whose tools programs may call (MCP)
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McpOptions {
    #[command(subcommand)]
    verb: Verb,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    state: StateFlags,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the servers, and what of them is approved; starts none
    List,
    /// Add a server to mcp.json beside the configuration file
    Add(Box<AddArgs>),
    /// Accept what a server says of its tools now
    Approve {
        /// The server
        name: String,
    },
    /// Remove a server that was added, and what was approved of it
    Rm {
        /// The server
        name: String,
    },
    /// Start a server, show its tools and what has changed; with --call, call one
    Test(TestArgs),
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The name by which programs get it
    #[arg(required_unless_present = "from")]
    name: Option<String>,
    /// The command that starts it, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// The address of a server on the network
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// Copy the servers of a file of another program
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "url", "command"])]
    from: Option<PathBuf>,
    /// An environment variable of its process; `${NAME}` is read when it starts; may be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["url", "from"])]
    env: Vec<String>,
    /// A header of every request; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "url")]
    header: Vec<String>,
    /// The network that its process may use
    #[arg(long, conflicts_with_all = ["url", "from"])]
    network: Option<String>,
    /// Let its process read a file or directory; may be repeated
    #[arg(long, value_name = "PATH", conflicts_with_all = ["url", "from"])]
    read: Vec<PathBuf>,
    /// Let its process write a file or directory; may be repeated
    #[arg(long, value_name = "PATH", conflicts_with_all = ["url", "from"])]
    write: Vec<PathBuf>,
    /// Run its process with all your rights, outside the sandbox
    #[arg(long, conflicts_with_all = ["url", "from"])]
    no_sandbox: bool,
    /// A tool of it that only reads, whatever it says itself; `*` for all; may be repeated
    #[arg(long, value_name = "TOOL", conflicts_with = "from")]
    reads_only: Vec<String>,
}

#[derive(Debug, Args)]
struct TestArgs {
    /// The server
    name: String,
    /// A tool to call
    #[arg(long, value_name = "TOOL")]
    call: Option<String>,
    /// Its arguments, as a JSON object
    #[arg(long, value_name = "JSON", requires = "call")]
    args: Option<String>,
}

impl McpOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let config = self.state.config(&[])?;
        match &self.verb {
            Verb::Add(args) => self.add(&config, args),
            Verb::Rm { name } => self.remove(&config, name),
            #[cfg(feature = "mcp")]
            Verb::List => servers::list(&config, self.json),
            #[cfg(feature = "mcp")]
            Verb::Approve { name } => servers::approve(&config, name, self.json),
            #[cfg(feature = "mcp")]
            Verb::Test(args) => servers::test(&config, args, self.json),
            #[cfg(not(feature = "mcp"))]
            Verb::List | Verb::Approve { .. } | Verb::Test(_) => Err(no_servers()),
        }
    }

    fn add(&self, config: &Config, args: &AddArgs) -> Result<Exit, CommandFault> {
        let entries = match &args.from {
            Some(file) => {
                let fault = |problem: String| {
                    CommandFault::setup(format!("cannot read {}: {problem}", file.display()))
                };
                let text = fs::read_to_string(file).map_err(|error| fault(error.to_string()))?;
                server_entries(&text).map_err(fault)?
            }
            None => vec![args.entry()?],
        };
        let file = servers_file(config)?;
        let mut all = ServersFile::read(&file)?;
        let mut added = Vec::new();
        let (elsewhere, _) = config.mcp_servers()?;
        let commands = config.commands();
        for (name, entry) in entries {
            check_free(&all, &file, &name)?;
            let tool = tool_name(&name);
            if elsewhere.contains_key(&tool) || commands.contains_key(&tool) {
                return Err(CommandFault::usage(format!(
                    "the configuration has a server or a command named {tool}; choose another name"
                )));
            }
            all.entries.insert(name.clone(), entry);
            added.push(name);
        }
        all.write(&file)?;
        if self.json {
            render::json(&json!({"status": "ok", "added": added, "file": file}))?;
        } else {
            let names = clean(&added.join(", "));
            render::notice(&format!(
                "added {names} to {}; `recurgent mcp test NAME` shows its tools, and `--tools NAME` lets programs call them",
                file.display()
            ));
        }
        Ok(Exit::Ok)
    }

    fn remove(&self, config: &Config, name: &str) -> Result<Exit, CommandFault> {
        let file = servers_file(config)?;
        let mut all = ServersFile::read(&file)?;
        let is_it = |known: &&String| *known == name || tool_name(known) == tool_name(name);
        let found = all.entries.keys().find(is_it).cloned();
        let was_added = found.as_ref().is_some_and(|found| all.entries.remove(found).is_some());
        if was_added {
            all.write(&file)?;
        }
        let pin = config.state_dir()?.join("mcp").join(format!("{}.json", tool_name(name)));
        let was_approved = is_tool_name(&tool_name(name)) && fs::remove_file(pin).is_ok();
        if !was_added && !was_approved {
            return Err(CommandFault::missing(format!(
                "no server named {name:?} was added; `recurgent mcp list` names them all, and one of another file is removed there"
            )));
        }
        if self.json {
            render::json(
                &json!({"status": "ok", "removed": was_added, "forgotten": was_approved}),
            )?;
        } else if was_added {
            render::notice(&format!("removed {}", clean(name)));
        } else {
            render::notice(&format!(
                "forgot what was approved of {}; it was not added to {}, so its entry stays where it is",
                clean(name),
                file.display()
            ));
        }
        Ok(Exit::Ok)
    }
}

impl AddArgs {
    /// The entry as other programs would write it, with what only this one reads.
    fn entry(&self) -> Result<(String, Value), CommandFault> {
        let name = self.name.clone().unwrap_or_default();
        if !is_tool_name(&name) {
            return Err(CommandFault::usage(format!(
                "{name:?} cannot name a server: use small letters, digits, `-` and `_`"
            )));
        }
        let mut entry = Map::new();
        match (&self.url, self.command.as_slice()) {
            // `${NAME}` is an environment variable when the server is used.
            (Some(url), _)
                if !["http://", "https://", "${"].iter().any(|it| url.starts_with(it)) =>
            {
                return Err(CommandFault::usage(format!(
                    "--url begins with http:// or https://, not {url:?}"
                )));
            }
            (Some(url), _) => drop(entry.insert("url".to_owned(), json!(url))),
            (None, [program, arguments @ ..]) => {
                entry.insert("command".to_owned(), json!(found_anywhere(program)?));
                entry.insert("args".to_owned(), json!(arguments));
            }
            (None, []) => {
                return Err(CommandFault::usage(
                    "say how it is reached: --url ADDRESS, or its command after `--`",
                ));
            }
        }
        for (key, pairs) in [("env", &self.env), ("headers", &self.header)] {
            let mut all = Map::new();
            for pair in pairs {
                let (name, text) = pair
                    .split_once('=')
                    .ok_or_else(|| CommandFault::usage(format!("{pair:?} must be NAME=VALUE")))?;
                all.insert(name.to_owned(), json!(text));
            }
            if !all.is_empty() {
                entry.insert(key.to_owned(), Value::Object(all));
            }
        }
        for (key, paths) in [("read", &self.read), ("write", &self.write)] {
            #[expect(
                clippy::disallowed_methods,
                reason = "the file is read from other directories"
            )]
            let full: Result<Vec<PathBuf>, _> = paths.iter().map(std::path::absolute).collect();
            let full = full.map_err(|error| CommandFault::usage(error.to_string()))?;
            if !full.is_empty() {
                entry.insert(key.to_owned(), json!(full));
            }
        }
        if let Some(network) = &self.network {
            entry.insert("network".to_owned(), json!(network));
        }
        if self.no_sandbox {
            entry.insert("sandbox".to_owned(), json!(false));
        }
        if !self.reads_only.is_empty() {
            entry.insert("reads_only".to_owned(), json!(self.reads_only));
        }
        Ok((name, Value::Object(entry)))
    }
}

fn servers_file(config: &Config) -> Result<PathBuf, CommandFault> {
    config.servers_file().ok_or_else(|| {
        CommandFault::setup("no home directory was found; name a file with RECURGENT_CONFIG")
    })
}

/// A program that is named by a path is found from every directory.
fn found_anywhere(program: &str) -> Result<String, CommandFault> {
    if !program.contains('/') || program.starts_with("~/") {
        return Ok(program.to_owned());
    }
    #[expect(clippy::disallowed_methods, reason = "the file is read from other directories")]
    let path =
        std::path::absolute(program).map_err(|error| CommandFault::usage(error.to_string()))?;
    Ok(path.display().to_string())
}

/// Fails if a name cannot be one, or programs could not tell the server from one that was added before.
fn check_free(added: &ServersFile, file: &Path, name: &str) -> Result<(), CommandFault> {
    let tool = tool_name(name);
    if !is_tool_name(&tool) {
        return Err(CommandFault::usage(format!(
            "{name:?} cannot name a server: a name begins with a letter and has at most 64 characters"
        )));
    }
    if let Some(known) = added.entries.keys().find(|known| tool_name(known) == tool) {
        return Err(CommandFault::usage(format!(
            "{} has a server named {known:?}; remove it first: recurgent mcp rm {tool}",
            file.display()
        )));
    }
    Ok(())
}

/// The file of servers as it is, with what other programs keep in it.
struct ServersFile {
    entries: Map<String, Value>,
    others: Map<String, Value>,
}

impl ServersFile {
    fn read(file: &Path) -> Result<Self, CommandFault> {
        if !file.exists() {
            return Ok(Self { entries: Map::new(), others: Map::new() });
        }
        let fault = |problem: String| {
            CommandFault::setup(format!("cannot read {}: {problem}", file.display()))
        };
        let text = fs::read_to_string(file).map_err(|error| fault(error.to_string()))?;
        let entries = server_entries(&text).map_err(fault)?.into_iter().collect();
        let mut others: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?;
        let name = if others.contains_key(SERVERS) { SERVERS } else { SERVERS_OF_EDITORS };
        others.remove(name);
        Ok(Self { entries, others })
    }

    /// Writes it whole; it may hold secrets, so only its owner may read it.
    fn write(&self, file: &Path) -> Result<(), CommandFault> {
        let mut whole = self.others.clone();
        whole.insert(SERVERS.to_owned(), Value::Object(self.entries.clone()));
        let write = || -> std::io::Result<()> {
            let folder = file.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            let mut new = tempfile::NamedTempFile::new_in(folder)?;
            writeln!(new, "{:#}", Value::Object(whole))?;
            new.as_file().sync_all()?;
            new.persist(file)?;
            Ok(())
        };
        write().map_err(|error| {
            CommandFault::setup(format!("cannot write {}: {error}", file.display()))
        })
    }
}

/// The fault of a build without servers.
#[cfg(not(feature = "mcp"))]
fn no_servers() -> CommandFault {
    CommandFault::setup(
        "this recurgent was built without MCP; in its source, \
         `cargo install --locked --path crates/cli --features mcp` builds one with it",
    )
}
