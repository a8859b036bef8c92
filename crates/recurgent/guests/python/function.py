# How the function of a method is named, and how the arguments of a call reach its parameters. The same in every guest,
# and in the host, which checks new programs before they run (`dialect/head.rs`, `dialect/signature.rs`).

# Names of the program's surface: the function of a method with such a name has a `_` after it.
SURFACE_NAMES = frozenset(("args", "kwargs", "result", "context", "memory", "tool", "delegate", "remember", "content"))
# What `self` offers besides the keys of the context.
SELF_NAMES = frozenset(("get", "setdefault", "update", "pop", "context", "memory", "tools", "conversation_history"))
ASKING_NAMES = frozenset(("tool", "delegate", "remember", "content", "args", "kwargs"))


def function_names(method):
    """The names that the function of a method may have, best first."""
    if method.isidentifier() and not keyword.iskeyword(method) and method not in SURFACE_NAMES:
        return (method,)
    name = identifier(method.rstrip("?!"))
    return (method, name + "_" if name in SURFACE_NAMES else name)


def identifier(text):
    """The text as a name: `a-b` is `a_b`, `2fa` is `_2fa`, `from` is `from_`."""
    name = re.sub(r"\W", "_", text)
    if not name or name[0].isdigit():
        name = "_" + name
    return name + "_" if keyword.iskeyword(name) else name


def bound_keywords(function, placed, kwargs):
    """The keyword arguments of a call by the names of the parameters that take them: `from` reaches `from_`, and
    `from_unit` if nothing else could be meant. `placed` arguments are given by position."""
    code = code_of(function)
    if not kwargs or code is None:
        return kwargs
    placed += isinstance(function, types.MethodType)  # its first parameter has its object already
    count = code.co_argcount
    free = code.co_varnames[max(placed, code.co_posonlyargcount):count + code.co_kwonlyargcount]
    names = {name: identifier(name) if identifier(name) in free else name for name in kwargs if name not in free}
    if not code.co_flags & 0x08:  # `**options` takes every other name as it is
        left = [name for name, parameter in names.items() if parameter not in free]
        unbound = [it for it in free if it not in kwargs and it not in names.values()]
        names.update(akin(left, unbound))
    return {names.get(name, name): value for name, value in kwargs.items()} if names else kwargs


def akin(names, parameters):
    """Pairs of a name and a parameter of which one begins with the other and `_`, if each has only one such partner."""
    def begins(name, parameter):
        name, parameter = name.rstrip("_"), parameter.rstrip("_")
        return parameter.startswith(name + "_") or name.startswith(parameter + "_")
    pairs = [(name, parameter) for name in names for parameter in parameters if begins(name, parameter)]
    firsts, seconds = [name for name, _ in pairs], [parameter for _, parameter in pairs]
    return [(name, parameter) for name, parameter in pairs
            if firsts.count(name) == 1 and seconds.count(parameter) == 1]


def filled_parameter(function, execution):
    """The name of its first parameter, if that is the context and the call's own arguments leave it free."""
    code = code_of(function)
    bound = int(isinstance(function, types.MethodType))  # its first parameter has its object already
    if code is None or code.co_argcount <= bound:
        return None
    first, varargs = code.co_varnames[bound], code.co_flags & 0x04
    if (first in ("self", "ctx", "context") and first not in execution.kwargs
            and (varargs or len(execution.args) + bound < code.co_argcount)):
        return first
    return None


def code_of(function):
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return getattr(function, "__code__", None)


class Self:
    """A leading `self`: its attributes are the keys of the context, whatever a dict's methods are called, and the
    functions of the program are its methods."""

    __slots__ = ("_recurgent_",)

    def __init__(self, context):
        object.__setattr__(self, "_recurgent_", context)

    def __getattr__(self, name):
        context = object.__getattribute__(self, "_recurgent_")
        if name in context and name not in LAZY:
            return context[name]
        if name in SELF_NAMES:
            return getattr(context, name)
        if name in ASKING_NAMES:
            return Execution.current.surface()[name]
        function = vars(sys.modules["__main__"]).get(name)
        if isinstance(function, types.FunctionType):
            return types.MethodType(function, self)
        raise AttributeError(f"{missing(name, context)}; give it a first value: context.setdefault({name!r}, …)")

    def __setattr__(self, name, value):
        self._recurgent_[name] = value

    def __delattr__(self, name):
        if name not in self._recurgent_:
            raise AttributeError(missing(name, self._recurgent_))
        del self._recurgent_[name]

    def __getitem__(self, key):
        return self._recurgent_[key]

    def __setitem__(self, key, value):
        self._recurgent_[key] = value

    def __delitem__(self, key):
        del self._recurgent_[key]

    def __contains__(self, key):
        return key in self._recurgent_

    def __iter__(self):
        return iter(self._recurgent_)

    def __len__(self):
        return len(self._recurgent_)
