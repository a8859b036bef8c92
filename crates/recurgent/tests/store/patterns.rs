//! What calls have in common, and the call before this one.

use lifecycle::contract::Contract;
use lifecycle::pattern::MAX_EVENTS;
use lifecycle::request::{CallId, CallRequest, Lineage, Method, TraceId};

use recurgent::store::bundle::Bundle;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;

use crate::fixture::{
    alone, call, check, commit, in_session, method, no_contract, ok, place, role,
};

#[test]
fn the_last_calls_of_each_role_are_kept_as_patterns() {
    check(|store| {
        assert!(store.patterns(&role("calculator")).unwrap().is_empty());
        for n in 0..2 * MAX_EVENTS + 3 {
            commit(store, "c", &ok("c").observes(&format!("c{n}"), "t", &[]));
        }
        let poet = CallRequest { role: role("poet"), ..call("p") };
        store.commit(&alone("p1"), &poet, &ok("p").observes("p", "t", &[]).0).unwrap();
        let kept = store.patterns(&role("calculator")).unwrap();
        assert_eq!((kept.len(), kept[0].call_id.as_str()), (MAX_EVENTS, "c53"));
        assert_eq!(kept.last().unwrap().call_id, "c102");
        let roles = |limit, after| store.pattern_roles(limit, after).unwrap();
        assert_eq!(roles(9, None), [role("calculator"), role("poet")]);
        assert_eq!(roles(1, None), [role("calculator")]);
        assert_eq!(roles(9, Some(&role("calculator"))), [role("poet")]);
    });
}

#[test]
fn a_root_call_recalls_the_last_one_on_its_trace_and_no_other() {
    check(|store| {
        let earlier = |request: &CallRequest| {
            store.recall(&alone("a1"), request).unwrap().earlier.map(|event| event.call_id)
        };
        let on = |trace: &str| CallRequest {
            lineage: Lineage::Root { trace: TraceId::parse(trace).unwrap() },
            ..call("c9")
        };
        assert_eq!(earlier(&on("t")), None);
        for (id, trace) in [("c1", "t"), ("c2", "t"), ("c3", "u")] {
            let changes = ok(id).observes(id, trace, &[]);
            store.commit(&alone("a1"), &on(trace), &changes.0).unwrap();
        }
        assert_eq!(earlier(&on("t")).as_deref(), Some("c2"));
        assert_eq!(earlier(&on("u")).as_deref(), Some("c3"));
        assert_eq!(
            earlier(&CallRequest { method: Method::parse("ask").unwrap(), ..on("t") }),
            None
        );
        assert_eq!(earlier(&CallRequest { role: role("poet"), ..on("t") }), None);
        let nested =
            CallRequest { lineage: on("t").lineage.child_of(&CallId("p".into())), ..on("t") };
        assert_eq!(earlier(&nested), None);
    });
}

/// Each process, and each agent object, has a trace of its own; a session is one talk all the same.
#[test]
fn in_a_session_the_last_call_is_recalled_whatever_its_trace() {
    check(|store| {
        let on = |trace: &str| CallRequest {
            lineage: Lineage::Root { trace: TraceId::parse(trace).unwrap() },
            ..call("c9")
        };
        for (id, trace, owner) in [("c1", "t", in_session("s")), ("c2", "u", in_session("other"))] {
            store.commit(&owner, &on(trace), &ok(id).observes(id, trace, &[]).0).unwrap();
        }
        for (owner, trace, expected) in [
            (in_session("s"), "v", Some("c1")),
            (in_session("other"), "t", Some("c2")),
            (in_session("new"), "t", None),
            (alone("a1"), "t", None),
        ] {
            let found = store.recall(&owner, &on(trace)).unwrap().earlier;
            assert_eq!(found.map(|event| event.call_id).as_deref(), expected, "{owner:?} {trace}");
        }
    });
}

/// Imported events belong to no session here and do not separate a call from its correction.
#[test]
fn a_talk_goes_on_after_a_bundle_was_taken_in() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let owner = in_session("s");
    store.commit(&owner, &call("c1"), &ok("c1").observes("c1", "t", &[]).0).unwrap();
    let theirs = ok("c2").observes("c2", "u", &[]).0.event;
    store.merge(&Bundle { patterns: vec![theirs], ..Bundle::default() }).unwrap();
    assert_eq!(store.patterns(&role("calculator")).unwrap().len(), 2);
    let earlier = store.recall(&owner, &call("c3")).unwrap().earlier;
    assert_eq!(earlier.map(|event| event.call_id).as_deref(), Some("c1"));
}

#[test]
fn repeated_capabilities_are_shown_to_the_model_at_the_root() {
    check(|store| {
        let contract = Contract { purpose: Some("fetch a web page".into()), ..no_contract() };
        commit(store, "c0", &ok("c0").forges("reader", Some(contract)));
        for (id, labels) in [
            ("c1", &["json"][..]),
            ("c2", &["http_fetch"]),
            ("c3", &["http_fetch", "dates"]),
            ("c4", &["dates"]),
            ("c5", &["http_fetch"]),
        ] {
            commit(store, id, &ok(id).observes(id, "t", labels));
        }
        let shown = |request: &CallRequest| -> Vec<(String, usize, usize, Option<String>)> {
            let shown = store.prompt_context(&alone("a1"), request).unwrap().patterns;
            shown.into_iter().map(|p| (p.capability, p.seen, p.of, p.tool)).collect()
        };
        let fetches = ("http_fetch".to_owned(), 3, 5, Some("reader".to_owned()));
        let dates = ("dates".to_owned(), 2, 5, None);
        assert_eq!(shown(&call("c6")), [fetches, dates]);
        let child = call("c6").lineage.child_of(&CallId("p".into()));
        assert_eq!(shown(&CallRequest { lineage: child, ..call("c6") }), []);
        assert_eq!(shown(&method("ask")), [], "another method");
        for n in 0..5 {
            let mut stored = ok("c").observes(&format!("s{n}"), "t", &["json"]);
            stored.0.event.program_source = Some("persisted".into());
            commit(store, "c", &stored);
        }
        assert_eq!(shown(&call("c6")).len(), 2, "what storage answered was not written");
    });
}
