//! A recorded session replays offline: the same outcomes, the same trace, and no socket.
//!
//! A process of its own with one test, so that every socket in it is the test's.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "test")]

#[path = "providers/server.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod server;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use lifecycle::event::Event;
use lifecycle::log_entry::steady;
use recurgent::config::Config;
use recurgent::observe::Observer;
use recurgent::{Outcome, Runtime};
use serde_json::{Value, json};
use server::{CannedReply, ProviderServer};

fn config(home: &Path, settings: &[(&str, &str)]) -> Config {
    let mut config = Config::defaults();
    let home = home.to_string_lossy().into_owned();
    let prices = [("price_input_per_mtok", "1"), ("price_output_per_mtok", "2")];
    for (key, value) in prices.iter().chain(&[("state_dir", home.as_str())]).chain(settings) {
        config.set(key, value).unwrap();
    }
    config
}

fn writes(code: &str) -> CannedReply {
    server::writes(code, (700, 40))
}

/// A chat answer with this text.
fn says(text: &str) -> CannedReply {
    let body = json!({
        "choices": [{"finish_reason": "stop", "message": {"content": text}}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5},
    });
    CannedReply::Says(200, vec![], body.to_string())
}

/// The session: a service that is busy, a program that breaks a rule, one that fails, one that delegates,
/// one that shows an address in memory, one that asks the model about data.
fn play(runtime: &Runtime) -> Vec<Outcome> {
    let desk = runtime.agent("desk").session("s").build().unwrap();
    let mut outcomes = Vec::new();
    for (method, argument) in [
        ("add", json!(3)),
        ("add", json!(4)),
        ("manage", json!("x")),
        ("fail", json!(1)),
        ("sum_up", json!("Rain, rain.")),
    ] {
        outcomes.push(desk.call(method, (argument,)).unwrap());
    }
    outcomes
}

fn answers() -> Vec<CannedReply> {
    vec![
        CannedReply::Says(429, vec![("retry-after", "0".to_owned())], "{}".to_owned()),
        writes("import os\nos.fork()\nresult = args[0]"),
        writes("context['sum'] = context.get('sum', 0) + args[0]\nresult = context['sum']"),
        writes("tool = delegate('helper', purpose='helps')\nresult = tool.help(args[0]).value"),
        writes("result = [args[0], len(args)]"),
        writes("raise ValueError(f'no {object()} for {args[0]}')"),
        CannedReply::Says(
            200,
            vec![],
            json!({"choices": [{"finish_reason": "length", "message": {"content": "{"}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
            .to_string(),
        ),
        writes("raise ValueError(f'still no {object()} for {args[0]}')"),
        writes("result = infer('Sum up', args[0])"),
        says("{\"answer\": \"Rain.\"}"),
    ]
}

/// Log entries without what no two runs share. Errors show addresses in memory, which differ as well.
fn trace(home: &Path) -> Vec<Value> {
    let log = fs::read_to_string(home.join("recurgent.jsonl")).unwrap();
    let entries = log.lines().map(|line| steady(serde_json::from_str(line).unwrap()));
    entries.map(|entry| without_addresses(&entry)).collect()
}

fn without_addresses(value: &Value) -> Value {
    let text = value.to_string();
    let mut pieces = text.split("0x");
    let mut out = pieces.next().unwrap().to_owned();
    for piece in pieces {
        out += piece.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    serde_json::from_str(&out).unwrap()
}

/// Internet sockets this process holds.
fn sockets() -> Vec<String> {
    let tables = ["tcp", "tcp6", "udp", "udp6"]
        .map(|name| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default());
    let inodes: Vec<&str> = tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| line.split_whitespace().nth(9))
        .collect();
    let held =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    let held = held.map(|link| link.to_string_lossy().into_owned());
    held.filter(|link| inodes.iter().any(|inode| *link == format!("socket:[{inode}]"))).collect()
}

/// Looks for sockets whenever something happens.
#[derive(Clone, Default)]
struct Sockets(Arc<Mutex<(usize, Vec<String>)>>);

impl Observer for Sockets {
    fn event(&self, _event: &Event) {
        let mut seen = self.0.lock().unwrap();
        seen.0 += 1;
        seen.1.extend(sockets());
    }
}

#[test]
fn a_recorded_session_replays_without_a_socket() {
    let home = tempfile::tempdir().unwrap();
    let recording = home.path().join("session.jsonl");
    let first = home.path().join("first");
    let recorded = {
        let server = ProviderServer::new(answers());
        assert!(!sockets().is_empty(), "sockets can be seen");
        let url = server.url("/v1");
        let config = config(&first, &[("base_url", &url), ("model", "some-model")]);
        let runtime = Runtime::builder(config).record(recording.clone()).build().unwrap();
        let outcomes = play(&runtime);
        assert_eq!(server.requests().len(), answers().len(), "{outcomes:?}");
        outcomes
    };
    assert_eq!(recorded[1].value(), Some(&json!(7)));
    assert_eq!(recorded[2].value(), Some(&json!(["x", 1])));
    assert_eq!(recorded[4].value(), Some(&json!("Rain.")));

    let seen = Sockets::default();
    let again = home.path().join("again");
    let replay = format!("replay:{}", recording.display());
    let runtime = Runtime::builder(config(&again, &[("provider", &replay)]))
        .observer(Box::new(seen.clone()))
        .build()
        .unwrap();
    let replayed = play(&runtime);
    let clean = |outcomes: &[Outcome]| -> Vec<Value> {
        outcomes.iter().map(|outcome| without_addresses(&outcome.to_json())).collect()
    };
    assert_eq!(clean(&replayed), clean(&recorded));
    assert_eq!(trace(&again), trace(&first));
    let (events, held) = seen.0.lock().unwrap().clone();
    assert!(events > 10, "{events}");
    assert_eq!(held, Vec::<String>::new());

    // Another session than the recorded one is reported with the difference.
    let other = home.path().join("other");
    let runtime = Runtime::builder(config(&other, &[("provider", &replay)])).build().unwrap();
    let outcome =
        runtime.agent("desk").session("s").build().unwrap().call("add", ("three",)).unwrap();
    let failure = outcome.failure().expect("it diverges");
    assert_eq!(failure.kind.code(), "replay_divergence");
    let shown = "\"args\":[{\"type\":\"number\"";
    assert!(
        failure.message.contains("- ") && failure.message.contains(shown),
        "{}",
        failure.message
    );
    assert!(failure.message.contains("\"preview\":\"three\""), "{}", failure.message);
}
