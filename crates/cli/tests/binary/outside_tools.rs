//! MCP servers, from being added to being called, approved again and removed.

use serde_json::{Value, json};

use crate::fixture::CliFixture;
use crate::terminal::in_terminal;

const SERVER: &str = include_str!("../../../mcp/tests/servers/hostile_server.py");
const SCRIPT: &str = r#"{"desk.double": [{"code": "def double(x):\n    return tool('odd').double(x=x).value['result']"}]}"#;

/// A server of which `orders` says what it does.
fn added() -> CliFixture {
    let cli = CliFixture::new(SCRIPT);
    cli.write("server.py", SERVER);
    cli.write("orders", "{}");
    let (server, orders) = (cli.path("server.py"), cli.path("orders"));
    let (server, orders) = (server.to_str().unwrap(), orders.to_str().unwrap());
    let folder = orders.strip_suffix("orders").unwrap();
    let line = ["mcp", "add", "odd", "--read", folder, "--", "python3", server, orders];
    cli.run(&line).exits(0).stderr_contains("added odd");
    cli
}

#[test]
fn a_server_is_added_called_approved_and_removed() {
    let cli = added();
    let listed = cli.json(&["mcp", "list"]);
    let row = &listed["servers"][0];
    assert_eq!(
        (&row["name"], &row["state"], &row["granted"]),
        (&json!("odd"), &json!("not used yet"), &json!(false))
    );
    cli.run(&["call", "desk", "double", "4", "--tools", "odd", "--trace"])
        .exits(0)
        .prints("8\n")
        .stderr_contains("⇢ odd.double(x: 4)");
    // Stored now, and still bound by the grant.
    cli.run(&["call", "desk", "double", "5", "--tools", "odd"]).exits(0).prints("10\n");
    let shown = cli.run(&["trace", "show", "last"]);
    assert!(shown.stdout.contains("⇢ odd.double(x: 5)  "), "{shown:?}");
    cli.run(&["call", "desk", "double", "5"]).exits(1);
    let row = &cli.json(&["mcp", "list", "--set", "tools=odd"])["servers"][0];
    assert_eq!(
        (&row["state"], &row["methods"], &row["granted"]),
        (&json!("approved"), &json!(3), &json!(true))
    );

    cli.write("orders", r#"{"description": "Doubles, and prints secrets"}"#);
    cli.run(&["call", "desk", "double", "4", "--tools", "odd"])
        .exits(1)
        .stderr_contains("approval_required");
    let tested = cli.run(&["mcp", "test", "odd"]);
    tested.exits(1).stderr_contains("recurgent mcp approve odd");
    assert!(tested.stdout.contains("~ double: description"), "{tested:?}");
    cli.run(&["mcp", "approve", "odd"]).exits(0).stderr_contains("approved odd");
    cli.run(&["call", "desk", "double", "4", "--tools", "odd"]).exits(0).prints("8\n");

    cli.run(&["mcp", "rm", "odd"]).exits(0).stderr_contains("removed odd");
    assert_eq!(cli.json(&["mcp", "list"])["servers"], json!([]));
    cli.run(&["mcp", "rm", "odd"]).exits(1);
}

#[test]
fn a_tool_of_a_server_is_tried_from_the_command_line() {
    let cli = added();
    let tested = cli.json(&["mcp", "test", "odd"]);
    assert_eq!(tested["revision"], "2025-11-25");
    assert_eq!(tested["methods"][0]["name"], "double");
    let call = ["mcp", "test", "odd", "--call", "double", "--args"];
    assert_eq!(cli.json(&[&call[..], &[r#"{"x": 21}"#]].concat())["value"], json!({"result": 42}));
    cli.run(&[&call[..], &[r#"{"x": "a"}"#]].concat()).exits(2).stderr_contains("at `$.x`");
    cli.run(&[&call[..], &["[]"]].concat()).exits(2).stderr_contains("must be a JSON object");
    cli.run(&["mcp", "test", "even"]).exits(1).stderr_contains("there are: odd");
}

#[test]
fn servers_of_another_program_are_read() {
    let cli = CliFixture::new("{}");
    cli.write(
        "other.json",
        r#"{"mcpServers": {"My Files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"], "disabled": false, "timeout": 60, "description": "files", "autoApprove": ["read"]},
            "remote": {"type": "http", "url": "https://mcp.example.org/mcp", "headers": {"Authorization": "Bearer ${NO_SUCH_TOKEN}"}}}}"#,
    );
    cli.run(&["mcp", "add", "--from", "other.json"]).exits(0).stderr_contains("My Files, remote");
    let listed = cli.json(&["mcp", "list"]);
    assert_eq!(listed["servers"][0]["name"], "my_files");
    assert!(listed["notes"].to_string().contains("NO_SUCH_TOKEN is not set"), "{listed}");
    for field in ["timeout", "autoApprove"] {
        let note = format!("mcp.json: `{field}` has no effect");
        assert!(listed["notes"].to_string().contains(&note), "{listed}");
    }
    // Defaults, fields that only others know, and an entry that withholds tools.
    cli.write(
        "more.json",
        r#"{"mcpServers": {"docs": {"httpUrl": "https://docs.example.org/${NO_SUCH_PLACE:-mcp}", "trust": true},
            "half": {"command": "x", "disabledTools": ["delete"]}}}"#,
    );
    cli.run(&["mcp", "add", "--from", "more.json"]).exits(0);
    let listed = cli.json(&["mcp", "list"]);
    assert_eq!(listed["servers"][0]["place"], "https://docs.example.org/mcp", "{listed}");
    let notes = listed["notes"].to_string();
    assert!(notes.contains("`trust` has no effect"), "{notes}");
    assert!(
        notes.contains("half of") && notes.contains("`disabledTools` is not supported"),
        "{notes}"
    );
    for (line, says) in [
        (&["mcp", "add", "Odd", "--", "x"][..], "cannot name a server"),
        (&["mcp", "add", "odd"][..], "say how it is reached"),
        (&["mcp", "add", "odd", "--url", "x.example"][..], "--url begins with http://"),
        (&["mcp", "add", "odd", "--url", ""][..], "--url begins with http://"),
        (&["mcp", "add", "remote", "--url", "https://x.example"][..], "remove it first"),
        (&["mcp", "add", "my_files", "--", "x"][..], "has a server named \"My Files\""),
        (&["mcp", "add", "odd", "--url", "x.example"][..], "begins with http:// or https://"),
        (
            &["mcp", "add", "odd", "--url", "https://x.example", "--env", "A=b"][..],
            "cannot be used",
        ),
        (&["mcp", "add", "odd", "--env", "x", "--", "y"][..], "must be NAME=VALUE"),
    ] {
        cli.run(line).exits(2).stderr_contains(says);
    }
}

#[test]
fn a_taken_name_is_refused_and_the_file_keeps_what_others_wrote() {
    let cli = CliFixture::new("{}");
    let folder = cli.path(".config/recurgent");
    std::fs::create_dir_all(&folder).unwrap();
    cli.write(
        ".config/recurgent/config.toml",
        "[command.find]\nprogram = \"grep\"\n[mcp.time]\ncommand = \"time-server\"\n",
    );
    cli.write(
        ".config/recurgent/mcp.json",
        r#"{"inputs": [1], "servers": {"a": {"command": "x"}}}"#,
    );
    for name in ["find", "time", "a"] {
        let added = cli.run(&["mcp", "add", name, "--", "y"]);
        added.exits(2).stderr_contains(name);
    }
    std::fs::create_dir(cli.path("bin")).unwrap();
    cli.write("bin/server", "");
    cli.run(&["mcp", "add", "b", "--", "bin/server"]).exits(0);
    let text = std::fs::read_to_string(folder.join("mcp.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let path = std::path::absolute(cli.path("bin/server")).unwrap();
    assert_eq!(
        file,
        json!({"inputs": [1], "mcpServers": {"a": {"command": "x"}, "b": {"command": path, "args": []}}})
    );
    // A server of the configuration file is removed there.
    cli.run(&["mcp", "rm", "time"]).exits(1).stderr_contains("removed there");
    let (shown, exit) = in_terminal(&cli, 40, &["mcp", "list"], "");
    assert_eq!(exit, 0, "{shown}");
    let longest = shown.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(40), "{shown}");
}
