"""Guest side of the worker protocol (specs/worker-protocol.md), for Python 3.9 and later.

One process starts here as the *zygote*: it activates its environment, if it is given one, answers
`fork` and `reap` on descriptor 0 and never touches guest code. Each fork becomes a *worker*, which
serves `execute` frames on its own channel:

    Zygote --fork--> Worker --per execute--> Execution
                       |- Channel    frames and asks, one at a time
                       |- Context    the agent's context, tracking the keys a program touches
                       `- Programs   compiled programs by digest

A program may patch, close or replace anything it can reach. What every `done` needs is therefore
bound once, below, before any program runs.
"""
import ast
import builtins
import ctypes
import enum
import errno
import gc
import io
import json
import linecache
import math
import os
import re
import socket
import sys
import types
# Not `signal` and `threading`: what these do in each fork writes to memory that is shared until then.
import _signal as signal
import _thread
from collections import OrderedDict
from itertools import islice

IPC_VERSION = 1
FILE = "program.py"
MAX_DEPTH = 100
MAX_MESSAGE = 2000
MAX_PATH = 300
MAX_EXPLANATION = 900
KEPT_PROGRAMS = 256
REHEARSALS = 12
DEFAULT_FRAME_BYTES = 32 << 20
PR_SET_PDEATHSIG = 1
OUT_OF_MEMORY = 112

dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
load = json.JSONDecoder().decode
getpid, leave, dup2, set_timer = os.getpid, os._exit, os.dup2, signal.setitimer
REAL_TIMER = signal.ITIMER_REAL


# --- the JSON boundary ------------------------------------------------------------------------

class NotSerializable(TypeError):
    """A value that cannot cross. Steps of the path are added innermost first, while unwinding."""

    def __init__(self, reason):
        super().__init__(reason)
        self.root, self.steps = "$", []

    def within(self, step):
        self.steps.append(step)
        return self

    @property
    def path(self):
        return (self.root + "".join(map(path_step, reversed(self.steps))))[:MAX_PATH]


def path_step(step):
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f"[{dump(step)}]"


def encode(value, root="$"):
    """`value` as JSON bytes; NotSerializable names the place that cannot cross, below `root`."""
    try:
        if is_plain(value, 0):
            return dump(value).encode()
    except (ValueError, RecursionError):
        pass  # not finite, not UTF-8, too deep: the walk below says where
    recursion_limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(recursion_limit + 4 * MAX_DEPTH)
        return dump(to_plain(value, {})).encode()
    except NotSerializable as problem:
        problem.root = root
        raise
    finally:
        sys.setrecursionlimit(recursion_limit)


SCALARS = frozenset((str, int, float, bool, type(None)))
TEXT = frozenset((str,))


def is_plain(value, depth):
    """Whether json takes `value` exactly as the protocol does (it would coerce other keys)."""
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind is dict:
        if not TEXT.issuperset(map(type, value)):
            return False
        value = value.values()
    elif kind is not list and kind is not tuple:
        return False
    if depth >= MAX_DEPTH:
        return False
    if not SCALARS.issuperset(map(type, value)):
        for item in value:
            if not is_plain(item, depth + 1):
                return False
    return True


