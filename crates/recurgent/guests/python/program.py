SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
TAIL = "__recurgent_tail__"
RETURNED = "__recurgent_returned__"
WRITTEN = "__recurgent_written__"
PRINTING = frozenset(("print", "pprint", "pp"))

# A program that reads `result` before it assigns it gets this; an assignment makes a name of the program.
builtins.result = None


class InvalidCode(Exception):
    def __init__(self, problem):
        super().__init__(getattr(problem, "msg", None) or str(problem))
        self.problem = problem


class Program:
    """A program. Compiled once per method name, because the method's function decides which statements run."""

    def __init__(self, source):
        self.source = source
        self.variants = {}

    def run(self, execution):
        name = execution.method_name
        variant = self.variants.get(name)
        if variant is None:
            variant = self.variants[name] = Variant(self.source, function_names(name))
        return variant.run(execution)


class Variant:
    """A compiled program: `body` is run, then `value`, if any, is evaluated for the result."""

    def __init__(self, source, names):
        method = names[0]
        try:
            tree = ast.parse(source, FILE)
            # The tree is searched only if the text has one of these words.
            may_define = "def" in source or "lambda" in source or method in source
            self.function = method_function(tree.body, names) if may_define else None
            method = self.function if self.function in names else method
            changed = self.function and drop_examples(tree, method)
            self.answers_example = self.function == method and gives_example_only(tree.body, method)
            self.writes_null = bool(tree.body) and may_be_null(tree.body[-1])
            value, self.value_from = split_value(tree, "return" in source, method if self.function else None)
            # Compiling the text is cheaper than compiling an unchanged tree.
            self.body = compile(tree if value or changed else source, FILE, "exec")
            self.value = value and compile(value, FILE, "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            raise InvalidCode(problem) from None
        self.lines = source.splitlines(keepends=True)

    def run(self, execution):
        """The program's value, and how it was given."""
        linecache.cache[FILE] = (len(self.lines), None, self.lines, FILE)
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        names = module.__dict__
        names.update(execution.surface())
        names[RETURNED] = Returned
        try:
            exec(self.body, names)
            value = eval(self.value, names) if self.value else None
        except SystemExit as ended:
            value, result_from = self.result_after(ended, names, execution)
        else:
            value, result_from = self.result(value, names, execution)
        if isinstance(value, types.CoroutineType):
            import asyncio
            value = asyncio.run(value)
        return value, result_from

    def assigns_output(self):
        """Whether the program assigns `result` nothing but what printing gives. Needed only if the value is None, so
        it is computed on demand."""
        nodes = same_scope(ast.parse("".join(self.lines), FILE).body)
        given = [node.value for node in nodes if isinstance(node, ast.Assign)
                 and any("result" in bound_names(target) for target in node.targets)]
        return bool(given) and all(map(is_printing, given))

    def assigned_result(self, names):
        """What `result` was assigned, unless the method itself is named so and this is its function."""
        return names.get("result") if self.function != "result" else None

    def result(self, value, names, execution):
        # `result = add(1, 2)` after `def add` is an example of its use: the call has other arguments.
        is_example = self.answers_example and (execution.args or execution.kwargs)
        given = self.assigned_result(names)
        if given is not None and not is_example:
            return given, "assigned"
        if isinstance(value, Returned) and not is_example:
            return value.value, "returned"
        function = names.get(self.function) if self.function else None
        if callable(function) and self.value_from != "function":
            return self.called(function, execution)
        if value is None and "result" in names:
            return None, "none" if self.assigns_output() else "assigned"
        if value is None and self.writes_null:
            return None, "returned"
        return value, self.value_from

    def result_after(self, ended, names, execution):
        """The result of a program whose text ends in `exit`: with success it is an end like any other."""
        if not is_success(ended):
            raise ended
        is_example = self.answers_example and (execution.args or execution.kwargs)
        given = self.assigned_result(names)
        if given is not None and not is_example:
            return given, "assigned"
        function = names.get(self.function) if self.function else None
        return self.called(function, execution) if callable(function) else (None, "none")

    def called(self, function, execution):
        """What the method's function gives, and how. Nothing, if it ends the program with success."""
        try:
            return self.call_function(function, execution), "function"
        except SystemExit as ended:
            if not is_success(ended):
                raise
            return None, "none"

    def call_function(self, function, execution):
        """The function form: the program defines the method and leaves calling it to the harness."""
        args = list(execution.args)
        filled = filled_parameter(function, execution)
        if filled:
            args.insert(0, Self(execution.context) if filled == "self" else execution.context)
        try:
            return function(*args, **bound_keywords(function, len(args), execution.kwargs))
        except TypeError:  # the location if no line of the program is in the traceback: the arguments do not fit
            code = code_of(function)
            if code and code.co_filename == FILE:
                execution.location = {"line": code.co_firstlineno, "column": None}
            raise


def is_success(ended):
    return ended.code is None or ended.code == 0


class Returned:
    """What a top-level `return` gave."""

    __slots__ = ("value",)

    def __init__(self, value=None):
        self.value = value


def split_value(tree, may_return, method):
    """Removes what gives the program's value from the tree. Returns it as an expression of its own, and its kind:
    the last expression, what a last assignment sets or, when the program returns at top level, a call of the
    function its tail becomes."""
    for index, statement in enumerate(tree.body if may_return else ()):
        if any(isinstance(node, ast.Return) for node in same_scope([statement])):
            tree.body[index:], kind = tail_function(tree.body[index:], method)
            return ast.parse(TAIL + "()", mode="eval"), kind
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        kind = kind_of_value(tree.body[-1], method)
        return ast.Expression(tree.body.pop().value), kind
    name = assigned_last(tree.body)
    if name:
        return ast.parse(name, mode="eval"), "expression"
    written = written_last(tree.body)
    return (written, "expression") if written else (None, "none")


def written_last(statements):
    """An expression for what the last statement writes to memory, as in `context["n"] = 42`; it is the program's value in
    other guests too. The statement is changed to keep the value."""
    last = statements[-1] if statements else None
    if isinstance(last, ast.Assign) and any(map(is_memory, last.targets)):
        last.targets.insert(0, ast.copy_location(ast.Name(WRITTEN, ast.Store()), last))
        return ast.parse(WRITTEN, mode="eval")
    if isinstance(last, ast.AugAssign) and is_memory(last.target):
        target = ast.unparse(last.target)
        return None if "(" in target else ast.parse(target, mode="eval")  # a call must not run twice
    return None


def is_memory(node):
    """Whether it is a key of memory, or an item of one."""
    if not isinstance(node, (ast.Subscript, ast.Attribute)):
        return False
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("context", "memory")


def assigned_last(statements):
    """The name that the last statement assigns, as in `answer = 42`. An assignment of `result` is a result already."""
    last = statements[-1] if statements else None
    targets = last.targets if isinstance(last, ast.Assign) else [getattr(last, "target", None)]
    if not isinstance(last, (ast.Assign, ast.AnnAssign, ast.AugAssign)) or not getattr(last, "value", None):
        return None
    name = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else None
    return None if name == "result" else name


def may_be_null(node):
    """Whether an expression at the end gives a None that the program means: written down, or read from memory."""
    if isinstance(node, ast.Expr):
        return may_be_null(node.value)
    if isinstance(node, ast.IfExp):
        return may_be_null(node.body) or may_be_null(node.orelse)
    if isinstance(node, ast.BoolOp):
        return any(map(may_be_null, node.values))
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Name) and node.id in ("context", "memory"):
            return True
    return isinstance(node, ast.Constant) and node.value is None


