//! The live trace: calls as they happen, as a tree.
//!
//! ```text
//!   editor.word_count("the quick brown fox")
//!   │ 1  def word_count(text):
//!   │ 2      return len(text.split())
//!   └ 4                                                      generated    31 ms
//! ```

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use lifecycle::event::{Event, EventKind, ModelProgress, Subject};
use lifecycle::outside_tool::OutsideCall;
use lifecycle::request::encoded_bytes;
use recurgent::observe::Observer;
use recurgent::{Failure, Outcome};
use rustix::termios::tcgetwinsize;
use serde_json::Value;

use super::entry::output_lines;
use super::paint::{Paint, Style, clean, clip, columns, wrapped};
use super::story::StoryOutput;
use super::{Stream, room};

/// Columns a line may take, on a terminal that has more.
const MAX_WIDTH: usize = 80;
/// Columns below which the source and the time of a call are on a line of their own.
const MIN_WIDTH_FOR_SUFFIX: usize = 64;
/// Lines of a program that are shown.
const MAX_CODE_LINES: usize = 20;
/// Lines of an answer that are shown.
const MAX_VALUE_LINES: usize = 16;
/// Largest answer of which anything is shown.
const MAX_VALUE_BYTES: usize = 64 * 1024;
/// Lines of a message that are shown.
const MAX_MESSAGE_LINES: usize = 4;
/// Deepest indentation; deeper calls stay there.
const MAX_INDENT: usize = 8;
/// How often the time that was waited is shown.
const TICK: Duration = Duration::from_secs(1);
/// Columns kept for a duration.
const DURATION_COLUMNS: usize = 10;

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// One status line while a call is under way, gone when it ends; nothing unless on a terminal.
    Progress,
    /// The tree: every call, attempt, program, rollback and answer.
    Full,
}

/// Shows calls while they are under way. Give it to a runtime as an observer.
pub(crate) struct LiveTrace {
    detail: Detail,
    /// Columns a line may take.
    width: usize,
    paint: Paint,
    screen: Arc<Mutex<Screen>>,
}

impl LiveTrace {
    /// Writes to standard error.
    pub(crate) fn new(detail: Detail, colour: bool) -> Self {
        let screen = Screen::new(Box::new(io::stderr()), columns_of(&io::stderr()));
        Self::on(screen, detail, width(Stream::Error), colour)
    }

    fn on(screen: Screen, detail: Detail, width: usize, colour: bool) -> Self {
        let paint = Paint { colour };
        let is_terminal = screen.columns.is_some();
        let screen = Arc::new(Mutex::new(screen));
        if is_terminal {
            count_seconds(Arc::downgrade(&screen), paint);
        }
        Self { detail, width, paint, screen }
    }

    /// Writes to standard output, for commands whose output is the trace.
    pub(crate) fn on_stdout(detail: Detail, colour: bool, out: StoryOutput) -> Self {
        let screen = Screen::new(Box::new(out), columns_of(&io::stdout()));
        Self::on(screen, detail, width(Stream::Output), colour)
    }

    #[cfg(test)]
    fn to(out: Box<dyn Write + Send>, detail: Detail, columns: Option<usize>) -> Self {
        let screen = Arc::new(Mutex::new(Screen::new(out, columns)));
        Self { detail, width: MAX_WIDTH, paint: Paint { colour: false }, screen }
    }
}

impl Observer for LiveTrace {
    fn event(&self, event: &Event) {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = match self.detail {
            Detail::Progress => Vec::new(),
            Detail::Full => self.lines(event, &mut screen.programs),
        };
        // A call continues even if the terminal is closed.
        let _ = screen.print(&lines);
        match (&event.kind, &mut screen.waiting) {
            // The time since the question counts on.
            (EventKind::ModelProgress { progress }, Some(waiting)) => {
                waiting.progress = progress_text(*progress);
            }
            (_, waiting) => {
                let since = Instant::now();
                let new = |text| Waiting { text, since, progress: String::new() };
                *waiting = status(event).map(new);
            }
        }
        let _ = screen.show_waiting(self.paint);
    }
}

