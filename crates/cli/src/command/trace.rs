//! `recurgent trace`: past calls from the log, one call with all it called, and running it again.

mod list;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::{Args, Subcommand};
use lifecycle::excerpt::counted;
use lifecycle::log_entry::{fill_programs, program_texts};
use recurgent::config::Config;
use recurgent::replay::{ReplayFault, Replayed, replay};
use serde_json::{Value, json};

use super::settings::VerbFlags;
use crate::exit::{CommandFault, Exit};
use crate::logbook::{self, Follower};
use crate::render::entry::{
    attempt_lines, call_facts, call_line, cost, count, dollars, execution_line, indent,
    model_calls, text, time,
};
use crate::render::paint::{Style, clean, clip, columns};
use crate::render::{self, Stream, timing};

const EXAMPLES: &str = "\
Examples:
  recurgent trace list                      the last calls, newest first
  recurgent trace list --status error --since 2h
  recurgent trace show last                 the last call: programs, prints, attempts, costs, times
  recurgent trace show 01J9ZQ               a trace, or a call with all it called
  recurgent trace show 01J9ZQ --json
  recurgent trace replay 01J9ZQ             run it again without a model, and compare

An id is that of a call or a trace, any beginning of it that is not ambiguous, or `last`.";

/// Ids named when a prefix means several.
const MAX_NAMED: usize = 5;
/// The id that means the call that was logged last.
const LAST: &str = "last";

/// Show past calls from the log, or run them again
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceOptions {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    flags: VerbFlags,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The last calls, newest first
    List(list::ListArgs),
    /// A call tree with its programs, what they printed, attempts, costs, and where the time went
    Show {
        /// The id of a call or a trace, or the beginning of it, or `last`
        id: String,
    },
    /// Run it again without a model, by the programs the log has, and compare
    Replay {
        /// The id of a call or a trace, or the beginning of it, or `last`
        id: String,
    },
}

/// What an id means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TraceMatch {
    trace: String,
    /// `None`: the whole trace.
    call: Option<String>,
}

impl TraceOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let config = self.flags.place.config(&[])?;
        match &self.verb {
            Verb::List(args) => args.list(&config, self.flags.json),
            Verb::Show { id } => self.show(self.found(id, &config)?),
            Verb::Replay { id } => self.replay(&config, &self.found(id, &config)?),
        }
    }

    fn found(&self, id: &str, config: &Config) -> Result<Found, CommandFault> {
        let found = Found::by(id, config)?;
        if found.skipped > 0 && !self.flags.json {
            render::notice(&format!("{} lines of the log are not entries", found.skipped));
        }
        Ok(found)
    }

    fn show(&self, found: Found) -> Result<Exit, CommandFault> {
        let Found { matched, entries, skipped } = found;
        let shown = tree(entries, matched.call.as_deref());
        if self.flags.json {
            render::json(&json!({
                "trace_id": matched.trace, "call_id": matched.call, "skipped_lines": skipped, "calls": shown,
            }))?;
        } else {
            render::lines(&lines(&matched.trace, &shown))?;
        }
        Ok(Exit::Ok)
    }

    fn replay(&self, config: &Config, found: &Found) -> Result<Exit, CommandFault> {
        let replays: Vec<Replayed> = found
            .roots()
            .iter()
            .map(|call| replay(config, &found.entries, call))
            .collect::<Result<_, _>>()
            .map_err(unreplayed)?;
        let is_same = replays.iter().all(|replayed| replayed.differences.is_empty());
        if self.flags.json {
            let calls: Vec<Value> = replays.iter().map(Replayed::to_json).collect();
            render::json(&json!({
                "trace_id": found.matched.trace, "same": is_same, "calls": calls,
            }))?;
        } else {
            render::lines(&replays.iter().flat_map(replayed_lines).collect::<Vec<_>>())?;
        }
        Ok(if is_same { Exit::Ok } else { Exit::Failed })
    }
}

fn unreplayed(fault: ReplayFault) -> CommandFault {
    match fault {
        ReplayFault::Unknown(_) | ReplayFault::Incomplete { .. } => {
            CommandFault::missing(fault.to_string())
        }
        ReplayFault::Setup(fault) => fault.into(),
        ReplayFault::Config(_) => CommandFault::setup(fault.to_string()),
        ReplayFault::Agent(fault) => fault.into(),
    }
}

fn replayed_lines(replayed: &Replayed) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    let (style, word) = match replayed.differences.as_slice() {
        [] => (Style::Good, "same"),
        [..] => (Style::Bad, "differs"),
    };
    let heading = format!("{}  {}", paint.in_style(style, word), clean(&replayed.call));
    let rest = replayed.differences.iter().flat_map(|difference| {
        [
            format!("  {}", difference.field),
            format!("    - {}", clean(&difference.logged.to_string())),
            format!("    + {}", clean(&difference.now.to_string())),
        ]
    });
    std::iter::once(heading).chain(rest).collect()
}

