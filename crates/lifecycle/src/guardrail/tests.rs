//! Programs through `check`: the rules each one breaks, in order. Python and Ruby side by side.

use serde_json::{Map, Value, json};

use super::Rule::*;
use super::*;
use crate::dialect::{Language, inspect};

mod external;
mod mutation;

use Language::{Python, Ruby};

/// The rules `source` breaks as the program of `calculator.add(…)`, called with `call`.
fn check_call(language: Language, source: &str, call: &Call, expected: &[Rule]) {
    let inspection = inspect(language, source).unwrap_or_else(|fault| panic!("{source}\n{fault}"));
    let input = call.input(language, &inspection);
    let violations = examine(&input, &GuardrailPolicy::default());
    let rules: Vec<Rule> = violations.iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, expected, "{language}:\n{source}\n{violations:#?}");
}

/// The same for a call without arguments, declarations or siblings.
fn check(language: Language, source: &str, expected: &[Rule]) {
    check_call(language, source, &Call::default(), expected);
}

#[derive(Default)]
struct Call {
    args: Vec<Value>,
    kwargs: Map<String, Value>,
    declared: Vec<String>,
    siblings: Vec<SiblingState>,
    context: Context,
}

impl Call {
    fn with(args: &Value) -> Self {
        Self { args: args.as_array().unwrap().clone(), ..Self::default() }
    }

    fn declaring(names: &[&str]) -> Self {
        Self { declared: names.iter().map(|&name| name.to_owned()).collect(), ..Self::default() }
    }

    fn input<'a>(&'a self, language: Language, inspection: &'a Inspection) -> GuardrailInput<'a> {
        GuardrailInput {
            language,
            role: "calculator",
            method: "add",
            args: &self.args,
            kwargs: &self.kwargs,
            declared: &self.declared,
            holds_packages: false,
            sibling_state: &self.siblings,
            context: &self.context,
            inspection,
        }
    }
}

