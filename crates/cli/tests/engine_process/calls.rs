//! Calls that the embedded model writes programs for, and the commands around the engine.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::fixture::EngineFixture;

/// Its exit status, standard output and standard error.
fn run(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn json(command: Command) -> Value {
    let (_, stdout, stderr) = run(command);
    serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"))
}

#[test]
fn an_installed_model_writes_programs_when_nothing_is_configured() {
    let fixture = EngineFixture::new();
    let (exit, _, stderr) = run(fixture.command(&["call", "oracle", "seven"]));
    assert_eq!(exit, 3);
    assert!(stderr.contains("recurgent model install --yes"), "{stderr}");
    let file = fixture.path("writer.gguf").display().to_string();
    let installed = json(fixture.command(&["model", "install", "--from", &file, "--json"]));
    assert_eq!(installed["installed"]["name"], "writer", "{installed}");
    let (_, stdout, _) = run(fixture.command(&["doctor"]));
    assert!(stdout.contains("embedded: writer"), "{stdout}");
    let call = |more: &[&str]| {
        let (exit, stdout, stderr) =
            run(fixture.command(&[&["call", "oracle", "seven"], more].concat()));
        assert_eq!((exit, stdout.as_str()), (0, "7\n"), "{stderr}");
    };
    call(&["--record", "recording.json"]);
    let status = json(fixture.command(&["model", "status", "--json"]));
    assert_eq!(status["engine"]["answered"], 1, "{status}");
    assert_eq!(json(fixture.command(&["model", "stop", "--json"]))["was_running"], true);
    call(&[]);
    call(&["--replay", "recording.json", "--state-dir", "other"]);
    assert_eq!(fixture.running(), None, "stored and recorded programs need no engine");
    let log = std::fs::read_to_string(fixture.path("state/recurgent.jsonl")).unwrap();
    let written = log.lines().find(|line| line.contains("\"writer\""));
    assert!(written.is_some(), "the log names the model: {log}");
    let (exit, stdout, _) = run(fixture.command(&["model", "rm", "writer"]));
    assert_eq!((exit, stdout.starts_with("removed writer")), (0, true), "{stdout}");
}

/// An engine in the foreground, ended with the test.
struct Served(Child, String);

impl Served {
    fn start(fixture: &EngineFixture, more: &[&str]) -> Self {
        let line = [&["model", "serve", "--http", "0"], more].concat();
        let mut child = fixture.command(&line).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening at ").expect(&line).to_owned();
        Self(child, address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_speaks_the_chat_form_to_the_compatible_provider() {
    let fixture = EngineFixture::new();
    let file = fixture.path("scripted.gguf").display().to_string();
    let (exit, _, stderr) = run(fixture.command(&["model", "install", "--from", &file]));
    assert_eq!(exit, 0, "{stderr}");
    let served = Served::start(&fixture, &[]);
    let call = ["call", "oracle", "seven", "--base-url", &served.1, "--model", "scripted"];
    let (exit, stdout, stderr) = run(fixture.command(&call));
    assert_eq!((exit, stdout.as_str()), (0, "7\n"), "{stderr}");
    let (exit, _, stderr) = run(fixture.command(&["model", "serve"]));
    assert_eq!(exit, 1, "{stderr}");
    assert!(stderr.contains("an engine runs already"), "{stderr}");
}

#[test]
fn pages_and_strangers_cannot_use_it() {
    let fixture = EngineFixture::new();
    std::fs::write(fixture.path("token"), "secret\n").unwrap();
    let token = fixture.path("token").display().to_string();
    let served = Served::start(&fixture, &["--token-file", &token]);
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let get = |host: Option<&str>, token: Option<&str>| {
        let mut request = agent.get(format!("{}/models", served.1));
        if let Some(host) = host {
            request = request.header("host", host);
        }
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.call().unwrap().status().as_u16()
    };
    assert_eq!(get(None, Some("secret")), 200);
    assert_eq!(get(None, Some("other")), 401);
    assert_eq!(get(None, None), 401);
    assert_eq!(get(Some("page.example.com"), Some("secret")), 403);
    let post = |kind: &str| {
        let request = agent.post(format!("{}/chat/completions", served.1));
        let request = request.header("authorization", "Bearer secret").content_type(kind);
        request.send("{\"messages\":[]}").unwrap().status().as_u16()
    };
    assert_eq!(post("text/plain"), 415);
    assert_eq!(post("application/json"), 404, "no model is installed");
}

/// On a terminal, the status line says how far the model is.
#[test]
fn a_person_sees_how_far_the_model_is() {
    const TERMINAL: &str =
        "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let fixture = EngineFixture::new();
    let file = fixture.path("writer.gguf").display().to_string();
    run(fixture.command(&["model", "install", "--from", &file]));
    let call = fixture.command(&["call", "oracle", "seven"]);
    let mut python = Command::new("python3");
    python.args(["-c", TERMINAL]).arg(call.get_program()).args(call.get_args()).env_clear();
    python.envs(call.get_envs().filter_map(|(name, value)| Some((name, value?))));
    python.env("TERM", "xterm").stdin(Stdio::null());
    python.current_dir(call.get_current_dir().unwrap());
    let (exit, shown, stderr) = run(python);
    assert_eq!(exit, 0, "{shown}{stderr}");
    let before = "asking the model for oracle.seven… ";
    let said: Vec<&str> = shown.split(before).skip(1).collect();
    for part in ["loading the model", "tokens read"] {
        assert!(said.iter().any(|text| text.contains(part)), "{part}: {shown}");
    }
}
