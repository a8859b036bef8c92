//! The engine process: one per user, one request at a time, over a Unix socket that only its user can reach.
//!
//! ```text
//! accept ── peer is the user? ── request ── queue ─► one thread with the model ─► progress, answer
//! ```

mod http;
mod log;
mod queue;
mod socket;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use embedded::EngineOptions;
use recurgent::models::ModelFolder;
use recurgent::provider::engine::{LOG_FILE, SOCKET_FILE, is_own_peer, prepare_folder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::exit::CommandFault;
use log::EngineLog;
use queue::{EngineThread, RequestQueue};

/// The lock that the running engine holds.
const LOCK_FILE: &str = "engine.lock";
/// Time an ending engine may keep the lock.
const LOCK_LIMIT: Duration = Duration::from_mins(1);
/// Time between two attempts to take it.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Connections at once.
const MAX_CONNECTIONS: usize = 128;
/// Time between two looks at whether the socket is still reachable by its path.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(5);
/// Time for a request under way to notice that the engine ends.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How the engine process runs.
#[derive(Debug)]
pub(crate) struct ServerOptions {
    /// Where its socket, lock and log are.
    pub(crate) folder: PathBuf,
    /// Time without a request after which it ends; `None`: it does not.
    pub(crate) idle_limit: Option<Duration>,
    /// How the model runs.
    pub(crate) engine: EngineOptions,
    /// The HTTP port and the token it asks for.
    pub(crate) http: Option<HttpOptions>,
    /// Installed models, which HTTP requests name.
    pub(crate) models: Option<ModelFolder>,
}

/// Serving over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct HttpOptions {
    pub(crate) port: u16,
    pub(crate) token: Option<String>,
}

/// Wakes the engine's main thread to end it.
#[derive(Debug)]
pub(crate) struct StopSignal {
    sender: UnixStream,
    receiver: UnixStream,
}

impl StopSignal {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, receiver) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        Ok(Self { sender, receiver })
    }

    /// Ends the engine. A full buffer means that it was asked to end already.
    pub(crate) fn stop(&self) {
        let _ = (&self.sender).write(&[1]);
    }
}

/// How serving ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// It was asked to end, or was idle.
    Ended,
    /// Another engine serves this user.
    AnotherRuns,
}

/// Serves until it is asked to end or is idle for long.
pub(crate) fn serve(
    options: ServerOptions,
    stop: &Arc<StopSignal>,
) -> Result<Served, CommandFault> {
    prepare_folder(&options.folder).map_err(CommandFault::setup)?;
    let socket = options.folder.join(SOCKET_FILE);
    let Some(lock) = take_lock(&options.folder, &socket)? else { return Ok(Served::AnotherRuns) };
    let listener = listen(&socket)?;
    let file = SocketFile::of(&socket)?;
    let log = Arc::new(EngineLog::new(options.folder.join(LOG_FILE)));
    log.line(&format!("process {} listens at {}", std::process::id(), socket.display()));
    let queue = RequestQueue::new(options.idle_limit, Arc::clone(stop), Arc::clone(&log));
    let queue = Arc::new(queue);
    let engine = EngineThread::start(options.engine, Arc::clone(&queue))
        .map_err(|error| no_thread(&error))?;
    if let Some(http) = options.http {
        http::start(http, options.models, &queue)?;
    }
    let why = accept_until_end(&listener, &file, stop, &queue);
    // Without its file, no client connects any more; the next engine waits for the lock.
    file.remove();
    drop(listener);
    queue.close();
    engine.wait(STOP_LIMIT);
    log.line(&format!("ends: {why}"));
    drop(lock);
    Ok(Served::Ended)
}

fn no_thread(error: &io::Error) -> CommandFault {
    CommandFault::setup(format!("no thread for the engine: {error}; free some memory"))
}

/// The lock, unless another engine has it and listens.
fn take_lock(folder: &Path, socket: &Path) -> Result<Option<File>, CommandFault> {
    let path = folder.join(LOCK_FILE);
    let fault = |error: io::Error| {
        CommandFault::setup(format!("cannot lock {}: {error}; check engine_dir", path.display()))
    };
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(fault)?;
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::Error(error)) => return Err(fault(error)),
            Err(TryLockError::WouldBlock) if UnixStream::connect(socket).is_ok() => {
                return Ok(None);
            }
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(CommandFault::setup(format!(
                    "another engine holds {} and does not listen; end its process, then try again",
                    path.display()
                )));
            }
            // The other engine is about to listen, or about to end.
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_INTERVAL),
        }
    }
}

fn listen(socket: &Path) -> Result<UnixListener, CommandFault> {
    let fault = |error: io::Error| {
        CommandFault::setup(format!(
            "cannot listen at {}: {error}; set engine_dir to another directory with a short path",
            socket.display()
        ))
    };
    // The lock is held, so an older socket is left over from a process that was killed.
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fault(error)),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(socket).map_err(fault)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600)).map_err(fault)?;
    listener.set_nonblocking(true).map_err(fault)?;
    Ok(listener)
}

/// The file of the socket. A directory may be removed or replaced while an engine runs; no client can reach it then.
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> Result<Self, CommandFault> {
        let found = fs::metadata(path).map_err(|error| {
            CommandFault::setup(format!("cannot listen at {}: {error}; try again", path.display()))
        })?;
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    fn is_there(&self) -> bool {
        let found = fs::metadata(&self.path);
        found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }

    /// Removes the file, unless it is another engine's.
    fn remove(&self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path); // the next engine removes it
        }
    }
}

/// Accepts connections; returns why the engine ends.
fn accept_until_end(
    listener: &UnixListener,
    file: &SocketFile,
    stop: &StopSignal,
    queue: &Arc<RequestQueue>,
) -> &'static str {
    loop {
        let left = queue.time_until_idle();
        if left.is_some_and(|left| left.is_zero()) {
            return "idle";
        }
        if !file.is_there() {
            return "its socket is gone";
        }
        let wait = left.unwrap_or(PRESENCE_INTERVAL).min(PRESENCE_INTERVAL);
        let timeout = Timespec::try_from(wait).ok();
        let mut watched = [
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stop.receiver.as_fd(), PollFlags::IN),
        ];
        if poll(&mut watched, timeout.as_ref()).is_err() {
            continue; // a signal
        }
        let [_, stopped] = &watched;
        if !stopped.revents().is_empty() {
            return "asked to end";
        }
        match listener.accept() {
            Ok((stream, _)) => admit(stream, queue),
            // Out of descriptors or memory: what runs goes on, and some become free.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                queue.log().line(&format!("cannot accept a connection: {error}"));
                thread::sleep(LOCK_INTERVAL);
            }
            Err(_) => {}
        }
    }
}

/// Reads the request of a connection in a thread of its own.
fn admit(stream: UnixStream, queue: &Arc<RequestQueue>) {
    if !is_own_peer(&stream) {
        queue.log().line("refused a connection of another user");
        return;
    }
    let Some(connection) = queue.connection(MAX_CONNECTIONS) else {
        queue.log().line("refused a connection: too many");
        return;
    };
    let queue = Arc::clone(queue);
    // Without a thread the connection is closed, and the client tries again.
    let _ = thread::Builder::new().name("connection".to_owned()).spawn(move || {
        let _connection = connection;
        socket::converse(stream, &queue);
    });
}
