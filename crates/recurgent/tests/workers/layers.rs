//! Each layer of containment by itself: what it alone stops, with every layer that overlaps switched off.

use std::os::unix::fs::PermissionsExt;

use lifecycle::dialect::Language;
use lifecycle::execution::WorkerFault;
use lifecycle::outcome::{FailureKind, Limit};
use recurgent::config::Config;
use recurgent::grants::{Grants, Network};
use recurgent::worker::{Layer, Layers, Tier};
use serde_json::{Value, json};

use crate::drive::{BOTH, Driver, Program};
use crate::value;

#[test]
fn this_kernel_offers_the_strongest_tier() {
    let driver = Driver::new();
    let reached = driver.containment();
    assert_eq!(reached.tier, Tier::Sealed, "{:?}", reached.missing);
}

/// A test of this program, run once more by a process that was changed before.
pub(crate) fn passes_under(changed_by: &[&str], test: &str) {
    let (program, arguments) = changed_by.split_first().unwrap();
    let ended = std::process::Command::new(program)
        .args(arguments)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("1 passed"), "under {changed_by:?}: {said}{ended:?}");
}

/// Under root, workers run as a user that owns nothing, and must pass through what the host made. Limits the
/// host is under hold for workers too.
#[test]
fn a_host_that_keeps_to_itself_has_as_strong_a_sandbox() {
    let this_kernel = "layers::this_kernel_offers_the_strongest_tier";
    for change in ["umask 077", "ulimit -t 50", "ulimit -u 500", "ulimit -n 128", "ulimit -f 4096"]
    {
        let script = format!("{change}; exec \"$0\" \"$@\"");
        passes_under(&["/bin/bash", "-c", &script], this_kernel);
    }
}

/// Runs what follows where the kernel refuses one system call: when an argument is not zero.
const WITHOUT: &str = "
import ctypes, os, struct, sys
number, argument = map(int, sys.argv[1:3])
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16 + 8 * argument), (0x15, 1, 0, 0),
         (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[3], sys.argv[3:])
";

/// By name, for the test below, which takes away what limits are set with.
#[test]
fn a_program_runs_within_limits_or_not_at_all() {
    let driver = Driver::new();
    let reached = driver.containment();
    let limited = !reached.missing.iter().any(|(layer, _)| *layer == Layer::Limits);
    assert_eq!(reached.reaches(Tier::Process), limited);
    let ended = driver.run(&Program { code: "result = 1", ..Program::default() });
    match ended {
        Err(WorkerFault::Uncontained(message)) if !limited => {
            assert!(message.contains("reaches none (limits: "), "{message}");
        }
        ended => assert!(limited && value(&ended).is_some(), "{ended:?}"),
    }
}

#[test]
fn where_no_limit_can_be_set_nothing_runs() {
    let python = Driver::new().interpreter(Language::Python);
    let set_limit = libc::SYS_prlimit64.to_string(); // with a new value in its third argument
    let without = [python.to_str().unwrap(), "-c", WITHOUT, &set_limit, "2"];
    passes_under(&without, "layers::a_program_runs_within_limits_or_not_at_all");
}

/// Whether a program finds something under these layers.
fn finds(layers: Layers, language: Language, code: &str, args: &[Value]) -> bool {
    let driver = Driver::with(|options| {
        options.layers = layers;
        options.limits.memory_bytes = 1 << 30;
    });
    let ended = driver.run(&Program { language, code, args: args.to_vec(), ..Program::default() });
    matches!(value(&ended), Some(found) if *found != Value::Null && *found != json!(false))
}

/// Each program finds something under no layer at all, and nothing once `layer` is there.
fn alone_stops(layer: Layer, [python, ruby]: [&str; 2], args: &[Value]) {
    let none = Layers::NONE;
    for (language, code) in [(Language::Python, python), (Language::Ruby, ruby)] {
        assert!(finds(none, language, code, args), "{layer:?} is not what stops {code}");
        assert!(!finds(none.with(layer), language, code, args), "{layer:?} does not stop {code}");
    }
}