#[test]
fn context_tools_shape_misuse() {
    let barred = [
        (Ruby, "context[:tools].map { |t| t[:name] }"),
        (Ruby, "context['tools'].any? { |t| t['name'] == 'x' }"),
        (Ruby, "tools = context[:tools] || {}\ntools.find { |t| t.fetch(:name) == 'x' }"),
        (Ruby, "context.tools.each do |t|\n puts t.name\nend"),
        (Ruby, "context.fetch(:tools, {}).map { _1[:name] }"),
        (Ruby, "context[:tools].map { it[:name] }"),
        (Ruby, "context[:tools] << { name: 'x' }"),
        (Ruby, "memory[:tools][0]"),
        (Python, "result = [t['name'] for t in context['tools']]"),
        (Python, "for t in context.get('tools', {}):\n    print(t['name'])"),
        (Python, "tools = context['tools']\nresult = any(t.get('name') == 'x' for t in tools)"),
        (Python, "result = [t.name for t in list(context.tools)]"),
        (Python, "context['tools'].append({'name': 'x'})"),
        (Python, "result = context['tools'][0]"),
        (Ruby, "context[\"tools\"].find { |t| t[:name] == 'x' }"),
        (Ruby, "context[:tools].each_with_index { |t, i| puts t[:name] }"),
        (Ruby, "context[:tools].each_with_object([]) { |t, names| names << t[:name] }"),
        (Ruby, "context[:tools].map(&:name)"),
        (Ruby, "for t in context[:tools]\n puts t[:name]\nend"),
        (Ruby, "context[:tools].select { |t| t[:name] }.map { |t| t[:name] }"),
        (Ruby, "context[:tools].first[:name]"),
        (Ruby, "context[:tools].map { |t| t.dig(:name) }"),
        (Ruby, "context[:tools] += [{ name: 'x' }]"),
        (Python, "for t in context[\"tools\"]:\n    print(t[\"name\"])"),
        (Python, "result = any(t['name'] == 'x' for t in context['tools'])"),
        (Python, "result = next((t for t in context['tools'] if t['name'] == 'x'), None)"),
        (Python, "result = {t['name']: t for t in context['tools']}"),
        (Python, "result = sorted(context['tools'], key=lambda t: t['name'])"),
        (Python, "result = list(filter(lambda t: t['name'] == 'x', context['tools']))"),
        (Python, "result = list(map(lambda t: t.get('name'), context['tools']))"),
        (Python, "for i, t in enumerate(context['tools']):\n    print(t['name'])"),
        (Python, "for t in sorted(context['tools']):\n    print(t['name'])"),
        (Python, "context['tools'] += [{'name': 'x'}]"),
    ];
    for (language, source) in barred {
        check(language, source, &[ContextToolsShapeMisuse]);
    }
    let passing = [
        (Ruby, "context[:tools].key?('x')\nitems = [{ name: 1 }]\nitems.map { |i| i[:name] }"),
        (Ruby, "context[:tools].map { |name, info| [name, info[:name]] }"),
        (Ruby, "context[:tools].map { |(name, info)| info[:name] }"),
        (Ruby, "context[:tools].each_value { |t| t[:name] }"),
        (Ruby, "context[:tools].values.map { |t| t[:name] }"),
        (Ruby, "context[:tools].map { |t| t.first }"),
        (Ruby, "'context[:tools].map { |t| t[:name] }'"),
        (Ruby, "context[:tools]['x'][:name]"),
        (Python, "n = len(context['tools'])\nresult = [i['name'] for i in args[0]]"),
        (Python, "result = [(n, i['name']) for n, i in context['tools'].items()]"),
        (Python, "result = [i['name'] for i in context['tools'].values()]"),
        (Python, "result = [n for n in context['tools'] if 'x' in n]"),
        (Python, "t = [t for t in context['tools']]\nresult = [t['name'] for t in args[0]]"),
        (Python, "n = sorted(context['tools'])\nresult = sorted(args[0], key=lambda t: t['name'])"),
        (Python, "result = [i for i, t in enumerate(context['tools']) if 'x' in t]"),
        (Python, "result = sorted(context['tools'].values(), key=lambda t: t['name'])"),
        (Ruby, "context[:tools].each_with_index { |(name, info), i| puts info[:name] }"),
        (
            Ruby,
            "context[:tools].each_with_object({}) { |(n, info), all| all[:name] = info[:name] }",
        ),
        (Ruby, "context[:tools].values.map(&:name)"),
    ];
    for (language, source) in passing {
        check(language, source, &[]);
    }
}

#[test]
fn executable_tool_metadata() {
    let barred = [
        (Ruby, "context[:tools]['d'] = ->(x) { x * 2 }"),
        (Ruby, "context[:tools] = { d: { run: lambda { |x| x } } }"),
        (Ruby, "context[:tools].store('d', proc { 1 })"),
        (Ruby, "remember(tools: { d: method(:puts) })"),
        (Ruby, "context[:tools]['d'] ||= Proc.new { 1 }"),
        (Ruby, "context[:tools].merge!(d: tool('d'))"),
        (Python, "context['tools']['d'] = lambda x: x * 2"),
        (Python, "def d(x): return x\ncontext['tools']['d'] = {'run': d}"),
        (Python, "context['tools'] = {'d': tool('d')}"),
        (Python, "context['tools'].update({'d': lambda: 1})"),
        (Python, "remember(tools={'d': [lambda: 1]})"),
        (Python, "tools = context.get('tools', {})\ntools['d']['run'] = lambda: 1"),
    ];
    for (language, source) in barred {
        check(language, source, &[ExecutableToolMetadata]);
    }
    let passing = [
        (Ruby, "context[:tools]['d'] = { purpose: 'double' }"),
        (Ruby, "context[:factor] = 2\ndouble = ->(x) { x * 2 }\ndouble.call(2)"),
        (Ruby, "context[:tools].each { |name, info| puts name }"),
        (Python, "context['tools']['d'] = {'purpose': 'lambda x: x'}"),
        (Python, "double = lambda x: x * 2\nresult = double(args[0])"),
    ];
    for (language, source) in passing {
        check(language, source, &[]);
    }
}

