//! Where the time of a call tree went: its calls and their stages as a tree, with bars on one time line.

use std::time::Duration;

use serde_json::Value;

use super::entry::{call_name, ended_at, seconds, text};
use super::paint::{Paint, Style, clean, clip, columns, padded};
use super::trace::duration;

/// Columns of a duration.
const DURATION_COLUMNS: usize = 7;
/// Fewest columns in which bars say something.
const MIN_BAR_COLUMNS: usize = 8;
/// Columns that an idle stretch between calls takes, however long it is.
const IDLE_COLUMNS: usize = 2;
/// An idle stretch is compressed if it is longer than this part of the time that calls took.
const IDLE_PART: f64 = 0.05;
/// Deepest indentation.
const MAX_INDENT: usize = 8;
/// Stages that take less than this part of the whole are left out.
const MIN_PART: f64 = 0.002;

/// A stretch of time in a call tree.
#[derive(Debug, Clone)]
struct Span {
    label: String,
    depth: usize,
    /// Seconds since the first call began.
    start: f64,
    seconds: f64,
    /// The call that it is a stage of; `None`: it is a call.
    stage_of: Option<String>,
}

impl Span {
    fn end(&self) -> f64 {
        self.start + self.seconds
    }

    fn is_within(&self, other: &Self) -> bool {
        // Times are logged to a tenth of a millisecond.
        const TOLERANCE: f64 = 0.000_2;
        other.start - TOLERANCE <= self.start && self.end() <= other.end() + TOLERANCE
    }
}

/// The lines of a call tree, each call before those it made; none if its calls have no times.
pub(crate) fn lines(calls: &[Value], width: usize, paint: Paint) -> Vec<String> {
    let spans = spans(calls);
    if spans.is_empty() {
        return Vec::new();
    }
    let line = TimeLine::of(&spans);
    let whole = line.busy();
    let shown: Vec<&Span> =
        spans.iter().filter(|it| it.stage_of.is_none() || it.seconds >= whole * MIN_PART).collect();
    let label =
        |span: &Span| format!("{}{}", "  ".repeat(span.depth.min(MAX_INDENT)), clean(&span.label));
    let label_columns = shown.iter().map(|span| columns(&label(span))).max().unwrap_or_default();
    let label_columns = label_columns.min(width * 2 / 5);
    let bar_columns = width.saturating_sub(label_columns + DURATION_COLUMNS + 3);
    let mut lines: Vec<String> = shown
        .iter()
        .map(|span| {
            let name = padded(&clip(&label(span), label_columns), label_columns);
            let took =
                format!("{:>DURATION_COLUMNS$}", duration(Duration::from_secs_f64(span.seconds)));
            let bar = if bar_columns < MIN_BAR_COLUMNS {
                String::new()
            } else {
                line.bar(span, bar_columns)
            };
            let (name_style, bar_style) = match span.stage_of {
                None => (Style::Name, Style::Faint),
                Some(_) => (Style::Faint, Style::Good),
            };
            format!(
                "{} {took}  {}",
                paint.in_style(name_style, &name),
                paint.in_style(bar_style, &bar)
            )
        })
        .collect();
    lines.extend(heaviest(&spans, whole).map(|text| clip(&text, width)));
    lines
}

/// The stage that takes the most time, without the calls that were made meanwhile.
fn heaviest(spans: &[Span], whole: f64) -> Option<String> {
    let own_time = |stage: &Span| {
        let made = spans.iter().filter(|it| it.stage_of.is_none() && it.depth == stage.depth);
        let made = made.filter(|call| call.is_within(stage)).map(|call| call.seconds).sum::<f64>();
        (stage.seconds - made).max(0.0)
    };
    let stages = spans.iter().filter_map(|it| Some((it, it.stage_of.as_ref()?, own_time(it))));
    let (stage, call, own) = stages.max_by(|a, b| a.2.total_cmp(&b.2))?;
    let percent = if whole > 0.0 { own / whole * 100.0 } else { 0.0 };
    let took = duration(Duration::from_secs_f64(own));
    Some(format!("most of it: {} of {}, {took} ({percent:.0} %)", stage.label, clean(call)))
}

