//! Good programs are never lost: failures of the world and of the caller do not count against a stored program, are not
//! repaired by a model, and reach the caller as what they are. Real workers, both guests.
#![cfg(test)]

mod calls;
mod classes;
mod counts;
mod files;
#[path = "../common/fixture.rs"]
mod fixture;
mod handled;
mod services;
mod situations;
mod typos;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lifecycle::artifact::ArtifactKey;
use lifecycle::contract::Fingerprint;
use lifecycle::draft::DraftFault;
use lifecycle::request::{Method, Role};
use recurgent::{Agent, Arguments, Outcome};
use serde_json::{Value, json};

use fixture::{GuestFixture, check, code};

impl GuestFixture {
    /// An agent whose programs may use this network.
    fn agent(&self, role: &str, network: &str) -> Agent {
        let runtime = self.runtime(&[("network", network)]);
        runtime.agent(role).guest(self.language).build().unwrap()
    }

    /// Queues a fault: the next request of the model finds no key.
    fn refuse_model_key(&self, key: &str) {
        self.model.add_fault(key, DraftFault::Auth("no key".into()));
    }

    /// Failures counted against the programs of a method without a contract.
    fn failures(&self, role: &str, method: &str) -> u32 {
        let key = ArtifactKey {
            role: Role::parse(role).unwrap(),
            method: Method::parse(method).unwrap(),
            language: self.language,
            contract_fingerprint: Fingerprint::none(),
        };
        let versions = self.runtime(&[]).store().versions(&key).unwrap();
        assert!(!versions.is_empty());
        versions.iter().map(|version| version.artifact.failures).sum()
    }
}

fn metadata<'a>(outcome: &'a Outcome, key: &str) -> Option<&'a str> {
    outcome.failure()?.metadata.get(key)?.as_str()
}

/// A port on loopback at which nothing listens.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The log names what the failure of the call is attributed to, not that of its last attempt.
#[test]
fn the_log_blames_as_the_outcome_does() {
    check(|fixture| {
        fixture.writes("c.add", "def add(x):\n    return 5 + x", "def add(x) = 5 + x");
        let agent = fixture.agent("c", "off");
        agent.call("add", (3,)).unwrap();
        fixture.refuse_model_key("c.add");
        let outcome = agent.call("add", ("foo",)).unwrap();
        assert_eq!(metadata(&outcome, "blame"), Some("caller"), "{outcome:?}");
        let named = |field: &str| -> Vec<Value> {
            fixture.log().iter().map(|entry| entry[field].clone()).collect()
        };
        assert_eq!(named("blame"), [Value::Null, json!("caller")]);
        assert_eq!(named("failure_class"), [Value::Null, json!("adaptive")]);
    });
}

#[test]
fn an_argument_that_is_missing_costs_no_model_call() {
    check(|fixture| {
        fixture.writes("c.area", "def area(w, h):\n    return w * h", "def area(w, h) = w * h");
        let agent = fixture.agent("c", "off");
        assert_eq!(agent.call("area", (2, 3)).unwrap().value(), Some(&json!(6)));
        let outcome = agent.call("area", (2,)).unwrap();
        assert_eq!(code(&outcome), "invalid_call", "{outcome:?}");
        assert_eq!(metadata(&outcome, "parameters"), Some("w, h"));
        assert_eq!(fixture.asked(), 1);
        assert_eq!(fixture.failures("c", "area"), 0);
    });
}

