//! `recurgent init`: writes a configuration file and checks it.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use recurgent::Language;
use recurgent::config::{Config, ConfigFault, KEYS};
use recurgent::provider::service_names;
use serde_json::Value;

use super::doctor;
use super::settings::language_parser;
use crate::exit::{CommandFault, Exit};
use crate::render;

/// Longest answer to a question.
const MAX_ANSWER_BYTES: u64 = 4096;

const EXAMPLES: &str = "\
Examples:
  recurgent init                                             asks, on a terminal
  recurgent init --base-url http://127.0.0.1:11434/v1        a server of your own
  recurgent init --provider anthropic --key-file ~/.anthropic-key
  recurgent init --guest ruby --gem-source https://gems.example.org

The file holds every setting with what it does; those you do not choose are comments.";

/// Write a configuration file and check it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitOptions {
    /// The provider that writes programs, such as anthropic
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Where the model service is
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Which model to ask
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// A file only you can read that holds the key of the service
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The language programs are written in
    #[arg(long, value_name = "LANGUAGE", value_parser = language_parser())]
    guest: Option<Language>,
    /// Take Python packages from here only; may be repeated
    #[arg(long, value_name = "URL")]
    python_index: Vec<String>,
    /// Take gems from here only; may be repeated
    #[arg(long, value_name = "URL")]
    gem_source: Vec<String>,
    /// Replace the file if there is one; the old one is kept beside it
    #[arg(long)]
    force: bool,
    /// Ask nothing, also on a terminal
    #[arg(long)]
    defaults: bool,
}

/// A setting and its value.
type Chosen = (&'static str, String);

/// What is asked on a terminal: the setting, the question, and an empty answer's meaning.
const QUESTIONS: [(&str, &str, &str); 7] = [
    ("provider", "Which provider writes programs?", "chosen by key"),
    ("base_url", "Where is the model service?", "its usual address"),
    ("model", "Which model?", "the usual one, or the one the server names"),
    ("api_key_file", "Which file holds its key?", "the environment"),
    ("guest", "In which language are programs written (python, ruby)?", "python"),
    ("python_indexes", "Where are Python packages taken from?", "the usual index"),
    ("gem_sources", "Where are gems taken from?", "the usual source"),
];
/// Old files that are kept beside the new one.
const MAX_OLD_FILES: usize = 1_000;

impl InitOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let path = Config::file_to_write().ok_or_else(|| {
            CommandFault::setup(
                "there is no home directory for a configuration file; name one with RECURGENT_CONFIG",
            )
        })?;
        if path.exists() && !self.force {
            return Err(CommandFault::usage(format!(
                "{} exists already; change it, or replace it with --force",
                path.display()
            )));
        }
        let mut chosen = self.given()?;
        if io::stdin().is_terminal() && !self.defaults {
            // What there is without a file; an old one is replaced, and says nothing here.
            let found = Config::load().ok().filter(|_| !path.exists());
            ask(&mut chosen, found.as_ref())?;
        }
        let has_sources = |(name, _): &Chosen| matches!(*name, "python_indexes" | "gem_sources");
        if chosen.iter().any(has_sources) {
            chosen.push(("source_mode", "internal_only".to_owned()));
        }
        check(&chosen)?;
        write(&path, &file_text(&chosen))?;
        render::note(&format!("wrote {}; checking it:", path.display()));
        doctor::report(&Config::load()?)
    }

    /// What the flags say.
    fn given(&self) -> Result<Vec<Chosen>, CommandFault> {
        let key_file = self.key_file.as_deref().map(absolute).transpose()?;
        let text = |list: &[String]| (!list.is_empty()).then(|| list.join(", "));
        let given = [
            ("provider", self.provider.clone()),
            ("base_url", self.base_url.clone()),
            ("model", self.model.clone()),
            ("api_key_file", key_file),
            ("guest", self.guest.map(|guest| guest.name().to_owned())),
            ("python_indexes", text(&self.python_index)),
            ("gem_sources", text(&self.gem_source)),
        ];
        Ok(given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }
}

/// A key file must be found from every directory. No shell has replaced the `~` of an answer.
fn absolute(path: &Path) -> Result<String, CommandFault> {
    let in_home =
        path.strip_prefix("~").ok().zip(Config::home_dir()).map(|(rest, home)| home.join(rest));
    let found = fs::canonicalize(in_home.as_deref().unwrap_or(path)).map_err(|error| {
        CommandFault::usage(format!("cannot use {}: {error}; check the path", path.display()))
    })?;
    Ok(found.display().to_string())
}

