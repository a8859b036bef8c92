//! People's corrections of stored programs: reject, teach, test, edit, remove.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use clap::Args;
use lifecycle::admission::Inputs;
use lifecycle::artifact::ArtifactKey;
use lifecycle::example::{Example, ExpectedResult};
use lifecycle::excerpt::counted;
use lifecycle::request::{Method, Role};
use recurgent::provider::Scripted;
use recurgent::regular_file::read_named;
use recurgent::store::Store;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use recurgent::{
    EditReport, Forgotten, ProgramFault, ProgramOrigin, ProgramSummary, Runtime, StoredPrograms,
    TestSource, TestedCall,
};
use serde_json::{Map, Value, json};

use super::method_args::MethodArgs;
use crate::command::call::named_values;
use crate::command::input::{argument_text, argument_value};
use crate::command::settings::{StateFlags, pair};
use crate::exit::{CommandFault, Exit};
use crate::render::paint::{Style, clean, clip};
use crate::render::{self, Stream};

/// Columns of the call in a line about a tested call.
const CALL_COLUMNS: usize = 60;

/// The call of an example.
#[derive(Debug, Args)]
pub(super) struct ExampleCall {
    /// The tool or role
    role: String,
    /// The method
    method: String,
    /// Arguments by position
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    /// An argument by name; may be repeated
    #[arg(long = "kw", value_name = "NAME=VALUE", value_parser = pair)]
    kwargs: Vec<(String, String)>,
    /// The memory that the call starts from, as a JSON object
    #[arg(long, value_name = "JSON")]
    context: Option<String>,
}

impl ExampleCall {
    fn read(&self) -> Result<(Role, Method, Inputs), CommandFault> {
        let context = self.context.as_deref().map(argument_text).transpose()?;
        let context = match context.as_deref().map(serde_json::from_str::<Map<_, _>>) {
            None => Map::new(),
            Some(Ok(context)) => context,
            Some(Err(error)) => {
                return Err(CommandFault::usage(format!(
                    "--context must be a JSON object such as {{\"total\": 3}}: {error}"
                )));
            }
        };
        let inputs = Inputs {
            args: self.args.iter().map(|arg| argument_value(arg)).collect::<Result<_, _>>()?,
            kwargs: named_values(&self.kwargs)?,
            context,
        };
        Ok((Role::parse(&self.role)?, Method::parse(&self.method)?, inputs))
    }
}

/// A call and its right answer.
#[derive(Debug, Args)]
pub(super) struct TeachArgs {
    #[command(flatten)]
    call: ExampleCall,
    #[command(flatten)]
    result: ResultArgs,
}

/// What a call must, or must not, give.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ResultArgs {
    /// The right value
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    gives: Option<String>,
    /// The type of the error the call must end with
    #[arg(long, value_name = "ERROR_TYPE")]
    fails: Option<String>,
    /// A value that is wrong
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    never: Option<String>,
}

/// A program and the text that replaces it.
#[derive(Debug, Args)]
pub(super) struct EditArgs {
    #[command(flatten)]
    line: MethodArgs,
    /// Take the new text from a file instead of an editor
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Let the new text run although a test fails
    #[arg(long)]
    force: bool,
}

/// The stored programs, with what is needed to run them. No model is asked.
pub(super) struct CorrectionCommands {
    store: Arc<SqliteStore>,
    runtime: Runtime,
    editor: Option<OsString>,
    as_json: bool,
}

impl CorrectionCommands {
    pub(super) fn open(place: &StateFlags, as_json: bool) -> Result<Self, CommandFault> {
        let config = place.config(&[])?;
        let editor = config.editor().map(OsStr::to_owned);
        let store = Arc::new(SqliteStore::open(&config.store_path()?)?);
        store.notices().iter().for_each(|notice| render::notice(notice));
        let runtime = Runtime::builder(config)
            .provider(Arc::new(Scripted::new()))
            .store(Arc::clone(&store) as Arc<dyn Store>)
            .build()?;
        Ok(Self { store, runtime, editor, as_json })
    }

    /// What is listed and shown.
    pub(super) fn parts(&self) -> (&SqliteStore, StoredPrograms<'_>) {
        (&self.store, self.runtime.programs())
    }

