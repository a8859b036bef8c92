//! A program forges a tool with an enforced contract; the next call finds it by name.
//!
//! The model's part is played by a script, so this runs anywhere:
//! `cargo run -p recurgent --example 02_tools`
#![expect(clippy::print_stdout, reason = "an example shows its results")]

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Runtime, call};

/// What a model would write for `host.greet`: it forges a tool and uses it.
const FORGE: &str = r#"
namer = delegate(
    "namer",
    purpose="spell a name properly",
    deliverable={"type": "string", "constraints": {"min_length": 1}},
)
name = namer.proper(args[0])
result = f"Hello, {name.value}!" if name.ok else name
"#;

/// What a model would write for `host.farewell`: the tool is known by now.
const REUSE: &str = r#"
name = tool("namer").proper(args[0])
result = f"Goodbye, {name.value}." if name.ok else name
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let script = Arc::new(
        Scripted::new()
            .with("host.greet", FORGE)
            .with("host.farewell", REUSE)
            .with("namer.proper", "def proper(name):\n    return name.strip().title()"),
    );
    let mut config = Config::defaults();
    config.set("log", "off")?;
    let runtime = Runtime::builder(config)
        .provider(script.clone())
        .store(Arc::new(SqliteStore::in_memory()?))
        .build()?;

    let host = runtime.agent("host").build()?;
    for outcome in [call!(host.greet(" ada lovelace "))?, call!(host.farewell("ada lovelace"))?] {
        match outcome.result {
            Ok(value) => println!("{value}"),
            Err(failure) => println!("{failure}"),
        }
    }
    println!("asked a model for: {}", script.asked().join(", "));
    Ok(())
}