#[test]
fn each_layer_stops_something_by_itself() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "a key").unwrap();
    let secret = [json!(secret.path())];
    let host = [json!(std::process::id())];
    let read = ["result = open(args[0]).read()", "File.read(args[0])"];
    let signal = ["import os\nos.kill(args[0], 0)\nresult = True", "Process.kill(0, args[0]) == 1"];
    alone_stops(
        Layer::Limits,
        ["result = len(bytearray(2 << 30))", "('x' * (2 << 30)).bytesize"],
        &[],
    );
    alone_stops(
        Layer::Seccomp,
        [
            "import ctypes\nresult = ctypes.CDLL(None).unshare(0x10000000 | 0x04000000) == 0",
            "syscall(272, 0x10000000 | 0x04000000) == 0",
        ],
        &[],
    );
    alone_stops(Layer::Landlock, read, &secret);
    alone_stops(Layer::Landlock, signal, &host);
    alone_stops(Layer::Namespaces, read, &secret);
    alone_stops(Layer::Namespaces, signal, &host);
    alone_stops(
        Layer::Namespaces,
        [
            "import socket\nresult = socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
            "require 'socket'\nUDPSocket.new.send('x', 0, '127.0.0.1', 9)",
        ],
        &[],
    );
    if rustix::process::geteuid().is_root() {
        let capabilities = [
            "import ctypes\nhead = (ctypes.c_uint32 * 2)(0x20080522, 0)\ndata = (ctypes.c_uint32 * 6)()\n\
             ctypes.CDLL(None).capget(head, data)\nresult = any(data)",
            "data = \"\\0\" * 24\nhead = [0x20080522, 0].pack('LL')\n\
             syscall(125, [head].pack('P').unpack1('J'), [data].pack('P').unpack1('J'))\ndata.unpack('L6').any?(&:positive?)",
        ];
        alone_stops(Layer::Identity, capabilities, &[]);
    }
}

#[test]
fn weaker_containment_than_asked_for_runs_nothing() {
    let driver = Driver::with(|options| {
        options.layers = Tier::Landlock.layers();
        options.minimum_tier = Tier::Namespaces;
    });
    for language in BOTH {
        let ended = driver.run(&Program { language, code: "1", ..Program::default() });
        let Err(WorkerFault::Uncontained(message)) = ended else { panic!("{ended:?}") };
        assert!(message.contains("reaches landlock"), "{message}");
        assert!(message.contains("recurgent doctor"), "{message}");
    }
}

#[test]
fn a_runtime_below_its_minimum_reports_it_to_callers() {
    for (minimum, missing, runs) in [
        ("sealed", None, true),
        ("sealed", Some(Layer::Landlock), false),
        ("namespaces", Some(Layer::Landlock), true),
        ("namespaces", Some(Layer::Namespaces), false),
        ("landlock", Some(Layer::Seccomp), false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        config.set("state_dir", dir.path().to_str().unwrap()).unwrap();
        config.set("minimum_sandbox_tier", minimum).unwrap();
        let script = recurgent::provider::Scripted::new().with("tester.check", "1");
        let all = Layers::ALL;
        let runtime = recurgent::Runtime::builder(config)
            .provider(std::sync::Arc::new(script))
            .layers(missing.map_or(all, |layer| all.without(layer)))
            .build()
            .unwrap();
        let outcome = runtime.agent("tester").build().unwrap().call("check", ()).unwrap();
        let kind = outcome.failure().map(|failure| failure.kind.clone());
        let expected = (!runs).then_some(FailureKind::SandboxUnavailable);
        assert_eq!(kind, expected, "{minimum} without {missing:?}: {outcome:?}");
    }
}

#[test]
fn asks_without_end_meet_their_limit() {
    for (language, code) in [
        ("python", "for n in range(1000000): content(str(n))"),
        ("ruby", "1_000_000.times { |n| content(n.to_s) }"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        for (name, value) in [
            ("state_dir", dir.path().to_str().unwrap()),
            ("guest", language),
            ("asks_per_call", "200"),
        ] {
            config.set(name, value).unwrap();
        }
        let script = recurgent::provider::Scripted::new().with("tester.check", code);
        let runtime = recurgent::Runtime::builder(config)
            .provider(std::sync::Arc::new(script))
            .build()
            .unwrap();
        let outcome = runtime.agent("tester").build().unwrap().call("check", ()).unwrap();
        let failure = outcome.failure().unwrap();
        assert_eq!(failure.kind, FailureKind::ResourceLimit(Limit::Asks), "{outcome:?}");
    }
}

#[test]
fn a_program_gives_its_children_no_more_time_than_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::defaults();
    for (name, value) in
        [("state_dir", dir.path().to_str().unwrap()), ("execution_timeout_seconds", "8")]
    {
        config.set(name, value).unwrap();
    }
    let script = recurgent::provider::Scripted::new()
        .with(
            "tester.check",
            "child = delegate('sleeper', purpose='sleep', execution_timeout_seconds=600)\n\
             result = child.rest().error_type",
        )
        .with("sleeper.rest", "import time\ntime.sleep(600)");
    let runtime =
        recurgent::Runtime::builder(config).provider(std::sync::Arc::new(script)).build().unwrap();
    let outcome = runtime.agent("tester").build().unwrap().call("check", ()).unwrap();
    assert_eq!(outcome.value(), Some(&json!("timeout")), "{outcome:?}");
}

#[test]
fn granted_paths_are_seen_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let (given, kept) = (dir.path().join("given"), dir.path().join("kept"));
    for place in [&given, &kept] {
        std::fs::create_dir(place).unwrap();
        std::fs::write(place.join("file"), "text").unwrap();
        // Under root, workers run as a user that owns nothing.
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let read_only = Grants { read: vec![given.clone()], ..Grants::default() };
    let writable = Grants { write: vec![given.clone()], ..Grants::default() };
    for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
        let driver = Driver::with(|options| options.layers = tier.layers());
        let reads = "result = open(args[0] + '/file').read()";
        let writes = "open(args[0] + '/' + args[1], 'w').write('x')\nresult = 'written'";
        for (grants, place, code, expected) in [
            (&read_only, &given, reads, Some("text")),
            (&read_only, &given, writes, None),
            (&read_only, &kept, reads, None),
            (&writable, &given, reads, Some("text")),
            (&writable, &given, writes, Some("written")),
            (&writable, &kept, writes, None),
        ] {
            let (grants, args) = (grants.clone(), vec![json!(place), json!(tier.name())]);
            let ended = driver.run(&Program { code, args, grants, ..Program::default() });
            let found = value(&ended).and_then(Value::as_str);
            assert_eq!(found, expected, "{tier}: {code} in {}: {ended:?}", place.display());
        }
    }
    assert!(
        Tier::ALL.iter().all(|tier| given.join(tier.name()).exists() != (*tier == Tier::Process))
    );
}

