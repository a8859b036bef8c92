//! An embedding program with serde types of its own. It ends with 0 if its floats are read as floats and its
//! 30-digit integers survive a call.

use std::sync::Arc;

use recurgent::config::{Config, LogTarget, SettingsLayer};
use recurgent::json::{self, Value};
use recurgent::provider::Scripted;
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Agent, Runtime, call};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flattened {
    name: String,
    #[serde(flatten)]
    price: Price,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Price {
    amount: f64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Circle { radius: f64 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(f64),
    Text(String),
}

fn own_types() -> Result<(), serde_json::Error> {
    let flattened = Flattened { name: "tea".into(), price: Price { amount: 2.5 } };
    assert_eq!(serde_json::from_str::<Flattened>(&serde_json::to_string(&flattened)?)?, flattened);
    assert_eq!(serde_json::from_value::<Flattened>(serde_json::to_value(&flattened)?)?, flattened);
    let tagged: Tagged = serde_json::from_str(r#"{"kind": "Circle", "radius": 1.5}"#)?;
    assert_eq!(tagged, Tagged::Circle { radius: 1.5 });
    assert_eq!(serde_json::from_str::<Untagged>("0.25")?, Untagged::Number(0.25));
    Ok(())
}

struct Desk {
    adder: Agent,
}

impl Desk {
    fn next(&self, number: Value) -> Result<Value, Box<dyn std::error::Error>> {
        Ok(call!(self.adder.next(number))?.result?)
    }
}

fn calls() -> Result<(), Box<dyn std::error::Error>> {
    let script = Scripted::new()
        .with("adder.next", "def next(number):\n    return number + 1\n")
        .with("adder.same", "def same(value):\n    return value\n");
    let layer = SettingsLayer { log: Some(LogTarget::Off), ..SettingsLayer::default() };
    let config = Config::defaults().with(&layer);
    let runtime = Runtime::builder(config)
        .provider(Arc::new(script))
        .store(Arc::new(SqliteStore::in_memory()?))
        .build()?;
    let desk = Desk { adder: runtime.agent("adder").build()? };
    let number: Value = json::from_str("123456789012345678901234567890")?;
    let next = desk.next(number)?;
    assert_eq!(next.to_string(), "123456789012345678901234567891");
    let typed: i128 = desk.adder.call_as("next", (123_456_789_012_345_678_901_234_567_890_i128,))?;
    assert_eq!(typed, 123_456_789_012_345_678_901_234_567_891);
    // Types of the program are arguments and values.
    let tea = Flattened { name: "tea".into(), price: Price { amount: 2.5e-7 } };
    assert_eq!(desk.adder.call_as::<Flattened>("same", (&tea,))?, tea);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    own_types()?;
    calls()
}