/// Asks for what no flag says. An empty answer leaves the setting alone. Nothing is written if the answers end early.
fn ask(chosen: &mut Vec<Chosen>, found: Option<&Config>) -> Result<(), CommandFault> {
    for (name, question, otherwise) in QUESTIONS {
        if chosen.iter().any(|(known, _)| *known == name) {
            continue;
        }
        if name == "provider" {
            render::note(&format!("Providers: {}, embedded", service_names()));
            if let Some(config) = found {
                render::note(&format!("Without answers: {}", doctor::provider_found(config)));
            }
        }
        loop {
            render::replace_line(&format!("{question} [{otherwise}] "));
            let Some(answer) = answer()? else {
                render::note("");
                return Err(CommandFault::usage(
                    "the answers ended early, so nothing is written; give settings as flags, or --defaults",
                ));
            };
            if answer.is_empty() {
                break;
            }
            match usable(name, answer) {
                Ok(answer) => {
                    chosen.push((name, answer));
                    break;
                }
                Err(problem) => render::notice(&problem),
            }
        }
    }
    Ok(())
}

/// An answer as the file has it. The error says what is wrong with it.
fn usable(name: &str, answer: String) -> Result<String, String> {
    let answer = match name {
        "api_key_file" => absolute(Path::new(&answer)).map_err(|fault| fault.message)?,
        _ => answer,
    };
    // No flag was given.
    let problem = |fault: ConfigFault| fault.to_string().replace(" (flag)", "");
    Config::defaults().set(name, &answer).map_err(problem)?;
    Ok(answer)
}

/// A line of standard input; `None` at its end.
fn answer() -> Result<Option<String>, CommandFault> {
    let mut line = String::new();
    let read = io::Read::take(io::stdin().lock(), MAX_ANSWER_BYTES).read_line(&mut line);
    match read {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(line.trim().to_owned())),
        Err(error) => Err(CommandFault::setup(format!("cannot read the answer: {error}"))),
    }
}

/// Refuses values that the file could not be read with.
fn check(chosen: &[Chosen]) -> Result<(), CommandFault> {
    let mut config = Config::defaults();
    for (name, text) in chosen {
        config.set(name, text).map_err(|fault| CommandFault::usage(fault.to_string()))?;
    }
    Ok(())
}

/// Every setting with its help: those chosen, and the others as comments with their defaults.
fn file_text(chosen: &[Chosen]) -> String {
    let mut text = String::from(
        "# Settings of recurgent. A line that begins with # is a comment.\n\
         # `recurgent config` shows what is in effect, and where it comes from.\n",
    );
    for key in KEYS {
        let is_set = chosen.iter().find(|(name, _)| *name == key.name);
        let (mark, value) = match is_set {
            Some((_, value)) => ("", value.clone()),
            None => ("# ", key.default()),
        };
        let _ = write!(text, "\n# {}\n{mark}{} = {}\n", key.help(), key.name, quoted(&value)); // writing to a string does not fail
    }
    text.push_str(
        "\n# Several services: name them, and choose one with `profile` above or --profile NAME.\n\
         # They take the place of `provider` above.\n\
         # [provider.local]\n# provider = \"compatible\"\n# base_url = \"http://127.0.0.1:8080/v1\"\n",
    );
    text
}

/// A TOML string, which JSON's form is, for text without control characters.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Writes the file whole, beside the one it replaces.
fn write(path: &Path, text: &str) -> Result<(), CommandFault> {
    let unwritable = |error: io::Error| {
        CommandFault::setup(format!(
            "cannot write {}: {error}; name another file with RECURGENT_CONFIG",
            path.display()
        ))
    };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(unwritable)?;
    }
    if path.exists() {
        let old = unused_name(path);
        fs::rename(path, &old).map_err(unwritable)?;
        render::note(&format!("the file that was there is {} now", old.display()));
    }
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(path).map_err(unwritable)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(unwritable)
}

/// A name for the old file that no older one has.
fn unused_name(path: &Path) -> PathBuf {
    let first = path.with_extension("toml.old");
    let later = (2..MAX_OLD_FILES).map(|number| path.with_extension(format!("toml.old{number}")));
    let mut names = std::iter::once(first.clone()).chain(later);
    names.find(|name| name.symlink_metadata().is_err()).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_in_the_file_once() {
        let text = file_text(&[("guest", "ruby".to_owned())]);
        assert!(text.contains("\nguest = \"ruby\"\n"), "{text}");
        for key in KEYS.iter().filter(|key| key.name != "guest") {
            let line = format!("\n# {} = {}\n", key.name, quoted(&key.default()));
            assert_eq!(text.matches(&line).count(), 1, "{line}");
        }
    }
}
