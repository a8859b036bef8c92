//! Programs: recalled, replaced, counted, listed.

use lifecycle::artifact::{Artifact, ArtifactKey, Generation, RunVerdict};
use lifecycle::attempt::RetryLane;
use lifecycle::contract::Fingerprint;
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::request::{CallRequest, Method, Role};
use lifecycle::settlement::Changes;
use lifecycle::standing::{Standing, StateKeys};
use lifecycle::tool::Tool;
use recurgent::store::{Exhaustions, MAX_RECALLED, MAX_VERSIONS};
use serde_json::json;

use crate::fixture::{
    CommittedCall, alone, call, check, commit, failed, fingerprint, generation, key, method, ok,
    program, recalled, role,
};

#[test]
fn an_admitted_program_is_recalled_with_all_that_is_known_of_it() {
    check(|store| {
        assert!(store.recall(&alone("a1"), &call("c0")).unwrap().artifacts.is_empty());
        let declared = json!([{"name": "requests", "version": ">=2"}]);
        let mut program = program("result = 1");
        program.manifest = DependencyManifest::parse(Language::Python, Some(&declared)).unwrap();
        program.repairs = 2;
        commit(store, "c1", &ok("c1").admits(program.clone()));
        program.track_record.standing = Standing::Probation;
        program.track_record.generations = 1;
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
            commit(store, id, &CommittedCall(Changes { exhausted: Some(lane), ..failed(id).0 }));
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
fn the_newest_version_takes_over_and_an_old_text_may_return() {
    check(|store| {
        for n in 0..2 * MAX_VERSIONS {
            commit(store, "c", &ok("c").admits(program(&format!("result = {n}"))));
        }
        assert_eq!(recalled(store), ("result = 19".to_owned(), 1, 0));
        commit(store, "c", &ok("c").scores("result = 15", RunVerdict::Failed));
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
fn programs_under_different_contracts_are_stored_side_by_side() {
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
        let verdicts =
            [RunVerdict::Succeeded, RunVerdict::Failed, RunVerdict::Answered, RunVerdict::Excused];
        for verdict in verdicts {
            commit(store, "c", &ok("c").scores("result = 1", verdict));
            commit(store, "c", &ok("c").scores("result = 2", verdict));
        }
        assert_eq!(recalled(store), ("result = 1".to_owned(), 2, 1));
    });
}

#[test]
fn repairs_that_did_not_take_over_are_counted() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")));
        commit(store, "c", &failed("c").scores("one", RunVerdict::Failed).writes_repair_of("one"));
        commit(
            store,
            "c",
            &failed("c").scores("one", RunVerdict::Exhausted).writes_repair_of("one"),
        );
        let artifact = store.recall(&alone("a1"), &call("c")).unwrap().artifacts.remove(0);
        assert_eq!((artifact.repairs, artifact.failures), (2, 2));
        assert_eq!(artifact.track_record.recent.as_str(), "sfx");
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
        let shown = store.prompt_context(&alone("a1"), &call("c")).unwrap().siblings;
        let shown: Vec<_> = shown
            .iter()
            .map(|s| (s.method.as_str(), s.reads.join(","), s.writes.join(",")))
            .collect();
        assert_eq!(
            shown,
            [("clear", String::new(), String::new()), ("store", "memory".into(), "memory".into()),]
        );
    });
}
