//! The client of the engine: one request on one connection.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lifecycle::draft::DraftFault;
use lifecycle::event::ModelProgress;
use thiserror::Error;

use super::launch::{EngineLaunch, StartedEngine, explained};
use super::protocol::{
    EngineAnswer, EngineReply, EngineRequest, EngineStatus, FrameReader, GenerateRequest,
    LineFault, MAX_REPLY_BYTES, request_line,
};
use crate::guest::Cancellation;

/// Time between two looks at whether the caller gave up.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Time the engine may take to read a request.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Time a request may wait for earlier ones and for the model to load.
const QUEUE_LIMIT: Duration = Duration::from_mins(30);
/// Engines in a row that may end before they accept a request: one that was idle ends as a client connects.
const MAX_STARTS: u32 = 3;
/// Time for an engine's exit status to be known after its connection closed.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// Why the engine did not answer.
#[derive(Debug, Error)]
pub enum EngineFailure {
    /// It cannot be started or reached.
    #[error("{0}")]
    Setup(String),
    /// It ended.
    #[error("{0}")]
    Ended(String),
    /// It refuses the request.
    #[error("{0}")]
    Refused(String),
    /// It could not do what was asked this time.
    #[error("{0}")]
    Failed(String),
    /// No answer in time.
    #[error("the engine did not answer in time")]
    TimedOut,
    /// The caller gave up.
    #[error("the caller gave up")]
    Cancelled,
}

impl EngineFailure {
    /// The failure as calls know it.
    pub(super) fn into_draft_fault(self, limit: Duration) -> DraftFault {
        match self {
            Self::Setup(message) | Self::Refused(message) => DraftFault::Rejected(message),
            Self::Ended(message) | Self::Failed(message) => DraftFault::Unavailable(message),
            Self::TimedOut => DraftFault::TimedOut(limit),
            Self::Cancelled => DraftFault::Cancelled,
        }
    }
}

/// Asks the engine, and starts it if it does not run.
#[derive(Debug)]
pub struct EngineClient {
    launch: EngineLaunch,
    /// The engine that this process started last.
    started: Mutex<Option<StartedEngine>>,
}

/// When to give up.
struct Patience<'a> {
    deadline: Instant,
    /// Time for the answer, once the engine works on it.
    limit: Duration,
    cancellation: &'a Cancellation,
}

impl EngineClient {
    /// A client. Nothing is started yet.
    pub fn new(launch: EngineLaunch) -> Self {
        Self { launch, started: Mutex::new(None) }
    }

    /// Asks for text. `limit` is the time for reading the prompt and writing the answer, not for loading the model.
    pub fn generate(
        &self,
        request: &GenerateRequest,
        limit: Duration,
        cancellation: &Cancellation,
    ) -> Result<EngineAnswer, EngineFailure> {
        self.generate_with(request, limit, cancellation, &mut |_| ())
    }

    /// The same, with a listener of its progress.
    pub fn generate_with(
        &self,
        request: &GenerateRequest,
        limit: Duration,
        cancellation: &Cancellation,
        listener: &mut dyn FnMut(&ModelProgress),
    ) -> Result<EngineAnswer, EngineFailure> {
        let request = EngineRequest::Generate(request.clone());
        let line = request_line(&request).map_err(|fault| refused(&fault))?;
        for _ in 0..MAX_STARTS {
            let stream = match self.launch.connect()? {
                Some(stream) => stream,
                None => self.start(cancellation)?,
            };
            let deadline = Instant::now() + QUEUE_LIMIT;
            let mut patience = Patience { deadline, limit, cancellation };
            match self.converse(stream, &line, &mut patience, listener)? {
                Some(EngineReply::Answer(answer)) => return Ok(answer),
                Some(EngineReply::Fault { is_transient: true, message }) => {
                    return Err(EngineFailure::Failed(message));
                }
                Some(EngineReply::Fault { is_transient: false, message }) => {
                    return Err(EngineFailure::Refused(message));
                }
                Some(EngineReply::Progress(_) | EngineReply::Status(_) | EngineReply::Stopping) => {
                    return Err(EngineFailure::Failed(
                        "the engine answered something else than was asked; try again".to_owned(),
                    ));
                }
                None => {}
            }
        }
        let reason = self.launch.reason();
        Err(EngineFailure::Ended(format!("the engine ends before it accepts a request{reason}")))
    }

