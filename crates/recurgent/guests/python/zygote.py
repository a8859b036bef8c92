class Zygote:
    """Forks workers on the host's request and reaps them; single-threaded, free of guest code."""

    def __init__(self):
        self.control = socket.socket(fileno=0)
        self.pid, self.workers = getpid(), set()
        self.prctl = ctypes.CDLL(None).prctl
        seals = load(os.environ.pop("RECURGENT_SEAL", "{}"))
        Network.is_off = seals.get("network") is False
        Seal(seals.get("zygote", ())).apply()
        self.seal = Seal(seals.get("worker", ()))

    def serve(self):
        self.send(op="ready", ipc_version=IPC_VERSION, guest="python", pid=self.pid,
                  version=".".join(map(str, sys.version_info[:3])))
        while True:
            packet, fds, _, _ = socket.recv_fds(self.control, 4096, 6)
            if not packet:
                return
            try:
                self.answer(load(packet.decode()), fds)
            except (OSError, KeyError, TypeError, ValueError) as problem:
                self.send(op="failed", message=f"{type(problem).__name__}: {problem}")
            finally:
                for fd in fds:
                    os.close(fd)

    def answer(self, message, fds):
        if message["op"] == "fork":
            self.fork(message.get("scratch"), message.get("cgroups", 0), *fds)
        elif message["op"] == "reap":
            self.send(op="reaped", pid=message["pid"], **self.reap(message["pid"]))
        else:
            raise ValueError(f"unknown op {message['op']!r}")

    def fork(self, scratch, cgroups, channel, stdout, stderr, *handed):
        started, starting = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(started)
            try:
                enter_groups(handed[:cgroups])
                self.become_worker(scratch, channel, stdout, stderr, starting, *handed[cgroups:])
            except OSError as problem:
                os.write(starting, str(problem).encode())
            except MemoryError:
                leave(OUT_OF_MEMORY)  # too little memory is left for a message
            finally:
                leave(1)
        self.workers.add(pid)
        os.close(starting)
        reply = os.read(started, MAX_EXPLANATION)
        os.close(started)
        if reply != b"+":
            raise OSError(f"the worker ended before it started: {reply.decode()} {self.reap(pid)}")

    def become_worker(self, scratch, channel, stdout, stderr, starting, *ruleset):
        """In the child. Never returns, so nothing of the zygote runs here again."""
        os.setsid()
        if scratch:
            os.environ["HOME"] = os.environ["TMPDIR"] = scratch
            os.chdir(scratch)
        self.seal.apply(*ruleset)
        self.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self.pid:
            leave(1)  # the zygote died before the signal was armed
        reset_signals()
        # Sent by the worker itself: the host gets its process number from the kernel.
        self.control.send(b'{"op":"forked","pid":%d}' % getpid())
        devnull = os.open(os.devnull, os.O_RDONLY)
        dup2(devnull, 0)
        self.worker.connect(channel, stdout, stderr)
        os.write(starting, b"+")
        for fd in (devnull, channel, stdout, stderr, starting, *ruleset):
            os.close(fd)
        self.worker.serve()

    def reap(self, pid):
        if pid not in self.workers:
            raise KeyError(f"no worker {pid}")
        kill_group(pid)  # so that waiting cannot block, and nothing the worker started outlives it
        _, status, usage = os.wait4(pid, 0)
        self.workers.discard(pid)
        wait_for_group(pid)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV and used_up_memory(usage):
            return {"signal": None, "exit": OUT_OF_MEMORY}
        if os.WIFSIGNALED(status):
            return {"signal": os.WTERMSIG(status), "exit": None}
        return {"signal": None, "exit": os.WEXITSTATUS(status)}

    def send(self, **message):
        self.control.send(encode(message))


def enter_groups(cgroups):
    for cgroup in cgroups:
        try:
            os.write(cgroup, b"0")
        except OSError:
            pass  # the host adds a worker that could not join by itself
        os.close(cgroup)


def used_up_memory(usage):
    """Whether a process had used up its memory: CPython may crash where an allocation fails. Mapped files, which
    count towards the limit, are mostly not resident."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return limit != resource.RLIM_INFINITY and usage.ru_maxrss * 1024 * 3 >= limit * 2


def kill_group(pid):
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def wait_for_group(leader):
    """Reaps orphans of an ended worker."""
    try:
        while True:
            os.waitpid(-leader, 0)
    except ChildProcessError:
        pass


def reset_signals():
    """Restores default signal handling, except SIGPIPE."""
    for name in ("HUP", "INT", "QUIT", "TERM", "ALRM", "USR1", "USR2"):
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
