//! Packages whose build scripts reach for everything they should not have.

use std::collections::BTreeSet;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use recurgent::worker::Tier;
use recurgent::{Language, Outcome};
use serde_json::{Value, json};

use crate::fixture::{EnvironmentFixture, failure, value};
use crate::sources::PackageServer;

const SECRET: &str = "s3cret-token";
/// More than an installation needs here, and less than the script would like.
const PROCESSES: u64 = 64;

/// A fixture with files, ports and processes outside of the sandbox, and a package whose build script looks for them.
struct Trap {
    fixture: EnvironmentFixture,
    source: PackageServer,
    goods: PathBuf,
    plan: Value,
    listener: TcpListener,
    receiver: UdpSocket,
    daemon: String,
    canaries: Vec<PathBuf>,
}

impl Trap {
    fn set(language: Language, change: impl FnOnce(&mut Value, &str)) -> Self {
        Self::set_at(Tier::Sealed, language, change)
    }

    fn set_at(tier: Tier, language: Language, change: impl FnOnce(&mut Value, &str)) -> Self {
        let mut fixture = EnvironmentFixture::new(language);
        fixture.layers = tier.layers();
        fixture.set("minimum_sandbox_tier", tier.name());
        let goods = fixture.path("goods");
        std::fs::create_dir(&goods).unwrap();
        let source = PackageServer::of(language, Box::leak(goods.clone().into_boxed_path()));
        fixture.set("source_mode", "internal_only");
        fixture.set(source.key(), &source.url_with(&format!("me:{SECRET}@")));
        fixture.set("installer_processes", &PROCESSES.to_string());
        let downloads = fixture.path("cache").join("uv");
        std::fs::remove_file(&downloads).unwrap(); // the one all tests share
        let other = fixture.cache().join("another");
        let secrets = [fixture.path("home/.ssh"), fixture.path("state"), other.clone(), downloads];
        let mut canaries = Vec::new();
        for directory in &secrets {
            std::fs::create_dir_all(directory).unwrap();
            canaries.push(directory.join("canary"));
        }
        canaries.push(fixture.path("log.jsonl"));
        for canary in &canaries {
            std::fs::write(canary, SECRET).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let host = std::process::id();
        let daemon = format!("36000.{host}{}", listener.local_addr().unwrap().port());
        let mut attempts = vec![
            json!(["list", fixture.directory.path()]),
            json!(["list", fixture.cache()]),
            json!(["list", "/proc"]),
            json!(["list", "/"]),
            json!(["read", format!("/proc/{host}/environ")]),
            json!(["create", fixture.cache()]),
            json!(["connect", address]),
            json!(["connect", source.address().to_string()]),
            json!(["speak", receiver.local_addr().unwrap().to_string()]),
            json!(["signal", host]),
            json!(["variable", "CARGO_MANIFEST_DIR"]),
            json!(["parent", "environ"]),
            json!(["parent", "mem"]),
            json!(["parent", "cmdline"]),
            json!(["secret", SECRET]),
            json!(["stdin", null]),
        ];
        attempts
            .extend(canaries.iter().flat_map(|it| [json!(["read", it]), json!(["append", it])]));
        attempts.extend(secrets.iter().map(|directory| json!(["create", directory])));
        let mut plan =
            json!({"attempts": attempts, "daemon": daemon, "fill_mb": 0, "requires": []});
        change(&mut plan, &address);
        let trap = Self { fixture, source, goods, plan, listener, receiver, daemon, canaries };
        trap.pack();
        trap
    }

    /// The tool, what makes the package, and the hostile script with its name in the package.
    fn recipe(&self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self.fixture.language {
            Language::Python => ("python3", "hostile_goods.py", "hostile.py", "hostile.py"),
            Language::Ruby => ("ruby", "hostile_goods.rb", "hostile.rb", "extconf.rb"),
        }
    }

    fn pack(&self) {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/environments");
        let (tool, maker, script, name) = self.recipe();
        std::fs::copy(here.join(script), self.goods.join(name)).unwrap();
        std::fs::write(self.goods.join("plan.json"), self.plan.to_string()).unwrap();
        let made = Command::new(tool).arg(here.join(maker)).arg(&self.goods).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn install(&self) -> Outcome {
        match self.fixture.language {
            Language::Python => self.fixture.run_program(
                "import hostile_part\nresult = hostile_part.GOT",
                &json!([{"name": "hostile-part"}]),
            ),
            Language::Ruby => self
                .fixture
                .run_program("require 'hostile'\nHOSTILE", &json!([{"name": "hostile"}])),
        }
    }

    /// Runs the script outside of the sandbox, which shows that everything it is refused inside exists.
    fn reached_outside(&self) -> Vec<Value> {
        let (tool, _, _, name) = self.recipe();
        let made = Command::new(tool).arg(self.goods.join(name)).arg("quietly").output().unwrap();
        serde_json::from_slice(&made.stdout).unwrap()
    }

    fn was_spoken_to(&self) -> bool {
        self.listener.accept().is_ok() || self.receiver.recv(&mut [0; 16]).is_ok()
    }

    fn assert_untouched(&self) {
        for canary in &self.canaries {
            let text = std::fs::read_to_string(canary).unwrap();
            assert!(text.starts_with(SECRET), "{}: {text}", canary.display());
        }
        assert!(!self.was_spoken_to(), "a host that is not a source was contacted");
        assert_eq!(self.daemons(), [0; 0], "a daemon lives on");
    }

    /// What the script left running.
    fn daemons(&self) -> Vec<i32> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten().filter(|process| {
            std::fs::read_to_string(process.path().join("cmdline"))
                .is_ok_and(|line| line.contains(&self.daemon))
        });
        processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).collect()
    }

