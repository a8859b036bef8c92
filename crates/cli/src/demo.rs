//! The demo: three chapters from a recording, or a tour with a real model. Every program is vetted and run for real.

mod chapters;
mod feeds;
mod live;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use lifecycle::event::{Event, EventKind};
use recurgent::config::{Config, ConfigFault, Key, SettingOrigin};
use recurgent::guest::interpreter::InterpreterVersion;
use recurgent::observe::Observer;
use recurgent::provider::Replay;
use recurgent::{
    Agent, AgentFault, Cancellation, Failure, FailureKind, Language, Outcome, ProgramFault,
    Runtime, SetupFault,
};
use serde_json::Value;

use crate::render::paint::{Paint, Style, broken, columns};
use crate::render::story::StoryOutput;
use crate::render::trace::{Detail, LiveTrace, duration, width};
use crate::render::{Stream, beside_label};
use feeds::Feeds;

/// Most tools named in the summary.
const MAX_TOOLS: usize = 8;
/// Columns of a label of the summary.
const LABEL_COLUMNS: usize = 16;

/// Where the programs of a demo come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tour {
    /// From the shipped recording.
    Recorded,
    /// A model writes them now.
    Live,
}

/// How the demo is to run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The language programs are written in.
    pub(crate) guest: Language,
    /// Where its programs come from.
    pub(crate) tour: Tour,
    /// Whether to forget what earlier runs stored.
    pub(crate) fresh: bool,
    /// Whether to use colour.
    pub(crate) colour: bool,
    /// Ends the demo early.
    pub(crate) cancellation: Cancellation,
    /// Where it is shown.
    pub(crate) story: StoryOutput,
}

impl Plan {
    fn is_live(&self) -> bool {
        self.tour == Tour::Live
    }
}

/// Why the demo did not come to its end.
#[derive(Debug)]
pub(crate) enum DemoFault {
    /// The runtime could not be made.
    Setup(SetupFault),
    /// An agent could not be made or changed.
    Agent(AgentFault),
    /// The programs of earlier runs could not be removed.
    Fresh(PathBuf, io::Error),
    /// No port of 127.0.0.1 to serve feeds on.
    Feeds(io::Error),
    /// No interpreter for the guest language.
    Guest(String),
    /// An example of the tour cannot be taught.
    Example(String),
    /// The model of a live tour does not answer.
    NoModel(Box<Failure>),
    /// The user asked for the end.
    Interrupted,
    /// A call did not give what it must.
    Unexpected {
        /// `role.method`.
        call: String,
        /// What it must give.
        expected: String,
        /// What it gave.
        actual: String,
    },
}

impl std::fmt::Display for DemoFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Setup(fault) => write!(f, "{fault}"),
            Self::Agent(fault) => write!(f, "{fault}"),
            Self::Fresh(path, error) => write!(
                f,
                "cannot remove {}: {error}; remove it by hand, or set RECURGENT_STATE_DIR",
                path.display()
            ),
            Self::Feeds(error) => {
                write!(f, "cannot serve the demo's feeds on 127.0.0.1: {error}; free a port")
            }
            Self::Guest(message) => f.write_str(message),
            Self::Example(message) => write!(
                f,
                "an example of the tour cannot be taught: {message}; try again with --fresh"
            ),
            Self::NoModel(failure) => write!(f, "{}", failure.message),
            Self::Interrupted => {
                f.write_str("interrupted; what is stored stays, so run the demo again to go on")
            }
            Self::Unexpected { call, expected, actual } => write!(
                f,
                "the demo went wrong: {call} must give {expected}, not {actual}; \
                 try again with --fresh, and if it stays so, please report it"
            ),
        }
    }
}

impl From<SetupFault> for DemoFault {
    fn from(fault: SetupFault) -> Self {
        Self::Setup(fault)
    }
}

impl From<ConfigFault> for DemoFault {
    fn from(fault: ConfigFault) -> Self {
        Self::Setup(fault.into())
    }
}

impl From<ProgramFault> for DemoFault {
    fn from(fault: ProgramFault) -> Self {
        Self::Example(fault.to_string())
    }
}

impl From<AgentFault> for DemoFault {
    fn from(fault: AgentFault) -> Self {
        Self::Agent(fault)
    }
}

/// Runs the whole demo on standard output.
pub(crate) fn run(config: &Config, plan: &Plan) -> Result<(), DemoFault> {
    let began = Instant::now();
    let kind = if plan.is_live() { "demo-live" } else { "demo" };
    let home = config.state_dir()?.join(format!("{kind}-{}", plan.guest));
    if plan.fresh {
        forget(&home)?;
    }
    let tally = Arc::new(Tally::default());
    let mut builder = Runtime::builder(if plan.is_live() {
        live_config(config, plan, &home)?
    } else {
        own_config(config, plan, &home)?
    });
    if !plan.is_live() {
        builder = builder.provider(Arc::new(recording(plan.guest).map_err(SetupFault::from)?));
    }
    let runtime = builder
        .observer(Box::new(Counting(Arc::clone(&tally))))
        .observer(Box::new(LiveTrace::on_stdout(Detail::Full, plan.colour, plan.story.clone())))
        .build()?;
    let interpreter = runtime.workers().probe(plan.guest).map_err(DemoFault::Guest)?;
    let (paint, width) = (Paint { colour: plan.colour }, width(Stream::Output));
    let demo = DemoRun { runtime: &runtime, plan, paint, width };
    demo.opening(interpreter.version);
    let score = demo.chapters()?;
    demo.summary(&tally, score.as_ref(), began, &home)
}

