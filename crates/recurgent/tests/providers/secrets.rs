//! Only the service that a key belongs to sees it.

use std::fs;
use std::path::Path;

use lifecycle::request::Arguments;
use recurgent::Runtime;
use recurgent::config::Config;
use recurgent::provider::make;
use serde_json::{Map, json};

use super::server::{CannedReply, ProviderServer};
use super::{CANARY, ask_at, options};
use crate::allowance::{config, writes};

/// Every file under a folder.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn a_key_is_in_no_file_no_message_and_no_worker() {
    let home = tempfile::tempdir().unwrap();
    // A program that prints all it can see of its environment; then a service that repeats the key.
    let looks = "import os\nresult = [dict(os.environ), [str(a) for a in args]]";
    let refused = CannedReply::Says(
        401,
        vec![],
        format!("{{\"error\": {{\"message\": \"Incorrect API key provided: {CANARY}\"}}}}"),
    );
    let busy = CannedReply::Says(429, vec![], format!("slow down, {CANARY}"));
    let server = ProviderServer::new(vec![writes(looks, 10), busy, refused]);
    let recording = home.path().join("recording.jsonl");
    let runtime = Runtime::builder(config(&server, home.path(), &[("debug", "true")]))
        .provider(make(&options("openai-chat", server.url("/v1"))).unwrap())
        .record(recording.clone())
        .build()
        .unwrap();
    let agent = runtime.agent("spy").session("desk").build().unwrap();
    let looked = agent.call("look", (1,)).unwrap();
    assert!(looked.is_ok(), "{looked:?}");
    let failed = agent.call("ask", (2,)).unwrap();
    assert_eq!(failed.failure().unwrap().kind.code(), "provider_auth");
    for request in server.requests() {
        assert_eq!(request.header("authorization"), Some(format!("Bearer {CANARY}").as_str()));
    }
    let printed = json!([looked.to_json(), failed.to_json()]).to_string();
    let shown = format!("{printed} {runtime:?} {agent:?} {looked:?} {failed:?}");
    assert!(!shown.contains("canary"), "{shown}");
    drop((agent, runtime));
    let mut kept = Vec::new();
    files(home.path(), &mut kept);
    assert!(
        kept.iter().any(|(name, bytes)| name.ends_with("recording.jsonl") && bytes.len() > 500)
    );
    assert!(kept.iter().any(|(name, _)| name.ends_with("recurgent.jsonl")));
    for (name, bytes) in kept {
        assert!(!String::from_utf8_lossy(&bytes).contains("canary"), "{name} holds the key");
    }
}

/// A caller's secret, named by an argument's name or within a text, that a program repeats without the name.
#[test]
fn a_value_named_as_a_secret_is_in_no_file() {
    let home = tempfile::tempdir().unwrap();
    let repeats = "print(kwargs['password'])\nresult = ['it is ' + kwargs['password'], args[0], args[0].split('=')[1]]";
    let server = ProviderServer::new(vec![writes(repeats, 10)]);
    let runtime = Runtime::builder(config(&server, home.path(), &[("debug", "true")]))
        .provider(make(&options("openai-chat", server.url("/v1"))).unwrap())
        .record(home.path().join("recording.jsonl"))
        .build()
        .unwrap();
    let agent = runtime.agent("desk").session("desk").build().unwrap();
    for _ in 0..2 {
        let given = Arguments {
            args: vec![json!("log in with password=y-canary-2")],
            kwargs: Map::from_iter([("password".to_owned(), json!("x-canary-1"))]),
        };
        let outcome = agent.call("repeat", given).unwrap();
        assert!(outcome.value().unwrap().to_string().contains("canary-2"), "{outcome:?}");
    }
    drop((agent, runtime));
    for request in server.requests() {
        assert!(
            !request.body.to_string().contains("canary"),
            "a model needs no secrets: {}",
            request.body
        );
    }
    let mut kept = Vec::new();
    files(home.path(), &mut kept);
    for (name, bytes) in &kept {
        let text = String::from_utf8_lossy(bytes);
        let leak = text.find("canary").map(|at| text[at.saturating_sub(200)..].chars().take(400));
        assert!(leak.is_none(), "{name} holds a secret: {}", leak.unwrap().collect::<String>());
    }
}

