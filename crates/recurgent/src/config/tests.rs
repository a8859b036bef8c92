//! Tests of the settings.

use std::time::Duration;

use lifecycle::attempt::Budgets;
use lifecycle::call::Policy;
use lifecycle::dialect::Language;
use lifecycle::guardrail::{GuardrailPolicy, Rule};
use lifecycle::request::Allowance;

use super::*;
use crate::grants::Network;
use crate::provider::ProviderSetting;

#[test]
fn later_layers_win_and_others_stay() {
    let mut config = Config::defaults();
    config
        .read_environment(&[
            ("RECURGENT_GUEST".into(), "ruby".into()),
            ("OTHER".into(), "x".into()),
        ])
        .unwrap();
    config.set("debug", "true").unwrap();
    let options = config.agent_options();
    assert_eq!((options.language, options.debug), (Language::Ruby, true));
    assert_eq!(options.budgets, Budgets::default());
    assert_eq!(options.allowance, Allowance::default());
    let longest_delay = config.settings().max_retry_delay_seconds;
    assert_eq!(longest_delay, Policy::default().max_retry_delay);
    let (_, _, origin) = config.entries().find(|(key, ..)| key.name == "guest").unwrap();
    assert_eq!(origin.to_string(), "RECURGENT_GUEST");
}

#[test]
fn a_variable_that_is_not_text_is_an_error_if_it_is_read() {
    use std::os::unix::ffi::OsStringExt as _;
    let odd = |text: &str| OsString::from_vec([text.as_bytes(), b"\xff"].concat());
    for (name, value, refused) in [
        ("RECURGENT_MODEL".into(), odd("m"), Some("RECURGENT_MODEL")),
        ("ANTHROPIC_API_KEY".into(), odd("sk-canary"), Some("ANTHROPIC_API_KEY")),
        (odd("RECURGENT_M"), "m".into(), Some("RECURGENT_M\u{fffd}")),
        ("OTHER".into(), odd("m"), None),
        (odd("OTHER"), "m".into(), None),
        ("RECURGENT_CONFIG".into(), odd("/folder"), None),
    ] {
        let read = Config::defaults().read_environment(&[(name, value)]);
        let said = read.err().map(|fault| fault.to_string());
        let expected = refused.map(|name| {
            format!(
                "the environment variable {name} is not valid UTF-8; set it to text, or unset it"
            )
        });
        assert_eq!(said, expected);
    }
}

#[test]
fn a_list_in_the_file_is_a_list_of_whatever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let text = "read_paths = [\"/one\", \"/two\"]\nblocked_gems = [\"a\", \"b\"]\n";
    std::fs::write(&file, text).unwrap();
    let mut config = Config::defaults();
    config.read_file(&file).unwrap();
    let read = config.agent_options().grants.read;
    assert_eq!(read, [Path::new("/one"), Path::new("/two")]);
    let blocked = config.dependency_policy(Language::Ruby).blocked;
    assert_eq!(blocked.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "b"]);
    std::fs::write(&file, "read_path = []").unwrap();
    let fault = config.read_file(&file).unwrap_err().to_string();
    assert!(fault.contains("did you mean `read_paths`?"), "{fault}");
}

#[test]
fn a_list_keeps_its_items_whatever_is_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, "read_paths = [\"/a:b\", \"/c\"]\nlocal_servers = [8080, \"1234\"]\n")
        .unwrap();
    let mut config = Config::defaults();
    config.read_file(&file).unwrap();
    let expected = [PathBuf::from("/a:b"), PathBuf::from("/c")];
    assert_eq!(config.settings().read_paths, expected);
    assert_eq!(config.settings().local_servers, [8080, 1234]);
    // What `recurgent config` shows can be given to a flag or a variable.
    let (_, shown, _) = config.entries().find(|(key, ..)| key.name == "read_paths").unwrap();
    let mut again = Config::defaults();
    again.set("read_paths", shown).unwrap();
    assert_eq!(again.settings().read_paths, expected, "{shown}");
    again.set_list("write_paths", vec!["/a:b".to_owned()]).unwrap();
    assert_eq!(again.settings().write_paths, [PathBuf::from("/a:b")]);
    let layer = SettingsLayer { read_paths: Some(expected.to_vec()), ..SettingsLayer::default() };
    assert_eq!(Config::defaults().with(&layer).unwrap().settings().read_paths, expected);
}

