//! A log entry as lines for people: the call and its result, its attempts, and where it ran.

use std::time::Duration;

use jiff::Timestamp;
use lifecycle::excerpt::counted;
use serde_json::Value;

use super::paint::{Paint, Style, broken, clean, clip, columns};
use super::trace::duration;

/// Columns of arguments and answers.
const VALUE_COLUMNS: usize = 60;
/// Fewest columns of an answer beside long arguments.
const MIN_RESULT_COLUMNS: usize = 12;
/// Lines of a program that are shown.
const MAX_CODE_LINES: usize = 200;
/// Lines of feedback that are shown.
const MAX_FEEDBACK_LINES: usize = 12;
/// Deepest indentation; deeper calls stay there.
const MAX_INDENT: usize = 8;
/// Lines shown of what a program printed.
const MAX_OUTPUT_LINES: usize = 12;
/// Questions of one attempt to a model that are shown.
const MAX_INFERENCE_LINES: usize = 12;
/// Characters of an environment's id that are shown.
const SHORT_ENV_ID: usize = 12;
/// Characters of the id of a call or trace that are shown.
const SHORT_ID: usize = 8;

/// The line of a call: its name, arguments and result, indented by its depth, in at most `width` columns.
pub(crate) fn call_line(entry: &Value, paint: Paint, width: usize) -> String {
    let (mark, style, result) = if text(entry, "outcome_status") == "ok" {
        ("✓", Style::Good, encoded(entry.get("outcome_value")))
    } else {
        let message = text(entry, "outcome_error_message").lines().next().unwrap_or_default();
        ("✗", Style::Bad, format!("{}: {message}", text(entry, "outcome_error_type")))
    };
    let [name, arguments, result] =
        [call_name(entry), arguments(entry), result].map(|it| clean(&it));
    let indent = indent(entry);
    // The mark, the parentheses and two spaces.
    let mut left = width.saturating_sub(columns(&indent) + 5);
    let mut take = |text: &str, spare: usize| {
        let taken = columns(text).min(VALUE_COLUMNS).min(left.saturating_sub(spare));
        left = left.saturating_sub(taken);
        clip(text, taken)
    };
    let least = columns(&result).min(MIN_RESULT_COLUMNS);
    let name = take(&name, least);
    let arguments = take(&arguments, least);
    let result = take(&result, 0);
    let (mark, name) = (paint.in_style(style, mark), paint.in_style(Style::Name, &name));
    format!("{indent}{mark} {name}({arguments}) {result}")
}

/// The facts of a call: the source of its program, its time, and what it cost.
pub(crate) fn call_facts(entry: &Value) -> String {
    let tokens = Tokens::of(entry);
    let sent = (tokens.input + tokens.output > 0).then(|| format!("{tokens} tokens"));
    let facts = [Some(source(entry)), took(entry), sent, cost(entry).map(dollars)];
    let facts: Vec<String> = facts.into_iter().flatten().filter(|it| !it.is_empty()).collect();
    clip(&clean(&facts.join("  ")), VALUE_COLUMNS)
}

/// `role.method`.
pub(crate) fn call_name(entry: &Value) -> String {
    format!("{}.{}", text(entry, "role"), text(entry, "method"))
}

/// Where the program of a call came from, in the words of the command line.
pub(crate) fn source(entry: &Value) -> String {
    match text(entry, "program_source") {
        "persisted" => "stored".to_owned(),
        other => other.to_owned(),
    }
}

/// The time a call took.
fn took(entry: &Value) -> Option<String> {
    seconds(entry, "duration_ms").map(duration)
}

/// A field in milliseconds.
pub(crate) fn seconds(entry: &Value, field: &str) -> Option<Duration> {
    let milliseconds = entry.get(field)?.as_f64().filter(|it| it.is_finite() && *it >= 0.0)?;
    Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
}

/// The money that a call cost; `None` if no model was paid, or no price is configured.
pub(crate) fn cost(entry: &Value) -> Option<f64> {
    entry.pointer("/cost/usd").and_then(Value::as_f64).filter(|usd| usd.is_finite())
}

