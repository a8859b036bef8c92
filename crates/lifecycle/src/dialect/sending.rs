//! Finds programs that may send something that changes the outside, such as a POST request: a retry must not send it again.
//!
//! The syntax tree and the table of library facts decide. A program that reaches the network only reads if every network
//! call in it is known to read. A computed HTTP verb, a computed name or an unknown function of a network library
//! counts as sending.

use std::collections::BTreeSet;

use super::library::{
    DYNAMIC, LibraryUse, NETWORK, NETWORK_LIBRARY, PROCESS, SEND, SEND_METHOD, SENDS_UNCALLED,
    SOCKET, TAKES_VERB, UNSEEN_CODE, WRITE_METHOD,
};
use super::{
    AssignmentStatement, CallExpression, Definition, DefinitionKind, Inspection, Operand, Target,
    UseKind,
};

/// Names of sending calls that are reported.
const MAX_NAMES: usize = 4;

impl Inspection {
    /// Whether the program may send something that changes the outside.
    pub fn may_send(&self) -> bool {
        let is_network_program = self.uses_any(NETWORK) || self.imports_network();
        let sends_indirectly = || {
            self.uses_any(SEND_METHOD.union(DYNAMIC).union(PROCESS))
                || self.passes_sender()
                || self.changes_request()
        };
        self.uses_any(SEND)
            || (self.uses_any(SOCKET) && self.calls_any(WRITE_METHOD))
            || (is_network_program && sends_indirectly())
    }

    /// Whether the program may send something, where the runtime does not observe its connections. Code that is not in its
    /// text, such as an argument of `eval`, may do anything.
    pub fn may_send_unobserved(&self) -> bool {
        self.may_send() || self.calls_any(UNSEEN_CODE)
    }

    /// Whether the program reaches the network only by calls that are known to read.
    pub fn only_reads(&self) -> bool {
        self.uses_any(NETWORK) && !self.may_send()
    }

    /// The names of the calls that may send something: each once, at most [`MAX_NAMES`].
    pub fn sending_calls(&self) -> Vec<String> {
        let mut facts = SEND.union(SEND_METHOD).union(DYNAMIC).union(PROCESS);
        if self.uses_any(SOCKET) {
            facts = facts.union(WRITE_METHOD);
        }
        let named = |call: &CallExpression| call.path().unwrap_or_else(|| call.name.clone());
        let called = self.calls_with(facts).map(|(call, _)| named(call));
        let mentioned = self.library.iter().filter(|it| it.facts.any(SEND.union(SEND_METHOD)));
        let mentioned = mentioned.filter(|it| it.kind == UseKind::Named).map(|it| it.name.clone());
        let names: BTreeSet<String> = called.chain(mentioned).collect();
        names.into_iter().take(MAX_NAMES).collect()
    }

    fn imports_network(&self) -> bool {
        let is_import = |it: &LibraryUse| it.kind == UseKind::Imported;
        self.library.iter().any(|it| it.facts.any(NETWORK_LIBRARY) && is_import(it))
    }

    /// Whether a function that sends something, or that takes the HTTP verb as an argument, is used as a value.
    fn passes_sender(&self) -> bool {
        let with = |facts| self.library.iter().filter(move |it: &&LibraryUse| it.facts.any(facts));
        let verb_functions: BTreeSet<&str> = with(TAKES_VERB).map(|it| it.name.as_str()).collect();
        let uncalled = |name: &&str| {
            let uses = |is: fn(&UseKind) -> bool| {
                self.library.iter().filter(|it| it.name == **name && is(&it.kind)).count()
            };
            uses(|kind| *kind == UseKind::Named) > uses(|kind| matches!(kind, UseKind::Called(_)))
        };
        // `partial(urlopen, data=body)`, `submit(urlopen, url, body)`
        let passes_body = |call: &CallExpression| {
            let mut given = call
                .arguments
                .iter()
                .skip_while(|it| it.value.path() != Some("urllib.request.urlopen"));
            given.next().is_some() && (call.keyword("data").is_some() || given.count() > 1)
        };
        verb_functions.iter().any(uncalled)
            || with(SENDS_UNCALLED).any(|it| it.kind == UseKind::Taken)
            || self.calls.iter().any(passes_body)
    }

