//! `recurgent model`: models on this machine, and the engine that runs them.

#[cfg(feature = "engine")]
mod bench;
mod install;
mod offer;
#[cfg(feature = "engine")]
mod serve;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lifecycle::excerpt::counted;
use recurgent::config::Config;
use recurgent::models::{InstalledModel, KnownModel, ModelFolder, ModelOptions, RemovalFault};
use recurgent::provider::ProviderFault;
use recurgent::provider::engine::{EngineClient, EngineFailure, EngineStatus};
use serde_json::{Value, json};

pub(crate) use offer::offering;

use super::settings::VerbFlags;
use crate::exit::{CommandFault, Exit};
use crate::render::paint::{Style, clean};
use crate::render::{self, Stream};

const EXAMPLES: &str = "\
Examples:
  recurgent model install                        the usual model: 1.1 GB, once
  recurgent model install --from ~/my.gguf       any GGUF file of the same architecture
  recurgent call calculator add 3 4              a call uses it when nothing else is configured
  recurgent model bench                          how fast it is on this machine
  recurgent model serve --http 8080              for other programs, as OpenAI's chat form";

/// Install, list, remove, measure or serve models that run on this machine
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ModelCommand {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    flags: VerbFlags,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The models that are installed, and those that can be
    List,
    /// Fetch a model and check it; a stopped installation continues
    Install {
        /// The model; the usual one if none is named
        name: Option<String>,
        /// Take it from this file
        #[arg(long, value_name = "FILE", conflicts_with = "name")]
        from: Option<PathBuf>,
        /// Do not ask before fetching it
        #[arg(long)]
        yes: bool,
    },
    /// Remove an installed model
    Rm {
        /// The model, as `recurgent model list` names it
        name: String,
    },
    /// Measure an installed model: reading, writing, memory
    Bench(BenchOptions),
    /// Whether the engine runs, and what it does
    Status,
    /// End the engine; the next call that needs it starts it again
    Stop,
    /// Run the engine; calls start it by themselves
    Serve(ServeOptions),
}

/// What is measured.
#[derive(Debug, Args)]
struct BenchOptions {
    /// The model; the first installed one if none is named
    name: Option<String>,
    /// Tokens to write
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tokens: u32,
    /// The process has the environment of an engine
    #[arg(long, hide = true)]
    prepared: bool,
}

/// How the engine is run.
#[derive(Debug, Args)]
struct ServeOptions {
    /// Also serve OpenAI's chat form at this port of 127.0.0.1
    #[arg(long, value_name = "PORT")]
    http: Option<u16>,
    /// Answer only HTTP requests with the token in this file
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// Leave the terminal's session, and end when idle; a call starts the engine this way
    #[arg(long, hide = true)]
    detach: bool,
    /// This process was started with the environment variables that the engine needs
    #[arg(long, hide = true)]
    prepared: bool,
}

