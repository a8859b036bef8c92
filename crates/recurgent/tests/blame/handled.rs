//! Failures of services that a program handles: what it reports then is the world's fault, what it does wrong by itself is
//! not, and what a service changes for good is repaired.

use std::net::TcpListener;
use std::sync::Mutex;

use recurgent::toolbox::HostFunction;
use serde_json::{Value, json};

use crate::services::{GOOD, OTHER, TestService};
use crate::{GuestFixture, check, closed_port, code, metadata};

/// Programs that report an error of a type of their own when a service fails: for any exception, and for an answer with
/// an error status.
const REPORTERS: &[(&str, &str)] = &[
    (
        "import urllib.request\ndef get(url):\n    try:\n        return urllib.request.urlopen(url, timeout=5).read().decode()\n    \
         except Exception as e:\n        return Outcome.error(error_type='shop_down', error_message=str(e), retriable=True)",
        "require 'net/http'\ndef get(url)\n  reply = Net::HTTP.get_response(URI(url))\n  \
         raise 'error page' unless reply.is_a?(Net::HTTPSuccess)\n  reply.body\nrescue StandardError => e\n  \
         Outcome.error(error_type: 'shop_down', error_message: e.message, retriable: true)\nend",
    ),
    (
        "import http.client, urllib.parse\ndef get(url):\n    at = urllib.parse.urlsplit(url)\n    \
         try:\n        link = http.client.HTTPConnection(at.hostname, at.port, timeout=5)\n        link.request('GET', '/')\n        \
         reply = link.getresponse()\n    except OSError:\n        reply = None\n    \
         if reply is None or reply.status != 200:\n        \
         return Outcome.error(error_type='shop_down', error_message='no answer', retriable=True)\n    \
         return reply.read().decode()",
        "require 'net/http'\ndef fetch(url)\n  Net::HTTP.get_response(URI(url))\nrescue SystemCallError, IOError, Timeout::Error\n  nil\nend\n\
         def get(url)\n  reply = fetch(url)\n  \
         return Outcome.error(error_type: 'shop_down', error_message: 'no answer', retriable: true) unless reply&.code == '200'\n  \
         reply.body\nend",
    ),
];

const GONE: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy";

/// The error of the program's own is passed on as it is, however often, and no model is asked.
#[test]
fn a_program_that_reports_a_failed_service_is_not_to_blame() {
    for (python, ruby) in REPORTERS {
        check(|fixture| {
            fixture.writes("web.get", python, ruby);
            let agent = fixture.agent("web", "loopback");
            let service = TestService::start();
            assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
            let down = format!("http://127.0.0.1:{}/", closed_port());
            service.answers(Some(GONE));
            for url in [&down, &service.url, &down, &service.url, &down, &down] {
                let outcome = agent.call("get", (url.as_str(),)).unwrap();
                assert_eq!(code(&outcome), "shop_down", "{url}: {outcome:?}");
                assert_eq!(metadata(&outcome, "blame"), Some("world"), "{outcome:?}");
            }
            service.answers(Some(GOOD));
            assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
            assert_eq!((fixture.asked(), fixture.failures("web", "get")), (1, 0));
        });
    }
}

/// The missing grant is named, although the program caught the refusal.
#[test]
fn a_program_that_reports_a_network_that_is_not_granted_is_not_to_blame() {
    let (python, ruby) = REPORTERS[0];
    check(|fixture| {
        fixture.writes("web.get", python, ruby);
        let service = TestService::start();
        let agent = fixture.agent("web", "loopback");
        assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
        let agent = fixture.agent("web", "off");
        let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
        assert_eq!(code(&outcome), "shop_down", "{outcome:?}");
        assert_eq!(metadata(&outcome, "grant"), Some("--network 127.0.0.1"), "{outcome:?}");
        assert_eq!((fixture.asked(), fixture.failures("web", "get")), (1, 0));
    });
}