/// A mistyped keyword is never passed on as something else: directly and through another agent.
#[test]
fn a_mistyped_keyword_is_not_another_argument() {
    const GREET: (&str, &str) = (
        "def greet(name, greeting='Hi'):\n    return f'{greeting} {name}'",
        "def greet(name, greeting = 'Hi') = \"#{greeting} #{name}\"",
    );
    let keyword = |name: &str, value: Value, args: &[Value]| {
        let kwargs = [(name.to_owned(), value)].into_iter().collect();
        Arguments { args: args.to_vec(), kwargs }
    };
    check(|fixture| {
        fixture.writes("c.greet", GREET.0, GREET.1);
        fixture.writes("helper.greet", GREET.0, GREET.1);
        fixture.writes(
            "boss.greet",
            "def greet(who):\n    helper = delegate('helper', purpose='greet')\n    \
             return [helper.greet(who).value, helper.greet(nam=who).error_type]",
            "def greet(who)\n  helper = delegate('helper', purpose: 'greet')\n  \
             [helper.greet(who).value, helper.greet(nam: who).error_type]\nend",
        );
        let runtime = fixture.runtime(&[]);
        let agent = runtime.agent("c").guest(fixture.language).widen(false).build().unwrap();
        let ada = [json!("Ada")];
        let right = agent.call("greet", keyword("greeting", json!("Hello"), &ada)).unwrap();
        assert_eq!(right.value(), Some(&json!("Hello Ada")), "{right:?}");
        for wrong in [keyword("greting", json!("Hello"), &ada), keyword("nam", json!("Ada"), &[])] {
            let outcome = agent.call("greet", wrong).unwrap();
            assert_eq!(code(&outcome), "invalid_call", "{outcome:?}");
            assert_eq!(metadata(&outcome, "blame"), Some("caller"));
            assert_eq!(metadata(&outcome, "parameters"), Some("name, [greeting]"));
        }
        assert_eq!((fixture.asked(), fixture.failures("c", "greet")), (1, 0));
        let delegated = fixture.agent("boss", "off").call("greet", ("Ada",)).unwrap();
        assert_eq!(delegated.value(), Some(&json!(["Hi Ada", "invalid_call"])), "{delegated:?}");
    });
}

/// Answers `count` requests with an empty success, on a port of its own.
fn serve(
    listener: TcpListener,
    count: usize,
    served: Arc<AtomicUsize>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            while !seen.windows(4).any(|it| it == b"\r\n\r\n") {
                let read = stream.read(&mut buffer).unwrap();
                seen.extend_from_slice(&buffer[..read]);
                if read == 0 {
                    break;
                }
            }
            served.fetch_add(1, Ordering::SeqCst);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
                .unwrap();
        }
    })
}

#[test]
fn a_service_that_is_down_does_not_cost_a_program() {
    check(|fixture| {
        fixture.writes(
            "web.fetch",
            "import urllib.request\ndef fetch(url):\n    return {'text': urllib.request.urlopen(url).read().decode(), \
             'provenance': {'sources': [{'uri': url, 'fetched_at': 'now', 'retrieval_tool': 'urllib', 'retrieval_mode': 'live'}]}}",
            "require 'net/http'\ndef fetch(url) = { 'text' => Net::HTTP.get(URI(url)), \
             'provenance' => { 'sources' => [{ 'uri' => url, 'fetched_at' => 'now', 'retrieval_tool' => 'net/http', 'retrieval_mode' => 'live' }] } }",
        );
        let agent = fixture.agent("web", "loopback");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}/");
        let server = serve(listener, 1, Arc::default());
        let up = agent.call("fetch", (url.as_str(),)).unwrap();
        assert_eq!(up.value().map(|value| &value["text"]), Some(&json!("hi")), "{up:?}");
        server.join().unwrap();
        for _ in 0..4 {
            let down = agent.call("fetch", (url.as_str(),)).unwrap();
            assert_eq!(code(&down), "service_unavailable", "{down:?}");
            assert_eq!(metadata(&down, "host"), Some("127.0.0.1"));
            assert_eq!(metadata(&down, "blame"), Some("world"));
        }
        let ungranted = fixture.agent("web", "off").call("fetch", (url.as_str(),)).unwrap();
        assert_eq!(code(&ungranted), "unsupported_capability", "{ungranted:?}");
        assert_eq!(metadata(&ungranted, "grant"), Some("--network 127.0.0.1"));
        let server = serve(TcpListener::bind(address).unwrap(), 1, Arc::default());
        let again = agent.call("fetch", (url.as_str(),)).unwrap();
        assert!(again.is_ok(), "{again:?}");
        server.join().unwrap();
        assert_eq!((fixture.asked(), fixture.failures("web", "fetch")), (1, 0));
    });
}