/// The recording that is shipped for a language.
fn recording(guest: Language) -> Result<Replay, recurgent::provider::ProviderFault> {
    let (name, text) = match guest {
        Language::Python => {
            ("the demo's recording python.jsonl", include_str!("demo/python.jsonl"))
        }
        Language::Ruby => ("the demo's recording ruby.jsonl", include_str!("demo/ruby.jsonl")),
    };
    Replay::from_text(name, text)
}

/// The demo's settings. From the user's it takes only those about the machine.
fn own_config(user: &Config, plan: &Plan, home: &Path) -> Result<Config, ConfigFault> {
    let mut config = Config::defaults();
    let of_machine = ["python", "ruby", "max_running_workers", "minimum_sandbox_tier"];
    for (key, value, _) in user.entries().filter(|(key, ..)| of_machine.contains(&key.name)) {
        config.set(key.name, value)?;
    }
    config.set("state_dir", &home.to_string_lossy())?;
    config.set("guest", &plan.guest.to_string())?;
    config.set("model", "recorded")?;
    config.set("network", "loopback")?; // where its feeds are
    Ok(config)
}

/// The user's settings, with the embedded model unless another provider is named, and memory and programs of its own.
fn live_config(user: &Config, plan: &Plan, home: &Path) -> Result<Config, ConfigFault> {
    let mut config = user.clone();
    let is_chosen = |(key, _, origin): (&Key, &str, &SettingOrigin)| {
        matches!(key.name, "provider" | "profile") && *origin != SettingOrigin::Default
    };
    if !user.entries().any(is_chosen) {
        config.set("provider", "embedded")?;
    }
    config.set("state_dir", &home.to_string_lossy())?;
    config.set("guest", &plan.guest.to_string())?;
    Ok(config)
}