    /// Takes the running version out of service, or the one that answered a call.
    pub(super) fn reject(
        &self,
        line: &MethodArgs,
        because: Option<&str>,
        call: Option<&str>,
    ) -> Result<Exit, CommandFault> {
        let key = self.key(line)?;
        let report = self.runtime.programs().reject(&key, because.unwrap_or_default(), call)?;
        if self.as_json {
            render::json(&json!({
                "role": key.role,
                "method": key.method,
                "rejected": report.rejected,
                "running": report.running,
                "was_running": report.was_running,
                "counter_example": report.counter_example.as_ref().map(Example::to_json),
                "in_tools_dir": report.origin == ProgramOrigin::ToolsDirectory,
                "recorded_calls": report.recorded_calls,
            }))?;
            return Ok(Exit::Ok);
        }
        let next = match &report.running {
            Some(version) if !report.was_running => {
                format!("version {version} did not give that answer and stays in service")
            }
            Some(version) => format!("version {version} runs again"),
            None => "the next call asks the model for another program".to_owned(),
        };
        render::note(&format!(
            "{} {} does not run any more; {next}",
            line.title(),
            report.rejected
        ));
        if report.origin == ProgramOrigin::ToolsDirectory {
            render::notice(
                "it is a program of tools_dir: its file is unchanged, and this store does not run it any more",
            );
        }
        if report.recorded_calls > 0 {
            let calls = counted(report.recorded_calls, "recorded call");
            render::notice(&format!("not counted any more: {calls} of it"));
        }
        if report.counter_example.is_none() {
            render::notice(&format!(
                "no wrong answer is kept with it; give one with `recurgent tools teach {} {} ARGS… --gives VALUE`",
                clean(line.role()),
                clean(line.method())
            ));
        }
        Ok(Exit::Ok)
    }

    /// Removes the programs of a method, or everything stored for a role.
    pub(super) fn remove(&self, role: &str, method: Option<&str>) -> Result<Exit, CommandFault> {
        let role = Role::parse(role)?;
        let method = method.map(Method::parse).transpose()?;
        let subject = match &method {
            Some(method) => clean(&format!("{role}.{method}")),
            None => clean(role.as_str()),
        };
        let Some(forgotten) = self.runtime.programs().forget(&role, method.as_ref())? else {
            return Err(CommandFault::missing(format!(
                "nothing is stored for {subject}; `recurgent tools list` shows what is"
            )));
        };
        let Forgotten { programs, examples } = forgotten;
        if self.as_json {
            render::json(&json!({
                "role": role, "method": method, "removed": true, "programs": programs, "examples": examples,
            }))?;
        } else {
            let examples = match examples {
                1 => "1 example".to_owned(),
                count => format!("{count} examples"),
            };
            render::note(&match programs {
                0 => format!("{examples} of {subject} removed; it had no programs"),
                _ => format!("the programs of {subject} are removed, with {examples}"),
            });
        }
        self.note_pinned(&role, method.as_ref())?;
        Ok(Exit::Ok)
    }

    /// Says that programs of a read-only directory stay.
    fn note_pinned(&self, role: &Role, method: Option<&Method>) -> Result<(), CommandFault> {
        let is_pinned = |found: &ProgramSummary| {
            found.origin == ProgramOrigin::ToolsDirectory
                && method.is_none_or(|method| found.program.current.method == *method)
        };
        if self.runtime.programs().list(Some(role))?.iter().any(is_pinned) {
            render::notice(
                "its program in tools_dir stays; `recurgent tools reject` keeps it from running",
            );
        }
        Ok(())
    }

    /// Withdraws an example.
    pub(super) fn withdraw(&self, call: &ExampleCall) -> Result<Exit, CommandFault> {
        let (role, method, inputs) = call.read()?;
        let example = self.runtime.programs().withdraw(&role, &method, &inputs)?;
        let count = self.store.examples(&role, &method)?.len();
        if self.as_json {
            render::json(&json!({
                "role": role, "method": method, "withdrawn": example.to_json(), "examples": count,
            }))?;
        } else {
            let title = clean(&format!("{role}.{method}"));
            render::note(&format!(
                "the example is withdrawn; {title} has {}",
                counted(count, "example")
            ));
        }
        Ok(Exit::Ok)
    }

    /// The key of the program that a command names.
    fn key(&self, line: &MethodArgs) -> Result<ArtifactKey, CommandFault> {
        let (role, method) = (Role::parse(line.role())?, Method::parse(line.method())?);
        line.choose(self.runtime.programs().keys(&role, &method)?)
    }

