//! Programs through `check`: the rules each one breaks, in order. Python and Ruby side by side.

use serde_json::{Map, Value, json};

use super::Rule::*;
use super::*;
use crate::dialect::{Language, inspect};

use Language::{Python, Ruby};

/// The rules `source` breaks as the program of `calculator.add(…)`, called with `call`.
fn check_call(language: Language, source: &str, call: &Call, expected: &[Rule]) {
    let inspection = inspect(language, source).unwrap_or_else(|fault| panic!("{source}\n{fault}"));
    let subject = call.subject(language, &inspection);
    let violations = examine(&subject, &GuardrailPolicy::default());
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
}

impl Call {
    fn with(args: &Value) -> Self {
        Self { args: args.as_array().unwrap().clone(), ..Self::default() }
    }

    fn declaring(names: &[&str]) -> Self {
        Self { declared: names.iter().map(|&name| name.to_owned()).collect(), ..Self::default() }
    }

    fn subject<'a>(&'a self, language: Language, inspection: &'a Inspection) -> Subject<'a> {
        Subject {
            language,
            role: "calculator",
            method: "add",
            args: &self.args,
            kwargs: &self.kwargs,
            declared: &self.declared,
            holds_packages: false,
            sibling_state: &self.siblings,
            inspection,
        }
    }
}

