//! A zygote: an interpreter booted once, with the harness loaded, that forks workers on request
//! (specs/worker-protocol.md §1).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::dialect::Language;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::frame::IPC_VERSION;
use super::link::{Link, POLL_INTERVAL};
use super::process::{Process, WorkerExit, WorkerId, is_stopped};
use super::sandbox::{Sandbox, SandboxAccess, SpawnHandshake, Tally, ZygoteSandbox};
use super::zygote_pool::BootFault;
use crate::guest::interpreter::{self, InterpreterInfo};
use crate::lock_file::LockGuard;

/// Longest time from an interpreter's start to `ready`.
const BOOT_DEADLINE: Duration = Duration::from_secs(30);
/// Longest time a zygote may take to fork.
const FORK_DEADLINE: Duration = Duration::from_secs(30);
/// Longest time a call waits to learn how a worker ended.
const REAP_DEADLINE: Duration = Duration::from_secs(10);
/// Time between closing the control channel and `SIGKILL`.
const CLOSE_GRACE: Duration = Duration::from_secs(5);
/// Interval at which it is checked meanwhile.
const CLOSE_PERIOD: Duration = Duration::from_millis(1);
/// Interval at which a zygote that does not reply is checked.
const STATE_PERIOD: Duration = Duration::from_millis(500);
/// Requests that may be unanswered before replies must be read.
const MAX_PENDING: usize = 32;
/// Longest control message.
const PACKET_BYTES: usize = 4096;
/// Bytes read of a boot's output at a time.
const OUTPUT_CHUNK: usize = 16 * 1024;
/// Bytes kept of a failed boot's output.
const EXPLANATION_BYTES: usize = 2000;

/// A booted interpreter. Dropping it ends it and all its workers.
#[derive(Debug)]
pub(super) struct Zygote {
    /// Unique within this host process.
    id: u64,
    process: Pid,
    control: OwnedFd,
    /// Requests not answered yet, oldest first. The zygote answers each once, in order.
    pending: VecDeque<Request>,
    /// The sandbox of it and its workers; removed after they have ended.
    sandbox: ZygoteSandbox,
    /// What its programs see in place of their workspace, where that is a layer.
    layer: Option<OwnedFd>,
    /// Keeps its environment from being removed.
    _in_use: Option<LockGuard>,
}

/// How a zygote is booted.
#[derive(Debug)]
pub(super) struct ZygoteSettings<'a> {
    pub(super) language: Language,
    pub(super) interpreter: &'a InterpreterInfo,
    /// The environment, as arguments of the harness; empty: the bare language.
    pub(super) arguments: Vec<OsString>,
    /// Held as long as the zygote exists.
    pub(super) in_use: Option<LockGuard>,
    /// Longest time its packages may take to load.
    pub(super) activation_limit: Duration,
    /// What it may see and reach.
    pub(super) access: SandboxAccess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Fork,
    Reap(u32),
}

/// Why a zygote did not do what was requested.
#[derive(Debug)]
pub(super) enum ZygoteFault {
    /// It could not now; it may later.
    Refused(String),
    /// It ended, hangs, or sent a reply outside the protocol: boot another.
    Lost(String),
}

/// Any control message; fields a message lacks are `None`.
#[derive(Debug, Deserialize)]
struct Reply {
    op: String,
    pid: Option<u32>,
    signal: Option<i32>,
    exit: Option<i32>,
    message: Option<String>,
    package: Option<String>,
    ipc_version: Option<u32>,
    guest: Option<String>,
    /// The sender's process number, from the kernel; not part of the message.
    #[serde(skip)]
    sender: Option<Pid>,
}

impl Zygote {
    /// Boots an interpreter, or explains why it did not become ready.
    pub(super) fn boot(
        settings: ZygoteSettings<'_>,
        sandbox: &Sandbox,
        spawner: &Spawner,
    ) -> Result<Self, BootFault> {
        let (language, path) = (settings.language, settings.interpreter.path.display());
        let has_packages = settings.in_use.is_some();
        let limit = if has_packages { settings.activation_limit } else { BOOT_DEADLINE };
        let explained = settings.access.explain_no_start(&settings.interpreter.path);
        let (mut zygote, mut output) = spawn(settings, sandbox, spawner)
            .map_err(|error| BootFault::Unavailable(explained(&error)))?;
        let fault = match zygote.await_ready(language, limit, &mut output) {
            Ok(()) => {
                output.stop_reading();
                return Ok(zygote);
            }
            Err(fault) => fault,
        };
        zygote.close();
        Err(match fault {
            BootFault::ActivationFailed { .. } => fault,
            BootFault::Unavailable(problem) => {
                let problem = format!("{path} did not boot: {problem}{}", output.explanation());
                if has_packages {
                    BootFault::ActivationFailed { package: None, problem }
                } else {
                    BootFault::Unavailable(problem)
                }
            }
        })
    }

