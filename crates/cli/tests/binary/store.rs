//! The store's file: damage, checks, many writers, and writers that are killed.

use std::fs;
use std::process::{Command, Stdio};

use lifecycle::program::Checksum;
use serde_json::{Value, json};

use crate::calls::cli;
use crate::exchange::files;
use crate::fixture::CliFixture;
use crate::tools::grown;

#[test]
fn a_damaged_store_is_moved_aside_and_reported() {
    let cli = cli();
    std::fs::create_dir(cli.path("state")).unwrap();
    cli.write("state/recurgent.sqlite", &"this is not a database ".repeat(500));
    let ran = cli.run(&["call", "calculator", "add", "3"]);
    ran.exits(0).prints("3\n").stderr_contains("note:");
    let kept = std::fs::read_dir(cli.path("state")).unwrap().any(|entry| {
        std::fs::read(entry.unwrap().path()).is_ok_and(|bytes| bytes.starts_with(b"this is no"))
    });
    assert!(kept, "the damaged file is kept: {ran:?}");
}

#[test]
fn damage_found_during_a_call_is_reported_too() {
    let cli = cli();
    let call = ["call", "calculator", "add", "1", "--session", "s"];
    cli.run(&call).exits(0).prints("1\n");
    let store = cli.path("state/recurgent.sqlite");
    let mut bytes = std::fs::read(&store).unwrap();
    // Past the header and the schema: opening finds nothing wrong.
    bytes[3 * 4096..].fill(0xa5);
    std::fs::write(&store, bytes).unwrap();
    cli.run(&call).stderr_contains("was damaged and has been moved to");
}

#[test]
fn a_store_can_be_checked() {
    let cli = grown();
    let ran = cli.run(&["store", "check"]);
    assert_eq!(ran.exit, 0);
    assert!(ran.stdout.contains("is whole"), "{}", ran.stdout);

    // An artifact whose program went missing, and a torn page.
    let file = cli.path("state/recurgent.sqlite");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.execute("UPDATE artifacts SET current = 99 WHERE role = 'guide'", []).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(connection);
    let checked = cli.json(&["store", "check"]);
    assert_eq!(checked["problems"], json!(["guide.movies has no current program"]));
    assert_eq!(cli.run(&["store", "check"]).exit, 1);
    let mut bytes = fs::read(&file).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0x5a);
    fs::write(&file, bytes).unwrap();
    let checked = cli.json(&["store", "check"]);
    assert_eq!(checked["ok"], false, "{checked}");

    // One that cannot even be opened is moved aside, and is not to be moved or exported any more.
    fs::write(&file, "no database ".repeat(500)).unwrap();
    let ran = cli.run(&["store", "check"]);
    assert_eq!(ran.exit, 1, "{}", ran.stderr);
    assert!(ran.stdout.contains("has been moved to"), "{}", ran.stdout);
    assert!(!ran.stderr.contains("has been moved to"), "reported once: {}", ran.stderr);
    assert!(ran.stderr.contains(".recover") && !ran.stderr.contains("export"), "{}", ran.stderr);
}

/// What a call, a session or an export would stumble over.
#[test]
fn a_check_reads_all_that_calls_read() {
    let bench = grown();
    let call = ["call", "clerk", "greet", "Ada", "--session", "desk"];
    bench.run(&call);
    let insert_memory = "INSERT INTO context_entries SELECT id, 'k', '{no json' FROM owners";
    let damages = [
        ("DROP TABLE history", "the table history is missing"),
        ("DROP INDEX tools_by_usage", "the index tools_by_usage is missing"),
        (
            "ALTER TABLE artifacts DROP COLUMN pinned",
            "the column artifacts.pinned INTEGER is missing",
        ),
        (insert_memory, "cannot be read at \"k\""),
        ("UPDATE artifact_versions SET version = -version", "negative version"),
        ("UPDATE owners SET context_version = -1", "negative context_version"),
        ("UPDATE artifact_versions SET code = 'result = 0'", "does not match its checksum"),
        ("UPDATE artifact_versions SET manifest = '7'", "cannot be read"),
        ("UPDATE tools SET contract = '{no json'", "cannot be read"),
        ("UPDATE patterns SET event = '{no json'", "the pattern event of"),
        ("UPDATE history SET record = 'x'", "the history record"),
        ("UPDATE artifacts SET challenger = 77", "has no waiting program"),
        ("PRAGMA foreign_keys = OFF; DELETE FROM owners", "refers to no row of owners"),
    ];
    check_found(&bench, &damages);
}

