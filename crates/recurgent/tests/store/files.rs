//! What only a file must do: its owner, older and newer schemas, damage, places that cannot be written.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lifecycle::artifact::RunVerdict;
use lifecycle::call::StoreFault;
use lifecycle::program::Checksum;
use recurgent::Runtime;
use recurgent::config::Config;
use recurgent::provider::{Provider, Scripted};
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use rusqlite::Connection;
use serde_json::json;

use crate::fixture::{
    alone, beside, call, calls, commit, in_session, integrity, key, ok, place, program, recalled,
    role, unavailable,
};

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

/// A schema that files have seen never changes: they would not see the change.
#[test]
fn what_files_have_seen_of_the_schema_stays_as_it_was() {
    let seen = [
        ("0001", "sha256:f902a206aab547562c80d0f084f37c39e6518d1d8536e0321410f3e50af9f6d0"),
        ("0002", "sha256:fcc927a5dd5576fd3bf8704b4fc1d3bdf7eeb47e13a5e164e1f62f92c1fd63cc"),
        ("0003", "sha256:6f1f9dd48730c81236af32cbd6fe69923a95bc2e69c36cdb13d4e5837b0bc4e6"),
        ("0004", "sha256:a5e5323ef0c3d61504cf774620b8e0b7c5150e4477340804392a0f3b4bd40539"),
        ("0005", "sha256:08403179908e2d75acf4e7fc9cacf3107a595b61d3227fa6ccc1dfa4028aa3d5"),
        ("0006", "sha256:de4d5d7742c83bc978de2babea336ae68ce99674e08b15dbc55463b2c662b4d0"),
        ("0007", "sha256:5e110a6f5f28674bd1292823396d8afd68ca20dfb0f72d00938d6613bfc23744"),
        ("0008", "sha256:8be285028717c1ee0e3a505f017357cf70adbcc3b47758ca490741bdc047fd0b"),
        ("0009", "sha256:a648d74c02b8cf7896d4e0715d0d2fa880e321bf5edc4def12a07ed504972f0c"),
        ("0010", "sha256:6c3616ffaca52a24973ee0478edf308a0a477d40a8894699c4eb3918e8b56e28"),
        ("0011", "sha256:93f14f17dee289dcb0613ca45b61bc0d68441679c6c6c0377db99c1b27efaa13"),
    ];
    for (name, digest) in seen {
        assert_eq!(Checksum::of(&schema(name)).as_str(), digest, "{name}: add a new one instead");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/schema");
    assert_eq!(fs::read_dir(folder).unwrap().count(), seen.len(), "each has its row here");
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
    commit(&store, "c", &ok("c").scores("two", RunVerdict::Succeeded));
    let receipt = commit(&store, "c", &ok("c").admits(program("three")));
    assert_eq!(receipt.generations, Some(3));
    assert_eq!(store.rollback(&key(), None).unwrap(), Some(Checksum::of("two")));
    assert_eq!(integrity(&path), "ok");
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
        "a folder is not a file"
    );
    assert!(!beside(folder.path(), ".lock").exists(), "a refused store leaves nothing");
}

/// What a model would be shown cannot be looked up: the store is to blame, not the model, which is not asked.
#[test]
fn a_store_that_fails_before_a_model_is_asked_is_what_the_call_ends_with() {
    let (_folder, path) = place();
    let model = Arc::new(Scripted::new().with("poet.rhyme", "result = args[0]"));
    let mut config = Config::defaults();
    config.set("log", "off").unwrap();
    let store = Arc::new(SqliteStore::open(&path).unwrap());
    let runtime = Runtime::builder(config)
        .provider(Arc::clone(&model) as Arc<dyn Provider>)
        .store(store)
        .build()
        .unwrap();
    let poet = runtime.agent("poet").build().unwrap();
    // Recalling a program does not read tools; building a prompt does.
    Connection::open(&path).unwrap().execute_batch("ALTER TABLE tools RENAME TO gone").unwrap();
    let outcome = poet.call("rhyme", (1,)).unwrap();
    let failure = outcome.failure().unwrap();
    assert_eq!(failure.kind.code(), "store_unavailable", "{failure}");
    assert!(!failure.kind.retriable() && failure.message.contains("no such table"), "{failure}");
    assert_eq!(model.asked(), [""; 0]);
}