def to_plain(value, ancestors):
    """A copy of `value` made of plain JSON types. `ancestors`: ids of the containers around it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return to_plain(value.value, ancestors)
    if isinstance(value, Flag):
        return bool(value)
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise NotSerializable(f"{value!r} is not a JSON number; use a finite one or None")
    if isinstance(value, (dict, list, tuple)):
        return plain_container(value, ancestors)
    if isinstance(value, Outcome):
        return to_plain(value.value if value.is_ok else value.to_dict(), ancestors)
    return plain_text(text_form(value))


def plain_container(value, ancestors):
    if id(value) in ancestors:
        raise NotSerializable("contains itself")
    if len(ancestors) >= MAX_DEPTH:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels")
    ancestors[id(value)] = True
    copy = plain_object(value, ancestors) if isinstance(value, dict) else plain_array(value, ancestors)
    del ancestors[id(value)]
    return copy


def plain_object(value, ancestors):
    copy = {}
    for key, item in value.items():
        name = plain_key(key)
        if name in copy:
            raise NotSerializable(f"two keys become {name!r}")
        try:
            copy[name] = to_plain(item, ancestors)
        except NotSerializable as problem:
            raise problem.within(name)
    return copy


def plain_array(value, ancestors):
    copy = []
    for index, item in enumerate(value):
        try:
            copy.append(to_plain(item, ancestors))
        except NotSerializable as problem:
            raise problem.within(index)
    return copy


def plain_key(key):
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, int) and not isinstance(key, bool):
        return int.__repr__(key)
    if isinstance(key, str):
        return plain_text(key)
    raise NotSerializable(f"key {key!r} is neither text nor an integer")


def plain_text(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotSerializable("text is not valid UTF-8") from None
    return text


# By name, so that the zygote need not import what most programs never use.
TEXT_FORMS = {
    ("datetime", "datetime"): "isoformat",
    ("datetime", "date"): "isoformat",
    ("datetime", "time"): "isoformat",
    ("decimal", "Decimal"): "__str__",
    ("fractions", "Fraction"): "__str__",
    ("uuid", "UUID"): "__str__",
}


def text_form(value):
    if isinstance(value, os.PathLike) and isinstance(value.__fspath__(), str):
        return value.__fspath__()
    for kind in type(value).__mro__:
        form = TEXT_FORMS.get((kind.__module__, kind.__qualname__))
        if form:
            return getattr(value, form)()
    if isinstance(value, Member):
        raise NotSerializable(repr(value))
    raise NotSerializable(f"{class_name(type(value))} is not a JSON value; {advice(value)}")


def advice(value):
    kind = type(value)
    if isinstance(value, (bytes, bytearray)):
        return "use text: decode it"
    if isinstance(value, Agent):
        return "call one of its methods"
    if hasattr(kind, "__iter__"):
        return "use a dict" if hasattr(kind, "keys") else "use a list"
    return "call it" if callable(value) else "use a dict, a list, text or a number"


# --- outcomes ---------------------------------------------------------------------------------

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
        raise error(f"no {wanted}: the outcome is an error: {self}")

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


# --- the channel ------------------------------------------------------------------------------

class AskError(Exception):
    """The host refused an ask."""

    def __init__(self, error_type, message):
        super().__init__(message)
        self.error_type = error_type


class ToolRegistryViolation(AskError):
    pass


class Refusal(Exception):
    """An `execute` frame this worker cannot serve; `kind` tells the host what to send again."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Channel:
    """JSON lines on the attempt's socket. Frames from several threads never interleave."""

    def __init__(self, fd):
        self.pid = getpid()
        self.lock = _thread.allocate_lock()
        self.frame_bytes = DEFAULT_FRAME_BYTES
        self._readline = io.open(fd, "rb", buffering=1 << 16, closefd=False).readline
        # Buffered: what a signal handler's exception leaves unsent goes out with the next flush.
        writer = io.open(fd, "wb", buffering=1 << 16, closefd=False)
        self._write, self._flush = writer.write, writer.flush
        self._asks = 0

    def receive_execute(self):
        while True:
            size, frame = self._receive()
            if frame["op"] == "execute":  # anything else answers an ask its program gave up on
                self.frame_bytes = frame["limits"]["frame_bytes"]
                return size, frame

    def exchange(self, kind, fields):
        self._asks += 1
        ask_id = self._asks
        ask = b'{"op":"ask","ask_id":%d,"kind":"%s"%s}' % (ask_id, kind.encode(), fields)
        if len(ask) >= self.frame_bytes:
            raise AskError("resource_limit", f"the ask is over {self.frame_bytes} bytes")
        self.send(ask)
        while True:
            size, frame = self._receive()
            if frame.get("ask_id") == ask_id:
                break
        if size > self.frame_bytes:
            raise AskError("resource_limit", f"the answer is over {self.frame_bytes} bytes")
        return frame

    def send(self, frame):
        self._write(frame + b"\n")
        self._flush()

    def _receive(self):
        line = self._readline()
        if not line.endswith(b"\n"):
            leave(0)  # the host is done with this worker
        return len(line), load(line.decode())


# --- the context ------------------------------------------------------------------------------

# Keys answered by the host on first use in an execution; read-only, never part of the delta.
LAZY = {"tools": ("tools", {}), "conversation_history": ("history", {"limit": 100})}
HISTORY = "conversation_history"


class ContextState:
    """What a Context must know besides its values, out of reach of key and attribute access."""

    def __init__(self):
        self.version = None
        self.agreed = {}      # key -> JSON text at `version`, for keys touched since the host set them
        self.touched = set()  # keys whose value this execution read or wrote
        self.stale = set()    # keys that may differ from `version` since the last execution
        self.lazy = {}        # values of LAZY keys asked for in this execution