    /// Waits for `ready`. Before it, the zygote names each package it begins to load.
    fn await_ready(
        &mut self,
        language: Language,
        limit: Duration,
        output: &mut BootOutput,
    ) -> Result<(), BootFault> {
        let deadline = Instant::now() + limit;
        let mut loading = None;
        let reply = loop {
            let in_time = output.drain_until_readable(self.control.as_fd(), deadline);
            match self.receive(if in_time { deadline } else { Instant::now() }) {
                Ok(reply) if reply.op == "loading" => loading = reply.package,
                Ok(reply) => break reply,
                Err(ZygoteFault::Refused(problem) | ZygoteFault::Lost(problem)) => {
                    return Err(unloaded(loading, in_time, limit, problem, output));
                }
            }
        };
        let ready = reply.op == "ready" && reply.guest.as_deref() == Some(language.name());
        match (reply.ipc_version, reply.op.as_str()) {
            (Some(IPC_VERSION), _) if ready => Ok(()),
            (_, "failed") => Err(BootFault::ActivationFailed {
                package: reply.package,
                problem: reply.message.unwrap_or_default(),
            }),
            (version, op) => Err(BootFault::Unavailable(format!(
                "it greeted with {op:?}, protocol version {version:?}"
            ))),
        }
    }

    /// Whether it forked this worker.
    pub(super) fn forked(&self, worker: WorkerId) -> bool {
        worker.zygote == self.id
    }

    /// What its programs see in place of their workspace, where that is a layer.
    pub(super) fn layer(&self) -> Option<OwnedFd> {
        self.layer.as_ref()?.try_clone().ok()
    }

    /// Forks a worker, ready to be sent work.
    pub(super) fn fork(&mut self) -> Result<(Process, Link), ZygoteFault> {
        let refused = |error: io::Error| ZygoteFault::Refused(error.to_string());
        let worker_resources = self.sandbox.worker_resources().map_err(refused)?;
        let tally = worker_resources.tally().map_err(refused)?;
        let (link, child_end) =
            open_link(self.sandbox.limits().output_bytes, tally).map_err(refused)?;
        let deadline = Instant::now() + FORK_DEADLINE;
        let handed: Vec<BorrowedFd<'_>> = child_end
            .iter()
            .chain(worker_resources.cgroup_fds())
            .chain(worker_resources.ruleset())
            .map(AsFd::as_fd)
            .collect();
        let scratch = worker_resources.scratch().map(|path| path.to_string_lossy());
        let fork = json!({"op": "fork", "scratch": scratch, "cgroups": worker_resources.cgroup_fds().len()});
        self.request(Request::Fork, &fork, &handed)?;
        drop((handed, scratch));
        drop(child_end); // so that the worker holds the only copy, and its exit closes the channel
        let reply = self.reply_to(Request::Fork, deadline)?;
        match (reply.op.as_str(), reply.pid, reply.sender) {
            ("forked", Some(pid), Some(sender)) => {
                let id = WorkerId { zygote: self.id, pid };
                let process =
                    Process::open(id, sender, worker_resources, self.sandbox.limits().cpu_seconds)
                        .map_err(|e| ZygoteFault::Lost(format!("worker {pid}: {e}")))?;
                Ok((process, link))
            }
            ("failed", ..) => Err(ZygoteFault::Refused(reply.message.unwrap_or_default())),
            (op, ..) => Err(ZygoteFault::Lost(format!("its zygote answered a fork with {op:?}"))),
        }
    }

    /// Asks the zygote to wait for a killed worker, without waiting for the reply.
    pub(super) fn reap_killed(&mut self, pid: u32) -> Result<(), ZygoteFault> {
        while self.pending.len() >= MAX_PENDING {
            self.receive_next(Instant::now() + FORK_DEADLINE)?;
        }
        self.request(Request::Reap(pid), &json!({"op": "reap", "pid": pid}), &[])
    }

