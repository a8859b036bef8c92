//! Settings: one table, and layers (defaults, file, environment, flags, code) of which a later one replaces whole
//! values. Text is parsed when its layer is read; every reader of a setting gets its type.
//!
//! This is the only module that reads the process environment.

mod agent;
mod file;
mod outside;
mod options;
mod own_files;
mod table;
mod value;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::mem;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use thiserror::Error;

use crate::provider::{Secret, ServiceAddress, address_variables, key_variables};
use crate::toolbox::CommandOptions;
use file::Profiles;
use value::Written;

#[doc(hidden)]
pub use agent::AgentOptions;
pub use agent::AgentOverrides;
pub(crate) use agent::agent_keys;
#[doc(hidden)]
pub use outside::{McpServerOptions, McpTransport, server_entries, tool_name};
#[doc(hidden)]
pub use table::{KEYS, Key};
pub use table::{Settings, SettingsLayer};
pub use value::{HostName, LogTarget, VariableName};

// The types of settings.
pub use crate::models::ModelMirror;
pub use crate::worker::Tier;
pub use lifecycle::dependency::{ManifestMode, PackageIndex, PackageName, SourceMode};
pub use lifecycle::guardrail::Rule;
pub use lifecycle::standing::StandingMode;

/// Environment variables that set a key are named with this and the key in capitals.
const PREFIX: &str = "RECURGENT_";

/// The store's file in the state directory.
const STORE_FILE: &str = "recurgent.sqlite";

/// Where the value of a setting came from.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// Built in.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// A profile of the configuration file.
    Profile(String),
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag,
    /// The embedding program.
    Code,
}

impl SettingOrigin {
    /// Whether values of both were set together: in one table, in the environment, by flags or by code.
    fn is_together_with(&self, other: &Self) -> bool {
        if matches!(self, Self::Profile(_)) {
            return self == other;
        }
        mem::discriminant(self) == mem::discriminant(other)
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Environment(name) => f.write_str(name),
            Self::Flag => f.write_str("flag"),
            Self::Code => f.write_str("code"),
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
    /// A setting that all agents share.
    #[error(
        "`{key}` applies to all agents and cannot be set for one; these can: {}",
        agent_keys().collect::<Vec<_>>().join(", ")
    )]
    NotOfAnAgent {
        /// Which.
        key: String,
    },
    /// The text is not a value of the setting.
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
    /// No profile has this name.
    #[error(
        "the configuration file has no profile {name:?}; there are: {known}; add [provider.{name}] to it"
    )]
    UnknownProfile {
        /// As written.
        name: String,
        /// The names of the profiles.
        known: String,
    },
    /// An environment variable is not text. Its value is not shown, because it may be a key.
    #[error("the environment variable {variable} is not valid UTF-8; set it to text, or unset it")]
    NotText {
        /// Its name.
        variable: String,
    },
    /// A grant of Recurgent's own files, or of a key.
    #[error("`{setting}` cannot grant {path}: {problem}; {next}", path = .path.display())]
    Grant {
        /// Which setting.
        setting: &'static str,
        /// What it grants.
        path: PathBuf,
        /// Why it is refused.
        problem: String,
        /// What to do instead.
        next: &'static str,
    },
    /// No home directory to keep anything in.
    #[error("no home directory was found; set RECURGENT_STATE_DIR to a directory you can write to")]
    NoHomeDirectory,
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
    settings: Settings,
    /// The text of every value, and where it came from.
    texts: BTreeMap<&'static str, (String, SettingOrigin)>,
    /// What the profile in use replaced.
    replaced: BTreeMap<&'static str, (String, SettingOrigin)>,
    /// Where an address of a model service was set.
    addressed: Vec<SettingOrigin>,
    keys: BTreeMap<&'static str, Secret>,
    /// Addresses of model services, by the variables that other tools read.
    addresses: BTreeMap<&'static str, ServiceAddress>,
    profiles: Profiles,
    search_path: OsString,
    scratch: PathBuf,
    state_home: Option<PathBuf>,
    cache_home: Option<PathBuf>,
    data_home: Option<PathBuf>,
    runtime_home: Option<PathBuf>,
    file: Option<PathBuf>,
    editor: Option<OsString>,
    home: Option<OsString>,
    commands: BTreeMap<String, CommandOptions>,
    servers: BTreeMap<String, McpServerOptions>,
}

