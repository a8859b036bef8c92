//! The engine's process: where its socket is, and how it is started.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::excerpt::shortened;

use super::client::EngineFailure;
use crate::environment::on_path;
use crate::guest::Cancellation;

/// The engine's socket in its folder.
pub const SOCKET_FILE: &str = "engine.sock";
/// The engine's log in its folder.
pub const LOG_FILE: &str = "engine.log";
/// The name of the program that contains the engine.
const PROGRAM: &str = "recurgent";
/// Time an engine has to listen; it loads its model later.
const START_LIMIT: Duration = Duration::from_mins(2);
/// Time between two attempts to connect.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes at the end of the log that are searched for a reason.
const TAIL_BYTES: u64 = 4096;
/// Characters of a reason that are shown.
const SHOWN_CHARS: usize = 400;

/// How the engine is reached and started.
#[derive(Debug, Clone, Default)]
pub struct EngineLaunch {
    /// The program; `None`: the running one if it is `recurgent`, else the one on the search path.
    pub command: Option<PathBuf>,
    /// Where programs are looked for.
    pub search_path: OsString,
    /// Where the engine has its socket and its log; `None`: no home directory was found.
    pub folder: Option<PathBuf>,
    /// The settings it is started with.
    pub settings: Vec<(&'static str, String)>,
}

/// An engine that this process started.
#[derive(Debug, Clone)]
pub(super) struct StartedEngine {
    ended: Arc<Mutex<Option<ExitStatus>>>,
}

impl EngineLaunch {
    /// The folder of the socket.
    pub fn folder(&self) -> Result<&Path, EngineFailure> {
        self.folder.as_deref().ok_or_else(|| {
            EngineFailure::Setup("no home directory was found; set engine_dir".to_owned())
        })
    }

    /// The engine's log.
    pub(super) fn log(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(LOG_FILE))
    }

    /// Connects to an engine that runs.
    pub(super) fn connect(&self) -> Result<Option<UnixStream>, EngineFailure> {
        let socket = self.folder()?.join(SOCKET_FILE);
        match UnixStream::connect(&socket) {
            Ok(stream) if is_own_peer(&stream) => Ok(Some(stream)),
            Ok(_) => Err(EngineFailure::Setup(format!(
                "another user's process listens at {}; set engine_dir to a directory of your own",
                socket.display()
            ))),
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(EngineFailure::Setup(format!(
                "cannot connect to the engine at {}: {error}; set engine_dir to another directory",
                socket.display()
            ))),
        }
    }

    /// Starts an engine and waits until it listens. If another process starts one at the same time, one of them ends
    /// and both clients use the other.
    pub(super) fn start(
        &self,
        cancellation: &Cancellation,
    ) -> Result<(UnixStream, StartedEngine), EngineFailure> {
        let started = self.spawn()?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            // Read the exit status before connecting: if the engine had already exited, a failed connection is final.
            let ended = started.exit_status();
            if let Some(stream) = self.connect()? {
                return Ok((stream, started));
            }
            if let Some(status) = ended {
                return Err(EngineFailure::Ended(format!(
                    "the engine did not start: {}{}",
                    explained(status),
                    self.reason()
                )));
            }
            if cancellation.is_cancelled() {
                return Err(EngineFailure::Cancelled);
            }
            if Instant::now() >= deadline {
                let limit = START_LIMIT.as_secs();
                return Err(EngineFailure::Ended(format!(
                    "the engine does not listen after {limit} s{}",
                    self.reason()
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn spawn(&self) -> Result<StartedEngine, EngineFailure> {
        let setup = EngineFailure::Setup;
        let folder = self.folder()?;
        prepare_folder(folder).map_err(setup)?;
        let program = self.program()?;
        let log = folder.join(LOG_FILE);
        let unusable = |error: io::Error| {
            EngineFailure::Setup(format!("cannot use {}: {error}", log.display()))
        };
        let mut options = OpenOptions::new();
        let output = options.append(true).create(true).mode(0o600).open(&log).map_err(unusable)?;
        let errors = output.try_clone().map_err(unusable)?;
        let mut command = Command::new(&program);
        command.args(["model", "serve", "--detach"]);
        for (key, value) in &self.settings {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command.arg("--set").arg(format!("engine_dir={}", folder.display()));
        // No key and no other variable of this process reaches the engine.
        command.env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let mut child = command.spawn().map_err(|error| {
            EngineFailure::Setup(format!(
                "cannot start {}: {error}; set engine_command to a recurgent that runs",
                program.display()
            ))
        })?;
        let ended = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&ended);
        // Reaps the engine whenever it ends, so that no zombie stays while this process runs.
        let reaper = thread::Builder::new().name("recurgent-engine".to_owned()).spawn(move || {
            let status = child.wait().ok();
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = status;
        });
        reaper.map_err(|error| setup(format!("no thread to watch the engine: {error}")))?;
        Ok(StartedEngine { ended })
    }

    /// The program that has the engine.
    fn program(&self) -> Result<PathBuf, EngineFailure> {
        if let Some(command) = &self.command {
            return Ok(command.clone());
        }
        let running = std::env::current_exe().ok();
        let found = running.and_then(|path| {
            let is_ours = path.file_stem().is_some_and(|name| name == PROGRAM);
            let beside = path.with_file_name(PROGRAM);
            if is_ours { Some(path) } else { beside.is_file().then_some(beside) }
        });
        found.or_else(|| on_path(&self.search_path, PROGRAM)).ok_or_else(|| {
            EngineFailure::Setup(format!(
                "the embedded model needs the program {PROGRAM}, which is neither beside this one nor on PATH; set engine_command to it"
            ))
        })
    }

    /// The last line of the log, as the end of a sentence.
    pub(super) fn reason(&self) -> String {
        let last = self.log().and_then(|log| last_line(&log).ok().flatten());
        let log = self.log().map(|log| log.display().to_string()).unwrap_or_default();
        match last {
            Some(line) => format!("; it said: {}; its log is {log}", shortened(&line, SHOWN_CHARS)),
            None => format!("; its log is {log}"),
        }
    }
}

impl StartedEngine {
    /// How it ended, if it has.
    pub(super) fn exit_status(&self) -> Option<ExitStatus> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a process ended, in words.
pub(super) fn explained(status: ExitStatus) -> String {
    match status.signal() {
        Some(9) => {
            "it was killed, as the system does when memory runs out; free some memory, then try again"
                .to_owned()
        }
        Some(signal) => format!("signal {signal} ended it"),
        None => format!("it ended with status {}", status.code().unwrap_or_default()),
    }
}

/// Makes the folder of the socket, for its owner only. A folder that others may use is refused.
pub fn prepare_folder(folder: &Path) -> Result<(), String> {
    let fault = |problem: String| {
        format!(
            "cannot use {} for the engine: {problem}; set engine_dir to a directory that only you can use",
            folder.display()
        )
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| fault(error.to_string()))?;
    let found = fs::metadata(folder).map_err(|error| fault(error.to_string()))?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(fault("it belongs to another user".to_owned()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(fault(format!("others may use it (mode {:03o})", found.mode() & 0o777)));
    }
    Ok(())
}

/// Whether the process at the other end is of the same user.
pub fn is_own_peer(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Whether a failed connection means that no engine runs.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn last_line(log: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let tail = String::from_utf8_lossy(&tail);
    let line = tail.lines().map(str::trim).rfind(|line| !line.is_empty());
    Ok(line.map(str::to_owned))
}
