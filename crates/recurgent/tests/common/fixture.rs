//! A runtime with a scripted model, for behaviour that is the same on both guests.

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Language, Outcome, Runtime};
use serde_json::{Value, json};

/// A guest, a model, and the state of the runtimes that use them.
pub(crate) struct GuestFixture {
    pub(crate) language: Language,
    pub(crate) model: Arc<Scripted>,
    pub(crate) state: tempfile::TempDir,
}

/// Checks a behaviour on each guest.
pub(crate) fn check(behaviour: impl Fn(&GuestFixture)) {
    for language in Language::ALL {
        behaviour(&GuestFixture::new(language));
    }
}

impl GuestFixture {
    pub(crate) fn new(language: Language) -> Self {
        let (model, state) = (Arc::new(Scripted::new()), tempfile::tempdir().unwrap());
        Self { language, model, state }
    }

    pub(crate) fn config(&self, settings: &[(&str, &str)]) -> Config {
        let mut config = Config::defaults();
        config.set("state_dir", &self.state.path().display().to_string()).unwrap();
        for (key, value) in settings {
            config.set(key, value).unwrap();
        }
        config
    }

    pub(crate) fn runtime(&self, settings: &[(&str, &str)]) -> Runtime {
        let builder = Runtime::builder(self.config(settings));
        builder.provider(Arc::<Scripted>::clone(&self.model)).build().unwrap()
    }

    /// Queues a program for the calls of `role.method`.
    pub(crate) fn writes(&self, key: &str, python: &str, ruby: &str) {
        let code = match self.language {
            Language::Python => python,
            Language::Ruby => ruby,
        };
        self.model.add(key, json!({"code": code}));
    }

    /// How often the model was asked.
    pub(crate) fn asked(&self) -> usize {
        self.model.asked().len()
    }

    /// The entries of the log, oldest first.
    pub(crate) fn log(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.state.path().join("recurgent.jsonl")).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The type of the failure, or `ok`.
pub(crate) fn code(outcome: &Outcome) -> &str {
    outcome.failure().map_or("ok", |failure| failure.kind.code())
}