#[test]
fn a_value_of_the_file_has_the_type_of_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    for (text, says) in [
        ("uv = false", "`uv`"),
        ("state_dir = 3", "must be a text in quotes, not \"3\""),
        ("guest = [\"ruby\"]", "must be one value, without brackets, not \"ruby\""),
        ("base_url = true", "must be a text in quotes"),
        ("read_paths = [[\"/a\"]]", "a list of texts or numbers"),
    ] {
        std::fs::write(&file, text).unwrap();
        let fault = Config::defaults().read_file(&file).unwrap_err().to_string();
        assert!(fault.contains(says), "{text}: {fault}");
    }
    for (text, expected) in [
        ("log = false", LogTarget::Off),
        ("log = \"off\"", LogTarget::Off),
        ("log = true", LogTarget::StateDir),
        ("log = \"./false\"", LogTarget::File("./false".into())),
    ] {
        std::fs::write(&file, text).unwrap();
        let mut config = Config::defaults();
        config.read_file(&file).unwrap();
        assert_eq!(config.settings().log, expected, "{text}");
    }
}

/// What a program sets has the bounds of texts, whatever its type allows.
#[test]
fn typed_values_are_checked_like_texts() {
    use std::os::unix::ffi::OsStringExt as _;
    let none = SettingsLayer::default;
    let odd = PathBuf::from(OsString::from_vec(b"/\xff".to_vec()));
    for (layer, says) in [
        (SettingsLayer { execution_timeout_seconds: Some(Duration::ZERO), ..none() }, "above 0"),
        (SettingsLayer { worker_memory_mb: Some(1), ..none() }, "from 64"),
        (SettingsLayer { temperature: Some(Some(f64::NAN)), ..none() }, "from 0 to 2"),
        (SettingsLayer { max_generation_attempts: Some(0), ..none() }, "from 1"),
        (SettingsLayer { local_servers: Some(vec![0]), ..none() }, "from 1 to 65535"),
        (SettingsLayer { workspace: Some(Some("/nonesuch".into())), ..none() }, "that exists"),
        (SettingsLayer { state_dir: Some(Some(odd.clone())), ..none() }, "valid UTF-8"),
        (SettingsLayer { read_paths: Some(vec![odd]), ..none() }, "valid UTF-8"),
    ] {
        let fault = Config::defaults().with(&layer).unwrap_err().to_string();
        assert!(fault.contains("(code)") && fault.contains(says), "{fault}");
    }
    let layer = SettingsLayer { read_paths: Some(vec!["data".into()]), ..none() };
    let config = Config::defaults().with(&layer).unwrap();
    assert!(config.settings().read_paths.iter().all(|path| path.is_absolute()));
}

