//! Environments on disk: what a hit costs, what is listed, and what is removed.

use std::fs::FileTimes;
use std::time::{Duration, SystemTime};

use recurgent::PreparationStatus;
use recurgent::environment::{CacheState, EnvironmentCache, Removal, Stored};
use serde_json::json;

use crate::fixture::{call, value};
use crate::sources::PackageServer;

const OUTER: &str = "import outer_part\nresult = outer_part.NAME";

#[test]
fn a_hit_costs_next_to_nothing_and_writes_nothing() {
    let fixture = PackageServer::wheels().fixture();
    fixture.model_writes("check", OUTER, &json!([{"name": "outer-part"}]));
    let runtime = fixture.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    value(&call(&mut agent, "check"));
    let root = &fixture.environments()[0];
    let written = || std::fs::metadata(root.join(".ready")).unwrap().modified().unwrap();
    let before = written();
    let times = (0..10).map(|_| {
        value(&call(&mut agent, "check"));
        let logged = fixture.last_log_entry();
        assert_eq!(logged["environment_cache_hit"], json!(true));
        logged["env_prepare_ms"].as_f64().unwrap()
    });
    let best = times.fold(f64::MAX, f64::min);
    assert!(best <= 1.0, "{best} ms");
    assert_eq!(written(), before);
}

#[test]
fn environments_are_listed_and_removed_unless_they_are_in_use() {
    let fixture = PackageServer::wheels().fixture();
    fixture.model_writes("check", OUTER, &json!([{"name": "outer-part", "version": ">=1"}]));
    let runtime = fixture.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    value(&call(&mut agent, "check"));
    let cache = runtime.cache().unwrap();
    let half_built = fixture.cache().join("0".repeat(64));
    std::fs::create_dir(&half_built).unwrap();

    let listed = cache.list();
    assert_eq!(listed.len(), 2);
    let ready = listed.iter().find(|stored| stored.standing == CacheState::Ready).unwrap();
    assert_eq!(declared(ready), ["outer-part >=1"]);
    assert_eq!(ready.packages, ["inner-part 1.0", "outer-part 1.0"]);
    assert_eq!(ready.source_mode, "internal_only");
    assert!(ready.bytes > 0 && ready.is_in_use());
    assert_eq!(cache.find(&ready.id[..8]), std::slice::from_ref(ready));
    assert_eq!(cache.find("no-such-id"), []);

    assert_eq!(cache.remove(ready), Removal::InUse, "it has a zygote in it");
    let unneeded = cache.unneeded(Duration::from_hours(1));
    assert_eq!(standings(&unneeded), [CacheState::Unfinished], "the other one is too young");
    assert_eq!(cache.remove(&unneeded[0]), Removal::Removed);
    assert!(!half_built.exists() && ready.root.exists());
    drop((agent, runtime));
    assert_eq!(cache.remove(ready), Removal::Removed);
    assert_eq!(fixture.environments().len(), 0);
}

/// Environments that no program uses go when a new one would make all together too large.
#[test]
fn environments_unused_longest_are_removed_when_there_are_too_many() {
    let mut fixture = PackageServer::wheels().fixture();
    value(&fixture.run_program(OUTER, &json!([{"name": "outer-part"}])));
    let first = fixture.environments();
    assert_eq!(first.len(), 1);
    fixture.set("environments_total_mb", "1");
    let ballast = vec![0; 2 << 20];
    std::fs::write(first[0].join("ballast"), ballast).unwrap();
    let inner = "import inner_part\nresult = inner_part.NAME";
    value(&fixture.run_program(inner, &json!([{"name": "inner-part"}])));
    let left = fixture.environments();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_ne!(left, first);
}

/// Downloads of a package manager beyond their limit are removed after the build that needed them.
#[test]
fn downloads_are_removed_when_there_are_too_many() {
    let mut fixture = PackageServer::wheels().fixture();
    let downloads = fixture.own_downloads();
    fixture.set("downloads_total_mb", "1");
    let outer = json!([{"name": "outer-part"}]);
    value(&fixture.run_program(OUTER, &outer));
    let download = downloads.join("a download");
    std::fs::write(&download, vec![0; 2 << 20]).unwrap();
    value(&fixture.run_program(OUTER, &outer));
    assert!(download.exists(), "nothing was built");
    let inner = "import inner_part\nresult = inner_part.NAME";
    value(&fixture.run_program(inner, &json!([{"name": "inner-part"}])));
    assert!(!download.exists());
    assert_eq!(fixture.environments().len(), 2, "environments stay");
    value(&fixture.run_program(OUTER, &outer));
}

