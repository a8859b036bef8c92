//! A log entry as lines for people: the call and its result, its attempts, and where it ran.

use serde_json::Value;

use super::paint::{Paint, Style, clean, clip};

/// Columns of arguments and answers.
const VALUE_COLUMNS: usize = 60;
/// Deepest indentation; deeper calls stay there.
const MAX_INDENT: usize = 8;
/// Lines shown of what a program printed.
const MAX_OUTPUT_LINES: usize = 12;
/// Characters of an environment's id that are shown.
const SHORT_ID: usize = 12;

/// The line of a call: its name, arguments and result, indented by its depth.
pub(crate) fn call_line(entry: &Value, paint: Paint) -> String {
    let (mark, style, result) = if text(entry, "outcome_status") == "ok" {
        ("✓", Style::Good, encoded(entry.get("outcome_value")))
    } else {
        let message = text(entry, "outcome_error_message").lines().next().unwrap_or_default();
        ("✗", Style::Bad, format!("{}: {message}", text(entry, "outcome_error_type")))
    };
    let name = format!("{}.{}", text(entry, "role"), text(entry, "method"));
    let arguments = arguments(entry);
    let facts = [text(entry, "program_source").to_owned(), milliseconds(entry, "duration_ms")];
    format!(
        "{}{} {}({}) {} {}",
        indent(entry),
        paint.in_style(style, mark),
        paint.in_style(Style::Name, &clip(&clean(&name), VALUE_COLUMNS)),
        clip(&clean(&arguments), VALUE_COLUMNS),
        clip(&clean(&result), VALUE_COLUMNS),
        paint.in_style(Style::Faint, &clip(&clean(facts.join(" ").trim()), VALUE_COLUMNS))
    )
}

/// The environment and the worker of a call, if it had any, and what its programs were granted.
pub(crate) fn execution_line(entry: &Value, paint: Paint) -> Option<String> {
    let facts = [environment(entry), worker(entry), grants(entry)];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let text = clip(&clean(&facts.join("  ")), 3 * VALUE_COLUMNS);
    let line = format!("{}    {text}", indent(entry));
    (!facts.is_empty()).then(|| paint.in_style(Style::Faint, &line))
}

/// Each attempt: where its program came from, the stages it reached, why it was rejected, and what it printed.
pub(crate) fn attempt_lines(entry: &Value, paint: Paint) -> Vec<String> {
    let attempts = entry.get("attempts").and_then(Value::as_array);
    let lines = |attempt: &Value| {
        let printed = ["stdout", "stderr"].into_iter().flat_map(|stream| {
            let name = if stream == "stdout" { "printed" } else { stream };
            output_lines(name, text(attempt, stream))
        });
        let printed = printed.map(|line| {
            let line = clip(&clean(&line), 2 * VALUE_COLUMNS);
            format!("{}      {}", indent(entry), paint.in_style(Style::Faint, &line))
        });
        std::iter::once(attempt_line(entry, attempt, paint)).chain(printed).collect::<Vec<_>>()
    };
    attempts.into_iter().flatten().flat_map(lines).collect()
}

/// The first lines of what a program printed, each with the name of the stream.
pub(crate) fn output_lines(stream: &str, output: &str) -> Vec<String> {
    let count = output.lines().count();
    let shown = output.lines().take(MAX_OUTPUT_LINES).map(|line| format!("{stream}: {line}"));
    let more = (count > MAX_OUTPUT_LINES)
        .then(|| format!("{stream}: … {} more lines", count - MAX_OUTPUT_LINES));
    shown.chain(more).collect()
}

fn attempt_line(entry: &Value, attempt: &Value, paint: Paint) -> String {
    let stages = attempt.get("stages").and_then(Value::as_array);
    let stages: Vec<&str> = stages.into_iter().flatten().filter_map(Value::as_str).collect();
    let failure = attempt.get("failure").filter(|failure| !failure.is_null());
    let ended = failure.map_or_else(String::new, |failure| {
        let (kind, message) = (text(failure, "error_type"), text(failure, "error_message"));
        format!("  {kind}: {}", message.lines().next().unwrap_or_default())
    });
    let line = format!(
        "attempt {} {} {} {}{}",
        attempt.get("attempt_id").unwrap_or(&Value::Null),
        text(attempt, "program_source"),
        stages.join(" → "),
        milliseconds(attempt, "duration_ms"),
        clip(&clean(&ended), 2 * VALUE_COLUMNS)
    );
    let style = if failure.is_some() { Style::Warning } else { Style::Faint };
    let line = clip(&clean(&line), 4 * VALUE_COLUMNS);
    format!("{}    {}", indent(entry), paint.in_style(style, &line))
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
    Some(format!("env {} {made}", id.get(..SHORT_ID).unwrap_or(id)))
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

fn arguments(entry: &Value) -> String {
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

fn indent(entry: &Value) -> String {
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
            let mut lines = attempt_lines(&entry, plain);
            lines.push(call_line(&entry, plain));
            lines.extend(execution_line(&entry, plain));
            for line in lines {
                assert!(!line.contains(char::is_control), "{line:?}");
                assert!(line.chars().count() < 400, "{} columns", line.chars().count());
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
            "attempts": [
                {"attempt_id": 1, "program_source": "generated", "stages": ["validated", "executed"],
                 "duration_ms": 3.0, "failure": {"error_type": "execution", "error_message": "boom\nat 1"},
                 "stdout": "so far\n".repeat(14), "stderr": "oh"},
                {"attempt_id": 2, "program_source": "repaired", "stages": ["validated"], "duration_ms": 4.0, "failure": null},
            ],
        });
        assert_eq!(
            call_line(&entry, paint),
            "  ✓ helper.add(1, \"a\\u001b[2J\", by: 2) [3] generated 12.5 ms"
        );
        assert_eq!(
            execution_line(&entry, paint).unwrap(),
            "      env 0123456789ab made in 30 ms (resolve 10 ms, install 15.5 ms)  worker 42, restarts 1, process"
        );
        let mut expected =
            vec!["      attempt 1 generated validated → executed 3 ms  execution: boom"];
        expected.extend(["        printed: so far"; 12]);
        expected.extend([
            "        printed: … 2 more lines",
            "        stderr: oh",
            "      attempt 2 repaired validated 4 ms",
        ]);
        assert_eq!(attempt_lines(&entry, paint), expected);
        let of = |grants: Value| execution_line(&json!({"grants": grants}), paint);
        assert_eq!(of(json!({"network": "off", "read": [], "write": []})), None);
        assert_eq!(
            of(json!({"network": "a.example", "read": ["/a"], "write": ["/b"]})).unwrap(),
            "    granted network a.example, read /a, write /b"
        );
        let failed = json!({
            "role": "r", "method": "m", "outcome_status": "error", "outcome_error_type": "timeout",
            "outcome_error_message": "too slow\nmore", "depth": 99,
        });
        assert_eq!(call_line(&failed, paint), "                ✗ r.m() timeout: too slow ");
        assert_eq!(execution_line(&failed, paint), None);
        assert_eq!(attempt_lines(&failed, paint), Vec::<String>::new());
    }
}
