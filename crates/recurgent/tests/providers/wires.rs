//! Each wire: what is sent, what is read.

use std::fs;
use std::path::PathBuf;

use lifecycle::draft::{DraftFault, Usage};
use recurgent::provider::{Price, Prices, make, service_names};
use serde_json::{Value, json};

use super::server::{CannedReply, ProviderServer, Request};
use super::{CANARY, PATIENT, ask, ask_at, bare, options};

/// A program, as every service would return it.
const CODE: &str = "result = args[0]";

pub(crate) fn payload() -> Value {
    json!({"code": CODE, "dependencies": []})
}

pub(crate) fn says(body: &Value) -> CannedReply {
    CannedReply::Says(200, vec![("content-type", "application/json".to_owned())], body.to_string())
}

/// A good answer of each wire, and what it says it used.
pub(crate) fn good(provider: &str) -> Value {
    let text = payload().to_string();
    match provider {
        "anthropic" => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{"type": "thinking", "thinking": "{\"code\": \"wrong\"}", "signature": "s"}, {"type": "text", "text": text}],
            "usage": {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 85, "output_tokens": 20},
        }),
        "openai" => json!({
            "id": "resp_1", "object": "response", "status": "completed", "incomplete_details": null,
            "output": [
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "message", "id": "m", "role": "assistant", "status": "completed",
                 "content": [{"type": "output_text", "text": text, "annotations": []}]},
            ],
            "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 85}, "output_tokens": 20},
        }),
        "gemini" => json!({
            "candidates": [{"finishReason": "STOP", "index": 0, "content": {"role": "model", "parts": [
                {"thought": true, "text": "thinking {\"code\": \"wrong\"}"}, {"text": text}]}}],
            "usageMetadata": {"promptTokenCount": 100, "cachedContentTokenCount": 85, "candidatesTokenCount": 12, "thoughtsTokenCount": 8},
        }),
        _ => json!({
            "id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": text, "refusal": null}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 85}},
        }),
    }
}

/// Holds a request against the schema of its service and the snapshot of what we mean to send.
fn check(provider: &str, path: &str, key_header: Option<(&str, &str)>) {
    let server = ProviderServer::new(vec![says(&good(provider))]);
    let draft = ask_at(provider, server.url("/v1")).unwrap();
    assert_eq!(draft.payload, payload(), "{provider}");
    let used = Usage {
        input_tokens: 100,
        output_tokens: 20,
        cached_tokens: 85,
        cache_written_tokens: if provider == "anthropic" { 5 } else { 0 },
        cost: None,
    };
    assert_eq!(draft.usage, used, "{provider}");
    let request = server.request();
    assert_eq!(request.line, format!("POST {path} HTTP/1.1"));
    check_headers(provider, &request, key_header);
    check_body(provider, provider, &request.body);
}

fn check_headers(provider: &str, request: &Request, key_header: Option<(&str, &str)>) {
    assert_eq!(request.header("content-type"), Some("application/json"), "{provider}");
    let agent = request.header("user-agent").unwrap();
    assert!(agent.starts_with("recurgent/"), "{agent}");
    for (name, value) in &request.headers {
        match key_header {
            Some((key, with)) if key == name => assert_eq!(*value, with.replace("KEY", CANARY)),
            _ => assert!(!value.contains(CANARY), "{provider}: {name} holds the key"),
        }
    }
    if let Some((key, _)) = key_header {
        assert!(request.header(key).is_some(), "{provider}: no {key}");
    }
}

/// `snapshot` is the provider's name, or that and how it is asked for JSON.
fn check_body(provider: &str, snapshot: &str, body: &Value) {
    assert!(!body.to_string().contains(CANARY));
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(file("schemas", provider)).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&serde_json::to_standard(&schema)).unwrap();
    let problems: Vec<String> =
        validator.iter_errors(&serde_json::to_standard(body)).map(|e| e.to_string()).collect();
    assert!(problems.is_empty(), "{snapshot}: {problems:?}");
    compare(snapshot, body);
}

fn file(folder: &str, name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/providers");
    root.join(folder).join(format!("{name}.json"))
}

fn compare(name: &str, body: &Value) {
    let text = format!("{body:#}\n");
    let path = file("snapshots", name);
    #[expect(
        clippy::disallowed_methods,
        reason = "the variable that makes this test write its results"
    )]
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, text, "{name} is sent otherwise; if that was meant: UPDATE_SNAPSHOTS=1");
}

/// Every service is asked once. A compatible server gets no key meant for others.
#[test]
fn every_service_is_asked_as_its_documentation_says() {
    for provider in service_names().split(", ") {
        match provider {
            "anthropic" => check(provider, "/v1/messages", Some(("x-api-key", "KEY"))),
            "openai" => check(provider, "/v1/responses", Some(("authorization", "Bearer KEY"))),
            "openai-chat" => {
                check(provider, "/v1/chat/completions", Some(("authorization", "Bearer KEY")));
            }
            "compatible" => check(provider, "/v1/chat/completions", None),
            "gemini" => {
                let path = "/v1/models/test-model:generateContent";
                check(provider, path, Some(("x-goog-api-key", "KEY")));
            }
            other => panic!("the tests have no exchange of {other}"),
        }
    }
}

