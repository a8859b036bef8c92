class Seal:
    """What the host has a worker do to itself: a list of system calls (specs/worker-protocol.md)."""

    OPENAT = 257  # on x86-64

    def __init__(self, steps):
        self.call = ctypes.CDLL(None, use_errno=True).syscall
        self.call.restype = ctypes.c_long
        self.kept = []  # what is pointed to
        self.steps = [(number, [self.argument(given) for given in arguments])
                      for number, *arguments in steps]

    def argument(self, given):
        if isinstance(given, int):
            return ctypes.c_long(given)
        if isinstance(given, str):
            return self.bytes(bytes.fromhex(given))
        if isinstance(given, list):
            head, pointed = map(bytes.fromhex, given)
            address = ctypes.addressof(self.bytes(pointed))
            return self.bytes(head + address.to_bytes(8, sys.byteorder))
        return given["the"]

    def bytes(self, content):
        self.kept.append(ctypes.create_string_buffer(content, len(content)))
        return self.kept[-1]

    def apply(self, ruleset=-1):
        known = {"ruleset": ctypes.c_long(ruleset)}
        for number, arguments in self.steps:
            given = (known.get(it) if isinstance(it, str) else it for it in arguments)
            result = self.call(ctypes.c_long(number), *given)
            if result < 0:
                raise OSError(ctypes.get_errno(), f"system call {number}")
            if number == self.OPENAT:
                known["opened"] = ctypes.c_long(result)