/// An amount of money to two digits that say something.
pub(crate) fn dollars(usd: f64) -> String {
    if usd <= 0.0 {
        "$0".to_owned()
    } else if usd < 0.01 {
        format!("${usd:.5}")
    } else if usd < 1.0 {
        format!("${usd:.3}")
    } else {
        format!("${usd:.2}")
    }
}

/// A field that counts something; 0 if it does not.
pub(crate) fn count(entry: &Value, pointer: &str) -> u64 {
    entry.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// Requests to a model: for programs, and by programs about data.
pub(crate) fn model_calls(entry: &Value) -> u64 {
    count(entry, "/generation_attempt").saturating_add(count(entry, "/inference_calls"))
}

/// The time at which a call ended.
pub(crate) fn ended_at(entry: &Value) -> Option<Timestamp> {
    text(entry, "timestamp").parse().ok()
}

/// The pattern of times in lists; they are in UTC.
pub(crate) const LISTED_TIME: &str = "%m-%d %T";

/// A time of an entry by a pattern, in UTC; empty if it has none.
pub(crate) fn time(entry: &Value, pattern: &str) -> String {
    ended_at(entry).map(|time| time.strftime(pattern).to_string()).unwrap_or_default()
}

/// The beginning of an id that is shown and may be given instead of it.
pub(crate) fn short_id(id: &str) -> String {
    clean(&id.chars().take(SHORT_ID).collect::<String>())
}

/// Tokens of model calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Sent, cached ones included.
    pub(crate) input: u64,
    /// Of those, the ones a service had cached.
    pub(crate) cached: u64,
    /// Received.
    pub(crate) output: u64,
}

impl Tokens {
    /// Those of a call.
    pub(crate) fn of(entry: &Value) -> Self {
        Self {
            input: count(entry, "/usage/input_tokens"),
            cached: count(entry, "/usage/cached_tokens"),
            output: count(entry, "/usage/output_tokens"),
        }
    }
}

impl std::fmt::Display for Tokens {
    /// `1.2k/340`: sent and received.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", thousands(self.input), thousands(self.output))
    }
}

/// A number in at most five columns.
pub(crate) fn thousands(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{}k", number / 1000),
        _ => format!("{}M", number / 1_000_000),
    }
}

/// The environment and the worker of a call, if it had any, and what its programs were granted.
pub(crate) fn execution_line(entry: &Value, paint: Paint, width: usize) -> Option<String> {
    let facts = [environment(entry), worker(entry), grants(entry)];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let line = format!("{}    {}", indent(entry), clean(&facts.join("  ")));
    let line = clip(&line, width.min(3 * VALUE_COLUMNS));
    (!facts.is_empty()).then(|| paint.in_style(Style::Faint, &line))
}

/// A call of a tool from outside: its arguments, the size of its result or its failure, and its time.
fn outside_call_line(call: &Value, paint: Paint, room: usize) -> String {
    let (style, ended) = match call.get("result_bytes").and_then(Value::as_u64) {
        Some(bytes) => (Style::Faint, format!("{bytes} bytes")),
        None => (Style::Warning, clean(text(call, "error_type"))),
    };
    let took = seconds(call, "duration_ms").map(duration).unwrap_or_default();
    let (name, given) = (clean(text(call, "tool")), clean(text(call, "arguments")));
    let ended = format!("  {ended}  {took}");
    let named = clip(&format!("⇢ {name}({given})"), room.saturating_sub(columns(&ended)));
    format!("{named}{}", paint.in_style(style, &ended))
}