impl ModelCommand {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let config = self.flags.place.config(&[])?;
        match &self.verb {
            Verb::List => self.list(&config),
            Verb::Install { name, from, yes } => {
                let asked = install::InstallFlags {
                    name: name.as_deref(),
                    from: from.as_deref(),
                    is_agreed: *yes,
                };
                install::run(&config, &asked, self.flags.json)
            }
            Verb::Rm { name } => self.remove(&config, name),
            #[cfg(feature = "engine")]
            Verb::Bench(options) => bench::run(&config, options, self.flags.json),
            Verb::Status => self.status(&config),
            Verb::Stop => self.stop(&config),
            #[cfg(feature = "engine")]
            Verb::Serve(options) => options.run(&config),
            #[cfg(not(feature = "engine"))]
            Verb::Bench(_) | Verb::Serve(_) => Err(no_engine()),
        }
    }

    fn list(&self, config: &Config) -> Result<Exit, CommandFault> {
        let options = model_options(config)?;
        let folder = folder(&options)?;
        let installed = folder.installed();
        let absent: Vec<&KnownModel> = options
            .known
            .iter()
            .filter(|known| installed.iter().all(|model| model.name != known.name))
            .collect();
        if self.flags.json {
            render::json(&json!({
                "directory": folder.path(),
                "bytes": folder.total_bytes(),
                "installed": installed.iter().map(installed_json).collect::<Vec<_>>(),
                "known": options.known.iter().map(known_json).collect::<Vec<_>>(),
            }))?;
            return Ok(Exit::Ok);
        }
        let paint = render::paint(Stream::Output);
        let mut lines: Vec<String> = installed
            .iter()
            .map(|model| {
                let name = paint.in_style(Style::Name, &clean(&model.name));
                format!("{name}  {}  {}", render::size(model.bytes), model.path.display())
            })
            .collect();
        lines.extend(absent.iter().map(|model| {
            let text = format!(
                "{}  {}  {}, not installed; `recurgent model install {}` fetches it",
                model.name,
                render::size(model.bytes),
                clean(&model.licence),
                model.name
            );
            paint.in_style(Style::Faint, &text)
        }));
        render::lines(&lines)?;
        Ok(Exit::Ok)
    }

    fn remove(&self, config: &Config, name: &str) -> Result<Exit, CommandFault> {
        let removed =
            folder(&model_options(config)?)?.remove(name).map_err(|fault| match fault {
                RemovalFault::Unknown(_) => CommandFault::missing(fault.to_string()),
                RemovalFault::File { .. } => CommandFault::setup(fault.to_string()),
            })?;
        if self.flags.json {
            render::json(&json!({"status": "ok", "removed": installed_json(&removed)}))?;
        } else {
            render::text(&format!("removed {} ({})", removed.name, render::size(removed.bytes)))?;
        }
        Ok(Exit::Ok)
    }

    fn status(&self, config: &Config) -> Result<Exit, CommandFault> {
        let status = EngineClient::new(config.engine_launch()).status().map_err(engine_fault)?;
        if self.flags.json {
            let engine = status.as_ref().map(status_json);
            render::json(&json!({"status": "ok", "engine": engine}))?;
            return Ok(Exit::Ok);
        }
        let line = match &status {
            Some(status) => status_line(status),
            None => "the engine does not run; a call that needs it starts it".to_owned(),
        };
        render::lines(&[line])?;
        Ok(Exit::Ok)
    }

    fn stop(&self, config: &Config) -> Result<Exit, CommandFault> {
        let was_running = EngineClient::new(config.engine_launch()).stop().map_err(engine_fault)?;
        if self.flags.json {
            render::json(&json!({"status": "ok", "was_running": was_running}))?;
        } else {
            render::text(if was_running { "stopped" } else { "the engine did not run" })?;
        }
        Ok(Exit::Ok)
    }
}

/// Whether calls can run a model on this machine: with this program's engine, or with another that is configured.
pub(crate) fn has_engine(config: &Config) -> bool {
    cfg!(feature = "engine") || config.settings().engine_command.is_some()
}

pub(crate) fn no_engine() -> CommandFault {
    CommandFault::setup(
        "this recurgent was built without the engine that runs a model; in its source, \
         `cargo install --locked --path crates/cli --features engine` builds one with it",
    )
}

/// Where models are and where they come from.
pub(crate) fn model_options(config: &Config) -> Result<ModelOptions, CommandFault> {
    config.model_options().map_err(|fault: ProviderFault| CommandFault::setup(fault.to_string()))
}

fn folder(options: &ModelOptions) -> Result<ModelFolder, CommandFault> {
    options.folder().ok_or_else(|| {
        CommandFault::setup("there is no home directory to keep models in; set models_dir")
    })
}

fn engine_fault(failure: EngineFailure) -> CommandFault {
    match failure {
        EngineFailure::Cancelled => CommandFault::cancelled("stopped"),
        EngineFailure::Setup(message) => CommandFault::setup(message),
        EngineFailure::Ended(message)
        | EngineFailure::Refused(message)
        | EngineFailure::Failed(message) => CommandFault::failed(message),
        EngineFailure::TimedOut => CommandFault::failed(failure.to_string()),
    }
}

fn installed_json(model: &InstalledModel) -> Value {
    json!({"name": model.name, "path": model.path, "bytes": model.bytes})
}

fn known_json(model: &KnownModel) -> Value {
    json!({
        "name": model.name, "file": model.file, "bytes": model.bytes,
        "sha256": model.sha256, "licence": model.licence,
    })
}

fn status_json(status: &EngineStatus) -> Value {
    json!({
        "pid": status.pid, "version": status.version, "model": status.model,
        "requests": status.requests, "answered": status.answered,
        "memory_bytes": status.memory_bytes, "running_seconds": status.running_seconds,
        "idle_limit_seconds": status.idle_limit_seconds,
    })
}

fn status_line(status: &EngineStatus) -> String {
    let model = match &status.model {
        Some(path) => format!("has loaded {}", clean(&path.display().to_string())),
        None => "has loaded no model".to_owned(),
    };
    format!(
        "the engine (process {}) {model}, takes {}, answered {} in {} s, {} under way",
        status.pid,
        render::size(status.memory_bytes),
        counted(status.answered, "request"),
        status.running_seconds,
        status.requests
    )
}