#[test]
fn self_materialization() {
    for asked in ["calculator", " Calculator ", "CALCULATOR"] {
        let violation = check_role("calculator", asked).expect(asked);
        assert_eq!(violation.rule, SelfMaterialization);
    }
    assert_eq!(check_role("calculator", "converter"), None);
    // Decided when the program asks: a branch that is not taken does not count.
    check(Python, "if args:\n    result = 1\nelse:\n    result = tool('calculator').add(1)", &[]);
    check(Ruby, "args.empty? ? tool('calculator').add(1) : 1", &[]);
}

#[test]
fn undeclared_dependency() {
    for (language, source) in [
        (Python, "import requests"),
        (Python, "import os, numpy as np"),
        (Python, "from bs4 import BeautifulSoup"),
        (Python, "def f():\n    import pandas\nresult = 1"),
        (Python, "m = __import__('yaml')"),
        (Python, "import importlib\nm = importlib.import_module('yaml.nodes')"),
        (Ruby, "require 'nokogiri'"),
        (Ruby, "require \"net/ssh\""),
    ] {
        check(language, source, &[UndeclaredDependency]);
    }
    for (language, source) in [
        (Python, "import os.path, json, tomllib, zoneinfo\nfrom collections import abc"),
        (Python, "try:\n    import ujson as json\nexcept ImportError:\n    import json"),
        (Python, "from . import sibling"),
        (Python, "result = 'import requests'"),
        (Ruby, "require 'net/http'\nrequire 'json'\nrequire 'csv'\nrequire 'bigdecimal/util'"),
        (Ruby, "begin\n  require 'oj'\nrescue LoadError\n  require 'json'\nend"),
        (Ruby, "\"require 'nokogiri'\""),
        (Ruby, "require_relative 'x'"),
    ] {
        check(language, source, &[]);
    }
    check_call(Python, "import PIL", &Call::declaring(&["pillow"]), &[]);
    check_call(Python, "import PIL", &Call::declaring(&["unknown"]), &[]);
}

#[test]
fn unused_dependency() {
    for (language, source, declared) in [
        (Python, "import json", &["requests"][..]),
        (Python, "import bs4", &["beautifulsoup4", "requests"]),
        (Ruby, "require 'json'", &["nokogiri"]),
        (Ruby, "'nokogiri is great'", &["nokogiri"]),
    ] {
        check_call(language, source, &Call::declaring(declared), &[UnusedDependency]);
    }
    for (language, source, declared) in [
        (Python, "import requests", &["Requests"][..]),
        (Python, "import bs4, yaml", &["beautifulsoup4", "PyYAML"]),
        (Python, "import dateutil.parser", &["python-dateutil"]),
        (Python, "import surprising_name", &["mystery"]),
        (
            Python,
            "from bs4 import BeautifulSoup\nresult = BeautifulSoup(args[0], 'lxml')",
            &["beautifulsoup4", "lxml"],
        ),
        (Python, "import pandas as pd\nresult = pd.read_excel(args[0])", &["pandas", "openpyxl"]),
        (Python, "import httpx", &["httpx[http2]"]),
        (Ruby, "require 'active_support/all'", &["activesupport"]),
        (Ruby, "require 'aws-sdk-s3'", &["aws-sdk-s3"]),
        (Ruby, "Nokogiri.parse(args[0])", &["nokogiri"]),
    ] {
        check_call(language, source, &Call::declaring(declared), &[]);
    }
}

