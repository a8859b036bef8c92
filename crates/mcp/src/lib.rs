//! **Reaches.** Tools of MCP servers, behind the synchronous seam [`Toolbox`].
//!
//! All servers of a program share one thread with an asynchronous runtime of its own ([`thread`]). A server is started,
//! or connected to, when its first tool is called. What it says of its tools is pinned on first use; a server that says
//! something else later is refused until a person approves it ([`pin`]).

mod connection;
mod content;
mod pin;
mod server;
mod thread;

use std::path::Path;
use std::sync::Arc;

use recurgent::config::{Config, ConfigFault};
use recurgent::toolbox::Toolbox;

pub use pin::Pin;
pub use server::{McpServer, ServerReport};

/// The folder of pins in the state directory.
const PINS: &str = "mcp";

/// The servers of a configuration, and which entries are left out and why.
#[derive(Debug)]
pub struct Servers {
    /// By name.
    pub servers: Vec<Arc<McpServer>>,
    /// What people should know.
    pub notes: Vec<String>,
}

impl Servers {
    /// Reads the entries; starts nothing.
    pub fn of(config: &Config) -> Result<Self, ConfigFault> {
        let (entries, notes) = config.mcp_servers()?;
        if entries.is_empty() {
            return Ok(Self { servers: Vec::new(), notes });
        }
        let pins = config.state_dir()?.join(PINS);
        let thread = Arc::new(thread::IoThread::default());
        let sandbox = Arc::new(config.outside_sandbox());
        let server = |(name, options)| {
            let (thread, sandbox) = (Arc::clone(&thread), Arc::clone(&sandbox));
            Arc::new(McpServer::new(name, options, thread, sandbox, Path::new(&pins)))
        };
        Ok(Self { servers: entries.into_iter().map(server).collect(), notes })
    }

    /// The servers as a runtime takes them.
    pub fn toolboxes(&self) -> impl Iterator<Item = Arc<dyn Toolbox>> + '_ {
        self.servers.iter().map(|server| Arc::clone(server) as Arc<dyn Toolbox>)
    }
}
