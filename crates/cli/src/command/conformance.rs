//! `recurgent conformance`: a slot.

use std::path::PathBuf;

use clap::Args;

use crate::exit::{Exit, Fault};

/// Check that scenarios give the same result on a guest language
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the scenarios are
    #[arg(long)]
    dir: PathBuf,
    /// The language programs are written in
    #[arg(long, value_name = "LANGUAGE", value_parser = ["python", "ruby"])]
    guest: String,
    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,
}

impl Options {
    pub(crate) fn run(self) -> Result<Exit, Fault> {
        let Self { dir: _, guest: _, json: _ } = self;
        Err(Fault::setup("conformance is not built into this binary; use a newer one"))
    }
}
