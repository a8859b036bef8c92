//! The demo as a stranger runs it: three times, on both guests, with what it stores in between.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::processes::{ProcessEntry, assert_gone, descendants};

/// Calls of the demo that always need a model: the five questions.
const QUESTIONS: u32 = 5;

#[test]
fn python_again_and_again() {
    check_repeated("python");
}

#[test]
fn ruby_again_and_again() {
    check_repeated("ruby");
}

#[test]
fn a_run_after_a_killed_one_completes() {
    let state = tempfile::tempdir().unwrap();
    // The store is consistent whenever the signal arrives.
    for (signal, milliseconds) in [("KILL", 60), ("INT", 90), ("KILL", 130), ("TERM", 180)] {
        let demo = start(state.path(), &["--guest", "python"]);
        thread::sleep(Duration::from_millis(milliseconds));
        let pid = demo.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let (broken, children) = finish(demo);
        let expected = if signal == "KILL" { [None, Some(0)] } else { [Some(130), Some(0)] };
        assert!(expected.contains(&broken.status.code()), "{signal}: {}", shown(&broken));
        assert_gone(&children);
    }
    let (output, _) = finish(start(state.path(), &["--guest", "python"]));
    assert!(output.status.success(), "{}", shown(&output));
}

#[test]
fn fresh_starts_over() {
    let state = tempfile::tempdir().unwrap();
    let user_file = state.path().join("mine.txt");
    fs::write(&user_file, "mine").unwrap();
    let (first, _) = finish(start(state.path(), &["--guest", "python"]));
    let (again, _) = finish(start(state.path(), &["--guest", "python", "--fresh"]));
    assert_eq!(model_calls(&first), model_calls(&again));
    assert_eq!(fs::read_to_string(user_file).unwrap(), "mine");
}

#[test]
fn a_missing_interpreter_is_named_with_its_package() {
    let state = tempfile::tempdir().unwrap();
    let mut command = demo(state.path(), &["--guest", "ruby"]);
    command.env("PATH", state.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("ruby") && printed.contains("install"), "{printed}");
    assert!(output.stdout.is_empty(), "{}", shown(&output));
}

fn check_repeated(guest: &str) {
    let state = tempfile::tempdir().unwrap();
    let arguments = ["--guest", guest];

    let (first, children) = finish(start(state.path(), &arguments));
    assert!(first.status.success(), "{}", shown(&first));
    let text = String::from_utf8(first.stdout.clone()).unwrap();
    for expected in [
        "  calculator.memory = 5 ",
        "  calculator.add(3)\n",
        "  └ 8 ",
        "  └ 32 ",
        "  └ 12 ",
        "  └ 3628800 ",
        "  └ 212 ",
        "  └ 6 ",
        "    - solve(\"2x + 5 = 17\") -> ok\n",
        "  │ web_fetcher.fetch_url(\"http://127.0.0.1:",
        "    - Fishers & divers agree on a reef map\n",
        "    latest: The town clock keeps time to the second\n",
        "    - Schoolchildren name a comet crater\n",
        "    source: http://127.0.0.1:",
        "  └ ✗ unsupported_capability (not retriable) ",
        "  │ ↺ attempt 1 rolled back at validation: singleton_method_mutation\n",
        "  │ ↺ attempt 1 rolled back at execution\n",
        "generated, attempt 2",
        "web_fetcher",
        "rss_parser",
    ] {
        assert!(text.contains(expected), "no {expected:?} in:\n{text}");
    }
    assert_plain(&first);
    // Seven for the calculator, five questions, two tools, and two retries for each of two calls: 18.
    assert_eq!(model_calls(&first), (18, 4), "{text}");
    assert!(!children.is_empty(), "programs run in worker processes");
    assert_gone(&children);

    for _ in 0..2 {
        let (again, children) = finish(start(state.path(), &arguments));
        assert!(again.status.success(), "{}", shown(&again));
        assert_plain(&again);
        assert_eq!(model_calls(&again), (QUESTIONS, 15), "{}", shown(&again));
        assert!(!shown(&again).contains('↺'), "{}", shown(&again));
        assert_gone(&children);
    }
}

/// No escape sequences, at most 80 columns, nothing on stderr.
fn assert_plain(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(output.stderr.is_empty(), "{}", shown(output));
}

