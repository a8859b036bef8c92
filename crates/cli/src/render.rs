//! Everything that is written: answers on standard output, everything else on standard error.

#![expect(clippy::disallowed_methods, reason = "this is the module that writes")]

pub(crate) mod entry;
pub(crate) mod paint;
pub(crate) mod story;
pub(crate) mod table;
pub(crate) mod timing;
pub(crate) mod trace;

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use lifecycle::outcome::Cause;
use recurgent::{Failure, FailureKind, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::tcgetwinsize;
use serde_json::{Map, Value};

use crate::exit::{CommandFault, Exit};
use paint::{Paint, Style, broken, clean, clean_lines, clip, folded};

/// Lines of a failure's message that are shown.
const MAX_MESSAGE_LINES: usize = 20;
/// Metadata fields of a failure that are shown.
const MAX_METADATA: usize = 10;
/// Metadata that repeats the sentence of a failure, or is for programs.
const REDUNDANT_METADATA: [&str; 7] = [
    "guardrail_class",
    "last_violation_message",
    "last_violation_subtype",
    "normalization_policy",
    "normalized",
    "raw_error_message",
    "retry_after_ms",
];
/// Columns of one metadata value that are shown.
const MAX_METADATA_COLUMNS: usize = 160;
/// Narrowest and widest layout; a terminal may be neither.
const LAYOUT_COLUMNS: std::ops::RangeInclusive<usize> = 40..=200;
/// Columns of a layout if neither a terminal nor `COLUMNS` says how many there are.
const DEFAULT_COLUMNS: usize = 100;

/// Where text is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Answers.
    Output,
    /// Everything else.
    Error,
}

/// Whether colour is wanted there: on a terminal, unless `NO_COLOR` and its kin say otherwise.
pub(crate) fn coloured(stream: Stream) -> bool {
    let choice = match stream {
        Stream::Output => AutoStream::choice(&io::stdout()),
        Stream::Error => AutoStream::choice(&io::stderr()),
    };
    choice != ColorChoice::Never
}

/// Whether it is a terminal.
pub(crate) fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Output => io::stdout().is_terminal(),
        Stream::Error => io::stderr().is_terminal(),
    }
}

/// Columns that a layout may take on a stream: those of the terminal, else of `COLUMNS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// How many.
    pub(crate) columns: usize,
    /// Whether more would not fit. Otherwise a program may read the output, and nothing is left out.
    pub(crate) is_limited: bool,
}

/// The room that a stream has.
pub(crate) fn room(stream: Stream) -> Room {
    let size = match stream {
        Stream::Output => tcgetwinsize(io::stdout()),
        Stream::Error => tcgetwinsize(io::stderr()),
    };
    // Some terminals report 0 columns.
    let terminal = size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    Room::of(terminal.or_else(recurgent::config::columns))
}

impl Room {
    fn of(known: Option<usize>) -> Self {
        let columns = known.unwrap_or(DEFAULT_COLUMNS);
        let columns = columns.clamp(*LAYOUT_COLUMNS.start(), *LAYOUT_COLUMNS.end());
        Self { columns, is_limited: known.is_some() }
    }
}

/// A paint for a stream.
pub(crate) fn paint(stream: Stream) -> Paint {
    Paint { colour: coloured(stream) }
}

/// The outcome of a call: the value on standard output, or the failure on standard error.
pub(crate) fn outcome(outcome: &Outcome) -> Result<(), CommandFault> {
    match &outcome.result {
        Ok(value) => {
            text(&shown(value))?;
        }
        Err(failure) => {
            let trace = outcome.details.as_ref().map(|details| details.trace.as_str());
            note(&failure_block(failure, trace, paint(Stream::Error)));
        }
    }
    outcome.notes.iter().for_each(|note| notice(note));
    Ok(())
}

/// Strings as they are, everything else as JSON for people.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!("{value:#}")
        }
    }
}

/// Exactly one JSON object on one line.
pub(crate) fn json(value: &Value) -> Result<(), CommandFault> {
    bytes(format!("{value}\n").as_bytes())
}

/// Text for people; on a terminal it cannot move the cursor.
pub(crate) fn text(text: &str) -> Result<(), CommandFault> {
    let text =
        if is_terminal(Stream::Output) { clean_lines(text).join("\n") } else { text.to_owned() };
    bytes(format!("{text}\n").as_bytes())
}

