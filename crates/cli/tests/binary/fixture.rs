//! A machine of one's own for each test, and what came of a command line there.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::recurgent;

/// Its state, its home, its cache and its script go with it.
pub(crate) struct CliFixture {
    dir: TempDir,
}

impl CliFixture {
    /// One where `script` is asked instead of a model.
    pub(crate) fn new(script: &str) -> Self {
        let cli = Self { dir: tempfile::tempdir().unwrap() };
        cli.write("script.json", script);
        cli
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Packages come from files of its own, from now on.
    pub(crate) fn build_source(&self) {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/src/packages/wheels.py");
        let made = Command::new("python3").arg(script).arg(self.path("source")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = recurgent(self.dir.path(), line);
        command
            .env("RECURGENT_PROVIDER", "scripted:script.json")
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

    pub(crate) fn run(&self, line: &[&str]) -> CommandResult {
        self.run_in("state", line)
    }

    /// With another store.
    pub(crate) fn run_in(&self, state: &str, line: &[&str]) -> CommandResult {
        let mut command = self.command(line);
        command.env("RECURGENT_STATE_DIR", self.path(state));
        CommandResult::of(line, &command.output().unwrap())
    }

    pub(crate) fn run_with_stdin(&self, line: &[&str], input: &str) -> CommandResult {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        CommandResult::of(line, &child.wait_with_output().unwrap())
    }

    /// What it answers with `--json`.
    pub(crate) fn json(&self, line: &[&str]) -> Value {
        self.answer(line).0
    }

    /// The same, and how it exits.
    pub(crate) fn answer(&self, line: &[&str]) -> (Value, i32) {
        let ran = self.run(&[line, &["--json"]].concat());
        (ran.json(), ran.exit)
    }
}

/// What came of a command line.
#[derive(Debug)]
pub(crate) struct CommandResult {
    #[expect(dead_code, reason = "shown when a check fails")]
    line: String,
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandResult {
    pub(crate) fn of(line: &[&str], output: &Output) -> Self {
        let mut line = line.join(" ");
        line.truncate(100);
        let ran = Self {
            line,
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        };
        for text in [&ran.stdout, &ran.stderr] {
            assert!(!text.contains('\u{1b}'), "colour without a terminal: {ran:?}");
            assert!(!text.contains("panicked"), "{ran:?}");
        }
        ran
    }

    #[track_caller]
    pub(crate) fn exits(&self, exit: i32) -> &Self {
        assert_eq!(self.exit, exit, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn prints(&self, stdout: &str) -> &Self {
        assert_eq!(self.stdout, stdout, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn stderr_contains(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "{part:?} is missing from standard error: {self:?}");
        self
    }

    /// Standard output as the one JSON object it must be.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        let value: Value = serde_json::from_str(&self.stdout).expect(&self.stdout);
        assert!(value.is_object(), "{self:?}");
        value
    }
}
