//! Looking at what was done: environments on disk, calls in the log.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails"
)]

mod environments;
mod log;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A machine of one's own.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("script.json"), script).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recurgent"));
        command
            .args(line)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("RECURGENT_STATE_DIR", self.path("state"))
            .env("RECURGENT_CACHE_DIR", self.path("cache"))
            .env("RECURGENT_PROVIDER", "scripted:script.json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.path("source").exists() {
            let index = format!("file://{}/simple/", self.path("source").display());
            command
                .env("RECURGENT_SOURCE_MODE", "internal_only")
                .env("RECURGENT_PYTHON_INDEXES", index);
        }
        command
    }

    fn run(&self, line: &[&str]) -> Ran {
        Ran::of(&self.command(line).output().unwrap())
    }

    /// What it answers with `--json`, and how it exits.
    fn json(&self, line: &[&str]) -> (Value, i32) {
        let ran = self.run(&[line, &["--json"]].concat());
        let answer = serde_json::from_str(&ran.stdout);
        (answer.unwrap_or_else(|error| panic!("{error}: {ran:?}")), ran.exit)
    }
}

/// What came of a command line.
#[derive(Debug)]
struct Ran {
    exit: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        Self {
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }
}

/// A package index made of files.
fn build_source(place: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance/packages/wheels.py");
    let made = Command::new("python3").arg(script).arg(place).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