#[test]
fn a_file_that_is_not_granted_is_named() {
    check(|fixture| {
        fixture.writes(
            "files.size",
            "def size(path):\n    with open(path) as file:\n        return len(file.read())",
            "def size(path) = File.read(path).size",
        );
        let outcome = fixture.agent("files", "off").call("size", ("/srv/sales.csv",)).unwrap();
        assert_eq!(code(&outcome), "unsupported_capability", "{outcome:?}");
        assert_eq!(metadata(&outcome, "grant"), Some("--read /srv/sales.csv"));
        assert_eq!(fixture.asked(), 1, "no other program could read it");
    });
}

#[test]
fn a_failed_call_of_another_agent_counts_there() {
    check(|fixture| {
        fixture.writes(
            "boss.total",
            "def total(x):\n    adder = delegate('adder', purpose='add five')\n    return adder.add(x).value + 1",
            "def total(x)\n  adder = delegate('adder', purpose: 'add five')\n  adder.add(x).value + 1\nend",
        );
        fixture.writes("adder.add", "def add(x):\n    return 5 + x", "def add(x) = 5 + x");
        let agent = fixture.agent("boss", "off");
        assert_eq!(agent.call("total", (3,)).unwrap().value(), Some(&json!(9)));
        for _ in 0..4 {
            fixture.refuse_model_key("adder.add");
            let outcome = agent.call("total", ("foo",)).unwrap();
            assert_eq!(code(&outcome), "execution", "{outcome:?}");
            assert_eq!(metadata(&outcome, "blame"), Some("world"), "{outcome:?}");
        }
        assert_eq!(fixture.failures("boss", "total"), 0);
        assert_eq!(agent.call("total", (4,)).unwrap().value(), Some(&json!(10)));
    });
}

#[test]
fn a_program_that_reports_the_failure_of_another_agent_is_not_to_blame() {
    check(|fixture| {
        fixture.writes(
            "boss.read",
            "def read(x):\n    answer = delegate('reader', purpose='read').get(x)\n    if not answer.ok:\n        \
             raise RuntimeError(answer.error_message)\n    return answer.value",
            "def read(x)\n  answer = delegate('reader', purpose: 'read').get(x)\n  raise answer.error_message unless answer.ok?\n  \
             answer.value\nend",
        );
        fixture.writes(
            "reader.get",
            "def get(x):\n    return 'A' if x == 'a' else open(x).read()",
            "def get(x) = x == 'a' ? 'A' : File.read(x)",
        );
        let agent = fixture.agent("boss", "off");
        assert_eq!(agent.call("read", ("a",)).unwrap().value(), Some(&json!("A")));
        for _ in 0..4 {
            let outcome = agent.call("read", ("/srv/nothing",)).unwrap();
            assert_eq!(metadata(&outcome, "blame"), Some("world"), "{outcome:?}");
        }
        assert_eq!(fixture.failures("boss", "read"), 0);
        assert_eq!(agent.call("read", ("a",)).unwrap().value(), Some(&json!("A")));
    });
}

