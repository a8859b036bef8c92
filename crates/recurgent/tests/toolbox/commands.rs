//! Commands of the configuration: real programs of the system, in a sandbox, without a shell.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::toolbox::HostFunction;
use recurgent::{Language, Outcome, Runtime};
use serde_json::json;

use super::{GuestFixture, check, message};

const COMMANDS: &str = r#"
tools = ["*"]
[command.words]
program = "wc"
arguments = ["-w"]
input = "{text}"
description = "Counts the words of a text"
reads_only = true

[command.find_lines]
program = "grep"
arguments = ["{flags}", "--", "{pattern}"]
input = "{text}"
optional = ["flags"]
reads_only = true
[command.find_lines.parameters]
flags = { enum = ["--ignore-case"] }

[command.echo]
program = "printf"
arguments = ["%s|", "{first}", "--name={second}", "{rest}"]
optional = ["second", "rest"]
reads_only = true
[command.echo.parameters]
rest = { type = "array", items = { type = "string" } }

[command.named]
program = "printf"
arguments = ["%s|", "{stem}.{kind}", "--", "{stem}.{kind}"]
reads_only = true

[command.complains]
program = "sh"
arguments = ["-c", "for i in $(seq 900); do printf 'warning ' >&2; done; printf 'the reason' >&2; exit 1"]
reads_only = true

[command.total]
program = "python3"
arguments = ["-c", "import json, sys; print(json.dumps({{'total': sum(json.load(sys.stdin)['numbers'])}}))"]
input = "json"
output = "json"
reads_only = true
[command.total.parameters]
numbers = { type = "array", items = { type = "number" } }

[command.peek]
program = "cat"
arguments = ["{path}"]
reads_only = true

[command.slow]
program = "sleep"
arguments = ["{seconds}"]
timeout_seconds = 0.4
reads_only = true
[command.slow.parameters]
seconds = "integer"

[command.flood]
program = "head"
arguments = ["-c", "9000000", "/dev/zero"]
reads_only = true

[command.variables]
program = "env"
reads_only = true
[command.variables.env]
TOKEN = "t0ken"

[command.missing]
program = "no-such-program-here"
reads_only = true
"#;

fn runtime(fixture: &GuestFixture, more: &str) -> Runtime {
    let file = fixture.state.path().join("config.toml");
    let state = fixture.state.path().display();
    fs::write(&file, format!("state_dir = \"{state}\"\n{COMMANDS}\n{more}")).unwrap();
    let builder = Runtime::builder(Config::from_file(&file).unwrap());
    builder.provider(Arc::<Scripted>::clone(&fixture.model)).build().unwrap()
}

/// What a command answers to the keyword arguments.
fn run(
    fixture: &GuestFixture,
    runtime: &Runtime,
    tool: &str,
    arguments: serde_json::Value,
) -> Outcome {
    let method = format!("use_{tool}");
    fixture.writes(
        &format!("desk.{method}"),
        &format!("def {method}(given):\n    r = tool('{tool}').run(**given)\n    return r.value if r.ok else r.error_type + ': ' + r.error_message"),
        &format!("def {method}(given)\n  r = tool('{tool}').run(**given.transform_keys(&:to_sym))\n  r.ok? ? r.value : \"#{{r.error_type}}: #{{r.error_message}}\"\nend"),
    );
    let desk = fixture.agent(runtime, "desk").build().unwrap();
    desk.call(method.as_str(), (arguments,)).unwrap()
}

#[test]
fn a_command_gets_its_arguments_and_answers() {
    check(|fixture| {
        let runtime = runtime(fixture, "");
        for (tool, arguments, expected) in [
            ("words", json!({"text": "one two three"}), json!("3\n")),
            ("find_lines", json!({"pattern": "-b", "text": "a\nx-b\n"}), json!("x-b\n")),
            (
                "find_lines",
                json!({"pattern": "B", "text": "a\nb\n", "flags": "--ignore-case"}),
                json!("b\n"),
            ),
            ("echo", json!({"first": "$(id); `id` > x"}), json!("$(id); `id` > x|")),
            (
                "echo",
                json!({"first": "a", "second": "-b", "rest": ["c", "d e"]}),
                json!("a|--name=-b|c|d e|"),
            ),
            ("named", json!({"stem": "a", "kind": "-b"}), json!("a.-b|--|a.-b|")),
            ("total", json!({"numbers": [1, 2.5]}), json!({"total": 3.5})),
        ] {
            let outcome = run(fixture, &runtime, tool, arguments.clone());
            assert_eq!(outcome.value(), Some(&expected), "{tool} {arguments}: {outcome:?}");
        }
        let logged = fixture.log();
        assert!(
            logged.iter().all(|entry| entry.pointer("/attempts/0/outside_calls/0/origin")
                == Some(&json!("command")))
        );
    });
}

