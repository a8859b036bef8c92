//! Which programs change the worker that ran them, so that the worker is not reused.
//!
//! A class, module, environment or global variable that such a program changes would stay changed for the
//! agent's next program, and a thread it leaves running would share that program's memory. It therefore runs
//! in a worker of its own, which ends with it. The decision is made on the syntax tree; evaluating text
//! counts as a change.

use crate::dialect::library::{
    MUTATES, POLLUTES, REDEFINES, REDEFINES_CLASS, RUBY_CLASSES, SETS_ATTRIBUTE,
};
use crate::dialect::{
    AssignmentStatement, CallExpression, Definition, DefinitionKind, Facts, Inspection, Language,
    Operand, Target,
};

/// Whether the next program in the same worker would be affected by this one.
pub(crate) fn pollutes_worker(language: Language, inspection: &Inspection) -> bool {
    let by_language = match language {
        Language::Python => python(inspection),
        Language::Ruby => ruby(inspection),
    };
    by_language || inspection.calls_any(POLLUTES)
}

fn python(inspection: &Inspection) -> bool {
    // After `type(x)`, an attribute set on an unknown object may be set on that class.
    let asks_class =
        inspection.calls.iter().any(|call| call.receiver.is_none() && call.name == "type");
    let sets = |assignment| {
        is_on_module(assignment, |_| true) || (asks_class && is_on_unknown_object(assignment))
    };
    inspection.says("__builtins__")
        || inspection.calls_with(SETS_ATTRIBUTE).any(|(call, _)| sets_on_module(call))
        || inspection.calls_with(MUTATES).any(|(call, _)| mutates_module(call))
        || inspection.assignments.iter().any(sets)
}

fn ruby(inspection: &Inspection) -> bool {
    let sets = |assignment| is_global(assignment) || is_on_module(assignment, is_built_in);
    inspection.definitions.iter().any(|definition| reopens(definition, &inspection.assignments))
        || inspection
            .calls_with(MUTATES.union(REDEFINES))
            .any(|(call, facts)| changes_class(call, facts))
        || inspection.assignments.iter().any(sets)
}

/// `type(found).value = …`: the object is not known. `self.value = …` is harmless.
fn is_on_unknown_object(assignment: &AssignmentStatement) -> bool {
    let Target::Attribute { object, .. } = &assignment.target else { return false };
    matches!(object.resolved(), Operand::Unknown) && object.name() != Some("self")
}

/// `json.dumps = …`, `os.environ["X"] = …`, `ENV["X"] = …`
fn is_on_module(assignment: &AssignmentStatement, counts: impl Fn(&str) -> bool) -> bool {
    match &assignment.target {
        Target::Name(_) => false,
        Target::Attribute { object, .. } | Target::Item { object, .. } => {
            object.path().is_some_and(counts)
        }
    }
}

/// `setattr(os, …)`. An object that the program made itself does not count.
fn sets_on_module(call: &CallExpression) -> bool {
    call.argument(0).is_none_or(|object| object.path().is_some())
}

/// `sys.path.insert(…)`: a list or map that belongs to a module.
fn mutates_module(call: &CallExpression) -> bool {
    let object = call.receiver.as_ref().and_then(Operand::path);
    object.is_some_and(|path| path.contains('.'))
}

/// `String.class_eval`, `ENV.delete`, and `Object.const_get(:String).class_eval`, whose class is not known.
fn changes_class(call: &CallExpression, facts: Facts) -> bool {
    match call.receiver.as_ref().map(Operand::path) {
        Some(Some("ENV" | "::ENV")) => true,
        Some(Some(class)) => is_built_in(class) && facts.any(REDEFINES),
        Some(None) => facts.any(REDEFINES_CLASS),
        None => false,
    }
}

/// `class String`, `module Net`, and `class Mine` after `Mine = String`
fn reopens(definition: &Definition, assignments: &[AssignmentStatement]) -> bool {
    let is_renamed_class = |assignment: &AssignmentStatement| {
        matches!(&assignment.target, Target::Name(name) if *name == definition.name)
            && assignment.value.path().is_some()
    };
    definition.kind == DefinitionKind::Class
        && (is_built_in(&definition.name) || assignments.iter().any(is_renamed_class))
}

fn is_built_in(path: &str) -> bool {
    let path = path.trim_start_matches("::");
    let top = path.split("::").next().unwrap_or(path);
    RUBY_CLASSES.binary_search(&top).is_ok()
}

fn is_global(assignment: &AssignmentStatement) -> bool {
    matches!(&assignment.target, Target::Name(name) if name.starts_with('$'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::inspect;

    #[test]
    fn changes_that_outlive_the_program_are_found() {
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
            assert!(pollutes_worker(language, &inspection), "{source}");
        }
    }

    #[test]
    fn changes_to_the_programs_own_objects_do_not_count() {
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
            assert!(!pollutes_worker(language, &inspection), "{source}");
        }
    }
}
