//! `recurgent usage`: model calls made and avoided, tokens and money, from the log.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use lifecycle::excerpt::counted;
use serde_json::{Value, json};

use super::age::age;
use super::filter::began;
use super::settings::StateFlags;
use crate::exit::{CommandFault, Exit};
use crate::logbook;
use crate::render::entry::{
    Tokens, call_name, cost, count, dollars, ended_at, model_calls, seconds, text, thousands, time,
};
use crate::render::paint::{Style, clip};
use crate::render::table::{Column, Table, TableCell, cell, plain};
use crate::render::trace::duration;
use crate::render::{self, Stream};

const EXAMPLES: &str = "\
Examples:
  recurgent usage                       all that is logged, in one row
  recurgent usage --by day --since 7d
  recurgent usage --by role
  recurgent usage --by tool --json      tools and other methods, by role.method

A call that ran a stored program avoided a model call. What it saved is an estimate: the average cost and time of the \
logged model calls for the same method.";

/// Most rows, and most methods, that are counted by name; what comes later is counted together.
const MAX_NAMES: usize = 10_000;
/// The name of what comes later.
const OTHERS: &str = "(others)";
/// Characters of a name that are kept.
const MAX_NAME: usize = 200;

/// Show what calls used: model calls made and avoided, tokens, money
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UsageOptions {
    /// One row for each of these
    #[arg(long)]
    by: Option<Grouping>,
    /// Only calls that ended within this time, such as 12h or 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    since: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: StateFlags,
}

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Grouping {
    /// A role
    Role,
    /// A method of a role
    Tool,
    /// A day (UTC)
    Day,
}

impl Grouping {
    fn name(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Tool => "tool",
            Self::Day => "day",
        }
    }

    fn of(self, call: &Value) -> String {
        match self {
            Self::Role => text(call, "role").to_owned(),
            Self::Tool => call_name(call),
            Self::Day => time(call, "%F"),
        }
    }
}

impl UsageOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let log = logbook::path(&self.place.config(&[])?)?;
        let mut tally = UsageTally::new(self.by, self.since.map(began));
        let mut skipped = 0;
        for file in logbook::files(&log).iter().filter(|file| file.exists()) {
            skipped += logbook::read(file, |call| tally.add(&call))?;
        }
        let (groups, total) = tally.finished();
        if self.json {
            let groups: Vec<Value> =
                groups.iter().map(|(name, row)| row.to_json(Some(name))).collect();
            render::json(&json!({
                "by": self.by.map(Grouping::name),
                "total": total.to_json(None),
                "groups": groups,
                "skipped_lines": skipped,
            }))?;
            return Ok(Exit::Ok);
        }
        if skipped > 0 {
            render::notice(&format!("{skipped} lines of the log are not entries"));
        }
        if total.calls == 0 {
            let none = if self.since.is_some() { "no such call" } else { "no call" };
            render::notice(&format!("{none} is logged in {}", log.display()));
            return Ok(Exit::Ok);
        }
        render::lines(&self.lines(&groups, &total))?;
        Ok(Exit::Ok)
    }

    fn lines(&self, groups: &[(String, UsageRow)], total: &UsageRow) -> Vec<String> {
        let paint = render::paint(Stream::Output);
        let mut table = Table::new(&[
            Column::text(self.by.map_or("", Grouping::name)).shrinks_to(8),
            Column::number("calls"),
            Column::number("ok").expendable(6),
            Column::number("failed").expendable(5),
            Column::number("models"),
            Column::number("avoided"),
            Column::number("in").expendable(2),
            Column::number("cached").expendable(4),
            Column::number("out").expendable(2),
            Column::number("cost"),
            Column::number("saved").expendable(1),
            Column::number("time saved").expendable(3),
        ]);
        for (name, row) in groups {
            table.row(row.cells(cell(Style::Name, name)));
        }
        table.row(total.cells(cell(Style::Title, "total")));
        let mut lines = table.lines(render::room(Stream::Output), paint);
        let mut notes = Vec::new();
        if total.unpriced > 0 {
            notes.push(format!(
                "not in the cost: {}, because no price is configured for the model",
                counted(total.unpriced, "model call")
            ));
        }
        if total.unestimated > 0 {
            notes.push(format!(
                "{} of the avoided model calls are not in the savings: the log has no model call for their method",
                total.unestimated
            ));
        }
        lines.extend(
            notes.iter().flat_map(|note| render::beside("", 0, note, render::room(Stream::Output))),
        );
        lines
    }
}

