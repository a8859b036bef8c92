use std::sync::Arc;

use lifecycle::outcome::Reported;
use lifecycle::request::{CallId, Method, Role, TraceId};
use recurgent::{Failure, FailureKind};
use serde_json::json;

use super::*;

/// A writer whose text can be read back.
#[derive(Debug, Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn event(depth: u8, name: &str, kind: EventKind) -> Event {
    let subject = Subject {
        trace: TraceId::parse("t").unwrap(),
        call: CallId(format!("{depth}{name}")),
        parent: None,
        depth,
        name: name.to_owned(),
    };
    Event { subject, kind }
}

fn started(arguments: &str) -> EventKind {
    EventKind::Started { arguments: arguments.to_owned() }
}

fn generating(attempt: usize) -> EventKind {
    EventKind::Generating { attempt, with_feedback: attempt > 1 }
}

fn executing(attempt: usize, source: &'static str, code: &str) -> EventKind {
    EventKind::Executing { attempt, source, code: code.to_owned() }
}

fn ended(result: Result<Value, Failure>, milliseconds: u64) -> EventKind {
    let role = Role::parse("r").unwrap();
    let method = Method::parse("m").unwrap();
    EventKind::Ended {
        outcome: Box::new(Outcome::new(role, method, result)),
        from_storage: false,
        model_calls: 1,
        took: Duration::from_millis(milliseconds),
    }
}

#[track_caller]
fn check(detail: Detail, columns: Option<usize>, events: &[Event], expected: &str) {
    let buffer = SharedBuffer::default();
    let trace = LiveTrace::to(Box::new(buffer.clone()), detail, columns);
    for event in events {
        trace.event(event);
    }
    let shown = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    assert_eq!(shown, expected, "\n{shown}");
}

