//! Sessions keep memory and packages, each for one role.

use lifecycle::call::StoreFault;
use lifecycle::context::Context;
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::request::CallRequest;
use recurgent::store::Owner;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use serde_json::{Value, json};

use crate::fixture::{
    alone, call, calls, check, failed, in_session, ok, packages, place, program, role, sets, unsets,
};

#[test]
fn a_failed_call_leaves_its_record_and_nothing_else() {
    check(|store| {
        let owner = in_session("s");
        store.commit(&owner, &call("c1"), &failed("c1").0).unwrap();
        assert_eq!(store.context(&owner, None).unwrap().unwrap(), Context::default());
        assert!(store.tools(None, 10).unwrap().is_empty());
        assert_eq!(calls(store, &owner, 10, None), ["c1"]);
    });
}

#[test]
fn a_sessions_memory_is_written_only_with_its_latest_version() {
    check(|store| {
        let owner = in_session("s");
        let mut local = Context::default();
        for changes in
            [sets("a", json!(1)), sets("b", json!([2])), unsets("a"), sets("b", json!({"c": 3}))]
        {
            let request = CallRequest { context: local.clone(), ..call("c") };
            store.commit(&owner, &request, &ok("c").changes(changes.clone()).0).unwrap();
            local.apply(changes);
            let kept = store.context(&owner, None).unwrap().unwrap();
            assert_eq!((kept.version(), kept.to_object()), (local.version(), local.to_object()));
        }
        assert_eq!(store.context(&in_session("other"), None).unwrap().unwrap(), Context::default());
        let other_role = Owner { role: role("poet"), ..owner };
        assert_eq!(store.context(&other_role, None).unwrap().unwrap(), Context::default());
    });
}

#[test]
fn a_stale_writer_changes_nothing() {
    check(|store| {
        let owner = in_session("s");
        store.remember(&owner, 0, &sets("a", json!(1))).unwrap();
        let stale = ok("c1")
            .changes(sets("a", json!(2)))
            .forges("poet", None)
            .admits(program("result = 1"));
        let conflict = StoreFault::Conflict { session: "s".into() };
        assert_eq!(store.commit(&owner, &call("c1"), &stale.0), Err(conflict.clone()));
        assert_eq!(store.remember(&owner, 0, &sets("a", json!(3))), Err(conflict));
        assert_eq!(store.context(&owner, None).unwrap().unwrap().get("a"), Some(&json!(1)));
        assert!(store.tools(None, 10).unwrap().is_empty());
        assert!(store.recall(&alone("a1"), &call("c2")).unwrap().artifacts.is_empty());
        assert!(store.history(&owner, 10, None).unwrap().is_empty());
        let reader = store.commit(&owner, &call("c3"), &ok("c3").0);
        assert!(reader.is_ok(), "a commit that only read is in time");
    });
}

#[test]
fn a_session_keeps_what_its_agent_holds_for_each_language() {
    check(|store| {
        let owner = in_session("s");
        let held = |owner: &Owner, language| store.manifest(owner, language).unwrap();
        let kept = |held: u64| {
            let context = store.context(&owner, Some(held)).unwrap();
            context.map_or(held, |newer| newer.version())
        };
        assert_eq!(held(&owner, Language::Python), None);
        store.commit(&owner, &call("c0"), &ok("c0").0).unwrap();
        assert_eq!(held(&owner, Language::Python), Some(DependencyManifest::default()));
        assert_eq!(kept(0), 0, "a new language alone is not a change");
        store.commit(&owner, &call("c1"), &ok("c1").holds(&["requests"]).0).unwrap();
        assert_eq!(kept(0), 1, "other processes notice it like a change of memory");
        let ruby = CallRequest { language: Language::Ruby, ..call("c2") };
        store.commit(&owner, &ruby, &ok("c2").0).unwrap();
        assert_eq!(held(&owner, Language::Python), Some(packages(&["requests"])));
        assert_eq!(held(&owner, Language::Ruby), Some(DependencyManifest::default()));
        store.commit(&owner, &call("c3"), &failed("c3").0).unwrap();
        let late = store.commit(&owner, &call("c4"), &ok("c4").holds(&["numpy"]).0);
        assert_eq!(late, Err(StoreFault::Conflict { session: "s".into() }), "it held version 0");
        let same = store.commit(&owner, &call("c5"), &ok("c5").holds(&["requests"]).0);
        assert!(same.is_ok(), "a commit that adds nothing is in time");
        assert_eq!(held(&owner, Language::Python), Some(packages(&["requests"])));
        for other in [in_session("t"), alone("a1"), Owner { role: role("poet"), ..owner.clone() }] {
            assert_eq!(held(&other, Language::Python), None);
        }
        store.commit(&alone("a2"), &call("c6"), &ok("c6").holds(&["requests"]).0).unwrap();
        assert_eq!(held(&alone("a2"), Language::Python), None, "an agent object keeps its own");
    });
}