class Context(dict):
    """The agent's context. A value handed out may be changed in place, so reading a key touches it;
    `delta` re-encodes only touched keys. Looking at keys alone touches nothing."""

    __slots__ = ("_recurgent_",)

    def __init__(self):
        object.__setattr__(self, "_recurgent_", ContextState())

    # What a program sees.

    def __getitem__(self, key):
        if key in LAZY:
            return self._ask(key)
        self._touch(key)
        return dict.__getitem__(self, context_key(key))

    def __setitem__(self, key, value):
        self._writable(key)
        self._touch(key)
        dict.__setitem__(self, context_key(key), value)

    def __delitem__(self, key):
        self._writable(key)
        self._touch(key)
        dict.__delitem__(self, context_key(key))

    def __contains__(self, key):
        return key in LAZY or dict.__contains__(self, context_key(key))

    def __getattr__(self, name):
        if name in self:
            return self[name]
        if name in ("context", "memory"):  # `self.context`, in a function that takes `self`
            return self
        raise AttributeError(f"the context has no {name!r}")

    def __setattr__(self, name, value):
        self[name] = value

    def __delattr__(self, name):
        if name not in self:
            raise AttributeError(f"the context has no {name!r}")
        del self[name]

    def __iter__(self):  # overridden so that dict(context) and **context read through __getitem__
        return dict.__iter__(self)

    def __or__(self, other):
        return self.copy() | dict(other)

    def __ror__(self, other):
        return dict(other) | self.copy()

    def __ior__(self, other):
        self.update(other)
        return self

    def __reduce_ex__(self, protocol):  # copy.copy, copy.deepcopy, pickle: a plain dict
        return dict, (self.copy(),)

    def get(self, key, default=None):
        return self[key] if key in self else default

    def setdefault(self, key, default=None):
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key, *default):
        if key not in self and default:
            return default[0]
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        self._touch_all()
        return dict.popitem(self)

    def update(self, *others, **entries):
        for key, value in dict(*others, **entries).items():
            self[key] = value

    def clear(self):
        self._touch_all()
        dict.clear(self)

    def copy(self):
        self._touch_all()
        return dict(dict.items(self))

    def items(self):
        self._touch_all()
        return dict.items(self)

    def values(self):
        self._touch_all()
        return dict.values(self)

    # What the worker does with it.

    def _advance(self, change):
        """Go from the version agreed last to the one the host names."""
        state = self._recurgent_
        if change["base"] is None:
            dict.clear(self)
            state.agreed.clear()
        elif change["base"] != state.version:
            raise Refusal("UnknownBase", f"this worker holds version {state.version}")
        else:
            self._restore(state.stale.difference(change["set"], change["unset"]))
        for key in change["unset"]:
            dict.pop(self, key, None)
            state.agreed.pop(key, None)
        for key, value in change["set"].items():
            dict.__setitem__(self, key, value)
            state.agreed.pop(key, None)
        state.version = change["version"]
        state.touched, state.lazy = set(), {}
        state.stale = state.touched  # every touched key is suspect until `_delta` says which changed

    def _restore(self, keys):
        for key in keys:
            if key in self._recurgent_.agreed:
                dict.__setitem__(self, key, load(self._recurgent_.agreed[key].decode()))
            else:
                dict.pop(self, key, None)

    def _delta(self):
        """The `context` of a `done`: touched keys whose text differs from the agreed one."""
        state, changed, removed = self._recurgent_, {}, []
        for key in tuple(state.touched):
            if dict.__contains__(self, key):
                text = encode(dict.__getitem__(self, key), "$context" + path_step(key))
                if text != state.agreed.get(key):
                    changed[key] = text
            elif key in state.agreed:
                removed.append(key)
        state.stale = {*changed, *removed}
        entries = b",".join(b"%s:%s" % (encode(key), text) for key, text in changed.items())
        return b'{"set":{%s},"unset":%s}' % (entries, encode(removed))

    def _touch(self, key):
        key, state = context_key(key), self._recurgent_
        if key not in state.touched:
            if key not in state.agreed and dict.__contains__(self, key):
                state.agreed[key] = dump(dict.__getitem__(self, key)).encode()
            state.touched.add(key)

    def _touch_all(self):
        for key in dict.__iter__(self):
            self._touch(key)

    def _writable(self, key):
        if key in LAZY:
            raise TypeError(f"context[{key!r}] is read-only")
        if not isinstance(context_key(key), str):
            raise TypeError(f"a context key is text, not {key!r}")

    def _ask(self, key):
        lazy = self._recurgent_.lazy
        if key not in lazy:
            kind, fields = LAZY[key]
            value = Execution.current.ask(kind, **fields)["value"]
            lazy[key] = History(value) if key == HISTORY else ReadOnlyDict(value)
        return lazy[key]