/// What the calls of one row used.
#[derive(Debug, Clone, Default, PartialEq)]
struct UsageRow {
    calls: u64,
    failed: u64,
    /// Model calls made.
    made: u64,
    /// Calls that ran a stored program, without a model call.
    avoided: u64,
    tokens: Tokens,
    usd: f64,
    /// Model calls whose cost is not known.
    unpriced: u64,
    saved_usd: f64,
    saved_seconds: f64,
    /// Avoided model calls of methods whose model calls are not logged.
    unestimated: u64,
}

impl UsageRow {
    fn add(&mut self, call: &Value) {
        let made = model_calls(call);
        let tokens = Tokens::of(call);
        self.calls += 1;
        self.failed += u64::from(text(call, "outcome_status") != "ok");
        self.made += made;
        self.avoided += u64::from(is_avoided(call));
        self.tokens.input = self.tokens.input.saturating_add(tokens.input);
        self.tokens.cached = self.tokens.cached.saturating_add(tokens.cached);
        self.tokens.output = self.tokens.output.saturating_add(tokens.output);
        match cost(call) {
            Some(usd) => self.usd += usd,
            None => self.unpriced += made,
        }
    }

    fn cells(&self, name: TableCell) -> Vec<TableCell> {
        let saved = Duration::try_from_secs_f64(self.saved_seconds).unwrap_or_default();
        let is_estimated = self.avoided > self.unestimated;
        let shown = |is_known: bool, text: String| if is_known { text } else { "-".to_owned() };
        vec![
            name,
            plain(self.calls.to_string()),
            plain((self.calls - self.failed).to_string()),
            plain(self.failed.to_string()),
            plain(self.made.to_string()),
            plain(self.avoided.to_string()),
            plain(thousands(self.tokens.input)),
            plain(thousands(self.tokens.cached)),
            plain(thousands(self.tokens.output)),
            plain(shown(self.unpriced == 0 || self.usd > 0.0, dollars(self.usd))),
            plain(shown(self.saved_usd > 0.0, format!("~{}", dollars(self.saved_usd)))),
            plain(shown(is_estimated, format!("~{}", duration(saved)))),
        ]
    }

    fn to_json(&self, name: Option<&String>) -> Value {
        let mut row = json!({
            "calls": self.calls,
            "ok": self.calls - self.failed,
            "failed": self.failed,
            "model_calls": self.made,
            "model_calls_avoided": self.avoided,
            "input_tokens": self.tokens.input,
            "cached_tokens": self.tokens.cached,
            "output_tokens": self.tokens.output,
            "cost_usd": self.usd,
            "unpriced_model_calls": self.unpriced,
            "estimated_saved_usd": self.saved_usd,
            "estimated_saved_seconds": self.saved_seconds,
            "avoided_without_estimate": self.unestimated,
        });
        if let (Some(name), Value::Object(fields)) = (name, &mut row) {
            fields.insert("name".to_owned(), json!(name));
        }
        row
    }
}

/// Whether a call ran a stored program and needed no model.
fn is_avoided(call: &Value) -> bool {
    text(call, "program_source") == "persisted" && count(call, "/generation_attempt") == 0
}

/// What asking a model for a method took.
#[derive(Debug, Default)]
struct GenerationAverage {
    calls: u32,
    usd: f64,
    seconds: f64,
}