/// Lines this program composed itself, colour and all; those that a terminal has no room for are broken between words.
pub(crate) fn lines(lines: &[String]) -> Result<(), CommandFault> {
    let room = room(Stream::Output);
    let fitted = lines.iter().flat_map(|line| fitted(line.trim_end(), room));
    let text: String = fitted.flat_map(|line| [line, "\n".to_owned()]).collect();
    bytes(text.as_bytes())
}

fn fitted(line: &str, room: Room) -> Vec<String> {
    if room.is_limited { folded(line, room.columns) } else { vec![line.to_owned()] }
}

/// Writes bytes to standard output. A reader that closed the pipe (`| head`) is not an error.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), CommandFault> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    check_output(written).map(drop)
}

/// Writes lines as they come; says whether standard output is still read.
pub(crate) fn streamed(lines: &[String]) -> Result<bool, CommandFault> {
    let text: String = lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect();
    let mut out = io::stdout().lock();
    check_output(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Waits a while; says whether standard output is still read.
pub(crate) fn is_read_after(period: Duration) -> bool {
    let out = io::stdout();
    if out.is_terminal() {
        std::thread::sleep(period);
        return true;
    }
    let timeout = Timespec::try_from(period).ok();
    // Without requested events, poll reports errors only: that the reader is gone.
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    match poll(&mut watched, timeout.as_ref()) {
        Ok(0) | Err(_) => true,
        Ok(_) => watched.iter().all(|out| !out.revents().contains(PollFlags::ERR)),
    }
}

/// What a write to standard output says of its reader: false if the reader has closed the pipe, an error if the output
/// cannot be written (a full disk).
pub(crate) fn check_output(written: io::Result<()>) -> Result<bool, CommandFault> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CommandFault::setup(format!(
            "cannot write to standard output: {error}; free some space or write elsewhere"
        ))),
    }
}

/// A failure outside any call.
pub(crate) fn failure(failure: &Failure) {
    note(&failure_block(failure, None, paint(Stream::Error)));
}

/// A number of bytes, as people read it.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut amount = bytes;
    let mut shown = format!("{bytes} B");
    for unit in UNITS {
        if amount < 1000 {
            break;
        }
        shown = format!("{}.{} {unit}", amount / 1000, amount % 1000 / 100);
        amount /= 1000;
    }
    shown
}

/// Why a command did not get as far as an outcome, in the form that was asked for.
pub(crate) fn fault(fault: &CommandFault) {
    if fault.as_json && json(&fault.to_json()).is_ok() {
        return;
    }
    let error = paint(Stream::Error).in_style(Style::Bad, "error:");
    note(&format!("{error} {}", clean_lines(&fault.message).join("\n")));
}

/// A notice that is not a failure.
pub(crate) fn notice(notice: &str) {
    let label = paint(Stream::Error).in_style(Style::Warning, "note:");
    note(&format!("{label} {}", clean_lines(notice).join("\n")));
}

/// A progress line, on a terminal only.
pub(crate) fn progress(text: &str) {
    if is_terminal(Stream::Error) {
        note(&format!("\n{}", paint(Stream::Error).in_style(Style::Faint, text)));
    }
}

/// Replaces the line that the cursor is on. A closed terminal is ignored.
pub(crate) fn replace_line(text: &str) {
    let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
}

/// A label, and text beside it. Line breaks stay; lines that do not fit are broken between words, and all begin in the
/// column of the first.
pub(crate) fn beside(label: &str, label_columns: usize, text: &str, room: Room) -> Vec<String> {
    let width = if room.is_limited { room.columns } else { usize::MAX };
    beside_label(label, label_columns, text, width)
}

/// The same, in lines of at most `width` columns.
pub(crate) fn beside_label(
    label: &str,
    label_columns: usize,
    text: &str,
    width: usize,
) -> Vec<String> {
    let beside = width.saturating_sub(label_columns).max(1);
    let fitted = |line: String| {
        if paint::columns(&line) > beside { broken(&line, beside) } else { vec![line] }
    };
    let margin = " ".repeat(label_columns);
    let lines = clean_lines(text).into_iter().flat_map(fitted).enumerate();
    lines.map(|(n, line)| format!("{}{line}", if n == 0 { label } else { &margin })).collect()
}

/// A closed terminal is ignored.
pub(crate) fn note(text: &str) {
    let room = room(Stream::Error);
    let lines: Vec<String> = text.split('\n').flat_map(|line| fitted(line, room)).collect();
    let _ = writeln!(io::stderr().lock(), "{}", lines.join("\n"));
}

