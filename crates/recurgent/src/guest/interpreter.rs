//! Finding the interpreter of a guest language, and the command that boots the harness in it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::dialect::Language;

use super::harness;
use crate::provider::key_variables;

/// Longest time an interpreter may take to describe itself; version managers' shims are slow.
const PROBE_DEADLINE: Duration = Duration::from_secs(10);
/// Interval at which a probe is checked.
const PROBE_PERIOD: Duration = Duration::from_millis(2);
/// Longest output read from a probe.
const PROBE_BYTES: u64 = 16 * 1024;
/// Most interpreters that are tried, of all names together.
const MAX_CANDIDATES: usize = 16;

/// An interpreter that can run the harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterpreterInfo {
    /// The binary itself, never a version manager's shim.
    pub path: PathBuf,
    /// Its version.
    pub version: InterpreterVersion,
    /// Its implementation: `cpython`, `ruby` and so on.
    pub engine: String,
    /// Distinguishes builds of one version: `final0`, `20`.
    pub patch_level: String,
    /// The platform that compiled packages must be built for.
    pub platform: String,
    /// Directories and files it needs to run.
    pub roots: Vec<PathBuf>,
}

impl InterpreterInfo {
    /// The environment marker (PEP 508) of this machine.
    pub(crate) fn marker(&self) -> Option<String> {
        let mut parts = self.platform.splitn(3, '-');
        let (system, machine) = (parts.next()?, parts.next()?);
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (plain(system) && plain(machine))
            .then(|| format!("sys_platform == '{system}' and platform_machine == '{machine}'"))
    }
}

/// `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterpreterVersion(pub u32, pub u32, pub u32);

impl fmt::Display for InterpreterVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// How the interpreters of one guest language are found and started.
struct InterpreterKind {
    title: &'static str,
    names: &'static [&'static str],
    minimum: InterpreterVersion,
    package: &'static str,
    setting: &'static str,
    /// Options before the program text on the command line.
    options: &'static [&'static str],
    harness: &'static str,
    /// Prints the real binary's path, version, engine, patch level, platform and roots, one per line. Omits roots that
    /// contain the home directory, because programs can read every root.
    probe: &'static [&'static str],
}

const PYTHON: InterpreterKind = InterpreterKind {
    title: "Python",
    names: &["python3", "python"],
    minimum: InterpreterVersion(3, 9, 0),
    package: "python3",
    setting: "RECURGENT_PYTHON",
    options: &["-I", "-S", "-B", "-X", "utf8", "-c"],
    harness: harness::PYTHON,
    probe: &["-I", "-S", "-c", PYTHON_PROBE],
};

const RUBY: InterpreterKind = InterpreterKind {
    title: "Ruby",
    names: &["ruby"],
    minimum: InterpreterVersion(3, 1, 0),
    package: "ruby",
    setting: "RECURGENT_RUBY",
    options: &["--disable=did_you_mean,error_highlight", "-e"],
    harness: harness::RUBY,
    probe: &["--disable=gems", "-e", RUBY_PROBE],
};

const PYTHON_PROBE: &str = "\
import os, sys
print(sys.executable)
print('%d.%d.%d' % sys.version_info[:3])
print(sys.implementation.name)
print('%s%d' % sys.version_info[3:])
abi = getattr(sys.implementation, '_multiarch', '') + getattr(sys, 'abiflags', '')
print(sys.platform, os.uname().machine, abi, sep='-')
home = os.path.expanduser('~')
for place in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *sys.path, sys.executable):
    if os.path.exists(place) and not (home + os.sep).startswith(place.rstrip(os.sep) + os.sep):
        print(place)
";
const RUBY_PROBE: &str = "\
require 'rbconfig'
puts RbConfig.ruby, RUBY_VERSION, RUBY_ENGINE, RUBY_PATCHLEVEL, RUBY_PLATFORM
home = Dir.home rescue '/'
own = RbConfig::CONFIG.values_at('prefix', 'rubylibprefix', 'rubyarchdir', 'libdir', 'sitedir', 'vendordir')
[*own, *$LOAD_PATH, RbConfig.ruby].compact.each do |place|
  puts place if File.exist?(place) && !\"#{home}/\".start_with?(\"#{place.chomp('/')}/\")
end
";

fn kind(language: Language) -> &'static InterpreterKind {
    match language {
        Language::Python => &PYTHON,
        Language::Ruby => &RUBY,
    }
}

/// Finds the interpreter: the `chosen` one, or the first on `path` that is new enough. The error says what to
/// install.
pub(crate) fn find(
    language: Language,
    chosen: Option<&Path>,
    path: &OsStr,
) -> Result<InterpreterInfo, String> {
    let kind = kind(language);
    if let Some(chosen) = chosen {
        return probe(kind, chosen).map_err(|problem| {
            format!("{} names {}, which cannot be used: {problem}", kind.setting, chosen.display())
        });
    }
    let mut problems = Vec::new();
    for candidate in candidates(kind, path) {
        match probe(kind, &candidate) {
            Ok(info) => return Ok(info),
            Err(problem) => problems.push(format!("{}: {problem}", candidate.display())),
        }
    }
    Err(not_found_message(kind, &problems))
}