/// Each attempt: where its program came from, the stages it reached, its program, what it printed, and the feedback that
/// the next one was given.
pub(crate) fn attempt_lines(entry: &Value, paint: Paint, width: usize) -> Vec<String> {
    let attempts = entry.get("attempts").and_then(Value::as_array);
    let attempts: Vec<&Value> = attempts.into_iter().flatten().collect();
    let margin = format!("{}      ", indent(entry));
    let room = width.min(2 * VALUE_COLUMNS).saturating_sub(columns(&margin)).max(1);
    let mut lines = Vec::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let is_last = index + 1 == attempts.len();
        lines.push(attempt_line(entry, attempt, paint, width));
        // The text of the last attempt's program is at the entry.
        let code = Some(text(attempt, "code")).filter(|code| !code.is_empty());
        let code = code.unwrap_or_else(|| if is_last { text(entry, "code") } else { "" });
        lines.extend(code_lines(code, room, paint).iter().map(|line| format!("{margin}{line}")));
        let calls = outside_call_lines(attempt, paint, room).into_iter();
        lines.extend(calls.map(|line| format!("{margin}{line}")));
        let asked = inference_lines(entry, attempt).into_iter();
        let asked = asked.map(|line| paint.in_style(Style::Faint, &clip(&clean(&line), room)));
        lines.extend(asked.map(|line| format!("{margin}{line}")));
        let printed = ["stdout", "stderr"].into_iter().flat_map(|stream| {
            let name = if stream == "stdout" { "printed" } else { stream };
            output_lines(name, text(attempt, stream))
        });
        let printed = printed.map(|line| paint.in_style(Style::Faint, &clip(&clean(&line), room)));
        lines.extend(printed.map(|line| format!("{margin}{line}")));
        if let Some(failure) = attempt.get("failure").filter(|it| it.is_object()) {
            let feedback = feedback_lines(failure, is_last, room);
            let style = |line: &String| paint.in_style(Style::Warning, line);
            lines.extend(feedback.iter().map(|line| format!("{margin}{}", style(line))));
        }
    }
    lines
}

/// The calls of tools from outside in an attempt. The log keeps the first of them, and how many there were.
fn outside_call_lines(attempt: &Value, paint: Paint, room: usize) -> Vec<String> {
    let kept = attempt.get("outside_calls").and_then(Value::as_array);
    let mut lines: Vec<String> =
        kept.into_iter().flatten().map(|call| outside_call_line(call, paint, room)).collect();
    let made = usize::try_from(count(attempt, "/outside_call_count")).unwrap_or(usize::MAX);
    match made.saturating_sub(lines.len()) {
        0 => {}
        more => lines.push(paint.in_style(Style::Faint, &format!("⇢ {more} more calls"))),
    }
    lines
}

/// What the program of an attempt asked a model about data.
fn inference_lines(entry: &Value, attempt: &Value) -> Vec<String> {
    let id = count(attempt, "/attempt_id");
    let asked = entry.get("inferences").and_then(Value::as_array).into_iter().flatten();
    let own: Vec<&Value> = asked.filter(|it| count(it, "/attempt_id") == id).collect();
    let more = own.len().checked_sub(MAX_INFERENCE_LINES).filter(|more| *more > 0);
    let shown = own.iter().take(MAX_INFERENCE_LINES).map(|asked| inference_line(asked));
    shown.chain(more.map(|more| format!("asked the model {more} more questions"))).collect()
}

fn inference_line(asked: &Value) -> String {
    let (items, kept) = (count(asked, "/items"), count(asked, "/cached_items"));
    let (calls, sent) = (count(asked, "/model_calls"), count(asked, "/input_tokens"));
    let of_items = if items == 1 { String::new() } else { format!(" about {items} items") };
    let answers = match (kept, calls) {
        (_, 0) if kept == items => "kept answer".to_owned(),
        (0, 1) => String::new(),
        (0, calls) => counted(calls, "model call"),
        (kept, calls) => format!("{kept} kept, {}", counted(calls, "model call")),
    };
    let tokens = (sent > 0).then(|| {
        format!("{}/{} tokens", thousands(sent), thousands(count(asked, "/output_tokens")))
    });
    let usd = asked.get("cost_usd").and_then(Value::as_f64).map(dollars);
    let facts =
        [Some(answers), tokens, usd, took(asked), Some(text(asked, "error_type").to_owned())];
    let facts: Vec<String> = facts.into_iter().flatten().filter(|it| !it.is_empty()).collect();
    format!("asked the model{of_items}: {:?}  {}", text(asked, "instruction"), facts.join("  "))
}

