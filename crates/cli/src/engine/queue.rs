//! The requests that wait, and the one thread that has the model and answers them in the order of their arrival.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io};

use embedded::{
    EndOfText, Engine, EngineFault, EngineOptions, Form, GenerationProgress, GenerationRequest,
};
use recurgent::Language;
use recurgent::provider::ModelProgress;
use recurgent::provider::engine::{
    AnswerEnding, AnswerForm, EngineAnswer, EngineStatus, EngineUsage, GenerateRequest,
    GeneratedText,
};

use super::StopSignal;
use super::log::EngineLog;

/// Requests that may wait.
const MAX_WAITING: usize = 64;
/// Time between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two looks at whether the engine's thread has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A client that waits for an answer.
pub(super) trait Audience: Send {
    /// How far its request is.
    fn report(&mut self, progress: &ModelProgress);

    /// Text that is part of an answer and stays.
    fn add_text(&mut self, sample: usize, text: &str);

    /// Whether it hung up.
    fn is_gone(&self) -> bool;

    /// Gives it the whole answer, or why there is none.
    fn finish(self: Box<Self>, answer: Result<EngineAnswer, RequestFault>);
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) struct RequestFault {
    /// Whether the same request may succeed later.
    pub(super) is_transient: bool,
    /// What happened, and what to do next.
    pub(super) message: String,
}

impl From<EngineFault> for RequestFault {
    fn from(fault: EngineFault) -> Self {
        let is_transient = match fault {
            EngineFault::Internal(_) => true,
            EngineFault::Unreadable { .. }
            | EngineFault::Damaged { .. }
            | EngineFault::Unsupported { .. }
            | EngineFault::Request(_) => false,
        };
        Self { is_transient, message: fault.to_string() }
    }
}

/// A request and its client.
pub(super) struct QueuedRequest {
    pub(super) request: GenerateRequest,
    pub(super) audience: Box<dyn Audience>,
}

impl fmt::Debug for QueuedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedRequest").finish_non_exhaustive()
    }
}

/// What the threads of the engine process share.
#[derive(Debug)]
pub(super) struct RequestQueue {
    state: Mutex<QueueState>,
    idle_limit: Option<Duration>,
    began: Instant,
    stop: Arc<StopSignal>,
    log: Arc<EngineLog>,
}

#[derive(Debug)]
struct QueueState {
    /// `None`: the engine ends.
    sender: Option<SyncSender<QueuedRequest>>,
    receiver: Option<Receiver<QueuedRequest>>,
    model: Option<PathBuf>,
    requests: usize,
    connections: usize,
    answered: u64,
    last_use: Instant,
}

impl RequestQueue {
    pub(super) fn new(
        idle_limit: Option<Duration>,
        stop: Arc<StopSignal>,
        log: Arc<EngineLog>,
    ) -> Self {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let now = Instant::now();
        let state = QueueState {
            sender: Some(sender),
            receiver: Some(receiver),
            model: None,
            requests: 0,
            connections: 0,
            answered: 0,
            last_use: now,
        };
        Self { state: Mutex::new(state), idle_limit, began: now, stop, log }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn log(&self) -> &EngineLog {
        &self.log
    }

    /// Ends the engine process.
    pub(super) fn stop(&self) {
        self.stop.stop();
    }

    /// Refuses further requests and ends the one that is answered.
    pub(super) fn close(&self) {
        self.state().sender = None;
    }

    fn is_closed(&self) -> bool {
        self.state().sender.is_none()
    }

    /// The model that is loaded.
    pub(super) fn model(&self) -> Option<PathBuf> {
        self.state().model.clone()
    }

    /// Time until the engine was idle for long enough; `None`: it is in use, or does not end by itself.
    pub(super) fn time_until_idle(&self) -> Option<Duration> {
        let state = self.state();
        let limit = self.idle_limit?;
        if state.requests + state.connections > 0 {
            // Looked at again when the request has ended, and at the latest after the limit.
            return Some(limit);
        }
        Some(limit.saturating_sub(state.last_use.elapsed()))
    }

    /// Counts a connection until the guard is dropped; `None`: there are too many.
    pub(super) fn connection(self: &Arc<Self>, most: usize) -> Option<ConnectionGuard> {
        let mut state = self.state();
        if state.connections >= most {
            return None;
        }
        state.connections += 1;
        Some(ConnectionGuard(Arc::clone(self)))
    }

    /// Adds a request at the end.
    pub(super) fn add(&self, mut job: QueuedRequest) {
        let mut state = self.state();
        let refused = match state.sender.clone() {
            None => (job, "the engine ends; try again".to_owned()),
            Some(sender) => {
                job.audience.report(&ModelProgress::Queued(state.requests));
                match sender.try_send(job) {
                    Ok(()) => {
                        state.requests += 1;
                        return;
                    }
                    Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
                        (job, format!("{MAX_WAITING} requests wait already; try again later"))
                    }
                }
            }
        };
        drop(state);
        let (job, message) = refused;
        job.audience.finish(Err(RequestFault { is_transient: true, message }));
    }

