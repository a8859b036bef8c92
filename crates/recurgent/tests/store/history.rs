//! Records of calls and the values they gave.

use lifecycle::settlement::Changes;
use recurgent::store::{HISTORY_BATCH, MAX_CONTENTS, MAX_CONTENTS_BYTES, MAX_HISTORY, Owner};
use serde_json::json;

use crate::fixture::{CommittedCall, alone, call, calls, check, commit, in_session, ok};

#[test]
fn history_belongs_to_the_session_or_else_to_the_agent_object() {
    check(|store| {
        for (id, owner) in [
            ("c1", alone("a1")),
            ("c2", alone("a2")),
            ("c3", Owner { instance: "a1".into(), ..in_session("s") }),
            ("c4", Owner { instance: "a3".into(), ..in_session("s") }),
        ] {
            store.commit(&owner, &call(id), &ok(id).0).unwrap();
        }
        assert_eq!(calls(store, &alone("a1"), 10, None), ["c1"]);
        assert_eq!(calls(store, &in_session("s"), 10, None), ["c3", "c4"]);
        assert_eq!(store.prompt_context(&in_session("s"), &call("c5")).unwrap().history_count, 2);
        assert_eq!(store.prompt_context(&alone("a9"), &call("c5")).unwrap().history_count, 0);
    });
}

#[test]
fn history_is_paged_from_the_latest() {
    check(|store| {
        let owner = alone("a1");
        for n in 0..10 {
            let id = format!("c{n}");
            store.commit(&owner, &call(&id), &ok(&id).0).unwrap();
        }
        assert_eq!(calls(store, &owner, 3, None), ["c7", "c8", "c9"]);
        assert_eq!(calls(store, &owner, 3, Some("c7")), ["c4", "c5", "c6"]);
        assert_eq!(calls(store, &owner, 3, Some("c1")), ["c0"]);
        assert!(calls(store, &owner, 3, Some("never")).is_empty());
        assert!(calls(store, &alone("a2"), 3, Some("c7")).is_empty());
        assert!(calls(store, &owner, 0, None).is_empty());
    });
}

#[test]
fn history_is_bounded() {
    check(|store| {
        let owner = alone("a1");
        let most = MAX_HISTORY + HISTORY_BATCH;
        for n in 0..=most {
            let id = format!("c{n}");
            store.commit(&owner, &call(&id), &ok(&id).0).unwrap();
        }
        assert_eq!(store.prompt_context(&owner, &call("c")).unwrap().history_count, MAX_HISTORY);
        let kept = calls(store, &owner, usize::MAX, None);
        assert_eq!(kept.len() as u64, MAX_HISTORY);
        assert_eq!(kept.last(), Some(&format!("c{most}")));
    });
}

#[test]
fn contents_are_bounded_and_the_oldest_go_first() {
    check(|store| {
        for n in 0..=MAX_CONTENTS {
            commit(store, "c", &ok("c").keeps(&format!("content:{n}"), &json!(n)));
        }
        assert_eq!(store.content("content:0", None).unwrap(), None);
        assert_eq!(store.content("content:1", None).unwrap(), Some(json!(1)));
        let quarter = json!("x".repeat(usize::try_from(MAX_CONTENTS_BYTES).unwrap() / 4 - 2));
        for n in 0..5 {
            commit(store, "c", &ok("c").keeps(&format!("content:large:{n}"), &quarter));
        }
        assert_eq!(store.content(&format!("content:{MAX_CONTENTS}"), None).unwrap(), None);
        assert_eq!(
            store.content("content:large:1", Some("9999-01-01T00:00:00.000Z")).unwrap(),
            None
        );
        assert!(
            store.content("content:large:1", Some("1999-01-01T00:00:00.000Z")).unwrap().is_some()
        );
        assert_eq!(store.content("content:large:0", None).unwrap(), None);
        assert_eq!(store.content("content:large:1", None).unwrap(), Some(quarter));
    });
}

/// A value that was kept too long is dropped with the next call, and is not given before that.
#[test]
fn contents_kept_too_long_are_removed() {
    check(|store| {
        commit(store, "c1", &ok("c1").keeps("content:1", &json!(1)).keeps("content:2", &json!(2)));
        let past = "2020-01-01T00:00:00.000Z";
        let future = "2999-01-01T00:00:00.000Z";
        assert_eq!(store.content("content:1", Some(past)).unwrap(), Some(json!(1)));
        assert_eq!(store.content("content:1", Some(future)).unwrap(), None);
        let since = |time: &str, id: &str| {
            let changes = Changes { contents_kept_since: Some(time.to_owned()), ..ok(id).0 };
            commit(store, id, &CommittedCall(changes)).contents_evicted
        };
        assert_eq!(since(past, "c2"), 0);
        assert_eq!(store.content("content:1", None).unwrap(), Some(json!(1)));
        assert_eq!(since(future, "c3"), 2);
        assert_eq!(store.content("content:1", None).unwrap(), None);
    });
}
