//! What any store must do, checked on each; then what only a file shared by processes must do.
#![cfg(test)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use lifecycle::admission::{Admission, Case, Inputs, MAX_CASES, Observed};
use lifecycle::artifact::{
    Artifact, ArtifactChange, ArtifactKey, Cacheability, Generation, RUNTIME_VERSION, Repute,
    Trigger, Verdict,
};
use lifecycle::attempt::RetryLane;
use lifecycle::call::StoreFault;
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::history::Content;
use lifecycle::pattern::{MAX_EVENTS, PatternEvent};
use lifecycle::program::Checksum;
use lifecycle::prompt::MAX_TOOLS;
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use lifecycle::settlement::{Changes, Kept, Receipt};
use lifecycle::standing::{DecisionKind, Standing, StateKeys, Window};
use lifecycle::tool::Tool;
use recurgent::store::catalog::{MAX_DECISIONS, Ruling, Version};
use recurgent::store::memory::MemoryStore;
use recurgent::store::sqlite::SqliteStore;
use recurgent::store::{
    Catalog as _, Exhaustions, HISTORY_BATCH, MAX_CONTENTS, MAX_CONTENTS_BYTES, MAX_HISTORY,
    MAX_RECALLED, MAX_VERSIONS, Owner, Store,
};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

// ---- What any store must do ----

/// Holds every store to one behaviour.
fn check(behaviour: impl Fn(&dyn Store)) {
    behaviour(&MemoryStore::default());
    let (_folder, path) = place();
    behaviour(&SqliteStore::open(&path).unwrap());
}

#[test]
fn an_admitted_program_is_recalled_with_all_that_is_known_of_it() {
    check(|store| {
        assert!(store.recall(&alone("a1"), &call("c0")).unwrap().artifacts.is_empty());
        let declared = json!([{"name": "requests", "version": ">=2"}]);
        let mut program = program("result = 1");
        program.manifest = DependencyManifest::parse(Language::Python, Some(&declared)).unwrap();
        program.repairs = 2;
        commit(store, "c1", &ok("c1").admits(program.clone()));
        program.repute.standing = Standing::Probation;
        program.repute.generations = 1;
        assert_eq!(store.recall(&alone("a1"), &call("c2")).unwrap().artifacts, [program]);
        for other in [CallRequest { role: role("poet"), ..call("c3") }, method("subtract")] {
            assert!(store.recall(&alone("a1"), &other).unwrap().artifacts.is_empty());
        }
    });
}

#[test]
fn second_chances_that_ran_out_are_counted_per_program_and_tool() {
    check(|store| {
        store.keep_tool(&Tool { name: role("calculator"), contract: None }).unwrap();
        commit(store, "c0", &ok("c0"));
        let of = |name: &str| store.tools(Some(&role(name)), 1).unwrap()[0].exhaustion_count;
        assert_eq!(of("calculator"), 0);
        assert!(store.exhaustions(&role("calculator")).unwrap().is_empty());
        for (id, lane) in [
            ("c1", RetryLane::Guardrail),
            ("c2", RetryLane::Outcome),
            ("c3", RetryLane::Guardrail),
            ("c4", RetryLane::Execution),
            ("c5", RetryLane::Generation),
        ] {
            commit(store, id, &Draft(Changes { exhausted: Some(lane), ..failed(id).0 }));
        }
        assert_eq!(of("calculator"), 3);
        let counted = store.exhaustions(&role("calculator")).unwrap();
        let [Exhaustions { method, guardrail: 2, outcome: 1, .. }] = &counted[..] else {
            panic!("{counted:?}")
        };
        assert_eq!(*method, call("c").method);
        assert!(store.exhaustions(&role("poet")).unwrap().is_empty());
    });
}

#[test]
fn the_last_calls_of_each_role_are_kept_as_patterns() {
    check(|store| {
        assert!(store.patterns(&role("calculator")).unwrap().is_empty());
        for n in 0..MAX_EVENTS + 3 {
            commit(store, "c", &ok("c").observes(&format!("c{n}"), "t", &[]));
        }
        let poet = CallRequest { role: role("poet"), ..call("p") };
        store.commit(&alone("p1"), &poet, &ok("p").observes("p", "t", &[]).0).unwrap();
        let kept = store.patterns(&role("calculator")).unwrap();
        assert_eq!((kept.len(), kept[0].call_id.as_str()), (MAX_EVENTS, "c3"));
        assert_eq!(kept.last().unwrap().call_id, "c52");
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
            lineage: Lineage::Root { trace: TraceId(trace.into()) },
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
            lineage: Lineage::Root { trace: TraceId(trace.into()) },
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

#[test]
fn what_is_written_again_and_again_is_told_to_the_model_at_the_root() {
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
        let told = |request: &CallRequest| -> Vec<(String, usize, usize, Option<String>)> {
            let told = store.surroundings(&alone("a1"), request).unwrap().patterns;
            told.into_iter().map(|p| (p.capability, p.seen, p.of, p.tool)).collect()
        };
        let fetches = ("http_fetch".to_owned(), 3, 5, Some("reader".to_owned()));
        let dates = ("dates".to_owned(), 2, 5, None);
        assert_eq!(told(&call("c6")), [fetches, dates]);
        let child = call("c6").lineage.child_of(&CallId("p".into()));
        assert_eq!(told(&CallRequest { lineage: child, ..call("c6") }), []);
        assert_eq!(told(&method("ask")), [], "another method");
        for n in 0..5 {
            let mut stored = ok("c").observes(&format!("s{n}"), "t", &["json"]);
            stored.0.event.program_source = Some("persisted".into());
            commit(store, "c", &stored);
        }
        assert_eq!(told(&call("c6")).len(), 2, "what storage answered was not written");
    });
}

#[test]
fn the_newest_version_takes_over_and_an_old_text_may_return() {
    check(|store| {
        for n in 0..2 * MAX_VERSIONS {
            commit(store, "c", &ok("c").admits(program(&format!("result = {n}"))));
        }
        assert_eq!(recalled(store), ("result = 19".to_owned(), 1, 0));
        commit(store, "c", &ok("c").scores("result = 15", Verdict::Failed));
        commit(store, "c", &ok("c").admits(program("result = 15")));
        assert_eq!(
            recalled(store),
            ("result = 15".to_owned(), 2, 0),
            "successes stay, failures are forgiven"
        );
        commit(store, "c", &ok("c").admits(program("result = 9")));
        assert_eq!(recalled(store), ("result = 9".to_owned(), 1, 0), "too old to be remembered");
    });
}

#[test]
fn programs_under_different_contracts_live_side_by_side() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("result = 0")));
        for n in 0..2 * MAX_RECALLED {
            let contract_fingerprint = fingerprint(&format!("{n:03}"));
            commit(
                store,
                "c",
                &ok("c").admits(Artifact { contract_fingerprint, ..program("result = 1") }),
            );
        }
        let recalled = store.recall(&alone("a1"), &call("c")).unwrap().artifacts;
        assert!(
            recalled.iter().any(|artifact| artifact.contract_fingerprint == Fingerprint::none())
        );
        assert_eq!(recalled.len(), MAX_RECALLED);
    });
}

