//! Observers see every attempt as it happens: here, one that raises and one that recovers.
//!
//! `cargo run -p recurgent --example 04_watching`
#![expect(clippy::print_stdout, reason = "an example shows its results")]

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::observe::{Event, EventKind, Observer};
use recurgent::provider::Scripted;
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Runtime, call};

struct Printer;

impl Observer for Printer {
    fn event(&self, event: &Event) {
        let name = &event.subject.name;
        match &event.kind {
            EventKind::Started { arguments } => println!("{name}({arguments})"),
            EventKind::Generating { attempt, with_feedback } => {
                println!("  attempt {attempt}: asking the model (feedback: {with_feedback})");
            }
            EventKind::Preparing { what } => println!("{name}: {what}"),
            EventKind::Executing { attempt, source, .. } => {
                println!("  attempt {attempt}: running ({source})");
            }
            EventKind::RolledBack { attempt, code, message, .. } => {
                println!("  attempt {attempt}: rolled back, {code}: {message}");
            }
            EventKind::Ended { outcome, .. } => println!("  {}", outcome.status()),
            // Also events of later versions.
            EventKind::Waiting { .. } | _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let script = Scripted::new()
        .with("statistics.mean", "result = sum(args[0]) / 0")
        .with("statistics.mean", "def mean(numbers):\n    return sum(numbers) / len(numbers)");
    let mut config = Config::defaults();
    config.set("log", "off")?;
    let runtime = Runtime::builder(config)
        .provider(Arc::new(script))
        .store(Arc::new(SqliteStore::in_memory()?))
        .observer(Box::new(Printer))
        .build()?;
    let statistics = runtime.agent("statistics").build()?;
    println!("{:?}", call!(statistics.mean([1, 2, 6]))?.result?.to_string());
    Ok(())
}
