//! A zygote: an interpreter booted once, with the harness loaded, that forks workers on request
//! (specs/worker-protocol.md §1).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
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
use super::link::{GLANCE, Link};
use super::process::{Ending, Process, WorkerId};
use super::sandbox::{Sandbox, Seen, SpawnHandshake, Tally, ZygoteSandbox};
use super::zygote_pool::BootFault;
use crate::environment::Lock;
use crate::guest::interpreter::{self, InterpreterInfo};

/// Longest an interpreter may take from start to `ready`.
const BOOT_DEADLINE: Duration = Duration::from_secs(10);
/// The same when it has packages to load.
const ACTIVATION_DEADLINE: Duration = Duration::from_mins(1);
/// Longest a zygote may take to fork.
const FORK_DEADLINE: Duration = Duration::from_secs(5);
/// Longest anyone waits to learn how a worker ended.
const REAP_DEADLINE: Duration = Duration::from_millis(250);
/// Grace between closing the control channel and `SIGKILL`.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// How often it is looked at meanwhile.
const CLOSE_PERIOD: Duration = Duration::from_millis(1);
/// Requests sent without waiting before replies must be read.
const MAX_PENDING: usize = 32;
/// Longest control message.
const PACKET_BYTES: usize = 4096;
/// What is kept of a failed boot's output.
const EXPLANATION_BYTES: usize = 2000;

/// A booted interpreter. Dropping it ends it, and all its workers with it.
#[derive(Debug)]
pub(super) struct Zygote {
    /// Told apart from every other of this host.
    id: u64,
    process: Pid,
    control: OwnedFd,
    /// Requests not answered yet, oldest first. The zygote answers each once, in order.
    pending: VecDeque<Request>,
    /// Where it and its workers live; gone when they are.
    zygote_sandbox: ZygoteSandbox,
    /// Keeps its environment from being removed.
    _in_use: Option<Lock>,
}

/// What a zygote is booted as.
#[derive(Debug)]
pub(super) struct ZygoteSettings<'a> {
    pub(super) language: Language,
    pub(super) interpreter: &'a InterpreterInfo,
    /// Its environment, as the harness is told; none: the bare language.
    pub(super) arguments: Vec<OsString>,
    /// Held as long as it lives.
    pub(super) in_use: Option<Lock>,
    /// What it may see.
    pub(super) seen: Seen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Fork,
    Reap(u32),
}

/// Why a zygote did not do as asked.
#[derive(Debug)]
pub(super) enum ZygoteFault {
    /// It could not; it may later.
    Refused(String),
    /// It ended, hangs, or answers nonsense: boot another.
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
    /// Who sent it, as the kernel has it; not part of the message.
    #[serde(skip)]
    sender: Option<Pid>,
}

impl Zygote {
    /// Boots an interpreter; explains why when it does not come up.
    pub(super) fn boot(
        run_limits: ZygoteSettings<'_>,
        sandbox: &Sandbox,
        spawner: &Spawner,
    ) -> Result<Self, BootFault> {
        let (language, path) = (run_limits.language, run_limits.interpreter.path.display());
        let has_packages = run_limits.in_use.is_some();
        let (mut zygote, output) = spawn(run_limits, sandbox, spawner)
            .map_err(|error| BootFault::Unavailable(format!("{path} does not start: {error}")))?;
        let fault = match zygote.await_ready(language, has_packages) {
            Ok(()) => return Ok(zygote),
            Err(fault) => fault,
        };
        zygote.close();
        Err(match fault {
            BootFault::Inactive { .. } => fault,
            BootFault::Unavailable(problem) => {
                let problem = format!("{path} did not boot: {problem}{}", explanation(output));
                if has_packages {
                    BootFault::Inactive { package: None, problem }
                } else {
                    BootFault::Unavailable(problem)
                }
            }
        })
    }

