//! What a configuration may combine: a key and an address, a grant and Recurgent's own files.
#![cfg(test)]

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use recurgent::Runtime;
use recurgent::config::Config;
use recurgent::provider::Scripted;

fn read(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    fs::write(&file, text).unwrap();
    Config::from_file(&file).unwrap()
}

fn shown(config: &Config, name: &str) -> String {
    let (_, text, _) = config.entries().find(|(key, ..)| key.name == name).unwrap();
    text.to_owned()
}

/// The key of one service is never paired with the address of another.
#[test]
fn a_profile_replaces_the_one_that_the_file_names() {
    const WORK: &str = "[provider.work]\nprovider = \"anthropic\"\napi_key_file = \"/key\"\n";
    const LOCAL: &str = "[provider.local]\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    let service =
        |config: &Config| ["provider", "api_key_file", "base_url"].map(|name| shown(config, name));
    let work = ["anthropic", "/key", ""];
    let local = ["auto", "", "http://127.0.0.1:1/v1"];
    for (head, profile, expected) in [
        ("profile = \"work\"\n", "local", local),
        ("profile = \"local\"\n", "work", work),
        ("profile = \"work\"\n", "", ["auto", "", ""]),
        ("base_url = \"http://127.0.0.1:2/v1\"\n", "work", work),
    ] {
        let text = format!("{head}{WORK}{LOCAL}");
        let mut of_flag = read(&text);
        of_flag.set("profile", profile).unwrap();
        assert_eq!(service(&of_flag), expected, "{head} {profile}");
        of_flag.set("profile", "work").unwrap();
        assert_eq!(service(&of_flag), work, "{head} {profile}");
    }
}

/// A key that was set together with one address is not sent to another.
#[test]
fn a_key_stays_with_its_address() {
    const KEYED: &str = "base_url = \"http://127.0.0.1:1/v1\"\napi_key_file = \"/key\"\n";
    const NAMED: &str = "provider = \"anthropic\"\napi_key_file = \"/key\"\n";
    const OPEN: &str = "provider = \"compatible\"\napi_key_file = \"/key\"\n";
    let elsewhere = ("base_url", "http://127.0.0.1:2/v1");
    let own = ("api_key_file", "/other");
    for (file, set, is_refused) in [
        (KEYED, vec![], false),
        (KEYED, vec![elsewhere], true),
        (KEYED, vec![elsewhere, own], false),
        (KEYED, vec![elsewhere, ("provider", "embedded")], false),
        (NAMED, vec![], false),
        (NAMED, vec![elsewhere], true),
        (NAMED, vec![("provider", "openai")], true),
        (NAMED, vec![("provider", "scripted:/s.json")], false),
        (OPEN, vec![elsewhere], false),
    ] {
        let mut config = read(file);
        for (name, value) in &set {
            config.set(name, value).unwrap();
        }
        let fault = config.provider_options().err().map(|fault| fault.to_string());
        let is_said = fault.is_some_and(|text| text.contains("set together with another"));
        assert_eq!(is_said, is_refused, "{file} {set:?}");
    }
}

/// What a program could change there would hold for later calls: its own grants, the store, the log.
#[test]
fn a_grant_that_covers_the_runtimes_own_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
    for name in ["home/.config/recurgent", "home/.cache", "home/state", "home/project", "keys"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let key = at("keys/key");
    fs::write(&key, "sk").unwrap();
    symlink(root.join("home"), root.join("link")).unwrap();
    let file = root.join("home/.config/recurgent/config.toml");
    fs::write(&file, format!("[provider.work]\napi_key_file = \"{key}\"\n")).unwrap();
    let own = Some("Recurgent's own");
    let secret = Some("the key");
    for (setting, path, is_writable, says) in [
        ("workspace", at("home"), true, own),
        ("workspace", at("link"), true, own),
        ("workspace", at("home"), false, None),
        ("workspace", at("home/project"), true, None),
        ("workspace", at("keys"), false, secret),
        ("write_paths", at("home"), false, own),
        ("write_paths", at("link/.config"), false, own),
        ("write_paths", at("home/.config/recurgent/config.toml"), false, own),
        ("write_paths", at("home/state"), false, own),
        ("write_paths", at("home/state/recurgent.sqlite"), false, own),
        ("write_paths", at("home/.cache"), false, own),
        ("write_paths", at("log"), false, own),
        ("write_paths", at("home/project"), false, None),
        ("write_paths", at("keys"), false, secret),
        ("read_paths", at("home"), false, None),
        ("read_paths", at("keys"), false, secret),
        ("read_paths", key.clone(), false, secret),
    ] {
        let mut config = Config::from_file(&file).unwrap();
        for (name, value) in [
            ("state_dir", at("home/state")),
            ("cache_dir", at("home/.cache/recurgent")),
            ("log", at("log/recurgent.jsonl")),
            ("workspace_write", is_writable.to_string()),
            (setting, path.clone()),
        ] {
            config.set(name, &value).unwrap();
        }
        let built = Runtime::builder(config).provider(Arc::new(Scripted::new())).build();
        let said = built.err().map(|fault| fault.to_string());
        let is_as_expected = match (&said, says) {
            (Some(said), Some(says)) => said.contains(says) && said.contains("instead"),
            (said, says) => said.is_none() && says.is_none(),
        };
        assert!(is_as_expected, "{setting} {path} {is_writable}: {said:?}");
    }
}
