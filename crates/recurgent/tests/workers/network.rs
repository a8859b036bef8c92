//! Whom programs may talk to: only those the caller granted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use lifecycle::dialect::Language;
use lifecycle::execution::WorkerFault;
use recurgent::grants::{Grants, Network};
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
    for tier in [Tier::Namespaces, Tier::Landlock] {
        let driver = Driver::with(|options| options.layers = tier.layers());
        for language in BOTH {
            let reach = |network: &Network, url: &str| fetch(&driver, language, network, url);
            assert!(reach(&Network::Off, &url)["error"].is_string());
            assert_eq!(reach(&Network::Loopback, &url), json!("hello"));
            assert_eq!(reach(&Network::Loopback, &named), json!("hello"));
            assert_eq!(reach(&Network::Open, &url), json!("hello"));
            let refused = reach(&Network::Loopback, &format!("http://{elsewhere}/"));
            assert!(refused["error"].as_str().unwrap().contains("ermission denied"), "{refused}");
            if tier == Tier::Namespaces {
                assert_eq!(reach(&hosts(&format!("127.0.0.1:{port}")), &url), json!("hello"));
                assert!(reach(&hosts("127.0.0.1:1"), &url)["error"].is_string());
                assert!(reach(&hosts("a.example"), &url)["error"].is_string());
            }
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