#[test]
fn singleton_method_mutation() {
    let barred = [
        (Ruby, "tool('x').define_singleton_method(:a) { 1 }"),
        (Ruby, "t = tool('x')\nt.define_singleton_method :a do 1 end"),
        (Ruby, "t = tool('x')\nt.send(:define_singleton_method, :a) { 1 }"),
        (Ruby, "t = tool('x')\nt.public_send('define_singleton_method', :a) { 1 }"),
        (Ruby, "t = tool('x')\nt.__send__ :define_singleton_method, :a, -> { 1 }"),
        (Ruby, "t = tool('x')\ndef t.a = 1"),
        (Ruby, "t = delegate('x', purpose: 'p')\nclass << t\n def a; end\nend"),
        (Ruby, "t = Agent.for('x')\nt.instance_eval { def a; end }"),
        (Ruby, "tool('x').singleton_class.define_method(:a) { 1 }"),
        (Ruby, "tool('x').class.class_eval { def a; end }"),
        (Ruby, "\"#{1}\"; tool('x').define_singleton_method(:a) { 1 }"),
        (Ruby, "class Agent\n def add; end\nend"),
        (Ruby, "class Agent::Outcome; end"),
        (Ruby, "module M; class ::Outcome; end; end"),
        (Ruby, "Agent.class_eval { def a; end }"),
        (Ruby, "Outcome = Struct.new(:value)"),
        (Python, "t = tool('x')\nt.fetch = lambda url: url"),
        (Python, "def fake(u): return u\nt = delegate('x', purpose='p')\nt.fetch = fake"),
        (Python, "t = tool('x')\nu = t\nu.fetch = lambda: 1"),
        (Python, "tool('x').fetch = lambda: 1"),
        (Python, "t = tool('x')\nsetattr(t, 'fetch', print)"),
        (Python, "t = tool('x')\nobject.__setattr__(t, 'fetch', print)"),
        (Python, "import builtins\nbuiltins.print = None"),
        (Python, "import builtins as b\nsetattr(b, 'print', None)"),
        (Python, "Outcome.ok = None"),
        (Python, "import types\nt = tool('x')\nt.a = types.MethodType(print, t)"),
    ];
    let reaching_further = [
        (Python, "__builtins__['print'] = None"),
        (Python, "__builtins__.print = None"),
        (Python, "__builtins__.update(print=None)"),
        (Python, "import builtins\nbuiltins.__dict__['print'] = None"),
        (Python, "import builtins\nvars(builtins)['print'] = None"),
        (Python, "import builtins\nbuiltins.__dict__.update({'print': None})"),
        (Python, "import builtins\nsetattr(builtins, 'print', None)"),
        (Python, "import sys\nsys.modules['builtins'].print = None"),
        (Python, "t = tool('x')\ntype(t).fetch = None"),
        (Python, "t = tool('x')\nsetattr(type(t), 'fetch', None)"),
        (Python, "tool('x').__class__.fetch = None"),
        (Python, "del Outcome.ok"),
        (Python, "delattr(Outcome, 'ok')"),
        (Python, "import builtins\ndel builtins.print"),
        (Ruby, "Outcome.prepend(Module.new)"),
        (Ruby, "Outcome.include(Comparable)"),
        (Ruby, "Outcome.extend(Comparable)"),
        (Ruby, "Outcome.alias_method(:fine?, :ok?)"),
        (Ruby, "Outcome.remove_method(:ok?)"),
        (Ruby, "Outcome.send(:undef_method, :ok?)"),
        (Ruby, "Outcome.define_method(:ok?) { true }"),
        (Ruby, "Outcome.singleton_class.define_method(:ok) { 1 }"),
        (Ruby, "Outcome.define_singleton_method(:ok) { 1 }"),
        (Ruby, "def Outcome.ok(*) = 1"),
        (Ruby, "o = Outcome\ndef o.ok(*) = 1"),
        (Ruby, "class << Outcome\n def ok(*) = 1\nend"),
        (Ruby, "Outcome.class_eval { def ok? = true }"),
        (Ruby, "Outcome.instance_eval { def ok(*) = 1 }"),
        (Ruby, "Object.const_set(:Outcome, 1)"),
        (Ruby, "Object.send(:remove_const, :Agent)"),
        (Ruby, "Agent.send(:remove_const, :Outcome)"),
        (Ruby, "Agent.const_set('Outcome', 1)"),
        (Ruby, "def context.tools = {}"),
        (Ruby, "context.define_singleton_method(:tools) { {} }"),
        (Ruby, "class << memory\n def tools = {}\nend"),
    ];
    for (language, source) in reaching_further {
        check(language, source, &[SingletonMethodMutation]);
    }
    for (language, source) in barred {
        check(language, source, &[SingletonMethodMutation]);
    }
    let passing = [
        (Ruby, "# x.define_singleton_method(:a)\n'x.define_singleton_method(:a)'"),
        (
            Ruby,
            "class Cart\n def self.empty = new\n class << self\n  def all; end\n end\nend\nCart.empty",
        ),
        (Ruby, "point = Struct.new(:x).new(1)\ndef point.y = 2\npoint.y"),
        (Ruby, "o = Object.new\no.define_singleton_method(:a) { 1 }\no.a"),
        (Ruby, "def fresh = Object.new\no = fresh\ndef o.a = 1\no.a"),
        (Ruby, "o = args[0].dup\nclass << o\n def a = 1\nend\no.a"),
        (Ruby, "args.map { |o| o.define_singleton_method(:a) { 1 } }"),
        (Ruby, "class Cart\n define_singleton_method(:empty) { new }\nend\nCart.empty"),
        (Ruby, "define_singleton_method(:helper) { 1 }\nhelper"),
        (
            Ruby,
            "Cart = Struct.new(:items)\nCart.include(Comparable)\nObject.const_set(:Trolley, Cart)",
        ),
        (Python, "class Cart: pass\nCart.size = lambda self: 1\ndel Cart.size"),
        (Python, "import sys\nsys.modules['cart'] = None\nresult = vars(args[0])"),
        (Ruby, "module Shop; class Agent; end; end"),
        (Ruby, "t = tool('x')\nt.memory = 5\nt.add(1)"),
        (Ruby, "def self.helper = 1\nhelper"),
        (Ruby, "class Mine < Agent; end"),
        (Ruby, "t = tool('x')\nt = {}\nt.define_singleton_method(:a) { 1 }"),
        (Python, "t = tool('x')\nt.memory = 5"),
        (Python, "t = tool('x')\nsetattr(t, 'memory', 5)"),
        (Python, "class Box: pass\nb = Box()\nb.run = lambda: 1\nresult = b.run()"),
        (Python, "s = \"t = tool('x'); t.fetch = lambda: 1\"\nresult = s"),
        (Python, "def tool(x): return type('T', (), {})\nt = tool('x')\nt.run = lambda: 1"),
        (Python, "t = tool('x')\nr = t.fetch('u')\nr.callback = lambda: 1"),
    ];
    for (language, source) in passing {
        check(language, source, &[]);
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
    for (language, source) in [
        (Ruby, "tool('calculator').add(1)"),
        (Ruby, "tool :calculator"),
        (Ruby, "name = ' Calculator '\ndelegate(name, purpose: 'p')"),
        (Ruby, "Agent.for('CALCULATOR')"),
        (Python, "result = tool('calculator').add(1)"),
        (Python, "role = 'Calculator'\nresult = delegate(role, purpose='p')"),
    ] {
        check(language, source, &[SelfMaterialization]);
    }
    for (language, source) in [
        (Ruby, "tool('converter').add('calculator')"),
        (Ruby, "toolbox.tool('calculator')"),
        (Ruby, "\"tool('calculator')\""),
        (Python, "result = tool('converter').add('calculator')"),
        (Python, "# tool('calculator')\nresult = \"tool('calculator')\""),
    ] {
        check(language, source, &[]);
    }
}

#[test]
fn hardcoded_external_fallback_success() {
    let rescue =
        "import urllib.request\ntry:\n    movies = urllib.request.urlopen(args[0]).read()\n";
    let cases = [
        format!("{rescue}except Exception:\n    movies = [{{'title': 'Heat'}}]\nresult = movies"),
        format!("{rescue}except Exception:\n    result = {{'movies': ['Heat']}}"),
        format!(
            "fallback_movies = ['Heat']\n{rescue}except Exception:\n    movies = None\nresult = Outcome.ok(movies or fallback_movies)"
        ),
    ];
    for source in &cases {
        check(Python, source, &[HardcodedExternalFallbackSuccess]);
    }
    let fetched = "import urllib.request\nr = urllib.request.urlopen(args[0]).read()\n";
    for source in [
        format!("{fetched}result = r or ['Heat']"),
        format!("{fetched}movies = r or [{{'title': 'Heat'}}]\nresult = {{'movies': movies}}"),
        format!("{fetched}result = Outcome.ok(r if r else ['Heat'])"),
        format!("{fetched}import json\nresult = json.loads(r).get('movies', ['Heat'])"),
        format!("result = tool('fetcher').get(args[0]).value_or(['Heat'])"),
        format!("MOVIES = ['Heat']\n{rescue}except Exception:\n    result = MOVIES"),
        format!(
            "MOVIES = ['Heat']\ndef add(x):\n    {}    except OSError:\n        return MOVIES",
            rescue.replace("    ", "        ").replace("try", "    try")
        ),
        format!("{rescue}except Exception:\n    result = [dict(title='Heat')]"),
        format!("{rescue}except Exception:\n    result = 'Heat, 1995'"),
        format!("{rescue}except Exception:\n    movies = 'Heat, 1995'\nresult = movies"),
    ] {
        check(Python, &source, &[HardcodedExternalFallbackSuccess]);
    }
    for source in [
        "MOVIES = ['Heat'].freeze\nbegin\n  tool('fetcher').get(args[0])\nrescue => e\n  MOVIES\nend",
        "MOVIES = ['Heat']\nbegin\n  tool('fetcher').get(args[0])\nrescue => e\n  MOVIES\nend",
        "m = tool('fetcher').get(args[0]).value || ['Heat']\n{ movies: m }",
        "m = tool('fetcher').get(args[0]).value\nm ||= ['Heat']\nm",
        "m = tool('fetcher').get(args[0]).value\nm.fetch(:movies) { ['Heat'] }",
        "m = tool('fetcher').get(args[0]).value\nm.fetch(:movies, ['Heat'])",
        "tool('fetcher').get(args[0]).value_or(['Heat'])",
        "tool('fetcher').get(args[0]) rescue ['Heat']",
        "m = tool('fetcher').get(args[0]) rescue ['Heat']\nm",
        "begin\n  tool('fetcher').get(args[0])\nrescue StandardError\n  'Heat, 1995'\nend",
    ] {
        check(Ruby, source, &[HardcodedExternalFallbackSuccess]);
    }
    for source in [
        "page = tool('web_fetcher').fetch(args[0])\nfallback_movies = [{ title: 'Heat' }]\nOutcome.ok(fallback_movies)",
        "require 'net/http'\nbegin\n  Net::HTTP.get(URI(args[0]))\nrescue StandardError\n  ['Heat']\nend",
        "movies = (tool('fetcher').get(args[0]).value rescue ['Heat'])\nOutcome.ok(movies: movies)",
        "fallback = ['Heat'] # never mind\nm = tool('fetcher').get(args[0]).value\nm = fallback if m.empty?\n{ movies: m }",
    ] {
        check(Ruby, source, &[HardcodedExternalFallbackSuccess]);
    }
    let passing = [
        (Python, format!("{rescue}except Exception as e:\n    result = Outcome.error('fetch_failed', str(e))")),
        (Python, format!("{rescue}except Exception as e:\n    result = {{'ok': False, 'error': 'network'}}")),
        (Python, format!("{rescue}except Exception:\n    result = []")),
        (Python, "fallback = ['a']\nresult = fallback".to_owned()),
        (Python, format!("columns = ['a', 'b']\n{rescue}except Exception:\n    raise\nresult = [movies, columns]")),
        (Ruby, "p = tool('fetcher').get(args[0])\nOutcome.error(error_type: 'low_utility', error_message: 'none')".to_owned()),
        (Ruby, "fallback_movies = ['Heat']\n'Net::HTTP'\nOutcome.ok(fallback_movies)".to_owned()),
        (Python, format!("fields = kwargs.get('fields') or ['title']\n{fetched}result = [r, fields]")),
        (Python, format!("fields = kwargs.get('fields', ['title'])\n{fetched}result = [r, fields]")),
        (Python, format!("{fetched}def add(x, fields=None):\n    fields = fields or ['title']\n    return [r, fields]")),
        (Python, format!("{fetched}result = r or []")),
        (Python, format!("{fetched}def price(text):\n    try:\n        return float(text)\n    except ValueError:\n        return 'n/a'\nresult = price(r)")),
        (Python, format!("{rescue}except Exception as e:\n    result = Outcome.error('fetch_failed', 'no answer')")),
        (Python, format!("{rescue}except Exception as e:\n    raise RuntimeError('no answer')")),
        (Ruby, "fields = kwargs[:fields] || ['title']\nm = tool('fetcher').get(args[0])\n[m, fields]".to_owned()),
        (Ruby, "fields = kwargs.fetch(:fields) { ['title'] }\nm = tool('fetcher').get(args[0])\n[m, fields]".to_owned()),
        (Ruby, "def add(x, fields: nil)\n  fields ||= ['title']\n  [tool('fetcher').get(x).value, fields]\nend".to_owned()),
        (Ruby, "m = tool('fetcher').get(args[0]).value || []\nm".to_owned()),
    ];
    for (language, source) in &passing {
        check(*language, source, &[]);
    }
}

#[test]
fn missing_external_provenance() {
    let sourced = json!({"items": [], "provenance": {"sources": [
        {"uri": "u", "fetched_at": "t", "retrieval_tool": "x", "retrieval_mode": " LIVE "}]}});
    let unsourced = json!({"items": [1]});
    let fetching = [
        (Python, "import requests as r\nresult = r.get(args[0]).json()"),
        (Python, "from urllib.request import urlopen as u\nresult = u(args[0])"),
        (Python, "result = tool('web_fetcher').fetch(args[0])"),
        (Ruby, "Net::HTTP.get(URI(args[0]))"),
        (Ruby, "\"#{1}\"; Net::HTTP.get(URI(args[0]))"),
        (Ruby, "URI.open(args[0]).read"),
        (Ruby, "delegate('page fetcher', purpose: 'p').get(args[0])"),
        (Python, "f = tool('web_fetcher')\nresult = f.fetch(args[0])"),
        (Python, "f = tool('web_fetcher')\nresult = list(map(f.fetch, args))"),
        (
            Python,
            "def get(f, url): return f.fetch(url)\nresult = get(tool('web_fetcher'), args[0])",
        ),
        (Python, "def f(): return tool('web_fetcher')\nresult = f().fetch(args[0])"),
        (Python, "import requests\nresult = requests.Session().get(args[0]).json()"),
        (
            Python,
            "import requests\nwith requests.Session() as s:\n    result = s.get(args[0]).json()",
        ),
        (Python, "import httpx\nresult = httpx.Client().get(args[0]).json()"),
        (Python, "import http.client\nc = http.client.HTTPSConnection('x')\nc.request('GET', '/')"),
        (Python, "from http.client import HTTPConnection as C\nC('x').request('GET', '/')"),
        (Python, "import urllib.request as u\nresult = u.build_opener().open(args[0]).read()"),
        (Ruby, "require 'open-uri'\nURI(args[0]).open.read"),
        (Ruby, "require 'open-uri'\nuri = URI.parse(args[0])\nuri.open { |page| page.read }"),
        (Ruby, "require 'open-uri'\nURI(args[0]).read"),
        (
            Ruby,
            "uri = URI(args[0])\nNet::HTTP.start(uri.host) { |h| h.request(Net::HTTP::Get.new(uri)) }",
        ),
        (Ruby, "f = tool(:web_fetcher)\nargs.map { |url| f.fetch(url).value }"),
        (Ruby, "TCPSocket.open('x', 80) { |s| s.read }"),
        (Ruby, "Socket.tcp('x', 80) { |s| s.read }"),
    ];
    for (language, source) in fetching {
        let inspection = inspect(language, source).unwrap();
        let violation = check_provenance(&inspection, &unsourced).expect(source);
        assert_eq!(violation.rule, MissingExternalProvenance);
        assert_eq!(check_provenance(&inspection, &sourced), None, "{source}");
    }
    let local = [
        (Python, "import urllib.parse\nresult = urllib.parse.quote('requests.get')"),
        (
            Python,
            "import requests\ntry:\n    result = 1\nexcept requests.exceptions.HTTPError:\n    raise",
        ),
        (Ruby, "'use Net::HTTP and require \"net/http\"'"),
        (Ruby, "URI.parse(args[0]).host # Net::HTTP"),
        (Ruby, "tool('formatter').format('fetch')"),
        (Python, "import urllib.request\nresult = urllib.request.quote(args[0])"),
        (
            Python,
            "from urllib.request import Request, pathname2url\nresult = pathname2url(args[0])",
        ),
        (Python, "import requests\nresult = requests.Request('GET', args[0]).url"),
        (Python, "import http.client\nresult = http.client.HTTPException('x').args"),
        (Python, "delegate('page fetcher', purpose='p')\nresult = 1"),
        (
            Python,
            "f = delegate('page fetcher', purpose='p')\nresult = tool('formatter').format(args[0])",
        ),
        (Ruby, "require 'socket'\nSocket.gethostname"),
        (Ruby, "Net::HTTP::Get.new(args[0]).path"),
        (Ruby, "delegate('page fetcher', purpose: 'p')\n1"),
        (Ruby, "URI(args[0]).host"),
        (
            Ruby,
            "f = delegate('page fetcher', purpose: 'p')\ntool('formatter').format(args[0]).value",
        ),
    ];
    for (language, source) in local {
        let inspection = inspect(language, source).unwrap();
        assert_eq!(check_provenance(&inspection, &unsourced), None, "{source}");
    }
    let inspection = inspect(Ruby, "Net::HTTP.get(1)").unwrap();
    for bad in ["uri", "fetched_at", "retrieval_tool", "retrieval_mode"] {
        let mut value = sourced.clone();
        value["provenance"]["sources"][0][bad] = json!(" ");
        assert!(check_provenance(&inspection, &value).is_some(), "{bad}");
    }
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
    use Cacheability::{
        ArgIgnoredCode, DelegatedContractTool, DynamicDispatchMethod, StableMethodDefault,
    };
    let baked = Cacheability::InputBakedCode;
    let cases = [
        (Python, "result = 100 * 2", json!([100]), baked),
        (Python, "result = 100.0 * 2", json!([100]), baked),
        (Python, "result = -40 * 2", json!([-40]), baked),
        (Python, "url = 'https://x/?q=Ada Lovelace'\nresult = url", json!(["Ada Lovelace"]), baked),
        (Python, "result = f'Hi Ada Lovelace {1}'", json!([{"name": "Ada Lovelace"}]), baked),
        (Python, "args = [100]\nresult = args[0]", json!([100]), baked),
        (Python, "def add(x): return 100\nresult = add(100)", json!([100]), baked),
        (Python, "def other(x): return x\nresult = other(100)", json!([100]), baked),
        (
            Python,
            "class C:\n    def add(self, x): return x\nresult = C().add(100)",
            json!([100]),
            baked,
        ),
        (Python, "result = args[0] + 100", json!([100]), StableMethodDefault),
        (Python, "def add(x): return x + 100", json!([100]), StableMethodDefault),
        (Python, "def add(self, *rest): return sum(rest) + 100", json!([100]), StableMethodDefault),
        (Python, "def add(context, x=100): return x", json!([100]), StableMethodDefault),
        (Python, "'''adds 100'''\nresult = 1", json!(["adds 100"]), ArgIgnoredCode),
        (Python, "result = {'total': 3}", json!(["total"]), ArgIgnoredCode),
        (
            Python,
            "result = [0, 1, -1, '', True, None]",
            json!([0, 1, -1, "", true, null]),
            ArgIgnoredCode,
        ),
        (Python, "context['n'] = context.get('n', 0) + 5", json!([7]), ArgIgnoredCode),
        (Python, "result = 'argsort'", json!([7]), ArgIgnoredCode),
        (Ruby, "100 * 2", json!([100]), baked),
        (Ruby, ":celsius", json!(["celsius"]), baked),
        (Ruby, "'args'; 100", json!([100]), baked),
        (Ruby, "\"Hi Ada Lovelace #{1}\"", json!(["Ada Lovelace"]), baked),
        (Ruby, "args = [100]; args[0]", json!([100]), baked),
        (
            Ruby,
            "123456789012345678901234567890",
            serde_json::from_str("[123456789012345678901234567890]").unwrap(),
            baked,
        ),
        (Ruby, "\"#{args[0]} 100\"", json!([100]), StableMethodDefault),
        (Ruby, "def add(x) = x + 100", json!([100]), StableMethodDefault),
        (Ruby, "def add(ctx, by: 100)\n  ctx[:n] + by\nend", json!([100]), StableMethodDefault),
        (Ruby, "{ total: 3 }", json!(["total"]), ArgIgnoredCode),
        (Ruby, "context[:n] = 5", json!([7]), ArgIgnoredCode),
        (Ruby, "<<~TEXT\n  100\nTEXT", json!([100]), ArgIgnoredCode),
    ];
    for (language, source, args, expected) in cases {
        let call = Call::with(&args);
        let inspection = inspect(language, source).unwrap();
        let subject = call.subject(language, &inspection);
        assert_eq!(cacheability(&subject, false), expected, "{source}");
        let rules = if expected == baked { &[InputBakedCode][..] } else { &[] };
        check_call(language, source, &call, rules);
    }
    let inspection = inspect(Ruby, "1").unwrap();
    let (call, method) = (Call::default(), "Ask");
    let subject = call.subject(Ruby, &inspection);
    assert_eq!(cacheability(&subject, true), DelegatedContractTool);
    assert_eq!(cacheability(&Subject { method, ..subject }, true), DynamicDispatchMethod);
}

#[test]
fn state_key_drift() {
    let state = |method: &str, reads: &[&str], writes: &[&str]| SiblingState {
        method: method.to_owned(),
        reads: reads.iter().map(|&key| key.to_owned()).collect(),
        writes: writes.iter().map(|&key| key.to_owned()).collect(),
    };
    let call = Call {
        siblings: vec![
            state("increment", &["value"], &["value"]),
            state("value=", &[], &["value"]),
        ],
        ..Call::default()
    };
    for (language, source) in [
        (Python, "result = context['total']"),
        (Python, "context['total'] = context.get('total', 0) + args[0]"),
        (Python, "context['total'] += args[0]"),
        (Python, "remember(total=args[0])"),
        (Ruby, "memory[:total]"),
        (Ruby, "context[:total] ||= 0\ncontext[:total] += args[0]"),
        (Ruby, "def add(ctx, x)\n ctx[:sum] = ctx.fetch(:sum, 0) + x\nend"),
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
    ] {
        check_call(language, source, &call, &[]);
    }
    let inspection = inspect(Ruby, "context[:total]").unwrap();
    let violations = examine(&call.subject(Ruby, &inspection), &GuardrailPolicy::default());
    assert!(violations[0].required_correction.contains("`value`"), "{violations:?}");
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
        assert_eq!(examine(&call.subject(language, &inspection), &policy), [], "{source}");
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
    ] {
        check(language, source, &[MissingCredentials]);
    }
    for (language, source) in [
        (Python, "import os\nresult = os.environ['HOME'] + os.environ['KEYBOARD']"),
        (Python, "import os\nresult = os.environ.get('API_KEY') or os.getenv('API_TOKEN')"),
        (Python, "import os\nresult = 'API_KEY' in os.environ"),
        (Python, "import os\nos.environ['API_KEY'] = args[0]"),
        (Python, "result = \"os.environ['API_KEY']\""),
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
    for (rule, name) in Rule::ALL.into_iter().zip(names) {
        assert_eq!(Rule::from_subtype(name), Some(rule));
        assert_eq!(serde_json::to_value(rule).unwrap(), json!(name));
        let kind = rule.violation_type();
        assert_eq!(serde_json::to_value(kind).unwrap(), json!(kind.name()));
        let told = RULES.iter().any(|row| row.rule == rule);
        assert_eq!(told, rule != MissingExternalProvenance, "{name} has a row");
    }
    let inspection = inspect(Ruby, "x = 1\n  system('ls')").unwrap();
    let call = Call::default();
    let violation =
        examine(&call.subject(Ruby, &inspection), &GuardrailPolicy::default()).remove(0);
    assert_eq!(violation.location, Some(Position { line: 2, column: 3 }));
    let class = |policy: &GuardrailPolicy| violation.severity(policy).guardrail_class();
    assert_eq!(class(&GuardrailPolicy::default()), "recoverable_guardrail");
    let terminal = GuardrailPolicy { terminal: vec![ProcessEscape], ..GuardrailPolicy::default() };
    assert_eq!(class(&terminal), "terminal_guardrail");
}