impl Config {
    /// File, then environment.
    #[expect(clippy::disallowed_methods, reason = "this is the module that reads the environment")]
    pub fn load() -> Result<Self, ConfigFault> {
        let mut config = Self::defaults();
        let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let strategy = etcetera::choose_base_strategy().ok();
        config.state_home = strategy.as_ref().and_then(BaseStrategy::state_dir);
        config.cache_home = strategy.as_ref().map(BaseStrategy::cache_dir);
        config.data_home = strategy.as_ref().map(BaseStrategy::data_dir);
        config.runtime_home = strategy.as_ref().and_then(BaseStrategy::runtime_dir);
        let named = variables.iter().find(|(name, _)| name == "RECURGENT_CONFIG");
        let named = named.map(|(_, path)| PathBuf::from(path));
        let usual = || strategy.map(|s| s.config_dir().join("recurgent").join("config.toml"));
        // A file that was named must exist.
        let must_exist = named.is_some();
        config.file = named.or_else(usual);
        if let Some(file) = config.file.clone().filter(|file| must_exist || file.exists()) {
            if must_exist && !file.exists() {
                let problem =
                    "it does not exist; RECURGENT_CONFIG names it: correct that, or unset it";
                return Err(ConfigFault::File { path: file, problem: problem.to_owned() });
            }
            config.read_file(&file)?;
        }
        let named =
            |name: &str| variables.iter().find(|(known, text)| known == name && !text.is_empty());
        config.editor = named("VISUAL").or_else(|| named("EDITOR")).map(|(_, text)| text.clone());
        config.read_environment(&variables)?;
        Ok(config)
    }

    /// Built-in values only, plus the search path; for embedding programs that set everything themselves.
    #[expect(clippy::disallowed_methods, reason = "this is the module that reads the environment")]
    pub fn defaults() -> Self {
        let settings = Settings::default();
        let texts = settings.texts().into_iter();
        Self {
            texts: texts.map(|(name, text)| (name, (text, SettingOrigin::Default))).collect(),
            settings,
            replaced: BTreeMap::new(),
            addressed: Vec::new(),
            keys: BTreeMap::new(),
            addresses: BTreeMap::new(),
            profiles: Profiles::new(),
            search_path: Self::variable("PATH").unwrap_or_default(),
            scratch: std::env::temp_dir(),
            state_home: None,
            cache_home: None,
            data_home: None,
            runtime_home: None,
            file: None,
            editor: None,
            home: Self::variable("HOME"),
            commands: BTreeMap::new(),
            servers: BTreeMap::new(),
        }
    }

    /// The home directory of this user.
    #[doc(hidden)]
    #[expect(clippy::disallowed_methods, reason = "this is the module that reads the environment")]
    pub fn home_dir() -> Option<PathBuf> {
        etcetera::home_dir().ok()
    }

    /// Built-in values, replaced by those of one configuration file. The environment is not read.
    pub fn from_file(path: &Path) -> Result<Self, ConfigFault> {
        let mut config = Self::defaults();
        config.read_file(path)?;
        config.file = Some(path.to_owned());
        Ok(config)
    }

    /// Sets one value from its text, as a flag of the command line does.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigFault> {
        self.put(name, &Written::Text(text.to_owned()), &SettingOrigin::Flag)
    }

    /// Sets a list from its items, as a flag that is repeated does.
    pub fn set_list(&mut self, name: &str, items: Vec<String>) -> Result<(), ConfigFault> {
        self.put(name, &Written::List(items), &SettingOrigin::Flag)
    }

    /// Sets the values of a layer, leaving all others as they are. They must be within the bounds that apply to texts.
    pub fn with(mut self, layer: &SettingsLayer) -> Result<Self, ConfigFault> {
        let layer = checked(layer)?;
        self.settings.apply(&layer);
        self.note_address(&layer, &SettingOrigin::Code);
        for (name, text) in layer.texts() {
            self.texts.insert(name, (text, SettingOrigin::Code));
        }
        if let Some(profile) = &layer.profile {
            self.use_profile(profile, &SettingOrigin::Code)?;
        }
        Ok(self)
    }

    /// The value of every setting.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Every setting with the text of its value and where that came from. Addresses are as given, credentials included:
    /// see [`Key::shown`].
    #[doc(hidden)]
    pub fn entries(&self) -> impl Iterator<Item = (&'static Key, &str, &SettingOrigin)> {
        KEYS.iter().filter_map(|key| {
            self.texts.get(key.name).map(|(text, origin)| (key, text.as_str(), origin))
        })
    }

    fn put(
        &mut self,
        name: &str,
        written: &Written,
        origin: &SettingOrigin,
    ) -> Result<(), ConfigFault> {
        let mut layer = SettingsLayer::default();
        let key = parse_into(&mut layer, name, written, origin)?;
        self.settings.apply(&layer);
        let text = match written {
            Written::Text(text) | Written::Literal(text) => text.clone(),
            Written::List(_) => layer.texts().into_iter().map(|(_, text)| text).collect(),
        };
        self.note_address(&layer, origin);
        self.texts.insert(key.name, (text.clone(), origin.clone()));
        if key.name == "profile" { self.use_profile(&text, origin) } else { Ok(()) }
    }

    fn read_environment(&mut self, variables: &[(OsString, OsString)]) -> Result<(), ConfigFault> {
        for (variable, value) in variables {
            let Some((variable, value)) = text_of(variable, value)? else { continue };
            let key = key_variables().find(|name| *name == variable);
            if let Some(name) = key.filter(|_| !value.trim().is_empty()) {
                self.keys.insert(name, Secret::new(value.trim()));
            }
            if let Some(name) = address_variables().find(|name| *name == variable) {
                self.addresses.extend(address(name, value)?.map(|address| (name, address)));
            }
            let Some(name) = variable.strip_prefix(PREFIX).filter(|name| *name != "CONFIG") else {
                continue;
            };
            let origin = SettingOrigin::Environment(variable.to_owned());
            self.put(&name.to_lowercase(), &Written::Text(value.to_owned()), &origin)?;
        }
        Ok(())
    }

    /// A variable of the process environment, by its name.
    #[expect(clippy::disallowed_methods, reason = "this is the module that reads the environment")]
    fn variable(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// Directory of the store and the log.
    pub fn state_dir(&self) -> Result<PathBuf, ConfigFault> {
        let given = self.settings.state_dir.clone();
        given
            .or_else(|| self.state_home.as_ref().map(|home| home.join("recurgent")))
            .ok_or(ConfigFault::NoHomeDirectory)
    }

    /// The file that was looked for, whether there is one or not.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The command of the user's editor (`VISUAL` or `EDITOR`).
    #[doc(hidden)]
    pub fn editor(&self) -> Option<&OsStr> {
        self.editor.as_deref()
    }

    /// The embedded store's file.
    pub fn store_path(&self) -> Result<PathBuf, ConfigFault> {
        Ok(self.state_dir()?.join(STORE_FILE))
    }

    /// The log file; `None`: off.
    pub fn log_path(&self) -> Result<Option<PathBuf>, ConfigFault> {
        match &self.settings.log {
            LogTarget::Off => Ok(None),
            LogTarget::StateDir => Ok(Some(self.state_dir()?.join("recurgent.jsonl"))),
            LogTarget::File(path) => Ok(Some(path.clone())),
        }
    }
}

