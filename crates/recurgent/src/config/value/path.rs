//! Paths, directories, and where the log is written.

use std::path::{Path, PathBuf};

use super::{Expected, LogTarget, ValueType};

/// A path, or none when the text is empty.
pub(in crate::config) fn optional_path() -> ValueType<str, Option<PathBuf>> {
    ValueType {
        read: |text| Ok(Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty())),
        check: |path| path.map(not_empty).transpose(),
    }
}

fn not_empty(path: PathBuf) -> Result<PathBuf, Expected> {
    if path.as_os_str().is_empty() {
        return Err("a path that is not empty".to_owned());
    }
    Ok(path)
}

/// Where the log is written.
pub(in crate::config) fn log_target() -> ValueType<str, LogTarget> {
    ValueType {
        read: |text| match text {
            "" => Ok(LogTarget::StateDir),
            // `false` in the configuration file: no log, not a file of this name.
            "off" | "false" => Ok(LogTarget::Off),
            "true" => Ok(LogTarget::StateDir),
            word if is_switch(word) => {
                Err(format!("off or a path (write `./{word}` for a file of this name)"))
            }
            path => Ok(LogTarget::File(PathBuf::from(path))),
        },
        check: |target| match target {
            LogTarget::File(path) => not_empty(path).map(LogTarget::File),
            LogTarget::StateDir | LogTarget::Off => Ok(target),
        },
    }
}

/// Whether a text looks like a switch (`on`, `false`), not a file name.
pub(super) fn is_switch(text: &str) -> bool {
    let words = ["off", "on", "false", "true", "no", "yes", "none", "null", "disabled", "0", "1"];
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Paths, made absolute: a grant must not depend on the directory a program runs in.
pub(in crate::config) fn paths() -> ValueType<[String], Vec<PathBuf>> {
    ValueType {
        read: |items| {
            let items = items.iter().filter(|path| !path.is_empty());
            items.map(|path| absolute(PathBuf::from(path))).collect()
        },
        check: |paths| paths.into_iter().map(|path| absolute(not_empty(path)?)).collect(),
    }
}

#[expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]
fn absolute(path: PathBuf) -> Result<PathBuf, Expected> {
    std::path::absolute(path).map_err(|error| {
        format!("absolute paths, because the working directory cannot be found ({error})")
    })
}

/// A directory that exists, as an absolute path without links; none when the text is empty.
pub(in crate::config) fn directory() -> ValueType<str, Option<PathBuf>> {
    ValueType {
        read: |text| if text.is_empty() { Ok(None) } else { existing(Path::new(text)).map(Some) },
        check: |path| path.map(|path| existing(&path)).transpose(),
    }
}

fn existing(path: &Path) -> Result<PathBuf, Expected> {
    match std::fs::canonicalize(path) {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err("a directory; name the one that holds the file".to_owned()),
        Err(error) => Err(format!("a directory that exists ({error})")),
    }
}

/// The working directory, if it can be found.
#[expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]
pub(in crate::config) fn working_directory() -> Option<PathBuf> {
    std::env::current_dir().ok()
}