/// A program with line numbers.
pub(crate) fn code_lines(code: &str, room: usize, paint: Paint) -> Vec<String> {
    let count = code.lines().count();
    let digits = count.min(MAX_CODE_LINES).to_string().len();
    let shown = code.lines().take(MAX_CODE_LINES).enumerate().map(|(index, line)| {
        let number = paint.in_style(Style::Faint, &format!("{:>digits$}", index + 1));
        format!("{number}  {}", clip(&clean(line), room.saturating_sub(digits + 2)))
    });
    let more = count.checked_sub(MAX_CODE_LINES).filter(|more| *more > 0);
    shown.chain(more.map(|more| format!("{:>digits$}  {more} more lines", "…"))).collect()
}

/// Why an attempt was rejected, as the next one was given it; the last one has no next.
fn feedback_lines(failure: &Value, is_last: bool, room: usize) -> Vec<String> {
    let place = match (count(failure, "/location/line"), count(failure, "/location/column")) {
        (0, _) => String::new(),
        (line, column) => format!(" (line {line}, column {column})"),
    };
    let looked = text(failure, "error_type") == "looked";
    let label = match (is_last, looked) {
        (false, true) => "shown to the next attempt",
        (false, false) => "feedback to the next attempt",
        (true, _) => "rejected",
    };
    let message = format!("{label}: {}{place}", text(failure, "error_message"));
    let correction = failure.pointer("/violation/required_correction").and_then(Value::as_str);
    let lines = message.lines().chain(correction);
    lines.flat_map(|line| broken(line, room)).take(MAX_FEEDBACK_LINES).collect()
}

/// The first lines of what a program printed, each with the name of the stream.
pub(crate) fn output_lines(stream: &str, output: &str) -> Vec<String> {
    let count = output.lines().count();
    let shown = output.lines().take(MAX_OUTPUT_LINES).map(|line| format!("{stream}: {line}"));
    let more = (count > MAX_OUTPUT_LINES)
        .then(|| format!("{stream}: … {} more lines", count - MAX_OUTPUT_LINES));
    shown.chain(more).collect()
}

fn attempt_line(entry: &Value, attempt: &Value, paint: Paint, width: usize) -> String {
    let stages = attempt.get("stages").and_then(Value::as_array);
    let stages: Vec<&str> = stages.into_iter().flatten().filter_map(Value::as_str).collect();
    let failure = attempt.get("failure").filter(|failure| !failure.is_null());
    let ended = failure.map_or_else(String::new, |it| format!("  {}", text(it, "error_type")));
    let facts = format!(
        "attempt {} {}  {}  {}{ended}",
        attempt.get("attempt_id").unwrap_or(&Value::Null),
        source(attempt),
        stages.join(" → "),
        took(attempt).unwrap_or_default(),
    );
    let style = if failure.is_some() { Style::Warning } else { Style::Faint };
    let line = format!("{}    {}", indent(entry), clean(&facts));
    paint.in_style(style, &clip(&line, width.min(3 * VALUE_COLUMNS)))
}

fn environment(entry: &Value) -> Option<String> {
    let id = entry.get("env_id")?.as_str()?;
    let made = match entry.get("environment_cache_hit").and_then(Value::as_bool) {
        Some(true) => format!("hit {}", milliseconds(entry, "env_prepare_ms")),
        Some(false) => format!(
            "made in {} (resolve {}, install {})",
            milliseconds(entry, "env_prepare_ms"),
            milliseconds(entry, "env_resolve_ms"),
            milliseconds(entry, "env_install_ms")
        ),
        None => "not prepared".to_owned(),
    };
    Some(format!("env {} {made}", id.get(..SHORT_ENV_ID).unwrap_or(id)))
}

fn worker(entry: &Value) -> Option<String> {
    let pid = entry.get("worker_pid")?.as_u64()?;
    let restarts = entry.get("worker_restart_count").and_then(Value::as_u64).unwrap_or_default();
    Some(format!("worker {pid}, restarts {restarts}, {}", text(entry, "sandbox_tier")))
}

