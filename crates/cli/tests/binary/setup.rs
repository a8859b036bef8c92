//! The first configuration: the file that `init` writes, profiles, completion in shells, manual pages.

use serde_json::{Value, json};

use crate::calls::cli;
use crate::fixture::{CliFixture, CommandResult};
use crate::terminal::at_terminal;

fn config_path(cli: &CliFixture) -> std::path::PathBuf {
    cli.path(".config/recurgent/config.toml")
}

/// What `config` says of a setting, without the provider of the fixture.
fn setting(cli: &CliFixture, line: &[&str], variables: &[(&str, &str)], name: &str) -> Value {
    let line = [&["config", "--json"], line].concat();
    let mut command = cli.command(&line);
    command.env_remove("RECURGENT_PROVIDER").envs(variables.iter().copied());
    let ran = CommandResult::of(&line, &command.output().unwrap());
    let all = ran.exits(0).json();
    let found = all["settings"].as_array().unwrap().iter().find(|it| it["key"] == name);
    json!([found.unwrap()["value"], found.unwrap()["source"]])
}

#[test]
fn init_writes_a_file_that_is_read_and_replaces_none() {
    let cli = cli();
    cli.write("key", "sk-123");
    let line = ["init", "--guest", "ruby", "--base-url", "http://127.0.0.1:9/v1"];
    let ran = cli.run(&line);
    ran.stderr_contains("config.toml; checking it");
    assert!(ran.stdout.contains("config "), "it is checked: {ran:?}");
    let text = std::fs::read_to_string(config_path(&cli)).unwrap();
    assert!(text.contains("\nguest = \"ruby\"\n") && text.contains("\n# network = "), "{text}");
    let source = config_path(&cli).display().to_string();
    assert_eq!(setting(&cli, &[], &[], "guest"), json!(["ruby", source]));
    assert_eq!(setting(&cli, &[], &[], "base_url"), json!(["http://127.0.0.1:9/v1", source]));

    cli.run(&["init"]).exits(2).stderr_contains("replace it with --force");
    assert_eq!(std::fs::read_to_string(config_path(&cli)).unwrap(), text);
    cli.run(&["init", "--force", "--guest", "python"]).stderr_contains("config.toml.old now");
    assert_eq!(
        std::fs::read_to_string(config_path(&cli).with_extension("toml.old")).unwrap(),
        text
    );
    assert_eq!(setting(&cli, &[], &[], "guest")[0], "python");
    // The second replacement keeps the first file too.
    cli.run(&["init", "--force"]).stderr_contains("config.toml.old2 now");
    assert_eq!(
        std::fs::read_to_string(config_path(&cli).with_extension("toml.old")).unwrap(),
        text
    );
    for (line, says) in [
        (&["init", "--force", "--provider", "oops"][..], "must be auto, anthropic"),
        (&["init", "--force", "--key-file", "absent"], "cannot use absent"),
    ] {
        cli.run(line).exits(2).stderr_contains(says);
    }
}

/// On a terminal it asks, and asks again after a wrong answer.
#[test]
fn init_asks_on_a_terminal() {
    let script = "
wait('Without answers: ')
wait('provider writes')
type('oops\\r')
wait('must be auto')
wait('provider writes')
type('anthropic\\r')
for question in ['model service', 'Which model']:
    wait(question)
    type('\\r')
wait('its key')
type('~/absent\\r')
wait('cannot use ~/absent')
type('~/key\\r')
wait('which language')
type('\\r')
wait('Python packages')
type('https://pypi.example/simple\\r')
wait('gems')
type('\\r')
wait('checking')
print('ended', ended() >= 0)
";
    let cli = cli();
    cli.write("key", "sk-123");
    at_terminal(&cli.command(&["init"]), script).exits(0).prints("ended True\n");
    let text = std::fs::read_to_string(config_path(&cli)).unwrap();
    let key = cli.path("key").canonicalize().unwrap().display().to_string();
    for line in [
        "\nprovider = \"anthropic\"\n".to_owned(),
        format!("\napi_key_file = \"{key}\"\n"),
        "\npython_indexes = \"https://pypi.example/simple\"\n".to_owned(),
        "\nsource_mode = \"internal_only\"\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
}

/// Only addresses of this machine are tried.
#[test]
fn doctor_says_whether_a_server_of_this_machine_answers() {
    let cli = cli();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", server.local_addr().unwrap());
    let provider = |url: &str| {
        let line = ["doctor", "--json", "--provider", "compatible", "--base-url", url];
        let report = cli.run(&line).json();
        report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == "provider")
            .unwrap()
            .clone()
    };
    assert_eq!(provider(&url)["state"], "ok");
    drop(server);
    let found = provider(&url);
    assert_eq!(found["state"], "warn", "{found}");
    assert!(found["found"].as_str().unwrap().contains("nothing answers there"), "{found}");
    assert_eq!(provider("https://models.example/v1")["state"], "ok");
}

