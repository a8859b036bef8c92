//! Programs through `check`: the rules each one breaks, in order. Python and Ruby side by side.

use serde_json::{Map, Value, json};

use super::Rule::*;
use super::*;
use crate::dialect::{Language, inspect};

mod external;
mod mutation;
mod process;
mod reuse;

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
        let violation = examine_request("calculator", asked).expect(asked);
        assert_eq!(violation.rule, SelfMaterialization);
    }
    assert_eq!(examine_request("calculator", "converter"), None);
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
