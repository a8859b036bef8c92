class Execution:
    """One `execute`: the call, and what the program may ask for while it runs."""

    current = None

    def __init__(self, channel, context, frame):
        self.channel, self.context = channel, context
        self.role, self.method_name = frame["role"], frame["method_name"]
        self.args, self.kwargs = frame["args"], frame["kwargs"]
        self.open = True
        self.contacts = Contacts()
        self.location = None  # of a failure whose traceback has no line of the program
        Execution.current = self

    def ask(self, kind, **fields):
        text = b"".join(b',"%s":%s' % (name.encode(), encode(value, "$" + name))
                        for name, value in fields.items())
        if getpid() != self.channel.pid:  # before the lock: a forked copy of a held lock is never released
            raise AskError("protocol", "a forked process cannot ask the host")
        with self.channel.lock:
            if not self.open:
                raise AskError("protocol", "the call this thread belongs to has ended")
            answer = self.channel.exchange(kind, text)
        if "error" in answer:
            raise ask_error(answer["error"])
        return answer

    def finish(self, done):
        """Send `done`. From here on threads the program left behind can ask nothing."""
        with self.channel.lock:
            self.open = False
            self.channel.send(done)

    def tool(self, name):
        return self._agent(self.ask("tool", name=name))

    def delegate(self, role, *, detached=False, **options):
        return self._agent(self.ask("delegate", role=role, options=options, detached=detached))

    def content(self, ref):
        return self.ask("content", ref=ref)["value"]

    def search_tools(self, words):
        return self.ask("search_tools", words=str(words))["value"]

    def infer(self, instruction, data=None, schema=None, *, each=None):
        if not isinstance(instruction, str):
            raise TypeError("infer needs a text that says what is asked, then the data")
        return self.ask("infer", instruction=instruction, data=data, schema=schema,
                        each=None if each is None else list(each))["value"]

    def look(self, value, why=""):
        self.ask("look", value=value, why=str(why))  # the host ends the run

    def remember(self, **entries):
        self.context.update(entries)
        return self.context

    def runtime_context(self):
        return self.context

    def surface(self):
        """The names a program starts with."""
        return {
            "context": self.context, "memory": self.context, "args": self.args,
            "kwargs": self.kwargs, "tool": self.tool, "delegate": self.delegate,
            "remember": self.remember, "content": self.content, "tools": Tools(self),
            "infer": self.infer, "look": self.look,
            "runtime_context": self.runtime_context, "Outcome": Outcome, "Agent": Agent,
            "AskError": AskError, "ToolRegistryViolation": ToolRegistryViolation,
            "CallFailed": CallFailed,
        }

    def _agent(self, answer):
        agent = object.__new__(Agent)
        object.__setattr__(agent, "_recurgent_", Handle(self, answer))
        return agent


class Tools:
    """Tools from outside that this program may use, found by words."""

    __slots__ = ("_execution_",)

    def __init__(self, execution):
        self._execution_ = execution

    def search(self, words):
        return self._execution_.search_tools(words)


def ask_error(error):
    kind = ToolRegistryViolation if error["error_type"] == "tool_registry_violation" else AskError
    return kind(error["error_type"], error["error_message"])
