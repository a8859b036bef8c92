//! Everything else a service can do: each has a typed end, and none takes longer than it may.

use std::time::{Duration, Instant};

use lifecycle::draft::DraftFault;
use recurgent::Cancellation;
use recurgent::provider::make;

use super::server::{CannedReply, ProviderServer};
use super::{CANARY, PATIENT, ask, ask_at, ask_until, bare, options};

/// Every status services document, on every wire.
#[test]
fn every_documented_status_is_mapped() {
    let kind = |fault: &DraftFault| {
        let name = format!("{fault:?}");
        let kinds = [
            ("Auth", "auth"),
            ("RateLimited", "rate"),
            ("Overloaded", "down"),
            ("Rejected", "rejected"),
        ];
        kinds.into_iter().find(|(start, _)| name.starts_with(start)).map(|(_, kind)| kind)
    };
    for (provider, statuses) in [
        // invalid_request, authentication, billing, permission, not_found, conflict, too_large, rate_limit, api, timeout, overloaded
        (
            "anthropic",
            "400 rejected, 401 auth, 402 auth, 403 auth, 404 rejected, 409 down, 413 rejected, 429 rate, 500 down, 504 down, 529 down",
        ),
        (
            "openai",
            "400 rejected, 401 auth, 403 auth, 404 rejected, 408 down, 409 down, 413 rejected, 422 rejected, 429 rate, 500 down, 502 down, 503 down, 504 down",
        ),
        (
            "openai-chat",
            "400 rejected, 401 auth, 403 auth, 404 rejected, 408 down, 409 down, 413 rejected, 422 rejected, 429 rate, 500 down, 503 down",
        ),
        (
            "gemini",
            "400 rejected, 401 auth, 403 auth, 404 rejected, 429 rate, 500 down, 503 down, 504 down",
        ),
        ("compatible", "301 rejected, 307 rejected, 401 auth, 418 rejected, 429 rate, 502 down"),
    ] {
        for case in statuses.split(", ") {
            let (status, wanted) = case.split_once(' ').unwrap();
            let body = format!(
                "{{\"error\": {{\"type\": \"t\", \"message\": \"because of {status}, {CANARY}\"}}}}"
            );
            let answer = CannedReply::Says(
                status.parse().unwrap(),
                vec![("location", "http://127.0.0.1:1/".into())],
                body,
            );
            let server = ProviderServer::new(vec![answer]);
            let fault = ask_at(provider, server.url("/v1")).unwrap_err();
            assert_eq!(kind(&fault), Some(wanted), "{provider} {status}");
            let words = format!("{fault} {fault:?}");
            assert!(words.contains(status), "{words}");
            if provider != "compatible" {
                assert!(!words.contains(CANARY), "{provider} {status} repeats the key: {words}");
            }
        }
    }
}

#[test]
fn the_body_explains_what_a_status_does_not() {
    for body in [
        r#"{"error": {"code": "insufficient_quota", "message": "x"}}"#,
        r#"{"error": {"type": "rate_limit_error", "message": "x", "details": {"error_code": "enforced_spend_limit_reached"}}}"#,
    ] {
        let server = ProviderServer::new(vec![CannedReply::Says(429, vec![], body.to_owned())]);
        let fault = ask_at("openai", server.url("/v1")).unwrap_err();
        assert!(matches!(fault, DraftFault::Auth(_)), "{fault:?}");
    }
    let filtered = r#"{"error": {"code": "content_filter", "message": "x"}}"#;
    let server = ProviderServer::new(vec![CannedReply::Says(400, vec![], filtered.to_owned())]);
    assert!(matches!(ask_at("openai-chat", server.url("/v1")), Err(DraftFault::Refused(_))));
    let invalid = r#"{"error": {"code": 400, "message": "API key not valid", "details": [{"reason": "API_KEY_INVALID"}]}}"#;
    let server = ProviderServer::new(vec![CannedReply::Says(400, vec![], invalid.to_owned())]);
    assert!(matches!(ask_at("gemini", server.url("/v1")), Err(DraftFault::Auth(_))));
}