    /// Whether the HTTP verb or the body of a request is set after it was made.
    fn changes_request(&self) -> bool {
        let sets = |target: &Target| match target {
            Target::Attribute { name, .. }
                if matches!(name.as_str(), "get_method" | "method" | "METHOD") =>
            {
                true
            }
            Target::Attribute { object, name } => name == "data" && is_request(object),
            Target::Name(_) | Target::Item { .. } => false,
        };
        self.defines("get_method")
            || self.defines("method")
            || self.assignments.iter().any(|it| sets(&it.target))
            || self.defines_request_class()
            || self.calls.iter().any(|call| call.name == "instance_variable_set")
    }

    /// Whether a class of the program sets the verb of its requests: `METHOD = "DELETE"` in Ruby, `method = "DELETE"`
    /// in Python.
    fn defines_request_class(&self) -> bool {
        let is_class = |it: &Definition| it.kind == DefinitionKind::Class;
        let sets_verb = |it: &AssignmentStatement| match &it.target {
            Target::Name(name) => {
                matches!(name.rsplit("::").next(), Some("METHOD" | "method"))
            }
            Target::Attribute { .. } | Target::Item { .. } => false,
        };
        let makes_class = self.definitions.iter().any(is_class)
            || self.calls.iter().any(|call| call.path().as_deref() == Some("Class.new"));
        makes_class && self.assignments.iter().any(sets_verb)
    }
}

