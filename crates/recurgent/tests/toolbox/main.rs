//! Tools from outside, called by real programs in both guests: functions of the embedding program, and commands.
#![cfg(test)]

mod commands;
mod functions;
mod recordings;

use std::fs;
use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{AgentBuilder, Language, Outcome, Runtime};
use serde_json::{Value, json};

/// A runtime with a scripted model.
struct Fixture {
    language: Language,
    model: Arc<Scripted>,
    state: tempfile::TempDir,
}

fn check(behaviour: impl Fn(&Fixture)) {
    for language in Language::ALL {
        let (model, state) = (Arc::new(Scripted::new()), tempfile::tempdir().unwrap());
        behaviour(&Fixture { language, model, state });
    }
}

impl Fixture {
    fn config(&self, settings: &[(&str, &str)]) -> Config {
        let mut config = Config::defaults();
        config.set("state_dir", &self.state.path().display().to_string()).unwrap();
        for (key, value) in settings {
            config.set(key, value).unwrap();
        }
        config
    }

    fn runtime(&self, settings: &[(&str, &str)]) -> Runtime {
        let builder = Runtime::builder(self.config(settings));
        builder.provider(Arc::<Scripted>::clone(&self.model)).build().unwrap()
    }

    fn agent(&self, runtime: &Runtime, role: &str) -> AgentBuilder {
        runtime.agent(role).guest(self.language)
    }

    fn writes(&self, key: &str, python: &str, ruby: &str) {
        let code = match self.language {
            Language::Python => python,
            Language::Ruby => ruby,
        };
        self.model.add(key, json!({"code": code}));
    }

    fn asked(&self) -> usize {
        self.model.asked().len()
    }

    /// The entries of the log, oldest first.
    fn log(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.state.path().join("recurgent.jsonl")).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn code(outcome: &Outcome) -> &str {
    outcome.failure().map_or("ok", |failure| failure.kind.code())
}

fn message(outcome: &Outcome) -> &str {
    outcome.failure().map_or("", |failure| failure.message.as_str())
}
