//! Whom programs may talk to: only those the caller granted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::thread;

use lifecycle::dialect::Language;
use lifecycle::execution::{ReportEnding, WorkerFault};
use recurgent::grants::{Grants, Network};
use recurgent::guest::Done;
use recurgent::worker::{Layer, Tier};
use serde_json::{Value, json};

use crate::drive::{BOTH, Driver, Program};
use crate::value;

/// Starts a server on loopback that answers every request with `hello`, until the process ends. Returns its port.
pub(crate) fn server() -> u16 {
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
            "import urllib.request\ntry:\n    result = urllib.request.urlopen(args[0], timeout=60).read().decode()\n\
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
fn the_error_of_a_program_without_a_network_says_so() {
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
fn datagrams_and_raw_sockets_are_never_granted() {
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

/// What a granted network could be talked around with: connections from outside, and what a socket reveals of the
/// network it was connected in.
#[test]
fn a_mediated_network_accepts_no_connection_and_hides_the_hosts_interfaces() {
    let port = server();
    let programs = [
        (
            Language::Python,
            "import fcntl, socket\nfound = []\nheld = socket.create_connection(('127.0.0.1', args[0]))\n\
             def listens():\n    own = socket.socket()\n    own.listen()\n    return own.getsockname()\n\
             for name, attempt in {'listens': listens, 'interfaces': lambda: fcntl.ioctl(held, 0x8912, bytes(16)),\n\
             \x20   'the first': lambda: fcntl.ioctl(held, 0x8910, bytes(16) + b'\\1' + bytes(31)), 'its space': lambda: fcntl.ioctl(held, 0x894C)}.items():\n\
             \x20   try: found.append([name, str(attempt())])\n    except OSError: pass\nresult = found",
        ),
        (
            Language::Ruby,
            "require 'socket'\nheld = TCPSocket.new('127.0.0.1', args[0])\n\
             attempts = { listens: -> { Socket.new(:INET, :STREAM).listen(1) }, interfaces: -> { held.ioctl(0x8912, \"\\0\" * 16) },\n\
             \x20 first: -> { held.ioctl(0x8910, \"\\0\" * 16 + \"\\1\" + \"\\0\" * 31) } }\n\
             attempts.filter_map { |name, attempt| [name, attempt.call.to_s] rescue nil }",
        ),
    ];
    for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
        let driver = Driver::with(|options| options.layers = tier.layers());
        for (language, code) in programs {
            let grants = Grants { network: Network::Loopback, ..Grants::default() };
            let args = vec![json!(port)];
            let ended = driver.run(&Program { language, code, args, grants, ..Program::default() });
            assert_eq!(value(&ended), Some(&json!([])), "{language:?} at {tier}: {ended:?}");
        }
    }
}

/// A thread that changes an address while the kernel passes it to the host does not change which host is reached.
#[test]
fn an_address_that_changes_meanwhile_leads_only_where_it_may() {
    let (granted, other) = (server(), server());
    let driver = Driver::new();
    let code = "import ctypes, socket, struct, threading, time\nlibc = ctypes.CDLL(None)\n\
                ports = [struct.pack('!H', port) for port in args]\n\
                address = ctypes.create_string_buffer(struct.pack('=H', 2) + ports[0] + socket.inet_aton('127.0.0.1') + bytes(8))\n\
                reached, done = set(), []\n\
                def change():\n    while not done:\n        for port in ports: ctypes.memmove(ctypes.addressof(address) + 2, port, 2)\n\
                threads = [threading.Thread(target=change) for _ in range(2)]\nfor thread in threads: thread.start()\n\
                tried = [0, 0]\n\
                until = time.monotonic() + 20\n\
                while min(tried) < 50 and time.monotonic() < until:\n    with socket.socket() as held:\n        refused = libc.connect(held.fileno(), address, 16) != 0\n\
                \x20       tried[refused] += 1\n        if not refused: reached.add(held.getpeername()[1])\n\
                done.append(True)\nresult = [min(tried) > 0, sorted(reached)]";
    let network = format!("127.0.0.1:{granted}").parse().unwrap();
    let grants = Grants { network, ..Grants::default() };
    let args = vec![json!(granted), json!(other)];
    let limit = std::time::Duration::from_mins(1);
    let ended = driver.run(&Program { code, args, limit, grants, ..Program::default() });
    assert_eq!(value(&ended), Some(&json!([true, [granted]])), "{ended:?}");
}

/// A server on loopback that accepts no connection: after the first, connections to it hang.
fn unaccepting() -> (u16, rustix::fd::OwnedFd) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    listen(&listener, 0).unwrap();
    let address: SocketAddrV4 = getsockname(&listener).unwrap().try_into().unwrap();
    (address.port(), listener)
}

#[test]
fn connections_of_one_agent_that_hang_hold_up_no_other() {
    let port = server();
    let (hanging, _unaccepting) = unaccepting();
    let driver = &Driver::new();
    let grants = Grants { network: Network::Loopback, ..Grants::default() };
    let code = "import socket, threading, time\n\
                def connect():\n    while True:\n        try: held.append(socket.create_connection(('127.0.0.1', args[0])))\n        except OSError: time.sleep(0.05)\n\
                held = []\n\
                for _ in range(40): threading.Thread(target=connect, daemon=True).start()\ntime.sleep(600)";
    let args = vec![json!(hanging)];
    thread::scope(|scope| {
        let cancellation = recurgent::guest::Cancellation::default();
        let greedy = Program {
            code,
            args,
            agent: "greedy",
            grants: grants.clone(),
            cancellation: cancellation.clone(),
            ..Program::default()
        };
        let greedy = scope.spawn(move || driver.run(&greedy));
        let hung = || {
            let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
            threads
                .filter_map(|it| name(it).ok())
                .filter(|it| it.starts_with("recurgent-conn"))
                .count()
        };
        let begun = std::time::Instant::now();
        while hung() < 32 {
            assert!(!greedy.is_finished(), "the program should wait: {:?}", greedy.join());
            assert!(begun.elapsed() < crate::HANG_TIMEOUT, "{} hang", hung());
            thread::sleep(std::time::Duration::from_millis(5));
        }
        let code =
            "import socket\nresult = socket.create_connection(('127.0.0.1', args[0])).send(b'x')";
        let args = vec![json!(port)];
        let modest =
            Program { code, args, agent: "modest", grants: grants.clone(), ..Program::default() };
        let ended = driver.run(&modest);
        cancellation.cancel();
        assert_eq!(value(&ended), Some(&json!(1)), "{ended:?}");
        let begun = std::time::Instant::now();
        while hung() >= 32 {
            assert!(begun.elapsed() < crate::HANG_TIMEOUT, "no thread waits any more");
            thread::yield_now();
        }
    });
}