#[test]
fn the_servers_delay_is_read() {
    for (status, header, value, millis) in [
        (429, "retry-after", "7", Some(7000)),
        (529, "retry-after", "2", Some(2000)),
        (503, "retry-after", "Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
        (503, "retry-after", "later", None),
    ] {
        let headers = vec![(header, value.to_owned())];
        let server = ProviderServer::new(vec![CannedReply::Says(status, headers, "{}".to_owned())]);
        let fault = ask_at("anthropic", server.url("/v1")).unwrap_err();
        assert_eq!(fault.retry_after(), millis.map(Duration::from_millis), "{fault:?}");
    }
}

#[test]
fn a_malformed_reply_is_reported_and_ends_the_call() {
    let json = |text: &str| CannedReply::Says(200, vec![], text.to_owned());
    for (what, answer, wanted) in [
        (
            "a page",
            CannedReply::Says(
                200,
                vec![("content-type", "text/html".into())],
                "<html><h1>Welcome</h1>".into(),
            ),
            "a page instead of JSON",
        ),
        (
            "an error page",
            CannedReply::Says(502, vec![], "<html>Bad gateway</html>".into()),
            "502: <html>Bad gateway</html>",
        ),
        ("half of it", CannedReply::Breaks, "cannot be reached"),
        ("nothing", CannedReply::Raw(Vec::new()), "cannot be reached"),
        ("no HTTP", CannedReply::Raw(b"SSH-2.0-OpenSSH_9.0\r\n\r\n".to_vec()), "cannot be reached"),
        ("bad JSON", json("{\"choices\": [}"), "text instead of JSON"),
        ("deep JSON", json(&"[".repeat(100_000)), "text instead of JSON"),
        ("empty JSON", json(""), "nothing instead of JSON"),
        ("another shape", json("{\"hello\": 1}"), "has no choices"),
        ("10 MB", CannedReply::Floods(10 * 1024 * 1024), "more than 8388608 bytes"),
        (
            "a long header",
            CannedReply::Raw([b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'x'; 200_000]].concat()),
            "cannot be reached",
        ),
    ] {
        let server = ProviderServer::new(vec![answer]);
        let fault = bare(ask_at("openai-chat", server.url("/v1")).unwrap_err());
        let is_down = matches!(fault, DraftFault::Unavailable(_) | DraftFault::Overloaded { .. });
        assert!(is_down, "{what}: {fault:?}");
        let words = fault.to_string();
        assert!(words.contains(wanted), "{what}: {words}");
    }
}

#[test]
fn an_address_without_a_listener_is_reported() {
    // A server that does not speak TLS: the handshake fails, and nothing is sent in the clear.
    let server = ProviderServer::new(vec![CannedReply::Silent]);
    let fault = ask_at("openai", server.url("/v1").replace("http:", "https:")).unwrap_err();
    assert!(matches!(&fault, DraftFault::Unavailable(_)), "{fault:?}");
    assert!(server.requests().is_empty());
    let fault = ask_at("compatible", "http://127.0.0.1:1/v1".to_owned()).unwrap_err();
    assert!(
        matches!(&fault, DraftFault::Unavailable(words) if words.contains("cannot be reached")),
        "{fault:?}"
    );
}

/// The limit holds for the whole exchange, not for each byte of it.
#[test]
fn a_slow_service_is_left_at_the_limit() {
    for answer in [CannedReply::Drips, CannedReply::Silent] {
        let server = ProviderServer::new(vec![answer.clone()]);
        let provider = make(&options("compatible", server.url("/v1"))).unwrap();
        let limit = Duration::from_millis(300);
        let began = Instant::now();
        let fault = ask(provider.as_ref(), limit, false).unwrap_err();
        assert_eq!(fault, DraftFault::TimedOut(limit), "{answer:?}");
        assert!(began.elapsed() >= limit && began.elapsed() < PATIENT, "{answer:?}");
        server.wait_closed();
    }
}

/// A caller that gives up is free at once, and the service is left: nothing goes on being written and paid for.
#[test]
fn a_cancelled_request_ends_soon_and_closes_its_connection() {
    for answer in [CannedReply::Drips, CannedReply::Silent] {
        let server = ProviderServer::new(vec![answer]);
        let provider = make(&options("compatible", server.url("/v1"))).unwrap();
        let cancellation = Cancellation::default();
        let waiting = std::thread::spawn({
            let cancellation = cancellation.clone();
            move || ask_until(provider.as_ref(), PATIENT, false, &cancellation)
        });
        server.request();
        cancellation.cancel();
        let cancelled = Instant::now();
        assert_eq!(waiting.join().unwrap(), Err(DraftFault::Cancelled));
        assert!(cancelled.elapsed() < PATIENT / 2, "{:?}", cancelled.elapsed());
        server.wait_closed();
    }
}

#[test]
fn redirects_are_not_followed() {
    let elsewhere = ProviderServer::new(vec![CannedReply::Says(200, vec![], "{}".to_owned())]);
    let to = elsewhere.url("/v1/chat/completions");
    let server = ProviderServer::new(vec![CannedReply::Says(
        308,
        vec![("location", to.clone())],
        String::new(),
    )]);
    let fault = ask_at("openai-chat", server.url("/v1")).unwrap_err();
    assert!(matches!(&fault, DraftFault::Rejected(words) if words.contains(&to)), "{fault:?}");
    assert!(elsewhere.requests().is_empty(), "the key went elsewhere");
}