    /// Reads the replies that have arrived.
    pub(super) fn settle(&mut self) -> Result<(), ZygoteFault> {
        while !self.pending.is_empty() && readable(self.control.as_fd(), Duration::ZERO) {
            self.receive_next(Instant::now())?;
        }
        Ok(())
    }

    /// Asks the zygote to wait for an ended worker, and returns how it ended if the reply comes soon. A zygote
    /// that takes longer is busy, not lost.
    pub(super) fn reap(&mut self, pid: u32) -> Result<WorkerExit, ZygoteFault> {
        let deadline = Instant::now() + REAP_DEADLINE;
        self.request(Request::Reap(pid), &json!({"op": "reap", "pid": pid}), &[])?;
        while readable(self.control.as_fd(), deadline.saturating_duration_since(Instant::now())) {
            let (answered, reply) = self.receive_next(deadline)?;
            if answered == Request::Reap(pid) {
                return Ok(WorkerExit::reported(reply.signal, reply.exit));
            }
        }
        Ok(WorkerExit::Unknown)
    }

    fn request(
        &mut self,
        request: Request,
        message: &Value,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ZygoteFault> {
        let message = message.to_string();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let packet = [IoSlice::new(message.as_bytes())];
        // Never blocks: a zygote that leaves a whole socket buffer of small packets unread hangs.
        rustix::net::sendmsg(
            &self.control,
            &packet,
            &mut rights,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        )
        .map_err(|errno| {
            ZygoteFault::Lost(format!("its zygote cannot be sent a request: {errno}"))
        })?;
        self.pending.push_back(request);
        Ok(())
    }

    /// The reply to the last request. Replies to earlier requests come first and are dropped.
    fn reply_to(&mut self, request: Request, deadline: Instant) -> Result<Reply, ZygoteFault> {
        loop {
            let (answered, reply) = self.receive_next(deadline)?;
            if answered == request && self.pending.is_empty() {
                return Ok(reply);
            }
        }
    }

    fn receive_next(&mut self, deadline: Instant) -> Result<(Request, Reply), ZygoteFault> {
        let reply = self.receive(deadline)?;
        let request = self.pending.pop_front();
        request
            .map(|request| (request, reply))
            .ok_or_else(|| lost("its zygote sent a reply without a request"))
    }

    fn receive(&self, deadline: Instant) -> Result<Reply, ZygoteFault> {
        self.await_packet(deadline)?;
        let mut packet = [0; PACKET_BYTES];
        let (length, sender) = match receive_packet(&self.control, &mut packet) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Err(lost("its zygote ended")),
            Ok(received) => received,
            Err(errno) => {
                return Err(ZygoteFault::Lost(format!(
                    "its zygote's reply cannot be read: {errno}"
                )));
            }
        };
        let reply = serde_json::from_slice(packet.get(..length).unwrap_or(&packet));
        reply.map(|reply| Reply { sender, ..reply }).map_err(|error| {
            ZygoteFault::Lost(format!("its zygote sent a malformed packet: {error}"))
        })
    }

    /// Waits for the next packet. A zygote that was stopped is not waited for.
    fn await_packet(&self, deadline: Instant) -> Result<(), ZygoteFault> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if readable(self.control.as_fd(), left.min(STATE_PERIOD)) {
                return Ok(());
            }
            if left.is_zero() {
                return Err(lost("its zygote did not reply in time"));
            }
            if is_stopped(self.process) {
                return Err(lost("its zygote was stopped"));
            }
        }
    }

    /// Ends it. It is asked first, so that it ends its workers and waits for them, and killed if that takes too long.
    fn close(&mut self) {
        let deadline = Instant::now() + CLOSE_GRACE;
        // Workers that it was asked to wait for have ended when it replies.
        while !self.pending.is_empty() && self.receive_next(deadline).is_ok() {}
        // Fails only if it has ended already.
        let _ = rustix::net::shutdown(&self.control, Shutdown::Both);
        let deadline = Instant::now() + CLOSE_GRACE;
        while Instant::now() < deadline && !is_stopped(self.process) {
            if !matches!(
                rustix::process::waitpid(Some(self.process), WaitOptions::NOHANG),
                Ok(None)
            ) {
                return;
            }
            thread::sleep(CLOSE_PERIOD);
        }
        // Its workers lead their own sessions; the kernel ends them by their parent-death signal.
        let _ = rustix::process::kill_process(self.process, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.process), WaitOptions::empty());
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        self.close();
    }
}

