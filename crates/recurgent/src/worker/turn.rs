//! One exchange with a worker, from `execute` to `done`.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lifecycle::context::ContextChanges;
use lifecycle::dialect::Language;
use lifecycle::execution::{Order, Output, ReportEnding, ResultFrom, WorkerFault, WorkerTrace};
use lifecycle::look::Look;
use lifecycle::outcome::{EndedBy, Limit};
use lifecycle::program::Checksum;
use lifecycle::provenance::ObservedSource;

use super::frame::{self, FRAME_BYTES, FRAME_VALUES, Frame};
use super::link::{Link, LinkFault, Watch};
use super::permit::{Answering, Permit};
use super::pool::Lease;
use super::process::{Process, WorkerExit, signal_label};
use super::reaper::ReaperQueue;
use super::waiting::ServiceWait;
use super::zygote_pool::ZygotePool;
use super::{Shared, after};
use crate::guest::{Answer, Cancellation, Done, RunLimits, TurnEvent};

/// Programs that the host assumes a kept worker holds. Both sides forget the least recently used program, and
/// workers hold more than this, so the worker holds every program assumed here.
const KNOWN_PROGRAMS: usize = 64;
/// Ruby's last output when it cannot even allocate a `NoMemoryError`.
///
/// This is text of another program: Ruby then exits with status 1, as after any error, and offers nothing else to
/// recognise the case by. If another version prints something else, the end is reported as a crash of the program.
const RUBY_OUT_OF_MEMORY: &str = "[FATAL] failed to allocate memory\n";
/// Size to which the encoding buffer of an idle worker is shrunk.
const IDLE_BUFFER_BYTES: usize = 64 * 1024;

/// A forked worker. Dropping it ends it, and its process group with it.
#[derive(Debug)]
pub(super) struct Worker {
    process: Process,
    link: Link,
    zygote_pool: Arc<ZygotePool>,
    queue: ReaperQueue,
    /// The context version it has.
    context_version: Option<u64>,
    /// The programs it has, most recently used last.
    programs: VecDeque<Checksum>,
    outbox: Vec<u8>,
    /// Whether its zygote has waited for it already.
    reaped: bool,
    /// How it ended, if it ended by itself.
    exit: Option<WorkerExit>,
    /// Counts it as a live worker.
    _live: Permit,
}

impl Worker {
    pub(super) fn new(
        process: Process,
        link: Link,
        zygote_pool: Arc<ZygotePool>,
        queue: ReaperQueue,
        live: Permit,
    ) -> Self {
        Self {
            process,
            link,
            zygote_pool,
            queue,
            context_version: None,
            programs: VecDeque::new(),
            outbox: Vec::new(),
            reaped: false,
            exit: None,
            _live: live,
        }
    }

    /// Its process number.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether a kept worker still waits for work and has sent nothing unrequested.
    pub(super) fn is_fit(&mut self) -> bool {
        self.link.is_quiet()
    }

    /// The connections made for it since this was last called.
    fn take_connections(&self) -> Vec<ObservedSource> {
        self.process.take_connections()
    }

    /// Whether its program left a process or a thread behind, as far as the kernel says so at once. Ruby keeps threads
    /// that have ended for a few seconds, for new ones: [`Pool::expire`](super::pool::Pool::expire) counts them later.
    fn has_leftovers(&self, language: Language) -> bool {
        if self.link.tally().tasks() == Some(1) {
            return false; // it is alone
        }
        let threads = self.process.threads(); // first: a thread that ends meanwhile is not a process
        let tasks = self.link.tally().tasks();
        tasks.zip(threads).is_some_and(|(tasks, threads)| tasks > threads)
            || (language == Language::Python && self.process.has_more_threads())
    }

    /// Whether it has more threads than before its first program.
    pub(super) fn counts_more_threads(&self) -> bool {
        self.process.counts_more_threads()
    }

    /// Asks it to end, before it is ended.
    pub(super) fn ask_to_end(&self) {
        self.process.ask_to_end();
    }

    /// Gives it a moment to end after it was asked to.
    pub(super) fn terminate(&self) {
        self.process.terminate();
    }

