class Handle:
    """What an Agent object stands for; kept apart so that every other name dispatches."""

    __slots__ = ("execution", "agent_id", "role")

    def __init__(self, execution, answer):
        self.execution, self.agent_id, self.role = execution, answer["agent"], answer["role"]

    def call(self, method_name, args, kwargs):
        answer = self.execution.ask("call", agent=self.agent_id, method_name=method_name,
                                    args=args, kwargs=kwargs)
        return new_outcome(**answer["outcome"], called=True)


class Agent:
    """Another agent. Any method name is a call the host answers with an Outcome."""

    __slots__ = ("_recurgent_",)

    def __new__(cls, role, **options):
        return Execution.current.delegate(role, detached=True, **options)

    @staticmethod
    def for_(role, **options):
        return Agent(role, **options)

    def tool(self, name):
        return self._recurgent_.execution.tool(name)

    def delegate(self, role, **options):
        return self._recurgent_.execution.delegate(role, **options)

    def remember(self, **entries):
        handle = self._recurgent_
        handle.execution.ask("remember", agent=handle.agent_id, entries=entries)
        return self

    def runtime_context(self):
        handle = self._recurgent_
        return handle.execution.ask("runtime_context", agent=handle.agent_id)["value"]

    def __getattr__(self, name):
        if name.startswith("__"):  # copy, pickle and friends probe these: they are not calls
            raise AttributeError(name)
        return Member(self._recurgent_, name)

    def __setattr__(self, name, value):
        if callable(value) or isinstance(value, Agent):
            self._recurgent_.execution.ask("attach", name=name)
        outcome = self._recurgent_.call(name + "=", [value], {})
        if outcome.is_error:
            raise AskError(outcome.error_type, outcome.error_message)

    def __repr__(self):
        return f"<Agent {self._recurgent_.role}>"


setattr(Agent, "for", Agent.for_)


class Member:
    """`agent.name`: calling it is the call. It is not a value, and raises if it is used as one."""

    __slots__ = ("_handle_", "_name_")

    def __init__(self, handle, name):
        self._handle_, self._name_ = handle, name

    def __call__(self, *args, **kwargs):
        return self._handle_.call(self._name_, args, kwargs)

    def __repr__(self):
        return f"{self._handle_.role}.{self._name_} is not a value: write .{self._name_}() to read or call it"

    def __getattr__(self, _):
        raise AttributeError(repr(self))

    def _misused_(self, *_):
        raise TypeError(repr(self))


for operation in ("str format bool int float index len iter contains getitem setitem eq ne lt le gt ge neg "
                  "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod").split():
    setattr(Member, f"__{operation}__", Member._misused_)