#[test]
fn a_verdict_counts_for_the_program_it_is_about() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("result = 1")));
        let verdicts = [Verdict::Succeeded, Verdict::Failed, Verdict::Answered, Verdict::Excused];
        for verdict in verdicts {
            commit(store, "c", &ok("c").scores("result = 1", verdict));
            commit(store, "c", &ok("c").scores("result = 2", verdict));
        }
        assert_eq!(recalled(store), ("result = 1".to_owned(), 2, 1));
    });
}

#[test]
fn tools_are_kept_counted_and_listed_most_used_first() {
    check(|store| {
        let contract = Contract { purpose: Some("fetches pages".into()), ..no_contract() };
        commit(store, "c1", &ok("c1").forges("web_fetcher", Some(contract.clone())));
        commit(store, "c2", &ok("c2").forges("web_fetcher", None).forges("poet", None));
        let request = CallRequest { role: role("poet"), ..call("c3") };
        store.commit(&alone("poet-1"), &request, &ok("c3").0).unwrap();
        store.commit(&alone("poet-1"), &request, &failed("c4").0).unwrap();

        let [fetcher, poet] = &store.tools(None, 10).unwrap()[..] else { panic!() };
        assert_eq!(fetcher.tool, Tool { name: role("web_fetcher"), contract: Some(contract) });
        assert_eq!((fetcher.usage_count, poet.usage_count), (2, 1));
        assert_eq!((poet.success_count, poet.failure_count), (1, 1));
        assert_eq!(poet.methods, ["add"]);
        assert_eq!(store.tools(None, 1).unwrap().len(), 1);
        assert_eq!(store.tools(Some(&role("poet")), 1).unwrap(), std::slice::from_ref(poet));
        assert!(
            store.tools(Some(&role("calculator")), 1).unwrap().is_empty(),
            "called, but never forged"
        );
    });
}

#[test]
fn a_new_tool_knows_the_methods_it_was_called_with_while_it_was_forged() {
    check(|store| {
        let artifact = Artifact { role: role("poet"), ..program("result = 1") };
        commit(store, "c1", &ok("c1").admits(artifact));
        commit(store, "c2", &ok("c2").forges("poet", None));
        assert_eq!(store.tools(Some(&role("poet")), 1).unwrap()[0].methods, ["add"]);
    });
}

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
fn a_sessions_memory_is_written_by_who_holds_its_latest_version() {
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
        assert!(reader.is_ok(), "who only read is in time");
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
        assert_eq!(kept(0), 0, "nothing more than the language is no news");
        store.commit(&owner, &call("c1"), &ok("c1").holds(&["requests"]).0).unwrap();
        assert_eq!(kept(0), 1, "others learn of it as of a change of memory");
        let ruby = CallRequest { language: Language::Ruby, ..call("c2") };
        store.commit(&owner, &ruby, &ok("c2").0).unwrap();
        assert_eq!(held(&owner, Language::Python), Some(packages(&["requests"])));
        assert_eq!(held(&owner, Language::Ruby), Some(DependencyManifest::default()));
        store.commit(&owner, &call("c3"), &failed("c3").0).unwrap();
        let late = store.commit(&owner, &call("c4"), &ok("c4").holds(&["numpy"]).0);
        assert_eq!(late, Err(StoreFault::Conflict { session: "s".into() }), "it held version 0");
        let same = store.commit(&owner, &call("c5"), &ok("c5").holds(&["requests"]).0);
        assert!(same.is_ok(), "who adds nothing is in time");
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
        assert_eq!(store.surroundings(&in_session("s"), &call("c5")).unwrap().history_count, 2);
        assert_eq!(store.surroundings(&alone("a9"), &call("c5")).unwrap().history_count, 0);
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
        assert_eq!(store.surroundings(&owner, &call("c")).unwrap().history_count, MAX_HISTORY);
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

/// What has been kept too long goes with the next call, and is not given before that.
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
            commit(store, id, &Draft(changes)).contents_evicted
        };
        assert_eq!(since(past, "c2"), 0);
        assert_eq!(store.content("content:1", None).unwrap(), Some(json!(1)));
        assert_eq!(since(future, "c3"), 2);
        assert_eq!(store.content("content:1", None).unwrap(), None);
    });
}

#[test]
fn surroundings_show_the_tools_that_fit_and_the_other_methods_of_the_role() {
    check(|store| {
        for n in 0..2 * MAX_TOOLS {
            commit(store, "c", &ok("c").forges(&format!("tool_{n}"), None));
        }
        commit(store, "c", &ok("c").forges("calculator", None).forges("tool_3", None));
        let purpose = Contract { purpose: Some("Add numbers".into()), ..no_contract() };
        commit(store, "c", &ok("c").forges("number_cruncher", Some(purpose)));
        for name in ["multiply", "subtract", "add"] {
            let method = Method::parse(name).unwrap();
            commit(store, "c", &ok("c").admits(Artifact { method, ..program("result = 1") }));
        }
        let shown = store.surroundings(&alone("a1"), &call("c")).unwrap();
        let names: Vec<_> = shown.tools.iter().map(|known| known.tool.name.as_str()).collect();
        assert_eq!(names.len(), MAX_TOOLS);
        assert_eq!(names[..2], ["number_cruncher", "tool_3"], "shared words first, then use");
        assert!(!names.contains(&"calculator"), "no agent is its own tool");
        let siblings: Vec<_> = shown.siblings.iter().map(|state| state.method.as_str()).collect();
        assert_eq!(siblings, ["multiply", "subtract"]);
    });
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

// ---- What a file must do ----

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
        "who held the removed session is told"
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
fn only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    store.commit(&alone("a1"), &call("c1"), &ok("c1").0).unwrap();
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for suffix in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(mode(&beside(&path, suffix)), 0o600, "{suffix}");
    }
}