fn spans(calls: &[Value]) -> Vec<Span> {
    let begin = |call: &Value| {
        let end = ended_at(call)?.as_nanosecond();
        let took = i128::try_from(seconds(call, "duration_ms")?.as_nanos()).ok()?;
        Some(end - took)
    };
    let Some(first) = calls.iter().filter_map(begin).min() else { return Vec::new() };
    let root_depth = calls.iter().map(depth).min().unwrap_or_default();
    let mut spans = Vec::new();
    for call in calls {
        let (Some(begin), Some(took)) = (begin(call), seconds(call, "duration_ms")) else {
            continue;
        };
        let since = u64::try_from(begin - first).unwrap_or_default();
        let start = Duration::from_nanos(since).as_secs_f64();
        let depth = depth(call) - root_depth;
        let span = Span {
            label: call_name(call),
            depth,
            start,
            seconds: took.as_secs_f64(),
            stage_of: None,
        };
        let stages = stages(call, &span);
        spans.push(span);
        spans.extend(stages);
    }
    spans
}

fn depth(call: &Value) -> usize {
    let depth = call.get("depth").and_then(Value::as_u64).unwrap_or_default();
    usize::try_from(depth).unwrap_or(MAX_INDENT)
}

/// The stages of a call, one after the other. Time outside of attempts was spent before the first.
fn stages(call: &Value, span: &Span) -> Vec<Span> {
    let attempts = call.get("attempts").and_then(Value::as_array);
    let attempts: Vec<&Value> = attempts.into_iter().flatten().collect();
    let time = |of: &Value, field: &str| seconds(of, field).unwrap_or_default().as_secs_f64();
    let tried: f64 = attempts.iter().map(|attempt| time(attempt, "duration_ms")).sum();
    let mut parts = vec![("recall".to_owned(), (span.seconds - tried).max(0.0))];
    for (index, attempt) in attempts.iter().enumerate() {
        // The entry itself says this of an accepted attempt.
        let prepared =
            if attempt.get("failure").is_some_and(Value::is_object) { attempt } else { call };
        let number = if attempts.len() > 1 { format!(" {}", index + 1) } else { String::new() };
        let (asked, prepared) = (time(attempt, "generation_ms"), time(prepared, "env_prepare_ms"));
        let whole = time(attempt, "duration_ms");
        // Entries of older versions do not say how long the model took.
        let is_known = attempt.get("generation_ms").is_some();
        let rest = if is_known || text(attempt, "program_source") == "persisted" {
            "execute"
        } else {
            "generate and execute"
        };
        parts.push((format!("generate{number}"), asked));
        parts.push((format!("prepare{number}"), prepared));
        parts.push((format!("{rest}{number}"), (whole - asked - prepared).max(0.0)));
    }
    let mut at = span.start;
    let mut stages = Vec::new();
    for (label, seconds) in parts.into_iter().filter(|(_, seconds)| *seconds > 0.0) {
        let stage_of = Some(span.label.clone());
        stages.push(Span { label, depth: span.depth + 1, start: at, seconds, stage_of });
        at += seconds;
    }
    stages
}

/// Time from left to right: stretches in which calls ran, with the idle time between them compressed.
struct TimeLine {
    busy: Vec<(f64, f64)>,
}

impl TimeLine {
    fn of(spans: &[Span]) -> Self {
        let mut calls: Vec<(f64, f64)> = spans
            .iter()
            .filter(|span| span.stage_of.is_none())
            .map(|span| (span.start, span.end()))
            .collect();
        calls.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = calls.iter().map(|(start, end)| end - start).sum();
        let mut busy: Vec<(f64, f64)> = Vec::new();
        for (start, end) in calls {
            match busy.last_mut() {
                Some(last) if start - last.1 <= total * IDLE_PART => last.1 = last.1.max(end),
                Some(_) | None => busy.push((start, end)),
            }
        }
        Self { busy }
    }

