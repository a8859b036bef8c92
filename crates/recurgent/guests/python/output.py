class Output:
    """Restores stdout and stderr, whatever a program did to them. Lines are not buffered: what a program printed
    before it crashed or was ended is evidence."""

    def __init__(self):
        self.spare = {1: os.dup(1), 2: os.dup(2)}
        sys.stdout.reconfigure(line_buffering=True)
        self.streams = {"stdout": sys.stdout, "stderr": sys.stderr}

    def redirect(self, stdout, stderr):
        for number, fd in ((1, stdout), (2, stderr)):
            dup2(fd, number)
            dup2(fd, self.spare[number], inheritable=False)

    def restore(self):
        for number, (name, stream) in enumerate(self.streams.items(), start=1):
            flush(getattr(sys, name, None))
            dup2(self.spare[number], number)
            if stream.closed:
                stream = io.open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
                self.streams[name] = stream
            setattr(sys, name, stream)
            flush(stream)


def flush(stream):
    try:
        stream.flush()
    except BaseException:  # closed, replaced or broken by the program: then its output is lost
        pass
