//! Services that answer, fail, hang or answer something else: what that costs a stored program.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use recurgent::Agent;
use serde_json::json;

use crate::{GuestFixture, check, code, metadata};

pub(crate) const GOOD: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n{\"v\":1}";
pub(crate) const BUSY: &str =
    "HTTP/1.1 503 Busy\r\nContent-Length: 17\r\nConnection: close\r\n\r\n<html>busy</html>";
pub(crate) const REFUSAL: &str =
    "HTTP/1.1 503 Busy\r\nContent-Length: 16\r\nConnection: close\r\n\r\n{\"error\":\"busy\"}";
pub(crate) const OTHER: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n{\"w\":1}";
pub(crate) const MAINTENANCE: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 17\r\nConnection: close\r\n\r\n<html>maintenance";

/// A server that sends the same answer to every request. Without an answer it accepts and sends nothing.
pub(crate) struct TestService {
    pub(crate) url: String,
    answer: Arc<Mutex<Option<&'static str>>>,
}

impl TestService {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(Some(GOOD)));
        let current = Arc::clone(&answer);
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().flatten() {
                let answer = *current.lock().unwrap();
                match answer {
                    Some(answer) => drop(std::thread::spawn(move || serve(stream, answer))),
                    None => held.push(stream),
                }
            }
        });
        Self { url, answer }
    }

    pub(crate) fn answers(&self, answer: Option<&'static str>) {
        *self.answer.lock().unwrap() = answer;
    }
}

fn serve(mut stream: TcpStream, answer: &str) -> std::io::Result<()> {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !seen.windows(4).any(|it| it == b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => break,
            read => seen.extend_from_slice(&buffer[..read]),
        }
    }
    stream.write_all(answer.as_bytes())
}

/// Programs that read `v` of a JSON answer: the response is kept, only its text is, its status is checked.
const READERS: &[(&str, &str)] = &[
    (
        "import http.client, json, urllib.parse\ndef get(url):\n    at = urllib.parse.urlsplit(url)\n    \
         link = http.client.HTTPConnection(at.hostname, at.port)\n    link.request('GET', '/')\n    \
         reply = link.getresponse()\n    return json.load(reply)['v']",
        "require 'net/http'\nrequire 'json'\ndef get(url)\n  reply = Net::HTTP.get_response(URI(url))\n  \
         JSON.parse(reply.body).fetch('v')\nend",
    ),
    (
        "import http.client, json, urllib.parse\ndef get(url):\n    at = urllib.parse.urlsplit(url)\n    \
         link = http.client.HTTPConnection(at.hostname, at.port)\n    link.request('GET', '/')\n    \
         return json.loads(link.getresponse().read())['v']",
        "require 'net/http'\nrequire 'json'\ndef get(url) = JSON.parse(Net::HTTP.get(URI(url))).fetch('v')",
    ),
    (
        "import http.client, json, urllib.parse\ndef get(url):\n    at = urllib.parse.urlsplit(url)\n    \
         link = http.client.HTTPConnection(at.hostname, at.port)\n    link.request('GET', '/')\n    \
         reply = link.getresponse()\n    if reply.status != 200:\n        \
         raise RuntimeError(f'HTTP {reply.status}')\n    return json.load(reply)['v']",
        "require 'net/http'\nrequire 'json'\ndef get(url)\n  reply = Net::HTTP.get_response(URI(url))\n  \
         raise \"HTTP #{reply.code}\" unless reply.is_a?(Net::HTTPSuccess)\n  JSON.parse(reply.body).fetch('v')\nend",
    ),
];

fn accepted(
    fixture: &GuestFixture,
    (python, ruby): (&str, &str),
    settings: &[(&str, &str)],
) -> (TestService, Agent) {
    let service = TestService::start();
    fixture.writes("web.get", python, ruby);
    let settings: Vec<_> = [("network", "loopback")].iter().chain(settings).copied().collect();
    let agent = fixture.runtime(&settings).agent("web").guest(fixture.language).build().unwrap();
    let first = agent.call("get", (service.url.as_str(),)).unwrap();
    assert_eq!(first.value(), Some(&json!(1)), "{first:?}");
    (service, agent)
}

#[test]
fn an_error_page_does_not_cost_a_program() {
    for reader in READERS {
        check(|fixture| {
            let (service, agent) = accepted(fixture, *reader, &[]);
            service.answers(Some(BUSY));
            for _ in 0..4 {
                let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
                assert_eq!(code(&outcome), "service_unavailable", "{reader:?}: {outcome:?}");
                assert_eq!(metadata(&outcome, "blame"), Some("world"));
            }
            service.answers(Some(GOOD));
            assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
            assert_eq!((fixture.asked(), fixture.failures("web", "get")), (1, 0), "{reader:?}");
        });
    }
}

/// Also an error that can be read: what the program looks for is not in it.
#[test]
fn an_error_in_the_expected_format_does_not_cost_a_program() {
    check(|fixture| {
        let (service, agent) = accepted(fixture, READERS[0], &[]);
        service.answers(Some(REFUSAL));
        let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
        assert_eq!(code(&outcome), "service_unavailable", "{outcome:?}");
        assert_eq!(metadata(&outcome, "error_class"), Some("KeyError"));
        assert_eq!((fixture.asked(), fixture.failures("web", "get")), (1, 0));
    });
}

