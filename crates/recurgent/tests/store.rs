//! What any store must do, checked on each; then what only a file shared by processes must do.
#![cfg(test)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use lifecycle::artifact::{Artifact, ArtifactChange, Cacheability, RUNTIME_VERSION, Verdict};
use lifecycle::attempt::RetryLane;
use lifecycle::call::StoreFault;
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::history::Content;
use lifecycle::program::Checksum;
use lifecycle::prompt::MAX_TOOLS;
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use lifecycle::settlement::{Changes, Kept};
use lifecycle::tool::Tool;
use recurgent::store::memory::MemoryStore;
use recurgent::store::sqlite::SqliteStore;
use recurgent::store::{
    Exhaustions, HISTORY_BATCH, MAX_CONTENTS, MAX_CONTENTS_BYTES, MAX_HISTORY, MAX_RECALLED,
    MAX_VERSIONS, Owner, Store,
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
        assert!(store.recall(&call("c0")).unwrap().artifacts.is_empty());
        let declared = json!([{"name": "requests", "version": ">=2"}]);
        let mut program = program("result = 1");
        program.manifest = DependencyManifest::parse(Language::Python, Some(&declared)).unwrap();
        program.repairs = 2;
        commit(store, "c1", &ok("c1").admits(program.clone()));
        assert_eq!(store.recall(&call("c2")).unwrap().artifacts, [program]);
        for other in [CallRequest { role: role("poet"), ..call("c3") }, method("subtract")] {
            assert!(store.recall(&other).unwrap().artifacts.is_empty());
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
        let recalled = store.recall(&call("c")).unwrap().artifacts;
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
        let conflict = Err(StoreFault::Conflict { session: "s".into() });
        assert_eq!(store.commit(&owner, &call("c1"), &stale.0), conflict);
        assert_eq!(store.remember(&owner, 0, &sets("a", json!(3))), conflict);
        assert_eq!(store.context(&owner, None).unwrap().unwrap().get("a"), Some(&json!(1)));
        assert!(store.tools(None, 10).unwrap().is_empty());
        assert!(store.recall(&call("c2")).unwrap().artifacts.is_empty());
        assert!(store.history(&owner, 10, None).unwrap().is_empty());
        assert_eq!(
            store.commit(&owner, &call("c3"), &ok("c3").0),
            Ok(()),
            "who only read is in time"
        );
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
        assert_eq!(store.content("content:0").unwrap(), None);
        assert_eq!(store.content("content:1").unwrap(), Some(json!(1)));
        let quarter = json!("x".repeat(usize::try_from(MAX_CONTENTS_BYTES).unwrap() / 4 - 2));
        for n in 0..5 {
            commit(store, "c", &ok("c").keeps(&format!("content:large:{n}"), &quarter));
        }
        assert_eq!(store.content(&format!("content:{MAX_CONTENTS}")).unwrap(), None);
        assert_eq!(store.content("content:large:0").unwrap(), None);
        assert_eq!(store.content("content:large:1").unwrap(), Some(quarter));
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
        assert_eq!(shown.siblings, ["multiply", "subtract"]);
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
        assert_eq!(store.content("content:1").unwrap().unwrap().to_string(), value.to_string());
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
    assert_eq!(store.content("content:1").unwrap(), None);
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
    assert_eq!(store.tools(None, 1000).unwrap().len(), 160);
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
    assert!(store.recall(&call("c")).unwrap().artifacts.is_empty());
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
    assert!(store.recall(&call("c")).unwrap().artifacts.is_empty());
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
                Ok(()) => eprintln!("written"),
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

fn commit(store: &dyn Store, id: &str, changes: &Draft) {
    store.commit(&alone("a1"), &call(id), &changes.0).unwrap();
}

/// The text, successes and failures of what would run now.
fn recalled(store: &dyn Store) -> (String, u32, u32) {
    let [artifact] = &store.recall(&call("c")).unwrap().artifacts[..] else { panic!("not one") };
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
        record,
        content: None,
        exhausted: None,
    })
}

fn failed(id: &str) -> Draft {
    Draft(Changes { kept: None, ..ok(id).0 })
}

impl Draft {
    fn admits(mut self, artifact: Artifact) -> Self {
        self.0.artifacts.push(ArtifactChange::Admit(Box::new(artifact)));
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

    fn keeps(mut self, reference: &str, value: &Value) -> Self {
        let payload = value.to_string();
        self.0.content = Some(Content {
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
    }
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
