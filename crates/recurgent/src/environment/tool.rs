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

/// Longest fetching uv may take.
const FETCH_LIMIT: Duration = Duration::from_mins(5);
/// Where fetched tools live, in the cache.
const TOOLS: &str = "tools";

/// What finding uv needs to know.
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
    /// The uv to use; fetches it when there is none.
    pub(super) fn find(&self, aim: &Aim<'_>) -> Result<PathBuf, BuildFault> {
        if let Some(chosen) = self.chosen {
            let unusable = || BuildFault::Unable {
                stage: BuildStage::Tool,
                said: format!(
                    "the setting `uv` names {}, which cannot be run; name another, or none to have it found",
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

    /// Fetched beside, then moved into place: what is there is whole.
    fn fetch(&self, aim: &Aim<'_>) -> Result<PathBuf, BuildFault> {
        let tools = self.cache.join(TOOLS);
        let unusable = |error| BuildFault::file("cannot use", &tools, &error);
        fs::create_dir_all(&tools).map_err(unusable)?;
        let lock = lock::acquire(&tools.join("uv.lock"), FETCH_LIMIT, aim.cancellation)
            .map_err(|fault| super::build::locked_out(fault, &tools))?;
        if let Some(fetched) = self.fetched() {
            return Ok(fetched); // by another process meanwhile
        }
        aim.tell(Progress::FetchingTool { tool: "uv", into: &self.home() });
        let desk = tools.join(".uv.partial");
        clear(&desk).map_err(unusable)?;
        fs::create_dir_all(&desk).map_err(unusable)?;
        let mut variables = self.command_env.variables.clone();
        variables.push(("HOME".into(), desk.clone().into()));
        variables.push(("TMPDIR".into(), desk.clone().into()));
        let command_env = CommandEnv {
            directory: &desk,
            variables,
            lock: &lock,
            read: [self.command_env.read.clone(), settings()].concat(),
            write: vec![desk.clone()],
            home: &desk,
            ..self.command_env.clone()
        };
        self.write_credentials(&desk).map_err(unusable)?;
        self.install(&command_env, &desk.join("uv"))?;
        clear(&self.home()).map_err(unusable)?;
        fs::rename(desk.join("uv"), self.home()).map_err(unusable)?;
        clear(&desk).map_err(unusable)?;
        self.fetched().ok_or_else(|| BuildFault::Unable {
            stage: BuildStage::Tool,
            said: "pip installed a uv that cannot be run; install uv and set RECURGENT_UV".into(),
        })
    }

    /// Where only pip looks for them: every user of the machine can see arguments.
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

    /// With the interpreter's own pip, or with one in a virtual environment where it has none.
    fn install(&self, command_env: &CommandEnv<'_>, target: &Path) -> Result<(), BuildFault> {
        let python = &self.interpreter.path;
        let has_pip = self.run(command_env, python, &["-I", "-m", "pip", "--version"])?;
        if has_pip.status == Some(0) {
            return self.pip(command_env, python, target);
        }
        let venv = command_env.directory.join("pip");
        let made = self.run(command_env, python, &["-I", "-m", "venv", &venv.to_string_lossy()])?;
        if made.status != Some(0) {
            let said = format!(
                "uv was not found and cannot be fetched: {} has neither pip nor venv; install uv and set RECURGENT_UV, or install pip. {}",
                python.display(),
                made.output
            );
            return Err(BuildFault::Unable { stage: BuildStage::Tool, said });
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
        let source = self.supply.blamed(&ended.output);
        let said = format!("uv was not found, and pip could not fetch it: {}", ended.output);
        Err(BuildFault::Unreachable { stage: BuildStage::Tool, source, said })
    }

    /// The tool comes from where packages may come from.
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

/// The machine's own settings of pip.
fn settings() -> Vec<PathBuf> {
    Some(PathBuf::from("/etc/pip.conf")).filter(|file| file.exists()).into_iter().collect()
}

/// Where a program lies on a search path.
fn on_path(path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| is_executable(file))
}

/// Whether it is a file that may be run.
fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