/// The sentence that matters, what to do next, then the details that help.
fn failure_block(failure: &Failure, trace: Option<&str>, paint: Paint) -> String {
    let message = sentence(failure);
    let mut message = message.lines().take(MAX_MESSAGE_LINES).map(clean);
    let first = message.next().unwrap_or_default();
    let mut block = vec![format!("{} {first}", paint.in_style(Style::Bad, "error:"))];
    block.extend(message.map(|line| format!("  {line}")));
    if let Some(next) = next_step(failure, trace.is_some()) {
        block.push(format!("  {} {next}", paint.in_style(Style::Title, "next:")));
    }
    let mut details = vec![("error_type".to_owned(), clean(failure.kind.code()))];
    details.extend(metadata_lines(&failure.metadata));
    details.extend(trace.map(|trace| ("trace_id".to_owned(), trace.to_owned())));
    let width = details.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    block.extend(details.iter().map(|(name, value)| {
        format!("  {} {value}", paint.in_style(Style::Faint, &format!("{name:<width$}")))
    }));
    block.join("\n")
}

/// The message. That of spent guardrail retries is the same for every call, so the last violation is shown instead.
fn sentence(failure: &Failure) -> Cow<'_, str> {
    let violation = failure.metadata.get("last_violation_message").and_then(Value::as_str);
    let is_normalized = failure.metadata.get("normalized") == Some(&Value::Bool(true));
    match violation.filter(|_| is_normalized) {
        Some(violation) => {
            Cow::Owned(format!("no program of the model was allowed to run: {violation}"))
        }
        None => Cow::Borrowed(&failure.message),
    }
}

/// Metadata people can use: short values in the order they came, without what the sentence says.
fn metadata_lines(metadata: &Map<String, Value>) -> Vec<(String, String)> {
    metadata
        .iter()
        .filter(|(name, value)| !value.is_null() && !REDUNDANT_METADATA.contains(&name.as_str()))
        .take(MAX_METADATA)
        .map(|(name, value)| {
            let text = match value {
                Value::String(text) => clean(text),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => clean(&value.to_string()),
            };
            (clean(name), clip(&text, MAX_METADATA_COLUMNS))
        })
        .collect()
}

/// What the message, which says what to do about this failure, cannot know: the commands there are, and how long to wait.
fn next_step(failure: &Failure, in_a_call: bool) -> Option<String> {
    let wait = failure.metadata.get("retry_after_ms").and_then(Value::as_u64);
    let step = match (Exit::of_failure(failure), &failure.kind) {
        (Exit::Cancelled, _) => "nothing was kept of this call; run it again when you like",
        (Exit::Unavailable | Exit::Setup, _) => "`recurgent doctor` shows what is missing",
        (Exit::Ok | Exit::Failed | Exit::Usage, kind) => match (kind, wait) {
            (_, Some(wait)) => {
                let wait = wait_text(Duration::from_millis(wait));
                return Some(format!("wait {wait}, then run it again; the service asked for that"));
            }
            // Only the service knows whether it will succeed.
            (FailureKind::Provider, None) if was_unreachable(failure) => {
                "`recurgent doctor --live` shows whether the service answers"
            }
            // The service, or the script in its place, answered, and the message says what to do about that.
            (FailureKind::Provider, None) => return None,
            (FailureKind::Reported(_), None) if kind.retriable() => "run it again; it may succeed",
            (FailureKind::GuardrailRetryExhausted, None) => {
                "rephrase the request; `recurgent trace show last` shows the programs that were tried"
            }
            (_, None) if kind.retriable() => kind.row().next_step,
            (_, None) => match kind.cause() {
                Cause::Intrinsic if in_a_call => {
                    "`recurgent trace show last` shows the programs that were tried"
                }
                Cause::Intrinsic | Cause::Adaptive | Cause::Extrinsic => return None,
            },
        },
    };
    Some(step.to_owned())
}

/// Whether the model service was asked again until the retries ran out.
fn was_unreachable(failure: &Failure) -> bool {
    failure.metadata.contains_key("transport_attempts")
}