fn lost(problem: &str) -> ZygoteFault {
    ZygoteFault::Lost(problem.to_owned())
}

/// The fault of a boot that ended without `ready`. While a package was being loaded, the package is named.
fn unloaded(
    loading: Option<String>,
    in_time: bool,
    limit: Duration,
    problem: String,
    output: &mut BootOutput,
) -> BootFault {
    let Some(package) = loading else { return BootFault::Unavailable(problem) };
    let problem = if in_time {
        format!("`{package}` ended the interpreter when it was loaded{}", output.explanation())
    } else {
        format!(
            "`{package}` did not load within {} s; use another package, or raise activation_timeout_seconds{}",
            limit.as_secs_f64(),
            output.explanation()
        )
    };
    BootFault::ActivationFailed { package: Some(package), problem }
}

/// What a zygote prints while it boots. It is read all the time, so that a package that prints a lot does not block.
#[derive(Debug)]
struct BootOutput {
    source: OwnedFd,
    /// A copy of the zygote's end.
    writer: OwnedFd,
    /// The end of it.
    kept: Vec<u8>,
}

impl BootOutput {
    /// Reads the output until the other descriptor is readable; returns whether it was in time.
    fn drain_until_readable(&mut self, other: BorrowedFd<'_>, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut polled = [
                PollFd::from_borrowed_fd(other, PollFlags::IN),
                PollFd::from_borrowed_fd(self.source.as_fd(), PollFlags::IN),
            ];
            let ready = poll(&mut polled, Timespec::try_from(left).ok().as_ref());
            let [other_ready, output_ready] = polled.map(|fd| !fd.revents().is_empty());
            match ready {
                Err(Errno::INTR) => continue,
                Ok(0) | Err(_) => return false,
                Ok(_) if other_ready => return true,
                Ok(_) => {}
            }
            if output_ready {
                self.drain();
            }
        }
    }

    fn drain(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); OUTPUT_CHUNK];
        if let Ok((bytes, _)) = rustix::io::read(&self.source, &mut buffer) {
            self.kept.extend_from_slice(bytes);
            let excess = self.kept.len().saturating_sub(OUTPUT_CHUNK);
            self.kept.drain(..excess);
        }
    }

    /// From now on nothing is read: a zygote that prints must not block.
    fn stop_reading(self) {
        // Fails never for a pipe; the zygote does not print after its boot anyway.
        let _ = rustix::fs::fcntl_setfl(&self.writer, rustix::fs::OFlags::NONBLOCK);
    }

    /// The end of what was printed, as the end of a sentence.
    fn explanation(&mut self) -> String {
        self.drain();
        let text = String::from_utf8_lossy(&self.kept);
        let text = text.trim();
        let cut = text.len().saturating_sub(EXPLANATION_BYTES);
        let start = (cut..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        if text.is_empty() {
            String::new()
        } else {
            format!("; it printed: {}", text.get(start..).unwrap_or_default())
        }
    }
}

/// Starts the zygote; also returns its output, for the explanation of a failed boot.
fn spawn(
    settings: ZygoteSettings<'_>,
    sandbox: &Sandbox,
    spawner: &Spawner,
) -> io::Result<(Zygote, BootOutput)> {
    static BOOTED: AtomicU64 = AtomicU64::new(0);
    let zygote_sandbox = sandbox.zygote_sandbox(settings.access)?;
    let (control, child_end) = pair(SocketType::SEQPACKET)?;
    rustix::net::sockopt::set_socket_passcred(&control, true)?;
    let (output, output_end) = output_pipe()?;
    let writer = output_end.try_clone()?;
    let mut command =
        interpreter::command(settings.language, settings.interpreter, &settings.arguments);
    command.stdin(child_end).stdout(output_end.try_clone()?).stderr(output_end);
    let mut spawn_handshake = sandbox.confine(&mut command, &zygote_sandbox)?;
    let layer_channel = spawn_handshake.take_layer_channel();
    let process = spawner.spawn(command, spawn_handshake)?;
    let id = BOOTED.fetch_add(1, Ordering::Relaxed);
    let mut zygote = Zygote {
        id,
        process,
        control,
        pending: VecDeque::new(),
        sandbox: zygote_sandbox,
        layer: None,
        _in_use: settings.in_use,
    };
    zygote.layer = zygote.sandbox.receive_layer(layer_channel)?;
    Ok((zygote, BootOutput { source: output, writer, kept: Vec::new() }))
}

