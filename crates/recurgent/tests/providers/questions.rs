//! Questions about data: how each service is asked, and what is read.

use lifecycle::dialect::Language;
use lifecycle::draft::{Draft, DraftFault};
use lifecycle::prompt::Prompt;
use lifecycle::request::{Method, Role};
use recurgent::Cancellation;
use recurgent::provider::{DraftRequest, ProgressListener, Provider, make};
use serde_json::{Value, json};

use super::server::{CannedReply, ProviderServer};
use super::wires::{good, payload, says};
use super::{PATIENT, bare, options};

fn schema() -> Value {
    json!({"type": "object", "required": ["answer"], "additionalProperties": false,
           "properties": {"answer": {"type": "string", "enum": ["bug", "praise"]}}})
}

fn infer(provider: &dyn Provider) -> Result<Draft, DraftFault> {
    let (role, method) = (Role::parse("triage").unwrap(), Method::parse("topic").unwrap());
    let prompt = Prompt {
        system: "You answer one question.".to_owned(),
        user: "question: \"Which topic?\"\ndata: \"It crashed\"\n".to_owned(),
        head: None,
    };
    let request = DraftRequest {
        role: &role,
        method: &method,
        language: Language::Python,
        model: "auto",
        timeout: PATIENT,
        max_output_tokens: None,
        is_retry: false,
        sample: 0,
        seed: 0,
        cancellation: &Cancellation::default(),
        progress: ProgressListener::default(),
    };
    provider.infer(&prompt, Some(&schema()), &request)
}

/// A good answer of a service, with this text in place of a program.
fn answering(provider: &str, text: &str) -> CannedReply {
    let program = Value::String(payload().to_string()).to_string();
    let body =
        good(provider).to_string().replace(&program, &Value::String(text.to_owned()).to_string());
    says(&serde_json::from_str(&body).unwrap())
}

#[test]
fn every_service_is_given_the_schema_of_the_answer() {
    for (name, at) in [
        ("anthropic", "/output_config/format/schema"),
        ("openai", "/text/format/schema"),
        ("openai-chat", "/response_format/json_schema/schema"),
        ("compatible", "/response_format/json_schema/schema"),
        ("gemini", "/generationConfig/responseJsonSchema"),
    ] {
        let server = ProviderServer::new(vec![answering(name, "{\"answer\": \"bug\"}")]);
        let provider = make(&options(name, server.url("/v1"))).unwrap();
        let draft = infer(provider.as_ref()).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(draft.payload, json!({"answer": "bug"}), "{name}");
        assert_eq!(draft.usage.output_tokens, 20, "{name}");
        let body = server.request().body;
        assert_eq!(body.pointer(at), Some(&schema()), "{name}: {body:#}");
        let sent = body.to_string();
        assert!(sent.contains("It crashed") && !sent.contains("write_program"), "{name}: {sent}");
        assert!(!sent.contains("\"strict\":true"), "{name}: a program may ask for any answer");
        assert!(provider.is_local(), "the server is on loopback");
    }
}

#[test]
fn a_server_that_refuses_one_schema_is_asked_in_words_and_programs_are_asked_for_as_before() {
    let refuses =
        || CannedReply::Says(400, vec![], json!({"error": "unsupported json_schema"}).to_string());
    let refuses_object =
        || CannedReply::Says(400, vec![], json!({"error": "no response_format"}).to_string());
    let server = ProviderServer::new(vec![
        refuses(),
        refuses_object(),
        answering("compatible", "Here: {\"answer\": \"bug\"}"),
        answering("compatible", "{\"answer\": \"praise\"}"),
        says(&good("compatible")),
    ]);
    let provider = make(&options("compatible", server.url("/v1"))).unwrap();
    for topic in ["bug", "praise"] {
        assert_eq!(infer(provider.as_ref()).unwrap().payload["answer"], topic);
    }
    super::ask(provider.as_ref(), PATIENT, false).unwrap();
    let asked: Vec<bool> =
        server.requests().iter().map(|it| it.body.get("response_format").is_some()).collect();
    assert_eq!(
        asked,
        [true, true, false, false, true],
        "what is refused of a question says nothing of programs"
    );
}

#[test]
fn an_answer_without_an_answer_is_malformed_and_paid_for() {
    let server = ProviderServer::new(vec![answering("openai-chat", "I cannot say.")]);
    let provider = make(&options("openai-chat", server.url("/v1"))).unwrap();
    let fault = infer(provider.as_ref()).unwrap_err();
    assert!(
        matches!(&fault, DraftFault::Charged(_, usage) if usage.output_tokens == 20),
        "{fault:?}"
    );
    assert!(matches!(bare(fault), DraftFault::Malformed(_)));
}
