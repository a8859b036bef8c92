//! Which service is chosen, and which keys it is given.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use recurgent::config::Config;
use recurgent::provider::{ProviderChoice, ProviderFault, ProviderOptions, Secret, choose, make};

use super::CANARY;
use super::server::{CannedReply, ProviderServer};

fn given(
    provider: &str,
    model: &str,
    base_url: Option<&str>,
    keys: &[&'static str],
) -> ProviderOptions {
    ProviderOptions {
        provider: provider.parse().unwrap(),
        model: model.parse().unwrap(),
        base_url: base_url.map(|address| address.parse().unwrap()),
        keys: keys.iter().map(|name| (*name, Secret::new(CANARY))).collect(),
        ..ProviderOptions::default()
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of choices")]
fn a_service_is_chosen_by_name_address_model_and_key() {
    const ALL: &[&str] = &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"];
    let local = Some("http://127.0.0.1:8080/v1/");
    for (provider, model, base_url, keys, chosen) in [
        ("auto", "auto", None, &[][..], "none"),
        ("auto", "my-own-model", None, ALL, "none"),
        (
            "auto",
            "auto",
            None,
            ALL,
            "anthropic claude-sonnet-5-5 https://api.anthropic.com/v1 ANTHROPIC_API_KEY",
        ),
        (
            "auto",
            "auto",
            None,
            &ALL[1..],
            "openai gpt-6.1-terra https://api.openai.com/v1 OPENAI_API_KEY",
        ),
        (
            "auto",
            "auto",
            None,
            &ALL[2..],
            "gemini gemini-3.8-flash https://generativelanguage.googleapis.com/v1beta GEMINI_API_KEY",
        ),
        (
            "auto",
            "ft:gpt-4.1:us::1",
            None,
            ALL,
            "openai ft:gpt-4.1:us::1 https://api.openai.com/v1 OPENAI_API_KEY",
        ),
        ("auto", "gpt-4.1", None, ALL, "openai gpt-4.1 https://api.openai.com/v1 OPENAI_API_KEY"),
        (
            "auto",
            "gemini-2.0",
            None,
            &ALL[..1],
            "gemini gemini-2.0 https://generativelanguage.googleapis.com/v1beta none",
        ),
        ("auto", "gpt-4.1", local, ALL, "compatible gpt-4.1 http://127.0.0.1:8080/v1 none"),
        (
            "openai-chat",
            "auto",
            local,
            ALL,
            "openai-chat gpt-6.1-terra http://127.0.0.1:8080/v1 OPENAI_API_KEY",
        ),
        (
            "anthropic",
            "auto",
            None,
            &[],
            "anthropic claude-sonnet-5-5 https://api.anthropic.com/v1 none",
        ),
    ] {
        let found = match choose(&given(provider, model, base_url, keys)).unwrap() {
            ProviderChoice::Service(service) => format!(
                "{} {} {} {}",
                service.wire.name,
                service.model,
                service.base_url,
                service.key_source.as_deref().unwrap_or("none")
            ),
            ProviderChoice::None { .. } => "none".to_owned(),
            other @ (ProviderChoice::Scripted(_)
            | ProviderChoice::Replay(_)
            | ProviderChoice::Embedded(_)) => format!("{other:?}"),
        };
        assert_eq!(found, chosen, "{provider} {model} {base_url:?} {keys:?}");
    }
}

/// What is chosen when no service is configured.
#[test]
fn a_server_of_this_machine_comes_before_an_installed_model() {
    let list = r#"{"data":[{"id":"llama3"},{"id":"my-coder"}]}"#;
    let lists = || CannedReply::Says(200, vec![], list.to_owned());
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models");
    let mut config = Config::defaults();
    config.set("models_dir", models.to_str().unwrap()).unwrap();
    config.set("local_servers", "").unwrap();
    let chosen = |config: &Config| match choose(&config.provider_options().unwrap()).unwrap() {
        ProviderChoice::Service(service) => format!("{} {}", service.wire.name, service.model),
        ProviderChoice::Embedded(model) => format!("embedded {}", model.name),
        ProviderChoice::None { why } => why,
        ProviderChoice::Scripted(_) | ProviderChoice::Replay(_) => "a file".to_owned(),
    };
    assert!(chosen(&config).contains("recurgent model install --yes"));
    fs::create_dir(&models).unwrap();
    fs::write(models.join("own.gguf"), "GGUF").unwrap();
    assert_eq!(chosen(&config), "embedded own");
    // A port where nothing listens, and one where something else than a model server does.
    let other = ProviderServer::new(vec![CannedReply::Says(200, vec![], "<html>".to_owned())]);
    let port = |server: &ProviderServer| server.url("").rsplit(':').next().unwrap().to_owned();
    config.set("local_servers", &format!("1, {}", port(&other))).unwrap();
    assert_eq!(chosen(&config), "embedded own");
    let server = ProviderServer::new(vec![lists(), lists(), lists(), lists()]);
    config.set("local_servers", &port(&server)).unwrap();
    assert_eq!(chosen(&config), "compatible my-coder");
    config.set("model", "llama3").unwrap();
    assert_eq!(chosen(&config), "compatible llama3");
    config.set("model", "own").unwrap();
    assert_eq!(chosen(&config), "embedded own", "the server does not have it");
    config.set("model", models.join("own.gguf").to_str().unwrap()).unwrap();
    assert_eq!(chosen(&config), "embedded own");
    config.set("model", "auto").unwrap();
    config.set("provider", "embedded").unwrap();
    assert_eq!(chosen(&config), "embedded own");
    config.set("model", "other").unwrap();
    assert!(chosen(&config).contains("the model other is not installed"));
}

/// The settings are checked when they are read, before anything is chosen.
#[test]
fn a_setting_that_cannot_be_chosen_is_refused() {
    for (key, text, words) in [
        ("provider", "openia", "must be auto, anthropic, openai"),
        ("provider", "file:x", "must be auto, anthropic, openai"),
        ("model", "../../x", "must be auto or a model name"),
        ("model", "a b", "must be auto or a model name"),
        ("model", "", "must be auto or a model name"),
        ("base_url", "127.0.0.1:80", "must be http://HOST"),
        ("base_url", "ftp://x/", "must be http://HOST"),
        ("base_url", "http://u:hunter2@x/v1", "must be http://HOST"),
        ("base_url", "http://x/?key=hunter2", "must be http://HOST"),
        ("base_url", "http:// x", "must be http://HOST"),
        ("provider_proxy", "socks5://u:hunter2@127.0.0.1:1", "the address of a proxy"),
        ("provider_proxy", "ftp://127.0.0.1", "the address of a proxy"),
        ("provider_proxy", "http://", "the address of a proxy"),
        ("provider_proxy", "a b", "the address of a proxy"),
        ("installer_proxy", "a b", "the address of a proxy"),
        (
            "python_indexes",
            "https://u:hunter2@x/, gems.example",
            "`gems.example` is not an address",
        ),
        ("blocked_packages", "evil, numpy>=2", "`numpy>=2` is not one"),
    ] {
        let fault = Config::defaults().set(key, text).unwrap_err().to_string();
        assert!(fault.contains(key) && fault.contains(words), "{text}: {fault}");
        assert!(!fault.contains("hunter2"), "{fault}");
    }
}

/// A cost that is computed from half of a price would be wrong.
#[test]
fn a_price_without_the_other_is_refused() {
    for (set, missing) in [
        ("price_input_per_mtok", "price_output_per_mtok"),
        ("price_output_per_mtok", "price_input_per_mtok"),
        ("price_cached_per_mtok", "price_input_per_mtok"),
    ] {
        let mut config = Config::defaults();
        config.set(set, "1").unwrap();
        let fault = config.provider_options().unwrap_err().to_string();
        assert!(fault.contains(&format!("{set} is set and {missing} is not; set")), "{fault}");
    }
}

#[test]
fn an_impossible_choice_is_reported() {
    let fault = choose(&given("compatible", "m", None, &[])).unwrap_err();
    assert_eq!(fault, ProviderFault::Address);
    let keys = &["OPENAI_API_KEY"][..];
    for address in ["http://models.example/v1", "http://127.0.0.1.example/v1", "http://10.0.0.1:80"]
    {
        let fault = choose(&given("openai", "m", Some(address), keys)).unwrap_err();
        assert!(matches!(fault, ProviderFault::Unsafe(_)), "{address}: {fault}");
        choose(&given("compatible", "m", Some(address), &[])).unwrap();
    }
    for address in
        ["http://localhost:1/v1", "http://[::1]:1/v1", "http://127.9.9.9", "https://x/v1"]
    {
        choose(&given("openai", "m", Some(address), keys)).unwrap();
    }
}

#[test]
fn a_key_file_is_for_its_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let mut options = given("openai", "m", None, &["OPENAI_API_KEY"]);
    options.api_key_file = Some(path.clone());
    assert!(choose(&options).unwrap_err().to_string().contains("No such file"));
    for (mode, text, problem) in [
        (0o644, CANARY, Some("chmod 600")),
        (0o640, CANARY, Some("chmod 600")),
        (0o600, "", Some("must hold the key")),
        (0o600, "two words", Some("must hold the key")),
        (0o600, CANARY, None),
        (0o400, "  sk-file\n", None),
    ] {
        let _ = fs::remove_file(&path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        match (choose(&options), problem) {
            (Ok(ProviderChoice::Service(service)), None) => {
                assert_eq!(service.key_source, Some(path.display().to_string()));
            }
            (Err(fault), Some(words)) => {
                assert!(fault.to_string().contains(words), "{fault}");
                assert!(!fault.to_string().contains(CANARY), "{fault}");
            }
            (other, _) => panic!("{mode:o} {text:?}: {other:?}"),
        }
    }
    assert!(
        choose(&ProviderOptions { api_key_file: Some(directory.path().to_owned()), ..options })
            .is_err()
    );
}

#[test]
fn a_text_that_no_header_can_carry_is_not_a_key() {
    for key in ["", "two words", "line\nend", "schlüssel"] {
        let mut options = given("openai", "m", None, &[]);
        options.keys.insert("OPENAI_API_KEY", Secret::new(key));
        let fault = choose(&options).unwrap_err();
        assert_eq!(fault, ProviderFault::Key("OPENAI_API_KEY"));
    }
}

#[test]
fn nothing_shows_a_key() {
    let mut options = given("openai", "m", None, &["OPENAI_API_KEY"]);
    options.proxy = Some(format!("http://user:{CANARY}@proxy.example").parse().unwrap());
    let shown =
        format!("{options:?} {:?} {:?}", choose(&options).unwrap(), make(&options).unwrap());
    assert!(!shown.contains("canary"), "{shown}");
}