#[test]
fn anthropic_needs_its_version_header() {
    let server = ProviderServer::new(vec![says(&good("anthropic"))]);
    ask_at("anthropic", server.url("/v1")).unwrap();
    assert_eq!(server.request().header("anthropic-version"), Some("2023-06-01"));
}

/// A model that knows no schemas of answers is given a tool it must use, and it is remembered for that model.
#[test]
fn anthropic_falls_back_to_a_tool() {
    let mut used = good("anthropic");
    used["stop_reason"] = json!("tool_use");
    used["content"] =
        json!([{"type": "tool_use", "id": "t", "name": "write_program", "input": payload()}]);
    let refusal = r#"{"type": "error", "error": {"type": "invalid_request_error", "message": "output_config.format: 'test-model' does not support structured outputs"}}"#;
    let server =
        ProviderServer::new(vec![CannedReply::Says(400, vec![], refusal.to_owned()), says(&used)]);
    assert_eq!(ask_at("anthropic", server.url("/v1")).unwrap().payload, payload());
    check_body("anthropic", "anthropic", &server.request().body);
    let request = server.request();
    check_headers("anthropic", &request, Some(("x-api-key", "KEY")));
    check_body("anthropic", "anthropic-tool", &request.body);
    ask_at("anthropic", server.url("/v1")).unwrap();
    assert_eq!(server.request().body["tool_choice"]["type"], "tool", "what it took is remembered");
    assert!(server.requests().is_empty());
}

