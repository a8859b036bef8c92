//! Recurgent's own files and the files of keys, which no grant of an agent may cover. Outside tools have grants of their
//! own, which are not checked.

use std::path::{Path, PathBuf};

use super::{Config, ConfigFault, SettingOrigin, SettingsLayer, parse_into};

impl Config {
    /// Refuses grants with which programs could change Recurgent's own files or read a key. What a program changes
    /// there, such as its own grants, holds for later calls.
    pub(crate) fn check_grants(&self) -> Result<(), ConfigFault> {
        let settings = &self.settings;
        let workspace = settings.workspace.iter().map(|path| ("workspace", path));
        let written = settings.write_paths.iter().map(|path| ("write_paths", path));
        let read = settings.read_paths.iter().map(|path| ("read_paths", path));
        let writable = workspace.clone().filter(|_| settings.workspace_write);
        let own = self.own_files();
        for (setting, path) in writable.chain(written.clone()) {
            if let Some(file) = own.iter().find(|file| overlap(path, file)) {
                let shown = file.display();
                return Err(ConfigFault::Grant {
                    setting,
                    path: path.clone(),
                    problem: format!(
                        "{shown} is Recurgent's own, and what a program changes there holds for later calls"
                    ),
                    next: "grant only the directory with your data instead",
                });
            }
        }
        let keys = self.key_files()?;
        for (setting, path) in workspace.chain(written).chain(read) {
            if let Some(key) = keys.iter().find(|key| overlap(path, key)) {
                return Err(ConfigFault::Grant {
                    setting,
                    path: path.clone(),
                    problem: format!("programs could read the key in {}", key.display()),
                    next: "keep the key elsewhere, or grant a directory without it instead",
                });
            }
        }
        Ok(())
    }

    /// The configuration file, and where the store, the log, environments, models and the engine are kept.
    fn own_files(&self) -> Vec<PathBuf> {
        let models = self.data_home.as_ref().map(|home| home.join("recurgent"));
        let known = [
            self.file.clone(),
            self.state_dir().ok(),
            self.log_path().ok().flatten(),
            self.environment_options().cache,
            self.settings.models_dir.clone().or(models),
            self.engine_dir(),
            self.settings.tools_dir.clone(),
        ];
        known.into_iter().flatten().collect()
    }

    /// The files of keys, of every profile.
    fn key_files(&self) -> Result<Vec<PathBuf>, ConfigFault> {
        let mut layers = vec![self.settings.api_key_file.clone()];
        for (profile, settings) in &self.profiles {
            let origin = SettingOrigin::Profile(profile.clone());
            for (name, written) in settings.iter().filter(|(name, _)| name == "api_key_file") {
                let mut layer = SettingsLayer::default();
                parse_into(&mut layer, name, written, &origin)?;
                layers.push(layer.api_key_file.flatten());
            }
        }
        Ok(layers.into_iter().flatten().collect())
    }
}

/// Whether one of two paths lies in the other.
fn overlap(one: &Path, other: &Path) -> bool {
    let (one, other) = (forms(one), forms(other));
    one.iter().any(|one| other.iter().any(|it| it.starts_with(one) || one.starts_with(it)))
}

/// The path as written, with links resolved, and with those of its directory resolved.
#[expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]
fn forms(path: &Path) -> Vec<PathBuf> {
    let written = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let resolved = written.canonicalize().ok();
    let in_resolved = written.ancestors().skip(1).find_map(|above| {
        let rest = written.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    resolved.into_iter().chain(in_resolved).chain([written]).collect()
}