/// Odd values of every type: each is taken as it is, or refused.
#[test]
#[expect(clippy::large_stack_arrays, reason = "the cases of a test")]
fn typed_values_are_what_they_are() {
    use SettingsLayer as S;
    use std::os::unix::ffi::OsStringExt as _;
    let none = SettingsLayer::default;
    let odd = || PathBuf::from(OsString::from_vec(b"/\xff".to_vec()));
    let gem = PackageName::parse(Language::Ruby, "a-b_c").unwrap();
    let socks = crate::provider::ProxyAddress::parse("socks5://127.0.0.1:1").unwrap();
    let log = |file: &str| S { log: Some(LogTarget::File(file.into())), ..none() };
    let mirror =
        |path: &str| S { model_mirror: Some(Some(ModelMirror::Path(path.into()))), ..none() };
    let hosts = |hosts: &[&str]| S {
        network: Some(Network::Hosts(hosts.iter().map(|&host| host.to_owned()).collect())),
        ..none()
    };
    for kept in [
        log("off"),
        log("Off"),
        log("true"),
        mirror("models"),
        hosts(&["a.example", "[::1]:80"]),
        S { uv: Some(Some("off".into())), ..none() },
        S { profile: Some(String::new()), ..none() },
        S { provider: Some(ProviderSetting::Scripted("a:b, c".into())), ..none() },
        S { read_paths: Some(vec!["/a:b".into(), "/[c".into(), "/d, e".into()]), ..none() },
        S { execution_timeout_seconds: Some(Duration::from_nanos(1)), ..none() },
        S { max_tree_seconds: Some(Some(Duration::ZERO)), ..none() },
        S { max_tree_tokens: Some(Some(u64::MAX)), ..none() },
        S { temperature: Some(Some(-0.0)), ..none() },
        S { installer_proxy: Some(Some(socks.clone())), ..none() },
        S { blocked_gems: Some(vec![gem.clone()]), ..none() },
        S { local_servers: Some(Vec::new()), ..none() },
        S { max_delegation_depth: Some(0), ..none() },
    ] {
        assert_eq!(kept.checked(), Ok(kept.clone()));
        Config::defaults().with(&kept).unwrap();
    }
    for (layer, says) in [
        (log(""), "not empty"),
        (mirror(""), "a path, or http"),
        (mirror("http://a.example"), "a path, or http"),
        (hosts(&["off"]), "a list of hosts"),
        (hosts(&["a.example,b.example"]), "a list of hosts"),
        (hosts(&[]), "a list of hosts"),
        (S { uv: Some(Some(PathBuf::new())), ..none() }, "not empty"),
        (S { python: Some(Some(odd())), ..none() }, "valid UTF-8"),
        (S { log: Some(LogTarget::File(odd())), ..none() }, "valid UTF-8"),
        (S { model_mirror: Some(Some(ModelMirror::Path(odd()))), ..none() }, "valid UTF-8"),
        (S { provider: Some(ProviderSetting::Replay(odd())), ..none() }, "valid UTF-8"),
        (S { write_paths: Some(vec![PathBuf::new()]), ..none() }, "not empty"),
        (S { workspace: Some(Some(PathBuf::new())), ..none() }, "that exists"),
        (S { execution_timeout_seconds: Some(Duration::MAX), ..none() }, "at most"),
        (S { max_tree_seconds: Some(Some(Duration::MAX)), ..none() }, "from 0 to"),
        (S { retry_temperature: Some(Some(f64::INFINITY)), ..none() }, "from 0 to 2"),
        (S { max_output_tokens: Some(Some(0)), ..none() }, "from 1"),
        (S { candidates: Some(Some(10)), ..none() }, "from 1 to 9"),
        (S { provider_proxy: Some(Some(socks)), ..none() }, "the address of a proxy"),
        (S { allowed_packages: Some(vec![gem]), ..none() }, "names of python packages"),
        (S { local_servers: Some(vec![80; 17]), ..none() }, "at most 16 ports"),
    ] {
        let fault = Config::defaults().with(&layer).unwrap_err().to_string();
        assert!(fault.contains("(code)") && fault.contains(says), "{fault}");
    }
}

/// What `recurgent config` shows of a typed value names the same value.
#[test]
fn a_log_file_with_the_name_of_a_switch_is_shown_as_a_path() {
    let layer =
        SettingsLayer { log: Some(LogTarget::File("off".into())), ..SettingsLayer::default() };
    let config = Config::defaults().with(&layer).unwrap();
    let (_, shown, _) = config.entries().find(|(key, ..)| key.name == "log").unwrap();
    assert_eq!(shown, "./off");
    for word in ["Off", "OFF", "no", "none", "False", "on", "yes", "0"] {
        let fault = Config::defaults().set("log", word).unwrap_err().to_string();
        assert!(fault.contains(&format!("off or a path (write `./{word}`")), "{fault}");
    }
}

#[test]
fn the_default_hub_is_an_address() {
    let hub = Settings::default().model_hub.unwrap();
    assert_eq!(hub.to_string(), crate::models::DEFAULT_HUB);
}

