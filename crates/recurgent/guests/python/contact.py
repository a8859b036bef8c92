# Contacts with services that failed while a program ran. It may handle the failure and report an error of its own, so
# the worker reports them to the host. A failure is forgotten when the same place is reached later.

MAX_FAILED_CONTACTS = 16
ERROR_STATUS = 400
STATUS_LINE = re.compile(rb"HTTP/\d[.\d]* (\d{3})\b")
PASSING = (BlockingIOError, InterruptedError)  # of a socket that does not block


class Contacts:
    """The failed contacts of one `execute`, by the place that was contacted."""

    def __init__(self):
        self.failed, self.names, self.connecting = {}, {}, {}

    def fail(self, place, **facts):
        if place in self.failed or len(self.failed) < MAX_FAILED_CONTACTS:
            self.failed[place] = facts

    def succeed(self, place):
        self.failed.pop(place, None)

    def resolved(self, name, found):
        """Several addresses of one name are one place."""
        if isinstance(name, str):
            self.names.update((address[0], name) for *_, address in islice(found, MAX_FAILED_CONTACTS))

    def place_of(self, address):
        if not isinstance(address, tuple) or len(address) < 2:
            return valid_text(str(address)[:MAX_PATH])
        host = str(self.names.get(address[0], address[0]))
        host = f"[{host}]" if ":" in host else host
        return valid_text(f"{host}:{address[1]}"[:MAX_PATH])

    def to_list(self):
        return [{"place": place, **facts} for place, facts in self.failed.items()]


def contacts():
    return Execution.current.contacts if Execution.current else Contacts()


class WatchedCall:
    """Stands in for a method of a class of `socket`, or for a function of it."""

    def __init__(self, called, watch):
        self.called, self.watch = called, watch
        self.__name__, self.__doc__ = called.__name__, called.__doc__

    def __get__(self, owner, kind=None):
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, *args, **kwargs):
        return self.watch(self.called, *args, **kwargs)


def watch_connect(connect, connection, address):
    place = contacts().place_of(address)
    try:
        made = connect(connection, address)
    except PASSING:
        contacts().connecting[connection.fileno()] = place
        raise
    except OSError as problem:
        contacts().fail(place, **link_facts(problem))
        raise
    contacts().succeed(place)
    return made


def watch_option(read, connection, *option):
    value = read(connection, *option)
    if option == (socket.SOL_SOCKET, socket.SO_ERROR):  # how a connection that was not waited for ended
        place = contacts().connecting.pop(connection.fileno(), None)
        if value:
            contacts().fail(place or "service", errno=errno.errorcode.get(value, "ECONNABORTED"))
        elif place:
            contacts().succeed(place)
    return value


def watch_creation(create, made, *args, **kwargs):
    try:
        return create(made, *args, **kwargs)
    except OSError as problem:  # the network is off
        contacts().fail("network", **link_facts(problem))
        raise


def watch_resolution(resolve, host, *args, **kwargs):
    try:
        found = resolve(host, *args, **kwargs)
    except OSError as problem:
        contacts().fail(valid_text(str(host)[:MAX_PATH]), **link_facts(problem))
        raise
    contacts().resolved(host, found)
    return found


def watch_receipt(receive, connection, *args, **kwargs):
    try:
        return receive(connection, *args, **kwargs)
    except PASSING:
        raise
    except OSError as problem:
        contacts().fail(peer_of(connection), **link_facts(problem))
        raise


def watch_stream(read, stream, buffer):
    """Reading a connection as a file: HTTP clients make one such stream for each response."""
    began = getattr(stream, "recurgent_began", False)
    try:
        size = read(stream, buffer)
    except PASSING:
        raise
    except OSError as problem:
        contacts().fail(peer_of(stream._sock), **link_facts(problem))
        raise
    if size is not None and not began:
        stream.recurgent_began = True
        note_beginning(peer_of(stream._sock), bytes(memoryview(buffer)[:size][:64]))
    return size


def note_beginning(place, text):
    status = STATUS_LINE.match(text)
    if not text:
        contacts().fail(place, errno="ECONNRESET")  # closed without an answer
    elif status and int(status[1]) >= ERROR_STATUS:
        contacts().fail(place, http_status=int(status[1]))
    else:
        contacts().succeed(place)


def peer_of(connection):
    try:
        return contacts().place_of(connection.getpeername())
    except (OSError, AttributeError):  # it is closed
        return "service"


def watch_sockets():
    for owner, name, watch in (
        (socket.socket, "__init__", watch_creation), (socket.socket, "connect", watch_connect),
        (socket.socket, "recv", watch_receipt), (socket.socket, "recv_into", watch_receipt),
        (socket.socket, "getsockopt", watch_option), (socket.SocketIO, "readinto", watch_stream),
        (socket, "getaddrinfo", watch_resolution),
    ):
        setattr(owner, name, WatchedCall(getattr(owner, name), watch))


watch_sockets()