fn forget(home: &Path) -> Result<(), DemoFault> {
    match std::fs::remove_dir_all(home) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DemoFault::Fresh(home.to_owned(), error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Model calls made, and calls that needed none.
#[derive(Debug, Default)]
struct Tally {
    made: AtomicU32,
    /// Of those, for calls that could have been answered from storage.
    made_anew: AtomicU32,
    avoided: AtomicU32,
}

struct Counting(Arc<Tally>);

impl Observer for Counting {
    fn event(&self, event: &Event) {
        if let EventKind::Ended { from_storage, model_calls, .. } = &event.kind {
            self.0.made.fetch_add(*model_calls, Ordering::Relaxed);
            self.0.avoided.fetch_add(u32::from(*from_storage), Ordering::Relaxed);
            // Programs of `ask` are never reused.
            let anew =
                if event.subject.name.rsplit('.').next() == Some("ask") { 0 } else { *model_calls };
            self.0.made_anew.fetch_add(anew, Ordering::Relaxed);
        }
    }
}

/// One run of the demo.
pub(crate) struct DemoRun<'a> {
    runtime: &'a Runtime,
    plan: &'a Plan,
    paint: Paint,
    /// Columns a line may take.
    width: usize,
}

impl DemoRun<'_> {
    fn say(&self, text: &str) {
        self.plan.story.clone().line(text);
    }

    /// A paragraph, broken between words.
    fn say_paragraph(&self, text: &str) {
        for line in broken(text, self.width) {
            self.say(&line);
        }
    }

    /// The chapters of this demo; for a live one, how many answers were right.
    fn chapters(&self) -> Result<Option<live::Score>, DemoFault> {
        if self.plan.is_live() {
            let mut score = live::Score::default();
            live::written(self, &mut score)?;
            live::taught(self, &mut score)?;
            return Ok(Some(score));
        }
        let feeds = Feeds::serve().map_err(DemoFault::Feeds)?;
        chapters::calculator(self)?;
        chapters::assistant(self, &feeds)?;
        chapters::recovery(self)?;
        Ok(None)
    }

    fn opening(&self, version: InterpreterVersion) {
        let guest = match self.plan.guest {
            Language::Python => "Python",
            Language::Ruby => "Ruby",
        };
        let model = if self.plan.is_live() { " with a real model" } else { "" };
        let title = format!("recurgent demo{model}, in {guest} {version}");
        self.say(&self.paint.in_style(Style::Title, &title));
        let [origin, reality] = if self.plan.is_live() {
            [
                "Nothing is recorded: a model writes the programs now, and may be wrong.",
                "Each program is vetted, then run in a worker process.",
            ]
        } else {
            [
                "No network and no key: the model's replies come from a recording.",
                "Everything else is real: each program is vetted, then run in a worker process.",
            ]
        };
        for text in [
            origin,
            reality,
            "`generated`: the model wrote it just now. `stored`: it ran without the model.",
        ] {
            self.say_paragraph(text);
        }
        self.say("");
    }

    fn chapter(&self, title: &str, promise: &str) {
        let faint = |text: &str| self.paint.in_style(Style::Faint, text);
        let shown = self.paint.in_style(Style::Title, title);
        if columns(title) + 2 + columns(promise) <= self.width {
            self.say(&format!("{shown}  {}", faint(promise)));
        } else {
            self.say(&shown);
            for line in broken(promise, self.width) {
                self.say(&faint(&line));
            }
        }
        self.say("");
    }

    /// A line that is not a call, with a note to its right.
    fn print_note(&self, text: &str, note: &str) {
        let gap = " ".repeat(self.width.saturating_sub(2 + text.len() + note.len()).max(2));
        let note = self.paint.in_style(Style::Faint, note);
        self.say(&format!("  {}{gap}{note}\n", self.paint.in_style(Style::Name, text)));
    }

    fn agent(&self, role: &str) -> Result<Agent, DemoFault> {
        let cancellation = self.plan.cancellation.clone();
        Ok(self.runtime.agent(role).cancellation(cancellation).build()?)
    }

    /// An agent with a purpose.
    fn agent_for(&self, role: &str, purpose: &str) -> Result<Agent, DemoFault> {
        let agent = self.runtime.agent(role).purpose(purpose);
        Ok(agent.cancellation(self.plan.cancellation.clone()).build()?)
    }

    fn summary(
        &self,
        tally: &Tally,
        score: Option<&live::Score>,
        began: Instant,
        home: &Path,
    ) -> Result<(), DemoFault> {
        let made = tally.made.load(Ordering::Relaxed);
        let avoided = tally.avoided.load(Ordering::Relaxed);
        let tools = self.runtime.store().tools(None, MAX_TOOLS).map_err(AgentFault::from)?;
        let tools: Vec<&str> = tools.iter().map(|known| known.tool.name.as_str()).collect();
        self.chapter("Summary", "what it took, and what stays");
        let mut rows = vec![(
            "model calls",
            format!("{made} made, {avoided} avoided by running stored programs"),
        )];
        rows.extend(score.map(|score| ("right answers", score.text())));
        if !tools.is_empty() {
            rows.push(("tools stored", tools.join(", ")));
        }
        rows.push(("time", duration(began.elapsed())));
        rows.push(("kept in", home.display().to_string()));
        for (label, text) in rows {
            let label = self.paint.in_style(Style::Faint, &format!("  {label:<14}"));
            for line in beside_label(&label, LABEL_COLUMNS, &text, self.width) {
                self.say(&line);
            }
        }
        self.say("");
        let is_all_stored = tally.made_anew.load(Ordering::Relaxed) == 0;
        self.say_paragraph(if is_all_stored && self.plan.is_live() {
            "No call needed the model: every program is stored. Start over with --fresh."
        } else if is_all_stored {
            "Only `ask` needed the model: every question is its own, so its programs are not reused. \
             Start over with --fresh."
        } else {
            "Run it again: what is stored now will need no model. Start over with --fresh."
        });
        self.say_where_to_look(home);
        Ok(())
    }

    /// The commands that show what the demo kept: its state is its own, so they name it.
    fn say_where_to_look(&self, home: &Path) {
        self.say_paragraph("Look at what it kept:");
        let home = shell_word(&home.to_string_lossy());
        for command in ["tools list", "trace show last", "usage"] {
            self.say(&format!("  recurgent {command} --state-dir {home}"));
        }
    }
}

/// A word that a shell takes as it is.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The whole answer is known beforehand.
fn expect(outcome: &Outcome, expected: &Value) -> Result<(), DemoFault> {
    expect_at(outcome, "", expected)
}

/// The part of an answer that is known beforehand.
fn expect_at(outcome: &Outcome, path: &str, expected: &Value) -> Result<(), DemoFault> {
    let found = outcome.value().and_then(|value| value.pointer(path));
    match found {
        Some(value) if chapters::same(value, expected) => Ok(()),
        Some(_) | None => Err(unexpected(outcome, expected.to_string())),
    }
}

/// The call must end in an error that is final.
fn expect_failure(outcome: &Outcome, code: &str) -> Result<(), DemoFault> {
    match outcome.failure() {
        Some(failure) if failure.kind.code() == code && !failure.kind.retriable() => Ok(()),
        Some(_) | None => Err(unexpected(outcome, format!("the error {code}"))),
    }
}

/// Why an outcome will not do.
fn unexpected(outcome: &Outcome, expected: String) -> DemoFault {
    let call = format!("{}.{}", outcome.role, outcome.method);
    match &outcome.result {
        Ok(value) => DemoFault::Unexpected { call, expected, actual: value.to_string() },
        Err(failure) if failure.kind == FailureKind::Cancelled => DemoFault::Interrupted,
        Err(failure) if failure.kind == FailureKind::GuestUnavailable => {
            DemoFault::Guest(failure.message.clone())
        }
        Err(failure) => DemoFault::Unexpected { call, expected, actual: failure.to_string() },
    }
}