def kind_of_value(statement, method):
    """How an expression at the end gives the result."""
    call = statement.value
    if is_printing(call):
        return "none"
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == method:
        return "function"
    return "expression"


def is_printing(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PRINTING


def tail_function(statements, method):
    """A function with `statements` as its body, in which top-level names stay global, and the kind of value that its
    end gives."""
    names = sorted({name for node in same_scope(statements) for name in bound_names(node)})
    statements = [TailBody().visit(statement) for statement in statements]
    kind = "none"
    if isinstance(statements[-1], ast.Expr):
        last = statements[-1]
        kind = kind_of_value(last, method)
        statements[-1] = ast.copy_location(ast.Return(last.value), last)
    written = written_last(statements)
    if written:
        kind = "expression"
        statements.append(ast.copy_location(ast.Return(written.body), statements[-1]))
    function = ast.parse(f"def {TAIL}(): pass").body[0]
    function.body = ([ast.Global(names)] if names else []) + statements
    return [ast.fix_missing_locations(ast.copy_location(function, statements[0]))], kind


class TailBody(ast.NodeTransformer):
    """Changes `x: int = 1` to `x = 1`, because a name declared global may not be annotated, and marks returned values
    as returned."""

    def visit_Return(self, node):
        arguments = [node.value] if node.value else []
        call = ast.Call(ast.Name(RETURNED, ast.Load()), arguments, [])
        return ast.copy_location(ast.Return(ast.copy_location(call, node)), node)

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


def method_function(statements, names):
    """The function that is the method: the one of its name, or the only one there is."""
    assigned = assigned_names(statements)
    return next((name for name in names if name in assigned), None) or only_function(statements)


def assigned_names(statements):
    """Names bound by def or assignment: imported ones are not the program's own."""
    return {name for node in same_scope(statements)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Name))
            for name in bound_names(node)}