/// Rows whose text is well formed and means nothing to what reads it, in each table.
#[rustfmt::skip]
const WRONG_SHAPES: &[(&str, &str)] = &[
    ("UPDATE history SET record = '{}'", "the history record"),
    ("UPDATE patterns SET event = '7'", "the pattern event of"),
    ("UPDATE patterns SET role = '' WHERE role = (SELECT min(role) FROM patterns)", "the role \"\" in patterns"),
    ("INSERT INTO contents (owner_id, reference, start, bytes, created_at, payload) SELECT id, 'r', 0, 1, '', '{no json' FROM owners LIMIT 1", "the kept value r"),
    ("INSERT INTO decisions (artifact_id, checksum, decided_at, decision) SELECT id, 'x', '', '{}' FROM artifacts LIMIT 1", "the decision"),
    ("INSERT INTO examples VALUES ('role', 'method', 'd', '', '{}')", "the example of role.method"),
    ("INSERT INTO examples VALUES ('', 'method', 'd', '', '{\"args\": [1], \"value\": 1}')", "the role \"\" in examples"),
    ("INSERT INTO corpus SELECT id, 'd', '', '{}', '{}', NULL FROM artifacts LIMIT 1", "the result of a recorded call of"),
    ("INSERT INTO corpus SELECT id, 'd', '', '{}', '[]', NULL FROM artifacts LIMIT 1", "the arguments of a recorded call of"),
    ("INSERT INTO manifests SELECT id, 'python', '7' FROM owners LIMIT 1", "packages of"),
    ("INSERT INTO manifests SELECT id, 'cobol', '[]' FROM owners LIMIT 1", "the language \"cobol\" in manifests"),
    ("INSERT INTO exhaustions VALUES ('role', '', 'python', 'x', 0, 0)", "the method \"\" in exhaustions"),
    ("INSERT INTO rejections (role, method, language, checksum, because, rejected_at) VALUES ('role', 'method', 'cobol', '', '', '')", "the language \"cobol\" in rejections"),
    ("INSERT INTO early_calls VALUES ('', 0, 0, 0)", "the role \"\" in early_calls"),
    ("UPDATE owners SET role = ''", "the role \"\" in owners"),
    ("PRAGMA foreign_keys = OFF; UPDATE tools SET name = '' WHERE rowid = (SELECT min(rowid) FROM tools)", "the name \"\" in tools"),
    ("PRAGMA foreign_keys = OFF; INSERT INTO tool_methods VALUES ('lost', 'method', NULL)", "refers to no row of tools"),
    ("UPDATE tools SET contract = '7'", "the contract of"),
    ("UPDATE artifacts SET language = 'cobol' WHERE id = (SELECT min(id) FROM artifacts)", "the language \"cobol\" in artifacts"),
    ("UPDATE artifacts SET generations = 0", "has newer programs than it counts"),
    ("UPDATE artifact_versions SET state_keys = '7'", "the state keys of"),
    ("UPDATE artifact_versions SET failing_case = '{}'", "the failed call of"),
    ("UPDATE artifact_versions SET standing = 'odd'", "the standing \"odd\" in artifact_versions"),
    ("UPDATE artifact_versions SET cacheability = 'odd'", "the cacheability \"odd\" in artifact_versions"),
    ("UPDATE artifact_versions SET author = 'odd'", "the author \"odd\" in artifact_versions"),
    ("UPDATE artifact_versions SET trigger_reason = 'odd'", "the trigger_reason \"odd\" in artifact_versions"),
    ("DELETE FROM meta", "the version that new sessions begin with is missing"),
];

#[test]
fn a_check_finds_rows_of_the_wrong_shape() {
    let bench = grown();
    bench.run(&["call", "clerk", "greet", "Ada", "--session", "desk"]);
    check_found(&bench, WRONG_SHAPES);
}

