//! A report over a database, through an MCP server that other people wrote: `mcp-server-sqlite`, from the Python package
//! index. `uv` installs it when this runs first.
//!
//! The model's part is played by a script: `cargo run -p recurgent-mcp --example 06_report`.
//! `cargo run -p recurgent-mcp --example 06_report -- live` asks the model of your configuration.
#![cfg_attr(not(test), expect(clippy::print_stdout, reason = "an example shows its results"))]

use std::error::Error;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use mcp::Servers;
use recurgent::config::Config;
use recurgent::json::json;
use recurgent::provider::Scripted;
use recurgent::toolbox::{ToolLimits, Toolbox as _};
use recurgent::{Cancellation, Outcome, Runtime, RuntimeBuilder};

const PACKAGE: &str = "mcp-server-sqlite==2025.4.25";

/// What a model would write for `desk.report`. The server answers with a text in the form of Python.
const REPORT: &str = r#"
import ast

def report(day):
    day = day.replace("'", "''")
    query = f"SELECT product, sum(amount) AS total FROM sales WHERE day = '{day}' GROUP BY product ORDER BY total DESC"
    found = tool('shop').read_query(query=query)
    if not found.ok:
        return found
    return [f"{row['product']}: {row['total']}" for row in ast.literal_eval(found.value)]
"#;

/// The server's program, installed if it is not there.
fn install() -> Result<PathBuf, Box<dyn Error>> {
    let place = Path::new("target/mcp-server-sqlite");
    let program = place.join("bin/mcp-server-sqlite");
    if !program.exists() {
        let run = |arguments: &[&str]| match Command::new("uv").args(arguments).arg(place).status()
        {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("uv failed: {status}")),
            Err(error) => {
                Err(format!("this example needs uv (https://docs.astral.sh/uv): {error}"))
            }
        };
        run(&["venv", "--quiet", "--clear"])?;
        run(&["pip", "install", "--quiet", PACKAGE, "--python"])?;
    }
    Ok(fs::canonicalize(place)?.join("bin/mcp-server-sqlite"))
}

/// Adds the server to a configuration, as a file of other programs names it. It has its own database in `folder`.
pub(crate) fn add_server(
    config: &mut Config,
    program: &Path,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let data = folder.join("data");
    fs::create_dir_all(&data)?;
    // Where this runs as root, servers are another user.
    fs::set_permissions(&data, Permissions::from_mode(0o777))?;
    let shop = json!({
        "command": program, "args": ["--db-path", data.join("shop.db")], "write": [data],
        "reads_only": ["read_query", "list_tables", "describe_table"],
    });
    let file = folder.join("mcp.json");
    fs::write(&file, json!({"mcpServers": {"shop": shop}}).to_string())?;
    config.set("mcp_files", &file.display().to_string())?;
    config.set("tools", "shop")?;
    Ok(())
}

/// A script that plays the model's part.
pub(crate) fn script() -> Scripted {
    Scripted::new().with("desk.report", REPORT)
}

/// Fills the database and makes two reports. The program of the first makes the second as well.
pub(crate) fn report(
    builder: RuntimeBuilder,
    servers: &Servers,
) -> Result<Vec<Outcome>, Box<dyn Error>> {
    let cancellation = Cancellation::default();
    for shop in &servers.servers {
        let timeout = shop.options().start_timeout;
        let limits = ToolLimits { timeout, cancellation: &cancellation };
        let offered = shop.definitions(&limits)?;
        for (method, query) in [
            ("create_table", "CREATE TABLE sales (day TEXT, product TEXT, amount INTEGER)"),
            (
                "write_query",
                "INSERT INTO sales VALUES ('mon', 'tea', 3), ('mon', 'cake', 5), ('mon', 'tea', 4), ('tue', 'cake', 2)",
            ),
        ] {
            let arguments = [("query".to_owned(), json!(query))].into_iter().collect();
            shop.call(offered.method(method)?, arguments, &limits)?;
        }
    }
    let runtime = servers.toolboxes().fold(builder, RuntimeBuilder::toolbox).build()?;
    let desk = runtime
        .agent("desk")
        .purpose("the sales of a day (table sales with day, product, amount; days are mon, tue, …) as texts such as tea: 7, largest first")
        .build()?;
    Ok(vec![desk.call("report", ("mon",))?, desk.call("report", ("tue",))?])
}

fn main() -> Result<(), Box<dyn Error>> {
    let is_live = std::env::args().nth(1).is_some_and(|argument| argument == "live");
    let (script, folder) = (Arc::new(script()), tempfile::tempdir()?);
    let mut config = if is_live { Config::load()? } else { Config::defaults() };
    if !is_live {
        config.set("state_dir", &folder.path().join("state").display().to_string())?;
    }
    add_server(&mut config, &install()?, folder.path())?;
    let servers = Servers::of(&config)?;
    let builder = Runtime::builder(config);
    let builder = if is_live { builder } else { builder.provider(Arc::<Scripted>::clone(&script)) };
    for outcome in report(builder, &servers)? {
        match outcome.result {
            Ok(lines) => println!("{lines}"),
            Err(failure) => println!("{failure}"),
        }
    }
    if !is_live {
        println!("asked a model for: {}", script.asked().join(", "));
    }
    Ok(())
}
