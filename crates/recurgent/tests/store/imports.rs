//! What a directory of the reference runtime gives, entry by entry.

use std::fs;

use lifecycle::contract::Contract;
use lifecycle::example::Example;
use lifecycle::program::Checksum;
use lifecycle::request::CallRequest;
use lifecycle::version_policy::MAX_VERSIONS;
use recurgent::store::layout;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use serde_json::{Map, Value, json};

use crate::fixture::{call, calls, commit, in_session, key, ok, program, recalled, role, sets};

/// What people taught goes with the programs of a method.
#[test]
fn examples_are_exported_and_imported() {
    let (store, other) = (SqliteStore::in_memory().unwrap(), SqliteStore::in_memory().unwrap());
    commit(&store, "c", &ok("c").admits(program("one")).observes("c", "t", &[]));
    let example = Example::parse(&json!({"args": [1], "value": 2})).unwrap();
    store.teach(&key().role, &key().method, &example).unwrap();
    let folder = tempfile::tempdir().unwrap();
    layout::write(&store.bundle(None).unwrap(), &folder.path().join("out")).unwrap();
    let read = layout::read(&folder.path().join("out")).unwrap();
    assert_eq!(read.refused, []);
    other.merge(&read.bundle).unwrap();
    assert_eq!(other.examples(&key().role, &key().method).unwrap(), [example]);
}

/// What people decided about programs outranks what another store offers.
#[test]
fn an_import_respects_pins_rejections_and_the_number_of_versions() {
    let (ours, theirs) = (SqliteStore::in_memory().unwrap(), SqliteStore::in_memory().unwrap());
    commit(&ours, "c", &ok("c").admits(program("one")));
    theirs.merge(&ours.bundle(None).unwrap()).unwrap();
    commit(&theirs, "c", &ok("c").admits(program("two")));
    assert_eq!(recalled(&theirs).0, "two");
    let offered = theirs.bundle(None).unwrap();
    ours.pin(&key(), true).unwrap();
    ours.merge(&offered).unwrap();
    assert_eq!(recalled(&ours).0, "one", "it is pinned");
    ours.pin(&key(), false).unwrap();
    ours.reject(&key(), None, "wrong").unwrap().unwrap();
    ours.merge(&offered).unwrap();
    assert_eq!(recalled(&ours).0, "two");
    assert_eq!(ours.rollback(&key(), None).unwrap(), None, "it stays rejected");

    let mut many = theirs.bundle(None).unwrap();
    let newest = many.artifacts[0].versions.last().unwrap().clone();
    for number in 3..40 {
        let (mut version, code) = (newest.clone(), format!("v{number}"));
        (version.number, version.checksum, version.code) = (number, Checksum::of(&code), code);
        many.artifacts[0].versions.push(version);
    }
    let other = SqliteStore::in_memory().unwrap();
    other.merge(&many).unwrap();
    assert_eq!(other.versions(&key()).unwrap().len(), MAX_VERSIONS);
    assert_eq!(recalled(&other).0, "two", "the one that runs is kept, however old");
}

/// Stored contents are not exported, so an import that continues a session must leave those of the store.
#[test]
fn a_session_that_an_import_continues_keeps_its_stored_contents() {
    let (ours, theirs) = (SqliteStore::in_memory().unwrap(), SqliteStore::in_memory().unwrap());
    let owner = in_session("s");
    let first = ok("c1").changes(sets("a", json!(1))).holds(&["numpy"]);
    ours.commit(&owner, &call("c1"), &first.keeps("content:1", &json!(12)).0).unwrap();
    theirs.merge(&ours.bundle_with_sessions().unwrap()).unwrap();
    let context = theirs.context(&owner, None).unwrap().unwrap();
    let next = CallRequest { context, ..call("c2") };
    let second = ok("c2").changes(sets("b", json!(2)));
    theirs.commit(&owner, &next, &second.0).unwrap();
    let mut offered = theirs.bundle_with_sessions().unwrap();
    offered.sessions[0].updated_at = "2999-01-01T00:00:00.000Z".to_owned();
    let merged = ours.merge(&offered).unwrap();
    assert_eq!(merged.conflicts, []);
    assert_eq!(ours.bundle_with_sessions().unwrap().sessions, offered.sessions, "it is continued");
    assert_eq!(calls(&ours, &owner, 9, None), ["c1", "c2"]);
    assert_eq!(ours.content("content:1", None).unwrap(), Some(json!(12)));
}

