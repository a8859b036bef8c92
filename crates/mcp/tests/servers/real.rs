//! Servers from the package index.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mcp::Servers;
use recurgent::config::Config;
use recurgent::json::{Value, json};
use recurgent::provider::Scripted;
use recurgent::{Language, Runtime};

use super::{Fixture, check, environment, report, text};

/// Of the newest revision, without a handshake.
fn time_server() -> Value {
    let place = environment("time", &["mcp-server-time==2026.10.19"]);
    json!({"command": place.join("bin/mcp-server-time"), "args": ["--local-timezone", "UTC"], "reads_only": ["*"]})
}

const SQLITE: [&str; 2] = ["mcp-server-sqlite==2025.4.25", "mcp-proxy==0.13.0"];

#[test]
fn a_program_asks_a_server_for_the_time_and_is_kept() {
    check(|fixture| {
        let (runtime, servers) = fixture.runtime(&json!({"time": time_server()}), &[]);
        fixture.calls("now", "time", "get_current_time");
        let desk = fixture.desk(&runtime);
        for _ in 0..2 {
            let outcome = desk.call("now", (json!({"timezone": "UTC"}),)).unwrap();
            let zone = outcome.value().and_then(|value| value.get("timezone"));
            assert_eq!(zone, Some(&json!("UTC")), "{outcome:?}");
        }
        assert_eq!(fixture.model.asked().len(), 1);
        let pin = servers.servers[0].approved().unwrap().unwrap();
        assert_eq!(pin.revision.as_deref(), Some("2026-07-28"));
        assert!(fixture.log().contains("\"origin\":\"mcp\""));
        let outcome = desk.call("now", (json!({"timezone": "Nowhere"}),)).unwrap();
        assert!(text(&outcome).starts_with("tool_error: "), "{outcome:?}");
    });
}

/// A report over a database, through the revision with a handshake. The server may write where its entry says.
#[test]
fn a_database_is_filled_and_read_through_a_server() {
    check(|fixture| {
        let place = environment("sqlite", &SQLITE);
        let data = fixture.path("data");
        std::fs::create_dir(&data).unwrap();
        open_to_all(&data);
        let server = json!({
            "command": place.join("bin/mcp-server-sqlite"), "args": ["--db-path", data.join("shop.db")],
            "write": [data], "reads_only": ["read_query", "list_tables"],
        });
        let (runtime, servers) = fixture.runtime(&json!({"shop": server}), &[]);
        let code = match fixture.language {
            Language::Python => {
                "def report():\n    shop = tool('shop')\n    shop.create_table(query='CREATE TABLE sales (day TEXT, total INTEGER)').value\n    shop.write_query(query=\"INSERT INTO sales VALUES ('mon', 3), ('tue', 4)\").value\n    return shop.read_query(query='SELECT sum(total) AS total FROM sales').value"
            }
            Language::Ruby => {
                "def report\n  shop = tool('shop')\n  shop.create_table(query: 'CREATE TABLE sales (day TEXT, total INTEGER)').value\n  shop.write_query(query: \"INSERT INTO sales VALUES ('mon', 3), ('tue', 4)\").value\n  shop.read_query(query: 'SELECT sum(total) AS total FROM sales').value\nend"
            }
        };
        fixture.model.add("desk.report", json!({ "code": code }));
        let desk = fixture.desk(&runtime);
        let outcome = desk.call("report", ()).unwrap();
        assert!(text(&outcome).contains("'total': 7"), "{outcome:?}");
        let pin = servers.servers[0].approved().unwrap().unwrap();
        assert_eq!(pin.revision.as_deref(), Some("2025-11-25"));
        // A call that does not fit the schema is corrected by the model; the table is there now.
        let query = "SELECT day FROM sales ORDER BY day LIMIT 1";
        for name in ["sql", "query"] {
            let code = match fixture.language {
                Language::Python => format!(
                    "def first_day():\n    return tool('shop').read_query({name}=\"{query}\").value"
                ),
                Language::Ruby => {
                    format!("def first_day = tool('shop').read_query({name}: \"{query}\").value")
                }
            };
            fixture.model.add("desk.first_day", json!({ "code": code }));
        }
        let outcome = desk.call("first_day", ()).unwrap();
        assert!(text(&outcome).contains("'day': 'mon'"), "{outcome:?}");
    });
}

/// The example works, and the second report needs no model.
#[test]
fn the_example_reports() {
    let fixture = Fixture::new(Language::Python);
    let program = environment("sqlite", &SQLITE).join("bin/mcp-server-sqlite");
    let mut config = Config::defaults();
    config.set("state_dir", &fixture.path("state").display().to_string()).unwrap();
    report::add_server(&mut config, &program, fixture.folder.path()).unwrap();
    let (servers, model) = (Servers::of(&config).unwrap(), Arc::new(report::script()));
    let builder = Runtime::builder(config).provider(Arc::<Scripted>::clone(&model));
    let outcomes = report::report(builder, &servers).unwrap();
    let values: Vec<_> = outcomes.iter().map(|outcome| outcome.value().unwrap()).collect();
    assert_eq!(values, [&json!(["tea: 7", "cake: 5"]), &json!(["cake: 2"])]);
    assert_eq!(model.asked(), ["desk.report"]);
}

/// Where tests run as root, workers are another user.
fn open_to_all(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// A process of the test, ended with it.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn proxy(port: u16, database: &std::path::Path) -> Proxy {
    let place = environment("sqlite", &SQLITE);
    let child = Command::new(place.join("bin/mcp-proxy"))
        .args(["--port", &port.to_string(), "--"])
        .arg(place.join("bin/mcp-server-sqlite"))
        .arg("--db-path")
        .arg(database)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let proxy = Proxy(child);
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_mins(2), "the proxy does not listen");
        thread::sleep(Duration::from_millis(50));
    }
    proxy
}

/// Streamable HTTP. A server that was ended and started anew has forgotten its sessions: one is made again.
#[test]
fn a_server_is_used_over_http_and_survives_its_restart() {
    let fixture = Fixture::new(Language::Python);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let database = fixture.path("shop.db");
    let running = proxy(port, &database);
    let server =
        json!({"type": "http", "url": format!("http://127.0.0.1:{port}/mcp"), "reads_only": ["*"]});
    let (runtime, _servers) = fixture.runtime(&json!({"shop": server}), &[]);
    fixture.calls("ask", "shop", "read_query");
    let desk = fixture.desk(&runtime);
    let query = || (json!({"query": "SELECT 6 * 7 AS answer"}),);
    let outcome = desk.call("ask", query()).unwrap();
    assert!(text(&outcome).contains("'answer': 42"), "{outcome:?}");
    drop(running);
    let outcome = desk.call("ask", query()).unwrap();
    assert!(text(&outcome).starts_with("tool_unavailable: "), "{outcome:?}");
    let _running = proxy(port, &database);
    let began = Instant::now();
    loop {
        let outcome = desk.call("ask", query()).unwrap();
        if text(&outcome).contains("'answer': 42") {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(2), "{outcome:?}");
        thread::sleep(Duration::from_millis(200));
    }
}