    /// Processor time it has used; `None`: it ended, or the kernel does not say.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        self.process.cpu_time()
    }

    /// Queues a check of kept workers, this one included.
    pub(super) fn request_check(&self) {
        self.queue.check_kept();
    }

    /// Queues forking of the next spare worker.
    fn request_spare(&self) {
        self.queue.refill(&self.zygote_pool);
    }

    fn send_order(&mut self, order: &Order<'_>, watch: &Watch<'_>) -> Result<(), LinkFault> {
        let delta = order.context().since(self.context_version);
        let checksum = order.program.checksum();
        let known = self.programs.iter().position(|program| program == checksum);
        let code = known.is_none().then_some(order.program.program().source.as_str());
        frame::execute(&mut self.outbox, order, &delta, code);
        if self.outbox.len() > FRAME_BYTES {
            return Err(LinkFault::Oversized);
        }
        self.link.send(&self.outbox, watch)?;
        self.outbox.shrink_to(IDLE_BUFFER_BYTES);
        self.context_version = Some(delta.version);
        self.mark_used(known, checksum);
        Ok(())
    }

    /// Moves a program to the end of the list, as the worker does.
    fn mark_used(&mut self, known: Option<usize>, checksum: &Checksum) {
        let program =
            known.and_then(|at| self.programs.remove(at)).unwrap_or_else(|| checksum.clone());
        self.programs.push_back(program);
        if self.programs.len() > KNOWN_PROGRAMS {
            self.programs.pop_front();
        }
    }

    fn send_answer(
        &mut self,
        id: u64,
        answer: &Answer,
        watch: &Watch<'_>,
    ) -> Result<(), LinkFault> {
        frame::answer(&mut self.outbox, id, answer);
        if self.outbox.len() > FRAME_BYTES {
            let message =
                format!("the answer is longer than {FRAME_BYTES} bytes; ask for less at a time");
            let refused = Answer::Refused { error_type: "resource_limit".to_owned(), message };
            frame::answer(&mut self.outbox, id, &refused);
        }
        let sent = self.link.send(&self.outbox, watch);
        self.outbox.shrink_to(IDLE_BUFFER_BYTES);
        sent
    }

    /// Explains why a program's time was up: it waited for a service that sent nothing for at least half of the time,
    /// or else it took too long by itself.
    fn explain_timeout(&self, limit: Duration) -> WorkerFault {
        match self.process.service_wait(limit / 2) {
            Some(ServiceWait::ForAnswer(silent)) => {
                WorkerFault::ServiceSilent { limit, silent: Some(silent) }
            }
            Some(ServiceWait::ForConnection) => WorkerFault::ServiceSilent { limit, silent: None },
            None => WorkerFault::TimedOut(limit),
        }
    }

    /// Explains why a worker ended that the host did not end.
    fn explain_exit(&mut self) -> WorkerFault {
        let ended = self.process.ends_by_itself();
        let cpu_time_used_up = self.process.has_used_up_cpu();
        self.process.kill(); // and what it left in its process group
        let ending = self.zygote_pool.reap(self.process.id());
        self.reaped = ending.is_some();
        self.exit = ending.filter(|_| ended);
        match ending {
            Some(_) if self.link.tally().is_out_of_memory() => over_memory(),
            // Every worker ends with its zygote: this program is not to blame.
            None => crashed(EndedBy::Host, "the worker ended because its zygote ended".to_owned()),
            Some(_) if !ended => by_program("it closed its channel"),
            Some(_) if self.link.stderr_ends_with(RUBY_OUT_OF_MEMORY) => out_of_memory(),
            Some(ending) => match ending.limit(cpu_time_used_up) {
                Some(Limit::Cpu) => WorkerFault::Limited(
                    Limit::Cpu,
                    "the program used up its processor time; do less, or raise worker_cpu_seconds"
                        .to_owned(),
                ),
                Some(Limit::Memory) => out_of_memory(),
                Some(limit) => {
                    WorkerFault::Limited(limit, format!("the program went over a limit: {ending}"))
                }
                None => by_program(ending),
            },
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.reaped {
            self.process.kill();
            if !self.zygote_pool.keeps_workers_apart() {
                self.zygote_pool.reap_killed(self.process.id()); // before the next worker is forked, which could signal it
            } else if !self.queue.reap(&self.zygote_pool, self.process.take_killed()) {
                self.process.await_end(); // the runtime ends and must leave no process
            }
        }
    }
}

/// The worker a turn starts with.
#[derive(Debug)]
pub(super) struct AssignedWorker {
    /// Runs the program.
    pub(super) worker: Worker,
    /// The agent that keeps it afterwards; `None`: it runs this one attempt.
    pub(super) lease: Option<Arc<Lease>>,
    /// What the log records about it.
    pub(super) trace: WorkerTrace,
}

