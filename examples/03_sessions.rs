//! A session keeps an agent's memory and history by name, across agents and processes.
//!
//! `cargo run -p recurgent --example 03_sessions`
#![expect(clippy::print_stdout, reason = "an example shows its results")]
#![expect(clippy::disallowed_methods, reason = "an example has no configuration")]

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Runtime, call};

const NOTE: &str = "def note(text):\n    context.setdefault('notes', []).append(text)\n    return len(context['notes'])";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("recurgent-example-{}", std::process::id()));
    for text in ["buy milk", "call Ada"] {
        // A new runtime each time stands for a new process.
        let mut config = Config::defaults();
        config.set("log", "off")?;
        let runtime = Runtime::builder(config)
            .provider(Arc::new(Scripted::new().with("notebook.note", NOTE)))
            .store(Arc::new(SqliteStore::open(&dir.join("store.sqlite"))?))
            .build()?;
        let notebook = runtime.agent("notebook").session("today").build()?;
        let outcome = call!(notebook.note(text))?;
        println!(
            "{} notes: {}",
            outcome.result?,
            notebook.get("notes").map(|notes| notes.to_string()).unwrap_or_default()
        );
        println!("calls so far: {}", notebook.history(10)?.len());
    }
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
