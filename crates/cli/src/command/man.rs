//! `recurgent man`: manual pages, made from the help texts.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::exit::{CommandFault, Exit};
use crate::render;

const EXAMPLES: &str = "\
Examples:
  recurgent man ~/.local/share/man/man1
  recurgent man . && man ./recurgent-call.1";

/// Write manual pages, one for each command
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManOptions {
    /// The directory to write them to; it is made if it is not there
    dir: PathBuf,
}

impl ManOptions {
    /// Writes the pages of a command and of everything beneath it.
    pub(crate) fn run<C: CommandFactory>(self) -> Result<Exit, CommandFault> {
        let unwritable = |error| {
            CommandFault::setup(format!(
                "cannot write manual pages to {}: {error}; name a directory you can write to",
                self.dir.display()
            ))
        };
        std::fs::create_dir_all(&self.dir).map_err(unwritable)?;
        clap_mangen::generate_to(C::command(), &self.dir).map_err(unwritable)?;
        render::note(&format!(
            "manual pages are in {}; `man {}` shows one",
            self.dir.display(),
            self.dir.join("recurgent.1").display()
        ));
        Ok(Exit::Ok)
    }
}