/// A wait in whole seconds or minutes, rounded up.
fn wait_text(wait: Duration) -> String {
    let seconds = wait.as_millis().div_ceil(1000);
    match seconds {
        0..=1 => "1 second".to_owned(),
        2..=119 => format!("{seconds} seconds"),
        _ => format!("{} minutes", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(failure: &Failure, expected: &str) {
        assert_eq!(failure_block(failure, Some("t1"), Paint { colour: false }), expected);
    }

    #[test]
    fn a_failure_says_what_where_and_what_next() {
        check(
            &Failure::new(FailureKind::Execution, "ZeroDivisionError: division by zero\nline 2")
                .with("error_class", "ZeroDivisionError")
                .with("budget", json!({"spent": 1}))
                .with("env_id", Value::Null),
            "error: ZeroDivisionError: division by zero\n  line 2\n  \
             next: `recurgent trace show last` shows the programs that were tried\n  error_type  execution\n  \
             error_class ZeroDivisionError\n  budget      {\"spent\":1}\n  trace_id    t1",
        );
        check(
            &Failure::new(FailureKind::Cancelled, "stopped"),
            "error: stopped\n  next: nothing was kept of this call; run it again when you like\n  \
             error_type cancelled\n  trace_id   t1",
        );
        check(
            &Failure::new(FailureKind::InvalidCall, "no\u{1b}[2J"),
            "error: no\u{fffd}[2J\n  error_type invalid_call\n  trace_id   t1",
        );
    }

    #[test]
    fn a_layout_takes_what_the_terminal_has_within_bounds() {
        let columns = |known| Room::of(known).columns;
        assert_eq!([columns(Some(10)), columns(Some(90)), columns(Some(999))], [40, 90, 200]);
        assert_eq!(Room::of(None), Room { columns: 100, is_limited: false });
    }

    #[test]
    fn text_beside_a_label_is_broken_between_words_only_if_it_must_fit() {
        let shown =
            |is_limited| beside("ok  ", 4, "one two\nthree", Room { columns: 9, is_limited });
        assert_eq!(shown(true), ["ok  one", "    two", "    three"]);
        assert_eq!(shown(false), ["ok  one two", "    three"]);
    }

    #[test]
    fn the_violation_comes_before_the_names_of_its_metadata() {
        let failure = Failure::new(FailureKind::GuardrailRetryExhausted, "couldn't be completed")
            .with("guardrail_recovery_attempts", 1)
            .with("guardrail_subtype", "process_escape")
            .with("last_violation_message", "`os.fork` starts a process")
            .with("normalized", true)
            .with("raw_error_message", "guardrail retries exhausted");
        check(
            &failure,
            "error: no program of the model was allowed to run: `os.fork` starts a process\n  \
             next: rephrase the request; `recurgent trace show last` shows the programs that were tried\n  \
             error_type                  guardrail_retry_exhausted\n  \
             guardrail_recovery_attempts 1\n  guardrail_subtype           process_escape\n  \
             trace_id                    t1",
        );
    }

    #[test]
    fn the_next_step_fits_the_failure() {
        let limited = |ms: u64| {
            Failure::new(FailureKind::RateLimited, "busy").with("retry_after_ms", json!(ms))
        };
        for (failure, expected) in [
            (
                limited(120_000),
                Some("wait 2 minutes, then run it again; the service asked for that"),
            ),
            (
                limited(31_500),
                Some("wait 32 seconds, then run it again; the service asked for that"),
            ),
            (
                Failure::new(FailureKind::RateLimited, "busy"),
                Some("wait as long as the service asks, then run it again"),
            ),
            (
                Failure::new(FailureKind::ProviderAuth, "no key"),
                Some("`recurgent doctor` shows what is missing"),
            ),
            (Failure::new(FailureKind::InvalidCall, "no"), None),
        ] {
            assert_eq!(next_step(&failure, true).as_deref(), expected, "{failure:?}");
        }
    }

    #[test]
    fn sizes_are_short() {
        let shown = [0, 999, 1000, 1999, 12_345_678, 3_000_000_000].map(size);
        assert_eq!(shown, ["0 B", "999 B", "1.0 kB", "1.9 kB", "12.3 MB", "3.0 GB"]);
    }

    #[test]
    fn strings_are_shown_raw_and_the_rest_as_json() {
        assert_eq!(shown(&json!("a\nb")), "a\nb");
        assert_eq!(shown(&json!({"a": [1]})), "{\n  \"a\": [\n    1\n  ]\n}");
        assert_eq!(shown(&json!(null)), "null");
    }
}
