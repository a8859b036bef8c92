//! Environments on disk: what a hit costs, what is listed, and what is removed.

use std::time::Duration;

use serde_json::json;

use crate::sources::PackageSource;
use crate::stage::{call, value};

const OUTER: &str = "import outer_part\nresult = outer_part.NAME";

#[test]
fn a_hit_costs_next_to_nothing_and_writes_nothing() {
    let stage = PackageSource::wheels().stage();
    stage.writes("check", OUTER, &json!([{"name": "outer-part"}]));
    let runtime = stage.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    value(&call(&mut agent, "check"));
    let root = &stage.environments()[0];
    let written = || std::fs::metadata(root.join(".ready")).unwrap().modified().unwrap();
    let before = written();
    let times = (0..10).map(|_| {
        value(&call(&mut agent, "check"));
        let logged = stage.logged();
        assert_eq!(logged["environment_cache_hit"], json!(true));
        logged["env_prepare_ms"].as_f64().unwrap()
    });
    let best = times.fold(f64::MAX, f64::min);
    assert!(best <= 1.0, "{best} ms");
    assert_eq!(written(), before);
}

#[test]
fn environments_are_listed_and_removed_unless_they_are_in_use() {
    let stage = PackageSource::wheels().stage();
    stage.writes("check", OUTER, &json!([{"name": "outer-part", "version": ">=1"}]));
    let runtime = stage.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    value(&call(&mut agent, "check"));
    let shelf = runtime.shelf().unwrap();
    let half_built = stage.shelf().join("0".repeat(64));
    std::fs::create_dir(&half_built).unwrap();

    let listed = shelf.list();
    assert_eq!(listed.len(), 2);
    let ready = listed.iter().find(|stored| stored.is_ready).unwrap();
    assert_eq!(ready.declared, ["outer-part >=1"]);
    assert_eq!(ready.packages, ["inner-part 1.0", "outer-part 1.0"]);
    assert_eq!(ready.source_mode, "internal_only");
    assert!(ready.bytes > 0);
    assert_eq!(shelf.find(&ready.id[..8]).as_ref(), Some(ready));
    assert_eq!(shelf.find("no-such-id"), None);

    let removed: Vec<String> = shelf.collect(Duration::ZERO).into_iter().map(|s| s.id).collect();
    assert_eq!(removed, ["0".repeat(64)], "the other one has a zygote in it");
    assert!(!half_built.exists() && ready.root.exists());
    drop((agent, runtime));
    assert_eq!(shelf.collect(Duration::from_hours(1)).len(), 0, "it is too young");
    assert_eq!(shelf.collect(Duration::ZERO).len(), 1);
    assert_eq!(stage.environments().len(), 0);
}

#[test]
fn an_environment_that_is_not_what_it_was_is_made_anew() {
    let source = PackageSource::gems();
    let stage = source.stage();
    let beta = json!([{"name": "beta", "version": "~> 1.0"}]);
    value(&stage.once("require 'beta'\nBeta::VERSION", &beta));
    let lock = stage.environments()[0].join("Gemfile.lock");
    std::fs::write(&lock, "tampered\n").unwrap();
    assert_eq!(value(&stage.once("require 'beta'\nBeta::VERSION", &beta)), "1.0.0");
    assert_eq!(stage.logged()["environment_cache_hit"], json!(false));
    assert!(std::fs::read_to_string(&lock).unwrap().contains("beta (1.0.0)"));
}
