//! The runtime: what every agent of a process shares.

use std::path::PathBuf;
use std::sync::Arc;

use lifecycle::artifact::ArtifactKey;
use lifecycle::call::StoreFault;
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::dialect::Language;
use lifecycle::example::Example;
use lifecycle::request::{Method, NameFault, Role};
use lifecycle::tool::Tool;
use thiserror::Error;

use crate::agent::AgentBuilder;
use crate::config::{Config, ConfigFault};
use crate::environment::{EnvironmentCache, Environments, Stored};
use crate::inspection_cache::InspectionCache;
use crate::observe::{Log, Observer, Observers};
use crate::pinned_tools::PinnedTools;
use crate::preparation::Preparation;
use crate::provider::{self, Provider, ProviderFault, Recorder};
use crate::session_queue::{SessionQueue, SessionQueues};
use crate::single_flight::SingleFlight;
use crate::store::Store;
use crate::store::sqlite::SqliteStore;
use crate::toolbox::{Functions, ToolRecorder, Toolbox, ToolboxFault, Toolboxes, command_tools};
use crate::trial::{TrialRunner, Trials};
use crate::worker::{Layers, WorkerGuest, Workers};

/// Why a runtime could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupFault {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// No provider.
    #[error(transparent)]
    Provider(#[from] ProviderFault),
    /// No store.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// A tool from outside cannot be used.
    #[error(transparent)]
    Toolbox(#[from] ToolboxFault),
    /// The directory of pinned tools cannot be used.
    #[error("the tools in tools_dir cannot be used: {0}")]
    Tools(String),
    /// No threads to look after workers.
    #[error("cannot look after workers: {0}; free some threads or processes")]
    Workers(String),
}

/// What every agent of a process shares. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Runtime(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    /// First, so that it ends while there still are workers.
    trials: Trials,
    provider: Arc<dyn Provider>,
    store: Arc<dyn Store>,
    workers: Arc<Workers>,
    environments: Arc<Environments>,
    observers: Observers,
    log: Option<Log>,
    sessions: SessionQueues,
    pinned_tools: PinnedTools,
    inspection_cache: InspectionCache,
    single_flight: SingleFlight,
    toolboxes: Toolboxes,
}

impl Runtime {
    /// Configured by file and environment.
    pub fn from_env() -> Result<Self, SetupFault> {
        Self::builder(Config::load()?).build()
    }

    /// Configured by hand.
    pub fn builder(config: Config) -> RuntimeBuilder {
        RuntimeBuilder {
            config,
            provider: None,
            store: None,
            record: None,
            observers: Observers::default(),
            layers: None,
            toolboxes: Vec::new(),
        }
    }

    /// The builder of an agent with a role.
    pub fn agent(&self, role: impl TryInto<Role, Error: Into<NameFault>>) -> AgentBuilder {
        AgentBuilder::new(self.clone(), role)
    }

    /// An agent whose environment is built before it is needed.
    pub fn prepare(&self, role: impl TryInto<Role, Error: Into<NameFault>>) -> Preparation {
        Preparation::new(self, role)
    }

    /// Makes an environment anew, with the versions that are the best today. It is built beside the one it
    /// replaces: what runs in that is not disturbed, and a build that fails changes nothing.
    #[doc(hidden)]
    pub fn refresh(&self, stored: &Stored) -> Preparation {
        Preparation::anew(self, stored)
    }

    /// The effective settings.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// What outlives calls.
    pub fn store(&self) -> &dyn Store {
        self.0.store.as_ref()
    }

    /// The workers, for inspection.
    #[doc(hidden)]
    pub fn workers(&self) -> &Workers {
        &self.0.workers
    }

    /// Environments on disk, for inspection and removal; `None`: there is nowhere to keep any.
    #[doc(hidden)]
    pub fn cache(&self) -> Option<EnvironmentCache> {
        self.0.environments.cache()
    }