    /// Keeps an example.
    pub(super) fn teach(&self, args: &TeachArgs) -> Result<Exit, CommandFault> {
        let (role, method, inputs) = args.call.read()?;
        let expected = match (&args.result.gives, &args.result.fails, &args.result.never) {
            (Some(right), _, _) => ExpectedResult::Value(argument_value(right)?),
            (_, Some(code), _) => ExpectedResult::Error(code.clone()),
            (_, _, Some(wrong)) => ExpectedResult::NotValue(argument_value(wrong)?),
            (None, None, None) => {
                return Err(CommandFault::usage("give one of --gives, --fails and --never"));
            }
        };
        // Parsed like any other example, so that its size is checked.
        let example = Example::parse(&Example { inputs, expected }.to_json())
            .map_err(|fault| CommandFault::usage(fault.to_string()))?;
        self.runtime.programs().teach(&role, &method, &example)?;
        let count = self.store.examples(&role, &method)?.len();
        let missed = self.missed(&role, &method, &example)?;
        if self.as_json {
            render::json(&json!({
                "role": role, "method": method, "example": example.to_json(), "examples": count,
                "missed_by": missed.iter().map(|(key, call)| json!({
                    "language": key.language,
                    "contract_fingerprint": key.contract_fingerprint,
                    "actual": call.actual,
                })).collect::<Vec<_>>(),
            }))?;
            return Ok(Exit::Ok);
        }
        let title = clean(&format!("{role}.{method}"));
        render::note(&format!(
            "{title} has {}; `recurgent tools test` runs them",
            counted(count, "example")
        ));
        for (key, call) in &missed {
            let actual = call.actual.as_ref().map(Value::to_string).unwrap_or_default();
            render::notice(&format!(
                "the {} program that runs gives {} for it; `recurgent tools reject` takes it out of service",
                key.language,
                clip(&clean(&actual), CALL_COLUMNS)
            ));
        }
        Ok(Exit::Ok)
    }