#[test]
fn full_detail_shows_a_tree_of_calls() {
    let outer = "assistant.ask";
    let inner = "web_fetcher.fetch_url";
    let url = "\"http://127.0.0.1:4000/a.xml\"";
    let code = "page = delegate(\"web_fetcher\").fetch_url(args[0])\npage.value";
    let events = vec![
        event(0, outer, started(url)),
        event(0, outer, generating(1)),
        event(0, outer, executing(1, "generated", code)),
        event(1, inner, started(url)),
        event(1, inner, executing(1, "persisted", "not shown")),
        event(1, inner, ended(Ok(json!({"body": "x".repeat(80)})), 4)),
        event(
            0,
            outer,
            ended(
                Ok(json!({"feed": "News", "headlines": ["One", "Two"],
            "sources": [{"uri": "u", "mode": "live"}, {}], "more": "y".repeat(50)})),
                1234,
            ),
        ),
    ];
    check(
        Detail::Full,
        None,
        &events,
        r#"  assistant.ask("http://127.0.0.1:4000/a.xml")
  │ 1  page = delegate("web_fetcher").fetch_url(args[0])
  │ 2  page.value
  │ web_fetcher.fetch_url("http://127.0.0.1:4000/a.xml")
  │ └ {"body":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…  stored    4.0 ms
  └ ok                                                       generated     1.2 s
    feed: News
    headlines:
      - One
      - Two
    sources:
      - uri: u
        mode: live
      - {}
    more: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy

"#,
    );
}

fn rolled_back(
    attempt: usize,
    stage: &'static str,
    code: &str,
    message: &str,
    program: &str,
) -> EventKind {
    EventKind::RolledBack {
        attempt,
        stage,
        code: code.to_owned(),
        message: message.to_owned(),
        program: Some(program.to_owned()),
    }
}

/// The program of an earlier attempt is not named as the source of the outcome.
#[test]
fn an_outcome_without_a_program_that_ran_names_no_source() {
    let name = "editor.word_count";
    let rejected = "rejected by a rule";
    let failure = Failure::new(FailureKind::Cancelled, rejected);
    let events = [
        event(0, name, started("")),
        event(0, name, executing(1, "generated", "1 / 0")),
        event(0, name, rolled_back(1, "execution", "execution", "ZeroDivisionError", "1 / 0")),
        event(0, name, rolled_back(2, "validation", "validation", rejected, "exit()")),
        event(0, name, ended(Err(failure), 60)),
    ];
    let buffer = SharedBuffer::default();
    let trace = LiveTrace::to(Box::new(buffer.clone()), Detail::Full, None);
    for event in &events {
        trace.event(event);
    }
    let shown = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    let ending = shown.lines().find(|line| line.contains('✗')).unwrap();
    assert!(ending.ends_with("     60 ms") && !ending.contains("generated"), "{shown}");
}

#[test]
fn full_detail_shows_rollbacks_and_failures() {
    let name = "editor.word_count";
    let reported = Reported { code: "low_utility".to_owned(), retriable: false };
    let failure =
        Failure::new(FailureKind::Reported(reported), "there is nothing\nto count \x1b[2J");
    let events = vec![
        event(0, name, started("\"a b\"")),
        event(0, name, generating(1)),
        event(
            0,
            name,
            rolled_back(
                1,
                "validation",
                "singleton_method_mutation",
                "assigning `count` changes an object",
                "c.count = f",
            ),
        ),
        event(0, name, generating(2)),
        event(0, name, executing(2, "generated", "1 / 0")),
        event(
            0,
            name,
            rolled_back(
                2,
                "execution",
                "execution",
                "ZeroDivisionError: division by zero",
                "1 / 0",
            ),
        ),
        event(0, name, generating(3)),
        event(0, name, executing(3, "repaired", "None")),
        event(0, name, ended(Err(failure), 60)),
    ];
    check(
        Detail::Full,
        None,
        &events,
        "  editor.word_count(\"a b\")
  │ 1  c.count = f
  │ ↺ attempt 1 rolled back at validation: singleton_method_mutation
  │   assigning `count` changes an object
  │ 1  1 / 0
  │ ↺ attempt 2 rolled back at execution
  │   ZeroDivisionError: division by zero
  │ 1  None
  └ ✗ low_utility (not retriable)                  repaired, attempt 3     60 ms
    there is nothing to count \u{fffd}[2J

",
    );
}

#[test]
fn a_long_program_is_cut() {
    let code: Vec<String> = (1..=40).map(|n| format!("line({n})")).collect();
    let buffer = SharedBuffer::default();
    let trace = LiveTrace::to(Box::new(buffer.clone()), Detail::Full, None);
    trace.event(&event(0, "a.b", executing(1, "generated", &code.join("\n"))));
    let shown = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    assert_eq!(shown.lines().count(), MAX_CODE_LINES + 1);
    assert!(shown.ends_with("  │ 20  line(20)\n  │  …  20 more lines\n"), "{shown}");
}

#[test]
fn progress_is_one_status_line_that_is_erased() {
    let name = "calculator.add";
    let events = || {
        vec![
            event(0, name, generating(2)),
            event(0, name, executing(2, "generated", "x")),
            event(0, name, ended(Ok(json!(8)), 5)),
        ]
    };
    check(Detail::Progress, None, &events(), "");
    check(
        Detail::Progress,
        Some(80),
        &events(),
        "\r\x1b[2Kasking the model for calculator.add, attempt 2…\
         \r\x1b[2Krunning calculator.add…\r\x1b[2K",
    );
    check(
        Detail::Progress,
        Some(12),
        &events(),
        "\r\x1b[2Kasking the …\r\x1b[2Krunning cal…\r\x1b[2K",
    );
}

#[test]
fn the_status_line_says_how_far_the_model_is() {
    let name = "c.add";
    let progress = |progress| event(0, name, EventKind::ModelProgress { progress });
    let events = vec![
        progress(ModelProgress::Loading), // of a question that was not seen
        event(0, name, generating(1)),
        progress(ModelProgress::Queued(2)),
        progress(ModelProgress::Loading),
        progress(ModelProgress::Reading { done: 28, total: 512 }),
        progress(ModelProgress::Writing { tokens: 12 }),
        event(0, name, executing(1, "generated", "x")),
    ];
    check(Detail::Progress, None, &events, "");
    let shown = [
        "asking the model for c.add…",
        "asking the model for c.add… 2 requests are before it",
        "asking the model for c.add… loading the model",
        "asking the model for c.add… 28 of 512 tokens read",
        "asking the model for c.add… 12 tokens written",
        "running c.add…",
    ];
    let expected = shown.map(|line| format!("\r\u{1b}[2K{line}")).concat();
    check(Detail::Progress, Some(80), &events, &expected);
}

#[test]
fn what_a_program_printed_is_shown_after_it_ran() {
    let name = "c.add";
    let printed = EventKind::Printed {
        attempt: 1,
        stdout: "one\n\u{1b}[2Jtwo\n".to_owned(),
        stderr: "oh\n".to_owned(),
    };
    let events = vec![
        event(0, name, started("1")),
        event(0, name, executing(1, "generated", "print('one')")),
        event(0, name, printed),
    ];
    check(
        Detail::Full,
        None,
        &events,
        "  c.add(1)\n  │ 1  print('one')\n  │ printed: one\n  │ printed: �[2Jtwo\n  │ stderr: oh\n",
    );
    check(Detail::Progress, None, &events, "");
}