    /// Waits until every new version that a call of this runtime left for trial has had it. They are held
    /// out of band, after the reply.
    pub fn wait_for_trials(&self) {
        self.0.trials.wait();
    }

    pub(crate) fn trials(&self) -> &Trials {
        &self.0.trials
    }

    pub(crate) fn inspection_cache(&self) -> &InspectionCache {
        &self.0.inspection_cache
    }

    pub(crate) fn single_flight(&self) -> &SingleFlight {
        &self.0.single_flight
    }

    pub(crate) fn environments(&self) -> &Environments {
        &self.0.environments
    }

    /// The provider that writes programs.
    #[doc(hidden)]
    pub fn provider(&self) -> &dyn Provider {
        self.0.provider.as_ref()
    }

    /// The functions of the embedding program that programs may call: `tool("orders").search(…)`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use recurgent::schemars::{self, JsonSchema};
    /// use recurgent::{Runtime, config::Config};
    /// use serde::Deserialize;
    ///
    /// /// Finds orders by words.
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Search {
    ///     words: String,
    /// }
    ///
    /// # let state = tempfile::tempdir()?;
    /// let mut config = Config::defaults();
    /// # config.set("state_dir", &state.path().display().to_string())?;
    /// let runtime = Runtime::builder(config)
    /// #     .provider(std::sync::Arc::new(recurgent::provider::Scripted::default()))
    /// #     .store(std::sync::Arc::new(recurgent::store::sqlite::SqliteStore::in_memory()?))
    ///     .build()?;
    /// runtime.toolbox().function("orders.search", |search: Search| {
    ///     Ok::<_, String>(vec![format!("order about {}", search.words)])
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn toolbox(&self) -> &Functions {
        self.0.toolboxes.functions()
    }

    /// Every outside tool, for inspection.
    #[doc(hidden)]
    pub fn outside_tools(&self) -> Vec<Arc<dyn Toolbox>> {
        self.0.toolboxes.all()
    }

    pub(crate) fn toolboxes(&self) -> &Toolboxes {
        &self.0.toolboxes
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.0.observers
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.0.log.as_ref()
    }

    pub(crate) fn guest(&self, language: Language) -> WorkerGuest {
        self.0.workers.guest(language)
    }

    /// The queue of a session's calls.
    pub(crate) fn session_queue(&self, session: &str) -> Arc<SessionQueue> {
        self.0.sessions.of(session)
    }

    /// Programs that are read from a directory.
    pub(crate) fn pinned_tools(&self) -> &PinnedTools {
        &self.0.pinned_tools
    }

    /// A tool by name: of the store, or of the directory of pinned tools.
    pub(crate) fn registered_tool(&self, name: &Role) -> Result<Option<Tool>, StoreFault> {
        let found = self.store().tools(Some(name), 1)?.into_iter().next();
        Ok(found.map(|known| known.tool).or_else(|| self.pinned_tools().tool(name).cloned()))
    }

    /// What people taught about a method: here, and in `tools_dir` about calls that nothing was taught of here.
    pub(crate) fn taught_examples(
        &self,
        role: &Role,
        method: &Method,
    ) -> Result<Vec<Example>, StoreFault> {
        let mut taught = self.store().examples(role, method)?;
        add_examples(&mut taught, self.pinned_tools().examples(role, method));
        Ok(taught)
    }

    /// The same, and the examples of the contract that the method's programs were made under.
    pub(crate) fn examples_for(
        &self,
        key: &ArtifactKey,
        contract: Option<&Contract>,
    ) -> Result<Vec<Example>, StoreFault> {
        let mut examples = self.taught_examples(&key.role, &key.method)?;
        let registered = self.registered_tool(&key.role)?.and_then(|tool| tool.contract);
        let serves = |it: &&Contract| {
            let own = &key.contract_fingerprint;
            *own == it.fingerprint() || *own == Fingerprint::none()
        };
        for contract in contract.into_iter().chain(&registered).filter(serves) {
            add_examples(&mut examples, &contract.examples());
        }
        Ok(examples)
    }
}

/// Adds examples of calls that none of the known ones is of.
fn add_examples(known: &mut Vec<Example>, more: &[Example]) {
    for example in more {
        if known.iter().all(|it| it.inputs != example.inputs) {
            known.push(example.clone());
        }
    }
}

/// The builder of a runtime.
#[derive(Debug)]
pub struct RuntimeBuilder {
    config: Config,
    provider: Option<Arc<dyn Provider>>,
    store: Option<Arc<dyn Store>>,
    record: Option<PathBuf>,
    observers: Observers,
    layers: Option<Layers>,
    toolboxes: Vec<Arc<dyn Toolbox>>,
}

impl RuntimeBuilder {
    /// Layers of containment to be used if they can be; all, except in tests of each.
    #[doc(hidden)]
    #[must_use]
    pub fn layers(mut self, layers: Layers) -> Self {
        self.layers = Some(layers);
        self
    }

