//! **Shows.** The `recurgent` binary: commands, and the rendering of their results.

mod command;
mod demo;
#[cfg(feature = "engine")]
mod engine;
mod exit;
mod interrupt;
mod logbook;
mod render;

use std::process::ExitCode;

fn main() -> ExitCode {
    match command::run(std::env::args_os().collect()) {
        Ok(exit) => exit.into(),
        Err(fault) => {
            render::fault(&fault);
            fault.exit.into()
        }
    }
}
