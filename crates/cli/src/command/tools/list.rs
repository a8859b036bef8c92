//! `recurgent tools list`: the tools agents forged, and every stored program.

use std::fmt::Write as _;

use lifecycle::artifact::Author;
use lifecycle::select::{Miss, unfit};
use lifecycle::standing::StandingMode;
use lifecycle::tool::KnownTool;
use recurgent::store::catalog::KnownArtifact;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use serde_json::{Value, json};

use crate::exit::CommandFault;
use crate::render::paint::{Style, clean, clip};
use crate::render::{self, Stream};

/// Most tools, and most programs, that are listed.
const MAX_LISTED: usize = 10_000;
/// Columns of a purpose that are shown.
const PURPOSE_COLUMNS: usize = 60;

pub(super) fn list(store: &SqliteStore, as_json: bool) -> Result<(), CommandFault> {
    let tools = store.tools(None, MAX_LISTED)?;
    let programs = programs(store)?;
    if as_json {
        let tools: Vec<Value> = tools.iter().map(known_json).collect();
        let programs: Vec<Value> = programs.iter().map(Listed::to_json).collect();
        return render::json(&json!({ "tools": tools, "programs": programs }));
    }
    if tools.is_empty() && programs.is_empty() {
        render::notice(
            "no programs yet; a call such as `recurgent call calculator add 3 4` stores one",
        );
    }
    let paint = render::paint(Stream::Output);
    let mut rows = Vec::new();
    for (title, section) in [
        ("tools", tools.iter().map(tool_row).collect::<Vec<_>>()),
        ("programs", programs.iter().map(Listed::row).collect()),
    ] {
        if !section.is_empty() {
            rows.push(paint.in_style(Style::Title, title));
            rows.extend(section.into_iter().map(|row| format!("  {row}")));
        }
    }
    render::lines(&rows)
}

/// A stored program, and how many examples its method has.
struct Listed {
    known: KnownArtifact,
    author: Author,
    examples: usize,
}

fn programs(store: &SqliteStore) -> Result<Vec<Listed>, CommandFault> {
    let known = store.artifacts(None, MAX_LISTED)?;
    let listed = known.into_iter().map(|known| {
        let examples = store.examples(&known.current.role, &known.current.method)?.len();
        let author = known.current.repute.author;
        Ok(Listed { known, author, examples })
    });
    listed.collect()
}

impl Listed {
    fn to_json(&self) -> Value {
        let program = &self.known.current;
        json!({
            "role": program.role,
            "method": program.method,
            "language": program.language,
            "contract_fingerprint": program.contract_fingerprint,
            "version": self.known.version,
            "checksum": program.checksum,
            "author": self.author.name(),
            "pinned": self.known.pinned,
            "successes": program.successes,
            "failures": program.failures,
            "examples": self.examples,
            "not_run_because": self.miss().map(Miss::name),
        })
    }

    /// Why calls do not run it.
    fn miss(&self) -> Option<Miss> {
        unfit(&self.known.current, StandingMode::Shadow)
    }

    fn row(&self) -> String {
        let paint = render::paint(Stream::Output);
        let program = &self.known.current;
        let name = clean(&format!("{}.{}", program.role, program.method));
        let mut facts = format!(
            "{}, version {}, ok {}, failed {}",
            program.language, self.known.version, program.successes, program.failures
        );
        match self.author {
            Author::Model => {}
            Author::Person => facts.push_str(", by a person"),
        }
        if self.known.pinned {
            facts.push_str(", pinned");
        }
        if let Some(miss) = self.miss() {
            let _ = write!(facts, ", does not run: {}", miss.name());
        }
        if self.examples > 0 {
            let plural = if self.examples == 1 { "" } else { "s" };
            let _ = write!(facts, ", {} example{plural}", self.examples);
        }
        let name = paint.in_style(Style::Name, &format!("{name:<24}"));
        format!("{name} {}", paint.in_style(Style::Faint, &facts))
    }
}

fn tool_row(known: &KnownTool) -> String {
    let paint = render::paint(Stream::Output);
    let purpose = known.tool.contract.as_ref().and_then(|contract| contract.purpose.as_deref());
    let facts = format!(
        "used {}, ok {}, failed {}",
        known.usage_count, known.success_count, known.failure_count
    );
    format!(
        "{} {} {}",
        paint.in_style(Style::Name, &format!("{:<24}", clean(known.tool.name.as_str()))),
        paint.in_style(Style::Faint, &format!("{facts:<26}")),
        clip(&clean(purpose.unwrap_or_default()), PURPOSE_COLUMNS)
    )
}

fn known_json(known: &KnownTool) -> Value {
    let mut entry = known.to_json();
    if let Value::Object(fields) = &mut entry {
        fields.insert("name".to_owned(), json!(known.tool.name));
    }
    entry
}
