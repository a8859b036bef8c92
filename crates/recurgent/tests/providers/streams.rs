//! An answer in pieces is the same answer, and progress is reported while it comes.

use std::cell::RefCell;

use lifecycle::draft::{Draft, DraftFault};
use lifecycle::event::ModelProgress;
use recurgent::Cancellation;
use recurgent::provider::{ProgressListener, make};
use serde_json::{Value, json};

use super::server::{CannedReply, ProviderServer, Request};
use super::wires::{good, payload, says};
use super::{PATIENT, ask_at, ask_listening, bare, options};

/// Server-sent events, as the services write them.
fn events(events: &[Value]) -> CannedReply {
    let lines: String = events
        .iter()
        .map(|event| match event.get("type").and_then(Value::as_str) {
            Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
            None => format!("data: {event}\n\n"),
        })
        .collect();
    stream(lines)
}

fn stream(text: String) -> CannedReply {
    let kind = "text/event-stream; charset=utf-8".to_owned();
    CannedReply::Says(200, vec![("content-type", kind)], text)
}

/// The good answer of a service, in its pieces.
fn pieces(provider: &str) -> Vec<Value> {
    let whole = good(provider);
    let text = payload().to_string();
    let middle = text.len() / 2;
    let parts = [&text[..middle], &text[middle..]];
    match provider {
        "anthropic" => {
            let delta = |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
            let start = |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
            let mut usage = whole["usage"].clone();
            usage["output_tokens"] = json!(1);
            let mut message = whole.clone();
            message["content"] = json!([]);
            message["stop_reason"] = Value::Null;
            message["usage"] = usage;
            vec![
                json!({"type": "message_start", "message": message}),
                start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
                delta(0, json!({"type": "thinking_delta", "thinking": "{\"code\": \"wrong\"}"})),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "ping"}),
                start(1, json!({"type": "text", "text": ""})),
                delta(1, json!({"type": "text_delta", "text": parts[0]})),
                delta(1, json!({"type": "text_delta", "text": parts[1]})),
                json!({"type": "content_block_stop", "index": 1}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 20}}),
                json!({"type": "message_stop"}),
            ]
        }
        "openai" => vec![
            json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}),
            json!({"type": "response.output_text.delta", "output_index": 1, "delta": parts[0]}),
            json!({"type": "response.output_text.delta", "output_index": 1, "delta": parts[1]}),
            json!({"type": "response.completed", "response": whole}),
        ],
        _ => {
            let piece = |delta: Value, reason: Value| {
                json!({"id": "c", "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": null})
            };
            vec![
                piece(json!({"role": "assistant", "content": "", "refusal": null}), Value::Null),
                piece(json!({"content": parts[0]}), Value::Null),
                piece(json!({"content": parts[1]}), Value::Null),
                piece(json!({}), json!("stop")),
                json!({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": whole["usage"]}),
            ]
        }
    }
}

/// What a listener sees of one answer, and what was asked.
fn listen(
    provider: &str,
    replies: Vec<CannedReply>,
) -> (Result<Draft, DraftFault>, u64, Vec<Request>) {
    let server = ProviderServer::new(replies);
    let asked = make(&options(provider, server.url("/v1"))).unwrap();
    let seen = RefCell::new(0);
    let listener = |progress: ModelProgress| {
        if let ModelProgress::Writing { tokens } = progress {
            *seen.borrow_mut() = tokens;
        }
    };
    let answer = ask_listening(
        asked.as_ref(),
        (PATIENT, false),
        &Cancellation::default(),
        ProgressListener::new(&listener),
    );
    (answer, seen.into_inner(), server.requests())
}

const STREAMING: [&str; 4] = ["anthropic", "openai", "openai-chat", "compatible"];

#[test]
fn an_answer_in_pieces_is_the_same_answer() {
    for provider in STREAMING {
        let server = ProviderServer::new(vec![says(&good(provider))]);
        let whole = ask_at(provider, server.url("/v1")).unwrap();
        assert_eq!(server.request().body.get("stream"), None, "{provider}: not observed");

        let (joined, tokens, requests) = listen(provider, vec![events(&pieces(provider))]);
        let joined = joined.unwrap();
        assert_eq!((joined.payload, joined.usage), (whole.payload, whole.usage), "{provider}");
        assert!(tokens > 0, "{provider}: progress is reported");
        assert_eq!(requests[0].body["stream"], json!(true), "{provider}");
    }
}

#[test]
fn a_whole_answer_is_taken_from_a_service_that_knows_no_pieces() {
    for provider in STREAMING {
        let (whole, tokens, _) = listen(provider, vec![says(&good(provider))]);
        assert_eq!((whole.unwrap().payload, tokens), (payload(), 0), "{provider}");
    }
    // Google's form has another address for pieces, which is not used.
    let (whole, tokens, requests) = listen("gemini", vec![says(&good("gemini"))]);
    assert_eq!((whole.unwrap().payload, tokens), (payload(), 0));
    assert_eq!(requests[0].body.get("stream"), None);
}

#[test]
fn a_service_that_refuses_pieces_is_asked_for_the_whole() {
    for provider in STREAMING {
        let refusal = json!({"error": {"message": "Unsupported value: 'stream'", "type": "invalid_request_error", "param": "stream"}});
        let refused = CannedReply::Says(400, vec![], refusal.to_string());
        let (whole, _, requests) = listen(provider, vec![refused, says(&good(provider))]);
        assert_eq!(whole.unwrap().payload, payload(), "{provider}");
        let asked: Vec<bool> = requests.iter().map(|it| it.body.get("stream").is_some()).collect();
        assert_eq!(asked, [true, false], "{provider}");
    }
}

#[test]
fn pieces_that_end_early_are_no_answer() {
    for provider in STREAMING {
        let mut early = pieces(provider);
        let kept = early.len().saturating_sub(2);
        early.truncate(kept);
        for reply in [events(&early), stream(String::new()), stream("data: {\"ha".to_owned())] {
            let (answer, ..) = listen(provider, vec![reply]);
            let fault = bare(answer.unwrap_err());
            assert!(matches!(fault, DraftFault::Unavailable(_)), "{provider}: {fault:?}");
        }
    }
}

#[test]
fn an_error_among_the_pieces_is_a_fault() {
    let overloaded =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    for provider in STREAMING {
        let mut broken = pieces(provider);
        broken.truncate(2);
        broken.push(overloaded.clone());
        let (answer, ..) = listen(provider, vec![events(&broken)]);
        let fault = bare(answer.unwrap_err());
        assert!(fault.to_string().contains("verloaded"), "{provider}: {fault}");
    }
}