/// The entries of the trace an id means.
struct Found {
    matched: TraceMatch,
    entries: Vec<Value>,
    skipped: usize,
}

impl Found {
    fn by(id: &str, config: &Config) -> Result<Self, CommandFault> {
        let log = logbook::path(config)?;
        let files = logbook::files(&log);
        let (matched, skipped) = TraceMatch::find(id.trim(), &log)?;
        let (mut entries, mut texts) = (Vec::new(), BTreeMap::new());
        for file in files {
            // It could be read a moment ago; if it was removed since, the rest is shown.
            let _ = logbook::read(&file, |entry| {
                let new = program_texts(&entry).filter(|(digest, _)| !texts.contains_key(*digest));
                let new: Vec<_> =
                    new.map(|(digest, text)| (digest.to_owned(), text.to_owned())).collect();
                texts.extend(new);
                if text(&entry, "trace_id") == matched.trace {
                    entries.push(entry);
                }
            });
        }
        for entry in &mut entries {
            fill_programs(entry, &texts);
        }
        Ok(Self { matched, entries, skipped })
    }

    /// The call that is matched, or those of the trace that no other call made.
    fn roots(&self) -> Vec<&str> {
        if let Some(call) = &self.matched.call {
            return vec![call];
        }
        let ids = |field: &'static str| self.entries.iter().map(move |entry| text(entry, field));
        let known: BTreeSet<&str> = ids("call_id").collect();
        let roots =
            self.entries.iter().filter(|entry| !known.contains(text(entry, "parent_call_id")));
        roots.map(|entry| text(entry, "call_id")).collect()
    }
}

/// The id of the call that an id given by a person means: its own, or the beginning of it, or `last`. An id that the log
/// does not have, or a log that is off, leaves it as it is: the store may know the call.
pub(super) fn full_call_id(id: &str, config: &Config) -> Result<String, CommandFault> {
    let Ok(log) = logbook::path(config) else { return Ok(id.to_owned()) };
    let mut calls = BTreeSet::new();
    let (id, is_last) = (id.trim(), id.trim() == LAST);
    if is_last {
        calls.extend(TraceMatch::last(&log)?.and_then(|matched| matched.call));
    }
    for file in logbook::files(&log).iter().filter(|file| !is_last && file.exists()) {
        logbook::read(file, |entry| {
            let call = text(&entry, "call_id");
            if call.starts_with(id) && calls.len() <= MAX_NAMED {
                calls.insert(call.to_owned());
            }
        })?;
    }
    if calls.len() > 1 && !calls.contains(id) {
        let named: Vec<&str> = calls.iter().map(String::as_str).take(MAX_NAMED).collect();
        return Err(CommandFault::missing(format!(
            "several calls have an id that begins with {id:?}; say more of it: {}",
            named.join(", ")
        )));
    }
    Ok(calls.into_iter().next().unwrap_or_else(|| id.to_owned()))
}

impl TraceMatch {
    /// What an id means in a log, and how many lines of the log are not entries.
    fn find(id: &str, log: &Path) -> Result<(Self, usize), CommandFault> {
        if id == LAST {
            let last = Self::last(log)?;
            return last.map(|last| (last, 0)).ok_or_else(|| {
                CommandFault::missing(
                    "no call is logged yet; `recurgent call ROLE METHOD` makes one, and its state_dir has its log",
                )
            });
        }
        let (mut matched, mut skipped) = (BTreeSet::new(), 0);
        for file in logbook::files(log).iter().filter(|file| file.exists()) {
            skipped += logbook::read(file, |entry| matched.extend(Self::by(id, &entry)))?;
        }
        Ok((only(id, matched)?, skipped))
    }

    /// The call that was logged last. A call is logged after those it made, so that it is the root of its tree.
    fn last(log: &Path) -> Result<Option<Self>, CommandFault> {
        let last = Follower::at_end(log)?.before(1, |_| true)?.pop();
        Ok(last.map(|entry| Self {
            trace: text(&entry, "trace_id").to_owned(),
            call: Some(text(&entry, "call_id").to_owned()),
        }))
    }

    /// What a prefix can mean in an entry.
    fn by(prefix: &str, entry: &Value) -> Option<Self> {
        let (trace, call) = (text(entry, "trace_id"), text(entry, "call_id"));
        let call = call.starts_with(prefix).then(|| call.to_owned());
        (call.is_some() || trace.starts_with(prefix)).then(|| Self {
            trace: trace.to_owned(),
            call: call.filter(|_| !trace.starts_with(prefix)),
        })
    }
}

fn only(id: &str, matched: BTreeSet<TraceMatch>) -> Result<TraceMatch, CommandFault> {
    let mut names: Vec<&str> =
        matched.iter().map(|matched| matched.call.as_deref().unwrap_or(&matched.trace)).collect();
    if names.len() > 1 {
        let several = names.len();
        names.truncate(MAX_NAMED);
        return Err(CommandFault::missing(format!(
            "{several} calls or traces have an id that begins with {id:?}; say more of it: {}",
            names.join(", ")
        )));
    }
    matched.into_iter().next().ok_or_else(|| {
        CommandFault::missing(format!(
            "no call and no trace in the log has an id that begins with {id:?}; `recurgent trace list` shows them"
        ))
    })
}

