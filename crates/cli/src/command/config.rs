//! `recurgent config`: the effective settings and where each came from.

mod privacy;

use clap::Args;
use recurgent::config::{Config, Key, SettingOrigin};
use recurgent::provider::{ProviderChoice, choose};
use serde_json::{Value, json};

use super::settings::SettingFlags;
use crate::exit::{CommandFault, Exit};
use crate::render::paint::Style;
use crate::render::{self, Stream};

const EXAMPLES: &str = "\
Examples:
  recurgent config
  recurgent config --set guest=ruby
  recurgent config --privacy                what can leave this machine
  RECURGENT_EXECUTION_TIMEOUT_SECONDS=5 recurgent config --json

Later wins: built-in defaults, the configuration file (config.toml, or the file RECURGENT_CONFIG
names), RECURGENT_* environment variables, flags.";

/// Print the effective settings and where each came from
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConfigOptions {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print what can leave this machine and what is kept on it, by the effective settings
    #[arg(long)]
    privacy: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

impl ConfigOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let config = self.settings.config()?;
        if self.privacy {
            return privacy::show(&config, self.json);
        }
        if self.json {
            render::json(&as_json(&config))?;
        } else {
            render::lines(&as_table(&config))?;
        }
        Ok(Exit::Ok)
    }
}

fn as_json(config: &Config) -> Value {
    let settings: Vec<Value> = config
        .entries()
        .map(|(key, text, source)| {
            let (value, source) = effective(config, key, text, source);
            json!({"key": key.name, "value": value, "source": source.to_string(), "help": key.help()})
        })
        .collect();
    json!({ "file": config.file().map(|path| path.display().to_string()), "settings": settings })
}

fn as_table(config: &Config) -> Vec<String> {
    let row = |(key, text, source): (&'static Key, &str, &SettingOrigin)| {
        let (value, source) = effective(config, key, text, source);
        (key, value.unwrap_or_default(), source)
    };
    let rows: Vec<(&Key, String, SettingOrigin)> = config.entries().map(row).collect();
    let names = rows.iter().map(|(key, ..)| key.name.len()).max().unwrap_or_default();
    let values = rows.iter().map(|(_, value, _)| value.chars().count()).max().unwrap_or_default();
    let paint = render::paint(Stream::Output);
    let file = match config.file() {
        Some(path) if path.exists() => path.display().to_string(),
        Some(path) => format!("{} (not there)", path.display()),
        None => "none: no home directory".to_owned(),
    };
    let heading = [paint.in_style(Style::Faint, &format!("configuration file: {file}"))];
    let table = rows.iter().map(|(key, value, source)| {
        let style = if *source == SettingOrigin::Default { Style::Faint } else { Style::Good };
        let name = paint.in_style(Style::Name, &format!("{:<names$}", key.name));
        let source = paint.in_style(style, &source.to_string());
        format!("{name}  {value:<values$}  {source}")
    });
    heading.into_iter().chain(table).collect()
}

/// The value that is used, and where it is from. Some settings that are empty show their computed value.
fn effective(
    config: &Config,
    key: &Key,
    text: &str,
    source: &SettingOrigin,
) -> (Option<String>, SettingOrigin) {
    if key.name == "base_url" && *source == SettingOrigin::Default {
        return address_of_environment(config).unwrap_or((None, SettingOrigin::Default));
    }
    let found = match key.name {
        "state_dir" => config.state_dir().ok(),
        "log" => config.log_path().ok().flatten(),
        "cache_dir" => config.environment_options().cache,
        _ => None,
    };
    let value = found
        .map(|path| path.display().to_string())
        .or_else(|| Some(key.shown(text).into_owned()).filter(|text| !text.is_empty()));
    (value, source.clone())
}

/// The address of the service that would be asked, if a variable of other tools names it.
fn address_of_environment(config: &Config) -> Option<(Option<String>, SettingOrigin)> {
    match choose(&config.provider_options().ok()?).ok()? {
        ProviderChoice::Service(service) => {
            let variable = service.address_source?.to_owned();
            Some((Some(service.base_url.to_string()), SettingOrigin::Environment(variable)))
        }
        ProviderChoice::Scripted(_)
        | ProviderChoice::Replay(_)
        | ProviderChoice::Embedded(_)
        | ProviderChoice::None { .. } => None,
    }
}
