//! Where data came from is observed by the runtime: attached to outcomes and history, and never a reason to run a
//! program twice.
#![cfg(test)]

#[path = "honest/server.rs"]
mod server;

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Agent, Language, Outcome, Runtime};
use serde_json::{Value, json};

use server::PageServer;

/// Runs on both guests: a runtime whose programs may reach `network`, and whose model writes these programs.
fn check(
    network: impl Fn(&PageServer) -> String,
    programs: &[(&str, &str, &str)],
    test: impl Fn(&Runtime, Language, &PageServer),
) {
    for language in Language::ALL {
        let server = PageServer::start();
        let script = Arc::new(Scripted::new());
        for (key, python, ruby) in programs {
            let code = if language == Language::Python { python } else { ruby };
            script.add(key, json!({ "code": code }));
        }
        let state = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        config.set("state_dir", &state.path().display().to_string()).unwrap();
        config.set("network", &network(&server)).unwrap();
        let runtime = Runtime::builder(config).provider(script).build().unwrap();
        test(&runtime, language, &server);
    }
}

fn agent(runtime: &Runtime, language: Language, role: &str) -> Agent {
    runtime.agent(role).guest(language).build().unwrap()
}

fn url(server: &PageServer, path: &str) -> String {
    format!("http://127.0.0.1:{}{path}", server.port)
}

/// The observed sources: uri, tool and mode of each.
fn sources(outcome: &Outcome) -> Vec<[String; 3]> {
    let metadata = &outcome.to_json()["metadata"];
    let sources = metadata["sources"].as_array().cloned().unwrap_or_default();
    let field = |source: &Value, name: &str| source[name].as_str().unwrap().to_owned();
    let shown = |source: &Value| {
        assert!(field(source, "fetched_at").starts_with("20"), "{source}");
        ["uri", "retrieval_tool", "retrieval_mode"].map(|name| field(source, name))
    };
    sources.iter().map(shown).collect()
}

const FETCH: (&str, &str) = (
    "import urllib.request\nresult = urllib.request.urlopen(args[0]).read().decode()",
    "require 'net/http'\nNet::HTTP.get(URI(args[0]))",
);

/// A claim that a page was fetched just now, without fetching it.
const CLAIM: (&str, &str) = (
    "result = {'provenance': {'sources': [{'uri': 'http://127.0.0.1/x', 'retrieval_mode': 'live'}]}}",
    "{ provenance: { sources: [{ uri: 'http://127.0.0.1/x', retrieval_mode: 'live' }] } }",
);

#[test]
fn a_reached_host_is_attached_to_the_outcome_and_to_history() {
    let programs = [("reader.read", FETCH.0, FETCH.1)];
    check(PageServer::network, &programs, |runtime, language, server| {
        let reader = agent(runtime, language, "reader");
        let outcome = reader.call("read", (url(server, "/health"),)).unwrap();
        assert_eq!(outcome.value(), Some(&json!("ok")), "{language}");
        let host = format!("127.0.0.1:{}", server.port);
        let live = |uri: &str| vec![[uri, "network", "live"].map(str::to_owned)];
        assert_eq!(sources(&outcome), live(&host), "{language}");
        let record = reader.history(1).unwrap().remove(0);
        assert_eq!(record["outcome_summary"]["source_count"], 1, "{record}");
        assert_eq!(record["outcome_summary"]["primary_uri"], host, "{record}");
    });
}

#[test]
fn what_a_tool_fetched_is_attached_to_its_caller() {
    let programs = [
        (
            "boss.read",
            "result = delegate('fetcher', purpose='fetch').get(args[0]).value",
            "delegate('fetcher', purpose: 'fetch').get(args[0]).value",
        ),
        ("fetcher.get", FETCH.0, FETCH.1),
    ];
    check(PageServer::network, &programs, |runtime, language, server| {
        let outcome =
            agent(runtime, language, "boss").call("read", (url(server, "/health"),)).unwrap();
        let found = sources(&outcome);
        assert_eq!(found.len(), 1, "{language} {outcome:?}");
        assert_eq!(found[0][1], "fetcher", "{language}");
    });
}

#[test]
fn a_live_source_that_was_not_reached_is_rejected_where_connections_are_seen() {
    let programs = [("boss.claim", CLAIM.0, CLAIM.1)];
    check(PageServer::network, &programs, |runtime, language, _| {
        let outcome = agent(runtime, language, "boss").call("claim", ()).unwrap();
        let failure = outcome.failure().unwrap_or_else(|| panic!("{language}: {outcome:?}"));
        assert_eq!(failure.metadata["guardrail_subtype"], "false_external_provenance");
    });
    let programs = [("boss.claim", CLAIM.0, CLAIM.1), ("boss.read", FETCH.0, FETCH.1)];
    check(
        |_| "open".to_owned(),
        &programs,
        |runtime, language, server| {
            let boss = agent(runtime, language, "boss");
            assert!(boss.call("claim", ()).unwrap().is_ok(), "{language}: nothing is judged");
            let read = boss.call("read", (url(server, "/health"),)).unwrap();
            assert!(sources(&read).is_empty(), "{language}: nothing is attached");
        },
    );
}

/// A webhook, a port check and a list of fetched rows: none of them is run again.
#[test]
fn nothing_is_sent_twice_to_learn_where_data_came_from() {
    let programs = [
        (
            "hook.send",
            "import urllib.request\nresult = urllib.request.urlopen(args[0], data=b'{}').status",
            "require 'net/http'\nNet::HTTP.post(URI(args[0]), '{}').code.to_i",
        ),
        (
            "ports.is_open",
            "import socket\nwith socket.create_connection((args[0], args[1]), 2):\n    result = True",
            "require 'socket'\nTCPSocket.new(args[0], args[1]).close\ntrue",
        ),
        (
            "shop.items",
            "import json, urllib.request\nresult = json.load(urllib.request.urlopen(args[0]))['items']",
            "require 'net/http'\nrequire 'json'\nJSON.parse(Net::HTTP.get(URI(args[0])))['items']",
        ),
    ];
    check(PageServer::network, &programs, |runtime, language, server| {
        let sent = agent(runtime, language, "hook").call("send", (url(server, "/hook"),)).unwrap();
        assert_eq!(sent.value(), Some(&json!(200)), "{language} {sent:?}");
        assert_eq!(server.requests()[1], 1, "{language}");
        let ports = agent(runtime, language, "ports");
        let open = ports.call("is_open", ("127.0.0.1", server.port)).unwrap();
        assert_eq!(open.value(), Some(&json!(true)), "{language} {open:?}");
        let shop = runtime.agent("shop").guest(language).deliverable(json!({"type": "array"}));
        let items = shop.build().unwrap().call("items", (url(server, "/items.json"),)).unwrap();
        assert_eq!(items.value().unwrap().as_array().unwrap().len(), 2, "{language}");
    });
}