def context_key(key):
    return str(key) if type(key) is int else key


def read_only(kind, changing):
    """`kind` without the methods that change it. Copies of it are plain."""
    def refuse(self, *_, **__):
        raise TypeError("context.tools and context.conversation_history are read-only: change a copy")
    return type(f"ReadOnly{kind.__name__.title()}", (kind,), {
        "__slots__": (), "__reduce_ex__": lambda self, _: (kind, (kind(self),)),
        **dict.fromkeys(changing.split(), refuse)})


ReadOnlyDict = read_only(dict, "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update")
ReadOnlyList = read_only(list, "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert"
                               " pop remove reverse sort")


class History(ReadOnlyList):
    """A page of history records, oldest first. The context hands out the latest."""

    __slots__ = ()

    def before(self, call=None):
        """The page before a call, given as its record or id; without one, the page before this one."""
        if call is None:
            if not self:
                return self
            call = self[0]
        call_id = call["call_id"] if isinstance(call, dict) else str(call)
        kind, fields = LAZY[HISTORY]
        return History(Execution.current.ask(kind, **fields, before=call_id)["value"])


# --- agents and what else a program sees ------------------------------------------------------

class Handle:
    """What an Agent object stands for; kept apart so that every other name dispatches."""

    __slots__ = ("execution", "agent_id", "role")

    def __init__(self, execution, answer):
        self.execution, self.agent_id, self.role = execution, answer["agent"], answer["role"]

    def call(self, method_name, args, kwargs):
        answer = self.execution.ask("call", agent=self.agent_id, method_name=method_name,
                                    args=args, kwargs=kwargs)
        return new_outcome(**answer["outcome"])


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
    """`agent.name`: calling it is the call. It is no value, and says so when it is taken for one."""

    __slots__ = ("_handle_", "_name_")

    def __init__(self, handle, name):
        self._handle_, self._name_ = handle, name

    def __call__(self, *args, **kwargs):
        return self._handle_.call(self._name_, args, kwargs)

    def __repr__(self):
        return f"{self._handle_.role}.{self._name_} is no value: write .{self._name_}() to read or call it"

    def __getattr__(self, _):
        raise AttributeError(repr(self))

    def _misused_(self, *_):
        raise TypeError(repr(self))


for operation in ("str format bool int float index len iter contains getitem setitem eq ne lt le gt ge neg "
                  "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod").split():
    setattr(Member, f"__{operation}__", Member._misused_)


class Execution:
    """One `execute`: who is called, and what the program may ask for while it runs."""

    current = None

    def __init__(self, channel, context, frame):
        self.channel, self.context = channel, context
        self.role, self.method_name = frame["role"], frame["method_name"]
        self.args, self.kwargs = frame["args"], frame["kwargs"]
        self.open = True
        self.location = None  # of a failure that passed through no line of the program
        Execution.current = self

    def ask(self, kind, **fields):
        text = b"".join(b',"%s":%s' % (name.encode(), encode(value, "$" + name))
                        for name, value in fields.items())
        if getpid() != self.channel.pid:  # before the lock: a forked copy of it may never open
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

    def remember(self, **entries):
        self.context.update(entries)
        return self.context

    def runtime_context(self):
        return self.context

    def surface(self):
        """The names a program starts with."""
        return {
            "context": self.context, "memory": self.context, "args": self.args,
            "kwargs": self.kwargs, "result": None, "tool": self.tool, "delegate": self.delegate,
            "remember": self.remember, "content": self.content,
            "runtime_context": self.runtime_context, "Outcome": Outcome, "Agent": Agent,
            "AskError": AskError, "ToolRegistryViolation": ToolRegistryViolation,
        }

    def _agent(self, answer):
        agent = object.__new__(Agent)
        object.__setattr__(agent, "_recurgent_", Handle(self, answer))
        return agent


def ask_error(error):
    kind = ToolRegistryViolation if error["error_type"] == "tool_registry_violation" else AskError
    return kind(error["error_type"], error["error_message"])


# --- programs ---------------------------------------------------------------------------------

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
TAIL = "__recurgent_tail__"