/// A running program: it asks, is answered, and ends. Dropping it ends its worker.
#[derive(Debug)]
pub struct WorkerTurn {
    shared: Arc<Shared>,
    agent: String,
    cancellation: Cancellation,
    clock: Clock,
    /// `None` while the host answers, and after the end.
    permit: Option<Permit>,
    /// `None` after the end.
    worker: Option<Worker>,
    lease: Option<Arc<Lease>>,
    trace: WorkerTrace,
    /// What the program of a failed turn printed.
    output: Output,
    /// The ask that waits for its answer.
    asked: Option<(u64, Answering)>,
    last_ask: u64,
    /// The connections of a worker that was ended.
    reached: Vec<ObservedSource>,
    /// The zygote of this turn alone, where its program may change a workspace.
    own_zygote: Option<Arc<ZygotePool>>,
}

/// Why a turn did not start.
#[derive(Debug)]
pub(super) enum StartFault {
    /// The worker had already ended: try another, with the same permit.
    WorkerGone(Permit),
    /// Another worker would not help.
    Fault(WorkerFault),
}

impl WorkerTurn {
    /// Sends the order to the worker.
    pub(super) fn start(
        shared: &Arc<Shared>,
        assignment: AssignedWorker,
        permit: Permit,
        order: &Order<'_>,
        run_limits: &RunLimits<'_>,
    ) -> Result<Self, StartFault> {
        let AssignedWorker { mut worker, lease, trace } = assignment;
        drop(worker.take_connections()); // of what an earlier program left running
        let own_zygote =
            worker.zygote_pool.serves_one_turn().then(|| Arc::clone(&worker.zygote_pool));
        let clock = Clock::start(run_limits.time_limit);
        let ordered = worker.send_order(order, &clock.watch(run_limits.cancellation));
        if !trace.warm {
            worker.request_spare();
        }
        match ordered {
            Ok(()) => {}
            Err(LinkFault::Closed) => return Err(StartFault::WorkerGone(permit)),
            Err(fault) => {
                return Err(StartFault::Fault(shared.explain(
                    fault,
                    &mut worker,
                    run_limits.time_limit,
                )));
            }
        }
        Ok(Self {
            shared: Arc::clone(shared),
            agent: run_limits.agent.to_owned(),
            cancellation: run_limits.cancellation.clone(),
            clock,
            permit: Some(permit),
            worker: Some(worker),
            lease,
            trace,
            output: Output::default(),
            asked: None,
            last_ask: 0,
            reached: Vec::new(),
            own_zygote,
        })
    }

    fn receive(&mut self) -> Result<TurnEvent, WorkerFault> {
        let Some(worker) = self.worker.as_mut().filter(|_| self.asked.is_none()) else {
            return Err(misused());
        };
        let watch = self.clock.watch(&self.cancellation);
        match worker.link.receive(&watch, frame::decode) {
            Ok(Ok(Frame::Ask { id, ask })) if id > self.last_ask => {
                self.clock.stop();
                self.permit = None; // others may run while the host answers
                (self.asked, self.last_ask) = (Some((id, self.shared.live.answering())), id);
                Ok(TurnEvent::Ask(ask))
            }
            Ok(Ok(Frame::Ask { .. })) => Err(by_program("it asked with a number used before")),
            Ok(Ok(Frame::Done { .. })) if worker.link.has_more() => {
                Err(by_program("it sent a frame after `done`"))
            }
            Ok(Ok(Frame::Done { .. })) if worker.link.tally().is_out_of_memory() => {
                Err(over_memory())
            }
            Ok(Ok(Frame::Done { ending, changes, result_from, failed_contacts })) => {
                let done = Done { result_from, failed_contacts, ..self.finish(ending, changes) };
                Ok(TurnEvent::Done(Box::new(done)))
            }
            // The host sends nothing that an intact harness refuses, so the program broke it or falsified this.
            Ok(Ok(Frame::Refused(problem))) => {
                Err(by_program(format!("it refused its order: {problem}")))
            }
            Ok(Err(fault)) => Err(by_program(fault)),
            Err(fault) => Err(self.shared.explain(fault, worker, self.clock.limit)),
        }
    }