/// The command that boots the harness in this interpreter, with the environment that `arguments` describe.
pub(crate) fn command(
    language: Language,
    interpreter: &InterpreterInfo,
    arguments: &[OsString],
) -> Command {
    let kind = kind(language);
    let mut command = Command::new(&interpreter.path);
    command.args(kind.options).arg(kind.harness);
    if language == Language::Ruby && !arguments.is_empty() {
        command.arg("--"); // ends Ruby's own options; Python's end with the program text
    }
    command.args(arguments);
    command
}

fn candidates(kind: &InterpreterKind, path: &OsStr) -> Vec<PathBuf> {
    let directories: Vec<PathBuf> =
        std::env::split_paths(path).filter(|d| d.is_absolute()).collect();
    let mut found = Vec::new();
    for name in kind.names {
        found.extend(
            directories.iter().map(|directory| directory.join(name)).filter(|file| file.is_file()),
        );
    }
    found.truncate(MAX_CANDIDATES);
    found
}

fn not_found_message(kind: &InterpreterKind, problems: &[String]) -> String {
    let InterpreterVersion(major, minor, _) = kind.minimum;
    let mut message = format!(
        "{} {major}.{minor} or newer was not found; install it (Debian/Ubuntu: apt-get install {}) or set {}",
        kind.title, kind.package, kind.setting
    );
    if !problems.is_empty() {
        message.push_str(". Tried ");
        message.push_str(&problems.join("; "));
    }
    message
}

/// Runs the probe in an interpreter.
fn probe(kind: &InterpreterKind, candidate: &Path) -> Result<InterpreterInfo, String> {
    let mut command = Command::new(candidate);
    // If the host runs under Bundler, these variables make the probe load the host's project. Python's `-I` ignores
    // such variables.
    command.args(kind.probe).env_remove("RUBYOPT").env_remove("RUBYLIB");
    // Version managers use variables that are not known here, so only keys are removed.
    for variable in key_variables() {
        command.env_remove(variable);
    }
    let answer = run(&mut command)?;
    let mut lines = answer.lines();
    let path = lines.next().map(PathBuf::from).filter(|path| path.is_absolute());
    let version = lines.next().and_then(parse_version);
    let mut next = || lines.next().map(|line| line.trim().to_owned());
    let (engine, patch_level, platform) = (next(), next(), next());
    let (Some(path), Some(version), Some(engine), Some(patch_level), Some(platform)) =
        (path, version, engine, patch_level, platform)
    else {
        return Err(format!("it is not {}", kind.title));
    };
    if version < kind.minimum {
        let InterpreterVersion(major, minor, _) = kind.minimum;
        return Err(format!("it is {} {version}, older than {major}.{minor}", kind.title));
    }
    let mut roots: Vec<PathBuf> =
        lines.map(PathBuf::from).filter(|root| root.is_absolute()).collect();
    roots.dedup();
    Ok(InterpreterInfo { path, version, engine, patch_level, platform, roots })
}

fn parse_version(text: &str) -> Option<InterpreterVersion> {
    let mut parts = text.trim().splitn(3, '.').map(|part| part.parse().ok());
    Some(InterpreterVersion(parts.next()??, parts.next()??, parts.next()??))
}

/// The output of a command that succeeds in time.
fn run(command: &mut Command) -> Result<String, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("it does not start: {error}"))?;
    let deadline = Instant::now() + PROBE_DEADLINE;
    let waited = loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                break status.success().then_some(()).ok_or_else(|| format!("it failed: {status}"));
            }
            Ok(None) if Instant::now() < deadline => thread::sleep(PROBE_PERIOD),
            Ok(None) => break Err(format!("it did not end within {} s", PROBE_DEADLINE.as_secs())),
            Err(error) => break Err(format!("waiting for it failed: {error}")),
        }
    };
    if waited.is_err() {
        // Fails if the process has ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
    waited?;
    let mut answer = String::new();
    let Some(stdout) = child.stdout.take() else { return Ok(answer) };
    stdout
        .take(PROBE_BYTES)
        .read_to_string(&mut answer)
        .map_err(|error| format!("its output is not text: {error}"))?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_missing_interpreter_names_the_package_to_install() {
        assert_eq!(
            find(Language::Ruby, None, OsStr::new("/nonexistent")).unwrap_err(),
            "Ruby 3.1 or newer was not found; install it (Debian/Ubuntu: apt-get install ruby) or set RECURGENT_RUBY"
        );
        let chosen =
            find(Language::Python, Some(Path::new("/bin/false")), OsStr::new("")).unwrap_err();
        assert!(
            chosen.starts_with("RECURGENT_PYTHON names /bin/false, which cannot be used"),
            "{chosen}"
        );
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(parse_version("3.10.1") > parse_version("3.9.20"));
        assert_eq!(parse_version("3.13"), None);
    }
}
