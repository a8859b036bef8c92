//! Which programs leave something behind in the worker that ran them: a kept worker is not for them.
//!
//! What such a program changes (a class of the language, a module, the environment, a global variable) would
//! be there for the agent's next program, and a thread it leaves behind would go on beside it, its hands on the
//! same memory. It runs in a worker of its own each time, which ends with it.
//! Read from the syntax tree: what is evaluated from a text is taken to leave something.

use crate::dialect::{
    Assignment, Call, Definition, DefinitionKind, Inspection, Language, Operand, Target,
};

/// Python functions that change the process they run in, by full name.
const PYTHON: &[&str] = &[
    "_thread.start_new_thread",
    "atexit.register",
    "concurrent.futures.ThreadPoolExecutor",
    "concurrent.futures.thread.ThreadPoolExecutor",
    "decimal.getcontext",
    "decimal.setcontext",
    "delattr",
    "eval",
    "exec",
    "gc.disable",
    "importlib.reload",
    "locale.setlocale",
    "multiprocessing.dummy.Pool",
    "multiprocessing.pool.ThreadPool",
    "os.chdir",
    "os.putenv",
    "os.umask",
    "os.unsetenv",
    "random.seed",
    "setattr",
    "socket.setdefaulttimeout",
    "sys.setprofile",
    "sys.setrecursionlimit",
    "sys.settrace",
    "threading.Thread",
    "threading.Timer",
    "time.tzset",
    "warnings.filterwarnings",
    "warnings.simplefilter",
];
/// Of these, the ones that change only what they are given first.
const PYTHON_SETTERS: &[&str] = &["delattr", "setattr"];

/// Methods that change the list or map they are called on.
const CHANGERS: &[&str] = &[
    "append",
    "clear",
    "delete",
    "extend",
    "insert",
    "merge!",
    "pop",
    "popitem",
    "remove",
    "replace",
    "setdefault",
    "store",
    "update",
];

/// Ruby methods that change the class or module they are called on.
const RUBY_REDEFINERS: &[&str] = &[
    "alias_method",
    "attr_accessor",
    "attr_writer",
    "class_eval",
    "class_exec",
    "const_set",
    "define_method",
    "define_singleton_method",
    "extend",
    "include",
    "instance_eval",
    "instance_variable_set",
    "module_eval",
    "module_exec",
    "prepend",
    "remove_const",
    "remove_method",
    "undef_method",
];

/// Of these, the ones only classes and modules have.
const OF_CLASSES: &[&str] = &[
    "alias_method",
    "class_eval",
    "class_exec",
    "const_set",
    "define_method",
    "module_eval",
    "module_exec",
    "prepend",
    "remove_const",
    "remove_method",
    "undef_method",
];

/// Ruby functions that change the process they run in.
const RUBY: &[&str] = &[
    "Dir.chdir",
    "File.umask",
    "Kernel.srand",
    "ObjectSpace.define_finalizer",
    "Random.srand",
    "at_exit",
    "eval",
    "srand",
];

/// Classes and modules that Ruby, or its library, brings.
#[rustfmt::skip]
const RUBY_CLASSES: &[&str] = &[
    "Array", "BasicObject", "Benchmark", "BigDecimal", "Binding", "CGI", "CSV", "Class", "Comparable", "Complex",
    "Data", "Date", "DateTime", "Digest", "Dir", "ENV", "ERB", "Encoding", "Enumerable", "Enumerator", "Exception",
    "FalseClass", "Fiber", "File", "FileUtils", "Float", "Forwardable", "GC", "Hash", "IO", "Integer", "JSON",
    "Kernel", "Logger", "Marshal", "MatchData", "Math", "Matrix", "Method", "Module", "Monitor", "Mutex", "Net",
    "NilClass", "Numeric", "Object", "ObjectSpace", "OpenSSL", "OpenStruct", "OptionParser", "Pathname", "Prime",
    "Proc", "Process", "Psych", "REXML", "Random", "Range", "Rational", "Regexp", "RuntimeError", "SecureRandom",
    "Set", "Shellwords", "Signal", "Singleton", "StandardError", "String", "StringIO", "StringScanner", "Struct",
    "Symbol", "Tempfile", "Thread", "Time", "Timeout", "TrueClass", "URI", "UnboundMethod", "Vector", "YAML", "Zlib",
];