/// A page in place of data is the service's fault also if its status says success, whatever the guest knows of that.
/// Data of another shape is a change that the program is repaired for.
#[test]
fn a_success_that_cannot_be_read_does_not_cost_a_program() {
    check(|fixture| {
        let (service, agent) = accepted(fixture, READERS[0], &[]);
        service.answers(Some(MAINTENANCE));
        for _ in 0..3 {
            let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
            assert_eq!(code(&outcome), "service_unavailable", "{outcome:?}");
            assert_eq!(metadata(&outcome, "blame"), Some("world"), "{outcome:?}");
        }
        assert_eq!((fixture.asked(), fixture.failures("web", "get")), (1, 0));
        service.answers(Some(OTHER));
        fixture.writes("web.get", "def get(url):\n    return [url, 2]", "def get(url) = [url, 2]");
        let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
        assert_eq!(outcome.value(), Some(&json!([service.url, 2])), "{outcome:?}");
        assert_eq!(fixture.asked(), 2);
    });
}

/// A program that wraps the error of a service in an error of its own is not to blame for it.
#[test]
fn a_wrapped_error_of_a_service_does_not_cost_a_program() {
    check(|fixture| {
        let wrapping = (
            "import urllib.request\ndef get(url):\n    try:\n        return urllib.request.urlopen(url).read().decode()\n    \
             except Exception as e:\n        raise ValueError(f'could not fetch {url}: {e}')",
            "require 'net/http'\ndef get(url)\n  Net::HTTP.get(URI(url))\nrescue => e\n  \
             raise ArgumentError, \"could not fetch #{url}: #{e.message}\"\nend",
        );
        fixture.writes("web.get", wrapping.0, wrapping.1);
        let agent = fixture.agent("web", "loopback");
        let service = TestService::start();
        service.answers(Some(OTHER));
        assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
        let down = format!("http://127.0.0.1:{}/", crate::closed_port());
        for _ in 0..4 {
            let outcome = agent.call("get", (down.as_str(),)).unwrap();
            assert_eq!(code(&outcome), "service_unavailable", "{outcome:?}");
        }
        assert_eq!((fixture.asked(), fixture.failures("web", "get")), (1, 0));
    });
}

/// A new program that meets an error page is not at fault either; another one would meet the same.
#[test]
fn a_new_program_is_not_blamed_for_an_error_page() {
    check(|fixture| {
        let service = TestService::start();
        service.answers(Some(BUSY));
        fixture.writes("web.get", READERS[0].0, READERS[0].1);
        let agent = fixture.agent("web", "loopback");
        let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
        assert_eq!(code(&outcome), "service_unavailable", "{outcome:?}");
        assert_eq!(fixture.asked(), 1);
    });
}

#[test]
fn a_service_that_hangs_does_not_cost_a_program() {
    let readers = [
        (
            "import json, urllib.request\ndef get(url):\n    return json.load(urllib.request.urlopen(url))['v']",
            "require 'net/http'\nrequire 'json'\ndef get(url) = JSON.parse(Net::HTTP.get(URI(url)))['v']",
        ),
        (
            "import json, urllib.request\nfrom concurrent.futures import ThreadPoolExecutor\ndef get(url):\n    \
             with ThreadPoolExecutor() as pool:\n        \
             return json.load(pool.submit(urllib.request.urlopen, url, None, 60).result())['v']",
            "require 'net/http'\nrequire 'json'\ndef get(url)\n  reply = Thread.new { Net::HTTP.get(URI(url)) }.value\n  \
             JSON.parse(reply)['v']\nend",
        ),
    ];
    for reader in readers {
        check(|fixture| {
            let limit = ("execution_timeout_seconds", "4");
            let (service, agent) = accepted(fixture, reader, &[limit]);
            service.answers(None);
            let outcome = agent.call("get", (service.url.as_str(),)).unwrap();
            assert_eq!(code(&outcome), "service_unavailable", "{reader:?}: {outcome:?}");
            assert_eq!(metadata(&outcome, "blame"), Some("world"), "{outcome:?}");
            assert_eq!(metadata(&outcome, "host"), Some("127.0.0.1"), "{outcome:?}");
            service.answers(Some(GOOD));
            assert!(agent.call("get", (service.url.as_str(),)).unwrap().is_ok());
            assert_eq!((fixture.asked(), fixture.failures("web", "get")), (1, 0), "{reader:?}");
        });
    }
}

/// A program that takes too long by itself is at fault, also if it holds a connection.
#[test]
fn a_program_that_is_slow_itself_is_at_fault() {
    let slow = [
        (
            "import json, time, urllib.request\ndef get(url):\n    if url.endswith('x'):\n        time.sleep(60)\n    \
             return json.load(urllib.request.urlopen(url))['v']",
            "require 'net/http'\nrequire 'json'\ndef get(url)\n  sleep 60 if url.end_with?('x')\n  \
             JSON.parse(Net::HTTP.get(URI(url)))['v']\nend",
        ),
        (
            "import json, socket, urllib.parse, urllib.request\ndef get(url):\n    at = urllib.parse.urlsplit(url)\n    \
             held = socket.create_connection((at.hostname, at.port))\n    while url.endswith('x'):\n        pass\n    \
             return json.load(urllib.request.urlopen(url))['v']",
            "require 'net/http'\nrequire 'json'\ndef get(url)\n  at = URI(url)\n  held = TCPSocket.new(at.host, at.port)\n  \
             loop {} if url.end_with?('x')\n  JSON.parse(Net::HTTP.get(at))['v']\nend",
        ),
    ];
    for reader in slow {
        check(|fixture| {
            let limit = ("execution_timeout_seconds", "4");
            let (service, agent) = accepted(fixture, reader, &[limit]);
            fixture.refuse_model_key("web.get");
            let outcome = agent.call("get", (format!("{}x", service.url),)).unwrap();
            assert_eq!(code(&outcome), "timeout", "{reader:?}: {outcome:?}");
            assert_eq!(fixture.failures("web", "get"), 1, "{reader:?}");
        });
    }
}