/// Programs that send and then fail: computed verbs, computed names, raw connections.
const SENDERS: &[(&str, &str)] = &[
    (
        "import urllib.request\ndef notify(url):\n    request = urllib.request.Request(url, data=b'x', method='POST')\n    \
         urllib.request.urlopen(request).read()\n    raise RuntimeError('after sending')",
        "require 'net/http'\ndef notify(url)\n  Net::HTTP.post(URI(url), 'x')\n  raise 'after sending'\nend",
    ),
    (
        "import http.client, urllib.parse\ndef notify(url):\n    where = urllib.parse.urlsplit(url)\n    \
         conn = http.client.HTTPConnection(where.hostname, where.port)\n    verb = 'PO' + 'ST'\n    \
         getattr(conn, 'request')(verb, '/', 'x')\n    conn.getresponse().read()\n    raise RuntimeError('after')",
        "require 'net/http'\ndef notify(url)\n  uri = URI(url)\n  kind = {'POST' => Net::HTTP::Post}['POST']\n  \
         Net::HTTP.start(uri.host, uri.port) { |http| http.request(kind.new('/'), 'x') }\n  raise 'after'\nend",
    ),
    (
        "import asyncio, urllib.parse\nasync def go(where):\n    \
         reader, writer = await asyncio.open_connection(where.hostname, where.port)\n    \
         writer.write(b'POST / HTTP/1.0\\r\\n\\r\\n')\n    await reader.read()\ndef notify(url):\n    \
         asyncio.run(go(urllib.parse.urlsplit(url)))\n    raise RuntimeError('after')",
        "require 'net/http'\ndef notify(url)\n  uri = URI(url)\n  client = Object.const_get('Net').const_get('HTTP')\n  \
         client.public_send(:post, uri, 'x')\n  raise 'after'\nend",
    ),
    (
        "import socket, urllib.parse\ndef notify(url):\n    where = urllib.parse.urlsplit(url)\n    \
         link = socket.create_connection((where.hostname, where.port)).makefile('rwb')\n    \
         link.write(b'POST / HTTP/1.0\\r\\n\\r\\n')\n    link.flush()\n    link.read()\n    raise RuntimeError('after')",
        "require 'net/http'\ndef notify(url)\n  uri = URI(url)\n  request = Net::HTTPGenericRequest.new('POST', true, true, '/')\n  \
         Net::HTTP.start(uri.host, uri.port) { |http| http.request(request, 'x') }\n  raise 'after'\nend",
    ),
    (
        "import urllib.request\nclass Purge(urllib.request.Request):\n    method = 'DELETE'\ndef notify(url):\n    \
         urllib.request.urlopen(Purge(url)).read()\n    raise RuntimeError('after')",
        "require 'net/http'\nclass Purge < Net::HTTP::Get\n  METHOD = 'DELETE'\nend\ndef notify(url)\n  uri = URI(url)\n  \
         Net::HTTP.start(uri.host, uri.port) { |http| http.request(Purge.new('/')) }\n  raise 'after'\nend",
    ),
    (
        "import urllib.request\ndef notify(url):\n    if url:\n        verb = 'DELETE'\n    else:\n        verb = 'GET'\n    \
         urllib.request.urlopen(urllib.request.Request(url, method=verb)).read()\n    raise RuntimeError('after')",
        "require 'net/http'\ndef notify(url)\n  uri = URI(url)\n  request = Net::HTTP::Get.new('/')\n  \
         request.instance_variable_set(:@method, 'DELETE')\n  \
         Net::HTTP.start(uri.host, uri.port) { |http| http.request(request) }\n  raise 'after'\nend",
    ),
];

#[test]
fn nothing_is_sent_twice() {
    for (python, ruby) in SENDERS {
        check(|fixture| {
            let (url, sent) = counting_server(1);
            fixture.writes("hook.notify", python, ruby);
            let agent = fixture.agent("hook", "loopback");
            let outcome = agent.call("notify", (url.as_str(),)).unwrap();
            assert_eq!(code(&outcome), "execution", "{outcome:?}");
            assert!(outcome.failure().unwrap().metadata.contains_key("sent"), "{outcome:?}");
            assert_eq!((fixture.asked(), sent.load(Ordering::SeqCst)), (1, 1), "{outcome:?}");
        });
    }
}

