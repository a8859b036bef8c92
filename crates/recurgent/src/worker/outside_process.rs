//! Processes of tools from outside: configured commands and servers. They are contained like workers, unless their
//! entry in the configuration says otherwise.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};

use super::sandbox::{Sandbox, SandboxAccess, Starts, WorkerResources, ZygoteSandbox};
use super::{Tier, WorkerLimits, WorkerOptions, start_inside};
use crate::grants::Grants;

/// Address space of one process. What it uses of it is limited like a worker's memory.
const ADDRESS_SPACE_BYTES: u64 = 64 << 30;
/// Descriptors of one process.
const OPEN_FILES: u64 = 1024;
/// Processes and threads of one tool.
const PROCESSES: u64 = 128;
/// Processor time of one process of a server, which lives long: a day.
const SERVER_CPU_SECONDS: u64 = 24 * 60 * 60;
/// The file by which a Python environment says where its interpreter is.
const PYTHON_ENVIRONMENT: &str = "pyvenv.cfg";
/// In a home directory, the folder where programs are installed. It also holds what programs store: keys, mail, and the
/// state of this software.
const PROGRAMS_OF_USER: &str = ".local";
/// Python environments that are followed from one to the interpreter it was made with.
const MAX_ENVIRONMENTS: usize = 4;

/// A process to start.
#[derive(Debug, Clone, Default)]
pub struct OutsideCommand {
    /// A path, or a name on the search path.
    pub program: PathBuf,
    /// Its arguments; no shell reads them.
    pub arguments: Vec<OsString>,
    /// Its environment variables beside those that every process gets.
    pub variables: Vec<(OsString, OsString)>,
    /// What it may reach. It runs in the workspace.
    pub grants: Grants,
    /// Runs it with all rights of the host.
    pub uncontained: bool,
}

/// Contains processes of tools from outside.
#[derive(Debug)]
pub struct OutsideSandbox {
    commands: Sandbox,
    servers: Sandbox,
    path: OsString,
    /// The home directory of processes that are not contained.
    home: Option<OsString>,
    minimum_tier: Tier,
}

impl OutsideSandbox {
    /// Contains with the same layers and the same minimum tier as workers.
    pub fn new(options: &WorkerOptions, home: Option<OsString>) -> Self {
        let limits = WorkerLimits {
            address_space_bytes: Some(ADDRESS_SPACE_BYTES.max(options.limits.memory_bytes)),
            open_files: OPEN_FILES.max(options.limits.open_files),
            processes: PROCESSES.max(options.limits.processes),
            ..options.limits
        };
        let of = |limits| Sandbox::new(&WorkerOptions { limits, ..options.clone() });
        Self {
            commands: of(limits),
            servers: of(WorkerLimits { cpu_seconds: SERVER_CPU_SECONDS, ..limits }),
            path: options.path.clone(),
            home,
            minimum_tier: options.minimum_tier,
        }
    }

    /// Starts a process that serves one call.
    pub fn start_command(&self, command: &OutsideCommand) -> io::Result<OutsideProcess> {
        self.start(command, &self.commands)
    }

    /// Starts a process that serves many calls. It ends with the thread that starts it.
    pub fn start_server(&self, command: &OutsideCommand) -> io::Result<OutsideProcess> {
        self.start(command, &self.servers)
    }

    fn start(&self, given: &OutsideCommand, sandbox: &Sandbox) -> io::Result<OutsideProcess> {
        let program = self.find(&given.program)?;
        let (their_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut command = Command::new(&program);
        command.args(&given.arguments);
        command.stdin(Stdio::from(their_stdin)).stdout(their_stdout).stderr(their_stderr);
        let (pid, contained) = if given.uncontained {
            command.env_clear().env("PATH", &self.path).env("LANG", "C.UTF-8");
            command.envs(self.home.as_ref().map(|home| ("HOME", home)));
            command.envs(given.variables.iter().map(|(name, value)| (name, value)));
            if let Some(directory) = &given.grants.workspace {
                command.current_dir(directory);
            }
            let child = command.process_group(0).spawn()?;
            drop(command); // closes the child's ends
            (Pid::from_child(&child), None)
        } else {
            let reached = sandbox.reached();
            if !reached.reaches(self.minimum_tier) {
                return Err(io::Error::other(format!(
                    "this machine reaches the sandbox tier {} and minimum_sandbox_tier is {}",
                    reached.name(),
                    self.minimum_tier.name()
                )));
            }
            let access = access(&program, &given.grants, self.home.as_deref().map(Path::new));
            let mut zygote_sandbox = sandbox.zygote_sandbox(access)?;
            let resources = zygote_sandbox.worker_resources()?;
            let ruleset = resources.ruleset().map(OwnedFd::try_clone).transpose()?;
            let seal = zygote_sandbox.take_seal();
            let handshake =
                sandbox.confine_as(&mut command, &zygote_sandbox, Some((seal, ruleset)))?;
            command.env_remove("RECURGENT_SEAL");
            command.envs(given.variables.iter().map(|(name, value)| (name, value)));
            (start_inside(command, handshake)?, Some((resources, zygote_sandbox)))
        };
        Ok(OutsideProcess {
            stdin: Some(stdin),
            stdout: Some(stdout),
            stderr: Some(stderr),
            pid,
            status: None,
            _contained: contained,
        })
    }

    /// The program's path: as given, or found on the search path.
    #[expect(
        clippy::disallowed_methods,
        reason = "a relative path is completed, nothing else is read"
    )]
    fn find(&self, program: &Path) -> io::Result<PathBuf> {
        let missing = || {
            let message = format!("there is no program {}", program.display());
            io::Error::new(io::ErrorKind::NotFound, message)
        };
        if program.components().count() > 1 {
            return if program.is_file() { std::path::absolute(program) } else { Err(missing()) };
        }
        let folders = std::env::split_paths(&self.path);
        folders.map(|folder| folder.join(program)).find(|it| it.is_file()).ok_or_else(missing)
    }
}

