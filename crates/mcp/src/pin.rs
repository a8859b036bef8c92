//! What a person has approved of a server: the definitions of its tools, kept in a file for each server.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use recurgent::json::{self, Map, Value};
use recurgent::toolbox::OutsideTool;
use serde::{Deserialize, Serialize};

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// Numbers the files that this process writes.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// The approved definitions of one server, and what was learned of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pin {
    /// The digest of the definitions.
    pub digest: String,
    /// The definitions.
    pub tool: OutsideTool,
    /// The protocol revision it spoke.
    #[serde(default)]
    pub revision: Option<String>,
    /// The shapes of results, by method, where the server promises none.
    #[serde(default)]
    pub learned: Map<String, Value>,
}

impl Pin {
    /// A pin of what a server says now.
    pub(crate) fn new(tool: OutsideTool, revision: Option<String>) -> Self {
        let digest = tool.digest().as_str().to_owned();
        Self { digest, tool, revision, learned: Map::new() }
    }

    fn path(folder: &Path, server: &str) -> PathBuf {
        folder.join(format!("{server}.json"))
    }

    /// Reads it; none if the server was never used. A pin that was changed by hand or is damaged counts as none, so that
    /// the server must be approved.
    pub(crate) fn read(folder: &Path, server: &str) -> io::Result<Option<Self>> {
        let path = Self::path(folder, server);
        let size = match fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = |problem: String| {
            io::Error::other(format!(
                "{} is damaged ({problem}); run `recurgent mcp approve {server}`",
                path.display()
            ))
        };
        if size > MAX_FILE_BYTES {
            return Err(damaged("it is too large".to_owned()));
        }
        let text = fs::read_to_string(&path)?;
        let pin: Self = json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if pin.tool.digest().as_str() != pin.digest {
            return Err(damaged("its digest does not match".to_owned()));
        }
        Ok(Some(pin))
    }

    /// Writes it, whole or not at all.
    pub(crate) fn write(&self, folder: &Path, server: &str) -> io::Result<()> {
        fs::rename(self.write_aside(folder, server)?, Self::path(folder, server))
    }

    /// Writes it if there is none. One that another process wrote meanwhile stays.
    pub(crate) fn write_first(&self, folder: &Path, server: &str) -> io::Result<()> {
        let new = self.write_aside(folder, server)?;
        let linked = fs::hard_link(&new, Self::path(folder, server));
        fs::remove_file(&new)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn write_aside(&self, folder: &Path, server: &str) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!(".{server}.{}.{number}.new", std::process::id()));
        let mut file: File =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(json::to_string(self).map_err(io::Error::other)?.as_bytes())?;
        file.sync_all()?;
        Ok(new)
    }

    /// Forgets it.
    pub(crate) fn remove(folder: &Path, server: &str) -> io::Result<bool> {
        match fs::remove_file(Self::path(folder, server)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
