//! What can be tuned: one table of keys, three layers (file, environment, flags), later wins.
//!
//! This is the only module that reads the process environment.

mod agent;
mod key;
mod options;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;
use thiserror::Error;

use crate::provider::Secret;

pub use agent::{AGENT_KEYS, AgentOptions};
pub use key::{KEYS, Key};
use key::{check, unknown};

/// Environment variables that set a key are named with this and the key in capitals.
const PREFIX: &str = "RECURGENT_";

/// Environment variables that hold keys of model services. They are not settings: nothing shows them.
pub(crate) const KEY_VARIABLES: [&str; 3] =
    ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"];

/// The store's file in the state directory.
const STORE_FILE: &str = "recurgent.sqlite";

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
    /// One of [`KEYS`] that all agents share.
    #[error(
        "`{key}` holds for all agents and is not set for one; these are: {}",
        AGENT_KEYS.join(", ")
    )]
    NotOfAnAgent {
        /// Which.
        key: String,
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
    keys: BTreeMap<&'static str, Secret>,
    search_path: OsString,
    scratch: PathBuf,
    state_home: Option<PathBuf>,
    cache_home: Option<PathBuf>,
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
        config.cache_home = strategy.as_ref().map(BaseStrategy::cache_dir);
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
        let search_path = Self::variable("PATH").unwrap_or_default();
        Self {
            values,
            keys: BTreeMap::new(),
            search_path,
            scratch: std::env::temp_dir(),
            state_home: None,
            cache_home: None,
            file: None,
        }
    }

    /// Sets one key, leaving all others as they are.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigFault> {
        self.put(name, value.to_owned(), Source::Flag)
    }

    /// Keys with their values and where each came from. Addresses are as given, credentials included:
    /// see [`Key::shown`].
    pub fn entries(&self) -> impl Iterator<Item = (&'static Key, &str, &Source)> {
        KEYS.iter().filter_map(|key| {
            self.values.get(key.name).map(|(value, source)| (key, value.as_str(), source))
        })
    }

    fn put(&mut self, name: &str, value: String, source: Source) -> Result<(), ConfigFault> {
        let key = find(name).ok_or_else(|| unknown(name, &source))?;
        check(key, &value, &source)?;
        self.values.insert(key.name, (value, source));
        Ok(())
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigFault> {
        let fault = |problem: String| ConfigFault::File { path: path.to_owned(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| fault(error.to_string()))?;
        let source = Source::File(path.to_owned());
        for (name, value) in table {
            let key = find(&name).ok_or_else(|| unknown(&name, &source))?;
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(flag) => flag.to_string(),
                toml::Value::Array(items) if items.iter().all(toml::Value::is_str) => {
                    key.joined(&items.iter().filter_map(toml::Value::as_str).collect::<Vec<_>>())
                }
                toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => {
                    return Err(fault(format!(
                        "`{name}` must be a text, a number, true/false or a list of texts"
                    )));
                }
            };
            self.put(&name, text, source.clone())?;
        }
        Ok(())
    }

    fn read_environment(&mut self, variables: &[(String, String)]) -> Result<(), ConfigFault> {
        for (variable, value) in variables {
            let key = KEY_VARIABLES.into_iter().find(|name| name == variable);
            if let Some(name) = key.filter(|_| !value.trim().is_empty()) {
                self.keys.insert(name, Secret::new(value.trim()));
            }
            let Some(name) = variable.strip_prefix(PREFIX).filter(|name| *name != "CONFIG") else {
                continue;
            };
            self.put(&name.to_lowercase(), value.clone(), Source::Environment(variable.clone()))?;
        }
        Ok(())
    }

    /// A variable of the process environment, by its name.
    #[expect(clippy::disallowed_methods, reason = "this is the module that reads the environment")]
    fn variable(name: &str) -> Option<OsString> {
        std::env::var_os(name)
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

    fn list(&self, name: &str) -> Vec<String> {
        let separator = |c: char| c == ',' || c.is_whitespace();
        let items = self.text(name).split(separator).filter(|item| !item.is_empty());
        items.map(str::to_owned).collect()
    }

    /// Made absolute: what is granted must not depend on where a program looks from.
    fn paths(&self, name: &str) -> Vec<PathBuf> {
        let given =
            std::env::split_paths(self.text(name)).filter(|path| !path.as_os_str().is_empty());
        given.map(|path| std::path::absolute(&path).unwrap_or(path)).collect()
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.text(name);
        (!text.is_empty()).then(|| PathBuf::from(text))
    }

    /// A count that may be left out.
    fn optional_count<T: TryFrom<u64> + Default>(&self, name: &str) -> Option<T> {
        (!self.text(name).is_empty()).then(|| self.count(name))
    }

    /// A number that may be left out.
    fn optional(&self, name: &str) -> Option<f64> {
        self.text(name).parse().ok()
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
}

fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::attempt::Budgets;
    use lifecycle::dialect::Language;
    use lifecycle::guardrail::{GuardrailPolicy, Rule};

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
    fn a_list_in_the_file_is_a_list_of_whatever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let text = "read_paths = [\"/one\", \"/two\"]\nblocked_gems = [\"a\", \"b\"]\n";
        std::fs::write(&file, text).unwrap();
        let mut config = Config::defaults();
        config.read_file(&file).unwrap();
        let read = config.agent_options().grants.read;
        assert_eq!(read, [Path::new("/one"), Path::new("/two")]);
        assert_eq!(config.dependency_policy(Language::Ruby).blocked, ["a", "b"]);
        std::fs::write(&file, "read_path = []").unwrap();
        let fault = config.read_file(&file).unwrap_err().to_string();
        assert!(fault.contains("did you mean `read_paths`?"), "{fault}");
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
            ("max_delegation_depth", "256"),
            ("max_model_calls", "4294967296"),
            ("provider_timeout_seconds", "-1"),
            ("provider_timeout_seconds", "NaN"),
            ("provider_timeout_seconds", "1e300"),
            ("max_tree_tokens", "1.5"),
            ("max_tree_tokens", "1e6"),
            ("max_output_tokens", "0.5"),
            ("max_output_tokens", "0"),
            ("debug", "yes"),
            ("guest", "lua"),
            ("guardrail_terminal", "process_escape, proces_escape"),
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
    fn rules_are_named_one_by_one_or_by_type() {
        let mut config = Config::defaults();
        assert_eq!(config.agent_options().guardrails, GuardrailPolicy::default());
        config.set("guardrail_terminal", "process_escape, dependency_violation").unwrap();
        assert_eq!(
            config.agent_options().guardrails.terminal,
            [Rule::ProcessEscape, Rule::UndeclaredDependency, Rule::UnusedDependency]
        );
    }

    #[test]
    fn an_agent_has_just_the_options_that_are_listed() {
        for key in KEYS {
            let value = if key.default.is_empty() { "1" } else { key.default };
            let set = Config::defaults().agent_options().set(key.name, value);
            match set {
                Ok(()) => assert!(AGENT_KEYS.contains(&key.name), "{}", key.name),
                Err(fault) => {
                    assert!(matches!(fault, ConfigFault::NotOfAnAgent { .. }), "{fault}");
                    assert!(!AGENT_KEYS.contains(&key.name), "{}", key.name);
                }
            }
        }
        let fault = Config::defaults().agent_options().set("mode", "x").unwrap_err();
        assert!(fault.to_string().contains("did you mean `model`?"), "{fault}");
    }
}
