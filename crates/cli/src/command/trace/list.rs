//! `recurgent trace list`: the last calls, newest first.

use clap::Args;
use recurgent::config::Config;
use serde_json::{Value, json};

use crate::command::filter::LogFilter;
use crate::exit::{CommandFault, Exit};
use crate::logbook::{self, Follower};
use crate::render::entry::{
    LISTED_TIME, Tokens, arguments, call_name, cost, count, dollars, model_calls, seconds, source,
    text, time,
};
use crate::render::paint::Style;
use crate::render::table::{Column, Table, TableCell, cell, plain};
use crate::render::trace::duration;
use crate::render::{self, Stream};

/// Fewest characters of an id that are shown.
const SHORT_ID: usize = 8;

/// Which calls, and how many of them.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: LogFilter,
    /// Most calls that are listed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    last: u16,
}

impl ListArgs {
    pub(super) fn list(&self, config: &Config, as_json: bool) -> Result<Exit, CommandFault> {
        let log = logbook::path(config)?;
        let mut calls =
            Follower::at_end(&log)?.before(usize::from(self.last), self.filter.wanted())?;
        calls.reverse();
        if as_json {
            let calls: Vec<Value> = calls.iter().map(summary).collect();
            render::json(&json!({ "calls": calls }))?;
            return Ok(Exit::Ok);
        }
        if calls.is_empty() {
            render::notice(&format!(
                "{} is logged in {}; `recurgent call ROLE METHOD` makes one",
                self.filter.none_found(),
                log.display()
            ));
            return Ok(Exit::Ok);
        }
        render::lines(&lines(&calls))?;
        Ok(Exit::Ok)
    }
}

/// What other programs read of a call.
fn summary(call: &Value) -> Value {
    let tokens = Tokens::of(call);
    let field = |name: &str| call.get(name).cloned().unwrap_or_default();
    json!({
        "timestamp": field("timestamp"),
        "call_id": field("call_id"),
        "trace_id": field("trace_id"),
        "role": field("role"),
        "method": field("method"),
        "args": field("args"),
        "kwargs": field("kwargs"),
        "status": field("outcome_status"),
        "error_type": field("outcome_error_type"),
        "duration_ms": field("duration_ms"),
        "source": source(call),
        "model_calls": model_calls(call),
        "input_tokens": tokens.input,
        "cached_tokens": tokens.cached,
        "output_tokens": tokens.output,
        "cost_usd": cost(call),
        "attempts": count(call, "/attempt_id"),
        "session": field("session"),
        "depth": field("depth"),
    })
}

fn lines(calls: &[Value]) -> Vec<String> {
    let mut table = Table::new(&[
        Column::text("time (UTC)").expendable(3),
        Column::text("id"),
        Column::text("call").shrinks_to(20),
        Column::text("status").shrinks_to(6),
        Column::number("took").expendable(1),
        Column::text("source").expendable(4),
        Column::number("models").expendable(5),
        Column::number("tokens").expendable(6),
        Column::number("cost").expendable(2),
        Column::number("attempts").expendable(7),
    ]);
    let ids: Vec<&str> = calls.iter().map(|call| text(call, "call_id")).collect();
    for call in calls {
        table.row(row(call, &ids));
    }
    table.lines(render::room(Stream::Output), render::paint(Stream::Output))
}

fn row(call: &Value, ids: &[&str]) -> Vec<TableCell> {
    let (status, style) = match text(call, "outcome_status") {
        "ok" => ("ok", Style::Good),
        _ => (text(call, "outcome_error_type"), Style::Bad),
    };
    let nothing_if_zero = |number: u64| match number {
        0 => "-".to_owned(),
        number => number.to_string(),
    };
    let tokens = Tokens::of(call);
    let sent = if tokens == Tokens::default() { "-".to_owned() } else { tokens.to_string() };
    vec![
        cell(Style::Faint, time(call, LISTED_TIME)),
        plain(distinct_start(text(call, "call_id"), ids)),
        cell(Style::Name, format!("{}({})", call_name(call), arguments(call))),
        cell(style, status),
        plain(seconds(call, "duration_ms").map(duration).unwrap_or_default()),
        plain(source(call)),
        plain(nothing_if_zero(model_calls(call))),
        plain(sent),
        plain(cost(call).map_or_else(|| "-".to_owned(), dollars)),
        plain(count(call, "/attempt_id").to_string()),
    ]
}

/// The shortest beginning of an id that no other listed id has.
fn distinct_start(id: &str, ids: &[&str]) -> String {
    let common = |other: &&str| id.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let others = ids.iter().filter(|other| **other != id);
    let longest = others.map(common).max().unwrap_or_default();
    id.chars().take(SHORT_ID.max(longest + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_id_is_long_enough_to_be_the_only_one() {
        let ids = ["0123456789abcdef", "0123456789xx", "ffff0000ffff0000"];
        assert_eq!(distinct_start(ids[0], &ids), "0123456789a");
        assert_eq!(distinct_start(ids[2], &ids), "ffff0000");
    }
}
