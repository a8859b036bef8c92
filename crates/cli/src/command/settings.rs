//! Settings on the command line.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use recurgent::Language;
use recurgent::config::{Config, ConfigFault, KEYS, Key};

use crate::exit::CommandFault;

/// The state directory, and any setting by its key.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct StateFlags {
    /// Directory of the store and the log
    #[arg(long, value_name = "DIR", global = true, value_parser = NonEmptyStringValueParser::new())]
    state_dir: Option<String>,
    /// Set any key that `recurgent config` lists; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair, global = true)]
    set: Vec<(String, String)>,
}

impl StateFlags {
    /// The effective configuration: the file, replaced by the environment, by these flags, and by `more`.
    pub(crate) fn config(&self, more: &[(&str, Option<&str>)]) -> Result<Config, CommandFault> {
        let mut config = Config::load()?;
        let set = self.set.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
        let state_dir = [("state_dir", self.state_dir.as_deref())];
        for (key, value) in set.chain(state_dir).chain(more.iter().copied()) {
            let Some(value) = value else { continue };
            config.set(key, value).map_err(|fault| wrong_value(&fault))?;
        }
        Ok(config)
    }
}

/// The flags of commands with verbs: the answer as JSON, and where the state is.
#[derive(Debug, Args)]
pub(crate) struct VerbFlags {
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: StateFlags,
}

/// Settings for this run; they replace those of the environment and the configuration file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct SettingFlags {
    /// The language programs are written in
    #[arg(long, value_name = "LANGUAGE", value_parser = language_parser())]
    guest: Option<Language>,
    #[arg(long, help = setting_help("provider"))]
    provider: Option<String>,
    /// Use the settings of [provider.NAME] in the configuration file
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Which model to ask; a server of your own is asked for its models when none is named
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where the model service is; any server that speaks OpenAI's chat form works, such as
    /// `http://127.0.0.1:8080/v1`
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Take the model's answers from a recording; short for --provider replay:FILE
    #[arg(long, value_name = "FILE", conflicts_with = "provider", value_parser = NonEmptyStringValueParser::new())]
    replay: Option<String>,
    /// The network that programs may use: off, loopback, open, or hosts separated by commas
    #[arg(long, value_name = "NETWORK")]
    network: Option<String>,
    /// Let programs read a file or directory; may be repeated
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// Let programs write a file or directory; may be repeated
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Tools from outside that programs may call: names such as time or orders.search, * for all, or none
    #[arg(long, value_name = "NAMES")]
    tools: Option<String>,
    /// A directory that programs run in and may read: relative paths resolve there
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// What programs may show a model of their values (`infer`): previews, values, or auto (values, if the model is on
    /// this machine)
    #[arg(long, value_name = "WHAT")]
    model_sees: Option<String>,
    /// Let programs change the workspace
    #[arg(long)]
    workspace_write: bool,
    /// Never ask a model: stored programs run, every other call fails
    #[arg(long)]
    frozen: bool,
    /// Let a model extend a stored program to arguments it was not written for (the default)
    #[arg(long, overrides_with = "no_widen")]
    widen: bool,
    /// Refuse arguments that a stored program was not written for
    #[arg(long)]
    no_widen: bool,
    #[command(flatten)]
    state: StateFlags,
}

/// The help of a setting, with a capital letter, for its flag.
fn setting_help(name: &str) -> String {
    let help = KEYS.iter().find(|key| key.name == name).map(Key::help).unwrap_or_default();
    let mut letters = help.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Parses the name of a guest language.
pub(super) fn language_parser() -> impl TypedValueParser<Value = Language> {
    PossibleValuesParser::new(Language::ALL.map(Language::name)).try_map(|name| name.parse())
}

impl SettingFlags {
    /// The effective configuration.
    pub(crate) fn config(&self) -> Result<Config, CommandFault> {
        let replay = self.replay.as_ref().map(|file| format!("replay:{file}"));
        let provider = self.provider.as_ref().or(replay.as_ref()).map(String::as_str);
        if self.workspace.as_deref() == Some("") {
            return Err(CommandFault::usage(
                "--workspace is empty; name a directory, or leave the flag out",
            ));
        }
        let mut config = self.state.config(&[
            ("guest", self.guest.map(Language::name)),
            ("provider", provider),
            ("profile", self.profile.as_deref()),
            ("model", self.model.as_deref()),
            ("base_url", self.base_url.as_deref()),
            ("network", self.network.as_deref()),
            ("tools", self.tools.as_deref()),
            ("model_sees", self.model_sees.as_deref()),
            ("widen", self.widening()),
            ("generate", self.frozen.then_some("false")),
            ("workspace", self.workspace.as_deref()),
            ("workspace_write", self.workspace_write.then_some("true")),
        ])?;
        for (key, paths) in [("read_paths", &self.read), ("write_paths", &self.write)] {
            if !paths.is_empty() {
                config.set_list(key, granted_paths(paths)?).map_err(|fault| wrong_value(&fault))?;
            }
        }
        if self.workspace_write && config.settings().workspace.is_none() {
            return Err(CommandFault::usage(
                "--workspace-write needs a workspace; add --workspace DIR",
            ));
        }
        Ok(config)
    }

    fn widening(&self) -> Option<&'static str> {
        match (self.widen, self.no_widen) {
            (true, _) => Some("true"),
            (false, true) => Some("false"),
            (false, false) => None,
        }
    }
}

/// The text of each path, all of which must exist.
fn granted_paths(paths: &[PathBuf]) -> Result<Vec<String>, CommandFault> {
    let text = |path: &PathBuf| {
        if !path.exists() {
            return Err(CommandFault::usage(format!(
                "{} does not exist, so it cannot be granted; check the path",
                path.display()
            )));
        }
        path.to_str().map(str::to_owned).ok_or_else(|| {
            let shown = path.display();
            CommandFault::usage(format!(
                "the path {shown} is not UTF-8 and cannot be granted; rename it"
            ))
        })
    };
    paths.iter().map(text).collect()
}

fn wrong_value(fault: &ConfigFault) -> CommandFault {
    CommandFault::usage(fault.to_string())
}

/// `NAME=VALUE`, split at the first `=`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        Some(_) | None => Err("it must be NAME=VALUE".to_owned()),
    }
}
