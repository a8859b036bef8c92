# Facts about an exception, from which the host decides what is to blame. They are read as the interpreter has
# them: a class of the program may override its own attributes.

MAX_CAUSES = 16
MAX_LOCALS = 200
MAX_CLASSES = 16
MAX_FRAMES = 10
MAX_CLASS_NAME = 200
MRO = type.__dict__["__mro__"].__get__
MODULE = type.__dict__["__module__"].__get__
QUALIFIED_NAME = type.__dict__["__qualname__"].__get__
CAUSE, CONTEXT = BaseException.__cause__.__get__, BaseException.__context__.__get__
TRACEBACK = BaseException.__traceback__.__get__
GROUP = getattr(builtins, "BaseExceptionGroup", ())  # before Python 3.11 there are none
RESPONSE_MODULES = frozenset(("http.client", "requests.models", "httpx", "httpx._models", "urllib3.response",
                              "aiohttp.client_reqrep"))
ERRNO, FILE_NAME = OSError.errno.__get__, OSError.filename.__get__


def exception_facts(problem):
    """The optional fields of a `done` with error type `execution`."""
    facts = {**link_facts(problem), "raised_in_program": is_raised_in_program(problem),
             "backtrace": backtrace_of(problem)}
    causes = [{**link_facts(cause), "link": link} for link, cause in linked(problem)]
    if causes:
        facts["causes"] = causes
    status = next(filter(None, map(http_status, causes_of(problem))), None)
    if status:
        facts["http_status"] = status
    return facts


def link_facts(problem):
    """What is known of one exception of a chain."""
    facts = {"class_chain": class_chain(problem)}
    for name, read in (("errno", error_number), ("path", file_name), ("failed_call", failed_call)):
        found = read(problem)
        if found:
            facts[name] = found
    return facts


def linked(problem):
    """The exceptions behind an exception, nearest first, and how each is linked to the one before."""
    if isinstance(problem, GROUP):
        return [("member", member) for member in islice(members_of(problem), MAX_CAUSES)]
    chain = causes_of(problem)
    return [("from" if CAUSE(effect) else "while", cause) for effect, cause in zip(chain, chain[1:])]


def members_of(group):
    """The exceptions of a group, and of the groups in it."""
    for member in group.exceptions:
        if isinstance(member, GROUP):
            yield from members_of(member)
        else:
            yield member


def http_status(problem):
    """The status of a response that a frame which the exception passed through holds: of the innermost such frame,
    an error before a success."""
    found, trace = None, TRACEBACK(problem)
    while trace:
        held = [status for status in map(status_of, islice(trace.tb_frame.f_locals.values(), MAX_LOCALS)) if status]
        found = max(held, default=found)
        trace = trace.tb_next
    return found


def status_of(value):
    if str(MODULE(type(value))) not in RESPONSE_MODULES:
        return None
    fields = getattr(value, "__dict__", {})
    status = fields.get("status_code", fields.get("status"))
    return int(status) if isinstance(status, int) and 100 <= status < 600 else None


def failed_call(problem):
    """The error type of the failed call of another agent whose value was used, or of a refused ask."""
    fields = object.__getattribute__(problem, "__dict__")
    code = fields.get("error_type" if isinstance(problem, AskError) else "failed_call")
    return valid_text(code[:MAX_CLASS_NAME]) if isinstance(code, str) else None


def causes_of(problem):
    """The exception, what it was raised from or while handling, and so on to the root cause."""
    chain = []
    while problem is not None and len(chain) < MAX_CAUSES:
        chain.append(problem)
        problem = cause_of(problem)
    return chain


def cause_of(problem):
    return CAUSE(problem) or CONTEXT(problem)


def class_chain(problem):
    """Class names up the hierarchy: built-in ones bare, others with their module."""
    kinds = (kind for kind in MRO(type(problem)) if kind is not object)
    return [qualified_name(kind) for kind in islice(kinds, MAX_CLASSES)]


def qualified_name(kind):
    module, name = str(MODULE(kind)), str(QUALIFIED_NAME(kind))
    return valid_text((name if module == "builtins" else f"{module}.{name}")[:MAX_CLASS_NAME])


def error_number(problem):
    """The name of an operating system error, as ECONNREFUSED, or of an error of SQLite, as SQLITE_BUSY."""
    if not isinstance(problem, OSError):
        fields = object.__getattribute__(problem, "__dict__")
        name = fields.get("sqlite_errorname") if class_chain(problem)[0].startswith("sqlite3.") else None
        return valid_text(name[:MAX_CLASS_NAME]) if isinstance(name, str) else None
    number = ERRNO(problem)
    if not isinstance(number, int) or any(kind.__module__ in ("socket", "ssl") for kind in MRO(type(problem))):
        return None  # name resolution and the TLS library have numbers of their own
    return errno.errorcode.get(number)


def file_name(problem):
    if not isinstance(problem, OSError) or not error_number(problem):
        return None  # an HTTPError keeps an address there
    name = FILE_NAME(problem)
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    return valid_text(name[:MAX_PATH]) if isinstance(name, str) else None


def is_raised_in_program(problem):
    """Whether it passed through a line of the program. False if the arguments do not fit the method's function."""
    return any(name == FILE for name in files_of(TRACEBACK(problem)))


def backtrace_of(problem):
    """The frames it passed through, innermost first, for the debug log."""
    frames, trace = deque(maxlen=MAX_FRAMES), TRACEBACK(problem)
    while trace:
        code = trace.tb_frame.f_code
        frames.appendleft(valid_text(f"{code.co_filename}:{trace.tb_lineno}:in {code.co_name}"[:MAX_PATH]))
        trace = trace.tb_next
    return list(frames)


def files_of(trace):
    while trace:
        yield trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
