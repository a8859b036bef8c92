//! The allowance of a call tree is reserved before a model is asked, and its use is reported.

use std::path::Path;

use recurgent::config::Config;
use recurgent::{Outcome, Runtime};
use serde_json::{Value, json};

use super::server::{self, CannedReply, ProviderServer};

/// A chat answer with this program, of so many tokens, half of them sent.
pub(crate) fn writes(code: &str, tokens: u64) -> CannedReply {
    server::writes(code, (tokens / 2, tokens - tokens / 2))
}

pub(crate) fn config(server: &ProviderServer, home: &Path, settings: &[(&str, &str)]) -> Config {
    let mut config = Config::defaults();
    let home = home.to_string_lossy().into_owned();
    for (key, value) in
        [("base_url", server.url("/v1").as_str()), ("model", "m"), ("state_dir", &home)]
    {
        config.set(key, value).unwrap();
    }
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    config
}

fn call(server: &ProviderServer, settings: &[(&str, &str)]) -> Outcome {
    let home = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder(config(server, home.path(), settings)).build().unwrap();
    runtime.agent("shop").build().unwrap().call("sell", (3,)).unwrap()
}

/// The budget a call was over, and what it had spent.
fn overdrawn(outcome: &Outcome) -> (Value, Value) {
    let failure = outcome.failure().unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!(failure.kind.code(), "budget_exceeded", "{failure:?}");
    assert!(failure.message.contains("raise max_"), "{}", failure.message);
    (failure.metadata["budget"].clone(), failure.metadata["spent"].clone())
}

const FORKS: &str = "import os\nos.fork()\nresult = args[0]";
const PRICES: [(&str, &str); 2] = [("price_input_per_mtok", "1"), ("price_output_per_mtok", "1")];

#[test]
fn a_prompt_over_the_allowance_is_not_sent() {
    let server = ProviderServer::new(vec![writes("result = args[0]", 100)]);
    assert_eq!(
        overdrawn(&call(&server, &[("max_tree_tokens", "300")])),
        (json!("tokens"), json!(0))
    );
    let cost = [PRICES[0], PRICES[1], ("max_tree_cost_usd", "0.0001")];
    assert_eq!(overdrawn(&call(&server, &cost)), (json!("cost_usd"), json!(0.0)));
    assert_eq!(
        overdrawn(&call(&server, &[("max_model_calls", "0")])),
        (json!("model_calls"), json!(0))
    );
    assert!(server.requests().is_empty());
}

#[test]
fn what_a_rejected_program_cost_counts() {
    let server = ProviderServer::new(vec![writes(FORKS, 2500)]);
    assert_eq!(
        overdrawn(&call(&server, &[("max_tree_tokens", "3000")])),
        (json!("tokens"), json!(2500))
    );
    let cost = [PRICES[0], PRICES[1], ("max_tree_cost_usd", "0.003")];
    assert_eq!(overdrawn(&call(&server, &cost)), (json!("cost_usd"), json!(0.0025)));
}

#[test]
fn a_server_that_does_not_tell_what_it_used_is_counted_all_the_same() {
    let server = ProviderServer::new(vec![writes(FORKS, 0)]);
    let (budget, spent) = overdrawn(&call(&server, &[("max_tree_tokens", "1500")]));
    assert_eq!(budget, "tokens");
    assert!(spent.as_u64().unwrap() > 500, "{spent}");
    let cost = [PRICES[0], PRICES[1], ("max_tree_cost_usd", "0.0015")];
    let (budget, spent) = overdrawn(&call(&server, &cost));
    assert_eq!(budget, "cost_usd");
    assert!(spent.as_f64().unwrap() > 0.0005, "{spent}");
}

/// What a call was ended for by its allowance ends it in a replay, too.
#[test]
fn a_recorded_overdraft_is_replayed() {
    for (tokens, settings) in [
        (2500, vec![("max_tree_tokens", "3000")]),
        (0, vec![("max_tree_tokens", "1500")]),
        (2500, vec![PRICES[0], PRICES[1], ("max_tree_cost_usd", "0.003")]),
        (10, vec![("max_model_calls", "1")]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let server = ProviderServer::new(vec![writes(FORKS, tokens)]);
        let recording = home.path().join("r.jsonl");
        let sell = |name: &str, more: &[(&str, &str)]| {
            let settings: Vec<_> = settings.iter().chain(more).copied().collect();
            let config = config(&server, &home.path().join(name), &settings);
            let builder = Runtime::builder(config);
            let builder = if more.is_empty() { builder.record(recording.clone()) } else { builder };
            let runtime = builder.build().unwrap();
            runtime.agent("shop").build().unwrap().call("sell", (3,)).unwrap()
        };
        let recorded = sell("first", &[]);
        overdrawn(&recorded);
        let replay = format!("replay:{}", recording.display());
        let replayed = sell("again", &[("provider", &replay)]);
        assert_eq!(replayed.to_json(), recorded.to_json());
    }
}

#[test]
fn a_tight_allowance_shortens_the_answer() {
    let server = ProviderServer::new(vec![writes("result = args[0]", 100)]);
    assert!(call(&server, &[("max_tree_tokens", "3000")]).is_ok());
    let asked = server.request().body["max_tokens"].as_u64().unwrap();
    assert!((256..2048).contains(&asked), "{asked}");
    assert!(call(&server, &[]).is_ok());
    assert_eq!(server.request().body["max_tokens"], 2048);
}

#[test]
fn money_is_not_counted_without_prices() {
    let server = ProviderServer::new(vec![writes("result = args[0]", 100)]);
    let outcome = call(&server, &[("max_tree_cost_usd", "5")]);
    let failure = outcome.failure().unwrap();
    assert_eq!(failure.kind.code(), "provider");
    assert!(failure.message.contains("price_input_per_mtok"), "{}", failure.message);
    assert!(server.requests().is_empty());
}

#[test]
fn a_child_has_what_its_parent_left() {
    let parent =
        "tool = delegate('helper', purpose='helps')\nresult = tool.help(args[0]).error_type";
    let server = ProviderServer::new(vec![writes(parent, 2500)]);
    let outcome = call(&server, &[("max_tree_tokens", "3500")]);
    assert_eq!(outcome.value(), Some(&json!("budget_exceeded")), "{outcome:?}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_tree_ends_with_its_time() {
    let silent = ProviderServer::new(vec![CannedReply::Silent]);
    let (budget, spent) = overdrawn(&call(&silent, &[("max_tree_seconds", "0.4")]));
    assert_eq!(budget, "seconds");
    assert!(spent.as_f64().unwrap() >= 0.4, "{spent}");

    let sleeps = "import time\ntime.sleep(60)\nresult = args[0]";
    let server = ProviderServer::new(vec![writes(sleeps, 10)]);
    assert_eq!(overdrawn(&call(&server, &[("max_tree_seconds", "3")])).0, "seconds");

    // The parent gives no more than it has: its child's time is its own.
    let parent = "import time\ntool = delegate('helper', purpose='helps')\nresult = tool.help(1).ok\ntime.sleep(60)";
    let server = ProviderServer::new(vec![writes(parent, 10), writes(sleeps, 10)]);
    assert_eq!(overdrawn(&call(&server, &[("max_tree_seconds", "4")])).0, "seconds");
}