/// A worker's channels: the host's ends, and the three descriptors for the worker.
fn open_link(output_limit: u64, tally: Tally) -> io::Result<(Link, [OwnedFd; 3])> {
    let (channel, their_channel) = pair(SocketType::STREAM)?;
    set_socket_timeout(&channel, Timeout::Recv, Some(POLL_INTERVAL))?;
    let (stdout, their_stdout) = output_pipe()?;
    let (stderr, their_stderr) = output_pipe()?;
    let link = Link::new(channel, [stdout, stderr], output_limit, tally);
    Ok((link, [their_channel, their_stdout, their_stderr]))
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

/// A pipe whose writer blocks and whose reader does not.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, child_end) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
    Ok((ours, child_end))
}

/// Whether a descriptor becomes readable within a time.
pub(super) fn readable(descriptor: BorrowedFd<'_>, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return matches!(ready, Ok(1..)),
        }
    }
}

/// The one thread that starts interpreters.
///
/// A zygote asks the kernel to kill it when its parent ends. The kernel takes the *thread* that spawned it for
/// its parent, so the spawning thread must live as long as the host.
#[derive(Debug)]
pub(super) struct Spawner(mpsc::Sender<SpawnJob>);

#[derive(Debug)]
struct SpawnJob {
    command: Command,
    spawn_handshake: SpawnHandshake,
    spawned: mpsc::SyncSender<io::Result<Pid>>,
}

impl Spawner {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<SpawnJob>();
        thread::Builder::new().name("recurgent-spawner".to_owned()).spawn(move || {
            for SpawnJob { command, spawn_handshake, spawned } in jobs {
                // If the requester no longer waits, the child sees its control channel close.
                let _ = spawned.send(start(command, spawn_handshake));
            }
        })?;
        Ok(Self(sender))
    }

    fn spawn(&self, command: Command, spawn_handshake: SpawnHandshake) -> io::Result<Pid> {
        let (spawned, reply) = mpsc::sync_channel(1);
        let gone = || io::Error::other("the thread that starts interpreters has ended");
        self.0.send(SpawnJob { command, spawn_handshake, spawned }).map_err(|_| gone())?;
        reply.recv().map_err(|_| gone())?
    }
}

/// Starts a command and returns the process that runs it: the started one, or the one inside its namespaces,
/// which is also a child of the host. In that case the started one has ended.
pub(crate) fn start(mut command: Command, spawn_handshake: SpawnHandshake) -> io::Result<Pid> {
    let started = command.spawn();
    // The host's copies of the child's descriptors close with the command.
    drop(command);
    let inside = spawn_handshake.pid(started.as_ref().ok().map(Pid::from_child));
    let ended = match started {
        Ok(mut child) if spawn_handshake.is_another() => child.wait().map(drop),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    let begun = ended.and_then(|()| spawn_handshake.serve_connections(inside));
    match (begun, inside) {
        (Ok(()), Some(pid)) => Ok(pid),
        (Ok(()), None) => Err(io::Error::other("the sandboxed process did not start")),
        (Err(error), Some(pid)) => {
            let _ = rustix::process::kill_process(pid, Signal::KILL); // fails if it has ended already
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            Err(error)
        }
        (Err(error), None) => Err(error),
    }
}

/// Receives one packet and its sender's process number in the host's namespace.
fn receive_packet(
    control: &OwnedFd,
    packet: &mut [u8],
) -> rustix::io::Result<(usize, Option<Pid>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        control,
        &mut [IoSliceMut::new(packet)],
        &mut attached,
        RecvFlags::DONTWAIT,
    )?;
    let mut sender = None;
    for message in attached.drain() {
        if let RecvAncillaryMessage::ScmCredentials(credentials) = message {
            sender = Some(credentials.pid);
        }
    }
    Ok((received.bytes, sender))
}
