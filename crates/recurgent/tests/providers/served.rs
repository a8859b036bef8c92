//! A server that is not one of the known services is asked for its models if none is named.

use lifecycle::draft::DraftFault;
use recurgent::provider::{ProviderChoice, ProviderOptions, Secret, choose, make};

use super::server::{CannedReply, ProviderServer, writes};
use super::{CANARY, PATIENT, ask, bare, options};

fn lists(names: &[&str]) -> CannedReply {
    let listed: Vec<String> = names.iter().map(|name| format!("{{\"id\": {name:?}}}")).collect();
    CannedReply::Says(200, vec![], format!("{{\"data\": [{}]}}", listed.join(", ")))
}

fn unnamed(server: &ProviderServer) -> ProviderOptions {
    let model = "auto".parse().unwrap();
    ProviderOptions { model, ..options("compatible", server.url("/v1")) }
}

#[test]
fn a_model_of_the_list_that_writes_is_asked_and_others_are_mentioned() {
    let program = || writes("result = 1", (1, 1));
    for (first, model, notice) in [
        (lists(&["qwen"]), "qwen", None),
        (
            lists(&["qwen", "llama", "phi"]),
            "qwen",
            Some("serves 3 models (qwen, llama, phi); qwen is asked"),
        ),
        (lists(&["../odd", "good"]), "good", None),
        (
            lists(&["nomic-embed-text", "llama", "qwen2.5-coder:7b"]),
            "qwen2.5-coder:7b",
            Some("qwen2.5-coder:7b is asked"),
        ),
        (lists(&["nomic-embed-text", "llama"]), "llama", Some("llama is asked")),
        (CannedReply::Says(404, vec![], "no such page".to_owned()), "default", None),
    ] {
        let server = ProviderServer::new(vec![first, program()]);
        let provider = make(&unnamed(&server)).unwrap();
        assert_eq!(provider.notice(), None, "nothing is asked before a program is needed");
        for _ in 0..2 {
            ask(provider.as_ref(), PATIENT, false).unwrap();
        }
        let lines: Vec<String> = server.requests().iter().map(|it| it.line.clone()).collect();
        let chat = "POST /v1/chat/completions HTTP/1.1";
        assert_eq!(lines, ["GET /v1/models HTTP/1.1", chat, chat], "it is asked once");
        assert_eq!(provider.model("auto"), model);
        let said = provider.notice();
        assert_eq!(said.is_some(), notice.is_some(), "{said:?}");
        assert!(said.unwrap_or_default().contains(notice.unwrap_or_default()), "{model}");
    }
}

#[test]
fn a_server_without_models_is_reported_with_what_to_do() {
    for (first, says) in [
        (lists(&[]), "lists no model; load one into the server, or name one with --model"),
        (CannedReply::Says(200, vec![], "{}".to_owned()), "lists no model"),
        (CannedReply::Says(401, vec![], "{}".to_owned()), "check the key"),
        (CannedReply::Says(200, vec![], "<html>".to_owned()), "a page instead of JSON"),
    ] {
        let server = ProviderServer::new(vec![first]);
        let provider = make(&unnamed(&server)).unwrap();
        let fault = bare(ask(provider.as_ref(), PATIENT, false).unwrap_err());
        assert!(fault.to_string().contains(says), "{fault}");
    }
    let gone = ProviderServer::new(vec![CannedReply::Says(503, vec![], "{}".to_owned())]);
    let provider = make(&unnamed(&gone)).unwrap();
    let fault = bare(ask(provider.as_ref(), PATIENT, false).unwrap_err());
    assert!(matches!(fault, DraftFault::Overloaded { .. }), "it is asked again: {fault:?}");
}

/// Variables that other tools read choose the service and its address; both say where they are from.
#[test]
fn addresses_of_the_environment_are_used() {
    let given = |provider: &str, addresses: &[(&'static str, &str)], keys: &[&'static str]| {
        let options = ProviderOptions {
            provider: provider.parse().unwrap(),
            addresses: addresses.iter().map(|(name, it)| (*name, it.parse().unwrap())).collect(),
            keys: keys.iter().map(|name| (*name, Secret::new(CANARY))).collect(),
            ..ProviderOptions::default()
        };
        match choose(&options).unwrap() {
            ProviderChoice::Service(service) => format!(
                "{} {} {} {}",
                service.wire.name,
                service.base_url,
                service.address_source.unwrap_or("usual"),
                service.key_source.as_deref().unwrap_or("none"),
            ),
            other @ (ProviderChoice::Scripted(_)
            | ProviderChoice::Replay(_)
            | ProviderChoice::Embedded(_)
            | ProviderChoice::None { .. }) => format!("{other:?}"),
        }
    };
    let local = ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1");
    let gateway = ("ANTHROPIC_BASE_URL", "https://gateway.example");
    let (openai, anthropic) = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY");
    for (provider, addresses, keys, expected) in [
        ("auto", &[local][..], &[][..], "compatible http://127.0.0.1:1/v1 OPENAI_BASE_URL none"),
        (
            "auto",
            &[local],
            &[openai],
            "compatible http://127.0.0.1:1/v1 OPENAI_BASE_URL OPENAI_API_KEY",
        ),
        (
            "openai",
            &[local],
            &[openai],
            "openai http://127.0.0.1:1/v1 OPENAI_BASE_URL OPENAI_API_KEY",
        ),
        ("compatible", &[local], &[], "compatible http://127.0.0.1:1/v1 OPENAI_BASE_URL none"),
        (
            "auto",
            &[gateway],
            &[anthropic],
            "anthropic https://gateway.example/v1 ANTHROPIC_BASE_URL ANTHROPIC_API_KEY",
        ),
        ("openai", &[gateway], &[openai], "openai https://api.openai.com/v1 usual OPENAI_API_KEY"),
    ] {
        assert_eq!(given(provider, addresses, keys), expected);
    }
}