// ---- How programs prove themselves ----

#[test]
fn a_new_version_that_has_recorded_calls_to_reproduce_waits_for_its_trial() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(1, "a")));
        assert_eq!(store.corpus(&key()).unwrap(), [case(1, "a")]);
        let receipt = commit(store, "c", &ok("c").admits(program("two")).accepts(case(2, "b")));
        assert_eq!(receipt.admission, Some(Admission::AwaitsTrial));
        assert_eq!(receipt.challenger, Some(Checksum::of("two")));
        assert_eq!(receipt.generations, Some(2));
        assert_eq!(recalled(store).0, "one", "the incumbent runs");
        let repute = store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].repute.clone();
        assert_eq!((repute.cases, repute.challenger), (1, Some(Checksum::of("two"))));
        let (one, two) = (Checksum::of("one"), Checksum::of("two"));
        assert!(store.conclude(&key(), &one, &two, &Ruling::Passed).unwrap());
        assert_eq!(
            line(store),
            [("two".into(), Standing::Probation, true), ("one".into(), Standing::Probation, false)]
        );
        let repute = store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].repute.clone();
        assert_eq!((repute.challenger, repute.generations), (None, 2));
    });
}

#[test]
fn a_challenger_that_breaks_a_recorded_call_stays_a_candidate_with_it() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(1, "a")));
        commit(store, "c", &ok("c").admits(program("two")));
        let (one, two) = (Checksum::of("one"), Checksum::of("two"));
        let ruling = Ruling::Failed(Box::new(case(1, "a")));
        assert!(!store.conclude(&key(), &one, &two, &ruling).unwrap());
        let [candidate, incumbent] = &store.versions(&key()).unwrap()[..] else { panic!() };
        assert_eq!(candidate.failing_case, Some(case(1, "a")));
        assert_eq!(candidate.artifact.repute.standing, Standing::Candidate);
        assert!(incumbent.is_current && !candidate.is_current);
        assert_eq!(
            store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].repute.challenger,
            None
        );
        // The same text again gets another trial.
        commit(store, "c", &ok("c").admits(program("two")));
        let newest = &store.versions(&key()).unwrap()[0];
        assert_eq!((newest.number, newest.failing_case.clone()), (3, None));
    });
}

#[test]
fn a_challenger_that_comes_too_late_does_not_take_over() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(1, "a")));
        commit(store, "c", &ok("c").admits(program("two")));
        let (one, two) = (Checksum::of("one"), Checksum::of("two"));
        store.pin(&key(), true).unwrap();
        assert!(!store.conclude(&key(), &one, &two, &Ruling::Passed).unwrap(), "pinned meanwhile");
        store.pin(&key(), false).unwrap();
        let other = Checksum::of("three");
        assert!(!store.conclude(&key(), &other, &two, &Ruling::Passed).unwrap());
        assert_eq!(recalled(store).0, "one");
        assert!(store.conclude(&key(), &one, &two, &Ruling::Passed).unwrap());
    });
}

/// The admission table, as a store sees it.
#[test]
fn what_takes_over_and_what_does_not() {
    let baked = |code| Artifact { cacheability: Cacheability::InputBakedCode, ..program(code) };
    let impure = |code| Generation { pure: false, ..generation(program(code)) };
    check(|store| {
        commit(store, "c", &ok("c").admits(baked("baked")));
        assert_eq!(recalled(store).0, "baked", "what may not be reused is remembered, as such");
        let takes_over = |draft: Draft| commit(store, "c", &draft).admission;
        assert_eq!(takes_over(ok("c").admits(program("one"))), Some(Admission::TakesOver));
        assert_eq!(takes_over(ok("c").admits(baked("two"))), Some(Admission::KeptForReusable));
        assert_eq!(takes_over(ok("c").generates(impure("three"))), Some(Admission::TakesOver));
        commit(store, "c", &ok("c").accepts(case(1, "a")));
        assert_eq!(takes_over(ok("c").generates(impure("four"))), Some(Admission::KeptUntried));
        store.pin(&key(), true).unwrap();
        assert_eq!(takes_over(ok("c").admits(program("five"))), Some(Admission::KeptForPinned));
        store.pin(&key(), false).unwrap();
        for _ in 0..3 {
            commit(store, "c", &failed("c").scores("three", Verdict::Failed));
        }
        assert_eq!(
            takes_over(ok("c").generates(impure("six"))),
            Some(Admission::TakesOver),
            "what fails again and again is not protected"
        );
        assert_eq!(recalled(store).0, "six");
    });
}

#[test]
fn only_calls_of_the_version_that_runs_are_recorded_each_once_and_not_too_many() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(0, "a")));
        commit(store, "c", &ok("c").admits(program("two")).accepts(case(99, "b")));
        for n in 0..2 * MAX_CASES {
            commit(store, "c", &ok("c").scores("one", Verdict::Succeeded).accepts(case(n, "c")));
        }
        let corpus = store.corpus(&key()).unwrap();
        assert_eq!(corpus.len(), usize::try_from(MAX_CASES).unwrap());
        assert!(corpus.contains(&case(0, "a")), "the first outcome stays");
        assert!(corpus.iter().all(|case| case.inputs.args != [json!(99)]));
        store.forget_case(&key(), &case(0, "a")).unwrap();
        store.forget_case(&key(), &case(0, "a")).unwrap();
        let repute = store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].repute.clone();
        assert_eq!(repute.cases, MAX_CASES - 1);
    });
}