/// Shows how long has been waited, until the screen is gone. Without a thread the status line does not count.
fn count_seconds(screen: Weak<Mutex<Screen>>, paint: Paint) {
    let count = move || {
        loop {
            thread::sleep(TICK);
            let Some(screen) = screen.upgrade() else { return };
            let mut screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = screen.show_waiting(paint);
        }
    };
    let _ = thread::Builder::new().name("elapsed".to_owned()).spawn(count);
}

/// Where the trace is written, and what it has shown.
struct Screen {
    out: Box<dyn Write + Send>,
    /// Most columns of the status line: a line that wraps cannot be erased. `None` if the output is not a terminal.
    columns: Option<usize>,
    status_shown: bool,
    /// What is being waited for.
    waiting: Option<Waiting>,
    /// The program each open call is running, by call id.
    programs: BTreeMap<String, Running>,
}

/// Something that takes time.
struct Waiting {
    text: String,
    since: Instant,
    /// How far it is, if that is known.
    progress: String,
}

/// A program under way.
struct Running {
    attempt: usize,
    source: &'static str,
}

impl Screen {
    fn new(out: Box<dyn Write + Send>, columns: Option<usize>) -> Self {
        Self { out, columns, status_shown: false, waiting: None, programs: BTreeMap::new() }
    }

    fn print(&mut self, lines: &[String]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.status(None)?;
        lines.iter().try_for_each(|line| writeln!(self.out, "{}", line.trim_end()))?;
        self.out.flush()
    }

    /// Shows what is being waited for and, after a second, for how long.
    fn show_waiting(&mut self, paint: Paint) -> io::Result<()> {
        let room = self.columns.unwrap_or(MAX_WIDTH);
        let text = self.waiting.as_ref().map(|waiting| {
            let elapsed = match waiting.since.elapsed().as_secs() {
                0 => String::new(),
                seconds => format!(" {seconds} s"),
            };
            let text = format!("{}{}", waiting.text, waiting.progress);
            let text = clip(&text, room.saturating_sub(elapsed.len()));
            paint.in_style(Style::Faint, &format!("{text}{elapsed}"))
        });
        self.status(text.as_deref())
    }

    /// Replaces the status line; `None` erases it.
    fn status(&mut self, text: Option<&str>) -> io::Result<()> {
        if self.columns.is_none() || (text.is_none() && !self.status_shown) {
            return Ok(());
        }
        write!(self.out, "\r\x1b[2K{}", text.unwrap_or_default())?;
        self.status_shown = text.is_some();
        self.out.flush()
    }
}

/// How far a model is, behind what is being waited for.
fn progress_text(progress: ModelProgress) -> String {
    match progress {
        ModelProgress::Queued(0) => String::new(),
        ModelProgress::Queued(1) => " one request is before it".to_owned(),
        ModelProgress::Queued(before) => format!(" {before} requests are before it"),
        ModelProgress::Loading => " loading the model".to_owned(),
        ModelProgress::Reading { done, total } => format!(" {done} of {total} tokens read"),
        ModelProgress::Writing { tokens: 1 } => " 1 token written".to_owned(),
        ModelProgress::Writing { tokens } => format!(" {tokens} tokens written"),
        _ => String::new(),
    }
}

/// The status line after an event; `None` if nothing is being waited for.
fn status(event: &Event) -> Option<String> {
    let name = clean(&event.subject.name);
    let text = match &event.kind {
        EventKind::Started { .. } => return None,
        EventKind::Generating { attempt: 1, .. } => format!("asking the model for {name}…"),
        EventKind::Generating { attempt, .. } => {
            format!("asking the model for {name}, attempt {attempt}…")
        }
        EventKind::Preparing { what } => format!("{name}: {what}…"),
        EventKind::Waiting { wait, why } => {
            format!("{name}: {}; trying again in {}…", clean(why), duration(*wait))
        }
        EventKind::Executing { .. } | EventKind::CalledOutside { .. } => format!("running {name}…"),
        EventKind::CallingOutside { name, .. } => format!("calling {}…", clean(name)),
        EventKind::Inferring { items: 1, .. } => format!("{name} asks the model about its data…"),
        EventKind::Inferring { items, .. } => format!("{name} asks the model about {items} items…"),
        EventKind::RolledBack { .. } => format!("{name}: rolled back, trying again…"),
        EventKind::Looked { .. } => format!("{name}: looked at its data…"),
        EventKind::Ended { .. } if event.subject.depth > 0 => "running…".to_owned(),
        EventKind::Printed { .. } | EventKind::Ended { .. } | _ => return None,
    };
    Some(text)
}