/// A program that gives up outside of its handler gives up for the same reason.
#[test]
fn a_program_that_gives_up_after_a_failed_service_is_not_to_blame() {
    check(|fixture| {
        fixture.writes(
            "web.get",
            "import urllib.request\ndef fetch(url):\n    try:\n        return urllib.request.urlopen(url, timeout=5).read()\n    \
             except OSError:\n        return None\ndef get(url):\n    found = fetch(url)\n    if found is None:\n        \
             raise RuntimeError('the shop does not answer')\n    return found.decode()",
            "require 'net/http'\ndef fetch(url)\n  Net::HTTP.get(URI(url))\nrescue SystemCallError\n  nil\nend\n\
             def get(url)\n  found = fetch(url)\n  raise 'the shop does not answer' if found.nil?\n  found\nend",
        );
        let agent = fixture.agent("web", "loopback");
        let service = TestService::start();
        assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
        let has_version_6 = TcpListener::bind("[::1]:0").is_ok();
        let hosts = [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")].into_iter();
        for (written, host) in hosts.take(1 + usize::from(has_version_6)) {
            let down = format!("http://{written}:{}/", closed_port());
            for _ in 0..5 {
                let outcome = agent.call("get", (down.as_str(),)).unwrap();
                assert_eq!(code(&outcome), "service_unavailable", "{outcome:?}");
                assert_eq!(metadata(&outcome, "host"), Some(host), "{outcome:?}");
            }
        }
        assert_eq!((fixture.asked(), fixture.failures("web", "get")), (1, 0));
    });
}

/// An optional cache that cannot be reached excuses no mistake that the program makes elsewhere.
#[test]
fn a_handled_failure_does_not_excuse_a_later_mistake() {
    check(|fixture| {
        fixture.writes(
            "web.pick",
            "import urllib.request\ndef cached(url):\n    try:\n        return urllib.request.urlopen(url, timeout=5).read()\n    \
             except OSError:\n        return None\ndef pick(url, n):\n    cached(url)\n    return [10, 20, 30][n]",
            "require 'net/http'\ndef cached(url)\n  Net::HTTP.get(URI(url))\nrescue SystemCallError\n  nil\nend\n\
             def pick(url, n)\n  cached(url)\n  [10, 20, 30].fetch(n)\nend",
        );
        let agent = fixture.agent("web", "loopback");
        let down = format!("http://127.0.0.1:{}/", closed_port());
        assert_eq!(agent.call("pick", (down.as_str(), 1)).unwrap().value(), Some(&json!(20)));
        fixture.writes("web.pick", "def pick(url, n):\n    return -1", "def pick(url, n) = -1");
        let outcome = agent.call("pick", (down.as_str(), 7)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(-1)), "{outcome:?}");
        assert_eq!((fixture.asked(), fixture.failures("web", "pick")), (2, 1));
    });
}

/// A place that is reached at last has not failed, however the program waited for it.
#[test]
fn a_service_that_is_reached_later_does_not_excuse() {
    for network in ["loopback", "open"] {
        check(|fixture| {
            fixture.writes(
                "web.get",
                "import asyncio, urllib.parse\nasync def reach(url):\n    at = urllib.parse.urlsplit(url)\n    \
                 _, writer = await asyncio.open_connection(at.hostname, at.port)\n    writer.close()\n\
                 def get(url, confused):\n    try:\n        asyncio.run(reach(url))\n    except OSError:\n        \
                 tool('service').start()\n        asyncio.run(reach(url))\n    if not confused:\n        return 'fine'\n    \
                 return Outcome.error(error_type='confused', error_message='no', retriable=True)",
                "require 'socket'\nrequire 'uri'\ndef reach(url) = TCPSocket.new(URI(url).hostname, URI(url).port).close\n\
                 def get(url, confused)\n  begin\n    reach(url)\n  rescue SystemCallError\n    \
                 tool('service').start\n    reach(url)\n  end\n  return 'fine' unless confused\n  \
                 Outcome.error(error_type: 'confused', error_message: 'no', retriable: true)\nend",
            );
            fixture.writes(
                "web.get",
                "def get(url, confused):\n    return 1",
                "def get(url, confused) = 1",
            );
            let service = TestService::start();
            let port = closed_port();
            let started = Mutex::new(None);
            let start = move |_: Value| -> Result<Value, String> {
                let listener =
                    TcpListener::bind(("127.0.0.1", port)).map_err(|it| it.to_string())?;
                *started.lock().unwrap() = Some(listener);
                Ok(json!("started"))
            };
            let runtime = fixture.runtime(&[("network", network)]);
            let function =
                HostFunction::untyped("service.start", json!({"type": "object"}), None, start);
            runtime.toolbox().add(function.reads_only()).unwrap();
            let agent = runtime.agent("web").guest(fixture.language).build().unwrap();
            let fine = agent.call("get", (service.url.as_str(), false)).unwrap();
            assert_eq!(fine.value(), Some(&json!("fine")), "{fine:?}");
            let url = format!("http://127.0.0.1:{port}/");
            let outcome = agent.call("get", (url.as_str(), true)).unwrap();
            assert_ne!(metadata(&outcome, "blame"), Some("world"), "{network}: {outcome:?}");
        });
    }
}

/// A program that reads what a service answers, and cannot read another format.
const READER: (&str, &str) = (
    "import json, urllib.request\ndef get(url):\n    return json.load(urllib.request.urlopen(url))['v']",
    "require 'net/http'\nrequire 'json'\ndef get(url) = JSON.parse(Net::HTTP.get(URI(url))).fetch('v')",
);
const CHANGED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nv: 2";
const ADAPTED: (&str, &str) = (
    "import urllib.request\ndef get(url):\n    text = urllib.request.urlopen(url).read().decode()\n    \
     return int(text.split(':')[1])",
    "require 'net/http'\ndef get(url) = Net::HTTP.get(URI(url)).split(':').fetch(1).to_i",
);