    fn reply(&mut self, answer: &Answer) -> Result<(), WorkerFault> {
        let (Some(worker), Some((id, answering))) = (self.worker.as_mut(), self.asked.take())
        else {
            return Err(misused());
        };
        drop(answering);
        self.permit = Some(self.shared.permits.acquire(&self.cancellation)?);
        self.clock.resume();
        worker
            .send_answer(id, answer, &self.clock.watch(&self.cancellation))
            .map_err(|fault| self.shared.explain(fault, worker, self.clock.limit))
    }

    /// Keeps the worker if it may serve again. Otherwise it ends here, with everything it changed.
    fn finish(&mut self, ending: ReportEnding, changes: ContextChanges) -> Done {
        self.permit = None;
        self.shared.losses.reset(&self.agent);
        let mut worker = self.worker.take();
        let output = worker.as_mut().map(|worker| worker.link.take_output()).unwrap_or_default();
        let reached = worker.as_ref().map(Worker::take_connections).unwrap_or_default();
        if let (Some(worker), Some(lease), true) =
            (worker, self.lease.take(), leaves_worker_usable(&ending))
            && worker.process.has_cpu_left()
            && !worker.process.has_files()
            && !worker.has_leftovers(lease.language())
        {
            self.shared.pool.give_back(lease, worker);
        }
        let worker = std::mem::take(&mut self.trace);
        Done {
            ending,
            changes,
            output,
            worker,
            result_from: ResultFrom::default(),
            reached,
            failed_contacts: Vec::new(),
        }
    }

    /// Ends the worker of a turn that went wrong.
    fn abandon(&mut self, fault: &WorkerFault) {
        (self.permit, self.asked) = (None, None);
        let Some(mut worker) = self.worker.take() else { return };
        match fault {
            WorkerFault::TimedOut(_)
            | WorkerFault::ServiceSilent { .. }
            | WorkerFault::Cancelled => worker.process.terminate(),
            WorkerFault::Crashed { .. }
            | WorkerFault::Limited(..)
            | WorkerFault::ActivationFailed(_)
            | WorkerFault::Unavailable(_)
            | WorkerFault::AllowanceSpent(_)
            | WorkerFault::NoWorkspace(_)
            | WorkerFault::Uncontained(_) => {}
        }
        self.output = worker.link.take_output();
        self.reached = worker.take_connections();
        (self.trace.exit_status, self.trace.signal) = match worker.exit {
            Some(WorkerExit::Exit(status)) => (Some(status), None),
            Some(WorkerExit::Signal(signal)) => (None, Some(signal_label(signal))),
            Some(WorkerExit::Unknown) | None => (None, None),
        };
        drop(worker);
        match fault {
            WorkerFault::Crashed { .. } | WorkerFault::TimedOut(_) => {
                self.shared.losses.note_crash(&self.agent);
            }
            WorkerFault::Limited(..)
            | WorkerFault::ActivationFailed(_)
            | WorkerFault::Unavailable(_)
            | WorkerFault::AllowanceSpent(_)
            | WorkerFault::NoWorkspace(_)
            | WorkerFault::Uncontained(_)
            | WorkerFault::ServiceSilent { .. }
            | WorkerFault::Cancelled => self.shared.losses.note_loss(&self.agent),
        }
    }
}

impl WorkerTurn {
    /// Waits for its next ask, or its end.
    pub fn listen(&mut self) -> Result<TurnEvent, WorkerFault> {
        self.receive().inspect_err(|fault| self.abandon(fault))
    }

    /// Answers what it asked last.
    pub fn answer(&mut self, answer: &Answer) -> Result<(), WorkerFault> {
        self.reply(answer).inspect_err(|fault| self.abandon(fault))
    }

    /// What is known of a run that ended without a report: what it printed, and its worker. Ends the run.
    pub fn evidence(&mut self) -> (Output, WorkerTrace) {
        self.abandon(&WorkerFault::Cancelled); // if the host ended the turn
        (std::mem::take(&mut self.output), std::mem::take(&mut self.trace))
    }

    /// Ends the run of a program that looked at a value: its worker is not used again.
    pub fn end_looked(&mut self, look: Look) -> Done {
        self.asked = None;
        self.finish(ReportEnding::Looked(Box::new(look)), ContextChanges::default())
    }

    /// What the program sees in place of its workspace, where that is a layer.
    pub(crate) fn workspace_layer(&self) -> Option<OwnedFd> {
        self.own_zygote.as_ref()?.layer()
    }