#[test]
fn a_command_that_fails_says_how() {
    check(|fixture| {
        let runtime = runtime(fixture, "");
        let text = fixture.state.path().join("secret.txt");
        fs::write(&text, "secret").unwrap();
        for (tool, arguments, says) in [
            ("echo", json!({"first": "--help"}), "invalid_call: `first` may not begin with `-`"),
            (
                "named",
                json!({"stem": "--version", "kind": "b"}),
                "invalid_call: `stem` may not begin with `-`",
            ),
            ("complains", json!({}), "warning the reason"),
            (
                "find_lines",
                json!({"pattern": "x", "text": "a"}),
                "tool_error: grep ended with status 1",
            ),
            ("find_lines", json!({"pattern": "x", "text": "a", "flags": "-r"}), "invalid_call: "),
            ("total", json!({"numbers": ["x"]}), "invalid_call: "),
            ("peek", json!({"path": text.display().to_string()}), "No such file or directory"),
            ("peek", json!({"path": "/etc/shadow"}), "tool_error: cat ended with status 1"),
            (
                "slow",
                json!({"seconds": 600}),
                "tool_unavailable: the tool slow cannot be used: it did not answer within 0.4 s",
            ),
            (
                "flood",
                json!({}),
                "tool_unavailable: the tool flood cannot be used: it wrote more than 4194304 bytes",
            ),
            (
                "missing",
                json!({}),
                "tool_unavailable: the tool missing cannot be used: there is no program no-such-program-here",
            ),
        ] {
            let outcome = run(fixture, &runtime, tool, arguments.clone());
            let said = outcome
                .value()
                .and_then(|value| value.as_str())
                .unwrap_or_else(|| message(&outcome));
            assert!(said.contains(says), "{tool} {arguments}: {said}");
        }
    });
}

/// A command sees its own variables and none of the host's.
#[test]
fn a_command_has_its_own_environment() {
    check(|fixture| {
        let runtime = runtime(fixture, "");
        let outcome = run(fixture, &runtime, "variables", json!({}));
        let shown = outcome.value().unwrap().as_str().unwrap().to_owned();
        assert!(shown.contains("TOKEN=t0ken"), "{shown}");
        let names: Vec<&str> = shown.lines().filter_map(|line| line.split('=').next()).collect();
        for name in &names {
            assert!(["PATH", "LANG", "HOME", "TMPDIR", "TOKEN"].contains(name), "{shown}");
        }
    });
}

/// What a command may read and write is what its entry grants.
#[test]
fn a_command_reaches_what_its_entry_grants() {
    check(|fixture| {
        let folder = tempfile::tempdir().unwrap();
        let granted = folder.path().join("notes.txt");
        fs::write(&granted, "granted").unwrap();
        let entry = format!(
            "[command.notes]\nprogram = \"cat\"\narguments = [\"notes.txt\"]\ndirectory = {:?}\nreads_only = true\n",
            folder.path().display().to_string()
        );
        let runtime = runtime(fixture, &entry);
        let outcome = run(fixture, &runtime, "notes", json!({}));
        assert_eq!(outcome.value(), Some(&json!("granted")), "{outcome:?}");
    });
}

#[test]
fn entries_that_cannot_be_used_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    for (text, says) in [
        ("[command.a]\narguments = []", "missing field `program`"),
        ("[command.a]\nprogram = \"x\"\nargs = []", "unknown field `args`"),
        ("[command.A]\nprogram = \"x\"", "a tool is named with small letters"),
        ("[command.a]\nprogram = \"x\"\narguments = [\"{x\"]", "has a brace alone"),
        ("[command.a]\nprogram = \"x\"\narguments = [\"{a b}\"]", "has a brace alone"),
        ("[command.a]\nprogram = \"x\"\noutput = \"xml\"", "`output` is text or json"),
        ("[command.a]\nprogram = \"x\"\noptional = [\"y\"]", "is not a parameter"),
        ("[command.a]\nprogram = \"x\"\nread = [\"relative\"]", "must begin with / or ~"),
        ("command = 3", "must be tables"),
        ("[mcp.a]\nargs = []", "needs a `command` or a `url`"),
        ("[mcp.a]\nurl = \"ftp://x\"", "begins with http:// or https://"),
        ("[mcp.a]\ncommand = \"x\"\nspeed = 3", "unknown field `speed`"),
        ("[mcp.a]\ncommand = \"x\"\ntimeout = 3", "`timeout` has no effect"),
        ("[mcp.a]\ncommand = \"x\"\ndescription = \"y\"", "`description` has no effect"),
        ("[mcp.a]\ncommand = \"x\"\nautoApprove = [\"y\"]", "`autoApprove` has no effect"),
        ("[mcp.a]\ncommand = \"x\"\nalwaysAllow = [\"y\"]", "`autoApprove` has no effect"),
        ("[mcp.a]\ncommand = \"x\"\ntype = \"http\"", "`type` has no effect"),
        ("[mcp.a]\nurl = \"https://x\"\ntype = \"websocket\"", "`type` has no effect"),
        ("[mcp.a]\nurl = \"https://x\"\ntype = \"sse\"", "`sse` is obsolete"),
        ("[mcp.a]\ncommand = \"x\"\n[command.a]\nprogram = \"x\"", "another tool is named a"),
        (
            "[mcp.a]\ncommand = \"x\"\n[mcp.a.env]\nKEY = \"${NO_SUCH_VARIABLE_HERE}\"",
            "NO_SUCH_VARIABLE_HERE is not set",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let said = Config::from_file(Path::new(&file)).unwrap_err().to_string();
        assert!(said.contains(says), "{text}: {said}");
    }
}

/// Neither hides the other.
#[test]
fn a_function_cannot_take_the_name_of_a_command() {
    let fixture = GuestFixture::new(Language::Python);
    let runtime = runtime(&fixture, "[command.orders]\nprogram = \"cat\"");
    let find = HostFunction::untyped("orders.find", json!({"type": "object"}), None, Ok);
    let refused = runtime.toolbox().add(find).unwrap_err().to_string();
    assert_eq!(refused, "two tools are named \"orders\": command and function; rename one");
}
