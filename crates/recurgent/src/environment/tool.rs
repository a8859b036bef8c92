//! Finding uv: the one configured, the one on the search path, or one fetched once with pip.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::{CommandEnv, Ended};
use super::fault::{BuildFault, BuildStage};
use super::inspection::clear;
use super::lock;
use super::source::PackageSources;
use super::{Aim, Progress};
use crate::guest::interpreter::InterpreterInfo;
use crate::worker::sandbox::InstallPhase;

/// Longest time fetching uv may take.
const FETCH_LIMIT: Duration = Duration::from_mins(5);
/// Directory of fetched tools, in the cache.
const TOOLS: &str = "tools";

/// The inputs of the search for uv.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) chosen: Option<&'a Path>,
    pub(super) path: &'a OsStr,
    pub(super) cache: &'a Path,
    pub(super) interpreter: &'a InterpreterInfo,
    pub(super) supply: &'a PackageSources,
    pub(super) command_env: &'a CommandEnv<'a>,
}

impl Search<'_> {
    /// The uv to use; fetched if there is none.
    pub(super) fn find(&self, aim: &Aim<'_>) -> Result<PathBuf, BuildFault> {
        if let Some(chosen) = self.chosen {
            let unusable = || BuildFault::Unable {
                stage: BuildStage::Tool,
                explanation: format!(
                    "the setting `uv` names {}, which cannot be run; name another, or unset it to use the one on PATH",
                    chosen.display()
                ),
            };
            return Some(chosen.to_owned()).filter(|uv| is_executable(uv)).ok_or_else(unusable);
        }
        if let Some(found) = on_path(self.path, "uv") {
            return Ok(found);
        }
        match self.fetched() {
            Some(fetched) => Ok(fetched),
            None => self.fetch(aim),
        }
    }

    fn home(&self) -> PathBuf {
        self.cache.join(TOOLS).join("uv")
    }

    fn fetched(&self) -> Option<PathBuf> {
        Some(self.home().join("bin").join("uv")).filter(|uv| is_executable(uv))
    }

    /// Fetches it into a temporary directory, then renames that: the final directory is always complete.
    fn fetch(&self, aim: &Aim<'_>) -> Result<PathBuf, BuildFault> {
        let tools = self.cache.join(TOOLS);
        let unusable = |error| BuildFault::file("cannot use", &tools, &error);
        fs::create_dir_all(&tools).map_err(unusable)?;
        let lock = lock::acquire(&tools.join("uv.lock"), FETCH_LIMIT, aim.cancellation)
            .map_err(|fault| super::build::lock_fault(fault, &tools))?;
        if let Some(fetched) = self.fetched() {
            return Ok(fetched); // meanwhile, by another process
        }
        aim.report(Progress::FetchingTool { tool: "uv", into: &self.home() });
        let partial = tools.join(".uv.partial");
        clear(&partial).map_err(unusable)?;
        fs::create_dir_all(&partial).map_err(unusable)?;
        let mut variables = self.command_env.variables.clone();
        variables.push(("HOME".into(), partial.clone().into()));
        variables.push(("TMPDIR".into(), partial.clone().into()));
        let command_env = CommandEnv {
            directory: &partial,
            variables,
            lock: &lock,
            read: [self.command_env.read.clone(), settings()].concat(),
            write: vec![partial.clone()],
            home: &partial,
            ..self.command_env.clone()
        };
        self.write_credentials(&partial).map_err(unusable)?;
        self.install(&command_env, &partial.join("uv"))?;
        clear(&self.home()).map_err(unusable)?;
        fs::rename(partial.join("uv"), self.home()).map_err(unusable)?;
        clear(&partial).map_err(unusable)?;
        self.fetched().ok_or_else(|| BuildFault::Unable {
            stage: BuildStage::Tool,
            explanation: "pip installed a uv that cannot be run; install uv and set RECURGENT_UV"
                .into(),
        })
    }

    /// Writes credentials to a file that only pip reads: every user of the machine can see command-line arguments.
    fn write_credentials(&self, home: &Path) -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(home.join(".netrc"))?;
        for source in &self.supply.internal {
            if let Some((user, password)) = source.credentials() {
                writeln!(file, "machine {} login {user} password {password}", source.host())?;
            }
        }
        Ok(())
    }

    /// Uses the interpreter's own pip or, if it has none, one in a virtual environment.
    fn install(&self, command_env: &CommandEnv<'_>, target: &Path) -> Result<(), BuildFault> {
        let python = &self.interpreter.path;
        let has_pip = self.run(command_env, python, &["-I", "-m", "pip", "--version"])?;
        if has_pip.status == Some(0) {
            return self.pip(command_env, python, target);
        }
        let venv = command_env.directory.join("pip");
        let made = self.run(command_env, python, &["-I", "-m", "venv", &venv.to_string_lossy()])?;
        if made.status != Some(0) {
            let explanation = format!(
                "uv was not found and cannot be fetched: {} has neither pip nor venv; install uv and set RECURGENT_UV, or install pip. {}",
                python.display(),
                made.output
            );
            return Err(BuildFault::Unable { stage: BuildStage::Tool, explanation });
        }
        self.pip(command_env, &venv.join("bin").join("python"), target)
    }

    fn pip(
        &self,
        command_env: &CommandEnv<'_>,
        python: &Path,
        target: &Path,
    ) -> Result<(), BuildFault> {
        let mut arguments: Vec<OsString> =
            ["-I", "-m", "pip", "install", "--no-input", "--no-cache-dir"].map(Into::into).into();
        arguments
            .extend(["--disable-pip-version-check", "--no-deps", "--only-binary"].map(Into::into));
        arguments.extend([":all:", "--retries", "1", "--target"].map(Into::into));
        arguments.push(target.into());
        arguments.extend(self.indexes());
        arguments.push("uv".into());
        let ended = command_env
            .run(&InstallPhase::Tool, python, arguments, FETCH_LIMIT)
            .map_err(|fault| BuildFault::command(fault, BuildStage::Tool, "pip", self.supply))?;
        if ended.status == Some(0) {
            return Ok(());
        }
        let source = self.supply.mentioned_in(&ended.output);
        let explanation = format!("uv was not found, and pip could not fetch it: {}", ended.output);
        Err(BuildFault::Unreachable { stage: BuildStage::Tool, source, explanation })
    }

    /// The tool comes from the same sources as packages.
    fn indexes(&self) -> Vec<OsString> {
        let mut options = Vec::new();
        for (at, source) in self.supply.internal.iter().enumerate() {
            let replaces_public = at == 0 && !self.supply.public;
            options.push(if replaces_public { "--index-url" } else { "--extra-index-url" }.into());
            options.push(source.address().into());
        }
        options
    }

    fn run(
        &self,
        command_env: &CommandEnv<'_>,
        program: &Path,
        arguments: &[&str],
    ) -> Result<Ended, BuildFault> {
        command_env
            .run(&InstallPhase::Tool, program, arguments, FETCH_LIMIT)
            .map_err(|fault| BuildFault::command(fault, BuildStage::Tool, "python", self.supply))
    }
}

/// The machine-wide settings of pip.
fn settings() -> Vec<PathBuf> {
    Some(PathBuf::from("/etc/pip.conf")).filter(|file| file.exists()).into_iter().collect()
}

/// The first executable of this name on a search path.
fn on_path(path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| is_executable(file))
}

/// Whether a file may be executed.
fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
