//! **Shows.** The `recurgent` binary: commands, and how what comes of them looks.

mod command;
mod demo;
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