/// What a process may reach: its grants, and the folder its program is installed in.
fn access(program: &Path, grants: &Grants, home: Option<&Path>) -> SandboxAccess {
    let granted = [&grants.read, &grants.write].into_iter().flatten();
    let granted = granted.chain(&grants.workspace).cloned().collect();
    let mut read = grants.read.clone();
    read.extend(grants.workspace.clone().filter(|_| !grants.workspace_write));
    read.extend(installed_in(program, home));
    let mut write = grants.write.clone();
    write.extend(grants.workspace.clone().filter(|_| grants.workspace_write));
    SandboxAccess {
        read,
        write,
        granted,
        network: grants.network.clone(),
        local_sockets: true,
        workspace: grants.workspace.clone(),
        workspace_version: None,
        names: Vec::new(),
        starts: Starts::Program,
    }
}

/// The folders that a program needs beside those of the system: for `…/bin/server` the folder above `bin`; for a program of
/// a Python environment also the folders of its interpreter.
fn installed_in(program: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut waiting = vec![program.to_owned()];
    for _ in 0..MAX_ENVIRONMENTS {
        let Some(program) = waiting.pop() else { break };
        for path in [Some(program.clone()), program.canonicalize().ok()].into_iter().flatten() {
            let found = folders_of(&path, home);
            for folder in &found {
                if folder.join(PYTHON_ENVIRONMENT).is_file() {
                    waiting.push(folder.join("bin/python").canonicalize().unwrap_or_default());
                }
            }
            let new: Vec<_> = found.into_iter().filter(|it| !folders.contains(it)).collect();
            folders.extend(new);
        }
    }
    folders
}

/// The folder that a program is installed in. Where other things than the program are too, only the program, and the
/// libraries of programs.
fn folders_of(program: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let Some(folder) = program.parent() else { return Vec::new() };
    let is_bin = folder.ends_with("bin");
    let prefix = if is_bin { folder.parent().unwrap_or(folder) } else { folder };
    // `/usr` is visible anyway, and neither `/` nor all of a folder right below it must be.
    if prefix.components().count() <= 2 || prefix.starts_with("/usr") {
        return vec![program.to_owned()];
    }
    let homes = home.into_iter().flat_map(|home| [Some(home.to_owned()), home.canonicalize().ok()]);
    let is_shared =
        |home: PathBuf| home.starts_with(prefix) || home.join(PROGRAMS_OF_USER) == prefix;
    if !homes.flatten().any(is_shared) {
        return vec![prefix.to_owned()];
    }
    let libraries = Some(prefix.join("lib")).filter(|it| is_bin && it.is_dir());
    std::iter::once(program.to_owned()).chain(libraries).collect()
}

/// A running process. Dropping it ends it and everything it started.
#[derive(Debug)]
pub struct OutsideProcess {
    /// The end to write its standard input to; taken by the writer.
    pub stdin: Option<OwnedFd>,
    /// The end to read its standard output from.
    pub stdout: Option<OwnedFd>,
    /// The end to read its standard error from.
    pub stderr: Option<OwnedFd>,
    pid: Pid,
    status: Option<WaitStatus>,
    _contained: Option<(WorkerResources, ZygoteSandbox)>,
}

impl OutsideProcess {
    /// Its process number.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Whether it has ended. It is not reaped, so that its number is not reused.
    pub fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let looked = rustix::process::waitid(WaitId::Pid(self.pid), options);
        self.status.is_some() || !matches!(looked, Ok(None) | Err(rustix::io::Errno::INTR))
    }

    /// Ends it and all it started; its exit status, if no signal ended it.
    pub fn end(&mut self) -> Option<i32> {
        if self.status.is_none() {
            // ESRCH: no process is left.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
            let waited = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
            self.status = waited.ok().flatten().map(|(_, status)| status);
        }
        self.status.and_then(WaitStatus::exit_status)
    }
}

impl Drop for OutsideProcess {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A home directory holds keys and `~/.local` what programs store, so neither is shown because a program is in it.
    #[test]
    fn a_program_sees_the_folder_it_is_installed_in_and_not_its_users_home() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let home = place.join("home");
        for path in ["tool.sh", "bin/tool", "opt/tool/bin/tool", "opt/run", ".local/bin/script"] {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::create_dir_all(home.join(".local/lib/python3.11")).unwrap();
        fs::create_dir_all(home.join(".local/share/tools/t/bin")).unwrap();
        fs::write(home.join(".local/share/tools/t/bin/linked"), "").unwrap();
        symlink(home.join(".local/share/tools/t/bin/linked"), home.join(".local/bin/linked"))
            .unwrap();
        symlink(&home, place.join("link")).unwrap();
        let homes = [home.clone(), place.join("link")];
        for (program, expected) in [
            ("tool.sh", &["tool.sh"][..]),
            ("bin/tool", &["bin/tool"]),
            ("opt/tool/bin/tool", &["opt/tool"]),
            ("opt/run", &["opt"]),
            (".local/bin/script", &[".local/bin/script", ".local/lib"]),
            (".local/bin/linked", &[".local/bin/linked", ".local/lib", ".local/share/tools/t"]),
        ] {
            for own in &homes {
                let found = installed_in(&home.join(program), Some(own));
                let expected: Vec<PathBuf> = expected.iter().map(|it| home.join(it)).collect();
                assert_eq!(found, expected, "{program} {}", own.display());
            }
        }
    }
}