/// The contract of a tool is the same after export and import, with the examples that it enforces.
#[test]
fn contracts_are_exported_and_imported_whole() {
    let contract = json!({"purpose": "double", "deliverable": {"type": "number"}, "acceptance": "exact",
        "failure_policy": "say why", "intent_signature": "twice", "examples": [{"args": [1], "value": 2}]});
    let (contract, _) = Contract::compose(contract.as_object(), &Map::new()).unwrap();
    let (store, other) = (SqliteStore::in_memory().unwrap(), SqliteStore::in_memory().unwrap());
    commit(&store, "c", &ok("c").forges("doubler", contract.clone()).observes("c", "t", &[]));
    let folder = tempfile::tempdir().unwrap();
    layout::write(&store.bundle(None).unwrap(), &folder.path().join("out")).unwrap();
    let read = layout::read(&folder.path().join("out")).unwrap();
    assert_eq!((&read.refused, &read.bundle.notes), (&vec![], &vec![]));
    other.merge(&read.bundle).unwrap();
    let known = other.tools(Some(&role("doubler")), 1).unwrap();
    assert_eq!(known[0].tool.contract, contract);
}

/// A directory of the reference runtime, with this registry and method file.
fn directory(registry: &Value, artifact: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("artifacts/converter-b1ab5a0e");
    fs::create_dir_all(&place).unwrap();
    for (name, content) in [
        ("registry.json", registry.clone()),
        (
            "patterns.json",
            json!({"roles": {"converter": {"events": [
            {"call_id": "c1", "method_name": "convert", "outcome_status": "ok"},
            {"call_id": 7}, {"method_name": "convert"}]}}}),
        ),
        ("proposals.json", json!({"proposals": []})),
        ("role_profiles.json", json!({"roles": {}})),
        ("artifacts/converter-b1ab5a0e/convert-0f0f0f0f.json", artifact.clone()),
    ] {
        fs::write(folder.path().join(name), content.to_string()).unwrap();
    }
    folder
}