class InvalidCode(Exception):
    def __init__(self, problem):
        super().__init__(getattr(problem, "msg", None) or str(problem))
        self.problem = problem


class Program:
    """A compiled program: `body` is run, then `value`, if any, is evaluated for the result."""

    def __init__(self, source):
        try:
            tree = ast.parse(source, FILE)
            # Most programs without a word of these have no use for a walk through their tree.
            self.functions = functions_of(tree.body) if "def" in source else None
            value = split_value(tree, "return" in source)
            # An unchanged tree need not be read back: its text is cheaper.
            self.body = compile(tree if value else source, FILE, "exec")
            self.value = value and compile(value, FILE, "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            raise InvalidCode(problem) from None
        self.lines = source.splitlines(keepends=True)

    def run(self, execution):
        linecache.cache[FILE] = (len(self.lines), None, self.lines, FILE)
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        names = module.__dict__
        names.update(execution.surface())
        exec(self.body, names)
        value = eval(self.value, names) if self.value else None
        if names.get("result") is not None:
            value = names["result"]
        if value is None:
            value = self.call_function(names, execution)
        if isinstance(value, types.CoroutineType):
            import asyncio
            value = asyncio.run(value)
        return value

    def call_function(self, names, execution):
        """The function form: the program defines the method and leaves calling it to us."""
        defined, called, only = self.functions or functions_of(ast.parse("".join(self.lines), FILE).body)
        name = function_name(execution.method_name)
        if name not in defined and only:
            name = only
        function = names.get(name)
        if name not in defined or name in called or not callable(function):
            return None
        args = list(execution.args)
        if wants_context(function, execution):
            args.insert(0, execution.context)
        try:
            return function(*args, **execution.kwargs)
        except TypeError:  # these arguments do not fit, if it says nothing more precise
            code = code_of(function)
            if code and code.co_filename == FILE:
                execution.location = {"line": code.co_firstlineno, "column": None}
            raise


def split_value(tree, may_return):
    """Take what gives the program's value off the tree, as an expression of its own: the last
    expression, or, when the program returns at top level, a call of the function its tail becomes."""
    for index, statement in enumerate(tree.body if may_return else ()):
        if any(isinstance(node, ast.Return) for node in same_scope([statement])):
            tree.body[index:] = [tail_function(tree.body[index:])]
            return ast.parse(TAIL + "()", mode="eval")
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        return ast.Expression(tree.body.pop().value)
    return None


def tail_function(statements):
    """A function with `statements` as its body, in which top-level names stay global."""
    names = sorted({name for node in same_scope(statements) for name in bound_names(node)})
    statements = [WithoutAnnotations().visit(statement) for statement in statements]
    if isinstance(statements[-1], ast.Expr):
        last = statements[-1]
        statements[-1] = ast.copy_location(ast.Return(last.value), last)
    function = ast.parse(f"def {TAIL}(): pass").body[0]
    function.body = ([ast.Global(names)] if names else []) + statements
    return ast.fix_missing_locations(ast.copy_location(function, statements[0]))


class WithoutAnnotations(ast.NodeTransformer):
    """`x: int = 1` to `x = 1`: a name declared global may not be annotated."""

    def visit_AnnAssign(self, node):
        if not node.simple:
            return node
        plain = ast.Assign([node.target], node.value) if node.value else ast.Pass()
        return ast.copy_location(plain, node)

    def visit(self, node):
        return node if isinstance(node, SCOPES) else super().visit(node)


def same_scope(statements):
    """Every node of `statements` that is not inside a function or class they define."""
    pending = list(statements)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, SCOPES):
            pending.extend(ast.iter_child_nodes(node))


def bound_names(node):
    if isinstance(node, ast.Name):
        return () if isinstance(node.ctx, ast.Load) else (node.id,)
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0],)
    names = (getattr(node, "name", None), getattr(node, "rest", None))  # def, class, except, match
    return tuple(name for name in names if isinstance(name, str))


def functions_of(statements):
    """Names the program gives a meaning, those it calls itself, and the only function, if that is all there is."""
    return assigned_names(statements), called_names(statements), only_function(statements)


def assigned_names(statements):
    """Names bound by def or assignment: imported ones are not the program's own."""
    return {name for node in same_scope(statements)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Name))
            for name in bound_names(node)}