#[test]
fn rolling_back_goes_to_the_last_version_that_ran_and_forgives_it() {
    check(|store| {
        assert_eq!(store.rollback(&key(), None).unwrap(), None, "there is nothing");
        commit(store, "c", &ok("c").admits(program("one")));
        assert_eq!(store.rollback(&key(), None).unwrap(), None, "there is nothing before it");
        for _ in 0..3 {
            commit(store, "c", &failed("c").scores("one", Verdict::Failed));
        }
        commit(store, "c", &ok("c").admits(program("two")).accepts(case(1, "a")));
        commit(store, "c", &ok("c").admits(program("three")));
        let (one, two) = (Checksum::of("one"), Checksum::of("two"));
        assert_eq!(store.rollback(&key(), None).unwrap(), None, "what is degraded must be named");
        assert_eq!(store.rollback(&key(), Some(&Checksum::of("never"))).unwrap(), None);
        assert_eq!(store.rollback(&key(), Some(&one)).unwrap(), Some(one));
        assert_eq!(
            line(store),
            [
                ("three".into(), Standing::Candidate, false),
                ("two".into(), Standing::Degraded, false),
                ("one".into(), Standing::Probation, true),
            ]
        );
        let restored = &store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0];
        assert!(!restored.repute.recent.regressed() && restored.repute.challenger.is_none());
        assert_eq!(store.rollback(&key(), Some(&two)).unwrap(), Some(two.clone()));
        assert_eq!(recalled(store).0, "two");
        let decisions = store.decisions(&key()).unwrap();
        assert_eq!(decisions[0].checksum, two);
        assert_eq!(decisions[0].decision.kind, DecisionKind::ManualOverride);
    });
}

#[test]
fn a_version_that_runs_or_last_ran_is_never_dropped() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")));
        commit(store, "c", &ok("c").admits(program("two")).accepts(case(1, "a")));
        for n in 0..3 * MAX_VERSIONS {
            commit(store, "c", &ok("c").admits(program(&format!("candidate {n}"))));
        }
        assert_eq!(recalled(store).0, "two");
        assert_eq!(store.versions(&key()).unwrap().len(), MAX_VERSIONS + 2);
        assert_eq!(store.rollback(&key(), None).unwrap(), Some(Checksum::of("one")));
    });
}

#[test]
fn repairs_that_did_not_take_over_are_counted() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")));
        commit(store, "c", &failed("c").scores("one", Verdict::Failed).mends("one"));
        commit(store, "c", &failed("c").scores("one", Verdict::Exhausted).mends("one"));
        let artifact = store.recall(&alone("a1"), &call("c")).unwrap().artifacts.remove(0);
        assert_eq!((artifact.repairs, artifact.failures), (2, 2));
        assert_eq!(artifact.repute.recent.as_str(), "sfx");
    });
}

/// Candidate, probation, durable, degraded, durable again; each change with its reasons.
#[test]
fn standings_follow_the_record_and_every_change_is_kept() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")));
        let standing =
            || store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].repute.standing;
        assert_eq!(standing(), Standing::Probation);
        let score = |verdict| commit(store, "c", &ok("c").scores("one", verdict)).decision;
        for _ in 0..15 {
            assert_eq!(score(Verdict::Succeeded).unwrap().kind, DecisionKind::ContinueProbation);
            assert_eq!(score(Verdict::Excused), None, "what the world did is no evidence");
        }
        let elsewhere = ok("c").scores("one", Verdict::Succeeded);
        let other = in_session("another");
        let decision = store.commit(&other, &call("c"), &elsewhere.0).unwrap().decision.unwrap();
        assert_eq!((decision.kind, standing()), (DecisionKind::Promote, Standing::Durable));
        assert_eq!(decision.rationale["session_count"], json!(2));
        assert_eq!(decision.rationale["calls"], json!(17));
        for _ in 0..12 {
            assert_eq!(score(Verdict::Failed).unwrap().kind, DecisionKind::Hold);
        }
        assert_eq!(score(Verdict::Failed).unwrap().kind, DecisionKind::Degrade);
        assert_eq!(standing(), Standing::Degraded);
        let kinds: Vec<_> =
            store.decisions(&key()).unwrap().iter().map(|d| d.decision.kind).collect();
        assert_eq!(
            kinds,
            [DecisionKind::Degrade, DecisionKind::Promote, DecisionKind::ContinueProbation]
        );
        for _ in 0..2 * MAX_DECISIONS {
            commit(store, "c", &ok("c").admits(program("two")));
            commit(store, "c", &ok("c").admits(program("one")));
        }
        assert_eq!(store.decisions(&key()).unwrap().len(), MAX_DECISIONS);
    });
}

#[test]
fn artifacts_are_listed_by_role_and_method_and_may_be_pinned() {
    check(|store| {
        for (owner, name) in [("poet", "rhyme"), ("calculator", "subtract"), ("calculator", "add")]
        {
            let method = Method::parse(name).unwrap();
            let artifact = Artifact { role: role(owner), method, ..program("one") };
            commit(store, "c", &ok("c").admits(artifact));
        }
        assert!(store.pin(&key(), true).unwrap());
        assert!(!store.pin(&ArtifactKey::of(&method("divide")), true).unwrap());
        let listed = |role: Option<&Role>, limit| {
            let known = store.artifacts(role, limit).unwrap();
            known
                .iter()
                .map(|known| (known.current.method.to_string(), known.version, known.pinned))
                .collect::<Vec<_>>()
        };
        let all =
            [("add".into(), 1, true), ("subtract".into(), 1, false), ("rhyme".into(), 1, false)];
        assert_eq!(listed(None, 10), all);
        assert_eq!(listed(None, 1), all[..1]);
        assert_eq!(listed(Some(&role("calculator")), 10), all[..2]);
    });
}

