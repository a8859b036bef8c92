//! What can be tuned: one table of keys, three layers (file, environment, flags), later wins.
//!
//! This is the only module that reads the process environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;
use lifecycle::attempt::Budgets;
use lifecycle::dialect::Language;
use lifecycle::request::Allowance;
use thiserror::Error;

use crate::worker::WorkerOptions;

/// Environment variables that set a key are named with this and the key in capitals.
const PREFIX: &str = "RECURGENT_";

/// The store's file in the state directory.
const STORE_FILE: &str = "recurgent.sqlite";

/// What a key's text must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Flag,
    Count { least: u64 },
    Seconds,
    Guest,
}

/// One thing that can be tuned.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name in the file; in capitals after `RECURGENT_` in the environment.
    pub name: &'static str,
    /// What it does.
    pub help: &'static str,
    kind: Kind,
    default: &'static str,
}

impl Key {
    /// Its value when nobody sets it; empty: worked out at load time.
    pub fn default(&self) -> &'static str {
        self.default
    }
}

/// Every key, in the order `recurgent config` prints them. An empty default is worked out at load time.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("provider",                     Kind::Text,                "auto",     "who writes programs: auto, scripted:FILE or replay:FILE"),
    key("model",                        Kind::Text,                "auto",     "which model to ask"),
    key("guest",                        Kind::Guest,               "python",   "the language programs are written in: python or ruby"),
    key("max_generation_attempts",      Kind::Count { least: 1 },  "2",        "tries a model gets to return a usable program"),
    key("guardrail_recovery_budget",    Kind::Count { least: 0 },  "1",        "retries after a program broke a rule"),
    key("execution_repair_budget",      Kind::Count { least: 0 },  "1",        "retries after a program failed while running"),
    key("fresh_outcome_repair_budget",  Kind::Count { least: 0 },  "1",        "retries after an answer that will not do"),
    key("provider_timeout_seconds",     Kind::Seconds,             "120",      "time a model may take to answer"),
    key("execution_timeout_seconds",    Kind::Seconds,             "30",       "time a program may take, nested calls aside"),
    key("max_delegation_depth",         Kind::Count { least: 0 },  "8",        "deepest level of delegation"),
    key("max_model_calls",              Kind::Count { least: 0 },  "64",       "model calls one call tree may make"),
    key("asks_per_call",                Kind::Count { least: 0 },  "10000",    "questions one program may ask the host"),
    key("max_argument_bytes",           Kind::Count { least: 1 },  "16777216", "largest arguments of one call, as JSON"),
    key("max_running_workers",          Kind::Count { least: 0 },  "0",        "programs running at once; 0: twice the cores"),
    key("state_dir",                    Kind::Text,                "",         "where the store and the log live"),
    key("log",                          Kind::Text,                "",         "the log file, or off"),
    key("debug",                        Kind::Flag,                "false",    "log prompts and memory too"),
    key("python",                       Kind::Text,                "",         "the Python to run; found on PATH when empty"),
    key("ruby",                         Kind::Text,                "",         "the Ruby to run; found on PATH when empty"),
];

