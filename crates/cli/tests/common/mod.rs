//! The environment in which every test runs the binary.

use std::path::Path;
use std::process::{Command, Stdio};

/// `recurgent` with these arguments, in a home directory that no other test uses. Nothing is inherited but the search
/// path.
pub(crate) fn recurgent(home: &Path, line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recurgent"));
    command
        .args(line)
        .current_dir(home)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home)
        .env("RECURGENT_STATE_DIR", home.join("state"))
        .env("RECURGENT_CACHE_DIR", home.join("cache"))
        .env("RECURGENT_MODELS_DIR", home.join("models"))
        .env("RECURGENT_LOCAL_SERVERS", "")
        .stdin(Stdio::null());
    command
}