    fn finished(&self, was_answered: bool) {
        let mut state = self.state();
        state.requests = state.requests.saturating_sub(1);
        state.answered += u64::from(was_answered);
        state.last_use = Instant::now();
    }

    /// What the engine does.
    pub(super) fn status(&self) -> EngineStatus {
        let state = self.state();
        EngineStatus {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: state.model.clone(),
            requests: state.requests,
            answered: state.answered,
            memory_bytes: embedded::bench::resident_memory().unwrap_or_default(),
            running_seconds: self.began.elapsed().as_secs(),
            idle_limit_seconds: self.idle_limit.unwrap_or_default().as_secs(),
        }
    }
}

/// A connection that is open.
#[derive(Debug)]
pub(super) struct ConnectionGuard(Arc<RequestQueue>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.connections = state.connections.saturating_sub(1);
    }
}

/// The thread that has the model.
#[derive(Debug)]
pub(super) struct EngineThread(JoinHandle<()>);

impl EngineThread {
    pub(super) fn start(options: EngineOptions, queue: Arc<RequestQueue>) -> io::Result<Self> {
        let receiver = queue.state().receiver.take();
        let thread = thread::Builder::new().name("model".to_owned()).spawn(move || {
            let ending = StopOnDrop(Arc::clone(&queue));
            let mut worker = ModelWorker { options, queue, loaded: None };
            for job in receiver.into_iter().flatten() {
                worker.answer(job);
            }
            drop(ending);
        })?;
        Ok(Self(thread))
    }

    /// Waits until the thread has ended, for a while.
    pub(super) fn wait(self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while !self.0.is_finished() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Ends the process when the thread of the model ends, by a panic too: clients then start a new one.
struct StopOnDrop(Arc<RequestQueue>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.log.line("the model's thread failed");
        }
        self.0.stop();
    }
}

/// A model that is loaded, and the file it was loaded from.
struct LoadedModel {
    identity: FileIdentity,
    engine: Engine,
}

/// What a changed file differs in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileIdentity {
    path: PathBuf,
    bytes: u64,
    changed: Option<SystemTime>,
}

impl FileIdentity {
    fn of(path: &Path) -> Self {
        let found = fs::metadata(path).ok();
        Self {
            path: path.to_owned(),
            bytes: found.as_ref().map(fs::Metadata::len).unwrap_or_default(),
            changed: found.and_then(|found| found.modified().ok()),
        }
    }
}

struct ModelWorker {
    options: EngineOptions,
    queue: Arc<RequestQueue>,
    loaded: Option<LoadedModel>,
}

impl ModelWorker {
    fn answer(&mut self, mut job: QueuedRequest) {
        let began = Instant::now();
        let answer = self.try_answer(&mut job);
        let seconds = began.elapsed().as_secs_f64();
        let log = &self.queue.log;
        match &answer {
            Some(Ok(answer)) => log.line(&format!(
                "answered in {seconds:.2} s: {} tokens read, {} of them reused, {} written",
                answer.usage.prompt_tokens, answer.usage.reused_tokens, answer.usage.output_tokens
            )),
            Some(Err(fault)) => log.line(&format!("failed: {}", fault.message)),
            None => log.line(&format!("a client hung up after {seconds:.2} s")),
        }
        // Counted before the client reads the answer, so that a status asked for afterwards has it.
        self.queue.finished(matches!(answer, Some(Ok(_))));
        if let Some(answer) = answer {
            job.audience.finish(answer);
        }
    }

