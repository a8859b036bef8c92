//! `recurgent watch`: every call that is logged, as it happens.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::filter::LogFilter;
use super::settings::StateFlags;
use crate::exit::{CommandFault, Exit};
use crate::interrupt::Interrupt;
use crate::logbook::{self, Follower};
use crate::render::entry::{call_facts, call_line, execution_line, short_id, text, time};
use crate::render::paint::{Style, clip, columns};
use crate::render::{self, Stream};

/// Columns below which the facts of a call are on a line of their own.
const MIN_WIDTH_FOR_FACTS: usize = 80;
/// How often the log is looked at.
const PERIOD: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  recurgent watch
  recurgent watch --status error --last 50
  recurgent watch --role calculator --method add
  recurgent watch --session desk --since 2h --last 50
  recurgent watch --trace 01J9Z --json | jq .env_id

A call is logged when it has ended, so the calls it made come before it, further to the right.
Each line has the time (UTC) and the beginning of the call's id: `recurgent trace show ID` shows its tree from the top.
Ctrl-C ends it.";

/// Show every call that is logged, as it happens
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    filter: LogFilter,
    /// Entries to begin with, of those already there
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: usize,
    /// Print the entries, one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: StateFlags,
}

impl WatchOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let log = logbook::path(&self.place.config(&[])?)?;
        let interrupt = Interrupt::install()?;
        let mut follower = Follower::at_end(&log)?;
        let wanted = self.filter.wanted();
        let before = follower.before(self.last, &wanted)?;
        if !log.exists() {
            render::notice(&format!("nothing is logged yet in {}; waiting", log.display()));
        }
        let ended = interrupt.announcing("stopped watching", |cancellation| {
            let mut reading = self.show(&before)?;
            while reading && !cancellation.is_cancelled() && render::is_read_after(PERIOD) {
                let mut news = follower.news();
                news.retain(&wanted);
                reading = self.show(&news)?;
            }
            Ok(())
        });
        if follower.skipped > 0 {
            render::notice(&format!("{} lines of the log are not entries", follower.skipped));
        }
        ended.map(|()| Exit::Ok)
    }

    /// Says whether standard output is still read.
    fn show(&self, entries: &[Value]) -> Result<bool, CommandFault> {
        if entries.is_empty() {
            return Ok(true);
        }
        if self.json {
            return render::streamed(&entries.iter().map(Value::to_string).collect::<Vec<_>>());
        }
        render::streamed(&entries.iter().flat_map(lines).collect::<Vec<_>>())
    }
}

/// A call: when it ended, its id, the call and its result; below, what it took and where it ran.
fn lines(entry: &Value) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    let room = render::room(Stream::Output);
    let width = if room.is_limited { room.columns } else { usize::MAX };
    let faint = |text: &str| paint.in_style(Style::Faint, text);
    let label = format!("{} {}  ", time(entry, "%H:%M:%S"), short_id(text(entry, "call_id")));
    let (facts, beside) = (call_facts(entry), width.saturating_sub(columns(&label)));
    let line = call_line(entry, paint, beside.saturating_sub(columns(&facts) + 2));
    let mut lines = if room.is_limited && width < MIN_WIDTH_FOR_FACTS {
        let call = format!("{}{}", faint(&label), call_line(entry, paint, beside));
        vec![call, format!("{}{}", " ".repeat(columns(&label)), faint(&clip(&facts, beside)))]
    } else {
        vec![format!("{}{line}  {}", faint(&label), faint(&facts))]
    };
    lines.extend(execution_line(entry, paint, width));
    lines
}
