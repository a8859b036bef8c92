use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;
use tempfile::TempDir;

use super::*;

const LIMITS: LogLimits = LogLimits { total_bytes: 400, tree_bytes: 1 << 20, keep: None };

fn place() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log.jsonl");
    (place, path)
}

fn write(log: &Log, value: &Value) {
    write_in(log, &TreeShare::default(), true, value);
}

fn write_in(log: &Log, share: &TreeShare, is_root: bool, value: &Value) {
    let encode = |before: &AlreadyLogged, line: &mut Vec<u8>| match before.dropped_entries {
        0 => serde_json::to_writer(line, value).unwrap(),
        dropped => serde_json::to_writer(line, &json!({"dropped": dropped})).unwrap(),
    };
    log.append(&LogRequest { share, is_root, programs: BTreeSet::new(), encode: &encode });
}

/// Logs a call that ran these programs, as [`lifecycle::log_entry::project`] does.
fn run(log: &Log, programs: &[&str]) {
    let encode = |before: &AlreadyLogged, line: &mut Vec<u8>| {
        let attempts = programs.iter().map(|text| {
            let digest = Checksum::of(text);
            let code = (!before.programs.contains(&digest)).then_some(text);
            json!({"code_digest": digest, "code": code})
        });
        let entry = json!({"args": [{"code_digest": "sha256:forged", "code": "x"}], "attempts": attempts.collect::<Vec<_>>()});
        serde_json::to_writer(line, &entry).unwrap();
    };
    let share = TreeShare::default();
    let programs = programs.iter().map(|text| Checksum::of(text)).collect();
    log.append(&LogRequest { share: &share, is_root: true, programs, encode: &encode });
}

#[test]
fn a_full_log_is_set_aside_once_and_every_process_writes_to_the_new_one() {
    let (place, path) = place();
    let log = || Log::new(path.clone(), LIMITS);
    let (ours, theirs) = (log(), log()); // as two processes have them
    write(&theirs, &json!(0));
    write(&ours, &json!("x".repeat(200)));
    write(&ours, &json!(1));
    for number in 2..=4 {
        write(&theirs, &json!(number));
        write(&ours, &json!(number * 10));
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n20\n3\n30\n4\n40\n");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
}

#[test]
fn a_process_that_writes_one_line_sets_a_full_log_aside_too() {
    let (place, path) = place();
    fs::write(&path, "x".repeat(200)).unwrap();
    write(&Log::new(path.clone(), LIMITS), &json!(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
}

#[test]
fn all_files_together_stay_below_the_total_and_old_ones_go() {
    let (place, path) = place();
    fs::write(place.path().join("log.jsonl.bak"), "mine").unwrap();
    fs::write(place.path().join("log.jsonl.+1"), "mine").unwrap();
    let limits = LogLimits { total_bytes: 4000, ..LIMITS };
    for number in 0..300 {
        // Each as its own process.
        write(&Log::new(path.clone(), limits), &json!(format!("{number} {}", "x".repeat(90))));
        std::thread::sleep(Duration::from_millis(u64::from(number % 10 == 0)));
    }
    let files = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.collect();
    let total: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(total <= 4000 + 200, "{total} bytes in {files:?}");
    assert!(fs::read_to_string(&path).unwrap().contains("299 "));
    assert_eq!(files.iter().filter(|path| fs::read(path).unwrap() == b"mine").count(), 2);
    let limits = LogLimits { keep: Some(Duration::from_hours(1)), ..limits };
    fs::write(place.path().join("log.jsonl.1000"), "ancient").unwrap();
    write(&Log::new(path.clone(), limits), &json!(1));
    assert!(!place.path().join("log.jsonl.1000").exists());
    assert!(set_aside_files(&path).len() > 1, "younger ones stay");
}

#[test]
fn a_program_is_written_once_per_file_by_any_process() {
    let (_place, path) = place();
    let log = || Log::new(path.clone(), LogLimits { total_bytes: 1 << 30, ..LIMITS });
    let (ours, theirs) = (log(), log());
    for _ in 0..3 {
        run(&ours, &["alpha"]);
        run(&theirs, &["alpha", "beta"]);
        run(&log(), &["beta", "gamma"]);
    }
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 9);
    for program in ["alpha", "beta", "gamma"] {
        assert_eq!(text.matches(&format!("\"code\":\"{program}\"")).count(), 1, "{text}");
    }
    // An argument that looks like an entry's program does not keep that program from being written.
    let forged = json!({"args": [{"code_digest": Checksum::of("delta"), "code": "x"}]});
    fs::write(&path, format!("{forged}\n")).unwrap();
    run(&log(), &["delta"]);
    assert!(fs::read_to_string(&path).unwrap().contains("\"code\":\"delta\""));
    // A file that was cut short lost what it held.
    run(&ours, &["alpha"]);
    fs::write(&path, "").unwrap();
    run(&ours, &["epsilon"]);
    run(&ours, &["alpha"]);
    assert_eq!(fs::read_to_string(&path).unwrap().matches("\"code\":\"alpha\"").count(), 1);
}

#[test]
fn a_call_tree_has_a_share_and_its_root_says_how_many_entries_it_lost() {
    let (_place, path) = place();
    let log =
        Log::new(path.clone(), LogLimits { tree_bytes: 1000, total_bytes: 1 << 30, keep: None });
    let share = TreeShare::default();
    for _ in 0..1000 {
        write_in(&log, &share, false, &json!("x".repeat(100)));
    }
    write_in(&log, &share, true, &json!("root"));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.len() < 1100, "{} bytes", text.len());
    assert!(text.ends_with("{\"dropped\":991}\n"), "{text}");
    write(&log, &json!("another tree"));
    assert!(fs::read_to_string(&path).unwrap().ends_with("\"another tree\"\n"));
}

#[test]
fn an_unfinished_line_does_not_swallow_the_next() {
    let (_place, path) = place();
    fs::write(&path, "{\"torn\":").unwrap();
    let log = Log::new(path.clone(), LIMITS);
    write(&log, &json!(1));
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"torn").unwrap();
    write(&log, &json!(2));
    write(&log, &json!(3));
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"torn\":\n1\n{\"torn\n2\n3\n");
}

#[test]
fn a_log_that_is_not_a_file_blocks_no_call() {
    let (place, path) = place();
    let pipe = place.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    for target in [pipe.as_path(), place.path(), Path::new("/dev/null"), Path::new("/dev/full")] {
        let _ = fs::remove_file(&path);
        symlink(target, &path).unwrap();
        let log = Log::new(path.clone(), LIMITS);
        write(&log, &json!(1));
        write(&log, &json!(2));
    }
}