/// A service that answers in another format is down at first. If it stays so, the program is repaired on trial; the old
/// version is kept until a second call needs the repair.
#[test]
fn a_format_that_changes_for_good_is_repaired_on_trial() {
    check(|fixture| {
        let (service, agent) = accepted(fixture, READER);
        service.answers(Some(CHANGED));
        for _ in 0..3 {
            let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
            assert_eq!(code(&outcome), "service_unavailable", "{outcome:?}");
            assert_eq!(metadata(&outcome, "blame"), Some("world"), "{outcome:?}");
        }
        assert_eq!(fixture.asked(), 1);
        for asked in [2, 3] {
            fixture.writes("web.get", ADAPTED.0, ADAPTED.1);
            let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
            assert_eq!(outcome.value(), Some(&json!(2)), "{outcome:?}");
            assert_eq!(fixture.asked(), asked);
            assert!(outcome.notes.iter().any(|it| it.contains("on trial")), "{outcome:?}");
        }
        let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
        assert_eq!((outcome.value(), fixture.asked()), (Some(&json!(2)), 3), "it took over");
    });
}

/// If the service answers as before after the trial, the old version has never left.
#[test]
fn a_format_that_changes_for_a_while_costs_no_program() {
    check(|fixture| {
        let (service, agent) = accepted(fixture, READER);
        service.answers(Some(CHANGED));
        for _ in 0..3 {
            agent.call("get", (service.url.as_str(),)).unwrap();
        }
        fixture.writes("web.get", ADAPTED.0, ADAPTED.1);
        assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
        service.answers(Some(GOOD));
        let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
        assert_eq!((outcome.value(), fixture.asked()), (Some(&json!(1)), 2), "{outcome:?}");
        service.answers(Some(CHANGED));
        let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
        assert_eq!(code(&outcome), "service_unavailable", "it counts anew: {outcome:?}");
    });
}

/// Trials end: an outage with pages of success does not ask a model again and again.
#[test]
fn a_format_that_no_repair_reads_is_not_repaired_for_ever() {
    check(|fixture| {
        let (service, agent) = accepted(fixture, READER);
        service.answers(Some(CHANGED));
        for _ in 0..20 {
            for _ in 0..2 {
                fixture.writes("web.get", READER.0, READER.1);
            }
            assert!(!agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
        }
        assert!(fixture.asked() < 12, "{}", fixture.asked());
        service.answers(Some(GOOD));
        assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
        assert_eq!(fixture.failures("web", "get"), 0);
    });
}

/// A report that another place answered for is in doubt, and is repaired on trial in the same way.
#[test]
fn a_report_after_data_arrived_is_repaired_on_trial() {
    check(|fixture| {
        fixture.writes(
            "web.get",
            "import json, urllib.request\ndef get(url, cache):\n    try:\n        urllib.request.urlopen(cache, timeout=5)\n    \
             except OSError:\n        pass\n    found = json.load(urllib.request.urlopen(url))\n    if 'v' not in found:\n        \
             return Outcome.error(error_type='strange_data', error_message='no v', retriable=True)\n    return found['v']",
            "require 'net/http'\nrequire 'json'\ndef get(url, cache)\n  begin\n    Net::HTTP.get(URI(cache))\n  \
             rescue SystemCallError\n    nil\n  end\n  found = JSON.parse(Net::HTTP.get(URI(url)))\n  unless found.key?('v')\n    \
             return Outcome.error(error_type: 'strange_data', error_message: 'no v', retriable: true)\n  end\n  found['v']\nend",
        );
        let agent = fixture.agent("web", "loopback");
        let service = TestService::start();
        let cache = format!("http://127.0.0.1:{}/", closed_port());
        let call = || agent.call("get", (service.url.as_str(), cache.as_str())).unwrap();
        assert_eq!(call().value(), Some(&json!(1)));
        service.answers(Some(OTHER));
        for _ in 0..3 {
            assert_eq!(code(&call()), "strange_data");
        }
        assert_eq!(fixture.asked(), 1);
        fixture.writes(
            "web.get",
            "def get(url, cache):\n    return [url, 5]",
            "def get(url, cache) = [url, 5]",
        );
        assert_eq!(call().value(), Some(&json!([service.url, 5])));
        assert_eq!(fixture.asked(), 2);
    });
}

/// A listener that closes every connection without an answer.
#[test]
fn a_connection_that_is_cut_off_is_the_services_fault() {
    let (python, ruby) = REPORTERS[1];
    check(|fixture| {
        fixture.writes("web.get", python, ruby);
        let agent = fixture.agent("web", "loopback");
        let service = TestService::start();
        assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let outcome = agent.call("get", (url.as_str(),)).unwrap();
        assert_eq!(code(&outcome), "shop_down", "{outcome:?}");
        assert_eq!((fixture.asked(), fixture.failures("web", "get")), (1, 0));
    });
}

fn accepted(
    fixture: &GuestFixture,
    (python, ruby): (&str, &str),
) -> (TestService, recurgent::Agent) {
    let service = TestService::start();
    fixture.writes("web.get", python, ruby);
    let agent = fixture.agent("web", "loopback");
    let first = agent.call("get", (service.url.as_str(),)).unwrap();
    assert_eq!(first.value(), Some(&json!(1)), "{first:?}");
    (service, agent)
}
