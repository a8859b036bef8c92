//! The size of prompts in tokens.

use lifecycle::prompt::{PromptContext, PromptForm, build};
use lifecycle::request::Arguments;
use serde_json::{Map, Value, json};
use tiktoken_rs::{CoreBPE, o200k_base};

use crate::fixture::MeasurementOptions;
use crate::program::request;
use crate::row::{Measurement, Unit};
use crate::timing::float;

pub(super) fn fixed(options: MeasurementOptions) -> Measurement {
    Measurement::without_floor(Counter::new().count(options, one(json!(3))), Unit::Tokens)
}

/// Arguments of about this number of bytes.
type Shape = fn(usize) -> Arguments;

/// The shape of arguments with the longest description for their size.
pub(super) fn growth(options: MeasurementOptions) -> Measurement {
    let counter = Counter::new();
    let shapes: [Shape; 8] = [
        |bytes| one(json!("word ".repeat(bytes / 5))),
        |bytes| one(json!(vec![1; bytes / 2])),
        |bytes| one(json!(vec![json!({"name": "ada", "age": 36}); bytes / 25])),
        |bytes| one(Value::Object(numbered(bytes / 12))),
        |bytes| one(json!({"k".repeat(bytes / 2): "v".repeat(bytes / 2)})),
        |bytes| one(json!(vec![vec![vec!["deep"; 10]; 10]; bytes / 700])),
        |bytes| Arguments { args: vec![json!(7); bytes / 2], kwargs: Map::new() },
        |bytes| Arguments { args: Vec::new(), kwargs: numbered(bytes / 12) },
    ];
    let readings = shapes.map(|shape| {
        let (large, small) = (shape(1_000_000), shape(1_000));
        Measurement::against(
            counter.count(options, large),
            counter.count(options, small),
            Unit::Tokens,
        )
    });
    let worst =
        readings.into_iter().max_by(|a, b| f64::total_cmp(&a.ratio.unwrap(), &b.ratio.unwrap()));
    worst.unwrap()
}

fn one(argument: Value) -> Arguments {
    Arguments { args: vec![argument], kwargs: Map::new() }
}

fn numbered(keys: usize) -> Map<String, Value> {
    (0..keys).map(|n| (format!("key_{n}"), json!(n))).collect()
}

/// Counts as the tests of prompts do.
struct Counter(CoreBPE);

impl Counter {
    fn new() -> Self {
        Self(o200k_base().unwrap())
    }

    fn count(&self, options: MeasurementOptions, arguments: Arguments) -> f64 {
        let mut request = request(options.language, Vec::new());
        request.arguments = arguments;
        let prompt = build(&request, &PromptContext::default(), None, PromptForm::Payload);
        let tokens = |text: &str| self.0.encode_ordinary(text).len();
        float(tokens(&prompt.system) + tokens(&prompt.user))
    }
}