/// What models say instead of a program: the service, the fault it is, the reply.
const NO_PROGRAMS: &str = r#"
anthropic Refused {"stop_reason": "refusal", "content": []}
anthropic Truncated {"stop_reason": "max_tokens", "content": [{"type": "tool_use", "input": {"code": "result = 1"}}]}
anthropic Truncated {"stop_reason": "model_context_window_exceeded", "content": []}
anthropic Malformed {"stop_reason": "end_turn", "content": [{"type": "text", "text": "Hello"}]}
anthropic Malformed {"stop_reason": "end_turn", "content": [{"type": "thinking", "thinking": "{\"code\": \"result = 1\"}"}]}
anthropic Truncated {"stop_reason": "max_tokens", "content": [{"type": "thinking", "thinking": "hm"}]}
anthropic Truncated {"stop_reason": "max_tokens", "content": [{"type": "text", "text": "{\"code\": \"result = 1\"}"}]}
anthropic Unavailable {"type": "message"}
openai Truncated {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
openai Refused {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": []}
openai Refused {"status": "completed", "output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}
openai Malformed {"status": "completed", "output": []}
openai Unavailable {"status": "failed", "error": {"code": "server_error", "message": "x"}}
openai RateLimited {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "x"}}
openai Unavailable [1, 2]
openai-chat Truncated {"choices": [{"finish_reason": "length", "message": {"content": "{\"code\": \"resu"}}]}
openai-chat Truncated {"choices": [{"finish_reason": "length", "message": {"content": "{\"code\": \"result = 1\"}"}}]}
openai-chat Refused {"choices": [{"finish_reason": "content_filter", "message": {"content": null}}]}
openai-chat Refused {"choices": [{"finish_reason": "stop", "message": {"content": null, "refusal": "no"}}]}
openai-chat Malformed {"choices": [{"finish_reason": "stop", "message": {"content": "I would rather not."}}]}
openai-chat Malformed {"choices": [{"finish_reason": "stop", "message": {"content": null}}]}
openai-chat Unavailable {"choices": []}
openai-chat Unavailable {"choices": [{"message": {}}]}
compatible RateLimited {"error": {"code": 429, "message": "x"}}
compatible Rejected {"error": {"code": 404, "message": "x"}, "choices": []}
compatible Overloaded {"error": {"code": "oops", "message": "x"}}
anthropic Overloaded {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}
gemini Refused {"promptFeedback": {"blockReason": "SAFETY"}}
gemini Refused {"candidates": [{"finishReason": "SAFETY"}]}
gemini Truncated {"candidates": [{"finishReason": "MAX_TOKENS"}]}
gemini Unavailable {"candidates": [{"finishReason": "STOP"}]}
gemini Unavailable {"candidates": []}
"#;

#[test]
fn refusals_truncations_and_nonsense_are_distinguished() {
    for line in NO_PROGRAMS.trim().lines() {
        let [provider, kind, body] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let server = ProviderServer::new(vec![says(&serde_json::from_str(body).unwrap())]);
        let fault = bare(ask_at(provider, server.url("/v1")).unwrap_err());
        assert!(format!("{fault:?}").starts_with(kind), "{line} gave {fault:?}");
    }
}

#[test]
fn a_bad_answer_is_paid_for_too() {
    let mut body = good("openai-chat");
    body["choices"][0]["finish_reason"] = json!("length");
    let server = ProviderServer::new(vec![says(&body)]);
    let mut options = options("openai-chat", server.url("/v1"));
    options.prices = Prices::new(Some(Price { input: 1.0, output: 10.0, cached: Some(0.1) }));
    let fault = ask(make(&options).unwrap().as_ref(), PATIENT, false).unwrap_err();
    let DraftFault::Charged(_, usage) = fault else { panic!("{fault:?}") };
    assert_eq!(usage.cost.unwrap().0, 15 * 1000 + 85 * 100 + 20 * 10_000);
}

#[test]
fn a_program_is_salvaged_from_prose() {
    let mut body = good("compatible");
    body["choices"][0]["message"]["content"] = json!(format!("Sure!\n```python\n{CODE}\n```\n"));
    let server = ProviderServer::new(vec![says(&body)]);
    let draft = ask_at("compatible", server.url("/v1")).unwrap();
    assert_eq!(draft.payload["code"], format!("{CODE}\n"));
}

#[test]
fn a_text_in_parts_is_put_together() {
    let mut body = good("compatible");
    let text = payload().to_string();
    let (start, end) = text.split_at(9);
    body["choices"][0]["message"]["content"] = json!([{"type": "text", "text": start}, {"type": "reference"}, {"type": "text", "text": end}]);
    let server = ProviderServer::new(vec![says(&body)]);
    assert_eq!(ask_at("compatible", server.url("/v1")).unwrap().payload, payload());
}

/// Servers that do not know a schema are asked more simply; what they refused is not asked for again.
#[test]
fn a_server_without_schemas_is_asked_more_simply() {
    let formats = |provider: &str, server: &ProviderServer| -> Vec<Value> {
        let requests = server.requests();
        let formats = requests.iter().map(|request| {
            let format = request.body["response_format"]["type"].clone();
            let snapshot = match format.as_str() {
                Some("json_object") => format!("{provider}-object"),
                Some(_) => provider.to_owned(),
                None => format!("{provider}-text"),
            };
            check_body(provider, &snapshot, &request.body);
            format
        });
        formats.collect()
    };
    for (provider, refusals, asked, next) in [
        (
            "compatible",
            vec![(
                400,
                "{\"error\": {\"message\": \"Unknown field response_format.json_schema\"}}",
            )],
            vec!["json_schema", "json_object"],
            "json_object",
        ),
        (
            "compatible",
            vec![(500, "[{'loc': ('body', 'response_format', 'type')}]")],
            vec!["json_schema", "json_object"],
            "json_object",
        ),
        // It failed, and did not say in what: the next call asks for all again.
        (
            "compatible",
            vec![(500, "{\"error\": {\"message\": \"Internal ProviderServer Error\"}}")],
            vec!["json_schema", "json_object"],
            "json_schema",
        ),
        (
            "compatible",
            vec![(422, "schema"), (500, "")],
            vec!["json_schema", "json_object", ""],
            "json_schema",
        ),
        (
            "compatible",
            vec![(422, "schema"), (400, "json_object is not supported")],
            vec!["json_schema", "json_object", ""],
            "",
        ),
        (
            "openai-chat",
            vec![(
                400,
                "{\"error\": {\"message\": \"Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model\"}}",
            )],
            vec!["json_schema", "json_object"],
            "json_object",
        ),
    ] {
        let refusals = refusals
            .into_iter()
            .map(|(status, body)| CannedReply::Says(status, vec![], body.to_owned()));
        let server = ProviderServer::new(refusals.chain([says(&good(provider))]).collect());
        ask_at(provider, server.url("/v1")).unwrap();
        let format = |kind: &str| if kind.is_empty() { json!(null) } else { json!(kind) };
        let wanted: Vec<Value> = asked.iter().map(|kind| format(kind)).collect();
        assert_eq!(formats(provider, &server), wanted);
        ask_at(provider, server.url("/v1")).unwrap();
        assert_eq!(formats(provider, &server), [format(next)], "after {asked:?}");
    }
}

#[test]
fn a_request_that_is_wrong_otherwise_is_not_asked_again() {
    let server = ProviderServer::new(vec![CannedReply::Says(
        400,
        vec![],
        "{\"error\": \"too many tokens\"}".to_owned(),
    )]);
    let fault = ask_at("compatible", server.url("/v1")).unwrap_err();
    assert!(
        matches!(&fault, DraftFault::Rejected(words) if words.contains("too many tokens")),
        "{fault:?}"
    );
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_retry_is_sampled_otherwise() {
    let server = ProviderServer::new(vec![says(&good("compatible"))]);
    let mut options = options("compatible", server.url("/v1"));
    let provider = make(&options).unwrap();
    for is_retry in [false, true] {
        ask(provider.as_ref(), PATIENT, is_retry).unwrap();
    }
    options.temperature = Some(0.3);
    options.retry_temperature = Some(1.1);
    let provider = make(&options).unwrap();
    for is_retry in [false, true] {
        ask(provider.as_ref(), PATIENT, is_retry).unwrap();
    }
    let sent: Vec<f64> = server
        .requests()
        .iter()
        .map(|request| request.body["temperature"].as_f64().unwrap())
        .collect();
    assert_eq!(sent, [0.0, 0.8, 0.3, 1.1]);
}