/// Whether this may be a request of `urllib`: it is one, or it is unknown and its name begins with `req`.
fn is_request(object: &Operand) -> bool {
    match object.resolved() {
        Operand::Instance(Some(class)) => &**class == "urllib.request.Request",
        Operand::Unknown => object.name().is_some_and(|name| name.starts_with("req")),
        Operand::Context
        | Operand::Tools
        | Operand::ToolEntry
        | Operand::ToolItem
        | Operand::ToolItems
        | Operand::Agent(_)
        | Operand::Remembered
        | Operand::Path(_)
        | Operand::Function
        | Operand::Instance(None)
        | Operand::Literal(_)
        | Operand::Variable { .. }
        | Operand::Group(_)
        | Operand::Fallback(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::dialect::Language::{self, Python, Ruby};
    use crate::dialect::inspect;

    fn check(language: Language, sends: bool, sources: &[&str]) {
        for source in sources {
            let inspection = inspect(language, source).unwrap();
            assert_eq!(inspection.may_send(), sends, "{source}\n{:#?}", inspection.library);
        }
    }

    #[test]
    fn python_programs_that_may_send_are_found() {
        check(
            Python,
            true,
            &[
                "import requests\nresult = requests.post(args[0], json={}).status_code",
                "import requests\ns = requests.Session()\ns.put(args[0])",
                "import requests\nwith requests.Session() as s:\n    s.post(args[0])",
                "import requests\nresult = requests.request('POST', args[0])",
                "import requests\nresult = requests.request(args[1], args[0])",
                "import requests\nresult = requests.request(url=args[0], **args[1])",
                "import requests\nresult = requests.api.post(args[0])",
                "import requests\nresult = getattr(requests, args[0])(args[1])",
                "import requests\nresult = getattr(requests, 'post')(args[1])",
                "import requests\nresult = {'POST': requests.post}[args[0]](args[1])",
                "import requests\nresult = list(map(requests.post, args))",
                "import requests, functools\nresult = functools.partial(requests.request, 'POST')(args[0])",
                "import requests\nresult = requests.brand_new(args[0])",
                "import requests\nresult = requests.Session().brand_new(args[0])",
                "import requests\ns = requests.Session()\nresult = s.send(requests.Request(args[1], args[0]).prepare())",
                "import urllib.request as u\nu.urlopen(args[0], data=b'x')",
                "import urllib.request as u\nu.urlopen(u.Request(args[0], method='DELETE'))",
                "import urllib.request as u\nu.urlopen(u.Request(args[0], method=args[1]))",
                "import urllib.request as u\nu.urlopen(u.Request(args[0], **args[1]))",
                "import urllib.request as u\nif args[1]:\n    verb = 'DELETE'\nelse:\n    verb = 'GET'\nu.urlopen(u.Request(args[0], method=verb))",
                "import urllib.request as u\nclass Purge(u.Request):\n    method = 'DELETE'\nu.urlopen(Purge(args[0]))",
                "import urllib.request as u\nclass Purge(u.Request):\n    def get_method(self):\n        return 'DELETE'\nu.urlopen(Purge(args[0]))",
                "import urllib.request as u\nreq = u.Request(args[0])\nreq.data = b'x'\nu.urlopen(req)",
                "import urllib.request as u\nreq = u.Request(args[0])\nreq.method = args[1]\nu.urlopen(req)",
                "import urllib.request as u\nreq = u.Request(args[0])\nreq.get_method = lambda: 'PUT'\nu.urlopen(req)",
                "import http.client as h\nc = h.HTTPConnection('x')\nc.request('POST', '/')",
                "import http.client as h\nc = h.HTTPConnection('x')\nc.request(args[0], '/')",
                "import http.client as h\nc = h.HTTPConnection('x')\ngetattr(c, 'request')('POST', '/')",
                "import http.client as h\nc = h.HTTPConnection('x')\nc.request('GET', '/')\ngetattr(c, 'request')('POST', '/')",
                "import http.client as h\nc = h.HTTPConnection('x')\ngo = c.request\ngo('POST', '/')",
                "import http.client as h\ndef go(c, verb):\n    c.request(verb, '/')\ngo(h.HTTPConnection('x'), 'POST')",
                "import smtplib\nwith smtplib.SMTP('x') as s:\n    s.sendmail('a', 'b', 'c')",
                "import socket\ns = socket.create_connection(('x', 1))\ns.sendall(b'x')",
                "import socket\ns = socket.socket()\ns.connect(('x', 1))\nf = s.makefile('wb')\nf.write(b'x')",
                "import asyncio\nasync def go():\n    r, w = await asyncio.open_connection('x', 1)\n    w.write(b'x')",
                "import importlib\nm = importlib.import_module('requ' + 'ests')\nimport socket\nm.post(args[0])",
                "import slack_sdk\nslack_sdk.WebClient('t').chat_postMessage(channel='c')",
            ],
        );
    }

    #[test]
    fn code_that_the_text_does_not_show_may_send() {
        for (language, source, sends) in [
            (Python, "exec(args[0])", true),
            (Python, "result = eval(args[0])", true),
            (Python, "m = __import__('req' + 'uests')", true),
            (Python, "import json\nresult = json.loads(args[0])", false),
            (Python, "m = __import__('json')\nresult = m.dumps(1)", false),
            (Ruby, "eval(args[0])", true),
            (Ruby, "require args[0]", true),
            (Ruby, "require 'json'\nJSON.parse(args[0])", false),
        ] {
            let inspection = inspect(language, source).unwrap();
            assert_eq!(inspection.may_send_unobserved(), sends, "{source}");
            assert!(!inspection.may_send(), "{source}");
        }
    }

    #[test]
    fn python_programs_that_only_read_are_known() {
        check(
            Python,
            false,
            &[
                "import requests\nresult = requests.get(args[0]).json()",
                "import requests\nresult = requests.get(args[0], params={'a': 1}, timeout=5).json()",
                "import requests\nresult = requests.request('get', args[0])",
                "import requests\ntry:\n    r = requests.get(args[0])\n    r.raise_for_status()\nexcept requests.exceptions.RequestException as e:\n    r = None",
                "import requests\ns = requests.Session()\ns.headers.update({'a': 'b'})\nresult = s.get(args[0]).text",
                "import urllib.request as u\nu.urlopen(args[0], timeout=3)",
                "import urllib.request as u\nu.urlopen(u.Request(args[0], method='HEAD'))",
                "import urllib.request as u\nu.urlopen(u.Request(args[0], headers={'a': 'b'}))",
                "from urllib.request import urlopen\nfrom concurrent.futures import ThreadPoolExecutor\n\
             with ThreadPoolExecutor() as pool:\n    result = list(pool.map(urlopen, args[0]))",
                "import http.client as h\nc = h.HTTPConnection('x')\nc.request('GET', '/')\nr = c.getresponse()",
                "import socket\nsocket.create_connection(('x', 1)).close()",
                "import urllib.request as u, json\nd = json.load(u.urlopen(args[0]))\nn = getattr(d, 'name', None)\nd.pop('x')",
                "queue = args[0]\nqueue.post(1)\nqueue.put(2)",
                "import queue, requests\nq = queue.Queue()\nq.put(requests.get(args[0]).text)",
            ],
        );
    }

    #[test]
    fn ruby_programs_that_may_send_are_found() {
        check(
            Ruby,
            true,
            &[
                "require 'net/http'\nNet::HTTP.post(URI(args[0]), 'x')",
                "require 'net/http'\nNet::HTTP.start('x') { |h| h.request(Net::HTTP::Post.new('/')) }",
                "require 'net/http'\nNet::HTTP.start('x') { |h| h.put('/', 'x') }",
                "require 'net/http'\nhttp = Net::HTTP.new('x')\nhttp.delete('/')",
                "require 'net/http'\nk = {'POST' => Net::HTTP::Post}[args[0]]\nNet::HTTP.new('x').request(k.new('/'))",
                "require 'net/http'\nk = Net::HTTP.const_get(args[0])\nNet::HTTP.new('x').request(k.new('/'))",
                "require 'net/http'\nk = Object.const_get('Net').const_get('HTTP')\nk.get(URI(args[0]))",
                "require 'net/http'\nNet::HTTP.public_send(:post, URI(args[0]), 'x')",
                "require 'net/http'\nNet::HTTP.public_send(args[1], URI(args[0]), 'x')",
                "require 'net/http'\nNet::HTTP.method(args[1]).call(URI(args[0]), 'x')",
                "require 'net/http'\nr = Net::HTTPGenericRequest.new(args[0], true, true, '/')\nNet::HTTP.new('x').request(r)",
                "require 'net/http'\nNet::HTTP.new('x').send_request(args[0], '/')",
                "require 'net/http'\ndef go(http, path) = http.put(path, 'x')\ngo(Net::HTTP.new('x'), '/')",
                "require 'net/http'\nNet::HTTP.brand_new(URI(args[0]))",
                "require 'net/http'\nclass Purge < Net::HTTP::Get\n  METHOD = 'DELETE'\nend\nNet::HTTP.start('x') { |h| h.request(Purge.new('/')) }",
                "require 'net/http'\nPurge = Class.new(Net::HTTP::Get) { self::METHOD = 'DELETE' }\nNet::HTTP.start('x') { |h| h.request(Purge.new('/')) }",
                "require 'net/http'\nclass Purge < Net::HTTP::Get\n  def method = 'DELETE'\nend\nNet::HTTP.start('x') { |h| h.request(Purge.new('/')) }",
                "require 'net/http'\nr = Net::HTTP::Get.new('/')\nr.instance_variable_set(:@method, 'DELETE')\nNet::HTTP.start('x') { |h| h.request(r) }",
                "require 'socket'\ns = TCPSocket.new('x', 1)\ns.puts 'x'",
                "require 'socket'\nSocket.tcp('x', 1) { |s| s << 'x' }",
                "require 'socket'\ndef say(s) = s.write('x')\nsay(TCPSocket.new('x', 1))",
            ],
        );
    }

    #[test]
    fn ruby_programs_that_only_read_are_known() {
        check(
            Ruby,
            false,
            &[
                "require 'net/http'\nNet::HTTP.get(URI(args[0]))",
                "require 'net/http'\nres = Net::HTTP.get_response(URI(args[0]))\nres.is_a?(Net::HTTPSuccess) ? res.body : nil",
                "require 'net/http'\nNet::HTTP.start('x') { |h| h.request(Net::HTTP::Get.new('/')) }",
                "require 'net/http'\nres = Net::HTTP.start('x') { |h| h.get('/') }\nres.body",
                "require 'net/http'\nhttp = Net::HTTP.new('x')\nhttp.use_ssl = true\nhttp.request(Net::HTTP::Head.new('/')).code",
                "require 'net/http'\nrequire 'json'\nd = JSON.parse(Net::HTTP.get(URI(args[0])))\nd.delete('x')\nd",
                "require 'open-uri'\nURI.open(args[0]).read",
                "require 'socket'\nTCPSocket.new('x', 1).close",
                "h = {}\nh.delete(1)\nh.post(2)",
            ],
        );
    }
}
