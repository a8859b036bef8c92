//! Packages that attack while they are loaded: in the zygote, before any worker is sealed.

use std::path::Path;

use lifecycle::dialect::Language;
use recurgent::worker::Tier;
use serde_json::json;

use crate::drive::{BOTH, Driver, Program};
use crate::value;

/// Looks around when it is loaded and when a worker asks; takes the seal off every worker in between.
const PYTHON: &str = r"
import os, socket, sys

def tries():
    yield lambda: open(SECRET).read()
    yield lambda: open('/proc/self/root' + SECRET).read()
    yield lambda: open(PLACE + '/planted', 'w')
    yield lambda: open(os.path.join(os.path.dirname(os.__file__), 'recurgent_planted'), 'w')
    yield lambda: open(__file__, 'a')
    yield lambda: os.kill(HOST, 0)
    yield lambda: open(f'/proc/{HOST}/environ').read()
    yield lambda: socket.create_connection(('127.0.0.1', PORT), 2)
    yield lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))
    yield lambda: socket.socket(socket.AF_UNIX).connect(PLACE + '/socket')

def look():
    found = []
    for number, attempt in enumerate(tries()):
        try:
            attempt()
            found.append(number)
        except OSError:
            pass
    return found

AT_LOAD = look()
sys.modules['__main__'].Seal.apply = lambda *_: None
";

const RUBY: &str = r#"
require "socket"

module Bad
  TRIES = [
    -> { File.read(SECRET) },
    -> { File.read("/proc/self/root" + SECRET) },
    -> { File.write(PLACE + "/planted", "x") },
    -> { File.write(File.join(RbConfig::CONFIG["rubylibdir"], "recurgent_planted"), "x") },
    -> { File.open(__FILE__, "a") },
    -> { Process.kill(0, HOST) },
    -> { File.read("/proc/#{HOST}/environ") },
    -> { TCPSocket.new("127.0.0.1", PORT) },
    -> { UDPSocket.new.send("x", 0, "127.0.0.1", PORT) },
    -> { UNIXSocket.new(PLACE + "/socket") },
  ].freeze

  def self.look
    TRIES.each_index.select do |number|
      TRIES[number].call
      true
    rescue SystemCallError
      false
    end
  end

  AT_LOAD = look
end

module Kernel
  def syscall(*) = 0
end
"#;

/// Makes processes until there are no more, and keeps them.
const BOMBS: [&str; 2] = [
    "import os, signal\ntry:\n    for _ in range(300):\n        if os.fork() == 0: signal.pause()\nexcept OSError: pass",
    "begin\n  300.times { syscall(34) if syscall(57).zero? }\nrescue SystemCallError\nend", // Ruby's fork waits
];

/// The same without a bound of its own; the error of loading it says how many there were.
const COUNTED_BOMBS: [&str; 2] = [
    "import os, signal\ncount = 0\ntry:\n    for count in range(3000):\n        if os.fork() == 0: signal.pause()\nexcept OSError: pass\nraise ImportError(f'made {count} processes')",
    "count = 0\nbegin\n  3000.times { syscall(57).zero? ? syscall(34) : count += 1 }\nrescue SystemCallError\nend\nraise LoadError, \"made #{count} processes\"",
];