#[test]
fn input_baked_code_and_cacheability() {
    use Cacheability::{ArgIgnoredCode, DelegatedContractTool, StableMethodDefault};
    let baked = Cacheability::InputBakedCode;
    let cases = [
        (Python, "result = 137 * 2", json!([137]), baked),
        (Python, "result = 137.0 * 2", json!([137]), baked),
        (Python, "result = -47 * 2", json!([-47]), baked),
        (Python, "url = 'https://x/?q=Ada Lovelace'\nresult = url", json!(["Ada Lovelace"]), baked),
        (Python, "result = f'Hi Ada Lovelace {1}'", json!([{"name": "Ada Lovelace"}]), baked),
        (Python, "args = [137]\nresult = args[0]", json!([137]), baked),
        (Python, "def add(x): return 137\nresult = add(137)", json!([137]), baked),
        (Python, "def other(x): return x\nresult = other(137)", json!([137]), baked),
        (
            Python,
            "class C:\n    def add(self, x): return x\nresult = C().add(137)",
            json!([137]),
            baked,
        ),
        (Python, "result = args[0] + 137", json!([137]), StableMethodDefault),
        (Python, "def add(x): return x + 137", json!([137]), StableMethodDefault),
        (Python, "import json\ndef other(x): return x + 137", json!([137]), StableMethodDefault),
        (Python, "def one(x): return x\ndef two(x): return 137", json!([137]), baked),
        (Python, "def add(self, *rest): return sum(rest) + 137", json!([137]), StableMethodDefault),
        (Python, "def add(context, x=137): return x", json!([137]), StableMethodDefault),
        (Python, "'''adds 137'''\nresult = 1", json!(["adds 137"]), ArgIgnoredCode),
        (Python, "result = {'total': 3}", json!(["total"]), ArgIgnoredCode),
        (
            Python,
            "result = [0, 1, -1, '', True, None]",
            json!([0, 1, -1, "", true, null]),
            ArgIgnoredCode,
        ),
        (Python, "context['n'] = context.get('n', 0) + 5", json!([7]), ArgIgnoredCode),
        (Python, "result = 'argsort'", json!([7]), ArgIgnoredCode),
        (Ruby, "137 * 2", json!([137]), baked),
        (Ruby, ":celsius", json!(["celsius"]), baked),
        (Ruby, "'args'; 137", json!([137]), baked),
        (Ruby, "\"Hi Ada Lovelace #{1}\"", json!(["Ada Lovelace"]), baked),
        (Ruby, "args = [137]; args[0]", json!([137]), baked),
        (
            Ruby,
            "123456789012345678901234567890",
            serde_json::from_str("[123456789012345678901234567890]").unwrap(),
            baked,
        ),
        (Ruby, "\"#{args[0]} 137\"", json!([137]), StableMethodDefault),
        (Ruby, "def add(x) = x + 137", json!([137]), StableMethodDefault),
        (Ruby, "def other(x) = x + 137", json!([137]), StableMethodDefault),
        (Ruby, "def other(x) = x\nother(137)", json!([137]), baked),
        (Ruby, "def add(ctx, by: 137)\n  ctx[:n] + by\nend", json!([137]), StableMethodDefault),
        (Ruby, "{ total: 3 }", json!(["total"]), ArgIgnoredCode),
        (Ruby, "context[:n] = 5", json!([7]), ArgIgnoredCode),
        (Ruby, "<<~TEXT\n  137\nTEXT", json!([137]), ArgIgnoredCode),
    ];
    for (language, source, args, expected) in cases.into_iter().chain(callables()) {
        let call = Call::with(&args);
        let inspection = inspect(language, source).unwrap();
        let input = call.input(language, &inspection);
        assert_eq!(cacheability(&input, false, ResultFrom::Function), expected, "{source}");
        let rules = if expected == baked { &[InputBakedCode][..] } else { &[] };
        check_call(language, source, &call, rules);
    }
    let inspection = inspect(Ruby, "1").unwrap();
    let call = Call::default();
    let input = call.input(Ruby, &inspection);
    assert_eq!(cacheability(&input, true, ResultFrom::Expression), DelegatedContractTool);
}

/// The parameters of a function are the call's arguments only if the harness called it.
#[test]
fn a_result_given_without_the_function_must_read_the_arguments_itself() {
    use Cacheability::{ArgIgnoredCode, StableMethodDefault};
    use ResultFrom::{Assigned, Expression, Function, Returned};
    let function = "def add(a, b): return a + b\nX = 1\n";
    for (end, args, result_from, expected) in [
        ("", json!([20, 30]), Function, StableMethodDefault),
        ("result = add(X, 2)", json!([20, 30]), Assigned, ArgIgnoredCode),
        ("return add(X, 2)", json!([20, 30]), Returned, ArgIgnoredCode),
        ("[add(X, 2)]", json!([20, 30]), Expression, ArgIgnoredCode),
        ("result = add(*args)", json!([20, 30]), Assigned, StableMethodDefault),
        ("result = add(X, 2)", json!([]), Assigned, StableMethodDefault),
    ] {
        let inspection = inspect(Python, &format!("{function}{end}")).unwrap();
        let call = Call::with(&args);
        let found = cacheability(&call.input(Python, &inspection), false, result_from);
        assert_eq!(found, expected, "{end} of {args}");
    }
}

