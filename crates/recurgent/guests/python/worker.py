class Worker:
    """Created once, in the zygote, with a channel that no host reads; each fork connects its own."""

    def __init__(self, fd):
        self.fd, self.channel, self.context = fd, Channel(fd), Context()
        self.programs, self.output = Programs(), Output()
        self.threads = count_threads()

    def connect(self, channel, stdout, stderr):
        self.channel.pid = getpid()
        self.threads = count_threads()  # a fork may count threads of the zygote
        dup2(channel, self.fd, inheritable=False)
        self.output.redirect(stdout, stderr)

    def serve(self):
        while True:
            self.serve_one()

    def serve_one(self):
        size, frame = self.channel.receive_execute()
        execution = Execution(self.channel, self.context, frame)
        limit = self.channel.frame_bytes
        done = oversized(limit) if size > limit else self.run(frame, execution)
        set_timer(REAL_TIMER, 0)  # an alarm left armed must not interrupt the next frame
        self.output.restore()
        if getpid() != self.channel.pid:
            leave(0)  # a process that the program forked: it must not send a result
        execution.finish(done if len(done) < limit else oversized(limit))
        if count_threads() > self.threads:
            leave(0)  # with the threads that the program left; the next call gets another worker

    def run(self, frame, execution):
        try:
            if frame["ipc_version"] != IPC_VERSION:
                raise Refusal("UnknownIpcVersion", f"this worker speaks version {IPC_VERSION}")
            self.programs.check(frame)  # refused frames leave the context's version as it is
            self.context._advance(frame["context"])
            value, result_from = self.programs.find(frame).run(execution)
            return success(value, result_from, self.context)
        except BaseException as problem:
            return failure(problem)


def warmed_up_worker():
    """A worker that has already run programs of the runtime. They fill inline caches and the like before the fork, so
    that all workers share these pages of memory."""
    host, own = socket.socketpair()
    worker = Worker(own.fileno())
    for version in range(WARM_UP_RUNS):
        host.sendall(encode({
            "op": "execute", "ipc_version": IPC_VERSION, "role": "zygote", "method_name": "warm_up",
            "code_digest": str(version), "code": WARM_UP_PROGRAMS[version % len(WARM_UP_PROGRAMS)],
            "args": [version], "kwargs": {},
            "context": {"version": version, "base": version - 1 if version else None, "set": {}, "unset": []},
            "limits": {"frame_bytes": DEFAULT_FRAME_BYTES}}) + b"\n")
        worker.serve_one()
        host.recv(1 << 12)
    host.close()
    Execution.current = None
    sys.modules["__main__"] = harness_module
    del linecache.cache[FILE]
    worker.context, worker.programs = Context(), Programs()
    own.detach()
    return worker
