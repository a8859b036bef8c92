class Flag(int):
    """A truth value that may also be called: `outcome.ok` and `outcome.ok()`."""

    def __call__(self):
        return bool(self)

    def __repr__(self):
        return repr(bool(self))

    __str__ = __repr__


class FlagOrConstructor:
    """`Outcome.ok(...)` builds on the class; `outcome.ok` asks on an instance."""

    def __init__(self, status, construct):
        self.status, self.construct = status, construct

    def __get__(self, outcome, owner):
        return self.construct if outcome is None else Flag(outcome.status == self.status)


def ok_outcome(*positional, value=None, **extra):
    if value is None and positional:
        value = positional[0]
    if extra and value is None:
        value = extra
    elif extra and isinstance(value, dict):
        value = {**value, **extra}
    return new_outcome(status="ok", value=value)


def error_outcome(*positional, **fields):
    if positional and isinstance(positional[0], dict):
        fields = {**{str(key): item for key, item in positional[0].items()}, **fields}
    else:
        fields = {**named_error_fields(positional, fields), **fields}
    for identity in ("status", "tool_role", "method_name"):
        fields.pop(identity, None)
    error_type, message = fields.pop("error_type", None), fields.pop("error_message", None)
    retriable, metadata = fields.pop("retriable", False), fields.pop("metadata", None)
    if not isinstance(metadata, dict):
        metadata = {} if metadata is None else {"metadata": metadata}
    return new_outcome(
        status="error",
        error_type="execution" if error_type is None else str(error_type),
        error_message="The program reported an error." if message is None else str(message),
        retriable=retriable is True,
        metadata={**metadata, **fields},
    )


def named_error_fields(positional, fields):
    """error(message), or error(type, message, retriable)."""
    if len(positional) == 1 and "error_message" not in fields:
        return {"error_message": positional[0]}
    return dict(zip(("error_type", "error_message", "retriable"), positional))


def new_outcome(status, value=None, error_type=None, error_message=None, retriable=False,
                metadata=None, tool_role=None, method_name=None):
    outcome = object.__new__(Outcome)
    outcome.status, outcome.value = status, value
    outcome.error_type, outcome.error_message = error_type, error_message
    outcome.retriable, outcome.metadata = retriable, metadata
    outcome.tool_role = tool_role or (Execution.current and Execution.current.role)
    outcome.method_name = method_name or (Execution.current and Execution.current.method_name)
    return outcome


class Outcome:
    """How a call ended. When ok, unknown members, items and iteration are those of its value."""

    FIELDS = ("status", "value", "error_type", "error_message", "retriable",
              "tool_role", "method_name", "metadata")
    __slots__ = FIELDS
    __hash__ = None

    def __new__(cls, *positional, **fields):
        return ok_outcome(*positional, **fields)

    call = staticmethod(ok_outcome)
    ok = success = FlagOrConstructor("ok", ok_outcome)
    error = failure = FlagOrConstructor("error", error_outcome)
    is_ok = property(lambda self: self.status == "ok")
    is_error = property(lambda self: self.status != "ok")

    def value_or(self, default=None):
        return self.value if self.is_ok else default

    def to_dict(self):
        return {name: getattr(self, name) for name in self.FIELDS}

    def _value_for(self, wanted, error=TypeError):
        if self.is_ok:
            return self.value
        problem = error(f"no {wanted}: the outcome is an error: {self}")
        problem.failed_call = self.error_type
        raise problem

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._value_for(name, AttributeError), name)

    def __getitem__(self, key):
        return self._value_for(f"[{key!r}]")[key]

    def __iter__(self):
        return iter(self._value_for("iteration"))

    def __len__(self):
        return len(self._value_for("len()"))

    def __contains__(self, item):
        return self.is_ok and item in self.value

    def __bool__(self):
        return self.is_ok

    def __eq__(self, other):
        if isinstance(other, Outcome):
            return self.to_dict() == other.to_dict()
        return self.is_ok and self.value == other

    def __str__(self):
        return str(self.value) if self.is_ok else f"[{self.error_type}] {self.error_message}"

    def __repr__(self):
        return f"Outcome.ok({self.value!r})" if self.is_ok else f"<Outcome error {self}>"