/// Columns a line may take on a stream.
pub(crate) fn width(stream: Stream) -> usize {
    room(stream).columns.min(MAX_WIDTH)
}

/// Columns of a terminal, at most [`MAX_WIDTH`]; `None` if the stream is not a terminal.
fn columns_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let known = tcgetwinsize(stream).map(|size| usize::from(size.ws_col)).ok();
    // Some terminals report 0 columns.
    let columns = known.filter(|columns| *columns > 0).unwrap_or(MAX_WIDTH);
    stream.is_terminal().then_some(columns.min(MAX_WIDTH))
}

impl LiveTrace {
    /// What an event adds to the tree.
    fn lines(&self, event: &Event, programs: &mut BTreeMap<String, Running>) -> Vec<String> {
        let subject = &event.subject;
        let call = &subject.call.0;
        match &event.kind {
            EventKind::Started { arguments } => vec![self.heading(subject, arguments)],
            EventKind::Executing { attempt, source, code } => {
                programs.insert(call.clone(), Running { attempt: *attempt, source });
                // A stored program was shown when it was written.
                if *source == "persisted" { Vec::new() } else { self.program(subject, code) }
            }
            EventKind::Printed { stdout, stderr, .. } => {
                let mut lines = self.printed(subject, "printed", stdout);
                lines.extend(self.printed(subject, "stderr", stderr));
                lines
            }
            EventKind::RolledBack { attempt, stage, code, message, program } => {
                let shown = programs.get(call).is_some_and(|running| {
                    running.attempt == *attempt && running.source != "persisted"
                });
                // An attempt that did not run is the last one now: the program before it gives no outcome.
                if programs.get(call).is_some_and(|running| running.attempt != *attempt) {
                    programs.remove(call);
                }
                let program = program.as_deref().filter(|_| !shown);
                let mut lines = program.map_or_else(Vec::new, |text| self.program(subject, text));
                let why = if stage == code { String::new() } else { format!(": {code}") };
                let what = format!("attempt {attempt} rolled back at {stage}{why}");
                lines.extend(self.rollback(subject, &what, message));
                lines
            }
            EventKind::Ended { outcome, took, .. } => {
                let running = programs.remove(call);
                self.ending(subject, outcome, &source_and_duration(running.as_ref(), *took))
            }
            EventKind::Waiting { wait, why } => {
                let next = format!("{}; trying again in {}", clean(why), duration(*wait));
                let room = self.width.saturating_sub(indent_columns(subject) + 4);
                let next = self.paint.in_style(Style::Faint, &clip(&next, room));
                vec![format!("{}{next}", self.rail(subject))]
            }
            EventKind::CalledOutside { call } => vec![self.outside_call(subject, call)],
            EventKind::Looked { attempt, why } => {
                programs.remove(call);
                self.rollback(subject, &format!("attempt {attempt} looked"), why)
            }
            EventKind::Inferring { instruction, items } => {
                let about =
                    if *items == 1 { String::new() } else { format!(" about {items} items") };
                let asked = format!("asks the model{about}: {}", clean(instruction));
                let room = self.width.saturating_sub(indent_columns(subject) + 4);
                let asked = self.paint.in_style(Style::Faint, &clip(&asked, room));
                vec![format!("{}{asked}", self.rail(subject))]
            }
            EventKind::Generating { .. } | EventKind::Preparing { .. } | _ => Vec::new(),
        }
    }

    fn heading(&self, subject: &Subject, arguments: &str) -> String {
        let name = clean(&subject.name);
        let room = self.width.saturating_sub(indent_columns(subject) + columns(&name) + 2);
        let name = self.paint.in_style(Style::Name, &name);
        format!("{}{name}({})", self.indent(subject), clip(&clean(arguments), room))
    }