/// Whether the next program in the same worker would find something of this one.
pub(crate) fn leaves_residue(language: Language, inspection: &Inspection) -> bool {
    match language {
        Language::Python => python(inspection),
        Language::Ruby => ruby(inspection),
    }
}

fn python(inspection: &Inspection) -> bool {
    // Who asks for a class and then sets something that is not known may set it on that class.
    let asks_class =
        inspection.calls.iter().any(|call| call.receiver.is_none() && call.name == "type");
    let sets =
        |assignment| is_on_module(assignment, |_| true) || (asks_class && is_unknown(assignment));
    inspection.says("__builtins__")
        || inspection.calls.iter().any(python_call)
        || inspection.assignments.iter().any(sets)
}

fn ruby(inspection: &Inspection) -> bool {
    let sets = |assignment| is_global(assignment) || is_on_module(assignment, is_brought);
    inspection.definitions.iter().any(|definition| reopens(definition, &inspection.assignments))
        || inspection.calls.iter().any(ruby_call)
        || inspection.assignments.iter().any(sets)
}

/// `type(found).value = …`; what a method gives its own object is its own.
fn is_unknown(assignment: &Assignment) -> bool {
    let Target::Attribute { object, .. } = &assignment.target else { return false };
    matches!(object.held(), Operand::Unknown) && object.name() != Some("self")
}

/// `json.dumps = …`, `os.environ["X"] = …`, `ENV["X"] = …`
fn is_on_module(assignment: &Assignment, counts: impl Fn(&str) -> bool) -> bool {
    match &assignment.target {
        Target::Name(_) => false,
        Target::Attribute { object, .. } | Target::Item { object, .. } => {
            object.path().is_some_and(counts)
        }
    }
}

fn python_call(call: &Call) -> bool {
    let Some(path) = call.path() else { return false };
    // An own object given to `setattr` is the program's; `sys.path` belongs to a module, `os` is one.
    let own = PYTHON_SETTERS.contains(&path.as_str())
        && call.argument(0).is_some_and(|object| object.path().is_none());
    let of_module = call.receiver.as_ref().and_then(|receiver| receiver.path());
    (PYTHON.contains(&path.as_str()) && !own)
        || (of_module.is_some_and(|path| path.contains('.'))
            && CHANGERS.contains(&call.name.as_str()))
}

fn ruby_call(call: &Call) -> bool {
    let name = call.name.as_str();
    let class = call.receiver.as_ref().map(Operand::path);
    let changes = match class {
        Some(Some("ENV" | "::ENV")) => CHANGERS.contains(&name) || RUBY_REDEFINERS.contains(&name),
        Some(Some(class)) => is_brought(class) && RUBY_REDEFINERS.contains(&name),
        // `Object.const_get(:String).class_eval`: of which class is not known.
        Some(None) => OF_CLASSES.contains(&name),
        None => false,
    };
    changes || call.path().is_some_and(|path| RUBY.contains(&path.trim_start_matches("::")))
}

/// `class String`, `module Net`, and `class Mine` after `Mine = String`
fn reopens(definition: &Definition, assignments: &[Assignment]) -> bool {
    let another = |assignment: &Assignment| {
        matches!(&assignment.target, Target::Name(name) if *name == definition.name)
            && assignment.value.path().is_some()
    };
    definition.kind == DefinitionKind::Class
        && (is_brought(&definition.name) || assignments.iter().any(another))
}

fn is_brought(path: &str) -> bool {
    let path = path.trim_start_matches("::");
    let top = path.split("::").next().unwrap_or(path);
    RUBY_CLASSES.binary_search(&top).is_ok()
}

