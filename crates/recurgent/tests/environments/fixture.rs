//! The runtime of a test, with its own cache, store and log and a scripted model.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lifecycle::event::{Event, EventKind};
use recurgent::config::Config;
use recurgent::observe::Observer;
use recurgent::provider::Scripted;
use recurgent::store::sqlite::SqliteStore;
use recurgent::worker::Layers;
use recurgent::{Agent, Failure, Language, Outcome, Runtime};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What tests share, so that it is fetched once: uv, if this machine has none, and what uv downloaded.
fn shared() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("environments")
}

/// Everything that one test needs; its files are removed with it.
pub(crate) struct EnvironmentFixture {
    pub(crate) language: Language,
    pub(crate) directory: TempDir,
    pub(crate) config: Config,
    /// What contains programs and package managers.
    pub(crate) layers: Layers,
    pub(crate) model: Arc<Scripted>,
    pub(crate) progress: Arc<Mutex<Vec<String>>>,
}

impl EnvironmentFixture {
    pub(crate) fn new(language: Language) -> Self {
        let shared = shared();
        std::fs::create_dir_all(&shared).unwrap();
        let directory = tempfile::tempdir_in(&shared).unwrap();
        let cache = directory.path().join("cache");
        std::fs::create_dir(&cache).unwrap();
        for name in ["uv", "tools"] {
            std::fs::create_dir_all(shared.join(name)).unwrap();
            std::os::unix::fs::symlink(shared.join(name), cache.join(name)).unwrap();
        }
        let mut fixture = Self {
            language,
            config: Config::defaults(),
            layers: Layers::ALL,
            model: Arc::new(Scripted::new()),
            progress: Arc::default(),
            directory,
        };
        for name in ["cache", "state", "scratch"] {
            std::fs::create_dir_all(fixture.path(name)).unwrap();
        }
        std::fs::write(fixture.path("owner"), std::process::id().to_string()).unwrap();
        let log = fixture.path("log.jsonl");
        fixture.set("guest", language.name());
        fixture.set("cache_dir", cache.to_str().unwrap());
        fixture.set("state_dir", fixture.path("state").to_str().unwrap());
        fixture.set("log", log.to_str().unwrap());
        // No retries unless a test sets them, so that a test sees the first failure.
        fixture.set("execution_repair_budget", "0");
        fixture.set("guardrail_recovery_budget", "0");
        fixture.set("max_generation_attempts", "1");
        fixture
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.config.set(key, value).unwrap();
    }

    /// A directory that every user may write to: under root, programs run as a user that owns nothing.
    pub(crate) fn open_directory(&self, name: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Downloads of uv that no other test shares, so that they may be damaged or removed. Gives their directory.
    pub(crate) fn own_downloads(&self) -> PathBuf {
        let downloads = self.path("cache").join("uv");
        std::fs::remove_file(&downloads).unwrap();
        std::fs::create_dir(&downloads).unwrap();
        downloads
    }

    /// Where environments of its language are.
    pub(crate) fn cache(&self) -> PathBuf {
        self.path("cache").join(format!("{}-envs", self.language.name()))
    }

    /// Environments there are, ready or not.
    pub(crate) fn environments(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.cache()) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    }

    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::builder(self.config.clone())
            .provider(Arc::clone(&self.model) as Arc<dyn recurgent::provider::Provider>)
            .store(Arc::new(SqliteStore::in_memory().unwrap()))
            .layers(self.layers)
            .observer(Box::new(ProgressObserver(Arc::clone(&self.progress))))
            .build()
            .unwrap()
    }

    /// The model writes this next, for `tester.METHOD`.
    pub(crate) fn model_writes(&self, method: &str, code: &str, dependencies: &Value) {
        let payload = json!({"code": code, "dependencies": dependencies});
        self.model.add(&format!("tester.{method}"), payload);
    }

    /// What an agent of a new runtime answers, once.
    pub(crate) fn run_program(&self, code: &str, dependencies: &Value) -> Outcome {
        self.model_writes("check", code, dependencies);
        let runtime = self.runtime();
        let agent = runtime.agent("tester").build().unwrap();
        agent.call("check", ()).unwrap()
    }

    /// What the log says of the last call.
    pub(crate) fn last_log_entry(&self) -> Value {
        let log = std::fs::read_to_string(self.path("log.jsonl")).unwrap();
        serde_json::from_str(log.lines().last().unwrap()).unwrap()
    }

    /// The steps of preparations that observers were notified of since the last call of this.
    pub(crate) fn progress(&self) -> Vec<String> {
        std::mem::take(&mut self.progress.lock().unwrap())
    }
}

struct ProgressObserver(Arc<Mutex<Vec<String>>>);

impl Observer for ProgressObserver {
    fn event(&self, event: &Event) {
        if let EventKind::Preparing { what } = &event.kind {
            self.0.lock().unwrap().push(what.clone());
        }
    }
}

pub(crate) fn call(agent: &mut Agent, method: &str) -> Outcome {
    agent.call(method, ()).unwrap()
}

pub(crate) fn value(outcome: &Outcome) -> &Value {
    outcome.result.as_ref().unwrap_or_else(|failure| panic!("{failure:#?}"))
}

pub(crate) fn failure(outcome: &Outcome) -> &Failure {
    outcome.result.as_ref().expect_err("a failure was expected")
}

/// A failure's type, whether it may pass, and one of its data.
pub(crate) fn failure_facts<'a>(
    outcome: &'a Outcome,
    key: &str,
) -> (&'a str, bool, Option<&'a str>) {
    let failure = failure(outcome);
    let data = failure.metadata.get(key).and_then(Value::as_str);
    (failure.kind.code(), failure.kind.retriable(), data)
}
