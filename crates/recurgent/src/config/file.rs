//! The configuration file, and the named provider profiles in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;

use super::value::Written;
use super::{Config, ConfigFault, KEYS, SettingOrigin, SettingsLayer, find, parse_into};
use crate::regular_file::read_regular;

/// The table of profiles: `[provider.NAME]`.
const PROFILES: &str = "provider";
/// The setting that names the profile to use.
const PROFILE: &str = "profile";
/// The settings that a profile may have: which service is asked, and how.
const PROFILE_SETTINGS: [&str; 14] = [
    "provider",
    "model",
    "base_url",
    "api_key_file",
    "provider_proxy",
    "provider_ca_file",
    "provider_timeout_seconds",
    "temperature",
    "retry_temperature",
    "max_output_tokens",
    "price_input_per_mtok",
    "price_cached_per_mtok",
    "price_output_per_mtok",
    "prices_file",
];

/// The settings that say which service is asked. A profile that has one of them replaces them all, so that the key of
/// one service is not sent to another.
const SERVICE_SETTINGS: [&str; 3] = ["provider", "base_url", "api_key_file"];

/// The settings of each profile, as written.
pub(super) type Profiles = BTreeMap<String, Vec<(String, Written)>>;

impl Config {
    /// Where a configuration file belongs, whether there is one or not.
    #[doc(hidden)]
    #[expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]
    pub fn file_to_write() -> Option<PathBuf> {
        let usual = || {
            let strategy = etcetera::choose_base_strategy().ok()?;
            Some(strategy.config_dir().join("recurgent").join("config.toml"))
        };
        Self::variable("RECURGENT_CONFIG").map(PathBuf::from).or_else(usual)
    }

    /// Reads the file, then the profile that it names.
    pub(super) fn read_file(&mut self, path: &Path) -> Result<(), ConfigFault> {
        let fault = |problem: String| ConfigFault::File { path: path.to_owned(), problem };
        let text = read_regular(path).map_err(|error| fault(error.to_string()))?;
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| fault(error.to_string()))?;
        let origin = SettingOrigin::File(path.to_owned());
        let mut chosen = None;
        for (name, value) in table {
            if self.read_outside_tools(&name, &value, &fault)? {
                continue;
            }
            find(&name, &origin)?;
            if let (PROFILES, toml::Value::Table(profiles)) = (name.as_str(), &value) {
                self.profiles = read_profiles(profiles.clone(), &origin, &fault)?;
                continue;
            }
            let written = written(&name, &value, &fault)?;
            // Applied last: the settings of the profile replace other settings of the file.
            if name == PROFILE {
                chosen = Some(written);
            } else {
                self.put(&name, &written, &origin)?;
            }
        }
        chosen.map_or(Ok(()), |name| self.put(PROFILE, &name, &origin))
    }

    /// Applies the profile that `layer` names, instead of the one in use. Its settings replace those of lower layers. A
    /// profile that the file names also replaces the file's own settings.
    pub(super) fn use_profile(
        &mut self,
        name: &str,
        layer: &SettingOrigin,
    ) -> Result<(), ConfigFault> {
        self.leave_profile()?;
        if name.is_empty() {
            return Ok(());
        }
        let Some(settings) = self.profiles.get(name).cloned() else {
            let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            return Err(ConfigFault::UnknownProfile {
                name: name.to_owned(),
                known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
            });
        };
        let origin = SettingOrigin::Profile(name.to_owned());
        for (key, written) in with_whole_service(settings) {
            let mut parsed = SettingsLayer::default();
            if parse_into(&mut parsed, &key, &written, &origin).is_ok() {
                self.note_address(&parsed, &origin);
            }
            let Some((key, present)) = self.texts.get_key_value(key.as_str()) else { continue };
            if is_below(&present.1, layer) {
                let key = *key;
                self.replaced.insert(key, present.clone());
                self.put(key, &written, &origin)?;
            }
        }
        Ok(())
    }

    /// Puts back what the profile in use replaced, unless that was replaced since.
    fn leave_profile(&mut self) -> Result<(), ConfigFault> {
        for (key, (text, origin)) in std::mem::take(&mut self.replaced) {
            let present = self.texts.get(key).map(|(_, present)| present);
            if matches!(present, Some(SettingOrigin::Profile(_))) {
                self.put(key, &Written::Text(text), &origin)?;
            }
        }
        Ok(())
    }
}

/// The settings of a profile. If it names a service, what it does not say about it has its default.
fn with_whole_service(mut settings: Vec<(String, Written)>) -> Vec<(String, Written)> {
    let has =
        |settings: &[(String, Written)], name: &str| settings.iter().any(|(key, _)| key == name);
    if SERVICE_SETTINGS.into_iter().any(|name| has(&settings, name)) {
        for key in KEYS.iter().filter(|key| SERVICE_SETTINGS.contains(&key.name)) {
            if !has(&settings, key.name) {
                settings.push((key.name.to_owned(), Written::Text(key.default())));
            }
        }
    }
    settings
}