const fn key(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Key {
    Key { name, help, kind, default }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Built in.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag, or the embedding program.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigFault {
    /// Not one of [`KEYS`].
    #[error("unknown setting `{key}` ({origin}){}", suggest(.suggestion.as_deref()))]
    Unknown {
        /// As written.
        key: String,
        /// Where.
        origin: String,
        /// The nearest known key.
        suggestion: Option<String>,
    },
    /// Its text is not what it must be.
    #[error("`{key}` ({origin}) must be {expected}, not {found:?}")]
    Invalid {
        /// Which.
        key: &'static str,
        /// Where.
        origin: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The file cannot be read as TOML.
    #[error("cannot read {path}: {problem}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// No home directory to keep anything in.
    #[error("no home directory was found; set RECURGENT_STATE_DIR to a directory you can write to")]
    Homeless,
}

fn suggest(suggestion: Option<&str>) -> String {
    match suggestion {
        Some(name) => format!("; did you mean `{name}`?"),
        None => "; `recurgent config` lists all settings".to_owned(),
    }
}

/// The effective settings.
#[derive(Debug, Clone)]
pub struct Config {
    values: BTreeMap<&'static str, (String, Source)>,
    search_path: OsString,
    scratch: PathBuf,
    state_home: Option<PathBuf>,
    file: Option<PathBuf>,
}

impl Config {
    /// File, then environment.
    pub fn load() -> Result<Self, ConfigFault> {
        let mut config = Self::defaults();
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the module that reads the environment"
        )]
        let variables: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let strategy = etcetera::choose_base_strategy().ok();
        config.state_home = strategy.as_ref().and_then(BaseStrategy::state_dir);
        let named = variables
            .iter()
            .find(|(name, _)| name == "RECURGENT_CONFIG")
            .map(|(_, path)| PathBuf::from(path));
        let file = named
            .or_else(|| strategy.map(|s| s.config_dir().join("recurgent").join("config.toml")));
        if let Some(file) = file.as_deref().filter(|file| file.exists()) {
            config.read_file(file)?;
        }
        config.file = file;
        config.read_environment(&variables)?;
        Ok(config)
    }

    /// Built-in values only, plus the search path; for embedding programs that set everything themselves.
    pub fn defaults() -> Self {
        let values =
            KEYS.iter().map(|key| (key.name, (key.default.to_owned(), Source::Default))).collect();
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the module that reads the environment"
        )]
        let search_path = std::env::var_os("PATH").unwrap_or_default();
        Self { values, search_path, scratch: std::env::temp_dir(), state_home: None, file: None }
    }

    /// Sets one key, leaving all others as they are.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigFault> {
        self.put(name, value.to_owned(), Source::Flag)
    }

    /// Keys with their values and where each came from.
    pub fn entries(&self) -> impl Iterator<Item = (&'static Key, &str, &Source)> {
        KEYS.iter().filter_map(|key| {
            self.values.get(key.name).map(|(value, source)| (key, value.as_str(), source))
        })
    }

    fn put(&mut self, name: &str, value: String, source: Source) -> Result<(), ConfigFault> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            return Err(unknown(name, &source));
        };
        check(key, &value, &source)?;
        self.values.insert(key.name, (value, source));
        Ok(())
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigFault> {
        let fault = |problem: String| ConfigFault::File { path: path.to_owned(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| fault(error.to_string()))?;
        for (name, value) in table {
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(flag) => flag.to_string(),
                toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => {
                    return Err(fault(format!("`{name}` must be a text, a number or true/false")));
                }
            };
            self.put(&name, text, Source::File(path.to_owned()))?;
        }
        Ok(())
    }

    fn read_environment(&mut self, variables: &[(String, String)]) -> Result<(), ConfigFault> {
        for (variable, value) in variables {
            let Some(name) = variable.strip_prefix(PREFIX).filter(|name| *name != "CONFIG") else {
                continue;
            };
            self.put(&name.to_lowercase(), value.clone(), Source::Environment(variable.clone()))?;
        }
        Ok(())
    }

    fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", |(value, _)| value)
    }

    /// Checked when it was put; a number that cannot be read is the least one.
    fn count<T: TryFrom<u64> + Default>(&self, name: &str) -> T {
        self.text(name).parse::<u64>().ok().and_then(|n| T::try_from(n).ok()).unwrap_or_default()
    }

    fn seconds(&self, name: &str) -> Duration {
        let seconds: f64 = self.text(name).parse().unwrap_or(1.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.text(name);
        (!text.is_empty()).then(|| PathBuf::from(text))
    }

    /// `auto`, `scripted:FILE` or `replay:FILE`.
    pub fn provider(&self) -> &str {
        self.text("provider")
    }

    /// Where the store and the log live.
    pub fn state_dir(&self) -> Result<PathBuf, ConfigFault> {
        self.path("state_dir")
            .or_else(|| self.state_home.as_ref().map(|home| home.join("recurgent")))
            .ok_or(ConfigFault::Homeless)
    }

    /// The file that was looked for, whether there is one or not.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The embedded store's file.
    pub fn store_path(&self) -> Result<PathBuf, ConfigFault> {
        Ok(self.state_dir()?.join(STORE_FILE))
    }

    /// The log file; `None`: off.
    pub fn log_path(&self) -> Result<Option<PathBuf>, ConfigFault> {
        match self.text("log") {
            "off" => Ok(None),
            "" => Ok(Some(self.state_dir()?.join("recurgent.jsonl"))),
            path => Ok(Some(PathBuf::from(path))),
        }
    }

    /// How workers are made and bounded.
    pub fn worker_options(&self) -> WorkerOptions {
        let defaults = WorkerOptions::new(self.search_path.clone(), self.scratch.clone());
        let max_running = match self.count("max_running_workers") {
            0 => defaults.max_running,
            count => count,
        };
        WorkerOptions {
            python: self.path("python"),
            ruby: self.path("ruby"),
            max_running,
            ..defaults
        }
    }

    /// Largest arguments of one call, as JSON.
    pub fn max_argument_bytes(&self) -> usize {
        self.count("max_argument_bytes")
    }

    /// What agents start with.
    pub fn agent_options(&self) -> AgentOptions {
        AgentOptions {
            model: self.text("model").to_owned(),
            language: self.text("guest").parse().unwrap_or(Language::Python),
            budgets: Budgets {
                generation: self.count::<u32>("max_generation_attempts").saturating_sub(1),
                guardrail: self.count("guardrail_recovery_budget"),
                execution: self.count("execution_repair_budget"),
                outcome: self.count("fresh_outcome_repair_budget"),
            },
            provider_timeout: self.seconds("provider_timeout_seconds"),
            execution_timeout: self.seconds("execution_timeout_seconds"),
            allowance: Allowance {
                depth: self.count("max_delegation_depth"),
                model_calls: self.count("max_model_calls"),
                asks_per_call: self.count("asks_per_call"),
            },
            debug: self.text("debug") == "true",
        }
    }
}