#[test]
fn siblings_are_known_with_the_state_they_keep() {
    check(|store| {
        let keeps = |name: &str, contract: &str, reads: &[&str], writes: &[&str]| {
            let owned = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect();
            Generation {
                state_keys: StateKeys { reads: owned(reads), writes: owned(writes) },
                ..generation(Artifact {
                    method: Method::parse(name).unwrap(),
                    contract_fingerprint: fingerprint(contract),
                    ..program(name)
                })
            }
        };
        commit(store, "c", &ok("c").generates(keeps("store", "none", &[], &["memory"])));
        commit(store, "c", &ok("c").generates(keeps("store", "x", &["memory"], &["memory"])));
        commit(store, "c", &ok("c").generates(keeps("clear", "none", &[], &[])));
        commit(store, "c", &ok("c").generates(keeps("add", "none", &["own"], &[])));
        let shown = store.surroundings(&alone("a1"), &call("c")).unwrap().siblings;
        let told: Vec<_> = shown
            .iter()
            .map(|s| (s.method.as_str(), s.reads.join(","), s.writes.join(",")))
            .collect();
        assert_eq!(
            told,
            [("clear", String::new(), String::new()), ("store", "memory".into(), "memory".into()),]
        );
    });
}

/// A schema that files have seen never changes: they would not see the change.
#[test]
fn what_files_have_seen_of_the_schema_stays_as_it_was() {
    for (name, digest) in [
        ("0001", "sha256:f902a206aab547562c80d0f084f37c39e6518d1d8536e0321410f3e50af9f6d0"),
        ("0002", "sha256:fcc927a5dd5576fd3bf8704b4fc1d3bdf7eeb47e13a5e164e1f62f92c1fd63cc"),
        ("0003", "sha256:6f1f9dd48730c81236af32cbd6fe69923a95bc2e69c36cdb13d4e5837b0bc4e6"),
        ("0004", "sha256:a5e5323ef0c3d61504cf774620b8e0b7c5150e4477340804392a0f3b4bd40539"),
        ("0005", "sha256:08403179908e2d75acf4e7fc9cacf3107a595b61d3227fa6ccc1dfa4028aa3d5"),
    ] {
        assert_eq!(Checksum::of(&schema(name)).as_str(), digest, "{name}: add a new one instead");
    }
}

