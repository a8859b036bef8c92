//! The runtime of a measurement, with its own store and log and a model that answers at once.

use std::path::PathBuf;
use std::sync::Arc;

use lifecycle::dialect::Language;
use recurgent::config::Config;
use recurgent::provider::{Provider, Scripted};
use recurgent::worker::Workers;
use recurgent::{Agent, Runtime, RuntimeBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bare::{BareInterpreter, BareMode};
use crate::timing::Effort;

/// The guest that is measured and the number of rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasurementOptions {
    pub(crate) language: Language,
    pub(crate) effort: Effort,
}

impl MeasurementOptions {
    pub(crate) fn rounds(self, full: usize) -> usize {
        self.effort.rounds(full)
    }

    /// One of two texts.
    pub(crate) fn pick<'a>(self, python: &'a str, ruby: &'a str) -> &'a str {
        match self.language {
            Language::Python => python,
            Language::Ruby => ruby,
        }
    }

    /// The program most rows run.
    pub(crate) fn one_line(self) -> &'static str {
        match self.language {
            Language::Python => "result = args[0] + 1",
            Language::Ruby => "args[0] + 1",
        }
    }
}

/// A runtime for one measurement. Its files are removed when it is dropped.
pub(crate) struct Fixture {
    pub(crate) runtime: Runtime,
    pub(crate) model: Arc<Scripted>,
    options: MeasurementOptions,
    /// Last, so that it is dropped after everything that uses it.
    _directory: TempDir,
}

impl Fixture {
    /// A runtime whose model answers every request with one line.
    pub(crate) fn new(options: MeasurementOptions) -> Self {
        Self::with(options, |_| {}, |builder| builder)
    }

    pub(crate) fn with(
        options: MeasurementOptions,
        settings: impl FnOnce(&mut Config),
        parts: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        config.set("state_dir", directory.path().to_str().unwrap()).unwrap();
        config.set("guest", options.language.name()).unwrap();
        settings(&mut config);
        let model = Arc::new(Scripted::new().with("*", options.one_line()));
        let provider = Arc::clone(&model) as Arc<dyn Provider>;
        let runtime = parts(Runtime::builder(config).provider(provider)).build().unwrap();
        Self { runtime, model, options, _directory: directory }
    }

    /// Sets the program and the packages that the model returns for `role.method`.
    pub(crate) fn writes(&self, key: &str, code: &str, dependencies: &Value) {
        self.model.add(key, json!({"code": code, "dependencies": dependencies}));
    }

    pub(crate) fn agent(&self, role: &str) -> Agent {
        self.runtime.agent(role).build().unwrap()
    }

    /// An agent whose program is stored and whose worker is warm.
    pub(crate) fn warm_agent(&self, role: &str) -> Agent {
        let mut agent = self.agent(role);
        (0..3).for_each(|_| call(&mut agent));
        agent
    }

    /// Makes calls that stored programs answer; fails the measurement if a model was asked.
    pub(crate) fn stored<T>(&self, action: impl FnOnce() -> T) -> T {
        let asked = self.model.asked().len();
        let done = action();
        assert_eq!(self.model.asked().len(), asked, "a call was not answered by a stored program");
        done
    }

    pub(crate) fn interpreter(&self) -> PathBuf {
        self.runtime.workers().probe(self.options.language).unwrap().path
    }

    /// The floor in the same interpreter.
    pub(crate) fn bare(&self, mode: BareMode) -> BareInterpreter {
        BareInterpreter::start(&self.interpreter(), self.options.language, mode)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.runtime.config().log_path().unwrap().unwrap()
    }
}

/// Whether programs of a language can be run here, or what to install.
pub(crate) fn probe(language: Language) -> Result<(), String> {
    let workers = Workers::start(&Config::defaults().worker_options()).unwrap();
    workers.probe(language).map(drop)
}

/// How programs are contained here.
pub(crate) fn sandbox() -> &'static str {
    Workers::start(&Config::defaults().worker_options()).unwrap().containment().name()
}

/// A call that must succeed.
pub(crate) fn call(agent: &mut Agent) {
    call_method(agent, "check");
}

pub(crate) fn call_method(agent: &mut Agent, method: &str) -> Value {
    let outcome = agent.call(method, (1,)).unwrap();
    outcome.result.unwrap_or_else(|failure| fail(&failure.to_string()))
}

/// Ends the measurement as broken.
#[expect(clippy::panic, reason = "a benchmark that cannot run stops")]
pub(crate) fn fail(why: &str) -> ! {
    panic!("{why}")
}