def called_names(statements):
    """Functions the top level calls by itself, `if __name__ == "__main__"` demonstrations aside."""
    return {node.func.id for node in same_scope(s for s in statements if not is_main_guard(s))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def only_function(statements):
    """The name of the only function of a program that does nothing but define it, whatever it is called."""
    functions = [s.name for s in statements if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return functions[0] if len(functions) == 1 and all(map(is_preparation, statements)) else None


def is_preparation(statement):
    """Whether it gives no result of its own."""
    if isinstance(statement, ast.Assign):
        return "result" not in bound_names(statement.targets[0])
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    return is_main_guard(statement) or isinstance(
        statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef))


def is_main_guard(statement):
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))


def function_name(method_name):
    if method_name.isidentifier():
        return method_name
    return re.sub(r"\W", "_", method_name.rstrip("?!"))


def wants_context(function, execution):
    """Whether its first parameter is the context, and the call's own arguments leave it free."""
    code = code_of(function)
    if code is None or code.co_argcount == 0:
        return False
    first, varargs = code.co_varnames[0], code.co_flags & 0x04
    return (first in ("self", "ctx", "context") and first not in execution.kwargs
            and (varargs or len(execution.args) < code.co_argcount))


def code_of(function):
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return getattr(function, "__code__", None)


class Programs:
    """The programs used last, by digest."""

    def __init__(self):
        self.kept = OrderedDict()

    def check(self, frame):
        if "code" not in frame and frame["code_digest"] not in self.kept:
            raise Refusal("UnknownDigest", f"this worker does not hold {frame['code_digest']}")

    def find(self, frame):
        digest = frame["code_digest"]
        program = self.kept.get(digest)
        if program is None:
            program = self.kept[digest] = Program(frame["code"])
            if len(self.kept) > KEPT_PROGRAMS:
                self.kept.popitem(last=False)
        self.kept.move_to_end(digest)
        return program


# --- the end of an execution ------------------------------------------------------------------

def success(value, context):
    """The `done` frame of a program that gave `value`."""
    if isinstance(value, Outcome):
        fields = value.to_dict()
        result = encode(fields.pop("value"))
        outcome = b'{"value":%s,%s' % (result, encode(fields)[1:])
        return b'{"op":"done","status":"outcome","outcome":%s,"context":%s}' % (outcome, context._delta())
    return b'{"op":"done","status":"ok","value":%s,"context":%s}' % (encode(value), context._delta())


def failure(problem):
    """The `done` frame of a program that ended in the exception `problem`."""
    fields = {"op": "done", "status": "error", "error_type": "execution",
              "error_class": class_name(type(problem)), "error_message": message_of(problem),
              "location": location_of(problem)}
    if Network.is_off and Network.is_missed(problem):
        fields["error_message"] += Network.ADVICE
    fields.update(special_fields(problem))
    return dump(fields).encode()


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


def special_fields(problem):
    """What sets this kind of failure apart from a plain `execution` error."""
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
    limit = limit_met(problem)
    if limit:
        return {"error_type": "resource_limit", "limit": limit,
                "error_message": f"{message_of(problem)}; the program's limit on {limit} is reached"}
    if isinstance(problem, Refusal):
        return {"error_type": "protocol", "error_class": problem.kind}
    if isinstance(problem, AskError):
        return {"ask_error_type": valid_text(str(problem.error_type))}
    return {}


LIMITS = {errno.EMFILE: "files", errno.ENFILE: "files", errno.ENOMEM: "memory", errno.ENOSPC: "scratch",
          errno.EDQUOT: "scratch", errno.EFBIG: "file_size"}


def limit_met(problem):
    """The sandbox's limit an exception tells of, if it does."""
    if isinstance(problem, RuntimeError) and "can't start new thread" in str(problem):
        return "processes"
    if not isinstance(problem, OSError):
        return None
    if problem.errno == errno.EAGAIN and forks(problem.__traceback__):
        return "processes"
    return LIMITS.get(problem.errno)


def forks(trace):
    """Whether an exception came out of making a process; sockets that would block raise the same."""
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
    """The innermost place in the program the exception passed through."""
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


# --- the worker -------------------------------------------------------------------------------

class Output:
    """stdout and stderr, put back however a program left them."""

    def __init__(self):
        self.spare = {1: os.dup(1), 2: os.dup(2)}
        self.streams = {"stdout": sys.stdout, "stderr": sys.stderr}

    def take(self, stdout, stderr):
        for number, fd in ((1, stdout), (2, stderr)):
            dup2(fd, number)
            dup2(fd, self.spare[number], inheritable=False)

    def settle(self):
        for number, (name, stream) in enumerate(self.streams.items(), start=1):
            flush(getattr(sys, name, None))
            dup2(self.spare[number], number)
            if stream.closed:
                stream = io.open(number, "w", encoding="utf-8", errors="backslashreplace")
                self.streams[name] = stream
            setattr(sys, name, stream)
            flush(stream)