/// A program that only read is run again, also if a helper of it takes the request.
#[test]
fn a_reader_is_run_again() {
    check(|fixture| {
        let (url, read) = counting_server(2);
        let python = "import urllib.request\ndef fetch(request):\n    return urllib.request.urlopen(request).status\n\
                      def look(url):\n    status = fetch(urllib.request.Request(url, headers={'a': 'b'}))\n    ";
        let ruby = "require 'net/http'\ndef fetch(uri, request)\n  \
                    Net::HTTP.start(uri.host, uri.port) { |http| http.request(request).code.to_i }\nend\n\
                    def look(url)\n  uri = URI(url)\n  status = fetch(uri, Net::HTTP::Get.new(uri))\n  ";
        for (python_end, ruby_end) in [
            ("raise RuntimeError('after')", "raise 'after'\nend"),
            ("return status", "status\nend"),
        ] {
            fixture.writes(
                "reader.look",
                &format!("{python}{python_end}"),
                &format!("{ruby}{ruby_end}"),
            );
        }
        let outcome = fixture.agent("reader", "loopback").call("look", (url.as_str(),)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(200)), "{outcome:?}");
        assert_eq!((fixture.asked(), read.load(Ordering::SeqCst)), (2, 2));
    });
}

/// What a tool sent is not sent again because its caller fails, raising or killed.
#[test]
fn what_a_tool_sent_is_not_sent_twice() {
    for (python_end, ruby_end) in [
        ("raise RuntimeError('after')", "raise 'after'"),
        ("import os\n    os._exit(3)", "exit!(3)"),
    ] {
        check(|fixture| {
            let (url, sent) = counting_server(1);
            fixture.writes(
                "boss.announce",
                &format!("def announce(url):\n    delegate('hook', purpose='notify').notify(url)\n    {python_end}"),
                &format!("def announce(url)\n  delegate('hook', purpose: 'notify').notify(url)\n  {ruby_end}\nend"),
            );
            fixture.writes(
                "hook.notify",
                "import urllib.request\ndef notify(url):\n    return urllib.request.urlopen(url, data=b'x').status",
                "require 'net/http'\ndef notify(url) = Net::HTTP.post(URI(url), 'x').code.to_i",
            );
            let agent = fixture.agent("boss", "loopback");
            let outcome = agent.call("announce", (url.as_str(),)).unwrap();
            let failure = outcome.failure().unwrap();
            let named = failure.metadata.get("sent").and_then(|it| it[0].as_str());
            assert!(named.is_some_and(|it| it.starts_with("hook: ")), "{outcome:?}");
            assert!(failure.message.contains("hook: "), "{outcome:?}");
            assert_eq!((fixture.asked(), sent.load(Ordering::SeqCst)), (2, 1), "{outcome:?}");
        });
    }
}

/// A server that answers `count` requests, and how many it answered.
fn counting_server(count: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let served = Arc::new(AtomicUsize::new(0));
    drop(serve(listener, count, Arc::clone(&served)));
    (url, served)
}

#[test]
fn a_degraded_program_runs_when_nothing_better_can_be_obtained() {
    check(|fixture| {
        fixture.writes(
            "c.half",
            "def half(x):\n    return [2, 1][5 - x]",
            "def half(x) = [2, 1].fetch(5 - x)",
        );
        let agent = fixture.agent("c", "off");
        assert_eq!(agent.call("half", (5,)).unwrap().value(), Some(&json!(2)));
        for _ in 0..3 {
            fixture.refuse_model_key("c.half");
            let outcome = agent.call("half", (2,)).unwrap();
            assert_eq!(metadata(&outcome, "blame"), Some("program"), "{outcome:?}");
        }
        assert_eq!(fixture.failures("c", "half"), 3);
        fixture.refuse_model_key("c.half");
        let unproven = agent.call("half", ("five",)).unwrap();
        assert_eq!(code(&unproven), "provider_auth", "{unproven:?}");
        fixture.refuse_model_key("c.half");
        let outcome = agent.call("half", (5,)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(2)), "{outcome:?}");
        assert!(outcome.notes.iter().any(|note| note.contains("degraded")), "{outcome:?}");
    });
}

