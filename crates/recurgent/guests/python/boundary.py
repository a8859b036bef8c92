class NotSerializable(TypeError):
    """A value that cannot be sent. Steps of its path are added innermost first, while unwinding."""

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
    """`value` as JSON bytes; NotSerializable names the place below `root` that cannot be sent."""
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
    converted = converted_form(value)
    if converted is not value:
        return plain_converted(value, converted, ancestors)
    return plain_text(text_form(value))


def plain_container(value, ancestors):
    if id(value) in ancestors:
        raise NotSerializable("contains itself")
    if len(ancestors) >= MAX_DEPTH:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels")
    ancestors[id(value)] = True
    if isinstance(value, dict):
        copy = plain_object(value, ancestors)
    elif hasattr(type(value), "_fields"):  # a named tuple
        copy = plain_object(dict(zip(value._fields, value)), ancestors)
    else:
        copy = plain_array(value, ancestors)
    del ancestors[id(value)]
    return copy


def plain_converted(value, converted, ancestors):
    """What `converted` becomes; `value` counts as one of its containers, so that conversions end."""
    if id(value) in ancestors:
        raise NotSerializable("contains itself")
    if len(ancestors) >= MAX_DEPTH:
        raise NotSerializable(f"nested deeper than {MAX_DEPTH} levels")
    ancestors[id(value)] = True
    copy = to_plain(converted, ancestors)
    del ancestors[id(value)]
    return copy


VIEWS = (range, type({}.keys()), type({}.values()), type({}.items()))
ITERATORS = (types.GeneratorType, map, filter, zip, enumerate, reversed)


def converted_form(value):
    """The list, dict or number that a value obviously means; the value itself if there is none."""
    if isinstance(value, (set, frozenset)):
        return sorted_list(value)
    if isinstance(value, VIEWS) or is_of_class(value, "collections", "deque"):
        return list(value)
    if isinstance(value, ITERATORS) or type(value).__module__ == "itertools":
        return listed(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return decoded(bytes(value))
    if is_of_class(value, "datetime", "timedelta"):
        seconds = value.total_seconds()
        return int(seconds) if seconds.is_integer() else seconds
    if is_of_class(value, "fractions", "Fraction"):
        return value.numerator if value.denominator == 1 else value.numerator / value.denominator
    kind = type(value)
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is not None:
        return {name: getattr(value, name) for name in fields if hasattr(value, name)}
    if isinstance(value, types.SimpleNamespace):
        return dict(vars(value))
    if callable(getattr(kind, "keys", None)) and hasattr(kind, "__getitem__"):  # a mapping that is not a dict
        return {key: value[key] for key in value.keys()}
    if callable(getattr(kind, "tolist", None)):  # numbers and arrays of numpy, and others like them
        return value.tolist()
    return value


def listed(items):
    """The items of an iterator, which may have no end."""
    found = list(islice(items, MAX_ITEMS + 1))
    if len(found) > MAX_ITEMS:
        raise NotSerializable(f"an iterator of more than {MAX_ITEMS} items is not a JSON value; use a shorter list")
    return found


def decoded(value):
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise NotSerializable("bytes that are not UTF-8 are not a JSON value; use text, such as base64") from None


def sorted_list(items):
    try:
        return sorted(items)
    except TypeError:  # of several kinds: any order that is always the same
        return sorted(items, key=lambda item: (type(item).__name__, repr(item)))


def is_of_class(value, module, name):
    return any(kind.__module__ == module and kind.__qualname__ == name for kind in type(value).__mro__)


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
    if callable(getattr(type(key), "tolist", None)):
        key = key.tolist()
    if isinstance(key, int) and not isinstance(key, bool):
        return int.__repr__(key)
    if isinstance(key, str):
        return plain_text(key)
    if isinstance(key, float) and math.isfinite(key):
        return float.__repr__(key)
    text = text_of(key)
    if text is not None:
        return plain_text(text)
    raise NotSerializable(f"key {key!r} is not text, a number or a date")


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
    ("uuid", "UUID"): "__str__",
}


def text_of(value):
    """The text that a value obviously means; None if there is none."""
    if isinstance(value, os.PathLike) and isinstance(value.__fspath__(), str):
        return value.__fspath__()
    for kind in type(value).__mro__:
        form = TEXT_FORMS.get((kind.__module__, kind.__qualname__))
        if form:
            return getattr(value, form)()
    return None


def text_form(value):
    text = text_of(value)
    if text is not None:
        return text
    if isinstance(value, Member):
        raise NotSerializable(repr(value))
    raise NotSerializable(f"{class_name(type(value))} is not a JSON value; {advice(value)}")


def advice(value):
    kind = type(value)
    if isinstance(value, Agent):
        return "call one of its methods"
    if hasattr(kind, "__iter__"):
        return "use a dict" if hasattr(kind, "keys") else "use a list"
    return "call it" if callable(value) else "use a dict, a list, text or a number"