def flush(stream):
    try:
        stream.flush()
    except BaseException:  # closed, replaced or broken by the program: its output is its own affair
        pass


class Worker:
    """Made once, in the zygote, on a channel that leads nowhere; each fork is given its own."""

    def __init__(self, fd):
        self.fd, self.channel, self.context = fd, Channel(fd), Context()
        self.programs, self.output = Programs(), Output()

    def take(self, channel, stdout, stderr):
        self.channel.pid = getpid()
        dup2(channel, self.fd, inheritable=False)
        self.output.take(stdout, stderr)

    def serve(self):
        while True:
            self.serve_one()

    def serve_one(self):
        size, frame = self.channel.receive_execute()
        execution = Execution(self.channel, self.context, frame)
        limit = self.channel.frame_bytes
        done = oversized(limit) if size > limit else self.run(frame, execution)
        set_timer(REAL_TIMER, 0)  # an alarm left armed must not interrupt the next frame
        self.output.settle()
        if getpid() != self.channel.pid:
            leave(0)  # a process the program forked: it has no say in the result
        execution.finish(done if len(done) < limit else oversized(limit))

    def run(self, frame, execution):
        try:
            if frame["ipc_version"] != IPC_VERSION:
                raise Refusal("UnknownIpcVersion", f"this worker speaks version {IPC_VERSION}")
            self.programs.check(frame)  # refused frames leave the context's version as it is
            self.context._advance(frame["context"])
            value = self.programs.find(frame).run(execution)
            return success(value, self.context)
        except BaseException as problem:
            return failure(problem)


def rehearse():
    """A worker that has served programs of our own. What warms up with use, such as inline caches, is then
    written before the fork and stays shared, and not once by every worker."""
    host, own = socket.socketpair()
    worker = Worker(own.fileno())
    for version in range(REHEARSALS):
        host.sendall(encode({
            "op": "execute", "ipc_version": IPC_VERSION, "role": "zygote", "method_name": "rehearse",
            "code_digest": str(version), "code": "result = args[0] + 1", "args": [version], "kwargs": {},
            "context": {"version": version, "base": version - 1 if version else None, "set": {}, "unset": []},
            "limits": {"frame_bytes": DEFAULT_FRAME_BYTES}}) + b"\n")
        worker.serve_one()
        host.recv(1 << 12)
    host.close()
    Execution.current = None
    sys.modules["__main__"] = harness_module
    del linecache.cache[FILE]
    worker.context, worker.programs = Context(), Programs()
    own.detach()
    return worker


# --- the environment --------------------------------------------------------------------------

class Inactive(Exception):
    """A declared package that is installed but does not load."""

    def __init__(self, package, problem):
        super().__init__(f"{package}: {class_name(type(problem))}: {message_of(problem)}")
        self.package = package


def activate(library, *packages):
    """Makes the packages in `library` importable, and proves it: each of `packages` is a name, `=`
    and the modules of which one must load, best first."""
    import importlib
    import site
    site.addsitedir(library)
    importlib.invalidate_caches()
    sys.prefix = sys.exec_prefix = os.path.dirname(os.path.dirname(os.path.dirname(library)))
    for package in packages:
        name, _, modules = package.partition("=")
        problem = None
        for module in filter(None, modules.split(",")):
            try:
                importlib.import_module(module)
                break
            except BaseException as trouble:  # a module may even exit
                problem = problem or trouble
        else:
            if problem:
                raise Inactive(name, problem)


# --- the zygote -------------------------------------------------------------------------------