    /// The first lines of a program, numbered.
    fn program(&self, subject: &Subject, code: &str) -> Vec<String> {
        let rail = self.rail(subject);
        let count = code.lines().count();
        let digits = count.min(MAX_CODE_LINES).to_string().len();
        let room = self.width.saturating_sub(indent_columns(subject) + digits + 4);
        // One or two lines more are shown: a line with their number would save little.
        let shown = if count <= MAX_CODE_LINES + 2 { count } else { MAX_CODE_LINES };
        let mut lines: Vec<String> = code
            .lines()
            .take(shown)
            .enumerate()
            .map(|(index, line)| {
                let number = self.paint.in_style(Style::Faint, &format!("{:>digits$}", index + 1));
                format!("{rail}{number}  {}", clip(&clean(line), room))
            })
            .collect();
        if count > shown {
            let more = format!("{:>digits$}  {} more lines", "…", count - shown);
            lines.push(format!("{rail}{}", self.paint.in_style(Style::Faint, &more)));
        }
        lines
    }

    /// The first lines of what a program printed.
    fn printed(&self, subject: &Subject, stream: &str, text: &str) -> Vec<String> {
        let rail = self.rail(subject);
        let room = self.width.saturating_sub(indent_columns(subject) + 4);
        let line = |text: &str| {
            let line = clip(&clean(text), room);
            format!("{rail}{}", self.paint.in_style(Style::Faint, &line))
        };
        output_lines(stream, text).iter().map(|text| line(text)).collect()
    }

    fn rollback(&self, subject: &Subject, what: &str, message: &str) -> Vec<String> {
        let rail = self.rail(subject);
        let room = self.width.saturating_sub(indent_columns(subject) + 4);
        let head = self.paint.in_style(Style::Warning, &format!("↺ {}", clip(&clean(what), room)));
        let message_lines = wrapped(message, room, MAX_MESSAGE_LINES);
        std::iter::once(format!("{rail}{head}"))
            .chain(message_lines.iter().map(|line| format!("{rail}  {line}")))
            .collect()
    }

    /// A call of a tool from outside: its arguments, and the size of its result or its failure.
    fn outside_call(&self, subject: &Subject, call: &OutsideCall) -> String {
        let (style, ended) = match &call.ended {
            Ok(bytes) => (Style::Faint, format!("{bytes} bytes")),
            Err(code) => (Style::Warning, clean(code)),
        };
        let ended = format!("{ended}  {}", duration(call.took));
        let room = self.width.saturating_sub(indent_columns(subject) + 4);
        let left = room.saturating_sub(columns(&ended) + 2);
        let text = format!("⇢ {}({})", call.name, call.arguments);
        let text = clip(&clean(&text), left);
        let gap = " ".repeat(room.saturating_sub(columns(&text) + columns(&ended)));
        format!("{}{text}{gap}{}", self.rail(subject), self.paint.in_style(style, &ended))
    }

    /// The outcome, then the source of its program and the time it took. A blank line separates a tree from the next.
    fn ending(&self, subject: &Subject, outcome: &Outcome, suffix: &str) -> Vec<String> {
        let corner = format!("{}{}", self.indent(subject), self.paint.in_style(Style::Faint, "└ "));
        let room = self.width.saturating_sub(indent_columns(subject) + 2);
        let is_narrow = self.width < MIN_WIDTH_FOR_SUFFIX;
        let left = if is_narrow { room } else { room.saturating_sub(columns(suffix) + 2) };
        let (style, text, below) = match &outcome.result {
            Ok(value) => answer(value, left, room.saturating_sub(2), subject.depth == 0),
            Err(failure) => failure_lines(failure, left, room),
        };
        let margin = format!("{}  ", self.indent(subject));
        let taken = if is_narrow { 0 } else { columns(&text) };
        let gap = " ".repeat(room.saturating_sub(taken + columns(suffix)));
        let text = self.paint.in_style(style, &text);
        let suffix = self.paint.in_style(Style::Faint, suffix);
        let mut lines = if is_narrow {
            vec![format!("{corner}{text}"), format!("{margin}{gap}{suffix}")]
        } else {
            vec![format!("{corner}{text}{gap}{suffix}")]
        };
        lines.extend(below.iter().map(|line| format!("{margin}{line}")));
        if subject.depth == 0 {
            lines.push(String::new());
        }
        lines
    }

