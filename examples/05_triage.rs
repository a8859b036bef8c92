//! Tickets are sorted: a model judges each one, and a function of this program files it. The program that does it is
//! written once; the tickets of the second day need no other.
//!
//! The model's part is played by a script, so this runs anywhere: `cargo run -p recurgent --example 05_triage`.
//! `cargo run -p recurgent --example 05_triage -- live` asks the model of your configuration.
#![cfg_attr(not(test), expect(clippy::print_stdout, reason = "an example shows its results"))]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::schemars::{self, JsonSchema};
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Outcome, Runtime};
use serde::Deserialize;
use serde_json::json;

/// Files a ticket in the queue of its topic.
#[derive(Deserialize, JsonSchema)]
struct Filing {
    ticket: String,
    /// One of: bug, billing, praise.
    topic: String,
}

/// The tickets of each topic.
type Queues = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// What a model would write for `triage.sort`.
const SORT: &str = "
def sort(tickets):
    topics = infer('Which topic?', each=tickets, schema=['bug', 'billing', 'praise'])
    for ticket, topic in zip(tickets, topics):
        filed = tool('queues').file(ticket=ticket, topic=topic)
        if not filed.ok:
            return filed
    return topics
";

const DAYS: [&[&str]; 2] =
    [&["It crashes when I save.", "I was charged twice.", "Lovely."], &["The export hangs."]];

/// A script that plays the model's part.
pub(crate) fn script() -> Scripted {
    let script = Scripted::new().with("triage.sort", SORT);
    let answers = |topics: &[&str]| {
        let items = (1..).zip(topics).map(|(item, topic)| json!({"item": item, "answer": topic}));
        json!({"answers": items.collect::<Vec<_>>()})
    };
    script.add("infer:triage.sort", answers(&["bug", "billing", "praise"]));
    script.add("infer:triage.sort", answers(&["bug"]));
    script
}

/// Sorts the tickets of two days: the outcome of each, and the queues.
pub(crate) fn sort(runtime: &Runtime) -> Result<(Vec<Outcome>, Queues), Box<dyn Error>> {
    let queues = Queues::default();
    let filed = Arc::clone(&queues);
    runtime.toolbox().function("queues.file", move |filing: Filing| {
        let mut queues = filed.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(filing.topic).or_default();
        queue.push(filing.ticket);
        Ok::<_, String>(queue.len())
    })?;
    let triage = runtime
        .agent("triage")
        .purpose("judge of each ticket whether its topic is bug, billing or praise, file it in the queue of its topic, and give the topics")
        .build()?;
    let outcomes: Result<Vec<Outcome>, _> =
        DAYS.iter().map(|tickets| triage.call("sort", (json!(tickets),))).collect();
    Ok((outcomes?, queues))
}

fn main() -> Result<(), Box<dyn Error>> {
    let is_live = std::env::args().nth(1).is_some_and(|argument| argument == "live");
    let script = Arc::new(script());
    let builder = if is_live {
        Runtime::builder(Config::load()?)
    } else {
        let mut config = Config::defaults();
        config.set("log", "off")?;
        Runtime::builder(config)
            .provider(Arc::<Scripted>::clone(&script))
            .store(Arc::new(SqliteStore::in_memory()?))
    };
    let (outcomes, queues) = sort(&builder.build()?)?;
    for outcome in outcomes {
        match outcome.result {
            Ok(topics) => println!("{topics}"),
            Err(failure) => println!("{failure}"),
        }
    }
    for (topic, tickets) in queues.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("{topic}: {}", tickets.join(" "));
    }
    if !is_live {
        println!("asked a model for: {}", script.asked().join(", "));
    }
    Ok(())
}