    /// The answer; `None`: the client hung up.
    fn try_answer(
        &mut self,
        job: &mut QueuedRequest,
    ) -> Option<Result<EngineAnswer, RequestFault>> {
        if job.audience.is_gone() {
            return None;
        }
        let request = match generation_request(&job.request) {
            Ok(request) => request,
            Err(message) => return Some(Err(RequestFault { is_transient: false, message })),
        };
        let queue = Arc::clone(&self.queue);
        let engine = match self.load(&job.request.model, job.audience.as_mut()) {
            Ok(engine) => engine,
            Err(fault) => return Some(Err(fault.into())),
        };
        job.audience.report(&ModelProgress::Reading { done: 0, total: 0 });
        let mut narrator = Narrator { audience: job.audience.as_mut(), tokens: 0, said: None };
        let generated = engine.generate(&request, &mut |progress| {
            if narrator.audience.is_gone() || queue.is_closed() {
                return ControlFlow::Break(());
            }
            narrator.hear(&progress);
            ControlFlow::Continue(())
        });
        let usage = engine.usage();
        if job.audience.is_gone() {
            return None;
        }
        Some(match generated {
            Err(fault) => {
                // A failed computation may leave the model in a state that no test covers.
                self.loaded = None;
                Err(fault.into())
            }
            Ok(_) if queue.is_closed() => Err(RequestFault {
                is_transient: true,
                message: "the engine was asked to end; try again".to_owned(),
            }),
            Ok(texts) => Ok(EngineAnswer {
                texts: texts.into_iter().map(wire_text).collect(),
                usage: EngineUsage {
                    prompt_tokens: usage.prompt_tokens as u64,
                    reused_tokens: usage.reused_tokens as u64,
                    output_tokens: usage.sampled_tokens as u64,
                    prompt_seconds: usage.prompt_time.as_secs_f64(),
                    answer_seconds: usage.answer_time.as_secs_f64(),
                },
            }),
        })
    }

    fn load(
        &mut self,
        path: &Path,
        audience: &mut dyn Audience,
    ) -> Result<&mut Engine, EngineFault> {
        let identity = FileIdentity::of(path);
        let loaded = match self.loaded.take() {
            Some(loaded) if loaded.identity == identity => loaded,
            earlier => {
                drop(earlier); // two models at once may not fit
                self.queue.state().model = None;
                audience.report(&ModelProgress::Loading);
                let began = Instant::now();
                let engine = Engine::open(path, &self.options)?;
                let seconds = began.elapsed().as_secs_f64();
                self.queue.log.line(&format!("loaded {} in {seconds:.2} s", path.display()));
                self.queue.state().model = Some(path.to_owned());
                LoadedModel { identity, engine }
            }
        };
        Ok(&mut self.loaded.insert(loaded).engine)
    }
}

/// Passes progress on, not too often.
struct Narrator<'a> {
    audience: &'a mut dyn Audience,
    tokens: u64,
    said: Option<Instant>,
}

impl Narrator<'_> {
    fn hear(&mut self, progress: &GenerationProgress<'_>) {
        let stage = match progress {
            GenerationProgress::Prompt { read, total } => {
                ModelProgress::Reading { done: *read as u64, total: *total as u64 }
            }
            GenerationProgress::Step => {
                self.tokens += 1;
                ModelProgress::Writing { tokens: self.tokens }
            }
            GenerationProgress::Text { sample, text } => {
                self.audience.add_text(*sample, text);
                return;
            }
        };
        if self.said.is_none_or(|said| said.elapsed() >= REPORT_INTERVAL) {
            self.said = Some(Instant::now());
            self.audience.report(&stage);
        }
    }
}

fn generation_request(request: &GenerateRequest) -> Result<GenerationRequest, String> {
    let form = match &request.form {
        AnswerForm::Text => Form::Text,
        AnswerForm::Object { opening, value, closing } => Form::Object {
            opening: opening.clone(),
            value: value.clone(),
            closing: closing.clone(),
        },
        AnswerForm::Program { language, head, method } => {
            let language: Language = language
                .parse()
                .map_err(|_| format!("the engine writes no programs in {language:?}"))?;
            Form::Program { language, head: head.clone(), method: method.clone() }
        }
    };
    Ok(GenerationRequest {
        system: request.system.clone(),
        user: request.user.clone(),
        form,
        samples: request.samples,
        temperature: request.temperature,
        most_probable_first: request.most_probable_first,
        top_p: request.top_p,
        seed: request.seed,
        max_tokens: request.max_tokens as usize,
    })
}

fn wire_text(generated: embedded::Generated) -> GeneratedText {
    GeneratedText {
        text: generated.text,
        tokens: generated.tokens as u64,
        ending: match generated.ending {
            EndOfText::Stop => AnswerEnding::Stop,
            EndOfText::Length => AnswerEnding::Length,
            EndOfText::Repetition => AnswerEnding::Repetition,
            EndOfText::Cancelled => AnswerEnding::Cancelled,
        },
        log_probability: generated.log_probability,
    }
}