fn schema(name: &str) -> String {
    let file = format!("{}/src/store/schema/{name}.sql", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(file).unwrap()
}

/// Everything else an older version kept: tools, memory, history, values, counts.
#[test]
fn a_store_of_an_older_schema_keeps_everything() {
    let (_folder, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let old = Connection::open(&path).unwrap();
    old.execute_batch(&(schema("0001") + &schema("0002"))).unwrap();
    old.execute_batch(
        r#"PRAGMA user_version = 2;
         INSERT INTO tools VALUES ('poet', 3, 2, 1, '2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z', '{"purpose":"write"}');
         INSERT INTO tool_methods VALUES ('poet', 'write');
         INSERT INTO owners VALUES (7, 'session', 's', 'calculator', 5, 2, '2026-01-02T00:00:00Z');
         INSERT INTO context_entries VALUES (7, 'total', '12');
         INSERT INTO history VALUES (1, 7, 'c1', '{"call_id":"c1"}'), (2, 7, 'c2', '{"call_id":"c2"}');
         INSERT INTO contents VALUES (1, 7, 'content:1', 0, 4, '2026-01-02T00:00:00Z', '[12]');
         INSERT INTO exhaustions VALUES ('poet', 'write', 'python', 'none', 2, 1);
         UPDATE meta SET value = 9;"#,
    )
    .unwrap();
    drop(old);
    let store = SqliteStore::open(&path).unwrap();
    let known = store.tools(Some(&role("poet")), 1).unwrap().remove(0);
    assert_eq!((known.usage_count, known.success_count, known.failure_count), (3, 2, 1));
    assert_eq!((known.methods, known.exhaustion_count), (vec!["write".to_owned()], 3));
    assert_eq!(known.tool.contract.unwrap().purpose.as_deref(), Some("write"));
    let context = store.context(&in_session("s"), None).unwrap().unwrap();
    assert_eq!((context.version(), context.get("total")), (5, Some(&json!(12))));
    assert_eq!(store.context(&in_session("new"), None).unwrap().unwrap().version(), 9);
    assert_eq!(calls(&store, &in_session("s"), 10, None), ["c1", "c2"]);
    assert_eq!(store.content("content:1", None).unwrap(), Some(json!([12])));
    // And it goes on from there.
    let receipt =
        store.commit(&in_session("s"), &call("c3"), &ok("c3").keeps("content:2", &json!(1)).0);
    assert_eq!(receipt.unwrap().history_count, Some(3));
    assert_eq!(store.content("content:2", None).unwrap(), Some(json!(1)));
    assert_eq!(integrity(&path), "ok");
    assert!(store.check().unwrap().is_empty());
}

/// What an older version of the program wrote is still there.
#[test]
fn a_store_of_an_older_schema_keeps_its_programs() {
    let (_folder, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let old = Connection::open(&path).unwrap();
    old.execute_batch(&(schema("0001") + &schema("0002"))).unwrap();
    old.execute_batch(&format!(
        "PRAGMA user_version = 2;
         INSERT INTO artifacts VALUES (1, 'calculator', 'add', 'python', 'none', 2);
         INSERT INTO artifact_versions VALUES
           (1, 1, '{}', 1, 0, 0, 'stable_method_default', '1', '1', '2026-01-01T00:00:00Z', '[]', 'one'),
           (1, 2, '{}', 7, 2, 1, 'stable_method_default', '1', '1', '2026-01-02T00:00:00Z', '[]', 'two');",
        Checksum::of("one"),
        Checksum::of("two"),
    ))
    .unwrap();
    drop(old);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(recalled(&store), ("two".to_owned(), 7, 2));
    commit(&store, "c", &ok("c").scores("two", Verdict::Succeeded));
    let receipt = commit(&store, "c", &ok("c").admits(program("three")));
    assert_eq!(receipt.generations, Some(3));
    assert_eq!(store.rollback(&key(), None).unwrap(), Some(Checksum::of("two")));
    assert_eq!(integrity(&path), "ok");
}

/// The first calls of a tool are committed before the call that forges it.
#[test]
fn a_tools_first_calls_are_counted() {
    check(|store| {
        let lineage = call("c0").lineage.child_of(&CallId("c0".into()));
        let request = CallRequest { role: role("poet"), lineage, ..call("c1") };
        store.commit(&alone("poet-1"), &request, &ok("c1").0).unwrap();
        store.commit(&alone("poet-1"), &request, &failed("c2").0).unwrap();
        commit(store, "c3", &ok("c3").forges("poet", None));
        store.commit(&alone("poet-1"), &request, &ok("c4").0).unwrap();
        commit(store, "c5", &ok("c5").forges("poet", None));
        let [poet] = &store.tools(Some(&role("poet")), 1).unwrap()[..] else { panic!() };
        assert_eq!((poet.usage_count, poet.success_count, poet.failure_count), (2, 2, 1));
    });
}

/// The reference runtime kept 30 of these 160 tools and counted 72 of these 200 calls.
#[test]
fn eight_threads_lose_nothing() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    thread::scope(|scope| {
        for n in 0..8 {
            let store = &store;
            scope.spawn(move || work(store, &format!("t{n}")));
        }
    });
    assert_nothing_lost(&store);
}

#[test]
fn eight_processes_lose_nothing_though_all_make_the_store() {
    let (_folder, path) = place();
    run_to_end((0..8).map(|n| child(&format!("work p{n}"), &path)));
    assert_nothing_lost(&SqliteStore::open(&path).unwrap());
}

/// 25 calls of one program, 20 of them forging a tool of their own.
fn work(store: &dyn Store, worker: &str) {
    store.keep_tool(&Tool { name: role("calculator"), contract: None }).unwrap();
    for n in 0..25 {
        let id = format!("{worker}-{n}");
        let changes = if n == 0 {
            ok(&id).admits(program("result = 1"))
        } else {
            ok(&id).scores("result = 1", Verdict::Succeeded)
        };
        let changes = if n < 20 { changes.forges(&id, None) } else { changes };
        store.commit(&alone(worker), &call(&id), &changes.0).unwrap();
    }
}

fn assert_nothing_lost(store: &SqliteStore) {
    assert_eq!(recalled(store), ("result = 1".to_owned(), 200, 0));
    let tools = store.tools(None, 1000).unwrap();
    assert_eq!(tools.len(), 160 + 1);
    let [called] = &store.tools(Some(&role("calculator")), 1).unwrap()[..] else { panic!() };
    assert_eq!((called.usage_count, called.success_count, called.failure_count), (8, 200, 0));
    let repute = store.recall(&alone("a1"), &call("c")).unwrap().artifacts.remove(0).repute;
    assert_eq!(
        (repute.standing, repute.recent.as_str()),
        (Standing::Probation, "s".repeat(20).as_str())
    );
}

#[test]
fn of_two_processes_that_write_one_session_one_is_told() {
    let (_folder, path) = place();
    drop(SqliteStore::open(&path).unwrap());
    let mut children = [child("race", &path), child("race", &path)];
    let mut replies =
        children.each_mut().map(|child| BufReader::new(child.stderr.take().unwrap()).lines());
    for lines in &mut replies {
        assert_eq!(lines.next().unwrap().unwrap(), "holds 0", "both, before either writes");
    }
    for child in &mut children {
        writeln!(child.stdin.take().unwrap(), "go").unwrap();
    }
    let mut ends = replies.map(|mut lines| lines.next().unwrap().unwrap());
    ends.sort();
    assert_eq!(ends, ["conflict", "written"]);
    run_to_end(children);
    assert_eq!(
        SqliteStore::open(&path)
            .unwrap()
            .context(&in_session("s"), None)
            .unwrap()
            .unwrap()
            .version(),
        1
    );
}

#[test]
fn a_killed_process_loses_no_acknowledged_call() {
    let (_folder, path) = place();
    let mut acknowledged = 0;
    for round in 0..8 {
        let mut child = child(&format!("loop r{round}"), &path);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        thread::sleep(Duration::from_micros(7_300 * round + 1_000));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged += 1 + lines.map_while(Result::ok).count() as u64;

        let store = SqliteStore::open(&path).unwrap();
        assert!(store.notices().is_empty());
        let kept = store.surroundings(&in_session("s"), &call("c")).unwrap().history_count;
        assert!(
            (acknowledged..=acknowledged + 1).contains(&kept),
            "{acknowledged} acknowledged, {kept} kept"
        );
        assert_eq!(
            store.context(&in_session("s"), None).unwrap().unwrap().version(),
            kept,
            "a call is kept whole"
        );
        assert_eq!(integrity(&path), "ok");
        acknowledged = kept;
    }
}

/// The kernel ends a process at the very write that takes a file past its limit: half a page, half a
/// transaction, half a log header. The loop moves that point through whole calls, step by step.
#[test]
fn a_process_that_dies_in_the_middle_of_any_write_loses_no_acknowledged_call() {
    use std::os::unix::process::ExitStatusExt;
    const SIGXFSZ: i32 = 25;
    let (_folder, path) = place();
    let mut kept_before = 0;
    for round in 0..30_u64 {
        // In blocks of 512 bytes; a call writes some 60 KB of log.
        let limit = 128 + 11 * round;
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -c 0; ulimit -f {limit}; exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "child_process", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let job = format!("loop w{round}\n{}\n", path.display());
        child.stdin.as_mut().unwrap().write_all(job.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGXFSZ), "round {round}: {output:?}");
        let acknowledged =
            kept_before + String::from_utf8_lossy(&output.stderr).lines().count() as u64;

        let store = SqliteStore::open(&path).unwrap();
        assert!(store.notices().is_empty(), "round {round}");
        let kept = store.surroundings(&in_session("s"), &call("c")).unwrap().history_count;
        assert!(
            (acknowledged..=acknowledged + 1).contains(&kept),
            "round {round}: {acknowledged} acknowledged, {kept} kept"
        );
        let version = store.context(&in_session("s"), None).unwrap().unwrap().version();
        assert_eq!(version, kept, "round {round}: a call is kept whole");
        drop(store);
        assert_eq!(integrity(&path), "ok", "round {round}");
        kept_before = kept;
    }
    assert!(kept_before > 0, "some calls were committed");
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let (_folder, path) = place();
    drop(SqliteStore::open(&path).unwrap());
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA user_version = 1000").unwrap();
    drop(connection);
    let before = fs::read(&path).unwrap();
    let message = unavailable(&path);
    assert!(message.contains("newer version") && message.contains("schema 1000"), "{message}");
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_schema_that_becomes_newer_meanwhile_is_not_written_to() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 1000").unwrap();
    let answer = store.commit(&alone("a1"), &call("c1"), &ok("c1").0);
    assert!(
        matches!(answer, Err(StoreFault::Unavailable(message)) if message.contains("newer version"))
    );
    assert!(store.history(&alone("a1"), 1, None).unwrap().is_empty());
}

#[test]
fn another_programs_database_is_refused_and_left_alone() {
    let (_folder, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
    let before = fs::read(&path).unwrap();
    assert!(unavailable(&path).contains("another program"));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_damaged_file_is_moved_aside_under_a_name_of_its_own() {
    let (_folder, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for n in 1..=2 {
        let garbage = format!("not a database {n} ").repeat(1000);
        fs::write(&path, &garbage).unwrap();
        let store = SqliteStore::open(&path).unwrap();
        let moved_to = beside(&path, &format!(".damaged-{n}"));
        assert_eq!(fs::read_to_string(&moved_to).unwrap(), garbage);
        let [notice] = &store.notices()[..] else { panic!() };
        assert!(notice.contains(moved_to.to_str().unwrap()), "{notice}");
        store.commit(&alone("a1"), &call("c1"), &ok("c1").0).unwrap();
    }
}

#[test]
fn eight_processes_that_find_a_damaged_file_move_it_once() {
    let (_folder, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "not a database ".repeat(1000)).unwrap();
    run_to_end((0..8).map(|n| child(&format!("work p{n}"), &path)));
    assert_nothing_lost(&SqliteStore::open(&path).unwrap());
    assert!(beside(&path, ".damaged-1").exists() && !beside(&path, ".damaged-2").exists());
}

#[test]
fn damage_found_while_in_use_is_moved_aside_and_the_call_goes_on() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    commit(&store, "c", &ok("c").admits(program("result = 1")));
    drop(store);
    let root: usize = Connection::open(&path)
        .unwrap()
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'artifacts'", [], |row| {
            row.get(0)
        })
        .unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096 * (root - 1)..4096 * root].fill(0xA5);
    fs::write(&path, bytes).unwrap();

    let store = SqliteStore::open(&path).unwrap();
    assert!(store.notices().is_empty(), "opening looks at the header and the schema only");
    assert!(store.recall(&alone("a1"), &call("c")).unwrap().artifacts.is_empty());
    assert_eq!(store.notices().len(), 1);
    commit(&store, "c", &ok("c").admits(program("result = 2")));
    assert_eq!(recalled(&store), ("result = 2".to_owned(), 1, 0));
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn a_store_removed_while_in_use_is_made_again() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    commit(&store, "c1", &ok("c1").admits(program("result = 1")));
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert!(store.recall(&alone("a1"), &call("c")).unwrap().artifacts.is_empty());
    commit(&store, "c2", &ok("c2").admits(program("result = 2")));
    assert_eq!(recalled(&SqliteStore::open(&path).unwrap()).0, "result = 2");
}