#[test]
fn a_misspelt_key_is_an_error_with_a_suggestion() {
    let fault = Config::defaults().set("execution_timeout_second", "3").unwrap_err();
    assert!(fault.to_string().contains("did you mean `execution_timeout_seconds`?"), "{fault}");
    let fault = Config::defaults().set("zzz", "3").unwrap_err();
    assert!(fault.to_string().contains("`recurgent config` lists"), "{fault}");
}

#[test]
fn values_are_checked_when_they_are_set() {
    for (key, value) in [
        ("max_generation_attempts", "0"),
        ("max_delegation_depth", "256"),
        ("max_model_calls", "4294967296"),
        ("provider_timeout_seconds", "-1"),
        ("provider_timeout_seconds", "NaN"),
        ("provider_timeout_seconds", "1e300"),
        ("max_tree_tokens", "1.5"),
        ("max_tree_tokens", "1e6"),
        ("max_output_tokens", "0.5"),
        ("max_output_tokens", "0"),
        ("debug", "yes"),
        ("guest", "lua"),
        ("minimum_sandbox_tier", "sealed "),
        ("standing_mode", "enforce"),
        ("source_mode", "internal"),
        ("guardrail_terminal", "process_escape, proces_escape"),
        ("read_paths", "[\"/a\""),
        ("read_paths", "[/a]"),
        ("local_servers", "[8080"),
        ("local_servers", "[true]"),
        ("allowed_packages", "[\"numpy\""),
        ("allowed_packages", "[numpy, pandas]"),
        ("python_indexes", "[\"https://a.example/\", ]"),
        ("mcp_files", "[\"/a\""),
        ("minimum_package_age_days", "36501"),
        ("minimum_package_age_days", "4294967295"),
        ("installer_hosts", "https://files.example.com"),
        ("installer_hosts", "files.example.com, filescom"),
        ("installer_env", "[\"A B\"]"),
        ("installer_env", "A=1"),
    ] {
        assert!(
            matches!(Config::defaults().set(key, value), Err(ConfigFault::Invalid { .. })),
            "{key}={value}"
        );
    }
}

#[test]
fn a_list_may_be_a_json_array() {
    let mut config = Config::defaults();
    for text in ["8080, 11434", "[8080, 11434]", " [\"8080\", \"11434\"]"] {
        config.set("local_servers", text).unwrap();
        assert_eq!(config.settings().local_servers, [8080, 11434], "{text}");
    }
    for text in ["[::1]:80, a.example", "[\"[::1]:80\", \"a.example\"]"] {
        config.set("network", text).unwrap();
        let hosts = ["[::1]:80".to_owned(), "a.example".to_owned()];
        assert_eq!(config.settings().network, Network::Hosts(hosts.into()), "{text}");
    }
}

#[test]
fn rules_are_named_one_by_one_or_by_type() {
    let mut config = Config::defaults();
    assert_eq!(config.agent_options().guardrails, GuardrailPolicy::default());
    config.set("guardrail_terminal", "process_escape, dependency_violation").unwrap();
    assert_eq!(
        config.agent_options().guardrails.terminal,
        [Rule::ProcessEscape, Rule::UndeclaredDependency, Rule::UnusedDependency]
    );
}

#[test]
fn every_default_is_what_its_text_says() {
    for (key, text, origin) in Config::defaults().entries() {
        let mut config = Config::defaults();
        config.set(key.name, text).unwrap();
        assert_eq!(config.settings(), &Settings::default(), "{}", key.name);
        assert_eq!(origin, &SettingOrigin::Default);
    }
}

#[test]
fn code_sets_types() {
    let layer = SettingsLayer {
        guest: Some(Language::Ruby),
        max_tree_seconds: Some(Some(std::time::Duration::from_millis(2500))),
        log: Some(LogTarget::Off),
        ..SettingsLayer::default()
    };
    let config = Config::defaults().with(&layer).unwrap();
    assert_eq!(config.settings().guest, Language::Ruby);
    assert_eq!(config.log_path().unwrap(), None);
    let set: Vec<_> = config
        .entries()
        .filter(|(.., origin)| **origin == SettingOrigin::Code)
        .map(|(key, text, _)| (key.name, text))
        .collect();
    assert_eq!(set, [("guest", "ruby"), ("max_tree_seconds", "2.5"), ("log", "off")]);
}