#[test]
fn advice_that_cannot_pay_off_is_not_given() {
    let (call, method) = (Call::with(&json!([137])), "Ask");
    let inspection = inspect(Ruby, "137 * 2").unwrap();
    let asked = GuardrailInput { method, ..call.input(Ruby, &inspection) };
    assert_eq!(examine(&asked, &GuardrailPolicy::default()), []);
    let found = cacheability(&asked, true, ResultFrom::Expression);
    assert_eq!(found, Cacheability::DynamicDispatchMethod);
}

/// What is called with the inputs without being a function of the program, and constants that say nothing.
fn callables() -> Vec<(Language, &'static str, Value, Cacheability)> {
    use Cacheability::{ArgIgnoredCode, StableMethodDefault};
    let callable = "class Adder:\n    def __call__(self, x):\n        return x + 137\n";
    let reading = "add = Adder()";
    let source = format!("{callable}{reading}").leak();
    vec![
        (Python, "add = lambda x: x ** 2", json!([2]), StableMethodDefault),
        (Python, "add = lambda x: 137", json!([137]), Cacheability::InputBakedCode),
        (Python, "import operator\nadd = operator.add", json!([137, 2]), StableMethodDefault),
        (
            Python,
            "from functools import partial\nadd = partial(pow, 137)",
            json!([137]),
            StableMethodDefault,
        ),
        (Python, source, json!([137]), StableMethodDefault),
        (Ruby, "define_method(:add) { |x| x + 137 }", json!([137]), StableMethodDefault),
        (Python, "result = 3.5 ** 2", json!([2]), ArgIgnoredCode),
        (Python, "result = round(3.14159, 2) * 100 / 60", json!([60, 100]), ArgIgnoredCode),
        (Ruby, "[1, 2].join(', ')", json!([", "]), ArgIgnoredCode),
        (Ruby, "0.5 * 365 + 32", json!([0.5, 32, 365]), ArgIgnoredCode),
    ]
}

