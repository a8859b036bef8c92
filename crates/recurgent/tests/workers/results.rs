//! How a program gives its result, what its values become, and which hosts it reached: the same in both guests.

use lifecycle::context::Context;
use lifecycle::dialect::Language;
use lifecycle::execution::{ReportEnding, ResultFrom};
use recurgent::grants::{Grants, Network};
use recurgent::guest::{Answer, Done};
use serde_json::{Value, json};

use crate::drive::{BOTH, Driver, Program};
use crate::network::server;
use crate::value;

/// A program in both languages, what it returned, and how. The method is `check`, its arguments 1 and 2.
type ResultCase<'a> = (&'a str, &'a str, Value, ResultFrom);

fn check(cases: &[ResultCase<'_>]) {
    let driver = Driver::new();
    for (python, ruby, expected, result_from) in cases {
        for (language, code) in [(Language::Python, *python), (Language::Ruby, *ruby)] {
            let args = vec![json!(1), json!(2)];
            let ended = driver.run(&Program { language, code, args, ..Program::default() });
            let Ok(Done { ending: ReportEnding::Value(given), result_from: from, .. }) = &ended
            else {
                panic!("{language:?} {code}: {ended:#?}")
            };
            assert_eq!((given, from), (expected, result_from), "{language:?} {code}");
        }
    }
}

/// The method's function in both languages. The call has the keyword `n` too.
const PYTHON: &str = "def check(a, b, n=0): return a + b";
const RUBY: &str = "def check(a, b, n: 0) = a + b";

#[test]
fn the_method_function_is_called_although_the_program_calls_it_too() {
    let with =
        |python: &str, ruby: &str| (format!("{PYTHON}\n{python}"), format!("{RUBY}\n{ruby}"));
    let texts = [
        with("", ""),
        with("print(check(2, 3))", "puts check(2, 3)"),
        with("check(2, 3)", "check(2, 3)"),
        with("assert check(2, 3) == 99", "assert_equal 99, check(2, 3)"),
        with(
            "if check(2, 3) != 99:\n    raise ValueError('bad')",
            "raise 'bad' unless check(2, 3) == 99",
        ),
        with("assert check(2, 3) == 99, 'bad'", "check(2, 3) == 99 or raise 'bad'"),
        with(
            "if __name__ == '__main__':\n    raise SystemExit(3)",
            "if __FILE__ == $0\n  exit 3\nend",
        ),
        with("x = check(2, 3)\nprint(x)", "x = check(2, 3)\nputs x"),
        with("result = check(7, 8)", "result = check(7, 8)"),
        with("result = check(7, b=8)\nprint(result)", "result = check(7, 8, n: 9)\nputs result"),
        with("return check(7, 8)", "return check(7, 8)"),
        with("print('''\ntext\n''')", "puts <<~TEXT\n  text\nTEXT"),
    ];
    let mut cases: Vec<ResultCase<'_>> = texts
        .iter()
        .map(|(python, ruby)| (python.as_str(), ruby.as_str(), json!(3), ResultFrom::Function))
        .collect();
    let of_self = "def self.check(a, b, n: 0) = a + b\ncheck(2, 3)";
    let called_on_self =
        "def self.check(a, b, n: 0)\n  a + b\nend\nputs self.check(2, 3)\nself.check(2, 3)";
    let assigned = "def self.check(a, b, n: 0) = a + b\nresult = check(7, 8)";
    cases.extend(
        [of_self, called_on_self, assigned]
            .map(|ruby| (PYTHON, ruby, json!(3), ResultFrom::Function)),
    );
    check(&cases);
}

/// A program that exits with success ends like any other: a result that it assigned counts; otherwise the method's function
/// is called, if there is one and it was not the function that exited.
#[test]
fn an_exit_with_success_is_an_end_like_any_other() {
    let with =
        |python: &str, ruby: &str| (format!("{PYTHON}\n{python}"), format!("{RUBY}\n{ruby}"));
    let texts = [
        with("import sys\nsys.exit(0)", "exit"),
        with("raise SystemExit", "exit 0"),
        with("print(check(2, 3))\nexit()", "puts check(2, 3)\nexit(true)"),
        with("x = check(2, 3)\nprint(x)\nquit(0)", "x = check(2, 3)\nputs x\nKernel.exit"),
    ];
    let mut cases: Vec<ResultCase<'_>> = texts
        .iter()
        .map(|(python, ruby)| (python.as_str(), ruby.as_str(), json!(3), ResultFrom::Function))
        .collect();
    cases.extend([
        ("result = 7\nexit()", "result = 7\nexit", json!(7), ResultFrom::Assigned),
        ("import sys\nprint(3)\nsys.exit()", "puts 3\nexit", Value::Null, ResultFrom::Nothing),
        (
            "def check(a, b, n):\n    print(a + b)\n    exit(0)",
            "def check(a, b, n:)\n  puts a + b\n  exit\nend",
            Value::Null,
            ResultFrom::Nothing,
        ),
    ]);
    check(&cases);
}

/// Arguments that are given by the name of a positional parameter, in both guests. The call gives `n` by name.
#[test]
fn a_positional_parameter_can_be_given_by_name() {
    check(&[
        (
            "def check(a, b, n): return [a, b, n > 9]",
            "def check(a, b, n) = [a, b, n > 9]",
            json!([1, 2, true]),
            ResultFrom::Function,
        ),
        (
            "def check(a, b, n=0, *rest): return [a, b, n > 9]",
            "def check(a, b, n = 0, *rest) = [a, b, n > 9]",
            json!([1, 2, true]),
            ResultFrom::Function,
        ),
        (
            "def check(a, b, **options): return [a, b, options['n'] > 9]",
            "def check(a, b, options = {}) = [a, b, options[:n] > 9]",
            json!([1, 2, true]),
            ResultFrom::Function,
        ),
        (
            "check = lambda a, b, **options: [a, b, options['n'] > 9]",
            "check = ->(a, b, options = {}) { [a, b, options[:n] > 9] }",
            json!([1, 2, true]),
            ResultFrom::Function,
        ),
    ]);
}

/// A bound method gets its object by itself; its first parameter can still be the context.
#[test]
fn a_method_of_an_object_is_called_with_the_arguments_of_the_call() {
    check(&[
        (
            "class Calc:\n    def add(self, a, b=5, n=0): return a + b\ncheck = Calc().add",
            "class Calc\n  def add(a, b = 5, n: 0) = a + b\nend\ncheck = Calc.new.method(:add)",
            json!(3),
            ResultFrom::Function,
        ),
        (
            "class Calc:\n    def add(self, context, a, b, n=0): return [a + b, len(context)]\ncheck = Calc().add",
            "class Calc\n  def add(context, a, b, n: 0) = [a + b, context.size]\nend\ncheck = Calc.new.method(:add)",
            json!([3, 0]),
            ResultFrom::Function,
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of programs and what they give")]
fn a_result_is_assigned_returned_or_the_last_expression() {
    check(&[
        ("result = 7", "result = 7", json!(7), ResultFrom::Assigned),
        ("result = None", "result = nil", Value::Null, ResultFrom::Assigned),
        (
            "if args[0] > 5:\n    result = 1",
            "result = 1 if args[0] > 5",
            Value::Null,
            ResultFrom::Nothing,
        ),
        (
            "if args[0] < 5:\n    result = None",
            "result = nil if args[0] < 5",
            Value::Null,
            ResultFrom::Assigned,
        ),
        (
            "for n in args:\n    if n > 1:\n        result = [result, n]",
            "args.each { |n| result = [result, n] if n > 1 }",
            json!([null, 2]),
            ResultFrom::Assigned,
        ),
        ("result = print(1)", "result = puts(1)", Value::Null, ResultFrom::Nothing),
        ("if args: return 7\n8", "return 7 if args.any?\n8", json!(7), ResultFrom::Returned),
        ("return", "return", Value::Null, ResultFrom::Returned),
        (
            "def check(a, b, n): return b\nresult = check(args[1], 5, 6)",
            "def check(a, b, n:) = b\nresult = check(args[1], 5, n: 6)",
            json!(5),
            ResultFrom::Assigned,
        ),
        (
            "def check(a=0, b=0, n=0): return b\nx = 8\nresult = check(7, x)",
            "def check(a = 0, b = 0, n: 0) = b\nx = 8\nresult = check(7, x)",
            json!(8),
            ResultFrom::Assigned,
        ),
        (
            "def check(a, b, n): return b\nresult = check(7, 8, 9)\nresult = [result]",
            "def check(a, b, n:) = b\nresult = check(7, 8, n: 9)\nresult = [result]",
            json!([8]),
            ResultFrom::Assigned,
        ),
        (
            "if not args: return 7\n8",
            "return 7 if args.empty?\n8",
            json!(8),
            ResultFrom::Expression,
        ),
        ("1 if not args else None", "args.empty? ? 1 : nil", Value::Null, ResultFrom::Returned),
        ("[].clear()", "[].first", Value::Null, ResultFrom::Expression),
        ("print(42)", "puts 42", Value::Null, ResultFrom::Nothing),
        ("answer = args[1]", "answer = args[1]", json!(2), ResultFrom::Expression),
        ("a = 1\na += args[1]", "a = 1\na += args[1]", json!(3), ResultFrom::Expression),
        ("context['x'] = args[1]", "context[:x] = args[1]", json!(2), ResultFrom::Expression),
        ("memory.x = [args[1]]", "memory.x = [args[1]]", json!([2]), ResultFrom::Expression),
        (
            "context['x'] = {'y': 1}\ncontext['x']['y'] += 4",
            "context[:x] = { y: 1 }\ncontext[:x][:y] += 4",
            json!(5),
            ResultFrom::Expression,
        ),
        ("context['x'] = None", "context[:x] = nil", Value::Null, ResultFrom::Expression),
        (
            "if not args: return 7\ncontext['x'] = args[1]",
            "return 7 if args.empty?\ncontext[:x] = args[1]",
            json!(2),
            ResultFrom::Expression,
        ),
        (
            "def check(a, b, n): return b\ncontext['x'] = 9",
            "def check(a, b, n:) = b\ncontext[:x] = 9",
            json!(2),
            ResultFrom::Function,
        ),
        ("answer = 2\nprint(answer)", "answer = 2\nputs answer", Value::Null, ResultFrom::Nothing),
        (
            "if not args: return 7\nprint(1)",
            "return 7 if args.empty?\nputs 1",
            Value::Null,
            ResultFrom::Nothing,
        ),
        (
            "class A:\n    def check(self): return 1",
            "class A\n  def check = 1\nend",
            Value::Null,
            ResultFrom::Nothing,
        ),
        (
            "def check(*_, **__): return 5\nreturn 6",
            "def check(*, **) = 5\nreturn 6",
            json!(6),
            ResultFrom::Returned,
        ),
        (
            "def check(*_, **__): pass\nprint(1)",
            "def check(*, **) = nil\nputs 1",
            Value::Null,
            ResultFrom::Function,
        ),
        ("def other(a, b, n): return b", "def other(a, b, n:) = b", json!(2), ResultFrom::Function),
        (
            "if __name__ == '__main__':\n    result = 5",
            "if __FILE__ == $0\n  result = 5\nend",
            json!(5),
            ResultFrom::Assigned,
        ),
    ]);
}

/// A function that is assigned to the method's name is the method's function.
#[test]
fn a_lambda_with_the_methods_name_is_called() {
    let given = |python, ruby| (python, ruby, json!(3), ResultFrom::Function);
    check(&[
        given("check = lambda a, b, n=0: a + b", "check = ->(a, b, n: 0) { a + b }"),
        given(
            "check = lambda a, b, n=0: a + b\nprint(check(5, 6))",
            "check = lambda { |a, b, n: 0| a + b }\nputs check.call(5, 6)",
        ),
        given(
            "from functools import partial\ndef add(c, a, b, n=0): return a + b\ncheck = partial(add, 0)",
            "check = proc { |a, b, n: 0| a + b }",
        ),
        given(
            "def add(a, b, n=0): return a + b\ncheck = add",
            "def add(a, b, n: 0) = a + b\ncheck = method(:add)",
        ),
    ]);
}

#[test]
fn both_guests_name_a_key_that_the_context_lacks() {
    let driver = Driver::new();
    let context = Context::restored(1, [("b".to_owned(), json!(3)), ("a".to_owned(), json!(9))]);
    for (language, code, class) in [
        (Language::Python, "result = context['n']", "KeyError"),
        (Language::Python, "result = context.n", "AttributeError"),
        (Language::Ruby, "result = context.fetch(:n)", "KeyError"),
        (Language::Ruby, "result = context.n", "NoMethodError"),
    ] {
        let program = Program { language, code, context: context.clone(), ..Program::default() };
        let ended = driver.run(&program);
        let Ok(Done { ending: ReportEnding::Raised { class: raised, message, .. }, .. }) = &ended
        else {
            panic!("{code}: {ended:?}")
        };
        let expected = "the context has no key \"n\"; it has a, b";
        assert_eq!((raised.as_str(), message.as_str()), (class, expected), "{code}");
    }
}

#[test]
fn a_function_that_the_program_calls_with_its_arguments_runs_once() {
    check(&[(
        "calls = []\ndef check(a, b):\n    calls.append(a)\n    return [a, b, len(calls)]\ncheck(args[1], args[0])",
        "$calls = []\ndef check(a, b)\n  $calls << a\n  [a, b, $calls.size]\nend\ncheck(args[1], args[0])",
        json!([2, 1, 1]),
        ResultFrom::Function,
    )]);
}

#[test]
fn obvious_values_are_converted() {
    check(&[
        ("{3, 1, 2}", "require 'set'\nSet[3, 1, 2]", json!([1, 2, 3]), ResultFrom::Expression),
        ("{1, 'a'}", "Set[1, 'a']", json!([1, "a"]), ResultFrom::Expression),
        (
            "from collections import namedtuple\nnamedtuple('P', 'x y')(1, (2, 3))",
            "Struct.new(:x, :y).new(1, [2, 3])",
            json!({"x": 1, "y": [2, 3]}),
            ResultFrom::Expression,
        ),
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nP(1)",
            "require 'ostruct'\nOpenStruct.new(x: 1)",
            json!({"x": 1}),
            ResultFrom::Expression,
        ),
        (
            "from fractions import Fraction\n[Fraction(6, 2), Fraction(1, 4)]",
            "[6r / 2, 1r / 4]",
            json!([3, 0.25]),
            ResultFrom::Expression,
        ),
        (
            "from datetime import date\n(date(2024, 3, 1) - date(2024, 1, 1)).days",
            "require 'date'\nDate.new(2024, 3, 1) - Date.new(2024, 1, 1)",
            json!(60),
            ResultFrom::Expression,
        ),
        (
            "from datetime import timedelta\n[timedelta(hours=1), timedelta(seconds=1.5)]",
            "[Time.at(3600) - Time.at(0), Time.at(1.5) - Time.at(0)].map { |it| it % 1 == 0 ? it.to_i : it }",
            json!([3600, 1.5]),
            ResultFrom::Expression,
        ),
        (
            "def check(a, b, n=0):\n    yield a\n    yield b",
            "def check(a, b, n: 0) = [a, b].each",
            json!([1, 2]),
            ResultFrom::Function,
        ),
    ]);
}

#[test]
fn lazy_values_paths_and_keys_are_converted() {
    check(&[
        (
            "[map(str, [1]), zip([1], [2])]",
            "[['1'].lazy, [[1, 2]].each_entry]",
            json!([["1"], [[1, 2]]]),
            ResultFrom::Expression,
        ),
        ("b'h\\xc3\\xa9'", "\"h\\xC3\\xA9\".b", json!("h\u{e9}"), ResultFrom::Expression),
        (
            "from datetime import date\n{date(2024, 1, 1): 1, 1.5: 2}",
            "require 'date'\n{ Date.new(2024, 1, 1) => 1, 1.5 => 2 }",
            json!({"2024-01-01": 1, "1.5": 2}),
            ResultFrom::Expression,
        ),
        (
            "from types import SimpleNamespace, MappingProxyType\n[SimpleNamespace(x=1), MappingProxyType({'x': 1})]",
            "require 'ostruct'\n[OpenStruct.new(x: 1), { x: 1 }.freeze]",
            json!([{"x": 1}, {"x": 1}]),
            ResultFrom::Expression,
        ),
        (
            "from pathlib import Path\nPath('/x/y')",
            "require 'pathname'\nPathname.new('/x/y')",
            json!("/x/y"),
            ResultFrom::Expression,
        ),
        ("range(3)", "0..2", json!([0, 1, 2]), ResultFrom::Expression),
        (
            "class Number:\n    def tolist(self): return 5\n[Number(), {Number(): 1}]",
            "[5, { 5 => 1 }]",
            json!([5, {"5": 1}]),
            ResultFrom::Expression,
        ),
        (
            "import array\narray.array('i', [1, 2])",
            "[1, 2].each_slice(2).first",
            json!([1, 2]),
            ResultFrom::Expression,
        ),
    ]);
}

#[test]
fn keys_of_the_context_are_read_and_written_by_name() {
    let driver = Driver::new();
    let entries = [("total".to_owned(), json!(3)), ("count".to_owned(), json!(9))];
    let context = Context::restored(1, entries);
    for (language, code) in [
        (
            Language::Python,
            "context.total = context.total + 1\n[context.total, context.count, len(context)]",
        ),
        (
            Language::Ruby,
            "context.total = context.total + 1\n[context.total, context.count, context.size]",
        ),
    ] {
        let program = Program { language, code, context: context.clone(), ..Program::default() };
        let ended = driver.run(&program);
        assert_eq!(value(&ended), Some(&json!([4, 9, 2])), "{language:?}: {ended:?}");
        let changed: Vec<String> =
            ended.unwrap().changes.set.into_iter().map(|(key, _)| key).collect();
        assert_eq!(changed, ["total"], "{language:?}");
    }
}

#[test]
fn views_cannot_be_remembered() {
    let driver = Driver::new();
    for key in ["tools", "conversation_history"] {
        for (language, code) in [
            (Language::Python, format!("remember({key}=1)")),
            (Language::Ruby, format!("remember({key}: 1)")),
            (Language::Ruby, format!("context.merge!('{key}' => 1)")),
            (Language::Ruby, format!("context.replace('{key}' => 1)")),
        ] {
            let program = Program { language, code: &code, ..Program::default() };
            let ended = driver.ask(&program, |_| Answer::Value(json!({})));
            let Ok(Done { ending: ReportEnding::Raised { message, .. }, .. }) = &ended else {
                panic!("{code}: {ended:?}")
            };
            assert!(message.contains("is read-only: use another key"), "{message}");
        }
    }
}

#[test]
fn hosts_that_a_program_reached_are_reported() {
    let driver = Driver::new();
    let (one, two) = (server(), server());
    for language in BOTH {
        let code = match language {
            Language::Python => {
                "import urllib.request\nfor port in [*args, *args]: urllib.request.urlopen(f'http://127.0.0.1:{port}/').read()"
            }
            Language::Ruby => {
                "require 'net/http'\n[*args, *args].each { |port| Net::HTTP.get(URI(\"http://127.0.0.1:#{port}/\")) }"
            }
        };
        let reached = |network: Network, args: Vec<Value>, proven| {
            let grants = Grants { network, ..Grants::default() };
            let program = Program { language, code, proven, args, grants, ..Program::default() };
            let done = driver.run(&program).unwrap();
            done.reached.into_iter().map(|source| source.uri).collect::<Vec<_>>()
        };
        let ports = || vec![json!(one), json!(two)];
        let both = [format!("127.0.0.1:{one}"), format!("127.0.0.1:{two}")];
        assert_eq!(reached(Network::Loopback, ports(), false), both, "{language:?}");
        let listed = both.join(",").parse().unwrap();
        assert_eq!(reached(listed, ports(), false), both, "{language:?}");
        assert_eq!(reached(Network::Open, ports(), false), [""; 0], "{language:?}");
        // A kept worker starts every call without hosts of the call before.
        assert_eq!(reached(Network::Loopback, ports(), true), both, "{language:?}");
        assert_eq!(reached(Network::Loopback, Vec::new(), true), [""; 0], "{language:?}");
    }
}
