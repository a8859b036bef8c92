//! What is kept of calls: recorded ones, values, history; and no secret.

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Arguments, Runtime};
use serde_json::{Value, json};

use crate::fixture::{check, log};

#[test]
fn secrets_and_large_values_are_not_recorded() {
    check(|fixture| {
        fixture.writes(
            "c.echo",
            "result = [args[0], len(str(kwargs))]",
            "[args[0], kwargs.to_s.size]",
        );
        let c = fixture.agent("c");
        fixture.call(&c, "echo", &[json!("sk-abcdefghijklmnopqrstuvwxyz0123")], 1);
        fixture.call(&c, "echo", &[json!({"password": "hunter2"})], 0);
        fixture.call(&c, "echo", &[json!("x".repeat(5000))], 0);
        let key = fixture.key("c", "echo");
        assert!(fixture.runtime().store().corpus(&key).unwrap().is_empty());
        fixture.call(&c, "echo", &[json!("plain")], 0);
        fixture.call(&c, "echo", &[json!("plain")], 0);
        assert_eq!(fixture.runtime().store().corpus(&key).unwrap().len(), 1);
    });
}

/// A value can be referred to for as long as `content_ttl_seconds` says, and then it is gone from the file.
#[test]
fn a_kept_value_goes_when_its_time_is_over() {
    check(|fixture| {
        let mut config = Config::defaults();
        config.set("state_dir", &fixture.state.path().display().to_string()).unwrap();
        config.set("content_ttl_seconds", "3600").unwrap();
        let provider = Arc::<Scripted>::clone(&fixture.model);
        fixture.runtime = Some(Runtime::builder(config).provider(provider).build().unwrap());
        fixture.writes("c.make", "result = ['made', args[0]]", "['made', args[0]]");
        fixture.writes(
            "c.last",
            "made = [r for r in context.conversation_history if r['method_name'] == 'make']\nresult = content(made[-1 - args[0]]['outcome_summary']['content_ref'])",
            "made = context.conversation_history.select { |r| r['method_name'] == 'make' }\ncontent(made[-1 - args[0]]['outcome_summary']['content_ref'])",
        );
        let c = fixture.agent("c");
        fixture.call(&c, "make", &[json!(1)], 1);
        assert_eq!(fixture.call(&c, "last", &[json!(0)], 1), json!(["made", 1]));
        let file = fixture.state.path().join("recurgent.sqlite");
        let ages = rusqlite::Connection::open(file).unwrap();
        ages.execute("UPDATE contents SET created_at = '2026-01-01T00:00:00.000Z'", []).unwrap();
        assert_eq!(fixture.call(&c, "last", &[json!(0)], 0), json!(null));
        let left =
            || ages.query_row("SELECT count(*) FROM contents", [], |row| row.get::<_, i64>(0));
        assert_eq!(left().unwrap(), 0, "a null is not kept");
        fixture.call(&c, "make", &[json!(2)], 0);
        assert_eq!(fixture.call(&c, "last", &[json!(0)], 0), json!(["made", 2]));
        assert_eq!(log(fixture)[2]["content_store_eviction_count"], 2);
        assert_eq!(log(fixture)[2]["content_store_write_skipped_reason"], "no_value");
    });
}

/// A program sees the latest records and can go back page by page to the first.
#[test]
fn a_program_can_read_its_whole_history_page_by_page() {
    check(|fixture| {
        fixture.writes("c.note", "result = args[0]", "args[0]");
        fixture.writes(
            "c.notes",
            "page, pages = context.conversation_history, []\nwhile page:\n    pages.append([page[0]['args'], len(page)])\n    page = page.before()\nlatest = context.conversation_history\nresult = [pages, len(latest.before(latest[3])), len(latest.before(latest[3]['call_id'])), args[0]]",
            "page, pages = context.conversation_history, []\nuntil page.empty?\n  pages << [page[0]['args'], page.size]\n  page = page.before\nend\nlatest = context.conversation_history\n[pages, latest.before(latest[3]).size, latest.before(latest[3]['call_id']).size, args[0]]",
        );
        let c = fixture.agent("c");
        for number in 0..203 {
            fixture.call(&c, "note", &[json!(number)], usize::from(number == 0));
        }
        assert_eq!(
            fixture.call(&c, "notes", &[json!("x")], 1),
            json!([[[[103], 100], [[3], 100], [[0], 3]], 100, 100, "x"])
        );
        let last = log(fixture).pop().unwrap();
        assert_eq!(last["history_access_detected"], true);
        assert_eq!(last["conversation_history_size"], 204);
        assert_eq!(last["history_record_appended"], true);
    });
}

/// Wherever a call's arguments go, and what comes of them: no table and no log line keeps what looks like a secret.
#[test]
fn no_file_keeps_a_secret() {
    const KEY: &str = "sk-canary1canary2canary3canary4";
    const PHRASE: &str = "canary5 canary6";
    check(|fixture| {
        fixture.writes(
            "c.echo",
            "def echo(value, **named):\n    if value == 'fail':\n        raise ValueError(str(named))\n    return value",
            "def echo(value, **named)\n  raise ArgumentError, named.to_s if value == 'fail'\n  value\nend",
        );
        let c = fixture.agent("c");
        let long = format!("{} {KEY}", "x".repeat(3000));
        for value in [json!(KEY), json!([{"url": KEY}]), json!({"password": PHRASE}), json!(long)] {
            c.call("echo", (value,)).unwrap();
        }
        let named = |name: &str, value: Value| Arguments {
            args: vec![json!("plain")],
            kwargs: [(name.to_owned(), value)].into_iter().collect(),
        };
        c.call("echo", named("api_key", json!(PHRASE))).unwrap();
        c.call("echo", named("private_key", json!(PHRASE.repeat(300)))).unwrap();
        c.call("echo", named("note", json!(long))).unwrap();
        // The stored program fails on one: what it says is kept with the program that repairs it.
        fixture.writes("c.echo", "result = args[0]", "args[0]");
        let failing = Arguments { args: vec![json!("fail")], ..named("to", json!(KEY)) };
        c.call("echo", failing).unwrap();
        assert_eq!(fixture.asked(), 2);
        fixture.restart();
        for entry in std::fs::read_dir(fixture.state.path()).unwrap() {
            let path = entry.unwrap().path();
            let Ok(bytes) = std::fs::read(&path) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            for secret in ["canary1", "canary3", "canary5", "canary6"] {
                let found = text
                    .find(secret)
                    .map(|at| text.get(at.saturating_sub(200)..at + 40).unwrap_or("?").to_owned());
                assert_eq!(found, None, "{secret} in {}", path.display());
            }
        }
    });
}
