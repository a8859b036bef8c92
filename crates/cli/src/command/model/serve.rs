//! `recurgent model serve`: the engine process.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use embedded::{EngineOptions, PROCESS_ENVIRONMENT};
use recurgent::config::Config;
use recurgent::regular_file::read_named;
use recurgent::worker::close_on_exec;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{ServeOptions, model_options};
use crate::engine::{self, HttpOptions, Served, ServerOptions, StopSignal};
use crate::exit::{CommandFault, Exit};

/// The flag that marks a process as started with [`PROCESS_ENVIRONMENT`].
pub(super) const PREPARED: &str = "--prepared";

impl ServeOptions {
    pub(super) fn run(&self, config: &Config) -> Result<Exit, CommandFault> {
        if self.detach {
            // Fails only for the leader of a process group. An engine that a call starts is not one.
            let _ = rustix::process::setsid();
        }
        if !self.prepared {
            return Err(exec_prepared(self.detach));
        }
        let launch = config.engine_launch();
        let folder = launch.folder().map_err(super::engine_fault)?.to_owned();
        let settings = config.settings();
        let options = ServerOptions {
            folder,
            idle_limit: self.detach.then_some(settings.engine_idle_seconds),
            engine: engine_options(config),
            http: self.http_options()?,
            models: model_options(config)?.folder(),
        };
        let stop = Arc::new(StopSignal::new().map_err(|error| signals_unavailable(&error))?);
        stop_on_signal(Arc::clone(&stop), self.detach)?;
        match engine::serve(options, &stop)? {
            Served::AnotherRuns if !self.detach => Err(CommandFault::failed(
                "an engine runs already; end it with `recurgent model stop`, then try again",
            )),
            Served::AnotherRuns | Served::Ended => Ok(Exit::Ok),
        }
    }

    fn http_options(&self) -> Result<Option<HttpOptions>, CommandFault> {
        let Some(port) = self.http else { return Ok(None) };
        let token =
            self.token_file.as_ref().map(|file| {
                let read = read_named(file).map_err(|error| error.to_string());
                let token = read.map(|token| token.trim().to_owned());
                token
                    .and_then(|token| {
                        if token.is_empty() { Err("it is empty".to_owned()) } else { Ok(token) }
                    })
                    .map_err(|problem| {
                        CommandFault::setup(format!(
                            "cannot use the token in {}: {problem}",
                            file.display()
                        ))
                    })
            });
        Ok(Some(HttpOptions { port, token: token.transpose()? }))
    }
}

/// How the model runs, by the settings.
pub(super) fn engine_options(config: &Config) -> EngineOptions {
    let settings = config.settings();
    let bytes = settings.engine_prefix_mb << 20;
    EngineOptions {
        threads: Some(settings.engine_threads).filter(|threads| *threads > 0),
        prefixes: config.prefix_dir().filter(|_| bytes > 0),
        prefix_cache_bytes: bytes,
        context_tokens: settings.engine_context_tokens,
    }
}

/// Replaces this process by the same program with [`PROCESS_ENVIRONMENT`] and without inherited descriptors. Returns only
/// if that fails.
pub(super) fn exec_prepared(clears_environment: bool) -> CommandFault {
    let fault = |error: std::io::Error| {
        CommandFault::setup(format!("cannot start the engine: {error}; check engine_command"))
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return fault(error),
    };
    if let Err(error) = close_on_exec() {
        return fault(error);
    }
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).arg(PREPARED);
    if clears_environment {
        command.env_clear();
    }
    command.envs(PROCESS_ENVIRONMENT);
    fault(command.exec())
}

fn stop_on_signal(stop: Arc<StopSignal>, is_detached: bool) -> Result<(), CommandFault> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| signals_unavailable(&error))?;
    let handle = move || {
        for signal in signals.forever() {
            // A detached engine ignores that the terminal of its client was closed.
            if !(is_detached && signal == SIGHUP) {
                stop.stop();
            }
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(handle)
        .map_err(|error| signals_unavailable(&error))?;
    Ok(())
}

fn signals_unavailable(error: &std::io::Error) -> CommandFault {
    CommandFault::setup(format!("cannot listen for signals: {error}; run again"))
}
