//! Our side of `scripts/rivals`: runs the tasks it names on standard input, one a line, and prints how long each
//! took. Every task is a call from the library's surface, with all a call does: select or ask the (stub)
//! model, vet, run in a sandboxed worker, judge, commit, log.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "it answers on standard output"
)]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Instant;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::{Agent, Runtime};
use serde_json::{Value, json};

/// The programs the stub model writes. Method, code, packages; `scripts/rivals` gives its rivals the same work.
const PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("run", "def add(a, b):\n    return a + b\n\nresult = add(args[0], args[1])", &[]),
    (
        "loop",
        "total = 0\nfor n in range(100000):\n    total += n % 7\n\nresult = total + args[0] - args[1]",
        &[],
    ),
    (
        "packages",
        "import dateutil\n\nresult = args[0] + args[1] + len(dateutil.__name__) - 8",
        &["python-dateutil"],
    ),
];

fn main() {
    let Some(state_dir) = std::env::args().nth(1).filter(|word| word != "--bench") else {
        return println!("run scripts/rivals: it starts this beside its rivals");
    };
    let runtime = runtime(&state_dir);
    // Packages are an agent's: one that has them runs all its programs where they are.
    let [mut plain, mut packaged] =
        ["plain", "packaged"].map(|role| runtime.agent(role).build().unwrap());
    say(&json!({"version": env!("CARGO_PKG_VERSION"), "note": runtime.workers().tier()}));
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let task = line.unwrap();
        // A new method, so that a model is asked.
        let method =
            if task == "agent" { format!("run_{}_{number}", std::process::id()) } else { task };
        let agent = if method == "packages" { &mut packaged } else { &mut plain };
        let began = Instant::now();
        let answer = answer(agent, &method);
        say(&json!({"micros": began.elapsed().as_secs_f64() * 1e6, "answer": answer}));
    }
}

fn answer(agent: &mut Agent, method: &str) -> Value {
    let outcome = agent.call(method, (5, 3)).unwrap();
    outcome.result.unwrap_or_else(|failure| json!(failure.to_string()))
}

fn runtime(state_dir: &str) -> Runtime {
    let mut config = Config::load().unwrap();
    config.set("state_dir", state_dir).unwrap();
    config.set("cache_dir", &format!("{state_dir}/cache")).unwrap();
    config.set("guest", "python").unwrap();
    let model = Scripted::new();
    for (method, code, packages) in PROGRAMS {
        let dependencies: Vec<Value> = packages.iter().map(|name| json!({"name": name})).collect();
        let payload = json!({"code": code, "dependencies": dependencies});
        if *method == "run" {
            model.add("*", payload.clone());
        }
        model.add(method, payload);
    }
    Runtime::builder(config).provider(Arc::new(model)).build().unwrap()
}

fn say(value: &Value) {
    println!("{value}");
    std::io::stdout().flush().unwrap();
}