#[test]
#[expect(clippy::too_many_lines, reason = "one registry and what becomes of each entry")]
fn one_odd_entry_does_not_refuse_its_neighbours_and_nothing_is_left_out_silently() {
    let registry = json!({"tools": {
        "converter": {"purpose": "convert", "methods": ["convert"], "deliverable": {"type": "numeric"},
            "intent_signature": "boil water", "method_signatures": {"convert": "args:0|kwargs:from,to"},
            "usage_count": 4, "success_count": 2, "failure_count": 1},
        "shelf": {"purpose": "keep", "methods": 7},
        "": {"purpose": "nothing"},
        "poet": {"purpose": "rhyme", "methods": "rhyme"},
        "fetcher": {"purpose": "fetch", "methods": {"fetch": {"arity": 1}}},
    }});
    let (code, first) = ("result = args[0] * 2", "result = args[0] + args[0]");
    let (head, older) = (Checksum::of(code), Checksum::of(first));
    let artifact = json!({"role": "converter", "method_name": "convert", "contract_fingerprint": "none",
        "cacheable": true, "cacheability_reason": "stable_method_default", "code_checksum": head, "code": code,
        "versions": {older.as_str(): {"code": first, "created_at": "2026-03-01T10:00:00.000Z"}},
        "success_count": 3, "failure_count": 1,
        "scorecards": {head.as_str(): {"successes": 3, "failures": 1, "sessions": ["t1", "t2"], "short_window": [
            {"status": "ok"}, {"status": "error", "error_type": "timeout"},
            {"status": "error", "error_type": "execution"}, {"status": "error", "error_type": "low_utility"},
            {"status": "error", "error_type": "wrong_tool_boundary"}, {"status": "ok"}]}},
        "history": [
            {"id": "gen-2", "parent_id": "gen-1", "trigger": "repair:execution", "code_checksum": head,
             "trigger_error_class": "TypeError", "trigger_error_message": "no",
             "trigger_stage": "execution", "trigger_attempt_id": 2},
            {"id": "gen-1", "trigger": "initial_forge", "code_checksum": older}],
        "lifecycle": {"versions": {head.as_str(): {"lifecycle_state": "durable"}}}});
    let read = layout::read(directory(&registry, &artifact).path()).unwrap();
    let refused: Vec<_> = read.refused.iter().map(|note| note.what.as_str()).collect();
    assert_eq!(
        refused,
        [
            "tool \"shelf\" of registry.json",
            "tool \"\" of registry.json",
            "role \"converter\" of patterns.json"
        ],
        "{:?}",
        read.refused
    );
    let store = SqliteStore::in_memory().unwrap();
    let merged = store.merge(&read.bundle).unwrap();
    assert_eq!(merged.conflicts, []);
    let skipped: Vec<_> = merged.skipped.iter().map(|note| note.what.as_str()).collect();
    assert!(
        skipped.contains(&"proposals.json") && skipped.contains(&"role_profiles.json"),
        "{skipped:?}"
    );
    let names: Vec<_> = store
        .tools(None, 9)
        .unwrap()
        .into_iter()
        .map(|known| known.tool.name.to_string())
        .collect();
    assert_eq!(names, ["converter", "fetcher", "poet"]);
    let fetcher = store.tools(Some(&role("fetcher")), 1).unwrap().remove(0);
    assert_eq!(fetcher.methods, ["fetch"]);
    let noted: Vec<_> = merged.noted.iter().map(|note| note.what.as_str()).collect();
    for name in ["fetcher", "poet"] {
        let what = format!("tool {name:?} of registry.json");
        assert!(noted.contains(&what.as_str()), "{name} is taken with a note: {noted:?}");
        assert!(!skipped.contains(&what.as_str()), "{name} is not skipped: {skipped:?}");
    }
    let converter = store.tools(Some(&role("converter")), 1).unwrap().remove(0);
    let contract = converter.tool.contract.unwrap();
    assert_eq!(contract.intent_signature.as_deref(), Some("boil water"));
    assert_eq!(store.patterns(&role("converter")).unwrap().len(), 1);

    let known = store.artifacts(Some(&role("converter")), 1).unwrap().remove(0);
    let versions = store.versions(&known.current.key()).unwrap();
    let (newest, oldest) = (&versions[0], &versions[1]);
    assert_eq!(newest.artifact.track_record.standing.name(), "durable");
    assert_eq!(
        newest.artifact.track_record.recent.as_str(),
        "sfabs",
        "the world's fault is not counted"
    );
    assert_eq!((newest.artifact.successes, newest.artifact.failures), (3, 1));
    assert_eq!(newest.trigger.name(), "repair");
    assert_eq!(newest.parent.as_ref(), Some(&oldest.artifact.checksum));
    assert_eq!(newest.failure.as_deref(), Some("TypeError: no"));
    assert_eq!(newest.trigger_error_class.as_deref(), Some("TypeError"));
    assert_eq!(newest.trigger_attempt_id, Some(2));
    assert_eq!(oldest.trigger.name(), "fresh");

    // Kept versions are exported again.
    let again = store.bundle(None).unwrap();
    let tool = again.tools.iter().find(|tool| tool.name == role("converter")).unwrap();
    assert_eq!(tool.signatures["convert"], "args:0|kwargs:from,to");
    let folder = tempfile::tempdir().unwrap();
    layout::write(&again, &folder.path().join("out")).unwrap();
    let back = layout::read(&folder.path().join("out")).unwrap();
    assert_eq!((back.bundle.tools, back.refused), (again.tools, vec![]));
}

/// What another runtime wrote beside a contract is kept as intent; what it recorded about the tool is not.
#[test]
fn constraints_in_prose_are_kept_as_intent_with_a_note() {
    let registry = json!({"tools": {"converter": {
        "purpose": "convert", "methods": ["convert"], "constraints": "never round", "capabilities": [],
        "lifecycle_state": "durable", "version_scorecards": {"convert@x": {"calls": 1}}, "usage_count": 4}}});
    let folder = directory(&registry, &json!({}));
    let read = layout::read(folder.path()).unwrap();
    let contract = read.bundle.tools[0].contract.as_ref().unwrap();
    assert_eq!(contract.notes.len(), 1, "{:?}", contract.notes);
    assert!(contract.notes[0].contains("constraints") && contract.notes[0].contains("never round"));
    let named = |note: &recurgent::store::bundle::ImportNote| note.why.contains("never round");
    assert!(read.bundle.tolerated.iter().any(named), "{:?}", read.bundle.tolerated);
}