impl GenerationAverage {
    fn add(&mut self, call: &Value) {
        let attempts = call.get("attempts").and_then(Value::as_array).into_iter().flatten();
        let asked: Duration = attempts.filter_map(|it| seconds(it, "generation_ms")).sum();
        self.calls += 1;
        self.usd += cost(call).unwrap_or_default();
        self.seconds += asked.as_secs_f64();
    }
}

/// Counts calls as they are read; only rows and methods are kept.
#[derive(Debug)]
struct UsageTally {
    by: Option<Grouping>,
    since: Option<Timestamp>,
    rows: BTreeMap<String, UsageRow>,
    /// By method.
    generations: BTreeMap<String, GenerationAverage>,
    /// Avoided model calls by row and method.
    avoided: BTreeMap<(String, String), u32>,
}

impl UsageTally {
    fn new(by: Option<Grouping>, since: Option<Timestamp>) -> Self {
        Self {
            by,
            since,
            rows: BTreeMap::new(),
            generations: BTreeMap::new(),
            avoided: BTreeMap::new(),
        }
    }

    fn add(&mut self, call: &Value) {
        let method = bounded(call_name(call), &self.generations);
        // The cost of a model call is estimated better from more calls, so old ones count too.
        if count(call, "/generation_attempt") > 0 {
            self.generations.entry(method.clone()).or_default().add(call);
        }
        if self.since.is_some_and(|since| ended_at(call).is_none_or(|ended| ended < since)) {
            return;
        }
        let name = self.by.map_or_else(String::new, |by| by.of(call));
        let name = bounded(name, &self.rows);
        self.rows.entry(name.clone()).or_default().add(call);
        if is_avoided(call) {
            let key = bounded((name, method), &self.avoided);
            *self.avoided.entry(key).or_default() += 1;
        }
    }

    /// The rows, those that cost the most first (days: the latest first), and all of them together.
    fn finished(mut self) -> (Vec<(String, UsageRow)>, UsageRow) {
        for ((name, method), avoided) in &self.avoided {
            let Some(row) = self.rows.get_mut(name) else { continue };
            match self.generations.get(method) {
                Some(average) => {
                    let share = f64::from(*avoided) / f64::from(average.calls.max(1));
                    row.saved_usd += average.usd * share;
                    row.saved_seconds += average.seconds * share;
                }
                None => row.unestimated += u64::from(*avoided),
            }
        }
        let mut total = UsageRow::default();
        for row in self.rows.values() {
            total.calls += row.calls;
            total.failed += row.failed;
            total.made += row.made;
            total.avoided += row.avoided;
            total.tokens.input = total.tokens.input.saturating_add(row.tokens.input);
            total.tokens.cached = total.tokens.cached.saturating_add(row.tokens.cached);
            total.tokens.output = total.tokens.output.saturating_add(row.tokens.output);
            total.usd += row.usd;
            total.unpriced += row.unpriced;
            total.saved_usd += row.saved_usd;
            total.saved_seconds += row.saved_seconds;
            total.unestimated += row.unestimated;
        }
        let mut rows: Vec<(String, UsageRow)> = match self.by {
            None => Vec::new(),
            Some(_) => self.rows.into_iter().collect(),
        };
        match self.by {
            Some(Grouping::Day) => rows.reverse(),
            Some(Grouping::Role | Grouping::Tool) | None => {
                rows.sort_by(|(_, a), (_, b)| b.usd.total_cmp(&a.usd).then(b.calls.cmp(&a.calls)));
            }
        }
        (rows, total)
    }
}

/// The key that a call is counted under: its own if it is known or there is room for it.
fn bounded<K: UsageKey, V>(key: K, known: &BTreeMap<K, V>) -> K {
    let key = key.cut();
    if known.len() < MAX_NAMES || known.contains_key(&key) { key } else { K::others() }
}

