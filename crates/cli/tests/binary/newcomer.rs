//! What a newcomer meets: messages that open with what matters, services that fail for a while, missing grants.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::calls::cli;
use crate::fixture::CliFixture;
use crate::terminal::in_terminal;

/// What a terminal shows in the end: a status line is erased before the next line is written.
fn lines(seen: &str) -> Vec<&str> {
    seen.lines().map(|line| line.rsplit("\u{1b}[2K").next().unwrap()).collect()
}

/// E1: the first line is the violation, the second what to do; the names of the metadata follow.
#[test]
fn a_guardrail_failure_opens_with_the_violation() {
    let fork = json!({"code": "import os\n\ndef go():\n    return os.fork()"});
    let cli = CliFixture::new(&json!({"forker.go": [fork, fork, fork]}).to_string());
    let (seen, exit) = in_terminal(&cli, 100, &["call", "forker", "go"], "");
    assert_eq!(exit, 1, "{seen}");
    let shown = lines(&seen);
    let first = shown.iter().position(|line| line.starts_with("error: ")).unwrap();
    let message: Vec<&str> =
        shown[first..].iter().take_while(|line| !line.starts_with("  next: ")).copied().collect();
    assert!(message.join(" ").contains("fork"), "{seen}");
    assert!(message.len() <= 2, "the next step follows at once: {seen}");
    let metadata = shown.iter().position(|line| line.starts_with("  error_type ")).unwrap();
    assert!(metadata > first + message.len(), "{seen}");
}

/// A service that gives these answers, one per connection.
fn service(answers: Vec<(u16, Value)>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        for (status, body) in answers {
            answer(listener.accept().unwrap().0, status, &body);
        }
    });
    (address, serving)
}

fn answer(stream: TcpStream, status: u16, body: &Value) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the request ends early");
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let body = body.to_string();
    write!(
        reader.get_mut(),
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
}

/// E2: a service that fails for a while is asked again; the wait is shown and costs no attempt.
#[test]
fn a_service_that_fails_for_a_while_is_asked_again() {
    let content = json!({"code": "def double(x):\n    return x * 2", "dependencies": []});
    let message = json!({"finish_reason": "stop", "message": {"content": content.to_string()}});
    let error = |message: &str| json!({"error": {"message": message}});
    let (address, serving) = service(vec![
        (503, error("starting")),
        (502, error("restarting")),
        (200, json!({"choices": [message]})),
    ]);
    let cli = cli();
    let line = [
        "call",
        "calculator",
        "double",
        "4",
        "--trace",
        "--provider",
        "compatible",
        "--base-url",
        &address,
        "--model",
        "m",
        "--set",
        "max_generation_attempts=1",
    ];
    let (seen, exit) = in_terminal(&cli, 100, &line, "");
    assert_eq!(exit, 0, "{seen}");
    assert_eq!(lines(&seen).last(), Some(&"8"), "{seen}");
    for said in ["503: starting; trying again in ", "502: restarting; trying again in "] {
        assert!(lines(&seen).iter().any(|line| line.contains(said)), "{said}: {seen}");
    }
    serving.join().unwrap();
}

/// E4: the model is shown what is granted, and a file that is not granted is named with the flag that grants it.
#[test]
fn grants_are_shown_to_the_model_and_named_when_they_are_missing() {
    let code = "def read(path):\n    with open(path) as file:\n        return file.read()";
    let cli = CliFixture::new(&json!({"ledger.read": [{"code": code}]}).to_string());
    cli.write("sales.csv", "a,1\n");
    let read = ["call", "ledger", "read", "sales.csv"];
    let (seen, exit) = in_terminal(&cli, 100, &read, "");
    assert_eq!(exit, 1, "{seen}");
    assert!(lines(&seen).join(" ").contains("--read sales.csv"), "{seen}");

    let granted = [&read[..], &["--read", "sales.csv", "--network", "loopback"]].concat();
    let prompts = ["--regenerate", "--set", "debug=true"];
    cli.run(&[&granted[..], &prompts].concat()).exits(0).prints("a,1\n\n");
    let log = std::fs::read_to_string(cli.path("state/recurgent.jsonl")).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let prompt = last["user_prompt"].as_str().unwrap();
    assert!(prompt.contains("sales.csv\"]") && prompt.contains("loopback"), "{prompt}");
}

/// E11: what would be lost is mentioned.
#[test]
fn a_setter_without_a_session_says_that_nothing_is_kept() {
    let cli = cli();
    let set = ["call", "calculator", "memory=", "5"];
    cli.run(&set).exits(0).prints("5\n").stderr_contains("nothing was kept");
    let kept = cli.run(&[&set[..], &["--session", "desk"]].concat());
    assert!(!kept.exits(0).stderr.contains("nothing was kept"), "{kept:?}");
}

/// E8: the beginning of an argument is shown to the model, a secret is not.
#[test]
fn a_secret_argument_is_not_sent_to_a_model() {
    let cli = cli();
    let secrets =
        ["--kw", "password=hunter2-and-more", "--kw", "text=key sk-proj-abcdefghijklmnop1234"];
    let line = ["call", "echo", "back", "plain words", "--set", "debug=true"];
    cli.run(&[&line[..], &secrets].concat()).exits(0);
    let log = std::fs::read_to_string(cli.path("state/recurgent.jsonl")).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let prompt = last["user_prompt"].as_str().unwrap();
    assert!(prompt.contains("plain words"), "{prompt}");
    for secret in ["hunter2", "abcdefghijklmnop1234"] {
        assert!(!prompt.contains(secret), "{secret}: {prompt}");
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}