/// Programs that a model might write for the live tour: one of them is wrong.
const WRITTEN: [(&str, &str); 2] = [
    (
        "python",
        r#"{"calculator.add": [{"code": "def add(a, b):\n    return a + b"}],
            "invoice reader.total": [{"code": "def total(lines):\n    return sum(line[1] * line[2] for line in lines)"}],
            "editor.slug": [{"code": "def slug(title):\n    return title.lower().replace(' ', '_')"}],
            "librarian.entry": [{"code": "def entry(name):\n    return name"},
                                {"code": "def entry(name):\n    first, last = name.split(' ', 1)\n    return last.upper() + ', ' + first"}]}"#,
    ),
    (
        "ruby",
        r#"{"calculator.add": [{"code": "def add(a, b)\n  a + b\nend"}],
            "invoice reader.total": [{"code": "def total(lines)\n  lines.sum { |line| line[1] * line[2] }\nend"}],
            "editor.slug": [{"code": "def slug(title)\n  title.downcase.tr(' ', '_')\nend"}],
            "librarian.entry": [{"code": "def entry(name)\n  name\nend"},
                                {"code": "def entry(name)\n  first, last = name.split(' ', 2)\n  last.upcase + ', ' + first\nend"}]}"#,
    ),
];

/// A model writes; what is wrong is said and does not end the tour; the second run needs no model.
#[test]
fn a_live_tour_judges_what_a_model_writes() {
    for (guest, script) in WRITTEN {
        let state = tempfile::tempdir().unwrap();
        let programs = state.path().join("script.json");
        fs::write(&programs, script).unwrap();
        let run = || {
            let mut command = demo(state.path(), &["--live", "--guest", guest]);
            command.env("RECURGENT_PROVIDER", format!("scripted:{}", programs.display()));
            command.output().unwrap()
        };
        // The example rejects the first program of `entry`, and the next one is asked for.
        for models in ["5 made, 4 avoided", "0 made, 8 avoided"] {
            let output = run();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(0), "{guest}: {}", shown(&output));
            for part in [
                &format!("model calls   {models}"),
                "right answers 6 of 8",
                "└ \"GUIN, Ursula\"",
                "    not right: it should be \"hello-world-again\"; recurgent tools reject, teach\n    and edit correct it\n\n",
            ] {
                assert!(text.contains(part), "{guest}: {part:?} in {text}");
            }
        }
    }
}

/// Without a model there is nothing to see, and the failure is that of the model.
#[test]
fn a_live_tour_without_a_model_says_what_is_missing() {
    let state = tempfile::tempdir().unwrap();
    let keys = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"];
    let none = state.path().join("none");
    for (provider, url, exit, said) in [
        ("auto", "", 3, "recurgent model install"),
        ("compatible", "http://127.0.0.1:9/v1", 1, "cannot be reached"),
    ] {
        let mut command = demo(state.path(), &["--live", "--guest", "python"]);
        command
            .env("RECURGENT_PROVIDER", provider)
            .env("RECURGENT_MODELS_DIR", &none)
            .env("RECURGENT_LOCAL_SERVERS", "")
            .env("RECURGENT_TRANSPORT_RETRIES", "0");
        for key in keys {
            command.env_remove(key);
        }
        if !url.is_empty() {
            command.env("RECURGENT_BASE_URL", url).env("RECURGENT_MODEL", "m");
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{provider}: {}", shown(&output));
        assert!(text.contains(said) && !text.contains("report it"), "{provider}: {text}");
    }
}

fn demo(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recurgent"));
    command
        .arg("demo")
        .args(arguments)
        .env("RECURGENT_STATE_DIR", state)
        .env("RECURGENT_CONFIG", "/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn start(state: &Path, arguments: &[&str]) -> Child {
    demo(state, arguments).spawn().unwrap()
}

/// Waits for the demo, and notes every process under it on the way.
fn finish(demo: Child) -> (Output, BTreeSet<ProcessEntry>) {
    let pid = demo.id();
    let waiting = thread::spawn(move || demo.wait_with_output().unwrap());
    let mut seen = BTreeSet::new();
    while !waiting.is_finished() {
        seen.extend(descendants(pid));
        thread::sleep(Duration::from_millis(5));
    }
    (waiting.join().unwrap(), seen)
}

/// The numbers of model calls made and avoided in the summary.
fn model_calls(output: &Output) -> (u32, u32) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.trim_start().starts_with("model calls"));
    let line = line.unwrap_or_else(|| panic!("no summary in {}", shown(output)));
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn shown(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{}\n{out}\n{err}", output.status)
}