/// A caller's secret that its program hands to a tool, without the name.
#[test]
fn a_secret_that_a_call_hands_on_is_in_no_file() {
    let home = tempfile::tempdir().unwrap();
    let parent = "result = delegate('helper', purpose='log in').enter(kwargs['password']).value";
    let child = "print(args[0])\nresult = 'in as ' + args[0]";
    let server = ProviderServer::new(vec![writes(parent, 10), writes(child, 10)]);
    let runtime = Runtime::builder(config(&server, home.path(), &[("debug", "true")]))
        .provider(make(&options("openai-chat", server.url("/v1"))).unwrap())
        .build()
        .unwrap();
    let agent = runtime.agent("desk").session("desk").build().unwrap();
    let given = Arguments {
        args: Vec::new(),
        kwargs: Map::from_iter([("password".to_owned(), json!("x-canary-1"))]),
    };
    let outcome = agent.call("login", given).unwrap();
    assert_eq!(outcome.value(), Some(&json!("in as x-canary-1")), "{outcome:?}");
    drop((agent, runtime));
    let mut kept = Vec::new();
    files(home.path(), &mut kept);
    assert!(kept.iter().any(|(name, _)| name.ends_with("recurgent.jsonl")));
    for (name, bytes) in &kept {
        let text = String::from_utf8_lossy(bytes);
        let around = text.find("canary").map(|at| &text[at.saturating_sub(200)..at + 6]);
        assert_eq!(around, None, "{name} holds a secret");
    }
}

/// A service that repeats its key: whole, where a message is cut, spelt otherwise, and in a program.
#[test]
fn a_repeated_key_is_not_passed_on() {
    let spelt = CANARY.replace('-', "\\u002d");
    let error = |words: &str| format!("{{\"error\": {{\"message\": \"{words}\"}}}}");
    let page = format!("<html>{}{CANARY}", "x".repeat(380));
    for (status, body) in [
        (401, error(CANARY)),
        (400, error(&format!("{}{CANARY}", "x".repeat(390)))),
        (429, error(&spelt)),
        (200, error(&spelt)),
        (502, page.clone()),
        (200, page),
    ] {
        let server = ProviderServer::new(vec![CannedReply::Says(status, vec![], body)]);
        let fault = ask_at("openai-chat", server.url("/v1")).unwrap_err();
        assert!(!format!("{fault:?}").contains("sk-can"), "{fault:?}");
    }
    let to = format!("http://127.0.0.1:1/{}{CANARY}", "x".repeat(375));
    let server =
        ProviderServer::new(vec![CannedReply::Says(307, vec![("location", to)], String::new())]);
    let fault = ask_at("openai-chat", server.url("/v1")).unwrap_err();
    assert!(!format!("{fault:?}").contains("sk-can"), "{fault:?}");
    let server = ProviderServer::new(vec![writes(&format!("result = '{CANARY}'"), 10)]);
    let draft = ask_at("openai-chat", server.url("/v1")).unwrap();
    assert_eq!(draft.payload["code"], "result = '[secret]'");
}

/// Secrets that arguments bring along are in the prompt, but not in the recording of it.
#[test]
fn a_recording_holds_no_secrets_of_arguments() {
    let home = tempfile::tempdir().unwrap();
    let server = ProviderServer::new(vec![writes("result = len(args[0])", 10)]);
    let recording = home.path().join("r.jsonl");
    let runtime = Runtime::builder(config(&server, home.path(), &[]))
        .record(recording.clone())
        .build()
        .unwrap();
    let outcome = runtime.agent("spy").build().unwrap().call("measure", (CANARY,)).unwrap();
    assert!(outcome.is_ok(), "{outcome:?}");
    let text = fs::read_to_string(recording).unwrap();
    assert!(text.contains("[redacted]") && !text.contains("canary"), "{text}");
}

#[test]
fn settings_do_not_show_keys() {
    let mut config = Config::defaults();
    config.set("provider_proxy", &format!("http://user:{CANARY}@proxy.example")).unwrap();
    let shown: Vec<String> =
        config.entries().map(|(key, value, _)| key.shown(value).into_owned()).collect();
    assert!(!shown.concat().contains("canary"), "{shown:?}");
}
