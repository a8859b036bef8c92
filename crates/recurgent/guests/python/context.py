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


def missing(name, context):
    """What is wrong when a key is read that the context does not have; the same text in every guest."""
    keys = sorted(map(str, dict.keys(context)))
    held = "it is empty" if not keys else "it has " + ", ".join(keys[:MAX_NAMED_KEYS])
    return f'the context has no key "{name}"; {held}'


class MissingKey(KeyError):
    """A `KeyError` that says which keys there are."""

    __module__, __qualname__ = "builtins", "KeyError"

    def __init__(self, name, context):
        super().__init__(name)
        self.message = missing(name, context)

    def __str__(self):
        return self.message


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
        name = context_key(key)
        if not dict.__contains__(self, name):
            raise MissingKey(name, self)
        return dict.__getitem__(self, name)

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
        raise AttributeError(missing(name, self))

    def __setattr__(self, name, value):
        self[name] = value

    def __delattr__(self, name):
        if name not in self:
            raise AttributeError(missing(name, self))
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
            raise TypeError(f"context[{key!r}] is read-only: use another key")
        if not isinstance(context_key(key), str):
            raise TypeError(f"a context key is text, not {key!r}")

    def _ask(self, key):
        lazy = self._recurgent_.lazy
        if key not in lazy:
            kind, fields = LAZY[key]
            value = Execution.current.ask(kind, **fields)["value"]
            lazy[key] = History(value) if key == HISTORY else ToolsView(value)
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


class ToolsView(ReadOnlyDict):
    """The registry by name. Plain data written to a name holds for this call only, which a note says."""

    __slots__ = ()

    def __setitem__(self, name, data):
        print(f"note: context.tools[{name!r}] holds for this call only; a tool is kept by delegate", file=sys.stderr)
        dict.__setitem__(self, name, data)


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
