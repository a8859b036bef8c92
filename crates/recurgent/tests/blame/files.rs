//! Files that are not granted: to a program they do not exist, and what it says of them is not taken for the truth.

use std::os::unix::fs::PermissionsExt as _;

use recurgent::{Agent, Outcome};
use serde_json::json;

use crate::{GuestFixture, check, code, metadata};

/// An agent that may read one file, and another of the same role that may read none.
struct Readers {
    granted: Agent,
    ungranted: Agent,
    path: String,
    /// Where the file is. Nothing in the state directory can be granted.
    _data: tempfile::TempDir,
}

fn readers(fixture: &GuestFixture) -> Readers {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("sales.csv");
    std::fs::write(&path, "1\n2\n").unwrap();
    let path = path.display().to_string();
    let agent = |settings: &[(&str, &str)]| {
        let runtime = fixture.runtime(settings);
        runtime.agent("files").guest(fixture.language).build().unwrap()
    };
    Readers { granted: agent(&[("read_paths", &path)]), ungranted: agent(&[]), path, _data: data }
}

fn grant(readers: &Readers) -> String {
    format!("--read {}", readers.path)
}

fn names_grant(outcome: &Outcome, readers: &Readers) -> bool {
    outcome.notes.iter().any(|note| note.contains(&grant(readers)))
}

/// A program that looks whether a file is there and raises if it is not: the missing grant is to blame.
#[test]
fn a_program_that_raises_about_an_ungranted_file_is_not_to_blame() {
    for (python, ruby) in [
        (
            "import os\ndef size(path):\n    if not os.path.exists(path):\n        raise ValueError('no file ' + path)\n    \
             return os.path.getsize(path)",
            "def size(path)\n  raise ArgumentError, \"no file #{path}\" unless File.exist?(path)\n  File.size(path)\nend",
        ),
        (
            "from pathlib import Path\nclass NoFile(Exception):\n    pass\ndef size(path):\n    file = Path(path)\n    \
             if not file.is_file():\n        raise NoFile(path)\n    return file.stat().st_size",
            "require 'pathname'\nclass NoFile < StandardError; end\ndef size(path)\n  file = Pathname.new(path)\n  \
             raise NoFile, path unless file.file?\n  file.size\nend",
        ),
    ] {
        check(|fixture| {
            fixture.writes("files.size", python, ruby);
            let readers = readers(fixture);
            let path = readers.path.as_str();
            assert_eq!(readers.granted.call("size", (path,)).unwrap().value(), Some(&json!(4)));
            for _ in 0..4 {
                let outcome = readers.ungranted.call("size", (path,)).unwrap();
                assert_eq!(code(&outcome), "unsupported_capability", "{outcome:?}");
                assert_eq!(metadata(&outcome, "grant"), Some(grant(&readers).as_str()));
                assert_eq!(metadata(&outcome, "blame"), Some("world"));
            }
            assert_eq!((fixture.asked(), fixture.failures("files", "size")), (1, 0));
            assert!(readers.granted.call("size", (path,)).unwrap().is_ok());
        });
    }
}

/// A mistake on the way to the file is still the program's.
#[test]
fn a_mistake_beside_an_ungranted_file_counts() {
    check(|fixture| {
        fixture.writes(
            "files.size",
            "import os\ndef size(path):\n    return os.path.getsize(path) if os.path.exists(path) else nothing",
            "def size(path) = File.exist?(path) ? File.size(path) : nothing",
        );
        let readers = readers(fixture);
        let path = readers.path.as_str();
        assert!(readers.granted.call("size", (path,)).unwrap().is_ok());
        fixture.refuse_model_key("files.size");
        let outcome = readers.ungranted.call("size", (path,)).unwrap();
        assert_eq!(metadata(&outcome, "blame"), Some("program"), "{outcome:?}");
    });
}