#[test]
fn memory_without_a_session_is_not_kept() {
    check(|store| {
        let owner = alone("a1");
        store.commit(&owner, &call("c1"), &ok("c1").changes(sets("a", json!(1))).0).unwrap();
        store.remember(&owner, 7, &sets("a", json!(1))).unwrap();
        assert_eq!(store.context(&owner, None).unwrap().unwrap(), Context::default());
    });
}

#[test]
fn sessions_are_listed_shown_and_removed() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let owner = in_session("s");
    let changes = ok("c1").changes(sets("a", json!(1))).keeps("content:1", &json!(1));
    store.commit(&owner, &call("c1"), &changes.0).unwrap();
    store.commit(&alone("a1"), &call("c2"), &ok("c2").0).unwrap();

    let [summary] = &store.sessions().unwrap()[..] else { panic!() };
    assert_eq!((summary.name.as_str(), summary.role.as_str()), ("s", "calculator"));
    assert_eq!((summary.keys, summary.version, summary.history_count), (1, 1, 1));
    let [(role, context)] = &store.session_context("s").unwrap()[..] else { panic!() };
    assert_eq!((role.as_str(), context.get("a")), ("calculator", Some(&json!(1))));

    assert!(store.remove_session("s").unwrap());
    assert!(!store.remove_session("s").unwrap());
    assert!(store.sessions().unwrap().is_empty());
    assert_eq!(store.content("content:1", None).unwrap(), None);
    assert!(store.history(&owner, 10, None).unwrap().is_empty());

    let successor = store.context(&owner, None).unwrap().unwrap();
    store.remember(&owner, successor.version(), &sets("b", json!(1))).unwrap();
    let stale = store.remember(&owner, 1, &sets("a", json!(2)));
    assert!(
        matches!(stale, Err(StoreFault::Conflict { .. })),
        "a writer that held the removed session gets a conflict"
    );
}

#[test]
fn agent_objects_long_unused_are_forgotten() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    for n in 0..1_300 {
        store.commit(&alone(&format!("a{n}")), &call("c"), &ok("c").0).unwrap();
        store.commit(&alone("busy"), &call("c"), &ok("c").0).unwrap();
    }
    assert!(store.history(&alone("a0"), 1, None).unwrap().is_empty());
    assert_eq!(store.history(&alone("a1299"), 1, None).unwrap().len(), 1);
    assert_eq!(store.history(&alone("busy"), 2_000, None).unwrap().len(), 1_300);
}

#[test]
fn numbers_of_any_size_survive() {
    check(|store| {
        let value: Value =
            serde_json::from_str(r#"{"z": 123456789012345678901234567890, "a": [1e400, 0.10]}"#)
                .unwrap();
        let owner = in_session("s");
        let mut changes = ok("c1").changes(sets("v", value.clone())).keeps("content:1", &value);
        changes.0.record = value.clone();
        store.commit(&owner, &call("c1"), &changes.0).unwrap();
        assert_eq!(store.context(&owner, None).unwrap().unwrap().get("v"), Some(&value));
        assert_eq!(store.history(&owner, 1, None).unwrap(), std::slice::from_ref(&value));
        assert_eq!(
            store.content("content:1", None).unwrap().unwrap().to_string(),
            value.to_string()
        );
    });
}