class Zygote:
    """Forks workers on the host's request and reaps them; single-threaded, free of guest code."""

    def __init__(self):
        self.control = socket.socket(fileno=0)
        self.pid, self.workers = getpid(), set()
        self.prctl = ctypes.CDLL(None).prctl
        seals = load(os.environ.pop("RECURGENT_SEAL", "{}"))
        Network.is_off = seals.get("network") is False
        Seal(seals.get("zygote", ())).apply()
        self.seal = Seal(seals.get("worker", ()))

    def serve(self):
        self.send(op="ready", ipc_version=IPC_VERSION, guest="python", pid=self.pid,
                  version=".".join(map(str, sys.version_info[:3])))
        while True:
            packet, fds, _, _ = socket.recv_fds(self.control, 4096, 6)
            if not packet:
                return
            try:
                self.answer(load(packet.decode()), fds)
            except (OSError, KeyError, TypeError, ValueError) as problem:
                self.send(op="failed", message=f"{type(problem).__name__}: {problem}")
            finally:
                for fd in fds:
                    os.close(fd)

    def answer(self, message, fds):
        if message["op"] == "fork":
            self.fork(message.get("scratch"), message.get("doors", 0), *fds)
        elif message["op"] == "reap":
            self.send(op="reaped", pid=message["pid"], **self.reap(message["pid"]))
        else:
            raise ValueError(f"unknown op {message['op']!r}")

    def fork(self, scratch, doors, channel, stdout, stderr, *handed):
        started, starting = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(started)
            try:
                enter_groups(handed[:doors])
                self.become_worker(scratch, channel, stdout, stderr, starting, *handed[doors:])
            except OSError as problem:
                os.write(starting, str(problem).encode())
            except MemoryError:
                leave(OUT_OF_MEMORY)  # not even enough is left to say so
            finally:
                leave(1)
        self.workers.add(pid)
        os.close(starting)
        said = os.read(started, MAX_EXPLANATION)
        os.close(started)
        if said != b"+":
            raise OSError(f"the worker ended before it started: {said.decode()} {self.reap(pid)}")

    def become_worker(self, scratch, channel, stdout, stderr, starting, *ruleset):
        """In the child. Never returns, so nothing of the zygote runs here again."""
        os.setsid()
        if scratch:
            os.environ["HOME"] = os.environ["TMPDIR"] = scratch
            os.chdir(scratch)
        self.seal.apply(*ruleset)
        self.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self.pid:
            leave(1)  # the zygote died before the signal was armed
        reset_signals()
        # Said by the worker itself: the host takes its process number from the kernel.
        self.control.send(b'{"op":"forked","pid":%d}' % getpid())
        devnull = os.open(os.devnull, os.O_RDONLY)
        dup2(devnull, 0)
        self.worker.take(channel, stdout, stderr)
        os.write(starting, b"+")
        for fd in (devnull, channel, stdout, stderr, starting, *ruleset):
            os.close(fd)
        self.worker.serve()

    def reap(self, pid):
        if pid not in self.workers:
            raise KeyError(f"no worker {pid}")
        kill_group(pid)  # so that waiting cannot block, and nothing the worker started outlives it
        _, status = os.waitpid(pid, 0)
        self.workers.discard(pid)
        wait_for_group(pid)
        if os.WIFSIGNALED(status):
            return {"signal": os.WTERMSIG(status), "exit": None}
        return {"signal": None, "exit": os.WEXITSTATUS(status)}

    def send(self, **message):
        self.control.send(encode(message))


def enter_groups(doors):
    for door in doors:
        try:
            os.write(door, b"0")
        except OSError:
            pass  # the host takes in who is not there
        os.close(door)


def kill_group(pid):
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def wait_for_group(leader):
    """Waits for what a worker started: it became the zygote's when the worker ended."""
    try:
        while True:
            os.waitpid(-leader, 0)
    except ChildProcessError:
        pass


class Seal:
    """What the host has a worker do to itself: a list of system calls (specs/worker-protocol.md)."""

    OPEN = {"x86_64": 257}.get(os.uname().machine, 56)

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
            if number == self.OPEN:
                known["opened"] = ctypes.c_long(result)


def reset_signals():
    """Signals end a worker as the kernel has it, except SIGPIPE: a write then raises instead."""
    for name in ("HUP", "INT", "QUIT", "TERM", "ALRM", "USR1", "USR2"):
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def main():
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # integers of any size cross
    builtins.exit = builtins.quit = sys.exit  # `-S` leaves them out; programs expect them
    environment, sys.argv = sys.argv[1:], [FILE]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the host decides when a zygote ends
    zygote = Zygote()
    try:
        if environment:
            activate(*environment)
    except Inactive as problem:
        zygote.send(op="failed", package=problem.package, message=str(problem)[:MAX_EXPLANATION])
        leave(1)
    zygote.worker = rehearse()
    gc.freeze()  # not collected: holes in the heap would be filled by each worker anew
    zygote.serve()
    for pid in tuple(zygote.workers):
        zygote.reap(pid)
    leave(0)


harness_module = sys.modules["__main__"]  # outlives the programs that take its place
main()