/// What a program reports by itself stays as it is, and names the missing grant: no other program is asked for.
#[test]
fn a_report_about_an_ungranted_file_names_the_grant() {
    for retriable in ["False", "True"] {
        let python = format!(
            "import os\ndef size(path):\n    if not os.path.isfile(path):\n        \
             return Outcome.error(error_type='file_not_found', error_message='no ' + path, retriable={retriable})\n    \
             return os.path.getsize(path)"
        );
        let ruby = format!(
            "def size(path)\n  return Outcome.error(error_type: 'file_not_found', error_message: path, retriable: {}) \
             unless File.file?(path)\n  File.size(path)\nend",
            retriable.to_lowercase()
        );
        check(|fixture| {
            fixture.writes("files.size", &python, &ruby);
            let readers = readers(fixture);
            let path = readers.path.as_str();
            let there = readers.granted.call("size", (path,)).unwrap();
            assert!(there.is_ok() && there.notes.is_empty(), "{there:?}");
            for _ in 0..4 {
                let outcome = readers.ungranted.call("size", (path,)).unwrap();
                assert_eq!(code(&outcome), "file_not_found", "{outcome:?}");
                assert_eq!(metadata(&outcome, "grant"), Some(grant(&readers).as_str()));
                assert!(names_grant(&outcome, &readers), "{outcome:?}");
            }
            assert_eq!((fixture.asked(), fixture.failures("files", "size")), (1, 0));
            let missing = readers.granted.call("size", ("/srv/nothing.csv",)).unwrap();
            assert_eq!(metadata(&missing, "grant"), Some("--read /srv/nothing.csv"));
        });
    }
}

/// A value that may rest on a file that was not seen says so.
#[test]
fn a_value_that_may_rest_on_an_unseen_file_says_so() {
    for (python, ruby, value) in [
        (
            "import os\ndef size(path):\n    return os.path.getsize(path) if os.path.exists(path) else 0",
            "def size(path) = File.exist?(path) ? File.size(path) : 0",
            json!(0),
        ),
        (
            "def size(path):\n    try:\n        return len(open(path).read())\n    except OSError:\n        return None",
            "def size(path)\n  File.read(path).size\nrescue SystemCallError\n  nil\nend",
            json!(null),
        ),
        (
            "import os\ndef size(path):\n    return os.path.exists(path)",
            "def size(path) = File.exist?(path)",
            json!(false),
        ),
    ] {
        check(|fixture| {
            fixture.writes("files.size", python, ruby);
            let readers = readers(fixture);
            let path = readers.path.as_str();
            let seen = readers.granted.call("size", (path,)).unwrap();
            assert!(seen.is_ok() && seen.notes.is_empty(), "{seen:?}");
            let outcome = readers.ungranted.call("size", (path,)).unwrap();
            assert_eq!(outcome.value(), Some(&value), "{python}: {outcome:?}");
            assert!(names_grant(&outcome, &readers), "{python}: {outcome:?}");
            let own = readers.ungranted.call("size", ("/usr/bin",)).unwrap();
            assert!(own.notes.is_empty(), "a sandbox has it: {own:?}");
        });
    }
}

/// A file that may be read and that the program changes: the grant to give is one to write, not one to read.
#[test]
fn a_file_that_may_only_be_read_names_the_grant_to_write() {
    check(|fixture| {
        fixture.writes(
            "files.append",
            "def append(path, line):\n    with open(path, 'a') as file:\n        file.write(line)\n    return len(open(path).read())",
            "def append(path, line)\n  File.open(path, 'a') { |file| file.write(line) }\n  File.size(path)\nend",
        );
        let readers = readers(fixture);
        let path = readers.path.as_str();
        let writing = format!("--write {path}");
        // Workers of root run as another user.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let runtime = fixture.runtime(&[("write_paths", path)]);
        let writer = runtime.agent("files").guest(fixture.language).build().unwrap();
        let written = writer.call("append", (path, "3\n")).unwrap();
        assert_eq!(written.value(), Some(&json!(6)), "{written:?}");
        for _ in 0..4 {
            let outcome = readers.granted.call("append", (path, "4\n")).unwrap();
            assert_eq!(code(&outcome), "unsupported_capability", "{outcome:?}");
            assert_eq!(metadata(&outcome, "grant"), Some(writing.as_str()), "{outcome:?}");
            assert_eq!(metadata(&outcome, "blame"), Some("world"));
        }
        assert_eq!((fixture.asked(), fixture.failures("files", "append")), (1, 0));
    });
}
