//! `recurgent watch`: every call that is logged, as it happens.

use std::time::Duration;

use clap::Args;
use recurgent::Cancellation;
use serde_json::Value;

use super::settings::StateFlags;
use crate::exit::{CommandFault, Exit};
use crate::interrupt::Interrupt;
use crate::logbook::{self, Follower};
use crate::render::entry::{call_line, execution_line, text};
use crate::render::{self, Stream};

/// How often the log is looked at.
const PERIOD: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  recurgent watch
  recurgent watch --status error --last 50
  recurgent watch --role calculator --method add
  recurgent watch --trace 01J9Z --json | jq .env_id

A call is logged when it has ended, so the calls it made come before it, further to the right.
`recurgent trace show ID` shows one tree from the top. Ctrl-C ends it.";

/// Show every call that is logged, as it happens
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    filter: Filter,
    /// Entries to begin with, of those already there
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: usize,
    /// Print the entries, one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: StateFlags,
}

/// Which calls.
#[derive(Debug, Args)]
struct Filter {
    /// Only calls that ended so
    #[arg(long, value_parser = ["ok", "error"])]
    status: Option<String>,
    /// Only calls of this role
    #[arg(long)]
    role: Option<String>,
    /// Only calls of this method
    #[arg(long)]
    method: Option<String>,
    /// Only calls of this trace; the beginning of its id will do
    #[arg(long, value_name = "ID")]
    trace: Option<String>,
}

impl Filter {
    fn wants(&self, entry: &Value) -> bool {
        let is = |wanted: &Option<String>, field: &str| {
            wanted.as_deref().is_none_or(|wanted| text(entry, field) == wanted)
        };
        is(&self.status, "outcome_status")
            && is(&self.role, "role")
            && is(&self.method, "method")
            && self.trace.as_deref().is_none_or(|id| text(entry, "trace_id").starts_with(id))
    }
}

impl WatchOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let log = logbook::path(&self.place.config(&[])?)?;
        let interrupt = Interrupt::install()?;
        let mut follower = Follower::at_end(&log)?;
        let before = follower.before(self.last, |entry| self.filter.wants(entry))?;
        if !log.exists() {
            render::notice(&format!("nothing is logged yet in {}; waiting", log.display()));
        }
        let ended = interrupt.during(|cancellation| {
            let reading = self.show(&before)?;
            self.follow(&mut follower, reading, &cancellation)
        });
        if follower.skipped > 0 {
            render::notice(&format!("{} lines of the log are not entries", follower.skipped));
        }
        ended.map(|()| Exit::Ok)
    }

    fn follow(
        &self,
        follower: &mut Follower,
        reading: bool,
        cancellation: &Cancellation,
    ) -> Result<(), CommandFault> {
        let mut reading = reading;
        while reading && !cancellation.is_cancelled() && render::is_read_after(PERIOD) {
            let mut news = follower.news();
            news.retain(|entry| self.filter.wants(entry));
            reading = self.show(&news)?;
        }
        Ok(())
    }

    /// Says whether standard output is still read.
    fn show(&self, entries: &[Value]) -> Result<bool, CommandFault> {
        if entries.is_empty() {
            return Ok(true);
        }
        if self.json {
            return render::streamed(&entries.iter().map(Value::to_string).collect::<Vec<_>>());
        }
        let paint = render::paint(Stream::Output);
        let lines: Vec<String> = entries
            .iter()
            .flat_map(|entry| [Some(call_line(entry, paint)), execution_line(entry, paint)])
            .flatten()
            .collect();
        render::streamed(&lines)
    }
}