    /// Kinds of attempts that succeeded, and how many processes the script could start.
    fn got(outcome: &Outcome) -> (BTreeSet<&str>, u64) {
        let got = value(outcome);
        let reached = got["reached"].as_array().unwrap();
        let kinds = reached.iter().map(|attempt| attempt[0].as_str().unwrap()).collect();
        (kinds, got["forked"].as_u64().unwrap())
    }
}

/// docs/security.md has this table.
#[test]
fn at_every_tier_a_build_script_reaches_what_the_documents_say() {
    const ALL: [&str; 8] =
        ["append", "connect", "create", "list", "parent", "read", "signal", "speak"];
    for language in [Language::Python, Language::Ruby] {
        for tier in Tier::ALL {
            let trap = Trap::set_at(tier, language, |_, _| {});
            let outcome = trap.install();
            let (kinds, forked) = Trap::got(&outcome);
            let expected: BTreeSet<&str> = match (tier, language) {
                (Tier::Sealed, _) => BTreeSet::new(),
                // Its own, small root, and the package manager that started it.
                (Tier::Namespaces, _) => ["list", "parent"].into(),
                (Tier::Landlock, Language::Python) => ["connect", "speak"].into(),
                (Tier::Landlock, Language::Ruby) => BTreeSet::new(),
                // uv builds in the process that fetches, so its credentials are within reach.
                (Tier::Process, Language::Python) => ALL.into_iter().chain(["secret"]).collect(),
                (Tier::Process, Language::Ruby) => ALL.into(),
            };
            assert_eq!(kinds, expected, "{language:?} at {tier}");
            if tier >= Tier::Namespaces {
                assert!((1..PROCESSES).contains(&forked), "{language:?} at {tier}: {forked}");
                trap.assert_untouched();
            }
            if tier > Tier::Process {
                assert_eq!(trap.daemons(), [0; 0], "{language:?} at {tier}");
            }
            for daemon in trap.daemons() {
                let daemon = rustix::process::Pid::from_raw(daemon).unwrap();
                rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
            }
        }
    }
}

#[test]
fn a_build_script_reaches_nothing_and_its_package_is_installed() {
    for language in [Language::Python, Language::Ruby] {
        let trap = Trap::set(language, |_, _| {});
        let outcome = trap.install();
        let got = value(&outcome);
        assert_eq!(got["reached"], json!([]), "{language:?}");
        let forked = got["forked"].as_u64().unwrap();
        assert!((1..PROCESSES).contains(&forked), "{language:?}: {forked} processes");
        trap.assert_untouched();
        // Installed files are ours, not the builder's.
        let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&path.metadata().unwrap());
        let installed =
            trap.fixture.environments().into_iter().find(|it| it.join(".ready").exists());
        assert_eq!(owner(&installed.unwrap()), owner(trap.fixture.directory.path()));

        let authorized = trap.source.requests().iter().any(|request| {
            request.contains("hostile") && request.to_lowercase().contains("authorization: basic")
        });
        assert!(authorized, "the package manager itself had the credentials");

        let outside = trap.reached_outside();
        let quiet = |attempt: &&Value| {
            !["parent", "secret", "stdin"].contains(&attempt[0].as_str().unwrap())
        };
        let expected: Vec<Value> =
            trap.plan["attempts"].as_array().unwrap().iter().filter(quiet).cloned().collect();
        assert_eq!(outside, expected, "{language:?}: an attempt that cannot succeed shows nothing");
        assert!(trap.was_spoken_to());
    }
}

#[test]
fn a_package_manager_does_not_talk_on_behalf_of_a_build_script() {
    let trap = Trap::set(Language::Python, |plan, address| {
        plan["requires"] = json!([format!("leak @ http://{address}/{SECRET}/leak-1.0.tar.gz")]);
    });
    let outcome = trap.install();
    assert_eq!(failure(&outcome).kind.code(), "dependency_install_failed", "{outcome:#?}");
    trap.assert_untouched();
}

#[test]
fn a_build_script_that_fills_the_disk_is_stopped() {
    for language in [Language::Python, Language::Ruby] {
        let mut trap = Trap::set(language, |plan, _| plan["fill_mb"] = json!(200));
        trap.fixture.set("installer_disk_mb", "64");
        let outcome = trap.install();
        let failure = failure(&outcome);
        assert_eq!(failure.kind.code(), "dependency_install_failed", "{failure:#?}");
        assert!(failure.message.contains("installer_disk_mb"), "{failure:#?}");
        trap.assert_untouched();
        assert_eq!(trap.fixture.environments(), [trap.fixture.cache().join("another")]);
    }
}