/// The grants of a call; `None` if nothing was granted.
fn grants(entry: &Value) -> Option<String> {
    let grants = entry.get("grants")?;
    let paths = |name: &str| {
        let paths = grants.get(name).and_then(Value::as_array).into_iter().flatten();
        paths.filter_map(Value::as_str).map(|path| format!("{name} {path}")).collect::<Vec<_>>()
    };
    let network = Some(text(grants, "network")).filter(|it| !it.is_empty() && *it != "off");
    let granted: Vec<String> = network
        .map(|network| format!("network {network}"))
        .into_iter()
        .chain(paths("read"))
        .chain(paths("write"))
        .collect();
    (!granted.is_empty()).then(|| format!("granted {}", granted.join(", ")))
}

/// The arguments of a call, as they are written.
pub(crate) fn arguments(entry: &Value) -> String {
    let args = entry.get("args").and_then(Value::as_array).into_iter().flatten();
    let kwargs = entry.get("kwargs").and_then(Value::as_object).into_iter().flatten();
    let named = kwargs.map(|(name, value)| format!("{name}: {value}"));
    args.map(ToString::to_string).chain(named).collect::<Vec<_>>().join(", ")
}

fn encoded(value: Option<&Value>) -> String {
    value.unwrap_or(&Value::Null).to_string()
}

fn milliseconds(entry: &Value, field: &str) -> String {
    let took = entry.get(field).and_then(Value::as_f64);
    took.map_or_else(String::new, |took| format!("{took} ms"))
}

/// The indentation of a call, by its depth.
pub(crate) fn indent(entry: &Value) -> String {
    let depth = entry.get("depth").and_then(Value::as_u64).unwrap_or_default();
    "  ".repeat(usize::try_from(depth).unwrap_or(MAX_INDENT).min(MAX_INDENT))
}

