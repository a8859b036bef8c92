//! Whom programs may talk to: only those the caller granted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use lifecycle::dialect::Language;
use lifecycle::execution::{ReportEnding, WorkerFault};
use recurgent::grants::{Grants, Network};
use recurgent::guest::Done;
use recurgent::worker::{Layer, Tier};
use serde_json::{Value, json};

use crate::drive::{BOTH, Driver, Program};
use crate::value;

/// A server on loopback that says `hello` to everybody; gone with the process.
fn server() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
    port
}

/// Fetches `args[0]`; gives the body or the kind of error.
fn fetch(driver: &Driver, language: Language, network: &Network, url: &str) -> Value {
    let code = match language {
        Language::Python => {
            "import urllib.request\ntry:\n    result = urllib.request.urlopen(args[0], timeout=5).read().decode()\n\
             except OSError as problem:\n    result = {'error': str(problem)}"
        }
        Language::Ruby => {
            "require 'net/http'\nbegin\n  Net::HTTP.get(URI(args[0]))\nrescue SystemCallError, SocketError, IOError => e\n  { error: e.message }\nend"
        }
    };
    let grants = Grants { network: network.clone(), ..Grants::default() };
    let args = vec![json!(url)];
    let ended = driver.run(&Program { language, code, args, grants, ..Program::default() });
    value(&ended).cloned().unwrap_or_else(|| panic!("{ended:?}"))
}

#[test]
fn only_granted_servers_are_reached() {
    let port = server();
    let url = format!("http://127.0.0.1:{port}/");
    let named = format!("http://localhost:{port}/");
    let hosts = |list: &str| list.parse::<Network>().unwrap();
    let elsewhere = "192.0.2.1";
    for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
        let driver = Driver::with(|options| options.layers = tier.layers());
        for language in BOTH {
            let reach = |network: &Network, url: &str| fetch(&driver, language, network, url);
            assert!(reach(&Network::Off, &url)["error"].is_string());
            assert_eq!(reach(&Network::Loopback, &url), json!("hello"));
            assert_eq!(reach(&Network::Loopback, &named), json!("hello"));
            assert_eq!(reach(&Network::Open, &url), json!("hello"));
            let refused = reach(&Network::Loopback, &format!("http://{elsewhere}/"));
            assert!(refused["error"].as_str().unwrap().contains("ermission denied"), "{refused}");
            if tier != Tier::Landlock {
                assert_eq!(reach(&hosts(&format!("127.0.0.1:{port}")), &url), json!("hello"));
                assert!(reach(&hosts("127.0.0.1:1"), &url)["error"].is_string());
                assert!(reach(&hosts("a.example"), &url)["error"].is_string());
            }
        }
    }
}

/// A model that reads of a refusal only tries again.
#[test]
fn a_program_without_a_network_is_told_that_it_has_none() {
    const OFF: &str = "the network is off for this agent";
    let connects = [
        (Language::Python, "import socket\nsocket.create_connection((args[0], 80), 2)"),
        (Language::Python, "import urllib.request\nurllib.request.urlopen(f'http://{args[0]}/')"),
        (
            Language::Python,
            "import socket\ntry: socket.create_connection((args[0], 80), 2)\nexcept OSError as e: raise RuntimeError('no page') from e",
        ),
        (Language::Ruby, "require 'socket'\nTCPSocket.new(args[0], 80)"),
        (Language::Ruby, "require 'net/http'\nNet::HTTP.get(URI(\"http://#{args[0]}/\"))"),
        (
            Language::Ruby,
            "require 'socket'\nbegin\n  TCPSocket.new(args[0], 80)\nrescue StandardError\n  raise 'no page'\nend",
        ),
    ];
    for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
        let driver = Driver::with(|options| options.layers = tier.layers());
        let message = |language, code: &str, host: &str, network| {
            let grants = Grants { network, ..Grants::default() };
            let args = vec![json!(host)];
            let ended = driver.run(&Program { language, code, args, grants, ..Program::default() });
            match ended {
                Ok(Done { ending: ReportEnding::Raised { message, .. }, .. }) => message,
                other => panic!("{other:?}"),
            }
        };
        for (language, code) in connects {
            for host in ["192.0.2.1", "a.example"] {
                let said = message(language, code, host, Network::Off);
                assert!(said.contains(OFF), "{code} to {host} at {tier}: {said}");
            }
            let said = message(language, code, "192.0.2.1", Network::Loopback);
            assert!(!said.contains(OFF), "{code}: {said}");
        }
        let elsewhere = [
            (Language::Python, "open('/etc/shadow')"),
            (Language::Ruby, "File.read('/etc/shadow')"),
        ];
        for (language, code) in elsewhere {
            let said = message(language, code, "", Network::Off);
            assert!(!said.contains(OFF), "{code}: {said}");
        }
    }
}

#[test]
fn a_list_of_hosts_is_refused_where_it_cannot_be_kept() {
    let driver = Driver::with(|options| {
        options.layers = options.layers.without(Layer::Namespaces);
    });
    let network = "a.example".parse().unwrap();
    let grants = Grants { network, ..Grants::default() };
    let ended = driver.run(&Program { code: "1", grants, ..Program::default() });
    assert!(matches!(ended, Err(WorkerFault::Uncontained(_))), "{ended:?}");
}

#[test]
fn datagrams_and_raw_sockets_are_nobodys_grant() {
    let driver = Driver::new();
    let grants = Grants { network: Network::Loopback, ..Grants::default() };
    for (language, code) in [
        (
            Language::Python,
            "import socket\nseen = []\nfor kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):\n    try:\n        socket.socket(socket.AF_INET, kind)\n        seen.append(kind)\n    except OSError: pass\nresult = seen",
        ),
        (
            Language::Ruby,
            "require 'socket'\n[:DGRAM, :RAW].select { |kind| Socket.new(:INET, kind, 0) rescue nil }",
        ),
    ] {
        let grants = grants.clone();
        let ended = driver.run(&Program { language, code, grants, ..Program::default() });
        assert_eq!(value(&ended), Some(&json!([])), "{ended:?}");
    }
}