/// What one agent runs with. A delegated child inherits all of it and can only narrow its allowance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentOptions {
    /// Which model to ask.
    pub model: String,
    /// The language its programs are written in.
    pub language: Language,
    /// Retries per lane.
    pub budgets: Budgets,
    /// Time a model may take.
    pub provider_timeout: Duration,
    /// Time a program may take.
    pub execution_timeout: Duration,
    /// What a call tree may use.
    pub allowance: Allowance,
    /// Log prompts and memory too.
    pub debug: bool,
}

/// Keys that can also be set per agent, by `AgentBuilder::option` and by `delegate` in a program.
pub const AGENT_KEYS: &[&str] = &[
    "model",
    "guest",
    "max_generation_attempts",
    "guardrail_recovery_budget",
    "execution_repair_budget",
    "fresh_outcome_repair_budget",
    "provider_timeout_seconds",
    "execution_timeout_seconds",
    "max_delegation_depth",
    "max_model_calls",
    "asks_per_call",
    "debug",
];

impl AgentOptions {
    /// Sets one option by its key. An allowance can be narrowed, never widened.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigFault> {
        let mut config = Config::defaults();
        if !AGENT_KEYS.contains(&name) {
            return Err(unknown(name, &Source::Flag));
        }
        config.set(name, value)?;
        let given = config.agent_options();
        match name {
            "model" => self.model = given.model,
            "guest" => self.language = given.language,
            "max_generation_attempts" => self.budgets.generation = given.budgets.generation,
            "guardrail_recovery_budget" => self.budgets.guardrail = given.budgets.guardrail,
            "execution_repair_budget" => self.budgets.execution = given.budgets.execution,
            "fresh_outcome_repair_budget" => self.budgets.outcome = given.budgets.outcome,
            "provider_timeout_seconds" => self.provider_timeout = given.provider_timeout,
            "execution_timeout_seconds" => self.execution_timeout = given.execution_timeout,
            "max_delegation_depth" => {
                self.allowance.depth = self.allowance.depth.min(given.allowance.depth);
            }
            "max_model_calls" => {
                self.allowance.model_calls =
                    self.allowance.model_calls.min(given.allowance.model_calls);
            }
            "asks_per_call" => {
                self.allowance.asks_per_call =
                    self.allowance.asks_per_call.min(given.allowance.asks_per_call);
            }
            _ => self.debug = given.debug,
        }
        Ok(())
    }
}