def drop_examples(tree, method):
    """Removes statements at top level that only show or test the method's function. Returns whether there were any."""
    defined = next((index for index, statement in enumerate(tree.body) if defines(statement, method)), len(tree.body))
    kept = [statement for index, statement in enumerate(tree.body)
            if index <= defined or not is_example(statement, method)]
    dropped = len(kept) < len(tree.body)
    tree.body[:] = kept
    return dropped


def gives_example_only(statements, method):
    """Whether every result that the program gives at top level is the method's function called with literals."""
    given = [node for node in same_scope(statements)
             if isinstance(node, ast.Return) or "result" in bound_names(node)]
    examples = [node for statement in statements for node in example_result(statement, method)]
    return bool(given) and len(given) == len(examples)


def example_result(statement, method):
    """What gives the result in `result = add(1, 2)` or `return add(1, 2)`; nothing in another statement."""
    if isinstance(statement, ast.Return):
        return [statement] if is_literal_call(statement.value, method) else []
    if not isinstance(statement, ast.Assign) or not is_literal_call(statement.value, method):
        return []
    return [target for target in statement.targets if "result" in bound_names(target)]


def is_literal_call(node, method):
    """Whether it calls the method's function with at least one argument, and with literals only."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == method):
        return False
    given = node.args + [keyword.value for keyword in node.keywords]
    names = (ast.Name, ast.Call, ast.Await, ast.NamedExpr)
    return bool(given) and not any(isinstance(it, names) for value in given for it in ast.walk(value))


def defines(statement, name):
    if isinstance(statement, ast.Assign):
        return isinstance(statement.value, ast.Lambda) and name in bound_names(statement.targets[0])
    return isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == name


def is_example(statement, method):
    if isinstance(statement, ast.Assert) or is_main_guard(statement) or is_self_check(statement, method):
        return True
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    function = statement.value.func
    if not isinstance(function, ast.Name):
        return False
    return function.id in PRINTING or (function.id == method and not uses_arguments(statement))


def is_self_check(statement, method):
    """Whether it only raises if the method's function does not give what it should: `if add(1, 2) != 3: raise …`"""
    if not isinstance(statement, ast.If) or statement.orelse or uses_arguments(statement):
        return False
    calls = (node.func for node in ast.walk(statement.test) if isinstance(node, ast.Call))
    tests = any(isinstance(function, ast.Name) and function.id == method for function in calls)
    return tests and all(isinstance(it, ast.Raise) for it in statement.body)


def uses_arguments(statement):
    return any(isinstance(node, ast.Name) and node.id in ("args", "kwargs") for node in ast.walk(statement))


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
