//! What is good is never lost: failures of the world and of the caller do not count against a stored program, are not
//! repaired by a model, and reach the caller as what they are. Real workers, both guests.
#![cfg(test)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lifecycle::artifact::ArtifactKey;
use lifecycle::contract::Fingerprint;
use lifecycle::draft::DraftFault;
use lifecycle::request::{Method, Role};
use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Agent, Language, Outcome, Runtime};
use serde_json::{Value, json};

/// A runtime with a scripted model.
struct Fixture {
    language: Language,
    model: Arc<Scripted>,
    state: tempfile::TempDir,
}

fn check(behaviour: impl Fn(&Fixture)) {
    for language in Language::ALL {
        let (model, state) = (Arc::new(Scripted::new()), tempfile::tempdir().unwrap());
        behaviour(&Fixture { language, model, state });
    }
}

impl Fixture {
    fn runtime(&self, settings: &[(&str, &str)]) -> Runtime {
        let mut config = Config::defaults();
        config.set("state_dir", &self.state.path().display().to_string()).unwrap();
        for (key, value) in settings {
            config.set(key, value).unwrap();
        }
        Runtime::builder(config).provider(Arc::<Scripted>::clone(&self.model)).build().unwrap()
    }

    /// An agent whose programs may use this network.
    fn agent(&self, role: &str, network: &str) -> Agent {
        let runtime = self.runtime(&[("network", network)]);
        runtime.agent(role).guest(self.language).build().unwrap()
    }

    fn writes(&self, key: &str, python: &str, ruby: &str) {
        let code = match self.language {
            Language::Python => python,
            Language::Ruby => ruby,
        };
        self.model.add(key, json!({"code": code}));
    }

    /// The next request of the model finds no key.
    fn has_no_key(&self, key: &str) {
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

    fn asked(&self) -> usize {
        self.model.asked().len()
    }
}

fn metadata<'a>(outcome: &'a Outcome, key: &str) -> Option<&'a str> {
    outcome.failure()?.metadata.get(key)?.as_str()
}

fn code(outcome: &Outcome) -> &str {
    outcome.failure().map_or("ok", |failure| failure.kind.code())
}

#[test]
fn three_typos_do_not_cost_a_program() {
    check(|fixture| {
        fixture.writes("c.add", "def add(x):\n    return 5 + x", "def add(x) = 5 + x");
        let agent = fixture.agent("c", "off");
        assert_eq!(agent.call("add", (3,)).unwrap().value(), Some(&json!(8)));
        for typo in ["foo", "bar", "baz"] {
            fixture.has_no_key("c.add");
            let outcome = agent.call("add", (typo,)).unwrap();
            assert_eq!(code(&outcome), "execution", "{outcome:?}");
            let message = &outcome.failure().unwrap().message;
            assert!(message.starts_with("TypeError: "), "{message}");
            assert_eq!(metadata(&outcome, "blame"), Some("caller"));
            assert_eq!(metadata(&outcome, "parameters"), Some("x"));
            assert_eq!(metadata(&outcome, "repair_error_type"), Some("provider_auth"));
        }
        let asked = fixture.asked();
        assert_eq!(agent.call("add", (4,)).unwrap().value(), Some(&json!(9)));
        assert_eq!(fixture.asked(), asked, "the stored program still runs");
        assert_eq!(fixture.failures("c", "add"), 0);
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
            fixture.has_no_key("adder.add");
            let outcome = agent.call("total", ("foo",)).unwrap();
            assert_eq!(code(&outcome), "execution", "{outcome:?}");
            assert_eq!(metadata(&outcome, "blame"), Some("world"), "{outcome:?}");
        }
        assert_eq!(fixture.failures("boss", "total"), 0);
        assert_eq!(agent.call("total", (4,)).unwrap().value(), Some(&json!(10)));
    });
}

#[test]
fn nothing_is_sent_twice() {
    check(|fixture| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let sent = Arc::new(AtomicUsize::new(0));
        let _server = serve(listener, 1, Arc::clone(&sent));
        fixture.writes(
            "hook.notify",
            "import urllib.request\ndef notify(url):\n    request = urllib.request.Request(url, data=b'x', method='POST')\n    \
             urllib.request.urlopen(request).read()\n    raise RuntimeError('after sending')",
            "require 'net/http'\ndef notify(url)\n  Net::HTTP.post(URI(url), 'x')\n  raise 'after sending'\nend",
        );
        let outcome = fixture.agent("hook", "loopback").call("notify", (url.as_str(),)).unwrap();
        assert_eq!(code(&outcome), "execution", "{outcome:?}");
        assert!(outcome.failure().unwrap().metadata.contains_key("sent"), "{outcome:?}");
        assert_eq!((fixture.asked(), sent.load(Ordering::SeqCst)), (1, 1));
    });
}

#[test]
fn a_degraded_program_runs_when_nothing_better_can_be_obtained() {
    check(|fixture| {
        fixture.writes("c.half", "def half(x):\n    return 10 // x", "def half(x) = 10 / x");
        let agent = fixture.agent("c", "off");
        assert_eq!(agent.call("half", (5,)).unwrap().value(), Some(&json!(2)));
        for _ in 0..3 {
            fixture.has_no_key("c.half");
            let outcome = agent.call("half", (0,)).unwrap();
            assert_eq!(metadata(&outcome, "blame"), Some("program"), "{outcome:?}");
        }
        fixture.has_no_key("c.half");
        let unproven = agent.call("half", ("five",)).unwrap();
        assert_eq!(code(&unproven), "provider_auth", "{unproven:?}");
        fixture.has_no_key("c.half");
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
