//! A file shared by threads and processes, some of which are killed.
//!
//! A child is this test binary again; its standard input says what to do.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use lifecycle::artifact::RunVerdict;
use lifecycle::call::StoreFault;
use lifecycle::request::CallRequest;
use lifecycle::standing::Standing;
use lifecycle::tool::Tool;
use recurgent::store::Store;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use serde_json::json;

use crate::fixture::{
    alone, beside, call, in_session, integrity, ok, place, program, recalled, role, sets,
};

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

#[test]
fn eight_processes_that_find_a_damaged_file_move_it_once() {
    let (_folder, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "not a database ".repeat(1000)).unwrap();
    run_to_end((0..8).map(|n| child(&format!("work p{n}"), &path)));
    assert_nothing_lost(&SqliteStore::open(&path).unwrap());
    assert!(beside(&path, ".damaged-1").exists() && !beside(&path, ".damaged-2").exists());
}

/// 25 calls of one program, 20 of them forging a tool of their own.
fn work(store: &dyn Store, worker: &str) {
    store.keep_tool(&Tool { name: role("calculator"), contract: None }).unwrap();
    for n in 0..25 {
        let id = format!("{worker}-{n}");
        let changes = if n == 0 {
            ok(&id).admits(program("result = 1"))
        } else {
            ok(&id).scores("result = 1", RunVerdict::Succeeded)
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
    assert_eq!((called.usage_count, called.success_count, called.failure_count), (200, 200, 0));
    let track_record =
        store.recall(&alone("a1"), &call("c")).unwrap().artifacts.remove(0).track_record;
    assert_eq!(
        (track_record.standing, track_record.recent.as_str()),
        (Standing::Probation, "s".repeat(20).as_str())
    );
}

#[test]
fn of_two_processes_that_write_one_session_one_gets_a_conflict() {
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
        let kept = store.prompt_context(&in_session("s"), &call("c")).unwrap().history_count;
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
            .args(CHILD)
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
        let kept = store.prompt_context(&in_session("s"), &call("c")).unwrap().history_count;
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

/// A second filter of tests, which matches none, marks a child process.
const AS_CHILD: &str = "run_as_a_child_process";
/// Arguments that make this binary run `child_process` only.
const CHILD: [&str; 4] = ["--exact", "processes::child_process", AS_CHILD, "--nocapture"];

fn child(job: &str, path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(CHILD)
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

/// The second process of other tests, which start it with [`CHILD`]. Does nothing in an ordinary run.
#[test]
fn child_process() {
    if !std::env::args().any(|argument| argument == AS_CHILD) {
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

/// Commits until killed, and prints a line after each commit.
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
