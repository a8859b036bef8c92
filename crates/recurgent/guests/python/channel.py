class AskError(Exception):
    """The host refused an ask."""

    def __init__(self, error_type, message):
        super().__init__(message)
        self.error_type = error_type


class ToolRegistryViolation(AskError):
    pass


class CallFailed(AskError):
    """The value of a failed call was read, and the program had not checked the outcome."""


class Refusal(Exception):
    """An `execute` frame this worker cannot serve; `kind` is the `error_class` of its report."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Channel:
    """JSON lines on the attempt's socket. Frames from several threads never interleave."""

    def __init__(self, fd):
        self.pid = getpid()
        self.lock = _thread.allocate_lock()
        self.frame_bytes = DEFAULT_FRAME_BYTES
        self._readline = io.open(fd, "rb", buffering=1 << 16, closefd=False).readline
        # Buffered: the next flush sends what an exception in a signal handler left unsent.
        writer = io.open(fd, "wb", buffering=1 << 16, closefd=False)
        self._write, self._flush = writer.write, writer.flush
        self._asks = 0

    def receive_execute(self):
        while True:
            size, frame = self._receive()
            if frame["op"] == "execute":  # other frames answer asks that a program no longer waits for
                self.frame_bytes = frame["limits"]["frame_bytes"]
                return size, frame

    def exchange(self, kind, fields):
        self._asks += 1
        ask_id = self._asks
        ask = b'{"op":"ask","ask_id":%d,"kind":"%s"%s}' % (ask_id, kind.encode(), fields)
        if len(ask) >= self.frame_bytes:
            raise AskError("resource_limit", f"the ask is over {self.frame_bytes} bytes")
        self.send(ask)
        while True:
            size, frame = self._receive()
            if frame.get("ask_id") == ask_id:
                break
        if size > self.frame_bytes:
            raise AskError("resource_limit", f"the answer is over {self.frame_bytes} bytes")
        return frame

    def send(self, frame):
        self._write(frame + b"\n")
        self._flush()

    def _receive(self):
        line = self._readline()
        if not line.endswith(b"\n"):
            leave(0)  # the host is done with this worker
        return len(line), load(line.decode())
