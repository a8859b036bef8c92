//! What a model is sent, in tokens.

use lifecycle::prompt::{Surroundings, build};
use serde_json::{Value, json};
use tiktoken_rs::{CoreBPE, o200k_base};

use crate::pace::float;
use crate::program::request;
use crate::row::{Reading, Unit};
use crate::stage::Trial;

pub(super) fn fixed(trial: Trial) -> Reading {
    Reading::alone(Counter::new().count(trial, json!(3)), Unit::Tokens)
}

/// The shape of arguments that makes most of their size.
pub(super) fn growth(trial: Trial) -> Reading {
    let counter = Counter::new();
    let shapes: [fn(usize) -> Value; 4] = [
        |bytes| json!("word ".repeat(bytes / 5)),
        |bytes| json!(vec![1; bytes / 2]),
        |bytes| json!(vec![json!({"name": "ada", "age": 36}); bytes / 25]),
        |bytes| Value::Object((0..bytes / 12).map(|n| (format!("key_{n}"), json!(n))).collect()),
    ];
    let readings = shapes.map(|shape| {
        let (large, small) = (shape(1_000_000), shape(1_000));
        Reading::against(counter.count(trial, large), counter.count(trial, small), Unit::Tokens)
    });
    let worst =
        readings.into_iter().max_by(|a, b| f64::total_cmp(&a.ratio.unwrap(), &b.ratio.unwrap()));
    worst.unwrap()
}

/// Counts as the tests of prompts do.
struct Counter(CoreBPE);

impl Counter {
    fn new() -> Self {
        Self(o200k_base().unwrap())
    }

    fn count(&self, trial: Trial, argument: Value) -> f64 {
        let request = request(trial.language, vec![argument]);
        let prompt = build(&request, &Surroundings::default(), None);
        let tokens = |text: &str| self.0.encode_ordinary(text).len();
        float(tokens(&prompt.system) + tokens(&prompt.user))
    }
}