/// A key of the tally: names come from a file that other programs can write.
trait UsageKey: Ord {
    fn cut(self) -> Self;
    fn others() -> Self;
}

impl UsageKey for String {
    fn cut(self) -> Self {
        if self.len() > MAX_NAME { clip(&self, MAX_NAME / 4) } else { self }
    }

    fn others() -> Self {
        OTHERS.to_owned()
    }
}

impl UsageKey for (String, String) {
    fn cut(self) -> Self {
        self
    }

    fn others() -> Self {
        (OTHERS.to_owned(), OTHERS.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(day: u8, method: &str, source: &str, usd: Option<f64>) -> Value {
        let made = u8::from(source != "persisted");
        json!({"timestamp": format!("2026-11-{day:02}T10:00:00Z"), "role": "r", "method": method,
            "outcome_status": if method == "bad" { "error" } else { "ok" }, "program_source": source,
            "generation_attempt": made, "cost": usd.map(|usd| json!({"usd": usd})),
            "usage": {"input_tokens": 100 * made, "output_tokens": 10, "cached_tokens": 0},
            "attempts": [{"generation_ms": 2000.0 * f64::from(made)}]})
    }

    fn tallied(by: Option<Grouping>, since: Option<&str>) -> (Vec<(String, UsageRow)>, UsageRow) {
        let mut tally = UsageTally::new(by, since.map(|time| time.parse().unwrap()));
        for entry in [
            call(1, "add", "generated", Some(0.02)),
            call(1, "add", "generated", Some(0.04)),
            call(2, "add", "persisted", None),
            call(2, "add", "persisted", None),
            call(2, "bad", "persisted", None),
            call(3, "new", "repaired", None),
        ] {
            tally.add(&entry);
        }
        tally.finished()
    }

    #[test]
    fn what_stored_programs_saved_is_the_average_of_what_their_method_cost() {
        let (rows, total) = tallied(None, None);
        assert_eq!(rows, []);
        assert_eq!((total.calls, total.failed, total.made, total.avoided), (6, 1, 3, 3));
        assert_eq!((total.unpriced, total.unestimated), (1, 1));
        assert!(
            (total.usd - 0.06).abs() < 1e-9 && (total.saved_usd - 0.06).abs() < 1e-9,
            "{total:?}"
        );
        assert!((total.saved_seconds - 4.0).abs() < 1e-9, "{total:?}");
        assert_eq!(total.tokens, Tokens { input: 300, cached: 0, output: 60 });
    }

    #[test]
    fn rows_are_days_roles_or_methods_and_older_calls_still_inform_the_estimate() {
        let names =
            |by| tallied(Some(by), None).0.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(Grouping::Day), ["2026-11-03", "2026-11-02", "2026-11-01"]);
        assert_eq!(names(Grouping::Tool), ["r.add", "r.bad", "r.new"]);
        assert_eq!(names(Grouping::Role), ["r"]);
        let (_, total) = tallied(None, Some("2026-11-02T00:00:00Z"));
        assert_eq!((total.calls, total.made, total.avoided), (4, 1, 3));
        assert!((total.saved_usd - 0.06).abs() < 1e-9, "{total:?}");
    }

    #[test]
    fn memory_is_bounded_whatever_a_log_names() {
        let mut tally = UsageTally::new(Some(Grouping::Tool), None);
        for number in 0..MAX_NAMES + 5 {
            tally.add(&call(1, &format!("m{number}"), "persisted", None));
        }
        tally.add(&call(1, &"x".repeat(1 << 20), "persisted", None));
        assert_eq!((tally.rows.len(), tally.avoided.len()), (MAX_NAMES + 1, MAX_NAMES + 1));
        assert!(tally.rows.keys().all(|name| name.len() <= MAX_NAME + 2));
        assert_eq!(tally.rows[OTHERS].calls, 6);
    }
}
