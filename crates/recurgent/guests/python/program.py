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
