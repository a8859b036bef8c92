class Network:
    """Advice for programs without a network: the kernel's refusal looks like a fault, and models would try again."""

    is_off = False
    ADVICE = ("; the network is off for this agent, so trying again will not help: do without it, or "
              "report the error type capability_unavailable")
    REFUSALS = (errno.EPERM, errno.EACCES, errno.ENETUNREACH, errno.EAFNOSUPPORT)

    @classmethod
    def is_missing(cls, problem):
        """Whether the exception, or a cause of it, comes from the missing network."""
        return any(map(cls._is_refusal, causes_of(problem)))

    @classmethod
    def _is_refusal(cls, problem):
        if isinstance(problem, socket.gaierror):
            return True
        return isinstance(problem, OSError) and ERRNO(problem) in cls.REFUSALS and is_from_socket(problem)


def is_from_socket(problem):
    return any(name.endswith("socket.py") for name in files_of(TRACEBACK(problem)))