/// An error that asks for another try is returned unchanged if there is no budget for one.
#[test]
fn an_authored_error_without_a_budget_is_returned_unchanged() {
    check(|fixture| {
        fixture.writes(
            "c.pick",
            "def pick(x):\n    return Outcome.error(error_type='busy', error_message=str(x), retriable=True)",
            "def pick(x) = Outcome.error(error_type: 'busy', error_message: x.to_s, retriable: true)",
        );
        let runtime = fixture.runtime(&[("fresh_outcome_repair_budget", "0")]);
        let agent = runtime.agent("c").guest(fixture.language).build().unwrap();
        let outcome = agent.call("pick", (1,)).unwrap();
        assert_eq!(code(&outcome), "busy", "{outcome:?}");
        assert!(outcome.failure().is_some_and(|failure| failure.kind.retriable()));
        let metadata: &serde_json::Map<String, Value> = &outcome.failure().unwrap().metadata;
        assert!(!metadata.contains_key("outcome_repair_attempts"), "{metadata:?}");
    });
}

/// A failure of the tool's own counts also if no model could be asked to repair it.
#[test]
fn a_tool_counts_a_failure_that_no_model_could_repair() {
    check(|fixture| {
        fixture.writes(
            "boss.make",
            "def make(x):\n    return delegate('t', purpose='add').f(x).value",
            "def make(x) = delegate('t', purpose: 'add').f(x).value",
        );
        fixture.writes(
            "t.f",
            "def f(x):\n    return x + 1 if x < 5 else undefined",
            "def f(x) = x < 5 ? x + 1 : undefined",
        );
        let boss = fixture.agent("boss", "off");
        assert_eq!(boss.call("make", (1,)).unwrap().value(), Some(&json!(2)));
        for _ in 0..3 {
            fixture.refuse_model_key("t.f");
            assert!(!boss.call("make", (9,)).unwrap().is_ok());
        }
        let tool = Role::parse("t").unwrap();
        let known = fixture.runtime(&[]).store().tools(Some(&tool), 1).unwrap();
        let counts = (known[0].usage_count, known[0].success_count, known[0].failure_count);
        assert_eq!(counts, (4, 1, 3));
    });
}

/// A truthful error and a typo of the caller are uses of a tool, and neither successes nor failures.
#[test]
fn a_tool_counts_values_and_its_own_failures() {
    check(|fixture| {
        fixture.writes(
            "boss.ask",
            "def ask(x):\n    return delegate('finder', purpose='find').find(x).ok",
            "def ask(x) = delegate('finder', purpose: 'find').find(x).ok?",
        );
        fixture.writes(
            "finder.find",
            "def find(x):\n    return x + 1 if x > 0 else Outcome.error(error_type='not_found', error_message='no')",
            "def find(x) = x > 0 ? x + 1 : Outcome.error(error_type: 'not_found', error_message: 'no')",
        );
        let agent = fixture.agent("boss", "off");
        for (argument, expected) in [(json!(3), true), (json!(0), false), (json!("x"), false)] {
            fixture.refuse_model_key("finder.find");
            let outcome = agent.call("ask", (argument.clone(),)).unwrap();
            assert_eq!(outcome.value(), Some(&json!(expected)), "{argument}: {outcome:?}");
        }
        let finder = Role::parse("finder").unwrap();
        let known = fixture.runtime(&[]).store().tools(Some(&finder), 1).unwrap();
        let counts = (known[0].usage_count, known[0].success_count, known[0].failure_count);
        assert_eq!(counts, (3, 1, 0));
    });
}