/// The name and value of an environment variable that this module reads; `None` for any other.
fn text_of<'a>(
    variable: &'a OsStr,
    value: &'a OsStr,
) -> Result<Option<(&'a str, &'a str)>, ConfigFault> {
    let name = variable.to_string_lossy();
    let is_setting = name.strip_prefix(PREFIX).is_some_and(|name| name != "CONFIG");
    let is_service = key_variables().chain(address_variables()).any(|known| known == name);
    if !is_setting && !is_service {
        return Ok(None);
    }
    match (variable.to_str(), value.to_str()) {
        (Some(variable), Some(value)) => Ok(Some((variable, value))),
        _ => Err(ConfigFault::NotText { variable: name.into_owned() }),
    }
}

/// The address of a model service in a variable of the environment; none if it is empty.
fn address(variable: &str, text: &str) -> Result<Option<ServiceAddress>, ConfigFault> {
    let key = find("base_url", &SettingOrigin::Environment(variable.to_owned()))?;
    (value::optional_address().read)(text.trim()).map_err(|expected| ConfigFault::Invalid {
        key: key.name,
        origin: variable.to_owned(),
        expected,
        found: key.shown_briefly(text),
    })
}

/// The values of a layer that a program made, within the bounds of texts and with paths made absolute.
fn checked(layer: &SettingsLayer) -> Result<SettingsLayer, ConfigFault> {
    layer.checked().map_err(|(name, expected, found)| {
        let origin = SettingOrigin::Code;
        match find(name, &origin) {
            Ok(key) => ConfigFault::Invalid {
                key: key.name,
                origin: origin.to_string(),
                expected,
                found: key.shown_briefly(&found),
            },
            Err(fault) => fault,
        }
    })
}

/// Sets one value of a layer from what was written.
fn parse_into(
    layer: &mut SettingsLayer,
    name: &str,
    written: &Written,
    origin: &SettingOrigin,
) -> Result<&'static Key, ConfigFault> {
    let key = find(name, origin)?;
    match layer.parse(name, written) {
        Some(Ok(())) => Ok(key),
        Some(Err(expected)) => Err(ConfigFault::Invalid {
            key: key.name,
            origin: origin.to_string(),
            expected,
            found: key.shown_briefly(&written.shown()),
        }),
        None => Err(unknown(name, origin)),
    }
}

fn find(name: &str, origin: &SettingOrigin) -> Result<&'static Key, ConfigFault> {
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| unknown(name, origin))
}

fn unknown(name: &str, origin: &SettingOrigin) -> ConfigFault {
    let nearest = KEYS
        .iter()
        .map(|key| key.name)
        .min_by_key(|known| strsim::damerau_levenshtein(known, name));
    let suggestion =
        nearest.filter(|known| strsim::normalized_damerau_levenshtein(known, name) > 0.6);
    ConfigFault::Unknown {
        key: name.to_owned(),
        origin: origin.to_string(),
        suggestion: suggestion.map(str::to_owned),
    }
}

/// Columns of the terminal, as the shell says (`COLUMNS`).
#[doc(hidden)]
pub fn columns() -> Option<usize> {
    Config::variable("COLUMNS")?.to_str()?.trim().parse().ok().filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests;