#[test]
fn state_key_drift() {
    let state = |method: &str, reads: &[&str], writes: &[&str]| SiblingState {
        method: method.to_owned(),
        reads: reads.iter().map(|&key| key.to_owned()).collect(),
        writes: writes.iter().map(|&key| key.to_owned()).collect(),
    };
    let values = [("value".to_owned(), json!(1)), ("notes".to_owned(), json!(["a"]))];
    let call = Call {
        siblings: vec![
            state("increment", &["value"], &["value"]),
            state("add_note", &["notes"], &["notes"]),
        ],
        context: Context::restored(1, values),
        ..Call::default()
    };
    for (language, source) in [
        // Read, and nothing writes it.
        (Python, "result = context['total']"),
        (Python, "result = context.get('total')"),
        (Ruby, "memory[:total]"),
        (Ruby, "context.total.abs"),
        // Another name for a key that is kept, with a value of the same type.
        (Python, "context['values'] = context.get('values', 0) + args[0]"),
        (Python, "context.setdefault('note', []).append(args[0])"),
        (Python, "result = context.get('valu')"),
    ] {
        check_call(language, source, &call, &[StateKeyDrift]);
        check(language, source, &[]);
    }
    for (language, source) in [
        (Python, "context['value'] = context.get('value', 0) + args[0]"),
        (Python, "context['value'] += 1\ncontext['last'] = args[0]"),
        (Python, "result = context['tools'] and context.conversation_history"),
        (Python, "result = context.get(args[0])"),
        (Python, "result = \"context['total']\""),
        (Ruby, "context[:value] = context.fetch(:value, 0) + args[0]"),
        (Ruby, "context.value"),
        (Ruby, "[context.keys, context.size, context.empty?, context.to_h.keys]"),
        (Python, "result = [list(context.keys()), len(context), dict(context)]"),
        (Ruby, "context.key?(:total)"),
        // Other methods keep other keys: that is not evidence.
        (Python, "context['total'] = context.get('total', 0) + args[0]"),
        (Python, "context.setdefault('tasks', []).append(args[0])"),
        (Python, "remember(total=args[0])"),
        (Ruby, "context[:total] ||= 0\ncontext[:total] += args[0]"),
        (Ruby, "def add(ctx, x)\n ctx[:sum] = ctx.fetch(:sum, 0) + x\nend"),
        // A key that may be absent is provided for.
        (Python, "result = context.get('total', 0) + args[0]"),
        (Python, "result = context.get('note', [])"),
        (Ruby, "context.fetch(:total, 0) + args[0]"),
        (Ruby, "context[:note] || []"),
        (Python, "result = context.get('tasks', {})"),
        (Python, "result = context.get('tasks') or []"),
        // The method is called `add`.
        (Python, "result = context['adds'] + context['add']"),
        (Python, "result = len(context['tasks']) if 'tasks' in context else 0"),
        (Python, "try:\n    result = context['tasks']\nexcept KeyError:\n    result = []"),
        (Ruby, "(context[:tasks] || []).size"),
        (Ruby, "context.fetch(:tasks, {}).size"),
        (Ruby, "context[:tasks]&.size"),
        (Ruby, "context[:tasks].size if context.key?(:tasks)"),
        // Alike in name, not in kind; alike, but another number.
        (Python, "context['values'] = {'a': args[0]}"),
        (Python, "context['value2'] = 5"),
        // Keys beside the shared state.
        (Python, "result = context['value'] * context.get('rate', 1)"),
        (Python, "result = context['unit'] if 'unit' in context else context['value']"),
        (Ruby, "context[:value] * (context[:rate] || 1)"),
        (Ruby, "context[:value].round(context.fetch(:digits, 2))"),
    ] {
        check_call(language, source, &call, &[]);
    }
    let inspection = inspect(Ruby, "context[:total]").unwrap();
    let violations = examine(&call.input(Ruby, &inspection), &GuardrailPolicy::default());
    assert!(violations[0].required_correction.contains("`value`"), "{violations:?}");
    assert!(!violations[0].forbids_reuse());
}

#[test]
fn process_escape() {
    let barred = [
        (Python, "import os\nos.system('ls')"),
        (Python, "from os import system as s\ns('ls')"),
        (Python, "import os as o\nf = o.popen\nf('ls')"),
        (Python, "import subprocess\nresult = subprocess.run(['ls'])"),
        (Python, "import subprocess as sp\nresult = sp.check_output('ls')"),
        (Python, "__import__('os').system('ls')"),
        (Python, "import os\ngetattr(os, 'system')('ls')"),
        (Python, "import importlib\nimportlib.import_module('subprocess').run('ls')"),
        (Python, "from os import *\nsystem('ls')"),
        (Python, "import os\nlist(map(os.system, ['ls']))"),
        (Python, "import os\nos.execvp('ls', [])"),
        (Python, "import os, signal\nos.kill(1, signal.SIGTERM)"),
        (Python, "import ctypes\nctypes.CDLL(None)"),
        (Python, "from multiprocessing import Pool\nPool(2)"),
        (Python, "from concurrent.futures import ProcessPoolExecutor as E\nE()"),
        (Python, "import asyncio\nasyncio.create_subprocess_shell('ls')"),
        (Python, "import pty\npty.spawn('sh')"),
        (Python, "import signal\nsignal.signal(2, print)"),
        (Ruby, "system('ls')"),
        (Ruby, "system 'ls'"),
        (Ruby, "`ls`"),
        (Ruby, "%x(ls #{args[0]})"),
        (Ruby, "exec 'ls'"),
        (Ruby, "fork { 1 }"),
        (Ruby, "fork"),
        (Ruby, "Kernel.spawn('ls')"),
        (Ruby, "send(:system, 'ls')"),
        (Ruby, "Kernel.public_send(:system, 'ls')"),
        (Ruby, "require 'open3'\nOpen3.capture2('ls')"),
        (Ruby, "IO.popen('ls')"),
        (Ruby, "Process.kill(:TERM, 1)"),
        (Ruby, "::Process.spawn 'ls'"),
        (Ruby, "syscall 1"),
        (Ruby, "open('|ls')"),
        (Ruby, "\"#{system('ls')}\""),
        (Ruby, "Signal.trap('INT') {}"),
        (Ruby, "method(:system).call('ls')"),
        (Ruby, "Kernel.method(:system).call('ls')"),
        (Ruby, "Process.method(:fork).call"),
        (Ruby, "run = method(:system)\nrun.('ls')"),
        (Ruby, "%w[ls].each(&method(:system))"),
        (Ruby, "Kernel.public_send(:fork)"),
        (Ruby, "Process.public_send('spawn', 'ls')"),
        (Python, "__import__('subprocess').run(['ls'])"),
        (Python, "m = __import__('subprocess')\nm.run(['ls'])"),
        (Python, "import importlib as i\nm = i.import_module('subprocess')\nm.Popen('ls')"),
        (Python, "from importlib import import_module\nimport_module('os').system('ls')"),
        (Python, "import os\nf = getattr(os, 'system')\nf('ls')"),
        (Python, "getattr(__import__('os'), 'system')('ls')"),
        (Python, "import sys\nsys.modules['os'].system('ls')"),
        (Python, "import os\nos.__dict__['system']('ls')"),
        (Python, "import os\nvars(os)['system']('ls')"),
    ];
    for (language, source) in barred {
        check(language, source, &[ProcessEscape]);
        let inspection = inspect(language, source).unwrap();
        let call = Call::default();
        let policy = GuardrailPolicy { allow_processes: true, ..GuardrailPolicy::default() };
        assert_eq!(examine(&call.input(language, &inspection), &policy), [], "{source}");
    }
}