    /// What a running engine does; `None`: none runs.
    pub fn status(&self) -> Result<Option<EngineStatus>, EngineFailure> {
        match self.ask_running(&EngineRequest::Status)? {
            Some(EngineReply::Status(status)) => Ok(Some(status)),
            Some(other) => Err(EngineFailure::Failed(format!("unexpected reply: {other:?}"))),
            None => Ok(None),
        }
    }

    /// Ends a running engine; says whether there was one.
    pub fn stop(&self) -> Result<bool, EngineFailure> {
        self.ask_running(&EngineRequest::Stop).map(|reply| reply.is_some())
    }

    fn ask_running(&self, request: &EngineRequest) -> Result<Option<EngineReply>, EngineFailure> {
        let Some(stream) = self.launch.connect()? else { return Ok(None) };
        let line = request_line(request).map_err(|fault| refused(&fault))?;
        let limit = WRITE_LIMIT;
        let mut patience = Patience {
            deadline: Instant::now() + limit,
            limit,
            cancellation: &Cancellation::default(),
        };
        self.converse(stream, &line, &mut patience, &mut |_| ())
    }

    fn start(&self, cancellation: &Cancellation) -> Result<UnixStream, EngineFailure> {
        let (stream, started) = self.launch.start(cancellation)?;
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok(stream)
    }

    /// Sends a request and reads its last reply; `None`: the engine hung up before it accepted the request.
    fn converse(
        &self,
        mut stream: UnixStream,
        line: &[u8],
        patience: &mut Patience<'_>,
        listener: &mut dyn FnMut(&ModelProgress),
    ) -> Result<Option<EngineReply>, EngineFailure> {
        let broken = |error: io::Error| {
            EngineFailure::Ended(format!("the connection to the engine failed: {error}"))
        };
        stream.set_read_timeout(Some(POLL_INTERVAL)).map_err(broken)?;
        stream.set_write_timeout(Some(WRITE_LIMIT)).map_err(broken)?;
        if stream.write_all(line).is_err() {
            return Ok(None);
        }
        let mut reader = FrameReader::new(stream, MAX_REPLY_BYTES);
        let mut is_accepted = false;
        loop {
            match reader.reply() {
                Ok(EngineReply::Progress(stage)) => {
                    patience.heard(&stage);
                    is_accepted = true;
                    listener(&stage);
                }
                Ok(reply) => return Ok(Some(reply)),
                Err(LineFault::Broken(error)) if is_wait(&error) => {}
                Err(LineFault::Closed | LineFault::Broken(_)) if !is_accepted => return Ok(None),
                Err(LineFault::Closed | LineFault::Broken(_)) => return Err(self.lost()),
                Err(fault) => return Err(refused(&fault)),
            }
            patience.check()?;
        }
    }

    /// The engine hung up while it was answering.
    fn lost(&self) -> EngineFailure {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let deadline = Instant::now() + EXIT_GRACE;
        let status = loop {
            let status = started.as_ref().and_then(StartedEngine::exit_status);
            if status.is_some() || started.is_none() || Instant::now() >= deadline {
                break status;
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        let how = status.map_or_else(|| "try again".to_owned(), explained);
        let reason = self.launch.reason();
        EngineFailure::Ended(format!("the engine ended while it was answering: {how}{reason}"))
    }
}

impl Patience<'_> {
    /// The time for the answer begins when the engine begins to read the prompt.
    fn heard(&mut self, progress: &ModelProgress) {
        if let ModelProgress::Reading { .. } = progress {
            self.deadline = self.deadline.min(Instant::now() + self.limit);
        }
    }

    fn check(&self) -> Result<(), EngineFailure> {
        if self.cancellation.is_cancelled() {
            return Err(EngineFailure::Cancelled);
        }
        if Instant::now() >= self.deadline {
            return Err(EngineFailure::TimedOut);
        }
        Ok(())
    }
}

fn refused(fault: &LineFault) -> EngineFailure {
    EngineFailure::Refused(fault.to_string())
}

/// Whether a read ended because nothing came.
fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