#[test]
fn init_writes_nothing_if_the_answers_end_early() {
    let script = "
wait('provider writes')
type('anthropic\\r')
wait('model service')
type('\\x04')
wait('nothing is written')
print('ended', ended())
";
    let cli = cli();
    at_terminal(&cli.command(&["init"]), script).exits(0).prints("ended 2\n");
    assert!(!config_path(&cli).exists());
}

#[test]
fn a_profile_is_chosen_by_name() {
    let cli = cli();
    cli.write(
        "my.toml",
        "[provider.work]\nprovider = \"scripted:script.json\"\n[provider.local]\nmodel = \"qwen\"\n",
    );
    let file = [("RECURGENT_CONFIG", "my.toml")];
    let found = setting(&cli, &["--profile", "local"], &file, "model");
    assert_eq!(found, json!(["qwen", "profile local"]));
    assert_eq!(setting(&cli, &[], &file, "model"), json!(["auto", "default"]));
    let line = ["call", "echo", "back", "1", "--profile", "work"];
    let mut command = cli.command(&line);
    command.env_remove("RECURGENT_PROVIDER").envs(file);
    CommandResult::of(&line, &command.output().unwrap()).exits(0);
    let line = ["call", "echo", "back", "--profile", "home"];
    let ran = CommandResult::of(&line, &cli.command(&line).envs(file).output().unwrap());
    ran.exits(2).stderr_contains("there are: local, work");
}

/// Variables of other tools rank below our own settings, and the report names them.
#[test]
fn addresses_of_other_tools_are_honoured() {
    let cli = cli();
    let openai = ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    let ours = ("RECURGENT_BASE_URL", "http://127.0.0.1:8/v1");
    assert_eq!(setting(&cli, &[], &[openai], "base_url"), json!([openai.1, openai.0]));
    assert_eq!(setting(&cli, &[], &[openai, ours], "base_url"), json!([ours.1, ours.0]));
}

#[test]
fn shells_complete_roles_methods_and_sessions() {
    let cli = cli();
    cli.run(&["call", "calculator", "add", "1", "--session", "desk"]).exits(0);
    cli.run(&["call", "echo", "text"]).exits(0);
    for (words, expected) in [
        (&["call", "calc"][..], "calculator"),
        (&["call", "calculator", "a"], "add"),
        (&["call", "echo", "te"], "text"),
        (&["repl", "ec"], "echo"),
        (&["call", "calculator", "add", "--session", "de"], "desk"),
        (&["tools", "show", "calc"], "calculator"),
        (&["tools", "show", "des"], ""),
        (&["sessions", "show", "de"], "desk"),
        (&["sessions", "show", "calc"], ""),
        (&["model", "rm", "calc"], ""),
        (&["mcp", "rm", "calc"], ""),
        (&["trace", "show", "l"], "last"),
        (&["call", "calculator", "add", "--set", "gues"], "guest="),
        (&["call", "calculator", "add", "--provider", "embed"], "embedded"),
        (&["ses"], "sessions"),
    ] {
        let ran = cli.run(&[&["complete", "--"], words].concat());
        let found: Vec<&str> = ran.exits(0).stdout.lines().collect();
        let expected: Vec<&str> = Some(expected).filter(|it| !it.is_empty()).into_iter().collect();
        assert_eq!(found, expected, "{words:?}: {ran:?}");
    }
    cli.run(&["complete", "--", "call", "--guest", "r"]).exits(0).prints("ruby\n");
    cli.run(&["complete", "--", "call", "--works"]).prints("--workspace\n--workspace-write\n");
    // Completion makes no store.
    let empty = CliFixture::new("{}");
    empty.run_in("none", &["complete", "--", "call", ""]).exits(0).prints("");
    assert!(!empty.path("none").exists());
}

/// As bash runs the script: words with spaces are quoted.
#[test]
fn bash_completes() {
    let cli = CliFixture::new(r#"{"two words.go": [{"code": "result = 1"}]}"#);
    cli.run(&["call", "two words", "go"]).exits(0);
    let script = "source <(recurgent completions bash); COMP_WORDS=(recurgent call tw); COMP_CWORD=2; \
                  _recurgent; printf '%s|' \"${COMPREPLY[@]}\"";
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_recurgent")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let ours = cli.command(&[]);
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", script]).env_clear();
    bash.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = bash.env("PATH", path).current_dir(cli.path(".")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "two\\ words|", "{output:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let cli = cli();
    cli.run(&["man", "pages"]).exits(0);
    for page in ["recurgent", "recurgent-call", "recurgent-tools-teach"] {
        let text = std::fs::read_to_string(cli.path(&format!("pages/{page}.1"))).unwrap();
        assert!(text.contains(".SH NAME"), "{page}: {text}");
    }
}
