//! Finding the interpreter of a guest language, and the command that boots the harness in it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::dialect::Language;
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal};

use super::harness;
use crate::provider::key_variables;

/// Longest time an interpreter may take to describe itself. An idle machine needs some tens of milliseconds; version
/// managers' shims and overloaded machines need many seconds.
const PROBE_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval at which a probe is checked.
const PROBE_PERIOD: Duration = Duration::from_millis(2);
/// Longest output of a probe.
const PROBE_BYTES: u64 = 1 << 20;
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
    /// The environment marker (PEP 508) of this machine. Only for Python, whose platform names the system first.
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
    options: &["-I", "-S", "-B", "-X", "utf8", "-c", harness::PYTHON_LOADER],
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
        return probe(kind, chosen, PROBE_TIMEOUT).map_err(|fault| {
            format!("{} names {}, which cannot be used: {fault}", kind.setting, chosen.display())
        });
    }
    search(kind, path, PROBE_TIMEOUT)
}

/// The first interpreter on `path` that is new enough.
fn search(
    kind: &InterpreterKind,
    path: &OsStr,
    timeout: Duration,
) -> Result<InterpreterInfo, String> {
    let mut faults = Vec::new();
    for candidate in candidates(kind, path) {
        match probe(kind, &candidate, timeout) {
            Ok(info) => return Ok(info),
            Err(fault) => faults.push((candidate, fault)),
        }
    }
    Err(not_found_message(kind, &faults))
}

/// Why an interpreter cannot be used.
#[derive(Debug)]
enum ProbeFault {
    /// It did not describe itself in time.
    Late(Duration),
    Unusable(String),
}

impl fmt::Display for ProbeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(timeout) => write!(f, "it did not end within {} s", timeout.as_secs_f32()),
            Self::Unusable(why) => f.write_str(why),
        }
    }
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

/// Says what to do: install an interpreter, or look at one that does not answer.
fn not_found_message(kind: &InterpreterKind, faults: &[(PathBuf, ProbeFault)]) -> String {
    let InterpreterVersion(major, minor, _) = kind.minimum;
    let wanted = format!("{} {major}.{minor} or newer", kind.title);
    let mut message = if faults.iter().any(|(_, fault)| matches!(fault, ProbeFault::Late(_))) {
        format!(
            "{wanted} was found but does not answer; try again when the machine is less busy, or set {}",
            kind.setting
        )
    } else {
        format!(
            "{wanted} was not found; install it (Debian/Ubuntu: apt-get install {}) or set {}",
            kind.package, kind.setting
        )
    };
    let tried: Vec<String> =
        faults.iter().map(|(path, fault)| format!("{}: {fault}", path.display())).collect();
    if !tried.is_empty() {
        message.push_str(". Tried ");
        message.push_str(&tried.join("; "));
    }
    message
}

/// Runs the probe in an interpreter.
fn probe(
    kind: &InterpreterKind,
    candidate: &Path,
    timeout: Duration,
) -> Result<InterpreterInfo, ProbeFault> {
    let mut command = Command::new(candidate);
    // If the host runs under Bundler, these variables make the probe load the host's project. Python's `-I` ignores
    // such variables.
    command.args(kind.probe).env_remove("RUBYOPT").env_remove("RUBYLIB");
    // Version managers use variables that are not known here, so only keys are removed.
    for variable in key_variables() {
        command.env_remove(variable);
    }
    let answer = output(&mut command, timeout)?;
    let mut lines = answer.lines();
    let path = lines.next().map(PathBuf::from).filter(|path| path.is_absolute());
    let version = lines.next().and_then(parse_version);
    let mut next = || lines.next().map(|line| line.trim().to_owned());
    let (engine, patch_level, platform) = (next(), next(), next());
    let (Some(path), Some(version), Some(engine), Some(patch_level), Some(platform)) =
        (path, version, engine, patch_level, platform)
    else {
        return Err(ProbeFault::Unusable(format!("it is not {}", kind.title)));
    };
    if version < kind.minimum {
        let InterpreterVersion(major, minor, _) = kind.minimum;
        let old = format!("it is {} {version}, older than {major}.{minor}", kind.title);
        return Err(ProbeFault::Unusable(old));
    }
    let mut known = BTreeSet::new();
    let roots = lines.map(PathBuf::from).filter(|root| root.is_absolute());
    let roots = roots.filter(|root| known.insert(root.clone())).collect();
    Ok(InterpreterInfo { path, version, engine, patch_level, platform, roots })
}