    /// The running programs of a method that answer an example otherwise.
    fn missed(
        &self,
        role: &Role,
        method: &Method,
        example: &Example,
    ) -> Result<Vec<(ArtifactKey, TestedCall)>, CommandFault> {
        let programs = self.runtime.programs();
        let mut missed = Vec::new();
        for key in programs.keys(role, method)? {
            match programs.test_example(&key, example.clone()) {
                Ok(call) if call.passed == Some(false) => missed.push((key, call)),
                // A program that could not be run, or was rejected before, says nothing about the example.
                Ok(_) | Err(ProgramFault::Untested(_) | ProgramFault::NotStored(_)) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(missed)
    }

    /// Runs examples and recorded calls on the version that runs.
    pub(super) fn test(&self, line: &MethodArgs) -> Result<Exit, CommandFault> {
        let key = self.key(line)?;
        let tested = self.runtime.programs().test(&key)?;
        if self.as_json {
            render::json(&json!({
                "role": key.role, "method": key.method, "passed": passes(&tested),
                "tested": tested.iter().map(tested_json).collect::<Vec<_>>(),
            }))?;
        } else {
            if tested.is_empty() {
                render::notice(&format!(
                    "{} has no examples and no recorded calls; teach it one with `recurgent tools teach`",
                    line.title()
                ));
            }
            render::lines(&tested.iter().map(tested_row).collect::<Vec<_>>())?;
        }
        Ok(if passes(&tested) { Exit::Ok } else { Exit::Failed })
    }

    /// Replaces the text of a program.
    pub(super) fn edit(&self, args: &EditArgs) -> Result<Exit, CommandFault> {
        let key = self.key(&args.line)?;
        let old = self.runtime.programs().code(&key)?;
        let extension = key.language.extension();
        let text = match &args.file {
            Some(path) => read_named(path).map_err(|error| {
                CommandFault::usage(format!("cannot read {}: {error}", path.display()))
            })?,
            None => self.edited(&old, extension)?,
        };
        // The text of a rejected program takes the rejection back.
        if text == old && !self.runtime.programs().is_rejected(&key)? {
            return Err(CommandFault::usage(format!(
                "the text of {} is unchanged; nothing was stored",
                args.line.title()
            )));
        }
        let report = self.runtime.programs().edit(&key, &text, None, args.force)?;
        self.show_edit(args, &report)
    }

    fn show_edit(&self, args: &EditArgs, report: &EditReport) -> Result<Exit, CommandFault> {
        let exit = if report.version.is_some() { Exit::Ok } else { Exit::Failed };
        if self.as_json {
            render::json(&json!({
                "version": report.version,
                "checksum": report.checksum,
                "tested": report.tested.iter().map(tested_json).collect::<Vec<_>>(),
                "withdrawn": report.withdrawn.iter().map(Example::to_json).collect::<Vec<_>>(),
            }))?;
            return Ok(exit);
        }
        render::lines(&report.tested.iter().map(tested_row).collect::<Vec<_>>())?;
        let title = args.line.title();
        match report.version {
            Some(version) => {
                render::note(&format!("{title} now runs version {version}, by a person"));
                if !report.withdrawn.is_empty() {
                    render::notice(&format!(
                        "examples that it fails are withdrawn: {}",
                        report.withdrawn.len()
                    ));
                }
            }
            None => render::notice(&format!(
                "the new text of {title} fails a test and was not stored; correct it, or store it with --force"
            )),
        }
        Ok(exit)
    }

    /// Lets a person change the text in an editor; gives the new text.
    fn edited(&self, old: &str, extension: &str) -> Result<String, CommandFault> {
        let Some(editor) = &self.editor else {
            return Err(CommandFault::usage(
                "no editor is configured; set EDITOR, or give the new text with --file FILE",
            ));
        };
        let unwritten = |error: std::io::Error| {
            CommandFault::setup(format!("cannot write a file to edit: {error}"))
        };
        let mut file = tempfile::Builder::new()
            .prefix("recurgent-")
            .suffix(&format!(".{extension}"))
            .tempfile()
            .map_err(unwritten)?;
        file.write_all(old.as_bytes()).map_err(unwritten)?;
        run_editor(editor, file.path())?;
        std::fs::read_to_string(file.path())
            .map_err(|error| CommandFault::setup(format!("cannot read the edited file: {error}")))
    }
}

/// Runs the editor on a file. As with other programs, `EDITOR` may hold arguments.
fn run_editor(editor: &OsStr, path: &Path) -> Result<(), CommandFault> {
    let mut command = editor.to_owned();
    command.push(" \"$1\"");
    let status = Command::new("sh").arg("-c").arg(command).arg("sh").arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(CommandFault::failed(format!(
            "the editor {} ended with {status}; nothing was stored",
            editor.display()
        ))),
        Err(error) => Err(CommandFault::setup(format!(
            "cannot start {}: {error}; set EDITOR to a command that runs",
            editor.display()
        ))),
    }
}

/// Whether no tested call gave a wrong answer.
fn passes(tested: &[TestedCall]) -> bool {
    tested.iter().all(|call| call.passed != Some(false))
}

fn tested_json(call: &TestedCall) -> Value {
    json!({
        "source": source_name(call.source),
        "args": call.inputs.args,
        "kwargs": call.inputs.kwargs,
        "context": call.inputs.context,
        "expected": call.expected.as_ref().map(expected_json),
        "actual": call.actual,
        "passed": call.passed,
    })
}

fn source_name(source: TestSource) -> &'static str {
    match source {
        TestSource::Example => "example",
        TestSource::Recorded => "recorded",
    }
}

fn expected_json(expected: &ExpectedResult) -> Value {
    match expected {
        ExpectedResult::Value(value) => json!({"value": value}),
        ExpectedResult::Error(code) => json!({"error_type": code}),
        ExpectedResult::NotValue(value) => json!({"not_value": value}),
    }
}

fn tested_row(call: &TestedCall) -> String {
    let paint = render::paint(Stream::Output);
    let (mark, style) = match call.passed {
        Some(true) => ("✓", Style::Good),
        Some(false) => ("✗", Style::Bad),
        None => ("–", Style::Faint),
    };
    let by_name = call.inputs.kwargs.iter().map(|(name, value)| format!("{name}={value}"));
    let given: Vec<String> = call.inputs.args.iter().map(Value::to_string).chain(by_name).collect();
    let given = clip(&clean(&given.join(", ")), CALL_COLUMNS);
    let wrong = match (&call.expected, &call.actual, call.passed) {
        (Some(expected), Some(actual), Some(false)) => {
            format!("  expected {}, got {actual}", expected_json(expected))
        }
        (None, Some(actual), Some(false)) => {
            format!("  gave another answer when it was recorded, now {actual}")
        }
        (_, _, None) => {
            "  not checked: its value does not depend on its arguments alone".to_owned()
        }
        _ => String::new(),
    };
    format!(
        "{} {:<8} ({given}){}",
        paint.in_style(style, mark),
        source_name(call.source),
        clean(&wrong)
    )
}