/// Whether a profile that `layer` names replaces a value of `present`.
fn is_below(present: &SettingOrigin, layer: &SettingOrigin) -> bool {
    let rank = |origin: &SettingOrigin| match origin {
        SettingOrigin::Default => 0,
        SettingOrigin::File(_) | SettingOrigin::Profile(_) => 1,
        SettingOrigin::Environment(_) => 2,
        SettingOrigin::Flag => 3,
        SettingOrigin::Code => 4,
    };
    let in_file = matches!(layer, SettingOrigin::File(_));
    rank(present) < rank(layer) || (in_file && rank(present) == rank(layer))
}

fn read_profiles(
    tables: toml::Table,
    origin: &SettingOrigin,
    fault: &dyn Fn(String) -> ConfigFault,
) -> Result<Profiles, ConfigFault> {
    let mut profiles = Profiles::new();
    for (profile, settings) in tables {
        let toml::Value::Table(settings) = settings else {
            return Err(fault(format!(
                "`{PROFILES}.{profile}` must be a table of settings: [{PROFILES}.{profile}]"
            )));
        };
        let mut values = Vec::new();
        for (name, value) in settings {
            find(&name, origin)?;
            if !PROFILE_SETTINGS.contains(&name.as_str()) {
                return Err(fault(format!(
                    "`{name}` does not belong in [{PROFILES}.{profile}]; a profile may hold {}",
                    PROFILE_SETTINGS.join(", ")
                )));
            }
            let written = written(&name, &value, fault)?;
            values.push((name, written));
        }
        profiles.insert(profile, values);
    }
    Ok(profiles)
}

/// A value of the file. Lists stay lists; the parser of the setting reads their items.
fn written(
    name: &str,
    value: &toml::Value,
    fault: &dyn Fn(String) -> ConfigFault,
) -> Result<Written, ConfigFault> {
    let items = |values: &[toml::Value]| values.iter().map(scalar).collect::<Option<Vec<String>>>();
    let written = match value {
        toml::Value::String(text) => Some(Written::Text(text.clone())),
        toml::Value::Array(values) => items(values).map(Written::List),
        toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_)
        | toml::Value::Table(_) => scalar(value).map(Written::Literal),
    };
    written.ok_or_else(|| {
        fault(format!(
            "`{name}` must be a text, a number, true/false or a list of texts or numbers"
        ))
    })
}

/// A single value as text.
fn scalar(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "model = \"plain\"\nprofile = \"work\"\n\
        [provider.work]\nprovider = \"anthropic\"\nmodel = \"claude-x\"\n\
        [provider.local]\nbase_url = \"http://127.0.0.1:8080/v1\"\nmodel = \"qwen\"\n";

    fn read(text: &str) -> Result<Config, ConfigFault> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, text).unwrap();
        let mut config = Config::defaults();
        config.read_file(&file).map(|()| config)
    }

    fn shown(config: &Config, name: &str) -> (String, String) {
        let (_, text, origin) = config.entries().find(|(key, ..)| key.name == name).unwrap();
        (text.to_owned(), origin.to_string())
    }

    #[test]
    fn a_profile_replaces_what_is_below_the_layer_that_names_it() {
        let pair = |text: &str, origin: &str| (text.to_owned(), origin.to_owned());
        let mut config = read(FILE).unwrap();
        assert_eq!(shown(&config, "model"), pair("claude-x", "profile work"));
        let variables = [("RECURGENT_MODEL".into(), "of-env".into())];
        config.read_environment(&variables).unwrap();
        config.set("provider_timeout_seconds", "7").unwrap();
        config.set("profile", "local").unwrap();
        assert_eq!(shown(&config, "model"), pair("qwen", "profile local"));
        assert_eq!(shown(&config, "base_url").0, "http://127.0.0.1:8080/v1");
        config.set("model", "of-flag").unwrap();
        config.set("profile", "work").unwrap();
        assert_eq!(shown(&config, "model"), pair("of-flag", "flag"));
        let mut config = read(FILE).unwrap();
        let variables = [
            ("RECURGENT_MODEL".into(), "of-env".into()),
            ("RECURGENT_PROFILE".into(), "local".into()),
        ];
        config.read_environment(&variables).unwrap();
        assert_eq!(shown(&config, "model"), pair("of-env", "RECURGENT_MODEL"));
    }

    #[test]
    fn a_profile_that_cannot_be_used_is_explained() {
        for (text, says) in [
            ("profile = \"home\"\n[provider.work]\nmodel = \"m\"", "there are: work"),
            ("profile = \"home\"", "there are: none"),
            ("[provider.work]\nguest = \"ruby\"", "`guest` does not belong in [provider.work]"),
            ("[provider.work]\nmodle = \"m\"", "did you mean `model`?"),
            ("[provider]\nmodel = \"m\"", "must be a table of settings"),
            ("[guest]\nx = 1", "must be a text"),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }
}