/// A directory is granted for what is in its files: not to run them, nor to connect to a server that listens there.
#[test]
fn what_a_granted_directory_holds_is_neither_executed_nor_talked_to() {
    let dir = tempfile::tempdir().unwrap();
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), everybody.clone()).unwrap();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let datagrams = dir.path().join("datagrams");
    let _receiver = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
    for place in [socket, datagrams] {
        std::fs::set_permissions(&place, everybody.clone()).unwrap();
    }
    let paths = vec![dir.path().to_owned()];
    let talks = [
        "import socket\nsocket.socket(socket.AF_UNIX).connect(args[0] + '/socket')\nresult = True",
        "require 'socket'\nUNIXSocket.new(args[0] + '/socket')\ntrue",
    ];
    let sends = [
        "import socket\nresult = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', args[0] + '/datagrams')",
        "require 'socket'\nSocket.pair(:UNIX, :RAW).first.send('x', 0, Socket.sockaddr_un(args[0] + '/datagrams'))",
    ];
    let executes = [
        "import os, subprocess\nfile = args[0] + '/p' + args[1]\nopen(file, 'w').write('#!/bin/sh\\necho out\\n')\n\
         os.chmod(file, 0o755)\nresult = subprocess.run([file], capture_output=True).stdout.decode()",
        "file = args[0] + '/r' + args[1]\nFile.write(file, \"#!/bin/sh\\necho out\\n\")\nFile.chmod(0o755, file)\n`#{file}`",
    ];
    let read = Grants { read: paths.clone(), ..Grants::default() };
    let write = Grants { write: paths, ..Grants::default() };
    for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
        let driver = Driver::with(|options| options.layers = tier.layers());
        for (grants, codes) in [(&read, talks), (&write, talks), (&read, sends), (&write, executes)]
        {
            for (language, code) in BOTH.into_iter().zip(codes) {
                let (grants, args) = (grants.clone(), vec![json!(dir.path()), json!(tier.name())]);
                let program = Program { language, code, args, grants, ..Program::default() };
                let ended = driver.run(&program);
                assert_eq!(value(&ended), None, "{language:?} at {tier}: {code}: {ended:?}");
            }
        }
    }
    assert!(dir.path().join("psealed").exists(), "it was written before it was refused");
}

/// The host's network has sockets without a path in it, which no list of files keeps in.
#[test]
fn an_open_network_leads_to_no_local_socket() {
    use std::os::linux::net::SocketAddrExt;
    let dir = tempfile::tempdir().unwrap();
    let name = format!("open{}", dir.path().display());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let code =
        "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0' + args[0])\nresult = True";
    for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
        let driver = Driver::with(|options| options.layers = tier.layers());
        let grants = Grants { network: Network::Open, ..Grants::default() };
        let ended =
            driver.run(&Program { code, grants, args: vec![json!(name)], ..Program::default() });
        assert_eq!(value(&ended), None, "{tier}: {ended:?}");
    }
}

#[test]
fn agents_with_different_grants_share_no_zygote() {
    let driver = Driver::new();
    let parent = |network: Network| {
        let grants = Grants { network, ..Grants::default() };
        let program = Program {
            language: Language::Python,
            code: "1",
            proven: true,
            grants,
            ..Program::default()
        };
        crate::drive::parent(driver.run(&program).unwrap().worker.pid.unwrap())
    };
    assert_eq!(parent(Network::Off), parent(Network::Off));
    assert_ne!(parent(Network::Off), parent(Network::Loopback));
}