    fn await_ready(&mut self, language: Language, has_packages: bool) -> Result<(), BootFault> {
        let patience = if has_packages { ACTIVATION_DEADLINE } else { BOOT_DEADLINE };
        let reply = match self.receive(Instant::now() + patience) {
            Ok(reply) => reply,
            Err(ZygoteFault::Refused(problem) | ZygoteFault::Lost(problem)) => {
                return Err(BootFault::Unavailable(problem));
            }
        };
        let ready = reply.op == "ready" && reply.guest.as_deref() == Some(language.name());
        match (reply.ipc_version, reply.op.as_str()) {
            (Some(IPC_VERSION), _) if ready => Ok(()),
            (_, "failed") => Err(BootFault::Inactive {
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

    /// Forks a worker, ready to be sent work.
    pub(super) fn fork(&mut self) -> Result<(Process, Link), ZygoteFault> {
        let refused = |error: io::Error| ZygoteFault::Refused(error.to_string());
        let worker_resources = self.zygote_sandbox.worker_resources().map_err(refused)?;
        let tally = worker_resources.tally().map_err(refused)?;
        let (link, theirs) =
            open_link(self.zygote_sandbox.limits().output_bytes, tally).map_err(refused)?;
        let deadline = Instant::now() + FORK_DEADLINE;
        let handed: Vec<BorrowedFd<'_>> = theirs
            .iter()
            .chain(worker_resources.cgroup_fds())
            .chain(worker_resources.ruleset())
            .map(AsFd::as_fd)
            .collect();
        let scratch = worker_resources.scratch().map(|path| path.to_string_lossy());
        let fork =
            json!({"op": "fork", "scratch": scratch, "doors": worker_resources.cgroup_fds().len()});
        self.request(Request::Fork, &fork, &handed)?;
        drop((handed, scratch));
        drop(theirs); // so that the worker's end is the only one, and its end is seen
        let reply = self.reply_to(Request::Fork, deadline)?;
        match (reply.op.as_str(), reply.pid, reply.sender) {
            ("forked", Some(pid), Some(sender)) => {
                let id = WorkerId { zygote: self.id, pid };
                let process = Process::open(
                    id,
                    sender,
                    worker_resources,
                    self.zygote_sandbox.limits().cpu_seconds,
                )
                .map_err(|e| ZygoteFault::Lost(format!("worker {pid}: {e}")))?;
                Ok((process, link))
            }
            ("failed", ..) => Err(ZygoteFault::Refused(reply.message.unwrap_or_default())),
            (op, ..) => Err(ZygoteFault::Lost(format!("its zygote answered a fork with {op:?}"))),
        }
    }

    /// Has a killed worker waited for, without waiting for that.
    pub(super) fn bury(&mut self, pid: u32) -> Result<(), ZygoteFault> {
        while self.pending.len() >= MAX_PENDING {
            self.receive_next(Instant::now() + FORK_DEADLINE)?;
        }
        self.request(Request::Reap(pid), &json!({"op": "reap", "pid": pid}), &[])
    }

    /// Reads the replies that are there.
    pub(super) fn settle(&mut self) -> Result<(), ZygoteFault> {
        while !self.pending.is_empty() && readable(self.control.as_fd(), Duration::ZERO) {
            self.receive_next(Instant::now())?;
        }
        Ok(())
    }

    /// Has an ended worker waited for, and says how it ended if that is known soon. A zygote that takes
    /// longer is busy, not lost: it is asked all the same.
    pub(super) fn reap(&mut self, pid: u32) -> Result<Ending, ZygoteFault> {
        let deadline = Instant::now() + REAP_DEADLINE;
        self.request(Request::Reap(pid), &json!({"op": "reap", "pid": pid}), &[])?;
        while readable(self.control.as_fd(), deadline.saturating_duration_since(Instant::now())) {
            let (answered, reply) = self.receive_next(deadline)?;
            if answered == Request::Reap(pid) {
                return Ok(Ending::reported(reply.signal, reply.exit));
            }
        }
        Ok(Ending::Unknown)
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
        // Never blocks: a zygote behind by a whole socket buffer of such small packets hangs.
        rustix::net::sendmsg(
            &self.control,
            &packet,
            &mut rights,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        )
        .map_err(|errno| ZygoteFault::Lost(format!("its zygote does not listen: {errno}")))?;
        self.pending.push_back(request);
        Ok(())
    }

    /// The reply to the request made last; replies to earlier ones, which nobody waits for, come first.
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
        request.map(|request| (request, reply)).ok_or_else(|| lost("its zygote spoke unasked"))
    }

    fn receive(&self, deadline: Instant) -> Result<Reply, ZygoteFault> {
        if !readable(self.control.as_fd(), deadline.saturating_duration_since(Instant::now())) {
            return Err(lost("its zygote hangs"));
        }
        let mut packet = [0; PACKET_BYTES];
        let (length, sender) = match receive_packet(&self.control, &mut packet) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Err(lost("its zygote ended")),
            Ok(received) => received,
            Err(errno) => {
                return Err(ZygoteFault::Lost(format!("its zygote cannot be heard: {errno}")));
            }
        };
        let reply = serde_json::from_slice(packet.get(..length).unwrap_or(&packet));
        reply.map(|reply| Reply { sender, ..reply }).map_err(|error| {
            ZygoteFault::Lost(format!("its zygote sent a malformed packet: {error}"))
        })
    }

    /// Ends it: asked first, so that it ends its workers and waits for them; killed if it lingers.
    fn close(&mut self) {
        let deadline = Instant::now() + CLOSE_GRACE;
        // Workers it was asked to wait for have ended when it says so.
        while !self.pending.is_empty() && self.receive_next(deadline).is_ok() {}
        // Fails only when it is gone already.
        let _ = rustix::net::shutdown(&self.control, Shutdown::Both);
        let deadline = Instant::now() + CLOSE_GRACE;
        while Instant::now() < deadline {
            if !matches!(
                rustix::process::waitpid(Some(self.process), WaitOptions::NOHANG),
                Ok(None)
            ) {
                return;
            }
            thread::sleep(CLOSE_PERIOD);
        }
        // Its workers lead sessions of their own, and die with it because they asked the kernel to.
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

/// The zygote and the output it would explain itself with.
fn spawn(
    run_limits: ZygoteSettings<'_>,
    sandbox: &Sandbox,
    spawner: &Spawner,
) -> io::Result<(Zygote, OwnedFd)> {
    static BOOTED: AtomicU64 = AtomicU64::new(0);
    let zygote_sandbox = sandbox.zygote_sandbox(run_limits.seen)?;
    let (control, theirs) = pair(SocketType::SEQPACKET)?;
    rustix::net::sockopt::set_socket_passcred(&control, true)?;
    // Non-blocking for both ends: a zygote that prints after its boot, unread, must not stop.
    let (output, printed) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let mut command =
        interpreter::command(run_limits.language, run_limits.interpreter, &run_limits.arguments);
    command.stdin(theirs).stdout(printed.try_clone()?).stderr(printed);
    let spawn_handshake = sandbox.confine(&mut command, &zygote_sandbox)?;
    let process = spawner.spawn(command, spawn_handshake)?;
    let id = BOOTED.fetch_add(1, Ordering::Relaxed);
    let zygote = Zygote {
        id,
        process,
        control,
        pending: VecDeque::new(),
        zygote_sandbox,
        _in_use: run_limits.in_use,
    };
    Ok((zygote, output))
}

/// The last of what a zygote printed, as the end of a sentence.
fn explanation(output: OwnedFd) -> String {
    let mut said = Vec::new();
    // Non-blocking: ends with an error where there is nothing more, which is all there is to read.
    let _ = File::from(output).take(1 << 16).read_to_end(&mut said);
    let text = String::from_utf8_lossy(&said);
    let text = text.trim();
    let cut = text.len().saturating_sub(EXPLANATION_BYTES);
    let start = (cut..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    if text.is_empty() {
        String::new()
    } else {
        format!("; it said: {}", text.get(start..).unwrap_or_default())
    }
}

/// A worker's descriptors: the host's ends, and the three to hand over.
fn open_link(output_limit: u64, tally: Tally) -> io::Result<(Link, [OwnedFd; 3])> {
    let (channel, their_channel) = pair(SocketType::STREAM)?;
    set_socket_timeout(&channel, Timeout::Recv, Some(GLANCE))?;
    let (stdout, their_stdout) = output_pipe()?;
    let (stderr, their_stderr) = output_pipe()?;
    let link = Link::new(channel, [stdout, stderr], output_limit, tally);
    Ok((link, [their_channel, their_stdout, their_stderr]))
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

/// Blocks whoever prints, never whoever reads.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

/// Whether there is something to read within a time.
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
/// A zygote asks the kernel to die with its parent, and the kernel takes the *thread* that spawned it
/// for its parent. So the spawning thread must last as long as the host.
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
                // Whoever asked waits for this; if it does not, the child sees its control channel close.
                let _ = spawned.send(start(command, spawn_handshake));
            }
        })?;
        Ok(Self(sender))
    }

    fn spawn(&self, command: Command, spawn_handshake: SpawnHandshake) -> io::Result<Pid> {
        let (spawned, reply) = mpsc::sync_channel(1);
        let gone = || io::Error::other("the spawner thread is gone");
        self.0.send(SpawnJob { command, spawn_handshake, spawned }).map_err(|_| gone())?;
        reply.recv().map_err(|_| gone())?
    }
}

/// The process that runs the command: the one started, or the one born inside its namespaces, which is a
/// child of ours all the same; the one started has then ended.
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
    let begun = ended.and_then(|()| spawn_handshake.attend(inside));
    match (begun, inside) {
        (Ok(()), Some(pid)) => Ok(pid),
        (Ok(()), None) => Err(io::Error::other("it was not born inside its namespaces")),
        (Err(error), Some(pid)) => {
            let _ = rustix::process::kill_process(pid, Signal::KILL); // it may have ended already
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            Err(error)
        }
        (Err(error), None) => Err(error),
    }
}

/// One packet, with the number its sender has for us.
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