fn declared(stored: &Stored) -> Vec<String> {
    stored.manifest.dependencies().iter().map(ToString::to_string).collect()
}

fn standings(stored: &[Stored]) -> Vec<CacheState> {
    stored.iter().map(|stored| stored.standing).collect()
}

#[test]
fn environments_used_lately_are_kept_and_listing_does_not_count_as_use() {
    let fixture = PackageServer::wheels().fixture();
    value(&fixture.run_program(OUTER, &json!([{"name": "outer-part"}])));
    let cache = fixture.runtime().cache().unwrap();
    let ready = std::fs::File::open(cache.list()[0].root.join(".ready")).unwrap();
    let (week, day) = (Duration::from_hours(7 * 24), Duration::from_hours(24));
    let ago = |age| SystemTime::now() - age;
    ready.set_times(FileTimes::new().set_modified(ago(week)).set_accessed(ago(day / 2))).unwrap();
    assert_eq!(cache.unneeded(day), [], "made a week ago, used today");
    ready.set_times(FileTimes::new().set_modified(ago(week)).set_accessed(ago(2 * day))).unwrap();
    for _ in 0..2 {
        assert_eq!(cache.unneeded(day).len(), 1, "looking at it does not count");
    }
    assert_eq!(cache.unneeded(3 * day), []);
}

#[test]
fn what_some_process_builds_is_not_removed() {
    let source = PackageServer::gems();
    let fixture = source.fixture();
    let runtime = fixture.runtime();
    let (sender, reached) = std::sync::mpsc::channel();
    let ticket = runtime
        .prepare("tester")
        .dependency("sluggish", "")
        .on_progress(move |what| sender.send(what.to_owned()).unwrap())
        .start();
    let ample = Duration::from_mins(1);
    assert_eq!(reached.recv_timeout(ample).unwrap(), "resolving dependencies");
    assert_eq!(reached.recv_timeout(ample).unwrap(), "installing 1 package");
    let cache = runtime.cache().unwrap();
    let under_way = cache.list();
    assert_eq!(standings(&under_way), [CacheState::Building]);
    assert_eq!(cache.unneeded(Duration::ZERO), []);
    assert_eq!(cache.remove(&under_way[0]), Removal::BeingBuilt);
    assert_eq!(ticket.await_ready(ample), PreparationStatus::Ready);
    assert_eq!(reached.recv_timeout(ample).unwrap(), "loading packages");
    assert_eq!(standings(&cache.list()), [CacheState::Ready]);
}

/// Both guests: an environment, refreshed after its source got something newer.
#[test]
fn a_refreshed_environment_takes_over_and_the_old_one_serves_running_programs() {
    for (source, package, versions, code, wait) in [
        (
            PackageServer::gems(),
            "beta",
            ["1.0.0", "2.0.0"],
            "require 'beta'\nBeta::VERSION",
            RUBY_WAIT,
        ),
        (
            PackageServer::wheels(),
            "inner-part",
            ["inner", "inner 2"],
            "import inner_part\nresult = inner_part.NAME",
            PYTHON_WAIT,
        ),
    ] {
        source.set_outdated(true);
        let mut fixture = source.fixture();
        let gates = fixture.open_directory("gates");
        fixture.set("write_paths", gates.to_str().unwrap());
        let runtime = fixture.runtime();
        let cache = runtime.cache().unwrap();
        fixture.model_writes("check", code, &json!([{"name": package}]));
        fixture.model_writes(
            "wait",
            &wait.replace("GATE", gates.join("gate").to_str().unwrap()),
            &json!([]),
        );
        let mut agent = runtime.agent("tester").build().unwrap();
        assert_eq!(value(&call(&mut agent, "check")), versions[0]);
        source.set_outdated(false);
        assert_eq!(value(&call(&mut agent, "check")), versions[0], "a hit asks no source");
        let first = cache.list().remove(0);

        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| call(&mut agent, "wait"));
            while !gates.join("gate.reached").exists() {
                assert!(!waiting.is_finished(), "it should be waiting");
                std::thread::yield_now();
            }
            let ticket = runtime.refresh(&first).start();
            assert_eq!(
                ticket.await_ready(HANG_TIMEOUT),
                PreparationStatus::Ready,
                "{:?}",
                ticket.failure()
            );
            assert!(!ticket.environment().unwrap().cache_hit);
            assert_eq!(cache.remove(&first), Removal::InUse);
            std::fs::write(gates.join("gate"), "").unwrap();
            // It loads only now what it was promised when it started.
            assert_eq!(value(&waiting.join().unwrap()), versions[0]);
        });
        let both = cache.list();
        assert_eq!(standings(&both), [CacheState::Superseded, CacheState::Ready]);
        assert_eq!(both[0].root, first.root);
        assert_eq!(value(&call(&mut agent, "check")), versions[1]);
        let logged = fixture.last_log_entry();
        assert_eq!(logged["environment_cache_hit"], json!(true));
        assert_eq!(logged["env_id"], json!(first.id), "it is the same environment");
        drop((agent, runtime));
        remove_all(&cache);
    }
}