fn unknown(name: &str, source: &Source) -> ConfigFault {
    let nearest =
        KEYS.iter().map(|key| key.name).min_by_key(|known| strsim::levenshtein(known, name));
    let suggestion = nearest.filter(|known| strsim::normalized_levenshtein(known, name) > 0.6);
    ConfigFault::Unknown {
        key: name.to_owned(),
        origin: source.to_string(),
        suggestion: suggestion.map(str::to_owned),
    }
}

fn check(key: &Key, value: &str, source: &Source) -> Result<(), ConfigFault> {
    let (fits, expected) = match key.kind {
        Kind::Text => (true, String::new()),
        Kind::Flag => (matches!(value, "true" | "false"), "true or false".to_owned()),
        Kind::Count { least } => (
            value.parse::<u64>().is_ok_and(|n| n >= least),
            format!("a whole number of at least {least}"),
        ),
        Kind::Seconds => (
            value.parse::<f64>().is_ok_and(|s| s > 0.0 && s.is_finite()),
            "a number of seconds above 0".to_owned(),
        ),
        Kind::Guest => (value.parse::<Language>().is_ok(), "python or ruby".to_owned()),
    };
    if fits {
        return Ok(());
    }
    Err(ConfigFault::Invalid {
        key: key.name,
        origin: source.to_string(),
        expected,
        found: value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_layers_win_and_others_stay() {
        let mut config = Config::defaults();
        config
            .read_environment(&[
                ("RECURGENT_GUEST".into(), "ruby".into()),
                ("OTHER".into(), "x".into()),
            ])
            .unwrap();
        config.set("debug", "true").unwrap();
        let options = config.agent_options();
        assert_eq!((options.language, options.debug), (Language::Ruby, true));
        assert_eq!(options.budgets, Budgets::default());
        let (_, _, source) = config.entries().find(|(key, ..)| key.name == "guest").unwrap();
        assert_eq!(source.to_string(), "RECURGENT_GUEST");
    }

    #[test]
    fn a_misspelt_key_is_an_error_with_a_suggestion() {
        let fault = Config::defaults().set("execution_timeout_second", "3").unwrap_err();
        assert!(fault.to_string().contains("did you mean `execution_timeout_seconds`?"), "{fault}");
        let fault = Config::defaults().set("zzz", "3").unwrap_err();
        assert!(fault.to_string().contains("`recurgent config` lists"), "{fault}");
    }

    #[test]
    fn values_are_checked_when_they_are_set() {
        for (key, value) in [
            ("max_generation_attempts", "0"),
            ("provider_timeout_seconds", "-1"),
            ("provider_timeout_seconds", "NaN"),
            ("debug", "yes"),
            ("guest", "lua"),
        ] {
            assert!(
                matches!(Config::defaults().set(key, value), Err(ConfigFault::Invalid { .. })),
                "{key}={value}"
            );
        }
    }

    #[test]
    fn an_allowance_is_only_narrowed() {
        let mut options = Config::defaults().agent_options();
        options.set("max_model_calls", "5").unwrap();
        options.set("max_model_calls", "50").unwrap();
        assert_eq!(options.allowance.model_calls, 5);
    }

    #[test]
    fn every_agent_key_is_a_key() {
        for name in AGENT_KEYS {
            assert!(KEYS.iter().any(|key| key.name == *name), "{name}");
        }
    }
}
