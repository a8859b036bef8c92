//! Finding uv: the one configured, the one on the search path, or one fetched once with pip.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::{CommandEnv, FinishedCommand};
use super::fault::{BuildFault, BuildStage};
use super::inspection::clear;
use super::{EnvironmentRequest, Progress};
use crate::guest::interpreter::InterpreterInfo;
use crate::lock_file::LockFile;
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
    pub(super) command_env: &'a CommandEnv<'a>,
}

impl Search<'_> {
    /// The uv to use; fetched if there is none.
    pub(super) fn find(&self, request: &EnvironmentRequest<'_>) -> Result<PathBuf, BuildFault> {
        if let Some(chosen) = self.chosen {
            let unusable = || BuildFault::CannotBuild {
                stage: BuildStage::Tool,
                explanation: format!(
                    "the setting `uv` names {}, which cannot be run; name another, or unset it to use the one on PATH",
                    chosen.display()
                ),
            };
            return Some(chosen.to_owned()).filter(|uv| is_executable(uv)).ok_or_else(unusable);
        }
        match installed(self.path, Some(self.interpreter), Some(self.cache)) {
            Some(found) => Ok(found),
            None => self.fetch(request),
        }
    }

    fn home(&self) -> PathBuf {
        self.cache.join(TOOLS).join("uv")
    }

    fn fetched(&self) -> Option<PathBuf> {
        Some(self.home().join("bin").join("uv")).filter(|uv| is_executable(uv))
    }

    /// Fetches it into a temporary directory, then renames that: the final directory is always complete.
    fn fetch(&self, request: &EnvironmentRequest<'_>) -> Result<PathBuf, BuildFault> {
        let tools = self.cache.join(TOOLS);
        let unusable = |error| BuildFault::file("cannot use", &tools, &error);
        fs::create_dir_all(&tools).map_err(unusable)?;
        let lock = LockFile::new(tools.join("uv.lock"))
            .acquire_within(FETCH_LIMIT, || request.cancellation.is_cancelled())
            .map_err(|fault| super::build::lock_fault(fault, &tools))?;
        if let Some(fetched) = self.fetched() {
            return Ok(fetched); // meanwhile, by another process
        }
        request.report(Progress::FetchingTool { tool: "uv", into: &self.home() });
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
        self.install(&command_env, &partial.join("uv"))?;
        clear(&self.home()).map_err(unusable)?;
        fs::rename(partial.join("uv"), self.home()).map_err(unusable)?;
        clear(&partial).map_err(unusable)?;
        self.fetched().ok_or_else(|| BuildFault::CannotBuild {
            stage: BuildStage::Tool,
            explanation: "pip installed a uv that cannot be run; install uv and set RECURGENT_UV"
                .into(),
        })
    }

    /// Uses the interpreter's own pip or, if it has none, one in a virtual environment.
    fn install(&self, command_env: &CommandEnv<'_>, target: &Path) -> Result<(), BuildFault> {
        let python = &self.interpreter.path;
        let has_pip = Self::run(command_env, python, &["-I", "-m", "pip", "--version"])?;
        if has_pip.status == Some(0) {
            return Self::pip(command_env, python, target);
        }
        let venv = command_env.directory.join("pip");
        let made = Self::run(command_env, python, &["-I", "-m", "venv", &venv.to_string_lossy()])?;
        if made.status != Some(0) {
            let explanation = format!(
                "uv was not found and cannot be fetched: {} has neither pip nor venv; install uv and set RECURGENT_UV, or install pip. {}",
                python.display(),
                made.output
            );
            return Err(BuildFault::CannotBuild { stage: BuildStage::Tool, explanation });
        }
        Self::pip(command_env, &venv.join("bin").join("python"), target)
    }

    fn pip(command_env: &CommandEnv<'_>, python: &Path, target: &Path) -> Result<(), BuildFault> {
        let mut arguments: Vec<OsString> =
            ["-I", "-m", "pip", "install", "--no-input", "--no-cache-dir"].map(Into::into).into();
        arguments
            .extend(["--disable-pip-version-check", "--no-deps", "--only-binary"].map(Into::into));
        arguments.extend([":all:", "--retries", "1", "--target"].map(Into::into));
        arguments.push(target.into());
        arguments.push("uv".into());
        let ended = command_env
            .run(&InstallPhase::Tool, python, arguments, FETCH_LIMIT)
            .map_err(|fault| BuildFault::command(fault, BuildStage::Tool, "pip", None))?;
        if ended.status == Some(0) {
            return Ok(());
        }
        let explanation = format!(
            "uv, which installs Python packages, is not installed, and pip could not fetch it; install uv, or name it with RECURGENT_UV. pip printed: {}",
            ended.output
        );
        Err(BuildFault::CannotBuild { stage: BuildStage::Tool, explanation })
    }

    fn run(
        command_env: &CommandEnv<'_>,
        program: &Path,
        arguments: &[&str],
    ) -> Result<FinishedCommand, BuildFault> {
        command_env
            .run(&InstallPhase::Tool, program, arguments, FETCH_LIMIT)
            .map_err(|fault| BuildFault::command(fault, BuildStage::Tool, "python", None))
    }
}

/// The machine-wide settings of pip. uv comes from where this machine's tools come from, not from the sources of an
/// agent's packages, which may not have it.
fn settings() -> Vec<PathBuf> {
    Some(PathBuf::from("/etc/pip.conf")).filter(|file| file.exists()).into_iter().collect()
}

/// The uv on a search path, the one beside the interpreter, or the one that was fetched into a cache.
pub(super) fn installed(
    path: &OsStr,
    interpreter: Option<&InterpreterInfo>,
    cache: Option<&Path>,
) -> Option<PathBuf> {
    let beside = interpreter.and_then(|it| it.path.parent()).map(Path::to_owned);
    let fetched = cache.map(|cache| cache.join(TOOLS).join("uv").join("bin"));
    directories(path)
        .chain(beside)
        .chain(fetched)
        .map(|directory| directory.join("uv"))
        .find(|file| is_executable(file) && !is_script(file))
}

/// The first executable of this name on a search path.
pub(crate) fn on_path(path: &OsStr, name: &str) -> Option<PathBuf> {
    directories(path).map(|directory| directory.join(name)).find(|file| is_executable(file))
}

fn directories(path: &OsStr) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(path).filter(|directory| directory.is_absolute())
}

/// Whether a file is a script. uv is not one: a script of that name is a version manager's shim, and the programs that it
/// needs are not visible where packages are installed.
fn is_script(file: &Path) -> bool {
    let mut begin = [0; 2];
    let read = fs::File::open(file).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == *b"#!"
}

/// Whether a file may be executed.
fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