/// An environment with the one package `bad`.
fn environment(root: &Path, language: Language, source: &str) {
    let library = root.join("library");
    let (packages, proof) = match language {
        Language::Python => {
            std::fs::create_dir_all(&library).unwrap();
            std::fs::write(library.join("bad.py"), source).unwrap();
            std::fs::write(library.join("bad.pth"), "import bad\n").unwrap();
            (json!([]), json!({"package": "bad", "modules": ["bad"]}))
        }
        Language::Ruby => {
            let (code, specifications) =
                (library.join("gems/bad-1.0/lib"), library.join("specifications"));
            std::fs::create_dir_all(&code).unwrap();
            std::fs::create_dir_all(&specifications).unwrap();
            std::fs::write(code.join("bad.rb"), source).unwrap();
            let specification = "Gem::Specification.new do |s|\n  s.name = 'bad'\n  s.version = '1.0'\n  \
                                 s.summary = 'bad'\n  s.authors = ['x']\n  s.files = ['lib/bad.rb']\n  s.require_paths = ['lib']\nend\n";
            std::fs::write(specifications.join("bad-1.0.gemspec"), specification).unwrap();
            (json!([{"name": "bad", "version": "1.0"}]), json!({"package": "bad", "modules": []}))
        }
    };
    let ready = json!({"guest": language.name(), "manifest": [], "lock_checksum": "", "source_mode": "",
        "sources": [], "prepared_at": "", "packages": packages, "provides": [], "library": "library",
        "proofs": [proof]});
    std::fs::write(root.join(".ready"), ready.to_string()).unwrap();
}

#[test]
fn a_package_that_attacks_while_it_is_loaded_finds_nothing() {
    let bait = tempfile::tempdir().unwrap();
    std::fs::write(bait.path().join("secret"), "a key").unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(bait.path().join("socket")).unwrap();
    let server = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    let constants = format!(
        "SECRET = '{0}/secret'\nPLACE = '{0}'\nHOST = {1}\nPORT = {port}\n",
        bait.path().display(),
        std::process::id()
    );
    let cache = tempfile::tempdir().unwrap();
    for (language, source, code) in [
        (
            Language::Python,
            PYTHON,
            "import sys\nbad = sys.modules['bad']\nresult = [bad.AT_LOAD, bad.look()]",
        ),
        (Language::Ruby, RUBY, "[Bad::AT_LOAD, Bad.look]"),
    ] {
        let root = cache.path().join(language.name());
        std::fs::create_dir(&root).unwrap();
        open_to_all(cache.path());
        environment(&root, language, &format!("{constants}{source}"));
        for tier in [Tier::Sealed, Tier::Namespaces, Tier::Landlock] {
            let driver = Driver::with(|options| options.layers = tier.layers());
            let environment = root.to_str();
            let ended = driver.run(&Program { language, code, environment, ..Program::default() });
            assert_eq!(value(&ended), Some(&json!([[], []])), "{tier}: {ended:?}");
        }
    }
    assert!(!bait.path().join("planted").exists());
}

#[test]
fn a_package_that_makes_processes_without_end_harms_its_own_environment_only() {
    let cache = tempfile::tempdir().unwrap();
    open_to_all(cache.path());
    for (language, source) in BOTH.into_iter().zip(BOMBS) {
        let root = cache.path().join(language.name());
        std::fs::create_dir(&root).unwrap();
        environment(&root, language, source);
        let driver = Driver::with(|options| options.limits.processes = 2);
        let environment = root.to_str();
        let ended = driver.run(&Program { language, code: "1", environment, ..Program::default() });
        assert!(ended.is_err(), "{language:?}: {ended:?}");
        let ended = driver.run(&Program { language, code: "1", ..Program::default() });
        assert_eq!(value(&ended), Some(&json!(1)), "{language:?}: {ended:?}");
    }
}

#[test]
fn the_limit_of_processes_holds_while_packages_are_loaded() {
    let cache = tempfile::tempdir().unwrap();
    open_to_all(cache.path());
    for (language, source) in BOTH.into_iter().zip(COUNTED_BOMBS) {
        let root = cache.path().join(language.name());
        std::fs::create_dir(&root).unwrap();
        environment(&root, language, source);
        let environment = root.to_str();
        let program = Program { language, code: "1", environment, ..Program::default() };
        let said = format!("{:?}", Driver::new().run(&program).unwrap_err());
        let made = said.split("made ").nth(1).and_then(|rest| rest.split(' ').next());
        let made: u64 = made.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
        // Where there are control groups far fewer: `worker_processes`.
        assert!(made < 600, "{language:?}: {said}");
    }
}

/// Under root, workers run as a user that owns nothing.
fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
