//! Services that fail for a while are asked again. These retries have their own budget.

use std::sync::{Arc, Mutex};

use lifecycle::event::{Event, EventKind};
use recurgent::observe::Observer;
use recurgent::{Outcome, Runtime};

use super::allowance::{config, writes};
use super::server::{CannedReply, ProviderServer};

/// Every wait that observers were notified of.
#[derive(Debug, Clone, Default)]
struct Waits(Arc<Mutex<Vec<String>>>);

impl Observer for Waits {
    fn event(&self, event: &Event) {
        if let EventKind::Waiting { wait, why } = &event.kind {
            self.0.lock().unwrap().push(format!("{wait:?}: {why}"));
        }
    }
}

/// Makes one call with one attempt of the model, and these settings.
fn call(answers: Vec<CannedReply>, settings: &[(&str, &str)]) -> (Outcome, usize, Vec<String>) {
    let server = ProviderServer::new(answers);
    let home = tempfile::tempdir().unwrap();
    let settings = [&[("max_generation_attempts", "1")], settings].concat();
    let waits = Waits::default();
    let runtime = Runtime::builder(config(&server, home.path(), &settings))
        .observer(Box::new(waits.clone()))
        .build()
        .unwrap();
    let outcome = runtime.agent("shop").build().unwrap().call("sell", (3,)).unwrap();
    let waits = waits.0.lock().unwrap().clone();
    (outcome, server.requests().len(), waits)
}

fn replies(status: u16, delay: Option<&str>) -> CannedReply {
    let headers = delay.map(|delay| ("retry-after", delay.to_owned())).into_iter().collect();
    CannedReply::Says(status, headers, r#"{"error": {"message": "busy"}}"#.to_owned())
}

#[test]
fn a_service_that_fails_for_a_while_costs_no_attempt_of_the_model() {
    let answers = vec![
        replies(503, None),
        replies(429, Some("0.1")),
        CannedReply::Raw(Vec::new()),
        writes("result = args[0]", 100),
    ];
    let (outcome, requests, waits) = call(answers, &[]);
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(requests, 4);
    let [first, second, third] = &waits[..] else { panic!("{waits:?}") };
    assert!(first.starts_with("500ms: the model service answered 503: busy"), "{first}");
    assert!(second.starts_with("100ms: "), "the service's own delay: {second}");
    assert!(third.starts_with("2s: the model service cannot be reached"), "{third}");
}

#[test]
fn retries_are_limited_by_number_and_by_delay() {
    for (answer, settings, requests) in [
        (replies(503, Some("0.01")), [("transport_retries", "2"), ("debug", "false")], 3),
        (replies(503, Some("0.01")), [("transport_retries", "0"), ("debug", "false")], 1),
        (replies(429, Some("31")), [("transport_retries", "4"), ("debug", "false")], 1),
        (
            replies(429, Some("2")),
            [("transport_retries", "4"), ("max_retry_delay_seconds", "1")],
            1,
        ),
    ] {
        let (outcome, asked, _) = call(vec![answer.clone()], &settings);
        assert_eq!(asked, requests, "{answer:?} {settings:?}");
        let code = outcome.failure().unwrap().kind.code();
        assert!(["provider", "rate_limited"].contains(&code), "{outcome:?}");
    }
}
