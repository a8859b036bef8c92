//! Packages for scenarios: a source with a few packages built here, or one that does not answer.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use recurgent::Language;
use recurgent::config::Config;
use recurgent::worker::Workers;
use serde_json::Value;

use crate::fields::{MapReader, text, texts};

const WHEELS: &str = include_str!("packages/wheels.py");
const GEMS: &str = include_str!("packages/gems.rb");

/// The packages that programs of a scenario may install, and their source.
#[derive(Debug)]
pub(crate) struct ScenarioPackages {
    source: PackageSource,
    blocked: Vec<String>,
    manifest: Option<String>,
}

/// A kind of package source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PackageSource {
    /// A folder on this machine.
    Local,
    /// An address without a listener.
    Closed,
    /// A listener that accepts connections and never answers.
    Silent,
}

/// A package source that exists while a scenario runs.
#[derive(Debug)]
pub(crate) struct PackageSupply {
    /// Settings of the runtime that name it.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// The listener that never answers.
    _silent: Option<TcpListener>,
}

impl ScenarioPackages {
    /// Reads `packages` of a scenario.
    pub(crate) fn read(value: Value) -> Result<Self, String> {
        let mut fields = MapReader::of(value)?;
        let source = match fields.optional(&["source"], text)?.as_deref() {
            Some("local") | None => PackageSource::Local,
            Some("closed") => PackageSource::Closed,
            Some("silent") => PackageSource::Silent,
            Some(other) => return Err(format!("there is no source {other:?}")),
        };
        let packages = Self {
            source,
            blocked: fields.optional(&["blocked"], texts)?.unwrap_or_default(),
            manifest: fields.optional(&["manifest"], text)?,
        };
        fields.finish()?;
        Ok(packages)
    }

    /// Sets the source up in a directory.
    pub(crate) fn supply(
        &self,
        machine: &Config,
        directory: &Path,
    ) -> Result<PackageSupply, String> {
        let guest = machine.agent_options().language;
        let (sources, blocked) = match guest {
            Language::Python => ("python_indexes", "blocked_packages"),
            Language::Ruby => ("gem_sources", "blocked_gems"),
        };
        let (address, silent) = match self.source {
            PackageSource::Local => (local(machine, guest, directory)?, None),
            // The listener is closed at once; the system does not reuse its port soon.
            PackageSource::Closed => (http(listen()?.1), None),
            PackageSource::Silent => listen().map(|(open, at)| (http(at), Some(open)))?,
        };
        let mut settings = vec![
            ("source_mode", "internal_only".to_owned()),
            (sources, address),
            (blocked, self.blocked.join(",")),
            ("resolve_timeout_seconds", "60".to_owned()),
        ];
        settings.extend(self.manifest.clone().map(|mode| ("manifest_mode", mode)));
        settings.extend(uv(machine).map(|uv| ("uv", uv.to_string_lossy().into_owned())));
        Ok(PackageSupply { settings, _silent: silent })
    }
}

/// The uv of this machine, so that a scenario, which has its own cache, does not fetch another.
fn uv(machine: &Config) -> Option<PathBuf> {
    let options = machine.environment_options();
    let fetched = options.cache.map(|cache| cache.join("tools/uv/bin/uv"));
    options.uv.or_else(|| fetched.filter(|uv| uv.exists()))
}

fn listen() -> Result<(TcpListener, SocketAddr), String> {
    let explained = |error: std::io::Error| format!("no address on loopback: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(explained)?;
    let address = listener.local_addr().map_err(explained)?;
    Ok((listener, address))
}

fn http(address: SocketAddr) -> String {
    format!("http://{address}/")
}

/// Builds the packages with the guest's own interpreter.
fn local(machine: &Config, guest: Language, directory: &Path) -> Result<String, String> {
    let workers = Workers::start(&machine.worker_options()).map_err(|error| error.to_string())?;
    let interpreter = workers.probe(guest)?;
    let (script, option, index) = match guest {
        Language::Python => (WHEELS, "-c", "simple/"),
        Language::Ruby => (GEMS, "-e", ""),
    };
    let source = directory.join("source");
    let made = Command::new(&interpreter.path)
        .args([option, script])
        .arg(&source)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot build packages: {error}"))?;
    if !made.status.success() {
        return Err(format!("cannot build packages: {}", String::from_utf8_lossy(&made.stderr)));
    }
    Ok(format!("file://{}/{index}", source.display()))
}