const HANG_TIMEOUT: Duration = Duration::from_mins(5);
/// Run in the environment, and load its package late.
const RUBY_WAIT: &str = "File.write('GATE.reached', '')\nsleep 0.01 until File.exist?('GATE')\nrequire 'beta'\nBeta::VERSION";
const PYTHON_WAIT: &str = "import os, time, pathlib\npathlib.Path('GATE.reached').touch()\nwhile not os.path.exists('GATE'):\n    time.sleep(0.01)\nimport inner_part\nresult = inner_part.NAME";

fn remove_all(cache: &EnvironmentCache) {
    assert_eq!(cache.unneeded(Duration::from_hours(1)).len(), 1, "the superseded one");
    for stored in cache.list() {
        assert_eq!(cache.remove(&stored), Removal::Removed);
    }
    let left = std::fs::read_dir(cache.directory())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().ends_with("-envs"));
    for place in left {
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "not even its lock");
    }
}

#[test]
fn a_refresh_that_fails_changes_nothing() {
    let source = PackageServer::gems();
    let mut fixture = source.fixture();
    let beta = json!([{"name": "beta"}]);
    let before = value(&fixture.run_program("require 'beta'\nBeta::VERSION", &beta)).clone();
    let cache = fixture.runtime().cache().unwrap();
    let listed = cache.list();
    let fails = |fixture: &crate::fixture::EnvironmentFixture| {
        let ticket = fixture.runtime().refresh(&listed[0]).start();
        assert_eq!(ticket.await_ready(HANG_TIMEOUT), PreparationStatus::Error);
        assert_eq!(cache.list()[0].root, listed[0].root);
        assert_eq!(standings(&cache.list()), [CacheState::Ready]);
        ticket.failure().unwrap()
    };
    fixture.set("blocked_gems", "beta");
    assert_eq!(fails(&fixture).kind.code(), "dependency_policy_violation");
    fixture.set("blocked_gems", "");
    let address = source.url();
    fixture.set("gem_sources", "http://127.0.0.1:9/");
    let failure = fails(&fixture);
    assert!(failure.message.contains("other sources than are set now"), "{failure:?}");
    fixture.set("gem_sources", &address);
    assert_eq!(value(&fixture.run_program("require 'beta'\nBeta::VERSION", &beta)), &before);
}

#[test]
fn an_environment_that_is_not_what_it_was_is_made_anew() {
    let source = PackageServer::gems();
    let fixture = source.fixture();
    let beta = json!([{"name": "beta", "version": "~> 1.0"}]);
    value(&fixture.run_program("require 'beta'\nBeta::VERSION", &beta));
    let lock = fixture.environments()[0].join("Gemfile.lock");
    std::fs::write(&lock, "tampered\n").unwrap();
    assert_eq!(value(&fixture.run_program("require 'beta'\nBeta::VERSION", &beta)), "1.0.0");
    assert_eq!(fixture.last_log_entry()["environment_cache_hit"], json!(false));
    assert!(std::fs::read_to_string(&lock).unwrap().contains("beta (1.0.0)"));
}

/// A build that was killed leaves a lock, and no environment that could be removed with it.
#[test]
fn locks_without_an_environment_are_removed() {
    let source = PackageServer::gems();
    let fixture = source.fixture();
    crate::fixture::failure(&fixture.run_program("1", &json!([{"name": "no-such-gem"}])));
    let cache = fixture.runtime().cache().unwrap();
    let count = || std::fs::read_dir(fixture.cache()).unwrap().count();
    assert_eq!((count(), cache.remove_unused_locks(), count()), (1, 1, 0));
    assert_eq!(cache.remove_unused_locks(), 0);
}
