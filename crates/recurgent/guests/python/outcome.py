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
                metadata=None, tool_role=None, method_name=None, called=False):
    """`called`: whether it is the outcome of a call of another agent."""
    outcome = object.__new__(Outcome)
    outcome._status, outcome._value, outcome._called, outcome._checked = status, value, called, False
    outcome._error_type, outcome._error_message = error_type, error_message
    outcome.retriable, outcome.metadata = retriable, metadata
    outcome.tool_role = tool_role or (Execution.current and Execution.current.role)
    outcome.method_name = method_name or (Execution.current and Execution.current.method_name)
    return outcome


def checking(name):
    """A property whose reading counts as a check of the outcome."""
    def read(outcome):
        outcome._checked = True
        return getattr(outcome, name)

    return property(read, lambda outcome, value: setattr(outcome, name, value))


class Outcome:
    """How a call ended. When ok, unknown members, items and iteration are those of its value. Reading the value of a
    failed call raises, unless the program checked the outcome before."""

    FIELDS = ("status", "value", "error_type", "error_message", "retriable",
              "tool_role", "method_name", "metadata")
    __slots__ = ("_status", "_value", "_error_type", "_error_message", "_called", "_checked",
                 "retriable", "tool_role", "method_name", "metadata")
    __hash__ = None
    status, error_type, error_message = checking("_status"), checking("_error_type"), checking("_error_message")

    def __new__(cls, *positional, **fields):
        return ok_outcome(*positional, **fields)

    call = staticmethod(ok_outcome)
    ok = success = FlagOrConstructor("ok", ok_outcome)
    error = failure = FlagOrConstructor("error", error_outcome)
    is_ok = property(lambda self: self.status == "ok")
    is_error = property(lambda self: self.status != "ok")

    @property
    def value(self):
        if self._called and self._status != "ok" and not self._checked:
            raise CallFailed(self._error_type, f"no value: {self.tool_role}.{self.method_name} failed: {self}; "
                                               "check `.ok` before reading `.value`")
        return self._value

    @value.setter
    def value(self, value):
        self._value = value

    def value_or(self, default=None):
        return self._value if self.is_ok else default

    def to_dict(self):
        self._checked = True
        return {name: getattr(self, name) for name in self.FIELDS}

    def _value_for(self, wanted, error=TypeError):
        if self._status == "ok":
            return self._value
        problem = error(f"no {wanted}: the outcome is an error: {self}")
        if self._called:
            problem.failed_call = self._error_type
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
        return self.is_ok and item in self._value

    def __bool__(self):
        return self.is_ok

    def __eq__(self, other):
        if isinstance(other, Outcome):
            return self.to_dict() == other.to_dict()
        return self.is_ok and self._value == other

    def __str__(self):
        return str(self._value) if self._status == "ok" else f"[{self._error_type}] {self._error_message}"

    def __repr__(self):
        return f"Outcome.ok({self._value!r})" if self._status == "ok" else f"<Outcome error {self}>"
