class Network:
    """A sandbox without a network refuses as if something were broken; models then try again."""

    is_off = False
    ADVICE = ("; the network is off for this agent, so trying again will not help: do without it, or "
              "report the error type capability_unavailable")
    REFUSALS = (errno.EPERM, errno.EACCES, errno.ENETUNREACH, errno.EAFNOSUPPORT)
    MAX_CAUSES = 16

    @classmethod
    def is_missed(cls, problem):
        for _ in range(cls.MAX_CAUSES):
            if isinstance(problem, socket.gaierror):
                return True
            if isinstance(problem, OSError) and OSError.errno.__get__(problem) in cls.REFUSALS and in_socket(problem):
                return True
            problem = cause_of(problem)
            if problem is None:
                return False
        return False


def cause_of(problem):
    """As the interpreter has it: a program's own class may say anything."""
    return BaseException.__cause__.__get__(problem) or BaseException.__context__.__get__(problem)


def in_socket(problem):
    return any(name.endswith("socket.py") for name in files_of(BaseException.__traceback__.__get__(problem)))


def files_of(trace):
    while trace:
        yield trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
