//! An engine of one's own for each test, which ends with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use recurgent::Cancellation;
use recurgent::provider::engine::{
    AnswerForm, EngineAnswer, EngineClient, EngineFailure, EngineLaunch, EngineStatus,
    GenerateRequest,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::common::recurgent;
use crate::tiny::{Entry, TinyFile};

/// Time for something that must happen.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The lines that the writing model puts into a function.
const BODY: &str = "    return 7\n";
/// The program that the scripted model writes, as it writes it.
const PROGRAM: &str = "```python\nresult = 7\n```";

pub(crate) struct EngineFixture {
    dir: TempDir,
}

impl EngineFixture {
    /// With a model that writes a program, one that writes the lines of a function, and one that does not end by itself.
    pub(crate) fn new() -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap() };
        let either: &[(&str, f32)] = &[("a", 30.0), ("b", 30.0)];
        fixture.write("scripted.gguf", &[("\n", &[(PROGRAM, 9.0)]), (PROGRAM, &[("<end>", 9.0)])]);
        fixture.write("writer.gguf", &[("\n", &[(BODY, 9.0)]), (BODY, &[("<end>", 9.0)])]);
        fixture.write("endless.gguf", &[("\n", either), ("a", either), ("b", either)]);
        fixture
    }

    fn write(&self, name: &str, script: &[(&str, &[(&str, f32)])]) {
        let mut model = TinyFile::scripted(script);
        model.set("qwen2.context_length", Entry::Integer(1 << 16));
        std::fs::write(self.path(name), model.bytes()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.path("engine")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("engine.log")).unwrap_or_default()
    }

    pub(crate) fn client(&self) -> EngineClient {
        self.client_with("600")
    }

    /// One whose engine ends after this many idle seconds.
    pub(crate) fn client_with(&self, idle_seconds: &str) -> EngineClient {
        EngineClient::new(EngineLaunch {
            command: Some(PathBuf::from(env!("CARGO_BIN_EXE_recurgent"))),
            folder: Some(self.folder()),
            settings: vec![
                ("engine_idle_seconds", idle_seconds.to_owned()),
                ("engine_threads", "1".to_owned()),
                ("cache_dir", self.path("cache").display().to_string()),
            ],
            ..EngineLaunch::default()
        })
    }

    /// The binary with this engine and these models.
    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = recurgent(self.dir.path(), line);
        command
            .env("RECURGENT_ENGINE_DIR", self.folder())
            .env("RECURGENT_ENGINE_THREADS", "1")
            .env("RECURGENT_MODELS_DIR", self.path("models"))
            .env("RECURGENT_LOCAL_SERVERS", "")
            // The tiny model knows no words: each byte of a prompt is a token.
            .env("RECURGENT_ENGINE_CONTEXT_TOKENS", "65536")
            .env("RECURGENT_PROVIDER_TIMEOUT_SECONDS", "1200");
        command
    }

    /// A request that is answered at once.
    pub(crate) fn short(&self) -> GenerateRequest {
        GenerateRequest { max_tokens: 8, ..self.request("scripted.gguf") }
    }

    /// A request that takes long.
    pub(crate) fn long(&self) -> GenerateRequest {
        GenerateRequest { max_tokens: 7000, temperature: 1.0, ..self.request("endless.gguf") }
    }

    pub(crate) fn request(&self, model: &str) -> GenerateRequest {
        GenerateRequest {
            model: self.path(model),
            system: "s".to_owned(),
            user: "u".to_owned(),
            form: AnswerForm::Text,
            samples: 1,
            temperature: 0.0,
            most_probable_first: false,
            top_p: 1.0,
            seed: 1,
            max_tokens: 8,
        }
    }

    /// Every engine process of this fixture, serving or not.
    fn processes(&self) -> Vec<u32> {
        let argument = format!("engine_dir={}", self.folder().display());
        let is_ours = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
        };
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_ours).collect()
    }

    pub(crate) fn running(&self) -> Option<EngineStatus> {
        self.client().status().unwrap()
    }
}

impl Drop for EngineFixture {
    fn drop(&mut self) {
        // Also one that was started beside another and takes over when that one is killed.
        until("every engine of the test has ended", || {
            let running = self.processes();
            for pid in &running {
                kill(*pid);
            }
            running.is_empty()
        });
    }
}

pub(crate) fn ask(
    client: &EngineClient,
    request: &GenerateRequest,
) -> Result<EngineAnswer, EngineFailure> {
    client.generate(request, PATIENCE, &Cancellation::default())
}

#[track_caller]
pub(crate) fn check_program(answer: &EngineAnswer) {
    assert_eq!(answer.texts[0].text, PROGRAM, "{answer:?}");
}

/// Ends a process and waits until it is gone.
pub(crate) fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = kill_process(pid, Signal::KILL);
    until("the process has ended", || !is_alive(pid));
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

pub(crate) fn has_ended(pid: u32) -> bool {
    !is_alive(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap())
}

/// A zombie that is not reaped yet has ended.
fn is_alive(pid: Pid) -> bool {
    let status = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let stat = std::fs::read_to_string(Path::new(&status)).unwrap_or_default();
    test_kill_process(pid).is_ok() && !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z")
}

#[track_caller]
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