fn is_global(assignment: &Assignment) -> bool {
    matches!(&assignment.target, Target::Name(name) if name.starts_with('$'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::inspect;

    #[test]
    fn the_table_is_sorted() {
        assert!(RUBY_CLASSES.is_sorted());
    }

    #[test]
    fn what_changes_the_worker_is_found() {
        for (language, source) in [
            (Language::Python, "import json\njson.dumps = lambda *a: 'x'"),
            (Language::Python, "import math as m\nsetattr(m, 'floor', None)"),
            (Language::Python, "from datetime import datetime\ndatetime.now = None"),
            (Language::Python, "import os\nos.environ['LEFT'] = 'x'"),
            (Language::Python, "import os\nos.environ.update(LEFT='x')"),
            (Language::Python, "from os import environ\nenviron.pop('HOME')"),
            (Language::Python, "import sys\nsys.path.insert(0, '/x')"),
            (Language::Python, "import sys\nsys.modules['json'] = None"),
            (Language::Python, "import os\nos.chdir('/')"),
            (Language::Python, "import random\nrandom.seed(1)"),
            (Language::Python, "import json\ndel json.dumps"),
            (Language::Python, "import threading\nthreading.Thread(target=print).start()"),
            (Language::Python, "from threading import Timer as T\nT(1, context.clear).start()"),
            (
                Language::Python,
                "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(print)",
            ),
            (Language::Python, "exec('import json; json.dumps = None')"),
            (Language::Python, "eval('__import__(\"json\").__dict__.update(dumps=None)')"),
            (Language::Python, "globals()['__builtins__']['len'] = None"),
            (Language::Python, "found = Outcome.ok(1)\ntype(found).value = 5"),
            (Language::Python, "kind = type(Outcome.ok(1))\nkind.value = 5"),
            (Language::Ruby, "class String; def upcase = 'x'; end"),
            (Language::Ruby, "Object.const_get(:String).class_eval { def upcase = 'x' }"),
            (Language::Ruby, "Mine = String\nclass Mine; def upcase = 'x'; end"),
            (Language::Ruby, "module Kernel; def puts(*) = nil; end"),
            (Language::Ruby, "class Net::HTTP; def get = 1; end"),
            (Language::Ruby, "class ::Integer; def +(other) = 42; end"),
            (Language::Ruby, "String.class_eval { def upcase = 'x' }"),
            (Language::Ruby, "Integer.send(:define_method, :+) { |_| 42 }"),
            (Language::Ruby, "Array.prepend(Module.new)"),
            (Language::Ruby, "$count = 1"),
            (Language::Ruby, "$count ||= 1"),
            (Language::Ruby, "$count += 1"),
            (Language::Ruby, "$count &&= 1"),
            (Language::Ruby, "$one, $other = 1, 2"),
            (Language::Ruby, "begin; raise 'x'; rescue => $problem; end"),
            (Language::Ruby, "String::LEFT = 1"),
            (Language::Ruby, "Encoding.default_external ||= 'ASCII'"),
            (Language::Ruby, "ENV['LEFT'] = 'x'"),
            (Language::Ruby, "ENV.delete('HOME')"),
            (Language::Ruby, "Encoding.default_external = 'ASCII'"),
            (Language::Ruby, "Dir.chdir('/')"),
            (Language::Ruby, "eval('1')"),
        ] {
            let inspection = inspect(language, source).unwrap();
            assert!(leaves_residue(language, &inspection), "{source}");
        }
    }

    #[test]
    fn what_is_the_programs_own_is_not() {
        for (language, source) in [
            (
                Language::Python,
                "import json, os\nresult = json.dumps([os.environ.get('HOME'), args])",
            ),
            (
                Language::Python,
                "class Cart:\n    n = 0\nCart.n = 1\nc = Cart()\nsetattr(c, 'x', 2)",
            ),
            (Language::Python, "def f(): pass\nf.calls = 0\nd = {}\nd.update(a=1)\nd['b'] = 2"),
            (Language::Python, "class A:\n    def go(self): self.kind = type(self).__name__"),
            (Language::Python, "global n\nn = 1\ncontext['n'] = n"),
            (Language::Python, "import os\nos.remove('x')\nresult = os.path.join('a')"),
            (Language::Ruby, "class Cart; attr_accessor :n; end\nCart.class_eval { def x = 1 }"),
            (Language::Ruby, "module Shop; class String; end; end\nShop::String.new"),
            (Language::Ruby, "Point = Struct.new(:x) do\n def y = 1\nend\nPoint.new(1).x = 2"),
            (
                Language::Ruby,
                "s = args[0].dup\ns.extend(Comparable)\ns.define_singleton_method(:x) { 1 }",
            ),
            (Language::Ruby, "Point = Struct.new(:x)\nclass Point; def y = 1; end"),
            (Language::Ruby, "h = {}\nh['a'] = 1\nh.delete('a')\nENV['HOME']"),
            (Language::Ruby, "module M\n refine(String) { def x = 1 }\nend"),
            (Language::Ruby, "def helper(x) = x\ncontext[:n] = helper(1)\n@n = 1"),
        ] {
            let inspection = inspect(language, source).unwrap();
            assert!(!leaves_residue(language, &inspection), "{source}");
        }
    }
}