/// A call and all it called, or all there is: each before those it made, in the order they were made.
fn tree(mut entries: Vec<Value>, from: Option<&str>) -> Vec<Value> {
    let known: BTreeSet<String> =
        entries.iter().map(|entry| text(entry, "call_id").to_owned()).collect();
    let mut ordered = Vec::new();
    let is_root = |entry: &Value| match from {
        Some(call) => text(entry, "call_id") == call,
        // A parent that is missing was not logged: its process was killed, or is still at it.
        None => !known.contains(text(entry, "parent_call_id")),
    };
    let mut open: Vec<Value> = entries.extract_if(.., |entry| is_root(entry)).collect();
    let mut children: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for entry in entries {
        children.entry(text(&entry, "parent_call_id").to_owned()).or_default().push(entry);
    }
    open.reverse();
    while let Some(call) = open.pop() {
        let made = children.remove(text(&call, "call_id")).unwrap_or_default();
        open.extend(made.into_iter().rev());
        ordered.push(call);
    }
    if from.is_none() {
        // Entries that claim to have made each other hang from nothing, and are shown all the same.
        ordered.extend(children.into_values().flatten());
    }
    ordered
}

/// A tree for people: each call with its attempts, then what all took.
fn lines(trace: &str, calls: &[Value]) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    let room = render::room(Stream::Output);
    let width = if room.is_limited { room.columns } else { usize::MAX };
    let title = |text: &str| paint.in_style(Style::Title, text);
    let mut lines = vec![title(&clip(&format!("trace {}", clean(trace)), width))];
    for call in calls {
        lines.push(call_line(call, paint, width));
        let when = format!("call {}  {}", text(call, "call_id"), time(call, "%F %T"));
        let margin = format!("{}    ", indent(call));
        let one_line = format!("{margin}{}  {}", clean(&when), call_facts(call));
        let facts = if columns(&one_line) <= width {
            vec![one_line]
        } else {
            vec![format!("{margin}{}", clean(&when)), format!("{margin}{}", call_facts(call))]
        };
        lines.extend(facts.iter().map(|line| paint.in_style(Style::Faint, &clip(line, width))));
        lines.extend(execution_line(call, paint, width));
        lines.extend(attempt_lines(call, paint, width));
    }
    let bars = timing::lines(calls, room.columns, paint);
    if !bars.is_empty() {
        lines.push(title("time"));
        lines.extend(bars);
    }
    lines.push(clip(&totals(calls), width));
    lines
}

/// Calls, model calls, tokens and money of a tree.
fn totals(calls: &[Value]) -> String {
    let sum = |pointer: &str| calls.iter().map(|call| count(call, pointer)).sum::<u64>();
    let costs: Vec<f64> = calls.iter().filter_map(cost).collect();
    let cost = match costs.as_slice() {
        [] => String::new(),
        costs => format!(", {}", dollars(costs.iter().sum())),
    };
    let asked: u64 = calls.iter().map(model_calls).sum();
    format!(
        "{}, {}, {} tokens sent ({} cached), {} received{cost}",
        counted(calls.len(), "call"),
        counted(asked, "model call"),
        sum("/usage/input_tokens"),
        sum("/usage/cached_tokens"),
        sum("/usage/output_tokens"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(call: &str, parent: Option<&str>) -> Value {
        json!({"call_id": call, "parent_call_id": parent, "trace_id": "trace-1"})
    }

    fn ordered(from: Option<&str>) -> Vec<String> {
        // As they are logged: children first.
        let entries = vec![
            entry("b1", Some("b")),
            entry("b", Some("a")),
            entry("c", Some("a")),
            entry("a", None),
            entry("z", Some("lost")),
            entry("x", Some("y")),
            entry("y", Some("x")),
            entry("own", Some("own")),
        ];
        tree(entries, from).iter().map(|entry| text(entry, "call_id").to_owned()).collect()
    }

    #[test]
    fn calls_come_before_those_they_made_and_none_is_lost() {
        assert_eq!(ordered(None), ["a", "b", "b1", "c", "z", "own", "y", "x"]);
        assert_eq!(ordered(Some("x")), ["x", "y"], "a circle is gone round once");
        assert_eq!(ordered(Some("b")), ["b", "b1"]);
    }

    #[test]
    fn a_prefix_means_a_trace_or_a_call() {
        let found = |prefix| TraceMatch::by(prefix, &entry("call-1", None));
        assert_eq!(found("trace").unwrap().call, None);
        assert_eq!(found("call").unwrap().call.as_deref(), Some("call-1"));
        assert_eq!(found("x"), None);
    }
}
