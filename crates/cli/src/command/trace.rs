//! `recurgent trace`: one call, or a whole tree of them, from the log.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, Subcommand};
use lifecycle::log_entry::{fill_programs, program_texts};
use recurgent::config::Config;
use recurgent::replay::{ReplayFault, Replayed, replay};
use serde_json::{Value, json};

use super::settings::StateFlags;
use crate::exit::{CommandFault, Exit};
use crate::logbook;
use crate::render::entry::{attempt_lines, call_line, execution_line, text};
use crate::render::paint::{Style, clean};
use crate::render::{self, Stream};

const EXAMPLES: &str = "\
Examples:
  recurgent trace show 01J9ZQ               a trace, or a call with all it called
  recurgent trace show 01J9ZQ --json
  recurgent trace replay 01J9ZQ             run it again without a model, and compare

Failures, `recurgent call --json` and `recurgent watch --json` show ids.";

/// Ids named when a prefix means several.
const MAX_NAMED: usize = 5;

/// Show past calls from the log, or run them again
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceOptions {
    #[command(subcommand)]
    verb: Verb,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    place: StateFlags,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// A call tree with its attempts, environments and workers
    Show {
        /// The id of a call or a trace, or the beginning of it
        id: String,
    },
    /// Run it again without a model, by the programs the log has, and compare
    Replay {
        /// The id of a call or a trace, or the beginning of it
        id: String,
    },
}

impl Verb {
    fn id(&self) -> &str {
        match self {
            Self::Show { id } | Self::Replay { id } => id,
        }
    }
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
        let config = self.place.config(&[])?;
        let found = Found::by(self.verb.id(), &config)?;
        if found.skipped > 0 && !self.json {
            render::notice(&format!("{} lines of the log are not entries", found.skipped));
        }
        match self.verb {
            Verb::Show { .. } => self.show(found),
            Verb::Replay { .. } => self.replay(&config, &found),
        }
    }

    fn show(&self, found: Found) -> Result<Exit, CommandFault> {
        let Found { matched, entries, skipped } = found;
        let shown = tree(entries, matched.call.as_deref());
        if self.json {
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
        if self.json {
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
        let mut matched = BTreeSet::new();
        let mut skipped = 0;
        for file in files.iter().filter(|file| file.exists()) {
            skipped +=
                logbook::read(file, |entry| matched.extend(TraceMatch::by(id.trim(), &entry)))?;
        }
        let matched = only(id, matched)?;
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

impl TraceMatch {
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
            "no call and no trace in the log has an id that begins with {id:?}; `recurgent watch --json` shows them"
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

fn lines(trace: &str, calls: &[Value]) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    let mut lines = vec![paint.in_style(Style::Title, &format!("trace {}", clean(trace)))];
    for call in calls {
        lines.push(call_line(call, paint));
        let when = format!("call {}  {}", text(call, "call_id"), text(call, "timestamp"));
        let indent = lines.last().map_or(0, |line| line.len() - line.trim_start().len());
        lines.push(format!(
            "{}    {}",
            " ".repeat(indent),
            paint.in_style(Style::Faint, &clean(&when))
        ));
        lines.extend(execution_line(call, paint));
        lines.extend(attempt_lines(call, paint));
    }
    lines
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
