# Facts about an exception, from which the host decides what is to blame. They are read as the interpreter has
# them: a class of the program may override its own attributes.

MAX_CAUSES = 16
MAX_CLASSES = 16
MAX_FRAMES = 10
MAX_CLASS_NAME = 200
MRO = type.__dict__["__mro__"].__get__
MODULE = type.__dict__["__module__"].__get__
QUALIFIED_NAME = type.__dict__["__qualname__"].__get__
CAUSE, CONTEXT = BaseException.__cause__.__get__, BaseException.__context__.__get__
TRACEBACK = BaseException.__traceback__.__get__
ERRNO, FILE_NAME = OSError.errno.__get__, OSError.filename.__get__


def exception_facts(problem):
    """The optional fields of a `done` with error type `execution`."""
    chain = causes_of(problem)
    facts = {"class_chain": class_chain(problem), "raised_in_program": is_raised_in_program(problem),
             "backtrace": backtrace_of(problem)}
    if len(chain) > 1:
        facts["cause_chain"] = class_chain(chain[-1])
    number = next(filter(None, map(error_number, chain)), None)
    if number:
        facts["errno"] = number
    path = next(filter(None, map(file_name, chain)), None)
    if path:
        facts["path"] = path
    failed = next(filter(None, map(failed_call, chain)), None)
    if failed:
        facts["failed_call"] = failed
    return facts


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
    """The name of an operating system error, as ECONNREFUSED."""
    if not isinstance(problem, OSError):
        return None
    number = ERRNO(problem)
    if not isinstance(number, int) or any(kind.__module__ in ("socket", "ssl") for kind in MRO(type(problem))):
        return None  # name resolution and the TLS library have numbers of their own
    return errno.errorcode.get(number)


def file_name(problem):
    if not error_number(problem):
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