/// Does each damage to a whole store, and checks that it is found.
fn check_found(cli: &CliFixture, damages: &[(&str, &str)]) {
    assert_eq!(cli.json(&["store", "check"])["ok"], true);
    let file = cli.path("state/recurgent.sqlite");
    for (damage, expected) in damages {
        let whole = fs::read(&file).unwrap();
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection.execute_batch(damage).unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(connection);
        let checked = cli.json(&["store", "check"]);
        assert_eq!(checked["ok"], false, "{damage}");
        let problems = checked["problems"].as_array().unwrap();
        let is_found = problems.iter().any(|it| it.as_str().unwrap().contains(expected));
        assert!(is_found, "{damage}: {checked:#}");
        fs::write(&file, whole).unwrap();
    }
    assert_eq!(cli.json(&["store", "check"])["ok"], true);
}

/// A store to import that takes many pages to write.
fn large_export(cli: &CliFixture) {
    cli.run(&["store", "export", "large"]);
    let place = cli.path("large/artifacts/greeter/greet.json");
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&place).unwrap()).unwrap();
    let first = file["code_checksum"].as_str().unwrap().to_owned();
    for number in 2..=9 {
        let code = format!(
            "def greet(name):\n    return 'hello ' + name\n# {}",
            "x".repeat(9000 + number)
        );
        let mut version = file["versions"][&first].clone();
        version["version"] = json!(number);
        version["code"] = json!(code);
        file["versions"][Checksum::of(&code).as_str()] = version;
        file["code_checksum"] = json!(Checksum::of(&code));
    }
    fs::write(&place, file.to_string()).unwrap();
}

/// The kernel ends the import at the write that exceeds a limit on file size, which grows each round.
#[test]
fn an_import_that_dies_at_any_write_can_be_made_again() {
    let cli = grown();
    large_export(&cli);
    assert_eq!(cli.run_in("whole", &["store", "import", "large"]).exit, 0);
    cli.run_in("whole", &["store", "export", "expected"]);
    let expected = files(&cli.path("expected"));
    let (mut died, mut ended) = (0, 0);
    for round in 0..16 {
        let state = format!("state-{round}");
        let line =
            format!("ulimit -c 0; ulimit -f {}; exec \"$0\" store import large", 8 + 56 * round);
        let ran = Command::new("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_recurgent")])
            .current_dir(cli.path("."))
            .env_clear()
            .env("HOME", cli.path("."))
            .env("RECURGENT_STATE_DIR", cli.path(&state))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        match ran.status.code() {
            Some(0) => ended += 1,
            Some(_) | None => died += 1,
        }
        let checked = cli.run_in(&state, &["store", "check"]);
        assert_eq!(checked.exit, 0, "{round}: {}{}", checked.stdout, checked.stderr);
        let again = cli.run_in(&state, &["store", "import", "large"]);
        assert_eq!(again.exit, 0, "{round}: {}{}", again.stdout, again.stderr);
        let out = format!("out-{round}");
        cli.run_in(&state, &["store", "export", &out]);
        assert!(files(&cli.path(&out)) == expected, "{round}: not the same");
    }
    assert!(died > 2 && ended > 0, "{died} died, {ended} ended");
}

/// Several imports into a store that does not exist yet, while calls and checks run.
#[test]
fn imports_calls_and_checks_can_run_at_once() {
    let cli = grown();
    large_export(&cli);
    let run = |line: &[&str]| {
        let ran = cli.run_in("shared", line);
        assert_eq!(ran.exit, 0, "{line:?} {}{}", ran.stdout, ran.stderr);
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| run(&["store", "import", "large"]));
        }
        for name in ["Ann", "Bo"] {
            scope.spawn(move || run(&["call", "clerk", "greet", name]));
        }
        scope.spawn(|| (0..4).for_each(|_| run(&["store", "check"])));
    });
    run(&["store", "check"]);
    let shown = cli.run_in("shared", &["tools", "show", "greeter", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["methods"][0]["versions"].as_array().unwrap().len(), 9);
}