/// Also true for root, whom no permission stops.
#[test]
fn a_place_that_cannot_be_written_is_named_with_what_to_do() {
    let (folder, _) = place();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let message = unavailable(&file.join("state/store.db"));
    assert!(message.contains(file.to_str().unwrap()), "{message}");
    assert!(message.contains("RECURGENT_STATE_DIR"), "{message}");
    assert!(
        unavailable(folder.path()).contains(folder.path().to_str().unwrap()),
        "a folder is no file"
    );
}

// ---- Children: this test binary again, told by its standard input what to do ----

fn child(job: &str, path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{job}\n{}", path.display()).unwrap();
    child
}

fn run_to_end(children: impl IntoIterator<Item = Child>) {
    for child in children.into_iter().collect::<Vec<_>>() {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The other side of the tests that need a second process, which run it by its exact name.
#[test]
fn child_process() {
    if !std::env::args().any(|argument| argument == "--exact") {
        return;
    }
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let job = lines.next().unwrap();
    let store = SqliteStore::open(Path::new(&lines.next().unwrap())).unwrap();
    match job.split_whitespace().collect::<Vec<_>>()[..] {
        ["work", worker] => work(&store, worker),
        ["loop", worker] => loop_forever(&store, worker),
        ["race"] => {
            let owner = in_session("s");
            let context = store.context(&owner, None).unwrap().unwrap();
            eprintln!("holds {}", context.version());
            lines.next().unwrap();
            let request = CallRequest { context, ..call("c") };
            match store.commit(&owner, &request, &ok("c").changes(sets("a", json!(1))).0) {
                Ok(_) => eprintln!("written"),
                Err(StoreFault::Conflict { .. }) => eprintln!("conflict"),
                Err(StoreFault::Unavailable(message)) => panic!("{message}"),
            }
        }
        _ => panic!("unknown job {job}"),
    }
}

/// Commits until killed, and says so after each.
fn loop_forever(store: &SqliteStore, worker: &str) {
    let owner = in_session("s");
    for n in 0.. {
        let id = format!("{worker}-{n}");
        let request =
            CallRequest { context: store.context(&owner, None).unwrap().unwrap(), ..call(&id) };
        let changes = ok(&id)
            .changes(sets("last", json!(id)))
            .admits(program(&format!("result = {n}")))
            .forges(&id, None)
            .keeps(&format!("content:{id}"), &json!("x".repeat(5000)));
        store.commit(&owner, &request, &changes.0).unwrap();
        eprintln!("{n}");
    }
}

// ---- What they are given ----

/// A folder of its own, and a path in it whose parent does not exist yet.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/store.db");
    (folder, path)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

fn unavailable(path: &Path) -> String {
    match SqliteStore::open(path) {
        Err(StoreFault::Unavailable(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn integrity(path: &Path) -> String {
    let connection = Connection::open(path).unwrap();
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

fn commit(store: &dyn Store, id: &str, changes: &Draft) -> Receipt {
    store.commit(&alone("a1"), &call(id), &changes.0).unwrap()
}

/// The text, successes and failures of what would run now.
fn recalled(store: &dyn Store) -> (String, u32, u32) {
    let [artifact] = &store.recall(&alone("a1"), &call("c")).unwrap().artifacts[..] else {
        panic!("not one")
    };
    (artifact.code.clone(), artifact.successes, artifact.failures)
}

fn calls(store: &dyn Store, owner: &Owner, limit: usize, before: Option<&str>) -> Vec<String> {
    let records = store.history(owner, limit, before).unwrap();
    records.iter().map(|record| record["call_id"].as_str().unwrap().to_owned()).collect()
}

/// Changes under construction.
struct Draft(Changes);

fn ok(id: &str) -> Draft {
    let record = json!({"call_id": id});
    Draft(Changes {
        kept: Some(Kept::default()),
        artifacts: Vec::new(),
        case: None,
        record,
        contents: Vec::new(),
        contents_kept_since: None,
        exhausted: None,
        event: PatternEvent::default(),
    })
}

fn failed(id: &str) -> Draft {
    Draft(Changes { kept: None, ..ok(id).0 })
}

impl Draft {
    fn admits(self, artifact: Artifact) -> Self {
        self.generates(generation(artifact))
    }

    fn generates(mut self, generation: Generation) -> Self {
        self.0.artifacts.push(ArtifactChange::Admit(Box::new(generation)));
        self
    }

    fn mends(mut self, code: &str) -> Self {
        self.0.artifacts.push(ArtifactChange::Mended { checksum: Checksum::of(code) });
        self
    }

    fn accepts(mut self, case: Case) -> Self {
        self.0.case = Some(case);
        self
    }

    fn scores(mut self, code: &str, verdict: Verdict) -> Self {
        self.0.artifacts.push(ArtifactChange::Score { checksum: Checksum::of(code), verdict });
        self
    }

    fn forges(mut self, name: &str, contract: Option<Contract>) -> Self {
        self.0.kept.as_mut().unwrap().tools.push(Tool { name: role(name), contract });
        self
    }

    fn changes(mut self, changes: ContextChanges) -> Self {
        self.0.kept.as_mut().unwrap().context = changes;
        self
    }

    fn observes(mut self, call: &str, trace: &str, labels: &[&str]) -> Self {
        self.0.event = PatternEvent {
            role: "calculator".into(),
            method_name: "add".into(),
            call_id: call.into(),
            trace_id: trace.into(),
            program_source: Some("generated".into()),
            capability_patterns: labels.iter().map(|label| (*label).to_owned()).collect(),
            ..PatternEvent::default()
        };
        self
    }

    fn holds(mut self, names: &[&str]) -> Self {
        self.0.kept.as_mut().unwrap().manifest = packages(names);
        self
    }

    fn keeps(mut self, reference: &str, value: &Value) -> Self {
        let payload = value.to_string();
        self.0.contents.push(Content {
            reference: reference.into(),
            kind: "any",
            payload,
            digest: String::new(),
        });
        self
    }
}

fn sets(key: &str, value: Value) -> ContextChanges {
    ContextChanges { set: [(key.to_owned(), value)].into_iter().collect(), unset: Vec::new() }
}

fn unsets(key: &str) -> ContextChanges {
    ContextChanges { unset: vec![key.to_owned()], ..ContextChanges::default() }
}

fn packages(names: &[&str]) -> DependencyManifest {
    let declared: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    DependencyManifest::parse(Language::Python, Some(&json!(declared))).unwrap()
}

fn role(name: &str) -> Role {
    Role::parse(name).unwrap()
}

fn alone(instance: &str) -> Owner {
    Owner { instance: instance.into(), session: None, role: role("calculator") }
}

fn in_session(name: &str) -> Owner {
    Owner { session: Some(name.into()), ..alone("a1") }
}

fn no_contract() -> Contract {
    Contract {
        purpose: None,
        deliverable: None,
        acceptance: None,
        failure_policy: None,
        intent_signature: None,
    }
}

fn fingerprint(text: &str) -> Fingerprint {
    serde_json::from_value(json!(text)).unwrap()
}

fn program(code: &str) -> Artifact {
    Artifact {
        role: role("calculator"),
        method: Method::parse("add").unwrap(),
        language: Language::Python,
        contract_fingerprint: Fingerprint::none(),
        runtime_version: RUNTIME_VERSION.into(),
        code: code.into(),
        checksum: Checksum::of(code),
        manifest: DependencyManifest::default(),
        cacheability: Cacheability::StableMethodDefault,
        successes: 1,
        failures: 0,
        repairs: 0,
        repute: Repute {
            standing: Standing::Candidate,
            recent: Window::stored("s".into()),
            ..Repute::default()
        },
    }
}

/// A pure program, written because there was none.
fn generation(artifact: Artifact) -> Generation {
    Generation {
        artifact,
        trigger: Trigger::Fresh,
        parent: None,
        failure: None,
        state_keys: StateKeys::default(),
        pure: true,
    }
}

/// A call with one argument that gave a value.
fn case(argument: u32, digest: &str) -> Case {
    Case {
        inputs: Inputs {
            args: vec![json!(argument)],
            kwargs: serde_json::Map::new(),
            context: serde_json::Map::new(),
        },
        observed: Observed { verdict: Verdict::Succeeded, digest: digest.to_owned() },
    }
}

fn key() -> ArtifactKey {
    ArtifactKey::of(&call("c"))
}

/// The programs that are kept, newest first, and which of them runs.
fn line(store: &dyn Store) -> Vec<(String, Standing, bool)> {
    let told = |version: &Version| {
        let Version { artifact, is_current, .. } = version;
        (artifact.code.clone(), artifact.repute.standing, *is_current)
    };
    store.versions(&key()).unwrap().iter().map(told).collect()
}

fn call(id: &str) -> CallRequest {
    CallRequest {
        id: CallId(id.into()),
        lineage: Lineage::Root { trace: TraceId("t".into()) },
        role: role("calculator"),
        method: Method::parse("add").unwrap(),
        arguments: Arguments::default(),
        contract: None,
        language: Language::Python,
        context: Context::default(),
        manifest: None,
        allowance: Allowance::default(),
    }
}

fn method(name: &str) -> CallRequest {
    CallRequest { method: Method::parse(name).unwrap(), ..call("c") }
}
