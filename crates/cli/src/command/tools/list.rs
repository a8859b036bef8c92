//! `recurgent tools list`: the tools agents forged, and every stored program.

use std::fmt::Write as _;

use lifecycle::artifact::Author;
use lifecycle::request::{Method, Role};
use lifecycle::select::{Miss, unfit};
use lifecycle::standing::{Standing, StandingMode};
use lifecycle::tool::KnownTool;
use recurgent::store::catalog::TaughtMethod;
use recurgent::store::prelude::*;
use recurgent::{ProgramOrigin, ProgramSummary};
use serde_json::{Value, json};

use super::correct::CorrectionCommands;
use crate::exit::CommandFault;
use crate::render::paint::{Style, clean, clip};
use crate::render::{self, Stream};

/// Most tools, and most programs, that are listed.
const MAX_LISTED: usize = 10_000;
/// Columns of a purpose that are shown.
const PURPOSE_COLUMNS: usize = 60;

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
    let paint = render::paint(Stream::Output);
    let mut rows = Vec::new();
    for (title, section) in [
        ("tools", tools.iter().map(tool_row).collect::<Vec<_>>()),
        ("programs", programs.iter().map(program_row).collect()),
        ("examples without a program", taught.iter().map(taught_row).collect()),
    ] {
        if !section.is_empty() {
            rows.push(paint.in_style(Style::Title, title));
            rows.extend(section.into_iter().map(|row| format!("  {row}")));
        }
    }
    render::lines(&rows)
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

fn program_row(found: &ProgramSummary) -> String {
    let program = &found.program.current;
    let version = match found.origin {
        ProgramOrigin::Store => format!("version {}", found.program.version),
        ProgramOrigin::ToolsDirectory => "from tools_dir".to_owned(),
    };
    let mut facts = format!(
        "{}, {version}, ok {}, failed {}",
        program.language, program.successes, program.failures
    );
    match program.track_record.author {
        Author::Model => {}
        Author::Person => facts.push_str(", by a person"),
    }
    if found.program.pinned {
        facts.push_str(", pinned");
    }
    match miss(found) {
        Some(Miss::Degraded) => {
            facts.push_str(", degraded: runs only while no better program can be obtained");
        }
        Some(miss) => {
            let _ = write!(facts, ", does not run: {}", miss.name());
        }
        None if program.track_record.standing == Standing::Degraded => facts.push_str(", degraded"),
        None => {}
    }
    if found.examples > 0 {
        let _ = write!(facts, ", {}", examples(found.examples));
    }
    row(&program.role, &program.method, &facts)
}

fn taught_row(taught: &TaughtMethod) -> String {
    row(&taught.role, &taught.method, &examples(taught.examples))
}

fn examples(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} example{plural}")
}

/// A line about a method.
fn row(role: &Role, method: &Method, facts: &str) -> String {
    let paint = render::paint(Stream::Output);
    let name = clean(&format!("{role}.{method}"));
    let name = paint.in_style(Style::Name, &format!("{name:<24}"));
    format!("{name} {}", paint.in_style(Style::Faint, facts))
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
