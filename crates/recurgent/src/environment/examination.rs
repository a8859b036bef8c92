//! What this machine has to install packages with, for `recurgent doctor`.

use std::io::Read as _;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::dependency::{PackageIndex, endpoint};
use lifecycle::dialect::Language;

use super::source::PackageSources;
use super::{EnvironmentOptions, tool};
use crate::worker::Workers;

/// Longest time a tool may take to print its version, on a busy machine.
const VERSION_LIMIT: Duration = Duration::from_mins(1);
/// Interval at which its end is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest time a source may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Prints the version of the Bundler that installs gems.
const BUNDLER_VERSION: &str = "require \"bundler\"; print Bundler::VERSION";

/// One thing that installing packages needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallerCheck {
    /// `uv`, `bundler`, `sources` or `variables`.
    pub name: &'static str,
    /// What was found, or what is missing and what to do.
    pub found: Result<String, String>,
}

/// Examines the tools that install packages, and connects to the configured sources. Installs nothing.
pub fn examine(options: &EnvironmentOptions, workers: &Workers) -> Vec<InstallerCheck> {
    let mut checks = vec![
        InstallerCheck { name: "uv", found: uv(options, workers) },
        InstallerCheck { name: "bundler", found: bundler(workers) },
    ];
    let sources = Language::ALL.into_iter().flat_map(|language| sources(options, language));
    checks.extend(sources.map(|found| InstallerCheck { name: "sources", found }));
    let variables = options.variable_problem();
    checks.extend(variables.map(|it| InstallerCheck { name: "variables", found: Err(it) }));
    checks
}

fn uv(options: &EnvironmentOptions, workers: &Workers) -> Result<String, String> {
    if let Some(chosen) = &options.uv {
        let unusable = |why: String| {
            format!("the setting `uv` names {}: {why}; name another, or unset it", chosen.display())
        };
        return version(chosen, &["--version"], options).map_err(unusable);
    }
    let interpreter = workers.probe(Language::Python).ok();
    match tool::installed(&options.path, interpreter.as_ref(), options.cache.as_deref()) {
        Some(found) => {
            let printed = version(&found, &["--version"], options).map_err(|why| {
                format!("{}: {why}; install uv again, or name it with RECURGENT_UV", found.display())
            })?;
            Ok(format!("{printed} at {}", found.display()))
        }
        None => Err(
            "not installed; it is fetched with pip when a Python program first declares a package. \
             Install uv, or name it with RECURGENT_UV, where pip cannot fetch it"
                .to_owned(),
        ),
    }
}

fn bundler(workers: &Workers) -> Result<String, String> {
    let ruby = workers.probe(Language::Ruby).map_err(|why| format!("gems need Ruby: {why}"))?;
    let advice =
        "install Bundler 2.3 or newer (Debian/Ubuntu: apt-get install bundler) to install gems";
    let found = run(Command::new(&ruby.path).args(["-e", BUNDLER_VERSION]))
        .map_err(|why| format!("{why}; {advice}"))?;
    let mut parts = found.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if (major, minor) >= (2, 3) => Ok(found),
        (Some(_), Some(_)) => Err(format!("Bundler {found} is too old; {advice}")),
        _ => Err(format!("{found:?} is not a version of Bundler; {advice}")),
    }
}

/// The sources of one guest that are configured; nothing for a guest with the public one only.
fn sources(options: &EnvironmentOptions, language: Language) -> Vec<Result<String, String>> {
    let policy = match language {
        Language::Python => &options.python.packages,
        Language::Ruby => &options.ruby.packages,
    };
    let unused = policy.unused_sources(language).map(Err);
    let configured = policy.effective_sources(language).map_err(|fault| fault.failure().message);
    let found = match configured.map(|sources| PackageSources::of(&sources)) {
        Ok(sources) => sources.internal.iter().map(|index| reach(options, index)).collect(),
        Err(problem) => vec![Err(problem)],
    };
    unused.into_iter().chain(found).collect()
}

/// Whether a source, or the proxy to it, accepts connections.
fn reach(options: &EnvironmentOptions, index: &PackageIndex) -> Result<String, String> {
    let address = index.address();
    let Some(direct) = index.endpoint() else {
        let is_there = index.directory().is_some_and(|directory| directory.is_dir());
        let missing = || format!("{address}: there is no such directory; correct the address");
        return if is_there { Ok(address.to_owned()) } else { Err(missing()) };
    };
    let is_proxy = |name: &str| name.eq_ignore_ascii_case("https_proxy");
    let proxy = options.variables.iter().find(|(name, _)| name.to_str().is_some_and(is_proxy));
    let proxy = proxy.and_then(|(_, value)| endpoint(value.to_str()?));
    let (target, through) = match proxy {
        Some(proxy) => (proxy, " (its proxy answers)"),
        None => (direct, ""),
    };
    connect(&target).map(|()| format!("{address}{through}")).map_err(|why| {
        format!(
            "{address}: cannot connect to {target}: {why}; check the network, or set another source"
        )
    })
}

fn connect(endpoint: &str) -> Result<(), String> {
    let addresses = endpoint.to_socket_addrs().map_err(|error| error.to_string())?;
    let mut problem = "it has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            Ok(_) => return Ok(()),
            Err(error) => problem = error.to_string(),
        }
    }
    Err(problem)
}

fn version(
    program: &Path,
    arguments: &[&str],
    options: &EnvironmentOptions,
) -> Result<String, String> {
    run(Command::new(program).args(arguments).env_clear().env("PATH", &options.path))
}

/// The first line that a command prints.
fn run(command: &mut Command) -> Result<String, String> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("it does not run: {error}"))?;
    let deadline = Instant::now() + VERSION_LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            unended => {
                let _ = child.kill(); // fails if it has ended already
                let _ = child.wait();
                let late = || format!("it did not end within {} s", VERSION_LIMIT.as_secs());
                return Err(unended.err().map_or_else(late, |error| error.to_string()));
            }
        }
    };
    let mut printed = String::new();
    let read = child.stdout.take().map(|output| output.take(1024).read_to_string(&mut printed));
    match printed.lines().next().filter(|_| status.success() && matches!(read, Some(Ok(_)))) {
        Some(line) => Ok(line.trim().to_owned()),
        None => Err(format!("it ended with {status}")),
    }
}
