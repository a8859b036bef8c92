//! `recurgent tools list`: the tools agents forged, and every stored program.

use lifecycle::artifact::Author;
use lifecycle::select::{Miss, unfit};
use lifecycle::standing::{Standing, StandingMode};
use lifecycle::tool::KnownTool;
use recurgent::store::catalog::TaughtMethod;
use recurgent::store::prelude::*;
use recurgent::{ProgramOrigin, ProgramSummary};
use serde_json::{Value, json};

use super::correct::CorrectionCommands;
use crate::exit::CommandFault;
use crate::render::paint::Style;
use crate::render::table::{Column, Table, cell, plain};
use crate::render::{self, Stream};

/// Most tools, and most programs, that are listed.
const MAX_LISTED: usize = 10_000;

pub(super) fn list(commands: &CorrectionCommands, as_json: bool) -> Result<(), CommandFault> {
    let (store, stored) = commands.parts();
    let tools = store.tools(None, MAX_LISTED)?;
    let programs = stored.list(None)?;
    let has_program = |taught: &TaughtMethod| {
        programs
            .iter()
            .map(|it| &it.program.current)
            .any(|program| (&program.role, &program.method) == (&taught.role, &taught.method))
    };
    let taught: Vec<TaughtMethod> =
        stored.taught(None)?.into_iter().filter(|taught| !has_program(taught)).collect();
    if as_json {
        let tools: Vec<Value> = tools.iter().map(known_json).collect();
        let programs: Vec<Value> = programs.iter().map(program_json).collect();
        let taught: Vec<Value> = taught
            .iter()
            .map(|it| json!({"role": it.role, "method": it.method, "examples": it.examples}))
            .collect();
        return render::json(&json!({
            "tools": tools, "programs": programs, "taught_without_program": taught,
        }));
    }
    if tools.is_empty() && programs.is_empty() && taught.is_empty() {
        render::notice(
            "no programs yet; a call such as `recurgent call calculator add 3 4` stores one",
        );
    }
    let mut lines = Vec::new();
    for (title, table) in [
        ("tools", tool_table(&tools)),
        ("programs", program_table(&programs)),
        ("examples without a program", taught_table(&taught)),
    ] {
        let (room, paint) = (render::room(Stream::Output), render::paint(Stream::Output));
        let rows = table.lines(room, paint);
        if !rows.is_empty() {
            lines.push(paint.in_style(Style::Title, title));
            lines.extend(rows);
        }
    }
    render::lines(&lines)
}

fn program_json(found: &ProgramSummary) -> Value {
    let program = &found.program.current;
    let is_pinned_in_directory = found.origin == ProgramOrigin::ToolsDirectory;
    json!({
        "role": program.role,
        "method": program.method,
        "language": program.language,
        "contract_fingerprint": program.contract_fingerprint,
        "version": (!is_pinned_in_directory).then_some(found.program.version),
        "checksum": program.checksum,
        "author": program.track_record.author.name(),
        "pinned": found.program.pinned,
        "in_tools_dir": is_pinned_in_directory,
        "successes": program.successes,
        "failures": program.failures,
        "standing": program.track_record.standing.name(),
        "examples": found.examples,
        "not_run_because": miss(found).map(Miss::name),
    })
}

/// Why calls do not run it.
fn miss(found: &ProgramSummary) -> Option<Miss> {
    unfit(&found.program.current, StandingMode::Shadow)
}

fn tool_table(tools: &[KnownTool]) -> Table {
    let mut table = Table::new(&[
        Column::text("name").shrinks_to(10),
        Column::number("used"),
        Column::number("ok"),
        Column::number("failed"),
        Column::text("purpose").shrinks_to(10).expendable(1),
    ]);
    for known in tools {
        let purpose = known.tool.contract.as_ref().and_then(|contract| contract.purpose.as_deref());
        table.row(vec![
            cell(Style::Name, known.tool.name.as_str()),
            plain(known.usage_count.to_string()),
            plain(known.success_count.to_string()),
            plain(known.failure_count.to_string()),
            plain(purpose.unwrap_or_default()),
        ]);
    }
    table
}

fn program_table(programs: &[ProgramSummary]) -> Table {
    let mut table = Table::new(&[
        Column::text("program").shrinks_to(10),
        Column::text("guest").expendable(2),
        Column::text("version").expendable(1),
        Column::number("ok"),
        Column::number("failed"),
        Column::number("examples").expendable(3),
        Column::text("notes").shrinks_to(10).expendable(4),
    ]);
    for found in programs {
        let program = &found.program.current;
        let version = match found.origin {
            ProgramOrigin::Store => found.program.version.to_string(),
            ProgramOrigin::ToolsDirectory => "tools_dir".to_owned(),
        };
        table.row(vec![
            cell(Style::Name, format!("{}.{}", program.role, program.method)),
            plain(program.language.name()),
            plain(version),
            plain(program.successes.to_string()),
            plain(program.failures.to_string()),
            plain(found.examples.to_string()),
            plain(notes(found).join(", ")),
        ]);
    }
    table
}

/// What sets a program apart: its author, a pin, and why it does not run.
fn notes(found: &ProgramSummary) -> Vec<String> {
    let record = &found.program.current.track_record;
    let author = match record.author {
        Author::Model => None,
        Author::Person => Some("by a person".to_owned()),
    };
    let pinned = found.program.pinned.then(|| "pinned".to_owned());
    let state = match miss(found) {
        Some(Miss::Degraded) => {
            Some("degraded: runs only while no better program can be obtained".to_owned())
        }
        Some(miss) => Some(format!("does not run: {}", miss.name())),
        None if record.standing == Standing::Degraded => Some("degraded".to_owned()),
        None => None,
    };
    [author, pinned, state].into_iter().flatten().collect()
}

fn taught_table(taught: &[TaughtMethod]) -> Table {
    let mut table =
        Table::new(&[Column::text("method").shrinks_to(10), Column::number("examples")]);
    for it in taught {
        let name = cell(Style::Name, format!("{}.{}", it.role, it.method));
        table.row(vec![name, plain(it.examples.to_string())]);
    }
    table
}

fn known_json(known: &KnownTool) -> Value {
    let mut entry = known.to_json();
    if let Value::Object(fields) = &mut entry {
        fields.insert("name".to_owned(), json!(known.tool.name));
    }
    entry
}