#[test]
fn what_only_looks_like_process_escape() {
    let passing = [
        (Python, "system = {'kill': 1}\nresult = system['kill']"),
        (Python, "result = 'os.system(1)' # import os; os.system('ls')"),
        (Python, "def system(x): return x\nresult = system('ls')"),
        (Python, "import os\nresult = os.path.join('a', os.getcwd(), os.environ['x'])"),
        (Python, "job = args[0]\njob.kill()\njob.system('ls')"),
        (
            Python,
            "import subprocess\ntry:\n    result = 1\nexcept subprocess.CalledProcessError:\n    raise",
        ),
        (Python, "import multiprocessing\nresult = multiprocessing.cpu_count()"),
        (Python, "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor()"),
        (Python, "class os: pass\nos.system = 1\nresult = os.system"),
        (Ruby, "system = { kill: 1 }\nsystem[:kill]"),
        (Ruby, "{ system: 'ls', exec: 1, \"fork\" => 2 }"),
        (Ruby, "job = args[0]\njob.kill\njob.system('ls')\njob.spawn(1)"),
        (Ruby, "'system(\"ls\")' # system('ls')\n"),
        (Ruby, "def system(x) = x\nsystem('ls')"),
        (Ruby, "Process.clock_gettime(Process::CLOCK_MONOTONIC)"),
        (Ruby, "Thread.new { 1 }.kill"),
        (Ruby, "File.open('|x')"),
        (Ruby, "/`ls`/.match(args[0])"),
        (Ruby, "context[:system] = :spawn"),
        (Ruby, "def system(x) = x\nmethod(:system).call('ls')"),
        (Ruby, "args[0].method(:spawn).call"),
    ];
    for (language, source) in passing {
        check(language, source, &[]);
    }
}

