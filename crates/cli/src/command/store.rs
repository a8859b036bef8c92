//! `recurgent store`: what outlives calls, as a whole.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lifecycle::excerpt::counted;
use recurgent::store::bundle::{Bundle, ImportNote};
use recurgent::store::layout::{self, LayoutFault};
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use serde_json::{Value, json};

use super::settings::{StateFlags, VerbFlags};
use crate::exit::{CommandFault, Exit};
use crate::render::paint::{Style, clean};
use crate::render::{self, Stream};

const EXAMPLES: &str = "\
Examples:
  recurgent store export backup    registry.json, patterns.json, artifacts/ and sessions/ in a new directory
  recurgent store import backup    takes what is new; says what it left and why
  recurgent store check            is the file whole?";

/// Export, import or check what outlives calls
///
/// An export holds tools, programs, patterns, and the memory and history of sessions; recorded calls, decisions and
/// stored contents stay. Exporting what was imported into an empty store gives the same bytes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StoreOptions {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    flags: VerbFlags,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write tools, programs, patterns and sessions to a new directory
    Export {
        /// The directory, which must be empty or new
        directory: PathBuf,
    },
    /// Take in what an export, or the reference runtime (an earlier one), wrote; what is newer here stays
    Import {
        /// The directory
        directory: PathBuf,
    },
    /// Look at the whole file for damage
    Check,
}

impl StoreOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        match &self.verb {
            Verb::Export { directory } => {
                export(
                    &opened(&self.flags.place)?.bundle_with_sessions()?,
                    directory,
                    self.flags.json,
                )?;
                Ok(Exit::Ok)
            }
            Verb::Import { directory } => {
                import(&opened(&self.flags.place)?, directory, self.flags.json)
            }
            Verb::Check => self.check(),
        }
    }

    fn check(&self) -> Result<Exit, CommandFault> {
        let path = self.flags.place.config(&[])?.store_path()?;
        let store = SqliteStore::open(&path)?;
        let mut problems = store.check()?;
        let advice = match problems.as_slice() {
            [] => "SQLite's own `sqlite3 FILE .recover` shows what can be read of that file",
            [..] => {
                "save what is readable with `recurgent store export DIR`, move the file away, and import DIR"
            }
        };
        // A file found damaged was moved aside: what is whole then is the new one.
        problems.extend(store.notices());
        let exit = if problems.is_empty() { Exit::Ok } else { Exit::Failed };
        if self.flags.json {
            render::json(&json!({
                "store": path.display().to_string(),
                "ok": problems.is_empty(),
                "problems": problems,
            }))?;
            return Ok(exit);
        }
        if problems.is_empty() {
            render::lines(&[format!("{} is whole", clean(&path.display().to_string()))])?;
        } else {
            let room = render::room(Stream::Output);
            let rows = problems.iter().flat_map(|problem| render::beside("", 0, problem, room));
            render::lines(&rows.collect::<Vec<_>>())?;
            render::notice(advice);
        }
        Ok(exit)
    }
}

/// Opens the store that the settings name, and prints notices about it.
pub(super) fn opened(place: &StateFlags) -> Result<SqliteStore, CommandFault> {
    let store = SqliteStore::open(&place.config(&[])?.store_path()?)?;
    store.notices().iter().for_each(|notice| render::notice(notice));
    Ok(store)
}

pub(super) fn export(bundle: &Bundle, directory: &Path, as_json: bool) -> Result<(), CommandFault> {
    let files = layout::write(bundle, directory).map_err(|problem| fault(&problem))?;
    let counts = json!({
        "directory": directory.display().to_string(),
        "files": files,
        "tools": bundle.tools.len(),
        "artifacts": bundle.artifacts.len(),
        "patterns": bundle.patterns.len(),
        "sessions": bundle.sessions.len(),
        "left_out": verdicts_json(&bundle.notes),
    });
    if as_json {
        return render::json(&counts);
    }
    for ImportNote { what, why } in &bundle.notes {
        render::notice(&format!("left out of {what}: {why}"));
    }
    render::note(&format!(
        "wrote {}, {}, {} and {} of sessions to {}",
        counted(bundle.tools.len(), "tool"),
        counted(bundle.artifacts.len(), "method"),
        counted(bundle.patterns.len(), "pattern event"),
        counted(bundle.sessions.len(), "agent"),
        directory.display()
    ));
    Ok(())
}

/// All that could be read goes in together; a refused file makes the exit code say so.
pub(super) fn import(
    store: &SqliteStore,
    directory: &Path,
    as_json: bool,
) -> Result<Exit, CommandFault> {
    let read = layout::read(directory).map_err(|problem| fault(&problem))?;
    let merged = store.merge(&read.bundle)?;
    let refused = !read.refused.is_empty() || !merged.conflicts.is_empty();
    let exit = if refused { Exit::Failed } else { Exit::Ok };
    let groups = [
        ("taken", &merged.taken, Style::Good),
        ("noted", &merged.noted, Style::Faint),
        ("skipped", &merged.skipped, Style::Faint),
        ("conflicts", &merged.conflicts, Style::Warning),
        ("refused", &read.refused, Style::Bad),
    ];
    if as_json {
        let report: serde_json::Map<String, Value> = groups
            .iter()
            .map(|(name, verdicts, _)| ((*name).to_owned(), verdicts_json(verdicts)))
            .collect();
        render::json(&Value::Object(report))?;
        return Ok(exit);
    }
    let paint = render::paint(Stream::Output);
    let mut rows = Vec::new();
    for (name, verdicts, style) in groups {
        for ImportNote { what, why } in verdicts {
            let label = paint.in_style(style, &format!("{name:<9}"));
            rows.push(format!("{label} {}: {}", clean(what), clean(why)));
        }
    }
    render::lines(&rows)?;
    if !read.refused.is_empty() {
        render::notice(
            "repair or remove the refused files and import again; what was imported stays",
        );
    }
    Ok(exit)
}

fn verdicts_json(verdicts: &[ImportNote]) -> Value {
    verdicts.iter().map(|ImportNote { what, why }| json!({"what": what, "why": why})).collect()
}

fn fault(fault: &LayoutFault) -> CommandFault {
    match fault {
        LayoutFault::Occupied(_) => CommandFault::usage(fault.to_string()),
        LayoutFault::NothingThere(_) => CommandFault::missing(fault.to_string()),
        LayoutFault::TooMany(_) | LayoutFault::File { .. } => {
            CommandFault::setup(fault.to_string())
        }
    }
}