    /// Writes programs, instead of the provider the configuration names.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Keeps what outlives calls, instead of the store in the state directory.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Adds a tool from outside. Functions are added to a runtime: [`Runtime::toolbox`].
    #[must_use]
    pub fn toolbox(mut self, toolbox: Arc<dyn Toolbox>) -> Self {
        self.toolboxes.push(toolbox);
        self
    }

    /// Writes every answer of a model, and of outside tools, to a new recording.
    #[must_use]
    pub fn record(mut self, path: PathBuf) -> Self {
        self.record = Some(path);
        self
    }

    /// Adds an observer of calls.
    #[must_use]
    pub fn observer(mut self, observer: Box<dyn Observer>) -> Self {
        self.observers.add(observer);
        self
    }

    /// Opens the store, makes the provider; starts no process yet.
    pub fn build(self) -> Result<Runtime, SetupFault> {
        let Self { config, provider, store, record, observers, layers, mut toolboxes } = self;
        config.check_grants()?;
        let mut provider = match provider {
            Some(provider) => provider,
            None => provider::make(&config.provider_options()?)?,
        };
        let replayed = provider.recorded_tools();
        let mut tool_recorder = None;
        if let Some(path) = record {
            let model = config.agent_options().model;
            let recorder = Recorder::new(provider, model.as_str(), &path)?;
            tool_recorder = Some(ToolRecorder::new(recorder.file()));
            provider = Arc::new(recorder);
        }
        let pinned_tools = match config.tools_dir() {
            Some(directory) => PinnedTools::load(directory).map_err(SetupFault::Tools)?,
            None => PinnedTools::default(),
        };
        let store: Arc<dyn Store> = match store {
            Some(store) => store,
            None => Arc::new(SqliteStore::open(&config.store_path()?)?),
        };
        let locks = store.locks();
        let mut options = config.worker_options();
        options.layers = layers.unwrap_or(options.layers);
        let workers =
            Workers::start(&options).map_err(|error| SetupFault::Workers(error.to_string()))?;
        let workers = Arc::new(workers);
        let environments = Arc::new(Environments::new(config.environment_options()));
        let trials = Trials::new(TrialRunner {
            store: Arc::clone(&store),
            workers: Arc::clone(&workers),
            environments: Arc::clone(&environments),
        });
        toolboxes.extend(command_tools(&config)?);
        let toolboxes = Toolboxes::new(toolboxes, tool_recorder, replayed)?;
        let log = config.log_path()?.map(|path| Log::new(path, config.log_limits()));
        Ok(Runtime(Arc::new(Shared {
            config,
            trials,
            provider,
            store,
            workers,
            environments,
            observers,
            log,
            sessions: SessionQueues::new(locks.clone()),
            pinned_tools,
            inspection_cache: InspectionCache::default(),
            single_flight: SingleFlight::new(locks),
            toolboxes,
        })))
    }
}