    /// Ends everything that may still change the program's version of its workspace.
    pub(crate) fn end_own_zygote(&mut self) {
        if let Some(zygote) = self.own_zygote.take() {
            zygote.close();
        }
    }

    /// The hosts it connected to, where the host makes its connections; of a run that ended without a report.
    pub fn reached(&mut self) -> Vec<ObservedSource> {
        let connections = self.worker.as_ref().map(Worker::take_connections);
        self.reached.extend(connections.unwrap_or_default());
        std::mem::take(&mut self.reached)
    }
}

impl Drop for WorkerTurn {
    fn drop(&mut self) {
        self.end_own_zygote();
    }
}

/// Measures the time a program itself takes.
#[derive(Debug)]
struct Clock {
    limit: Duration,
    spent: Duration,
    since: Instant,
}

impl Clock {
    fn start(limit: Duration) -> Self {
        Self { limit, spent: Duration::ZERO, since: Instant::now() }
    }

    fn stop(&mut self) {
        self.spent += self.since.elapsed();
    }

    fn resume(&mut self) {
        self.since = Instant::now();
    }

    fn watch<'a>(&self, cancellation: &'a Cancellation) -> Watch<'a> {
        Watch { deadline: after(self.since, self.limit.saturating_sub(self.spent)), cancellation }
    }
}

impl Shared {
    /// Explains a broken exchange. May wait a moment to learn how the worker ended.
    fn explain(&self, fault: LinkFault, worker: &mut Worker, limit: Duration) -> WorkerFault {
        match fault {
            LinkFault::TimedOut => match worker.link.tally().limit_reached() {
                // Ruby retries a refused fork until its time is up.
                Some(Limit::Processes) => over_processes(),
                Some(Limit::Memory) => over_memory(),
                Some(_) | None => worker.explain_timeout(limit),
            },
            LinkFault::OutOfMemory => over_memory(),
            LinkFault::Cancelled => WorkerFault::Cancelled,
            LinkFault::Oversized => WorkerFault::Limited(
                Limit::Frame,
                format!(
                    "a frame is longer than {FRAME_BYTES} bytes or has more than {FRAME_VALUES} values; pass less at a time"
                ),
            ),
            LinkFault::Flooded => WorkerFault::Limited(
                Limit::Output,
                "the program printed too much; print less, or raise worker_output_mb".to_owned(),
            ),
            LinkFault::Failed(error) => {
                crashed(EndedBy::Host, format!("the worker cannot be reached: {error}"))
            }
            LinkFault::Closed if self.is_closing() => {
                crashed(EndedBy::Host, "the runtime is shutting down".to_owned())
            }
            LinkFault::Closed => worker.explain_exit(),
        }
    }
}

/// Whether the worker may serve another call after this ending.
fn leaves_worker_usable(ending: &ReportEnding) -> bool {
    match ending {
        ReportEnding::Value(_) | ReportEnding::Reported { .. } => true,
        ReportEnding::Raised { .. }
        | ReportEnding::Looked(_)
        | ReportEnding::Malformed(_)
        | ReportEnding::Unserializable { .. }
        | ReportEnding::Exited { .. }
        | ReportEnding::Limited(..) => false,
    }
}

fn by_program(what: impl std::fmt::Display) -> WorkerFault {
    crashed(EndedBy::Program, format!("the worker ended before its program was done: {what}"))
}

fn out_of_memory() -> WorkerFault {
    WorkerFault::Limited(
        Limit::Memory,
        "the program ran out of memory; use less at a time, or raise worker_memory_mb".to_owned(),
    )
}

fn over_memory() -> WorkerFault {
    WorkerFault::Limited(
        Limit::Memory,
        "the program and the processes it started used up their memory together; use less at a time, \
         or raise worker_memory_mb"
            .to_owned(),
    )
}

fn over_processes() -> WorkerFault {
    WorkerFault::Limited(
        Limit::Processes,
        "the program's time was up while it could not start one more process or thread; start \
         fewer, or raise worker_processes"
            .to_owned(),
    )
}

fn crashed(by: EndedBy, detail: String) -> WorkerFault {
    WorkerFault::Crashed { by, detail }
}

/// The caller listened while an answer was due, answered without an ask, or used the turn after its end.
fn misused() -> WorkerFault {
    crashed(EndedBy::Host, "the turn has ended, or the other side must send first".to_owned())
}