    fn busy(&self) -> f64 {
        self.busy.iter().map(|(start, end)| end - start).sum()
    }

    /// The column of a moment, in a line of `room` columns.
    fn column(&self, moment: f64, room: usize) -> f64 {
        let idle = IDLE_COLUMNS * self.busy.len().saturating_sub(1);
        let scale = as_float(room.saturating_sub(idle)) / self.busy().max(f64::MIN_POSITIVE);
        let mut column = 0.0;
        for (index, (start, end)) in self.busy.iter().enumerate() {
            if moment <= *end || index + 1 == self.busy.len() {
                return column + (moment - start).clamp(0.0, end - start) * scale;
            }
            column += (end - start) * scale + as_float(IDLE_COLUMNS);
        }
        column
    }

    /// A span as blocks; `┆` stands where idle time was left out.
    fn bar(&self, span: &Span, room: usize) -> String {
        const EIGHTHS: [char; 8] = ['▏', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
        let (from, to) = (self.column(span.start, room), self.column(span.end(), room));
        let mut cells = vec![' '; room];
        for (_, end) in self.busy.iter().rev().skip(1) {
            if let Some(cell) = cells.get_mut(floored(self.column(*end, room)) + IDLE_COLUMNS / 2) {
                *cell = '┆';
            }
        }
        let first = floored(from).min(room.saturating_sub(1));
        let last = floored(to);
        for cell in cells.iter_mut().take(last).skip(first) {
            *cell = '█';
        }
        let part = floored((to - to.floor()) * 8.0);
        if part > 0 || last == first {
            let at = last.max(first).min(room.saturating_sub(1));
            if let (Some(cell), Some(block)) = (cells.get_mut(at), EIGHTHS.get(part)) {
                *cell = *block;
            }
        }
        cells.iter().collect::<String>().trim_end().to_owned()
    }
}

/// A number of columns; a terminal has few.
fn as_float(columns: usize) -> f64 {
    f64::from(u16::try_from(columns).unwrap_or(u16::MAX))
}

/// The column that a position is in.
fn floored(column: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what fits"
    )]
    let floored = column.clamp(0.0, f64::from(u16::MAX)) as u16;
    usize::from(floored)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, depth: u64, ended: &str, took: f64, attempts: &Value) -> Value {
        json!({"role": name, "method": "m", "depth": depth, "duration_ms": took, "attempts": attempts,
            "timestamp": format!("2026-11-16T07:{ended}Z")})
    }

    #[test]
    fn calls_and_stages_are_bars_on_one_time_line_and_idle_time_is_compressed() {
        let calls = [
            call(
                "a",
                0,
                "40:01.000",
                1000.0,
                &json!([
                    {"duration_ms": 500.0, "generation_ms": 400.0, "failure": {"error_type": "execution"}},
                    {"duration_ms": 400.0, "generation_ms": 100.0, "failure": null},
                ]),
            ),
            call(
                "b",
                1,
                "40:00.900",
                200.0,
                &json!([{"program_source": "persisted", "duration_ms": 200.0}]),
            ),
            call(
                "c",
                0,
                "55:00.000",
                1000.0,
                &json!([{"duration_ms": 1000.0, "generation_ms": 900.0}]),
            ),
        ];
        let shown = lines(&calls, 60, Paint { colour: false });
        assert_eq!(
            shown,
            [
                "a.m            1.0 s  ██████████████████ ┆",
                "  recall      100 ms  █▊                 ┆",
                "  generate 1  400 ms   ████████          ┆",
                "  execute 1   100 ms           █▊        ┆",
                "  generate 2  100 ms            ██▌      ┆",
                "  execute 2   300 ms              ██████ ┆",
                "  b.m         200 ms              ████▏  ┆",
                "    execute   200 ms              ████▏  ┆",
                "c.m            1.0 s                     ┆██████████████████",
                "  generate    900 ms                     ┆████████████████▏",
                "  execute     100 ms                     ┆                ██",
                "most of it: generate of c.m, 900 ms (45 %)",
            ]
        );
    }
}