#[test]
fn missing_credentials() {
    for (language, source) in [
        (Python, "import os\nresult = os.environ['WEATHER_API_KEY']"),
        (Python, "from os import environ as e\nresult = e['github_token']"),
        (Ruby, "ENV.fetch('WEATHER_API_KEY')"),
        (Ruby, "ENV.fetch(\"DB_PASSWORD\")"),
        (Python, "import os\nresult = [os.environ['API_KEY'], os.environ['API_KEY']]"),
        (
            Python,
            "import os\ntry:\n    x = 1\nexcept ValueError:\n    x = 2\nresult = os.environ['API_KEY']",
        ),
        (Ruby, "begin\n  x = 1\nrescue ArgumentError\n  ENV.fetch('API_KEY')\nend"),
    ] {
        check(language, source, &[MissingCredentials]);
    }
    for (language, source) in [
        (Python, "import os\nresult = os.environ['HOME'] + os.environ['KEYBOARD']"),
        (Python, "import os\nresult = os.environ.get('API_KEY') or os.getenv('API_TOKEN')"),
        (Python, "import os\nresult = 'API_KEY' in os.environ"),
        (Python, "import os\nos.environ['API_KEY'] = args[0]"),
        (Python, "result = \"os.environ['API_KEY']\""),
        (Python, "import os\nos.environ['API_KEY'] = args[0]\nresult = os.environ['API_KEY']"),
        (Python, "import os\nresult = os.environ['API_KEY'] if 'API_KEY' in os.environ else 0"),
        (
            Python,
            "import os\ntry:\n    key = os.environ['API_KEY']\nexcept KeyError:\n    key = None",
        ),
        (Ruby, "ENV.key?('API_KEY') ? ENV.fetch('API_KEY') : nil"),
        (Ruby, "begin\n  ENV.fetch('API_KEY')\nrescue KeyError\n  nil\nend"),
        (Ruby, "ENV.fetch('API_KEY') rescue nil"),
        (Ruby, "def key\n  ENV.fetch('API_KEY')\nrescue KeyError\n  nil\nend\nkey"),
        (
            Python,
            "import os\ntry:\n    result = os.environ['API_KEY']\nexcept KeyError:\n    \
             result = Outcome.error('missing_credentials', 'set API_KEY')",
        ),
        (Ruby, "ENV['API_KEY']"),
        (Ruby, "ENV.fetch('API_KEY', nil)"),
        (Ruby, "ENV.fetch('API_KEY') { args[0] }"),
        (Ruby, "ENV.fetch('HOME')"),
        (Ruby, "{ 'API_KEY' => 1 }.fetch('API_KEY')"),
    ] {
        check(language, source, &[]);
    }
}

#[test]
fn unsupported_capability() {
    for (language, source) in [
        (Python, "import tkinter as tk\ntk.Tk()"),
        (Python, "from tkinter import messagebox\nmessagebox.showinfo('x')"),
        (Python, "import turtle\nturtle.forward(1)"),
        (Python, "import curses\ncurses.wrapper(print)"),
        (Python, "import webbrowser\nwebbrowser.open(args[0])"),
    ] {
        check(language, source, &[UnsupportedCapability]);
    }
    check(Ruby, "require 'tk'\nTkRoot.new", &[UnsupportedCapability, UndeclaredDependency]);
    for (language, source) in [
        (Python, "try:\n    import tkinter\nexcept ImportError:\n    tkinter = None"),
        (Python, "result = Outcome.error('unsupported_capability', 'tkinter')\nimport tkinter"),
        (Python, "import curses.ascii\nresult = curses.ascii.isdigit(args[0])"),
        (Python, "turtle = {'legs': 4}\nresult = turtle['legs']"),
        (Python, "result = 'import tkinter'"),
        (Ruby, "'require \"tk\"'"),
    ] {
        check(language, source, &[]);
    }
}

#[test]
fn violations_are_typed() {
    let names: Vec<_> = Rule::ALL.iter().map(|rule| rule.subtype()).collect();
    for (&rule, name) in Rule::ALL.iter().zip(names) {
        assert_eq!(Rule::from_subtype(name), Some(rule));
        assert_eq!(serde_json::to_value(rule).unwrap(), json!(name));
        let kind = rule.violation_type();
        assert_eq!(serde_json::to_value(kind).unwrap(), json!(kind.name()));
    }
    let inspection = inspect(Ruby, "x = 1\n  system('ls')").unwrap();
    let call = Call::default();
    let violation = examine(&call.input(Ruby, &inspection), &GuardrailPolicy::default()).remove(0);
    assert_eq!(violation.location, Some(Position { line: 2, column: 3 }));
    let class = |policy: &GuardrailPolicy| violation.severity(policy).guardrail_class();
    assert_eq!(class(&GuardrailPolicy::default()), "recoverable_guardrail");
    let terminal = GuardrailPolicy { terminal: vec![ProcessEscape], ..GuardrailPolicy::default() };
    assert_eq!(class(&terminal), "terminal_guardrail");
}
