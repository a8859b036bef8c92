//! A model, and a state that outlives runtimes.

use std::path::Path;
use std::sync::Arc;

use lifecycle::artifact::{ArtifactKey, Trigger};
use lifecycle::contract::Fingerprint;
use lifecycle::request::{Method, Role};
use lifecycle::standing::Standing;
use recurgent::config::Config;
use recurgent::provider::{Provider, Scripted};
use recurgent::{Agent, Arguments, Language, Outcome, Runtime};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Checks one behaviour on both guests.
pub(crate) fn check(behaviour: impl Fn(&mut KeepingFixture)) {
    for language in Language::ALL {
        behaviour(&mut KeepingFixture::new(language));
    }
}

/// A model, and a state that outlives runtimes.
pub(crate) struct KeepingFixture {
    pub(crate) language: Language,
    pub(crate) model: Arc<Scripted>,
    pub(crate) state: TempDir,
    pub(crate) runtime: Option<Runtime>,
    pub(crate) mode: &'static str,
}

impl KeepingFixture {
    pub(crate) fn new(language: Language) -> Self {
        let state = tempfile::tempdir().unwrap();
        Self { language, model: Arc::new(Scripted::new()), state, runtime: None, mode: "shadow" }
    }

    pub(crate) fn runtime(&mut self) -> &Runtime {
        let (state, model, mode) = (self.state.path(), &self.model, self.mode);
        self.runtime.get_or_insert_with(|| open(state, Arc::<Scripted>::clone(model), mode))
    }

    /// Ends the runtime; the next one stands for another process.
    pub(crate) fn restart(&mut self) {
        self.runtime = None;
    }

    /// What the model writes next, in the language at hand.
    pub(crate) fn writes(&self, key: &str, python: &str, ruby: &str) {
        let code = match self.language {
            Language::Python => python,
            Language::Ruby => ruby,
        };
        self.model.add(key, json!({"code": code}));
    }

    /// A program that forgot that it may be asked to divide by 0.
    pub(crate) fn writes_half(&self) {
        self.writes(
            "c.half",
            "result = [args[0] // n for n in args[1:] if n][0]",
            "args.drop(1).reject(&:zero?).map { |n| args[0] / n }.fetch(0)",
        );
    }

    /// The same program, repaired.
    pub(crate) fn writes_half_repaired(&self) {
        self.writes(
            "c.half",
            "result = None if args[1] == 0 else args[0] // args[1]",
            "args[1] == 0 ? nil : args[0] / args[1]",
        );
    }

    pub(crate) fn agent(&mut self, role: &str) -> Agent {
        let language = self.language;
        self.runtime().agent(role).guest(language).build().unwrap()
    }

    pub(crate) fn asked(&self) -> usize {
        self.model.asked().len()
    }

    /// A call that ends well, the model having been asked so often, and everything tried that is to be.
    pub(crate) fn call(
        &mut self,
        agent: &Agent,
        method: &str,
        args: &[Value],
        asked: usize,
    ) -> Value {
        let outcome = self.try_call(agent, method, args, asked);
        outcome.value().unwrap_or_else(|| panic!("{outcome:?}")).clone()
    }

    pub(crate) fn try_call(
        &mut self,
        agent: &Agent,
        method: &str,
        args: &[Value],
        asked: usize,
    ) -> Outcome {
        let before = self.asked();
        let outcome = agent
            .call(method, Arguments { args: args.to_vec(), kwargs: serde_json::Map::new() })
            .unwrap();
        assert_eq!(self.asked() - before, asked, "{method}{args:?} in {}", self.language);
        self.runtime().wait_for_trials();
        outcome
    }

    pub(crate) fn key(&self, role: &str, method: &str) -> ArtifactKey {
        ArtifactKey {
            role: Role::parse(role).unwrap(),
            method: Method::parse(method).unwrap(),
            language: self.language,
            contract_fingerprint: Fingerprint::none(),
        }
    }

    /// Versions, newest first: why they were written, how they stand, whether they run.
    pub(crate) fn versions(&mut self, role: &str, method: &str) -> Vec<(Trigger, Standing, bool)> {
        let key = self.key(role, method);
        let versions = self.runtime().store().versions(&key).unwrap();
        let shown = |v: &recurgent::store::catalog::StoredVersion| {
            (v.trigger, v.artifact.track_record.standing, v.is_current)
        };
        versions.iter().map(shown).collect()
    }
}

pub(crate) fn open(state: &Path, provider: Arc<dyn Provider>, standing_mode: &str) -> Runtime {
    let mut config = Config::defaults();
    config.set("state_dir", &state.display().to_string()).unwrap();
    config.set("standing_mode", standing_mode).unwrap();
    Runtime::builder(config).provider(provider).build().unwrap()
}

/// Every entry, oldest first.
pub(crate) fn log(fixture: &KeepingFixture) -> Vec<Value> {
    let text = std::fs::read_to_string(fixture.state.path().join("recurgent.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