fn parse_version(text: &str) -> Option<InterpreterVersion> {
    let mut parts = text.trim().splitn(3, '.').map(|part| part.parse().ok());
    Some(InterpreterVersion(parts.next()??, parts.next()??, parts.next()??))
}

/// The output of a command that succeeds in time. It goes to a file in memory, not to a pipe: a process that the
/// command leaves behind cannot keep it open, and no output is too large for it.
fn output(command: &mut Command, timeout: Duration) -> Result<String, ProbeFault> {
    let unusable =
        |what: &str, error: &dyn fmt::Display| ProbeFault::Unusable(format!("{what}: {error}"));
    let file = rustix::fs::memfd_create(c"probe", MemfdFlags::CLOEXEC)
        .map_err(|error| unusable("no file for its output can be made", &error))?;
    let mut file = File::from(file);
    let stdout = file.try_clone().map_err(|error| unusable("its output cannot be read", &error))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| unusable("it does not start", &error))?;
    let waited = await_success(&mut child, &file, timeout);
    if waited.is_err() {
        // Its group too, since a shim waits for the interpreter. Both fail if the process has ended already.
        let group = Pid::from_raw(child.id().cast_signed());
        let _ = group.map(|group| rustix::process::kill_process_group(group, Signal::KILL));
        let _ = child.wait();
    }
    waited?;
    let mut answer = String::new();
    file.rewind()
        .and_then(|()| file.take(PROBE_BYTES).read_to_string(&mut answer))
        .map_err(|error| unusable("its output is not text", &error))?;
    Ok(answer)
}

/// Waits until a process succeeds. Fails if it does not, runs for too long or prints too much.
fn await_success(child: &mut Child, file: &File, timeout: Duration) -> Result<(), ProbeFault> {
    let unusable =
        |error: io::Error| ProbeFault::Unusable(format!("waiting for it failed: {error}"));
    let deadline = Instant::now() + timeout;
    loop {
        let ended = child.try_wait().map_err(unusable)?;
        if file.metadata().map_err(unusable)?.len() > PROBE_BYTES {
            let long = format!("it printed more than {PROBE_BYTES} bytes");
            return Err(ProbeFault::Unusable(long));
        }
        match ended {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(ProbeFault::Unusable(format!("it failed: {status}"))),
            None if Instant::now() >= deadline => return Err(ProbeFault::Late(timeout)),
            None => thread::sleep(PROBE_PERIOD),
        }
    }
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

    /// What is found if a shell script takes the place of Python's probe. `answer` in it prints what Python prints.
    fn probed(script: &str, timeout: Duration) -> Result<InterpreterInfo, String> {
        let answer = "printf '%s\\n' /usr/bin/python3 3.11.2 cpython final0 linux-x86_64-";
        let script: &str = String::leak(format!("answer() {{ {answer}; }}\n{script}"));
        let kind =
            InterpreterKind { names: &["sh"], probe: Vec::leak(vec!["-c", script]), ..PYTHON };
        search(&kind, OsStr::new("/bin"), timeout)
    }

    #[test]
    fn a_process_that_a_shim_leaves_behind_does_not_delay_the_probe() {
        let info = probed("sleep 600 &\nanswer; echo /$!", PROBE_TIMEOUT).unwrap();
        let [root] = &info.roots[..] else { panic!("{info:?}") };
        let left = root.strip_prefix("/").unwrap().to_str().unwrap().parse().unwrap();
        // It is still running.
        rustix::process::kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn every_root_is_read_once_however_many_there_are() {
        let many = "answer; i=0; while [ $i -lt 9000 ]; do echo /usr/lib/a-long-directory-name/$i; i=$((i+1)); done";
        let info = probed(&format!("{many}; echo /usr/lib/a-long-directory-name/0"), PROBE_TIMEOUT);
        let roots = info.unwrap().roots;
        assert_eq!(roots.len(), 9000);
        assert_eq!(roots.last().unwrap(), Path::new("/usr/lib/a-long-directory-name/8999"));
        let endless = probed("answer; exec yes /usr", PROBE_TIMEOUT).unwrap_err();
        assert!(endless.contains("it printed more than 1048576 bytes"), "{endless}");
    }

    #[test]
    fn an_interpreter_that_does_not_answer_is_not_reported_as_missing() {
        let late = probed("sleep 600", Duration::from_millis(300)).unwrap_err();
        assert!(
            late.starts_with("Python 3.9 or newer was found but does not answer; try again"),
            "{late}"
        );
        assert!(late.contains("sh: it did not end within 0.3 s"), "{late}");
    }
}