/// A field's text; empty if the field is not text.
pub(crate) fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_of_outside_tools_that_the_log_dropped_are_counted() {
        let call = json!({"tool": "orders.search", "arguments": "words: \"a\"", "result_bytes": 4, "duration_ms": 1});
        let attempt = json!({"outside_calls": [call, call], "outside_call_count": 70});
        let lines = outside_call_lines(&attempt, Paint { colour: false }, 60);
        assert!(lines[0].starts_with("⇢ orders.search(words: \"a\")  4 bytes"), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "⇢ 68 more calls");
        assert!(outside_call_lines(&json!({}), Paint { colour: false }, 60).is_empty());
    }

    /// Other programs can append to a log, so no field of it is trusted.
    #[test]
    fn no_field_of_an_entry_can_move_the_cursor_or_flood_a_terminal() {
        let hostile = format!("\u{1b}]0;x\u{7}\u{9b}2J\r\n{}", "x".repeat(1 << 16));
        let texts = [
            "role",
            "method",
            "outcome_status",
            "outcome_error_type",
            "outcome_error_message",
            "program_source",
            "duration_ms",
            "env_id",
            "sandbox_tier",
            "depth",
        ];
        let mut entry: Value =
            texts.iter().map(|field| ((*field).to_owned(), json!(hostile))).collect();
        for (field, value) in [
            ("worker_pid", json!(u64::MAX)),
            ("grants", json!({"network": hostile, "read": [hostile], "write": [1]})),
            ("args", json!([hostile])),
            ("kwargs", json!({hostile.as_str(): 1})),
            (
                "attempts",
                json!([3, {
                    "attempt_id": hostile, "program_source": hostile, "stages": [hostile, 4],
                    "stdout": hostile, "stderr": "\u{1b}[2J\n".repeat(1000),
                    "failure": {"error_type": hostile, "error_message": hostile}
                }]),
            ),
        ] {
            entry[field] = value;
        }
        for status in ["ok", "error"] {
            entry["outcome_status"] = json!(status);
            entry["outcome_value"] = json!(hostile);
            let plain = Paint { colour: false };
            for width in [40, 100, usize::MAX] {
                let mut lines = attempt_lines(&entry, plain, width);
                lines.push(call_line(&entry, plain, width));
                lines.push(clip(&call_facts(&entry), width));
                lines.extend(execution_line(&entry, plain, width));
                for line in lines {
                    assert!(!line.contains(char::is_control), "{line:?}");
                    assert!(columns(&line) <= width.min(400), "{} columns", columns(&line));
                }
            }
        }
    }

    #[test]
    fn a_call_shows_its_answer_its_attempts_and_where_it_ran() {
        let paint = Paint { colour: false };
        let entry = json!({
            "role": "helper", "method": "add", "args": [1, "a\u{1b}[2J"], "kwargs": {"by": 2},
            "depth": 1, "outcome_status": "ok", "outcome_value": [3], "program_source": "generated",
            "duration_ms": 12.5, "env_id": "0123456789abcdef", "environment_cache_hit": false,
            "env_prepare_ms": 30.0, "env_resolve_ms": 10.0, "env_install_ms": 15.5,
            "worker_pid": 42, "worker_restart_count": 1, "sandbox_tier": "process",
            "code": "x = 1\nresult = x", "cost": {"usd": 0.001_25},
            "usage": {"input_tokens": 1200, "output_tokens": 34, "cached_tokens": 0},
            "attempts": [
                {"attempt_id": 1, "program_source": "persisted", "stages": ["validated", "executed"],
                 "duration_ms": 3.0, "code": "result = x",
                 "failure": {"error_type": "execution", "error_message": "boom\nat 1", "location": {"line": 2, "column": 3},
                             "violation": {"required_correction": "define x first"}},
                 "stdout": "so far\n".repeat(14), "stderr": "oh"},
                {"attempt_id": 2, "program_source": "repaired", "stages": ["validated"], "duration_ms": 4.0, "failure": null},
            ],
        });
        assert_eq!(call_line(&entry, paint, 100), "  ✓ helper.add(1, \"a\\u001b[2J\", by: 2) [3]");
        assert_eq!(call_line(&entry, paint, 30), "  ✓ helper.add(1, \"a\\u00…) [3]");
        assert_eq!(call_facts(&entry), "generated  12 ms  1200/34 tokens  $0.00125");
        assert_eq!(
            execution_line(&entry, paint, usize::MAX).unwrap(),
            "      env 0123456789ab made in 30 ms (resolve 10 ms, install 15.5 ms)  worker 42, restarts 1, process"
        );
        let mut expected = vec![
            "      attempt 1 stored  validated → executed  3.0 ms  execution",
            "        1  result = x",
        ];
        expected.extend(["        printed: so far"; 12]);
        expected.extend([
            "        printed: … 2 more lines",
            "        stderr: oh",
            "        feedback to the next attempt: boom",
            "        at 1 (line 2, column 3)",
            "        define x first",
            "      attempt 2 repaired  validated  4.0 ms",
            "        1  x = 1",
            "        2  result = x",
        ]);
        assert_eq!(attempt_lines(&entry, paint, 100), expected);
        let of = |grants: Value| execution_line(&json!({"grants": grants}), paint, 100);
        assert_eq!(of(json!({"network": "off", "read": [], "write": []})), None);
        assert_eq!(
            of(json!({"network": "a.example", "read": ["/a"], "write": ["/b"]})).unwrap(),
            "    granted network a.example, read /a, write /b"
        );
        let failed = json!({
            "role": "r", "method": "m", "outcome_status": "error", "outcome_error_type": "timeout",
            "outcome_error_message": "too slow\nmore", "depth": 99,
        });
        assert_eq!(call_line(&failed, paint, 100), "                ✗ r.m() timeout: too slow");
        assert_eq!(execution_line(&failed, paint, 100), None);
        assert_eq!(attempt_lines(&failed, paint, 100), Vec::<String>::new());
    }

    #[test]
    fn money_and_large_numbers_are_short() {
        let shown = [0.0, 0.001_25, 0.0321, 12.345].map(dollars);
        assert_eq!(shown, ["$0", "$0.00125", "$0.032", "$12.35"]);
        assert_eq!([9_999, 12_345, 3_000_000].map(thousands), ["9999", "12k", "3M"]);
    }
}