    fn indent(&self, subject: &Subject) -> String {
        let rails = "│ ".repeat(usize::from(subject.depth).min(MAX_INDENT));
        format!("  {}", self.paint.in_style(Style::Faint, &rails))
    }

    fn rail(&self, subject: &Subject) -> String {
        format!("{}{}", self.indent(subject), self.paint.in_style(Style::Faint, "│ "))
    }
}

/// Columns the indentation of a call takes.
fn indent_columns(subject: &Subject) -> usize {
    2 + 2 * usize::from(subject.depth).min(MAX_INDENT)
}

/// Where the program came from, and the time the call took.
fn source_and_duration(running: Option<&Running>, took: Duration) -> String {
    let source = match running {
        None => String::new(),
        Some(Running { source: "persisted", .. }) => "stored".to_owned(),
        Some(Running { attempt: 1, source }) => (*source).to_owned(),
        Some(Running { attempt, source }) => format!("{source}, attempt {attempt}"),
    };
    format!("{source}{:>DURATION_COLUMNS$}", duration(took))
}

/// A duration to two or three digits.
pub(crate) fn duration(took: Duration) -> String {
    let milliseconds = took.as_secs_f64() * 1000.0;
    if milliseconds < 10.0 {
        format!("{milliseconds:.1} ms")
    } else if milliseconds < 1000.0 {
        format!("{milliseconds:.0} ms")
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}

/// A value on one line of `room` columns. If the value of a root call does not fit, `ok` and an outline of it on lines
/// of `below_room` columns below.
fn answer(
    value: &Value,
    room: usize,
    below_room: usize,
    at_top: bool,
) -> (Style, String, Vec<String>) {
    let bytes = encoded_bytes(value);
    if bytes > MAX_VALUE_BYTES {
        return (Style::Good, format!("ok, {bytes} bytes"), Vec::new());
    }
    let short = clean(&value.to_string());
    if columns(&short) <= room || !at_top {
        return (Style::Good, clip(&short, room), Vec::new());
    }
    let mut below = outline(value);
    let more = below.len().saturating_sub(MAX_VALUE_LINES);
    if more > 1 {
        below.truncate(MAX_VALUE_LINES);
        below.push(format!("… {more} more lines"));
    }
    let below = below.iter().map(|line| clip(line, below_room)).collect();
    (Style::Good, "ok".to_owned(), below)
}

/// A value as indented lines, like YAML.
fn outline(value: &Value) -> Vec<String> {
    let indented = |value| outline(value).into_iter().map(|line| format!("  {line}"));
    match value {
        value if is_scalar(value) => vec![plain(value)],
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| {
                let key = clean(key);
                if is_scalar(value) {
                    return vec![format!("{key}: {}", plain(value))];
                }
                std::iter::once(format!("{key}:")).chain(indented(value)).collect()
            })
            .collect(),
        // The dash takes the place of the first line's indentation.
        Value::Array(items) => items
            .iter()
            .flat_map(|item| {
                let mut lines = indented(item);
                let first = lines.next().unwrap_or_default();
                let first = first.strip_prefix("  ").map(|line| format!("- {line}"));
                first.into_iter().chain(lines).collect::<Vec<_>>()
            })
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![plain(value)],
    }
}

/// Whether a value takes one line; empty collections do.
fn is_scalar(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// A scalar without the quotes of JSON.
fn plain(value: &Value) -> String {
    clean(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn failure_lines(failure: &Failure, left: usize, room: usize) -> (Style, String, Vec<String>) {
    let retry = if failure.kind.retriable() { "retriable" } else { "not retriable" };
    let head = clip(&format!("✗ {} ({retry})", clean(failure.kind.code())), left);
    (Style::Bad, head, wrapped(&failure.message, room, MAX_MESSAGE_LINES))
}

#[cfg(test)]
mod tests;
