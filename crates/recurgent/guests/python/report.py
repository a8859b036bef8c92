def success(value, result_from, context):
    """The `done` frame of a program that returned `value`; `result_from` says how."""
    if isinstance(value, Outcome):
        fields = value.to_dict()
        result = encode(fields.pop("value"))
        ended = b'"status":"outcome","outcome":{"value":%s,%s' % (result, encode(fields)[1:])
    else:
        ended = b'"status":"ok","value":%s' % encode(value)
    failed = contacts().to_list()
    if failed:
        ended += b',"failed_contacts":%s' % encode(failed)
    return b'{"op":"done",%s,"result_from":"%s","context":%s}' % (ended, result_from.encode(), context._delta())


def failure(problem):
    """The `done` frame of a program that ended in the exception `problem`."""
    fields = {"op": "done", "status": "error", "error_type": "execution",
              "error_class": class_name(type(problem)), "error_message": message_of(problem),
              "location": location_of(problem)}
    if Network.is_off and Network.is_missing(problem):
        fields["error_message"] += Network.ADVICE
    special = special_fields(problem)
    if "error_type" not in special or isinstance(problem, SystemExit):
        try:
            fields.update(exception_facts(problem))
        except Exception:  # a class of the program that does not behave as one
            pass
    fields.update(special)
    failed = contacts().to_list()
    if failed:
        fields["failed_contacts"] = failed
    return dump(fields).encode()


def special_fields(problem):
    """The fields in which this kind of failure differs from a plain `execution` error."""
    if isinstance(problem, InvalidCode):
        return {"error_type": "invalid_code", "error_class": class_name(type(problem.problem)),
                "location": syntax_location(problem.problem)}
    if isinstance(problem, NotSerializable):
        return {"error_type": "non_serializable_result", "path": valid_text(problem.path)}
    if isinstance(problem, SystemExit):
        code = 0 if problem.code is None else problem.code
        return {"error_type": "worker_crash", "exit": int(code) if isinstance(code, int) else 1}
    if isinstance(problem, KeyboardInterrupt):
        return {"error_type": "worker_crash", "exit": 128 + signal.SIGINT}
    if isinstance(problem, MemoryError):
        return {"error_type": "resource_limit", "limit": "memory",
                "error_message": message_of(problem) or "the program ran out of memory"}
    limit = limit_reached(problem)
    if limit:
        return {"error_type": "resource_limit", "limit": limit,
                "error_message": f"{message_of(problem)}; the program's limit on {limit} is reached"}
    if isinstance(problem, Refusal):
        return {"error_type": "protocol", "error_class": problem.kind}
    if isinstance(problem, AskError) and not isinstance(problem, CallFailed):
        return {"ask_error_type": valid_text(str(problem.error_type))}
    return {}


LIMITS = {errno.EMFILE: "files", errno.ENFILE: "files", errno.ENOMEM: "memory", errno.ENOSPC: "scratch",
          errno.EDQUOT: "scratch", errno.EFBIG: "file_size"}


def limit_reached(problem):
    """The limit of the sandbox that caused an exception, if one did."""
    if isinstance(problem, RuntimeError) and "can't start new thread" in str(problem):
        return "processes"
    if not isinstance(problem, OSError):
        return None
    if problem.errno == errno.EAGAIN and is_from_fork(problem.__traceback__):
        return "processes"
    return LIMITS.get(problem.errno)


def is_from_fork(trace):
    """Whether an exception comes from starting a process; a socket that would block raises the same error."""
    while trace:
        name, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        if name.endswith("subprocess.py") or "fork" in linecache.getline(name, line):
            return True
        trace = trace.tb_next
    return False


def oversized(frame_bytes):
    return encode({"op": "done", "status": "error", "error_type": "resource_limit",
                   "error_class": "FrameTooLarge", "limit": "frame", "location": None,
                   "error_message": f"the frame is over {frame_bytes} bytes"})


def class_name(kind):
    own = kind.__module__ in ("builtins", "__main__")
    return valid_text(kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}")


def message_of(problem):
    try:
        return valid_text(str(problem)[:MAX_MESSAGE])
    except BaseException:  # a program's own __str__
        return "(its message could not be read)"


def valid_text(text):
    return text.encode("utf-8", "replace").decode()


def location_of(problem):
    """The innermost line of the program that the exception passed through."""
    found, trace = None, problem.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == FILE:
            found = trace
        trace = trace.tb_next
    return {"line": found.tb_lineno, "column": column_of(found)} if found else Execution.current.location


def column_of(trace):
    code = trace.tb_frame.f_code
    if not hasattr(code, "co_positions"):  # before Python 3.11
        return None
    line, _, offset, _ = next(islice(code.co_positions(), trace.tb_lasti // 2, None))
    if line is None or offset is None:
        return None
    return len(linecache.cache[FILE][2][line - 1].encode()[:offset].decode(errors="replace")) + 1


def syntax_location(problem):
    line = getattr(problem, "lineno", None)
    return line and {"line": line, "column": problem.offset or None}
